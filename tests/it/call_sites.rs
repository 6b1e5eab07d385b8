//! The functions of a program that call a runtime of which only the driver's calls are seen: named in traces and in findings.

use std::fs;
use std::path::Path;

use crate::support::{Outcome, Program, Scratch};
use p2pshim_trace::{NoteKind, Trace};

/// The program with the stand-in for NVIDIA's static runtime, built one way or another, and what it is to do.
fn program(build: &str, what: &str) -> Program {
    Program::case(&format!("call_sites-{build}")).arg(what).libraries("target/sim/lib").findings_apart()
}

/// Runs it with a trace, and returns that.
fn traced(program: &Program) -> (Outcome, Scratch) {
    let folder = Scratch::new("traces");
    let outcome = program.clone().env("P2PSHIM_TRACE", folder.to_string_lossy()).preloaded();
    assert_eq!(outcome.status, "exit status: 0", "{outcome:#?}");
    (outcome, folder)
}

fn report(folder: &Path, option: &[&str]) -> String {
    let program = option
        .iter()
        .fold(Program::new(crate::support::command()).arg("report"), |program, option| program.arg(*option));
    program.arg(folder.to_string_lossy()).plain().stdout
}

/// The section of a report with a title.
fn section(report: &str, title: &str) -> String {
    let (_, rest) = report.split_once(&format!("\n{title}")).unwrap_or_else(|| panic!("no {title}: {report}"));
    rest.split("\n\n").next().unwrap().to_owned()
}

/// How many addresses of callers the trace has for each place where any were found.
fn depths(folder: &Path) -> Vec<usize> {
    let file = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let trace = Trace::open(&file).unwrap();
    trace.notes_of(NoteKind::Site).filter_map(|note| Some(note.value("callers")?.split(' ').count())).collect()
}

#[test]
fn call_sites_outside_the_static_runtime_are_named_whatever_the_frames() {
    for build in ["frames", "plain", "shared"] {
        let (_, folder) = traced(&program(build, "sites").env("P2PSHIM_STACKS", "all"));
        let all = report(&folder, &[]);
        let sites = section(&all, "Call sites that copy\n");
        for function in ["copy_first", "copy_second", "copy_aligned", "cudaCopyOfOurs"] {
            assert!(sites.contains(&format!(" {function} (call_sites.c:")), "{build}: {function}: {all}");
        }
        let copies: Vec<&str> = sites.lines().filter(|line| line.contains("copy_first")).collect();
        assert!(copies.len() == 1 && copies[0].ends_with("(40 of 83 looked at)"), "{build}: {sites}");
        assert!(!sites.contains("cudaMemcpy") && !sites.contains(" < "), "{build}: {sites}");
        let calls = report(&folder, &["--calls"]);
        assert_eq!(calls.lines().filter(|line| line.contains(" copy_second (call_sites.c:")).count(), 41, "{calls}");
        assert!(depths(&folder).into_iter().all(|depth| (1..=8).contains(&depth)), "not all of a deep recursion");
    }
}

#[test]
fn report_static_runtime_of_a_stripped_program_has_its_release() {
    for (build, expected) in [
        ("plain", Some("runtime 9.0 to 9.2 in call_sites-plain, linked statically (by strings inside)")),
        ("stripped", Some("runtime 9.0 to 9.2 in call_sites-stripped, linked statically (by strings inside)")),
        ("shared", None),
    ] {
        let (_, folder) = traced(&program(build, "sites"));
        let text = report(&folder, &[]);
        let versions = text.lines().find(|line| line.starts_with("versions ")).unwrap();
        match expected {
            // The line may be too long for one.
            Some(expected) => assert!(text.replace("\n          ", "").contains(expected), "{text}"),
            None => assert!(!versions.contains("statically"), "{versions}"),
        }
        assert_eq!(report(&folder, &["--json"]).contains("\"static_runtime\":\"9.0 to 9.2 in "), expected.is_some());
    }
}

#[test]
fn call_sites_are_looked_for_in_first_copies_by_default_and_never_on_request() {
    let (_, folder) = traced(&program("plain", "sites"));
    let sites = section(&report(&folder, &[]), "Call sites that copy\n");
    assert!(sites.contains(" copy_first (") && sites.contains(" copy_second ("), "{sites}");
    let (_, folder) = traced(&program("plain", "sites").env("P2PSHIM_STACKS", "off"));
    assert_eq!(depths(&folder), [0usize; 0]);
    assert!(!report(&folder, &[]).contains("Call sites that copy"));
}

#[test]
fn call_sites_without_symbols_are_all_of_the_chain() {
    let (_, folder) = traced(&program("stripped", "sites"));
    let sites = section(&report(&folder, &[]), "Call sites that copy\n");
    let chains: Vec<&str> = sites.lines().filter(|line| line.contains(" < ")).collect();
    assert!(chains.len() >= 2, "{sites}");
    // The two of the runtime, the copying function, and main.
    let places = chains[0].matches("call_sites-stripped+0x").count();
    assert_eq!((places, chains[0].matches(" < ").count()), (4, 3), "{sites}");
}

#[test]
fn call_sites_are_in_findings_with_a_trace_and_without() {
    let (outcome, folder) = traced(&program("plain", "mistake"));
    let found = |outcome: &Outcome| {
        let line = outcome.lines.iter().find(|line| line.contains("P2P-copy-null-pointer (error): "));
        line.unwrap_or_else(|| panic!("{outcome:#?}"))
            .split_once(" at ")
            .unwrap()
            .1
            .split_once(": ")
            .unwrap()
            .0
            .to_owned()
    };
    let chain = found(&outcome);
    assert_eq!(chain.matches("call_sites-plain+0x").count(), 3, "two of the runtime, and main: {chain}");
    let findings = section(&report(&folder, &[]), "Findings");
    assert!(
        findings.contains("\n      at call_sites-plain+0x") && findings.contains(" main (call_sites.c:"),
        "{findings}"
    );
    assert_eq!(found(&program("plain", "mistake").preloaded()), chain);
    let off = found(&program("plain", "mistake").env("P2PSHIM_STACKS", "off").preloaded());
    assert_eq!(off.split(" < ").collect::<Vec<_>>(), [chain.split(" < ").next().unwrap()]);
    // Where a shared runtime ends is sure.
    let shared = found(&program("shared", "mistake").preloaded());
    assert!(shared.starts_with("call_sites-shared+0x") && !shared.contains(" < "), "{shared}");
}

#[test]
fn call_sites_on_broken_stacks_are_survived() {
    for build in ["frames", "plain", "stripped"] {
        let program = program(build, "broken").env("P2PSHIM_STACKS", "all");
        let plain = program.plain();
        let (outcome, folder) = traced(&program);
        assert_eq!((outcome.stdout, outcome.status), (plain.stdout, plain.status), "{build}");
        assert!(depths(&folder).len() > 20, "they were looked at");
    }
}

#[test]
fn call_sites_are_in_what_other_programs_read() {
    let (_, folder) = traced(&program("plain", "sites"));
    let json = report(&folder, &["--json"]);
    assert!(json.contains("\"callers\":[{\"caller\":\"call_sites-plain+0x"), "{json}");
    let csv = report(&folder, &["--csv"]);
    assert!(csv.contains(" copy_first (call_sites.c:"), "{csv}");
    let trace = Scratch::new("timeline.json");
    report(&folder, &["--perfetto", &trace.to_string_lossy()]);
    let perfetto = fs::read_to_string(&trace).unwrap();
    assert!(perfetto.contains("\"caller\":\"call_sites-plain+0x"), "{perfetto}");
}
