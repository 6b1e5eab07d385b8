//! Rules on calls of a driver of plain values.

use super::call::Side;
use super::*;
use crate::api::Function;
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Value, cudaExtent, cudaMemcpy3DPeerParms, cudaPitchedPtr, cudaPos};
use crate::model::{Request, Shape, Traffic, Why};
use crate::objects::arrays::Shape as ArrayShape;
use crate::policy::access::fake::{Fake, context, mapped, memory_of, pooled};

/// Bytes of every allocation of the fake driver.
const ALLOCATION: u64 = 1 << 24;
const STREAM: usize = 0x5000;

struct Process {
    driver: Fake,
    access: Box<Access>,
    validate: Box<Validate>,
    objects: &'static Objects,
}

/// In a frame of its own: together they are too large for a test's stack.
fn boxed<T>(new: impl Fn() -> T) -> Box<T> {
    Box::new(new())
}

impl Process {
    fn new() -> Self {
        let objects: &Objects = Box::leak(boxed(Objects::new));
        let process = Self {
            driver: Fake::new(),
            access: boxed(Access::new),
            validate: boxed(|| Validate::new(objects)),
            objects,
        };
        process.mode(config::Validate::Warn);
        objects.contexts.note_device(context(2), 2);
        process.driver.streams.borrow_mut().extend([(STREAM, context(0)), (STREAM + 0x100, context(2))]);
        process
    }

    fn mode(&self, mode: config::Validate) {
        self.validate.configure(mode);
    }

    /// The rules that speak of a call that has returned, and the codes that they name.
    fn after(&self, seen: &CallView<'_>) -> Vec<(Rule, Option<i32>)> {
        let found = self.validate.after(&self.driver, seen);
        found.into_iter().map(|finding| (finding.rule, finding.code.map(|code| code.0))).collect()
    }

    fn said(&self, function: Function, values: &[Value], ret: i32) -> Vec<(Rule, Option<i32>)> {
        self.after(&seen(&request(function, values), Some(ret)))
    }

    /// The rule that is named before a call is made, and the code that the program gets.
    fn before(&self, function: Function, values: &[Value]) -> (Option<Rule>, Option<Code>) {
        let finding = self.validate.before(&self.driver, &seen(&request(function, values), None));
        let code = finding.as_ref().and_then(|finding| finding.code).filter(|_| self.validate.is_strict());
        (finding.map(|finding| finding.rule), code)
    }

    fn is_clean(&self, values: &[Value]) -> bool {
        let function = if matches!(values[1], Value::Ordinal(_)) { RUNTIME } else { DRIVER };
        let request = request(function, values);
        let copy = request.copy().unwrap();
        [copy.src, copy.dst].iter().for_each(|&address| self.access.learn(&self.driver, address));
        let by = Caller { thread: 0, is_check_due: true };
        self.validate.is_clean(&self.driver, &self.access, (copy, None), by)
    }
}

/// A linear copy, or a call about access.
fn request(function: Function, values: &[Value]) -> Request<'_> {
    Request::new(function, values, |_| Shape::Linear)
}

fn seen<'a>(request: &'a Request<'a>, ret: Option<i32>) -> CallView<'a> {
    CallView::of(&Fake::new(), request, ret.map(Code))
}

fn pointer(address: u64) -> Value {
    Value::Address(address as usize)
}

/// From device 0 to device 1, by the runtime.
fn good() -> [Value; 6] {
    let (dst, src) = (pointer(memory_of(1)), pointer(memory_of(0)));
    [dst, Value::Ordinal(1), src, Value::Ordinal(0), Value::UInt(4096), Value::Stream(STREAM)]
}

/// A good copy by the driver.
fn good_of_driver() -> [Value; 6] {
    let [dst, _, src, _, bytes, stream] = good();
    [dst, Value::Address(context(1)), src, Value::Address(context(0)), bytes, stream]
}

