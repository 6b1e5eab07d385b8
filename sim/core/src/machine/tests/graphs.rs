//! Graphs made by hand, and ready ones that change.

use super::*;
use crate::capture::CaptureMode;
use crate::machine::contexts::NO_CONTEXT;

const REFUSED: Error = Error::INVALID_VALUE;

/// A copy as most programs ask for it.
fn any(dst: u64, src: u64, size: u64) -> Request {
    let place = |address| Place::linear(Locus::Any(address));
    Request { dst: place(dst), src: place(src), extent: Extent::linear(size) }
}

/// A graph of one copy from `a` of device 0 to `b` of device 1, beside `c` of device 0 and `d` of device 1.
struct One {
    rig: Rig,
    memory: [u64; 4],
    stream: StreamRef,
    graph: GraphHandle,
    node: NodeHandle,
}

impl One {
    fn new(is_enabled: bool) -> One {
        let rig = Rig::new(2);
        let memory = [rig.memory(1, 4), rig.memory(1, 2), rig.memory(0, 3), rig.memory(0, 1)];
        let [d, b, c, a] = memory;
        let stream = rig.stream(0, Role::Blocking);
        if is_enabled {
            rig.machine.enable_peer(rig.contexts[1], 0).unwrap();
        }
        let graph = rig.machine.create_graph();
        let node = rig.machine.add_copy_node(graph, Vec::new(), &any(b, a, 8), NO_CONTEXT).unwrap();
        One { rig, memory: [a, b, c, d], stream, graph, node }
    }

    /// A graph of one such copy.
    fn like(&self, request: &Request) -> GraphHandle {
        let graph = self.rig.machine.create_graph();
        self.rig.machine.add_copy_node(graph, Vec::new(), request, NO_CONTEXT).unwrap();
        graph
    }

    fn ready(&self) -> ExecHandle {
        self.rig.machine.instantiate_graph(self.graph).unwrap()
    }

    fn launch(&self, exec: ExecHandle) -> Result<()> {
        self.rig.machine.launch_graph(exec, self.stream)?;
        self.rig.machine.synchronize_stream(self.stream)
    }
}

#[test]
fn node_need_not_be_of_the_memory_that_it_says_and_has_to_copy_something() {
    let one = One::new(false);
    let ([a, b, ..], machine) = (one.memory, &one.rig.machine);
    let host = Request { src: Place::linear(Locus::Host(a)), ..any(b, a, 8) };
    machine.add_copy_node(one.graph, vec![one.node], &host, NO_CONTEXT).unwrap();
    for wrong in [any(b, a, 0), any(0, a, 8), any(b, a, SIZE as u64 + 1)] {
        assert_eq!(machine.add_copy_node(one.graph, Vec::new(), &wrong, NO_CONTEXT), Err(REFUSED));
    }
    assert_eq!(machine.add_child_node(one.graph, Vec::new(), one.graph), Err(REFUSED));
    assert_eq!(one.launch(one.ready()), Ok(()));
    assert_eq!(first_byte(b), 1);
}

#[test]
fn freed_memory_is_accepted_of_nodes_but_not_made_ready_or_launched() {
    let one = One::new(false);
    let ([a, b, ..], machine, exec) = (one.memory, &one.rig.machine, one.ready());
    machine.free(b, Kind::Device).unwrap();
    machine.add_copy_node(one.graph, Vec::new(), &any(b, a, 8), NO_CONTEXT).unwrap();
    assert_eq!(machine.instantiate_graph(one.graph), Err(REFUSED));
    assert_eq!(machine.set_exec_copy_node(exec, one.node, &any(b, a, 4)), Ok(()));
    assert_eq!(one.launch(exec), Err(Error::ILLEGAL_ADDRESS));
}

