//! A point in a stream that others can wait for, and when it is reached by the modelled clock.
//!
//! The clock advances with the work and not with the machine: work begins when all is done that it comes after, and takes the
//! time of [`Work::time`](crate::work::Work::time). A thread that has waited for something submits nothing earlier.

use std::cell::Cell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ids::StreamId;
use crate::os;

/// How often a thread that waits looks whether it has been cancelled.
const CANCELLATION_INTERVAL: Duration = Duration::from_millis(10);

/// With an alignment that keeps this library's thread-local storage from beginning 16 bytes after a page's begin: AddressSanitizer of gcc 12 takes
/// such storage for that of glibc 2.19, and reads a size before it that is not there.
#[repr(align(64))]
struct Seen(Cell<Duration>);

thread_local! {
    /// The latest modelled time that this thread has waited for.
    static SEEN: Seen = const { Seen(Cell::new(Duration::ZERO)) };
}

/// The modelled time before which this thread can submit nothing.
pub(crate) fn now() -> Duration {
    SEEN.with(|seen| seen.0.get())
}

/// Locks, whatever a thread that panicked has left behind: the simulation rather goes on than hides the panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Done or not yet done; once done, for ever.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    /// The stream whose work it is the end of, and the place of that work there.
    place: Option<(StreamId, u64)>,
    done_at: Mutex<Option<Duration>>,
    changed: Condvar,
}

impl Fence {
    /// A fence that is still to be reached.
    pub(crate) fn pending() -> Arc<Fence> {
        Arc::default()
    }

    /// A fence that is reached when that work of a stream is done.
    pub(crate) fn of(stream: StreamId, number: u64) -> Arc<Fence> {
        Arc::new(Fence { place: Some((stream, number)), ..Fence::default() })
    }

    /// The stream whose work it is the end of, and the place of that work there.
    pub(crate) fn place(&self) -> Option<(StreamId, u64)> {
        self.place
    }

    /// A fence that has been reached already.
    pub(crate) fn reached() -> Arc<Fence> {
        let fence = Fence::pending();
        fence.signal();
        fence
    }

    /// Marks the fence as reached and wakes everybody who waits for it. It is no work: it takes no modelled time.
    pub(crate) fn signal(&self) {
        self.signal_at(Duration::ZERO);
    }

    /// Marks the fence as reached at that modelled time.
    pub(crate) fn signal_at(&self, time: Duration) {
        lock(&self.done_at).get_or_insert(time);
        self.changed.notify_all();
    }

    /// Returns when the fence has been reached; the calling thread may be cancelled meanwhile.
    pub(crate) fn wait(&self) {
        while !self.wait_for(CANCELLATION_INTERVAL) {
            os::cancellation_point();
        }
        self.note();
    }

    /// Whether the fence has been reached, for a thread that goes on differently then.
    pub(crate) fn ask(&self) -> bool {
        self.note();
        self.is_done()
    }

    fn note(&self) {
        self.done_at().into_iter().for_each(|time| SEEN.with(|seen| seen.0.set(seen.0.get().max(time))));
    }

    fn wait_for(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(lock(&self.done_at), time, |done_at| done_at.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.is_some()
    }

    /// Whether the fence has been reached.
    pub(crate) fn is_done(&self) -> bool {
        self.done_at().is_some()
    }

    /// When the fence was reached, by the modelled clock.
    pub(crate) fn done_at(&self) -> Option<Duration> {
        *lock(&self.done_at)
    }
}

/// Waits for each of `fences`.
pub(crate) fn wait_all(fences: &[Arc<Fence>]) {
    fences.iter().for_each(|fence| fence.wait());
}
