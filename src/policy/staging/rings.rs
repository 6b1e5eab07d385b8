//! The rings that there are, who has which, and which memory their copies use.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use super::ring::{Context, Contexts, Host, MARKS, Part, Ring, Stager};
use super::transfer::{EndpointRanges, QUEUED, Transfer};
use crate::api::abi::Code;
use crate::objects::streams::Stream;

/// A stream that is gone, whose handle no stream has.
const GONE: Stream = Stream::Created(usize::MAX);
/// Page-locked memory of the copies from one device to another, at most.
const A_PAIR: u64 = 64 << 20;

struct Entry {
    ring: Ring,
    user: Stream,
    /// The devices that it copies between.
    pair: [u8; 2],
    /// Bytes of a chunk of its last copy; 0 if that was read back.
    chunk: usize,
    /// The endpoints of copies that the ring has not finished, oldest first, each with the number of its last step.
    endpoints: Vec<(EndpointRanges, usize)>,
    /// Steps so far.
    steps: usize,
    /// Launches on each of its streams since it was last seen to have nothing to do, at most.
    queued: usize,
    /// Whether a thread is making a copy with it, or finding out whether it may.
    is_taken: bool,
    /// The threads whose copies have steps to come. The ring stays its user's until then: what the steps wait for may wait for the host.
    kept_by: Vec<usize>,
}

impl Entry {
    /// A ring that its maker has.
    fn new(ring: Ring, user: Stream, pair: [u8; 2]) -> Self {
        let (chunk, endpoints, kept_by) = (ring.host.bytes, Vec::new(), Vec::new());
        Self { ring, user, pair, chunk, endpoints, steps: 0, queued: 0, is_taken: true, kept_by }
    }

    /// Whether nobody is using it in this moment, and it is for these contexts and has so many bytes.
    fn is_free(&self, (contexts, bytes): (Contexts, usize)) -> bool {
        !self.is_taken && self.ring.contexts == contexts && self.ring.host.bytes == bytes
    }

    fn is_had(&self) -> bool {
        self.is_taken || !self.kept_by.is_empty()
    }

    /// The mark that is recorded after a step or, if that has been recorded anew, the oldest that is there.
    fn mark(&self, step: usize) -> usize {
        let known = step.max((self.steps + 1).saturating_sub(MARKS));
        self.ring.marks.get(known % MARKS).copied().unwrap_or_default()
    }

    /// Notes the endpoints of the next step.
    fn note_step(&mut self, ends: EndpointRanges) {
        /// So many copies are told apart; of others it is only known between which addresses their memory lies.
        const COPIES: usize = 64;
        self.steps += 1;
        self.endpoints.retain(|(known, _)| *known != ends);
        if self.endpoints.len() >= COPIES
            && let [([from, to], _), ([next_from, next_to], step), ..] = self.endpoints[..]
        {
            let hull = |one: (u64, u64), other: (u64, u64)| (one.0.min(other.0), one.1.max(other.1));
            self.endpoints.splice(..2, [([hull(from, next_from), hull(to, next_to)], step)]);
        }
        self.endpoints.push((ends, self.steps));
    }

    fn is_other(&self, bytes: usize, besides: [u8; 2]) -> bool {
        self.ring.host.bytes == bytes && self.pair != besides
    }
}

/// The reply of a ring that is asked to take the next step of a copy.
pub(crate) enum StepAdmission {
    /// It does. The memory may have been divided otherwise before. The mark is to be recorded after the step.
    Taken { is_divided_anew: bool, mark: usize },
    /// Not now: it is in use, or its streams have too much to do.
    Full,
    /// It is gone, with a context.
    Gone,
}

struct Table {
    entries: Vec<Entry>,
    /// Memory of the host of rings that are gone, and their streams and events: these are not destroyed, since a thread may be about to
    /// ask about one.
    spare: Vec<Host>,
    parts: Vec<(Part, usize)>,
    /// Bytes of rings that are being made.
    making: usize,
    /// Copies since a ring could not be made.
    since_failure: Option<u32>,
}

