//! The shim's findings in calls: each rule speaks where it should, by either API, and is silent beside it.
//!
//! Rules about arguments: the rows of the conformance tables, which tests/it/conformance.rs runs, each in a process of its own, against
//! tests/golden/conformance-findings.tsv. The others: [`CASES`], which `findings.c` implements.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use crate::support::findings::Finding;
use crate::support::soak::{flavours, soak};
use crate::support::{Outcome, Program, path};

// ---- The rules ----

/// A rule, as `p2pshim explain` lists it.
struct Rule {
    id: String,
    /// Whether it is about functions of the runtime, and of the driver.
    layers: [bool; 2],
}

fn rules() -> Vec<Rule> {
    let output = Command::new(crate::support::command()).arg("explain").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let rule = |line: &str| {
        let (id, rest) = line.split_once(' ').unwrap();
        let (_severity, functions) = rest.trim_start().split_once(' ').unwrap();
        let names: Vec<_> = functions.trim_start().split(", ").collect();
        let has = |is: fn(&&str) -> bool| names.iter().any(|name| is(name) || name.starts_with("all "));
        let layers =
            [has(|name| name.starts_with("cuda")), has(|name| name.starts_with("cu") && !name.starts_with("cuda"))];
        Rule { id: id.to_owned(), layers }
    };
    let rules: Vec<_> = text.lines().map(rule).collect();
    assert!(rules.len() > 50, "{text}");
    rules
}

fn is_of_runtime(function: &str) -> bool {
    function.starts_with("cuda")
}

// ---- Rows of the conformance tables ----

const TABLES: [&str; 3] =
    ["tests/golden/conformance.tsv", "tests/golden/conformance-regular.tsv", "c-tests/conformance-unmeasured.tsv"];
const GOLDEN: &str = "tests/golden/conformance-findings.tsv";
const HEAD: &str = "\
# Findings of `P2PSHIM_VALIDATE=warn` in the rows of the conformance tables on simulated GPUs, with the shared runtime 12 and the
# static one. A row that is not listed has no finding. A finding of another function than the row's call, or of its setup, has
# that written before it. Written anew by `P2PSHIM_UPDATE=1 make test`; read what has changed.
setup\tcall\tshared 12\tstatic
";

/// A row's words: setup and call, without the answers.
pub(crate) type Row = String;

/// All rows, with their answers on real GPUs: documented, and given, which may be `?`; and a table of them.
pub(crate) fn all_rows() -> (Vec<(Row, [String; 2])>, String) {
    let (mut rows, mut table) = (Vec::new(), "setup\tcall\tdocumented\tret\tlast\tv\n".to_owned());
    for name in TABLES {
        let text = fs::read_to_string(path(name)).unwrap();
        for line in text.lines().filter(|line| !line.starts_with('#')).skip(1) {
            let columns: Vec<_> = line.split('\t').collect();
            rows.push((format!("{}\t{}", columns[0], columns[1]), [columns[2], columns[3]].map(str::to_owned)));
            table += &format!("{line}\n");
        }
    }
    (rows, table)
}

/// A row's function.
fn function(row: &str) -> &str {
    row.split('\t').nth(1).unwrap().split('(').next().unwrap()
}

/// The driver's function, whether it was called by the program or by its runtime, and whatever its default stream is.
fn base(function: &str) -> String {
    let driver = if is_of_runtime(function) { crate::support::below(function) } else { function.to_owned() };
    driver.trim_end_matches("_ptds").trim_end_matches("_ptsz").to_owned()
}

/// The findings in each row, by its number from 1: whether the call had begun, and the finding.
fn found(outcome: &Outcome) -> BTreeMap<usize, Vec<(bool, Finding)>> {
    // By process: which row, and whether its call has begun.
    let mut running: BTreeMap<String, (usize, bool)> = BTreeMap::new();
    let mut found: BTreeMap<usize, Vec<(bool, Finding)>> = BTreeMap::new();
    for line in &outcome.lines {
        let words: Vec<_> = line.split(' ').collect();
        if let ["row", number, "in", process, part] = words[..] {
            let process = process.trim_end_matches(':').to_owned();
            running.insert(process, (number.parse().unwrap(), part == "call"));
        } else if let Some(finding) = Finding::parse(line) {
            let process = words[2].split('/').next().unwrap();
            let (row, is_call) = running[process];
            found.entry(row).or_default().push((is_call, finding));
        }
    }
    assert!(running.len() > 70, "rows were not announced");
    found
}

