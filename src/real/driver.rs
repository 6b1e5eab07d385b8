//! The few calls that the shim itself makes to the real driver.

use std::alloc::{Layout, alloc_zeroed};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::{transmute, zeroed};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use super::loader::{self, Handle};
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code, MEMORYTYPE_DEVICE, MEMORYTYPE_HOST};
use crate::os;
use crate::policy::access::HALF;
use crate::policy::capture::{self, Replacement};
use crate::policy::full::{self, Answer, DevicePair};
use crate::policy::{Driver, Holder, Memory, Scratch, ScratchKind, Span};

/// A function of the driver, looked for once.
struct Entry {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Entry {
    /// In place of the address of a function that the driver does not have.
    const ABSENT: *mut c_void = ptr::without_provenance_mut(1);

    const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(ptr::null_mut()) }
    }

    fn get(&self) -> Option<*mut c_void> {
        let mut found = self.found.load(Relaxed);
        if found.is_null() {
            found = os::undisturbed(|| {
                let driver = Handle::to_loaded(c"libcuda.so.1");
                let found = driver.map(|driver| driver.symbol(self.name).filter(|&found| loader::pin(found)));
                loader::forget_error();
                // A driver that is there and lacks it is not asked again.
                found.map(|found| found.unwrap_or(Self::ABSENT))
            })?;
            self.found.store(found, Relaxed);
        }
        (found != Self::ABSENT).then_some(found)
    }
}

/// The two forms of a function: with the legacy default stream, and with one per thread.
struct Forms {
    legacy: Entry,
    per_thread: Entry,
}

impl Forms {
    const fn new(legacy: &'static CStr, per_thread: &'static CStr) -> Self {
        Self { legacy: Entry::new(legacy), per_thread: Entry::new(per_thread) }
    }

    fn get(&self, per_thread: bool) -> Option<*mut c_void> {
        if per_thread { self.per_thread.get() } else { self.legacy.get() }
    }
}

static IS_CAPTURING: Forms = Forms::new(c"cuStreamIsCapturing", c"cuStreamIsCapturing_ptsz");
static STREAM_GET_CTX: Forms = Forms::new(c"cuStreamGetCtx", c"cuStreamGetCtx_ptsz");
static EVENT_RECORD: Forms = Forms::new(c"cuEventRecord", c"cuEventRecord_ptsz");
static MEMCPY_ASYNC: Forms = Forms::new(c"cuMemcpyAsync", c"cuMemcpyAsync_ptsz");
static MEMCPY_3D_ASYNC: Forms = Forms::new(c"cuMemcpy3DAsync_v2", c"cuMemcpy3DAsync_v2_ptsz");

