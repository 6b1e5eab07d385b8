//! The path of a call, from its arrival to its return: read [`traced`] from top to bottom.
//!
//! The real function is called in one place, outside every lock and outside the panic boundary. A cancelled thread unwinds
//! through it, so nothing in these frames may have a destructor while it runs.
//!
//! HIP, which has no layer below, has a path of its own in [`super::hip`].

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::arrival::{Call, Caller};
use super::decision::{self, Decision, Instead, Running, count, path};
use super::room::Room;
use super::thread::Before;
use super::{
    callbacks, copy, mode, origin, peers, readback, recording, regular, show, staging, thread, timing, trial, validate,
    waits,
};
use crate::api::abi::{Code, Value};
use crate::api::{Effect, Function, Layer};
use crate::os;
use crate::policy::VALIDATE;
use crate::record::trace;

/// Makes a call of the CUDA runtime or driver that is traced. `real` calls the real function.
#[inline(always)]
pub(crate) fn traced(function: Function, caller: Caller, arguments: &[Value], real: impl Fn() -> Code) -> Code {
    if !mode::is_on() {
        return real();
    }
    let (mut parameters, mut instead) = (Room::new(), MaybeUninit::uninit());
    let call = Call::new(function, caller, arguments, &mut parameters);
    if regular::is_passed_on(&call) {
        return real();
    }
    let mut decision = decide(&call, &mut instead);
    let mut begun = begin(&call, &decision);
    if let Some(refusal) = decision.refusal {
        let ret = validate::refuse(&call, refusal);
        end(&call, &decision, begun, None, ret);
        return ret;
    }
    let timing = timing::begin(&call, &begun);
    if timing.is_some() {
        begun.restart_clock();
    }
    let ret = match decision.instead {
        None => real(),
        Some(Instead::Staged) => match staging::make(&call, decision.traffic) {
            Ok(ret) => ret,
            Err(trial) => {
                decision = unstaged(&call, &decision, &begun);
                let ret = real();
                if let Some(trial) = trial {
                    trial::end(trial, ret);
                }
                ret
            }
        },
        // SAFETY: made of the program's arguments, in place of the real function.
        Some(instead) => unsafe { instead.call(&call) },
    };
    let ret = peers::revise(&call, &decision, ret);
    end(&call, &decision, begun, timing, ret);
    ret
}

/// Decides what is done about a call. A call whose arguments are wrong is refused where the program makes it; all else is decided
/// for calls of the driver, where every client of CUDA ends.
#[inline(always)]
fn decide<'a>(call: &Call<'_>, room: &'a mut decision::Room) -> Decision<'a> {
    if let Some(refusal) = validate::refusal(call) {
        return Decision::refused(refusal);
    }
    match (call.function().layer(), call.function().effect()) {
        (Layer::Driver, Effect::Copy(_)) => copy::decide(call, room),
        (Layer::Driver, Effect::Access(_)) => peers::decide(call, room),
        _ => Decision::FORWARD,
    }
}

/// Decides anew about a copy that was to be staged, and cannot be.
#[cold]
#[inline(never)]
fn unstaged<'a>(call: &Call<'_>, decision: &Decision<'a>, begun: &Running) -> Decision<'a> {
    let unstaged = decision.unstaged();
    // On a path that is blocked: which is recorded, and said.
    if unstaged.traffic != decision.traffic {
        if let Some(record) = begun.record {
            recording::note(&call.request, &unstaged, record);
        }
        thread::current().is_check_due.store(true, Relaxed);
    }
    unstaged
}

/// Notes that the real function is about to be called.
#[inline(always)]
pub(crate) fn begin(call: &Call<'_>, decision: &Decision<'_>) -> Running {
    let thread = thread::current();
    let (depth, before) = thread.enter(call.frame());
    if thread.is_staging.load(Relaxed) {
        staging::have_streams_follow(before.is_in_progress());
    }
    let sees = mode::sees();
    if sees.nothing() || thread.is_busy() {
        return Running { depth, before, record: None, shown_since: None };
    }
    begin_seen(call, decision, (depth, before), sees)
}

/// Begins a call that is recorded or shown.
#[inline(never)]
fn begin_seen(call: &Call<'_>, decision: &Decision<'_>, (depth, before): (usize, Before), sees: mode::Sees) -> Running {
    if depth == 0 && sees.shows() {
        callbacks::forget(thread::current());
    }
    if sees.drops() {
        trace::drop_call();
    }
    let record = if sees.records() { recording::begin(call, decision, depth) } else { None };
    let shown_since = sees.shows().then(|| os::uncancelled(Instant::now));
    Running { depth, before, record, shown_since }
}

/// Notes that the real function has returned.
#[inline(always)]
pub(crate) fn leave(begun: &Running) {
    thread::current().leave(&begun.before);
}

/// Does what there is to do when the real function has returned: counts the call, records and shows it, and checks it.
#[inline(always)]
fn end(call: &Call<'_>, decision: &Decision<'_>, begun: Running, timing: Option<timing::Timing>, ret: Code) {
    leave(&begun);
    // A child that was forked inside the call returns from it as well: records and locks are its parent's.
    if !mode::is_still_on() {
        return;
    }
    let ret = call.usual(ret);
    count(call, decision, ret);
    if ret == Code::SUCCESS {
        waits::after_copy(call, decision.traffic);
        validate::after_copy(call, decision.traffic);
    }
    let is_checked = validate::has_rules(call.function()) && VALIDATE.is_on();
    let path = path(call, decision, &begun, ret);
    if let Some(record) = begun.record {
        if matches!(call.function().effect(), Effect::Access(_)) {
            recording::add_current_device(call, record);
        }
        recording::end(call, decision, record, ret, path);
    }
    if begun.is_outermost() {
        thread::current().put_back(&begun.before);
    }
    timing::end(call, timing, begun.record, ret);
    readback::after(call, &begun, ret);
    if let Some(record) = begun.record {
        origin::after(call, record);
    }
    if let Some(since) = begun.shown_since {
        show::call(call, decision, &begun, os::uncancelled(|| since.elapsed()), ret, path);
    }
    match (decision.refusal, begun.record) {
        (Some(refusal), record) => validate::record_refusal(call, record, refusal),
        (None, _) if is_checked && begun.is_outermost() => _ = validate::check(call, ret, path),
        _ => {}
    }
    if begun.shown_since.is_some() {
        callbacks::run(&begun);
    }
}
