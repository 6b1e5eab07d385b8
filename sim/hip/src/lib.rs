//! The HIP runtime on simulated GPUs, to be linked into a `libamdhip64.so`.
//!
//! HIP has one library where CUDA has two: it is runtime and driver. Peer access is a matter of devices, and who may reach
//! an allocation one of allocations (`p2psim_core`, `machine/devices.rs`). Checks and their order are those of the sources
//! of releases 5.7, 6.4 and 7.1; nothing here was measured on a GPU.
//!
//! The same code serves every release; `flavour.rs` knows which one it was linked as, and `exports.map` what that exports.

#![deny(unsafe_code)]

#[path = "../../cuda/src/abi.rs"]
#[allow(unsafe_code, reason = "reads and writes what pointers from C callers point to")]
#[allow(dead_code, reason = "shared with the CUDA driver, which needs more of it")]
mod abi;
#[allow(unsafe_code, reason = "the names of exported functions have to stay as they are")]
mod api;
mod entry;
mod error;
#[allow(unsafe_code, reason = "reads a number that the linker adds")]
mod flavour;
#[path = "../../cuda/src/functions.rs"]
#[allow(unsafe_code, reason = "calls functions of the program")]
#[allow(dead_code, reason = "shared with the CUDA driver, which needs more of it")]
mod functions;
#[allow(unsafe_code, reason = "asks the dynamic linker")]
mod lookup;
mod thread;
