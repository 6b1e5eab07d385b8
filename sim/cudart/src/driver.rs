//! The driver: found once, then called only through the pointers that it gave.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::{size_of, transmute_copy};
use std::ptr;
use std::sync::OnceLock;

use crate::abi::{Opaque, Out};
use crate::error::{Error, Result};
use crate::flavour;

/// `cuGetProcAddress` of 11.3, and of 12.0 with a place for the status.
type GetProcAddressV1 = extern "C-unwind" fn(*const c_char, *mut *mut c_void, i32, u64) -> u32;
type GetProcAddressV2 = extern "C-unwind" fn(*const c_char, *mut *mut c_void, i32, u64, *mut u32) -> u32;

/// The way to find all functions, in the form that this version of the runtime uses.
#[derive(Clone, Copy)]
enum Finder {
    /// `dlsym`, until 11.2.
    Symbols(Library),
    V1(GetProcAddressV1),
    V2(GetProcAddressV2),
}

/// A library that dlopen gave.
#[derive(Clone, Copy)]
struct Library(*mut c_void);

// SAFETY: a handle may be used by any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// Functions of which the runtime took the first form when it found them by `dlsym`: the second came later.
const FIRST_FORMS: [&CStr; 6] = [
    c"cuDevicePrimaryCtxReset",
    c"cuDevicePrimaryCtxSetFlags",
    c"cuDevicePrimaryCtxRelease",
    c"cuEventElapsedTime",
    c"cuCtxGetDevice",
    c"cuCtxSynchronize",
];

const DEFAULT_FLAGS: u64 = 0;
const PER_THREAD_FLAGS: u64 = 2;

/// Which default stream a runtime function stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefaultStream {
    /// The one of the name without suffix.
    Legacy,
    /// The one of `_ptds` and `_ptsz` names.
    PerThread,
}

impl Finder {
    /// `dlopen`, `dlsym`, then the function's own idea of itself.
    fn new() -> Option<Finder> {
        // SAFETY: a terminated name; the library stays loaded for ever.
        let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        if flavour::major() < 11 {
            return Some(Finder::Symbols(Library(library)));
        }
        if flavour::major() < 12 {
            let first = Finder::V1(symbol(library, c"cuGetProcAddress")?);
            return Some(Finder::V1(function(first.find(c"cuGetProcAddress", 11030, DEFAULT_FLAGS)?)?));
        }
        let first = Finder::V2(symbol(library, c"cuGetProcAddress_v2")?);
        // The real runtime asks for this first and does not mind the answer.
        let _ = first.find(c"", 0, DEFAULT_FLAGS);
        let _ = first.find(c"cuGetProcAddress", 11030, DEFAULT_FLAGS);
        Some(Finder::V2(function(first.find(c"cuGetProcAddress", 12000, DEFAULT_FLAGS)?)?))
    }

    fn find(self, name: &CStr, version: i32, flags: u64) -> Option<*mut c_void> {
        let mut found = ptr::null_mut();
        let code = match self {
            Finder::Symbols(Library(library)) => return named(library, name, version, flags),
            Finder::V1(find) => find(name.as_ptr(), &raw mut found, version, flags),
            Finder::V2(find) => find(name.as_ptr(), &raw mut found, version, flags, ptr::null_mut()),
        };
        (code == 0 && !found.is_null()).then_some(found)
    }

    fn function<F: Copy>(self, name: &CStr, version: i32, flags: u64) -> Option<F> {
        function(self.find(name, version, flags)?)
    }
}

