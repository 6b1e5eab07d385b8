//! Allocations and arrays.

use super::stalls::{Asked, Until};
use super::{Array, ArrayHandle, Machine, State};
use crate::access::{NO_ACCESS, READ_WRITE, Rights};
use crate::current;
use crate::error::{Error, Result};
use crate::os;
use crate::space::{Allocation, DEVICE_MEMORY, Kind, Owner};
use crate::work::page_locking_time;

/// The size of an array and the program's description of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayShape {
    /// Elements in a row.
    pub width: u64,
    /// Rows; 0 in a one-dimensional array.
    pub height: u64,
    /// Slices; 0 in an array of fewer dimensions.
    pub depth: u64,
    /// Bytes of an element.
    pub element: u64,
    /// The driver API's number of the format of a channel.
    pub format: u32,
    /// Channels of an element.
    pub channels: u32,
    /// Flags that it was created with.
    pub flags: u32,
}

impl ArrayShape {
    /// Bytes of a row.
    pub fn pitch(&self) -> u64 {
        self.width.saturating_mul(self.element)
    }

    fn bytes(&self) -> Option<u64> {
        let rows = self.height.max(1).checked_mul(self.depth.max(1))?;
        self.width.checked_mul(self.element)?.checked_mul(rows)
    }
}

impl Machine {
    /// Allocates device memory, or pinned host memory, that belongs to the current context.
    pub fn allocate(&self, kind: Kind, size: u64, flags: u32) -> Result<u64> {
        self.wait_for_others(Asked::Objects);
        let mut state = self.lock();
        let context = state.current()?;
        state.captures.refuse_unseen(current::caller())?;
        let device = state.info(context)?.device;
        state.recycle_retired();
        state.space.allocate(kind, size, Owner::Context(context), device, flags)
    }

    /// Frees what [`Machine::allocate`] made of that kind, after all work of its context submitted so far; memory of a pool at once. No context
    /// need be current: measured on an H200.
    pub fn free(&self, base: u64, kind: Kind) -> Result<()> {
        let mut state = self.lock();
        if current::get().is_some() {
            state.current()?;
        }
        state.captures.refuse_unseen(current::caller())?;
        let gone = state.take_freed(base, kind)?;
        state.leave(&gone);
        let tails = state.work_before_free(gone.owner);
        if let Some(context) = gone.owner.context() {
            state.stall(context, true, Until::Reached(tails.clone()));
        }
        drop(state);
        self.give_back(&[gone], &tails);
        Ok(())
    }

    /// Makes memory of the program page-locked, which takes its time.
    pub fn register_host(&self, base: u64, size: u64, flags: u32) -> Result<()> {
        let mut state = self.lock();
        let context = state.current()?;
        state.captures.refuse_unseen(current::caller())?;
        let device = state.info(context)?.device;
        if base == 0 || size == 0 {
            return Err(Error::INVALID_VALUE);
        }
        state.space.register(base, size, Owner::Context(context), device, flags)?;
        drop(state);
        os::pause(page_locking_time(size));
        Ok(())
    }

    /// Undoes [`Machine::register_host`], after all work submitted so far of the context that it was registered for.
    pub fn unregister_host(&self, base: u64) -> Result<()> {
        let mut state = self.lock();
        state.current()?;
        state.captures.refuse_unseen(current::caller())?;
        let gone = state.space.take(base, Kind::Registered).ok_or(Error::HOST_MEMORY_NOT_REGISTERED)?;
        let tails = state.work_before_free(gone.owner);
        drop(state);
        self.give_back(&[gone], &tails);
        Ok(())
    }

    /// Free and total bytes of the current context's device.
    pub fn memory_info(&self) -> Result<(u64, u64)> {
        let mut state = self.lock();
        let device = state.info(state.current()?)?.device;
        Ok((state.space.free_memory(device), DEVICE_MEMORY))
    }

    /// The allocation that an address of the program lies in.
    pub fn find(&self, address: u64) -> Option<Allocation> {
        self.lock().space.find(address).filter(|found| found.kind != Kind::Array).cloned()
    }

    /// The right of the current context's device on an allocation, as the API numbers it.
    pub fn access(&self, found: &Allocation) -> Result<u32> {
        let state = self.lock();
        let context = state.current()?;
        let device = state.info(context)?.device;
        Ok(match found.owner {
            _ if found.kind.is_host() => READ_WRITE,
            Owner::Context(owner) if owner == context || found.device == device => READ_WRITE,
            Owner::Context(owner) if state.peers.reaches(context, owner) => READ_WRITE,
            Owner::Import(by) if by == context || found.device == device => READ_WRITE,
            Owner::Context(_) | Owner::Import(_) => NO_ACCESS,
            Owner::Pool(_) | Owner::Mapping | Owner::Device => state.rights(found).get(device),
        })
    }

    /// Creates an array on the current context's device.
    pub fn create_array(&self, shape: ArrayShape) -> Result<ArrayHandle> {
        let mut state = self.lock();
        let context = state.current()?;
        state.captures.refuse_unseen(current::caller())?;
        let device = state.info(context)?.device;
        let bytes = shape.bytes().filter(|bytes| *bytes > 0).ok_or(Error::INVALID_VALUE)?;
        let base = state.space.allocate(Kind::Array, bytes, Owner::Context(context), device, shape.flags)?;
        let storage = state.space.find(base).cloned().ok_or(Error::UNKNOWN)?;
        let handle = ArrayHandle(ARRAY_HANDLES + state.number() * 0x10);
        state.arrays.insert(handle, Array { shape, storage });
        Ok(handle)
    }

    /// Destroys an array after all work of its context submitted so far.
    pub fn destroy_array(&self, handle: ArrayHandle) -> Result<()> {
        let mut state = self.lock();
        state.current()?;
        state.captures.refuse_unseen(current::caller())?;
        let array = state.arrays.remove(&handle).ok_or(Error::INVALID_HANDLE)?;
        drop(state);
        self.free(array.storage.base, Kind::Array)
    }

    /// The shape of an array.
    pub fn array_shape(&self, handle: ArrayHandle) -> Result<ArrayShape> {
        self.lock().arrays.get(&handle).map(|array| array.shape).ok_or(Error::INVALID_HANDLE)
    }
}

impl State {
    /// The rights on an allocation that belongs to no context.
    pub(super) fn rights(&self, found: &Allocation) -> Rights {
        let rights = match found.owner {
            Owner::Context(_) | Owner::Import(_) => None,
            Owner::Pool(pool) => self.pools.get(&pool).map(|pool| &pool.rights),
            Owner::Mapping => self.mappings.rights(found.base),
            Owner::Device => self.grants.rights(found.base),
        };
        rights.cloned().unwrap_or_default()
    }
}

const ARRAY_HANDLES: u64 = 0x5055_0000_0000;
