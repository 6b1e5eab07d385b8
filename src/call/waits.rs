//! Waits of the driver that copies lose where p2pshim has made them direct: see [`crate::policy::waits`].
//!
//! A thread waits here as in the program's own call: signals arrive, and a cancelled thread leaves.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::arrival::Call;
use super::{context, mode, thread};
use crate::api::abi::Value;
use crate::api::{Copies, Effect};
use crate::model::{Memcpy, Part};
use crate::os;
use crate::policy::waits::{Key, LAUNCH, LEGACY, Of, PER_THREAD};
use crate::policy::{ACCESS, Driver, Judged, WAITS, capture};
use crate::real::driver::RealDriver;
use crate::real::driver::waits;

// ---- Copies ----

/// Copies were made. For each that only p2pshim made direct, records an event, so that later calls that wait find the copy.
#[inline(always)]
pub(super) fn after(call: &Call<'_>, made: &[Part]) {
    if made.iter().any(|part| part.traffic.kept.is_some()) {
        after_direct(call, made);
    }
}

#[inline(never)]
fn after_direct(call: &Call<'_>, made: &[Part]) {
    let by = match (call.request.copy(), call.function().effect(), call.request.arguments) {
        (Some(copy), ..) => Made::Copy(copy),
        (None, Effect::Copies(Copies::graph), &[Value::Address(exec), ..]) if WAITS.launched(exec) => return,
        (None, Effect::Copies(Copies::graph), _) => Made::Launch,
        _ => Made::Batch,
    };
    for owners in made.iter().filter_map(|part| part.traffic.kept) {
        keep(call.stream(), call.function().per_thread(), owners, by);
    }
}

/// By what a copy was made.
#[derive(Clone, Copy)]
enum Made<'a> {
    Copy(&'a Memcpy<'a>),
    Batch,
    /// The launch of a graph that records no events itself.
    Launch,
}

fn keep(stream: usize, per_thread: bool, owners: [u8; 2], made: Made<'_>) {
    let key = |stream, thread, context| Key { stream, thread, context, owners, epoch: ACCESS.epoch() };
    let key = match (stream, per_thread) {
        (0, false) | (LEGACY, _) => match made {
            Made::Launch => key(LEGACY, LAUNCH, RealDriver.current_context().unwrap_or(0)),
            _ => key(LEGACY, 0, 0),
        },
        (0, true) | (PER_THREAD, _) => {
            let context = match made {
                Made::Copy(copy) => context::of_copy(copy, true),
                _ => context::of_stream(PER_THREAD, true),
            };
            let Some((context, _)) = context else { return };
            key(PER_THREAD, thread::id() as u64, context)
        }
        _ => key(stream, 0, 0),
    };
    if !WAITS.record(&RealDriver, &key) {
        keep_first(&key, per_thread);
    }
}

/// The first copy of a stream between two owners.
#[cold]
#[inline(never)]
fn keep_first(key: &Key, per_thread: bool) {
    mode::unseen(|| {
        let own = match key.stream {
            LEGACY if key.thread != LAUNCH => None,
            LEGACY | PER_THREAD => Some(key.context),
            stream => Some(RealDriver.stream_context(stream, per_thread)?),
        };
        let own = match own {
            Some(context) => Some((context, RealDriver.context_id(context)?)),
            None => None,
        };
        WAITS.add(&RealDriver, key, own, key.owners.map(|owner| ACCESS.context_of(&RealDriver, owner)));
        Some(())
    });
    // With a full queue this may take as long as the copy's own call.
    if !WAITS.record(&RealDriver, key) {
        log::debug!("an event behind a copy could not be recorded: calls that wait for it otherwise may not");
    }
}

// ---- Calls that wait ----

/// The program is about to wait for all work of a context; of the current one, if none is given.
#[inline(always)]
pub(super) fn before_work_of(context: Option<usize>) {
    if !WAITS.are_none() && WAITS.are_pending() {
        wait_for_work_of(context);
    }
}

#[cold]
#[inline(never)]
fn wait_for_work_of(context: Option<usize>) {
    if let Some(context) = context.or_else(|| RealDriver.current_context()) {
        wait(&Of::Context(context));
    }
}

