//! Which process of a run the others may wait for: the rows of the first sentence, over what each process is in, machine by machine.
//!
//! A rank that has ended, is stopped or never came tells the most. Else the one that differs from all others of its machine is meant: the only one
//! in a GPU call, the only one in none, if all are in none, the only one at another line of Python, or, if all are in one, the one that has submitted
//! less than the others, who have submitted alike. Where two ranks differ from each other, or several do, nothing tells.

use std::collections::{BTreeMap, BTreeSet};

use p2pshim_host::job;

use super::live::{Process, State, has_child};
use super::model::{Call, Report};
use super::sentence::{NAMED, what};
use super::term::{bytes, duration};
use crate::judge::{Level, Row, Sentence, evaluate};

/// The facts about the processes of a run.
pub(super) struct Facts<'p, 'a> {
    report: &'a Report,
    all: &'p [Process<'a>],
    /// Whether all of their traces was read.
    are_whole: bool,
    /// Those that are in calls, in none, and that make calls.
    waiting: Vec<&'p Process<'a>>,
    idle: Vec<&'p Process<'a>>,
    moving: Vec<&'p Process<'a>>,
    /// Those that have ended in calls.
    hung: Vec<&'p Process<'a>>,
}

const ENDED: &str = "ended";
const STOPPED: &str = "stopped";
const LACKING: &str = "lacking here";
/// The group of rows about a run in which nobody is suspected.
const CALM: &str = "nobody is suspected";

/// The rows. A bad one is about a process that the others wait for, a warning about one for which they may.
fn rows<'r, 'p: 'r, 'a: 'p>() -> Vec<Row<'r, Facts<'p, 'a>>> {
    use Level::{Bad, Note, Warn};
    let calm =
        |name, says: fn(&Facts<'p, 'a>) -> Option<String>| Row::new(Note, name, says).one_of(CALM).unless_any(Warn);
    vec![
        Row::new(Bad, ENDED, Facts::ended),
        Row::new(Bad, STOPPED, Facts::stopped).unless(&[ENDED]),
        Row::new(Bad, LACKING, |it: &Facts| it.missing(true)).unless(&[ENDED, STOPPED]),
        Row::new(Bad, "differs from its machine", Facts::different).unless(&[ENDED, STOPPED, LACKING]),
        Row::new(Bad, "missing", |it: &Facts| it.missing(false)).unless(&[ENDED, STOPPED]),
        // All may only work on the host.
        Row::new(Warn, "elsewhere in Python", Facts::elsewhere).unless_any(Bad),
        calm("none runs", Facts::none_runs),
        calm("ended in a call", Facts::ended_in_call),
        calm("none in a call", Facts::cannot_tell),
        calm("nothing hangs", Facts::nothing_hangs),
        calm("some move", Facts::some_move),
        calm("one waits", Facts::one_waits),
        calm("some idle", Facts::some_idle),
        calm("all wait", Facts::all_wait),
    ]
}

/// The first words about a run: whom the others may wait for, as far as that can be told; else that it cannot.
pub(super) fn says(facts: &Facts) -> String {
    evaluate(&rows(), facts).into_iter().map(|it| it.text).collect::<Vec<_>>().join(" ")
}

/// Whether a run hangs: a process is in a call that does not return, or ended in one or badly, or one keeps the others waiting.
pub(super) fn hangs(facts: &Facts) -> bool {
    let is_suspect = |it: &Sentence| it.level == Level::Bad;
    let in_call = !facts.waiting.is_empty() || !facts.hung.is_empty() || facts.all.iter().any(has_failed);
    in_call || evaluate(&rows(), facts).iter().any(is_suspect)
}

fn has_failed(it: &Process) -> bool {
    it.state == State::Ended && it.file.end.code != Some(0)
}

