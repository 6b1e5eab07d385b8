//! Calls that make many copies: batches, and launches of graphs. Read [`traced`] from top to bottom; its steps are those of
//! [`super::run`].
//!
//! One that copies nothing between devices is passed on as if there were no shim. Of any other the record says how many bytes go between
//! devices; behind it stands a record for each pair of devices and path. The driver's call decides, and has those; the runtime's
//! around it names the call. HIP has one layer, whose call does both.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::arrival::{Call, Caller};
use super::decision::{Decision, Running};
use super::read::{self, BatchArrays};
use super::staging::Each;
use super::thread::Before;
use super::{
    callbacks, captured, context, copy, hip, mode, origin, readback, recording, regular, run, show, staging, thread,
    validate, waits,
};
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code, Value};
use crate::api::{Copies, FAIL_INDEX, Function, Layer};
use crate::model::{Asks, Batch, Finding, Memcpy, Part, Path, Request, Rule, Traffic, counters};
use crate::os::{self, alloc};
use crate::policy::access::{Between, Circumstances};
use crate::policy::memory::Kind;
use crate::policy::staging::By;
use crate::policy::{ACCESS, GRAPHS, HIP, STAGING, VALIDATE, capture};
use crate::real::driver::RealDriver;
use crate::real::hip::Library;
use crate::real::runtime;

/// Makes a call that makes many copies. `found` is the real function, which `real` calls.
#[inline(always)]
pub(crate) fn traced(
    function: Function,
    kind: Copies,
    caller: Caller,
    found: *const c_void,
    arguments: &[Value],
    real: impl Fn() -> Code,
) -> Code {
    let copied = if mode::is_on() { Copied::by(function, kind, found, arguments) } else { None };
    match copied {
        None if mode::is_on() && captured::may_be_refused(function, kind) => {
            beside_capture(function, kind, caller, found, arguments, real)
        }
        None => real(),
        Some(copied) => seen(function, kind, caller, found, arguments, copied, real),
    }
}

/// Makes a call that copies between devices.
#[inline(never)]
fn seen(
    function: Function,
    kind: Copies,
    caller: Caller,
    found: *const c_void,
    arguments: &[Value],
    copied: Copied,
    real: impl Fn() -> Code,
) -> Code {
    let mut room = [Value::UInt(0); MOST_ARGUMENTS];
    let arguments = declared(function, kind, found, arguments, &mut room);
    let batch = Batch { parts: copied.parts(), stream: stream(arguments) };
    let call = Call { request: Request { function, arguments, asks: Asks::Batch(batch) }, caller };
    check_before(&call, kind);
    let begun = run::begin(&call, &Decision::FORWARD);
    if is_to_be_staged(&call, kind) {
        let ret = make_staged(&call, kind, begun, real);
        copied.give_back();
        return ret;
    }
    let ret = real();
    match function.layer() {
        Layer::Hip => end::<true>(&call, kind, begun, ret),
        _ => end::<false>(&call, kind, begun, ret),
    }
    captured::say_missing(&call, ret);
    copied.give_back();
    ret
}

/// Makes a batch that needs nothing done unless its capture refuses it.
#[cold]
#[inline(never)]
fn beside_capture(
    function: Function,
    kind: Copies,
    caller: Caller,
    found: *const c_void,
    arguments: &[Value],
    real: impl Fn() -> Code,
) -> Code {
    let mut room = [Value::UInt(0); MOST_ARGUMENTS];
    let arguments = declared(function, kind, found, arguments, &mut room);
    let batch = Batch { parts: &[], stream: stream(arguments) };
    captured::make(&Call { request: Request { function, arguments, asks: Asks::Batch(batch) }, caller }, kind, real)
}

/// Whether any copy of a batch of the driver may be to be staged.
#[inline(always)]
fn is_to_be_staged(call: &Call<'_>, kind: Copies) -> bool {
    let may_be = |part: &Part| STAGING.may_want(&part.traffic);
    kind != Copies::graph
        && call.function().layer() == Layer::Driver
        && call.request.batch().is_some_and(|batch| batch.parts.iter().any(may_be))
}

/// Makes a batch of which copies are to be staged, one by one if that can be done.
#[cold]
#[inline(never)]
fn make_staged(call: &Call<'_>, kind: Copies, begun: Running, real: impl Fn() -> Code) -> Code {
    let (ret, is_staged) = make_each(call, kind).unwrap_or_else(|| (real(), false));
    // Those that CUDA has made were not staged by the shim.
    let unstaged = |part: &Part| Part { traffic: part.traffic.unstaged(), ..*part };
    let parts = call.request.batch().map_or(&[][..], |batch| batch.parts);
    let unstaged: Option<ManuallyDrop<Vec<Part>>> =
        mode::unseen(
            || if is_staged { None } else { alloc::collect(parts.iter().map(unstaged)).map(ManuallyDrop::new) },
        );
    let parts = unstaged.as_ref().map_or(parts, |parts| parts.as_slice());
    let batch = Batch { parts, stream: stream(call.request.arguments) };
    let call = Call { request: Request { asks: Asks::Batch(batch), ..call.request }, caller: call.caller };
    end::<false>(&call, kind, begun, ret);
    mode::unseen(|| unstaged.map(ManuallyDrop::into_inner));
    ret
}

