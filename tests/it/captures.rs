//! Captures that begin in ways that came after 13.0, and batches of copies in captures: nodes, bytes and codes.

use std::fs;

use crate::support::{Outcome, Program, Scratch};

const FLAVOURS: [&str; 3] = ["12", "13", "static"];
/// A driver whose graphs have nodes for batches.
const NEW_DRIVER: (&str, &str) = ("P2PSIM_DRIVER", "13050");

fn case(name: &str, flavour: &str, args: &[&str], env: &[(&str, &str)]) -> Program {
    let program = Program::case(&format!("{name}-{flavour}")).args(args).findings_apart();
    env.iter().fold(program, |program, (name, value)| program.env(name, *value))
}

/// Preloaded, with a trace, which times copies.
fn traced(program: &Program) -> Outcome {
    let folder = Scratch::new("traces");
    let outcome = program.clone().env("P2PSHIM_TRACE", folder.to_string_lossy()).preloaded();
    fs::remove_dir_all(&folder).unwrap();
    outcome
}

/// Captures into a graph that was captured before, in each mode, of copies that are direct, that the driver stages and that p2pshim does.
#[test]
fn recaptured_graphs_have_the_nodes_and_bytes_that_they_have_without_us() {
    let machines: [&[(&str, &str)]; 3] =
        [&[], &[("P2PSHIM_ACCESS", "app")], &[("P2PSIM_NO_P2P", "0-1"), ("P2PSHIM_STAGING", "always")]];
    for (flavour, machines) in [("12", &machines[..1]), ("13", &machines), ("static", &machines[..1])] {
        for env in machines {
            let program = case("recapture", flavour, &["again"], env);
            let plain = program.plain();
            plain.assert_success();
            assert_eq!(plain.stdout.matches("  ended 0 with the same graph").count(), 6, "{}", plain.stdout);
            assert_eq!(plain.stdout.matches("too few: 918\n").count(), 3, "{}", plain.stdout);
            traced(&program).assert_same_as(&plain, &format!("{flavour} {env:?}"));
        }
    }
}

/// Peer copies that CUDA refuses become others in a recapture as they do in a capture.
#[test]
fn peer_copies_are_recaptured_as_the_copies_that_were_captured_in_their_place() {
    for flavour in FLAVOURS {
        let outcome = traced(&case("recapture", flavour, &["again", "peer"], &[]));
        outcome.assert_success();
        let out = &outcome.stdout;
        assert_eq!(out.matches(", peer copy 0\n").count(), 10, "{out}");
        assert_eq!(out.matches("  ended 0 with the same graph").count(), 6, "{out}");
        assert_eq!(out.matches("  nodes 3: ").count(), 9, "{out}");
        assert_eq!(out.matches("  replayed: there right, back right\n").count(), 18, "{out}");
    }
}

/// The driver does not say that a stream captures for a graphics API; p2pshim knows.
#[test]
fn copies_for_a_graphics_api_are_recorded_as_they_are_without_us() {
    let staged = [("P2PSIM_NO_P2P", "0-1"), ("P2PSHIM_STAGING", "always"), ("P2PSHIM_READBACK", "all")];
    for env in [&[][..], &staged] {
        let program = case("recapture", "13", &["graphics"], env);
        let plain = program.plain();
        plain.assert_success();
        assert_eq!(plain.stdout.matches("  there right, back right, copies there 1\n").count(), 2, "{}", plain.stdout);
        traced(&program).assert_same_as(&plain, &format!("{env:?}"));
    }
}

/// Prints of a program that captures batches, one for each mode: what the batch and the last error were, how many nodes the graph
/// has, and how many bytes arrive; and what is said of it.
fn captured(flavour: &str, how: &str, env: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
    let outcome = case("captured_batches", flavour, &["refused", how], env).preloaded();
    outcome.assert_success();
    let found = outcome.findings.iter().filter(|finding| finding.rule == "P2P-capture-batch");
    (
        outcome.stdout.lines().map(str::to_owned).collect(),
        found.map(|found| format!("{} {}", found.function, found.text)).collect(),
    )
}

fn lines(how: &str, code: i32, nodes: &str, right: &str) -> Vec<String> {
    let of_mode = |mode| {
        let begin = format!("{how}, mode {mode}: batch {code}, last error {code}, ended 0");
        [begin, format!("  nodes {nodes}"), format!("  right: {right}"), format!("  right: {right}")]
    };
    (0..3).flat_map(of_mode).collect()
}

