//! Peer copies on streams that are being captured into a graph.
//!
//! CUDA refuses them with 900, and the program's capture is lost. A regular copy between the same pointers makes the same copy, and
//! can be captured. So p2pshim replaces the one by the other, in the form (legacy or per-thread default stream) that the program used;
//! in the driver, so that the runtime's last error is right by itself. It forwards what has no equal, arrays and host memory, and
//! everything if a question fails. (Measured on H200 with CUDA 13.0, docs/MEASUREMENTS.md.)
//!
//! While the count of captures is 0 a copy pays one load. Otherwise p2pshim asks the driver whether the copy's stream is captured. The
//! count is too low only where a capture began past the shim; CUDA then refuses the copies as it would without us.
//!
//! A capture is known by its stream and the thread that began it, and ends with the stream or its context. A capture for a graphics API
//! is known by its function alone: nothing says that the driver calls it a capture. p2pshim forwards copies in it.

use std::sync::Mutex;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};

use super::driver::Driver;
use crate::api::Function;
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code, MEMORYTYPE_UNIFIED, is_pointer};
use crate::model::{Memcpy, Shape};
use crate::os;

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

/// How many captures are under way, or about to begin.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

#[derive(Clone, Copy, Debug)]
struct Capture {
    /// The stream, and the thread that began it.
    stream: Stream,
    /// The stream's context, and what tells it from later ones; none if that is not known.
    context: Option<(usize, u64)>,
    is_for_graphics: bool,
}

/// All of them. The lock is held for a moment only; it is the standard library's: see [`os::lock`].
static CAPTURES: Mutex<Vec<Capture>> = Mutex::new(Vec::new());

pub(super) fn configure(rewrites: bool) {
    REWRITES.store(rewrites, Relaxed);
}

pub(super) fn rewrites() -> bool {
    REWRITES.load(Relaxed)
}

/// The first call that failed such that a capture was lost, since one ended.
static LOST: Mutex<Option<(Function, Code)>> = Mutex::new(None);

/// A call returned an error while a capture may be under way, which may be lost by it.
#[cold]
pub(crate) fn has_failed(function: Function, ret: Code) {
    /// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`, `…MERGE`, `…ISOLATION`, `…IMPLICIT`: each invalidates a capture.
    const LOSES: [Code; 4] = [Code(900), Code(902), Code(905), Code(906)];
    if LOSES.contains(&ret) {
        os::undisturbed(|| _ = os::lock(&LOST).get_or_insert((function, ret)));
    }
}

/// The call by which a capture was lost, if it was seen.
pub(crate) fn lost_by() -> Option<(Function, Code)> {
    *os::lock(&LOST)
}

/// Whether any capture may be under way in the process.
#[inline(always)]
pub(crate) fn may_be_under_way() -> bool {
    UNDER_WAY.load(Relaxed) != 0
}

/// Whether a thread has begun a capture that has not ended.
pub(crate) fn is_capturing(thread: usize) -> bool {
    may_be_under_way() && os::lock(&CAPTURES).iter().any(|begun| begun.stream.thread == thread)
}

/// A stream, as a thread names it to a function about captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    handle: usize,
    /// Anything that tells threads apart.
    thread: usize,
}

impl Stream {
    /// Where each thread has a default stream of its own, the null handle means that.
    pub(crate) fn new(handle: usize, per_thread: bool, thread: usize) -> Self {
        /// `CU_STREAM_PER_THREAD`.
        const PER_THREAD: usize = 2;
        Self { handle: if handle == 0 && per_thread { PER_THREAD } else { handle }, thread }
    }

    /// Whether the program has created it, so that its handle means one stream in all threads.
    fn is_created(self) -> bool {
        /// `CU_STREAM_PER_THREAD` is the last handle that means no single stream.
        const DEFAULT_STREAMS: std::ops::RangeInclusive<usize> = 0..=2;
        !DEFAULT_STREAMS.contains(&self.handle)
    }
}

/// A capture is about to begin: from now on nothing is asked that it might not bear.
pub(crate) fn is_about_to_begin() {
    UNDER_WAY.fetch_add(1, SeqCst);
}

fn is_over() {
    let _ = UNDER_WAY.fetch_update(SeqCst, SeqCst, |captures| captures.checked_sub(1));
}

/// A capture has begun, or was refused; `is_counted` if [`is_about_to_begin`] was called. It ends with its stream's context, if
/// that is known.
pub(crate) fn has_begun(
    (stream, is_for_graphics): (Stream, bool),
    ret: Code,
    is_counted: bool,
    context: Option<(usize, u64)>,
) {
    match (ret, is_counted) {
        (Code::SUCCESS, false) => is_about_to_begin(),
        (Code::SUCCESS, true) | (_, false) => {}
        (_, true) => is_over(),
    }
    if ret == Code::SUCCESS {
        os::lock(&CAPTURES).push(Capture { stream, context, is_for_graphics });
    }
}

/// A capture was to end. Whether it has: one that was invalidated ends with an error, one that was not begun does not end.
pub(crate) fn has_ended(stream: Stream, ret: Code) -> bool {
    ends(stream, ret) && forget(stream)
}

/// Whether a stream captures for a graphics API. The driver is not asked: it need not call that a capture.
pub(crate) fn is_for_graphics(stream: Stream) -> bool {
    let is_begun = || os::lock(&CAPTURES).iter().any(|begun| begun.is_for_graphics && begun.is_on(stream));
    may_be_under_way() && os::undisturbed(is_begun)
}

