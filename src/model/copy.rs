//! A copy between devices, parsed once from a call's arguments.

use super::Path;
use crate::api::abi::{
    CUDA_MEMCPY3D_PEER, MEMORYTYPE_ARRAY, cudaMemcpy3DPeerParms, cudaPitchedPtr, cudaPos, is_pointer,
};

/// How the arguments name the device of one end of a copy, or a peer. Under unified addressing the pointers decide, whatever
/// the arguments name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Ordinal(i32),
    Context(usize),
    /// By the pointer alone: a regular copy.
    Pointer,
}

impl Named {
    /// The ordinal, if the device is named by one.
    pub(crate) fn ordinal(self) -> Option<i32> {
        match self {
            Self::Ordinal(ordinal) => Some(ordinal),
            Self::Context(_) | Self::Pointer => None,
        }
    }

    /// The context, if the device is named by one; 0 else.
    #[inline(always)]
    pub(crate) fn context(self) -> usize {
        match self {
            Self::Ordinal(_) | Self::Pointer => 0,
            Self::Context(context) => context,
        }
    }
}

/// A copy, as a call asks for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Memcpy<'a> {
    /// The address of the source, or [`of_array`] what its array is known by; 0 if it is said to be the host's, or not known.
    pub(crate) src: u64,
    /// The address of the destination, or what stands for it.
    pub(crate) dst: u64,
    pub(crate) src_named: Named,
    pub(crate) dst_named: Named,
    /// How many bytes are copied; where an array takes part, its elements are counted instead.
    pub(crate) bytes: u64,
    /// The stream's handle; none for a synchronous copy.
    pub(crate) stream: Option<usize>,
    /// Whether it is a 3D copy, and of what extent.
    pub(crate) shape: Shape<'a>,
}

