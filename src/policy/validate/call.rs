//! A call as the rules see it, of either layer; and the two sides of its copy.

use crate::api::abi::{
    CUDA_MEMCPY3D_PEER, Code, MEMORYTYPE_ARRAY, MEMORYTYPE_DEVICE, MEMORYTYPE_HOST, MEMORYTYPE_UNIFIED,
    cudaMemcpy3DPeerParms, cudaPitchedPtr, is_pointer,
};
use crate::api::{Function, Layer};
use crate::model::{Access, Asks, Memcpy, Named, Path, Request, Shape};
use crate::objects::streams::Known;
use crate::policy::access::Standing;
use crate::policy::driver::Driver;
use crate::policy::hip::Before;

/// A call, as rules see it: its request, its result, and the state around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallView<'a> {
    pub(crate) request: &'a Request<'a>,
    /// The code that it returned; none before it is made.
    pub(crate) ret: Option<Code>,
    /// The path that a copy took, if that is known.
    pub(crate) path: Option<Path>,
    pub(crate) thread: u8,
    /// Whether the capture of the call's stream was lost before the call was made.
    pub(crate) is_capture_lost: bool,
    /// How the pair stands, if access was not changed.
    pub(crate) standing: Option<&'a Standing>,
    /// How many devices there are, if that is known.
    pub(crate) devices: Option<i32>,
    pub(crate) device: Option<i32>,
    /// The device whose access the call changes, and the peer.
    pub(crate) pair: Option<[i32; 2]>,
}

impl<'a> CallView<'a> {
    pub(crate) fn of(driver: &impl Driver, request: &'a Request<'a>, ret: Option<Code>) -> Self {
        let device = driver.current_context().and_then(|context| driver.device_of_context(context));
        let devices = Some(driver.device_count()).filter(|&count| count > 0);
        let pair = access_pair(driver, request);
        let thread = Known::NO_THREAD;
        Self { request, ret, path: None, thread, is_capture_lost: false, standing: None, devices, device, pair }
    }

    /// A call of HIP, by what was known before it was made.
    pub(crate) fn of_hip(before: &Before, request: &'a Request<'a>, ret: Option<Code>) -> Self {
        let Before { devices, current: device, .. } = *before;
        let peer = match request.access() {
            Some(Access::Enable { peer, .. } | Access::Disable { peer }) => peer.ordinal(),
            _ => None,
        };
        let (pair, thread) = (device.zip(peer).map(<[i32; 2]>::from), Known::NO_THREAD);
        Self { request, ret, path: None, thread, is_capture_lost: false, standing: None, devices, device, pair }
    }

    pub(crate) fn layer(&self) -> Layer {
        self.request.function.layer()
    }

    pub(crate) fn changes_access(&self) -> bool {
        matches!(self.request.asks, Asks::Access(Access::Enable { .. } | Access::Disable { .. }))
    }

    pub(crate) fn has_succeeded(&self) -> bool {
        self.ret == Some(Code::SUCCESS)
    }
}

/// The source or destination argument of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
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
    pub(crate) given: Operand,
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

/// A copy in full: both sides, and its extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sides {
    pub(crate) sides: [Side; 2],
    /// Width, height and depth; bytes, 1 and 1 for a linear copy.
    pub(crate) extent: [u64; 3],
    pub(crate) is_3d: bool,
}

impl Sides {
    /// Those of the copy that a call asks for; none for other calls, and for parameters that could not be read.
    pub(crate) fn of(request: &Request<'_>) -> Option<Self> {
        let copy = request.copy()?;
        let (sides, extent) = match copy.shape {
            Shape::Linear => (sides_of_linear(copy), [copy.bytes, 1, 1]),
            Shape::Runtime3D(parms) => {
                let extent = [parms.extent.width, parms.extent.height, parms.extent.depth];
                (sides_of_runtime(copy, parms), extent.map(|size| size as u64))
            }
            Shape::Driver3D(peer) => {
                (sides_of_driver(copy, peer), [peer.WidthInBytes, peer.Height, peer.Depth].map(|size| size as u64))
            }
            Shape::Unreadable(_) => return None,
        };
        Some(Self { sides, extent, is_3d: copy.is_3d() })
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.extent.contains(&0)
    }

    pub(crate) fn has_array(&self) -> bool {
        self.sides.iter().any(|side| matches!(side.given, Operand::Array(_) | Operand::Both { .. }))
    }
}

