//! The version, and the statuses that functions return.

use std::ffi::{c_char, c_int};

use crate::call::control::Failure;

/// Major version of this header; p2pshim_version() tells that of the library.
pub const P2PSHIM_VERSION_MAJOR: c_int = 0;
/// Minor version of this header.
pub const P2PSHIM_VERSION_MINOR: c_int = 1;
/// Patch version of this header.
pub const P2PSHIM_VERSION_PATCH: c_int = 0;

/// The outcome of a function. p2pshim_status_name() and p2pshim_status_text() say it in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum p2pshim_status_t {
    /// Done.
    P2PSHIM_OK = 0,
    /// A pointer is NULL, a struct's size is smaller than any version of it, or an argument contradicts another.
    P2PSHIM_INVALID_ARGUMENT = 1,
    /// The index is not below the count, or there can be no such device.
    P2PSHIM_OUT_OF_RANGE = 2,
    /// There is no option, function or rule of that name.
    P2PSHIM_UNKNOWN_NAME = 3,
    /// The option has no such value.
    P2PSHIM_INVALID_VALUE = 4,
    /// It cannot change any more: the options have been read, or a trace lies elsewhere.
    P2PSHIM_TOO_LATE = 5,
    /// The text is longer than the buffer; what fits has been written.
    P2PSHIM_TOO_SMALL = 6,
    /// The shim only forwards calls: P2PSHIM=off, or the process is a forked child.
    P2PSHIM_INACTIVE = 7,
    /// There is nothing of the kind: no finding yet, no trace, no such callback.
    P2PSHIM_NOT_FOUND = 8,
    /// No library of the driver is loaded.
    P2PSHIM_NO_DRIVER = 9,
    /// Copies between the two devices go through the host; p2pshim_pair_state_get() says why.
    P2PSHIM_STAGED = 10,
    /// The system has refused something; a warning in the log says what.
    P2PSHIM_SYSTEM_ERROR = 11,
    /// There are as many as there can be.
    P2PSHIM_FULL = 12,
    /// A fault of the shim, or a call from inside its own work; nothing has changed.
    P2PSHIM_INTERNAL_ERROR = 13,
    /// Not now: a device has no context yet or is busy, or a stream is being captured.
    P2PSHIM_NOT_READY = 14,
}

use p2pshim_status_t::*;

impl From<Result<(), Failure>> for p2pshim_status_t {
    fn from(result: Result<(), Failure>) -> Self {
        match result {
            Ok(()) => P2PSHIM_OK,
            Err(Failure::Inactive) => P2PSHIM_INACTIVE,
            Err(Failure::Value) => P2PSHIM_INVALID_VALUE,
            Err(Failure::TooLate) => P2PSHIM_TOO_LATE,
            Err(Failure::NoTrace) => P2PSHIM_NOT_FOUND,
            Err(Failure::NoDriver) => P2PSHIM_NO_DRIVER,
            Err(Failure::NotReady) => P2PSHIM_NOT_READY,
            Err(Failure::System) => P2PSHIM_SYSTEM_ERROR,
            Err(Failure::Internal) => P2PSHIM_INTERNAL_ERROR,
        }
    }
}

/// Statuses with their names and meanings, which end in NUL.
macro_rules! statuses {
    ($($status:ident: $text:literal,)*) => {
        &[$(($status, concat!(stringify!($status), "\0"), concat!($text, "\0"))),*]
    };
}

/// All that a function may return.
const STATUSES: &[(p2pshim_status_t, &str, &str)] = statuses! {
    P2PSHIM_OK: "done",
    P2PSHIM_INVALID_ARGUMENT: "a pointer is NULL, a struct's size is too small, or an argument contradicts another",
    P2PSHIM_OUT_OF_RANGE: "the index is not below the count, or there can be no such device",
    P2PSHIM_UNKNOWN_NAME: "there is no option, function or rule of that name",
    P2PSHIM_INVALID_VALUE: "the option has no such value",
    P2PSHIM_TOO_LATE: "it cannot change any more: the options have been read, or a trace lies elsewhere",
    P2PSHIM_TOO_SMALL: "the text is longer than the buffer; what fits has been written",
    P2PSHIM_INACTIVE: "the shim only forwards calls: P2PSHIM=off, or the process is a forked child",
    P2PSHIM_NOT_FOUND: "there is nothing of the kind: no finding yet, no trace, no such callback",
    P2PSHIM_NO_DRIVER: "no library of the driver is loaded",
    P2PSHIM_STAGED: "copies between the two devices go through the host; p2pshim_pair_state_get() says why",
    P2PSHIM_SYSTEM_ERROR: "the system has refused something; a warning in the log says what",
    P2PSHIM_FULL: "there are as many as there can be",
    P2PSHIM_INTERNAL_ERROR: "a fault of the shim, or a call from inside its own work; nothing has changed",
    P2PSHIM_NOT_READY: "not now: a device has no context yet or is busy, or a stream is being captured",
};

/// The version of the library.
///
/// Thread-safety: any thread, at any time, in signal handlers too.
///
/// @return A text such as "0.1.0", which lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The name of a status.
///
/// Thread-safety: any thread, at any time, in signal handlers too.
///
/// @param status The value that a function has returned; any number is accepted.
/// @return A text such as "P2PSHIM_OK", which lives as long as the library; "unknown" for a number that is no status.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_status_name(status: c_int) -> *const c_char {
    let found = STATUSES.iter().find(|(of, ..)| *of as c_int == status);
    found.map_or("unknown\0", |&(_, name, _)| name).as_ptr().cast()
}

/// The meaning of a status, in a sentence.
///
/// Thread-safety: any thread, at any time, in signal handlers too.
///
/// @param status The value that a function has returned; any number is accepted.
/// @return A text that lives as long as the library; "unknown" for a number that is no status.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_status_text(status: c_int) -> *const c_char {
    let found = STATUSES.iter().find(|(of, ..)| *of as c_int == status);
    found.map_or("unknown\0", |&(.., text)| text).as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn version_header_and_library_agree() {
        // SAFETY: the function returns a C string.
        let version = unsafe { CStr::from_ptr(p2pshim_version()) }.to_str().unwrap();
        assert_eq!(version, format!("{P2PSHIM_VERSION_MAJOR}.{P2PSHIM_VERSION_MINOR}.{P2PSHIM_VERSION_PATCH}"));
    }

    #[test]
    fn statuses_are_numbered_from_0_and_named_as_in_the_header() {
        for (number, (status, name, text)) in STATUSES.iter().enumerate() {
            assert_eq!((*status as usize, format!("{status:?}\0").as_str()), (number, *name));
            assert!(text.len() > 1 && text.ends_with('\0'));
        }
    }
}
