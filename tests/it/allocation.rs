//! Allocations of the shim that fail. The program must do what it does without the shim, whichever fails; once malloc has failed
//! the shim does little more than count.

use std::fs;

use crate::support::soak::{Draw, soak};
use crate::support::{Outcome, Program, Scratch, path, shim};
use p2pshim_trace::{NoteKind, Trace};

/// Part of what the shim says.
const SAID: &str = "out of memory: malloc has failed in p2pshim";

/// The program with the shim, once for each of the first 2,000 allocations, in these steps, and each way in which that can fail;
/// then how many allocations there were.
fn failing(program: &Program, expected: &Outcome, step: u32) -> (Outcome, u32) {
    expected.assert_success();
    let file = Scratch::new("expected");
    fs::write(&file, &expected.stdout).unwrap();
    let program = program.clone().findings_apart().env("FAILING_ALLOC", file.to_string_lossy());
    let first = 1 + Draw::of("allocations that fail").below(step as usize);
    let program = program.env("FAILING_ALLOC_FIRST", first.to_string());
    let program = program.env("FAILING_ALLOC_STEP", step.to_string()).env("FAILING_ALLOC_LAST", "2000");
    let outcome = with_failing_alloc(&program);
    outcome.assert_success();
    // The lines of tables are indented.
    let others: Vec<_> = outcome.stderr.lines().filter(|line| !line.starts_with("  ")).take(5).collect();
    assert!(others.is_empty(), "{others:#?}");
    let allocations = outcome.stdout.split(' ').next().unwrap().parse().unwrap();
    (outcome, allocations)
}

fn with_failing_alloc(program: &Program) -> Outcome {
    program.run(&[&path("target/c-tests/libfailing_alloc.so"), &shim()])
}

/// The step of `make soak`; `make test` takes others, which are larger.
fn steps(in_soak: u32) -> u32 {
    if soak().is_some() { in_soak } else { 4 * in_soak + 19 }
}

/// Every call of CUDA, and of HIP.
fn programs() -> [Program; 2] {
    [Program::case("every_call"), Program::case("every_call").arg("hip")].map(Program::findings_apart)
}

#[test]
fn every_call_each_allocation_fails_the_program_notices_nothing() {
    let each = |program: Program| {
        let (outcome, allocations) = failing(&program, &program.plain(), steps(1));
        assert!(allocations > 50, "{allocations} allocations are too few to be all of the shim's");
        assert!(outcome.shim.iter().any(|line| line.contains(SAID)), "{:#?}", outcome.shim);
    };
    std::thread::scope(|scope| {
        programs().map(|program| scope.spawn(|| each(program))).map(|thread| thread.join().unwrap())
    });
}

/// With all that takes memory: the log of calls, the trace, the table at exit, order.
#[test]
fn every_call_shown_and_recorded_allocations_fail_the_program_notices_nothing() {
    let (folder, log) = (Scratch::new("traces"), Scratch::new("log"));
    for program in programs() {
        let plain = program.plain();
        let all = program.env("P2PSHIM_LOG", "trace").env("P2PSHIM_LOG_FILE", log.to_string_lossy());
        let all =
            all.env("P2PSHIM_ORDER", "on").env("P2PSHIM_SUMMARY", "on").env("P2PSHIM_TRACE", folder.to_string_lossy());
        let (_, allocations) = failing(&all.env("P2PSHIM_TRACE_LIMIT", "2M"), &plain, steps(13));
        assert!(allocations > 500, "{allocations} allocations are too few to be all of the shim's");
    }
}

/// Hidden peers stay so, and calls are answered as before.
#[test]
fn every_call_peers_hidden_each_allocation_fails_no_peer_is_found() {
    let program = Program::case("every_call").env("P2PSHIM_ACCESS", "off").findings_apart();
    let hidden = program.preloaded();
    assert!(hidden.stdout.contains("can 0 0 0"), "{}", hidden.stdout);
    failing(&program, &hidden, steps(7));
}

/// Copies that the reserve has no room for are made without it: a graph of 6,000 copies, a batch of 60,000.
#[test]
fn many_copies_at_once_allocations_fail_the_program_notices_nothing() {
    let program = Program::case("graph_copies-12").arg("many").findings_apart();
    let plain = program.plain();
    plain.assert_success();
    for first in (1..600).step_by(steps(151) as usize) {
        let failing = program.clone().env("FAILING_ALLOC_ONLY", first.to_string());
        with_failing_alloc(&failing).assert_same_as(&plain, "without memory");
    }
}

/// Log, trace and table say what has happened, and calls are still counted.
#[test]
fn memory_runs_out_it_is_said_once_and_calls_are_counted() {
    let folder = Scratch::new("traces");
    let program = Program::case("every_call").findings_apart().env("P2PSHIM_TRACE", folder.to_string_lossy());
    let whole = program.clone().env("P2PSHIM_SUMMARY", "on");
    let without = with_failing_alloc(&whole.clone().env("FAILING_ALLOC_ONLY", "0"));
    let count = without.stderr.lines().find_map(|line| line.strip_suffix(" allocations")?.parse::<u32>().ok());
    let failing = whole.env("FAILING_ALLOC_ONLY", (count.unwrap() / 2).to_string());
    let _ = fs::remove_dir_all(&folder);
    let with = with_failing_alloc(&failing);
    with.assert_success();
    let lines = |outcome: &Outcome| outcome.shim.iter().filter(|line| line.contains(SAID)).count();
    assert_eq!((lines(&with), lines(&without)), (1, 0), "{:#?}", with.shim);
    assert!(with.lines.iter().any(|line| line.contains("memory ran out")), "{:#?}", with.lines);
    let table = |outcome: &Outcome| {
        let is_call = |line: &&String| line.starts_with("  cu");
        outcome.lines.iter().filter(is_call).cloned().collect::<Vec<_>>()
    };
    assert_eq!(table(&with), table(&without), "calls counted with (left) and without (right) memory");
    let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let trace = Trace::open(&file).unwrap();
    assert!(trace.notes_of(NoteKind::Message).any(|note| note.string(0).contains(SAID)));
    assert!(trace.dropped() > 20, "{} calls dropped", trace.dropped());
}

/// Where even the reserve would not do, calls are only forwarded.
#[test]
fn reserve_is_half_used_calls_are_only_forwarded() {
    let program = Program::case("every_call").arg("pools").findings_apart();
    let plain = program.plain();
    plain.assert_success();
    with_failing_alloc(&program.env("FAILING_ALLOC_ONLY", "1")).assert_same_as(&plain, "without memory");
}

/// The test of these tests: this list is that of the table, but for functions that only order needs.
#[test]
fn every_call_names_each_function_of_the_table() {
    let text = fs::read_to_string(path("c-tests/cases/every_call.c")).unwrap();
    let table: &'static str = fs::read_to_string(path("src/api/functions.txt")).unwrap().leak();
    let is_row = |line: &&str| !line.starts_with(['#', 'v']) && !line.starts_with("order(") && line.ends_with(')');
    let rows = table.lines().filter(is_row);
    // The effect, the layer, the version, the name, and the arguments.
    let name = |row: &'static str| row.rsplit_once('(').map(|(head, _)| head.split_whitespace().last().unwrap_or(head));
    let names: Vec<_> = rows.filter_map(name).collect();
    assert!(names.len() > 90, "{names:?}");
    let is_called = |name: &&&str| ["(", ",", ")", "\""].iter().any(|end| text.contains(&format!("{name}{end}")));
    let missing: Vec<_> = names.iter().filter(|name| !is_called(name)).collect();
    assert!(missing.is_empty(), "not called: {missing:?}");
}
