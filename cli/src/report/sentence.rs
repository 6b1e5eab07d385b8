//! The parts of the report's first words: sentences, and words that several of them share.

use std::collections::BTreeSet;

use serde::Serialize;

use super::model::{Call, NvLink, Report};
use super::term::bytes;

/// Further words of a report without copies.
pub(super) const NOT_SEEN: &str = "Loads and stores of kernels (NCCL, NVSHMEM) are not seen, nor copies of managed memory, nor calls of children that were forked after a call.";

/// Pairs, processes and rules that a sentence names.
pub(super) const NAMED: usize = 4;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// The program is wrong, hangs, or was ended.
    Bad,
    /// Something is to be done, or known.
    Warn,
    /// All is well.
    Good,
    /// Something that a reader may want to know.
    Note,
}

/// A sentence.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Sentence {
    /// How bad it is.
    pub(super) level: Level,
    /// One or two words for the sentence.
    pub(super) word: &'static str,
    /// The sentence.
    pub(super) text: String,
    /// Its grounds, or the remedy.
    pub(super) more: Option<String>,
    /// The part of the page that says more.
    pub(super) section: Option<&'static str>,
}

impl Sentence {
    pub(super) fn new(level: Level, word: &'static str, text: String) -> Self {
        Self { level, word, text, more: None, section: None }
    }

    pub(super) fn more(self, more: impl Into<String>) -> Self {
        Self { more: Some(more.into()).filter(|more| !more.is_empty()), ..self }
    }

    pub(super) fn section(self, section: &'static str) -> Self {
        Self { section: Some(section), ..self }
    }
}

pub(super) const NVLINK: &str = "NVLink";
pub(super) const RUNNING: &str = "Still runs";
pub(super) const BEGUN: &str = "Just begun";
pub(super) const DIRECT: &str = "Direct";

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
pub(super) fn nvlink(report: &Report) -> Option<Sentence> {
    let NvLink { text, more, .. } = report.nvlink.as_ref().filter(|nvlink| !nvlink.text.is_empty())?;
    let has_copies = report.pairs.iter().any(|pair| pair.calls > 0);
    let more = if more.is_empty() && !has_copies { NOT_SEEN } else { more };
    Some(Sentence::new(Level::Note, NVLINK, text.clone()).more(more).section("environment"))
}
