//! What a report says, as plain data. Serialised, it is the JSON of `--json`: names are never renamed, new ones may come, and
//! docs/schema/report.schema.json describes each.
//!
//! Times are nanoseconds since 1970 unless a name says otherwise.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

use p2pshim_host::codes;
use serde::Serialize;

use super::paths::Class;

/// The version of the JSON.
pub(crate) const VERSION: u32 = 1;

/// All there is to say about some traces.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) version: u32,
    /// The filter of which all of it is, as arguments; not there if it is of all calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) filter: Option<String>,
    /// What could not be recorded or read, in sentences.
    pub(crate) gaps: Vec<String>,
    /// Whether bytes and calls are therefore the least that they can be: times may be all that is lost.
    pub(crate) lower_bounds: bool,
    /// The runs, or jobs, that the files are of, as far as they can be told apart.
    pub(crate) runs: Vec<Run>,
    /// When they were, without the time between them.
    pub(crate) times: Vec<Span>,
    /// Programs that `p2pshim run` ran and of which no call was seen.
    pub(crate) unseen: Vec<Unseen>,
    pub(crate) files: Vec<File>,
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) pairs: Vec<Pair>,
    pub(crate) functions: Vec<Function>,
    pub(crate) errors: Vec<Error>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) decisions: Vec<Decision>,
    pub(crate) unfinished: Vec<Call>,
    pub(crate) lost: Lost,
    /// What NVLink carried, if `p2pshim run` has read it.
    pub(crate) nvlink: Option<NvLink>,
    pub(crate) timeline: Timeline,
    #[serde(skip)]
    pub(crate) shares: Vec<Share>,
}

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

/// A trace file: a process. Of one that cannot be read only the path and the problems are known.
#[derive(Debug, Default, Serialize)]
pub(crate) struct File {
    pub(crate) index: usize,
    pub(crate) path: String,
    pub(crate) host: Option<String>,
    pub(crate) boot_id: Option<String>,
    pub(crate) process: Option<u32>,
    /// What that number is of, and when the process was started.
    #[serde(skip)]
    pub(crate) namespace: Option<String>,
    #[serde(skip)]
    pub(crate) process_start: Option<String>,
    /// Whether a later trace may be of the same process.
    #[serde(skip)]
    pub(crate) may_go_on: bool,
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
    /// What it copied between GPUs, and what of that was staged.
    pub(crate) copied_bytes: u64,
    pub(crate) staged_bytes: u64,
    /// Copies that have returned and of which the devices are not known.
    pub(crate) copies_of_unknown_devices: u64,
    /// Whether the GPU is known to have made the last copy of each pair on each stream.
    pub(crate) knows_last_copies: bool,
    /// When the run ended that it is of, if `p2pshim run` has kept that.
    #[serde(skip)]
    pub(crate) run_ended: Option<u64>,
    /// The last call of the program that has copied something.
    pub(crate) last_copy: Option<Call>,
    /// In what it differs from most others of its run.
    pub(crate) differs: Vec<&'static str>,
    /// The status that it gave to `exit`, and whether the format of the file has it at all.
    #[serde(skip)]
    pub(crate) exit: Option<u8>,
    #[serde(skip)]
    pub(crate) knows_exit: bool,
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

    /// How long after a time the trace last tells of something, in nanoseconds. What is not whole may tell of any time.
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

/// A GPU, however many processes use it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Gpu {
    pub(crate) index: usize,
    pub(crate) host: Option<String>,
    /// What files call it, by their index.
    pub(crate) ordinals: BTreeMap<String, u8>,
    pub(crate) name: Option<String>,
    pub(crate) uuid: Option<String>,
    pub(crate) pci: Option<String>,
    pub(crate) label: String,
    /// The number in the label.
    #[serde(skip)]
    pub(crate) number: u32,
}

/// Copies from a GPU to a GPU.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Pair {
    pub(crate) src: usize,
    pub(crate) dst: usize,
    /// All copies, those that failed or never returned too.
    pub(crate) calls: u64,
    /// Of those that did not fail.
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    /// Of those that did not fail.
    pub(crate) paths: Vec<Path>,
    pub(crate) host_ns: Durations,
    pub(crate) link: Option<String>,
    pub(crate) access: Option<bool>,
    /// What came of verifying the pair last.
    pub(crate) verified: Option<String>,
    /// Whether peer access loses data there, or hangs: so verification found.
    pub(crate) is_blocked: bool,
    /// What was staged for that reason.
    pub(crate) blocked_bytes: u64,
    /// Its copies by their sizes.
    pub(crate) sizes: Vec<Size>,
    /// Of programs with Python, or whose calls of the runtime are not seen, only.
    pub(crate) sites: Vec<CopySite>,
}

