//! Small facts by address or other key, found without a lock and in signal handlers.
//!
//! Key and value are one word, so that what is read is always whole. A word is stored with Release and loaded with Acquire: who finds
//! one sees what the thread that stored it had done before. Of two threads that store at once in one place the first wins; the other's
//! word is lost, as is one that finds no room. So a fact may be missing, and may be out of date.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// How many places a key may have.
const NEAR: usize = 8;

/// Where a key comes first among `2^bits` places. Neighbours are spread (Fibonacci hashing).
#[inline(always)]
pub(crate) fn spread(key: u64, bits: u32) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - bits)) as usize
}

/// `PLACES`, a power of two, words of a key of `KEY` bits, which is not 0, and a value above it.
pub(crate) struct Table<const PLACES: usize, const KEY: u32>([AtomicU64; PLACES]);

impl<const PLACES: usize, const KEY: u32> Table<PLACES, KEY> {
    const MASK: u64 = (1 << KEY) - 1;

    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; PLACES])
    }

    #[inline(always)]
    fn places(&self, key: u64) -> impl Iterator<Item = (&AtomicU64, u64)> {
        let first = spread(key, PLACES.trailing_zeros());
        let places = (0..NEAR).filter_map(move |step| self.0.get((first + step) % PLACES));
        places.map(|place| (place, place.load(Acquire)))
    }

    #[inline(always)]
    fn place_of(&self, key: u64) -> Option<(&AtomicU64, u64)> {
        self.places(key).find(|&(_, word)| word != 0 && word & Self::MASK == key)
    }

    #[inline(always)]
    pub(crate) fn find(&self, key: u64) -> Option<u64> {
        self.place_of(key).map(|(_, word)| word >> KEY)
    }

    /// Whether a key that is not there could be added.
    pub(crate) fn has_room(&self, key: u64) -> bool {
        self.places(key).any(|(_, word)| word == 0)
    }

    /// Stores a key's value in place of the one that it had, or of another key's that is `spare`; else of any if `displaces`. Whether it
    /// is there now.
    pub(crate) fn set(&self, key: u64, value: u64, spare: impl Fn(u64) -> bool, displaces: bool) -> bool {
        let worth = |word: u64| match word {
            word if word != 0 && word & Self::MASK == key => 0,
            0 => 1,
            word if spare(word >> KEY) => 2,
            _ => 3,
        };
        let best =
            self.places(key).min_by_key(|&(_, word)| worth(word)).filter(|&(_, word)| displaces || worth(word) < 3);
        let Some((place, there)) = best.filter(|_| key != 0 && key <= Self::MASK) else { return false };
        place.compare_exchange(there, key | value << KEY, AcqRel, Relaxed).is_ok()
    }

    /// Counts one more of a key, by its value, up to the highest; how many there were. If too many keys come together, they share a count.
    pub(crate) fn count(&self, key: u64) -> u64 {
        let free = || self.places(key).find(|&(_, word)| word == 0);
        let Some((place, word)) = self.place_of(key).or_else(free).or_else(|| self.places(key).next()) else {
            return 0;
        };
        let before = word >> KEY;
        if before < u64::MAX >> KEY {
            let counted = if word == 0 { key } else { word } + (1 << KEY);
            let _ = place.compare_exchange(word, counted, AcqRel, Relaxed);
        }
        before
    }

    /// Forgets all keys of which this does not hold.
    pub(crate) fn retain(&self, keeps: impl Fn(u64, u64) -> bool) {
        for place in &self.0 {
            let word = place.load(Acquire);
            if word != 0 && !keeps(word & Self::MASK, word >> KEY) {
                let _ = place.compare_exchange(word, 0, AcqRel, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Small = Table<1024, 48>;

    fn add(table: &Small, key: u64, value: u64) -> bool {
        table.set(key, value, |_| false, false)
    }

    #[test]
    fn find_the_last_that_was_set() {
        let table = Small::new();
        assert_eq!(table.find(0x10), None);
        assert!(add(&table, 0x10, 1) && add(&table, 0x10, 0xffff));
        assert_eq!((table.find(0x10), table.find(0x20)), (Some(0xffff), None));
    }

    #[test]
    fn set_keys_that_do_not_fit_are_left_out() {
        let table = Small::new();
        for key in [0, 1 << 48, u64::MAX] {
            assert!(!add(&table, key, 1) && table.find(key).is_none(), "{key:#x}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it fills a table for minutes")]
    fn set_without_room_spare_ones_go_first_and_others_only_if_wanted() {
        let table = Small::new();
        (1..=4096).for_each(|n| _ = add(&table, n * 0x40, 1));
        let more = || (1..=128).map(|n| 0x7f00_0000_0000 + n * 0x100);
        assert!(more().all(|key| !add(&table, key, 2) && !table.has_room(key)));
        assert!(more().all(|key| table.set(key, 2, |value| value == 1, false)));
        assert!(more().all(|key| table.find(key) == Some(2)));
        assert!(table.set(0x7e00_0000_0000, 2, |_| false, true));
    }

    #[test]
    fn retain_only_what_is_kept_is_found() {
        let table = Small::new();
        (1..=40).for_each(|n| _ = add(&table, n * 0x100, n % 2));
        table.retain(|key, value| value == 1 && key != 0x100);
        let found = (1..=40).filter(|n| table.find(n * 0x100).is_some()).collect::<Vec<_>>();
        assert_eq!(found, (3..=40).step_by(2).collect::<Vec<_>>());
    }

    #[test]
    #[cfg_attr(miri, ignore = "it counts for minutes")]
    fn count_each_key_has_its_own_until_there_are_too_many_and_the_highest_stays() {
        let table = Table::<8, 48>::new();
        assert_eq!([100, 100, 101, 100].map(|key| table.count(key)), [0, 1, 0, 2]);
        assert!((102..=107).all(|key| table.count(key) == 0));
        let shared = table.count(108);
        assert!(shared > 0 && table.count(108) == shared + 1);
        (0..70_000).for_each(|_| _ = table.count(100));
        assert_eq!((table.count(100), table.find(100)), (0xffff, Some(0xffff)));
    }
}
