//! The shim beside other things that want to be in the program too: allocators, sanitizers, tools of the dynamic linker, debuggers,
//! injected tools. The program must do what it does beside them without the shim, and its calls must be seen. Another library that
//! wraps `dlsym` is in tests/it/c_programs.rs. docs/LIMITS.md tells users what is shown here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::soak::is_all;
use crate::support::{Outcome, Program, Scratch, command, path, scratch, shim};

/// Programs that allocate before CUDA, in threads, at exit and in a forked child.
const CASES: [&str; 5] =
    ["guide_sample-12", "guide_sample-static", "multithreaded-12", "fork_child-12", "never_enables-static"];

fn output(command: &mut Command) -> Result<String, String> {
    let done = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    if done.status.success() { Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned()) } else { Err(said) }
}

/// Whether there is such a command; says that the test is skipped if not.
fn has(tool: &str) -> bool {
    let is_there = output(Command::new(tool).arg("--version")).is_ok();
    if !is_there {
        crate::support::say(&format!("skipped: {tool} is not installed"));
    }
    is_there
}

fn assert_same_and_quiet(with: &Outcome, without: &Outcome, how: &str) {
    with.assert_same_as(without, how);
    assert_eq!(with.shim, Vec::<String>::new(), "{how}");
}

/// With another library preloaded, before ours and after it, the program does what it does with that one alone.
fn beside(other: &Path, cases: &[&str]) {
    for case in cases {
        let program = Program::case(case).findings_apart();
        let alone = program.run(&[other]);
        alone.assert_success();
        for order in [[shim(), other.to_owned()], [other.to_owned(), shim()]] {
            let [first, second] = order.each_ref().map(PathBuf::as_path);
            let how = format!("{case}, {} before {}", first.display(), second.display());
            assert_same_and_quiet(&program.run(&[first, second]), &alone, &how);
            let (traced, trace) = program.traced_with(&[first, second]);
            assert_same_and_quiet(&traced, &alone, &how);
            assert!(!trace.calls.is_empty(), "{how}: no call was seen");
        }
    }
}

/// A library of a Debian package, or why it cannot be had.
fn allocator(name: &str) -> Result<PathBuf, String> {
    output(Command::new(path("c-tests/fetch-debian")).arg("allocators"))?;
    let library = path(&format!("target/allocators/lib/{name}"));
    let mut command = Command::new("true");
    let done = command.env("LD_PRELOAD", &library).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&done.stderr);
    if said.is_empty() { Ok(library) } else { Err(said.trim().to_owned()) }
}

fn beside_allocator(name: &str) {
    match allocator(name) {
        Ok(library) => beside(&library, &CASES),
        Err(why) => crate::support::say(&format!("skipped: beside {name}: {why}")),
    }
}

#[test]
fn jemalloc_in_either_order_same_output() {
    beside_allocator("libjemalloc.so.2");
}

#[test]
fn tcmalloc_in_either_order_same_output() {
    beside_allocator("libtcmalloc_minimal.so.4");
}

/// The guide's sample built with a sanitizer; none if this compiler has no such.
fn sanitized(name: &str, flags: &[&str]) -> Option<Program> {
    let built = scratch(&format!("guide_sample-{name}"));
    let mut gcc = Command::new("gcc");
    gcc.current_dir(env!("CARGO_MANIFEST_DIR")).args(["-g", "-O1", "-D_GNU_SOURCE", "-Ic-tests"]);
    gcc.args(["-isystem", "target/nvidia/cu12/include"])
        .args(flags)
        .args(["c-tests/cases/guide_sample.c", "target/nvidia/cu12/lib/libcudart.so.12", "-o"])
        .arg(&built);
    match output(&mut gcc) {
        Ok(_) => Some(Program::new(built).libraries("target/sim/lib")),
        Err(why) => {
            let last = why.lines().last().unwrap_or_default();
            crate::support::say(&format!("skipped: gcc cannot link with {}: {last}", flags.join(" ")));
            None
        }
    }
}

/// The shim alone is preloaded: the program does what it does plain.
fn assert_sanitized_same(program: &Program) {
    let plain = program.plain();
    plain.assert_success();
    let (traced, trace) = program.traced();
    assert_same_and_quiet(&traced, &plain, "preloaded");
    assert!(!trace.calls.is_empty(), "no call was seen");
}

