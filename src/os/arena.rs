//! Rows of words that grow in number, never move, and are read without a lock, in signal handlers too.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::atomic::{AtomicPtr, AtomicU64};

/// Rows of the first chunk; each further chunk has twice as many as the one before.
pub(crate) const FIRST: usize = 64;
/// Together they have a row for each 32-bit number.
const CHUNKS: usize = 27;

/// Rows of so many words, numbered from 0. Zero at first. They are never freed; a page that nobody has written takes no memory.
pub(crate) struct Arena<const WORDS: usize> {
    chunks: [AtomicPtr<[AtomicU64; WORDS]>; CHUNKS],
}

impl<const WORDS: usize> Arena<WORDS> {
    pub(crate) const fn new() -> Self {
        Self { chunks: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNKS] }
    }

    /// The chunk that has a row, and which row of the chunk it is.
    #[inline(always)]
    fn place(number: u32) -> (usize, usize) {
        let from_first = u64::from(number) + FIRST as u64;
        let level = from_first.ilog2();
        ((level - FIRST.ilog2()) as usize, (from_first - (1 << level)) as usize)
    }

    /// A row; none if there was never room for it.
    #[inline(always)]
    pub(crate) fn get(&self, number: u32) -> Option<&[AtomicU64; WORDS]> {
        let (chunk, row) = Self::place(number);
        let rows = self.chunks.get(chunk)?.load(Acquire);
        // SAFETY: the chunk has the row, since it is that of the number; and it is never freed.
        (!rows.is_null()).then(|| unsafe { &*rows.add(row) })
    }

    /// A row by its chunk, and its number in that.
    #[inline(always)]
    pub(crate) fn at(&self, chunk: usize, row: usize) -> Option<&[AtomicU64; WORDS]> {
        let rows = self.chunks.get(chunk)?.load(Acquire);
        // SAFETY: a chunk has so many rows, and is never freed.
        (!rows.is_null() && row < FIRST << chunk).then(|| unsafe { &*rows.add(row) })
    }

    /// Makes room for a row. False if there is no memory.
    pub(crate) fn reach(&self, number: u32) -> bool {
        let (chunk, _) = Self::place(number);
        self.reach_chunk(chunk)
    }

    /// Makes room for the rows of a chunk. False if there is no memory.
    pub(crate) fn reach_chunk(&self, chunk: usize) -> bool {
        let (Some(slot), Ok(layout)) = (self.chunks.get(chunk), Layout::array::<[AtomicU64; WORDS]>(FIRST << chunk))
        else {
            return false;
        };
        if WORDS == 0 || !slot.load(Acquire).is_null() {
            return WORDS != 0;
        }
        // SAFETY: the size is not zero. All zero is valid for numbers.
        let rows: *mut [AtomicU64; WORDS] = unsafe { alloc_zeroed(layout) }.cast();
        if rows.is_null() {
            return false;
        }
        if slot.compare_exchange(ptr::null_mut(), rows, AcqRel, Acquire).is_err() {
            // SAFETY: taken above with this layout, and nobody has seen it.
            unsafe { dealloc(rows.cast(), layout) };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn get_each_row_is_another_and_stays_where_it_is() {
        let arena = Arena::<3>::new();
        assert!(arena.get(0).is_none());
        let numbers = || (0..1000).chain([4095, 4096, 100_000]);
        for number in numbers() {
            assert!(arena.reach(number));
            arena.get(number).unwrap().iter().for_each(|word| word.store(u64::from(number), Relaxed));
        }
        for number in numbers() {
            let row = arena.get(number).unwrap();
            assert!(row.iter().all(|word| word.load(Relaxed) == u64::from(number)), "{number}");
        }
        assert_eq!(Arena::<1>::place(u32::MAX), (CHUNKS - 1, 63));
    }
}
