//! The driver's answers about graphs.

use std::ptr;

use super::contexts;
use super::functions::{
    asked, checked, graph_add_event_record_node, graph_add_memcpy_node, graph_child_graph_node_get_graph, graph_create,
    graph_destroy, graph_destroy_node, graph_get_edges, graph_get_nodes, graph_memcpy_node_get_params,
    graph_node_get_params, graph_node_get_type,
};
use super::types::BatchNodeParams;
use crate::api::abi::CUDA_MEMCPY3D_PEER;
use crate::os::alloc;
use crate::policy::driver::NodeCopy;
use crate::policy::staging::linear;

/// `CU_GRAPH_NODE_TYPE_MEMCPY`, `CU_GRAPH_NODE_TYPE_GRAPH`.
const MEMCPY: u32 = 1;
const GRAPH: u32 = 4;
/// `CU_GRAPH_NODE_TYPE_MEMCPY_BATCH`.
const MEMCPY_BATCH: u32 = 14;
/// `CU_GRAPH_NODE_TYPE_MEM_ALLOC`, `CU_GRAPH_NODE_TYPE_MEM_FREE`.
const MEM_ALLOC: u32 = 10;
const MEM_FREE: u32 = 11;
/// The driver does not tell.
const UNKNOWN: u32 = u32::MAX;

/// The copies of a graph and of its child graphs; none if there is no memory for them.
pub(super) fn copies(graph: usize) -> Option<Vec<NodeCopy>> {
    let mut copies = Vec::new();
    for_each_node(graph, |node, within, kind| {
        copies.try_reserve(1).ok()?;
        match kind {
            MEMCPY => copies.extend(parameters(node).map(|parameters| NodeCopy { node, within, parameters })),
            MEMCPY_BATCH => extend_by_batch(&mut copies, (node, within))?,
            _ => {}
        }
        Some(())
    })?;
    Some(copies)
}

/// Gives each node of a graph and of its child graphs, the node of the graph itself that it is or is in, and its kind. None if there is no memory,
/// or as soon as `each` says so.
fn for_each_node(graph: usize, mut each: impl FnMut(usize, usize, u32) -> Option<()>) -> Option<()> {
    let mut graphs = vec![(graph, None)];
    while let Some((graph, child_node)) = graphs.pop() {
        for node in nodes(graph)? {
            let within = child_node.unwrap_or(node);
            // SAFETY: the node was just named; the function writes the place.
            let kind = asked(|kind| unsafe { graph_node_get_type(node, kind) }).unwrap_or(UNKNOWN);
            each(node, within, kind)?;
            if kind == GRAPH {
                graphs.try_reserve(1).ok()?;
                graphs.extend(child(node).map(|graph| (graph, Some(within))));
            }
        }
    }
    Some(())
}

pub(super) fn child(node: usize) -> Option<usize> {
    // SAFETY: the node is the driver's; the function writes the place.
    asked(|graph| unsafe { graph_child_graph_node_get_graph(node, graph) }).ok()
}

/// Whether nodes can be taken out of a graph: not if it has some that allocate or free memory.
pub(super) fn can_lose_nodes(graph: usize) -> bool {
    for_each_node(graph, |_, _, kind| (!matches!(kind, MEM_ALLOC | MEM_FREE | UNKNOWN)).then_some(())).is_some()
}

/// The nodes of a graph, and which comes directly before which. None if there is no memory, or for edges with data, which this form of the
/// function refuses to tell.
pub(super) fn order(graph: usize) -> Option<(Vec<usize>, Vec<[usize; 2]>)> {
    let nodes = nodes(graph)?;
    // SAFETY: the graph is the program's, which is about to use it; without places their number is written.
    let count = asked(|count| unsafe { graph_get_edges(graph, ptr::null_mut(), ptr::null_mut(), count) }).ok()?;
    let [mut from, mut to] = [alloc::collect((0..count).map(|_| 0))?, alloc::collect((0..count).map(|_| 0))?];
    let mut written = count;
    // SAFETY: there is room for so many.
    checked(unsafe { graph_get_edges(graph, from.as_mut_ptr(), to.as_mut_ptr(), &mut written) }).ok()?;
    let edges = alloc::collect(from.into_iter().zip(to).take(written).map(|(from, to)| [from, to]))?;
    Some((nodes, edges))
}

