//! A child process that the program cannot notice.
//!
//! A program must not get a SIGCHLD of ours, nor our child from its own `wait`. A child that is created with no exit
//! signal is such a one, but only until it runs another program: `execve` makes its exit signal SIGCHLD. So there are
//! two processes. The *guardian* is created with no exit signal and never runs a program. It is the parent of the
//! *worker*, which does; reads what that writes, ends it when its time is over, and reaps it.
//!
//! ```text
//! the program's thread ──clone, no exit signal──▶ guardian ──clone──▶ worker ──execve──▶ the command
//!         waits for the guardian to end                    pipe, time-out, kill
//! ```
//!
//! Both are created as `posix_spawn` creates its child: they share our memory (nothing is copied, however large the
//! program is), have stacks of their own, and the creating thread is suspended until they end or run a program. So
//! neither may do anything but make system calls; no fork handler runs; and the thread-local data that they see is that
//! of a thread which stands still. Their descriptors are copies, of which the guardian closes all, so that nothing that
//! the program closes meanwhile is kept open. The pipe is made there too: the program never has a descriptor of ours.
//!
//! Neither outlives the thread that waits (`PR_SET_PDEATHSIG`). Ctrl-C, SIGTERM and SIGHUP of the terminal or process
//! group end the guardian, and so the wait. A worker that cannot be killed, stuck in a driver, is left to init, or to the
//! program if that takes orphans (`PR_SET_CHILD_SUBREAPER`, or process 1 of a container): only then may it notice.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::time::Duration;

use super::undisturbed;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal, which was not ours.
    Killed(i32),
    /// Its time was over, and it was killed.
    TimedOut,
    /// Its time was over, and it does not end though it was killed: process number.
    Stuck(i32),
    /// The guardian was ended by a signal, and took the command along.
    Interrupted,
}

/// What a command did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    /// The beginning of what it wrote to standard output.
    pub(crate) output: Vec<u8>,
    /// How it ended.
    pub(crate) ended: Ended,
}

/// As much of the output is kept.
const OUTPUT_BYTES: usize = 16 << 10;
/// How long a killed worker is waited for.
const PATIENCE_MS: i64 = 1000;
/// Stack of the guardian, and of the worker.
const STACK_BYTES: usize = 64 << 10;
const PAGE: usize = 4096;

/// Runs a command for at most `limit`, without the program noticing. The calling thread does nothing else meanwhile, and
/// takes no signal. Standard input and standard error of the command are `/dev/null`.
///
/// # Errors
/// What the system said if the command could not be started.
pub(crate) fn run(
    command: &CStr,
    arguments: &[CString],
    environment: &[CString],
    limit: Duration,
) -> io::Result<Finished> {
    undisturbed(|| {
        let stacks = Stacks::new()?;
        let (arguments, environment) = (pointers(arguments), pointers(environment));
        let mut output: Vec<u8> = vec![0; OUTPUT_BYTES];
        let mut orders = Orders {
            command: command.as_ptr(),
            arguments: arguments.as_ptr(),
            environment: environment.as_ptr(),
            limit_ms: i64::try_from(limit.as_millis()).unwrap_or(i64::MAX / 2).min(i64::MAX / 2),
            program: super::process_id(),
            worker_stack: stacks.top_of_second(),
            output: output.as_mut_ptr(),
            written: 0,
            end: End::Interrupted,
            status: 0,
            error: 0,
        };
        guarded(&stacks, &raw mut orders)?;
        // SAFETY: `orders` is ours; the guardian, which wrote to it behind the compiler's back, has ended.
        let Orders { end, status, error, written, .. } = unsafe { ptr::read_volatile(&raw const orders) };
        output.truncate(written.min(OUTPUT_BYTES));
        let ended = match end {
            End::NotStarted => return Err(io::Error::from_raw_os_error(error)),
            End::Waited if libc::WIFSIGNALED(status) => Ended::Killed(libc::WTERMSIG(status)),
            End::Waited => Ended::Exited(libc::WEXITSTATUS(status)),
            End::TimedOut => Ended::TimedOut,
            End::Stuck => Ended::Stuck(status),
            End::Interrupted => Ended::Interrupted,
        };
        Ok(Finished { output, ended })
    })
}

