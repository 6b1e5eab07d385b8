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
mod rings;
mod transfer;

pub(crate) use links::Share;
pub(crate) use pieces::{as_row, linear};
pub(crate) use ring::{Context, Contexts, Host, NEEDED, Part, Ring, Stager};
pub(crate) use rings::{Begun, Rings};
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
        (access, driver): (&Access, &impl Stager),
        (copy, traffic, share): (&Memcpy<'_>, &Traffic, Share),
        caller @ (_, per_thread, _): Caller,
    ) -> Option<Transfer> {
        let contexts = access.contexts_of(driver, copy)?;
        let parameters = pieces::parameters(copy)?;
        let ring = |bytes| self.ring(driver, (copy, traffic), (contexts, bytes), caller);
        let large = if copy.bytes >= LEAST { ring(RING) } else { None };
        let ring = large.or_else(|| if traffic.path.has_to_be_staged_by_us() { ring(NEEDED) } else { None })?;
        let share = if ring.host.bytes == RING { share } else { Share::whole(ring.host.bytes) };
        let piece = pieces::size(copy.bytes, share);
        let [src, dst] = copy.reach().unwrap_or([copy.bytes; 2]);
        let ends = [(copy.src, src), (copy.dst, dst)].map(|(start, bytes)| (start, start.saturating_add(bytes)));
        if traffic.path.has_to_be_staged_by_us() || !self.is(config::Staging::Auto) {
            self.say_once(traffic);
        }
        let is_of_both = copy.stream.is_none() && copy.src_named != Named::Pointer;
        let on = if is_of_both { None } else { Some(copy.stream.unwrap_or(0)) };
        let division = (piece, (share.bytes / piece).clamp(1, SLOTS));
        let transfer = Transfer::new(parameters, Purpose::Stage, (ring, on, per_thread), division);
        Some(Transfer { blocks: self.is(config::Staging::Blocking), ends, ..transfer })
    }

    /// The ring and pieces of a copy that is to be read back, all of it or a sample; none if there is no ring for it.
    #[inline(never)]
    pub(crate) fn take_to_compare(
        &self,
        (access, driver): (&Access, &impl Stager),
        (copy, traffic, is_whole): (&Memcpy<'_>, &Traffic, bool),
        caller @ (_, per_thread, _): Caller,
    ) -> Option<Box<Transfer>> {
        let contexts = access.contexts_of(driver, copy)?;
        let parameters = pieces::parameters(copy)?;
        let (bytes, purpose, division) = match is_whole {
            true => (RING, Purpose::Compare, (RING / 2, 1)),
            false => (SAMPLES, transfer::sample(&parameters), (SAMPLED, SLOTS)),
        };
        let ring = self.ring(driver, (copy, traffic), (contexts, bytes), caller)?;
        self.rings.is_read_back(&ring);
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
                if is_limit && Once::NoMemoryLeft.is_first() {
                    let what = "not for every copy is there page-locked memory to stage it or to read it back (P2PSHIM_STAGING_LIMIT)";
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
        if !Once::StagedByUs([traffic.src, traffic.dst]).is_first() {
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

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::abi::CUDA_MEMCPY3D_PEER;
    use crate::policy::Ended;
    use crate::policy::access::Circumstances;
    use crate::policy::access::fake::{Fake, context, memory_of};
    use crate::policy::staging::pieces::Piece;
    use crate::policy::staging::ring::MARKS;

    thread_local! {
        static MADE: Cell<usize> = const { Cell::new(0) };
        static PARTS: Cell<usize> = const { Cell::new(0) };
        static BUSY: RefCell<BTreeSet<usize>> = const { RefCell::new(BTreeSet::new()) };
        static PAST: RefCell<BTreeSet<usize>> = const { RefCell::new(BTreeSet::new()) };
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

        fn is_past(&self, ring: &Ring, mark: usize) -> bool {
            self.is_ring_done(ring) || PAST.with_borrow(|past| past.contains(&mark))
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
            self.staging.rings.give_back(&staged.ring);
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
            process.staging.rings.give_back(&staged.ring);
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
        process.staging.rings.stream_is_gone(8);
        assert_ne!(process.copy(8), Some(one), "a new stream with the handle of one that has work left");
        let taken = process.take(6, LEAST).unwrap();
        assert_ne!(process.take(6, LEAST).map(|staged| staged.ring), Some(taken.ring), "by another thread, just now");
    }

    #[test]
    fn ring_stays_its_streams_while_a_thread_has_steps_of_a_copy_to_come() {
        let process = Process::new(u64::MAX);
        let rings = &process.staging.rings;
        let keep = |thread| {
            let staged = process.take(5, LEAST).unwrap();
            rings.keep(&staged.ring, thread);
            staged.ring
        };
        let ring = keep(7);
        assert_eq!(keep(8), ring);
        rings.release(&ring, 8);
        assert_eq!(process.copy(5), Some(ring.host.address), "a copy of one step");
        BUSY.with_borrow_mut(BTreeSet::clear);
        assert_ne!(process.copy(6), Some(ring.host.address), "thread 7 has steps to come");
        BUSY.with_borrow_mut(BTreeSet::clear);
        rings.release(&ring, 7);
        assert!([9, 10].into_iter().any(|stream| process.copy(stream) == Some(ring.host.address)));
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
    fn copies_that_are_read_back_have_rings_of_their_size_and_the_next_copy_knows() {
        let process = Process::new(u64::MAX);
        let all = (&*process.access, &process.driver);
        for (bytes, is_whole, size) in [(LEAST, false, SAMPLES), (64, false, SAMPLES), (LEAST, true, RING)] {
            let copy = Memcpy { stream: Some(5), ..Memcpy::linear(memory_of(0), memory_of(1), bytes) };
            let traffic = process.access.consider(&process.driver, &copy, Circumstances::default()).unwrap();
            let taken =
                process.staging.take_to_compare(all, (&copy, &traffic, is_whole), ((context(0), 1), false, 7)).unwrap();
            assert_eq!(taken.ring.host.bytes, size);
            process.staging.rings.give_back(&taken.ring);
        }
        let staged = process.take(5, LEAST).unwrap();
        process.staging.rings.keep(&staged.ring, 7);
        let begins_anew = || match process.staging.rings.begin_step(&process.driver, &staged) {
            Begun::Taken { is_divided_anew, .. } => is_divided_anew,
            _ => panic!("it is there, and nobody has it"),
        };
        assert!(begins_anew(), "it was read back");
        process.staging.rings.end_step(&staged.ring, 7, true);
        assert!(!begins_anew());
        process.staging.rings.end_step(&staged.ring, 7, false);
        assert!(begins_anew(), "behind a step that may have been submitted in part");
    }

    #[test]
    fn memory_of_each_copy_that_is_under_way_is_in_use_until_it_is_made() {
        let process = Process::new(u64::MAX);
        let all = (&*process.access, &process.driver);
        let submit = |src: u64, is_done| {
            let copy = Memcpy { stream: Some(5), ..Memcpy::linear(src, memory_of(1), LEAST) };
            let traffic = process.access.consider(&process.driver, &copy, Circumstances::default()).unwrap();
            let share = process.staging.share(&process.driver, &copy, &traffic).unwrap();
            let step = process.staging.take(all, (&copy, &traffic, share), ((context(0), 1), false, 7)).unwrap();
            process.staging.rings.keep(&step.ring, 7);
            if is_done {
                BUSY.with_borrow_mut(BTreeSet::clear);
            }
            let begun = process.staging.rings.begin_step(&process.driver, &step);
            let Begun::Taken { mark, .. } = begun else { panic!("it is there, and nobody has it") };
            PAST.with_borrow_mut(|past| past.remove(&mark));
            BUSY.with_borrow_mut(|busy| busy.insert(step.ring.host.address));
            process.staging.rings.end_step(&step.ring, 7, true);
            mark
        };
        let is_in_use = |at: u64| {
            let other = Stream::new(6, false, 7);
            !process.staging.rings.copies_of(&process.driver, &(at..at + 1), Some(other)).is_empty()
        };
        let at = |number: u64| memory_of(0) + number * LEAST;
        (0..4).for_each(|number| _ = submit(at(number % 2), false));
        assert!(is_in_use(at(0)) && is_in_use(at(1)) && is_in_use(memory_of(1)) && !is_in_use(at(2)));
        submit(at(0), true);
        assert!(is_in_use(at(0)) && !is_in_use(at(1)), "made by now");
        let mark = submit(at(1), false);
        submit(at(0), false);
        PAST.with_borrow_mut(|past| past.insert(mark));
        assert!(!is_in_use(at(1)) && is_in_use(at(0)), "a copy behind it may wait for the host");
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
        let is_in_use = |number| process.staging.rings.is_in_use(&process.driver, context(number));
        assert!(is_in_use(0) && is_in_use(1) && !is_in_use(2));
        BUSY.with_borrow_mut(BTreeSet::clear);
        assert!(!is_in_use(0));
        process.driver.ids.borrow_mut().insert(context(1), 2);
        let ended = Ended::new(&process.driver, None, Some(context(1)));
        process.staging.rings.contexts_have_ended(&process.driver, (&|&context| ended.has(context), true));
        assert!(process.staging.rings.is_empty());
        process.access.contexts_have_ended(&Ended::new(&process.driver, None, None));
        let parts = PARTS.get();
        assert_eq!(process.copy(5), Some(ring), "the same memory");
        assert_eq!(PARTS.get() - parts, 2 + SLOTS + MARKS, "and of the context that is there streams and events");
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