/// Adds a node that records an event, behind others.
pub(super) fn add_record(graph: usize, behind: &[usize], event: usize) -> Option<usize> {
    // SAFETY: the graph is one that the program is about to use, the nodes are its copies, the event is ours; the function writes the place.
    asked(|node| unsafe { graph_add_event_record_node(node, graph, behind.as_ptr(), behind.len(), event) }).ok()
}

/// Whether the driver takes all of these copies for nodes of a graph: asked by one that nobody runs.
pub(super) fn can_copy(mut copies: impl Iterator<Item = CUDA_MEMCPY3D_PEER>) -> bool {
    let Some(context) = contexts::current() else { return false };
    // SAFETY: the function writes the place.
    let Ok(graph) = asked(|graph| unsafe { graph_create(graph, 0) }) else { return false };
    // SAFETY: the graph was just made, the parameters of a regular copy lie as those of a peer copy, and the context is current; the
    // function writes the place.
    let add = |copy: &_| asked(|node| unsafe { graph_add_memcpy_node(node, graph, ptr::null(), 0, copy, context) });
    let can = copies.all(|copy| add(&copy).is_ok());
    // SAFETY: nobody else knows of it.
    unsafe { graph_destroy(graph) };
    can
}

pub(super) fn remove(node: usize) {
    // SAFETY: the node was added by us, and nobody else knows of it.
    unsafe { graph_destroy_node(node) };
}

fn nodes(graph: usize) -> Option<Vec<usize>> {
    // SAFETY: the graph is the program's, which is about to use it; without a place for nodes their number is written.
    let Ok(count) = asked(|count| unsafe { graph_get_nodes(graph, ptr::null_mut(), count) }) else {
        return Some(Vec::new());
    };
    let (mut nodes, mut written) = (Vec::new(), count);
    nodes.try_reserve_exact(count).ok()?;
    nodes.resize(count, 0);
    // SAFETY: there is room for so many.
    let code = unsafe { graph_get_nodes(graph, nodes.as_mut_ptr(), &mut written) };
    nodes.truncate(if checked(code).is_ok() { written } else { 0 });
    nodes.retain(|&node| node != 0);
    Some(nodes)
}

fn parameters(node: usize) -> Option<CUDA_MEMCPY3D_PEER> {
    let mut parameters = CUDA_MEMCPY3D_PEER::ZERO;
    // SAFETY: the node is one that copies; the parameters of a regular copy lie as those of a peer copy.
    checked(unsafe { graph_memcpy_node_get_params(node, &mut parameters) }).ok()?;
    Some(CUDA_MEMCPY3D_PEER { srcContext: 0, dstContext: 0, ..parameters })
}

/// Adds the copies of a node that makes a batch of them; none if there is no memory for them.
fn extend_by_batch(copies: &mut Vec<NodeCopy>, (node, within): (usize, usize)) -> Option<()> {
    let mut batch = BatchNodeParams::NONE;
    // SAFETY: the function writes the place, which has the size of all parameters of nodes.
    if checked(unsafe { graph_node_get_params(node, &mut batch) }).is_err() {
        return Some(());
    }
    copies.try_reserve(batch.count).ok()?;
    for index in 0..batch.count {
        // SAFETY: the driver keeps so many as long as the node is there, and the program is about to use the node's graph.
        let [src, dst, bytes] = [batch.srcs, batch.dsts, batch.sizes].map(|array| unsafe { *array.add(index) });
        copies.push(NodeCopy { node, within, parameters: linear(src, dst, usize::try_from(bytes).ok()?) });
    }
    Some(())
}
