//! The few services of the operating system that need `unsafe`: descriptors, signals, fork.

use std::ffi::{CString, OsStr, c_int};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// Runs `child` in every child that this process forks.
pub(crate) fn at_fork_in_child(child: extern "C" fn()) {
    // SAFETY: `child` lives as long as the process, since the library is linked with `-z nodelete`.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// Whether the program runs with more rights than its user (set-user-ID and the like).
pub(crate) fn is_secure_execution() -> bool {
    // SAFETY: getauxval reads a vector that the kernel wrote.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The calling thread, as the kernel numbers it.
pub(crate) fn thread_id() -> i32 {
    // SAFETY: gettid takes and touches nothing.
    unsafe { libc::gettid() }
}

/// Runs `work` of ours so that the calling thread notices nothing: `errno`, which the program may be about to read, stays
/// as it was, and a thread that is to be cancelled is not cancelled in the middle (any write would be a place for it).
pub(crate) fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: __errno_location points to the calling thread's own errno, which outlives both uses.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let cancelled = set_cancel_state(PTHREAD_CANCEL_DISABLE);
    let result = work();
    set_cancel_state(cancelled);
    // SAFETY: as above.
    unsafe { *errno = before };
    result
}

const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Says whether the calling thread may be cancelled, and answers what held before.
fn set_cancel_state(state: c_int) -> c_int {
    unsafe extern "C" {
        fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    }
    let mut before = 0;
    // SAFETY: the function writes one int and changes the calling thread only. Enabling again does not itself cancel:
    // the program's type is the deferred one unless it chose otherwise, and then it can be cancelled anywhere.
    unsafe { pthread_setcancelstate(state, &mut before) };
    before
}

/// Reads memory that may not be there.
///
/// # Safety
/// Any bytes are a valid `T`.
pub(crate) unsafe fn read<T: Copy>(from: *const T) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    let size = size_of::<T>();
    let local = libc::iovec { iov_base: value.as_mut_ptr().cast(), iov_len: size };
    let remote = libc::iovec { iov_base: from.cast_mut().cast(), iov_len: size };
    // SAFETY: the kernel writes at most `size` bytes to `value`, and answers EFAULT where `from` is not mapped.
    let done = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    // SAFETY: all bytes were written, and the caller promises that they make a `T`.
    (done == size as isize).then(|| unsafe { value.assume_init() })
}

/// What a descriptor referred to: the file behind it, whatever its number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    kind: u32,
}

fn identity(descriptor: c_int) -> Option<Identity> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat fills `status`, and it is read only when fstat says so.
    let status = unsafe {
        if libc::fstat(descriptor, status.as_mut_ptr()) != 0 {
            return None;
        }
        status.assume_init()
    };
    Some(Identity { device: status.st_dev, inode: status.st_ino, kind: status.st_mode & libc::S_IFMT })
}

/// What standard error was before the program could close it and open a file of its own that got the number.
static STDERR_AT_LOAD: OnceLock<Option<Identity>> = OnceLock::new();

/// The only thing that happens when the library is loaded: one fstat. By the first GPU call it is too late to ask.
#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER_STDERR: extern "C" fn() = {
    extern "C" fn remember_stderr() {
        undisturbed(|| STDERR_AT_LOAD.get_or_init(|| identity(libc::STDERR_FILENO)));
    }
    remember_stderr
};

/// A descriptor that the log writes to, for as long as it refers to what it did at first.
///
/// Programs close descriptor 2, or all of them, and open files that get the same numbers. A line
/// of ours must not land there. (Between the check and the write another thread may still do so;
/// holding a duplicate instead would keep a closed pipe's reader waiting for ever.)
pub(crate) struct Descriptor {
    number: c_int,
    identity: Identity,
}

impl Descriptor {
    /// Standard error as it was when the library was loaded, if it was open.
    pub(crate) fn stderr() -> Option<Self> {
        STDERR_AT_LOAD.get().copied().flatten().map(|identity| Self { number: libc::STDERR_FILENO, identity })
    }

