//! The path of a call, from its arrival to its return: read [`traced`] from top to bottom. It is one for CUDA and HIP, for a copy and a
//! batch, and for a call that is refused. Only `state` rows ([`super::change`]) take another.
//!
//! The real function is called in one place ([`make`]), outside every lock and outside the panic boundary. A cancelled thread unwinds
//! through it, so nothing in these frames may have a destructor while it runs.

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::arrival::{Call, Caller};
use super::decision::{Decision, How, Reason, Running};
use super::room::Room;
use super::thread::{self, STAGES};
use super::{
    batch, callbacks, captured, copy, hands, hip, mode, origin, peers, readback, recording, regular, show, staging,
    timing, validate, waits,
};
use crate::api::abi::{Code, Value};
use crate::api::{Effect, Function, Layer};
use crate::model::{Path, counters};
use crate::os;
use crate::policy::{VALIDATE, capture};
use crate::real::driver::{self, ReadyCopy};
use crate::real::hip::{fail, succeed};
use crate::record::{log, trace};

/// Makes a call that is traced. `found` is the real function, which `real` calls.
#[inline(always)]
pub(crate) fn traced(
    function: Function,
    caller: Caller,
    found: *const c_void,
    arguments: &[Value],
    real: impl Fn() -> Code,
) -> Code {
    if !mode::is_on() {
        return mode::forwarded(function, real());
    }
    let mut parameters = Room::new();
    let call = Call::new(function, caller, found, arguments, &mut parameters);
    let mut decision = decide(&call);
    if let How::Forward(why) = decision.how {
        say_forwarded(function, why);
        if why.is_passed_on(function) {
            return if captured::may_be_refused(&call) {
                captured::make(&call, real)
            } else {
                hands::passed_on(&call, real)
            };
        }
    }
    let mut begun = begin(&call, &decision);
    let timing = if decision.refusal().is_none() { timing::begin(&call, &mut begun) } else { None };
    let announced = waits::before(&call, &decision);
    let ret = make(&call, &mut decision, &begun, real);
    let ret = end(&call, &decision, &begun, (&announced, timing), ret);
    announced.give_back();
    decision.copied.give_back();
    ret
}

/// Decides what is done about a call. A call of CUDA whose arguments are wrong is refused where the program makes it; all else is decided
/// for calls of the driver, where every client of CUDA ends.
#[inline(always)]
fn decide(call: &Call<'_>) -> Decision {
    match (call.function().layer(), call.function().effect()) {
        (_, Effect::Copies(kind)) => return batch::decide(call, kind),
        (Layer::Hip, _) => return hip::decide(call),
        _ => {}
    }
    if let Some(why) = regular::passed_on(call) {
        return Decision::new(How::Forward(why));
    }
    if let Some(refusal) = validate::refusal(call) {
        return Decision::new(How::Refused(refusal));
    }
    match (call.function().layer(), call.function().effect()) {
        (Layer::Driver, Effect::Copy(_)) => copy::decide(call),
        (Layer::Driver, Effect::Access(_)) => peers::decide(call),
        (_, Effect::Copy(_) | Effect::Access(_)) => Decision::new(How::Forward(Reason::DriverDecides)),
        _ => Decision::new(How::Forward(Reason::NotOurs)),
    }
}

/// Writes at the level `trace` why nothing was decided about a call, where a user may look for that.
#[inline(always)]
fn say_forwarded(function: Function, why: Reason) {
    if why.name().is_some() && log::shows_calls() {
        write_forwarded(function, why);
    }
}

#[cold]
#[inline(never)]
fn write_forwarded(function: Function, why: Reason) {
    if let Some(why) = why.name() {
        mode::unseen(|| log::forwarded(function, why));
    }
}

/// Notes that the real function is about to be called.
#[inline(never)]
fn begin(call: &Call<'_>, decision: &Decision) -> Running {
    let thread = thread::current();
    let (depth, before) = thread.enter(call.frame());
    if thread.is_unfinished(u8::MAX) {
        begin_beside(call, before.is_in_progress());
    }
    let running = Running { depth, before, record: None, shown_since: None };
    if mode::sees().nothing() || thread.is_busy() { running } else { begin_seen(call, decision, running) }
}

/// A call begins while another of this thread has not returned: a signal handler or the other makes it, `is_within`, or the other was left by
/// `longjmp`.
#[cold]
#[inline(never)]
fn begin_beside(call: &Call<'_>, is_within: bool) {
    if thread::current().is_unfinished(STAGES) {
        staging::have_streams_follow(is_within);
    }
    if !is_within && !peers::takes_away(call) {
        peers::taking_is_over();
    }
}

/// Begins a call that is recorded or shown.
#[inline(never)]
fn begin_seen(call: &Call<'_>, decision: &Decision, running: Running) -> Running {
    let sees = mode::sees();
    if running.is_outermost() && sees.shows() {
        callbacks::forget(thread::current());
    }
    if sees.drops() {
        trace::drop_call();
    }
    let record = if sees.records() { recording::begin(call, decision, running.depth) } else { None };
    Running { record, shown_since: sees.shows().then(|| os::uncancelled(Instant::now)), ..running }
}

/// Makes a call as was decided.
#[inline(always)]
fn make(call: &Call<'_>, decision: &mut Decision, begun: &Running, real: impl Fn() -> Code) -> Code {
    match decision.how {
        How::Real | How::Forward(_) => real(),
        How::Refused(refusal) => match decision.hip {
            Some(facts) => fail(facts.library, refusal.code),
            None => validate::refuse(call, refusal),
        },
        How::Staged => match make_staged(call, decision, begun) {
            Some(ret) => ret,
            None => real(),
        },
        // SAFETY: made of the program's arguments, in place of the real function.
        How::Captured(_) | How::Harmless(_) | How::Answered(..) => unsafe { make_instead(call, decision.how) },
    }
}

