//! Copies that the shim takes through the host in the driver's place.

use std::ops::Range;
use std::time::Duration;

use super::arrival::Call;
use super::thread::{self, STAGES};
use super::{context, mode, read, readback};
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code};
use crate::model::{Memcpy, Traffic};
use crate::objects::captures;
use crate::objects::streams::Stream;
use crate::os;
use crate::policy::staging::{Share, StepAdmission, Transfer};
use crate::policy::{ACCESS, Driver, STAGING};
use crate::real::driver::{self, RealDriver};
use crate::record::log;

/// Makes a copy that is to be staged; none if the real function is to be called instead. The ring of a copy may take milliseconds to
/// make, so that the call's record has begun before.
#[inline(always)]
pub(super) fn make(call: &Call<'_>, copy: &Memcpy<'_>, traffic: Option<Traffic>) -> Option<Code> {
    let traffic = traffic?;
    if !read::may_be_put_off(call.function(), call.request.arguments) {
        return None;
    }
    make_one(call, copy, &traffic, None)
}

/// Makes one of several copies of a call, of which it may be known how much of a ring it is to use.
fn make_one(call: &Call<'_>, copy: &Memcpy<'_>, traffic: &Traffic, share: Option<Share>) -> Option<Code> {
    let mut staged = None;
    prepare(call, (copy, traffic, share), &mut staged);
    Some(submit(staged.as_mut()?))
}

