//! Finding the real functions: where a call goes once we have seen it.
//!
//! Every route in has a [`Slot`](slot::Slot): one for each symbol version under which a function is exported,
//! and a few that are claimed as the program looks functions up. A slot holds the pointer of the
//! real function, and a call through it goes there and nowhere else; so two runtimes in one process
//! each get their own calls.

pub(crate) mod driver;
pub(crate) mod hip;
pub(crate) mod loader;
pub(crate) mod nvml;
pub(crate) mod python;
mod route;
pub(crate) mod runtime;
pub(crate) mod slot;
pub(crate) mod stack;

use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::api::abi::Code;
use crate::os;
use crate::policy::driver::Scratch;

/// A function of a library, looked for once.
struct LazySymbol(AtomicPtr<c_void>);

impl LazySymbol {
    /// In place of the address of a function that the library does not have.
    const ABSENT: *mut c_void = ptr::without_provenance_mut(1);

    const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// A library that is there and lacks it is not asked again: then `look` returns `Some(None)`.
    fn get(&self, look: impl FnOnce() -> Option<Option<*mut c_void>>) -> Option<*mut c_void> {
        let mut found = self.0.load(Acquire);
        if found.is_null() {
            found = os::undisturbed(|| {
                let found = look().map(|found| found.filter(|&found| loader::pin(found)).unwrap_or(Self::ABSENT));
                loader::forget_error();
                found
            })?;
            self.0.store(found, Release);
        }
        (found != Self::ABSENT).then_some(found)
    }
}

fn checked(code: Code) -> Result<(), Code> {
    if code == Code::SUCCESS { Ok(()) } else { Err(code) }
}

/// Whether what was asked for is ready; an error unless it is, or is not yet.
fn is_ready(code: Code) -> Result<bool, Code> {
    if code == Code::NOT_READY { Ok(false) } else { checked(code).map(|()| true) }
}

/// Runs `work` while the calling thread's capture mode is relaxed, which `exchange` swaps, after a panic too. None where it cannot be
/// swapped, unless `may_fail` says that this does not matter.
fn relaxed<T>(
    exchange: impl Fn(&mut c_uint) -> Code,
    may_fail: impl FnOnce(Code) -> bool,
    work: impl FnOnce() -> T,
) -> Option<T> {
    /// `CU_STREAM_CAPTURE_MODE_RELAXED`, `hipStreamCaptureModeRelaxed`.
    const RELAXED: c_uint = 2;
    let mut mode = RELAXED;
    let code = exchange(&mut mode);
    if code != Code::SUCCESS && !may_fail(code) {
        return None;
    }
    let restore = || {
        if code == Code::SUCCESS {
            exchange(&mut mode);
        }
    };
    Some(os::finally(restore, work))
}

/// The value that a function writes which takes a place for it.
fn asked<T: Default>(ask: impl FnOnce(&mut T) -> Code) -> Result<T, Code> {
    let mut place = T::default();
    checked(ask(&mut place)).map(|()| place)
}

/// Writes bytes to where a scratch uploads from, as many as fit; how many.
fn fill(to: &Scratch, bytes: &[u8]) -> usize {
    let count = bytes.len().min(to.half());
    // SAFETY: the scratch's page-locked memory is ours and has that many bytes. A copy from it that an earlier verification has left
    // under way reads other bytes then, which nobody looks at.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.host as *mut u8, count) };
    count
}

/// The bytes that were downloaded from a scratch; none if there is no memory for them.
fn downloaded(from: &Scratch, bytes: usize) -> Option<Vec<u8>> {
    let bytes = bytes.min(from.half());
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes).ok()?;
    copy.resize(bytes, 0);
    // SAFETY: the second half of the scratch's page-locked memory has that many bytes, and no copy to it is under way.
    unsafe { ptr::copy_nonoverlapping((from.host + from.half()) as *const u8, copy.as_mut_ptr(), bytes) };
    Some(copy)
}