#[test]
fn address_sanitizer_before_the_shim_same_output() {
    let Some(program) = sanitized("address", &["-fsanitize=address"]) else { return };
    let asan = PathBuf::from(output(Command::new("gcc").arg("-print-file-name=libasan.so")).unwrap());
    let plain = program.plain();
    plain.assert_success();
    let (traced, trace) = program.traced_with(&[&asan, &shim()]);
    assert_same_and_quiet(&traced, &plain, "after libasan");
    assert!(!trace.calls.is_empty(), "no call was seen");
    // The library wants to be first, whoever else is: a program without it is told the same.
    let after = program.preloaded();
    assert!(after.stderr.contains("ASan runtime does not come first"), "{after:#?}");
    let unsanitized = Program::case("guide_sample-12");
    let beside = unsanitized.run(&[&asan, &shim()]);
    assert_same_and_quiet(&beside, &unsanitized.plain(), "libasan in a program built without");
}

#[test]
fn address_sanitizer_told_not_to_look_at_the_order_same_output() {
    let Some(program) = sanitized("address-order", &["-fsanitize=address"]) else { return };
    assert_sanitized_same(&program.env("ASAN_OPTIONS", "verify_asan_link_order=0"));
}

#[test]
fn address_sanitizer_linked_statically_same_output() {
    let Some(program) = sanitized("address-static", &["-fsanitize=address", "-static-libasan"]) else { return };
    assert_sanitized_same(&program);
}

#[test]
fn undefined_behaviour_sanitizer_same_output() {
    let Some(program) = sanitized("undefined", &["-fsanitize=undefined", "-fno-sanitize-recover=all"]) else { return };
    assert_sanitized_same(&program);
}

#[test]
fn thread_sanitizer_same_output() {
    let Some(program) = sanitized("thread", &["-fsanitize=thread"]) else { return };
    // The simulated GPUs' threads are not built with it: it takes what they copy for races, by the thousand.
    let program = program.env("TSAN_OPTIONS", "report_bugs=0");
    if program.plain().status != "exit status: 0" {
        return crate::support::say(
            "skipped: thread_sanitizer_same_output: without the shim it does not run here either",
        );
    }
    assert_sanitized_same(&program);
}

#[test]
fn linker_audit_same_output_and_sees_the_shim() {
    let audit = path("target/c-tests/libaudit.so");
    for case in ["guide_sample-12", "guide_sample-static", "dlopen_local"] {
        let program = Program::case(case).findings_apart().env("LD_AUDIT", audit.to_str().unwrap());
        let program = if case == "dlopen_local" { program.arg("libcudart.so.12") } else { program };
        let plain = program.plain();
        let (with, trace) = program.traced();
        assert_eq!((&with.stdout, &with.status), (&plain.stdout, &plain.status), "{case}");
        assert!(!trace.calls.is_empty(), "{case}: no call was seen");
        if case == "guide_sample-12" {
            assert_eq!(plain.stderr, "audit: cudaMemcpyPeer was bound, past the shim");
            assert_eq!(with.stderr, "audit: cudaMemcpyPeer was bound, to the shim");
        }
    }
}

/// The dynamic linker itself makes the calls then, and has what they return before their caller.
#[test]
fn linker_audit_that_sees_calls_begin_and_end_same_output() {
    let audit = path("target/c-tests/libaudit_calls.so");
    for case in CASES {
        let program = Program::case(case).findings_apart().env("LD_AUDIT", audit.to_str().unwrap());
        let plain = program.plain();
        plain.assert_success();
        assert!(case.ends_with("static") || plain.stderr.contains("audit: "), "{plain:#?}");
        let (traced, trace) = program.traced();
        assert_same_and_quiet(&traced, &plain, case);
        assert!(!trace.calls.is_empty(), "{case}: no call was seen");
    }
}

#[test]
fn deepbind_plugin_passes_unseen_unless_its_runtime_was_there() {
    let (plain, trace) = Program::case("deepbind").assert_same_preloaded();
    assert_eq!(plain.stdout, "copied: 0\n");
    assert!(trace.calls.is_empty(), "docs/LIMITS.md says that it is not seen: {:#?}", trace.calls);
    let (_, trace) = Program::case("deepbind").arg("first").assert_same_preloaded();
    assert_eq!(trace.names_at(0), ["cuMemcpyPeer"]);
}

