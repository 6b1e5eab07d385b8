//! Contexts, and peer access between them.

use super::functions::{
    asked, checked, ctx_enable_peer_access, ctx_get_current, ctx_get_device, ctx_get_id, ctx_pop_current,
    ctx_push_current, device_primary_ctx_get_state, device_primary_ctx_release, device_primary_ctx_retain, is_missing,
};
use crate::api::abi::Code;
use crate::os;

/// Asks the real function to enable peer access for the current context.
pub(crate) fn enable_peer_access(peer: usize, flags: u32) -> Code {
    // SAFETY: the function takes values; what the program passed it would pass itself.
    unsafe { ctx_enable_peer_access(peer, flags) }
}

/// Whether a device's primary context exists.
pub(crate) fn is_primary_active(device: i32) -> bool {
    let (mut flags, mut is_active) = (0, 0);
    // SAFETY: both are what the function writes.
    let code = unsafe { device_primary_ctx_get_state(device, &mut flags, &mut is_active) };
    code == Code::SUCCESS && is_active != 0
}

/// A device's primary context, if it exists.
pub(super) fn primary_context(device: i32) -> Option<usize> {
    is_primary_active(device).then_some(())?;
    // SAFETY: the function writes the place. There is such a context, so that none is made.
    let context = asked(|context| unsafe { device_primary_ctx_retain(context, device) }).ok()?;
    // SAFETY: gives back what was taken just now.
    unsafe { device_primary_ctx_release(device) };
    Some(context)
}

/// Runs `work` with a context current, and restores the one that was, after a panic too. If it is current already nothing is to be restored.
pub(super) fn within<T>(context: usize, work: impl FnOnce() -> Result<T, Code>) -> Result<T, Code> {
    let is_current = current() == Some(context);
    if !is_current {
        // SAFETY: the context is one that the driver knows; the stack of contexts is put back below.
        checked(unsafe { ctx_push_current(context) })?;
    }
    let restore = || {
        if !is_current {
            // SAFETY: the function writes the place.
            let _ = asked(|popped| unsafe { ctx_pop_current(popped) });
        }
    };
    os::finally(restore, work)
}

/// Gives a stream of a context something to do, for which that has to be current only if it is a default stream. If it is current already, or
/// need not be, signals arrive meanwhile.
pub(super) fn on_stream<T>(context: usize, stream: usize, work: impl FnOnce() -> Result<T, Code>) -> Result<T, Code> {
    const LAST_DEFAULT: usize = 2;
    if stream > LAST_DEFAULT || current() == Some(context) {
        return work();
    }
    os::undisturbed(|| within(context, work))
}

/// The calling thread's context.
pub(super) fn current() -> Option<usize> {
    // SAFETY: the function writes the place.
    asked(|context| unsafe { ctx_get_current(context) }).ok().filter(|&context| context != 0)
}

/// What tells the context from later ones with the same handle.
pub(super) fn id(context: usize) -> Option<u64> {
    if context == 0 {
        return None;
    }
    // SAFETY: the function writes the place; it returns an error for a handle that is none (any more).
    match asked(|id| unsafe { ctx_get_id(context, id) }) {
        Err(code) if is_missing(code) => Some(0),
        result => result.ok(),
    }
}

/// The device of a context that exists.
pub(super) fn device_of(context: usize) -> Option<i32> {
    // SAFETY: the function writes the place.
    within(context, || asked(|device| unsafe { ctx_get_device(device) })).ok()
}
