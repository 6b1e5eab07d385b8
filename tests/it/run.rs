//! `p2pshim run`: programs under the shim, their environment, their signals and their end.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::support::{Outcome, Program, Scratch, command, doctor, path, say, shim};

/// `p2pshim run` with these arguments, and without a report.
fn run(arguments: &[&str]) -> Outcome {
    program(arguments).plain()
}

fn program(arguments: &[&str]) -> Program {
    Program::new(command()).args(&["run", "--no-report", "--no-check"]).args(arguments)
}

/// The command's own lines.
fn said(outcome: &Outcome) -> String {
    outcome.shim.join("\n")
}

/// A Python program that starts `p2pshim run` and does something to it; answers what it printed.
fn python(script: &str, arguments: &[&str]) -> String {
    let python = Program::new("python3").arg("-c").arg(script).arg(command().to_string_lossy());
    let outcome = arguments.iter().fold(python, |python, argument| python.arg(*argument)).plain();
    outcome.assert_success();
    outcome.stdout
}

#[test]
fn arguments_reach_the_program_as_they_are() {
    let outcome = run(&["printf", "%s|", "-n", "--", "--sim", "a b"]);
    assert_eq!((outcome.stdout.as_str(), outcome.status.as_str()), ("-n|--|--sim|a b|", "exit status: 0"));
    assert_eq!(run(&["--", "printf", "%s", "--access"]).stdout, "--access");
}

#[test]
fn options_become_the_environment_and_others_stay() {
    let outcome = program(&["--access", "app", "--deny", "0-1", "--log-file", "a.log", "env"])
        .env("P2PSHIM_ACCESS", "off")
        .env("P2PSHIM_POOLS", "app")
        .plain();
    outcome.assert_success();
    let has = |line: &str| outcome.stdout.lines().any(|found| found == line);
    let log = format!("P2PSHIM_LOG_FILE={}/a.log", env!("CARGO_MANIFEST_DIR"));
    for line in ["P2PSHIM_ACCESS=app", "P2PSHIM_DENY=0-1", "P2PSHIM_POOLS=app", &log] {
        assert!(has(line), "no {line}: {}", outcome.stdout);
    }
    for absent in ["P2PSHIM_LOG=", "P2PSHIM_CAPTURE=", "LD_LIBRARY_PATH=", "P2PSIM_DEVICES="] {
        assert!(!outcome.stdout.contains(absent), "{}", outcome.stdout);
    }
    assert!(has(&format!("LD_PRELOAD={}", shim().display())), "{}", outcome.stdout);
}

#[test]
fn deny_that_is_no_list_of_pairs_starts_nothing_and_absent_pairs_switch_nothing_off_for_nccl() {
    let bad = program(&["echo", "started"]).env("P2PSHIM_DENY", "0,0-1,x>2").plain();
    assert_eq!((bad.stdout.as_str(), bad.status.as_str()), ("", "exit status: 125"));
    let why = "the program is not started: P2PSHIM_DENY=\"0,0-1,x>2\": `0`, `x>2` are no pairs of devices";
    assert!(said(&bad).contains(why), "{}", said(&bad));
    let off = program(&["echo", "started"]).env("P2PSHIM_DENY", "x>2").env("P2PSHIM", "off").plain();
    assert_eq!(off.stdout, "started\n");
    for (pair, value) in [("0-1", "1\n"), ("0-7", "\n"), ("0-7,1>0", "1\n")] {
        let nccl = run(&["--sim", "2", "--deny", pair, "sh", "-c", "echo $NCCL_P2P_DISABLE"]);
        assert_eq!(nccl.stdout, value, "{pair}: {}", said(&nccl));
    }
}

