//! HIP's own ways: memory and access of devices, the order of its copies, resets.

use super::*;
use crate::capture::CaptureMode;

impl Rig {
    /// Memory of a device, holding `byte` throughout.
    fn of_device(&self, device: usize, byte: u8) -> u64 {
        let address = self.on(device).allocate_of_device(SIZE as u64).unwrap();
        write(address, &[byte; SIZE]);
        address
    }

    /// Copies as a program whose current device is the first.
    fn copy_by(&self, stream: StreamRef, dst: u64, src: u64, followed: Followed) {
        let request = linear(dst, src, SIZE as u64);
        self.on(0).copy_by_device(stream, &request, followed, InCapture::DoneAtOnce).unwrap();
    }

    fn is_idle(&self, device: usize, stream: StreamRef) -> bool {
        self.on(device).stream_is_done(stream).unwrap()
    }

    fn reaches(&self, address: u64) -> Vec<usize> {
        (0..self.contexts.len()).filter(|device| self.machine.device_reaches(*device, address)).collect()
    }
}

#[test]
fn copy_by_device_needs_no_enabling_and_opens_both_sides() {
    let rig = Rig::with(Config { devices: 3, no_path: vec![(2, 1)], ..Config::default() });
    let (a, b, c) = (rig.of_device(0, 1), rig.of_device(1, 2), rig.of_device(1, 3));
    assert_eq!([a, b].map(|address| rig.reaches(address)), [[0], [1]]);
    rig.copy_by(LEGACY, b, a, Followed::ByCaller);
    assert_eq!((first_byte(b), rig.machine.copies(0, 1)), (1, (1, 0)));
    assert_eq!(rig.reaches(a), [0, 1, 2]);
    assert_eq!(rig.reaches(b), [0, 1]);
    assert_eq!(rig.reaches(c), [1]);
}

#[test]
fn copy_by_device_without_any_path_is_staged_and_one_way_suffices() {
    let no_path = vec![(0, 1), (1, 0), (2, 1)];
    let rig = Rig::with(Config { devices: 3, no_path, ..Config::default() });
    let (a, b, c) = (rig.of_device(0, 1), rig.of_device(1, 2), rig.of_device(2, 3));
    rig.copy_by(LEGACY, b, a, Followed::ByCaller);
    rig.copy_by(LEGACY, b, c, Followed::ByCaller);
    assert_eq!((first_byte(b), rig.machine.copies(0, 1), rig.machine.copies(2, 1)), (3, (0, 1), (1, 0)));
}

#[test]
fn copy_followed_by_its_destination_comes_before_that_ones_default_stream() {
    let rig = Rig::new(2);
    let (a, b, c) = (rig.of_device(0, 1), rig.of_device(1, 2), rig.of_device(1, 3));
    let own = rig.stream(0, Role::Blocking);
    let gate = rig.block(own);
    rig.copy_by(LEGACY, b, a, Followed::ByDestination);
    let request = linear(c, b, SIZE as u64);
    rig.on(1).copy_by_device(LEGACY, &request, Followed::ByNobody, InCapture::DoneAtOnce).unwrap();
    settle();
    assert_eq!((first_byte(b), first_byte(c)), (2, 3));
    gate.signal();
    rig.on(1).synchronize_stream(LEGACY).unwrap();
    assert_eq!((first_byte(b), first_byte(c)), (1, 1));
}

#[test]
fn copy_is_not_ordered_after_the_destinations_streams() {
    let rig = Rig::new(2);
    let (a, b) = (rig.of_device(0, 1), rig.of_device(1, 2));
    let far = rig.stream(1, Role::Blocking);
    let gate = rig.block(far);
    rig.copy_by(LEGACY, b, a, Followed::ByDestination);
    rig.on(0).synchronize_stream(LEGACY).unwrap();
    assert_eq!(first_byte(b), 1);
    gate.signal();
}

#[test]
fn copy_within_another_device_is_ordered_there_and_on_its_stream() {
    let rig = Rig::new(2);
    let (b, c) = (rig.of_device(1, 2), rig.of_device(1, 3));
    let (own, far) = (rig.stream(0, Role::NonBlocking), rig.stream(1, Role::Blocking));
    let gate = rig.block(far);
    rig.copy_by(own, c, b, Followed::ByNobody);
    settle();
    assert!(!rig.is_idle(0, own) && first_byte(c) == 3);
    gate.signal();
    rig.on(0).synchronize_stream(own).unwrap();
    assert_eq!(first_byte(c), 2);
}

