//! Tests of the library and the command from outside: programs, plain and preloaded, and documents.
//!
//! One binary, whose threads overlap tests that sleep with tests that compute.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "../../cli/tests/scene/mod.rs"]
mod scene;
mod support;

mod access;
mod allocation;
mod api;
mod between_processes;
mod broken;
mod by_hand;
mod c_cases;
mod c_programs;
mod call_sites;
mod capi;
mod captures;
mod causes;
mod check;
mod cli;
mod conformance;
mod demo;
mod docs;
mod doctor;
mod exit_status;
mod exports;
mod failures;
mod findings;
mod fleet;
mod fork;
mod full_log;
mod gate;
mod gates;
mod gauntlet;
mod generated;
mod gpu;
mod graphs;
mod hang;
mod hip;
mod hip_broken;
mod hip_sim;
mod hooked;
mod host_cost;
mod html;
mod implicit_waits;
mod install;
mod kept_waits;
mod least_privilege;
mod legacy;
mod legacy_cases;
mod legacy_conformance;
mod machines;
mod manners;
mod neighbours;
mod not_gpu;
mod numba;
mod nvlink;
mod nvml;
mod order;
mod perfetto;
mod python;
mod random_graphs;
mod random_threads;
mod random_waits;
mod readback;
mod real_parts;
mod regular;
mod repeated_copies;
mod run;
mod schema;
mod shared_random;
mod shared_report;
mod sim;
mod small_stacks;
mod staging;
mod table;
mod trace;
mod unshared;
mod validate;