#[test]
fn injected_tool_same_output_and_set_up_once() {
    let tool = path("target/c-tests/libinjection.so");
    for case in CASES {
        let program = Program::case(case).findings_apart().env("CUDA_INJECTION64_PATH", tool.to_str().unwrap());
        let plain = program.plain();
        plain.assert_success();
        let says = "injection: initialised 1 time(s), 2 devices, peer access 1, looked up 4 of 4";
        assert!(plain.stderr.lines().all(|line| line == says) && !plain.stderr.is_empty(), "{}", plain.stderr);
        let (traced, trace) = program.traced();
        assert_same_and_quiet(&traced, &plain, "beside an injected tool");
        assert!(!trace.calls.is_empty(), "{case}: no call was seen");
    }
}

/// As cuInterpose: what the program allocates is mapped, and others open it by tickets. Our own memory is as it was: a path that loses data
/// is found, though copies of the program's do not take it.
#[test]
fn library_that_maps_what_is_allocated_in_either_order_same_output() {
    let (ours, library) = (shim(), path("target/c-tests/libmaps_memory.so"));
    let orders = [[ours.as_path(), &library], [&library, ours.as_path()]];
    for case in ["never_enables-static", "fork_child-12", "memory_of_another_process"] {
        let program = Program::case(case).findings_apart();
        let alone = program.run(&[&library]);
        alone.assert_success();
        assert!(alone.stderr.contains("mapped: ") && !alone.stderr.contains("mapped: 0 allocations"), "{alone:#?}");
        for order in orders {
            let how = format!("{case}, {} first", order[0].display());
            let with = program.run(&order);
            assert_same_and_quiet(&with, &alone, &how);
            // The library has changed the memory; and the last program passes NULL.
            let is_true = |rule: &str| ["P2P-staged-mapped", "P2P-copy-null-context"].contains(&rule);
            assert!(with.findings.iter().all(|finding| is_true(&finding.rule)), "{how}: {:#?}", with.findings);
            let (traced, trace) = program.traced_with(&order);
            assert_same_and_quiet(&traced, &alone, &how);
            assert!(!trace.calls.is_empty(), "{how}: no call was seen");
        }
    }
    for order in orders {
        let pools = Program::case("copies_from_pool-12").findings_apart().env("P2PSIM_FAULT", "drop:0>1").run(&order);
        assert!(pools.shim.iter().any(|line| line.contains("data does not arrive")), "{pools:#?}");
    }
    let case = path("target/c-tests/memory_of_another_process").to_string_lossy().into_owned();
    let run = Program::new(command()).args(&["run", "--sim", "2", "--no-check", &case]).findings_apart();
    let shared = run.env("LD_PRELOAD", library.to_string_lossy()).plain();
    let report = shared.lines.join("\n");
    assert_eq!(shared.status, "exit status: 0", "{shared:#?}");
    for said in ["mapped: 1 allocations, 1 exports, 0 opened", "2.1 MB of submitted copies were between processes: "] {
        assert!(report.contains(said), "no {said}: {report}");
    }
}

/// One of the C programs under a tool of valgrind, which tells findings of its own on standard error.
fn under_valgrind(case: &str, arguments: &[&str]) -> Program {
    let valgrind = Program::new("valgrind").libraries("target/sim/lib").findings_apart().arg("-q");
    let valgrind = arguments.iter().fold(valgrind, |valgrind, argument| valgrind.arg(*argument));
    valgrind.arg(path(&format!("target/c-tests/{case}")).to_str().unwrap())
}

/// Runs a program with a trace in a file, which must have each call.
fn recorded(program: &Program, preload: &[&Path]) -> Outcome {
    let folder = Scratch::new("traces");
    let (outcome, trace) = program.clone().env("P2PSHIM_TRACE", folder.to_string_lossy()).traced_with(preload);
    assert!(!trace.calls.is_empty(), "no call was seen");
    trace.assert_recorded_in(&folder);
    outcome
}

