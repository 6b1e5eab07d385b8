//! Captures under way: which streams take part in which, and what they forbid meanwhile.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::graph::NodeKind;
use crate::ids::{CaptureId, ContextId, GraphHandle, NodeHandle, StreamId};
use crate::stream::{Role, Stream};

/// How strictly a capture, or a thread, minds calls that a capture cannot see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureMode {
    /// A capture forbids such calls on all threads; a thread is forbidden them by all captures.
    #[default]
    Global,
    /// Only on the capture's own thread.
    ThreadLocal,
    /// Not at all.
    Relaxed,
}

impl CaptureMode {
    /// The mode by its number in the API.
    pub fn new(number: u32) -> Option<CaptureMode> {
        [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed].get(number as usize).copied()
    }
}

/// The thread that makes a call, and its mode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// Number of the thread.
    pub thread: u64,
    /// The mode that it set.
    pub mode: CaptureMode,
}

/// A capture under way.
struct Sequence {
    origin: StreamId,
    graph: Target,
    mode: CaptureMode,
    thread: u64,
    valid: bool,
    purpose: Purpose,
}

/// Where a capture leads to.
pub(crate) enum Purpose {
    /// To a graph that gets what is captured.
    Fill,
    /// To a graph that was captured before: these of its nodes come next, and that is asked about those that have changed.
    Again(VecDeque<NodeHandle>, Changed),
    /// To a list of commands of a graphics API, which runs what was captured. Queries do not speak of such a capture.
    Graphics,
}

/// Asked whether a node may become another: which, what it is, and what it is to be.
pub type Changed = Arc<dyn Fn(NodeHandle, &NodeKind, &NodeKind) -> bool + Send + Sync>;

impl Sequence {
    /// Whether the capture forbids `caller` what captures cannot see.
    fn forbids(&self, caller: Caller) -> bool {
        match caller.mode {
            CaptureMode::Relaxed => false,
            _ if self.thread == caller.thread => self.mode != CaptureMode::Relaxed,
            CaptureMode::ThreadLocal => false,
            CaptureMode::Global => self.mode == CaptureMode::Global,
        }
    }
}

/// The graph that a capture fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Its handle.
    pub graph: GraphHandle,
    /// Whether it was the program's before, so that it survives a capture that fails.
    pub is_programs: bool,
}

/// A stream that takes part in a capture.
struct Member {
    stream: Arc<Stream>,
    capture: CaptureId,
    /// The stream's next node comes after these.
    after: Vec<NodeHandle>,
}

/// The facts that a program may ask about a stream's capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureInfo {
    /// Unique in the life of the process.
    pub id: CaptureId,
    /// The graph being filled.
    pub graph: GraphHandle,
    /// Whether nothing has gone wrong yet.
    pub valid: bool,
    /// Where the handles lie of what the stream's next node comes after; good until the stream captures more.
    pub after: u64,
    /// How many these are.
    pub after_count: u64,
}

/// A capture that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The graph that it filled.
    pub target: Target,
    /// The first stream's next node would have come after these.
    pub joined: Vec<NodeHandle>,
    /// The next nodes of all other streams would have come after these.
    pub others: Vec<NodeHandle>,
    /// Whether nothing went wrong.
    pub valid: bool,
    /// Whether each node of the graph was captured, if it was captured again; none if it was not.
    pub is_all_again: Option<bool>,
}

/// All captures of the machine.
#[derive(Default)]
pub(crate) struct Captures {
    sequences: BTreeMap<CaptureId, Sequence>,
    members: HashMap<StreamId, Member>,
}

impl Captures {
    /// Starts to capture on a stream that does not capture yet.
    pub(crate) fn begin(
        &mut self,
        id: CaptureId,
        stream: &Arc<Stream>,
        target: Target,
        (mode, thread): (CaptureMode, u64),
        purpose: Purpose,
        after: Vec<NodeHandle>,
    ) {
        self.sequences.insert(id, Sequence { origin: stream.id, graph: target, mode, thread, valid: true, purpose });
        self.join(id, stream, after);
    }

