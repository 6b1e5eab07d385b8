//! All that is known of streams, events and memory, under the lock of [`super::Order`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use super::clock::{Clock, Stamp};
use super::files::Shared;
use super::operation::{Access, Kind, Level, Operation, Place, Publishes, Queue, Race, Side, Submitted};
use super::span::{Overlap, Span};

/// Accesses that are kept of one allocation. Beyond, the oldest go.
pub(super) const MOST: usize = 512;

/// An access that is kept.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) stamp: Stamp,
    pub(super) span: Span,
    pub(super) side: Side,
}

/// An allocation.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) end: u64,
    pub(super) kept: Vec<Kept>,
    /// The work that comes before it can be handed out again.
    pub(super) freed: Option<Clock>,
}

/// A stream.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) queue: Queue,
    pub(super) clock: Clock,
    /// Its operations so far. A stream that takes the slot of another goes on counting.
    pub(super) count: u32,
    /// How often the host's clock had changed when it was last taken over.
    host: u64,
    pub(super) is_destroyed: bool,
}

/// A context.
#[derive(Debug, Default)]
pub(super) struct Context {
    legacy: Option<u32>,
    /// The streams that its legacy default stream waits for.
    blocking: Vec<u32>,
    /// The work that destroyed streams had left, for which the default stream waits still.
    left: Clock,
    /// Work that each of its streams comes after, also one that is not known yet.
    pub(super) waits: Clock,
    /// Work of other contexts' streams that calls which wait for this one wait for.
    work: Clock,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) slots: Vec<Slot>,
    pub(super) numbers: HashMap<Queue, u32>,
    pub(super) by_handle: HashMap<usize, Queue>,
    pub(super) contexts: HashMap<usize, Context>,
    pub(super) events: HashMap<usize, Clock>,
    /// Work that all streams come after, also those that are not known yet.
    pub(super) waits: Clock,
    pub(super) host: Clock,
    host_changes: u64,
    /// The work that something unseen may have told of.
    pub(super) published: Clock,
    /// The work that other processes and libraries may go on from: events and semaphores that are shared with them.
    pub(super) shared: Clock,
    pub(super) shared_events: BTreeSet<usize>,
    /// Waits of streams for values and semaphores, which the host may have to write.
    pub(super) waits_for_signals: Vec<Stamp>,
    /// Values in memory that streams write and wait for.
    pub(super) values: HashMap<u64, Clock>,
    /// The last launch of each executable graph, and all launches.
    pub(super) graphs: HashMap<usize, Clock>,
    pub(super) launched: Clock,
    /// Races between nodes of executable graphs that were not launched yet.
    pub(super) within_graphs: HashMap<usize, Vec<Race>>,
    pub(super) memory: BTreeMap<u64, Memory>,
    /// Events and memory that other processes of the run have too.
    pub(super) with_others: Shared,
    pub(super) told: BTreeSet<(Level, Place, Place)>,
    /// Whether accesses were not kept.
    pub(super) has_lost: bool,
}

impl State {
    pub(super) fn slot(&self, number: u32) -> Option<&Slot> {
        self.slots.get(number as usize)
    }

    /// The slot of a stream, which gets one if it has none: that of a destroyed stream whose work is over, if there is one.
    pub(super) fn number(&mut self, queue: Queue) -> u32 {
        if let Some(&number) = self.numbers.get(&queue) {
            return number;
        }
        // A handle that has come again with another context, or other flags.
        if let Some(handle) = queue.handle()
            && let Some(before) = self.by_handle.insert(handle, queue)
        {
            self.forget_queue(before);
        }
        let host = &self.host;
        // Threads end unseen: the default stream of one gets a new slot if it is used again.
        let may_be_gone = |slot: &Slot| slot.is_destroyed || matches!(slot.queue, Queue::PerThread { .. });
        let is_over = |(number, slot): &(usize, &Slot)| may_be_gone(slot) && host.has((*number as u32, slot.count));
        let over = self.slots.iter().enumerate().find(is_over).map(|(number, slot)| (number, slot.queue, slot.count));
        if let Some((_, queue, _)) = over {
            self.forget_queue(queue);
        }
        let over = over.map(|(number, _, count)| (number, count));
        let number = over.map_or(self.slots.len(), |(number, _)| number);
        let count = over.map_or(0, |(_, count)| count);
        let mut clock = self.waits.clone();
        if let Some(context) = self.contexts.get(&queue.context()) {
            clock.join(&context.waits);
        }
        let slot = Slot { queue, clock, count, host: u64::MAX, is_destroyed: false };
        match self.slots.get_mut(number) {
            Some(old) => *old = slot,
            None => self.slots.push(slot),
        }
        let number = number as u32;
        self.numbers.insert(queue, number);
        let context = self.contexts.entry(queue.context()).or_default();
        match queue {
            Queue::Legacy { .. } => context.legacy = Some(number),
            _ if queue.is_blocking() => context.blocking.push(number),
            _ => {}
        }
        number
    }

