//! The short way of copies that are [familiar]: what an ordinary hook does, in so far as it is not known to come to nothing.
//!
//! A familiar copy of the driver inside a familiar one of the runtime has no record of its own: the two are one copy, with the
//! same answer, and each reading of the clock would cost as much as all of this.

use std::ffi::c_void;
use std::hint::cold_path;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::compiler_fence;

use p2pshim_trace::Begun;

use super::guard::{Call, Decision, Route, Running, Standing, only_forwards, records_unshown};
use super::thread::{self, InnerCopy, Thread};
use super::timing;
use crate::api::Function;
use crate::api::abi::{Code, Value};
use crate::config::GpuTiming;
use crate::policy::familiar::{self, Habits, Known, Line, StreamCopy};
use crate::policy::{ACCESS, VALIDATE, changes};
use crate::real::driver::RealDriver;
use crate::record::{counters, trace};

/// Whether copies by a function may be familiar: linear ones that do not wait for the device.
#[inline(always)]
pub(crate) const fn may_be(function: Function) -> bool {
    matches!(function, Function::cudaMemcpyPeerAsync | Function::cuMemcpyPeerAsync | Function::cuMemcpyPeerAsync_ptsz)
}

/// The number of changes, if any copy may be familiar by now: not if calls are only forwarded, or nothing has started.
#[inline(always)]
pub(crate) fn may_any_be() -> Option<u64> {
    Some(changes::now()).filter(|&number| number != 0)
}

/// A familiar copy that is being made. It has nothing to drop.
#[derive(Clone, Copy)]
pub(crate) struct Familiar {
    /// The real function.
    pub(crate) real: *mut c_void,
    /// What is known of it.
    pub(crate) known: Known,
    /// What has to be put right when the real function has returned.
    pub(crate) running: Running,
}

impl Call {
    /// Begins the driver's copy inside a familiar one of the runtime, if it is familiar too: answers the real function. When that
    /// has returned, nothing is left to be done but by the call around it. The values are the program's arguments; with `AT_ONCE`
    /// only what the last copy has left is looked at, and nothing is called.
    #[inline(always)]
    pub(crate) fn begin_inside<const AT_ONCE: bool>(self, route: Route, values: &[Value]) -> Option<*mut c_void> {
        let copy = StreamCopy::new(self.function(), values)?;
        // SAFETY: the block is this thread's own; no other reference to it lives.
        let thread = unsafe { &mut *thread::current() };
        if !self.is_of_driver() || !thread.expects(self.stack()) {
            return None;
        }
        let (known, number) = match AT_ONCE {
            true => familiar::last(&mut thread.finder, &copy)?,
            false => {
                let number = changes::now();
                let (known, _) = familiar::find(thread.shard, &mut thread.finder, &copy, number)?;
                (known, number)
            }
        };
        let real = self.known_real::<AT_ONCE>(route)?;
        if known.has(Known::SAMPLED) && timing::is_due(thread) || !enter(thread, number) {
            return None;
        }
        thread.set_inner_copy(InnerCopy::Begun(known));
        Some(real)
    }

    /// Begins a copy that nothing encloses, likewise.
    #[inline(always)]
    pub(crate) fn begin_familiar<const AT_ONCE: bool>(
        self,
        number: u64,
        route: Route,
        values: &[Value],
    ) -> Option<Familiar> {
        let copy = StreamCopy::new(self.function(), values)?;
        // SAFETY: the block is this thread's own; no other reference to it lives.
        let thread = unsafe { &mut *thread::current() };
        let (known, line) = find::<AT_ONCE>(thread, &copy, number)?;
        let real = self.known_real::<AT_ONCE>(route)?;
        let site = self.return_address() as usize;
        if !thread.is_outermost_at_once() || !known.has(Known::CLEAN) {
            return None;
        }
        if known.has(Known::LOOKED_AT) && is_to_be_looked_at::<AT_ONCE>(thread, line, site) {
            return None;
        }
        if self.is_of_driver() && known.has(Known::SAMPLED) && timing::is_due(thread) {
            return None;
        }
        let place = match known.has(Known::RECORDED) {
            true => Some(number_of_site::<AT_ONCE>(thread, site).filter(|_| thread.segment.has_room())?),
            false => None,
        };
        if self.is_of_driver() && !enter(thread, number) {
            return None;
        }
        thread.enter_at_once(self.stack());
        // What a handler's copy has left there before must not be taken for this one's; after it, one finds a call under way.
        compiler_fence(SeqCst);
        thread.set_inner_copy(if self.is_of_driver() { InnerCopy::None } else { InnerCopy::Expected });
        if known.has(Known::LOOKED_AT) {
            line.count();
        }
        let mut record = None;
        if let Some(place) = place {
            thread.inner = None;
            thread.timing_cost = 0;
            record = thread.segment.begin_next(0, self.function() as u8, place, trace::time_stamp());
            let Some(begun) = record else {
                // A signal handler has taken the last that there was room for: it begins again in the ordinary way.
                cold_path();
                thread.leave(0);
                if self.is_of_driver() {
                    leave(thread);
                }
                return None;
            };
            // Before it is made: it may never return.
            begun.copies(copy.src, copy.dst, copy.bytes, copy.stream);
            is_between(begun, known);
        }
        Some(Familiar { real, known, running: Running::new(0, false, record) })
    }

