//! Versions, errors and the way to the driver's functions.

use std::ffi::c_char;

use super::require;
use crate::abi::{In, Opaque, Out};
use crate::driver::{self, DefaultStream, Driver};
use crate::entry::api;
use crate::error::{Error, Result, given};
use crate::{flavour, thread};

/// `cudaEnableLegacyStream`, `cudaEnablePerThreadDefaultStream`.
const PER_THREAD_FLAGS: u64 = 2;
const UNKNOWN: &std::ffi::CStr = c"unrecognized error code";

/// Works without a driver, and says 0 then.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn cudaDriverGetVersion(version: Out<i32>) -> u32 {
    let Ok(version) = version.required() else { return failed(Error::INVALID_VALUE) };
    let mut number = 0;
    if let Ok(driver) = driver::get() {
        // A failure leaves 0, which is the answer for "no driver".
        let _ = driver.cuDriverGetVersion(&raw mut number);
    }
    version.set(number);
    0
}

/// Works without a driver.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn cudaRuntimeGetVersion(version: Out<i32>) -> u32 {
    let Ok(version) = version.required() else { return failed(Error::INVALID_VALUE) };
    version.set(flavour::version());
    0
}

fn failed(error: Error) -> u32 {
    thread::remember(error.0);
    given(error.0)
}

/// The last error; without a driver that is the lack of one, for ever.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn cudaGetLastError() -> u32 {
    given(driver::get().map_or_else(|error| error.0, |_| thread::take_last_error()))
}

/// The last error, without forgetting it.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn cudaPeekAtLastError() -> u32 {
    given(driver::get().map_or_else(|error| error.0, |_| thread::last_error()))
}

/// The symbolic name of a code.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn cudaGetErrorName(code: u32) -> *const c_char {
    Error::name(code).unwrap_or(UNKNOWN).as_ptr()
}

/// The description of a code.
#[unsafe(no_mangle)]
pub(crate) extern "C-unwind" fn cudaGetErrorString(code: u32) -> *const c_char {
    Error::text(code).unwrap_or(UNKNOWN).as_ptr()
}

/// A function that is not found is no failure: the program sees NULL, and the status if it wants one.
fn entry_point(
    driver: &Driver,
    default: DefaultStream,
    symbol: In<c_char>,
    function: Out<Opaque>,
    version: i32,
    flags: u64,
) -> Result<u32> {
    symbol.text()?;
    let function = function.required()?;
    require(flags <= PER_THREAD_FLAGS)?;
    let flags = if flags == 0 && default == DefaultStream::PerThread { PER_THREAD_FLAGS } else { flags };
    let (code, found, status) = driver.entry_point(symbol.pointer(), version, flags);
    function.set(found);
    match Error(code) {
        Error(0) | Error::SYMBOL_NOT_FOUND => Ok(status),
        error => Err(error),
    }
}

api! {
    /// The status came with 12.0.
    fn cudaGetDriverEntryPoint | cudaGetDriverEntryPoint_ptsz [driver, default] (
        symbol: In<c_char>,
        function: Out<Opaque>,
        flags: u64,
        status: Out<u32>,
    ) {
        let answer = entry_point(driver, default, symbol, function, flavour::version(), flags)?;
        if flavour::major() >= 12 {
            status.set(answer);
        }
        Ok(())
    }

    fn cudaGetDriverEntryPointByVersion | cudaGetDriverEntryPointByVersion_ptsz [driver, default] (
        symbol: In<c_char>,
        function: Out<Opaque>,
        version: u32,
        flags: u64,
        status: Out<u32>,
    ) {
        status.set(entry_point(driver, default, symbol, function, version as i32, flags)?);
        Ok(())
    }
}
