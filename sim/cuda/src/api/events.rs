//! Events.

use p2psim_core::machine::{ContextHandle, EventHandle};
use p2psim_core::{Error, Result};

use super::require;
use crate::abi::Out;
use crate::entry::{api, machine, stream};

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIME: u32 = 2;
/// `CU_EVENT_INTERPROCESS`.
const INTERPROCESS: u32 = 4;
/// Blocking synchronisation changes nothing here.
const EVENT_FLAGS: u32 = 7;

fn elapsed(milliseconds: Out<f32>, start: u64, end: u64) -> Result<()> {
    let machine = machine()?;
    let milliseconds = milliseconds.required()?;
    milliseconds.set(machine.elapsed(EventHandle(start), EventHandle(end))?);
    Ok(())
}

api! {
    fn cuEventCreate(event: Out<u64>, flags: u32) {
        let machine = machine()?;
        let event = event.required()?;
        require(flags & !EVENT_FLAGS == 0)?;
        let has_time = flags & NO_TIME == 0;
        let created = if flags & INTERPROCESS == 0 {
            machine.create_event(has_time)?
        } else {
            require(!has_time)?;
            machine.create_shareable_event()?
        };
        event.set(created.0);
        Ok(())
    }

    fn cuEventDestroy_v2(event: u64) {
        machine()?.destroy_event(EventHandle(event))
    }

    fn cuEventRecord | cuEventRecord_ptsz [default] (event: u64, queue: u64) {
        machine()?.record_event(EventHandle(event), stream(queue, default))
    }

    /// As of 12.5.
    fn cuCtxRecordEvent(context: u64, event: u64) {
        machine()?.record_event_of_context(EventHandle(event), ContextHandle(context))
    }

    /// The flag says how a capture records it.
    fn cuEventRecordWithFlags | cuEventRecordWithFlags_ptsz [default] (event: u64, queue: u64, flags: u32) {
        let machine = machine()?;
        require(flags & !1 == 0)?;
        machine.record_event(EventHandle(event), stream(queue, default))
    }

    fn cuStreamWaitEvent | cuStreamWaitEvent_ptsz [default] (queue: u64, event: u64, flags: u32) {
        let machine = machine()?;
        require(flags & !1 == 0)?;
        machine.wait_event(stream(queue, default), EventHandle(event))
    }

    /// No capture can see what the answer leads to.
    fn cuEventQuery(event: u64) {
        let machine = machine()?;
        machine.refuse_unseen()?;
        if machine.event_is_done(EventHandle(event))? { Ok(()) } else { Err(Error::NOT_READY) }
    }

    fn cuEventSynchronize(event: u64) {
        machine()?.synchronize_event(EventHandle(event))
    }

    fn cuEventElapsedTime(milliseconds: Out<f32>, start: u64, end: u64) { elapsed(milliseconds, start, end) }
    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: u64, end: u64) { elapsed(milliseconds, start, end) }
}
