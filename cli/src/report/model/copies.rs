//! GPUs, and what was copied between them.

use std::collections::{BTreeMap, BTreeSet};

use p2pshim_trace::Verified;
use serde::Serialize;

use super::{Durations, Line, Origin};
use crate::report::paths::{self, Taken};

/// A GPU; or memory of other processes of which it is not known on which GPU it lies.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Gpu {
    /// Its number in this report, from 0.
    pub(crate) index: usize,
    /// The host that it is in.
    pub(crate) host: Option<String>,
    /// Its numbers in processes: their file's `index`, and the ordinal there.
    pub(crate) ordinals: BTreeMap<String, u8>,
    /// Its model.
    pub(crate) name: Option<String>,
    /// Its UUID.
    pub(crate) uuid: Option<String>,
    /// Its PCI bus id.
    pub(crate) pci: Option<String>,
    /// Its name in the report.
    pub(crate) label: String,
    /// Whether it is memory of other processes of which it is not known on which GPU it lies.
    pub(crate) is_another_process: bool,
    /// The number in the label.
    #[serde(skip)]
    pub(crate) number: u32,
}

/// Copies from a GPU to a GPU.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Pair {
    /// The GPU that is copied from: its `index` in `gpus`.
    pub(crate) src: usize,
    /// The GPU that is copied to: its `index` in `gpus`.
    pub(crate) dst: usize,
    /// All copies, those that failed or never returned too.
    pub(crate) calls: u64,
    /// Bytes of the copies that did not fail.
    pub(crate) bytes: u64,
    /// Copies that failed.
    pub(crate) errors: u64,
    /// The paths of copies that did not fail, the most bytes first.
    pub(crate) paths: Vec<Path>,
    #[serde(flatten)]
    pub(crate) rate: Rate,
    /// How long its copies took on the host.
    pub(crate) host_ns: Durations,
    /// Their joint, as the driver's attributes suggest: `probably NVLink`, `probably PCIe`; null if they say nothing.
    pub(crate) link: Option<String>,
    /// Whether one could access the other; null if it is not known.
    pub(crate) access: Option<bool>,
    /// Nanoseconds in which at least one of its copies was under way on the GPU; null if not all of its copies were timed.
    pub(crate) busy_ns: Option<u64>,
    /// Its bytes over that time, in GB/s; null likewise.
    pub(crate) gb_per_s_busy: Option<f64>,
    /// Outcome of the pair's last verification: `right`, `slower`, `unknown`, `avoided` or `in use` (it loses
    /// data, or hangs); null if it was not verified.
    #[serde(serialize_with = "paths::of_verified")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(crate) verified: Option<Verified>,
    /// Whether verification found, in any process, that peer access loses data there, or hangs.
    pub(crate) is_blocked: bool,
    /// Bytes that were staged for that reason.
    pub(crate) blocked_bytes: u64,
    /// Its copies by their sizes, smallest first.
    pub(crate) sizes: Vec<Size>,
    /// Places in the code that copied, in programs with Python or whose calls of the runtime are not seen.
    pub(crate) sites: Vec<CopySite>,
}

impl Pair {
    /// Whether it is known that direct copies arrive, or that they do not.
    pub(crate) fn is_tested(&self) -> bool {
        self.is_blocked || self.verified.is_some_and(|verified| verified != Verified::Unknown)
    }
}

/// Copies of a process from or to memory of another process.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct BetweenProcesses {
    /// The process that copied: its `index` in `files`.
    pub(crate) file: usize,
    /// The direction of the copies.
    pub(crate) does: Does,
    /// The GPU that the bytes came from: its `index` in `gpus`.
    pub(crate) src: usize,
    /// The GPU that they went to.
    pub(crate) dst: usize,
    /// The process whose memory they came from: its `index` in `files`; null if it is not known.
    pub(crate) src_file: Option<usize>,
    /// The process whose memory they went to.
    pub(crate) dst_file: Option<usize>,
    /// How the memory was opened: `ipc` (cudaIpcOpenMemHandle), `vmm` (cuMemImportFromShareableHandle),
    /// `pool` (cudaMemPoolImportPointer).
    pub(crate) how: BTreeSet<String>,
    /// Copies that did not fail.
    pub(crate) calls: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Pieces of memory that were copied from or to after their owner had freed them, as far as that is
    /// known.
    pub(crate) freed: u64,
}

