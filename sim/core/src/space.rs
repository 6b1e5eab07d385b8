//! The unified address space: which address belongs to which allocation.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::ids::{ContextId, PoolHandle};
use crate::os;

/// Memory that each device claims to have, in bytes.
pub const DEVICE_MEMORY: u64 = 8 << 30;
/// Addresses set aside for each device; more than memory, so that fragments never stand in the way.
pub(crate) const RESERVE: u64 = 64 << 30;
/// Device allocations start at, and take up, multiples of this many bytes; from a page on, whole pages.
pub const GRANULE: u64 = 512;

/// The kind of an allocation's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Linear device memory.
    Device,
    /// The storage of an array, which has no address for the program.
    Array,
    /// Page-locked host memory that the simulation allocated.
    Pinned,
    /// Host memory of the program that it registered.
    Registered,
    /// Device memory that the program mapped to addresses itself.
    Mapped,
    /// Device memory that another process allocated.
    Imported,
}

impl Kind {
    /// Whether the memory is on the host.
    pub fn is_host(self) -> bool {
        matches!(self, Kind::Pinned | Kind::Registered)
    }
}

/// The owner that an allocation ends with, and takes its rights of access from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A context.
    Context(ContextId),
    /// A memory pool.
    Pool(PoolHandle),
    /// The program, which maps and unmaps it.
    Mapping,
    /// Its device; rights are granted allocation by allocation.
    Device,
    /// Another process; it ends for this one with the context that imported it.
    Import(ContextId),
}

impl Owner {
    /// The context, if it is one, or imported it.
    pub fn context(self) -> Option<ContextId> {
        if let Owner::Context(context) | Owner::Import(context) = self { Some(context) } else { None }
    }
}

/// A live allocation.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// First address.
    pub base: u64,
    /// Length in bytes, as asked for.
    pub size: u64,
    /// Its memory's kind.
    pub kind: Kind,
    /// Its owner.
    pub owner: Owner,
    /// The device whose memory it is, or that its context is of.
    pub device: usize,
    /// Never used twice in a process, unlike addresses.
    pub id: u64,
    /// Flags that it was allocated or registered with.
    pub flags: u32,
    /// The gate of work that freeing it does not wait for.
    pub(crate) mapped: Arc<Gate>,
}

impl Allocation {
    /// Whether one of that size would take as much memory.
    pub(crate) fn is_as_large_as(&self, size: u64) -> bool {
        granules(self.size) == granules(size) && granule(self.size) == granule(size)
    }

    /// Whether `length` bytes from `address` on lie inside.
    pub fn holds(&self, address: u64, length: u64) -> bool {
        address >= self.base && address - self.base <= self.size && length <= self.size - (address - self.base)
    }
}

/// Addresses of one device, or of memory that other processes allocated: free ranges by their start.
#[derive(Debug)]
struct Reserve {
    whole: Range<u64>,
    free: BTreeMap<u64, u64>,
    used: u64,
    /// Bytes that may be used at a time.
    limit: u64,
}

impl Reserve {
    fn new(is_guarded: bool) -> Result<Reserve> {
        let map = if is_guarded { os::guard } else { os::map };
        let (base, length) = match map(RESERVE) {
            Ok(base) => (base, RESERVE),
            // Limits on address space (ulimit -v, valgrind) may leave room for less.
            Err(_) => (map(DEVICE_MEMORY)?, DEVICE_MEMORY),
        };
        os::discard(base, length);
        let free = BTreeMap::from([(base, length)]);
        Ok(Reserve { whole: base..base + length, free, used: 0, limit: DEVICE_MEMORY })
    }

