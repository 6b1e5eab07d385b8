//! The gate: what must not meet the closing of a link passes it.
//!
//! A direct copy ends with a fault of its context if its link is closed between the driver's look at it and its end. What is
//! queued can be waited for; who is about to queue something cannot be seen in the driver. So whoever copies stands in the
//! gate from before its decision until the driver has returned; so does who begins a capture, makes a graph ready to run,
//! or ends a context, of which nothing may be asked meanwhile. Who closes shuts the gate, and waits until nobody stands in it.
//!
//! Each thread counts in a place of its own, by plain stores. A store and the load behind it may change places, which only a
//! barrier prevents; since closing is rare, it is the closing thread that has all threads pass one (membarrier(2)). A copy
//! costs two nanoseconds so; with barriers of its own it would be ten.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, compiler_fence, fence};
use std::thread;
use std::time::{Duration, Instant};

use crate::os;
use crate::policy::changes;
use crate::record::counters;

/// How often a thread that waits looks again.
const INTERVAL: Duration = Duration::from_micros(50);
/// How long a call waits before it turns a closing off. Longer than any takes whose thread is not stopped.
const PATIENCE: Duration = Duration::from_millis(200);

/// Everybody passes.
const OPEN: u32 = 0;
/// Nobody else passes, and nothing is closed yet: whoever has waited too long may open it again.
const SHUT: u32 = 1;
/// Something is being closed.
const CLOSING: u32 = 2;

/// How many calls stand in the gate of a thread, or of the few that share a place; in a cache line of its own.
#[repr(align(128))]
pub(crate) struct Place(AtomicU32);

impl Place {
    /// Enters, for who has the place to itself, and then looks at [`changes::now`], which shutting the gate changes.
    #[inline(always)]
    pub(crate) fn enter(&self) {
        self.0.store(self.0.load(Relaxed).wrapping_add(1), Release);
        // No more than that: see above.
        compiler_fence(SeqCst);
    }

    /// Leaves it again.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(1), Release);
    }

    #[inline(always)]
    fn add(&self, shard: u8, by: i32) {
        if counters::is_own(shard) {
            self.0.store(self.0.load(Relaxed).wrapping_add_signed(by), Release);
        } else {
            self.0.fetch_add(by.cast_unsigned(), AcqRel);
        }
    }
}

/// See the module.
pub(crate) struct Gate {
    state: AtomicU32,
    places: [Place; counters::SHARDS],
}

impl Gate {
    pub(super) const fn new() -> Self {
        Self { state: AtomicU32::new(OPEN), places: [const { Place(AtomicU32::new(0)) }; counters::SHARDS] }
    }

    #[inline(always)]
    fn place(&self, shard: u8) -> Option<&Place> {
        self.places.get(usize::from(shard).wrapping_sub(1))
    }

    /// Enters; `shard` is where the thread's copies are counted. Answers whether the caller has to [`Gate::wait`] first. A
    /// thread that stands in it already does not enter again: it would wait for itself.
    #[inline(always)]
    pub(crate) fn enter(&self, shard: &mut u8) -> bool {
        counters::assign(shard);
        if let Some(place) = self.place(*shard) {
            place.add(*shard, 1);
        }
        // No more than that: see above.
        compiler_fence(SeqCst);
        self.state.load(Relaxed) != OPEN
    }

