//! The epoch: one number for all that decisions about copies rest on, another as soon as anything of that has changed.
//!
//! What was decided in an epoch holds as long as it lasts. So whoever kept a decision compares one word, in place of
//! asking all those who know: whose memory, which path, whether a stream lives, whether anything is captured, what is recorded.
//!
//! Whoever changes something advances the epoch afterwards; whoever keeps something says so before it looks, since an epoch of
//! which nobody has kept anything need not end: threads that free memory all the time would wait for each other.
//!
//! In children of the process the epoch is 0: nothing of the parent's holds there.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicU64, fence};

use crate::os;

/// In a page of its own, which a child does not get.
static EPOCH: os::Page = os::Page::new();

/// The epoch in which something was kept last.
static KEPT: AtomicU64 = AtomicU64::new(0);

/// The process that started. It has to be compared where the system gives children the page: there epochs begin at
/// [`INHERITED`], which no other gets to.
static PROCESS: AtomicI32 = AtomicI32::new(0);
const INHERITED: u64 = 1 << 63;

/// The epoch. 0 means that nothing may be kept: calls are only forwarded, or not even that has been decided.
#[inline(always)]
pub(crate) fn now() -> u64 {
    EPOCH.word().load(Relaxed)
}

/// Whether there is an epoch: the shim has started, and this is no child of the process in which it has.
#[inline(always)]
pub(crate) fn is_running() -> bool {
    match now().cast_signed() {
        1.. => true,
        0 => false,
        _ => is_same_process(),
    }
}

/// Before Linux 4.14 a child gets the page.
#[cold]
#[inline(never)]
fn is_same_process() -> bool {
    PROCESS.load(Relaxed) == os::process_id()
}

/// The epoch, for who is about to find out something to be kept.
pub(crate) fn before_keeping() -> u64 {
    let epoch = now();
    if KEPT.load(Relaxed) < epoch {
        // Not back to what the epoch was when a thread looked that was stopped since.
        KEPT.fetch_max(epoch, Relaxed);
    }
    // Whoever changes something afterwards sees that; what was changed before is seen by who looks now.
    fence(SeqCst);
    epoch
}

/// Ends the epoch: something has changed.
pub(crate) fn advance() {
    fence(SeqCst);
    advance_too();
}

/// The same for who finds that there is nothing left to be changed: who changed it has not ended the epoch yet, perhaps.
pub(crate) fn advance_too() {
    if KEPT.load(Relaxed) == now() {
        let _ = EPOCH.word().fetch_update(AcqRel, Acquire, |epoch| (epoch != 0).then(|| epoch + 1));
    }
}

/// From now on there is an epoch, but not in children.
pub(crate) fn start() {
    let first = if EPOCH.is_not_inherited() { 1 } else { INHERITED };
    PROCESS.store(os::process_id(), Relaxed);
    let _ = EPOCH.word().compare_exchange(0, first, SeqCst, SeqCst);
}

/// There is none any more.
pub(crate) fn stop() {
    EPOCH.word().store(0, SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only one that starts and stops: other tests change what they like, and see no epoch.
    #[test]
    fn advance_each_change_ends_the_epoch_of_which_something_was_kept() {
        assert_eq!(now(), 0);
        advance();
        assert_eq!(now(), 0, "nothing has started");
        start();
        let before = before_keeping();
        assert_ne!(before, 0);
        advance();
        assert!(now() > before);
        let before = now();
        advance();
        assert_eq!(now(), before, "nothing was kept");
        stop();
        advance();
        assert_eq!(now(), 0);
    }
}
