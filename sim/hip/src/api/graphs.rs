//! Stream capture and graphs.

use p2psim_core::machine::{DefaultStream, ExecHandle, GraphHandle, StreamRef};
use p2psim_core::{CaptureInfo, CaptureMode, Error, current};

use super::require;
use crate::abi::{Opaque, Out};
use crate::entry::{Gpus, api};
use crate::error::Result;

/// `hipStreamCaptureStatusNone`, `…Active`, `…Invalidated`.
const NOT_CAPTURING: u32 = 0;
const CAPTURING: u32 = 1;
const INVALIDATED: u32 = 2;

fn capture_mode(number: u32) -> Result<CaptureMode> {
    Ok(CaptureMode::new(number).ok_or(Error::INVALID_VALUE)?)
}

/// Stores the status of a stream; what else there is to know only while it captures and nothing went wrong.
fn active_capture(gpus: &Gpus, queue: u64, status: Out<u32>) -> Result<Option<CaptureInfo>> {
    let status = status.required()?;
    let info = gpus.capture_info(gpus.stream(queue)?)?;
    status.set(match info {
        None => NOT_CAPTURING,
        Some(CaptureInfo { valid: true, .. }) => CAPTURING,
        Some(_) => INVALIDATED,
    });
    Ok(info.filter(|info| info.valid))
}

fn instantiate(gpus: &Gpus, exec: Out<u64>, graph: u64) -> Result<()> {
    let exec = exec.required()?;
    exec.set(gpus.instantiate_graph(GraphHandle(graph))?.0);
    Ok(())
}

api! {
    fn hipStreamBeginCapture [gpus] (queue: u64, mode: u32) {
        let stream = gpus.stream(queue)?;
        if stream == StreamRef::Default(DefaultStream::Legacy) {
            return Err(Error::STREAM_CAPTURE_UNSUPPORTED.into());
        }
        Ok(gpus.begin_capture(stream, capture_mode(mode)?, None)?)
    }

    fn hipStreamEndCapture [gpus] (queue: u64, graph: Out<u64>) {
        let graph = graph.required()?;
        let ended = gpus.end_capture(gpus.stream(queue)?);
        graph.set(ended.map_or(0, |handle| handle.0));
        Ok(ended.map(drop)?)
    }

    fn hipStreamIsCapturing [gpus] (queue: u64, status: Out<u32>) {
        active_capture(gpus, queue, status).map(drop)
    }

    fn hipStreamGetCaptureInfo [gpus] (queue: u64, status: Out<u32>, id: Out<u64>) {
        if let Some(info) = active_capture(gpus, queue, status)? {
            id.set(info.id.0);
        }
        Ok(())
    }

    fn hipThreadExchangeStreamCaptureMode [_gpus] (mode: Out<u32>) {
        let wanted = capture_mode(mode.required()?.get())?;
        mode.set(current::exchange_capture_mode(wanted) as u32);
        Ok(())
    }

    fn hipGraphCreate [gpus] (graph: Out<u64>, flags: u32) {
        let graph = graph.required()?;
        require(flags == 0)?;
        graph.set(gpus.create_graph().0);
        Ok(())
    }

    fn hipGraphDestroy [gpus] (graph: u64) {
        require(graph != 0)?;
        Ok(gpus.destroy_graph(GraphHandle(graph)).map_err(|_| Error::ILLEGAL_STATE)?)
    }

    fn hipGraphGetNodes [gpus] (graph: u64, nodes: Out<u64>, count: Out<u64>) {
        let all = gpus.graph_nodes(GraphHandle(graph))?;
        let count = count.required()?;
        let room = if nodes.address() == 0 { 0 } else { count.get() as usize };
        all.iter().take(room).enumerate().for_each(|(index, node)| nodes.set_nth(index, node.0));
        count.set(all.len() as u64);
        Ok(())
    }

    fn hipGraphInstantiate [gpus] (exec: Out<u64>, graph: u64, _bad: Opaque, _log: Opaque, _room: u64) {
        instantiate(gpus, exec, graph)
    }

    fn hipGraphInstantiateWithFlags [gpus] (exec: Out<u64>, graph: u64, flags: u64) {
        require(matches!(flags, 0 | 1 | 8))?;
        instantiate(gpus, exec, graph)
    }

    fn hipGraphExecDestroy [gpus] (exec: u64) { Ok(gpus.destroy_exec(ExecHandle(exec))?) }

    fn hipGraphLaunch [gpus] (exec: u64, queue: u64) {
        let stream = gpus.stream(queue)?;
        Ok(gpus.launch_graph(ExecHandle(exec), stream)?)
    }
}
