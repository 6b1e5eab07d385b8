//! The chunks of a staged copy. Each fits into a slot of the ring. A chunk is whole rows and slices where these fit.

use std::ops::Range;

use super::links::Share;
use crate::api::abi::{CUDA_MEMCPY3D_PEER, MEMORYTYPE_HOST, MEMORYTYPE_UNIFIED, cudaMemcpy3DPeerParms, is_pointer};
use crate::model::{Memcpy, Shape};

/// The width of chunks that are less than a row is a multiple of this, except the last; of small chunks, of a 32nd of the chunk.
const ALIGNMENT: usize = 64 << 10;

/// A chunk of a copy: bytes of a row, rows, and slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) at: [usize; 3],
    pub(crate) extent: [usize; 3],
    pub(crate) slot: usize,
}

impl Chunk {
    pub(super) fn bytes(&self) -> usize {
        self.extent.into_iter().product()
    }

    /// Translates the chunk's coordinates within a step into the copy's.
    pub(super) fn within(&self, step: &Self) -> Self {
        let ([x, y, z], [left, top, front]) = (self.at, step.at);
        Self { at: [x + left, y + top, z + front], ..*self }
    }
}

/// Bytes of a row, rows and slices.
pub(super) const fn extent(copy: &CUDA_MEMCPY3D_PEER) -> [usize; 3] {
    [copy.WidthInBytes, copy.Height, copy.Depth]
}

/// How a copy is divided. Small chunks begin to arrive sooner; of large ones fewer fill the queue of a stream, which takes about a
/// thousand (measured on H200 and H100, docs/dev/decisions/staging.md).
pub(super) fn size(bytes: u64, share: Share) -> usize {
    let chunk = match bytes >> 20 {
        0..64 => 2 << 20,
        64..256 => 4 << 20,
        _ => 10 << 20,
    };
    chunk.min(share.chunk)
}

/// A copy as a 3D copy of the driver, which names addresses or arrays; none if it is not known, or cannot be divided.
pub(super) fn parameters(copy: &Memcpy<'_>) -> Option<CUDA_MEMCPY3D_PEER> {
    match copy.shape {
        Shape::Linear => Some(linear(copy.src, copy.dst, usize::try_from(copy.bytes).ok()?)),
        Shape::Runtime3D(p) if copy.has_ends() && copy.reach().is_some() => Some(pitched(p)),
        // A copy of addresses that the driver refuses is left to it.
        Shape::Driver3D(p) if copy.has_ends() && (copy.reach().is_some() || !copy.has_addresses()) => {
            (p.srcLOD == 0 && p.dstLOD == 0).then_some(CUDA_MEMCPY3D_PEER { srcContext: 0, dstContext: 0, ..*p })
        }
        _ => None,
    }
}

/// So many bytes from one address to another.
pub(crate) const fn linear(src: u64, dst: u64, bytes: usize) -> CUDA_MEMCPY3D_PEER {
    CUDA_MEMCPY3D_PEER {
        srcMemoryType: MEMORYTYPE_UNIFIED,
        srcDevice: src,
        dstMemoryType: MEMORYTYPE_UNIFIED,
        dstDevice: dst,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D_PEER::ZERO
    }
}

/// A 3D copy of the runtime between addresses.
const fn pitched(p: &cudaMemcpy3DPeerParms) -> CUDA_MEMCPY3D_PEER {
    CUDA_MEMCPY3D_PEER {
        srcXInBytes: p.srcPos.x,
        srcY: p.srcPos.y,
        srcZ: p.srcPos.z,
        srcPitch: p.srcPtr.pitch,
        srcHeight: p.srcPtr.ysize,
        dstXInBytes: p.dstPos.x,
        dstY: p.dstPos.y,
        dstZ: p.dstPos.z,
        dstPitch: p.dstPtr.pitch,
        dstHeight: p.dstPtr.ysize,
        Height: p.extent.height,
        Depth: p.extent.depth,
        ..linear(p.srcPtr.ptr as u64, p.dstPtr.ptr as u64, p.extent.width)
    }
}

/// The copy in the other direction.
pub(super) const fn reversed(p: &CUDA_MEMCPY3D_PEER) -> CUDA_MEMCPY3D_PEER {
    CUDA_MEMCPY3D_PEER {
        srcXInBytes: p.dstXInBytes,
        srcY: p.dstY,
        srcZ: p.dstZ,
        srcLOD: p.dstLOD,
        srcMemoryType: p.dstMemoryType,
        srcHost: p.dstHost,
        srcDevice: p.dstDevice,
        srcArray: p.dstArray,
        srcContext: p.dstContext,
        srcPitch: p.dstPitch,
        srcHeight: p.dstHeight,
        dstXInBytes: p.srcXInBytes,
        dstY: p.srcY,
        dstZ: p.srcZ,
        dstLOD: p.srcLOD,
        dstMemoryType: p.srcMemoryType,
        dstHost: p.srcHost,
        dstDevice: p.srcDevice,
        dstArray: p.srcArray,
        dstContext: p.srcContext,
        dstPitch: p.srcPitch,
        dstHeight: p.srcHeight,
        ..*p
    }
}

