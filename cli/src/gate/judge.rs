//! Whether runs keep to a condition; and if not, the worst offender, how much there is of it, and what to do.

use std::collections::BTreeMap;
use std::ffi::OsString;

use p2pshim_host::config::{Config, Order};
use p2pshim_trace::{Class, ORDER_LOST, Path as Taken, Why};

use super::condition::{Condition, What};
use crate::judge::{Level, Row, Sentence, evaluate};
use crate::report::broken;
use crate::report::model::{Error, File, Finding, Pair, Path, Report, Sampled};
use crate::report::order;
use crate::report::term::{bytes, count, counted};
use crate::report::traffic::COUNTED_ANEW;

/// The size from which on a copy is large, as a power of two.
const LARGE: u32 = 20;

/// The rows about a condition. A note is about runs that keep to it; a condition that cannot be judged is not kept to. `has_bounce` says whether copies
/// by hand have a condition of their own.
fn rows(condition: &Condition, has_bounce: bool) -> [Row<'_, [Report]>; 4] {
    const JUDGEMENT: &str = "judgement";
    let is_staged = matches!(condition.is, What::Staged(_));
    let none = |runs: &[Report]| runs.is_empty().then(|| "nothing was recorded, so it cannot be judged".to_owned());
    let by_hand = move |runs: &[Report]| {
        let went = runs.iter().find_map(went_by_hand).filter(|_| is_staged && !has_bounce);
        went.map(|went| format!("{went}: `--fail-on bounce` checks that."))
    };
    let broken = |runs: &[Report]| runs.iter().find_map(|run| broken(&condition.is, run));
    [
        Row::new(Level::Bad, "nothing recorded", none).one_of(JUDGEMENT),
        Row::new(Level::Bad, "not kept to", broken).one_of(JUDGEMENT),
        Row::new(Level::Bad, "not known", |runs: &[Report]| runs.iter().find_map(unknown)).one_of(JUDGEMENT),
        Row::new(Level::Note, "by hand", by_hand).one_of(JUDGEMENT),
    ]
}

/// Why runs do not keep to a condition, of the first run that does not; or else what is to be known of those that do.
pub(super) fn judge(condition: &Condition, has_bounce: bool, runs: &[Report]) -> Option<Sentence> {
    evaluate(&rows(condition, has_bounce), runs).into_iter().next()
}

/// Why one run does not.
fn broken(condition: &What, run: &Report) -> Option<String> {
    match condition {
        What::Staged(most) => staged(run, *most),
        What::Bounce => bounce(run),
        What::Hazard => finding(run, |it| it.severity == "hazard"),
        What::Error => failed(run).or_else(|| finding(run, |it| it.severity == "error")),
        What::Finding(None) => finding(run, |it| it.severity != "note"),
        What::Finding(Some(id)) => finding(run, |it| it.rule == *id),
        What::Unverified => unverified(run),
        What::Slow(least) => slow(run, *least),
        What::Race => unordered(run, &["race", "lifetime"]),
        What::PossibleRace => unordered(run, &["race", "lifetime", "possible race"]),
    }
}

/// Accesses that nothing orders. If order was not checked, nothing is known of them.
fn unordered(run: &Report, levels: &[&str]) -> Option<String> {
    let is_checked = |file: &File| {
        let variables = file.variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        Config::order_of(variables) != Order::Off
    };
    if run.files.iter().any(|file| !is_checked(file)) {
        return Some("order was not checked: run it with --order".to_owned());
    }
    if run.filter.is_some() {
        return Some("races have no pair, rank or time to filter by: leave the filter out".to_owned());
    }
    let all: Vec<_> = run.races.iter().filter(|race| levels.contains(&race.level.as_str())).collect();
    let is_partial = |file: &File| file.problems.iter().any(|problem| problem == ORDER_LOST);
    let Some(first) = all.first() else {
        return run.files.iter().any(is_partial).then(|| format!("not all is known: {ORDER_LOST}"));
    };
    let others = match all.len() {
        1 => String::new(),
        more => format!(", and {} of places", counted(more as u64 - 1, "other pair")),
    };
    Some(format!("{}: {}{others}", first.level, order::pair(first)))
}

/// Why nothing can be said for sure.
fn unknown(run: &Report) -> Option<String> {
    let gaps = || run.gaps.join("; ");
    run.is_at_least().then(|| {
        let more = if run.files.iter().any(|file| file.dropped > 0) {
            ". P2PSHIM_TRACE_LIMIT makes room for more"
        } else {
            ""
        };
        format!("not all is known: {}{more}", gaps())
    })
}

