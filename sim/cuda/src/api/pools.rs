//! Memory pools and allocation in a stream's order.

use std::ffi::c_int;
use std::os::fd::IntoRawFd;

use p2psim_core::machine::{DefaultStream, PoolAttribute, PoolExport, PoolHandle};
use p2psim_core::{Error, Machine, Result};

use super::require;
use super::structs::{AccessDescriptor, Location, PoolExportData, PoolProperties};
use crate::abi::{In, Out};
use crate::entry::{api, machine, stream};

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
pub(crate) const PINNED: u32 = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const ON_DEVICE: u32 = 1;
/// `CU_MEM_HANDLE_TYPE_NONE`.
pub(crate) const NONE: u32 = 0;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, the one type that is simulated.
pub(crate) const DESCRIPTOR: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READ`.
const READ: u32 = 1;

/// The device that a location is; memory of the host is not pooled or mapped here.
pub(crate) fn device_at(machine: &Machine, location: Location) -> Result<usize> {
    match location.kind {
        ON_DEVICE => machine.device(location.number),
        2..=4 => Err(Error::NOT_SUPPORTED),
        _ => Err(Error::INVALID_VALUE),
    }
}

/// The devices and rights of descriptors, of which there is at least the pointer.
pub(crate) fn descriptors_at(
    descriptors: In<AccessDescriptor>,
    count: u64,
    check: impl Fn(AccessDescriptor) -> Result<usize>,
) -> Result<Vec<(usize, u32)>> {
    require(!descriptors.pointer().is_null())?;
    let each = (0..count as usize).map(|index| descriptors.read_nth(index).map_err(Error::from));
    each.map(|descriptor| descriptor.and_then(|it| Ok((check(it)?, it.flags)))).collect()
}

/// The device that may be granted access to a pool; reading alone cannot be granted.
fn pool_descriptor(machine: &Machine, AccessDescriptor { location, flags }: AccessDescriptor) -> Result<usize> {
    if location.kind != ON_DEVICE {
        return Err(Error::NOT_SUPPORTED);
    }
    let device = machine.device(location.number)?;
    check_access(flags)?;
    if flags == READ { Err(Error::NOT_SUPPORTED) } else { Ok(device) }
}

/// Where an ordinal that is no device is an invalid value like others, as was measured.
pub(crate) fn as_invalid_value(error: Error) -> Error {
    if error == Error::INVALID_DEVICE { Error::INVALID_VALUE } else { error }
}

/// `CUmemAccess_flags`: none, reading, both.
pub(crate) fn check_access(flags: u32) -> Result<()> {
    require(matches!(flags, 0 | 1 | 3))
}

/// A `CUmemPool_attribute`; nothing that is free is kept, so that what is reserved is what is used.
fn attribute(number: u32) -> Result<PoolAttribute> {
    Ok(match number {
        1..=3 => PoolAttribute::Reuse(number as usize - 1),
        4 => PoolAttribute::Threshold,
        5 | 7 => PoolAttribute::Used,
        6 | 8 => PoolAttribute::UsedMost,
        _ => return Err(Error::INVALID_VALUE),
    })
}

/// The device whose pool a program of 13.0 asks for.
fn pinned_at(machine: &Machine, location: In<Location>, kind: u32) -> Result<usize> {
    let device = device_at(machine, location.read()?)?;
    if kind == PINNED { Ok(device) } else { Err(Error::NOT_SUPPORTED) }
}

/// The first word of data of ours.
const MARK: u64 = u64::from_le_bytes(*b"p2psimpo");

impl From<PoolExport> for PoolExportData {
    fn from(PoolExport { place, size, inode }: PoolExport) -> Self {
        Self([MARK, place, size, inode, 0, 0, 0, 0])
    }
}

impl TryFrom<PoolExportData> for PoolExport {
    type Error = Error;

    fn try_from(PoolExportData([mark, place, size, inode, ..]): PoolExportData) -> Result<Self> {
        require(mark == MARK)?;
        Ok(Self { place, size, inode })
    }
}

fn allocate(pointer: Out<u64>, size: u64, pool: Option<u64>, queue: u64, default: DefaultStream) -> Result<()> {
    let machine = machine()?;
    let pointer = pointer.required()?;
    pointer.set(machine.allocate_async(size, pool.map(PoolHandle), stream(queue, default))?);
    Ok(())
}

api! {
    fn cuMemAllocAsync | cuMemAllocAsync_ptsz [default] (pointer: Out<u64>, size: u64, queue: u64) {
        allocate(pointer, size, None, queue, default)
    }

    fn cuMemAllocFromPoolAsync | cuMemAllocFromPoolAsync_ptsz [default] (
        pointer: Out<u64>,
        size: u64,
        pool: u64,
        queue: u64,
    ) {
        allocate(pointer, size, Some(pool), queue, default)
    }

    fn cuMemFreeAsync | cuMemFreeAsync_ptsz [default] (pointer: u64, queue: u64) {
        machine()?.free_async(pointer, stream(queue, default))
    }

    fn cuDeviceGetDefaultMemPool(pool: Out<u64>, device: i32) {
        let machine = machine()?;
        let pool = pool.required()?;
        pool.set(machine.default_pool(machine.device(device)?)?.0);
        Ok(())
    }

    fn cuDeviceGetMemPool(pool: Out<u64>, device: i32) {
        let machine = machine()?;
        let pool = pool.required()?;
        pool.set(machine.current_pool(machine.device(device)?)?.0);
        Ok(())
    }

    fn cuDeviceSetMemPool(device: i32, pool: u64) {
        let machine = machine()?;
        machine.set_current_pool(machine.device(device)?, PoolHandle(pool))
    }

    /// As of 13.0, by location; pools of pinned memory only.
    fn cuMemGetDefaultMemPool(pool: Out<u64>, location: In<Location>, kind: u32) {
        let machine = machine()?;
        let pool = pool.required()?;
        pool.set(machine.default_pool(pinned_at(machine, location, kind)?)?.0);
        Ok(())
    }

    /// As of 13.0, by location; pools of pinned memory only.
    fn cuMemGetMemPool(pool: Out<u64>, location: In<Location>, kind: u32) {
        let machine = machine()?;
        let pool = pool.required()?;
        pool.set(machine.current_pool(pinned_at(machine, location, kind)?)?.0);
        Ok(())
    }

    /// As of 13.0, by location; pools of pinned memory only.
    fn cuMemSetMemPool(location: In<Location>, kind: u32, pool: u64) {
        let machine = machine()?;
        machine.set_current_pool(pinned_at(machine, location, kind)?, PoolHandle(pool))
    }

    fn cuMemPoolCreate(pool: Out<u64>, properties: In<PoolProperties>) {
        let machine = machine()?;
        let pool = pool.required()?;
        let PoolProperties { kind, handle_types, location, most, .. } = properties.read()?;
        require(kind == PINNED)?;
        let device = device_at(machine, location)?;
        let created = match handle_types {
            NONE => machine.create_pool_of(device, if most == 0 { u64::MAX } else { most })?,
            DESCRIPTOR => machine.create_shareable_pool(device)?,
            _ => return Err(Error::NOT_SUPPORTED),
        };
        pool.set(created.0);
        Ok(())
    }

    fn cuMemPoolExportToShareableHandle(shareable: Out<c_int>, pool: u64, handle_type: u32, flags: u64) {
        let machine = machine()?;
        let shareable = shareable.required()?;
        require(handle_type == DESCRIPTOR && flags == 0)?;
        shareable.set(machine.export_pool(PoolHandle(pool))?.into_raw_fd());
        Ok(())
    }

    /// The descriptor is passed as a pointer.
    fn cuMemPoolImportFromShareableHandle(pool: Out<u64>, shareable: usize, handle_type: u32, flags: u64) {
        let machine = machine()?;
        let pool = pool.required()?;
        require(handle_type == DESCRIPTOR && flags == 0)?;
        let descriptor = c_int::try_from(shareable).map_err(|_| Error::INVALID_VALUE)?;
        pool.set(machine.import_pool(descriptor)?.0);
        Ok(())
    }

    fn cuMemPoolExportPointer(data: Out<PoolExportData>, pointer: u64) {
        let machine = machine()?;
        let data = data.required()?;
        data.set(machine.export_from_pool(pointer)?.into());
        Ok(())
    }

    fn cuMemPoolImportPointer(pointer: Out<u64>, pool: u64, data: In<PoolExportData>) {
        let machine = machine()?;
        let pointer = pointer.required()?;
        pointer.set(machine.import_from_pool(PoolHandle(pool), PoolExport::try_from(data.read()?)?)?);
        Ok(())
    }

    fn cuMemPoolDestroy(pool: u64) {
        machine()?.destroy_pool(PoolHandle(pool))
    }

    /// A capture bears neither this nor the question: measured on H200.
    fn cuMemPoolSetAccess(pool: u64, descriptors: In<AccessDescriptor>, count: u64) {
        let machine = machine()?;
        machine.refuse_unseen()?;
        machine.set_pool_access(PoolHandle(pool), &[])?;
        let wanted = descriptors_at(descriptors, count, |descriptor| pool_descriptor(machine, descriptor))?;
        machine.set_pool_access(PoolHandle(pool), &wanted)
    }

    fn cuMemPoolGetAccess(flags: Out<u32>, pool: u64, location: In<Location>) {
        let machine = machine()?;
        let flags = flags.required()?;
        let device = device_at(machine, location.read()?).map_err(as_invalid_value)?;
        machine.refuse_unseen()?;
        flags.set(machine.pool_access(PoolHandle(pool), device)?);
        Ok(())
    }

    /// Nothing that is free is kept, so that there is nothing to trim.
    fn cuMemPoolTrimTo(pool: u64, _keep: u64) {
        machine()?.pool_attribute(PoolHandle(pool), PoolAttribute::Used).map(drop)
    }

    /// The value of a switch is an `int`, that of a size 64 bits.
    fn cuMemPoolSetAttribute(pool: u64, number: u32, value: Out<u32>) {
        let machine = machine()?;
        let address = value.required()?.address();
        let attribute = attribute(number)?;
        let is_switch = matches!(attribute, PoolAttribute::Reuse(_));
        let value = if is_switch { value.get().into() } else { Out::<u64>::at(address).get() };
        machine.set_pool_attribute(PoolHandle(pool), attribute, value)
    }

    /// The value of a switch is an `int`, that of a size 64 bits.
    fn cuMemPoolGetAttribute(pool: u64, number: u32, value: Out<u32>) {
        let machine = machine()?;
        let address = value.required()?.address();
        let attribute = attribute(number)?;
        let found = machine.pool_attribute(PoolHandle(pool), attribute)?;
        match attribute {
            PoolAttribute::Reuse(_) => value.set(found as u32),
            _ => Out::<u64>::at(address).set(found),
        }
        Ok(())
    }
}
