//! `p2pshim compare`: its first line is true of every kind of two runs, and so is its exit status.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails so")]

mod scene;

use std::fs;
use std::process::{Command, Output};

use p2pshim_trace::{NoteKind, Path, Why};
use scene::{BLOCKED, Call, DIRECT, Folder, OVERLAP, STAGED, START, Scene};
use serde_json::{Value, json};

const MS: u64 = 1_000_000;
const START_UP: u8 = Path::Staged(Why::NotYetWorth).number();

/// A run of `./app` that `p2pshim run` ran.
#[derive(Clone)]
struct Run {
    command: &'static [&'static str],
    /// Milliseconds of the whole run.
    took: u64,
    code: Option<i32>,
    signal: Option<i32>,
    copies: Vec<Call>,
    ranks: u32,
    /// Names of the GPUs.
    gpus: [&'static str; 4],
    /// Whether the end of the run was kept.
    is_kept: bool,
}

/// So many copies, each of which takes so many microseconds on the host.
fn copies(count: u64, micros: u64, path: u8) -> Vec<Call> {
    let copy = |number| Call { took: Some(micros * 1000), ..Call::copy(number * 10 * MS, (0, 1), 1_000_000, path) };
    (0..count).map(copy).collect()
}

fn run(copies: Vec<Call>) -> Run {
    let gpus = ["GPU-a", "GPU-b", "GPU-c", "GPU-d"];
    Run { command: &["./app"], took: 1000, code: Some(0), signal: None, copies, ranks: 1, gpus, is_kept: true }
}

fn write(folder: &Folder, runs: &[Run]) {
    for (number, run) in runs.iter().enumerate() {
        let id = format!("node-{number}-1");
        let origin = START + number as u64 * 100_000 * MS;
        for rank in 0..run.ranks {
            let process = 100 + number as u32 * 10 + rank;
            let mut scene = Scene::named(&folder.0, &format!("{id}-{rank}.p2ptrace"), process, "node");
            scene.origin = origin;
            scene.exit = if run.signal.is_none() { Some(0) } else { None };
            if run.is_kept {
                scene.note(0, NoteKind::Variable, 0, &["P2PRUN_ID", &id]);
            }
            if run.ranks > 1 {
                scene.note(0, NoteKind::Variable, 0, &["RANK", &rank.to_string()]);
            }
            scene.gpus(&run.gpus.map(|gpu| (gpu, "")));
            let slow = |call: &Call| if rank == 3 { call.clone() } else { Call { took: Some(MS), ..call.clone() } };
            for call in &run.copies {
                scene.call(&if run.ranks > 1 { slow(call) } else { call.clone() });
            }
            scene.finish();
        }
        if run.is_kept {
            let kept = json!({"version": 1, "id": id, "host": "node", "process": 100 + number * 10, "command": run.command,
                "start": origin, "end": origin + run.took * MS, "code": run.code, "signal": run.signal});
            fs::write(folder.0.join(format!("{id}.run.json")), kept.to_string()).unwrap();
        }
    }
}

fn compared(before: &Folder, after: &Folder, options: &[&str]) -> (String, String, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_p2pshim"));
    let Output { stdout, stderr, status } =
        command.arg("compare").args([&before.0, &after.0]).args(options).output().unwrap();
    (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap(), status.code().unwrap())
}

/// The text up to the tables, with the names of the folders made short, and the exit status.
fn said(before: &[Run], after: &[Run]) -> (String, i32) {
    let folders = [Folder::new("before"), Folder::new("after")];
    write(&folders[0], before);
    write(&folders[1], after);
    let (text, error, status) = compared(&folders[0], &folders[1], &[]);
    assert_eq!(error, "");
    let text = text.split("\n\n").next().unwrap().to_owned();
    let [one, other] = folders.each_ref().map(|folder| folder.0.to_str().unwrap());
    (text.replace(one, "BEFORE").replace(other, "AFTER"), status)
}

fn first(before: Run, after: Run) -> (String, i32) {
    let (text, status) = said(&[before], &[after]);
    (text.lines().next().unwrap().to_owned(), status)
}

