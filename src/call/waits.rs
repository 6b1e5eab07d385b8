//! Waits of the driver that copies lose where p2pshim has made them direct: see [`crate::policy::waits`].
//!
//! A thread waits here as in the program's own call: signals arrive, and pthread_cancel unwinds through.

use std::cell::OnceCell;
use std::mem::ManuallyDrop;

use super::arrival::Call;
use super::decision::{Decision, FEW};
use super::{context, mode, thread};
use crate::api::abi::{Code, Value};
use crate::api::{Copies, Effect, Layer};
use crate::model::{Endpoints, Part};
use crate::objects::streams::{self, PER_THREAD};
use crate::objects::{OBJECTS, captures};
use crate::os::{self, alloc};
use crate::policy::waits::{Announced, Context, Left, Pending, Stream, SyncScope};
use crate::policy::{Driver, VerifyBackend, WAITS};
use crate::real::driver::RealDriver;
use crate::real::driver::waits;

// ---- Copies ----

/// The announcements of a call's copies, in the order of its parts. It has no destructor, since a thread may be cancelled inside the real
/// function: [`Announcements::give_back`] frees it.
#[must_use]
pub(super) struct Announcements {
    first: [Option<Announced>; FEW],
    more: ManuallyDrop<Option<Box<[Option<Announced>]>>>,
}

impl Announcements {
    pub(super) const NONE: Self = Self { first: [None; FEW], more: ManuallyDrop::new(None) };

    /// Frees them. If a thread is cancelled inside the real function, this does not run, and they leak.
    #[inline(always)]
    pub(super) fn give_back(self) {
        if self.more.is_some() {
            mode::unseen(|| drop(ManuallyDrop::into_inner(self.more)));
        }
    }

    fn of(&self, part: usize) -> Option<Announced> {
        *self.first.get(part).or_else(|| self.more.as_ref()?.get(part - FEW))?
    }
}

/// Whether p2pshim keeps waits for any part of a call.
#[inline(always)]
fn are_kept(call: &Call<'_>, parts: &[Part]) -> bool {
    call.function().layer() == Layer::Driver && parts.iter().any(|part| part.traffic.keeps_waits())
}

/// Copies are about to be made. Announces each that only p2pshim makes direct, so that later calls that wait find it.
#[inline(always)]
pub(super) fn before(call: &Call<'_>, decision: &Decision) -> Announcements {
    let parts = decision.copied.parts();
    if are_kept(call, parts) { announce(call, parts) } else { Announcements::NONE }
}

#[inline(never)]
fn announce(call: &Call<'_>, parts: &[Part]) -> Announcements {
    let exec = match (call.function().effect(), call.request.arguments) {
        (Effect::Copies(Copies::graph), &[Value::Address(exec), ..]) => Some(exec),
        _ => None,
    };
    let stream = OnceCell::new();
    let stream = || *stream.get_or_init(|| self::stream(call, exec.is_some()));
    let announce = |part: &Part| {
        let ends = part.traffic.wait_contexts;
        if ends == [0; 2] {
            return None;
        }
        // A graph that records its events itself, or else the stream.
        let of_graph = exec.and_then(|exec| WAITS.announce(Stream::Graph(exec), ends));
        of_graph.or_else(|| WAITS.announce(stream()?, ends)).or_else(|| announce_first(call, stream()?, ends))
    };
    let mut announcements = Announcements::NONE;
    announcements.first.iter_mut().zip(parts).for_each(|(place, part)| *place = announce(part));
    if let Some(more) = parts.get(FEW..).filter(|more| !more.is_empty()) {
        // Nothing that has to be dropped is in this frame.
        mode::unseen(|| {
            let announced = alloc::collect(more.iter().map(|_| None)).map(Vec::into_boxed_slice);
            announcements.more = ManuallyDrop::new(announced);
        });
        let places = announcements.more.iter_mut().flat_map(|more| more.iter_mut());
        places.zip(more).for_each(|(place, part)| *place = announce(part));
    }
    announcements
}

/// The stream of a call's copies; none if no context is current.
fn stream(call: &Call<'_>, is_launch: bool) -> Option<Stream> {
    Some(match streams::Stream::new(call.stream(), call.function().per_thread(), thread::id()) {
        streams::Stream::Legacy if is_launch => Stream::LegacyOf(RealDriver.current_context()?),
        streams::Stream::Legacy => Stream::Legacy,
        streams::Stream::PerThread(thread) => {
            let own = match call.request.copy() {
                // It has to be asked whose memory that is.
                Some(copy) if copy.stream.is_none() => mode::unseen(|| context::of_copy(copy, true)),
                _ => context::of_stream(PER_THREAD, true),
            };
            Stream::PerThread(own?.0, thread as u32)
        }
        streams::Stream::Created(stream) => Stream::Created(stream),
    })
}