impl Table {
    /// Whether a ring is to be made. After a failure the next copy tries again, then fewer and fewer: the reason may be over, but each try may
    /// cost as much as page-locking.
    fn count_try(&mut self) -> bool {
        /// At least one of so many copies does.
        const RARELY: u32 = 64;
        self.since_failure = self.since_failure.map(|copies| copies.wrapping_add(1));
        self.since_failure.is_none_or(|copies| copies.is_power_of_two() || copies.is_multiple_of(RARELY))
    }

    /// A ring with what others have left in its contexts.
    fn begin(&mut self, contexts: Contexts, host: Host) -> Ring {
        let mut ring = Ring::empty(contexts, host);
        for (wanted, handle) in ring.parts() {
            let left = self.parts.iter().position(|(part, _)| *part == wanted);
            *handle = left.map_or(0, |left| self.parts.swap_remove(left).1);
        }
        ring
    }

    /// Keeps what a ring leaves in contexts that are there.
    fn keep(&mut self, mut ring: Ring, is_there: impl Fn(&Context) -> bool) {
        let left = ring.parts().map(|(part, handle)| (part, *handle));
        self.parts.extend(left.filter(|(part, handle)| *handle != 0 && is_there(&part.context())));
    }

    /// Whether there may be one more ring.
    fn have_room(&self, (contexts, bytes): (Contexts, usize), limit: u64) -> bool {
        let of_size = || self.entries.iter().filter(|entry| entry.ring.host.bytes == bytes);
        let of_pair = of_size().filter(|entry| entry.ring.contexts[1..] == contexts[1..]).count();
        let [of_pair, in_all] = [of_pair, of_size().count()].map(|rings| (rings + 1) * bytes);
        of_pair as u64 <= A_PAIR && (in_all + self.making) as u64 <= limit
    }
}

/// All rings. Nothing is asked of the driver while the lock is held.
pub(crate) struct Rings {
    table: Mutex<Table>,
    /// Whether there ever was one.
    is_used: AtomicBool,
}

impl Rings {
    pub(super) const fn new() -> Self {
        let parts = Vec::new();
        let table = Table { entries: Vec::new(), spare: Vec::new(), parts, making: 0, since_failure: None };
        Self { table: Mutex::new(table), is_used: AtomicBool::new(false) }
    }

    /// The rings of which this holds, and which have something to do; with the devices that they copy between.
    fn under_way(&self, driver: &impl Stager, is_it: impl Fn(&Entry) -> bool) -> Vec<(Ring, [u8; 2])> {
        let mut rings: Vec<_> = {
            let rings = self.table.lock();
            rings.entries.iter().filter(|entry| is_it(entry)).map(|entry| (entry.ring, entry.pair)).collect()
        };
        rings.retain(|(ring, _)| !driver.is_ring_done(ring));
        rings
    }

    /// The ring of this stream, these contexts and so many bytes, if nobody is using it in this moment.
    pub(super) fn find(&self, kind: (Contexts, usize), user: Stream) -> Option<Ring> {
        let mut rings = self.table.lock();
        let entry = rings.entries.iter_mut().find(|entry| entry.is_free(kind) && entry.user == user)?;
        entry.is_taken = true;
        Some(entry.ring)
    }

    /// One of another stream that has nothing left to do.
    #[cold]
    #[inline(never)]
    pub(super) fn take_over(&self, driver: &impl Stager, kind: (Contexts, usize), user: Stream) -> Option<Ring> {
        let is_free = |entry: &Entry| entry.is_free(kind) && entry.kept_by.is_empty();
        let candidates: Vec<Ring> =
            self.table.lock().entries.iter().filter(|entry| is_free(entry)).map(|entry| entry.ring).collect();
        candidates.into_iter().find(|ring| {
            let take = |entry: &mut Entry| is_free(entry).then(|| entry.is_taken = true);
            let is_ours = self.with(ring, take).flatten().is_some();
            let is_done = is_ours && driver.is_ring_done(ring);
            if is_done {
                self.with(ring, |entry| entry.user = user);
            } else if is_ours {
                self.give_back(ring);
            }
            is_done
        })
    }

