//! How long GPUs take for copies: an event before and after a copy on its own stream, looked at later, when both have passed.
//!
//! Nothing here waits, and nothing happens while any capture is under way, or at exit. What a copy costs the host more is
//! counted, and in the mode `sample` a copy is measured only when that is a small part of what copies have cost so far.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use p2pshim_trace::Begun;

use super::guard::{Call, only_forwards, unseen};
use super::thread::{self, Thread};
use crate::api::Function;
use crate::api::abi::Value;
use crate::config::GpuTiming;
use crate::policy::{Driver, VALIDATE, capture};
use crate::real::driver::{RealDriver, timing as driver};
use crate::record::trace;

/// Of all the time that copies take the host, measuring may take one part in 2 to the power of this; that such a copy is not
/// familiar, and what it drives out of the caches, is not counted, and comes to as much again.
const PART_BITS: u32 = 8;
/// What a thread may spend on measuring before its copies have cost anything, in ticks: a millisecond or two, so that of
/// a program with few copies all are measured.
const CREDIT: i64 = 1 << 22;
/// What one step of measuring is taken to cost at most, in ticks: some 100 µs, ten times what it does. A thread that lost its
/// processor meanwhile would measure nothing for a second otherwise.
const MOST_COST: u64 = 1 << 18;
/// Pairs of events of a context, and measurements that are not over, at most.
const MOST: usize = 512;
/// Measurements that are looked at after a copy.
const LOOKS: usize = 2;
/// For so long an origin is good: what CUDA tells of the time between events loses a microsecond in it, and clocks drift.
const ORIGIN_NANOS: u64 = 10_000_000_000;

static MODE: AtomicU8 = AtomicU8::new(GpuTiming::Off as u8);

/// Takes over the option; only what is recorded is measured.
pub(super) fn configure(mode: GpuTiming) {
    MODE.store(mode as u8, Relaxed);
}

/// A copy that is being measured. It has nothing to drop.
#[derive(Clone, Copy)]
pub(crate) struct Timing {
    context: (usize, u64),
    stream: usize,
    before: usize,
    after: usize,
    origin: Origin,
}

/// An event that passed as soon as it was recorded, and when that was, in ticks.
#[derive(Clone, Copy)]
struct Origin {
    event: usize,
    ticks: u64,
}

/// A measurement that is not over.
struct Pending {
    timing: Timing,
    record: Begun,
}

/// What is kept for a context.
struct Clock {
    context: (usize, u64),
    /// Pairs of events that nobody uses.
    free: Vec<(usize, usize)>,
    made: usize,
    /// The last is in use, others as long as a measurement is under way that began with them.
    origins: Vec<Origin>,
}

struct Clocks {
    clocks: Vec<Clock>,
    pending: VecDeque<Pending>,
    /// The origins of copies between whose two events the host is; of more, if some were left otherwise than by returning.
    under_way: Vec<usize>,
}

static CLOCKS: Mutex<Clocks> =
    Mutex::new(Clocks { clocks: Vec::new(), pending: VecDeque::new(), under_way: Vec::new() });

impl Clocks {
    fn of(&mut self, context: (usize, u64)) -> Option<&mut Clock> {
        self.clocks.iter_mut().find(|clock| clock.context == context)
    }

    /// Notes that a copy is not under way any more, whose time was counted from this origin.
    fn is_over(&mut self, Origin { event, .. }: Origin) {
        if let Some(position) = self.under_way.iter().position(|&under_way| under_way == event) {
            self.under_way.swap_remove(position);
        }
    }

    /// Whether a measurement is under way that began with an origin.
    fn uses(&self, event: usize) -> bool {
        self.under_way.contains(&event) || self.pending.iter().any(|pending| pending.timing.origin.event == event)
    }
}

/// Whether a function's copies can be measured: those that the stream orders, which CUDA refuses to capture.
#[inline(always)]
pub(crate) const fn is_timed(function: Function) -> bool {
    capture::is_refused_in_captures(function)
}

/// Whether a copy is on the legacy default stream, where an event is a barrier of its own: work of other streams that comes
/// later would wait for what came earlier.
#[inline(always)]
fn is_legacy(function: Function, values: &[Value]) -> bool {
    /// `CU_STREAM_LEGACY`.
    const LEGACY: usize = 1;
    let per_thread = matches!(function, Function::cuMemcpyPeerAsync_ptsz | Function::cuMemcpy3DPeerAsync_ptsz);
    match values.last() {
        Some(&Value::Stream(0)) => !per_thread,
        Some(&Value::Stream(LEGACY)) => true,
        _ => false,
    }
}

/// Which of a function's copies on a stream are measured: none, or what the option says.
pub(super) fn of(function: Function, values: &[Value]) -> GpuTiming {
    let mode = MODE.load(Relaxed);
    let modes = [GpuTiming::Sample, GpuTiming::All];
    let is_any = is_timed(function) && !is_legacy(function, values);
    modes.into_iter().find(|&known| is_any && known as u8 == mode).unwrap_or(GpuTiming::Off)
}

