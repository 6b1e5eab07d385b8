//! Regular copies, `cudaMemcpyAsync` and the like, which name no devices: those whose pointers lie on two devices are ours, and
//! all others are passed on as if there were no shim: neither recorded nor counted nor checked.
//!
//! The pointers are known as those of peer copies are ([memory](crate::objects::memory)). Memory of the host that the driver does not know is
//! remembered too, and asked about again now and then, since a device's may come to lie there. If the shim takes a copy between
//! devices for another, that costs a word in the log or a slower copy. Once any pair is blocked it would cost bytes: then the driver is asked
//! about each copy.

use std::sync::atomic::Ordering::Relaxed;

use super::arrival::Call;
use super::decision::Reason;
use super::mode;
use super::thread::{self, Thread};
use crate::api::Layer;
use crate::model::Memcpy;
use crate::policy::ACCESS;
use crate::policy::access::Between;
use crate::real::driver::RealDriver;

/// After so many copies with memory that the driver did not know it is asked again about the next. A prime, so that of copies
/// that a loop makes in turn each is.
const AGAIN: u8 = 250;

/// Why a call of CUDA is passed on as it came, if it is. The driver is asked about memory that is not known.
#[inline(always)]
pub(super) fn passed_on(call: &Call<'_>) -> Option<Reason> {
    if !call.function().is_regular() {
        return None;
    }
    // The call says that the host takes part, or cannot be read; or it copies nothing.
    let Some(copy) = call.request.copy().filter(|copy| copy.has_ends()) else { return Some(Reason::OfTheHost) };
    // Once any pair is blocked the driver is asked about each of its copies: it is decided there who makes them.
    let is_known = call.function().layer() != Layer::Driver || !ACCESS.blocks();
    let is_between = if is_known { goes_between_devices(copy) } else { None };
    if is_between.unwrap_or_else(|| ask(copy)) { None } else { Some(Reason::NotBetweenDevices) }
}

/// Whether a copy goes between devices; none if the driver is to be asked.
#[inline(always)]
pub(super) fn goes_between_devices(copy: &Memcpy<'_>) -> Option<bool> {
    match ACCESS.between(copy)? {
        Between::Devices => Some(true),
        Between::Others => Some(false),
        Between::Unknown if is_asked_again(thread::current()) => None,
        Between::Unknown => Some(false),
    }
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

#[cold]
#[inline(never)]
fn ask(copy: &Memcpy<'_>) -> bool {
    if ACCESS.between(copy) == Some(Between::Devices) {
        return true;
    }
    thread::current().not_asked.store(0, Relaxed);
    mode::unseen(|| ACCESS.ask_between(&RealDriver, copy) == Between::Devices)
}
