//! Signals on their way to the program, and its end.
//!
//! This process stays in the program's process group. The terminal's signals (Ctrl-C, Ctrl-Z, a new size) go to the
//! whole group: the program has them already, and gets them no second time. Signals to this process alone are passed on.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use libc::{c_int, c_void, pid_t, siginfo_t};

use crate::lock::lock;
use crate::processes::{descends, fields_of, parent};

/// The signals that are passed on. `SIGKILL` and `SIGSTOP` cannot be.
const PASSED_ON: [c_int; 9] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGTSTP,
    libc::SIGCONT,
];

/// Where the handler writes to.
static HANDLER_PIPE: AtomicI32 = AtomicI32::new(-1);

/// A signal, and its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrival {
    signal: c_int,
    /// `si_code`: what sent it.
    code: c_int,
    /// The process that sent it, if one did.
    sender: pid_t,
}

impl Arrival {
    const BYTES: usize = 3 * size_of::<c_int>();

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let numbers = [self.signal, self.code, self.sender];
        for (place, byte) in bytes.iter_mut().zip(numbers.into_iter().flat_map(c_int::to_ne_bytes)) {
            *place = byte;
        }
        bytes
    }

    fn of_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let mut numbers = bytes
            .chunks_exact(size_of::<c_int>())
            .map(|chunk| chunk.try_into().map(c_int::from_ne_bytes).unwrap_or_default());
        let mut next = || numbers.next().unwrap_or_default();
        Self { signal: next(), code: next(), sender: next() }
    }

    /// Whether a process sent it, and not the kernel for the terminal.
    fn is_from_a_process(self) -> bool {
        self.code <= 0
    }
}

/// Signals that arrive from now on, for a program that is to be started.
pub(super) struct Relay {
    arrivals: PipeReader,
}

/// The program while it may get signals: its number stays its own until it has been waited for.
type Target = Arc<Mutex<Option<pid_t>>>;

impl Relay {
    /// Begins to take signals. Signals that are ignored (by `nohup`, or for jobs of a script) stay so, here and in the program.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn open() -> io::Result<Self> {
        let (arrivals, writer) = io::pipe()?;
        // SAFETY: changes flags of a descriptor of ours. A full pipe must not hold up a handler.
        if unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // It stays open until the process ends: a handler may be at work.
        HANDLER_PIPE.store(writer.into_raw_fd(), Ordering::Release);
        for signal in PASSED_ON {
            if !is_ignored(signal) {
                set(signal, handle as *const () as libc::sighandler_t, libc::SA_SIGINFO | libc::SA_RESTART)?;
            }
        }
        Ok(Self { arrivals })
    }

    /// Passes signals on to the program until it ends, and waits for that. Stops with it if the terminal stopped it.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn wait(mut self, child: &mut Child) -> io::Result<ExitStatus> {
        let process = child.id().cast_signed();
        let target: Target = Arc::new(Mutex::new(Some(process)));
        let theirs = Arc::clone(&target);
        let pass_all = move || {
            let mut bytes = [0; Arrival::BYTES];
            while self.arrivals.read_exact(&mut bytes).is_ok() {
                pass_on(Arrival::of_bytes(bytes), &theirs);
            }
        };
        thread::Builder::new().name("signals".to_owned()).spawn(pass_all)?;
        wait_for_end(process)?;
        *lock(&target) = None;
        let status = child.wait();
        // From here on signals are for this process.
        for signal in PASSED_ON {
            if !is_ignored(signal) {
                set(signal, libc::SIG_DFL, 0)?;
            }
        }
        status
    }
}

