//! One number for all that decisions about copies rest on: it is another as soon as anything of that has changed.
//!
//! What was found out while the number was n holds as long as it is n. So whoever kept it compares one word, in place of
//! asking all those who know: whose memory, which way, whether a stream lives, whether anything is captured, what is recorded.
//!
//! Whoever changes something counts here afterwards; whoever keeps something says so before it looks, since changes of which
//! nobody has kept anything need not be counted: threads that free memory all the time would wait for each other.
//!
//! In children of the process the number is 0, where the system can do that, and stays so: nothing of the parent's holds there.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicU64, fence};

use crate::os;

/// In pages of its own, which a child does not get.
static NUMBER: os::Page = os::Page::new();

/// How it is told whether this is a forked child: 0 before [`begin`], [`BY_NUMBER`], or, where the system cannot wipe the page,
/// the process that began.
static TOLD_BY: AtomicI32 = AtomicI32::new(0);

/// The number is 0 in forked children, and nowhere else.
const BY_NUMBER: i32 = -1;

/// What the number was when something was kept last.
static KEPT: AtomicU64 = AtomicU64::new(0);

fn number() -> &'static AtomicU64 {
    NUMBER.word()
}

/// What the number is. 0 means that nothing may be kept: calls are only forwarded, or not even that has been decided.
#[inline(always)]
pub(crate) fn now() -> u64 {
    NUMBER.word().load(Relaxed)
}

/// What the number is, for who is about to find out something to be kept.
pub(crate) fn about_to_keep() -> u64 {
    let number = now();
    if KEPT.load(Relaxed) < number {
        // Not back to what the number was when a thread looked that was stopped since.
        KEPT.fetch_max(number, Relaxed);
    }
    // Whoever changes something afterwards sees that; what was changed before is seen by who looks now.
    fence(SeqCst);
    number
}

/// Notes that something has changed.
pub(crate) fn happened() {
    fence(SeqCst);
    has_happened();
}

/// The same for who finds that there is nothing left to be changed: who changed it has not noted it yet, perhaps.
pub(crate) fn has_happened() {
    if KEPT.load(Relaxed) == now() {
        let _ = number().fetch_update(AcqRel, Acquire, |number| (number != 0).then(|| number + 1));
    }
}

/// From now on things may be kept, but not in children.
pub(crate) fn begin() {
    let told_by = if NUMBER.is_not_inherited() { BY_NUMBER } else { os::process_id() };
    let _ = number().compare_exchange(0, 1, SeqCst, SeqCst);
    // Last, so that no thread of this process finds 0 there and takes itself for a child.
    TOLD_BY.store(told_by, Release);
}

/// Whether this is a forked child of the process that began, however it was made. A child that shares the memory of the process
/// (`vfork`, `CLONE_VM`) is none: what it would note of itself would hold for the process too. So nothing is stored here.
#[inline(always)]
pub(crate) fn is_in_a_child() -> bool {
    /// There a child that shares memory is taken for a forked one, at its own calls.
    #[cold]
    #[inline(never)]
    fn is_another(process: i32) -> bool {
        process != os::process_id()
    }
    match TOLD_BY.load(Acquire) {
        0 => false,
        BY_NUMBER => now() == 0,
        process => is_another(process),
    }
}

/// Nothing may be kept any more: this is a forked child.
pub(crate) fn stop() {
    number().store(0, SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::memory::Cache;

    /// The only one that begins and stops: other tests change what they like, and see no number.
    #[test]
    fn now_is_another_after_each_change_and_nothing_once_stopped() {
        assert_eq!(now(), 0);
        happened();
        assert_eq!(now(), 0, "nothing has begun");
        assert!(!is_in_a_child(), "nothing has begun");
        begin();
        assert!(!is_in_a_child());
        let before = about_to_keep();
        assert_ne!(before, 0);
        happened();
        assert!(now() > before);
        let before = now();
        happened();
        assert_eq!(now(), before, "nothing was kept");
        let before = about_to_keep();
        let cache = Box::new(Cache::new());
        cache.forget();
        assert!(now() > before, "another thread may be emptying the cache, and not have said so yet");
        stop();
        happened();
        assert_eq!(now(), 0);
        assert!(is_in_a_child());
    }
}
