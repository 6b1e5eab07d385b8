//! Writing what there is to know besides calls.

use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Release;

use super::{Notes, Writer, lock};
use crate::layout::{
    CHUNK_BYTES, CHUNK_HEADER_BYTES, ChunkKind, NOTE_COMMIT, NOTE_HEADER_BYTES, NOTE_MOST, NoteKind, chunk,
};

impl Writer {
    /// Writes a note. Strings hold no zeros; what is too long is cut off. False if there is no room.
    pub fn note(&self, kind: NoteKind, number: u32, strings: &[&[u8]]) -> bool {
        let mut text = strings.join(&0);
        text.truncate(NOTE_MOST);
        let whole = NOTE_HEADER_BYTES + text.len().next_multiple_of(8);
        let time = self.now();
        self.calibrate_if_due(time);
        let mut notes = lock(&self.notes);
        if notes.left < whole {
            let Ok(Some(start)) = self.take_chunk() else { return false };
            // SAFETY: the chunk is this writer's notes' alone, and as large as that.
            unsafe {
                start.add(chunk::TIME).cast::<u64>().write(time);
                (*start.add(chunk::KIND).cast::<AtomicU32>()).store(ChunkKind::Notes.number(), Release);
                *notes = Notes { at: start.add(CHUNK_HEADER_BYTES), left: CHUNK_BYTES - CHUNK_HEADER_BYTES };
            }
        }
        let length = text.len() as u32;
        // SAFETY: there are `whole` bytes, which the lock makes ours, aligned to 8.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr(), notes.at.add(NOTE_HEADER_BYTES), text.len());
            notes.at.cast::<u32>().write(length);
            notes.at.add(4).cast::<u16>().write(kind.number());
            notes.at.add(8).cast::<u32>().write(number);
            notes.at.add(12).cast::<u32>().write(time as u32);
            notes.at.add(16).cast::<u32>().write((time >> 32) as u32);
            (*notes.at.add(20).cast::<AtomicU32>()).store(length ^ NOTE_COMMIT, Release);
            notes.at = notes.at.add(whole);
        }
        notes.left -= whole;
        true
    }
}
