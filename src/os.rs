//! The few services of the operating system that need `unsafe`: descriptors, signals, cancellation, fork, the
//! environment, memory, and memory that may not be there.

pub(crate) mod alloc;
pub(crate) mod arena;
mod descriptor;
mod environment;
pub(crate) mod pages;
mod stack;
pub(crate) mod table;

use std::ffi::c_int;
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use descriptor::Descriptor;
pub(crate) use environment::{environment, ignores_variables, remember_environment, variable};
pub(crate) use stack::has_room;

/// Locks a mutex of the standard library, which stands where threads may wait for it when memory has run out. A thread that
/// waits for one of parking_lot's allocates, and registers a destructor: glibc ends a process that has no memory for that. State that
/// a panic of ours has left half done is no worse than what the driver may say anyway.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets other threads continue for a moment, whatever their priority is.
#[cold]
pub(crate) fn pause() {
    undisturbed(|| std::thread::sleep(std::time::Duration::from_micros(20)));
}

/// Lets other threads continue for a moment. Signals arrive, a handler may leave by `longjmp`, and pthread_cancel unwinds through.
pub(crate) fn nap() {
    unsafe extern "C-unwind" {
        fn nanosleep(time: *const libc::timespec, left: *mut libc::timespec) -> c_int;
    }
    let time = libc::timespec { tv_sec: 0, tv_nsec: 20_000 };
    keep_errno(|| {
        // SAFETY: reads the time, and writes nothing.
        unsafe { nanosleep(&raw const time, ptr::null_mut()) };
    });
}

/// Waits until something is so, but no longer than this. Whether it is.
pub(crate) fn until(patience: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while !is_so() {
        if started.elapsed() >= patience {
            return false;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    true
}

/// A page of zeros with a number in it.
#[repr(C, align(4096))]
pub(crate) struct Page {
    word: AtomicU64,
    rest: [u8; 4096 - size_of::<AtomicU64>()],
}

impl Page {
    pub(crate) const fn new() -> Self {
        Self { word: AtomicU64::new(0), rest: [0; _] }
    }

    #[inline(always)]
    pub(crate) const fn word(&'static self) -> &'static AtomicU64 {
        &self.word
    }

    /// From now on a child that shares no memory finds 0 there, however it is made; if the system can do that (Linux
    /// 4.14, pages of 4096 bytes): whether it can.
    pub(crate) fn is_not_inherited(&'static self) -> bool {
        let page = std::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: the page holds nothing but this value, which is made of atomics and of what nobody reads, and stays as it is
        // in this process.
        keep_errno(|| unsafe { libc::madvise(page, size_of::<Self>(), libc::MADV_WIPEONFORK) == 0 })
    }
}

/// Runs `child` in every child that this process forks.
pub(crate) fn at_fork_in_child(child: extern "C" fn()) {
    // SAFETY: `child` lives as long as the process, since the library is linked with `-z nodelete`.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// Runs `last` when this process ends by returning from `main` or by `exit`.
pub(crate) fn at_exit(last: extern "C" fn()) {
    // SAFETY: `last` lives as long as the process, since the library is linked with `-z nodelete`.
    unsafe { libc::atexit(last) };
}

/// Runs `last` likewise, with the status that the process gave to `exit`.
pub(crate) fn on_exit(last: extern "C" fn(libc::c_int, *mut libc::c_void)) {
    unsafe extern "C" {
        fn on_exit(last: extern "C" fn(libc::c_int, *mut libc::c_void), argument: *mut libc::c_void) -> libc::c_int;
    }
    // SAFETY: `last` lives as long as the process, since the library is linked with `-z nodelete`.
    unsafe { on_exit(last, std::ptr::null_mut()) };
}

/// Something that runs in a thread that ends by returning or by `pthread_exit`.
pub(crate) struct ThreadEnd(libc::pthread_key_t);

impl ThreadEnd {
    /// None if there are many such things in the process: of the C library's first so many alone noting one in a thread allocates nothing,
    /// and a signal handler may have interrupted malloc.
    pub(crate) fn new(last: unsafe extern "C" fn(*mut libc::c_void)) -> Option<Self> {
        const FIRST: libc::pthread_key_t = 32;
        let mut key = FIRST;
        // SAFETY: writes the key there. `last` lives as long as the process, since the library is linked with `-z nodelete`.
        let is_made = unsafe { libc::pthread_key_create(&raw mut key, Some(last)) } == 0;
        match key {
            ..FIRST if is_made => Some(Self(key)),
            _ if is_made => {
                // SAFETY: ours, and nobody has used it.
                unsafe { libc::pthread_key_delete(key) };
                None
            }
            _ => None,
        }
    }

    /// Has it run when the calling thread ends, with the address of `with`.
    pub(crate) fn note<T>(&self, with: &'static T) {
        // SAFETY: the key is ours.
        unsafe { libc::pthread_setspecific(self.0, std::ptr::from_ref(with).cast()) };
    }
}

/// Whether the program runs with more rights than its user (set-user-ID and the like).
pub(crate) fn is_secure_execution() -> bool {
    // SAFETY: getauxval reads a vector that the kernel wrote.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Whether a file may have any size (`RLIMIT_FSIZE`): writing to one that may not raises a signal, which ends programs.
pub(crate) fn may_write_files() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes one limit to the place.
    let is_known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
    is_known && limit.rlim_cur == libc::RLIM_INFINITY
}

pub(crate) fn user_id() -> u32 {
    // SAFETY: geteuid takes and touches nothing.
    unsafe { libc::geteuid() }
}

pub(crate) fn thread_id() -> i32 {
    // The C library has no function for it before 2.30. Thread numbers are at most 2^22.
    // SAFETY: gettid takes and touches nothing.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// Whether this process has a thread of that number.
pub(crate) fn is_thread_there(number: i32) -> bool {
    // SAFETY: signal 0 is none, the call only looks.
    let is_found = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), number, 0) } == 0;
    // A sandbox may not let it look.
    is_found || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

pub(crate) fn process_id() -> i32 {
    // SAFETY: getpid takes and touches nothing.
    unsafe { libc::getpid() }
}

/// Whether the calling thread runs a signal handler on a stack of its own.
#[cold]
#[inline(never)]
pub(crate) fn is_on_signal_stack() -> bool {
    let mut stack = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: 0, ss_size: 0 };
    // SAFETY: writes there which stack there is.
    let found = unsafe { libc::sigaltstack(ptr::null(), &raw mut stack) };
    found == 0 && stack.ss_flags & libc::SS_ONSTACK != 0
}

/// Runs `work` of ours so that the calling thread notices nothing, and nothing of the program gets between:
/// - `errno`, which the program may be about to read, stays as it was;
/// - the thread is not cancelled in the middle (any write would be a place for it);
/// - signals wait, except those of a fault: a handler might leave by `longjmp` and our locks locked.
pub(crate) fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    undisturbed_after(|_| work())
}

/// Runs work undisturbed that is to know which signals the program holds back.
pub(crate) fn undisturbed_after<T>(work: impl FnOnce(Held) -> T) -> T {
    if cfg!(miri) {
        // It has no signals.
        return work(Held::default());
    }
    keep_errno(|| {
        let signals = hold_signals();
        let result = uncancelled(|| work(Held::of(&signals)));
        // SAFETY: the set is what held before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &signals, ptr::null_mut()) };
        result
    })
}

/// Signals that are held back: a bit for each, that of signal 1 the lowest.
#[derive(Clone, Copy, Default)]
pub(crate) struct Held(u64);

impl Held {
    fn of(signals: &libc::sigset_t) -> Self {
        // SAFETY: the set is initialised, and as the kernel has it in its first 8 bytes.
        Self(unsafe { ptr::from_ref(signals).cast::<u64>().read() })
    }

    /// Whether there is a handler for any of them: then the thread may be in it.
    pub(crate) fn has_handler(self) -> bool {
        let Self(held) = self;
        (1..=64).filter(|signal| held >> (signal - 1) & 1 != 0).any(|signal| {
            let mut action = MaybeUninit::<libc::sigaction>::uninit();
            // SAFETY: asks, and changes nothing; written if it succeeds.
            let handler = unsafe {
                match libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) {
                    0 => action.assume_init().sa_sigaction,
                    _ => libc::SIG_DFL,
                }
            };
            handler != libc::SIG_DFL && handler != libc::SIG_IGN
        })
    }
}

