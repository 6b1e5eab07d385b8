//! The functions of the driver that the shim calls itself.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute;

use super::types::{AccessDesc, AllocationProp, BatchNodeParams, Location, PoolProps};
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code};
use crate::real::LazySymbol;
use crate::real::loader::Handle;

pub(super) use crate::real::{asked, checked, is_ready};

/// A function of the driver, looked for once.
struct Entry(&'static CStr, LazySymbol);

impl Entry {
    const fn new(name: &'static CStr) -> Self {
        Self(name, LazySymbol::new())
    }

    fn get(&self) -> Option<*mut c_void> {
        self.1.get(|| Handle::to_loaded(c"libcuda.so.1").map(|driver| driver.symbol(self.0)))
    }
}

/// The two forms of a function: with the legacy default stream, and with one per thread.
pub(super) struct Forms {
    legacy: Entry,
    per_thread: Entry,
}

impl Forms {
    const fn new(legacy: &'static CStr, per_thread: &'static CStr) -> Self {
        Self { legacy: Entry::new(legacy), per_thread: Entry::new(per_thread) }
    }

    pub(super) fn get(&self, per_thread: bool) -> Option<*mut c_void> {
        if per_thread { self.per_thread.get() } else { self.legacy.get() }
    }
}

pub(super) static MEMCPY_ASYNC: Forms = Forms::new(c"cuMemcpyAsync", c"cuMemcpyAsync_ptsz");
pub(super) static MEMCPY_3D_ASYNC: Forms = Forms::new(c"cuMemcpy3DAsync_v2", c"cuMemcpy3DAsync_v2_ptsz");

/// Functions of the driver with their real signatures. A driver that lacks one returns 302 for it.
macro_rules! driver_functions {
    ($($(#[$doc:meta])* fn $name:ident $symbol:literal ($($argument:ident: $type:ty),* $(,)?);)*) => { $(
        $(#[$doc])*
        /// # Safety
        /// Pointers point to what the function documents; handles are the driver's.
        pub(super) unsafe fn $name($($argument: $type),*) -> Code {
            static ENTRY: Entry = Entry::new($symbol);
            let Some(function) = ENTRY.get() else { return Code::SHARED_OBJECT_SYMBOL_NOT_FOUND };
            // SAFETY: the entry holds what was looked up under that name.
            let function = unsafe { transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> Code>(function) };
            // SAFETY: the caller's.
            unsafe { function($($argument),*) }
        }
    )* };
}

driver_functions! {
    fn pointer_get_attribute c"cuPointerGetAttribute" (data: *mut c_void, attribute: c_int, address: u64);
    fn pointer_get_attributes c"cuPointerGetAttributes" (count: c_uint, attributes: *const c_int, data: *mut *mut c_void, address: u64);
    fn ctx_get_current c"cuCtxGetCurrent" (context: *mut usize);
    fn ctx_get_id c"cuCtxGetId" (context: usize, id: *mut u64);
    fn ctx_get_device c"cuCtxGetDevice" (device: *mut c_int);
    fn ctx_push_current c"cuCtxPushCurrent_v2" (context: usize);
    fn ctx_pop_current c"cuCtxPopCurrent_v2" (context: *mut usize);
    fn ctx_enable_peer_access c"cuCtxEnablePeerAccess" (peer: usize, flags: c_uint);
    fn device_primary_ctx_get_state c"cuDevicePrimaryCtxGetState" (device: c_int, flags: *mut c_uint, is_active: *mut c_int);
    fn device_primary_ctx_retain c"cuDevicePrimaryCtxRetain" (context: *mut usize, device: c_int);
    fn device_primary_ctx_release c"cuDevicePrimaryCtxRelease_v2" (device: c_int);
    fn driver_get_version c"cuDriverGetVersion" (version: *mut c_int);
    fn device_get_uuid c"cuDeviceGetUuid_v2" (uuid: *mut [u8; 16], device: c_int);
    fn device_get_uuid_1 c"cuDeviceGetUuid" (uuid: *mut [u8; 16], device: c_int);
    fn device_get_pci_bus_id c"cuDeviceGetPCIBusId" (text: *mut c_char, length: c_int, device: c_int);
    fn device_get_count c"cuDeviceGetCount" (count: *mut c_int);
    fn device_get_name c"cuDeviceGetName" (text: *mut c_char, length: c_int, device: c_int);
    fn device_get_p2p_attribute c"cuDeviceGetP2PAttribute" (value: *mut c_int, attribute: c_int, device: c_int, peer: c_int);
    fn device_can_access_peer c"cuDeviceCanAccessPeer" (can: *mut c_int, device: c_int, peer: c_int);
    fn device_get_default_mem_pool c"cuDeviceGetDefaultMemPool" (pool: *mut usize, device: c_int);
    fn exchange_capture_mode c"cuThreadExchangeStreamCaptureMode" (mode: *mut c_uint);
    fn event_create c"cuEventCreate" (event: *mut usize, flags: c_uint);
    fn event_record c"cuEventRecord" (event: usize, stream: usize);
    fn event_record_ptsz c"cuEventRecord_ptsz" (event: usize, stream: usize);
    fn ctx_get_flags c"cuCtxGetFlags" (flags: *mut c_uint);
    fn event_query c"cuEventQuery" (event: usize);
    fn event_destroy c"cuEventDestroy_v2" (event: usize);
    fn event_synchronize c"cuEventSynchronize" (event: usize);
    fn event_elapsed_time c"cuEventElapsedTime" (milliseconds: *mut f32, start: usize, end: usize);
    fn mem_pool_get_access c"cuMemPoolGetAccess" (flags: *mut c_uint, pool: usize, location: *const Location);
    fn mem_pool_set_access c"cuMemPoolSetAccess" (pool: usize, grants: *const AccessDesc, count: usize);
    fn mem_pool_create c"cuMemPoolCreate" (pool: *mut usize, properties: *const PoolProps);
    fn mem_alloc_from_pool_async c"cuMemAllocFromPoolAsync" (address: *mut u64, bytes: usize, pool: usize, stream: usize);
    fn mem_alloc c"cuMemAlloc_v2" (address: *mut u64, bytes: usize);
    fn mem_get_allocation_granularity c"cuMemGetAllocationGranularity" (bytes: *mut usize, properties: *const AllocationProp, option: c_int);
    fn mem_create c"cuMemCreate" (handle: *mut u64, bytes: usize, properties: *const AllocationProp, flags: u64);
    fn mem_address_reserve c"cuMemAddressReserve" (address: *mut u64, bytes: usize, alignment: usize, wish: u64, flags: u64);
    fn mem_map c"cuMemMap" (address: u64, bytes: usize, offset: usize, handle: u64, flags: u64);
    fn mem_retain_allocation_handle c"cuMemRetainAllocationHandle" (handle: *mut usize, address: usize);
    fn mem_release c"cuMemRelease" (handle: usize);
    fn mem_get_allocation_properties c"cuMemGetAllocationPropertiesFromHandle" (properties: *mut AllocationProp, handle: usize);
    fn mem_get_access c"cuMemGetAccess" (flags: *mut u64, location: *const Location, address: u64);
    fn mem_set_access c"cuMemSetAccess" (address: u64, bytes: usize, grants: *const AccessDesc, count: usize);
    fn mem_host_register c"cuMemHostRegister_v2" (host: usize, bytes: usize, flags: c_uint);
    fn graph_get_nodes c"cuGraphGetNodes" (graph: usize, nodes: *mut usize, count: *mut usize);
    fn graph_get_edges c"cuGraphGetEdges" (graph: usize, from: *mut usize, to: *mut usize, count: *mut usize);
    fn graph_node_get_type c"cuGraphNodeGetType" (node: usize, kind: *mut c_uint);
    fn graph_memcpy_node_get_params c"cuGraphMemcpyNodeGetParams" (node: usize, parameters: *mut CUDA_MEMCPY3D_PEER);
    fn graph_child_graph_node_get_graph c"cuGraphChildGraphNodeGetGraph" (node: usize, graph: *mut usize);
    fn graph_add_event_record_node c"cuGraphAddEventRecordNode" (node: *mut usize, graph: usize, behind: *const usize, count: usize, event: usize);
    fn graph_create c"cuGraphCreate" (graph: *mut usize, flags: c_uint);
    fn graph_destroy c"cuGraphDestroy" (graph: usize);
    fn graph_add_memcpy_node c"cuGraphAddMemcpyNode" (node: *mut usize, graph: usize, behind: *const usize, count: usize, copy: *const CUDA_MEMCPY3D_PEER, context: usize);
    fn graph_node_get_params c"cuGraphNodeGetParams" (node: usize, parameters: *mut BatchNodeParams);
    fn graph_destroy_node c"cuGraphDestroyNode" (node: usize);
    fn func_get_param_info c"cuFuncGetParamInfo" (function: usize, index: usize, offset: *mut usize, bytes: *mut usize);
    fn kernel_get_param_info c"cuKernelGetParamInfo" (kernel: usize, index: usize, offset: *mut usize, bytes: *mut usize);
    fn func_get_name c"cuFuncGetName" (name: *mut *const c_char, function: usize);
    fn kernel_get_name c"cuKernelGetName" (name: *mut *const c_char, kernel: usize);
    fn stream_create c"cuStreamCreate" (stream: *mut usize, flags: c_uint);
    fn stream_destroy c"cuStreamDestroy_v2" (stream: usize);
    fn stream_get_ctx c"cuStreamGetCtx" (stream: usize, context: *mut usize);
    fn stream_get_ctx_ptsz c"cuStreamGetCtx_ptsz" (stream: usize, context: *mut usize);
    fn stream_is_capturing c"cuStreamIsCapturing" (stream: usize, status: *mut c_uint);
    fn stream_is_capturing_ptsz c"cuStreamIsCapturing_ptsz" (stream: usize, status: *mut c_uint);
    fn stream_wait_event c"cuStreamWaitEvent" (stream: usize, event: usize, flags: c_uint);
    fn stream_wait_event_ptsz c"cuStreamWaitEvent_ptsz" (stream: usize, event: usize, flags: c_uint);
    fn stream_query c"cuStreamQuery" (stream: usize);
    fn stream_synchronize c"cuStreamSynchronize" (stream: usize);
    fn memcpy_3d_async c"cuMemcpy3DAsync_v2" (copy: *const CUDA_MEMCPY3D_PEER, stream: usize);
    fn memcpy_async c"cuMemcpyAsync" (dst: u64, src: u64, bytes: usize, stream: usize);
    fn memcpy_host_to_device c"cuMemcpyHtoDAsync_v2" (dst: u64, src: usize, bytes: usize, stream: usize);
    fn memcpy_device_to_host c"cuMemcpyDtoHAsync_v2" (dst: usize, src: u64, bytes: usize, stream: usize);
    fn memcpy_peer c"cuMemcpyPeerAsync" (dst: u64, dst_context: usize, src: u64, src_context: usize, bytes: usize, stream: usize);
}

pub(super) fn is_missing(code: Code) -> bool {
    code == Code::SHARED_OBJECT_SYMBOL_NOT_FOUND
}

pub(crate) fn is_loaded() -> bool {
    MEMCPY_ASYNC.get(false).is_some()
}