/// The shape of a copy: a number of bytes, or the parameters of a 3D copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape<'a> {
    /// So many bytes, one after another.
    Linear,
    /// A 3D copy of the CUDA runtime, or of HIP; or a 2D copy, as one of a single slice.
    Runtime3D(&'a cudaMemcpy3DPeerParms),
    /// A 3D copy of the driver, or a 2D copy.
    Driver3D(&'a CUDA_MEMCPY3D_PEER),
    /// A 3D copy whose parameters cannot be read at this address.
    Unreadable(usize),
}

impl<'a> Memcpy<'a> {
    /// So many bytes from one address to another, whichever devices they are on.
    pub(crate) fn linear(src: u64, dst: u64, bytes: u64) -> Self {
        let (src_named, dst_named) = (Named::Pointer, Named::Pointer);
        Self { src, dst, src_named, dst_named, bytes, stream: None, shape: Shape::Linear }
    }

    #[inline(always)]
    pub(crate) fn of_runtime(p: &'a cudaMemcpy3DPeerParms, stream: Option<usize>) -> Self {
        let end = |array, pointer| if array == 0 { pointer as u64 } else { of_array(array) };
        Self {
            src: end(p.srcArray, p.srcPtr.ptr),
            dst: end(p.dstArray, p.dstPtr.ptr),
            src_named: Named::Ordinal(p.srcDevice),
            dst_named: Named::Ordinal(p.dstDevice),
            bytes: volume([p.extent.width, p.extent.height, p.extent.depth]),
            stream,
            shape: Shape::Runtime3D(p),
        }
    }

    #[inline(always)]
    pub(crate) fn of_driver(p: &'a CUDA_MEMCPY3D_PEER, stream: Option<usize>) -> Self {
        let end = |kind, address, array| match kind {
            MEMORYTYPE_ARRAY => of_array(array),
            kind if is_pointer(kind) => address,
            _ => 0,
        };
        Self {
            src: end(p.srcMemoryType, p.srcDevice, p.srcArray),
            dst: end(p.dstMemoryType, p.dstDevice, p.dstArray),
            src_named: Named::Context(p.srcContext),
            dst_named: Named::Context(p.dstContext),
            bytes: volume([p.WidthInBytes, p.Height, p.Depth]),
            stream,
            shape: Shape::Driver3D(p),
        }
    }

    /// A 3D copy whose parameters are not known.
    pub(crate) fn unknown(shape: Shape<'a>, named: Named, stream: Option<usize>) -> Self {
        Self { src: 0, dst: 0, src_named: named, dst_named: named, bytes: 0, stream, shape }
    }

    /// The copy as made by a function that names no devices.
    #[inline(always)]
    pub(crate) fn regular(self) -> Self {
        Self { src_named: Named::Pointer, dst_named: Named::Pointer, ..self }
    }

    #[inline(always)]
    pub(crate) fn is_3d(&self) -> bool {
        self.shape != Shape::Linear
    }

    /// Whether it copies anything, from and to memory that may be a device's.
    #[inline(always)]
    pub(crate) fn has_ends(&self) -> bool {
        self.bytes != 0 && (self.shape == Shape::Linear || self.src != 0 && self.dst != 0)
    }

    /// Whether both endpoints are given as addresses, and so lie in the unified address space: neither an array nor, for a 3D copy of
    /// the driver, memory that is said to be the host's.
    #[inline(always)]
    pub(crate) fn has_addresses(&self) -> bool {
        match self.shape {
            Shape::Linear => true,
            Shape::Runtime3D(p) => p.srcArray == 0 && p.dstArray == 0,
            Shape::Driver3D(p) => is_pointer(p.srcMemoryType) && is_pointer(p.dstMemoryType),
            Shape::Unreadable(_) => false,
        }
    }

    /// The contexts that it names, the source's first; 0 for an endpoint that names none.
    #[inline(always)]
    pub(crate) fn contexts(&self) -> [usize; 2] {
        match self.shape {
            Shape::Driver3D(p) => {
                let context = |kind, context| if is_pointer(kind) { context } else { 0 };
                [context(p.srcMemoryType, p.srcContext), context(p.dstMemoryType, p.dstContext)]
            }
            _ => [self.src_named.context(), self.dst_named.context()],
        }
    }

    /// How many bytes from each address on the copy touches, the source's first. None for what has no two addresses, and for
    /// a 3D copy whose rows or slices overlap, or are farther apart than CUDA allows.
    #[inline(always)]
    pub(crate) fn reach(&self) -> Option<[u64; 2]> {
        match self.shape {
            Shape::Linear => Some([self.bytes; 2]),
            Shape::Runtime3D(p) if self.has_addresses() => {
                let extent = [p.extent.width, p.extent.height, p.extent.depth];
                let of = |ptr: &cudaPitchedPtr, at: &cudaPos| reach(extent, [at.x, at.y, at.z], ptr.pitch, ptr.ysize);
                Some([of(&p.srcPtr, &p.srcPos)?, of(&p.dstPtr, &p.dstPos)?])
            }
            Shape::Driver3D(p) if self.has_addresses() && p.srcLOD == 0 && p.dstLOD == 0 => {
                let extent = [p.WidthInBytes, p.Height, p.Depth];
                let src = reach(extent, [p.srcXInBytes, p.srcY, p.srcZ], p.srcPitch, p.srcHeight)?;
                Some([src, reach(extent, [p.dstXInBytes, p.dstY, p.dstZ], p.dstPitch, p.dstHeight)?])
            }
            _ => None,
        }
    }
}

fn volume([width, height, depth]: [usize; 3]) -> u64 {
    (width as u64).saturating_mul(height as u64).saturating_mul(depth as u64)
}

/// An array's memory is known by this: its handle, moved to where no address lies. 0 for none.
pub(crate) const fn of_array(handle: usize) -> u64 {
    if handle == 0 { 0 } else { handle as u64 | 1 << 63 }
}

/// The handle of an array whose memory is known by that; none of other memory.
pub(crate) const fn array_of(end: u64) -> Option<usize> {
    if is_array(end) { Some((end & !(1 << 63)) as usize) } else { None }
}

/// Whether memory is known by the handle of an array.
pub(crate) const fn is_array(end: u64) -> bool {
    end >> 63 != 0
}

/// How many bytes from an address on one end of a 3D copy touches.
#[inline(always)]
fn reach(extent: [usize; 3], at: [usize; 3], pitch: usize, rows: usize) -> Option<u64> {
    let ([width, height, depth], [x, y, z]) = (extent, at);
    let in_rows = height <= 1 && depth <= 1 || x.checked_add(width)? <= pitch;
    let in_slices = depth <= 1 || y.checked_add(height)? <= rows;
    (in_rows && in_slices && pitch <= i32::MAX as usize).then_some(())?;
    let slices = z.checked_add(depth)?.checked_sub(1)?.checked_mul(rows)?;
    let rows = slices.checked_add(y)?.checked_add(height)?.checked_sub(1)?.checked_mul(pitch)?;
    rows.checked_add(x)?.checked_add(width).map(|reach| reach as u64)
}

/// The contexts of a copy's endpoints, source first, by their handles; 0 for none.
pub(crate) type Endpoints = [usize; 2];

/// A copy as it is counted and shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// The device that the bytes come from.
    pub(crate) src: u8,
    /// The device that they go to.
    pub(crate) dst: u8,
    pub(crate) path: Path,
    pub(crate) bytes: u64,
    /// The contexts of source and destination, whose implicit waits the copy keeps; 0 for none. They are set only if p2pshim alone has enabled
    /// the path, or may do so: calls that wait for these contexts would have waited for the staged copy.
    pub(crate) wait_contexts: Endpoints,
}

