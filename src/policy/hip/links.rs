//! Facts about pairs of devices, from one to the other, that are read without a lock; and the access that we have enabled.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use crate::os;

/// How many copies of the runtime are told apart in a process.
pub(crate) const LIBRARIES: usize = 4;
/// How many devices are told apart.
pub(super) const DEVICES: usize = 64;

/// Both devices, if they may be told apart.
pub(super) fn pair(device: i32, peer: i32) -> Option<[u8; 2]> {
    Some([u8::try_from(device).ok()?, u8::try_from(peer).ok()?])
}

/// A bit for each peer of each device. No lock: a signal handler may come between, and a child have no other thread to let go of it.
pub(super) struct Bits([AtomicU64; DEVICES]);

impl Bits {
    pub(super) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; DEVICES])
    }

    /// The bit of a device; none of one that is not told apart.
    #[inline(always)]
    fn bit(peer: u8) -> u64 {
        1u64.checked_shl(peer.into()).unwrap_or_default()
    }

    #[inline(always)]
    pub(super) fn has(&self, [device, peer]: [u8; 2]) -> bool {
        self.0.get(usize::from(device)).is_some_and(|peers| peers.load(SeqCst) & Self::bit(peer) != 0)
    }

    /// Sets a bit, or takes it away. Whether it was set.
    pub(super) fn set(&self, [device, peer]: [u8; 2], is_set: bool) -> bool {
        let (Some(peers), bit) = (self.0.get(usize::from(device)), Self::bit(peer)) else { return false };
        let before = if is_set { peers.fetch_or(bit, SeqCst) } else { peers.fetch_and(!bit, SeqCst) };
        before & bit != 0
    }

    /// Sets it in both directions.
    pub(super) fn set_both(&self, [one, other]: [u8; 2], is_set: bool) {
        self.set([one, other], is_set);
        self.set([other, one], is_set);
    }

    pub(super) fn set_all(&self, is_set: bool) {
        self.0.iter().for_each(|peers| peers.store(if is_set { u64::MAX } else { 0 }, SeqCst));
    }

    pub(super) fn are_all_set(&self) -> bool {
        self.0.iter().all(|peers| peers.load(SeqCst) == u64::MAX)
    }
}

/// Access of devices to the memory of others, as far as it is our doing.
pub(super) struct Links {
    /// The program has not asked for it.
    ours: Bits,
    /// Links that a thread enables or disables.
    changing: Bits,
}

/// A link that nobody else changes until this goes away, after a panic too.
pub(super) struct Changing<'a>(&'a Links, [u8; 2]);

impl Changing<'_> {
    /// The link is enabled, by us.
    pub(super) fn is_ours(&self) {
        self.0.ours.set(self.1, true);
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.changing.set(self.1, false);
    }
}

impl Links {
    pub(super) const fn new() -> Self {
        Self { ours: Bits::new(), changing: Bits::new() }
    }

    fn begin(&self, link: [u8; 2]) -> Option<Changing<'_>> {
        (!self.changing.set(link, true)).then(|| Changing(self, link))
    }

    /// Begins to enable a link; none if it is ours, or if somebody changes it.
    pub(super) fn begin_enabling(&self, link: [u8; 2]) -> Option<Changing<'_>> {
        self.begin(link).filter(|_| !self.ours.has(link))
    }

    /// Begins to disable a link that is ours; none if it is not.
    pub(super) fn begin_disabling(&self, link: [u8; 2]) -> Option<Changing<'_>> {
        self.wait(link);
        self.begin(link).filter(|_| self.ours.set(link, false))
    }

    /// Makes a link the program's that was ours. False if it was not.
    pub(super) fn take(&self, link: [u8; 2]) -> bool {
        self.wait(link);
        self.ours.set(link, false)
    }

    /// Whether a link is ours, for those who ask.
    pub(super) fn is_ours(&self, link: [u8; 2]) -> bool {
        self.ours.has(link)
    }

    /// Waits while another thread changes a link: the runtime may have much memory to map. Not for ever, since that thread may
    /// have been ended.
    fn wait(&self, link: [u8; 2]) {
        const MOST: Duration = Duration::from_secs(10);
        const PAUSE: Duration = Duration::from_micros(20);
        let since = Instant::now();
        while self.changing.has(link) && since.elapsed() < MOST {
            std::thread::sleep(PAUSE);
        }
    }
}

/// After how many seconds an undecided pair is verified again for the first time; each further time it is twice as long. A test
/// says when that is.
const AGAIN: u64 = if cfg!(test) { 3600 } else { 1 };
/// How often it is doubled.
const MOST_DOUBLINGS: u64 = 10;

/// When pairs are verified again that are undecided: of each, in both directions, how often it was tried, and in the lower half the
/// second from which it may be tried again.
pub(super) struct Tried([[AtomicU64; DEVICES]; DEVICES]);

impl Tried {
    pub(super) const fn new() -> Self {
        Self([const { [const { AtomicU64::new(0) }; DEVICES] }; DEVICES])
    }

    fn at(&self, [one, other]: [u8; 2]) -> Option<&AtomicU64> {
        self.0.get(usize::from(one))?.get(usize::from(other))
    }

    fn both(&self, [one, other]: [u8; 2]) -> impl Iterator<Item = &AtomicU64> {
        [[one, other], [other, one]].into_iter().filter_map(|pair| self.at(pair))
    }

    /// Whether it is time to try a pair.
    #[inline(always)]
    pub(super) fn is_due(&self, pair: [u8; 2]) -> bool {
        self.at(pair).is_none_or(|tried| match tried.load(Relaxed) {
            0 => true,
            tried => seconds() >= tried & u64::from(u32::MAX),
        })
    }

    /// Notes that a pair is tried now.
    pub(super) fn mark(&self, pair: [u8; 2]) {
        for tried in self.both(pair) {
            let times = tried.load(Relaxed) >> 32;
            // This second is not over.
            let due = seconds() + 1 + (AGAIN << times.min(MOST_DOUBLINGS));
            tried.store((times + 1) << 32 | due, Relaxed);
        }
    }

    /// A pair is decided.
    pub(super) fn forget(&self, pair: [u8; 2]) {
        self.both(pair).for_each(|tried| tried.store(0, Relaxed));
    }

    /// As if some time had gone by.
    #[cfg(test)]
    pub(super) fn forget_when(&self) {
        self.0.iter().flatten().for_each(|tried| tried.store(0, Relaxed));
    }
}

fn seconds() -> u64 {
    os::monotonic_nanos() / 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn take_of_a_link_that_is_slow_to_enable_waits_for_it() {
        let links = Box::new(Links::new());
        let changing = links.begin_enabling([0, 1]).unwrap();
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| links.take([0, 1]));
            std::thread::sleep(Duration::from_millis(400));
            changing.is_ours();
            drop(changing);
            assert!(taker.join().unwrap(), "it would be enabled twice, and return 704");
        });
    }
}
