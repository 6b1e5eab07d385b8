//! Calls about executable graphs: what their copies need before they are instantiated, and what each copies.

use super::{mode, read, thread};
use crate::api::Function;
use crate::api::abi::{Code, Value};
use crate::objects::captures;
use crate::policy::waits::Stream;
use crate::policy::{ACCESS, GRAPHS, WAITS, graph};
use crate::real::driver::RealDriver;

/// A graph is about to be instantiated: its copies keep for ever the path that they get now.
#[cold]
pub(super) fn before_instantiation(graph: usize, rest: &[Value]) {
    mode::unseen(|| {
        let thread = thread::id();
        GRAPHS.prepare(&ACCESS, &RealDriver, graph, (thread, captures::is_capturing(thread)));
        if !is_for_devices(rest) {
            GRAPHS.mark((&WAITS, &RealDriver), graph, thread);
        }
    });
}

/// Whether a graph is instantiated such that kernels may launch it: by its flags, or by what its parameters begin with. Such a graph
/// records no events.
fn is_for_devices(rest: &[Value]) -> bool {
    /// `CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`.
    const DEVICE_LAUNCH: u64 = 4;
    let flags = match *rest {
        [Value::UInt(flags)] => Some(flags),
        [Value::Address(parameters)] => read::word_at(parameters).map(|flags| flags as u64),
        _ => None,
    };
    flags.is_some_and(|flags| flags & DEVICE_LAUNCH != 0)
}

/// An executable graph is about to be updated with a graph, which lacks the nodes that record events.
#[cold]
pub(super) fn before_update(exec: usize, graph: usize) {
    if GRAPHS.are_there() {
        mode::unseen(|| GRAPHS.mark_update(&RealDriver, exec, graph, thread::id()));
    }
}

/// The update was made, or refused. The node that it names as the reason must not be one of ours, which are gone.
#[cold]
pub(super) fn after_update(function: Function, [exec, graph, output]: [usize; 3], has_succeeded: bool) {
    // Where nodes are named: by itself, or in a `CUgraphExecUpdateResultInfo`.
    let places: &[usize] = if function == Function::cuGraphExecUpdate { &[0] } else { &[8, 16] };
    mode::unseen(|| {
        let marks = GRAPHS.unmark_update(&RealDriver, thread::id());
        if has_succeeded || output == 0 || marks.is_empty() {
            return;
        }
        for place in places.iter().map(|offset| output + offset) {
            if read::word_at(place).is_some_and(|node| marks.contains(&node)) {
                // SAFETY: the real function has just written there.
                unsafe { (place as *mut usize).write_unaligned(0) };
            }
        }
    });
    if has_succeeded {
        on_graph_change(exec, Some(graph::Change::Whole { graph }));
    }
}

#[cold]
pub(super) fn on_instantiation(exec: usize, ret: Code) {
    mode::unseen(|| {
        let exec = if ret == Code::SUCCESS { read::handle_at(exec) } else { None };
        GRAPHS.instantiated((&ACCESS, &WAITS, &RealDriver), exec, thread::id());
    });
}

/// An executable graph is about to be destroyed. Not only when it is: by then another thread may have been given the handle anew.
pub(super) fn on_exec_destroy(exec: usize) {
    if GRAPHS.are_there() {
        mode::unseen(|| {
            WAITS.on_stream_destroy(&RealDriver, Stream::Graph(exec));
            GRAPHS.destroyed(&ACCESS, exec);
        });
    }
}

/// A node of an executable graph has other parameters, or was enabled or disabled.
pub(super) fn on_graph_node(exec: usize, node: usize, to: Value, function: Function) {
    on_graph_change(
        exec,
        match to {
            Value::Driver3D(parameters) => read::memcpy_node(node, parameters),
            Value::Address(parameters) if function == Function::cuGraphExecNodeSetParams => {
                read::graph_node(node, parameters)
            }
            Value::Address(graph) => Some(graph::Change::Child { node, graph }),
            Value::UInt(enabled) => Some(graph::Change::Enabled { node, is_enabled: enabled != 0 }),
            _ => None,
        },
    );
}

#[cold]
fn on_graph_change(exec: usize, change: Option<graph::Change>) {
    mode::unseen(|| {
        if let Some(change) = change {
            _ = GRAPHS.changed(&ACCESS, &RealDriver, exec, change);
        }
    });
}