#[track_caller]
fn assert_first(before: Run, after: Run, expected: &str, status: i32) {
    assert_eq!(first(before, after), (expected.to_owned(), status));
}

const ONE_RUN_EACH: &str = "One run each: it is not known how much runs differ by themselves. If a folder holds several runs, their spread counts.";

#[test]
fn setting_that_differs_comes_first_and_names_of_rows_are_whole() {
    let folders = [Folder::new("before"), Folder::new("after")];
    let settings: [&[(NoteKind, &[&str])]; 2] = [
        &[(NoteKind::Version, &["driver", "12.4"]), (NoteKind::Version, &["runtime", "12"])],
        &[(NoteKind::Version, &["driver", "13.0"]), (NoteKind::Variable, &["P2PSHIM_ACCESS", "app"])],
    ];
    for (folder, notes) in folders.iter().zip(settings) {
        let mut scene = Scene::named(&folder.0, "a.p2ptrace", 1, "node");
        scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
        notes.iter().for_each(|(kind, strings)| scene.note(0, *kind, 0, strings));
        copies(10, 500, DIRECT).iter().for_each(|call| scene.calls(call));
        scene.finish();
    }
    let (text, ..) = compared(&folders[0], &folders[1], &[]);
    let first = "Not alike: P2PSHIM_ACCESS not set, now app; driver 12.4, now 13.0. No difference above 10 %: ";
    assert!(text.starts_with(first), "{text}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_p2pshim"));
    let narrow = command.arg("compare").args([&folders[0].0, &folders[1].0]).env("COLUMNS", "80").output().unwrap();
    let narrow = String::from_utf8(narrow.stdout).unwrap();
    assert!(narrow.contains("\n  bytes staged after that  ") && narrow.contains("\n  GPU 0 > GPU 1  "), "{narrow}");
    assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
}

#[test]
fn copies_by_hand_beside_others_are_no_new_path_of_these() {
    let write = |folder: &Folder, by_hand: u64| {
        let mut scene = Scene::named(&folder.0, "a.p2ptrace", 1, "node");
        scene.gpus(&[("GPU-a", ""), ("GPU-b", "")]);
        copies(5, 500, DIRECT).iter().for_each(|call| scene.calls(call));
        (0..by_hand).for_each(|number| scene.by_hand(1000 * MS + number * 10 * MS, [5, 5]));
        scene.finish();
    };
    let said = |before: u64, after: u64| {
        let folders = [Folder::new("before"), Folder::new("after")];
        write(&folders[0], before);
        write(&folders[1], after);
        compared(&folders[0], &folders[1], &[]).0
    };
    assert!(!said(4, 6).contains("by hand through the host"), "{}", said(4, 6));
}

#[test]
fn same_runs_are_the_same() {
    let one = || run(copies(100, 500, DIRECT));
    let text = format!("No difference above 10 %: copy calls took 50.0 ms, now 50.0 ms.\n{ONE_RUN_EACH}");
    assert_eq!(said(&[one()], &[one()]), (text, 0));
    let faster = Run { took: 950, ..run(copies(100, 460, DIRECT)) };
    assert_first(one(), faster, "No difference above 10 %: copy calls took 50.0 ms, now 46.0 ms.", 0);
}

#[test]
fn staged_copies_that_become_direct_are_better_and_back_they_are_worse() {
    let slow = || Run { took: 1900, ..run(copies(100, 8500, STAGED)) };
    let fast = || run([copies(3, 1000, START_UP), copies(97, 350, DIRECT)].concat());
    assert_first(
        slow(),
        fast(),
        "Better: copy calls took 0.85 s, now 36.9 ms; the whole run took 1.90 s, now 1.00 s; GPU 0 > GPU 1 was staged, now direct.",
        0,
    );
    assert_first(
        fast(),
        slow(),
        "Worse: copy calls took 36.9 ms, now 0.85 s; the whole run took 1.00 s, now 1.90 s; \
         GPU 0 > GPU 1 was direct, now staged (access not enabled).",
        1,
    );
}