/// All copies, or for those that a batch of one has only the first.
const ALL: &str = "far 1048576, near 524288, far copy 1048576";
const FIRST: &str = "far 1048576, near 0, far copy 0";
const NONE: &str = "far 0, near 0, far copy 0";

#[test]
fn batches_that_are_refused_in_a_capture_become_single_copies_and_replay() {
    for flavour in FLAVOURS {
        for (how, nodes, right) in [
            ("stream", "3: type 1 type 1 type 1", ALL),
            ("any", "3: type 1 type 1 type 1", ALL),
            ("3d", "1: type 1", FIRST),
        ] {
            assert_eq!(captured(flavour, how, &[]), (lines(how, 0, nodes, right), Vec::new()), "{flavour}");
        }
    }
}

#[test]
fn batches_that_cannot_be_captured_one_by_one_are_left_whole_and_said_to_be_missing() {
    let order = "p2pshim can capture only copies whose sources may be read in the stream's order, and no arrays";
    let memory = "p2pshim can capture only copies of memory of devices and of pinned memory";
    let off = ("P2PSHIM_CAPTURE", "forward");
    for flavour in FLAVOURS {
        for (how, env, why) in [
            ("during", &[][..], order),
            ("mixed", &[], order),
            ("pageable", &[], memory),
            ("stream", &[off], "P2PSHIM_CAPTURE=forward"),
            ("3d", &[off], "P2PSHIM_CAPTURE=forward"),
            // None of a batch is captured if the driver does not take all.
            (
                "stream",
                &[("P2PSIM_FAULT", "code:cuGraphAddMemcpyNode:1@2")],
                "CUDA cannot capture the copies one by one",
            ),
        ] {
            let (printed, said) = captured(flavour, how, env);
            assert_eq!(printed, lines(how, 900, "0:", NONE), "{flavour} {env:?}");
            let what = format!("its copies are missing from the graph ({why})");
            assert!(said.len() == 1 && said[0].contains(&what), "{flavour} {how} {env:?}: {said:?}");
            let name = if how == "3d" { "emcpy3DBatchAsync" } else { "emcpyBatchAsync" };
            let name = format!("{}{name}", if flavour == "static" { "cuM" } else { "cudaM" });
            assert!(said[0].starts_with(&name) && said[0].contains("captured_batches-"), "{flavour} {how}: {said:?}");
        }
    }
}

/// From 13.5 on the driver captures them, and p2pshim leaves that to it.
#[test]
fn batches_are_nodes_of_newer_drivers() {
    for flavour in FLAVOURS {
        for how in ["stream", "during", "pageable"] {
            let program = case("captured_batches", flavour, &["refused", how], &[NEW_DRIVER]);
            let plain = program.plain();
            assert_eq!(
                plain.stdout.matches(": batch 0, last error 0, ended 0\n  nodes 1: type 14\n").count(),
                3,
                "{}",
                plain.stdout
            );
            traced(&program).assert_same_as(&plain, &format!("{flavour} {how}"));
        }
    }
}

/// Their pairs are enabled before they are instantiated, and launches are counted with what they copy, after changes too.
#[test]
fn batch_nodes_are_direct_and_each_launch_is_counted_with_its_bytes() {
    for flavour in FLAVOURS {
        let program = case("captured_batches", flavour, &["nodes"], &[NEW_DRIVER]);
        let plain = program.plain();
        plain.assert_success();
        let (outcome, trace) = program.traced();
        outcome.assert_same_as(&plain, flavour);
        let name = if flavour == "static" { "cuGraphLaunch" } else { "cudaGraphLaunch" };
        let launches: Vec<&str> =
            trace.calls.iter().filter(|call| call.depth == 0 && call.name == name).map(|call| &*call.text).collect();
        let both = |bytes| format!(" 0>1 direct (1 copy, {bytes} bytes), 1>0 direct (1 copy, {bytes} bytes)");
        let half = " 0>1 direct (1 copy, 524288 bytes)".to_owned();
        let expected = [both(1_048_576), both(1_048_576), half, both(262_144), both(131_072), both(131_072)];
        assert_eq!(launches.len(), expected.len(), "{launches:#?}");
        for (launch, expected) in launches.iter().zip(expected) {
            assert!(launch.contains(&expected), "{flavour}: {launch} lacks{expected}");
        }
    }
}
