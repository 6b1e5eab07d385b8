//! The report's first words about how processes ended, and about calls that have not returned.

use std::collections::BTreeMap;

use super::model::{Call, End, Ends, File, How, Progress, Report, Run, Unseen};
use super::processes::ends;
use super::sentence::{NAMED, what};
use super::term::{capital, count, duration};
use crate::judge::{Level, Words};

/// How old a last copy is that is told of.
const LONG_NANOS: u64 = 1_000_000_000;
/// Where the page says how processes ended.
pub(super) const PROCESSES: &str = "processes";

/// How programs ended that `p2pshim run` ran, if not well: the worst of them, if that is of this level.
pub(super) fn ended(report: &Report, level: Level) -> Option<Words> {
    let how = |run: &Run| match (&run.end.signal, run.end.code) {
        (Some(signal), _) => Some((Level::Bad, format!("was ended by {signal}"))),
        (None, Some(code @ (i32::MIN..=-1 | 1..))) => Some((Level::Warn, format!("ended with exit {code}"))),
        _ => None,
    };
    let has_program = |run: &Run| report.processes().any(|file| file.is_program && run.files.contains(&file.index));
    let is_alone = !has_several_programs(report);
    let runs = report.runs.iter().filter(|run| is_alone || !has_program(run));
    let mut ends: Vec<_> = runs.filter_map(|run| Some((how(run)?, run))).collect();
    ends.sort_by_key(|((level, _), _)| *level);
    let others = match ends.len().saturating_sub(1) {
        0 => String::new(),
        1 => "; another run did not end well either".to_owned(),
        more => format!("; {more} other runs did not end well either"),
    };
    let ((worst, how), run) = ends.into_iter().next()?;
    (worst == level).then(|| Words::from(format!("{} {how}{others}.", program(run))).more(waited(report)))
}

/// How long before the end a process copied last that did not exit, if that is long: it may have waited for it.
fn waited(report: &Report) -> String {
    let of = ", of a process that did not call `exit`,";
    last_copy(report, |file| matches!(file.end.how, How::Signal | How::Unknown), [of, "before"])
}

/// How a last copy is called: there may be others.
fn last(report: &Report) -> &'static str {
    match (&report.filter, report.is_at_least()) {
        (Some(_), _) => "The last copy call that fits and returned",
        (None, true) => "The last copy call that is known to have returned",
        (None, false) => "The last copy call that returned",
    }
}

/// When the last copy of these processes returned, if that is long before `when`, and which it was; and which process was the first to copy no
/// more, if the others did so for long after it.
fn last_copy(report: &Report, is_meant: impl Fn(&File) -> bool, [of, when]: [&str; 2]) -> String {
    let copies = report.processes().filter(|file| is_meant(file)).filter_map(|file| {
        let call = file.last_copy.as_ref()?;
        Some((file, call, call.age_ns?))
    });
    let all: Vec<(&File, &Call, u64)> = copies.collect();
    let by_age = || all.iter().min_by_key(|(.., age)| *age).zip(all.iter().max_by_key(|(.., age)| *age));
    let Some(((_, youngest, least), (file, oldest, most))) = by_age() else { return String::new() };
    let copy = |call: &Call| format!("{}{}", call.function, what(report, call));
    let mut said = Vec::new();
    if *least >= LONG_NANOS {
        said.push(format!("{}{of} did so {} {when}: {}.", last(report), duration(*least), copy(youngest)));
    }
    // Of several runs each time is before another end, and copies that are left out may have come later.
    let is_comparable = report.runs.len() <= 1 && report.filter.is_none() && !report.is_at_least();
    if is_comparable && most.saturating_sub(*least) >= LONG_NANOS {
        let who = capital(&report.name(file));
        said.push(format!("{who} made its last copy {} {when}: {}.", duration(*most), copy(oldest)));
    }
    said.join(" ")
}

/// The program of a run, in short.
pub(super) fn program(run: &Run) -> &str {
    let name = run.command.first().and_then(|path| path.rsplit('/').next());
    name.filter(|name| !name.is_empty()).unwrap_or("The program")
}

/// The worst end of processes, as far as it is known.
#[derive(PartialEq, Eq)]
pub(super) enum Worst {
    Killed,
    /// With an exit status that is not 0, or in a way that is not known.
    Failed,
    /// None has, as far as can be seen.
    Unseen,
}

