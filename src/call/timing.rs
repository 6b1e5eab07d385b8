//! How long GPUs take for copies: an event before and after a copy on its own stream, checked later, when both have passed.
//!
//! Nothing here waits, and nothing happens while any capture is under way, or at exit. To measure a copy costs the host some
//! 10 µs, so in the mode `sample` of a thread's copies the first are measured, and then one in [`EVERY`].
//!
//! One copy counts for as many as it has MiB, so that large ones are measured more often. When the GPU began is counted from an event
//! of our own whose time is known. All events are forgotten when a context is about to end. The cost of measuring is taken out of the
//! time of the call around it.

use std::collections::VecDeque;
use std::mem::{ManuallyDrop, forget, take};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};

use p2pshim_trace::OpenRecord;

use super::arrival::Call;
use super::decision::Running;
use super::mode::{self, unseen};
use super::thread::{self, Thread};
use crate::api::abi::Code;
use crate::api::{Effect, Function, Layer};
use crate::config::GpuTiming;
use crate::objects::captures;
use crate::objects::streams::Stream;
use crate::os;
use crate::policy::Driver;
use crate::real::driver::RealDriver;
use crate::real::driver::timing::{Context, Event};
use crate::record::trace;

/// In the mode `sample`, how many copies of a thread are measured before others are left out.
const FIRST: u8 = 64;
/// After that one in so many copies is measured: 0.15 % of a copy of 1.6 µs. A prime, so that of copies that go to several devices
/// in turn each is measured.
const EVERY: u64 = 4093;
/// Measurements that are not over, at most.
const MOST: usize = 512;
/// Measurements that are checked before and after a copy that is measured, at most.
const LOOKS: usize = 8;
/// For so long an origin is good: what CUDA tells of the time between events loses a microsecond in it, and clocks drift.
const ORIGIN_NANOS: u64 = 10_000_000_000;

/// A copy that is being measured. It has nothing to drop: if the call is left, it is left behind.
pub(crate) struct Timing(ManuallyDrop<Box<Measurement>>);

/// An event that passed as soon as it was recorded, and when that was, in ticks.
struct Origin {
    event: Event,
    ticks: u64,
}

/// A measurement that is not over.
pub(crate) struct Measurement {
    stream: usize,
    before: Event,
    after: Event,
    origin: Arc<Origin>,
}

impl Measurement {
    /// Completes it, if it is over.
    fn complete(&self, record: OpenRecord) -> bool {
        match self.after.has_passed() {
            Some(false) => return false,
            Some(true) => record.timed(self.measured()),
            None => record.timed(None),
        }
        true
    }

    /// When the GPU began, in ticks, and how long it took, in nanoseconds.
    fn measured(&self) -> Option<(u64, u64)> {
        let nanos = self.after.nanos_since(&self.before)?;
        // The second copy of a stream begins when the first has ended, however early it was asked for.
        let since = self.before.nanos_since(&self.origin.event).unwrap_or_default();
        Some((self.origin.ticks + trace::ticks(since), nanos))
    }
}

/// All threads' measurements.
#[derive(Default)]
struct Clocks {
    /// Where times are counted from, one for each context.
    origins: Vec<Arc<Origin>>,
    /// The events of copies that have returned, each with its record.
    measurements: VecDeque<(Box<Measurement>, OpenRecord)>,
}

static CLOCKS: Mutex<Clocks> = Mutex::new(Clocks { origins: Vec::new(), measurements: VecDeque::new() });

/// Clocks that were not given back, since that might have ended a capture.
static LEFT: Mutex<Vec<Clocks>> = Mutex::new(Vec::new());

fn lock() -> MutexGuard<'static, Clocks> {
    CLOCKS.lock()
}

/// Whether a function's copies can be measured: those of the driver that the stream orders.
#[inline(always)]
pub(crate) const fn is_timed(function: Function) -> bool {
    matches!((function.layer(), function.effect()), (Layer::Driver, Effect::Copy(kind)) if kind.is_async)
}

/// Whether a copy is to be measured. On the legacy default stream an event is a barrier of its own: work of other streams that comes later
/// would wait for what came earlier.
#[inline(always)]
fn is_due(call: &Call<'_>, thread: &Thread) -> bool {
    const SAMPLE: u8 = GpuTiming::Sample as u8;
    const ALL: u8 = GpuTiming::All as u8;
    let is_wanted = match mode::GPU_TIMING.load(Relaxed) {
        SAMPLE => thread.untimed_left.get() == 0,
        wanted => wanted == ALL,
    };
    is_wanted
        && call
            .request
            .stream()
            .is_some_and(|stream| Stream::new(stream, call.function().per_thread(), 0) != Stream::Legacy)
}

/// Counts a recorded copy, and once more for each MiB, which takes a GPU longer than a small copy the host.
#[inline(always)]
pub(crate) fn count(thread: &Thread, bytes: u64) {
    thread.untimed_left.set(thread.untimed_left.get().saturating_sub(1 + (bytes >> 20)));
}

