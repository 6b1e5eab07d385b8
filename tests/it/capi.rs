//! The C interface, called by C programs that are built with the sanitizers: linked, preloaded and opened at run time; on
//! simulated GPUs and without a driver. c-tests/capi/ has what is called and what must come of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::{Outcome, Program, Scratch, doctor, shim};
use p2pshim_trace::{NoteKind, State, Trace};

/// How a program comes by the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Linked,
    Preloaded,
    Opened,
}

use Way::{Linked, Opened, Preloaded};

fn in_project(path: &str) -> String {
    format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn verdict_of_files_that_others_could_have_written_is_not_believed_by_python() {
    let test = Program::new("python3").arg(in_project("packaging/python/tests/test_verdict.py"));
    test.env("PYTHONPATH", in_project("packaging/python")).plain().assert_success();
}

const WAYS: [Way; 3] = [Linked, Preloaded, Opened];

/// Where the dynamic linker finds the library by its soname.
fn beside_the_shim() -> String {
    let folder = shim().parent().unwrap().strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().to_owned();
    folder.to_str().unwrap().to_owned()
}

/// Runs a task of c-tests/capi/main.c, which must succeed; the second path is the folder that it may write to.
fn run(task: &str, way: Way, has_gpus: bool, env: &[(&str, &str)]) -> (Outcome, Scratch) {
    let name = if way == Linked { "capi-linked" } else { "capi-found" };
    let folder = Scratch::new("capi");
    let program =
        Program::new(crate::support::path(&format!("target/c-tests/{name}"))).arg(task).arg(folder.to_string_lossy());
    let program = program.libraries(&beside_the_shim());
    let program = if has_gpus { program.libraries("target/sim/lib") } else { program };
    // Memory that lives as long as the process is no leak; that of the simulated GPUs is not ours.
    let program = program.env("ASAN_OPTIONS", "detect_leaks=0").findings_apart();
    let program = env.iter().fold(program, |program, (name, value)| program.env(name, *value));
    let program = if way == Opened { program.env("SHIM", shim().to_string_lossy()) } else { program };
    let outcome = if way == Preloaded { program.preloaded() } else { program.plain() };
    assert_eq!(
        (outcome.status.as_str(), outcome.stdout.as_str()),
        ("exit status: 0", "done\n"),
        "{task}, {way:?}, {has_gpus}: {:#?}",
        outcome.lines
    );
    (outcome, folder)
}

fn everywhere(task: &str, env: &[(&str, &str)]) {
    for way in WAYS {
        for has_gpus in [true, false] {
            run(task, way, has_gpus, env);
        }
    }
}

/// A handler's call has a finding, or leaves by `siglongjmp`, wherever the function allocates.
#[test]
fn functions_that_a_signal_interrupts_leave_no_lock_locked() {
    for how in ["finds", "leaves"] {
        let folder = Scratch::new("interrupted");
        let program = Program::case("questions_interrupted").arg(how).env("FOLDER", folder.to_string_lossy());
        let outcome = program.findings_apart().preloaded();
        outcome.assert_success();
        assert_eq!(outcome.stdout, "15 functions have returned each time\n", "{how}");
    }
}

#[test]
fn functions_of_the_header_are_all_called_by_the_c_tests() {
    let files = fs::read_dir(crate::support::path("c-tests/capi")).unwrap().map(|entry| entry.unwrap().path());
    let sources: String = files.map(|file| fs::read_to_string(file).unwrap()).collect();
    let functions = crate::support::capi_functions();
    let is_called = |name: &&String| sources.contains(&format!("API({})(", name.strip_prefix("p2pshim_").unwrap()));
    let missing: Vec<&String> = functions.iter().filter(|name| !is_called(name)).collect();
    assert!(missing.is_empty(), "no test in c-tests/capi calls {missing:?}");
    assert!(functions.len() > 20, "{functions:?}");
}

#[test]
fn numbers_are_told_and_bad_arguments_are_answered() {
    everywhere("numbers", &[]);
}

#[test]
fn options_change_before_and_after_the_first_call() {
    let env = [("P2PSHIM_VALIDATE", "off"), ("P2PSHIM_VERIFY", "nonsense"), ("P2PSHIM_LOG", "error")];
    everywhere("settings", &env);
    let (outcome, _) = run("settings", Linked, true, &env);
    // The log was to show the second of three calls.
    let shown: Vec<_> = outcome.shim.iter().filter(|line| line.contains("cuMemcpyPeer(")).collect();
    assert!(shown.len() == 1 && shown[0].contains("ByteCount=102"), "{:#?}", outcome.shim);
}

#[test]
fn state_says_what_is_reached_and_known() {
    everywhere("state", &[]);
    everywhere("denied", &[]);
    everywhere("vetoed", &[("P2PSIM_FAULT", "drop:0-1")]);
}

#[test]
fn forked_child_and_off_are_told_and_nothing_is_changed() {
    everywhere("forked", &[]);
    everywhere("off", &[]);
}

/// The file that a program has left in a folder.
fn trace_in(folder: &Path) -> Trace {
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    Trace::open(&files[0]).unwrap()
}

#[test]
fn trace_holds_what_happened_between_start_and_stop() {
    for way in WAYS {
        for has_gpus in [true, false] {
            let (_, folder) = run("trace", way, has_gpus, &[]);
            let trace = trace_in(&folder);
            assert_eq!((trace.problems(), trace.dropped()), (&[][..], 0));
            let mut sizes = Vec::new();
            let mut buffer = Vec::new();
            for block in 0..trace.blocks() {
                let block = trace.block(block, &mut buffer).unwrap().unwrap();
                sizes.extend(
                    block
                        .calls()
                        .filter(|call| !call.is_with_host())
                        .filter(|call| call.state == State::Done)
                        .map(|call| call.bytes),
                );
            }
            assert_eq!(sizes, if has_gpus && way != Opened { vec![202, 204] } else { vec![] }, "{way:?}");
            let marks: Vec<_> = trace.notes_of(NoteKind::Mark).map(|note| note.string(0).to_owned()).collect();
            assert_eq!(marks, ["epoch 1".to_owned(), "m".repeat(4096), String::new()]);
        }
    }
}

#[test]
fn callbacks_run_for_each_call_and_may_call_anything() {
    everywhere("events", &[]);
    everywhere("runtime_events", &[]);
    // They hear of calls that are recorded and shown as well.
    let folder = Scratch::new("traces");
    let env = [("P2PSHIM_LOG", "trace"), ("P2PSHIM_TRACE", folder.to_str().unwrap())];
    for task in ["events", "runtime_events"] {
        run(task, Preloaded, true, &env);
    }
}

/// While copies are like ones before, things are changed: each change holds from the next copy on.
#[test]
fn changes_between_copies_like_ones_before_hold_at_once() {
    for has_gpus in [true, false] {
        run("repeated_copies", Opened, has_gpus, &[]);
    }
    for way in [Linked, Preloaded] {
        let (outcome, folder) = run("repeated_copies", way, true, &[("P2PSHIM_GPU_TIMING", "off")]);
        // The log was to show 30 copies of each of four loops, two of them traced: by the runtime with the driver's inside, and by
        // the driver.
        let shown = |function: &str| outcome.shim.iter().filter(|line| line.contains(&format!(" {function}("))).count();
        assert_eq!((shown("cudaMemcpyPeerAsync"), shown("cuMemcpyPeerAsync")), (2 * 30, 4 * 30), "{way:?}");

        let trace = trace_in(&folder);
        let (mut by_program, mut inside, mut found) = (BTreeMap::new(), 0, 0);
        let mut buffer = Vec::new();
        for block in 0..trace.blocks() {
            for call in trace.block(block, &mut buffer).unwrap().unwrap().calls().filter(|call| !call.is_with_host()) {
                assert_eq!((call.state, call.result), (State::Done, 0));
                if call.depth == 0 {
                    *by_program.entry(call.bytes).or_insert(0) += 1;
                } else {
                    inside += 1;
                }
                found += call.rules().count();
                assert!(call.bytes == 64 || call.rules().count() == 0, "{call:?}");
            }
        }
        // Each size is that of a loop, which is made by the runtime and by the driver. In one of them nothing was recorded
        // for 30 copies; in one there were mistakes, of which all but four were not looked at.
        let sizes: BTreeMap<u64, usize> = BTreeMap::from([
            (64, 2 * 28),
            (4096, 2 * 64),
            (4096 + 80, 2 * 64),
            (4096 + 88, 2 * 34),
            (4096 + 96, 2 * 64),
            (4096 + 104, 2 * 64),
            (4096 + 112, 2 * 64),
        ]);
        assert_eq!((by_program, inside, found), (sizes, 5 * 64 + 34, 2 * 4), "{way:?}");
    }
}

#[test]
fn callback_added_beside_a_copy_runs_for_the_next() {
    // The copy takes a second, so that it is under way still on a busy machine.
    everywhere("late", &[("P2PSHIM_ACCESS", "app"), ("P2PSHIM_LOG", "off"), ("P2PSIM_STAGING_SPEED", "268")]);
}

#[test]
fn wrapper_for_cpp_has_scopes_exceptions_and_callbacks() {
    for has_gpus in [true, false] {
        let folder = Scratch::new("capi");
        let program = Program::new(crate::support::path("target/c-tests/capi-wrapper")).arg(folder.to_string_lossy());
        let program = program.libraries(&beside_the_shim()).env("ASAN_OPTIONS", "detect_leaks=0");
        let outcome = if has_gpus { program.libraries("target/sim/lib").plain() } else { program.plain() };
        assert_eq!(
            (outcome.status.as_str(), outcome.stdout.as_str()),
            ("exit status: 0", "done\n"),
            "{:#?}",
            outcome.lines
        );
        assert!(trace_in(&folder).notes_of(NoteKind::Mark).any(|note| note.string(0) == "inside"));
    }
}

/// A program that annotates, and is linked with nothing of p2pshim, by this compiler.
fn annotated(compiler: &[&str], program: &Path) {
    let source = crate::support::path("tests/install/annotated.c");
    let output = std::process::Command::new(compiler[0])
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(crate::support::path("include"))
        .args(&compiler[1..])
        .arg(source)
        .arg("-o")
        .arg(program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{compiler:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn program_that_does_not_link_the_library_annotates_the_trace_if_there_is_one() {
    let folder = Scratch::folder("annotated");
    for compiler in [
        &["gcc", "-std=c99"][..],
        &["gcc", "-std=c99", "-O2", "-fno-pie", "-no-pie"],
        &["gcc", "-std=c11", "-O2"],
        &["g++", "-x", "c++", "-std=c++11"],
    ] {
        annotated(compiler, &folder.join("program"));
        let traces = folder.join("traces");
        let program = Program::new(folder.join("program")).arg(traces.to_string_lossy());
        assert_eq!(program.plain().stdout, "7 7 7\n", "{compiler:?}: P2PSHIM_INACTIVE");
        assert!(!traces.exists());
        assert_eq!(program.preloaded().stdout, "0 0 0\n", "{compiler:?}: P2PSHIM_OK");
        assert!(trace_in(&traces).notes_of(NoteKind::Mark).any(|note| note.string(0) == "here"), "{compiler:?}");
        fs::remove_dir_all(traces).unwrap();
    }
}

#[test]
fn last_finding_is_that_of_the_last_call() {
    everywhere("findings", &[]);
}

#[test]
fn pair_is_prepared_before_the_first_copy_and_only_if_data_arrives() {
    everywhere("prepare", &[("P2PSIM_DEVICES", "3")]);
    everywhere("enabled", &[]);
    for setting in [("P2PSIM_FAULT", "drop:0-1"), ("P2PSHIM_ACCESS", "app"), ("P2PSHIM_ACCESS", "off")] {
        everywhere("prepare", &[setting]);
    }
}

#[test]
fn verdict_is_that_of_the_doctor_and_needs_no_driver() {
    let folder = Scratch::new("verdict");
    let cache = folder.to_string_lossy().into_owned();
    let here = [("XDG_CACHE_HOME", &*cache), ("P2PSIM_FAULT", "ipc:0>1")];
    let doctor = here.iter().fold(doctor().args(&["--sim", "2", "--quick"]), |it, (name, value)| it.env(name, *value));
    assert_eq!(doctor.plain().status, "exit status: 1");
    for way in [Linked, Opened] {
        run("verdict", way, false, &here);
    }
    // Python reads the same out of another file.
    let script = "import p2pshim; verdict = p2pshim.verdict(); print(len(verdict.pairs), verdict.veto('copies'), verdict.veto('ipc'))";
    let python = Program::new("python3").arg("-c").arg(script).env("PYTHONPATH", in_project("packaging/python"));
    let python = here.iter().fold(python, |it, (name, value)| it.env(name, *value)).plain();
    assert!(python.stdout.starts_with("2 None ipc from GPU-70327073-"), "{python:#?}");
    let file = fs::read_dir(folder.join("p2pshim")).unwrap().map(|file| file.unwrap().path());
    let file = file.filter(|file| file.extension() == Some("json".as_ref())).collect::<Vec<_>>();
    let check = Program::new("python3").args(&[&in_project("tests/schema/check.py"), "verdict"]);
    let checked = check.arg(file[0].to_string_lossy()).plain();
    assert_eq!((checked.status.as_str(), checked.stdout.trim()), ("exit status: 0", ""));
}

#[test]
fn hip_is_listed_called_back_and_known() {
    everywhere("hip", &[]);
}

#[test]
fn threads_eight_call_everything_at_once() {
    for way in WAYS {
        for has_gpus in [true, false] {
            let (_, folder) = run("threads", way, has_gpus, &[("P2PSHIM_LOG", "off")]);
            let trace = trace_in(&folder);
            assert_eq!((trace.problems(), trace.dropped()), (&[][..], 0));
            assert!(trace.notes_of(NoteKind::Mark).count() > 100);
        }
    }
}
