//! Copies between devices for programs that link with the shim on purpose.
//!
//! They go through the same hook as a program's own call of the driver, so that there is one policy: peer access is verified
//! and enabled, captures are borne, findings are said, calls are traced and counted.

use std::ffi::{c_int, c_void};
use std::mem::size_of;

use super::p2pshim_status_t::{
    self, P2PSHIM_DRIVER_ERROR, P2PSHIM_INTERNAL_ERROR, P2PSHIM_INVALID_ARGUMENT, P2PSHIM_NO_DRIVER, P2PSHIM_OK,
};
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code, MEMORYTYPE_DEVICE};
use crate::call::control;

/// In place of an ordinal: the device is the one that the memory is on.
pub const P2PSHIM_ANY_DEVICE: c_int = -1;

const MEMCPY_3D_SIZE_0_1: usize = 136;

/// A 3D copy from the memory of one device to that of another. Fields that are not set are 0.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct p2pshim_memcpy_3d_t {
    /// Set by the caller: sizeof(p2pshim_memcpy_3d_t).
    pub size: usize,
    /// Where the source begins.
    pub src: *const c_void,
    /// Bytes from one row of the source to the next.
    pub src_pitch: usize,
    /// Rows from one slice of the source to the next.
    pub src_height: usize,
    /// Where in the source the copy begins, in bytes.
    pub src_x: usize,
    /// The same in rows.
    pub src_y: usize,
    /// The same in slices.
    pub src_z: usize,
    /// Where the destination begins.
    pub dst: *mut c_void,
    /// Bytes from one row of the destination to the next.
    pub dst_pitch: usize,
    /// Rows from one slice of the destination to the next.
    pub dst_height: usize,
    /// Where in the destination the copy begins, in bytes.
    pub dst_x: usize,
    /// The same in rows.
    pub dst_y: usize,
    /// The same in slices.
    pub dst_z: usize,
    /// The width of the extent, in bytes.
    pub width: usize,
    /// The height of the extent, in rows.
    pub height: usize,
    /// The depth of the extent, in slices.
    pub depth: usize,
    /// The ordinal of the source's device, or P2PSHIM_ANY_DEVICE.
    pub src_device: c_int,
    /// The ordinal of the destination's device, or P2PSHIM_ANY_DEVICE.
    pub dst_device: c_int,
}

/// Where a program enters a function of the driver: our own exports, under names that nobody else can define.
/// cbindgen:ignore
mod exports {
    use super::{CUDA_MEMCPY3D_PEER, Code, c_void};

    unsafe extern "C-unwind" {
        #[link_name = "p2p_export_cuMemcpyPeerAsync"]
        pub(super) fn cuMemcpyPeerAsync(
            dst: usize,
            dst_context: usize,
            src: usize,
            src_context: usize,
            bytes: usize,
            stream: *mut c_void,
        ) -> Code;
        #[link_name = "p2p_export_cuMemcpyPeer"]
        pub(super) fn cuMemcpyPeer(
            dst: usize,
            dst_context: usize,
            src: usize,
            src_context: usize,
            bytes: usize,
        ) -> Code;
        #[link_name = "p2p_export_cuMemcpy3DPeerAsync"]
        pub(super) fn cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D_PEER, stream: *mut c_void) -> Code;
        #[link_name = "p2p_export_cuMemcpy3DPeer"]
        pub(super) fn cuMemcpy3DPeer(copy: *const CUDA_MEMCPY3D_PEER) -> Code;
    }
}

