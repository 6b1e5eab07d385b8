//! Where copies are made: a stream, or what takes its place.

use crate::objects::streams::{LEGACY, PER_THREAD};
use crate::policy::driver::Driver;

/// A stream, or what takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// One that the program created, by its handle.
    Created(usize),
    /// The legacy default streams of all contexts, for copies.
    Legacy,
    /// The legacy default stream of a context, for launches of graphs: their copies are ordered with no other stream.
    LegacyOf(usize),
    /// The default stream that a thread has in a context.
    PerThread(usize, u32),
    /// An executable graph that records its event itself.
    Graph(usize),
}

impl Stream {
    pub(super) const CREATED: u32 = 0;
    pub(super) const GRAPH: u32 = u32::MAX;
    const LEGACY_OF: u32 = u32::MAX - 1;

    /// A handle, and what it is of: a thread's number, or one of the above.
    #[inline(always)]
    pub(super) fn key(self) -> (u64, u32) {
        match self {
            Self::Created(stream) => (stream as u64, Self::CREATED),
            Self::Legacy => (LEGACY as u64, Self::CREATED),
            Self::LegacyOf(context) => (context as u64, Self::LEGACY_OF),
            Self::PerThread(context, thread) => (context as u64, thread),
            Self::Graph(exec) => (exec as u64, Self::GRAPH),
        }
    }

    pub(super) fn of_key(handle: usize, kind: u32) -> Self {
        match kind {
            Self::CREATED if handle == LEGACY => Self::Legacy,
            Self::CREATED => Self::Created(handle),
            Self::LEGACY_OF => Self::LegacyOf(handle),
            Self::GRAPH => Self::Graph(handle),
            thread => Self::PerThread(handle, thread),
        }
    }

    /// Whether an event recorded on the stream becomes part of no capture, and ends none.
    pub(super) fn may_record(self, driver: &impl Driver) -> bool {
        match self {
            Self::Created(stream) => driver.may_record(stream),
            Self::PerThread(..) => driver.may_record(PER_THREAD),
            Self::LegacyOf(_) => driver.may_record(LEGACY),
            Self::Legacy | Self::Graph(_) => true,
        }
    }

    /// Records an event on the stream, unless a graph does that itself.
    #[inline(always)]
    pub(super) fn record(self, driver: &impl Driver, event: usize) -> bool {
        match self {
            // It was destroyed.
            Self::Created(0) => false,
            Self::Created(stream) => {
                // Perhaps no context is current.
                let own = || driver.stream_context(stream, false);
                driver.record(event, stream) || own().is_some_and(|own| driver.record_within(own, event, stream))
            }
            Self::LegacyOf(context) => driver.record_within(context, event, LEGACY),
            Self::PerThread(context, _) => driver.record_within(context, event, PER_THREAD),
            Self::Legacy | Self::Graph(_) => true,
        }
    }
}
