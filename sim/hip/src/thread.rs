//! The state of a thread of the program besides its device: its last error and its stack of contexts.

use std::cell::{Cell, RefCell};

use crate::error::Outcome;
use crate::flavour;

thread_local! {
    static LAST_ERROR: Cell<u32> = const { Cell::new(0) };
    /// The last answer, or what is left of it: `hipExtGetLastError` from 7.0 on.
    static LAST_ANSWER: Cell<u32> = const { Cell::new(0) };
    static CONTEXTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// `hipErrorNotReady`, which is no error.
const NOT_READY: u32 = 600;

/// Remembers how a call ended, as the release does it: before 7.0 success as well.
pub(crate) fn remember(outcome: Outcome) {
    let Outcome::Recorded(code) = outcome else { return };
    LAST_ANSWER.set(code);
    if !flavour::keeps_last_error() || !matches!(code, 0 | NOT_READY) {
        LAST_ERROR.set(code);
    }
}

/// The last error, which becomes the last answer.
pub(crate) fn last_error() -> u32 {
    LAST_ANSWER.set(LAST_ERROR.get());
    LAST_ERROR.get()
}

/// The last error, which is forgotten.
pub(crate) fn take_last_error() -> u32 {
    LAST_ERROR.replace(0)
}

/// The last answer, which is forgotten; before 7.0 there is one place for both.
pub(crate) fn take_last_answer() -> u32 {
    if flavour::keeps_last_error() { LAST_ANSWER.replace(0) } else { take_last_error() }
}

/// Puts a device's context on top of the stack.
pub(crate) fn push_context(device: usize) {
    let _ = CONTEXTS.try_with(|stack| stack.borrow_mut().push(device));
}

/// Takes the top away.
pub(crate) fn pop_context() -> Option<usize> {
    CONTEXTS.try_with(|stack| stack.borrow_mut().pop()).ok().flatten()
}

/// The device on top.
pub(crate) fn top_context() -> Option<usize> {
    CONTEXTS.try_with(|stack| stack.borrow().last().copied()).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests are linked as 6.4.
    #[test]
    fn success_overwrites_the_last_error_and_silence_does_not() {
        remember(Outcome::Recorded(101));
        remember(Outcome::Silent(709));
        assert_eq!(last_error(), 101);
        remember(Outcome::Recorded(0));
        assert_eq!(last_error(), 0);
        remember(Outcome::Recorded(1));
        assert_eq!((take_last_error(), last_error()), (1, 0));
    }

    #[test]
    fn contexts_are_a_stack() {
        push_context(0);
        push_context(1);
        assert_eq!((top_context(), pop_context(), pop_context(), pop_context()), (Some(1), Some(1), Some(0), None));
    }
}
