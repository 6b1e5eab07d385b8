//! Direct copies, or kernels, that are under way, for one that minds others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Counts of all pairs, and those of one.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    all: Arc<Counts>,
    own: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Traffic {
    /// The traffic of another pair of the same machine.
    pub(crate) fn of_another(&self) -> Traffic {
        Traffic { all: Arc::clone(&self.all), own: Counts::default() }
    }

    /// Begins a copy, which ends when the result is dropped.
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        let ended = self.others(|counts| &counts.ended);
        self.all.begun.fetch_add(1, SeqCst);
        self.own.begun.fetch_add(1, SeqCst);
        UnderWay { traffic: self, ended }
    }

    /// A count of all other pairs.
    fn others(&self, count: fn(&Counts) -> &AtomicU64) -> u64 {
        count(&self.all).load(SeqCst).saturating_sub(count(&self.own).load(SeqCst))
    }
}

/// A copy that is under way.
pub(crate) struct UnderWay<'a> {
    traffic: &'a Traffic,
    /// Copies of other pairs that had ended before.
    ended: u64,
}

impl UnderWay<'_> {
    /// Whether a copy of another pair has been under way since it began.
    pub(crate) fn met_others(&self) -> bool {
        self.traffic.others(|counts| &counts.begun) > self.ended
    }

    /// Waits for one, and while the processors are busy until others have had so many turns; whether it came.
    pub(crate) fn meets_others(&self, time: Duration) -> bool {
        const TURNS: u32 = 200;
        let (deadline, mut turns) = (Instant::now() + time, 0);
        while !self.met_others() && (turns < TURNS || Instant::now() < deadline) {
            std::thread::yield_now();
            turns += 1;
        }
        self.met_others()
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.traffic.own.ended.fetch_add(1, SeqCst);
        self.traffic.all.ended.fetch_add(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn met_others_only_those_of_other_pairs_that_were_under_way() {
        let one = Traffic::default();
        let other = one.of_another();
        drop(other.begin());
        let copy = one.begin();
        drop(one.begin());
        assert!(!copy.met_others());
        drop(other.begin());
        assert!(copy.met_others());
        drop(copy);
        let before = other.begin();
        assert!(one.begin().met_others());
        drop(before);
        assert!(!one.begin().met_others());
    }
}
