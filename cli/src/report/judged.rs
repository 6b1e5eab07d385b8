//! Judgements of each run by itself: what verification found in one run is not known in another.

use std::collections::{BTreeMap, BTreeSet};

use p2pshim_trace::{Class, Verified};

use super::broken::{Endpoints, ends, is_broken};
use super::model::{Decision, Report, Run, Share};
use super::term::count;

/// A run, by its place in the report; or a file of which no run is known.
type Which = Result<usize, usize>;

/// The findings of each run about each pair.
pub(super) struct Judged<'a> {
    report: &'a Report,
    runs: BTreeMap<usize, Which>,
    /// The last decision of a run about a pair counts.
    last: BTreeMap<(Which, Endpoints), &'a Decision>,
    blocked: BTreeSet<(Which, Endpoints)>,
    /// The pairs, in a direction, of which a run has direct copies.
    direct: BTreeSet<(Which, [usize; 2])>,
}

impl<'a> Judged<'a> {
    pub(super) fn of(report: &'a Report) -> Self {
        let of_run = |(number, run): (usize, &'a Run)| run.files.iter().map(move |&file| (file, Ok(number)));
        let runs = report.runs.iter().enumerate().flat_map(of_run).collect();
        let mut judged =
            Self { report, runs, last: BTreeMap::new(), blocked: BTreeSet::new(), direct: BTreeSet::new() };
        for decision in report.decisions.iter().filter(|decision| decision.verified.is_some()) {
            let (Some(src), Some(dst)) = (decision.src, decision.dst) else { continue };
            let key = (judged.run(decision.file), ends(src, dst));
            if is_broken(decision) {
                judged.blocked.insert(key);
            }
            let last = judged.last.entry(key).or_insert(decision);
            if last.time <= decision.time {
                *last = decision;
            }
        }
        for share in report.shares.iter().filter(|it| it.path.bytes > 0) {
            let key = judged.key(share);
            match share.path.taken.class() {
                Class::Blocked => drop(judged.blocked.insert(key)),
                Class::Direct => drop(judged.direct.insert((key.0, share.pair))),
                _ => {}
            }
        }
        judged
    }

    fn run(&self, file: usize) -> Which {
        self.runs.get(&file).copied().unwrap_or(Err(file))
    }

    fn key(&self, share: &Share) -> (Which, Endpoints) {
        (self.run(share.file), ends(share.pair[0], share.pair[1]))
    }

    /// The last finding of its run about the pair of some copies.
    pub(super) fn verified(&self, share: &Share) -> Option<Verified> {
        self.last.get(&self.key(share)).and_then(|decision| decision.verified)
    }

    /// Whether its run has tested the pair of some copies.
    pub(super) fn is_tested(&self, share: &Share) -> bool {
        let is_known = |verified| verified != Verified::Unknown;
        self.blocked.contains(&self.key(share)) || self.verified(share).is_some_and(is_known)
    }

    /// Whether its run has direct copies of the same pair and direction.
    pub(super) fn is_direct_too(&self, share: &Share) -> bool {
        self.direct.contains(&(self.run(share.file), share.pair))
    }

    /// The words for the runs of which these files are, if there are several: ` in 1 of 2 runs`, or ` in 2 runs together`.
    pub(super) fn over_runs(&self, files: impl Iterator<Item = usize>) -> String {
        let (runs, all) = (files.map(|it| self.run(it)).collect::<BTreeSet<_>>().len(), self.report.runs.len());
        match all {
            0 | 1 => String::new(),
            _ if runs < all => format!(" in {} of {} runs", count(runs as u64), count(all as u64)),
            _ => format!(" in {} runs together", count(all as u64)),
        }
    }

    /// The words for the runs of some copies, if not all runs have such: ` in 1 of 2 runs`.
    pub(super) fn in_runs<'b>(&self, shares: impl Iterator<Item = &'b Share>) -> String {
        let (runs, all) = (shares.map(|it| self.run(it.file)).collect::<BTreeSet<_>>().len(), self.report.runs.len());
        if runs < all { format!(" in {} of {} runs", count(runs as u64), count(all as u64)) } else { String::new() }
    }
}
