//! Return codes on simulated GPUs against what real ones answered, plain and preloaded, in every flavour of the runtime.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod support;

use std::fs;

use support::{Program, path, scratch};

/// All rows of the table; where a real runtime crashes, an error will do.
const ALL: &str = "# 70 rows: 70 as expected, 0 differ, 0 skipped";

fn conformance(flavour: &str, table: &str) -> Program {
    Program::case(&format!("conformance-{flavour}")).arg("--allow-crash-rows-error").arg(table)
}

fn every_row_as_on_real_gpus(flavour: &str) {
    let program = conformance(flavour, path("c-tests/conformance.tsv").to_str().unwrap());
    let program = program.env("P2PSHIM_CAPTURE", "forward");
    let (plain, trace) = program.assert_same_preloaded();
    plain.assert_success();
    assert_eq!(plain.stdout.lines().last(), Some(ALL));
    assert_eq!(trace.warnings, Vec::<String>::new());
    assert!(!trace.calls.is_empty(), "nothing went through the shim");
}

#[test]
fn conformance_shared_11_every_row_as_on_real_gpus() {
    every_row_as_on_real_gpus("11");
}

#[test]
fn conformance_shared_12_every_row_as_on_real_gpus() {
    every_row_as_on_real_gpus("12");
}

#[test]
fn conformance_shared_13_every_row_as_on_real_gpus() {
    every_row_as_on_real_gpus("13");
}

#[test]
fn conformance_static_every_row_as_on_real_gpus() {
    every_row_as_on_real_gpus("static");
}

/// The one thing that the shim answers otherwise by default: a peer copy on a capturing stream succeeds.
#[test]
fn conformance_captured_copy_differs_as_documented() {
    for flavour in ["11", "12", "13", "static"] {
        let outcome = conformance(flavour, path("c-tests/conformance.tsv").to_str().unwrap()).preloaded();
        let differ: Vec<_> = outcome.stderr.lines().filter(|line| line.contains("differs")).collect();
        assert_eq!(outcome.stdout.lines().last(), Some("# 70 rows: 69 as expected, 1 differ, 0 skipped"));
        assert!(differ.len() == 1 && differ[0].contains("cudaMemcpyPeerAsync(b,1,a,0,n,s0)"), "{}", outcome.stderr);
    }
}

fn with_row(row: &str) -> support::Outcome {
    let table = scratch("table.tsv");
    fs::write(&table, format!("setup\tcall\tret\tlast\tv\n{row}\n")).unwrap();
    let outcome = conformance("12", table.to_str().unwrap()).plain();
    fs::remove_file(table).unwrap();
    outcome
}

#[test]
fn conformance_row_with_another_code_fails() {
    let outcome = with_row("\tcudaDeviceEnablePeerAccess(0,0)\t101\t101\t-7");
    assert_eq!(outcome.status, "exit status: 1");
    assert!(outcome.stderr.contains("row 1 differs"), "{}", outcome.stderr);
}

#[test]
fn conformance_row_that_nothing_implements_fails() {
    let outcome = with_row("\tcudaDeviceEnablePeerAccess(3,0)\t101\t101\t-7");
    assert_eq!(outcome.status, "exit status: 1");
    assert!(outcome.stderr.contains("no CALL implements"), "{}", outcome.stderr);
}

#[test]
fn conformance_setup_that_nothing_implements_fails() {
    let outcome = with_row("cudaFree(b)\tcudaDeviceEnablePeerAccess(1,0)\t0\t0\t-7");
    assert_eq!(outcome.status, "exit status: 1");
    assert!(outcome.stderr.contains("no SETUP or ASSIGN implements"), "{}", outcome.stderr);
}
