//! The C interface: with the files of `capi/` the only source of `include/p2pshim.h`, one subject a file.
//!
//! The top of the header (`cbindgen.toml`) tells callers what they owe every function. No question starts the shim;
//! what a function changes or calls, its text says.
//!
//! After the first intercepted call an option changes only if all that depends on it can
//! change under way: what a program was shown of its peers holds for good.

#![allow(non_camel_case_types, reason = "C spelling")]
#![allow(clippy::missing_safety_doc, reason = "once for all functions, at the top of the header")]

pub mod event;
pub mod finding;
pub mod lists;
pub mod settings;
pub mod state;
pub mod trace;

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::size_of;
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::call::control::Failure;

/// Major version of this header; p2pshim_version() tells that of the library.
pub const P2PSHIM_VERSION_MAJOR: c_int = 0;
/// Minor version of this header.
pub const P2PSHIM_VERSION_MINOR: c_int = 1;
/// Patch version of this header.
pub const P2PSHIM_VERSION_PATCH: c_int = 0;

/// What a p2pshim_* function returns. p2pshim_status_name() and p2pshim_status_text() say it in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum p2pshim_status_t {
    /// Done.
    P2PSHIM_OK = 0,
    /// A pointer is NULL, a struct's size is smaller than any version of it, or an argument contradicts another.
    P2PSHIM_INVALID_ARGUMENT = 1,
    /// The index is not below the count, or there can be no such device.
    P2PSHIM_OUT_OF_RANGE = 2,
    /// There is no option of that name.
    P2PSHIM_UNKNOWN_NAME = 3,
    /// The option has no such value.
    P2PSHIM_INVALID_VALUE = 4,
    /// It cannot change any more: the options have been read, or a trace lies elsewhere.
    P2PSHIM_TOO_LATE = 5,
    /// The text is longer than the buffer; what fits has been written.
    P2PSHIM_TOO_SMALL = 6,
    /// The shim only forwards calls: P2PSHIM=off, or the process is a forked child.
    P2PSHIM_INACTIVE = 7,
    /// There is nothing of the kind: no finding yet, no trace, no such listener.
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

/// All that a function may return, with its name and what it means.
const STATUSES: [(p2pshim_status_t, &CStr, &CStr); 15] = [
    (P2PSHIM_OK, c"P2PSHIM_OK", c"done"),
    (
        P2PSHIM_INVALID_ARGUMENT,
        c"P2PSHIM_INVALID_ARGUMENT",
        c"a pointer is NULL, a struct's size is too small, or an argument contradicts another",
    ),
    (
        P2PSHIM_OUT_OF_RANGE,
        c"P2PSHIM_OUT_OF_RANGE",
        c"the index is not below the count, or there can be no such device",
    ),
    (P2PSHIM_UNKNOWN_NAME, c"P2PSHIM_UNKNOWN_NAME", c"there is no option of that name"),
    (P2PSHIM_INVALID_VALUE, c"P2PSHIM_INVALID_VALUE", c"the option has no such value"),
    (
        P2PSHIM_TOO_LATE,
        c"P2PSHIM_TOO_LATE",
        c"it cannot change any more: the options have been read, or a trace lies elsewhere",
    ),
    (P2PSHIM_TOO_SMALL, c"P2PSHIM_TOO_SMALL", c"the text is longer than the buffer; what fits has been written"),
    (
        P2PSHIM_INACTIVE,
        c"P2PSHIM_INACTIVE",
        c"the shim only forwards calls: P2PSHIM=off, or the process is a forked child",
    ),
    (
        P2PSHIM_NOT_FOUND,
        c"P2PSHIM_NOT_FOUND",
        c"there is nothing of the kind: no finding yet, no trace, no such listener",
    ),
    (P2PSHIM_NO_DRIVER, c"P2PSHIM_NO_DRIVER", c"no library of the driver is loaded"),
    (
        P2PSHIM_STAGED,
        c"P2PSHIM_STAGED",
        c"copies between the two devices go through the host; p2pshim_pair_state_get() says why",
    ),
    (
        P2PSHIM_SYSTEM_ERROR,
        c"P2PSHIM_SYSTEM_ERROR",
        c"the system has refused something; a warning in the log says what",
    ),
    (P2PSHIM_FULL, c"P2PSHIM_FULL", c"there are as many as there can be"),
    (
        P2PSHIM_INTERNAL_ERROR,
        c"P2PSHIM_INTERNAL_ERROR",
        c"a fault of the shim, or a call from inside its own work; nothing has changed",
    ),
    (
        P2PSHIM_NOT_READY,
        c"P2PSHIM_NOT_READY",
        c"not now: a device has no context yet or is busy, or a stream is being captured",
    ),
];

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
/// @param status What a function has returned; any number is accepted.
/// @return A text such as "P2PSHIM_OK", which lives as long as the library; "unknown" for a number that is no status.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_status_name(status: c_int) -> *const c_char {
    let found = STATUSES.iter().find(|(of, ..)| *of as c_int == status);
    found.map_or(c"unknown", |&(_, name, _)| name).as_ptr()
}

/// What a status means, in a sentence.
///
/// Thread-safety: any thread, at any time, in signal handlers too.
///
/// @param status What a function has returned; any number is accepted.
/// @return A text that lives as long as the library; "unknown" for a number that is no status.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_status_text(status: c_int) -> *const c_char {
    let found = STATUSES.iter().find(|(of, ..)| *of as c_int == status);
    found.map_or(c"unknown", |&(.., text)| text).as_ptr()
}

/// A text of the tables as C sees it; they end in NUL.
fn text(text: &'static str) -> *const c_char {
    text.as_ptr().cast()
}

