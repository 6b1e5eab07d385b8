//! Waits of the driver that a copy loses when p2pshim makes it direct.
//!
//! A copy that the driver stages is work of its stream's context and of the contexts of both ends. Calls that wait for a context, such as
//! `cuCtxSynchronize` and `cuMemFree`, wait for it on either side. A direct copy is work of its stream's context alone. A program that has
//! never enabled peer access may rest on those waits, so p2pshim keeps them for each pair that it has made direct itself.
//!
//! An event is recorded behind each such copy on the copy's stream: one event for each stream and pair of owners, recorded anew each
//! time, since a later copy of a stream ends later. Before the program makes a call that waits for a context, the host waits for the
//! events of copies that have an end there, as the program would have waited inside the call. Such a wait ends with the copy.
//!
//! On a legacy default stream the driver keeps all waits but one: memory that is freed loses its mapping before the driver waits. There no
//! event is recorded, since that would be a barrier of its own for work that other threads submit meanwhile.
//!
//! A graph records the events itself, by nodes that it has while it is instantiated: see [`super::graph`].
//!
//! Whoever copies or waits takes no lock. Entries are added and cleared under one.

use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize};

use super::driver::Driver;
use crate::os;

/// Streams and pairs whose copies may be under way at a time. An entry whose copies are over makes room for another.
const MOST: usize = 1024;
/// Where the entries of recent copies are; a power of two.
const HINTS: usize = 64;
/// No stream: it was destroyed, or the entry is empty.
const GONE: usize = 0;

/// `CU_STREAM_LEGACY`, `CU_STREAM_PER_THREAD`.
pub(crate) const LEGACY: usize = 1;
pub(crate) const PER_THREAD: usize = 2;
/// In place of a thread, for the copies of a graph: the stream is the executable graph, the context a number of the copy.
pub(crate) const GRAPH: u64 = u64::MAX;
/// In place of a thread, for launches on the legacy default stream of graphs that record no events: their copies are ordered with no other
/// stream.
pub(crate) const LAUNCH: u64 = u64::MAX - 1;

/// Copies that one event can stand for: of one stream, between the same owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) stream: usize,
    /// For a thread's own default stream: the thread, and the context.
    pub(crate) thread: u64,
    pub(crate) context: usize,
    /// The numbers of the owners of source and destination, and when they were valid.
    pub(crate) owners: [u8; 2],
    pub(crate) epoch: u64,
}

/// An event of ours, and its context with what tells that from later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) handle: usize,
    pub(crate) context: (usize, u64),
}

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

/// A copy that may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    index: usize,
    /// None of the legacy default stream.
    pub(crate) event: Option<usize>,
    /// The context of one end: work that its legacy default stream gets later comes after the copy.
    pub(crate) end: usize,
    recorded: u64,
}

impl Pending {
    /// Where to look for the next.
    pub(crate) fn next(&self) -> usize {
        self.index + 1
    }
}

/// All zero is an empty entry.
struct Entry {
    stream: AtomicUsize,
    thread: AtomicU64,
    context: AtomicUsize,
    /// The epoch, and the owners in the low bytes.
    owners: AtomicU64,
    event: AtomicUsize,
    event_context: AtomicUsize,
    event_context_id: AtomicU64,
    /// The contexts of source and destination; 0 for none.
    ends: [AtomicUsize; 2],
    /// How often the event was recorded, and how often by then when it was last seen to have passed.
    recorded: AtomicU64,
    passed: AtomicU64,
}

