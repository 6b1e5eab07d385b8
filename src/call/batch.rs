//! Calls that make many copies: batches, and launches of graphs. Each copy is a decision, and they are one call ([`super::run`]).
//!
//! One that copies nothing between devices is passed on as if there were no shim. Of any other the record says how many bytes go between
//! devices; behind it stands a record for each pair of devices and path. The driver's call decides, and has those; the runtime's
//! around it names the call. HIP has one layer, whose call does both.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::Relaxed;

use super::arrival::Call;
use super::decision::{Copied, Decision, How, NotKnown, Reason};
use super::read::{self, BatchArrays};
use super::staging::{self, BatchResult, OfBatch};
use super::{captured, context, copy, hip, mode, regular, thread, validate};
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code, Value};
use crate::api::{Copies, Layer};
use crate::model::{Finding, Memcpy, Part, Path, Rule, Traffic};
use crate::objects::captures;
use crate::objects::memory::Kind;
use crate::os::alloc;
use crate::policy::access::{Between, Circumstances};
use crate::policy::{ACCESS, GRAPHS, HIP, STAGING, VALIDATE};
use crate::real::driver::RealDriver;
use crate::real::hip::Library;
use crate::real::runtime;

/// Decides about each copy of a call.
#[inline(never)]
pub(super) fn decide(call: &Call<'_>, kind: Copies) -> Decision {
    let copied = match if kind == Copies::graph { of_graph(call) } else { of_arrays(call, kind) } {
        Ok(copied) => copied,
        Err(why) => return Decision::new(How::Forward(why)),
    };
    check_before(call, kind);
    let may_be_staged = kind != Copies::graph && call.function().layer() == Layer::Driver;
    let is_staged = may_be_staged && copied.parts().iter().any(|part| STAGING.may_want(&part.traffic));
    Decision { copied, ..Decision::new(if is_staged { How::Staged } else { How::Real }) }
}

/// The copies of a launch; CUDA refuses to capture it.
fn of_graph(call: &Call<'_>) -> Result<Copied, Reason> {
    let &[Value::Address(exec), ..] = call.request.arguments else { return Err(Reason::NotBetweenDevices) };
    let copied = GRAPHS.launched(exec).map(Copied::shared).ok_or(Reason::NotBetweenDevices)?;
    if is_captured(call) {
        copied.give_back();
        return Err(Reason::Captured);
    }
    Ok(copied)
}

/// The copies of a batch; CUDA refuses to capture it, HIP makes it at once.
fn of_arrays(call: &Call<'_>, kind: Copies) -> Result<Copied, Reason> {
    let arrays = BatchArrays::of(kind, call.request.arguments).ok_or(Reason::OfTheHost)?;
    if is_captured(call) {
        return Err(Reason::Captured);
    }
    let resolver = DeviceResolver::of(call).ok_or(Reason::UnknownLibrary)?;
    if !arrays.are_there() {
        return Err(Reason::Unreadable);
    }
    // SAFETY: they are.
    match Copied::few(unsafe { arrays.copies() }.map(|copy| resolver.known(&copy))) {
        Some(copied) if copied.parts().is_empty() => Err(Reason::NotBetweenDevices),
        Some(copied) => Ok(copied),
        None => found_out(resolver, &arrays),
    }
}

/// The copies as the driver or HIP tells them. Their paths are decided, but for a call of CUDA's runtime.
#[cold]
#[inline(never)]
fn found_out(resolver: DeviceResolver, arrays: &BatchArrays) -> Result<Copied, Reason> {
    thread::current().not_asked.store(0, Relaxed);
    let copied = mode::unseen(|| {
        // SAFETY: they are there.
        let parts = Part::sum(unsafe { arrays.copies() }.filter_map(|copy| resolver.found_out(&copy)));
        Some(if parts.is_empty() { Err(Reason::NotBetweenDevices) } else { Ok(Copied::shared(parts.into())) })
    });
    copied.unwrap_or(Err(Reason::OwnCode))
}

/// Whether a call's stream is being captured, as far as the driver tells.
fn is_captured(call: &Call<'_>) -> bool {
    let function = call.function();
    captures::may_be_under_way()
        && function.layer() == Layer::Driver
        && copy::is_captured(call.stream(), function.per_thread()).0 != Some(false)
}

