//! The one call that the shim itself makes to the CUDA runtime.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::loader::{self, Wanted};
use crate::api::abi::Code;
use crate::os;

/// The version of the runtime that a real function lies in, as `cudaRuntimeGetVersion` counts; none if that cannot be told.
pub(crate) fn version(real: *const c_void) -> Option<i32> {
    /// Versions have so many bits here, and addresses of functions the rest.
    const BITS: u32 = 16;
    const VERSION: u64 = (1 << BITS) - 1;
    /// The last function that was asked about, and its version: one word, so that threads and signal handlers find both or none.
    static LAST: AtomicU64 = AtomicU64::new(0);
    let (last, address) = (LAST.load(Relaxed), real as u64);
    if last >> BITS == address {
        return i32::try_from(last & VERSION).ok().filter(|&version| version != 0);
    }
    let version = os::undisturbed(|| {
        let found = Wanted { name: c"cudaRuntimeGetVersion", version: None }.in_scope_of(real);
        loader::forget_error();
        found.and_then(ask)
    });
    let known = version.and_then(|version| u64::try_from(version).ok()).filter(|&version| version <= VERSION);
    LAST.store(address << BITS | known.unwrap_or(0), Relaxed);
    version
}

fn ask(function: *mut c_void) -> Option<i32> {
    // SAFETY: the symbol is the runtime's, which documents this signature.
    let function = unsafe { transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> Code>(function) };
    let mut version = 0;
    // SAFETY: the function writes the place; it neither starts the runtime nor asks the driver.
    (unsafe { function(&mut version) } == Code::SUCCESS).then_some(version)
}
