//! Copies from GPU to GPU that a program makes by hand, through the host: from which places, and how sure it is that they are that.

use std::collections::BTreeMap;

use p2pshim_trace::{Class, Path as Taken};

use super::broken;
use super::figures;
use super::judged::Judged;
use super::model::{Origin, Pair, Path, Report, Sampled, Share};
use super::sentence::at_least;
use super::term::bytes;
use crate::judge::Words;

/// The copies of a pair that went through the host by hand.
fn by_hand(pair: &Pair) -> Option<&Path> {
    pair.paths.iter().find(|path| path.taken.class() == Class::ByHand && path.bytes > 0)
}

/// Pairs with copies by single calls.
pub(super) fn others(report: &Report) -> Vec<&Pair> {
    report.pairs.iter().filter(|pair| pair.calls > by_hand(pair).map_or(0, |path| path.calls)).collect()
}

/// The bytes of those copies.
pub(super) fn bytes_of_others(pairs: &[&Pair]) -> u64 {
    let paths = pairs.iter().flat_map(|pair| &pair.paths).filter(|path| path.taken.class() != Class::ByHand);
    paths.map(|path| path.bytes).fold(0, u64::saturating_add)
}

/// Whether some copies by hand are known to be that.
pub(super) fn are_known(report: &Report) -> bool {
    report.pairs.iter().any(|pair| by_hand(pair).is_some() && report.is_surely_by_hand(pair))
}

/// The sentence about those that are known to be that, or about those that seem to be.
pub(super) fn went_by_hand(report: &Report, is_sure: bool) -> Option<Words> {
    let pairs = report.pairs.iter().filter(|pair| report.is_surely_by_hand(pair) == is_sure);
    let pairs: Vec<(&Pair, &Path)> = pairs.filter_map(|pair| Some((pair, by_hand(pair)?))).collect();
    let (pair, path) = pairs.iter().max_by_key(|(_, path)| path.bytes)?;
    let total = pairs.iter().map(|(_, path)| path.bytes).fold(0, u64::saturating_add);
    let (from, to) = (report.label(pair.src), report.label(pair.dst));
    let way = match pairs.len() {
        1 => format!("{from} to {to}"),
        _ => format!("GPU to GPU, most of it from {from} to {to},"),
    };
    let places = places(report, pair).map(|places| format!(" ({places})")).unwrap_or_default();
    let speed = |rate| figures::rate(rate, path.rate.gb_per_s_off, path.device_calls < path.calls);
    let rate = path.rate.gb_per_s.map(|rate| match direct_rate(report, pair) {
        Some(direct) => format!(": {} GB/s; a direct copy makes {direct:.0}", speed(rate)),
        None => format!(": {} GB/s", speed(rate)),
    });
    let rate = rate.unwrap_or_default();
    let remedy = match pairs.iter().all(|(pair, _)| broken::has_failed(report, pair)) {
        true => "Leave it so: peer access failed verification there.",
        false => Taken::ByHand.remedy(),
    };
    let (seems, doubt) = match is_sure {
        true => ("", ""),
        false => (", as it seems", "No checksum shows that the bytes that left the host were those that had arrived."),
    };
    let is_of_them = |share: &&Share| {
        share.path.taken.class() == Class::ByHand && pairs.iter().any(|(pair, _)| [pair.src, pair.dst] == share.pair)
    };
    let runs = Judged::of(report).over_runs(report.shares.iter().filter(is_of_them).map(|share| share.file));
    let text = format!(
        "{} went from {way} through host memory by the program's own copies{runs}{places}{seems}{rate}.",
        bytes(total)
    );
    Some(Words::from(at_least(report, text)).more(doubt).and(remedy))
}

/// The rate of direct copies as large: of the same GPUs in either direction, else of the fastest.
fn direct_rate(report: &Report, of: &Pair) -> Option<f64> {
    let rate = |pair: &Pair| {
        let direct = pair.paths.iter().filter(|path| path.taken.class() == Class::Direct && path.bytes > 0);
        direct.filter_map(|path| path.rate.gb_per_s).reduce(f64::max)
    };
    let is_same = |pair: &&Pair| [(of.src, of.dst), (of.dst, of.src)].contains(&(pair.src, pair.dst));
    let same = report.pairs.iter().filter(is_same).filter_map(rate).reduce(f64::max);
    same.or_else(|| report.pairs.iter().filter_map(rate).reduce(f64::max))
}

/// The two places of most of a pair's copies: those with a line before all others.
fn places(report: &Report, pair: &Pair) -> Option<String> {
    let mut counts: BTreeMap<[String; 2], (bool, u64)> = BTreeMap::new();
    for it in report.by_hand.iter().filter(|it| (it.src, it.dst) == (pair.src, pair.dst)) {
        let ends = [&it.from, &it.to];
        let count = counts.entry(ends.map(place)).or_default();
        count.0 |= ends.iter().all(|end| end.python.is_some());
        count.1 = count.1.saturating_add(it.calls);
    }
    let ([from, to], _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    Some(if from == to { from } else { format!("{from}, {to}") })
}

/// A place in short.
fn place(of: &Origin) -> String {
    match (&of.python, &of.caller) {
        (Some(line), _) => {
            let file = line.file.rsplit('/').next().unwrap_or(&line.file);
            format!("{file}:{}", line.line)
        }
        (None, Some(caller)) => caller.clone(),
        // Function and line are known best.
        (None, None) => {
            let line = of.site.strip_suffix(')').and_then(|site| site.rsplit_once('(')).map(|(_, line)| line);
            line.filter(|line| line.contains(':')).unwrap_or(&of.site).to_owned()
        }
    }
}

impl Sampled {
    /// Both together: one that differs says more than any that agree.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Differ, _) | (_, Self::Differ) => Self::Differ,
            (Self::Same, _) | (_, Self::Same) => Self::Same,
            _ => Self::Unknown,
        }
    }
}