fn with(values: [Value; 6], index: usize, value: Value) -> [Value; 6] {
    let mut values = values;
    values[index] = value;
    values
}

const RUNTIME: Function = Function::cudaMemcpyPeerAsync;
const DRIVER: Function = Function::cuMemcpyPeerAsync;

#[test]
fn after_right_copies_nothing_is_said() {
    let process = Process::new();
    assert_eq!(process.said(RUNTIME, &good(), 0), []);
    assert_eq!(process.said(DRIVER, &good_of_driver(), 0), []);
    assert_eq!(process.said(Function::cudaMemcpyPeer, &good()[..5], 0), []);
    let nothing = with(with(good(), 4, Value::UInt(0)), 0, pointer(0));
    assert_eq!(process.said(RUNTIME, &nothing, 0), [], "a copy of nothing from nowhere");
}

#[test]
fn after_linear_copy_each_wrong_argument_has_its_rule() {
    let freed = 0x5000_0000;
    let cases = [
        (with(good(), 0, pointer(0)), 1, Rule::CopyNullPointer, Some(1)),
        (with(good(), 1, Value::Ordinal(16)), 101, Rule::CopyDeviceOrdinal, Some(101)),
        (with(good(), 3, Value::Ordinal(-1)), 101, Rule::CopyDeviceOrdinal, Some(101)),
        (with(good(), 4, Value::UInt(ALLOCATION + 1)), 1, Rule::CopyPastAllocation, Some(1)),
        (with(good(), 2, pointer(memory_of(0) + ALLOCATION - 8)), 1, Rule::CopyPastAllocation, Some(1)),
        (with(good(), 2, pointer(0x1000)), 1, Rule::CopyHostMemory, Some(1)),
        (with(good(), 2, pointer(0x7000_0000)), 1, Rule::CopyUnknownPointer, Some(1)),
        (with(good(), 0, pointer(mapped(1))), 1, Rule::CopyMappedNoAccess, None),
        (with(good(), 1, Value::Ordinal(3)), 0, Rule::CopyOrdinalMismatch, None),
        (with(good(), 5, Value::Stream(STREAM + 0x100)), 0, Rule::OrderStreamElsewhere, None),
        (with(good_of_driver(), 1, pointer(0)), 0, Rule::CopyNullContext, Some(201)),
        (with(good_of_driver(), 1, Value::Address(0x99)), 201, Rule::CopyInvalidContext, Some(201)),
        (with(good_of_driver(), 3, Value::Address(context(7))), 0, Rule::CopyOrdinalMismatch, None),
    ];
    for (values, ret, rule, code) in cases {
        let process = Process::new();
        let function = if matches!(values[1], Value::Ordinal(_)) { RUNTIME } else { DRIVER };
        assert_eq!(process.said(function, &values, ret), [(rule, code)], "{}", rule.id());
        assert!(ret != 0 || !process.is_clean(&values), "{}", rule.id());
    }
    let process = Process::new();
    process.objects.past.note_freed(freed, freed + 100);
    let values = with(good(), 2, pointer(freed + 50));
    assert_eq!(process.said(RUNTIME, &values, 1), [(Rule::CopyFreedMemory, Some(1))]);
}

#[test]
fn after_copies_inside_a_device_that_overlap() {
    let process = Process::new();
    let at = |offset| [pointer(memory_of(0) + offset), Value::Ordinal(0), pointer(memory_of(0)), Value::Ordinal(0)];
    let said = |offset| {
        let [dst, to, src, from] = at(offset);
        process.said(RUNTIME, &[dst, to, src, from, Value::UInt(4096), Value::Stream(STREAM)], 0)
    };
    assert_eq!(said(4095), [(Rule::CopyOverlap, None)]);
    assert_eq!(said(4096), []);
}

