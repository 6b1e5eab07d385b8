//! The record of a call in the trace: begun when the call begins, since it may never return, and completed when it has.

use std::ffi::c_void;
use std::sync::OnceLock;

use p2pshim_host::verdicts;
use p2pshim_trace::{Capture, OpenRecord, PART};

use super::arrival::Call;
use super::decision::{Decision, How};
use super::thread::{self, Thread};
use super::{mode, peers, timing};
use crate::api::abi::Code;
use crate::api::{Effect, Layer};
use crate::model::{Asks, Part, Path, Traffic};
use crate::os::ThreadEnd;
use crate::policy::VerifyBackend;
use crate::real::driver::{self, RealDriver};
use crate::record::log;
use crate::record::trace::{self, Trace};

/// Begins the record of a call that `depth` calls enclose, if the trace has room for it.
#[inline(never)]
pub(crate) fn begin(call: &Call<'_>, decision: &Decision, depth: usize) -> Option<OpenRecord> {
    let (trace, thread) = (trace::file()?, thread::current());
    let address = call.caller.return_address() as usize;
    let site = trace.known_site(address).unwrap_or_else(|| mode::unseen(|| trace.new_site(address)));
    if depth == 0 {
        thread.inner_record.set(None);
        thread.timing_cost.set(0);
    }
    thread.last_record.set(None);
    let begun = begin_record(trace, thread, (depth, call.function() as u8), site, || trace.now())?;
    note(call, decision, begun);
    Some(begun)
}

/// Begins the next record of a thread, of a call that began at `start`; none if there is no room for any, which is counted.
pub(super) fn begin_record(
    trace: &Trace,
    thread: &Thread,
    (depth, function): (usize, u8),
    site: u16,
    start: impl Fn() -> u64,
) -> Option<OpenRecord> {
    let begin = || thread.segment.begin(depth, function, site, start());
    let begun = begin().or_else(|| if has_more_room(trace, thread) { begin() } else { None });
    if begun.is_none() {
        trace::drop_call();
    }
    begun
}

/// Has a thread have room in the trace, if there is any.
#[cold]
#[inline(never)]
pub(super) fn has_more_room(trace: &Trace, thread: &Thread) -> bool {
    !trace.is_full()
        && mode::unseen(|| {
            leaves_its_segment();
            trace.extend(&thread.segment).inspect_err(|why| log::untraced(why)).unwrap_or_default()
        })
}

/// Has the calling thread give back what it leaves of its part of the file when it ends.
fn leaves_its_segment() {
    static END: OnceLock<Option<ThreadEnd>> = OnceLock::new();
    extern "C" fn ends(_: *mut c_void) {
        if let Some(trace) = trace::file() {
            trace.take_back(&thread::current().segment);
        }
    }
    END.get_or_init(|| ThreadEnd::new(ends)).iter().for_each(|end| end.note(thread::current()));
}

/// Records what a call that has returned has copied between devices, behind its own record.
fn record_parts(call: OpenRecord, depth: usize, parts: &[Part]) {
    let (Some(trace), thread) = (trace::file(), thread::current()) else { return };
    for Part { traffic, copies } in parts {
        let Some(record) = begin_record(trace, thread, (depth + 1, PART), 0, || trace.now()) else { return };
        record.between(Some(traffic.src), Some(traffic.dst));
        record.takes(traffic.path.number());
        record.set_part_of(call, (*copies).into(), traffic.bytes);
    }
}

/// Notes in a record what the call is about, and which path it is to take.
pub(crate) fn note(call: &Call<'_>, decision: &Decision, record: OpenRecord) {
    let (request, copied) = (&call.request, decision.copied.parts());
    let stream = request.stream().unwrap_or_default() as u64;
    let ([src, dst], bytes) = request.copied();
    // A batch has a record for each of its parts.
    if is_batch(call) {
        return record.copies(0, 0, copied.iter().fold(0, |sum, part| sum.saturating_add(part.traffic.bytes)), stream);
    }
    record.copies(src, dst, bytes, stream);
    match decision.traffic() {
        Some(Traffic { src, dst, path, .. }) => {
            record.between(Some(src), Some(dst));
            record.takes(path.number());
        }
        None => {
            let [src, dst] = request.named_devices();
            record.between(src, dst);
        }
    }
}

fn is_batch(call: &Call<'_>) -> bool {
    matches!(call.request.asks, Asks::Batch { .. })
}

