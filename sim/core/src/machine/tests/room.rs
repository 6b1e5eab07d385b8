//! Room in the queues of streams. Measured on an H200, whose queues have 1,021 places.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::*;

const PLACES: usize = 10;
/// Enough calls to fill any queue.
const MANY: usize = 40;

/// How many calls do not wait while a stream of device 0 does.
fn calls_before_one_waits(is_direct: bool, call: fn(&Machine, StreamRef, [u64; 3], EventHandle)) -> usize {
    let rig = Rig::with(Config { devices: 2, queue: PLACES, ..Config::default() });
    let memory = [rig.memory(0, 1), rig.memory(0, 2), rig.memory(1, 3)];
    if is_direct {
        rig.on(0).enable_peer(rig.contexts[1], 0).unwrap();
    }
    let stream = rig.stream(0, Role::NonBlocking);
    let event = rig.on(0).create_event(false).unwrap();
    let gate = rig.block(stream);
    settle();
    let made = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let machine = rig.on(0);
            for _ in 0..MANY {
                call(machine, stream, memory, event);
                made.fetch_add(1, Relaxed);
            }
        });
        let before = || made.load(Relaxed);
        let mut last = None;
        while before() != MANY && last.replace(before()) != Some(before()) {
            // Long, since the thread may be late on a busy machine.
            (0..8).for_each(|_| settle());
        }
        let before = before();
        gate.signal();
        before
    })
}

fn copy(machine: &Machine, stream: StreamRef, [here, _, there]: [u64; 3], _: EventHandle) {
    machine.copy_peer_async(stream, &linear(there, here, 8), NO_CONTEXTS).unwrap();
}

fn copy_within(machine: &Machine, stream: StreamRef, [here, beside, _]: [u64; 3], _: EventHandle) {
    machine.copy(stream, &linear(beside, here, 8), Completion::Async).unwrap();
}

fn set(machine: &Machine, stream: StreamRef, [here, ..]: [u64; 3], _: EventHandle) {
    let place = Place::linear(Locus::Device(here));
    machine.fill(stream, place, Extent::linear(8), (0, 1), Completion::Async).unwrap();
}

fn record(machine: &Machine, stream: StreamRef, _: [u64; 3], event: EventHandle) {
    machine.record_event(event, stream).unwrap();
    machine.wait_event(stream, event).unwrap();
}

#[test]
fn staged_copy_takes_three_places_any_other_one_and_events_none() {
    assert_eq!(calls_before_one_waits(true, copy), PLACES);
    assert_eq!(calls_before_one_waits(false, copy), PLACES / 3);
    assert_eq!(calls_before_one_waits(false, copy_within), PLACES);
    assert_eq!(calls_before_one_waits(false, set), PLACES);
    assert_eq!(calls_before_one_waits(false, record), MANY);
}

#[test]
fn events_and_memsets_take_no_places_from_copies() {
    let recorded = |machine: &Machine, stream: StreamRef, memory: [u64; 3], event: EventHandle| {
        copy(machine, stream, memory, event);
        record(machine, stream, memory, event);
    };
    let with_set = |machine: &Machine, stream: StreamRef, memory: [u64; 3], event: EventHandle| {
        copy(machine, stream, memory, event);
        set(machine, stream, memory, event);
    };
    for call in [recorded, with_set] {
        assert_eq!(calls_before_one_waits(true, call), PLACES);
    }
}

#[test]
fn empty_queue_takes_a_copy_that_needs_more_places_than_it_has() {
    let rig = Rig::with(Config { devices: 2, queue: 1, ..Config::default() });
    let (a, b) = (rig.memory(0, 1), rig.memory(1, 2));
    let stream = rig.stream(0, Role::NonBlocking);
    rig.on(0).copy_peer_async(stream, &linear(b, a, 8), NO_CONTEXTS).unwrap();
    rig.on(0).synchronize_stream(stream).unwrap();
    assert_eq!(first_byte(b), 1);
}