#[test]
fn worse_and_better_at_once_are_worse_and_say_both() {
    let before = run(copies(100, 500, STAGED));
    let after = run(copies(100, 900, DIRECT));
    let text = "Worse: copy calls took 50.0 ms, now 90.0 ms. Better: GPU 0 > GPU 1 was staged, now direct.";
    assert_first(before, after, text, 1);
}

#[test]
fn first_copies_that_were_staged_are_shown_apart() {
    let folders = ["before", "after"].map(Folder::new);
    folders.iter().for_each(|folder| write(folder, &[run(copies(3, 1000, START_UP))]));
    let (text, ..) = compared(&folders[0], &folders[1], &[]);
    let shown = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or(&text).to_owned();
    assert!(!shown("bytes staged at first ").contains(" 0 B"), "{text}");
    assert!(shown("bytes staged after that ").contains(" 0 B"), "{text}");
}

#[test]
fn part_of_a_pair_that_is_staged_is_told_in_percent() {
    let after = run([copies(60, 500, DIRECT), copies(40, 500, STAGED)].concat());
    let text = "Worse: GPU 0 > GPU 1 was direct, now 40 % staged.";
    assert_first(run(copies(100, 500, DIRECT)), after, text, 1);
}

#[test]
fn several_runs_differ_only_if_their_spreads_do_not_meet() {
    let runs = |times: [u64; 3]| times.map(|micros| run(copies(100, micros, DIRECT)));
    let text = "No difference beyond the spread of the runs: copy calls took 50.0 ms (40.0 ms to 70.0 ms in 3 runs), \
                now 60.0 ms (55.0 ms to 80.0 ms in 3 runs).";
    assert_eq!(said(&runs([400, 500, 700]), &runs([550, 600, 800])), (text.to_owned(), 0));
    let text = "Worse: copy calls took 50.0 ms, now 60.0 ms.";
    assert_eq!(said(&runs([490, 500, 510]), &runs([590, 600, 610])), (text.to_owned(), 1));
    // One run within the others' spread is no difference either.
    let (text, status) = said(&runs([400, 500, 700]), &[run(copies(100, 690, DIRECT))]);
    assert!(status == 0 && text.starts_with("No difference beyond the spread of the runs: "), "{text}");
}

#[test]
fn threshold_decides_how_much_is_worse() {
    let folders = [Folder::new("before"), Folder::new("after")];
    write(&folders[0], &[run(copies(100, 500, DIRECT))]);
    write(&folders[1], &[run(copies(100, 600, DIRECT))]);
    for (threshold, status) in [("25", 0), ("20%", 0), ("19.5", 1), ("0", 1)] {
        assert_eq!(compared(&folders[0], &folders[1], &["--threshold", threshold]).2, status, "{threshold}");
    }
    let (_, error, status) = compared(&folders[0], &folders[1], &["--threshold", "few"]);
    assert!(status == 2 && error.contains("write percent, such as 5 or 12.5"), "{error}");
}

#[test]
fn differences_below_a_millisecond_do_not_count() {
    let text = "No difference above 10 %: copy calls took 0.5 ms, now 1.0 ms.";
    assert_first(run(copies(5, 100, DIRECT)), run(copies(5, 200, DIRECT)), text, 0);
}

#[test]
fn other_amount_of_work_is_compared_by_copy() {
    let text = "No difference above 10 %: copies took 0.50 ms each on the host, now 0.50 ms.";
    let (said, status) = first(run(copies(100, 500, DIRECT)), Run { took: 2000, ..run(copies(200, 500, DIRECT)) });
    assert_eq!((said.replace("0.5 ms", "0.50 ms").as_str(), status), (text, 0));
    let text = "Worse: copies took 0.5 ms each on the host, now 0.7 ms.";
    assert_first(run(copies(100, 500, DIRECT)), run(copies(200, 700, DIRECT)), text, 1);
}

#[test]
fn copies_of_other_sizes_are_not_compared() {
    let large = copies(10, 500, DIRECT).into_iter().map(|call| Call { bytes: 10_000_000, ..call }).collect();
    let text = "Not comparable: the programs did different work: 100 copies of 100.0 MB, now 10 copies of 100.0 MB.";
    assert_first(run(copies(100, 500, DIRECT)), run(large), text, 3);
}

