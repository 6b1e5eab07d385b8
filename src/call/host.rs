//! Copies between a device and the host. They are forwarded. While a trace is written, large ones have a record in it: the report finds there
//! which of them make up copies between devices.
//!
//! The outermost call is recorded. Copies while a stream may be captured, and those of rows of memory (2D, 3D), are not.
//!
//! Some records have a sample of the bytes. It is read inside the program's own call, which uses the buffer: before a copy from the host, and
//! after a copy to the host that has ended by then, else when the thread next waits for the copy's stream or context. Until then the record has
//! none.

use p2pshim_host::python::Memory as _;
use p2pshim_trace::{Capture, OpenRecord};

use super::arrival::Caller;
use super::mode::Observers;
use super::thread::{self, Download};
use super::{blocked, failures, mode, origin, recording};
use crate::api::abi::{Code, Value};
use crate::api::{Function, Half, Layer};
use crate::model::Path;
use crate::objects::captures;
use crate::objects::memory::Kind;
use crate::objects::streams::Stream;
use crate::os::Memory;
use crate::policy::{ACCESS, Driver};
use crate::real::driver::RealDriver;
use crate::record::trace;

/// Copies of fewer bytes have no record.
const LEAST: u64 = 64 << 10;

/// A copy under way that has a record.
#[derive(Clone, Copy)]
struct HostCopy {
    record: OpenRecord,
    half: Half,
    /// Whether its bytes are sampled and its place in the program is looked for.
    is_looked_at: bool,
    /// The thread's noted call as it was before: a signal handler may copy inside another.
    noted: usize,
}

/// Makes a copy by a function that names its half. `real` calls the real function.
#[inline(always)]
pub(crate) fn half(
    function: Function,
    half: Half,
    caller: Caller,
    arguments: &[Value],
    real: impl Fn() -> Code,
) -> Code {
    make((function, caller), Some(half), arguments, real)
}

/// Makes a regular copy that is not between devices, or a call about which nothing is decided.
#[inline(always)]
pub(super) fn passed_on(by: (Function, Caller), arguments: &[Value], real: impl Fn() -> Code) -> Code {
    make(by, None, arguments, real)
}

#[inline(always)]
fn make(by: (Function, Caller), half: Option<Half>, arguments: &[Value], real: impl Fn() -> Code) -> Code {
    if mode::observers().has(Observers::TRACE) { noted(by, half, arguments, &real) } else { real() }
}

/// Makes a copy of which the trace says something.
#[inline(never)]
fn noted(by: (Function, Caller), half: Option<Half>, arguments: &[Value], real: &dyn Fn() -> Code) -> Code {
    let Some(place) = blocked::place(by.0, by.1) else { return real() };
    let copy = begin(by, half, arguments, place);
    if copy.is_none() {
        blocked::note(by, arguments.first(), place);
    }
    let ret = real();
    match copy {
        Some(copy) => end(copy, by, arguments, ret),
        None if mode::is_still_on() => blocked::note_return(by.0, place),
        None => {}
    }
    if ret != Code::SUCCESS && mode::is_still_on() {
        failures::note(by.0, by.1, ret);
    }
    ret
}

#[inline(never)]
fn begin(
    (function, caller): (Function, Caller),
    half: Option<Half>,
    arguments: &[Value],
    (trace, thread): blocked::Place,
) -> Option<HostCopy> {
    let (dst, src, bytes, stream) = copied(arguments).filter(|&(_, _, bytes, _)| bytes >= LEAST)?;
    let is_meant = function.layer() != Layer::Hip && (half.is_some() || function.is_regular());
    if !is_meant || !thread.is_idle() || captures::may_be_under_way() {
        return None;
    }
    let half = half.or_else(|| direction(arguments, [dst, src]))?;
    let (host, end) = if half == Half::download { (dst, src) } else { (src, dst) };
    let device = device(end)?;
    let devices = if half == Half::download { [Some(device), None] } else { [None, Some(device)] };
    let address = caller.return_address() as usize;
    let is_looked_at = origin::count_host_copy(address, devices, bytes) || half == Half::upload && takes_download(host);
    if !is_looked_at && half == Half::download && thread.download.get().is_some_and(|download| download.host == host) {
        thread.download.set(None);
    }
    let sample = if is_looked_at && half == Half::upload { mode::unseen(|| sample(host, bytes)) } else { 0 };
    let now = trace.now();
    let site = blocked::looked_for(function, caller, now).or_else(|| trace.known_site(address));
    let site = site.unwrap_or_else(|| mode::unseen(|| trace.new_site(address)));
    let record = recording::begin_record(trace, thread, (0, function as u8), site, || now)?;
    record.copies(src, dst, bytes, stream as u64);
    record.between(devices[0], devices[1]);
    record.takes(Path::Host.number());
    if sample != 0 {
        record.sampled(now, sample);
    }
    let noted = thread.noted.get();
    if function.layer() == Layer::Runtime {
        thread.noted.set(caller.stack());
    }
    Some(HostCopy { record, half, is_looked_at, noted })
}

/// Destination, source, bytes and stream (0 if it names none) of a copy in one dimension.
#[inline(always)]
fn copied(arguments: &[Value]) -> Option<(u64, u64, u64, usize)> {
    let [Value::Address(dst), Value::Address(src), Value::UInt(bytes), ref rest @ ..] = *arguments else { return None };
    let stream = if let [.., Value::Stream(stream)] = *rest { stream } else { 0 };
    Some((dst as u64, src as u64, bytes, stream))
}

