//! The fast path: copies on streams of which a [cached decision](crate::policy::cached) says all. It does what the
//! [ordinary path](super::run::traced) does, as far as that is not known to come to nothing.
//!
//! The driver's copy inside one of the runtime has no record of its own: the two are one copy, with the same result, and each
//! reading of the clock would cost as much as all of this. Nor does its hook wait for it: it jumps to the real function, and
//! the runtime's hook counts both.

use std::ffi::c_void;
use std::hint::cold_path;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::compiler_fence;

use p2pshim_trace::Begun;

use super::arrival::Call;
use super::decision::{self, Decision, Running};
use super::thread::{self, Inner, Thread};
use super::{mode, origin, recording, timing, validate};
use crate::api::abi::Code;
use crate::api::{Effect, Function, Layer};
use crate::config::GpuTiming;
use crate::model::{Memcpy, counters, epoch};
use crate::policy::cached::{self, Habits, Known, Line};
use crate::policy::{ACCESS, READBACK, VALIDATE};
use crate::real::driver::RealDriver;
use crate::record::trace;

/// A copy that is being made on the fast path. It has nothing to drop.
#[derive(Clone, Copy)]
pub(crate) struct Fast {
    /// The real function.
    pub(crate) real: *mut c_void,
    known: Known,
    record: Option<Begun>,
}

/// The driver's copy inside one of the runtime on the fast path: the real function, if it can take the fast path as well. When
/// that has returned, nothing is left to be done but by the call around it.
#[inline(always)]
pub(crate) fn inner(call: &Call<'_>) -> Option<*mut c_void> {
    let thread = thread::current();
    if !matches!(call.function().layer(), Layer::Driver) || !thread.expects_inner(call.caller.stack()) {
        return None;
    }
    let (known, _) = find(thread, call, epoch::now())?;
    let real = call.caller.real_of_route()?;
    if known.has(Known::TIMED) && timing::is_due(thread) {
        return None;
    }
    thread.begin_inner(known).then_some(real)
}

/// Begins a copy that nothing encloses, if it can take the fast path.
#[inline(always)]
pub(crate) fn begin(call: &Call<'_>) -> Option<Fast> {
    begin_from(call, |thread, site, _, _| thread.known_site(0, site))
}

/// The same in a program of whose copies the lines are wanted: they are counted first. It is tried once [`begin`] has
/// failed, so that only there anything of it is paid for.
#[cold]
#[inline(never)]
pub(crate) fn begin_counted(call: &Call<'_>) -> Option<Fast> {
    // It has failed because it is time for something else.
    if thread::current().is_check_due.load(Relaxed) {
        return None;
    }
    begin_from(call, origin::place)
}

/// Whether the fast path is there for a function.
#[inline(always)]
pub(crate) const fn is_for(function: Function) -> bool {
    matches!(function.effect(), Effect::Copy(kind) if kind.is_fast)
}

/// Begins a copy. `place` gives the number of the place that it is made from, by its address, the devices and the bytes.
#[inline(always)]
fn begin_from(call: &Call<'_>, place: impl FnOnce(&Thread, usize, [u8; 2], u64) -> Option<u16>) -> Option<Fast> {
    let (thread, copy) = (thread::current(), call.request.copy()?);
    // One inside it is as large.
    let (known, line) = find(thread, call, epoch::now()).filter(|_| cached::is_small(copy))?;
    let real = call.caller.real_of_route()?;
    let site = call.caller.return_address() as usize;
    if !thread.is_idle() || !known.has(Known::CLEAN) || (known.has(Known::CHECKED) && is_check_due(thread, line, site))
    {
        return None;
    }
    let is_of_driver = matches!(call.function().layer(), Layer::Driver);
    let place = match known.has(Known::RECORDED) {
        true if is_of_driver && known.has(Known::TIMED) && timing::is_due(thread) => return None,
        true => Some(place(thread, site, known.devices(), copy.bytes).filter(|_| thread.segment.has_room())?),
        false => None,
    };
    thread.enter_outermost(call.caller.stack());
    // What a handler's copy has left there before must not be taken for this one's; after it, one finds a call under way.
    compiler_fence(SeqCst);
    thread.set_inner(if is_of_driver { Inner::None } else { Inner::Expected });
    if known.has(Known::CHECKED) {
        line.count();
    }
    let mut record = None;
    if let Some(place) = place {
        record = begin_record(thread, call.function(), copy, known, place);
        if record.is_none() {
            // A signal handler has taken the last that there was room for: it begins again on the ordinary path.
            cold_path();
            thread.leave(0);
            return None;
        }
    }
    Some(Fast { real, known, record })
}