    /// First fit: freed addresses come back soon, as they do with a real driver.
    fn take(&mut self, length: u64, alignment: u64) -> Result<u64> {
        if length > self.limit - self.used {
            return Err(Error::OUT_OF_MEMORY);
        }
        let skipped = |start: u64| start.next_multiple_of(alignment) - start;
        let found = self.free.iter().find(|(start, free)| **free >= skipped(**start) + length);
        let (before, free) = found.map(|(start, free)| (*start, *free)).ok_or(Error::OUT_OF_MEMORY)?;
        let (start, end) = (before.next_multiple_of(alignment), before + free);
        self.free.remove(&before);
        if start > before {
            self.free.insert(before, start - before);
        }
        if end > start + length {
            self.free.insert(start + length, end - start - length);
        }
        self.used += length;
        Ok(start)
    }

    fn give_back(&mut self, start: u64, length: u64) {
        self.used -= length;
        let (mut start, mut length) = (start, length);
        if let Some(next) = self.free.remove(&(start + length)) {
            length += next;
        }
        if let Some((before, free)) = self.free.range(..start).next_back().map(|(before, free)| (*before, *free))
            && before + free == start
        {
            self.free.remove(&before);
            start = before;
            length += free;
        }
        self.free.insert(start, length);
    }
}

/// Addresses that the program set aside; a little more than it asked for is mapped, to align them.
#[derive(Debug)]
struct Reservation {
    size: u64,
    whole: Range<u64>,
}

/// All allocations of the machine.
#[derive(Debug)]
pub(crate) struct Space {
    /// One for each device, or one for all of them and for page-locked memory.
    reserves: Vec<Reserve>,
    is_shared: bool,
    /// Whether the host cannot touch memory of devices.
    is_guarded: bool,
    /// Addresses of what other processes allocated; set aside at the first import.
    imports: Option<Reserve>,
    allocations: BTreeMap<u64, Allocation>,
    reservations: BTreeMap<u64, Reservation>,
    /// Files with what other processes may see of allocations, by their numbers.
    shared: HashMap<u64, Arc<File>>,
    /// Pages of small allocations that other processes may see: how many bytes, and their file, by the first address.
    small: BTreeMap<u64, (u64, File)>,
    /// Memory that was freed, by device and size, while another process has it open: it is given back when that is closed. Measured on an H200.
    lingering: Vec<(usize, u64, File)>,
    last_id: u64,
}

impl Space {
    /// Sets addresses aside for `devices` devices; where `is_shared`, those of one may be another's, or the host's, next time.
    /// Where `is_guarded`, and not that, the host cannot touch memory of devices.
    pub(crate) fn new(devices: usize, is_shared: bool, is_guarded: bool) -> Result<Space> {
        let is_guarded = is_guarded && !is_shared;
        let reserves = (0..if is_shared { devices.min(1) } else { devices }).map(|_| Reserve::new(is_guarded));
        let reserves = reserves.collect::<Result<_>>()?;
        let (allocations, reservations, shared) = (BTreeMap::new(), BTreeMap::new(), HashMap::new());
        Ok(Space {
            reserves,
            is_shared,
            is_guarded,
            imports: None,
            allocations,
            reservations,
            shared,
            small: BTreeMap::new(),
            lingering: Vec::new(),
            last_id: 0,
        })
    }

    fn reserve_of(&mut self, device: usize) -> Option<&mut Reserve> {
        self.reserves.get_mut(if self.is_shared { 0 } else { device })
    }

    /// Allocates on a device, or on the host for [`Kind::Pinned`].
    pub(crate) fn allocate(&mut self, kind: Kind, size: u64, owner: Owner, device: usize, flags: u32) -> Result<u64> {
        if size == 0 {
            return Err(Error::INVALID_VALUE);
        }
        let base = match kind {
            Kind::Pinned if !self.is_shared => os::map(size)?,
            Kind::Registered | Kind::Mapped | Kind::Imported => return Err(Error::INVALID_VALUE),
            Kind::Device | Kind::Array | Kind::Pinned => {
                let length = granules(size).ok_or(Error::OUT_OF_MEMORY)?;
                let reserve = self.reserve_of(device).ok_or(Error::INVALID_DEVICE)?;
                let base = reserve.take(length, granule(size))?;
                if let Err(error) = os::allow(base, length) {
                    reserve.give_back(base, length);
                    return Err(error);
                }
                base
            }
        };
        os::expect_use(base, size);
        self.insert(base, size, kind, owner, device, flags);
        Ok(base)
    }