/// Announces the first copy of a stream between two ends.
#[cold]
#[inline(never)]
fn announce_first(call: &Call<'_>, stream: Stream, ends: Endpoints) -> Option<Announced> {
    mode::unseen(|| {
        let own = match stream {
            Stream::Legacy | Stream::Graph(_) => None,
            Stream::LegacyOf(context) | Stream::PerThread(context, _) => Some(context),
            // Old drivers do not tell: most likely the current one.
            Stream::Created(stream) => {
                let own = RealDriver.stream_context(stream, call.function().per_thread());
                Some(own.or_else(|| RealDriver.current_context())?)
            }
        };
        let own = match own {
            Some(context) => Some((context, RealDriver.context_id(context)?)),
            None => None,
        };
        WAITS.add(&RealDriver, stream, own, ends)
    })
}

/// The copies were made, or not. Records an event behind each that was announced.
#[inline(always)]
pub(super) fn after(call: &Call<'_>, parts: &[Part], announcements: &Announcements, ret: Code) {
    if are_kept(call, parts) {
        record(call, parts, announcements, ret);
    }
}

#[inline(never)]
fn record(call: &Call<'_>, parts: &[Part], announcements: &Announcements, ret: Code) {
    for (number, part) in parts.iter().enumerate().filter(|(_, part)| part.traffic.keeps_waits()) {
        let announced = announcements.of(number);
        if ret != Code::SUCCESS {
            // Of several copies some may have been made.
            let is_recorded = |announced| call.request.copy().is_none() && WAITS.finish(&RealDriver, announced);
            announced.into_iter().filter(|&announced| !is_recorded(announced)).for_each(|one| WAITS.withdraw(one));
        } else if !announced.is_some_and(|announced| WAITS.finish(&RealDriver, announced)) {
            record_anew(call, announced, part.traffic.wait_contexts);
        }
    }
}

/// The copy could not be announced, or the event not recorded: if another entry does not help, waits for the copy.
#[cold]
#[inline(never)]
fn record_anew(call: &Call<'_>, announced: Option<Announced>, ends: Endpoints) {
    let stream = stream(call, matches!(call.function().effect(), Effect::Copies(Copies::graph)));
    if let (Some(announced), Some(stream)) = (announced, stream) {
        mode::unseen(|| {
            WAITS.withdraw(announced);
            WAITS.forget(stream, ends);
        });
    }
    let announced = stream.and_then(|stream| announce_first(call, stream, ends));
    // With a full queue this may take as long as the copy's own call.
    if announced.is_some_and(|announced| WAITS.finish(&RealDriver, announced)) {
        return;
    }
    log::debug!("no event can be recorded behind a copy, so p2pshim waits for the copy");
    let handle = if call.stream() == 0 && call.function().per_thread() { PER_THREAD } else { call.stream() };
    if captures::may_be_under_way() {
        while mode::unseen(|| RealDriver.relaxed(|| RealDriver.is_stream_idle(handle)).flatten()) == Some(false) {
            os::nap();
        }
    } else {
        waits::wait_for_stream(handle);
    }
    announced.into_iter().for_each(|announced| WAITS.withdraw(announced));
}

// ---- Calls that wait ----

/// The program is about to wait for all work of a context; of the current one, if none is given.
#[inline(always)]
pub(super) fn before_work_of(context: Option<usize>) {
    if WAITS.are_pending(&SyncScope::All) {
        wait_for_work_of(context);
    }
}

#[cold]
#[inline(never)]
fn wait_for_work_of(context: Option<usize>) {
    if let Some(context) = context.or_else(|| RealDriver.current_context()) {
        wait(&SyncScope::Context(context));
    }
}

/// It is about to free memory, which waits for all work of the context that the memory belongs to.
#[inline(always)]
pub(super) fn before_free(address: u64) {
    if WAITS.are_pending(&SyncScope::All) {
        wait_to_free(|| RealDriver.context_of_memory(address));
    }
}

/// It is about to destroy an array.
#[inline(always)]
pub(super) fn before_array_free(array: usize) {
    if WAITS.are_pending(&SyncScope::All) {
        // One that was not made in sight is taken to be of the current context.
        wait_to_free(|| {
            mode::unseen(|| OBJECTS.arrays.made_in(array).map(|(context, ..)| context))
                .or_else(|| RealDriver.current_context())
        });
    }
}

