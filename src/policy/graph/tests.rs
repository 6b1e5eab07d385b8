//! Graphs with copies between devices, on a driver that is plain values.

use super::*;
use crate::api::abi::{CUDA_MEMCPY3D_PEER, Code, MEMORYTYPE_UNIFIED};
use crate::model::Why;
use crate::policy::Ended;
use crate::policy::access::fake::{Fake, context, memory_of};

const THREAD: usize = 1;
const GRAPH: usize = 0x10;
const EXEC: usize = 0x20;

fn copy(node: usize, [src, dst]: [usize; 2], bytes: usize) -> NodeCopy {
    let parameters = CUDA_MEMCPY3D_PEER {
        srcMemoryType: MEMORYTYPE_UNIFIED,
        dstMemoryType: MEMORYTYPE_UNIFIED,
        srcDevice: memory_of(src),
        dstDevice: memory_of(dst),
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
        ..CUDA_MEMCPY3D_PEER::ZERO
    };
    NodeCopy { node, within: node, parameters }
}

fn part([src, dst]: [u8; 2], path: Path, copies: u32, bytes: u64) -> Part {
    Part { traffic: Traffic::new([src, dst], path, bytes), copies }
}

/// The program itself enables the pair.
fn program_enables(access: &Access, fake: &Fake) {
    fake.current.set(context(0));
    assert_eq!(access.enabled(fake, context(1), 0, Code::SUCCESS), Code::SUCCESS);
}

/// The copies of a launch, without regard for whose memory it is.
fn launched(graphs: &Graphs) -> Vec<Part> {
    let of = |part: &Part| Part { traffic: Traffic { wait_contexts: [0; 2], ..part.traffic }, ..*part };
    graphs.launched(EXEC).unwrap().iter().map(of).collect()
}

fn instantiate(graphs: &Graphs, access: &Access, fake: &Fake) {
    graphs.prepare(access, fake, GRAPH, (THREAD, false));
    graphs.instantiated((access, &Waits::new(), fake), Some(EXEC), THREAD);
}

/// CUDA refuses to update a staged copy once access is enabled.
#[test]
fn pair_of_a_staged_copy_is_not_enabled_until_the_graph_is_destroyed() {
    static ACCESS: Access = Access::new();
    let (graphs, access, fake) = (Graphs::new(), &ACCESS, Fake::new());
    fake.graphs.borrow_mut().insert(GRAPH, vec![copy(1, [0, 1], 4)]);
    let path =
        |bytes| access.consider(&fake, &Memcpy::linear(memory_of(1), memory_of(0), bytes), Circumstances::default());
    fake.busy.set(true);
    instantiate(&graphs, access, &fake);
    assert_eq!(launched(&graphs), [part([0, 1], Path::Staged(Why::Busy), 1, 4)]);
    fake.busy.set(false);
    let change = Change::Node(copy(1, [0, 1], 2));
    graphs.changed(access, &fake, EXEC, change).unwrap();
    assert_eq!(path(64 << 20).unwrap().path, Path::Staged(Why::Graph), "either way");
    // A context of another device ends.
    let other = Memcpy::linear(memory_of(2), memory_of(3), 1);
    access.consider(&fake, &other, Circumstances::default());
    fake.ids.borrow_mut().insert(context(2), 0);
    access.on_contexts_ended(&Ended::new(&fake, None, Some(context(2))));
    assert_eq!(path(1 << 28).unwrap().path, Path::Staged(Why::Graph));
    assert_eq!(fake.enables.get(), 0);
    graphs.destroyed(access, EXEC);
    assert_eq!(path(1 << 30).unwrap().path, Path::Direct);
}

