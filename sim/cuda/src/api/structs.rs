//! Structures of the driver API; sizes and offsets were checked against the vendor's headers.

use std::mem::{offset_of, size_of};

use p2psim_core::Extent;
use p2psim_core::machine::{Locus, Place, Request};

/// One side of the vendor's copy structures. Those have the fields in different orders, so each converts to this.
#[derive(Clone, Copy)]
pub(crate) struct SideFields {
    pub(crate) memory_type: u32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) pitch: u64,
    pub(crate) height: u64,
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) z: u64,
}

/// One side of `CUDA_MEMCPY3D` and of `CUDA_MEMCPY3D_PEER`, where `context` is meaningful.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Side3d {
    x: u64,
    y: u64,
    z: u64,
    level: u64,
    memory_type: u32,
    host: u64,
    device: u64,
    array: u64,
    pub(crate) context: u64,
    pitch: u64,
    height: u64,
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Memcpy3d {
    pub(crate) src: Side3d,
    pub(crate) dst: Side3d,
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
}

/// One side of `CUDA_MEMCPY2D`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Side2d {
    x: u64,
    y: u64,
    memory_type: u32,
    host: u64,
    device: u64,
    array: u64,
    pitch: u64,
}

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Memcpy2d {
    pub(crate) src: Side2d,
    pub(crate) dst: Side2d,
    pub(crate) width: u64,
    pub(crate) height: u64,
}

/// `CUmemcpyAttributes`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct CopyAttributes {
    pub(crate) access_order: u32,
    hints: [Location; 2],
    pub(crate) flags: u32,
}

impl CopyAttributes {
    /// `CU_MEMCPY_SRC_ACCESS_ORDER_STREAM`.
    pub(crate) const IN_ORDER: CopyAttributes =
        CopyAttributes { access_order: 1, hints: [Location { kind: 0, number: 0 }; 2], flags: 0 };
}

/// `CUmemcpy3DOperand`, a pointer if `kind` is 1: the pointer, the lengths of rows and layers, a hint. An array if it is 2: the
/// array and the place in it.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BatchOperand {
    pub(crate) kind: u32,
    pub(crate) fields: [u64; 4],
}

/// `CUDA_MEMCPY3D_BATCH_OP`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BatchOperation {
    pub(crate) src: BatchOperand,
    pub(crate) dst: BatchOperand,
    pub(crate) extent: [u64; 3],
    pub(crate) access_order: u32,
    pub(crate) flags: u32,
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ArrayDescriptor {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) format: u32,
    pub(crate) channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct ArrayDescriptor3d {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct InstantiateParameters {
    pub(crate) flags: u64,
    pub(crate) upload_stream: u64,
    pub(crate) error_node: u64,
    pub(crate) result: u32,
}

/// `CUmemLocation`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Location {
    pub(crate) kind: u32,
    pub(crate) number: i32,
}

/// `CUmemAccessDesc`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AccessDescriptor {
    pub(crate) location: Location,
    pub(crate) flags: u32,
}

/// The part of `CUmemPoolProps` that matters here.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PoolProperties {
    pub(crate) kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: Location,
    _security: u64,
    /// As of 12.2; 0 for no limit.
    pub(crate) most: u64,
}

/// `CUmemAllocationProp`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct AllocationProperties {
    pub(crate) kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: Location,
    security: u64,
    flags: u64,
}

impl AllocationProperties {
    /// Plain memory of a device, which can be exported as handles of these types.
    pub(crate) fn on_device(number: i32, handle_types: u32) -> AllocationProperties {
        let location = Location { kind: 1, number };
        AllocationProperties { kind: 1, handle_types, location, security: 0, flags: 0 }
    }
}

/// `CUipcMemHandle` and `CUipcEventHandle`, which are passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct IpcHandle(pub(crate) [u64; 8]);

/// `CUmemPoolPtrExportData`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PoolExportData(pub(crate) [u64; 8]);

