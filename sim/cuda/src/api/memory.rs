//! Allocations, pointer attributes and arrays.

use p2psim_core::machine::{ArrayHandle, ArrayShape};
use p2psim_core::{Allocation, Error, GRANULE, Kind, Machine, Owner, Result};

use super::pools::DESCRIPTOR;
use super::require;
use super::structs::{ArrayDescriptor, ArrayDescriptor3d};
use crate::abi::{In, Out};
use crate::entry::{api, has_legacy_ipc, machine};

/// `CU_MEMHOSTALLOC_PORTABLE | …_DEVICEMAP | …_WRITECOMBINED`.
const HOST_FLAGS: u32 = 7;
/// `CU_MEMHOSTREGISTER_PORTABLE | …_DEVICEMAP | …_IOMEMORY | …_READ_ONLY`.
const REGISTER_FLAGS: u32 = 15;
/// `CU_MEMORYTYPE_HOST`.
const MEMORY_HOST: u32 = 1;
/// `CU_MEMORYTYPE_DEVICE`.
const MEMORY_DEVICE: u32 = 2;
/// The device of unknown memory (`CU_DEVICE_INVALID`).
const NO_DEVICE: i32 = -2;

/// The pinned allocation that a host pointer lies in.
fn pinned(machine: &Machine, pointer: u64) -> Result<Allocation> {
    machine.find(pointer).filter(|found| found.kind.is_host()).ok_or(Error::INVALID_VALUE)
}

/// The device that the driver names for an allocation: for one that another process exported by a handle, that of the context which opened
/// it, and for one on a device that is hidden here, that of the current context. Both were measured.
fn named_device(machine: &Machine, found: &Allocation) -> usize {
    let context = found.owner.context().and_then(|id| machine.context_of(id));
    let info = context.and_then(|handle| machine.context(handle).ok());
    let is_hidden = found.device >= machine.devices();
    let info = info.or_else(|| machine.current_context().ok().filter(|_| is_hidden));
    info.map_or(if is_hidden { 0 } else { found.device }, |info| info.device)
}

/// Stores an attribute of an allocation, in the type that the API has for it.
fn store_attribute(machine: &Machine, number: u32, pointer: u64, found: &Allocation, data: u64) -> Result<()> {
    let is_host = found.kind.is_host();
    // Memory that the program mapped is part of the larger range that it had set aside.
    let range = || machine.reservation(pointer).unwrap_or((found.base, found.size));
    let word = |value: u32| Out::at(data).set(value);
    let long = |value: u64| Out::at(data).set(value);
    let flag = |value: bool| Out::at(data).set(u8::from(value));
    match number {
        // Memory of a pool, or mapped by the program, is of no context.
        1 => long(found.owner.context().and_then(|id| machine.context_of(id)).map_or(0, |handle| handle.0)),
        2 => word(if is_host { MEMORY_HOST } else { MEMORY_DEVICE }),
        3 => long(pointer),
        4 if is_host => long(pointer),
        // Synchronous memory operations, managed memory, hardware decompression.
        6 | 8 | 21 => flag(false),
        7 | 20 => long(found.id),
        9 => Out::at(data).set(named_device(machine, found) as i32),
        10 => flag(found.kind == Kind::Device && found.owner.context().is_some() && has_legacy_ipc()),
        11 => long(range().0),
        12 => long(range().1),
        18 => long(found.size),
        19 => long(found.base),
        13 => flag(true),
        14 => long(if machine.has_descriptor(found) { DESCRIPTOR.into() } else { 0 }),
        15 => flag(!is_host),
        16 => word(machine.access(found)?),
        17 => long(if let Owner::Pool(pool) = found.owner { pool.0 } else { 0 }),
        4 | 5 => return Err(Error::INVALID_VALUE),
        _ => return Err(Error::INVALID_VALUE),
    }
    Ok(())
}

/// Stores an attribute of addresses that were set aside, to which nothing is mapped.
fn store_reserved(number: u32, (base, size): (u64, u64), data: u64) -> Result<()> {
    match number {
        11 => Out::at(data).set(base),
        12 => Out::at(data).set(size),
        13 => Out::at(data).set(0u8),
        _ => return Err(Error::INVALID_VALUE),
    }
    Ok(())
}

/// Stores an attribute of a pointer, whatever it points to.
fn store(machine: &Machine, number: u32, pointer: u64, data: u64) -> Result<()> {
    match (machine.find(pointer), machine.reservation(pointer)) {
        (Some(found), _) => store_attribute(machine, number, pointer, &found, data),
        (None, Some(range)) => store_reserved(number, range, data),
        (None, None) => Err(Error::INVALID_VALUE),
    }
}

/// Stores what unknown memory has for an attribute.
fn store_nothing(number: u32, data: u64) {
    match number {
        6 | 8 | 10 | 13 | 15 | 21 => Out::at(data).set(0u8),
        2 | 16 => Out::at(data).set(0u32),
        9 => Out::at(data).set(NO_DEVICE),
        _ => Out::at(data).set(0u64),
    }
}

/// Bytes of one channel of a `CUarray_format`.
fn channel_bytes(format: u32) -> Result<u64> {
    match format {
        0x01 | 0x08 => Ok(1),
        0x02 | 0x09 | 0x10 => Ok(2),
        0x03 | 0x0a | 0x20 => Ok(4),
        _ => Err(Error::INVALID_VALUE),
    }
}

fn create_array(array: Out<u64>, descriptor: ArrayDescriptor3d) -> Result<()> {
    let array = array.required()?;
    let ArrayDescriptor3d { width, height, depth, format, channels, flags } = descriptor;
    require(matches!(channels, 1 | 2 | 4))?;
    let element = channel_bytes(format)? * u64::from(channels);
    let shape = ArrayShape { width, height, depth, element, format, channels, flags };
    array.set(machine()?.create_array(shape)?.0);
    Ok(())
}

