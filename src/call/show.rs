//! A call in the log, and to callbacks.

use std::time::Duration;

use super::arrival::Call;
use super::decision::{Decision, Running};
use super::{callbacks, mode, peers, read};
use crate::api::abi::Code;
use crate::model::{Asks, Path};
use crate::record::{self, Event};

/// Shows a call that has returned: as a line of the log, and keeps it for callbacks.
#[cold]
#[inline(never)]
pub(crate) fn call(
    call: &Call<'_>,
    decision: &Decision,
    running: &Running,
    elapsed: Duration,
    (given, ret): (Code, Code),
    path: Option<Path>,
) {
    let pair = decision.traffic().map(|traffic| (i32::from(traffic.src), i32::from(traffic.dst)));
    let request = &call.request;
    let device = peers::current_device(call);
    mode::unseen(|| {
        callbacks::keep(call, running.depth, (given, ret), (pair, path), elapsed);
        if !record::log::shows_calls() {
            return;
        }
        let arguments = read::arguments(request, ret);
        let is_batch = matches!(request.asks, Asks::Batch { .. }) && ret == Code::SUCCESS;
        let parts = if is_batch { decision.copied.parts() } else { &[] };
        record::log::call(&Event {
            function: call.function(),
            depth: running.depth,
            pair: if parts.is_empty() { pair.or_else(|| read::pair(request)) } else { None },
            arguments: &arguments,
            ret,
            given,
            elapsed,
            device,
            path: path.filter(|_| parts.is_empty()),
            parts,
            note: decision.note(),
            caller: read::call_site(call.caller.return_address(), None),
        });
    });
}
