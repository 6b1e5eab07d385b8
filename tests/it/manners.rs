//! How the command treats its user: help that fits, outputs by one rule, codes explained, a program that runs whatever happens to
//! the report.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{Outcome, Program, Scratch, command, hang, path};

fn case(name: &str) -> String {
    path("target/c-tests").join(name).to_string_lossy().into_owned()
}

/// `p2pshim` with temporary files in a folder of its own.
fn p2pshim(temporary: &std::path::Path, arguments: &[&str]) -> Program {
    Program::new(command()).env("TMPDIR", temporary.to_string_lossy()).args(arguments)
}

/// `p2pshim run` on two simulated GPUs, with a report.
fn run(arguments: &[&str]) -> Outcome {
    let temporary = Scratch::folder("temporary");
    let outcome = p2pshim(&temporary, &["run", "--no-check", "--sim", "2"]).args(arguments).plain();
    // Fails if anything is left.
    fs::remove_dir(temporary).unwrap();
    outcome
}

#[test]
fn short_help_fits_a_terminal_and_long_help_has_every_option() {
    for of in [None, Some("run"), Some("report"), Some("explain"), Some("doctor")] {
        let help = |how| Program::new(command()).args(&of.into_iter().chain([how]).collect::<Vec<_>>()).plain().stdout;
        let short = help("-h");
        assert!(short.lines().count() <= 24, "{}\n{short}", short.lines().count());
        assert!(short.lines().all(|line| line.chars().count() <= 80), "{short}");
        let long = help("--help");
        assert!(long.lines().count() > short.lines().count(), "{long}");
    }
    for of in ["report", "run"] {
        let long = Program::new(command()).args(&[of, "--help"]).plain().stdout;
        for option in ["--json", "--csv", "--calls", "--perfetto", "--html", "--format", "-o, --output"] {
            assert!(long.contains(option), "{of} {option}: {long}");
        }
    }
}

#[test]
fn report_says_at_which_place_copies_are_not_ordered() {
    let outcome = run(&["env", "P2PSIM_DEVICES=3", &case("copies_on_wrong_stream-12"), "default"]);
    let race = outcome.lines.iter().find(|line| line.starts_with("Possible race: ")).expect("a sentence");
    assert!(race.starts_with("Possible race: at least 1 copy at copies_on_wrong_stream-12+0x"), "{race}");
    assert!(race.ends_with(" is not ordered with work on its GPUs (P2P-order-default-stream)."), "{race}");
}

#[test]
fn explain_takes_codes_names_and_lines_of_the_log() {
    let explain = |what: &[&str]| Program::new(command()).arg("explain").args(what).plain();
    let by_number = explain(&["217"]);
    by_number.assert_success();
    for part in [
        "217: cudaErrorPeerAccessUnsupported, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
        "\nP2P-enable-self (error):\n    cuCtxEnablePeerAccess, cudaDeviceEnablePeerAccess\n",
        "    What to do: Make the device current that is to have access (cudaSetDevice, cuCtxSetCurrent).",
        "\nP2P-enable-unsupported (error):\n",
        "    6 of 895 calls returned 217 on two H200 or H100",
    ] {
        assert!(by_number.stdout.contains(part), "{part}: {}", by_number.stdout);
    }
    assert_eq!(explain(&["hipErrorPeerAccessUnsupported"]).stdout, by_number.stdout);
    let lines = fs::read_to_string(path("docs/LOG_LINES.md")).unwrap();
    let line = lines.lines().find(|line| line.contains(" = cudaErrorPeerAccessAlreadyEnabled <")).unwrap();
    assert!(explain(&[line]).stdout.starts_with("704: "), "{line}");
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(explain(&words).stdout, explain(&[line]).stdout, "quoted or not");
    let unknown = explain(&["cudaErrorPeerAcessNotEnabled"]);
    assert_eq!((unknown.status.as_str(), unknown.stdout.as_str()), ("exit status: 1", ""));
    assert!(unknown.shim[0].contains("did you mean cudaErrorPeerAccessNotEnabled?"), "{:?}", unknown.shim);
}

