//! Events that measure how long the GPU takes. None of these waits for it.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::transmute;

use super::contexts::{self, within};
use super::functions::{
    EVENT_RECORD, checked, event_create, event_destroy, event_elapsed_time, event_query, stream_create, stream_destroy,
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
    /// Two events of a context.
    pub(crate) fn pair(context: Context) -> Option<[Self; 2]> {
        within(context.0, || Ok([Self::new(context)?, Self::new(context)?])).ok()
    }

    /// An event of a context that is recorded now, on a stream with nothing else to do.
    pub(crate) fn recorded(context: Context) -> Option<Self> {
        /// `CU_STREAM_NON_BLOCKING`.
        const NON_BLOCKING: c_uint = 1;
        within(context.0, || {
            let (event, mut stream) = (Self::new(context)?, 0);
            // SAFETY: `stream` is what the function writes.
            checked(unsafe { stream_create(&mut stream, NON_BLOCKING) }, ())?;
            let is_recorded = event.record(stream, false);
            // SAFETY: the stream is ours. It is not waited for, and the event outlives it.
            unsafe { stream_destroy(stream) };
            if is_recorded { Ok(event) } else { Err(Code::INVALID_VALUE) }
        })
        .ok()
    }

    /// One of the current context, which is this.
    fn new(context: Context) -> Result<Self, Code> {
        let mut handle = 0;
        // SAFETY: `handle` is what the function writes; 0 is an event that keeps times.
        checked(unsafe { event_create(&mut handle, 0) }, ())?;
        Ok(Self { handle, context })
    }

    /// Whether it is one of this context.
    pub(crate) fn is_of(&self, context: Context) -> bool {
        self.context == context
    }

    /// Records it on a stream. Returns whether it was.
    pub(crate) fn record(&self, stream: usize, per_thread: bool) -> bool {
        type Record = unsafe extern "C" fn(usize, usize) -> c_int;
        let Some(function) = EVENT_RECORD.get(per_thread) else { return false };
        // SAFETY: the entry holds what was looked up under that name.
        let function = unsafe { transmute::<*mut c_void, Record>(function) };
        // SAFETY: the event is ours, and the stream the program's own argument, or ours.
        unsafe { function(self.handle, stream) == 0 }
    }

    /// Whether it has passed; none if something has failed.
    pub(crate) fn has_passed(&self) -> Option<bool> {
        // SAFETY: the event is ours, and its context exists.
        match unsafe { event_query(self.handle) } {
            Code::SUCCESS => Some(true),
            Code::NOT_READY => Some(false),
            _ => None,
        }
    }

    /// How much later it has passed than another.
    pub(crate) fn nanos_since(&self, earlier: &Self) -> Option<u64> {
        let mut milliseconds = 0.0;
        // SAFETY: the events are ours and have passed; `milliseconds` is what the function writes.
        checked(unsafe { event_elapsed_time(&mut milliseconds, earlier.handle, self.handle) }, ()).ok()?;
        (milliseconds >= 0.0).then_some((f64::from(milliseconds) * 1e6).round() as u64)
    }
}

impl Drop for Event {
    /// Gives it back, passed or not.
    fn drop(&mut self) {
        let (context, id) = self.context;
        if contexts::id(context) == Some(id) {
            // SAFETY: the event is ours, its context exists, and nobody uses it any more.
            unsafe { event_destroy(self.handle) };
        }
    }
}
