//! How many copies took which path between which devices, and how often each function was called: always counted, by every
//! thread in a place of its own, or, where there are many threads, one that it shares with few others. And how often each
//! rule has found something.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

use super::copy::Traffic;
use super::path::Path;
use super::rules::Rule;
use crate::api::Function;

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

/// Devices that are told apart.
pub(crate) const DEVICES: usize = 32;
/// The shards of the first threads that copy, one each. Nobody else writes there, so that adding needs no locked
/// instruction, which would cost as much as all the rest of a copy on a trusted pair.
pub(crate) const OWN: u8 = 32;
/// Those of all further threads, in turn.
const SHARED: u8 = 16;

/// All of them.
pub(crate) const SHARDS: usize = (OWN + SHARED) as usize;

/// How many copies are counted in how many places: for each pair of devices those that went through the host, and all others.
const PLACES: usize = DEVICES * DEVICES * 2;
/// Functions are counted by number; there is room for any that has as many bits.
const FUNCTIONS: usize = Function::ALL.len().next_power_of_two();

/// In which place copies are counted; in bits next to each other, so that who has them has the place.
pub(crate) const fn place([src, dst]: [u8; 2], is_staged: bool) -> Option<usize> {
    let (src, dst) = (src as usize, dst as usize);
    if src < DEVICES && dst < DEVICES { Some((dst * DEVICES + src) * 2 + is_staged as usize) } else { None }
}

/// Copies, and their bytes.
struct Copies([AtomicU64; 2]);

/// How often a function was called, and how often it failed.
struct Calls([AtomicU64; 2]);

/// The counters of a thread, or of the few that share them.
#[repr(align(128))]
pub(crate) struct Shard {
    copies: [Copies; PLACES],
    calls: [Calls; FUNCTIONS],
}

static COUNTERS: [Shard; SHARDS] = [const { Shard::new() }; SHARDS];

impl Shard {
    const fn new() -> Self {
        Self {
            copies: [const { Copies([const { AtomicU64::new(0) }; 2]) }; PLACES],
            calls: [const { Calls([const { AtomicU64::new(0) }; 2]) }; FUNCTIONS],
        }
    }
}

/// Adds to a counter that nobody else writes to.
#[inline(always)]
fn add_own(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(more), Relaxed);
}

/// The counters of the thread that has them to itself, by the number of its shard.
#[inline(always)]
pub(crate) fn own(shard: u8) -> Option<&'static Shard> {
    let (own, _) = COUNTERS.split_at_checked(OWN.into())?;
    own.get(usize::from(shard).wrapping_sub(1))
}

impl Shard {
    /// Counts a call that has succeeded, of the function with this number; for the thread that has the counters to itself.
    #[inline(always)]
    pub(crate) fn count_call(&self, function: u8) {
        if let Some(Calls([calls, _])) = self.calls.get(usize::from(function) % FUNCTIONS) {
            add_own(calls, 1);
        }
    }

    /// The same of a copy, by its [`place`].
    #[inline(always)]
    pub(crate) fn count(&self, place: usize, moved: u64) {
        if let Some(Copies([copies, bytes])) = self.copies.get(place % PLACES) {
            add_own(copies, 1);
            add_own(bytes, moved);
        }
    }
}

/// Adds to a counter of a shard.
#[inline(always)]
fn add(shard: u8, counter: &AtomicU64, more: u64) {
    if is_own(shard) {
        add_own(counter, more);
    } else {
        counter.fetch_add(more, Relaxed);
    }
}

/// Counts a call. `shard` is the number of the thread's shard, 0 until its first.
#[inline(always)]
pub(crate) fn count_call(shard: &AtomicU8, function: Function, has_failed: bool) {
    count_call_numbered(shard, function as u8, has_failed);
}

/// The same by the function's number.
#[inline(always)]
pub(crate) fn count_call_numbered(shard: &AtomicU8, function: u8, has_failed: bool) {
    let shard = assign(shard);
    let counted = COUNTERS.get(usize::from(shard) - 1).and_then(|of| of.calls.get(usize::from(function)));
    let Some(Calls([calls, failures])) = counted else { return };
    add(shard, calls, 1);
    if has_failed {
        add(shard, failures, 1);
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

/// Whether a shard is a single thread's.
#[inline(always)]
fn is_own(shard: u8) -> bool {
    shard <= OWN
}

/// Counts a copy. `shard` is the number of the thread's shard, 0 until its first copy.
#[inline(always)]
pub(crate) fn count(shard: &AtomicU8, traffic: &Traffic) {
    count_many(shard, traffic, 1);
}

/// The same of several copies that come to `traffic` together.
#[inline(always)]
pub(crate) fn count_many(shard: &AtomicU8, traffic: &Traffic, number: u64) {
    let shard = assign(shard);
    let is_staged = match traffic.path {
        Path::Host | Path::Unknown | Path::Captured => return,
        Path::Staged(_) => true,
        Path::Direct | Path::Broken | Path::SameDevice | Path::MappedOnUse => false,
    };
    let Some(place) = place([traffic.src, traffic.dst], is_staged) else { return };
    let counted = COUNTERS.get(usize::from(shard) - 1).and_then(|of| of.copies.get(place));
    let Some(Copies([copies, bytes])) = counted else { return };
    add(shard, copies, number);
    add(shard, bytes, traffic.bytes);
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
    let devices = [u8::try_from(src).ok()?, u8::try_from(dst).ok()?];
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

/// Counts a finding.
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
            // So many that some have shards of their own and some share one.
            for _ in 0..OWN + 2 * SHARED {
                scope.spawn(|| {
                    let shard = AtomicU8::new(0);
                    for _ in 0..100 {
                        count(&shard, &traffic(Path::Direct));
                        count(&shard, &traffic(Path::Staged(Why::Limit)));
                        count(&shard, &traffic(Path::Host));
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

    #[test]
    fn count_call_failures_are_told_apart() {
        const FUNCTION: Function = Function::cuMemcpy3DPeerAsync_ptsz;
        let shard = AtomicU8::new(0);
        (0..5).for_each(|number| count_call(&shard, FUNCTION, number == 3));
        count_call(&AtomicU8::new(OWN + 1), FUNCTION, true);
        assert_eq!(calls(FUNCTION), [6, 2]);
    }
}
