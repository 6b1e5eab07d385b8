//! Capturing streams' work into graphs.

use std::sync::Arc;

use super::{CaptureId, ContextId, DefaultStream, GraphHandle, Machine, NodeHandle, State, StreamRef};
use crate::capture::{CaptureInfo, CaptureMode, Changed, Purpose, Target};
use crate::current;
use crate::error::{Error, Result};
use crate::graph::Step;
use crate::stream::{Role, Stream};

pub(super) const NODE_HANDLES: u64 = 0x5058_0000_0000;

impl Machine {
    /// Captures a stream's work from now on; into a graph of the program, after some of its nodes, if there is one.
    pub fn begin_capture(
        &self,
        stream: StreamRef,
        mode: CaptureMode,
        into: Option<(GraphHandle, Vec<NodeHandle>)>,
    ) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream_to_capture(stream)?;
        let (target, after) = match into {
            Some((graph, after)) => {
                let known = state.graphs.get(&graph).is_some_and(|graph| graph.has(&after));
                (known.then_some(Target { graph, is_programs: true }).ok_or(Error::INVALID_VALUE)?, after)
            }
            None => (Target { graph: state.create_graph(), is_programs: false }, Vec::new()),
        };
        state.begin_capture(&stream, target, mode, Purpose::Fill, after);
        Ok(())
    }

    /// Captures a stream's work into a graph that has nodes for it, which are to come in the same order, of the same kinds, after the
    /// same nodes: as is documented. `changed` is asked about those that do something else now; it must not call the driver.
    pub fn begin_recapture(
        &self,
        stream: StreamRef,
        mode: CaptureMode,
        graph: GraphHandle,
        changed: Changed,
    ) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream_to_capture(stream)?;
        let nodes = state.graphs.get(&graph).ok_or(Error::INVALID_VALUE)?.nodes();
        let target = Target { graph, is_programs: true };
        state.begin_capture(&stream, target, mode, Purpose::Again(nodes.into(), changed), Vec::new());
        Ok(())
    }

    /// Captures a stream's work for a graphics API, of which there is none: the end runs it.
    pub fn begin_graphics_capture(&self, stream: StreamRef) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream_to_capture(stream)?;
        let target = Target { graph: state.create_graph(), is_programs: false };
        state.begin_capture(&stream, target, CaptureMode::Relaxed, Purpose::Graphics, Vec::new());
        Ok(())
    }

    /// Ends a capture for a graphics API, and runs what it has.
    pub fn end_graphics_capture(&self, reference: StreamRef) -> Result<()> {
        let mut state = self.lock();
        let stream = state.stream(reference)?;
        if !state.captures.is_for_graphics(&stream) {
            return Err(Error::INVALID_VALUE);
        }
        let ended = state.captures.end(&stream, current::thread())?;
        let steps = state.flat(ended.target.graph)?;
        state.drop_unfinished(ended.target);
        if !ended.valid {
            return Err(Error::STREAM_CAPTURE_INVALIDATED);
        }
        steps.iter().try_for_each(|(_, step)| state.run(&stream, step).map(drop))
    }

    /// Ends the capture that began on a stream.
    pub fn end_capture(&self, stream: StreamRef) -> Result<GraphHandle> {
        let mut state = self.lock();
        let stream = state.stream(stream)?;
        if state.captures.is_for_graphics(&stream) {
            return Err(Error::ILLEGAL_STATE);
        }
        let ended = state.captures.end(&stream, current::thread())?;
        if let Some(is_all_again) = ended.is_all_again
            && !(ended.valid && is_all_again)
        {
            return Err(Error::GRAPH_RECAPTURE_FAILURE);
        }
        let graph = ended.target.graph;
        let joined = state.graphs.get(&graph).is_some_and(|graph| graph.joins(&ended.joined, &ended.others));
        if ended.valid && joined {
            return Ok(graph);
        }
        state.drop_unfinished(ended.target);
        Err(if ended.valid { Error::STREAM_CAPTURE_UNJOINED } else { Error::STREAM_CAPTURE_INVALIDATED })
    }

    /// The capture of a stream; None if there is none.
    pub fn capture_info(&self, stream: StreamRef) -> Result<Option<CaptureInfo>> {
        let mut state = self.lock();
        let is_legacy = stream == StreamRef::Default(DefaultStream::Legacy);
        let stream = state.stream(stream)?;
        if is_legacy && state.captures.implied_by(stream.context) {
            return Err(Error::STREAM_CAPTURE_IMPLICIT);
        }
        Ok(state.captures.info(&stream).filter(|_| !state.captures.is_for_graphics(&stream)))
    }

    /// Refuses what a capture cannot see, as far as it minds on the calling thread, and breaks that capture.
    pub fn refuse_unseen(&self) -> Result<()> {
        self.lock().captures.refuse_unseen(current::caller())
    }
}

