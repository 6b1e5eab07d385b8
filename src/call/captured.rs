//! Batches on streams that are being captured, where CUDA refuses them; what takes their place says [`crate::policy::batches`].

use std::mem::ManuallyDrop;

use super::arrival::Call;
use super::{copy, mode, read, thread, validate};
use crate::api::abi::{Code, Value};
use crate::api::{Copies, Effect, FAIL_INDEX, Layer};
use crate::model::{Finding, Rule};
use crate::objects::captures;
use crate::policy::VALIDATE;
use crate::policy::batches::{self, Missing};
use crate::real::driver::{self, RealDriver};
use crate::record;

/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.
const REFUSED: Code = Code(900);

/// Whether a batch may be one that CUDA refuses to capture.
pub(super) fn may_be_refused(call: &Call<'_>) -> bool {
    matches!(call.function().effect(), Effect::Copies(Copies::batch | Copies::batch_3d))
        && captures::may_be_under_way()
        && call.function().layer() != Layer::Hip
}

/// Makes a batch on a stream that may be captured, by the real function or, if that refuses it for the capture, copy by copy.
#[inline(never)]
pub(super) fn make(call: &Call<'_>, real: impl Fn() -> Code) -> Code {
    let thread = thread::current();
    let (depth, before) = thread.enter(call.frame());
    let ret = real();
    thread.leave(&before);
    if depth == 0 {
        thread.put_back(&before);
    }
    if !mode::is_still_on() {
        return ret;
    }
    // The last that was recorded is another call.
    thread.last_record.set(None);
    let is_to_be_captured = call.function().layer() == Layer::Driver && ret == REFUSED;
    let ret = if is_to_be_captured { capture_each(call) } else { ret };
    say_missing(call, ret);
    ret
}

/// Captures the copies of a batch one by one that CUDA has refused to capture, if it can be done.
fn capture_each(call: &Call<'_>) -> Code {
    let function = call.function();
    let on = (call.stream(), function.per_thread());
    let copies = mode::unseen(|| {
        if copy::is_captured(on.0, on.1) != (Some(true), false) {
            return Some(Err(Missing::LOST));
        }
        let each = read::each_alone(&call.request);
        let copies = batches::capturable(&RealDriver, each.as_deref(), on);
        Some(copies.and_then(|copies| driver::ready_all(&copies).ok_or(Missing::REFUSED)))
    });
    let copies = match copies {
        Some(Ok(copies)) => ManuallyDrop::new(copies),
        Some(Err(why)) => {
            thread::current().not_captured.set(Some(why));
            return REFUSED;
        }
        None => return REFUSED,
    };
    // SAFETY: the program has asked for the copies, as a batch.
    let failed = copies.iter().enumerate().find_map(|(index, copy)| match unsafe { copy.make() } {
        Code::SUCCESS => None,
        ret => Some((ret, index)),
    });
    mode::unseen(|| {
        record::log::decided(function, "captured as single copies");
        drop(ManuallyDrop::into_inner(copies));
        Some(())
    });
    let (ret, failed) = failed.unwrap_or((Code::SUCCESS, usize::MAX));
    tell_failed(call, failed);
    ret
}

/// Says of a call of the program, once no other encloses it, that its copies are missing from the graph.
pub(super) fn say_missing(call: &Call<'_>, ret: Code) {
    if ret == REFUSED && captures::may_be_under_way() {
        say_refused(call);
    }
}

#[cold]
#[inline(never)]
fn say_refused(call: &Call<'_>) {
    let thread = thread::current();
    if !thread.is_outermost(call.frame()) {
        return;
    }
    let Some(Missing(why)) = thread.not_captured.take().filter(|_| VALIDATE.is_on()) else { return };
    mode::unseen(|| {
        let what = format!(
            "the batch was refused while its stream is being captured, and its copies are missing from the graph ({why})"
        );
        validate::say(call, &Finding::new(Rule::CaptureBatch, call.function().layer(), what), Some(REFUSED));
    });
}

/// Writes which copy of a batch has failed, or that none has, where the program wants that.
pub(super) fn tell_failed(call: &Call<'_>, failed: usize) {
    let index = call.function().arguments().position(|name| name == FAIL_INDEX);
    if let Some(&Value::Address(output)) = index.and_then(|index| call.request.arguments.get(index))
        && output != 0
    {
        // SAFETY: where the real function writes it.
        unsafe { (output as *mut usize).write_unaligned(failed) };
    }
}