fn sides_of_linear(copy: &Memcpy) -> [Side; 2] {
    let of = |name, address, named: Named| Side {
        name,
        given: Operand::Device(address),
        ordinal: named.ordinal(),
        context: match named {
            Named::Context(context) => Some(context),
            Named::Ordinal(_) | Named::Pointer => None,
        },
        position: [0; 3],
        pitch: 0,
        rows: 0,
        lod: 0,
    };
    [of("src", copy.src, copy.src_named), of("dst", copy.dst, copy.dst_named)]
}

fn sides_of_runtime(copy: &Memcpy, parms: &cudaMemcpy3DPeerParms) -> [Side; 2] {
    let (src, dst) = (&parms.srcPos, &parms.dstPos);
    let of = |name, array, pointer: cudaPitchedPtr, named: Named, position: [usize; 3]| Side {
        name,
        given: match (array, pointer.ptr) {
            (0, 0) => Operand::Nothing,
            (0, pointer) => Operand::Any(pointer as u64),
            (array, 0) => Operand::Array(array),
            (array, pointer) => Operand::Both { array, pointer: pointer as u64 },
        },
        ordinal: named.ordinal(),
        context: None,
        position: position.map(|at| at as u64),
        pitch: pointer.pitch as u64,
        rows: pointer.ysize as u64,
        lod: 0,
    };
    [
        of("src", parms.srcArray, parms.srcPtr, copy.src_named, [src.x, src.y, src.z]),
        of("dst", parms.dstArray, parms.dstPtr, copy.dst_named, [dst.x, dst.y, dst.z]),
    ]
}

fn sides_of_driver(copy: &Memcpy, peer: &CUDA_MEMCPY3D_PEER) -> [Side; 2] {
    let given = |kind, host: usize, device: u64, array| match (kind, array) {
        (MEMORYTYPE_HOST, _) if host == 0 => Operand::Nothing,
        (MEMORYTYPE_HOST, _) => Operand::Any(host as u64),
        (MEMORYTYPE_DEVICE, _) => Operand::Device(device),
        (MEMORYTYPE_UNIFIED, _) if device == 0 => Operand::Nothing,
        (MEMORYTYPE_UNIFIED, _) => Operand::Any(device),
        (MEMORYTYPE_ARRAY, 0) => Operand::Nothing,
        (MEMORYTYPE_ARRAY, array) => Operand::Array(array),
        _ => Operand::Type(kind),
    };
    // That of an array is ignored, memory of the host has none, and a regular copy names none.
    let has_context = |kind| is_pointer(kind) && copy.src_named != Named::Pointer;
    let of = |name, kind, given, context, position: [usize; 3], [pitch, rows, lod]: [usize; 3]| Side {
        name,
        given,
        ordinal: None,
        context: has_context(kind).then_some(context),
        position: position.map(|at| at as u64),
        pitch: pitch as u64,
        rows: rows as u64,
        lod: lod as u64,
    };
    let src = given(peer.srcMemoryType, peer.srcHost, peer.srcDevice, peer.srcArray);
    let dst = given(peer.dstMemoryType, peer.dstHost, peer.dstDevice, peer.dstArray);
    let (src_at, dst_at) = ([peer.srcXInBytes, peer.srcY, peer.srcZ], [peer.dstXInBytes, peer.dstY, peer.dstZ]);
    let src_rows = [peer.srcPitch, peer.srcHeight, peer.srcLOD];
    let dst_rows = [peer.dstPitch, peer.dstHeight, peer.dstLOD];
    [
        of("src", peer.srcMemoryType, src, peer.srcContext, src_at, src_rows),
        of("dst", peer.dstMemoryType, dst, peer.dstContext, dst_at, dst_rows),
    ]
}

/// By which name a function is given the pitch of a side: `src` or `dst`.
pub(super) fn pitch_name(function: Function, side: &str) -> String {
    let own = if side == "src" { "spitch" } else { "dpitch" };
    match function.layer() {
        _ if function.arguments().any(|name| name == own) => own.to_owned(),
        Layer::Runtime | Layer::Hip => format!("{side}Ptr.pitch"),
        Layer::Driver | Layer::Nvml => format!("{side}Pitch"),
    }
}

/// The device whose access a call is about, and the peer.
pub(crate) fn access_pair(driver: &impl Driver, request: &Request<'_>) -> Option<[i32; 2]> {
    let Some(Access::Enable { peer, .. } | Access::Disable { peer }) = request.access() else {
        return None;
    };
    let peer = match peer {
        Named::Ordinal(peer) => peer,
        Named::Context(context) => driver.device_of_context(context)?,
        Named::Pointer => return None,
    };
    Some([driver.device_of_context(driver.current_context()?)?, peer])
}