/// Notes in the record of a call that enables or disables access which device's access it is.
#[cold]
#[inline(never)]
fn add_current_device(call: &Call<'_>, record: OpenRecord) {
    if let Some(device) = peers::current_device(call).and_then(|device| u8::try_from(device).ok()) {
        let [_, peer] = call.request.named_devices();
        record.between(Some(device), peer);
    }
}

/// Completes the record of a call that has returned.
#[inline(never)]
pub(crate) fn end(
    call: &Call<'_>,
    decision: &Decision,
    depth: usize,
    record: OpenRecord,
    (given, path): (Code, Option<Path>),
) {
    /// `cudaErrorStreamCaptureUnsupported`, of all runtimes, and the driver's.
    const CAPTURED: Code = Code(900);
    let Some(trace) = trace::file() else { return };
    if matches!(call.function().effect(), Effect::Access(_)) {
        add_current_device(call, record);
    }
    let (end, thread) = (trace.now(), thread::current());
    let is_of_driver = call.function().layer() == Layer::Driver;
    if is_of_driver {
        thread.inner_record.set(Some(record));
    } else if let (Effect::Copy(_), Some(inner)) = (call.function().effect(), thread.inner_record.take()) {
        record.like(inner);
    }
    // One that has failed went nowhere.
    record.takes(path.filter(|_| !is_batch(call)).map_or(0, Path::number));
    let capture = match decision.how {
        How::Captured(_) => Capture::Rewritten,
        _ if given == CAPTURED => Capture::Forwarded,
        _ => Capture::None,
    };
    // Of measuring inside it the call knows nothing.
    record.done(end.saturating_sub(thread.timing_cost.get()), call.caller.recorded(call.function(), given), capture);
    if timing::is_timed(call.function()) {
        timing::count(thread, record.bytes());
    }
    thread.last_record.set(Some(record));
    if is_batch(call) && given == Code::SUCCESS && call.function().layer() != Layer::Runtime {
        record_parts(record, depth, decision.copied.parts());
    }
    if trace.is_calibration_due(end) || (is_of_driver && trace.wants_gpus()) {
        describe(trace, end, is_of_driver && given == Code::SUCCESS);
    }
}

/// Notes in the trace what is noted now and then: what time it is by all clocks, and, where the driver can be asked, which
/// GPUs there are.
#[cold]
#[inline(never)]
fn describe(trace: &Trace, now: u64, can_ask: bool) {
    trace.calibrate_if_due(now);
    if can_ask && trace.may_note_gpus() {
        mode::unseen(note_gpus_of_driver);
    }
}

/// Notes which GPUs there are, if the driver tells: the first copy may never return.
pub(super) fn note_gpus_before_a_copy() {
    if let Some(trace) = trace::file()
        && trace.wants_gpus()
        && RealDriver.device_count() > 0
        && trace.may_note_gpus()
    {
        note_gpus_of_driver();
    }
}

fn note_gpus_of_driver() {
    if let Some(version) = RealDriver.version() {
        trace::version("driver", &format!("{}.{}", version / 1000, version % 1000 / 10));
    }
    let root = RealDriver.gpu(0).and_then(|gpu| gpu.root());
    if let Some(version) = root.and_then(|root| verdicts::kernel_module_of(&root)) {
        trace::version("kernel module", &version);
    }
    note_gpus(&RealDriver, RealDriver.device_count(), |[device, peer]| {
        let [access, rank, atomics] = driver::peer_attributes(device, peer);
        let known = [("access", access), ("performance_rank", rank), ("native_atomics", atomics)];
        known.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?))).collect()
    });
}

/// Notes for the trace which GPUs there are, and what the hardware says of each pair.
pub(super) fn note_gpus(of: &impl VerifyBackend, count: i32, pair: impl Fn([i32; 2]) -> Vec<String>) {
    let count = u8::try_from(count).unwrap_or(0).min(64);
    for device in 0..count {
        if let Some(gpu) = of.gpu(device.into()) {
            trace::gpu(device, &[&gpu.name, &gpu.uuid, &gpu.bus_id]);
        }
    }
    for (device, peer) in (0..count).flat_map(|device| (0..count).map(move |peer| (device, peer))) {
        if device != peer {
            let says = pair([device.into(), peer.into()]);
            trace::peer(device, peer, &says.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
}
