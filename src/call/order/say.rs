//! The words for what was found.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use p2pshim_trace::{NoteKind, ORDER_LOST};

use crate::api::abi::Code;
use crate::call::arrival::Caller;
use crate::model::{Finding, Rule};
use crate::policy::ORDER;
use crate::policy::order::{Kind, Level, Queue, Race, Side};
use crate::real::driver;
use crate::record::{self, FindingLine, trace};

/// Says once that accesses were forgotten, with which later ones were not compared.
pub(super) fn say_lost() {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if !IS_SAID.load(Relaxed) && ORDER.has_lost() && !IS_SAID.swap(true, Relaxed) {
        trace::note(NoteKind::Message, 0, &[ORDER_LOST]);
    }
}

pub(super) fn say(race: &Race, caller: Caller) {
    if !ORDER.is_new(race) {
        return;
    }
    let rule = match race.level {
        Level::Race => Rule::OrderRace,
        Level::Possible => Rule::OrderPossibleRace,
        Level::Lifetime => Rule::OrderLifetime,
        Level::Staged => Rule::OrderStaged,
        Level::Enforced => Rule::OrderEnforced,
    };
    let device = race.device.map_or_else(String::new, |device| device.to_string());
    let (start, end) = race.bytes;
    let other = ORDER.of_other(&race.first);
    let side = |side: &Side| [called(side), verb(side.kind).to_owned(), stream(side.queue)];
    let [mut first, second] = [side(&race.first), side(&race.second)];
    if let Some((process, _)) = &other {
        first[2] = format!("a stream of process {process}");
    }
    let order = match race.level {
        Level::Staged => "is ordered before it only because a copy is staged, or its waits are kept",
        Level::Enforced => "was not ordered before it until p2pshim had it wait",
        _ => "is not ordered before it",
    };
    let what = format!(
        "{} bytes from {start:#x} on: it {} them{}, and {}, which {} them{}, {order}",
        end.saturating_sub(start),
        second[1],
        on(&second[2]),
        first[0],
        first[1],
        on(&first[2])
    );
    let finding = Finding { rule, code: None, what, size: None };
    let function = race.second.function;
    let said =
        FindingLine { function, numbering: caller.numbering(function), finding: &finding, ret: Some(Code::SUCCESS) };
    record::log::finding(&said, 1, || None);
    let sites = u32::from(race.first.place.site) << 16 | u32::from(race.second.place.site);
    let bytes = (end.saturating_sub(start)).to_string();
    let strings = [&first[0], &first[1], &first[2], &second[0], &second[1], &second[2], &bytes, &device];
    let at = other.map(|(_, place)| format!("at={place}"));
    let strings = strings.into_iter().chain(&at).map(String::as_str);
    let strings: Vec<&str> = [race.level.name()].into_iter().chain(strings).collect();
    trace::note(NoteKind::Race, sites, &strings);
}

/// The function, and of a launch the kernel.
fn called(side: &Side) -> String {
    let name = side.function.base();
    let is_kernel = matches!(side.kind, Kind::Kernel | Kind::KernelReads);
    let kernel = if is_kernel { driver::kernel_name(side.place.address) } else { None };
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
        Kind::KernelReads => "may read",
        Kind::Frees => "frees",
    }
}

fn stream(queue: Option<Queue>) -> String {
    match queue {
        None => String::new(),
        Some(Queue::Created { handle, .. }) => format!("stream {handle:#x}"),
        Some(Queue::Legacy { .. }) => "the default stream".to_owned(),
        Some(Queue::Node { number }) => format!("node {number} of the graph"),
        Some(Queue::PerThread { .. } | Queue::Foreign { .. }) => "the thread's default stream".to_owned(),
    }
}
