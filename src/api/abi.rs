//! The vendors' C types, as far as intercepted functions use them.
//!
//! Enumerations are integer newtypes: a library newer than this table may pass any number. Each
//! type turns into a [`Value`], plain data that the trace can show.

use std::ffi::{c_char, c_void};

/// `cudaError_t` or `CUresult`: what a function returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Code(pub(crate) i32);

impl Code {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const INVALID_VALUE: Self = Self(1);
    pub(crate) const OUT_OF_MEMORY: Self = Self(2);
    /// The process ends.
    pub(crate) const DEINITIALIZED: Self = Self(4);
    pub(crate) const INVALID_PITCH: Self = Self(12);
    pub(crate) const INVALID_DEVICE: Self = Self(101);
    pub(crate) const PEER_ACCESS_UNSUPPORTED: Self = Self(217);
    pub(crate) const HOST_MEMORY_ALREADY_REGISTERED: Self = Self(712);
    pub(crate) const INVALID_HANDLE: Self = Self(400);
    pub(crate) const NOT_READY: Self = Self(600);
    pub(crate) const PEER_ACCESS_ALREADY_ENABLED: Self = Self(704);
    pub(crate) const PEER_ACCESS_NOT_ENABLED: Self = Self(705);
    pub(crate) const TOO_MANY_PEERS: Self = Self(711);
    pub(crate) const NOT_SUPPORTED: Self = Self(801);
    /// The documented code where a shared object lacks a symbol, in the runtime and the driver.
    pub(crate) const SHARED_OBJECT_SYMBOL_NOT_FOUND: Self = Self(302);
}

/// An argument as plain data, fit to be kept on the stack across the real call (nothing to drop).
///
/// The pointers are the program's: whoever reads through them says why that is sound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    /// An address or an opaque handle, shown in hexadecimal.
    Address(usize),
    /// A stream handle; 0, 1 and 2 have a meaning of their own.
    Stream(usize),
    Ordinal(i32),
    Int(i64),
    /// An unsigned number: flags, or a count of bytes.
    UInt(u64),
    /// `cudaDeviceP2PAttr` or `CUdevice_P2PAttribute`.
    P2pAttribute(i32),
    /// `cudaMemcpyKind` or `hipMemcpyKind`.
    MemcpyKind(i32),
    /// Where one `int` is written on success.
    OutInt(*mut i32),
    RuntimePeer3D(*const cudaMemcpy3DPeerParms),
    DriverPeer3D(*const CUDA_MEMCPY3D_PEER),
    Runtime3D(*const cudaMemcpy3DParms),
    Driver2D(*const CUDA_MEMCPY2D),
    /// The parameters of `cuMemcpy3D`, which lie where those of `cuMemcpy3DPeer` do; in place of contexts they have reserved words.
    Driver3D(*const CUDA_MEMCPY3D_PEER),
}

impl Value {
    /// The word as an argument like another: for a function that has one argument less than its row.
    pub(crate) fn as_the_word_of(self, like: Self) -> Self {
        let (Self::Address(word) | Self::Stream(word)) = self else {
            let Self::UInt(word) = self else { return self };
            return Self::Address(word as usize).as_the_word_of(like);
        };
        match like {
            Self::UInt(_) => Self::UInt(word as u64),
            Self::Stream(_) => Self::Stream(word),
            _ => self,
        }
    }
}

/// Every argument type can say this of itself.
pub(crate) trait Argument: Copy {
    /// The argument as plain data, which may point to it.
    fn value(&self) -> Value;
}