/// Makes a call by another function.
///
/// # Safety
/// The caller meets the conditions of the function whose place that takes.
#[cold]
#[inline(never)]
unsafe fn make_instead(call: &Call<'_>, how: How) -> Code {
    match how {
        How::Captured(_) => {
            let replacement = call.request.copy().and_then(|copy| capture::replacement(call.function(), copy));
            // SAFETY: the caller's.
            let make = |copy: ReadyCopy| unsafe { copy.make() };
            replacement.and_then(|of| driver::ready(&of)).map_or(Code::INVALID_VALUE, make)
        }
        How::Answered(library, Code::SUCCESS) => succeed(library),
        How::Answered(library, code) => fail(library, code),
        How::Harmless(enable) => match driver::enable_peer_access(enable.peer, enable.flags) {
            // Enabled after all, if it was not: that is what it takes the access to be.
            ret if ret == enable.from || ret == Code::SUCCESS => enable.to,
            ret => ret,
        },
        _ => Code::INVALID_VALUE,
    }
}

/// Stages the copies of a call; none if the caller must call the real function instead.
#[cold]
#[inline(never)]
fn make_staged(call: &Call<'_>, decision: &mut Decision, begun: &Running) -> Option<Code> {
    let (made, is_staged) = match call.request.copy() {
        Some(copy) => {
            let made = staging::make(call, copy, decision.traffic());
            (made, made.is_some())
        }
        None => batch::make_each(call).map_or((None, false), |(ret, is_staged)| (Some(ret), is_staged)),
    };
    if made.is_none() {
        decision.how = How::Real;
    }
    // If the pair is blocked, the copy takes a blocked path: record that, and make the next check report it.
    if !is_staged && decision.copied.unstage() {
        begun.record.inspect(|record| recording::note(call, decision, *record));
        thread::current().is_check_due.store(true, Relaxed);
    }
    made
}

/// Does what there is to do when the real function has returned: counts the call, records and shows it, and checks it. Returns the code
/// that the program gets.
#[inline(never)]
fn end(
    call: &Call<'_>,
    decision: &Decision,
    begun: &Running,
    (announced, timing): (&waits::Announcements, Option<timing::Timing>),
    ret: Code,
) -> Code {
    let thread = thread::current();
    thread.leave(&begun.before);
    // A child that was forked inside the call returns from it as well: records and locks are its parent's.
    if !mode::is_still_on() {
        return ret;
    }
    let given = revise(call, decision, ret);
    let ret = call.usual(given);
    count(call, decision, ret);
    waits::after(call, decision, announced, ret);
    let path = path(call, decision, begun, ret);
    if let Some(record) = begun.record {
        recording::end(call, decision, begun.depth, record, (given, path));
    }
    if begun.is_outermost() {
        thread.put_back(&begun.before);
    }
    timing::end(call, timing, begun.record, ret);
    readback::after(call, begun, ret);
    if let Some(refusal) = decision.refusal() {
        validate::record_refusal(call, begun.record, refusal);
    } else if let Some(record) = begun.record {
        origin::after(call, decision, record);
    }
    if let Some(since) = begun.shown_since {
        show::call(call, decision, begun, os::uncancelled(|| since.elapsed()), (given, ret), path);
    }
    if begun.is_outermost() && VALIDATE.is_on() && decision.refusal().is_none() {
        check(call, decision, ret, path);
    }
    if begun.shown_since.is_some() {
        callbacks::run(begun);
    }
    given
}

/// The code that the program gets for that of the real function.
fn revise(call: &Call<'_>, decision: &Decision, ret: Code) -> Code {
    match (call.function().layer(), call.function().effect()) {
        (Layer::Driver, Effect::Access(_)) => return peers::revise(call, decision, ret),
        (Layer::Hip, Effect::Access(_)) => hip::has_returned(call, decision, ret),
        _ => {}
    }
    ret
}

/// Counts a call, and of copies that were made their bytes. A runtime's copy is counted as that of the driver inside it.
fn count(call: &Call<'_>, decision: &Decision, ret: Code) {
    let shard = &thread::current().shard;
    counters::count_call(shard, call.function(), ret != Code::SUCCESS);
    let made = if ret == Code::SUCCESS { decision.copied.parts() } else { &[] };
    if call.function().layer() != Layer::Runtime && !made.is_empty() {
        made.iter().for_each(|part| counters::count(shard, &part.traffic, part.copies.into()));
        validate::after_copy(call, decision.traffic());
    }
}

/// The path of copies that were made. For a call of the runtime, the driver's call inside it decides the path, also whether a batch used
/// a blocked one.
fn path(call: &Call<'_>, decision: &Decision, begun: &Running, ret: Code) -> Option<Path> {
    let own = decision.path().filter(|_| ret == Code::SUCCESS);
    match call.function().layer() {
        Layer::Runtime => {
            let inner = thread::current().take_path(&begun.before).filter(|_| ret == Code::SUCCESS);
            if inner == Some(Path::Broken) { inner } else { own.or(inner) }
        }
        Layer::Driver if !begun.is_outermost() && own.is_some() => {
            thread::current().set_path(own);
            own
        }
        Layer::Driver | Layer::Hip | Layer::Nvml => own,
    }
}

/// Says of a call of the program what there is to say.
fn check(call: &Call<'_>, decision: &Decision, ret: Code, path: Option<Path>) {
    match (call.function().layer(), call.function().effect()) {
        (_, Effect::Copies(kind)) => batch::check(call, kind, decision, (ret, path)),
        (Layer::Hip, _) => hip::check(call, decision, ret),
        _ if validate::has_rules(call.function()) => validate::check(call, ret, path),
        _ => {}
    }
}
