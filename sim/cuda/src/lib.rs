//! The CUDA driver API on simulated GPUs, to be linked into a `libcuda.so.1`.
//!
//! Every exported function is written once with the `api!` macro (`entry.rs`), which gives it the C ABI and,
//! where it has one, its per-thread default stream variant. `table.rs` lists all of them for
//! `cuGetProcAddress` (`lookup.rs`). A function becomes visible by being in both places.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "the names of exported functions have to stay as they are")]
mod api;
mod entry;
#[allow(unsafe_code, reason = "the names of exported functions have to stay as they are")]
mod lookup;
mod machine;
mod table;
mod uuid;

use p2psim_core::{abi, functions};
