//! Waits of the driver that a copy loses when p2pshim makes it direct.
//!
//! A copy that the driver stages is work of its stream's context and of the contexts of both ends. Calls that wait for a context, such as
//! `cuCtxSynchronize` and `cuMemFree`, wait for it on either side. A direct copy is work of its stream's context alone. A program that has
//! never enabled peer access may rest on those waits, so p2pshim keeps them for each pair that it has made direct itself.
//!
//! **Announced, then recorded.** Before the driver gets a copy, the copy is announced at the entry of its stream and ends
//! ([`Waits::announce`]). When the call has returned, the entry's event is recorded behind the copy ([`Waits::finish`]). One event serves all
//! copies of a stream between the same ends, since a later copy ends later. A call that was left by `longjmp` or cancellation leaves its
//! announcement: the next thread that waits records an event behind it. So there is no moment at which a copy may be direct and no entry says so.
//!
//! **Waiting.** A bit for each entry says that its copies may be under way. Before the program makes a call that waits for a context, the host
//! waits for the events of such entries with an end there. Then it clears the bit, unless another copy has come meanwhile.
//!
//! **Identity.** An entry is found by the stream's handle, and left by it before the stream is destroyed. Ends are contexts by their handles:
//! an entry holds for whichever context has the handle, since it stands for copies of that stream. An event belongs to a context by handle and
//! id, and serves no other. Nothing here depends on owners' numbers.
//!
//! **Memory.** Entries lie in blocks of 64, each of one pair of ends. When a stream is destroyed, and its copies are over, its entry serves
//! another, and its event goes back to its context's spare ones. The number of streams, graphs and copies has no limit.
//!
//! On a legacy default stream the driver keeps all waits but one: memory that is freed loses its mapping before the driver waits. There no
//! event is recorded, since that would be a barrier of its own for work that other threads submit meanwhile.
//!
//! Announcing takes no lock if there is an entry. The lock for the rest is never held while the driver is called.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;

use super::driver::Driver;
use super::ended::Ended;
use crate::model::Ends;
use crate::objects::index::{Index, set_low};
use crate::objects::streams::{LEGACY, PER_THREAD};
use crate::os;
use crate::os::arena::Arena;
use crate::os::table::spread;

/// A stream, or what takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// One that the program created, by its handle.
    Created(usize),
    /// The legacy default streams of all contexts, for copies.
    Legacy,
    /// The legacy default stream of a context, for launches of graphs: their copies are ordered with no other stream.
    LegacyOf(usize),
    /// The default stream that a thread has in a context.
    PerThread(usize, u32),
    /// An executable graph that records its event itself.
    Graph(usize),
}

impl Stream {
    const CREATED: u32 = 0;
    const GRAPH: u32 = u32::MAX;
    const LEGACY_OF: u32 = u32::MAX - 1;

    /// A handle, and what it is of: a thread's number, or one of the above.
    #[inline(always)]
    fn key(self) -> (u64, u32) {
        match self {
            Self::Created(stream) => (stream as u64, Self::CREATED),
            Self::Legacy => (LEGACY as u64, Self::CREATED),
            Self::LegacyOf(context) => (context as u64, Self::LEGACY_OF),
            Self::PerThread(context, thread) => (context as u64, thread),
            Self::Graph(exec) => (exec as u64, Self::GRAPH),
        }
    }

    fn of_key(handle: usize, kind: u32) -> Self {
        match kind {
            Self::CREATED if handle == LEGACY => Self::Legacy,
            Self::CREATED => Self::Created(handle),
            Self::LEGACY_OF => Self::LegacyOf(handle),
            Self::GRAPH => Self::Graph(handle),
            thread => Self::PerThread(handle, thread),
        }
    }

    /// Whether an event recorded on the stream becomes part of no capture, and ends none.
    fn may_record(self, driver: &impl Driver) -> bool {
        match self {
            Self::Created(stream) => driver.may_record(stream),
            Self::PerThread(..) => driver.may_record(PER_THREAD),
            Self::LegacyOf(_) => driver.may_record(LEGACY),
            Self::Legacy | Self::Graph(_) => true,
        }
    }

