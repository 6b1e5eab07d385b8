//! Rows that are found by a hash without a lock, also in signal handlers: buckets of chains, one bucket more at a time (linear hashing).
//!
//! One thread at a time changes chains, under its caller's lock. A thread that looks up meanwhile may leave a chain that is relinked. If it
//! finds nothing, and chains have changed since it began, it looks again.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64, fence};

use crate::os::arena::Arena;

/// Rows that a bucket has on average before there are more buckets.
const LOAD: u32 = 2;
/// A look-up stops after so many steps: another thread may have made a ring of what it follows.
const LONGEST: usize = 256;
/// So often it looks again.
const TRIES: usize = 64;

/// Rows of so many words. The lower half of the word `LINK` is the number, plus one, of the next row in its chain; 0 is the end.
pub(crate) struct Index<const WORDS: usize, const LINK: usize> {
    pub(crate) rows: Arena<WORDS>,
    /// The first row of each bucket, its number plus one.
    buckets: Arena<1>,
    count: AtomicU32,
    /// How many rows are in buckets.
    linked: AtomicU32,
    /// How often chains have changed; odd while they do.
    changes: AtomicU64,
}

impl<const WORDS: usize, const LINK: usize> Index<WORDS, LINK> {
    pub(crate) const fn new() -> Self {
        Self {
            rows: Arena::new(),
            buckets: Arena::new(),
            count: AtomicU32::new(0),
            linked: AtomicU32::new(0),
            changes: AtomicU64::new(0),
        }
    }

    fn link(&self, row: u32) -> Option<&AtomicU64> {
        self.rows.get(row)?.get(LINK)
    }

    /// The bucket of a hash; none if there is none yet.
    #[inline(always)]
    fn bucket(&self, hash: u32) -> Option<&AtomicU64> {
        let count = self.count.load(Acquire);
        let level = 1 << count.checked_ilog2()?;
        let wide = hash & (2 * level - 1);
        let [first] = self.buckets.get(if wide < count { wide } else { hash & (level - 1) })?;
        Some(first)
    }

    /// The row of a hash of which this holds, given the row and its word `LINK`.
    #[inline(always)]
    pub(crate) fn find(
        &self,
        hash: u32,
        is_it: impl Fn(&[AtomicU64; WORDS], u64) -> bool,
    ) -> Option<(u32, &[AtomicU64; WORDS])> {
        for _ in 0..TRIES {
            let changes = self.changes.load(Acquire);
            let mut next = self.bucket(hash)?.load(Acquire) as u32;
            for _ in 0..LONGEST {
                let Some(number) = next.checked_sub(1) else { break };
                let row = self.rows.get(number)?;
                let link = row.get(LINK)?.load(Acquire);
                if is_it(row, link) {
                    return Some((number, row));
                }
                next = link as u32;
            }
            fence(Acquire);
            if changes & 1 == 0 && self.changes.load(Relaxed) == changes {
                return None;
            }
        }
        None
    }

    fn change<T>(&self, change: impl FnOnce() -> T) -> T {
        let changes = self.changes.load(Relaxed);
        self.changes.store(changes.wrapping_add(1), Relaxed);
        fence(SeqCst);
        let result = change();
        self.changes.store(changes.wrapping_add(2), Release);
        result
    }

    /// From now on a row is found. Only under the lock. False if there is no memory. `hash_of` is that of any row in a bucket.
    pub(crate) fn add(&self, number: u32, hash_of: impl Fn(&[AtomicU64; WORDS]) -> u32) -> bool {
        if self.linked.load(Relaxed) >= LOAD * self.count.load(Relaxed) {
            self.change(|| self.split(&hash_of));
        }
        let Some(row) = self.rows.get(number) else { return false };
        let (Some(bucket), Some(link)) = (self.bucket(hash_of(row)), self.link(number)) else { return false };
        set_low(link, bucket.load(Relaxed) as u32);
        bucket.store(u64::from(number) + 1, Release);
        self.linked.fetch_add(1, Relaxed);
        true
    }

    /// From now on a row is not found. Only under the lock. Whether it was.
    pub(crate) fn remove(&self, number: u32, hash: u32) -> bool {
        let Some(mut word) = self.bucket(hash) else { return false };
        while let Some(other) = (word.load(Relaxed) as u32).checked_sub(1)
            && let Some(next) = self.link(other)
        {
            if other == number {
                self.change(|| set_low(word, next.load(Relaxed) as u32));
                self.linked.fetch_sub(1, Relaxed);
                return true;
            }
            word = next;
        }
        false
    }

    /// Adds a bucket, which gets rows of one other.
    fn split(&self, hash_of: impl Fn(&[AtomicU64; WORDS]) -> u32) {
        let count = self.count.load(Relaxed);
        let (true, Some([new])) = (self.buckets.reach(count), self.buckets.get(count)) else { return };
        let old = if count == 0 { None } else { self.buckets.get(count - (1 << count.ilog2())) };
        new.store(0, Relaxed);
        let mut next = old.map_or(0, |[old]| old.swap(0, Relaxed) as u32);
        self.count.store(count + 1, Release);
        while let Some(number) = next.checked_sub(1)
            && let (Some(row), Some(link)) = (self.rows.get(number), self.link(number))
        {
            next = link.load(Relaxed) as u32;
            if let Some(bucket) = self.bucket(hash_of(row)) {
                set_low(link, bucket.load(Relaxed) as u32);
                bucket.store(u64::from(number) + 1, Release);
            }
        }
    }
}

/// Sets the lower half of a word. Only under the lock.
pub(crate) fn set_low(word: &AtomicU64, value: u32) {
    word.store(word.load(Relaxed) >> 32 << 32 | u64::from(value), Release);
}
