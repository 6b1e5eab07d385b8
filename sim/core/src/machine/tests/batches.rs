//! Batches of copies.

use super::*;
use crate::capture::CaptureMode;

impl Rig {
    fn batch(&self, stream: StreamRef, pairs: &[(u64, u64)]) -> std::result::Result<(), BatchError> {
        let copies: Vec<_> = pairs.iter().map(|(dst, src)| (linear(*dst, *src, 8), Completion::Async)).collect();
        self.on(0).copy_batch(stream, &copies)
    }
}

#[test]
fn batch_copies_each_by_its_own_way_in_stream_order() {
    let rig = Rig::new(3);
    let (a, b, c) = (rig.memory(0, 1), rig.memory(1, 0), rig.memory(2, 0));
    let stream = rig.stream(0, Role::Blocking);
    rig.on(0).enable_peer(rig.contexts[1], 0).unwrap();
    let gate = rig.block(stream);
    assert_eq!(rig.batch(stream, &[(b, a), (c, a), (a + 64, a)]), Ok(()));
    assert_eq!((first_byte(b), first_byte(c)), (0, 0));
    gate.signal();
    rig.machine.synchronize_stream(stream).unwrap();
    assert_eq!((first_byte(b), first_byte(c)), (1, 1));
    assert_eq!((rig.machine.copies(0, 1), rig.machine.copies(0, 2)), ((1, 0), (0, 1)));
}

#[test]
fn batch_with_a_copy_that_cannot_be_made_copies_nothing() {
    let rig = Rig::new(2);
    let (a, b) = (rig.memory(0, 1), rig.memory(1, 0));
    let stream = rig.stream(0, Role::NonBlocking);
    let refused = |index| Err(BatchError::at(index, Error::INVALID_VALUE));
    assert_eq!(rig.batch(stream, &[(b, a), (0, a)]), refused(1));
    assert_eq!(rig.batch(stream, &[(b, a), (b, a), (b, a + SIZE as u64 - 7)]), refused(2));
    let (right, nothing) = ((linear(b, a, 8), Completion::Async), (linear(b, a, 0), Completion::Async));
    assert_eq!(rig.machine.copy_batch(stream, &[right, nothing]), refused(1));
    rig.machine.synchronize_stream(stream).unwrap();
    assert_eq!((first_byte(b), rig.machine.copies(0, 1)), (0, (0, 0)));
}

#[test]
fn batch_needs_a_stream_that_is_not_the_legacy_one_and_leaves_a_capture_without_it() {
    let rig = Rig::new(2);
    let (a, b) = (rig.memory(0, 1), rig.memory(1, 0));
    assert_eq!(rig.batch(LEGACY, &[(b, a)]), Err(Error::INVALID_VALUE.into()));
    assert_eq!(rig.batch(PER_THREAD, &[(b, a)]), Ok(()));
    let stream = rig.stream(0, Role::Blocking);
    rig.machine.begin_capture(stream, CaptureMode::Relaxed, None).unwrap();
    assert_eq!(rig.batch(stream, &[(b, a)]), Err(Error::STREAM_CAPTURE_UNSUPPORTED.into()));
    let graph = rig.machine.end_capture(stream).unwrap();
    assert_eq!(rig.machine.graph_nodes(graph), Ok(Vec::new()));
    assert_eq!(rig.batch(stream, &[(b, a)]), Ok(()));
}

#[test]
fn batch_to_freed_memory_is_accepted_and_makes_the_other_copies() {
    let rig = Rig::new(2);
    let (a, b, freed) = (rig.memory(0, 1), rig.memory(1, 0), rig.memory(1, 0));
    let stream = rig.stream(0, Role::Blocking);
    rig.machine.free(freed, Kind::Device).unwrap();
    assert_eq!(rig.batch(stream, &[(freed, a), (b, a)]), Ok(()));
    rig.machine.synchronize_stream(stream).unwrap();
    assert_eq!((first_byte(b), rig.machine.copies(0, 1)), (1, (0, 1)));
    let refused = |index| Err(BatchError::at(index, Error::INVALID_VALUE));
    assert_eq!(rig.batch(stream, &[(b, a), (b, freed)]), refused(1));
    let rows = Extent { width: 8, height: 2, depth: 1 };
    let place = |address| Place { pitch: 64, rows: 2, ..Place::linear(Locus::Any(address)) };
    let request = Request { dst: place(freed), src: place(a), extent: rows };
    assert_eq!(rig.machine.copy_batch(stream, &[(request, Completion::Async)]), refused(0));
}

#[test]
fn batch_without_a_context_is_at_fault_itself() {
    let rig = Rig::new(2);
    let (a, b) = (rig.memory(0, 1), rig.memory(1, 0));
    let stream = rig.stream(0, Role::Blocking);
    current::set(None);
    let copy = (linear(b, a, 8), Completion::Async);
    assert_eq!(rig.machine.copy_batch(stream, &[copy]), Err(Error::INVALID_VALUE.into()));
}

#[test]
fn source_read_during_the_call_may_change_before_the_copy_runs() {
    let rig = Rig::new(2);
    let (a, b, c) = (rig.memory(0, 1), rig.memory(1, 0), rig.memory(1, 0));
    let stream = rig.stream(0, Role::Blocking);
    let gate = rig.block(stream);
    let copies = [(linear(b, a, 8), Completion::Batch(SourceOrder::DuringCall)), (linear(c, a, 8), Completion::Async)];
    assert_eq!(rig.on(0).copy_batch(stream, &copies), Ok(()));
    write(a, &[9]);
    gate.signal();
    rig.machine.synchronize_stream(stream).unwrap();
    assert_eq!((first_byte(b), first_byte(c)), (1, 9));
}

#[test]
fn batch_is_a_node_of_newer_drivers_and_can_be_changed() {
    let rig = Rig::with(Config { devices: 2, driver: 13_050, ..Config::default() });
    let (a, b, c) = (rig.memory(0, 1), rig.memory(1, 0), rig.memory(1, 0));
    let stream = rig.stream(0, Role::NonBlocking);
    rig.machine.begin_capture(stream, CaptureMode::Global, None).unwrap();
    rig.batch(stream, &[(b, a), (c, a)]).unwrap();
    let graph = rig.machine.end_capture(stream).unwrap();
    let [node] = *rig.machine.graph_nodes(graph).unwrap() else { panic!("one node") };
    let [first, second, nothing] = [linear(b, a, 8), linear(c, a, 8), linear(c, a, 0)];
    assert_eq!(rig.machine.node(node), Ok(NodeKind::Batch(vec![first, second])));
    let exec = rig.machine.instantiate_graph(graph).unwrap();
    let launch = || {
        rig.machine.launch_graph(exec, stream).unwrap();
        rig.machine.synchronize_stream(stream).unwrap();
        (first_byte(b), first_byte(c))
    };
    assert_eq!(launch(), (1, 1));
    write(a, &[2]);
    assert_eq!(rig.machine.set_exec_batch_node(exec, node, &[first]), Err(Error::INVALID_VALUE), "as many");
    assert_eq!(rig.machine.set_exec_batch_node(exec, node, &[first, nothing]), Ok(()));
    assert_eq!(launch(), (2, 1));
    assert_eq!(rig.machine.set_exec_batch_node(exec, node, &[nothing, second]), Ok(()));
    assert_eq!(launch(), (2, 2));
    assert!(rig.machine.add_batch_node(graph, vec![node], &[first, nothing]).is_ok());
    assert_eq!(Rig::new(2).machine.add_batch_node(graph, Vec::new(), &[first]), Err(Error::INVALID_VALUE));
}