#[test]
fn launched_each_pair_once_and_only_what_goes_between_devices() {
    static ACCESS: Access = Access::new();
    let (graphs, access, fake) = (Graphs::new(), &ACCESS, Fake::new());
    let copies =
        vec![copy(1, [0, 1], 4), copy(2, [0, 0], 8), copy(3, [1, 0], 16), copy(4, [0, 1], 32), copy(5, [0, 1], 0)];
    fake.graphs.borrow_mut().insert(GRAPH, copies);
    assert!(graphs.launched(EXEC).is_none());
    instantiate(&graphs, access, &fake);
    assert_eq!(fake.enables.get(), 2, "both ways, for a few bytes: the graph keeps its path");
    let parts = launched(&graphs);
    assert_eq!(parts, [part([0, 1], Path::Direct, 2, 36), part([1, 0], Path::Direct, 1, 16)]);
    assert!(graphs.launched(EXEC + 1).is_none());
    graphs.destroyed(access, EXEC);
    assert!(graphs.launched(EXEC).is_none() && !graphs.are_there());
    // A graph that could not be instantiated leaves nothing, and one that copies nothing takes the handle of another.
    graphs.prepare(access, &fake, GRAPH, (THREAD, false));
    graphs.instantiated((access, &Waits::new(), &fake), None, THREAD);
    instantiate(&graphs, access, &fake);
    fake.graphs.borrow_mut().insert(GRAPH, vec![copy(2, [0, 0], 8)]);
    instantiate(&graphs, access, &fake);
    assert!(!graphs.are_there());
}

#[test]
fn changed_copies_keep_the_path_of_their_pair() {
    static ACCESS: Access = Access::new();
    let (graphs, access, fake) = (Graphs::new(), &ACCESS, Fake::new());
    fake.graphs.borrow_mut().insert(GRAPH, vec![copy(1, [0, 1], 4), copy(2, [0, 1], 8)]);
    // Nothing is verified while the thread captures.
    graphs.prepare(access, &fake, GRAPH, (THREAD, true));
    graphs.instantiated((access, &Waits::new(), &fake), Some(EXEC), THREAD);
    let staged = Path::Staged(Why::Capturing);
    assert_eq!(launched(&graphs), [part([0, 1], staged, 2, 12)]);
    program_enables(access, &fake);
    graphs.changed(access, &fake, EXEC, Change::Node(copy(2, [0, 1], 100)));
    assert_eq!(launched(&graphs), [part([0, 1], staged, 2, 104)]);
    let found = graphs.staged(access, &fake, EXEC, Layer::Driver).unwrap();
    assert!(
        found.rule == Rule::GraphStaged && found.what.starts_with("2 copies from device 0 to device 1"),
        "{found:?}"
    );
    assert_eq!(graphs.staged(access, &fake, EXEC, Layer::Driver), None, "once");
    graphs.changed(access, &fake, EXEC, Change::Whole { graph: GRAPH });
    assert_eq!(launched(&graphs), [part([0, 1], staged, 2, 12)]);
    // Instantiated anew.
    instantiate(&graphs, access, &fake);
    assert_eq!(launched(&graphs), [part([0, 1], Path::Direct, 2, 12)]);
    assert_eq!(graphs.staged(access, &fake, EXEC, Layer::Driver), None);
}

#[test]
fn marked_as_long_as_it_is_instantiated_or_an_update() {
    const OTHER: usize = GRAPH + 1;
    static ACCESS: Access = Access::new();
    let (graphs, access, fake, waits) = (Graphs::new(), &ACCESS, Fake::new(), Waits::new());
    fake.graphs.borrow_mut().insert(GRAPH, vec![copy(1, [0, 1], 4), copy(2, [0, 0], 8), copy(3, [1, 0], 16)]);
    let behind = || fake.records.borrow().values().flat_map(|(nodes, _)| nodes.clone()).collect::<Vec<_>>();
    graphs.prepare(access, &fake, GRAPH, (THREAD, false));
    graphs.mark((&waits, &fake), GRAPH, THREAD);
    assert_eq!(behind(), [1, 3], "copies between devices");
    graphs.instantiated((access, &waits, &fake), Some(EXEC), THREAD);
    assert_eq!(behind(), [0; 0]);
    let recorded = || waits.announce(Stream::Graph(EXEC), [context(0), context(1)]);
    assert!(recorded().is_some());
    // By the same events behind the nodes of another graph of the same shape.
    fake.graphs.borrow_mut().insert(OTHER, vec![copy(6, [0, 1], 5), copy(7, [0, 0], 8), copy(8, [1, 0], 17)]);
    graphs.mark_update(&fake, EXEC, OTHER, THREAD);
    assert_eq!(behind(), [6, 8]);
    graphs.unmark_update(&fake, THREAD);
    assert_eq!(behind(), [0; 0]);
    graphs.changed(access, &fake, EXEC, Change::Whole { graph: OTHER });
    graphs.mark_update(&fake, EXEC, GRAPH, THREAD);
    assert_eq!(behind(), [1, 3], "still");
    graphs.unmark_update(&fake, THREAD);
}