    /// Makes host memory of the program known.
    pub(crate) fn register(&mut self, base: u64, size: u64, owner: Owner, device: usize, flags: u32) -> Result<()> {
        let end = base.checked_add(size).ok_or(Error::INVALID_VALUE)?;
        let last_before = self.allocations.range(..end).next_back();
        if last_before.is_some_and(|(start, known)| start + known.size > base) {
            return Err(Error::HOST_MEMORY_ALREADY_REGISTERED);
        }
        self.insert(base, size, Kind::Registered, owner, device, flags);
        Ok(())
    }

    /// Shares an allocation with other processes, by a file of that name whose bytes are the allocation's from now on, and the place in it.
    /// An allocation smaller than a page is shared with all else that is there, as small memory is with a real driver.
    pub(crate) fn share(&mut self, found: &Allocation, name: &CStr) -> Result<(&File, u64)> {
        let start = found.base / os::PAGE * os::PAGE;
        let length = pages(found.base - start + found.size).ok_or(Error::INVALID_VALUE)?;
        if granule(found.size) == os::PAGE {
            let file = match self.shared.entry(found.id) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let overlaps = |from: u64, size: u64| from < start + length && start < from + size;
                    self.small.retain(|from, (size, _)| !overlaps(*from, *size));
                    new.insert(Arc::new(os::share(name, found.base, length)?))
                }
            };
            return Ok((file, 0));
        }
        let known = self.small.range(..=start).next_back().map(|(from, (size, _))| (*from, from + size));
        let holder = match known {
            Some((from, end)) if start + length <= end => from,
            // Pages that are shared in part already.
            Some((_, end)) if start < end => return Err(Error::NOT_SUPPORTED),
            _ if self.small.range(start..start + length).next().is_some() => return Err(Error::NOT_SUPPORTED),
            _ => {
                self.small.insert(start, (length, os::share(name, start, length)?));
                start
            }
        };
        let (_, file) = self.small.get(&holder).ok_or(Error::UNKNOWN)?;
        Ok((file, found.base - holder))
    }

    /// Allocates on a device whole pages of a file of [`RESERVE`] bytes, which lie in it as they lie in the device's memory.
    pub(crate) fn allocate_in(&mut self, file: &Arc<File>, size: u64, owner: Owner, device: usize) -> Result<u64> {
        let length = pages(size).filter(|length| *length > 0).ok_or(Error::INVALID_VALUE)?;
        let reserve = self.reserve_of(device).ok_or(Error::INVALID_DEVICE)?;
        let base = reserve.take(length, os::PAGE)?;
        if let Err(error) = os::put_file(base, length, file, base - reserve.whole.start) {
            reserve.give_back(base, length);
            return Err(error);
        }
        self.insert(base, size, Kind::Device, owner, device, 0);
        self.shared.insert(self.last_id, Arc::clone(file));
        Ok(base)
    }

    /// Makes memory of a device known that another process shares, from a place in a file on. Its address is one of device memory also when
    /// it is gone again.
    pub(crate) fn import(
        &mut self,
        (file, place): (&File, u64),
        size: u64,
        owner: Owner,
        device: usize,
    ) -> Result<u64> {
        let within = place % os::PAGE;
        let whole = size.checked_add(within).and_then(pages).filter(|_| size > 0);
        let length = whole.ok_or(Error::INVALID_VALUE)?;
        let reserve = match &mut self.imports {
            Some(reserve) => reserve,
            none => none.insert(Reserve { limit: u64::MAX, ..Reserve::new(self.is_guarded)? }),
        };
        let base = reserve.take(length, os::PAGE)?;
        if os::put_file(base, length, file, place - within).is_err() {
            reserve.give_back(base, length);
            return Err(Error::MAP_FAILED);
        }
        self.insert(base + within, size, Kind::Imported, owner, device, 0);
        Ok(base + within)
    }

    fn insert(&mut self, base: u64, size: u64, kind: Kind, owner: Owner, device: usize, flags: u32) {
        self.last_id += 1;
        let (id, mapped) = (self.last_id, Gate::open());
        self.allocations.insert(base, Allocation { base, size, kind, owner, device, id, flags, mapped });
    }

    /// The allocation that an address lies in; the storage of arrays included.
    pub(crate) fn find(&self, address: u64) -> Option<&Allocation> {
        let (_, allocation) = self.allocations.range(..=address).next_back()?;
        (address - allocation.base < allocation.size).then_some(allocation)
    }

    /// How many allocations there are, host memory and the storage of arrays included.
    pub(crate) fn allocations(&self) -> usize {
        self.allocations.len()
    }

    /// Bytes of all page-locked memory.
    pub(crate) fn pinned(&self) -> u64 {
        self.allocations.values().filter(|known| known.kind.is_host()).map(|known| known.size).sum()
    }

    /// Whether an address can only ever be device memory, allocated or not.
    pub(crate) fn is_device_address(&self, address: u64) -> bool {
        let mut reserves = self.reserves.iter().chain(&self.imports);
        reserves.any(|reserve| reserve.whole.contains(&address)) || self.reservation(address).is_some()
    }

    /// How far from the first byte of its device's memory an address is; memory that was mapped to addresses of its own is at no
    /// distance.
    pub(crate) fn depth(&self, address: u64) -> u64 {
        let reserve = self.reserves.iter().find(|reserve| reserve.whole.contains(&address));
        reserve.map_or(0, |reserve| address - reserve.whole.start)
    }

    /// The device whose memory an address could be, if nothing is there: freed, or never allocated.
    pub(crate) fn gone(&self, address: u64) -> Option<usize> {
        let is_free = self.find(address).is_none();
        self.reserves.iter().position(|reserve| is_free && reserve.whole.contains(&address))
    }

    /// Makes an allocation unknown from now on; [`Space::recycle`] it once no work uses it any more.
    pub(crate) fn take(&mut self, base: u64, kind: Kind) -> Option<Allocation> {
        if self.allocations.get(&base)?.kind != kind {
            return None;
        }
        self.allocations.remove(&base)
    }

    /// Makes everything unknown that is of a kind, like [`Space::take`].
    pub(crate) fn take_where(&mut self, goes: impl Fn(&Allocation) -> bool) -> Vec<Allocation> {
        let gone: Vec<u64> = self.allocations.values().filter(|known| goes(known)).map(|known| known.base).collect();
        gone.iter().filter_map(|base| self.allocations.remove(base)).collect()
    }

    /// Sets addresses aside that start at a multiple of `alignment`.
    pub(crate) fn reserve(&mut self, size: u64, alignment: u64) -> Result<u64> {
        let length = size.checked_add(alignment).ok_or(Error::OUT_OF_MEMORY)?;
        let length = pages(length).ok_or(Error::OUT_OF_MEMORY)?;
        let start = if self.is_guarded { os::guard(length)? } else { os::map(length)? };
        os::discard(start, length);
        let base = start.next_multiple_of(alignment);
        self.reservations.insert(base, Reservation { size, whole: start..start + length });
        Ok(base)
    }

    /// Gives a whole range of set-aside addresses back, to which nothing is mapped.
    pub(crate) fn unreserve(&mut self, base: u64, size: u64) -> Result<()> {
        let fits = self.reservations.get(&base).is_some_and(|reservation| reservation.size == size);
        if !fits || self.allocations.range(base..base + size).next().is_some() {
            return Err(Error::INVALID_VALUE);
        }
        if let Some(Reservation { whole, .. }) = self.reservations.remove(&base) {
            let release = if self.is_guarded { os::unguard } else { os::unmap };
            release(whole.start, whole.end - whole.start);
        }
        Ok(())
    }

    /// Start and size of the set-aside range that an address lies in.
    pub(crate) fn reservation(&self, address: u64) -> Option<(u64, u64)> {
        let (base, reservation) = self.reservations.range(..=address).next_back()?;
        (address - base < reservation.size).then_some((*base, reservation.size))
    }

    /// Makes set-aside addresses, at which nothing is yet, memory of a device: that in a file, if processes share it.
    pub(crate) fn map(&mut self, base: u64, size: u64, device: usize, file: Option<&File>) -> Result<()> {
        let end = base.checked_add(size).ok_or(Error::INVALID_VALUE)?;
        let inside = self.reservation(base).is_some_and(|(start, length)| end <= start + length);
        let taken = self.allocations.range(..end).next_back().is_some_and(|(start, known)| start + known.size > base);
        if !inside || taken {
            return Err(Error::INVALID_VALUE);
        }
        file.map_or_else(|| os::allow(base, size), |file| os::put_file(base, size, file, 0))?;
        self.insert(base, size, Kind::Mapped, Owner::Mapping, device, 0);
        Ok(())
    }

    /// Takes memory of a device that gets its address elsewhere.
    pub(crate) fn charge(&mut self, device: usize, size: u64) -> Result<()> {
        let reserve = self.reserve_of(device).ok_or(Error::INVALID_DEVICE)?;
        if size > DEVICE_MEMORY - reserve.used {
            return Err(Error::OUT_OF_MEMORY);
        }
        reserve.used += size;
        Ok(())
    }

    /// Undoes [`Space::charge`].
    pub(crate) fn discharge(&mut self, device: usize, size: u64) {
        if let Some(reserve) = self.reserve_of(device) {
            reserve.used -= size;
        }
    }

    /// Makes the memory of an allocation that was taken out, and not given back, another one of that size, with the bytes that it has.
    pub(crate) fn revive(&mut self, gone: &Allocation, size: u64) {
        self.insert(gone.base, size, gone.kind, gone.owner, gone.device, gone.flags);
    }

    /// Gives the memory of an allocation back that was taken out.
    pub(crate) fn recycle(&mut self, gone: &Allocation) {
        match gone.kind {
            Kind::Registered => {}
            Kind::Mapped => os::unshare(gone.base, gone.size),
            Kind::Pinned if !self.is_shared => os::unmap(gone.base, gone.size),
            Kind::Imported => {
                let start = gone.base / os::PAGE * os::PAGE;
                let length = pages(gone.base - start + gone.size).unwrap_or_default();
                os::unshare(start, length);
                self.imports.iter_mut().for_each(|reserve| reserve.give_back(start, length));
            }
            Kind::Device | Kind::Array | Kind::Pinned => {
                let shared = self.shared.remove(&gone.id);
                let is_shared = shared.is_some();
                let length = if is_shared { pages(gone.size) } else { granules(gone.size) }.unwrap_or_default();
                // By another descriptor, so that nobody opens it any more.
                let open = shared.filter(|file| gone.owner.context().is_some() && os::is_held(file));
                let open = open.and_then(|file| file.try_clone().ok());
                self.lingering.extend(open.map(|file| (gone.device, length, file)));
                // An importer keeps the bytes that are there.
                if is_shared {
                    os::unshare(gone.base, length);
                }
                os::discard(gone.base, length);
                if let Some(reserve) = self.reserve_of(gone.device) {
                    reserve.give_back(gone.base, length);
                }
            }
        }
    }

    /// Bytes of a device's memory that are not allocated.
    pub(crate) fn free_memory(&mut self, device: usize) -> u64 {
        self.lingering.retain(|(.., file)| os::is_held(file));
        let open: u64 = self.lingering.iter().filter(|(of, ..)| *of == device).map(|(_, length, _)| *length).sum();
        let reserve = self.reserves.get(if self.is_shared { 0 } else { device });
        reserve.map_or(0, |reserve| (DEVICE_MEMORY - reserve.used).saturating_sub(open))
    }
}

