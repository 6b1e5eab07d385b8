//! Peer copies on streams that are being captured into a graph.
//!
//! CUDA refuses them with 900, and the program's capture is lost. An ordinary copy between the same pointers does the
//! same under unified addressing, where pointers say which device they belong to, and can be captured. So a peer copy on
//! a capturing stream becomes that, in the form (legacy or per-thread default stream) that the program used.
//!
//! Source: measured on H200 with CUDA 13.0, docs/results/.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use super::{Copied, PeerCopy};
use super::{Driver, Verdict};
use crate::api::Function;
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code, MEMORYTYPE_UNIFIED, is_pointer};

/// A copy that CUDA can capture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Replacement {
    /// What is copied, in which stream, as the program gave it.
    pub(crate) copy: PeerCopy,
    /// Whether a null stream means the thread's own.
    pub(crate) per_thread: bool,
}

impl Replacement {
    /// What the log says of it.
    pub(crate) fn note(self) -> &'static str {
        match (self.copy.copied, self.per_thread) {
            (Copied::Linear { .. }, false) => "captured as cuMemcpyAsync",
            (Copied::Linear { .. }, true) => "captured as cuMemcpyAsync_ptsz",
            (Copied::Box(_), false) => "captured as cuMemcpy3DAsync_v2",
            (Copied::Box(_), true) => "captured as cuMemcpy3DAsync_v2_ptsz",
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

/// How many captures have begun and not ended. One whose stream was destroyed meanwhile counts for ever; then each copy
/// costs a query, and nothing else changes.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

pub(super) fn configure(rewrites: bool) {
    REWRITES.store(rewrites, Relaxed);
}

/// Whether peer copies on capturing streams are replaced.
pub(super) fn rewrites() -> bool {
    REWRITES.load(Relaxed)
}

/// Whether CUDA refuses the function on a capturing stream.
#[inline(always)]
pub(crate) const fn is_refused_in_captures(function: Function) -> bool {
    matches!(
        function,
        Function::cuMemcpyPeerAsync
            | Function::cuMemcpyPeerAsync_ptsz
            | Function::cuMemcpy3DPeerAsync
            | Function::cuMemcpy3DPeerAsync_ptsz
    )
}

/// Whether any capture may be under way in the process.
#[inline(always)]
pub(crate) fn may_be_under_way() -> bool {
    UNDER_WAY.load(Relaxed) != 0
}

/// What a call that has returned does to the number of captures under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// None.
    None,
    /// One began.
    Begun,
    /// One ended.
    Ended,
}

/// Counts captures that begin and end.
pub(crate) fn note(function: Function, ret: Code) -> Change {
    match function {
        Function::cuStreamBeginCapture
        | Function::cuStreamBeginCapture_ptsz
        | Function::cuStreamBeginCapture_v2
        | Function::cuStreamBeginCapture_v2_ptsz
        | Function::cuStreamBeginCaptureToGraph
        | Function::cuStreamBeginCaptureToGraph_ptsz
            if ret == Code::SUCCESS =>
        {
            UNDER_WAY.fetch_add(1, Relaxed);
            Change::Begun
        }
        // A capture that was invalidated ends with an error. One that was not begun does not end.
        Function::cuStreamEndCapture | Function::cuStreamEndCapture_ptsz if ends(ret) => {
            let _ = UNDER_WAY.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
            Change::Ended
        }
        _ => Change::None,
    }
}

/// Whether `cuStreamEndCapture` has ended a capture: not if the stream was none, was not being captured, or must be
/// ended elsewhere.
fn ends(ret: Code) -> bool {
    /// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`, `CUDA_ERROR_STREAM_CAPTURE_UNJOINED`.
    const ENDED: &[Code] = &[Code::SUCCESS, Code(901), Code(904)];
    ENDED.contains(&ret)
}

/// Decides about a copy on a stream that is being captured, which would be refused.
pub(super) fn decide(driver: &impl Driver, function: Function, copy: &PeerCopy) -> Verdict {
    let copied = match &copy.copied {
        Copied::Box(peer) => ordinary(peer).map(|copy| (Copied::Box(copy), copy.dstDevice, copy.srcDevice)),
        &linear @ Copied::Linear { dst, src, .. } => Some((linear, dst as u64, src as u64)),
    };
    match copied {
        Some((copied, dst, src)) if [dst, src].iter().all(|&end| driver.is_device_memory(end)) => {
            Verdict::Instead(Replacement { copy: PeerCopy { copied, ..*copy }, per_thread: function.per_thread() })
        }
        _ => Verdict::Forward,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    use crate::policy::access::fake::Fake;

    fn linear() -> PeerCopy {
        PeerCopy { copied: Copied::Linear { dst: 0x20, src: 0x10, bytes: 64 }, stream: 5 }
    }

    fn boxed(src_memory_type: u32) -> PeerCopy {
        const DEVICE: u32 = 2;
        let peer = CUDA_MEMCPY3D_PEER {
            srcMemoryType: src_memory_type,
            srcDevice: 0x10,
            srcContext: 0xc0,
            dstMemoryType: DEVICE,
            dstDevice: 0x20,
            dstContext: 0xc1,
            WidthInBytes: 8,
            ..CUDA_MEMCPY3D_PEER::ZERO
        };
        PeerCopy { copied: Copied::Box(peer), stream: 5 }
    }

    #[test]
    fn decide_capturing_stream_gets_the_equal_copy() {
        let replacement = Replacement { copy: linear(), per_thread: false };
        assert_eq!(
            decide(&Fake::with_memory_below(0x1000), Function::cuMemcpyPeerAsync, &linear()),
            Verdict::Instead(replacement)
        );
        let per_thread = Replacement { per_thread: true, ..replacement };
        assert_eq!(
            decide(&Fake::with_memory_below(0x1000), Function::cuMemcpyPeerAsync_ptsz, &linear()),
            Verdict::Instead(per_thread)
        );
    }

    #[test]
    fn decide_3d_loses_its_contexts_and_nothing_else() {
        let Verdict::Instead(replacement) =
            decide(&Fake::with_memory_below(0x1000), Function::cuMemcpy3DPeerAsync, &boxed(2))
        else {
            panic!("forwarded")
        };
        let (Copied::Box(ordinary), Copied::Box(peer)) = (replacement.copy.copied, boxed(2).copied) else {
            panic!("not in 3D")
        };
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
    fn decide_3d_with_an_array_or_host_memory_is_forwarded() {
        for memory_type in [0, 1, 3, 5] {
            assert_eq!(
                decide(&Fake::with_memory_below(0x1000), Function::cuMemcpy3DPeerAsync, &boxed(memory_type)),
                Verdict::Forward
            );
        }
    }

    #[test]
    fn decide_memory_that_is_on_no_device_is_forwarded() {
        for end in [0x10, 0x20] {
            assert_eq!(decide(&Fake::with_memory_below(end), Function::cuMemcpyPeerAsync, &linear()), Verdict::Forward);
            assert_eq!(
                decide(&Fake::with_memory_below(end), Function::cuMemcpy3DPeerAsync, &boxed(2)),
                Verdict::Forward
            );
        }
    }

    #[test]
    fn note_counts_begun_and_ended_captures() {
        // The count is the process's: one test at a time.
        static COUNT: Mutex<()> = Mutex::new(());
        let _one_at_a_time = COUNT.lock();
        let note_all = |functions: &[(Function, i32)]| {
            for &(function, code) in functions {
                note(function, Code(code));
            }
        };
        note_all(&[(Function::cuStreamEndCapture, 0), (Function::cuStreamBeginCapture_v2, 900)]);
        assert!(!may_be_under_way(), "an end without a beginning, and one that failed");
        note_all(&[(Function::cuStreamBeginCapture_v2, 0), (Function::cuStreamBeginCapture_v2_ptsz, 0)]);
        note_all(&[(Function::cuStreamEndCapture, 901), (Function::cuStreamEndCapture_ptsz, 400)]);
        assert!(may_be_under_way(), "one is left: 400 ends nothing");
        note_all(&[(Function::cuStreamEndCapture_ptsz, 0)]);
        assert!(!may_be_under_way());
    }
}
