//! The counts of the copies of a pair.

use std::collections::{BTreeMap, HashMap};

use crate::report::buckets::{self, Buckets};
use crate::report::histogram::Histogram;

/// Copies that took the same path, and have about the same size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::report) struct Sums {
    pub(in crate::report) calls: u64,
    pub(in crate::report) bytes: u64,
    pub(in crate::report) device_calls: u64,
    pub(in crate::report) device_bytes: u64,
    pub(in crate::report) device_ns: u64,
}

impl Sums {
    pub(in crate::report) fn merge(&mut self, other: Self) {
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
        self.last = self.last.max(other.last);
    }
}
