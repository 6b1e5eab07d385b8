//! Copies that go wrong because a test asks for it.

use std::time::Instant;

use super::*;
use crate::fault::Faults;

/// Two devices, the first of which reaches the second's memory, and something wrong.
fn faulty(text: &str) -> (Rig, u64, u64) {
    let rig = Rig::with(Config { faults: Faults::parse(text).0, ..Config::default() });
    let (a, b) = (rig.memory(0, 1), rig.memory(1, 0));
    rig.on(0).enable_peer(rig.contexts[1]).unwrap();
    (rig, a, b)
}

impl Rig {
    fn copied(&self, dst: u64, src: u64) -> u8 {
        assert_eq!(self.peer_copy(dst, src), Ok(()));
        self.machine.synchronize_stream(LEGACY).unwrap();
        first_byte(dst)
    }
}

#[test]
fn dropped_copy_succeeds_and_writes_nothing_staged_and_backward_copies_are_right() {
    let (rig, a, b) = faulty("drop:0>1");
    assert_eq!((rig.copied(b, a), rig.copied(b, a)), (0, 0));
    write(b, &[9]);
    assert_eq!(rig.copied(a, b), 9);
    rig.machine.disable_peer(rig.contexts[1]).unwrap();
    assert_eq!(rig.copied(b, a), 9);
}

#[test]
fn corrupt_copy_writes_something_wrong() {
    let (rig, a, b) = faulty("corrupt:0>1");
    assert_eq!(rig.copied(b, a), !1);
    assert_eq!(first_byte(b + 1), 1);
}

#[test]
fn first_copy_alone_is_lost() {
    let (rig, a, b) = faulty("first:0>1");
    assert_eq!((rig.copied(b, a), rig.copied(b, a)), (0, 1));
}

#[test]
fn hanging_copy_stops_its_stream_and_no_other() {
    let (rig, a, b) = faulty("hang:0>1");
    let [hanging, other] = [(); 2].map(|()| rig.stream(0, Role::NonBlocking));
    rig.machine.copy(hanging, &linear(b, a, 8), Completion::Async).unwrap();
    rig.machine.copy(other, &linear(a, b, 8), Completion::Async).unwrap();
    rig.machine.synchronize_stream(other).unwrap();
    settle();
    assert_eq!((rig.machine.stream_is_done(hanging), first_byte(a), first_byte(b)), (Ok(false), 0, 0));
}

#[test]
fn slow_copy_takes_longer_than_a_staged_one() {
    let (rig, a, b) = faulty("slow:0>1");
    let time = || {
        let start = Instant::now();
        assert_eq!(rig.copied(b, a), 1);
        start.elapsed()
    };
    let direct = (0..5).map(|_| time()).min();
    rig.machine.disable_peer(rig.contexts[1]).unwrap();
    let staged = (0..5).map(|_| time()).min();
    assert!(direct > staged, "{direct:?} {staged:?}");
}

#[test]
fn captured_copy_goes_wrong_when_it_runs() {
    let (rig, a, b) = faulty("first:0>1");
    let stream = rig.stream(0, Role::NonBlocking);
    rig.machine.begin_capture(stream, crate::CaptureMode::Global, None).unwrap();
    rig.machine.copy(stream, &linear(b, a, 8), Completion::Async).unwrap();
    let graph = rig.machine.end_capture(stream).unwrap();
    let exec = rig.machine.instantiate_graph(graph).unwrap();
    for expected in [0, 1] {
        rig.machine.launch_graph(exec, stream).unwrap();
        rig.machine.synchronize_stream(stream).unwrap();
        assert_eq!(first_byte(b), expected);
    }
}