impl<'p, 'a> Facts<'p, 'a> {
    pub(super) fn of(report: &'a Report, all: &'p [Process<'a>], are_whole: bool) -> Self {
        // One that has started others waits for them, and does not count.
        let is_parent = |it: &Process| it.state == State::Idle && has_child(it, all);
        let [waiting, idle, moving] = [State::InCall, State::Idle, State::Moves]
            .map(|state| all.iter().filter(|it| it.state == state && !is_parent(it)).collect());
        let hung = all.iter().filter(|it| !it.at_end.is_empty()).collect();
        Self { report, all, are_whole, waiting, idle, moving, hung }
    }

    // ---- Whom the others may wait for ----

    fn are_ranks(&self) -> bool {
        self.all.iter().any(|it| it.file.rank.is_some())
    }

    fn ended(&self) -> Option<String> {
        let (are_ranks, in_call) = (self.are_ranks(), !self.waiting.is_empty());
        let is_missed = |it: &&Process| {
            let is_bad = it.file.end.code != Some(0) && (are_ranks || in_call || it.file.end.code.is_none());
            it.state == State::Ended && it.file.rank.is_some() == are_ranks && (is_bad || (in_call && are_ranks))
        };
        let ended: Vec<&Process> = self.all.iter().filter(is_missed).collect();
        let first = match ended[..] {
            [one] => format!("{} {}", self.named(one), one.end()),
            _ => format!("{} have ended ({})", who(&ended), names(&ended)),
        };
        (!ended.is_empty() && ended.len() < self.all.len()).then(|| self.may_wait(&first))
    }

    fn stopped(&self) -> Option<String> {
        let stopped: Vec<&Process> = self.all.iter().filter(|it| it.state == State::Stopped).collect();
        let first = match stopped[..] {
            [] => return None,
            [one] => format!("{} is stopped", self.named(one)),
            _ => format!("{} are stopped ({})", who(&stopped), names(&stopped)),
        };
        Some(self.may_wait(&first))
    }

    /// Ranks without a trace: if machines that have traces are known to lack some, or if not.
    fn missing(&self, are_here: bool) -> Option<String> {
        let (missing, lack) = missing(self.all);
        let is_idle = self.all.iter().any(|it| it.state == State::Idle);
        let is_meant = !self.waiting.is_empty() || (is_idle && lack > 0);
        let first = match (&missing[..], lack) {
            ([], _) => return None,
            ([rank], 0) => format!("Rank {rank} has made no GPU call here yet, or runs elsewhere"),
            (_, 0) => format!("{} have made no GPU call here yet, or run elsewhere", ranks(&missing)),
            ([rank], _) => format!("Rank {rank} has made no GPU call yet"),
            (_, lack) if lack == missing.len() as u64 => format!("{} have made no GPU call yet", ranks(&missing)),
            (_, 1) => format!("One of {} runs here and has made no GPU call yet", ranks(&missing).to_lowercase()),
            _ => format!("{lack} of {} run here and have made no GPU call yet", ranks(&missing).to_lowercase()),
        };
        (is_meant && (lack > 0) == are_here).then(|| self.may_wait(&first))
    }

    /// The processes of each machine. One that has started the others waits for them.
    fn machines(&self) -> Vec<Vec<&Process<'a>>> {
        let mut machines: BTreeMap<Option<&str>, Vec<&Process>> = BTreeMap::new();
        let are_ranks = self.are_ranks();
        let counts = |it: &&Process| {
            let is_parent = it.state == State::Idle && has_child(it, self.all);
            it.state != State::Ended && it.file.rank.is_some() == are_ranks && !is_parent
        };
        self.all.iter().filter(counts).for_each(|it| machines.entry(it.file.host.as_deref()).or_default().push(it));
        machines.into_values().collect()
    }

    /// The process of each machine that differs from all others of it.
    fn different(&self) -> Vec<String> {
        self.machines().iter().filter_map(|all| self.of_machine(all)).collect()
    }

    /// The process of each machine whose line of Python differs from that of the others, if these are at one line and all in no call.
    fn elsewhere(&self) -> Option<String> {
        if !self.waiting.is_empty() || !self.moving.is_empty() {
            return None;
        }
        let found: Vec<String> = self.machines().iter().filter_map(|all| self.at_another_line(all)).collect();
        (!found.is_empty()).then(|| format!("No process is in a GPU call. {}", found.join(" ")))
    }

    fn at_another_line(&self, all: &[&Process]) -> Option<String> {
        let are_idle = all.len() > 2 && all.iter().all(|it| it.state == State::Idle);
        let lines = all.iter().map(|it| Some((*it, it.line()?))).collect::<Option<Vec<_>>>().filter(|_| are_idle)?;
        lines.iter().find_map(|(it, line)| {
            let is_other = |(other, _): &&(&Process, String)| !std::ptr::eq(*other, *it);
            let others: Vec<&String> = lines.iter().filter(is_other).map(|(_, line)| line).collect();
            let theirs = *others.first()?;
            let is_it = line != theirs && others.iter().all(|other| *other == theirs);
            is_it.then(|| {
                let (who, others) = (self.named(it), others.len());
                format!(
                    "{who} differs: its Python is at {line}, and {others} others are at {theirs}, and may wait for it."
                )
            })
        })
    }

