//! `p2pshim run --order`: races, and memory that is freed too early.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::soak::{seeds, soak};
use crate::support::{Program, Scratch, command, json_report, path};

/// Runs a program that checks its order, with the same outcome as without. Returns its report.
fn report_of(program: &Program) -> Value {
    let folder = Scratch::folder("order");
    let traced = program
        .clone()
        .env("P2PSHIM_TRACE", folder.to_string_lossy())
        .env("P2PSHIM_ORDER", "on")
        .env("P2PSHIM_LOG", "off");
    traced.preloaded();
    json_report(&folder)
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
const CASES: [(&str, [&str; 5]); 8] = [
    ("event", ["race", "cudaMemcpyPeerAsync", "writes", "cuMemcpyDtoHAsync", "reads"]),
    ("batch", ["race", "cuMemsetD8Async", "writes", "cudaMemcpyBatchAsync", "reads"]),
    ("default", ["race", "cuMemsetD8Async", "writes", "cudaMemcpyAsync", "reads"]),
    ("ring", ["race", "cudaMemcpyPeerAsync", "writes", "cudaMemcpyPeerAsync", "reads"]),
    ("reuse", ["race", "cudaMemcpyPeerAsync", "reads", "cuMemsetD8Async", "writes"]),
    ("free", ["lifetime", "cuMemcpyDtoDAsync", "reads", "cuMemFreeAsync", "frees"]),
    ("graph", ["race", "cudaGraphLaunch", "writes", "cudaGraphLaunch", "writes"]),
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
fn order_that_only_staging_makes_is_told_and_is_no_race() {
    let found = races(&report_of(&case(["staged", "wrong"])));
    assert_eq!(found, [["ordered by staging", "cudaMemcpyPeerAsync", "writes", "cuMemcpyDtoHAsync", "reads"]]);
    assert!(races(&report_of(&case(["staged", "right"]))).is_empty());
}

/// Runs a program under the command with its traces in a folder, and any options. Returns its exit status, what it and the command have said, and the
/// report.
fn run_in(folder: &Path, options: &[&str], seed: u32, program: &[&str]) -> (Option<i32>, String, Value) {
    let output = Command::new(command())
        .args(["run", "--sim", "4", "--log", "off", "--no-report", "--trace"])
        .arg(folder)
        .args(options)
        .arg(path("target/c-tests").join(program[0]))
        .args(&program[1..])
        .env("P2PSIM_DELAYS", seed.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let report = Command::new(command()).arg("report").arg(folder).arg("--json").output().unwrap();
    (output.status.code(), said, serde_json::from_slice(&report.stdout).unwrap_or_default())
}

/// Whether a program says that it has the bytes that it should have.
fn is_right(said: &str) -> bool {
    said.lines().any(|line| ["0 bytes are wrong", "9"].contains(&line))
}

/// Levels of the races of a report, each once.
fn levels(report: &Value) -> BTreeSet<String> {
    races(report).into_iter().map(|[level, ..]| level).collect()
}

#[test]
fn missing_waits_are_added_where_an_earlier_run_raced() {
    let programs: &[&[&str]] = &[
        &["unordered-12", "event", "wrong"],
        &["unordered-13", "batch", "wrong"],
        &["unordered-12", "default", "wrong"],
        &["unordered-12", "ring", "wrong"],
        &["unordered-12", "reuse", "wrong"],
        &["ipc_unordered-12", "wrong"],
        &["hip_unordered-6", "wrong"],
    ];
    for program in programs {
        let folder = Scratch::new("races");
        let (_, said, report) = run_in(&folder, &["--order"], 1, program);
        assert!(levels(&report).contains("race"), "{program:?}: {said} {report:#}");
        // The ring may be right by luck: that depends on when p2pshim verifies the pairs.
        assert!(!is_right(&said) || program[1] == "ring", "{program:?}: {said}");
        let races = folder.to_string_lossy().into_owned();
        for seed in 1..=if soak().is_some() { 20 } else { 3 } {
            let enforced = Scratch::new("enforced");
            let (status, said, report) = run_in(&enforced, &["--order=enforce", "--races", &races], seed, program);
            assert!(status == Some(0) && is_right(&said), "{program:?} {seed}: {said}");
            assert!(said.contains("waits are added for 1 pair of places that raced in"), "{said}");
            let found = levels(&report);
            assert!(found.contains("enforced") && !found.contains("race"), "{program:?} {seed}: {report:#}");
        }
    }
}

#[test]
fn waits_are_not_added_without_races_and_for_memory_that_is_freed() {
    let folder = Scratch::new("no-races");
    let (.., report) = run_in(&folder, &["--order"], 1, &["unordered-12", "free", "wrong"]);
    assert!(levels(&report).contains("lifetime"), "{report:#}");
    let races = folder.to_string_lossy().into_owned();
    for (options, expected) in [
        (&["--order=enforce", "--races", &*races][..], "no race was found in"),
        (&["--order=enforce"], "--order=enforce needs --races RUN"),
        (&["--races", &races], "--races is for --order=enforce"),
        (&["--order=enforce", "--races", "/nowhere"], "/nowhere"),
    ] {
        let (status, said, _) = run_in(&Scratch::new("refused"), options, 1, &["unordered-12", "free", "wrong"]);
        assert!(status == Some(125) && said.contains(expected), "{options:?}: {status:?} {said}");
    }
}

#[test]
fn processes_that_share_memory_are_ordered_by_their_events_and_hosts() {
    for (word, expected) in [("wrong", true), ("right", false), ("told", false)] {
        let folder = Scratch::new("processes");
        let (_, said, report) = run_in(&folder, &["--order"], 1, &["ipc_unordered-12", word]);
        let found = races(&report);
        let race = ["race", "cuMemsetD8Async", "writes", "cudaMemcpyAsync", "writes"].map(str::to_owned);
        assert_eq!(found, if expected { vec![race] } else { Vec::new() }, "{word}: {report:#}");
        let sentence = first_sentence(&report);
        let names_both =
            sentence.matches("ipc_unordered.c:").count() == 2 && sentence.contains("(a stream of process ");
        assert!(!expected || names_both, "{sentence}");
        assert_eq!(is_right(&said), !expected, "{word}: {said}");
    }
}

#[test]
fn races_may_be_suppressed_with_a_reason() {
    let folder = Scratch::new("suppressed");
    run_in(&folder, &["--order"], 1, &["unordered-12", "event", "wrong"]);
    let file = folder.join("known");
    let reported = |text: &str, options: &[&str]| {
        fs::write(&file, text).unwrap();
        let mut report = Command::new(command());
        report.arg("report").arg(&folder).arg("--suppress").arg(&file).args(options);
        let output = report.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    for text in ["place unordered.c the host waits", "library unordered-12 is a test", "# none\nplace *of_event* why\n"]
    {
        let (status, said) = reported(text, &["--fail-on", "possible-race"]);
        let by = text.trim_start_matches("# none\n").split(' ').take(2).collect::<Vec<_>>().join(" ");
        let expected = format!("Suppressed: 1 pair of places without order: 1 by `{by}` (");
        assert!(status == Some(0) && said.contains(&expected) && !said.contains("Race: "), "{text}: {status:?} {said}");
    }
    let (status, said) = reported("place elsewhere.c no", &["--fail-on", "race"]);
    assert!(status == Some(120) && said.contains("Race: ") && !said.contains("Suppressed"), "{status:?} {said}");
    let (status, said) = reported("place unordered.c", &[]);
    assert!(status == Some(125) || status == Some(2), "{status:?}");
    assert!(said.contains("line 1: it has no reason"), "{said}");
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
        let found: Vec<_> =
            races(&report).into_iter().filter(|race| ["race", "lifetime"].contains(&&*race[0])).collect();
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

/// Programs whose order is known: of each the pairs of places that lost it, from a stream's wait that was left out, are all that is named, and each
/// program that lost a wait is named.
#[test]
fn each_wait_that_is_left_out_is_a_race_and_whole_programs_have_none() {
    const AT_A_TIME: u32 = 400;
    let (first, count) = seeds(1, 5000);
    let (mut ran, mut less, mut wrong) = (0, 0, 0);
    for first in (first..first + count).step_by(AT_A_TIME as usize) {
        for word in ["whole", "less"] {
            let folder = Scratch::new("random-order");
            let program = [&*first.to_string(), &AT_A_TIME.to_string(), word];
            let (status, said, report) =
                run_in(&folder, &["--order"], first, &[&["random_order-12"][..], &program[..]].concat());
            fs::remove_dir_all(folder).unwrap();
            assert_eq!(status, Some(0), "{program:?}: {said}");
            let pairs = |word: &str| -> BTreeSet<String> {
                said.lines().filter_map(|line| Some(line.strip_prefix(word)?.trim_start().to_owned())).collect()
            };
            let (missing, perhaps) = (pairs("missing"), pairs("perhaps"));
            let races = report["races"].as_array().unwrap();
            let is_told =
                |race: &&Value| ["race", "lifetime", "possible race"].contains(&race["level"].as_str().unwrap());
            let place = |side: &Value| side["site"].as_str().unwrap().to_owned();
            let found: BTreeSet<String> = races
                .iter()
                .filter(is_told)
                .inspect(|race| assert_ne!(race["level"], "possible race", "{program:?}: {race:#}"))
                .map(|race| format!("{} {}", place(&race["first"]), place(&race["second"])))
                .collect();
            let unknown: Vec<_> =
                found.iter().filter(|pair| !missing.contains(*pair) && !perhaps.contains(*pair)).collect();
            assert!(unknown.is_empty(), "{program:?}: {unknown:#?}");
            // An access that another one stands for is not kept: then the later of the two is named with that.
            let later = |pairs: &BTreeSet<String>| -> BTreeSet<String> {
                pairs.iter().map(|pair| pair.split(' ').next_back().unwrap().to_owned()).collect()
            };
            let unnamed: Vec<_> = later(&missing).difference(&later(&found)).cloned().collect();
            assert!(unnamed.is_empty(), "{program:?}: {unnamed:#?}");
            wrong += said.lines().filter(|line| line.starts_with("wrong ")).count();
            assert!(word == "less" || missing.is_empty() && !said.contains("wrong "), "{program:?}: {said}");
            let last = said.lines().find(|line| line.starts_with("programs ")).unwrap();
            let number = |words: &str| words.rsplit(' ').next().unwrap().parse::<u32>().unwrap();
            let [programs, without, _] = last.split(", ").map(number).collect::<Vec<_>>()[..] else { panic!("{last}") };
            (ran, less) = (ran + programs, less + without);
        }
    }
    println!("{ran} programs, of them {less} without a wait, and {wrong} with wrong bytes");
    assert!(less > ran * 4 / 10 && wrong > 0, "{ran} {less} {wrong}");
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
