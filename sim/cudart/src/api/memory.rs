//! Allocations, arrays and what a pointer points to.

use std::ffi::c_void;

use super::require;
use super::structs::{ChannelFormat, Extent, PitchedPointer};
use crate::abi::{In, Out};
use crate::driver::{ArrayDescriptor, Driver, IpcHandle};
use crate::entry::api;
use crate::error::{Error, Result};
use crate::{flavour, thread};

/// The attributes that `cudaPointerGetAttributes` asks the driver for: type of memory, ordinal, device pointer, host pointer.
const ATTRIBUTES: [u32; 4] = [2, 9, 3, 4];

/// The start of `cudaPointerAttributes`; in 13.0 a reserved part follows.
#[repr(C)]
#[derive(Default)]
struct PointerAttributes {
    memory_type: u32,
    device: i32,
    device_pointer: u64,
    host_pointer: u64,
}

const ATTRIBUTES_SIZE: usize = size_of::<PointerAttributes>();
const ATTRIBUTES_RESERVED: usize = 64;

fn host_allocate(driver: &Driver, out: Out<u64>, size: u64, flags: u32) -> Result<()> {
    thread::bind(driver)?;
    let out = out.required()?;
    let mut pointer = 0;
    if size != 0 {
        driver.cuMemHostAlloc(&raw mut pointer, size, flags)?;
    }
    out.set(pointer);
    Ok(())
}

/// Pointer and pitch of `height` rows; NULL for none.
fn allocate_rows(driver: &Driver, width: u64, height: u64) -> Result<(u64, u64)> {
    let (mut pointer, mut pitch) = (0, 0);
    if width != 0 && height != 0 {
        driver.cuMemAllocPitch(&raw mut pointer, &raw mut pitch, width, height, 4)?;
    }
    Ok((pointer, pitch))
}

/// The driver's format and number of channels for the runtime's description.
fn array_format(format: ChannelFormat) -> Result<(u32, u32)> {
    let [first, rest @ ..] = format.bits;
    let channels = 1 + rest.iter().take_while(|bits| **bits != 0).count() as u32;
    if format.bits.iter().any(|bits| *bits != 0 && *bits != first) {
        return Err(Error::INVALID_CHANNEL_DESCRIPTOR);
    }
    // cudaChannelFormatKind: signed, unsigned, float.
    let format = match (format.kind, first) {
        (1, 8) => 0x01,
        (1, 16) => 0x02,
        (1, 32) => 0x03,
        (0, 8) => 0x08,
        (0, 16) => 0x09,
        (0, 32) => 0x0a,
        (2, 16) => 0x10,
        (2, 32) => 0x20,
        _ => return Err(Error::INVALID_CHANNEL_DESCRIPTOR),
    };
    Ok((format, channels))
}

fn allocate_array(
    driver: &Driver,
    array: Out<u64>,
    format: In<ChannelFormat>,
    extent: Extent,
    flags: u32,
) -> Result<()> {
    thread::bind(driver)?;
    let array = array.required()?;
    let (format, channels) = array_format(format.read()?)?;
    let Extent { width, height, depth } = extent;
    let descriptor = ArrayDescriptor { width, height, depth, format, channels, flags };
    let mut handle = 0;
    driver.cuArray3DCreate(&raw mut handle, &raw const descriptor)?;
    array.set(handle);
    Ok(())
}

fn pointer_attributes(driver: &Driver, pointer: u64) -> Result<PointerAttributes> {
    let mut found = PointerAttributes::default();
    let data: [*mut c_void; ATTRIBUTES.len()] = [
        (&raw mut found.memory_type).cast(),
        (&raw mut found.device).cast(),
        (&raw mut found.device_pointer).cast(),
        (&raw mut found.host_pointer).cast(),
    ];
    driver.cuPointerGetAttributes(ATTRIBUTES.len() as u32, ATTRIBUTES.as_ptr(), data.as_ptr(), pointer)?;
    Ok(found)
}