impl State {
    /// Captures a step, if `stream` captures; else the step is still to be run.
    pub(super) fn capture(&mut self, stream: &Arc<Stream>, step: &Step) -> Result<bool> {
        let Some(CaptureInfo { id, graph, .. }) = self.captures.of(stream)? else { return Ok(false) };
        if let Some((node, changed)) = self.captures.again(id) {
            let node = node.filter(|&node| self.is_again((graph, node), stream, step, &changed));
            let Some(node) = node else {
                self.captures.invalidate(id);
                return Err(Error::GRAPH_RECAPTURE_FAILURE);
            };
            self.captures.advance(stream, node);
            return Ok(true);
        }
        let node = NodeHandle(NODE_HANDLES + self.number() * 0x10);
        let after = self.captures.after(stream);
        self.graphs.get_mut(&graph).ok_or(Error::UNKNOWN)?.add(node, step.clone(), after);
        self.captures.advance(stream, node);
        Ok(true)
    }

    /// Whether a node of a graph that is captured again may be what is captured now; it is then.
    fn is_again(
        &mut self,
        (graph, node): (GraphHandle, NodeHandle),
        stream: &Arc<Stream>,
        step: &Step,
        changed: &Changed,
    ) -> bool {
        let after = self.captures.after(stream);
        let Some(graph) = self.graphs.get_mut(&graph) else { return false };
        let is_after_the_same = graph.after(node) == after;
        let Some(known) = graph.step_mut(node).filter(|known| is_after_the_same && known.is_like(step)) else {
            return false;
        };
        let [old, new] = [&*known, step].map(Step::kind);
        let may_be = old == new || changed(node, &old, &new);
        if may_be {
            *known = step.clone();
        }
        may_be
    }

    /// The stream that is to be captured: none captures already, nor is it one that none can capture.
    fn stream_to_capture(&mut self, stream: StreamRef) -> Result<Arc<Stream>> {
        let stream = self.stream(stream)?;
        match self.captures.info(&stream) {
            _ if stream.role == Role::Legacy => Err(Error::STREAM_CAPTURE_UNSUPPORTED),
            Some(_) => Err(Error::ILLEGAL_STATE),
            None => Ok(stream),
        }
    }

    fn begin_capture(
        &mut self,
        stream: &Arc<Stream>,
        target: Target,
        mode: CaptureMode,
        purpose: Purpose,
        after: Vec<NodeHandle>,
    ) {
        let id = CaptureId(self.number());
        self.captures.begin(id, stream, target, (mode, current::thread()), purpose, after);
    }

    /// Makes a stream that waits for a captured event part of that event's capture.
    pub(super) fn join_capture(
        &mut self,
        stream: &Arc<Stream>,
        own: Option<CaptureInfo>,
        id: CaptureId,
        after: Vec<NodeHandle>,
    ) -> Result<()> {
        match self.captures.is_valid(id) {
            None => return Err(Error::CAPTURED_EVENT),
            Some(false) => return Err(Error::STREAM_CAPTURE_INVALIDATED),
            Some(true) => {}
        }
        let refusal = match own {
            Some(own) if own.id != id => Some(Error::STREAM_CAPTURE_MERGE),
            None if stream.role == Role::Legacy => Some(Error::STREAM_CAPTURE_UNSUPPORTED),
            _ => None,
        };
        if let Some(error) = refusal {
            own.into_iter().for_each(|own| self.captures.invalidate(own.id));
            self.captures.invalidate(id);
            return Err(error);
        }
        self.captures.join(id, stream, after);
        Ok(())
    }

    /// Refuses what acts on `stream` at once, where a capture would be passed over, and breaks that capture.
    pub(super) fn refuse_synchronous(&mut self, stream: &Arc<Stream>) -> Result<()> {
        self.refuse_captured(stream)?;
        self.refuse_waiting(stream.context)
    }

    /// Refuses what waits for work of a context, as far as a capture on its device minds: one on another device does not, as was reported of
    /// two RTX PRO 4000.
    pub(super) fn refuse_waiting(&mut self, context: ContextId) -> Result<()> {
        let device = |context| self.contexts.get(&context).map(|context| context.device);
        let own = device(context);
        self.captures
            .refuse_unseen_in(current::caller(), |other| other == context || own.is_some() && device(other) == own)
    }

    /// Refuses what no stream that captures takes, and breaks that capture, or one that a legacy default stream would have to wait for.
    pub(super) fn refuse_captured(&mut self, stream: &Arc<Stream>) -> Result<()> {
        self.refuse_implicit(stream)?;
        self.captures.refuse_on(|capturing| capturing.id == stream.id)
    }

    /// Refuses work on a legacy default stream that would have to wait for a capture, and breaks that capture.
    pub(super) fn refuse_implicit(&mut self, stream: &Arc<Stream>) -> Result<()> {
        if stream.role == Role::Legacy { self.captures.of(stream).map(drop) } else { Ok(()) }
    }

    /// Forgets the captures of streams that have gone.
    pub(super) fn forget_captures(&mut self, gone: impl Fn(&Stream) -> bool) {
        for target in self.captures.forget(gone) {
            self.drop_unfinished(target);
        }
    }

    fn drop_unfinished(&mut self, target: Target) {
        if !target.is_programs {
            self.graphs.remove(&target.graph);
        }
    }
}
