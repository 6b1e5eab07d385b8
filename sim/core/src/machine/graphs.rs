//! Graphs: making them ready, running them.

use std::sync::Arc;

use super::{Exec, ExecHandle, GraphHandle, Machine, NodeHandle, State, StreamRef};
use crate::error::{Error, Result};
use crate::fence::Fence;
use crate::graph::{Graph, Step};
use crate::stream::Stream;
use crate::work::Work;

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

    /// Makes a graph ready to run.
    pub fn instantiate_graph(&self, handle: GraphHandle) -> Result<ExecHandle> {
        let mut state = self.lock();
        let steps = state.graphs.get(&handle).map(Graph::steps).ok_or(Error::INVALID_VALUE)?;
        let exec = ExecHandle(EXEC_HANDLES + state.number() * 0x10);
        state.execs.insert(exec, Exec { steps, last: Fence::reached() });
        Ok(exec)
    }

    /// Makes a ready graph unknown; its launches go on.
    pub fn destroy_exec(&self, handle: ExecHandle) -> Result<()> {
        self.lock().execs.remove(&handle).map(drop).ok_or(Error::INVALID_VALUE)
    }

    /// Runs a ready graph on a stream, after its own earlier launches; on one that captures it becomes a node.
    pub fn launch_graph(&self, handle: ExecHandle, stream: StreamRef) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream(stream)?;
        let exec = state.execs.get(&handle).ok_or(Error::INVALID_VALUE)?;
        let (step, last) = (Step::Graph(Arc::clone(&exec.steps)), Arc::clone(&exec.last));
        if state.capture(&stream, &step)? {
            return Ok(());
        }
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

    /// Submits a step; the steps of a graph one after the other, which no program can tell from side by side.
    pub(super) fn run(&mut self, stream: &Arc<Stream>, after: Vec<Arc<Fence>>, step: &Step) -> Result<Arc<Fence>> {
        let (work, gates) = match step {
            Step::Copy(transfer) => {
                let (copy, gates) = self.plan(*transfer);
                (Work::Copy(copy), gates)
            }
            Step::Fill(fill) => (Work::Fill(fill.clone()), self.mapped_at([fill.dst.address]).collect()),
            Step::Kernel(launch) => {
                (Work::Kernel(self.plan_kernel(*launch)), self.mapped_at(launch.touched()).collect())
            }
            Step::Host(function) => (Work::Host(Arc::clone(function)), Vec::new()),
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