    /// Makes a stream's next node of a capture come after these.
    pub(crate) fn join(&mut self, capture: CaptureId, stream: &Arc<Stream>, after: Vec<NodeHandle>) {
        let fresh = || Member { stream: Arc::clone(stream), capture, after: Vec::new() };
        let member = self.members.entry(stream.id).or_insert_with(fresh);
        member.after.extend(after);
        member.after.sort_unstable();
        member.after.dedup();
    }

    /// Makes a stream's next node come after this one alone.
    pub(crate) fn advance(&mut self, stream: &Stream, node: NodeHandle) {
        if let Some(member) = self.members.get_mut(&stream.id) {
            member.after = vec![node];
        }
    }

    /// Ends the capture that began on `stream`.
    pub(crate) fn end(&mut self, stream: &Stream, thread: u64) -> Result<Ended> {
        let id = self.members.get(&stream.id).ok_or(Error::ILLEGAL_STATE)?.capture;
        let sequence = self.sequences.get(&id).ok_or(Error::ILLEGAL_STATE)?;
        if sequence.origin != stream.id {
            self.invalidate(id);
            return Err(Error::STREAM_CAPTURE_UNMATCHED);
        }
        if sequence.mode != CaptureMode::Relaxed && sequence.thread != thread {
            return Err(Error::STREAM_CAPTURE_WRONG_THREAD);
        }
        let (target, valid) = (sequence.graph, sequence.valid);
        let is_all_again = match &sequence.purpose {
            Purpose::Again(left, _) => Some(left.is_empty()),
            Purpose::Fill | Purpose::Graphics => None,
        };
        let joined = self.members.remove(&stream.id).map(|member| member.after).unwrap_or_default();
        let others = self.members.values().filter(|member| member.capture == id);
        let others = others.flat_map(|member| member.after.iter().copied()).collect();
        self.remove(id);
        Ok(Ended { target, joined, others, valid, is_all_again })
    }

    /// The capture of `stream`; None if there is none.
    pub(crate) fn info(&self, stream: &Stream) -> Option<CaptureInfo> {
        let member = self.members.get(&stream.id)?;
        let sequence = self.sequences.get(&member.capture)?;
        Some(CaptureInfo {
            id: member.capture,
            graph: sequence.graph.graph,
            valid: sequence.valid,
            after: member.after.as_ptr() as u64,
            after_count: member.after.len() as u64,
        })
    }

    /// Whether what is captured on `stream` is for a graphics API.
    pub(crate) fn is_for_graphics(&self, stream: &Stream) -> bool {
        let sequence = self.members.get(&stream.id).and_then(|member| self.sequences.get(&member.capture));
        sequence.is_some_and(|sequence| matches!(sequence.purpose, Purpose::Graphics))
    }

    /// The next node of a graph that is captured again, if there is one more, and who is asked about it; none if the graph is not.
    pub(crate) fn again(&mut self, id: CaptureId) -> Option<(Option<NodeHandle>, Changed)> {
        match &mut self.sequences.get_mut(&id)?.purpose {
            Purpose::Again(left, changed) => Some((left.pop_front(), Arc::clone(changed))),
            Purpose::Fill | Purpose::Graphics => None,
        }
    }

    /// The nodes that the next node on `stream` comes after.
    pub(crate) fn after(&self, stream: &Stream) -> Vec<NodeHandle> {
        self.members.get(&stream.id).map(|member| member.after.clone()).unwrap_or_default()
    }

    /// The capture that work on `stream` belongs to. Work on a legacy default stream belongs to none, and
    /// breaks those that it would have to wait for.
    pub(crate) fn of(&mut self, stream: &Stream) -> Result<Option<CaptureInfo>> {
        if stream.role == Role::Legacy && self.implied_by(stream.context) {
            self.invalidate_where(|member| is_implied(&member.stream, stream.context));
            return Err(Error::STREAM_CAPTURE_IMPLICIT);
        }
        match self.info(stream) {
            Some(info) if !info.valid => Err(Error::STREAM_CAPTURE_INVALIDATED),
            other => Ok(other),
        }
    }