/// A function by the name of its symbol: forms of arguments are told apart by `_v2`, default streams by `_ptds` and `_ptsz`.
fn named(library: *mut c_void, name: &CStr, version: i32, flags: u64) -> Option<*mut c_void> {
    // The form of captures that names a mode came with 10.1.
    let is_capture = name == c"cuStreamBeginCapture";
    let has_first =
        (version >= 10000 && !is_capture) || FIRST_FORMS.contains(&name) || (is_capture && flavour::version() < 10010);
    let forms: &[&str] = if has_first { &[""] } else { &["_v2", ""] };
    let defaults: &[&str] = if flags == PER_THREAD_FLAGS { &["_ptds", "_ptsz"] } else { &[""] };
    let name = name.to_str().ok()?;
    let names = forms.iter().flat_map(|form| defaults.iter().map(move |default| format!("{name}{form}{default}")));
    names.filter_map(|name| CString::new(name).ok()).find_map(|name| symbol(library, &name))
}

fn symbol<F: Copy>(library: *mut c_void, name: &CStr) -> Option<F> {
    // SAFETY: an open library and a terminated name.
    function(unsafe { libc::dlsym(library, name.as_ptr()) })
}

/// Turns an address of the driver into a function. `F` has to be the documented type of what was asked for.
fn function<F: Copy>(address: *mut c_void) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    if address.is_null() {
        return None;
    }
    // SAFETY: same size, not NULL, and the driver promises a function of the type that goes with name and version.
    Some(unsafe { transmute_copy(&address) })
}

/// The name to ask the driver for: the second one, if there are two.
macro_rules! asked {
    ($symbol:ident $name:ident) => {
        stringify!($name)
    };
    ($name:ident) => {
        stringify!($name)
    };
}

/// Declares the functions that the runtime uses, each with the version to ask for and its C arguments. Those
/// that have a per-thread default stream form are asked for twice, the second time for that. A form whose arguments
/// have changed goes by the name of its symbol; after `=` comes what to ask for.
macro_rules! functions {
    (common { $($name:ident $(= $sought:ident)? $version:literal ($($arg:ident: $type:ty),*);)* }
     streams { $($twin:ident $(= $asked:ident)? $twin_version:literal $thread_version:literal ($($twin_arg:ident: $twin_type:ty),*);)* }) => {
        /// The driver's functions. If an old driver lacks one, only the calls fail that need it.
        #[allow(non_snake_case, reason = "the vendor's names")]
        pub(crate) struct Driver {
            finder: Finder,
            /// How many devices there are.
            pub(crate) devices: i32,
            $($name: Option<extern "C-unwind" fn($($type),*) -> u32>,)*
            $($twin: [Option<extern "C-unwind" fn($($twin_type),*) -> u32>; 2],)*
        }

        impl Driver {
            #[inline(never)]
            fn look_up(finder: Finder) -> Box<Driver> {
                Box::new(Driver {
                    finder,
                    devices: 0,
                    $($name: {
                        let name = c_name(concat!(asked!($name $($sought)?), "\0"));
                        finder.function(name, $version, DEFAULT_FLAGS)
                    },)*
                    $($twin: {
                        let name = c_name(concat!(asked!($twin $($asked)?), "\0"));
                        [
                            finder.function(name, $twin_version, DEFAULT_FLAGS),
                            finder.function(name, $thread_version, PER_THREAD_FLAGS),
                        ]
                    },)*
                })
            }
        }

        #[allow(non_snake_case, reason = "the vendor's names")]
        #[allow(clippy::too_many_arguments, reason = "as many as the vendor's functions have")]
        impl Driver {
            $(pub(crate) fn $name(&self, $($arg: $type),*) -> Result<()> {
                check(self.$name.map(|function| function($($arg),*)))
            })*

            $(pub(crate) fn $twin(&self, default: DefaultStream, $($twin_arg: $twin_type),*) -> Result<()> {
                let [legacy, per_thread] = self.$twin;
                let function = if default == DefaultStream::Legacy { legacy } else { per_thread };
                check(function.map(|function| function($($twin_arg),*)))
            })*
        }
    };
}

const fn c_name(name: &str) -> &CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

fn check(code: Option<u32>) -> Result<()> {
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(Error(code)),
        None => Err(Error::CALL_REQUIRES_NEWER_DRIVER),
    }
}