#[test]
fn run_without_a_place_for_the_report_runs_the_program() {
    let outcome =
        p2pshim("/proc/none".as_ref(), &["run", "--no-check", "--sim", "2", "sh", "-c", "echo ran; exit 3"]).plain();
    assert_eq!((outcome.status.as_str(), outcome.stdout.as_str()), ("exit status: 3", "ran\n"));
    let [said] = outcome.shim.as_slice() else { panic!("{:?}", outcome.shim) };
    assert!(said.starts_with("p2pshim: no report: no temporary folder can be made ("), "{said}");
}

#[test]
fn run_report_goes_to_a_file_in_the_form_asked_for() {
    let place = Scratch::folder("report");
    let file = place.join("out").to_string_lossy().into_owned();
    for (format, beginning) in
        [("text", "4.2 MB of "), ("json", "{\"version\""), ("csv", "src_host,"), ("html", "<!doctype")]
    {
        let outcome = run(&["-o", &file, "--format", format, &case("guide_sample-12")]);
        outcome.assert_success();
        assert_eq!(outcome.stderr, "", "{format}");
        assert!(fs::read_to_string(&file).unwrap().to_lowercase().starts_with(&beginning.to_lowercase()), "{format}");
    }
    let [json, page] = ["by-suffix.json", "page.html"].map(|name| place.join(name).to_string_lossy().into_owned());
    let begins = |file: &str| fs::read_to_string(file).unwrap().chars().take(9).collect::<String>().to_lowercase();
    for (arguments, text) in [(&["-o", &json][..], ""), (&["--json", &json, "--html", &page], "")] {
        let outcome = run(&[arguments, &[&case("guide_sample-12")]].concat());
        outcome.assert_success();
        assert_eq!((outcome.stderr.as_str(), begins(&json).as_str()), (text, "{\"version"), "{arguments:?}");
        fs::remove_file(&json).unwrap();
    }
    assert_eq!(begins(&page), "<!doctype");
    let outcome = run(&["--format", "calls", &case("guide_sample-12")]);
    assert!(
        outcome.stderr.contains(" cudaMemcpyPeer(dst=0x") && !outcome.stderr.contains("More:"),
        "{}",
        outcome.stderr
    );
    for (arguments, beginning) in [(&["--json", "-"][..], "{\"version\""), (&["-o", "-"], "4.2 MB of ")] {
        let outcome = run(&[arguments, &["sh", "-c", "\"$0\" >/dev/null", &case("guide_sample-12")]].concat());
        outcome.assert_success();
        assert!(outcome.stdout.starts_with(beginning), "{arguments:?}: {}", outcome.stdout);
        assert_eq!(outcome.stderr, "", "{arguments:?}");
    }
    let outcome = run(&["-o", "report.pdf", "echo", "ran"]);
    assert_eq!((outcome.status.as_str(), outcome.stdout.as_str()), ("exit status: 2", ""), "it is said before");
    assert!(outcome.shim[0].contains("-o report.pdf: the suffix is the name of no form"), "{:?}", outcome.shim);
    let outcome = run(&["-o", "/proc/none/out", "echo", "ran"]);
    assert_eq!((outcome.status.as_str(), outcome.stdout.as_str()), ("exit status: 125", ""), "it is said before");
    assert!(outcome.shim[0].contains("/proc/none/out cannot be written"), "{:?}", outcome.shim);
}

#[test]
fn run_quiet_says_nothing_unless_something_is_wrong() {
    let outcome = run(&["-q", &case("guide_sample-12")]);
    outcome.assert_success();
    assert_eq!((outcome.stderr.as_str(), outcome.shim.as_slice()), ("", &[][..]));
    assert_eq!(run(&["-q", "true"]).shim, [""; 0]);
    let temporary = Scratch::folder("temporary");
    let faulty = p2pshim(&temporary, &["run", "--no-check", "--sim", "2", "-q", &case("never_enables-12")])
        .env("P2PSIM_FAULT", "drop:0>1");
    let outcome = faulty.plain();
    assert!(outcome.stderr.contains("\nDecisions\n"), "{}", outcome.stderr);
    // The GPUs are simulated, wherever the test runs.
    assert!(
        outcome.lines.iter().any(|line| line.contains("Likely cause: these GPUs are simulated")),
        "{:?}",
        outcome.lines
    );
    fs::remove_dir(temporary).unwrap();
}