/// A row's cell, as the golden table has it.
fn cell(row: &str, found: &[(bool, Finding)]) -> String {
    let said = found.iter().map(|(is_call, finding)| {
        let before = if *is_call { "" } else { "setup " };
        if base(&finding.function) == base(function(row)) && *is_call {
            finding.rule.clone()
        } else {
            format!("{before}{} {}", finding.function, finding.rule)
        }
    });
    said.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("; ")
}

/// The findings of a run of all rows that announces them, against the golden ones: of shared runtimes, or of the static one.
pub(crate) fn assert_rows(rows: &[(Row, [String; 2])], is_static: bool, outcome: &Outcome) {
    let (found, golden) = (found(outcome), golden(is_static));
    for (number, (row, answers)) in rows.iter().enumerate() {
        let of_row = found.get(&(number + 1)).map_or(&[][..], Vec::as_slice);
        // A call that is documented to succeed, and does, is no error.
        if *answers == ["0", "0"] {
            let is_error = |(is_call, finding): &&(bool, Finding)| *is_call && finding.severity == "error";
            let errors: Vec<_> = of_row.iter().filter(is_error).collect();
            assert!(errors.is_empty(), "{row}: {errors:#?}");
        }
        // A call that fails is explained, if it is of a function that rules are about.
        let fails = !["0", "?"].contains(&answers[1].as_str())
            && ["Peer", "P2P"].iter().any(|part| function(row).contains(part));
        assert!(is_static || !fails || !of_row.is_empty(), "{row}: answered {}, and nothing is said", answers[1]);
        let expected = golden.get(row).map(String::as_str).unwrap_or_default();
        assert_eq!(expected, cell(row, of_row), "{row}: expected (left) and found (right)");
    }
    let is_there = |row: &&String| !rows.iter().any(|(known, _)| known == *row);
    assert_eq!(golden.keys().filter(is_there).collect::<Vec<_>>(), [""; 0], "rows of {GOLDEN} that no table has");
}

/// The cells of rows with findings.
fn golden(is_static: bool) -> BTreeMap<Row, String> {
    let golden = fs::read_to_string(path(GOLDEN)).unwrap();
    let lines = golden.lines().filter(|line| !line.starts_with('#')).skip(1);
    let cells = lines.map(|line| {
        let [setup, call, shared, of_static] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        (format!("{setup}\t{call}"), if is_static { of_static } else { shared }.to_owned())
    });
    cells.collect()
}

/// Writes the golden table anew, by runs with the shared runtime 12 and the static one.
pub(crate) fn write_rows(rows: &[(Row, [String; 2])], outcomes: [&Outcome; 2]) {
    let (found, mut text, mut written) = (outcomes.map(found), HEAD.to_owned(), BTreeSet::new());
    for (number, (row, _)) in rows.iter().enumerate() {
        let cells = found.each_ref().map(|found| found.get(&(number + 1)).map_or_else(String::new, |of| cell(row, of)));
        if cells.iter().any(|cell| !cell.is_empty()) && written.insert(row) {
            text += &format!("{row}\t{}\n", cells.join("\t"));
        }
    }
    fs::write(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(GOLDEN), &text).unwrap();
}

/// The findings of a run of the rows of a table on an old runtime, whose names of then are other numbers: the same.
pub(crate) fn assert_rows_of_then(table: &str, outcome: &Outcome, how: &str) {
    let (found, golden, mut speaking) = (found(outcome), golden(false), 0);
    for (number, line) in table.lines().skip(1).enumerate() {
        let row = line.splitn(3, '\t').take(2).collect::<Vec<_>>().join("\t");
        let cell = found.get(&(number + 1)).map_or_else(String::new, |found| cell(&row, found));
        assert_eq!(cell, golden.get(&row).map(String::as_str).unwrap_or_default(), "{how}: {row}");
        speaking += usize::from(!cell.is_empty());
    }
    assert!(speaking > 300, "{how}: {speaking} rows with findings");
}

/// One of the old runtimes, or, in `make soak`, one of each kind.
fn old_versions() -> impl Iterator<Item = &'static str> {
    let more: &[_] = if soak().is_some() { &["9.0", "10.2"] } else { &[] };
    ["10.0"].into_iter().chain(more.iter().copied())
}

// ---- What single calls cannot show ----

/// A sub-case of `findings.c`.
struct Case {
    rule: &'static str,
    name: &'static str,
    /// The function of the runtime that it speaks of.
    function: &'static str,
    /// The variables that are the machine's, or chosen by the user.
    always: &'static [(&'static str, &'static str)],
    /// The variables that make it speak.
    to_fire: &'static [(&'static str, &'static str)],
}