    fn of_machine(&self, all: &[&Process]) -> Option<String> {
        let of = |state| all.iter().copied().filter(move |it| it.state == state).collect::<Vec<_>>();
        let (inside, outside) = (of(State::InCall), of(State::Idle));
        if inside.len() + outside.len() < all.len() {
            return None;
        }
        match (&inside[..], &outside[..]) {
            ([one], [_, _, ..]) => Some(self.inside(one, outside.len())),
            ([_, _, ..], [one]) => Some(self.outside(one, inside.len())),
            ([_, _, _, ..], []) if self.are_whole && inside.iter().all(|it| it.file.dropped == 0) => {
                self.behind(&inside)
            }
            _ => None,
        }
    }

    /// It is in a GPU call, and so many others are in none.
    fn inside(&self, it: &Process, others: usize) -> String {
        let call = it.call.map(|call| in_call(self.report, call)).unwrap_or_default();
        format!(
            "{} has been in {call} for {}, at {}{}. {others} others are in no GPU call, and may wait for it.",
            self.named(it),
            since(it),
            it.place().unwrap_or_default(),
            last_copy(self.report, it)
        )
    }

    /// It is in none, and so many others are in one.
    fn outside(&self, it: &Process, others: usize) -> String {
        format!(
            "{} has made no GPU call that p2pshim sees for {}; {others} others are in GPU calls that do not return, and may wait for it.{}",
            self.named(it),
            since(it),
            place_of_idle(it)
        )
    }

    /// The one that has submitted less than the others, if these have submitted alike.
    fn behind(&self, all: &[&Process]) -> Option<String> {
        let least = all.iter().copied().min_by_key(|it| it.file.copied_bytes)?;
        let mut others = all.iter().filter(|it| !std::ptr::eq(**it, least)).map(|it| it.file.copied_bytes);
        let other = others.next()?;
        let is_alone = other > least.file.copied_bytes && others.all(|bytes| bytes == other);
        is_alone.then(|| {
            format!(
                "{} has submitted copies of {}, and each of the {} others {}. All are in GPU calls that do not return, and may wait for it.",
                self.named(least),
                bytes(least.file.copied_bytes),
                all.len() - 1,
                bytes(other)
            )
        })
    }

    /// Some words about suspects, and who may wait for them.
    fn may_wait(&self, first: &str) -> String {
        let Self { waiting, idle, moving, .. } = self;
        let said = [(waiting, small(&in_calls(waiting))), (idle, in_none(idle))];
        let others: Vec<String> = said.into_iter().filter(|(those, _)| !those.is_empty()).map(|(_, it)| it).collect();
        match (waiting.len() + idle.len(), moving.len()) {
            (0, 0) => format!("{first}."),
            (0, _) => format!("{first}; {} made calls within the last second.", who(moving)),
            (1, _) => format!("{first}; {}. It may wait for that.", others.join("")),
            _ => format!("{first}; {}. They may wait for that.", others.join(", and ")),
        }
    }

    /// `Rank 2`, or of several hosts with its host.
    fn named(&self, it: &Process) -> String {
        let hosts: BTreeSet<_> = self.all.iter().map(|it| &it.file.host).collect();
        match &it.file.host {
            Some(host) if hosts.len() > 1 => format!("{} on {host}", named(it)),
            _ => named(it),
        }
    }

    // ---- Nobody is suspected ----

    fn none_runs(&self) -> Option<String> {
        let them = match self.hung[..] {
            [] => "none ended in a GPU call".to_owned(),
            [one] => format!("{} ended in a GPU call", one.file.name()),
            _ => format!("{} of {} ended in GPU calls", self.hung.len(), self.all.len()),
        };
        let badly: Vec<&Process> = self.all.iter().filter(|it| has_failed(it) && it.at_end.is_empty()).collect();
        let badly = match badly[..] {
            [] => String::new(),
            [one] => format!("{} {}; ", one.file.name(), one.end()),
            _ => format!("{} did not end with exit 0; ", small(&who(&badly))),
        };
        let is_so = self.all.iter().all(|it| it.state == State::Ended);
        is_so.then(|| format!("No process of this run runs any more; {badly}{them}."))
    }

