//! docs/dev/TRACE_FORMAT.md names what there is.

#![allow(clippy::unwrap_used, reason = "a test fails so")]

use p2pshim_trace::{CHUNK_BYTES, ChunkKind, Clock, HEADER_BYTES, NoteKind, Path, RECORD_BYTES, VERSION};

#[test]
fn document_each_kind_of_note_has_its_line() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/dev/TRACE_FORMAT.md");
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

/// `P2PSHIM_UPDATE=1` writes the table anew.
#[test]
fn document_has_the_table_of_paths() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/dev/TRACE_FORMAT.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (before, rest) = text.split_once("<!-- paths: -->\n").unwrap();
    let (_, after) = rest.split_once("<!-- end -->\n").unwrap();
    let mut table = "```text\n".to_owned();
    for path in Path::ALL {
        let (number, title, class) = (path.number(), path.title(), path.class().name());
        let class = if class == path.name() { String::new() } else { format!(" ({class})") };
        table += &format!("{number:>2}  {title}{class}\n");
    }
    table += "```\n";
    let generated = format!("{before}<!-- paths: -->\n{table}<!-- end -->\n{after}");
    if std::env::var_os("P2PSHIM_UPDATE").is_some() {
        std::fs::write(path, &generated).unwrap();
        return;
    }
    assert!(
        text == generated,
        "docs/dev/TRACE_FORMAT.md is out of date; run this test with P2PSHIM_UPDATE=1 and commit it"
    );
}

/// The page on the log explains each path and reason.
#[test]
fn document_of_the_log_explains_each_reason() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/LOG_LINES.md")).unwrap();
    for path in Path::ALL.iter().filter(|path| !matches!(path, Path::Unknown)) {
        let shown = match path.reason() {
            reason if path.class().is_staged() => format!("`{reason}`"),
            _ => format!("`{path}`"),
        };
        assert!(text.contains(&shown), "{shown}");
    }
}
