//! The state of a thread of the program: its stack of contexts and its number.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::capture::{Caller, CaptureMode};
use crate::ids::ContextHandle;

thread_local! {
    static STACK: RefCell<Vec<ContextHandle>> = const { RefCell::new(Vec::new()) };
    static CAPTURE_MODE: Cell<CaptureMode> = const { Cell::new(CaptureMode::Global) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// The context on top of the calling thread's stack. None while the thread ends.
pub fn get() -> Option<ContextHandle> {
    STACK.try_with(|stack| stack.borrow().last().copied()).ok().flatten()
}

/// Replaces the top of the stack; `None` empties that place.
pub fn set(context: Option<ContextHandle>) {
    pop();
    context.into_iter().for_each(push);
}

/// Puts a context on top.
pub fn push(context: ContextHandle) {
    // A thread that ends has no use for a current context.
    let _ = STACK.try_with(|stack| stack.borrow_mut().push(context));
}

/// Takes the top away.
pub fn pop() -> Option<ContextHandle> {
    STACK.try_with(|stack| stack.borrow_mut().pop()).ok().flatten()
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
