//! p2pshim: makes CUDA peer-to-peer copies fast, correct and observable, without rebuilding the program.
//!
//! The path of a call: program → `entry` → `call` → the real library. `call` asks `policy` what is done about it, `real` for
//! the real function and for calls of our own, and has `record` write down what happened. All of them talk in the plain values
//! of `model`, and read `api`, the table of functions. `capi` is the C interface, which enters `call` too. A module depends
//! only on modules to its right in ARCHITECTURE.md's map; read `traced` in `call/run.rs` first.

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_env = "gnu",
    target_endian = "little"
)))]
compile_error!(
    "p2pshim supports Linux with glibc on x86-64 and aarch64 only: its entry points are written for these ABIs"
);

mod api;
mod call;
pub mod capi;
mod entry;
mod machine;
mod model;
mod objects;
mod os;
mod policy;
mod real;
mod record;

use p2pshim_host::config;
