//! Calls wait for queued copies as without p2pshim, whatever else there is or goes on: many graphs and streams, threads that change what
//! belongs to whom, and calls that are left before they return.

use crate::support::soak::stride;
use crate::support::{Program, path};

/// Words of the programs for what must not be, on any library.
const WRONG: [&str; 5] = ["NOT", "WRONG", "WAITS", "SOME", ": NO"];
/// How often a race is run again by `make soak`.
const TIMES: usize = 20;

/// A program that does the same plain and preloaded, and nothing wrong.
fn assert_same(program: Program) -> String {
    let program = program.findings_apart();
    let plain = program.plain();
    plain.assert_success();
    assert!(!WRONG.iter().any(|word| plain.stdout.contains(word)), "plain: {}", plain.stdout);
    assert_preloaded(&program, &plain.stdout);
    plain.stdout
}

fn assert_preloaded(program: &Program, wanted: &str) {
    let preloaded = program.preloaded();
    preloaded.assert_success();
    assert_eq!(preloaded.stdout, wanted, "preloaded (left) and plain (right)");
}

fn kept_waits(flavour: &str, arguments: &[&str]) {
    assert_same(Program::case(&format!("kept_waits-{flavour}")).args(arguments));
}

#[test]
fn calls_wait_beside_many_graphs() {
    for (flavour, mode, count, what) in [
        ("12", "graphs", "1030", "spare"),
        ("13", "graphs", "1030", "destination"),
        ("static", "launched", "1018", "destination"),
        ("12", "launched", "1030", "destination"),
        ("13", "tails", "3", "spare"),
    ] {
        kept_waits(flavour, &[mode, count, what]);
    }
}

/// The host function behind a graph's copies may wait for the program, which waits for the copies.
#[test]
fn calls_wait_for_the_copies_of_a_child_graph_only() {
    for flavour in ["12", "13", "static"] {
        let said = assert_same(Program::case(&format!("graph_tail-{flavour}")));
        assert_eq!(said.matches("does not wait for the tail, cudaSuccess; right").count(), 3, "{said}");
    }
}

#[test]
fn calls_wait_beside_many_streams() {
    kept_waits("12", &["streams", "1100", "synchronize"]);
}

/// Simulated GPUs take minutes for so many.
#[test]
#[ignore = "make soak"]
fn calls_wait_beside_ten_thousand_streams() {
    kept_waits("12", &["streams", "10000", "synchronize"]);
}

/// A queue of an H200 takes 340 staged copies, and with p2pshim three times as many direct ones, with their events.
#[test]
fn copies_find_room_in_a_queue() {
    let queue = |count| Program::case("kept_waits-12").args(&["queue", count]).env("P2PSIM_QUEUE", "1021");
    assert_same(queue("340"));
    let preloaded = queue("1020").findings_apart().preloaded();
    preloaded.assert_success();
    assert!(preloaded.stdout.contains("1020 copies find room: yes"), "{}", preloaded.stdout);
}

/// A call that waits is left, or continues after a signal. The thread's capture mode is not another one afterwards.
#[test]
fn calls_that_wait_can_be_left() {
    for how in ["jump", "return", "cancel"] {
        for (flavour, capture) in [("12", &["capture"][..]), ("13", &[])] {
            let program = Program::case(&format!("waits_left-{flavour}")).args(&["wait", how]).args(capture);
            assert_same(program.clone().env("P2PSHIM_VALIDATE", "off"));
            assert_same(program);
        }
    }
}

/// A call that copies is left while it is in the driver, which may have queued the copy already: whichever of what a copy gives its stream
/// finds no room.
#[test]
fn copies_whose_call_is_left_are_waited_for() {
    const QUEUE: usize = 100;
    const MOST: usize = 3;
    for how in ["jump", "cancel"] {
        for known in [&[][..], &["known"]] {
            for left in 1..=MOST {
                let program =
                    Program::case("waits_left-12").args(&["copy", how, &(QUEUE - left).to_string()]).args(known);
                assert_same(program.env("P2PSIM_QUEUE", QUEUE.to_string()));
            }
        }
    }
}