    /// Sets room aside for a ring that is about to be made, within a limit if there is one: memory of one that is gone, if there is any. Else
    /// whether it is the limit that leaves no room.
    pub(super) fn begin_making(
        &self,
        kind @ (_, bytes): (Contexts, usize),
        limit: Option<u64>,
    ) -> Result<Option<Host>, bool> {
        let mut rings = self.table.lock();
        if limit.is_some() && !rings.count_try() {
            return Err(false);
        }
        if limit.is_some_and(|limit| !rings.have_room(kind, limit)) {
            return Err(true);
        }
        rings.making += bytes;
        let spare = rings.spare.iter().position(|host| host.bytes == bytes);
        Ok(spare.map(|spare| rings.spare.swap_remove(spare)))
    }

    /// A ring that is about to be made, with what others have left in its contexts.
    pub(super) fn begin(&self, contexts: Contexts, host: Host) -> Ring {
        self.table.lock().begin(contexts, host)
    }

    /// One that was not made leaves what it has.
    pub(super) fn leave(&self, ring: Ring) {
        self.table.lock().keep(ring, |_| true);
    }

    /// A ring was made, and is its maker's; or not, and memory is left. Whether that is the first time.
    pub(super) fn end_making(
        &self,
        bytes: usize,
        made: Result<Ring, (Code, Option<Host>)>,
        user: Stream,
        pair: [u8; 2],
    ) -> bool {
        let mut rings = self.table.lock();
        rings.making -= bytes;
        match made {
            Ok(ring) => {
                self.is_used.store(true, Relaxed);
                rings.since_failure = None;
                rings.entries.push(Entry::new(ring, user, pair));
                false
            }
            Err((code, host)) => {
                rings.spare.extend(host);
                // During a capture none is made.
                let is_new = code != Code::NOT_READY && rings.since_failure.is_none();
                if is_new {
                    rings.since_failure = Some(0);
                }
                is_new
            }
        }
    }

    /// A copy is about to be read back through a ring, as the next copy has to know.
    pub(super) fn mark_read_back(&self, ring: &Ring) {
        self.with(ring, |entry| entry.chunk = 0);
    }

    /// The devices between which rings of so many bytes copy that a thread has, or are between two steps, besides one pair.
    pub(super) fn taken(&self, bytes: usize, besides: [u8; 2]) -> BTreeSet<[u8; 2]> {
        let rings = self.table.lock();
        let is_it = |entry: &&Entry| entry.is_other(bytes, besides) && entry.is_had();
        rings.entries.iter().filter(is_it).map(|entry| entry.pair).collect()
    }

    /// The others between which copies are under way.
    pub(super) fn busy(&self, driver: &impl Stager, bytes: usize, besides: [u8; 2]) -> impl Iterator<Item = [u8; 2]> {
        let busy = self.under_way(driver, |entry| entry.is_other(bytes, besides) && !entry.is_had());
        busy.into_iter().map(|(_, pair)| pair)
    }

    fn with<T>(&self, ring: &Ring, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let mut rings = self.table.lock();
        rings.entries.iter_mut().find(|entry| entry.ring == *ring).map(change)
    }

    /// Whether a ring that was taken is there still.
    pub(crate) fn has(&self, ring: &Ring) -> bool {
        self.table.lock().entries.iter().any(|entry| entry.ring == *ring)
    }

    /// A copy has been submitted, or will not be.
    pub(crate) fn give_back(&self, ring: &Ring) {
        self.with(ring, |entry| entry.is_taken = false);
    }

