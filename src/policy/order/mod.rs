//! Order: whether an access to memory comes after the one before it, as far as streams, events and waits say.
//!
//! **Clocks.** An operation is work that the program queues on a stream. Each stream has a vector clock of what comes before its next operation, and the host
//! has one for all threads: an operation comes after all for which any thread has waited before. So a lock of the program raises no false
//! alarm, and an order that only the host's timing makes is not missed either. An event keeps the clock of its stream when it was recorded.
//!
//! **Accesses.** Of each allocation the accesses are kept that something later may have to come after. Two accesses of which one writes are a *race* if the
//! later one's clock lacks the earlier one. It is a *possible race* if a kernel is one of the two, since it is not known what a kernel touches; or if
//! something came behind the earlier one that may have told the program that it is over: a kernel, a function of the host, a copy to the host, a memory
//! operation. An access to memory that is freed or unmapped without a wait is a *lifetime* fault. An order that exists only because a copy is staged, or
//! because p2pshim keeps the waits of a staged copy, is told of too: it ends when the program enables access.
//!
//! If record and wait of an event overlap in time, the order that has more counts, and a call that waits for a stream waits for what was queued before
//! it.

mod clock;
mod files;
mod mangled;
mod nodes;
mod operation;
mod shared;
mod span;
mod state;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Mutex;

use crate::os;
pub(crate) use clock::{Clock, Stamp};
pub(crate) use mangled::constants;
pub(crate) use nodes::races_within;
pub(crate) use operation::{Access, Kind, Level, Operation, Place, Publishes, Queue, Race, Side, Submitted};
pub(crate) use span::Span;
use state::State;

/// Pairs of places that are told of.
const MOST_TOLD: usize = 4096;

/// The order of all work of the process.
pub(crate) struct Order {
    state: Mutex<Option<Box<State>>>,
}

impl Order {
    pub(crate) const fn new() -> Self {
        Self { state: Mutex::new(None) }
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(os::lock(&self.state).get_or_insert_default())
    }

    // ---- Operations ----

    /// An operation is about to be queued.
    pub(crate) fn submit(&self, operation: &Operation<'_>) -> Submitted {
        self.with(|state| state.submit(operation))
    }

    /// The races that an operation would have.
    pub(crate) fn races_of(&self, operation: &Operation<'_>) -> Vec<Race> {
        self.with(|state| state.races_of(operation))
    }

    /// All that comes on a stream from now on comes after that.
    pub(crate) fn order_behind(&self, queue: Queue, clock: &Clock) {
        self.with(|state| _ = state.order_behind(queue, clock));
    }

    /// Whether something may wait for the host.
    pub(crate) fn waits_for_host(&self, clock: &Clock) -> bool {
        self.with(|state| state.waits_for_host(clock))
    }

    /// The stream that a handle names, if it has had work.
    pub(crate) fn known_queue(&self, handle: usize) -> Option<Queue> {
        self.with(|state| state.by_handle.get(&handle).copied())
    }

    /// The operation was queued.
    pub(crate) fn settle(&self, submitted: &Submitted, accesses: &[Access]) {
        if !accesses.is_empty() {
            self.with(|state| state.settle(submitted, accesses));
        }
    }

    /// The operation was not queued.
    pub(crate) fn withdraw(&self, stamp: Stamp, memory: &[Access]) {
        self.with(|state| {
            for access in memory {
                state.untell_failed(access.memory.start, stamp);
                if let Some(memory) = state.memory.get_mut(&access.memory.start) {
                    memory.kept.retain(|kept| kept.stamp != stamp);
                }
            }
        });
    }

    /// Two accesses are told of if no two of these places were before.
    pub(crate) fn is_new(&self, race: &Race) -> bool {
        self.with(|state| {
            let is_room = state.told.len() < MOST_TOLD;
            if !is_room {
                state.has_lost = true;
            }
            is_room && state.told.insert((race.level, race.first.place, race.second.place))
        })
    }

    /// Accesses of a graph are too many to be compared.
    pub(crate) fn note_lost(&self) {
        self.with(|state| state.has_lost = true);
    }

    /// Whether accesses were forgotten, so that later ones were not compared with them, or races were not named.
    pub(crate) fn has_lost(&self) -> bool {
        self.with(|state| state.has_lost)
    }

    // ---- Waits of the host ----

