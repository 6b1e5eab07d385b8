//! The path of a call, from its arrival to its return: read [`traced`] from top to bottom.
//!
//! The real function is called in one place, outside every lock and outside the panic boundary. A cancelled thread unwinds
//! through it, so nothing in these frames may have a destructor while it runs.

use std::mem::MaybeUninit;
use std::time::Instant;

use super::arrival::{Call, Caller};
use super::{callbacks, copy, fast, mode, peers, recording, show, thread, timing, validate};
use crate::api::abi::{Code, Failing, Value};
use crate::api::{Effect, Function, Layer};
use crate::model::{Path, Traffic, counters};
use crate::os;
use crate::policy::{HarmlessEnable, VALIDATE};
use crate::real::driver::{self, ReadyCopy};
use crate::record::trace;
use p2pshim_trace::Begun;

/// Makes a call of the CUDA runtime or driver that is traced. `real` calls the real function, with the program's arguments, or
/// with others that it refuses before it does anything.
#[inline(always)]
pub(crate) fn traced(
    function: Function,
    caller: Caller,
    arguments: &[Value],
    real: impl Fn(Option<&Failing>) -> Code,
) -> Code {
    if !mode::is_on() {
        return real(None);
    }
    let call = Call::new(function, caller, arguments);
    let mut room = MaybeUninit::uninit();
    if let Some(refusal) = validate::refusal(&call, &mut room) {
        let begun = begin(&call, &Decision::REFUSED);
        let ret = match refusal {
            validate::Refusal::Return(code) => code,
            validate::Refusal::Fail(how) => real(Some(&how)),
        };
        return validate::end_refused(&call, begun, ret);
    }
    let decision = decide(&call);
    let begun = begin(&call, &decision);
    let timing = timing::begin(&call, &begun);
    let ret = match &decision.instead {
        None => real(None),
        // SAFETY: made of the program's arguments, in place of the real function.
        Some(instead) => unsafe { instead.call() },
    };
    let ret = peers::revise(&call, &decision, ret);
    end(&call, &decision, begun, timing, ret);
    ret
}

/// What was decided about a call. It has nothing to drop.
#[derive(Clone, Copy)]
pub(crate) struct Decision {
    /// What is called in place of the real function.
    pub(crate) instead: Option<Instead>,
    /// For a copy: from where to where, and on which path.
    pub(crate) traffic: Option<Traffic>,
}

impl Decision {
    /// The real function gets the call as it came.
    pub(crate) const FORWARD: Self = Self { instead: None, traffic: None };
    /// The real function does not get it, or such that it fails.
    pub(crate) const REFUSED: Self = Self { instead: Some(Instead::Refused), traffic: None };

    /// What the log says of it.
    pub(crate) fn note(&self) -> Option<&'static str> {
        match &self.instead {
            Some(Instead::Copy(copy)) => Some(copy.note),
            Some(Instead::Refused) => Some("refused by P2PSHIM_VALIDATE=strict"),
            _ => None,
        }
    }
}

/// What is called in place of a function.
#[expect(clippy::large_enum_variant, reason = "it stays on the stack of a hook, where nothing may have a destructor")]
#[derive(Clone, Copy)]
pub(crate) enum Instead {
    /// An equal copy, which can be captured.
    Copy(ReadyCopy),
    /// `cuCtxEnablePeerAccess` such that it changes nothing.
    Harmless(HarmlessEnable),
    /// Nothing: the call is refused.
    Refused,
}

impl Instead {
    /// Calls it.
    ///
    /// # Safety
    /// What the function asks of its caller whose place this takes.
    unsafe fn call(&self) -> Code {
        match self {
            // SAFETY: the caller's.
            Self::Copy(copy) => unsafe { copy.make() },
            Self::Refused => Code::INVALID_VALUE,
            &Self::Harmless(HarmlessEnable { peer, flags, from, to }) => {
                match driver::enable_peer_access(peer, flags) {
                    // Enabled after all, if it was not: that is what it takes the access to be.
                    ret if ret == from || ret == Code::SUCCESS => to,
                    ret => ret,
                }
            }
        }
    }
}

