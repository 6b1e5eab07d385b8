//! Calls in progress, and which of them makes which.

use std::hint::cold_path;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicUsize, compiler_fence};

use crate::api::{Function, Layer};
use crate::machine::{AtomicEntry, Entry};

/// A call that is in progress. All zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The stack pointer at its entry.
    stack: usize,
    /// The entry of the outermost call that encloses it, or of itself.
    outermost: Entry,
    /// A number that tells its real function from others.
    real: usize,
    /// The function, its layer plus one, and how many calls enclose this one, in bytes from the lowest.
    kind: u32,
}

impl Frame {
    /// A call that enters so.
    #[inline(always)]
    pub(crate) fn new(function: Function, real: usize, entry: Entry) -> Self {
        let kind = u32::from(function as u8) | (function.layer() as u32 + 1) << 8;
        Self { stack: entry.stack(), outermost: entry, real, kind }
    }

    #[inline(always)]
    fn is_of(self, layer: Layer) -> bool {
        self.kind >> 8 & 0xff == layer as u32 + 1
    }

    /// How many calls enclose it.
    #[inline(always)]
    pub(crate) fn depth(self) -> usize {
        (self.kind >> 16) as usize
    }

    /// How many calls enclose it, if `outer` is in progress. It is a signal handler's or a callback's, and so the program's own,
    /// unless `outer` makes it: the runtime calls the driver, HIP itself, and a library in between passes on what it gets,
    /// by the next definition of the function.
    #[inline(always)]
    fn depth_in(self, outer: Self) -> usize {
        const FUNCTION: u32 = 0xffff;
        let is_made = outer.stack > self.stack
            && match () {
                () if self.is_of(Layer::Driver) && outer.is_of(Layer::Runtime) => true,
                () if self.is_of(Layer::Hip) && outer.is_of(Layer::Hip) => true,
                () => (self.kind ^ outer.kind) & FUNCTION == 0 && self.real != outer.real,
            };
        if is_made { (outer.depth() + 1).min(0xff) } else { 0 }
    }

    pub(crate) fn is_in_progress(self) -> bool {
        self.stack != 0
    }
}

/// The innermost call in progress of a thread. A signal handler may have calls of its own between any two instructions.
#[repr(C)]
pub(crate) struct Innermost {
    stack: AtomicUsize,
    outermost: AtomicEntry,
    real: AtomicUsize,
    kind: AtomicU32,
}

impl Innermost {
    /// Notes a call, and returns how many enclose it, and the one that was in progress, which is to be put back.
    ///
    /// A call that was left by an exception, `longjmp` or the end of a cancelled thread has not said so. Its frame is gone,
    /// which shows: it does not lie above this one's, unless a signal handler runs on a stack of its own.
    #[inline(always)]
    pub(crate) fn enter(&self, call: Frame, is_on_signal_stack: impl Fn() -> bool) -> (usize, Frame) {
        let mut outer = self.get();
        if outer.stack != 0 && outer.stack <= call.stack && !is_on_signal_stack() {
            cold_path();
            outer = Frame::default();
        }
        let depth = call.depth_in(outer);
        let outermost = if depth == 0 { call.outermost } else { outer.outermost };
        self.set(Frame { kind: call.kind | (depth as u32) << 16, outermost, ..call });
        (depth, outer)
    }

    #[inline(always)]
    fn get(&self) -> Frame {
        Frame {
            stack: self.stack.load(Relaxed),
            outermost: self.outermost.load(),
            real: self.real.load(Relaxed),
            kind: self.kind.load(Relaxed),
        }
    }

    /// A signal handler finds no call meanwhile: its own is none that this one makes.
    #[inline(always)]
    pub(crate) fn set(&self, frame: Frame) {
        self.stack.store(0, Relaxed);
        compiler_fence(SeqCst);
        self.outermost.store(frame.outermost);
        self.real.store(frame.real, Relaxed);
        self.kind.store(frame.kind, Relaxed);
        compiler_fence(SeqCst);
        self.stack.store(frame.stack, Relaxed);
    }

    #[inline(always)]
    pub(crate) fn is_in_progress(&self) -> bool {
        self.stack.load(Relaxed) != 0
    }

    /// How many calls enclose one that is about to enter.
    #[inline(always)]
    pub(crate) fn depth_of(&self, call: Frame) -> usize {
        call.depth_in(self.get())
    }

    /// The function of the innermost call, if that encloses the one that entered with this stack pointer.
    pub(crate) fn function(&self, stack: usize) -> Option<Function> {
        self.enclosing(stack)?;
        Function::ALL.get((self.kind.load(Relaxed) & 0xff) as usize).copied()
    }

    /// The entry of the outermost call, if that encloses the one that entered with this stack pointer.
    pub(crate) fn enclosing(&self, stack: usize) -> Option<Entry> {
        let outermost = self.outermost.load();
        (self.is_in_progress() && outermost.stack() > stack).then_some(outermost)
    }
}