/// A pointer to a local of the runtime, as a driver's argument.
pub(crate) type To<T> = *mut T;
/// A pointer to what the driver only reads.
pub(crate) type From<T> = *const T;

functions! {
    common {
        cuInit 2000 (flags: u32);
        cuDriverGetVersion 2020 (version: To<i32>);
        cuDeviceGetCount 2000 (count: To<i32>);
        cuDeviceGetName 2000 (name: To<c_char>, length: i32, device: i32);
        cuDeviceTotalMem 3020 (bytes: To<u64>, device: i32);
        cuDeviceGetUuid 11040 (uuid: To<[u8; 16]>, device: i32);
        cuDeviceGetAttribute 2000 (value: To<i32>, attribute: i32, device: i32);
        cuDeviceGetPCIBusId 4010 (text: Out<c_char>, length: i32, device: i32);
        cuDeviceGetByPCIBusId 4010 (device: To<i32>, text: From<c_char>);
        cuDevicePrimaryCtxRetain 7000 (context: To<u64>, device: i32);
        cuDevicePrimaryCtxReset 11000 (device: i32);
        cuDevicePrimaryCtxSetFlags 11000 (device: i32, flags: u32);
        cuCtxGetCurrent 4000 (context: To<u64>);
        cuCtxSetCurrent 4000 (context: u64);
        cuCtxGetDevice 2000 (device: To<i32>);
        cuCtxGetApiVersion 3020 (context: u64, version: To<u32>);
        cuCtxGetFlags 7000 (flags: To<u32>);
        cuCtxSynchronize 2000 ();
        cuCtxGetStreamPriorityRange 5050 (least: Out<i32>, greatest: Out<i32>);
        cuDeviceCanAccessPeer 4000 (can: Out<i32>, device: i32, peer: i32);
        cuDeviceGetP2PAttribute 8000 (value: Out<i32>, attribute: i32, from: i32, to: i32);
        cuDeviceGetP2PAtomicCapabilities 13000 (
            capabilities: Out<u32>, operations: Opaque, count: u32, from: i32, to: i32
        );
        cuCtxEnablePeerAccess 4000 (peer: u64, flags: u32);
        cuCtxDisablePeerAccess 4000 (peer: u64);
        cuMemAlloc 3020 (pointer: To<u64>, size: u64);
        cuMemAllocPitch 3020 (pointer: To<u64>, pitch: To<u64>, width: u64, height: u64, element: u32);
        cuMemFree 3020 (pointer: u64);
        cuMemGetInfo 3020 (free: To<u64>, total: To<u64>);
        cuMemHostAlloc 2020 (pointer: To<u64>, size: u64, flags: u32);
        cuMemFreeHost 2000 (pointer: u64);
        cuMemHostRegister 6050 (pointer: u64, size: u64, flags: u32);
        cuMemHostUnregister 4000 (pointer: u64);
        cuMemHostGetDevicePointer 3020 (device: To<u64>, pointer: u64, flags: u32);
        cuMemHostGetFlags 2030 (flags: To<u32>, pointer: u64);
        cuIpcGetMemHandle 4010 (handle: Out<IpcHandle>, pointer: u64);
        cuIpcOpenMemHandle 11000 (pointer: Out<u64>, handle: IpcHandle, flags: u32);
        cuIpcCloseMemHandle 4010 (pointer: u64);
        cuIpcGetEventHandle 4010 (handle: Out<IpcHandle>, event: u64);
        cuIpcOpenEventHandle 4010 (event: Out<u64>, handle: IpcHandle);
        cuPointerGetAttributes 7000 (count: u32, attributes: From<u32>, data: From<*mut c_void>, pointer: u64);
        cuDeviceGetDefaultMemPool 11020 (pool: Out<u64>, device: i32);
        cuDeviceGetMemPool 11020 (pool: Out<u64>, device: i32);
        cuDeviceSetMemPool 11020 (device: i32, pool: u64);
        cuMemGetDefaultMemPool 13000 (pool: Out<u64>, location: Opaque, kind: u32);
        cuMemGetMemPool 13000 (pool: Out<u64>, location: Opaque, kind: u32);
        cuMemSetMemPool 13000 (location: Opaque, kind: u32, pool: u64);
        cuMemPoolCreate 11020 (pool: Out<u64>, properties: Opaque);
        cuMemPoolExportToShareableHandle 11020 (shareable: Opaque, pool: u64, handle_type: u32, flags: u64);
        cuMemPoolImportFromShareableHandle 11020 (pool: Out<u64>, shareable: Opaque, handle_type: u32, flags: u64);
        cuMemPoolExportPointer 11020 (data: Opaque, pointer: u64);
        cuMemPoolImportPointer 11020 (pointer: Out<u64>, pool: u64, data: Opaque);
        cuMemPoolDestroy 11020 (pool: u64);
        cuMemPoolSetAccess 11020 (pool: u64, descriptors: Opaque, count: u64);
        cuMemPoolGetAccess 11020 (flags: Out<u32>, pool: u64, location: Opaque);
        cuMemPoolTrimTo 11020 (pool: u64, keep: u64);
        cuMemPoolSetAttribute 11020 (pool: u64, attribute: u32, value: Opaque);
        cuMemPoolGetAttribute 11020 (pool: u64, attribute: u32, value: Opaque);
        cuArray3DCreate 3020 (array: To<u64>, descriptor: From<ArrayDescriptor>);
        cuArrayDestroy 2000 (array: u64);
        cuArray3DGetDescriptor 3020 (descriptor: To<ArrayDescriptor>, array: u64);
        cuStreamCreateWithPriority 5050 (stream: To<u64>, flags: u32, priority: i32);
        cuStreamDestroy 4000 (stream: u64);
        cuThreadExchangeStreamCaptureMode 10010 (mode: Out<u32>);
        cuGraphCreate 10000 (graph: Out<u64>, flags: u32);
        cuGraphDestroy 10000 (graph: u64);
        cuGraphGetNodes 10000 (graph: u64, nodes: Opaque, count: Out<u64>);
        cuGraphAddMemcpyNode 10000 (
            node: Out<u64>, graph: u64, after: Opaque, count: u64, copy: From<Memcpy3d>, context: u64
        );
        cuGraphAddChildGraphNode 10000 (node: Out<u64>, graph: u64, after: Opaque, count: u64, child: u64);
        cuGraphExecUpdate 10020 (exec: u64, graph: u64, error: Out<u64>, result: Out<u32>);
        cuGraphExecUpdate_v2 = cuGraphExecUpdate 12000 (exec: u64, graph: u64, result: Opaque);
        cuGraphExecMemcpyNodeSetParams 10000 (exec: u64, node: u64, copy: From<Memcpy3d>, context: u64);
        cuGraphExecChildGraphNodeSetParams 11010 (exec: u64, node: u64, child: u64);
        cuGraphNodeSetEnabled 11060 (exec: u64, node: u64, is_enabled: u32);
        cuGraphChildGraphNodeGetGraph 10000 (node: u64, graph: Out<u64>);
        cuGraphInstantiate 11000 (exec: Out<u64>, graph: u64, error: Opaque, log: Opaque, room: u64);
        cuGraphInstantiateWithFlags 11040 (exec: Out<u64>, graph: u64, flags: u64);
        cuGraphExecDestroy 10000 (exec: u64);
        cuLibraryLoadData 12000 (
            library: To<u64>, image: u64, options: Opaque, option_values: Opaque, option_count: u32,
            library_options: Opaque, library_values: Opaque, library_option_count: u32
        );
        cuLibraryGetKernel 12000 (kernel: To<u64>, library: u64, name: From<c_char>);
        cuKernelGetFunction 12000 (function: To<u64>, kernel: u64);
        cuEventCreate 2000 (event: To<u64>, flags: u32);
        cuEventDestroy 4000 (event: u64);
        cuEventQuery 2000 (event: u64);
        cuEventSynchronize 2000 (event: u64);
        cuEventElapsedTime 2000 (milliseconds: Out<f32>, start: u64, end: u64);
    }
    streams {
        cuMemcpy 4000 7000 (dst: u64, src: u64, size: u64);
        cuMemcpyAsync 4000 7000 (dst: u64, src: u64, size: u64, stream: u64);
        cuMemcpyHtoD 3020 7000 (dst: u64, src: u64, size: u64);
        cuMemcpyHtoDAsync 3020 7000 (dst: u64, src: u64, size: u64, stream: u64);
        cuMemcpyDtoH 3020 7000 (dst: u64, src: u64, size: u64);
        cuMemcpyDtoHAsync 3020 7000 (dst: u64, src: u64, size: u64, stream: u64);
        cuMemcpyDtoD 3020 7000 (dst: u64, src: u64, size: u64);
        cuMemcpyDtoDAsync 3020 7000 (dst: u64, src: u64, size: u64, stream: u64);
        cuMemcpy2DUnaligned 3020 7000 (copy: From<Memcpy2d>);
        cuMemcpy2DAsync 3020 7000 (copy: From<Memcpy2d>, stream: u64);
        cuMemcpy3D 3020 7000 (copy: From<Memcpy3d>);
        cuMemcpy3DAsync 3020 7000 (copy: From<Memcpy3d>, stream: u64);
        cuMemcpyPeer 4000 7000 (dst: u64, dst_context: u64, src: u64, src_context: u64, size: u64);
        cuMemcpyPeerAsync 4000 7000 (
            dst: u64, dst_context: u64, src: u64, src_context: u64, size: u64, stream: u64
        );
        cuMemcpy3DPeer 4000 7000 (copy: From<Memcpy3d>);
        cuMemcpy3DPeerAsync 4000 7000 (copy: From<Memcpy3d>, stream: u64);
        cuMemcpyBatchAsync 12080 12080 (
            dsts: Opaque, srcs: Opaque, sizes: Opaque, count: u64,
            attributes: Opaque, firsts: Opaque, attribute_count: u64, fail_index: Opaque, stream: u64
        );
        cuMemcpyBatchAsync_v2 = cuMemcpyBatchAsync 13000 13000 (
            dsts: Opaque, srcs: Opaque, sizes: Opaque, count: u64,
            attributes: Opaque, firsts: Opaque, attribute_count: u64, stream: u64
        );
        cuMemcpy3DBatchAsync 12080 12080 (
            count: u64, operations: Opaque, fail_index: Opaque, flags: u64, stream: u64
        );
        cuMemcpy3DBatchAsync_v2 = cuMemcpy3DBatchAsync 13000 13000 (
            count: u64, operations: Opaque, flags: u64, stream: u64
        );
        cuMemsetD8 3020 7000 (dst: u64, value: u8, count: u64);
        cuMemsetD8Async 3020 7000 (dst: u64, value: u8, count: u64, stream: u64);
        cuMemsetD2D8 3020 7000 (dst: u64, pitch: u64, value: u8, width: u64, height: u64);
        cuMemsetD2D8Async 3020 7000 (dst: u64, pitch: u64, value: u8, width: u64, height: u64, stream: u64);
        cuMemAllocAsync 11020 11020 (pointer: To<u64>, size: u64, stream: u64);
        cuMemAllocFromPoolAsync 11020 11020 (pointer: To<u64>, size: u64, pool: u64, stream: u64);
        cuMemFreeAsync 11020 11020 (pointer: u64, stream: u64);
        cuStreamSynchronize 2000 7000 (stream: u64);
        cuStreamQuery 2000 7000 (stream: u64);
        cuStreamWaitEvent 3020 7000 (stream: u64, event: u64, flags: u32);
        cuStreamGetFlags 5050 7000 (stream: u64, flags: Out<u32>);
        cuStreamGetPriority 5050 7000 (stream: u64, priority: Out<i32>);
        cuStreamIsCapturing 10000 10000 (stream: u64, status: Out<u32>);
        cuStreamBeginCapture 10010 10010 (stream: u64, mode: u32);
        cuStreamBeginCaptureToGraph 12030 12030 (
            stream: u64, graph: u64, after: Opaque, edges: Opaque, count: u64, mode: u32
        );
        cuStreamEndCapture 10000 10000 (stream: u64, graph: Out<u64>);
        cuStreamGetCaptureInfo 12030 12030 (
            stream: u64, status: Out<u32>, id: Out<u64>, graph: Opaque, after: Opaque, edges: Opaque, count: Opaque
        );
        cuGraphInstantiateWithParams 12000 12000 (exec: Out<u64>, graph: u64, parameters: Opaque);
        cuGraphUpload 11010 11010 (exec: u64, stream: u64);
        cuGraphLaunch 10000 10000 (exec: u64, stream: u64);
        cuStreamAddCallback 5000 7000 (stream: u64, callback: Opaque, data: Opaque, flags: u32);
        cuLaunchKernel 4000 7000 (
            function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
            shared: u32, stream: u64, arguments: Opaque, extra: Opaque
        );
        cuLaunchHostFunc 10000 10000 (stream: u64, function: Opaque, data: Opaque);
        cuEventRecord 2000 7000 (event: u64, stream: u64);
        cuEventRecordWithFlags 11010 11010 (event: u64, stream: u64, flags: u32);
    }
}

