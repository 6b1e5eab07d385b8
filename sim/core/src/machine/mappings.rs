//! Memory that the program maps itself: physical memory, addresses, and who may reach it. Processes share it by descriptors.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::sharing::{MEMORY, Origin};
use super::{Machine, PhysicalHandle, State};
use crate::access::{NO_ACCESS, READ_WRITE, Rights};
use crate::current;
use crate::error::{Error, Result};
use crate::gate::Gate;
use crate::os;
use crate::space::{Allocation, Kind, Owner};

/// Physical memory, addresses and mappings are multiples of this, in bytes.
pub const MAPPING_GRANULE: u64 = 2 << 20;
const PHYSICAL_HANDLES: u64 = 0x505a_0000_0000;

/// Memory without an address. Its bytes stay with the address that it was mapped to, unless they are in a file: if other processes can map it,
/// or once it has several addresses.
struct Physical {
    device: usize,
    size: u64,
    references: u32,
    mappings: u32,
    origin: Origin,
}

struct Mapping {
    physical: PhysicalHandle,
    rights: Rights,
    /// The gate of all work that touches it.
    mapped: Arc<Gate>,
}

/// All memory that the program maps itself; mappings by their first address.
#[derive(Default)]
pub(super) struct Mappings {
    physicals: HashMap<PhysicalHandle, Physical>,
    mappings: HashMap<u64, Mapping>,
}

impl Mappings {
    /// How much memory there is without an address, mapped or not.
    pub(super) fn physicals(&self) -> usize {
        self.physicals.len()
    }

    /// The rights on the mapping that starts there.
    pub(super) fn rights(&self, base: u64) -> Option<&Rights> {
        self.mappings.get(&base).map(|mapping| &mapping.rights)
    }

    /// Where the memory that is mapped there is.
    pub(super) fn origin(&self, base: u64) -> Option<&Origin> {
        let physical = self.mappings.get(&base).and_then(|mapping| self.physicals.get(&mapping.physical));
        physical.map(|physical| &physical.origin)
    }

    fn physical_mut(&mut self, handle: PhysicalHandle) -> Result<&mut Physical> {
        self.physicals.get_mut(&handle).filter(|physical| physical.references > 0).ok_or(Error::INVALID_VALUE)
    }
}

impl Machine {
    /// Sets addresses aside.
    pub fn reserve_addresses(&self, size: u64) -> Result<u64> {
        require_granules(size)?;
        self.lock().space.reserve(size, MAPPING_GRANULE)
    }

    /// Undoes [`Machine::reserve_addresses`] for a whole range in which nothing is mapped.
    pub fn free_addresses(&self, base: u64, size: u64) -> Result<()> {
        self.lock().space.unreserve(base, size)
    }

    /// The range of set-aside addresses that an address lies in: start and size.
    pub fn reservation(&self, address: u64) -> Option<(u64, u64)> {
        self.lock().space.reservation(address)
    }

    /// Takes physical memory of a device.
    pub fn create_physical(&self, device: usize, size: u64) -> Result<PhysicalHandle> {
        self.create(device, size, || Ok(Origin::Own))
    }

    /// Takes physical memory of a device that other processes can map.
    pub fn create_shareable_physical(&self, device: usize, size: u64) -> Result<PhysicalHandle> {
        let name = self.file_name(MEMORY, device)?;
        self.create(device, size, || os::memory_file(&name, size).map(Arc::new).map(Origin::Shareable))
    }

    fn create(&self, device: usize, size: u64, origin: impl FnOnce() -> Result<Origin>) -> Result<PhysicalHandle> {
        require_granules(size)?;
        let mut state = self.lock();
        let origin = origin()?;
        state.space.charge(device, size)?;
        Ok(state.add_physical(Physical { device, size, references: 1, mappings: 0, origin }))
    }

    /// A descriptor by which other processes import physical memory that was created for that.
    pub fn export_physical(&self, handle: PhysicalHandle) -> Result<OwnedFd> {
        let mut state = self.lock();
        let file = state.mappings.physical_mut(handle)?.origin.file().ok_or(Error::INVALID_VALUE)?;
        file.try_clone().map(OwnedFd::from).map_err(|_| Error::OPERATING_SYSTEM)
    }

    /// Physical memory that a process exported, by a descriptor which stays the caller's.
    pub fn import_physical(&self, descriptor: c_int) -> Result<PhysicalHandle> {
        let file = os::file_of(descriptor).ok_or(Error::INVALID_VALUE)?;
        let device = self.device_of_file(&file, MEMORY)?;
        let size = file.metadata().map_err(|_| Error::OPERATING_SYSTEM)?.len();
        let origin = Origin::Imported(Arc::new(file));
        let physical = Physical { device, size, references: 1, mappings: 0, origin };
        Ok(self.lock().add_physical(physical))
    }

    /// Drops a reference to physical memory, which goes with the last reference and the mapping.
    pub fn release_physical(&self, handle: PhysicalHandle) -> Result<()> {
        let mut state = self.lock();
        state.mappings.physical_mut(handle)?.references -= 1;
        state.drop_unused_physical(handle);
        Ok(())
    }

    /// Takes another reference to the physical memory behind an address.
    pub fn retain_physical(&self, address: u64) -> Result<PhysicalHandle> {
        let mut state = self.lock();
        let base = state.mapping_at(address)?.base;
        let handle = state.mappings.mappings.get(&base).ok_or(Error::INVALID_VALUE)?.physical;
        state.mappings.physicals.get_mut(&handle).ok_or(Error::INVALID_VALUE)?.references += 1;
        Ok(handle)
    }

