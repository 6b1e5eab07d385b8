//! Signals on their way to the program, and its end.
//!
//! This process stays in the program's process group. The terminal's signals (Ctrl-C, Ctrl-Z, a new size) go to the
//! whole group: the program has them already, and gets them no second time. Signals to this process alone are passed on.

use std::io;
use std::os::raw::c_int;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process, setrlimit, waitid,
};
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2, SIGWINCH,
    SIGXFSZ,
};
use signal_hook::flag::{register, register_conditional_default};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::{emulate_default_handler, raise, siginfo::Origin};

use crate::lock::lock;
use crate::processes::{descends, fields_of, parent};

/// The signals that are passed on. `SIGKILL` and `SIGSTOP` cannot be.
const PASSED_ON: [c_int; 9] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT];

/// Whether this process was started with [`SIGCHLD`] ignored.
static IGNORES_CHILDREN: AtomicBool = AtomicBool::new(false);

/// Has this process learn how its children end, even if its parent ignored that, and be told where a file may not grow, which would end it
/// otherwise. A program that it starts has the second as it was.
pub(crate) fn settle() {
    if is_ignored(SIGCHLD) {
        // SAFETY: the default action runs no code.
        unsafe { libc::signal(SIGCHLD, libc::SIG_DFL) };
        IGNORES_CHILDREN.store(true, Ordering::Relaxed);
    }
    if !is_ignored(SIGXFSZ) {
        let _ = register(SIGXFSZ, Arc::default());
    }
}

/// Starts a program, with the actions of signals that this process was started with.
///
/// # Errors
/// The system's.
pub(super) fn spawn(command: &mut Command) -> io::Result<Child> {
    let ignore = || {
        // SAFETY: ignoring runs no code.
        unsafe { libc::signal(SIGCHLD, libc::SIG_IGN) };
        Ok(())
    };
    if IGNORES_CHILDREN.load(Ordering::Relaxed) {
        // SAFETY: signal(2) may be called between fork and exec.
        unsafe { command.pre_exec(ignore) };
    }
    command.spawn()
}

/// Signals that arrive from now on, for a program that is to be started.
pub(super) struct Relay {
    /// The thread that passes them on waits for the program.
    program: Sender<Target>,
    /// Set once signals are for this process.
    is_over: Arc<AtomicBool>,
}

/// The program while it may get signals: its number stays its own until it has been waited for.
type Target = Arc<Mutex<Option<Pid>>>;

impl Relay {
    /// Begins to take signals. Signals that are ignored (by `nohup`, or for jobs of a script) stay so, here and in the program.
    ///
    /// # Errors
    /// The system's. All that may fail is done here, before the program runs.
    pub(super) fn open() -> io::Result<Self> {
        let taken: Vec<c_int> = PASSED_ON.into_iter().filter(|&signal| !is_ignored(signal)).collect();
        let is_over = Arc::new(AtomicBool::new(false));
        for &signal in &taken {
            register_conditional_default(signal, Arc::clone(&is_over))?;
        }
        let mut arrivals = SignalsInfo::<WithOrigin>::new(taken)?;
        let (program, started) = mpsc::channel::<Target>();
        let pass_all = move || {
            let target = started.recv();
            target.into_iter().for_each(|target| arrivals.forever().for_each(|arrival| pass_on(arrival, &target)));
        };
        thread::Builder::new().name("signals".to_owned()).spawn(pass_all)?;
        Ok(Self { program, is_over })
    }

    /// Passes signals on to the program until it ends, and waits for that. Stops with it if the terminal stopped it.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn wait(self, child: &mut Child) -> io::Result<ExitStatus> {
        let process = Pid::from_child(child);
        let target: Target = Arc::new(Mutex::new(Some(process)));
        let Self { program, is_over } = self;
        let _ = program.send(Arc::clone(&target));
        wait_for_end(process)?;
        *lock(&target) = None;
        let status = child.wait();
        is_over.store(true, Ordering::SeqCst);
        status
    }
}

/// Passes a signal on to the program, if it has not got it itself and still lives.
fn pass_on(arrival: Origin, target: &Target) {
    /// A signal that is sent to the whole group has surely reached the program too after this time.
    const MOMENT: Duration = Duration::from_millis(5);
    // The kernel has sent it for the terminal.
    let Some(sender) = arrival.process else { return };
    if arrival.signal == SIGCONT {
        // A shell continues the whole group.
        thread::sleep(MOMENT);
    }
    let target = lock(target);
    let Some(process) = *target else { return };
    let is_due = match arrival.signal {
        SIGCONT => is_stopped(process),
        // The program tells its own group, itself included.
        _ => !descends(sender.pid, process.as_raw_pid(), parent),
    };
    if let Some(signal) = Signal::from_named_raw(arrival.signal).filter(|_| is_due) {
        let _ = kill_process(process, signal);
    }
}

/// Waits until the program has ended, without taking its status.
fn wait_for_end(process: Pid) -> io::Result<()> {
    let wait = |options| rustix::io::retry_on_intr(|| waitid(WaitId::Pid(process), options));
    loop {
        let news = wait(WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT)?;
        let Some(signal) = news.as_ref().and_then(WaitIdStatus::stopping_signal) else { return Ok(()) };
        // Takes the news, so that it is told once.
        wait(WaitIdOptions::STOPPED | WaitIdOptions::NOHANG)?;
        // By the terminal: whoever started this process is to see that the job has stopped. SIGSTOP is sent by others, who
        // need not think of this process when they let the program continue.
        if [SIGTSTP, SIGTTIN, SIGTTOU].contains(&signal) {
            raise(SIGSTOP)?;
        }
    }
}

/// Ends this process by a signal that ended the program, as its caller would have seen it, without a second core file.
/// Returns if that cannot be.
pub(super) fn end_by(signal: c_int) {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    // Of signals that it does not know none is taken here.
    let _ = emulate_default_handler(signal).or_else(|_| raise(signal));
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: all zeros are a valid value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: reads the action into a local.
    let read = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    read == 0 && action.sa_sigaction == libc::SIG_IGN
}

fn is_stopped(process: Pid) -> bool {
    fields_of(process.as_raw_pid()).and_then(|mut fields| fields.next()).is_some_and(|state| state == "T")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_stopped_this_process_is_not() {
        assert!(!is_stopped(rustix::process::getpid()));
    }
}
