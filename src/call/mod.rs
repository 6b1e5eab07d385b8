//! All that surrounds the real function of a call. [`run`] is the path of a call, to be read from top to bottom; the other files
//! are one subject each.

mod arrival;
pub(crate) mod batch;
mod blocked;
pub(crate) mod callbacks;
mod captured;
pub(crate) mod change;
mod context;
pub(crate) mod control;
mod copy;
mod decision;
mod failures;
mod frame;
mod graphs;
pub(crate) mod hip;
pub(crate) mod host;
pub(crate) mod mode;
mod nvml;
pub(crate) mod order;
mod origin;
mod peers;
mod read;
mod readback;
mod recording;
pub(crate) mod regular;
mod rights;
mod room;
pub(crate) mod run;
mod shared;
mod show;
mod staging;
mod thread;
mod timing;
mod validate;
mod waits;

pub(crate) use arrival::{Caller, unavailable};
