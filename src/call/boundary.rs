//! The panic boundary: a fault of our own must never end the program.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::mode;
use crate::os::{self, alloc};

/// Runs our own work; if it panics the result is the default one, which every caller takes for
/// "forward the call as it came". The thread notices nothing of it, see [`os::undisturbed`].
pub(crate) fn contained<T: Default>(work: impl FnOnce() -> T) -> T {
    os::undisturbed(|| caught(work))
}

/// The same without regard for the thread. Here our own work ends, so here it shows whether there was memory for it.
pub(crate) fn caught<T: Default>(work: impl FnOnce() -> T) -> T {
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_default();
    if alloc::has_reserve_served() {
        mode::memory_has_run_out();
    }
    result
}

/// Replaces the standard message for a panic, which would be printed whatever descriptor 2 is by now.
pub(crate) fn report_panics_to_the_log() {
    std::panic::set_hook(Box::new(|panic| {
        log::error!("internal error; the call is forwarded unchanged. Please report this: {panic}");
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contained_panic_gives_the_default() {
        assert_eq!(contained(|| Some(3)), Some(3));
        assert_eq!(contained::<Option<i32>>(|| panic!("on purpose")), None);
    }
}
