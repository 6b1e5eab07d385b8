//! The report's pairs: their paths, sizes and the places that copied, from what was counted.

use std::collections::{BTreeMap, HashMap};

use p2pshim_trace::Class;

use super::PairTotal;
use crate::report::buckets::Buckets;
use crate::report::model::{CopyCaller, CopyLine, CopySite, Decision, Origin, Pair, Path, Rate, Size};
use crate::report::names::Access;
use crate::report::paths::Taken;
use crate::report::tally::{ENOUGH, Made, PathTally, Sums};

/// The pairs in the order of their GPUs' numbers, and when each has copied.
pub(super) fn pairs(
    totals: HashMap<[usize; 2], PairTotal>,
    access: &HashMap<[usize; 2], Access>,
    number: impl Fn(usize) -> usize,
) -> (Vec<Pair>, Vec<([usize; 2], Buckets)>) {
    let mut totals: Vec<_> = totals.into_iter().collect();
    totals.sort_by_cached_key(|(pair, _)| pair.map(&number));
    let mut all = Vec::new();
    let mut times: Vec<([usize; 2], Buckets)> = Vec::new();
    for (pair, total) in totals {
        let [src, dst] = pair.map(&number);
        let [one, other] = pair;
        // Either GPU can make the path.
        let known: Vec<&Access> = [[one, other], [other, one]].iter().filter_map(|pair| access.get(pair)).collect();
        let can: Vec<bool> = known.iter().filter_map(|access| access.access).collect();
        let sizes = |(&taken, tally)| PathTally::sizes(tally).map(move |(power, sums)| size(taken, power, sums));
        let mut sizes: Vec<Size> = total.paths.iter().flat_map(sizes).collect();
        sizes.sort_by_key(|size| (size.from, size.taken.name(), size.taken.why()));
        let named = |(&taken, tally): (&Taken, &PathTally)| Path {
            host_ns: tally.host.durations(),
            rate: Rate::of(tally.each()),
            ..model_path(taken, tally.sums())
        };
        let mut paths: Vec<Path> = total.paths.iter().map(named).collect();
        paths.sort_by_key(|path| (std::cmp::Reverse(path.bytes), path.taken.name(), path.taken.why()));
        let is_timed = paths.iter().all(|path| path.device_calls >= path.calls);
        let bytes = paths.iter().map(|path| path.bytes).fold(0, u64::saturating_add);
        let busy_ns = total.busy.nanos().filter(|_| is_timed);
        all.push(Pair {
            busy_ns,
            gb_per_s_busy: busy_ns.map(|nanos| bytes as f64 / nanos as f64),
            src,
            dst,
            calls: total.calls,
            bytes,
            errors: total.errors,
            paths,
            host_ns: total.host.durations(),
            rate: Rate::of(total.paths.values().flat_map(PathTally::each)),
            link: known.iter().find_map(|access| access.link.clone()),
            access: if can.is_empty() { None } else { Some(can.contains(&true)) },
            sizes,
            sites: copy_sites(total.sites),
            ..Pair::default()
        });
        times.push(([src, dst], total.buckets));
    }
    (all, times)
}

/// Copies of a path, from their sums.
pub(super) fn model_path(taken: Taken, sums: Sums) -> Path {
    let Sums { calls, bytes, device_calls, device_bytes, device_ns, .. } = sums;
    let rate = Rate::of([&sums]);
    Path { taken, calls, bytes, device_calls, device_bytes, device_ns, rate, ..Path::default() }
}

impl Rate {
    /// The rate of copies of several sizes: none if sizes of more than a tenth of the bytes were not timed, or if those that were differ so
    /// much that the rate may be off by half.
    fn of<'a>(sizes: impl IntoIterator<Item = &'a Sums>) -> Self {
        const UNKNOWN: f64 = 0.1;
        const OFF: f64 = 0.5;
        let (mut bytes, mut known, mut nanos, mut variance) = (0.0, 0.0, 0.0, 0.0);
        let mut are_all_timed = true;
        for sums in sizes {
            are_all_timed &= sums.device_calls >= sums.calls;
            bytes += sums.bytes as f64;
            if let Some([of_size, its_variance]) = sums.pace.estimate() {
                (known, nanos, variance) = (known + sums.bytes as f64, nanos + of_size, variance + its_variance);
            }
        }
        // In 19 of 20 cases the truth is no farther off.
        let off = ENOUGH * variance.sqrt() / nanos;
        if !(nanos > 0.0 && known > 0.0 && known >= bytes * (1.0 - UNKNOWN) && off <= OFF) {
            return Self::default();
        }
        let rate = known / nanos;
        // Where all that were timed are alike, nothing tells how far others are off.
        let is_known = are_all_timed || variance > 0.0;
        Self { gb_per_s: Some(rate), gb_per_s_off: is_known.then_some(rate * off) }
    }
}

fn size(taken: Taken, power: u32, sums: Sums) -> Size {
    let from = if power == 0 { 0 } else { 1 << power };
    let to = 2u64.checked_shl(power).filter(|&to| to > from).unwrap_or(u64::MAX);
    let Sums { calls, bytes, device_calls, .. } = sums;
    Size { taken, from, to, calls, bytes, device_calls, rate: Rate::of([&sums]) }
}

/// Where copies came from, by the place in the code, with the lines of Python and the callers that were found for some of the calls from there.
fn copy_sites(counts: HashMap<Origin, Made>) -> Vec<CopySite> {
    let mut sites: BTreeMap<String, CopySite> = BTreeMap::new();
    for (Origin { site, caller, python }, Made { calls, bytes, host_ns }) in counts {
        let ours = sites.entry(site.clone()).or_insert_with(|| CopySite { site, ..CopySite::default() });
        ours.calls += calls;
        // One line may have several callers, and one caller several lines.
        if let Some(line) = python {
            match ours.lines.iter_mut().find(|known| known.line == line) {
                Some(known) => {
                    known.calls += calls;
                    known.bytes = known.bytes.saturating_add(bytes);
                    known.host_ns = known.host_ns.saturating_add(host_ns);
                }
                None => ours.lines.push(CopyLine { line, calls, bytes, host_ns }),
            }
        }
        if let Some(caller) = caller {
            match ours.callers.iter_mut().find(|known| known.caller == caller) {
                Some(known) => known.calls += calls,
                None => ours.callers.push(CopyCaller { caller, calls }),
            }
        }
    }
    let mut sites: Vec<CopySite> = sites.into_values().collect();
    for site in &mut sites {
        site.lines.sort_by(|one, other| other.calls.cmp(&one.calls).then_with(|| one.line.cmp(&other.line)));
        site.callers.sort_by(|one, other| other.calls.cmp(&one.calls).then_with(|| one.caller.cmp(&other.caller)));
    }
    sites.sort_by_key(|site| std::cmp::Reverse(site.calls));
    sites
}

/// Adds what verification has found of a pair last, and whether it has ever found it broken.
pub(super) fn judge(pair: &mut Pair, last: Option<&Decision>, is_broken: bool) {
    pair.verified = last.and_then(|decision| decision.verified);
    let blocked = pair.paths.iter().filter(|path| path.taken.class() == Class::Blocked);
    pair.blocked_bytes = blocked.map(|path| path.bytes).fold(0, u64::saturating_add);
    pair.is_blocked = pair.blocked_bytes > 0 || is_broken;
    pair.paths.iter_mut().for_each(|path| path.taken.judge(pair.is_blocked));
    pair.sizes.iter_mut().for_each(|size| size.taken.judge(pair.is_blocked));
}