    /// Records an event on the stream, unless a graph does that itself.
    #[inline(always)]
    fn record(self, driver: &impl Driver, event: usize) -> bool {
        match self {
            // It was destroyed.
            Self::Created(0) => false,
            Self::Created(stream) => {
                // Perhaps no context is current.
                let own = || driver.stream_context(stream, false);
                driver.record(event, stream) || own().is_some_and(|own| driver.record_within(own, event, stream))
            }
            Self::LegacyOf(context) => driver.record_within(context, event, LEGACY),
            Self::PerThread(context, _) => driver.record_within(context, event, PER_THREAD),
            Self::Legacy | Self::Graph(_) => true,
        }
    }
}

/// A context, with what tells it from later ones with the same handle.
pub(crate) type Context = (usize, u64);

/// An event behind the copies of calls that were left; none if the entry's own is enough.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left(pub(crate) Option<(Context, usize)>);

/// Whose work a call of the program waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
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
    /// The context of one end: work that its legacy default stream gets later comes after the copies.
    pub(crate) end: usize,
}

/// Copies of a stream, or of an executable graph, between two ends. Numbers of entries, blocks, pairs and contexts are stored plus one; 0 is none.
type Entry = [AtomicU64; 6];
/// The handle of a [`Stream`]; 0 once the stream is destroyed.
const STREAM: usize = 0;
/// The kind of the stream ([`Stream::key`]); in the upper half the stream's context in [`Locked::contexts`], none for a legacy default stream.
const KIND: usize = 1;
const EVENT: usize = 2;
/// How many announcements were not recorded, [`TAKEN`] and [`USED`]. The upper half is the turn: it changes when another thread has dealt with
/// announcements, and when the entry begins or ceases to be used.
const STATE: usize = 3;
/// How often the event was recorded.
const RECORDED: usize = 4;
/// The next entry in the chain, or the next unused one; in the upper half the pair (not plus one).
const NEXT: usize = 5;

const USED: u64 = 1 << 31;
/// Another thread has dealt with an announcement whose call may still be under way: the entry serves no other stream until this one is destroyed.
const TAKEN: u64 = 1 << 30;
const ANNOUNCED: u64 = TAKEN - 1;
const TURN: u64 = 1 << 32;
const LOW: u64 = TURN - 1;

/// 64 entries of one pair.
type Block = [AtomicU64; 3];
/// A bit for each entry whose copies may be under way.
const PENDING: usize = 0;
/// The pair's next block.
const NEXT_BLOCK: usize = 1;
/// The pair (not plus one).
const PAIR: usize = 2;

/// Two ends.
type Pair = [AtomicU64; 9];
/// The contexts of the source and of the destination.
const SRC: usize = 0;
const DST: usize = 1;
/// The next pair in the chain.
const NEXT_PAIR: usize = 2;
const FIRST_BLOCK: usize = 3;
/// The first unused entry.
const UNUSED: usize = 4;
/// How many entries have copies that may be under way, and how many entries there are.
const COUNT: usize = 5;
const ENTRIES: usize = 6;
/// The entry, and the block, at which [`Waits::reuse`] goes on.
const HAND: usize = 7;
const IDLE_HAND: usize = 8;

/// Entries of a block.
const BITS: u32 = u64::BITS;
/// So long a thread waits for others that use a stream which it is about to destroy.
const PATIENCE: Duration = Duration::from_secs(1);

/// All copies whose waits are kept.
pub(crate) struct Waits {
    entries: Index<6, NEXT>,
    blocks: Arena<3>,
    pairs: Index<9, NEXT_PAIR>,
    pair_count: AtomicU32,
    locked: Mutex<Locked>,
}

struct Locked {
    contexts: Vec<Own>,
    block_count: u32,
    /// Pairs whose contexts have ended.
    spare_pairs: Vec<u32>,
    /// Entries on whose streams a thread that waits records an event. Another thread that destroys such a stream waits for that.
    in_use: Vec<u32>,
}

/// A context with streams, and events of it that no entry has.
struct Own {
    context: Context,
    spare: Vec<usize>,
}

impl Own {
    const fn new(context: Context) -> Self {
        Self { context, spare: Vec::new() }
    }
}

#[inline(always)]
fn low(word: &AtomicU64) -> u32 {
    word.load(Acquire) as u32
}

#[inline(always)]
fn high(word: &AtomicU64) -> u32 {
    (word.load(Acquire) >> 32) as u32
}

#[inline(always)]
fn hash((handle, kind): (u64, u32), pair: u32) -> u32 {
    spread(handle.wrapping_add(spread(u64::from(kind) << 32 | u64::from(pair), u64::BITS) as u64), u32::BITS) as u32
}

