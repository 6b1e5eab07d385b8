//! Copies between a device and the host, of which two may be a copy between devices that the program makes by hand: see
//! [`crate::policy::hands`]. They are looked at only while a trace is written, which says so, and only large ones.
//!
//! The driver's calls are looked at, where every runtime ends. A runtime's call that is passed on only says that it is under way, so that
//! the driver's finds who called. Copies that may be captured, and those of rows of memory (2D, 3D), are not looked at.
//!
//! A sample of the bytes is read by the system, which fails where there is no memory, and where the memory is another device's. It is read
//! inside the program's own call, which uses the buffer: behind a copy to the host that waits for its end, and before one from the host.

use p2pshim_trace::Begun;

use super::arrival::{Call, Caller};
use super::{blocked, mode, origin, recording, thread};
use crate::api::abi::{Code, Value};
use crate::api::{Function, Half, Layer};
use crate::objects::captures;
use crate::objects::memory::Kind;
use crate::os::Memory;
use crate::policy::hands::{Download, Sampled, UnderWay, ZEROS};
use crate::policy::{ACCESS, Driver, HANDS};
use crate::real::driver::RealDriver;
use crate::record::trace;

/// Copies of fewer bytes are not looked at.
const LEAST: u64 = 64 << 10;

/// A copy between a device and the host.
#[derive(Clone, Copy)]
struct HostCopy {
    half: Half,
    function: Function,
    caller: Caller,
    host: u64,
    device: u64,
    bytes: u64,
    /// 0 if it names none.
    stream: usize,
}

impl HostCopy {
    fn new(by: (Function, Caller), half: Half, [dst, src]: [u64; 2], bytes: u64, rest: &[Value]) -> Self {
        let (function, caller) = by;
        let (host, device) = if half == Half::download { (dst, src) } else { (src, dst) };
        let stream = if let [.., Value::Stream(stream)] = *rest { stream } else { 0 };
        Self { half, function, caller, host, device, bytes, stream }
    }

    /// The place in the program.
    fn place(&self) -> usize {
        self.caller.program_address() as usize
    }

    /// Whether its bytes have left the host, or are there, once the call has returned. CUDA documents so of memory that it does not know.
    /// Inside our own work.
    fn waits(&self) -> bool {
        let is_async = self.function.base().contains("Async");
        !is_async || RealDriver.memory(self.host).is_none()
    }
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
    blocked::begin(function, caller, arguments);
    let ret = match *arguments {
        [Value::Address(dst), Value::Address(src), Value::UInt(bytes), ref rest @ ..] if is_wanted(bytes) => {
            make(&HostCopy::new((function, caller), half, [dst as u64, src as u64], bytes, rest), real)
        }
        _ => real(),
    };
    blocked::end(function, caller);
    ret
}

#[inline(always)]
fn is_wanted(bytes: u64) -> bool {
    bytes >= LEAST && mode::sees().records() && mode::is_on()
}

/// Makes a regular copy of CUDA that is passed on.
#[inline(always)]
pub(super) fn passed_on(call: &Call<'_>, real: impl Fn() -> Code) -> Code {
    blocked::begin(call.function(), call.caller, call.request.arguments);
    let ret = match *call.request.arguments {
        [Value::Address(dst), Value::Address(src), Value::UInt(bytes), ref rest @ ..]
            if call.function().is_regular() && call.function().layer() != Layer::Hip && is_wanted(bytes) =>
        {
            large(call, [src as u64, dst as u64], bytes, rest, real)
        }
        _ => real(),
    };
    blocked::end(call.function(), call.caller);
    ret
}

#[inline(never)]
fn large(call: &Call<'_>, [src, dst]: [u64; 2], bytes: u64, rest: &[Value], real: impl Fn() -> Code) -> Code {
    /// `cudaMemcpyHostToDevice` and `cudaMemcpyDeviceToHost`.
    const WITH_HOST: std::ops::RangeInclusive<i32> = 1..=2;
    let is_of_a_device = |end| place(end).is_some_and(|kind| kind != Kind::Host);
    let half = match (call.function().layer(), rest, [dst, src].map(is_of_a_device)) {
        // Nobody records a call inside one of these, so that its caller need not be known.
        (Layer::Runtime, [Value::MemcpyKind(kind), ..], _) if WITH_HOST.contains(kind) => return under_way(call, real),
        (Layer::Driver, _, [false, true]) => Half::download,
        (Layer::Driver, _, [true, false]) => Half::upload,
        _ => return real(),
    };
    make(&HostCopy::new((call.function(), call.caller), half, [dst, src], bytes, rest), real)
}

/// The kind of memory at an address, as far as that is known.
fn place(address: u64) -> Option<Kind> {
    ACCESS.known(address).map(|(place, _)| place.kind)
}

/// Makes a call inside which those of the driver find who has called.
fn under_way(call: &Call<'_>, real: impl Fn() -> Code) -> Code {
    let thread = thread::current();
    let (depth, before) = thread.enter(call.frame());
    let ret = real();
    thread.leave(&before);
    if depth == 0 {
        thread.put_back(&before);
    }
    ret
}

#[inline(always)]
fn make(copy: &HostCopy, real: impl Fn() -> Code) -> Code {
    let started = begin(copy);
    let ret = real();
    if let (Some(started), Code::SUCCESS, true) = (started, ret, mode::is_still_on()) {
        match copy.half {
            Half::download => keep(copy, started.at),
            Half::upload => go_on(copy, &started),
        }
    }
    ret
}

/// A copy that has begun.
#[derive(Clone, Copy)]
struct Started {
    /// In ticks of the trace.
    at: u64,
    /// The copy to the host, if this one is from it.
    download: Download,
    /// The device that it goes to.
    to: u8,
    /// A sample of the bytes that leave; 0 for none.
    sample: u64,
}

