//! Peer access as the program asks for it: what is called in place of a function, what the program gets, and what is hidden.

use std::ptr;

use super::arrival::Call;
use super::decision::{Decision, How};
use super::thread::TAKES;
use super::{mode, thread};
use crate::api::abi::Code;
use crate::api::{Function, Layer};
use crate::model::{Access, Named};
use crate::objects::{OBJECTS, captures};
use crate::policy::{ACCESS, Driver, HarmlessEnable, VALIDATE, validate};
use crate::real::driver::RealDriver;

/// Decides what is called in place of a function about peer access.
#[inline(never)]
pub(super) fn decide(call: &Call<'_>) -> Decision {
    let harmless: Option<HarmlessEnable> = match call.request.access() {
        Some(Access::Enable { peer: Named::Context(peer), flags }) => {
            mode::unseen(|| ACCESS.enabling(&RealDriver, peer, flags))
        }
        Some(Access::Disable { peer: Named::Context(peer) }) => mode::unseen(|| {
            let under = unfinished_copy(call);
            thread::current().disables_under.set(under);
            let harmless = ACCESS.disabling(&RealDriver, peer);
            if harmless.is_none() {
                thread::current().set_unfinished(TAKES, true);
                under.inspect(|(devices, _)| OBJECTS.past.set_disabled_under_copy(*devices));
            }
            harmless
        }),
        _ => None,
    };
    Decision::new(harmless.map_or(How::Real, How::Harmless))
}

/// A copy that has not completed, if the program is about to disable access between its devices: from where to where it goes, and
/// its stream.
fn unfinished_copy(call: &Call<'_>) -> Option<([u8; 2], usize)> {
    let pair = validate::access_pair(&RealDriver, &call.request).filter(|_| VALIDATE.is_on())?;
    let [Ok(device), Ok(peer)] = pair.map(u8::try_from) else { return None };
    VALIDATE.unfinished(&RealDriver, [device, peer])
}

/// The code that the program gets for the driver's, unless it is forgiven.
#[inline(never)]
pub(super) fn revise(call: &Call<'_>, decision: &Decision, ret: Code) -> Code {
    let harmless = if let How::Harmless(enable) = decision.how { Some(enable) } else { None };
    match call.request.access() {
        Some(Access::Enable { peer: Named::Context(peer), flags }) if harmless.is_none() => {
            mode::unseen(|| Some(ACCESS.enabled(&RealDriver, peer, flags, ret))).unwrap_or(ret)
        }
        Some(Access::Disable { peer: Named::Context(peer) }) => {
            thread::current().set_unfinished(TAKES, false);
            mode::unseen(|| Some(ACCESS.disabled(&RealDriver, peer, ret, harmless))).unwrap_or(ret)
        }
        Some(query @ Access::Query { device, peer, attribute, .. }) => {
            let is_hidden =
                || mode::unseen(|| Some(ACCESS.is_hidden(&RealDriver, device, peer, attribute))).unwrap_or(false);
            if ret == Code::SUCCESS && ACCESS.may_hide() && !ACCESS.is_shown(device, peer) && is_hidden() {
                hide(query);
            }
            ret
        }
        _ => ret,
    }
}

/// Whether a call may take access or a right away.
pub(super) fn takes_away(call: &Call<'_>) -> bool {
    matches!(call.request.access(), Some(Access::Disable { .. })) || call.function() == Function::cuMemPoolSetAccess
}

/// A call of this thread that took something away, if there was one, has returned or was left.
pub(super) fn end_taking() {
    let thread = thread::current();
    if thread.is_unfinished(TAKES) {
        thread.set_unfinished(TAKES, false);
        mode::unseen(|| ACCESS.disablings.mark_over());
    }
}

/// The device that is current, for a call that enables or disables its access. None while a stream may be captured: then nothing is
/// asked.
#[cold]
#[inline(never)]
pub(crate) fn current_device(call: &Call<'_>) -> Option<i32> {
    let depends = matches!(call.request.access(), Some(Access::Enable { .. } | Access::Disable { .. }));
    if !depends || call.function().layer() == Layer::Hip || captures::may_be_under_way() {
        return None;
    }
    mode::unseen(|| RealDriver.device_of_context(RealDriver.current_context()?))
}

/// Writes over what a successful query returned about access that is hidden.
pub(crate) fn hide(query: Access) {
    if let Access::Query { output, count, .. } = query
        && !output.is_null()
    {
        // SAFETY: the real function reports success, so it has just written that many numbers of 4 bytes there.
        unsafe { ptr::write_bytes(output, 0, count) };
    }
}
