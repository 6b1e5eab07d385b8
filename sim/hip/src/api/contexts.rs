//! Contexts: one for each device, for ever. The program's stack of them only says which device is current.

use p2psim_core::Error;

use super::require;
use crate::abi::Out;
use crate::entry::{Gpus, api};
use crate::error::{CONTEXT_IN_USE, Result};
use crate::thread;

/// The device whose context that is; the real library does not look.
fn device_of(gpus: &Gpus, context: u64) -> Result<usize> {
    Ok(gpus.device_of(context).ok_or(Error::INVALID_CONTEXT)?)
}

api! {
    fn hipCtxCreate [gpus] (context: Out<u64>, _flags: u32, device: i32) {
        let device = gpus.device(device).map_err(|_| Error::INVALID_VALUE)?;
        context.required()?.set(gpus.context(device)?.0);
        thread::push_context(device);
        Ok(())
    }

    fn hipCtxDestroy [gpus] (context: u64) {
        require(context != 0)?;
        if thread::top_context() == Some(device_of(gpus, context)?) {
            thread::pop_context();
        }
        Ok(())
    }

    fn hipCtxSetCurrent [gpus] (context: u64) {
        if context == 0 {
            thread::pop_context();
            return Ok(());
        }
        let device = device_of(gpus, context)?;
        gpus.set_current(device)?;
        thread::pop_context();
        thread::push_context(device);
        Ok(())
    }

    fn hipCtxGetCurrent [gpus] (context: Out<u64>) {
        context.required()?.set(gpus.context(gpus.current()?)?.0);
        Ok(())
    }

    fn hipCtxPushCurrent [gpus] (context: u64) {
        let device = device_of(gpus, context)?;
        gpus.set_current(device)?;
        thread::push_context(device);
        Ok(())
    }

    /// The device stays current.
    fn hipCtxPopCurrent [gpus] (context: Out<u64>) {
        let device = thread::pop_context().ok_or(Error::INVALID_CONTEXT)?;
        context.set(gpus.context(device)?.0);
        Ok(())
    }

    fn hipCtxGetDevice [gpus] (device: Out<i32>) {
        device.required()?.set(gpus.current()? as i32);
        Ok(())
    }

    fn hipDevicePrimaryCtxRetain [gpus] (context: Out<u64>, device: i32) {
        let device = gpus.device(device)?;
        context.required()?.set(gpus.context(device)?.0);
        Ok(())
    }

    fn hipDevicePrimaryCtxRelease [gpus] (device: i32) {
        gpus.device(device)?;
        Ok(())
    }

    /// Does nothing.
    fn hipDevicePrimaryCtxReset [_gpus] (_device: i32) { Ok(()) }

    fn hipDevicePrimaryCtxGetState [gpus] (device: i32, flags: Out<u32>, active: Out<i32>) {
        gpus.device(device)?;
        flags.set(0);
        active.set(1);
        Ok(())
    }

    fn hipDevicePrimaryCtxSetFlags [gpus] (device: i32, _flags: u32) {
        gpus.device(device)?;
        Err(CONTEXT_IN_USE.into())
    }
}
