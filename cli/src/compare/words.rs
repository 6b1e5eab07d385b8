//! The words of a comparison.

use super::facts::{Ended, Key};
use super::model::{Change, CountRow, Figure, Judged, Side, Spread, Verdict};
use crate::report::term;

/// Changes, and pairs, that a line names.
const NAMED: usize = 3;

/// The path of most of a pair's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MainPath {
    Direct,
    /// So many percent staged.
    Mixed(u8),
    Staged,
    ByHand,
}

impl MainPath {
    /// The part that goes through the host.
    pub(super) fn percent(self) -> u8 {
        match self {
            Self::Direct => 0,
            Self::Mixed(percent) => percent,
            Self::Staged | Self::ByHand => 100,
        }
    }
}

/// The first line: the verdict, and what it rests on.
pub(super) fn first(
    verdict: Verdict,
    changes: &[Change],
    figures: &[Figure],
    why_not: Option<&str>,
    threshold: f64,
    is_other: bool,
) -> String {
    let of = |is: Judged| -> Vec<&str> {
        changes.iter().filter(|change| change.is == is).map(|change| change.text.as_str()).collect()
    };
    let (worse, better, different) = (of(Judged::Worse), of(Judged::Better), of(Judged::Different));
    let programs = if is_other { "The programs differ. " } else { "" };
    let also = if different.is_empty() { String::new() } else { format!(". Different: {}", some(&different)) };
    let text = match (verdict, why_not) {
        (Verdict::Worse, _) if better.is_empty() => format!("Worse: {}{also}.", some(&worse)),
        (Verdict::Worse, _) => format!("Worse: {}. Better: {}{also}.", some(&worse), some(&better)),
        (Verdict::Better, _) => format!("Better: {}.", some(&better)),
        (Verdict::NotComparable, Some(why)) => format!("Not comparable: {why}."),
        _ => format!("{}{also}.", same(figures, threshold)),
    };
    format!("{programs}{text}")
}

/// The versions, options and machines that differ, before the verdict.
pub(super) fn settings(differ: &[(String, [String; 2])]) -> String {
    let name = |name: &str| name.replace('_', " ");
    let value = |value: &str| if value.is_empty() { "not set".to_owned() } else { value.to_owned() };
    let one = |(of, [before, after]): &(String, [String; 2])| {
        let of = if of.starts_with(p2pshim_host::config::PREFIX) { of.clone() } else { name(of) };
        format!("{of} {}, now {}", value(before), value(after))
    };
    let all: Vec<String> = differ.iter().map(one).collect();
    if all.is_empty() { String::new() } else { format!("Not alike: {}. ", some(&all)) }
}

/// The sentence that nothing got better or worse, without its end.
fn same(figures: &[Figure], threshold: f64) -> String {
    let judged = |is: Judged| figures.iter().find(|figure| figure.is == is).and_then(told);
    if let Some(told) = judged(Judged::WithinSpread) {
        return format!("No difference beyond the spread of the runs: {told}");
    }
    match judged(Judged::Same) {
        Some(told) => format!("No difference above {threshold} %: {told}"),
        None => "No difference is known: nothing was measured on both sides".to_owned(),
    }
}

/// The first of some texts, and how many more there are.
fn some(all: &[impl AsRef<str>]) -> String {
    term::few(all, NAMED, "; ")
}

/// The figures that are judged so: those of pairs, or the others.
pub(super) fn changes(figures: &[Figure], are_of_pairs: bool, is: Judged) -> Vec<String> {
    let is_meant = |it: &&Figure| it.is == is && it.of.is_some() == are_of_pairs;
    figures.iter().filter(is_meant).filter_map(told).collect()
}

/// A figure of both sides in words.
fn told(figure: &Figure) -> Option<String> {
    let is_spread = figure.is == Judged::WithinSpread;
    let shown = |spread: Spread| if is_spread { quantity(figure, spread) } else { one(figure, spread.median) };
    let [before, after] = [figure.before?, figure.after?].map(shown);
    let of = figure.of.as_deref().unwrap_or_default();
    Some(match figure.name {
        "copy-call-seconds" => format!("copy calls took {before}, now {after}"),
        "seconds-per-copy" => format!("copies took {before} each on the host, now {after}"),
        "seconds" => format!("the whole run took {before}, now {after}"),
        "seconds-with-calls" => format!("from the first call to the last it took {before}, now {after}"),
        _ => format!("{of} made {before}, now {after}"),
    })
}

/// A figure's name in the tables.
pub(super) fn name(figure: &Figure) -> String {
    match (figure.name, &figure.of) {
        ("copies", _) => "copies".to_owned(),
        ("bytes", _) => "bytes copied".to_owned(),
        ("staged-first-bytes", _) => "bytes staged at first".to_owned(),
        ("staged-bytes", _) => "bytes staged after that".to_owned(),
        ("copy-call-seconds", _) => "calls that copy".to_owned(),
        ("seconds-per-copy", _) => "calls, per copy".to_owned(),
        ("seconds", _) => "whole run".to_owned(),
        ("seconds-with-calls", _) => "first to last call".to_owned(),
        (_, of) => of.clone().unwrap_or_default(),
    }
}

