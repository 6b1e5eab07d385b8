//! Staged copies, on a driver that is plain values.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use super::*;
use crate::api::abi::CUDA_MEMCPY3D_PEER;
use crate::policy::Ended;
use crate::policy::access::Circumstances;
use crate::policy::access::fake::{Fake, context, memory_of};
use crate::policy::staging::chunks::Chunk;
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
        let step = Chunk { extent: chunks::extent(&copy), ..ring.step };
        let share = Share::of(busy);
        let chunk = chunks::size(bytes, share);
        let staged = Transfer { copy, step, chunk, slots: (share.bytes / chunk).clamp(1, SLOTS), ..ring };
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
        for Chunk { at, extent: [bytes, ..], slot } in (0..division.count()).map(|number| division.chunk(number)) {
            assert_eq!(at, [end, 0, 0]);
            assert!(bytes > 0 && bytes <= staged.chunk && (slot + 1) * staged.chunk <= share.bytes && slot < SLOTS);
            end += bytes;
        }
        let end = end as u64;
        assert_eq!(end, bytes);
        // A stream takes about a thousand launches; each chunk is three.
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
    process.staging.rings.on_stream_destroy(8);
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
        StepAdmission::Taken { is_divided_anew, .. } => is_divided_anew,
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
        let StepAdmission::Taken { mark, .. } = begun else { panic!("it is there, and nobody has it") };
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
            assert_eq!((regular.ring.host.bytes, regular.stream), (ring, Some(stream.unwrap_or(0))), "{limit} {bytes}");
            assert_eq!(peer.stream, stream, "by the default streams of both sides");
            let division = regular.division();
            let mut chunks = (0..division.count()).map(|number| division.chunk(number));
            assert!(chunks.all(|chunk| (chunk.slot + 1) * regular.chunk <= ring));
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
    process.staging.rings.on_contexts_ended(&process.driver, (&|&context| ended.has(context), true));
    assert!(process.staging.rings.is_empty());
    process.access.on_contexts_ended(&Ended::new(&process.driver, None, None));
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