/// Passes a signal on to the program, if it has not got it itself and still lives.
fn pass_on(arrival: Arrival, target: &Target) {
    /// A signal that is sent to the whole group has surely reached the program too after this time.
    const MOMENT: Duration = Duration::from_millis(5);
    if !arrival.is_from_a_process() {
        return;
    }
    if arrival.signal == libc::SIGCONT {
        // A shell continues the whole group.
        thread::sleep(MOMENT);
    }
    let target = lock(target);
    let Some(process) = *target else { return };
    let is_due = match arrival.signal {
        libc::SIGCONT => is_stopped(process),
        // The program tells its own group, itself included.
        _ => !descends(arrival.sender, process, parent),
    };
    if is_due {
        // SAFETY: sends a signal to a child that has not been waited for.
        unsafe { libc::kill(process, arrival.signal) };
    }
}

/// Waits until the program has ended, without taking its status.
fn wait_for_end(process: pid_t) -> io::Result<()> {
    loop {
        // SAFETY: all zeros are a valid value of this struct of numbers and pointers.
        let mut info: siginfo_t = unsafe { std::mem::zeroed() };
        let number = libc::id_t::try_from(process).unwrap_or_default();
        // SAFETY: waits for a child of ours and writes to a local.
        let waited =
            unsafe { libc::waitid(libc::P_PID, number, &mut info, libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT) };
        if waited != 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
            continue;
        }
        if info.si_code != libc::CLD_STOPPED {
            return Ok(());
        }
        // SAFETY: takes the news that it was stopped, so that it is told once.
        unsafe { libc::waitid(libc::P_PID, number, &mut info, libc::WSTOPPED | libc::WNOHANG) };
        // SAFETY: `waitid` has filled it for a child that was stopped.
        let signal = unsafe { info.si_status() };
        // By the terminal: whoever started this process is to see that the job has stopped. SIGSTOP is sent by others, who
        // need not think of this process when they let the program go on.
        if [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal) {
            // SAFETY: stops this process until it is continued.
            unsafe { libc::raise(libc::SIGSTOP) };
        }
    }
}

/// Ends this process by a signal that ended the program, as its caller would have seen it, without a second core file.
/// Returns if that cannot be.
pub(super) fn end_by(signal: c_int) {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: sets a limit of this process.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
    let _ = set(signal, libc::SIG_DFL, 0);
    // SAFETY: sends a signal to this thread.
    unsafe { libc::raise(signal) };
}

/// Notes a signal for the thread that passes it on.
extern "C" fn handle(signal: c_int, info: *mut siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel hands over a filled struct; the sender is a number in it, whatever it means.
    let (code, sender) = unsafe { ((*info).si_code, (*info).si_pid()) };
    let bytes = Arrival { signal, code, sender }.to_bytes();
    // SAFETY: this thread's own `errno`, which the interrupted code may be about to read; `write` is safe in handlers.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::write(HANDLER_PIPE.load(Ordering::Acquire), bytes.as_ptr().cast(), bytes.len());
        *errno = before;
    }
}

fn set(signal: c_int, handler: libc::sighandler_t, flags: c_int) -> io::Result<()> {
    // SAFETY: all zeros are a valid value: the default action, and an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: `handler` is `SIG_DFL` or has the signature that the flags say.
    match unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: all zeros are a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: reads the action into a local.
    let read = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    read == 0 && action.sa_sigaction == libc::SIG_IGN
}

fn is_stopped(process: pid_t) -> bool {
    fields_of(process).and_then(|mut fields| fields.next()).is_some_and(|state| state == "T")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrival_is_read_as_it_was_written() {
        let arrival = Arrival { signal: 15, code: -6, sender: 4_000_000 };
        assert_eq!(Arrival::of_bytes(arrival.to_bytes()), arrival);
    }

    #[test]
    fn is_from_a_process_what_the_terminal_sends_is_not() {
        for (code, expected) in [(libc::SI_USER, true), (libc::SI_TKILL, true), (libc::SI_QUEUE, true), (0x80, false)] {
            assert_eq!(Arrival { signal: 2, code, sender: 1 }.is_from_a_process(), expected, "{code}");
        }
    }

    #[test]
    fn is_stopped_this_process_is_not() {
        assert!(!is_stopped(std::process::id().cast_signed()));
    }
}
