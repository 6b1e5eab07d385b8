//! Calls that wait because a call of another thread does. Measured on an H200, within a context.
//!
//! While a thread waits in a free, others cannot submit work or allocate; while it waits in a copy of pageable memory, they can submit copies
//! and events, but cannot allocate, make streams or submit host functions. Whether staged copies do the same was not measured.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{ContextId, Machine, State};
use crate::current;
use crate::fence::{Fence, wait_all};
use crate::os;

/// A call of a thread that waits.
pub(super) struct Stall {
    context: ContextId,
    thread: u64,
    is_free: bool,
    until: Until,
}

/// The end of it, whatever becomes of the thread: a signal handler may leave the call.
pub(super) enum Until {
    /// When all of these are reached.
    Reached(Vec<Arc<Fence>>),
    /// At that time.
    Time(Instant),
}

impl Until {
    fn has_come(&self) -> bool {
        match self {
            Until::Reached(fences) => fences.iter().all(|fence| fence.is_done()),
            Until::Time(time) => *time <= Instant::now(),
        }
    }
}

/// The kind of a call that may have to wait for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// It submits copies or events.
    Work,
    /// It allocates, makes streams, or submits host functions.
    Objects,
}

impl Machine {
    /// Waits for calls of other threads, of the current context, that keep one of that kind waiting.
    pub(super) fn wait_for_others(&self, asked: Asked) {
        let (mut fences, mut time) = (Vec::new(), Duration::ZERO);
        let state = self.lock();
        let Ok(context) = state.current() else { return };
        let is_other = |stall: &&Stall| stall.context == context && stall.thread != current::thread();
        for stall in state.stalls.iter().filter(is_other).filter(|stall| stall.is_free || asked == Asked::Objects) {
            match &stall.until {
                Until::Reached(until) => fences.extend(until.iter().map(Arc::clone)),
                Until::Time(until) => time = time.max(until.saturating_duration_since(Instant::now())),
            }
        }
        drop(state);
        wait_all(&fences);
        if time > Duration::ZERO {
            os::pause(time);
        }
    }
}

impl State {
    /// Notes that the calling thread is about to wait.
    pub(super) fn stall(&mut self, context: ContextId, is_free: bool, until: Until) {
        self.stalls.retain(|stall| !stall.until.has_come());
        if !until.has_come() {
            self.stalls.push(Stall { context, thread: current::thread(), is_free, until });
        }
    }
}
