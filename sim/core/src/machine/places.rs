//! The sides of copies: what memory a program names.

use super::{ArrayHandle, State};
use crate::access::READ;
use crate::error::{Error, Result};
use crate::space::{Kind, Owner};
use crate::transfer::{Locus, Memory, Piece, Place, Side};
use crate::work::{Extent, Layout};

/// The handle that a program passes for no array.
const NO_ARRAY: ArrayHandle = ArrayHandle(0);

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
