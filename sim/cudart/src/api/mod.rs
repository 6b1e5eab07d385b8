//! The exported functions. Handles and device addresses are plain numbers here, as the driver takes them.

#![allow(non_snake_case, reason = "the vendor's names")]

mod batches;
mod copies;
mod devices;
mod global;
mod graphs;
mod kernels;
mod memory;
mod peers;
mod pools;
mod streams;
mod structs;

use crate::error::{Error, Result};

/// Succeeds if a program's argument is one that the API allows.
fn require(condition: bool) -> Result<()> {
    if condition { Ok(()) } else { Err(Error::INVALID_VALUE) }
}
