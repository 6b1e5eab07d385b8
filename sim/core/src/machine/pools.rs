//! Memory pools and what is allocated from them in a stream's order.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use super::sharing::{Origin, POOL};
use super::{Machine, PoolHandle, State, StreamRef};
use crate::access::{NO_ACCESS, READ_WRITE, Rights};
use crate::error::{Error, Result};
use crate::fence::Fence;
use crate::os;
use crate::space::{Allocation, Kind, Owner, RESERVE};
use crate::stream::Stream;
use crate::work::{Work, has_delays};

const POOL_HANDLES: u64 = 0x5059_0000_0000;

/// A memory pool. It keeps nothing that is free, but for what a stream will free.
pub(super) struct Pool {
    pub(super) device: usize,
    pub(super) rights: Rights,
    is_default: bool,
    pub(super) origin: Origin,
    /// Imported memory: addresses by places in its file.
    imports: HashMap<u64, u64>,
    /// Only memory is left of it.
    destroyed: bool,
    /// Ways of using memory again that a stream will free: where work comes after that by an event, where it is free, and where the new work is
    /// made to wait. A threshold changes nothing.
    switches: [u64; 3],
    threshold: u64,
    /// The most bytes that it may have.
    most: u64,
    used: u64,
    used_most: u64,
}

impl Pool {
    fn new(device: usize, is_default: bool, origin: Origin) -> Pool {
        Pool {
            device,
            rights: Rights::of(device),
            is_default,
            origin,
            imports: HashMap::new(),
            destroyed: false,
            switches: [1; 3],
            threshold: 0,
            most: u64::MAX,
            used: 0,
            used_most: 0,
        }
    }

    fn charge(&mut self, size: u64) {
        self.used += size;
        self.used_most = self.used_most.max(self.used);
    }
}

/// An attribute of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolAttribute {
    /// One of the three ways of using memory again, 0 to 2.
    Reuse(usize),
    /// How much free memory it may keep.
    Threshold,
    /// Bytes now in use.
    Used,
    /// The most bytes that were in use.
    UsedMost,
}

/// Data by which another process imports an allocation of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolExport {
    /// Where it lies in the pool's file.
    pub place: u64,
    /// Bytes of it.
    pub size: u64,
    /// The number of that file.
    pub inode: u64,
}

/// An allocation that is freed in a stream's order, and what has to be reached before that.
pub(super) type Retiring = (Vec<Arc<Fence>>, Allocation);

impl Machine {
    /// The pool that a device has from the start.
    pub fn default_pool(&self, device: usize) -> Result<PoolHandle> {
        if device < self.config.devices { Ok(default_pool(device)) } else { Err(Error::INVALID_DEVICE) }
    }

    /// The pool that a device's streams allocate from.
    pub fn current_pool(&self, device: usize) -> Result<PoolHandle> {
        self.lock().current_pools.get(device).copied().ok_or(Error::INVALID_DEVICE)
    }

    /// Has a device's streams allocate from one of its pools.
    pub fn set_current_pool(&self, device: usize, pool: PoolHandle) -> Result<()> {
        let mut state = self.lock();
        let known = state.pool(pool)?;
        if known.device != device || known.origin.is_imported() {
            return Err(Error::INVALID_VALUE);
        }
        *state.current_pools.get_mut(device).ok_or(Error::INVALID_DEVICE)? = pool;
        Ok(())
    }

    /// Creates a pool of a device's memory.
    pub fn create_pool(&self, device: usize) -> Result<PoolHandle> {
        self.create_pool_of(device, u64::MAX)
    }

    /// Creates a pool that has so many bytes at most.
    pub fn create_pool_of(&self, device: usize, most: u64) -> Result<PoolHandle> {
        if device >= self.config.devices {
            return Err(Error::INVALID_DEVICE);
        }
        Ok(self.lock().add_pool(Pool { most, ..Pool::new(device, false, Origin::Own) }))
    }

    /// Creates a pool of a device's memory from which other processes can import.
    pub fn create_shareable_pool(&self, device: usize) -> Result<PoolHandle> {
        if device >= self.config.devices {
            return Err(Error::INVALID_DEVICE);
        }
        let file = os::memory_file(&self.file_name(POOL, device)?, RESERVE)?;
        Ok(self.lock().add_pool(Pool::new(device, false, Origin::Shareable(Arc::new(file)))))
    }