    /// Whether everybody passes.
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(SeqCst) == OPEN
    }

    /// The place of a thread that has one to itself.
    #[inline(always)]
    pub(crate) fn own(&self, shard: u8) -> Option<&Place> {
        let (own, _) = self.places.split_at_checked(counters::OWN.into())?;
        own.get(usize::from(shard).wrapping_sub(1))
    }

    /// Leaves.
    #[inline(always)]
    pub(crate) fn leave(&self, shard: u8) {
        if let Some(place) = self.place(shard) {
            place.add(shard, -1);
        }
    }

    /// Waits until the gate is open, and enters; for who has entered one that was not.
    #[cold]
    pub(crate) fn wait(&self, shard: u8) {
        let started = Instant::now();
        let Some(place) = self.place(shard) else { return };
        while self.state.load(SeqCst) != OPEN {
            place.add(shard, -1);
            loop {
                match self.state.load(Acquire) {
                    OPEN => break,
                    // It is not closed under us then.
                    SHUT if started.elapsed() > PATIENCE => {
                        let _ = self.state.compare_exchange(SHUT, OPEN, SeqCst, SeqCst);
                    }
                    // What is being closed is one call of the driver.
                    _ => thread::sleep(INTERVAL),
                }
            }
            place.add(shard, 1);
            fence(SeqCst);
        }
    }

    /// Whether it can be shut.
    pub(super) fn can_be_shut() -> bool {
        os::has_barriers()
    }

    /// Shuts the gate, and waits until nobody stands in it. It opens when the answer is dropped.
    pub(crate) fn shut(&self, deadline: Instant) -> Option<Shut<'_>> {
        self.state.compare_exchange(OPEN, SHUT, SeqCst, SeqCst).ok()?;
        let shut = Shut(self);
        // Who copies what is familiar looks there only.
        changes::happened();
        // From here on everybody has seen it, or can be seen in the gate.
        if !os::pass_barriers() {
            return None;
        }
        while self.places.iter().any(|Place(calls)| calls.load(Acquire) != 0) {
            if Instant::now() > deadline {
                return None;
            }
            thread::sleep(INTERVAL);
        }
        Some(shut)
    }
}

/// A gate that is shut.
pub(crate) struct Shut<'a>(&'a Gate);

impl Shut<'_> {
    /// Keeps it shut until something is closed, unless somebody has waited too long.
    pub(super) fn begin_closing(&self) -> bool {
        self.0.state.compare_exchange(SHUT, CLOSING, SeqCst, SeqCst).is_ok()
    }
}

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        self.0.state.store(OPEN, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn shut_waits_for_who_stands_in_it() {
        let gate = Gate::new();
        let mut shard = 0;
        assert!(!gate.enter(&mut shard));
        assert!(gate.shut(Instant::now() + Duration::from_millis(5)).is_none());
        gate.leave(shard);
        let shut = gate.shut(soon()).unwrap();
        assert!(gate.shut(soon()).is_none(), "one at a time");
        assert!(gate.enter(&mut shard), "has to wait");
        gate.leave(shard);
        assert!(shut.begin_closing());
        drop(shut);
        assert!(!gate.enter(&mut shard));
    }

    #[test]
    fn wait_too_long_nothing_is_closed() {
        let gate = Gate::new();
        let mut shard = 0;
        let shut = gate.shut(soon()).unwrap();
        assert!(gate.enter(&mut shard));
        gate.wait(shard);
        assert!(!shut.begin_closing());
    }

    #[test]
    fn shut_beside_many_threads_nobody_is_inside() {
        let gate = Gate::new();
        let (over, inside, passed) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            // So many that some have places of their own and some share one.
            for _ in 0..60 {
                scope.spawn(|| {
                    let mut shard = 0;
                    while !over.load(Relaxed) {
                        if gate.enter(&mut shard) {
                            gate.wait(shard);
                        }
                        inside.fetch_add(1, SeqCst);
                        thread::yield_now();
                        passed.fetch_add(1, Relaxed);
                        inside.fetch_sub(1, SeqCst);
                        gate.leave(shard);
                    }
                });
            }
            let mut closed = 0;
            for _ in 0..100 {
                thread::sleep(Duration::from_micros(300));
                let Some(shut) = gate.shut(soon()) else { continue };
                if shut.begin_closing() {
                    closed += 1;
                    assert_eq!(inside.load(SeqCst), 0);
                    thread::sleep(INTERVAL);
                    assert_eq!(inside.load(SeqCst), 0);
                }
            }
            over.store(true, Relaxed);
            assert!(closed > 50, "{closed}");
        });
        assert!(passed.load(Relaxed) > 1000);
    }
}
