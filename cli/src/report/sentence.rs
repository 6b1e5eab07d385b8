//! Words that several sentences of the report share.

use std::collections::BTreeSet;

use super::model::{Call, NvLink, Report};
use super::term::bytes;
use crate::judge::Words;

/// Further words of a report without copies.
pub(super) const NOT_SEEN: &str = "Loads and stores of kernels (NCCL, NVSHMEM) are not seen, nor copies of managed memory, nor calls of children that were forked after a call.";

/// Pairs, processes and rules that a sentence names.
pub(super) const NAMED: usize = 4;

/// The words for a call's copy: `, GPU 0 > GPU 1, 1.0 MB, direct`.
pub(super) fn what(report: &Report, call: &Call) -> String {
    let pair = match (call.src, call.dst) {
        (Some(src), Some(dst)) => format!(", {} > {}", report.label(src), report.label(dst)),
        _ => String::new(),
    };
    let size = call.bytes.map(|size| format!(", {}", bytes(size))).unwrap_or_default();
    let path = call.path.map(|path| format!(", {}", path.title())).unwrap_or_default();
    format!("{pair}{size}{path}")
}

/// The words for pairs in both directions: `between GPU 0 and GPU 1`.
pub(super) fn between(report: &Report, pairs: impl Iterator<Item = (usize, usize)>) -> Option<String> {
    let pairs: BTreeSet<(usize, usize)> = pairs.map(|(one, other)| (one.min(other), one.max(other))).collect();
    let names =
        pairs.iter().take(NAMED).map(|&(one, other)| format!("{} and {}", report.label(one), report.label(other)));
    let names = names.collect::<Vec<_>>().join(", ");
    match pairs.len() {
        0 => None,
        all if all > NAMED => Some(format!("between {names}, and {} more pairs", all - NAMED)),
        _ => Some(format!("between {names}")),
    }
}

/// A sentence that begins with a number, and says if that is the least.
pub(super) fn at_least(report: &Report, what: String) -> String {
    if report.is_at_least() { format!("At least {what}") } else { what }
}

/// Whether GPUs are known to have made what was counted: the last copy of each pair on each stream.
pub(super) fn are_made(report: &Report) -> bool {
    report.processes().all(|file| file.knows_last_copies)
}

/// The word for the copies that are counted.
pub(super) fn copies(report: &Report) -> &'static str {
    if are_made(report) { "copies" } else { "submitted copies" }
}

/// The sentence about NVLink's traffic, if that is known.
pub(super) fn nvlink(report: &Report) -> Option<Words> {
    let NvLink { text, more, .. } = report.nvlink.as_ref().filter(|nvlink| !nvlink.text.is_empty())?;
    let has_copies = report.pairs.iter().any(|pair| pair.calls > 0);
    let more = if more.is_empty() && !has_copies { NOT_SEEN } else { more };
    Some(Words::from(text.clone()).more(more))
}
