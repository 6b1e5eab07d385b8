//! Calls that get no record and may block: each is noted in the trace while it lasts, so that `p2pshim hang` can tell what a program waits in
//! and when it was last heard of. Without a trace that costs nothing.
//!
//! A call that hangs is worth a line of Python or, where a runtime made it, the function that called the runtime. Looking for these takes some
//! 100 us: a thread does so a few times at first, and then for less than a thousandth of its time, so that short programs and benchmarks are not
//! slowed down. A call that a shared runtime makes is noted as the runtime's own call, of which the caller is known.

use super::arrival::Caller;
use super::mode::Observers;
use super::{mode, origin, recording, thread};
use crate::api::abi::Value;
use crate::api::{Effect, Function, Layer, State};
use crate::record::trace;

/// So long, in ticks of the trace (some 0.3 s), a thread rests for each time that it has looked. How long that took does not count: the first time
/// it is found out how to look, and a busy machine may let the thread wait.
const REST: u64 = 800_000_000;
/// So much rest a thread may owe and look all the same: of a few waits, one soon after the other, it is often the last that hangs.
const OWED: u64 = 3 * REST;

/// Where the calls of a thread are noted.
pub(super) type Place = (&'static trace::Trace, &'static thread::Thread);

/// Notes a call that is about to be made.
#[inline(always)]
pub(super) fn begin(function: Function, caller: Caller, arguments: &[Value]) {
    if mode::observers().has(Observers::TRACE) {
        note_in_place(function, caller, arguments.first());
    }
}

#[inline(never)]
fn note_in_place(function: Function, caller: Caller, first: Option<&Value>) {
    if let Some(place) = place(function, caller) {
        note((function, caller), first, place);
    }
}

/// Notes that it has returned.
#[inline(always)]
pub(super) fn end(function: Function, caller: Caller) {
    if mode::observers().has(Observers::TRACE) {
        returned_in_place(function, caller);
    }
}

#[inline(never)]
fn returned_in_place(function: Function, caller: Caller) {
    if let Some(place) = place(function, caller) {
        note_return(function, place);
    }
}

/// The trace and the thread, if the call is to be noted: not inside a runtime's that is.
pub(super) fn place(function: Function, caller: Caller) -> Option<Place> {
    let thread = thread::current();
    let is_meant = function.layer() != Layer::Nvml;
    let is_inside = function.layer() == Layer::Driver && caller.stack() < thread.noted.get();
    if !is_meant || is_inside || !mode::observers().records() || thread.is_busy() || !mode::is_still_on() {
        None
    } else {
        Some((trace::file()?, thread))
    }
}

/// Notes that a call has returned that was noted.
pub(super) fn note_return(function: Function, (trace, thread): Place) {
    thread.segment.note_return(trace.now());
    if function.layer() == Layer::Runtime {
        thread.noted.set(0);
    }
}

/// Notes a call that is about to be made.
pub(super) fn note((function, caller): (Function, Caller), first: Option<&Value>, (trace, thread): Place) {
    let (address, now) = (caller.return_address() as usize, trace.now());
    let site = looked_for(function, caller, now).or_else(|| trace.known_site(address));
    let site = site.unwrap_or_else(|| mode::unseen(|| trace.new_site(address)));
    let handle = match first {
        Some(&(Value::Address(word) | Value::Stream(word))) => word as u64,
        Some(&Value::UInt(word)) => word,
        Some(&Value::Ordinal(number)) => number.cast_unsigned().into(),
        _ => 0,
    };
    let note = || thread.segment.waits(function as u8, site, handle, now);
    let is_noted = note() || (recording::has_more_room(trace, thread) && note());
    if is_noted && function.layer() == Layer::Runtime {
        thread.noted.set(caller.stack());
    }
}

/// The number of the place of a call that may block for long, if the thread may look for it, and more is found than the address.
#[inline(never)]
pub(super) fn looked_for(function: Function, caller: Caller, now: u64) -> Option<u16> {
    let may_look = is_long(function) && may_look(now, thread::current().rests_until.get());
    if may_look { look(function, caller, now) } else { None }
}

/// Whether a call may block for long, and does not only begin something.
fn is_long(function: Function) -> bool {
    use State::{frees_memory, unmaps_memory, waits, waits_for_context, waits_for_stream};
    match function.effect() {
        Effect::State(state) => {
            matches!(state, frees_memory | unmaps_memory | waits | waits_for_context | waits_for_stream)
        }
        _ => true,
    }
}

/// Looks where in the program the call comes from.
#[cold]
#[inline(never)]
fn look(function: Function, caller: Caller, now: u64) -> Option<u16> {
    let until = &thread::current().rests_until;
    until.set(rest(until.get(), now));
    mode::unseen(|| origin::of_untraced(caller, function, true))
}

fn may_look(now: u64, rests_until: u64) -> bool {
    now.saturating_add(OWED) >= rests_until
}

/// Until when a thread rests that looks now.
fn rest(until: u64, now: u64) -> u64 {
    until.max(now).saturating_add(REST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_that_waits_all_the_time_looks_for_a_millisecond_in_its_first_second() {
        const LOOK_US: u64 = 100;
        for gigahertz in [2, 3, 4] {
            let (second, begun) = (gigahertz * 1_000_000_000, 7 << 40);
            let (mut now, mut until, mut looks) = (begun, 0, 0);
            while now < begun + second {
                if may_look(now, until) {
                    (until, looks) = (rest(until, now), looks + 1);
                }
                now += 2 * gigahertz * 1000;
            }
            assert!((4..=1000 / LOOK_US).contains(&looks), "{looks} looks at {gigahertz} GHz");
        }
    }
}
