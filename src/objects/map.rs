//! 32 bits about each object of a kind, found by the object's handle without a lock.
//!
//! Handles come again: a row's key has a generation beside the handle, so that a thread that looks up while the row goes to another object
//! finds one or the other. A thread that changes a map holds signals back.

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::index::{Index, set_low};
use crate::os;
use crate::os::table::spread;

/// The handle, and above it the generation of the row. The handle of an unused row is 0.
const KEY: usize = 0;
/// The next row of the chain, or the next unused one; above it the value.
const LINK: usize = 1;
type Row = [AtomicU64; 2];

/// Handles are addresses of user space.
const BITS: u32 = 48;
const HANDLE: u64 = (1 << BITS) - 1;

pub(crate) struct Map {
    index: Index<2, LINK>,
    rows: Mutex<Rows>,
}

struct Rows {
    /// How many there may be.
    most: u32,
    /// How many there are.
    count: u32,
    /// The first unused one, its number plus one.
    unused: u32,
}

/// The handle of a row, and its value. None if the row goes to another object meanwhile.
#[inline(always)]
fn read(row: &Row) -> Option<(u64, u32)> {
    let key = row[KEY].load(Acquire);
    let value = (row[LINK].load(Acquire) >> 32) as u32;
    (row[KEY].load(Relaxed) == key).then_some((key & HANDLE, value))
}

/// There is no room for one more object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

fn hash_of(row: &Row) -> u32 {
    hash(row[KEY].load(Relaxed) & HANDLE)
}

#[inline(always)]
fn hash(handle: u64) -> u32 {
    spread(handle, u32::BITS) as u32
}

impl Map {
    /// A map of so many objects at most. Of those beyond nothing is known.
    pub(crate) const fn new(most: u32) -> Self {
        Self { index: Index::new(), rows: Mutex::new(Rows { most, count: 0, unused: 0 }) }
    }

    #[inline(always)]
    fn row(&self, handle: u64) -> Option<(u32, &Row)> {
        self.index.find(hash(handle), |row, _| row[KEY].load(Acquire) & HANDLE == handle)
    }

    /// The word about an object; none if nothing is known of it.
    #[inline(always)]
    pub(crate) fn find(&self, handle: usize) -> Option<u32> {
        let handle = handle as u64;
        // The handle of a row that nobody has.
        if handle == 0 {
            return None;
        }
        let (found, value) = read(self.row(handle)?.1)?;
        (found == handle).then_some(value)
    }

    /// Remembers a value of an object, in place of the one that was known, which is returned.
    ///
    /// # Errors
    /// There is no room for one more object, or no memory.
    pub(crate) fn set(&self, handle: usize, value: u32) -> Result<Option<u32>, Full> {
        let handle = handle as u64;
        let rows = &mut *os::lock(&self.rows);
        if let Some((_, row)) = self.row(handle) {
            let link = row[LINK].load(Relaxed);
            row[LINK].store(u64::from(value) << 32 | u64::from(link as u32), Release);
            return Ok(Some((link >> 32) as u32));
        }
        if handle == 0 || handle > HANDLE {
            return Err(Full);
        }
        if rows.unused == 0 && rows.count < rows.most && self.index.rows.reach(rows.count) {
            rows.count += 1;
            rows.unused = rows.count;
        }
        let number = rows.unused.checked_sub(1).ok_or(Full)?;
        let row = self.index.rows.get(number).ok_or(Full)?;
        rows.unused = row[LINK].load(Relaxed) as u32;
        row[LINK].store(u64::from(value) << 32, Release);
        row[KEY].store((row[KEY].load(Relaxed) & !HANDLE) | handle, Release);
        if self.index.add(number, hash_of) {
            return Ok(None);
        }
        self.free(rows, number, row);
        Err(Full)
    }

    /// Forgets an object. The word about it.
    pub(crate) fn remove(&self, handle: usize) -> Option<u32> {
        let rows = &mut *os::lock(&self.rows);
        let (number, row) = self.row(handle as u64)?;
        let value = row[LINK].load(Relaxed) >> 32;
        self.take_out(rows, number, row);
        Some(value as u32)
    }

