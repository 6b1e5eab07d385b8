//! Which device an address belongs to, without asking the driver twice.
//!
//! The driver is asked once about an allocation. Its answer is kept until the allocation is freed, or its owner ends. Looking up takes no
//! lock: each entry has a version that is odd while the entry is being written. A result that is out of date after all (the
//! memory went away unseen) costs a wrong word in the log, a copy that is slower than it could be or does not keep its waits; copies are made by
//! the driver, which knows better. Where copies must not be left to the driver, on blocked pairs, nothing that
//! is remembered here decides about them.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};

use super::generations::Generations;
use crate::os::table::spread;

/// The kind of memory at an address, as far as the path of a copy depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Memory of the host that the driver knows.
    Host,
    /// Memory of a device that belongs to a context.
    Plain,
    Pool,
    /// Memory that the program mapped itself.
    Mapped,
    /// Memory whose copies are not ours to judge.
    Foreign,
    /// Memory of another process. Its device is a number that stands for one that is not known.
    Remote,
    /// The driver did not know it when it was asked: ordinary memory of the host, most likely.
    Unknown,
}

/// An address that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    /// The device where it lies, by ordinal or the number that stands for it; 0 for the host.
    pub(crate) device: u8,
    /// The number of its allocation owner; 0 for none.
    pub(crate) owner: u8,
    /// For mapped memory: the devices that may access it, a bit each. For memory of a context: that, if it is known. 0 else.
    pub(crate) of: u64,
}

impl Place {
    /// Memory without rights of its own, of no context that is known.
    pub(crate) const fn new(kind: Kind, device: u8, owner: u8) -> Self {
        Self { kind, device, owner, of: 0 }
    }

    /// Whether who may access it is said of the memory, not of its device.
    #[inline(always)]
    pub(crate) fn has_rights(&self) -> bool {
        matches!(self.kind, Kind::Pool | Kind::Mapped)
    }

    /// Whether it is a device's, and it is not known who holds it: its pool is gone, or there are more of them than are told apart.
    pub(crate) fn is_nobodys(&self) -> bool {
        self.owner == 0 && matches!(self.kind, Kind::Plain | Kind::Pool | Kind::Mapped)
    }

    fn pack(self) -> u64 {
        u64::from(self.owner) | u64::from(self.device) << 8 | (self.kind as u64) << 16
    }

    #[inline(always)]
    fn unpack(info: u64, of: u64) -> Self {
        let [owner, device, kind, ..] = info.to_le_bytes();
        let kind = match kind {
            0 => Kind::Host,
            1 => Kind::Plain,
            2 => Kind::Pool,
            3 => Kind::Mapped,
            4 => Kind::Foreign,
            5 => Kind::Remote,
            _ => Kind::Unknown,
        };
        Self { kind, device, owner, of }
    }
}

/// One allocation; in a cache line of its own. A version guards its words.
#[repr(align(64))]
struct Entry {
    version: AtomicU64,
    /// The generation of the owner. Of address space that the driver does not know: how often memory had changed.
    since: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
    info: AtomicU64,
    of: AtomicU64,
}

impl Entry {
    const fn empty() -> Self {
        Self {
            version: AtomicU64::new(0),
            since: AtomicU64::new(0),
            start: AtomicU64::new(0),
            end: AtomicU64::new(0),
            info: AtomicU64::new(0),
            of: AtomicU64::new(0),
        }
    }

    /// The allocation, if it contains the address, and its owner's generation, or for unknown address space the count of changes.
    #[inline(always)]
    fn get(&self, address: u64) -> Option<(Place, Range<u64>, u64)> {
        let version = self.version.load(Acquire);
        let range = self.start.load(Relaxed)..self.end.load(Relaxed);
        // Words read while another thread writes are thrown away below, if they are not here.
        if !range.contains(&address) {
            return None;
        }
        let place = Place::unpack(self.info.load(Relaxed), self.of.load(Relaxed));
        let since = self.since.load(Relaxed);
        fence(Acquire);
        let is_whole = version & 1 == 0 && self.version.load(Relaxed) == version;
        is_whole.then_some((place, range, since))
    }

    /// Whether it may be an allocation that contains the address: it is, or it is being written.
    #[inline(always)]
    fn may_contain(&self, address: u64) -> bool {
        let version = self.version.load(Acquire);
        let contains = (self.start.load(Relaxed)..self.end.load(Relaxed)).contains(&address);
        fence(Acquire);
        contains || version & 1 != 0 || self.version.load(Relaxed) != version
    }

    /// By the one thread that may write.
    fn set(&self, range: Range<u64>, place: Place, since: u64) {
        let version = self.version.load(Relaxed);
        self.version.store(version.wrapping_add(1), Relaxed);
        fence(Release);
        self.since.store(since, Relaxed);
        self.start.store(range.start, Relaxed);
        self.end.store(range.end, Relaxed);
        self.info.store(place.pack(), Relaxed);
        self.of.store(place.of, Relaxed);
        self.version.store(version.wrapping_add(2), Release);
    }
}

