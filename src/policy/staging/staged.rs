//! A copy that is staged: in steps, each of rounds of pieces.

use super::pieces::{self, Piece, SLOTS};
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
    /// The stream that orders it; none if the default streams of both sides' contexts do.
    pub(crate) stream: Option<usize>,
    pub(crate) per_thread: bool,
    pub(crate) ring: Ring,
    /// Bytes of a piece.
    pub(crate) piece: usize,
    /// Whether the ring's last copy was of other pieces, and so used its memory otherwise.
    pub(crate) is_divided_anew: bool,
    /// Whether the call returns when the copy is done.
    pub(crate) blocks: bool,
}

impl Staged {
    /// It in steps of so many pieces, each a copy of its own behind the last: signals arrive between them.
    pub(crate) fn steps(&self) -> impl Iterator<Item = CUDA_MEMCPY3D_PEER> {
        let (whole, CUDA_MEMCPY3D_PEER { WidthInBytes, Height, Depth, .. }) = (self.copy, self.copy);
        let steps = pieces::rounds([WidthInBytes, Height, Depth], self.piece.saturating_mul(STEP), 1);
        steps.flatten().map(move |step| pieces::part(&whole, &step))
    }

    /// How many launches that takes on each of the ring's streams, at most.
    pub(super) fn launches(&self) -> usize {
        /// For a piece, and for the beginning and the end.
        const EACH: usize = 3;
        const BESIDE: usize = 4;
        self.rounds().flatten().count() * EACH + BESIDE
    }

    /// Its parts, in order, as many at a time as there are slots.
    pub(crate) fn rounds(&self) -> impl Iterator<Item = impl Iterator<Item = Piece> + Clone> {
        let CUDA_MEMCPY3D_PEER { WidthInBytes, Height, Depth, .. } = self.copy;
        let slots = (self.ring.host.bytes / self.piece).clamp(1, SLOTS);
        pieces::rounds([WidthInBytes, Height, Depth], self.piece, slots)
    }

    /// Both halves of a part's copy: into its slot, and out of it.
    pub(crate) fn halves(&self, piece: &Piece) -> [CUDA_MEMCPY3D_PEER; 2] {
        pieces::halves(&self.copy, piece, self.ring.host.address + piece.slot * self.piece)
    }
}
