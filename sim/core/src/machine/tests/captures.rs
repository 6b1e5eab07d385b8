//! Captures and graphs.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::capture::CaptureMode;

const MODES: [CaptureMode; 3] = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];

impl Rig {
    fn begin(&self, stream: StreamRef, mode: CaptureMode) {
        self.machine.begin_capture(stream, mode, None).unwrap();
    }

    /// Ends the capture on a stream and runs its graph there once.
    fn replay(&self, stream: StreamRef) -> ExecHandle {
        let graph = self.machine.end_capture(stream).unwrap();
        let exec = self.machine.instantiate_graph(graph).unwrap();
        self.machine.destroy_graph(graph).unwrap();
        self.machine.launch_graph(exec, stream).unwrap();
        self.machine.synchronize_stream(stream).unwrap();
        exec
    }

    fn copy(&self, stream: StreamRef, dst: u64, src: u64) {
        self.machine.copy(stream, &linear(dst, src, SIZE as u64), Completion::Async).unwrap();
    }
}

#[test]
fn captured_work_runs_at_each_launch_and_not_before() {
    let rig = Rig::new(2);
    let (a, b, c) = (rig.memory(0, 1), rig.memory(1, 0), rig.memory(0, 0));
    let stream = rig.stream(0, Role::Blocking);
    let calls = Arc::new(AtomicU32::new(0));
    rig.begin(stream, CaptureMode::Global);
    rig.copy(stream, b, a);
    let place = Place::linear(Locus::Device(c));
    rig.machine.fill(stream, place, Extent::linear(8), (7, 1), Completion::Async).unwrap();
    let counted = Arc::clone(&calls);
    let count = move || {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    rig.machine.launch_host(stream, Arc::new(count)).unwrap();
    settle();
    assert_eq!((first_byte(b), first_byte(c), calls.load(Ordering::Relaxed)), (0, 0, 0));

    let exec = rig.replay(stream);
    assert_eq!((first_byte(b), first_byte(c), calls.load(Ordering::Relaxed)), (1, 7, 1));
    write(a, &[5]);
    rig.machine.launch_graph(exec, stream).unwrap();
    rig.machine.synchronize_stream(stream).unwrap();
    assert_eq!((first_byte(b), calls.load(Ordering::Relaxed)), (5, 2));
    rig.begin(stream, CaptureMode::Global);
    assert_eq!(rig.machine.launch_graph(exec, stream), Err(Error::STREAM_CAPTURE_UNSUPPORTED));
    assert_eq!(rig.machine.end_capture(stream), Err(Error::STREAM_CAPTURE_INVALIDATED));
    assert_eq!(rig.machine.destroy_exec(exec), Ok(()));
    assert_eq!(rig.machine.launch_graph(exec, stream), Err(Error::INVALID_VALUE));
}

#[test]
fn captured_copy_keeps_the_way_of_its_instantiation() {
    let rig = Rig::new(2);
    let (a, b) = (rig.memory(0, 1), rig.memory(1, 0));
    let stream = rig.stream(0, Role::Blocking);
    rig.begin(stream, CaptureMode::Global);
    rig.copy(stream, b, a);
    assert_eq!(rig.machine.copies(0, 1), (0, 0));
    let exec = rig.replay(stream);
    rig.machine.enable_peer(rig.contexts[1], 0).unwrap();
    rig.machine.launch_graph(exec, stream).unwrap();
    assert_eq!(rig.machine.copies(0, 1), (0, 2));
}

#[test]
fn peer_copies_break_a_capture_in_every_mode_enabled_or_not() {
    for mode in MODES {
        for enabled in [false, true] {
            let rig = Rig::new(2);
            let (a, b) = (rig.memory(0, 1), rig.memory(1, 0));
            let stream = rig.stream(0, Role::Blocking);
            if enabled {
                rig.machine.enable_peer(rig.contexts[1], 0).unwrap();
            }
            rig.begin(stream, mode);
            let refused = rig.machine.copy_peer_async(stream, &linear(b, a, 8), NO_CONTEXTS);
            assert_eq!(refused, Err(Error::STREAM_CAPTURE_UNSUPPORTED));
            assert!(!rig.machine.capture_info(stream).unwrap().unwrap().valid);
            let later = rig.machine.copy(stream, &linear(b, a, 8), Completion::Async);
            assert_eq!(later, Err(Error::STREAM_CAPTURE_INVALIDATED));
            assert_eq!(rig.machine.end_capture(stream), Err(Error::STREAM_CAPTURE_INVALIDATED));
            assert_eq!(rig.machine.capture_info(stream), Ok(None));
            assert_eq!(rig.machine.copy_peer_async(stream, &linear(b, a, 8), NO_CONTEXTS), Ok(()));
        }
    }
}

#[test]
fn enable_peer_breaks_a_capture_unless_it_or_the_thread_is_relaxed() {
    for (capture, thread, allowed) in [
        (CaptureMode::Global, CaptureMode::Global, false),
        (CaptureMode::ThreadLocal, CaptureMode::Global, false),
        (CaptureMode::Relaxed, CaptureMode::Global, true),
        (CaptureMode::Global, CaptureMode::Relaxed, true),
    ] {
        let rig = Rig::new(2);
        let stream = rig.stream(0, Role::Blocking);
        rig.begin(stream, capture);
        let before = current::exchange_capture_mode(thread);
        let enabled = rig.machine.enable_peer(rig.contexts[1], 0);
        current::exchange_capture_mode(before);
        assert_eq!(enabled.is_ok(), allowed, "{capture:?} {thread:?}");
        assert_eq!(rig.machine.end_capture(stream).is_ok(), allowed, "{capture:?} {thread:?}");
    }
}

#[test]
fn another_threads_global_capture_forbids_what_it_cannot_see() {
    for (mode, allowed) in [(CaptureMode::Global, false), (CaptureMode::ThreadLocal, true)] {
        let rig = Rig::new(1);
        let stream = rig.stream(0, Role::NonBlocking);
        rig.begin(stream, mode);
        let other =
            thread::scope(|scope| scope.spawn(|| rig.on(0).allocate(Kind::Device, 512, 0).is_ok()).join().unwrap());
        assert_eq!(other, allowed);
        assert_eq!(rig.machine.end_capture(stream).is_ok(), allowed);
    }
}

#[test]
fn another_threads_capture_minds_waits_and_synchronous_copies_on_its_device_only() {
    type Act = fn(&Machine, StreamRef, u64) -> Result<()>;
    let copy: Act = |machine, stream, at| machine.copy(stream, &linear(at, at + 8, 8), Completion::Sync);
    let acts: [(Act, bool); 4] = [
        (copy, true),
        (|machine, _, _| machine.synchronize_context(), true),
        (|machine, stream, _| machine.synchronize_stream(stream), true),
        // Whatever the device, as is documented.
        (|machine, _, at| machine.free(at, Kind::Device), false),
    ];
    for mode in MODES {
        for (number, (act, is_local)) in acts.into_iter().enumerate() {
            for device in [0, 1] {
                let rig = Rig::new(2);
                let (stream, other, at) =
                    (rig.stream(0, Role::NonBlocking), rig.stream(device, Role::NonBlocking), rig.memory(device, 0));
                rig.on(0);
                rig.begin(stream, mode);
                let done = thread::scope(|scope| scope.spawn(|| act(rig.on(device), other, at)).join().unwrap());
                let is_relevant = device == 0 || !is_local;
                // Waiting for all of a context is waiting for what captures there.
                let is_refused = is_relevant && (mode == CaptureMode::Global || number == 1);
                let expected = if is_refused { Err(Error::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) };
                assert_eq!(done, expected, "{mode:?}, {number}, device {device}");
                rig.on(0);
                assert_eq!(rig.machine.end_capture(stream).is_err(), is_refused, "{mode:?}, {number}, device {device}");
            }
        }
    }
}

#[test]
fn waiting_for_what_captures_breaks_it() {
    type Wait = fn(&Rig, StreamRef) -> Result<()>;
    let waits: [Wait; 3] = [
        |rig, stream| rig.machine.synchronize_stream(stream),
        |rig, stream| rig.machine.stream_is_done(stream).map(drop),
        |rig, _| rig.machine.synchronize_context(),
    ];
    for wait in waits {
        let rig = Rig::new(1);
        let stream = rig.stream(0, Role::NonBlocking);
        rig.begin(stream, CaptureMode::Relaxed);
        assert_eq!(wait(&rig, stream), Err(Error::STREAM_CAPTURE_UNSUPPORTED));
        assert_eq!(rig.machine.end_capture(stream), Err(Error::STREAM_CAPTURE_INVALIDATED));
    }
}

#[test]
fn legacy_stream_is_unusable_while_a_blocking_stream_captures() {
    let rig = Rig::new(1);
    let (a, b) = (rig.memory(0, 1), rig.memory(0, 0));
    let stream = rig.stream(0, Role::Blocking);
    assert_eq!(rig.machine.begin_capture(LEGACY, CaptureMode::Relaxed, None), Err(Error::STREAM_CAPTURE_UNSUPPORTED));
    rig.begin(stream, CaptureMode::Relaxed);
    assert_eq!(rig.machine.begin_capture(stream, CaptureMode::Relaxed, None), Err(Error::ILLEGAL_STATE));
    assert_eq!(rig.machine.capture_info(LEGACY), Err(Error::STREAM_CAPTURE_IMPLICIT));
    assert!(rig.machine.capture_info(stream).unwrap().unwrap().valid);
    assert_eq!(rig.peer_copy(b, a), Err(Error::STREAM_CAPTURE_IMPLICIT));
    assert_eq!(rig.machine.end_capture(stream), Err(Error::STREAM_CAPTURE_INVALIDATED));
    assert_eq!(rig.peer_copy(b, a), Ok(()));
}

#[test]
fn peer_copies_are_refused_before_their_arguments_are_looked_at() {
    type Copy = fn(&Rig, StreamRef) -> Result<()>;
    const REFUSED: [(Copy, Error); 4] = [
        (|rig, _| rig.machine.copy_peer(DefaultStream::Legacy, &linear(0, 0, 0), NO_CONTEXTS), IMPLICIT),
        (|rig, _| rig.machine.copy_peer(DefaultStream::Legacy, &linear(0, 1, 8), NO_CONTEXTS), IMPLICIT),
        (|rig, _| rig.machine.copy_peer_async(LEGACY, &linear(0, 0, 0), NO_CONTEXTS), IMPLICIT),
        (|rig, stream| rig.machine.copy_peer_async(stream, &linear(0, 0, 0), NO_CONTEXTS), UNSUPPORTED),
    ];
    const IMPLICIT: Error = Error::STREAM_CAPTURE_IMPLICIT;
    const UNSUPPORTED: Error = Error::STREAM_CAPTURE_UNSUPPORTED;
    for (copy, refusal) in REFUSED {
        let rig = Rig::new(1);
        let stream = rig.stream(0, Role::Blocking);
        rig.begin(stream, CaptureMode::Relaxed);
        assert_eq!(copy(&rig, stream), Err(refusal));
        assert_eq!(rig.machine.end_capture(stream), Err(Error::STREAM_CAPTURE_INVALIDATED));
    }
}

#[test]
fn capture_forks_over_events_and_has_to_be_joined() {
    for joined in [true, false] {
        let rig = Rig::new(2);
        let (a, b, c) = (rig.memory(0, 1), rig.memory(1, 0), rig.memory(0, 0));
        let (fork, join) = (rig.on(0).create_event(false).unwrap(), rig.on(1).create_event(false).unwrap());
        let (first, second) = (rig.stream(0, Role::NonBlocking), rig.stream(1, Role::NonBlocking));
        rig.begin(first, CaptureMode::Global);
        rig.copy(first, c, a);
        rig.machine.record_event(fork, first).unwrap();
        rig.machine.wait_event(second, fork).unwrap();
        rig.copy(second, b, c);
        rig.machine.record_event(join, second).unwrap();
        assert_eq!(rig.machine.end_capture(second), Err(Error::STREAM_CAPTURE_UNMATCHED));
        rig.machine.end_capture(first).unwrap_err();

        rig.begin(first, CaptureMode::Global);
        rig.copy(first, c, a);
        rig.machine.record_event(fork, first).unwrap();
        rig.machine.wait_event(second, fork).unwrap();
        rig.copy(second, b, c);
        rig.machine.record_event(join, second).unwrap();
        if joined {
            rig.machine.wait_event(first, join).unwrap();
            let info = rig.machine.capture_info(first).unwrap().unwrap();
            assert_eq!((info.after_count, rig.machine.graph_nodes(info.graph).unwrap().len()), (2, 2));
            rig.replay(first);
            assert_eq!(first_byte(b), 1);
        } else {
            assert_eq!(rig.machine.end_capture(first), Err(Error::STREAM_CAPTURE_UNJOINED));
        }
        assert_eq!(rig.machine.capture_info(second), Ok(None));
        assert_eq!(rig.machine.event_is_done(join), Err(Error::CAPTURED_EVENT));
    }
}

#[test]
fn events_do_not_cross_the_border_of_a_capture() {
    let rig = Rig::new(1);
    let event = rig.machine.create_event(false).unwrap();
    let [first, second] = [(); 2].map(|()| rig.stream(0, Role::NonBlocking));
    rig.machine.record_event(event, second).unwrap();
    rig.begin(first, CaptureMode::Relaxed);
    assert_eq!(rig.machine.wait_event(first, event), Err(Error::STREAM_CAPTURE_ISOLATION));
    rig.machine.end_capture(first).unwrap_err();

    rig.begin(first, CaptureMode::Relaxed);
    rig.begin(second, CaptureMode::Relaxed);
    rig.machine.record_event(event, first).unwrap();
    assert_eq!(rig.machine.wait_event(second, event), Err(Error::STREAM_CAPTURE_MERGE));
    rig.machine.end_capture(first).unwrap_err();
    rig.machine.end_capture(second).unwrap_err();
    assert_eq!(rig.machine.wait_event(second, event), Err(Error::CAPTURED_EVENT));
}

#[test]
fn capture_into_a_graph_of_the_program_adds_to_it() {
    let rig = Rig::new(1);
    let (a, b, c) = (rig.memory(0, 1), rig.memory(0, 0), rig.memory(0, 0));
    let stream = rig.stream(0, Role::Blocking);
    let graph = rig.machine.create_graph();
    let mut nodes = Vec::new();
    for (dst, src) in [(b, a), (c, b)] {
        rig.machine.begin_capture(stream, CaptureMode::Global, Some((graph, nodes.clone()))).unwrap();
        assert_eq!(rig.machine.destroy_graph(graph), Err(Error::ILLEGAL_STATE));
        rig.copy(stream, dst, src);
        assert_eq!(rig.machine.end_capture(stream), Ok(graph));
        nodes = rig.machine.graph_nodes(graph).unwrap();
    }
    assert_eq!(nodes.len(), 2);
    rig.machine.launch_graph(rig.machine.instantiate_graph(graph).unwrap(), stream).unwrap();
    rig.machine.synchronize_stream(stream).unwrap();
    assert_eq!(first_byte(c), 1);
}

#[test]
fn capture_ends_with_its_stream_and_its_context() {
    let rig = Rig::new(1);
    let stream = rig.stream(0, Role::Blocking);
    let StreamRef::Created(handle) = stream else { unreachable!() };
    rig.begin(stream, CaptureMode::Global);
    rig.machine.destroy_stream(handle).unwrap();
    rig.memory(0, 0);
    rig.begin(PER_THREAD, CaptureMode::Global);
    rig.machine.reset_primary(0).unwrap();
    rig.machine.retain_primary(0).unwrap();
    rig.memory(0, 0);
}

#[test]
fn recapture_takes_the_same_nodes_and_asks_about_others() {
    let rig = Rig::new(2);
    let (a, b, c) = (rig.memory(0, 1), rig.memory(1, 0), rig.memory(1, 0));
    let stream = rig.stream(0, Role::NonBlocking);
    rig.begin(stream, CaptureMode::Global);
    rig.copy(stream, b, a);
    rig.copy(stream, b, a);
    let graph = rig.machine.end_capture(stream).unwrap();
    let nodes = rig.machine.graph_nodes(graph).unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let again = |dsts: &[u64], may_change: bool| {
        let asked = Arc::clone(&asked);
        let changed = move |_, _: &_, _: &_| {
            asked.fetch_add(1, Ordering::Relaxed);
            may_change
        };
        rig.machine.begin_recapture(stream, CaptureMode::Relaxed, graph, Arc::new(changed)).unwrap();
        let copy = |&dst: &u64| rig.machine.copy(stream, &linear(dst, a, SIZE as u64), Completion::Async).err();
        (dsts.iter().find_map(copy), rig.machine.end_capture(stream).err())
    };
    let failed = Some(Error::GRAPH_RECAPTURE_FAILURE);
    assert_eq!(again(&[b, b], false), (None, None));
    assert_eq!(
        (asked.load(Ordering::Relaxed), again(&[b, c], true), asked.load(Ordering::Relaxed)),
        (0, (None, None), 1)
    );
    assert_eq!(rig.machine.graph_nodes(graph), Ok(nodes.clone()));
    let Ok(NodeKind::Copy(now)) = rig.machine.node(nodes[1]) else { panic!("it copies") };
    assert_eq!(now.dst.at, Locus::Any(c));
    assert_eq!(again(&[b, b], false), (failed, failed));
    assert_eq!(again(&[b], true), (None, failed), "one too few");
    assert_eq!(again(&[b, c, c], true), (failed, failed), "one too many");
}

#[test]
fn graphics_capture_is_not_told_of_and_runs_at_its_end() {
    let rig = Rig::new(2);
    let (a, b) = (rig.memory(0, 1), rig.memory(1, 0));
    let stream = rig.stream(0, Role::NonBlocking);
    rig.machine.begin_graphics_capture(stream).unwrap();
    rig.copy(stream, b, a);
    settle();
    assert_eq!((first_byte(b), rig.machine.capture_info(stream)), (0, Ok(None)));
    assert_eq!(rig.machine.end_capture(stream), Err(Error::ILLEGAL_STATE));
    assert_eq!(rig.machine.end_graphics_capture(stream), Ok(()));
    rig.machine.synchronize_stream(stream).unwrap();
    assert_eq!(first_byte(b), 1);
    rig.machine.begin_graphics_capture(stream).unwrap();
    assert!(rig.machine.synchronize_stream(stream).is_err());
    assert_eq!(rig.machine.end_graphics_capture(stream), Err(Error::STREAM_CAPTURE_INVALIDATED));
}
