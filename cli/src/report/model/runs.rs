//! Runs, their processes, and how they ended.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::Call;

/// How a process, or a program, ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct End {
    pub(crate) how: How,
    /// The exit status, if it exited; or what it gave to `exit`.
    pub(crate) code: Option<i32>,
    /// The name of the signal, if one ended it.
    pub(crate) signal: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum How {
    Exited,
    /// It called `exit`, and nobody was seen to wait for it: what it did then may have ended it in another way.
    #[serde(rename = "called-exit")]
    CalledExit,
    Signal,
    Running,
    /// It became another program, which has a file of its own.
    Exec,
    /// By a signal, or `_exit`, or it became another program.
    #[default]
    Unknown,
}

/// How many processes ended in the same way.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ends {
    #[serde(flatten)]
    pub(crate) end: End,
    pub(crate) processes: u64,
}

/// A run of a program, or a job of several: the processes that belong together.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Run {
    /// As a scheduler or `p2pshim run` calls it; none if nothing tells.
    pub(crate) id: Option<String>,
    /// The command of `p2pshim run`, if that was kept, or the program of the first process.
    pub(crate) command: Vec<String>,
    pub(crate) started: Option<u64>,
    pub(crate) ended: Option<u64>,
    /// How the program ended that `p2pshim run` ran; of several the worst.
    pub(crate) end: End,
    /// How its processes ended that did not become another program, and how many of them so; those that exited with 0 first.
    pub(crate) ends: Vec<Ends>,
    pub(crate) files: Vec<usize>,
    pub(crate) copied_bytes: u64,
    pub(crate) staged_bytes: u64,
}

/// A time, from and to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Span {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// A program that `p2pshim run` ran and of which there is no trace.
#[derive(Debug, Serialize)]
pub(crate) struct Unseen {
    pub(crate) id: String,
    pub(crate) command: Vec<String>,
    pub(crate) started: u64,
    pub(crate) ended: u64,
    pub(crate) end: End,
}

/// A trace file: a process. If it cannot be read, only the path and the problems are known.
#[derive(Debug, Default, Serialize)]
pub(crate) struct File {
    pub(crate) index: usize,
    pub(crate) path: String,
    pub(crate) host: Option<String>,
    pub(crate) boot_id: Option<String>,
    pub(crate) process: Option<u32>,
    /// The namespace of that number, and when the process was started.
    #[serde(skip)]
    pub(crate) namespace: Option<String>,
    #[serde(skip)]
    pub(crate) process_start: Option<String>,
    pub(crate) program: Vec<String>,
    pub(crate) rank: Option<String>,
    pub(crate) started: Option<u64>,
    pub(crate) ended: Option<u64>,
    /// Calls of the program itself.
    pub(crate) calls: u64,
    /// Calls of the program, and those inside them.
    pub(crate) records: u64,
    /// Records that were not written.
    pub(crate) dropped: u64,
    pub(crate) limit: u64,
    pub(crate) threads: Vec<Thread>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) versions: BTreeMap<String, String>,
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) gpus: Vec<usize>,
    pub(crate) problems: Vec<String>,
    /// Whether all of it was read, and only the times are guesses.
    #[serde(skip)]
    pub(crate) lacks_only_times: bool,
    /// Whether the process is still there, as far as this machine can tell.
    pub(crate) running: bool,
    /// Whether it may be, and cannot be seen from here: it has not called `exit`, and is of another machine, boot, namespace of
    /// processes, or user.
    pub(crate) may_run: bool,
    pub(crate) end: End,
    /// Bytes that it copied between GPUs, and those of them that were staged.
    pub(crate) copied_bytes: u64,
    pub(crate) staged_bytes: u64,
    /// Its copies between GPUs, and how long their calls took on the host.
    #[serde(skip)]
    pub(crate) copies: u64,
    #[serde(skip)]
    pub(crate) copies_ns: u64,
    /// Copies that have returned and of which the devices are not known.
    pub(crate) copies_of_unknown_devices: u64,
    /// Whether the GPU is known to have made the last copy of each pair on each stream.
    pub(crate) knows_last_copies: bool,
    /// When the run ended that it is of, if `p2pshim run` has kept that.
    #[serde(skip)]
    pub(crate) run_ended: Option<u64>,
    /// The last call of the program that has copied something.
    pub(crate) last_copy: Option<Call>,
    /// The ways in which it differs from most others of its run.
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

/// Something that the program has said of itself.
#[derive(Debug, Serialize)]
pub(crate) struct Mark {
    pub(crate) time: u64,
    pub(crate) thread: u32,
    pub(crate) text: String,
}

/// A thread of a process.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Thread {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) calls: u64,
    /// When its last call of the program began, in ticks of the file.
    #[serde(skip)]
    pub(crate) last_start: u64,
}
