//! Runs, their processes, and how they ended.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;

use super::{Call, FirstContext};

/// How a process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct End {
    /// The way in which it ended.
    pub(crate) how: How,
    /// The exit status, if it exited; or what it gave to `exit`.
    pub(crate) code: Option<i32>,
    /// The signal that ended it, such as `SIGKILL`.
    pub(crate) signal: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum How {
    /// It exited, and `p2pshim run` waited for it.
    Exited,
    /// It called `exit`, and nobody was seen to wait for it: what it did then may have ended it in another way.
    #[serde(rename = "called-exit")]
    CalledExit,
    /// A signal ended it.
    Signal,
    /// It still runs.
    Running,
    /// It became another program, which has a file of its own.
    Exec,
    /// By a signal, or `_exit`, or it became another program.
    #[default]
    Unknown,
}

/// Processes that ended in the same way.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Ends {
    #[serde(flatten)]
    pub(crate) end: End,
    /// How many.
    pub(crate) processes: u64,
}

/// The processes of a run.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Run {
    /// As a scheduler or `p2pshim run` calls it; null if nothing tells.
    pub(crate) id: Option<String>,
    /// The program and its arguments: that of `p2pshim run`, or of the first process.
    pub(crate) command: Vec<String>,
    /// When it began. Nanoseconds since 1970, UTC.
    pub(crate) started: Option<u64>,
    /// When it ended, or the last sign of life. Nanoseconds since 1970, UTC.
    pub(crate) ended: Option<u64>,
    /// How the program ended that `p2pshim run` ran; of several the worst.
    pub(crate) end: End,
    /// How its processes ended, and how many of them so; those that exited with 0 first. Without those that
    /// became another program.
    pub(crate) ends: Vec<Ends>,
    /// Whether the GPUs of all its processes were found to be right before it began.
    #[serde(skip)]
    pub(crate) is_checked: bool,
    /// The pairs, by UUIDs, of which that is so, whatever became of others.
    #[serde(skip)]
    pub(crate) checked: BTreeSet<[String; 2]>,
    /// And that kernels' accesses were among it.
    #[serde(skip)]
    pub(crate) is_checked_in_full: bool,
    /// The earliest time of that, if it was not just before.
    #[serde(skip)]
    pub(crate) checked_at: Option<u64>,
    /// The pairs, by UUIDs, on which copies through the host were wrong just before.
    #[serde(skip)]
    pub(crate) wrong_through_host: BTreeSet<[String; 2]>,
    /// Its processes: their `index` in `files`.
    pub(crate) files: Vec<usize>,
    /// Bytes that they copied between GPUs.
    pub(crate) copied_bytes: u64,
    /// Bytes of these that were staged.
    pub(crate) staged_bytes: u64,
}

/// A time in which at least one of them was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Span {
    /// Nanoseconds since 1970.
    pub(crate) from: u64,
    /// Nanoseconds since 1970.
    pub(crate) to: u64,
}

/// A program.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Unseen {
    /// The run, as `p2pshim run` calls it.
    pub(crate) id: String,
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    /// When it was started, in nanoseconds since 1970.
    pub(crate) started: u64,
    /// When it ended, in nanoseconds since 1970.
    pub(crate) ended: u64,
    /// How it ended.
    pub(crate) end: End,
}