/// The addresses of C strings, ending with NULL, as execve wants them.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// Creates the guardian, and returns when it has ended.
fn guarded(stacks: &Stacks, orders: *mut Orders) -> io::Result<()> {
    // The C library keeps two signals for itself, which its own functions do not hold back. A handler that ran in a
    // child which shares our memory would do harm.
    let before = exchange_signals(ALL_SIGNALS);
    // SAFETY: the stack is mapped and nobody else's; `orders` outlives the guardian, which is reaped below.
    let guardian =
        unsafe { libc::clone(guard, stacks.top_of_first(), libc::CLONE_VM | libc::CLONE_VFORK, orders.cast()) };
    let error = io::Error::last_os_error();
    if guardian > 0 {
        let mut status: c_int = 0;
        // SAFETY: writes one int. The flag is for children without SIGCHLD.
        while unsafe { libc::waitpid(guardian, &mut status, libc::__WCLONE) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
    exchange_signals(before);
    if guardian > 0 { Ok(()) } else { Err(error) }
}

/// What the guardian is to do, and what it did. Both children share it with us.
#[repr(C)]
struct Orders {
    command: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
    limit_ms: i64,
    /// Our process.
    program: c_int,
    worker_stack: *mut c_void,
    output: *mut u8,
    /// Bytes of output.
    written: usize,
    end: End,
    /// As `wait` gives it; for a stuck worker, its number.
    status: c_int,
    /// Why the command was not started.
    error: c_int,
}

#[derive(Clone, Copy)]
enum End {
    Interrupted,
    NotStarted,
    Waited,
    TimedOut,
    Stuck,
}

/// The guardian. It makes system calls and nothing else: no allocation, no lock, nothing that can panic.
extern "C" fn guard(orders: *mut c_void) -> c_int {
    // SAFETY: `run` passes its orders, and its thread stands still until we end.
    let orders = unsafe { &mut *orders.cast::<Orders>() };
    die_with(orders.program);
    take_default_actions();
    close_all();
    orders.end = supervise(orders);
    exit(0)
}

fn supervise(orders: &mut Orders) -> End {
    const READING_END: c_long = 1;
    const WRITING_END: c_long = 2;
    let start = now_ms();
    let mut ends: [c_int; 2] = [-1; 2];
    // SAFETY: a C string; two ints. All descriptors are closed, so that these are the first three.
    let made = unsafe {
        libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/dev/null".as_ptr(), libc::O_RDWR, 0) == 0
            && libc::syscall(libc::SYS_pipe2, ends.as_mut_ptr(), 0) == 0
            && ends == [READING_END as c_int, WRITING_END as c_int]
    };
    if !made {
        orders.error = errno();
        return End::NotStarted;
    }
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: as in `guarded`: we are suspended until the worker runs the command or ends.
    let worker = unsafe { libc::clone(work, orders.worker_stack, flags, ptr::from_mut(orders).cast()) };
    if worker < 0 {
        orders.error = errno();
        return End::NotStarted;
    }
    // Only now: the worker was to have nothing but what it was born with.
    exchange_signals(ALL_SIGNALS & !ENDING_SIGNALS);
    // SAFETY: the descriptor is ours.
    unsafe { libc::syscall(libc::SYS_close, WRITING_END) };
    let mut is_open = true;
    let mut is_killed = false;
    let mut deadline = start.saturating_add(orders.limit_ms);
    loop {
        let mut status: c_int = 0;
        // Output first, so that a worker that has ended has been read to its end.
        if is_open {
            is_open = read_some(orders, READING_END, deadline.saturating_sub(now_ms()).min(100));
        } else {
            pause_ms(2);
        }
        // SAFETY: writes one int.
        let waited = unsafe { libc::syscall(libc::SYS_wait4, worker, &raw mut status, libc::WNOHANG, 0) };
        if waited == c_long::from(worker) {
            while is_open {
                is_open = read_some(orders, READING_END, 0);
            }
            orders.status = status;
            return match is_killed {
                true => End::TimedOut,
                false if orders.error != 0 => End::NotStarted,
                false => End::Waited,
            };
        }
        if now_ms() < deadline {
            continue;
        }
        if is_killed {
            orders.status = worker;
            return End::Stuck;
        }
        // The worker leads a group of its own, in which are those that it started.
        for process in [worker, worker.wrapping_neg()] {
            // SAFETY: it is our child, and not reaped yet, so that nobody else has its number.
            unsafe { libc::syscall(libc::SYS_kill, process, libc::SIGKILL) };
        }
        is_killed = true;
        is_open = false;
        deadline = now_ms().saturating_add(PATIENCE_MS);
    }
}

/// Waits for output for a while, and takes what there is. False if there will be no more.
fn read_some(orders: &mut Orders, descriptor: c_long, wait_ms: i64) -> bool {
    let mut ready = libc::pollfd { fd: descriptor as c_int, events: libc::POLLIN, revents: 0 };
    // SAFETY: one descriptor, as said.
    if unsafe { libc::syscall(libc::SYS_poll, &raw mut ready, 1, wait_ms.max(0)) } <= 0 {
        return wait_ms > 0;
    }
    let mut rest = [0_u8; 512];
    let room = OUTPUT_BYTES.saturating_sub(orders.written);
    let (place, length) =
        if room > 0 { (orders.output.wrapping_add(orders.written), room) } else { (rest.as_mut_ptr(), rest.len()) };
    // SAFETY: `place` has room for `length` bytes: those that are left of the output, or `rest`.
    let taken = unsafe { libc::syscall(libc::SYS_read, descriptor, place, length) };
    if taken > 0 && room > 0 {
        orders.written = orders.written.saturating_add(taken as usize);
    }
    taken > 0
}

/// The worker, until it is the command.
extern "C" fn work(orders: *mut c_void) -> c_int {
    // SAFETY: the guardian passes its orders, and stands still until we run the command or end.
    let orders = unsafe { &mut *orders.cast::<Orders>() };
    // SAFETY: system calls on our own process and its descriptors, of which 0 is /dev/null and 2 the pipe's writing end.
    unsafe {
        libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        // No signal of the program's process group, or of its terminal, is meant for it.
        libc::syscall(libc::SYS_setsid);
        libc::syscall(libc::SYS_dup2, 2, 1);
        libc::syscall(libc::SYS_dup2, 0, 2);
    }
    exchange_signals(0);
    // SAFETY: C strings, and arrays of them that end with NULL.
    unsafe { libc::syscall(libc::SYS_execve, orders.command, orders.arguments, orders.environment) };
    orders.error = errno();
    exit(127)
}

fn exit(status: c_int) -> ! {
    loop {
        // SAFETY: ends the process, without what the C library would do for the program.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// Ends this process when the thread that created it does.
fn die_with(program: c_int) {
    // SAFETY: concerns this process only.
    unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
    // SAFETY: takes nothing.
    if unsafe { libc::syscall(libc::SYS_getppid) } != c_long::from(program) {
        exit(0);
    }
}

/// Gives every signal its default action in this process: handlers are the program's, and a command inherits what is
/// ignored. (The C library's own function refuses two of them.)
fn take_default_actions() {
    const SIGNALS: std::ops::RangeInclusive<c_int> = 1..=64;
    /// The kernel's `struct sigaction`: handler, flags, restorer, mask. All 0 is the default action.
    const DEFAULT: [u64; 4] = [0; 4];
    for signal in SIGNALS {
        let no_old = ptr::null_mut::<c_void>();
        // SAFETY: the kernel reads the struct; SIGKILL and SIGSTOP are refused.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, DEFAULT.as_ptr(), no_old, size_of::<u64>()) };
    }
}

/// Closes every descriptor of this process.
fn close_all() {
    // SAFETY: they are copies, of which nobody here knows.
    if unsafe { libc::syscall(libc::SYS_close_range, 0, c_long::from(u32::MAX), 0) } == 0 {
        return;
    }
    // Kernels before 5.9.
    let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: getrlimit fills `limit`, which may be 0.
    let limit = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr());
        limit.assume_init()
    };
    for descriptor in 0..limit.rlim_cur.min(1 << 20) {
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_close, descriptor) };
    }
}