    /// A descriptor by which other processes import a pool that was created for that.
    pub fn export_pool(&self, handle: PoolHandle) -> Result<OwnedFd> {
        let state = self.lock();
        let Origin::Shareable(file) = &state.pool(handle)?.origin else { return Err(Error::INVALID_VALUE) };
        file.try_clone().map(OwnedFd::from).map_err(|_| Error::OPERATING_SYSTEM)
    }

    /// A pool that a process exported, by a descriptor which stays the caller's. At first its own device alone has rights on it.
    pub fn import_pool(&self, descriptor: c_int) -> Result<PoolHandle> {
        let file = os::file_of(descriptor).ok_or(Error::INVALID_VALUE)?;
        let device = self.device_of_file(&file, POOL)?;
        Ok(self.lock().add_pool(Pool::new(device, false, Origin::Imported(Arc::new(file)))))
    }

    /// Lets other processes import the allocation of a pool that an address lies in.
    pub fn export_from_pool(&self, address: u64) -> Result<PoolExport> {
        let state = self.lock();
        let found = state.space.find(address).ok_or(Error::INVALID_VALUE)?;
        let Owner::Pool(handle) = found.owner else { return Err(Error::INVALID_VALUE) };
        let Origin::Shareable(file) = &state.pool(handle)?.origin else { return Err(Error::INVALID_VALUE) };
        let inode = file.metadata().map_err(|_| Error::OPERATING_SYSTEM)?.ino();
        Ok(PoolExport { place: state.space.depth(found.base), size: found.size, inode })
    }

    /// Maps an allocation of an imported pool. A second time it is at the same address, and freed with the first: seen of a real driver, in
    /// public reports.
    pub fn import_from_pool(&self, handle: PoolHandle, export: PoolExport) -> Result<u64> {
        let mut state = self.lock();
        let State { pools, space, .. } = &mut *state;
        let pool = pools.get_mut(&handle).filter(|pool| !pool.destroyed).ok_or(Error::INVALID_VALUE)?;
        let Origin::Imported(file) = &pool.origin else { return Err(Error::INVALID_VALUE) };
        let is_whole = export.place.is_multiple_of(os::PAGE);
        if !is_whole || !file.metadata().is_ok_and(|data| data.ino() == export.inode) {
            return Err(Error::INVALID_VALUE);
        }
        if let Some(base) = pool.imports.get(&export.place) {
            return Ok(*base);
        }
        let base = space.import((file, export.place), export.size, Owner::Pool(handle), pool.device)?;
        pool.imports.insert(export.place, base);
        pool.charge(export.size);
        Ok(base)
    }

    /// Destroys a pool that the program created; its memory lives until it is freed.
    pub fn destroy_pool(&self, handle: PoolHandle) -> Result<()> {
        let mut state = self.lock();
        let pool = state.pool_mut(handle)?;
        if pool.is_default {
            return Err(Error::INVALID_VALUE);
        }
        pool.destroyed = true;
        state.leave_pool(handle);
        state.drop_empty_pool(handle);
        Ok(())
    }

    /// Grants or takes devices' rights on all of a pool's memory, also what was allocated before: all of them or, if one cannot
    /// be, none. Its own device keeps them. As is documented of some machines, a device without a path may get rights on a pool of which nothing
    /// is allocated; then nothing can be.
    pub fn set_pool_access(&self, handle: PoolHandle, wanted: &[(usize, u32)]) -> Result<()> {
        let mut state = self.lock();
        let pool = state.pool_mut(handle)?;
        for &(device, flags) in wanted {
            let is_own = pool.device == device;
            let has_path = self.config.has_late_pools && pool.used == 0 || self.config.has_path(device, pool.device);
            if if is_own { flags != READ_WRITE } else { !has_path } {
                return Err(Error::INVALID_DEVICE);
            }
        }
        wanted.iter().for_each(|&(device, flags)| pool.rights.set(device, flags));
        Ok(())
    }

    /// A device's rights on a pool's memory.
    pub fn pool_access(&self, handle: PoolHandle, device: usize) -> Result<u32> {
        Ok(self.lock().pool(handle)?.rights.get(device))
    }

    /// Reads an attribute of a pool.
    pub fn pool_attribute(&self, handle: PoolHandle, attribute: PoolAttribute) -> Result<u64> {
        let state = self.lock();
        let pool = state.pool(handle)?;
        Ok(match attribute {
            PoolAttribute::Reuse(switch) => pool.switches.get(switch).copied().ok_or(Error::INVALID_VALUE)?,
            PoolAttribute::Threshold => pool.threshold,
            PoolAttribute::Used => pool.used,
            PoolAttribute::UsedMost => pool.used_most,
        })
    }