/// Makes the copies of a batch one by one: what that returns, and whether all were staged that have to be. None if none was made.
fn make_each(call: &Call<'_>, kind: Copies) -> Option<(Code, bool)> {
    /// `CU_STREAM_LEGACY`: of a default stream that all share, or none, the driver takes no batch.
    const LEGACY: usize = 1;
    let batch = call.request.batch().filter(|batch| batch.stream > LEGACY)?;
    // A thread may be cancelled in the calls that follow.
    let copies = ManuallyDrop::new(judge_each(call, kind, batch.stream)?);
    let Each { ret, failed, is_staged } = staging::make_each(call, batch.stream, &copies);
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

/// The copies of a batch, with each that is to be staged from where to where it goes. None if none is, or the driver may refuse one.
#[inline(never)]
fn judge_each(call: &Call<'_>, kind: Copies, stream: usize) -> Option<Vec<(CUDA_MEMCPY3D_PEER, Option<Traffic>)>> {
    let judge = Judge::Driver(stream, call.function().per_thread());
    let judged = |parameters: CUDA_MEMCPY3D_PEER| {
        let copy = Memcpy::of_driver(&parameters, Some(stream)).regular();
        let traffic = judge.known(&copy).unwrap_or_else(|| judge.found_out(&copy));
        // What the real function refuses it refuses before it copies anything.
        let is_whole = |(address, bytes): (u64, u64)| {
            ACCESS
                .place_and_range(&RealDriver, address)
                .is_some_and(|(place, range)| place.kind == Kind::Mapped || bytes <= range.end - address)
        };
        let are_whole = [copy.src, copy.dst].into_iter().zip(copy.reach()?).all(is_whole);
        let is_wanted = |traffic: &Traffic| {
            STAGING.wants(&copy, traffic.path) && STAGING.stager(&copy, traffic) != Some(By::Driver)
        };
        are_whole.then(|| (parameters, traffic.filter(is_wanted)))
    };
    mode::unseen(|| {
        let copies = read::each_alone(kind, call.request.arguments)?.into_iter().map(judged);
        let copies = alloc::collect_all(copies)?;
        copies.iter().any(|(_, traffic)| traffic.is_some()).then_some(copies)
    })
}

/// Does what there is to do when the real function has returned.
fn end<const IS_HIP: bool>(call: &Call<'_>, kind: Copies, begun: Running, ret: Code) {
    run::leave(&begun);
    if !mode::is_still_on() {
        return;
    }
    let has_succeeded = ret == Code::SUCCESS;
    let decides = call.function().layer() != Layer::Runtime;
    let shard = &thread::current().shard;
    counters::count_call(shard, call.function(), !has_succeeded);
    let made = call.request.batch().filter(|_| has_succeeded).map_or(&[][..], |batch| batch.parts);
    if decides {
        made.iter().for_each(|part| counters::count_many(shard, &part.traffic, part.copies.into()));
        waits::after_many(call, kind, made);
    }
    if let Some(record) = begun.record {
        recording::end(call, &Decision::FORWARD, record, ret, None);
        if decides {
            recording::parts(record, begun.depth, made);
        }
        origin::after(call, record);
    }
    if let Some(since) = begun.shown_since {
        let traffic = call.request.batch().and_then(|batch| batch.only()).map(|part| part.traffic);
        let path = traffic.filter(|_| has_succeeded).map(|traffic| traffic.path);
        let decision = Decision { traffic, ..Decision::FORWARD };
        show::call(call, &decision, &begun, os::uncancelled(|| since.elapsed()), ret, path);
    }
    if has_succeeded {
        if IS_HIP || ACCESS.blocks() {
            check_blocked(call);
        }
        check(call, kind);
        readback::after_batch(call, kind, &begun);
    }
    if begun.shown_since.is_some() {
        callbacks::run(&begun);
    }
    if begun.is_outermost() {
        thread::current().put_back(&begun.before);
    }
}

// ---- What a call copies ----

/// The copies of a call between devices. It has no destructor, since a thread may be cancelled inside the real function; it is given back
/// instead.
enum Copied {
    /// In the frame: so many parts.
    Few([Part; FEW], usize),
    /// The parts of a graph, or more parts than there is room for in the frame.
    Shared(ManuallyDrop<Arc<[Part]>>),
}

/// How many parts a frame has room for.
const FEW: usize = 4;

impl Copied {
    /// The copies of a call; none if it copies nothing, or is refused in a capture.
    #[inline(always)]
    fn by(function: Function, kind: Copies, found: *const c_void, arguments: &[Value]) -> Option<Self> {
        if kind == Copies::graph {
            let &[Value::Address(exec), ..] = arguments else { return None };
            let parts = GRAPHS.launched(exec)?;
            // CUDA refuses to capture it.
            return (!is_captured(function, stream(arguments))).then(|| Self::Shared(ManuallyDrop::new(parts)));
        }
        let arrays = BatchArrays::of(kind, arguments)?;
        // CUDA refuses to capture one; HIP makes it at once.
        if is_captured(function, stream(arguments)) {
            return None;
        }
        let judge = Judge::of(function, found, stream(arguments))?;
        match Self::known(judge, &arrays) {
            Some(few @ Self::Few(_, count)) => (count > 0).then_some(few),
            _ => Self::found_out(judge, &arrays),
        }
    }

    /// The copies, if they are known without a question, a lock or an allocation.
    #[inline(always)]
    fn known(judge: Judge, arrays: &BatchArrays) -> Option<Self> {
        if !arrays.are_known() {
            return None;
        }
        let (mut parts, mut count) = ([Part::NONE; FEW], 0);
        // SAFETY: there was memory the last time; if the program has unmapped it since, it gives the real function pointers into nothing.
        for copy in unsafe { arrays.copies() }.filter(|copy| copy.bytes != 0) {
            let Some(traffic) = judge.known(&copy)? else { continue };
            let is_new = !parts.iter_mut().take(count).any(|part| part.add(traffic));
            if is_new {
                *parts.get_mut(count)? = Part { traffic, copies: 1 };
                count += 1;
            }
        }
        Some(Self::Few(parts, count))
    }

    /// The copies as the driver or HIP tells them. Their paths are decided, but for a call of CUDA's runtime.
    #[cold]
    #[inline(never)]
    fn found_out(judge: Judge, arrays: &BatchArrays) -> Option<Self> {
        thread::current().not_asked.store(0, Relaxed);
        mode::unseen(|| {
            arrays.learn()?;
            // SAFETY: there is memory, as was just learned.
            let copies = unsafe { arrays.copies() };
            let parts = Part::sum(copies.filter(|copy| copy.bytes != 0).filter_map(|copy| judge.found_out(&copy)));
            (!parts.is_empty()).then(|| Self::Shared(ManuallyDrop::new(parts.into())))
        })
    }

    fn parts(&self) -> &[Part] {
        match self {
            Self::Few(parts, count) => parts.get(..*count).unwrap_or_default(),
            Self::Shared(parts) => parts,
        }
    }

    fn give_back(self) {
        if let Self::Shared(parts) = self {
            drop(ManuallyDrop::into_inner(parts));
        }
    }
}

/// Whether a stream is being captured, as far as the driver tells.
#[inline(always)]
fn is_captured(function: Function, stream: usize) -> bool {
    capture::may_be_under_way()
        && function.layer() == Layer::Driver
        && copy::is_captured(stream, function.per_thread()).0 != Some(false)
}

/// The library that knows from where to where the copies of a batch go.
#[derive(Clone, Copy)]
enum Judge {
    /// The driver, about a call of CUDA's runtime: that inside it decides.
    Around,
    /// The driver, about one of its own calls on a stream, which is each thread's own default stream if it is none and the second says so.
    Driver(usize, bool),
    /// This copy of HIP.
    Hip(Library),
}

impl Judge {
    /// The judge of a call; none if there are more copies of HIP than are told apart.
    #[inline(always)]
    fn of(function: Function, found: *const c_void, stream: usize) -> Option<Self> {
        match function.layer() {
            Layer::Runtime => Some(Self::Around),
            Layer::Driver => Some(Self::Driver(stream, function.per_thread())),
            Layer::Nvml => None,
            Layer::Hip => Library::seen(found).or_else(|| mode::unseen(|| Library::of(found))).map(Self::Hip),
        }
    }

    /// From where to where a copy goes, if that is known, and is from device to device: none in the inside if it is not.
    #[inline(always)]
    fn known(self, copy: &Memcpy<'_>) -> Option<Option<Traffic>> {
        match self {
            Self::Hip(library) => {
                let traffic = HIP.decided(library.number(), copy)?;
                Some(Some(traffic).filter(Traffic::is_between_devices))
            }
            // Once any pair is blocked nothing that is only remembered decides that a copy is forwarded.
            Self::Driver(..) if ACCESS.blocks() => None,
            Self::Around | Self::Driver(..) if regular::goes_between_devices(copy)? => ACCESS.decided(copy).map(Some),
            Self::Around | Self::Driver(..) => Some(None),
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
        let thread_captures = capture::is_capturing(thread::id());
        let on = Circumstances { thread_captures, made_by, ..Circumstances::default() };
        ACCESS.decided(copy).or_else(|| ACCESS.consider(&RealDriver, copy, on))
    }
}

/// As many as any of these functions has.
const MOST_ARGUMENTS: usize = 9;

/// Whether a real function of the runtime has [`FAIL_INDEX`]: they lost it with 13.0, under one name.
#[inline(always)]
pub(crate) fn has_fail_index(found: *const c_void) -> bool {
    runtime::version(found).is_none_or(|version| version < 13_000)
}

/// The arguments that the real function has. A row has all that any version has, so that the last of them is whatever lies
/// behind the arguments where there is no [`FAIL_INDEX`].
#[inline(always)]
fn declared<'a>(
    function: Function,
    kind: Copies,
    found: *const c_void,
    arguments: &'a [Value],
    room: &'a mut [Value; MOST_ARGUMENTS],
) -> &'a [Value] {
    if kind == Copies::graph || function.layer() != Layer::Runtime {
        return arguments;
    }
    let index = function.arguments().iter().position(|&name| name == FAIL_INDEX).filter(|_| !has_fail_index(found));
    let (Some(index), Some((_, fewer))) = (index, arguments.split_last()) else { return arguments };
    let Some(room) = room.get_mut(..fewer.len()) else { return arguments };
    room.copy_from_slice(fewer);
    // What was read as one argument is the next.
    for (place, like) in room.iter_mut().zip(arguments.get(1..).unwrap_or_default()).skip(index) {
        *place = place.as_the_word_of(*like);
    }
    room
}

