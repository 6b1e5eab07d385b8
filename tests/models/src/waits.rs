//! A copy that is announced while another thread waits for those before it.

use loom::sync::Arc;
use loom::thread;

use crate::ordered::AtomicU64;
use crate::ordered::Ordering::{Acquire, Relaxed, Release};
use crate::policy::Driver;
use crate::policy::waits::{Stream, SyncScope, Waits};
use crate::threads::model;

const OWN: Option<(usize, u64)> = Some((10, 1));
const ENDS: [usize; 2] = [10, 20];
const STREAM: Stream = Stream::Created(5);

/// How many copies there were when the event was recorded last: who waits for the event waits for them.
struct Gpu {
    copies: AtomicU64,
    recorded: AtomicU64,
}

impl Driver for Gpu {
    fn context_id(&self, _: usize) -> Option<u64> {
        Some(1)
    }

    fn new_event(&self, _: (usize, u64)) -> Option<usize> {
        Some(7)
    }

    fn record(&self, _: usize, _: usize) -> bool {
        self.recorded.fetch_max(self.copies.load(Relaxed), Release);
        true
    }
}

/// A copy that is made.
fn copy((waits, gpu): &(Waits, Gpu)) {
    let announced = waits.announce(STREAM, ENDS).unwrap();
    gpu.copies.fetch_add(1, Relaxed);
    assert!(waits.finish(gpu, announced));
}

fn one_copy() -> Arc<(Waits, Gpu)> {
    let both = Arc::new((Waits::new(), Gpu { copies: AtomicU64::new(1), recorded: AtomicU64::new(0) }));
    let announced = both.0.add(&both.1, STREAM, OWN, ENDS).unwrap();
    assert!(both.0.finish(&both.1, announced));
    both
}

/// The copies that a call waits for which waits for everything; none if nothing is pending.
fn wait((waits, gpu): &(Waits, Gpu)) -> Option<u64> {
    let pending = waits.next(&SyncScope::All, None)?;
    let waited_for = gpu.recorded.load(Acquire);
    waits.mark_done(&pending);
    Some(waited_for)
}

#[test]
fn copy_beside_a_wait_is_waited_for_or_still_pending() {
    model("a copy beside a wait", 5, || {
        let both = one_copy();
        let copies = {
            let both = Arc::clone(&both);
            thread::spawn(move || copy(&both))
        };
        let waited_for = wait(&both);
        copies.join().unwrap();
        assert!(waited_for == Some(2) || both.0.are_pending(&SyncScope::All), "nobody waits for the copy");
        assert_eq!(wait(&both).or(waited_for), Some(2));
        assert!(!both.0.are_pending(&SyncScope::All), "there is nothing left to wait for");
    });
}

#[test]
fn copies_of_two_threads_are_pending_until_both_are_waited_for() {
    model("two copies", 4, || {
        let both = one_copy();
        assert_eq!(wait(&both), Some(1));
        assert!(!both.0.are_pending(&SyncScope::All));
        let copies = {
            let both = Arc::clone(&both);
            thread::spawn(move || copy(&both))
        };
        copy(&both);
        assert!(both.0.are_pending(&SyncScope::All), "nobody waits for the thread's own copy");
        copies.join().unwrap();
        assert_eq!(wait(&both), Some(3));
        assert!(!both.0.are_pending(&SyncScope::All));
    });
}