/// Functions of the driver with their real signatures. A driver that lacks one answers 302 for it.
macro_rules! driver_functions {
    ($($(#[$doc:meta])* fn $name:ident $symbol:literal ($($argument:ident: $type:ty),* $(,)?);)*) => { $(
        $(#[$doc])*
        /// # Safety
        /// Pointers point to what the function documents; handles are the driver's.
        unsafe fn $name($($argument: $type),*) -> Code {
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
    fn event_query c"cuEventQuery" (event: usize);
    fn event_destroy c"cuEventDestroy_v2" (event: usize);
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
    fn mem_get_access c"cuMemGetAccess" (flags: *mut u64, location: *const Location, address: u64);
    fn mem_set_access c"cuMemSetAccess" (address: u64, bytes: usize, grants: *const AccessDesc, count: usize);
    fn mem_host_register c"cuMemHostRegister_v2" (host: usize, bytes: usize, flags: c_uint);
    fn stream_create c"cuStreamCreate" (stream: *mut usize, flags: c_uint);
    fn stream_destroy c"cuStreamDestroy_v2" (stream: usize);
    fn stream_query c"cuStreamQuery" (stream: usize);
    fn memcpy_host_to_device c"cuMemcpyHtoDAsync_v2" (dst: u64, src: usize, bytes: usize, stream: usize);
    fn memcpy_device_to_host c"cuMemcpyDtoHAsync_v2" (dst: usize, src: u64, bytes: usize, stream: usize);
    fn memcpy_peer c"cuMemcpyPeerAsync" (dst: u64, dst_context: usize, src: u64, src_context: usize, bytes: usize, stream: usize);
}

/// `CUmemLocation`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Location {
    kind: c_int,
    id: c_int,
}

impl Location {
    fn device(id: i32) -> Self {
        /// `CU_MEM_LOCATION_TYPE_DEVICE`.
        const DEVICE: c_int = 1;
        Self { kind: DEVICE, id }
    }

    /// The device, if it is one.
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
const READ_WRITE: c_int = 3;

impl AccessDesc {
    /// Whether it takes access away.
    pub(crate) fn takes_away(&self) -> bool {
        self.flags == 0
    }

    /// The same device, given access: where it has that, nothing changes.
    pub(crate) fn giving(&self) -> Self {
        Self { flags: READ_WRITE, ..*self }
    }

    /// The device whose access is set, if it is a device and the flags are some that there are.
    pub(crate) fn device(&self) -> Option<i32> {
        self.location.device_id().filter(|_| [0, 1, READ_WRITE].contains(&self.flags))
    }
}

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const PINNED: c_int = 1;

/// `CUmemAllocationProp`.
#[repr(C)]
struct AllocationProp {
    kind: c_int,
    handle_types: c_int,
    location: Location,
    windows: usize,
    flags: u64,
}

/// `CUmemPoolProps`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct PoolProps {
    kind: c_int,
    handle_types: c_int,
    location: Location,
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

const _: () = {
    assert!(size_of::<ArrayDescriptor>() == 24 && size_of::<Array3dDescriptor>() == 40);
    assert!(size_of::<AccessDesc>() == 12 && size_of::<AllocationProp>() == 32 && size_of::<PoolProps>() == 88);
};

/// `CU_POINTER_ATTRIBUTE_…`
mod attribute {
    use std::ffi::c_int;
    pub(super) const CONTEXT: c_int = 1;
    pub(super) const MEMORY_TYPE: c_int = 2;
    pub(super) const IS_MANAGED: c_int = 8;
    pub(super) const DEVICE_ORDINAL: c_int = 9;
    pub(super) const IS_LEGACY_CUDA_IPC_CAPABLE: c_int = 10;
    pub(super) const RANGE_START_ADDR: c_int = 11;
    pub(super) const RANGE_SIZE: c_int = 12;
    pub(super) const MEMPOOL_HANDLE: c_int = 17;
}

/// The device that memory lives on, by the driver's own account; none for memory it does not know.
///
/// The query needs no context, waits for nothing and is allowed while a stream is being captured.
pub(crate) fn device_of(address: u64) -> Option<i32> {
    pointer_attribute(attribute::DEVICE_ORDINAL, address).filter(|&device| device >= 0)
}

/// An attribute of a pointer that is one `int`.
fn pointer_attribute(attribute: c_int, address: u64) -> Option<c_int> {
    let mut value: c_int = -1;
    // SAFETY: the attribute is one int, and `value` is one. The address is looked up, not read.
    let code = unsafe { pointer_get_attribute((&raw mut value).cast(), attribute, address) };
    (code == Code::SUCCESS).then_some(value)
}

/// Whether a driver has no such function.
fn is_missing(code: Code) -> bool {
    code == Code::SHARED_OBJECT_SYMBOL_NOT_FOUND
}

/// The result if the code is success.
fn checked<T>(code: Code, value: T) -> Result<T, Code> {
    if code == Code::SUCCESS { Ok(value) } else { Err(code) }
}

/// Asks the real function to enable peer access for the current context.
pub(crate) fn enable_peer_access(peer: usize, flags: u32) -> Code {
    // SAFETY: the function takes values; what the program passed it would pass itself.
    unsafe { ctx_enable_peer_access(peer, flags) }
}

/// Whether a device's primary context exists.
pub(crate) fn is_primary_active(device: i32) -> bool {
    let (mut flags, mut is_active) = (0, 0);
    // SAFETY: both are what the function writes.
    let code = unsafe { device_primary_ctx_get_state(device, &mut flags, &mut is_active) };
    code == Code::SUCCESS && is_active != 0
}

/// A device's primary context, if it exists.
fn primary_context(device: i32) -> Option<usize> {
    let mut context = 0;
    is_primary_active(device).then_some(())?;
    // SAFETY: `context` is what the function writes. There is one, so that none is made.
    checked(unsafe { device_primary_ctx_retain(&mut context, device) }, ()).ok()?;
    // SAFETY: gives back what was taken just now.
    unsafe { device_primary_ctx_release(device) };
    Some(context)
}

/// Whether the library of the driver is loaded.
pub(crate) fn is_loaded() -> bool {
    MEMCPY_ASYNC.get(false).is_some()
}

/// A context to name for memory in a copy: its own; for pools, and what the program mapped, the current one if it is on their
/// device, or the device's primary one; for what the driver does not know, the current one. 0 if there is none. And the
/// device, if the memory is known to be on one.
pub(crate) fn context_for(address: u64) -> (usize, Option<i32>) {
    let current = || RealDriver.current_context();
    let Some(Memory { device, holder, .. }) = RealDriver.memory(address) else { return (current().unwrap_or(0), None) };
    let is_here = |context: &usize| RealDriver.device_of_context(*context) == Some(device);
    let on_device = || current().filter(is_here).or_else(|| primary_context(device));
    let (context, device) = match holder {
        Holder::Context(context) => (Some(context), Some(device)),
        Holder::Pool(_) | Holder::Mapped => (on_device(), Some(device)),
        Holder::Host | Holder::Foreign => (current(), None),
    };
    (context.unwrap_or(0), device)
}

/// Runs `work` with a context current, and restores the one that was.
fn within<T>(context: usize, work: impl FnOnce() -> Result<T, Code>) -> Result<T, Code> {
    // SAFETY: the context is one that the driver knows; the stack of contexts is put back below.
    checked(unsafe { ctx_push_current(context) }, ())?;
    let result = work();
    let mut popped = 0;
    // SAFETY: `popped` is what the function writes.
    unsafe { ctx_pop_current(&mut popped) };
    result
}

/// Sets a pool's rights.
pub(crate) fn set_rights(pool: usize, grants: &[AccessDesc]) -> Code {
    // SAFETY: so many descriptors are there; the pool is the program's argument.
    unsafe { mem_pool_set_access(pool, grants.as_ptr(), grants.len()) }
}

/// The device of a pool that is made with these properties; none for memory of the host.
pub(crate) fn device_of_pool(properties: &PoolProps) -> Option<i32> {
    properties.location.device_id()
}

/// The driver of this process.
pub(crate) struct RealDriver;

impl Driver for RealDriver {
    fn is_capturing(&self, stream: usize, per_thread: bool) -> Option<bool> {
        type IsCapturing = unsafe extern "C" fn(usize, *mut c_uint) -> c_int;
        /// `CU_STREAM_CAPTURE_STATUS_ACTIVE`.
        const ACTIVE: c_uint = 1;

        // SAFETY: the entry holds what was looked up under that name.
        let query = unsafe { transmute::<*mut c_void, IsCapturing>(IS_CAPTURING.get(per_thread)?) };
        let mut status: c_uint = 0;
        // SAFETY: `status` is what the function writes. The stream is the program's own argument, which the real
        // function would get next.
        let code = unsafe { query(stream, &mut status) };
        (code == 0).then_some(status == ACTIVE)
    }

    fn is_device_memory(&self, address: u64) -> bool {
        pointer_attribute(attribute::MEMORY_TYPE, address).is_some_and(|kind| kind.cast_unsigned() == MEMORYTYPE_DEVICE)
    }

    fn memory(&self, address: u64) -> Option<Memory> {
        const WANTED: [c_int; 8] = [
            attribute::CONTEXT,
            attribute::MEMORY_TYPE,
            attribute::IS_MANAGED,
            attribute::DEVICE_ORDINAL,
            attribute::IS_LEGACY_CUDA_IPC_CAPABLE,
            attribute::RANGE_START_ADDR,
            attribute::RANGE_SIZE,
            attribute::MEMPOOL_HANDLE,
        ];
        let query = |count: usize| {
            let mut values = [0u64; WANTED.len()];
            let mut places = values.each_mut().map(|value| ptr::from_mut(value).cast::<c_void>());
            // SAFETY: each attribute is at most 8 bytes, and so is its place. The address is looked up, not read.
            let code =
                unsafe { pointer_get_attributes(count as c_uint, WANTED.as_ptr(), places.as_mut_ptr(), address) };
            (code == Code::SUCCESS).then_some(values)
        };
        // Drivers before 11.3 know no pools.
        let [context, kind, is_managed, device, is_own, start, bytes, pool] =
            query(WANTED.len()).or_else(|| query(WANTED.len() - 1))?;
        let (kind, device) = (kind as u32, device as u32 as i32);
        let holder = match (context as usize, pool as usize) {
            _ if kind == MEMORYTYPE_HOST => Holder::Host,
            _ if kind != MEMORYTYPE_DEVICE => return None,
            _ if is_managed as u32 & 1 != 0 => Holder::Foreign,
            (_, pool) if pool != 0 => Holder::Pool(pool),
            (0, _) => Holder::Mapped,
            // Memory of another process, whose device is not the one that the driver names.
            _ if is_own as u32 & 1 == 0 => Holder::Foreign,
            (context, _) => Holder::Context(context),
        };
        Some(Memory { range: (start, bytes), device, holder })
    }

    fn current_context(&self) -> Option<usize> {
        let mut context = 0;
        // SAFETY: `context` is what the function writes.
        let code = unsafe { ctx_get_current(&mut context) };
        (code == Code::SUCCESS && context != 0).then_some(context)
    }

    fn context_id(&self, context: usize) -> Option<u64> {
        let mut id = 0;
        if context == 0 {
            return None;
        }
        // SAFETY: `id` is what the function writes; it answers an error for a handle that is none (any more).
        match unsafe { ctx_get_id(context, &mut id) } {
            Code::SUCCESS => Some(id),
            Code::SHARED_OBJECT_SYMBOL_NOT_FOUND => Some(0),
            _ => None,
        }
    }

    fn device_of_context(&self, context: usize) -> Option<i32> {
        within(context, || {
            let mut device = -1;
            // SAFETY: `device` is what the function writes.
            checked(unsafe { ctx_get_device(&mut device) }, ()).map(|()| device)
        })
        .ok()
    }

    fn device_count(&self) -> i32 {
        let mut count = 0;
        // SAFETY: `count` is what the function writes.
        let code = unsafe { device_get_count(&mut count) };
        if code == Code::SUCCESS { count } else { 0 }
    }

    fn can_access(&self, device: i32, peer: i32) -> Result<bool, Code> {
        let mut can = 0;
        // SAFETY: `can` is what the function writes.
        checked(unsafe { device_can_access_peer(&mut can, device, peer) }, ()).map(|()| can != 0)
    }

    fn pool_access(&self, pool: usize, device: i32) -> bool {
        let mut flags = 0;
        // SAFETY: `flags` is what the function writes; the pool is one that memory belongs to, or the program's argument.
        let code = unsafe { mem_pool_get_access(&mut flags, pool, &Location::device(device)) };
        code == Code::SUCCESS && flags == READ_WRITE.cast_unsigned()
    }

    fn default_pool(&self, device: i32) -> Option<usize> {
        let mut pool = 0;
        // SAFETY: `pool` is what the function writes.
        let code = unsafe { device_get_default_mem_pool(&mut pool, device) };
        (code == Code::SUCCESS).then_some(pool)
    }

    fn mapped_access(&self, address: u64, device: i32) -> bool {
        let mut flags = 0;
        // SAFETY: `flags` is what the function writes; the address is looked up, not read.
        let code = unsafe { mem_get_access(&mut flags, &Location::device(device), address) };
        code == Code::SUCCESS && flags == READ_WRITE as u64
    }

    fn relaxed<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        /// `CU_STREAM_CAPTURE_MODE_RELAXED`.
        const RELAXED: c_uint = 2;
        let mut mode = RELAXED;
        // SAFETY: the function swaps the calling thread's mode with `mode`.
        let code = unsafe { exchange_capture_mode(&mut mode) };
        if code != Code::SUCCESS && (!is_missing(code) || capture::may_be_under_way()) {
            return None;
        }
        let result = work();
        if code == Code::SUCCESS {
            // SAFETY: as above; `mode` is what it was before.
            unsafe { exchange_capture_mode(&mut mode) };
        }
        Some(result)
    }

    fn enable(&self, context: usize, peer: usize) -> Code {
        within(context, || checked(enable_peer_access(peer, 0), ())).err().unwrap_or(Code::SUCCESS)
    }

    fn grant(&self, pool: usize, device: i32) -> Code {
        let desc = AccessDesc { location: Location::device(device), flags: READ_WRITE };
        // SAFETY: `desc` is one descriptor.
        unsafe { mem_pool_set_access(pool, &desc, 1) }
    }

    fn scratch(&self, kind: ScratchKind, context: (usize, u64), device: i32) -> Result<Scratch, Code> {
        within(context.0, || take_scratch(kind, context, device))
    }

    fn share(&self, scratch: &Scratch, device: i32) -> Result<(), Code> {
        let desc = AccessDesc { location: Location::device(device), flags: READ_WRITE };
        match scratch.kind {
            ScratchKind::Pool => checked(self.grant(scratch.pool, device), ()),
            // SAFETY: `desc` is one descriptor, and the range was mapped as a whole.
            ScratchKind::Mapped => checked(unsafe { mem_set_access(scratch.address, scratch.bytes, &desc, 1) }, ()),
            ScratchKind::Page => Ok(()),
        }
    }

    fn upload(&self, to: &Scratch, bytes: &[u8]) -> Result<(), Code> {
        let count = bytes.len().min(to.half());
        // SAFETY: the scratch's page-locked memory is ours and has that many bytes. A copy from it that an earlier proof has
        // left under way reads other bytes then, which nobody looks at.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.host as *mut u8, count) };
        // SAFETY: both have that many bytes and are never freed.
        within(to.context, || checked(unsafe { memcpy_host_to_device(to.address, to.host, count, to.stream) }, ()))
    }

    fn upload_downloaded(&self, from: &Scratch, to: &Scratch, bytes: usize) -> Result<(), Code> {
        let (host, bytes) = (from.host + from.half(), bytes.min(from.half()).min(to.half()));
        // SAFETY: as above.
        within(to.context, || checked(unsafe { memcpy_host_to_device(to.address, host, bytes, to.stream) }, ()))
    }

    fn send(&self, from: &Scratch, to: &Scratch, span: Span) -> Result<(), Code> {
        let offset = span.offset as u64;
        let (src, dst) = (from.address + offset, to.address + to.half() as u64 + offset);
        // SAFETY: the span lies in either half.
        let send = || unsafe { memcpy_peer(dst, to.context, src, from.context, span.bytes, from.stream) };
        within(from.context, || checked(send(), ()))
    }

    fn download(&self, from: &Scratch, bytes: usize) -> Result<(), Code> {
        let (half, bytes) = (from.half(), bytes.min(from.half()));
        // SAFETY: as above.
        let download =
            || unsafe { memcpy_device_to_host(from.host + half, from.address + half as u64, bytes, from.stream) };
        within(from.context, || checked(download(), ()))
    }

    fn downloaded(&self, from: &Scratch, bytes: usize) -> Option<Vec<u8>> {
        let bytes = bytes.min(from.half());
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes).ok()?;
        copy.resize(bytes, 0);
        // SAFETY: the second half of the scratch's page-locked memory has that many bytes, and no copy to it is under way.
        unsafe { ptr::copy_nonoverlapping((from.host + from.half()) as *const u8, copy.as_mut_ptr(), bytes) };
        Some(copy)
    }

    fn bus_id(&self, device: i32) -> Option<String> {
        identity(device).ok().map(|(_, bus_id)| bus_id)
    }

    fn verdict(&self, src: i32, dst: i32) -> Option<Answer> {
        full::verdict(&device_pair(src, dst).ok()?)
    }

    fn stream_context(&self, stream: usize, per_thread: bool) -> Option<usize> {
        type GetContext = unsafe extern "C" fn(usize, *mut usize) -> c_int;
        // SAFETY: the entry holds what was looked up under that name.
        let query = unsafe { transmute::<*mut c_void, GetContext>(STREAM_GET_CTX.get(per_thread)?) };
        let mut context = 0;
        // SAFETY: `context` is what the function writes. The stream is the program's own argument of a call that succeeded.
        let code = unsafe { query(stream, &mut context) };
        (code == 0 && context != 0).then_some(context)
    }

    fn is_stream_idle(&self, stream: usize) -> Option<bool> {
        // SAFETY: the stream was created in sight, and was not destroyed since.
        match unsafe { stream_query(stream) } {
            Code::SUCCESS => Some(true),
            Code::NOT_READY => Some(false),
            _ => None,
        }
    }

    fn is_readable(&self, address: u64) -> bool {
        // SAFETY: any byte is one.
        unsafe { os::read(address as *const u8) }.is_ok()
    }

    fn is_done(&self, scratch: &Scratch) -> Result<bool, Code> {
        // SAFETY: the stream is ours and is never destroyed.
        within(scratch.context, || match unsafe { stream_query(scratch.stream) } {
            Code::SUCCESS => Ok(true),
            Code::NOT_READY => Ok(false),
            code => Err(code),
        })
    }
}

/// The driver's version, as CUDA counts: 12.8 is 12080.
pub(crate) fn version() -> Option<i32> {
    let mut version = 0;
    // SAFETY: the function writes one int.
    checked(unsafe { driver_get_version(&mut version) }, version).ok()?;
    Some(version)
}

/// What a report calls a device.
pub(crate) struct Gpu {
    /// The product's name.
    pub(crate) name: String,
    /// As `nvidia-smi -L` writes it.
    pub(crate) uuid: String,
    /// Where it is on the PCI bus.
    pub(crate) bus_id: String,
}

/// What a report calls a device. Nothing here needs a context, or disturbs a capture.
pub(crate) fn gpu(device: i32) -> Option<Gpu> {
    let mut name = [0u8; 256];
    // SAFETY: the function writes a text with a NUL of at most that length.
    checked(unsafe { device_get_name(name.as_mut_ptr().cast(), name.len() as c_int, device) }, ()).ok()?;
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned();
    let (uuid, bus_id) = identity(device).ok()?;
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from, to| hex.get(from..to).unwrap_or_default();
    let uuid = format!("GPU-{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32));
    Some(Gpu { name, uuid, bus_id })
}

/// What the hardware says of the access of a device to the memory of another: whether there is any, how fast it is (0 is
/// best), and whether atomic operations work.
pub(crate) fn peer_attributes(device: i32, peer: i32) -> [Option<i32>; 3] {
    const ACCESS: c_int = 2;
    const PERFORMANCE_RANK: c_int = 1;
    const NATIVE_ATOMICS: c_int = 3;
    [ACCESS, PERFORMANCE_RANK, NATIVE_ATOMICS].map(|attribute| {
        let mut value = 0;
        // SAFETY: the function writes one int.
        checked(unsafe { device_get_p2p_attribute(&mut value, attribute, device, peer) }, value).ok()?;
        Some(value)
    })
}

/// What another process has to be told to find the two devices.
fn device_pair(src: i32, dst: i32) -> Result<DevicePair, Code> {
    let mut driver_version = 0;
    // SAFETY: the function writes one int.
    checked(unsafe { driver_get_version(&mut driver_version) }, ())?;
    let ((src_uuid, src_bus_id), (dst_uuid, dst_bus_id)) = (identity(src)?, identity(dst)?);
    Ok(DevicePair { src_uuid, dst_uuid, src_bus_id, dst_bus_id, driver_version })
}

/// A device's UUID, and where it is on the PCI bus.
fn identity(device: i32) -> Result<([u8; 16], String), Code> {
    let mut uuid = [0; 16];
    // The second form tells instances of a partitioned GPU apart.
    // SAFETY: both write 16 bytes.
    let code = match unsafe { device_get_uuid(&mut uuid, device) } {
        // SAFETY: as above.
        code if is_missing(code) => unsafe { device_get_uuid_1(&mut uuid, device) },
        code => code,
    };
    checked(code, ())?;
    let mut bus_id = [0u8; 32];
    // SAFETY: the function writes a text with a NUL of at most that length.
    checked(unsafe { device_get_pci_bus_id(bus_id.as_mut_ptr().cast(), bus_id.len() as c_int, device) }, ())?;
    let bus_id = CStr::from_bytes_until_nul(&bus_id).unwrap_or_default();
    Ok((uuid, bus_id.to_string_lossy().into_owned()))
}

/// Takes memory, page-locked memory of the host, and a stream, in the current context. Nothing of it is ever given back:
/// that would wait for the device. So what is most likely to fail comes first.
fn take_scratch(kind: ScratchKind, (context, context_id): (usize, u64), device: i32) -> Result<Scratch, Code> {
    /// `CU_STREAM_NON_BLOCKING`.
    const NON_BLOCKING: c_uint = 1;
    let wanted = if kind == ScratchKind::Page { 4096 } else { 2 * HALF };
    let (mut address, mut bytes, mut pool, mut stream) = (0, wanted, 0, 0);
    let take_stream = |stream: &mut usize| {
        // SAFETY: the function writes a handle.
        checked(unsafe { stream_create(stream, NON_BLOCKING) }, ())
    };
    match kind {
        // SAFETY: the function writes an address.
        ScratchKind::Page => checked(unsafe { mem_alloc(&mut address, wanted) }, ())?,
        ScratchKind::Mapped => (address, bytes) = take_mapped(wanted, device)?,
        ScratchKind::Pool => {
            // SAFETY: plain integers, for which zero is a value.
            let mut properties: PoolProps = unsafe { zeroed() };
            (properties.kind, properties.location) = (PINNED, Location::device(device));
            take_stream(&mut stream)?;
            // SAFETY: the functions write a handle and an address.
            unsafe {
                checked(mem_pool_create(&mut pool, &properties), ())?;
                checked(mem_alloc_from_pool_async(&mut address, wanted, pool, stream), ())?;
            }
        }
    }
    if stream == 0 {
        take_stream(&mut stream)?;
    }
    let host = take_host(wanted)?;
    Ok(Scratch { kind, context, context_id, device, address, bytes, stream, pool, host })
}

/// Takes page-locked memory of the host that is ours: that of the driver would go with the context, which another thread
/// may end meanwhile.
fn take_host(bytes: usize) -> Result<usize, Code> {
    /// `CU_MEMHOSTREGISTER_PORTABLE`: page-locked for every context.
    const PORTABLE: c_uint = 1;
    let layout = Layout::from_size_align(bytes, 4096).map_err(|_| Code::OUT_OF_MEMORY)?;
    // SAFETY: the size is not zero.
    let host = unsafe { alloc_zeroed(layout) };
    if host.is_null() {
        return Err(Code::OUT_OF_MEMORY);
    }
    // SAFETY: the memory is there, and for ever.
    checked(unsafe { mem_host_register(host as usize, bytes, PORTABLE) }, host as usize)
}

fn take_mapped(wanted: usize, device: i32) -> Result<(u64, usize), Code> {
    /// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`.
    const MINIMUM: c_int = 0;
    // SAFETY: plain integers, for which zero is a value.
    let mut properties: AllocationProp = unsafe { zeroed() };
    (properties.kind, properties.location) = (PINNED, Location::device(device));
    let (mut granularity, mut handle, mut address) = (0, 0, 0);
    // SAFETY: each function writes one value of the type of the variable that it is given.
    unsafe {
        checked(mem_get_allocation_granularity(&mut granularity, &properties, MINIMUM), ())?;
        let bytes = wanted.next_multiple_of(granularity.max(1));
        checked(mem_create(&mut handle, bytes, &properties, 0), ())?;
        checked(mem_address_reserve(&mut address, bytes, 0, 0, 0), ())?;
        checked(mem_map(address, bytes, 0, handle, 0), ())?;
        let desc = AccessDesc { location: Location::device(device), flags: READ_WRITE };
        checked(mem_set_access(address, bytes, &desc, 1), ())?;
        Ok((address, bytes))
    }
}

/// The function that makes a replacement, with its arguments. It has nothing to drop, so that it can be called outside
/// the panic fence.
#[derive(Clone, Copy)]
pub(crate) struct ReadyCopy {
    function: *mut c_void,
    replacement: Replacement,
    /// What the log says of it.
    pub(crate) note: &'static str,
}

/// Finds the function for a replacement; none if the driver does not have it.
pub(crate) fn ready(replacement: &Replacement) -> Option<ReadyCopy> {
    let function = match replacement.parameters.is_some() {
        false => MEMCPY_ASYNC.get(replacement.per_thread)?,
        true => MEMCPY_3D_ASYNC.get(replacement.per_thread)?,
    };
    Some(ReadyCopy { function, replacement: *replacement, note: replacement.note() })
}

impl ReadyCopy {
    /// Makes the copy.
    ///
    /// # Safety
    /// What the peer copy asks of its caller.
    pub(crate) unsafe fn make(&self) -> Code {
        type MemcpyAsync = unsafe extern "C-unwind" fn(usize, usize, usize, usize) -> Code;
        type Memcpy3DAsync = unsafe extern "C-unwind" fn(*const CUDA_MEMCPY3D_PEER, usize) -> Code;
        let Replacement { dst, src, bytes, stream, .. } = self.replacement;
        // SAFETY: `ready` looked the function up under the name that goes with the copy. CUDA_MEMCPY3D has the layout
        // of CUDA_MEMCPY3D_PEER, with reserved words for the contexts.
        unsafe {
            match &self.replacement.parameters {
                Some(parameters) => transmute::<*mut c_void, Memcpy3DAsync>(self.function)(parameters, stream),
                None => {
                    let (dst, src, bytes) = (dst as usize, src as usize, bytes as usize);
                    transmute::<*mut c_void, MemcpyAsync>(self.function)(dst, src, bytes, stream)
                }
            }
        }
    }
}

/// Events that measure how long the GPU takes. None of these waits for it.
pub(crate) mod timing {
    use super::{
        Code, Driver, EVENT_RECORD, RealDriver, c_int, c_uint, c_void, checked, event_create, event_destroy,
        event_elapsed_time, event_query, stream_create, stream_destroy, transmute, within,
    };

    /// A context, and its id: another may get the same handle.
    pub(crate) type Context = (usize, u64);

    /// An event of ours that keeps times. A context that ends takes its events along.
    pub(crate) struct Event {
        handle: usize,
        context: Context,
    }

    impl Event {
        /// Two events of a context.
        pub(crate) fn pair(context: Context) -> Option<[Self; 2]> {
            within(context.0, || Ok([Self::new(context)?, Self::new(context)?])).ok()
        }

        /// An event of a context that is recorded now, on a stream with nothing else to do.
        pub(crate) fn recorded(context: Context) -> Option<Self> {
            /// `CU_STREAM_NON_BLOCKING`.
            const NON_BLOCKING: c_uint = 1;
            within(context.0, || {
                let (event, mut stream) = (Self::new(context)?, 0);
                // SAFETY: `stream` is what the function writes.
                checked(unsafe { stream_create(&mut stream, NON_BLOCKING) }, ())?;
                let is_recorded = event.record(stream, false);
                // SAFETY: the stream is ours. It is not waited for, and the event outlives it.
                unsafe { stream_destroy(stream) };
                if is_recorded { Ok(event) } else { Err(Code::INVALID_VALUE) }
            })
            .ok()
        }

        /// One of the current context, which is this.
        fn new(context: Context) -> Result<Self, Code> {
            let mut handle = 0;
            // SAFETY: `handle` is what the function writes; 0 is an event that keeps times.
            checked(unsafe { event_create(&mut handle, 0) }, ())?;
            Ok(Self { handle, context })
        }

        /// Whether it is one of this context.
        pub(crate) fn is_of(&self, context: Context) -> bool {
            self.context == context
        }

        /// Records it on a stream. Returns whether it was.
        pub(crate) fn record(&self, stream: usize, per_thread: bool) -> bool {
            type Record = unsafe extern "C" fn(usize, usize) -> c_int;
            let Some(function) = EVENT_RECORD.get(per_thread) else { return false };
            // SAFETY: the entry holds what was looked up under that name.
            let function = unsafe { transmute::<*mut c_void, Record>(function) };
            // SAFETY: the event is ours, and the stream the program's own argument, or ours.
            unsafe { function(self.handle, stream) == 0 }
        }

        /// Whether it has passed; none if something has failed.
        pub(crate) fn has_passed(&self) -> Option<bool> {
            // SAFETY: the event is ours, and its context exists.
            match unsafe { event_query(self.handle) } {
                Code::SUCCESS => Some(true),
                Code::NOT_READY => Some(false),
                _ => None,
            }
        }

        /// How much later it has passed than another.
        pub(crate) fn nanos_since(&self, earlier: &Self) -> Option<u64> {
            let mut milliseconds = 0.0;
            // SAFETY: the events are ours and have passed; `milliseconds` is what the function writes.
            checked(unsafe { event_elapsed_time(&mut milliseconds, earlier.handle, self.handle) }, ()).ok()?;
            (milliseconds >= 0.0).then_some((f64::from(milliseconds) * 1e6).round() as u64)
        }
    }

    impl Drop for Event {
        /// Gives it back, passed or not.
        fn drop(&mut self) {
            let (context, id) = self.context;
            if RealDriver.context_id(context) == Some(id) {
                // SAFETY: the event is ours, its context exists, and nobody uses it any more.
                unsafe { event_destroy(self.handle) };
            }
        }
    }
}
