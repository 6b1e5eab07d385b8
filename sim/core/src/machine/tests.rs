//! The machine as a whole: order, ways of copies, ends of contexts.

mod batches;
mod captures;
mod devices;
mod faults;
mod graphs;
mod kernels;
mod lost;
mod pools;
mod room;
mod sharing;
mod waits;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::*;
use crate::space::Kind;
use crate::work::Extent;
use crate::{current, os};

const SIZE: usize = 1 << 16;
/// A peer copy may name these instead of contexts.
const NO_CONTEXTS: [ContextHandle; 2] = [ContextHandle(0); 2];
const LEGACY: StreamRef = StreamRef::Default(DefaultStream::Legacy);
const PER_THREAD: StreamRef = StreamRef::Default(DefaultStream::PerThread);

/// A machine whose devices all have their primary context.
struct Rig {
    machine: Machine,
    contexts: Vec<ContextHandle>,
}

impl Rig {
    fn new(devices: usize) -> Rig {
        Rig::with(Config { devices, ..Config::default() })
    }

    fn with(config: Config) -> Rig {
        let machine = Machine::new(config).unwrap();
        let contexts: Vec<_> = (0..machine.devices()).map(|device| machine.retain_primary(device).unwrap()).collect();
        current::set(contexts.first().copied());
        Rig { machine, contexts }
    }

    fn on(&self, device: usize) -> &Machine {
        current::set(Some(self.contexts[device]));
        &self.machine
    }

    /// Device memory holding `byte` throughout.
    fn memory(&self, device: usize, byte: u8) -> u64 {
        let address = self.on(device).allocate(Kind::Device, SIZE as u64, 0).unwrap();
        write(address, &[byte; SIZE]);
        address
    }

    fn stream(&self, device: usize, role: Role) -> StreamRef {
        StreamRef::Created(self.on(device).create_stream(role, 0).unwrap())
    }

    /// Keeps a stream busy until the fence is signalled.
    fn block(&self, stream: StreamRef) -> Arc<Fence> {
        let gate = Fence::pending();
        let inside = Arc::clone(&gate);
        self.machine.launch_host(stream, Arc::new(move || inside.wait())).unwrap();
        gate
    }

    fn peer_copy(&self, dst: u64, src: u64) -> Result<()> {
        self.machine.copy_peer(DefaultStream::Legacy, &linear(dst, src, SIZE as u64), NO_CONTEXTS)
    }
}

fn linear(dst: u64, src: u64, size: u64) -> Request {
    Request {
        dst: Place::linear(Locus::Device(dst)),
        src: Place::linear(Locus::Device(src)),
        extent: Extent::linear(size),
    }
}

fn write(address: u64, bytes: &[u8]) {
    os::copy(address, bytes.as_ptr() as u64, bytes.len() as u64);
}

fn first_byte(address: u64) -> u8 {
    let mut byte = 0u8;
    os::copy(&raw mut byte as u64, address, 1);
    byte
}

/// Long enough for work that wrongly does not wait to get done.
fn settle() {
    thread::sleep(Duration::from_millis(30));
}

#[test]
fn legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    let rig = Rig::new(1);
    let (first, second) = (rig.stream(0, Role::Blocking), rig.stream(0, Role::Blocking));
    let gate = rig.block(first);
    let (a, b) = (rig.memory(0, 1), rig.memory(0, 2));
    rig.machine.copy(LEGACY, &linear(b, a, 8), Completion::Async).unwrap();
    rig.machine.copy(second, &linear(a + 8, b, 8), Completion::Async).unwrap();
    settle();
    assert!(!rig.machine.stream_is_done(LEGACY).unwrap());
    assert!(!rig.machine.stream_is_done(second).unwrap());
    gate.signal();
    rig.machine.synchronize_stream(second).unwrap();
    assert_eq!(first_byte(b), 1);
}

#[test]
fn legacy_stream_ignores_non_blocking_streams() {
    let rig = Rig::new(1);
    let free = rig.stream(0, Role::NonBlocking);
    let gate = rig.block(free);
    rig.machine.launch_host(LEGACY, Arc::new(|| ())).unwrap();
    rig.machine.synchronize_stream(LEGACY).unwrap();
    let legacy_gate = rig.block(LEGACY);
    gate.signal();
    rig.machine.synchronize_stream(free).unwrap();
    legacy_gate.signal();
    rig.machine.synchronize_context().unwrap();
}