    fn ended_in_call(&self) -> Option<String> {
        let is_so = self.waiting.is_empty() && !self.hung.is_empty();
        let who = who(&self.hung);
        is_so.then(|| format!("{who} ended in a GPU call; no process that runs is in one that does not return."))
    }

    fn cannot_tell(&self) -> Option<String> {
        let is_so = self.waiting.is_empty() && self.moving.is_empty();
        let text = "No process is in a GPU call, so p2pshim cannot tell whether anything hangs.";
        is_so.then(|| text.to_owned())
    }

    fn nothing_hangs(&self) -> Option<String> {
        let text = "Nothing hangs in a GPU call: no process has been in one for a second.";
        self.waiting.is_empty().then(|| text.to_owned())
    }

    fn some_move(&self) -> Option<String> {
        let (waiting, moving) = (in_calls(&self.waiting), who(&self.moving));
        (!self.moving.is_empty()).then(|| format!("{waiting}; {moving} made calls within the last second."))
    }

    fn one_waits(&self) -> Option<String> {
        let ([one], []) = (&self.waiting[..], &self.idle[..]) else { return None };
        let what = one.call.zip(one.place());
        let what = what.map(|(call, place)| format!(": {} at {place}", in_call(self.report, call))).unwrap_or_default();
        Some(format!("{}, for {}{what}{}.", in_calls(&self.waiting), since(one), last_copy(self.report, one)))
    }

    fn some_idle(&self) -> Option<String> {
        let (waiting, idle) = (in_calls(&self.waiting), in_none(&self.idle));
        let which = match (&self.waiting[..], &self.idle[..]) {
            (_, []) => return None,
            ([_], [_]) => "Which of them waits for the other is not known.",
            _ => "Which of them the others wait for is not known.",
        };
        Some(format!("{waiting}, and {idle}. {which}"))
    }

    fn all_wait(&self) -> Option<String> {
        let last = self.waiting.iter().min_by_key(|it| it.since)?;
        Some(format!(
            "{}. Which of them the others wait for is not known. The last to enter its call was {}, {} ago.",
            in_calls(&self.waiting),
            last.file.name(),
            since(last)
        ))
    }
}

fn in_calls(all: &[&Process]) -> String {
    match all.len() {
        1 => format!("{} is in a GPU call that does not return", who(all)),
        _ => format!("{} are in GPU calls that do not return", who(all)),
    }
}

/// As it stands inside a sentence.
fn small(text: &str) -> String {
    text.replacen("Rank ", "rank ", 1).replacen("Process ", "process ", 1)
}

fn in_none(all: &[&Process]) -> String {
    let line = if let [one] = all { one.line() } else { None };
    let line = line.map(|line| format!(", with its Python at {line}")).unwrap_or_default();
    format!("{} {} in no GPU call{line}", small(&who(all)), if all.len() == 1 { "is" } else { "are" })
}

/// Where a process is that is in no GPU call, as a sentence.
fn place_of_idle(it: &Process) -> String {
    match (it.line(), &it.python) {
        (Some(line), _) => format!(" Its Python is at {line} now."),
        (None, Some(_)) => {
            " The kernel does not let this user read where its Python is: set kernel.yama.ptrace_scope to 0, or ask py-spy as root.".to_owned()
        }
        (None, None) => " p2pshim cannot tell where it is now: a debugger does, such as gdb or py-spy.".to_owned(),
    }
}

/// Whether the last copy is done that a process has queued, if it is in a call that waits.
fn last_copy(report: &Report, it: &Process) -> String {
    let is_wait = it.call.is_some_and(|call| call.is_wait && call.bytes.is_none());
    let Some(copy) = it.file.last_copy.as_ref().filter(|_| is_wait) else { return String::new() };
    let what = what(report, copy);
    /// Default streams are 0, 1 and 2; which device's they are is not known.
    const DEFAULT: u64 = 2;
    // Its thread has waited for its stream since.
    let is_wait_for = |call: &&Call| {
        let is_of = call.is_wait && (call.file, call.thread, call.stream) == (copy.file, copy.thread, copy.stream);
        is_of
            && call.function.contains("StreamSynchronize")
            && call.returned.is_some_and(|end| Some(end) >= copy.returned)
    };
    let has_stream = copy.returned.is_some() && copy.stream > DEFAULT;
    let is_waited_for = has_stream && report.unfinished.iter().any(|call| is_wait_for(&call));
    let done = if copy.is_made || is_waited_for { "is done" } else { "is not known to be done" };
    format!("; its last copy ({}) {done}", what.strip_prefix(", ").unwrap_or(&copy.function))
}