impl Driver {
    /// Asks for a function by name on behalf of the program.
    pub(crate) fn entry_point(&self, name: From<c_char>, version: i32, flags: u64) -> (u32, Opaque, u32) {
        let (mut found, mut status) = (ptr::null_mut(), 0);
        let code = match self.finder {
            // No such runtime hands out functions.
            Finder::Symbols(_) => Error::SYMBOL_NOT_FOUND.0,
            Finder::V1(find) => find(name, &raw mut found, version, flags),
            Finder::V2(find) => find(name, &raw mut found, version, flags, &raw mut status),
        };
        (code, Opaque(found), status)
    }
}

/// The driver, or why there is none: found out once.
pub(crate) fn get() -> Result<&'static Driver> {
    static DRIVER: OnceLock<Result<Box<Driver>>> = OnceLock::new();
    DRIVER.get_or_init(start).as_deref().map_err(|error| *error)
}

/// On the heap, and looked up in a frame of its own: the calling thread may have a small stack.
fn start() -> Result<Box<Driver>> {
    let mut driver = Driver::look_up(Finder::new().ok_or(Error::INSUFFICIENT_DRIVER)?);
    driver.cuInit(0)?;
    let mut devices = 0;
    driver.cuDeviceGetCount(&raw mut devices)?;
    driver.devices = devices;
    Ok(driver)
}

/// `CUipcMemHandle`, `CUipcEventHandle` and the runtime's names of them.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct IpcHandle([u64; 8]);

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ArrayDescriptor {
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
    pub(crate) format: u32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// One side of `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Side2d {
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) memory_type: u32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) pitch: u64,
}

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Memcpy2d {
    pub(crate) src: Side2d,
    pub(crate) dst: Side2d,
    pub(crate) width: u64,
    pub(crate) height: u64,
}

/// One side of `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Side3d {
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) z: u64,
    pub(crate) level: u64,
    pub(crate) memory_type: u32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    /// Reserved in `CUDA_MEMCPY3D`.
    pub(crate) context: u64,
    pub(crate) pitch: u64,
    pub(crate) height: u64,
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Memcpy3d {
    pub(crate) src: Side3d,
    pub(crate) dst: Side3d,
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
}

// Checked against the vendor's headers.
const _: () =
    assert!(size_of::<ArrayDescriptor>() == 40 && size_of::<Memcpy2d>() == 128 && size_of::<Memcpy3d>() == 200);