/// Pairs of two GPUs.
fn pairs(run: &Report) -> impl Iterator<Item = &Pair> {
    run.pairs.iter().filter(|pair| pair.src != pair.dst)
}

fn name(run: &Report, pair: &Pair) -> String {
    format!("{} > {}", run.label(pair.src), run.label(pair.dst))
}

/// Pairs with those of their paths that are meant, of which something was copied; the most bytes first.
fn paths(run: &Report, is_meant: impl Fn(&Pair, &Path) -> bool) -> Vec<(&Pair, &Path)> {
    let all = pairs(run).flat_map(|pair| pair.paths.iter().map(move |path| (pair, path)));
    let mut all: Vec<_> = all.filter(|(pair, path)| path.bytes > 0 && is_meant(pair, path)).collect();
    all.sort_by_key(|(_, path)| std::cmp::Reverse(path.bytes));
    all
}

/// `1.0 MB in 3 copies`.
fn sum(all: &[(&Pair, &Path)]) -> String {
    let copies = all.iter().map(|(_, path)| path.calls).sum::<u64>();
    let copies = if copies == 1 { "1 copy".to_owned() } else { format!("{} copies", count(copies)) };
    format!("{} in {copies}", bytes(total(all)))
}

fn total(all: &[(&Pair, &Path)]) -> u64 {
    all.iter().map(|(_, path)| path.bytes).fold(0, u64::saturating_add)
}

/// `GPU 0 > GPU 1`, or with the word that there are others.
fn most(run: &Report, all: &[(&Pair, &Path)]) -> String {
    let Some((first, _)) = all.first() else { return String::new() };
    let is_alone = all.iter().all(|(pair, _)| (pair.src, pair.dst) == (first.src, first.dst));
    format!("{}{}", if is_alone { "" } else { "most of it " }, name(run, first))
}

/// Where most copies of a pair came from, if a line of Python or a caller is known.
fn place(pair: &Pair) -> String {
    let site = pair.sites.iter().max_by_key(|site| site.calls);
    let line = site.and_then(|site| site.lines.first()).map(|it| it.line.to_string());
    let caller = || Some(site?.callers.first()?.caller.clone());
    line.or_else(caller).map(|place| format!(", from {place}")).unwrap_or_default()
}

fn staged(run: &Report, most_bytes: u64) -> Option<String> {
    let is_meant = |pair: &Pair, path: &Path| match path.taken.class() {
        Class::StartUp => {
            path.taken.path == Some(Taken::Staged(Why::NotYetWorth)) && run.repeats_first([pair.src, pair.dst])
        }
        class => class.is_staged(),
    };
    let all = paths(run, is_meant);
    let (pair, path) = *all.first().filter(|_| total(&all) > most_bytes)?;
    let why = path.taken.why().map(|why| format!(" ({why})")).unwrap_or_default();
    let remedy = match path.taken.class() {
        Class::StartUp => COUNTED_ANEW,
        _ => path.taken.remedy().unwrap_or_default(),
    };
    Some(format!("{} were staged, {}{why}{}. {remedy}", sum(&all), most(run, &all), place(pair)))
}

fn bounce(run: &Report) -> Option<String> {
    let remedy = Taken::ByHand.remedy();
    if let Some(by_hand) = went_by_hand(run) {
        return Some(format!("{by_hand}. {remedy}"));
    }
    // Equal sizes are a sign; whether the bytes were the same is not known.
    let differ = |pair: &Pair| {
        run.by_hand.iter().any(|it| (it.src, it.dst) == (pair.src, pair.dst) && it.sampled == Sampled::Differ)
    };
    let all = paths(run, |pair, path| path.taken.class() == Class::ByHand && !differ(pair));
    all.first()?;
    Some(format!(
        "{} went to the host and as many bytes from there to another GPU, {}: p2pshim did not compare these bytes, so \
         it cannot be judged. {remedy}",
        sum(&all),
        most(run, &all)
    ))
}

fn went_by_hand(run: &Report) -> Option<String> {
    let all = paths(run, |pair, path| path.taken.class() == Class::ByHand && run.is_surely_by_hand(pair));
    all.first()?;
    Some(format!("{} went through the host by the program's own copies, {}", sum(&all), most(run, &all)))
}

