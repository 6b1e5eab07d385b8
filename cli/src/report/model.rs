//! A report as plain data. Serialised, it is the JSON of `--json`: names are never renamed, new ones may come, and
//! docs/schema/report.schema.json, which is made of the comments here, describes each.
//!
//! Times are nanoseconds since 1970 unless a name says otherwise.

mod calls;
mod copies;
mod runs;

use std::collections::{BTreeMap, BTreeSet};

use p2pshim_trace::{FIRST_BYTES, FIRST_COPIES, Path as Taken, Why};
use serde::Serialize;

pub(crate) use calls::{
    Call, Durations, Error, Failure, Finding, FirstContext, Function, Line, Moment, Negative, Numbering, Origin,
    Progress, Race, RaceSide, Site, Suppressed, Unshared, is_glue,
};
pub(crate) use copies::{
    BetweenProcesses, ByHand, CopyCaller, CopyLine, CopySite, Decision, Does, Gpu, Lost, LostBy, NvLink, NvLinkGpu,
    Pair, Path, Rate, Sampled, Share, Size, Timeline, TimelineFile, TimelinePair,
};
pub(crate) use runs::{End, Ends, File, How, Mark, Run, Span, Thread, Unseen};

/// The version of the JSON.
pub(crate) const VERSION: u32 = 1;

/// The static runtime's name among the versions of a file.
pub(super) const STATIC_RUNTIME: &str = "static_runtime";

/// All there is to say about some traces.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    /// The version of this format. It changes only if fields change their meaning.
    #[cfg_attr(test, schemars(extend("const" = VERSION)))]
    pub(crate) version: u32,
    /// The filter that all figures are of, as arguments; only there if one is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) filter: Option<String>,
    /// Sentences about what could not be recorded or read.
    pub(crate) gaps: Vec<String>,
    /// Whether bytes and calls are lower bounds, for what is in `gaps`.
    pub(crate) lower_bounds: bool,
    /// Runs, or jobs, that the files are of, as far as they can be told apart; the earliest first.
    pub(crate) runs: Vec<Run>,
    /// When the runs were, with processes that outlived them, in order, without the time between them; of
    /// processes of which it is not known whether they belong together, when each was.
    pub(crate) times: Vec<Span>,
    /// Programs that `p2pshim run` ran and of which no call was seen, nor any of a process that they started.
    pub(crate) unseen: Vec<Unseen>,
    /// Trace files, one for each process, in the order of their paths.
    pub(crate) files: Vec<File>,
    /// GPUs of all hosts, each once, however many processes use it.
    pub(crate) gpus: Vec<Gpu>,
    /// Copies, by the GPU that is copied from and the GPU that is copied to.
    pub(crate) pairs: Vec<Pair>,
    /// Copies of a process from or to memory of another process, by who copied between which memory of whom.
    /// They are among `pairs` too.
    pub(crate) between_processes: Vec<BetweenProcesses>,
    /// The processes that share memory, each with the GPU.
    #[serde(skip)]
    pub(crate) exporters: BTreeSet<(usize, usize)>,
    /// Copies that the program made by hand, by a copy from a GPU to the host and one from there to another
    /// GPU.
    pub(crate) by_hand: Vec<ByHand>,
    /// Calls by which processes share memory and that failed, or that need care (code 0), with why and what
    /// to do; none with a filter.
    pub(crate) unshared: Vec<Unshared>,
    /// Other calls that are not traced and failed, in the order of time: of a process the first, second, fourth, …
    /// of each function and code; none with a filter.
    pub(crate) failures: Vec<Failure>,
    /// Accesses to memory that nothing orders, the surest first; none without `--order`, and none with a filter.
    pub(crate) races: Vec<Race>,
    /// Pairs of places without order that are not among `races`, for the reasons of a file or of p2pshim.
    pub(crate) suppressed: Vec<Suppressed>,
    /// Functions that were called, by their time on the host, the longest first. Runtime calls contain driver
    /// calls: do not add them up.
    pub(crate) functions: Vec<Function>,
    /// Errors that functions returned to the program, the most frequent first.
    pub(crate) errors: Vec<Error>,
    /// Faults of calls, the most severe first.
    pub(crate) findings: Vec<Finding>,
    /// Decisions of p2pshim about pairs, in order of time.
    pub(crate) decisions: Vec<Decision>,
    /// Calls of the program that have begun and never returned.
    pub(crate) unfinished: Vec<Call>,
    /// The cost of staging.
    pub(crate) lost: Lost,
    /// NVLink's traffic while the program ran; null if it was not read.
    pub(crate) nvlink: Option<NvLink>,
    /// When how much was copied.
    pub(crate) timeline: Timeline,
    #[serde(skip)]
    pub(crate) shares: Vec<Share>,
}

