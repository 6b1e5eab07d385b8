//! The context that orders a copy of the program.

use crate::model::{Memcpy, Named};
use crate::objects::memory::Kind;
use crate::objects::{OBJECTS, streams};
use crate::policy::staging::Context;
use crate::policy::{ACCESS, Driver};
use crate::real::driver::RealDriver;

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