api! {
    fn cudaMalloc [driver] (out: Out<u64>, size: u64) {
        thread::bind(driver)?;
        let out = out.required()?;
        let mut pointer = 0;
        if size != 0 {
            driver.cuMemAlloc(&raw mut pointer, size)?;
        }
        out.set(pointer);
        Ok(())
    }

    fn cudaFree [driver] (pointer: u64) {
        thread::bind(driver)?;
        match driver.cuMemFree(pointer) {
            _ if pointer == 0 => Ok(()),
            Err(Error::INVALID_VALUE) if !flavour::has_the_drivers_codes() => Err(Error::INVALID_DEVICE_POINTER),
            freed => freed,
        }
    }

    fn cudaMallocPitch [driver] (out: Out<u64>, pitch: Out<u64>, width: u64, height: u64) {
        thread::bind(driver)?;
        let (out, pitch) = (out.required()?, pitch.required()?);
        let rows = allocate_rows(driver, width, height)?;
        out.set(rows.0);
        pitch.set(rows.1);
        Ok(())
    }

    fn cudaMalloc3D [driver] (out: Out<PitchedPointer>, extent: Extent) {
        thread::bind(driver)?;
        let out = out.required()?;
        let height = extent.height.checked_mul(extent.depth).ok_or(Error::INVALID_VALUE)?;
        let (pointer, pitch) = allocate_rows(driver, extent.width, height)?;
        out.set(PitchedPointer { pointer, pitch, xsize: extent.width, ysize: extent.height });
        Ok(())
    }

    fn cudaMallocHost [driver] (out: Out<u64>, size: u64) { host_allocate(driver, out, size, 0) }
    fn cudaHostAlloc [driver] (out: Out<u64>, size: u64, flags: u32) { host_allocate(driver, out, size, flags) }

    fn cudaFreeHost [driver] (pointer: u64) {
        thread::bind(driver)?;
        if pointer == 0 { Ok(()) } else { driver.cuMemFreeHost(pointer) }
    }

    fn cudaHostRegister [driver] (pointer: u64, size: u64, flags: u32) {
        thread::bind(driver)?;
        driver.cuMemHostRegister(pointer, size, flags)
    }

    fn cudaHostUnregister [driver] (pointer: u64) {
        thread::bind(driver)?;
        driver.cuMemHostUnregister(pointer)
    }

    fn cudaHostGetDevicePointer [driver] (device: Out<u64>, pointer: u64, flags: u32) {
        thread::bind(driver)?;
        let device = device.required()?;
        let mut address = 0;
        driver.cuMemHostGetDevicePointer(&raw mut address, pointer, flags)?;
        device.set(address);
        Ok(())
    }

    fn cudaIpcGetMemHandle [driver] (handle: Out<IpcHandle>, pointer: u64) {
        thread::bind(driver)?;
        driver.cuIpcGetMemHandle(handle, pointer)
    }

    fn cudaIpcOpenMemHandle [driver] (out: Out<u64>, handle: IpcHandle, flags: u32) {
        thread::bind(driver)?;
        driver.cuIpcOpenMemHandle(out, handle, flags)
    }

    fn cudaIpcCloseMemHandle [driver] (pointer: u64) {
        thread::bind(driver)?;
        driver.cuIpcCloseMemHandle(pointer)
    }

    fn cudaHostGetFlags [driver] (flags: Out<u32>, pointer: u64) {
        thread::bind(driver)?;
        let flags = flags.required()?;
        let mut value = 0;
        driver.cuMemHostGetFlags(&raw mut value, pointer)?;
        flags.set(value);
        Ok(())
    }

    fn cudaPointerGetAttributes [driver] (attributes: Out<u8>, pointer: u64) {
        thread::bind(driver)?;
        let start = Out::at(attributes.required()?.address());
        start.set(pointer_attributes(driver, pointer)?);
        if flavour::major() >= 13 {
            (0..ATTRIBUTES_RESERVED).for_each(|index| attributes.set_nth(ATTRIBUTES_SIZE + index, 0));
        }
        Ok(())
    }

    fn cudaMallocArray [driver] (array: Out<u64>, format: In<ChannelFormat>, width: u64, height: u64, flags: u32) {
        allocate_array(driver, array, format, Extent { width, height, depth: 0 }, flags)
    }

    fn cudaMalloc3DArray [driver] (array: Out<u64>, format: In<ChannelFormat>, extent: Extent, flags: u32) {
        allocate_array(driver, array, format, extent, flags)
    }

    fn cudaFreeArray [driver] (array: u64) {
        thread::bind(driver)?;
        if array == 0 { Ok(()) } else { driver.cuArrayDestroy(array) }
    }

    fn cudaMemset | cudaMemset_ptds [driver, default] (dst: u64, value: i32, count: u64) {
        thread::bind(driver)?;
        driver.cuMemsetD8(default, dst, value as u8, count)
    }

    fn cudaMemsetAsync | cudaMemsetAsync_ptsz [driver, default] (dst: u64, value: i32, count: u64, stream: u64) {
        thread::bind(driver)?;
        driver.cuMemsetD8Async(default, dst, value as u8, count, stream)
    }

    fn cudaMemset2D | cudaMemset2D_ptds [driver, default] (
        dst: u64,
        pitch: u64,
        value: i32,
        width: u64,
        height: u64,
    ) {
        thread::bind(driver)?;
        require(height <= 1 || width <= pitch)?;
        driver.cuMemsetD2D8(default, dst, pitch, value as u8, width, height)
    }

    fn cudaMemset2DAsync | cudaMemset2DAsync_ptsz [driver, default] (
        dst: u64,
        pitch: u64,
        value: i32,
        width: u64,
        height: u64,
        stream: u64,
    ) {
        thread::bind(driver)?;
        require(height <= 1 || width <= pitch)?;
        driver.cuMemsetD2D8Async(default, dst, pitch, value as u8, width, height, stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_format_of_channels() {
        let format = |bits, kind| array_format(ChannelFormat { bits, kind });
        assert_eq!(format([8, 0, 0, 0], 1), Ok((0x01, 1)));
        assert_eq!(format([32, 32, 32, 32], 2), Ok((0x20, 4)));
        assert_eq!(format([16, 8, 0, 0], 1), Err(Error::INVALID_CHANNEL_DESCRIPTOR));
        assert_eq!(format([8, 0, 0, 0], 2), Err(Error::INVALID_CHANNEL_DESCRIPTOR));
    }
}