/// Decides what is done about a call. Decisions are made for calls of the driver, where every client of CUDA ends.
#[inline(always)]
fn decide(call: &Call<'_>) -> Decision {
    match (call.function().layer(), call.function().effect()) {
        (Layer::Driver, Effect::Copy(_)) => copy::decide(call),
        (Layer::Driver, Effect::Access(_)) => peers::decide(call),
        _ => Decision::FORWARD,
    }
}

/// A call whose real function is running: what has to be put right when that has returned. It has nothing to drop.
#[derive(Clone, Copy)]
pub(crate) struct Running {
    /// How many calls enclose this one.
    pub(crate) depth: usize,
    /// The call's record, if it has one.
    pub(crate) record: Option<Begun>,
    /// Whether it is shown, in the log or to callbacks, and when the real function was called.
    pub(crate) shown_since: Option<Instant>,
}

impl Running {
    /// Whether no other call encloses it.
    #[inline(always)]
    pub(crate) fn is_outermost(&self) -> bool {
        self.depth == 0
    }
}

/// Notes that the real function is about to be called.
#[inline(always)]
pub(crate) fn begin(call: &Call<'_>, decision: &Decision) -> Running {
    let thread = thread::current();
    let depth = thread.enter(call.caller.stack());
    let sees = mode::sees();
    if sees.nothing() || thread.is_busy() {
        return Running { depth, record: None, shown_since: None };
    }
    begin_seen(call, decision, depth, sees)
}

/// The same for a call that is recorded or shown.
#[inline(never)]
fn begin_seen(call: &Call<'_>, decision: &Decision, depth: usize, sees: mode::Sees) -> Running {
    if depth == 0 && sees.shows() {
        callbacks::forget(thread::current());
    }
    if sees.drops() {
        trace::drop_call();
    }
    let record = if sees.records() { recording::begin(call, decision, depth) } else { None };
    let shown_since = sees.shows().then(|| os::uncancelled(Instant::now));
    Running { depth, record, shown_since }
}

/// Notes that the real function has returned.
#[inline(always)]
pub(crate) fn leave(begun: &Running) {
    thread::current().leave(begun.depth);
}

/// Does what there is to do when the real function has returned: counts the call, records and shows it, checks it, and caches
/// what was decided.
#[inline(always)]
fn end(call: &Call<'_>, decision: &Decision, begun: Running, timing: Option<timing::Timing>, ret: Code) {
    leave(&begun);
    // A child that was forked inside the call returns from it as well: records and locks are its parent's.
    if !mode::is_still_on() {
        return;
    }
    count(call, decision, ret);
    let is_checked = validate::has_rules(call.function()) && VALIDATE.is_on();
    let path = path(call, decision, &begun, ret);
    if let Some(record) = begun.record {
        recording::end(call, decision, record, ret, path);
    }
    timing::end(call, timing, begun.record, ret);
    let is_clean = match begun.shown_since {
        Some(since) => {
            show::call(call, decision, &begun, since.elapsed(), ret, path);
            if begun.is_outermost() && is_checked {
                validate::check(call, ret, path);
            }
            callbacks::run(&begun);
            false
        }
        None => !begun.is_outermost() || !is_checked || validate::check(call, ret, path),
    };
    if is_clean && ret == Code::SUCCESS && decision.instead.is_none() {
        fast::keep(call, &begun);
    }
}

/// Counts a call, and of a copy that was made its bytes. A runtime's copy is counted as that of the driver inside it.
#[inline(always)]
pub(crate) fn count(call: &Call<'_>, decision: &Decision, ret: Code) {
    let shard = &thread::current().shard;
    counters::count_call(shard, call.function(), ret != Code::SUCCESS);
    if let Some(traffic) = &decision.traffic
        && ret == Code::SUCCESS
    {
        counters::count(shard, traffic);
    }
}

/// The path of a copy that succeeded. That of a runtime's copy is decided for the driver's inside it.
#[inline(always)]
pub(crate) fn path(call: &Call<'_>, decision: &Decision, begun: &Running, ret: Code) -> Option<Path> {
    let own = decision.traffic.filter(|_| ret == Code::SUCCESS).map(|traffic| traffic.path);
    match call.function().layer() {
        Layer::Runtime => thread::current().take_path(),
        Layer::Driver if !begun.is_outermost() && own.is_some() => {
            thread::current().set_path(own);
            own
        }
        Layer::Driver | Layer::Hip => own,
    }
}