/// Copies from the memory of one device to that of another, in stream order, by the best path. It does what cudaMemcpyPeerAsync
/// does, and verifies and enables peer access for pairs that copy. It can be captured.
///
/// As with CUDA, the memory must stay allocated until the copy has completed, and the default stream needs a current context in
/// the thread. The shim need not be preloaded.
///
/// Thread-safety: any thread, also in a callback; not in signal handlers.
///
/// @param dst The destination: memory of a device (CUdeviceptr).
/// @param dst_device The ordinal of its device, or P2PSHIM_ANY_DEVICE.
/// @param src The source: memory of a device (CUdeviceptr).
/// @param src_device The ordinal of its device, or P2PSHIM_ANY_DEVICE.
/// @param bytes The number of bytes.
/// @param stream The cudaStream_t or CUstream: NULL for the legacy default stream, cudaStreamPerThread for the thread's own.
/// @return P2PSHIM_OK if the copy was submitted; P2PSHIM_INVALID_ARGUMENT if an ordinal is not that of the memory's device;
/// P2PSHIM_NO_DRIVER; P2PSHIM_DRIVER_ERROR, and p2pshim_driver_code() returns the reason; P2PSHIM_INTERNAL_ERROR. On an error nothing
/// is copied.
///
/// # Safety
/// The requirements of cudaMemcpyPeerAsync: `stream` is a stream that exists.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn p2pshim_memcpy_peer_async(
    dst: *mut c_void,
    dst_device: c_int,
    src: *const c_void,
    src_device: c_int,
    bytes: usize,
    stream: *mut c_void,
) -> p2pshim_status_t {
    let [to, from] = match contexts([(dst as usize, dst_device), (src as usize, src_device)]) {
        Ok(contexts) => contexts,
        Err(status) => return status,
    };
    // SAFETY: the caller's promise.
    finish(unsafe { exports::cuMemcpyPeerAsync(dst as usize, to, src as usize, from, bytes, stream) })
}

/// Copies from the memory of one device to that of another by the best path, in the order of the legacy default stream, as
/// cudaMemcpyPeer does. Like cudaMemcpyPeer, it may return before the copy has completed.
///
/// Thread-safety: any thread, also in a callback; not in signal handlers.
///
/// @param dst The destination: memory of a device (CUdeviceptr).
/// @param dst_device The ordinal of its device, or P2PSHIM_ANY_DEVICE.
/// @param src The source: memory of a device (CUdeviceptr).
/// @param src_device The ordinal of its device, or P2PSHIM_ANY_DEVICE.
/// @param bytes The number of bytes.
/// @return As p2pshim_memcpy_peer_async().
///
/// # Safety
/// The requirements of cudaMemcpyPeer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn p2pshim_memcpy_peer(
    dst: *mut c_void,
    dst_device: c_int,
    src: *const c_void,
    src_device: c_int,
    bytes: usize,
) -> p2pshim_status_t {
    let [to, from] = match contexts([(dst as usize, dst_device), (src as usize, src_device)]) {
        Ok(contexts) => contexts,
        Err(status) => return status,
    };
    // SAFETY: the caller's promise.
    finish(unsafe { exports::cuMemcpyPeer(dst as usize, to, src as usize, from, bytes) })
}

/// Makes a 3D copy from the memory of one device to that of another, in stream order, by the best path.
///
/// Thread-safety: any thread, also in a callback; not in signal handlers.
///
/// @param copy What to copy; its size is set. It is read before the function returns.
/// @param stream The cudaStream_t or CUstream: NULL for the legacy default stream, cudaStreamPerThread for the thread's own.
/// @return As p2pshim_memcpy_peer_async(); P2PSHIM_INVALID_ARGUMENT also if `copy` is NULL or its size too small.
///
/// # Safety
/// `copy` is NULL or points to a struct of the size that its first field says. `stream` is a stream that exists.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn p2pshim_memcpy_3d_peer_async(
    copy: *const p2pshim_memcpy_3d_t,
    stream: *mut c_void,
) -> p2pshim_status_t {
    // SAFETY: the caller's promise.
    let parameters = match unsafe { taken(copy) }.and_then(parameters) {
        Ok(parameters) => parameters,
        Err(status) => return status,
    };
    // SAFETY: the caller's promise.
    finish(unsafe { exports::cuMemcpy3DPeerAsync(&parameters, stream) })
}