/// A trace file: a process. Of one that cannot be read only the path and the problems are known.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct File {
    /// Its number in this report, from 0.
    pub(crate) index: usize,
    /// Where the file is.
    pub(crate) path: String,
    /// The host that the process ran on.
    pub(crate) host: Option<String>,
    /// The boot of that host, as Linux names it.
    pub(crate) boot_id: Option<String>,
    /// The process's number there.
    pub(crate) process: Option<u32>,
    /// The namespace of that number, and when the process was started.
    #[serde(skip)]
    pub(crate) namespace: Option<String>,
    #[serde(skip)]
    pub(crate) process_start: Option<String>,
    /// The path of its executable, then its command line.
    pub(crate) program: Vec<String>,
    /// Its rank in a job, as the launcher told it.
    pub(crate) rank: Option<String>,
    /// The first sign of life. Nanoseconds since 1970, UTC.
    pub(crate) started: Option<u64>,
    /// The last sign of life. Nanoseconds since 1970, UTC.
    pub(crate) ended: Option<u64>,
    /// Calls of the program itself.
    pub(crate) calls: u64,
    /// Calls of the program, and calls inside them.
    pub(crate) records: u64,
    /// Records (calls of the program, and calls inside them) that were not written.
    pub(crate) dropped: u64,
    /// Bytes that it copied from its GPUs to the host, by copies of 64 KiB and more.
    pub(crate) to_host_bytes: u64,
    /// Bytes that it copied from the host to its GPUs, likewise.
    pub(crate) from_host_bytes: u64,
    /// Copies, and enablings of access, of its forked children that no file has.
    #[serde(skip)]
    pub(crate) unseen: u64,
    /// Pieces of memory of other processes that it has never closed and that their owners have freed, and their bytes.
    #[serde(skip)]
    pub(crate) never_closed: (u64, u64),
    /// A process whose memory it has opened while the GPU where that lies was current: its file, and the GPU's number in this process.
    #[serde(skip)]
    pub(crate) may_share_gpu: Option<(usize, u8)>,
    /// The first contexts on GPUs.
    #[serde(skip)]
    pub(crate) first_contexts: Vec<FirstContext>,
    /// By thread: where its Python can be read while it runs.
    #[serde(skip)]
    pub(crate) pythons: BTreeMap<u32, String>,
    /// How long the file may get, in bytes.
    pub(crate) limit: u64,
    /// Threads that called.
    pub(crate) threads: Vec<Thread>,
    /// The program's words about itself (`p2pshim_trace_mark`).
    pub(crate) marks: Vec<Mark>,
    /// Versions of p2pshim, of CUDA as the driver has it (`driver`), of shared runtimes, and of static ones
    /// with the modules that they are in (`static_runtime`), as far as the strings inside tell it.
    pub(crate) versions: BTreeMap<String, String>,
    /// Environment variables that matter.
    pub(crate) variables: BTreeMap<String, String>,
    /// GPUs that it uses: their `index` in `gpus`.
    pub(crate) gpus: Vec<usize>,
    /// Faults of the file, in words.
    pub(crate) problems: Vec<String>,
    /// Whether all of it was read, and only the times are guesses.
    #[serde(skip)]
    pub(crate) lacks_only_times: bool,
    /// Whether the process is still there, as far as this machine can tell.
    pub(crate) running: bool,
    /// Whether it may be, and cannot be seen from here: it has not called `exit`, and is of another machine,
    /// boot, namespace of processes or user.
    pub(crate) may_run: bool,
    /// How the process ended.
    pub(crate) end: End,
    /// Bytes that the process copied between GPUs.
    pub(crate) copied_bytes: u64,
    /// Bytes of these that were staged.
    pub(crate) staged_bytes: u64,
    /// Its copies between GPUs, and how long their calls took on the host.
    #[serde(skip)]
    pub(crate) copies: u64,
    #[serde(skip)]
    pub(crate) copies_ns: u64,
    /// Copies that have returned and of which it is not known between which devices they were.
    pub(crate) copies_of_unknown_devices: u64,
    /// Whether the GPU is known to have made the last copy of each pair on each stream. If not, what was
    /// copied is what was submitted: calls that returned success.
    pub(crate) knows_last_copies: bool,
    /// When the run ended that it is of, if `p2pshim run` has kept that.
    #[serde(skip)]
    pub(crate) run_ended: Option<u64>,
    /// The last call of the program that has copied something: a copy, a batch, or the launch of a graph with
    /// the first of its copies.
    pub(crate) last_copy: Option<Call>,
    /// In what it differs from most others of its run: `ended`, `copied` (bytes, by more than 10 %), `staged`
    /// (its share, by more than 5 points), `last copy` (when it began, by more than 10 % of the run and 1 s).
    pub(crate) differs: Vec<&'static str>,
    /// The status that it gave to `exit`.
    #[serde(skip)]
    pub(crate) exit: Option<u8>,
    /// Whether it is the program of a run that is known how it ended.
    #[serde(skip)]
    pub(crate) is_program: bool,
    /// When that ended, in nanoseconds since 1970.
    #[serde(skip)]
    pub(crate) gone: Option<u64>,
    /// Whether the environment that `p2pshim run` gave to its program came to this process, which is not that program.
    #[serde(skip)]
    pub(crate) is_child: bool,
    /// The path as the system has it.
    #[serde(skip)]
    pub(crate) location: PathBuf,
    /// Whether all of it could be read.
    #[serde(skip)]
    pub(crate) is_whole: bool,
    /// Whether it is just being begun, or its process ended then: of which process it is is not known, and no call is in it.
    #[serde(skip)]
    pub(crate) is_begun: bool,
    /// Which GPU a device of the process is.
    #[serde(skip)]
    pub(crate) devices: BTreeMap<u8, usize>,
    /// By the number in place of a device: whose memory it is, if that is known.
    #[serde(skip)]
    pub(crate) owners: BTreeMap<u8, Option<usize>>,
}

impl File {
    /// Which process it is.
    pub(crate) fn name(&self) -> String {
        let rank = self.rank.as_ref().map(|rank| format!("rank {rank}"));
        rank.unwrap_or_else(|| format!("pid {}", self.process.unwrap_or_default()))
    }

    /// How long after a time the process ended, in nanoseconds, if that is known. It may have become another program before.
    pub(crate) fn gone_after(&self, time: u64) -> Option<u64> {
        self.gone.map(|gone| gone.saturating_sub(time))
    }

    /// How long after a time the trace last tells of something, in nanoseconds. A trace that is not whole may tell of any time.
    pub(crate) fn lived_after(&self, time: u64) -> u64 {
        self.ended.filter(|_| self.is_whole).unwrap_or_default().saturating_sub(time)
    }
}

/// A mark.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Mark {
    /// When. Nanoseconds since 1970, UTC.
    pub(crate) time: u64,
    /// The kernel's number of the thread.
    pub(crate) thread: u32,
    /// The mark.
    pub(crate) text: String,
}

/// A thread.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Thread {
    /// The kernel's number of the thread.
    pub(crate) id: u32,
    /// Its name.
    pub(crate) name: String,
    /// Calls of the program.
    pub(crate) calls: u64,
    /// When its last call of the program began, in ticks of the file.
    #[serde(skip)]
    pub(crate) last_start: u64,
}
