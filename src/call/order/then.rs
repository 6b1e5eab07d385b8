//! The work that is left once a call has returned, and the words for what was found.

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use p2pshim_trace::{NoteKind, ORDER_LOST};

use crate::api::abi::Code;
use crate::call::arrival::Caller;
use crate::call::read;
use crate::model::{Finding, Rule};
use crate::policy::ORDER;
use crate::policy::order::{Access, Clock, Kind, Level, Queue, Race, Side, Submitted};
use crate::real::driver;
use crate::record::{self, FindingLine, trace};

/// Something to do once a call has succeeded.
pub(super) enum Then {
    /// An operation was queued.
    Queued {
        submitted: Submitted,
        accesses: Vec<Access>,
        also: Also,
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
    SharesEvent(usize),
    /// The event is where the argument points to.
    OpensEvent(usize),
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
        Then::Queued { submitted, accesses, also } => {
            ORDER.settle(&submitted, &accesses);
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
        Then::ForgetsEvent(event) => ORDER.forget_event(event),
        Then::SharesEvent(event) => ORDER.share_event(event),
        Then::OpensEvent(out) => read::handle_at(out).into_iter().for_each(|event| ORDER.share_event(event)),
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

/// Says once that accesses were forgotten, with which later ones were not compared.
fn say_lost() {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if ORDER.has_lost() && !IS_SAID.swap(true, Relaxed) {
        trace::note(NoteKind::Message, 0, &[ORDER_LOST]);
    }
}

fn say(race: &Race, caller: Caller) {
    if !ORDER.is_new(race) {
        return;
    }
    let rule = match race.level {
        Level::Race => Rule::OrderRace,
        Level::Possible => Rule::OrderPossibleRace,
        Level::Lifetime => Rule::OrderLifetime,
    };
    let device = race.device.map_or_else(String::new, |device| device.to_string());
    let (start, end) = race.bytes;
    let side = |side: &Side| [called(side), verb(side.kind).to_owned(), stream(side.queue)];
    let [first, second] = [side(&race.first), side(&race.second)];
    let what = format!(
        "{} bytes from {start:#x} on: it {} them{}, and {}, which {} them{}, is not ordered before it",
        end.saturating_sub(start),
        second[1],
        on(&second[2]),
        first[0],
        first[1],
        on(&first[2])
    );
    let finding = Finding { rule, code: None, what };
    let function = race.second.function;
    let said =
        FindingLine { function, numbering: caller.numbering(function), finding: &finding, ret: Some(Code::SUCCESS) };
    record::log::finding(&said, 1, || None);
    let sites = u32::from(race.first.place.site) << 16 | u32::from(race.second.place.site);
    let bytes = (end.saturating_sub(start)).to_string();
    let strings = [&first[0], &first[1], &first[2], &second[0], &second[1], &second[2], &bytes, &device];
    let strings: Vec<&str> = [race.level.name()].into_iter().chain(strings.into_iter().map(String::as_str)).collect();
    trace::note(NoteKind::Race, sites, &strings);
}

/// The function, and of a launch the kernel.
fn called(side: &Side) -> String {
    let name = side.function.base();
    let kernel = if side.kind == Kind::Kernel { driver::kernel_name(side.place.address) } else { None };
    kernel.map_or_else(|| name.to_owned(), |kernel| format!("{name} of {kernel}"))
}

fn on(stream: &str) -> String {
    if stream.is_empty() { String::new() } else { format!(" on {stream}") }
}

fn verb(kind: Kind) -> &'static str {
    match kind {
        Kind::Reads => "reads",
        Kind::Writes => "writes",
        Kind::Kernel => "may use",
        Kind::Frees => "frees",
    }
}

fn stream(queue: Option<Queue>) -> String {
    match queue {
        None => String::new(),
        Some(Queue::Created { handle, .. }) => format!("stream {handle:#x}"),
        Some(Queue::Legacy { .. }) => "the default stream".to_owned(),
        Some(Queue::PerThread { .. }) => "the thread's default stream".to_owned(),
    }
}
