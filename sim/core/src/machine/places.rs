//! The sides of copies: what a program names, and what memory that turns out to be.

use super::{ArrayHandle, ContextId, State};
use crate::access::READ;
use crate::error::{Error, Result};
use crate::space::{Allocation, Kind, Owner};
use crate::work::{Extent, Layout};

/// The handle that a program passes for no array.
const NO_ARRAY: ArrayHandle = ArrayHandle(0);

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
    pub(super) fn unified(self) -> Locus {
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
pub(super) enum Memory {
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
    pub(super) fn on_device(self) -> Option<(usize, u64)> {
        match self {
            Memory::Device(piece) => Some((piece.device, piece.base)),
            Memory::Gone { device, address } => Some((device, address)),
            Memory::Pinned { .. } | Memory::Pageable => None,
        }
    }
}

/// A piece of device memory, as far as access to it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) device: usize,
    pub(super) owner: Owner,
    /// Start of the allocation.
    pub(super) base: u64,
}

impl Piece {
    fn of(found: &Allocation) -> Piece {
        Piece { device: found.device, owner: found.owner, base: found.base }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Side {
    pub(super) layout: Layout,
    pub(super) memory: Memory,
}

impl State {
    /// Checks one side against the memory that it names.
    pub(super) fn side(&self, place: &Place, extent: Extent) -> Result<Side> {
        match place.at {
            Locus::Array(handle) => self.array_side(handle, place, extent),
            Locus::Any(address) | Locus::Host(address) | Locus::Device(address) => {
                self.address_side(address, place, extent)
            }
        }
    }

    fn array_side(&self, handle: ArrayHandle, place: &Place, extent: Extent) -> Result<Side> {
        let missing = if handle == NO_ARRAY { Error::INVALID_VALUE } else { Error::INVALID_HANDLE };
        let array = self.arrays.get(&handle).ok_or(missing)?;
        let (pitch, rows) = (array.shape.pitch(), array.shape.height.max(1));
        let place = Place { pitch, rows, ..*place };
        let inside = place.y.checked_add(extent.height).is_some_and(|end| end <= rows);
        let (layout, span) = layout(array.storage.base, &place, extent).ok_or(Error::INVALID_VALUE)?;
        if !inside || !array.storage.holds(layout.address, span) {
            return Err(Error::INVALID_VALUE);
        }
        Ok(Side { layout, memory: Memory::Device(Piece::of(&array.storage)) })
    }

    fn address_side(&self, address: u64, place: &Place, extent: Extent) -> Result<Side> {
        if address == 0 {
            return Err(Error::INVALID_VALUE);
        }
        let (layout, span) = layout(address, place, extent).ok_or(Error::INVALID_VALUE)?;
        let memory = self.memory_at(layout.address, span)?;
        let fits = match place.at {
            Locus::Host(_) => !matches!(memory, Memory::Device(_)),
            Locus::Device(_) => memory != Memory::Pageable,
            _ => true,
        };
        if fits { Ok(Side { layout, memory }) } else { Err(Error::INVALID_VALUE) }
    }

    /// The memory at an address of the program.
    pub(super) fn memory_at(&self, address: u64, span: u64) -> Result<Memory> {
        let Some(found) = self.space.find(address) else {
            return if self.space.is_device_address(address) {
                Err(Error::INVALID_VALUE)
            } else {
                Ok(Memory::Pageable)
            };
        };
        if found.kind == Kind::Array || !found.holds(address, span) {
            return Err(Error::INVALID_VALUE);
        }
        match found.owner {
            Owner::Context(context) if found.kind.is_host() => Ok(Memory::Pinned { context }),
            Owner::Mapping if !self.rights(found).allow_any(READ) => Err(Error::INVALID_VALUE),
            _ => Ok(Memory::Device(Piece::of(found))),
        }
    }

    /// A side of a copy whose memory may be gone, and need not be of the kind that the program says.
    pub(super) fn loose_side(&self, place: &Place, extent: Extent) -> Result<Side> {
        let at = place.at.unified();
        let Locus::Any(address) = at else { return self.side(place, extent) };
        let Some(device) = self.space.gone(address) else { return self.side(&Place { at, ..*place }, extent) };
        let (layout, _) = layout(address, place, extent).ok_or(Error::INVALID_VALUE)?;
        Ok(Side { layout, memory: Memory::Gone { device, address } })
    }
}

/// Where a box starts, and the bytes from its first to its last; None if its rows or slices would overlap or wrap.
fn layout(base: u64, place: &Place, extent: Extent) -> Option<(Layout, u64)> {
    let (pitch, many_rows) = (place.pitch, extent.height > 1 || extent.depth > 1);
    let row_end = place.x.checked_add(extent.width)?;
    if (pitch != 0 || many_rows) && row_end > pitch {
        return None;
    }
    if (place.rows != 0 || extent.depth > 1) && place.y.checked_add(extent.height)? > place.rows {
        return None;
    }
    let slice = pitch.checked_mul(place.rows)?;
    let start = place.z.checked_mul(slice)?.checked_add(place.y.checked_mul(pitch)?)?.checked_add(place.x)?;
    let last_row = (extent.depth - 1).checked_mul(slice)?.checked_add((extent.height - 1).checked_mul(pitch)?)?;
    let span = last_row.checked_add(extent.width)?;
    let address = base.checked_add(start)?;
    address.checked_add(span)?;
    Some((Layout { address, pitch, slice }, span))
}
