//! Checking calls for what is wrong with them: what is done before, and what is said after.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

use p2pshim_trace::OpenRecord;

use super::arrival::Call;
use super::decision::Refusal;
use super::{callbacks, mode, origin, read, thread};
use crate::api::abi::Code;
use crate::api::{AccessKind, Effect, Function, Layer};
use crate::model::{Access, Finding, Memcpy, Path, Request, Rule, Shape, Traffic};
use crate::objects::{OBJECTS, captures};
use crate::policy::validate::{self, CallView, Caller};
use crate::policy::{ACCESS, VALIDATE};
use crate::real::driver::RealDriver;
use crate::real::runtime;
use crate::record::{self, FindingLine};

/// Whether rules are about a function.
#[inline(always)]
pub(crate) const fn has_rules(function: Function) -> bool {
    match function.effect() {
        Effect::Copy(_) => true,
        Effect::Access(kind) => !matches!(kind, AccessKind::query_capabilities),
        _ => false,
    }
}

/// Refuses a call whose arguments are wrong, in strict mode; and says before the call what must be said before, since the
/// library may crash.
#[inline(always)]
pub(crate) fn refusal(call: &Call<'_>) -> Option<Refusal> {
    if !has_rules(call.function()) || !VALIDATE.is_on() || !thread::current().is_outermost(call.frame()) {
        return None;
    }
    if VALIDATE.is_strict() || may_crash(&call.request) { check_before(call) } else { None }
}

/// Whether the library might crash over it: a copy whose handles were seen before and are alive does not make it.
#[inline(always)]
fn may_crash(request: &Request<'_>) -> bool {
    let Some(copy) = request.copy() else { return false };
    let is_unknown = |context| context != 0 && OBJECTS.contexts.device_of(context).is_none();
    copy.stream.is_some_and(|stream| OBJECTS.streams.is_destroyed(stream))
        || match copy.shape {
            Shape::Linear | Shape::Driver3D(_) => copy.contexts().into_iter().any(is_unknown),
            Shape::Runtime3D(p) => p.srcArray | p.dstArray != 0,
            Shape::Unreadable(_) => true,
        }
}

#[cold]
#[inline(never)]
fn check_before(call: &Call<'_>) -> Option<Refusal> {
    mode::unseen(|| say_before(call, &VALIDATE.before(&RealDriver, &seen(&call.request, None))?))
}

/// Answers a call that is refused. A runtime fails by itself, so that it has the code as its last error.
#[cold]
#[inline(never)]
pub(crate) fn refuse(call: &Call<'_>, Refusal { code, .. }: Refusal) -> Code {
    let real = call.caller.real(call.function()).filter(|_| call.function().layer() == Layer::Runtime);
    let fail = |real: NonNull<c_void>| mode::unseen(|| Some(runtime::fail(real.as_ptr(), code)));
    real.and_then(fail).unwrap_or(code)
}

/// Notes the stream of a direct copy, for who disables access before it has completed.
#[inline(always)]
pub(super) fn after_copy(call: &Call<'_>, Traffic { src, dst, path, .. }: Traffic) {
    if path == Path::Direct
        && call.function().layer() == Layer::Driver
        && let Some(stream) = call.request.copy().and_then(|copy| copy.stream)
    {
        OBJECTS.streams.note_copy([src, dst], stream);
    }
}

/// Says what is found before a call is made, which is refused in strict mode. The last record is of another call.
pub(crate) fn say_before(call: &Call<'_>, finding: &Finding) -> Option<Refusal> {
    thread::current().last_record.set(None);
    let code = finding.code.filter(|_| VALIDATE.is_strict());
    say(call, finding, code);
    Some(Refusal { rule: finding.rule, code: code? })
}

/// Notes at the record of a call that was refused by which rule.
pub(crate) fn record_refusal(call: &Call<'_>, record: Option<OpenRecord>, refusal: Refusal) {
    if let Some(record) = record {
        record.breaks(refusal.rule as u8);
        mode::unseen(|| _ = origin::of_finding(call, Some(record), false));
    }
}

/// Checks an outermost call that has returned, and says what there is to say.
#[inline(never)]
pub(crate) fn check(call: &Call<'_>, ret: Code, path: Option<Path>) {
    let is_query = matches!(call.function().effect(), Effect::Access(AccessKind::query));
    if is_query && ret == Code::SUCCESS {
        return;
    }
    let thread = thread::current();
    let site = call.caller.return_address() as usize;
    let is_check_due = thread.is_check_due.load(Relaxed) || thread.run.get().is_check_due(site);
    thread.is_check_due.store(false, Relaxed);
    let by = Caller { thread: thread.tag(), is_check_due };
    // Only calls of the runtime can speak of a pending error.
    let is_of_runtime = call.function().layer() == Layer::Runtime;
    let is_any_pending = is_of_runtime
        && (thread.pending_error.load(Relaxed) != 0
            || is_check_due && ret == Code::SUCCESS && unknown_pending(call).is_some());
    if let Some(copy) = call.request.copy()
        && ret == Code::SUCCESS
        && !is_any_pending
        && !(is_check_due && validate::is_of_note(path))
        && VALIDATE.is_clean(&RealDriver, &ACCESS, (copy, thread.endpoints.of(copy)), by)
    {
        if add_to_run(call, copy) {
            mode::unseen(|| say_of_run(call));
        }
        return;
    }
    check_with_driver(call, ret, path);
}