/// How long it has been in what it is in.
pub(super) fn since(it: &Process) -> String {
    it.since.map_or_else(|| "a time that is not known".to_owned(), duration)
}

/// Functions that wait for more than what their arguments name: parts of their names, and what for.
const WAITS: &[(&str, &str)] = &[
    ("Async", ""),
    ("FreeHost", ""),
    ("MemFree", ", which waits for all work of its device, of kernels and callbacks too,"),
    ("hipFree", ", which waits for all work of its device, of kernels and callbacks too,"),
    ("CtxSynchronize", ", which waits for all work of its context,"),
    ("DeviceSynchronize", ", which waits for all work of its device,"),
    ("ModuleUnload", ", which may wait for all work of its context,"),
    ("LibraryUnload", ", which may wait for all work of its context,"),
];

/// A call with what it copies, or what it waits for.
pub(super) fn in_call(report: &Report, call: &Call) -> String {
    let what = what(report, call);
    let what = what.strip_prefix(", ").map(|what| format!(" ({what})")).unwrap_or_default();
    let waits = WAITS.iter().find(|(part, _)| call.function.contains(part)).map_or("", |(_, waits)| waits);
    format!("{}{what}{waits}", call.function)
}

/// `Rank 2`.
pub(super) fn named(it: &Process) -> String {
    let name = it.file.name();
    if let Some(rest) = name.strip_prefix('r') {
        format!("R{rest}")
    } else {
        format!("Process {}", it.file.process.unwrap_or_default())
    }
}

/// `rank 2, rank 3`.
fn names(all: &[&Process]) -> String {
    all.iter().map(|it| it.file.name()).take(NAMED).collect::<Vec<_>>().join(", ")
}

/// `Rank 2`, or `7 processes`.
fn who(all: &[&Process]) -> String {
    let is_of_ranks = all.iter().all(|it| it.file.rank.is_some());
    match all {
        [one] => named(one),
        _ => format!("{} {}", all.len(), if is_of_ranks { "ranks" } else { "processes" }),
    }
}

fn ranks(all: &[u64]) -> String {
    let named: Vec<String> = all.iter().take(NAMED).map(u64::to_string).collect();
    format!("Ranks {}{}", named.join(", "), if all.len() > NAMED { ", …" } else { "" })
}

/// Whether what each process has submitted may decide.
pub(super) fn needs_bytes(all: &[Process]) -> bool {
    let is_there = |it: &&Process| it.state != State::Ended;
    all.iter().filter(is_there).count() > 2 && all.iter().filter(is_there).any(|it| it.state == State::InCall)
}

