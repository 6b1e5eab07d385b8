//! Copies that no direct path takes go through the host. The driver does that chunk by chunk while its caller waits. This does it in
//! chunks that overlap, and nobody waits: one stream copies each chunk from the source into a [`Ring`] of page-locked memory, another
//! from there to the destination, and events join the two. The caller's stream is recorded at the start and waits at the end.
//!
//! **Which copies.** Those of [`LEAST`] bytes and more between addresses, of pairs that will stay as they are ([`is_lasting`]), if they
//! are asked for; and all of blocked pairs that CUDA would copy on the broken path, or refuse ([`Path::has_to_be_staged_by_us`]). All others are the driver's.
//! Any form is divided into [chunks](chunks::Chunk), each half of which is a copy of the driver's that names addresses or arrays only, so that the
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

mod chunks;
mod links;
mod measured;
mod ring;
mod rings;
mod transfer;

pub(crate) use chunks::{as_row, linear};
pub(crate) use links::Share;
pub(crate) use ring::{Context, Contexts, Host, NEEDED, Part, Ring, Stager};
pub(crate) use rings::{Rings, StepAdmission};
pub(crate) use transfer::{Difference, Transfer};

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};

use p2pshim_host::job;
use parking_lot::Mutex;

use self::links::{Links, RING, SLOTS};
use self::measured::Measured;
use self::ring::{SAMPLED, SAMPLES};
use self::transfer::Purpose;
use super::access::Access;
use crate::api::abi::Code;
use crate::config::{self, Config};
use crate::model::{Memcpy, Named, Path, Traffic, Why};
use crate::objects::streams::Stream;
use crate::os;
use crate::record::log::{self, Once};

/// The least that is staged: below, the driver is as fast, and its call takes less.
pub(crate) const LEAST: u64 = 8 << 20;

/// The caller of a copy: the context of its stream, whether the default stream is each thread's own, and which thread it is.
pub(crate) type Caller = (Context, bool, usize);

/// All that there is to stage copies.
pub(crate) struct Staging {
    mode: AtomicU8,
    limit: AtomicU64,
    /// Processes of the job on this machine: each has a link.
    ranks: AtomicUsize,
    pub(crate) rings: Rings,
    links: Mutex<Links>,
    measured: Measured,
}