/// A text that is kept as long as the library, once for all that are equal. Only for texts of which there are few. Without a
/// lock, which another thread might have held when the process was forked.
fn kept(text: CString) -> *const c_char {
    struct Kept {
        text: CString,
        next: *const Kept,
    }
    static LAST: AtomicPtr<Kept> = AtomicPtr::new(null_mut());
    let mut last = LAST.load(Acquire);
    let mut one = last.cast_const();
    // SAFETY: what is in the list never changes, and is never freed.
    while let Some(kept) = unsafe { one.as_ref() } {
        if kept.text == text {
            return kept.text.as_ptr();
        }
        one = kept.next;
    }
    let address = text.as_ptr();
    let added = Box::into_raw(Box::new(Kept { text, next: last }));
    // Two threads may keep the same; that is two.
    while let Err(newer) = LAST.compare_exchange_weak(last, added, AcqRel, Acquire) {
        last = newer;
        // SAFETY: nobody else knows it yet.
        unsafe { (*added).next = newer };
    }
    address
}

/// A caller's text.
///
/// # Safety
/// `text` is NULL or a C string that lives as long as what is returned.
unsafe fn given<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's promise.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// Writes as much of a text as there is room for, and the terminating NUL; and the whole length, if that is wanted.
///
/// # Safety
/// `buffer` has `size` bytes, or is NULL; `length` points to one number, or is NULL.
unsafe fn put(text: &[u8], buffer: *mut c_char, size: usize, length: *mut usize) -> p2pshim_status_t {
    if buffer.is_null() && size > 0 {
        return P2PSHIM_INVALID_ARGUMENT;
    }
    if !length.is_null() {
        // SAFETY: the caller's promise.
        unsafe { length.write_unaligned(text.len()) };
    }
    let Some(room) = size.checked_sub(1) else { return P2PSHIM_TOO_SMALL };
    let fits = text.len().min(room);
    // SAFETY: there is room for `fits` bytes and one more; a local text cannot overlap it.
    unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), fits);
        buffer.add(fits).write(0);
    }
    if fits < text.len() { P2PSHIM_TOO_SMALL } else { P2PSHIM_OK }
}

/// Copies as much of `from` as the caller's struct has room for; its size field stays the caller's.
///
/// # Safety
/// `T` is `repr(C)` and begins with its size. `to` is NULL or points to that many bytes.
unsafe fn give<T>(from: &T, to: *mut T, oldest: usize) -> p2pshim_status_t {
    if to.is_null() {
        return P2PSHIM_INVALID_ARGUMENT;
    }
    // SAFETY: the caller's promise; every version of a struct begins with its size, wherever it lies.
    let size = unsafe { to.cast::<usize>().read_unaligned() };
    if size < oldest {
        return P2PSHIM_INVALID_ARGUMENT;
    }
    let header = size_of::<usize>();
    let known = size.min(size_of::<T>());
    // SAFETY: both hold at least `known` bytes, and they cannot overlap: one is our local.
    unsafe {
        let from = std::ptr::from_ref(from).cast::<u8>().add(header);
        to.cast::<u8>().add(header).copy_from_nonoverlapping(from, known - header);
    }
    P2PSHIM_OK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_header_and_library_agree() {
        // SAFETY: the function returns a C string.
        let version = unsafe { CStr::from_ptr(p2pshim_version()) }.to_str().unwrap();
        assert_eq!(version, format!("{P2PSHIM_VERSION_MAJOR}.{P2PSHIM_VERSION_MINOR}.{P2PSHIM_VERSION_PATCH}"));
    }

    #[test]
    fn statuses_are_numbered_from_0_and_named_as_in_the_header() {
        for (number, (status, name, text)) in STATUSES.iter().enumerate() {
            assert_eq!((*status as usize, format!("{status:?}").as_str()), (number, name.to_str().unwrap()));
            assert!(!text.is_empty());
        }
    }

    #[test]
    fn put_what_does_not_fit_is_cut_off_and_ends_in_nul() {
        let mut buffer = [b'x' as c_char; 4];
        let mut length = 0;
        // SAFETY: the buffer has as many bytes as is said.
        unsafe {
            assert_eq!(put(b"abc", buffer.as_mut_ptr(), 4, &mut length), P2PSHIM_OK);
            assert_eq!((CStr::from_ptr(buffer.as_ptr()).to_bytes(), length), (&b"abc"[..], 3));
            assert_eq!(put(b"abc", buffer.as_mut_ptr(), 3, std::ptr::null_mut()), P2PSHIM_TOO_SMALL);
            assert_eq!(CStr::from_ptr(buffer.as_ptr()).to_bytes(), b"ab");
            assert_eq!(put(b"abcdef", std::ptr::null_mut(), 0, &mut length), P2PSHIM_TOO_SMALL);
            assert_eq!(length, 6);
            assert_eq!(put(b"", std::ptr::null_mut(), 1, &mut length), P2PSHIM_INVALID_ARGUMENT);
        }
    }

    #[test]
    fn give_struct_that_is_not_aligned_is_written() {
        #[repr(C)]
        struct Two(usize, u64);
        #[repr(C, packed)]
        struct Shifted(u8, Two);
        let mut shifted = Shifted(7, Two(size_of::<Two>(), 0));
        // SAFETY: there are as many bytes as is said.
        assert_eq!(unsafe { give(&Two(0, 5), &raw mut shifted.1, size_of::<Two>()) }, P2PSHIM_OK);
        let Shifted(before, Two(size, value)) = shifted;
        assert_eq!((before, size, value), (7, size_of::<Two>(), 5));
    }

    #[test]
    fn kept_equal_texts_are_one() {
        let [one, again, other] = [c"one", c"one", c"other"].map(|text| kept(text.to_owned()));
        assert!(one == again && one != other);
    }
}
