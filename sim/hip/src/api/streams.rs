//! Streams and host functions.

use std::sync::Arc;

use p2psim_core::machine::StreamHandle;
use p2psim_core::{Error, Role};

use super::require;
use crate::abi::{Opaque, Out};
use crate::entry::{Gpus, api};
use crate::error::Result;
use crate::flavour;
use crate::functions::{HostFunction, StreamCallback};

/// `hipStreamNonBlocking`.
const NON_BLOCKING: u32 = 1;
/// Priorities: lower numbers come first.
const PRIORITIES: (i32, i32) = (-1, 1);

fn create(gpus: &Gpus, out: Out<u64>, flags: u32, priority: i32) -> Result<()> {
    let out = out.required()?;
    require(flags <= NON_BLOCKING)?;
    let role = if flags == NON_BLOCKING { Role::NonBlocking } else { Role::Blocking };
    out.set(gpus.create_stream(role, priority.clamp(PRIORITIES.0, PRIORITIES.1))?.0);
    Ok(())
}

api! {
    fn hipStreamCreate [gpus] (out: Out<u64>) { create(gpus, out, 0, 0) }

    fn hipStreamCreateWithFlags [gpus] (out: Out<u64>, flags: u32) { create(gpus, out, flags, 0) }

    fn hipStreamCreateWithPriority [gpus] (out: Out<u64>, flags: u32, priority: i32) {
        create(gpus, out, flags, priority)
    }

    fn hipStreamDestroy [gpus] (queue: u64) {
        let is_default = queue == 0 || queue == 2 || (queue == 1 && flavour::major() >= 7);
        if is_default {
            return Err(Error::INVALID_HANDLE.into());
        }
        Ok(gpus.destroy_stream(StreamHandle(queue)).map_err(|_| Error::CONTEXT_IS_DESTROYED)?)
    }

    fn hipStreamSynchronize [gpus] (queue: u64) { Ok(gpus.synchronize_stream(gpus.stream(queue)?)?) }

    fn hipStreamQuery [gpus] (queue: u64) {
        if gpus.stream_is_done(gpus.stream(queue)?)? { Ok(()) } else { Err(Error::NOT_READY.into()) }
    }

    fn hipStreamGetDevice [gpus] (queue: u64, device: Out<i32>) {
        let device = device.required()?;
        device.set(gpus.stream_info(gpus.stream(queue)?)?.device as i32);
        Ok(())
    }

    fn hipStreamGetFlags [gpus] (queue: u64, flags: Out<u32>) {
        let flags = flags.required()?;
        require(queue != 0)?;
        let info = gpus.stream_info(gpus.stream(queue)?)?;
        flags.set(if info.blocking { 0 } else { NON_BLOCKING });
        Ok(())
    }

    fn hipLaunchHostFunc [gpus] (queue: u64, function: HostFunction, data: Opaque) {
        let call = function.with(data)?;
        Ok(gpus.launch_host(gpus.stream(queue)?, Arc::new(call))?)
    }

    fn hipStreamAddCallback [gpus] (queue: u64, callback: StreamCallback, data: Opaque, flags: u32) {
        let call = callback.with(Opaque(queue as *mut _), data)?;
        require(flags == 0)?;
        Ok(gpus.launch_host(gpus.stream(queue)?, Arc::new(call))?)
    }
}