/// Which device is which the program may see otherwise than the user: a launcher gives each rank one.
#[test]
fn deny_ordinals_become_uuids_before_the_program_starts() {
    let denied = |arguments: &[&str]| {
        let outcome = run(&[arguments, &["sh", "-c", "echo $P2PSHIM_DENY"]].concat());
        outcome.assert_success();
        outcome
    };
    let uuid = |ordinal: u8| format!("GPU-70327073-696d-2047-5055-202e2e2e2e{ordinal:02}");
    let outcome = denied(&["--sim", "3", "--deny", "0-1,2>7"]);
    let [zero, one, two] = [0, 1, 2].map(uuid);
    assert_eq!(outcome.stdout.trim(), format!("{one}>{zero},{zero}>{one},{two}>7,hip:1>hip:0,hip:0>hip:1,hip:2>hip:7"));
    assert!(outcome.shim.iter().all(|line| line.contains("NCCL_P2P_DISABLE")), "{:#?}", outcome.shim);
    let named = format!("{zero}-02:00.0");
    assert_eq!(denied(&["--sim", "3", "--deny", &named]).stdout.trim(), named, "stays as it was written");
    let without = denied(&["--sim", "0", "--deny", "0-1"]);
    assert_eq!(without.stdout, "0-1\n");
    assert!(
        without
            .shim
            .join("\n")
            .contains("P2PSHIM_DENY keeps its ordinals, and each process counts them by its own GPUs: cuInit"),
        "{without:#?}"
    );
    let off = program(&["--sim", "3", "--deny", "0-1", "sh", "-c", "echo $P2PSHIM_DENY"]).env("P2PSHIM", "off").plain();
    assert_eq!(off.stdout, "0-1\n", "nothing is done");
    let lists = path("target/c-tests/lists_peers-12").to_string_lossy().into_owned();
    let seen = |pairs: &str| program(&["--sim", "3", "--deny", pairs, &lists]).findings_apart().plain().stdout;
    assert_eq!(seen("0-1"), seen(&format!("{zero}-{one}")));
    assert!(seen("0-1") != seen("0-2"), "they are denied");
    let hip = path("target/c-tests/hip_guide-7").to_string_lossy().into_owned();
    let of_hip = |pairs: &str| program(&["--sim", "2", "--deny", pairs, &hip]).findings_apart().plain().stdout;
    let plain = program(&["--sim", "2", &hip]).findings_apart().plain().stdout;
    assert_eq!(of_hip("0-1"), of_hip("hip:0-hip:1"), "HIP knows ordinals only");
    assert!(of_hip("0-1") != plain && of_hip(&named) == plain, "{plain}");
}

#[test]
fn values_that_are_none_are_refused_with_the_nearest() {
    for (arguments, expected) in [
        (["--access", "of"], "a similar value exists: 'off'"),
        (["--acess", "off"], "a similar argument exists: '--access'"),
        (["--deny", "0:1"], "`0:1` is no pair of devices; write 0-1 (both ways) or 0>1"),
        (["--log", "trce"], "did you mean trace?"),
        (["--sim", "65"], "write a whole number from 0 to 64"),
        (["--sim", "x"], "write a whole number from 0 to 64"),
        (["--log", "foo"], "`foo` is neither a level (off, error, warn, info, debug, trace) nor one of the targets"),
    ] {
        let outcome = run(&[&arguments[..], &["true"]].concat());
        assert_eq!(outcome.status, "exit status: 2");
        assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
    }
    let turned = run(&["--access", "o\u{202e}f", "true"]).stderr;
    assert!(turned.contains("'o\\u{202e}f'") && !turned.contains('\u{202e}'), "{turned}");
}

#[test]
fn preloads_that_were_there_are_kept_after_the_shim() {
    let libm = "/lib/x86_64-linux-gnu/libm.so.6";
    let outcome = program(&["printenv", "LD_PRELOAD"]).env("LD_PRELOAD", libm).plain();
    assert_eq!(outcome.stdout, format!("{}:{libm}\n", shim().display()));
    let own = command().to_string_lossy().into_owned();
    let nested = run(&[&own, "run", "printenv", "LD_PRELOAD"]);
    assert_eq!(nested.stdout, format!("{}\n", shim().display()), "once is enough");
}

#[test]
fn shim_that_cannot_be_preloaded_is_said_and_nothing_is_run() {
    let folder = Scratch::folder("a folder");
    let spaced = folder.join("libp2pshim.so");
    symlink(shim(), &spaced).unwrap();
    let libm = "/lib/x86_64-linux-gnu/libm.so.6".to_owned();
    let (source, older) = (folder.join("older.c"), folder.join("older.so"));
    fs::write(&source, "const char *p2pshim_version(void) { return \"0.0.1\"; }").unwrap();
    assert!(Command::new("cc").args(["-shared", "-o"]).args([&older, &source]).status().unwrap().success());
    for (library, expected) in [
        (spaced.to_string_lossy().into_owned(), "a space or a colon ends a path"),
        ("/nonexistent.so".to_owned(), "/nonexistent.so"),
        (libm, "not the shim"),
        (older.to_string_lossy().into_owned(), "its version differs"),
    ] {
        let outcome = run(&["--library", &library, "echo", "run"]);
        assert_eq!((outcome.status.as_str(), outcome.stdout.as_str()), ("exit status: 125", ""));
        assert!(said(&outcome).contains(expected), "{}", said(&outcome));
    }
}