#[test]
fn per_thread_stream_is_each_threads_own_and_blocking() {
    let rig = Rig::new(1);
    let gate = rig.block(PER_THREAD);
    thread::scope(|scope| {
        scope.spawn(|| {
            let machine = rig.on(0);
            machine.launch_host(PER_THREAD, Arc::new(|| ())).unwrap();
            machine.synchronize_stream(PER_THREAD).unwrap();
        });
    });
    rig.machine.launch_host(LEGACY, Arc::new(|| ())).unwrap();
    settle();
    assert!(!rig.machine.stream_is_done(LEGACY).unwrap());
    gate.signal();
    rig.machine.synchronize_stream(LEGACY).unwrap();
}

#[test]
fn copy_peer_is_ordered_on_both_devices_and_the_host_does_not_wait() {
    let rig = Rig::new(2);
    let (a, b) = (rig.memory(0, 7), rig.memory(1, 0));
    let blocking = rig.stream(1, Role::Blocking);
    let gate = rig.block(blocking);
    rig.on(0);
    assert_eq!(rig.peer_copy(b, a), Ok(()));
    let after = rig.stream(1, Role::Blocking);
    rig.machine.launch_host(after, Arc::new(|| ())).unwrap();
    settle();
    assert_eq!(first_byte(b), 0);
    assert!(!rig.machine.stream_is_done(after).unwrap());
    gate.signal();
    rig.machine.synchronize_stream(after).unwrap();
    assert_eq!(first_byte(b), 7);
}

#[test]
fn copy_peer_does_not_wait_for_non_blocking_streams() {
    let rig = Rig::new(2);
    let (a, b) = (rig.memory(0, 7), rig.memory(1, 0));
    let gate = rig.block(rig.stream(1, Role::NonBlocking));
    rig.on(0);
    assert_eq!(rig.peer_copy(b, a), Ok(()));
    rig.machine.synchronize_stream(LEGACY).unwrap();
    assert_eq!(first_byte(b), 7);
    gate.signal();
}

#[test]
fn copy_on_a_stream_is_not_ordered_with_the_other_devices_streams() {
    let rig = Rig::new(2);
    let (a, b) = (rig.memory(0, 7), rig.memory(1, 0));
    let gate = rig.block(rig.stream(1, Role::Blocking));
    let stream = rig.stream(0, Role::Blocking);
    rig.machine.copy(stream, &linear(b, a, 8), Completion::Async).unwrap();
    rig.machine.synchronize_stream(stream).unwrap();
    assert_eq!(first_byte(b), 7);
    gate.signal();
}

#[test]
fn memory_of_a_peer_is_set_only_with_access() {
    let rig = Rig::new(2);
    let (_, b) = (rig.memory(0, 1), rig.memory(1, 2));
    let set = || {
        let place = Place::linear(Locus::Device(b));
        rig.on(0).fill(LEGACY, place, Extent::linear(8), (1, 1), Completion::Async)
    };
    assert_eq!(set(), Err(Error::INVALID_VALUE));
    rig.on(0).enable_peer(rig.contexts[1], 0).unwrap();
    assert_eq!(set(), Ok(()));
}

#[test]
fn path_is_direct_once_either_side_reaches_the_other() {
    let rig = Rig::new(2);
    let (a, b) = (rig.memory(0, 1), rig.memory(1, 2));
    rig.peer_copy(b, a).unwrap();
    assert_eq!(rig.machine.copies(0, 1), (0, 1));
    for (from, to) in [(0, 1), (1, 0)] {
        rig.on(from).enable_peer(rig.contexts[to], 0).unwrap();
        let before = (rig.machine.copies(0, 1), rig.machine.copies(1, 0));
        rig.peer_copy(b, a).unwrap();
        rig.peer_copy(a, b).unwrap();
        assert_eq!(rig.machine.copies(0, 1), (before.0.0 + 1, before.0.1));
        assert_eq!(rig.machine.copies(1, 0), (before.1.0 + 1, before.1.1));
        // A copy that is under way by an access ends with it.
        for device in [to, from] {
            rig.on(device).synchronize_context().unwrap();
        }
        rig.on(from).disable_peer(rig.contexts[to]).unwrap();
    }
    rig.peer_copy(b, a).unwrap();
    assert_eq!(rig.machine.copies(0, 1), (2, 2));
    assert_eq!(rig.machine.copies(0, 0), (0, 0));
}