macro_rules! arguments {
    ($( $(#[$doc:meta])* $name:ident($inner:ty) => $value:expr; )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        pub(crate) struct $name(pub(crate) $inner);

        impl Argument for $name {
            #[inline(always)]
            fn value(&self) -> Value {
                let show: fn($inner) -> Value = $value;
                show(self.0)
            }
        }
    )* };
}

arguments! {
    /// `void *`, `const void *`, `CUarray`, and pointers to arrays.
    Pointer(*mut c_void) => |p| Value::Address(p as usize);
    /// `CUdeviceptr`.
    DevicePointer(u64) => |p| Value::Address(p as usize);
    /// `CUcontext`.
    Context(*mut c_void) => |p| Value::Address(p as usize);
    /// `cudaStream_t`, `CUstream`.
    Stream(*mut c_void) => |p| Value::Stream(p as usize);
    /// `int` or `CUdevice`: a device ordinal.
    Ordinal(i32) => Value::Ordinal;
    /// `size_t`.
    Size(usize) => |n| Value::UInt(n as u64);
    /// `int`.
    Int(i32) => |n| Value::Int(i64::from(n));
    /// `unsigned char`.
    UChar(u8) => |n| Value::UInt(u64::from(n));
    /// `unsigned short`.
    UShort(u16) => |n| Value::UInt(u64::from(n));
    /// `unsigned int`.
    UInt(u32) => |n| Value::UInt(u64::from(n));
    /// `cuuint64_t`.
    UInt64(u64) => Value::UInt;
    /// `cudaDeviceP2PAttr`, `CUdevice_P2PAttribute`.
    P2pAttribute(i32) => Value::P2pAttribute;
    /// `cudaMemcpyKind`.
    MemcpyKind(i32) => Value::MemcpyKind;
    /// `int *`: exactly one, written on success.
    OutInt(*mut i32) => Value::OutInt;
    /// `const char *`.
    Text(*const c_char) => |p| Value::Address(p as usize);
    RuntimePeer3D(*const cudaMemcpy3DPeerParms) => Value::RuntimePeer3D;
    DriverPeer3D(*const CUDA_MEMCPY3D_PEER) => Value::DriverPeer3D;
    Runtime3D(*const cudaMemcpy3DParms) => Value::Runtime3D;
    Driver2D(*const CUDA_MEMCPY2D) => Value::Driver2D;
    /// `const CUDA_MEMCPY3D *`.
    Driver3D(*const CUDA_MEMCPY3D_PEER) => Value::Driver3D;
}

/// `CUipcMemHandle`, in the memory of the arguments.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct IpcMemHandle([u8; 64]);

/// `CUipcEventHandle`, likewise.
pub(crate) type IpcEventHandle = IpcMemHandle;

impl Argument for IpcMemHandle {
    #[inline(always)]
    fn value(&self) -> Value {
        Value::Address(self.0.as_ptr() as usize)
    }
}

/// `dim3`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Dim3([u32; 3]);

impl Argument for Dim3 {
    #[inline(always)]
    fn value(&self) -> Value {
        let [x, y, z] = self.0.map(u64::from);
        Value::UInt(x.wrapping_mul(y).wrapping_mul(z))
    }
}

/// `cudaPos`, in elements of the object it lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "the vendor's spelling")]
pub(crate) struct cudaPos {
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) z: usize,
}

/// `cudaPitchedPtr`; pitch and width in bytes, height in rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "the vendor's spelling")]
pub(crate) struct cudaPitchedPtr {
    pub(crate) ptr: usize,
    pub(crate) pitch: usize,
    pub(crate) xsize: usize,
    pub(crate) ysize: usize,
}