/// The signals that end the guardian: those that a user ends programs with, none of which dumps memory, which is the
/// program's.
const ENDING_SIGNALS: u64 = 1 << (libc::SIGHUP - 1) | 1 << (libc::SIGINT - 1) | 1 << (libc::SIGTERM - 1);
const ALL_SIGNALS: u64 = u64::MAX;

/// Sets which signals the calling thread holds back, those of the C library included; answers which it did before.
fn exchange_signals(held: u64) -> u64 {
    let mut before: u64 = 0;
    // SAFETY: the kernel reads one set and writes the other, each of the size that is said.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const held, &raw mut before, size_of::<u64>())
    };
    before
}

/// Milliseconds of a clock that nobody sets.
fn now_ms() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills `time`.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.wrapping_mul(1000).wrapping_add(time.tv_nsec.wrapping_div(1_000_000))
}

fn pause_ms(milliseconds: c_long) {
    // SAFETY: no descriptors.
    unsafe { libc::syscall(libc::SYS_poll, ptr::null_mut::<libc::pollfd>(), 0, milliseconds) };
}

fn errno() -> c_int {
    // SAFETY: the thread's own errno, which is that of a thread which stands still.
    unsafe { *libc::__errno_location() }
}

/// Two stacks, each above a page that nobody may touch.
struct Stacks(*mut c_void);

