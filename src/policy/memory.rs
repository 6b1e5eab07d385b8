//! Which device an address belongs to, without asking the driver twice.
//!
//! The driver is asked once about an allocation; the answer is kept until any memory goes away. Looking up takes no lock:
//! each entry has a version that is odd while the entry is being written. An answer that is out of date after all (the
//! memory went away unseen) costs a wrong word in the log or a copy that is slower than it could be, never a byte:
//! copies are made by the driver, which knows better.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};

/// What an address points to, as far as the way of a copy depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Memory of the host that the driver knows.
    Host,
    /// Memory of a device that belongs to a context.
    Plain,
    /// Memory of a pool.
    Pool,
    /// Memory that the program mapped itself.
    Mapped,
}

/// An address that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// What it is.
    pub(crate) kind: Kind,
    /// The device where it lies, by ordinal; 0 for the host.
    pub(crate) device: u8,
    /// Who holds it, by number; 0 for none.
    pub(crate) owner: u8,
    /// For mapped memory: the devices that may access it, a bit each.
    pub(crate) reach: u64,
}

impl Place {
    fn pack(self) -> u64 {
        u64::from(self.owner) | u64::from(self.device) << 8 | (self.kind as u64) << 16
    }

    #[inline(always)]
    fn unpack(info: u64, reach: u64) -> Self {
        let [owner, device, kind, ..] = info.to_le_bytes();
        let kind = match kind {
            0 => Kind::Host,
            1 => Kind::Plain,
            2 => Kind::Pool,
            _ => Kind::Mapped,
        };
        Self { kind, device, owner, reach }
    }
}

/// One allocation; in a cache line of its own.
#[repr(align(64))]
struct Entry {
    version: AtomicU64,
    generation: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
    info: AtomicU64,
    reach: AtomicU64,
}

