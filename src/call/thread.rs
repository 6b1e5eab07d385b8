//! A thread's memory across nested calls.
//!
//! The block is plain static thread storage, reached by the initial-exec model, which is two instructions: no
//! destructor, no first-use initialisation, no call into the dynamic linker, valid from a thread's first instruction to
//! its last. `thread_local!` has one or the other.
//!
//! A signal handler of the thread may copy between any two instructions, and uses the same block. So nothing of it is ever
//! borrowed mutably: a field is an atomic where a handler's call may come between a read and a write of it, and a `Cell` where
//! signals are held meanwhile, or where it does not matter whose value remains.

use std::arch::global_asm;
use std::cell::Cell;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, AtomicUsize};

use p2pshim_trace::{Open, OpenRecord, Segment};

use super::frame::{Frame, Innermost};
use crate::api::Function;
use crate::machine::{self, Entry};
use crate::model::event::{CallEvent, FOUND};
use crate::model::{Memcpy, Path};
use crate::objects::memory::Place;
use crate::objects::streams::{Known, Stream};
use crate::os::{self, Held};
use crate::policy::batches::Missing;
use crate::policy::validate::Run;

/// The state that a call finds in the block, and puts back when it has returned: a signal handler's call leaves nothing behind.
#[derive(Clone, Copy, Default)]
pub(crate) struct Before {
    frame: Frame,
    path: u8,
    inner_record: Option<OpenRecord>,
    /// The record that a signal handler's call interrupts, if it is open.
    open: Open,
}

impl Before {
    /// Whether there was a call in progress.
    pub(crate) fn is_in_progress(&self) -> bool {
        self.frame.is_in_progress()
    }
}

/// How many stretches of memory with arguments are remembered.
const STRETCHES: usize = 8;
/// The bits of a stretch that are the number of its pages.
const PAGES: u32 = 16;

/// A copy that is being staged.
pub(crate) const STAGES: u8 = 1;
/// A call of the driver that takes access or a right to a pool away.
pub(crate) const TAKES: u8 = 2;

/// Events and findings that a thread keeps for callbacks. All zero is nothing.
pub(crate) struct Pending {
    /// The events for callbacks once the outermost call has returned.
    #[expect(clippy::box_collection, reason = "one word, null for none: the block is zero at first")]
    pub(crate) events: Cell<Option<Box<Vec<CallEvent>>>>,
    /// Whether a callback is running.
    pub(crate) in_callback: AtomicBool,
    /// The rules with a finding about the call under way: their numbers plus one.
    pub(crate) found: Cell<[u8; FOUND]>,
}

/// The last copy to the host of a thread that was looked at.
#[derive(Clone, Copy)]
pub(crate) struct Download {
    pub(crate) record: OpenRecord,
    pub(crate) host: u64,
    pub(crate) bytes: u64,
    /// Its stream, on this thread.
    pub(crate) stream: Stream,
    pub(crate) context: usize,
    /// Whether its sample is still to be taken.
    pub(crate) is_awaited: bool,
    /// How many copies from there were looked at since.
    pub(crate) taken: u8,
}

/// The endpoints of a copy: their addresses and places. The check of the call need not look them up again.
pub(crate) struct EndpointPlaces {
    /// 0 for none.
    addresses: Cell<[u64; 2]>,
    places: Cell<[Place; 2]>,
}

impl EndpointPlaces {
    #[inline(always)]
    pub(crate) fn keep(&self, copy: &Memcpy<'_>, places: [Place; 2]) {
        self.addresses.set([copy.src, copy.dst]);
        self.places.set(places);
    }

    #[inline(always)]
    pub(crate) fn forget(&self) {
        self.addresses.set([0; 2]);
    }

    #[inline(always)]
    pub(crate) fn of(&self, copy: &Memcpy<'_>) -> Option<[Place; 2]> {
        let is_it = copy.src != 0 && self.addresses.get() == [copy.src, copy.dst];
        is_it.then(|| self.places.get())
    }
}