/// The half that a copy is, by the direction that it names, or by the memory at its ends.
fn direction(arguments: &[Value], ends: [u64; 2]) -> Option<Half> {
    /// `cudaMemcpyHostToDevice` and `cudaMemcpyDeviceToHost`.
    const UPLOAD: i32 = 1;
    const DOWNLOAD: i32 = 2;
    let is_of_a_device = |end| ACCESS.known(end).is_some_and(|(place, _)| place.kind != Kind::Host);
    match (arguments, ends.map(is_of_a_device)) {
        ([_, _, _, Value::MemcpyKind(UPLOAD), ..], _) | (_, [true, false]) => Some(Half::upload),
        ([_, _, _, Value::MemcpyKind(DOWNLOAD), ..], _) | (_, [false, true]) => Some(Half::download),
        _ => None,
    }
}

/// The device that has the memory; for memory of another process, the number that records have for that.
fn device(address: u64) -> Option<u8> {
    let known = || ACCESS.known(address).map(|(place, _)| place);
    let asked = || {
        mode::unseen(|| ACCESS.learn(&RealDriver, address));
        known()
    };
    let place = known().or_else(asked)?;
    matches!(place.kind, Kind::Plain | Kind::Pool | Kind::Mapped | Kind::Remote).then_some(place.device)
}

/// Whether a copy from the host takes what the thread's last copy that was looked at has brought there. It counts as one that does: only a few are
/// looked at.
fn takes_download(host: u64) -> bool {
    const MOST: u8 = 8;
    let takes = |download: &Download| download.host == host && !download.is_awaited && download.taken < MOST;
    let Some(download) = thread::current().download.get().filter(takes) else { return false };
    thread::current().download.set(Some(Download { taken: download.taken + 1, ..download }));
    true
}

/// A sum of some of the bytes: 1 if all are 0, and 0 if they cannot be read, or may not be there yet.
fn sample(host: u64, bytes: u64) -> u32 {
    const PLACES: u64 = 8;
    if thread::current().download.get().is_some_and(|download| download.host == host && download.is_awaited) {
        return 0;
    }
    let memory = Memory::new();
    let read = |place| memory.word((host + (bytes - PLACES) / (PLACES - 1) * place) as usize);
    let sum = (0..PLACES).try_fold((0u64, false), |(sum, is_any), place| {
        let word = read(place)? as u64;
        Some(((sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29), is_any || word != 0))
    });
    // 31 bits, as a record has them.
    sum.map_or(0, |(sum, is_any)| if is_any { ((sum >> 33) as u32).max(2) } else { 1 })
}

#[inline(never)]
fn end(copy: HostCopy, (function, caller): (Function, Caller), arguments: &[Value], ret: Code) {
    if function.layer() == Layer::Runtime {
        thread::current().noted.set(copy.noted);
    }
    let (Some(trace), true) = (trace::file(), mode::is_still_on()) else { return };
    copy.record.done(trace.now(), caller.recorded(function, ret), Capture::None);
    if copy.is_looked_at && ret == Code::SUCCESS {
        mode::unseen(|| look_at(copy, (function, caller), arguments, trace));
    }
}

/// Adds to the record where in the program the copy was made, and of a copy to the host the sample. Inside our own work.
#[cold]
fn look_at(
    HostCopy { record, half, .. }: HostCopy,
    (function, caller): (Function, Caller),
    arguments: &[Value],
    trace: &trace::Trace,
) -> Option<()> {
    let (dst, src, bytes, stream) = copied(arguments)?;
    let host = if half == Half::download { dst } else { src };
    if trace.wants_gpus() {
        recording::note_gpus_before_a_copy();
    }
    origin::of_untraced(caller, function, false).into_iter().for_each(|site| record.comes_from(site));
    // CUDA documents that a copy with memory that it does not know has ended once its call returns.
    let has_ended = !function.base().contains("Async") || RealDriver.memory(host).is_none();
    if has_ended {
        record.mark_ended();
    }
    if half == Half::upload {
        return None;
    }
    thread::current().download.set(None);
    if has_ended {
        record.sampled(trace.now(), sample(host, bytes));
    }
    let context = RealDriver.current_context().unwrap_or(0);
    let stream = Stream::new(stream, function.per_thread(), thread::id());
    let download = Download { record, host, bytes, stream, context, is_awaited: !has_ended, taken: 0 };
    thread::current().download.set(Some(download));
    Some(())
}

/// The thread has waited for a stream, or for all of the current context: its copies there have ended.
#[inline(always)]
pub(super) fn note_wait(stream: impl Fn() -> Option<Stream>) {
    if let Some(download) = thread::current().download.get().filter(|download| download.is_awaited) {
        sample_later(download, stream());
    }
}

#[cold]
#[inline(never)]
fn sample_later(download: Download, stream: Option<Stream>) {
    mode::unseen(|| {
        // Each context has its own default streams.
        let is_here = || RealDriver.current_context() == Some(download.context);
        let is_over = match stream {
            Some(stream @ Stream::Created(_)) => stream == download.stream,
            Some(default) => default == download.stream && is_here(),
            None => is_here(),
        };
        if let Some(trace) = trace::file().filter(|_| is_over) {
            thread::current().download.set(Some(Download { is_awaited: false, ..download }));
            download.record.sampled(trace.now(), sample(download.host, download.bytes));
        }
    });
}
