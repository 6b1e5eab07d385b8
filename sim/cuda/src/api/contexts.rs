//! Primary and created contexts, and the thread's stack of them.

use p2psim_core::machine::{ContextHandle, ContextInfo};
use p2psim_core::{Error, Machine, Result, current};

use super::require;
use crate::abi::{Opaque, Out};
use crate::entry::{api, machine};

/// Flags that a context can be created with.
const CONTEXT_FLAGS: u32 = 0xff;
/// The version that contexts say that they were made for.
const API_VERSION: u32 = 3020;

/// A context, or the current one for NULL.
fn info(machine: &Machine, handle: u64) -> Result<ContextInfo> {
    if handle == 0 { machine.current_context() } else { machine.context(ContextHandle(handle)) }
}

fn create(context: Out<u64>, flags: u32, device: i32) -> Result<()> {
    let machine = machine()?;
    let context = context.required()?;
    require(flags & !CONTEXT_FLAGS == 0)?;
    let handle = machine.create_context(machine.device(device)?, flags)?;
    current::push(handle);
    context.set(handle.0);
    Ok(())
}

fn release(device: i32) -> Result<()> {
    let machine = machine()?;
    machine.release_primary(machine.device(device)?)
}

fn reset(device: i32) -> Result<()> {
    let machine = machine()?;
    machine.reset_primary(machine.device(device)?)
}

fn set_flags(device: i32, flags: u32) -> Result<()> {
    let machine = machine()?;
    let device = machine.device(device)?;
    require(flags & !CONTEXT_FLAGS == 0)?;
    machine.set_primary_flags(device, flags)
}

api! {
    fn cuDevicePrimaryCtxRetain(context: Out<u64>, device: i32) {
        let machine = machine()?;
        let context = context.required()?;
        context.set(machine.retain_primary(machine.device(device)?)?.0);
        Ok(())
    }

    fn cuDevicePrimaryCtxRelease(device: i32) { release(device) }
    fn cuDevicePrimaryCtxRelease_v2(device: i32) { release(device) }
    fn cuDevicePrimaryCtxReset(device: i32) { reset(device) }
    fn cuDevicePrimaryCtxReset_v2(device: i32) { reset(device) }
    fn cuDevicePrimaryCtxSetFlags(device: i32, flags: u32) { set_flags(device, flags) }
    fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) { set_flags(device, flags) }

    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) {
        let machine = machine()?;
        let state = machine.primary_state(machine.device(device)?)?;
        flags.required()?.set(state.flags);
        active.required()?.set(state.active.into());
        Ok(())
    }

    fn cuCtxCreate_v2(context: Out<u64>, flags: u32, device: i32) { create(context, flags, device) }

    /// As of 11.4; execution affinity is not simulated.
    fn cuCtxCreate_v3(context: Out<u64>, _affinity: Opaque, _count: i32, flags: u32, device: i32) {
        create(context, flags, device)
    }

    /// As of 12.5; its parameters are not simulated.
    fn cuCtxCreate_v4(context: Out<u64>, _parameters: Opaque, flags: u32, device: i32) {
        create(context, flags, device)
    }

    fn cuCtxDestroy_v2(context: u64) {
        machine()?.destroy_context(ContextHandle(context))
    }

    /// A context that nobody has attached to: this is its last use.
    fn cuCtxDetach(context: u64) {
        machine()?.destroy_context(ContextHandle(context))
    }

    fn cuCtxPushCurrent_v2(context: u64) {
        current::push(machine()?.context(ContextHandle(context))?.handle);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(context: Out<u64>) {
        machine()?;
        context.set(current::pop().ok_or(Error::INVALID_CONTEXT)?.0);
        Ok(())
    }

    fn cuCtxSetCurrent(context: u64) {
        let machine = machine()?;
        let handle = (context != 0).then_some(ContextHandle(context));
        handle.map(|handle| machine.context(handle)).transpose()?;
        current::set(handle);
        Ok(())
    }

    fn cuCtxGetCurrent(context: Out<u64>) {
        machine()?;
        context.required()?.set(current::get().map_or(0, |handle| handle.0));
        Ok(())
    }

    fn cuCtxGetDevice(device: Out<i32>) {
        let machine = machine()?;
        device.required()?.set(machine.current_context()?.device as i32);
        Ok(())
    }

    /// As of 13.0, of any context.
    fn cuCtxGetDevice_v2(device: Out<i32>, context: u64) {
        let machine = machine()?;
        device.required()?.set(info(machine, context)?.device as i32);
        Ok(())
    }

    fn cuCtxGetId(context: u64, id: Out<u64>) {
        let machine = machine()?;
        id.required()?.set(info(machine, context)?.id.0);
        Ok(())
    }

    fn cuCtxGetApiVersion(context: u64, version: Out<u32>) {
        let machine = machine()?;
        let version = version.required()?;
        info(machine, context)?;
        version.set(API_VERSION);
        Ok(())
    }

    fn cuCtxGetFlags(flags: Out<u32>) {
        let machine = machine()?;
        flags.required()?.set(machine.current_context()?.flags);
        Ok(())
    }

    fn cuCtxSynchronize() {
        machine()?.synchronize_context()
    }

    /// As of 13.0, of any context.
    fn cuCtxSynchronize_v2(context: u64) {
        let machine = machine()?;
        machine.synchronize_context_of(info(machine, context)?.handle)
    }

    fn cuCtxSetLimit(limit: u32, value: u64) {
        machine()?.set_limit(limit, value)
    }

    fn cuCtxGetLimit(value: Out<u64>, limit: u32) {
        let machine = machine()?;
        value.required()?.set(machine.limit(limit)?);
        Ok(())
    }

    /// No tool listens.
    fn cuProfilerStart() { machine()?.current_context().map(drop) }
    fn cuProfilerStop() { machine()?.current_context().map(drop) }

    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) {
        machine()?.current_context()?;
        least.set(super::streams::LEAST_PRIORITY);
        greatest.set(super::streams::GREATEST_PRIORITY);
        Ok(())
    }
}