/// The calling thread's block. All zero is a valid state. The fields that each copy needs come first.
#[repr(C)]
pub(crate) struct Thread {
    /// The innermost call in progress.
    innermost: Innermost,
    /// Whether our own code runs: whatever it calls is forwarded unseen.
    busy: AtomicBool,
    /// Which calls of this thread have not returned, or were left by `longjmp`: [`STAGES`], [`TAKES`].
    unfinished: AtomicU8,
    /// Where this thread's copies are counted; 0 until the first.
    pub(crate) shard: AtomicU8,
    /// Whether the copy that is under way, or the next, is checked with what only the driver knows.
    pub(crate) is_check_due: AtomicBool,
    /// The pending error that a call about peer access has left in a runtime; 0 for none.
    pub(crate) pending_error: AtomicI32,
    /// The route by which that runtime was called.
    pub(crate) pending_error_of: AtomicU8,
    /// The number of the path that the last driver call inside a runtime call took; 0 for none.
    path: AtomicU8,
    /// How many copies with memory that the driver did not know were passed on, to ask again about one now and then.
    pub(crate) not_asked: AtomicU8,
    /// The last copies from one place.
    pub(crate) run: Cell<Run>,
    /// Where this thread's calls are recorded.
    pub(crate) segment: Segment,
    /// How many copies are not measured before the next that is; large ones count more than once.
    pub(crate) untimed_left: Cell<u64>,
    /// How many of this thread's first copies were measured.
    pub(crate) first_timed: Cell<u8>,
    /// The cost of measuring GPUs inside the call that is under way, in ticks of the trace.
    pub(crate) timing_cost: Cell<u64>,
    /// The record of the last driver call inside a call of the runtime.
    pub(crate) inner_record: Cell<Option<OpenRecord>>,
    /// The record of the last call that has returned, for what is found out about it afterwards.
    pub(crate) last_record: Cell<Option<OpenRecord>>,
    /// The endpoints of the last copy whose path the driver's half knew without a question; none in a runtime's call before that.
    pub(crate) endpoints: EndpointPlaces,
    /// The last copy to the host that was looked at.
    pub(crate) download: Cell<Option<Download>>,
    /// Until when the thread should not look for the place of a call without a record, in ticks of the trace.
    pub(crate) rests_until: Cell<u64>,
    /// The stack pointer of the runtime's call without a record that is under way; 0 for none.
    pub(crate) noted: Cell<usize>,
    /// The address of the thread's state in CPython, as the trace has it; 0 for none.
    pub(crate) python: Cell<usize>,
    /// The signals that the program held back when our own code began to run.
    pub(crate) held: Cell<Held>,
    /// The last stretches of memory with arguments that turned out to be there, each as the number of its first page, and below that of how
    /// many there are; and the place of the next.
    there: [AtomicU64; STRETCHES],
    next_there: Cell<u8>,
    /// The copy under which the call that is under way disables access: from where to where it goes, and its stream.
    pub(crate) disables_under: Cell<Option<([u8; 2], usize)>>,
    /// Whether the capture of the last copy's stream was lost before that copy.
    pub(crate) capture_was_lost: Cell<bool>,
    /// The pending error of a runtime that needs no word any more: it was said, or a call returned it that is checked.
    pub(crate) known_pending: Cell<i32>,
    /// Whether a capture that this thread is about to begin is counted already, and the context of its stream; 0 if that is
    /// not known.
    pub(crate) begins_capture: Cell<Option<usize>>,
    /// Why the batch that this thread gave to a stream that is being captured was not captured, until it is said.
    pub(crate) not_captured: Cell<Option<&'static Missing>>,
    /// Callbacks get this once the outermost call has returned.
    pub(crate) callbacks: Pending,
    /// 0 until it is asked for.
    number: Cell<usize>,
}

/// The size of a page.
pub(crate) const PAGE: usize = 4096;

/// The numbers of the pages that memory lies in.
pub(crate) fn pages(start: usize, bytes: usize) -> RangeInclusive<usize> {
    start / PAGE..=start.saturating_add(bytes).saturating_sub(1) / PAGE
}

/// A program may load the library by `dlopen`, as `p2pshim` does: then the block has to fit into what glibc keeps free, 1,664 bytes in
/// all for such libraries, of which others need some.
const _: () = assert!(size_of::<Thread>() <= 1_024 && align_of::<Thread>() <= machine::THREAD_ALIGN);

global_asm!(include_str!("../machine/thread.s"), size = const size_of::<Thread>(), align = const machine::THREAD_ALIGN);

/// The calling thread's block.
#[inline(always)]
pub(crate) fn current() -> &'static Thread {
    // SAFETY: the block is there for as long as the thread runs, all zero is a valid one, it is never borrowed mutably, and it
    // is not Sync, so that no other thread gets the reference.
    unsafe { &*machine::thread_block().cast() }
}

impl Thread {
    /// Notes a call, and returns how many enclose it, and what [`Thread::leave`] needs.
    #[inline(always)]
    pub(crate) fn enter(&self, call: Frame) -> (usize, Before) {
        let (path, inner_record) = (self.path.load(Relaxed), self.inner_record.get());
        let (depth, frame) = self.innermost.enter(call, os::is_on_signal_stack);
        let mut before = Before { frame, path, inner_record, open: Open::default() };
        if depth == 0 {
            self.path.store(0, Relaxed);
            if before.is_in_progress() {
                before.open = self.segment.open();
            }
        }
        (depth, before)
    }