/// How processes ended, if that is the worst of it: of one run those that are not its program, of several programs all.
pub(super) fn ended_elsewhere(report: &Report, worst: &Worst) -> Option<Words> {
    let several = has_several_programs(report);
    let is_meant = |file: &&File| file.end.how != How::Exec && (several || !file.is_program);
    let known: Vec<&File> = report.processes().filter(is_meant).collect();
    let has_run = report.runs.iter().any(|run| run.end.how != How::Unknown);
    let other = if !several && report.processes().any(|file| file.is_program) { "other " } else { "" };
    let those = |wanted: &dyn Fn(&File) -> bool, one: &dyn Fn(&File) -> String, more: &str| {
        let files: Vec<&File> = known.iter().copied().filter(|file| wanted(file)).collect();
        let how = match files[..] {
            [] => return None,
            [file] => one(file),
            _ => more.to_owned(),
        };
        let who = match files[..] {
            [file] if known.len() == 1 && file.is_child => format!("a child process ({})", report.name(file)),
            [file] if known.len() == 1 && has_run => format!("another process ({})", report.name(file)),
            [_] if known.len() == 1 => "the process".to_owned(),
            _ => {
                let names: Vec<String> = files.iter().take(NAMED).map(|file| report.name(file)).collect();
                let more = if files.len() > NAMED { ", …" } else { "" };
                format!("{} of {} {other}processes ({}{more})", files.len(), known.len(), names.join(", "))
            }
        };
        Some(format!("{who} {how}"))
    };
    let killed = those(
        &|file| file.end.how == How::Signal,
        &|file| format!("was ended by {}", file.end.signal.as_deref().unwrap_or("a signal")),
        &which(&known, "were ended by ", "were ended by signals", |file| file.end.signal.clone()),
    );
    let status = |file: &File| file.end.code.filter(|&code| code != 0);
    let failed = those(
        &|file| status(file).is_some(),
        &|file| exited(&file.end),
        &which(&known, "", "did not end with exit 0", |file| status(file).map(|_| exited(&file.end))),
    );
    let is_gone = |file: &File| file.end.how == How::Unknown && !file.may_run;
    let gone = "ended by a signal or by `_exit`, or became another program; which of these is not known";
    let gone = those(&is_gone, &|_| gone.to_owned(), gone);
    let not_seen = those(
        &|file| file.end.how == How::Unknown && file.may_run,
        &|_| "has not called `exit`; whether it still runs cannot be seen from here".to_owned(),
        "have not called `exit`; whether they still run cannot be seen from here",
    );
    let is = match (&killed, failed.is_some() || gone.is_some()) {
        (Some(_), _) => Worst::Killed,
        (None, true) => Worst::Failed,
        (None, false) => Worst::Unseen,
    };
    let said: Vec<String> = [failed, killed, gone, not_seen].into_iter().flatten().collect();
    let text = Some(said.join(", and ")).filter(|text| !text.is_empty() && is == *worst)?;
    let more = if several { waited(report) } else { String::new() };
    Some(Words::from(format!("{}.", capital(&text))).more(more))
}

/// The fact that processes have in common; or a word for the facts that are alike, and how many of them have which.
fn which(files: &[&File], one: &str, several: &str, of: impl Fn(&File) -> Option<String>) -> String {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    files.iter().filter_map(|file| of(file)).for_each(|it| *counts.entry(it).or_default() += 1);
    let mut said: Vec<String> =
        counts.iter().take(NAMED).map(|(it, number)| format!("{} {it}", count(*number))).collect();
    match counts.keys().next() {
        Some(it) if counts.len() == 1 => return format!("{one}{it}"),
        _ if counts.len() > NAMED => said.push("…".to_owned()),
        _ => {}
    }
    format!("{several} ({})", said.join(", "))
}

/// How the processes of several runs ended, if not all in the same way.
pub(super) fn of_several(report: &Report) -> String {
    let all = ends(report.runs.iter().flat_map(|run| &run.ends).map(|it| (&it.end, it.processes)));
    if all.len() < 2 {
        return String::new();
    }
    let processes = all.iter().map(|it| it.processes).sum();
    let mut said: Vec<String> = all.iter().take(NAMED).map(in_words).collect();
    let rest = all.iter().skip(NAMED).map(|it| it.processes).sum();
    if rest > 0 {
        said.push(format!("{} otherwise", count(rest)));
    }
    format!("; of their {} processes, {}", count(processes), said.join(", "))
}

