//! Graphs: making them ready, running them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::captures::NODE_HANDLES;
use super::{
    ContextHandle, EventHandle, Exec, ExecHandle, GraphHandle, Machine, NodeHandle, Recorded, State, StreamRef,
};
use crate::current;
use crate::error::{Error, Result};
use crate::fault::Defect;
use crate::fence::Fence;
use crate::gate::Gate;
use crate::graph::{Graph, NodeKind, Shape, Step};
use crate::stream::Stream;
use crate::transfer::{Memory, Request};
use crate::work::{Path, Work};

const GRAPH_HANDLES: u64 = 0x5056_0000_0000;
const EXEC_HANDLES: u64 = 0x5057_0000_0000;

impl Machine {
    /// Creates an empty graph.
    pub fn create_graph(&self) -> GraphHandle {
        self.lock().create_graph()
    }

    /// Destroys a graph; what was made ready of it stays.
    pub fn destroy_graph(&self, handle: GraphHandle) -> Result<()> {
        let mut state = self.lock();
        if state.captures.fills(handle) {
            return Err(Error::ILLEGAL_STATE);
        }
        state.graphs.remove(&handle).map(drop).ok_or(Error::INVALID_VALUE)
    }

    /// All nodes of a graph.
    pub fn graph_nodes(&self, handle: GraphHandle) -> Result<Vec<NodeHandle>> {
        self.lock().graphs.get(&handle).map(Graph::nodes).ok_or(Error::INVALID_VALUE)
    }

    /// All pairs of a node and one that comes right after it, in the order in which they were made.
    pub fn graph_edges(&self, handle: GraphHandle) -> Result<Vec<(NodeHandle, NodeHandle)>> {
        self.lock().graphs.get(&handle).map(Graph::edges).ok_or(Error::INVALID_VALUE)
    }

    /// Adds a node that copies, after others, in a context.
    pub fn add_copy_node(
        &self,
        handle: GraphHandle,
        after: Vec<NodeHandle>,
        request: &Request,
        context: ContextHandle,
    ) -> Result<NodeHandle> {
        let mut state = self.lock();
        let transfer = state.loose_transfer(request)?;
        if let Ok(context) = state.named(context).or_else(|_| state.current()) {
            state.refuse_beyond_rights(context, transfer)?;
        }
        state.add_node(handle, after, Step::Copy(transfer))
    }

    /// Adds a node that makes several copies, after others.
    pub fn add_batch_node(
        &self,
        handle: GraphHandle,
        after: Vec<NodeHandle>,
        requests: &[Request],
    ) -> Result<NodeHandle> {
        if !self.config.has_batch_nodes() {
            return Err(Error::INVALID_VALUE);
        }
        let mut state = self.lock();
        let batch = state.batch(requests)?;
        state.add_node(handle, after, batch)
    }

    /// Adds a node that runs a copy of another graph as it is now. With the same graph a real driver crashes.
    pub fn add_child_node(
        &self,
        handle: GraphHandle,
        after: Vec<NodeHandle>,
        child: GraphHandle,
    ) -> Result<NodeHandle> {
        let mut state = self.lock();
        if child == handle {
            return Err(Error::INVALID_VALUE);
        }
        let child = state.copy_graph(child)?;
        state.add_node(handle, after, Step::Child(child))
    }

    /// Adds a node that records an event when the nodes are done that it comes after, whatever else the graph has to do.
    pub fn add_record_node(
        &self,
        handle: GraphHandle,
        after: Vec<NodeHandle>,
        event: EventHandle,
    ) -> Result<NodeHandle> {
        let mut state = self.lock();
        if !state.events.contains_key(&event) {
            return Err(Error::INVALID_HANDLE);
        }
        state.add_node(handle, after, Step::Record(event, 0))
    }

    /// Takes a node out of its graph; what was made ready of that stays.
    pub fn destroy_node(&self, node: NodeHandle) -> Result<()> {
        let mut state = self.lock();
        let is_removed = state.graphs.values_mut().any(|graph| graph.remove(node));
        if is_removed { Ok(()) } else { Err(Error::INVALID_VALUE) }
    }