#[test]
fn end_of_the_program_is_the_commands() {
    for (script, status) in [
        ("exit 0", "exit status: 0"),
        ("exit 7", "exit status: 7"),
        ("exit 255", "exit status: 255"),
        ("kill -TERM $$", "signal: 15 (SIGTERM)"),
        ("kill -KILL $$", "signal: 9 (SIGKILL)"),
        // Without a second core file.
        ("ulimit -c 0; kill -ABRT $$", "signal: 6 (SIGABRT)"),
    ] {
        let outcome = run(&["sh", "-c", script]);
        assert_eq!(outcome.status, status, "{script}");
        assert_eq!((said(&outcome).as_str(), outcome.stderr.as_str()), ("", ""), "{script}");
    }
    // Nothing can be said there, and the report's text fails.
    let case = path("target/c-tests/guide_sample-12").to_string_lossy().into_owned();
    for (ran, status) in [("$0 >/dev/null; exit 3", "3\n"), ("exit 0", "0\n")] {
        let full = "\"$0\" run --sim 2 sh -c \"$1\" \"$2\" 2>/dev/full; echo $?";
        let outcome =
            Program::new("/bin/sh").arg("-c").arg(full).arg(command().to_string_lossy()).arg(ran).arg(&case).plain();
        assert_eq!(outcome.stdout, status);
    }
}

#[test]
fn program_that_cannot_be_started_is_said() {
    let folder = Scratch::folder("programs");
    let file = |name: &str, text: &str, mode: u32| {
        let file = folder.join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        file.to_string_lossy().into_owned()
    };
    for (name, status, expected) in [
        ("no-such-program".to_owned(), 127, "no-such-program: no such program on PATH"),
        ("./no-such-program".to_owned(), 127, "./no-such-program: no such file"),
        ("Cargo.toml".to_owned(), 127, "did you mean ./Cargo.toml?"),
        (file("plain", "text", 0o600), 126, "cannot be executed"),
        (folder.to_string_lossy().into_owned(), 126, "is a folder"),
        (file("orphan", "#!/nonexistent/sh\n", 0o700), 126, "exists, but its interpreter"),
    ] {
        let outcome = run(&[&name]);
        assert_eq!(outcome.status, format!("exit status: {status}"), "{name}: {}", said(&outcome));
        assert!(said(&outcome).contains(expected), "{name}: {}", said(&outcome));
    }
}

#[test]
fn static_program_runs_and_is_warned_of_and_a_script_is_not() {
    let (source, program) = (Scratch::new("static.c"), Scratch::new("static"));
    fs::write(&source, "int main(void) { return 3; }\n").unwrap();
    let built = Command::new("gcc").arg("-static").arg(&source).arg("-o").arg(&program).output().unwrap();
    if built.status.success() {
        let outcome = run(&[&program.to_string_lossy()]);
        assert_eq!(outcome.status, "exit status: 3");
        assert!(said(&outcome).contains("is a static program: LD_PRELOAD has no effect"), "{}", said(&outcome));
        let no_report =
            format!("p2pshim: no report: {} is a static program, so p2pshim could not be preloaded", program.display());
        assert_eq!(said(&reported(&[&program.to_string_lossy()])).lines().last(), Some(no_report.as_str()));
        fs::remove_file(program).unwrap();
    } else {
        say("skipped: no static C library to link with");
    }
    let script = Scratch::new("script");
    fs::write(&script, "#!/usr/bin/env sh\nexit 4\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
    // By another process: one that has had the file open for writing may keep it from being run.
    let outcome = run(&["sh", "-c", "\"$0\"", &script.to_string_lossy()]);
    assert_eq!((outcome.status.as_str(), said(&outcome).as_str()), ("exit status: 4", ""));
}

#[test]
fn program_that_changes_its_user_is_warned_of() {
    let program = Scratch::new("setuid");
    fs::copy("/bin/true", &program).unwrap();
    let changed = std::os::unix::fs::chown(&program, Some(12345), None);
    if changed.is_err() {
        say("skipped: only root can give a file to another user");
    } else {
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        let outcome = run(&[&program.to_string_lossy()]);
        assert!(said(&outcome).contains("runs with the rights of another user"), "{}", said(&outcome));
    }
}

#[test]
fn simulated_gpus_are_as_many_as_asked_for() {
    let case = path("target/c-tests/all_pairs-12").to_string_lossy().into_owned();
    let three = run(&["--sim", "3", &case]);
    three.assert_success();
    let two = run(&["--sim", "2", &case]);
    two.assert_success();
    assert!(three.stdout.lines().count() > two.stdout.lines().count(), "{}{}", three.stdout, two.stdout);
    let traced = run(&["--sim", "2", "--log", "trace", &case]);
    assert!(traced.shim.iter().any(|line| line.contains("cudaMemcpyPeer")), "{:?}", traced.shim);
    assert_eq!(traced.stdout, two.stdout);
}

#[test]
fn simulated_gpus_that_are_not_there_are_said() {
    let folder = Scratch::folder("alone");
    let alone = folder.join("p2pshim");
    fs::copy(command(), &alone).unwrap();
    let library = shim().to_string_lossy().into_owned();
    let arguments = ["run", "--library", &library, "--sim", "2", "true"];
    let outcome = arguments.iter().fold(Program::new(&alone), |program, argument| program.arg(*argument)).plain();
    assert_eq!(outcome.status, "exit status: 125");
    assert!(said(&outcome).contains("simulated GPUs are not there: no libcuda.so.1 in "), "{}", said(&outcome));
}

#[test]
fn children_get_the_shim_too() {
    let case = path("target/c-tests/guide_sample-12").to_string_lossy().into_owned();
    let outcome =
        run(&["--sim", "2", "--log", "trace", "sh", "-c", "\"$0\" >/dev/null & \"$0\" >/dev/null; wait", &case]);
    outcome.assert_success();
    let processes = outcome.shim.iter().filter(|line| line.contains(" cudaMemcpyPeer("));
    let processes: std::collections::BTreeSet<_> = processes.filter_map(|line| line.split(' ').nth(2)).collect();
    assert_eq!(processes.len(), 2, "{:?}", outcome.shim);
}

/// How many traces there are in a folder.
fn traces_in(folder: &Path) -> usize {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".p2ptrace")).count()
}

