//! What the shim and the command both know without a GPU: the options, the verdicts on pairs that are kept in files, and what
//! the machine says about itself.

#![forbid(unsafe_code)]

pub mod config;
pub mod machine;
pub mod verdicts;
