//! Decisions about calls before they are made.
//!
//! Decisions are made at the driver layer, where every client of CUDA ends, over plain values and through the small
//! [`Driver`], so that they are tested without a driver.

#![forbid(unsafe_code)]

pub(crate) mod access;
pub(crate) mod batches;
pub(crate) mod capture;
pub(crate) mod driver;
pub(crate) mod ended;
pub(crate) mod forgive;
pub(crate) mod graph;
pub(crate) mod hip;
pub(crate) mod order;
pub(crate) mod readback;
pub(crate) mod staging;
pub(crate) mod taking;
pub(crate) mod validate;
pub(crate) mod verdicts;
pub(crate) mod waits;

pub(crate) use access::HarmlessEnable;
pub(crate) use driver::{Driver, VerifyBackend};
pub(crate) use ended::Ended;

use crate::config::Config;
use crate::objects::OBJECTS;
use access::Access;
use graph::Graphs;
use hip::Peers;
use order::Order;
use readback::Readback;
use staging::Staging;
use validate::Validate;
use waits::Waits;

/// All that is known of memory, contexts and peers in this process.
pub(crate) static ACCESS: Access = Access::new();

/// The copies of executable graphs of this process.
pub(crate) static GRAPHS: Graphs = Graphs::new();

/// All that is known of HIP in this process.
pub(crate) static HIP: Peers = Peers::new();

/// The order of all work, while it is checked.
pub(crate) static ORDER: Order = Order::new();

/// The copies that are read back.
pub(crate) static READBACK: Readback = Readback::new();

/// The rings that stage copies.
pub(crate) static STAGING: Staging = Staging::new();

/// All that is known of what the program gets wrong.
pub(crate) static VALIDATE: Validate = Validate::new(&OBJECTS);

/// The copies whose waits are kept.
pub(crate) static WAITS: Waits = Waits::new();

/// Takes over the options, before the first decision and whenever they have changed.
pub(crate) fn configure(config: &Config) {
    capture::configure(config.rewrites_captured);
    forgive::configure(config.forgiven);
    ACCESS.configure(config);
    HIP.configure(config);
    READBACK.configure(config);
    STAGING.configure(config);
    VALIDATE.configure(config.validate);
}