impl Waits {
    pub(crate) const fn new() -> Self {
        let locked = Locked { contexts: Vec::new(), block_count: 0, spare_pairs: Vec::new(), in_use: Vec::new() };
        Self {
            entries: Index::new(),
            blocks: Arena::new(),
            pairs: Index::new(),
            pair_count: AtomicU32::new(0),
            locked: Mutex::new(locked),
        }
    }

    /// Whether p2pshim has made no copy direct so far.
    #[inline(always)]
    pub(crate) fn are_none(&self) -> bool {
        self.pair_count.load(Relaxed) == 0
    }

    fn pairs(&self) -> impl Iterator<Item = (u32, &Pair)> {
        (0..self.pair_count.load(Acquire)).filter_map(|number| Some((number, self.pairs.rows.get(number)?)))
    }

    /// Whether any copy may be under way that a call waits for.
    pub(crate) fn are_pending(&self, of: &Of) -> bool {
        self.pairs().any(|(_, pair)| pair[COUNT].load(SeqCst) != 0 && concerns(pair, of))
    }

    // ---- Copies ----

    /// A copy is about to be made. None if there is no entry for its stream and ends: see [`Self::add`].
    #[inline]
    pub(crate) fn announce(&self, stream: Stream, ends: Ends) -> Option<Announced> {
        let (pair_number, pair) = self.find_pair(ends)?;
        let (number, entry) = self.find(stream.key(), pair_number)?;
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
        self.mark(number, pair);
        Some(Announced { entry: number, turn: (state >> 32) as u32 })
    }

    /// The copy was made: records the event behind it. False if that cannot be done: the announcement stays.
    #[inline]
    pub(crate) fn finish(&self, driver: &impl Driver, announced: Announced) -> bool {
        let Some(entry) = self.entries.rows.get(announced.entry) else { return false };
        let state = entry[STATE].load(Acquire);
        if (state >> 32) as u32 != announced.turn && state & TAKEN == 0 {
            // The entry serves another stream.
            return false;
        }
        let stream = Stream::of_key(entry[STREAM].load(Acquire) as usize, low(&entry[KIND]));
        let is_recorded = stream.record(driver, entry[EVENT].load(Acquire) as usize);
        if is_recorded {
            entry[RECORDED].fetch_add(1, SeqCst);
            self.withdraw(announced);
        }
        is_recorded
    }

