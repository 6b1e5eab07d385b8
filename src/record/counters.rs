//! How many copies took which way between which devices: always counted, by every thread in a place that it shares with
//! few others.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

use crate::policy::Traffic;
use crate::policy::path::Path;

/// Copies of one kind, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// How many.
    pub(crate) copies: u64,
    /// Of how many bytes together.
    pub(crate) bytes: u64,
}

/// What was copied from one device to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Directly, or inside the device.
    pub(crate) direct: Sum,
    /// Through the host.
    pub(crate) staged: Sum,
}

const DEVICES: usize = 32;
const SHARDS: usize = 16;

/// The counters of a pair.
struct Counter {
    copies: [AtomicU64; 2],
    bytes: [AtomicU64; 2],
}

#[repr(align(128))]
struct Shard([[Counter; DEVICES]; DEVICES]);

impl Counter {
    const fn new() -> Self {
        Self { copies: [const { AtomicU64::new(0) }; 2], bytes: [const { AtomicU64::new(0) }; 2] }
    }
}

static COUNTERS: [Shard; SHARDS] = [const { Shard([const { [const { Counter::new() }; DEVICES] }; DEVICES]) }; SHARDS];

/// Which of the two a way counts as; none for copies from and to the host.
#[inline(always)]
fn column(path: Path) -> Option<usize> {
    match path {
        Path::Direct | Path::SameDevice => Some(0),
        Path::Staged(_) => Some(1),
        Path::Host => None,
    }
}

/// Counts a copy. `shard` is the thread's own, chosen at its first copy.
#[inline(always)]
pub(crate) fn count(shard: &mut u8, traffic: &Traffic) {
    if *shard == 0 {
        *shard = next_shard();
    }
    let counter = COUNTERS
        .get(usize::from(*shard) % SHARDS)
        .and_then(|Shard(rows)| rows.get(usize::from(traffic.src))?.get(usize::from(traffic.dst)));
    if let (Some(counter), Some(column)) = (counter, column(traffic.path))
        && let (Some(copies), Some(bytes)) = (counter.copies.get(column), counter.bytes.get(column))
    {
        copies.fetch_add(1, Relaxed);
        bytes.fetch_add(traffic.bytes, Relaxed);
    }
}

#[cold]
fn next_shard() -> u8 {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    NEXT.fetch_add(1, Relaxed) | 128
}

/// What has been copied from one device to another so far.
pub(crate) fn sums(src: usize, dst: usize) -> Option<Sums> {
    let mut sums = Sums::default();
    for Shard(rows) in &COUNTERS {
        let Counter { copies: [direct, staged], bytes: [direct_bytes, staged_bytes] } = rows.get(src)?.get(dst)?;
        sums.direct.copies += direct.load(Relaxed);
        sums.direct.bytes += direct_bytes.load(Relaxed);
        sums.staged.copies += staged.load(Relaxed);
        sums.staged.bytes += staged_bytes.load(Relaxed);
    }
    Some(sums)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::path::Why;

    #[test]
    fn count_all_threads_are_summed() {
        let traffic = |path| Traffic { src: 30, dst: 31, path, bytes: 10 };
        std::thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    let mut shard = 0;
                    for _ in 0..100 {
                        count(&mut shard, &traffic(Path::Direct));
                        count(&mut shard, &traffic(Path::Staged(Why::Limit)));
                        count(&mut shard, &traffic(Path::Host));
                    }
                });
            }
        });
        let each = Sum { copies: 4000, bytes: 40_000 };
        assert_eq!(sums(30, 31), Some(Sums { direct: each, staged: each }));
        assert_eq!(sums(31, 30), Some(Sums::default()));
        assert_eq!(sums(DEVICES, 0), None);
    }
}
