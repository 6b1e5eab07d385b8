//! GPUs, and what was copied between them.

use std::collections::{BTreeMap, BTreeSet};

use p2pshim_trace::Verified;
use serde::Serialize;

use super::{Durations, Line, Origin};
use crate::report::paths::{self, Taken};

/// A GPU, however many processes use it; or memory of other processes of which it is not known on which GPU it lies.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Gpu {
    pub(crate) index: usize,
    pub(crate) host: Option<String>,
    /// Its ordinals in files, by their index.
    pub(crate) ordinals: BTreeMap<String, u8>,
    pub(crate) name: Option<String>,
    pub(crate) uuid: Option<String>,
    pub(crate) pci: Option<String>,
    pub(crate) label: String,
    /// Whether it is such memory.
    pub(crate) is_another_process: bool,
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
    /// Bytes of the copies that did not fail.
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    /// Paths of the copies that did not fail.
    pub(crate) paths: Vec<Path>,
    pub(crate) host_ns: Durations,
    pub(crate) link: Option<String>,
    pub(crate) access: Option<bool>,
    /// The outcome of the pair's last verification.
    #[serde(serialize_with = "paths::of_verified")]
    pub(crate) verified: Option<Verified>,
    /// Whether peer access loses data there, or hangs: so verification found.
    pub(crate) is_blocked: bool,
    /// Bytes that were staged for that reason.
    pub(crate) blocked_bytes: u64,
    /// Its copies by their sizes.
    pub(crate) sizes: Vec<Size>,
    /// The places that copied: of programs with Python, or whose calls of the runtime are not seen, only.
    pub(crate) sites: Vec<CopySite>,
}

impl Pair {
    /// Whether it is known that direct copies arrive, or that they do not.
    pub(crate) fn is_tested(&self) -> bool {
        self.is_blocked || self.verified.is_some_and(|verified| verified != Verified::Unknown)
    }
}

/// Copies of a process from or to memory of another process. They are counted for their pair too.
#[derive(Debug, Default, Serialize)]
pub(crate) struct BetweenProcesses {
    /// The process that copies.
    pub(crate) file: usize,
    pub(crate) does: Does,
    pub(crate) src: usize,
    pub(crate) dst: usize,
    /// The process whose memory the bytes come from; none if it is not known.
    pub(crate) src_file: Option<usize>,
    /// Likewise the one whose memory they go to.
    pub(crate) dst_file: Option<usize>,
    /// How the memory was opened.
    pub(crate) how: BTreeSet<String>,
    pub(crate) calls: u64,
    pub(crate) bytes: u64,
    /// Pieces of memory that were copied from or to when their owner had freed them.
    pub(crate) freed: u64,
}

/// The way of copies with memory of another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Does {
    /// To memory of another process.
    #[default]
    Push,
    /// From it.
    Pull,
    /// From memory of one other process to that of a second one.
    Both,
}

/// Copies of a pair that took the same path for the same reason.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Path {
    #[serde(flatten)]
    pub(crate) taken: Taken,
    pub(crate) calls: u64,
    pub(crate) bytes: u64,
    /// Copies whose time on the device was measured.
    pub(crate) device_calls: u64,
    pub(crate) device_bytes: u64,
    pub(crate) device_ns: u64,
    pub(crate) gb_per_s: Option<f64>,
    pub(crate) host_ns: Durations,
}

/// Copies of a pair that took the same path for the same reason and have about the same size: at least `from`, less than `to` bytes.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Size {
    #[serde(flatten)]
    pub(crate) taken: Taken,
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) calls: u64,
    pub(crate) bytes: u64,
    pub(crate) device_calls: u64,
    pub(crate) gb_per_s: Option<f64>,
}

/// Copies of a pair from one place in the code.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct CopySite {
    pub(crate) site: String,
    pub(crate) calls: u64,
    pub(crate) lines: Vec<CopyLine>,
    pub(crate) callers: Vec<CopyCaller>,
}

/// Copies of a pair that a program made by hand, by a copy to the host and one from there.
#[derive(Debug, Serialize)]
pub(crate) struct ByHand {
    pub(crate) src: usize,
    pub(crate) dst: usize,
    /// Copies from the second place, on to the device.
    pub(crate) calls: u64,
    pub(crate) bytes: u64,
    pub(crate) sampled: Sampled,
    /// The place of the copies to the host.
    pub(crate) from: Origin,
    /// The place of the copies from there.
    pub(crate) to: Origin,
}

/// A sample's word on whether the bytes that left the host are those that had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sampled {
    Same,
    Differ,
    Unknown,
}

/// A line of Python, and how many of the site's calls it is known to have made.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CopyLine {
    #[serde(flatten)]
    pub(crate) line: Line,
    pub(crate) calls: u64,
}

/// A place that called the runtime, and how many of the site's calls it is known to have made.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct CopyCaller {
    pub(crate) caller: String,
    pub(crate) calls: u64,
}

/// A decision about a pair.
#[derive(Debug, Serialize)]
pub(crate) struct Decision {
    pub(crate) file: usize,
    pub(crate) time: u64,
    pub(crate) src: Option<usize>,
    pub(crate) dst: Option<usize>,
    /// The outcome of verifying the pair, if the decision is about that.
    #[serde(serialize_with = "paths::of_verified")]
    pub(crate) verified: Option<Verified>,
    pub(crate) text: String,
}

impl Decision {
    /// Whether something is wrong.
    pub(crate) fn is_bad(&self) -> bool {
        self.verified.is_some_and(|verified| verified != Verified::Right)
    }
}

/// The cost of staging.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Lost {
    pub(crate) staged_bytes: u64,
    /// Staged bytes that could have been direct, without `start_up_bytes`.
    pub(crate) could_be_direct_bytes: u64,
    /// Bytes that were staged until a pair was known to be worth it, and right.
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

/// The cost of staging for a process.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct LostBy {
    pub(crate) file: usize,
    pub(crate) seconds: f64,
}

/// The copies of a process that took a path of a pair, by the power of two that their size has reached.
#[derive(Debug, Default)]
pub(crate) struct Share {
    pub(crate) file: usize,
    pub(crate) pair: [usize; 2],
    pub(crate) power: u32,
    pub(crate) path: Path,
}

/// NVLink's traffic while the program ran, by the counters of NVML, and the part of it that copies explain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct NvLink {
    /// Bytes that all of these GPUs sent, or received: the direction of which copies explain less.
    pub(crate) carried_bytes: u64,
    /// The part of them that copies of the trace explain.
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
    /// The words for people; empty if there is nothing to say.
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
