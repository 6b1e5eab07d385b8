//! The work that is left once a call has returned, and the words for what was found.

use std::ops::Range;

use super::enforce;
use super::memory::memory;
use super::say::{say, say_lost};
use crate::api::abi::Code;
use crate::call::arrival::Caller;
use crate::call::read;
use crate::policy::ORDER;
use crate::policy::order::{Access, Clock, Place, Queue, Race, Submitted};
use crate::real::hip::Library;

/// Something to do once a call has succeeded.
pub(super) enum Then {
    /// An operation was queued.
    Queued {
        submitted: Submitted,
        accesses: Vec<Access>,
        also: Also,
        /// The stream, the place and the HIP, if the event of an edge may have to be recorded.
        mark: Option<((Queue, Place), Option<Library>)>,
    },
    /// The host has waited for that.
    Reaches(Clock),
    Records {
        event: usize,
        queue: Queue,
    },
    RecordsContext {
        event: usize,
        context: Option<usize>,
    },
    Waits {
        queue: Queue,
        event: usize,
    },
    WaitsInContext {
        context: Option<usize>,
        event: usize,
    },
    ForgetsEvent(usize),
    /// The executable graph is where the argument points to.
    Instantiates {
        out: usize,
        races: Vec<Race>,
    },
    /// The handle is where the argument points to.
    SharesEvent {
        event: usize,
        handle: usize,
    },
    /// The event and the handle are where the arguments point to.
    OpensEvent {
        out: usize,
        handle: usize,
    },
    /// Memory was exported. The handle is where the argument points to.
    SharesMemory {
        address: u64,
        handle: usize,
    },
    /// Memory of another process was opened. The address and the handle are where the arguments point to.
    OpensMemory {
        out: usize,
        handle: usize,
    },
    /// The address is where the argument points to.
    Allocates {
        queue: Option<Queue>,
        out: usize,
    },
    /// Memory is gone, for which the host has waited so; none of HIP, which has all accesses in one place.
    Releases {
        memory: Option<Range<u64>>,
        races: Vec<Race>,
        clock: Clock,
    },
    /// The stream is where the argument points to: its handle may have been another's.
    CreatesStream(usize),
    ForgetsContext {
        context: Option<usize>,
        is_reset: bool,
    },
    WaitsForSignal {
        queue: Queue,
        address: Option<u64>,
    },
}

/// The rest of an operation.
pub(super) enum Also {
    Nothing,
    /// The host has waited for it.
    Reaches,
    Signals(Option<u64>),
    Launches(usize),
}

/// Acts once the call has returned.
pub(super) fn finish(then: Then, caller: Caller, ret: Code) {
    let has_succeeded = ret == Code::SUCCESS;
    match then {
        Then::Queued { submitted, accesses, .. } if !has_succeeded => ORDER.withdraw(submitted.stamp, &accesses),
        Then::Queued { submitted, accesses, also, mark } => {
            ORDER.settle(&submitted, &accesses);
            mark.into_iter().for_each(|(mark, library)| enforce::mark(mark, &submitted, library));
            submitted.races.iter().for_each(|race| say(race, caller));
            say_lost();
            match also {
                Also::Nothing => {}
                Also::Reaches => ORDER.reach(&submitted.clock),
                Also::Signals(address) => ORDER.signal(&submitted.clock, address),
                Also::Launches(exec) => ORDER.on_launch(exec, submitted.clock),
            }
        }
        _ if !has_succeeded => {}
        Then::CreatesStream(out) => read::handle_at(out).into_iter().for_each(|handle| ORDER.forget_stream(handle)),
        Then::Reaches(clock) => ORDER.reach(&clock),
        Then::Records { event, queue } => ORDER.record(event, queue),
        Then::RecordsContext { event, context } => ORDER.record_context(event, context),
        Then::Waits { queue, event } => ORDER.wait(queue, event),
        Then::WaitsInContext { context, event } => ORDER.wait_in_context(context, event),
        Then::Instantiates { out, races } => {
            if let Some(exec) = read::handle_at(out) {
                ORDER.instantiated(exec, races);
            }
        }
        Then::ForgetsEvent(event) => ORDER.forget_event(event),
        Then::SharesEvent { event, handle } => {
            read::shared_handle(handle).iter().for_each(|handle| ORDER.share_event(event, handle, true));
        }
        Then::OpensEvent { out, handle } => {
            if let (Some(event), Some(handle)) = (read::handle_at(out), read::shared_handle(handle)) {
                ORDER.share_event(event, &handle, false);
            }
        }
        Then::SharesMemory { address, handle } => {
            if let (Some(found), Some(handle)) = (memory(address), read::shared_handle(handle)) {
                ORDER.share_memory(&found.range, &handle, true);
            }
        }
        Then::OpensMemory { out, handle } => {
            let found = read::handle_at(out).and_then(|address| memory(address as u64));
            if let (Some(found), Some(handle)) = (found, read::shared_handle(handle)) {
                ORDER.share_memory(&found.range, &handle, false);
            }
        }
        Then::Allocates { queue, out } => {
            read::handle_at(out).into_iter().for_each(|address| ORDER.allocated(queue, address as u64));
        }
        Then::Releases { memory, races, clock } => {
            ORDER.reach(&clock);
            memory.iter().for_each(|memory| ORDER.forget_memory(memory));
            races.iter().for_each(|race| say(race, caller));
        }
        Then::ForgetsContext { context, is_reset } => ORDER.forget_context(context, is_reset),
        Then::WaitsForSignal { queue, address } => ORDER.wait_for_signal(queue, address),
    }
}
