//! Copies of the driver: which path they take, and what is called in place of one that CUDA refuses to capture.

use super::arrival::Call;
use super::decision::{Decision, How, Reason};
use super::{mode, recording, thread};
use crate::api::{CopyKind, Effect};
use crate::model::{Memcpy, Traffic};
use crate::objects::captures;
use crate::objects::streams::Stream;
use crate::policy::access::Circumstances;
use crate::policy::{ACCESS, STAGING, capture};
use crate::real::driver::{self, CaptureStatus, ReadyCopy, RealDriver};
use crate::record;

/// Decides about a copy: without a lock and without a question, if its path is decided already.
#[inline(never)]
pub(super) fn decide(call: &Call<'_>) -> Decision {
    let Some(copy) = call.request.copy() else { return Decision::new(How::Forward(Reason::NotOurs)) };
    if !may_be_captured(copy)
        && let Some((traffic, places)) = ACCESS.decided_between(copy)
    {
        thread::current().endpoints.keep(copy, places);
        return staged_or_real(copy, Some(traffic));
    }
    consider(call, copy)
}

/// A copy on this path is staged by the shim, or made by the real function.
#[inline(always)]
fn staged_or_real(copy: &Memcpy<'_>, traffic: Option<Traffic>) -> Decision {
    let is_staged = traffic.is_some_and(|traffic| STAGING.wants(copy, traffic.path));
    Decision::copy(if is_staged { How::Staged } else { How::Real }, traffic)
}

/// Whether the copy may be on a stream that is being captured.
#[inline(always)]
fn may_be_captured(copy: &Memcpy<'_>) -> bool {
    copy.stream.is_some() && captures::may_be_under_way()
}

/// Whether CUDA refuses to capture it.
#[inline(always)]
fn is_refused_in_capture(call: &Call<'_>) -> bool {
    matches!(call.function().effect(), Effect::Copy(CopyKind { is_refused_in_capture: true, .. }))
}

/// Whether a stream is being captured, as far as that is known, and whether that is for a graphics API.
pub(super) fn is_captured(stream: usize, per_thread: bool) -> (Option<bool>, bool) {
    let (status, is_for_graphics) = capture_status(stream, per_thread);
    (status.map(|status| status == CaptureStatus::Active), is_for_graphics)
}

/// A query like any of the program's own, with nothing of ours around it: most copies are not being captured. The driver is not asked
/// about a capture for a graphics API.
fn capture_status(stream: usize, per_thread: bool) -> (Option<CaptureStatus>, bool) {
    if captures::is_for_graphics(Stream::new(stream, per_thread, thread::id())) {
        return (Some(CaptureStatus::Active), true);
    }
    (driver::capture_status(stream, per_thread), false)
}

/// Decides about a copy about which something has to be found out.
#[cold]
#[inline(never)]
fn consider(call: &Call<'_>, copy: &Memcpy<'_>) -> Decision {
    thread::current().endpoints.forget();
    let (captured, is_for_graphics) = match copy.stream.filter(|_| may_be_captured(copy)) {
        Some(stream) => {
            let (status, is_for_graphics) = capture_status(stream, call.function().per_thread());
            thread::current().capture_was_lost.set(status == Some(CaptureStatus::Lost));
            (status.map(|status| status == CaptureStatus::Active), is_for_graphics)
        }
        None => (Some(false), false),
    };
    let is_captured = captured == Some(true);
    let is_refused = is_captured && !is_for_graphics && is_refused_in_capture(call);
    let as_captured = |traffic: Traffic| if is_captured { traffic.captured() } else { traffic };
    if !is_refused && let Some(traffic) = ACCESS.decided(copy) {
        return staged_or_real(copy, Some(as_captured(traffic)));
    }
    let considered = mode::unseen(|| {
        let is_exhausted = mode::is_exhausted();
        if !is_exhausted {
            recording::note_gpus_before_a_copy();
        }
        // If the driver does not report the capture's status, assume that the thread captures.
        let thread_captures = captured != Some(false) || captures::is_capturing(thread::id());
        let contexts = [copy.src_named.context(), copy.dst_named.context()];
        let on = Circumstances { contexts, thread_captures, ..Circumstances::default() };
        let traffic = if is_exhausted { None } else { ACCESS.consider(&RealDriver, copy, on) };
        let instead = if is_refused { capturable(call, copy) } else { None };
        Some((traffic.map(as_captured), instead))
    });
    let Some((traffic, instead)) = considered else { return Decision::new(How::Forward(Reason::OwnCode)) };
    match instead {
        Some(copy) => Decision::copy(How::Captured(copy.note), traffic),
        None => staged_or_real(copy, traffic),
    }
}

/// The call that takes the place of a copy on a stream that is being captured.
fn capturable(call: &Call<'_>, copy: &Memcpy) -> Option<ReadyCopy> {
    match capture::capturable(&RealDriver, call.function(), copy) {
        None => {
            record::log::decided(call.function(), capture::why_refused());
            None
        }
        Some(replacement) => {
            let ready = driver::ready(&replacement)?;
            record::log::decided(call.function(), ready.note);
            Some(ready)
        }
    }
}