    /// A stream's next operation comes after all that the host has waited for, and after what its default stream orders.
    pub(super) fn catch_up(&mut self, number: u32) {
        let Some(slot) = self.slots.get_mut(number as usize) else { return };
        if slot.host != self.host_changes {
            slot.clock.join(&self.host);
            slot.host = self.host_changes;
        }
        let queue = slot.queue;
        let Some(context) = self.contexts.get(&queue.context()) else { return };
        let others: Vec<u32> = match (queue, context.legacy) {
            (Queue::Legacy { .. }, _) => context.blocking.clone(),
            (_, Some(legacy)) if queue.is_blocking() => vec![legacy],
            _ => return,
        };
        let mut clock = std::mem::take(&mut slot.clock);
        if let Queue::Legacy { .. } = queue {
            clock.join(&context.left);
        }
        for other in others {
            if let Some(from) = self.slots.get(other as usize).filter(|from| !clock.has((other, from.count))) {
                clock.join(&from.clock);
            }
        }
        if let Some(slot) = self.slots.get_mut(number as usize) {
            slot.clock = clock;
        }
    }

    /// Counts an operation of a stream.
    fn next(&mut self, number: u32) -> Stamp {
        let Some(slot) = self.slots.get_mut(number as usize) else { return (number, 0) };
        slot.count = slot.count.saturating_add(1);
        let stamp = (number, slot.count);
        slot.clock.add(stamp);
        stamp
    }

    /// All that comes on a stream from now on comes after that. It counts as an operation: others see that the stream's clock has changed.
    pub(super) fn order_behind(&mut self, queue: Queue, clock: &Clock) -> Stamp {
        let number = self.number(queue);
        self.catch_up(number);
        if let Some(slot) = self.slots.get_mut(number as usize) {
            slot.clock.join(clock);
        }
        self.next(number)
    }

    pub(super) fn note_wait_for_signal(&mut self, wait: Stamp) {
        let host = &self.host;
        self.waits_for_signals.retain(|&wait| !host.has(wait));
        self.waits_for_signals.push(wait);
    }

    /// Whether something may wait for the host: a stream's wait for a value or a semaphore comes before it, and the host has not waited for that.
    pub(super) fn waits_for_host(&self, clock: &Clock) -> bool {
        self.waits_for_signals.iter().any(|&wait| clock.has(wait) && !self.host.has(wait))
    }

    /// The slot of an operation's stream, all that comes before it, and the slots of default streams of other contexts that it is ordered with.
    fn before(&mut self, operation: &Operation<'_>) -> (u32, Clock, Vec<u32>) {
        let number = self.number(operation.queue);
        self.catch_up(number);
        // Default streams of other contexts.
        let others: Vec<u32> = operation.with.iter().map(|&context| self.number(Queue::Legacy { context })).collect();
        for &other in &others {
            self.catch_up(other);
            let from = self.slot(other).map(|slot| slot.clock.clone()).unwrap_or_default();
            if let Some(slot) = self.slots.get_mut(number as usize) {
                slot.clock.join(&from);
            }
        }
        let clock = self.slot(number).map(|slot| slot.clock.clone()).unwrap_or_default();
        (number, clock, others)
    }

    /// The races of an operation that may be queued.
    pub(super) fn races_of(&mut self, operation: &Operation<'_>) -> Vec<Race> {
        let (_, clock, _) = self.before(operation);
        operation.accesses.iter().for_each(|access| self.take_over(&access.memory));
        let mut races = Vec::new();
        operation.accesses.iter().for_each(|access| self.compare(access, &clock, operation, &mut races));
        races
    }