impl Entry {
    const fn new() -> Self {
        Self {
            stream: AtomicUsize::new(GONE),
            thread: AtomicU64::new(0),
            context: AtomicUsize::new(0),
            owners: AtomicU64::new(0),
            event: AtomicUsize::new(0),
            event_context: AtomicUsize::new(0),
            event_context_id: AtomicU64::new(0),
            ends: [const { AtomicUsize::new(0) }; 2],
            recorded: AtomicU64::new(0),
            passed: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn is_of(&self, key: &Key) -> bool {
        self.stream.load(Acquire) == key.stream
            && self.owners.load(Relaxed) == key.owners()
            && self.thread.load(Relaxed) == key.thread
            && self.context.load(Relaxed) == key.context
    }

    fn is_pending(&self) -> bool {
        self.recorded.load(Acquire) != self.passed.load(Relaxed)
    }

    fn event(&self) -> Option<Event> {
        let context = (self.event_context.load(Relaxed), self.event_context_id.load(Relaxed));
        Some(self.event.load(Relaxed)).filter(|&event| event != 0).map(|handle| Event { handle, context })
    }

    /// Whether copies have an end that a call waits for.
    fn concerns(&self, of: &Of) -> bool {
        let is_at = |wanted: usize| self.ends.iter().any(|end| end.load(Relaxed) == wanted);
        // The driver waits for work of the stream's own context, and for that of the legacy default stream. But what goes with memory or
        // a context loses its mapping before the driver waits.
        match *of {
            Of::All => true,
            Of::Memory(wanted) => is_at(wanted),
            Of::Context(wanted) => is_at(wanted) && self.event().is_some() && !self.is_own(wanted),
        }
    }

    /// Whether no copy finds it any more: its owners may be others by now. Of a graph's that does not matter.
    fn is_outdated(&self, epoch: u64) -> bool {
        self.thread.load(Relaxed) != GRAPH && self.owners.load(Relaxed) >> 16 != epoch
    }

    /// Whether a context is that of the stream. A graph may be launched on any.
    fn is_own(&self, context: usize) -> bool {
        self.thread.load(Relaxed) != GRAPH && self.event_context.load(Relaxed) == context
    }

    fn set(&self, key: &Key, event: Option<Event>, ends: [usize; 2]) {
        let Event { handle, context: (context, id) } = event.unwrap_or(Event { handle: 0, context: (0, 0) });
        self.event.store(handle, Relaxed);
        self.event_context.store(context, Relaxed);
        self.event_context_id.store(id, Relaxed);
        self.ends.iter().zip(ends).for_each(|(end, context)| end.store(context, Relaxed));
        self.thread.store(key.thread, Relaxed);
        self.context.store(key.context, Relaxed);
        self.owners.store(key.owners(), Relaxed);
        self.passed.store(self.recorded.load(Relaxed), Relaxed);
        self.stream.store(key.stream, Release);
    }

    /// Nothing is known of it any more: its event went with its context.
    fn clear(&self) {
        self.stream.store(GONE, Relaxed);
        self.event.store(0, Relaxed);
        self.passed.store(self.recorded.load(Relaxed), Relaxed);
    }
}

impl Key {
    #[inline(always)]
    fn owners(&self) -> u64 {
        let [src, dst] = self.owners;
        self.epoch << 16 | u64::from(src) << 8 | u64::from(dst)
    }

    #[inline(always)]
    fn hint(&self) -> usize {
        ((self.stream >> 4) ^ (self.stream >> 12) ^ self.owners() as usize ^ self.thread as usize) % HINTS
    }
}

/// All copies whose waits are kept.
pub(crate) struct Waits {
    entries: [Entry; MOST],
    /// How many entries were ever used.
    used: AtomicUsize,
    hints: [AtomicU16; HINTS],
    /// Held by who changes entries: events that no entry has. None is destroyed, since a thread may be about to record or to wait for it.
    spare: Mutex<Vec<Event>>,
}

impl Waits {
    pub(crate) const fn new() -> Self {
        Self {
            entries: [const { Entry::new() }; MOST],
            used: AtomicUsize::new(0),
            hints: [const { AtomicU16::new(0) }; HINTS],
            spare: Mutex::new(Vec::new()),
        }
    }

    #[inline(always)]
    fn used(&self) -> &[Entry] {
        self.entries.get(..self.used.load(Acquire)).unwrap_or_default()
    }

    /// Whether p2pshim has made no copy direct so far.
    #[inline(always)]
    pub(crate) fn are_none(&self) -> bool {
        self.used.load(Relaxed) == 0
    }

    /// Whether any copy may be under way.
    pub(crate) fn are_pending(&self) -> bool {
        self.used().iter().any(Entry::is_pending)
    }

    fn find(&self, key: &Key) -> Option<&Entry> {
        let hint = self.hints.get(key.hint())?;
        let entries = self.used();
        if let Some(entry) = entries.get(usize::from(hint.load(Relaxed))).filter(|entry| entry.is_of(key)) {
            return Some(entry);
        }
        let index = entries.iter().position(|entry| entry.is_of(key))?;
        hint.store(index as u16, Relaxed);
        entries.get(index)
    }

    /// Notes that a copy was made: records the event behind it. False if there is none yet, or it cannot be recorded.
    #[inline]
    pub(crate) fn record(&self, driver: &impl Driver, key: &Key) -> bool {
        let Some(entry) = self.find(key) else { return false };
        let is_recorded = match (key.stream, entry.event()) {
            (LEGACY, None) => true,
            (LEGACY | PER_THREAD, Some(event)) => driver.record_within(key.context, event.handle, key.stream),
            // Where no context is current the event's own is made so.
            (stream, Some(event)) => {
                driver.record(event.handle, stream) || driver.record_within(event.context.0, event.handle, stream)
            }
            (_, None) => false,
        };
        // Or it has made room for another meanwhile.
        let is_recorded = is_recorded && entry.is_of(key);
        if is_recorded {
            entry.recorded.fetch_add(1, Release);
        }
        is_recorded
    }

    /// Adds what is needed for copies of a stream between two contexts; `own` is the stream's context, or none of the legacy default stream.
    pub(crate) fn add(&self, driver: &impl Driver, key: &Key, own: Option<(usize, u64)>, ends: [usize; 2]) {
        let mut spare = os::lock(&self.spare);
        if self.find(key).is_some() {
            return;
        }
        let Some(context) = own else {
            self.room(driver, &mut spare).into_iter().for_each(|entry| entry.set(key, None, ends));
            return;
        };
        if let Some((entry, event)) = self.room_with_event(context, key.epoch, driver) {
            return entry.set(key, Some(event), ends);
        }
        let Some(entry) = self.room(driver, &mut spare) else { return };
        let known = spare.iter().position(|event| event.context == context);
        let new = || driver.new_event(context).map(|handle| Event { handle, context });
        if let Some(event) = known.map(|at| spare.swap_remove(at)).or_else(new) {
            entry.set(key, Some(event), ends);
        }
    }

    /// Adds an event that a graph records itself. Whether there was room.
    pub(crate) fn add_of_graph(&self, driver: &impl Driver, key: &Key, event: Event, ends: [usize; 2]) -> bool {
        let mut spare = os::lock(&self.spare);
        let entry = self.room(driver, &mut spare);
        entry.inspect(|entry| entry.set(key, Some(event), ends)).is_some()
    }

    /// An entry that nobody needs any more, with an event of a context.
    fn room_with_event(&self, context: (usize, u64), epoch: u64, driver: &impl Driver) -> Option<(&Entry, Event)> {
        let is_like = |entry: &&Entry| {
            entry.event().is_some_and(|event| event.context == context)
                && (entry.stream.load(Relaxed) == GONE || entry.is_outdated(epoch))
                && is_over(entry, driver)
        };
        let entry = self.used().iter().find(is_like)?;
        let event = entry.event()?;
        entry.stream.store(GONE, Relaxed);
        Some((entry, event))
    }

    /// An entry that is empty, or was never used, or else one whose copies are over.
    fn room(&self, driver: &impl Driver, spare: &mut Vec<Event>) -> Option<&Entry> {
        let is_empty = |entry: &&Entry| entry.stream.load(Relaxed) == GONE && entry.event().is_none();
        if let Some(entry) = self.used().iter().find(is_empty) {
            return Some(entry);
        }
        let used = self.used.load(Relaxed);
        if let Some(entry) = self.entries.get(used) {
            self.used.store(used + 1, Release);
            return Some(entry);
        }
        let is_in_graph = |entry: &Entry| entry.thread.load(Relaxed) == GRAPH && entry.stream.load(Relaxed) != GONE;
        let entry = self.used().iter().find(|entry| !is_in_graph(entry) && is_over(entry, driver))?;
        entry.stream.store(GONE, Relaxed);
        spare.extend(entry.event());
        entry.clear();
        Some(entry)
    }

    /// An executable graph was launched. Whether it records events itself.
    pub(crate) fn launched(&self, exec: usize) -> bool {
        let is_of = |entry: &&Entry| entry.stream.load(Acquire) == exec && entry.thread.load(Relaxed) == GRAPH;
        let mut records = false;
        for entry in self.used().iter().filter(is_of) {
            entry.recorded.fetch_add(1, Release);
            records = true;
        }
        records
    }

    /// A copy that may be under way, and that a call waits for: the first from an entry on.
    pub(crate) fn pending(&self, of: &Of, from: usize) -> Option<Pending> {
        let mut entries = self.used().iter().enumerate().skip(from);
        let (index, entry) = entries.find(|(_, entry)| entry.is_pending() && entry.concerns(of))?;
        let recorded = entry.recorded.load(Acquire);
        let end = entry.ends.iter().map(|end| end.load(Relaxed)).find(|&end| end != 0).unwrap_or(0);
        Some(Pending { index, event: entry.event().map(|event| event.handle), end, recorded })
    }

    /// It is over.
    pub(crate) fn is_over(&self, pending: &Pending) {
        if let Some(entry) = self.entries.get(pending.index) {
            entry.passed.fetch_max(pending.recorded, Relaxed);
        }
    }

    /// A stream, or an executable graph, is about to be destroyed, and another may get its handle. Its copies go on.
    pub(crate) fn stream_is_gone(&self, stream: usize) {
        if stream <= PER_THREAD || self.are_none() {
            return;
        }
        let _spare = os::lock(&self.spare);
        self.used()
            .iter()
            .filter(|entry| entry.stream.load(Relaxed) == stream)
            .for_each(|entry| entry.stream.store(GONE, Relaxed));
    }

    /// Contexts may be gone, with their events. For drivers that do not number contexts, all primary ones, or the one with this handle: who
    /// ends one has waited for all copies.
    pub(crate) fn contexts_have_changed(&self, driver: &impl Driver, is_primary: bool, destroyed: Option<usize>) {
        if self.are_none() {
            return;
        }
        let is_gone = |event: &Event| match event.context {
            (handle, 0) => is_primary || destroyed == Some(handle),
            (handle, id) => driver.context_id(handle) != Some(id),
        };
        let mut spare = os::lock(&self.spare);
        spare.retain(|event| !is_gone(event));
        for entry in self.used() {
            let is_gone = match entry.event() {
                Some(event) => is_gone(&event),
                None => entry.ends.iter().any(|end| driver.context_id(end.load(Relaxed)).is_none()),
            };
            if is_gone {
                entry.clear();
            }
        }
    }
}

/// Whether an entry's copies are over.
fn is_over(entry: &Entry, driver: &impl Driver) -> bool {
    !entry.is_pending() || entry.event().is_some_and(|event| driver.has_passed(event.handle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::access::fake::{Fake, context};

    const STREAM: usize = 0x5000;
    const OWN: Option<(usize, u64)> = Some((context(0), 1));

    fn key(stream: usize) -> Key {
        Key { stream, thread: 0, context: 0, owners: [1, 2], epoch: 0 }
    }

    /// A copy on a stream of context 0 from there to context 1.
    fn copied(waits: &Waits, fake: &Fake, key: &Key) {
        if !waits.record(fake, key) {
            let own = if key.stream == LEGACY { None } else { OWN };
            waits.add(fake, key, own, [context(0), context(1)]);
            assert!(waits.record(fake, key));
        }
    }

    fn count(waits: &Waits, of: Of) -> usize {
        let mut from = 0;
        let pending = || {
            let pending = waits.pending(&of, from)?;
            from = pending.next();
            Some(pending)
        };
        std::iter::from_fn(pending).count()
    }

    #[test]
    fn pending_at_the_far_end_until_it_is_over() {
        let (waits, fake) = (Box::new(Waits::new()), Fake::new());
        assert!(waits.are_none());
        copied(&waits, &fake, &key(STREAM));
        assert!(waits.are_pending());
        assert_eq!(count(&waits, Of::Context(context(1))), 1);
        assert_eq!(count(&waits, Of::Context(context(0))), 0, "the driver waits for the stream's own context");
        assert_eq!(count(&waits, Of::Context(context(2))), 0);
        assert_eq!(count(&waits, Of::Memory(context(0))), 1, "but not before it takes memory away");
        let pending = waits.pending(&Of::Context(context(1)), 0).unwrap();
        assert_eq!(fake.events.borrow().get(&pending.event.unwrap()), Some(&STREAM));
        // One more copy, before it is known that the first is over.
        copied(&waits, &fake, &key(STREAM));
        waits.is_over(&pending);
        assert_eq!(count(&waits, Of::All), 1);
        let pending = waits.pending(&Of::All, 0).unwrap();
        waits.is_over(&pending);
        assert!(!waits.are_pending() && !waits.are_none());
    }

    #[test]
    fn pending_of_a_third_device_at_both_ends() {
        let (waits, fake) = (Box::new(Waits::new()), Fake::new());
        waits.add(&fake, &key(STREAM), Some((context(2), 1)), [context(0), context(1)]);
        assert!(waits.record(&fake, &key(STREAM)));
        let counts = [0, 1, 2].map(|number| count(&waits, Of::Context(context(number))));
        assert_eq!(counts, [1, 1, 0]);
    }

    #[test]
    fn pending_on_the_legacy_stream_only_for_who_takes_away() {
        let (waits, fake) = (Box::new(Waits::new()), Fake::new());
        copied(&waits, &fake, &key(LEGACY));
        assert!(fake.events.borrow().is_empty());
        assert_eq!([Of::Context(context(1)), Of::All].map(|of| count(&waits, of)), [0, 1]);
        let pending = waits.pending(&Of::Memory(context(1)), 0).unwrap();
        assert_eq!((pending.event, pending.end), (None, context(0)));
    }

    #[test]
    fn stream_is_gone_and_its_handle_is_given_anew() {
        let (waits, fake) = (Box::new(Waits::new()), Fake::new());
        copied(&waits, &fake, &key(STREAM));
        waits.stream_is_gone(STREAM);
        assert_eq!(count(&waits, Of::All), 1, "the copy goes on");
        copied(&waits, &fake, &key(STREAM));
        assert_eq!(count(&waits, Of::All), 2, "each by an event of its own");
        // The event of the first has passed: it serves the next stream.
        let first = waits.pending(&Of::All, 0).unwrap();
        fake.events.borrow_mut().remove(&first.event.unwrap());
        copied(&waits, &fake, &key(STREAM + 0x100));
        assert_eq!(count(&waits, Of::All), 2);
        assert_eq!(waits.used.load(Relaxed), 2);
    }

    #[test]
    fn owners_given_anew_are_others() {
        let (waits, fake) = (Box::new(Waits::new()), Fake::new());
        copied(&waits, &fake, &key(STREAM));
        let later = Key { epoch: 1, ..key(STREAM) };
        assert!(!waits.record(&fake, &later));
    }

    #[test]
    fn contexts_that_are_gone_take_their_events_along() {
        let (waits, fake) = (Box::new(Waits::new()), Fake::new());
        copied(&waits, &fake, &key(STREAM));
        copied(&waits, &fake, &key(LEGACY));
        fake.ids.borrow_mut().insert(context(0), 2);
        waits.contexts_have_changed(&fake, false, None);
        assert_eq!(
            count(&waits, Of::Memory(context(1))),
            1,
            "its legacy default stream is another, too, but that is not known"
        );
        assert_eq!(count(&waits, Of::All), 1);
        fake.ids.borrow_mut().insert(context(0), 0);
        waits.contexts_have_changed(&fake, false, None);
        assert!(!waits.are_pending());
    }

    #[test]
    fn room_runs_out_only_with_copies_under_way() {
        let (waits, fake) = (Box::new(Waits::new()), Fake::new());
        for number in 0..MOST {
            copied(&waits, &fake, &key(STREAM + number * 0x100));
        }
        let one_more = key(STREAM + MOST * 0x100);
        waits.add(&fake, &one_more, OWN, [context(0), context(1)]);
        assert!(!waits.record(&fake, &one_more), "all are under way");
        fake.events.borrow_mut().clear();
        copied(&waits, &fake, &one_more);
        assert!(!waits.record(&fake, &key(STREAM)), "the first has made room");
    }

    #[test]
    fn room_destroys_no_event_that_a_thread_may_be_about_to_record() {
        let (waits, fake) = (Box::new(Waits::new()), Fake::new());
        (0..MOST).for_each(|number| copied(&waits, &fake, &key(STREAM + number * 0x100)));
        let first = waits.pending(&Of::All, 0).unwrap().event.unwrap();
        let is_over = |event| fake.events.borrow_mut().remove(&event);
        is_over(first);
        fake.dropped.set(0);
        // Of another context, so that the event is of no use to it.
        waits.add(&fake, &key(0x4000), Some((context(1), 1)), [context(0), context(1)]);
        assert!(waits.record(&fake, &key(0x4000)));
        assert_eq!(fake.dropped.get(), 0);
        let other = waits.pending(&Of::All, 0).unwrap().event.unwrap();
        assert_ne!(other, first);
        is_over(other);
        copied(&waits, &fake, &key(0x3000));
        assert_eq!(waits.pending(&Of::All, 0).unwrap().event, Some(first), "it serves the next stream of its context");
    }

    #[test]
    fn launched_graph_has_recorded_its_events() {
        const EXEC: usize = 0x7000;
        let (waits, fake) = (Box::new(Waits::new()), Fake::new());
        let event = |handle| Event { handle, context: (context(0), 1) };
        for number in [1, 2] {
            let key = Key { stream: EXEC, thread: GRAPH, context: number, owners: [1, 2], epoch: 0 };
            assert!(waits.add_of_graph(&fake, &key, event(number), [context(0), context(1)]));
        }
        assert!(!waits.are_pending() && !waits.launched(EXEC + 1) && waits.launched(EXEC));
        assert_eq!([0, 1].map(|number| count(&waits, Of::Context(context(number)))), [2, 2], "launched on any stream");
        // In another epoch the graph still records them: nobody else gets them.
        let later = Key { epoch: 1, ..key(STREAM) };
        fake.events.borrow_mut().clear();
        waits.add(&fake, &later, OWN, [context(0), context(1)]);
        assert!(waits.record(&fake, &later) && waits.used.load(Relaxed) == 3);
        waits.stream_is_gone(EXEC);
        assert!(!waits.launched(EXEC));
        assert_eq!(count(&waits, Of::Context(context(1))), 3);
    }
}