#[test]
fn trace_has_a_file_for_each_process_in_a_folder_that_is_made() {
    let folder = Scratch::new("traces");
    let deep = folder.join("of/a/run");
    let case = path("target/c-tests/guide_sample-12").to_string_lossy().into_owned();
    let script = "cd / && { \"$0\" & \"$0\" & wait; } >/dev/null";
    let outcome = run(&["--sim", "2", "--trace", &deep.to_string_lossy(), "sh", "-c", script, &case]);
    outcome.assert_success();
    outcome.assert_silent();
    assert_eq!(traces_in(&deep), 2);
    assert_eq!(fs::metadata(&deep).unwrap().permissions().mode() & 0o777, 0o700);
    fs::remove_dir_all(folder).unwrap();
    let outcome = run(&["--trace", "/proc/no-such", "echo", "run"]);
    assert_eq!((outcome.status.as_str(), outcome.stdout.as_str()), ("exit status: 125", ""));
    assert!(said(&outcome).contains("cannot create the folder of the trace, /proc/no-such: "), "{}", said(&outcome));
}

/// With a report, and temporary files in a folder of its own, which it has to leave empty.
fn reported(arguments: &[&str]) -> Outcome {
    let temporary = Scratch::folder("temporary");
    let program = Program::new(command()).arg("run").arg("--no-check").env("TMPDIR", temporary.to_string_lossy());
    let outcome = arguments.iter().fold(program, |program, argument| program.arg(*argument)).plain();
    // Fails if anything is left.
    fs::remove_dir(temporary).unwrap();
    outcome
}

#[test]
fn report_comes_at_the_end_on_standard_error_and_nothing_is_left() {
    let case = path("target/c-tests/guide_sample-12").to_string_lossy().into_owned();
    let outcome = reported(&["--sim", "2", &case]);
    outcome.assert_success();
    assert!(outcome.stderr.contains("4.2 MB") && outcome.stderr.contains("direct"), "{}", outcome.stderr);
    assert_eq!(outcome.stdout, run(&["--sim", "2", &case]).stdout);
    let killed = reported(&["--sim", "2", "sh", "-c", "\"$0\" >/dev/null; kill -KILL $$", &case]);
    assert_eq!(killed.status, "signal: 9 (SIGKILL)");
    assert!(killed.stderr.contains("4.2 MB"), "{}", killed.stderr);
}

#[test]
fn report_of_a_run_says_how_it_ended_where_that_cannot_be_kept() {
    let case = path("target/c-tests/guide_sample-12").to_string_lossy().into_owned();
    let script = "\"$0\" >/dev/null; mkdir \"$P2PSHIM_TRACE/$P2PRUN_ID.run.json\"; kill -KILL $$";
    let killed = reported(&["--sim", "2", "sh", "-c", script, &case]);
    assert!(said(&killed).contains("warning: how the program ended cannot be kept in "), "{}", said(&killed));
    assert!(killed.stderr.lines().any(|line| line == "sh was ended by SIGKILL."), "{}", killed.stderr);
}

#[test]
fn report_of_a_program_that_copies_nothing_says_so() {
    let outcome = reported(&["sh", "-c", "exit 7"]);
    assert_eq!(outcome.status, "exit status: 7");
    assert_eq!(
        said(&outcome),
        "p2pshim: no report: there is no trace. Perhaps no process has called an intercepted function; or the preload is lost \
         on the way (`env -i`, sudo, a wrapper that sets LD_PRELOAD, a static child); or a child still runs. If calls could \
         not be recorded, a warning above says why"
    );
    assert_eq!(reported(&["no-such-program"]).status, "exit status: 127");
}

#[test]
fn report_of_a_run_that_does_nothing_says_why() {
    let case = path("target/c-tests/guide_sample-12").to_string_lossy().into_owned();
    let temporary = Scratch::folder("temporary");
    let program = Program::new(command())
        .arg("run")
        .arg("--no-check")
        .env("TMPDIR", temporary.to_string_lossy())
        .env("P2PSHIM", "off");
    let outcome = program.arg("--sim").arg("2").arg(case).plain();
    fs::remove_dir(temporary).unwrap();
    outcome.assert_success();
    assert_eq!(said(&outcome), "p2pshim: no report: P2PSHIM=off, so nothing is intercepted");
}

