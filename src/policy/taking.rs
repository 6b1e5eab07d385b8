//! Calls of the program that take something away, while they are under way.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::os;

/// The threads that are in such calls. A thread that has ended, perhaps inside its call, is in none.
pub(crate) struct Taking {
    threads: Mutex<BTreeSet<i32>>,
}

impl Taking {
    pub(crate) const fn new() -> Self {
        Self { threads: Mutex::new(BTreeSet::new()) }
    }

    /// The calling thread is about to make such a call. If it made one before, it has left that by `longjmp`.
    pub(crate) fn begins(&self) {
        os::lock(&self.threads).insert(os::thread_id());
    }

    /// Its call has returned, or was left.
    pub(crate) fn mark_over(&self) {
        os::lock(&self.threads).remove(&os::thread_id());
    }

    /// Whether no such call is under way.
    pub(crate) fn is_none(&self) -> bool {
        let mut threads = os::lock(&self.threads);
        threads.retain(|&thread| os::is_thread_there(thread));
        threads.is_empty()
    }
}
