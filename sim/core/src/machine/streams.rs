//! Streams and events.

use std::sync::Arc;

use super::stalls::Asked;
use super::{ContextHandle, ContextId, DefaultStream, Event, EventHandle, Machine, Recorded, State, StreamHandle};
use crate::capture::CaptureInfo;
use crate::current;
use crate::error::{Error, Result};
use crate::fence::{Fence, wait_all};
use crate::graph::Step;
use crate::os;
use crate::stream::{Role, Stream};
use crate::work::{Places, Work};

const STREAM_HANDLES: u64 = 0x5053_0000_0000;
const EVENT_HANDLES: u64 = 0x5054_0000_0000;

/// A stream as a program names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamRef {
    /// A default stream of the current context.
    Default(DefaultStream),
    /// A created stream.
    Created(StreamHandle),
}

/// The facts that a program may ask about a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Whether the legacy default stream waits for it.
    pub blocking: bool,
    /// As it was created with.
    pub priority: i32,
    /// Its context.
    pub context: ContextHandle,
    /// The device of its context.
    pub device: usize,
}

impl Machine {
    /// Creates a stream of the current context.
    pub fn create_stream(&self, role: Role, priority: i32) -> Result<StreamHandle> {
        self.wait_for_others(Asked::Objects);
        let mut state = self.lock();
        let context = state.current()?;
        let handle = StreamHandle(STREAM_HANDLES + state.number() * 0x10);
        let stream = Stream::new(handle, context, role, priority);
        state.streams.insert(handle, Arc::clone(&stream));
        if let Some(context) = state.contexts.get_mut(&context) {
            context.streams.push(stream);
        }
        Ok(handle)
    }

    /// Makes a stream unknown; its work goes on.
    pub fn destroy_stream(&self, handle: StreamHandle) -> Result<()> {
        let mut state = self.lock();
        let stream = state.streams.remove(&handle).ok_or(Error::INVALID_HANDLE)?;
        state.forget_captures(|gone| gone.id == stream.id);
        let State { streams, contexts, .. } = &mut *state;
        if let Some(context) = contexts.get_mut(&stream.context) {
            context.streams.retain(|stream| streams.contains_key(&stream.handle) || !stream.tail().is_done());
        }
        Ok(())
    }

    /// Asks about a stream.
    pub fn stream_info(&self, stream: StreamRef) -> Result<StreamInfo> {
        let mut state = self.lock();
        let stream = state.stream(stream)?;
        let context = state.info(stream.context)?;
        Ok(StreamInfo {
            blocking: stream.role != Role::NonBlocking,
            priority: stream.priority,
            context: context.handle,
            device: context.device,
        })
    }

    /// Waits for a stream's work.
    pub fn synchronize_stream(&self, stream: StreamRef) -> Result<()> {
        let (context, fences) = self.pending(stream)?;
        wait_all(&fences);
        self.lock().intact(context)
    }

    /// Whether a stream's work is done.
    pub fn stream_is_done(&self, stream: StreamRef) -> Result<bool> {
        let (context, fences) = self.pending(stream)?;
        let done = self.are_done(&fences);
        self.lock().intact(context).map(|()| done)
    }

    /// Whether all of `fences` have been reached, after what can be done at once was done.
    fn are_done(&self, fences: &[Arc<Fence>]) -> bool {
        if fences.iter().any(|fence| !fence.is_done()) {
            let streams: Vec<_> =
                self.lock().contexts.values().flat_map(|context| &context.streams).map(Arc::clone).collect();
            streams.iter().for_each(|stream| stream.help());
        }
        fences.iter().all(|fence| fence.ask())
    }

    /// A stream's context, and what has to be reached for it to be idle: for the legacy default stream, also what it would
    /// wait for.
    fn pending(&self, stream: StreamRef) -> Result<(ContextId, Vec<Arc<Fence>>)> {
        let mut state = self.lock();
        // Measured on an H200.
        let stream = state.stream_of_async_copy(stream)?;
        state.refuse_synchronous(&stream)?;
        let mut fences = vec![stream.tail()];
        if stream.role == Role::Legacy {
            fences.extend(state.implicit_order(&stream));
        }
        Ok((stream.context, fences))
    }