impl Stacks {
    const EACH: usize = PAGE + STACK_BYTES;

    fn new() -> io::Result<Self> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at a place of the kernel's choice.
        let base = unsafe { libc::mmap(ptr::null_mut(), 2 * Self::EACH, access, kind | libc::MAP_STACK, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        for guard in [base, base.wrapping_byte_add(Self::EACH)] {
            // SAFETY: the first page of each half of our mapping.
            unsafe { libc::mprotect(guard, PAGE, libc::PROT_NONE) };
        }
        Ok(Self(base))
    }

    fn top_of_first(&self) -> *mut c_void {
        self.0.wrapping_byte_add(Self::EACH)
    }

    fn top_of_second(&self) -> *mut c_void {
        self.0.wrapping_byte_add(2 * Self::EACH)
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        // SAFETY: our mapping, and those who stood on it have ended, or run another program.
        unsafe { libc::munmap(self.0, 2 * Self::EACH) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::IntoRawFd;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
    use std::thread;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(20);

    /// Runs a shell script.
    fn script(text: &str, limit: Duration) -> io::Result<Finished> {
        let arguments = ["sh", "-c", text].map(|argument| CString::new(argument).unwrap());
        run(c"/bin/sh", &arguments, &[c"PATH=/usr/bin:/bin".to_owned()], limit)
    }

    fn written(finished: &Finished) -> &str {
        std::str::from_utf8(&finished.output).unwrap()
    }

    #[test]
    fn run_output_and_status_are_the_commands() {
        let finished = script("echo out; echo lost >&2; env; cat; exit 7", LONG).unwrap();
        assert_eq!(finished.ended, Ended::Exited(7));
        assert!(written(&finished).starts_with("out\nPATH=/usr/bin:/bin\n"), "{finished:?}");
        assert!(!written(&finished).contains("lost"));
        assert_eq!(script("kill -SEGV $$", LONG).unwrap().ended, Ended::Killed(libc::SIGSEGV));
    }

    #[test]
    fn run_command_absent_or_no_program_is_an_error() {
        let error = |path: &CStr| run(path, &[], &[], LONG).unwrap_err().raw_os_error();
        assert_eq!(error(c"/nonexistent/p2pshim"), Some(libc::ENOENT));
        assert_eq!(error(c"/dev/null"), Some(libc::EACCES));
    }

    #[test]
    fn run_more_output_than_fits_is_cut_and_no_obstacle() {
        let finished = script("head -c 1000000 /dev/zero; exit 3", LONG).unwrap();
        assert_eq!((finished.output.len(), finished.ended), (OUTPUT_BYTES, Ended::Exited(3)));
    }

    #[test]
    fn run_time_over_is_killed_with_those_that_it_started() {
        let start = Instant::now();
        let mark = format!("60{}", std::process::id());
        let finished =
            script(&format!("echo begun; sleep {mark} & trap '' TERM INT; sleep {mark}"), Duration::from_millis(300));
        let finished = finished.unwrap();
        assert_eq!((written(&finished), finished.ended), ("begun\n", Ended::TimedOut));
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        thread::sleep(Duration::from_millis(100));
        let commands =
            fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
        let sleeps = commands.filter(|command| command.starts_with(format!("sleep\0{mark}").as_bytes()));
        assert_eq!(sleeps.count(), 0);
    }

    #[test]
    fn run_output_kept_open_by_others_does_not_hold_it() {
        let start = Instant::now();
        let finished = script("setsid sleep 3 & echo done", LONG).unwrap();
        assert_eq!((written(&finished), finished.ended), ("done\n", Ended::Exited(0)));
        assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    }

    /// Runs the rest of a test in a process of its own, where no other test has children. True in that process.
    fn in_a_process_of_its_own(test: &str) -> bool {
        const MARK: &str = "P2PSHIM_TEST_ALONE";
        if std::env::var_os(MARK).is_some() {
            return true;
        }
        let name = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &name, "--test-threads=1", "--nocapture"])
            .env(MARK, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{name}: {text}");
        false
    }

    fn open_descriptors() -> Vec<String> {
        let mut all: Vec<String> = fs::read_dir("/proc/self/fd")
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        all.sort();
        all
    }

    #[test]
    fn run_program_notices_nothing() {
        if !in_a_process_of_its_own("run_program_notices_nothing") {
            return;
        }
        static SIGNALS: AtomicU32 = AtomicU32::new(0);
        static FORKS: AtomicU32 = AtomicU32::new(0);
        static CHILDREN: AtomicU32 = AtomicU32::new(0);
        static WAITS: AtomicU32 = AtomicU32::new(0);
        static DONE: AtomicBool = AtomicBool::new(false);
        extern "C" fn on_signal(_: c_int) {
            SIGNALS.fetch_add(1, SeqCst);
        }
        extern "C" fn on_fork() {
            FORKS.fetch_add(1, SeqCst);
        }
        let handler = on_signal as extern "C" fn(c_int);
        // SAFETY: the handlers touch an atomic each and live as long as the process.
        unsafe {
            libc::signal(libc::SIGCHLD, handler as libc::sighandler_t);
            libc::pthread_atfork(Some(on_fork), Some(on_fork), Some(on_fork));
        }
        let wait = || {
            let mut status = 0;
            // SAFETY: writes one int.
            let waited = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
            let found = waited >= 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ECHILD);
            CHILDREN.fetch_add(u32::from(found), SeqCst);
            WAITS.fetch_add(1, SeqCst);
        };
        let waiter = thread::spawn(move || {
            while !DONE.load(SeqCst) {
                wait();
            }
        });
        let descriptors = open_descriptors();
        const HELD: u64 = 1 << (libc::SIGUSR2 - 1);
        exchange_signals(HELD);
        for (text, limit) in [("sleep 0.2", LONG), ("sleep 20", Duration::from_millis(200)), ("exit 1", LONG)] {
            script(text, limit).unwrap();
        }
        DONE.store(true, SeqCst);
        waiter.join().unwrap();
        wait();
        assert_eq!((SIGNALS.load(SeqCst), FORKS.load(SeqCst), CHILDREN.load(SeqCst)), (0, 0, 0));
        assert!(WAITS.load(SeqCst) > 10);
        assert_eq!((open_descriptors(), exchange_signals(0)), (descriptors, HELD));
    }

    #[test]
    fn run_command_inherits_no_descriptor_signal_mask_or_action() {
        if !in_a_process_of_its_own("run_command_inherits_no_descriptor_signal_mask_or_action") {
            return;
        }
        let file = fs::File::open("/proc/self/status").unwrap().into_raw_fd();
        // SAFETY: a copy of a descriptor of ours, without the flag that closes it; ignores signals.
        unsafe {
            assert_eq!(libc::dup2(file, 77), 77);
            for signal in [libc::SIGCHLD, libc::SIGPIPE, libc::SIGUSR1, libc::SIGINT] {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
        // Each runs in the place of the shell, which holds signals back itself while it starts another.
        let said = |text: &str| {
            let finished = script(text, LONG).unwrap();
            assert_eq!(finished.ended, Ended::Exited(0));
            written(&finished).to_owned()
        };
        let none = "0000000000000000";
        let signals = said("exec grep -E '^Sig(Blk|Ign)' /proc/self/status");
        assert_eq!(signals, format!("SigBlk:\t{none}\nSigIgn:\t{none}\n"));
        // The last one is of the folder that is being listed.
        assert_eq!(said("exec ls /proc/self/fd"), "0\n1\n2\n3\n");
        assert_eq!(said("readlink /proc/$$/fd/0 /proc/$$/fd/2"), "/dev/null\n/dev/null\n");
    }

    /// The processes whose parent is `parent`.
    fn children_of(parent: u32) -> Vec<i32> {
        let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let is_child = |process: &String| {
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            let parent_field = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()?;
            (parent_field == parent).then_some(())
        };
        processes.filter(|process| is_child(process).is_some()).filter_map(|process| process.parse().ok()).collect()
    }

    #[test]
    fn run_guardian_ended_by_a_signal_takes_the_command_along() {
        if !in_a_process_of_its_own("run_guardian_ended_by_a_signal_takes_the_command_along") {
            return;
        }
        let killer = thread::spawn(|| {
            let guardian = loop {
                match children_of(std::process::id()).as_slice() {
                    &[guardian] if !children_of(guardian as u32).is_empty() => break guardian,
                    _ => thread::sleep(Duration::from_millis(5)),
                }
            };
            thread::sleep(Duration::from_millis(100));
            let worker = children_of(guardian as u32)[0];
            // SAFETY: the guardian is ours.
            unsafe { libc::kill(guardian, libc::SIGINT) };
            worker
        });
        let start = Instant::now();
        let finished = script("exec sleep 30", LONG).unwrap();
        assert_eq!(finished.ended, Ended::Interrupted);
        let worker = killer.join().unwrap();
        while fs::metadata(format!("/proc/{worker}")).is_ok() {
            assert!(start.elapsed() < Duration::from_secs(5), "the command goes on");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn run_from_many_threads_each_gets_its_own() {
        thread::scope(|scope| {
            let runs: Vec<_> = (0..8)
                .map(|number| {
                    scope.spawn(move || script(&format!("sleep 0.1; echo {number}; exit {number}"), LONG).unwrap())
                })
                .collect();
            for (number, run) in (0..).zip(runs) {
                let finished = run.join().unwrap();
                assert_eq!(
                    (written(&finished), finished.ended),
                    (format!("{number}\n").as_str(), Ended::Exited(number))
                );
            }
        });
    }
}
