//! The exported functions. Handles are plain numbers here: a C caller's pointers, which only the core can judge.

#![allow(non_snake_case, reason = "the vendor's names")]

pub(crate) mod batches;
pub(crate) mod boxes;
pub(crate) mod contexts;
pub(crate) mod copies;
pub(crate) mod devices;
pub(crate) mod events;
pub(crate) mod global;
pub(crate) mod graphs;
pub(crate) mod memory;
pub(crate) mod peers;
pub(crate) mod sharing;
pub(crate) mod streams;
pub(crate) mod structs;

use p2psim_core::Error;

use crate::error::Result;

/// Succeeds if a program's argument is one that the API allows.
fn require(condition: bool) -> Result<()> {
    if condition { Ok(()) } else { Err(Error::INVALID_VALUE.into()) }
}
