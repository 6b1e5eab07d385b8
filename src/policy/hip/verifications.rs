//! What verification has shown about pairs of devices in this process, and the memory that it takes.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use super::links::{DEVICES, LIBRARIES, at, bit};
use crate::os;
use crate::policy::access::verify::WHOLE;

/// How long a thread waits for others that verify a pair: each takes some milliseconds.
const PATIENCE: Duration = Duration::from_millis(500);
/// After how many seconds an undecided pair is verified again for the first time; each further time it is twice as long. A test
/// says when that is.
const AGAIN: u64 = if cfg!(test) { 3600 } else { 1 };
/// How often it is doubled.
const MOST_DOUBLINGS: u64 = 10;
/// How often memory is taken on a device: what cannot be used any more is lost.
const MOST_SCRATCH: u8 = 4;

/// A piece of a device's memory for verifications: [`Scratch::BYTES`], with as many of page-locked memory of the host twice, and
/// two streams that block no other. It is never freed: that would wait for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scratch {
    pub(crate) device: i32,
    /// Where bytes are sent from, and where they arrive.
    pub(crate) sends: u64,
    pub(crate) receives: u64,
    /// Where they are uploaded from; behind that, where they are downloaded to.
    pub(crate) host: usize,
    pub(crate) stream: usize,
    /// The stream of what goes through the host.
    pub(crate) control: usize,
}

impl Scratch {
    /// What it takes of the device.
    pub(crate) const BYTES: usize = 2 * WHOLE;

    /// The same for what goes through the host: to where the other's copies arrive, and from there.
    pub(crate) fn through_host(self) -> Self {
        Self { sends: self.receives, host: self.host + Self::BYTES, stream: self.control, ..self }
    }
}

/// What is known of a pair of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Passed,
    Failed,
    /// A copy did not end in time, though copies through the host did: it is refused for now, and judged again.
    Late,
    /// It is not verified in the program's process, where a copy may hang.
    Risky,
}

impl Known {
    /// All, by their number less one; 0 is none.
    const ALL: [Self; 4] = [Self::Passed, Self::Failed, Self::Late, Self::Risky];
}

/// Who is about to enable access between two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The program does, or asks whether it may.
    Asked,
    /// We do.
    Ours,
}

/// What verification has shown in this process, and what it takes.
pub(super) struct Verifications {
    /// Of each pair, in both directions.
    known: [[AtomicU8; DEVICES]; DEVICES],
    /// Of each device, a bit for each peer about which the verdict that is kept was read.
    is_read: [AtomicU64; DEVICES],
    /// Whether a thread verifies a pair.
    is_acting: AtomicBool,
    /// Whether it was said that a pair is not verified where a copy may hang.
    pub(super) is_risk_logged: AtomicBool,
    /// Of each pair, in both directions: how often it was tried, and in the lower half the second from which it may be tried again.
    tried: [[AtomicU64; DEVICES]; DEVICES],
    /// How often memory was taken, of each device.
    taken: [AtomicU8; DEVICES],
    /// By the copy of the runtime that they belong to. The standard library's locks: see [`os::lock`].
    scratches: [Mutex<BTreeMap<i32, Scratch>>; LIBRARIES],
    /// The memory in which copies of a pair have not ended, in the same way.
    hung: [Mutex<BTreeMap<[u8; 2], [Scratch; 2]>>; LIBRARIES],
}

/// A thread verifies a pair, until this goes away.
pub(super) struct Acting<'a>(&'a AtomicBool);

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

impl Verifications {
    pub(super) const fn new() -> Self {
        Self {
            known: [const { [const { AtomicU8::new(0) }; DEVICES] }; DEVICES],
            is_read: [const { AtomicU64::new(0) }; DEVICES],
            is_acting: AtomicBool::new(false),
            is_risk_logged: AtomicBool::new(false),
            tried: [const { [const { AtomicU64::new(0) }; DEVICES] }; DEVICES],
            taken: [const { AtomicU8::new(0) }; DEVICES],
            scratches: [const { Mutex::new(BTreeMap::new()) }; LIBRARIES],
            hung: [const { Mutex::new(BTreeMap::new()) }; LIBRARIES],
        }
    }

    #[inline(always)]
    pub(super) fn known(&self, pair: [u8; 2]) -> Option<Known> {
        let number = usize::from(at(&self.known, pair)?.load(SeqCst));
        Known::ALL.get(number.wrapping_sub(1)).copied()
    }

    /// The verdict that holds for good.
    #[inline(always)]
    pub(super) fn lasting(&self, pair: [u8; 2]) -> Option<Known> {
        self.known(pair).filter(|&known| known != Known::Late)
    }

    /// Whether the path is broken, or taken for it until it is judged again.
    #[inline(always)]
    pub(super) fn has_failed(&self, pair: [u8; 2]) -> bool {
        matches!(self.known(pair), Some(Known::Failed | Known::Late))
    }

