//! The driver's objects, as far as they are known: one place for each kind. Nothing here asks the driver.

#![forbid(unsafe_code)]

pub(crate) mod generations;
pub(crate) mod memory;