const fn case(
    rule: &'static str,
    name: &'static str,
    function: &'static str,
    always: &'static [(&'static str, &'static str)],
    to_fire: &'static [(&'static str, &'static str)],
) -> Case {
    Case { rule, name, function, always, to_fire }
}

const CASES: &[Case] = &[
    case(
        "P2P-enable-unsupported",
        "enable_unsupported",
        "cudaDeviceEnablePeerAccess",
        &[("P2PSIM_NO_P2P", "0-1")],
        &[],
    ),
    case("P2P-enable-limit", "enable_limit", "cudaDeviceEnablePeerAccess", &[("P2PSIM_MAX_PEERS", "1")], &[]),
    case("P2P-slow-enable-churn", "enable_churn", "cudaDeviceEnablePeerAccess", &[], &[]),
    case("P2P-error-left-behind", "left_behind_704", "cudaMemcpyPeer", &[], &[]),
    case("P2P-error-left-behind", "left_behind_705", "cudaMemcpyPeer", &[], &[]),
    case("P2P-copy-freed-memory", "freed_memory", "cudaMemcpyPeer", &[], &[]),
    case("P2P-copy-freed-memory", "freed_in_order", "cudaMemcpyPeerAsync", &[], &[]),
    case("P2P-copy-unknown-pointer", "unknown_pointer", "cudaMemcpyPeer", &[], &[]),
    case("P2P-copy-destroyed-stream", "destroyed_stream", "cudaMemcpyPeerAsync", &[], &[]),
    case("P2P-copy3d-destroyed-array", "destroyed_array", "cudaMemcpy3DPeer", &[], &[]),
    case("P2P-copy-mapped-no-access", "mapped_no_access", "cudaMemcpyPeer", &[], &[]),
    case("P2P-order-stream-elsewhere", "stream_elsewhere", "cudaMemcpyPeerAsync", &[], &[]),
    case("P2P-order-default-stream", "default_stream", "cudaMemcpyPeerAsync", &[], &[]),
    case("P2P-order-non-blocking", "non_blocking", "cudaMemcpyPeer", &[], &[]),
    case("P2P-order-non-blocking", "blocking", "cudaMemcpyPeer", &[], &[]),
    case("P2P-order-non-blocking", "of_another_thread", "cudaMemcpyPeer", &[], &[]),
    case("P2P-staged-never-enabled", "never_enabled", "cudaMemcpyPeer", &[("P2PSHIM_ACCESS", "app")], &[]),
    case("P2P-graph-staged", "graph_staged", "cudaGraphLaunch", &[("P2PSHIM_ACCESS", "app")], &[]),
    case("P2P-graph-access-lost", "graph_lost", "cudaGraphLaunch", &[("P2PSHIM_ACCESS", "app")], &[]),
    case("P2P-staged-pool", "pool", "cudaMemcpyPeer", &[("P2PSHIM_POOLS", "app")], &[]),
    case("P2P-staged-mapped", "mapped", "cudaMemcpyPeer", &[], &[]),
    case("P2P-slow-small-copies", "small_copies", "cudaMemcpyPeerAsync", &[], &[]),
    case("P2P-slow-synchronous-loop", "synchronous_loop", "cudaMemcpyPeer", &[], &[]),
    case("P2P-error-earlier-work", "one_copy", "cudaMemcpyPeer", &[], &[("P2PSIM_FAULT", "code:cuMemcpyPeer:700@1")]),
    case("P2P-error-undocumented", "one_copy", "cudaMemcpyPeer", &[], &[("P2PSIM_FAULT", "code:cuMemcpyPeer:801@1")]),
    case("P2P-error-unexplained", "one_copy", "cudaMemcpyPeer", &[], &[("P2PSIM_FAULT", "code:cuMemcpyPeer:1@1")]),
    case("P2P-error-no-driver", "no_driver", "cudaDeviceCanAccessPeer", &[], &[("P2PSIM_DEVICES", "0")]),
];

/// Mistakes that cases make besides, found whether they fire or not.
const BESIDES: [(&str, &str, &str); 2] = [
    ("left_behind_704", "cudaDeviceEnablePeerAccess", "P2P-enable-twice"),
    ("left_behind_705", "cudaDeviceDisablePeerAccess", "P2P-disable-not-enabled"),
];

fn run_case(case: &Case, flavour: &str, api: &str, what: &str) -> Outcome {
    let program = Program::case(&format!("findings-{flavour}")).arg(api).arg(case.name).arg(what);
    let env = case.always.iter().chain(if what == "fires" { case.to_fire } else { &[] });
    let program = program.env("P2PSIM_DEVICES", "3");
    let program = env.fold(program, |program, (name, value)| program.env(name, *value));
    let outcome = program.with_notes().findings_apart().preloaded();
    outcome.assert_success();
    outcome
}

