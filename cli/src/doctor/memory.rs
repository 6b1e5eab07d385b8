//! The test of all memory: where a GPU shows others only the first part of its memory, what lies beyond is lost, and no driver
//! gives that out while less is in use.
//!
//! The memory of B is allocated in chunks, and the first and the last MiB of each are tested, until little is left.

use std::time::Instant;

use super::cuda::{Address, CudaError, Function, OUT_OF_MEMORY, Result};
use super::journal::Entry;
use super::lines::{Finding, Test};
use super::rig::Side;
use super::verify::Verification;

/// The largest chunks.
const CHUNK: usize = 1 << 30;
/// The smallest ones.
const LEAST: usize = 64 << 20;
/// Bytes that are left free, for this process's further work, and for the driver.
const SPARED: usize = 256 << 20;
/// The part that is tested at either end of a chunk.
const END: usize = 1 << 20;

/// How the test came out.
pub(super) struct Outcome {
    pub(super) finding: Finding,
    /// Memory of B at which data was wrong; it is still allocated.
    pub(super) wrong_at: Option<Address>,
}

impl From<Finding> for Outcome {
    fn from(finding: Finding) -> Self {
        Self { finding, wrong_at: None }
    }
}

/// Why memory is not to be filled of which so much is free; none if no other process uses it.
fn in_use(free: usize, total: usize) -> Option<String> {
    (free < total / 10 * 9).then(|| {
        let (free, total) = (gib(free), gib(total));
        format!("the accessed GPU has only {free} of {total} GiB free; --full is for GPUs that no other process uses")
    })
}

/// The largest chunk, up to `most`, that leaves enough of what is free; none if that is too small.
fn next_chunk(free: usize, most: usize) -> Option<usize> {
    let mut halves = std::iter::successors(Some(most), |size| Some(size / 2)).take_while(|&size| size >= LEAST);
    halves.find(|size| size + SPARED <= free)
}

/// The words for a driver that allocates no more although so much is free; none if that is little.
fn withheld(allocated: usize, free: usize, total: usize) -> Option<String> {
    (free.saturating_sub(SPARED + LEAST) > total / 20).then(|| {
        let (allocated, free) = (gib(allocated), gib(free));
        format!("right in the first {allocated} GiB; the driver allocates no more, although {free} GiB are free")
    })
}

