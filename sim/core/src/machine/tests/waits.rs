//! The contexts whose work copies between devices are, and the calls that wait for it.

use super::*;
use crate::CaptureMode;
use crate::access::READ_WRITE;

/// Memory of devices 0 and 1, more of each that no copy touches, and a stream of device 0 that waits.
struct Held {
    rig: Rig,
    a: u64,
    b: u64,
    others: [u64; 2],
    stream: StreamRef,
    gate: Arc<Fence>,
}

impl Held {
    fn new(is_direct: bool) -> Held {
        Held::on(is_direct, None)
    }

    fn on(is_direct: bool, stream: Option<StreamRef>) -> Held {
        let rig = Rig::new(3);
        let (a, b) = (rig.memory(0, 1), rig.memory(1, 2));
        let others = [0, 1].map(|device| rig.memory(device, 3));
        if is_direct {
            rig.on(0).enable_peer(rig.contexts[1], 0).unwrap();
        }
        let stream = stream.unwrap_or_else(|| rig.stream(0, Role::NonBlocking));
        rig.on(0);
        let gate = rig.block(stream);
        Held { rig, a, b, others, stream, gate }
    }

    /// Queues a copy from device 0 to device 1.
    fn copied(self) -> Held {
        self.rig.on(0).copy(self.stream, &linear(self.b, self.a, SIZE as u64), Completion::Async).unwrap();
        self
    }

    /// Whether a call with that device current waits for what the stream has to do. The stream goes on then.
    fn waits<T: Send>(&self, device: usize, call: impl FnOnce(&Machine) -> Result<T> + Send) -> (bool, Result<T>) {
        thread::scope(|scope| {
            let calling = scope.spawn(|| call(self.rig.on(device)));
            // Long, since a call that does not wait may be late on a busy machine.
            for _ in 0..8 {
                settle();
                if calling.is_finished() {
                    break;
                }
            }
            let waits = !calling.is_finished();
            self.gate.signal();
            (waits, calling.join().unwrap())
        })
    }

    fn end(&self) -> Result<()> {
        self.gate.signal();
        self.rig.on(0).synchronize_stream(self.stream)
    }
}

type Call = fn(&Held, &Machine) -> Result<()>;

fn synchronize(_: &Held, machine: &Machine) -> Result<()> {
    machine.synchronize_context()
}

fn free_other_of_1(held: &Held, machine: &Machine) -> Result<()> {
    machine.free(held.others[1], Kind::Device)
}

fn free_destination(held: &Held, machine: &Machine) -> Result<()> {
    machine.free(held.b, Kind::Device)
}

fn free_source(held: &Held, machine: &Machine) -> Result<()> {
    machine.free(held.a, Kind::Device)
}

fn reset_2(_: &Held, machine: &Machine) -> Result<()> {
    machine.reset_primary(2)
}

fn load_module(_: &Held, machine: &Machine) -> Result<()> {
    machine.load_module(Vec::new()).map(drop)
}

fn limit_stack(_: &Held, machine: &Machine) -> Result<()> {
    machine.set_limit(0, 4096)
}

fn limit_heap(_: &Held, machine: &Machine) -> Result<()> {
    machine.set_limit(2, 4096)
}

#[test]
fn staged_copy_is_work_of_both_sides_and_direct_one_of_its_stream_alone() {
    // The call, the device that is current, whether it waits for a staged copy, for a direct one.
    let cases: [(Call, usize, bool, bool); 14] = [
        (synchronize, 0, true, true),
        (synchronize, 1, true, false),
        (synchronize, 2, false, false),
        (free_other_of_1, 1, true, false),
        // Whichever context is current.
        (free_other_of_1, 0, true, false),
        (free_other_of_1, 2, true, false),
        (free_destination, 2, true, false),
        (free_source, 1, true, true),
        (reset_2, 2, true, true),
        (load_module, 1, true, false),
        (load_module, 2, false, false),
        (limit_stack, 1, true, false),
        (limit_stack, 2, false, false),
        (limit_heap, 0, false, false),
    ];
    for (number, (call, device, staged, direct)) in cases.into_iter().enumerate() {
        for (is_direct, expected) in [(false, staged), (true, direct)] {
            let held = Held::new(is_direct).copied();
            let (waits, code) = held.waits(device, |machine| call(&held, machine));
            assert_eq!((waits, code), (expected, Ok(())), "case {number}, direct {is_direct}");
            let is_lost = is_direct && held.rig.machine.find(held.b).is_none();
            assert_eq!(held.end(), if is_lost { Err(Error::LAUNCH_FAILED) } else { Ok(()) }, "case {number}");
        }
    }
}

