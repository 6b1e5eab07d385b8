//! The state of a thread of the program: its stack of contexts and its number.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::capture::{Caller, CaptureMode};
use crate::ids::ContextHandle;

thread_local! {
    /// Without a destructor: handlers at exit and destructors of a thread's values still have their context.
    static STACK: Stack =
        const { Stack { places: [const { Cell::new(ContextHandle(0)) }; PLACES], used: Cell::new(0) } };
    static CAPTURE_MODE: Cell<CaptureMode> = const { Cell::new(CaptureMode::Global) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// The most contexts on a stack; one more pushes the lowest out.
const PLACES: usize = 64;

/// In place: threads may have small stacks of their own.
struct Stack {
    places: [Cell<ContextHandle>; PLACES],
    used: Cell<usize>,
}

/// The context on top of the calling thread's stack.
pub fn get() -> Option<ContextHandle> {
    STACK.with(|stack| Some(stack.places.get(stack.used.get().checked_sub(1)?)?.get()))
}

/// Replaces the top of the stack; `None` empties that place.
pub fn set(context: Option<ContextHandle>) {
    pop();
    context.into_iter().for_each(push);
}

/// Puts a context on top.
pub fn push(context: ContextHandle) {
    STACK.with(|stack| {
        if stack.used.get() == PLACES {
            stack.places.iter().zip(stack.places.iter().skip(1)).for_each(|(low, high)| low.set(high.get()));
            stack.used.set(PLACES - 1);
        }
        stack.places.iter().skip(stack.used.get()).take(1).for_each(|place| place.set(context));
        stack.used.set(stack.used.get() + 1);
    });
}

/// Takes the top away.
pub fn pop() -> Option<ContextHandle> {
    let top = get()?;
    STACK.with(|stack| stack.used.set(stack.used.get() - 1));
    Some(top)
}

/// A number of the calling thread that no other thread of the process ever has.
pub fn thread() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    THREAD.with(|thread| {
        if thread.get() == 0 {
            thread.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        }
        thread.get()
    })
}

/// Sets how the calling thread's calls act on captures; returns what held before.
pub fn exchange_capture_mode(mode: CaptureMode) -> CaptureMode {
    CAPTURE_MODE.replace(mode)
}

/// The calling thread, as captures see it.
pub(crate) fn caller() -> Caller {
    Caller { thread: thread(), mode: CAPTURE_MODE.get() }
}