/// One decimal; whoever has a part of it is not told of more.
fn gib(bytes: usize) -> String {
    let tenths = (bytes as u128 * 10) >> 30;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Fills the memory of B until that time, and tests what A does to it.
pub(super) fn verify(pair: &Verification<'_>, entry: &Entry, until: Instant) -> Result<Outcome> {
    let (driver, [_, b]) = (&pair.rig.driver, &pair.sides);
    let (free, total) = driver.memory(b.context)?;
    if let Some(why) = in_use(free, total) {
        return Ok(Finding::Untested(why).into());
    }
    let mut chunks = Vec::new();
    let outcome = fill(pair, entry, until, &mut chunks)?;
    // Memory that was found wrong is looked at once more.
    let is_kept = |&&(chunk, size): &&(Address, usize)| {
        outcome.wrong_at.is_some_and(|wrong| (chunk..chunk + size as u64).contains(&wrong))
    };
    let freed = chunks.iter().filter(|chunk| !is_kept(chunk)).try_for_each(|(chunk, _)| driver.free(b.context, *chunk));
    freed.map(|()| outcome)
}

fn fill(pair: &Verification<'_>, entry: &Entry, until: Instant, chunks: &mut Vec<(Address, usize)>) -> Result<Outcome> {
    let (driver, [_, b]) = (&pair.rig.driver, &pair.sides);
    let (kernel, (_, total)) = (pair.kernel()?, driver.memory(b.context)?);
    let (mut allocated, mut right, mut most) = (0, 0, CHUNK);
    while let Some(size) = next_chunk(driver.memory(b.context)?.0, most) {
        entry.begin(Test::AllMemory);
        if Instant::now() >= until {
            let said = format!("right in the first {} GiB; more takes longer than --timeout allows", gib(allocated));
            return Ok(Finding::Untested(said).into());
        }
        let chunk = match driver.allocate(b.context, size) {
            Err(CudaError { code: OUT_OF_MEMORY, .. }) => {
                most = size / 2;
                continue;
            }
            chunk => chunk?,
        };
        chunks.push((chunk, size));
        for offset in [0, size - END] {
            let place = chunk + offset as u64;
            if let Some(wrong) = wrong_at(pair, kernel, place, 800 + (allocated + offset) as u64 / END as u64)? {
                let (right, from) = (gib(right), gib(allocated + offset));
                let said =
                    format!("right in the first {right} GiB that were allocated, wrong after {from} GiB: {wrong}");
                return Ok(Outcome { finding: Finding::Wrong(said), wrong_at: Some(place) });
            }
            right = allocated + offset + END;
        }
        allocated += size;
    }
    let (free, _) = driver.memory(b.context)?;
    Ok(withheld(allocated, free, total).map_or(Finding::Right, Finding::Untested).into())
}

/// The fault of A's copies, loads and stores to a MiB of B.
pub(super) fn wrong_at(
    pair: &Verification<'_>,
    kernel: Function,
    memory: Address,
    seed: u64,
) -> Result<Option<String>> {
    let (driver, [a, b]) = (&pair.rig.driver, &pair.sides);
    let there = &Side { memory, ..*b };
    let words = END as u64 / 8;
    let by_copy = || {
        driver.enter(a.context)?;
        driver.copy(there.place(), a.place(), END, a.stream)?;
        driver.wait(a.stream)
    };
    let by_kernel = |to: &Side, from: &Side| {
        driver.enter(a.context)?;
        driver.launch(kernel, (to.memory, from.memory, words), a.stream)?;
        driver.wait(a.stream)
    };
    if let Some(wrong) = pair.trial(there, a, seed, END, by_copy)? {
        return Ok(Some(format!("{wrong} (copies)")));
    }
    if let Some(wrong) = pair.trial(there, a, seed + 331, END, || by_kernel(there, a))? {
        return Ok(Some(format!("{wrong} (kernel stores)")));
    }
    let wrong = pair.trial(a, there, seed + 662, END, || by_kernel(a, there))?;
    Ok(wrong.map(|wrong| format!("{wrong} (kernel loads)")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: usize = 1 << 30;

    #[test]
    fn in_use_is_what_another_process_holds_and_not_our_own_contexts() {
        assert_eq!(in_use(79 * GIB, 80 * GIB), None);
        assert_eq!(in_use(72 * GIB, 80 * GIB), None);
        let said = in_use(71 * GIB, 80 * GIB).unwrap();
        assert_eq!(
            said,
            "the accessed GPU has only 71.0 of 80.0 GiB free; --full is for GPUs that no other process uses"
        );
        assert!(in_use(0, 80 * GIB).is_some());
    }

    #[test]
    fn next_chunk_leaves_what_is_spared_and_ends_with_small_ones() {
        assert_eq!(next_chunk(80 * GIB, CHUNK), Some(CHUNK));
        assert_eq!(next_chunk(CHUNK + SPARED, CHUNK), Some(CHUNK));
        assert_eq!(next_chunk(CHUNK + SPARED - 1, CHUNK), Some(CHUNK / 2));
        assert_eq!(next_chunk(80 * GIB, CHUNK / 4), Some(CHUNK / 4), "more was refused");
        assert_eq!(next_chunk(LEAST + SPARED, CHUNK), Some(LEAST));
        assert_eq!(next_chunk(LEAST + SPARED - 1, CHUNK), None);
        assert_eq!(next_chunk(80 * GIB, LEAST / 2), None);
    }

    #[test]
    fn withheld_memory_is_said_and_a_remainder_is_not() {
        assert_eq!(withheld(79 * GIB, SPARED + LEAST, 80 * GIB), None);
        assert_eq!(withheld(79 * GIB, GIB, 80 * GIB), None);
        let said = withheld(GIB / 4, 79 * GIB, 80 * GIB).unwrap();
        assert_eq!(said, "right in the first 0.2 GiB; the driver allocates no more, although 79.0 GiB are free");
    }
}
