//! Captures that are under way, and questions to the driver that no capture could bear.
//!
//! A capture is known by its stream and the thread that began it, and ends with the stream. If calls are checked and the stream was made in sight, its
//! context is known, and the capture ends with that too. A capture for a graphics API
//! is known by its function alone: nothing says that the driver calls it a capture.

use std::sync::Mutex;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{RwLock, RwLockReadGuard};

use super::streams::Stream;
use crate::api::Function;
use crate::api::abi::Code;
use crate::os;

/// How many captures are under way, or about to begin.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

#[derive(Clone, Copy, Debug)]
struct Capture {
    stream: Stream,
    /// The thread that began it.
    thread: usize,
    /// The stream's context, and what tells it from later ones; none if that is not known.
    context: Option<(usize, u64)>,
    is_for_graphics: bool,
}

/// All of them. The lock is held for a moment only; it is the standard library's: see [`os::lock`].
static CAPTURES: Mutex<Vec<Capture>> = Mutex::new(Vec::new());

/// The first call that failed such that a capture was lost, since one ended.
static LOST: Mutex<Option<(Function, Code)>> = Mutex::new(None);

/// A call returned an error while a capture may be under way, which may be lost by it.
#[cold]
pub(crate) fn note_failure(function: Function, ret: Code) {
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
    may_be_under_way() && os::lock(&CAPTURES).iter().any(|begun| begun.thread == thread)
}

/// A capture is about to begin: from now on nothing is asked that it might not bear.
pub(crate) fn announce() {
    UNDER_WAY.fetch_add(1, SeqCst);
}

fn count_ended() {
    let _ = UNDER_WAY.fetch_update(SeqCst, SeqCst, |captures| captures.checked_sub(1));
}

/// A capture has begun, or was refused; `is_announced` if [`announce`] was called. It ends with its stream's context, if
/// that is known.
pub(crate) fn on_begun(
    (stream, thread, is_for_graphics): (Stream, usize, bool),
    ret: Code,
    is_announced: bool,
    context: Option<(usize, u64)>,
) {
    match (ret, is_announced) {
        (Code::SUCCESS, false) => announce(),
        (Code::SUCCESS, true) | (_, false) => {}
        (_, true) => count_ended(),
    }
    if ret == Code::SUCCESS {
        os::lock(&CAPTURES).push(Capture { stream, thread, context, is_for_graphics });
    }
}

/// A capture was to end. Whether it has: one that was invalidated ends with an error, one that was not begun does not end.
pub(crate) fn on_end(stream: Stream, ret: Code) -> bool {
    ends(stream, ret) && forget(stream)
}

/// Whether a stream captures for a graphics API. The driver is not asked: it need not call that a capture.
pub(crate) fn is_for_graphics(stream: Stream) -> bool {
    let is_begun = || os::lock(&CAPTURES).iter().any(|begun| begun.is_for_graphics && begun.stream == stream);
    may_be_under_way() && os::undisturbed(is_begun)
}

/// A stream is gone. Whether a capture has ended with it.
pub(crate) fn on_stream_destroyed(stream: Stream) -> bool {
    may_be_under_way() && forget(stream)
}

/// Contexts have ended: captures end with the context of their stream.
pub(crate) fn on_contexts_ended(has_ended: impl Fn((usize, u64)) -> bool) {
    if !may_be_under_way() {
        return;
    }
    let begun: Vec<_> = os::lock(&CAPTURES).iter().filter_map(|begun| begun.context).collect();
    // The driver is asked without the lock.
    let ended: Vec<_> = begun.into_iter().filter(|&context| has_ended(context)).collect();
    os::lock(&CAPTURES).retain(|begun| {
        let has_ended = begun.context.is_some_and(|context| ended.contains(&context));
        if has_ended {
            count_ended();
        }
        !has_ended
    });
}

fn forget(stream: Stream) -> bool {
    let mut captures = os::lock(&CAPTURES);
    let found = captures.iter().position(|begun| begun.stream == stream);
    if let Some(position) = found {
        captures.swap_remove(position);
        *os::lock(&LOST) = None;
        count_ended();
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
    ENDED.contains(&ret) || (ret == NOT_CAPTURING && matches!(stream, Stream::Created(_)) && !is_for_graphics(stream))
}

// ---- Questions ----

/// How often a thread that waits for askers looks again, and how long it waits at most: longer than any asks that is not stopped.
const INTERVAL: Duration = Duration::from_micros(20);
const PATIENCE: Duration = Duration::from_millis(200);

/// Held while the driver is asked about streams: threads that are about to destroy one, or to begin a capture, wait for that.
static ASKING: RwLock<()> = RwLock::new(());
/// How many threads wait for those who ask; nobody begins to ask meanwhile.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Begins to ask the driver about streams that nobody is about to destroy meanwhile. None if a thread waits for those who ask.
pub(crate) fn ask() -> Option<RwLockReadGuard<'static, ()>> {
    if WAITING.load(Relaxed) == 0 { ASKING.try_read() } else { None }
}

