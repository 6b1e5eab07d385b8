//! A call as the rules see it: of either layer, in one or three dimensions.

use crate::api::abi::{
    CUDA_MEMCPY3D_PEER, Code, MEMORYTYPE_ARRAY, MEMORYTYPE_DEVICE, MEMORYTYPE_HOST, MEMORYTYPE_UNIFIED, Value,
    cudaMemcpy3DPeerParms, is_pointer,
};
use crate::api::{Function, Layer};
use crate::policy::path::Path;

/// What kind of function it is; known at compile time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Copies between devices, and answers when that is done, or as if it were.
    Copy,
    /// Copies between devices on a stream.
    AsyncCopy,
    /// Enables or disables peer access.
    Access,
    /// Asks about peer access.
    Query,
    /// No rule is about it.
    Other,
}

impl Kind {
    /// The kind of a function.
    #[inline(always)]
    pub(crate) const fn of(function: Function) -> Self {
        match function {
            Function::cudaMemcpyPeer
            | Function::cudaMemcpy3DPeer
            | Function::cudaMemcpy3DPeer_ptds
            | Function::cuMemcpyPeer
            | Function::cuMemcpyPeer_ptds
            | Function::cuMemcpy3DPeer
            | Function::cuMemcpy3DPeer_ptds
            | Function::hipMemcpyPeer
            | Function::hipMemcpy3DPeer => Self::Copy,
            Function::cudaMemcpyPeerAsync
            | Function::cudaMemcpy3DPeerAsync
            | Function::cudaMemcpy3DPeerAsync_ptsz
            | Function::cuMemcpyPeerAsync
            | Function::cuMemcpyPeerAsync_ptsz
            | Function::cuMemcpy3DPeerAsync
            | Function::cuMemcpy3DPeerAsync_ptsz
            | Function::hipMemcpyPeerAsync
            | Function::hipMemcpy3DPeerAsync => Self::AsyncCopy,
            Function::cudaDeviceEnablePeerAccess
            | Function::cudaDeviceDisablePeerAccess
            | Function::cuCtxEnablePeerAccess
            | Function::cuCtxDisablePeerAccess
            | Function::hipDeviceEnablePeerAccess
            | Function::hipDeviceDisablePeerAccess => Self::Access,
            Function::cudaDeviceCanAccessPeer
            | Function::cudaDeviceGetP2PAttribute
            | Function::cuDeviceCanAccessPeer
            | Function::cuDeviceGetP2PAttribute
            | Function::hipDeviceCanAccessPeer
            | Function::hipDeviceGetP2PAttribute => Self::Query,
            _ => Self::Other,
        }
    }

    /// Whether it copies.
    #[inline(always)]
    pub(crate) const fn copies(self) -> bool {
        matches!(self, Self::Copy | Self::AsyncCopy)
    }
}

/// The parameters that a call's first argument points to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Parameters {
    /// It points to none: its arguments are all there is. Or it is not known whether it does.
    None,
    /// It points to nothing that can be read.
    Unreadable,
    /// Those of the runtime.
    Runtime(cudaMemcpy3DPeerParms),
    /// Those of the driver.
    Driver(CUDA_MEMCPY3D_PEER),
}

/// A call that is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    /// Which function.
    pub(crate) function: Function,
    /// What it was given.
    pub(crate) values: &'a [Value],
    /// What that points to.
    pub(crate) parameters: Parameters,
    /// What it answered; none before it is made.
    pub(crate) ret: Option<Code>,
    /// The way that a copy took, if that is known.
    pub(crate) path: Option<Path>,
    /// The tag of the calling thread.
    pub(crate) thread: u8,
}

impl Seen<'_> {
    /// The function's layer.
    pub(crate) fn layer(&self) -> Layer {
        self.function.layer()
    }

    /// Whether it succeeded.
    pub(crate) fn has_succeeded(&self) -> bool {
        self.ret == Some(Code::SUCCESS)
    }
}

/// What the program gave for one side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// A pointer, NULL perhaps, that must be memory of a device.
    Device(u64),
    /// A pointer to any memory.
    Any(u64),
    /// An array.
    Array(usize),
    /// Both.
    Both { array: usize, pointer: u64 },
    /// Neither.
    Nothing,
    /// A memory type that there is not.
    Type(u32),
}

/// One side of a copy. Sizes of the runtime are in elements of the array, if one takes part, else in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    /// `src` or `dst`.
    pub(crate) name: &'static str,
    /// The memory.
    pub(crate) given: Given,
    /// The device, for the runtime.
    pub(crate) ordinal: Option<i32>,
    /// The context, for the driver.
    pub(crate) context: Option<usize>,
    /// Where in the object it begins.
    pub(crate) position: [u64; 3],
    /// Bytes from row to row.
    pub(crate) pitch: u64,
    /// Rows from slice to slice.
    pub(crate) rows: u64,
    /// `srcLOD`, `dstLOD`.
    pub(crate) lod: u64,
}