    /// The copy was not made, or is recorded.
    pub(crate) fn withdraw(&self, announced: Announced) {
        let Some(entry) = self.entries.rows.get(announced.entry) else { return };
        let mut state = entry[STATE].load(Acquire);
        while (state >> 32) as u32 == announced.turn {
            match entry[STATE].compare_exchange(state, state - 1, SeqCst, Acquire) {
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
        // Another thread has waited for it in the meantime, and may have cleared the bit.
        if let Some(pair) = self.pair_of(announced.entry).filter(|_| state & USED != 0) {
            self.mark(announced.entry, pair);
        }
    }

    /// Adds the entry of a stream of a context, or of none if it is a legacy default stream, and announces a copy there. None if there is no memory,
    /// or no event.
    pub(crate) fn add(
        &self,
        driver: &impl Driver,
        stream: Stream,
        own: Option<Context>,
        ends: Ends,
    ) -> Option<Announced> {
        self.reuse(driver, ends);
        let event = match own {
            Some(context) => Some((context, self.event(driver, context)?)),
            None => None,
        };
        let locked = &mut *os::lock(&self.locked);
        if !self.insert(locked, stream, event, ends) {
            event.into_iter().for_each(|(context, event)| locked.give_back(context, event));
        }
        // Under the lock nobody changes what leads to it.
        self.announce(stream, ends)
    }

    /// Adds the entry of an executable graph, which records an event itself. False if there is no memory: nobody else may get the event.
    pub(crate) fn add_graph(&self, exec: usize, event: (Context, usize), ends: Ends) -> bool {
        self.insert(&mut os::lock(&self.locked), Stream::Graph(exec), Some(event), ends)
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
    pub(crate) fn forget(&self, stream: Stream, ends: Ends) {
        let _locked = os::lock(&self.locked);
        if let Some((pair, _)) = self.find_pair(ends)
            && let Some((number, entry)) = self.find(stream.key(), pair)
        {
            self.detach(number, entry);
        }
    }

    // ---- Calls that wait ----

    /// The first entry behind another one with copies that may be under way and that a call waits for.
    pub(crate) fn next(&self, of: &Of, behind: Option<&Pending>) -> Option<Pending> {
        let locked = &*os::lock(&self.locked);
        let behind = behind.map(|pending| pending.entry);
        let first = behind.and_then(|entry| Some(low(&self.blocks.get(entry / BITS)?[PAIR])));
        let is_next =
            |number, pair: &Pair| Some(number) >= first && pair[COUNT].load(SeqCst) != 0 && concerns(pair, of);
        let is_waited_for = |pending: &Pending| {
            // The driver waits for work of the stream's own context, and for that of the legacy default stream. But what goes with memory or
            // a context loses its mapping before the driver waits. A graph may be launched on any stream.
            match (*of, pending.stream) {
                (Of::All | Of::Memory(_), _) | (_, Stream::Graph(_)) => true,
                (_, Stream::Legacy) => false,
                (Of::Context(context), _) => pending.own.0 != context,
            }
        };
        let pairs = self.pairs().filter(|(number, pair)| is_next(*number, pair));
        let entries = pairs.flat_map(|(number, pair)| self.pending_of(pair, behind.filter(|_| Some(number) == first)));
        entries.filter_map(|number| self.pending(locked, number)).find(is_waited_for)
    }

    /// Records an event behind the copies of calls that were left, or are under way: not the entry's own, since such a call may have
    /// returned by now, and recorded that before later work of the stream. The caller waits for both, and then calls [`Self::left_is_over`].
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

    /// From now on [`Self::stream_is_gone`] waits before it lets another thread destroy the stream of an entry. None if that has begun: then
    /// the entry's event is recorded, and the driver may not know the stream any more.
    fn use_stream(&self, pending: &Pending) -> Option<()> {
        let entry = self.entries.rows.get(pending.entry)?;
        let locked = &mut *os::lock(&self.locked);
        let stream = Stream::of_key(entry[STREAM].load(Acquire) as usize, low(&entry[KIND]));
        (stream == pending.stream && stream != Stream::Created(0)).then(|| locked.in_use.push(pending.entry))
    }

    /// The caller has waited for what [`Self::record_left`] returned, and for the entry's event.
    pub(crate) fn left_is_over(&self, pending: &mut Pending, left: Left) {
        let Left(event) = left;
        event.into_iter().for_each(|event| self.give_back(event));
        self.take(pending);
    }

    /// Nobody has to record the announcements any more. A call that is under way still marks the entry when it has returned.
    fn take(&self, pending: &mut Pending) {
        let Some(entry) = self.entries.rows.get(pending.entry) else { return };
        let next = (pending.state & !ANNOUNCED | TAKEN).wrapping_add(TURN);
        if entry[STATE].compare_exchange(pending.state, next, SeqCst, Acquire).is_ok() {
            pending.state = next;
        }
    }

    /// The caller has waited for the copies.
    pub(crate) fn is_over(&self, pending: &Pending) {
        let locked = &mut *os::lock(&self.locked);
        let (Some(entry), Some(pair), Some((block, bit))) =
            (self.entries.rows.get(pending.entry), self.pair_of(pending.entry), self.bit(pending.entry))
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
            self.cease(locked, pending.entry, entry, pending.state);
        }
    }

    // ---- What ends ----

    /// A stream, or an executable graph, is about to be destroyed, and another may get its handle. Its copies go on.
    pub(crate) fn stream_is_gone(&self, driver: &impl Driver, stream: Stream) {
        let mut from = 0;
        let next = |from: u32| {
            let locked = &mut *os::lock(&self.locked);
            let mut pairs = from..self.pair_count.load(Acquire);
            pairs.find_map(|pair| Some((pair, self.pending(locked, self.find(stream.key(), pair)?.0)?)))
        };
        while let Some((pair, mut pending)) = next(from) {
            from = pair + 1;
            // No call is under way on a stream that is destroyed: what was announced was left.
            let is_left = pending.state & ANNOUNCED != 0 && stream.may_record(driver);
            if is_left && stream.record(driver, pending.event.unwrap_or(0)) {
                self.entries
                    .rows
                    .get(pending.entry)
                    .into_iter()
                    .for_each(|entry| _ = entry[RECORDED].fetch_add(1, SeqCst));
            }
            self.take(&mut pending);
            let detached = {
                let _locked = os::lock(&self.locked);
                let found = self.find(stream.key(), pair);
                found
                    .inspect(|&(number, entry)| self.detach(number, entry))
                    .map(|(number, entry)| (number, entry, entry[STATE].load(Acquire)))
            };
            let Some((number, entry, state)) = detached else { continue };
            // The driver uses the memory of a stream that is destroyed for other things. To record an event takes microseconds.
            os::until(PATIENCE, || !os::lock(&self.locked).in_use.contains(&number));
            let locked = &mut *os::lock(&self.locked);
            // Unless it serves another stream by now.
            if !self.is_pending(number) && state & ANNOUNCED == 0 {
                self.cease(locked, number, entry, state);
            }
        }
    }

    /// A context is about to end. From now on no copy finds an entry with an event of it.
    pub(crate) fn context_is_ending(&self, context: usize) {
        let locked = &mut *os::lock(&self.locked);
        for (number, entry) in self.used(locked.block_count) {
            let own = locked.contexts.get(own_number(entry)).map(|own| own.context.0);
            // A graph's nodes record its event as long as there is the graph.
            if own == Some(context) && low(&entry[KIND]) != Stream::GRAPH {
                self.detach(number, entry);
            }
        }
    }

    /// Contexts have ended, and their events with them.
    pub(crate) fn contexts_have_ended(&self, driver: &impl Driver, ended: &Ended<'_, impl Driver>) {
        if self.are_none() {
            return;
        }
        let contexts: Vec<Context> = os::lock(&self.locked).contexts.iter().map(|own| own.context).collect();
        let gone: Vec<Context> = contexts.into_iter().filter(|&context| ended.has(context)).collect();
        let ends = self.pairs().flat_map(|(_, pair)| ends_of(pair));
        let ends: BTreeSet<usize> = ends.filter(|&end| end != 0).collect();
        let gone_ends: Vec<usize> = ends.into_iter().filter(|&end| driver.context_id(end).is_none()).collect();
        let locked = &mut *os::lock(&self.locked);
        for (number, entry) in self.used(locked.block_count) {
            let is_gone = locked.contexts.get(own_number(entry)).is_some_and(|own| gone.contains(&own.context));
            let pair = self.pair_of(number);
            // The legacy default stream of an end is gone with the end.
            let is_over = own_number(entry) == NOBODY && pair.is_some_and(|pair| has_end(pair, &gone_ends));
            if is_gone || is_over {
                entry[EVENT].store(0, Release);
                while !self.cease(locked, number, entry, entry[STATE].load(Acquire)) {}
            }
        }
        for own in locked.contexts.iter_mut().filter(|own| gone.contains(&own.context)) {
            *own = Own::new((0, 0));
        }
        for (number, pair) in self.pairs().filter(|(_, pair)| has_end(pair, &gone_ends)) {
            self.spare_pair(locked, number, pair);
        }
    }

    // ---- Entries and pairs ----

    #[inline(always)]
    fn find_pair(&self, ends: Ends) -> Option<(u32, &Pair)> {
        self.pairs.find(hash_of_ends(ends), |pair, _| is_between(pair, ends))
    }

    #[inline(always)]
    fn find(&self, key @ (handle, kind): (u64, u32), pair: u32) -> Option<(u32, &Entry)> {
        self.entries.find(hash(key, pair), |entry, link| {
            entry[STREAM].load(Acquire) == handle && low(&entry[KIND]) == kind && (link >> 32) as u32 == pair
        })
    }

    fn bit(&self, number: u32) -> Option<(&Block, u64)> {
        Some((self.blocks.get(number / BITS)?, 1 << (number % BITS)))
    }

    fn is_pending(&self, number: u32) -> bool {
        self.bit(number).is_some_and(|(block, bit)| block[PENDING].load(SeqCst) & bit != 0)
    }

    fn pair_of(&self, number: u32) -> Option<&Pair> {
        self.pairs.rows.get(low(&self.blocks.get(number / BITS)?[PAIR]))
    }

    /// Notes that copies of an entry may be under way. A thread may leave this at any instruction: then the count is too high, or another copy
    /// sets the bit.
    #[inline(always)]
    fn mark(&self, number: u32, pair: &Pair) {
        let Some((block, bit)) = self.bit(number) else { return };
        if block[PENDING].load(SeqCst) & bit == 0 {
            pair[COUNT].fetch_add(1, SeqCst);
            if block[PENDING].fetch_or(bit, SeqCst) & bit != 0 {
                pair[COUNT].fetch_sub(1, SeqCst);
            }
        }
    }

    fn unmark(&self, number: u32, pair: &Pair) {
        let is_marked = |(block, bit): (&Block, u64)| block[PENDING].fetch_and(!bit, SeqCst) & bit != 0;
        if self.bit(number).is_some_and(is_marked) {
            pair[COUNT].fetch_sub(1, SeqCst);
        }
    }

    /// The entries of a pair whose copies may be under way; those behind one.
    fn pending_of<'a>(&'a self, pair: &'a Pair, behind: Option<u32>) -> impl Iterator<Item = u32> + 'a {
        let first = behind.map_or(low(&pair[FIRST_BLOCK]), |entry| entry / BITS + 1);
        let blocks = std::iter::successors(first.checked_sub(1), |&number| {
            low(&self.blocks.get(number)?[NEXT_BLOCK]).checked_sub(1)
        });
        blocks.flat_map(move |number| {
            let mut bits = self.blocks.get(number).map_or(0, |block| block[PENDING].load(SeqCst));
            if let Some(entry) = behind.filter(|entry| entry / BITS == number) {
                bits &= (u64::MAX << (entry % BITS)) << 1;
            }
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros();
                bits &= bits.wrapping_sub(1);
                (bit < BITS).then_some(number * BITS + bit)
            })
        })
    }