#[test]
fn capture_refuses_instantiation_anywhere_and_launch_and_upload_on_its_stream() {
    let one = One::new(false);
    let (machine, exec) = (&one.rig.machine, one.ready());
    let calls: [(&dyn Fn() -> Result<()>, bool); 3] = [
        (&|| machine.instantiate_graph(one.graph).map(drop), false),
        (&|| machine.launch_graph(exec, one.stream), true),
        (&|| machine.upload_graph(exec, one.stream), true),
    ];
    for (call, minds_relaxed) in calls {
        for mode in [CaptureMode::Global, CaptureMode::Relaxed] {
            machine.begin_capture(one.stream, mode, None).unwrap();
            let is_refused = minds_relaxed || mode == CaptureMode::Global;
            let (expected, ended) = if is_refused {
                (Err(Error::STREAM_CAPTURE_UNSUPPORTED), Err(Error::STREAM_CAPTURE_INVALIDATED))
            } else {
                (Ok(()), Ok(()))
            };
            assert_eq!(call(), expected);
            assert_eq!(machine.end_capture(one.stream).map(drop), ended);
        }
    }
}

#[test]
fn instantiation_needs_a_context_and_launch_on_a_created_stream_none() {
    let one = One::new(false);
    let exec = one.ready();
    current::set(None);
    assert_eq!(one.rig.machine.instantiate_graph(one.graph), Err(Error::INVALID_CONTEXT));
    assert_eq!(one.rig.machine.launch_graph(exec, one.stream), Ok(()));
}

#[test]
fn device_launch_needs_access_to_all_that_is_copied() {
    let one = One::new(false);
    let machine = one.rig.on(0);
    assert_eq!(machine.refuse_device_launch(one.graph), Err(REFUSED));
    machine.enable_peer(one.rig.contexts[1], 0).unwrap();
    assert_eq!(machine.refuse_device_launch(one.graph), Ok(()));
    let pageable = [0u8; 8];
    assert_eq!(machine.refuse_device_launch(one.like(&any(one.memory[0], pageable.as_ptr() as u64, 8))), Err(REFUSED));
}

/// A copy from `a` to `b` may become some copies while it is staged, and more while it is direct.
#[test]
fn ready_copy_goes_elsewhere_as_far_as_its_way_allows() {
    for is_enabled in [false, true] {
        let one = One::new(is_enabled);
        let ([a, b, c, d], machine) = (one.memory, &one.rig.machine);
        let by_device = linear(b, a, 8);
        for (request, is_possible) in [
            (any(b + 8, a + 8, 4), true),
            (any(b, c, 8), true),
            (any(d, a, 8), is_enabled),
            (any(c, a, 8), is_enabled),
            (any(a, b, 8), false),
            (any(b, d, 8), false),
            (any(b, [0u8; 8].as_ptr() as u64, 8), false),
            (by_device, false),
        ] {
            let exec = one.ready();
            let graph = one.like(&request);
            let expected = |error| if is_possible { Ok(()) } else { Err(error) };
            assert_eq!(
                machine.update_exec(exec, graph).unwrap(),
                expected(()).map_err(|()| Unlike::Copy),
                "{request:?}"
            );
            let set = machine.set_exec_copy_node(one.ready(), one.node, &request);
            assert_eq!(set, expected(()).map_err(|()| REFUSED), "{request:?}");
        }
    }
}

#[test]
fn ready_copy_of_several_rows_stays_as_it_is() {
    let one = One::new(false);
    let ([a, b, ..], machine) = (one.memory, &one.rig.machine);
    let rows = |address, pitch| Place { pitch, rows: 2, ..Place::linear(Locus::Any(address)) };
    let extent = Extent { width: 8, height: 2, depth: 1 };
    let request = Request { dst: rows(b, 64), src: rows(a, 64), extent };
    let node = machine.add_copy_node(one.graph, Vec::new(), &request, NO_CONTEXT).unwrap();
    let exec = one.ready();
    assert_eq!(machine.set_exec_copy_node(exec, node, &request), Ok(()));
    let other = Request { src: rows(a, 128), ..request };
    assert_eq!(machine.set_exec_copy_node(exec, node, &other), Err(REFUSED));
    assert_eq!(machine.set_exec_copy_node(exec, node, &any(b, a, 8)), Err(REFUSED));
    assert_eq!(machine.set_exec_copy_node(exec, one.node, &request), Err(REFUSED));
}

