//! The programs of c-tests on the simulated runtimes of CUDA 8.0 to 10.2: the same plain and preloaded, and the shim finds in them what it
//! finds in them with the runtime of 12.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::support::legacy::VERSIONS;
use crate::support::sequences::Sequences;
use crate::support::soak::{Draw, is_all};
use crate::support::{Outcome, Program, Scratch, Trace, path};

type Variables = &'static [(&'static str, &'static str)];

/// The parts of a run that not all versions have.
#[derive(Clone, Copy)]
enum Since {
    V8_0,
    /// Captures and functions of the host on streams.
    V10_0,
    /// Codes that the program compares with those of its headers, of 11.8; modes of captures.
    V10_1,
}

impl Since {
    fn has(self, version: &str) -> bool {
        match self {
            Since::V8_0 => true,
            Since::V10_0 => !["8.0", "9.0"].contains(&version),
            Since::V10_1 => !["8.0", "9.0", "10.0"].contains(&version),
        }
    }
}

use Since::{V8_0, V10_0, V10_1};

const FOUR: Variables = &[("P2PSIM_DEVICES", "4")];
const THREE: Variables = &[("P2PSIM_DEVICES", "3")];

/// Runs that are the same plain, preloaded, and preloaded with a trace.
const SAME: &[(&str, Variables, Since)] = &[
    ("enables_at_load", &[], V8_0),
    ("guide_sample", &[], V8_0),
    ("four_copies_sizes", &[], V8_0),
    ("per_thread_stream", &[], V8_0),
    ("multithreaded", &[], V10_1),
    ("null_arguments", &[], V8_0),
    ("exit_paths", &[], V8_0),
    ("fork_child", &[], V8_0),
    ("fork_after_lookup lookup", &[], V8_0),
    ("log_limits descriptors", &[], V8_0),
    ("raw_fork", &[], V8_0),
    ("copies_beside_capture", &[], V10_0),
    ("all_pairs", FOUR, V8_0),
    ("all_pairs", &[("P2PSIM_DEVICES", "4"), ("P2PSIM_MAX_PEERS", "1")], V8_0),
    ("no_driver", &[("P2PSIM_DEVICES", "0")], V8_0),
    ("thread_limits main-ends", &[], V8_0),
    ("thread_limits raw-child", &[], V8_0),
    ("treats_704_as_fatal", &[], V8_0),
    ("treats_704_as_fatal fatal", &[], V8_0),
    ("copies_on_wrong_stream", THREE, V8_0),
    ("copies_on_wrong_stream default", THREE, V8_0),
    ("hip_for_nvidia", &[], V8_0),
    ("regular_copies between", &[], V8_0),
    ("regular_copies elsewhere", &[], V8_0),
    ("regular_copies past", &[], V8_0),
    ("read_back enable async 3000000 6", &[], V8_0),
    ("read_back enable held 3000000 3", &[], V10_0),
    ("repeated_copies memory", &[], V8_0),
    ("repeated_copies streams", &[], V8_0),
    ("repeated_copies mistakes", &[], V8_0),
    ("repeated_copies gone", &[], V8_0),
    ("repeated_copies children", &[], V8_0),
    ("never_enables", &[], V8_0),
    ("never_enables mapped", &[], V8_0),
    ("never_enables enable", &[], V8_0),
    ("never_enables", &[("P2PSIM_NO_P2P", "0-1")], V8_0),
    ("lists_peers", THREE, V8_0),
];

/// Runs that differ from plain ones, or have no plain one to compare with: they are as with the runtime of 12.
const AS_WITH_12: &[(&str, Variables, Since)] = &[
    ("signal_longjmp", &[], V8_0),
    ("captured_copies", &[], V10_0),
    ("captured_copies elsewhere", &[], V10_0),
    ("repeated_copies captures", &[], V10_1),
    ("children_sharing vfork", &[], V8_0),
    ("children_sharing clone-vm", &[], V8_0),
    ("children_sharing raw", &[], V8_0),
    ("children_sharing fork", &[], V8_0),
    ("full_log pipe finds", &[], V8_0),
    ("closed_stderr late", &[("P2PSHIM_LOG", "trace")], V8_0),
    ("closed_stderr early", &[("P2PSHIM_LOG", "trace")], V8_0),
    ("sigpipe_stderr", &[("P2PSHIM_LOG", "trace")], V8_0),
    ("exec_again", &[], V8_0),
    ("ends_inside sync", &[("P2PSHIM_ACCESS", "app")], V8_0),
    ("ends_inside async", &[("P2PSHIM_ACCESS", "app")], V8_0),
    ("ends_inside box", &[("P2PSHIM_ACCESS", "app")], V8_0),
    ("ends_inside repeated_copies", &[("P2PSHIM_ACCESS", "app")], V8_0),
];

