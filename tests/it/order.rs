//! `p2pshim run --order`: races, and memory that is freed too early.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::{Program, command, path, scratch};

/// Runs a program that checks its order, with the same outcome as without. Returns its report.
fn report_of(program: &Program) -> Value {
    let folder = scratch("order");
    fs::create_dir(&folder).unwrap();
    let traced = program
        .clone()
        .env("P2PSHIM_TRACE", folder.to_string_lossy())
        .env("P2PSHIM_ORDER", "on")
        .env("P2PSHIM_LOG", "off");
    traced.preloaded();
    let output = Command::new(command()).arg("report").arg(&folder).arg("--json").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    fs::remove_dir_all(folder).unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn case(words: [&str; 2]) -> Program {
    Program::case("unordered-12").args(&words)
}

/// The races of a report: how sure each is, and function and verb of both.
fn races(report: &Value) -> Vec<[String; 5]> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let race = |race: &Value| {
        let [first, second] = ["first", "second"].map(|side| &race[side]);
        [&race["level"], &first["function"], &first["verb"], &second["function"], &second["verb"]].map(text)
    };
    report["races"].as_array().unwrap().iter().map(race).collect()
}

fn first_sentence(report: &Value) -> String {
    report["verdict"][0]["text"].as_str().unwrap().to_owned()
}

/// The cases that are wrong, each with the race that is found, and its twin that is right.
const CASES: [(&str, [&str; 5]); 7] = [
    ("event", ["race", "cudaMemcpyPeerAsync", "writes", "cuMemcpyDtoHAsync", "reads"]),
    ("batch", ["race", "cuMemsetD8Async", "writes", "cudaMemcpyBatchAsync", "reads"]),
    ("default", ["race", "cuMemsetD8Async", "writes", "cudaMemcpyAsync", "reads"]),
    ("ring", ["race", "cudaMemcpyPeerAsync", "writes", "cudaMemcpyPeerAsync", "reads"]),
    ("reuse", ["race", "cudaMemcpyPeerAsync", "reads", "cuMemsetD8Async", "writes"]),
    ("free", ["lifetime", "cuMemcpyDtoDAsync", "reads", "cuMemFreeAsync", "frees"]),
    ("unmap", ["lifetime", "cudaMemcpyPeerAsync", "writes", "cuMemFree_v2", "frees"]),
];

#[test]
fn missing_order_is_the_first_sentence_with_both_places_and_its_twin_is_silent() {
    for (name, expected) in CASES {
        // What a program does with memory that it freed too early is not looked at.
        let wrong = report_of(&case([name, "wrong"]));
        let found = races(&wrong);
        let expected = expected.map(|word| word.trim_end_matches("_v2").to_owned());
        assert!(found.contains(&expected), "{name}: {found:#?}");
        let sentence = first_sentence(&wrong);
        let word = if expected[0] == "race" { "Race: " } else { "Freed too early: " };
        assert!(sentence.starts_with(word) && sentence.matches("unordered.c:").count() == 2, "{name}: {sentence}");
        let right = report_of(&case([name, "right"]));
        assert!(races(&right).is_empty(), "{name}: {:#?}", races(&right));
        assert!(!first_sentence(&right).contains("race"), "{name}: {}", first_sentence(&right));
    }
}

#[test]
fn order_that_the_host_makes_unseen_is_a_possible_race() {
    for word in ["wrong", "right"] {
        let report = report_of(&case(["host", word]));
        assert_eq!(races(&report), [["possible race", "cudaMemcpyPeerAsync", "writes", "cuMemcpyDtoHAsync", "reads"]]);
        assert!(first_sentence(&report).starts_with("Possible race: "), "{}", first_sentence(&report));
    }
}

#[test]
fn missing_edge_is_said_in_words() {
    let report = report_of(&case(["event", "wrong"]));
    let remedy = report["verdict"][0]["more"].as_str().unwrap();
    for part in
        ["Record an event on stream 0x", " behind ", "unordered.c:", ", and have stream 0x", " wait for it before "]
    {
        assert!(remedy.contains(part), "{part}: {remedy}");
    }
}