/// It is about to free memory, which waits for all work of the context that the memory belongs to.
#[inline(always)]
pub(super) fn before_free(address: u64) {
    if !WAITS.are_none() && WAITS.are_pending() {
        wait_to_free(|| RealDriver.context_of_memory(address));
    }
}

/// It is about to destroy an array.
#[inline(always)]
pub(super) fn before_array_free(array: usize) {
    if !WAITS.are_none() && WAITS.are_pending() {
        // One that was not made in sight is taken to be of the current context.
        wait_to_free(|| mode::unseen(|| ACCESS.context_of_array(array)).or_else(|| RealDriver.current_context()));
    }
}

/// Memory of a pool belongs to no context, and nobody waits for it.
#[cold]
#[inline(never)]
fn wait_to_free(context: impl FnOnce() -> Option<usize>) {
    if let Some(context) = context() {
        wait(&Of::Memory(context));
    }
}

/// It is about to end a context, which waits for all work of the process.
pub(super) fn before_context_ends() {
    if !WAITS.are_none() && WAITS.are_pending() {
        wait(&Of::All);
    }
}

fn wait(of: &Of) {
    let mut from = 0;
    while let Some(pending) = WAITS.pending(of, from) {
        from = pending.next();
        let is_over = match (pending.event, of) {
            (Some(event), _) => wait_for(event),
            // Of the end whose memory goes: the other's stream may have more to do since.
            (None, &Of::Memory(context)) => wait_for_legacy(context),
            (None, _) => wait_for_legacy(pending.end),
        };
        if is_over {
            WAITS.is_over(&pending);
        }
    }
}

/// Waits for an event, such that no capture is disturbed.
fn wait_for(event: usize) -> bool {
    if capture::may_be_under_way() {
        return RealDriver.relaxed(|| waits::wait(event)).is_some();
    }
    waits::wait(event);
    true
}

/// Waits for the legacy default stream of one end's context, behind which a copy on any legacy default stream is ordered. While anything is
/// captured, that may be a stream which it would have to wait for.
fn wait_for_legacy(context: usize) -> bool {
    if capture::may_be_under_way() {
        return false;
    }
    let Some(event) = mode::unseen(|| waits::mark_legacy(context)) else { return false };
    waits::wait(event);
    mode::unseen(|| waits::drop_mark(context, event));
    true
}

/// The program is about to record an event behind all work of a context.
pub(super) fn before_record_of(context: usize) {
    if WAITS.are_none() || !WAITS.are_pending() {
        return;
    }
    mode::unseen(|| {
        let mut from = 0;
        let events = std::iter::from_fn(|| {
            let pending = WAITS.pending(&Of::Context(context), from)?;
            from = pending.next();
            Some(pending.event)
        });
        waits::have_context_follow(context, events.flatten());
        Some(())
    });
}

// ---- Modules ----

/// The contexts of modules that were loaded in sight: unloading waits for that context, whichever is current.
static MODULES: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// A module was loaded into the current context.
pub(super) fn module_is_loaded(module: usize) {
    mode::unseen(|| {
        let context = RealDriver.current_context()?;
        os::lock(&MODULES).insert(module, context)
    });
}

/// The program is about to unload a module.
pub(super) fn before_unload(module: usize) {
    let context = mode::unseen(|| os::lock(&MODULES).remove(&module));
    before_work_of(context);
}

// ---- Primary contexts ----

/// How often the program has retained the primary context of each device, as far as was seen.
static RETAINED: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

fn retained(device: i32) -> Option<&'static AtomicU32> {
    RETAINED.get(usize::try_from(device).ok()?)
}

/// It has retained one.
pub(super) fn primary_is_retained(device: i32) {
    retained(device).inspect(|count| _ = count.fetch_add(1, Relaxed));
}

/// It is about to release one. Whether that may end it.
pub(super) fn is_last_release(device: i32) -> bool {
    let before = retained(device).map(|count| count.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1)));
    !matches!(before, Some(Ok(2..)))
}
