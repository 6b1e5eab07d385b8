//! The descriptors that the log writes to. They may be the program's, or take nothing: a line waits [`PATIENCE`] at most, and
//! no thread waits for another one.
//!
//! Each kind of descriptor has its own means to be written to without waiting, which leaves its flags alone: docs/decisions/log-writes.md
//! has the table. A log file's descriptor has a high number, since programs expect low ones for what they open.

use std::ffi::{CString, OsStr, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::{is_member, keep_errno, pending, without_signals_of_writing};

/// So long a line waits for a descriptor that takes no data.
const PATIENCE: Duration = Duration::from_millis(200);

/// What a descriptor referred to: the file behind it, whatever its number. An inode's number is used again, hence the
/// time of birth.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: (u32, u32),
    inode: u64,
    kind: u32,
    born: (i64, u32),
}

fn identity(descriptor: c_int) -> Option<Identity> {
    let mut status = MaybeUninit::<libc::statx>::zeroed();
    let wanted = libc::STATX_TYPE | libc::STATX_INO | libc::STATX_BTIME;
    // The C library has no function for it before 2.28, whatever the kernel can do.
    // SAFETY: statx fills `status`, all of whose fields may be 0.
    let status = unsafe {
        let (none, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
        if libc::syscall(libc::SYS_statx, descriptor, none, flags, wanted, status.as_mut_ptr()) != 0 {
            return identity_without_birth(descriptor);
        }
        status.assume_init()
    };
    Some(Identity {
        device: (status.stx_dev_major, status.stx_dev_minor),
        inode: status.stx_ino,
        kind: u32::from(status.stx_mode) & libc::S_IFMT,
        born: (status.stx_btime.tv_sec, status.stx_btime.tv_nsec),
    })
}

/// For kernels and sandboxes that know no statx.
fn identity_without_birth(descriptor: c_int) -> Option<Identity> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat fills `status`, and it is read only when fstat says so.
    let status = unsafe {
        if libc::fstat(descriptor, status.as_mut_ptr()) != 0 {
            return None;
        }
        status.assume_init()
    };
    let device = (libc::major(status.st_dev), libc::minor(status.st_dev));
    Some(Identity { device, inode: status.st_ino, kind: status.st_mode & libc::S_IFMT, born: (0, 0) })
}

/// How a descriptor is written to without waiting. Its flags belong to all who share it, the program first of all: they stay
/// as they are.
#[derive(Clone, Copy)]
enum Kind {
    /// A file, which is waited for, or a description of our own that never waits.
    Plain,
    /// A pipe or FIFO.
    Pipe,
    Socket,
    /// A terminal, or another device, which is waited for as a file is. Which of them is not asked when the library is loaded.
    Device,
}

impl Kind {
    const fn of(identity: &Identity) -> Self {
        match identity.kind {
            libc::S_IFIFO => Self::Pipe,
            libc::S_IFSOCK => Self::Socket,
            libc::S_IFCHR => Self::Device,
            _ => Self::Plain,
        }
    }
}

/// A descriptor that the log writes to, for as long as it refers to what it did at first.
///
/// Programs close descriptor 2, or all of them, and open files that get the same numbers. A line
/// of ours must not land there. (Between the check and the write another thread may still do so;
/// holding a duplicate instead would keep a closed pipe's reader waiting for ever.)
pub(crate) struct Descriptor {
    number: c_int,
    identity: Identity,
    kind: Kind,
    /// How many lines it did not take since it was last told.
    lost: AtomicU64,
    /// A line has waited in vain: the next ones do not wait.
    is_full: AtomicBool,
    /// The last thing that it took is the beginning of a line.
    is_cut: AtomicBool,
}

/// Standard error as it was before the program could close it and open a file of its own that got the number.
static STDERR: OnceLock<Option<Descriptor>> = OnceLock::new();

/// The only thing that happens when the library is loaded: one statx. By the first GPU call it is too late to ask.
#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER_STDERR: extern "C" fn() = {
    extern "C" fn remember_stderr() {
        keep_errno(Descriptor::stderr);
    }
    remember_stderr
};

impl Descriptor {
    fn new(number: c_int) -> Option<Self> {
        let identity = identity(number)?;
        let kind = Kind::of(&identity);
        let (lost, is_full, is_cut) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        Some(Self { number, identity, kind, lost, is_full, is_cut })
    }