    pub(super) fn is_any_broken(&self) -> bool {
        let broken = [Known::Failed, Known::Late].map(|known| 1 + known as u8);
        self.known.iter().flatten().any(|known| broken.contains(&known.load(Relaxed)))
    }

    pub(super) fn set(&self, [one, other]: [u8; 2], known: Known) {
        for place in [[one, other], [other, one]].into_iter().filter_map(|pair| at(&self.known, pair)) {
            place.store(1 + known as u8, SeqCst);
        }
    }

    /// Whether the verdict that is kept on a pair was read.
    pub(super) fn was_read(&self, [one, other]: [u8; 2]) -> bool {
        self.is_read.get(usize::from(one)).is_none_or(|read| read.load(Relaxed) & bit(other.into()) != 0)
    }

    pub(super) fn mark_read(&self, [one, other]: [u8; 2]) {
        for (device, peer) in [(one, other), (other, one)] {
            if let Some(read) = self.is_read.get(usize::from(device)) {
                read.fetch_or(bit(peer.into()), Relaxed);
            }
        }
    }

    /// Lets nobody else verify anything. None if another thread does, and takes too long if that is waited for.
    pub(super) fn begin(&self, waits: bool) -> Option<Acting<'_>> {
        let started = Instant::now();
        while self.is_acting.swap(true, Acquire) {
            if !waits || started.elapsed() > PATIENCE {
                return None;
            }
            thread::sleep(Duration::from_micros(50));
        }
        Some(Acting(&self.is_acting))
    }

    /// Whether it is time to try a pair, which is undecided.
    #[inline(always)]
    pub(super) fn is_due(&self, pair: [u8; 2]) -> bool {
        at(&self.tried, pair).is_none_or(|tried| match tried.load(Relaxed) {
            0 => true,
            tried => seconds() >= tried & u64::from(u32::MAX),
        })
    }

    /// Notes that a pair is tried now. Whether it is for the first time.
    pub(super) fn mark_tried(&self, [one, other]: [u8; 2]) -> bool {
        let mut times = 0;
        for tried in [[one, other], [other, one]].into_iter().filter_map(|pair| at(&self.tried, pair)) {
            times = tried.load(Relaxed) >> 32;
            // This second is not over.
            let due = seconds() + 1 + (AGAIN << times.min(MOST_DOUBLINGS));
            tried.store((times + 1) << 32 | due, Relaxed);
        }
        times == 0
    }

    /// Whether memory may be taken on a device, as is about to be done.
    pub(super) fn may_take(&self, device: u8) -> bool {
        let count = |taken: u8| (taken < MOST_SCRATCH).then_some(taken + 1);
        self.taken.get(usize::from(device)).is_some_and(|taken| taken.fetch_update(Relaxed, Relaxed, count).is_ok())
    }

    /// As if some time had gone by.
    #[cfg(test)]
    pub(super) fn forget_when(&self) {
        self.tried.iter().flatten().for_each(|tried| tried.store(0, Relaxed));
    }

    /// The memory of a device; none if there is none, or of a copy of the runtime that is not told apart.
    pub(super) fn scratch(&self, library: usize, device: u8) -> Option<Scratch> {
        os::lock(self.scratches.get(library)?).get(&device.into()).copied()
    }

    pub(super) fn add_scratch(&self, library: usize, scratch: Scratch) {
        if let Some(scratches) = self.scratches.get(library) {
            os::lock(scratches).insert(scratch.device, scratch);
        }
    }

    /// The memory of two devices is not used until the copies that are under way in it have ended.
    pub(super) fn put_aside(&self, library: usize, pair: [u8; 2], scratches: [Scratch; 2]) {
        let (Some(ready), Some(hung)) = (self.scratches.get(library), self.hung.get(library)) else { return };
        os::lock(ready).retain(|_, scratch| !scratches.contains(scratch));
        os::lock(hung).insert(pair, scratches);
    }

    /// Takes what was put aside of a pair into use again, if `has_ended` says so of both. False if it does not.
    pub(super) fn take_back(&self, library: usize, pair: [u8; 2], has_ended: impl Fn(&Scratch) -> bool) -> bool {
        let Some(hung) = self.hung.get(library) else { return true };
        let Some(scratches) = os::lock(hung).get(&pair).copied() else { return true };
        if !scratches.iter().all(has_ended) {
            return false;
        }
        os::lock(hung).remove(&pair);
        scratches.into_iter().for_each(|scratch| self.add_scratch(library, scratch));
        true
    }

    /// A reset takes what a device has, and gives its memory back.
    pub(super) fn reset_scratch(&self, library: usize, device: u8) {
        if let (Some(ready), Some(hung)) = (self.scratches.get(library), self.hung.get(library)) {
            os::lock(ready).remove(&device.into());
            os::lock(hung).retain(|pair, _| !pair.contains(&device));
        }
        if let Some(taken) = self.taken.get(usize::from(device)) {
            taken.store(0, Relaxed);
        }
    }
}

fn seconds() -> u64 {
    os::monotonic_nanos() / 1_000_000_000
}