impl Entry {
    const fn empty() -> Self {
        Self {
            version: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            info: AtomicU64::new(0),
            reach: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn get(&self, address: u64, generation: u64) -> Option<Place> {
        let version = self.version.load(Acquire);
        let (start, end) = (self.start.load(Relaxed), self.end.load(Relaxed));
        let (info, reach) = (self.info.load(Relaxed), self.reach.load(Relaxed));
        let is_current = self.generation.load(Relaxed) == generation;
        fence(Acquire);
        let is_whole = version & 1 == 0 && self.version.load(Relaxed) == version;
        (is_current && is_whole && start <= address && address < end).then(|| Place::unpack(info, reach))
    }

    /// Fills the entry, unless another thread is doing so.
    fn set(&self, start: u64, end: u64, place: Place, generation: u64) {
        let version = self.version.load(Relaxed);
        let odd = version.wrapping_add(1);
        if version & 1 != 0 || self.version.compare_exchange(version, odd, AcqRel, Relaxed).is_err() {
            return;
        }
        fence(Release);
        self.generation.store(generation, Relaxed);
        self.start.store(start, Relaxed);
        self.end.store(end, Relaxed);
        self.info.store(place.pack(), Relaxed);
        self.reach.store(place.reach, Relaxed);
        self.version.store(odd.wrapping_add(1), Release);
    }
}

/// Number of entries, a power of two.
const ENTRIES: usize = 4096;
/// Allocations of this size and more are found by the block of this size that the address lies in, others by the page.
const BLOCK_BITS: u32 = 21;
const PAGE_BITS: u32 = 12;

/// The allocations seen so far.
pub(crate) struct Cache {
    entries: [Entry; ENTRIES],
    /// Entries of another generation are empty.
    generation: AtomicU64,
    /// Whether there is any entry of this generation.
    is_filled: AtomicBool,
}

impl Cache {
    pub(crate) const fn new() -> Self {
        Self {
            entries: [const { Entry::empty() }; ENTRIES],
            generation: AtomicU64::new(1),
            is_filled: AtomicBool::new(false),
        }
    }

    /// The generation that an answer of the driver belongs to which is asked for from now on.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    /// What is known about an address.
    #[inline(always)]
    pub(crate) fn find(&self, address: u64) -> Option<Place> {
        let generation = self.generation.load(Relaxed);
        let by_block = self.entry(address >> BLOCK_BITS, 0).and_then(|entry| entry.get(address, generation));
        by_block.or_else(|| self.entry(address >> PAGE_BITS, 1).and_then(|entry| entry.get(address, generation)))
    }

    /// Remembers an allocation that `address` lies in. Dropped if memory has gone away since `generation`.
    pub(crate) fn insert(&self, address: u64, (start, size): (u64, u64), place: Place, generation: u64) {
        let is_large = size >> BLOCK_BITS != 0;
        let entry = if is_large { self.entry(address >> BLOCK_BITS, 0) } else { self.entry(address >> PAGE_BITS, 1) };
        if let Some(entry) = entry {
            self.is_filled.store(true, Relaxed);
            entry.set(start, start.saturating_add(size), place, generation);
        }
    }

    /// Forgets everything: memory has gone away, or its rights have changed.
    #[inline]
    pub(crate) fn forget(&self) {
        if self.is_filled.load(Relaxed) {
            self.is_filled.store(false, Relaxed);
            self.generation.fetch_add(1, AcqRel);
        }
    }

    #[inline(always)]
    fn entry(&self, key: u64, salt: u64) -> Option<&Entry> {
        /// Spreads neighbours (Fibonacci hashing).
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let spread = (key ^ salt << 60).wrapping_mul(SPREAD);
        self.entries.get((spread >> (64 - ENTRIES.trailing_zeros())) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(owner: u8) -> Place {
        Place { kind: Kind::Plain, device: owner, owner, reach: 0 }
    }

    #[test]
    fn find_any_address_inside_and_none_outside() {
        let cache = Box::new(Cache::new());
        for (start, size, owner) in [(0x7f00_0000_0000, 64 << 20, 1), (0x7f10_0000_0200, 512, 2)] {
            cache.insert(start, (start, size), place(owner), cache.generation());
            assert_eq!(cache.find(start), Some(place(owner)));
            assert_eq!(cache.find(start + size - 1).map_or(owner, |found| found.owner), owner);
            assert_eq!(cache.find(start - 1), None);
            assert_eq!(cache.find(start + size), None);
        }
    }

    #[test]
    fn find_each_block_of_a_large_allocation_is_learnt_once() {
        let cache = Box::new(Cache::new());
        let (start, size) = (0x7f00_0000_0000, 64 << 20);
        for address in [start, start + (2 << 20), start + (62 << 20) + 5] {
            cache.insert(address, (start, size), place(1), cache.generation());
            assert_eq!(cache.find(address + 7), Some(place(1)));
        }
    }

    #[test]
    fn forget_all_and_late_answers_are_dropped() {
        let cache = Box::new(Cache::new());
        let before = cache.generation();
        cache.insert(0x1000, (0x1000, 64), place(1), before);
        cache.forget();
        assert_eq!(cache.find(0x1000), None);
        cache.insert(0x1000, (0x1000, 64), place(1), before);
        assert_eq!(cache.find(0x1000), None, "the answer is from before");
        cache.insert(0x1000, (0x1000, 64), place(2), cache.generation());
        assert_eq!(cache.find(0x1000), Some(place(2)));
    }

    #[test]
    fn find_while_written_gives_a_whole_entry_or_none() {
        let cache: &Cache = Box::leak(Box::new(Cache::new()));
        std::thread::scope(|scope| {
            for owner in 1..=2u8 {
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let reach = u64::from(owner);
                        cache.insert(0x1000, (0x1000, 64), Place { reach, ..place(owner) }, 1);
                    }
                });
            }
            for _ in 0..20_000 {
                if let Some(found) = cache.find(0x1010) {
                    assert!(found.owner == found.device && u64::from(found.owner) == found.reach, "{found:?}");
                }
            }
        });
    }

    #[test]
    fn pack_every_kind_comes_back() {
        for kind in [Kind::Host, Kind::Plain, Kind::Pool, Kind::Mapped] {
            let place = Place { kind, device: 63, owner: 127, reach: u64::MAX };
            assert_eq!(Place::unpack(place.pack(), place.reach), place);
        }
    }
}
