//! What a thread remembers across nested calls.
//!
//! The block is plain static thread storage, reached by the initial-exec model, which is two instructions: no
//! destructor, no first-use initialisation, no call into the dynamic linker, valid from a thread's first instruction to
//! its last. `thread_local!` has one or the other.

use std::arch::{asm, global_asm};
use std::ops::Range;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::compiler_fence;

use p2pshim_trace::{Begun, Segment};

use crate::capi::event::CallEvent;
use crate::policy::access::PlaceInGate;
use crate::policy::familiar::{Finder, Known};
use crate::policy::path::Path;
use crate::policy::validate::{self, Fact, Run};
use crate::record::counters::Shard;

/// How many calls inside each other are told apart: a runtime call, its driver call, and a callback
/// of either that calls again.
const NESTED: usize = 4;

/// The copy of the driver inside a [familiar](super::familiar) one of the runtime.
#[derive(Clone, Copy)]
pub(crate) enum InnerCopy {
    /// There is none, or one that is not familiar itself.
    None,
    /// It is still to come, if the call makes one that is seen.
    Expected,
    /// It is being made, or was; this is what is known of it. Its thread stands in the gate until the call has returned.
    Begun(Known),
}

impl InnerCopy {
    const NONE: u32 = 0;
    const EXPECTED: u32 = 1;

    /// In one word, which is written by one instruction: a signal handler's copy finds what was before, or all of it.
    #[inline(always)]
    const fn word(self) -> u32 {
        match self {
            Self::None => Self::NONE,
            Self::Expected => Self::EXPECTED,
            Self::Begun(known) => known.word(),
        }
    }
}

/// How often it is attempted to have the next copy like this be familiar: the more seldom, the more often it came to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Attempts {
    /// How many copies go by without one.
    left: u8,
    /// How many went by before the last.
    before: u8,
}

impl Attempts {
    /// Whether there is to be one now.
    #[inline(always)]
    pub(crate) fn is_one_due(&mut self) -> bool {
        let is_due = self.left == 0;
        self.left = self.left.saturating_sub(1);
        is_due
    }

    /// Takes note of how one went.
    pub(crate) fn went(&mut self, well: bool) {
        const MOST: u8 = 63;
        self.before = if well { 0 } else { (self.before * 2 + 1).min(MOST) };
        self.left = self.before;
    }
}

/// The calling thread's block. What each copy needs comes first.
#[repr(C)]
pub(crate) struct Thread {
    /// How many of `calls` are in flight.
    depth: usize,
    /// The stack pointers at entry of the calls in flight, outermost first.
    calls: [usize; NESTED],
    /// Whether our own code runs: whatever it calls is forwarded unseen.
    busy: bool,
    /// Whether this thread stands in the gate.
    pub(crate) inside: bool,
    /// Where this thread's copies are counted; 0 until the first.
    pub(crate) shard: u8,
    /// What tells this thread's streams from others'; [`Fact::NO_THREAD`] until the first call that is looked at.
    tag: u8,
    /// The code that the driver call inside this runtime call is to answer; 0 for none.
    pub(crate) forced: i32,
    /// What a call about peer access has left in a runtime's last-error slot; 0 for nothing.
    pub(crate) left: i32,
    /// The last copies from one place.
    pub(crate) run: Run,
    /// Whether it is time to look at the copy in full that is under way, or next.
    pub(crate) is_look_due: bool,
    /// The copy of the driver inside a familiar one of the runtime, as a word.
    inner_copy: u32,
    /// How what is known of familiar copies is found.
    pub(crate) finder: Finder,
    /// What this thread has to itself of the counters, and of the gate; none until a copy of its is to be familiar.
    pub(crate) counters: Option<&'static Shard>,
    pub(crate) place: Option<&'static PlaceInGate>,
    /// Attempts to make copies familiar.
    pub(crate) attempts: Attempts,
    /// Where this thread's calls are recorded.
    pub(crate) segment: Segment,
    /// The record of the last driver call inside a call of the runtime.
    pub(crate) inner: Option<Begun>,
    /// What measuring GPUs has cost inside the call that is under way, in ticks of the trace.
    pub(crate) timing_cost: u64,
    /// How many copies are not measured before the next that is; large ones count more than once.
    pub(crate) untimed_left: u64,
    /// How many of this thread's first copies were measured.
    pub(crate) first_timed: u8,
    /// When the trace's clock is to be compared with others next, as far as this thread knows.
    pub(crate) calibration_due: u64,
    /// Where the last recorded calls came from that no other enclosed, each place where its address puts it, and the last that one
    /// other enclosed; and the numbers of the places.
    sites: [(usize, u16); SITES + 1],
    /// The record of the last call that has returned, for what is found out about it afterwards.
    pub(crate) last: Option<Begun>,
    /// Whether a right to a pool is being taken away by this thread.
    pub(crate) takes: bool,
    /// Whether a capture that this thread is about to begin is counted already.
    pub(crate) begins: bool,
    /// The context of the stream that it is to be of; 0 if that is not known.
    pub(crate) begins_in: usize,
    /// The number of the way that the last driver call inside a runtime call took; 0 for none.
    path: u8,
    /// By which route that runtime was called which `left` is of.
    pub(crate) left_by: u8,
    /// The rule for which the call under way is refused: its number plus one; 0 for none.
    pub(crate) refused_for: u8,
    /// The pages that turned out to be there when memory was last read that might not have been.
    readable: Range<usize>,
    /// The events for callbacks once the outermost call has returned.
    #[expect(clippy::box_collection, reason = "one word, null for none: the block is zero at first")]
    pub(crate) events: Option<Box<Vec<CallEvent>>>,
    /// Whether a callback is running.
    pub(crate) in_callback: bool,
    /// The rules with a finding about the call under way: their numbers plus one.
    pub(crate) found: [u8; FOUND],
    /// What the driver answered to the last copy that this thread asked the shim for.
    pub(crate) code: i32,
}

