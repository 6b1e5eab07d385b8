//! The rows of the conformance tables on the simulated runtimes of CUDA 8.0 to 10.2, plain and preloaded, with the codes of then.

use std::fs;

use crate::support::legacy::{Rows, rows};
use crate::support::{Program, scratch};

/// Why a version does not have all rows of conformance.tsv and of conformance-regular.tsv.
type Reasons<'a> = [&'a [&'a str]; 2];

const WITHOUT_CAPTURES: Reasons = [
    &["no cudaLaunchHostFunc", "no cudaMallocAsync", "no cudaStreamBeginCapture"],
    &["no cudaLaunchHostFunc", "no cudaMallocAsync", "no cudaStreamBeginCapture"],
];
const WITHOUT_MODES: Reasons = [&["captures have no modes", "no cudaMallocAsync"], &["no cudaMallocAsync"]];
const WITHOUT_POOLS: Reasons = [&["no cudaMallocAsync"], &["no cudaMallocAsync"]];

fn program(version: &str, table: &str) -> Program {
    let program = Program::case(&format!("conformance-{version}")).arg("--jobs").arg("4");
    program.arg("--allow-crash-rows-error").arg(table).env("P2PSHIM_CAPTURE", "forward").findings_apart()
}

fn every_row_with_the_codes_of_then(version: &str, reasons: Reasons) {
    for ((name, least), reasons) in
        [("conformance.tsv", 570), ("conformance-regular.tsv", 150)].into_iter().zip(reasons)
    {
        let Rows { text, count, skipped } = rows(name, version);
        assert_eq!(skipped.keys().collect::<Vec<_>>(), reasons, "{name}, {version}: {skipped:?}");
        assert!(count > least, "{name}, {version}: {count} rows, and skipped: {skipped:?}");
        let table = scratch("table.tsv");
        fs::write(&table, text).unwrap();
        let program = program(version, table.to_str().unwrap());
        let (traced, trace) = program.traced();
        let all = format!("# {count} rows: {count} as expected, 0 differ");
        assert_eq!(traced.stdout.lines().last(), Some(all.as_str()), "{}", traced.stderr);
        traced.assert_success();
        traced.assert_silent();
        // The first and the last also without us.
        if ["8.0", "10.2"].contains(&version) {
            traced.assert_same_as(&program.plain(), "preloaded with a trace");
        }
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