/// `cudaExtent`; width in elements if an array takes part, else in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "the vendor's spelling")]
pub(crate) struct cudaExtent {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// `cudaMemcpy3DPeerParms`. Exactly one of array and pointer is given a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(non_camel_case_types, non_snake_case, reason = "the vendor's spelling")]
pub(crate) struct cudaMemcpy3DPeerParms {
    pub(crate) srcArray: usize,
    pub(crate) srcPos: cudaPos,
    pub(crate) srcPtr: cudaPitchedPtr,
    pub(crate) srcDevice: i32,
    pub(crate) dstArray: usize,
    pub(crate) dstPos: cudaPos,
    pub(crate) dstPtr: cudaPitchedPtr,
    pub(crate) dstDevice: i32,
    pub(crate) extent: cudaExtent,
}

/// `cudaMemcpy3DParms`: the same without devices, and with a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(non_camel_case_types, non_snake_case, reason = "the vendor's spelling")]
pub(crate) struct cudaMemcpy3DParms {
    pub(crate) srcArray: usize,
    pub(crate) srcPos: cudaPos,
    pub(crate) srcPtr: cudaPitchedPtr,
    pub(crate) dstArray: usize,
    pub(crate) dstPos: cudaPos,
    pub(crate) dstPtr: cudaPitchedPtr,
    pub(crate) extent: cudaExtent,
    pub(crate) kind: i32,
}

impl From<cudaMemcpy3DParms> for cudaMemcpy3DPeerParms {
    fn from(p: cudaMemcpy3DParms) -> Self {
        let cudaMemcpy3DParms { srcArray, srcPos, srcPtr, dstArray, dstPos, dstPtr, extent, kind: _ } = p;
        Self { srcArray, srcPos, srcPtr, srcDevice: 0, dstArray, dstPos, dstPtr, dstDevice: 0, extent }
    }
}

/// Whether a `cudaMemcpyKind` or `hipMemcpyKind` says that both sides may be memory of devices: `…DeviceToDevice`, `…Default`, and
/// `hipMemcpyDeviceToDeviceNoCU`.
pub(crate) const fn is_between_devices(kind: i32) -> bool {
    matches!(kind, 3 | 4 | 1024)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(non_camel_case_types, non_snake_case, reason = "the vendor's spelling")]
pub(crate) struct CUDA_MEMCPY2D {
    pub(crate) srcXInBytes: usize,
    pub(crate) srcY: usize,
    pub(crate) srcMemoryType: u32,
    pub(crate) srcHost: usize,
    pub(crate) srcDevice: u64,
    pub(crate) srcArray: usize,
    pub(crate) srcPitch: usize,
    pub(crate) dstXInBytes: usize,
    pub(crate) dstY: usize,
    pub(crate) dstMemoryType: u32,
    pub(crate) dstHost: usize,
    pub(crate) dstDevice: u64,
    pub(crate) dstArray: usize,
    pub(crate) dstPitch: usize,
    pub(crate) WidthInBytes: usize,
    pub(crate) Height: usize,
}

/// `CUDA_MEMCPY3D_PEER`. The memory types say which of host, device and array is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(non_camel_case_types, non_snake_case, reason = "the vendor's spelling")]
pub(crate) struct CUDA_MEMCPY3D_PEER {
    pub(crate) srcXInBytes: usize,
    pub(crate) srcY: usize,
    pub(crate) srcZ: usize,
    pub(crate) srcLOD: usize,
    pub(crate) srcMemoryType: u32,
    pub(crate) srcHost: usize,
    pub(crate) srcDevice: u64,
    pub(crate) srcArray: usize,
    pub(crate) srcContext: usize,
    pub(crate) srcPitch: usize,
    pub(crate) srcHeight: usize,
    pub(crate) dstXInBytes: usize,
    pub(crate) dstY: usize,
    pub(crate) dstZ: usize,
    pub(crate) dstLOD: usize,
    pub(crate) dstMemoryType: u32,
    pub(crate) dstHost: usize,
    pub(crate) dstDevice: u64,
    pub(crate) dstArray: usize,
    pub(crate) dstContext: usize,
    pub(crate) dstPitch: usize,
    pub(crate) dstHeight: usize,
    pub(crate) WidthInBytes: usize,
    pub(crate) Height: usize,
    pub(crate) Depth: usize,
}

pub(crate) const MEMORYTYPE_HOST: u32 = 1;
pub(crate) const MEMORYTYPE_DEVICE: u32 = 2;
pub(crate) const MEMORYTYPE_ARRAY: u32 = 3;
pub(crate) const MEMORYTYPE_UNIFIED: u32 = 4;

/// Whether a `CUmemorytype` means a `CUdeviceptr`: that of a device, or of the unified address space.
pub(crate) fn is_pointer(memory_type: u32) -> bool {
    memory_type == MEMORYTYPE_DEVICE || memory_type == MEMORYTYPE_UNIFIED
}

impl From<CUDA_MEMCPY2D> for CUDA_MEMCPY3D_PEER {
    fn from(p: CUDA_MEMCPY2D) -> Self {
        Self {
            srcXInBytes: p.srcXInBytes,
            srcY: p.srcY,
            srcMemoryType: p.srcMemoryType,
            srcHost: p.srcHost,
            srcDevice: p.srcDevice,
            srcArray: p.srcArray,
            srcPitch: p.srcPitch,
            dstXInBytes: p.dstXInBytes,
            dstY: p.dstY,
            dstMemoryType: p.dstMemoryType,
            dstHost: p.dstHost,
            dstDevice: p.dstDevice,
            dstArray: p.dstArray,
            dstPitch: p.dstPitch,
            WidthInBytes: p.WidthInBytes,
            Height: p.Height,
            Depth: 1,
            srcHeight: p.Height,
            dstHeight: p.Height,
            ..Self::ZERO
        }
    }
}

impl CUDA_MEMCPY3D_PEER {
    pub(crate) const ZERO: Self = Self {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: 0,
        srcHost: 0,
        srcDevice: 0,
        srcArray: 0,
        srcContext: 0,
        srcPitch: 0,
        srcHeight: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: 0,
        dstHost: 0,
        dstDevice: 0,
        dstArray: 0,
        dstContext: 0,
        dstPitch: 0,
        dstHeight: 0,
        WidthInBytes: 0,
        Height: 0,
        Depth: 0,
    };
}

// Sizes and offsets of the vendor's headers, release 13.0.
const _: () = {
    assert!(size_of::<cudaMemcpy3DPeerParms>() == 168);
    assert!(std::mem::offset_of!(cudaMemcpy3DPeerParms, srcDevice) == 64);
    assert!(std::mem::offset_of!(cudaMemcpy3DPeerParms, dstArray) == 72);
    assert!(std::mem::offset_of!(cudaMemcpy3DPeerParms, dstDevice) == 136);
    assert!(std::mem::offset_of!(cudaMemcpy3DPeerParms, extent) == 144);
    assert!(size_of::<CUDA_MEMCPY3D_PEER>() == 200);
    assert!(size_of::<cudaMemcpy3DParms>() == 160);
    assert!(std::mem::offset_of!(cudaMemcpy3DParms, kind) == 152);
    assert!(size_of::<CUDA_MEMCPY2D>() == 128);
};