    pub(super) fn submit(&mut self, operation: &Operation<'_>) -> Submitted {
        let (number, clock, others) = self.before(operation);
        let mut races = Vec::new();
        operation.accesses.iter().for_each(|access| self.take_over(&access.memory));
        for access in operation.accesses {
            self.compare(access, &clock, operation, &mut races);
        }
        // Nothing that it is compared with can be told of by itself.
        if operation.publishes != Publishes::Nothing {
            self.publish(&clock);
        }
        let stamp = self.next(number);
        let clock = self.slot(number).map(|slot| slot.clock.clone()).unwrap_or_default();
        for access in operation.accesses {
            let kept = self.keep(access, stamp, operation);
            self.tell(access.memory.start, &[kept]);
        }
        if operation.publishes == Publishes::Itself {
            self.publish(&clock);
        }
        for &other in &others {
            if let Some(slot) = self.slots.get_mut(other as usize) {
                slot.clock.join(&clock);
            }
            self.next(other);
        }
        for &context in operation.work_of {
            self.contexts.entry(context).or_default().work.join_staged(&clock);
        }
        Submitted { stamp, clock, races }
    }

    /// Compares an access with those that are kept of its memory.
    fn compare(&self, access: &Access, clock: &Clock, operation: &Operation<'_>, races: &mut Vec<Race>) {
        let second = Side {
            kind: access.kind,
            function: operation.function,
            place: operation.place,
            queue: Some(operation.queue),
        };
        let Some(memory) = self.memory.get(&access.memory.start) else { return };
        for kept in &memory.kept {
            let overlap = kept.span.overlap(&access.span);
            if overlap == Overlap::No || clock.has_unstaged(kept.stamp) || !may_race(kept.side.kind, access.kind) {
                continue;
            }
            let kinds = [kept.side.kind, access.kind];
            let is_known = !kinds.iter().any(|kind| kind.is_kernel()) && overlap == Overlap::Yes;
            let level = match is_known && !self.published.has(kept.stamp) {
                true if clock.has(kept.stamp) => Level::Staged,
                _ if clock.has(kept.stamp) => continue,
                true if kinds.contains(&Kind::Frees) => Level::Lifetime,
                true => Level::Race,
                false => Level::Possible,
            };
            let bytes = kept.span.common(&access.span);
            races.push(Race { level, first: kept.side, stamp: kept.stamp, second, bytes, device: access.device });
        }
    }

    /// Keeps an access, and forgets those that it stands for: whatever comes after it comes after them.
    fn keep(&mut self, access: &Access, stamp: Stamp, operation: &Operation<'_>) -> Kept {
        // Memory that has gone unseen.
        let Range { start, end } = access.memory;
        if self.memory.get(&start).is_none_or(|memory| memory.end != end) {
            self.forget_memory(start, end);
        }
        let memory = self.memory.entry(start).or_insert_with(|| Memory { end, ..Memory::default() });
        let host = &self.host;
        memory.kept.retain(|kept| !host.has_unstaged(kept.stamp));
        if memory.kept.len() >= MOST {
            memory.kept.retain(|kept| !host.has(kept.stamp));
        }
        if memory.kept.len() >= MOST {
            memory.kept.remove(0);
            self.has_lost = true;
        }
        let side = Side {
            kind: access.kind,
            function: operation.function,
            place: operation.place,
            queue: Some(operation.queue),
        };
        let kept = Kept { stamp, span: access.span, side };
        memory.kept.push(kept.clone());
        kept
    }

    /// An operation was queued: forgets the accesses that its own stand for, since whatever comes after them comes after those.
    pub(super) fn settle(&mut self, Submitted { stamp, clock, .. }: &Submitted, accesses: &[Access]) {
        for access in accesses {
            self.untell_covered(access, *stamp, clock);
            let Some(memory) = self.memory.get_mut(&access.memory.start) else { continue };
            let is_needed = |kept: &Kept| {
                kept.stamp == *stamp
                    || !access.span.covers(&kept.span)
                    || !clock.has(kept.stamp)
                    || !stands_for(access.kind, kept.side.kind)
            };
            memory.kept.retain(is_needed);
            memory.freed = (access.kind == Kind::Frees).then(|| clock.clone());
        }
    }

    /// Allocations with an address of the range are gone.
    pub(super) fn forget_memory(&mut self, start: u64, end: u64) {
        while let Some((&at, _)) = self.memory.range(..end).next_back().filter(|(_, memory)| memory.end > start) {
            self.memory.remove(&at);
        }
    }