    fn pending(&self, locked: &Locked, number: u32) -> Option<Pending> {
        let entry = self.entries.rows.get(number)?;
        let (state, recorded) = (entry[STATE].load(SeqCst), entry[RECORDED].load(SeqCst));
        let event = Some(entry[EVENT].load(Acquire) as usize).filter(|&event| event != 0);
        let stream = Stream::of_key(entry[STREAM].load(Acquire) as usize, low(&entry[KIND]));
        let own = locked.contexts.get(own_number(entry)).map_or((0, 0), |own| own.context);
        let pair = self.pair_of(number)?;
        let end = ends_of(pair).into_iter().find(|&end| end != 0)?;
        (state & USED != 0).then_some(Pending { entry: number, state, recorded, own, stream, event, end })
    }

    fn used(&self, block_count: u32) -> impl Iterator<Item = (u32, &Entry)> {
        let entries = (0..block_count * BITS).filter_map(|number| Some((number, self.entries.rows.get(number)?)));
        entries.filter(|(_, entry)| entry[STATE].load(Acquire) & USED != 0)
    }

    /// Reclaims entries of destroyed streams whose copies are over, a few at a time; otherwise they would pile up if nobody waits. Reclaims idle
    /// entries of live streams too ([`Self::reuse_idle`]).
    fn reuse(&self, driver: &impl Driver, ends: Ends) {
        const TRIES: usize = 2;
        const LOOKED_AT: usize = 8;
        for _ in 0..TRIES {
            let found = {
                let locked = &mut *os::lock(&self.locked);
                let Some((_, pair)) = self.find_pair(ends) else { return };
                self.reuse_idle(locked, pair);
                let hand = low(&pair[HAND]).checked_sub(1);
                let mut last = None;
                let looked_at = self.pending_of(pair, hand).take(LOOKED_AT).inspect(|&number| last = Some(number));
                let found = looked_at.filter_map(|number| self.pending(locked, number)).find(Pending::is_nobodys);
                pair[HAND].store(last.map_or(0, |number| u64::from(number) + 1), Relaxed);
                found
            };
            if let Some(pending @ Pending { event: Some(event), .. }) = found
                && driver.has_passed(event)
            {
                self.is_over(&pending);
            }
        }
    }