#[test]
fn side_without_copies_is_not_comparable() {
    let none = || run(Vec::new());
    let text = "Not comparable: AFTER has no copies between GPUs that are known, and BEFORE has.";
    assert_first(run(copies(100, 500, DIRECT)), none(), text, 3);
    let text = "Not comparable: BEFORE has no copies between GPUs that are known, and AFTER has.";
    assert_first(none(), run(copies(100, 500, DIRECT)), text, 3);
    assert_first(none(), none(), "No difference above 10 %: the whole run took 1.00 s, now 1.00 s.", 0);
    let text = "Worse: the whole run took 1.00 s, now 2.00 s.";
    assert_first(none(), Run { took: 2000, ..none() }, text, 1);
}

#[test]
fn folder_without_a_trace_is_not_compared() {
    let folders = [Folder::new("before"), Folder::new("after")];
    write(&folders[0], &[run(copies(1, 500, DIRECT))]);
    let (text, error, status) = compared(&folders[0], &folders[1], &[]);
    assert_eq!((text.as_str(), status), ("", 3));
    assert!(error.contains("cannot be compared: no trace (*.p2ptrace) in "), "{error}");
}

#[test]
fn pairs_that_one_side_has_are_named() {
    let on = |pair: (u8, u8), count| {
        copies(count, 500, DIRECT).into_iter().map(move |call| Call { pair: Some(pair), ..call })
    };
    let both = || run(on((0, 1), 50).chain(on((2, 3), 50)).collect());
    let text = "No difference above 10 %: copy calls took 50.0 ms, now 50.0 ms. Different: pairs without copies now: GPU 2 > GPU 3.";
    assert_first(both(), run(on((0, 1), 100).collect()), text, 0);
    let text = "No difference above 10 %: copy calls took 50.0 ms, now 50.0 ms. Different: pairs without copies before: GPU 2 > GPU 3.";
    assert_first(run(on((0, 1), 100).collect()), both(), text, 0);
    let text = "No difference above 10 %: copy calls took 50.0 ms, now 50.0 ms. Different: the runs share no pair: GPU 0 > GPU 1, now GPU 2 > GPU 3.";
    assert_first(run(on((0, 1), 100).collect()), run(on((2, 3), 100).collect()), text, 0);
}

#[test]
fn no_common_pair_the_paths_of_all_are_compared() {
    let staged = copies(100, 500, STAGED).into_iter().map(|call| Call { pair: Some((2, 3)), ..call });
    assert_first(
        run(copies(100, 500, DIRECT)),
        run(staged.collect()),
        "Worse: copies were direct, now staged. Different: the runs share no pair: GPU 0 > GPU 1, now GPU 2 > GPU 3.",
        1,
    );
}

#[test]
fn other_programs_are_said() {
    let other = || Run { command: &["./other", "-n", "4"], ..run(copies(100, 500, DIRECT)) };
    let (text, status) = said(&[run(copies(100, 500, DIRECT))], &[other()]);
    let expected = format!(
        "The programs differ. No difference above 10 %: copy calls took 50.0 ms, now 50.0 ms.\n\
         The commands differ: ./app, now ./other ….\n{ONE_RUN_EACH}"
    );
    assert_eq!((text, status), (expected, 0));
    let secret = |command| Run { command, ..run(copies(100, 500, DIRECT)) };
    let sides = [&["python3", "a.py", "--key", "5"][..], &["python3", "a.py", "--key", "6"]].map(|it| [secret(it)]);
    let (text, _) = said(&sides[0], &sides[1]);
    assert!(text.contains("\nThe arguments of the commands differ; --with-arguments shows them.\n"), "{text}");
    let slower = Run { command: &["./other"], ..run(copies(100, 900, DIRECT)) };
    let text = "The programs differ. Worse: copy calls took 50.0 ms, now 90.0 ms.";
    assert_first(run(copies(100, 500, DIRECT)), slower, text, 1);
}

#[test]
fn other_gpus_are_said() {
    let other = Run { gpus: ["GPU-e", "GPU-f", "GPU-g", "GPU-h"], ..run(copies(100, 500, DIRECT)) };
    let (text, _) = said(&[run(copies(100, 500, DIRECT))], &[other]);
    assert!(text.contains("\nThe GPUs differ: pairs are compared by number.\n"), "{text}");
}