/// Allocations of that size start at a multiple of this, and take up as much: large ones share no page with others.
fn granule(size: u64) -> u64 {
    if size < os::PAGE { GRANULE } else { os::PAGE }
}

fn granules(size: u64) -> Option<u64> {
    size.checked_next_multiple_of(granule(size))
}

/// Shared memory takes up whole pages.
fn pages(size: u64) -> Option<u64> {
    size.checked_next_multiple_of(os::PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner::Context(ContextId(1));

    fn allocate(space: &mut Space, size: u64) -> u64 {
        space.allocate(Kind::Device, size, OWNER, 0, 0).unwrap()
    }

    fn free(space: &mut Space, base: u64) {
        let gone = space.take(base, Kind::Device).unwrap();
        space.recycle(&gone);
    }

    #[test]
    fn find_inside_and_outside_an_allocation() {
        let mut space = Space::new(1, false, true).unwrap();
        let base = allocate(&mut space, 1000);
        assert_eq!(space.find(base + 999).unwrap().base, base);
        assert!(space.find(base + 1000).is_none());
        assert!(space.find(base - 1).is_none());
        assert!(space.find(base).unwrap().holds(base + 500, 500));
        assert!(!space.find(base).unwrap().holds(base + 500, 501));
    }

    #[test]
    fn free_makes_the_address_unknown_and_usable_again() {
        let mut space = Space::new(1, false, true).unwrap();
        let first = allocate(&mut space, 4096);
        let second = allocate(&mut space, 4096);
        let id = space.find(first).unwrap().id;
        free(&mut space, first);
        assert!(space.find(first).is_none());
        let third = allocate(&mut space, 2048);
        assert_eq!(third, first);
        assert_ne!(space.find(third).unwrap().id, id);
        free(&mut space, third);
        free(&mut space, second);
        assert_eq!(space.free_memory(0), DEVICE_MEMORY);
        assert_eq!(space.reserves[0].free.len(), 1);
    }

    #[test]
    fn allocate_more_than_the_device_has_is_refused() {
        let mut space = Space::new(1, false, true).unwrap();
        let refused = space.allocate(Kind::Device, DEVICE_MEMORY + 1, OWNER, 0, 0);
        assert_eq!(refused, Err(Error::OUT_OF_MEMORY));
        assert_eq!(space.allocate(Kind::Device, u64::MAX, OWNER, 0, 0), Err(Error::OUT_OF_MEMORY));
        assert_eq!(space.allocate(Kind::Device, 0, OWNER, 0, 0), Err(Error::INVALID_VALUE));
    }

    #[test]
    fn allocate_large_after_small_shares_no_page_and_leaves_no_hole() {
        let mut space = Space::new(1, false, true).unwrap();
        let (small, large, other) = (allocate(&mut space, 512), allocate(&mut space, 5000), allocate(&mut space, 512));
        assert!(large.is_multiple_of(os::PAGE) && other == small + 512);
        for base in [small, large, other] {
            free(&mut space, base);
        }
        assert_eq!((space.free_memory(0), space.reserves[0].free.len()), (DEVICE_MEMORY, 1));
    }

    #[test]
    fn share_keeps_the_bytes_and_import_sees_what_comes_later() {
        let mut space = Space::new(1, false, true).unwrap();
        let base = allocate(&mut space, 5000);
        os::fill(base, 7, 1, 5000);
        let found = space.find(base).unwrap().clone();
        let file = space.share(&found, c"test").unwrap().0.try_clone().unwrap();
        let there = space.import((&file, 0), 5000, Owner::Import(ContextId(2)), 0).unwrap();
        let byte = |address: u64| {
            let mut byte = 0u8;
            os::copy(&raw mut byte as u64, address, 1);
            byte
        };
        assert_eq!([byte(base + 4999), byte(there + 4999)], [7, 7]);
        os::fill(there, 9, 1, 1);
        assert_eq!(byte(base), 9);
        // The next allocation there is nobody else's.
        free(&mut space, base);
        assert_eq!(allocate(&mut space, 5000), base);
        os::fill(base, 1, 1, 5000);
        assert_eq!([byte(base), byte(there)], [1, 9]);
        let gone = space.take(there, Kind::Imported).unwrap();
        space.recycle(&gone);
        assert!(space.is_device_address(there) && space.find(there).is_none());
        assert_eq!(space.import((&file, 0), 5000, Owner::Import(ContextId(2)), 0), Ok(there));
    }

    #[test]
    fn allocate_in_a_file_that_an_import_sees() {
        let mut space = Space::new(1, false, true).unwrap();
        let file = Arc::new(os::memory_file(c"test", RESERVE).unwrap());
        let [small, large] = [100, 5000].map(|size| space.allocate_in(&file, size, OWNER, 0).unwrap());
        assert_eq!((small % os::PAGE, large % os::PAGE), (0, 0));
        let place = space.depth(large);
        let there = space.import((&file, place), 5000, OWNER, 0).unwrap();
        os::fill(large, 7, 1, 5000);
        let mut byte = 0u8;
        os::copy(&raw mut byte as u64, there + 4999, 1);
        assert_eq!(byte, 7);
        for base in [small, large] {
            free(&mut space, base);
        }
        os::copy(&raw mut byte as u64, there, 1);
        assert_eq!((byte, space.free_memory(0), space.reserves[0].free.len()), (7, DEVICE_MEMORY, 1));
        for size in [0, u64::MAX] {
            assert_eq!(space.allocate_in(&file, size, OWNER, 0), Err(Error::INVALID_VALUE));
        }
    }

    #[test]
    fn share_less_than_a_page_shares_what_is_beside_it() {
        let mut space = Space::new(1, false, true).unwrap();
        let all = [80, 80].map(|size| allocate(&mut space, size));
        let mut imported = Vec::new();
        for (base, byte) in all.into_iter().zip([7, 8]) {
            os::fill(base, byte, 1, 80);
            let found = space.find(base).unwrap().clone();
            let (file, place) = space.share(&found, c"test").unwrap();
            let file = file.try_clone().unwrap();
            imported.push(space.import((&file, place), 80, Owner::Import(ContextId(2)), 0).unwrap());
        }
        let mut bytes = [0u8; 2];
        let last = bytes.as_mut_ptr() as u64;
        imported.iter().zip(0..).for_each(|(there, at)| os::copy(last + at, there + 79, 1));
        assert_eq!((bytes, imported[1] % os::PAGE), ([7, 8], all[1] % os::PAGE));
        let gone = space.take(imported[1], Kind::Imported).unwrap();
        space.recycle(&gone);
    }

    #[test]
    fn register_overlapping_is_refused() {
        let mut space = Space::new(1, false, true).unwrap();
        assert_eq!(space.register(0x1000, 0x1000, OWNER, 0, 0), Ok(()));
        for base in [0x800, 0x1000, 0x1fff] {
            assert_eq!(space.register(base, 0x1000, OWNER, 0, 0), Err(Error::HOST_MEMORY_ALREADY_REGISTERED));
        }
        assert_eq!(space.register(0x2000, 0x10, OWNER, 0, 0), Ok(()));
    }
    #[test]
    fn map_only_where_addresses_are_set_aside_and_free() {
        const SIZE: u64 = 1 << 21;
        let mut space = Space::new(1, false, true).unwrap();
        let base = space.reserve(2 * SIZE, SIZE).unwrap();
        assert!(base.is_multiple_of(SIZE) && space.is_device_address(base));
        assert_eq!(space.map(base, SIZE, 0, None), Ok(()));
        for wrong in [base, base + SIZE / 2, base + 2 * SIZE, base - SIZE] {
            assert_eq!(space.map(wrong, SIZE, 0, None), Err(Error::INVALID_VALUE));
        }
        assert_eq!(space.unreserve(base, 2 * SIZE), Err(Error::INVALID_VALUE));
        let gone = space.take(base, Kind::Mapped).unwrap();
        space.recycle(&gone);
        assert_eq!(space.unreserve(base, SIZE), Err(Error::INVALID_VALUE));
        assert_eq!(space.unreserve(base, 2 * SIZE), Ok(()));
        assert_eq!(space.reservation(base), None);
    }
}