#[test]
fn report_of_a_run_that_was_ended_names_its_last_copy() {
    // The copy hangs, and what waits for it.
    let case = path("target/c-tests/guide_sample-12").to_string_lossy().into_owned();
    let own = command().to_string_lossy().into_owned();
    // Until the copy is recorded that the process waits for.
    let hangs = "\"$0\" >/dev/null & hung=$!; \
                 until LD_PRELOAD= \"$1\" report \"$P2PSHIM_TRACE\" 2>&1 | grep -q cudaMemcpyPeer; do sleep 0.1; done; ";
    let script = format!("{hangs} kill $hung; wait $hung; kill -TERM $$");
    let hanging = |arguments: &[&str]| {
        let temporary = Scratch::folder("temporary");
        let program = Program::new(command()).arg("run").arg("--no-check").env("TMPDIR", temporary.to_string_lossy());
        let program = program
            .env("P2PSIM_FAULT", "hang:0>1")
            .arg("--sim")
            .arg("2")
            .arg("--access")
            .arg("app")
            .arg("--verify")
            .arg("off");
        let outcome = arguments.iter().fold(program, |program, argument| program.arg(*argument)).plain();
        fs::remove_dir(temporary).unwrap();
        outcome
    };
    let ended = hanging(&["sh", "-c", &script, &case, &own]);
    assert_eq!(ended.status, "signal: 15 (SIGTERM)");
    let last = "before the run ended; it did not call `exit`: cudaMemcpyPeer, GPU 0 > GPU 1, 1.0 MB, direct, from guide_sample-12+0x";
    assert!(ended.stderr.lines().any(|line| line == "sh was ended by SIGTERM."), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("\nLast copy calls that returned\n") && ended.stderr.contains(last),
        "{}",
        ended.stderr
    );
    // Three of four exit, and are not accused.
    let others = "for i in 1 2 3; do P2PSIM_FAULT= \"$0\" >/dev/null; done; kill $hung; wait; exit 0";
    let went_on = hanging(&["sh", "-c", &format!("{hangs}{others}"), &case, &own]);
    assert_eq!(went_on.stderr.matches("it did not call `exit`: ").count(), 1, "{}", went_on.stderr);
    assert_eq!(went_on.stderr.matches("  called exit 0\n").count(), 3, "{}", went_on.stderr);
}

#[test]
fn report_of_a_call_in_which_a_process_became_another_program_claims_no_time_of_that() {
    let folder = Scratch::new("becomes");
    let (kept, own) = (folder.to_string_lossy().into_owned(), command().to_string_lossy().into_owned());
    let case = path("target/c-tests/ends_inside-12").to_string_lossy().into_owned();
    let then = "sleep 1.1; \"$0\" report \"$1\"; kill -9 $$";
    let arguments = [
        "run",
        "--no-check",
        "--sim",
        "2",
        "--access",
        "app",
        "--trace",
        &kept,
        &case,
        "sync",
        "sh",
        "-c",
        then,
        &own,
        &kept,
    ];
    let outcome = arguments.into_iter().fold(Program::new(command()), Program::arg).findings_apart().plain();
    assert_eq!(outcome.status, "signal: 9 (SIGKILL)");
    let before = &outcome.stdout;
    assert!(
        before.starts_with("The process ended, or became another program, in a call: cudaMemcpyPeer, "),
        "{before}"
    );
    let after = &outcome.stderr;
    assert!(after.contains("A call never returned, in up to "), "{after}");
    let less = "The time is shorter if the process became another program before it was ended.\n";
    assert!(after.contains(less) && after.contains(", with calls in at least "), "{after}");
    assert!(after.contains(" was in this call when the process ended, or became another program: "), "{after}");
}

#[test]
fn report_is_of_this_run_alone_where_traces_stay() {
    let folder = Scratch::new("kept");
    let kept = folder.to_string_lossy().into_owned();
    let case = path("target/c-tests/guide_sample-12").to_string_lossy().into_owned();
    let first = reported(&["--sim", "2", "--trace", &kept, &case]);
    let second = reported(&["--sim", "2", "--trace", &kept, &case]);
    for outcome in [&first, &second] {
        assert!(outcome.stderr.contains("4.2 MB") && !outcome.stderr.contains("8.4 MB"), "{}", outcome.stderr);
    }
    assert_eq!(traces_in(&folder), 2);
    let both = Program::new(command()).arg("report").arg(&*kept).plain().stdout;
    assert!(
        both.starts_with("2 runs, added together.\n8.4 MB of ") && both.contains("\n2 runs: what follows is of all"),
        "{both}"
    );
}