/// How many of the places are remembered that calls come from which no other encloses; a power of two.
const SITES: usize = 4;

/// How many rules the event of a call names.
const FOUND: usize = 4;

global_asm!(
    ".section .tbss.p2p_thread,\"awT\",@nobits",
    ".globl p2p_thread",
    ".hidden p2p_thread",
    ".type p2p_thread, @object",
    ".size p2p_thread, {size}",
    ".p2align 6",
    "p2p_thread:",
    ".zero {size}",
    ".text",
    size = const size_of::<Thread>(),
);

/// The calling thread's block. It is zero at first, which is a valid state of each field.
#[inline(always)]
pub(crate) fn current() -> *mut Thread {
    let thread: *mut Thread;
    // SAFETY: reads the thread's own base address and the constant offset of p2p_thread from it.
    unsafe {
        asm!(
            "mov {thread}, qword ptr [rip + p2p_thread@GOTTPOFF]",
            "add {thread}, qword ptr fs:[0]",
            thread = out(reg) thread,
            options(pure, readonly, nostack),
        );
    }
    thread
}

impl Thread {
    /// Notes a call that entered with this stack pointer, and returns how many enclose it.
    ///
    /// A call that was left by an exception, `longjmp` or the end of a cancelled thread has not said
    /// so. Its frame is gone, which shows: an enclosing call's frame lies above this one's.
    #[inline(always)]
    pub(crate) fn enter(&mut self, stack: usize) -> usize {
        while let Some(&outer) = self.depth.checked_sub(1).and_then(|last| self.calls.get(last))
            && outer <= stack
        {
            self.depth -= 1;
        }
        let depth = self.depth;
        if depth == 0 || self.inner_copy == InnerCopy::EXPECTED {
            self.set_inner_copy(InnerCopy::None);
        }
        if depth == 0 {
            // One that was left may not have taken its own.
            self.path = 0;
        }
        if let Some(call) = self.calls.get_mut(depth) {
            *call = stack;
            compiler_fence(SeqCst);
            self.depth = depth + 1;
        }
        depth
    }

    /// Whether nothing encloses a copy that is about to enter.
    #[inline(always)]
    pub(crate) fn is_outermost_at_once(&self) -> bool {
        self.depth == 0 && !self.busy
    }

    /// Whether the driver's copy that is about to enter with this stack pointer is one that a familiar copy of the runtime
    /// expects.
    #[inline(always)]
    pub(crate) fn expects(&self, stack: usize) -> bool {
        let [outermost, ..] = self.calls;
        self.inner_copy == InnerCopy::EXPECTED && self.depth == 1 && stack < outermost && !self.busy
    }

    /// Notes a call that no other encloses.
    #[inline(always)]
    pub(crate) fn enter_at_once(&mut self, stack: usize) {
        let [outermost, ..] = &mut self.calls;
        *outermost = stack;
        compiler_fence(SeqCst);
        self.depth = 1;
    }

    /// The copy of the driver inside the call that entered with this stack pointer, which no other encloses.
    #[inline(always)]
    pub(crate) fn inner_copy_of(&self, stack: usize) -> InnerCopy {
        let [outermost, ..] = self.calls;
        // A signal handler's copy may have come between the notes of when it entered; it has left its own there.
        if self.depth != 1 || outermost != stack {
            return InnerCopy::None;
        }
        match self.inner_copy {
            InnerCopy::NONE => InnerCopy::None,
            InnerCopy::EXPECTED => InnerCopy::Expected,
            word => InnerCopy::Begun(Known::of_word(word)),
        }
    }