/// Begins to measure a copy that is about to be made, if it is one to be measured. The time that is shown begins behind that.
#[inline(always)]
pub(crate) fn begin(call: &Call<'_>, running: &mut Running) -> Option<Timing> {
    if !is_timed(call.function()) || running.record.is_none() {
        return None;
    }
    let thread = thread::current();
    if !is_due(call, thread) || captures::may_be_under_way() {
        return None;
    }
    thread.first_timed.set(thread.first_timed.get().saturating_add(1));
    thread.untimed_left.set(if thread.first_timed.get() < FIRST { 0 } else { EVERY });
    let timing = begin_measuring(call);
    running.shown_since = running.shown_since.map(|_| os::uncancelled(Instant::now));
    timing
}

#[cold]
#[inline(never)]
fn begin_measuring(call: &Call<'_>) -> Option<Timing> {
    let (stream, per_thread) = (call.request.stream()?, call.function().per_thread());
    measuring(|| {
        let timing = unseen(|| Some(Timing(ManuallyDrop::new(Box::new(measurement(stream, per_thread)?)))))?;
        if record(&timing.0.before, stream, per_thread) {
            return Some(timing);
        }
        give_up(timing);
        None
    })
}

/// The events that measure a copy in a stream.
fn measurement(stream: usize, per_thread: bool) -> Option<Measurement> {
    let context = captures::beside_none(|| RealDriver.stream_context(stream, per_thread))?;
    let context = (context, RealDriver.context_id(context)?);
    let origin = origin(context)?;
    let [before, after] = Event::pair(context)?;
    (lock().measurements.len() < MOST).then_some(Measurement { stream, before, after, origin })
}

/// Goes on measuring, once the copy was made: from now on the measurement is checked now and then.
#[inline(always)]
pub(crate) fn end(call: &Call<'_>, timing: Option<Timing>, record: Option<OpenRecord>, ret: Code) {
    if let Some(timing) = timing {
        end_measuring(call, timing, record, ret == Code::SUCCESS);
    }
}

#[cold]
#[inline(never)]
fn end_measuring(call: &Call<'_>, timing: Timing, record: Option<OpenRecord>, has_succeeded: bool) {
    measuring(|| {
        let of = &timing.0;
        let is_recorded = has_succeeded && self::record(&of.after, of.stream, call.function().per_thread());
        let Some(record) = record.filter(|_| is_recorded) else {
            give_up(timing);
            return None;
        };
        unseen(|| {
            record.mark_timed();
            lock().measurements.push_back((ManuallyDrop::into_inner(timing.0), record));
            Some(())
        })
    });
}

fn give_up(Timing(measurement): Timing) {
    unseen(|| drop(ManuallyDrop::into_inner(measurement)));
}

/// Does something that is part of measuring. The cost is taken out of the time of the call around it.
fn measuring<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    let trace = trace::file()?;
    let begun = trace.now();
    let result = work();
    unseen(look);
    let cost = &thread::current().timing_cost;
    cost.set(cost.get() + trace.now().saturating_sub(begun));
    result
}

/// Records an event on a stream of the program's while nothing is captured. Returns whether it was. If the stream is full, that waits as the
/// program's own call does: signals arrive, and nobody who wants to begin a capture waits for it.
fn record(event: &Event, stream: usize, per_thread: bool) -> bool {
    !captures::may_be_under_way() && event.record(stream, per_thread)
}

/// Where a context's times are counted from by now.
fn origin(context: Context) -> Option<Arc<Origin>> {
    let trace = trace::file()?;
    let is_good = |origin: &&Arc<Origin>| {
        origin.event.is_of(context) && trace.now() < origin.ticks.saturating_add(trace::ticks(ORIGIN_NANOS))
    };
    if let Some(known) = lock().origins.iter().find(is_good) {
        return Some(Arc::clone(known));
    }
    let origin = Arc::new(Origin { event: Event::recorded(context)?, ticks: trace.now() });
    let mut clocks = lock();
    clocks.origins.retain(|known| !known.event.is_of(context));
    clocks.origins.push(Arc::clone(&origin));
    Some(origin)
}

/// Checks the measurements that have waited longest. No capture begins meanwhile: to ask about an event may end that of
/// another thread.
fn look() {
    captures::beside_none(|| {
        // Whoever has it looks for us.
        let mut clocks = CLOCKS.try_lock()?;
        for _ in 0..LOOKS.min(clocks.measurements.len()) {
            let (measurement, record) = clocks.measurements.pop_front()?;
            if !measurement.complete(record) {
                clocks.measurements.push_back((measurement, record));
                break;
            }
        }
        Some(())
    });
}

/// Completes what can be completed, and forgets the rest: a context is about to end, and its events with it. Those of others
/// are given back to the driver, since whoever releases a primary context again and again would pile them up.
pub(crate) fn on_contexts_ending() {
    let mut left = take(&mut *lock());
    let mut earlier = take(&mut *LEFT.lock());
    let is_given_back = captures::beside_none(|| {
        let left_over = left.measurements.drain(..).filter(|(it, record)| !it.complete(*record));
        left_over.for_each(|(_, record)| record.timed(None));
        left.origins.clear();
        earlier.clear();
        Some(())
    });
    if is_given_back.is_none() && !(left.origins.is_empty() && left.measurements.is_empty()) {
        left.measurements.iter().for_each(|(_, record)| record.timed(None));
        // A driver that does not number contexts could not tell then that another has the handle of one that is gone.
        if left.origins.iter().all(|origin| origin.event.is_numbered()) {
            earlier.push(left);
        } else {
            forget(left);
        }
    }
    LEFT.lock().append(&mut earlier);
}
