//! Copies as programs ask for them, and as they are once their sides are known.

use std::mem::discriminant;

use crate::ids::{ArrayHandle, ContextId};
use crate::space::{Allocation, Owner};
use crate::work::{Extent, Layout};

/// The start of a side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locus {
    /// An address, whatever it belongs to.
    Any(u64),
    /// An address of host memory.
    Host(u64),
    /// An address that the machine knows: device memory or pinned host memory.
    Device(u64),
    /// An array.
    Array(ArrayHandle),
}

impl Locus {
    /// The place, of whatever memory the program has said that it is.
    pub(crate) fn unified(self) -> Locus {
        match self {
            Locus::Any(address) | Locus::Host(address) | Locus::Device(address) => Locus::Any(address),
            Locus::Array(_) => self,
        }
    }
}

/// One side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where it starts.
    pub at: Locus,
    /// Bytes from row to row; ignored for arrays.
    pub pitch: u64,
    /// Rows from slice to slice; ignored for arrays.
    pub rows: u64,
    /// Offset in bytes.
    pub x: u64,
    /// Offset in rows.
    pub y: u64,
    /// Offset in slices.
    pub z: u64,
}

impl Place {
    /// A side of a copy of one row.
    pub fn linear(at: Locus) -> Place {
        Place { at, pitch: 0, rows: 0, x: 0, y: 0, z: 0 }
    }
}

/// The memory that a side of a copy turned out to be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Device(Piece),
    Pinned {
        context: ContextId,
    },
    Pageable,
    /// An address of a device at which nothing is any more, which nodes of graphs accept. Nobody ever goes there.
    Gone {
        device: usize,
        address: u64,
    },
}

impl Memory {
    /// The device that it is, or was, of; and the start of the allocation.
    pub(crate) fn on_device(self) -> Option<(usize, u64)> {
        match self {
            Memory::Device(piece) => Some((piece.device, piece.base)),
            Memory::Gone { device, address } => Some((device, address)),
            Memory::Pinned { .. } | Memory::Pageable => None,
        }
    }
}

/// A piece of device memory, as far as access to it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) device: usize,
    pub(crate) owner: Owner,
    /// Start of the allocation.
    pub(crate) base: u64,
}

impl Piece {
    pub(crate) fn of(found: &Allocation) -> Piece {
        Piece { device: found.device, owner: found.owner, base: found.base }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) layout: Layout,
    pub(crate) memory: Memory,
}

/// A copy that a program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The destination.
    pub dst: Place,
    /// The source.
    pub src: Place,
    /// How much.
    pub extent: Extent,
}

/// A copy that has been checked, but not yet sent on its way.
#[derive(Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) dst: Side,
    pub(crate) src: Side,
    pub(crate) extent: Extent,
    /// The copy that the program asked for.
    pub(crate) request: Request,
    /// The contexts that a peer copy names for source and destination.
    pub(crate) named: [Option<ContextId>; 2],
}

impl Transfer {
    /// The memories of source and destination.
    pub(crate) fn memories(&self) -> [Memory; 2] {
        [self.src.memory, self.dst.memory]
    }

    /// The memories of source and destination, each with the context that a peer copy names for it.
    pub(crate) fn sides(&self) -> [(Memory, Option<ContextId>); 2] {
        let [src, dst] = self.named;
        [(self.src.memory, src), (self.dst.memory, dst)]
    }

    /// The copy that the program asked for.
    pub(crate) fn request(&self) -> Request {
        self.request
    }

    /// Whether an array takes part.
    pub(crate) fn has_array(&self) -> bool {
        [self.request.src, self.request.dst].iter().any(|place| matches!(place.at, Locus::Array(_)))
    }

    /// Whether it and another copy are said to be between the same kinds of memory.
    pub(crate) fn is_named_like(&self, other: &Transfer) -> bool {
        let kinds = |request: Request| [request.src, request.dst].map(|place| discriminant(&place.at));
        kinds(self.request) == kinds(other.request)
    }

    /// Whether it copies one row, if at all.
    pub(crate) fn is_one_row(&self) -> bool {
        self.extent.is_one_row()
    }

    /// The addresses that it starts to read and to write at.
    pub(crate) fn addresses(&self) -> [u64; 2] {
        [self.src.layout.address, self.dst.layout.address]
    }

    /// The copy, said to be between addresses of whatever memory, as was measured of the copies that captures take.
    pub(crate) fn unified(mut self) -> Transfer {
        for place in [&mut self.request.dst, &mut self.request.src] {
            place.at = place.at.unified();
        }
        self
    }
}
