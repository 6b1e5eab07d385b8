//! Looking at calls for what is wrong with them: what is done before, and what is said after.

use std::mem::{MaybeUninit, take};
use std::ptr;
use std::time::Instant;

use super::guard::{Call, Decision, Route, Running, Showing, hands_out_hooks, is_in_a_child, unseen};
use super::read;
use super::thread;
use super::timing;
use crate::api::abi::{Code, Failing, Value, cudaMemcpy3DPeerParms};
use crate::api::{Function, Layer};
use crate::policy::capture;
use crate::policy::path::Path;
use crate::policy::validate::{self, Array, Caller, Fact, Finding, Kind, Parameters, Rule, Seen};
use crate::policy::{ACCESS, Driver, VALIDATE};
use crate::real::driver::RealDriver;
use crate::record;

/// What is done in place of a call whose arguments are wrong.
#[derive(Clone, Copy)]
pub(crate) enum Due {
    /// The program gets the code.
    Answer(Code),
    /// The real function is called such that it fails, so that the runtime knows of it.
    Failing(Failing),
}

impl Call {
    /// Whether anything may be [due](Self::due). Of a call inside another only its answer may be given.
    #[inline(always)]
    pub(crate) fn may_be_due(self) -> bool {
        // SAFETY: the block is this thread's own; the reference ends with the function.
        let thread = unsafe { &*thread::current() };
        VALIDATE.is_on() && (thread.forced != 0 || thread.is_outermost(self.stack()))
    }

    /// What is done instead of a call whose arguments are wrong, in strict mode; and what of them must be said before, since
    /// the library may crash.
    #[inline(never)]
    pub(crate) fn due(self, values: &[Value], room: &mut MaybeUninit<cudaMemcpy3DPeerParms>) -> Option<Due> {
        // SAFETY: the block is this thread's own; no other reference to it lives.
        let thread = unsafe { &mut *thread::current() };
        if !thread.is_outermost(self.stack()) {
            let is_forced = self.function().layer() == Layer::Driver && thread.forced != 0;
            return is_forced.then(|| Due::Answer(Code(take(&mut thread.forced))));
        }
        // A call of the runtime that was to fail may have been left by longjmp.
        thread.forced = 0;
        let is_looked_at = VALIDATE.is_strict() || self.may_crash(values);
        if is_looked_at { self.look_before(values, room) } else { None }
    }

    /// Whether the library might crash over it. A copy whose handles were seen before and are alive is not looked at.
    #[inline(always)]
    fn may_crash(self, values: &[Value]) -> bool {
        if !Kind::of(self.function()).copies() {
            return false;
        }
        if let Some(&Value::Stream(stream)) = values.last()
            && VALIDATE.is_destroyed(stream)
        {
            return true;
        }
        let is_unknown = |context| context != 0 && !VALIDATE.knows_context(context);
        match *values {
            [Value::RuntimePeer3D(p), ..] => {
                // SAFETY: as far as it is readable, any bytes are valid parameters.
                !read::is_readable(p) || unsafe { (*p).srcArray | (*p).dstArray } != 0
            }
            [Value::DriverPeer3D(p), ..] => {
                // SAFETY: as above.
                !read::is_readable(p) || validate::contexts(unsafe { &*p }).into_iter().any(is_unknown)
            }
            [_, Value::Address(dst), _, Value::Address(src), ..] => is_unknown(dst) || is_unknown(src),
            _ => false,
        }
    }

    #[cold]
    #[inline(never)]
    fn look_before(self, values: &[Value], room: &mut MaybeUninit<cudaMemcpy3DPeerParms>) -> Option<Due> {
        // Only now are the options read, if this is the first call.
        if !hands_out_hooks() || !VALIDATE.is_on() || is_in_a_child() {
            return None;
        }
        unseen(|| {
            let seen = self.seen(values, None);
            let (finding, instead) = VALIDATE.before(&RealDriver, &seen);
            let code = match instead {
                validate::Instead::Forward => None,
                validate::Instead::Answer(code) => Some(code),
            };
            if let Some(finding) = finding {
                self.say_before(&finding, code);
            }
            let code = code?;
            if self.function().layer() == Layer::Driver {
                return Some(Due::Answer(code));
            }
            let how = failing(code, &seen, room);
            // SAFETY: the block is this thread's own; no other reference to it lives.
            unsafe { &mut *thread::current() }.forced = code.0;
            Some(Due::Failing(how))
        })
    }

