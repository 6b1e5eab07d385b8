//! Regular copies, `cudaMemcpyAsync` and the like, which name no devices: those whose pointers lie on two devices are ours, and
//! all others are passed on: neither counted nor checked, and only large ones with the host have a record ([`super::host`]).
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
use crate::api::abi::{Value, is_between_devices};
use crate::api::{Function, Layer};
use crate::model::Memcpy;
use crate::policy::ACCESS;
use crate::policy::access::Between;
use crate::real::driver::RealDriver;

/// After so many copies with memory that the driver did not know it is asked again about the next. A prime, so that of copies
/// that a loop makes in turn each is.
const AGAIN: u8 = 250;

/// A call, as far as its arguments tell and is known without a question.
pub(super) enum Look {
    /// A regular copy of CUDA in one dimension that does not go between devices, as far as is known, or copies nothing.
    Leaves,
    /// One that does.
    Between,
    /// Anything else.
    Open,
}

/// Looks whether a call can leave at once.
#[inline(always)]
pub(super) fn look(function: Function, arguments: &[Value]) -> Look {
    match *arguments {
        _ if !function.is_regular() || function.layer() == Layer::Hip => Look::Open,
        [.., Value::MemcpyKind(kind)] | [.., Value::MemcpyKind(kind), Value::Stream(_)]
            if !is_between_devices(kind) =>
        {
            Look::Leaves
        }
        // It copies nothing.
        [Value::Address(_), Value::Address(_), Value::UInt(0), ..] => Look::Leaves,
        [Value::Address(dst), Value::Address(src), Value::UInt(_), ..] if is_known(function) => {
            match ACCESS.between([src as u64, dst as u64]) {
                Some(Between::Others) => Look::Leaves,
                Some(Between::Devices) => Look::Between,
                Some(Between::Unknown) if !take_turn_to_ask(thread::current()) => Look::Leaves,
                Some(Between::Unknown) | None => Look::Open,
            }
        }
        _ => Look::Open,
    }
}

/// Whether memory need not be asked about that is known. Once any pair is blocked the driver is asked about each of its copies: it is decided there who
/// makes them.
#[inline(always)]
fn is_known(function: Function) -> bool {
    function.layer() != Layer::Driver || !ACCESS.blocks()
}

/// Why a call of CUDA is passed on as it came, if it is. The driver is asked about memory that is not known.
#[inline(always)]
pub(super) fn passed_on(call: &Call<'_>) -> Option<Reason> {
    if !call.function().is_regular() || call.function().layer() == Layer::Hip {
        return None;
    }
    // The call says that the host takes part, or cannot be read; or it copies nothing.
    let Some(copy) = call.request.copy().filter(|copy| copy.has_ends()) else { return Some(Reason::OfTheHost) };
    let is_between = if is_known(call.function()) { goes_between_devices(copy) } else { None };
    if is_between.unwrap_or_else(|| ask(copy)) { None } else { Some(Reason::NotBetweenDevices) }
}

/// Whether a copy goes between devices; none if the driver is to be asked.
#[inline(always)]
pub(super) fn goes_between_devices(copy: &Memcpy<'_>) -> Option<bool> {
    match ACCESS.between([copy.src, copy.dst])? {
        Between::Devices => Some(true),
        Between::Others => Some(false),
        Between::Unknown if take_turn_to_ask(thread::current()) => None,
        Between::Unknown => Some(false),
    }
}

/// Whether the driver is asked again about memory that it did not know.
#[inline(always)]
fn take_turn_to_ask(thread: &Thread) -> bool {
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
    if ACCESS.between([copy.src, copy.dst]) == Some(Between::Devices) {
        return true;
    }
    thread::current().not_asked.store(0, Relaxed);
    mode::unseen(|| ACCESS.ask_between(&RealDriver, copy) == Between::Devices)
}