    /// Standard error as it was when the library was loaded, if it was open.
    pub(crate) fn stderr() -> Option<&'static Self> {
        // Constructors of other libraries may call us before ours has run.
        STDERR.get_or_init(|| Self::new(libc::STDERR_FILENO)).as_ref()
    }

    /// A file that lines are appended to, created with mode 0600.
    ///
    /// # Errors
    /// What open(2) says; a symbolic link as last component is refused.
    pub(crate) fn append(path: &OsStr) -> io::Result<Self> {
        let path = CString::new(path.as_bytes())?;
        // With O_NONBLOCK neither opening a FIFO nor writing to it waits for its reader.
        let flags = libc::O_WRONLY
            | libc::O_APPEND
            | libc::O_CREAT
            | libc::O_CLOEXEC
            | libc::O_NOFOLLOW
            | libc::O_NOCTTY
            | libc::O_NONBLOCK;
        // SAFETY: `path` is a C string that outlives the call.
        let number = unsafe { libc::open(path.as_ptr(), flags, 0o600) };
        if number < 0 {
            let error = io::Error::last_os_error();
            let is_link = error.raw_os_error() == Some(libc::ELOOP);
            return Err(if is_link { io::Error::other("it is a symbolic link") } else { error });
        }
        let file = Self::new(out_of_the_way(number)).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { kind: Kind::Plain, ..file })
    }

    /// Writes a line, after one that says how many were lost before it. Whoever calls holds signals back: the first one that
    /// comes ends the waiting.
    ///
    /// # Errors
    /// The line is lost, and counted, unless the descriptor refers to something else by now.
    pub(crate) fn write_line(&self, line: &[u8]) -> io::Result<()> {
        if identity(self.number) != Some(self.identity) {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the descriptor refers to something else by now"));
        }
        let written = without_signals_of_writing(|| {
            if self.is_full.load(Relaxed) && !is_ready(self.number, 0) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let deadline = Instant::now() + PATIENCE;
            self.write_lost(deadline)?;
            self.write_all(line, deadline)
        });
        self.lost.fetch_add(u64::from(written.is_err()), Relaxed);
        written
    }

    fn write_lost(&self, deadline: Instant) -> io::Result<()> {
        if self.lost.load(Relaxed) == 0 {
            return Ok(());
        }
        let lost = self.lost.swap(0, Relaxed);
        let end_of_line = if self.is_cut.load(Relaxed) { "\n" } else { "" };
        let text = format!("{end_of_line}p2pshim: {lost} lines before this one are lost: nobody took them\n");
        let written = self.write_all(text.as_bytes(), deadline);
        if written.is_err() {
            self.lost.fetch_add(lost, Relaxed);
        }
        written
    }

    fn write_all(&self, text: &[u8], deadline: Instant) -> io::Result<()> {
        let (mut rest, mut held) = (text, None);
        while !rest.is_empty() {
            let error = match self.write(rest) {
                Ok(0) => io::ErrorKind::WriteZero.into(),
                Ok(written) => {
                    rest = rest.get(written..).unwrap_or_default();
                    continue;
                }
                Err(error) => error,
            };
            let is_full = error.kind() == io::ErrorKind::WouldBlock;
            if is_full && !self.is_full.load(Relaxed) && self.wait(deadline, &mut held) {
                continue;
            }
            self.is_full.store(is_full, Relaxed);
            if rest.len() < text.len() {
                self.is_cut.store(true, Relaxed);
            }
            return Err(error);
        }
        self.is_full.store(false, Relaxed);
        self.is_cut.store(false, Relaxed);
        Ok(())
    }

    /// Waits until there is room. False if there is none by the deadline, or a signal has come since the first time, which put those
    /// that were there into `held`.
    fn wait(&self, deadline: Instant, held: &mut Option<libc::sigset_t>) -> bool {
        const SLICE: Duration = Duration::from_millis(10);
        if held.is_some() {
            // There was room, but not enough.
            thread::sleep(Duration::from_millis(1));
        }
        let held = held.get_or_insert_with(pending);
        while !has_more(&pending(), held) {
            let left = deadline.saturating_duration_since(Instant::now()).min(SLICE);
            if left.is_zero() {
                return false;
            }
            if is_ready(self.number, c_int::try_from(left.as_millis()).unwrap_or(0)) {
                return true;
            }
        }
        false
    }

    /// Writes as much as can be written without waiting; [`io::ErrorKind::WouldBlock`] if that is nothing.
    fn write(&self, text: &[u8]) -> io::Result<usize> {
        match self.kind {
            Kind::Pipe => match write_nowait(self.number, text) {
                Err(error) if is_unsupported(&error) => {
                    self.write_reopened(text).unwrap_or_else(|_| splice(self.number, text))
                }
                result => result,
            },
            Kind::Socket => {
                // SAFETY: `text` is valid for reads of its length.
                count(unsafe { libc::send(self.number, text.as_ptr().cast(), text.len(), libc::MSG_DONTWAIT) })
            }
            // SAFETY: isatty only asks.
            Kind::Device if unsafe { libc::isatty(self.number) } == 1 => {
                self.write_reopened(text).unwrap_or_else(|_| write_byte(self.number, text))
            }
            Kind::Plain | Kind::Device => write(self.number, text),
        }
    }

    /// Writes by a description of our own that does not wait, which is closed at once: who waits for the end of a pipe must not
    /// wait for us.
    ///
    /// # Errors
    /// There is none: the file is another user's, or there is no `/proc`.
    fn write_reopened(&self, text: &[u8]) -> io::Result<io::Result<usize>> {
        let path = CString::new(format!("/proc/thread-self/fd/{}", self.number))?;
        let flags = libc::O_WRONLY | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
        // SAFETY: `path` is a C string that outlives the call.
        let own = unsafe { libc::open(path.as_ptr(), flags) };
        if own < 0 {
            return Err(io::Error::last_os_error());
        }
        let own = out_of_the_way(own);
        let written = write(own, text);
        close(own);
        Ok(written)
    }
}

