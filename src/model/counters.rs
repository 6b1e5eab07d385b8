//! How many copies took which path between which devices, and how often each function was called: always counted, by each
//! thread in a place that it shares with few others. And how often each rule has found something.
//!
//! To add is one instruction, so that no copy of a signal handler is lost between two.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

use p2pshim_trace::REMOTE;

use super::Path;
use super::copy::Traffic;
use super::rules::Rule;
use crate::api::Function;

/// Copies of one kind, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) copies: u64,
    pub(crate) bytes: u64,
}

/// The copies from one device to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    /// Directly, or inside the device.
    pub(crate) direct: Sum,
    /// Through the host.
    pub(crate) staged: Sum,
}

/// Devices that are told apart. The number after the last stands for those of memory of other processes, of which it is not known where it lies.
pub(crate) const DEVICES: usize = 32;
/// Places where threads count, in turn: threads on several processors seldom wait for each other.
pub(crate) const SHARDS: u8 = 16;

/// How many copies are counted in how many places: for each pair of devices those that went through the host, and all others.
const PLACES: usize = ENDS * ENDS * 2;
/// Devices, and what stands for those of other processes.
const ENDS: usize = DEVICES + 1;
/// Functions are counted by number; there is room for any that has as many bits.
const FUNCTIONS: usize = Function::ALL.len().next_power_of_two();

/// In which place copies are counted.
fn place([src, dst]: [u8; 2], is_staged: bool) -> Option<usize> {
    let end = |device: u8| match usize::from(device) {
        ordinal if ordinal < DEVICES => Some(ordinal),
        _ if device >= REMOTE => Some(DEVICES),
        _ => None,
    };
    Some((end(dst)? * ENDS + end(src)?) * 2 + usize::from(is_staged))
}

/// Copies, and their bytes.
struct Copies([AtomicU64; 2]);

/// How often a function was called, and how often it failed.
struct Calls([AtomicU64; 2]);

/// The counters of the threads that share them.
#[repr(align(128))]
struct Shard {
    copies: [Copies; PLACES],
    calls: [Calls; FUNCTIONS],
}

static COUNTERS: [Shard; SHARDS as usize] = [const { Shard::new() }; SHARDS as usize];

impl Shard {
    const fn new() -> Self {
        Self {
            copies: [const { Copies([const { AtomicU64::new(0) }; 2]) }; PLACES],
            calls: [const { Calls([const { AtomicU64::new(0) }; 2]) }; FUNCTIONS],
        }
    }
}

/// Counts a call. `shard` is the number of the thread's shard, 0 until its first.
#[inline(always)]
pub(crate) fn count_call(shard: &AtomicU8, function: Function, has_failed: bool) {
    let shard = assign(shard);
    let counted = COUNTERS.get(usize::from(shard) - 1).and_then(|of| of.calls.get(function as usize));
    let Some(Calls([calls, failures])) = counted else { return };
    calls.fetch_add(1, Relaxed);
    if has_failed {
        failures.fetch_add(1, Relaxed);
    }
}

/// How often a function was called so far, and how often it failed.
pub(crate) fn calls(function: Function) -> [u64; 2] {
    let of = COUNTERS.iter().filter_map(|shard| shard.calls.get(function as usize));
    of.fold([0; 2], |[calls, failures], Calls([more, failed])| {
        [calls + more.load(Relaxed), failures + failed.load(Relaxed)]
    })
}

/// The number of a thread's shard, which it gets with its first call.
#[inline(always)]
fn assign(shard: &AtomicU8) -> u8 {
    match shard.load(Relaxed) {
        0 => {
            let next = next_shard();
            shard.store(next, Relaxed);
            next
        }
        number => number,
    }
}

/// Counts copies that come to `traffic` together. `shard` is the number of the thread's shard, 0 until its first call.
#[inline(always)]
pub(crate) fn count(shard: &AtomicU8, traffic: &Traffic, number: u64) {
    let shard = assign(shard);
    let is_staged = match traffic.path {
        Path::Host | Path::Unknown | Path::Captured | Path::ByHand => return,
        Path::Staged(_) => true,
        Path::Direct | Path::Broken | Path::SameDevice | Path::MappedOnUse => false,
    };
    let Some(place) = place([traffic.src, traffic.dst], is_staged) else { return };
    let counted = COUNTERS.get(usize::from(shard) - 1).and_then(|of| of.copies.get(place));
    let Some(Copies([copies, bytes])) = counted else { return };
    copies.fetch_add(number, Relaxed);
    bytes.fetch_add(traffic.bytes, Relaxed);
}

#[cold]
fn next_shard() -> u8 {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    NEXT.fetch_update(Relaxed, Relaxed, |number| Some(number % SHARDS + 1)).unwrap_or(1)
}

/// The copies from one device to another so far, by ordinals or [`REMOTE`].
pub(crate) fn sums(devices: [u8; 2]) -> Option<Sums> {
    let mut sums = Sums::default();
    for (sum, is_staged) in [(&mut sums.direct, false), (&mut sums.staged, true)] {
        let place = place(devices, is_staged)?;
        for Copies([copies, bytes]) in COUNTERS.iter().filter_map(|of| of.copies.get(place)) {
            sum.copies += copies.load(Relaxed);
            sum.bytes += bytes.load(Relaxed);
        }
    }
    Some(sums)
}

static FINDINGS: [AtomicU64; Rule::ALL.len()] = [const { AtomicU64::new(0) }; Rule::ALL.len()];

pub(crate) fn count_finding(rule: Rule) {
    if let Some(count) = FINDINGS.get(rule as usize) {
        count.fetch_add(1, Relaxed);
    }
}

/// How often a rule has found something so far.
pub(crate) fn findings(rule: Rule) -> u64 {
    FINDINGS.get(rule as usize).map_or(0, |count| count.load(Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Why;

    #[test]
    fn count_all_threads_are_summed() {
        let traffic = |path| Traffic::new([30, 31], path, 10);
        std::thread::scope(|scope| {
            for _ in 0..2 * SHARDS {
                scope.spawn(|| {
                    let shard = AtomicU8::new(0);
                    for _ in 0..100 {
                        count(&shard, &traffic(Path::Direct), 1);
                        count(&shard, &traffic(Path::Staged(Why::Limit)), 1);
                        count(&shard, &traffic(Path::Host), 1);
                    }
                });
            }
        });
        let copies = u64::from(2 * SHARDS) * 100;
        let each = Sum { copies, bytes: copies * 10 };
        assert_eq!(sums([30, 31]), Some(Sums { direct: each, staged: each }));
        assert_eq!(sums([31, 30]), Some(Sums::default()));
        assert_eq!(sums([32, 0]), None);
    }

    #[test]
    fn count_memory_of_other_processes_has_one_place() {
        for end in [REMOTE, REMOTE + 1, p2pshim_trace::REMOTE_LAST] {
            count(&AtomicU8::new(0), &Traffic::new([29, end], Path::Direct, 10), 1);
        }
        let sum = Sum { copies: 3, bytes: 30 };
        assert_eq!(sums([29, REMOTE]), Some(Sums { direct: sum, staged: Sum::default() }));
    }

    #[test]
    fn count_call_failures_are_told_apart() {
        const FUNCTION: Function = Function::cuMemcpy3DPeerAsync_ptsz;
        let shard = AtomicU8::new(0);
        (0..5).for_each(|number| count_call(&shard, FUNCTION, number == 3));
        count_call(&AtomicU8::new(2), FUNCTION, true);
        assert_eq!(calls(FUNCTION), [6, 2]);
    }
}