#[test]
fn after_zero_bytes_other_bad_arguments_are_a_hazard() {
    let process = Process::new();
    let nothing = |values| with(values, 4, Value::UInt(0));
    let hazard = |code| [(Rule::CopyZeroBytes, Some(code))];
    assert_eq!(process.said(RUNTIME, &nothing(with(good(), 1, Value::Ordinal(99))), 0), hazard(101));
    assert_eq!(process.said(DRIVER, &nothing(with(good_of_driver(), 3, pointer(0))), 0), hazard(201));
    assert_eq!(process.said(RUNTIME, &nothing(good()), 0), []);
}

#[test]
fn after_access_each_code_is_explained() {
    let enable = Function::cudaDeviceEnablePeerAccess;
    let driver = Function::cuCtxEnablePeerAccess;
    let disable = Function::cudaDeviceDisablePeerAccess;
    let (peer, flags) = (Value::Ordinal(1), |flags| Value::UInt(flags));
    let process = Process { driver: Fake { no_path: [(0, 5)].into(), ..Fake::new() }, ..Process::new() };
    let cases = [
        (enable, [peer, flags(1)], 1, Rule::EnableFlags, Some(1)),
        (enable, [Value::Ordinal(0), flags(0)], 217, Rule::EnableSelf, Some(101)),
        (driver, [Value::Address(context(0)), flags(0)], 217, Rule::EnableSelf, Some(201)),
        (driver, [Value::Address(context(16)), flags(0)], 217, Rule::EnableSelf, Some(217)),
        (enable, [Value::Ordinal(5), flags(0)], 217, Rule::EnableUnsupported, Some(101)),
        (enable, [Value::Ordinal(16), flags(0)], 101, Rule::EnableDeviceOrdinal, Some(101)),
        (enable, [peer, flags(0)], 704, Rule::EnableTwice, Some(704)),
        (driver, [Value::Address(context(1)), flags(0)], 711, Rule::EnableLimit, Some(711)),
        (driver, [Value::Address(0x99), flags(0)], 709, Rule::AccessInvalidContext, Some(201)),
    ];
    for (function, values, ret, rule, code) in cases {
        assert_eq!(process.said(function, &values, ret), [(rule, code)], "{}", rule.id());
    }
    let of_driver = (Function::cuCtxDisablePeerAccess, Value::Address(context(1)));
    for (function, peer) in [(disable, peer), of_driver, (Function::hipDeviceDisablePeerAccess, peer)] {
        assert_eq!(process.said(function, &[peer], 705), [(Rule::DisableNotEnabled, Some(705))]);
    }
    assert_eq!(process.said(disable, &[peer], 0), []);
    process.driver.current.set(0);
    assert_eq!(process.said(driver, &cases[7].1, 201), [(Rule::AccessNoContext, Some(201))]);
}

#[test]
fn after_enabling_again_and_again() {
    let process = Process::new();
    let enable = |peer| process.said(Function::cudaDeviceEnablePeerAccess, &[Value::Ordinal(peer), Value::UInt(0)], 0);
    assert!((1..4).all(|_| enable(1).is_empty()));
    assert_eq!(enable(1), [(Rule::SlowEnableChurn, None)]);
    assert_eq!(enable(2), [], "another peer");
}

#[test]
fn after_errors_of_no_argument_are_told_apart() {
    let process = Process::new();
    for (ret, rule) in [
        (700, Rule::ErrorEarlierWork),
        (719, Rule::ErrorEarlierWork),
        (35, Rule::ErrorNoDriver),
        (1, Rule::ErrorUnexplained),
        (999, Rule::ErrorUndocumented),
        (900, Rule::CaptureCopy),
        (906, Rule::CaptureDefaultStream),
    ] {
        assert_eq!(process.said(RUNTIME, &good(), ret), [(rule, None)], "{ret}");
    }
    // The stream has gone with its context.
    assert_eq!(process.said(DRIVER, &good_of_driver(), 709), [(Rule::CopyDestroyedStream, Some(400))]);
    process.driver.current.set(0x99);
    assert_eq!(process.said(DRIVER, &good_of_driver(), 709), [(Rule::ErrorUndocumented, None)], "the current one has");
    process.driver.current.set(context(0));
    let no_devices = Process { driver: Fake { devices: 0, ..Fake::new() }, ..Process::new() };
    assert_eq!(no_devices.said(RUNTIME, &with(good(), 1, Value::Ordinal(99)), 100), [(Rule::ErrorNoDriver, None)]);
    assert_eq!(process.said(RUNTIME, &good(), 4), [(Rule::ErrorNoDriver, None)]);
}

