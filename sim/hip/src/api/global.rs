//! Versions, errors and functions by name.

use std::ffi::{CStr, CString, c_char};

use p2psim_core::Error;

use super::require;
use crate::abi::{In, Opaque, Out};
use crate::entry::{api, gpus};
use crate::error::Outcome;
use crate::{error, flavour, lookup, thread};

/// `HIP_GET_PROC_ADDRESS_SUCCESS`, `…_SYMBOL_NOT_FOUND`.
const FOUND: u32 = 0;
const NOT_FOUND: u32 = 1;
/// `hipEnablePerThreadDefaultStream`.
const PER_THREAD: u64 = 2;

/// The last error, which is forgotten; without a device that is the lack of one, for ever.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn hipGetLastError() -> u32 {
    or_no_device(thread::take_last_error)
}

/// From 7.0 on, the answer of the last call, success included, which is forgotten; before, as above.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn hipExtGetLastError() -> u32 {
    or_no_device(thread::take_last_answer)
}

/// The last error.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn hipPeekAtLastError() -> u32 {
    or_no_device(thread::last_error)
}

fn or_no_device(answer: fn() -> u32) -> u32 {
    if let Err(outcome) = gpus() {
        return crate::entry::call("", || Err(outcome));
    }
    answer()
}

/// The symbolic name of a code.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn hipGetErrorName(code: u32) -> *const c_char {
    error::name(code).as_ptr()
}

/// The description of a code.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn hipGetErrorString(code: u32) -> *const c_char {
    error::text(code).as_ptr()
}

api! {
    fn hipRuntimeGetVersion(version: Out<i32>) {
        version.required()?.set(flavour::version());
        Ok(())
    }

    fn hipDriverGetVersion(version: Out<i32>) {
        version.required()?.set(flavour::version());
        Ok(())
    }

    /// From 6.1 on. Any function of the library, whatever version the program names.
    fn hipGetProcAddress [_gpus] (
        symbol: In<c_char>,
        function: Out<Opaque>,
        _version: i32,
        _flags: u64,
        status: Out<u32>,
    ) {
        find(symbol, function, status, lookup::export)
    }

    /// From 7.2 on. The forms for the per-thread default stream.
    fn hipGetProcAddress_spt [_gpus] (
        symbol: In<c_char>,
        function: Out<Opaque>,
        _version: i32,
        _flags: u64,
        status: Out<u32>,
    ) {
        find(symbol, function, status, |name| lookup::own(name, true))
    }

    /// From 7.1 on.
    fn hipGetDriverEntryPoint [_gpus] (symbol: In<c_char>, function: Out<Opaque>, flags: u64, status: Out<u32>) {
        find(symbol, function, status, |name| lookup::own(name, flags == PER_THREAD))
    }

    fn hipGetDriverEntryPoint_spt [_gpus] (symbol: In<c_char>, function: Out<Opaque>, _flags: u64, status: Out<u32>) {
        find(symbol, function, status, |name| lookup::own(name, true))
    }
}

/// Finds a function by its name.
fn find(
    symbol: In<c_char>,
    function: Out<Opaque>,
    status: Out<u32>,
    by: impl FnOnce(&CStr) -> Option<Opaque>,
) -> Result<(), Outcome> {
    let name = CString::new(symbol.text()?).unwrap_or_default();
    require(!name.is_empty())?;
    let function = function.required()?;
    let found = by(&name);
    function.set(found.unwrap_or(Opaque::NULL));
    status.set(if found.is_some() { FOUND } else { NOT_FOUND });
    Ok(found.map(drop).ok_or(Error::INVALID_VALUE)?)
}