/// Checks the call with what the driver says now.
#[cold]
fn check_with_driver(call: &Call<'_>, ret: Code, path: Option<Path>) {
    mode::unseen(|| {
        let thread = thread::current();
        let request = &call.request;
        let seen = CallView { path, ..seen(request, Some(ret)) };
        let standing = seen.pair.filter(|_| ret != Code::SUCCESS).map(|pair| ACCESS.standing(pair));
        let seen = CallView { standing: standing.as_ref(), ..seen };
        let mut found = VALIDATE.after(&RealDriver, &seen);
        found.extend(disables_under_copy(&seen));
        if ret != Code::SUCCESS && captures::may_be_under_way() {
            captures::note_failure(call.function(), ret);
        }
        // Only now and then is it asked which device the default stream is of; once it is wrong, of the next copy as well.
        let is_check_due = found.iter().any(|finding| finding.rule == Rule::OrderDefaultStream);
        thread.is_check_due.store(is_check_due, Relaxed);
        for finding in &found {
            say(call, finding, Some(ret));
        }
        if call.function().layer() == Layer::Runtime {
            let (left, unknown) = (take_pending(call, &seen), unknown_pending(call));
            let pending = if left == 0 { unknown.filter(|_| ret == Code::SUCCESS) } else { Some(Code(left)) };
            if let Some(finding) = pending.map(|code| validate::of_pending(code, left != 0, &seen)) {
                say(call, &finding, Some(ret));
            }
            let known = if ret == Code::SUCCESS { pending } else { Some(ret) };
            known.into_iter().for_each(|Code(code)| thread.known_pending.set(code));
        }
        let Some(copy) = request.copy().filter(|copy| ret == Code::SUCCESS && copy.reach().is_some()) else { return };
        [copy.src, copy.dst].into_iter().for_each(|address| ACCESS.learn(&RealDriver, address));
        if add_to_run(call, copy) {
            say_of_run(call);
        }
    });
}

/// The runtime's pending error, if no checked call left it and nothing was said of it yet.
fn unknown_pending(call: &Call<'_>) -> Option<Code> {
    let real = call.caller.real(call.function())?;
    let pending = runtime::pending_error(real.as_ptr())?;
    let code = call.usual(pending);
    (code != Code::SUCCESS && code.0 != thread::current().known_pending.get()).then_some(code)
}

/// The finding about a call that has disabled access under copies that had not completed.
fn disables_under_copy(seen: &CallView<'_>) -> Option<Finding> {
    let Some(Access::Disable { .. }) = seen.request.access() else { return None };
    let copy = thread::current().disables_under.take().filter(|_| seen.has_succeeded())?;
    Some(validate::of_disabling(seen.layer(), seen.pair?, copy))
}

/// The pending error of the runtime that this call is one of; notes the one that it leaves itself.
fn take_pending(call: &Call<'_>, seen: &CallView<'_>) -> i32 {
    let thread = thread::current();
    let by = call.caller.route(call.function());
    let pending = thread.pending_error.swap(validate::pending_after(seen), Relaxed);
    // Another runtime has another pending error.
    if thread.pending_error_of.swap(by, Relaxed) == by { pending } else { 0 }
}

/// Adds a copy to the thread's run of copies. Whether the run has become long.
#[inline(always)]
fn add_to_run(call: &Call<'_>, copy: &Memcpy<'_>) -> bool {
    let runs = &thread::current().run;
    let mut run = runs.get();
    let is_long = run.add(call.caller.return_address() as usize, copy.bytes, copy.stream.is_none());
    runs.set(run);
    is_long
}

/// Says what a run of copies shows that has become long.
#[cold]
fn say_of_run(call: &Call<'_>) {
    for finding in VALIDATE.of_run(&seen(&call.request, Some(Code::SUCCESS)), thread::current().run.get()) {
        say(call, &finding, Some(Code::SUCCESS));
    }
}

fn seen<'a>(request: &'a Request<'a>, ret: Option<Code>) -> CallView<'a> {
    let thread = thread::current();
    let is_capture_lost = thread.capture_was_lost.take() && captures::may_be_under_way();
    CallView { thread: thread.tag(), is_capture_lost, ..CallView::of(&RealDriver, request, ret) }
}

/// Says a finding in full once a place and rule; then only counts, with a word now and then.
pub(crate) fn say(call: &Call<'_>, finding: &Finding, ret: Option<Code>) {
    let site: *const c_void = call.caller.return_address();
    let times = VALIDATE.count(site as usize, finding.rule);
    let record = thread::current().last_record.get();
    if let Some(record) = record {
        record.breaks(finding.rule as u8);
    }
    let origin = origin::of_finding(call, record, times == 1);
    let said = FindingLine { function: call.function(), numbering: call.numbering(), finding, ret };
    record::finding::keep(&said);
    callbacks::keep_rule(finding.rule);
    record::log::finding(&said, times, || read::call_site(site, origin));
}
