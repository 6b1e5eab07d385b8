//! What the shim and the command both know without a GPU: the options, names of codes, the verdicts on pairs that are kept in
//! files, what the machine says about itself, and how texts and durations are shown.

#![forbid(unsafe_code)]

pub mod codes;
pub mod config;
pub mod job;
pub mod machine;
pub mod nearest;
pub mod text;
pub mod verdict;
pub mod verdicts;