/// `2 ended with exit 0`.
fn in_words(Ends { end, processes }: &Ends) -> String {
    let all = count(*processes);
    let (was, runs) = if *processes == 1 { ("was", "runs") } else { ("were", "run") };
    match (end.how, end.code, &end.signal) {
        (How::Exited, Some(code), _) => format!("{all} ended with exit {code}"),
        (How::CalledExit, Some(code), _) => format!("{all} called exit {code}"),
        (How::Signal, _, Some(signal)) => format!("{all} {was} ended by {signal}"),
        (How::Running, ..) => format!("{all} still {runs}"),
        _ => format!("of {all} it is not known"),
    }
}

/// Whether several processes are each the program of a run: ranks, for one.
fn has_several_programs(report: &Report) -> bool {
    report.processes().filter(|file| file.is_program).count() > 1
}

/// Processes that have not ended yet.
pub(super) fn running(report: &Report) -> Option<Words> {
    let runs = |file: &File| file.end.how == How::Running;
    let text = match report.processes().filter(|file| runs(file)).count() {
        0 => return None,
        1 => "A process still runs; these are its numbers so far.".to_owned(),
        several => format!("{several} processes still run; these are their numbers so far."),
    };
    let last = last_copy(report, runs, ["", "ago"]);
    Some(Words::from(text).more(last))
}

/// Traces that their processes have only just made.
pub(super) fn begun(report: &Report) -> Option<String> {
    let begun = report.files.iter().filter(|file| file.is_begun).count() as u64;
    let all = report.files.len();
    match begun {
        0 => None,
        1 => {
            Some(format!("1 of {all} traces has no call yet: its process has just begun it, or ended while it did so."))
        }
        _ => Some(format!(
            "{begun} of {all} traces have no call yet: their processes have just begun them, or ended while they did so."
        )),
    }
}

/// The calls that hang, those first whose process is known not to run or to run.
fn hung(report: &Report) -> Vec<&Call> {
    let may_run = |call: &&Call| report.files.get(call.file).is_some_and(|file| file.may_run);
    let mut calls: Vec<&Call> = report.unfinished.iter().filter(|call| call.progress == Progress::Hangs).collect();
    calls.sort_by_key(may_run);
    calls
}

/// Calls that had not returned when the trace was read, of processes of which it is not known whether they run.
pub(super) fn not_returned(report: &Report) -> Option<String> {
    let calls = hung(report);
    let first = calls.first().filter(|call| report.files.get(call.file).is_some_and(|file| file.may_run))?;
    let what = named(report, first);
    Some(match calls.len() {
        1 => format!("A call had not returned when the trace was read: {what}."),
        all => format!("{} calls had not returned when the trace was read, such as {what}.", count(all as u64)),
    })
}

/// Calls that have not returned, or had not when their process ended.
pub(super) fn never_returned(report: &Report) -> Option<Words> {
    let calls = hung(report);
    let &first = calls.first()?;
    let file = report.files.get(first.file);
    let runs = file.is_some_and(|file| file.end.how == How::Running);
    let what = named(report, first);
    let ended = file.filter(|file| file.end.how == How::Signal).and_then(|file| file.gone_after(first.started));
    let most = ended.filter(|_| first.age_ns.is_none());
    let least = || file.map(|file| format!("at least {}", duration(file.lived_after(first.started))));
    let age = first.age_ns.map(duration).or(most.map(|most| format!("up to {}", duration(most)))).or_else(least);
    let all = count(calls.len() as u64);
    let text = match (calls.len(), age) {
        (1, Some(age)) if runs => format!("A call has not returned for {age}: {what}."),
        (1, Some(age)) => format!("A call never returned, in {age}: {what}."),
        (1, None) => format!("A call never returned: {what}."),
        (_, Some(age)) if runs => format!("{all} calls have not returned, one of them for {age}: {what}."),
        (_, Some(age)) => format!("{all} calls never returned, one of them in {age}: {what}."),
        (_, None) => format!("{all} calls never returned, such as {what}."),
    };
    let more = if most.is_some() {
        "The time is shorter if the process became another program before it was ended."
    } else {
        ""
    };
    Some(Words::from(text).more(more))
}