    /// Forgets the call that found this, and all inside it.
    #[inline(always)]
    pub(crate) fn leave(&self, before: &Before) {
        self.innermost.set(before.frame);
    }

    /// Puts back what a call that has ended found there for calls of the runtime.
    #[inline(always)]
    pub(crate) fn put_back(&self, before: &Before) {
        self.path.store(before.path, Relaxed);
        self.inner_record.set(before.inner_record);
        if before.is_in_progress() {
            self.segment.reopen(before.open);
        }
    }

    /// Whether no call is in flight, and no code of ours.
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        !self.innermost.is_in_progress() && !self.is_busy()
    }

    /// Whether no call encloses one that is about to enter. Calls that were left otherwise than by returning do not count.
    #[inline(always)]
    pub(crate) fn is_outermost(&self, call: Frame) -> bool {
        self.innermost.depth_of(call) == 0
    }

    /// The function of the call in progress, if that encloses the one that entered with this stack pointer.
    pub(crate) fn enclosing_function(&self, stack: usize) -> Option<Function> {
        self.innermost.function(stack)
    }

    /// The entry of the outermost call, if that encloses the one that entered with this stack pointer.
    pub(crate) fn enclosing(&self, stack: usize) -> Option<Entry> {
        self.innermost.enclosing(stack)
    }

    /// Whether our own code is running.
    #[inline(always)]
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Relaxed)
    }

    /// Whether a call of this kind has not returned; of any kind if that is [`u8::MAX`].
    #[inline(always)]
    pub(crate) fn is_unfinished(&self, kind: u8) -> bool {
        self.unfinished.load(Relaxed) & kind != 0
    }

    pub(crate) fn set_unfinished(&self, kind: u8, is_unfinished: bool) {
        if is_unfinished {
            self.unfinished.fetch_or(kind, Relaxed);
        } else {
            self.unfinished.fetch_and(!kind, Relaxed);
        }
    }

    /// Says that our own code is running, or no longer.
    pub(crate) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Relaxed);
    }

    /// The program has taken the pending error out.
    pub(crate) fn clear_pending_error(&self) {
        self.pending_error.store(0, Relaxed);
        self.known_pending.set(0);
    }

    /// Notes the path of a copy that a runtime call makes.
    pub(crate) fn set_path(&self, path: Option<Path>) {
        self.path.store(path.map_or(0, Path::number), Relaxed);
    }

    /// The path of the copy that the runtime call that ends has made; what it found there is put back.
    pub(crate) fn take_path(&self, before: &Before) -> Option<Path> {
        let number = self.path.swap(before.path, Relaxed);
        Path::numbered(number)
    }

    /// Notes that memory was read, and so is there.
    pub(crate) fn mark_there(&self, start: usize, bytes: usize) {
        let next = self.next_there.get();
        self.next_there.set((next + 1) % STRETCHES as u8);
        if let Some(stretch) = self.there.get(usize::from(next)) {
            let pages = pages(start, bytes);
            let count = (pages.end() - pages.start() + 1).min((1 << PAGES) - 1);
            stretch.store((*pages.start() as u64) << PAGES | count as u64, Relaxed);
        }
    }

    /// Whether memory lies in pages that were there before. If the program has unmapped them since, it gives the real function a pointer
    /// into nothing.
    #[inline(always)]
    pub(crate) fn was_there(&self, start: usize, bytes: usize) -> bool {
        let pages = pages(start, bytes);
        self.there.iter().any(|stretch| {
            let word = stretch.load(Relaxed);
            let (first, count) = ((word >> PAGES) as usize, word as usize & ((1 << PAGES) - 1));
            first <= *pages.start() && *pages.end() < first + count
        })
    }

    /// A number that tells this thread from all others, those that have ended included.
    #[inline(always)]
    fn number(&self) -> usize {
        if self.number.get() == 0 {
            self.number.set(next_number());
        }
        self.number.get()
    }

    /// A tag that tells this thread's streams from those of others, of which the last share one.
    #[inline(always)]
    pub(crate) fn tag(&self) -> u8 {
        self.number().min(usize::from(Known::MANY)) as u8
    }
}

#[cold]
fn next_number() -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(Known::NO_THREAD as usize);
    LAST.fetch_add(1, Relaxed) + 1
}