/// The stream that the arguments end in.
#[inline(always)]
fn stream(arguments: &[Value]) -> usize {
    match arguments.last() {
        Some(&Value::Stream(stream)) => stream,
        _ => 0,
    }
}

// ---- What is found ----

/// Says before a launch that the context will be lost, and why.
#[inline(always)]
fn check_before(call: &Call<'_>, kind: Copies) {
    if GRAPHS.may_have_lost(&ACCESS)
        && let Some(exec) = checked(call, kind)
    {
        mode::unseen(|| {
            if let Some(finding) = GRAPHS.lost(&ACCESS, &RealDriver, exec, call.function().layer()) {
                validate::say_before(call, &finding);
            }
        });
    }
}

/// Says of a launch what it need not cost.
#[inline(always)]
fn check(call: &Call<'_>, kind: Copies) {
    let is_staged = |part: &Part| matches!(part.traffic.path, Path::Staged(_));
    if VALIDATE.is_on()
        && call.request.batch().is_some_and(|batch| batch.parts.iter().any(is_staged))
        && let Some(exec) = checked(call, kind)
    {
        mode::unseen(|| {
            if let Some(finding) = GRAPHS.staged(&ACCESS, &RealDriver, exec, call.function().layer()) {
                validate::say(call, &finding, Some(Code::SUCCESS));
            }
        });
    }
}

