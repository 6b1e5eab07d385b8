//! A lock that outlives the threads that held it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whatever a thread that has ended has left behind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