    /// Sets an attribute of a pool; the most bytes in use only to 0, from which they grow again.
    pub fn set_pool_attribute(&self, handle: PoolHandle, attribute: PoolAttribute, value: u64) -> Result<()> {
        let mut state = self.lock();
        let pool = state.pool_mut(handle)?;
        match attribute {
            PoolAttribute::Reuse(switch) => *pool.switches.get_mut(switch).ok_or(Error::INVALID_VALUE)? = value,
            PoolAttribute::Threshold => pool.threshold = value,
            PoolAttribute::UsedMost if value == 0 => pool.used_most = pool.used,
            PoolAttribute::Used | PoolAttribute::UsedMost => return Err(Error::INVALID_VALUE),
        }
        Ok(())
    }

    /// Allocates in a stream's order from a pool, or from the current pool of the stream's device.
    pub fn allocate_async(&self, size: u64, pool: Option<PoolHandle>, stream: StreamRef) -> Result<u64> {
        let mut state = self.lock();
        let stream = state.stream(stream)?;
        state.refuse_nodes_of_memory(&stream)?;
        let device = state.info(stream.context)?.device;
        let current = state.current_pools.get(device).copied().ok_or(Error::INVALID_DEVICE)?;
        let handle = pool.unwrap_or(current);
        state.pool(handle)?;
        state.recycle_retired();
        let State { pools, space, retiring, .. } = &mut *state;
        let pool = pools.get_mut(&handle).ok_or(Error::INVALID_VALUE)?;
        let has_path = |device: usize| device == pool.device || self.config.has_path(device, pool.device);
        if (0..self.config.all_devices()).any(|device| pool.rights.get(device) != NO_ACCESS && !has_path(device)) {
            return Err(Error::INVALID_DEVICE);
        }
        let owner = Owner::Pool(handle);
        let [by_event, _, by_wait] = pool.switches.map(|switch| switch != 0);
        let is_own = matches!(pool.origin, Origin::Own);
        let is_unused = |gone: &Allocation| has_delays() || Arc::strong_count(&gone.mapped) == 1;
        let of_pool =
            |(_, gone): &&Retiring| is_unused(gone) && is_own && gone.owner == owner && gone.is_as_large_as(size);
        // Where no delays are drawn, memory that other queued work still uses is left alone.
        // Measured on an H200: memory that this stream comes after the freeing of is used again at once.
        let mut freed = retiring.iter().filter(of_pool);
        let again = freed.find(|(before, _)| before.iter().all(|fence| stream.is_after(fence, by_event)));
        let again = again.map(|(_, gone)| gone.base);
        let held: u64 = retiring.iter().filter(|(_, gone)| gone.owner == owner).map(|(_, gone)| gone.size).sum();
        let base = match (again, &pool.origin) {
            (Some(base), _) => Ok(base),
            _ if size > pool.most.saturating_sub(pool.used).saturating_sub(held) => Err(Error::OUT_OF_MEMORY),
            (_, Origin::Own) => space.allocate(Kind::Device, size, owner, pool.device, 0),
            (_, Origin::Shareable(file)) => space.allocate_in(file, size, owner, pool.device),
            (_, Origin::Imported(_) | Origin::Private(_)) => Err(Error::INVALID_VALUE),
        };
        // Where there is no other memory the driver may use such memory again for any stream, which it makes wait.
        let waits = base == Err(Error::OUT_OF_MEMORY) && by_wait;
        let awaited = if waits { retiring.iter().find(of_pool).map(|(_, gone)| gone.base) } else { None };
        let base = awaited.map_or(base, Ok)?;
        let mut before = Vec::new();
        if let Some(at) = retiring.iter().position(|(_, gone)| again.or(awaited) == Some(gone.base)) {
            let (fences, gone) = retiring.remove(at);
            before = fences;
            space.revive(&gone, size);
        }
        pool.charge(size);
        if awaited.is_some() {
            state.submit(&stream, before, Work::Nothing)?;
        }
        Ok(base)
    }