    /// Reclaims an entry of a stream without copies under way, if there are many. The stream's next copy gets another.
    fn reuse_idle(&self, locked: &mut Locked, pair: &Pair) {
        const LEFT: u64 = 1024;
        const LOOKED_AT: usize = 4;
        if pair[UNUSED].load(Relaxed) != 0 || pair[ENTRIES].load(Relaxed) < pair[COUNT].load(SeqCst) + LEFT {
            return;
        }
        let is_idle = |number: &u32| {
            let entry = self.entries.rows.get(*number)?;
            let state = entry[STATE].load(Acquire);
            let is_free = state & LOW == USED && !self.is_pending(*number);
            // The event of a graph is in its nodes.
            (is_free && low(&entry[KIND]) != Stream::GRAPH).then_some((*number, entry, state))
        };
        for _ in 0..LOOKED_AT {
            let block = low(&pair[IDLE_HAND]).checked_sub(1).or_else(|| low(&pair[FIRST_BLOCK]).checked_sub(1));
            let Some(block) = block else { return };
            if let Some((number, entry, state)) = (block * BITS..(block + 1) * BITS).find_map(|number| is_idle(&number))
            {
                self.cease(locked, number, entry, state);
                return;
            }
            let next = self.blocks.get(block).map_or(0, |block| low(&block[NEXT_BLOCK]));
            pair[IDLE_HAND].store(u64::from(next), Relaxed);
        }
    }