    /// Whether the legacy default stream of a context would have to wait for a stream that captures.
    pub(crate) fn implied_by(&self, context: ContextId) -> bool {
        self.members.values().any(|member| is_implied(&member.stream, context))
    }

    /// Whether a capture is under way and nothing has gone wrong with it.
    pub(crate) fn is_valid(&self, id: CaptureId) -> Option<bool> {
        self.sequences.get(&id).map(|sequence| sequence.valid)
    }

    /// Whether a capture under way fills that graph.
    pub(crate) fn fills(&self, graph: GraphHandle) -> bool {
        self.sequences.values().any(|sequence| sequence.graph.graph == graph)
    }

    /// A capture that something went wrong with ends without a graph.
    pub(crate) fn invalidate(&mut self, id: CaptureId) {
        if let Some(sequence) = self.sequences.get_mut(&id) {
            sequence.valid = false;
        }
    }

    /// Refuses what a capture cannot see; breaks the captures for which it is refused.
    pub(crate) fn refuse_unseen(&mut self, caller: Caller) -> Result<()> {
        self.refuse_unseen_in(caller, |_| true)
    }

    /// Refuses work that captures in these contexts cannot see; breaks the captures for which it is refused.
    pub(crate) fn refuse_unseen_in(&mut self, caller: Caller, concerns: impl Fn(ContextId) -> bool) -> Result<()> {
        let mut refused = false;
        let Self { sequences, members } = self;
        let is_there = |id: CaptureId| members.values().any(|it| it.capture == id && concerns(it.stream.context));
        for (_, sequence) in sequences.iter_mut().filter(|(id, sequence)| sequence.forbids(caller) && is_there(**id)) {
            sequence.valid = false;
            refused = true;
        }
        if refused { Err(Error::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Refuses what no stream can do that captures; breaks the captures of streams for which it is refused.
    pub(crate) fn refuse_on(&mut self, refused: impl Fn(&Stream) -> bool) -> Result<()> {
        if self.members.values().any(|member| refused(&member.stream)) {
            self.invalidate_where(|member| refused(&member.stream));
            return Err(Error::STREAM_CAPTURE_UNSUPPORTED);
        }
        Ok(())
    }

    /// Whether any stream captures.
    pub(crate) fn is_any(&self) -> bool {
        !self.members.is_empty()
    }

    /// Forgets streams that have gone, and captures that began on one; tells what these were filling.
    pub(crate) fn forget(&mut self, gone: impl Fn(&Stream) -> bool) -> Vec<Target> {
        self.invalidate_where(|member| gone(&member.stream));
        self.members.retain(|_, member| !gone(&member.stream));
        let orphans = self.sequences.iter().filter(|(_, sequence)| !self.members.contains_key(&sequence.origin));
        let (ids, targets): (Vec<_>, Vec<_>) = orphans.map(|(id, sequence)| (*id, sequence.graph)).unzip();
        ids.into_iter().for_each(|id| self.remove(id));
        targets
    }

    fn invalidate_where(&mut self, affected: impl Fn(&Member) -> bool) {
        let ids: Vec<_> =
            self.members.values().filter(|member| affected(member)).map(|member| member.capture).collect();
        ids.into_iter().for_each(|id| self.invalidate(id));
    }

    fn remove(&mut self, id: CaptureId) {
        self.sequences.remove(&id);
        self.members.retain(|_, member| member.capture != id);
    }
}

fn is_implied(stream: &Stream, context: ContextId) -> bool {
    stream.context == context && stream.role == Role::Blocking
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::StreamHandle;

    const RELAXED: Caller = Caller { thread: 1, mode: CaptureMode::Relaxed };
    const LOCAL: Caller = Caller { thread: 1, mode: CaptureMode::ThreadLocal };
    const GLOBAL: Caller = Caller { thread: 1, mode: CaptureMode::Global };

    fn stream(role: Role) -> Arc<Stream> {
        Stream::new(StreamHandle(1), ContextId(1), role, 0)
    }

    fn capturing(mode: CaptureMode, thread: u64) -> (Captures, Arc<Stream>) {
        let (mut captures, stream) = (Captures::default(), stream(Role::Blocking));
        let target = Target { graph: GraphHandle(1), is_programs: false };
        captures.begin(CaptureId(1), &stream, target, (mode, thread), Purpose::Fill, Vec::new());
        (captures, stream)
    }

    #[test]
    fn refuse_unseen_by_modes_of_capture_and_caller() {
        use CaptureMode::{Global, Relaxed, ThreadLocal};
        let refused = |mode, thread, caller| capturing(mode, thread).0.refuse_unseen(caller).is_err();
        for (mode, own, others) in [(Global, true, true), (ThreadLocal, true, false), (Relaxed, false, false)] {
            assert_eq!(refused(mode, 1, GLOBAL), own, "{mode:?}");
            assert_eq!(refused(mode, 1, LOCAL), own, "{mode:?}");
            assert_eq!(refused(mode, 2, GLOBAL), others, "{mode:?}");
            assert!(!refused(mode, 2, LOCAL) && !refused(mode, 1, RELAXED), "{mode:?}");
        }
    }

    #[test]
    fn refused_capture_is_broken_and_ends_without_a_graph() {
        let (mut captures, stream) = capturing(CaptureMode::Global, 1);
        captures.refuse_unseen(GLOBAL).unwrap_err();
        assert_eq!(captures.of(&stream).unwrap_err(), Error::STREAM_CAPTURE_INVALIDATED);
        assert!(!captures.end(&stream, 1).unwrap().valid);
        assert_eq!(captures.of(&stream), Ok(None));
        assert_eq!(captures.refuse_unseen(GLOBAL), Ok(()));
    }

    #[test]
    fn end_elsewhere_is_refused() {
        let (mut captures, first) = capturing(CaptureMode::ThreadLocal, 1);
        assert_eq!(captures.end(&stream(Role::Blocking), 1).unwrap_err(), Error::ILLEGAL_STATE);
        assert_eq!(captures.end(&first, 2).unwrap_err(), Error::STREAM_CAPTURE_WRONG_THREAD);
        let second = stream(Role::Blocking);
        captures.join(CaptureId(1), &second, vec![NodeHandle(7)]);
        assert_eq!(captures.end(&second, 1).unwrap_err(), Error::STREAM_CAPTURE_UNMATCHED);
        let (mut captures, first) = capturing(CaptureMode::Relaxed, 1);
        assert!(captures.end(&first, 2).unwrap().valid);
    }

    #[test]
    fn legacy_stream_breaks_captures_of_blocking_streams_only() {
        let legacy = stream(Role::Legacy);
        let (mut captures, blocking) = capturing(CaptureMode::Relaxed, 1);
        assert_eq!(captures.of(&legacy).unwrap_err(), Error::STREAM_CAPTURE_IMPLICIT);
        assert_eq!(captures.of(&blocking).unwrap_err(), Error::STREAM_CAPTURE_INVALIDATED);
        let (mut captures, free) = (Captures::default(), stream(Role::NonBlocking));
        let target = Target { graph: GraphHandle(1), is_programs: false };
        captures.begin(CaptureId(1), &free, target, (CaptureMode::Global, 1), Purpose::Fill, Vec::new());
        assert_eq!(captures.of(&legacy), Ok(None));
    }

    #[test]
    fn forget_drops_captures_that_began_there() {
        let (mut captures, stream) = capturing(CaptureMode::Global, 1);
        assert_eq!(captures.forget(|gone| gone.id == stream.id).len(), 1);
        assert_eq!(captures.refuse_unseen(GLOBAL), Ok(()));
    }
}
