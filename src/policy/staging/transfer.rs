//! A copy on its way through a ring: in steps, each of rounds of chunks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::chunks::{self, Chunk, Division};
use super::ring::{Ring, SAMPLED};
use crate::api::abi::CUDA_MEMCPY3D_PEER;

/// Chunks that are submitted while signals are held back, at most.
const STEP: usize = 64;
/// Launches that a ring's streams have to do, at most. A stream takes about a thousand, and then makes its callers wait.
pub(super) const QUEUED: usize = 900;

/// The fate of a chunk that lies in a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// It is copied to the destination: the copy is staged.
    Stage,
    /// It is compared with the same chunk of the destination, which lies half a ring behind: the copy is read back.
    Compare,
    /// So are these chunks, and no others.
    Sample([usize; 3]),
}

/// A copy that is to be staged or read back. It has nothing to drop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    /// The extent, as in a 3D copy of the driver.
    pub(super) copy: CUDA_MEMCPY3D_PEER,
    pub(super) purpose: Purpose,
    /// The step of it that is submitted next.
    pub(super) step: Chunk,
    /// The stream that orders it; none if the default streams of both sides' contexts do.
    pub(crate) stream: Option<usize>,
    pub(crate) per_thread: bool,
    pub(crate) ring: Ring,
    /// Bytes of a chunk, and how many are under way.
    pub(crate) chunk: usize,
    pub(super) slots: usize,
    /// Whether the call returns when the copy is done.
    pub(crate) blocks: bool,
    /// From where to where it goes, if it is staged.
    pub(super) endpoints: EndpointRanges,
}

/// The memory of both endpoints of a copy: its first address, and the address behind it. The source's comes first.
pub(super) type EndpointRanges = [(u64, u64); 2];

impl Transfer {
    /// A transfer of a whole copy, in chunks of so many bytes, of which so many are under way.
    pub(super) fn new(
        copy: CUDA_MEMCPY3D_PEER,
        purpose: Purpose,
        (ring, stream, per_thread): (Ring, Option<usize>, bool),
        (chunk, slots): (usize, usize),
    ) -> Self {
        let step = Chunk { at: [0; 3], extent: chunks::extent(&copy), slot: 0 };
        let mut new =
            Self { copy, purpose, step, stream, per_thread, ring, chunk, slots, blocks: false, endpoints: [(0, 0); 2] };
        new.be_step(0);
        new
    }

    /// The whole is made in steps, each a copy of its own behind the last: signals arrive between those of a copy that is staged, and what
    /// is read back is compared. Selects step `number`; false past the last.
    #[inline(never)]
    pub(crate) fn be_step(&mut self, number: usize) -> bool {
        let chunks = match self.purpose {
            Purpose::Stage => STEP,
            Purpose::Compare => 1,
            Purpose::Sample(_) => return number == 0,
        };
        let steps = Division::new(chunks::extent(&self.copy), self.chunk.saturating_mul(chunks), 1);
        let is_there = number < steps.count();
        if is_there {
            self.step = steps.chunk(number);
        }
        is_there
    }

    /// How many launches that takes on each of the ring's streams, at most.
    pub(super) fn launches(&self) -> usize {
        /// For a chunk, and for the beginning and the end.
        const EACH: usize = 3;
        const BESIDE: usize = 4;
        self.division().count() * EACH + BESIDE
    }

    /// The chunks of the step.
    pub(crate) fn division(&self) -> Division {
        let chosen = if let Purpose::Sample(chosen) = self.purpose { Some(chosen) } else { None };
        Division::new(self.step.extent, self.chunk, self.slots).only(chosen)
    }

    /// The halves of a chunk's copy: into its slot, and out of it, or to where it is compared.
    pub(crate) fn filling(&self, chunk: &Chunk) -> CUDA_MEMCPY3D_PEER {
        chunks::to_host(&self.copy, &chunk.within(&self.step), self.ring.host.address + self.slot(chunk))
    }