/// Says what an outermost call has copied on a path that is blocked. The driver's inside another leaves it to that.
#[cold]
#[inline(never)]
fn check_blocked(call: &Call<'_>) {
    let thread = thread::current();
    let copied = || call.request.batch().into_iter().flat_map(|batch| batch.parts).map(|part| part.traffic);
    let is_broken = |traffic: &Traffic| traffic.path == Path::Broken;
    if call.function().layer() == Layer::Driver && copied().any(|traffic| is_broken(&traffic)) {
        thread.set_path(Some(Path::Broken));
    }
    if !VALIDATE.is_on() || !thread.is_outermost(call.frame()) {
        return;
    }
    let was_broken = thread.take_path(&Before::default()) == Some(Path::Broken);
    let copied = copied().map(|traffic| if was_broken { traffic.unstaged() } else { traffic });
    let Some(Traffic { src, dst, path, bytes, .. }) = { copied }.find(is_broken) else { return };
    mode::unseen(|| {
        let what = format!("{bytes} bytes from device {src} to device {dst} were {path}");
        validate::say(call, &Finding::new(Rule::DataBlocked, call.function().layer(), what), Some(Code::SUCCESS));
    });
}

/// The executable graph that a call of the program launches, if launches are checked.
#[inline(always)]
fn checked(call: &Call<'_>, kind: Copies) -> Option<usize> {
    match *call.request.arguments {
        [Value::Address(exec), _] if kind == Copies::graph => {
            (VALIDATE.is_on() && thread::current().is_outermost(call.frame())).then_some(exec)
        }
        _ => None,
    }
}