    /// The real function, if it is known.
    #[inline(always)]
    fn known_real<const AT_ONCE: bool>(self, route: Route) -> Option<*mut c_void> {
        if AT_ONCE { self.only_real(route) } else { self.real_at_once(route) }
    }

    /// Completes it, once the real function has returned. False if that is to be done in the ordinary way, because something
    /// was not as usual.
    #[inline(always)]
    pub(crate) fn end_familiar(self, Familiar { known, running, .. }: Familiar, values: &[Value], ret: Code) -> bool {
        let Some(copy) = StreamCopy::new(self.function(), values) else { return false };
        // SAFETY: the block is this thread's own; no other reference to it lives.
        let thread = unsafe { &mut *thread::current() };
        let (inner, is_as_expected) = match thread.inner_copy_of(self.stack()) {
            _ if self.is_of_driver() => (None, true),
            InnerCopy::Begun(inner) => (Some(inner), true),
            // The runtime reached the driver by a way that is not seen.
            InnerCopy::Expected => (None, true),
            InnerCopy::None => (None, !known.has_any(Known::LOOKED_AT | Known::RECORDED)),
        };
        // A child that was forked inside the call returns from it as well: the record is its parent's.
        let is_as_expected = is_as_expected && ret == Code::SUCCESS && changes::now() != 0;
        // They are the thread's own, else the copy would not be familiar.
        let Some(counters) = thread.counters.filter(|_| is_as_expected) else {
            cold_path();
            return false;
        };
        // From here on a handler's copy may leave something there again.
        compiler_fence(SeqCst);
        thread.leave(running.depth());
        counters.count_call(self.function() as u8);
        if let Some(inner) = inner {
            counters.count_call(inner.function());
        }
        let of_driver = if self.is_of_driver() { Some(known) } else { inner };
        if let Some(of_driver) = of_driver {
            leave(thread);
            counters.count(of_driver.counted(), copy.bytes);
        }
        if known.has(Known::LOOKED_AT) {
            thread.run.add_asynchronous(self.return_address() as usize, copy.bytes);
        }
        if let Some(record) = running.begun() {
            if let Some(inner) = inner {
                record.is_made_by(inner.function());
                if inner.devices() != known.devices() {
                    cold_path();
                    is_between(record, inner);
                }
            }
            complete(thread, record, copy.bytes, of_driver.unwrap_or(known));
        }
        true
    }

    /// Completes it in the ordinary way.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_unfamiliar(self, known: Known, running: Running, route: Route, values: &[Value], ret: Code) {
        let Some(copy) = StreamCopy::new(self.function(), values) else { return };
        // SAFETY: the block is this thread's own; the reference ends with the statement.
        let inner = match unsafe { &*thread::current() }.inner_copy_of(self.stack()) {
            InnerCopy::Begun(inner) => Some(inner),
            InnerCopy::Expected | InnerCopy::None => None,
        };
        let decision = Decision { instead: None, traffic: inner.unwrap_or(known).traffic(copy.bytes) };
        match inner {
            _ if self.is_of_driver() => {
                self.leave(Standing::Inside);
                self.count_copy(decision, ret);
            }
            Some(inner) => {
                self.count(ret);
                self.end_inner(inner, decision, running, ret);
            }
            None => self.count(ret),
        }
        self.end(running);
        let path = self.path(running, decision, ret);
        // A child that was forked inside the call returns from it as well: the record is its parent's.
        if !only_forwards() {
            self.note_subject(running, values, decision);
        }
        self.record(running, ret, decision, path);
        if VALIDATE.is_on() {
            self.look_at(route, values, ret, path);
        }
    }

    /// Completes the driver's copy inside it, which is taken to have been answered the same: nobody has seen that.
    fn end_inner(self, inner: Known, decision: Decision<'_>, running: Running, ret: Code) {
        let Some(&function) = Function::ALL.get(usize::from(inner.function())) else { return };
        let inner = Call::new(function, self.stack());
        inner.leave(Standing::Inside);
        inner.count_copy(decision, ret);
        // SAFETY: the block is this thread's own; the reference ends with the statement.
        unsafe { &mut *thread::current() }
            .set_path(decision.traffic.filter(|_| ret == Code::SUCCESS).map(|traffic| traffic.path));
        if let Some(record) = running.begun().filter(|_| !only_forwards()) {
            record.is_made_by(function as u8);
        }
    }

    /// Has the next copy like this be familiar: one that has succeeded, and of which nothing was to be said.
    #[inline(never)]
    pub(crate) fn keep_familiar(self, running: Running, values: &[Value]) {
        let Some(copy) = StreamCopy::new(self.function(), values) else { return };
        let is_outermost = running.is_outermost();
        let is_enough = |known: Known| !is_outermost || known.has(Known::CLEAN);
        // SAFETY: the block is this thread's own; no other reference to it lives.
        let thread = unsafe { &mut *thread::current() };
        if !thread.attempts.is_one_due() {
            return;
        }
        let number = changes::now();
        // It was time to look at it, or something else was in the way.
        if familiar::find(thread.shard, &mut thread.finder, &copy, number).is_some_and(|(known, _)| is_enough(known)) {
            return;
        }
        thread.place = ACCESS.gate().own(thread.shard);
        thread.counters = counters::own(thread.shard);
        let number = changes::about_to_keep();
        let habits = self.habits(values);
        let of = (thread.shard, thread.tag(), &mut thread.finder);
        let is_kept = habits.is_some_and(|habits| {
            let all = (&RealDriver, &ACCESS, &VALIDATE);
            familiar::keep(all, number, of, (self.function(), values), is_outermost, habits)
        });
        thread.attempts.went(is_kept);
    }

    /// What is done with copies like this besides; none if that takes the ordinary way. Not what was done with this one: somebody
    /// may have begun to listen meanwhile.
    fn habits(self, values: &[Value]) -> Option<Habits> {
        let records = records_unshown()?;
        // Where reading the clock takes a call, that is most of what a record costs.
        if records && trace::file()?.now_at_once().is_none() {
            return None;
        }
        let timing = match self.is_of_driver() && records {
            true => timing::of(self.function(), values),
            false => GpuTiming::Off,
        };
        (timing != GpuTiming::All).then_some(Habits { records, samples: timing == GpuTiming::Sample })
    }
}