    pub(crate) fn draining(&self, chunk: &Chunk) -> CUDA_MEMCPY3D_PEER {
        let (chunk, host) = (chunk.within(&self.step), self.ring.host.address + self.slot(chunk));
        match self.purpose {
            Purpose::Stage => chunks::from_host(&self.copy, &chunk, host),
            _ => chunks::to_host(&chunks::reversed(&self.copy), &chunk, host + self.side()),
        }
    }

    /// Where a chunk lies in the ring's memory.
    fn slot(&self, chunk: &Chunk) -> usize {
        chunk.slot * self.chunk
    }

    /// The bytes of either side that are compared, at most.
    fn side(&self) -> usize {
        self.ring.host.bytes / 2
    }

    /// How source and destination differ, as both lie in the ring's memory.
    pub(crate) fn difference(&self, memory: &[u8]) -> Option<Difference> {
        let division = self.division();
        let (mut found, mut of): (Option<Difference>, _) = (None, 0);
        for chunk in (0..division.count()).map(|number| division.chunk(number)) {
            let [width, height, _] = chunk.extent;
            let side = |begins| memory.get(begins..)?.get(..chunk.bytes());
            let (src, dst) = (side(self.slot(&chunk))?, side(self.slot(&chunk) + self.side())?);
            of += chunk.bytes();
            let is_equal = src == dst;
            let differ = src.iter().zip(dst).enumerate().filter(|(_, (src, dst))| !is_equal && src != dst);
            for (offset, (&src, &dst)) in differ {
                let at = [offset % width, offset / width % height, offset / width / height];
                let first = Chunk { at, ..chunk }.within(&chunk).within(&self.step).at;
                let new = Difference { at: first, bytes: [src, dst], differ: 0, of: 0, is_zero: true };
                let found = found.get_or_insert(new);
                (found.differ, found.is_zero) = (found.differ + 1, found.is_zero && dst == 0);
            }
        }
        found.map(|found| Difference { of, ..found })
    }
}

/// How source and destination differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Where they first do: byte of a row, row, and slice of the copy.
    pub(crate) at: [usize; 3],
    /// The source's byte there, and the destination's.
    pub(crate) bytes: [u8; 2],
    /// How many bytes differ, of how many that were read back.
    pub(crate) differ: usize,
    pub(crate) of: usize,
    /// Whether all of these are zero in the destination.
    pub(crate) is_zero: bool,
}

/// Which chunks of a copy are a sample: the first, the last, and one between that is another each time.
pub(super) fn sample(copy: &CUDA_MEMCPY3D_PEER) -> Purpose {
    let count = Division::new(chunks::extent(copy), SAMPLED, 1).count();
    Purpose::Sample(if count > 3 { [0, 1 + below(count - 2), count - 1] } else { [0, 1, 2] })
}

/// Another number below this one each time (SplitMix64).
fn below(end: usize) -> usize {
    static STATE: AtomicU64 = AtomicU64::new(0);
    let state = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
    let word = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ word >> 31) as usize % end
}

