//! Calls of HIP, which has no layer below: its hooks both name a call and decide about it.

use std::ffi::c_void;

use super::arrival::{Call, Caller};
use super::decision::{Decision, Running, count, path};
use super::read;
use super::room::Room;
use super::run;
use super::{callbacks, mode, origin, peers, recording, regular, show, validate};
use crate::api::abi::{Code, Value};
use crate::api::{Effect, Function};
use crate::model::{Access, Asks, Memcpy, Named, Path, Traffic};
use crate::os;
use crate::policy::access::Standing;
use crate::policy::hip::{AccessCall, Before, Hip, PendingAccess};
use crate::policy::validate::{Seen, is_clean_hip};
use crate::policy::{HIP, Judged, VALIDATE};
use crate::real::hip::{self, Library};
use crate::record::trace;

/// Makes a call of HIP that is traced. `found` is the real function, which `real` calls.
#[inline(always)]
pub(crate) fn traced(
    function: Function,
    caller: Caller,
    found: *const c_void,
    arguments: &[Value],
    real: impl Fn() -> Code,
) -> Code {
    if !mode::is_on() {
        return real();
    }
    let mut room = Room::new();
    let call = Call::new(function, caller, arguments, &mut room);
    let decided = decide(&call, found);
    if decided.is_passed_on {
        return real();
    }
    let begun = run::begin(&call, &decided.decision);
    let ret = match decided.how {
        How::AsItCame => real(),
        How::Fail(library, code) => hip::fail(library, code),
        How::Succeed(library) => hip::succeed(library),
    };
    end(&call, &decided, begun, ret);
    ret
}

/// How the real function is called.
#[derive(Clone, Copy)]
enum How {
    /// As the program called it.
    AsItCame,
    /// Not at all: another function fails in its place.
    Fail(Library, Code),
    /// Not at all: another function succeeds in its place.
    Succeed(Library),
}

/// A decision about a call of HIP. It has nothing to drop.
#[derive(Clone, Copy)]
struct Decided {
    how: How,
    /// The record and the log say this of it.
    decision: Decision<'static>,
    library: Option<Library>,
    before: Before,
    /// Whether there is nothing to say of it if it succeeds.
    is_clean: bool,
    /// The facts about a call that changes access. Nothing else may change access meanwhile.
    asked: Option<PendingAccess>,
    /// Whether it is a regular copy that does not go between devices, which nobody sees.
    is_passed_on: bool,
}

impl Decided {
    const FORWARD: Self = Self {
        how: How::AsItCame,
        decision: Decision::FORWARD,
        library: None,
        before: Before::NOTHING,
        is_clean: false,
        asked: None,
        is_passed_on: false,
    };
    const PASSED_ON: Self = Self { is_passed_on: true, ..Self::FORWARD };

    /// Whether the call fails because of what its arguments are.
    fn is_refused(&self) -> bool {
        self.decision.refusal.is_some()
    }
}

#[inline(always)]
fn decide(call: &Call<'_>, found: *const c_void) -> Decided {
    match &call.request.asks {
        Asks::Copy(copy) => {
            if let Some(library) = Library::seen(found)
                && copy.has_addresses()
                && copy.reach().is_some()
                && let Some(traffic) = HIP.decided(library.number(), copy)
            {
                if is_passed_on(copy, Some(traffic)) {
                    return Decided::PASSED_ON;
                }
                if !VALIDATE.is_on() || is_clean_hip(copy, |address| HIP.known(address)) {
                    let decision = Decision { traffic: Some(traffic), ..Decision::FORWARD };
                    let is_clean = traffic.path != Path::Broken;
                    return Decided { library: Some(library), decision, is_clean, ..Decided::FORWARD };
                }
            }
        }
        Asks::Access(_) => {}
        Asks::Other if regular::is_regular(call.function()) => return Decided::PASSED_ON,
        Asks::Batch(_) | Asks::Other => return Decided::FORWARD,
    }
    consider(call, found)
}

