//! NVLink's traffic while a program ran, by the counters of NVML: `p2pshim run` keeps it beside the traces, and the
//! report compares it with the copies.
//!
//! `run` does not call NVML itself, for that may hang. Another process of ours does (`worker`), from before the program
//! starts until after it has ended: where nobody keeps the driver loaded, counters begin at 0 when the last process leaves.
//! `watch` starts it, and does not wait for it for ever.

mod watch;
pub(crate) mod worker;

pub(crate) use watch::Watch;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::kept::{self, Kept};

/// The version of the file.
const VERSION: u32 = 1;
/// The end of the files' names.
pub(crate) const SUFFIX: &str = ".nvlink.json";

/// The counters that were read around one program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reading {
    pub(crate) version: u32,
    /// As traces name it.
    pub(crate) host: String,
    /// When the counters were first and last read, in nanoseconds since 1970.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Whether a signal ended the program.
    pub(crate) killed: bool,
    /// Whether processes of other PID namespaces, such as containers, may be hidden from NVML here.
    pub(crate) in_container: bool,
    pub(crate) gpus: Vec<Gpu>,
}

/// The counters of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gpu {
    /// As NVML and traces have it.
    pub(crate) uuid: String,
    /// Bytes by the counter, first and last.
    pub(crate) sent: [u64; 2],
    pub(crate) received: [u64; 2],
    /// Whether the program, or a descendant of it, was seen to use the GPU.
    pub(crate) ours: bool,
    /// Processes that were seen to use it and are not known to descend from the program.
    pub(crate) others: Vec<u32>,
}

impl Reading {
    /// Writes it to a new file of a folder.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn keep(&self, folder: &Path) -> io::Result<PathBuf> {
        let name = format!("{}-{}-{}{SUFFIX}", self.host.replace('/', "_"), std::process::id(), self.start / 1000);
        kept::write(folder, &name, self)
    }
}

impl Kept for Reading {
    /// No GPU sends or receives 10 TB/s.
    fn is_possible(&self) -> bool {
        let seconds = self.start.abs_diff(self.end) / 1_000_000_000;
        let most = seconds.saturating_add(1).saturating_mul(10_000_000_000_000);
        // A counter may begin anew.
        let is_carried = |[first, last]: [u64; 2]| last.saturating_sub(first) <= most;
        kept::are_times(self.start, self.end)
            && self.gpus.iter().all(|gpu| is_carried(gpu.sent) && is_carried(gpu.received))
    }
}

/// Reads files. A file that cannot be read is said, and left out.
pub(crate) fn load(paths: &[PathBuf]) -> Vec<Reading> {
    kept::read_all(paths, VERSION)
}
