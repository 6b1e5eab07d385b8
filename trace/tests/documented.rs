//! docs/TRACE_FORMAT.md names what there is.

#![allow(clippy::unwrap_used, reason = "a test fails so")]

use p2pshim_trace::{CHUNK_BYTES, ChunkKind, Clock, HEADER_BYTES, NoteKind, RECORD_BYTES, VERSION};

#[test]
fn document_each_kind_of_note_has_its_line() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/TRACE_FORMAT.md");
    let text = std::fs::read_to_string(path).unwrap();
    let kinds: Vec<NoteKind> = (0..=u16::MAX).filter_map(NoteKind::numbered).collect();
    for kind in &kinds {
        let line = format!("\n| {} | {kind:?} | ", kind.number());
        assert!(text.contains(&line), "{line}");
    }
    let lines = text.split("| kind | name |").nth(1).unwrap().lines().skip(2).take_while(|line| line.starts_with('|'));
    assert_eq!(lines.count(), kinds.len(), "and no other");
    let (major, minor) = VERSION;
    for part in [
        format!("version {major}.{minor} of the format"),
        format!("bytes of the header: {HEADER_BYTES}"),
        format!("bytes of a chunk: {CHUNK_BYTES}"),
        format!("bytes of a record: {RECORD_BYTES}"),
        format!("{} `CLOCK_MONOTONIC` in nanoseconds", Clock::Monotonic.number()),
        format!("{} calls, {} notes", ChunkKind::Calls.number(), ChunkKind::Notes.number()),
    ] {
        assert!(text.contains(&part), "{part}");
    }
}

/// A byte with two meanings.
#[test]
fn document_says_what_byte_62_of_a_call_of_the_program_is() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/TRACE_FORMAT.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| 62 | 1 |")).collect();
    assert_eq!(rows.len(), 1);
    for part in ["how many records of the thread before", "If the program did: the number, plus 1, of the function"] {
        assert!(rows[0].contains(part), "{part}: {rows:?}");
    }
    assert!(text.contains("1.0 had no byte 62 for calls of the program"), "who reads files of both has to know");
}
