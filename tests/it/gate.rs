//! `p2pshim run --fail-on`: programs that pass, and programs that do not.

use std::fs;
use std::path::Path;

use crate::support::outside::told;
use crate::support::{Outcome, Program, Scratch, command, path};

/// `p2pshim run` with these options, on two simulated GPUs.
fn run(options: &[&str], program: &[&str]) -> Outcome {
    Program::new(command()).args(&["run", "--quiet", "--no-check", "--sim", "2"]).args(options).args(program).plain()
}

fn case(name: &str) -> String {
    path(&format!("target/c-tests/{name}")).to_string_lossy().into_owned()
}

/// The lines that say why.
fn why(outcome: &Outcome) -> Vec<&String> {
    outcome.shim.iter().filter(|line| line.contains("--fail-on")).collect()
}

#[test]
fn direct_copies_pass_and_staged_ones_end_with_120() {
    let conditions = ["--fail-on", "staged,error,bounce"];
    let direct = run(&conditions, &[&case("guide_sample-12")]);
    direct.assert_success();
    assert_eq!(why(&direct), Vec::<&String>::new());
    let staged = run(&[&conditions[..], &["--access", "app"]].concat(), &[&case("never_enables-12")]);
    assert_eq!(staged.status, "exit status: 120");
    let [line] = why(&staged)[..] else { panic!("{:?}", staged.shim) };
    assert!(line.starts_with("p2pshim: exit 120: --fail-on staged: "), "{line}");
    assert!(
        line.contains(" were staged, ") && line.contains("(access not enabled). Run without `--access app`"),
        "{line}"
    );
}

#[test]
fn first_copies_of_a_pair_pass() {
    // They are staged until p2pshim enables access.
    let outcome = run(&["--fail-on", "staged"], &[&case("never_enables-12")]);
    outcome.assert_success();
}

#[test]
fn program_that_fails_keeps_its_code_and_other_codes_can_be_had() {
    let staged = case("never_enables-12");
    let script = |end: &str| format!("\"$0\" >/dev/null; {end}");
    for (end, status) in [("exit 3", "exit status: 3"), ("kill -KILL $$", "signal: 9 (SIGKILL)")] {
        let outcome = run(&["--access", "app", "--fail-on", "staged"], &["sh", "-c", &script(end), &staged]);
        assert_eq!(outcome.status, status);
        let [line] = why(&outcome)[..] else { panic!("{:?}", outcome.shim) };
        assert!(line.starts_with("p2pshim: --fail-on staged: "), "{line}");
    }
    let options = ["--access", "app", "--fail-on", "staged", "--fail-code", "7", "--no-report"];
    assert_eq!(run(&options, &[&staged]).status, "exit status: 7");
}

#[test]
fn program_of_which_nothing_is_recorded_does_not_pass() {
    let outcome = run(&["--fail-on", "staged"], &["true"]);
    assert_eq!(outcome.status, "exit status: 120");
    let [line] = why(&outcome)[..] else { panic!("{:?}", outcome.shim) };
    assert!(
        line.contains("nothing was recorded, so it cannot be judged: no process called an intercepted function"),
        "{line}"
    );
    let outcome = run(&["--fail-on", "staged"], &["false"]);
    assert_eq!((outcome.status.as_str(), why(&outcome).len()), ("exit status: 1", 0));
}

#[test]
fn slow_has_all_copies_timed_unless_the_user_says_otherwise() {
    let timing = |options: &[&str]| {
        let outcome = run(options, &["sh", "-c", "echo \"$P2PSHIM_GPU_TIMING\"; exit 1"]);
        outcome.stdout.trim().to_owned()
    };
    assert_eq!(timing(&["--fail-on", "slow=1"]), "all");
    assert_eq!(timing(&["--fail-on", "slow=1", "--gpu-timing", "sample"]), "sample");
    assert_eq!(timing(&["--fail-on", "staged"]), "");
}

/// The cases of a file and those that failed; fails if readers of JUnit's XML would not take it.
fn cases(file: &Path) -> [Vec<String>; 2] {
    told(std::process::Command::new("python3").arg(path("tests/junit/check.py")).arg(file));
    let xml = fs::read_to_string(file).unwrap();
    let names = |end: &str| {
        let lines = xml.lines().filter(|line| line.contains("<testcase ") && line.ends_with(end));
        lines.map(|line| line.split('"').nth(1).unwrap().to_owned()).collect()
    };
    [names("/>"), names("\">")]
}

#[test]
fn junit_has_the_program_and_each_condition() {
    let file = Scratch::new("junit.xml");
    let name = file.to_string_lossy();
    let options = ["--access", "app", "--fail-on", "staged,bounce,slow=1", "--junit", &name];
    run(&options, &[&case("never_enables-12")]);
    let [passed, failed] = cases(&file);
    assert!(passed.starts_with(&["the program itself".to_owned(), "bounce".to_owned()]), "{passed:?}");
    assert!(failed.contains(&"staged".to_owned()), "{failed:?}");
    // A program that copies nothing, and fails, with a name that XML has to escape.
    let program = file.with_file_name("<a&b>\u{1b}\"");
    fs::write(&program, "#!/bin/sh\nexit 3\n").unwrap();
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(run(&["--fail-on", "staged", "--junit", &name], &[&program.to_string_lossy()]).status, "exit status: 3");
    assert_eq!(cases(&file), [vec![], vec!["the program itself".to_owned(), "staged".to_owned()]]);
    let outcome = run(&["--fail-on", "staged", "--junit", "/nowhere/x.xml"], &["true"]);
    assert_eq!(outcome.status, "exit status: 125");
    fs::remove_file(program).unwrap();
}