    /// The nodes that come right after a node.
    pub fn dependents(&self, node: NodeHandle) -> Result<Vec<NodeHandle>> {
        let state = self.lock();
        let graph = state.graphs.values().find(|graph| graph.has(&[node])).ok_or(Error::INVALID_VALUE)?;
        Ok(graph.dependents(node))
    }

    /// A node's kind; the graphs' nodes have handles of their own.
    pub fn node(&self, node: NodeHandle) -> Result<NodeKind> {
        let state = self.lock();
        state.graphs.values().find_map(|graph| graph.step(node)).map(Step::kind).ok_or(Error::INVALID_VALUE)
    }

    /// Has a node that copies copy something else.
    pub fn set_copy_node(&self, node: NodeHandle, request: &Request) -> Result<()> {
        let mut state = self.lock();
        let transfer = state.loose_transfer(request)?;
        match state.graphs.values_mut().find_map(|graph| graph.step_mut(node)) {
            Some(Step::Copy(copied)) => *copied = transfer,
            _ => return Err(Error::INVALID_VALUE),
        }
        Ok(())
    }

    /// Refuses a graph for launches by devices if it copies what the current context cannot reach, as was measured; or, as is documented,
    /// what is no memory of a device and not pinned.
    pub fn refuse_device_launch(&self, handle: GraphHandle) -> Result<()> {
        let state = self.lock();
        let context = state.current()?;
        let own = state.info(context)?.device;
        let is_within_reach = |memory: &Memory| match memory {
            Memory::Device(piece) => state.can_reach(context, own, *piece),
            Memory::Pinned { .. } => true,
            Memory::Pageable | Memory::Gone { .. } => false,
        };
        let is_possible = |step: &Step| match step {
            Step::Copy(transfer) => !transfer.has_array() && transfer.memories().iter().all(is_within_reach),
            Step::Host(_) => false,
            _ => true,
        };
        let steps = state.flat(handle)?;
        if steps.iter().all(|(_, step)| is_possible(step)) { Ok(()) } else { Err(Error::INVALID_VALUE) }
    }

    /// Makes a graph ready to run. Its copies go for ever the way that there is now. A capture that minds is lost. Both were measured.
    pub fn instantiate_graph(&self, handle: GraphHandle) -> Result<ExecHandle> {
        let mut state = self.lock();
        state.current()?;
        state.captures.refuse_unseen(current::caller())?;
        let (shape, flat) = (state.shape(handle)?, state.flat(handle)?);
        let fixed = flat.into_iter().map(|(node, step)| Ok((node, state.fixed(step)?))).collect::<Result<Vec<_>>>()?;
        let (nodes, steps): (_, Vec<_>) = fixed.into_iter().unzip();
        let exec = ExecHandle(EXEC_HANDLES + state.number() * 0x10);
        state.execs.insert(
            exec,
            Exec { steps: steps.into(), nodes, disabled: BTreeSet::new(), shape, last: Fence::reached() },
        );
        Ok(exec)
    }

    /// Has a node of a ready graph that copies or sets memory run, or not run, whatever it is told to do meanwhile, as was measured.
    pub fn set_exec_node_enabled(&self, exec: ExecHandle, node: NodeHandle, is_enabled: bool) -> Result<()> {
        let mut state = self.lock();
        let known = state.execs.get_mut(&exec).ok_or(Error::INVALID_VALUE)?;
        let place = known.nodes.iter().position(|&of| of == node).ok_or(Error::INVALID_VALUE)?;
        match known.steps.get(place) {
            Some(Step::Fixed(..) | Step::Fill(_) | Step::Kernel(_)) if is_enabled => known.disabled.remove(&node),
            Some(Step::Fixed(..) | Step::Fill(_) | Step::Kernel(_)) => known.disabled.insert(node),
            _ => return Err(Error::INVALID_VALUE),
        };
        Ok(())
    }