/// The way of copies with memory of another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Does {
    /// To memory of another process.
    #[default]
    Push,
    /// From memory of another process.
    Pull,
    /// From memory of one other process to that of a second one.
    Both,
}

/// Copies of a pair that took the same path for the same reason.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Path {
    #[serde(flatten)]
    #[cfg_attr(test, schemars(with = "paths::Fields"))]
    pub(crate) taken: Taken,
    /// Copies.
    pub(crate) calls: u64,
    /// Bytes that they copied.
    pub(crate) bytes: u64,
    /// Copies whose time the GPU took. If fewer than `calls`, the rate is from samples.
    pub(crate) device_calls: u64,
    /// Bytes of those copies.
    pub(crate) device_bytes: u64,
    /// How long the GPU took for them, in nanoseconds.
    pub(crate) device_ns: u64,
    #[serde(flatten)]
    pub(crate) rate: Rate,
    /// How long they took on the host.
    pub(crate) host_ns: Durations,
}

/// Copies on the same path of about the same size.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Size {
    #[serde(flatten)]
    #[cfg_attr(test, schemars(with = "paths::Fields"))]
    pub(crate) taken: Taken,
    /// They have at least so many bytes.
    pub(crate) from: u64,
    /// And fewer than so many bytes.
    pub(crate) to: u64,
    /// Copies.
    pub(crate) calls: u64,
    /// Bytes that they copied.
    pub(crate) bytes: u64,
    /// Copies whose time the GPU took.
    pub(crate) device_calls: u64,
    #[serde(flatten)]
    pub(crate) rate: Rate,
}

/// How fast copies are, by those that were timed: each stands for those since the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Rate {
    /// Rate, in GB/s (10^9 bytes per second). null if no copy was timed, or if those that were do not carry a rate.
    pub(crate) gb_per_s: Option<f64>,
    /// By how much `gb_per_s` may be off, in GB/s: half the width of a 95 % confidence interval for the rate of all copies. 0 if all
    /// were timed; null if all that were timed are alike, which tells nothing of the others.
    pub(crate) gb_per_s_off: Option<f64>,
}

/// Copies of a pair from one place in the code.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CopySite {
    /// The place.
    pub(crate) site: String,
    /// Copies from there.
    pub(crate) calls: u64,
    /// Lines of Python that made them, where it was looked.
    pub(crate) lines: Vec<CopyLine>,
    /// Callers of the runtime there, where it was looked.
    pub(crate) callers: Vec<CopyCaller>,
}

/// Copies by hand from one GPU to another, by the place of the copies from the host.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ByHand {
    /// Index of the GPU that the bytes came from.
    pub(crate) src: usize,
    /// Index of the GPU that they went to.
    pub(crate) dst: usize,
    /// How many.
    pub(crate) calls: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// Whether the bytes that left the host are those that came.
    pub(crate) sampled: Sampled,
    /// The place of the copies to the host.
    pub(crate) from: Origin,
    /// The place of the copies from there.
    pub(crate) to: Origin,
}

/// A sample's word on whether the bytes that left the host are those that had come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sampled {
    /// They are, as far as they were compared.
    Same,
    /// Some are not.
    Differ,
    /// None were compared.
    #[default]
    Unknown,
}

/// A line, and how many of the copies it is known to have made.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CopyLine {
    #[serde(flatten)]
    pub(crate) line: Line,
    /// Copies.
    pub(crate) calls: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
    /// How long their calls took on the host, in nanoseconds.
    pub(crate) host_ns: u64,
}

/// A caller, and of how many copies.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CopyCaller {
    /// The caller.
    pub(crate) caller: String,
    /// Copies.
    pub(crate) calls: u64,
}

/// A decision about a pair.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Decision {
    /// The process: the `index` of its file in `files`.
    pub(crate) file: usize,
    /// When. Nanoseconds since 1970, UTC.
    pub(crate) time: u64,
    /// The GPU that is copied from: its `index` in `gpus`.
    pub(crate) src: Option<usize>,
    /// The GPU that is copied to: its `index` in `gpus`.
    pub(crate) dst: Option<usize>,
    /// Outcome of verification, if the decision is about that: `right`, `slower` (than through the host),
    /// `unknown`, `avoided` (it loses data or hangs, and is not used), `in use` (the program uses it all the
    /// same) or `disregarded` (an earlier check failed, and `P2PSHIM_VERIFY=off` disregards that).
    #[serde(serialize_with = "paths::of_verified")]
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    pub(crate) verified: Option<Verified>,
    /// The decision, and why.
    pub(crate) text: String,
}