#[cold]
#[inline(never)]
fn consider(call: &Call<'_>, found: *const c_void) -> Decided {
    let considered = mode::unseen(|| {
        let library = Library::of(found)?;
        let decided = match &call.request.asks {
            Asks::Copy(_) if mode::is_exhausted() => return None,
            Asks::Copy(copy) => consider_copy(call, library, copy),
            Asks::Access(access) => consider_access(library, *access),
            Asks::Batch(_) | Asks::Other => Decided::FORWARD,
        };
        Some(Decided { library: Some(library), ..decided })
    });
    let is_regular = regular::is_regular(call.function());
    considered.unwrap_or(if is_regular { Decided::PASSED_ON } else { Decided::FORWARD })
}

/// Whether a copy names no devices and does not go between two, as far as is known.
#[inline(always)]
fn is_passed_on(copy: &Memcpy, traffic: Option<Traffic>) -> bool {
    copy.src_named == Named::Pointer && !traffic.is_some_and(|traffic| traffic.is_between_devices())
}

fn consider_copy(call: &Call<'_>, library: Library, copy: &Memcpy) -> Decided {
    let (traffic, before) = HIP.consider(library.number(), &library, Some(copy).filter(|copy| copy.has_addresses()));
    if is_passed_on(copy, traffic) {
        return Decided::PASSED_ON;
    }
    let decided = Decided { decision: Decision { traffic, ..Decision::FORWARD }, before, ..Decided::FORWARD };
    describe_gpus(library, &before);
    if !VALIDATE.is_on() {
        return decided;
    }
    let finding = VALIDATE.before_hip(&Seen::of_hip(&before, &call.request, None), before.ends);
    // Now, since the library may crash or the call is not made.
    match finding.and_then(|finding| validate::say_before(call, &finding)) {
        None => decided,
        Some(refusal) => {
            Decided { how: How::Fail(library, refusal.code), decision: Decision::refused(refusal), ..decided }
        }
    }
}

fn consider_access(library: Library, access: Access) -> Decided {
    let number = library.number();
    if let Access::Query { device, peer, .. } = access {
        HIP.read_verdict(number, &library, device, peer);
    }
    // How many devices there are is all that errors of a query are explained by.
    let seen = HIP.seen_around(number).filter(|_| matches!(access, Access::Query { .. }));
    let look_around = || if VALIDATE.is_on() { HIP.look_around(number, &library) } else { Before::NOTHING };
    let before = seen.unwrap_or_else(look_around);
    let asked = match access {
        Access::Query { .. } => return Decided { before, is_clean: seen.is_some(), ..Decided::FORWARD },
        Access::Enable { peer: Named::Ordinal(peer), flags } => HIP.enabling(number, &library, peer, flags),
        Access::Disable { peer: Named::Ordinal(peer) } => HIP.disabling(number, &library, peer),
        _ => return Decided { before, ..Decided::FORWARD },
    };
    let how = match (asked.ask, access) {
        (AccessCall::Forward, _) => How::AsItCame,
        // HIP checks flags before the peer.
        (AccessCall::Unreachable, Access::Enable { flags: 1.., .. }) => How::Fail(library, Code::INVALID_VALUE),
        (AccessCall::Unreachable, _) => How::Fail(library, Code::INVALID_DEVICE),
        (AccessCall::Succeed, _) => How::Succeed(library),
    };
    Decided { how, before, asked: Some(asked), ..Decided::FORWARD }
}

