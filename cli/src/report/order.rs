//! Accesses to memory that nothing orders: what `p2pshim run --order` finds.

use super::model::{Race, RaceSide, Report, Suppressed};
use super::symbols::UNKNOWN;
use super::term::{bytes, count, counted};
use crate::judge::Words;

/// The findings that a race has too: its sentence says more.
pub(super) const RULES: [&str; 5] =
    ["P2P-race", "P2P-possible-race", "P2P-lifetime", "P2P-ordered-by-staging", "P2P-order-enforced"];

/// The sentences about races of a level: the first pairs of places.
pub(super) fn of_level(report: &Report, level: &str, named: usize) -> Vec<Words> {
    let races: Vec<&Race> = report.races.iter().filter(|race| race.level == level).collect();
    let mut said: Vec<Words> = races.iter().take(named).map(|race| words(report, race)).collect();
    if let Some(more @ 1..) = races.len().checked_sub(named) {
        let last = said.pop();
        said.extend(last.map(|it| it.and(&format!("{} of this kind in the list.", counted(more as u64, "more pair")))));
    }
    said
}

/// How many races are left out, and why.
pub(super) fn suppressed(report: &Report) -> Option<String> {
    let pairs = report.suppressed.iter().map(|it| it.pairs).sum::<u64>();
    let by = |it: &Suppressed| format!("{} by `{}` ({})", count(it.pairs), it.by, it.reason);
    let by: Vec<_> = report.suppressed.iter().map(by).collect();
    let text = format!("Suppressed: {} of places without order: {}.", counted(pairs, "pair"), by.join(", "));
    (pairs > 0).then_some(text)
}

fn words(report: &Report, race: &Race) -> Words {
    let Race { level, first, second, .. } = race;
    let gpu = race.gpu.map(|gpu| format!(" on {}", report.label(gpu))).unwrap_or_default();
    const NO_ORDER: &str = "and nothing orders the two";
    let (word, order) = match level.as_str() {
        "ordered by staging" => (
            "Ordered by staging",
            "and the two are ordered only because a copy is staged, or because p2pshim keeps its waits: a race once the program enables peer access",
        ),
        "enforced" => {
            ("Wait added", "and p2pshim has made the later access wait for the earlier one: the program does not")
        }
        "lifetime" => ("Freed too early", NO_ORDER),
        "possible race" => ("Possible race", NO_ORDER),
        _ => ("Race", NO_ORDER),
    };
    let text = format!(
        "{word}: {} {} {}{gpu} that {} {}, {order}.",
        on_stream(second),
        second.verb,
        bytes(race.bytes),
        on_stream(first),
        first.verb,
    );
    Words::from(text).more(remedy(race))
}

/// Whether both accesses are those of nodes of one graph.
pub(crate) fn are_nodes(race: &Race) -> bool {
    race.second.stream.starts_with("node ")
}

/// The missing edge in words.
pub(super) fn remedy(race: &Race) -> String {
    let Race { level, first, second, .. } = race;
    let layer = if second.function.starts_with("hip") { "hip" } else { "cuda" };
    if are_nodes(race) {
        return format!(
            "Add an edge between {} and {} ({layer}GraphAddDependencies); in a capture, let the stream of one wait for the other's ({layer}StreamWaitEvent).",
            first.stream, second.stream
        );
    }
    if second.stream.is_empty() {
        return format!("Wait for {} before {} ({layer}StreamSynchronize).", named(first), call(second));
    }
    let doubt = match level.as_str() {
        "possible race" => {
            " p2pshim does not see all that may order them: `p2pshim explain P2P-possible-race` says more."
        }
        _ => "",
    };
    format!(
        "Record an event on {} behind {}, and have {} wait for it before {} ({layer}StreamWaitEvent).{doubt}",
        named(first),
        place(first),
        named(second),
        place(second)
    )
}

/// The place of a call, or its function if that is not known.
fn place(side: &RaceSide) -> String {
    let place = side.from.in_short();
    if place.is_empty() || place == UNKNOWN { side.function.clone() } else { place }
}

/// A call with its place in the program.
pub(super) fn call(side: &RaceSide) -> String {
    let place = side.from.in_short();
    if place.is_empty() || place == UNKNOWN { side.function.clone() } else { format!("{} at {place}", side.function) }
}

fn named(side: &RaceSide) -> &str {
    if side.stream.is_empty() { "its stream" } else { &side.stream }
}

/// A call with its place and its stream.
pub(super) fn on_stream(side: &RaceSide) -> String {
    if side.stream.is_empty() { call(side) } else { format!("{} ({})", call(side), side.stream) }
}

/// Both calls.
pub(crate) fn pair(race: &Race) -> String {
    format!("{} and {}", on_stream(&race.first), on_stream(&race.second))
}