#[test]
fn ready_graph_becomes_only_like_one_of_its_shape_and_then_does_what_that_does() {
    let one = One::new(false);
    let ([a, b, ..], machine, exec) = (one.memory, &one.rig.machine, one.ready());
    let parent = machine.create_graph();
    let child = machine.add_child_node(parent, Vec::new(), one.graph).unwrap();
    let outer = machine.instantiate_graph(parent).unwrap();
    assert_eq!(machine.update_exec(exec, machine.create_graph()), Ok(Err(Unlike::Topology)));
    assert_eq!(machine.update_exec(exec, parent), Ok(Err(Unlike::NodeKind)));
    let empty = machine.create_graph();
    for other in [empty, parent, one.like(&any(a, b, 8))] {
        assert_eq!(machine.set_exec_child_node(outer, child, other), Err(Error::GRAPH_EXEC_UPDATE_FAILURE));
    }
    assert_eq!(machine.set_exec_child_node(exec, one.node, one.graph), Err(REFUSED));

    let shifted = one.like(&any(b + 8, a, 8));
    assert_eq!(machine.update_exec(exec, shifted), Ok(Ok(())));
    assert_eq!(machine.set_exec_child_node(outer, child, shifted), Ok(()));
    for exec in [exec, outer] {
        write(b, &[2; 16]);
        assert_eq!(one.launch(exec), Ok(()));
        assert_eq!([b, b + 8].map(first_byte), [2, 1]);
    }
}

#[test]
fn edges_are_told_in_the_order_in_which_they_were_made() {
    let one = One::new(false);
    let ([a, b, ..], machine) = (one.memory, &one.rig.machine);
    let add =
        |after: &[NodeHandle]| machine.add_copy_node(one.graph, after.to_vec(), &any(b, a, 8), NO_CONTEXT).unwrap();
    assert_eq!(machine.graph_edges(one.graph), Ok(Vec::new()));
    let second = add(&[]);
    let third = add(&[second, one.node]);
    let fourth = add(&[third, one.node]);
    let edges = [(second, third), (one.node, third), (third, fourth), (one.node, fourth)];
    assert_eq!(machine.graph_edges(one.graph), Ok(edges.to_vec()));
    machine.destroy_node(third).unwrap();
    assert_eq!(machine.graph_edges(one.graph), Ok(vec![(one.node, fourth)]));
    assert_eq!(machine.graph_edges(GraphHandle(1)), Err(REFUSED));
}

#[test]
fn record_after_several_nodes_comes_and_goes_also_in_the_graph_of_a_child() {
    for is_child in [false, true] {
        let one = One::new(false);
        let ([a, b, c, d], machine) = (one.memory, &one.rig.machine);
        let parent = machine.create_graph();
        let graph = if is_child {
            let child = machine.add_child_node(parent, Vec::new(), one.graph).unwrap();
            let NodeKind::Child(inner) = machine.node(child).unwrap() else { unreachable!() };
            inner
        } else {
            one.graph
        };
        let first = machine.graph_nodes(graph).unwrap()[0];
        let second = machine.add_copy_node(graph, Vec::new(), &any(d, c, 8), NO_CONTEXT).unwrap();
        let event = machine.create_event(false).unwrap();
        let record = machine.add_record_node(graph, vec![first, second], event).unwrap();
        assert_eq!(machine.graph_edges(graph), Ok(vec![(first, record), (second, record)]));
        let whole = if is_child { parent } else { graph };
        let exec = machine.instantiate_graph(whole).unwrap();
        let gate = one.rig.block(one.stream);
        machine.launch_graph(exec, one.stream).unwrap();
        assert_eq!(machine.event_is_done(event), Ok(false));
        gate.signal();
        machine.synchronize_event(event).unwrap();
        assert_eq!([b, d].map(first_byte), [1, 3]);

        machine.destroy_node(record).unwrap();
        assert_eq!(machine.graph_nodes(graph), Ok(vec![first, second]));
        assert_eq!(machine.graph_edges(graph), Ok(Vec::new()));
        machine.destroy_node(second).unwrap();
        write(d, &[0]);
        let fewer = machine.instantiate_graph(whole).unwrap();
        assert_eq!(machine.update_exec(exec, whole), Ok(Err(Unlike::Topology)));
        assert_eq!(one.launch(fewer), Ok(()));
        assert_eq!((first_byte(d), machine.destroy_node(second)), (0, Err(REFUSED)));
        assert_eq!(first_byte(a), 1);
    }
}
