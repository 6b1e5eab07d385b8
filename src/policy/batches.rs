//! Batches on streams that are being captured into a graph.
//!
//! CUDA has captured them since 13.5, as one node. From 12.8 to 13.4 it refuses them with 900 and, users report, leaves the capture as it
//! is: a program that does not look gets a graph without the copies. So the copies of a batch that was refused become copies of their
//! own, one after the other, all or none.
//!
//! A copy of pageable memory would read it when the graph runs, and one whose source has to be read during the call would too: these
//! are left out, and a finding says that they are missing.

use super::capture::{self, Replacement};
use super::driver::{Driver, Holder};
use super::staging::as_row;
use crate::api::abi::CUDA_MEMCPY3D_PEER;
use crate::model::Memcpy;
use crate::os::alloc;

/// Why a batch that CUDA has refused to capture is missing from the graph.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Missing(pub(crate) &'static str);

impl Missing {
    pub(crate) const LOST: &Self = &Self("the capture is lost");
    const FORWARDED: &Self = &Self("P2PSHIM_CAPTURE=forward");
    const ORDER: &Self =
        &Self("p2pshim can capture only copies whose sources may be read in the stream's order, and no arrays");
    const MEMORY: &Self = &Self("p2pshim can capture only copies of memory of devices and of pinned memory");
    pub(crate) const REFUSED: &Self = &Self("CUDA cannot capture the copies one by one");
}

/// Copies to be made in place of a batch, or why none are: `copies` are its copies, as calls of their own ask for them, if they may be made
/// by such; `on` is the stream, which is each thread's own default stream if it is none and the second says so.
pub(crate) fn capturable(
    driver: &impl Driver,
    copies: Option<&[CUDA_MEMCPY3D_PEER]>,
    on: (usize, bool),
) -> Result<Vec<Replacement>, &'static Missing> {
    if !capture::rewrites() {
        return Err(Missing::FORWARDED);
    }
    let copies = copies.ok_or(Missing::ORDER)?;
    let all = alloc::collect_all(copies.iter().map(|parameters| alone(driver, parameters, on)));
    all.ok_or(Missing::MEMORY)
}

/// A copy as a call of its own, if all of its memory is such as CUDA reads and writes when a graph runs.
fn alone(
    driver: &impl Driver,
    parameters: &CUDA_MEMCPY3D_PEER,
    (stream, per_thread): (usize, bool),
) -> Option<Replacement> {
    let copy = Memcpy::of_driver(parameters, Some(stream)).regular();
    let is_whole = |(address, bytes): (u64, u64)| {
        let Some(memory) = driver.memory(address) else { return false };
        let (start, size) = memory.range;
        let end = address.checked_sub(start).and_then(|offset| offset.checked_add(bytes));
        // The driver need not say where pinned memory ends, or memory that the program maps piece by piece.
        size == 0 || memory.holder == Holder::Mapped || end.is_some_and(|end| end <= size)
    };
    if ![copy.src, copy.dst].into_iter().zip(copy.reach()?).all(is_whole) {
        return None;
    }
    Some(match as_row(parameters) {
        Some((dst, src, bytes)) => Replacement { dst, src, bytes: bytes as u64, stream, parameters: None, per_thread },
        None => {
            let Memcpy { dst, src, bytes, .. } = copy;
            Replacement { dst, src, bytes, stream, parameters: Some(*parameters), per_thread }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::access::fake::{Fake, memory_of};
    use crate::policy::staging::linear;

    const STREAM: (usize, bool) = (5, true);

    #[test]
    fn capturable_all_or_none() {
        let fake = Fake::new();
        let [near, far] = [0, 1].map(memory_of);
        let good = [linear(near, far, 8), linear(far, near, 16)];
        let copies = capturable(&fake, Some(&good), STREAM).unwrap();
        let expected = |dst, src, bytes| Replacement { dst, src, bytes, stream: 5, parameters: None, per_thread: true };
        assert_eq!(copies, [expected(far, near, 8), expected(near, far, 16)]);
        // Pageable memory, and more than there is.
        for bad in [linear(0x10, far, 8), linear(near, 0x10, 8), linear(near, far, usize::MAX / 2)] {
            assert_eq!(capturable(&fake, Some(&[linear(near, far, 8), bad]), STREAM), Err(Missing::MEMORY));
        }
        assert_eq!(capturable(&fake, None, STREAM), Err(Missing::ORDER));
    }
}
