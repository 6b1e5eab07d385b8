//! The HIP runtime on simulated GPUs, to be linked into a `libamdhip64.so`.
//!
//! HIP has one library where CUDA has two: it is runtime and driver. Peer access is a matter of devices, and who may reach
//! an allocation one of allocations (`p2psim_core`, `machine/devices.rs`). Checks and their order are those of the sources
//! of releases 5.7, 6.4 and 7.1; nothing here was measured on a GPU.
//!
//! One source serves every release; `flavour.rs` knows which one it was linked as, and `exports.map` what that exports.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "the names of exported functions have to stay as they are")]
mod api;
mod entry;
mod error;
#[allow(unsafe_code, reason = "reads a number that the linker adds")]
mod flavour;
#[allow(unsafe_code, reason = "asks the dynamic linker")]
mod lookup;
mod thread;

use p2psim_core::{abi, functions};