    /// Counts a call that was refused, and shows it, if calls are shown.
    #[cold]
    #[inline(never)]
    pub(crate) fn show_refused(self, running: Running, since: Option<Instant>, values: &[Value], ret: Code) {
        if self.function().layer() == Layer::Runtime {
            // SAFETY: the block is this thread's own; no other reference to it lives.
            unsafe { &mut *thread::current() }.forced = 0;
        }
        self.count(ret);
        if running.is_recorded() {
            self.record(running, ret, Decision::REFUSED, None);
        }
        self.note_refused(running);
        if running.is_shown() {
            self.show(running, Showing { since, looked_at: None }, values, ret, Decision::REFUSED, None);
        }
    }

    /// Says what is found before a call is made, which is refused if there is a code. The last record is of another call.
    pub(super) fn say_before(self, finding: &Finding, code: Option<Code>) {
        {
            // SAFETY: the block is this thread's own; the reference ends with this block.
            let thread = unsafe { &mut *thread::current() };
            thread.last = None;
            thread.refused_for = if code.is_some() { finding.rule as u8 + 1 } else { 0 };
        }
        self.say(finding, code);
    }

    /// Notes at the record of a call that was refused by which rule.
    pub(super) fn note_refused(self, running: Running) {
        // A call of the driver inside it is refused for the same.
        if !running.is_outermost() {
            return;
        }
        // SAFETY: the block is this thread's own; the reference ends with the statement.
        let rule = take(&mut unsafe { &mut *thread::current() }.refused_for);
        if let (Some(record), Some(rule)) = (running.begun(), rule.checked_sub(1)) {
            record.breaks(rule);
        }
    }

    /// Says what there is to say of an outermost call that has returned. Answers whether that is nothing.
    #[inline(never)]
    pub(crate) fn look_at(self, route: Route, values: &[Value], ret: Code, path: Option<Path>) -> bool {
        let kind = Kind::of(self.function());
        if kind == Kind::Query && ret == Code::SUCCESS {
            return true;
        }
        let site = self.return_address() as usize;
        let (by, left) = {
            // SAFETY: the block is this thread's own; the reference ends with this block.
            let thread = unsafe { &mut *thread::current() };
            let is_looked_at = std::mem::take(&mut thread.is_look_due) || thread.run.is_looked_at(site);
            (Caller { thread: thread.tag(), is_looked_at }, thread.left)
        };
        // Only calls of the runtime can speak of what was left.
        let left = if self.function().layer() == Layer::Runtime { left } else { 0 };
        if ret == Code::SUCCESS
            && kind.copies()
            && left == 0
            && !(by.is_looked_at && validate::is_detour(path))
            && let Some(linear) = read::linear(values)
            && VALIDATE.is_clean(&RealDriver, &ACCESS, &linear, by)
        {
            // SAFETY: the block is this thread's own; the reference ends with the statement.
            if unsafe { &mut *thread::current() }.run.add(site, linear.bytes, kind == Kind::Copy) {
                self.say_of_run(values);
            }
            return true;
        }
        self.look_after(route, values, ret, path);
        false
    }

    #[cold]
    fn look_after(self, route: Route, values: &[Value], ret: Code, path: Option<Path>) {
        if is_in_a_child() {
            return;
        }
        unseen(|| {
            let seen = Seen { path, ..self.seen(values, Some(ret)) };
            let found = VALIDATE.after(&RealDriver, &seen);
            // Only now and then is it asked which device the default stream is of; once it is wrong, of the next copy as well.
            let is_look_due = found.iter().any(|finding| finding.rule == Rule::OrderDefaultStream);
            // SAFETY: the block is this thread's own; the reference ends with the statement.
            unsafe { &mut *thread::current() }.is_look_due = is_look_due;
            for finding in &found {
                self.say(finding, Some(ret));
            }
            if self.function().layer() == Layer::Runtime
                && let Some(finding) = validate::of_left(self.take_left(route, &seen), &seen)
            {
                self.say(&finding, Some(ret));
            }
            let Some(linear) = read::linear(values).filter(|_| seen.has_succeeded()) else { return };
            linear.ends().into_iter().for_each(|address| ACCESS.learn(&RealDriver, address));
            let (site, is_synchronous) = (self.return_address() as usize, Kind::of(self.function()) == Kind::Copy);
            // SAFETY: the block is this thread's own; the reference ends with the statement.
            let is_long = unsafe { &mut *thread::current() }.run.add(site, linear.bytes, is_synchronous);
            if is_long {
                self.say_of_run(values);
            }
        });
    }

