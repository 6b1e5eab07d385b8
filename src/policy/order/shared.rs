//! Order between the processes of a `p2pshim run` that share memory and events by IPC handles.
//!
//! A process reads a memory's file before it compares with what is kept, and writes its own access there; a wait for an event also counts for the clock of
//! the event's file. A stream of another process gets a slot of our own, so that clocks can hold it. All processes share the clock of the host, as all threads do: an
//! access for which any host has waited is taken out of its file, since that host may have told the others by any means.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use super::clock::{Clock, Stamp};
use super::files::{self, Part, Told, Work};
use super::operation::{Access, Place, Queue, Side};
use super::span::Span;
use super::state::{Kept, State, stands_for};

impl State {
    // ---- Slots ----

    /// The slot of a stream of any process.
    fn slot_of(&mut self, work: &Work) -> u32 {
        if self.with_others.files().is_some_and(|files| files.process == work.process) {
            return work.slot;
        }
        let is_it = |(process, slot): &(String, u32)| *process == work.process && *slot == work.slot;
        let number = self.with_others.streams.iter().position(is_it).unwrap_or_else(|| {
            self.with_others.streams.push((work.process.clone(), work.slot));
            self.with_others.streams.len() - 1
        });
        self.number(Queue::Foreign { number })
    }

    /// The work of a slot, as all processes name it.
    fn work(&mut self, slot: u32, numbers: [u32; 2]) -> Option<Work> {
        match self.slot(slot)?.queue {
            Queue::Foreign { number } => {
                let (process, slot) = self.with_others.streams.get(number)?.clone();
                Some(Work { process, slot, numbers })
            }
            _ => Some(Work { process: self.with_others.files()?.process.clone(), slot, numbers }),
        }
    }

    /// Whether shared memory is this process's own.
    pub(super) fn is_owner(&self, start: u64) -> bool {
        self.with_others.memory.get(&start).is_some_and(|part| part.is_own)
    }

    pub(super) fn is_foreign(&self, slot: u32) -> bool {
        self.slot(slot).is_some_and(|slot| matches!(slot.queue, Queue::Foreign { .. }))
    }

    // ---- Events ----

    /// An event is known to other processes by a handle.
    pub(super) fn share_event(&mut self, event: usize, handle: &[u8]) {
        if let Some(path) = self.with_others.files().map(|files| files.path(handle)) {
            self.with_others.events.insert(event, path);
        }
    }

    pub(super) fn forget_shared_event(&mut self, event: usize) {
        self.with_others.events.remove(&event);
    }

    /// It was recorded: tells the others what it is behind, without what hosts have waited for.
    pub(super) fn tell_record(&mut self, event: usize, clock: &Clock) {
        let Some(path) = self.with_others.events.get(&event).cloned() else { return };
        let known: Vec<_> = clock.since(&self.host).collect();
        let works = known.into_iter().filter_map(|(slot, numbers)| self.work(slot, numbers)).collect();
        self.has_lost |= files::set_clock(&path, works).is_none();
    }

    /// The clock that an event's file has.
    pub(super) fn told_record(&mut self, event: usize) -> Clock {
        let mut clock = Clock::new();
        let works = self.with_others.events.get(&event).map(files::clock).unwrap_or_default();
        for work in works {
            let slot = self.slot_of(&work);
            clock.set((slot, work.numbers));
        }
        clock
    }

    /// An event that was last recorded behind an operation of another process, and what comes before it.
    pub(super) fn event_behind(&mut self, stamp: Stamp) -> Option<(usize, Clock)> {
        if !self.is_foreign(stamp.0) {
            return None;
        }
        let events: Vec<usize> = self.with_others.events.keys().copied().collect();
        let clocks = events.into_iter().map(|event| (event, self.told_record(event)));
        clocks.into_iter().find(|(_, clock)| clock.has(stamp))
    }

    // ---- Memory ----

    /// An allocation is known to other processes by a handle.
    pub(super) fn share_memory(&mut self, memory: &Range<u64>, handle: &[u8], is_own: bool) {
        let Some(file) = self.with_others.files().map(|files| files.path(handle)) else { return };
        self.with_others.memory.insert(memory.start, Part { end: memory.end, file, is_own, is_untold: true });
        let kept = self.memory.get(&memory.start).map(|memory| memory.kept.clone()).unwrap_or_default();
        self.tell(memory.start, &kept);
    }

    /// Memory with these addresses is no longer this process's to look at.
    pub(super) fn forget_shared_memory(&mut self, start: u64, end: u64) {
        let (gone, rest) =
            std::mem::take(&mut self.with_others.memory).into_iter().partition(|(at, _)| (start..end).contains(at));
        self.with_others.memory = rest;
        let gone: BTreeMap<u64, Part> = gone;
        gone.values().filter(|part| part.is_own).for_each(|part| files::remove(&part.file));
    }

    /// Takes over what is known of shared memory with an address of a range.
    pub(super) fn take_over_all(&mut self, start: u64, end: u64) {
        let parts = self.with_others.memory.range(..end.max(start + 1)).filter(|(_, part)| part.end > start);
        let parts: Vec<Range<u64>> = parts.map(|(&start, part)| start..part.end).collect();
        parts.iter().for_each(|memory| self.take_over(memory));
    }

    fn file(&self, start: u64) -> Option<PathBuf> {
        self.with_others.memory.get(&start).map(|part| part.file.clone())
    }