/// What is known of a copy in this epoch.
#[inline(always)]
fn find(thread: &'static Thread, call: &Call<'_>, epoch: u64) -> Option<(Known, &'static Line)> {
    let copy = call.request.copy()?;
    if epoch == 0 {
        return None;
    }
    thread.recent.find(call.function(), copy, epoch)
}

/// Whether a copy that the program makes is to be checked on the ordinary path: because it is time to, because of what the call
/// before has left, or because it may be one of too many small ones.
#[inline(always)]
fn is_check_due(thread: &Thread, line: &Line, site: usize) -> bool {
    let is_due = line.is_check_due() || thread.is_check_due.load(Relaxed);
    if is_due {
        thread.is_check_due.store(true, Relaxed);
        line.count();
    }
    is_due || !thread.has_nothing_pending() || thread.run.get().may_become_small(site)
}

/// Begins the copy's record, with all that is known of it: it may never return.
#[inline(always)]
fn begin_record(thread: &Thread, function: Function, copy: &Memcpy, known: Known, place: u16) -> Option<Begun> {
    thread.inner_record.set(None);
    thread.timing_cost.set(0);
    let begun = thread.segment.begin_next(0, function as u8, place, trace::time_stamp())?;
    begun.copies(copy.src, copy.dst, copy.bytes, copy.stream.unwrap_or_default() as u64);
    set_devices(begun, known);
    Some(begun)
}

#[inline(always)]
fn set_devices(record: Begun, known: Known) {
    let [src, dst] = known.devices();
    record.between(Some(src), Some(dst));
}

/// Completes a copy, once the real function has returned. False if that is to be done by [`end_otherwise`].
#[inline(always)]
pub(crate) fn end(call: &Call<'_>, fast: &Fast, ret: Code) -> bool {
    let &Fast { known, record, .. } = fast;
    let thread = thread::current();
    let is_of_driver = matches!(call.function().layer(), Layer::Driver);
    let (inner, is_as_expected) = match thread.inner_of(call.caller.stack()) {
        _ if is_of_driver => (None, true),
        Inner::Begun(inner) => (Some(inner), true),
        // The runtime reached the driver by a route that is not seen.
        Inner::Expected => {
            // Or a handler's copy might be taken for it.
            thread.set_inner(Inner::None);
            (None, true)
        }
        Inner::None => (None, !known.has_any(Known::CHECKED | Known::RECORDED)),
    };
    // In a child that was forked inside the call there is no epoch: the record is its parent's. The counters are the thread's
    // own, else the copy would not be on the fast path.
    let is_as_expected = is_as_expected && ret == Code::SUCCESS && epoch::now() != 0;
    let (Some(counters), Some(copy)) = (thread.counters.get().filter(|_| is_as_expected), call.request.copy()) else {
        cold_path();
        return false;
    };
    // From here on a handler's copy may leave something there again.
    compiler_fence(SeqCst);
    thread.leave(0);
    counters.count_call(call.function() as u8);
    if let Some(inner) = inner {
        counters.count_call(inner.function());
    }
    let of_driver = if is_of_driver { Some(known) } else { inner };
    if let Some(place) = of_driver.and_then(Known::place) {
        counters.count(place, copy.bytes);
    }
    if known.has(Known::CHECKED) {
        let mut run = thread.run.get();
        run.add_asynchronous(call.caller.return_address() as usize, copy.bytes);
        thread.run.set(run);
    }
    if let Some(record) = record {
        if let Some(inner) = inner {
            record.is_made_by(inner.function());
            if inner.devices() != known.devices() {
                cold_path();
                set_devices(record, inner);
            }
        }
        end_record(thread, record, of_driver.unwrap_or(known));
    }
    true
}

/// Completes the copy's record. What is known of it is known by the driver's, if there is one.
#[inline(always)]
fn end_record(thread: &Thread, record: Begun, known: Known) {
    let end = trace::time_stamp();
    record.takes(known.path());
    record.copied(end);
    timing::count(thread, record.bytes());
    // Here there is less to be saved for it than before the next.
    if !thread.segment.has_room() {
        cold_path();
        recording::make_room(thread);
    }
    if end >= thread.calibration_due.get() {
        cold_path();
        recording::calibrate(thread, end);
    }
}