    /// Has a function of the program called in a stream's order.
    pub fn launch_host(&self, stream: StreamRef, function: Arc<dyn Fn() + Send + Sync>) -> Result<()> {
        self.wait_for_others(Asked::Objects);
        let mut state = self.lock();
        let stream = state.stream(stream)?;
        let step = Step::Host(function);
        if state.capture(&stream, &step)? {
            return Ok(());
        }
        state.run(&stream, &step).map(drop)
    }

    /// Waits until the queues of a stream have room for a copy or a memset, as its launch does. Signals arrive meanwhile.
    pub(super) fn wait_for_room(&self, stream: StreamRef, wanted: impl Fn(&State) -> Places) {
        let length = self.config.queue;
        let is_full = || {
            let mut state = self.lock();
            let stream = state.stream_of_async_copy(stream);
            stream.is_ok_and(|stream| !stream.taken().have_room(wanted(&state), length))
        };
        // A handler that leaves by siglongjmp must not keep the lock.
        while length != usize::MAX && os::without_signals(is_full) {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }

    /// Creates an event of the current context.
    pub fn create_event(&self, has_time: bool) -> Result<EventHandle> {
        let mut state = self.lock();
        let context = state.current()?;
        Ok(state.add_event(Event { context, has_time, recorded: Recorded::Never, shared: None }))
    }

    /// Makes an event unknown; whoever waits for it already goes on waiting.
    pub fn destroy_event(&self, handle: EventHandle) -> Result<()> {
        self.lock().events.remove(&handle).map(drop).ok_or(Error::INVALID_HANDLE)
    }

    /// Records an event on a stream of its context.
    pub fn record_event(&self, handle: EventHandle, stream: StreamRef) -> Result<()> {
        self.wait_for_others(Asked::Work);
        let mut state = self.lock();
        let stream = state.stream(stream)?;
        let context = state.event(handle)?.context;
        if context != stream.context {
            return Err(Error::INVALID_HANDLE);
        }
        let recorded = match state.captures.of(&stream)? {
            Some(CaptureInfo { id, .. }) => Recorded::Captured(id, state.captures.after(&stream)),
            None => {
                let work = state.event(handle)?.shared.as_ref().map_or(Work::Nothing, |shared| shared.record());
                Recorded::Run(vec![state.submit(&stream, Vec::new(), work)?])
            }
        };
        state.event_mut(handle)?.recorded = recorded;
        Ok(())
    }

    /// Records an event after all that its context has to do by now, in whichever stream.
    pub fn record_event_of_context(&self, handle: EventHandle, context: ContextHandle) -> Result<()> {
        let mut state = self.lock();
        let id = state.named(context)?;
        let event = state.event(handle)?;
        if event.context != id {
            return Err(Error::INVALID_HANDLE);
        }
        if event.shared.is_some() {
            return Err(Error::NOT_SUPPORTED);
        }
        // In whatever mode: measured on H200.
        state.captures.refuse_on(|stream| stream.context == id)?;
        let tails = state.work_of(id);
        state.event_mut(handle)?.recorded = Recorded::Run(tails);
        Ok(())
    }

    /// Makes a stream of any context wait for the event's last record; by one in a capture it joins that.
    pub fn wait_event(&self, stream: StreamRef, handle: EventHandle) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream(stream)?;
        let capture = state.captures.of(&stream)?;
        let event = state.event(handle)?;
        if let (Some(shared), None) = (&event.shared, capture) {
            let shared = Arc::clone(shared);
            let Some(record) = shared.pending() else { return Ok(()) };
            let wait = Work::Host(Arc::new(move || shared.wait(record)));
            return state.submit(&stream, Vec::new(), wait).map(drop);
        }
        match (event.recorded.clone(), capture) {
            (Recorded::Never, _) => Ok(()),
            (Recorded::Run(fences), None) => state.submit(&stream, fences, Work::Nothing).map(drop),
            (Recorded::Run(_), Some(capture)) => {
                state.captures.invalidate(capture.id);
                Err(Error::STREAM_CAPTURE_ISOLATION)
            }
            (Recorded::Captured(id, after), capture) => state.join_capture(&stream, capture, id, after),
        }
    }

    /// Whether the event's last record has been reached; one that was never recorded has.
    pub fn event_is_done(&self, handle: EventHandle) -> Result<bool> {
        let mut state = self.lock();
        let fences = state.recorded(handle)?;
        if let Some(shared) = &state.event(handle)?.shared {
            return Ok(shared.pending().is_none());
        }
        drop(state);
        Ok(self.are_done(&fences))
    }

