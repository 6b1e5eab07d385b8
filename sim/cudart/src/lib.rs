//! A CUDA runtime for tests, above whatever `libcuda.so.1` is found.
//!
//! It stands in for NVIDIA's runtime, which refuses any driver but NVIDIA's, and reaches the driver as that
//! does: at the first call one `dlopen`, one `dlsym`, and `cuGetProcAddress` for everything else
//! (`driver.rs`). It knows nothing of the simulation below, and shares only its words for what C callers hand in: whoever puts another function in the driver's
//! place decides what a call does and what it returns.
//!
//! One source serves every version; `flavour.rs` knows which one it was linked as.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "the names of exported functions have to stay as they are")]
mod api;
#[allow(unsafe_code, reason = "finds functions of the driver")]
mod driver;
mod entry;
mod error;
#[allow(unsafe_code, reason = "reads a number that the linker adds")]
mod flavour;
mod thread;

use p2psim_core::abi;