impl Report {
    /// The processes that it is about: with a filter, those with calls that fit it.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &File> {
        let is_meant = |file: &&File| file.process.is_some() && (self.filter.is_none() || file.calls > 0);
        self.files.iter().filter(is_meant)
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
            let lacks_calls = file.dropped > 0 || file.unseen > 0 || !file.is_whole && !file.lacks_only_times;
            lacks_calls || file.process.is_none() && !file.is_begun
        })
    }

    /// The words before a number that is then the least.
    pub(crate) fn least(&self) -> &'static str {
        if self.is_at_least() { "at least " } else { "" }
    }

    /// A GPU's name.
    pub(crate) fn label(&self, gpu: usize) -> &str {
        self.gpus.get(gpu).map_or("unknown device", |gpu| gpu.label.as_str())
    }

    /// Whether a pair was tested in either direction.
    pub(crate) fn is_tested(&self, pair: &Pair) -> bool {
        let ends = [(pair.src, pair.dst), (pair.dst, pair.src)];
        self.pairs.iter().any(|other| ends.contains(&(other.src, other.dst)) && other.is_tested())
    }

    /// Whether a process staged more copies as the first of a pair than p2pshim looks for a path after: of several pairs of contexts, or anew.
    pub(crate) fn repeats_first(&self, pair: [usize; 2]) -> bool {
        // Two threads may make the last of them at once.
        const COPIES: u64 = FIRST_COPIES as u64 + 1;
        let is_first = |it: &&Share| it.pair == pair && it.path.taken.path == Some(Taken::Staged(Why::NotYetWorth));
        let mut sums: BTreeMap<usize, (u64, u64, u64)> = BTreeMap::new();
        for Share { file, power, path, .. } in self.shares.iter().filter(is_first) {
            let (copies, bytes, most) = sums.entry(*file).or_default();
            *copies += path.calls;
            *bytes = bytes.saturating_add(path.bytes);
            // The next power is more than any of them.
            *most = (*most).max(2_u64.checked_shl(*power).unwrap_or(u64::MAX));
        }
        sums.values().any(|&(copies, bytes, most)| copies > COPIES || bytes > FIRST_BYTES.saturating_add(most))
    }

    /// Whether samples of a pair's copies by hand agree, and none differs.
    pub(crate) fn is_surely_by_hand(&self, pair: &Pair) -> bool {
        let of = || self.by_hand.iter().filter(|it| (it.src, it.dst) == (pair.src, pair.dst));
        of().any(|it| it.sampled == Sampled::Same) && of().all(|it| it.sampled != Sampled::Differ)
    }

    /// How many hosts there are.
    pub(crate) fn hosts(&self) -> Vec<&str> {
        let mut hosts: Vec<&str> = self.files.iter().filter_map(|file| file.host.as_deref()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    /// Whether a call has not returned that may copy.
    pub(crate) fn has_unfinished_copies(&self) -> bool {
        self.unfinished.iter().any(|call| !call.is_wait)
    }

    /// Whether all files could be read in whole.
    pub(crate) fn is_whole(&self) -> bool {
        self.files.iter().all(|file| file.is_whole)
    }
}