/// Memory of a pool belongs to no context, and nobody waits for it.
#[cold]
#[inline(never)]
fn wait_to_free(context: impl FnOnce() -> Option<usize>) {
    if let Some(context) = context() {
        wait(&SyncScope::Memory(context));
    }
}

/// It is about to end a context, which waits for all work of the process.
pub(super) fn before_context_ends() {
    if WAITS.are_pending(&SyncScope::All) {
        wait(&SyncScope::All);
    }
}

fn wait(of: &SyncScope) {
    let mut last: Option<(Pending, Option<Left>)> = None;
    let mut is_over = false;
    while WAITS.are_pending(of) {
        let next = mode::unseen(|| {
            let last = last.as_mut().map(|(last, left)| {
                if is_over {
                    left.take().into_iter().for_each(|left| WAITS.finish_left(last, left));
                    WAITS.mark_done(last);
                }
                &*last
            });
            let next = WAITS.next(of, last)?;
            Some((next, WAITS.record_left(&RealDriver, &next, thread::id() as u32)))
        });
        let Some((pending, left)) = next else { return };
        is_over = match (pending.event, of) {
            (Some(event), _) => wait_for(event, pending.own),
            // Of the end whose memory goes: the other's stream may have more to do since.
            (None, &SyncScope::Memory(context)) => wait_for_legacy(context),
            (None, _) => wait_for_legacy(pending.endpoint),
        };
        if let Some(Left(Some((own, event)))) = left {
            is_over &= wait_for(event, own);
        }
        last = Some((pending, left));
    }
}

/// Waits for an event of a context, such that no capture is disturbed. False if that cannot be.
fn wait_for(event: usize, (own, _): Context) -> bool {
    if !captures::may_be_under_way() {
        waits::wait(event);
        return true;
    }
    let relaxed = |ask: &dyn Fn() -> Option<bool>| mode::unseen(|| RealDriver.relaxed(ask).flatten());
    if relaxed(&|| Some(waits::is_over(event))) == Some(true) {
        return true;
    }
    // The event may be recorded anew meanwhile.
    let mark = mode::unseen(|| RealDriver.relaxed(|| waits::mark(own, event)).flatten());
    let Some(mark) = mark else { return false };
    // The thread's mode must be its own whenever a handler may leave.
    while relaxed(&|| Some(waits::is_over(mark))) == Some(false) {
        os::nap();
    }
    relaxed(&|| {
        waits::drop_mark(own, mark);
        Some(true)
    }) == Some(true)
}

/// Waits for the legacy default stream of one end's context, behind which a copy on any legacy default stream is ordered. While anything is
/// captured, that may be a stream which it would have to wait for.
fn wait_for_legacy(context: usize) -> bool {
    if captures::may_be_under_way() {
        return false;
    }
    let Some(event) = mode::unseen(|| waits::mark_legacy(context)) else { return false };
    waits::wait(event);
    mode::unseen(|| waits::drop_mark(context, event));
    true
}

/// The program is about to record an event behind all work of a context.
pub(super) fn before_record_of(context: usize) {
    if !WAITS.are_pending(&SyncScope::Context(context)) {
        return;
    }
    let has_followed = mode::unseen(|| {
        let mut last = None;
        let next = || {
            last = WAITS.next(&SyncScope::Context(context), last.as_ref());
            Some((last?, WAITS.record_left(&RealDriver, &last?, thread::id() as u32)))
        };
        let all = alloc::collect(std::iter::from_fn(next))?;
        let left = || all.iter().filter_map(|(_, left)| (*left)?.0);
        let events = all.iter().filter_map(|(pending, _)| pending.event).chain(left().map(|(_, event)| event));
        let has_followed = waits::follow(context, events, None);
        // The stream waits for their records of now.
        left().for_each(|event| WAITS.give_back(event));
        Some(has_followed)
    });
    if has_followed != Some(true) {
        wait(&SyncScope::Context(context));
    }
}

// ---- Modules ----

/// A module was loaded into the current context.
pub(super) fn on_module_loaded(module: usize) {
    mode::unseen(|| {
        OBJECTS.contexts.note_module(module, RealDriver.current_context()?);
        Some(())
    });
}

/// The program is about to unload a module.
pub(super) fn before_unload(module: usize) {
    before_work_of(mode::unseen(|| OBJECTS.contexts.forget_module(module)));
}
