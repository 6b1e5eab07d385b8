//! Waits of the driver that a copy loses when p2pshim makes it direct.
//!
//! A copy that the driver stages is work of its stream's context and of the contexts of both endpoints. Calls that wait for a context, such as
//! `cuCtxSynchronize` and `cuMemFree`, wait for it on either side. A direct copy is work of its stream's context alone. A program that has
//! never enabled peer access may rest on those waits, so p2pshim keeps them for each pair that it has made direct itself.
//!
//! **Announced, then recorded.** Before the driver gets a copy, the copy is announced at the entry of its stream and endpoints
//! ([`Waits::announce`]). When the call has returned, the entry's event is recorded behind the copy ([`Waits::finish`]). One event serves all
//! copies of a stream between the same endpoints, since a later copy ends later. A call that was left by `longjmp` or cancellation leaves its
//! announcement: the next thread that waits records an event behind it. So there is no moment at which a copy may be direct and no entry says so.
//!
//! **Waiting.** A bit for each entry says that its copies may be under way. Before the program makes a call that waits for a context, the host
//! waits for the events of such entries with an endpoint there. Then it clears the bit, unless another copy has come meanwhile.
//!
//! **Identity.** An entry is found by the stream's handle, and left by it before the stream is destroyed. Endpoints are contexts by their handles:
//! an entry holds for whichever context has the handle, since it stands for copies of that stream. An event belongs to a context by handle and
//! id, and serves no other. Nothing here depends on owners' numbers.
//!
//! **Memory.** Entries lie in blocks of 64, each of one pair of endpoints. When a stream is destroyed, and its copies are over, its entry serves
//! another, and its event goes back to its context's spare ones. The number of streams, graphs and copies has no limit.
//!
//! On a legacy default stream the driver keeps all waits but one: memory that is freed loses its mapping before the driver waits. There no
//! event is recorded, since that would be a barrier of its own for work that other threads submit meanwhile.
//!
//! Announcing takes no lock if there is an entry. The lock for the rest is never held while the driver is called.

mod entries;
mod stream;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;

use super::driver::Driver;
use super::ended::Ended;
use crate::model::Endpoints;
use crate::os;
pub(crate) use entries::Context;
use entries::{
    ANNOUNCED, COUNT, EVENT, Entries, HAND, KIND, Locked, NOBODY, Own, PENDING, Pair, RECORDED, STATE, STREAM, TAKEN,
    TURN, USED, ends_of, has_end, is_between, low, own_number, stream_of,
};
pub(crate) use stream::Stream;

/// An event behind the copies of calls that were left; none if the entry's own is enough.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left(pub(crate) Option<(Context, usize)>);

/// The scope of a synchronizing call: whose work it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncScope {
    /// All work of a context.
    Context(usize),
    /// All work of a context whose memory is about to go.
    Memory(usize),
    /// All work of the process.
    All,
}

/// The announcement of a copy. It has to be finished or withdrawn.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    entry: u32,
    turn: u32,
}

/// Copies that may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    entry: u32,
    state: u64,
    recorded: u64,
    /// The stream's context; of a graph, the event's. None of a legacy default stream: (0, 0).
    pub(crate) own: Context,
    stream: Stream,
    /// None of a legacy default stream.
    pub(crate) event: Option<usize>,
    /// The context of one endpoint: work that its legacy default stream gets later comes after the copies.
    pub(crate) endpoint: usize,
}

/// So long a thread waits for others that use a stream which it is about to destroy.
const PATIENCE: Duration = Duration::from_secs(1);

/// All copies whose waits are kept.
pub(crate) struct Waits {
    entries: Entries,
    locked: Mutex<Locked>,
}

impl Waits {
    pub(crate) const fn new() -> Self {
        Self { entries: Entries::new(), locked: Mutex::new(Locked::new()) }
    }

    /// Whether p2pshim has made no copy direct so far.
    #[inline(always)]
    pub(crate) fn are_none(&self) -> bool {
        self.entries.pair_count() == 0
    }

