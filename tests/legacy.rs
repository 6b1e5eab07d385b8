//! The runtimes of CUDA 8.0 to 10.2, simulated: which codes they return, in which numbers, and what the shim says of them.
//!
//! Golden files: tests/golden/legacy-VERSION.tsv, a row for each of `legacy.c`. What NVIDIA's own runtimes return on one H200 is in
//! tests/golden/legacy-one-h200-VERSION.tsv.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod support;

use std::fs;

use support::legacy::VERSIONS;
use support::{Outcome, Program, path, scratch};

/// Those that NVIDIA's own were measured of.
const MEASURED: [&str; 4] = ["9.0", "10.0", "10.1", "10.2"];
const HEAD: &str = "before\tcall\tret\tname\tlast\tagain\tv";

fn rows(version: &str) -> usize {
    let table = Program::case(&format!("legacy-{version}")).plain();
    table.assert_success();
    table.stdout.lines().count()
}

fn golden(name: &str, found: &str) {
    let file = path("tests/golden").join(name);
    if std::env::var_os("P2PSHIM_UPDATE").is_some() {
        fs::write(&file, found).unwrap();
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), found, "{name}; P2PSHIM_UPDATE=1 writes it anew");
}

/// The rule of each finding and what it says of codes: `P2P-enable-self: returned A (64), documented: B (10)`.
fn said(outcome: &Outcome) -> String {
    let lines = outcome.lines.iter().filter(|line| line.contains(": P2P-"));
    let of_codes = |line: &String| {
        let rule = line[line.find("P2P-").unwrap()..].split(' ').next().unwrap().to_owned();
        let (_, rest) = line.split_once("; ").unwrap_or_default();
        let codes = rest.split_once(". ").map_or(rest, |(codes, _)| codes);
        if codes.is_empty() { rule } else { format!("{rule}: {codes}") }
    };
    lines.map(of_codes).collect::<Vec<_>>().join("; ")
}

/// Copies that can be captured since the shim makes others in their place.
fn is_captured_copy(row: &str) -> bool {
    row.starts_with("CAPTURE\tcudaMemcpyPeerAsync(")
        || row.starts_with("CAPTURE\tcudaMemcpy3DPeerAsync(")
        || row.starts_with("(CAPTURE, cudaMemcpyPeerAsync(")
}

#[test]
fn legacy_codes_are_the_same_preloaded_and_findings_speak_the_runtimes_numbers() {
    for version in VERSIONS {
        let mut table = format!("{HEAD}\tfindings\n");
        for row in 1..=rows(version) {
            let program =
                Program::case(&format!("legacy-{version}")).arg(row.to_string()).findings_apart().with_notes();
            let (plain, preloaded) = (program.plain(), program.preloaded());
            plain.assert_success();
            let line = plain.stdout.trim_end_matches('\n');
            if !is_captured_copy(line) {
                assert_eq!(plain.stdout, preloaded.stdout, "{version}, row {row}");
            } else if !line.ends_with("no captures") {
                assert!(preloaded.stdout.contains("\t0\tcudaSuccess\t0\t0\t"), "{}", preloaded.stdout);
            }
            table += &format!("{line}\t{}\n", said(&preloaded));
        }
        golden(&format!("legacy-{version}.tsv"), &table);
    }
}

#[test]
fn legacy_simulated_runtimes_return_what_nvidias_do_on_one_gpu() {
    for version in MEASURED {
        let simulated = Program::case(&format!("legacy-{version}")).env("P2PSIM_DEVICES", "1").plain().stdout;
        let measured = fs::read_to_string(path(&format!("tests/golden/legacy-one-h200-{version}.tsv"))).unwrap();
        let measured: Vec<&str> = measured.lines().filter(|line| !line.starts_with('#') && *line != HEAD).collect();
        let missing = measured.iter().filter(|row| !simulated.lines().any(|line| line == **row));
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new(), "{version}");
        assert!(measured.len() > 55, "{}", measured.len());
    }
}

