//! Events that stand for copies whose waits are kept.

use std::ffi::c_uint;

use super::contexts::within;
use super::functions::{
    asked, checked, ctx_get_flags, event_create, event_destroy, event_query, event_record, event_synchronize, is_ready,
    stream_create, stream_destroy, stream_synchronize, stream_wait_event,
};
use crate::objects::streams::LEGACY;

/// An event of a context that keeps no time. A thread waits for it as the context's flags say.
pub(super) fn new_event(context: usize) -> Option<usize> {
    /// `CU_EVENT_BLOCKING_SYNC`, `CU_EVENT_DISABLE_TIMING`.
    const BLOCKING: c_uint = 1;
    const NO_TIMING: c_uint = 2;
    /// `CU_CTX_SCHED_BLOCKING_SYNC`.
    const BLOCKS: c_uint = 4;
    within(context, || {
        // SAFETY: the function writes the place.
        let flags = asked(|flags| unsafe { ctx_get_flags(flags) }).unwrap_or(0);
        let blocking = if flags & BLOCKS != 0 { BLOCKING } else { 0 };
        // SAFETY: the function writes the place.
        asked(|event| unsafe { event_create(event, NO_TIMING | blocking) })
    })
    .ok()
}

fn drop_event(context: usize, event: usize) {
    // SAFETY: the event is ours, and nobody uses it any more.
    let _ = within(context, || checked(unsafe { event_destroy(event) }));
}

#[inline(always)]
pub(super) fn record(event: usize, stream: usize) -> bool {
    // SAFETY: the event is ours, and the stream one on which the program has just made a copy.
    checked(unsafe { event_record(event, stream) }).is_ok()
}

/// To ask may end a capture of any thread, unless the mode is relaxed.
pub(super) fn has_passed(event: usize) -> bool {
    // SAFETY: the event is ours.
    is_ready(unsafe { event_query(event) }) == Ok(true)
}

/// Whether what an event was recorded for is over, or cannot be waited for.
pub(crate) fn is_over(event: usize) -> bool {
    // SAFETY: the event is ours.
    is_ready(unsafe { event_query(event) }) != Ok(false)
}

/// Waits for all that a stream of the program has to do.
pub(crate) fn wait_for_stream(stream: usize) {
    // SAFETY: the stream is one on which the program has just made a copy.
    unsafe { stream_synchronize(stream) };
}

/// Has a stream wait for an event.
pub(crate) fn wait_on_stream(stream: usize, event: usize) -> bool {
    // SAFETY: the stream is one on which the program is about to queue something; the event is ours, or one that the program has.
    checked(unsafe { stream_wait_event(stream, event, 0) }).is_ok()
}

/// Waits for an event, as a call of the program's would wait.
pub(crate) fn wait(event: usize) {
    // SAFETY: the event is ours.
    unsafe { event_synchronize(event) };
}

/// An event behind all that the legacy default stream of a context has to do by now.
pub(crate) fn mark_legacy(context: usize) -> Option<usize> {
    let event = new_event(context)?;
    if within(context, || Ok(record(event, LEGACY))) == Ok(true) {
        return Some(event);
    }
    drop_event(context, event);
    None
}

/// Gives back what [`mark`] or [`mark_legacy`] has made.
pub(crate) fn drop_mark(context: usize, event: usize) {
    drop_event(context, event);
}

/// An event of a context that passes when another one's last record has, whatever is recorded later.
pub(crate) fn mark(context: usize, event: usize) -> Option<usize> {
    let mark = new_event(context)?;
    if follow(context, [event].into_iter(), Some(mark)) {
        return Some(mark);
    }
    drop_event(context, mark);
    None
}

/// Makes a context wait for events, on a stream that nobody else has, and records one behind them. False if that fails.
pub(crate) fn follow(context: usize, events: impl Iterator<Item = usize>, mark: Option<usize>) -> bool {
    /// `CU_STREAM_NON_BLOCKING`.
    const NON_BLOCKING: c_uint = 1;
    let followed = within(context, || {
        // SAFETY: the function writes the place.
        let stream = asked(|stream| unsafe { stream_create(stream, NON_BLOCKING) })?;
        // SAFETY: the event and the stream are ours.
        let waits = |event| checked(unsafe { stream_wait_event(stream, event, 0) }).is_ok();
        let has_followed = events.into_iter().all(waits) && mark.is_none_or(|mark| record(mark, stream));
        // SAFETY: the stream is ours. Its work continues.
        checked(unsafe { stream_destroy(stream) }).map(|()| has_followed)
    });
    followed == Ok(true)
}