/// Makes the copies of a batch one by one: what that returns, and whether all were staged that have to be. None if none was made.
pub(super) fn make_each(call: &Call<'_>) -> Option<(Code, bool)> {
    /// `CU_STREAM_LEGACY`: of a default stream that all share, or none, the driver takes no batch.
    const LEGACY: usize = 1;
    let stream = Some(call.stream()).filter(|&stream| stream > LEGACY)?;
    // A thread may be cancelled in the calls that follow.
    let copies = ManuallyDrop::new(resolve_each(call, stream)?);
    let BatchResult { ret, failed, is_staged } = staging::make_each(call, stream, &copies);
    mode::unseen(|| {
        drop(ManuallyDrop::into_inner(copies));
        Some(())
    });
    // Nothing was copied, and the real function says why.
    if ret != Code::SUCCESS && failed == 0 {
        return None;
    }
    captured::tell_failed(call, failed);
    Some((ret, is_staged))
}

/// The copies of a batch. None if none is to be staged, or the driver may refuse one.
#[inline(never)]
fn resolve_each(call: &Call<'_>, stream: usize) -> Option<Vec<OfBatch>> {
    let resolver = DeviceResolver::Driver(stream, call.function().per_thread());
    let resolved = |parameters: CUDA_MEMCPY3D_PEER| {
        let copy = Memcpy::of_driver(&parameters, Some(stream)).regular();
        let traffic = resolver.known(&copy).unwrap_or_else(|NotKnown| resolver.found_out(&copy));
        // The real function refuses before it copies anything.
        let is_whole = |(address, bytes): (u64, u64)| {
            ACCESS
                .place_and_range(&RealDriver, address)
                .is_some_and(|(place, range)| place.kind == Kind::Mapped || bytes <= range.end - address)
        };
        let are_whole = [copy.src, copy.dst].into_iter().zip(copy.reach()?).all(is_whole);
        let share = |traffic: Traffic| Some((traffic, STAGING.share(&RealDriver, &copy, &traffic)?));
        let staged = traffic.filter(|traffic| STAGING.wants(&copy, traffic.path));
        are_whole.then(|| (parameters, staged.and_then(share)))
    };
    mode::unseen(|| {
        let copies = read::each_alone(&call.request)?.into_iter().map(resolved);
        let copies = alloc::collect_all(copies)?;
        copies.iter().any(|(_, staged)| staged.is_some()).then_some(copies)
    })
}

/// Finds the source and destination devices of the copies of a batch, by the library that knows them.
#[derive(Clone, Copy)]
enum DeviceResolver {
    /// The driver, about a call of CUDA's runtime: that inside it decides.
    Around,
    /// The driver, about one of its own calls on a stream, which is each thread's own default stream if it is none and the second says so.
    Driver(usize, bool),
    /// This copy of HIP.
    Hip(Library),
}

impl DeviceResolver {
    /// The resolver of a call; none if there are more copies of HIP than are told apart.
    fn of(call: &Call<'_>) -> Option<Self> {
        match call.function().layer() {
            Layer::Runtime => Some(Self::Around),
            Layer::Driver => Some(Self::Driver(call.stream(), call.function().per_thread())),
            Layer::Nvml => None,
            Layer::Hip => Library::seen(call.found).or_else(|| mode::unseen(|| Library::of(call.found))).map(Self::Hip),
        }
    }

    /// From where to where a copy goes, if it is from device to device.
    fn known(self, copy: &Memcpy<'_>) -> Result<Option<Traffic>, NotKnown> {
        match self {
            Self::Hip(library) => {
                let traffic = HIP.decided(library.number(), copy).ok_or(NotKnown)?;
                Ok(Some(traffic).filter(Traffic::is_between_devices))
            }
            // Once any pair is blocked nothing that is only remembered decides that a copy is forwarded.
            Self::Driver(..) if ACCESS.blocks() => Err(NotKnown),
            Self::Around | Self::Driver(..) if regular::goes_between_devices(copy).ok_or(NotKnown)? => {
                ACCESS.decided(copy).map(Some).ok_or(NotKnown)
            }
            Self::Around | Self::Driver(..) => Ok(None),
        }
    }

