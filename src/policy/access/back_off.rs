//! When something is tried again that could not be decided.

use std::time::{Duration, Instant};

use p2pshim_trace::{FIRST_BYTES, FIRST_COPIES};

/// A test says itself when time has gone by.
const AGAIN: Duration = if cfg!(test) { Duration::from_secs(3600) } else { Duration::from_secs(1) };
/// Times and thresholds stay within their types.
const MOST_DOUBLINGS: u32 = 24;

/// Tries in vain. Each doubles the time until the next, and what has to be copied before it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BackOff {
    pub(super) tries: u32,
    last: Option<Instant>,
}

impl BackOff {
    /// A try begins, or was in vain.
    pub(crate) fn mark(&mut self) {
        *self = Self { tries: (self.tries + 1).min(MOST_DOUBLINGS), last: Some(Instant::now()) };
    }

    /// Whether it is time for another try.
    pub(crate) fn is_due(&self) -> bool {
        let pause = || AGAIN * (1 << (self.tries.clamp(1, 11) - 1));
        self.last.is_none_or(|last| last.elapsed() >= pause())
    }

    /// Whether so much was copied that a pair is worth the cost of enabling it (milliseconds, once), or another try.
    pub(super) fn is_worth(&self, (copies, bytes): (u32, u64)) -> bool {
        copies > FIRST_COPIES << self.tries || bytes > FIRST_BYTES << self.tries
    }
}