#[test]
fn after_detours_are_reported_by_their_reason() {
    use crate::model::counters;
    let process = Process::new();
    let traffic = Traffic::new([0, 1], Path::Staged(Why::NotEnabled), 2 << 20);
    counters::count(&Default::default(), &traffic, 1);
    for (why, rule) in [
        (Why::NotEnabled, Some(Rule::StagedNeverEnabled)),
        (Why::Pool, Some(Rule::StagedPool)),
        (Why::Mapped, Some(Rule::StagedMapped)),
        (Why::NoPath, None),
    ] {
        let path = Some(Path::Staged(why));
        let values = good();
        let request = request(RUNTIME, &values);
        let seen = CallView { path, ..seen(&request, Some(0)) };
        assert_eq!(process.after(&seen), rule.map(|rule| (rule, None)).into_iter().collect::<Vec<_>>());
        assert_eq!(is_detour(path), rule.is_some());
    }
    let no_path = [(0, 1), (1, 0)].into_iter().collect();
    let without = Process { driver: Fake { no_path, ..Fake::new() }, ..Process::new() };
    let values = good();
    let request = request(RUNTIME, &values);
    let seen = CallView { path: Some(Path::Staged(Why::NotEnabled)), ..seen(&request, Some(0)) };
    assert_eq!(without.after(&seen), [], "the two could not access each other");
}

#[test]
fn after_default_stream_of_a_device_that_takes_no_part() {
    let process = Process::new();
    let values = with(good(), 5, Value::Stream(0));
    assert_eq!(process.said(RUNTIME, &values, 0), []);
    process.driver.current.set(context(2));
    assert_eq!(process.said(RUNTIME, &values, 0), [(Rule::OrderDefaultStream, None)]);
    assert!(!process.is_clean(&values));
}

#[test]
fn after_synchronous_copy_beside_a_busy_stream_of_its_own_thread() {
    let process = Process::new();
    let made = |stream, thread| {
        process.objects.streams.note(stream, Known { non_blocking: true, thread, ..Known::on(Some(1)) });
    };
    let said = || process.said(Function::cudaMemcpyPeer, &good()[..5], 0);
    made(0x100, 0);
    made(0x200, 7);
    assert_eq!(said(), [], "it is idle");
    assert!(!process.is_clean(&good()[..5]), "it must be asked");
    process.driver.busy_streams.borrow_mut().insert(0x200);
    assert_eq!(said(), [], "another thread's");
    process.driver.busy_streams.borrow_mut().insert(0x100);
    assert_eq!(said(), [(Rule::OrderNonBlocking, None)]);
    process.objects.streams.mark_destroyed(0x100);
    assert_eq!(said(), []);
    assert!(process.is_clean(&good()[..5]));
}

#[test]
fn is_clean_once_seen_without_asking() {
    let process = Process::new();
    for values in [good(), good_of_driver(), with(good(), 5, Value::Stream(0))] {
        assert!(!process.is_clean(&values), "handles are not known yet");
        let function = if matches!(values[1], Value::Ordinal(_)) { RUNTIME } else { DRIVER };
        assert_eq!(process.said(function, &values, 0), []);
        assert!(process.is_clean(&values));
        process.objects.forget_context(None, None);
    }
    let pool = with(good(), 2, pointer(pooled(0)));
    process.said(RUNTIME, &pool, 0);
    assert!(process.is_clean(&pool));
}