/// Looked at elsewhere in these tests.
const ELSEWHERE: &[(&str, &str)] = &[
    ("conformance", "tests/it/legacy_conformance.rs"),
    ("findings", "tests/it/findings.rs"),
    ("random_access", "sequences_are_the_same_preloaded"),
    ("random_arguments", "sequences_are_the_same_preloaded"),
    ("staged_copies", "sequences_are_the_same_preloaded"),
];

/// Programs that make no sense with old runtimes, and why.
const SKIPPED: &[(&str, &str)] = &[
    ("entry_point", "is about cudaGetDriverEntryPoint, of 11.3"),
    ("hidden", "asks by cudaGetDriverEntryPoint and pools, of 11.2 and 11.3"),
    ("copies_from_pool", "is about pools, of 11.2"),
    ("asks_like", "is about programs of today"),
    ("graph_copies", "is about functions of graphs that came with 11.0 and later"),
    ("random_waits", "is about pools, captures and batches, too, of 11.2 and later"),
    ("random_graphs", "is about batches, pools, and functions of graphs that came with 11.0 and later"),
    ("between_processes", "is about pools and memory that both map, of 11.2 and 10.2"),
    ("by_hand", "looks at the trace of the driver's copies, which do not depend on the runtime"),
    ("ends_suddenly", "is about files of traces, which do not depend on the runtime"),
];

/// Scenarios of programs above that are not run, and why.
const SKIPPED_RUNS: &[(&str, &str)] = &[
    (
        "thread_limits stack",
        "the simulated old runtimes take more of a stack of 16 KiB to start than there is with us beside them",
    ),
    ("repeated_copies captures", "in 10.0 captures have no modes; it needs them"),
    ("multithreaded", "until 10.0 it finds other codes than those of its headers"),
];

fn program((run, env, _): &(&str, Variables, Since), flavour: &str) -> Program {
    let mut words = run.split(' ');
    let program = Program::case(&format!("{}-{flavour}", words.next().unwrap()));
    let program = words.fold(program, |program, word| program.arg(word));
    env.iter().fold(program, |program, (name, value)| program.env(name, *value)).findings_apart()
}

/// Plain and preloaded with a trace: both must do the same. In `make soak` without a trace, too.
struct Same {
    plain: Outcome,
    traced: Outcome,
    trace: Trace,
}

fn same_preloaded(program: &Program) -> Same {
    let is_quiet =
        |outcome: &Outcome| outcome.shim.iter().all(|line| line.contains(" times so far from the same place"));
    let plain = program.plain();
    if is_all() {
        let preloaded = program.clone().with_notes().preloaded();
        preloaded.assert_same_as(&plain, "preloaded");
        assert!(is_quiet(&preloaded), "{preloaded:#?}");
    }
    let folder = Scratch::new("traces");
    let (traced, trace) = program.clone().env("P2PSHIM_TRACE", folder.to_string_lossy()).traced();
    traced.assert_same_as(&plain, "preloaded with a trace");
    assert!(is_quiet(&traced), "{traced:#?}");
    trace.assert_recorded_in(&folder);
    Same { plain, traced, trace }
}

/// The findings in a program, by their functions.
fn found(outcome: &Outcome) -> BTreeSet<(&str, &str)> {
    outcome.findings.iter().map(|finding| (finding.function.as_str(), finding.rule.as_str())).collect()
}

