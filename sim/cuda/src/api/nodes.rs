//! Nodes of graphs by the parameters that all kinds share, `CUgraphNodeParams`: copies, batches of copies and child graphs.

use std::collections::HashMap;
use std::result;
use std::sync::{Mutex, PoisonError};

use p2psim_core::machine::{ContextHandle, GraphHandle, Locus, NodeHandle, NodeKind, Place, Request};
use p2psim_core::{Error, Extent, Result};

use super::batches::completion;
use super::copies::request_3d;
use super::require;
use super::structs::{BatchNodeParameters, CopyAttributes, Memcpy3d, NodeParameters};
use crate::abi::{In, Opaque, Out};
use crate::entry::{api, machine};

/// `CU_GRAPH_NODE_TYPE_MEMCPY`, `…_GRAPH`, `…_MEMCPY_BATCH`.
pub(super) const MEMCPY: u32 = 1;
pub(super) const GRAPH: u32 = 4;
pub(super) const BATCH_NODE: u32 = 14;

/// The kind of a node, as `CUgraphNodeType`.
pub(super) fn number(kind: &NodeKind) -> u32 {
    match kind {
        NodeKind::Kernel => 0,
        NodeKind::Copy(_) => MEMCPY,
        NodeKind::Fill => 2,
        NodeKind::Host => 3,
        NodeKind::Child(_) => GRAPH,
        NodeKind::Record => 7,
        NodeKind::Batch(_) => BATCH_NODE,
    }
}

/// The nodes that a caller lists.
pub(super) fn nodes(after: In<u64>, count: u64) -> Result<Vec<NodeHandle>> {
    Ok((0..count as usize).map(|index| after.read_nth(index).map(NodeHandle)).collect::<result::Result<_, _>>()?)
}

/// The parameters of a node that copies or is a child graph; of another only the kind.
pub(super) fn copied(kind: &NodeKind) -> NodeParameters {
    let (graph, request) = match *kind {
        NodeKind::Copy(request) => (0, Some(request)),
        NodeKind::Child(graph) => (graph.0, None),
        _ => (0, None),
    };
    let nothing =
        Request { dst: Place::linear(Locus::Any(0)), src: Place::linear(Locus::Any(0)), extent: Extent::linear(0) };
    NodeParameters::new(number(kind), graph, Memcpy3d::from(request.unwrap_or(nothing)))
}

/// The copies of a batch; all have the attributes of a batch, of which only the first is looked at here.
pub(super) fn batch_of(parameters: In<NodeParameters>) -> Result<Vec<Request>> {
    let given = In::<BatchNodeParameters>::at(parameters.pointer() as u64).read()?;
    let BatchNodeParameters { count, dsts, srcs, sizes, attributes, firsts, attribute_count, .. } = given;
    require((1..=count).contains(&attribute_count) && In::<u64>::at(firsts).read()? == 0)?;
    let CopyAttributes { access_order, flags, .. } = In::<CopyAttributes>::at(attributes).read()?;
    completion(access_order, flags)?;
    let one = |index| {
        let [dst, src, size] = [In::<u64>::at(dsts), In::at(srcs), In::at(sizes)].map(|array| array.read_nth(index));
        let (dst, src) = (Place::linear(Locus::Any(dst?)), Place::linear(Locus::Any(src?)));
        Ok(Request { dst, src, extent: Extent::linear(size?) })
    };
    (0..count as usize).map(one).collect()
}

/// Arrays that the parameters of a batch point to: the driver's, as long as the node is there.
struct Arrays {
    words: [Vec<u64>; 4],
    attributes: [CopyAttributes; 1],
}

/// The arrays of the nodes that programs have asked for. A node that is gone leaves its own, as its handle is not used again.
static ARRAYS: Mutex<Option<HashMap<u64, Vec<Arrays>>>> = Mutex::new(None);

fn batch(node: u64, requests: &[Request]) -> BatchNodeParameters {
    let address = |place: Place| match place.at {
        Locus::Any(address) | Locus::Device(address) | Locus::Host(address) => address,
        Locus::Array(_) => 0,
    };
    let words = [
        requests.iter().map(|request| address(request.dst)).collect(),
        requests.iter().map(|request| address(request.src)).collect(),
        requests.iter().map(|request| request.extent.width).collect(),
        vec![0],
    ];
    let mut known = ARRAYS.lock().unwrap_or_else(PoisonError::into_inner);
    let of_node = known.get_or_insert_default().entry(node).or_default();
    // Arrays that were handed out before stay where they are.
    if of_node.last().is_none_or(|last| last.words != words) {
        of_node.push(Arrays { words, attributes: [CopyAttributes::IN_ORDER] });
    }
    let last = of_node
        .last()
        .map(|last| (last.words.each_ref().map(|words| words.as_ptr() as u64), last.attributes.as_ptr() as u64));
    let ([dsts, srcs, sizes, firsts], attributes) = last.unwrap_or_default();
    BatchNodeParameters::new(BATCH_NODE, requests.len() as u64, [dsts, srcs, sizes, attributes, firsts])
}

fn add(node: Out<u64>, graph: u64, after: Vec<NodeHandle>, given: In<NodeParameters>) -> Result<()> {
    let machine = machine()?;
    let node = node.required()?;
    let (graph, parameters) = (GraphHandle(graph), given.read()?);
    let added = match parameters.kind {
        MEMCPY => {
            machine.add_copy_node(graph, after, &request_3d(&parameters.copy)?, ContextHandle(parameters.context))
        }
        GRAPH => machine.add_child_node(graph, after, GraphHandle(parameters.graph)),
        BATCH_NODE => machine.add_batch_node(graph, after, &batch_of(given)?),
        _ => Err(Error::NOT_SUPPORTED),
    };
    node.set(added?.0);
    Ok(())
}

api! {
    /// As of 12.2.
    fn cuGraphAddNode(node: Out<u64>, graph: u64, after: In<u64>, count: u64, parameters: In<NodeParameters>) {
        add(node, graph, nodes(after, count)?, parameters)
    }

    /// As of 12.3. Edges carry no data here.
    fn cuGraphAddNode_v2(
        node: Out<u64>,
        graph: u64,
        after: In<u64>,
        _edges: Opaque,
        count: u64,
        parameters: In<NodeParameters>,
    ) {
        add(node, graph, nodes(after, count)?, parameters)
    }

    /// As of 13.2.
    fn cuGraphNodeGetParams(node: u64, parameters: Out<NodeParameters>) {
        let parameters = parameters.required()?;
        match machine()?.node(NodeHandle(node))? {
            NodeKind::Batch(requests) => Out::at(parameters.address()).set(batch(node, &requests)),
            kind => parameters.set(copied(&kind)),
        }
        Ok(())
    }
}
