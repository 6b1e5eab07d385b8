//! Copies that no direct path takes go through the host. The driver does that piece by piece while its caller waits. This does it in
//! pieces that overlap, and nobody waits: one stream copies each piece from the source into a [`Ring`] of page-locked memory, another
//! from there to the destination, and events join the two. The caller's stream is recorded at the start and waits at the end.
//!
//! **Which copies.** Those of [`LEAST`] bytes and more between addresses, of pairs that will stay as they are ([`is_lasting`]), if they
//! are asked for; and all of blocked pairs that CUDA would copy on the broken path, or refuse ([`Path::has_to_be_staged_by_us`]). All others are the driver's.
//! Any form is divided into [pieces](pieces::Piece), each half of which is a copy of the driver's that names addresses or arrays only, so that the
//! driver finds out where they are: if what is remembered of an allocation is out of date, the copy is slow, and right.
//!
//! **Order.** A copy comes after what its stream had to do, and before what that gets to do; a synchronous one is ordered by the default
//! stream, one that names devices by those of both sides' contexts, and nobody waits, as with direct copies (measured on H200).
//!
//! **Rings.** One for each stream of the program and pair of contexts, so that copies of two streams never wait for each other: what
//! one waits for may wait for the host. One that has nothing left to do is taken over. Which one a copy has is decided under a lock;
//! no lock is held while the driver is called. If there is none to be had, the driver stages.
//!
//! **The end of a context.** It takes along the page-locked memory that was registered in it, while another context's copy may be
//! reading that. So before the program ends a context its staged copies are waited for, as the real call waits for work of the context.

mod links;
mod measured;
mod pieces;
mod ring;
mod transfer;

pub(crate) use links::{SLOTS, Share};
pub(crate) use pieces::{as_row, linear};
pub(crate) use ring::{Context, Contexts, Host, NEEDED, Part, Ring, Stager};
pub(crate) use transfer::{Difference, Transfer};

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

use p2pshim_host::job;
use parking_lot::Mutex;

use self::links::{Links, RING};
use self::measured::Measured;
use self::ring::{SAMPLED, SAMPLES};
use self::transfer::Purpose;
use super::access::Access;
use crate::api::abi::Code;
use crate::config::{self, Config};
use crate::model::{Memcpy, Named, Path, Traffic, Why};
use crate::os;
use crate::record::log::{self, Once};

/// The least that is staged: below, the driver is as fast, and its call takes less.
pub(crate) const LEAST: u64 = 8 << 20;
/// The handle of a stream that is gone, which no stream has.
const GONE: usize = usize::MAX;
/// Page-locked memory of the copies from one device to another, at most.
const A_PAIR: u64 = 64 << 20;

/// The caller of a copy: the context of its stream, whether the default stream is each thread's own, and which thread it is.
pub(crate) type Caller = (Context, bool, usize);

/// Whose copies a ring takes: a stream's handle, and for a thread's own default stream the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    stream: usize,
    thread: usize,
}

impl User {
    pub(crate) fn new(stream: usize, per_thread: bool, thread: usize) -> Self {
        /// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
        const LEGACY: usize = 1;
        const PER_THREAD: usize = 2;
        match stream {
            PER_THREAD => Self { stream, thread },
            0 if per_thread => Self { stream: PER_THREAD, thread },
            0 => Self { stream: LEGACY, thread: 0 },
            _ => Self { stream, thread: 0 },
        }
    }
}

struct Entry {
    ring: Ring,
    user: User,
    /// The devices that it copies between.
    pair: [u8; 2],
    /// Bytes of a piece of its last copy, and from where to where that went; 0 if it was read back.
    piece: usize,
    ends: [Range<u64>; 2],
    /// Launches on each of its streams since it was last seen to have nothing to do, at most.
    queued: usize,
    /// Whether a thread is making a copy with it, or finding out whether it may.
    is_taken: bool,
    /// The thread whose copy has steps to come, if one has. The ring stays its user's until then: what the steps wait for may wait for the
    /// host.
    kept_by: Option<usize>,
}

impl Entry {
    /// Whether nobody is using it in this moment, and it is for these contexts and has so many bytes.
    fn is_free(&self, (contexts, bytes): (Contexts, usize)) -> bool {
        !self.is_taken && self.ring.contexts == contexts && self.ring.host.bytes == bytes
    }
}

/// Whether a ring takes a step of a copy.
pub(crate) enum Begun {
    /// It does. The memory may have been divided otherwise before.
    Taken { is_divided_anew: bool },
    /// Not now: it is in use, or its streams have too much to do.
    Full,
    /// It is gone, with a context.
    Gone,
}

