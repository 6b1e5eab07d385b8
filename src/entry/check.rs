//! Looking at calls for what is wrong with them: what is done before, and what is said after.

use super::guard::{Call, Considered, Decision, Instead, Running, is_in_a_child, unseen};
use super::read;
use super::thread;
use crate::api::abi::{Code, Failing, Value};
use crate::api::{Function, Layer};
use crate::policy::path::Path;
use crate::policy::validate::{self, Caller, Fact, Finding, Kind, Parameters, Seen};
use crate::policy::{ACCESS, Driver, VALIDATE};
use crate::real::driver::RealDriver;
use crate::record;

impl Call {
    /// What is done instead of a call whose arguments are wrong, in strict mode; and what of them must be said before, since
    /// the library may crash.
    #[inline(always)]
    pub(crate) fn due(self, values: &[Value]) -> Option<Considered> {
        if Kind::of(self.function()) == Kind::Other || !VALIDATE.is_on() {
            return None;
        }
        // SAFETY: the block is this thread's own; no other reference to it lives.
        let thread = unsafe { &mut *thread::current() };
        if self.function().layer() == Layer::Driver && thread.forced != 0 {
            let code = Code(std::mem::take(&mut thread.forced));
            return Some(Considered::instead(Instead::Answer(code)));
        }
        let is_looked_at = thread.is_outermost() && (VALIDATE.is_strict() || self.may_crash(values));
        if is_looked_at { self.look_before(values) } else { None }
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
                !read::is_readable(p) || unsafe { is_unknown((*p).srcContext) || is_unknown((*p).dstContext) }
            }
            [_, Value::Address(dst), _, Value::Address(src), ..] => is_unknown(dst) || is_unknown(src),
            _ => false,
        }
    }

    #[cold]
    fn look_before(self, values: &[Value]) -> Option<Considered> {
        if is_in_a_child() {
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
                self.say(&finding, code);
            }
            let code = code?;
            if self.function().layer() == Layer::Driver {
                return Some(Considered::instead(Instead::Answer(code)));
            }
            let how = failing(code, &seen);
            // SAFETY: the block is this thread's own; no other reference to it lives.
            unsafe { &mut *thread::current() }.forced = code.0;
            Some(Considered::instead(Instead::Failing(how)))
        })
    }

    /// Says what there is to say of a call that has returned.
    #[inline(always)]
    pub(crate) fn look_at(
        self,
        running: Running,
        values: &[Value],
        ret: Code,
        decision: Decision<'_>,
        path: Option<Path>,
    ) {
        const QUIET: i32 = 0;
        let kind = Kind::of(self.function());
        if kind == Kind::Other || !running.is_outermost() || !VALIDATE.is_on() {
            return;
        }
        // SAFETY: the block is this thread's own; no other reference to it lives.
        let thread = unsafe { &mut *thread::current() };
        match decision.instead {
            // It was said before.
            Some(Instead::Answer(_)) => return,
            Some(Instead::Failing(_)) => {
                thread.forced = QUIET;
                return;
            }
            _ => {}
        }
        if ret == Code::SUCCESS && kind == Kind::Query {
            return;
        }
        if ret == Code::SUCCESS
            && kind.copies()
            && thread.left == QUIET
            && !validate::is_detour(path)
            && let Some(linear) = read::linear(values)
            && let site = self.return_address() as usize
            && VALIDATE.is_clean(
                &RealDriver,
                &ACCESS,
                &linear,
                Caller { thread: thread.tag(), is_looked_at: thread.run.is_looked_at(site) },
            )
        {
            if thread.run.add(site, linear.bytes, kind == Kind::Copy) {
                self.say_of_run(values);
            }
            return;
        }
        self.look_after(values, ret, path);
    }

    #[cold]
    fn look_after(self, values: &[Value], ret: Code, path: Option<Path>) {
        if is_in_a_child() {
            return;
        }
        unseen(|| {
            let seen = Seen { path, ..self.seen(values, Some(ret)) };
            for finding in VALIDATE.after(&RealDriver, &seen) {
                self.say(&finding, Some(ret));
            }
            // SAFETY: the block is this thread's own; no other reference to it lives.
            let thread = unsafe { &mut *thread::current() };
            if self.function().layer() == Layer::Runtime {
                let left = std::mem::replace(&mut thread.left, validate::left_by(&seen));
                // Another runtime has another slot.
                let left_by = std::mem::replace(&mut thread.left_by, self.route());
                if left_by == self.route()
                    && let Some(finding) = validate::of_left(left, &seen)
                {
                    self.say(&finding, Some(ret));
                }
            }
            if let Some(linear) = read::linear(values).filter(|_| seen.has_succeeded())
                && thread.run.add(self.return_address() as usize, linear.bytes, Kind::of(self.function()) == Kind::Copy)
            {
                self.say_of_run(values);
            }
        });
    }

    /// Says what a run of copies shows that has become long.
    #[cold]
    fn say_of_run(self, values: &[Value]) {
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
        let parameters = read::parameters(values);
        Seen { function: self.function(), values, parameters, ret, path: None, thread: tag() }
    }

    /// Says a finding in full once a place and rule; then only counts, with a word now and then.
    fn say(self, finding: &Finding, ret: Option<Code>) {
        let site = self.return_address();
        let times = VALIDATE.count(site as usize, finding.rule);
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
        let end = ACCESS.known(start).map_or(0, |(_, end)| end);
        VALIDATE.facts().memory_is_gone(start, end);
    }

    /// Takes note that the runtime's last-error slot was cleared.
    #[inline(always)]
    pub(super) fn note_cleared(self) {
        // SAFETY: the block is this thread's own; no other reference to it lives.
        unsafe { &mut *thread::current() }.left = 0;
    }

    /// Takes note of streams and arrays that were made.
    pub(super) fn note_made(self, values: &[Value]) {
        if !VALIDATE.is_on() {
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
                let context = match self.function() {
                    Function::cuGreenCtxStreamCreate => RealDriver.stream_context(stream, false),
                    _ => RealDriver.current_context(),
                };
                let device = context.and_then(|context| VALIDATE.device_of(&RealDriver, context));
                let device = device.unwrap_or(Fact::NOWHERE);
                let non_blocking = flags & NON_BLOCKING != 0;
                VALIDATE.facts().stream_is_made(stream, Fact { non_blocking, thread: tag(), ..Fact::on(device) });
            }
            (Function::cuArrayCreate_v2, &[Value::Address(out), Value::Address(descriptor)]) => {
                if let Some((array, shape)) = read::handle_at(out as *const usize).zip(read::array_2d(descriptor)) {
                    VALIDATE.facts().array_is_made(array, shape);
                }
            }
            (Function::cuArray3DCreate_v2, &[Value::Address(out), Value::Address(descriptor)]) => {
                if let Some((array, shape)) = read::handle_at(out as *const usize).zip(read::array_3d(descriptor)) {
                    VALIDATE.facts().array_is_made(array, shape);
                }
            }
            (Function::cuArrayDestroy, &[Value::Address(array)]) => VALIDATE.facts().array_is_gone(array),
            _ => {}
        });
    }
}

/// The calling thread's tag.
fn tag() -> u8 {
    // SAFETY: the block is this thread's own; no other reference to it lives.
    unsafe { &mut *thread::current() }.tag()
}

/// How a call of the runtime fails with a code: by arguments that it refuses before it does anything, or by the driver's
/// answer.
fn failing(code: Code, seen: &Seen<'_>) -> Failing {
    /// `cudaErrorInvalidPitchValue`, which the driver does not have.
    const INVALID_PITCH: Code = Code(12);
    let by_driver = Failing { code, replaces: false, parameters: None };
    match seen.parameters {
        Parameters::Runtime(parms) if code == INVALID_PITCH => {
            Failing { replaces: true, parameters: Some(validate::with_bad_pitch(parms)), ..by_driver }
        }
        Parameters::Runtime(mut parms) if code == Code::INVALID_DEVICE => {
            parms.srcDevice = -1;
            Failing { replaces: true, parameters: Some(parms), ..by_driver }
        }
        _ if Kind::of(seen.function).copies() && matches!(code, Code::INVALID_VALUE | Code::INVALID_DEVICE) => {
            Failing { replaces: true, ..by_driver }
        }
        _ => by_driver,
    }
}
