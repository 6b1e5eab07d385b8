//! Which CUDA runtime a real function is of; for that the shim makes its one call of the runtime.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use super::LazySymbol;
use super::loader::{self, Object, Wanted};
use super::slot::{self, Slot};
use crate::api::abi::Code;
use crate::api::codes::Numbering;
use crate::api::{Function, Layer};
use crate::os;

/// The numbers of codes that calls return by a route, which leads to `real`. The version that callers are bound to tells the
/// runtime, else the name of its file, else the runtime itself.
pub(crate) fn numbering(function: Function, slot: &Slot, real: Option<*mut c_void>) -> Numbering {
    if function.layer() != Layer::Runtime {
        return Numbering::Usual;
    }
    let bound_to = slot::version(function, slot).and_then(|version| named_version(version.to_bytes()));
    let of_file = |real| os::undisturbed(|| named_version(Object::holding(real)?.file_name()));
    let asked = |real| version(real).map(|version| (version / 1000, version % 1000 / 10));
    match bound_to.or_else(|| real.and_then(|real| of_file(real).or_else(|| asked(real)))) {
        Some(version) if version < (10, 1) => Numbering::Until10_0,
        _ => Numbering::Usual,
    }
}

/// Major and minor version in a runtime's name, such as `libcudart.so.9.0` or `libcudart-1581fefa.so.10.0.130`.
fn named_version(name: &[u8]) -> Option<(i32, i32)> {
    let mut numbers = std::str::from_utf8(name).ok()?.rsplit_once(".so.")?.1.split('.');
    let major = numbers.next()?.parse().ok()?;
    Some((major, numbers.next().map_or(Some(0), |minor| minor.parse().ok())?))
}

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

/// The error that is pending in the calling thread, in the runtime that a real function lies in, as that runtime counts; none if it
/// cannot be asked. It stays pending.
pub(crate) fn pending_error(real: *const c_void) -> Option<Code> {
    /// Each function that was asked about, and the one that its runtime answers with. Those that do not fit are not asked about.
    static FOUND: [(AtomicUsize, LazySymbol); 64] = [const { (AtomicUsize::new(0), LazySymbol::new()) }; 64];
    let is_its = |of: &AtomicUsize| match of.compare_exchange(0, real as usize, Relaxed, Relaxed) {
        Ok(_) => true,
        Err(other) => other == real as usize,
    };
    let (_, function) = FOUND.iter().find(|(of, _)| is_its(of))?;
    let wanted = Wanted { name: c"cudaPeekAtLastError", version: None };
    let found = function.get(|| Some(wanted.in_scope_of(real)))?;
    // SAFETY: the symbol is the runtime's, which documents this signature, and its library stays loaded.
    let peek = unsafe { transmute::<*mut c_void, unsafe extern "C" fn() -> Code>(found) };
    // SAFETY: it takes nothing, and only reads what the thread has pending.
    Some(unsafe { peek() })
}

/// Has the runtime that a real function lies in fail with a code that rules are about, by a call that does nothing else. So the code
/// becomes the thread's last error there. Returns the code as that runtime counts.
pub(crate) fn fail(real: *const c_void, code: Code) -> Code {
    type OfPair = unsafe extern "C" fn(*mut c_int, c_int, c_int, c_int) -> Code;
    type OfRows = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, c_int) -> Code;
    type OfEvents = unsafe extern "C" fn(*mut f32, usize, usize) -> Code;
    /// `cudaMemcpyDefault`.
    const BY_POINTERS: c_int = 4;
    let name = match code {
        Code::INVALID_PITCH => c"cudaMemcpy2D",
        Code::INVALID_HANDLE => c"cudaEventElapsedTime",
        _ => c"cudaDeviceGetP2PAttribute",
    };
    let found = os::undisturbed(|| {
        let found = Wanted { name, version: None }.in_scope_of(real);
        loader::forget_error();
        found
    });
    let Some(found) = found else { return code };
    let (mut milliseconds, mut attribute) = (0.0, 0);
    match code {
        // SAFETY: the runtime documents this signature, and refuses a pitch of 1 for rows of 2 bytes before it follows a pointer.
        Code::INVALID_PITCH => unsafe {
            transmute::<*mut c_void, OfRows>(found)(1 << 20, 1, 1 << 20, 1, 2, 2, BY_POINTERS)
        },
        // SAFETY: as above, and it refuses what is no event.
        Code::INVALID_HANDLE => unsafe { transmute::<*mut c_void, OfEvents>(found)(&mut milliseconds, 0, 0) },
        // SAFETY: as above, and it refuses ordinals below 0.
        Code::INVALID_DEVICE => unsafe { transmute::<*mut c_void, OfPair>(found)(&mut attribute, 1, -1, -1) },
        // SAFETY: as above, and it refuses NULL.
        _ => unsafe { transmute::<*mut c_void, OfPair>(found)(ptr::null_mut(), 1, 0, 1) },
    }
}

fn ask(function: *mut c_void) -> Option<i32> {
    // SAFETY: the symbol is the runtime's, which documents this signature.
    let function = unsafe { transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> Code>(function) };
    let mut version = 0;
    // SAFETY: the function writes the place; it neither starts the runtime nor asks the driver.
    (unsafe { function(&mut version) } == Code::SUCCESS).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_version_of_symbol_versions_and_of_files() {
        for (name, version) in [
            ("libcudart.so.8.0", Some((8, 0))),
            ("libcudart.so.9.0.176", Some((9, 0))),
            ("libcudart-1581fefa.so.10.0", Some((10, 0))),
            ("libcudart.so.12", Some((12, 0))),
            ("libcudart.so", None),
            ("libcudart.so.bak", None),
            ("app", None),
        ] {
            assert_eq!(named_version(name.as_bytes()), version, "{name}");
        }
    }
}
