//! Parts that the shim and the command share, without a GPU: the options, names of codes, the verdicts on pairs that are kept in
//! files, the memory that the processes of a run export, races that are to end, the machine's account of itself, lines of Python, and the words for texts and durations.

#![forbid(unsafe_code)]

pub mod codes;
pub mod config;
pub mod exports;
#[cfg(test)]
mod fuzz;
pub mod job;
pub mod machine;
pub mod nearest;
pub mod python;
pub mod races;
pub mod size;
pub mod stagers;
pub mod text;
pub mod verdict;
pub mod verdicts;
