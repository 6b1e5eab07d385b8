//! The few calls that the shim itself makes to the real driver.

mod contexts;
mod devices;
mod functions;
mod graphs;
mod memory;
mod replacement;
mod scratch;
pub(crate) mod staging;
pub(crate) mod timing;
mod types;
pub(crate) mod waits;

pub(crate) use contexts::{enable_peer_access, is_primary_active, is_primary_held};
pub(crate) use devices::{peer_attributes, version};
pub(crate) use functions::is_loaded;
pub(crate) use memory::{device_of, set_rights};
pub(crate) use replacement::{ReadyCopy, make_copy, ready, ready_all};
pub(crate) use types::{
    AccessDesc, AllocationProp, Array3dDescriptor, ArrayDescriptor, BatchAttributes, BatchNodeParams, BatchOp,
    ChildGraphNodeParams, Location, MemcpyNodeParams, PoolProps, device_of_pool,
};

use std::ffi::{CStr, c_char, c_uint};

use self::contexts::within;
use self::functions::{
    asked, checked, device_can_access_peer, device_get_count, device_get_default_mem_pool, exchange_capture_mode,
    func_get_name, func_get_param_info, is_missing, is_ready, kernel_get_name, kernel_get_param_info, mem_get_access,
    mem_pool_get_access, mem_release, mem_retain_allocation_handle, mem_set_access, memcpy_device_to_host,
    memcpy_host_to_device, memcpy_peer, stream_get_ctx, stream_get_ctx_ptsz, stream_is_capturing,
    stream_is_capturing_ptsz, stream_query,
};
use self::types::READ_WRITE;
use crate::api::abi::Code;
use crate::objects::captures;
use crate::objects::streams::PER_THREAD;
use crate::os;
use crate::policy::driver::{Driver, Memory, NodeCopy, Scratch, ScratchKind, Span, VerifyBackend};
use crate::policy::verdicts::{self, Gpu, Verdict};
use crate::real::{downloaded, fill};

/// The driver of this process.
pub(crate) struct RealDriver;

/// The fate of work that is queued on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaptureStatus {
    None,
    Active,
    /// It is refused: the capture was invalidated, and has not ended.
    Lost,
}

/// Whether a stream is being captured; none if the driver cannot tell. `per_thread` says which default stream a null handle means.
pub(crate) fn capture_status(stream: usize, per_thread: bool) -> Option<CaptureStatus> {
    /// `CU_STREAM_CAPTURE_STATUS_ACTIVE`, `…_INVALIDATED`.
    const ACTIVE: c_uint = 1;
    const INVALIDATED: c_uint = 2;
    let query = if per_thread { stream_is_capturing_ptsz } else { stream_is_capturing };
    // SAFETY: the function writes the place. The stream is the program's own argument, which the real function would get next.
    let status = asked(|status| unsafe { query(stream, status) }).ok()?;
    Some(match status {
        ACTIVE => CaptureStatus::Active,
        INVALIDATED => CaptureStatus::Lost,
        _ => CaptureStatus::None,
    })
}

/// How many bytes the parameter of a kernel has; none if it has no such parameter, or the driver does not tell (before 12.4).
pub(crate) fn parameter_bytes(kernel: usize, index: usize) -> Option<usize> {
    let (mut offset, mut bytes) = (0, 0);
    // SAFETY: the function writes both places. The kernel is the program's own argument, which the real function gets next.
    let of_function = checked(unsafe { func_get_param_info(kernel, index, &raw mut offset, &raw mut bytes) });
    // A launch also takes the kernel of a library, as CUDA's runtime has them from 12 on.
    // SAFETY: as above.
    let mut of_kernel = || checked(unsafe { kernel_get_param_info(kernel, index, &raw mut offset, &raw mut bytes) });
    of_function.or_else(|_| of_kernel()).ok()?;
    Some(bytes)
}

