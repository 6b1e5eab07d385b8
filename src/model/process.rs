//! Whether calls are seen in this process: from the start on, and in no child that has memory of its own.

use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use crate::os;

/// 0 as long as nothing has started, where calls are only forwarded. Publishes what the start has set up, the options too. In a page of its own, which a child does not get.
static STATE: os::Page = os::Page::new();
const SEEN: u64 = 1;
/// Where the system gives children the page, the process has to be compared.
const INHERITED: u64 = 2;
const STOPPED: u64 = 3;

static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Whether calls are seen: the shim has started, and this is no child of the process in which it has.
#[inline(always)]
pub(crate) fn is_seen() -> bool {
    match STATE.word().load(Acquire) {
        SEEN => true,
        0 | STOPPED => false,
        _ => is_own(),
    }
}

/// Whether this is the process in which the shim has started, and no child of it, whether or not calls are still seen. Before Linux 4.14 a child
/// gets the page.
#[cold]
#[inline(never)]
pub(crate) fn is_own() -> bool {
    STATE.word().load(Acquire) != 0 && PROCESS.load(Relaxed) == os::process_id()
}

/// From now on calls are seen, but not in children.
pub(crate) fn start() {
    let state = if STATE.is_not_inherited() { SEEN } else { INHERITED };
    PROCESS.store(os::process_id(), Relaxed);
    let _ = STATE.word().compare_exchange(0, state, SeqCst, SeqCst);
}

/// They are not any more.
pub(crate) fn stop() {
    STATE.word().store(STOPPED, SeqCst);
}

/// This is a child that was forked.
pub(crate) fn be_child() {
    STATE.word().store(0, SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only one that starts and stops: other tests see nothing.
    #[test]
    fn is_seen_from_start_to_stop() {
        assert!(!is_seen() && !is_own());
        start();
        start();
        assert!(is_seen() && is_own());
        stop();
        assert!(!is_seen() && is_own());
        be_child();
        assert!(!is_seen() && !is_own());
    }
}