pub(crate) fn monotonic_nanos() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is what the function writes.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec.cast_unsigned().saturating_mul(1_000_000_000).saturating_add(now.tv_nsec.cast_unsigned())
}

pub(crate) fn keep_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: __errno_location points to the calling thread's own errno, which outlives both uses.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let result = work();
    // SAFETY: as above.
    unsafe { *errno = before };
    result
}

/// Runs `work`, during which the thread is not cancelled. Its clean-up is in a frame of its own, which ends before: if a thread is cancelled
/// at any instruction (asynchronous type), Rust unwinds a frame with clean-up only from a call, and else ends the process.
pub(crate) fn uncancelled<T>(work: impl FnOnce() -> T) -> T {
    #[inline(never)]
    fn apart<T>(work: impl FnOnce() -> T) -> ManuallyDrop<T> {
        ManuallyDrop::new(work())
    }
    let cancelled = hold_cancellation();
    let result = apart(work);
    release_cancellation(cancelled);
    ManuallyDrop::into_inner(result)
}

/// Runs `work`, and `last` after it, even if `work` panics: what the program had comes back.
pub(crate) fn finally<T>(last: impl FnOnce(), work: impl FnOnce() -> T) -> T {
    struct Last<F: FnOnce()>(Option<F>);
    impl<F: FnOnce()> Drop for Last<F> {
        fn drop(&mut self) {
            if let Some(last) = self.0.take() {
                last();
            }
        }
    }
    let _last = Last(Some(last));
    work()
}