#[test]
fn module_and_host_memory_are_of_their_context_whichever_is_current() {
    for (owner, expected) in [(1, true), (2, false)] {
        let held = Held::new(false);
        let module = held.rig.on(owner).load_module(Vec::new()).unwrap();
        let held = held.copied();
        assert_eq!(held.waits(0, |machine| machine.unload_module(module)), (expected, Ok(())));
        assert_eq!(held.end(), Ok(()));

        let held = Held::new(false);
        let pinned = held.rig.on(owner).allocate(Kind::Pinned, 4096, 0).unwrap();
        let held = held.copied();
        assert_eq!(held.waits(0, |machine| machine.free(pinned, Kind::Pinned)), (expected, Ok(())));

        let held = Held::new(false);
        let bytes = vec![0u8; 4096];
        held.rig.on(owner).register_host(bytes.as_ptr() as u64, 4096, 0).unwrap();
        let held = held.copied();
        let base = bytes.as_ptr() as u64;
        assert_eq!(held.waits(0, |machine| machine.unregister_host(base)), (expected, Ok(())));

        let held = Held::new(false);
        let shape = ArrayShape { width: 16, height: 8, depth: 0, element: 4, format: 0x20, channels: 1, flags: 0 };
        let array = held.rig.on(owner).create_array(shape).unwrap();
        let held = held.copied();
        assert_eq!(held.waits(0, |machine| machine.destroy_array(array)), (expected, Ok(())));
    }
}

#[test]
fn library_waits_where_a_context_loads_it() {
    let held = Held::new(false);
    let library = held.rig.on(1).load_library(vec![COPY_KERNEL.to_owned()]).unwrap();
    let kernel = held.rig.machine.library_kernel(library, COPY_KERNEL).unwrap();
    let held = held.copied();
    assert_eq!(held.waits(2, |machine| machine.kernel_function(kernel).map(drop)), (false, Ok(())));
    let held = Held { gate: held.rig.block(held.stream), ..held }.copied();
    assert_eq!(held.waits(1, |machine| machine.kernel_function(kernel).map(drop)), (true, Ok(())));
    let held = Held { gate: held.rig.block(held.stream), ..held }.copied();
    assert_eq!(held.waits(1, |machine| machine.library_module(library).map(drop)), (false, Ok(())));
    let held = Held { gate: held.rig.block(held.stream), ..held }.copied();
    assert_eq!(held.waits(2, |machine| machine.load_library(Vec::new()).map(drop)), (false, Ok(())));
    let held = Held { gate: held.rig.block(held.stream), ..held }.copied();
    assert_eq!(held.waits(2, |machine| machine.unload_library(library).map(drop)), (true, Ok(())));
    assert_eq!(held.rig.on(1).kernel_function(kernel), Err(Error::INVALID_HANDLE));
}

#[test]
fn work_of_a_destroyed_stream_is_waited_for() {
    let held = Held::new(false).copied();
    let StreamRef::Created(handle) = held.stream else { unreachable!() };
    held.rig.machine.destroy_stream(handle).unwrap();
    assert_eq!(held.waits(1, |machine| machine.free(held.b, Kind::Device)), (true, Ok(())));
}

#[test]
fn event_of_a_context_comes_after_staged_copies_that_it_takes_part_in() {
    for is_direct in [false, true] {
        let held = Held::new(is_direct);
        let event = held.rig.on(1).create_event(false).unwrap();
        let held = held.copied();
        held.rig.on(1).record_event_of_context(event, held.rig.contexts[1]).unwrap();
        assert_eq!(held.waits(1, |machine| machine.synchronize_event(event)), (!is_direct, Ok(())));
    }
}

#[test]
fn end_of_a_context_takes_its_memory_from_direct_copies_and_waits_for_them() {
    for is_direct in [false, true] {
        let held = Held::new(is_direct).copied();
        assert_eq!(held.waits(1, |machine| machine.reset_primary(1)), (true, Ok(())));
        assert_eq!(held.end(), if is_direct { Err(Error::LAUNCH_FAILED) } else { Ok(()) });
    }
}