#[test]
fn copy_refuses_memory_that_it_cannot_know() {
    let rig = Rig::new(2);
    let (a, b) = (rig.memory(0, 1), rig.memory(1, 2));
    let heap = vec![0u8; SIZE];
    let heap = heap.as_ptr() as u64;
    for (dst, src) in [(0, a), (b, 0), (heap, a), (b, heap), (b + 1, a)] {
        assert_eq!(rig.peer_copy(dst, src), Err(Error::INVALID_VALUE), "{dst:#x} {src:#x}");
    }
    let pinned = rig.on(0).allocate(Kind::Pinned, SIZE as u64, 0).unwrap();
    assert_eq!(rig.peer_copy(pinned, a), Ok(()));
    assert_eq!(first_byte(pinned), 1);
    rig.machine.free(a, Kind::Device).unwrap();
    assert_eq!(rig.peer_copy(b, a), Err(Error::INVALID_VALUE));
    let any = Request { src: Place::linear(Locus::Any(a)), ..linear(b, a, 8) };
    assert_eq!(rig.machine.copy(LEGACY, &any, Completion::Sync), Err(Error::INVALID_VALUE));
    assert_eq!(rig.machine.free(a, Kind::Device), Err(Error::INVALID_VALUE));
    assert_eq!(rig.machine.free(b + 512, Kind::Device), Err(Error::INVALID_VALUE));
}

#[test]
fn copy_of_nothing_succeeds_whatever_the_pointers() {
    let rig = Rig::new(2);
    assert_eq!(rig.machine.copy_peer(DefaultStream::Legacy, &linear(0, 0, 0), NO_CONTEXTS), Ok(()));
    current::set(None);
    assert_eq!(
        rig.machine.copy_peer(DefaultStream::Legacy, &linear(0, 0, 0), NO_CONTEXTS),
        Err(Error::INVALID_CONTEXT)
    );
}

#[test]
fn peer_copy_looks_at_its_contexts_last() {
    let rig = Rig::new(2);
    let (a, b) = (rig.memory(0, 5), rig.memory(1, 0));
    let gone = [ContextHandle(0x5050); 2];
    let copy = |dst, size| rig.on(0).copy_peer(DefaultStream::Legacy, &linear(dst, a, size), gone);
    assert_eq!(copy(b, 0), Ok(()));
    assert_eq!(copy(0, 8), Err(Error::INVALID_VALUE));
    assert_eq!(copy(b, 8), Err(Error::CONTEXT_IS_DESTROYED));
}

#[test]
fn copy_box_checks_pitch_rows_and_bounds() {
    let rig = Rig::new(2);
    let (a, b) = (rig.memory(0, 5), rig.memory(1, 0));
    let place = |at, x, pitch, rows| Place { at: Locus::Device(at), pitch, rows, x, y: 0, z: 0 };
    let copy = |x, pitch, rows, depth| {
        let extent = Extent { width: 64, height: 4, depth };
        let request = Request { dst: place(b, 0, 64, 4), src: place(a, x, pitch, rows), extent };
        rig.on(0).copy_peer(DefaultStream::Legacy, &request, NO_CONTEXTS)
    };
    assert_eq!(copy(0, 64, 4, 2), Ok(()));
    assert_eq!(copy(0, 8, 4, 2), Err(Error::INVALID_VALUE));
    assert_eq!(copy(1, 64, 4, 2), Err(Error::INVALID_VALUE));
    assert_eq!(copy(0, 64, 3, 2), Err(Error::INVALID_VALUE));
    assert_eq!(copy(0, 64, 3, 1), Err(Error::INVALID_VALUE));
    assert_eq!(copy(0, 64, 0, 1), Ok(()));
    assert_eq!(copy(0, 64, 4, 1 << 20), Err(Error::INVALID_VALUE));
    assert_eq!(copy(0, u64::MAX, 4, 2), Err(Error::INVALID_VALUE));
}

