//! The descriptors that the log writes to. They may be the program's, or take nothing: a line waits [`PATIENCE`] at most, and
//! no thread waits for another one. Their flags belong to all who share them and stay as they are: docs/dev/decisions/log-writes.md.

use std::ffi::{OsStr, c_int};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::{keep_errno, without_signals_of_writing};

/// So long a line waits for a descriptor that takes no data.
const PATIENCE: Duration = Duration::from_millis(200);

/// The file that a descriptor refers to, whatever its number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: libc::dev_t,
    inode: libc::ino_t,
    kind: libc::mode_t,
}

fn identity(number: c_int) -> Option<Identity> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat fills `status`, and it is read only when fstat says so.
    let status = unsafe {
        if libc::fstat(number, status.as_mut_ptr()) != 0 {
            return None;
        }
        status.assume_init()
    };
    Some(Identity { device: status.st_dev, inode: status.st_ino, kind: status.st_mode & libc::S_IFMT })
}

/// A descriptor that the log writes to, for as long as it refers to the same file.
///
/// Programs close descriptor 2, or all of them, and open files that get the same numbers. A line
/// of ours must not land there. (Between the check and the write another thread may still do so;
/// holding a duplicate instead would keep a closed pipe's reader waiting for ever.)
pub(crate) struct Descriptor {
    number: c_int,
    identity: Identity,
    /// How many lines it did not take since it was last told.
    lost: AtomicU64,
    /// The last line was not taken: the next ones do not wait.
    is_full: AtomicBool,
    /// The last thing that it took is the beginning of a line.
    is_cut: AtomicBool,
}

/// Standard error as it was before the program could close it and open a file of its own that got the number.
static STDERR: OnceLock<Option<Descriptor>> = OnceLock::new();

/// The only thing that happens when the library is loaded: one fstat. By the first GPU call it is too late to ask. Miri has none.
#[cfg(not(miri))]
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
        let (lost, is_full, is_cut) = (AtomicU64::new(0), AtomicBool::new(false), AtomicBool::new(false));
        Some(Self { number, identity, lost, is_full, is_cut })
    }

    /// Standard error as it was when the library was loaded, if it was open.
    pub(crate) fn stderr() -> Option<&'static Self> {
        // Constructors of other libraries may call us before ours has run.
        STDERR.get_or_init(|| Self::new(libc::STDERR_FILENO)).as_ref()
    }

    /// A file that lines are appended to, created with mode 0600.
    ///
    /// # Errors
    /// The error of open(2); a symbolic link as last component is refused.
    pub(crate) fn append(path: &OsStr) -> io::Result<Self> {
        // With O_NONBLOCK opening a FIFO does not wait for its reader.
        let flags = libc::O_NOFOLLOW | libc::O_NOCTTY | libc::O_NONBLOCK;
        let file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path);
        let file = file.map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => io::Error::other("it is a symbolic link"),
            _ => error,
        })?;
        Self::new(out_of_the_way(file.into_raw_fd())).ok_or_else(io::Error::last_os_error)
    }

    /// Writes a line, or nothing, after one that says how many were lost before it. Whoever calls holds signals back. The line is lost if
    /// the descriptor refers to something else by now, and counted as well if it is not taken.
    pub(crate) fn write_line(&self, line: &[u8]) {
        if identity(self.number) != Some(self.identity) {
            return;
        }
        let (mut text, lost) = (Vec::new(), self.lost.swap(0, Relaxed));
        if lost != 0 {
            let end_of_line = if self.is_cut.load(Relaxed) { "\n" } else { "" };
            text = format!("{end_of_line}p2pshim: {lost} lines before this one are lost: they could not be written\n")
                .into_bytes();
        }
        let report = text.len();
        text.extend(line);
        let taken = without_signals_of_writing(|| self.take(&text));
        if taken < text.len() {
            let lost = if taken < report { lost } else { 0 };
            self.lost.fetch_add(lost + u64::from(!line.is_empty()), Relaxed);
        }
        if taken > 0 {
            self.is_cut.store(taken < text.len(), Relaxed);
        }
    }

    /// How many lines are lost of which nothing was said yet.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Writes a text, and returns how much of it was taken.
    fn take(&self, text: &[u8]) -> usize {
        let (mut rest, deadline) = (text, Instant::now() + PATIENCE);
        while !rest.is_empty() {
            match self.write(rest) {
                Ok(taken @ 1..) => rest = rest.get(taken..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.has_room_by(deadline) => {}
                _ => break,
            }
        }
        self.is_full.store(!rest.is_empty(), Relaxed);
        text.len() - rest.len()
    }

    fn has_room_by(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now()).as_millis() as c_int;
        let mut ready = libc::pollfd { fd: self.number, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one descriptor, as said.
        !self.is_full.load(Relaxed) && left > 0 && unsafe { libc::poll(&mut ready, 1, left) } == 1
    }

    /// Writes as much as is taken without waiting; [`io::ErrorKind::WouldBlock`] if that is nothing. Files are waited for.
    fn write(&self, text: &[u8]) -> io::Result<usize> {
        match self.identity.kind {
            libc::S_IFSOCK => {
                // SAFETY: `text` is valid for reads of its length.
                count(unsafe { libc::send(self.number, text.as_ptr().cast(), text.len(), libc::MSG_DONTWAIT) })
            }
            libc::S_IFIFO | libc::S_IFCHR => self.write_reopened(text),
            _ => self.write_waiting(text),
        }
    }

    /// Writes by a description of our own, which does not wait and is closed at once: who waits for the end of a pipe must not
    /// wait for us. Where it is refused (another user's, no `/proc`) the descriptor is waited for.
    fn write_reopened(&self, text: &[u8]) -> io::Result<usize> {
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let path = format!("/proc/thread-self/fd/{}", self.number);
        match OpenOptions::new().write(true).custom_flags(flags).open(path) {
            Ok(mut own) => own.write(text),
            Err(_) => self.write_waiting(text),
        }
    }

    fn write_waiting(&self, text: &[u8]) -> io::Result<usize> {
        // SAFETY: `text` is valid for reads of its length.
        count(unsafe { libc::write(self.number, text.as_ptr().cast(), text.len()) })
    }
}