struct Rings {
    entries: Vec<Entry>,
    /// Memory of the host of rings that are gone, and their streams and events: these are not destroyed, since a thread may be about to
    /// ask about one.
    spare: Vec<Host>,
    parts: Vec<(Part, usize)>,
    /// Bytes of rings that are being made.
    making: usize,
    /// Copies since a ring could not be made.
    since_failure: Option<u32>,
    links: Links,
}

impl Rings {
    /// Whether a ring is to be made. After a failure the next copy tries again, then fewer and fewer: the reason may be over, but each try may
    /// cost as much as page-locking.
    fn may_try(&mut self) -> bool {
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

/// All that there is to stage copies.
pub(crate) struct Staging {
    mode: AtomicU8,
    limit: AtomicU64,
    /// Processes of the job on this machine: each has a link.
    ranks: AtomicUsize,
    rings: Mutex<Rings>,
    /// Whether there ever was a ring.
    is_used: AtomicBool,
    measured: Measured,
}

impl Staging {
    pub(crate) const fn new() -> Self {
        let (links, since_failure) = (Links::new(), None);
        let rings =
            Rings { entries: Vec::new(), spare: Vec::new(), parts: Vec::new(), making: 0, since_failure, links };
        Self {
            mode: AtomicU8::new(config::Staging::Driver as u8),
            limit: AtomicU64::new(0),
            ranks: AtomicUsize::new(1),
            rings: Mutex::new(rings),
            is_used: AtomicBool::new(false),
            measured: Measured::new(),
        }
    }

    /// Takes over the options.
    pub(crate) fn configure(&self, config: &Config) {
        self.limit.store(config.staging_limit, Relaxed);
        self.ranks.store(job::ranks_here(os::variable), Relaxed);
        self.mode.store(config.staging as u8, Relaxed);
    }

    fn is(&self, mode: config::Staging) -> bool {
        self.mode.load(Relaxed) == mode as u8
    }

    /// Whether any of several copies of the same path may be staged here, which have so many bytes together.
    #[inline(always)]
    pub(crate) fn may_want(&self, Traffic { path, bytes, .. }: &Traffic) -> bool {
        let is_wanted = |why| !self.is(config::Staging::Driver) && is_lasting(why);
        match *path {
            path if path.has_to_be_staged_by_us() => *bytes != 0,
            Path::Staged(why) => *bytes >= LEAST && is_wanted(why),
            _ => false,
        }
    }

    /// Whether a copy is to be staged here.
    #[inline(always)]
    pub(crate) fn wants(&self, copy: &Memcpy<'_>, path: Path) -> bool {
        let traffic = Traffic::new([0; 2], path, copy.bytes);
        self.may_want(&traffic) && (path.has_to_be_staged_by_us() || copy.has_addresses())
    }

    /// How much of a ring a copy is to use; none if the driver is to stage it, who is faster.
    #[inline(never)]
    pub(crate) fn share(&self, driver: &impl Stager, copy: &Memcpy<'_>, traffic: &Traffic) -> Option<Share> {
        let parameters = pieces::parameters(copy)?;
        let busy = if copy.bytes < LEAST { 1 } else { self.busy_links(driver, [traffic.src, traffic.dst]) };
        let is_ours = traffic.path.has_to_be_staged_by_us()
            || !self.is(config::Staging::Auto)
            || self.measured.are_ours(driver, (&parameters, traffic), busy);
        is_ours.then(|| Share::of(busy))
    }

    /// A copy that was staged, here or by the driver, did not arrive as it was read back: the driver stages the pair.
    pub(crate) fn leave_to_driver(&self, traffic: &Traffic) {
        let pair = [traffic.src, traffic.dst];
        if self.is(config::Staging::Auto) && self.measured.leave_to_driver(pair) {
            let what = "a staged copy was read back and differs: the driver stages all from now on";
            log::pair_info(traffic.src, traffic.dst, format_args!("{what}"));
        }
    }

    /// The ring and pieces of a copy that is to be staged; none if there is no ring for it.
    pub(crate) fn take(
        &self,
        all: (&Access, &impl Stager),
        (copy, traffic, share): (&Memcpy<'_>, &Traffic, Share),
        caller @ (_, per_thread, _): Caller,
    ) -> Option<Transfer> {
        let parameters = pieces::parameters(copy)?;
        let ring = |bytes| self.ring(all, (copy, traffic), bytes, caller);
        let large = if copy.bytes >= LEAST { ring(RING) } else { None };
        let ring = large.or_else(|| if traffic.path.has_to_be_staged_by_us() { ring(NEEDED) } else { None })?;
        let share = if ring.host.bytes == RING { share } else { Share::whole(ring.host.bytes) };
        let piece = pieces::size(copy.bytes, share);
        let [src, dst] = copy.reach().unwrap_or([copy.bytes; 2]);
        let ends = [(copy.src, src), (copy.dst, dst)].map(|(start, bytes)| start..start.saturating_add(bytes));
        self.with(&ring, |entry| entry.ends = ends)?;
        if traffic.path.has_to_be_staged_by_us() || !self.is(config::Staging::Auto) {
            self.say_once(traffic);
        }
        let is_of_both = copy.stream.is_none() && copy.src_named != Named::Pointer;
        let on = if is_of_both { None } else { Some(copy.stream.unwrap_or(0)) };
        let division = (piece, (share.bytes / piece).clamp(1, SLOTS));
        let transfer = Transfer::new(parameters, Purpose::Stage, (ring, on, per_thread), division);
        Some(Transfer { blocks: self.is(config::Staging::Blocking), ..transfer })
    }

    /// The ring and pieces of a copy that is to be read back, all of it or a sample; none if there is no ring for it.
    #[inline(never)]
    pub(crate) fn take_to_compare(
        &self,
        all: (&Access, &impl Stager),
        (copy, traffic, is_whole): (&Memcpy<'_>, &Traffic, bool),
        caller @ (_, per_thread, _): Caller,
    ) -> Option<Box<Transfer>> {
        let parameters = pieces::parameters(copy)?;
        let (bytes, purpose, division) = match is_whole {
            true => (RING, Purpose::Compare, (RING / 2, 1)),
            false => (SAMPLES, transfer::sample(&parameters), (SAMPLED, SLOTS)),
        };
        let ring = self.ring(all, (copy, traffic), bytes, caller)?;
        // As the next copy has to know.
        self.with(&ring, |entry| (entry.piece, entry.ends) = (0, [0..0, 0..0]));
        let on = (ring, Some(copy.stream.unwrap_or(0)), per_thread);
        Some(Box::new(Transfer::new(parameters, purpose, on, division)))
    }

    /// A ring of so many bytes for a copy, which is the caller's until it is given back; none if there is no memory for it.
    #[inline(never)]
    fn ring(
        &self,
        (access, driver): (&Access, &impl Stager),
        (copy, traffic): (&Memcpy<'_>, &Traffic),
        bytes: usize,
        (context, per_thread, thread): Caller,
    ) -> Option<Ring> {
        let [src, dst] = access.contexts_of(driver, copy)?;
        let user = User::new(copy.stream.unwrap_or(0), per_thread, thread);
        let kind = ([context, src, dst], bytes);
        let ring = self.find(kind, user).or_else(|| self.take_over(driver, kind, user));
        ring.or_else(|| {
            let may_make = bytes == NEEDED || os::has_room();
            may_make.then(|| self.make(driver, kind, user, traffic))?
        })
    }

    /// How many links are busy with a copy of a pair, which is one of them: those whose rings are about to have something to do, have it now, or
    /// had it at the last copies. Links that begin together see each other only by the first.
    fn busy_links(&self, driver: &impl Stager, pair: [u8; 2]) -> usize {
        let is_other = |entry: &Entry| entry.ring.host.bytes == RING && entry.pair != pair;
        let is_taken = |entry: &Entry| entry.is_taken || entry.kept_by.is_some();
        let mut others: BTreeSet<[u8; 2]> = {
            let rings = self.rings.lock();
            rings.entries.iter().filter(|entry| is_other(entry) && is_taken(entry)).map(|entry| entry.pair).collect()
        };
        let under_way = self.under_way(driver, |entry| is_other(entry) && !is_taken(entry));
        others.extend(under_way.into_iter().map(|(_, pair)| pair));
        self.rings.lock().links.busy(1 + others.len()).max(self.ranks.load(Relaxed))
    }

    /// The rings of which this holds, and which have something to do; with the devices that they copy between.
    fn under_way(&self, driver: &impl Stager, is_it: impl Fn(&Entry) -> bool) -> Vec<(Ring, [u8; 2])> {
        let mut rings: Vec<_> = {
            let rings = self.rings.lock();
            rings.entries.iter().filter(|entry| is_it(entry)).map(|entry| (entry.ring, entry.pair)).collect()
        };
        rings.retain(|(ring, _)| !driver.is_ring_done(ring));
        rings
    }

    /// The ring of this stream, these contexts and so many bytes, if nobody is using it in this moment.
    fn find(&self, kind: (Contexts, usize), user: User) -> Option<Ring> {
        let mut rings = self.rings.lock();
        let entry = rings.entries.iter_mut().find(|entry| entry.is_free(kind) && entry.user == user)?;
        entry.is_taken = true;
        Some(entry.ring)
    }

    /// One of another stream that has nothing left to do.
    #[cold]
    #[inline(never)]
    fn take_over(&self, driver: &impl Stager, kind: (Contexts, usize), user: User) -> Option<Ring> {
        let is_free = |entry: &Entry| entry.is_free(kind) && entry.kept_by.is_none();
        let candidates: Vec<Ring> =
            self.rings.lock().entries.iter().filter(|entry| is_free(entry)).map(|entry| entry.ring).collect();
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

    /// A new one, if there may be one more.
    #[cold]
    #[inline(never)]
    fn make(
        &self,
        driver: &impl Stager,
        (contexts, bytes): (Contexts, usize),
        user: User,
        traffic: &Traffic,
    ) -> Option<Ring> {
        let is_limited = bytes != NEEDED;
        let host = {
            let mut rings = self.rings.lock();
            if is_limited && !rings.may_try() {
                return None;
            }
            if is_limited && !rings.have_room((contexts, bytes), self.limit.load(Relaxed)) {
                drop(rings);
                if Once::NoMemoryLeft.is_first() {
                    let what = "not for every copy is there page-locked memory to stage it or to read it back (P2PSHIM_STAGING_LIMIT)";
                    log::pair_info(traffic.src, traffic.dst, format_args!("{what}"));
                }
                return None;
            }
            rings.making += bytes;
            let spare = rings.spare.iter().position(|host| host.bytes == bytes);
            spare.map(|spare| rings.spare.swap_remove(spare)).ok_or(bytes)
        };
        let host = host.or_else(|bytes| driver.host_memory(bytes));
        let make = |host| {
            let mut ring = self.rings.lock().begin(contexts, host);
            let made = driver.relaxed(|| driver.complete(&mut ring, is_limited)).unwrap_or(Err(Code::NOT_READY));
            made.map(|()| ring).inspect_err(|_| self.rings.lock().keep(ring, |_| true))
        };
        let made = host.and_then(make);
        let mut rings = self.rings.lock();
        rings.making -= bytes;
        let (made, what) = match made {
            Ok(ring) => {
                self.is_used.store(true, Relaxed);
                rings.since_failure = None;
                let (pair, piece, ends) = ([traffic.src, traffic.dst], bytes, [0..0, 0..0]);
                rings.entries.push(Entry { ring, user, pair, piece, ends, queued: 0, is_taken: true, kept_by: None });
                let is_unlocked = ring.host.locked_in == Host::UNLOCKED;
                (
                    Some(ring),
                    is_unlocked.then(|| "no page-locked memory to stage copies: calls wait for them".to_owned()),
                )
            }
            Err(code) => {
                rings.spare.extend(host);
                // During a capture none is made.
                let is_new = code != Code::NOT_READY && rings.since_failure.is_none();
                if is_new {
                    rings.since_failure = Some(0);
                }
                let what = format!("no page-locked memory to stage copies or to read them back, error {}", code.0);
                (None, is_new.then_some(what))
            }
        };
        drop(rings);
        if let Some(what) = what {
            log::pair_info(traffic.src, traffic.dst, format_args!("{what}"));
        }
        made
    }

    fn with<T>(&self, ring: &Ring, change: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let mut rings = self.rings.lock();
        rings.entries.iter_mut().find(|entry| entry.ring == *ring).map(change)
    }

    /// Whether a ring that was taken is there still.
    pub(crate) fn has(&self, ring: &Ring) -> bool {
        self.rings.lock().entries.iter().any(|entry| entry.ring == *ring)
    }

    /// A copy has been submitted, or will not be.
    pub(crate) fn give_back(&self, ring: &Ring) {
        self.with(ring, |entry| (entry.is_taken, entry.kept_by) = (false, None));
    }

    /// Gives a ring back between two steps of a thread's copy. If the next never comes, the ring is there for its user's next copy.
    pub(crate) fn keep(&self, ring: &Ring, thread: usize) {
        self.with(ring, |entry| (entry.is_taken, entry.kept_by) = (false, Some(thread)));
    }

    /// A copy has no more steps.
    pub(crate) fn release(&self, ring: &Ring) {
        self.with(ring, |entry| entry.kept_by = None);
    }

    /// The rings of a thread's copies that have steps to come, and the streams of the program that they are for.
    pub(crate) fn kept_by(&self, thread: usize) -> Vec<(Ring, usize)> {
        let rings = self.rings.lock();
        let kept = rings.entries.iter().filter(|entry| entry.kept_by == Some(thread) && entry.user.stream != GONE);
        kept.map(|entry| (entry.ring, entry.user.stream)).collect()
    }

    /// Takes a ring that was kept, for the next step of its copy.
    pub(crate) fn begin_step(&self, driver: &impl Stager, step: &Transfer) -> Begun {
        match self.with(&step.ring, |entry| std::mem::replace(&mut entry.is_taken, true)) {
            None => return Begun::Gone,
            // By a handler's copy, or another thread's.
            Some(true) => return Begun::Full,
            Some(false) => {}
        }
        let is_done = driver.is_ring_done(&step.ring);
        let begin = |entry: &mut Entry| {
            let queued = if is_done { 0 } else { entry.queued } + step.launches();
            // A step that is too long for any stream has to wait there.
            if !is_done && queued > transfer::QUEUED {
                entry.is_taken = false;
                return Begun::Full;
            }
            entry.queued = queued;
            Begun::Taken { is_divided_anew: std::mem::replace(&mut entry.piece, step.piece) != step.piece }
        };
        self.with(&step.ring, begin).unwrap_or(Begun::Gone)
    }

    /// A step was submitted, all of it or some.
    pub(crate) fn end_step(&self, ring: &Ring, thread: usize, is_whole: bool) {
        if !is_whole {
            self.with(ring, |entry| entry.piece = 0);
        }
        self.keep(ring, thread);
    }

    fn say_once(&self, traffic: &Traffic) {
        if !Once::StagedByUs([traffic.src, traffic.dst]).is_first() {
            return;
        }
        let what = match traffic.path.has_to_be_staged_by_us() {
            true => "p2pshim stages copies itself, as the path is blocked",
            false => "p2pshim stages copies of 8 MiB and more (P2PSHIM_STAGING)",
        };
        log::pair_info(traffic.src, traffic.dst, format_args!("{what}"));
    }

    /// Whether there ever was a ring.
    #[inline(always)]
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Relaxed)
    }

    /// A stream is about to be destroyed. What it has left to do is not waited for by another with its handle.
    pub(crate) fn stream_is_gone(&self, stream: usize) {
        let mut rings = self.rings.lock();
        rings.entries.iter_mut().filter(|entry| entry.user.stream == stream).for_each(|entry| {
            (entry.user.stream, entry.kept_by) = (GONE, None);
        });
    }

    /// The rings whose last copy is under way and has an end in some memory; but not those of one user.
    pub(crate) fn copies_of(
        &self,
        driver: &impl Stager,
        memory: &Range<u64>,
        besides: Option<User>,
    ) -> Vec<(Ring, [u8; 2])> {
        let is_of_it = |end: &Range<u64>| end.start < memory.end && memory.start < end.end;
        self.under_way(driver, |entry| entry.ends.iter().any(is_of_it) && Some(entry.user) != besides)
    }

    /// Whether copies are under way that a context takes part in.
    pub(crate) fn is_in_use(&self, driver: &impl Stager, context: usize) -> bool {
        !self.under_way(driver, |entry| entry.ring.needs(|&(handle, _)| handle == context)).is_empty()
    }

    /// Contexts may be gone. Their rings are; the memory of the host serves others. `device` and `destroyed` say what is gone where
    /// the driver does not number contexts.
    pub(crate) fn contexts_have_changed(&self, driver: &impl Stager, device: Option<i32>, destroyed: Option<usize>) {
        let (known, mut gone): (Vec<Ring>, BTreeSet<Context>) = {
            let rings = self.rings.lock();
            let known: Vec<Ring> = rings.entries.iter().map(|entry| entry.ring).collect();
            let of_rings = known.iter().flat_map(|ring| ring.contexts.into_iter().chain([ring.host.locked_in]));
            let contexts = of_rings.chain(rings.parts.iter().map(|(part, _)| part.context())).collect();
            (known, contexts)
        };
        gone.retain(|&(handle, id)| match id {
            0 => {
                Some(handle) == destroyed
                    || device.is_some() && driver.device_of_context(handle).is_none_or(|of| Some(of) == device)
            }
            id => driver.context_id(handle) != Some(id),
        });
        let is_gone = |context: &Context| gone.contains(context);
        self.rings.lock().parts.retain(|(part, _)| !is_gone(&part.context()));
        for ring in known.iter().filter(|ring| ring.needs(is_gone)) {
            let waits = !is_gone(&ring.contexts[2]);
            // The end of a green context waits for nothing: the other streams may be using the memory. Then it is the next time's.
            if waits && !driver.is_ring_done(ring) {
                continue;
            }
            let mut rings = self.rings.lock();
            if let Some(position) = rings.entries.iter().position(|entry| entry.ring == *ring) {
                let entry = rings.entries.swap_remove(position);
                rings.spare.push(ring.host);
                if !entry.is_taken && (waits || device.is_some() || destroyed.is_some()) {
                    rings.keep(*ring, |context| !is_gone(context));
                }
            }
        }
    }
}

/// Whether a pair that is staged for this reason will be so for long.
const fn is_lasting(why: Why) -> bool {
    !matches!(why, Why::NotYetWorth | Why::Verifying | Why::Capturing | Why::Busy)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::api::abi::CUDA_MEMCPY3D_PEER;
    use crate::policy::access::Circumstances;
    use crate::policy::access::fake::{Fake, context, memory_of};
    use crate::policy::staging::pieces::Piece;

    thread_local! {
        static MADE: Cell<usize> = const { Cell::new(0) };
        static PARTS: Cell<usize> = const { Cell::new(0) };
        static BUSY: RefCell<BTreeSet<usize>> = const { RefCell::new(BTreeSet::new()) };
        static FAILS: Cell<Code> = const { Cell::new(Code::SUCCESS) };
    }

    impl Stager for Fake {
        fn host_memory(&self, bytes: usize) -> Result<Host, Code> {
            MADE.set(MADE.get() + 1);
            Ok(Host { address: MADE.get(), bytes, locked_in: Host::UNLOCKED })
        }

        fn complete(&self, ring: &mut Ring, has_to_lock: bool) -> Result<(), Code> {
            for (_, handle) in ring.parts().filter(|(_, handle)| **handle == 0) {
                PARTS.set(PARTS.get() + 1);
                *handle = PARTS.get();
            }
            if has_to_lock && FAILS.get() != Code::SUCCESS {
                return Err(FAILS.get());
            }
            ring.host.locked_in = ring.contexts[1];
            Ok(())
        }

        fn is_over(&self, ring: &Ring) -> Result<bool, Code> {
            Ok(!BUSY.with_borrow(|busy| busy.contains(&ring.host.address)))
        }

        fn bytes_of(&self, _ring: &Ring) -> &[u8] {
            &[]
        }
    }

    struct Process {
        access: Box<Access>,
        driver: Fake,
        staging: Staging,
    }

    impl Process {
        fn new(limit: u64) -> Self {
            let config = Config { access: config::Access::Off, staging: config::Staging::Always, ..Config::default() };
            let config = Config { staging_limit: limit, ..config };
            let (access, staging) = (Box::new(Access::new()), Staging::new());
            access.configure(&config);
            staging.configure(&config);
            Self { access, driver: Fake::new(), staging }
        }

        /// A copy of `bytes` from the memory of context 0 to that of context 1.
        fn take(&self, stream: usize, bytes: u64) -> Option<Transfer> {
            self.take_between(stream, [0, 1], bytes)
        }

        fn take_between(&self, stream: usize, [src, dst]: [usize; 2], bytes: u64) -> Option<Transfer> {
            let copy = Memcpy { stream: Some(stream), ..Memcpy::linear(memory_of(src), memory_of(dst), bytes) };
            let traffic = self.access.consider(&self.driver, &copy, Circumstances::default())?;
            assert!(self.staging.wants(&copy, traffic.path));
            let all = (&*self.access, &self.driver);
            let share = self.staging.share(&self.driver, &copy, &traffic)?;
            self.staging.take(all, (&copy, &traffic, share), ((context(src), 1), false, 7))
        }

        /// A copy that was submitted and is under way: the number of its ring.
        fn copy(&self, stream: usize) -> Option<usize> {
            let staged = self.take(stream, LEAST)?;
            let ring = staged.ring.host.address;
            self.staging.give_back(&staged.ring);
            BUSY.with_borrow_mut(|busy| busy.insert(ring));
            Some(ring)
        }
    }

    #[test]
    fn pieces_are_the_copy_and_lie_in_the_ring() {
        let ring = Process::new(u64::MAX).take(5, LEAST).unwrap();
        let sizes = [LEAST, LEAST + 1, (64 << 20) - 1, 64 << 20, (256 << 20) + 3, 3 << 30];
        for (bytes, busy) in sizes.into_iter().flat_map(|bytes| [(bytes, 1), (bytes, 2), (bytes, 3)]) {
            let copy = CUDA_MEMCPY3D_PEER { WidthInBytes: bytes as usize, ..ring.copy };
            let step = Piece { extent: pieces::extent(&copy), ..ring.step };
            let share = Share::of(busy);
            let piece = pieces::size(bytes, share);
            let staged = Transfer { copy, step, piece, slots: (share.bytes / piece).clamp(1, SLOTS), ..ring };
            let mut end = 0;
            let (mut step, mut number) = (staged, 0);
            while step.be_step(number) {
                number += 1;
                assert_eq!(step.step.at, [end, 0, 0]);
                assert!(step.launches() <= transfer::QUEUED / 2, "{bytes}");
                end += step.step.extent[0];
            }
            assert_eq!(end as u64, bytes);
            let mut end = 0;
            let division = staged.division();
            for Piece { at, extent: [bytes, ..], slot } in (0..division.count()).map(|number| division.piece(number)) {
                assert_eq!(at, [end, 0, 0]);
                assert!(bytes > 0 && bytes <= staged.piece && (slot + 1) * staged.piece <= share.bytes && slot < SLOTS);
                end += bytes;
            }
            let end = end as u64;
            assert_eq!(end, bytes);
            // A stream takes about a thousand launches; each piece is three.
            assert!(bytes > 1 << 30 || division.count() <= 300, "{bytes}");
        }
    }

    #[test]
    fn copy_uses_less_of_its_ring_while_other_links_are_busy() {
        let process = Process::new(u64::MAX);
        let begin = |stream, pair| {
            let staged = process.take_between(stream, pair, LEAST).unwrap();
            process.staging.give_back(&staged.ring);
            BUSY.with_borrow_mut(|busy| busy.insert(staged.ring.host.address));
            staged.slots
        };
        assert_eq!(begin(5, [0, 1]), 4);
        assert_eq!(begin(6, [0, 1]), 4, "of the only link that is busy");
        assert_eq!(begin(7, [1, 0]), 4);
        assert_eq!(begin(8, [1, 2]), 3);
        assert_eq!(begin(5, [0, 1]), 3, "the same ring");
        BUSY.with_borrow_mut(BTreeSet::clear);
        for _ in 0..16 {
            begin(5, [0, 1]);
            BUSY.with_borrow_mut(BTreeSet::clear);
        }
        assert_eq!(begin(5, [0, 1]), 4, "once the others have been idle for some copies");
        process.staging.ranks.store(4, Relaxed);
        assert_eq!(begin(5, [0, 1]), 3, "other processes' links");
    }

    #[test]
    fn each_stream_has_its_ring_until_it_has_nothing_to_do() {
        let process = Process::new(u64::MAX);
        let [one, other] = [5, 6].map(|stream| process.copy(stream).unwrap());
        assert_ne!(one, other, "one may wait for the host");
        assert_eq!(process.copy(5), Some(one), "behind its last copy");
        BUSY.with_borrow_mut(|busy| busy.remove(&one));
        assert_eq!(process.copy(8), Some(one), "taken over");
        assert_ne!(process.copy(5), Some(one));
        process.staging.stream_is_gone(8);
        assert_ne!(process.copy(8), Some(one), "a new stream with the handle of one that has work left");
        let taken = process.take(6, LEAST).unwrap();
        assert_ne!(process.take(6, LEAST).map(|staged| staged.ring), Some(taken.ring), "by another thread, just now");
    }

    #[test]
    fn page_locked_memory_has_its_limits() {
        for (limit, rings) in [(0, 0), (RING as u64 - 1, 0), (2 * RING as u64, 2), (u64::MAX, 3)] {
            let process = Process::new(limit);
            let had = (10..20).filter_map(|stream| process.copy(stream)).count();
            assert_eq!(had, rings, "{limit}");
        }
        FAILS.set(Code::OUT_OF_MEMORY);
        let process = Process::new(u64::MAX);
        assert_eq!(process.copy(5), None);
        FAILS.set(Code::SUCCESS);
        assert!(process.copy(5).is_some(), "the next tries again");
    }

    #[test]
    fn copies_after_a_failure_try_again_ever_less_often() {
        let staging = Process::new(u64::MAX).staging;
        let mut rings = staging.rings.lock();
        assert!((0..9).all(|_| rings.may_try()));
        rings.since_failure = Some(0);
        let tries: Vec<_> = (1..=200).filter(|_| rings.may_try()).collect();
        assert_eq!(tries, [1, 2, 4, 8, 16, 32, 64, 128, 192]);
    }

    #[test]
    fn copies_that_are_read_back_have_rings_of_their_size_and_the_next_copy_knows() {
        let process = Process::new(u64::MAX);
        let all = (&*process.access, &process.driver);
        for (bytes, is_whole, size) in [(LEAST, false, SAMPLES), (64, false, SAMPLES), (LEAST, true, RING)] {
            let copy = Memcpy { stream: Some(5), ..Memcpy::linear(memory_of(0), memory_of(1), bytes) };
            let traffic = process.access.consider(&process.driver, &copy, Circumstances::default()).unwrap();
            let taken =
                process.staging.take_to_compare(all, (&copy, &traffic, is_whole), ((context(0), 1), false, 7)).unwrap();
            assert_eq!(taken.ring.host.bytes, size);
            process.staging.give_back(&taken.ring);
        }
        let staged = process.take(5, LEAST).unwrap();
        process.staging.keep(&staged.ring, 7);
        let begins_anew = || match process.staging.begin_step(&process.driver, &staged) {
            Begun::Taken { is_divided_anew } => is_divided_anew,
            _ => panic!("it is there, and nobody has it"),
        };
        assert!(begins_anew(), "it was read back");
        process.staging.end_step(&staged.ring, 7, true);
        assert!(!begins_anew());
        process.staging.end_step(&staged.ring, 7, false);
        assert!(begins_anew(), "behind a step that may have been submitted in part");
    }

    #[test]
    fn copies_that_need_it_are_staged_beyond_the_limit_of_any_size_and_order() {
        for (limit, bytes, ring) in [(u64::MAX, 1, NEEDED), (u64::MAX, LEAST, RING), (0, LEAST, NEEDED)] {
            let process = Process::new(limit);
            for stream in [None, Some(5)] {
                let of = |named| {
                    let copy = Memcpy {
                        stream,
                        src_named: named,
                        dst_named: named,
                        ..Memcpy::linear(memory_of(0), memory_of(1), bytes)
                    };
                    let traffic = process.access.consider(&process.driver, &copy, Circumstances::default()).unwrap();
                    let traffic = Traffic { path: Path::Staged(Why::BrokenInUse), ..traffic };
                    let all = (&*process.access, &process.driver);
                    let share = process.staging.share(&process.driver, &copy, &traffic).unwrap();
                    process.staging.take(all, (&copy, &traffic, share), ((context(0), 1), false, 7)).unwrap()
                };
                let (regular, peer) = (of(Named::Pointer), of(Named::Ordinal(0)));
                assert_eq!(
                    (regular.ring.host.bytes, regular.stream),
                    (ring, Some(stream.unwrap_or(0))),
                    "{limit} {bytes}"
                );
                assert_eq!(peer.stream, stream, "by the default streams of both sides");
                let division = regular.division();
                let mut pieces = (0..division.count()).map(|number| division.piece(number));
                assert!(pieces.all(|piece| (piece.slot + 1) * regular.piece <= ring));
            }
        }
    }

    #[test]
    fn ring_goes_with_a_context_and_leaves_its_memory() {
        let process = Process::new(u64::MAX);
        let ring = process.copy(5).unwrap();
        let is_in_use = |number| process.staging.is_in_use(&process.driver, context(number));
        assert!(is_in_use(0) && is_in_use(1) && !is_in_use(2));
        BUSY.with_borrow_mut(BTreeSet::clear);
        assert!(!is_in_use(0));
        process.driver.ids.borrow_mut().insert(context(1), 2);
        process.staging.contexts_have_changed(&process.driver, None, Some(context(1)));
        assert!(process.staging.rings.lock().entries.is_empty());
        process.access.contexts_have_changed(&process.driver, None, None);
        let parts = PARTS.get();
        assert_eq!(process.copy(5), Some(ring), "the same memory");
        assert_eq!(PARTS.get() - parts, 2 + SLOTS, "and of the context that is there streams and events");
    }

    #[test]
    fn copies_that_the_driver_refuses_are_the_drivers() {
        let process = Process::new(u64::MAX);
        assert!(process.take(5, 1 << 24).is_some());
        assert!(process.take(5, (1 << 24) + 1).is_none(), "beyond its memory");
    }

    #[test]
    fn wants_what_is_large_and_will_stay_staged_and_all_that_needs_it() {
        let staging = Process::new(u64::MAX).staging;
        let copy = Memcpy { stream: Some(0), ..Memcpy::linear(1 << 32, 2 << 32, LEAST) };
        let staged = Path::Staged(Why::NoPath);
        assert!(staging.wants(&copy, staged));
        assert!(!staging.wants(&Memcpy { bytes: LEAST - 1, ..copy }, staged));
        assert!(staging.wants(&Memcpy { stream: None, ..copy }, staged));
        for path in [Path::Direct, Path::SameDevice, Path::Host, Path::Unknown, Path::Staged(Why::NotYetWorth)] {
            assert!(!staging.wants(&copy, path), "{path:?}");
        }
        staging.configure(&Config { staging: config::Staging::Driver, ..Config::default() });
        assert!(!staging.wants(&copy, staged), "the driver does");
        assert!(staging.wants(&Memcpy { bytes: 1, ..copy }, Path::Staged(Why::BrokenInUse)), "whoever stages others");
    }
}
