//! p2pshim: makes CUDA peer-to-peer copies fast, correct and observable, without rebuilding the program.
//!
//! The way of a call: program → `entry` → `policy` → `real` → the real library; `record` writes down
//! what happened. `api` is the list of functions that all of them read. ARCHITECTURE.md tells the
//! rest.

#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
compile_error!("p2pshim supports x86-64 Linux with glibc only: its entry points are written for that ABI");

mod api;
mod call;
pub mod capi;
mod entry;
mod model;
mod os;
mod policy;
mod real;
mod record;

use p2pshim_host::config;