#[test]
fn freed_array_and_pool_memory_end_copies_that_come_to_them() {
    let held = Held::new(true);
    let shape = ArrayShape { width: 64, height: 8, depth: 0, element: 4, format: 0x20, channels: 1, flags: 0 };
    let array = held.rig.on(1).create_array(shape).unwrap();
    let request = Request { dst: Place::linear(Locus::Array(array)), ..linear(0, held.a, 64) };
    held.rig.on(0).copy(held.stream, &request, Completion::Async).unwrap();
    assert_eq!(held.waits(0, |machine| machine.destroy_array(array)), (false, Ok(())));
    assert_eq!(held.end(), Err(Error::LAUNCH_FAILED));

    let held = Held::new(false);
    let pooled = held.rig.on(1).allocate_async(SIZE as u64, None, LEGACY).unwrap();
    held.rig.on(0).copy_peer_async(held.stream, &linear(pooled, held.a, SIZE as u64), NO_CONTEXTS).unwrap();
    assert_eq!(held.waits(1, |machine| machine.free(pooled, Kind::Device)), (false, Ok(())));
    assert_eq!(held.end(), Err(Error::LAUNCH_FAILED));
}

/// Memory that no context has: of a pool, and mapped.
fn memory_without_context(rig: &Rig, device: usize) -> [u64; 2] {
    let machine = rig.on(device);
    let pooled = machine.allocate_async(SIZE as u64, None, LEGACY).unwrap();
    machine.synchronize_stream(LEGACY).unwrap();
    let physical = machine.create_physical(device, MAPPING_GRANULE).unwrap();
    let mapped = machine.reserve_addresses(MAPPING_GRANULE).unwrap();
    machine.map(mapped, MAPPING_GRANULE, physical).unwrap();
    machine.set_access(mapped, MAPPING_GRANULE, &[(device, READ_WRITE)]).unwrap();
    [pooled, mapped]
}

/// Whether all work of each of these comes after a peer copy between device 0 and such memory of device 1 that names contexts of destination
/// and source: the primary contexts of all devices, and another context of device 1.
fn waiting(named: fn(&[ContextHandle; 4]) -> [ContextHandle; 2], kind: usize, is_pull: bool) -> [bool; 4] {
    [0, 1, 2, 3].map(|asked| {
        let held = Held::new(false);
        let machine = &held.rig.machine;
        let there = memory_without_context(&held.rig, 1)[kind];
        let created = machine.create_context(1, 0).unwrap();
        let contexts = [held.rig.contexts[0], held.rig.contexts[1], held.rig.contexts[2], created];
        let (dst, src) = if is_pull { (held.a, there) } else { (there, held.a) };
        held.rig.on(0).copy_peer_async(held.stream, &linear(dst, src, SIZE as u64), named(&contexts)).unwrap();
        let (waits, code) = held.waits(0, |machine| machine.synchronize_context_of(contexts[asked]));
        assert_eq!((code, held.end()), (Ok(()), Ok(())));
        waits
    })
}

#[test]
fn staged_copy_of_memory_without_a_context_is_work_of_the_one_that_it_names() {
    for kind in [0, 1] {
        assert_eq!(waiting(|all| [all[1], all[0]], kind, false), [true, true, false, false]);
        assert_eq!(waiting(|all| [all[3], all[0]], kind, false), [true, false, false, true]);
        // The other side's memory has a context, whichever is named for it.
        assert_eq!(waiting(|all| [all[2], all[3]], kind, false), [true, false, true, false]);
        assert_eq!(waiting(|all| [all[0], all[3]], kind, true), [true, false, false, true]);
        assert_eq!(waiting(|_| NO_CONTEXTS, kind, false), [true, false, false, false]);
    }
}

#[test]
fn staged_regular_copy_is_work_of_its_stream_alone_where_memory_has_no_context() {
    for kind in [0, 1] {
        let held = Held::new(false);
        let there = memory_without_context(&held.rig, 1)[kind];
        // Device 1 has rights, device 0 none.
        held.rig.on(1).copy(held.stream, &linear(there, held.a, SIZE as u64), Completion::Async).unwrap();
        assert_eq!(held.rig.machine.copies(0, 1), (0, 1));
        assert_eq!(held.waits(1, |machine| machine.synchronize_context()), (false, Ok(())));
        assert_eq!(held.end(), Ok(()));
    }
}

#[test]
fn legacy_stream_of_the_named_context_is_ordered_with_a_copy_of_memory_without_one() {
    for is_sync in [false, true] {
        let held = Held::on(false, Some(LEGACY));
        let there = memory_without_context(&held.rig, 1)[0];
        let created = held.rig.machine.create_context(1, 0).unwrap();
        let (request, named) = (linear(there, held.a, SIZE as u64), [created, held.rig.contexts[0]]);
        let machine = held.rig.on(0);
        match is_sync {
            true => machine.copy_peer(DefaultStream::Legacy, &request, named).unwrap(),
            false => machine.copy_peer_async(LEGACY, &request, named).unwrap(),
        }
        assert_eq!(held.rig.on(1).stream_is_done(LEGACY), Ok(true));
        current::set(Some(created));
        assert_eq!(machine.stream_is_done(LEGACY), Ok(false));
        assert_eq!(held.end(), Ok(()));
    }
}