#[test]
fn legacy_trace_log_and_report_have_number_and_name() {
    for (version, number) in [("9.0", " (50)"), ("10.0", " (50)"), ("10.1", "")] {
        let folder = scratch(&format!("legacy-{version}"));
        let row = fs::read_to_string(path(&format!("tests/golden/legacy-{version}.tsv"))).unwrap();
        let row = row.lines().position(|line| line.starts_with("ENABLE\tcudaDeviceEnablePeerAccess")).unwrap();
        let program = Program::case(&format!("legacy-{version}")).arg(row.to_string()).findings_apart();
        let (_, trace) = program.env("P2PSHIM_TRACE", folder.to_str().unwrap()).traced();
        let twice = &trace.of("cudaDeviceEnablePeerAccess")[1].text;
        assert!(twice.contains(&format!(") = cudaErrorPeerAccessAlreadyEnabled{number} <")), "{twice}");
        let report = |words: &[&str]| {
            let output = std::process::Command::new(support::command()).arg("report").arg(&folder).args(words).output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        let calls = report(&["--format", "calls", "--result", "cudaErrorPeerAccessAlreadyEnabled"]);
        assert!(calls.contains(&format!(" = cudaErrorPeerAccessAlreadyEnabled{number} <")), "{calls}");
        let (code, numbering) = if number.is_empty() { (704, "usual") } else { (50, "until-10.0") };
        let (json, words) = (report(&["--json"]), format!("\"code\":{code},\"numbering\":\"{numbering}\""));
        assert!(json.contains(&words), "no {words}: {json}");
        assert!(report(&[]).contains(&format!("cudaErrorPeerAccessAlreadyEnabled ({code})")), "{}", report(&[]));
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn legacy_program_of_an_old_linker_is_seen() {
    let row = |program: &str| {
        let program = Program::case(program).env("P2PSHIM_ACCESS", "app").arg("14").findings_apart();
        let (outcome, trace) = program.traced();
        outcome.assert_success();
        let calls: Vec<(usize, String)> = trace.calls.into_iter().map(|call| (call.depth, call.name)).collect();
        (outcome.stdout, calls)
    };
    let (stdout, calls) = row("legacy-old_linker");
    assert!(stdout.starts_with("ENABLE\tcudaDeviceEnablePeerAccess(last, 0)\t50\t"), "{stdout}");
    assert!(calls.contains(&(0, "cudaDeviceEnablePeerAccess".to_owned())), "{calls:?}");
    assert_eq!((stdout, calls), row("legacy-9.0"));
}

/// Contexts that are current nowhere, and pushed and popped by threads in turn.
#[test]
fn floating_contexts_same_output_preloaded() {
    let (plain, trace) = Program::case("floating_contexts").findings_apart().assert_same_preloaded();
    plain.assert_success();
    assert!(plain.stdout.ends_with("current at the end: none\n"), "{}", plain.stdout);
    assert_eq!(trace.of("cuMemcpyPeer").len(), 3 * 4 * 3, "{:#?}", trace.calls);
}

/// In strict mode a call is refused with what is documented, in the runtime's own numbers: the driver's function returns it.
#[test]
fn legacy_strict_refuses_in_the_runtimes_numbers() {
    for (version, code) in [("9.0", "10"), ("10.1", "101")] {
        let table = fs::read_to_string(path(&format!("tests/golden/legacy-{version}.tsv"))).unwrap();
        let row = table.lines().position(|line| line.starts_with("\tcudaDeviceEnablePeerAccess(0, 0)")).unwrap();
        let program = Program::case(&format!("legacy-{version}")).arg(row.to_string()).findings_apart();
        let strict = program.env("P2PSHIM_VALIDATE", "strict").preloaded();
        assert!(strict.stdout.contains(&format!("\t{code}\tcudaErrorInvalidDevice\t{code}\t")), "{}", strict.stdout);
    }
}