/// A copy that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerCall {
    /// Source, destination.
    pub(crate) sides: [Side; 2],
    /// Width, height and depth; bytes, 1 and 1 for a linear copy.
    pub(crate) extent: [u64; 3],
    /// Whether it is a box.
    pub(crate) is_box: bool,
    /// The stream, if it has one.
    pub(crate) stream: Option<usize>,
}

impl PeerCall {
    /// The copy that a call asks for; none for other calls, and for parameters that could not be read.
    pub(crate) fn new(values: &[Value], parameters: &Parameters) -> Option<Self> {
        let stream = match values.last() {
            Some(&Value::Stream(stream)) => Some(stream),
            _ => None,
        };
        match (values, parameters) {
            (&[Value::Address(dst), dst_at, Value::Address(src), src_at, Value::UInt(bytes), ..], _) => Some(Self {
                sides: [linear("src", src, src_at), linear("dst", dst, dst_at)],
                extent: [bytes, 1, 1],
                is_box: false,
                stream,
            }),
            (_, Parameters::Runtime(parms)) => Some(Self {
                sides: sides_of_runtime(parms),
                extent: [parms.extent.width, parms.extent.height, parms.extent.depth].map(|size| size as u64),
                is_box: true,
                stream,
            }),
            (_, Parameters::Driver(peer)) => Some(Self {
                sides: sides_of_driver(peer),
                extent: [peer.WidthInBytes, peer.Height, peer.Depth].map(|size| size as u64),
                is_box: true,
                stream,
            }),
            _ => None,
        }
    }

    /// Whether there is nothing to copy.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.extent.contains(&0)
    }

    /// Whether any side is an array.
    pub(crate) fn has_array(&self) -> bool {
        self.sides.iter().any(|side| matches!(side.given, Given::Array(_) | Given::Both { .. }))
    }
}

fn linear(name: &'static str, address: usize, at: Value) -> Side {
    let (ordinal, context) = match at {
        Value::Ordinal(ordinal) => (Some(ordinal), None),
        Value::Address(context) => (None, Some(context)),
        _ => (None, None),
    };
    let given = Given::Device(address as u64);
    Side { name, given, ordinal, context, position: [0; 3], pitch: 0, rows: 0, lod: 0 }
}

fn sides_of_runtime(parms: &cudaMemcpy3DPeerParms) -> [Side; 2] {
    let (src, dst) = (&parms.srcPos, &parms.dstPos);
    let of = |name, array, pointer: crate::api::abi::cudaPitchedPtr, ordinal, position: [usize; 3]| Side {
        name,
        given: match (array, pointer.ptr) {
            (0, 0) => Given::Nothing,
            (0, pointer) => Given::Any(pointer as u64),
            (array, 0) => Given::Array(array),
            (array, pointer) => Given::Both { array, pointer: pointer as u64 },
        },
        ordinal: Some(ordinal),
        context: None,
        position: position.map(|at| at as u64),
        pitch: pointer.pitch as u64,
        rows: pointer.ysize as u64,
        lod: 0,
    };
    [
        of("src", parms.srcArray, parms.srcPtr, parms.srcDevice, [src.x, src.y, src.z]),
        of("dst", parms.dstArray, parms.dstPtr, parms.dstDevice, [dst.x, dst.y, dst.z]),
    ]
}

fn sides_of_driver(peer: &CUDA_MEMCPY3D_PEER) -> [Side; 2] {
    let given = |kind, host: usize, device: u64, array| match (kind, array) {
        (MEMORYTYPE_HOST, _) if host == 0 => Given::Nothing,
        (MEMORYTYPE_HOST, _) => Given::Any(host as u64),
        (MEMORYTYPE_DEVICE, _) => Given::Device(device),
        (MEMORYTYPE_UNIFIED, _) if device == 0 => Given::Nothing,
        (MEMORYTYPE_UNIFIED, _) => Given::Any(device),
        (MEMORYTYPE_ARRAY, 0) => Given::Nothing,
        (MEMORYTYPE_ARRAY, array) => Given::Array(array),
        _ => Given::Type(kind),
    };
    // That of an array is ignored, and memory of the host has none.
    let has_context = is_pointer;
    [
        Side {
            name: "src",
            given: given(peer.srcMemoryType, peer.srcHost, peer.srcDevice, peer.srcArray),
            ordinal: None,
            context: has_context(peer.srcMemoryType).then_some(peer.srcContext),
            position: [peer.srcXInBytes, peer.srcY, peer.srcZ].map(|at| at as u64),
            pitch: peer.srcPitch as u64,
            rows: peer.srcHeight as u64,
            lod: peer.srcLOD as u64,
        },
        Side {
            name: "dst",
            given: given(peer.dstMemoryType, peer.dstHost, peer.dstDevice, peer.dstArray),
            ordinal: None,
            context: has_context(peer.dstMemoryType).then_some(peer.dstContext),
            position: [peer.dstXInBytes, peer.dstY, peer.dstZ].map(|at| at as u64),
            pitch: peer.dstPitch as u64,
            rows: peer.dstHeight as u64,
            lod: peer.dstLOD as u64,
        },
    ]
}
