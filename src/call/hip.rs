//! Calls of HIP, which has no layer below: its hooks both name a call and decide about it.

use std::ffi::c_void;

use super::arrival::Call;
use super::decision::{Decision, HipFacts, How, Reason};
use super::{mode, peers, recording, validate};
use crate::api::Effect;
use crate::api::abi::Code;
use crate::model::{Access, Asks, Memcpy, Named, Path, Traffic};
use crate::policy::access::Standing;
use crate::policy::hip::{AccessCall, Before, Hip};
use crate::policy::validate::{CallView, is_clean_hip};
use crate::policy::{HIP, VALIDATE, VerifyBackend};
use crate::real::hip::Library;
use crate::record::trace;

/// Decides about a call: without a question, if the path of its copy is decided already.
#[inline(never)]
pub(super) fn decide(call: &Call<'_>) -> Decision {
    match &call.request.asks {
        Asks::Copy(copy) => {
            if let Some(library) = Library::seen(call.found)
                && copy.has_addresses()
                && copy.reach().is_some()
                && let Some(traffic) = HIP.decided(library.number(), copy)
            {
                if is_passed_on(copy, Some(traffic)) {
                    return Decision::new(How::Forward(Reason::NotBetweenDevices));
                }
                if !VALIDATE.is_on() || is_clean_hip(copy, |address| HIP.known(address)) {
                    let is_clean = traffic.path != Path::Broken;
                    let hip = HipFacts::new(library, Before::NOTHING, is_clean);
                    return Decision { hip, ..Decision::copy(How::Real, Some(traffic)) };
                }
            }
        }
        Asks::Access(_) => {}
        Asks::Other if call.function().is_regular() => {
            return Decision::new(How::Forward(Reason::OfTheHost));
        }
        Asks::Batch { .. } | Asks::Other => return Decision::new(How::Forward(Reason::NotOurs)),
    }
    consider(call)
}

#[cold]
#[inline(never)]
fn consider(call: &Call<'_>) -> Decision {
    let considered = mode::unseen(|| {
        let Some(library) = Library::of(call.found) else {
            return Some(Decision::new(How::Forward(Reason::UnknownLibrary)));
        };
        Some(match &call.request.asks {
            Asks::Copy(_) if mode::is_exhausted() => return None,
            Asks::Copy(copy) => consider_copy(call, library, copy),
            Asks::Access(access) => consider_access(library, *access),
            Asks::Batch { .. } | Asks::Other => Decision::new(How::Forward(Reason::NotOurs)),
        })
    });
    considered.unwrap_or(Decision::new(How::Forward(Reason::OwnCode)))
}

/// Whether a copy names no devices and does not go between two, as far as is known.
fn is_passed_on(copy: &Memcpy<'_>, traffic: Option<Traffic>) -> bool {
    copy.src_named == Named::Pointer && !traffic.is_some_and(|traffic| traffic.is_between_devices())
}

fn consider_copy(call: &Call<'_>, library: Library, copy: &Memcpy<'_>) -> Decision {
    let (traffic, before) = HIP.consider(library.number(), &library, Some(copy).filter(|copy| copy.has_addresses()));
    if is_passed_on(copy, traffic) {
        return Decision::new(How::Forward(Reason::NotBetweenDevices));
    }
    let hip = HipFacts::new(library, before, false);
    describe_gpus(library, &before);
    if VALIDATE.is_on() {
        let finding = VALIDATE.before_hip(&CallView::of_hip(&before, &call.request, None), before.endpoints);
        // Now, since the library may crash or the call is not made.
        if let Some(refusal) = finding.and_then(|finding| validate::say_before(call, &finding)) {
            return Decision { hip, ..Decision::new(How::Refused(refusal)) };
        }
    }
    Decision { hip, ..Decision::copy(How::Real, traffic) }
}