const _: () = {
    assert!(size_of::<IpcHandle>() == 64 && size_of::<PoolExportData>() == 64);
    assert!(size_of::<AccessDescriptor>() == 12 && size_of::<PoolProperties>() == 32);
    assert!(size_of::<AllocationProperties>() == 32 && offset_of!(AllocationProperties, location) == 8);
    assert!(size_of::<InstantiateParameters>() == 32 && offset_of!(InstantiateParameters, error_node) == 16);
    assert!(size_of::<Memcpy3d>() == 200);
    assert!(offset_of!(Memcpy3d, dst) == 88 && offset_of!(Memcpy3d, width) == 176);
    assert!(offset_of!(Side3d, memory_type) == 32 && offset_of!(Side3d, host) == 40);
    assert!(offset_of!(Side3d, context) == 64 && offset_of!(Side3d, height) == 80);
    assert!(size_of::<Memcpy2d>() == 128);
    assert!(offset_of!(Memcpy2d, dst) == 56 && offset_of!(Memcpy2d, width) == 112);
    assert!(offset_of!(Side2d, memory_type) == 16 && offset_of!(Side2d, pitch) == 48);
    assert!(size_of::<CopyAttributes>() == 24 && offset_of!(CopyAttributes, flags) == 20);
    assert!(size_of::<BatchOperand>() == 40 && offset_of!(BatchOperand, fields) == 8);
    assert!(size_of::<BatchOperation>() == 112 && offset_of!(BatchOperation, dst) == 40);
    assert!(offset_of!(BatchOperation, extent) == 80 && offset_of!(BatchOperation, access_order) == 104);
    assert!(size_of::<ArrayDescriptor>() == 24 && size_of::<ArrayDescriptor3d>() == 40);
    assert!(offset_of!(ArrayDescriptor3d, format) == 24 && offset_of!(ArrayDescriptor3d, flags) == 32);
};

impl From<Place> for Side3d {
    /// Copies of nodes that were captured, or added by the runtime with its default kind, lie in unified memory, as was
    /// measured.
    fn from(place: Place) -> Side3d {
        let (memory_type, host, device, array) = match place.at {
            Locus::Host(address) => (1, address, 0, 0),
            Locus::Device(address) => (2, 0, address, 0),
            Locus::Array(array) => (3, 0, 0, array.0),
            Locus::Any(address) => (4, 0, address, 0),
        };
        let Place { pitch, rows: height, x, y, z, .. } = place;
        Side3d { x, y, z, level: 0, memory_type, host, device, array, context: 0, pitch, height }
    }
}

impl From<Request> for Memcpy3d {
    fn from(Request { dst, src, extent }: Request) -> Memcpy3d {
        let Extent { width, height, depth } = extent;
        Memcpy3d { src: src.into(), dst: dst.into(), width, height, depth }
    }
}

/// `CUgraphNodeParams`: the type, then what that says; of a copy the parameters lie behind two words and a context.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct NodeParameters {
    pub(crate) kind: u32,
    reserved: [u32; 3],
    /// A child graph.
    pub(crate) graph: u64,
    pub(crate) context: u64,
    pub(crate) copy: Memcpy3d,
    padding: [u64; 3],
}

impl NodeParameters {
    /// Unused fields are 0.
    pub(crate) fn new(kind: u32, graph: u64, copy: Memcpy3d) -> NodeParameters {
        NodeParameters { kind, reserved: [0; 3], graph, context: 0, copy, padding: [0; 3] }
    }
}

/// `CUgraphNodeParams` of a batch of copies.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BatchNodeParameters {
    kind: u32,
    reserved: [u32; 3],
    pub(crate) count: u64,
    pub(crate) dsts: u64,
    pub(crate) srcs: u64,
    pub(crate) sizes: u64,
    pub(crate) attributes: u64,
    pub(crate) firsts: u64,
    pub(crate) attribute_count: u64,
    padding: [u64; 23],
}

impl BatchNodeParameters {
    /// Parameters of so many copies with the same attributes, of arrays at these addresses.
    pub(crate) fn new(kind: u32, count: u64, [dsts, srcs, sizes, attributes, firsts]: [u64; 5]) -> BatchNodeParameters {
        let (reserved, padding) = ([0; 3], [0; 23]);
        BatchNodeParameters {
            kind,
            reserved,
            count,
            dsts,
            srcs,
            sizes,
            attributes,
            firsts,
            attribute_count: 1,
            padding,
        }
    }
}

/// `CUgraphExecUpdateResultInfo`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct UpdateResult {
    pub(crate) result: u32,
    pub(crate) nodes: [u64; 2],
}

const _: () = {
    assert!(offset_of!(NodeParameters, copy) == 32 && size_of::<UpdateResult>() == 24);
    assert!(size_of::<NodeParameters>() == 256 && size_of::<BatchNodeParameters>() == 256);
    assert!(offset_of!(BatchNodeParameters, count) == 16 && offset_of!(BatchNodeParameters, attribute_count) == 64);
};

impl From<Side3d> for SideFields {
    fn from(side: Side3d) -> SideFields {
        let Side3d { x, y, z, memory_type, host, device, array, pitch, height, .. } = side;
        SideFields { memory_type, host, device, array, pitch, height, x, y, z }
    }
}

impl From<Side2d> for SideFields {
    fn from(side: Side2d) -> SideFields {
        let Side2d { x, y, memory_type, host, device, array, pitch } = side;
        SideFields { memory_type, host, device, array, pitch, height: 0, x, y, z: 0 }
    }
}
