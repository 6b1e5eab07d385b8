//! Threads that end leave the rest of their chunks, and threads that begin continue there.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize};

use super::Writer;
use super::segment::{Segment, Stretch};
use crate::layout::{CHUNK_BYTES, RECORD_BYTES, chunk};

/// More threads than this that end, before others begin, leave the rest unused.
const MOST: usize = 4096;

/// Space for headers and records, as [`Segment`] has it in a word. Nobody waits for anybody: a thread that ends may be interrupted by a
/// signal handler that begins.
#[derive(Debug)]
pub(super) struct Left {
    words: Box<[AtomicU64]>,
    /// No word behind these was ever used.
    reached: AtomicUsize,
}

impl Left {
    pub(super) fn new() -> Self {
        Self { words: (0..MOST).map(|_| AtomicU64::new(0)).collect(), reached: AtomicUsize::new(0) }
    }

    fn put(&self, left: u64) {
        let is_put =
            |word: &AtomicU64| word.load(Relaxed) == 0 && word.compare_exchange(0, left, Release, Relaxed).is_ok();
        if let Some(at) = self.words.iter().position(is_put) {
            self.reached.fetch_max(at + 1, Relaxed);
        }
    }

    fn take(&self) -> Option<u64> {
        let taken =
            |word: &AtomicU64| Some(word).filter(|word| word.load(Relaxed) != 0).map(|word| word.swap(0, Acquire));
        self.words.iter().take(self.reached.load(Relaxed)).filter_map(taken).find(|&left| left != 0)
    }
}

impl Writer {
    /// Takes back what a thread that ends leaves of its chunk. If it makes more calls after all, it is as one that begins.
    pub fn take_back(&self, segment: &Segment) {
        if let Some(left) = segment.leave() {
            self.left.put(left);
        }
    }

    /// Takes the rest of a chunk that another thread has left. The caller fills the header at its start.
    pub(super) fn take_left(&self) -> Option<Stretch> {
        Stretch::of(self.left.take()?)
    }
}

impl Segment {
    /// The thread ends: the word, if it leaves room for a header and a record. It has had no chunk from now on.
    fn leave(&self) -> Option<u64> {
        let word = self.next.swap(0, Relaxed);
        self.room.fetch_sub(Self::left(word), Relaxed);
        self.chunks.set(0);
        (Self::left(word) > 1).then_some(word)
    }
}

impl Stretch {
    /// Has readers find its header, which is filled by now, unless a chunk begins with it.
    pub(super) fn link(self) {
        let bytes = (self.records as usize + 1) * RECORD_BYTES;
        let Some(mut further) = CHUNK_BYTES.checked_sub(bytes).map(|at| at / RECORD_BYTES).filter(|&at| at > 0) else {
            return;
        };
        let mut header = self.start.wrapping_sub(further * RECORD_BYTES);
        loop {
            // SAFETY: a header of this chunk, which stays mapped; these bytes are never anything but an atomic.
            let next: &AtomicU16 = unsafe { &*header.add(chunk::NEXT).cast() };
            match usize::from(next.load(Relaxed)) {
                0 => return next.store(further as u16, Release),
                // Each is behind the one before; only a file that others write to has another word.
                step => match further.checked_sub(step).filter(|&left| left > 0) {
                    Some(left) => (header, further) = (header.wrapping_add(step * RECORD_BYTES), left),
                    None => return,
                },
            }
        }
    }
}
