//! The rows of the conformance tables on the simulated runtimes of CUDA 8.0 to 10.2, plain and preloaded, with the codes of then.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::fs;

use support::legacy::{Rows, rows};
use support::{Program, scratch};

/// Rows of conformance.tsv and conformance-regular.tsv that a version does not have, by reason.
type Skipped<'a> = [&'a [(&'a str, usize)]; 2];

const WITHOUT_CAPTURES: Skipped = [
    &[("no cudaLaunchHostFunc", 22), ("no cudaMallocAsync", 8), ("no cudaStreamBeginCapture", 96)],
    &[("no cudaLaunchHostFunc", 5), ("no cudaStreamBeginCapture", 18)],
];
const WITHOUT_MODES: Skipped = [&[("captures have no modes", 30), ("no cudaMallocAsync", 8)], &[]];
const WITHOUT_POOLS: Skipped = [&[("no cudaMallocAsync", 8)], &[]];

fn program(version: &str, table: &str) -> Program {
    let program = Program::case(&format!("conformance-{version}")).arg("--jobs").arg("4");
    program.arg("--allow-crash-rows-error").arg(table).env("P2PSHIM_CAPTURE", "forward").findings_apart()
}

fn every_row_with_the_codes_of_then(version: &str, skipped: Skipped) {
    let tables = [("conformance.tsv", 703), ("conformance-regular.tsv", 174)];
    for ((name, all), skipped) in tables.into_iter().zip(skipped) {
        let Rows { text, count, skipped: found } = rows(name, version);
        let expected: BTreeMap<String, usize> =
            skipped.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
        assert_eq!(found, expected, "{name}, {version}: rows that are skipped");
        assert_eq!(count + found.values().sum::<usize>(), all, "{name}, {version}");
        let table = scratch("table.tsv");
        fs::write(&table, text).unwrap();
        let program = program(version, table.to_str().unwrap());
        let plain = program.plain();
        assert_eq!(
            plain.stdout.lines().last(),
            Some(format!("# {count} rows: {count} as expected, 0 differ").as_str())
        );
        plain.assert_success();
        let (traced, trace) = program.traced();
        traced.assert_same_as(&plain, "preloaded with a trace");
        traced.assert_silent();
        assert!(trace.warnings.is_empty(), "{:#?}", trace.warnings);
        let of_runtime = trace.names_at(0).into_iter().filter(|name| name.starts_with("cuda")).count();
        assert!(of_runtime > 25, "{name}, {version}: {of_runtime} calls of the runtime seen");
        fs::remove_file(table).unwrap();
    }
}

#[test]
fn legacy_conformance_8_0_every_row_with_the_codes_of_then() {
    every_row_with_the_codes_of_then("8.0", WITHOUT_CAPTURES);
}

#[test]
fn legacy_conformance_9_0_every_row_with_the_codes_of_then() {
    every_row_with_the_codes_of_then("9.0", WITHOUT_CAPTURES);
}

#[test]
fn legacy_conformance_10_0_every_row_with_the_codes_of_then() {
    every_row_with_the_codes_of_then("10.0", WITHOUT_MODES);
}

#[test]
fn legacy_conformance_10_1_every_row_with_the_codes_of_then() {
    every_row_with_the_codes_of_then("10.1", WITHOUT_POOLS);
}

#[test]
fn legacy_conformance_10_2_every_row_with_the_codes_of_then() {
    every_row_with_the_codes_of_then("10.2", WITHOUT_POOLS);
}