    /// Adds an entry. False if there is one, or no memory.
    fn insert(&self, locked: &mut Locked, stream: Stream, event: Option<(Context, usize)>, ends: Ends) -> bool {
        let Some((pair_number, pair)) = self.find_pair(ends).or_else(|| self.new_pair(locked, ends)) else {
            return false;
        };
        if self.find(stream.key(), pair_number).is_some() {
            return false;
        }
        let own = event.and_then(|(context, _)| locked.own(context)).map_or(0, |(number, _)| number as u64 + 1);
        let Some((number, entry)) = self.unused(locked, (pair_number, pair)) else { return false };
        self.unmark(number, pair);
        let (handle, kind) = stream.key();
        entry[KIND].store(own << 32 | u64::from(kind), Release);
        entry[EVENT].store(event.map_or(0, |(_, event)| event as u64), Release);
        entry[STREAM].store(handle, Release);
        // Nobody announces anything at an entry that is not used.
        let state = entry[STATE].load(Acquire);
        entry[STATE].store((state & !LOW).wrapping_add(TURN) | USED, SeqCst);
        let is_found = self.entries.add(number, hash_of);
        if !is_found {
            entry[EVENT].store(0, Release);
            self.cease(locked, number, entry, entry[STATE].load(Acquire));
        }
        is_found
    }

    /// An entry of a pair that nobody uses. None if there is no memory.
    fn unused(&self, locked: &mut Locked, (pair_number, pair): (u32, &Pair)) -> Option<(u32, &Entry)> {
        if pair[UNUSED].load(Relaxed) == 0 {
            let number = locked.block_count;
            let last = number * BITS + (BITS - 1);
            (self.blocks.reach(number) && self.entries.rows.reach(last)).then_some(())?;
            let block = self.blocks.get(number)?;
            block[PAIR].store(u64::from(pair_number), Relaxed);
            block[NEXT_BLOCK].store(pair[FIRST_BLOCK].load(Relaxed), Relaxed);
            pair[FIRST_BLOCK].store(u64::from(number) + 1, Release);
            locked.block_count += 1;
            pair[ENTRIES].fetch_add(u64::from(BITS), Relaxed);
            for entry in (number * BITS..=last).rev() {
                self.entries.rows.get(entry)?[NEXT].store(u64::from(pair_number) << 32, Relaxed);
                self.put_to_unused(entry, pair);
            }
        }
        let number = low(&pair[UNUSED]).checked_sub(1)?;
        let entry = self.entries.rows.get(number)?;
        pair[UNUSED].store(u64::from(low(&entry[NEXT])), Relaxed);
        Some((number, entry))
    }

    fn put_to_unused(&self, number: u32, pair: &Pair) {
        if let Some(entry) = self.entries.rows.get(number) {
            set_low(&entry[NEXT], low(&pair[UNUSED]));
            pair[UNUSED].store(u64::from(number) + 1, Relaxed);
        }
    }

    /// From now on no copy finds an entry. Those that have are waited for. Only under the lock.
    fn detach(&self, number: u32, entry: &Entry) {
        if entry[STREAM].load(Relaxed) != 0 && self.entries.remove(number, hash_of(entry)) {
            entry[STREAM].store(0, Release);
            set_low(&entry[KIND], Stream::CREATED);
        }
    }

