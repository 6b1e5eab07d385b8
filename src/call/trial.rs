//! Staged copies that are timed, to find out who stages them faster ([`crate::policy::staging::Trials`]): an event before and after each,
//! on its own stream, checked when the next copy is staged. Nothing here waits.

use std::mem::{ManuallyDrop, forget, take};

use parking_lot::Mutex;

use super::{context, mode};
use crate::api::abi::Code;
use crate::model::{Memcpy, Traffic};
use crate::policy::staging::{By, CopyClass, Outcome};
use crate::policy::{STAGING, VALIDATE, capture};
use crate::real::driver::timing::Event;
use crate::record::log;

/// A copy that is being timed. It has nothing to drop: if the call is left, it is left behind.
pub(super) struct Trial(ManuallyDrop<Box<Timed>>);

pub(super) struct Timed {
    class: CopyClass,
    by: By,
    traffic: Traffic,
    stream: usize,
    /// Whether a default stream is the thread's own.
    per_thread: bool,
    before: Event,
    after: Event,
}

/// Those that were made.
static TIMED: Mutex<Vec<Timed>> = Mutex::new(Vec::new());

impl Timed {
    /// Completes it, if it is over, and says what is decided by it.
    fn complete(&self) -> bool {
        let nanos = match self.after.has_passed() {
            Some(false) => return false,
            Some(true) => self.after.nanos_since(&self.before),
            None => None,
        };
        self.end(nanos);
        true
    }

    fn end(&self, nanos: Option<u64>) {
        let Traffic { src, dst, bytes, .. } = self.traffic;
        if let Some(Outcome { faster, best: [driver, shim] }) = STAGING.trials.end(self.class, self.by, bytes, nanos) {
            let who = if faster == By::Shim { "p2pshim" } else { "the driver" };
            let class = self.class.name();
            let what = format_args!(
                "copies of {class} through the host: at best {shim:.1} GB/s by p2pshim, {driver:.1} by the driver; {who} stages them from now on"
            );
            log::pair_info(src, dst, what);
        }
    }
}

/// The stager of a copy, and its trial, if it is to be timed.
pub(super) fn next(copy: &Memcpy<'_>, traffic: &Traffic) -> (By, Option<CopyClass>) {
    let Some(class) = STAGING.trial_of(copy, traffic) else { return (By::Shim, None) };
    let (by, is_timed) = STAGING.trials.next(class);
    (by, is_timed.then_some(class))
}

/// The events that time a copy that is about to be made, if the side whose turn it is can make it.
pub(super) fn of(
    (class, by): (CopyClass, By),
    (copy, traffic): (&Memcpy<'_>, &Traffic),
    per_thread: bool,
    is_turn_taken: bool,
) -> Option<Trial> {
    let (stream, traffic) = (copy.stream.unwrap_or(0), *traffic);
    let is_possible = is_turn_taken && !capture::may_be_under_way();
    let events = || Event::pair(context::of_copy(copy, per_thread)?);
    let Some([before, after]) = is_possible.then(events).flatten() else {
        // It is another's turn.
        STAGING.trials.end(class, by, traffic.bytes, None);
        return None;
    };
    Some(Trial(ManuallyDrop::new(Box::new(Timed { class, by, traffic, stream, per_thread, before, after }))))
}

/// Begins to time a copy.
pub(super) fn begin(trial: Option<Trial>) -> Option<Trial> {
    let trial = trial?;
    let Timed { before, stream, per_thread, .. } = &**trial.0;
    // Signals arrive while that waits for room in the stream.
    if before.record_within(*stream, *per_thread) {
        return Some(trial);
    }
    end_with(trial, false);
    None
}

/// A copy that was begun has returned.
#[cold]
#[inline(never)]
pub(super) fn end(trial: Option<Trial>, ret: Code) {
    let Some(trial) = trial else { return };
    let Timed { after, stream, per_thread, .. } = &**trial.0;
    let is_made = ret == Code::SUCCESS && !capture::may_be_under_way();
    let is_made = is_made && after.record_within(*stream, *per_thread);
    end_with(trial, is_made);
}

fn end_with(Trial(timed): Trial, is_made: bool) {
    mode::unseen(|| {
        let timed = ManuallyDrop::into_inner(timed);
        if is_made {
            TIMED.lock().push(*timed);
        } else {
            timed.end(None);
        }
    });
}

/// Looks at those that were made. No capture begins meanwhile: to ask about an event may end that of another thread.
pub(super) fn harvest() {
    if TIMED.lock().is_empty() {
        return;
    }
    VALIDATE.facts().beside_no_capture(|| {
        let mut made = take(&mut *TIMED.lock());
        made.retain(|timed| !timed.complete());
        TIMED.lock().append(&mut made);
        Some(())
    });
}

/// A context is about to end, and its events with it.
pub(super) fn contexts_are_going() {
    let left = take(&mut *TIMED.lock());
    let is_over = VALIDATE.facts().beside_no_capture(|| {
        left.iter().filter(|timed| !timed.complete()).for_each(|timed| timed.end(None));
        Some(())
    });
    // Beside a capture nothing is given back.
    if is_over.is_none() {
        left.iter().for_each(|timed| timed.end(None));
        forget(left);
    }
}
