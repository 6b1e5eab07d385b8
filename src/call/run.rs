//! The path of a call, from its arrival to its return: read [`traced`], [`half`] and [`whole`] from top to bottom. A runtime's copy or call about access
//! is one half: the driver's call inside it decides. Calls of the driver and of HIP, and batches, are decided about here. Only `state` rows
//! ([`super::change`]) and copies with the host ([`super::host`]) take another path.
//!
//! The real function is called outside every lock and outside the panic boundary. A cancelled thread unwinds through it, so nothing in these frames
//! may have a destructor while it runs.

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::arrival::{Call, Caller};
use super::decision::{Decision, How, Reason, Refusal, Running, path_of};
use super::regular::Look;
use super::room::Room;
use super::thread::{self, STAGES};
use super::{
    batch, callbacks, captured, copy, failures, hip, host, mode, origin, peers, readback, recording, regular, show,
    staging, timing, validate, waits,
};
use crate::api::abi::{Code, Value};
use crate::api::{Copies, Effect, Function, Layer};
use crate::model::{Part, Path, counters};
use crate::os;
use crate::policy::{VALIDATE, capture, forgive};
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
    let by = (caller, found);
    match regular::look(function, arguments) {
        Look::Leaves => host::passed_on((function, caller), arguments, real),
        Look::Between if function.layer() == Layer::Runtime => linear_half(function, by, arguments, &real),
        Look::Between => linear(function, by, arguments, &real),
        Look::Open if has_own_path(function) => {
            let mut room = Room::new();
            let call = Call::new(function, caller, found, arguments, &mut room);
            if is_half(function) { half(&call, real) } else { whole(&call, real) }
        }
        Look::Open if is_half(function) => any_half(function, by, arguments, &real),
        Look::Open => any(function, by, arguments, &real),
    }
}

/// Whether a hook has its path for itself, which saves its calls some 100 instructions: copies of CUDA that name devices, and launches of graphs. For
/// each other function to have its own would make the library a tenth larger.
#[inline(always)]
const fn has_own_path(function: Function) -> bool {
    let is_common = matches!(function.effect(), Effect::Copy(_) | Effect::Copies(Copies::graph));
    is_common && !function.is_regular() && !matches!(function.layer(), Layer::Hip)
}

/// A caller, and the real function.
type By = (Caller, *const c_void);

// Each of these is a function, so that a frame holds no more than its own call needs: a stack may have 16 KiB.

/// The runtime's half of a regular copy in one dimension between devices.
#[inline(never)]
fn linear_half(function: Function, by: By, arguments: &[Value], real: &dyn Fn() -> Code) -> Code {
    half(&Call::linear(function, by, arguments), real)
}

/// The driver's half of such a copy.
#[inline(never)]
fn linear(function: Function, by: By, arguments: &[Value], real: &dyn Fn() -> Code) -> Code {
    whole(&Call::linear(function, by, arguments), real)
}

/// The runtime's half of any call.
#[inline(never)]
fn any_half(function: Function, by: By, arguments: &[Value], real: &dyn Fn() -> Code) -> Code {
    let mut room = Room::new();
    let call = parsed(function, by, arguments, &mut room);
    match regular::passed_on(&call) {
        Some(why) => passed_on(&call, why, real),
        None => half(&call, real),
    }
}

/// Any other call.
#[inline(never)]
fn any(function: Function, by: By, arguments: &[Value], real: &dyn Fn() -> Code) -> Code {
    let mut room = Room::new();
    let call = parsed(function, by, arguments, &mut room);
    match regular::passed_on(&call) {
        Some(why) => passed_on(&call, why, real),
        None => whole(&call, real),
    }
}

/// [`Call::new`] in a frame of its own.
#[inline(never)]
fn parsed<'a>(function: Function, (caller, found): By, arguments: &'a [Value], room: &'a mut Room) -> Call<'a> {
    Call::new(function, caller, found, arguments, room)
}

/// A runtime's call, which only says which function the program has called, and who.
#[inline(always)]
fn half(call: &Call<'_>, real: impl Fn() -> Code) -> Code {
    if let Some(refusal) = validate::refusal(call) {
        return refused(call, refusal);
    }
    let mut begun = Running::default();
    begin(call, NOTHING, &mut begun);
    thread::current().endpoints.forget();
    let ret = real();
    end(call, NOTHING, &begun, (&waits::Announcements::NONE, None), ret)
}

/// A call about which is decided here.
#[inline(always)]
fn whole(call: &Call<'_>, real: impl Fn() -> Code) -> Code {
    // HIP is asked first.
    if call.function().layer() != Layer::Hip
        && let Some(refusal) = validate::refusal(call)
    {
        return refused(call, refusal);
    }
    let mut decision = decide(call);
    match decision.how {
        How::Forward(why) if why.is_passed_on(call.function()) => return passed_on(call, why, real),
        How::Forward(why) => say_forwarded(call.function(), why),
        How::Real | How::Staged => {}
        How::Refused(_) | How::Captured(_) | How::Harmless(_) | How::Answered(..) => {
            return make_instead(call, &decision);
        }
    }
    let mut begun = Running::default();
    begin(call, &decision, &mut begun);
    let timing = timing::begin(call, &mut begun);
    let announced = waits::before(call, &decision);
    let staged = if let How::Staged = decision.how { make_staged(call, &mut decision, &begun) } else { None };
    let ret = staged.unwrap_or_else(real);
    let ret = end(call, &decision, &begun, (&announced, timing), ret);
    announced.give_back();
    decision.copied.give_back();
    ret
}