/// The name of a kernel; none if the driver does not tell (before 12.3).
pub(crate) fn kernel_name(kernel: usize) -> Option<String> {
    // SAFETY: the function writes the place. The kernel was launched; if its module is gone, the driver says so.
    let of_function = || asked(|name| unsafe { func_get_name(name, kernel) });
    // SAFETY: as above.
    let of_kernel = |_| asked(|name| unsafe { kernel_get_name(name, kernel) });
    let name: *const c_char = of_function().or_else(of_kernel).ok().filter(|name: &*const c_char| !name.is_null())?;
    // SAFETY: the driver's text, which stays as long as the kernel.
    Some(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
}

impl VerifyBackend for RealDriver {
    fn device_count(&self) -> i32 {
        // SAFETY: the function writes the place.
        asked(|count| unsafe { device_get_count(count) }).unwrap_or(0)
    }

    fn upload(&self, to: &Scratch, bytes: &[u8]) -> Result<(), Code> {
        let count = fill(to, bytes);
        // SAFETY: both have that many bytes and are never freed.
        within(to.context, || checked(unsafe { memcpy_host_to_device(to.address, to.host, count, to.stream) }))
    }

    fn send(&self, from: &Scratch, to: &Scratch, span: Span) -> Result<(), Code> {
        let (src, dst) = (from.address + span.offset as u64, to.receives + span.offset as u64);
        // SAFETY: the span lies in either half.
        let send = || unsafe { memcpy_peer(dst, to.context, src, from.context, span.bytes, from.stream) };
        within(from.context, || checked(send()))
    }

    fn download(&self, from: &Scratch, bytes: usize) -> Result<(), Code> {
        let (host, bytes) = (from.host + from.half(), bytes.min(from.half()));
        // SAFETY: as above.
        within(from.context, || checked(unsafe { memcpy_device_to_host(host, from.receives, bytes, from.stream) }))
    }

    fn downloaded(&self, from: &Scratch, bytes: usize) -> Option<Vec<u8>> {
        downloaded(from, bytes)
    }

    fn is_done(&self, scratch: &Scratch) -> Result<bool, Code> {
        // SAFETY: the stream is ours and is never destroyed.
        within(scratch.context, || is_ready(unsafe { stream_query(scratch.stream) }))
    }

    fn can_access(&self, device: i32, peer: i32) -> Result<bool, Code> {
        // SAFETY: the function writes the place.
        asked(|can| unsafe { device_can_access_peer(can, device, peer) }).map(|can| can != 0)
    }

    fn relaxed<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        // SAFETY: the function swaps the calling thread's mode with `mode`.
        let exchange = |mode: &mut c_uint| unsafe { exchange_capture_mode(mode) };
        super::relaxed(exchange, |code| is_missing(code) && !captures::may_be_under_way(), work)
    }

    fn scratch(&self, kind: ScratchKind, context: (usize, u64), device: i32) -> Result<Scratch, Code> {
        within(context.0, || scratch::take(kind, context, device))
    }

    fn share(&self, scratch: &Scratch, device: i32) -> Result<(), Code> {
        let desc = AccessDesc::read_write(device);
        match scratch.kind {
            ScratchKind::Pool => checked(self.grant(scratch.pool, device)),
            // SAFETY: `desc` is one descriptor, and the range was mapped as a whole.
            ScratchKind::Mapped => checked(unsafe { mem_set_access(scratch.address, scratch.bytes, &desc, 1) }),
            ScratchKind::Page => Ok(()),
        }
    }

    fn upload_downloaded(&self, from: &Scratch, to: &Scratch, bytes: usize) -> Result<(), Code> {
        let (host, bytes) = (from.host + from.half(), bytes.min(from.half()).min(to.half()));
        // SAFETY: as above.
        within(to.context, || checked(unsafe { memcpy_host_to_device(to.address, host, bytes, to.stream) }))
    }

    fn gpu(&self, device: i32) -> Option<Gpu> {
        devices::gpu(device)
    }

    fn version(&self) -> Option<i32> {
        version().ok()
    }

    fn is_linked(&self, devices: [i32; 2]) -> bool {
        let [_, _, atomics] = peer_attributes(devices[0], devices[1]);
        atomics == Some(1)
    }

    fn is_readable(&self, address: u64) -> bool {
        // SAFETY: any byte is one.
        unsafe { os::read(address as *const u8) }.is_ok()
    }
}

impl Driver for RealDriver {
    fn is_device_memory(&self, address: u64) -> bool {
        memory::is_on_device(address)
    }

    fn memory(&self, address: u64) -> Option<Memory> {
        memory::of(address)
    }

    fn is_unknown(&self, address: u64) -> bool {
        memory::is_unknown(address)
    }

    fn current_context(&self) -> Option<usize> {
        contexts::current()
    }

    fn context_id(&self, context: usize) -> Option<u64> {
        contexts::id(context)
    }

    fn device_of_context(&self, context: usize) -> Option<i32> {
        contexts::device_of(context)
    }

