//! Copies that are read back once they were made, as `P2PSHIM_READBACK` says; and what came of it.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use p2pshim_trace::{OpenRecord, REMOTE};

use super::arrival::Call;
use super::decision::Running;
use super::{context, mode, origin, read, thread};
use crate::api::Layer;
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code};
use crate::api::codes::Numbering;
use crate::model::{Asks, Memcpy, Path, Traffic};
use crate::objects::captures;
use crate::os::{self, alloc};
use crate::policy::readback::{self, FinishedCopy};
use crate::policy::staging::{Difference, Stager, Transfer};
use crate::policy::{ACCESS, READBACK, STAGING, VALIDATE};
use crate::real::driver::{self, RealDriver};
use crate::record;
use crate::record::FindingLine;

/// A call of the program has returned: what it has copied is read back.
pub(super) fn after(call: &Call<'_>, begun: &Running, ret: Code) {
    if READBACK.is_on() && begun.is_outermost() && ret == Code::SUCCESS && call.function().layer() != Layer::Hip {
        match call.request.asks {
            Asks::Batch { stream } => after_each(call, stream, begun.record),
            Asks::Copy(copy) => after_copy(call, &copy, begun),
            _ => {}
        }
    }
}

#[cold]
#[inline(never)]
fn after_copy(call: &Call<'_>, copy: &Memcpy<'_>, begun: &Running) {
    // The program may have overwritten its source by now.
    if !read::may_be_put_off(call.function(), call.request.arguments) {
        return;
    }
    if !VALIDATE.is_on() {
        // Which clears this itself.
        thread::current().is_check_due.store(false, Relaxed);
    }
    // Before that of others is found to be wrong, which may change it.
    let traffic = mode::unseen(|| ACCESS.traffic_now(&RealDriver, copy));
    harvest();
    let reading = mode::unseen(|| begin(call, (copy, traffic?), begun.record));
    go_on(reading, copy);
}

/// Copies of a batch are read back as copies of their own, but what CUDA had to read during the call. Of a sample only so many are looked
/// at.
#[cold]
#[inline(never)]
fn after_each(call: &Call<'_>, stream: usize, record: Option<OpenRecord>) {
    // As above, before any is found to be wrong.
    let copies = to_read(call, stream);
    harvest();
    // A thread may be cancelled where it waits.
    let Some(copies) = copies.map(ManuallyDrop::new) else { return };
    for (parameters, traffic) in copies.iter() {
        let copy = Memcpy::of_driver(parameters, Some(stream)).regular();
        go_on(mode::unseen(|| begin(call, (&copy, (*traffic)?), record)), &copy);
    }
    mode::unseen(|| {
        drop(ManuallyDrop::into_inner(copies));
        Some(())
    });
}

/// The copies of a batch that may be read back.
#[inline(never)]
fn to_read(call: &Call<'_>, stream: usize) -> Option<Vec<(CUDA_MEMCPY3D_PEER, Option<Traffic>)>> {
    const SAMPLED: usize = 8;
    mode::unseen(|| {
        let copies = read::each_alone(&call.request)?;
        let step = if READBACK.is_of_all() { 1 } else { copies.len().div_ceil(SAMPLED).max(1) };
        alloc::collect(copies.into_iter().step_by(step).map(|parameters| {
            let copy = Memcpy::of_driver(&parameters, Some(stream)).regular();
            (parameters, ACCESS.traffic_now(&RealDriver, &copy))
        }))
    })
}

/// Has a copy read back: waits for that, turn after turn, or keeps it for later.
fn go_on(begun: Option<(Box<FinishedCopy>, Box<Transfer>)>, copy: &Memcpy<'_>) {
    let Some((made, mut reading)) = begun else { return };
    for turn in 1.. {
        if !read(&reading) {
            return give_up(made, reading);
        }
        if !made.waits {
            return keep(made, reading);
        }
        match finish_turn(&made, reading, (turn, copy.stream.is_some())) {
            Some(next) => reading = next,
            None => return,
        }
    }
}

#[inline(never)]
fn keep(made: Box<FinishedCopy>, reading: Box<Transfer>) {
    mode::unseen(|| READBACK.keep(made, reading));
}

/// Begins to read. The copy's stream may have no room: then signals arrive. Whether all was submitted.
#[inline(never)]
fn read(reading: &Transfer) -> bool {
    let begun = os::uncancelled(|| driver::staging::begin(reading));
    let read = begun.is_ok() && mode::unseen(|| driver::staging::submit(reading, true, None).is_ok());
    // Whatever became of it, the program's next work comes after what was submitted.
    os::uncancelled(|| driver::staging::end(reading)).is_ok() && read
}