/// Whether a program of this runtime can show a rule about functions of a layer. The static runtime looks by itself whether
/// there is a driver, and whether an array is one, and calls no peer function then.
fn can_show(rule: &Rule, flavour: &str, api: &str) -> bool {
    let [runtime, driver] = rule.layers;
    match (flavour, api) {
        ("static", "runtime") => {
            driver && !["P2P-error-no-driver", "P2P-copy3d-destroyed-array"].contains(&rule.id.as_str())
        }
        (_, "runtime") => runtime,
        _ => driver,
    }
}

#[test]
fn cases_each_fires_and_its_neighbour_is_silent() {
    let rules = rules();
    for case in CASES {
        let rule = rules.iter().find(|rule| rule.id == case.rule).unwrap();
        for (flavour, api) in [("12", "runtime"), ("12", "driver"), ("static", "runtime"), ("static", "driver")] {
            for what in ["fires", "silent"] {
                let outcome = run_case(case, flavour, api, what);
                outcome.assert_silent();
                let besides = BESIDES.iter().filter(|(name, ..)| *name == case.name).map(|(_, of, rule)| (*of, *rule));
                let fires = (what == "fires" && can_show(rule, flavour, api)).then_some((case.function, case.rule));
                let is_driver = (flavour, api) != ("12", "runtime");
                let seen = |of: &str| if is_driver { crate::support::below(of) } else { of.to_owned() };
                let expected: BTreeSet<_> = besides.chain(fires).map(|(of, rule)| (seen(of), rule)).collect();
                let found = outcome.findings.iter().map(|finding| (finding.function.clone(), &*finding.rule));
                assert_eq!(expected, found.collect(), "{} in `{}`: {:#?}", case.rule, outcome.run, outcome.findings);
            }
        }
    }
}

/// Cases that need what old runtimes do not have, until which version, and what it is.
const NOT_OLD: &[(&str, &[&str], &str)] = &[
    ("pool", &["9.0", "10.0", "10.2"], "pools, of 11.2"),
    ("graph_staged", &["9.0", "10.0", "10.2"], "cudaGraphAddMemcpyNode1D, of 11.1"),
    ("graph_lost", &["9.0", "10.0", "10.2"], "cudaGraphAddMemcpyNode1D, of 11.1"),
    ("non_blocking", &["9.0"], "cudaLaunchHostFunc, of 10.0"),
    ("blocking", &["9.0"], "cudaLaunchHostFunc, of 10.0"),
    ("of_another_thread", &["9.0"], "cudaLaunchHostFunc, of 10.0"),
];

#[test]
fn cases_each_fires_and_its_neighbour_is_silent_on_old_runtimes() {
    let rules = rules();
    for case in CASES {
        let rule = rules.iter().find(|rule| rule.id == case.rule).unwrap();
        for version in old_versions() {
            if NOT_OLD.iter().any(|(name, versions, _)| *name == case.name && versions.contains(&version)) {
                continue;
            }
            for what in ["fires", "silent"] {
                let outcome = run_case(case, version, "runtime", what);
                let speaks = outcome.findings.iter().any(|finding| finding.rule == case.rule);
                let expected = what == "fires" && can_show(rule, version, "runtime");
                assert_eq!(speaks, expected, "{} in `{}`: {:#?}", case.rule, outcome.run, outcome.findings);
            }
        }
    }
}

// ---- Programs with bugs that people have had ----

/// Expects these findings, by function of the runtime; with a static runtime those of the driver are seen.
fn finds(case: &str, args: &[&str], env: &[(&str, &str)], expected: &[(&str, &str)]) {
    for flavour in flavours(case) {
        let program = args.iter().fold(Program::case(&format!("{case}-{flavour}")), |program, arg| program.arg(*arg));
        let program = env.iter().fold(program, |program, (name, value)| program.env(name, *value)).findings_apart();
        let (plain, preloaded) = (program.plain(), program.with_notes().preloaded());
        preloaded.assert_same_as(&plain, "preloaded");
        preloaded.assert_silent();
        let names =
            |function: &str| if flavour == "static" { crate::support::below(function) } else { function.to_owned() };
        // The last-error slot is the runtime's.
        let is_seen = |(_, rule): &&(&str, &str)| flavour != "static" || *rule != "P2P-error-left-behind";
        let expected = expected.iter().filter(is_seen).map(|(function, rule)| (names(function), (*rule).to_owned()));
        let found = preloaded.findings.iter().map(|finding| (finding.function.clone(), finding.rule.clone()));
        assert_eq!(expected.collect::<Vec<_>>(), found.collect::<Vec<_>>(), "{}", preloaded.run);
    }
}

