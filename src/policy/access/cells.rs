//! What was decided about each pair of owners, where a copy finds it without a lock.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::model::Path;
use crate::model::epoch;

/// How many contexts, pools and the like are told apart. Number 0 is nobody.
pub(super) const OWNERS: usize = 128;

/// What is known of copies from memory of one owner to memory of another.
pub(super) struct Cell {
    /// The epoch in which the way was settled, and its number in the low byte.
    settled: AtomicU64,
    /// Copies since the beginning, until the pair was settled.
    copies: AtomicU32,
    bytes: AtomicU64,
}

impl Cell {
    const fn new() -> Self {
        Self { settled: AtomicU64::new(0), copies: AtomicU32::new(0), bytes: AtomicU64::new(0) }
    }

    /// Counts a copy, and answers how many there are, and of how many bytes.
    pub(super) fn count(&self, bytes: u64) -> (u32, u64) {
        let copies = self.copies.fetch_add(1, Relaxed).saturating_add(1);
        (copies, self.bytes.fetch_add(bytes, Relaxed).saturating_add(bytes))
    }

    /// As if nothing had been copied yet.
    fn forget(&self) {
        self.settled.store(0, Relaxed);
        self.copies.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
    }
}

/// All pairs.
pub(super) struct Cells {
    cells: [Cell; OWNERS * OWNERS],
    /// What was settled in an earlier epoch is to be settled anew.
    epoch: AtomicU64,
}

impl Cells {
    pub(super) const fn new() -> Self {
        Self { cells: [const { Cell::new() }; OWNERS * OWNERS], epoch: AtomicU64::new(1) }
    }

    #[inline(always)]
    pub(super) fn get(&self, src: u8, dst: u8) -> Option<&Cell> {
        self.cells.get(usize::from(src) * OWNERS + usize::from(dst))
    }

    /// The way that copies of a pair take, if that is settled.
    #[inline(always)]
    pub(super) fn settled(&self, src: u8, dst: u8) -> Option<Path> {
        let cell = self.get(src, dst)?;
        let word = cell.settled.load(Relaxed);
        if word >> 8 != self.epoch.load(Relaxed) {
            return None;
        }
        Path::numbered(word as u32 & 0xff)
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Acquire)
    }

    /// Keeps a decision that rests on what was true in `epoch`.
    pub(super) fn settle(&self, cell: &Cell, path: Path, epoch: u64) {
        cell.settled.store(epoch << 8 | u64::from(path.number()), Release);
        epoch::advance();
    }

    /// Everything is to be decided anew: peers, pools or contexts have changed.
    pub(super) fn unsettle(&self) {
        self.epoch.fetch_add(1, AcqRel);
        epoch::advance();
    }

    /// Forgets all pairs of an owner, whose number may get another.
    pub(super) fn forget(&self, owner: u8) {
        for other in 0..OWNERS as u8 {
            [self.get(owner, other), self.get(other, owner)].into_iter().flatten().for_each(Cell::forget);
        }
        epoch::advance();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settled_until_anything_changes() {
        let cells = Box::new(Cells::new());
        let cell = cells.get(1, 2).unwrap();
        assert_eq!(cells.settled(1, 2), None);
        cells.settle(cell, Path::Direct, cells.epoch());
        assert_eq!(cells.settled(1, 2), Some(Path::Direct));
        assert_eq!(cells.settled(2, 1), None);
        let before = cells.epoch();
        cells.unsettle();
        assert_eq!(cells.settled(1, 2), None);
        cells.settle(cell, Path::Direct, before);
        assert_eq!(cells.settled(1, 2), None, "decided before the change");
    }

    #[test]
    fn forget_counts_start_anew() {
        let cells = Box::new(Cells::new());
        let cell = cells.get(3, 4).unwrap();
        cell.count(100);
        assert_eq!(cell.count(50), (2, 150));
        cells.forget(4);
        assert_eq!(cell.count(1), (1, 1));
    }
}