/// Finds out whether a copy is staged here, and with what: in place, since it is large.
#[inline(never)]
fn prepare(
    call: &Call<'_>,
    (copy, traffic, share): (&Memcpy<'_>, &Traffic, Option<Share>),
    staged: &mut Option<Transfer>,
) {
    mode::unseen(|| {
        // A synchronous copy is not made beside a capture: CUDA may refuse it.
        if mode::is_exhausted() || copy.stream.is_none() && captures::may_be_under_way() {
            return None;
        }
        let share = share.or_else(|| STAGING.share(&RealDriver, copy, traffic))?;
        let per_thread = call.function().per_thread();
        let context = context::of_stream(copy.stream.unwrap_or(0), per_thread)?;
        if !traffic.path.has_to_be_staged_by_us() && ACCESS.is_refused_for_rights(&RealDriver, copy) {
            return None;
        }
        let caller = (context, per_thread, thread::id());
        *staged = STAGING.take((&ACCESS, &RealDriver), (copy, traffic, share), caller);
        STAGING.rings.keep(&staged.as_ref()?.ring, thread::id());
        Some(())
    });
}

/// The result of a batch whose copies p2pshim has submitted one by one.
pub(super) struct BatchResult {
    pub(super) ret: Code,
    /// The first that failed.
    pub(super) failed: usize,
    /// Whether all that had to be staged were.
    pub(super) is_staged: bool,
}

/// A copy of a batch, as a call of its own asks for it. If it is to be staged, also from where to where it goes, and how much of a ring it is
/// to use.
pub(super) type OfBatch = (CUDA_MEMCPY3D_PEER, Option<(Traffic, Share)>);

/// Makes the copies of a batch one by one in its stream.
#[inline(never)]
pub(super) fn make_each(call: &Call<'_>, stream: usize, copies: &[OfBatch]) -> BatchResult {
    let mut is_staged = true;
    let per_thread = call.function().per_thread();
    let context = mode::unseen(|| context::of_stream(stream, per_thread)).map_or(0, |(context, _)| context);
    for (index, (parameters, staged)) in copies.iter().enumerate() {
        let copy = Memcpy::of_driver(parameters, Some(stream)).regular();
        let made = staged.and_then(|(traffic, share)| make_one(call, &copy, &traffic, Some(share)));
        is_staged &= made.is_some() || !staged.is_some_and(|(traffic, _)| traffic.path.has_to_be_staged_by_us());
        let ret = made.unwrap_or_else(|| driver::make_copy(context, parameters, stream, per_thread));
        if ret != Code::SUCCESS {
            return BatchResult { ret, failed: index, is_staged };
        }
    }
    BatchResult { ret: Code::SUCCESS, failed: usize::MAX, is_staged }
}

/// Makes a copy that is staged, step after step. Each is a copy of its own behind the last, and leaves nothing that the next needs: between
/// them, and while streams have no room, signals arrive, whose handlers may not come back.
#[inline(never)]
fn submit(staged: &mut Transfer) -> Code {
    let (mut number, mut ret) = (0, Code::SUCCESS);
    thread::current().set_unfinished(STAGES, true);
    while ret == Code::SUCCESS && staged.be_step(number) {
        ret = make_step(staged);
        number += 1;
    }
    if mode::is_still_on() {
        mode::unseen(|| STAGING.rings.release(&staged.ring, thread::id()));
    }
    thread::current().set_unfinished(STAGES, false);
    // As in a synchronizing call of the program: signals arrive, and pthread_cancel unwinds through.
    if staged.blocks && ret == Code::SUCCESS {
        driver::staging::wait(&staged.ring);
    }
    ret
}

/// Makes a step of a copy. The program's stream gets work as from the program itself, which may have to wait for room there.
fn make_step(step: &Transfer) -> Code {
    /// `CUDA_ERROR_UNKNOWN`: our own code has failed when some of it may have been submitted.
    const UNKNOWN: Code = Code(999);
    /// `CUDA_ERROR_NOT_INITIALIZED`.
    const NOT_INITIALIZED: Code = Code(3);
    const CONTEXT_IS_DESTROYED: Code = Code(709);
    if let Err(code) = driver::staging::begin(step) {
        return code;
    }
    loop {
        // A child that was forked by a handler has no copy to make.
        if !mode::is_still_on() {
            return NOT_INITIALIZED;
        }
        match mode::unseen(|| Some(submit_step(step))) {
            None => return UNKNOWN,
            // Whatever became of it, the program's next work comes after what was submitted.
            Some(Ok(made)) => return driver::staging::end(step).and(made).err().unwrap_or(Code::SUCCESS),
            Some(Err(StepAdmission::Gone)) => return CONTEXT_IS_DESTROYED,
            Some(Err(_)) => {
                readback::harvest();
                os::uncancelled(|| std::thread::sleep(Duration::from_micros(20)));
            }
        }
    }
}

/// Submits a step of a copy to its ring, which is kept: what came of it, or why the ring does not take it.
fn submit_step(step: &Transfer) -> Result<Result<(), Code>, StepAdmission> {
    let (is_divided_anew, mark) = match STAGING.rings.begin_step(&RealDriver, step) {
        StepAdmission::Taken { is_divided_anew, mark } => (is_divided_anew, mark),
        not_taken => return Err(not_taken),
    };
    let made = driver::staging::submit(step, is_divided_anew, Some(mark));
    STAGING.rings.end_step(&step.ring, thread::id(), made.is_ok());
    Ok(made)
}

/// A call begins while a copy of this thread is staged: a signal handler makes the call, or has left the copy by `longjmp`. Then the copy's
/// stream may not yet wait for chunks that were submitted, and nobody else will see to it. `is_within` says that the copy may continue.
#[cold]
#[inline(never)]
pub(super) fn have_streams_follow(is_within: bool) {
    // To have a stream follow work of no capture would end its capture.
    if captures::may_be_under_way() {
        return;
    }
    for (ring, stream) in mode::unseen(|| STAGING.rings.kept_by(thread::id())) {
        let _ = driver::staging::have_caller_follow((stream, false), &ring);
        if !is_within {
            mode::unseen(|| STAGING.rings.release(&ring, thread::id()));
        }
    }
    if !is_within {
        thread::current().set_unfinished(STAGES, false);
    }
}

// ---- What would take a copy's memory away ----
//
// The longer the driver's call holds the program, the less it can take away too early. Ours does not hold it.

/// Nothing of ours waits for ever.
const PATIENCE: Duration = Duration::from_secs(10);

/// Memory is about to be freed in a stream: that waits for a staged copy of it in another.
#[cold]
#[inline(never)]
pub(super) fn before_free(start: u64, stream: usize, per_thread: bool) {
    mode::unseen(|| {
        // Memory that is freed in a capture belongs to a graph.
        if captures::may_be_under_way() {
            return None;
        }
        let user = Stream::new(stream, per_thread, thread::id());
        for (mark, [src, dst]) in STAGING.rings.copies_of(&RealDriver, &allocation(start), Some(user)) {
            // If that is refused, so is what the program asks of the stream.
            let _ = driver::staging::have_program_follow((stream, per_thread), mark);
            if log::Once::FreedEarly.mark_logged() {
                let what = "another stream frees memory of a copy that p2pshim stages and that has not ended: that \
                            stream waits for the copy";
                log::pair_info(src, dst, format_args!("{what}"));
            }
        }
        Some(())
    });
}

/// Memory is about to be unmapped, so many bytes or all that begins there: a staged copy of it is waited for.
#[cold]
#[inline(never)]
pub(super) fn before_unmap(start: u64, bytes: u64) {
    let memory = if bytes == 0 { mode::unseen(|| allocation(start)) } else { start..start.saturating_add(bytes) };
    mode::wait_while(PATIENCE, || !STAGING.rings.copies_of(&RealDriver, &memory, None).is_empty());
}

/// The allocation that an address is of.
fn allocation(address: u64) -> Range<u64> {
    let known = ACCESS.known(address).map(|(_, range)| range);
    let asked = || RealDriver.memory(address).map(|memory| memory.range.0..memory.range.0 + memory.range.1);
    known.or_else(asked).unwrap_or(address..address.saturating_add(1))
}

/// Waits until no staged copy is under way that a context takes part in: the program is about to end it.
#[cold]
#[inline(never)]
pub(super) fn before_context_ends(context: Option<usize>) {
    mode::wait_while(PATIENCE, || context.is_some_and(|context| STAGING.rings.is_in_use(&RealDriver, context)));
}