/// Whether a thread's next copy is measured, of those of which some are.
#[inline(always)]
pub(super) fn is_due(thread: &Thread) -> bool {
    thread.timing_debt <= CREDIT
}

impl Call {
    /// Begins to measure a copy that is about to be made, if it is one to be measured.
    #[inline(always)]
    pub(crate) fn begin_timing(self, values: &[Value]) -> Option<Timing> {
        const OFF: u8 = GpuTiming::Off as u8;
        const ALL: u8 = GpuTiming::All as u8;
        let mode = MODE.load(Relaxed);
        // SAFETY: the block is this thread's own; the reference ends with the statement.
        let is_due = mode == ALL || is_due(unsafe { &*thread::current() });
        if mode == OFF || !is_due || is_legacy(self.function(), values) || capture::may_be_under_way() {
            return None;
        }
        self.begin_measuring(values)
    }

    #[cold]
    #[inline(never)]
    fn begin_measuring(self, values: &[Value]) -> Option<Timing> {
        let &Value::Stream(stream) = values.last()? else { return None };
        let per_thread = self.function().per_thread();
        paid_for(|| {
            let context = VALIDATE.facts().beside_no_capture(|| RealDriver.stream_context(stream, per_thread))?;
            let context = (context, RealDriver.context_id(context)?);
            let origin = origin(context)?;
            let Some((before, after)) = take_events(context) else {
                lock().is_over(origin);
                return None;
            };
            let timing = Timing { context, stream, before, after, origin };
            if record_event(before, stream, per_thread) {
                return Some(timing);
            }
            let mut clocks = lock();
            clocks.is_over(origin);
            give_back(&mut clocks, timing);
            None
        })
    }

    /// Goes on measuring, once the copy was made: from now on it is looked at now and then.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_timing(self, timing: Timing, record: Option<Begun>, has_succeeded: bool) {
        let per_thread = self.function().per_thread();
        // A child that was forked inside the call: all locks are its parent's.
        if only_forwards() {
            return;
        }
        paid_for(|| {
            let is_measured = has_succeeded && record_event(timing.after, timing.stream, per_thread);
            let mut clocks = lock();
            clocks.is_over(timing.origin);
            match record.filter(|_| is_measured && clocks.pending.len() < MOST) {
                Some(record) => {
                    record.is_timed();
                    clocks.pending.push_back(Pending { timing, record });
                }
                None => give_back(&mut clocks, timing),
            }
            Some(())
        });
    }
}

/// Takes into account what a recorded copy has cost: its time on the host, or what the GPU needs for its bytes at least, which
/// is more for large ones.
#[inline(always)]
pub(super) fn went_by(ticks: u64, bytes: u64) {
    if MODE.load(Relaxed) != GpuTiming::Off as u8 {
        // SAFETY: the block is this thread's own; no other reference to it lives.
        goes_by(unsafe { &mut *thread::current() }, ticks, bytes);
    }
}

/// The same for a thread, where copies are measured.
#[inline(always)]
pub(super) fn goes_by(thread: &mut Thread, ticks: u64, bytes: u64) {
    /// Nothing copies more than 2 to the power of this in a tick: 1.5 TB/s at 3 GHz.
    const BYTES_BITS: u32 = 9;
    // Neither is negative.
    let left = thread.timing_debt.wrapping_sub((ticks.max(bytes >> BYTES_BITS) >> PART_BITS).cast_signed());
    // Copies that took long are no reason to measure all that come after them.
    thread.timing_debt = left.max(0);
}

/// Does something that is part of measuring, and counts what it costs.
fn paid_for<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    let trace = trace::file()?;
    let begun = trace.now();
    let result = unseen(|| {
        let result = work();
        look();
        result
    });
    let cost = trace.now().saturating_sub(begun);
    // SAFETY: the block is this thread's own; no other reference to it lives.
    let thread = unsafe { &mut *thread::current() };
    thread.timing_debt = thread.timing_debt.saturating_add_unsigned(cost.min(MOST_COST));
    thread.timing_cost = thread.timing_cost.wrapping_add(cost);
    result
}

/// Records an event on a stream of the program's that is not being captured. Answers whether it was.
fn record_event(event: usize, stream: usize, per_thread: bool) -> bool {
    let record = || driver::record(event, stream, per_thread).then_some(());
    VALIDATE.facts().beside_no_capture(record).is_some()
}