#[inline(never)]
fn begin(copy: &HostCopy) -> Option<Started> {
    let at = trace::file()?.now();
    if thread::current().is_busy() || captures::may_be_under_way() {
        return None;
    }
    if copy.half == Half::download {
        return Some(Started { at, download: Download::default(), to: 0, sample: 0 });
    }
    let download = HANDS.find(copy.host, copy.bytes)?;
    let to = device(copy.device).filter(|&to| to != download.device)?;
    let is_sampled = download.sample != 0 && download.bytes == copy.bytes;
    let sample = if is_sampled { mode::unseen(|| sample(copy.host, copy.bytes)) } else { 0 };
    Some(Started { at, download, to, sample })
}

/// The device at whose address memory is, if it is one of this process.
fn device(address: u64) -> Option<u8> {
    let known = || ACCESS.known(address).map(|(place, _)| place);
    let asked = || {
        mode::unseen(|| ACCESS.learn(&RealDriver, address));
        known()
    };
    let place = known().or_else(asked)?;
    matches!(place.kind, Kind::Plain | Kind::Pool | Kind::Mapped).then_some(place.device)
}

/// A sum of some of the bytes; 0 if they cannot be read.
fn sample(host: u64, bytes: u64) -> u64 {
    const PLACES: u64 = 8;
    let memory = Memory::new();
    let read = |place| memory.word((host + (bytes - PLACES) / (PLACES - 1) * place) as usize);
    let sum = (0..PLACES).try_fold((0u64, false), |(sum, is_any), place| {
        let word = read(place)? as u64;
        Some(((sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29), is_any || word != 0))
    });
    sum.map_or(0, |(sum, is_any)| if is_any { sum.max(ZEROS + 1) } else { ZEROS })
}

/// Keeps a copy to the host that has returned.
#[inline(never)]
fn keep(copy: &HostCopy, start: u64) {
    let Some(device) = device(copy.device) else { return };
    let place = copy.place();
    let looked_at = || {
        let waits = copy.waits();
        let sample = if waits { sample(copy.host, copy.bytes) } else { 0 };
        Some((sample, origin::of_untraced(copy.caller, copy.function, false).unwrap_or(0), !waits))
    };
    let is_looked_at = HANDS.is_looked_at(place as u64);
    let looked_at = if is_looked_at { mode::unseen(looked_at) } else { None };
    let (sample, site, is_under_way) = looked_at.unwrap_or_default();
    let (host, bytes, place) = (copy.host, copy.bytes, place as u64);
    HANDS.keep(&Download { host, bytes, start, place, sample, device, site });
    if is_under_way {
        mode::unseen(|| {
            let (stream, context) = (copy.stream, RealDriver.current_context().unwrap_or(0));
            HANDS.is_under_way(UnderWay { stream, context, thread: thread::id(), host, bytes, start });
        });
    }
}

/// The thread has waited for a stream, or for all of the current context: what it had queued there is over.
#[inline(always)]
pub(super) fn has_waited(stream: Option<usize>) {
    if HANDS.awaits_any() {
        take_samples(stream);
    }
}

#[cold]
#[inline(never)]
fn take_samples(stream: Option<usize>) {
    mode::unseen(|| {
        let (thread, context) = (thread::id(), RealDriver.current_context());
        let is_there = |copy: &UnderWay| match stream {
            Some(stream) => copy.stream == stream,
            None => Some(copy.context) == context,
        };
        HANDS.has_waited(|copy| copy.thread == thread && is_there(copy), |copy| sample(copy.host, copy.bytes));
    });
}

/// Counts a copy from the host that has returned, if it brings on what a copy brought there.
#[inline(never)]
fn go_on(copy: &HostCopy, started: &Started) {
    let Some(trace) = trace::file() else { return };
    let (end, download, place) = (trace.now(), &started.download, copy.place());
    let sampled = Sampled::of(download.sample, started.sample);
    let counted = HANDS.goes_on(download, started.to, (place as u64, copy.bytes), sampled);
    if counted == [0; 3] {
        return;
    }
    let site_of = |place| trace.known_site(place).unwrap_or_else(|| mode::unseen(|| trace.new_site(place)));
    let is_looked_at = download.site != 0 || download.sample != 0;
    let found = || origin::of_untraced(copy.caller, copy.function, false);
    let site = if is_looked_at { mode::unseen(found) } else { None }.unwrap_or_else(|| site_of(place));
    let from = if download.site != 0 { download.site } else { site_of(download.place as usize) };
    let devices = [download.device, started.to];
    if trace.wants_gpus() {
        mode::unseen(recording::note_gpus_before_a_copy);
    }
    if HANDS.is_new([from, site], devices, sampled) {
        mode::unseen(|| trace.host_way([from, site], devices, sampled.name()));
    }
    let function = thread::current().function_around(copy.caller.stack()).unwrap_or(copy.function as u8);
    let thread = thread::current();
    // How long the way took is known of those copies whose call is known to have waited.
    let is_timed = is_looked_at && copy.bytes == download.bytes && mode::unseen(|| copy.waits());
    let took = if is_timed { Some(trace::nanos(end.saturating_sub(download.start))) } else { None };
    let records = counted.into_iter().filter(|&bytes| bytes != 0);
    for (bytes, took) in records.map(|bytes| (bytes, took.filter(|_| bytes == copy.bytes))) {
        let record: Option<Begun> = recording::begin_record(trace, thread, (0, function), site, || started.at);
        let Some(record) = record else { return };
        recording::by_hand(record, devices, bytes, (end, took));
    }
}
