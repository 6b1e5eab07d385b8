//! The rows of the conformance tables on the simulated runtimes of CUDA 8.0 to 10.2, plain and preloaded, with the codes of then.

use std::fs;

use crate::conformance::assert_calls;
use crate::findings;
use crate::support::legacy::{Rows, rows};
use crate::support::soak::{Draw, is_all};
use crate::support::{Program, Scratch};

/// Why a version does not have all rows of conformance.tsv and of conformance-regular.tsv.
type Reasons<'a> = [&'a [&'a str]; 2];

const WITHOUT_CAPTURES: Reasons = [
    &["no cudaLaunchHostFunc", "no cudaMallocAsync", "no cudaStreamBeginCapture"],
    &["no cudaLaunchHostFunc", "no cudaMallocAsync", "no cudaStreamBeginCapture"],
];
const WITHOUT_MODES: Reasons = [&["captures have no modes", "no cudaMallocAsync"], &["no cudaMallocAsync"]];
const WITHOUT_POOLS: Reasons = [&["no cudaMallocAsync"], &["no cudaMallocAsync"]];

/// Versions with the reasons, those without captures first.
const VERSIONS: [(&str, Reasons); 5] = [
    ("8.0", WITHOUT_CAPTURES),
    ("9.0", WITHOUT_CAPTURES),
    ("10.0", WITHOUT_MODES),
    ("10.1", WITHOUT_POOLS),
    ("10.2", WITHOUT_POOLS),
];
const FIRST_WITH_CAPTURES: usize = 2;

/// One version without captures and one with them, or all.
fn drawn() -> Vec<(&'static str, Reasons<'static>)> {
    if is_all() {
        return VERSIONS.to_vec();
    }
    let (mut draw, (without, with)) = (Draw::of("legacy conformance"), VERSIONS.split_at(FIRST_WITH_CAPTURES));
    vec![without[draw.below(without.len())], with[draw.below(with.len())]]
}

/// The rows of both tables in one, and how many there are.
fn table_of(version: &str, reasons: Reasons) -> (String, usize) {
    let tables = [("conformance.tsv", 570), ("conformance-regular.tsv", 150)];
    let (mut all, mut sum) = (String::new(), 0);
    for ((name, least), reasons) in tables.into_iter().zip(reasons) {
        let Rows { text, count, skipped } = rows(name, version);
        assert_eq!(skipped.keys().collect::<Vec<_>>(), reasons, "{name}, {version}: {skipped:?}");
        assert!(count > least, "{name}, {version}: {count} rows, and skipped: {skipped:?}");
        // One head for all.
        all += if all.is_empty() { &text } else { text.split_once('\n').unwrap().1 };
        sum += count;
    }
    (all, sum)
}

/// In one run each: codes, calls that are seen, and findings.
#[test]
fn legacy_conformance_every_row_with_the_codes_of_then_and_the_findings_of_now() {
    for (version, reasons) in drawn() {
        let (text, count) = table_of(version, reasons);
        let table = Scratch::new("table.tsv");
        fs::write(&table, &text).unwrap();
        let program = Program::case(&format!("conformance-{version}")).arg("--jobs").arg("4").arg("--announce");
        let program = program.arg("--allow-crash-rows-error").arg(table.to_string_lossy());
        let program = program.env("P2PSHIM_CAPTURE", "forward").findings_apart();
        let traced = program.traced_to_stderr();
        let all = format!("# {count} rows: {count} as expected, 0 differ");
        assert_eq!(traced.stdout.lines().last(), Some(&*all), "{version}: {}", traced.stderr);
        traced.assert_success();
        let trace = assert_calls(&traced, version);
        let of_runtime = trace.names_at(0).into_iter().filter(|name| name.starts_with("cuda")).count();
        assert!(of_runtime > 300, "{version}: {of_runtime} calls of the runtime seen");
        findings::assert_rows_of_then(&text, &traced, version);
        if is_all() {
            assert_eq!(traced.stdout, program.plain().stdout, "preloaded (left) and plain (right)");
        }
    }
}
