//! Contexts, and peer access between them.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

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

pub(crate) fn is_primary_active(device: i32) -> bool {
    let (mut flags, mut is_active) = (0, 0);
    // SAFETY: both are what the function writes.
    let code = unsafe { device_primary_ctx_get_state(device, &mut flags, &mut is_active) };
    code == Code::SUCCESS && is_active != 0
}

/// How often p2pshim has begun to retain a primary context for a moment, and has let it go.
static RETAINING: AtomicU32 = AtomicU32::new(0);
static RETAINED: AtomicU32 = AtomicU32::new(0);

/// Whether others than p2pshim keep a primary context active; false too if p2pshim itself may be retaining one.
pub(crate) fn is_primary_held(device: i32) -> bool {
    let before = RETAINED.load(SeqCst);
    is_primary_active(device) && RETAINING.load(SeqCst) == before
}

pub(super) fn primary_context(device: i32) -> Option<usize> {
    is_primary_active(device).then_some(())?;
    RETAINING.fetch_add(1, SeqCst);
    // SAFETY: the function writes the place. There is such a context, so that none is made.
    let context = asked(|context| unsafe { device_primary_ctx_retain(context, device) });
    if context.is_ok() {
        // SAFETY: gives back what was taken just now.
        unsafe { device_primary_ctx_release(device) };
    }
    RETAINED.fetch_add(1, SeqCst);
    let context = context.ok()?;
    // The program may have released it meanwhile: then it has ended just now.
    is_primary_active(device).then_some(context)
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

pub(super) fn current() -> Option<usize> {
    // SAFETY: the function writes the place.
    asked(|context| unsafe { ctx_get_current(context) }).ok().filter(|&context| context != 0)
}

/// A number that tells the context from later ones with the same handle.
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

#[cfg(test)]
mod tests {
    use std::ffi::{c_uint, c_void};
    use std::mem::transmute;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::super::RealDriver;
    use super::super::functions::exchange_capture_mode;
    use super::*;
    use crate::policy::VerifyBackend;
    use crate::real::loader::Handle;

    /// With the simulated driver, which `make sim` builds.
    #[test]
    fn context_and_capture_mode_come_back_after_a_panic() {
        const THREAD_LOCAL: c_uint = 1;
        type Init = unsafe extern "C" fn(c_uint) -> Code;
        const LIBRARY: &std::ffi::CStr = c"target/sim/lib/libcuda.so.1";
        // SAFETY: it has no constructor.
        assert!(!unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW) }.is_null(), "`make sim` builds {LIBRARY:?}");
        let init = Handle::to_loaded(c"libcuda.so.1").and_then(|driver| driver.symbol(c"cuInit")).unwrap();
        // SAFETY: that is its type.
        assert_eq!(unsafe { transmute::<*mut c_void, Init>(init)(0) }, Code::SUCCESS);
        // SAFETY: the functions write the places.
        let contexts = [0, 1].map(|device| asked(|it| unsafe { device_primary_ctx_retain(it, device) }).unwrap());
        let exchange = |mut mode: c_uint| {
            // SAFETY: the function swaps the thread's mode with this.
            assert_eq!(unsafe { exchange_capture_mode(&mut mode) }, Code::SUCCESS);
            mode
        };
        let panics = |work: &dyn Fn()| catch_unwind(AssertUnwindSafe(work)).is_err();
        exchange(THREAD_LOCAL);
        for outer in contexts {
            let work = || {
                let inner = || {
                    assert_eq!((current(), exchange(2)), (Some(contexts[1]), 2));
                    panic!("on purpose");
                };
                let _ = RealDriver.relaxed(|| within::<()>(contexts[1], inner));
            };
            let inside = || {
                assert!(panics(&work));
                assert_eq!(current(), Some(outer));
                Ok(())
            };
            assert_eq!(within(outer, inside), Ok(()));
            assert_eq!((current(), exchange(THREAD_LOCAL)), (None, THREAD_LOCAL));
        }
    }
}
