//! Decisions about pairs of allocation owners, where a copy finds them without a lock.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::model::Path;
use crate::objects::generations::{Generations, OWNERS};

/// Beside the number of a path.
const KEEPS_WAITS: u64 = 1 << 7;

/// All that is known of copies from memory of one owner to memory of another.
pub(crate) struct Cell {
    /// The generations of both owners for which the path was decided, plus one, and in the low byte its number, with [`KEEPS_WAITS`] if p2pshim alone
    /// has made it direct.
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
    /// A decision rests on the links and rights of both owners.
    owners: Generations<COUNT>,
}

/// For which generations of two owners a decision is made.
#[derive(Clone, Copy)]
pub(crate) struct Rests(u64);

impl<const COUNT: usize> Cells<COUNT> {
    pub(crate) const fn new() -> Self {
        Self { cells: [const { [const { Cell::new() }; COUNT] }; COUNT], owners: Generations::new() }
    }

    #[inline(always)]
    pub(crate) fn get(&self, src: u8, dst: u8) -> Option<&Cell> {
        self.cells.get(usize::from(src))?.get(usize::from(dst))
    }

    /// The path that copies of a pair take, if that is decided, and whether p2pshim alone has made it direct.
    #[inline(always)]
    pub(crate) fn decided(&self, src: u8, dst: u8) -> Option<(Path, bool)> {
        // With Acquire, so that the generations are read at least as new as the thread that decided had them.
        let word = self.get(src, dst)?.decided.load(Acquire);
        if word >> 8 != self.now(src, dst).0 {
            return None;
        }
        Some((Path::numbered((word & (KEEPS_WAITS - 1)) as u8)?, word & KEEPS_WAITS != 0))
    }

    /// Read before anything is asked that a decision rests on.
    #[inline(always)]
    pub(crate) fn now(&self, src: u8, dst: u8) -> Rests {
        Rests(self.owners.of_both(src, dst) + 1)
    }

    pub(crate) fn keep(&self, cell: &Cell, (path, keeps_waits): (Path, bool), Rests(on): Rests) {
        let bit = if keeps_waits { KEEPS_WAITS } else { 0 };
        cell.decided.store(on << 8 | bit | u64::from(path.number()), Release);
    }

    /// The links or rights of an owner have changed: its pairs are to be decided anew.
    pub(crate) fn change(&self, owner: u8) {
        self.owners.end(owner);
    }

    /// Everything is to be decided anew.
    pub(crate) fn change_all(&self) {
        self.owners.end_all();
    }

    /// Forgets all pairs of an owner, whose number may get another.
    pub(crate) fn forget(&self, owner: u8) {
        self.change(owner);
        for other in 0..COUNT as u8 {
            [self.get(owner, other), self.get(other, owner)].into_iter().flatten().for_each(Cell::forget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decided_until_either_owner_changes() {
        let cells = Cells::<8>::new();
        let cell = cells.get(1, 2).unwrap();
        assert_eq!(cells.decided(1, 2), None);
        for keeps_waits in [false, true] {
            cells.keep(cell, (Path::Direct, keeps_waits), cells.now(1, 2));
            assert_eq!(cells.decided(1, 2), Some((Path::Direct, keeps_waits)));
        }
        assert_eq!(cells.decided(2, 1), None);
        cells.change(3);
        assert_eq!(cells.decided(1, 2), Some((Path::Direct, true)), "another owner's");
        for change in [
            |cells: &Cells<8>| cells.change(1),
            |cells: &Cells<8>| cells.change(2),
            |cells: &Cells<8>| cells.change_all(),
        ] {
            let before = cells.now(1, 2);
            change(&cells);
            assert_eq!(cells.decided(1, 2), None);
            cells.keep(cell, (Path::Direct, true), before);
            assert_eq!(cells.decided(1, 2), None, "decided before the change");
            cells.keep(cell, (Path::Direct, true), cells.now(1, 2));
            assert!(cells.decided(1, 2).is_some());
        }
    }

    #[test]
    fn forget_counts_start_anew() {
        let cells = Cells::<8>::new();
        let cell = cells.get(3, 4).unwrap();
        cell.count(100);
        assert_eq!(cell.count(50), (2, 150));
        cells.forget(4);
        assert_eq!(cell.count(1), (1, 1));
    }
}
