//! Copies that go wrong because a test asks for it.

use std::os::fd::AsRawFd;
use std::time::Instant;

use super::*;
use crate::fault::Faults;

/// Two devices, the first of which reaches the second's memory, and something wrong.
fn faulty(text: &str) -> (Rig, u64, u64) {
    let rig = Rig::with(Config { faults: Faults::parse(text).0, ..Config::default() });
    let (a, b) = (rig.memory(0, 1), rig.memory(1, 0));
    rig.on(0).enable_peer(rig.contexts[1], 0).unwrap();
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
fn broken_both_ways_writes_nothing_staged_either() {
    let (rig, a, b) = faulty("both:0>1");
    assert_eq!(rig.copied(b, a), 0);
    rig.machine.disable_peer(rig.contexts[1]).unwrap();
    assert_eq!(rig.copied(b, a), 0);
}

#[test]
fn corrupt_copy_writes_something_wrong() {
    let (rig, a, b) = faulty("corrupt:0>1");
    assert_eq!(rig.copied(b, a), 0x56);
    assert_eq!(first_byte(b + 1), 1);
}

#[test]
fn corrupt_copy_there_and_back_is_wrong() {
    let (rig, a, b) = faulty("corrupt:0>1,corrupt:1>0");
    let before = first_byte(a);
    _ = rig.copied(b, a);
    assert_ne!(rig.copied(a, b), before);
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
fn hanging_copy_leaves_all_else_usable() {
    let (rig, a, b) = faulty("hang:0>1");
    let hanging = rig.stream(0, Role::NonBlocking);
    rig.machine.copy(hanging, &linear(b, a, 8), Completion::Async).unwrap();
    // Were it still queued, it would end here.
    settle();
    rig.machine.disable_peer(rig.contexts[1]).unwrap();
    assert_eq!(rig.machine.stream_is_done(hanging), Ok(false));
    for stream in [rig.stream(0, Role::NonBlocking), rig.stream(1, Role::Blocking), LEGACY] {
        rig.machine.copy(stream, &linear(b, a, 8), Completion::Async).unwrap();
        rig.machine.synchronize_stream(stream).unwrap();
        assert_eq!(rig.machine.stream_is_done(stream), Ok(true));
    }
    assert_eq!((rig.copied(b, a), rig.copied(a, b)), (1, 1));
    rig.machine.allocate(Kind::Device, SIZE as u64, 0).unwrap();
}

#[test]
fn copies_of_pooled_and_mapped_memory_go_wrong_alike() {
    const SIZE: u64 = MAPPING_GRANULE;
    let (rig, plain, there) = faulty("drop:0>1");
    let pool = rig.machine.default_pool(0).unwrap();
    rig.machine.set_pool_access(pool, &[(1, crate::READ_WRITE)]).unwrap();
    let pooled = rig.on(0).allocate_async(SIZE, None, LEGACY).unwrap();
    let physical = rig.machine.create_physical(0, SIZE).unwrap();
    let mapped = rig.machine.reserve_addresses(SIZE).unwrap();
    rig.machine.map(mapped, SIZE, physical).unwrap();
    for device in [0, 1] {
        rig.machine.set_access(mapped, SIZE, &[(device, crate::READ_WRITE)]).unwrap();
    }
    for (number, src) in [plain, pooled, mapped].into_iter().enumerate() {
        write(src, &[7]);
        assert_eq!(rig.copied(there, src), 0, "memory {number}");
        assert_eq!(rig.machine.copies(0, 1), (number as u64 + 1, 0));
    }
    rig.machine.set_access(mapped, SIZE, &[(1, crate::NO_ACCESS)]).unwrap();
    rig.machine.disable_peer(rig.contexts[1]).unwrap();
    assert_eq!(rig.copied(there, mapped), 7);
}

#[test]
fn memory_that_was_imported_by_a_descriptor_is_the_same_and_has_faults_of_its_own() {
    const SIZE: u64 = MAPPING_GRANULE;
    let (rig, _, there) = faulty("vmm:0>1,ipc:0>1");
    let map = |physical| {
        let address = rig.machine.reserve_addresses(SIZE).unwrap();
        rig.machine.map(address, SIZE, physical).unwrap();
        for device in [0, 1] {
            rig.machine.set_access(address, SIZE, &[(device, crate::READ_WRITE)]).unwrap();
        }
        address
    };
    let free = rig.machine.memory_info().unwrap().0;
    let physical = rig.machine.create_shareable_physical(0, SIZE).unwrap();
    let descriptor = rig.machine.export_physical(physical).unwrap();
    let imported = rig.machine.import_physical(descriptor.as_raw_fd()).unwrap();
    assert_eq!(rig.machine.physical(imported), Ok((0, true)));
    let (own, other) = (map(physical), map(imported));
    write(own, &[7]);
    assert_eq!((first_byte(other), rig.copied(there, own)), (7, 7));
    write(own, &[8]);
    assert_eq!(rig.copied(there, other), 7, "it is lost");
    for (address, physical) in [(own, physical), (other, imported)] {
        rig.machine.unmap(address, SIZE).unwrap();
        rig.machine.release_physical(physical).unwrap();
        // The next mapping there is nobody else's.
        rig.machine.free_addresses(address, SIZE).unwrap();
    }
    assert_eq!(rig.machine.memory_info().unwrap().0, free);
}

#[test]
fn what_is_no_shareable_memory_is_refused() {
    let (rig, _, _) = faulty("");
    let physical = rig.machine.create_physical(0, MAPPING_GRANULE).unwrap();
    assert_eq!(rig.machine.export_physical(physical).err(), Some(Error::INVALID_VALUE));
    let file = std::fs::File::open("/dev/null").unwrap();
    for descriptor in [-1, file.as_raw_fd()] {
        assert_eq!(rig.machine.import_physical(descriptor), Err(Error::INVALID_VALUE));
    }
}

#[test]
fn slow_copy_takes_its_time() {
    let (rig, a, b) = faulty("slow:0>1");
    let start = Instant::now();
    assert_eq!(rig.copied(b, a), 1);
    assert!(start.elapsed() >= std::time::Duration::from_millis(20));
}

#[test]
fn events_tell_the_modelled_time_of_copies_whatever_the_machine_does() {
    let staged = 16.0 + BYTES / 40_000.0;
    for (fault, expected) in [
        ("", 2.0 + BYTES / 380_000.0),
        ("slow:0>1", 2.0 + BYTES / 380_000.0 + 20_000.0 + 8.0 * staged),
        ("stall:0>1:30ms@99", 2.0 + BYTES / 380_000.0 + 30_000.0),
        ("crowd:0>1", 2.0 + BYTES / 380_000.0 + 5000.0),
    ] {
        let (rig, a, b) = faulty(fault);
        let found = micros(&rig, (b, a));
        assert!((found - expected).abs() < 0.01, "{fault}: {found} {expected}");
        rig.machine.disable_peer(rig.contexts[1]).unwrap();
        let found = micros(&rig, (b, a));
        assert!((found - staged).abs() < 0.01, "{fault}, staged: {found} {staged}");
    }
}

/// The bytes of a copy whose time is measured.
const BYTES: f64 = 3.0;

/// Microseconds of a copy between two events, before which the host and another thread do something.
fn micros(rig: &Rig, (to, from): (u64, u64)) -> f64 {
    let stream = rig.stream(0, Role::NonBlocking);
    let [start, end] = [true, true].map(|has_time| rig.machine.create_event(has_time).unwrap());
    rig.machine.record_event(start, stream).unwrap();
    settle();
    rig.machine.copy(stream, &linear(to, from, BYTES as u64), Completion::Async).unwrap();
    settle();
    rig.machine.record_event(end, stream).unwrap();
    rig.machine.synchronize_event(end).unwrap();
    f64::from(rig.machine.elapsed(start, end).unwrap()) * 1000.0
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