/// The number of the calling thread.
pub(crate) fn id() -> usize {
    current().number()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Function;

    fn fresh() -> Thread {
        // SAFETY: all zero is a valid block.
        unsafe { std::mem::zeroed() }
    }

    #[test]
    fn current_each_thread_has_its_own_zeroed_block() {
        let here = id();
        assert_eq!(here, id());
        let there = std::thread::spawn(|| {
            assert!(current().is_idle());
            id()
        });
        assert_ne!(there.join().unwrap(), here);
    }

    #[test]
    fn tag_each_thread_has_its_own_until_there_are_too_many() {
        let (one, other) = (fresh(), fresh());
        let tags = [one.tag(), one.tag(), other.tag()];
        assert!(tags[0] == tags[1] && tags[0] != Known::NO_THREAD);
        assert!(tags[0] != tags[2] || tags[0] == Known::MANY);
        (0..Known::TAGS).for_each(|_| _ = fresh().tag());
        assert_eq!(fresh().tag(), Known::MANY);
    }

    const RUNTIME: Function = Function::cudaMemcpyPeerAsync;
    const DRIVER: Function = Function::cuMemcpyPeerAsync;

    fn enter(thread: &Thread, function: Function, stack: usize) -> (usize, Before) {
        thread.enter(Frame::new(function, 1, Entry::with(stack)))
    }

    #[test]
    fn enter_the_drivers_call_inside_the_runtimes_is_its_child() {
        let thread = fresh();
        let (depth, before) = enter(&thread, RUNTIME, 900);
        assert_eq!(depth, 0);
        for stack in [800, 850] {
            let (depth, before) = enter(&thread, DRIVER, stack);
            assert_eq!(depth, 1);
            thread.leave(&before);
        }
        thread.leave(&before);
        assert!(thread.is_idle());
        assert_eq!(enter(&thread, DRIVER, 800).0, 0);
    }

    #[test]
    fn enter_call_of_a_signal_handler_is_the_programs_own_and_leaves_nothing_behind() {
        let thread = fresh();
        let (_, outermost) = enter(&thread, RUNTIME, 900);
        for function in [RUNTIME, DRIVER] {
            // Between the runtime's call and the driver's, then inside the driver's.
            let (depth, inside) = if function == DRIVER { enter(&thread, DRIVER, 800) } else { (1, Before::default()) };
            assert_eq!(depth, 1);
            let (depth, before) = enter(&thread, RUNTIME, 700);
            assert_eq!(depth, 0);
            let (depth, inner) = enter(&thread, DRIVER, 600);
            assert_eq!(depth, 1);
            thread.set_path(Path::numbered(2));
            thread.leave(&inner);
            thread.leave(&before);
            assert_eq!(thread.take_path(&before), Path::numbered(2));
            if function == DRIVER {
                assert_eq!(enter(&thread, DRIVER, 600).0, 0, "a driver does not call itself");
                thread.leave(&inside);
            }
            thread.set_path(Path::numbered(1));
        }
        thread.leave(&outermost);
        assert_eq!(thread.take_path(&outermost), Path::numbered(1));
        assert!(thread.is_idle());
    }

    #[test]
    fn enter_call_that_a_library_in_between_passes_on_is_a_child() {
        let thread = fresh();
        thread.enter(Frame::new(RUNTIME, 1, Entry::with(900)));
        assert_eq!(thread.enter(Frame::new(RUNTIME, 2, Entry::with(800))).0, 1);
        assert_eq!(thread.enter(Frame::new(DRIVER, 3, Entry::with(700))).0, 2);
    }

    #[test]
    fn enter_after_a_call_that_never_returned_nesting_is_right_again() {
        let thread = fresh();
        enter(&thread, RUNTIME, 900);
        enter(&thread, DRIVER, 800);
        thread.set_path(Path::numbered(1));
        let (depth, before) = enter(&thread, RUNTIME, 900);
        assert_eq!(depth, 0, "both frames are gone");
        assert_eq!(before.frame, Frame::default());
        thread.leave(&before);
        assert!(thread.is_idle());
        assert_eq!(enter(&thread, DRIVER, 850).0, 0);
    }

    #[test]
    fn was_there_only_what_lies_in_the_last_stretches() {
        const BYTES: usize = 200;
        let thread = fresh();
        assert!(!thread.was_there(0, BYTES) && !thread.was_there(0x5000, BYTES));
        thread.mark_there(0x5f80, BYTES);
        for (start, expected) in [(0x5000, true), (0x6f38, true), (0x6f39, false), (0x4ff8, false)] {
            assert_eq!(thread.was_there(start, BYTES), expected, "{start:#x}");
        }
        assert!(!thread.was_there(usize::MAX - 7, BYTES));
        (0..STRETCHES - 1).for_each(|number| thread.mark_there(0x10_0000 + number * 0x10_0000, 0x1_0000));
        assert!(thread.was_there(0x5f80, BYTES) && thread.was_there(0x10_0000, 0x1_0000));
        thread.mark_there(0x9000, BYTES);
        assert!(!thread.was_there(0x5f80, BYTES) && thread.was_there(0x9f38, BYTES));
    }
}
