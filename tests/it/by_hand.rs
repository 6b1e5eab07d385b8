//! Copies between devices that a program makes by hand, through a buffer on the host: counted, with both places, if they are that.

use std::collections::BTreeSet;
use std::fs;

use crate::support::soak::flavours;
use crate::support::{Program, scratch};
use p2pshim_trace::{DeviceTime, NoteKind, Path, Record, Trace};

const BYTES: u64 = 1 << 20;
const COUNT: u64 = 20;

/// Copies by hand in a trace, and what it says of their places: where they come from, where they go on, and what samples say.
struct ByHand {
    records: Vec<Record>,
    ways: BTreeSet<(u32, u32, String)>,
    functions: BTreeSet<String>,
}

fn by_hand(flavour: &str, what: &str) -> ByHand {
    let folder = scratch("traces");
    let program = Program::case(&format!("by_hand-{flavour}")).arg(what).libraries("target/sim/lib").findings_apart();
    let plain = program.plain();
    plain.assert_success();
    let outcome = program.env("P2PSHIM_TRACE", folder.to_string_lossy()).preloaded();
    assert_eq!((&outcome.status, &outcome.stdout), (&plain.status, &plain.stdout), "{flavour} {what}: {outcome:#?}");
    let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let trace = Trace::open(&file).unwrap();
    let (mut records, mut buffer) = (Vec::new(), Vec::new());
    for block in 0..trace.blocks() {
        let calls = trace.block(block, &mut buffer).unwrap().unwrap().calls();
        records.extend(calls.filter(|call| Path::numbered(call.path) == Some(Path::ByHand)));
    }
    let way = |note: &p2pshim_trace::Note| (note.string(0).parse().unwrap(), note.number, note.string(1).to_owned());
    let name = |record: &Record| {
        let is_it = |note: &&p2pshim_trace::Note| note.number == u32::from(record.function);
        trace.notes_of(NoteKind::Function).find(is_it).unwrap().string(1).to_owned()
    };
    let functions = records.iter().map(name).collect();
    let ways = trace.notes_of(NoteKind::HostWay).map(way).collect();
    fs::remove_dir_all(&folder).unwrap();
    ByHand { records, ways, functions }
}

impl ByHand {
    fn bytes(&self) -> u64 {
        self.records.iter().map(|record| record.bytes).sum()
    }

    fn sampled(&self) -> BTreeSet<&str> {
        self.ways.iter().map(|(.., sampled)| sampled.as_str()).collect()
    }
}

#[test]
fn by_hand_each_copy_is_counted_with_both_places() {
    for flavour in flavours("by_hand_each_copy_is_counted_with_both_places") {
        for (what, bytes) in
            [("pinned", BYTES), ("pageable", BYTES), ("threads", BYTES), ("driver", BYTES), ("default", BYTES)]
        {
            let found = by_hand(flavour, what);
            assert_eq!((found.records.len() as u64, found.bytes()), (COUNT, COUNT * bytes), "{flavour} {what}");
            for record in &found.records {
                let ends = (record.src_device, record.dst_device, record.depth, record.bytes);
                assert_eq!(ends, (Some(0), Some(1), 0, bytes), "{flavour} {what}");
            }
            assert!(found.sampled().contains("same") && !found.sampled().contains("differ"), "{flavour} {what}");
            let places: BTreeSet<u32> = found.ways.iter().flat_map(|(from, to, _)| [*from, *to]).collect();
            // Where the runtime is in the program, or finds out the direction, only its own place is known.
            let least = if what == "default" || flavour == "static" { 1 } else { 2 };
            assert!(!places.contains(&0) && places.len() >= least, "{flavour} {what}: {:?}", found.ways);
            let timed = found.records.iter().filter(|record| record.device_time == DeviceTime::Known).count();
            assert!(timed > 0, "{flavour} {what}");
            let function = if what == "driver" || flavour == "static" { "cuMemcpy" } else { "cudaMemcpy" };
            let is_named = what == "default" || found.functions.iter().all(|name| name.starts_with(function));
            assert!(is_named, "{flavour} {what}: {:?}", found.functions);
        }
    }
}

#[test]
fn by_hand_a_part_and_a_buffer_that_goes_both_ways_are_counted() {
    let parts = by_hand("12", "parts");
    assert_eq!((parts.records.len() as u64, parts.bytes()), (COUNT, COUNT * BYTES / 2));
    assert_eq!(parts.sampled(), BTreeSet::from(["unknown"]));
    let back = by_hand("12", "back");
    assert_eq!((back.records.len() as u64, back.bytes()), (COUNT / 2, COUNT / 2 * BYTES));
}

#[test]
fn by_hand_through_pinned_memory_on_a_stream_is_counted_and_compared_if_it_was_waited_for() {
    for (what, sampled) in [("async", true), ("device", true), ("event", false)] {
        let found = by_hand("12", what);
        assert_eq!((found.records.len() as u64, found.bytes()), (COUNT, COUNT * BYTES), "{what}");
        assert_eq!(found.sampled().contains("same"), sampled, "{what}");
        assert!(!found.sampled().contains("differ"), "{what}");
    }
}

#[test]
fn by_hand_what_only_looks_so_is_not_counted() {
    for what in ["twice", "small", "loader", "offload", "checkpoint", "reused", "zeroed", "in_turn"] {
        let found = by_hand("12", what);
        assert!(found.records.is_empty() && found.ways.is_empty(), "{what}: {:?}", found.ways);
    }
}