    /// Gives a ring back between two steps of a thread's copy. If the next never comes, the ring is there for its user's next copy.
    pub(crate) fn keep(&self, ring: &Ring, thread: usize) {
        self.with(ring, |entry| {
            entry.is_taken = false;
            if !entry.kept_by.contains(&thread) {
                entry.kept_by.push(thread);
            }
        });
    }

    /// A thread's copy has no more steps.
    pub(crate) fn release(&self, ring: &Ring, thread: usize) {
        self.with(ring, |entry| entry.kept_by.retain(|&other| other != thread));
    }

    /// The rings of a thread's copies that have steps to come, and the streams of the program that they are for.
    pub(crate) fn kept_by(&self, thread: usize) -> Vec<(Ring, usize)> {
        let rings = self.table.lock();
        let kept = rings.entries.iter().filter(|entry| entry.kept_by.contains(&thread) && entry.user != GONE);
        kept.map(|entry| (entry.ring, entry.user.handle())).collect()
    }

    /// Takes a ring that was kept, for the next step of its copy.
    pub(crate) fn begin_step(&self, driver: &impl Stager, step: &Transfer) -> StepAdmission {
        match self.with(&step.ring, |entry| std::mem::replace(&mut entry.is_taken, true)) {
            None => return StepAdmission::Gone,
            // By a handler's copy, or another thread's.
            Some(true) => return StepAdmission::Full,
            Some(false) => {}
        }
        let is_done = driver.is_ring_done(&step.ring);
        let begin = |entry: &mut Entry| {
            let queued = if is_done { 0 } else { entry.queued } + step.launches();
            // A step that is too long for any stream has to wait there.
            if !is_done && queued > QUEUED {
                entry.is_taken = false;
                return StepAdmission::Full;
            }
            entry.queued = queued;
            if is_done {
                entry.endpoints.clear();
            }
            entry.note_step(step.endpoints);
            let is_divided_anew = std::mem::replace(&mut entry.chunk, step.chunk) != step.chunk;
            StepAdmission::Taken { is_divided_anew, mark: entry.mark(entry.steps) }
        };
        self.with(&step.ring, begin).unwrap_or(StepAdmission::Gone)
    }

    /// A step was submitted, all of it or some.
    pub(crate) fn end_step(&self, ring: &Ring, thread: usize, is_whole: bool) {
        if !is_whole {
            self.with(ring, |entry| entry.chunk = 0);
        }
        self.keep(ring, thread);
    }

