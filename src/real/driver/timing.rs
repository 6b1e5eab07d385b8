//! Events that measure how long the GPU takes. None of these waits for it.

use std::ffi::c_uint;

use super::contexts::{self, within};
use super::functions::{
    asked, event_create, event_destroy, event_elapsed_time, event_query, event_record, event_record_ptsz, is_ready,
    stream_create, stream_destroy,
};
use crate::api::abi::Code;

/// A context, and its id: another may get the same handle.
pub(crate) type Context = (usize, u64);

/// An event of ours that keeps times. A context that ends takes its events along.
pub(crate) struct Event {
    handle: usize,
    context: Context,
}

impl Event {
    pub(crate) fn pair(context: Context) -> Option<[Self; 2]> {
        within(context.0, || Ok([Self::new(context)?, Self::new(context)?])).ok()
    }

    /// An event of a context that is recorded now, on a stream with nothing else to do.
    pub(crate) fn recorded(context: Context) -> Option<Self> {
        /// `CU_STREAM_NON_BLOCKING`.
        const NON_BLOCKING: c_uint = 1;
        within(context.0, || {
            let event = Self::new(context)?;
            // SAFETY: the function writes the place.
            let stream = asked(|stream| unsafe { stream_create(stream, NON_BLOCKING) })?;
            let is_recorded = event.record(stream, false);
            // SAFETY: the stream is ours. It is not waited for, and the event outlives it.
            unsafe { stream_destroy(stream) };
            if is_recorded { Ok(event) } else { Err(Code::INVALID_VALUE) }
        })
        .ok()
    }

    /// One of the current context, which is this.
    fn new(context: Context) -> Result<Self, Code> {
        // SAFETY: the function writes the place; 0 is an event that keeps times.
        let handle = asked(|handle| unsafe { event_create(handle, 0) })?;
        Ok(Self { handle, context })
    }

    /// Whether its context is told from others that get the handle.
    pub(crate) const fn is_numbered(&self) -> bool {
        self.context.1 != 0
    }

    pub(crate) fn is_of(&self, context: Context) -> bool {
        self.context == context
    }

    /// Records it on a stream. Returns whether it was.
    pub(crate) fn record(&self, stream: usize, per_thread: bool) -> bool {
        let function = if per_thread { event_record_ptsz } else { event_record };
        // SAFETY: the event is ours, and the stream the program's own argument, or ours.
        unsafe { function(self.handle, stream) == Code::SUCCESS }
    }

    /// Whether it has passed; none if something has failed.
    pub(crate) fn has_passed(&self) -> Option<bool> {
        // SAFETY: the event is ours, and its context exists.
        is_ready(unsafe { event_query(self.handle) }).ok()
    }

    /// How much later it has passed than another.
    pub(crate) fn nanos_since(&self, earlier: &Self) -> Option<u64> {
        // SAFETY: the events are ours and have passed; the function writes the place.
        let milliseconds = asked(|passed| unsafe { event_elapsed_time(passed, earlier.handle, self.handle) }).ok()?;
        (milliseconds >= 0.0).then_some((f64::from(milliseconds) * 1e6).round() as u64)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let (context, id) = self.context;
        if contexts::id(context) == Some(id) {
            // SAFETY: the event is ours, its context exists, and nobody uses it any more.
            unsafe { event_destroy(self.handle) };
        }
    }
}