#[cfg(test)]
impl Transfer {
    /// A transfer of a sample of rows, in a ring that is nobody's.
    pub(crate) fn of_test(width: usize, height: usize, depth: usize) -> Self {
        use super::ring::{Host, SAMPLES};
        let copy = CUDA_MEMCPY3D_PEER { Height: height, Depth: depth, ..chunks::linear(0, 1 << 40, width) };
        let host = Host { address: 0, bytes: SAMPLES, locked_in: Host::UNLOCKED };
        let ring = Ring::empty([(0, 0); 3], host);
        Self::new(copy, sample(&copy), (ring, Some(0), false), (SAMPLED, super::links::SLOTS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENTS: [[usize; 3]; 9] = [
        [1, 1, 1],
        [3 * SAMPLED, 1, 1],
        [4 * SAMPLED + 5, 1, 1],
        [SAMPLED, 3, 1],
        [2 * SAMPLED + 1, 2, 5],
        [7, 9, 3],
        [100, 1000, 2],
        [1000, 3, 900],
        [1, SAMPLED + 1, 1],
    ];

    fn chunks_of(transfer: &Transfer) -> Vec<Chunk> {
        let division = transfer.division();
        (0..division.count()).map(|number| division.chunk(number)).collect()
    }

    #[test]
    fn sample_is_the_beginning_the_end_and_a_part_between() {
        for extent @ [width, height, depth] in EXTENTS {
            let mut between = Vec::new();
            for _ in 0..100 {
                let chunks = chunks_of(&Transfer::of_test(width, height, depth));
                let (first, last) = (chunks[0], chunks[chunks.len() - 1]);
                let end = [0, 1, 2].map(|axis| last.at[axis] + last.extent[axis]);
                assert_eq!((first.at, end), ([0; 3], extent));
                assert!(chunks.len() <= 3 && chunks.iter().all(|chunk| chunk.bytes() <= SAMPLED), "{extent:?}");
                assert!(chunks.iter().enumerate().all(|(slot, chunk)| chunk.slot == slot), "{extent:?}");
                let mut places: Vec<_> = chunks.iter().map(|chunk| chunk.at).collect();
                places.dedup();
                assert_eq!(places.len(), chunks.len(), "no byte twice: {extent:?}");
                between.extend(chunks.get(1).filter(|_| chunks.len() == 3).map(|chunk| chunk.at));
            }
            let size: usize = extent.iter().product();
            between.sort_unstable();
            between.dedup();
            assert!(between.len() >= (size / SAMPLED).saturating_sub(2).min(10), "{extent:?} {between:?}");
        }
    }

    /// The first and the last are not one byte.
    #[test]
    fn pieces_of_a_sample_of_one_row_are_alike() {
        let chunks = chunks_of(&Transfer::of_test(2 * SAMPLED + 1, 1, 1));
        assert!(chunks.len() == 3 && chunks.iter().all(|chunk| chunk.bytes() > SAMPLED / 2), "{chunks:?}");
    }

    #[test]
    fn all_of_a_copy_is_compared_in_turns() {
        for extent @ [width, height, depth] in EXTENTS {
            for chunk in [1, 64, 1000, 1 << 20] {
                let mut turn =
                    Transfer { purpose: Purpose::Compare, chunk, slots: 1, ..Transfer::of_test(width, height, depth) };
                let (mut bytes, mut number) = (0, 0);
                while turn.be_step(number) {
                    let chunks = chunks_of(&turn);
                    assert!(chunks.len() == 1 && chunks[0].bytes() <= chunk, "{extent:?} {chunk}");
                    (bytes, number) = (bytes + chunks[0].bytes(), number + 1);
                }
                assert_eq!(bytes, extent.iter().product::<usize>(), "{extent:?} {chunk}");
            }
        }
    }

    #[test]
    fn difference_says_where_in_the_copy_it_begins() {
        let transfer = Transfer::of_test(100_000, 1, 1);
        let (side, last) = (transfer.side(), chunks_of(&transfer)[2]);
        let mut memory = vec![0; transfer.ring.host.bytes];
        assert_eq!(transfer.difference(&memory), None);
        (memory[2 * SAMPLED + 6], memory[2 * SAMPLED + 9]) = (7, 8);
        let of = chunks_of(&transfer).iter().map(Chunk::bytes).sum();
        let found = Difference { at: [last.at[0] + 6, 0, 0], bytes: [7, 0], differ: 2, of, is_zero: true };
        assert_eq!(transfer.difference(&memory), Some(found));
        memory[side + 2 * SAMPLED + 9] = 1;
        assert_eq!(transfer.difference(&memory), Some(Difference { is_zero: false, ..found }));
        memory[side + 3 * SAMPLED] = 1;
        assert_eq!(transfer.difference(&memory), Some(Difference { is_zero: false, ..found }), "behind the chunks");
        let rows = Transfer::of_test(10, 4, 300);
        let mut memory = vec![0; rows.ring.host.bytes];
        memory[side + 102] = 3;
        let found = rows.difference(&memory).unwrap();
        assert_eq!((found.at, found.bytes, found.is_zero), ([2, 2, 2], [0, 3], false));
    }
}