#[test]
fn run_findings_are_told_in_full_once() {
    let told = "CUDA offers a direct path between the two devices, but the program has not enabled peer access, or has disabled it again.";
    for (options, in_report) in [(&[][..], 0), (&["--log", "off"], 1)] {
        let case = case("never_enables-12");
        let arguments = [&["--access", "app"], options, &[case.as_str()]].concat();
        let outcome = run(&arguments);
        assert!(outcome.stderr.contains("performance P2P-staged-never-enabled, "), "{}", outcome.stderr);
        assert_eq!(outcome.stderr.matches(told).count(), in_report, "{}", outcome.stderr);
        assert!(outcome.lines.iter().any(|line| line.contains(told)), "{:?}", outcome.lines);
    }
}

#[test]
fn run_last_line_says_how_to_see_more() {
    let last = |outcome: &Outcome| outcome.lines.last().unwrap().clone();
    let case = case("guide_sample-12");
    assert!(
        last(&run(&[&case])).starts_with("More: p2pshim run --trace DIR keeps the trace"),
        "{:?}",
        run(&[&case]).lines
    );
    let kept = Scratch::new("it's kept");
    let said = last(&run(&["--trace", &kept.to_string_lossy(), &case]));
    let shown = said.strip_prefix("More: ").unwrap().split(" (").next().unwrap();
    let script = format!("\"$(dirname \"$0\")\"/{shown} >/dev/null");
    Program::new("sh").arg("-c").arg(script).arg(command().to_string_lossy()).plain().assert_success();
    fs::remove_dir_all(kept).unwrap();
}

#[test]
fn run_summary_without_a_value_is_on_and_the_program_runs() {
    let outcome = run(&["--no-report", "--summary", &case("guide_sample-12")]);
    outcome.assert_success();
    assert!(outcome.lines.iter().any(|line| line.starts_with("p2pshim summary of process ")), "{:?}", outcome.lines);
}

/// A child that is still there when the run has ended, and begins to call CUDA only then.
#[test]
fn run_leaves_nothing_behind_for_a_daemon() {
    let temporary = Scratch::folder("temporary");
    let script = "{ while [ -e \"$P2PSHIM_TRACE\" ]; do sleep 0.1; done; \"$0\"; echo done >\"$TMPDIR-done\"; } \
                  >/dev/null 2>&1 & \"$0\" >/dev/null";
    let outcome =
        p2pshim(&temporary, &["run", "--no-check", "--sim", "2", "sh", "-c", script, &case("guide_sample-12")]).plain();
    outcome.assert_success();
    let done = PathBuf::from(format!("{}-done", temporary.display()));
    let begun = Instant::now();
    while !done.exists() && begun.elapsed() < hang() {
        sleep(Duration::from_millis(50));
    }
    fs::remove_file(done).unwrap();
    // Fails if anything is left.
    fs::remove_dir(temporary).unwrap();
}

#[test]
fn run_that_was_killed_is_cleaned_up_by_the_next() {
    let temporary = Scratch::folder("temporary");
    let kill = p2pshim(&temporary, &["run", "sh", "-c", "kill -KILL $PPID"]).plain();
    assert_eq!(kill.status, "signal: 9 (SIGKILL)");
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 1, "nobody could remove it");
    p2pshim(&temporary, &["run", "true"]).plain().assert_success();
    fs::remove_dir(temporary).unwrap();
}