    /// A file that lines are appended to, created with mode 0600.
    ///
    /// # Errors
    /// What open(2) says; a symbolic link as last component is refused.
    pub(crate) fn append(path: &OsStr) -> io::Result<Self> {
        let path = CString::new(path.as_bytes())?;
        // Without O_NONBLOCK a pipe that nobody reads would hold the program here.
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
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is ours.
        unsafe { libc::fcntl(number, libc::F_SETFL, libc::O_APPEND) };
        let identity = identity(number).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { number, identity })
    }
}

impl io::Write for Descriptor {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if identity(self.number) != Some(self.identity) {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the descriptor refers to something else by now"));
        }
        // A pipe has at most PIPE_BUF bytes room to take a line in one piece; more is written in parts.
        without_sigpipe(|| {
            // SAFETY: `line` is valid for reads of its length.
            let written = unsafe { libc::write(self.number, line.as_ptr().cast(), line.len()) };
            usize::try_from(written).map_err(|_| io::Error::last_os_error())
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs `write`; a SIGPIPE that it raises is taken back before the program can see it.
fn without_sigpipe<T>(write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    // SAFETY: the sets are initialised by sigemptyset before they are read, and each call gets
    // pointers to locals that outlive it.
    unsafe {
        let mut pipe = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(pipe.as_mut_ptr());
        libc::sigaddset(pipe.as_mut_ptr(), libc::SIGPIPE);
        let pipe = pipe.assume_init();

        let mut pending = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(pending.as_mut_ptr());
        libc::sigpending(pending.as_mut_ptr());
        let was_pending = libc::sigismember(pending.as_ptr(), libc::SIGPIPE) == 1;

        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(before.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, before.as_mut_ptr());
        let result = write();
        let broken = matches!(&result, Err(error) if error.kind() == io::ErrorKind::BrokenPipe);
        if broken && !was_pending {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            libc::sigtimedwait(&pipe, std::ptr::null_mut(), &now);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::IntoRawFd;

    fn pipe() -> (c_int, c_int) {
        let mut ends = [0; 2];
        // SAFETY: pipe2 fills two descriptors.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        (ends[0], ends[1])
    }

    fn close(descriptor: c_int) {
        // SAFETY: the tests own the descriptors that they close.
        unsafe { libc::close(descriptor) };
    }

    #[test]
    fn write_reader_gone_no_signal_is_left() {
        let (read, write) = pipe();
        close(read);
        let mut log = Descriptor { number: write, identity: identity(write).unwrap() };
        // The test harness ignores SIGPIPE; without that the process would end here.
        // SAFETY: restores the default action, as a C program has it.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        assert_eq!(log.write(b"line\n").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let mut pending = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigpending fills the set.
        let pending = unsafe {
            libc::sigpending(pending.as_mut_ptr());
            pending.assume_init()
        };
        // SAFETY: the set is initialised.
        assert_eq!(unsafe { libc::sigismember(&pending, libc::SIGPIPE) }, 0);
        close(write);
    }

    #[test]
    fn write_number_reused_nothing_is_written() {
        let (read, write) = pipe();
        let mut log = Descriptor { number: write, identity: identity(write).unwrap() };
        let path = std::env::temp_dir().join(format!("p2pshim-reused-{}", std::process::id()));
        let file = std::fs::File::create(&path).unwrap().into_raw_fd();
        // SAFETY: both descriptors are the test's own.
        unsafe { libc::dup2(file, write) };
        assert!(log.write(b"line\n").is_err());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        std::fs::remove_file(path).unwrap();
        [read, write, file].into_iter().for_each(close);
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

    #[test]
    fn read_memory_that_is_not_there_is_none() {
        let here = [1_u64, 2];
        // SAFETY: any bytes are a number.
        unsafe {
            assert_eq!(read(&raw const here), Some(here));
            assert_eq!(read(std::ptr::dangling::<u64>()), None);
            assert_eq!(read(std::ptr::null::<u64>()), None);
        }
    }

    #[test]
    fn undisturbed_work_that_fails_leaves_no_trace() {
        close(-1);
        let before = io::Error::last_os_error().raw_os_error();
        assert!(undisturbed(|| std::fs::File::open("/nonexistent")).is_err());
        assert_eq!(io::Error::last_os_error().raw_os_error(), before);
    }
}
