//! Processes of our own, for what may hang, and how processes are related.

use std::ffi::{CStr, OsStr, OsString};
use std::fs;
use std::io::{self, BufRead, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use libc::pid_t;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How long a process is waited for, and how long after it was killed.
const GRACE: Duration = Duration::from_secs(1);

/// This program with a hidden command, and what it finds in its environment besides ours.
///
/// # Errors
/// This program is not to be found.
pub(crate) fn own(command: &str, environment: &[(OsString, OsString)]) -> io::Result<Command> {
    let mut own = Command::new(own_path()?);
    own.arg(command);
    for name in std::env::vars_os().map(|(name, _)| name).filter(is_left_out) {
        own.env_remove(name);
    }
    own.envs(environment.iter().map(|(name, value)| (name, value)));
    log::debug!("a process of its own: {own:?}");
    Ok(own)
}

/// The file of this program; without /proc, by the name that it was started by.
pub(crate) fn own_path() -> io::Result<PathBuf> {
    std::env::current_exe().or_else(|error| {
        // SAFETY: reads a vector that the kernel wrote.
        let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as *const libc::c_char;
        // SAFETY: it points to a C string that stays as it is, or is NULL.
        let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }).ok_or(error)?;
        std::path::absolute(OsStr::from_bytes(name.to_bytes()))
    })
}

/// Variables that would put something between the test and the driver: the shim, other preloads, profilers.
fn is_left_out(name: &OsString) -> bool {
    let name = name.to_string_lossy();
    let ours = name.strip_prefix("P2PSHIM").is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    ours || ["LD_PRELOAD", "LD_AUDIT", "CUDA_INJECTION64_PATH"].contains(&name.as_ref())
}

/// Sets whether processes that are started from now on inherit a descriptor. One that does not finds no such descriptor.
pub(crate) fn set_inherited(descriptor: &OwnedFd, is_inherited: bool) {
    let _ = fcntl_setfd(descriptor, if is_inherited { FdFlags::empty() } else { FdFlags::CLOEXEC });
}

/// Waits for a process to end, then kills it and waits again; none if it is still there.
pub(crate) fn end(child: &mut Child) -> Option<ExitStatus> {
    for kills in [false, true] {
        if kills {
            let _ = child.kill();
        }
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = child.try_wait() {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
    None
}

/// Waits until a process is gone that is about to end, or could be killed by its number; false if it is still there.
pub(crate) fn is_gone(process: pid_t) -> bool {
    // One that has ended may wait there for whoever started it.
    let is_there = || fields_of(process).and_then(|mut fields| fields.next()).is_some_and(|state| state != "Z");
    for kills in [false, true] {
        if kills {
            let _ = Pid::from_raw(process).map(|process| kill_process(process, Signal::KILL));
        }
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if !is_there() {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
    false
}

/// Writes a value as a line for a process.
///
/// # Errors
/// Nobody reads it.
pub(crate) fn tell(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    out.write_all(&line).and_then(|()| out.flush())
}

/// Writes a value for the process that has started this one, if it still reads.
pub(crate) fn say(value: &impl Serialize) {
    let _ = tell(&mut io::stdout().lock(), value);
}

/// The requests of the process that has started this one. When that one ends, this one ends too, whatever it is doing.
pub(crate) fn asked<T: DeserializeOwned + Send + 'static>() -> Receiver<T> {
    let (sender, asked) = mpsc::channel();
    thread::spawn(move || {
        let lines = io::stdin().lock().lines().map_while(io::Result::ok);
        let _ = lines.filter_map(|line| serde_json::from_str(&line).ok()).try_for_each(|request| sender.send(request));
        leave(0)
    });
    asked
}

/// Ends the process at once: the driver's own way out might wait for what hangs.
pub(crate) fn leave(status: u8) -> ! {
    // SAFETY: nothing of the process is needed any more.
    unsafe { libc::_exit(status.into()) }
}

/// Whether a process is another, or below it.
pub(crate) fn descends(process: pid_t, other: pid_t, parent: impl Fn(pid_t) -> Option<pid_t>) -> bool {
    /// Processes are made while this looks.
    const GENERATIONS: usize = 1000;
    std::iter::successors(Some(process), |&process| parent(process)).take(GENERATIONS).any(|process| process == other)
}

/// The process that a process was started by, or that has it now.
pub(crate) fn parent(process: pid_t) -> Option<pid_t> {
    fields_of(process)?.nth(1)?.parse().ok()
}

/// The fields of `/proc/…/stat` from the state on; source: proc_pid_stat(5).
pub(crate) fn fields_of(process: pid_t) -> Option<impl Iterator<Item = String>> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name before it may contain anything.
    let (_, fields) = text.rsplit_once(") ")?;
    Some(fields.split(' ').map(str::to_owned).collect::<Vec<_>>().into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_left_out_shim_preloads_and_profilers_only() {
        for name in ["P2PSHIM", "P2PSHIM_LOG", "LD_PRELOAD", "LD_AUDIT", "CUDA_INJECTION64_PATH"] {
            assert!(is_left_out(&name.into()), "{name}");
        }
        for name in ["LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "P2PSIM_FAULT", "P2PSHIMS", "PATH"] {
            assert!(!is_left_out(&name.into()), "{name}");
        }
    }

    #[test]
    fn end_process_that_does_not_end_is_killed() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert!(end(&mut child).is_some_and(|status| !status.success()));
    }

    #[test]
    fn is_gone_process_that_does_not_end_is_killed_and_one_that_has_ended_is_gone() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        assert!(is_gone(child.id().cast_signed()));
        assert!(!child.wait().unwrap().success());
        assert!(is_gone(child.id().cast_signed()));
    }

    #[test]
    fn descends_itself_and_those_below_and_nobody_else() {
        let parent =
            |process| [(12, 11), (11, 10), (20, 1), (1, 0)].iter().find(|row| row.0 == process).map(|row| row.1);
        for (process, expected) in [(10, true), (11, true), (12, true), (20, false), (0, false)] {
            assert_eq!(descends(process, 10, parent), expected, "{process}");
        }
    }

    #[test]
    fn parent_of_this_process_is_the_one_that_the_library_tells() {
        let this = std::process::id().cast_signed();
        assert_eq!(parent(this), Some(std::os::unix::process::parent_id().cast_signed()));
    }
}
