//! The exit status of each command: its answer, whatever becomes of the output; and a failure is no answer.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::scene::{Call, DIRECT, ENABLE, Folder, STAGED, Scene};
use crate::support::{command, path};

/// Where standard output goes.
#[derive(Clone, Copy, Debug)]
enum Out {
    /// To somebody who reads all of it.
    Read,
    /// To a device without room.
    Full,
    /// To a pipe that nobody reads.
    Closed,
    /// To a file that may have no byte.
    Limited,
}

use Out::{Closed, Full, Limited, Read};

/// Runs the command in a folder, and checks its status. A failure has to be said, with these words if it has any.
#[track_caller]
fn assert_ends(folder: &Path, fault: &str, line: &str, out: Out, expected: i32, says: &str) {
    let limited = format!("ulimit -f 0; exec \"$0\" {line} >limited");
    let mut command = match out {
        Limited => {
            let mut shell = Command::new("bash");
            shell.args(["-c", &limited]).arg(command());
            shell
        }
        _ => {
            let mut command = Command::new(command());
            command.args(line.split_whitespace().map(|word| word.replace('~', " ")));
            command
        }
    };
    command.current_dir(folder).env("P2PSIM_FAULT", fault).env("XDG_CACHE_HOME", "/dev/null");
    command.stderr(Stdio::piped()).stdout(match out {
        Read | Limited => Stdio::null(),
        Full => File::options().write(true).open("/dev/full").unwrap().into(),
        // Nobody has the other end.
        Closed => io::pipe().unwrap().1.into(),
    });
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(expected), "{line}, {fault:?}, {out:?}: {} {said}", output.status);
    assert!(said.contains(says), "{line}, {fault:?}, {out:?}: {said}");
    assert!(!said.contains(CANNOT) || !matches!(out, Closed), "{line}, {fault:?}: {said}");
    assert!(said.matches(" cannot be written: ").count() <= 1, "{line}, {fault:?}, {out:?}: {said}");
}

const CANNOT: &str = " cannot be written: ";

#[test]
fn doctor_answer_stays_whatever_becomes_of_the_output() {
    let folder = Folder::new("doctor-status");
    let doctor = "doctor --sim 2 --quick --timeout 600";
    for (fault, form, out, expected, says) in [
        ("drop:0>1", "", Full, 1, CANNOT),
        ("drop:0>1", "", Closed, 1, ""),
        ("drop:0>1", "", Limited, 1, CANNOT),
        ("drop:0>1", "--json", Full, 1, CANNOT),
        ("drop:0>1", "--json", Closed, 1, ""),
        ("drop:0>1", "--env", Closed, 1, ""),
        ("drop:0>1", "--issue", Full, 1, CANNOT),
        ("drop:0>1", "--json=/dev/full", Read, 1, "/dev/full cannot be written: No space"),
        ("drop:0>1", "--csv=/dev/full", Read, 1, CANNOT),
        ("drop:0>1", "--prometheus=/dev/full --json=kept.json", Read, 1, CANNOT),
        ("", "", Read, 0, ""),
        ("", "", Closed, 0, ""),
        ("", "--json", Closed, 0, ""),
        ("", "", Full, 3, CANNOT),
        ("", "--json", Limited, 3, CANNOT),
        ("", "--json=/dev/full", Read, 3, CANNOT),
        ("", "--csv=/dev/full", Read, 3, CANNOT),
        ("", "--prometheus=/dev/full", Read, 3, CANNOT),
        ("", "--json=/nowhere/a.json", Read, 3, "/nowhere/a.json cannot be written"),
        ("", "--json --csv", Read, 2, "only one form"),
        ("", "--sim 99", Read, 2, ""),
        ("", "0>7", Read, 3, "nothing was tested"),
        ("code:cuInit:999@1", "", Closed, 3, "nothing was tested"),
    ] {
        assert_ends(&folder.0, fault, &format!("{doctor} {form}"), out, expected, says);
    }
    let kept = fs::read_to_string(folder.0.join("kept.json")).unwrap();
    assert!(kept.contains("\"verdict\":\"unsafe\""), "one form that is lost takes no other with it: {kept}");
}

#[test]
fn doctor_that_cannot_keep_its_verdicts_names_the_file() {
    for (fault, expected) in [("", 3), ("drop:0>1", 1)] {
        let mut doctor = Command::new(command());
        doctor.args(["doctor", "--sim", "2", "--quick", "--timeout", "600"]).env("P2PSIM_FAULT", fault);
        let output = doctor.env("XDG_CACHE_HOME", "/proc/none").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("the verdict cannot be kept in /proc/none/p2pshim/"), "{said}");
        assert_eq!(output.status.code(), Some(expected), "{said}");
    }
}