#[test]
fn valgrind_same_output_and_finds_no_error_and_no_leak() {
    if !has("valgrind") {
        return;
    }
    let leaks = ["--leak-check=full", "--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"];
    // The second makes so many calls that it takes more space for its trace. What is left in a child that was forked is not ours alone.
    for (case, leaks) in [("guide_sample-12", &leaks[..]), ("multithreaded-12", &leaks), ("fork_child-12", &[])] {
        let valgrind = under_valgrind(case, &[leaks, &["--error-exitcode=9"]].concat());
        let plain = if is_all() { valgrind.plain() } else { Program::case(case).plain() };
        plain.assert_success();
        assert_same_and_quiet(&recorded(&valgrind, &[&shim()]), &plain, &format!("{case} under valgrind"));
    }
}

#[test]
#[ignore = "make soak"]
fn valgrind_with_its_other_tools_same_output() {
    if !has("valgrind") {
        return;
    }
    let plain = Program::case("guide_sample-12").plain();
    let tools = [
        ["--tool=massif", "--massif-out-file=/dev/null"],
        ["--tool=callgrind", "--callgrind-out-file=/dev/null"],
        ["--tool=drd", "--error-limit=no"],
        ["--tool=helgrind", "--history-level=none"],
    ];
    for tool in tools {
        let outcome = recorded(&under_valgrind("guide_sample-12", &tool), &[&shim()]);
        let did = [(&plain.stdout, &plain.status), (&outcome.stdout, &outcome.status)];
        assert_eq!(did[0], did[1], "plain (left) and under {}: {}", tool[0], outcome.stderr);
        assert_eq!(outcome.shim, Vec::<String>::new(), "{}", tool[0]);
    }
}

#[test]
fn strace_same_output() {
    if !has("strace") {
        return;
    }
    let under = |log: &Path, set: &[String]| {
        let strace = Program::new("strace").libraries("target/sim/lib").arg("-f").arg("-o").arg(log.to_str().unwrap());
        let strace = set.iter().fold(strace, |strace, set| strace.arg("-E").arg(set));
        strace.arg(path("target/c-tests/guide_sample-12").to_str().unwrap())
    };
    let log = Scratch::new("strace");
    let plain = under(&log, &[]).plain();
    if plain.status != "exit status: 0" {
        return crate::support::say(&format!("skipped: strace may not trace here: {}", plain.stderr));
    }
    let strace = under(&log, &[format!("LD_PRELOAD={}", shim().display())]);
    assert_same_and_quiet(&strace.plain(), &plain, "under strace");
    assert!(fs::read_to_string(&log).unwrap().contains("libp2pshim.so"), "the shim was not preloaded");
    assert_same_and_quiet(&recorded(&strace, &[]), &plain, "under strace, with a trace");
}

#[test]
fn gdb_stops_in_a_call_and_goes_on_same_output() {
    if !has("gdb") {
        return;
    }
    let under = |before: &[&str]| {
        let gdb = Program::new("gdb").libraries("target/sim/lib").arg("-nx").arg("--batch");
        let commands = ["set startup-with-shell off", "set breakpoint pending on", "set style enabled off"];
        let steps = ["break cudaMemcpyPeerAsync", "run", "backtrace", "delete", "continue"];
        let commands = commands.iter().chain(before).chain(&steps);
        let gdb = commands.fold(gdb, |gdb, command| gdb.arg("-ex").arg(*command));
        gdb.arg(path("target/c-tests/guide_sample-12").to_str().unwrap())
    };
    let shown = |outcome: &Outcome| {
        let lines = outcome.stdout.lines().filter(|line| line.starts_with("cuda") || line.starts_with("GPU "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let plain = under(&[]).plain();
    if !plain.stdout.contains("exited normally") {
        return crate::support::say(&format!("skipped: gdb may not trace here: {}", plain.stderr));
    }
    let with = recorded(&under(&[&format!("set environment LD_PRELOAD {}", shim().display())]), &[]);
    assert_eq!(shown(&plain), shown(&with));
    for (outcome, how) in [(&plain, "plain"), (&with, "preloaded")] {
        assert!(outcome.stdout.contains("exited normally"), "{how}: {outcome:#?}");
        let stopped = outcome.stdout.lines().any(|line| line.starts_with('#') && line.contains(" main ("));
        assert!(stopped, "{how}: the backtrace does not reach main: {outcome:#?}");
    }
    let in_shim = with.stdout.lines().any(|line| line.starts_with("#0") && line.contains("libp2pshim.so"));
    assert!(in_shim, "it did not stop in the shim: {}", with.stdout);
}
