//! A point in a stream that others can wait for.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::os;

/// How often a thread that waits looks whether it has been cancelled.
const CANCELLATION_INTERVAL: Duration = Duration::from_millis(10);

/// Locks, whatever a thread that panicked has left behind: the simulation rather goes on than hides the panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Done or not yet done; once done, for ever.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    done_at: Mutex<Option<Instant>>,
    changed: Condvar,
}

impl Fence {
    /// A fence that is still to be reached.
    pub(crate) fn pending() -> Arc<Fence> {
        Arc::default()
    }

    /// A fence that has been reached already.
    pub(crate) fn reached() -> Arc<Fence> {
        let fence = Fence::pending();
        fence.signal();
        fence
    }

    /// Marks the fence as reached now and wakes everybody who waits for it.
    pub(crate) fn signal(&self) {
        lock(&self.done_at).get_or_insert_with(Instant::now);
        self.changed.notify_all();
    }

    /// Returns when the fence has been reached; the calling thread may be cancelled meanwhile.
    pub(crate) fn wait(&self) {
        while !self.wait_for(CANCELLATION_INTERVAL) {
            os::cancellation_point();
        }
    }

    fn wait_for(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(lock(&self.done_at), time, |done_at| done_at.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.is_some()
    }

    /// Whether the fence has been reached.
    pub(crate) fn is_done(&self) -> bool {
        self.done_at().is_some()
    }

    /// When the fence was reached.
    pub(crate) fn done_at(&self) -> Option<Instant> {
        *lock(&self.done_at)
    }
}

/// Waits for each of `fences`.
pub(crate) fn wait_all(fences: &[Arc<Fence>]) {
    fences.iter().for_each(|fence| fence.wait());
}