#[test]
fn merge_says_unsafe_for_an_unsafe_machine_only() {
    let folder = Folder::new("merge-status");
    let quick = "doctor --sim 2 --quick --timeout 600";
    assert_ends(&folder.0, "", &format!("{quick} --json=safe.json"), Read, 0, "");
    assert_ends(&folder.0, "drop:0>1", &format!("{quick} --json=unsafe.json"), Read, 1, "");
    let safe = fs::read_to_string(folder.0.join("safe.json")).unwrap();
    fs::write(folder.0.join("cut.json"), &safe[..100]).unwrap();
    for (name, status) in [("without.json", "\"_status\":0"), ("other.json", "\"status\":9")] {
        fs::write(folder.0.join(name), safe.replace("\"status\":0", status)).unwrap();
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let unsafe_one = fs::read_to_string(folder.0.join("unsafe.json")).unwrap();
    let long = format!("\"host\":\"{}\"", "x".repeat(100_000));
    let long = unsafe_one.replace(&format!("\"host\":\"{}\"", host.trim()), &long);
    assert!(long.len() > 100_000);
    fs::write(folder.0.join("long.json"), long).unwrap();
    for (files, out, expected, says) in [
        ("safe.json", Read, 0, ""),
        ("safe.json", Closed, 0, ""),
        ("safe.json", Full, 3, CANNOT),
        ("safe.json --json", Full, 3, CANNOT),
        ("safe.json --csv", Limited, 3, CANNOT),
        ("unsafe.json", Full, 1, CANNOT),
        ("unsafe.json cut.json", Closed, 1, ""),
        ("unsafe.json --json", Full, 1, CANNOT),
        ("safe.json cut.json", Read, 3, ""),
        ("without.json", Read, 3, ""),
        ("other.json", Read, 3, ""),
        ("safe.json gone.json", Read, 3, ""),
        ("long.json", Read, 1, ""),
        ("", Read, 2, "PATH"),
    ] {
        assert_ends(&folder.0, "", &format!("fleet {files}"), out, expected, says);
    }
}

/// A trace of a process with these calls.
fn trace(folder: &Path, name: &str, calls: &[Call]) {
    let traces = folder.join(name);
    fs::create_dir(&traces).unwrap();
    let mut scene = Scene::named(&traces, "app.p2ptrace", 7, "node");
    scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
    for call in calls {
        scene.calls(call);
        if call.took.is_none() {
            // Another thread continues for longer.
            scene.another_segment();
            scene.calls(&Call::copy(call.at + 10_000_000_000, (0, 1), 4096, DIRECT));
        }
    }
    scene.exit = Some(0).filter(|_| calls.iter().all(|call| call.took.is_some()));
    scene.finish();
}

#[test]
fn report_compare_and_hang_tell_answers_from_failures() {
    let folder = Folder::new("report-status");
    let at = |name: &str| folder.0.join(name);
    let copies = |took: u64, path: u8| {
        let copy = |number: u64| Call { took: Some(took), ..Call::copy(number * 10_000_000, (0, 1), 1 << 20, path) };
        (0..20).map(copy).collect::<Vec<_>>()
    };
    trace(&folder.0, "good", &copies(1_000_000, DIRECT));
    trace(&folder.0, "worse", &copies(9_000_000, STAGED));
    trace(&folder.0, "hung", &[Call { took: None, ..Call::copy(0, (0, 1), 4096, DIRECT) }]);
    trace(&folder.0, "none", &[Call { function: ENABLE, pair: None, path: 0, ..Call::copy(0, (0, 1), 0, 0) }]);
    trace(&folder.0, "short", &copies(1_000_000, DIRECT));
    let mut bytes = fs::read(at("short/app.p2ptrace")).unwrap();
    // So many records were lost.
    bytes[40] = 9;
    fs::write(at("short/app.p2ptrace"), bytes).unwrap();
    // Its process ended in a call, and nobody knows after how long.
    fs::create_dir(at("stopped")).unwrap();
    let mut scene = Scene::named(&at("stopped"), "app.p2ptrace", 7, "node");
    scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
    scene.calls(&Call { took: None, ..Call::copy(0, (0, 1), 4096, DIRECT) });
    scene.exit = None;
    scene.finish();
    fs::create_dir(at("damaged")).unwrap();
    fs::copy(at("good/app.p2ptrace"), at("damaged/a.p2ptrace")).unwrap();
    fs::write(at("damaged/b.p2ptrace"), "no trace").unwrap();
    fs::create_dir(at("empty")).unwrap();
    fs::write(at("note"), "no trace").unwrap();
    for (line, out, expected, says) in [
        ("report good", Read, 0, ""),
        ("report good", Closed, 0, ""),
        ("report good", Full, 3, CANNOT),
        ("report good", Limited, 3, CANNOT),
        ("report good --json=/dev/full --csv=kept.csv", Read, 3, CANNOT),
        ("report good -o /nowhere/page.html", Read, 3, CANNOT),
        ("report damaged", Closed, 3, ""),
        ("report short", Read, 3, ""),
        ("report good --since 5 --until 1", Read, 2, "the end is before the start"),
        ("report good --limit 3", Read, 2, "--limit is for"),
        ("report good --json --csv", Read, 2, "only one form"),
        ("report good --api nosuch", Read, 1, "no function with that name"),
        ("report good --since 9", Read, 1, "the report ends"),
        ("report good --result 217", Read, 1, "no call fits"),
        ("report empty", Read, 1, "no trace ("),
        ("report nowhere", Read, 3, "No such file"),
        ("report note", Read, 3, "not a trace"),
        ("report worse --fail-on staged", Full, 120, CANNOT),
        ("report worse --fail-on staged --junit /dev/full", Read, 120, CANNOT),
        ("report good --fail-on staged", Closed, 0, ""),
        ("report good --fail-on staged --junit /dev/full", Read, 3, CANNOT),
        ("compare good good", Closed, 0, ""),
        ("compare good good", Full, 3, CANNOT),
        ("compare good worse", Full, 1, CANNOT),
        ("compare good worse", Closed, 1, ""),
        ("compare good worse --json=/dev/full", Read, 1, CANNOT),
        ("compare good nowhere", Read, 3, "nowhere cannot be compared"),
        ("compare good", Read, 2, "AFTER"),
        ("hang hung", Read, 1, ""),
        ("hang hung", Full, 1, CANNOT),
        ("hang hung --json", Closed, 1, ""),
        ("hang stopped", Read, 1, ""),
        ("hang good", Read, 0, ""),
        ("hang good", Closed, 0, ""),
        ("hang good", Full, 3, CANNOT),
        ("hang empty", Read, 3, "no trace ("),
        ("hang 4194305", Read, 3, "no program runs here"),
        ("ps good", Full, 3, CANNOT),
        ("ps good", Closed, 0, ""),
        ("ps empty", Read, 1, "no trace ("),
        ("ps 4194305", Read, 1, "no program runs here"),
        ("ps nowhere", Read, 3, "No such file"),
    ] {
        assert_ends(&folder.0, "", line, out, expected, says);
    }
    assert!(at("kept.csv").exists(), "one form that is lost takes no other with it");
    trace(&folder.0, "cut", &copies(1_000_000, STAGED));
    fs::write(at("cut/b.p2ptrace"), "no trace").unwrap();
    assert_ends(&folder.0, "", "report cut --fail-on staged", Read, 120, "--fail-on staged");
}

#[test]
fn lists_and_help_are_written_or_that_is_said() {
    let folder = Folder::new("lists-status");
    for line in [
        "apis",
        "options",
        "explain",
        "explain 704",
        "explain P2P-enable-twice",
        "completions bash",
        "man",
        "--help",
        "help run",
        "doctor --help",
        "--version",
    ] {
        for (out, expected, says) in [(Read, 0, ""), (Closed, 0, ""), (Full, 3, "No space"), (Limited, 3, "too large")]
        {
            assert_ends(&folder.0, "", line, out, expected, says);
        }
    }
    for (line, expected, says) in [
        ("explain nonsense", 1, "is not a code"),
        ("man /proc/no-such", 3, "/proc/no-such: "),
        ("apis --nonsense", 2, "unexpected argument"),
        ("nonsense", 2, "unrecognized subcommand"),
    ] {
        assert_ends(&folder.0, "", line, Read, expected, says);
    }
}

#[test]
fn run_ends_as_its_program_unless_a_condition_or_p2pshim_failed() {
    let folder = Folder::new("run-status");
    let direct = path("target/c-tests/guide_sample-12").to_string_lossy().into_owned();
    let run = "run --quiet --no-check --sim 2";
    for (line, expected, says) in [
        (format!("--fail-on staged --junit /dev/full {direct}"), 125, CANNOT),
        (format!("--fail-on staged --junit /dev/full --access app {direct}"), 125, CANNOT),
        ("--fail-on staged --junit /dev/full sh -c exit~5".to_owned(), 5, CANNOT),
        ("--fail-on staged --junit /dev/full true".to_owned(), 120, CANNOT),
        (format!("--json=/dev/full {direct}"), 125, CANNOT),
        ("--json=/dev/full sh -c exit~5".to_owned(), 5, ""),
        ("no-such-program".to_owned(), 127, "no such program"),
        ("/etc/passwd".to_owned(), 126, "cannot be executed"),
        ("--nonsense true".to_owned(), 2, "unexpected argument"),
    ] {
        assert_ends(&folder.0, "", &format!("{run} {line}"), Read, expected, says);
    }
    // A limit on files ends a program as it would without us.
    let limit = "ulimit -f 0; exec \"$0\" run --no-report --sim 2 --no-check sh -c 'echo x >written; exit 7'";
    let ended = Command::new("bash").args(["-c", limit]).arg(command()).current_dir(&folder.0).status().unwrap();
    let mut plain = Command::new("bash");
    plain.args(["-c", "ulimit -f 0; exec sh -c 'echo x >written; exit 7'"]).current_dir(&folder.0);
    assert_eq!(ended.to_string(), plain.status().unwrap().to_string());
}