#[test]
fn copy_from_pageable_memory_may_be_overtaken_by_its_owner() {
    let rig = Rig::new(1);
    let a = rig.memory(0, 0);
    let stream = rig.stream(0, Role::Blocking);
    let gate = rig.block(stream);
    let mut heap = vec![9u8; 16];
    let request = Request { src: Place::linear(Locus::Host(heap.as_ptr() as u64)), ..linear(a, 0, 16) };
    rig.machine.copy(stream, &request, Completion::Async).unwrap();
    heap.fill(0);
    gate.signal();
    rig.machine.synchronize_stream(stream).unwrap();
    assert_eq!(first_byte(a), 9);
    let back = Request { dst: Place::linear(Locus::Host(heap.as_ptr() as u64)), ..linear(0, a, 16) };
    rig.machine.copy(stream, &back, Completion::Async).unwrap();
    assert_eq!(heap, [9; 16]);
}

#[test]
fn free_waits_for_work_and_synchronising_for_nothing_later() {
    let rig = Rig::new(2);
    let a = rig.memory(0, 0);
    let gate = rig.block(rig.stream(0, Role::NonBlocking));
    thread::scope(|scope| {
        let freeing = scope.spawn(|| rig.on(1).free(a, Kind::Device));
        settle();
        assert!(!freeing.is_finished());
        assert_eq!(rig.machine.find(a).map(|found| found.base), None);
        gate.signal();
        assert_eq!(freeing.join().unwrap(), Ok(()));
    });
}

#[test]
fn event_of_a_context_is_done_after_all_its_streams() {
    let rig = Rig::new(2);
    let event = rig.on(0).create_event(false).unwrap();
    let gate = rig.block(rig.stream(0, Role::NonBlocking));
    rig.on(0).record_event_of_context(event, rig.contexts[0]).unwrap();
    settle();
    assert_eq!(rig.on(0).event_is_done(event), Ok(false));
    gate.signal();
    rig.on(0).synchronize_event(event).unwrap();
    assert_eq!(rig.on(0).event_is_done(event), Ok(true));
    assert_eq!(rig.on(0).record_event_of_context(event, rig.contexts[1]), Err(Error::INVALID_HANDLE));
}

#[test]
fn enable_peer_answers_as_measured() {
    let no_path = vec![(0, 2)];
    let rig = Rig::with(Config { devices: 4, no_path, max_peers: 2, ..Config::default() });
    let [zero, one, two, three] = rig.contexts[..] else { unreachable!() };
    let machine = rig.on(0);
    assert_eq!(machine.enable_peer(zero, 0), Err(Error::PEER_ACCESS_UNSUPPORTED));
    assert_eq!(machine.enable_peer(ContextHandle(0), 0), Err(Error::INVALID_CONTEXT));
    assert_eq!(machine.enable_peer(one, 1), Err(Error::INVALID_VALUE));
    assert_eq!(machine.enable_peer(ContextHandle(0), 1), Err(Error::INVALID_CONTEXT));
    assert_eq!(machine.enable_peer(zero, 1), Err(Error::INVALID_VALUE));
    assert_eq!(machine.enable_peer(two, 0), Err(Error::PEER_ACCESS_UNSUPPORTED));
    let gone = ContextHandle(0x5050);
    assert_eq!(machine.enable_peer(gone, 1), Err(Error::INVALID_VALUE));
    assert_eq!(machine.enable_peer(gone, 0), Err(Error::CONTEXT_IS_DESTROYED));
    assert_eq!(machine.disable_peer(gone), Err(Error::CONTEXT_IS_DESTROYED));
    assert_eq!(machine.disable_peer(zero), Err(Error::PEER_ACCESS_NOT_ENABLED));
    assert_eq!(machine.disable_peer(one), Err(Error::PEER_ACCESS_NOT_ENABLED));
    assert_eq!(machine.enable_peer(one, 0), Ok(()));
    assert_eq!(machine.enable_peer(one, 0), Err(Error::PEER_ACCESS_ALREADY_ENABLED));
    assert_eq!(machine.enable_peer(three, 0), Ok(()));
    assert_eq!(
        machine.create_context(1, 0).and_then(|created| machine.enable_peer(created, 0)),
        Err(Error::TOO_MANY_PEERS)
    );
    assert_eq!(rig.on(2).enable_peer(zero, 0), Ok(()));
    current::set(None);
    assert_eq!(rig.machine.enable_peer(one, 0), Err(Error::INVALID_CONTEXT));
}