impl Pair {
    /// Whether it is known that direct copies arrive, or that they do not.
    pub(crate) fn is_tested(&self) -> bool {
        self.is_blocked || self.verified.as_deref().is_some_and(|verified| verified != "unknown")
    }
}

/// Copies of a pair that took the same path for the same reason.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Path {
    pub(crate) path: String,
    pub(crate) why: Option<String>,
    pub(crate) class: Class,
    pub(crate) calls: u64,
    pub(crate) bytes: u64,
    /// Those whose time on the device was measured.
    pub(crate) device_calls: u64,
    pub(crate) device_bytes: u64,
    pub(crate) device_ns: u64,
    pub(crate) gb_per_s: Option<f64>,
    pub(crate) host_ns: Durations,
}

/// Copies of a pair that took the same path for the same reason and have about the same size: at least `from`, less than `to` bytes.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Size {
    pub(crate) path: String,
    pub(crate) why: Option<String>,
    pub(crate) class: Class,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) calls: u64,
    pub(crate) bytes: u64,
    pub(crate) device_calls: u64,
    pub(crate) gb_per_s: Option<f64>,
}

/// How long calls took on the host, in nanoseconds; none if none has returned. The first two are right to 3 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Durations {
    pub(crate) p50: Option<u64>,
    pub(crate) p99: Option<u64>,
    pub(crate) max: Option<u64>,
    pub(crate) total: u64,
}

/// A function, called by the program or by another function.
#[derive(Debug, Serialize)]
pub(crate) struct Function {
    pub(crate) layer: String,
    pub(crate) name: String,
    pub(crate) calls: u64,
    /// Those whose times are known, and those that have returned without being timed.
    pub(crate) timed_calls: u64,
    #[serde(skip)]
    pub(crate) untimed_calls: u64,
    pub(crate) errors: u64,
    pub(crate) host_ns: Durations,
}

/// A line of a Python program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) struct Line {
    /// As the interpreter names it: mostly a path.
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) function: String,
}

impl Line {
    /// With the whole path.
    pub(crate) fn in_full(&self) -> String {
        let Self { file, line, function } = self;
        format!("{file}:{line} in {function}")
    }
}

impl Display for Line {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let file = self.file.rsplit('/').next().unwrap_or_default();
        write!(out, "{file}:{} in {}", self.line, self.function)
    }
}

/// Where a call came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) struct Origin {
    /// The place in the code.
    pub(crate) site: String,
    /// If that is in the CUDA runtime, the place that called it; or all, `a < b < c`, if it cannot be told which is.
    pub(crate) caller: Option<String>,
    /// The line of the Python program, if it was looked for.
    pub(crate) python: Option<Line>,
}

impl Display for Origin {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if let Some(line) = &self.python {
            write!(out, "{line}, ")?;
        }
        out.write_str(self.caller.as_ref().unwrap_or(&self.site))
    }
}

/// How often something was called from where.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Site {
    #[serde(flatten)]
    pub(crate) from: Origin,
    pub(crate) count: u64,
}

/// Copies of a pair from one place in the code.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CopySite {
    pub(crate) site: String,
    pub(crate) calls: u64,
    pub(crate) lines: Vec<CopyLine>,
    pub(crate) callers: Vec<CopyCaller>,
}

/// Of how many of them a line of Python is known to have made them.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CopyLine {
    #[serde(flatten)]
    pub(crate) line: Line,
    pub(crate) calls: u64,
}

/// Of how many of them it is known where they called the runtime.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CopyCaller {
    pub(crate) caller: String,
    pub(crate) calls: u64,
}

/// What a function returned to the program instead of success.
#[derive(Debug, Serialize)]
pub(crate) struct Error {
    pub(crate) layer: String,
    pub(crate) function: String,
    pub(crate) code: i32,
    pub(crate) numbering: Numbering,
    pub(crate) name: Option<String>,
    pub(crate) count: u64,
    pub(crate) sites: Vec<Site>,
}

/// Which numbers a code has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Numbering {
    /// Those of its layer, which the runtime shares with the driver since CUDA 10.1.
    #[serde(rename = "usual")]
    Usual,
    /// The runtime's own until 10.0.
    #[serde(rename = "until-10.0")]
    Until10_0,
}