    fn primary_context(&self, device: i32) -> Option<usize> {
        contexts::primary_context(device)
    }

    fn pool_access(&self, pool: usize, device: i32) -> bool {
        // SAFETY: the function writes the place; the pool is one that memory belongs to, or the program's argument.
        let flags = asked(|flags| unsafe { mem_pool_get_access(flags, pool, &Location::device(device)) });
        flags == Ok(READ_WRITE.cast_unsigned())
    }

    fn default_pool(&self, device: i32) -> Option<usize> {
        // SAFETY: the function writes the place.
        asked(|pool| unsafe { device_get_default_mem_pool(pool, device) }).ok()
    }

    fn mapped_access(&self, address: u64, device: i32) -> bool {
        // SAFETY: the function writes the place; the address is looked up, not read.
        let flags = asked(|flags| unsafe { mem_get_access(flags, &Location::device(device), address) });
        flags == Ok(READ_WRITE as u64)
    }

    fn mapping(&self, address: u64) -> Option<(u64, u64)> {
        memory::mapping(address)
    }

    fn location(&self, physical: usize) -> Option<i32> {
        memory::location(physical)
    }

    fn mapped_memory(&self, address: u64) -> Option<usize> {
        // SAFETY: the function writes the place; the address is looked up, not read.
        let handle = asked(|handle| unsafe { mem_retain_allocation_handle(handle, address as usize) }).ok()?;
        // SAFETY: gives back the reference that was just taken.
        unsafe { mem_release(handle) };
        Some(handle)
    }

    fn enable(&self, context: usize, peer: usize) -> Code {
        within(context, || checked(enable_peer_access(peer, 0))).err().unwrap_or(Code::SUCCESS)
    }

    fn grant(&self, pool: usize, device: i32) -> Code {
        set_rights(pool, &[AccessDesc::read_write(device)])
    }

    fn verdict_between(&self, uuids: [&str; 2]) -> Option<Verdict> {
        // As long as none is visible, nothing says that they are simulated.
        let are_simulated = self.gpu(0).is_some_and(|gpu| gpu.root().is_none());
        verdicts::between(uuids, are_simulated)
    }

    fn stream_context(&self, stream: usize, per_thread: bool) -> Option<usize> {
        let query = if per_thread { stream_get_ctx_ptsz } else { stream_get_ctx };
        // SAFETY: the function writes the place. The stream is the program's own argument of a call that succeeded.
        asked(|context| unsafe { query(stream, context) }).ok().filter(|&context| context != 0)
    }

    fn graph_copies(&self, graph: usize) -> Option<Vec<NodeCopy>> {
        graphs::copies(graph)
    }

    fn child_graph(&self, node: usize) -> Option<usize> {
        graphs::child(node)
    }

    fn is_stream_idle(&self, stream: usize) -> Option<bool> {
        // SAFETY: the stream was created in sight, and was not destroyed since.
        is_ready(unsafe { stream_query(stream) }).ok()
    }

    fn context_of_memory(&self, address: u64) -> Option<usize> {
        memory::context_of(address)
    }

    fn new_event(&self, context: (usize, u64)) -> Option<usize> {
        waits::new_event(context.0)
    }

    fn record(&self, event: usize, stream: usize) -> bool {
        waits::record(event, stream)
    }

    fn may_record(&self, stream: usize) -> bool {
        let is_free = || stream > PER_THREAD && capture_status(stream, false) == Some(CaptureStatus::None);
        !captures::may_be_under_way() || is_free()
    }

    fn record_within(&self, context: usize, event: usize, stream: usize) -> bool {
        if contexts::current() == Some(context) {
            return waits::record(event, stream);
        }
        os::undisturbed(|| within(context, || Ok(waits::record(event, stream)))) == Ok(true)
    }

    fn has_passed(&self, event: usize) -> bool {
        self.relaxed(|| waits::has_passed(event)) == Some(true)
    }

    fn can_lose_nodes(&self, graph: usize) -> bool {
        graphs::can_lose_nodes(graph)
    }

    fn graph_order(&self, graph: usize) -> Option<(Vec<usize>, Vec<[usize; 2]>)> {
        graphs::order(graph)
    }

    fn add_record(&self, graph: usize, behind: &[usize], event: usize) -> Option<usize> {
        graphs::add_record(graph, behind, event)
    }

    fn remove_node(&self, node: usize) {
        graphs::remove(node);
    }
}
