//! Devices.

use std::ffi::c_char;

use super::require;
use super::structs::{self, DeviceProperties};
use crate::abi::{In, Opaque, Out};
use crate::entry::api;
use crate::error::Error;
use crate::{flavour, thread};

api! {
    fn cudaGetDeviceCount [driver] (count: Out<i32>) {
        count.required()?.set(driver.devices);
        Ok(())
    }

    fn cudaSetDevice [driver] (device: i32) {
        thread::set_device(driver, device)
    }

    fn cudaGetDevice [driver] (device: Out<i32>) {
        device.required()?.set(thread::device(driver)?);
        Ok(())
    }

    fn cudaDeviceSynchronize [driver] () {
        thread::bind(driver)?;
        driver.cuCtxSynchronize()
    }

    fn cudaDeviceReset [driver] () {
        driver.cuDevicePrimaryCtxReset(thread::device(driver)?)
    }

    /// Gone with 13.0.
    fn cudaThreadExit [driver] () {
        driver.cuDevicePrimaryCtxReset(thread::device(driver)?)
    }

    /// Gone with 13.0.
    fn cudaThreadSynchronize [driver] () {
        thread::bind(driver)?;
        driver.cuCtxSynchronize()
    }

    /// Until 10.2, only before the device is used.
    fn cudaSetDeviceFlags [driver] (flags: u32) {
        /// How to wait: by itself, spinning, yielding, or blocked; and whether host memory is mapped, or local memory kept.
        const WAITS: [u32; 4] = [0, 1, 2, 4];
        const OTHERS: u32 = 0x18;
        if flavour::major() < 11 {
            require(WAITS.contains(&(flags & !OTHERS)))?;
            if thread::is_in_use(driver, thread::device(driver)?) {
                return Err(Error::SET_ON_ACTIVE_PROCESS);
            }
        }
        driver.cuDevicePrimaryCtxSetFlags(thread::device(driver)?, flags)
    }

    fn cudaGetDeviceFlags [driver] (flags: Out<u32>) {
        thread::bind(driver)?;
        let flags = flags.required()?;
        let mut value = 0;
        driver.cuCtxGetFlags(&raw mut value)?;
        flags.set(value);
        Ok(())
    }

    fn cudaDeviceGetAttribute [driver] (value: Out<i32>, attribute: i32, device: i32) {
        let value = value.required()?;
        let mut answer = 0;
        driver.cuDeviceGetAttribute(&raw mut answer, attribute, device)?;
        value.set(answer);
        Ok(())
    }

    fn cudaDeviceGetPCIBusId [driver] (text: Out<c_char>, length: i32, device: i32) {
        driver.cuDeviceGetPCIBusId(text, length, device)
    }

    fn cudaDeviceGetByPCIBusId [driver] (device: Out<i32>, text: In<c_char>) {
        text.text()?;
        let device = device.required()?;
        let mut found = 0;
        driver.cuDeviceGetByPCIBusId(&raw mut found, text.pointer())?;
        device.set(found);
        Ok(())
    }

    fn cudaDeviceGetStreamPriorityRange [driver] (least: Out<i32>, greatest: Out<i32>) {
        thread::bind(driver)?;
        driver.cuCtxGetStreamPriorityRange(least, greatest)
    }

    fn cudaMemGetInfo [driver] (free: Out<u64>, total: Out<u64>) {
        thread::bind(driver)?;
        let (free, total) = (free.required()?, total.required()?);
        let (mut free_bytes, mut total_bytes) = (0, 0);
        driver.cuMemGetInfo(&raw mut free_bytes, &raw mut total_bytes)?;
        free.set(free_bytes);
        total.set(total_bytes);
        Ok(())
    }

    /// The structure grew in 12 (then under the name with `_v2`) and lost members in 13.
    fn cudaGetDeviceProperties [driver] (properties: Out<u8>, device: i32) {
        let size = if flavour::major() >= 13 { structs::PROPERTIES_13 } else { structs::PROPERTIES_11 };
        DeviceProperties::of(driver, device, flavour::major())?.store(properties.required()?, size);
        Ok(())
    }

    fn cudaGetDeviceProperties_v2 [driver] (properties: Out<u8>, device: i32) {
        DeviceProperties::of(driver, device, 12)?.store(properties.required()?, structs::PROPERTIES_12);
        Ok(())
    }

    /// As of 12.0.
    fn cudaInitDevice [driver] (device: i32, _device_flags: u32, _flags: u32) {
        thread::check_device(driver, device)?;
        thread::primary(driver, device).map(drop)
    }

    /// No graphics, no profiler: there is no table to hand out.
    fn cudaGetExportTable [_driver] (table: Out<Opaque>, _id: Opaque) {
        table.required()?.set(Opaque::NULL);
        Err(Error::SYMBOL_NOT_FOUND)
    }
}
