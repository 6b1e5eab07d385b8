//! Simulated GPUs: devices, memory, streams, events, contexts and peer access. The libraries above it have the ABIs; what
//! C callers hand to all of them is in [`abi`] and [`functions`].
//!
//! [`Machine`] is the whole simulation behind one lock. Work that a GPU would do becomes a `Work` and goes
//! through one door, `State::submit`, to the worker thread of its `Stream`. Order is decided when work is
//! submitted: each piece carries the `Fence`s that it waits for, so that the rules of the default streams are
//! a matter of choosing fences and nothing else.
//!
//! Codes, orders and limits are those measured on real GPUs, or documented where nothing was measured.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "reads and writes what pointers from C callers point to")]
pub mod abi;
mod access;
mod capture;
pub mod config;
pub mod current;
mod declared;
mod error;
pub mod fault;
mod fence;
#[allow(unsafe_code, reason = "calls functions of the program")]
pub mod functions;
mod gate;
mod grants;
mod graph;
mod ids;
mod kernel;
pub mod machine;
mod nvlink;
#[allow(unsafe_code, reason = "the one place that touches raw memory and the operating system")]
mod os;
mod peers;
mod space;
mod stream;
mod traffic;
mod transfer;
mod visible;
mod work;

pub use access::{NO_ACCESS, READ_WRITE};
pub use capture::{CaptureInfo, CaptureMode, Changed};
pub use declared::PARAMETERS;
pub use error::{Error, Result};
pub use machine::Machine;
pub use os::{at_exit, at_fork_in_child, inject};
pub use space::{Allocation, DEVICE_MEMORY, GRANULE, Kind, Owner};
pub use stream::{Role, on_worker};
pub use visible::{Repeated, visible};
pub use work::Extent;
