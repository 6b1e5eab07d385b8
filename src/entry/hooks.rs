//! The hooks: one function for each row of the table, with the real signature.
//!
//! A hook is entered from a trampoline only, which adds the last parameter: caller and route. It finds the real function, and
//! hands the call to the path that goes with the row's effect; all that is decided and done stands there (`call/`).
//! The build writes them into `target/*/build/p2pshim-*/out/hooks.rs`.

#![allow(non_snake_case, reason = "the vendor's spelling")]

use std::mem::transmute;

use super::lookup;
use crate::api::abi::{self, Argument, Code};
use crate::api::{Function, Half, State};
use crate::call::{Caller, batch, change, host, order, run, unavailable};
use crate::machine::Arrival;

include!(concat!(env!("OUT_DIR"), "/hooks.rs"));