#[test]
fn caller_waits_for_a_copy_between_devices_and_not_within_one() {
    let rig = Rig::new(2);
    let (a, b, c) = (rig.of_device(0, 1), rig.of_device(1, 2), rig.of_device(0, 3));
    let gate = rig.block(LEGACY);
    rig.copy_by(LEGACY, c, a, Followed::ByCaller);
    assert_eq!(first_byte(c), 3);
    thread::scope(|scope| {
        let copying = scope.spawn(|| rig.copy_by(LEGACY, b, a, Followed::ByCaller));
        settle();
        assert!(!copying.is_finished());
        gate.signal();
    });
    assert_eq!((first_byte(b), first_byte(c)), (1, 1));
}

#[test]
fn copy_on_a_stream_that_captures_is_a_node_or_done_at_once() {
    let rig = Rig::new(2);
    let (a, b) = (rig.of_device(0, 1), rig.of_device(1, 2));
    let stream = rig.stream(0, Role::Blocking);
    let nodes = |in_capture| {
        rig.machine.begin_capture(stream, CaptureMode::Global, None).unwrap();
        let request = linear(b, a, SIZE as u64);
        rig.machine.copy_by_device(stream, &request, Followed::ByNobody, in_capture).unwrap();
        let graph = rig.machine.end_capture(stream).unwrap();
        rig.machine.synchronize_stream(stream).unwrap();
        (rig.machine.graph_nodes(graph).unwrap().len(), first_byte(b))
    };
    assert_eq!(nodes(InCapture::Captured), (1, 2));
    assert_eq!(nodes(InCapture::DoneAtOnce), (0, 1));
}

#[test]
fn default_stream_is_no_part_of_captures_and_breaks_none() {
    let rig = Rig::new(1);
    let (a, b) = (rig.of_device(0, 1), rig.of_device(0, 2));
    let stream = rig.stream(0, Role::Blocking);
    rig.machine.begin_capture(stream, CaptureMode::Relaxed, None).unwrap();
    let request = linear(b, a, SIZE as u64);
    rig.machine.copy_by_device(LEGACY, &request, Followed::ByNobody, InCapture::Captured).unwrap();
    let place = Place::linear(Locus::Device(a));
    rig.machine.fill_by_device(LEGACY, place, Extent::linear(8), (7, 1), false).unwrap();
    assert!(rig.machine.end_capture(stream).is_ok());
    rig.machine.synchronize_context().unwrap();
    assert_eq!((first_byte(a), first_byte(b)), (7, 1));
}

#[test]
fn refuse_beside_captures_breaks_those_of_every_mode() {
    let rig = Rig::new(2);
    let stream = rig.stream(1, Role::NonBlocking);
    assert_eq!(rig.machine.refuse_beside_captures(Error::STREAM_CAPTURE_IMPLICIT), Ok(()));
    rig.machine.begin_capture(stream, CaptureMode::Relaxed, None).unwrap();
    let refused = rig.on(0).refuse_beside_captures(Error::STREAM_CAPTURE_IMPLICIT);
    assert_eq!(refused, Err(Error::STREAM_CAPTURE_IMPLICIT));
    assert_eq!(rig.on(1).end_capture(stream), Err(Error::STREAM_CAPTURE_INVALIDATED));
}

#[test]
fn reset_device_frees_and_ends_streams_and_leaves_what_is_enabled() {
    let rig = Rig::new(2);
    let (a, b) = (rig.of_device(0, 1), rig.of_device(1, 2));
    let host = rig.on(1).allocate(Kind::Pinned, 8, 0).unwrap();
    let (own, far) = (rig.stream(0, Role::Blocking), rig.stream(1, Role::Blocking));
    rig.machine.enable_device(0, 1).unwrap();
    rig.machine.reset_device(1).unwrap();
    assert!(rig.machine.find(b).is_none() && rig.machine.find(a).is_some() && rig.machine.find(host).is_some());
    assert!(rig.on(1).stream_info(far).is_err() && rig.on(0).stream_info(own).is_ok());
    assert_eq!(rig.machine.enable_device(0, 1), Err(Error::PEER_ACCESS_ALREADY_ENABLED));
    let again = rig.of_device(1, 3);
    assert_eq!(rig.reaches(again), [0, 1]);
    assert_eq!(rig.on(0).free_by_device(host), Ok(()));
}

#[test]
fn freed_memory_is_reached_by_nobody() {
    let rig = Rig::new(2);
    let a = rig.of_device(0, 1);
    rig.machine.enable_device(1, 0).unwrap();
    assert_eq!(rig.reaches(a), [0, 1]);
    rig.on(0).free_by_device(a).unwrap();
    assert_eq!(rig.reaches(a), []);
    assert_eq!(rig.on(0).free_by_device(a), Err(Error::INVALID_VALUE));
}
