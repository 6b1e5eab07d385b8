//! Graphs: making them ready, running them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::captures::NODE_HANDLES;
use super::copies::Request;
use super::{Exec, ExecHandle, GraphHandle, Machine, NodeHandle, State, StreamRef};
use crate::error::{Error, Result};
use crate::fence::Fence;
use crate::graph::{Graph, Step};
use crate::stream::Stream;
use crate::work::Work;

const GRAPH_HANDLES: u64 = 0x5056_0000_0000;
const EXEC_HANDLES: u64 = 0x5057_0000_0000;

/// What a node of a graph is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// It copies.
    Copy(Request),
    /// It sets memory.
    Fill,
    /// It runs a kernel.
    Kernel,
    /// It calls a function of the program.
    Host,
    /// It runs a graph that it has for itself; none if that was captured as a launch.
    Child(Option<GraphHandle>),
}

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

    /// Adds a node that copies, after others.
    pub fn add_copy_node(&self, handle: GraphHandle, after: Vec<NodeHandle>, request: &Request) -> Result<NodeHandle> {
        let mut state = self.lock();
        let transfer = state.transfer(request)?;
        state.add_node(handle, after, Step::Copy(transfer))
    }

    /// Adds a node that runs a copy of another graph as it is now.
    pub fn add_child_node(
        &self,
        handle: GraphHandle,
        after: Vec<NodeHandle>,
        child: GraphHandle,
    ) -> Result<NodeHandle> {
        let mut state = self.lock();
        let child = state.copy_graph(child)?;
        state.add_node(handle, after, Step::Child(child))
    }

    /// What a node is; the graphs' nodes have handles of their own.
    pub fn node(&self, node: NodeHandle) -> Result<NodeKind> {
        let state = self.lock();
        let step = state.graphs.values().find_map(|graph| graph.step(node)).ok_or(Error::INVALID_VALUE)?;
        Ok(match step {
            Step::Copy(transfer) | Step::Fixed(transfer, ..) => NodeKind::Copy(transfer.request()),
            Step::Fill(_) => NodeKind::Fill,
            Step::Kernel(_) => NodeKind::Kernel,
            Step::Host(_) => NodeKind::Host,
            Step::Child(graph) => NodeKind::Child(Some(*graph)),
            Step::Graph(_) => NodeKind::Child(None),
        })
    }

    /// Has a node that copies copy something else.
    pub fn set_copy_node(&self, node: NodeHandle, request: &Request) -> Result<()> {
        let mut state = self.lock();
        let transfer = state.transfer(request)?;
        match state.graphs.values_mut().find_map(|graph| graph.step_mut(node)) {
            Some(Step::Copy(copied)) => *copied = transfer,
            _ => return Err(Error::INVALID_VALUE),
        }
        Ok(())
    }

    /// Makes a graph ready to run. Its copies go for ever the way that there is now, as was measured.
    pub fn instantiate_graph(&self, handle: GraphHandle) -> Result<ExecHandle> {
        let mut state = self.lock();
        let (nodes, steps) = state.flat(handle)?.into_iter().map(|(node, step)| (node, state.fixed(step))).unzip();
        let exec = ExecHandle(EXEC_HANDLES + state.number() * 0x10);
        state
            .execs
            .insert(exec, Exec { steps: Vec::into(steps), nodes, disabled: BTreeSet::new(), last: Fence::reached() });
        Ok(exec)
    }

    /// Has a ready graph do what a graph of the same shape does now; copies keep their way. False if the shape is another.
    pub fn update_exec(&self, exec: ExecHandle, handle: GraphHandle) -> Result<bool> {
        let mut state = self.lock();
        let known = Arc::clone(&state.execs.get(&exec).ok_or(Error::INVALID_VALUE)?.steps);
        let new = state.flat(handle)?;
        if new.len() != known.len() {
            return Ok(false);
        }
        let mut steps = Vec::with_capacity(new.len());
        for ((_, step), known) in new.into_iter().zip(known.iter()) {
            steps.push(match (step, known) {
                (Step::Copy(transfer), Step::Fixed(before, path, gate)) if transfer.is_between_those_of(before) => {
                    Step::Fixed(transfer, *path, gate.clone())
                }
                (Step::Copy(_), _) | (_, Step::Fixed(..)) => return Ok(false),
                (step, _) => step,
            });
        }
        state.execs.get_mut(&exec).ok_or(Error::UNKNOWN)?.steps = steps.into();
        Ok(true)
    }

    /// Has a node of a ready graph copy something else between the same devices, the way that it went.
    pub fn set_exec_copy_node(&self, exec: ExecHandle, node: NodeHandle, request: &Request) -> Result<()> {
        let mut state = self.lock();
        let transfer = state.transfer(request)?;
        let known = state.execs.get_mut(&exec).ok_or(Error::INVALID_VALUE)?;
        let place = known.nodes.iter().position(|&of| of == node).ok_or(Error::INVALID_VALUE)?;
        let mut steps = known.steps.to_vec();
        match steps.get_mut(place) {
            Some(Step::Fixed(copied, ..)) if transfer.is_between_those_of(copied) => *copied = transfer,
            _ => return Err(Error::INVALID_VALUE),
        }
        known.steps = steps.into();
        Ok(())
    }

    /// Has a child of a ready graph be another graph of the same shape.
    pub fn set_exec_child_node(&self, exec: ExecHandle, node: NodeHandle, child: GraphHandle) -> Result<()> {
        let mut state = self.lock();
        let Some(&Step::Child(inner)) = state.graphs.values().find_map(|graph| graph.step(node)) else {
            return Err(Error::INVALID_VALUE);
        };
        let (old, new) = (state.flat(inner)?, state.flat(child)?);
        let known = state.execs.get_mut(&exec).ok_or(Error::INVALID_VALUE)?;
        let mut steps = known.steps.to_vec();
        if old.len() != new.len() {
            return Err(Error::INVALID_VALUE);
        }
        for ((node, _), (_, step)) in old.into_iter().zip(new) {
            let place = known.nodes.iter().position(|&of| of == node).ok_or(Error::INVALID_VALUE)?;
            match (steps.get_mut(place), step) {
                (Some(Step::Fixed(copied, ..)), Step::Copy(transfer)) if transfer.is_between_those_of(copied) => {
                    *copied = transfer;
                }
                (_, Step::Copy(_)) | (Some(Step::Fixed(..)), _) => return Err(Error::INVALID_VALUE),
                (Some(known), step) => *known = step,
                (None, _) => return Err(Error::UNKNOWN),
            }
        }
        known.steps = steps.into();
        Ok(())
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

    /// Runs a ready graph on a stream, after its own earlier launches; one that captures loses its capture, as was measured.
    pub fn launch_graph(&self, handle: ExecHandle, stream: StreamRef) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream(stream)?;
        let exec = state.execs.get(&handle).ok_or(Error::INVALID_VALUE)?;
        let steps = if exec.disabled.is_empty() {
            Arc::clone(&exec.steps)
        } else {
            let steps = exec.nodes.iter().zip(exec.steps.iter());
            steps.filter(|(node, _)| !exec.disabled.contains(node)).map(|(_, step)| step.clone()).collect()
        };
        let (step, last) = (Step::Graph(steps), Arc::clone(&exec.last));
        state.captures.of(&stream)?;
        state.captures.refuse_on(|capturing| capturing.id == stream.id)?;
        let last = state.run(&stream, vec![last], &step)?;
        state.execs.get_mut(&handle).ok_or(Error::UNKNOWN)?.last = last;
        Ok(())
    }

    /// Checks what an upload takes; there is nothing to upload.
    pub fn upload_graph(&self, handle: ExecHandle, stream: StreamRef) -> Result<()> {
        let mut state = self.lock();
        state.stream(stream)?;
        state.execs.get(&handle).map(drop).ok_or(Error::INVALID_VALUE)
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

    /// The same graph once more, its children too.
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
    fn flat(&self, handle: GraphHandle) -> Result<Vec<(NodeHandle, Step)>> {
        let graph = self.graphs.get(&handle).ok_or(Error::INVALID_VALUE)?;
        let mut steps = Vec::new();
        for (node, step) in graph.steps() {
            match step {
                Step::Child(child) => steps.extend(self.flat(*child)?),
                step => steps.push((node, step.clone())),
            }
        }
        Ok(steps)
    }

    /// A step with its way chosen.
    fn fixed(&mut self, step: Step) -> Step {
        let Step::Copy(transfer) = step else { return step };
        let (path, gate) = self.way(transfer);
        Step::Fixed(transfer, path, gate)
    }

    /// Submits a step; the steps of a graph one after the other, which no program can tell from side by side.
    pub(super) fn run(&mut self, stream: &Arc<Stream>, after: Vec<Arc<Fence>>, step: &Step) -> Result<Arc<Fence>> {
        let (work, gates) = match step {
            Step::Copy(transfer) => {
                let (copy, gates) = self.plan(*transfer);
                (Work::Copy(copy), gates)
            }
            Step::Fixed(transfer, path, gate) => {
                let (copy, gates) = self.plan_on(*transfer, (*path, gate.clone()));
                (Work::Copy(copy), gates)
            }
            Step::Fill(fill) => (Work::Fill(fill.clone()), self.mapped_at([fill.dst.address]).collect()),
            Step::Kernel(launch) => {
                (Work::Kernel(self.plan_kernel(*launch)), self.mapped_at(launch.touched()).collect())
            }
            Step::Host(function) => (Work::Host(Arc::clone(function)), Vec::new()),
            // Flat since it was made ready.
            Step::Child(_) => (Work::Nothing, Vec::new()),
            Step::Graph(steps) => {
                let mut last = self.submit(stream, after, Work::Nothing)?;
                for step in steps.iter() {
                    last = self.run(stream, Vec::new(), step)?;
                }
                return Ok(last);
            }
        };
        let work = self.gated(stream.context, gates, work);
        self.submit(stream, after, work)
    }
}
