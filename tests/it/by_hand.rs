//! Copies between devices that a program makes by hand, through a buffer on the host: counted, with both places, if they are that.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::soak::flavours;
use crate::support::{Program, Scratch, command};

const BYTES: u64 = 1 << 20;
const COUNT: u64 = 20;

/// The report's table of copies by hand, and the path of them between the two GPUs, if there is one.
struct ByHand {
    ways: Vec<Value>,
    path: Option<Value>,
    process: Value,
}

fn by_hand(flavour: &str, what: &str) -> ByHand {
    let folder = Scratch::new("traces");
    let program = Program::case(&format!("by_hand-{flavour}")).arg(what).libraries("target/sim/lib").findings_apart();
    let plain = program.plain();
    plain.assert_success();
    let outcome = program.env("P2PSHIM_TRACE", folder.to_string_lossy()).preloaded();
    assert_eq!((&outcome.status, &outcome.stdout), (&plain.status, &plain.stdout), "{flavour} {what}: {outcome:#?}");
    let report = Program::new(command()).arg("report").arg(folder.to_string_lossy()).arg("--json").plain();
    report.assert_success();
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    let calls = Program::new(command()).arg("report").arg(folder.to_string_lossy()).arg("--calls").plain().stdout;
    let of_the_host = calls.lines().filter(|line| line.contains("Memcpy")).filter(|line| line.contains(", host, "));
    assert_eq!(of_the_host.count(), calls.lines().filter(|line| line.contains("> host ")).count(), "{calls}");
    let paths = report["pairs"].as_array().unwrap().iter().filter(|pair| pair["src"] != pair["dst"]);
    let mut paths = paths.flat_map(|pair| pair["paths"].as_array().unwrap()).filter(|path| path["class"] == "by-hand");
    let ways = report["by_hand"].as_array().unwrap().clone();
    ByHand { ways, path: paths.next().cloned(), process: report["files"][0].clone() }
}

impl ByHand {
    /// How many copies, and their bytes.
    fn sums(&self) -> [u64; 2] {
        let of = |name: &str| self.ways.iter().map(|way| way[name].as_u64().unwrap()).sum();
        let path = |name: &str| self.path.as_ref().map_or(0, |path| path[name].as_u64().unwrap());
        let sums = ["calls", "bytes"].map(of);
        assert_eq!(sums, ["calls", "bytes"].map(path));
        sums
    }

    fn sampled(&self) -> BTreeSet<&str> {
        self.ways.iter().map(|way| way["sampled"].as_str().unwrap()).collect()
    }
}

#[test]
fn by_hand_each_copy_is_counted_with_both_places() {
    for flavour in flavours("by_hand_each_copy_is_counted_with_both_places") {
        for what in ["pinned", "pageable", "threads", "driver", "default"] {
            let found = by_hand(flavour, what);
            assert_eq!(found.sums(), [COUNT, COUNT * BYTES], "{flavour} {what}");
            assert!(found.ways.iter().all(|way| way["src"] == 0 && way["dst"] == 1), "{flavour} {what}");
            assert!(found.sampled().contains("same") && !found.sampled().contains("differ"), "{flavour} {what}");
            let end = |way: &Value, end: &str| way[end]["site"].as_str().unwrap().to_owned();
            let places: BTreeSet<String> =
                found.ways.iter().flat_map(|way| [end(way, "from"), end(way, "to")]).collect();
            // Where the runtime is in the program only its own place is known.
            let least = if flavour == "static" { 1 } else { 2 };
            assert!(places.len() >= least && places.iter().all(|place| !place.contains("unknown")), "{places:?}");
            assert!(
                found.path.as_ref().is_some_and(|path| path["device_calls"].as_u64() > Some(0)),
                "{flavour} {what}"
            );
            let [to, from] = ["to_host_bytes", "from_host_bytes"].map(|name| found.process[name].as_u64().unwrap());
            assert_eq!([to, from], [COUNT * BYTES; 2], "{flavour} {what}");
        }
    }
}

#[test]
fn by_hand_a_part_and_a_buffer_that_goes_both_ways_are_counted() {
    let parts = by_hand("12", "parts");
    assert_eq!(parts.sums(), [COUNT, COUNT * BYTES / 2]);
    assert_eq!(parts.sampled(), BTreeSet::from(["unknown"]));
    assert_eq!(by_hand("12", "back").sums(), [COUNT / 2, COUNT / 2 * BYTES]);
}

#[test]
fn by_hand_through_pinned_memory_on_a_stream_is_counted_and_compared_if_it_was_waited_for() {
    for (what, sampled) in [("async", "same"), ("device", "same"), ("event", "unknown")] {
        let found = by_hand("12", what);
        assert_eq!(found.sums(), [COUNT, COUNT * BYTES], "{what}");
        assert!(found.sampled().contains(sampled), "{what}: {:?}", found.sampled());
        assert!(found.sampled().iter().all(|word| [sampled, "unknown"].contains(word)), "{what}");
    }
}

#[test]
fn by_hand_what_only_looks_so_is_not_counted() {
    for what in ["twice", "small", "loader", "offload", "checkpoint", "reused", "zeroed", "in_turn"] {
        let found = by_hand("12", what);
        assert!(found.ways.is_empty() && found.sums() == [0; 2], "{what}: {:?}", found.ways);
    }
}