/// A copy of memory that belongs to no context is work of the context that it names, and no other waits for it (two H200, driver 580).
#[test]
fn context_that_a_copy_names_waits() {
    let said = assert_same(Program::case("waits_contexts"));
    for (name, waiting) in [("primary", 0), ("first", 1), ("second", 2)] {
        let words: Vec<_> = ["primary", "first", "second"]
            .into_iter()
            .enumerate()
            .map(|(other, word)| format!("{word} {}", if other == waiting { "waits" } else { "at once" }))
            .collect();
        let line = format!("  the copy names the {name}: {}", words.join(", "));
        let of_pool: Vec<_> = said.lines().skip(1).take(3).collect();
        assert!(of_pool.contains(&line.as_str()), "{line}\n{said}");
    }
}

/// A stream is destroyed at once, though another thread is inside the driver for its copy.
#[test]
fn streams_are_destroyed_beside_copies() {
    let program = Program::case("waits_destroyed").libraries("target/c-tests/blocking-driver");
    assert_same(program.env("P2PSHIM_VERIFY", "off"));
}

/// A copy is left at any instruction, also of p2pshim: if the driver has it, it is waited for.
#[test]
fn copies_that_are_left_at_any_instruction_are_waited_for() {
    for how in ["jump", "cancel"] {
        let [every, first] = stride(&format!("waits_stepped {how}"), 61, 3);
        let program =
            Program::case("waits_stepped").args(&[how, &every, &first]).libraries("target/c-tests/blocking-driver");
        let preloaded = program.env("P2PSHIM_VERIFY", "off").preloaded();
        preloaded.assert_success();
        assert_eq!(preloaded.stdout, "0 copies that nobody waits for\n", "{how}");
        assert!(preloaded.stderr.contains("many left"), "{}", preloaded.stderr);
    }
}

// ---- Races ----

/// The kind of change meanwhile; rounds, and rounds of `make soak`.
const CHANGES: [(&str, &str, &str); 3] = [("pools", "200", "1000"), ("owners", "40", "200"), ("rights", "40", "100")];

fn churn(mode: &str, rounds: &str) -> Program {
    Program::case("waits_churn-12").args(&[mode, rounds]).env("P2PSIM_DEVICES", "4")
}

#[test]
fn calls_wait_while_owners_and_rights_change() {
    for (mode, rounds, _) in CHANGES {
        assert_same(churn(mode, rounds));
        assert_same(churn(mode, rounds).env("P2PSHIM_VERIFY", "off"));
    }
}

/// The driver below ends the program if it ever gets a stream that is gone, as a real one does.
#[test]
fn streams_that_are_destroyed_while_another_thread_waits_are_not_used() {
    let program = Program::new(path("target/c-tests/streams_reused")).arg("waits").findings_apart();
    let program = program.libraries("target/c-tests/reusing-driver").env("P2PSHIM_VERIFY", "off");
    let outcome = program.preloaded();
    assert_eq!(outcome.stdout, "0 copies refused\n", "{outcome:#?}");
    outcome.assert_success();
}

#[test]
#[ignore = "make soak"]
fn calls_wait_many_times_while_owners_and_rights_change() {
    for (mode, _, rounds) in CHANGES {
        let program = churn(mode, rounds).findings_apart();
        let wanted = assert_same(program.clone());
        for _ in 0..TIMES {
            assert_preloaded(&program, &wanted);
            assert_preloaded(&program.clone().env("P2PSHIM_VERIFY", "off"), &wanted);
        }
    }
}

/// The other deterministic cases are races too where the pair becomes direct, and where threads are scheduled as they like.
#[test]
#[ignore = "make soak"]
fn calls_are_left_many_times() {
    for _ in 0..TIMES {
        calls_that_wait_can_be_left();
        copies_whose_call_is_left_are_waited_for();
        streams_are_destroyed_beside_copies();
    }
}