/// Calls in which processes ended; one that a running process is still in is listed elsewhere.
fn ended_in(report: &Report, progress: Progress) -> Vec<&Call> {
    let runs = |call: &&Call| report.files.get(call.file).is_some_and(|file| file.end.how == How::Running);
    report.unfinished.iter().filter(|call| call.progress == progress && !runs(call)).collect()
}

/// Calls in which processes ended after a short time: they need not hang.
pub(super) fn under_way(report: &Report) -> Option<String> {
    let calls = ended_in(report, Progress::UnderWay);
    let &first = calls.first()?;
    let most = || Some(format!(", within {}", duration(report.files.get(first.file)?.gone_after(first.started)?)));
    let age = first.age_ns.map(|age| format!(", after {}", duration(age))).or_else(most).unwrap_or_default();
    let left = left(report, &[first]);
    let calls = match calls.len() {
        1 => format!("a call{age}: "),
        all => format!("{} calls, one of them{}: ", count(all as u64), age.trim_start_matches(',')),
    };
    Some(format!("{} {left} in {calls}{}.", a_process(report), named(report, first)))
}

/// Calls in which processes ended after a time that is not known.
pub(super) fn cut_off(report: &Report) -> Option<Words> {
    let calls = ended_in(report, Progress::CutOff);
    let &first = calls.first()?;
    let what = named(report, first);
    let until = report.files.get(first.file).and_then(|file| file.run_ended);
    let (when, which) = match (until, calls.len()) {
        (Some(end), 1) => {
            let side = if end < first.started { "after" } else { "before" };
            (format!(", begun {} {side} the end of the run", duration(end.abs_diff(first.started))), ": ")
        }
        (_, 1) => (String::new(), ": "),
        _ => (String::new(), ", such as "),
    };
    let several = calls.iter().any(|call| call.file != first.file);
    let who = if several { "Processes" } else { a_process(report) };
    let in_what = if calls.len() == 1 { "a call".to_owned() } else { format!("{} calls", count(calls.len() as u64)) };
    let text = format!("{who} {} in {in_what}{when}{which}{what}.", left(report, &calls));
    let them = if calls.len() == 1 { "it" } else { "they" };
    let more = format!("How long {them} had taken is not known, nor whether {them} would have returned.");
    let is_known = report.runs.iter().any(|run| run.end.how != How::Unknown);
    let hint = if is_known { "" } else { "`p2pshim run` records how and when its program ends." };
    Some(Words::from(text).more(more).and(hint))
}

/// A call with what it copies, and of several processes which one made it.
fn named(report: &Report, call: &Call) -> String {
    let file = report.files.get(call.file).filter(|_| report.processes().count() > 1);
    let who = file.map(|file| format!(", in {}", report.name(file))).unwrap_or_default();
    format!("{}{}{who}", call.function, what(report, call))
}

fn a_process(report: &Report) -> &'static str {
    if report.processes().count() > 1 { "A process" } else { "The process" }
}

/// The words for the end of processes in calls: one that became another program did not end, and has no exit.
pub(super) fn left(report: &Report, calls: &[&Call]) -> &'static str {
    let files = || calls.iter().filter_map(|call| report.files.get(call.file));
    if files().all(|file| file.end.how == How::Exec) {
        "became another program"
    } else if files().all(|file| file.exit.is_some()) {
        "ended"
    } else {
        "ended, or became another program,"
    }
}

/// How a process ended that has a status.
fn exited(end: &End) -> String {
    let code = end.code.unwrap_or_default();
    if end.how == How::CalledExit { format!("called exit {code}") } else { format!("ended with exit {code}") }
}

/// How programs ended of which no call was seen, if not well.
pub(super) fn unseen(report: &Report) -> Option<String> {
    let has_failed = |it: &&Unseen| it.end.signal.is_some() || it.end.code.is_some_and(|code| code != 0);
    let failed: Vec<&Unseen> = report.unseen.iter().filter(has_failed).collect();
    let worst = failed.iter().min_by_key(|it| it.end.signal.is_none())?;
    let how = worst.end.signal.as_ref().map_or_else(|| exited(&worst.end), |signal| format!("was ended by {signal}"));
    let worst = format!("{} {how}", worst.command.join(" "));
    Some(match failed.len() {
        1 => format!("A program of which no call was seen did not end well: {worst}."),
        all => {
            format!("{} programs of which no call was seen did not end well, for example: {worst}.", count(all as u64))
        }
    })
}