    /// The device of physical memory, and whether other processes can map it.
    pub fn physical(&self, handle: PhysicalHandle) -> Result<(usize, bool)> {
        let mut state = self.lock();
        let physical = state.mappings.physical_mut(handle)?;
        Ok((physical.device, physical.origin.file().is_some()))
    }

    /// Maps all of some physical memory to addresses that were set aside; nobody may reach it yet.
    pub fn map(&self, base: u64, size: u64, handle: PhysicalHandle) -> Result<()> {
        let mut state = self.lock();
        let State { mappings, space, .. } = &mut *state;
        let Mappings { physicals, mappings: known } = mappings;
        let physical = physicals.get_mut(&handle).filter(|physical| physical.references > 0);
        let physical = physical.ok_or(Error::INVALID_VALUE)?;
        if physical.size != size {
            return Err(Error::INVALID_VALUE);
        }
        let first = known.iter().find(|(_, mapping)| mapping.physical == handle).map(|(first, _)| *first);
        if let (Some(first), Origin::Own) = (first, &physical.origin) {
            physical.origin = Origin::Private(Arc::new(os::share(c"p2psim memory", first, size)?));
        }
        space.map(base, size, physical.device, physical.origin.bytes().map(Arc::as_ref))?;
        physical.mappings += 1;
        known.insert(base, Mapping { physical: handle, rights: Rights::default(), mapped: Gate::open() });
        Ok(())
    }

    /// Unmaps a whole mapping. It waits for no queued work, which ends with an illegal address instead: measured on H200.
    pub fn unmap(&self, base: u64, size: u64) -> Result<()> {
        let mut state = self.lock();
        if state.mapping_at(base)?.size != size {
            return Err(Error::INVALID_VALUE);
        }
        state.captures.refuse_unseen(current::caller())?;
        let gone = state.space.take(base, Kind::Mapped).ok_or(Error::INVALID_VALUE)?;
        let mapping = state.mappings.mappings.remove(&base).ok_or(Error::INVALID_VALUE)?;
        mapping.mapped.close(Error::ILLEGAL_ADDRESS);
        drop(state);
        mapping.mapped.drain();
        let mut state = self.lock();
        state.space.recycle(&gone);
        if let Some(physical) = state.mappings.physicals.get_mut(&mapping.physical) {
            physical.mappings -= 1;
        }
        state.drop_unused_physical(mapping.physical);
        Ok(())
    }

    /// Grants or takes devices' rights on all mappings of a range that consists of them: all of them or, if one cannot be, none.
    pub fn set_access(&self, base: u64, size: u64, wanted: &[(usize, u32)]) -> Result<()> {
        let mut state = self.lock();
        let end = base.checked_add(size).filter(|end| *end > base).ok_or(Error::INVALID_VALUE)?;
        let (mut covered, mut next) = (Vec::new(), base);
        while next < end {
            let mapping = state.mapping_at(next)?;
            if mapping.base != next || mapping.base + mapping.size > end {
                return Err(Error::INVALID_VALUE);
            }
            let has_path = |device| device == mapping.device || self.config.has_path(device, mapping.device);
            if !wanted.iter().all(|(device, _)| has_path(*device)) {
                return Err(Error::INVALID_DEVICE);
            }
            covered.push(next);
            next += mapping.size;
        }
        for base in covered {
            let mapping = state.mappings.mappings.get_mut(&base).ok_or(Error::INVALID_VALUE)?;
            wanted.iter().for_each(|&(device, flags)| mapping.rights.set(device, flags));
        }
        Ok(())
    }

    /// A device's rights on the memory that an address lies in. It need not be mapped by the program: measured of memory of
    /// another device, to which access was not enabled.
    pub fn access_at(&self, address: u64, device: usize) -> Result<u32> {
        let state = self.lock();
        let found = state.space.find(address).filter(|found| !found.kind.is_host()).ok_or(Error::INVALID_VALUE)?;
        Ok(match found.owner {
            Owner::Context(_) | Owner::Import(_) if found.device == device => READ_WRITE,
            Owner::Context(_) | Owner::Import(_) => NO_ACCESS,
            Owner::Pool(_) | Owner::Mapping | Owner::Device => state.rights(found).get(device),
        })
    }
}

impl State {
    fn add_physical(&mut self, physical: Physical) -> PhysicalHandle {
        let handle = PhysicalHandle(PHYSICAL_HANDLES + self.number() * 0x10);
        self.mappings.physicals.insert(handle, physical);
        handle
    }

    /// The gate of work that touches an address of the program, if that may be taken away: the mapping there, or one that
    /// has gone by now.
    pub(super) fn mapped(&self, address: u64) -> Option<Arc<Gate>> {
        self.space.reservation(address)?;
        let mapping = self.mapping_at(address).ok().and_then(|found| self.mappings.mappings.get(&found.base));
        Some(mapping.map_or_else(|| Gate::shut(Error::ILLEGAL_ADDRESS), |mapping| Arc::clone(&mapping.mapped)))
    }

    fn mapping_at(&self, address: u64) -> Result<&Allocation> {
        let found = self.space.find(address).filter(|found| found.owner == Owner::Mapping);
        found.ok_or(Error::INVALID_VALUE)
    }

    fn drop_unused_physical(&mut self, handle: PhysicalHandle) {
        let unused = |physical: &Physical| physical.references == 0 && physical.mappings == 0;
        if self.mappings.physicals.get(&handle).is_some_and(unused)
            && let Some(physical) = self.mappings.physicals.remove(&handle)
        {
            // Imported memory is another's.
            if !physical.origin.is_imported() {
                self.space.discharge(physical.device, physical.size);
            }
        }
    }
}

fn require_granules(size: u64) -> Result<()> {
    if size > 0 && size.is_multiple_of(MAPPING_GRANULE) { Ok(()) } else { Err(Error::INVALID_VALUE) }
}