impl Staging {
    pub(crate) const fn new() -> Self {
        Self {
            mode: AtomicU8::new(config::Staging::Driver as u8),
            limit: AtomicU64::new(0),
            ranks: AtomicUsize::new(1),
            rings: Rings::new(),
            links: Mutex::new(Links::new()),
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
        let parameters = chunks::parameters(copy)?;
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

    /// The ring and chunks of a copy that is to be staged; none if there is no ring for it. Whatever needs much of the stack is in frames of its
    /// own, which are gone when a ring is made.
    pub(crate) fn take(
        &self,
        of: (&Access, &impl Stager),
        (copy, traffic, share): (&Memcpy<'_>, &Traffic, Share),
        caller: Caller,
    ) -> Option<Transfer> {
        let contexts = contexts(of, copy)?;
        let ring = |bytes| self.ring(of.1, (copy, traffic), (contexts, bytes), caller);
        let large = if copy.bytes >= LEAST { ring(RING) } else { None };
        let ring = large.or_else(|| if traffic.path.has_to_be_staged_by_us() { ring(NEEDED) } else { None })?;
        if traffic.path.has_to_be_staged_by_us() || !self.is(config::Staging::Auto) {
            self.say_once(traffic);
        }
        self.transfer((copy, share), ring, caller)
    }

    /// The chunks of a copy that a ring stages.
    #[inline(never)]
    fn transfer(
        &self,
        (copy, share): (&Memcpy<'_>, Share),
        ring: Ring,
        (_, per_thread, _): Caller,
    ) -> Option<Transfer> {
        let parameters = chunks::parameters(copy)?;
        let share = if ring.host.bytes == RING { share } else { Share::whole(ring.host.bytes) };
        let chunk = chunks::size(copy.bytes, share);
        let [src, dst] = copy.reach().unwrap_or([copy.bytes; 2]);
        let endpoints = [(copy.src, src), (copy.dst, dst)].map(|(start, bytes)| (start, start.saturating_add(bytes)));
        let is_of_both = copy.stream.is_none() && copy.src_named != Named::Pointer;
        let on = if is_of_both { None } else { Some(copy.stream.unwrap_or(0)) };
        let division = (chunk, (share.bytes / chunk).clamp(1, SLOTS));
        let transfer = Transfer::new(parameters, Purpose::Stage, (ring, on, per_thread), division);
        Some(Transfer { blocks: self.is(config::Staging::Blocking), endpoints, ..transfer })
    }

    /// The ring and chunks of a copy that is to be read back, all of it or a sample; none if there is no ring for it.
    #[inline(never)]
    pub(crate) fn take_to_compare(
        &self,
        (access, driver): (&Access, &impl Stager),
        (copy, traffic, is_whole): (&Memcpy<'_>, &Traffic, bool),
        caller @ (_, per_thread, _): Caller,
    ) -> Option<Box<Transfer>> {
        let contexts = access.contexts_of(driver, copy)?;
        let parameters = chunks::parameters(copy)?;
        let (bytes, purpose, division) = match is_whole {
            true => (RING, Purpose::Compare, (RING / 2, 1)),
            false => (SAMPLES, transfer::sample(&parameters), (SAMPLED, SLOTS)),
        };
        let ring = self.ring(driver, (copy, traffic), (contexts, bytes), caller)?;
        self.rings.mark_read_back(&ring);
        let on = (ring, Some(copy.stream.unwrap_or(0)), per_thread);
        Some(Box::new(Transfer::new(parameters, purpose, on, division)))
    }

    /// A ring of so many bytes for a copy between two contexts, which is the caller's until it is given back; none if there is no memory for it.
    /// These it does not find out: its stack is large.
    #[inline(never)]
    fn ring(
        &self,
        driver: &impl Stager,
        (copy, traffic): (&Memcpy<'_>, &Traffic),
        ([src, dst], bytes): ([Context; 2], usize),
        (context, per_thread, thread): Caller,
    ) -> Option<Ring> {
        let user = Stream::new(copy.stream.unwrap_or(0), per_thread, thread);
        let kind = ([context, src, dst], bytes);
        let ring = self.rings.find(kind, user).or_else(|| self.rings.take_over(driver, kind, user));
        ring.or_else(|| {
            let may_make = bytes == NEEDED || os::has_room();
            may_make.then(|| self.make(driver, kind, user, traffic))?
        })
    }

    /// How many links are busy with a copy of a pair, which is one of them: those whose rings are about to have something to do, have it now, or
    /// had it at the last copies. Links that begin together see each other only by the first.
    fn busy_links(&self, driver: &impl Stager, pair: [u8; 2]) -> usize {
        let mut others = self.rings.taken(RING, pair);
        others.extend(self.rings.busy(driver, RING, pair));
        self.links.lock().busy(1 + others.len()).max(self.ranks.load(Relaxed))
    }

    /// A new one, if there may be one more.
    #[cold]
    #[inline(never)]
    fn make(
        &self,
        driver: &impl Stager,
        kind @ (contexts, bytes): (Contexts, usize),
        user: Stream,
        traffic: &Traffic,
    ) -> Option<Ring> {
        let is_limited = bytes != NEEDED;
        let spare = match self.rings.begin_making(kind, is_limited.then(|| self.limit.load(Relaxed))) {
            Ok(spare) => spare,
            Err(is_limit) => {
                if is_limit && Once::NoMemoryLeft.mark_logged() {
                    let what = "there is not enough page-locked memory to stage or read back every copy (P2PSHIM_STAGING_LIMIT)";
                    log::pair_info(traffic.src, traffic.dst, format_args!("{what}"));
                }
                return None;
            }
        };
        let host = spare.map_or_else(|| driver.host_memory(bytes), Ok);
        let make = |host| {
            let mut ring = self.rings.begin(contexts, host);
            let made = driver.relaxed(|| driver.complete(&mut ring, is_limited)).unwrap_or(Err(Code::NOT_READY));
            made.map(|()| ring).inspect_err(|_| self.rings.leave(ring))
        };
        let made = host.and_then(make);
        let is_new_failure =
            self.rings.end_making(bytes, made.map_err(|code| (code, host.ok())), user, [traffic.src, traffic.dst]);
        let what = match made {
            Ok(ring) if ring.host.locked_in == Host::UNLOCKED => {
                "no page-locked memory to stage copies: calls wait for them".to_owned()
            }
            Err(code) if is_new_failure => {
                format!("no page-locked memory to stage copies or to read them back, error {}", code.0)
            }
            _ => return made.ok(),
        };
        log::pair_info(traffic.src, traffic.dst, format_args!("{what}"));
        made.ok()
    }

    fn say_once(&self, traffic: &Traffic) {
        if !Once::StagedByUs([traffic.src, traffic.dst]).mark_logged() {
            return;
        }
        let what = match traffic.path.has_to_be_staged_by_us() {
            true => "p2pshim stages copies itself, as the path is blocked",
            false => "p2pshim stages copies of 8 MiB and more (P2PSHIM_STAGING)",
        };
        log::pair_info(traffic.src, traffic.dst, format_args!("{what}"));
    }
}

/// Whether a pair that is staged for this reason will be so for long.
const fn is_lasting(why: Why) -> bool {
    !matches!(why, Why::NotYetWorth | Why::Verifying | Why::Capturing | Why::Busy)
}

/// The contexts of both endpoints of a copy that can be staged.
#[inline(never)]
fn contexts((access, driver): (&Access, &impl Stager), copy: &Memcpy<'_>) -> Option<[Context; 2]> {
    chunks::parameters(copy)?;
    access.contexts_of(driver, copy)
}

#[cfg(test)]
mod tests;