    /// Has an entry be used for another stream, if its state is this one still. Whether it was.
    fn cease(&self, locked: &mut Locked, number: u32, entry: &Entry, state: u64) -> bool {
        let next = (state & !LOW).wrapping_add(TURN);
        if entry[STATE].compare_exchange(state, next, SeqCst, Acquire).is_err() {
            return false;
        }
        self.detach(number, entry);
        let context = locked.contexts.get(own_number(entry)).map(|own| own.context);
        let event = entry[EVENT].swap(0, SeqCst) as usize;
        if let Some(context) = context.filter(|_| event != 0) {
            locked.give_back(context, event);
        }
        if let Some(pair) = self.pair_of(number) {
            self.unmark(number, pair);
            self.put_to_unused(number, pair);
        }
        true
    }

    /// A pair that is not there. It takes the place of one whose contexts have ended, if there is any.
    fn new_pair(&self, locked: &mut Locked, ends: Ends) -> Option<(u32, &Pair)> {
        let spare = locked.spare_pairs.last().copied();
        let number = spare.unwrap_or(self.pair_count.load(Relaxed));
        self.pairs.rows.reach(number).then_some(())?;
        let pair = self.pairs.rows.get(number)?;
        set_ends(pair, ends);
        if !self.pairs.add(number, |pair| hash_of_ends(ends_of(pair))) {
            set_ends(pair, [0; 2]);
            return None;
        }
        match spare {
            Some(_) => drop(locked.spare_pairs.pop()),
            None => self.pair_count.store(number + 1, Release),
        }
        Some((number, pair))
    }

    /// Has a pair be used for other ends, if none of its copies is under way.
    fn spare_pair(&self, locked: &mut Locked, number: u32, pair: &Pair) {
        for (number, entry) in self.used(locked.block_count).filter(|(_, entry)| high(&entry[NEXT]) == number) {
            let state = entry[STATE].load(Acquire);
            if self.is_pending(number) || state & ANNOUNCED != 0 || !self.cease(locked, number, entry, state) {
                return;
            }
        }
        if self.pairs.remove(number, hash_of_ends(ends_of(pair))) {
            set_ends(pair, [0; 2]);
            locked.spare_pairs.push(number);
        }
    }
}

/// The number of a legacy default stream's context.
const NOBODY: usize = usize::MAX;

/// The number of the context of an entry's stream.
#[inline(always)]
fn own_number(entry: &Entry) -> usize {
    (high(&entry[KIND]) as usize).wrapping_sub(1)
}

fn has_end(pair: &Pair, ends: &[usize]) -> bool {
    ends_of(pair).iter().any(|end| ends.contains(end))
}

fn concerns(pair: &Pair, of: &Of) -> bool {
    match *of {
        Of::All => true,
        Of::Context(context) | Of::Memory(context) => has_end(pair, &[context]),
    }
}

fn set_ends(pair: &Pair, [src, dst]: Ends) {
    pair[SRC].store(src as u64, Release);
    pair[DST].store(dst as u64, Release);
}

#[inline(always)]
fn ends_of(pair: &Pair) -> Ends {
    [pair[SRC].load(Acquire) as usize, pair[DST].load(Acquire) as usize]
}

#[inline(always)]
fn is_between(pair: &Pair, ends: Ends) -> bool {
    ends_of(pair) == ends
}

#[inline(always)]
fn hash_of_ends([src, dst]: Ends) -> u32 {
    spread((src as u64).wrapping_add((dst as u64).rotate_left(21)), u32::BITS) as u32
}

/// The hash by which an entry in use is found.
fn hash_of(entry: &Entry) -> u32 {
    hash((entry[STREAM].load(Relaxed), low(&entry[KIND])), high(&entry[NEXT]))
}

impl Pending {
    /// Whether no further copy of the stream is to be expected, or nobody will say so: when a thread ends.
    fn is_nobodys(&self) -> bool {
        self.state & ANNOUNCED == 0 && matches!(self.stream, Stream::PerThread(..) | Stream::Created(0))
    }
}

impl Locked {
    /// A context with streams, and its number.
    fn own(&mut self, context: Context) -> Option<(usize, &mut Own)> {
        let known = self.contexts.iter().position(|own| own.context == context);
        let number = known.or_else(|| self.contexts.iter().position(|own| own.context == (0, 0)));
        let number = number.unwrap_or(self.contexts.len());
        if number == self.contexts.len() {
            self.contexts.push(Own::new(context));
        }
        let own = self.contexts.get_mut(number)?;
        own.context = context;
        Some((number, own))
    }

    fn give_back(&mut self, context: Context, event: usize) {
        self.own(context).into_iter().for_each(|(_, own)| own.spare.push(event));
    }
}

#[cfg(test)]
mod tests;