#[test]
fn hip_is_checked_too() {
    let found = races(&report_of(&Program::case("hip_unordered-6").arg("wrong")));
    assert_eq!(found, [["race", "hipMemcpyAsync", "writes", "hipMemcpyAsync", "reads"]]);
    assert!(races(&report_of(&Program::case("hip_unordered-6").arg("right"))).is_empty());
}

#[test]
fn gate_fails_at_races_and_where_order_was_not_checked() {
    let gate = |words: [&str; 2], options: &[&str]| {
        let output = Command::new(command())
            .args(["run", "--sim", "2", "-q"])
            .args(options)
            .arg(path("target/c-tests/unordered-12"))
            .args(words)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, said) = gate(["event", "wrong"], &["--order", "--fail-on", "race"]);
    assert!(status == Some(120) && said.contains("race: cudaMemcpyPeerAsync"), "{status:?} {said}");
    assert_eq!(gate(["event", "right"], &["--order", "--fail-on", "possible-race"]).0, Some(0));
    assert_eq!(gate(["host", "right"], &["--order", "--fail-on", "race"]).0, Some(0));
    assert_eq!(gate(["host", "right"], &["--order", "--fail-on", "possible-race"]).0, Some(120));
    let (status, said) = gate(["event", "right"], &["--fail-on", "race"]);
    assert!(status == Some(120) && said.contains("order was not checked: run it with --order"), "{status:?} {said}");
}

/// Programs that are right, but use the same memory on many streams and threads. Each knows itself what comes before what.
#[test]
fn programs_that_are_right_have_no_race() {
    for (name, words) in [
        ("guide_sample-static", &[][..]),
        ("multithreaded-12", &[]),
        ("captured_copies-12", &[]),
        ("asks_like-12", &["pytorch"]),
        ("asks_like-12", &["vllm"]),
        ("random_graphs-12", &["1", "5"]),
        ("staged_copies-12", &["1", "5"]),
        ("random_waits-12", &["1", "120", "2"]),
        ("random_waits-12", &["2", "120", "2"]),
        ("random_waits-12", &["3", "120", "2", "documented"]),
        ("random_waits-static", &["4", "120", "2", "documented"]),
    ] {
        let report = report_of(&Program::case(name).args(words));
        let found: Vec<_> = races(&report).into_iter().filter(|race| race[0] != "possible race").collect();
        assert!(found.is_empty(), "{name} {words:?}: {found:#?}");
    }
}

/// A program that leaves out one event for which a stream would wait: if it then has wrong bytes, a race is named.
#[test]
fn wrong_bytes_have_a_race() {
    let mut wrong = 0;
    for seed in 1..=6 {
        let program = Program::case("random_waits-12").arg(seed.to_string());
        let program = program.args(&["200", "2", "documented", "unordered"]);
        let is_wrong = program.plain().stdout.contains("WRONG");
        let found = races(&report_of(&program));
        assert!(!is_wrong || !found.is_empty(), "seed {seed}");
        wrong += u32::from(is_wrong);
    }
    assert!(wrong > 0, "no program was wrong");
}

#[test]
fn look_ups_leave_functions_to_the_driver_that_only_order_needs() {
    let found = |order: &str| {
        let output = Program::case("looks_up_order").env("P2PSHIM_ORDER", order).preloaded();
        output.assert_success();
        output.stdout
    };
    assert_eq!(found("off"), "cuEventRecord: the driver's\ncuLaunchKernel: the driver's\ncuMemcpyAsync: another's\n");
    assert_eq!(found("on"), "cuEventRecord: another's\ncuLaunchKernel: another's\ncuMemcpyAsync: another's\n");
    assert_eq!(Program::case("looks_up_order").plain().stdout.matches("the driver's").count(), 3);
}
