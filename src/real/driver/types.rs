//! Structs that functions of the driver take by pointer.

use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr;

use crate::api::abi::{CUDA_MEMCPY3D_PEER, MEMORYTYPE_UNIFIED};

/// `CUmemLocation`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Location {
    kind: c_int,
    id: c_int,
}

impl Location {
    pub(super) fn device(id: i32) -> Self {
        /// `CU_MEM_LOCATION_TYPE_DEVICE`.
        const DEVICE: c_int = 1;
        Self { kind: DEVICE, id }
    }

    pub(crate) fn device_id(self) -> Option<i32> {
        (self.kind == Self::device(0).kind).then_some(self.id)
    }
}

/// `CUmemAccessDesc`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AccessDesc {
    location: Location,
    flags: c_int,
}

/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub(super) const READ_WRITE: c_int = 3;

impl AccessDesc {
    /// The descriptor that gives a device access.
    pub(super) fn read_write(device: i32) -> Self {
        Self { location: Location::device(device), flags: READ_WRITE }
    }

    pub(crate) fn takes_away(&self) -> bool {
        self.flags == 0
    }

    /// The device, given access: where it has that, nothing changes.
    pub(crate) fn giving(&self) -> Self {
        Self { flags: READ_WRITE, ..*self }
    }

    /// The device whose access is set, if it is a device and the flags are some that there are.
    pub(crate) fn device(&self) -> Option<i32> {
        self.location.device_id().filter(|_| [0, 1, READ_WRITE].contains(&self.flags))
    }
}

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
pub(super) const PINNED: c_int = 1;

/// `CUmemAllocationProp`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AllocationProp {
    pub(super) kind: c_int,
    pub(crate) handle_types: c_int,
    pub(super) location: Location,
    windows: usize,
    flags: u64,
}

/// `CUmemPoolProps`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PoolProps {
    pub(super) kind: c_int,
    handle_types: c_int,
    pub(super) location: Location,
    windows: usize,
    max_size: usize,
    usage: u16,
    reserved: [u8; 54],
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ArrayDescriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: u32,
    pub(crate) channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Array3dDescriptor {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    flags: u32,
}

/// `CUmemcpy3DOperand`: memory, or an array.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BatchOperand {
    kind: c_int,
    pub(crate) ptr: u64,
    row_length: usize,
    layer_height: usize,
    location: Location,
}

impl BatchOperand {
    pub(crate) fn is_pointer(&self) -> bool {
        /// `CU_MEMCPY_OPERAND_TYPE_POINTER`.
        const POINTER: c_int = 1;
        self.kind == POINTER
    }
}

/// `CUDA_MEMCPY3D_BATCH_OP`, and the runtime's.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BatchOp {
    pub(crate) src: BatchOperand,
    pub(crate) dst: BatchOperand,
    /// Width, height and depth; of memory in bytes.
    pub(crate) extent: [u64; 3],
    /// When the source may be read.
    pub(crate) order: c_int,
    pub(crate) flags: u32,
}

impl BatchOp {
    /// The copy of memory as a call of its own asks for it; none if an array takes part.
    pub(crate) fn alone(&self) -> Option<CUDA_MEMCPY3D_PEER> {
        let [width, height, depth] = self.extent.map(|size| usize::try_from(size).unwrap_or(usize::MAX));
        let or = |given: usize, least: usize| if given == 0 { least } else { given };
        (self.src.is_pointer() && self.dst.is_pointer()).then_some(CUDA_MEMCPY3D_PEER {
            srcMemoryType: MEMORYTYPE_UNIFIED,
            srcDevice: self.src.ptr,
            srcPitch: or(self.src.row_length, width),
            srcHeight: or(self.src.layer_height, height),
            dstMemoryType: MEMORYTYPE_UNIFIED,
            dstDevice: self.dst.ptr,
            dstPitch: or(self.dst.row_length, width),
            dstHeight: or(self.dst.layer_height, height),
            WidthInBytes: width,
            Height: height,
            Depth: depth,
            ..CUDA_MEMCPY3D_PEER::ZERO
        })
    }
}

/// `CUmemcpyAttributes`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BatchAttributes {
    pub(crate) order: c_int,
    hints: [Location; 2],
    pub(crate) flags: u32,
}

/// The beginning of `CUgraphNodeParams`, for a node that copies.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct MemcpyNodeParams {
    kind: c_int,
    reserved: [c_int; 3],
    flags: c_int,
    reserved_too: c_int,
    context: usize,
    /// The parameters of a regular copy lie as those of a peer copy.
    pub(crate) copy: CUDA_MEMCPY3D_PEER,
}

/// `CUgraphNodeParams`, all of it, for a node that makes a batch of copies.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BatchNodeParams {
    kind: c_int,
    reserved: [c_int; 3],
    pub(crate) count: usize,
    pub(crate) dsts: *const u64,
    pub(crate) srcs: *const u64,
    pub(crate) sizes: *const u64,
    rest: [u64; 26],
}

impl BatchNodeParams {
    pub(crate) const NONE: Self = Self {
        kind: 0,
        reserved: [0; 3],
        count: 0,
        dsts: ptr::null(),
        srcs: ptr::null(),
        sizes: ptr::null(),
        rest: [0; 26],
    };
}

/// The parameters of a node that is a child graph.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ChildGraphNodeParams {
    kind: c_int,
    reserved: [c_int; 3],
    pub(crate) graph: usize,
}

const _: () = {
    assert!(size_of::<BatchOperand>() == 40 && size_of::<BatchOp>() == 112 && size_of::<BatchAttributes>() == 24);
    assert!(size_of::<BatchNodeParams>() == 256 && offset_of!(BatchNodeParams, sizes) == 40);
    assert!(offset_of!(MemcpyNodeParams, copy) == 32 && offset_of!(ChildGraphNodeParams, graph) == 16);
    assert!(size_of::<ArrayDescriptor>() == 24 && size_of::<Array3dDescriptor>() == 40);
    assert!(size_of::<AccessDesc>() == 12 && size_of::<AllocationProp>() == 32 && size_of::<PoolProps>() == 88);
};

/// The device of a pool that is made with these properties; none for memory of the host.
pub(crate) fn device_of_pool(properties: &PoolProps) -> Option<i32> {
    properties.location.device_id()
}
