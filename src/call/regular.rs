//! Regular copies, `cudaMemcpyAsync` and the like, which name no devices: those whose pointers lie on two devices are ours, and
//! all others are passed on as if there were no shim: neither recorded nor counted nor checked.
//!
//! The pointers are known as those of peer copies are ([memory](crate::policy::memory)). Memory of the host that the driver does not know is
//! remembered too, and asked about again now and then, since a device's may come to lie there. If the shim takes a copy between
//! devices for another, that costs a word in the log or a slower copy. Once any pair is blocked it would cost bytes: then the driver is asked
//! about each copy.

use std::sync::atomic::Ordering::Relaxed;

use super::arrival::Call;
use super::mode;
use super::thread::{self, Thread};
use crate::api::{CopyKind, Effect, Function, Layer};
use crate::model::Memcpy;
use crate::policy::ACCESS;
use crate::policy::access::Between;
use crate::real::driver::RealDriver;

/// After so many copies with memory that the driver did not know it is asked again about the next. A prime, so that of copies
/// that a loop makes in turn each is.
const AGAIN: u8 = 250;

#[inline(always)]
pub(super) fn is_regular(function: Function) -> bool {
    matches!(function.effect(), Effect::Copy(CopyKind { is_regular: true, .. }))
}

#[inline(always)]
fn is_known_to_pass(call: &Call<'_>) -> bool {
    // The call says that the host takes part, or cannot be read; or it copies nothing.
    let Some(copy) = call.request.copy().filter(|copy| copy.has_ends()) else { return true };
    if is_asked_each_time(call.function().layer()) {
        return false;
    }
    match ACCESS.between(copy) {
        Some(Between::Others) => true,
        Some(Between::Unknown) => !is_asked_again(thread::current()),
        Some(Between::Devices) | None => false,
    }
}

/// Whether the driver is asked about each copy: once any pair is blocked, where it is decided who makes them.
#[inline(always)]
fn is_asked_each_time(layer: Layer) -> bool {
    matches!(layer, Layer::Driver) && ACCESS.blocks()
}

/// Whether the driver is asked again about memory that it did not know.
#[inline(always)]
fn is_asked_again(thread: &Thread) -> bool {
    let turn = thread.not_asked.load(Relaxed);
    if turn == AGAIN {
        return true;
    }
    thread.not_asked.store(turn + 1, Relaxed);
    false
}

/// Whether a copy of a batch goes between devices; none if the driver is to be asked.
#[inline(always)]
pub(super) fn goes_between_devices(copy: &Memcpy<'_>) -> Option<bool> {
    match ACCESS.between(copy)? {
        Between::Devices => Some(true),
        Between::Others => Some(false),
        Between::Unknown if is_asked_again(thread::current()) => None,
        Between::Unknown => Some(false),
    }
}

/// Whether a call is passed on as it came. The driver is asked about memory that is not known.
#[inline(always)]
pub(crate) fn is_passed_on(call: &Call<'_>) -> bool {
    is_regular(call.function()) && (is_known_to_pass(call) || !is_ours(call))
}

#[cold]
#[inline(never)]
fn is_ours(call: &Call<'_>) -> bool {
    let Some(copy) = call.request.copy() else { return false };
    if ACCESS.between(copy) == Some(Between::Devices) {
        return true;
    }
    thread::current().not_asked.store(0, Relaxed);
    mode::unseen(|| ACCESS.ask_between(&RealDriver, copy) == Between::Devices)
}