    /// From where to where a copy goes, found out if need be. The path is decided, but for a call of CUDA's runtime.
    fn found_out(self, copy: &Memcpy<'_>) -> Option<Traffic> {
        if let Self::Hip(library) = self {
            let known = HIP.decided(library.number(), copy);
            let traffic = known.or_else(|| {
                let (traffic, before) = HIP.consider(library.number(), &library, Some(copy));
                hip::describe_gpus(library, &before);
                traffic
            });
            return traffic.filter(Traffic::is_between_devices);
        }
        if ACCESS.ask_between(&RealDriver, copy) != Between::Devices {
            return None;
        }
        let Self::Driver(stream, per_thread) = self else { return ACCESS.traffic_now(&RealDriver, copy) };
        let made_by = context::of_stream(stream, per_thread).map_or(0, |(context, _)| context);
        let thread_captures = captures::is_capturing(thread::id());
        let on = Circumstances { thread_captures, made_by, ..Circumstances::default() };
        ACCESS.decided(copy).or_else(|| ACCESS.consider(&RealDriver, copy, on))
    }
}

/// Whether a real function of the runtime has [`FAIL_INDEX`](crate::api::FAIL_INDEX): they lost it with 13.0, under one name.
pub(crate) fn has_fail_index(found: *const c_void) -> bool {
    runtime::version(found).is_none_or(|version| version < 13_000)
}

/// The arguments that a real function of the runtime has. A row has all that any version has: where there is no [`FAIL_INDEX`](crate::api::FAIL_INDEX), which is at
/// `index`, the last is whatever lies behind the arguments.
pub(crate) fn declared(found: *const c_void, index: usize, arguments: &mut [Value]) -> &[Value] {
    if has_fail_index(found) {
        return arguments;
    }
    // The word that was read as one argument is the next.
    for place in index..arguments.len() {
        if let Some([argument, next]) = arguments.get_mut(place..).and_then(<[Value]>::first_chunk_mut) {
            *argument = argument.as_the_word_of(*next);
        }
    }
    arguments.split_last().map_or(&[], |(_, fewer)| fewer)
}

// ---- What is found ----

/// Says before a launch of the program that the context will be lost, and why.
fn check_before(call: &Call<'_>, kind: Copies) {
    if let (Copies::graph, &[Value::Address(exec), _]) = (kind, call.request.arguments)
        && GRAPHS.may_have_lost(&ACCESS)
        && VALIDATE.is_on()
        && thread::current().is_outermost(call.frame())
    {
        mode::unseen(|| {
            if let Some(finding) = GRAPHS.lost(&ACCESS, &RealDriver, exec, call.function().layer()) {
                validate::say_before(call, &finding);
            }
        });
    }
}

/// Says of a call of the program which of its copies took a path that is blocked, what a launch need not cost, and that a capture lacks
/// a batch.
pub(super) fn check(call: &Call<'_>, kind: Copies, decision: &Decision, (ret, path): (Code, Option<Path>)) {
    let is_staged = |part: &Part| matches!(part.traffic.path, Path::Staged(_));
    if path == Some(Path::Broken) {
        say_blocked(call, decision);
    }
    if let (Copies::graph, &[Value::Address(exec), _]) = (kind, call.request.arguments)
        && ret == Code::SUCCESS
        && decision.copied.parts().iter().any(is_staged)
    {
        mode::unseen(|| {
            if let Some(finding) = GRAPHS.staged(&ACCESS, &RealDriver, exec, call.function().layer()) {
                validate::say(call, &finding, Some(Code::SUCCESS));
            }
        });
    }
    captured::say_missing(call, ret);
}

#[cold]
#[inline(never)]
fn say_blocked(call: &Call<'_>, decision: &Decision) {
    // Of a call of the runtime the driver's inside it has decided.
    let copied = decision.copied.parts().iter().map(|part| part.traffic.unstaged());
    let Some(Traffic { src, dst, path, bytes, .. }) = { copied }.find(|traffic| traffic.path == Path::Broken) else {
        return;
    };
    mode::unseen(|| {
        let what = format!("{bytes} bytes from device {src} to device {dst} were {path}");
        validate::say(call, &Finding::new(Rule::DataBlocked, call.function().layer(), what), Some(Code::SUCCESS));
    });
}