/// How a copy is divided.
pub(crate) struct Division {
    /// Bytes of a row, rows and slices: of the whole copy, and of a chunk at most.
    whole: [usize; 3],
    most: [usize; 3],
    slots: usize,
    /// The numbers of the chunks that are copied, if not all are.
    chosen: Option<[usize; 3]>,
}

impl Division {
    /// Into chunks of at most `chunk` bytes, which use so many slots by turns.
    pub(super) fn new(whole: [usize; 3], chunk: usize, slots: usize) -> Self {
        let [width, height, depth] = whole;
        // Chunks of a long row are alike: a short one takes as long to submit as another.
        let alignment = (chunk / 32).clamp(1, ALIGNMENT);
        let bytes = width.div_ceil(width.div_ceil(chunk)).next_multiple_of(alignment).min(chunk).min(width);
        let rows = if bytes < width { 1 } else { (chunk / bytes).min(height) };
        let slices = if rows < height || bytes < width { 1 } else { (chunk / (bytes * rows)).min(depth) };
        Self { whole, most: [bytes, rows, slices], slots, chosen: None }
    }

    /// Copies only these chunks, by their numbers.
    pub(super) fn only(self, chosen: Option<[usize; 3]>) -> Self {
        Self { chosen, ..self }
    }

    /// How many chunks there are in each direction.
    fn counts(&self) -> [usize; 3] {
        let ([width, height, depth], [bytes, rows, slices]) = (self.whole, self.most);
        [width.div_ceil(bytes), height.div_ceil(rows), depth.div_ceil(slices)]
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        let all = self.counts().into_iter().product();
        self.chosen.map_or(all, |chosen| chosen.len().min(all))
    }

    /// Their numbers in order, as many at a time as there are slots.
    pub(crate) fn rounds(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (count, slots) = (self.count(), self.slots);
        (0..count).step_by(slots).map(move |first| first..count.min(first + slots))
    }

    /// The chunk with a number.
    #[inline(never)]
    pub(crate) fn chunk(&self, index: usize) -> Chunk {
        let number = self.chosen.and_then(|chosen| chosen.get(index).copied()).unwrap_or(index);
        let [columns, lines, _] = self.counts();
        let position = [number % columns, number / columns % lines, number / columns / lines];
        let (mut at, mut extent) = ([0; 3], [0; 3]);
        for (((at, extent), whole), (position, most)) in
            at.iter_mut().zip(&mut extent).zip(self.whole).zip(position.into_iter().zip(self.most))
        {
            *at = position * most;
            *extent = most.min(whole - *at);
        }
        Chunk { at, extent, slot: index % self.slots }
    }
}

/// A chunk of a copy, as a copy of its own.
const fn copy_of(copy: &CUDA_MEMCPY3D_PEER, chunk: &Chunk) -> CUDA_MEMCPY3D_PEER {
    let ([x, y, z], [width, height, depth]) = (chunk.at, chunk.extent);
    CUDA_MEMCPY3D_PEER {
        srcXInBytes: copy.srcXInBytes + x,
        srcY: copy.srcY + y,
        srcZ: copy.srcZ + z,
        dstXInBytes: copy.dstXInBytes + x,
        dstY: copy.dstY + y,
        dstZ: copy.dstZ + z,
        WidthInBytes: width,
        Height: height,
        Depth: depth,
        ..*copy
    }
}

/// The first half of a chunk's copy: from the source to `host`.
#[inline(never)]
pub(super) fn to_host(copy: &CUDA_MEMCPY3D_PEER, chunk: &Chunk, host: usize) -> CUDA_MEMCPY3D_PEER {
    let [width, height, _] = chunk.extent;
    CUDA_MEMCPY3D_PEER {
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstMemoryType: MEMORYTYPE_HOST,
        dstHost: host,
        dstDevice: 0,
        dstArray: 0,
        dstPitch: width,
        dstHeight: height,
        ..copy_of(copy, chunk)
    }
}

