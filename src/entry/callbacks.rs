//! The program's callbacks (`p2pshim_listener_add`), called for each call that has returned.
//!
//! A callback may call anything, the functions that it is called for included. So callbacks run when the outermost call
//! has returned, with no lock of ours or of the runtime's held, and outside the panic fence; and calls that a callback
//! makes have no callbacks. A callback must return: of a thread that leaves one otherwise no further call has callbacks.

use std::mem::take;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::compiler_fence;
use std::time::Duration;

use super::fence::fenced;
use super::guard::Call;
use super::read::{self, Subject};
use super::thread::{self, Thread};
use crate::api::Layer;
use crate::api::abi::{Code, Value};
use crate::capi::event::{self, CallEvent};
use crate::os;
use crate::policy::path::Path;
use crate::policy::validate::{Kind, Rule};

/// The calling thread's block, unless it is inside a callback.
fn outside_callbacks() -> Option<&'static mut Thread> {
    // SAFETY: the block is this thread's own; no caller keeps another reference to it beside this one.
    Some(unsafe { &mut *thread::current() }).filter(|thread| !thread.in_callback)
}

impl Call {
    /// Drops the events of a call that has not returned.
    #[inline(always)]
    pub(super) fn drop_events(self) {
        if let Some(events) = outside_callbacks().and_then(|thread| thread.events.take()) {
            drop_outside_signals(events);
        }
    }

    /// Keeps the event of a call that has returned: its result, and for a copy its devices and path.
    pub(super) fn keep_event(
        self,
        depth: usize,
        values: &[Value],
        (ret, pair, path): (Code, Option<(i32, i32)>, Option<Path>),
        took: Duration,
    ) {
        let Subject { ends: [src, dst], bytes, stream, devices: [from, to] } = read::subject(values);
        let Some(thread) = outside_callbacks() else { return };
        let function = self.function();
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let events = thread.events.get_or_insert_default();
        // Where a copy of the runtime goes is known from the driver's inside it.
        let inner = events.last().filter(|inner| {
            let is_copy = Kind::of(function).copies() && Kind::of(inner.function).copies();
            is_copy && function.layer() == Layer::Runtime && inner.function.layer() == Layer::Driver
        });
        let devices = match (pair, inner) {
            (Some((src, dst)), _) => [src, dst],
            (None, Some(inner)) => inner.devices,
            (None, None) => [from, to].map(|device| device.map_or(-1, i32::from)),
        };
        let (ends, bytes) = match inner {
            Some(inner) if bytes == 0 => (inner.ends, inner.bytes),
            _ => ([src, dst], bytes),
        };
        events.push(CallEvent {
            function,
            depth,
            thread: os::thread_id(),
            start: os::monotonic_nanos().saturating_sub(took),
            took,
            ret,
            devices,
            ends,
            bytes,
            stream,
            path,
        });
    }

    /// Keeps, for callbacks, that a rule has a finding about the call.
    pub(super) fn keep_rule(self, rule: Rule) {
        if !event::has_callbacks() {
            return;
        }
        let Some(thread) = outside_callbacks() else { return };
        let number = (rule as u8).saturating_add(1);
        if !thread.found.contains(&number)
            && let Some(free) = thread.found.iter_mut().find(|found| **found == 0)
        {
            *free = number;
        }
    }

    /// Calls the callbacks for an outermost call, and for those inside it, in the order of their ends.
    pub(super) fn run_callbacks(self) {
        let (events, found) = {
            let Some(thread) = outside_callbacks() else { return };
            // First: a signal handler's call must not take the events as well.
            thread.in_callback = true;
            compiler_fence(SeqCst);
            (thread.events.take(), take(&mut thread.found))
        };
        if let Some(events) = events {
            for (position, event) in events.iter().enumerate() {
                let is_outermost = position + 1 == events.len();
                event::call_back(event, if is_outermost { found } else { Default::default() });
            }
            drop_outside_signals(events);
        }
        compiler_fence(SeqCst);
        // SAFETY: the block is this thread's own; the reference ends with the statement.
        unsafe { &mut *thread::current() }.in_callback = false;
    }
}

/// A signal handler may leave by `longjmp`, and the allocator's lock locked.
#[cold]
#[expect(clippy::box_collection, reason = "one word, null for none")]
fn drop_outside_signals(events: Box<Vec<CallEvent>>) {
    fenced(|| drop(events));
}
