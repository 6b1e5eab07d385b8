//! Which chunks of a file there is space for, where they are mapped, and how many of them threads have.

use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicPtr, AtomicU64};

use crate::layout::CHUNK_BYTES;

/// Chunks that space is taken for at a time. The space is brought into memory, which would cost every 64th call a
/// microsecond or two otherwise.
pub(super) const STEP: u64 = 32;
/// Chunks that are mapped at a time, 8 MiB: the limit of a file costs no address space, which `ulimit -v` may bound, and the
/// largest file takes few of the mappings that a process may have. Whole steps.
pub(super) const REGION: u64 = 16 * STEP;

#[derive(Debug)]
pub(super) struct Room {
    /// Where chunks are mapped, `REGION` at a time: not null for those that the first `ready` lie in.
    regions: Box<[AtomicPtr<u8>]>,
    /// How many chunks there is space for.
    ready: AtomicU64,
    /// How many chunks the file can have.
    pub(super) most: u64,
}

impl Room {
    pub(super) fn new(most: u64) -> Option<Self> {
        let regions = usize::try_from(most.div_ceil(REGION)).ok()?;
        let regions = (0..regions).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Some(Self { regions, ready: AtomicU64::new(0), most })
    }

    /// Takes a chunk that there is space for. It counts as handed out only then: in a process that ends meanwhile it would seem to have
    /// been cut off.
    pub(super) fn take(&self, handed_out: &AtomicU64) -> Option<*mut u8> {
        let ready = self.ready.load(Acquire);
        let taken = handed_out.fetch_update(SeqCst, Relaxed, |taken| (taken < ready).then_some(taken + 1));
        self.chunk(taken.ok()?)
    }

    /// Where a chunk is, if it is mapped.
    pub(super) fn chunk(&self, number: u64) -> Option<*mut u8> {
        let region = self.regions.get((number / REGION) as usize)?.load(Acquire);
        (!region.is_null()).then(|| region.wrapping_add((number % REGION) as usize * CHUNK_BYTES))
    }

    /// How many chunks there is space for.
    pub(super) fn ready(&self) -> u64 {
        self.ready.load(Relaxed)
    }

    /// Notes where the chunks are mapped among which this one is.
    pub(super) fn map(&self, number: u64, start: *mut u8) {
        if let Some(region) = self.regions.get((number / REGION) as usize) {
            region.store(start, Release);
        }
    }

    /// Lets threads take the first so many chunks.
    pub(super) fn open(&self, ready: u64) {
        self.ready.store(ready, Release);
    }
}