/// Does what there is to do when the real function has returned.
#[inline(always)]
fn end(call: &Call<'_>, decided: &Decided, begun: Running, ret: Code) {
    run::leave(&begun);
    if !mode::is_still_on() {
        return;
    }
    if let Some(asked) = decided.asked {
        has_asked(call, decided, asked, ret);
    }
    if let Some(query @ Access::Query { device, peer, attribute, .. }) = call.request.access()
        && ret == Code::SUCCESS
        && mode::unseen(|| HIP.is_hidden(device, peer, attribute))
    {
        peers::hide(query);
    }
    let decision = &decided.decision;
    count(call, decision, ret);
    let path = path(call, decision, &begun, ret);
    if let Some(record) = begun.record {
        recording::end(call, decision, record, ret, path);
        origin::after(call, record);
    }
    if let Some(refusal) = decision.refusal {
        validate::record_refusal(call, begun.record, refusal);
    }
    if let Some(since) = begun.shown_since {
        show::call(call, decision, &begun, os::uncancelled(|| since.elapsed()), ret, path);
    }
    let is_fine = ret == Code::SUCCESS && decided.is_clean;
    if VALIDATE.is_on() && begun.is_outermost() && !is_fine && !decided.is_refused() {
        check(call, decided, ret);
    }
    if begun.shown_since.is_some() {
        callbacks::run(&begun);
    }
}

#[cold]
fn has_asked(call: &Call<'_>, decided: &Decided, asked: PendingAccess, ret: Code) {
    let enables = matches!(call.request.access(), Some(Access::Enable { .. }));
    if let Some(library) = decided.library {
        mode::unseen(|| HIP.asked(library.number(), asked, enables, ret));
    }
}

/// Says what is wrong with a call, by what was known before it was made.
#[cold]
#[inline(never)]
fn check(call: &Call<'_>, decided: &Decided, ret: Code) {
    let has_rules = !matches!(call.function().effect(), Effect::Traced);
    if !has_rules || decided.library.is_none() {
        return;
    }
    mode::unseen(|| {
        let request = read::read_again(&call.request, ret).unwrap_or(call.request);
        // Nothing was asked of a copy whose path was decided before, nor while an error was pending.
        let ends = request.copy().filter(|copy| copy.has_addresses()).map(|copy| [copy.src, copy.dst]);
        let ends = ends.map_or([None; 2], |ends| ends.map(|address| HIP.known(address)));
        let before = decided.before.with_remembered(ends);
        let seen = Seen::of_hip(&before, &request, Some(ret));
        let hidden = seen.pair.and_then(|[device, peer]| HIP.why_hidden(device, peer));
        let standing = Standing { hidden, ..Standing::default() };
        let seen = Seen { standing: Some(&standing), ..seen };
        for finding in VALIDATE.after_hip(&seen, before.ends, decided.decision.traffic) {
            validate::say(call, &finding, Some(ret));
        }
    });
}

/// Notes for the trace once which GPUs there are, before a copy, as long as something may be asked.
pub(super) fn describe_gpus(library: Library, before: &Before) {
    if let (Some(_), Some(devices)) = (before.current, before.devices)
        && trace::file().is_some_and(|trace| trace.wants_gpus())
    {
        note_gpus(library, devices);
    }
}

/// Notes for the trace which GPUs there are, and which can reach each other. The last error is empty, and stays so.
fn note_gpus(library: Library, devices: i32) {
    let count = u8::try_from(devices).unwrap_or(0).min(64);
    for device in 0..count {
        let gpu = library.gpu(device.into()).unwrap_or_default();
        trace::gpu(device, &[&gpu.name, &gpu.uuid, &gpu.bus_id]);
    }
    for (device, peer) in (0..count).flat_map(|device| (0..count).map(move |peer| (device, peer))) {
        if device != peer {
            let access = i32::from(library.can_access(device.into(), peer.into()) == Ok(true));
            trace::peer(device, peer, &[&format!("access={access}")]);
        }
    }
    if library.last_error() != Some(Code::SUCCESS) {
        library.clear_last_error();
    }
}

// ---- Resets ----

/// HIP is about to reset a device.
#[cold]
#[inline(never)]
pub(super) fn before_device_reset(found: *const c_void) {
    mode::unseen(|| {
        if let Some(library) = Library::of(found) {
            HIP.resetting(library.number(), &library);
        }
    });
}

/// It has done so, or has failed.
#[cold]
#[inline(never)]
pub(super) fn after_device_reset(found: *const c_void) {
    if Library::seen(found).is_some() {
        HIP.has_reset();
    }
}
