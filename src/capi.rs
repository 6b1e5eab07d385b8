//! The C interface. Each file of `capi/` is a group of `include/p2pshim.h`, which is made from them.
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
pub mod options;
pub mod pair;
pub mod process;
pub mod status;
pub mod trace;
pub mod verdict;

use std::ffi::{CStr, CString, c_char};
use std::mem::size_of;
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use status::p2pshim_status_t::{self, *};

use crate::call::mode::caught;
use crate::os;

/// Runs a function's work. Signals wait meanwhile: a handler's call may have a finding, or leave by `longjmp`, while we hold a lock. A
/// panic ends here.
fn guarded(work: impl FnOnce() -> p2pshim_status_t) -> p2pshim_status_t {
    os::undisturbed(|| unbroken(work))
}

/// Runs the work of a function that waits, and holds signals back where it locks by itself.
fn unbroken(work: impl FnOnce() -> p2pshim_status_t) -> p2pshim_status_t {
    caught(|| Some(work())).unwrap_or(P2PSHIM_INTERNAL_ERROR)
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
    // SAFETY: the caller's promise.
    unsafe { tell(text.len(), length) };
    let Some(room) = size.checked_sub(1) else { return P2PSHIM_TOO_SMALL };
    let fits = text.len().min(room);
    // SAFETY: there is room for `fits` bytes and one more; a local text cannot overlap it.
    unsafe {
        buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), fits);
        buffer.add(fits).write(0);
    }
    if fits < text.len() { P2PSHIM_TOO_SMALL } else { P2PSHIM_OK }
}

/// Writes a number, if it is wanted.
///
/// # Safety
/// `to` points to one number, or is NULL.
unsafe fn tell<T>(number: T, to: *mut T) {
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { to.write_unaligned(number) };
    }
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
