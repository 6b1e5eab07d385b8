//! Copies that the shim takes through the host in the driver's place.

use std::time::{Duration, Instant};

use super::arrival::Call;
use super::{mode, thread};
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code};
use crate::model::{Memcpy, Traffic};
use crate::os;
use crate::policy::staging::Staged;
use crate::policy::{ACCESS, Driver, STAGING, VALIDATE, capture};
use crate::real::driver::{self, RealDriver};

/// Whether a call's copy on this path is staged here.
#[inline(always)]
pub(super) fn wants(copy: &Memcpy<'_>, traffic: Option<&Traffic>) -> bool {
    traffic.is_some_and(|traffic| STAGING.wants(copy, traffic.path))
}

/// Makes a copy that is to be staged; none if there is not what that takes, and the real function is to be called. What it
/// takes may take milliseconds to make, so that the call's record has begun before.
#[cold]
#[inline(never)]
pub(super) fn make(call: &Call<'_>, traffic: Option<Traffic>) -> Option<Code> {
    take(call, call.request.copy()?, &traffic?).as_ref().map(submit)
}

/// What became of a batch whose copies were made one by one.
pub(super) struct Each {
    pub(super) ret: Code,
    /// The first that failed.
    pub(super) failed: usize,
    /// Whether all that had to be staged were.
    pub(super) is_staged: bool,
}

/// Makes the copies of a batch one by one in its stream, as calls of their own ask for them; with each that is to be staged stands from
/// where to where it goes.
pub(super) fn make_each(call: &Call<'_>, stream: usize, copies: &[(CUDA_MEMCPY3D_PEER, Option<Traffic>)]) -> Each {
    let mut is_staged = true;
    let per_thread = call.function().per_thread();
    let context = mode::unseen(|| stream_context(stream, per_thread)).map_or(0, |(context, _)| context);
    for (index, (parameters, traffic)) in copies.iter().enumerate() {
        let copy = Memcpy::of_driver(parameters, Some(stream)).regular();
        let staged = traffic.and_then(|traffic| take(call, &copy, &traffic));
        is_staged &= staged.is_some() || !traffic.is_some_and(|traffic| traffic.path.has_to_be_staged_by_us());
        let ret = match staged {
            Some(staged) => submit(&staged),
            None => driver::make_copy(context, parameters, stream, per_thread),
        };
        if ret != Code::SUCCESS {
            return Each { ret, failed: index, is_staged };
        }
    }
    Each { ret: Code::SUCCESS, failed: usize::MAX, is_staged }
}

/// What a copy is staged with, if there is what that takes.
fn take(call: &Call<'_>, copy: &Memcpy<'_>, traffic: &Traffic) -> Option<Staged> {
    if mode::is_exhausted() {
        return None;
    }
    mode::unseen(|| {
        let per_thread = call.function().per_thread();
        // A synchronous copy is not made beside a capture: CUDA may refuse it.
        if copy.stream.is_none() && capture::may_be_under_way() {
            return None;
        }
        let context = stream_context(copy.stream.unwrap_or(0), per_thread)?;
        if !traffic.path.has_to_be_staged_by_us() && ACCESS.is_refused_for_rights(&RealDriver, copy) {
            return None;
        }
        STAGING.take((&ACCESS, &RealDriver), (copy, traffic), context, (per_thread, thread::id()))
    })
}

/// The context of the caller's stream. Without a current one no copy is made.
pub(super) fn stream_context(stream: usize, per_thread: bool) -> Option<(usize, u64)> {
    let current = RealDriver.current_context()?;
    let context = match stream {
        0..=2 => current,
        _ if VALIDATE.is_destroyed(stream) => return None,
        _ => RealDriver.stream_context(stream, per_thread)?,
    };
    Some((context, RealDriver.context_id(context)?))
}

/// Makes a copy that is staged.
fn submit(staged: &Staged) -> Code {
    /// `CUDA_ERROR_UNKNOWN`: our own code has failed when some of it may have been submitted.
    const UNKNOWN: Code = Code(999);
    let ret = mode::unseen(|| {
        let ret = driver::staging::submit(staged);
        STAGING.give_back(&staged.ring);
        Some(ret)
    });
    let ret = ret.unwrap_or(UNKNOWN);
    // As a call of the program's that waits: signals arrive, and a cancelled thread leaves.
    if staged.blocks && ret == Code::SUCCESS {
        driver::staging::wait(staged);
    }
    ret
}

/// Waits until no staged copy is under way that a context takes part in: the program is about to end it.
#[cold]
#[inline(never)]
pub(super) fn before_context_ends(context: Option<usize>) {
    /// Nothing of ours waits for ever.
    const PATIENCE: Duration = Duration::from_secs(10);
    let since = os::uncancelled(Instant::now);
    let is_in_use = || mode::unseen(|| context.is_some_and(|context| STAGING.is_in_use(&RealDriver, context)));
    while is_in_use() && os::uncancelled(|| since.elapsed()) < PATIENCE {
        os::uncancelled(|| std::thread::sleep(Duration::from_micros(50)));
    }
}
