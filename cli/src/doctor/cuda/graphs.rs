//! Graphs, which not every driver has.

use super::{Driver, Event, Result, Stream};
use std::ffi::{c_int, c_uint, c_ulonglong};

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: other threads test other pairs meanwhile.
const RELAXED: c_uint = 2;

functions! {
    cuStreamBeginCapture_v2(usize, c_uint);
    cuStreamEndCapture(usize, *mut usize);
    cuStreamWaitEvent(usize, usize, c_uint);
    cuGraphInstantiateWithFlags(*mut usize, usize, c_ulonglong);
    cuGraphLaunch(usize, usize);
    cuGraphExecDestroy(usize);
    cuGraphDestroy(usize);
}

/// A graph that is ready to run.
#[derive(Clone, Copy, Debug)]
pub(in crate::doctor) struct Graph(usize);

impl Driver {
    /// Captures what `work` does on a stream of the context that is current, and on others that join it, as a graph.
    pub(in crate::doctor) fn capture(&self, stream: Stream, work: impl FnOnce() -> Result<()>) -> Result<Graph> {
        call_optional!(self, graphs.cuStreamBeginCapture_v2(stream.0, RELAXED))?;
        let worked = work();
        let (mut graph, mut ready) = (0, 0);
        // The stream captures until then, whatever went wrong.
        let ended = call_optional!(self, graphs.cuStreamEndCapture(stream.0, &mut graph));
        worked.and(ended)?;
        let instantiated = call_optional!(self, graphs.cuGraphInstantiateWithFlags(&mut ready, graph, 0));
        call_optional!(self, graphs.cuGraphDestroy(graph))?;
        instantiated.map(|()| Graph(ready))
    }

    /// Runs it once more on a stream.
    pub(in crate::doctor) fn replay(&self, graph: Graph, stream: Stream) -> Result<()> {
        call_optional!(self, graphs.cuGraphLaunch(graph.0, stream.0))
    }

    /// Gives it back.
    pub(in crate::doctor) fn destroy_graph(&self, graph: Graph) -> Result<()> {
        call_optional!(self, graphs.cuGraphExecDestroy(graph.0))
    }

    /// Has later work of a stream wait for an event.
    pub(in crate::doctor) fn wait_for(&self, stream: Stream, event: Event) -> Result<()> {
        call_optional!(self, graphs.cuStreamWaitEvent(stream.0, event.0, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use cudarc::driver::sys::CUstreamCaptureMode;

    #[test]
    fn signatures_and_numbers_are_those_of_the_vendor() {
        for (symbol, ours, theirs) in signatures() {
            assert_eq!(ours, super::super::tests::plain(theirs), "{symbol}");
        }
        assert_eq!(RELAXED, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as c_uint);
    }
}
