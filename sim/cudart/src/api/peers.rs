//! Peer access.

use crate::abi::{Opaque, Out};
use crate::entry::api;
use crate::error::Error;
use crate::thread;

api! {
    fn cudaDeviceCanAccessPeer [driver] (can: Out<i32>, device: i32, peer: i32) {
        thread::check_device(driver, device)?;
        thread::check_device(driver, peer)?;
        driver.cuDeviceCanAccessPeer(can, device, peer)
    }

    fn cudaDeviceEnablePeerAccess [driver] (peer: i32, flags: u32) {
        thread::check_device(driver, peer)?;
        thread::bind_primary(driver)?;
        driver.cuCtxEnablePeerAccess(thread::primary(driver, peer)?, flags)
    }

    fn cudaDeviceDisablePeerAccess [driver] (peer: i32) {
        thread::check_device(driver, peer)?;
        thread::bind_primary(driver)?;
        driver.cuCtxDisablePeerAccess(thread::primary(driver, peer)?)
    }

    fn cudaDeviceGetP2PAttribute [driver] (value: Out<i32>, attribute: i32, from: i32, to: i32) {
        value.required()?;
        driver.cuDeviceGetP2PAttribute(value, attribute, from, to)
    }

    /// As of 13.0.
    fn cudaDeviceGetP2PAtomicCapabilities [driver] (
        capabilities: Out<u32>,
        operations: Opaque,
        count: u32,
        from: i32,
        to: i32,
    ) {
        if operations.0.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        driver.cuDeviceGetP2PAtomicCapabilities(capabilities, operations, count, from, to)
    }
}