fn count(written: isize) -> io::Result<usize> {
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// Moves a descriptor of ours to a high number: programs expect low ones for what they open next.
fn out_of_the_way(number: c_int) -> c_int {
    for lowest in [1000, 200, 50, 3] {
        // SAFETY: the descriptor is ours.
        let moved = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, lowest) };
        if moved >= 0 {
            // SAFETY: as above, and not used any more.
            unsafe { libc::close(number) };
            return moved;
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::{is_member, pending, undisturbed};
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    fn pipe() -> (c_int, c_int) {
        let mut ends = [0; 2];
        // SAFETY: pipe2 fills two descriptors.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        (ends[0], ends[1])
    }

    fn close(own: c_int) {
        // SAFETY: who calls has opened it, and does not use it any more.
        unsafe { libc::close(own) };
    }

    #[test]
    fn write_reader_gone_no_signal_is_left() {
        let (read, write) = pipe();
        close(read);
        let log = Descriptor::new(write).unwrap();
        // The test harness ignores SIGPIPE; without that the process would end here.
        // SAFETY: restores the default action, as a C program has it.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        undisturbed(|| log.write_line(b"line\n"));
        assert!(!is_member(&pending(), libc::SIGPIPE));
        assert_eq!(log.lost.load(Relaxed), 1);
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
        log.write_line(b"line\n");
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        std::fs::remove_file(path).unwrap();
        [read, write, file].into_iter().for_each(close);
    }

    #[test]
    fn write_full_pipe_waits_once_and_tells_what_is_lost() {
        let (read, write) = pipe();
        let log = Descriptor::new(write).unwrap();
        while log.write_reopened(&[b'.'; 4096]).is_ok() {}
        let since = Instant::now();
        undisturbed(|| log.write_line(b"line\n"));
        assert!(since.elapsed() >= PATIENCE / 2);
        let since = Instant::now();
        for _ in 0..100 {
            undisturbed(|| log.write_line(b"line\n"));
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
        undisturbed(|| log.write_line(b"line\n"));
        assert_eq!(take(), "p2pshim: 101 lines before this one are lost: they could not be written\nline\n");
        undisturbed(|| log.write_line(b"line\n"));
        assert_eq!(take(), "line\n");
        [read, write].into_iter().for_each(close);
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