api! {
    fn cuMemAlloc_v2(pointer: Out<u64>, size: u64) {
        let machine = machine()?;
        let pointer = pointer.required()?;
        pointer.set(machine.allocate(Kind::Device, size, 0)?);
        Ok(())
    }

    fn cuMemAllocPitch_v2(pointer: Out<u64>, pitch: Out<u64>, width: u64, height: u64, element: u32) {
        let machine = machine()?;
        let (pointer, pitch) = (pointer.required()?, pitch.required()?);
        require(width > 0 && height > 0 && matches!(element, 4 | 8 | 16))?;
        let bytes = width.checked_next_multiple_of(GRANULE).ok_or(Error::INVALID_VALUE)?;
        let size = bytes.checked_mul(height).ok_or(Error::OUT_OF_MEMORY)?;
        pointer.set(machine.allocate(Kind::Device, size, 0)?);
        pitch.set(bytes);
        Ok(())
    }

    fn cuMemFree_v2(pointer: u64) {
        let machine = machine()?;
        if pointer == 0 { Ok(()) } else { machine.free(pointer, Kind::Device) }
    }

    fn cuMemGetInfo_v2(free: Out<u64>, total: Out<u64>) {
        let info = machine()?.memory_info()?;
        free.set(info.0);
        total.set(info.1);
        Ok(())
    }

    fn cuMemGetAddressRange_v2(base: Out<u64>, size: Out<u64>, pointer: u64) {
        let found = machine()?.find(pointer).ok_or(Error::NOT_FOUND)?;
        base.set(found.base);
        size.set(found.size);
        Ok(())
    }

    fn cuMemAllocHost_v2(pointer: Out<u64>, size: u64) {
        let machine = machine()?;
        let pointer = pointer.required()?;
        pointer.set(machine.allocate(Kind::Pinned, size, 0)?);
        Ok(())
    }

    fn cuMemHostAlloc(pointer: Out<u64>, size: u64, flags: u32) {
        let machine = machine()?;
        let pointer = pointer.required()?;
        require(flags & !HOST_FLAGS == 0)?;
        pointer.set(machine.allocate(Kind::Pinned, size, flags)?);
        Ok(())
    }

    fn cuMemFreeHost(pointer: u64) {
        machine()?.free(pointer, Kind::Pinned)
    }

    fn cuMemHostRegister_v2(pointer: u64, size: u64, flags: u32) {
        let machine = machine()?;
        require(flags & !REGISTER_FLAGS == 0)?;
        machine.register_host(pointer, size, flags)
    }

    fn cuMemHostUnregister(pointer: u64) {
        machine()?.unregister_host(pointer)
    }

    fn cuMemHostGetDevicePointer_v2(device: Out<u64>, pointer: u64, flags: u32) {
        let machine = machine()?;
        let device = device.required()?;
        require(flags == 0)?;
        pinned(machine, pointer)?;
        device.set(pointer);
        Ok(())
    }

    fn cuMemHostGetFlags(flags: Out<u32>, pointer: u64) {
        let machine = machine()?;
        flags.required()?.set(pinned(machine, pointer)?.flags);
        Ok(())
    }

    fn cuPointerGetAttribute(data: Out<u8>, attribute: u32, pointer: u64) {
        let machine = machine()?;
        let data = data.required()?.address();
        store(machine, attribute, pointer, data)
    }

    fn cuPointerGetAttributes(count: u32, attributes: In<u32>, data: In<u64>, pointer: u64) {
        let machine = machine()?;
        for index in 0..count as usize {
            let (attribute, data) = (attributes.read_nth(index)?, data.read_nth(index)?);
            require(data != 0 && (1..=21).contains(&attribute))?;
            if store(machine, attribute, pointer, data).is_err() {
                store_nothing(attribute, data);
            }
        }
        Ok(())
    }

    fn cuArrayCreate_v2(array: Out<u64>, descriptor: In<ArrayDescriptor>) {
        let ArrayDescriptor { width, height, format, channels } = descriptor.read()?;
        create_array(array, ArrayDescriptor3d { width, height, depth: 0, format, channels, flags: 0 })
    }

    fn cuArray3DCreate_v2(array: Out<u64>, descriptor: In<ArrayDescriptor3d>) {
        create_array(array, descriptor.read()?)
    }

    fn cuArrayDestroy(array: u64) {
        machine()?.destroy_array(ArrayHandle(array))
    }

    /// Its levels are one array, since nobody can take them apart here.
    fn cuMipmappedArrayCreate(array: Out<u64>, descriptor: In<ArrayDescriptor3d>, _levels: u32) {
        create_array(array, descriptor.read()?)
    }

    fn cuMipmappedArrayDestroy(array: u64) {
        machine()?.destroy_array(ArrayHandle(array))
    }

    fn cuArrayGetDescriptor_v2(descriptor: Out<ArrayDescriptor>, array: u64) {
        let machine = machine()?;
        let descriptor = descriptor.required()?;
        let ArrayShape { width, height, format, channels, .. } = machine.array_shape(ArrayHandle(array))?;
        descriptor.set(ArrayDescriptor { width, height, format, channels });
        Ok(())
    }

    fn cuArray3DGetDescriptor_v2(descriptor: Out<ArrayDescriptor3d>, array: u64) {
        let machine = machine()?;
        let descriptor = descriptor.required()?;
        let ArrayShape { width, height, depth, format, channels, flags, .. } =
            machine.array_shape(ArrayHandle(array))?;
        descriptor.set(ArrayDescriptor3d { width, height, depth, format, channels, flags });
        Ok(())
    }
}