#[test]
fn peer_access_ends_with_either_context() {
    let rig = Rig::new(2);
    let [zero, one] = rig.contexts[..] else { unreachable!() };
    for device in [0, 1] {
        rig.on(0).enable_peer(one, 0).unwrap();
        rig.machine.reset_primary(device).unwrap();
        rig.machine.retain_primary(device).unwrap();
        assert_eq!(rig.on(0).disable_peer(one), Err(Error::PEER_ACCESS_NOT_ENABLED));
    }
    let created = rig.machine.create_context(1, 0).unwrap();
    rig.on(0).enable_peer(created, 0).unwrap();
    rig.machine.destroy_context(created).unwrap();
    assert_eq!(rig.on(0).disable_peer(created), Err(Error::CONTEXT_IS_DESTROYED));
    assert_eq!(rig.machine.destroy_context(zero), Err(Error::INVALID_CONTEXT));
}

#[test]
fn primary_context_lives_until_its_last_release_and_keeps_its_handle() {
    let rig = Rig::new(1);
    let first = rig.machine.context(rig.contexts[0]).unwrap();
    let a = rig.memory(0, 1);
    assert_eq!(rig.machine.retain_primary(0), Ok(first.handle));
    assert_eq!(rig.machine.release_primary(0), Ok(()));
    assert!(rig.machine.primary_state(0).unwrap().active);
    assert_eq!(rig.machine.release_primary(0), Ok(()));
    assert!(!rig.machine.primary_state(0).unwrap().active);
    assert_eq!(rig.machine.release_primary(0), Err(Error::INVALID_CONTEXT));
    assert_eq!(rig.machine.find(a).map(|found| found.base), None);
    assert_eq!(rig.machine.current_context(), Err(Error::CONTEXT_IS_DESTROYED));
    let again = rig.machine.retain_primary(0).and_then(|handle| rig.machine.context(handle)).unwrap();
    assert_eq!(again.handle, first.handle);
    assert_ne!(again.id, first.id);
}

#[test]
fn created_context_handles_come_again_and_ids_do_not() {
    let rig = Rig::new(1);
    let first = rig.machine.create_context(0, 0).unwrap();
    let first_id = rig.machine.context(first).unwrap().id;
    current::push(first);
    rig.machine.destroy_context(first).unwrap();
    assert_ne!(current::get(), Some(first));
    assert_eq!(rig.machine.context(first), Err(Error::CONTEXT_IS_DESTROYED));
    let second = rig.machine.create_context(0, 0).unwrap();
    assert_eq!(second, first);
    assert_ne!(rig.machine.context(second).unwrap().id, first_id);
}

#[test]
fn destroyed_stream_is_unknown_but_its_work_is_still_waited_for() {
    let rig = Rig::new(1);
    let stream = rig.stream(0, Role::Blocking);
    let gate = rig.block(stream);
    let StreamRef::Created(handle) = stream else { unreachable!() };
    assert_eq!(rig.machine.destroy_stream(handle), Ok(()));
    assert_eq!(rig.machine.synchronize_stream(stream), Err(Error::INVALID_HANDLE));
    rig.machine.launch_host(LEGACY, Arc::new(|| ())).unwrap();
    settle();
    assert!(!rig.machine.stream_is_done(LEGACY).unwrap());
    gate.signal();
    rig.machine.synchronize_context().unwrap();
}

#[test]
fn event_orders_streams_of_two_devices() {
    let rig = Rig::new(2);
    let (first, second) = (rig.stream(0, Role::NonBlocking), rig.stream(1, Role::NonBlocking));
    let event = rig.on(0).create_event(true).unwrap();
    assert_eq!(rig.machine.event_is_done(event), Ok(true));
    assert_eq!(rig.machine.record_event(event, second), Err(Error::INVALID_HANDLE));
    let gate = rig.block(first);
    rig.machine.record_event(event, first).unwrap();
    rig.machine.wait_event(second, event).unwrap();
    settle();
    assert_eq!(rig.machine.event_is_done(event), Ok(false));
    assert_eq!(rig.machine.stream_is_done(second), Ok(false));
    gate.signal();
    rig.machine.synchronize_stream(second).unwrap();
    assert_eq!(rig.machine.event_is_done(event), Ok(true));
}