#[test]
fn marked_behind_the_last_copies_of_a_pair() {
    static ACCESS: Access = Access::new();
    let (graphs, access, fake, waits) = (Graphs::new(), &ACCESS, Fake::new(), Waits::new());
    fake.graphs.borrow_mut().insert(GRAPH, vec![copy(1, [0, 1], 4), copy(2, [0, 1], 8), copy(3, [0, 1], 8)]);
    let behind = |edges: &[[usize; 2]]| {
        fake.edges.borrow_mut().insert(GRAPH, edges.to_vec());
        graphs.prepare(access, &fake, GRAPH, (THREAD, false));
        graphs.mark((&waits, &fake), GRAPH, THREAD);
        let behind: Vec<_> = fake.records.borrow().values().map(|(nodes, _)| nodes.clone()).collect();
        graphs.instantiated((access, &waits, &fake), None, THREAD);
        behind
    };
    // A kernel before the copies, which end the graph.
    assert_eq!(behind(&[[9, 1], [1, 2], [9, 3]]), [[0; 0]; 0]);
    // A kernel behind one.
    assert_eq!(behind(&[[1, 2], [2, 9]]), [[2, 3]]);
    let event = waits.event(&fake, (context(0), 1));
    assert_eq!(behind(&[[1, 2], [2, 9]]), [[2, 3]]);
    assert_ne!(waits.event(&fake, (context(0), 1)), event, "each has an event of its own, until it is given back");
}

#[test]
fn marked_in_whole_or_not_at_all() {
    const CHILD: usize = GRAPH + 1;
    static ACCESS: Access = Access::new();
    let (graphs, access, fake, waits) = (Graphs::new(), &ACCESS, Fake::new(), Waits::new());
    fake.graphs.borrow_mut().insert(GRAPH, vec![copy(1, [0, 1], 4), copy(2, [0, 1], 8)]);
    graphs.prepare(access, &fake, GRAPH, (THREAD, false));
    // The second is a node of a child graph, behind which none can be added here.
    fake.graphs.borrow_mut().insert(CHILD, vec![copy(1, [0, 1], 4)]);
    graphs.mark((&waits, &fake), CHILD, THREAD);
    assert!(fake.records.borrow().is_empty());
    graphs.instantiated((access, &waits, &fake), Some(EXEC), THREAD);
    assert!(waits.announce(Stream::Graph(EXEC), [context(0), context(1)]).is_none());
    assert!(launched(&graphs).len() == 1 && graphs.launched(EXEC).unwrap()[0].traffic.keeps_waits());
}