impl Numbering {
    /// The number that the program got, of a result in a trace.
    pub(crate) fn split(result: i32) -> (i32, Self) {
        let (code, is_old) = p2pshim_trace::given(result);
        (code, if is_old { Self::Until10_0 } else { Self::Usual })
    }

    /// The usual number of a code, if it has one.
    pub(crate) fn usual(self, code: i32) -> Option<i32> {
        match self {
            Self::Usual => Some(code),
            Self::Until10_0 => codes::since_10_1(code),
        }
    }
}

/// Something that is wrong with calls.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) rule: String,
    pub(crate) severity: String,
    pub(crate) count: u64,
    pub(crate) text: Option<String>,
    pub(crate) sites: Vec<Site>,
    pub(crate) files: Vec<usize>,
    /// When it was found, once for each place in each process.
    pub(crate) times: Vec<Moment>,
}

/// When something happened in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Moment {
    pub(crate) time: u64,
    pub(crate) file: usize,
}

/// What was decided about a pair.
#[derive(Debug, Serialize)]
pub(crate) struct Decision {
    pub(crate) file: usize,
    pub(crate) time: u64,
    pub(crate) src: Option<usize>,
    pub(crate) dst: Option<usize>,
    /// What came of verifying the pair, if that is what it is about.
    pub(crate) verified: Option<String>,
    pub(crate) text: String,
}

impl Decision {
    /// Whether something is wrong.
    pub(crate) fn is_bad(&self) -> bool {
        self.verified.as_deref().is_some_and(|verified| verified != "right")
    }
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Progress {
    Returned,
    /// It has only just begun, or had when its process ended.
    UnderWay,
    /// The thread has made other calls since: it left this one by an exception, a cancellation or a jump.
    Left,
    /// Its process ended in it, and nobody knows after how long.
    CutOff,
    /// It has been under way for a while, or was when its process ended; or for a time that is not known, and its process may still run.
    Hangs,
}

/// A call that has not returned, or the last that did.
#[derive(Debug, Serialize)]
pub(crate) struct Call {
    pub(crate) file: usize,
    pub(crate) thread: u32,
    pub(crate) layer: String,
    pub(crate) function: String,
    pub(crate) started: u64,
    pub(crate) progress: Progress,
    /// How long it has been under way, or was when its process ended, if that is known: it is not if the process may have become another
    /// program before. Of a last copy how long before now, or before the end of the run, it returned.
    pub(crate) age_ns: Option<u64>,
    pub(crate) src: Option<usize>,
    pub(crate) dst: Option<usize>,
    pub(crate) bytes: Option<u64>,
    /// The path that it was to take, and why, as far as that is known.
    pub(crate) path: Option<String>,
    pub(crate) why: Option<String>,
    #[serde(flatten)]
    pub(crate) from: Origin,
    /// The innermost function that has not returned either.
    #[serde(skip)]
    pub(crate) inner: Option<String>,
    /// When it returned, if it has.
    #[serde(skip)]
    pub(crate) returned: Option<u64>,
}

/// What staging has cost.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Lost {
    pub(crate) staged_bytes: u64,
    /// What need not have been, without the next.
    pub(crate) could_be_direct_bytes: u64,
    /// What was staged until a pair was known to be worth it, and right.
    pub(crate) start_up_bytes: u64,
    /// About how much longer it took, of all processes together, estimated from the copies that were measured.
    pub(crate) seconds: Option<f64>,
    /// Whether there are more copies, of sizes of which none were measured.
    #[serde(skip)]
    pub(crate) is_at_least: bool,
    /// How many of those copies were measured, and how many there are.
    pub(crate) measured_calls: u64,
    pub(crate) could_be_direct_calls: u64,
    /// How many bytes the measured ones copied.
    pub(crate) measured_bytes: u64,
    /// The processes that lost most, the worst first.
    pub(crate) processes: Vec<LostBy>,
    pub(crate) basis: String,
}

/// What it has cost a process.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct LostBy {
    pub(crate) file: usize,
    pub(crate) seconds: f64,
}

/// What copies of a process took a path of a pair, by the power of two that their size has reached.
#[derive(Debug, Default)]
pub(crate) struct Share {
    pub(crate) file: usize,
    pub(crate) pair: [usize; 2],
    pub(crate) power: u32,
    pub(crate) path: Path,
}