/// How often memory had changed when the driver was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since(u64);

/// Number of sets, a power of two. Two allocations fit into a set.
const SETS: usize = 2048;

/// The cache finds an allocation by pieces of fixed size, a power of two. The size is the largest of these that does not exceed the
/// allocation. So few pieces cover it, and at most two allocations share a piece. The piece in which an allocation begins is there as long as any
/// of its pieces is.
const PIECES: [u32; 6] = [31, 26, 21, 16, 12, ALIGNMENT];
/// The size of pieces that the driver does not know, which no allocation has.
const UNKNOWN: u32 = 20;
/// CUDA aligns every allocation to so many bytes, by its programming guide.
const ALIGNMENT: u32 = 8;

/// The allocations seen so far.
pub(crate) struct Cache {
    sets: [[Entry; 2]; SETS],
    /// An entry holds for one generation of its owner.
    owners: Generations,
    /// How often any memory has changed. An answer from before is dropped; so is an entry of what the driver does not know, which may have been given
    /// away.
    changes: AtomicU64,
    /// The sizes of pieces for which there was any entry so far: bit n stands for 2^n bytes.
    sizes: AtomicU32,
    /// Whether a thread is writing entries. Nobody waits for it: an answer is dropped then, and a thread that forgets then forgets all.
    is_being_written: AtomicBool,
}

impl Cache {
    pub(crate) const fn new() -> Self {
        Self {
            sets: [const { [const { Entry::empty() }; 2] }; SETS],
            owners: Generations::new(),
            changes: AtomicU64::new(0),
            sizes: AtomicU32::new(0),
            is_being_written: AtomicBool::new(false),
        }
    }

    /// Read before the driver is asked, and put in with the answer.
    pub(crate) fn now(&self) -> Since {
        Since(self.changes.load(Acquire))
    }

    #[inline(always)]
    pub(crate) fn find(&self, address: u64) -> Option<Place> {
        self.find_range(address).map(|(place, _)| place)
    }

    /// The place of an address, and the addresses of its allocation.
    #[inline(always)]
    pub(crate) fn find_range(&self, address: u64) -> Option<(Place, Range<u64>)> {
        self.find_any(address).filter(|(place, _)| place.kind != Kind::Unknown)
    }

    /// The place of an address, also if the driver did not know it.
    #[inline(always)]
    pub(crate) fn find_any(&self, address: u64) -> Option<(Place, Range<u64>)> {
        let mut sizes = self.sizes.load(Relaxed);
        let mut unknown = None;
        while let Some(bits) = sizes.checked_ilog2() {
            match self.set(address, bits)?.iter().find_map(|entry| self.current(entry, address)) {
                // Of a piece of address space, in which smaller allocations may be known.
                Some(found @ (Place { kind: Kind::Unknown, .. }, _)) => unknown = Some(found),
                Some(found) => return Some(found),
                None => {}
            }
            sizes ^= 1 << bits;
        }
        unknown
    }

    /// The place that an entry gives an address, if it still holds.
    #[inline(always)]
    fn current(&self, entry: &Entry, address: u64) -> Option<(Place, Range<u64>)> {
        let (place, range, since) = entry.get(address)?;
        let now = if place.kind == Kind::Unknown { self.changes.load(Acquire) } else { self.owners.of(place.owner) };
        (since == now).then_some((place, range))
    }

    /// Remembers an allocation that `address` lies in. Dropped if memory has changed since, or another thread is writing.
    pub(crate) fn insert(&self, address: u64, (start, bytes): (u64, u64), place: Place, since: Since) {
        let range = start..start.saturating_add(bytes);
        let bits = bits_of(&range);
        // Read before it is known that nothing has changed since: then it is the generation of the answer.
        let generation = self.owners.of(place.owner);
        self.insert_with(since, bits, || {
            self.insert_piece(start, bits, &range, place, generation);
            if start >> bits != address >> bits {
                self.insert_piece(address, bits, &range, place, generation);
                // If both pieces have one place, and another allocation the other one.
                if self.find_range(start).is_none_or(|(_, found)| found != range) {
                    self.forget_pieces(&range);
                }
            }
        });
    }

    /// Remembers that the driver does not know an address. Memory around it is taken to be of the same kind: the
    /// driver takes address space for devices in larger pieces.
    pub(crate) fn insert_unknown(&self, address: u64, since: Since) {
        let start = address >> UNKNOWN << UNKNOWN;
        let range = start..start.saturating_add(1 << UNKNOWN);
        let place = Place::new(Kind::Unknown, 0, 0);
        self.insert_with(since, UNKNOWN, || self.insert_piece(start, UNKNOWN, &range, place, since.0));
    }