/// A figure with its unit; of several runs with the least and the most.
pub(super) fn quantity(figure: &Figure, spread: Spread) -> String {
    let one = |value: f64| one(figure, value);
    let Spread { median, min, max, runs } = spread;
    match runs {
        1 => one(median),
        _ if one(min) == one(max) => format!("{} ({runs} runs)", one(median)),
        _ => format!("{} ({} to {} in {runs} runs)", one(median), one(min), one(max)),
    }
}

/// A value of a figure with its unit.
pub(super) fn one(figure: &Figure, value: f64) -> String {
    match figure.name {
        "copies" => term::count(value as u64),
        "bytes" | "staged-first-bytes" | "staged-bytes" => term::bytes(value as u64),
        "gb-per-s" => format!("{value:.1} GB/s"),
        _ => term::seconds(value),
    }
}

/// The change of a figure in percent.
pub(super) fn percent(figure: &Figure) -> String {
    match figure.change_percent {
        Some(percent) if percent.abs() < 0.5 => "0 %".to_owned(),
        Some(percent) if percent >= 1000.0 => format!("x {:.0}", percent / 100.0 + 1.0),
        Some(percent) => format!("{percent:+.0} %"),
        None => String::new(),
    }
}

/// The verdict on a figure, in the tables.
pub(super) fn judged(is: Judged) -> &'static str {
    match is {
        Judged::Worse => "worse",
        Judged::Better => "better",
        Judged::Same => "same",
        Judged::WithinSpread => "within the spread",
        Judged::Different => "different",
        Judged::Shown => "",
    }
}

/// Copies and their bytes.
pub(super) fn work(copies: f64, bytes: f64) -> String {
    format!("{} of {}", term::counted(copies as u64, "copy").replace("copys", "copies"), term::bytes(bytes as u64))
}

/// How a program ended, after its name; none if that is not known.
pub(super) fn end(end: &Ended) -> Option<String> {
    match end {
        Ended::Well => Some("ended with exit 0".to_owned()),
        Ended::Badly(how) => Some(how.clone()),
        Ended::Running => Some("still runs".to_owned()),
        Ended::Unknown => None,
    }
}

/// A finding, or calls that failed, on one side only.
pub(super) fn count(row: &CountRow) -> String {
    // Calls that are known to be alike are not all looked at.
    let calls = |count: u64| format!("at least {}", term::counted(count, "call"));
    match (&row.severity, row.before, row.after) {
        (Some(severity), 0, after) => format!("{severity} {} is new, in {}", row.name, calls(after)),
        (Some(severity), before, _) => format!("{severity} {} is gone, before in {}", row.name, calls(before)),
        (None, 0, after) => format!("failed calls are new, {} of {}", term::count(after), row.name),
        (None, before, _) => format!("failed calls are gone, {} of {}", term::count(before), row.name),
    }
}

pub(super) fn pair((src, dst): &Key) -> String {
    format!("{src} > {dst}")
}

/// Some pairs.
pub(super) fn listed(keys: &[&Key]) -> String {
    let shown = keys.iter().take(NAMED).map(|key| pair(key)).collect::<Vec<_>>().join(", ");
    match keys.len().checked_sub(NAMED) {
        Some(more @ 1..) => format!("{shown} and {}", term::counted(more as u64, "more pair")),
        _ => shown,
    }
}

/// The words for a changed path, after `was` or `were`.
pub(super) fn main_path(before: MainPath, after: MainPath, why: &str) -> String {
    let word = |path: MainPath| match path {
        MainPath::Direct => "direct".to_owned(),
        MainPath::Mixed(percent) => format!("{percent} % staged"),
        MainPath::Staged => "staged".to_owned(),
        MainPath::ByHand => "copied by hand through the host".to_owned(),
    };
    let why = why.split_once(": ").filter(|_| matches!(after, MainPath::Mixed(_) | MainPath::Staged));
    let why = why.filter(|(path, _)| *path == "staged").map(|(_, why)| format!(" ({why})")).unwrap_or_default();
    format!("{}, now {}{why}", word(before), word(after))
}

/// Pairs whose path has changed alike.
pub(super) fn were(keys: &[&Key], what: &str) -> String {
    format!("{} {} {what}", listed(keys), if keys.len() == 1 { "was" } else { "were" })
}

/// A command as it was given.
pub(super) fn command(side: &Side) -> String {
    if side.command.is_empty() { "not known".to_owned() } else { side.command.join(" ") }
}

/// The sentence that a side lacks something, or may do so.
pub(super) fn part(side: &Side, end: &Ended, is_whole: bool) -> Option<String> {
    let path = &side.path;
    match end {
        _ if !is_whole => Some(format!("Not all of {path} could be read: `p2pshim report {path}` says why.")),
        _ if side.lower_bounds => Some(format!("{path} lacks records: its counts and sums are lower bounds.")),
        Ended::Running => Some(format!("{path} is of a program that still runs: these are its figures so far.")),
        Ended::Badly(how) => {
            Some(format!("{path} is of a program that {how}: it may have copied less than a whole run."))
        }
        Ended::Unknown => Some(format!(
            "It is not known how the program of {path} ended; `p2pshim run` would have \
                                        recorded that."
        )),
        Ended::Well => None,
    }
}