    /// What was left in the last-error slot of the runtime that this call is one of; takes note of what it leaves itself.
    fn take_left(self, route: Route, seen: &Seen<'_>) -> i32 {
        let by = route.number(self.function());
        // SAFETY: the block is this thread's own; no other reference to it lives.
        let thread = unsafe { &mut *thread::current() };
        let left = std::mem::replace(&mut thread.left, validate::left_by(seen));
        // Another runtime has another slot.
        if std::mem::replace(&mut thread.left_by, by) == by { left } else { 0 }
    }

    /// Says what a run of copies shows that has become long.
    #[cold]
    fn say_of_run(self, values: &[Value]) {
        if is_in_a_child() {
            return;
        }
        // SAFETY: the block is this thread's own; no other reference to it lives.
        let run = unsafe { &*thread::current() }.run;
        let say = || {
            for finding in VALIDATE.of_run(&self.seen(values, Some(Code::SUCCESS)), run) {
                self.say(&finding, Some(Code::SUCCESS));
            }
        };
        // SAFETY: the block is this thread's own; no other reference to it lives.
        if unsafe { &*thread::current() }.is_busy() { say() } else { unseen(say) }
    }

    fn seen(self, values: &[Value], ret: Option<Code>) -> Seen<'_> {
        let parameters = read::parameters(values, ret);
        Seen { function: self.function(), values, parameters, ret, path: None, thread: tag() }
    }

    /// Says a finding in full once a place and rule; then only counts, with a word now and then.
    pub(super) fn say(self, finding: &Finding, ret: Option<Code>) {
        let site = self.return_address();
        let times = VALIDATE.count(site as usize, finding.rule);
        // SAFETY: the block is this thread's own; the reference ends with the statement.
        if let Some(record) = unsafe { &*thread::current() }.last {
            record.breaks(finding.rule as u8);
        }
        record::finding::keep(self.function(), finding, ret);
        self.note_said(finding.rule);
        record::log::finding(self.function(), finding, ret, times, || read::call_site(site));
    }

    /// Takes note of memory that is gone.
    #[inline(always)]
    pub(super) fn note_freed(self, values: &[Value], ret: Code) {
        if ret != Code::SUCCESS || !VALIDATE.is_on() {
            return;
        }
        let start = match *values {
            [Value::Address(start), ..] => start as u64,
            [Value::UInt(start), ..] => start,
            _ => return,
        };
        let end = ACCESS.known(start).map_or(0, |(_, range)| range.end);
        VALIDATE.facts().memory_is_gone(tag(), start, end);
    }

    /// Takes note that the runtime's last-error slot was cleared.
    #[inline(always)]
    pub(super) fn note_cleared(self) {
        // SAFETY: the block is this thread's own; no other reference to it lives.
        unsafe { &mut *thread::current() }.left = 0;
    }

    /// Takes note of streams and arrays that are about to be destroyed. Not only when they are: by then another thread may
    /// have been given the handle anew.
    #[inline(always)]
    pub(crate) fn note_going(self, values: &[Value]) {
        let facts = VALIDATE.facts();
        match (self.function(), values) {
            // Nobody asks about a stream once it may be captured: that would end the capture.
            (function, _) if capture::is_beginning(function) && hands_out_hooks() && !is_in_a_child() => {
                unseen(|| {
                    // While it may still be asked, and only of a stream that is there: of no other does the driver answer safely.
                    let context = match *values {
                        [Value::Stream(stream), ..] if VALIDATE.is_there(stream) => {
                            facts.beside_no_capture(|| RealDriver.stream_context(stream, function.per_thread()))
                        }
                        _ => None,
                    };
                    capture::begins();
                    facts.let_askers_finish();
                    // SAFETY: the block is this thread's own; the reference ends with the block.
                    let thread = unsafe { &mut *thread::current() };
                    (thread.begins, thread.begins_in) = (true, context.unwrap_or(0));
                });
            }
            (Function::cuStreamDestroy | Function::cuStreamDestroy_v2, &[Value::Stream(stream)]) if self.is_noted() => {
                unseen(|| facts.stream_is_gone(stream));
            }
            (Function::cuArrayDestroy, &[Value::Address(array)]) if self.is_noted() => {
                unseen(|| facts.array_is_gone(array));
            }
            (
                Function::cuCtxDestroy
                | Function::cuCtxDestroy_v2
                | Function::cuGreenCtxDestroy
                | Function::cuDevicePrimaryCtxReset
                | Function::cuDevicePrimaryCtxReset_v2
                | Function::cuDevicePrimaryCtxRelease
                | Function::cuDevicePrimaryCtxRelease_v2,
                _,
            ) if hands_out_hooks() && !is_in_a_child() => unseen(|| {
                timing::contexts_are_going();
                facts.contexts_have_changed();
            }),
            _ => {}
        }
    }

    fn is_noted(self) -> bool {
        hands_out_hooks() && VALIDATE.is_on() && !is_in_a_child()
    }

    /// Takes note that a stream or an array was not destroyed.
    pub(super) fn note_kept(self, values: &[Value], ret: Code) {
        /// `CUDA_ERROR_INVALID_HANDLE`: there is none (any more).
        const INVALID_HANDLE: Code = Code(400);
        if ret == Code::SUCCESS || ret == INVALID_HANDLE {
            return;
        }
        match (self.function(), values) {
            (Function::cuStreamDestroy | Function::cuStreamDestroy_v2, &[Value::Stream(stream)]) => {
                VALIDATE.facts().streams.forget(stream);
            }
            (Function::cuArrayDestroy, &[Value::Address(array)]) => {
                unseen(|| VALIDATE.facts().array_is_there(array));
            }
            _ => {}
        }
    }

    /// Takes note of streams and arrays that were made.
    pub(super) fn note_made(self, values: &[Value]) {
        if !self.is_noted() {
            return;
        }
        unseen(|| match (self.function(), values) {
            (
                Function::cuStreamCreate | Function::cuStreamCreateWithPriority,
                &[Value::Address(out), Value::UInt(flags), ..],
            )
            | (Function::cuGreenCtxStreamCreate, &[Value::Address(out), _, Value::UInt(flags), ..]) => {
                /// `CU_STREAM_NON_BLOCKING`.
                const NON_BLOCKING: u64 = 1;
                let Some(stream) = read::handle_at(out as *const usize) else { return };
                // A green context may be current elsewhere, and so must not be asked.
                let context = match self.function() {
                    Function::cuGreenCtxStreamCreate => None,
                    _ => RealDriver.current_context(),
                };
                let device = context.and_then(|context| VALIDATE.device_of(&RealDriver, context));
                let device = device.unwrap_or(Fact::NOWHERE);
                let non_blocking = flags & NON_BLOCKING != 0;
                VALIDATE.facts().stream_is_made(stream, Fact { non_blocking, thread: tag(), ..Fact::on(device) });
            }
            (Function::cuArrayCreate_v2, &[Value::Address(out), Value::Address(descriptor)]) => {
                note_array(out, read::array_2d(descriptor));
            }
            (Function::cuArray3DCreate_v2, &[Value::Address(out), Value::Address(descriptor)]) => {
                note_array(out, read::array_3d(descriptor));
            }
            _ => {}
        });
    }
}

