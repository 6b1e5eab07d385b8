//! A comparison as plain data: the JSON of `p2pshim compare --json`, which docs/schema/compare.schema.json describes.

use serde::Serialize;

/// The version of the JSON.
pub(super) const VERSION: u32 = 1;

/// Two runs, or two folders of runs, and how they differ.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) version: u32,
    pub(super) verdict: Verdict,
    /// The first line of the text.
    pub(super) text: String,
    pub(super) notes: Vec<String>,
    pub(super) threshold_percent: f64,
    pub(super) before: Side,
    pub(super) after: Side,
    pub(super) changes: Vec<Change>,
    pub(super) figures: Vec<Figure>,
    pub(super) pairs: Vec<PairRow>,
    pub(super) ranks: Vec<RankRow>,
    pub(super) findings: Vec<CountRow>,
    pub(super) errors: Vec<CountRow>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    Worse,
    Better,
    Same,
    NotComparable,
}

/// One of the two.
#[derive(Debug, Serialize)]
pub(super) struct Side {
    pub(super) path: String,
    pub(super) command: Vec<String>,
    pub(super) runs: usize,
    pub(super) processes: usize,
    pub(super) ranks: usize,
    pub(super) gpus: Vec<String>,
    /// How it ended, in words; none if that is not known.
    pub(super) end: Option<String>,
    /// Whether counts and sums are the least that they can be.
    pub(super) lower_bounds: bool,
}

/// Something that is not as before.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    pub(super) is: Judged,
    pub(super) text: String,
}

/// Whether something got better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Judged {
    Worse,
    Better,
    /// Neither.
    Different,
    /// By no more than the threshold.
    Same,
    /// By more, and runs of one side differ as much.
    WithinSpread,
    /// Only shown.
    Shown,
}

/// A number of several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) runs: usize,
}

impl Spread {
    /// Of some numbers; none of none.
    pub(super) fn of(mut all: Vec<f64>) -> Option<Self> {
        all.sort_by(f64::total_cmp);
        let at = |index: usize| all.get(index).copied();
        let middle = all.len() / 2;
        let median =
            if all.len() % 2 == 1 { at(middle)? } else { f64::midpoint(at(middle.checked_sub(1)?)?, at(middle)?) };
        Some(Self { median, min: at(0)?, max: at(all.len() - 1)?, runs: all.len() })
    }

    /// Whether the runs of one side reach those of the other, where there are several.
    pub(super) fn meets(&self, other: &Self) -> bool {
        (self.runs > 1 || other.runs > 1) && self.min <= other.max && other.min <= self.max
    }
}

/// A figure of both.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    /// `copies`, `bytes`, `staged-bytes`, `copy-call-seconds`, `seconds-per-copy`, `seconds` or `gb-per-s`.
    pub(super) name: &'static str,
    /// Whose it is, if not all copies'.
    pub(super) of: Option<String>,
    pub(super) before: Option<Spread>,
    pub(super) after: Option<Spread>,
    pub(super) change_percent: Option<f64>,
    pub(super) is: Judged,
}

/// Copies of a pair: of several runs the medians.
#[derive(Debug, Serialize)]
pub(super) struct PairRow {
    pub(super) src: String,
    pub(super) dst: String,
    pub(super) before: Option<PairSide>,
    pub(super) after: Option<PairSide>,
}

#[derive(Debug, Serialize)]
pub(super) struct PairSide {
    pub(super) copies: u64,
    pub(super) bytes: u64,
    pub(super) direct_bytes: u64,
    pub(super) staged_bytes: u64,
    /// Staged before the pair was switched over.
    pub(super) first_bytes: u64,
    pub(super) by_hand_bytes: u64,
    /// The path of most bytes, with its reason.
    pub(super) path: String,
    pub(super) host_seconds: f64,
    pub(super) gb_per_s: Option<f64>,
}

/// A rank that both have.
#[derive(Debug, Serialize)]
pub(super) struct RankRow {
    pub(super) rank: String,
    pub(super) before: RankSide,
    pub(super) after: RankSide,
}

#[derive(Debug, Serialize)]
pub(super) struct RankSide {
    pub(super) copies: u64,
    pub(super) bytes: u64,
    pub(super) staged_bytes: u64,
    pub(super) host_seconds: f64,
}

/// Calls with a finding, or that failed alike: the most that a run has.
#[derive(Debug, Serialize)]
pub(super) struct CountRow {
    pub(super) name: String,
    pub(super) severity: Option<String>,
    pub(super) before: u64,
    pub(super) after: u64,
}