#[test]
fn is_clean_not_without_a_current_context_for_the_driver() {
    let process = Process::new();
    process.said(DRIVER, &good_of_driver(), 0);
    assert!(process.is_clean(&good_of_driver()));
    process.driver.current.set(0);
    assert!(!process.is_clean(&good_of_driver()));
    assert_eq!(process.said(DRIVER, &good_of_driver(), 0), [(Rule::CopyNoContext, Some(201))]);
}

#[test]
fn before_strict_returns_what_is_documented_and_nothing_else() {
    let process = Process::new();
    process.mode(config::Validate::Strict);
    let before = |function, values: &[Value]| process.before(function, values);
    let refused = |rule, code| (Some(rule), Some(Code(code)));
    let forward = (None, None);
    assert_eq!(before(RUNTIME, &good()), forward);
    assert_eq!(before(RUNTIME, &with(good(), 1, Value::Ordinal(3))), forward, "a hazard without a code");
    let nothing = with(with(good(), 4, Value::UInt(0)), 1, Value::Ordinal(99));
    assert_eq!(before(RUNTIME, &nothing), refused(Rule::CopyZeroBytes, 101));
    assert_eq!(before(DRIVER, &with(good_of_driver(), 1, pointer(0))), refused(Rule::CopyNullContext, 201));
    process.objects.streams.mark_destroyed(STREAM);
    assert_eq!(before(RUNTIME, &good()), refused(Rule::CopyDestroyedStream, 400));
    // Of what is wrong with it, what the function's own page lists.
    assert_eq!(before(RUNTIME, &with(good(), 0, pointer(0))), refused(Rule::CopyNullPointer, 1));
    // A copy of nothing does not look at it; but one of something shows that it lives.
    assert_eq!(process.said(RUNTIME, &with(good(), 4, Value::UInt(0)), 0), [(Rule::CopyZeroBytes, None)]);
    assert_eq!(before(RUNTIME, &good()), refused(Rule::CopyDestroyedStream, 400));
    assert_eq!(process.said(RUNTIME, &good(), 0), []);
    assert_eq!(before(RUNTIME, &good()), forward);
}

#[test]
fn before_strict_copies_of_nothing_on_destroyed_streams_do_not_reach_the_driver() {
    let process = Process::new();
    process.mode(config::Validate::Strict);
    process.objects.streams.mark_destroyed(STREAM);
    let nothing = with(good_of_driver(), 4, Value::UInt(0));
    let before = |function, values: &[Value]| process.before(function, values);
    let refused = (Some(Rule::CopyDestroyedStream), Some(Code(400)));
    assert_eq!(before(DRIVER, &nothing), refused);
    assert_eq!(before(RUNTIME, &with(good(), 4, Value::UInt(0))), (None, None), "the runtime does not look");
    // The driver does, so that the stream is there again when it has not crashed.
    assert_eq!(process.said(DRIVER, &nothing, 0), []);
    assert_eq!(before(DRIVER, &nothing), (None, None));
}

#[test]
fn before_only_what_may_crash_is_said_and_all_is_forwarded() {
    let process = Process::new();
    let before = |values: &[Value]| {
        let (rule, code) = process.before(DRIVER, values);
        assert_eq!(code, None);
        rule
    };
    assert_eq!(before(&with(good_of_driver(), 0, pointer(0))), None);
    assert_eq!(before(&with(good_of_driver(), 1, Value::Address(0x99))), Some(Rule::CopyInvalidContext));
}

