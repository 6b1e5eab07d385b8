//! Streams, host functions and events.

use super::require;
use crate::abi::{Opaque, Out};
use crate::driver::{Driver, IpcHandle};
use crate::entry::api;
use crate::error::Result;
use crate::thread;

/// `cudaEventDefault`.
const PLAIN: u32 = 0;

fn create_stream(driver: &Driver, out: Out<u64>, flags: u32, priority: i32) -> Result<()> {
    thread::bind(driver)?;
    let out = out.required()?;
    let mut stream = 0;
    driver.cuStreamCreateWithPriority(&raw mut stream, flags, priority)?;
    out.set(stream);
    Ok(())
}

fn create_event(driver: &Driver, out: Out<u64>, flags: u32) -> Result<()> {
    thread::bind(driver)?;
    let out = out.required()?;
    let mut event = 0;
    driver.cuEventCreate(&raw mut event, flags)?;
    out.set(event);
    Ok(())
}

api! {
    fn cudaStreamCreate [driver] (stream: Out<u64>) { create_stream(driver, stream, PLAIN, 0) }
    fn cudaStreamCreateWithFlags [driver] (stream: Out<u64>, flags: u32) { create_stream(driver, stream, flags, 0) }

    fn cudaStreamCreateWithPriority [driver] (stream: Out<u64>, flags: u32, priority: i32) {
        create_stream(driver, stream, flags, priority)
    }

    fn cudaStreamDestroy [driver] (stream: u64) {
        thread::bind(driver)?;
        driver.cuStreamDestroy(stream)
    }

    fn cudaStreamSynchronize | cudaStreamSynchronize_ptsz [driver, default] (stream: u64) {
        thread::bind(driver)?;
        driver.cuStreamSynchronize(default, stream)
    }

    fn cudaStreamQuery | cudaStreamQuery_ptsz [driver, default] (stream: u64) {
        thread::bind(driver)?;
        driver.cuStreamQuery(default, stream)
    }

    fn cudaStreamWaitEvent | cudaStreamWaitEvent_ptsz [driver, default] (stream: u64, event: u64, flags: u32) {
        thread::bind(driver)?;
        driver.cuStreamWaitEvent(default, stream, event, flags)
    }

    fn cudaStreamGetFlags | cudaStreamGetFlags_ptsz [driver, default] (stream: u64, flags: Out<u32>) {
        thread::bind(driver)?;
        driver.cuStreamGetFlags(default, stream, flags)
    }

    fn cudaStreamGetPriority | cudaStreamGetPriority_ptsz [driver, default] (stream: u64, priority: Out<i32>) {
        thread::bind(driver)?;
        driver.cuStreamGetPriority(default, stream, priority)
    }

    fn cudaStreamAddCallback | cudaStreamAddCallback_ptsz [driver, default] (
        stream: u64,
        callback: Opaque,
        data: Opaque,
        flags: u32,
    ) {
        thread::bind(driver)?;
        driver.cuStreamAddCallback(default, stream, callback, data, flags)
    }

    fn cudaLaunchHostFunc | cudaLaunchHostFunc_ptsz [driver, default] (stream: u64, function: Opaque, data: Opaque) {
        thread::bind(driver)?;
        driver.cuLaunchHostFunc(default, stream, function, data)
    }

    fn cudaEventCreate [driver] (event: Out<u64>) { create_event(driver, event, PLAIN) }
    fn cudaEventCreateWithFlags [driver] (event: Out<u64>, flags: u32) { create_event(driver, event, flags) }

    fn cudaEventDestroy [driver] (event: u64) {
        driver.cuEventDestroy(event)
    }

    fn cudaEventRecord | cudaEventRecord_ptsz [driver, default] (event: u64, stream: u64) {
        thread::bind(driver)?;
        driver.cuEventRecord(default, event, stream)
    }

    fn cudaEventRecordWithFlags | cudaEventRecordWithFlags_ptsz [driver, default] (
        event: u64,
        stream: u64,
        flags: u32,
    ) {
        thread::bind(driver)?;
        require(flags <= 1)?;
        driver.cuEventRecordWithFlags(default, event, stream, flags)
    }

    fn cudaEventQuery [driver] (event: u64) {
        driver.cuEventQuery(event)
    }

    fn cudaEventSynchronize [driver] (event: u64) {
        driver.cuEventSynchronize(event)
    }

    fn cudaIpcGetEventHandle [driver] (handle: Out<IpcHandle>, event: u64) {
        thread::bind(driver)?;
        driver.cuIpcGetEventHandle(handle, event)
    }

    fn cudaIpcOpenEventHandle [driver] (event: Out<u64>, handle: IpcHandle) {
        thread::bind(driver)?;
        driver.cuIpcOpenEventHandle(event, handle)
    }

    fn cudaEventElapsedTime [driver] (milliseconds: Out<f32>, start: u64, end: u64) {
        driver.cuEventElapsedTime(milliseconds, start, end)
    }

    /// The name that 12.8 and later of 12 use.
    fn cudaEventElapsedTime_v2 [driver] (milliseconds: Out<f32>, start: u64, end: u64) {
        driver.cuEventElapsedTime(milliseconds, start, end)
    }
}
