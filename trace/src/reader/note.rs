//! Facts other than calls in a file.

use super::{text, u16_at, u32_at};
use crate::layout::{NOTE_COMMIT, NOTE_HEADER_BYTES, NOTE_MOST, NoteKind};

/// A fact other than a call that a file tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Its kind.
    pub kind: NoteKind,
    /// The number of the thing that it is about; see [`NoteKind`].
    pub number: u32,
    /// When it was written, in ticks.
    pub time: u64,
    /// Its strings.
    pub strings: Vec<String>,
}

impl Note {
    /// One of its strings; empty if there are not so many.
    pub fn string(&self, index: usize) -> &str {
        self.strings.get(index).map_or("", String::as_str)
    }

    /// The value of a string `key=value`.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.strings.iter().find_map(|string| string.strip_prefix(key)?.strip_prefix('='))
    }
}

/// Reads the notes of a chunk up to the first that was not finished.
pub(super) fn read_notes(mut bytes: &[u8], notes: &mut Vec<Note>, unknown: &mut u64) {
    while bytes.len() >= NOTE_HEADER_BYTES {
        let length = u32_at(bytes, 0);
        let commit = u32_at(bytes, 20);
        if length == 0 && commit == 0 {
            return;
        }
        let whole = NOTE_HEADER_BYTES + (length as usize).min(NOTE_MOST + 1).next_multiple_of(8);
        let text_of = bytes.get(NOTE_HEADER_BYTES..NOTE_HEADER_BYTES.saturating_add(length as usize));
        let (Some(strings), true) = (text_of, commit == length ^ NOTE_COMMIT) else {
            *unknown += 1;
            return;
        };
        match NoteKind::numbered(u16_at(bytes, 4)) {
            Some(kind) => notes.push(Note {
                kind,
                number: u32_at(bytes, 8),
                time: u64::from(u32_at(bytes, 12)) | u64::from(u32_at(bytes, 16)) << 32,
                strings: strings.split(|&byte| byte == 0).map(text).collect(),
            }),
            None => *unknown += 1,
        }
        bytes = bytes.get(whole..).unwrap_or_default();
    }
}
