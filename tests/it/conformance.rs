//! Return codes on simulated GPUs against what real ones answered, and findings; the tables are run once, and judged by all who need it.

use std::collections::BTreeMap;
use std::fs;

use crate::findings;
use crate::support::soak::{Draw, flavours, is_all};
use crate::support::{Outcome, Program, Scratch, Trace, path};

const TABLE: &str = "tests/golden/conformance.tsv";

/// Where a real library crashes, an error will do.
fn conformance(flavour: &str, table: &str) -> Program {
    let program = Program::case(&format!("conformance-{flavour}")).arg("--jobs").arg("4");
    program.arg("--allow-crash-rows-error").arg("--announce").arg(table)
}

/// Nothing is wrong with the machine; and so many calls went through the shim.
pub(crate) fn assert_calls(traced: &Outcome, how: &str) -> Trace {
    let trace = traced.trace();
    // A context that a row has lost cannot be used for a verification either.
    let is_expected = |line: &&String| line.contains(" could not be verified: the driver returned ");
    let others: Vec<_> = trace.warnings.iter().filter(|line| !is_expected(line)).collect();
    assert!(others.is_empty(), "{how}: {others:#?}");
    assert!(trace.calls.len() > 500, "{how}: {} calls went through the shim", trace.calls.len());
    trace
}

type Run = fn(&Program) -> Outcome;
/// Rows that are run once more, in another way.
const SOME: usize = 200;

/// Codes, calls and findings of each row, in one run: it takes a second of a processor for a hundred rows.
#[test]
fn conformance_every_row_as_on_real_gpus_and_its_findings_the_golden_ones() {
    let (rows, text) = findings::all_rows();
    let unmeasured = rows.iter().filter(|(_, answers)| answers[1] == "?").count();
    let all = format!("# {} rows: {} as expected, {unmeasured} differ", rows.len(), rows.len() - unmeasured);
    let table = Scratch::new("table.tsv");
    fs::write(&table, text).unwrap();
    let program = |flavour: &str| {
        conformance(flavour, table.to_str().unwrap()).env("P2PSHIM_CAPTURE", "forward").findings_apart()
    };
    let run = |flavour: &'static str| (flavour, program(flavour).traced_to_stderr());
    let runs: BTreeMap<_, _> = flavours("conformance").into_iter().map(run).collect();
    if std::env::var_os("P2PSHIM_UPDATE").is_some() {
        findings::write_rows(&rows, [&runs["12"], &runs["static"]]);
    }
    for (flavour, traced) in &runs {
        assert!(!traced.stderr.contains(" implements "), "{flavour}: {}", traced.stderr);
        assert_eq!(traced.stdout.lines().last(), Some(&*all), "{flavour}: {}", traced.stderr);
        assert_calls(traced, flavour);
        findings::assert_rows(&rows, *flavour == "static", traced);
    }
    // Without us, too, and without the log: all, or some rows in one of these ways.
    let others: [(Run, bool); 3] = [(Program::plain, true), (Program::plain, false), (Program::preloaded, false)];
    let mut draw = Draw::of("conformance, otherwise");
    let drawn = draw.below(others.len());
    let begin = draw.below(rows.len() - SOME);
    let [first, last] = if is_all() { [0, rows.len()] } else { [0, SOME].map(|end| end + begin) };
    for (number, (other, is_static)) in others.into_iter().enumerate() {
        if is_all() || number == drawn {
            let (flavour, traced) = runs.iter().find(|(flavour, _)| (**flavour == "static") == is_static).unwrap();
            let other = other(&program(flavour).arg("--only").arg(format!("{}-{last}", first + 1)));
            let answers = other.stdout.lines().skip(1).take(last - first);
            assert_eq!(answers.clone().count(), last - first, "{flavour}, {number}: {}", other.stderr);
            for (traced, other) in traced.stdout.lines().skip(1 + first).zip(answers) {
                assert_eq!(traced, other, "{flavour}, traced (left) and otherwise, {number} (right)");
            }
            let said = other.said_on_any_machine();
            assert!(said.is_empty(), "{flavour}: {said:#?}");
        }
    }
}

/// The answers that the shim changes by default, as the program reports them: an asynchronous peer copy on a capturing stream
/// succeeds, or is answered what is documented of its arguments. One from or to nowhere has no equal that can be captured, and stays refused; so does one of nothing, for which the
/// runtime names no memory.
fn captured_copies(table: &str) -> Vec<String> {
    let rows = table.lines().skip(1);
    let copies = ["cudaMemcpyPeerAsync(", "cudaMemcpy3DPeerAsync(", "cuMemcpyPeerAsync(", "cuMemcpy3DPeerAsync("];
    let mut reports = Vec::new();
    for (row, line) in rows.enumerate() {
        let [setup, call, documented, ret, last, v] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let is_copy = copies.iter().any(|copy| call.replace("_ptsz(", "(").starts_with(copy));
        let is_of_memory = !call.contains("(NULL,") && !call.contains("(0,") && !setup.contains("extent.width=0");
        if is_copy && ret == "900" && is_of_memory {
            let code = if documented.is_empty() { "0" } else { documented };
            let (row, captured) = (row + 1, last.replace("900", code));
            let answers = format!("expected 900\t{last}\t{v}, got {code}\t{captured}\t{v}");
            reports.push(format!("row {row} differs: {setup}; {call}: {answers}"));
        }
    }
    reports
}

