//! Facts about the driver's handles: a word about each, looked up without a lock.
//!
//! A handle's word may be out of date, since its owner may have ended unseen. So nobody is told anything before the driver
//! has been asked again.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A fact about a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    /// The device that it belongs to; [`Fact::NOWHERE`] if that is not known.
    pub(crate) device: u8,
    /// For a stream: whether it is ordered with the legacy default stream.
    pub(crate) non_blocking: bool,
    pub(crate) is_destroyed: bool,
    /// For a stream: the tag of the thread that made it.
    pub(crate) thread: u8,
}

impl Fact {
    /// In place of a device.
    pub(crate) const NOWHERE: u8 = u8::MAX;
    /// How many tags of threads there are.
    pub(crate) const TAGS: usize = 1 << 6;
    /// In place of a tag.
    pub(crate) const NO_THREAD: u8 = 0;
    /// The tag that all threads share for which there is none of their own.
    pub(crate) const MANY: u8 = Self::TAGS as u8 - 1;

    /// The fact about a handle of a device that may be no stream.
    pub(crate) const fn on(device: u8) -> Self {
        Self { device, non_blocking: false, is_destroyed: false, thread: Self::NO_THREAD }
    }

    /// Whether a thread made it, as far as that is known.
    pub(crate) fn is_of(self, thread: u8) -> bool {
        self.thread == thread && thread != Self::MANY
    }

    fn pack(self) -> u64 {
        u64::from(self.device)
            | u64::from(self.non_blocking) << 8
            | u64::from(self.is_destroyed) << 9
            | u64::from(self.thread) << 10
    }

    #[inline(always)]
    fn unpack(word: u64) -> Self {
        Self {
            device: word as u8,
            non_blocking: word >> 8 & 1 != 0,
            is_destroyed: word >> 9 & 1 != 0,
            thread: (word >> 10) as u8 & 63,
        }
    }
}

/// A power of two.
const PLACES: usize = 1024;
/// How many places a handle may have.
const NEAR: usize = 8;
/// Handles are addresses of user space, which leaves room above for what is known of them.
const BITS: u32 = 48;

/// Handles of one kind. Those that do not fit are not known.
pub(crate) struct Handles {
    /// The handle below, the fact above; 0 is empty. One word, so that it is always whole.
    places: [AtomicU64; PLACES],
}

impl Handles {
    pub(crate) const fn new() -> Self {
        Self { places: [const { AtomicU64::new(0) }; PLACES] }
    }

    #[inline(always)]
    fn places(&self, handle: usize) -> impl Iterator<Item = &AtomicU64> {
        /// Spreads neighbours (Fibonacci hashing).
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let first = (handle as u64).wrapping_mul(SPREAD) >> (64 - PLACES.trailing_zeros());
        (0..NEAR).filter_map(move |step| self.places.get((first as usize + step) % PLACES))
    }

    /// A fact about a handle.
    #[inline(always)]
    pub(crate) fn find(&self, handle: usize) -> Option<Fact> {
        let found = self.places(handle).map(|place| place.load(Relaxed)).find(|word| is_of(*word, handle))?;
        Some(Fact::unpack(found >> BITS))
    }

    /// Remembers a fact about a handle, in place of the one that was known. If there is no room for it, what was destroyed
    /// goes first.
    pub(crate) fn set(&self, handle: usize, fact: Fact) {
        if handle == 0 || handle as u64 >> BITS != 0 {
            return;
        }
        let word = handle as u64 | fact.pack() << BITS;
        let (mut best, mut least) = (None, u8::MAX);
        for place in self.places(handle) {
            let there = place.load(Relaxed);
            let worth = match there {
                there if is_of(there, handle) => 0,
                0 => 1,
                there if Fact::unpack(there >> BITS).is_destroyed => 2,
                _ => 3,
            };
            if worth < least {
                (best, least) = (Some((place, there)), worth);
            }
        }
        if let Some((place, there)) = best {
            // If another thread was quicker, its handle is as good.
            let _ = place.compare_exchange(there, word, Relaxed, Relaxed);
        }
    }

    /// Sets a fact, unless it is known: then nothing is written, and no other processor waits for it.
    pub(crate) fn learn(&self, handle: usize, fact: Fact) {
        if self.find(handle) != Some(fact) {
            self.set(handle, fact);
        }
    }

    pub(crate) fn forget(&self, handle: usize) {
        for place in self.places(handle) {
            let there = place.load(Relaxed);
            if is_of(there, handle) {
                let _ = place.compare_exchange(there, 0, Relaxed, Relaxed);
            }
        }
    }

    /// Forgets all handles of which this does not hold.
    pub(crate) fn retain(&self, keeps: impl Fn(Fact) -> bool) {
        for place in &self.places {
            let there = place.load(Relaxed);
            if there != 0 && !keeps(Fact::unpack(there >> BITS)) {
                let _ = place.compare_exchange(there, 0, Relaxed, Relaxed);
            }
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, Fact)> {
        let words = self.places.iter().map(|place| place.load(Relaxed)).filter(|&word| word != 0);
        words.map(|word| ((word & ((1 << BITS) - 1)) as usize, Fact::unpack(word >> BITS)))
    }
}

#[inline(always)]
fn is_of(word: u64, handle: usize) -> bool {
    word != 0 && word & ((1 << BITS) - 1) == handle as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(device: u8) -> Fact {
        Fact::on(device)
    }

    #[test]
    fn find_the_last_that_was_set_and_none_after_it_is_forgotten() {
        let handles = Handles::new();
        assert_eq!(handles.find(0x10), None);
        handles.set(0x10, of(1));
        let last = Fact { non_blocking: true, is_destroyed: true, thread: 63, ..of(63) };
        handles.set(0x10, last);
        assert_eq!(handles.find(0x10), Some(last));
        assert_eq!(handles.iter().collect::<Vec<_>>(), [(0x10, last)]);
        handles.forget(0x10);
        assert_eq!(handles.find(0x10), None);
    }

    #[test]
    fn learn_what_is_another_takes_the_place_of_what_was_known() {
        let handles = Handles::new();
        for fact in [of(1), of(1), of(2), Fact { is_destroyed: true, ..of(2) }] {
            handles.learn(0x10, fact);
            assert_eq!(handles.find(0x10), Some(fact));
        }
    }

    #[test]
    fn set_handles_that_are_no_addresses_are_left_out() {
        let handles = Handles::new();
        for handle in [0, 1 << 48, usize::MAX] {
            handles.set(handle, of(1));
            assert_eq!(handles.find(handle), None, "{handle:#x}");
        }
    }

    #[test]
    fn set_without_room_destroyed_ones_go_first() {
        let handles = Handles::new();
        let all = || (1..=4 * PLACES).map(|number| number * 0x40);
        all().for_each(|handle| handles.set(handle, Fact { is_destroyed: true, ..of(1) }));
        let alive: Vec<_> = (1..=PLACES / 8).map(|number| 0x7f00_0000_0000 + number * 0x100).collect();
        alive.iter().for_each(|&handle| handles.set(handle, of(2)));
        let known = alive.iter().filter(|handle| handles.find(**handle) == Some(of(2))).count();
        assert_eq!(known, alive.len());
    }

    #[test]
    fn retain_only_what_is_kept_is_found() {
        let handles = Handles::new();
        (1..=40).for_each(|number| handles.set(number * 0x100, of(number as u8 % 2)));
        handles.retain(|fact| fact.device == 1);
        assert!(handles.iter().count() > 0 && handles.iter().all(|(_, fact)| fact.device == 1));
    }
}