fn consider_access(library: Library, access: Access) -> Decision {
    let number = library.number();
    if let Access::Query { device, peer, .. } = access {
        HIP.read_verdict(number, &library, device, peer);
    }
    // How many devices there are is all that errors of a query are explained by.
    let seen = HIP.seen_around(number).filter(|_| matches!(access, Access::Query { .. }));
    let look_around = || if VALIDATE.is_on() { HIP.look_around(number, &library) } else { Before::NOTHING };
    let before = seen.unwrap_or_else(look_around);
    let asked = match access {
        Access::Enable { peer: Named::Ordinal(peer), flags } => Some(HIP.enabling(number, &library, peer, flags)),
        Access::Disable { peer: Named::Ordinal(peer) } => Some(HIP.disabling(number, &library, peer)),
        _ => None,
    };
    let how = match (asked.map(|asked| asked.ask), access) {
        (None | Some(AccessCall::Forward), _) => How::Real,
        // HIP checks flags before the peer.
        (Some(AccessCall::Unreachable), Access::Enable { flags: 1.., .. }) => {
            How::Answered(library, Code::INVALID_VALUE)
        }
        (Some(AccessCall::Unreachable), _) => How::Answered(library, Code::INVALID_DEVICE),
        (Some(AccessCall::Succeed), _) => How::Answered(library, Code::SUCCESS),
    };
    Decision { hip: Some(HipFacts { library, before, is_clean: seen.is_some(), asked }), ..Decision::new(how) }
}

/// A call about access has returned: what it has changed is noted, and what a query tells of hidden access is written over.
pub(super) fn on_return(call: &Call<'_>, decision: &Decision, ret: Code) {
    if let Some(HipFacts { library, asked: Some(asked), .. }) = decision.hip {
        let enables = matches!(call.request.access(), Some(Access::Enable { .. }));
        mode::unseen(|| HIP.asked(library.number(), asked, enables, ret));
    }
    if let Some(query @ Access::Query { device, peer, attribute, .. }) = call.request.access()
        && ret == Code::SUCCESS
        && mode::unseen(|| HIP.is_hidden(device, peer, attribute))
    {
        peers::hide(query);
    }
}

/// Says what is wrong with a call, by what was known before it was made.
pub(super) fn check(call: &Call<'_>, decision: &Decision, ret: Code) {
    if let Some(facts) = &decision.hip
        && !(ret == Code::SUCCESS && facts.is_clean)
        && !matches!(call.function().effect(), Effect::Traced)
    {
        check_with_facts(call, facts, decision.traffic(), ret);
    }
}

#[cold]
#[inline(never)]
fn check_with_facts(call: &Call<'_>, facts: &HipFacts, traffic: Option<Traffic>, ret: Code) {
    mode::unseen(|| {
        let request = &call.request;
        // Nothing was asked of a copy whose path was decided before, nor while an error was pending.
        let ends = request.copy().filter(|copy| copy.has_addresses()).map(|copy| [copy.src, copy.dst]);
        let ends = ends.map_or([None; 2], |ends| ends.map(|address| HIP.known(address)));
        let before = facts.before.with_remembered(ends);
        let seen = CallView::of_hip(&before, request, Some(ret));
        let hidden = seen.pair.and_then(|[device, peer]| HIP.why_hidden(device, peer));
        let standing = Standing { hidden, ..Standing::default() };
        let seen = CallView { standing: Some(&standing), ..seen };
        for finding in VALIDATE.after_hip(&seen, before.endpoints, traffic) {
            validate::say(call, &finding, Some(ret));
        }
    });
}

/// Notes for the trace once which GPUs there are, before a copy, as long as something may be asked. The last error is empty, and stays so.
pub(super) fn describe_gpus(library: Library, before: &Before) {
    if let (Some(_), Some(devices)) = (before.current, before.devices)
        && trace::file().is_some_and(|trace| trace.wants_gpus())
    {
        recording::note_gpus(&library, devices, |[device, peer]| {
            vec![format!("access={}", i32::from(library.can_access(device, peer) == Ok(true)))]
        });
        if library.last_error() != Some(Code::SUCCESS) {
            library.clear_last_error();
        }
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
        HIP.on_reset();
    }
}