/// Ranks of a run of which there is no trace, by the number of ranks that a variable says; and how many of them the machines that have traces
/// lack, by another variable. The others may be elsewhere.
pub(super) fn missing(all: &[Process]) -> (Vec<u64>, u64) {
    /// No job has more.
    const MOST: u64 = 1 << 20;
    let rank = |it: &Process| it.file.rank.as_ref()?.parse().ok();
    let ranks: BTreeMap<u64, &Process> = all.iter().filter_map(|it| Some((rank(it)?, it))).collect();
    let number = |it: &Process, names: &[&str]| {
        let value = names.iter().find_map(|name| it.file.variables.get(*name))?;
        value.split(|char: char| !char.is_ascii_digit()).next()?.parse::<u64>().ok().filter(|&size| size <= MOST)
    };
    let size = ranks.values().find_map(|it| number(it, job::SIZES)).unwrap_or(0);
    let missing: Vec<u64> = (0..size).filter(|rank| !ranks.contains_key(rank)).collect();
    let mut machines: BTreeMap<Option<&str>, (u64, u64)> = BTreeMap::new();
    for it in ranks.values() {
        let (wanted, here) = machines.entry(it.file.host.as_deref()).or_default();
        (*wanted, *here) = (number(it, job::HERE).unwrap_or(0).max(*wanted), *here + 1);
    }
    let lack: u64 = machines.values().map(|(wanted, here)| wanted.saturating_sub(*here)).sum();
    let most = missing.len() as u64;
    (missing, lack.min(most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{End, File, Line};
    use crate::report::python::Now;
    use State::{Ended, Idle, InCall, Moves, Stopped};

    /// Ranks on a machine, each in a state, having submitted so many bytes; of a job of this size, and so many ranks a machine.
    fn machine(name: &str, first: usize, ranks: &[(State, u64)], variables: &[(&str, &str)]) -> Vec<(State, File)> {
        let file = |(number, &(state, copied_bytes)): (usize, &(State, u64))| {
            let rank = Some((first + number).to_string());
            let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            (state, File { rank, host: Some(name.to_owned()), copied_bytes, variables, ..File::default() })
        };
        ranks.iter().enumerate().map(file).collect()
    }

    /// Which ranks are suspected, and why: the first words.
    fn told(all: &[(State, File)]) -> Vec<String> {
        let all: Vec<Process> = all.iter().map(|(state, file)| Process::made(file, *state)).collect();
        let report = Report::default();
        let said = evaluate(&rows(), &Facts::of(&report, &all, true)).into_iter();
        said.filter(|it| it.level == Level::Bad).map(|it| it.text).collect()
    }

    /// Fails unless these are told: of each the beginning, and behind a star what follows.
    fn tells(all: &[(State, File)], says: &[&str]) {
        let told = told(all);
        let fits = |(said, begins): (&String, &&str)| {
            let (begins, rest) = begins.split_once('*').unwrap_or((begins, ""));
            said.starts_with(begins) && said.contains(rest)
        };
        assert!(told.len() == says.len() && told.iter().zip(says).all(fits), "{told:?}: {says:?}");
    }

    fn of(states: &[State]) -> Vec<(State, File)> {
        machine("node", 0, &states.iter().map(|&state| (state, 7)).collect::<Vec<_>>(), &[])
    }

    #[test]
    fn rank_that_differs_from_all_others_of_its_machine_is_suspected() {
        for (states, says) in [
            (&[Idle, Idle, InCall, Idle][..], &["Rank 2 has been in *. 3 others are in no GPU call"][..]),
            (
                &[InCall, Idle, InCall, InCall],
                &["Rank 1 has made no GPU call that p2pshim sees for *; 3 others are in"],
            ),
            // Nothing tells.
            (&[InCall, Idle], &[]),
            (&[InCall, InCall, Idle, Idle], &[]),
            (&[InCall, InCall, InCall], &[]),
            (&[InCall], &[]),
            (&[Idle, Idle, Idle], &[]),
            // One of the others works.
            (&[Idle, Idle, InCall, Moves], &[]),
            (&[InCall, InCall, Idle, Moves], &[]),
        ] {
            tells(&of(states), says);
        }
    }

    #[test]
    fn rank_whose_python_is_elsewhere_is_suspected() {
        let beside = |other: &[State], lines: [&str; 4]| {
            let mut files = of(&[&[Idle; 4], other].concat());
            // A process of the run that is no rank.
            files.iter_mut().skip(4).for_each(|(_, file)| file.rank = None);
            let mut all: Vec<Process> = files.iter().map(|(state, file)| Process::made(file, *state)).collect();
            for (it, file) in all.iter_mut().zip(lines) {
                it.python = Some(Now::At(Line { file: file.to_owned(), ..Line::default() }));
            }
            let report = Report::default();
            let facts = Facts::of(&report, &all, true);
            (says(&facts).contains("Rank 2 differs: its Python is at loader.py"), hangs(&facts))
        };
        let at = |lines| beside(&[], lines);
        assert_eq!(at(["ranks.py", "ranks.py", "loader.py", "ranks.py"]), (true, false));
        assert_eq!(beside(&[InCall], ["ranks.py", "ranks.py", "loader.py", "ranks.py"]), (false, true));
        assert_eq!(at(["ranks.py"; 4]), (false, false));
        assert_eq!(at(["a.py", "ranks.py", "loader.py", "ranks.py"]), (false, false));
    }

    #[test]
    fn rank_that_has_submitted_less_than_others_that_are_alike_is_suspected() {
        for (bytes, says) in [
            (&[7, 7, 6, 7][..], &["Rank 2 has submitted copies of 6 B, and each of the 3 others 7 B"][..]),
            (&[7, 7, 8, 7], &[]),
            (&[7, 9, 6, 7], &[]),
            (&[7, 6, 6, 7], &[]),
            (&[6, 7], &[]),
        ] {
            let ranks: Vec<(State, u64)> = bytes.iter().map(|&bytes| (InCall, bytes)).collect();
            tells(&machine("node", 0, &ranks, &[]), says);
        }
        let mut lossy = machine("node", 0, &[(InCall, 7), (InCall, 6), (InCall, 7)], &[]);
        lossy[1].1.dropped = 1;
        tells(&lossy, &[]);
    }

    #[test]
    fn rank_that_has_ended_is_stopped_or_never_came_is_suspected_first() {
        let end = |mut all: Vec<(State, File)>, rank: usize, code: Option<i32>| {
            all[rank].1.end = End { code, ..End::default() };
            all
        };
        for others in [[Idle, InCall, Idle], [Idle, Idle, Idle], [InCall, InCall, InCall], [Moves, Moves, Moves]] {
            let all = of(&[others[0], others[1], Ended, others[2]]);
            tells(&end(all, 2, None), &["Rank 2 has ended"]);
            let all = of(&[others[0], others[1], Stopped, others[2]]);
            tells(&all, &["Rank 2 is stopped"]);
        }
        // One that is done is missed by those in GPU calls only.
        tells(&end(of(&[InCall, Idle, Ended]), 2, Some(0)), &["Rank 2 has ended"]);
        tells(&end(of(&[Idle, Idle, Ended]), 2, Some(0)), &[]);
        tells(&end(of(&[Idle, Idle, Ended]), 2, Some(1)), &["Rank 2 has ended"]);
        tells(&of(&[Ended, Ended]), &[]);
        let three = |state| [(state, 7); 3];
        let [here, size] = [("LOCAL_WORLD_SIZE", "4"), ("WORLD_SIZE", "4")];
        tells(&machine("node", 0, &three(Idle), &[here, size]), &["Rank 3 has made no GPU call yet; "]);
        tells(
            &machine("node", 0, &three(InCall), &[size]),
            &["Rank 3 has made no GPU call here yet, or runs elsewhere; "],
        );
        // It may be elsewhere, and the others do what they like.
        tells(&machine("node", 0, &three(Idle), &[size]), &[]);
        tells(
            &machine("node", 1, &three(InCall), &[("SLURM_NTASKS_PER_NODE", "4(x2)"), ("WORLD_SIZE", "8")]),
            &["One of ranks 0, 4, 5, 6, … runs here and has made no GPU call yet; "],
        );
    }

    #[test]
    fn suspect_of_each_machine_is_named() {
        let size = [("LOCAL_WORLD_SIZE", "3"), ("WORLD_SIZE", "9")];
        let mut all = machine("a", 0, &[(Idle, 7), (InCall, 7), (Idle, 7)], &size);
        all.extend(machine("b", 3, &[(InCall, 7), (InCall, 7), (Idle, 7)], &size));
        tells(
            &all,
            &[
                "Rank 1 on a has been in *. 2 others are",
                "Rank 5 on b has made no GPU call that *; 2 others are",
                "Ranks 6, 7, 8 have made no GPU call here yet, or run elsewhere; ",
            ],
        );
        // Each alone on its machine: nothing tells.
        let mut alone = machine("a", 0, &[(Idle, 7)], &[]);
        alone.extend(machine("b", 1, &[(InCall, 7)], &[]));
        alone.extend(machine("c", 2, &[(Idle, 7)], &[]));
        tells(&alone, &[]);
    }

    #[test]
    fn processes_beside_ranks_are_not_suspected() {
        let mut all = of(&[InCall, InCall, Moves]);
        all[2].1.rank = None;
        all[2].0 = Ended;
        tells(&all, &[]);
        // Without ranks, a process that was ended by a signal is.
        let mut none = of(&[Idle, Ended]);
        none.iter_mut().for_each(|(_, file)| file.rank = None);
        tells(&none, &["Process 0 has ended"]);
        none[1].1.end.code = Some(1);
        tells(&none, &[]);
    }
}