#[test]
fn bug_704_taken_for_fatal() {
    let twice = ("cudaDeviceEnablePeerAccess", "P2P-enable-twice");
    finds("treats_704_as_fatal", &["fatal"], &[], &[twice]);
    finds("treats_704_as_fatal", &[], &[], &[twice, ("cudaMemcpyPeerAsync", "P2P-error-left-behind")]);
}

#[test]
fn bug_wrong_stream() {
    let devices = [("P2PSIM_DEVICES", "3")];
    let copy = "cudaMemcpyPeerAsync";
    finds("copies_on_wrong_stream", &[], &devices, &[(copy, "P2P-order-stream-elsewhere")]);
    finds("copies_on_wrong_stream", &["default"], &devices, &[(copy, "P2P-order-default-stream")]);
}

#[test]
fn bug_memory_of_a_pool_is_slow() {
    let staged = [("cudaMemcpyPeerAsync", "P2P-staged-pool")];
    for option in ["P2PSHIM_ACCESS", "P2PSHIM_POOLS"] {
        finds("copies_from_pool", &[], &[(option, "app")], &staged);
        finds("copies_from_pool", &["granted"], &[(option, "app")], &[]);
    }
    finds("copies_from_pool", &[], &[], &[]);
}

// ---- No rule without ----

const IN_CAUSES: [&str; 4] = ["P2P-enable-broken", "P2P-enable-denied", "P2P-capture-lost", "P2P-disable-under-copy"];

/// Which rules the golden tables show by functions of which layer: those that the runtime has, and the driver.
fn shown_by_rows() -> (BTreeSet<(String, bool)>, BTreeSet<String>) {
    let golden = fs::read_to_string(path(GOLDEN)).unwrap();
    let mut speaking = BTreeSet::new();
    let mut rows_with_findings = BTreeSet::new();
    for line in golden.lines().filter(|line| !line.starts_with('#')).skip(1) {
        let columns: Vec<_> = line.split('\t').collect();
        let row = format!("{}\t{}", columns[0], columns[1]);
        for (cell, is_static) in [(columns[2], false), (columns[3], true)] {
            for rule in cell.split("; ").filter(|rule| rule.starts_with("P2P-")) {
                let is_runtime = is_of_runtime(function(&row)) && !is_static;
                speaking.insert((rule.to_owned(), is_runtime));
            }
        }
        rows_with_findings.insert(row);
    }
    // A function of which a call succeeds, as is documented, and of which nothing is said.
    let is_right = |(row, answers): &(Row, [String; 2])| answers[0] == "0" && !rows_with_findings.contains(row);
    let silent = all_rows().0.into_iter().filter(is_right).map(|(row, _)| base(function(&row))).collect();
    (speaking, silent)
}

#[test]
fn rules_each_has_a_case_that_fires_and_one_that_is_silent() {
    let (speaking, silent) = shown_by_rows();
    let copies = ["cuMemcpyPeer", "cuMemcpyPeerAsync", "cuMemcpy3DPeer", "cuMemcpy3DPeerAsync"];
    let others =
        ["cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess", "cuDeviceCanAccessPeer", "cuDeviceGetP2PAttribute"];
    for function in copies.into_iter().chain(others) {
        assert!(silent.contains(function), "no row is a call of {function} with nothing wrong");
    }
    let mut without = Vec::new();
    for rule in rules() {
        // Those of data: tests/it/readback.rs, of batches in captures: tests/it/captures.rs, by both layers; of others that are taken for one
        // another: tests/it/causes.rs.
        let is_elsewhere = rule.id.starts_with("P2P-data-") || rule.id == "P2P-capture-batch";
        // Of order: tests/it/order.rs.
        let is_of_order = ["P2P-race", "P2P-possible-race", "P2P-lifetime"].contains(&rule.id.as_str());
        let is_elsewhere = is_elsewhere || is_of_order;
        let is_elsewhere = is_elsewhere || IN_CAUSES.contains(&rule.id.as_str());
        let has_case = CASES.iter().any(|case| case.rule == rule.id) || is_elsewhere;
        for (exists, is_runtime) in rule.layers.into_iter().zip([true, false]) {
            if exists && !has_case && !speaking.contains(&(rule.id.clone(), is_runtime)) {
                without.push((rule.id.clone(), if is_runtime { "runtime" } else { "driver" }));
            }
        }
    }
    assert!(without.is_empty(), "rules that no test makes speak: {without:#?}");
}
