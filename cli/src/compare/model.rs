//! A comparison as plain data: the JSON of `p2pshim compare --json`. Comments of its fields are descriptions in
//! docs/schema/compare.schema.json.

use serde::Serialize;

/// The version of the JSON.
pub(super) const VERSION: u32 = 1;

/// The output of `p2pshim compare --json`: one JSON object. Fields are never renamed within a version; new ones may come.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(title = "p2pshim compare --json"))]
pub(super) struct Comparison {
    /// The version of this format. It changes only if fields change their meaning.
    pub(super) version: u32,
    /// The outcome of the comparison.
    pub(super) verdict: Verdict,
    /// The first line of the text: the verdict and what it rests on.
    pub(super) text: String,
    /// The basis of the comparison, and the gaps of the sides, in sentences.
    pub(super) notes: Vec<String>,
    /// Differences up to so many percent are none.
    pub(super) threshold_percent: f64,
    /// The first of the two.
    pub(super) before: Side,
    /// The second of the two.
    pub(super) after: Side,
    /// All that is not as before, the worse first.
    pub(super) changes: Vec<Change>,
    /// Figures of both sides.
    pub(super) figures: Vec<Figure>,
    /// Copies by the GPU that is copied from and the GPU that is copied to, of several runs the medians; the
    /// pairs with most bytes first.
    pub(super) pairs: Vec<PairRow>,
    /// Ranks that both sides have, of several runs the medians.
    pub(super) ranks: Vec<RankRow>,
    /// Calls by finding, at least so many; of several runs the most of one.
    pub(super) findings: Vec<CountRow>,
    /// Calls that failed, by function and code, without those that say that peer access is enabled already or
    /// not enabled; of several runs the most of one.
    pub(super) errors: Vec<CountRow>,
}

/// Whether it got worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// Something that is judged got worse.
    Worse,
    /// Nothing got worse, and something better.
    Better,
    /// Neither.
    Same,
    /// Neither, and one side has no copies, or the programs did different work.
    NotComparable,
}

/// One of the two.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Side {
    /// The path as it was named.
    pub(super) path: String,
    /// The command of the first run; empty if it is not known.
    pub(super) command: Vec<String>,
    /// Runs whose traces are there.
    pub(super) runs: usize,
    /// Processes of all runs.
    pub(super) processes: usize,
    /// Different ranks; 0 if no process has one.
    pub(super) ranks: usize,
    /// GPUs of the first run, by the labels that pairs have.
    pub(super) gpus: Vec<String>,
    /// How the program ended, of several runs the worst; null if that is not known.
    pub(super) end: Option<String>,
    /// Whether counts and sums are lower bounds.
    pub(super) lower_bounds: bool,
}

/// Something that is not as before.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Change {
    /// Whether that is worse, better, or neither.
    pub(super) is: Judged,
    /// The change in words.
    pub(super) text: String,
}

/// Whether something got better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum Judged {
    /// Worse, by more than the threshold.
    Worse,
    /// Better, by more than the threshold.
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

/// A figure of one side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Spread {
    /// The median of its runs.
    pub(super) median: f64,
    /// The least of a run.
    pub(super) min: f64,
    /// The most of a run.
    pub(super) max: f64,
    /// How many runs have it.
    pub(super) runs: usize,
}

impl Spread {
    /// The spread of some numbers, if there are any.
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

/// A figure of both sides.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Figure {
    /// `copies`, `bytes`, `staged-first-bytes` (of the first copies of a pair), `staged-bytes` (of those after),
    /// `copy-call-seconds` (on the host), `seconds-per-copy` (likewise), `seconds` (of the whole run),
    /// `seconds-with-calls` (from the first sign of a process to the last), or `gb-per-s` (of a pair, if all its
    /// copies were timed).
    pub(super) name: &'static str,
    /// The pair whose figure it is; null if it is one of all copies.
    pub(super) of: Option<String>,
    /// Its value before, in the unit of its name; null if it is not known.
    pub(super) before: Option<Spread>,
    /// Its value now, likewise.
    pub(super) after: Option<Spread>,
    /// By how many percent the median has grown; null if it was 0, or one is not known.
    pub(super) change_percent: Option<f64>,
    /// How it is judged.
    pub(super) is: Judged,
}

/// Copies of a pair.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PairRow {
    /// The GPU that is copied from.
    pub(super) src: String,
    /// The GPU that is copied to.
    pub(super) dst: String,
    /// Its copies before; null if there were none.
    pub(super) before: Option<PairSide>,
    /// Its copies now; null if there are none.
    pub(super) after: Option<PairSide>,
}

/// Copies of a pair on one side.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PairSide {
    /// Copies, those that failed too.
    pub(super) copies: u64,
    /// Bytes of the copies that did not fail.
    pub(super) bytes: u64,
    /// Bytes that went directly.
    pub(super) direct_bytes: u64,
    /// Bytes that were staged, without `first_bytes`.
    pub(super) staged_bytes: u64,
    /// Bytes that were staged before the pair was switched over.
    pub(super) first_bytes: u64,
    /// Bytes that the program copied by hand through the host.
    pub(super) by_hand_bytes: u64,
    /// The path of most bytes, with its reason.
    pub(super) path: String,
    /// Seconds that the calls took on the host.
    pub(super) host_seconds: f64,
    /// GB/s on the device of the copies on that path; null if not all of them were timed.
    pub(super) gb_per_s: Option<f64>,
}

/// A rank that both have.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RankRow {
    /// Its number, as its launcher has it.
    pub(super) rank: String,
    /// Its copies before.
    pub(super) before: RankSide,
    /// Its copies now.
    pub(super) after: RankSide,
}

/// Copies of a rank on one side.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct RankSide {
    /// Copies between GPUs.
    pub(super) copies: u64,
    /// Their bytes.
    pub(super) bytes: u64,
    /// Bytes of them that were staged, the first copies of a pair too.
    pub(super) staged_bytes: u64,
    /// Seconds that the calls took on the host.
    pub(super) host_seconds: f64,
}

/// Calls with a finding, or that failed alike: the most that a run has.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct CountRow {
    /// The finding, or function and code.
    pub(super) name: String,
    /// The severity of the finding; null for failed calls.
    pub(super) severity: Option<String>,
    /// Calls before.
    pub(super) before: u64,
    /// Calls now.
    pub(super) after: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_schema_is_that_of_the_model() {
        crate::schema::compare::<Comparison>("compare");
    }

    #[test]
    fn spread_of_some_numbers_has_their_median_and_meets_others() {
        let of = |all: &[f64]| Spread::of(all.to_vec());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[3.0, 1.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0, runs: 2 }));
        assert_eq!(of(&[3.0, 1.0, 1.5]).unwrap().median, 1.5);
        let meets = |one: &[f64], other: &[f64]| of(one).unwrap().meets(&of(other).unwrap());
        assert!(meets(&[1.0, 3.0], &[2.0]) && meets(&[2.0], &[1.0, 3.0]) && meets(&[1.0, 3.0], &[3.0, 9.0]));
        assert!(!meets(&[1.0, 3.0], &[4.0]) && !meets(&[1.0], &[1.0]), "single runs have no spread");
    }
}
