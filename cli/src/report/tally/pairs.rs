//! The counts of the copies of a pair.

use std::collections::{BTreeMap, HashMap};

use super::Busy;
use crate::report::buckets::{self, Buckets};
use crate::report::histogram::Histogram;

/// Copies that took the same path, and have about the same size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::report) struct Sums {
    pub(in crate::report) calls: u64,
    pub(in crate::report) bytes: u64,
    pub(in crate::report) device_calls: u64,
    pub(in crate::report) device_bytes: u64,
    pub(in crate::report) device_ns: u64,
    pub(in crate::report) pace: Pace,
}

/// How long copies took in all, by those that were timed. Each stands for those since the one before, for early copies are timed more often
/// than late ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::report) struct Pace {
    /// Nanoseconds of the copies that the timed ones stand for.
    nanos: f64,
    /// Bytes since the last that was timed.
    since: f64,
    /// Bytes of parts in which none was timed, and the sum of their squares: the mean stands for them, whatever comes first.
    loose: [f64; 2],
    /// Nanoseconds a byte of those that were timed: how many, their sum, the last, and the sum of the squares by which each differs from the
    /// one before. So what changes slowly makes the result no worse.
    count: f64,
    sum: f64,
    last: f64,
    steps: f64,
    squares: f64,
    /// The sum of the squares of bytes that were not timed and stand for one that was.
    apart: f64,
}

/// So many standard deviations hold 19 of 20 cases, if many differences are known.
pub(in crate::report) const ENOUGH: f64 = 2.0;

/// So many do if few are known: Student's factors, or near them.
fn few(differences: f64) -> f64 {
    match differences {
        ..1.5 => 12.7,
        ..2.5 => 4.3,
        _ => ENOUGH + 3.0 / differences,
    }
}

impl Pace {
    /// A copy was made.
    pub(super) fn count(&mut self, bytes: u64) {
        self.since += bytes as f64;
    }

    /// The last copy was timed.
    pub(super) fn time(&mut self, bytes: u64, nanos: u64) {
        let (bytes, pace) = (bytes as f64, nanos as f64 / bytes.max(1) as f64);
        let all = self.since.max(bytes);
        self.nanos += pace * all;
        self.apart += (all - bytes).powi(2);
        self.since = 0.0;
        if self.count > 0.0 {
            self.steps += 1.0;
            self.squares += (pace - self.last).powi(2);
        }
        (self.count, self.sum, self.last) = (self.count + 1.0, self.sum + pace, pace);
    }

    /// The last that was timed stands for those after it too; if none was, the mean of all does.
    fn settle(&mut self) {
        if self.count > 0.0 {
            self.nanos += self.last * self.since;
            self.apart += self.since.powi(2);
        } else {
            self.loose[0] += self.since;
            self.loose[1] += self.since.powi(2);
        }
        self.since = 0.0;
    }

    /// Nanoseconds that all copies took, as far as the timed ones tell, and the variance of that, the larger the fewer there are; none if
    /// none was timed. It is 0 if all were timed, or all that were are alike.
    pub(in crate::report) fn estimate(mut self) -> Option<[f64; 2]> {
        self.settle();
        let mean = (self.count > 0.0).then_some(self.sum / self.count)?;
        // One alone does not tell how they vary.
        let variance = match self.steps {
            0.0 => mean.powi(2),
            steps => self.squares / (2.0 * steps) * (few(steps) / ENOUGH).powi(2),
        };
        let [loose, squares] = self.loose;
        Some([self.nanos + mean * loose, variance * (self.apart + squares)])
    }

    /// Adds another part, in any order.
    fn merge(&mut self, mut other: Self) {
        self.settle();
        other.settle();
        let [loose, squares] = &mut self.loose;
        for (ours, theirs) in [
            (&mut self.nanos, other.nanos),
            (loose, other.loose[0]),
            (squares, other.loose[1]),
            (&mut self.count, other.count),
            (&mut self.sum, other.sum),
            (&mut self.steps, other.steps),
            (&mut self.squares, other.squares),
            (&mut self.apart, other.apart),
        ] {
            *ours += theirs;
        }
    }
}

