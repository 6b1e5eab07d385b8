//! Facts about the driver's handles: a word about each, looked up without a lock.
//!
//! A handle's word may be out of date, since its owner may have ended unseen. So nobody is told anything before the driver
//! has been asked again.

use crate::os::table::Table;

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

/// Handles of one kind, which are addresses of user space. Those that do not fit are not known.
pub(crate) struct Handles<const PLACES: usize>(Table<PLACES, 48>);

impl<const PLACES: usize> Handles<PLACES> {
    pub(crate) const fn new() -> Self {
        Self(Table::new())
    }

    #[inline(always)]
    pub(crate) fn find(&self, handle: usize) -> Option<Fact> {
        self.0.find(handle as u64).map(Fact::unpack)
    }

    /// Remembers a fact about a handle, in place of the one that was known. If there is no room for it, what was destroyed
    /// goes first.
    pub(crate) fn set(&self, handle: usize, fact: Fact) {
        self.0.set(handle as u64, fact.pack(), |other| Fact::unpack(other).is_destroyed, true);
    }

    /// Sets a fact, unless it is known: then nothing is written, and no other processor waits for it.
    pub(crate) fn learn(&self, handle: usize, fact: Fact) {
        if self.find(handle) != Some(fact) {
            self.set(handle, fact);
        }
    }

    pub(crate) fn forget(&self, handle: usize) {
        self.0.forget(handle as u64);
    }

    /// Forgets all handles of which this does not hold.
    pub(crate) fn retain(&self, keeps: impl Fn(Fact) -> bool) {
        self.0.retain(|fact| keeps(Fact::unpack(fact)));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, Fact)> {
        self.0.iter().map(|(handle, fact)| (handle as usize, Fact::unpack(fact)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learn_what_is_another_takes_the_place_of_what_was_known() {
        let handles = Handles::<1024>::new();
        let (one, two) = (Fact::on(1), Fact::on(2));
        let last = Fact { non_blocking: true, is_destroyed: true, thread: 63, ..Fact::on(63) };
        for fact in [one, one, two, Fact { is_destroyed: true, ..two }, last] {
            handles.learn(0x10, fact);
            assert_eq!(handles.find(0x10), Some(fact));
        }
    }

    #[test]
    fn set_without_room_destroyed_ones_go_first() {
        let handles = Handles::<1024>::new();
        let all = (1..=4096).map(|number| number * 0x40);
        all.for_each(|handle| handles.set(handle, Fact { is_destroyed: true, ..Fact::on(1) }));
        let alive: Vec<_> = (1..=128).map(|number| 0x7f00_0000_0000 + number * 0x100).collect();
        alive.iter().for_each(|&handle| handles.set(handle, Fact::on(2)));
        assert!(alive.iter().all(|handle| handles.find(*handle) == Some(Fact::on(2))));
    }
}
