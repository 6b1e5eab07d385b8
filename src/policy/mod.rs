//! What is done about a call before it is made.
//!
//! Decisions are made at the driver layer, where every client of CUDA ends, over plain values and through the small
//! [`Driver`], so that they are tested without a driver.

#![forbid(unsafe_code)]

pub(crate) mod capture;
#[allow(dead_code, reason = "P2PSHIM_PROBE=full does not call it yet")]
pub(crate) mod full;

use crate::api::Function;
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code};
use crate::config::Config;

/// What decisions ask the real driver. Nothing here waits for a device.
pub(crate) trait Driver {
    /// Whether the stream is being captured; none if the driver cannot tell. `per_thread` says which default stream a
    /// null handle means.
    fn is_capturing(&self, stream: usize, per_thread: bool) -> Option<bool>;

    /// Whether an address is that of memory on a device.
    fn is_device_memory(&self, address: u64) -> bool;
}

/// An asynchronous peer copy, as the driver is asked for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PeerCopy {
    /// What is copied.
    pub(crate) copied: Copied,
    /// The stream's handle.
    pub(crate) stream: usize,
}

/// What a copy copies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Copied {
    /// A number of bytes.
    Linear { dst: usize, src: usize, bytes: usize },
    /// A box of bytes.
    Box(CUDA_MEMCPY3D_PEER),
}

/// What becomes of a call.
#[expect(clippy::large_enum_variant, reason = "it stays on the stack of a hook, where nothing may have a destructor")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// The real function gets it as it came.
    Forward,
    /// Another function of the driver does the same in its place.
    Instead(capture::Replacement),
}

/// Takes over the options, once, before the first decision.
pub(crate) fn configure(config: &Config) {
    capture::configure(config.rewrites_captured);
}

/// Whether there is anything to decide about calls of this function. Known at compile time for most.
#[inline(always)]
pub(crate) fn concerns(function: Function) -> bool {
    capture::is_refused_in_captures(function) && capture::may_be_under_way()
}

/// Decides about a copy that [`concerns`] us, on a stream that is being captured.
pub(crate) fn decide(driver: &impl Driver, function: Function, copy: &PeerCopy) -> Verdict {
    capture::decide(driver, function, copy)
}

/// Takes note of a call of a state row that has returned.
pub(crate) fn note(function: Function, ret: Code) {
    capture::note(function, ret);
}
