//! Rows that are found by a hash without a lock, also in signal handlers.
//!
//! One thread at a time changes chains, under its caller's lock and with signals held back. A thread that looks up meanwhile may leave a chain that is
//! relinked. If it finds nothing, it waits for a limited time until no chain is being changed, and looks again. So a row may be missed, for example
//! in a process that was forked meanwhile. A caller for which that matters looks again under its lock.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

use crate::os;
use crate::os::arena::{Arena, FIRST};

/// Rows that a chain has on average before there are more chains.
const LOAD: u32 = 2;
/// A look-up stops after so many steps: another thread may have made a ring of what it follows.
const LONGEST: usize = 256;
/// So often it looks again, and so often it waits for a moment: a process that was forked meanwhile would wait for ever.
const TRIES: usize = 64;
const PAUSES: usize = 10_000;

/// Rows of so many words. The lower half of the word `LINK` is the number, plus one, of the next row in its chain; 0 is the end.
pub(crate) struct Index<const WORDS: usize, const LINK: usize> {
    pub(crate) rows: Arena<WORDS>,
    /// The first row of each chain, its number plus one: two in a word. Each chunk has the chains of one size; the last that is used has all rows.
    firsts: Arena<1>,
    /// How many chunks are used.
    sizes: AtomicU32,
    /// How many rows are in chains.
    linked: AtomicU32,
    /// How often chains have changed; odd while they do.
    changes: AtomicU64,
}

impl<const WORDS: usize, const LINK: usize> Index<WORDS, LINK> {
    pub(crate) const fn new() -> Self {
        Self {
            rows: Arena::new(),
            firsts: Arena::new(),
            sizes: AtomicU32::new(0),
            linked: AtomicU32::new(0),
            changes: AtomicU64::new(0),
        }
    }

    fn link(&self, row: u32) -> Option<&AtomicU64> {
        self.rows.get(row)?.get(LINK)
    }

    /// The first row of a hash; none if there are no chains yet. The upper bits choose the chain: handles that follow one another go to different ones.
    #[inline(always)]
    fn first(&self, hash: u32) -> Option<Half<'_>> {
        const LEAST_BITS: u32 = FIRST.ilog2() + 1;
        let size = self.sizes.load(Acquire).checked_sub(1)?;
        self.chain(size, (hash >> (u32::BITS - LEAST_BITS - size)) as usize)
    }

    #[inline(always)]
    fn chain(&self, size: u32, number: usize) -> Option<Half<'_>> {
        let [word] = self.firsts.at(size as usize, number / 2)?;
        Some(Half { word, shift: (number as u32 & 1) * 32 })
    }

    /// The row of a hash of which this holds, given the row and its word `LINK`.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        hash: u32,
        is_it: impl Fn(&[AtomicU64; WORDS], u64) -> bool,
    ) -> Option<(u32, &[AtomicU64; WORDS])> {
        let found = self.find_once(hash, &is_it);
        if found.is_some() { found } else { self.find_again(hash, is_it) }
    }

    #[inline(always)]
    fn find_once(
        &self,
        hash: u32,
        is_it: &impl Fn(&[AtomicU64; WORDS], u64) -> bool,
    ) -> Option<(u32, &[AtomicU64; WORDS])> {
        let mut next = self.first(hash)?.load();
        for _ in 0..LONGEST {
            let number = next.checked_sub(1)?;
            let row = self.rows.get(number)?;
            let link = row.get(LINK)?.load(Acquire);
            if is_it(row, link) {
                return Some((number, row));
            }
            next = link as u32;
        }
        None
    }

    #[inline(never)]
    fn find_again(
        &self,
        hash: u32,
        is_it: impl Fn(&[AtomicU64; WORDS], u64) -> bool,
    ) -> Option<(u32, &[AtomicU64; WORDS])> {
        let mut pauses = 0;
        for _ in 0..TRIES {
            let mut changes = self.changes.load(Acquire);
            while changes & 1 != 0 && pauses < PAUSES {
                os::pause();
                pauses += 1;
                changes = self.changes.load(Acquire);
            }
            let found = self.find_once(hash, &is_it);
            fence(Acquire);
            if found.is_some() || changes & 1 == 0 && self.changes.load(Relaxed) == changes {
                return found;
            }
        }
        None
    }

    fn change<T>(&self, change: impl FnOnce() -> T) -> T {
        let changes = self.changes.load(Relaxed) | 1;
        self.changes.store(changes, Relaxed);
        fence(SeqCst);
        let result = change();
        self.changes.store(changes.wrapping_add(1), Release);
        result
    }

    /// From now on a row is found. Only under the lock. False if there is no memory. `hash_of` is that of any row in a chain.
    pub(crate) fn add(&self, number: u32, hash_of: impl Fn(&[AtomicU64; WORDS]) -> u32) -> bool {
        let size = self.sizes.load(Relaxed);
        let chains = if size == 0 { 0 } else { (FIRST as u32) << size };
        if self.linked.load(Relaxed) >= LOAD * chains {
            self.change(|| self.grow(size, &hash_of));
        }
        let Some(row) = self.rows.get(number) else { return false };
        let is_linked = self.put(self.first(hash_of(row)), number);
        self.linked.fetch_add(is_linked.into(), Relaxed);
        is_linked
    }

    /// Puts a row before the first of a chain.
    fn put(&self, first: Option<Half<'_>>, number: u32) -> bool {
        let (Some(first), Some(link)) = (first, self.link(number)) else { return false };
        set_low(link, first.load());
        first.set(number + 1);
        true
    }

    /// From now on a row is not found. Only under the lock. Whether it was.
    pub(crate) fn remove(&self, number: u32, hash: u32) -> bool {
        let Some(mut before) = self.first(hash) else { return false };
        while let Some(other) = before.load().checked_sub(1)
            && let Some(next) = self.link(other)
        {
            if other == number {
                self.change(|| before.set(next.load(Relaxed) as u32));
                self.linked.fetch_sub(1, Relaxed);
                return true;
            }
            before = Half { word: next, shift: 0 };
        }
        false
    }

    /// Puts all rows into twice as many chains, if there is memory for that.
    fn grow(&self, size: u32, hash_of: impl Fn(&[AtomicU64; WORDS]) -> u32) {
        if !self.firsts.reach_chunk(size as usize) {
            return;
        }
        self.sizes.store(size + 1, Release);
        let Some(before) = size.checked_sub(1) else { return };
        for old in 0..FIRST << size {
            let mut next = self.chain(before, old).map_or(0, |first| first.load());
            while let Some(number) = next.checked_sub(1)
                && let (Some(row), Some(link)) = (self.rows.get(number), self.link(number))
            {
                next = link.load(Relaxed) as u32;
                self.put(self.first(hash_of(row)), number);
            }
        }
    }
}

/// Half of a word, with the number of a row plus one.
#[derive(Clone, Copy)]
struct Half<'a> {
    word: &'a AtomicU64,
    shift: u32,
}

impl Half<'_> {
    #[inline(always)]
    fn load(self) -> u32 {
        (self.word.load(Acquire) >> self.shift) as u32
    }

    /// Only under the lock.
    fn set(self, value: u32) {
        let other = self.word.load(Relaxed) & !(u64::from(u32::MAX) << self.shift);
        self.word.store(other | u64::from(value) << self.shift, Release);
    }
}

/// Sets the lower half of a word. Only under the lock.
pub(crate) fn set_low(word: &AtomicU64, value: u32) {
    Half { word, shift: 0 }.set(value);
}