#[inline(never)]
fn give_up(made: Box<FinishedCopy>, reading: Box<Transfer>) {
    mode::unseen(move || {
        STAGING.rings.give_back(&reading.ring);
        drop((made, reading));
    });
}

/// Has a copy read back, if it is one of those.
#[inline(never)]
fn begin(
    call: &Call<'_>,
    (copy, traffic): (&Memcpy<'_>, Traffic),
    record: Option<OpenRecord>,
) -> Option<(Box<FinishedCopy>, Box<Transfer>)> {
    // A copy that is queued in a capture is not made, and a default stream must not be asked for anything beside one.
    if captures::may_be_under_way() || mode::is_exhausted() || call.function().layer() == Layer::Hip {
        return None;
    }
    let waits = READBACK.wants(copy, &traffic)?;
    let per_thread = call.function().per_thread();
    let context = context::of_copy(copy, per_thread)?;
    let (all, caller) = ((&ACCESS, &RealDriver), (context, per_thread, thread::id()));
    let reading = STAGING.take_to_compare(all, (copy, &traffic, READBACK.is_of_all()), caller)?;
    let (site, own_site) = (call.caller.program_address(), call.caller.return_address());
    let mut origin = origin::of_finding(call, None, true);
    if let Some(origin) = origin.as_mut().filter(|_| site != own_site) {
        // For a nested call the frames only repeat the call site.
        origin.callers.clear();
    }
    let made =
        Box::new(FinishedCopy { function: call.function(), site: site as usize, origin, record, traffic, waits });
    Some((made, reading))
}

/// Waits for a turn of a copy that is read back, and says what came of it. Returns what is to be read in the next, which has a number, if
/// there is one.
#[inline(never)]
fn finish_turn(
    made: &FinishedCopy,
    mut reading: Box<Transfer>,
    (next, has_stream): (usize, bool),
) -> Option<Box<Transfer>> {
    let is_read = has_been_read(&reading);
    mode::unseen(|| {
        let is_late = is_read == Some(false);
        let difference =
            is_read.filter(|_| !is_late).and_then(|_| reading.difference(RealDriver.bytes_of(&reading.ring)));
        if is_late {
            READBACK.mark_late(&made.traffic);
        }
        // A late copy is compared later, as the program's next work in its stream comes behind: of others the program may do what it likes
        // with its memory. On a small stack another thread's call says what differs.
        if is_late && has_stream || difference.is_some() && !os::has_room() {
            READBACK.keep(Box::new(made.clone()), reading);
            return None;
        }
        let is_same = is_read == Some(true) && difference.is_none();
        let has_next = is_same && reading.be_step(next);
        if has_next && !captures::may_be_under_way() {
            return Some(reading);
        }
        STAGING.rings.give_back(&reading.ring);
        if difference.is_some() || is_same && !has_next {
            say(made, difference);
        }
        None
    })
}

/// Waits until that is so; none if it will not be.
fn has_been_read(reading: &Transfer) -> Option<bool> {
    /// Nothing of ours waits for ever.
    const PATIENCE: Duration = Duration::from_secs(1);
    mode::wait_while(PATIENCE, || RealDriver.is_over(&reading.ring) == Ok(false));
    mode::unseen(|| RealDriver.is_over(&reading.ring).ok())
}

/// Says what came of copies that have been read back meanwhile.
pub(super) fn harvest() {
    if READBACK.is_on() {
        harvest_now();
    }
}

#[cold]
#[inline(never)]
fn harvest_now() {
    mode::unseen(|| {
        if !os::has_room() {
            return;
        }
        for (made, difference) in READBACK.done(&STAGING, &RealDriver) {
            say(&made, difference);
        }
    });
}

fn say(made: &FinishedCopy, difference: Option<Difference>) {
    READBACK.count(made, difference.is_some());
    let Some(difference) = difference else { return };
    let traffic = &made.traffic;
    let passes = match traffic.path {
        Path::Direct if traffic.src.max(traffic.dst) >= REMOTE => None,
        Path::Direct => ACCESS.verify_again(&RealDriver, [traffic.src, traffic.dst]),
        _ => {
            STAGING.leave_to_driver(traffic);
            None
        }
    };
    let finding = readback::finding(made, &difference, passes);
    let times = VALIDATE.count(made.site, finding.rule);
    if let Some(record) = made.record {
        record.breaks(finding.rule as u8);
    }
    // Such a finding is of success, and has no code.
    let numbering = Numbering::Usual;
    let said = FindingLine { function: made.function, numbering, finding: &finding, ret: Some(Code::SUCCESS) };
    record::finding::keep(&said);
    record::log::finding(&said, times, || read::call_site(made.site as *const c_void, made.origin.clone()));
}