    /// Whether there ever was a ring.
    #[inline(always)]
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Relaxed)
    }

    /// A stream is about to be destroyed. Another stream with its handle does not wait for the rest of its work.
    pub(crate) fn on_stream_destroy(&self, stream: usize) {
        let mut rings = self.table.lock();
        rings.entries.iter_mut().filter(|entry| entry.user == Stream::Created(stream)).for_each(|entry| {
            entry.user = GONE;
            entry.kept_by.clear();
        });
    }

    /// The copies under way that have an endpoint in some memory, but not those of one user: for each ring the mark after the last of them, and
    /// the devices.
    pub(crate) fn copies_of(
        &self,
        driver: &impl Stager,
        memory: &Range<u64>,
        besides: Option<Stream>,
    ) -> Vec<(usize, [u8; 2])> {
        let is_of_it = |&(start, end): &(u64, u64)| start < memory.end && memory.start < end;
        let last = |entry: &Entry| {
            let (_, step) = entry.endpoints.iter().rfind(|(ends, _)| ends.iter().any(is_of_it))?;
            (Some(entry.user) != besides).then(|| (entry.ring, entry.mark(*step), entry.pair))
        };
        let mut found: Vec<_> = self.table.lock().entries.iter().filter_map(last).collect();
        found.retain(|(ring, mark, _)| !driver.is_past(ring, *mark));
        found.into_iter().map(|(_, mark, pair)| (mark, pair)).collect()
    }

    /// Whether copies are under way that a context takes part in.
    pub(crate) fn is_in_use(&self, driver: &impl Stager, context: usize) -> bool {
        !self.under_way(driver, |entry| entry.ring.needs(|&(handle, _)| handle == context)).is_empty()
    }

    /// Contexts have ended, and their rings with them; the memory of the host serves others.
    pub(crate) fn on_contexts_ended(
        &self,
        driver: &impl Stager,
        (has_ended, is_any_known): (&dyn Fn(&Context) -> bool, bool),
    ) {
        let (known, mut ended): (Vec<Ring>, BTreeSet<Context>) = {
            let rings = self.table.lock();
            let known: Vec<Ring> = rings.entries.iter().map(|entry| entry.ring).collect();
            let of_rings = known.iter().flat_map(|ring| ring.contexts.into_iter().chain([ring.host.locked_in]));
            let contexts = of_rings.chain(rings.parts.iter().map(|(part, _)| part.context())).collect();
            (known, contexts)
        };
        ended.retain(has_ended);
        let has_ended = |context: &Context| ended.contains(context);
        self.table.lock().parts.retain(|(part, _)| !has_ended(&part.context()));
        for ring in known.iter().filter(|ring| ring.needs(has_ended)) {
            let waits = !has_ended(&ring.contexts[2]);
            // The end of a green context waits for nothing: the other streams may be using the memory. Then it is the next time's.
            if waits && !driver.is_ring_done(ring) {
                continue;
            }
            let mut rings = self.table.lock();
            if let Some(position) = rings.entries.iter().position(|entry| entry.ring == *ring) {
                let entry = rings.entries.swap_remove(position);
                rings.spare.push(ring.host);
                if !entry.is_had() && (waits || is_any_known) {
                    rings.keep(*ring, |context| !has_ended(context));
                }
            }
        }
    }
}

#[cfg(test)]
impl Rings {
    pub(super) fn is_empty(&self) -> bool {
        self.table.lock().entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_after_a_failure_try_again_ever_less_often() {
        let rings = Rings::new();
        let mut rings = rings.table.lock();
        assert!((0..9).all(|_| rings.count_try()));
        rings.since_failure = Some(0);
        let tries: Vec<_> = (1..=200).filter(|_| rings.count_try()).collect();
        assert_eq!(tries, [1, 2, 4, 8, 16, 32, 64, 128, 192]);
    }

    #[test]
    fn marks_tell_the_last_steps_apart_and_others_are_made_before_them() {
        let mut ring = Ring::empty([(1, 1); 3], Host { address: 1, bytes: 1, locked_in: Host::UNLOCKED });
        ring.marks = std::array::from_fn(|number| 1 + number);
        let mut entry = Entry::new(ring, Stream::new(5, false, 7), [0, 1]);
        (0..20).for_each(|_| entry.note_step([(0, 1); 2]));
        let marks =
            |steps: std::ops::RangeInclusive<usize>| steps.map(|step| entry.mark(step)).collect::<BTreeSet<_>>();
        assert_eq!(marks(13..=20).len(), MARKS);
        assert_eq!(marks(1..=13), [entry.mark(13)].into());
    }

    #[test]
    fn ends_of_more_copies_than_are_told_apart_are_known_together() {
        let ring = Ring::empty([(1, 1); 3], Host { address: 1, bytes: 1, locked_in: Host::UNLOCKED });
        let mut entry = Entry::new(ring, Stream::new(5, false, 7), [0, 1]);
        let ends = |number: u64| [(number * 10, number * 10 + 5), (9_000, 9_001)];
        (0..200).for_each(|number| entry.note_step(ends(number)));
        (0..3).for_each(|_| entry.note_step(ends(199)));
        assert_eq!(entry.endpoints.len(), 64);
        let is_known = |at: u64| entry.endpoints.iter().any(|([(start, end), _], _)| (*start..*end).contains(&at));
        assert!((0..200).all(|number| is_known(number * 10)) && !is_known(2_000) && !is_known(1_999));
    }
}
