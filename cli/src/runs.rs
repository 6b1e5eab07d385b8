//! Facts about a program that `p2pshim run` has run: kept beside the traces, so that a report can say how it ended.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use p2pshim_host::machine;
use serde::{Deserialize, Serialize};

use crate::kept::{self, Kept};

/// The version of the file.
const VERSION: u32 = 1;
/// The end of the files' names.
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
    /// Whether `p2pshim run` has found all GPUs to be right, just before or since the boot.
    #[serde(default)]
    pub(crate) is_checked: bool,
    /// The pairs, by UUIDs, that were found right, whatever became of others.
    #[serde(default)]
    pub(crate) checked: BTreeSet<[String; 2]>,
    /// Whether that was of kernels' accesses too.
    #[serde(default)]
    pub(crate) is_checked_in_full: bool,
    /// When, in nanoseconds since 1970, if not just before.
    #[serde(default)]
    pub(crate) checked_at: Option<u64>,
    /// The pairs, by UUIDs, on which copies through the host were wrong as well just before.
    #[serde(default)]
    pub(crate) wrong_through_host: BTreeSet<[String; 2]>,
    /// When it was started, and when it ended, in nanoseconds since 1970.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Its exit status, if it exited.
    pub(crate) code: Option<i32>,
    /// The signal that ended it, if one did.
    pub(crate) signal: Option<i32>,
}

impl Run {
    /// A run that is about to begin.
    pub(crate) fn new(command: Vec<String>) -> Self {
        let host = machine::host_name();
        let start = machine::now();
        let id = format!("{}-{}-{}", host.replace('/', "_"), std::process::id(), start / 1000);
        Self { version: VERSION, id, host, command, start, ..Self::default() }
    }

    /// Notes that it has ended just now.
    pub(crate) fn ends(&mut self, status: ExitStatus) {
        (self.end, self.code, self.signal) = (machine::now(), status.code(), status.signal());
    }

    /// Writes it to its file in a folder.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn keep(&self, folder: &Path) -> io::Result<()> {
        kept::write(folder, &format!("{}{SUFFIX}", self.id), self).map(drop)
    }
}

impl Kept for Run {
    fn is_possible(&self) -> bool {
        kept::are_times(self.start, self.end) && self.checked_at.is_none_or(|time| kept::are_times(time, self.start))
    }
}

/// Reads files, each run once. A file that cannot be read is said, and left out.
pub(crate) fn load(paths: &[PathBuf]) -> Vec<Run> {
    let mut runs: Vec<Run> = kept::read_all(paths, VERSION);
    let mut seen = BTreeSet::new();
    runs.retain(|run| seen.insert(run.id.clone()));
    runs
}

/// A signal's name.
pub(crate) fn signal_name(signal: i32) -> String {
    signal_hook::low_level::signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_name_of_one_without_is_its_number() {
        assert_eq!([signal_name(11), signal_name(34)], ["SIGSEGV", "signal 34"]);
    }
}