    /// The work that a wait for a stream waits for.
    pub(crate) fn of_stream(&self, queue: Queue) -> Clock {
        self.with(|state| {
            let slot = state.number(queue);
            state.catch_up(slot);
            state.slot(slot).map(|slot| slot.clock.clone()).unwrap_or_default()
        })
    }

    /// The work that a wait for a context waits for; of all contexts, if none is given.
    pub(crate) fn of_context(&self, context: Option<usize>) -> Clock {
        self.with(|state| state.work_of(context))
    }

    /// The work that a wait for an event waits for.
    pub(crate) fn of_event(&self, event: usize) -> Clock {
        self.with(|state| state.event(event))
    }

    /// The host has waited for that.
    pub(crate) fn reach(&self, clock: &Clock) {
        self.with(|state| state.host_reaches(clock));
    }

    // ---- Events ----

    /// An event was recorded on a stream, behind what the stream had when the call began, and has now.
    pub(crate) fn record(&self, event: usize, queue: Queue) {
        self.with(|state| {
            let slot = state.number(queue);
            state.catch_up(slot);
            let clock = state.slot(slot).map(|slot| slot.clock.clone()).unwrap_or_default();
            if state.shared_events.contains(&event) {
                state.shared.join(&clock);
                state.tell_record(event, &clock);
            }
            state.events.insert(event, clock);
        });
    }

    /// An event of a whole context was recorded; if none is given, of one that is not known.
    pub(crate) fn record_context(&self, event: usize, context: Option<usize>) {
        self.with(|state| {
            let clock = state.work_of(context);
            state.events.insert(event, clock);
        });
    }

    /// A stream waits for an event.
    pub(crate) fn wait(&self, queue: Queue, event: usize) {
        self.with(|state| {
            let clock = state.event(event);
            state.order_behind(queue, &clock);
        });
    }

    /// All streams of a context wait for an event; if none is given, of one that is not known.
    pub(crate) fn wait_in_context(&self, context: Option<usize>, event: usize) {
        self.with(|state| {
            let clock = state.event(event);
            match context {
                Some(context) => state.contexts.entry(context).or_default().waits.join(&clock),
                None => state.waits.join(&clock),
            }
            let queues: Vec<_> = state
                .slots
                .iter()
                .filter(|slot| !slot.is_destroyed)
                .map(|slot| slot.queue)
                .filter(|of| context.is_none_or(|context| of.context() == context))
                .collect();
            queues.into_iter().for_each(|queue| _ = state.order_behind(queue, &clock));
        });
    }

    /// The event is gone, or its handle means nothing that is known any more.
    pub(crate) fn forget_event(&self, event: usize) {
        self.with(|state| {
            state.events.remove(&event);
            state.shared_events.remove(&event);
            state.forget_shared_event(event);
        });
    }

    /// Another process has the event too, by a handle.
    pub(crate) fn share_event(&self, event: usize, handle: &[u8], is_own: bool) {
        self.with(|state| {
            let clock = state.events.get(&event).cloned().unwrap_or_default();
            state.shared.join(&clock);
            state.shared_events.insert(event);
            state.share_event(event, handle);
            if is_own {
                state.tell_record(event, &clock);
            }
        });
    }

    /// An event that was last recorded behind an operation of another process, and what comes before it.
    pub(crate) fn event_behind(&self, stamp: Stamp) -> Option<(usize, Clock)> {
        self.with(|state| state.event_behind(stamp))
    }

    /// Another process has the memory too, by a handle. It is the owner's handle, if it is its own.
    pub(crate) fn share_memory(&self, memory: &Range<u64>, handle: &[u8], is_own: bool) {
        self.with(|state| state.share_memory(memory, handle, is_own));
    }

    /// Whether others are to find a place that has no name for them yet.
    pub(crate) fn wants_name(&self, place: Place) -> bool {
        self.with(|state| !state.with_others.memory.is_empty() && !state.with_others.own_places.contains_key(&place))
    }

    /// The name that others find a place by: a path, and where in the file.
    pub(crate) fn set_name(&self, place: Place, name: String) {
        self.with(|state| _ = state.with_others.own_places.insert(place, name));
    }

    /// The number of the process of an access, if it is another, and the place there: a path, and where in the file.
    pub(crate) fn of_other(&self, side: &Side) -> Option<(String, String)> {
        self.with(|state| state.with_others.named(side).map(|(process, place)| (process.to_owned(), place.to_owned())))
    }