    pub(super) fn release(&mut self, start: u64, end: u64, clock: &Clock, by: Side) -> Vec<Race> {
        self.take_over_all(start, end);
        let mut races = Vec::new();
        for (&at, memory) in self.memory.range(..end.max(start + 1)).rev().take_while(|(_, memory)| memory.end > start)
        {
            let has = |has: fn(&Clock, Stamp) -> bool, stamp| has(clock, stamp) || has(&self.host, stamp);
            for kept in memory.kept.iter().filter(|kept| !has(Clock::has_unstaged, kept.stamp)) {
                // To close a mapping takes nothing from the others.
                if self.is_foreign(kept.stamp.0) && !self.is_owner(at) {
                    continue;
                }
                let is_known = !kept.side.kind.is_kernel() && !self.published.has(kept.stamp);
                let level = match has(Clock::has, kept.stamp) {
                    true if is_known => Level::Staged,
                    true => continue,
                    false if is_known => Level::Lifetime,
                    false => Level::Possible,
                };
                let bytes = (kept.span.start.max(at), kept.span.end.min(memory.end));
                races.push(Race { level, first: kept.side, stamp: kept.stamp, second: by, bytes, device: None });
            }
        }
        races
    }

    pub(super) fn event(&mut self, event: usize) -> Clock {
        if self.shared_events.contains(&event) {
            let mut clock = self.told_record(event);
            clock.join(&self.shared);
            self.events.get(&event).into_iter().for_each(|own| clock.join(own));
            return clock;
        }
        match self.events.get(&event) {
            // A graph may have recorded it since.
            Some(clock) => {
                let mut clock = clock.clone();
                clock.join(&self.launched);
                clock
            }
            // Recorded by a graph, if at all.
            None => self.launched.clone(),
        }
    }

    /// All work of a context so far.
    pub(super) fn work_of(&mut self, context: Option<usize>) -> Clock {
        let is_meant = |of: usize| of == 0 || context.is_none_or(|context| context == of || context == 0);
        let mut clock = Clock::new();
        let own = self.slots.iter().filter(|slot| !matches!(slot.queue, Queue::Foreign { .. }));
        for slot in own.filter(|slot| is_meant(slot.queue.context())) {
            clock.join(&slot.clock);
        }
        for (_, context) in self.contexts.iter().filter(|(of, _)| is_meant(**of)) {
            clock.join(&context.work);
        }
        clock
    }

    pub(super) fn host_reaches(&mut self, clock: &Clock) {
        self.host.join(clock);
        self.host_changes += 1;
        self.untell_reached(clock);
    }

    /// Something unseen may tell of work.
    pub(super) fn publish(&mut self, clock: &Clock) {
        self.published.join(clock);
        self.tell_published();
    }

    pub(super) fn forget_stream(&mut self, handle: usize) {
        if let Some(&queue) = self.by_handle.get(&handle) {
            self.forget_queue(queue);
        }
    }

    pub(super) fn forget_queue(&mut self, queue: Queue) {
        if let Some(handle) = queue.handle().filter(|handle| self.by_handle.get(handle) == Some(&queue)) {
            self.by_handle.remove(&handle);
        }
        let Some(number) = self.numbers.remove(&queue) else { return };
        if let Some(slot) = self.slots.get_mut(number as usize) {
            slot.is_destroyed = true;
        }
        if let Some(context) = self.contexts.get_mut(&queue.context()) {
            // The default stream still waits for it.
            let left = self.slots.get(number as usize).map(|slot| slot.clock.clone()).unwrap_or_default();
            context.blocking.retain(|&blocking| blocking != number);
            context.work.join(&left);
            if queue.is_blocking() {
                context.left.join(&left);
            }
            if context.legacy == Some(number) {
                context.legacy = None;
            }
        }
    }
}

/// Whether two accesses without order may be wrong. Two kernels are not looked at.
pub(super) fn may_race(one: Kind, other: Kind) -> bool {
    let do_read = [one, other].iter().all(|kind| matches!(kind, Kind::Reads | Kind::KernelReads));
    let are_kernels = one.is_kernel() && other.is_kernel();
    !do_read && !are_kernels && (one, other) != (Kind::Frees, Kind::Frees)
}

/// Whether all that an earlier access may race with also races with a later one that is ordered behind it.
pub(super) fn stands_for(later: Kind, earlier: Kind) -> bool {
    match later {
        Kind::Writes | Kind::Frees => true,
        Kind::Reads => matches!(earlier, Kind::Reads | Kind::KernelReads),
        Kind::Kernel => earlier.is_kernel(),
        Kind::KernelReads => earlier == Kind::KernelReads,
    }
}