    /// Frees device memory, of a pool or not, once the stream has got there; nobody can name it from now on.
    pub fn free_async(&self, base: u64, stream: StreamRef) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream(stream)?;
        state.refuse_nodes_of_memory(&stream)?;
        let gone = state.take_freed(base, Kind::Device)?;
        let fence = state.submit(&stream, Vec::new(), Work::Nothing)?;
        state.leave(&gone);
        let mut before = vec![fence];
        if gone.owner.context().is_some() {
            // Copies of other streams that use it were not told to come first; they are not to find it gone either.
            before.extend(state.all_tails());
        }
        state.retiring.push((before, gone));
        state.recycle_retired();
        Ok(())
    }
}

impl State {
    /// The pools that devices have from the start.
    pub(super) fn default_pools(devices: usize) -> impl Iterator<Item = (PoolHandle, Pool)> {
        (0..devices).map(|device| (default_pool(device), Pool::new(device, true, Origin::Own)))
    }

    fn add_pool(&mut self, pool: Pool) -> PoolHandle {
        let handle = PoolHandle(POOL_HANDLES + self.number() * 0x1000);
        self.pools.insert(handle, pool);
        handle
    }

    /// Takes out an allocation that the program frees: of that kind, or device memory that it imported from a pool.
    pub(super) fn take_freed(&mut self, base: u64, kind: Kind) -> Result<Allocation> {
        let is_of_pool = |found: &Allocation| found.kind == Kind::Imported && matches!(found.owner, Owner::Pool(_));
        let is_imported = kind == Kind::Device && self.space.find(base).is_some_and(is_of_pool);
        let kind = if is_imported { Kind::Imported } else { kind };
        self.space.take(base, kind).ok_or(Error::INVALID_VALUE)
    }

    fn pool(&self, handle: PoolHandle) -> Result<&Pool> {
        self.pools.get(&handle).filter(|pool| !pool.destroyed).ok_or(Error::INVALID_VALUE)
    }

    fn pool_mut(&mut self, handle: PoolHandle) -> Result<&mut Pool> {
        self.pools.get_mut(&handle).filter(|pool| !pool.destroyed).ok_or(Error::INVALID_VALUE)
    }

    /// Memory that a graph would own is not simulated.
    fn refuse_nodes_of_memory(&mut self, stream: &Stream) -> Result<()> {
        self.captures.of(stream)?;
        self.captures.refuse_on(|capturing| capturing.id == stream.id)
    }

    /// Takes an allocation that is being freed off its pool's account, and off what was granted.
    pub(super) fn leave(&mut self, gone: &Allocation) {
        self.grants.forget(gone.base);
        let Owner::Pool(handle) = gone.owner else { return };
        if let Some(pool) = self.pools.get_mut(&handle) {
            pool.used -= gone.size;
            pool.imports.retain(|_, base| *base != gone.base);
        }
        self.drop_empty_pool(handle);
    }

    fn drop_empty_pool(&mut self, handle: PoolHandle) {
        if self.pools.get(&handle).is_some_and(|pool| pool.destroyed && pool.used == 0) {
            self.pools.remove(&handle);
        }
    }

    /// Devices that were allocating from this pool go back to their default pool.
    fn leave_pool(&mut self, handle: PoolHandle) {
        for (device, current) in self.current_pools.iter_mut().enumerate().filter(|(_, current)| **current == handle) {
            *current = default_pool(device);
        }
    }

    /// Makes the memory of frees that their stream has reached usable again, once no queued work relies on it.
    pub(super) fn recycle_retired(&mut self) {
        let is_done = |(before, gone): &Retiring| {
            before.iter().all(|fence| fence.is_done()) && Arc::strong_count(&gone.mapped) == 1
        };
        let (done, still): (Vec<_>, Vec<_>) = self.retiring.drain(..).partition(is_done);
        self.retiring = still;
        done.iter().for_each(|(_, gone)| self.space.recycle(gone));
    }

    /// When a device starts anew: its pools are as in the beginning. Returns the memory that goes with them.
    pub(super) fn reset_pools(&mut self, device: usize) -> Vec<Allocation> {
        let gone: Vec<_> =
            self.pools.iter().filter(|(_, pool)| pool.device == device).map(|(handle, _)| *handle).collect();
        gone.iter().for_each(|handle| self.leave_pool(*handle));
        self.pools.retain(|handle, _| !gone.contains(handle));
        self.pools.insert(default_pool(device), Pool::new(device, true, Origin::Own));
        self.space.take_where(|known| matches!(known.owner, Owner::Pool(handle) if gone.contains(&handle)))
    }
}

/// Handles of pools that devices have from the start.
fn default_pool(device: usize) -> PoolHandle {
    PoolHandle(POOL_HANDLES + (device as u64 + 1) * 0x10)
}
