//! Memory pools and allocation in a stream's order.

use crate::abi::{Opaque, Out};
use crate::driver::{DefaultStream, Driver};
use crate::entry::api;
use crate::error::Result;
use crate::thread;

fn allocate(
    driver: &Driver,
    default: DefaultStream,
    out: Out<u64>,
    size: u64,
    pool: Option<u64>,
    stream: u64,
) -> Result<()> {
    thread::bind(driver)?;
    let out = out.required()?;
    let mut pointer = 0;
    match pool {
        _ if size == 0 => {}
        Some(pool) => driver.cuMemAllocFromPoolAsync(default, &raw mut pointer, size, pool, stream)?,
        None => driver.cuMemAllocAsync(default, &raw mut pointer, size, stream)?,
    }
    out.set(pointer);
    Ok(())
}

api! {
    fn cudaMallocAsync | cudaMallocAsync_ptsz [driver, default] (out: Out<u64>, size: u64, stream: u64) {
        allocate(driver, default, out, size, None, stream)
    }

    fn cudaMallocFromPoolAsync | cudaMallocFromPoolAsync_ptsz [driver, default] (
        out: Out<u64>,
        size: u64,
        pool: u64,
        stream: u64,
    ) {
        allocate(driver, default, out, size, Some(pool), stream)
    }

    fn cudaFreeAsync | cudaFreeAsync_ptsz [driver, default] (pointer: u64, stream: u64) {
        thread::bind(driver)?;
        driver.cuMemFreeAsync(default, pointer, stream)
    }

    fn cudaDeviceGetDefaultMemPool [driver] (pool: Out<u64>, device: i32) {
        driver.cuDeviceGetDefaultMemPool(pool, device)
    }

    fn cudaDeviceGetMemPool [driver] (pool: Out<u64>, device: i32) {
        driver.cuDeviceGetMemPool(pool, device)
    }

    fn cudaDeviceSetMemPool [driver] (device: i32, pool: u64) {
        driver.cuDeviceSetMemPool(device, pool)
    }

    /// As of 13.0.
    fn cudaMemGetDefaultMemPool [driver] (pool: Out<u64>, location: Opaque, kind: u32) {
        driver.cuMemGetDefaultMemPool(pool, location, kind)
    }

    /// As of 13.0.
    fn cudaMemGetMemPool [driver] (pool: Out<u64>, location: Opaque, kind: u32) {
        driver.cuMemGetMemPool(pool, location, kind)
    }

    /// As of 13.0.
    fn cudaMemSetMemPool [driver] (location: Opaque, kind: u32, pool: u64) {
        driver.cuMemSetMemPool(location, kind, pool)
    }

    fn cudaMemPoolCreate [driver] (pool: Out<u64>, properties: Opaque) {
        driver.cuMemPoolCreate(pool, properties)
    }

    fn cudaMemPoolExportToShareableHandle [driver] (shareable: Opaque, pool: u64, handle_type: u32, flags: u32) {
        driver.cuMemPoolExportToShareableHandle(shareable, pool, handle_type, flags.into())
    }

    fn cudaMemPoolImportFromShareableHandle [driver] (
        pool: Out<u64>,
        shareable: Opaque,
        handle_type: u32,
        flags: u32,
    ) {
        driver.cuMemPoolImportFromShareableHandle(pool, shareable, handle_type, flags.into())
    }

    fn cudaMemPoolExportPointer [driver] (data: Opaque, pointer: u64) {
        driver.cuMemPoolExportPointer(data, pointer)
    }

    fn cudaMemPoolImportPointer [driver] (pointer: Out<u64>, pool: u64, data: Opaque) {
        driver.cuMemPoolImportPointer(pointer, pool, data)
    }

    fn cudaMemPoolDestroy [driver] (pool: u64) {
        driver.cuMemPoolDestroy(pool)
    }

    fn cudaMemPoolSetAccess [driver] (pool: u64, descriptors: Opaque, count: u64) {
        driver.cuMemPoolSetAccess(pool, descriptors, count)
    }

    fn cudaMemPoolGetAccess [driver] (flags: Out<u32>, pool: u64, location: Opaque) {
        driver.cuMemPoolGetAccess(flags, pool, location)
    }

    fn cudaMemPoolTrimTo [driver] (pool: u64, keep: u64) {
        driver.cuMemPoolTrimTo(pool, keep)
    }

    fn cudaMemPoolSetAttribute [driver] (pool: u64, attribute: u32, value: Opaque) {
        driver.cuMemPoolSetAttribute(pool, attribute, value)
    }

    fn cudaMemPoolGetAttribute [driver] (pool: u64, attribute: u32, value: Opaque) {
        driver.cuMemPoolGetAttribute(pool, attribute, value)
    }
}