impl Decision {
    /// Whether something is wrong.
    pub(crate) fn is_bad(&self) -> bool {
        self.verified.is_some_and(|verified| verified != Verified::Right)
    }
}

/// Cost of staging.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Lost {
    /// Bytes that went through the host.
    pub(crate) staged_bytes: u64,
    /// Bytes of these that could have been direct, without `start_up_bytes`: of pairs that can have access
    /// and were not found to lose data. Whether data would arrive may not have been tested.
    pub(crate) could_be_direct_bytes: u64,
    /// Bytes that were staged until a pair was known to be worth access, and right.
    pub(crate) start_up_bytes: u64,
    /// About how much longer that took than direct copies would have, in seconds, of all processes together:
    /// estimated of all copies of the sizes of which some were timed, both staged and direct; null if there
    /// are none.
    pub(crate) seconds: Option<f64>,
    /// Whether there are more copies, of sizes of which none were measured.
    #[serde(skip)]
    pub(crate) is_at_least: bool,
    /// How many of the copies that could have been direct were timed, and could be compared with direct
    /// copies of like size.
    pub(crate) measured_calls: u64,
    /// How many copies could have been direct.
    pub(crate) could_be_direct_calls: u64,
    /// Bytes of the copies that could have been direct and were timed.
    pub(crate) measured_bytes: u64,
    /// The processes that lost most, the worst first; at most 16.
    pub(crate) processes: Vec<LostBy>,
    /// Basis of this estimate.
    pub(crate) basis: String,
}

/// Loss of a process.
#[derive(Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LostBy {
    /// Its `index` in `files`.
    pub(crate) file: usize,
    /// Seconds, about.
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

/// NVLink's traffic, by the counters of NVML, and the part of it that copies explain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NvLink {
    /// Bytes that all of these GPUs sent, or received: the direction of which copies explain less.
    pub(crate) carried_bytes: u64,
    /// Bytes of these that copies of the trace explain.
    pub(crate) copied_bytes: u64,
    /// Whether that is all, as far as can be told.
    pub(crate) is_explained: bool,
    /// Whether the trace lacks copies, or may do so.
    pub(crate) is_at_least: bool,
    /// Processes that used the GPUs meanwhile and are not the program's.
    pub(crate) other_processes: Vec<u32>,
    /// Whether NVML showed the program's own processes. If not, it may have hidden others too.
    pub(crate) shows_processes: bool,
    /// GPUs with their counters.
    pub(crate) gpus: Vec<NvLinkGpu>,
    /// Words about the traffic; empty if there is nothing to say.
    pub(crate) text: String,
    /// Grounds of these words.
    pub(crate) more: String,
}

/// A GPU: what its counters say, and what copies explain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NvLinkGpu {
    /// The GPU: its `index` in `gpus`.
    pub(crate) gpu: usize,
    /// Bytes that it sent.
    pub(crate) sent_bytes: u64,
    /// Bytes that it received.
    pub(crate) received_bytes: u64,
    /// Bytes that were copied from it.
    pub(crate) copied_from_bytes: u64,
    /// Bytes that were copied to it.
    pub(crate) copied_to_bytes: u64,
}

/// When how much was copied, by the time at which calls began.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Timeline {
    /// When the first bucket begins. Nanoseconds since 1970, UTC.
    pub(crate) start: u64,
    /// How long a bucket is, in nanoseconds.
    pub(crate) bucket_ns: u64,
    /// The 512 pairs that copied most.
    pub(crate) pairs: Vec<TimelinePair>,
    /// The 512 processes that copied most.
    pub(crate) files: Vec<TimelineFile>,
}

/// Bytes of a pair, by bucket.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TimelinePair {
    /// The GPU that is copied from: its `index` in `gpus`.
    pub(crate) src: usize,
    /// The GPU that is copied to: its `index` in `gpus`.
    pub(crate) dst: usize,
    /// Bytes that went directly.
    pub(crate) direct: Vec<u64>,
    /// Bytes that went through the host.
    pub(crate) staged: Vec<u64>,
}

/// Bytes of a process, by bucket.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TimelineFile {
    /// The process: the `index` of its file in `files`.
    pub(crate) file: usize,
    /// Bytes that went directly.
    pub(crate) direct: Vec<u64>,
    /// Bytes that went through the host.
    pub(crate) staged: Vec<u64>,
}