fn write(number: c_int, text: &[u8]) -> io::Result<usize> {
    // SAFETY: `text` is valid for reads of its length.
    count(unsafe { libc::write(number, text.as_ptr().cast(), text.len()) })
}

/// Writes to a pipe without waiting, whatever its flags say: Linux 6.4.
fn write_nowait(number: c_int, text: &[u8]) -> io::Result<usize> {
    let part = libc::iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() };
    let (here, none): (libc::c_long, libc::c_long) = (-1, 0);
    // The C library has no function for it before 2.26.
    // SAFETY: the kernel reads the one part, which is valid for that.
    let written = unsafe { libc::syscall(libc::SYS_pwritev2, number, &part, 1, here, none, libc::RWF_NOWAIT) };
    count(written as isize)
}

/// Whether the kernel, or a filter of system calls, does not know how to do it.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::EPERM))
}

/// Writes to a pipe without waiting by moving the data there from another pipe. Not the first choice: each line then takes one of
/// the 16 places that a pipe has.
fn splice(number: c_int, text: &[u8]) -> io::Result<usize> {
    let text = text.get(..libc::PIPE_BUF).unwrap_or(text);
    let mut ends = [0; 2];
    // SAFETY: pipe2 fills two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let [from, to] = ends.map(out_of_the_way);
    let written = write(to, text).and_then(|length| {
        // SAFETY: no offsets are given; both are pipes.
        count(unsafe { libc::splice(from, ptr::null_mut(), number, ptr::null_mut(), length, libc::SPLICE_F_NONBLOCK) })
    });
    [from, to].into_iter().for_each(close);
    written
}

