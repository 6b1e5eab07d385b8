//! Counts of durations, in buckets that are as wide as they may be: percentiles of any number of calls without sorting.

use super::model::Durations;

/// Buckets for each power of two: what is read from them is right to one part in 32.
const BUCKETS: usize = 32;
const BITS: u32 = BUCKETS.trailing_zeros();

/// Counts of durations in nanoseconds. Powers of two that do not occur take no memory.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    powers: Vec<Option<Box<[u64; BUCKETS]>>>,
    count: u64,
    total: u64,
    max: u64,
}

/// Which power of two, and which bucket of it. Below 32 there is a bucket for each number.
fn place(nanos: u64) -> (usize, usize) {
    let shift = nanos.checked_ilog2().unwrap_or(0).saturating_sub(BITS);
    let power = if nanos < BUCKETS as u64 { 0 } else { shift as usize + 1 };
    (power, (nanos >> shift) as usize % BUCKETS)
}

/// The middle of a bucket.
fn middle(power: usize, bucket: usize) -> u64 {
    match power.checked_sub(1) {
        None => bucket as u64,
        Some(shift) => {
            let first = (BUCKETS as u64 + bucket as u64) << shift;
            first + ((1 << shift) >> 1)
        }
    }
}

impl Histogram {
    pub(super) fn add(&mut self, nanos: u64) {
        let (power, bucket) = place(nanos);
        self.count += 1;
        self.total = self.total.saturating_add(nanos);
        self.max = self.max.max(nanos);
        if self.powers.len() <= power {
            self.powers.resize(power + 1, None);
        }
        if let Some(buckets) = self.powers.get_mut(power) {
            let buckets = buckets.get_or_insert_with(|| Box::new([0; BUCKETS]));
            if let Some(count) = buckets.get_mut(bucket) {
                *count += 1;
            }
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.total = self.total.saturating_add(other.total);
        self.max = self.max.max(other.max);
        if self.powers.len() < other.powers.len() {
            self.powers.resize(other.powers.len(), None);
        }
        for (ours, theirs) in self.powers.iter_mut().zip(other.powers) {
            match (ours, theirs) {
                (_, None) => {}
                (ours @ None, theirs) => *ours = theirs,
                (Some(ours), Some(theirs)) => ours.iter_mut().zip(*theirs).for_each(|(ours, theirs)| *ours += theirs),
            }
        }
    }

    /// The duration that a share of all are not longer than.
    fn percentile(&self, share: f64) -> Option<u64> {
        let wanted = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (power, buckets) in self.powers.iter().enumerate() {
            for (bucket, count) in buckets.iter().flat_map(|buckets| buckets.iter()).enumerate() {
                seen += count;
                if seen >= wanted {
                    return Some(middle(power, bucket).min(self.max));
                }
            }
        }
        None
    }

    pub(super) fn durations(&self) -> Durations {
        Durations {
            p50: self.percentile(0.5),
            p99: self.percentile(0.99),
            max: (self.count > 0).then_some(self.max),
            total: self.total,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_neighbours_are_in_order_and_middles_within_three_percent() {
        let mut last = (0, 0);
        for nanos in (0..100_000).chain((17..64).map(|power| 1 << power)).chain([u64::MAX]) {
            let (power, bucket) = place(nanos);
            assert!((power, bucket) >= last, "{nanos}");
            last = (power, bucket);
            assert!(middle(power, bucket).abs_diff(nanos) as f64 <= nanos as f64 / 32.0, "{nanos}");
        }
    }

    #[test]
    fn durations_are_those_of_a_sorted_list() {
        let mut state = 1u64;
        let mut all: Vec<u64> = Vec::new();
        let (mut one, mut other) = (Histogram::default(), Histogram::default());
        for number in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let nanos = (state >> 40) % 1_000_000;
            all.push(nanos);
            if number % 3 == 0 { one.add(nanos) } else { other.add(nanos) }
        }
        all.sort_unstable();
        one.merge(other);
        let found = one.durations();
        assert_eq!((found.max, found.total), (all.last().copied(), all.iter().sum()));
        for (found, right) in [(found.p50, all[9_999]), (found.p99, all[19_799])] {
            assert!(found.unwrap().abs_diff(right) as f64 <= right as f64 * 0.032, "{found:?} {right}");
        }
    }

    #[test]
    fn durations_of_nothing_are_none() {
        assert_eq!(Histogram::default().durations(), Durations::default());
        let mut one = Histogram::default();
        one.add(1000);
        let durations = one.durations();
        assert_eq!((durations.p50, durations.p99, durations.max), (Some(1000), Some(1000), Some(1000)));
    }
}