    /// Notes what is known of it.
    #[inline(always)]
    pub(crate) fn set_inner_copy(&mut self, copy: InnerCopy) {
        self.inner_copy = copy.word();
    }

    /// Notes that this thread stands in the gate, and answers whether it did before: in one instruction, so that of a copy and that
    /// of a signal handler only one is the first.
    #[inline(always)]
    pub(crate) fn was_inside(&mut self) -> bool {
        let mut was = 0_u8;
        // Other threads do not look there, so that it need not be locked.
        // SAFETY: makes a flag true that is not.
        unsafe {
            asm!(
                "cmpxchg byte ptr [{inside}], {is}",
                inside = in(reg) &raw mut self.inside,
                is = in(reg_byte) 1_u8,
                inout("al") was,
                options(nostack),
            );
        }
        was != 0
    }

    /// Whether no call has left anything that another has to look at.
    #[inline(always)]
    pub(crate) fn owes_nothing(&self) -> bool {
        self.forced | self.left == 0
    }

    /// Whether no call encloses one that is about to enter with this stack pointer. Calls that were left otherwise than by
    /// returning do not count.
    #[inline(always)]
    pub(crate) fn is_outermost(&self, stack: usize) -> bool {
        let [outermost, ..] = self.calls;
        self.depth == 0 || outermost <= stack
    }

    /// Forgets the call that `enter` returned `depth` for, and all inside it.
    #[inline(always)]
    pub(crate) fn leave(&mut self, depth: usize) {
        self.depth = depth;
    }

    /// Whether our own code is running.
    #[inline(always)]
    pub(crate) fn is_busy(&self) -> bool {
        self.busy
    }

    /// Notes the way of a copy that a runtime call makes.
    pub(crate) fn set_path(&mut self, path: Option<Path>) {
        self.path = path.map_or(0, |path| path.number() as u8);
    }

    /// The way of the copy that the runtime call that ends has made.
    pub(crate) fn take_path(&mut self) -> Option<Path> {
        Path::numbered(u32::from(std::mem::take(&mut self.path)))
    }

    /// Where in `sites` a place is.
    #[inline(always)]
    fn at(depth: usize, address: usize) -> usize {
        // Calls have 5 bytes at least.
        if depth == 0 { (address ^ address >> 3) % SITES } else { SITES }
    }

    /// The number of the place that a call came from which is recorded, if the last at this depth came from there too.
    #[inline(always)]
    pub(crate) fn known_site(&self, depth: usize, address: usize) -> Option<u16> {
        let &(last, number) = self.sites.get(Self::at(depth, address))?;
        (last == address).then_some(number)
    }

    /// Notes where a recorded call came from.
    pub(crate) fn note_site(&mut self, depth: usize, address: usize, number: u16) {
        if let Some(site) = self.sites.get_mut(Self::at(depth, address)) {
            *site = (address, number);
        }
    }

    /// Notes that a value could be read which might not have been there.
    pub(crate) fn note_readable<T>(&mut self, from: *const T) {
        const PAGE: usize = 4096;
        let end = (from as usize).saturating_add(size_of::<T>());
        self.readable = from as usize & !(PAGE - 1)..end.checked_next_multiple_of(PAGE).unwrap_or(end);
    }

    /// Whether a value lies in pages that were there the last time. A program that copies in a loop has its parameters
    /// in one place; if it has unmapped that since, it gives the real function a pointer into nothing.
    #[inline(always)]
    pub(crate) fn is_readable<T>(&self, from: *const T) -> bool {
        let end = (from as usize).saturating_add(size_of::<T>());
        self.readable.start <= from as usize && end <= self.readable.end && from.is_aligned()
    }

    /// What tells this thread's streams from others'.
    #[inline(always)]
    pub(crate) fn tag(&mut self) -> u8 {
        if self.tag == Fact::NO_THREAD {
            self.tag = validate::next_tag();
        }
        self.tag
    }

