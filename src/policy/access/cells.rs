//! Decisions about pairs of owners, where a copy finds them without a lock.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::model::Path;

/// How many contexts, pools and the like are told apart. Number 0 is nobody.
pub(crate) const OWNERS: usize = 128;

/// Beside the number of a path.
const KEPT: u64 = 1 << 7;

/// All that is known of copies from memory of one owner to memory of another.
pub(crate) struct Cell {
    /// The epoch in which the path was decided, and in the low byte its number, with [`KEPT`] if p2pshim alone has made it direct.
    decided: AtomicU64,
    /// Copies since the beginning, until the pair was decided.
    copies: AtomicU32,
    bytes: AtomicU64,
}

impl Cell {
    const fn new() -> Self {
        Self { decided: AtomicU64::new(0), copies: AtomicU32::new(0), bytes: AtomicU64::new(0) }
    }

    /// Counts a copy, and returns how many there are, and of how many bytes.
    pub(crate) fn count(&self, bytes: u64) -> (u32, u64) {
        let copies = self.copies.fetch_add(1, Relaxed).saturating_add(1);
        (copies, self.bytes.fetch_add(bytes, Relaxed).saturating_add(bytes))
    }

    /// As if nothing had been copied yet.
    fn forget(&self) {
        self.decided.store(0, Relaxed);
        self.copies.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
    }
}

/// All pairs.
pub(crate) struct Cells<const COUNT: usize = OWNERS> {
    cells: [[Cell; COUNT]; COUNT],
    /// Decisions of an earlier epoch are to be made anew.
    epoch: AtomicU64,
}

impl<const COUNT: usize> Cells<COUNT> {
    pub(crate) const fn new() -> Self {
        Self { cells: [const { [const { Cell::new() }; COUNT] }; COUNT], epoch: AtomicU64::new(0) }
    }

    #[inline(always)]
    pub(crate) fn get(&self, src: u8, dst: u8) -> Option<&Cell> {
        self.cells.get(usize::from(src))?.get(usize::from(dst))
    }

    /// The path that copies of a pair take, if that is decided, and whether p2pshim alone has made it direct.
    #[inline(always)]
    pub(crate) fn decided(&self, src: u8, dst: u8) -> Option<(Path, bool)> {
        let cell = self.get(src, dst)?;
        let word = cell.decided.load(Relaxed);
        if word >> 8 != self.epoch.load(Relaxed) {
            return None;
        }
        Some((Path::numbered((word & (KEPT - 1)) as u8)?, word & KEPT != 0))
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Acquire)
    }

    /// Keeps a decision that rests on what was true in `epoch`.
    pub(crate) fn keep(&self, cell: &Cell, (path, is_kept): (Path, bool), epoch: u64) {
        let kept = if is_kept { KEPT } else { 0 };
        cell.decided.store(epoch << 8 | kept | u64::from(path.number()), Release);
    }

    /// Everything is to be decided anew: peers, pools or contexts have changed.
    pub(crate) fn invalidate(&self) {
        self.epoch.fetch_add(1, AcqRel);
    }

    /// Forgets all pairs of an owner, whose number may get another.
    pub(crate) fn forget(&self, owner: u8) {
        for other in 0..COUNT as u8 {
            [self.get(owner, other), self.get(other, owner)].into_iter().flatten().for_each(Cell::forget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decided_until_anything_changes() {
        let cells = Box::<Cells>::new(Cells::new());
        let cell = cells.get(1, 2).unwrap();
        assert_eq!(cells.decided(1, 2), None);
        cells.keep(cell, (Path::Direct, false), cells.epoch());
        assert_eq!(cells.decided(1, 2), Some((Path::Direct, false)));
        cells.keep(cell, (Path::Direct, true), cells.epoch());
        assert_eq!(cells.decided(1, 2), Some((Path::Direct, true)));
        assert_eq!(cells.decided(2, 1), None);
        let before = cells.epoch();
        cells.invalidate();
        assert_eq!(cells.decided(1, 2), None);
        cells.keep(cell, (Path::Direct, true), before);
        assert_eq!(cells.decided(1, 2), None, "decided before the change");
    }

    #[test]
    fn forget_counts_start_anew() {
        let cells = Box::<Cells>::new(Cells::new());
        let cell = cells.get(3, 4).unwrap();
        cell.count(100);
        assert_eq!(cell.count(50), (2, 150));
        cells.forget(4);
        assert_eq!(cell.count(1), (1, 1));
    }
}