    /// Whether any copy may be under way that a call waits for.
    pub(crate) fn are_pending(&self, of: &SyncScope) -> bool {
        self.entries.pairs().any(|(_, pair)| pair[COUNT].load(SeqCst) != 0 && concerns(pair, of))
    }

    // ---- Copies ----

    /// A copy is about to be made. None if there is no entry for its stream and endpoints: see [`Self::add`].
    #[inline]
    pub(crate) fn announce(&self, stream: Stream, ends: Endpoints) -> Option<Announced> {
        let (pair_number, pair) = self.entries.find_pair(ends)?;
        let (number, entry) = self.entries.find(stream.key(), pair_number)?;
        let (mut state, (handle, kind)) = (entry[STATE].load(Acquire), stream.key());
        loop {
            // If the entry begins or ceases to be used, the turn changes, and the exchange fails.
            let is_of = entry[STREAM].load(Acquire) == handle && low(&entry[KIND]) == kind && is_between(pair, ends);
            if state & USED == 0 || !is_of {
                return None;
            }
            match entry[STATE].compare_exchange(state, state + 1, SeqCst, Acquire) {
                Ok(_) => break,
                Err(now) => state = now,
            }
        }
        self.entries.mark(number, pair);
        Some(Announced { entry: number, turn: (state >> 32) as u32 })
    }

    /// The copy was made: records the event behind it. False if that cannot be done: the announcement stays.
    #[inline]
    pub(crate) fn finish(&self, driver: &impl Driver, announced: Announced) -> bool {
        let Some(entry) = self.entries.get(announced.entry) else { return false };
        let state = entry[STATE].load(Acquire);
        if (state >> 32) as u32 != announced.turn && state & TAKEN == 0 {
            // The entry serves another stream.
            return false;
        }
        let stream = stream_of(entry);
        let is_recorded = stream.record(driver, entry[EVENT].load(Acquire) as usize);
        if is_recorded {
            entry[RECORDED].fetch_add(1, SeqCst);
            self.withdraw(announced);
        }
        is_recorded
    }