/// Whether a copy that the program makes is to be looked at in the ordinary way: because it is time to, because of what the call
/// before has left, or because it may be one of too many small ones. Who looks at once leaves it to the next to note that.
#[inline(always)]
fn is_to_be_looked_at<const AT_ONCE: bool>(thread: &mut Thread, line: &Line, site: usize) -> bool {
    let is_due = line.is_look_due() || thread.is_look_due;
    if is_due && !AT_ONCE {
        thread.is_look_due = true;
        line.count();
    }
    is_due || !thread.owes_nothing() || thread.run.may_become_small(site)
}

/// What is known of a copy that the thread makes, while the number of changes is this; and where it is kept.
#[inline(always)]
fn find<const AT_ONCE: bool>(thread: &mut Thread, copy: &StreamCopy, number: u64) -> Option<(Known, &'static Line)> {
    match AT_ONCE {
        true => familiar::find_last(&mut thread.finder, copy, number),
        false => familiar::find(thread.shard, &mut thread.finder, copy, number),
    }
}

/// The number of the place in the code that a copy comes from, if it has one already.
#[inline(always)]
fn number_of_site<const AT_ONCE: bool>(thread: &mut Thread, site: usize) -> Option<u16> {
    /// One that the thread's last copies did not come from.
    #[cold]
    #[inline(never)]
    fn find(thread: &mut Thread, site: usize) -> Option<u16> {
        let number = trace::file()?.known_site(site).filter(|&number| number != 0)?;
        thread.note_site(0, site, number);
        Some(number)
    }
    thread.known_site(0, site).or_else(|| if AT_ONCE { None } else { find(thread, site) })
}

/// Enters the gate, if it is open and nothing has changed since the number was this.
#[inline(always)]
fn enter(thread: &mut Thread, number: u64) -> bool {
    let Some(place) = thread.place.filter(|_| !thread.inside) else { return false };
    place.enter();
    // From here on a change that is not seen is one that waits for us. Nor has a signal handler's copy been taken for the one that
    // the runtime's expects: that stands in the gate until this one has returned.
    if changes::now() != number || thread.was_inside() {
        place.leave();
        return false;
    }
    true
}

/// Leaves the gate.
#[inline(always)]
fn leave(thread: &mut Thread) {
    thread.inside = false;
    compiler_fence(SeqCst);
    if let Some(place) = thread.place {
        place.leave();
    }
}

/// Notes the devices of a copy.
#[inline(always)]
fn is_between(record: Begun, known: Known) {
    let [src, dst] = known.devices();
    record.between(Some(src), Some(dst));
}

/// Completes the record of a familiar copy. What is known of it is known by the driver's, if there is one.
#[inline(always)]
fn complete(thread: &mut Thread, record: Begun, bytes: u64, known: Known) {
    /// Off the way of most calls.
    #[cold]
    #[inline(never)]
    fn calibrate(thread: &mut Thread, now: u64) {
        if let Some(trace) = trace::file() {
            trace.calibrate_if_due(now);
            thread.calibration_due = trace.calibration_due();
        }
    }
    /// Off the way of most calls.
    #[cold]
    #[inline(never)]
    fn make_room(thread: &mut Thread) {
        if let Some(trace) = trace::file() {
            trace.make_room(&mut thread.segment);
        }
    }
    let end = trace::time_stamp();
    record.takes(known.path());
    record.copied(end);
    timing::count(thread, bytes);
    // Here there is less to be saved for it than before the next.
    if !thread.segment.has_room() {
        make_room(thread);
    }
    if end >= thread.calibration_due {
        calibrate(thread, end);
    }
}