impl Traffic {
    /// So many bytes from one device to another, on a path whose waits are the driver's.
    pub(crate) const fn new([src, dst]: [u8; 2], path: Path, bytes: u64) -> Self {
        Self { src, dst, path, bytes, wait_contexts: [0; 2] }
    }

    /// Whether anything goes from one device to another, as far as is known.
    #[inline(always)]
    pub(crate) fn is_between_devices(&self) -> bool {
        self.src != self.dst && self.bytes != 0 && !matches!(self.path, Path::Host | Path::Unknown)
    }

    /// Whether p2pshim keeps the implicit waits of the copy, because it has enabled the path.
    #[inline(always)]
    pub(crate) fn keeps_waits(&self) -> bool {
        self.wait_contexts != [0; 2]
    }

    /// The traffic of a copy that CUDA makes, though it had to be staged.
    pub(crate) fn unstaged(self) -> Self {
        Self { path: if self.path.has_to_be_staged_by_us() { Path::Broken } else { self.path }, ..self }
    }

    /// The traffic of a copy that becomes part of a graph.
    pub(crate) fn captured(self) -> Self {
        Self { path: Path::Captured, wait_contexts: [0; 2], ..self }
    }
}

/// The copies of one call from one device to another on one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// From where to where, and how many bytes in all.
    pub(crate) traffic: Traffic,
    pub(crate) copies: u32,
}

impl Part {
    pub(crate) const NONE: Self = Self { traffic: Traffic::new([0; 2], Path::Unknown, 0), copies: 0 };

    /// Adds a copy, if it goes from where to where, and on which path, the others go. Whether it does.
    #[inline(always)]
    pub(crate) fn add(&mut self, traffic: Traffic) -> bool {
        let Traffic { bytes, .. } = traffic;
        let is_like = Traffic { bytes, ..self.traffic } == traffic;
        if is_like {
            self.copies = self.copies.saturating_add(1);
            self.traffic.bytes = self.traffic.bytes.saturating_add(bytes);
        }
        is_like
    }

    /// The parts that copies come to.
    pub(crate) fn sum(copies: impl Iterator<Item = Traffic>) -> Vec<Self> {
        let mut parts: Vec<Self> = Vec::new();
        for traffic in copies {
            if !parts.iter_mut().any(|part| part.add(traffic)) {
                parts.push(Self { traffic, copies: 1 });
            }
        }
        parts
    }
}