    /// Makes a ready graph unknown; its launches go on.
    pub fn destroy_exec(&self, handle: ExecHandle) -> Result<()> {
        self.lock().execs.remove(&handle).map(drop).ok_or(Error::INVALID_VALUE)
    }

    /// Runs a ready graph on a stream, after its own earlier launches. A stream that captures takes none, and loses its capture; one that
    /// was created is enough where no context is current. Both were measured.
    pub fn launch_graph(&self, handle: ExecHandle, stream: StreamRef) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream_of_async_copy(stream)?;
        let exec = state.execs.get(&handle).ok_or(Error::INVALID_VALUE)?;
        let (steps, is_enabled) = (Arc::clone(&exec.steps), exec.are_enabled());
        let last = Arc::clone(&exec.last);
        state.refuse_captured(&stream)?;
        // One for what comes before the first step, and one for each.
        let mut done = vec![state.submit(&stream, vec![last], Work::Nothing)?];
        for (step, is_enabled) in steps.iter().zip(is_enabled) {
            let fence = match step {
                Step::Record(event, back) => {
                    let at = if *back == 0 { 0 } else { done.len() - back };
                    let fence = done.get(at).cloned().ok_or(Error::UNKNOWN)?;
                    if let Some(event) = state.events.get_mut(event) {
                        event.recorded = Recorded::Run(vec![fence]);
                    }
                    None
                }
                step if is_enabled => Some(state.run(&stream, step)?),
                _ => None,
            };
            done.extend(fence.or_else(|| done.last().cloned()));
        }
        let last = done.pop().ok_or(Error::UNKNOWN)?;
        state.execs.get_mut(&handle).ok_or(Error::UNKNOWN)?.last = last;
        Ok(())
    }

    /// Checks what an upload takes; there is nothing to upload.
    pub fn upload_graph(&self, handle: ExecHandle, stream: StreamRef) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream(stream)?;
        state.execs.get(&handle).ok_or(Error::INVALID_VALUE)?;
        state.refuse_captured(&stream)
    }
}

impl State {
    pub(super) fn create_graph(&mut self) -> GraphHandle {
        let handle = GraphHandle(GRAPH_HANDLES + self.number() * 0x10);
        self.graphs.insert(handle, Graph::default());
        handle
    }

    fn add_node(&mut self, handle: GraphHandle, after: Vec<NodeHandle>, step: Step) -> Result<NodeHandle> {
        let node = NodeHandle(NODE_HANDLES + self.number() * 0x10);
        let graph = self.graphs.get_mut(&handle).ok_or(Error::INVALID_VALUE)?;
        if !graph.has(&after) {
            return Err(Error::INVALID_VALUE);
        }
        graph.add(node, step, after);
        Ok(node)
    }

    /// A copy of the graph, its children too.
    fn copy_graph(&mut self, handle: GraphHandle) -> Result<GraphHandle> {
        let nodes = self.graphs.get(&handle).ok_or(Error::INVALID_VALUE)?.nodes().len() as u64;
        let mut next = NODE_HANDLES + self.number() * 0x10;
        // So many numbers are taken.
        for _ in 0..nodes {
            self.number();
        }
        let mut copy = self.graphs.get(&handle).ok_or(Error::INVALID_VALUE)?.copied(|| {
            next += 0x10;
            NodeHandle(next)
        });
        for node in copy.nodes() {
            if let Some(&Step::Child(child)) = copy.step(node) {
                let child = self.copy_graph(child)?;
                copy.step_mut(node).into_iter().for_each(|step| *step = Step::Child(child));
            }
        }
        let handle = self.create_graph();
        self.graphs.insert(handle, copy);
        Ok(handle)
    }