/// What NVLink carried while the program ran, by the counters of NVML, and what of it copies explain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct NvLink {
    /// What all of these GPUs sent, or received: that of which copies explain less.
    pub(crate) carried_bytes: u64,
    /// What copies of the trace explain of it.
    pub(crate) copied_bytes: u64,
    /// Whether that is all, as far as can be told: copies that p2pshim itself makes for verification are counted too.
    pub(crate) is_explained: bool,
    /// Whether the trace lacks copies, or may do so.
    pub(crate) is_at_least: bool,
    /// Processes that used the GPUs meanwhile and are not the program's.
    pub(crate) other_processes: Vec<u32>,
    /// Whether NVML showed the program's own processes. If not, it may have hidden others too.
    pub(crate) shows_processes: bool,
    pub(crate) gpus: Vec<NvLinkGpu>,
    /// The same for people; empty if there is nothing to say.
    pub(crate) text: String,
    pub(crate) more: String,
}

/// A GPU: what its counters say, and what copies explain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct NvLinkGpu {
    pub(crate) gpu: usize,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) copied_from_bytes: u64,
    pub(crate) copied_to_bytes: u64,
}

/// When how much was copied, by the pairs and by the processes that copied most: 512 of each, if there are so many.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Timeline {
    pub(crate) start: u64,
    pub(crate) bucket_ns: u64,
    pub(crate) pairs: Vec<TimelinePair>,
    pub(crate) files: Vec<TimelineFile>,
}

/// Bytes per bucket of the timeline.
#[derive(Debug, Serialize)]
pub(crate) struct TimelinePair {
    pub(crate) src: usize,
    pub(crate) dst: usize,
    pub(crate) direct: Vec<u64>,
    pub(crate) staged: Vec<u64>,
}

/// Bytes of a process per bucket of the timeline.
#[derive(Debug, Serialize)]
pub(crate) struct TimelineFile {
    pub(crate) file: usize,
    pub(crate) direct: Vec<u64>,
    pub(crate) staged: Vec<u64>,
}

impl Report {
    /// The processes that it is about: with a filter, those with calls that fit it.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &File> {
        let is_meant = |file: &&File| file.process.is_some() && (self.filter.is_none() || file.calls > 0);
        self.files.iter().filter(is_meant)
    }

    /// What is counted: traces, if it is not known which are of one process.
    pub(crate) fn counted(&self) -> &'static str {
        if self.processes().any(|file| file.may_go_on) { "traces" } else { "processes" }
    }

    /// Which process it is, of several runs with the run.
    pub(crate) fn name(&self, file: &File) -> String {
        let run = self.runs.iter().find(|run| run.files.contains(&file.index)).filter(|_| self.runs.len() > 1);
        let of = run.and_then(|run| run.id.as_ref()).map(|id| format!(" of {id}")).unwrap_or_default();
        format!("{}{of}", file.name())
    }

    /// The earliest time of all files; of those that are whole, if there are any, since damaged ones may be from any time.
    pub(crate) fn start(&self) -> u64 {
        let earliest = |only_whole: bool| {
            self.files.iter().filter(|file| file.is_whole || !only_whole).filter_map(|file| file.started).min()
        };
        earliest(true).or_else(|| earliest(false)).unwrap_or_default()
    }

    /// The latest, likewise.
    pub(crate) fn end(&self) -> u64 {
        let latest = |only_whole: bool| {
            self.files.iter().filter(|file| file.is_whole || !only_whole).filter_map(|file| file.ended).max()
        };
        latest(true).or_else(|| latest(false)).unwrap_or_default()
    }

    /// Whether numbers are lower bounds, since not all was recorded or read.
    pub(crate) fn is_at_least(&self) -> bool {
        self.files.iter().any(|file| {
            file.process.is_none() && !file.is_begun || file.dropped > 0 || !file.is_whole && !file.lacks_only_times
        })
    }

    /// What a GPU is called.
    pub(crate) fn label(&self, gpu: usize) -> &str {
        self.gpus.get(gpu).map_or("unknown device", |gpu| gpu.label.as_str())
    }

    /// How many hosts there are.
    pub(crate) fn hosts(&self) -> Vec<&str> {
        let mut hosts: Vec<&str> = self.files.iter().filter_map(|file| file.host.as_deref()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    /// Whether all files could be read in whole.
    pub(crate) fn is_whole(&self) -> bool {
        self.files.iter().all(|file| file.is_whole)
    }
}