/// Where a context's times are counted from, for a copy that is under way from here on.
fn origin(context: (usize, u64)) -> Option<Origin> {
    let trace = trace::file()?;
    let is_good = |newest: &Origin| trace.now() < newest.ticks.saturating_add(trace::ticks(ORIGIN_NANOS));
    {
        let mut clocks = lock();
        let newest = clocks.of(context).and_then(|clock| clock.origins.last().copied());
        if let Some(newest) = newest.filter(is_good) {
            clocks.under_way.push(newest.event);
            return Some(newest);
        }
    }
    let event = driver::origin(context.0)?;
    let origin = Origin { event, ticks: trace.now() };
    let mut clocks = lock();
    clocks.under_way.push(event);
    let before = clocks.of(context).map(|clock| std::mem::take(&mut clock.origins)).unwrap_or_default();
    let (mut origins, unused): (Vec<_>, Vec<_>) = before.into_iter().partition(|old| clocks.uses(old.event));
    unused.iter().for_each(|old| driver::drop_event(old.event));
    origins.push(origin);
    match clocks.of(context) {
        Some(clock) => clock.origins = origins,
        None => clocks.clocks.push(Clock { context, free: Vec::new(), made: 0, origins }),
    }
    Some(origin)
}

/// Events of a context that nobody uses.
fn take_events(context: (usize, u64)) -> Option<(usize, usize)> {
    {
        let mut clocks = lock();
        let clock = clocks.of(context)?;
        if let Some(free) = clock.free.pop() {
            return Some(free);
        }
        if clock.made >= MOST {
            return None;
        }
        clock.made += 1;
    }
    driver::events(context.0)
}

/// Gives the events of a measurement back that is not under way any more: for the next, or, if what is kept for its context was
/// forgotten meanwhile, to the driver.
fn give_back(clocks: &mut Clocks, Timing { context, before, after, origin, .. }: Timing) {
    let is_known = match clocks.of(context) {
        Some(clock) => {
            clock.free.push((before, after));
            clock.origins.iter().any(|known| known.event == origin.event)
        }
        None if lives(context) => {
            [before, after].into_iter().for_each(driver::drop_event);
            false
        }
        None => return,
    };
    if !is_known && !clocks.uses(origin.event) {
        driver::drop_event(origin.event);
    }
}

/// Whether a context still exists.
fn lives((context, id): (usize, u64)) -> bool {
    RealDriver.context_id(context) == Some(id)
}

/// Looks at the measurements that have waited longest. No capture begins meanwhile: to ask about an event may end that of
/// another thread.
fn look() {
    VALIDATE.facts().beside_no_capture(|| {
        // Whoever has it looks for us.
        let mut clocks = match CLOCKS.try_lock() {
            Ok(clocks) => clocks,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        for _ in 0..LOOKS.min(clocks.pending.len()) {
            let pending = clocks.pending.pop_front()?;
            if !settle(&mut clocks, &pending) {
                clocks.pending.push_back(pending);
            }
        }
        Some(())
    });
}

/// Completes a measurement, if it is over.
fn settle(clocks: &mut Clocks, &Pending { timing, record }: &Pending) -> bool {
    match driver::has_passed(timing.after) {
        Some(false) => return false,
        Some(true) => record.timed(measured(timing)),
        None => record.timed(None),
    }
    give_back(clocks, timing);
    true
}

/// When the GPU began, in ticks, and how long it took, in nanoseconds.
fn measured(Timing { before, after, origin, .. }: Timing) -> Option<(u64, u64)> {
    let nanos = driver::nanos_between(before, after)?;
    // The second copy of a stream begins when the first has ended, however early it was asked for.
    let since = driver::nanos_between(origin.event, before).unwrap_or_default();
    Some((origin.ticks + trace::ticks(since), nanos))
}

/// Completes what can be completed, and forgets the rest: a context is about to end, and its events with it. Those of others
/// are given back to the driver, since whoever releases a primary context again and again would pile them up.
pub(super) fn contexts_are_going() {
    if MODE.load(Relaxed) == GpuTiming::Off as u8 {
        return;
    }
    let forgotten = VALIDATE.facts().beside_no_capture(|| {
        let mut clocks = lock();
        while let Some(pending) = clocks.pending.pop_front() {
            if !settle(&mut clocks, &pending) {
                pending.record.timed(None);
                give_back(&mut clocks, pending.timing);
            }
        }
        // Some context may have gone by a way that is not seen.
        for Clock { free, origins, .. } in std::mem::take(&mut clocks.clocks).into_iter().filter(|it| lives(it.context))
        {
            let events = free.into_iter().flat_map(|(before, after)| [before, after]);
            // From some a copy counts that is under way, in a context that stays: they are given back with it.
            let unused = origins.iter().map(|origin| origin.event).filter(|&event| !clocks.uses(event));
            events.chain(unused).for_each(driver::drop_event);
        }
        Some(())
    });
    if forgotten.is_none() {
        let mut clocks = lock();
        clocks.pending.drain(..).for_each(|pending| pending.record.timed(None));
        clocks.clocks.clear();
    }
}

fn lock() -> MutexGuard<'static, Clocks> {
    CLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}
