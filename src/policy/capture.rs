//! Peer copies on streams that are being captured into a graph.
//!
//! CUDA refuses them with 900, and the program's capture is lost. A regular copy between the same pointers makes the same copy, and
//! can be captured. So p2pshim replaces the one by the other, in the form (legacy or per-thread default stream) that the program used;
//! in the driver, so that the runtime's last error is right by itself. It forwards what has no equal, arrays and host memory, and
//! everything if a question fails. (Measured on H200 with CUDA 13.0, docs/MEASUREMENTS.md.)
//!
//! While the count of captures is 0 a copy pays one load. Otherwise p2pshim asks the driver whether the copy's stream is captured. The
//! count is too low only where a capture began past the shim; CUDA then refuses the copies as it would without us.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::driver::Driver;
use crate::api::Function;
use crate::api::abi::{CUDA_MEMCPY3D_PEER, MEMORYTYPE_UNIFIED, is_pointer};
use crate::model::{Memcpy, Shape};

/// A copy that CUDA can capture, between the addresses and in the stream that the program gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Replacement {
    pub(crate) dst: u64,
    pub(crate) src: u64,
    pub(crate) bytes: u64,
    pub(crate) stream: usize,
    pub(crate) parameters: Option<CUDA_MEMCPY3D_PEER>,
    /// Whether a null stream means the thread's own.
    pub(crate) per_thread: bool,
}

impl Replacement {
    pub(crate) fn note(&self) -> &'static str {
        match (self.parameters.is_some(), self.per_thread) {
            (false, false) => "captured as cuMemcpyAsync",
            (false, true) => "captured as cuMemcpyAsync_ptsz",
            (true, false) => "captured as cuMemcpy3DAsync_v2",
            (true, true) => "captured as cuMemcpy3DAsync_v2_ptsz",
        }
    }
}

/// The parameters of the ordinary 3D copy: those of the peer copy, whose contexts are reserved there and must be null.
/// None if memory other than the unified address space takes part; CUDA has no equal for arrays of two devices.
fn ordinary(peer: &CUDA_MEMCPY3D_PEER) -> Option<CUDA_MEMCPY3D_PEER> {
    (is_pointer(peer.srcMemoryType) && is_pointer(peer.dstMemoryType)).then_some(CUDA_MEMCPY3D_PEER {
        srcContext: 0,
        dstContext: 0,
        srcMemoryType: MEMORYTYPE_UNIFIED,
        dstMemoryType: MEMORYTYPE_UNIFIED,
        ..*peer
    })
}

static REWRITES: AtomicBool = AtomicBool::new(true);

pub(super) fn configure(rewrites: bool) {
    REWRITES.store(rewrites, Relaxed);
}

pub(super) fn rewrites() -> bool {
    REWRITES.load(Relaxed)
}

/// Why a copy on a stream that is being captured is left to be refused.
pub(crate) fn why_refused() -> &'static str {
    if rewrites() {
        "refused by CUDA: no equivalent copy can be captured"
    } else {
        "refused by CUDA and not replaced: P2PSHIM_CAPTURE=forward"
    }
}

/// The call that takes the place of a copy on a stream that is being captured, if any does.
pub(crate) fn capturable(driver: &impl Driver, function: Function, copy: &Memcpy) -> Option<Replacement> {
    let is_device_memory = |&end: &u64| driver.is_device_memory(end);
    if rewrites() && [copy.dst, copy.src].iter().all(is_device_memory) { replacement(function, copy) } else { None }
}

/// The copy that takes the place of one that can be captured.
pub(crate) fn replacement(function: Function, copy: &Memcpy) -> Option<Replacement> {
    let parameters = match copy.shape {
        Shape::Linear => None,
        Shape::Driver3D(peer) => Some(ordinary(peer)?),
        Shape::Runtime3D(_) | Shape::Unreadable(_) => return None,
    };
    let &Memcpy { dst, src, bytes, stream, .. } = copy;
    let stream = stream.unwrap_or_default();
    Some(Replacement { dst, src, bytes, stream, parameters, per_thread: function.per_thread() })
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::model::Named;
    use crate::policy::access::fake::Fake;

    fn linear() -> Memcpy<'static> {
        let [src_named, dst_named] = [0xc0, 0xc1].map(Named::Context);
        Memcpy { src: 0x10, dst: 0x20, src_named, dst_named, bytes: 64, stream: Some(5), shape: Shape::Linear }
    }

    fn peer(src_memory_type: u32) -> CUDA_MEMCPY3D_PEER {
        const DEVICE: u32 = 2;
        CUDA_MEMCPY3D_PEER {
            srcMemoryType: src_memory_type,
            srcDevice: 0x10,
            srcContext: 0xc0,
            dstMemoryType: DEVICE,
            dstDevice: 0x20,
            dstContext: 0xc1,
            WidthInBytes: 8,
            ..CUDA_MEMCPY3D_PEER::ZERO
        }
    }

    #[test]
    fn capturable_capturing_stream_gets_the_equal_copy() {
        let replacement =
            Replacement { dst: 0x20, src: 0x10, bytes: 64, stream: 5, parameters: None, per_thread: false };
        let driver = Fake::with_memory_below(0x1000);
        assert_eq!(capturable(&driver, Function::cuMemcpyPeerAsync, &linear()), Some(replacement));
        let per_thread = Replacement { per_thread: true, ..replacement };
        assert_eq!(capturable(&driver, Function::cuMemcpyPeerAsync_ptsz, &linear()), Some(per_thread));
    }

    #[test]
    fn capturable_3d_loses_its_contexts_and_nothing_else() {
        let peer = peer(2);
        let copy = Memcpy::of_driver(&peer, Some(5));
        let replacement = capturable(&Fake::with_memory_below(0x1000), Function::cuMemcpy3DPeerAsync, &copy);
        let ordinary = replacement.unwrap().parameters.unwrap();
        let unified = CUDA_MEMCPY3D_PEER {
            srcContext: 0,
            dstContext: 0,
            srcMemoryType: MEMORYTYPE_UNIFIED,
            dstMemoryType: MEMORYTYPE_UNIFIED,
            ..peer
        };
        assert_eq!(ordinary, unified);
    }

    #[test]
    fn capturable_3d_with_an_array_or_host_memory_is_forwarded() {
        let driver = Fake::with_memory_below(0x1000);
        for memory_type in [0, 1, 3, 5] {
            assert_eq!(
                capturable(&driver, Function::cuMemcpy3DPeerAsync, &Memcpy::of_driver(&peer(memory_type), Some(5))),
                None
            );
        }
    }

    #[test]
    fn capturable_memory_that_is_on_no_device_is_forwarded() {
        for end in [0x10, 0x20] {
            let driver = Fake::with_memory_below(end);
            assert_eq!(capturable(&driver, Function::cuMemcpyPeerAsync, &linear()), None);
            assert_eq!(capturable(&driver, Function::cuMemcpy3DPeerAsync, &Memcpy::of_driver(&peer(2), Some(5))), None);
        }
    }
}