#[test]
fn conformance_captured_copy_differs_as_documented() {
    let all = fs::read_to_string(path(TABLE)).unwrap();
    let mut rows = all.lines().filter(|line| !line.starts_with('#'));
    let head = rows.next().unwrap();
    let rows: Vec<_> = rows.filter(|row| row.contains("Capture")).collect();
    let text = format!("{head}\n{}\n", rows.join("\n"));
    let captured = captured_copies(&text);
    assert!(captured.len() > 1 && captured.len() < 30 && rows.len() > captured.len(), "{captured:#?}");
    let table = Scratch::new("table.tsv");
    fs::write(&table, text).unwrap();
    for flavour in flavours("conformance_captured_copy") {
        let outcome = conformance(flavour, table.to_str().unwrap()).preloaded();
        let differ: Vec<_> = outcome.stderr.lines().filter(|line| line.contains("differs")).collect();
        assert_eq!(differ, captured);
        let (rows, differ) = (rows.len(), captured.len());
        let count = format!("# {rows} rows: {} as expected, {differ} differ", rows - differ);
        assert_eq!(outcome.stdout.lines().last(), Some(count.as_str()));
    }
}

fn with_row(row: &str) -> Outcome {
    let table = Scratch::new("table.tsv");
    fs::write(&table, format!("setup\tcall\tdocumented\tret\tlast\tv\n{row}\n")).unwrap();
    conformance("12", table.to_str().unwrap()).plain()
}

#[test]
fn conformance_row_with_another_code_fails() {
    let outcome = with_row("\tcudaDeviceEnablePeerAccess(0,0)\t101\t101\t101\t-7");
    assert_eq!(outcome.status, "exit status: 1");
    assert!(outcome.stderr.contains("row 1 differs"), "{}", outcome.stderr);
}

#[test]
fn conformance_row_that_nothing_implements_fails() {
    let outcome = with_row("\tcudaDeviceEnablePeerAccess(3,0)\t101\t101\t101\t-7");
    assert_eq!(outcome.status, "exit status: 1");
    assert!(outcome.stderr.contains("no CALL implements"), "{}", outcome.stderr);
}

#[test]
fn conformance_setup_that_nothing_implements_fails() {
    let outcome = with_row("cudaFree(c)\tcudaDeviceEnablePeerAccess(1,0)\t0\t0\t0\t-7");
    assert_eq!(outcome.status, "exit status: 1");
    assert!(outcome.stderr.contains("no STEP or ASSIGN implements"), "{}", outcome.stderr);
}

/// The answers of simulated GPUs to rows that real ones have not seen mean nothing; but each row has to be one that can be
/// measured.
#[test]
fn conformance_unmeasured_rows_are_all_implemented() {
    let table = path("c-tests/conformance-unmeasured.tsv");
    let program = Program::case("conformance-13").arg("measure").arg("--jobs").arg("4");
    let outcome = program.arg(table.to_str().unwrap()).plain();
    assert!(!outcome.stderr.contains("implements"), "{}", outcome.stderr);
    assert_eq!(outcome.stdout.lines().count(), fs::read_to_string(table).unwrap().lines().count());
}

/// A part of a table, measured, is that part with its answers, and the rest of the table is left alone.
#[test]
fn conformance_measure_only_prints_those_rows_with_answers() {
    let table = Scratch::new("table.tsv");
    let head = "# words\nsetup\tcall\tdocumented\tret\tlast\tv\n";
    let rows = ["(&v,0,1)\t0", "(&v,0,99)\t101", "(NULL,0,1)\t"].map(|row| format!("\tcudaDeviceCanAccessPeer{row}\t"));
    fs::write(&table, format!("{head}{0}?\t?\t?\n{1}?\t?\t?\n{2}?\t?\t?\n", rows[0], rows[1], rows[2])).unwrap();
    let program = Program::case("conformance-12").arg("measure").arg("--times").arg("2").arg("--only").arg("1-2");
    let outcome = program.arg(table.to_str().unwrap()).plain();
    outcome.assert_success();
    assert_eq!(outcome.stdout, format!("{head}{}0\t0\t1\n{}101\t101\t-7\n", rows[0], rows[1]));
}