/// Does something that no capture could bear, unless one is under way; none begins meanwhile.
pub(crate) fn beside_none<T>(work: impl FnOnce() -> Option<T>) -> Option<T> {
    let _asking = ask()?;
    if may_be_under_way() { None } else { work() }
}

/// Waits for threads that ask the driver about streams that they have found before, for a limited time. If a queue is full, the
/// driver may block until the device advances, and the device may wait for this caller.
pub(crate) fn let_askers_finish() {
    if ASKING.try_write().is_some() {
        return;
    }
    let started = Instant::now();
    WAITING.fetch_add(1, Relaxed);
    while ASKING.try_write().is_none() && started.elapsed() < PATIENCE {
        thread::sleep(INTERVAL);
    }
    WAITING.fetch_sub(1, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_end_by_their_stream() {
        let (here, there) = (901, 902);
        let stream = |handle, thread| Stream::new(handle, false, thread);
        let begin = |stream, ret| on_begun((stream, here, false), ret, false, None);
        assert!(!on_end(stream(0x50, here), Code::SUCCESS), "an end without a beginning");
        begin(stream(0x50, here), Code(900));
        assert!(!is_capturing(here), "it failed");
        begin(stream(0x50, here), Code::SUCCESS);
        assert!(is_capturing(here) && !is_capturing(there) && may_be_under_way());
        assert!(!on_end(stream(0x50, here), Code(400)), "400 ends nothing");
        assert!(on_end(stream(0x50, there), Code(901)), "another thread may end it");
        assert!(!is_capturing(here));
        begin(stream(0x51, here), Code::SUCCESS);
        assert!(on_stream_destroyed(stream(0x51, there)) && !is_capturing(here));
        // A recapture that has failed ends with a code of its own, or has ended before.
        for ret in [918, 401] {
            begin(stream(0x51, here), Code::SUCCESS);
            assert!(on_end(stream(0x51, here), Code(ret)) && !is_capturing(here), "{ret}");
        }
        // One for a graphics API is not ended by the function that ends others.
        on_begun((stream(0x51, here), here, true), Code::SUCCESS, false, None);
        assert!(is_for_graphics(stream(0x51, there)) && !is_for_graphics(stream(0x52, here)));
        assert!(!on_end(stream(0x51, here), Code(401)) && on_end(stream(0x51, here), Code::SUCCESS));
        // The handle of a thread's own default stream means another stream in each thread.
        begin(stream(2, here), Code::SUCCESS);
        on_begun((stream(2, there), there, false), Code::SUCCESS, false, None);
        assert!(on_end(stream(2, there), Code::SUCCESS) && is_capturing(here) && !is_capturing(there));
        assert!(on_end(stream(2, here), Code::SUCCESS) && !is_capturing(here));
        // It has two handles in functions of the one kind.
        begin(Stream::new(0, true, here), Code::SUCCESS);
        assert!(on_end(stream(2, here), Code::SUCCESS) && !is_capturing(here));
        begin(stream(2, here), Code::SUCCESS);
        assert!(on_end(Stream::new(0, true, here), Code::SUCCESS) && !is_capturing(here));
        // With its context each ends, and no other.
        for (handle, context) in [(0x52, (0xa0, 1)), (0x53, (0xb0, 1))] {
            on_begun((stream(handle, here), here, false), Code::SUCCESS, false, Some(context));
        }
        on_contexts_ended(|_| false);
        assert!(os::lock(&CAPTURES).iter().filter(|begun| begun.thread == here).count() == 2);
        on_contexts_ended(|context| context == (0xa0, 1));
        assert!(!on_end(stream(0x52, here), Code::SUCCESS) && is_capturing(here));
        assert!(on_end(stream(0x53, here), Code::SUCCESS) && !is_capturing(here));
    }

    #[test]
    fn let_askers_finish_waits_for_them_but_not_for_ever() {
        let begun = Instant::now();
        let asked = beside_none(|| {
            // A driver that returns only when the caller has continued.
            thread::scope(|scope| scope.spawn(let_askers_finish).join().ok())?;
            Some(begun.elapsed())
        });
        assert!(asked.is_some_and(|waited| waited >= PATIENCE), "{asked:?}");
        assert_eq!(beside_none(|| Some(1)), Some(1), "it is over");
        thread::scope(|scope| {
            beside_none(|| {
                let waiter = scope.spawn(let_askers_finish);
                while WAITING.load(Relaxed) == 0 && !waiter.is_finished() {
                    thread::yield_now();
                }
                assert_eq!(beside_none(|| Some(1)), None, "nobody asks beside who waits");
                Some(())
            });
        });
    }
}
