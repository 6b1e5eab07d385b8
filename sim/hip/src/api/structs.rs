//! Structures of the API; sizes and offsets are those of the vendor's headers.

use std::mem::{offset_of, size_of};

/// `hipPointerAttribute_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PointerAttributes {
    pub(crate) memory_type: u32,
    pub(crate) device: i32,
    pub(crate) device_pointer: u64,
    pub(crate) host_pointer: u64,
    pub(crate) is_managed: i32,
    pub(crate) flags: u32,
}

/// `hipPos`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Position {
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) z: u64,
}

/// `hipPitchedPtr`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PitchedPointer {
    pub(crate) pointer: u64,
    pub(crate) pitch: u64,
    pub(crate) width: u64,
    pub(crate) height: u64,
}

/// The array or pointer that one side of a 3D copy names.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Object {
    pub(crate) array: u64,
    pub(crate) position: Position,
    pub(crate) pitched: PitchedPointer,
}

/// `hipExtent`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Box3d {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
}

/// `hipMemcpy3DPeerParms`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Peer3d {
    pub(crate) src: Object,
    pub(crate) src_device: i32,
    pub(crate) dst: Object,
    pub(crate) dst_device: i32,
    pub(crate) extent: Box3d,
}

/// `hipMemcpy3DParms`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Copy3d {
    pub(crate) src: Object,
    pub(crate) dst: Object,
    pub(crate) extent: Box3d,
    pub(crate) kind: u32,
}

/// `hipMemLocation`: its type, and which one.
type Location = [u32; 2];

/// `hipMemcpyAttributes`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct CopyAttributes {
    pub(crate) access_order: u32,
    hints: [Location; 2],
    flags: u32,
}

/// `hipMemcpy3DOperand`, a pointer if `kind` is 1, with the lengths of rows and layers and a hint; an array if it is 2.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BatchOperand {
    pub(crate) kind: u32,
    pub(crate) at: u64,
    pub(crate) row: u64,
    pub(crate) layer: u64,
    hint: Location,
}

/// `hipMemcpy3DBatchOp`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct BatchOperation {
    pub(crate) src: BatchOperand,
    pub(crate) dst: BatchOperand,
    pub(crate) extent: Box3d,
    access_order: u32,
    flags: u32,
}

const _: () = {
    assert!(size_of::<PointerAttributes>() == 32 && offset_of!(PointerAttributes, device_pointer) == 8);
    assert!(size_of::<Object>() == 64 && size_of::<Peer3d>() == 168);
    assert!(offset_of!(Peer3d, src_device) == 64 && offset_of!(Peer3d, dst) == 72);
    assert!(size_of::<Copy3d>() == 160 && offset_of!(Copy3d, kind) == 152);
    assert!(size_of::<CopyAttributes>() == 24 && size_of::<BatchOperand>() == 40 && size_of::<BatchOperation>() == 112);
    assert!(offset_of!(Peer3d, dst_device) == 136 && offset_of!(Peer3d, extent) == 144);
};