fn finding(run: &Report, is_meant: impl Fn(&Finding) -> bool) -> Option<String> {
    let all: Vec<&Finding> = run.findings.iter().filter(|finding| is_meant(finding)).collect();
    let first = all.first()?;
    let at = first.sites.first().map(|site| format!(" at {}", site.from.in_short())).unwrap_or_default();
    let others = match all.len() {
        1 => String::new(),
        more => format!(", and {}", counted(more as u64 - 1, "other finding")),
    };
    let (rule, severity) = (&first.rule, &first.severity);
    Some(format!(
        "{severity} {rule} in at least {}{at}{others}. `p2pshim explain {rule}` says what to do",
        counted(first.count, "call")
    ))
}

fn failed(run: &Report) -> Option<String> {
    let all: Vec<&Error> = run.errors.iter().filter(|error| !error.is_expected()).collect();
    let first = all.first()?;
    let code = first.name.clone().unwrap_or_else(|| first.code.to_string());
    let at = first.sites.first().map(|site| format!(" at {}", site.from.in_short())).unwrap_or_default();
    let calls = all.iter().map(|error| error.count).fold(0, u64::saturating_add);
    let first = format!("{} with {code}{at}", first.function);
    let what = if calls == 1 {
        format!("a call failed, {first}")
    } else {
        format!("{} calls failed, such as {first}", count(calls))
    };
    Some(format!("{what}. `p2pshim explain {code}` says when that is returned"))
}

fn unverified(run: &Report) -> Option<String> {
    if let Some(wrong) = broken::wrong_through_host(run) {
        return Some(format!("{wrong}. `p2pshim doctor` shows more"));
    }
    let all = paths(run, |pair, path| path.taken.class() == Class::Direct && (pair.is_blocked || !run.is_tested(pair)));
    let (pair, _) = all.first()?;
    let (how, remedy) = match pair.is_blocked {
        true => (
            "although the pair failed verification",
            "Run it with P2PSHIM_ACCESS=off, or with P2PSHIM_DENY for the pair",
        ),
        false => (
            "and the pair was not verified",
            "Without P2PSHIM_ACCESS=app and P2PSHIM_VERIFY=off p2pshim verifies pairs first; `p2pshim doctor` tests all",
        ),
    };
    Some(format!("{} were direct, {}, {how}. {remedy}", sum(&all), most(run, &all)))
}

/// Bytes and nanoseconds of large copies of a pair, and how many of them there are and were timed.
#[derive(Default)]
struct Large {
    bytes: f64,
    nanos: f64,
    calls: u64,
    timed: u64,
}

/// Pairs whose large copies are too slow. Copies of a path and size that were not timed take as long as those that were.
fn slow(run: &Report, least: f64) -> Option<String> {
    let mut all: BTreeMap<[usize; 2], Large> = BTreeMap::new();
    let is_meant = |class: Class| !matches!(class, Class::StartUp | Class::ByHand | Class::Host | Class::SameDevice);
    for share in run.shares.iter().filter(|it| it.power >= LARGE && is_meant(it.path.taken.class())) {
        let (path, large) = (&share.path, all.entry(share.pair).or_default());
        large.calls += path.calls;
        large.timed += path.device_calls;
        if path.device_bytes > 0 {
            large.bytes += path.bytes as f64;
            large.nanos += path.bytes as f64 / path.device_bytes as f64 * path.device_ns as f64;
        }
    }
    all.retain(|_, large| large.calls > 0);
    let timed = all.iter().filter(|(_, large)| large.nanos > 0.0);
    let mut rates: Vec<_> = timed.map(|(pair, large)| (large.bytes / large.nanos, pair, large)).collect();
    rates.sort_by(|(one, ..), (other, ..)| one.total_cmp(other));
    let untimed = all.iter().find(|(_, large)| large.nanos <= 0.0).map(|(pair, _)| pair);
    let label = |[src, dst]: &[usize; 2]| format!("{} > {}", run.label(*src), run.label(*dst));
    match (rates.first(), untimed) {
        (Some((rate, pair, large)), _) if *rate < least => Some(format!(
            "copies of at least 1 MiB {} made {rate:.1} GB/s ({} of {} timed). `p2pshim doctor` measures what the pair can do",
            label(pair),
            count(large.timed),
            count(large.calls)
        )),
        (_, Some(pair)) => Some(format!(
            "no copy of at least 1 MiB {} was timed. Copies that are synchronous or on the legacy default stream cannot be timed; P2PSHIM_GPU_TIMING=all times all others",
            label(pair)
        )),
        (None, None) => Some("no copy of at least 1 MiB was seen, so no rate is known".to_owned()),
        _ => None,
    }
}
