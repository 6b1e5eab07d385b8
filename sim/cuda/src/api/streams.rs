//! Streams and host functions.

use std::sync::Arc;

use p2psim_core::machine::StreamHandle;
use p2psim_core::{Error, Result, Role};

use super::require;
use crate::abi::{Opaque, Out};
use crate::entry::{api, machine, stream};
use crate::functions::{HostFunction, StreamCallback};

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;
/// Priorities: lower numbers come first.
pub(crate) const LEAST_PRIORITY: i32 = 0;
/// The most urgent priority.
pub(crate) const GREATEST_PRIORITY: i32 = -5;

fn create(out: Out<u64>, flags: u32, priority: i32) -> Result<()> {
    let machine = machine()?;
    let out = out.required()?;
    require(flags & !NON_BLOCKING == 0)?;
    let role = if flags & NON_BLOCKING == 0 { Role::Blocking } else { Role::NonBlocking };
    let priority = priority.clamp(GREATEST_PRIORITY, LEAST_PRIORITY);
    out.set(machine.create_stream(role, priority)?.0);
    Ok(())
}

api! {
    fn cuStreamCreate(out: Out<u64>, flags: u32) { create(out, flags, LEAST_PRIORITY) }

    fn cuStreamCreateWithPriority(out: Out<u64>, flags: u32, priority: i32) { create(out, flags, priority) }

    fn cuStreamDestroy_v2(queue: u64) {
        machine()?.destroy_stream(StreamHandle(queue))
    }

    fn cuStreamSynchronize | cuStreamSynchronize_ptsz [default] (queue: u64) {
        machine()?.synchronize_stream(stream(queue, default))
    }

    fn cuStreamQuery | cuStreamQuery_ptsz [default] (queue: u64) {
        if machine()?.stream_is_done(stream(queue, default))? { Ok(()) } else { Err(Error::NOT_READY) }
    }

    fn cuStreamGetFlags | cuStreamGetFlags_ptsz [default] (queue: u64, flags: Out<u32>) {
        let info = machine()?.stream_info(stream(queue, default))?;
        flags.required()?.set(if info.blocking { 0 } else { NON_BLOCKING });
        Ok(())
    }

    fn cuStreamGetPriority | cuStreamGetPriority_ptsz [default] (queue: u64, priority: Out<i32>) {
        let info = machine()?.stream_info(stream(queue, default))?;
        priority.required()?.set(info.priority);
        Ok(())
    }

    fn cuStreamGetCtx | cuStreamGetCtx_ptsz [default] (queue: u64, context: Out<u64>) {
        let info = machine()?.stream_info(stream(queue, default))?;
        context.required()?.set(info.context.0);
        Ok(())
    }

    fn cuStreamGetDevice | cuStreamGetDevice_ptsz [default] (queue: u64, device: Out<i32>) {
        let info = machine()?.stream_info(stream(queue, default))?;
        device.required()?.set(info.device as i32);
        Ok(())
    }

    fn cuLaunchHostFunc | cuLaunchHostFunc_ptsz [default] (queue: u64, function: HostFunction, data: Opaque) {
        let machine = machine()?;
        let call = function.with(data)?;
        machine.launch_host(stream(queue, default), Arc::new(call))
    }

    fn cuStreamAddCallback | cuStreamAddCallback_ptsz [default] (
        queue: u64,
        callback: StreamCallback,
        data: Opaque,
        flags: u32,
    ) {
        let machine = machine()?;
        require(flags == 0)?;
        let call = callback.with(Opaque(queue as *mut _), data)?;
        machine.launch_host(stream(queue, default), Arc::new(call))
    }
}
