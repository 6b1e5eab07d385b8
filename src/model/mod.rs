//! The subjects of the other modules, as plain values: a call and its request, the path of a copy, what was found wrong
//! with a call, how much was copied, and whether calls are seen.

#![forbid(unsafe_code)]

pub(crate) mod copy;
pub(crate) mod counters;
pub(crate) mod event;
pub(crate) mod finding;
pub(crate) mod origin;
pub(crate) mod process;
pub(crate) mod request;
pub(crate) mod rules;
#[cfg(test)]
mod tables;

pub(crate) use copy::{Endpoints, Memcpy, Named, Part, Shape, Traffic, array_of, is_array, of_array};
pub(crate) use finding::{Finding, Hidden};
pub(crate) use origin::Origin;
pub(crate) use p2pshim_trace::{Path, Why};
pub(crate) use request::{Access, Asks, Request};
pub(crate) use rules::Rule;