    /// Forgets all objects of which this does not hold.
    pub(crate) fn retain(&self, keeps: impl Fn(usize, u32) -> bool) {
        let rows = &mut *os::lock(&self.rows);
        for number in 0..rows.count {
            if let Some(row) = self.index.rows.get(number)
                && let handle @ 1.. = row[KEY].load(Relaxed) & HANDLE
                && !keeps(handle as usize, (row[LINK].load(Relaxed) >> 32) as u32)
            {
                self.take_out(rows, number, row);
            }
        }
    }

    fn take_out(&self, rows: &mut Rows, number: u32, row: &Row) {
        self.index.remove(number, hash_of(row));
        self.free(rows, number, row);
    }

    /// A row that is in no chain serves another object.
    fn free(&self, rows: &mut Rows, number: u32, row: &Row) {
        row[KEY].store(((row[KEY].load(Relaxed) >> BITS) + 1) << BITS, Release);
        set_low(&row[LINK], rows.unused);
        rows.unused = number + 1;
    }

    /// All objects. Of one that comes or goes meanwhile either.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, u32)> {
        let count = os::lock(&self.rows).count;
        let rows = (0..count).filter_map(|number| self.index.rows.get(number));
        rows.filter_map(read).filter(|&(handle, _)| handle != 0).map(|(handle, value)| (handle as usize, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_what_was_set_last_until_it_is_removed() {
        let map = Map::new(1 << 20);
        assert_eq!(map.find(0x10), None);
        assert_eq!([map.set(0x10, 1), map.set(0x10, 2), map.set(0x20, 3)], [Ok(None), Ok(Some(1)), Ok(None)]);
        assert_eq!([map.find(0x10), map.find(0x20), map.find(0x30)], [Some(2), Some(3), None]);
        assert_eq!([map.remove(0x10), map.remove(0x10), map.find(0x10)], [Some(2), None, None]);
        assert_eq!((map.iter().collect::<Vec<_>>(), map.iter().count()), (vec![(0x20, 3)], 1));
        assert_eq!([map.set(0, 1), map.set(1 << 48, 1)], [Err(Full); 2]);
        assert_eq!([map.find(0), map.find(1 << 48)], [None; 2]);
    }

    #[test]
    fn set_more_than_there_may_be_the_rest_is_not_known() {
        let map = Map::new(2);
        assert_eq!([0x10, 0x20, 0x30].map(|handle| map.set(handle, 1)), [Ok(None), Ok(None), Err(Full)]);
        assert_eq!([0x10, 0x20, 0x30].map(|handle| map.find(handle)), [Some(1), Some(1), None]);
        map.remove(0x10);
        assert_eq!(map.set(0x30, 2), Ok(None));
        assert_eq!(map.find(0x30), Some(2));
    }

    #[test]
    fn set_as_many_as_there_are_and_rows_serve_others() {
        const MANY: usize = if cfg!(miri) { 200 } else { 100_000 };
        let map = Map::new(1 << 20);
        for round in 0..3 {
            let handles = || (1..=MANY).map(move |n| (n + round * MANY) * 0x40);
            handles().for_each(|handle| assert_eq!(map.set(handle, handle as u32), Ok(None)));
            assert!(handles().all(|handle| map.find(handle) == Some(handle as u32)));
            map.retain(|handle, _| handle % 0x80 == 0);
            assert_eq!(map.iter().count(), MANY / 2);
            map.retain(|_, _| false);
        }
        assert_eq!((map.iter().count(), os::lock(&map.rows).count), (0, MANY as u32));
    }

    /// While rows come, go and move between chains, what stays is found, with its own word.
    #[test]
    fn find_beside_changes_misses_nothing_that_stays() {
        let map = &Map::new(1 << 20);
        let stays = || (1..=64).map(|n| n * 0x1000);
        stays().for_each(|handle| _ = map.set(handle, handle as u32));
        std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                let (rounds, most) = if cfg!(miri) { (3, 20) } else { (200, 500) };
                for round in 0..rounds {
                    let comes = || (1..=most).map(move |n| 0x10_0000 + n * 0x40 + round * 0x10_0000);
                    comes().for_each(|handle| _ = map.set(handle, handle as u32));
                    comes().for_each(|handle| _ = map.remove(handle));
                }
            });
            while !changes.is_finished() {
                stays().for_each(|handle| assert_eq!(map.find(handle), Some(handle as u32)));
                let others = (1..=500).map(|n| 0x10_0000 + n * 0x40);
                others.for_each(|handle| assert!(map.find(handle).is_none_or(|found| found == handle as u32)));
            }
        });
    }
}