/// A stream is gone. Whether a capture has ended with it.
pub(crate) fn stream_is_destroyed(stream: Stream) -> bool {
    may_be_under_way() && forget(stream)
}

/// Contexts may be gone: captures end with the context of their stream.
pub(crate) fn contexts_have_changed(driver: &impl Driver) {
    if !may_be_under_way() {
        return;
    }
    let begun: Vec<(usize, u64)> = os::lock(&CAPTURES).iter().filter_map(|begun| begun.context).collect();
    let is_gone = |&(context, id): &(usize, u64)| driver.context_id(context) != Some(id);
    let gone: Vec<(usize, u64)> = begun.into_iter().filter(is_gone).collect();
    os::lock(&CAPTURES).retain(|begun| {
        let is_gone = begun.context.is_some_and(|context| gone.contains(&context));
        if is_gone {
            is_over();
        }
        !is_gone
    });
}

impl Capture {
    /// Whether it is of a stream, whichever thread began it; of the default streams, which threads share handles of, only if it is the
    /// thread's own.
    fn is_on(&self, stream: Stream) -> bool {
        self.stream == stream || (stream.is_created() && self.stream.handle == stream.handle)
    }
}

fn forget(stream: Stream) -> bool {
    let mut captures = os::lock(&CAPTURES);
    let found = captures.iter().position(|begun| begun.is_on(stream));
    if let Some(position) = found {
        captures.swap_remove(position);
        *os::lock(&LOST) = None;
        is_over();
    }
    found.is_some()
}

/// Whether `cuStreamEndCapture` has ended a capture: not if the stream was none, or must be ended elsewhere. If it was not being
/// captured, its capture has ended before: a recapture that fails may end at once.
fn ends(stream: Stream, ret: Code) -> bool {
    /// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`, `CUDA_ERROR_STREAM_CAPTURE_UNJOINED`, `CUDA_ERROR_GRAPH_RECAPTURE_FAILURE`.
    const ENDED: &[Code] = &[Code::SUCCESS, Code(901), Code(904), Code(918)];
    /// `CUDA_ERROR_ILLEGAL_STATE`.
    const NOT_CAPTURING: Code = Code(401);
    ENDED.contains(&ret) || (ret == NOT_CAPTURING && stream.is_created() && !is_for_graphics(stream))
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
    use crate::policy::access::fake::{Fake, context};

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

    #[test]
    fn captures_end_by_their_stream() {
        let (here, there) = (901, 902);
        let stream = |handle, thread| Stream::new(handle, false, thread);
        let begin = |stream, ret| has_begun((stream, false), ret, false, None);
        assert!(!has_ended(stream(0x50, here), Code::SUCCESS), "an end without a beginning");
        begin(stream(0x50, here), Code(900));
        assert!(!is_capturing(here), "it failed");
        begin(stream(0x50, here), Code::SUCCESS);
        assert!(is_capturing(here) && !is_capturing(there) && may_be_under_way());
        assert!(!has_ended(stream(0x50, here), Code(400)), "400 ends nothing");
        assert!(has_ended(stream(0x50, there), Code(901)), "another thread may end it");
        assert!(!is_capturing(here));
        begin(stream(0x51, here), Code::SUCCESS);
        assert!(stream_is_destroyed(stream(0x51, there)) && !is_capturing(here));
        // A recapture that has failed ends with a code of its own, or has ended before.
        for ret in [918, 401] {
            begin(stream(0x51, here), Code::SUCCESS);
            assert!(has_ended(stream(0x51, here), Code(ret)) && !is_capturing(here), "{ret}");
        }
        // One for a graphics API is not ended by the function that ends others.
        has_begun((stream(0x51, here), true), Code::SUCCESS, false, None);
        assert!(is_for_graphics(stream(0x51, there)) && !is_for_graphics(stream(0x52, here)));
        assert!(!has_ended(stream(0x51, here), Code(401)) && has_ended(stream(0x51, here), Code::SUCCESS));
        // The handle of a thread's own default stream means another stream in each thread.
        begin(stream(2, here), Code::SUCCESS);
        begin(stream(2, there), Code::SUCCESS);
        assert!(has_ended(stream(2, there), Code::SUCCESS) && is_capturing(here) && !is_capturing(there));
        assert!(has_ended(stream(2, here), Code::SUCCESS) && !is_capturing(here));
        // It has two handles in functions of the one kind.
        begin(Stream::new(0, true, here), Code::SUCCESS);
        assert!(has_ended(stream(2, here), Code::SUCCESS) && !is_capturing(here));
        begin(stream(2, here), Code::SUCCESS);
        assert!(has_ended(Stream::new(0, true, here), Code::SUCCESS) && !is_capturing(here));
        // With its context each ends, and no other.
        let driver = Fake::new();
        for (handle, context) in [(0x52, (context(0), 1)), (0x53, (context(1), 1))] {
            has_begun((stream(handle, here), false), Code::SUCCESS, false, Some(context));
        }
        contexts_have_changed(&driver);
        assert!(os::lock(&CAPTURES).iter().filter(|begun| begun.stream.thread == here).count() == 2);
        driver.ids.borrow_mut().insert(context(0), 0);
        contexts_have_changed(&driver);
        assert!(!has_ended(stream(0x52, here), Code::SUCCESS) && is_capturing(here));
        assert!(has_ended(stream(0x53, here), Code::SUCCESS) && !is_capturing(here));
    }
}
