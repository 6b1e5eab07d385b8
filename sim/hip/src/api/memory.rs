//! Allocations and what a pointer points to.

use p2psim_core::{Allocation, DEVICE_MEMORY, Error, Kind};

use super::require;
use super::structs::PointerAttributes;
use crate::abi::Out;
use crate::entry::{Gpus, api};
use crate::error::Result;
use crate::flavour;

/// `hipHostMallocCoherent`, `…NonCoherent`: not both.
const COHERENT: u32 = 0xc000_0000;
/// `hipInvalidDeviceId`.
const NO_DEVICE: i32 = -2;
/// `hipMemoryType`, which 6.0 numbered anew: host, device.
const BEFORE_6: [u32; 2] = [0, 1];
const FROM_6: [u32; 2] = [1, 2];
/// From 6.0 on, memory that is not known.
const UNREGISTERED: u32 = 0;

fn memory_type(found: &Allocation) -> u32 {
    let [host, device] = if flavour::major() < 6 { BEFORE_6 } else { FROM_6 };
    if found.kind.is_host() { host } else { device }
}

fn host_allocate(gpus: &Gpus, out: Out<u64>, size: u64, flags: u32) -> Result<()> {
    gpus.refuse_unseen()?;
    let out = out.required()?;
    require(flags & COHERENT != COHERENT)?;
    out.set(if size == 0 { 0 } else { gpus.allocate(Kind::Pinned, size, flags)? });
    Ok(())
}

/// The attributes of unknown memory; refused before 6.0.
fn unknown() -> Result<PointerAttributes> {
    require(flavour::major() >= 6)?;
    Ok(PointerAttributes {
        memory_type: UNREGISTERED,
        device: NO_DEVICE,
        device_pointer: 0,
        host_pointer: 0,
        is_managed: 0,
        flags: 0,
    })
}

fn attributes(gpus: &Gpus, pointer: u64) -> Result<PointerAttributes> {
    let Some(found) = gpus.find(pointer) else { return unknown() };
    Ok(PointerAttributes {
        memory_type: memory_type(&found),
        device: found.device as i32,
        device_pointer: pointer,
        host_pointer: if found.kind.is_host() { pointer } else { 0 },
        is_managed: 0,
        flags: found.flags,
    })
}

/// Stores one attribute, by its number: type, device pointer, host pointer, identity, managed, ordinal, start, size, mapped.
fn store_attribute(gpus: &Gpus, number: u32, pointer: u64, data: u64) -> Result<()> {
    let found = gpus.find(pointer).ok_or(Error::INVALID_VALUE)?;
    match number {
        2 => Out::at(data).set(memory_type(&found)),
        3 => Out::at(data).set(pointer),
        4 if found.kind.is_host() => Out::at(data).set(pointer),
        7 => Out::at(data).set(found.id as u32),
        8 => Out::at(data).set(0u8),
        9 => Out::at(data).set(found.device as i32),
        11 => Out::at(data).set(found.base),
        12 => Out::at(data).set(found.size),
        13 => Out::at(data).set(1u8),
        1 | 5 | 10 | 14 | 15 | 17 => return Err(Error::NOT_SUPPORTED.into()),
        _ => return Err(Error::INVALID_VALUE.into()),
    }
    Ok(())
}

api! {
    fn hipMalloc [gpus] (out: Out<u64>, size: u64) {
        gpus.refuse_unseen()?;
        let out = out.required()?;
        out.set(0);
        if size != 0 {
            out.set(gpus.allocate_of_device(size)?);
        }
        Ok(())
    }

    /// Device memory and host memory alike.
    fn hipFree [gpus] (pointer: u64) {
        gpus.refuse_unseen()?;
        if pointer == 0 { Ok(()) } else { Ok(gpus.free_by_device(pointer)?) }
    }

    fn hipMallocAsync [gpus] (out: Out<u64>, size: u64, queue: u64) {
        let out = out.required()?;
        let stream = gpus.stream(queue)?;
        out.set(if size == 0 { 0 } else { gpus.allocate_of_stream(stream, size)? });
        Ok(())
    }

    fn hipFreeAsync [gpus] (pointer: u64, queue: u64) {
        require(pointer != 0)?;
        Ok(gpus.free_async(pointer, gpus.stream(queue)?)?)
    }

    fn hipHostMalloc [gpus] (out: Out<u64>, size: u64, flags: u32) { host_allocate(gpus, out, size, flags) }

    fn hipHostFree [gpus] (pointer: u64) {
        gpus.refuse_unseen()?;
        if pointer == 0 { Ok(()) } else { Ok(gpus.free_by_device(pointer)?) }
    }

    fn hipMemGetInfo [gpus] (free: Out<u64>, total: Out<u64>) {
        free.set(gpus.memory_info()?.0);
        total.set(DEVICE_MEMORY);
        Ok(())
    }

    fn hipMemGetAddressRange [gpus] (base: Out<u64>, size: Out<u64>, pointer: u64) {
        let found = gpus.find(pointer).ok_or(Error::NOT_FOUND)?;
        base.set(found.base);
        size.set(found.size);
        Ok(())
    }

    fn hipPointerGetAttributes [gpus] (out: Out<PointerAttributes>, pointer: u64) {
        let out = out.required()?;
        require(pointer != 0)?;
        out.set(attributes(gpus, pointer)?);
        Ok(())
    }

    fn hipPointerGetAttribute [gpus] (data: Out<u8>, number: u32, pointer: u64) {
        let data = data.required()?.address();
        require(pointer != 0)?;
        store_attribute(gpus, number, pointer, data)
    }
}
