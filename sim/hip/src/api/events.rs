//! Events.

use p2psim_core::Error;
use p2psim_core::machine::EventHandle;

use super::require;
use crate::abi::Out;
use crate::entry::{Gpus, api};
use crate::error::{Result, silent};

/// `hipEventDisableTiming`.
const NO_TIME: u32 = 2;
/// `hipEventInterprocess`, which needs the above.
const INTERPROCESS: u32 = 4;
/// At most one of these: no fence, a fence for the device, one for the system.
const FENCES: u32 = 0xe000_0000;
const FLAGS: u32 = FENCES | 7;

fn create(gpus: &Gpus, event: Out<u64>, flags: u32) -> Result<()> {
    let event = event.required().map_err(|_| silent(Error::INVALID_VALUE))?;
    require(flags & !FLAGS == 0 && (flags & FENCES).count_ones() <= 1)?;
    require(flags & INTERPROCESS == 0 || flags & NO_TIME != 0)?;
    let is_shared = flags & INTERPROCESS != 0;
    event.set(if is_shared { gpus.create_shareable_event()? } else { gpus.create_event(flags & NO_TIME == 0)? }.0);
    Ok(())
}

/// An event that a program names; NULL is none.
fn named(event: u64) -> Result<EventHandle> {
    if event == 0 { Err(Error::INVALID_HANDLE.into()) } else { Ok(EventHandle(event)) }
}

api! {
    fn hipEventCreate [gpus] (event: Out<u64>) { create(gpus, event, 0) }

    fn hipEventCreateWithFlags [gpus] (event: Out<u64>, flags: u32) { create(gpus, event, flags) }

    fn hipEventDestroy [gpus] (event: u64) {
        gpus.destroy_event(named(event)?).map_err(|_| silent(Error::CONTEXT_IS_DESTROYED))
    }

    fn hipEventRecord [gpus] (event: u64, queue: u64) {
        let event = named(event)?;
        Ok(gpus.record_event(event, gpus.stream(queue)?)?)
    }

    fn hipEventQuery [gpus] (event: u64) {
        if gpus.event_is_done(named(event)?)? { Ok(()) } else { Err(Error::NOT_READY.into()) }
    }

    fn hipEventSynchronize [gpus] (event: u64) { Ok(gpus.synchronize_event(named(event)?)?) }

    fn hipStreamWaitEvent [gpus] (queue: u64, event: u64, _flags: u32) {
        let event = named(event)?;
        let stream = gpus.stream(queue).map_err(|_| Error::INVALID_HANDLE)?;
        Ok(gpus.wait_event(stream, event)?)
    }

    fn hipEventElapsedTime [gpus] (milliseconds: Out<f32>, start: u64, end: u64) {
        let milliseconds = milliseconds.required()?;
        milliseconds.set(gpus.elapsed(named(start)?, named(end)?)?);
        Ok(())
    }
}
