//! The few calls that the shim itself makes to the real driver.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use super::loader::{self, Handle};

/// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
const DEVICE_ORDINAL: c_int = 9;

type PointerGetAttribute = unsafe extern "C" fn(*mut c_void, c_int, u64) -> c_int;

/// The device that memory lives on, by the driver's own account; none for memory it does not know.
///
/// The query needs no context, waits for nothing and is allowed while a stream is being captured.
pub(crate) fn device_of(address: u64) -> Option<i32> {
    let query = pointer_get_attribute()?;
    let mut device: c_int = -1;
    // SAFETY: the attribute is one int, and `device` is one. The address is looked up, not read.
    let code = unsafe { query((&raw mut device).cast(), DEVICE_ORDINAL, address) };
    (code == 0 && device >= 0).then_some(device)
}

fn pointer_get_attribute() -> Option<PointerGetAttribute> {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let mut found = FOUND.load(Relaxed);
    if found.is_null() {
        found = Handle::to_loaded(c"libcuda.so.1").and_then(|driver| driver.symbol(c"cuPointerGetAttribute"))?;
        loader::pin(found);
        FOUND.store(found, Relaxed);
    }
    // SAFETY: a non-null pointer in FOUND came from looking up cuPointerGetAttribute.
    Some(unsafe { std::mem::transmute::<*mut c_void, PointerGetAttribute>(found) })
}