    /// Says that our own code is running, or no longer.
    pub(crate) fn set_busy(&mut self, busy: bool) {
        self.busy = busy;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> Thread {
        Thread {
            depth: 0,
            calls: [0; NESTED],
            busy: false,
            inside: false,
            shard: 0,
            tag: 0,
            forced: 0,
            left: 0,
            run: Run::NONE,
            is_look_due: false,
            inner_copy: InnerCopy::NONE,
            finder: Finder::default(),
            counters: None,
            place: None,
            attempts: Attempts::default(),
            segment: Segment::default(),
            inner: None,
            timing_cost: 0,
            untimed_left: 0,
            first_timed: 0,
            calibration_due: 0,
            sites: [(0, 0); SITES + 1],
            last: None,
            takes: false,
            begins: false,
            begins_in: 0,
            path: 0,
            left_by: 0,
            refused_for: 0,
            readable: 0..0,
            events: None,
            in_callback: false,
            found: [0; FOUND],
            code: 0,
        }
    }

    #[test]
    fn current_each_thread_has_its_own_zeroed_block() {
        let here = current() as usize;
        assert_eq!(here, current() as usize);
        let there = std::thread::spawn(|| {
            // SAFETY: the block is this thread's own.
            let thread = unsafe { &*current() };
            assert!(!thread.is_busy() && thread.depth == 0);
            current() as usize
        });
        assert_ne!(there.join().unwrap(), here);
    }

    #[test]
    fn tag_each_thread_has_its_own_until_there_are_too_many() {
        let (mut one, mut other) = (fresh(), fresh());
        let tags = [one.tag(), one.tag(), other.tag()];
        assert!(tags[0] == tags[1] && tags[0] != Fact::NO_THREAD);
        assert!(tags[0] != tags[2] || tags[0] == Fact::MANY);
        (0..Fact::TAGS).for_each(|_| _ = fresh().tag());
        assert_eq!(fresh().tag(), Fact::MANY);
    }

    #[test]
    fn enter_call_inside_a_call_is_its_child() {
        let mut thread = fresh();
        assert_eq!(thread.enter(900), 0);
        assert_eq!(thread.enter(800), 1);
        thread.leave(1);
        assert_eq!(thread.enter(850), 1);
        thread.leave(1);
        thread.leave(0);
        assert_eq!(thread.enter(900), 0);
    }

    #[test]
    fn enter_after_a_call_that_never_returned_nesting_is_right_again() {
        let mut thread = fresh();
        thread.enter(900);
        thread.enter(800);
        assert!(thread.is_outermost(900) && !thread.is_outermost(899));
        assert_eq!(thread.enter(900), 0, "both frames are gone");
        thread.enter(800);
        assert_eq!(thread.enter(850), 1, "the inner frame is gone");
    }

    #[test]
    fn enter_after_a_call_that_never_returned_its_way_is_not_taken_for_the_next_ones() {
        let mut thread = fresh();
        thread.enter(900);
        thread.enter(800);
        thread.set_path(Path::numbered(1));
        thread.leave(1);
        thread.enter(900);
        assert_eq!(thread.take_path(), None);
        thread.enter(800);
        thread.set_path(Path::numbered(1));
        thread.leave(1);
        thread.enter(850);
        assert_eq!(thread.take_path(), Path::numbered(1), "of another inside the same");
    }

    #[test]
    fn enter_deeper_than_remembered_is_survived() {
        let mut thread = fresh();
        for depth in 0..2 * NESTED {
            assert_eq!(thread.enter(900 - depth), depth.min(NESTED));
        }
        thread.leave(0);
        assert_eq!(thread.enter(900), 0);
    }

    #[test]
    fn attempts_are_the_more_seldom_the_more_often_they_fail() {
        let mut attempts = Attempts::default();
        let mut tries = |well: bool, copies: usize| {
            let due = |_: &usize| {
                let is_due = attempts.is_one_due();
                if is_due {
                    attempts.went(well);
                }
                is_due
            };
            (0..copies).filter(due).collect::<Vec<_>>()
        };
        assert_eq!(tries(false, 15), [0, 2, 6, 14]);
        assert_eq!(tries(false, 15 + 32 + 64 * 10), [15, 47, 111, 175, 239, 303, 367, 431, 495, 559, 623]);
        assert_eq!(tries(true, 10), (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn is_readable_only_what_lies_in_the_pages_of_the_last() {
        let mut thread = fresh();
        let at = |address: usize| address as *const [u64; 25];
        assert!(!thread.is_readable(at(0)) && !thread.is_readable(at(0x5000)));
        thread.note_readable(at(0x5f80));
        for (address, expected) in [(0x5000, true), (0x6f38, true), (0x6f40, false), (0x4ff8, false), (0x5004, false)] {
            assert_eq!(thread.is_readable(at(address)), expected, "{address:#x}");
        }
        thread.note_readable(at(0x9000));
        assert!(!thread.is_readable(at(0x5f80)) && thread.is_readable(at(0x9f38)));
        assert!(!thread.is_readable(at(usize::MAX - 7)));
    }
}