/// The second: from there to the destination.
#[inline(never)]
pub(super) fn from_host(copy: &CUDA_MEMCPY3D_PEER, chunk: &Chunk, host: usize) -> CUDA_MEMCPY3D_PEER {
    reversed(&to_host(&reversed(copy), chunk, host))
}

/// Destination, source and bytes of what is one row between addresses.
pub(crate) fn as_row(p: &CUDA_MEMCPY3D_PEER) -> Option<(u64, u64, usize)> {
    let end = |kind: u32, (host, device): (usize, u64), [x, y, z]: [usize; 3], [pitch, height]: [usize; 2]| {
        let start = match kind {
            MEMORYTYPE_HOST => host as u64,
            kind if is_pointer(kind) => device,
            _ => return None,
        };
        let rows = z.wrapping_mul(height).wrapping_add(y);
        Some(start.wrapping_add(rows.wrapping_mul(pitch).wrapping_add(x) as u64))
    };
    if p.Height != 1 || p.Depth != 1 {
        return None;
    }
    let src = [p.srcXInBytes, p.srcY, p.srcZ];
    let dst = [p.dstXInBytes, p.dstY, p.dstZ];
    Some((
        end(p.dstMemoryType, (p.dstHost, p.dstDevice), dst, [p.dstPitch, p.dstHeight])?,
        end(p.srcMemoryType, (p.srcHost, p.srcDevice), src, [p.srcPitch, p.srcHeight])?,
        p.WidthInBytes,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::abi::MEMORYTYPE_ARRAY;

    const SLOTS: usize = 4;
    const CHUNK: usize = 16;

    /// Every byte of a copy is in one chunk, chunks fit into their slots, and no two of a round share one.
    #[test]
    fn rounds_of_each_extent_are_the_copy() {
        for extent @ [width, height, depth] in
            [[1, 1, 1], [100, 1, 1], [16, 9, 1], [5, 7, 3], [3, 2, 11], [17, 2, 2], [64, 1, 5], [1, 40, 40]]
        {
            let mut copied = vec![0; width * height * depth];
            let division = Division::new(extent, CHUNK, SLOTS);
            for round in division.rounds() {
                for (position, number) in round.enumerate() {
                    let Chunk { at: [x, y, z], extent: [w, h, d], slot } = division.chunk(number);
                    assert!(slot == position && slot < SLOTS && w * h * d <= CHUNK, "{extent:?}");
                    let all = (z..z + d).flat_map(|z| (y..y + h).flat_map(move |y| (x..x + w).map(move |x| [x, y, z])));
                    all.for_each(|[x, y, z]| copied[(z * height + y) * width + x] += 1);
                }
            }
            assert!(copied.iter().all(|&times| times == 1), "{extent:?}");
        }
    }

    /// None is short, which would take as long to submit as the others.
    #[test]
    fn rounds_of_long_rows_are_of_chunks_that_are_alike() {
        const MIB: usize = 1 << 20;
        for (width, chunks) in [(32 * MIB, 4), (1024 * MIB, 103), (21 * MIB + 5, 3), (10 * MIB, 1)] {
            let division = Division::new([width, 2, 1], 10 * MIB, 2);
            let mut widths: Vec<usize> = (0..division.count()).map(|number| division.chunk(number).extent[0]).collect();
            assert_eq!(widths.len(), 2 * chunks);
            widths.sort_unstable();
            let (least, most) = (widths[0], widths[widths.len() - 1]);
            assert!(most <= 10 * MIB && most - least <= chunks * ALIGNMENT, "{width}: {least} to {most}");
        }
    }

    #[test]
    fn halves_meet_in_the_slot() {
        let copy = CUDA_MEMCPY3D_PEER {
            srcMemoryType: MEMORYTYPE_UNIFIED,
            srcDevice: 0x1000,
            srcPitch: 32,
            srcHeight: 8,
            srcXInBytes: 4,
            srcY: 1,
            dstMemoryType: MEMORYTYPE_ARRAY,
            dstArray: 7,
            dstZ: 2,
            WidthInBytes: 16,
            Height: 4,
            Depth: 2,
            ..CUDA_MEMCPY3D_PEER::ZERO
        };
        let chunk = Chunk { at: [0, 2, 1], extent: [16, 1, 1], slot: 0 };
        let (from, to) = (to_host(&copy, &chunk, 0x50), from_host(&copy, &chunk, 0x50));
        assert_eq!(as_row(&from), Some((0x50, 0x1000 + (8 + 3) * 32 + 4, 16)));
        assert_eq!(as_row(&to), None, "to an array");
        assert_eq!((to.srcHost, to.srcPitch, to.dstArray, to.dstY, to.dstZ), (0x50, 16, 7, 2, 3));
    }
}