/// Completes a copy that was counted before.
#[cold]
#[inline(never)]
pub(crate) fn end_counted(call: &Call<'_>, fast: &Fast, ret: Code) {
    if !end(call, fast, ret) {
        end_otherwise(call, fast, ret);
    }
}

/// Completes a copy as the ordinary path does: it has failed, or what was inside it was not as usual.
#[cold]
#[inline(never)]
pub(crate) fn end_otherwise(call: &Call<'_>, &Fast { known, record, .. }: &Fast, ret: Code) {
    let thread = thread::current();
    let inner = match thread.inner_of(call.caller.stack()) {
        Inner::Begun(inner) => Some(inner),
        Inner::Expected | Inner::None => None,
    };
    let running = Running { depth: 0, record, shown_since: None };
    thread.leave(0);
    if !mode::is_still_on() {
        return;
    }
    let ret = call.usual(ret);
    let bytes = call.request.copy().map_or(0, |copy| copy.bytes);
    let decision = Decision { instead: None, traffic: inner.unwrap_or(known).traffic(bytes) };
    match inner {
        Some(inner) => {
            decision::count(call, &Decision::FORWARD, ret);
            end_inner(thread, inner, &decision, record, ret);
        }
        None => decision::count(call, &decision, ret),
    }
    let path = decision::path(call, &decision, &running, ret);
    if let Some(record) = record {
        recording::note(&call.request, &decision, record);
        recording::end(call, &decision, record, ret, path);
    }
    if VALIDATE.is_on() {
        validate::check(call, ret, path);
    }
}

/// Completes the driver's copy inside, which is taken to have returned the same: nobody has seen that.
fn end_inner(thread: &Thread, inner: Known, decision: &Decision<'_>, record: Option<Begun>, ret: Code) {
    counters::count_call_numbered(&thread.shard, inner.function(), ret != Code::SUCCESS);
    if let Some(traffic) = decision.traffic.filter(|_| ret == Code::SUCCESS) {
        counters::count(&thread.shard, &traffic);
        thread.set_path(Some(traffic.path));
    }
    if let Some(record) = record {
        record.is_made_by(inner.function());
    }
}

/// Has the next copy like this take the fast path: one that has succeeded, and of which nothing was to be said. Of copies that
/// are all different one now and then is kept, so that keeping does not cost more than it brings.
#[inline(always)]
pub(crate) fn keep(call: &Call<'_>, running: &Running) {
    /// Prime to the few copies that a loop may make in turn.
    const EACH: u8 = 7;
    if !is_for(call.function()) || !call.request.copy().is_some_and(cached::is_small) {
        return;
    }
    let thread = thread::current();
    let turn = thread.not_fast.load(Relaxed);
    thread.not_fast.store(if turn == 0 { EACH - 1 } else { turn - 1 }, Relaxed);
    if turn == 0 {
        keep_now(call, thread, running.is_outermost());
    }
}

#[cold]
#[inline(never)]
fn keep_now(call: &Call<'_>, thread: &'static Thread, is_outermost: bool) {
    let Some(copy) = call.request.copy() else { return };
    // It was time to check it, or something else was in the way.
    if find(thread, call, epoch::now()).is_some_and(|(known, _)| !is_outermost || known.has(Known::CLEAN)) {
        return;
    }
    thread.counters.set(counters::own(thread.shard.load(Relaxed)));
    let epoch = epoch::before_keeping();
    if thread.counters.get().is_none() {
        return;
    }
    if let Some(habits) = habits(call, is_outermost) {
        let all = (&RealDriver, &ACCESS, &VALIDATE);
        let _ = cached::keep(all, epoch, (thread.tag(), &thread.recent), (call.function(), copy), habits);
    }
}

/// What is done with copies like this besides; none if that takes the ordinary path. Not what was done with this one: somebody
/// may have added a callback meanwhile.
fn habits(call: &Call<'_>, is_outermost: bool) -> Option<Habits> {
    let sees = mode::sees();
    let records = sees.records();
    // Where reading the clock takes a call, that is most of what a record costs.
    if sees.shows() || sees.drops() || READBACK.is_of_all() || (records && trace::file()?.now_at_once().is_none()) {
        return None;
    }
    let timing = if records { timing::of(call) } else { GpuTiming::Off };
    (timing != GpuTiming::All).then_some(Habits { is_outermost, records, samples: timing == GpuTiming::Sample })
}