#[test]
fn count_is_by_place_and_rule() {
    let process = Process::new();
    let rule = Rule::CopyOverlap;
    assert_eq!([1, 1, 2].map(|site| process.validate.count(site, rule)), [1, 2, 1]);
    assert_eq!(process.validate.count(1, Rule::EnableTwice), 1);
    assert_eq!((counters::findings(rule), counters::findings(Rule::EnableSelf)), (3, 0));
    assert!((0..10_000).all(|site| process.validate.count(site, Rule::EnableSelf) != 0));
    assert_eq!(counters::findings(Rule::EnableSelf), 10_000, "places beyond the last are still counted");
}

// ---- 3D copies ----

fn parms() -> cudaMemcpy3DPeerParms {
    let origin = cudaPos { x: 0, y: 0, z: 0 };
    let side = |address: u64| cudaPitchedPtr { ptr: address as usize, pitch: 1024, xsize: 1024, ysize: 16 };
    cudaMemcpy3DPeerParms {
        srcArray: 0,
        srcPos: origin,
        srcPtr: side(memory_of(0)),
        srcDevice: 0,
        dstArray: 0,
        dstPos: origin,
        dstPtr: side(memory_of(1)),
        dstDevice: 1,
        extent: cudaExtent { width: 1024, height: 16, depth: 4 },
    }
}

/// The findings about a 3D copy of the runtime that was refused with a code, or accepted with 0.
fn said_of(process: &Process, parms: &cudaMemcpy3DPeerParms, ret: i32) -> Vec<(Rule, Option<i32>)> {
    let values = [Value::RuntimePeer3D(parms)];
    let request = Request::new(Function::cudaMemcpy3DPeer, &values, |_| Shape::Runtime3D(parms));
    process.after(&seen(&request, Some(ret)))
}

#[test]
fn after_3d_copy_each_wrong_parameter_has_its_rule() {
    let process = Process::new();
    assert_eq!(said_of(&process, &parms(), 0), []);
    type Change = fn(&mut cudaMemcpy3DPeerParms);
    let cases: [(Change, _, _, _); 10] = [
        (|p| p.srcPtr.pitch = 1023, 12, Rule::Copy3dPitch, Some(12)),
        (|p| p.dstPtr.pitch = 1 << 40, 12, Rule::Copy3dPitch, Some(12)),
        (|p| p.srcPtr.ysize = 15, 12, Rule::Copy3dHeight, Some(12)),
        (|p| p.srcPos.x = 1, 1, Rule::Copy3dPosition, Some(1)),
        (|p| p.dstPos.y = 1, 1, Rule::Copy3dPosition, Some(1)),
        (|p| p.srcPos.z = 1021, 1, Rule::CopyPastAllocation, Some(1)),
        (|p| p.srcPtr.ptr = 0, 1, Rule::Copy3dNoMemory, Some(1)),
        (|p| p.dstArray = 0x77, 1, Rule::Copy3dArrayAndPointer, Some(1)),
        (|p| p.dstDevice = 77, 101, Rule::CopyDeviceOrdinal, Some(101)),
        (|p| p.srcPtr.ptr = 0x1000, 1, Rule::CopyHostMemory, None),
    ];
    for (change, ret, rule, code) in cases {
        let mut parms = parms();
        change(&mut parms);
        assert_eq!(said_of(&process, &parms, ret), [(rule, code)], "{}", rule.id());
        if rule == Rule::CopyPastAllocation {
            continue;
        }
        let copy = Memcpy::of_runtime(&parms, None);
        [copy.src, copy.dst].iter().for_each(|&address| process.access.learn(&process.driver, address));
        let by = Caller { thread: 0, is_check_due: true };
        let is_clean = process.validate.is_clean(&process.driver, &process.access, (&copy, None), by);
        assert!(!is_clean, "{}", rule.id());
    }
    let last = cudaMemcpy3DPeerParms { srcPos: cudaPos { x: 0, y: 0, z: 1020 }, ..parms() };
    assert_eq!(said_of(&process, &last, 0), [], "it ends where the allocation ends");
}

