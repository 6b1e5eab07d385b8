//! What `p2pshim run` knows of a program that it ran: kept beside the traces, so that a report can say how it ended.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The version of the file.
const VERSION: u32 = 1;
/// What the names of the files end in.
pub(crate) const SUFFIX: &str = ".run.json";

/// A run of one program, and of all processes that it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) version: u32,
    /// As `P2PRUN_ID` has it.
    pub(crate) id: String,
    /// As traces name it.
    pub(crate) host: String,
    /// The program's process.
    pub(crate) process: u32,
    /// The program as it was named, and its arguments.
    pub(crate) command: Vec<String>,
    /// When it was started, and when it ended, in nanoseconds since 1970. Without an end it runs, or `p2pshim run` was killed.
    pub(crate) start: u64,
    pub(crate) end: Option<u64>,
    /// Its exit status, if it exited.
    pub(crate) code: Option<i32>,
    /// The signal that ended it, if one did.
    pub(crate) signal: Option<i32>,
}

impl Run {
    /// A run that is about to begin.
    pub(crate) fn new(command: Vec<String>) -> Self {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        let start = now();
        let id = format!("{}-{}-{}", host.replace('/', "_"), std::process::id(), start / 1000);
        Self { version: VERSION, id, host, command, start, ..Self::default() }
    }

    /// It has ended just now.
    pub(crate) fn ends(&mut self, status: ExitStatus) {
        (self.end, self.code, self.signal) = (Some(now()), status.code(), status.signal());
    }

    /// Writes it to its file in a folder, in place of what that said before.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn keep(&self, folder: &Path) -> io::Result<()> {
        let path = folder.join(format!("{}{SUFFIX}", self.id));
        let unfinished = path.with_extension("tmp");
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        let written = io::Write::write_all(&mut file, &serde_json::to_vec(self)?);
        written.and_then(|()| fs::rename(&unfinished, path)).inspect_err(|_| {
            let _ = fs::remove_file(&unfinished);
        })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A sentence for the user.
    pub(crate) fn load(path: &PathBuf) -> Result<Self, String> {
        let bytes = fs::read(path).map_err(|error| error.to_string())?;
        let run: Self = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        match run.version {
            VERSION => Ok(run),
            version => Err(format!("it has version {version}, and this p2pshim reads {VERSION}")),
        }
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// What a signal is called.
pub(crate) fn signal_name(signal: i32) -> String {
    const NAMES: [(i32, &str); 26] = [
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGUSR2, "SIGUSR2"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGSTKFLT, "SIGSTKFLT"),
        (libc::SIGXCPU, "SIGXCPU"),
        (libc::SIGXFSZ, "SIGXFSZ"),
        (libc::SIGVTALRM, "SIGVTALRM"),
        (libc::SIGPROF, "SIGPROF"),
        (libc::SIGIO, "SIGIO"),
        (libc::SIGPWR, "SIGPWR"),
        (libc::SIGSYS, "SIGSYS"),
        (libc::SIGSTOP, "SIGSTOP"),
        (libc::SIGTSTP, "SIGTSTP"),
        (libc::SIGCONT, "SIGCONT"),
    ];
    let name = NAMES.iter().find(|(number, _)| *number == signal);
    name.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_gives_what_was_kept_last_and_refuses_other_versions() {
        let folder = std::env::temp_dir().join(format!("p2pshim-runs-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut run = Run { process: 7, ..Run::new(vec!["./app".to_owned(), "-n".to_owned()]) };
        run.keep(&folder).unwrap();
        run.ends(ExitStatus::from_raw(libc::SIGKILL));
        run.keep(&folder).unwrap();
        let files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        let [file] = &files[..] else { panic!("{files:?}") };
        assert_eq!(Run::load(file), Ok(run.clone()));
        assert_eq!((run.code, run.signal, run.end >= Some(run.start)), (None, Some(9), true));
        fs::write(file, fs::read_to_string(file).unwrap().replace("\"version\":1", "\"version\":2")).unwrap();
        assert!(Run::load(file).unwrap_err().contains("version 2"));
        fs::write(file, "{").unwrap();
        assert!(Run::load(file).is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn signal_name_of_one_without_is_its_number() {
        assert_eq!([signal_name(11), signal_name(34)], ["SIGSEGV", "signal 34"]);
    }
}