    /// All steps of a graph and its children in an order in which they may run.
    pub(super) fn flat(&self, handle: GraphHandle) -> Result<Vec<(NodeHandle, Step)>> {
        let graph = self.graphs.get(&handle).ok_or(Error::INVALID_VALUE)?;
        let mut steps = Vec::new();
        // How many steps there are once a node is done.
        let mut done = HashMap::new();
        for (node, step) in graph.steps() {
            match step {
                Step::Child(child) => steps.extend(self.flat(*child)?),
                Step::Record(event, _) => {
                    let before: Option<usize> =
                        graph.after(node).iter().filter_map(|node| done.get(node).copied()).max();
                    steps.push((node, Step::Record(*event, before.map_or(0, |before| steps.len() + 1 - before))));
                }
                step => steps.push((node, step.clone())),
            }
            done.insert(node, steps.len());
        }
        Ok(steps)
    }

    /// The shape of a graph.
    pub(super) fn shape(&self, handle: GraphHandle) -> Result<Shape> {
        let mut shape = Shape::default();
        for (_, step) in self.graphs.get(&handle).ok_or(Error::INVALID_VALUE)?.steps() {
            let inner = if let Step::Child(child) = step { self.shape(*child)? } else { Shape::default() };
            shape.push(step, inner);
        }
        Ok(shape)
    }

    /// A step with its way chosen. Its memory has to be there: if it is gone, a real driver hangs or crashes.
    pub(super) fn fixed(&mut self, step: Step) -> Result<Step> {
        let transfer = match step {
            Step::Copy(transfer) => transfer,
            Step::Batch(mut copies) => {
                for step in copies.iter_mut().filter_map(|copy| copy.step.as_mut()) {
                    **step = self.fixed((**step).clone())?;
                }
                return Ok(Step::Batch(copies));
            }
            _ => return Ok(step),
        };
        let transfer = self.loose_transfer(&transfer.request())?;
        if transfer.memories().iter().any(|memory| matches!(memory, Memory::Gone { .. })) {
            return Err(Error::INVALID_VALUE);
        }
        let (path, gate) = self.way(transfer);
        Ok(Step::Fixed(transfer, path, gate))
    }

    /// Submits a step; those of a graph one after the other, which no program can tell from side by side.
    pub(super) fn run(&mut self, stream: &Arc<Stream>, step: &Step) -> Result<Arc<Fence>> {
        let by = stream.context;
        let (work, gates) = match step {
            Step::Copy(transfer) => {
                let planned = self.plan(by, *transfer);
                return self.submit_copy(stream, &[], *transfer, planned);
            }
            Step::Fixed(transfer, path, gate) => {
                let (mut copy, mut gates) = self.plan_on(by, *transfer, (*path, gate.clone()));
                if let ([Memory::Device(from), Memory::Device(to)], Path::Direct) = (transfer.memories(), *path)
                    && self.faults.drops_in_graphs(from.device, to.device)
                {
                    copy.defect = Some(Defect::Drop);
                }
                if transfer.addresses().into_iter().any(|address| self.space.gone(address).is_some()) {
                    gates.push(Gate::shut(Error::ILLEGAL_ADDRESS));
                }
                return self.submit_copy(stream, &[], *transfer, (copy, gates));
            }
            Step::Batch(copies) => {
                let last = self.submit(stream, Vec::new(), Work::Nothing)?;
                return copies
                    .iter()
                    .filter_map(|copy| copy.step.as_ref())
                    .try_fold(last, |_, step| self.run(stream, step));
            }
            Step::Fill(fill) => (Work::Fill(fill.clone()), self.kept_at(by, &[fill.dst.address])),
            Step::Kernel(launch) => (Work::Kernel(self.plan_kernel(*launch)), self.kept_at(by, &launch.touched())),
            Step::Host(function) => (Work::Host(Arc::clone(function)), Vec::new()),
            // Flat since it was made ready; records are no work.
            Step::Child(_) | Step::Record(..) => (Work::Nothing, Vec::new()),
        };
        let work = self.gated(by, gates, work);
        self.submit(stream, Vec::new(), work)
    }
}
