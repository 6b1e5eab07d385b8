//! The program's callbacks (`p2pshim_callback_add`), called for each call that has returned.
//!
//! A callback may call anything, the functions that it is called for included. So callbacks run when the outermost call
//! has returned, with no lock of ours or of the runtime's held, and outside the panic boundary; and calls that a callback
//! makes have no callbacks. A callback must return: of a thread that leaves one otherwise no further call has callbacks.

use std::mem::ManuallyDrop;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::compiler_fence;
use std::time::Duration;

use p2pshim_trace::REMOTE;

use super::arrival::Call;
use super::decision::Running;
use super::mode::{self, Observers, contained};
use super::thread::{self, Pending, Thread};
use crate::api::abi::Code;
use crate::api::{Effect, Function, Layer};
use crate::model::event::{CallEvent, FOUND};
use crate::model::{Path, Rule};
use crate::os;

/// Calls all callbacks for an event; with it come the rules with a finding about the call, their numbers plus one.
pub(crate) type Runner = fn(&CallEvent, [u8; FOUND]);

static RUNNER: OnceLock<Runner> = OnceLock::new();

/// Whether there are any callbacks from now on, which `runner` calls.
pub(crate) fn set_present(are_there: bool, runner: Runner) {
    RUNNER.get_or_init(|| runner);
    mode::observe(Observers::CALLBACKS, are_there);
}

/// The calling thread's events and findings, unless it is inside a callback.
fn pending() -> Option<&'static Pending> {
    Some(&thread::current().callbacks).filter(|pending| !pending.in_callback.load(Relaxed))
}

/// Those, if there are callbacks to keep more for.
fn kept() -> Option<&'static Pending> {
    pending().filter(|_| mode::observers().has(Observers::CALLBACKS))
}

/// Forgets the events of a call that has not returned.
pub(crate) fn forget(thread: &Thread) {
    if !thread.callbacks.in_callback.load(Relaxed)
        && let Some(events) = thread.callbacks.events.take()
    {
        drop_outside_signals(events);
    }
}

/// Keeps the event of a call that has returned: its result, and for a copy its devices and path.
pub(crate) fn keep(
    call: &Call<'_>,
    depth: usize,
    (given, ret): (Code, Code),
    (pair, path): (Option<(i32, i32)>, Option<Path>),
    took: Duration,
) {
    let Some(pending) = kept() else { return };
    let (function, request) = (call.function(), &call.request);
    let (ends, bytes) = request.copied();
    let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    let mut events = pending.events.take().unwrap_or_default();
    // Where a copy of the runtime goes is known from the driver's inside it.
    let copies = |function: Function| matches!(function.effect(), Effect::Copy(_));
    let inner = events.last().filter(|inner| {
        let is_copy = copies(function) && copies(inner.function);
        is_copy && function.layer() == Layer::Runtime && inner.function.layer() == Layer::Driver
    });
    let devices = match (pair, inner) {
        // A number that stands for one says nothing to the program.
        (Some((src, dst)), _) => [src, dst].map(|device| if device < i32::from(REMOTE) { device } else { -1 }),
        (None, Some(inner)) => inner.devices,
        (None, None) => request.named_devices().map(|device| device.map_or(-1, i32::from)),
    };
    let (ends, bytes) = match inner {
        Some(inner) if bytes == 0 => (inner.ends, inner.bytes),
        _ => (ends, bytes),
    };
    let start = os::monotonic_nanos().saturating_sub(took);
    let (thread, stream) = (os::thread_id(), request.stream().unwrap_or_default() as u64);
    events.push(CallEvent { function, depth, thread, start, took, ret, given, devices, ends, bytes, stream, path });
    pending.events.set(Some(events));
}

/// Keeps, for callbacks, that a rule has a finding about the call.
pub(crate) fn keep_rule(rule: Rule) {
    let Some(pending) = kept() else { return };
    let mut found = pending.found.get();
    let number = (rule as u8).saturating_add(1);
    if !found.contains(&number)
        && let Some(free) = found.iter_mut().find(|found| **found == 0)
    {
        *free = number;
        pending.found.set(found);
    }
}

/// Calls the callbacks for an outermost call, and for those inside it, in the order of their ends.
pub(crate) fn run(running: &Running) {
    let Some(pending) = pending().filter(|_| running.is_outermost()) else { return };
    // First: a signal handler's call must not take the events as well.
    pending.in_callback.store(true, Relaxed);
    compiler_fence(SeqCst);
    let (events, found) = (pending.events.take(), pending.found.take());
    if let (Some(events), Some(runner)) = (events.map(ManuallyDrop::new), RUNNER.get()) {
        for (position, event) in events.iter().enumerate() {
            let is_outermost = position + 1 == events.len();
            runner(event, if is_outermost { found } else { Default::default() });
        }
        drop_outside_signals(ManuallyDrop::into_inner(events));
    }
    compiler_fence(SeqCst);
    pending.in_callback.store(false, Relaxed);
}

/// A signal handler may leave by `longjmp`, and the allocator's lock locked.
#[cold]
#[expect(clippy::box_collection, reason = "one word, null for none")]
fn drop_outside_signals(events: Box<Vec<CallEvent>>) {
    contained(|| drop(events));
}