    /// The copy was not made, or is recorded.
    pub(crate) fn withdraw(&self, announced: Announced) {
        let Some(entry) = self.entries.get(announced.entry) else { return };
        let mut state = entry[STATE].load(Acquire);
        while (state >> 32) as u32 == announced.turn {
            match entry[STATE].compare_exchange(state, state - 1, SeqCst, Acquire) {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
        // Another thread has waited for it in the meantime, and may have cleared the bit.
        if let Some(pair) = self.entries.pair_of(announced.entry).filter(|_| state & USED != 0) {
            self.entries.mark(announced.entry, pair);
        }
    }

    /// Adds the entry of a stream of a context, or of none if it is a legacy default stream, and announces a copy there. None if there is no memory,
    /// or no event.
    pub(crate) fn add(
        &self,
        driver: &impl Driver,
        stream: Stream,
        own: Option<Context>,
        ends: Endpoints,
    ) -> Option<Announced> {
        self.reuse(driver, ends);
        let event = match own {
            Some(context) => Some((context, self.event(driver, context)?)),
            None => None,
        };
        let locked = &mut *os::lock(&self.locked);
        if !self.entries.insert(locked, stream, event, ends) {
            event.into_iter().for_each(|(context, event)| locked.give_back(context, event));
        }
        // Under the lock nobody changes what leads to it.
        self.announce(stream, ends)
    }

    /// Adds the entry of an executable graph, which records an event itself. False if there is no memory: nobody else may get the event.
    pub(crate) fn add_graph(&self, exec: usize, event: (Context, usize), ends: Endpoints) -> bool {
        self.entries.insert(&mut os::lock(&self.locked), Stream::Graph(exec), Some(event), ends)
    }

    /// An event of a context that nobody has. None if the driver makes none.
    pub(crate) fn event(&self, driver: &impl Driver, context: Context) -> Option<usize> {
        let spare = os::lock(&self.locked).own(context).and_then(|(_, own)| own.spare.pop());
        spare.or_else(|| driver.new_event(context))
    }

    /// Nobody has the event any more.
    pub(crate) fn give_back(&self, (context, event): (Context, usize)) {
        os::lock(&self.locked).give_back(context, event);
    }

    /// The driver does not take the entry's event: the stream's handle was given to another unseen. Whoever waits for the old copies still does.
    pub(crate) fn forget(&self, stream: Stream, ends: Endpoints) {
        let _locked = os::lock(&self.locked);
        if let Some((pair, _)) = self.entries.find_pair(ends)
            && let Some((number, entry)) = self.entries.find(stream.key(), pair)
        {
            self.entries.detach(number, entry);
        }
    }

    // ---- Calls that wait ----

    /// The first entry behind another one with copies that may be under way and that a call waits for.
    pub(crate) fn next(&self, of: &SyncScope, behind: Option<&Pending>) -> Option<Pending> {
        let locked = &*os::lock(&self.locked);
        let behind = behind.map(|pending| pending.entry);
        let first = behind.and_then(|entry| self.entries.pair_number(entry));
        let is_next =
            |number, pair: &Pair| Some(number) >= first && pair[COUNT].load(SeqCst) != 0 && concerns(pair, of);
        let is_waited_for = |pending: &Pending| {
            // The driver waits for work of the stream's own context, and for that of the legacy default stream. But what goes with memory or
            // a context loses its mapping before the driver waits. A graph may be launched on any stream.
            match (*of, pending.stream) {
                (SyncScope::All | SyncScope::Memory(_), _) | (_, Stream::Graph(_)) => true,
                (_, Stream::Legacy) => false,
                (SyncScope::Context(context), _) => pending.own.0 != context,
            }
        };
        let pairs = self.entries.pairs().filter(|(number, pair)| is_next(*number, pair));
        let entries =
            pairs.flat_map(|(number, pair)| self.entries.pending_of(pair, behind.filter(|_| Some(number) == first)));
        entries.filter_map(|number| self.pending(locked, number)).find(is_waited_for)
    }

    /// Records an event behind the copies of calls that were left, or are under way: not the entry's own, since such a call may have
    /// returned by now, and recorded that before later work of the stream. The caller waits for both, and then calls [`Self::finish_left`].
    /// None if there is no such call, or nothing can be recorded now.
    pub(crate) fn record_left(&self, driver: &impl Driver, pending: &Pending, thread: u32) -> Option<Left> {
        if pending.state & ANNOUNCED == 0 {
            return None;
        }
        match pending.stream {
            Stream::Legacy | Stream::Graph(_) => return Some(Left(None)),
            // Only the thread itself can record an event on its default stream.
            Stream::PerThread(_, other) if other != thread => return None,
            _ => {}
        }
        self.use_stream(pending)?;
        let event = self.record_behind(driver, pending);
        let in_use = &mut os::lock(&self.locked).in_use;
        if let Some(place) = in_use.iter().position(|&entry| entry == pending.entry) {
            in_use.swap_remove(place);
        }
        event.map(|event| Left(Some((pending.own, event))))
    }

    /// An event behind all that a stream has to do by now.
    fn record_behind(&self, driver: &impl Driver, pending: &Pending) -> Option<usize> {
        let event = pending.stream.may_record(driver).then(|| self.event(driver, pending.own))??;
        let is_recorded = pending.stream.record(driver, event);
        if !is_recorded {
            self.give_back((pending.own, event));
        }
        is_recorded.then_some(event)
    }

    /// From now on [`Self::on_stream_destroy`] waits before it lets another thread destroy the stream of an entry. None if that has begun: then
    /// the entry's event is recorded, and the driver may not know the stream any more.
    fn use_stream(&self, pending: &Pending) -> Option<()> {
        let entry = self.entries.get(pending.entry)?;
        let locked = &mut *os::lock(&self.locked);
        let stream = stream_of(entry);
        (stream == pending.stream && stream != Stream::Created(0)).then(|| locked.in_use.push(pending.entry))
    }

    /// The caller has waited for what [`Self::record_left`] returned, and for the entry's event.
    pub(crate) fn finish_left(&self, pending: &mut Pending, left: Left) {
        let Left(event) = left;
        event.into_iter().for_each(|event| self.give_back(event));
        self.take(pending);
    }

    /// Nobody has to record the announcements any more. A call that is under way still marks the entry when it has returned.
    fn take(&self, pending: &mut Pending) {
        let Some(entry) = self.entries.get(pending.entry) else { return };
        let next = (pending.state & !ANNOUNCED | TAKEN).wrapping_add(TURN);
        if entry[STATE].compare_exchange(pending.state, next, SeqCst, Acquire).is_ok() {
            pending.state = next;
        }
    }

    /// The caller has waited for the copies.
    pub(crate) fn mark_done(&self, pending: &Pending) {
        let locked = &mut *os::lock(&self.locked);
        let (Some(entry), Some(pair), Some((block, bit))) =
            (self.entries.get(pending.entry), self.entries.pair_of(pending.entry), self.entries.bit(pending.entry))
        else {
            return;
        };
        let is_as_it_was = || {
            pending.state & ANNOUNCED == 0
                && entry[STATE].load(SeqCst) == pending.state
                && entry[RECORDED].load(SeqCst) == pending.recorded
        };
        if !is_as_it_was() || block[PENDING].fetch_and(!bit, SeqCst) & bit == 0 {
            return;
        }
        // A copy that was announced before this found the bit set, and one that is announced later sets it.
        if is_as_it_was() || block[PENDING].fetch_or(bit, SeqCst) & bit != 0 {
            pair[COUNT].fetch_sub(1, SeqCst);
        }
        if is_as_it_was() && pending.stream == Stream::Created(0) {
            self.entries.cease(locked, pending.entry, entry, pending.state);
        }
    }

    // ---- What ends ----

    /// A stream, or an executable graph, is about to be destroyed, and another may get its handle. Its copies continue.
    pub(crate) fn on_stream_destroy(&self, driver: &impl Driver, stream: Stream) {
        let mut from = 0;
        let next = |from: u32| {
            let locked = &mut *os::lock(&self.locked);
            let mut pairs = from..self.entries.pair_count();
            pairs.find_map(|pair| Some((pair, self.pending(locked, self.entries.find(stream.key(), pair)?.0)?)))
        };
        while let Some((pair, mut pending)) = next(from) {
            from = pair + 1;
            // No call is under way on a stream that is destroyed: what was announced was left.
            let is_left = pending.state & ANNOUNCED != 0 && stream.may_record(driver);
            if is_left && stream.record(driver, pending.event.unwrap_or(0)) {
                self.entries.get(pending.entry).into_iter().for_each(|entry| _ = entry[RECORDED].fetch_add(1, SeqCst));
            }
            self.take(&mut pending);
            let detached = {
                let _locked = os::lock(&self.locked);
                let found = self.entries.find(stream.key(), pair);
                found
                    .inspect(|&(number, entry)| self.entries.detach(number, entry))
                    .map(|(number, entry)| (number, entry, entry[STATE].load(Acquire)))
            };
            let Some((number, entry, state)) = detached else { continue };
            // The driver uses the memory of a stream that is destroyed for other things. To record an event takes microseconds.
            os::until(PATIENCE, || !os::lock(&self.locked).in_use.contains(&number));
            let locked = &mut *os::lock(&self.locked);
            // Unless it serves another stream by now.
            if !self.entries.is_pending(number) && state & ANNOUNCED == 0 {
                self.entries.cease(locked, number, entry, state);
            }
        }
    }

    /// A context is about to end. From now on no copy finds an entry with an event of it.
    pub(crate) fn on_context_ending(&self, context: usize) {
        let locked = &mut *os::lock(&self.locked);
        for (number, entry) in self.entries.used(locked.block_count) {
            let own = locked.contexts.get(own_number(entry)).map(|own| own.context.0);
            // A graph's nodes record its event as long as there is the graph.
            if own == Some(context) && low(&entry[KIND]) != Stream::GRAPH {
                self.entries.detach(number, entry);
            }
        }
    }

    /// Contexts have ended, and their events with them.
    pub(crate) fn on_contexts_ended(&self, driver: &impl Driver, ended: &Ended<'_, impl Driver>) {
        if self.are_none() {
            return;
        }
        let contexts: Vec<Context> = os::lock(&self.locked).contexts.iter().map(|own| own.context).collect();
        let gone: Vec<Context> = contexts.into_iter().filter(|&context| ended.has(context)).collect();
        let ends = self.entries.pairs().flat_map(|(_, pair)| ends_of(pair));
        let ends: BTreeSet<usize> = ends.filter(|&end| end != 0).collect();
        let gone_ends: Vec<usize> = ends.into_iter().filter(|&end| driver.context_id(end).is_none()).collect();
        let locked = &mut *os::lock(&self.locked);
        for (number, entry) in self.entries.used(locked.block_count) {
            let is_gone = locked.contexts.get(own_number(entry)).is_some_and(|own| gone.contains(&own.context));
            let pair = self.entries.pair_of(number);
            // The legacy default stream of an endpoint is gone with the endpoint.
            let is_over = own_number(entry) == NOBODY && pair.is_some_and(|pair| has_end(pair, &gone_ends));
            if is_gone || is_over {
                entry[EVENT].store(0, Release);
                while !self.entries.cease(locked, number, entry, entry[STATE].load(Acquire)) {}
            }
        }
        for own in locked.contexts.iter_mut().filter(|own| gone.contains(&own.context)) {
            *own = Own::new((0, 0));
        }
        for (number, pair) in self.entries.pairs().filter(|(_, pair)| has_end(pair, &gone_ends)) {
            self.entries.spare_pair(locked, number, pair);
        }
    }

    fn pending(&self, locked: &Locked, number: u32) -> Option<Pending> {
        let entry = self.entries.get(number)?;
        let (state, recorded) = (entry[STATE].load(SeqCst), entry[RECORDED].load(SeqCst));
        let event = Some(entry[EVENT].load(Acquire) as usize).filter(|&event| event != 0);
        let stream = stream_of(entry);
        let own = locked.contexts.get(own_number(entry)).map_or((0, 0), |own| own.context);
        let pair = self.entries.pair_of(number)?;
        let endpoint = ends_of(pair).into_iter().find(|&end| end != 0)?;
        (state & USED != 0).then_some(Pending { entry: number, state, recorded, own, stream, event, endpoint })
    }

    /// Reclaims entries of destroyed streams whose copies are over, a few at a time; otherwise they would pile up if nobody waits. Reclaims idle
    /// entries of live streams too ([`Entries::reuse_idle`]).
    fn reuse(&self, driver: &impl Driver, ends: Endpoints) {
        const TRIES: usize = 2;
        const LOOKED_AT: usize = 8;
        for _ in 0..TRIES {
            let found = {
                let locked = &mut *os::lock(&self.locked);
                let Some((_, pair)) = self.entries.find_pair(ends) else { return };
                self.entries.reuse_idle(locked, pair);
                let hand = low(&pair[HAND]).checked_sub(1);
                let mut last = None;
                let looked_at =
                    self.entries.pending_of(pair, hand).take(LOOKED_AT).inspect(|&number| last = Some(number));
                let found = looked_at.filter_map(|number| self.pending(locked, number)).find(Pending::is_nobodys);
                pair[HAND].store(last.map_or(0, |number| u64::from(number) + 1), Relaxed);
                found
            };
            if let Some(pending @ Pending { event: Some(event), .. }) = found
                && driver.has_passed(event)
            {
                self.mark_done(&pending);
            }
        }
    }
}

impl Pending {
    /// Whether no further copy of the stream is to be expected, or nobody will say so: when a thread ends.
    fn is_nobodys(&self) -> bool {
        self.state & ANNOUNCED == 0 && matches!(self.stream, Stream::PerThread(..) | Stream::Created(0))
    }
}

fn concerns(pair: &Pair, of: &SyncScope) -> bool {
    match *of {
        SyncScope::All => true,
        SyncScope::Context(context) | SyncScope::Memory(context) => has_end(pair, &[context]),
    }
}

#[cfg(test)]
mod tests;
