//! Stream capture and graphs.

use std::result;
use std::sync::Arc;

use p2psim_core::machine::{
    ContextHandle, DefaultStream, EventHandle, ExecHandle, GraphHandle, NodeHandle, NodeKind, Unlike,
};
use p2psim_core::{CaptureInfo, CaptureMode, Error, Result, current};

use super::copies::request_3d;
use super::nodes::{BATCH_NODE, GRAPH, MEMCPY, batch_of, copied, nodes, number};
use super::require;
use super::structs::{InstantiateParameters, Memcpy3d, NodeParameters, UpdateResult};
use crate::abi::{In, Opaque, Out};
use crate::entry::{api, machine, stream};
use crate::functions::RecaptureCallback;

/// `CU_STREAM_CAPTURE_STATUS_NONE`, `…_ACTIVE`, `…_INVALIDATED`.
const NOT_CAPTURING: u32 = 0;
const CAPTURING: u32 = 1;
const INVALIDATED: u32 = 2;
/// `CUgraphInstantiate_flags`, all of them.
const INSTANTIATE_FLAGS: u64 = 15;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`: only for the form that names a stream for it.
const UPLOAD: u64 = 2;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`.
const DEVICE_LAUNCH: u64 = 4;

fn capture_mode(number: u32) -> Result<CaptureMode> {
    CaptureMode::new(number).ok_or(Error::INVALID_VALUE)
}

fn begin(queue: u64, default: DefaultStream, mode: u32, into: Option<(GraphHandle, Vec<NodeHandle>)>) -> Result<()> {
    machine()?.begin_capture(stream(queue, default), capture_mode(mode)?, into)
}

/// Stores the status of a stream; what else there is to know only while it captures and nothing went wrong.
fn active_capture(queue: u64, default: DefaultStream, status: Out<u32>) -> Result<Option<CaptureInfo>> {
    let machine = machine()?;
    let status = status.required()?;
    let info = machine.capture_info(stream(queue, default))?;
    status.set(match info {
        None => NOT_CAPTURING,
        Some(CaptureInfo { valid: true, .. }) => CAPTURING,
        Some(_) => INVALIDATED,
    });
    Ok(info.filter(|info| info.valid))
}

/// The facts about a capture that the program asks for besides its status; each may be NULL.
struct Details {
    id: Out<u64>,
    graph: Out<u64>,
    after: Out<u64>,
    count: Out<u64>,
}

impl Details {
    fn set(&self, info: CaptureInfo) {
        self.id.set(info.id.0);
        self.graph.set(info.graph.0);
        self.after.set(info.after);
        self.count.set(info.after_count);
    }
}

fn instantiate(exec: Out<u64>, graph: u64, flags: u64) -> Result<()> {
    let machine = machine()?;
    let exec = exec.required()?;
    require(flags & !INSTANTIATE_FLAGS == 0)?;
    if flags & DEVICE_LAUNCH != 0 {
        machine.refuse_device_launch(GraphHandle(graph))?;
    }
    exec.set(machine.instantiate_graph(GraphHandle(graph))?.0);
    Ok(())
}

/// Stores as many nodes as the caller has room for, NULL in places left over, and how many there are.
fn store_nodes(found: &[NodeHandle], nodes: Out<u64>, count: Out<u64>) {
    if nodes.address() != 0 {
        let padded = found.iter().map(|node| node.0).chain(std::iter::repeat(0));
        padded.take(count.get() as usize).enumerate().for_each(|(index, node)| nodes.set_nth(index, node));
    }
    count.set(found.len() as u64);
}

/// Stores as many edges as the caller has room for, from nodes to nodes, NULL in places left over, and how many there are. Without arrays
/// only the number is asked for.
fn store_edges(found: Vec<(NodeHandle, NodeHandle)>, [from, to]: [Out<u64>; 2], count: Out<u64>) -> Result<()> {
    require((from.address() == 0) == (to.address() == 0))?;
    let room = count.get();
    let (before, after): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    store_nodes(&before, from, count);
    count.set(room);
    store_nodes(&after, to, count);
    Ok(())
}

/// Stores why a graph cannot become like another, as `CUgraphExecUpdateResult`.
fn tell(unlike: result::Result<(), Unlike>, store: impl FnOnce(u32)) -> Result<()> {
    store(match unlike {
        Ok(()) => 0,
        Err(Unlike::Topology) => TOPOLOGY_CHANGED,
        Err(Unlike::NodeKind) => 3,
        Err(Unlike::Copy) => 5,
    });
    unlike.map_err(|_| Error::GRAPH_EXEC_UPDATE_FAILURE)
}