#[test]
fn name_of_a_program_forges_no_line_and_no_colour() {
    let place = Scratch::folder("names");
    let program = place.join("app\x1b[31m\np2pshim 00:00:00 warn: forged");
    fs::copy(case("guide_sample-12"), &program).unwrap();
    let outcome = run(&["--log", "trace", &program.to_string_lossy()]);
    outcome.assert_success();
    assert!(outcome.lines.iter().any(|line| line.contains(" at app\\x1b[31m\\np2pshim ")), "{:?}", outcome.lines);
    assert!(outcome.lines.iter().all(|line| !line.contains('\x1b') && !line.starts_with("p2pshim 00:00:00 warn")));
}

#[test]
fn calls_that_enable_access_show_the_current_device() {
    let shown = Program::case("guide_sample-12").traced_to_stderr();
    let has = |lines: &[String], parts: &[&str]| lines.iter().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(has(
        &shown.lines,
        &["cudaDeviceEnablePeerAccess(peerDevice=0, flags=0) = cudaSuccess <", "> on device 1 at "]
    ));
    assert!(has(
        &shown.lines,
        &["cudaDeviceEnablePeerAccess(peerDevice=1, flags=0) = cudaSuccess <", "> on device 0 at "]
    ));
    assert!(has(&shown.lines, &[" cuCtxEnablePeerAccess(peerContext=", "> on device 1 at "]), "{:?}", shown.lines);
    let listed = run(&["--format", "calls", &case("guide_sample-12")]);
    let lines: Vec<String> = listed.stderr.lines().map(str::to_owned).collect();
    assert!(has(&lines, &[" cudaDeviceEnablePeerAccess(0) = cudaSuccess <", "> on device 1 at "]), "{lines:?}");
}

#[test]
fn run_of_many_processes_says_a_warning_once() {
    let each = format!("{} >/dev/null", case("guide_sample-12"));
    let job = [each.as_str(); 8].join(" & ") + "; wait";
    let temporary = Scratch::folder("temporary");
    let program = p2pshim(&temporary, &["run", "--no-check", "--sim", "2", "--no-report", "sh", "-c", &job]);
    let outcome = program.env("P2PSHIM_LOGFILE", "x").env("P2PSIM_FAULT", "drop:0>1").plain();
    outcome.assert_success();
    let said = |part: &str| outcome.shim.iter().filter(|line| line.contains(part)).count();
    assert_eq!([said("P2PSHIM_LOGFILE: no such option"), said("peer access 0-1: ")], [1; 2], "{:?}", outcome.shim);
    fs::remove_dir(temporary).unwrap();
}

#[test]
fn long_values_are_not_shown_in_full() {
    let long = "x".repeat(100_000);
    let log = Program::case("guide_sample-12").env("P2PSHIM_DENY", &long).preloaded();
    assert!(log.shim[0].contains("P2PSHIM_DENY=\"xxx"), "{:.300}", log.shim[0]);
    let argument = run(&["--deny", &long, "true"]);
    assert_eq!(argument.status, "exit status: 2");
    for lines in [&log.shim, &argument.shim] {
        assert!(lines.iter().all(|line| line.len() < 1500), "{:?}", lines.iter().map(String::len).collect::<Vec<_>>());
    }
}

#[test]
fn program_for_musl_runs_without_us_and_that_is_said() {
    let place = Scratch::folder("musl");
    let [linker, source, program] = ["ld-musl-x86_64.so.1", "musl.c", "musl"].map(|name| place.join(name));
    // The linker is glibc's in truth, so that the program can run.
    std::os::unix::fs::symlink("/lib64/ld-linux-x86-64.so.2", &linker).unwrap();
    fs::write(&source, "#include <stdlib.h>\nint main(void) { return getenv(\"LD_PRELOAD\") ? 1 : 3; }\n").unwrap();
    let mut gcc = std::process::Command::new("gcc");
    gcc.arg(&source).arg("-o").arg(&program).arg(format!("-Wl,--dynamic-linker={}", linker.display()));
    assert!(gcc.status().unwrap().success());
    let outcome = run(&[&program.to_string_lossy()]);
    assert_eq!(outcome.status, "exit status: 3");
    for part in ["is a program for musl: p2pshim needs glibc", "no report: "] {
        assert!(outcome.shim.iter().any(|line| line.contains(part)), "{part}: {:?}", outcome.shim);
    }
}