    /// Waits for the event's last record.
    pub fn synchronize_event(&self, handle: EventHandle) -> Result<()> {
        let mut state = self.lock();
        let recorded = state.recorded(handle)?;
        let event = state.event(handle)?;
        let (context, shared) = (event.context, event.shared.clone());
        drop(state);
        match shared {
            Some(shared) => shared.pending().into_iter().for_each(|record| shared.wait(record)),
            None => recorded.into_iter().for_each(|fence| fence.wait()),
        }
        self.lock().intact(context)
    }

    /// Milliseconds between two events' last records, by the modelled clock.
    pub fn elapsed(&self, start: EventHandle, end: EventHandle) -> Result<f32> {
        let state = self.lock();
        let done_at = |handle| {
            let event = state.event(handle)?;
            match &event.recorded {
                Recorded::Run(fences) if event.has_time => {
                    let reached: Option<Vec<_>> = fences.iter().map(|fence| fence.done_at()).collect();
                    reached.and_then(|times| times.into_iter().max()).ok_or(Error::NOT_READY)
                }
                Recorded::Captured(..) => Err(Error::CAPTURED_EVENT),
                _ => Err(Error::INVALID_HANDLE),
            }
        };
        // Measured on an H200 for two contexts of one device; documented for two devices.
        if state.event(start)?.context != state.event(end)?.context {
            return Err(Error::INVALID_HANDLE);
        }
        let (start, end) = (done_at(start)?, done_at(end)?);
        Ok(((end.as_secs_f64() - start.as_secs_f64()) * 1000.0) as f32)
    }
}

impl State {
    /// Finds the stream that a program names.
    pub(super) fn stream(&mut self, stream: StreamRef) -> Result<Arc<Stream>> {
        match stream {
            StreamRef::Default(default) => self.default_stream(self.current()?, default),
            StreamRef::Created(handle) => {
                self.current()?;
                self.created(handle)
            }
        }
    }

    /// Finds the stream of an asynchronous copy, or of a wait: one that was created is enough where no context is current. Measured on H200.
    pub(super) fn stream_of_async_copy(&mut self, stream: StreamRef) -> Result<Arc<Stream>> {
        match stream {
            StreamRef::Created(handle) if current::get().is_none() => {
                let stream = self.created(handle)?;
                self.intact(stream.context)?;
                Ok(stream)
            }
            _ => self.stream(stream),
        }
    }

    fn created(&self, handle: StreamHandle) -> Result<Arc<Stream>> {
        let missing = if self.orphans.contains(&handle) { Error::CONTEXT_IS_DESTROYED } else { Error::INVALID_HANDLE };
        self.streams.get(&handle).cloned().ok_or(missing)
    }

    /// A default stream of a context; the calling thread's own is made when it is first used.
    pub(super) fn default_stream(&mut self, id: ContextId, default: DefaultStream) -> Result<Arc<Stream>> {
        let context = self.contexts.get_mut(&id).ok_or(Error::INVALID_CONTEXT)?;
        Ok(Arc::clone(match default {
            DefaultStream::Legacy => &context.legacy,
            DefaultStream::PerThread => context
                .per_thread
                .entry(current::thread())
                .or_insert_with(|| Stream::new(StreamHandle(2), id, Role::Blocking, 0)),
        }))
    }

    /// The fences of an event's last record, for a caller who asks or waits.
    fn recorded(&mut self, handle: EventHandle) -> Result<Vec<Arc<Fence>>> {
        let recorded = self.event(handle)?.recorded.clone();
        if let Recorded::Captured(id, _) = recorded {
            self.captures.invalidate(id);
            return Err(Error::CAPTURED_EVENT);
        }
        self.captures.refuse_unseen(current::caller())?;
        Ok(if let Recorded::Run(fences) = recorded { fences } else { Vec::new() })
    }

    pub(super) fn add_event(&mut self, event: Event) -> EventHandle {
        let handle = EventHandle(EVENT_HANDLES + self.number() * 0x10);
        self.events.insert(handle, event);
        handle
    }

    pub(super) fn event(&self, handle: EventHandle) -> Result<&Event> {
        self.events.get(&handle).ok_or(Error::INVALID_HANDLE)
    }

    fn event_mut(&mut self, handle: EventHandle) -> Result<&mut Event> {
        self.events.get_mut(&handle).ok_or(Error::INVALID_HANDLE)
    }
}