#[test]
fn launched_with_each_copy_of_a_batch_that_is_one_node() {
    static ACCESS: Access = Access::new();
    let (graphs, access, fake, waits) = (Graphs::new(), &ACCESS, Fake::new(), Waits::new());
    let batch = vec![copy(1, [0, 1], 4), copy(1, [0, 1], 8), copy(1, [1, 0], 16), copy(2, [0, 1], 32)];
    fake.graphs.borrow_mut().insert(GRAPH, batch);
    graphs.prepare(access, &fake, GRAPH, (THREAD, false));
    graphs.mark((&waits, &fake), GRAPH, THREAD);
    let behind: Vec<_> = fake.records.borrow().values().map(|(nodes, _)| nodes.clone()).collect();
    assert_eq!(behind, [vec![1, 2], vec![1]], "one for each pair");
    graphs.instantiated((access, &waits, &fake), Some(EXEC), THREAD);
    assert_eq!(launched(&graphs), [part([0, 1], Path::Direct, 3, 44), part([1, 0], Path::Direct, 1, 16)]);
    let change = |change| _ = graphs.changed(access, &fake, EXEC, change);
    change(Change::Batch(vec![copy(1, [0, 1], 5), copy(1, [0, 1], 0), copy(1, [1, 0], 0)]));
    assert_eq!(launched(&graphs), [part([0, 1], Path::Direct, 2, 37)]);
    change(Change::Enabled { node: 1, is_enabled: false });
    assert_eq!(launched(&graphs), [part([0, 1], Path::Direct, 1, 32)]);
}

/// As in a signal handler that has interrupted a launch.
#[test]
fn launched_by_who_is_reading_nothing_waits() {
    static ACCESS: Access = Access::new();
    let (graphs, access, fake) = (Graphs::new(), &ACCESS, Fake::new());
    fake.graphs.borrow_mut().insert(GRAPH, vec![copy(1, [0, 1], 4)]);
    graphs.prepare(access, &fake, GRAPH, (THREAD, true));
    graphs.instantiated((access, &Waits::new(), &fake), Some(EXEC), THREAD);
    program_enables(access, &fake);
    let reading = graphs.execs.read();
    assert!(graphs.launched(EXEC).is_some());
    assert_eq!(graphs.staged(access, &fake, EXEC, Layer::Driver), None);
    drop(reading);
    assert!(graphs.staged(access, &fake, EXEC, Layer::Driver).is_some(), "said by the next");
}

#[test]
fn changed_nodes_are_those_of_the_graph_that_was_instantiated() {
    const OTHER: usize = GRAPH + 1;
    /// A node that is a child graph, which the fake driver takes for that graph.
    const CHILD: usize = GRAPH + 2;
    static ACCESS: Access = Access::new();
    let (graphs, access, fake) = (Graphs::new(), &ACCESS, Fake::new());
    fake.graphs.borrow_mut().insert(GRAPH, vec![copy(1, [0, 1], 4), copy(2, [0, 0], 8), copy(3, [0, 1], 16)]);
    fake.graphs.borrow_mut().insert(CHILD, vec![copy(3, [0, 1], 16)]);
    fake.graphs.borrow_mut().insert(OTHER, vec![copy(6, [0, 1], 5), copy(7, [0, 0], 8), copy(8, [0, 1], 17)]);
    instantiate(&graphs, access, &fake);
    let launched = |change| {
        graphs.changed(access, &fake, EXEC, change);
        let parts = graphs.launched(EXEC);
        parts.map_or((0, 0), |parts| parts.iter().fold((0, 0), |(n, b), it| (n + it.copies, b + it.traffic.bytes)))
    };
    assert_eq!(launched(Change::Whole { graph: OTHER }), (2, 22));
    assert_eq!(launched(Change::Node(copy(1, [0, 1], 100))), (2, 117));
    fake.graphs.borrow_mut().insert(OTHER, vec![copy(9, [0, 1], 200)]);
    assert_eq!(launched(Change::Child { node: CHILD, graph: OTHER }), (2, 300));
    assert_eq!(launched(Change::Node(copy(3, [0, 1], 0))), (1, 100));
    assert_eq!(launched(Change::Enabled { node: 1, is_enabled: false }), (0, 0));
    assert_eq!(launched(Change::Node(copy(3, [0, 1], 1000))), (1, 1000), "of nothing once, and of something again");
    assert_eq!(launched(Change::Whole { graph: GRAPH }), (1, 16), "disabled still");
    assert_eq!(launched(Change::Enabled { node: 1, is_enabled: true }), (2, 20));
    assert_eq!(launched(Change::Enabled { node: 99, is_enabled: false }), (2, 20), "no node that copies");
}