#[test]
fn after_3d_copy_of_the_driver_may_be_of_the_host() {
    let process = Process::new();
    let of_driver = |kind, host, device| {
        let mut peer = CUDA_MEMCPY3D_PEER::ZERO;
        (peer.srcMemoryType, peer.srcHost, peer.srcDevice, peer.srcContext) = (kind, host, device, context(0));
        (peer.dstMemoryType, peer.dstDevice, peer.dstContext) = (2, memory_of(1), context(1));
        (peer.srcPitch, peer.dstPitch, peer.WidthInBytes, peer.Height, peer.Depth) = (64, 64, 64, 4, 1);
        peer
    };
    let said = |peer, ret| {
        let values = [Value::DriverPeer3D(&raw const peer)];
        let request = Request::new(Function::cuMemcpy3DPeer, &values, |_| Shape::Driver3D(&peer));
        process.after(&seen(&request, Some(ret)))
    };
    assert_eq!(said(of_driver(1, 0x1000, 0), 0), []);
    assert_eq!(said(of_driver(4, 0, 0x1000), 0), []);
    assert_eq!(said(of_driver(2, 0, 0x1000), 1), [(Rule::CopyHostMemory, Some(1))], "it says that it is of a device");
}

#[test]
fn after_3d_copy_with_arrays_counts_their_elements() {
    let process = Process::new();
    let shape = ArrayShape { extent: [256, 16, 4], element: 4 };
    process.objects.arrays.note_made(0xa0, Some(shape), None);
    process.objects.arrays.note_made(0xa1, Some(ArrayShape { element: 1, ..shape }), None);
    let mut from_array = parms();
    (from_array.srcArray, from_array.srcPtr.ptr, from_array.extent.width) = (0xa0, 0, 256);
    assert_eq!(said_of(&process, &from_array, 0), []);
    from_array.extent.width = 257;
    let said = said_of(&process, &from_array, 1);
    assert_eq!(said, [(Rule::Copy3dOutsideArray, Some(1))]);
    let mut both = parms();
    (both.srcArray, both.srcPtr.ptr, both.extent.width) = (0xa0, 0, 256);
    (both.dstArray, both.dstPtr.ptr) = (0xa1, 0);
    assert_eq!(said_of(&process, &both, 1), [(Rule::Copy3dElementSize, Some(1))]);
    process.objects.arrays.mark_destroyed(0xa1);
    assert_eq!(said_of(&process, &both, 1), [(Rule::Copy3dDestroyedArray, Some(1))]);
    // Evidently there is one again.
    both.srcArray = 0xa1;
    both.dstArray = 0xa2;
    assert_eq!(said_of(&process, &both, 0), []);
}

#[test]
fn sides_memory_of_the_host_and_arrays_have_no_context() {
    let mut peer = CUDA_MEMCPY3D_PEER::ZERO;
    (peer.srcMemoryType, peer.srcHost, peer.srcContext) = (1, 0x1000, 0x99);
    (peer.dstMemoryType, peer.dstArray, peer.dstContext) = (3, 0xa0, 0x99);
    let values = [Value::DriverPeer3D(&peer)];
    let request = Request::new(Function::cuMemcpy3DPeer, &values, |_| Shape::Driver3D(&peer));
    let call = Sides::of(&request).unwrap();
    assert!(call.sides.iter().all(|side: &Side| side.context.is_none()));
}

#[test]
fn configure_on_again_what_was_known_before_is_forgotten() {
    let objects: &Objects = Box::leak(boxed(Objects::new));
    let validate = boxed(|| Validate::new(objects));
    validate.configure(config::Validate::Warn);
    objects.streams.mark_destroyed(0x500);
    validate.configure(config::Validate::Strict);
    assert!(objects.streams.is_destroyed(0x500));
    validate.configure(config::Validate::Off);
    validate.configure(config::Validate::Warn);
    assert!(!objects.streams.is_destroyed(0x500), "it may have been made anew while nobody looked");
}