/// Takes note of an array that was made, of which the shape may not be known.
fn note_array(out: usize, shape: Option<Array>) {
    match (read::handle_at(out as *const usize), shape) {
        (Some(array), Some(shape)) => VALIDATE.facts().array_is_made(array, shape),
        (Some(array), None) => VALIDATE.facts().array_is_there(array),
        (None, _) => {}
    }
}

/// The calling thread's tag.
fn tag() -> u8 {
    // SAFETY: the block is this thread's own; no other reference to it lives.
    unsafe { &mut *thread::current() }.tag()
}

/// How a call of the runtime fails with a code: by arguments that it refuses before it does anything, or by the driver's
/// answer. `room` is for parameters.
fn failing(code: Code, seen: &Seen<'_>, room: &mut MaybeUninit<cudaMemcpy3DPeerParms>) -> Failing {
    /// `cudaErrorInvalidPitchValue`, which the driver does not have.
    const INVALID_PITCH: Code = Code(12);
    let mut with = |parms| Failing { code, replaces: true, parameters: room.write(parms) };
    match seen.parameters {
        Parameters::Runtime(parms) if code == INVALID_PITCH => with(validate::refused(&parms, 1, parms.srcDevice)),
        Parameters::Runtime(parms) if code == Code::INVALID_DEVICE => with(validate::refused(&parms, 4, -1)),
        _ => {
            let is_by_arguments = matches!(code, Code::INVALID_VALUE | Code::INVALID_DEVICE);
            let replaces = Kind::of(seen.function).copies() && is_by_arguments;
            Failing { code, replaces, parameters: ptr::null() }
        }
    }
}