#[test]
fn copy_on_a_legacy_stream_is_ordered_with_those_of_both_sides_but_not_in_a_graph() {
    for is_direct in [false, true] {
        let held = Held::on(is_direct, Some(LEGACY)).copied();
        let event = held.rig.on(1).create_event(false).unwrap();
        held.rig.machine.record_event(event, LEGACY).unwrap();
        assert_eq!(held.rig.machine.event_is_done(event), Ok(false));
        assert_eq!(held.waits(1, |machine| machine.synchronize_context()), (true, Ok(())));

        let held = Held::on(is_direct, Some(LEGACY));
        let exec = copy_graph(&held, None);
        held.rig.on(0).launch_graph(exec, LEGACY).unwrap();
        assert_eq!(held.rig.on(1).stream_is_done(LEGACY), Ok(true));
        assert_eq!(held.waits(1, |machine| machine.synchronize_context()), (!is_direct, Ok(())));
    }
}

/// A ready graph of a copy from device 0 to device 1 and, behind it, of work that waits.
fn copy_graph(held: &Held, tail: Option<&Arc<Fence>>) -> ExecHandle {
    let machine = held.rig.on(0);
    let capturing = held.rig.stream(0, Role::NonBlocking);
    machine.begin_capture(capturing, CaptureMode::Relaxed, None).unwrap();
    machine.copy(capturing, &linear(held.b, held.a, SIZE as u64), Completion::Async).unwrap();
    if let Some(tail) = tail.map(Arc::clone) {
        machine.launch_host(capturing, Arc::new(move || tail.wait())).unwrap();
    }
    machine.instantiate_graph(machine.end_capture(capturing).unwrap()).unwrap()
}

#[test]
fn graph_is_waited_for_until_its_copy_is_done() {
    let tail = Fence::pending();
    let held = Held::new(false);
    let exec = copy_graph(&held, Some(&tail));
    held.rig.on(0).launch_graph(exec, held.stream).unwrap();
    assert_eq!(held.waits(1, |machine| machine.synchronize_context()), (true, Ok(())));
    assert_eq!(held.rig.on(0).stream_is_done(held.stream), Ok(false));
    tail.signal();
    assert_eq!(held.end(), Ok(()));
}

#[test]
fn event_of_a_node_is_reached_with_the_nodes_before_it() {
    let tail = Fence::pending();
    let held = Held::new(false);
    let machine = held.rig.on(0);
    let graph = machine.create_graph();
    let copy = machine.add_copy_node(graph, Vec::new(), &linear(held.b, held.a, 8), held.rig.contexts[0]).unwrap();
    let inner = Arc::clone(&tail);
    machine.begin_capture(PER_THREAD, CaptureMode::Relaxed, Some((graph, vec![copy]))).unwrap();
    machine.launch_host(PER_THREAD, Arc::new(move || inner.wait())).unwrap();
    machine.end_capture(PER_THREAD).unwrap();
    let event = machine.create_event(false).unwrap();
    let without = machine.instantiate_graph(graph).unwrap();
    let node = machine.add_record_node(graph, vec![copy], event).unwrap();
    assert_eq!(machine.dependents(copy).map(|after| after.len()), Ok(2));
    let parent = machine.create_graph();
    machine.add_child_node(parent, Vec::new(), graph).unwrap();
    let outer = machine.instantiate_graph(parent).unwrap();
    let exec = machine.instantiate_graph(graph).unwrap();
    assert_eq!(machine.update_exec(exec, graph), Ok(Ok(())));
    assert_eq!(machine.update_exec(without, graph), Ok(Err(Unlike::Topology)));
    machine.destroy_node(node).unwrap();
    assert_eq!(machine.destroy_node(node), Err(Error::INVALID_VALUE));
    assert_eq!(machine.update_exec(exec, graph), Ok(Err(Unlike::Topology)));
    assert_eq!(machine.update_exec(without, graph), Ok(Ok(())));

    machine.launch_graph(exec, held.stream).unwrap();
    assert_eq!(machine.event_is_done(event), Ok(false));
    assert_eq!(held.waits(0, |machine| machine.synchronize_event(event)), (true, Ok(())));
    assert_eq!(held.rig.on(0).stream_is_done(held.stream), Ok(false));
    tail.signal();
    assert_eq!(held.end(), Ok(()));
    machine.launch_graph(outer, held.stream).unwrap();
    assert_eq!(machine.synchronize_event(event), Ok(()));
}