/// Copies between four pairs of GPUs, each on a thread.
const PAIRS: &str = "\
import ctypes, threading
cuda = ctypes.CDLL('libcudart.so.12')
size = ctypes.c_size_t(1 << 20)
start = threading.Barrier(4)
def copy(src, dst):
    memory = {device: ctypes.c_void_p() for device in (src, dst)}
    for device, place in memory.items():
        assert cuda.cudaSetDevice(device) == 0 and cuda.cudaMalloc(ctypes.byref(place), size) == 0
    start.wait()
    for _ in range(100):
        assert cuda.cudaMemcpyPeer(memory[dst], dst, memory[src], src, size) == 0
threads = [threading.Thread(target=copy, args=pair) for pair in ((0, 4), (1, 5), (2, 6), (3, 7))]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
";

#[test]
fn slow_pair_does_not_keep_others_from_being_verified() {
    let folder = Scratch::new("pairs");
    let program =
        Program::new(command()).arg("run").arg("--no-check").arg("--sim").arg("8").env("P2PSIM_FAULT", "slow:1>5");
    let program = program.arg("--no-report").arg("--trace").arg(folder.to_string_lossy());
    program.args(&["python3", "-c", PAIRS]).plain().assert_success();
    let csv = Program::new(command()).arg("report").arg("--csv").arg(folder.to_string_lossy()).plain().stdout;
    assert!(csv.contains("direct is slower"), "{csv}");
    assert!(!csv.contains("being verified by another thread"), "{csv}");
}

/// A program that says which of these signals it gets, for so many seconds at most, until one comes again.
const COUNTS: &str = "\
import os, signal, sys, time
def say(text):
    os.write(1, text.encode() + b'\\n')
signals = [getattr(signal, 'SIG' + name) for name in sys.argv[1].split(',')]
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
say('ready')
had = set()
# Taken as they come: a handler of Python's runs once for two that come close together.
while (found := signal.sigtimedwait(signals, float(sys.argv[2]))) is not None:
    say('got ' + signal.Signals(found.si_signo).name)
    if found.si_signo in had:
        break
    had.add(found.si_signo)
say('end')
sys.exit(9)
";

#[test]
fn signals_to_the_command_reach_the_program_once() {
    let script = "\
import signal, subprocess, sys, time
names = 'HUP,INT,QUIT,TERM,USR1,USR2,WINCH,TSTP'
# Whoever runs the tests (nohup, a shell in the background) may have some of them ignored, and that is inherited.
[signal.signal(getattr(signal, 'SIG' + name), signal.SIG_DFL) for name in names.split(',')]
arguments = [sys.argv[1], 'run', 'python3', '-c', sys.argv[2], names, '600']
run = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
assert run.stdout.readline() == 'ready\\n'
got = ''
for name in [*names.split(','), 'HUP']:
    run.send_signal(getattr(signal, 'SIG' + name))
    got += run.stdout.readline()
print((got + run.stdout.read()).replace('\\n', ' ') + str(run.wait()))
";
    let once = ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "WINCH", "TSTP"].map(|name| format!("got SIG{name} "));
    let expected = format!("{}got SIGHUP end 9\n", once.concat());
    assert_eq!(python(script, &[COUNTS]), expected);
}

#[test]
fn signals_that_are_ignored_stay_ignored() {
    let script = "\
import signal, subprocess, sys, time
signal.signal(signal.SIGHUP, signal.SIG_IGN)
run = subprocess.Popen([sys.argv[1], 'run', 'sh', '-c', 'echo ready; sleep 1; echo end'], stdout=subprocess.PIPE, text=True,
                       restore_signals=False)
assert run.stdout.readline() == 'ready\\n'
run.send_signal(signal.SIGHUP)
print(run.stdout.read().strip(), run.wait())
";
    assert_eq!(python(script, &[]), "end 0\n");
}

/// Supervisors ignore the ends of children, which their own children inherit.
#[test]
fn ends_of_children_that_are_ignored_are_seen_and_the_program_ignores_them() {
    let within = |arguments: &[&str]| {
        let own = command().to_string_lossy().into_owned();
        Program::new("env").args(&["--ignore-signal=CHLD", &own]).args(arguments).findings_apart().plain()
    };
    let outcome = within(&["run", "--sim", "2", "--no-check", "sh", "-c", "exit 3"]);
    assert_eq!(outcome.status, "exit status: 3", "{outcome:#?}");
    assert!(said(&outcome).contains("no report: there is no trace"), "{}", said(&outcome));
    let seen = within(&["run", "--no-report", "--no-check", "grep", "SigIgn", "/proc/self/status"]).stdout;
    let ignored = u64::from_str_radix(seen.trim().strip_prefix("SigIgn:\t").unwrap(), 16).unwrap();
    let is_ignored = |signal: i32| ignored >> (signal - 1) & 1 == 1;
    assert_eq!([libc::SIGCHLD, libc::SIGXFSZ, libc::SIGPIPE].map(is_ignored), [true, false, false], "{seen}");
    let outcome = within(&["doctor", "--sim", "2", "--quick"]);
    assert_eq!(outcome.status, "exit status: 0", "{outcome:#?}");
}