/// `CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED`.
const TOPOLOGY_CHANGED: u32 = 2;
/// `CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: u32 = 6;

api! {
    /// As of 10.0: always in global mode.
    fn cuStreamBeginCapture | cuStreamBeginCapture_ptsz [default] (queue: u64) {
        begin(queue, default, 0, None)
    }

    /// As of 10.1.
    fn cuStreamBeginCapture_v2 | cuStreamBeginCapture_v2_ptsz [default] (queue: u64, mode: u32) {
        begin(queue, default, mode, None)
    }

    /// As of 12.3. Edges carry no data here.
    fn cuStreamBeginCaptureToGraph | cuStreamBeginCaptureToGraph_ptsz [default] (
        queue: u64,
        graph: u64,
        after: In<u64>,
        _edges: Opaque,
        count: u64,
        mode: u32,
    ) {
        begin(queue, default, mode, Some((GraphHandle(graph), nodes(after, count)?)))
    }

    /// As of 13.3. Only copies have parameters to ask about here.
    fn cuStreamBeginRecaptureToGraph | cuStreamBeginRecaptureToGraph_ptsz [default] (
        queue: u64,
        mode: u32,
        graph: u64,
        callback: RecaptureCallback<NodeParameters>,
        data: Opaque,
    ) {
        let changed = move |node: NodeHandle, old: &NodeKind, new: &NodeKind| {
            callback.allows(data, node.0, &[old, new].map(copied))
        };
        machine()?.begin_recapture(stream(queue, default), capture_mode(mode)?, GraphHandle(graph), Arc::new(changed))
    }

    /// As of 13.1. Any context is taken to be one for graphics, and nobody is asked for the commands: the end runs them.
    fn cuStreamBeginCaptureToCig | cuStreamBeginCaptureToCig_ptsz [default] (queue: u64, parameters: In<u64>) {
        parameters.read()?;
        machine()?.begin_graphics_capture(stream(queue, default))
    }

    fn cuStreamEndCaptureToCig | cuStreamEndCaptureToCig_ptsz [default] (queue: u64) {
        machine()?.end_graphics_capture(stream(queue, default))
    }

    /// The graph is NULL unless all went well.
    fn cuStreamEndCapture | cuStreamEndCapture_ptsz [default] (queue: u64, graph: Out<u64>) {
        let machine = machine()?;
        let graph = graph.required()?;
        let ended = machine.end_capture(stream(queue, default));
        graph.set(ended.map_or(0, |graph| graph.0));
        ended.map(drop)
    }

    fn cuStreamIsCapturing | cuStreamIsCapturing_ptsz [default] (queue: u64, status: Out<u32>) {
        active_capture(queue, default, status).map(drop)
    }

    /// As of 10.1.
    fn cuStreamGetCaptureInfo | cuStreamGetCaptureInfo_ptsz [default] (queue: u64, status: Out<u32>, id: Out<u64>) {
        let info = active_capture(queue, default, status)?;
        info.into_iter().for_each(|info| id.set(info.id.0));
        Ok(())
    }

    /// As of 11.3.
    fn cuStreamGetCaptureInfo_v2 | cuStreamGetCaptureInfo_v2_ptsz [default] (
        queue: u64,
        status: Out<u32>,
        id: Out<u64>,
        graph: Out<u64>,
        after: Out<u64>,
        count: Out<u64>,
    ) {
        let info = active_capture(queue, default, status)?;
        info.into_iter().for_each(|info| Details { id, graph, after, count }.set(info));
        Ok(())
    }

    /// As of 12.3. Edges carry no data here, which NULL tells.
    fn cuStreamGetCaptureInfo_v3 | cuStreamGetCaptureInfo_v3_ptsz [default] (
        queue: u64,
        status: Out<u32>,
        id: Out<u64>,
        graph: Out<u64>,
        after: Out<u64>,
        edges: Out<u64>,
        count: Out<u64>,
    ) {
        let info = active_capture(queue, default, status)?;
        info.into_iter().for_each(|info| {
            Details { id, graph, after, count }.set(info);
            edges.set(0);
        });
        Ok(())
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) {
        machine()?;
        let wanted = capture_mode(mode.required()?.get())?;
        mode.set(current::exchange_capture_mode(wanted) as u32);
        Ok(())
    }

    fn cuGraphCreate(graph: Out<u64>, flags: u32) {
        let machine = machine()?;
        let graph = graph.required()?;
        require(flags == 0)?;
        graph.set(machine.create_graph().0);
        Ok(())
    }

    fn cuGraphDestroy(graph: u64) {
        machine()?.destroy_graph(GraphHandle(graph))
    }

    /// Stores at most `count` nodes, NULL in places left over, and how many there are.
    fn cuGraphGetNodes(graph: u64, nodes: Out<u64>, count: Out<u64>) {
        let machine = machine()?;
        let count = count.required()?;
        store_nodes(&machine.graph_nodes(GraphHandle(graph))?, nodes, count);
        Ok(())
    }

    fn cuGraphGetEdges(graph: u64, from: Out<u64>, to: Out<u64>, count: Out<u64>) {
        let machine = machine()?;
        let count = count.required()?;
        store_edges(machine.graph_edges(GraphHandle(graph))?, [from, to], count)
    }

    /// As of 12.3. Edges carry no data here.
    fn cuGraphGetEdges_v2(graph: u64, from: Out<u64>, to: Out<u64>, data: Out<u64>, count: Out<u64>) {
        let machine = machine()?;
        let count = count.required()?;
        let room = count.get() as usize;
        let edges = machine.graph_edges(GraphHandle(graph))?;
        (0..room.min(edges.len())).for_each(|index| data.set_nth(index, 0));
        store_edges(edges, [from, to], count)
    }

    fn cuGraphNodeGetDependentNodes(node: u64, dependents: Out<u64>, count: Out<u64>) {
        let machine = machine()?;
        let count = count.required()?;
        store_nodes(&machine.dependents(NodeHandle(node))?, dependents, count);
        Ok(())
    }

    /// As of 12.3. Edges carry no data here.
    fn cuGraphNodeGetDependentNodes_v2(node: u64, dependents: Out<u64>, _edges: Opaque, count: Out<u64>) {
        let machine = machine()?;
        let count = count.required()?;
        store_nodes(&machine.dependents(NodeHandle(node))?, dependents, count);
        Ok(())
    }

    /// As of 11.1.
    fn cuGraphAddEventRecordNode(node: Out<u64>, graph: u64, after: In<u64>, count: u64, event: u64) {
        let machine = machine()?;
        let node = node.required()?;
        node.set(machine.add_record_node(GraphHandle(graph), nodes(after, count)?, EventHandle(event))?.0);
        Ok(())
    }

    fn cuGraphDestroyNode(node: u64) {
        machine()?.destroy_node(NodeHandle(node))
    }

    fn cuGraphNodeGetType(node: u64, kind: Out<u32>) {
        let machine = machine()?;
        let kind = kind.required()?;
        kind.set(number(&machine.node(NodeHandle(node))?));
        Ok(())
    }

    fn cuGraphMemcpyNodeGetParams(node: u64, parameters: Out<Memcpy3d>) {
        let machine = machine()?;
        let parameters = parameters.required()?;
        let NodeKind::Copy(request) = machine.node(NodeHandle(node))? else { return Err(Error::INVALID_VALUE) };
        parameters.set(request.into());
        Ok(())
    }

    fn cuGraphMemcpyNodeSetParams(node: u64, parameters: In<Memcpy3d>) {
        machine()?.set_copy_node(NodeHandle(node), &request_3d(&parameters.read()?)?)
    }

    fn cuGraphChildGraphNodeGetGraph(node: u64, graph: Out<u64>) {
        let machine = machine()?;
        let graph = graph.required()?;
        let NodeKind::Child(child) = machine.node(NodeHandle(node))? else { return Err(Error::INVALID_VALUE) };
        graph.set(child.0);
        Ok(())
    }

    fn cuGraphAddMemcpyNode(
        node: Out<u64>,
        graph: u64,
        after: In<u64>,
        count: u64,
        parameters: In<Memcpy3d>,
        context: u64,
    ) {
        let machine = machine()?;
        let node = node.required()?;
        let request = request_3d(&parameters.read()?)?;
        node.set(machine.add_copy_node(GraphHandle(graph), nodes(after, count)?, &request, ContextHandle(context))?.0);
        Ok(())
    }

    fn cuGraphAddChildGraphNode(node: Out<u64>, graph: u64, after: In<u64>, count: u64, child: u64) {
        let machine = machine()?;
        let node = node.required()?;
        node.set(machine.add_child_node(GraphHandle(graph), nodes(after, count)?, GraphHandle(child))?.0);
        Ok(())
    }

    /// As of 10.2. Where the later form says that the topology has changed it says that this is not supported, as was measured.
    fn cuGraphExecUpdate(exec: u64, graph: u64, error: Out<u64>, result: Out<u32>) {
        let updated = machine()?.update_exec(ExecHandle(exec), GraphHandle(graph))?;
        error.set(0);
        tell(updated, |why| result.set(if why == TOPOLOGY_CHANGED { NOT_SUPPORTED } else { why }))
    }

    /// As of 12.0.
    fn cuGraphExecUpdate_v2(exec: u64, graph: u64, result: Out<UpdateResult>) {
        let updated = machine()?.update_exec(ExecHandle(exec), GraphHandle(graph))?;
        tell(updated, |why| result.set(UpdateResult { result: why, nodes: [0; 2] }))
    }

    fn cuGraphExecMemcpyNodeSetParams(exec: u64, node: u64, parameters: In<Memcpy3d>, _context: u64) {
        let request = request_3d(&parameters.read()?)?;
        machine()?.set_exec_copy_node(ExecHandle(exec), NodeHandle(node), &request)
    }

    fn cuGraphExecChildGraphNodeSetParams(exec: u64, node: u64, child: u64) {
        machine()?.set_exec_child_node(ExecHandle(exec), NodeHandle(node), GraphHandle(child))
    }

    /// As of 12.2, for nodes that copy and child graphs.
    fn cuGraphExecNodeSetParams(exec: u64, node: u64, given: In<NodeParameters>) {
        let machine = machine()?;
        let parameters = given.read()?;
        let (exec, node) = (ExecHandle(exec), NodeHandle(node));
        match parameters.kind {
            MEMCPY => machine.set_exec_copy_node(exec, node, &request_3d(&parameters.copy)?),
            GRAPH => machine.set_exec_child_node(exec, node, GraphHandle(parameters.graph)),
            BATCH_NODE => machine.set_exec_batch_node(exec, node, &batch_of(given)?),
            _ => Err(Error::INVALID_VALUE),
        }
    }

    /// As of 11.6.
    fn cuGraphNodeSetEnabled(exec: u64, node: u64, is_enabled: u32) {
        machine()?.set_exec_node_enabled(ExecHandle(exec), NodeHandle(node), is_enabled != 0)
    }

    /// As of 10.0; it never fails in a way that there would be a word to say about.
    fn cuGraphInstantiate(exec: Out<u64>, graph: u64, error: Out<u64>, _log: Opaque, _room: u64) {
        error.set(0);
        instantiate(exec, graph, 0)
    }

    /// As of 11.0.
    fn cuGraphInstantiate_v2(exec: Out<u64>, graph: u64, error: Out<u64>, _log: Opaque, _room: u64) {
        error.set(0);
        instantiate(exec, graph, 0)
    }

    /// As of 11.4.
    fn cuGraphInstantiateWithFlags(exec: Out<u64>, graph: u64, flags: u64) {
        require(flags & UPLOAD == 0)?;
        instantiate(exec, graph, flags)
    }

    /// As of 12.0; both forms do the same, since nothing is uploaded.
    fn cuGraphInstantiateWithParams | cuGraphInstantiateWithParams_ptsz [_default] (
        exec: Out<u64>,
        graph: u64,
        parameters: Out<InstantiateParameters>,
    ) {
        let parameters = parameters.required()?;
        let given = In::from(parameters).read()?;
        instantiate(exec, graph, given.flags)?;
        parameters.set(InstantiateParameters { error_node: 0, result: 0, ..given });
        Ok(())
    }

    fn cuGraphUpload | cuGraphUpload_ptsz [default] (exec: u64, queue: u64) {
        machine()?.upload_graph(ExecHandle(exec), stream(queue, default))
    }

    fn cuGraphLaunch | cuGraphLaunch_ptsz [default] (exec: u64, queue: u64) {
        machine()?.launch_graph(ExecHandle(exec), stream(queue, default))
    }

    fn cuGraphExecDestroy(exec: u64) {
        machine()?.destroy_exec(ExecHandle(exec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_edges_counts_and_stores_as_far_as_there_is_room() {
        let edges = || [(1, 3), (2, 3)].map(|(from, to)| (NodeHandle(from), NodeHandle(to))).to_vec();
        let at = |values: &mut [u64]| Out::at(values.as_mut_ptr() as u64);
        let store = |room: u64, mut from: [u64; 3], mut to: [u64; 3]| {
            let mut count = [room];
            store_edges(edges(), [at(&mut from), at(&mut to)], at(&mut count)).unwrap();
            (from, to, count[0])
        };
        assert_eq!(store(3, [9; 3], [9; 3]), ([1, 2, 0], [3, 3, 0], 2));
        assert_eq!(store(1, [9; 3], [9; 3]), ([1, 9, 9], [3, 9, 9], 2));
        let (mut count, mut one) = ([7], [9; 3]);
        store_edges(edges(), [Out::at(0), Out::at(0)], at(&mut count)).unwrap();
        assert_eq!(count, [2]);
        assert_eq!(store_edges(edges(), [at(&mut one), Out::at(0)], at(&mut count)), Err(Error::INVALID_VALUE));
    }
}
