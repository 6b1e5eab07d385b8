//! GB/s of each pair over time: those of the copies that were timed.

use std::collections::HashMap;

use super::model::{Timeline, TimelinePair};

/// How many times as long as the timeline a rate is kept for: copies may continue after the last call.
const LONGER: usize = 2;

/// A time, and the GB/s from then on.
pub(super) type Step = (u64, f64);

/// Copies that were timed, by bucket of the timeline.
pub(super) struct Rates<'a> {
    start: u64,
    width: u64,
    pairs: HashMap<[usize; 2], Pair<'a>>,
}

struct Pair<'a> {
    /// All copies, timed or not.
    all: &'a TimelinePair,
    /// Bytes and nanoseconds of timed copies.
    timed: Vec<[f64; 2]>,
}

impl<'a> Rates<'a> {
    pub(super) fn new(timeline: &'a Timeline) -> Self {
        let pair = |all: &'a TimelinePair| ([all.src, all.dst], Pair { all, timed: Vec::new() });
        Self {
            start: timeline.start,
            width: timeline.bucket_ns.max(1),
            pairs: timeline.pairs.iter().map(pair).collect(),
        }
    }

    /// Counts a copy for each bucket that it took part of.
    pub(super) fn add(&mut self, pair: [usize; 2], start: u64, nanos: u64, bytes: u64) {
        let Some(pair) = self.pairs.get_mut(&pair) else { return };
        let Some(mut from) = start.checked_sub(self.start).filter(|_| nanos > 0) else { return };
        let end = from.saturating_add(nanos);
        while from < end {
            let number = from / self.width;
            let place = usize::try_from(number).unwrap_or(usize::MAX);
            if place >= pair.all.direct.len() * LONGER {
                return;
            }
            if pair.timed.len() <= place {
                pair.timed.resize(place + 1, [0.0; 2]);
            }
            let next = (number + 1).saturating_mul(self.width).min(end);
            let part = (next - from) as f64;
            if let Some([all_bytes, all_nanos]) = pair.timed.get_mut(place) {
                *all_bytes += bytes as f64 * part / nanos as f64;
                *all_nanos += part;
            }
            from = next;
        }
    }

    /// Pairs of which a copy was timed, in order: 0 where nothing was copied.
    pub(super) fn points(&self) -> Vec<([usize; 2], Vec<Step>)> {
        let mut all: Vec<_> = self.pairs.iter().filter(|(_, pair)| !pair.timed.is_empty()).collect();
        all.sort_unstable_by_key(|(pair, _)| **pair);
        all.into_iter().map(|(&number, pair)| (number, self.steps(pair))).collect()
    }

    fn steps(&self, pair: &Pair) -> Vec<Step> {
        let is_idle = |place: usize| {
            [&pair.all.direct, &pair.all.staged].iter().all(|row| row.get(place).is_none_or(|&it| it == 0))
        };
        let mut steps: Vec<Step> = Vec::new();
        for place in 0..=pair.timed.len().max(pair.all.direct.len()) {
            let rate = match pair.timed.get(place) {
                Some([bytes, nanos]) if *nanos > 0.0 => bytes / nanos,
                _ if is_idle(place) => 0.0,
                // Copies that were not timed: as fast as the last, as far as is known.
                _ => continue,
            };
            if steps.last().is_none_or(|&(_, last)| last.to_bits() != rate.to_bits()) {
                steps.push((self.start.saturating_add((place as u64).saturating_mul(self.width)), rate));
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(direct: Vec<u64>) -> Timeline {
        let pair = TimelinePair { src: 0, dst: 1, staged: vec![0; direct.len()], direct };
        Timeline { start: 1000, bucket_ns: 100, pairs: vec![pair], files: Vec::new() }
    }

    #[test]
    fn points_of_copies_are_their_rates_and_nothing_where_nothing_was_copied() {
        let timeline = timeline(vec![800, 0, 5, 800]);
        let mut rates = Rates::new(&timeline);
        assert!(rates.points().is_empty(), "nothing is known");
        rates.add([0, 1], 1010, 20, 400);
        rates.add([0, 1], 1050, 20, 400);
        rates.add([0, 1], 1310, 80, 800);
        rates.add([1, 0], 1310, 80, 800);
        assert_eq!(rates.points(), [([0, 1], vec![(1000, 20.0), (1100, 0.0), (1300, 10.0), (1400, 0.0)])]);
    }

    #[test]
    fn add_of_a_copy_over_buckets_counts_in_each_and_of_none_in_none() {
        let timeline = timeline(vec![1000, 0, 0]);
        let mut rates = Rates::new(&timeline);
        rates.add([0, 1], 1050, 200, 1000);
        assert_eq!(rates.points(), [([0, 1], vec![(1000, 5.0), (1300, 0.0)])]);
        let mut rates = Rates::new(&timeline);
        rates.add([0, 1], 1050, 0, 1000);
        rates.add([0, 1], 900, 20, 1000);
        rates.add([0, 1], u64::MAX - 5, u64::MAX, 1000);
        assert!(rates.points().is_empty());
    }
}