/// Whether a call only says which function the program has called, and who: a copy or a call about access, about which the driver's call inside
/// it decides.
#[inline(always)]
const fn is_half(function: Function) -> bool {
    matches!(function.layer(), Layer::Runtime) && validate::has_rules(function)
}

/// Makes a call that is neither counted nor shown.
#[inline(always)]
fn passed_on(call: &Call<'_>, why: Reason, real: impl Fn() -> Code) -> Code {
    say_forwarded(call.function(), why);
    match captured::may_be_refused(call) {
        true => captured::make(call, real),
        false => host::passed_on((call.function(), call.caller), call.request.arguments, real),
    }
}

/// The decision about a call that the driver's call inside it decides.
const NOTHING: &Decision = &Decision::new(How::Forward(Reason::DriverDecides));

/// Decides about a call of the driver, where every client of CUDA ends, or of HIP, or of several copies.
#[inline(always)]
fn decide(call: &Call<'_>) -> Decision {
    match (call.function().layer(), call.function().effect()) {
        (_, Effect::Copies(kind)) => batch::decide(call, kind),
        (Layer::Hip, _) => hip::decide(call),
        (_, Effect::Copy(_)) => copy::decide(call),
        (_, Effect::Access(_)) => peers::decide(call),
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

/// Notes that the real function is about to be called. In place, since stacks may be small.
#[inline(never)]
fn begin(call: &Call<'_>, decision: &Decision, running: &mut Running) {
    let thread = thread::current();
    (running.depth, running.before) = thread.enter(call.frame());
    if thread.is_unfinished(u8::MAX) {
        begin_beside(call, running.before.is_in_progress());
    }
    if !mode::observers().nothing() && !thread.is_busy() {
        begin_seen(call, decision, running);
    }
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
        peers::end_taking();
    }
}

/// Begins a call that is recorded or shown.
#[inline(never)]
fn begin_seen(call: &Call<'_>, decision: &Decision, running: &mut Running) {
    let sees = mode::observers();
    if running.is_outermost() && sees.shows() {
        callbacks::forget(thread::current());
    }
    if sees.drops() {
        trace::drop_call();
    }
    running.record = if sees.records() { recording::begin(call, decision, running.depth) } else { None };
    running.shown_since = sees.shows().then(|| os::uncancelled(Instant::now));
}

/// Refuses a call whose arguments are wrong.
#[cold]
#[inline(never)]
fn refused(call: &Call<'_>, refusal: Refusal) -> Code {
    make_instead(call, &Decision::new(How::Refused(refusal)))
}

/// Makes a call by another function than the real one, or refuses it.
#[cold]
#[inline(never)]
fn make_instead(call: &Call<'_>, decision: &Decision) -> Code {
    let mut begun = Running::default();
    begin(call, decision, &mut begun);
    let ret = match decision.how {
        How::Refused(refusal) => match decision.hip {
            Some(facts) => fail(facts.library, refusal.code),
            None => validate::refuse(call, refusal),
        },
        How::Captured(_) => {
            let replacement = call.request.copy().and_then(|copy| capture::replacement(call.function(), copy));
            // SAFETY: made of the program's arguments, in place of the real function.
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
        How::Real | How::Forward(_) | How::Staged => Code::INVALID_VALUE,
    };
    // Of several copies none is made otherwise, so that there is nothing to give back.
    end(call, decision, &begun, (&waits::Announcements::NONE, None), ret)
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
    let parts = decision.copied.parts();
    count(call, parts, ret);
    waits::after(call, parts, announced, ret);
    let path = path(call, parts, begun, ret);
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
        (Layer::Driver, Effect::Access(_)) => {
            let given = peers::revise(call, decision, ret);
            if forgive::forgives(call.request.access(), given) {
                failures::note(call.function(), call.caller, given);
                return Code::SUCCESS;
            }
            return given;
        }
        (Layer::Hip, Effect::Access(_)) => hip::on_return(call, decision, ret),
        _ => {}
    }
    ret
}

/// Counts a call, and of copies that were made their bytes. A runtime's copy is counted as that of the driver inside it.
fn count(call: &Call<'_>, parts: &[Part], ret: Code) {
    let shard = &thread::current().shard;
    counters::count_call(shard, call.function(), ret != Code::SUCCESS);
    if ret != Code::SUCCESS || call.function().layer() == Layer::Runtime {
        return;
    }
    parts.iter().for_each(|part| counters::count(shard, &part.traffic, part.copies.into()));
    if let [only] = parts {
        validate::after_copy(call, only.traffic);
    }
}

/// The path of copies that were made. For a call of the runtime, the driver's call inside it decides the path, also whether a batch used
/// a blocked one.
fn path(call: &Call<'_>, parts: &[Part], begun: &Running, ret: Code) -> Option<Path> {
    let own = path_of(parts).filter(|_| ret == Code::SUCCESS);
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