/// Writing would end this process by SIGXFSZ. The program has the signal as it was.
#[test]
fn limit_of_files_ends_the_program_only() {
    let folder = Scratch::folder("limit-of-files");
    let within = |script: &str| {
        let limited = "ulimit -f 0; exec \"$0\" run --sim 2 --no-check sh -c \"$1\"";
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", limited]).arg(command()).arg(script).env("TMPDIR", &folder).output().unwrap();
        (output.status.to_string(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, said) = within("exit 3");
    assert!(status == "exit status: 3" && said.contains("how the program ended cannot be kept"), "{status} {said}");
    let (status, said) = within("echo x >$TMPDIR/x");
    assert_eq!(status, "signal: 25 (SIGXFSZ)", "{said}");
    let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["x"]);
}

#[test]
fn trace_that_cannot_be_written_is_refused_before_the_program_starts() {
    // Not even root can write there.
    for (folder, why) in [("/proc/self", "cannot write traces to /proc/self: "), ("/dev/null", "cannot create ")] {
        let outcome = run(&["--trace", folder, "echo", "started"]);
        assert_eq!((outcome.status.as_str(), outcome.stdout.as_str()), ("exit status: 125", ""), "{outcome:#?}");
        assert!(said(&outcome).contains(why), "{}", said(&outcome));
    }
}

#[test]
fn program_that_tells_its_group_gets_it_once() {
    let script = "\
import subprocess, sys
program = '''
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.kill(0, signal.SIGUSR1)
while signal.sigtimedwait([signal.SIGUSR1], 0.5):
    print('got', flush=True)
'''
print(subprocess.run([sys.argv[1], 'run', 'python3', '-c', program], start_new_session=True, capture_output=True).stdout)
";
    assert_eq!(python(script, &[]), "b'got\\n'\n");
}

/// Starts the command on a terminal of its own, types, and prints what came back.
const ON_A_TERMINAL: &str = "\
import os, pty, signal, sys, time
process, terminal = pty.fork()
if process == 0:
    os.execv(sys.argv[1], [sys.argv[1], 'run', 'python3', '-c', sys.argv[2], sys.argv[3], '3'])
seen = b''
def read():
    global seen
    try:
        part = os.read(terminal, 4096)
    except OSError:
        part = b''
    seen += part
    return part
while b'ready' not in seen and read():
    pass
";

#[test]
fn keys_of_the_terminal_reach_the_program_once() {
    let script = format!(
        "{ON_A_TERMINAL}
os.write(terminal, b'\\x03')
while b'got SIGINT' not in seen and read():
    pass
os.write(terminal, b'\\x1c')
while read():
    pass
status = os.waitpid(process, 0)[1]
print(seen.count(b'got SIGINT'), seen.count(b'got SIGQUIT'), os.waitstatus_to_exitcode(status))
"
    );
    assert_eq!(python(&script, &[COUNTS, "INT,QUIT"]), "1 1 9\n");
}

#[test]
fn terminal_stops_command_and_program_and_both_go_on() {
    // As a shell does it: a session's first process cannot be stopped by its terminal, so the command is a job of one.
    let script = "\
import os, pty, signal, sys, time
reader, writer = os.pipe()
shell, terminal = pty.fork()
if shell == 0:
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execv(sys.argv[1], [sys.argv[1], 'run', 'python3', '-c', sys.argv[2], 'USR1', '3'])
    status = os.waitpid(job, os.WUNTRACED)[1]
    os.write(writer, b'stopped ' if os.WIFSTOPPED(status) else b'not stopped ')
    os.killpg(job, signal.SIGCONT)
    os.write(writer, b'%d' % os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]))
    os._exit(0)
seen = b''
while b'end' not in seen:
    seen += os.read(terminal, 4096)
    if b'ready' in seen and b'^Z' not in seen:
        os.write(terminal, b'\\x1a')
os.waitpid(shell, 0)
print(os.read(reader, 100).decode())
";
    assert_eq!(python(script, &[COUNTS]), "stopped 9\n");
}

#[test]
fn help_tells_each_option_examples_and_exit_status() {
    let help = run(&["--help"]);
    help.assert_success();
    let options = Program::new(command()).arg("options").plain().stdout;
    let names = options.lines().filter_map(|line| line.strip_prefix("P2PSHIM_")?.split('=').next());
    for name in names {
        let long = format!("--{}", name.to_ascii_lowercase().replace('_', "-"));
        let is_told = [" ", "[="].iter().any(|end| help.stdout.contains(&format!("{long}{end}")));
        assert!(is_told && help.stdout.contains(&format!("P2PSHIM_{name}")), "{long}");
    }
    for title in ["Examples:", "Exit status:", "Signals:"] {
        assert!(help.stdout.contains(title), "{}", help.stdout);
    }
    assert!(!help.stdout.contains('\u{1b}'), "colours are for terminals");
}

