//! The context that orders a copy of the program, and which thread made the first of a device.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use p2pshim_trace::NoteKind;

use super::arrival::Caller;
use super::{failures, origin};
use crate::api::Function;
use crate::model::{Memcpy, Named};
use crate::objects::memory::Kind;
use crate::objects::{OBJECTS, streams};
use crate::os;
use crate::policy::staging::Context;
use crate::policy::{ACCESS, Driver};
use crate::real::driver::RealDriver;
use crate::record::trace;

/// The context of a stream. That of a default stream is the current one, without which no copy is made.
pub(super) fn of_stream(stream: usize, per_thread: bool) -> Option<Context> {
    let current = RealDriver.current_context()?;
    let context = match stream {
        _ if !streams::is_created(stream) => current,
        _ if OBJECTS.streams.is_destroyed(stream) => return None,
        _ => RealDriver.stream_context(stream, per_thread)?,
    };
    Some((context, RealDriver.context_id(context)?))
}

/// The context of a copy's stream. A copy without a stream that names devices is ordered by the default streams of both sides' contexts, whatever is
/// current: the source's is given. Memory of pools, and mapped memory, has none of its own.
pub(super) fn of_copy(copy: &Memcpy<'_>, per_thread: bool) -> Option<Context> {
    if copy.stream.is_some() || copy.src_named == Named::Pointer {
        return of_stream(copy.stream.unwrap_or(0), per_thread);
    }
    let is_plain = |address| ACCESS.known(address).is_some_and(|(place, _)| place.kind == Kind::Plain);
    let [src, _] = [copy.src, copy.dst].into_iter().all(is_plain).then(|| ACCESS.contexts_of(&RealDriver, copy))??;
    Some(src)
}

/// Notes in the trace which thread made the process's first context on a device, and where. A thread that has chosen no device works on device 0.
/// Inside our own work.
#[cold]
pub(super) fn note_first(function: Function, caller: Caller, device: i32) {
    static NOTED: AtomicU64 = AtomicU64::new(0);
    let (Some(trace), Ok(ordinal)) = (trace::file(), u32::try_from(device)) else { return };
    // During a capture the same device is its first again and again.
    let bit = 1 << (ordinal & 63);
    if NOTED.fetch_or(bit, Relaxed) & bit != 0 {
        return;
    }
    let site = origin::of_untraced(caller, function, false).unwrap_or_else(|| failures::site(trace, caller));
    trace::note(NoteKind::Context, ordinal, &[&os::thread_id().to_string(), &site.to_string()]);
}