#[test]
fn other_numbers_of_ranks_are_said() {
    let of = |ranks, micros| Run { ranks, ..run(copies(10, micros, DIRECT)) };
    let text = "No difference above 10 %: copies took 1.0 ms each on the host, now 1.0 ms. Different: 8 ranks, now 4.";
    assert_first(of(8, 1000), of(4, 1000), text, 0);
}

#[test]
fn rank_that_got_slower_is_named_though_all_together_did_not() {
    let of = |micros| Run { ranks: 8, ..run(copies(10, micros, DIRECT)) };
    let text = "No difference above 10 %: copy calls took 80.0 ms, now 87.0 ms. Different: copy calls of rank 3 took 10.0 ms, now 17.0 ms.";
    assert_first(of(1000), of(1700), text, 0);
}

#[test]
fn run_that_was_cut_off_is_worse_and_not_compared_as_a_whole() {
    let whole = || run(copies(100, 500, DIRECT));
    let cut = || Run { took: 300, code: None, signal: Some(9), ..run(copies(30, 500, DIRECT)) };
    let (text, status) = said(&[whole()], &[cut()]);
    let expected = format!(
        "Worse: the program ended with exit 0, now it was ended by SIGKILL.\n\
         AFTER is of a program that was ended by SIGKILL: it may have copied less than a whole run.\n{ONE_RUN_EACH}"
    );
    assert_eq!((text, status), (expected, 1));
    let text = "Better: the program was ended by SIGKILL, now it ended with exit 0.";
    assert_first(cut(), whole(), text, 0);
    let failed = || Run { code: Some(3), ..whole() };
    assert_first(whole(), failed(), "Worse: the program ended with exit 0, now it ended with exit 3.", 1);
    let text = "No difference above 10 %: copies took 0.5 ms each on the host, now 0.5 ms.";
    assert_first(failed(), failed(), text, 0);
}

#[test]
fn end_that_nobody_kept_is_not_guessed() {
    let (text, status) =
        said(&[run(copies(100, 500, DIRECT))], &[Run { is_kept: false, ..run(copies(100, 500, DIRECT)) }]);
    assert_eq!(status, 0);
    assert!(text.starts_with("No difference above 10 %: copy calls took 50.0 ms, now 50.0 ms."), "{text}");
    assert!(!text.contains("the program"), "{text}");
}

#[test]
fn findings_and_errors_that_come_are_worse_and_that_go_are_better() {
    let with = |rules: Vec<u8>, result| {
        let mut calls = copies(100, 500, DIRECT);
        calls[7] = Call { rules, result, ..calls[7].clone() };
        run(calls)
    };
    let fine = || run(copies(100, 500, DIRECT));
    assert_first(fine(), with(vec![OVERLAP], 0), "Worse: hazard P2P-copy-overlap is new, in at least 1 call.", 1);
    assert_first(
        with(vec![OVERLAP], 0),
        fine(),
        "Better: hazard P2P-copy-overlap is gone, before in at least 1 call.",
        0,
    );
    let text = "Worse: failed calls are new, 1 of cudaMemcpyPeerAsync with cudaErrorInvalidValue.";
    assert_first(fine(), with(Vec::new(), 1), text, 1);
    // Peer access that is enabled already is no failure.
    let text = "No difference above 10 %: copy calls took 50.0 ms, now 50.0 ms.";
    assert_first(fine(), with(Vec::new(), 704), text, 0);
    // A run that was cut off may not have come to it.
    let cut = Run { code: None, signal: Some(9), ..run(copies(30, 500, DIRECT)) };
    let (said, status) = first(with(vec![OVERLAP], 0), cut);
    let text = "Worse: the program ended with exit 0, now it was ended by SIGKILL. Different: hazard P2P-copy-overlap is gone, before in at least 1 call.";
    assert_eq!((said.as_str(), status), (text, 1));
}