/// Writes a single byte, if there is room: as much never waits.
fn write_byte(number: c_int, text: &[u8]) -> io::Result<usize> {
    if !is_ready(number, 0) {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    write(number, text.get(..1).unwrap_or_default())
}

/// Whether there is room, or what is written would fail at once.
fn is_ready(number: c_int, timeout_ms: c_int) -> bool {
    let mut ready = libc::pollfd { fd: number, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one descriptor, as said.
    unsafe { libc::poll(&mut ready, 1, timeout_ms) == 1 }
}

fn count(written: isize) -> io::Result<usize> {
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

fn has_more(signals: &libc::sigset_t, before: &libc::sigset_t) -> bool {
    (1..=libc::SIGRTMAX()).any(|signal| is_member(signals, signal) && !is_member(before, signal))
}

fn close(own: c_int) {
    // SAFETY: who calls has opened it, and does not use it any more.
    unsafe { libc::close(own) };
}

/// Moves a descriptor of ours to a high number: programs expect low ones for what they open next.
fn out_of_the_way(number: c_int) -> c_int {
    for lowest in [1000, 200, 50, 3] {
        // SAFETY: the descriptor is ours.
        let moved = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, lowest) };
        if moved >= 0 {
            close(number);
            return moved;
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::undisturbed;
    use std::os::fd::IntoRawFd;

    fn pipe() -> (c_int, c_int) {
        let mut ends = [0; 2];
        // SAFETY: pipe2 fills two descriptors.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        (ends[0], ends[1])
    }

    #[test]
    fn write_reader_gone_no_signal_is_left() {
        let (read, write) = pipe();
        close(read);
        let log = Descriptor::new(write).unwrap();
        // The test harness ignores SIGPIPE; without that the process would end here.
        // SAFETY: restores the default action, as a C program has it.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let error = undisturbed(|| log.write_line(b"line\n").unwrap_err());
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        assert!(!is_member(&pending(), libc::SIGPIPE));
        close(write);
    }

    #[test]
    fn write_number_reused_nothing_is_written() {
        let (read, write) = pipe();
        let log = Descriptor::new(write).unwrap();
        let path = std::env::temp_dir().join(format!("p2pshim-reused-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap().into_raw_fd();
        // SAFETY: both descriptors are the test's own.
        unsafe { libc::dup2(file, write) };
        assert!(log.write_line(b"line\n").is_err());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        std::fs::remove_file(path).unwrap();
        [read, write, file].into_iter().for_each(close);
    }

    /// Its ends, of which the second takes nothing more.
    fn full_pipe() -> (c_int, c_int) {
        let (read, write) = pipe();
        while write_nowait(write, &[b'.'; 4096]).is_ok() {}
        (read, write)
    }

    #[test]
    fn write_full_pipe_waits_once_and_tells_what_is_lost() {
        let (read, write) = full_pipe();
        let log = Descriptor::new(write).unwrap();
        let since = Instant::now();
        assert_eq!(undisturbed(|| log.write_line(b"line\n").unwrap_err()).kind(), io::ErrorKind::WouldBlock);
        assert!(since.elapsed() >= PATIENCE);
        let since = Instant::now();
        for _ in 0..100 {
            assert!(undisturbed(|| log.write_line(b"line\n")).is_err());
        }
        // On a machine that is busy, too.
        assert!(since.elapsed() < 50 * PATIENCE);
        let mut taken = vec![0; 1 << 20];
        let mut take = || {
            // SAFETY: `taken` is valid for writes of its length.
            let length = count(unsafe { libc::read(read, taken.as_mut_ptr().cast(), taken.len()) }).unwrap();
            String::from_utf8_lossy(&taken[..length]).into_owned()
        };
        take();
        undisturbed(|| log.write_line(b"line\n")).unwrap();
        assert_eq!(take(), "p2pshim: 101 lines before this one are lost: nobody took them\nline\n");
        undisturbed(|| log.write_line(b"line\n")).unwrap();
        assert_eq!(take(), "line\n");
        [read, write].into_iter().for_each(close);
    }

    #[test]
    fn write_full_pipe_signal_ends_the_waiting() {
        let (read, write) = full_pipe();
        let log = Descriptor::new(write).unwrap();
        // SAFETY: an ignored signal still waits where it is held back. Nobody else uses it.
        unsafe { libc::signal(libc::SIGUSR2, libc::SIG_IGN) };
        // SAFETY: pthread_self only asks.
        let this = unsafe { libc::pthread_self() };
        let since = Instant::now();
        let sender = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            // SAFETY: that thread waits for this one before it ends.
            unsafe { libc::pthread_kill(this, libc::SIGUSR2) };
        });
        assert!(undisturbed(|| log.write_line(b"line\n")).is_err());
        assert!(since.elapsed() < PATIENCE, "{:?}", since.elapsed());
        sender.join().unwrap();
        [read, write].into_iter().for_each(close);
    }

    /// What kernels before 6.4 have, and what is left where files cannot be opened again.
    #[test]
    fn write_by_other_means_full_pipe_does_not_wait() {
        let by_opening: fn(&Descriptor) -> _ = |log| log.write_reopened(b"line\n").unwrap();
        let ways = [by_opening, |log| splice(log.number, b"line\n"), |log| write_byte(log.number, b"line\n")];
        for way in ways {
            let (read, write) = full_pipe();
            let log = Descriptor::new(write).unwrap();
            assert_eq!(way(&log).unwrap_err().kind(), io::ErrorKind::WouldBlock);
            [read, write].into_iter().for_each(close);
            let (read, write) = pipe();
            let written = way(&Descriptor::new(write).unwrap()).unwrap();
            let mut taken = [0; 100];
            // SAFETY: `taken` is valid for writes of its length.
            assert_eq!(count(unsafe { libc::read(read, taken.as_mut_ptr().cast(), taken.len()) }).unwrap(), written);
            assert_eq!(taken[..written], b"line\n"[..written]);
            [read, write].into_iter().for_each(close);
        }
    }

    #[test]
    fn append_symbolic_link_is_refused() {
        let link = std::env::temp_dir().join(format!("p2pshim-link-{}", std::process::id()));
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        assert!(Descriptor::append(link.as_os_str()).is_err());
        std::fs::remove_file(link).unwrap();
    }

    #[test]
    fn append_pipe_without_a_reader_is_an_error_and_does_not_wait() {
        let path = std::env::temp_dir().join(format!("p2pshim-fifo-{}", std::process::id()));
        let name = CString::new(path.as_os_str().as_bytes()).unwrap();
        // SAFETY: `name` is a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert!(Descriptor::append(path.as_os_str()).is_err());
        std::fs::remove_file(path).unwrap();
    }
}