/// Holds the calling thread's signals back, and returns which were held back before.
fn hold_signals() -> libc::sigset_t {
    const FAULTS: [c_int; 7] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];
    let (mut all, mut before) = (MaybeUninit::<libc::sigset_t>::uninit(), MaybeUninit::<libc::sigset_t>::uninit());
    // SAFETY: sigfillset initialises the one set, pthread_sigmask the other.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for fault in FAULTS {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        libc::sigemptyset(before.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    }
}

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}
const PTHREAD_CANCEL_DISABLE: c_int = 1;
const PTHREAD_CANCEL_DEFERRED: c_int = 0;

/// Keeps the calling thread from being cancelled, and returns whether it could be.
fn hold_cancellation() -> c_int {
    let mut before = 0;
    // SAFETY: the function writes one int and changes the calling thread only.
    unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut before) };
    before
}

/// Undoes `hold_cancellation`. A thread that may be cancelled anywhere (asynchronous type) can end here; enabled with the
/// deferred type first, since glibc loses the thread's result otherwise.
fn release_cancellation(before: c_int) {
    let (mut kind, mut unused) = (0, 0);
    // SAFETY: the functions write one int each and change the calling thread only.
    unsafe {
        pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &mut kind);
        pthread_setcancelstate(before, &mut unused);
        pthread_setcanceltype(kind, &mut unused);
    }
}

/// Reads memory that may not be there.
///
/// # Errors
/// EFAULT if it is not; anything else if the system does not let us ask.
///
/// # Safety
/// Any bytes are a valid `T`.
pub(crate) unsafe fn read<T: Copy>(from: *const T) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::uninit();
    let local = libc::iovec { iov_base: value.as_mut_ptr().cast(), iov_len: size_of::<T>() };
    let remote = libc::iovec { iov_base: from.cast_mut().cast(), iov_len: size_of::<T>() };
    // The calling thread, which lives: of a main thread that has ended by `pthread_exit` there is nothing to read.
    // SAFETY: the kernel writes at most the size to `value`, and returns EFAULT where `from` is not mapped.
    match unsafe { libc::process_vm_readv(thread_id(), &local, 1, &remote, 1, 0) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: all bytes were written, and the caller promises that they make a `T`.
        done if done == size_of::<T>() as isize => Ok(unsafe { value.assume_init() }),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// The process's memory, for who reads a lot of what may not be there.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    /// As for [`read`].
    thread: i32,
}

impl Memory {
    /// For use by the calling thread.
    pub(crate) fn new() -> Self {
        Self { thread: thread_id() }
    }

    /// Reads bytes, and says whether they were there.
    pub(crate) fn read(self, from: usize, to: &mut [u8]) -> bool {
        let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        let remote = libc::iovec { iov_base: from as *mut _, iov_len: to.len() };
        // SAFETY: the kernel writes to `to` only, and returns EFAULT where `from` is not mapped.
        unsafe { libc::process_vm_readv(self.thread, &local, 1, &remote, 1, 0) == to.len() as isize }
    }
}

impl p2pshim_host::python::Memory for Memory {
    fn read(&self, from: usize, to: &mut [u8]) -> bool {
        (*self).read(from, to)
    }
}

/// Runs `work` with all signals held back; those that writing raises, because the reader is gone or the file may not grow, are
/// taken back before the program can see them.
pub(crate) fn without_signals_of_writing<T>(work: impl FnOnce() -> T) -> T {
    let before = pending();
    let result = work();
    let after = pending();
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        if is_member(&after, signal) && !is_member(&before, signal) {
            let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: the set is initialised.
            unsafe { libc::sigtimedwait(&only(signal), ptr::null_mut(), &now) };
        }
    }
    result
}

fn only(signal: c_int) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signal);
        set.assume_init()
    }
}

fn is_member(set: &libc::sigset_t, signal: c_int) -> bool {
    // SAFETY: the set is initialised.
    unsafe { libc::sigismember(set, signal) == 1 }
}

/// The signals that wait for the calling thread.
fn pending() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigpending(set.as_mut_ptr());
        set.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_memory_that_is_not_there_is_none() {
        let here = [1_u64, 2];
        // SAFETY: any bytes are a number.
        unsafe {
            assert_eq!(read(&raw const here).unwrap(), here);
            for nowhere in [ptr::dangling::<u64>(), ptr::null()] {
                assert_eq!(read(nowhere).unwrap_err().raw_os_error(), Some(libc::EFAULT));
            }
        }
    }

    #[test]
    fn finally_runs_the_last_once_after_the_work_and_after_a_panic() {
        let steps = std::cell::RefCell::new(Vec::new());
        let step = |name| steps.borrow_mut().push(name);
        let work = || {
            step("work");
            1
        };
        let result = finally(|| step("last"), work);
        assert_eq!((result, steps.take()), (1, vec!["work", "last"]));
        let panics = || finally(|| step("last"), || panic!("on purpose"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(steps.take(), ["last"]);
    }

    #[test]
    fn undisturbed_work_that_fails_leaves_no_trace() {
        // SAFETY: there is no such descriptor, which is an error to leave.
        unsafe { libc::close(-1) };
        let before = io::Error::last_os_error().raw_os_error();
        assert!(undisturbed(|| std::fs::File::open("/proc/self/no such file")).is_err());
        assert_eq!(io::Error::last_os_error().raw_os_error(), before);
    }
}