#[test]
fn pair_that_fails_verification_is_worse_and_its_path_is_not_judged() {
    let text = "Worse: GPU 0 > GPU 1 fails verification now: peer access loses data there, or hangs. \
                Different: GPU 0 > GPU 1 was direct, now staged (broken: failed verification).";
    let (said, status) = first(run(copies(100, 500, DIRECT)), run(copies(100, 500, BLOCKED)));
    assert_eq!((said.as_str(), status), (text, 1));
    let text = "No difference above 10 %: copy calls took 50.0 ms, now 50.0 ms. \
                Different: GPU 0 > GPU 1 failed verification before; p2pshim doctor shows whether data arrives now; \
                GPU 0 > GPU 1 was staged, now direct.";
    assert_first(run(copies(100, 500, BLOCKED)), run(copies(100, 500, DIRECT)), text, 0);
}

#[test]
fn rate_counts_if_each_copy_was_timed() {
    let timed = |micros: u64, every: usize| {
        let mut calls = copies(100, 500, DIRECT);
        for call in calls.iter_mut().step_by(every) {
            call.device = Some((call.at + 10_000, micros * 1000));
        }
        run(calls)
    };
    assert_first(timed(10, 1), timed(20, 1), "Worse: GPU 0 > GPU 1 made 100.0 GB/s, now 50.0 GB/s.", 1);
    let text = "No difference above 10 %: copy calls took 50.0 ms, now 50.0 ms.";
    assert_first(timed(10, 1), timed(20, 7), text, 0);
}

#[test]
fn damaged_trace_is_said_and_does_not_pass() {
    let folders = [Folder::new("before"), Folder::new("after")];
    write(&folders[0], &[run(copies(100, 500, DIRECT))]);
    write(&folders[1], &[run(copies(100, 500, DIRECT))]);
    fs::write(folders[1].0.join("other.p2ptrace"), "nothing").unwrap();
    let (text, _, status) = compared(&folders[0], &folders[1], &[]);
    assert!(status == 3 && text.contains("could be read: `p2pshim report "), "{text}");
}

#[test]
fn json_has_what_the_text_says_and_the_page_loads_nothing() {
    let folders = [Folder::new("before"), Folder::new("after")];
    write(&folders[0], &[run(copies(100, 8500, STAGED))]);
    write(&folders[1], &[Run { command: &["./<b>"], ..run(copies(100, 350, DIRECT)) }]);
    let (text, _, _) = compared(&folders[0], &folders[1], &[]);
    let (json, error, status) = compared(&folders[0], &folders[1], &["--json"]);
    assert_eq!((error.as_str(), status), ("", 0));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["text"], text.lines().next().unwrap());
    assert_eq!(
        (&json["verdict"], &json["pairs"][0]["before"]["staged_bytes"]),
        (&json!("better"), &json!(100_000_000))
    );
    let page = folders[1].0.join("page.html");
    let (out, error, status) = compared(&folders[0], &folders[1], &["-o", page.to_str().unwrap()]);
    assert_eq!((out.as_str(), error.as_str(), status), ("", "", 0));
    let page = fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(
        page.contains("./&lt;b&gt;") && !page.contains("<b>") && !page.contains("<script") && !page.contains("://"),
        "{page}"
    );
    assert!(page.contains("GPU 0 &gt; GPU 1 was staged, now direct"), "{page}");
}

#[test]
fn copies_of_a_trace_that_is_not_whole_are_not_compared_one_by_one() {
    let (before, after) = (Folder::new("compare"), Folder::new("compare"));
    write(&before, &[run(copies(100, 500, DIRECT))]);
    write(&after, &[run(copies(30, 5000, DIRECT))]);
    assert_eq!(compared(&before, &after, &[]).2, 1, "both are whole");
    for entry in fs::read_dir(&after.0).unwrap().map(|entry| entry.unwrap().path()) {
        let mut bytes = fs::read(&entry).unwrap();
        if entry.extension().is_some_and(|it| it == "p2ptrace") {
            // So many records were lost.
            bytes[40] = 9;
        }
        fs::write(entry, bytes).unwrap();
    }
    let (said, _, status) = compared(&before, &after, &[]);
    assert!(status == 3 && !said.starts_with("Worse"), "{status}: {said}");
}
