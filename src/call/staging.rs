//! Copies that the shim takes through the host in the driver's place.

use std::time::{Duration, Instant};

use super::arrival::Call;
use super::{mode, thread};
use crate::api::abi::Code;
use crate::model::{Memcpy, Traffic};
use crate::os;
use crate::policy::staging::Staged;
use crate::policy::{ACCESS, Driver, STAGING, VALIDATE};
use crate::real::driver::{self, RealDriver};

/// Whether a call's copy on this path is staged here.
#[inline(always)]
pub(super) fn wants(copy: &Memcpy<'_>, traffic: Option<&Traffic>) -> bool {
    traffic.is_some_and(|traffic| STAGING.wants(copy, traffic.path))
}

/// What a copy is staged with, if there is what that takes.
pub(super) fn take(call: &Call<'_>, copy: &Memcpy<'_>, traffic: &Traffic) -> Option<Staged> {
    if mode::is_exhausted() {
        return None;
    }
    mode::unseen(|| {
        let per_thread = call.function().per_thread();
        let context = stream_context(copy.stream?, per_thread)?;
        if ACCESS.is_refused_for_rights(&RealDriver, copy) {
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
pub(super) fn make(staged: &Staged) -> Code {
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
