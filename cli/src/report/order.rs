//! Accesses to memory that nothing orders: what `p2pshim run --order` finds.

use super::model::{Race, RaceSide, Report, Suppressed};
use super::sentence::{Level, NAMED, Sentence};
use super::symbols::UNKNOWN;
use super::term::{bytes, count, counted};

/// The findings that a race has too: its sentence says more.
pub(super) const RULES: [&str; 5] =
    ["P2P-race", "P2P-possible-race", "P2P-lifetime", "P2P-ordered-by-staging", "P2P-order-enforced"];

const RACE: &str = "Race";
const LIFETIME: &str = "Freed too early";
const POSSIBLE: &str = "Possible race";
const ENFORCED: &str = "Wait added";
const STAGED: &str = "Ordered by staging";
const SUPPRESSED: &str = "Suppressed";

/// The sentences: of each kind the first pairs of places.
pub(super) fn sentences(report: &Report) -> Vec<Sentence> {
    let kinds = [
        ("race", RACE, Level::Bad, NAMED),
        ("lifetime", LIFETIME, Level::Bad, NAMED),
        ("possible race", POSSIBLE, Level::Warn, 1),
        ("enforced", ENFORCED, Level::Warn, NAMED),
        ("ordered by staging", STAGED, Level::Note, 1),
    ];
    let mut said = Vec::new();
    for (kind, word, level, named) in kinds {
        let races: Vec<&Race> = report.races.iter().filter(|race| race.level == kind).collect();
        said.extend(races.iter().take(named).map(|race| sentence(report, race, (word, level))));
        if let Some(last) = said.last_mut()
            && let Some(more @ 1..) = races.len().checked_sub(named)
        {
            let remedy = last.more.take().unwrap_or_default();
            last.more = Some(format!("{remedy} {} of this kind in the list.", counted(more as u64, "more pair")));
        }
    }
    said.extend(suppressed(report));
    said
}

/// How many races are left out, and why.
fn suppressed(report: &Report) -> Option<Sentence> {
    let pairs = report.suppressed.iter().map(|it| it.pairs).sum::<u64>();
    let by = |it: &Suppressed| format!("{} by `{}` ({})", count(it.pairs), it.by, it.reason);
    let by: Vec<_> = report.suppressed.iter().map(by).collect();
    let text = format!("Suppressed: {} of places without order: {}.", counted(pairs, "pair"), by.join(", "));
    (pairs > 0).then(|| Sentence::new(Level::Note, SUPPRESSED, text))
}

fn sentence(report: &Report, race: &Race, (word, level): (&'static str, Level)) -> Sentence {
    let Race { first, second, .. } = race;
    let gpu = race.gpu.map(|gpu| format!(" on {}", report.label(gpu))).unwrap_or_default();
    let order = match word {
        STAGED => {
            "and the two are ordered only because a copy is staged, or because p2pshim keeps its waits: a race once the program enables peer access"
        }
        ENFORCED => "and p2pshim has made the later access wait for the earlier one: the program does not",
        _ => "and nothing orders the two",
    };
    let text = format!(
        "{word}: {} {} {}{gpu} that {} {}, {order}.",
        on_stream(second),
        second.verb,
        bytes(race.bytes),
        on_stream(first),
        first.verb,
    );
    Sentence::new(level, word, text).more(remedy(race)).section("races")
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
