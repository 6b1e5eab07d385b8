//! `make soak` does all of what `make test` does a part of, with seeds that nobody has tried: `P2PSHIM_SOAK` is what they begin
//! with, and the same value takes the same seeds again.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// The number that is added to each seed, if this is `make soak`.
pub(crate) fn soak() -> Option<u32> {
    let value = std::env::var("P2PSHIM_SOAK").ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("P2PSHIM_SOAK={value} is no number")))
}

/// The first seed of a random test, and how many of `count` it takes: a tenth, or, in `make soak`, all.
pub(crate) fn seeds(first: u32, count: u32) -> (u32, u32) {
    soak().map_or((first, count.div_ceil(10)), |more| (first.checked_add(more).unwrap(), count))
}

/// Tries programs by their seeds, so many at a time: the faults of those that are wrong, and the output of the others, in the order of their seeds.
pub(crate) fn compare_all(
    seeds: Range<u32>,
    at_a_time: usize,
    compare: impl Fn(u32) -> Result<String, String> + Sync,
) -> (Vec<String>, Vec<String>) {
    let (next, done) = (AtomicU32::new(seeds.start), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let compared = compare(seed);
                    done.lock().unwrap().push((seed, compared));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort();
    let (same, wrong): (Vec<_>, Vec<_>) = done.into_iter().map(|(_, compared)| compared).partition(Result::is_ok);
    (wrong.into_iter().filter_map(Result::err).collect(), same.into_iter().flatten().collect())
}
