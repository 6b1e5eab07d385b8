//! Vector clocks: how much of each stream's work comes before something.

/// For each stream, by its slot, the number of its last operation that comes before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock(Vec<u32>);

impl Clock {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    #[inline(always)]
    pub(crate) fn at(&self, slot: u32) -> u32 {
        self.0.get(slot as usize).copied().unwrap_or(0)
    }

    /// Whether an operation comes before.
    #[inline(always)]
    pub(crate) fn has(&self, (slot, number): Stamp) -> bool {
        self.at(slot) >= number
    }

    pub(crate) fn add(&mut self, (slot, number): Stamp) {
        let slot = slot as usize;
        if self.0.len() <= slot {
            self.0.resize(slot + 1, 0);
        }
        if let Some(own) = self.0.get_mut(slot) {
            *own = number.max(*own);
        }
    }

    pub(crate) fn join(&mut self, Self(other): &Self) {
        if self.0.len() < other.len() {
            self.0.resize(other.len(), 0);
        }
        self.0.iter_mut().zip(other).for_each(|(own, other)| *own = (*own).max(*other));
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
    }
}
