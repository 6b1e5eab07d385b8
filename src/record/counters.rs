//! How many copies took which way between which devices: always counted, by every thread in a place of its own, or,
//! where there are many threads, one that it shares with few others.

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
/// The shards of the first threads that copy, one each. Nobody else writes there, so that adding needs no locked
/// instruction, which would cost as much as all the rest of a copy on a trusted pair.
const OWN: u8 = 32;
/// Those of all further threads, in turn.
const SHARED: u8 = 16;

/// All of them.
pub(crate) const SHARDS: usize = (OWN + SHARED) as usize;

/// The counters of a pair: by way, copies and their bytes.
struct Counter {
    direct: [AtomicU64; 2],
    staged: [AtomicU64; 2],
}

#[repr(align(128))]
struct Shard([[Counter; DEVICES]; DEVICES]);

impl Counter {
    const fn new() -> Self {
        Self { direct: [const { AtomicU64::new(0) }; 2], staged: [const { AtomicU64::new(0) }; 2] }
    }
}

static COUNTERS: [Shard; SHARDS] = [const { Shard([const { [const { Counter::new() }; DEVICES] }; DEVICES]) }; SHARDS];

/// Gives a thread its shard, if it has none. `shard` is the number, 0 until then.
#[inline(always)]
pub(crate) fn assign(shard: &mut u8) {
    if *shard == 0 {
        *shard = next_shard();
    }
}

/// Whether a shard is a single thread's.
#[inline(always)]
pub(crate) fn is_own(shard: u8) -> bool {
    shard <= OWN
}

/// Counts a copy. `shard` is the number of the thread's shard, 0 until its first copy.
#[inline(always)]
pub(crate) fn count(shard: &mut u8, traffic: &Traffic) {
    assign(shard);
    let counter = COUNTERS
        .get(usize::from(*shard) - 1)
        .and_then(|Shard(rows)| rows.get(usize::from(traffic.src))?.get(usize::from(traffic.dst)));
    let Some(counter) = counter else { return };
    let [copies, bytes] = match traffic.path {
        Path::Host | Path::Unknown => return,
        Path::Staged(_) => &counter.staged,
        Path::Direct | Path::SameDevice => &counter.direct,
    };
    if is_own(*shard) {
        copies.store(copies.load(Relaxed).wrapping_add(1), Relaxed);
        bytes.store(bytes.load(Relaxed).wrapping_add(traffic.bytes), Relaxed);
    } else {
        copies.fetch_add(1, Relaxed);
        bytes.fetch_add(traffic.bytes, Relaxed);
    }
}

#[cold]
fn next_shard() -> u8 {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let following = |number| Some(if number == OWN + SHARED { OWN + 1 } else { number + 1 });
    NEXT.fetch_update(Relaxed, Relaxed, following).unwrap_or(OWN + 1)
}

/// What has been copied from one device to another so far.
pub(crate) fn sums(src: usize, dst: usize) -> Option<Sums> {
    let mut sums = Sums::default();
    for Shard(rows) in &COUNTERS {
        let Counter { direct, staged } = rows.get(src)?.get(dst)?;
        for (sum, [copies, bytes]) in [(&mut sums.direct, direct), (&mut sums.staged, staged)] {
            sum.copies += copies.load(Relaxed);
            sum.bytes += bytes.load(Relaxed);
        }
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
            // So many that some have shards of their own and some share one.
            for _ in 0..OWN + 2 * SHARED {
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
        let copies = u64::from(OWN + 2 * SHARED) * 100;
        let each = Sum { copies, bytes: copies * 10 };
        assert_eq!(sums(30, 31), Some(Sums { direct: each, staged: each }));
        assert_eq!(sums(31, 30), Some(Sums::default()));
        assert_eq!(sums(DEVICES, 0), None);
    }
}