    fn insert_with(&self, since: Since, bits: u32, insert: impl FnOnce()) {
        self.write(|| {
            if self.now() == since {
                self.sizes.fetch_or(1 << bits, Relaxed);
                insert();
            }
        });
    }

    fn insert_piece(&self, address: u64, bits: u32, range: &Range<u64>, place: Place, since: u64) {
        let Some([one, other]) = self.set(address, bits) else { return };
        // Whether the allocation displaces no other valid one there.
        let is_free = |entry: &Entry| {
            let found = entry.start.load(Relaxed);
            found == range.start || self.current(entry, found).is_none()
        };
        let is_other = !is_free(one)
            // The one that was written less often: the others of this set take turns.
            && (is_free(other) || other.version.load(Relaxed) < one.version.load(Relaxed));
        let entry = if is_other { other } else { one };
        let before = entry.start.load(Relaxed)..entry.end.load(Relaxed);
        entry.set(range.clone(), place, since);
        // Without its first piece the rest of an allocation would not be found when that is freed.
        let first = self.set(before.start, bits_of(&before)).map(|set| set.as_ptr_range());
        if before.start != range.start && first.is_some_and(|set| set.contains(&ptr::from_ref(entry))) {
            self.forget_pieces(&before);
        }
    }

    /// Some memory has changed, of which nothing may be known: the driver may be answering a question that was asked before.
    pub(crate) fn count_change(&self) {
        self.changes.fetch_add(1, AcqRel);
    }

    /// The memory of an owner has gone away, or its rights have changed.
    pub(crate) fn forget(&self, owner: u8) {
        self.count_change();
        self.owners.end(owner);
    }

    /// Any memory may have gone away.
    #[inline]
    pub(crate) fn forget_all(&self) {
        self.count_change();
        self.owners.end_all();
    }

    /// The allocation that begins at an address was freed. Space that the driver did not know, and answers that it is giving, are forgotten. Whether
    /// [`Cache::forget_at`] has to follow.
    #[inline]
    pub(crate) fn may_know_freed(&self, start: u64) -> bool {
        self.count_change();
        fence(SeqCst);
        // A thread that begins to write after this finds that memory has changed.
        self.is_being_written.load(Acquire) || self.may_hold(start)
    }

    /// Whether an entry may be of an address. One that is being written counts: the pieces of the allocation that it was of are still there.
    #[inline(always)]
    fn may_hold(&self, address: u64) -> bool {
        let mut sizes = self.sizes.load(Relaxed);
        while let Some(bits) = sizes.checked_ilog2() {
            if self.set(address, bits).is_some_and(|set| set.iter().any(|entry| entry.may_contain(address))) {
                return true;
            }
            sizes ^= 1 << bits;
        }
        false
    }

    /// Forgets the allocation that begins at an address. All else stays.
    #[cold]
    pub(crate) fn forget_at(&self, start: u64) {
        let is_whole = || match self.find_range(start) {
            Some((_, range)) if range.start == start => {
                self.forget_pieces(&range);
                true
            }
            // A part of it only, or a handle that is none of memory that is known here.
            Some(_) => false,
            None => true,
        };
        if self.write(is_whole) != Some(true) {
            self.forget_all();
        }
    }

    fn forget_pieces(&self, range: &Range<u64>) {
        let bits = bits_of(range);
        let sets = (range.start >> bits..=range.end.saturating_sub(1) >> bits)
            .filter_map(|piece| self.set(piece << bits, bits));
        let entries = sets.flatten().filter(|entry| entry.start.load(Relaxed) == range.start);
        entries.for_each(|entry| entry.set(0..0, Place::new(Kind::Unknown, 0, 0), 0));
    }

    /// Writes entries, if no other thread does. With signals held back: a handler may leave by `longjmp`.
    fn write<T>(&self, write: impl FnOnce() -> T) -> Option<T> {
        if self.is_being_written.swap(true, Acquire) {
            return None;
        }
        fence(SeqCst);
        let result = write();
        self.is_being_written.store(false, Release);
        Some(result)
    }

    /// Where the piece of 2^`bits` bytes that an address lies in is kept.
    #[inline(always)]
    fn set(&self, address: u64, bits: u32) -> Option<&[Entry; 2]> {
        self.sets.get(spread(address >> bits, SETS.trailing_zeros()))
    }
}

/// The size of an allocation's pieces.
fn bits_of(range: &Range<u64>) -> u32 {
    let bytes = range.end.saturating_sub(range.start);
    PIECES.into_iter().find(|bits| bytes >> bits != 0).unwrap_or(ALIGNMENT)
}

#[cfg(test)]
mod tests;
