//! The order of work, as the program's calls make it: see [`crate::policy::order`]. Off by default.
//!
//! Calls of the driver and of HIP are looked at, since every client of CUDA ends there: before the real function what is queued is compared with what
//! it may not overlap, and after it what the call has made true is noted. Functions that only this needs are rows `order(...)`: as long as it is off,
//! look-ups leave them to the driver, but for memsets, of which failures are noted.

mod calls;
mod enforce;
mod memory;
mod say;
mod then;
mod work;

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::arrival::Caller;
use super::{failures, mode, thread};
use crate::api::abi::{Code, Value};
use crate::api::{Effect, Function, Layer, Order as Part};
use crate::config::{self, Config, Order};
use crate::os;
use calls::Call;
use then::{Then, finish};

/// Whether order is checked. Stored last: it publishes whether edges are added.
static IS_ON: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

/// Whether order is checked. A look-up may ask before anything has started: only the environment is read.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Relaxed) != OFF && find_out()
}

#[cold]
#[inline(never)]
fn find_out() -> bool {
    if IS_ON.load(Acquire) == UNKNOWN {
        let read = || Config::order_of(os::environment(config::PREFIX));
        // A look-up asks within our own work.
        let order = if thread::current().is_busy() { read() } else { mode::while_busy(read) };
        enforce::IS_ON.store(order == Order::Enforce, Relaxed);
        IS_ON.store(if order == Order::Off { OFF } else { ON }, Release);
    }
    IS_ON.load(Acquire) == ON
}

/// Whether look-ups hand out a function as ours. Failed memsets are noted always: to set another GPU's memory takes peer access.
pub(crate) fn is_wanted(function: Function) -> bool {
    !matches!(function.effect(), Effect::Order(_)) || is_noted(function) || is_on()
}

/// Whether failures are noted though order is not checked: of the driver's memsets. HIP does not say which device has the memory.
#[inline(always)]
fn is_noted(function: Function) -> bool {
    function.effect() == Effect::Order(Part::sets_memory) && function.layer() == Layer::Driver
}

/// A call begins that may matter to order. The arguments are looked at in a copy: what is known of them at compile time stays known to the hook.
#[inline(always)]
pub(crate) fn begin<const N: usize>(function: Function, caller: Caller, arguments: &[Value; N]) -> Begun {
    if is_on() { before(function, caller, &{ *arguments }) } else { Begun(NOTHING) }
}

/// It has returned.
#[inline(always)]
pub(crate) fn end<const N: usize>(begun: Begun, by: (Function, Caller), arguments: &[Value; N], ret: Code) {
    if ret != Code::SUCCESS && matches!(by.0.effect(), Effect::Order(_)) && (is_noted(by.0) || is_on()) {
        failed(by, &{ *arguments }, ret);
    }
    if begun.0 != NOTHING {
        after(begun, by, &{ *arguments }, ret);
    }
}

/// A call has failed that no other path notes.
#[cold]
#[inline(never)]
fn failed((function, caller): (Function, Caller), arguments: &[Value], ret: Code) {
    if !mode::is_on() {
        return;
    }
    let memory = match (function.effect(), arguments) {
        (Effect::Order(Part::sets_memory), &[Value::Address(start), ..]) => Some(start as u64),
        _ => None,
    };
    failures::note_about(function, caller, ret, memory);
}

/// Whether all there is to do about a call is to be done once it has returned.
fn is_done_after(function: Function) -> bool {
    use Part::{allocates_at_once, allocates_memory, exports_event, opens_event, records_event, waits_for_event};
    matches!(function.effect(), Effect::Order(records_event | waits_for_event | exports_event))
        || matches!(function.effect(), Effect::Order(opens_event | allocates_memory | allocates_at_once))
}

/// A call that is under way: the address of a [`Then`], `NOTHING`, or `LATER` if all there is to do is found out when it has returned. It has no
/// destructor, since a thread may be cancelled inside the real function: then it leaks.
pub(crate) struct Begun(usize);

const NOTHING: usize = 0;
const LATER: usize = 1;

#[cold]
#[inline(never)]
fn before(function: Function, caller: Caller, arguments: &[Value]) -> Begun {
    // Without memory not all is seen, and nothing is said any more.
    if !mode::is_on() || mode::is_exhausted() || thread::current().is_busy() {
        return Begun(NOTHING);
    }
    if is_done_after(function) {
        return Begun(LATER);
    }
    let then = mode::unseen(|| Some(Box::into_raw(Box::new(Call { function, caller, arguments }.then()?)) as usize));
    Begun(then.unwrap_or(NOTHING))
}

#[cold]
#[inline(never)]
fn after(Begun(then): Begun, (function, caller): (Function, Caller), arguments: &[Value], ret: Code) {
    if then == LATER && ret != Code::SUCCESS {
        return;
    }
    mode::unseen(|| {
        let then = match then {
            LATER => Call { function, caller, arguments }.then(),
            // SAFETY: made by `before`, for this call alone.
            then => Some(*unsafe { Box::from_raw(then as *mut Then) }),
        };
        if let Some(then) = then.filter(|_| mode::is_still_on()) {
            finish(then, caller, ret);
        }
    });
}