#[test]
fn elapsed_needs_two_reached_records_with_time() {
    let rig = Rig::new(1);
    let stream = rig.stream(0, Role::Blocking);
    let [start, end] = [true, true].map(|has_time| rig.machine.create_event(has_time).unwrap());
    let timeless = rig.machine.create_event(false).unwrap();
    assert_eq!(rig.machine.elapsed(start, end), Err(Error::INVALID_HANDLE));
    rig.machine.record_event(start, stream).unwrap();
    let gate = rig.block(stream);
    rig.machine.record_event(end, stream).unwrap();
    rig.machine.record_event(timeless, stream).unwrap();
    assert_eq!(rig.machine.elapsed(start, end), Err(Error::NOT_READY));
    settle();
    gate.signal();
    rig.machine.synchronize_event(timeless).unwrap();
    assert!(rig.machine.elapsed(start, end).unwrap() >= 20.0);
    assert!(rig.machine.elapsed(end, start).unwrap() <= -20.0);
    assert_eq!(rig.machine.elapsed(start, timeless), Err(Error::INVALID_HANDLE));
}

#[test]
fn array_takes_part_in_copies_within_its_bounds() {
    let rig = Rig::new(2);
    let a = rig.memory(0, 3);
    let shape = ArrayShape { width: 16, height: 8, depth: 0, element: 4, format: 0x20, channels: 1, flags: 0 };
    let array = rig.on(1).create_array(shape).unwrap();
    let place = |y| Place { y, ..Place::linear(Locus::Array(array)) };
    let memory = Place { pitch: 64, rows: 8, ..Place::linear(Locus::Device(a)) };
    let extent = Extent { width: 64, height: 4, depth: 1 };
    let into =
        |y| rig.on(0).copy_peer(DefaultStream::Legacy, &Request { dst: place(y), src: memory, extent }, NO_CONTEXTS);
    assert_eq!(into(4), Ok(()));
    assert_eq!(into(5), Err(Error::INVALID_VALUE));
    let b = rig.memory(0, 0);
    let out = Request { dst: Place { at: Locus::Device(b), ..memory }, src: place(4), extent };
    assert_eq!(rig.machine.copy_peer(DefaultStream::Legacy, &out, NO_CONTEXTS), Ok(()));
    rig.machine.synchronize_context().unwrap();
    assert_eq!((first_byte(b), first_byte(b + 255), first_byte(b + 256)), (3, 3, 0));
    assert_eq!(rig.machine.copies(0, 1), (0, 1));
    assert_eq!(rig.machine.destroy_array(array), Ok(()));
    assert_eq!(into(0), Err(Error::INVALID_HANDLE));
}

#[test]
fn fill_checks_alignment() {
    let rig = Rig::new(1);
    let a = rig.memory(0, 0);
    let place = |at| Place::linear(Locus::Device(at));
    assert_eq!(
        rig.machine.fill(LEGACY, place(a + 1), Extent::linear(8), (1, 4), Completion::Async),
        Err(Error::INVALID_VALUE)
    );
    assert_eq!(rig.machine.fill(LEGACY, place(a + 4), Extent::linear(8), (0x0101_0101, 4), Completion::Async), Ok(()));
    rig.machine.synchronize_stream(LEGACY).unwrap();
    assert_eq!([a + 3, a + 4, a + 11, a + 12].map(first_byte), [0, 1, 1, 0]);
}

#[test]
fn primary_context_keeps_its_handle_and_never_its_id() {
    let rig = Rig::new(1);
    let (machine, handle) = (&rig.machine, rig.contexts[0]);
    let mut ids = vec![machine.context(handle).unwrap().id];
    machine.reset_primary(0).unwrap();
    assert_eq!(machine.context(handle), Err(Error::CONTEXT_IS_DESTROYED));
    assert_eq!(machine.retain_primary(0), Ok(handle));
    ids.push(machine.context(handle).unwrap().id);
    machine.release_primary(0).unwrap();
    assert_eq!(machine.context(handle).unwrap().id, ids[1]);
    machine.release_primary(0).unwrap();
    assert_eq!(machine.context(handle), Err(Error::CONTEXT_IS_DESTROYED));
    assert_eq!(machine.retain_primary(0), Ok(handle));
    ids.push(machine.context(handle).unwrap().id);
    assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
}