/// The program's value of NCCL's switch, and the command's lines.
fn switch_of_nccl(arguments: &[&str], env: &[(&str, &str)]) -> (String, String) {
    let script = ["sh", "-c", "echo ${NCCL_P2P_DISABLE-unset}"];
    let program = program(&[arguments, &script].concat()).libraries("target/sim/lib");
    let outcome = env.iter().fold(program, |program, (name, value)| program.env(name, *value)).plain();
    outcome.assert_success();
    (outcome.stdout.trim().to_owned(), outcome.shim.join("\n"))
}

#[test]
fn nccl_keeps_off_peer_access_that_is_hidden_or_broken() {
    assert_eq!(switch_of_nccl(&[], &[]), ("unset".to_owned(), String::new()));
    for hides in [["--access", "off"], ["--deny", "0-1"]] {
        let (switch, said) = switch_of_nccl(&hides, &[]);
        assert_eq!(switch, "1");
        assert!(said.contains("NCCL_P2P_DISABLE=1 is set for the program, since P2PSHIM_"), "{said}");
        let chosen = switch_of_nccl(&hides, &[("NCCL_P2P_DISABLE", "0")]);
        assert_eq!(chosen, ("0".to_owned(), String::new()), "the user has chosen");
    }
    assert_eq!(switch_of_nccl(&["--access", "off"], &[("P2PSHIM", "off")]).0, "unset");
}

/// A pair of the simulated GPUs that the doctor found broken, on a machine that has them.
#[test]
fn nccl_keeps_off_peer_access_that_the_doctor_found_broken() {
    let (cache, machine) = (Scratch::new("cache"), Scratch::new("machine"));
    let doctor = doctor().libraries("target/sim/lib").env("P2PSIM_FAULT", "lost:0>1");
    doctor.env("XDG_CACHE_HOME", cache.to_string_lossy()).env("P2PSIM_ROOT", machine.to_string_lossy()).plain();
    let verdicts = crate::support::verdicts(&cache);
    assert_eq!(verdicts.len(), 2);
    let uuids = verdicts[0].file_stem().unwrap().to_str().unwrap().split_once('_').unwrap();
    for (number, uuid) in [uuids.0, uuids.1].into_iter().enumerate() {
        let gpu = machine.join(format!("proc/driver/nvidia/gpus/{number}"));
        fs::create_dir_all(&gpu).unwrap();
        fs::write(gpu.join("information"), format!("Model: \t\t Simulated\nGPU UUID: \t {uuid}\n")).unwrap();
    }
    let (cache_home, root) = (cache.to_string_lossy().into_owned(), machine.to_string_lossy().into_owned());
    let here = [("XDG_CACHE_HOME", cache_home.as_str()), ("P2PSIM_ROOT", root.as_str())];
    let (switch, said) = switch_of_nccl(&[], &here);
    assert_eq!(switch, "1");
    assert!(said.contains("is broken (memory with granted access; p2pshim doctor)"), "{said}");
    let own = |value| switch_of_nccl(&[], &[here[0], here[1], ("NCCL_P2P_DISABLE", value)]);
    let (switch, said) = own("0");
    let expected = "warning: NCCL_P2P_DISABLE=0 stays as you have set it, and not 1, although peer access from GPU-";
    assert!(switch == "0" && said.contains(expected), "{said}");
    assert_eq!(own("2"), ("2".to_owned(), String::new()));
    assert_eq!(switch_of_nccl(&["--verify", "off"], &here).0, "unset", "verdicts are not asked for");
    assert_eq!(switch_of_nccl(&[], &here[..1]).0, "1", "a machine that does not list its GPUs, since the same boot");
    let others = Scratch::new("machine");
    let gpu = others.join("proc/driver/nvidia/gpus/0");
    fs::create_dir_all(&gpu).unwrap();
    let uuid = "GPU-fefefefe-fefe-fefe-fefe-fefefefefefe";
    fs::write(gpu.join("information"), format!("Model: \t\t Simulated\nGPU UUID: \t {uuid}\n")).unwrap();
    let there = [here[0], ("P2PSIM_ROOT", others.to_str().unwrap())];
    assert_eq!(switch_of_nccl(&[], &there).0, "unset", "other GPUs");
    let forget = Program::new(command()).arg("doctor").arg("--forget").env("XDG_CACHE_HOME", cache_home.as_str());
    assert_eq!(forget.plain().stdout, format!("verdicts removed from {cache_home}/p2pshim: 2\n"));
    assert_eq!(switch_of_nccl(&[], &here).0, "unset");
}
