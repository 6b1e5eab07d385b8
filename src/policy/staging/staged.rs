//! A copy that is staged: in steps, each of rounds of pieces.

use super::pieces::{self, Division, Piece};
use super::ring::Ring;
use crate::api::abi::CUDA_MEMCPY3D_PEER;

/// Pieces that are submitted while signals are held back, at most.
const STEP: usize = 64;
/// Launches that a ring's streams have to do, at most. A stream takes about a thousand, and then makes its callers wait.
pub(super) const QUEUED: usize = 900;

/// A copy that is to be staged. It has nothing to drop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staged {
    /// The extent, as in a 3D copy of the driver.
    pub(crate) copy: CUDA_MEMCPY3D_PEER,
    /// The part of it that is made now.
    pub(crate) step: Piece,
    /// The stream that orders it; none if the default streams of both sides' contexts do.
    pub(crate) stream: Option<usize>,
    pub(crate) per_thread: bool,
    pub(crate) ring: Ring,
    /// Bytes of a piece, and how many are under way.
    pub(crate) piece: usize,
    pub(super) slots: usize,
    /// Whether the call returns when the copy is done.
    pub(crate) blocks: bool,
}

impl Staged {
    /// The whole is made in steps of so many pieces, each a copy of its own behind the last: signals arrive between them. From now on this is
    /// that of a number; false if there is none.
    #[inline(never)]
    pub(crate) fn be_step(&mut self, number: usize) -> bool {
        let steps = Division::new(pieces::extent(&self.copy), self.piece.saturating_mul(STEP), 1);
        let is_there = number < steps.count();
        if is_there {
            self.step = steps.piece(number);
        }
        is_there
    }

    /// How many launches that takes on each of the ring's streams, at most.
    pub(super) fn launches(&self) -> usize {
        /// For a piece, and for the beginning and the end.
        const EACH: usize = 3;
        const BESIDE: usize = 4;
        self.division().count() * EACH + BESIDE
    }

    /// Its parts.
    pub(crate) fn division(&self) -> Division {
        Division::new(self.step.extent, self.piece, self.slots)
    }

    /// The halves of a part's copy: into its slot, and out of it.
    pub(crate) fn filling(&self, piece: &Piece) -> CUDA_MEMCPY3D_PEER {
        pieces::to_host(&self.copy, &piece.within(&self.step), self.slot(piece))
    }

    pub(crate) fn draining(&self, piece: &Piece) -> CUDA_MEMCPY3D_PEER {
        pieces::from_host(&self.copy, &piece.within(&self.step), self.slot(piece))
    }

    fn slot(&self, piece: &Piece) -> usize {
        self.ring.host.address + piece.slot * self.piece
    }
}