    /// Takes the accesses of all processes over, before something is compared with them.
    pub(super) fn take_over(&mut self, memory: &Range<u64>) {
        let Some(file) = self.file(memory.start) else { return };
        let Some(told) = files::accesses(&file, |_| false) else {
            self.has_lost = true;
            return;
        };
        let told: Vec<(Stamp, Told)> =
            told.into_iter().map(|told| ((self.slot_of(&told.of), told.of.numbers[0]), told)).collect();
        let mut kept = self.memory.get(&memory.start).map(|memory| memory.kept.clone()).unwrap_or_default();
        // Those that are not in the file any more are over.
        kept.retain(|kept| told.iter().any(|(stamp, _)| *stamp == kept.stamp) && !self.is_foreign(kept.stamp.0));
        for (stamp, told) in told {
            if !self.is_foreign(stamp.0) {
                continue;
            }
            if told.is_published {
                self.published.add(stamp);
            }
            let place = Place { site: 0, address: self.foreign_place(&told.place) };
            let queue = self.slot(stamp.0).map(|slot| slot.queue);
            let side = Side { kind: told.kind, function: told.function, place, queue };
            let at = |offset: u64| memory.start.saturating_add(offset);
            let span = Span { start: at(told.span.start), end: at(told.span.end), rows: told.span.rows };
            kept.push(Kept { stamp, span, side });
        }
        let end = memory.end;
        self.memory.entry(memory.start).or_insert_with(|| super::state::Memory { end, ..Default::default() }).kept =
            kept;
    }

    fn foreign_place(&mut self, place: &str) -> usize {
        let places = &mut self.with_others.places;
        places.iter().position(|known| known == place).unwrap_or_else(|| {
            places.push(place.to_owned());
            places.len() - 1
        })
    }

    /// Tells the others of accesses of this process.
    pub(super) fn tell(&mut self, start: u64, kept: &[Kept]) {
        let Some(file) = self.file(start) else { return };
        let own = kept.iter().filter(|kept| !self.is_foreign(kept.stamp.0)).cloned().collect::<Vec<_>>();
        let mut new = Vec::new();
        for Kept { stamp, span, side } in own {
            let Some(of) = self.work(stamp.0, [stamp.1; 2]) else { continue };
            let from = |at: u64| at.saturating_sub(start);
            let (is_published, place) = (self.published.has(stamp), self.with_others.place(side.place));
            let span = Span { start: from(span.start), end: from(span.end), rows: span.rows };
            new.push(Told { of, is_published, span, kind: side.kind, function: side.function, place });
        }
        if let Some(part) = self.with_others.memory.get_mut(&start) {
            part.is_untold = true;
        }
        let add = |told: &mut Vec<Told>| {
            let is_any = !new.is_empty();
            told.append(&mut new);
            is_any
        };
        self.has_lost |= files::accesses(&file, add).is_none();
    }

    /// Takes accesses out of the file of memory.
    fn untell(&mut self, start: u64, is_over: impl Fn(Stamp, &Told) -> bool) {
        let Some(file) = self.file(start) else { return };
        let change = |told: &mut Vec<Told>| {
            let before = told.len();
            told.retain(|told| !is_over((self.slot_of(&told.of), told.of.numbers[0]), told));
            told.len() != before
        };
        self.has_lost |= files::accesses(&file, change).is_none();
    }

    /// An operation did not come to be.
    pub(super) fn untell_failed(&mut self, start: u64, failed: Stamp) {
        self.untell(start, |stamp, _| stamp == failed);
    }

    /// An access stands for others: whatever comes after it comes after them.
    pub(super) fn untell_covered(&mut self, access: &Access, by: Stamp, clock: &Clock) {
        let start = access.memory.start;
        let from = |at: u64| at.saturating_sub(start);
        let span = Span { start: from(access.span.start), end: from(access.span.end), rows: access.span.rows };
        self.untell(start, |stamp, told| {
            stamp != by && span.covers(&told.span) && clock.has(stamp) && stands_for(access.kind, told.kind)
        });
    }

    /// The host has waited for more than before: the operations in `clock` are over for all processes.
    pub(super) fn untell_reached(&mut self, clock: &Clock) {
        if self.with_others.memory.is_empty() {
            return;
        }
        let parts: Vec<u64> = self.with_others.memory.keys().copied().collect();
        let knows_foreign = (0..self.slots.len() as u32).any(|slot| self.is_foreign(slot) && clock.has((slot, 1)));
        for start in parts {
            let kept = self.memory.get(&start).map_or(&[][..], |memory| &memory.kept);
            if knows_foreign || kept.iter().any(|kept| self.host.has_unstaged(kept.stamp)) {
                let host = self.host.clone();
                self.untell(start, |stamp, _| host.has_unstaged(stamp));
                if let Some(memory) = self.memory.get_mut(&start) {
                    memory.kept.retain(|kept| !host.has_unstaged(kept.stamp));
                }
            }
        }
    }

    /// Something unseen may have told of more work.
    pub(super) fn tell_published(&mut self) {
        let parts: Vec<u64> =
            self.with_others.memory.iter().filter(|(_, part)| part.is_untold).map(|(&start, _)| start).collect();
        for start in parts {
            let kept = self.memory.get(&start).map_or(&[][..], |memory| &memory.kept);
            if !kept.iter().any(|kept| self.published.has(kept.stamp)) {
                continue;
            }
            let Some(file) = self.file(start) else { continue };
            let mut is_untold = false;
            let change = |told: &mut Vec<Told>| {
                for told in told.iter_mut() {
                    let stamp = (self.slot_of(&told.of), told.of.numbers[0]);
                    told.is_published |= self.published.has(stamp);
                    is_untold |= !told.is_published && !self.is_foreign(stamp.0);
                }
                true
            };
            let is_told = files::accesses(&file, change).is_some();
            self.has_lost |= !is_told;
            if let Some(part) = self.with_others.memory.get_mut(&start) {
                part.is_untold = is_untold;
            }
        }
    }
}