impl Sums {
    pub(in crate::report) fn merge(&mut self, other: Self) {
        self.pace.merge(other.pace);
        self.calls += other.calls;
        self.device_calls += other.device_calls;
        for (ours, theirs) in [
            (&mut self.bytes, other.bytes),
            (&mut self.device_bytes, other.device_bytes),
            (&mut self.device_ns, other.device_ns),
        ] {
            *ours = ours.saturating_add(theirs);
        }
    }
}

/// Copies that took the same path.
#[derive(Clone, Debug, Default)]
pub(in crate::report) struct PathTally {
    /// By the power of two that the size of a copy has reached; those of 0 bytes are with those of 1.
    sizes: BTreeMap<u32, Sums>,
    pub(in crate::report) host: Histogram,
}

impl PathTally {
    /// Where copies are counted that have so many bytes each.
    pub(super) fn of_size(&mut self, bytes: u64) -> &mut Sums {
        self.sizes.entry(bytes.checked_ilog2().unwrap_or(0)).or_default()
    }

    pub(in crate::report) fn merge(&mut self, other: Self) {
        for (power, sums) in other.sizes {
            self.sizes.entry(power).or_default().merge(sums);
        }
        self.host.merge(other.host);
    }

    /// All of them.
    pub(in crate::report) fn sums(&self) -> Sums {
        self.sizes.values().fold(Sums::default(), |mut all, sums| {
            all.merge(*sums);
            all
        })
    }

    /// The sums of each size.
    pub(in crate::report) fn each(&self) -> impl Iterator<Item = &Sums> {
        self.sizes.values()
    }

    /// The sizes that there are, by the power of two.
    pub(in crate::report) fn sizes(&self) -> impl Iterator<Item = (u32, Sums)> {
        self.sizes.iter().map(|(power, sums)| (*power, *sums)).filter(|(_, sums)| sums.calls > 0)
    }
}

/// Copies from a device to a device.
#[derive(Debug, Default)]
pub(in crate::report) struct PairTally {
    pub(in crate::report) calls: u64,
    pub(in crate::report) errors: u64,
    /// By the number of the path.
    pub(in crate::report) paths: HashMap<u8, PathTally>,
    pub(in crate::report) host: Histogram,
    pub(in crate::report) buckets: Buckets,
    pub(in crate::report) busy: Busy,
    /// When the last that succeeded began, in nanoseconds since 1970.
    pub(in crate::report) last: u64,
}

impl PairTally {
    pub(super) fn merge(&mut self, other: Self) {
        self.calls += other.calls;
        self.errors += other.errors;
        for (number, path) in other.paths {
            self.paths.entry(number).or_default().merge(path);
        }
        self.host.merge(other.host);
        self.buckets.merge(other.buckets, buckets::MOST);
        self.busy.merge(other.busy);
        self.last = self.last.max(other.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_in_any_order_comes_to_the_same() {
        let part = |copies: &[(u64, Option<u64>)]| {
            let mut pace = Pace::default();
            for &(bytes, nanos) in copies {
                pace.count(bytes);
                nanos.into_iter().for_each(|nanos| pace.time(bytes, nanos));
            }
            pace
        };
        let parts = [
            part(&[(100, Some(100)), (100, None), (100, Some(300))]),
            part(&[(100, None), (50, None)]),
            part(&[(100, Some(800)), (100, None)]),
        ];
        let of = |order: [usize; 3]| {
            let mut all = Pace::default();
            order.into_iter().for_each(|index| all.merge(parts[index]));
            all.estimate().unwrap()
        };
        // 1 ns a byte for the first, 3 for the two after it; 8 for those of the third part; the mean, 4, for those of the second.
        let expected = of([0, 1, 2]);
        assert_eq!(expected[0], 100.0 + 600.0 + 1600.0 + 600.0);
        for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            assert_eq!(of(order), expected, "{order:?}");
        }
    }
}