    // ---- Values and semaphores ----

    /// A stream writes a value that others may wait for; to a semaphore of others if there is no address.
    pub(crate) fn signal(&self, clock: &Clock, address: Option<u64>) {
        self.with(|state| match address {
            Some(address) => state.values.entry(address).or_default().join(clock),
            None => state.shared.join(clock),
        });
    }

    /// A stream waits for a value, or for a semaphore of others. Streams write values, and anything unseen may.
    pub(crate) fn wait_for_signal(&self, queue: Queue, address: Option<u64>) {
        self.with(|state| {
            let mut clock = state.shared.clone();
            // Others may have written the value since.
            if let Some(address) = address {
                clock.join(&state.published);
                state.values.get(&address).into_iter().for_each(|value| clock.join(value));
            }
            let wait = state.order_behind(queue, &clock);
            state.note_wait_for_signal(wait);
        });
    }

    // ---- Graphs ----

    /// An executable graph is about to be launched: its launches come one after another.
    pub(crate) fn before_launch(&self, exec: usize, queue: Queue) {
        self.with(|state| {
            if let Some(clock) = state.graphs.get(&exec).cloned() {
                state.order_behind(queue, &clock);
            }
        });
    }

    /// A graph was instantiated: the races of its nodes, until it is changed.
    pub(crate) fn instantiated(&self, exec: usize, races: Vec<Race>) {
        self.with(|state| _ = state.within_graphs.insert(exec, races));
    }

    /// Takes the races of a graph's nodes: the graph is changed or ends.
    pub(crate) fn take_races_within(&self, exec: usize) -> Vec<Race> {
        self.with(|state| state.within_graphs.remove(&exec).unwrap_or_default())
    }

    pub(crate) fn on_launch(&self, exec: usize, clock: Clock) {
        self.with(|state| {
            state.launched.join(&clock);
            state.graphs.insert(exec, clock);
        });
    }

    // ---- Memory ----

    /// Memory is about to be given back at once, after a wait for `clock`: what is under way there.
    pub(crate) fn before_release(&self, start: u64, end: u64, clock: &Clock, by: Side) -> Vec<Race> {
        self.with(|state| state.release(start, end, clock, by))
    }

    /// The executable graph is gone.
    pub(crate) fn forget_graph(&self, exec: usize) {
        self.with(|state| {
            state.graphs.remove(&exec);
            state.within_graphs.remove(&exec);
        });
    }

    /// All work so far may be told of by memory.
    pub(crate) fn publish_all(&self) {
        self.with(|state| {
            let clock = state.work_of(None);
            state.publish(&clock);
        });
    }

    /// Memory is gone.
    pub(crate) fn forget_memory(&self, memory: &Range<u64>) {
        self.with(|state| {
            state.values.retain(|at, _| !memory.contains(at));
            state.forget_memory(memory.start, memory.end);
            state.forget_shared_memory(memory.start, memory.end);
        });
    }

    /// Memory was handed out. If it is of a pool, its first use on the stream comes after what gave it back.
    pub(crate) fn allocated(&self, queue: Option<Queue>, address: u64) {
        self.with(|state| {
            let found = state.memory.range(..=address).next_back();
            let Some((&start, _)) = found.filter(|(_, memory)| address < memory.end) else { return };
            let freed = state.memory.remove(&start).and_then(|memory| memory.freed);
            if let (Some(queue), Some(freed)) = (queue, freed) {
                state.order_behind(queue, &freed);
            }
        });
    }

    // ---- Ends ----

    /// A stream was destroyed: its handle may come again.
    pub(crate) fn forget_stream(&self, handle: usize) {
        self.with(|state| state.forget_stream(handle));
    }

    /// A context has ended, after all of its work. A reset waits for all work of the process (measured on H100).
    pub(crate) fn forget_context(&self, context: Option<usize>, is_reset: bool) {
        self.with(|state| {
            let clock = state.work_of(context.filter(|_| !is_reset));
            state.host_reaches(&clock);
            let ended: Vec<_> = state
                .slots
                .iter()
                .filter(|slot| context.is_none_or(|of| slot.queue.context() == of))
                .map(|slot| slot.queue)
                .collect();
            for queue in ended {
                state.forget_queue(queue);
            }
            match context {
                Some(context) => _ = state.contexts.remove(&context),
                None => state.contexts.clear(),
            }
        });
    }
}