/// A run that is the same plain and preloaded, with a version, against that with the runtime of 12 if there is one.
fn assert_same(run: &(&str, Variables, Since), version: &str, with_12: Option<&Outcome>) {
    let how = format!("{} {:?}, {version}", run.0, run.1);
    let Same { plain, traced, trace } = same_preloaded(&program(run, version));
    assert!(!plain.stdout.contains("WRONG"), "{how}: {}", plain.stdout);
    let is_seen = trace.calls.iter().any(|call| call.depth == 0 && call.name.starts_with("cuda"));
    // Copies that are not between devices are not shown.
    assert_eq!(is_seen, !run.0.ends_with(" elsewhere"), "{how}: {:#?}", trace.calls);
    if let Some(new) = with_12 {
        assert_eq!(found(&traced), found(new), "findings in {how} (left) and 12 (right)");
        assert_eq!(traced.status, new.status, "{how} (left) and 12 (right)");
    }
}

/// The versions that a run is tried with: one of those that have all that it needs, or all of them.
fn versions(run: &(&str, Variables, Since), draw: &mut Draw) -> Vec<&'static str> {
    let all: Vec<_> = VERSIONS.into_iter().filter(|version| run.2.has(version)).collect();
    if is_all() { all } else { vec![all[draw.below(all.len())]] }
}

#[test]
fn programs_are_the_same_preloaded_and_as_with_12() {
    let mut draw = Draw::of("old versions");
    for run in SAME {
        // This program is for old runtimes only.
        let with_12 = (run.0 != "enables_at_load").then(|| program(run, "12").with_notes().preloaded());
        versions(run, &mut draw).into_iter().for_each(|version| assert_same(run, version, with_12.as_ref()));
    }
    for run in AS_WITH_12 {
        let new = program(run, "12").preloaded();
        for version in versions(run, &mut draw) {
            let old = program(run, version).preloaded();
            assert_eq!(old.stdout, new.stdout, "{} {:?}, {version} (left) and 12 (right)", run.0, run.1);
            assert_eq!(old.status, new.status, "{} {:?}, {version} (left) and 12 (right)", run.0, run.1);
        }
    }
}

#[test]
fn sequences_are_the_same_preloaded() {
    for (number, version) in VERSIONS.into_iter().enumerate() {
        let first = 70_000 + 1000 * number as u32;
        Sequences { case: "random_access" }.assert_same(version, first, 200, &[]);
        let said = Sequences { case: "random_arguments" }.assert_same(version, first, 160, &[]);
        assert!(said.len() == 1 && !said[0].contains("LAST"), "{version}: {said:?}");
        let staged = [("P2PSIM_NO_P2P", "0-1"), ("P2PSHIM_STAGING", "always")];
        Sequences { case: "staged_copies" }.assert_same(version, first, 20, &staged);
    }
}

/// The programs whose first line has a word: see c-tests/README.md.
fn built_as(word: &str) -> BTreeSet<String> {
    let cases = fs::read_dir(path("c-tests/cases")).unwrap().map(|entry| entry.unwrap().path());
    let files =
        cases.chain([path("c-tests/conformance.c")]).filter(|file| file.extension().is_some_and(|end| end == "c"));
    let has_word = |file: &PathBuf| {
        let text = fs::read_to_string(file).unwrap();
        text.split("; run:").next().unwrap().split(' ').any(|built| built == word)
    };
    files.filter(has_word).map(|file| file.file_stem().unwrap().to_string_lossy().into_owned()).collect()
}

/// A program is run, or it says here why it is not.
#[test]
fn every_program_is_run_or_skipped_with_a_reason() {
    let first = |run: &str| run.split(' ').next().unwrap().to_owned();
    let runs = SAME.iter().chain(AS_WITH_12).map(|run| first(run.0));
    let run: BTreeSet<String> = runs.chain(ELSEWHERE.iter().map(|(name, _)| (*name).to_owned())).collect();
    let skipped: BTreeSet<String> = SKIPPED.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(run.intersection(&skipped).count(), 0);
    let all = built_as("runtime");
    let known: BTreeSet<String> = run.union(&skipped).cloned().collect();
    assert_eq!(all.difference(&known).collect::<Vec<_>>(), Vec::<&String>::new(), "neither run nor skipped");
    let built = built_as("old");
    let mut not_run: Vec<_> = built.difference(&run).collect();
    not_run.retain(|name| *name != "legacy");
    assert_eq!(not_run, Vec::<&String>::new(), "built and not run");
    assert!(SKIPPED_RUNS.iter().all(|(run_, _)| run.contains(&first(run_))));
}
