//! Vector clocks: how much of each stream's work comes before something.
//!
//! A clock counts twice: all that comes before, and what would come before if no copy were staged. A staged copy is work of the contexts of both its ends,
//! and what waits for one of these waits for it; a direct one is not, unless p2pshim keeps the wait.

/// For each stream, by its slot, the number of its last operation that comes before: as copies are staged, and if none were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock(Vec<[u32; 2]>);

impl Clock {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    #[inline(always)]
    fn at(&self, slot: u32) -> [u32; 2] {
        self.0.get(slot as usize).copied().unwrap_or_default()
    }

    /// Whether an operation comes before.
    #[inline(always)]
    pub(crate) fn has(&self, (slot, number): Stamp) -> bool {
        self.at(slot)[0] >= number
    }

    /// Whether it would if no copy were staged.
    #[inline(always)]
    pub(crate) fn has_unstaged(&self, (slot, number): Stamp) -> bool {
        self.at(slot)[1] >= number
    }

    pub(crate) fn add(&mut self, (slot, number): Stamp) {
        let slot = slot as usize;
        if self.0.len() <= slot {
            self.0.resize(slot + 1, [0; 2]);
        }
        if let Some(own) = self.0.get_mut(slot) {
            *own = own.map(|own| own.max(number));
        }
    }

    /// The slots of which it has more than another.
    pub(super) fn since(&self, other: &Self) -> impl Iterator<Item = (u32, [u32; 2])> {
        let slots = self.0.iter().zip(0u32..).map(|(numbers, slot)| (slot, *numbers));
        slots.filter(|&(slot, [all, _])| !other.has((slot, all)))
    }

    pub(super) fn set(&mut self, (slot, [all, unstaged]): (u32, [u32; 2])) {
        self.add((slot, 0));
        if let Some(own) = self.0.get_mut(slot as usize) {
            *own = [own[0].max(all), own[1].max(unstaged)];
        }
    }

    pub(crate) fn join(&mut self, other: &Self) {
        self.join_as(other, |[all, unstaged]| [all, unstaged]);
    }

    /// The other's work comes before only because a copy is staged.
    pub(crate) fn join_staged(&mut self, other: &Self) {
        self.join_as(other, |[all, _]| [all, 0]);
    }

    #[inline(always)]
    fn join_as(&mut self, Self(other): &Self, counts: impl Fn([u32; 2]) -> [u32; 2]) {
        if self.0.len() < other.len() {
            self.0.resize(other.len(), [0; 2]);
        }
        for (own, other) in self.0.iter_mut().zip(other) {
            let [all, unstaged] = counts(*other);
            *own = [own[0].max(all), own[1].max(unstaged)];
        }
    }
}

/// An operation: the slot of its stream, and its number there, from 1.
pub(crate) type Stamp = (u32, u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_has_what_either_has() {
        let (mut one, mut other) = (Clock::new(), Clock::new());
        one.add((0, 3));
        one.add((2, 1));
        other.add((0, 2));
        other.add((5, 7));
        one.join(&other);
        assert!(one.has((0, 3)) && one.has((2, 1)) && one.has((5, 7)));
        assert!(!one.has((0, 4)) && !one.has((1, 1)) && !other.has((0, 3)));
        other.add((6, 1));
        one.join_staged(&other);
        assert!(one.has((6, 1)) && !one.has_unstaged((6, 1)) && one.has_unstaged((5, 7)));
    }
}