/// Makes a 3D copy from the memory of one device to that of another by the best path, in the order of the legacy default
/// stream.
///
/// Thread-safety: any thread, also in a callback; not in signal handlers.
///
/// @param copy What to copy; its size is set. It is read before the function returns.
/// @return As p2pshim_memcpy_peer_async(); P2PSHIM_INVALID_ARGUMENT also if `copy` is NULL or its size too small.
///
/// # Safety
/// `copy` is NULL or points to a struct of the size that its first field says.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn p2pshim_memcpy_3d_peer(copy: *const p2pshim_memcpy_3d_t) -> p2pshim_status_t {
    // SAFETY: the caller's promise.
    let parameters = match unsafe { taken(copy) }.and_then(parameters) {
        Ok(parameters) => parameters,
        Err(status) => return status,
    };
    // SAFETY: the caller's promise.
    finish(unsafe { exports::cuMemcpy3DPeer(&parameters) })
}

/// Returns what the driver returned for the calling thread's last copy with p2pshim_memcpy_peer() and its relatives.
///
/// Thread-safety: any thread, at any time; each thread has its own code.
///
/// @return A CUresult; 0 (CUDA_SUCCESS) if the copy was submitted, did not reach the driver, or there was none.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_driver_code() -> c_int {
    control::code().0
}

/// Contexts to name for two addresses. Whether there is memory at all the driver says.
fn contexts(ends: [(usize, c_int); 2]) -> Result<[usize; 2], p2pshim_status_t> {
    control::set_code(Code::SUCCESS);
    if !control::has_driver() {
        return Err(P2PSHIM_NO_DRIVER);
    }
    let found = control::quietly(|| Some(ends.map(|(address, _)| control::context_for(address as u64))));
    let found = found.ok_or(P2PSHIM_INTERNAL_ERROR)?;
    for ((_, device), (_, wanted)) in found.iter().zip(ends) {
        if wanted != P2PSHIM_ANY_DEVICE && device.is_some_and(|device| device != wanted) {
            return Err(P2PSHIM_INVALID_ARGUMENT);
        }
    }
    Ok(found.map(|(context, _)| context))
}

fn finish(code: Code) -> p2pshim_status_t {
    control::set_code(code);
    if code == Code::SUCCESS { P2PSHIM_OK } else { P2PSHIM_DRIVER_ERROR }
}

/// The caller's struct, as far as it goes.
///
/// # Safety
/// `copy` is NULL or points to a struct of the size that its first field says.
unsafe fn taken(copy: *const p2pshim_memcpy_3d_t) -> Result<p2pshim_memcpy_3d_t, p2pshim_status_t> {
    if copy.is_null() {
        return Err(P2PSHIM_INVALID_ARGUMENT);
    }
    // SAFETY: the caller's promise; every version of a struct begins with its size.
    let size = unsafe { copy.cast::<usize>().read_unaligned() };
    if size < MEMCPY_3D_SIZE_0_1 {
        return Err(P2PSHIM_INVALID_ARGUMENT);
    }
    // SAFETY: this is the first version, so that there are as many bytes.
    Ok(unsafe { copy.read_unaligned() })
}

fn parameters(copy: p2pshim_memcpy_3d_t) -> Result<CUDA_MEMCPY3D_PEER, p2pshim_status_t> {
    let [to, from] = contexts([(copy.dst as usize, copy.dst_device), (copy.src as usize, copy.src_device)])?;
    Ok(CUDA_MEMCPY3D_PEER {
        srcXInBytes: copy.src_x,
        srcY: copy.src_y,
        srcZ: copy.src_z,
        srcLOD: 0,
        srcMemoryType: MEMORYTYPE_DEVICE,
        srcHost: 0,
        srcDevice: copy.src as u64,
        srcArray: 0,
        srcContext: from,
        srcPitch: copy.src_pitch,
        srcHeight: copy.src_height,
        dstXInBytes: copy.dst_x,
        dstY: copy.dst_y,
        dstZ: copy.dst_z,
        dstLOD: 0,
        dstMemoryType: MEMORYTYPE_DEVICE,
        dstHost: 0,
        dstDevice: copy.dst as u64,
        dstArray: 0,
        dstContext: to,
        dstPitch: copy.dst_pitch,
        dstHeight: copy.dst_height,
        WidthInBytes: copy.width,
        Height: copy.height,
        Depth: copy.depth,
    })
}

const _: () = assert!(size_of::<p2pshim_memcpy_3d_t>() == MEMCPY_3D_SIZE_0_1);
