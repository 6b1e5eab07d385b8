//! Which process of a run the others may wait for: a judge over what each is in, machine by machine.
//!
//! A rank that has ended, is stopped or never came tells the most. Else the one that differs from all others of its machine is meant: the only one
//! in a GPU call, the only one in none, if all are in none, the only one at another line of Python, or, if all are in one, the one that has submitted less than the others, who have submitted alike. Where two
//! ranks differ from each other, or several do, nothing tells.

use std::collections::BTreeMap;

use p2pshim_host::job;

use super::live::{Process, State, has_child};

/// A process that others may wait for, and the reason.
pub(super) enum Suspect<'p, 'a> {
    Ended(Vec<&'p Process<'a>>),
    Stopped(Vec<&'p Process<'a>>),
    /// These ranks have no trace; so many of them should, at least, as machines that have traces lack ranks.
    Missing(Vec<u64>, u64),
    /// It is in a GPU call, and so many others of its machine are in none.
    Inside(&'p Process<'a>, usize),
    /// It is in none, and so many others of its machine are in one.
    Outside(&'p Process<'a>, usize),
    /// All of its machine are in none, and so many others are at this line of Python, which it is not.
    Elsewhere(&'p Process<'a>, usize, String),
    /// All of its machine are in GPU calls, and of so many others each has submitted so many bytes, which it has not.
    Behind(&'p Process<'a>, usize, u64),
}

/// The suspects, those that tell the most first; `are_whole` are traces of which all was read.
pub(super) fn suspects<'p, 'a>(all: &'p [Process<'a>], are_whole: bool) -> Vec<Suspect<'p, 'a>> {
    let are_ranks = all.iter().any(|it| it.file.rank.is_some());
    let has_waiter = |state| all.iter().any(|it| it.state == state);
    let in_call = has_waiter(State::InCall);
    let waits = in_call || has_waiter(State::Idle);
    let is_missed = |it: &&Process| {
        let is_bad = it.file.end.code != Some(0) && (are_ranks || in_call || it.file.end.code.is_none());
        it.state == State::Ended && it.file.rank.is_some() == are_ranks && (is_bad || (in_call && are_ranks))
    };
    let ended: Vec<&Process> = all.iter().filter(is_missed).collect();
    if !ended.is_empty() && ended.len() < all.len() {
        return vec![Suspect::Ended(ended)];
    }
    let stopped: Vec<&Process> = all.iter().filter(|it| it.state == State::Stopped).collect();
    if !stopped.is_empty() {
        return vec![Suspect::Stopped(stopped)];
    }
    let (missing, lack) = missing(all);
    let is_meant = !missing.is_empty() && (in_call || (waits && lack > 0));
    let missing = is_meant.then_some(Suspect::Missing(missing, lack));
    if lack > 0 && missing.is_some() {
        return missing.into_iter().collect();
    }
    let mut machines: BTreeMap<Option<&str>, Vec<&Process>> = BTreeMap::new();
    // One that has started the others waits for them.
    let counts = |it: &&Process| {
        let is_parent = it.state == State::Idle && has_child(it, all);
        it.state != State::Ended && it.file.rank.is_some() == are_ranks && !is_parent
    };
    all.iter().filter(counts).for_each(|it| machines.entry(it.file.host.as_deref()).or_default().push(it));
    machines.values().filter_map(|all| of_machine(all, are_whole)).chain(missing).collect()
}

/// The process of a machine that differs from all others, if there is one.
fn of_machine<'p, 'a>(all: &[&'p Process<'a>], are_whole: bool) -> Option<Suspect<'p, 'a>> {
    let of = |state| all.iter().copied().filter(move |it| it.state == state).collect::<Vec<_>>();
    let (inside, outside) = (of(State::InCall), of(State::Idle));
    if inside.len() + outside.len() < all.len() {
        return None;
    }
    match (&inside[..], &outside[..]) {
        ([one], [_, _, ..]) => Some(Suspect::Inside(one, outside.len())),
        ([_, _, ..], [one]) => Some(Suspect::Outside(one, inside.len())),
        ([], [_, _, _, ..]) => elsewhere(&outside),
        ([_, _, _, ..], []) if are_whole && inside.iter().all(|it| it.file.dropped == 0) => behind(&inside),
        _ => None,
    }
}

/// The one whose line of Python differs from that of the others, if these are at one line.
fn elsewhere<'p, 'a>(all: &[&'p Process<'a>]) -> Option<Suspect<'p, 'a>> {
    let lines = all.iter().map(|it| Some((*it, it.line()?))).collect::<Option<Vec<_>>>()?;
    lines.iter().find_map(|(it, line)| {
        let is_other = |(other, _): &&(&Process, String)| !std::ptr::eq(*other, *it);
        let others: Vec<&String> = lines.iter().filter(is_other).map(|(_, line)| line).collect();
        let theirs = *others.first()?;
        let is_it = line != theirs && others.iter().all(|other| *other == theirs);
        is_it.then(|| Suspect::Elsewhere(it, others.len(), theirs.clone()))
    })
}

/// The one that has submitted less than the others, if these have submitted alike.
fn behind<'p, 'a>(all: &[&'p Process<'a>]) -> Option<Suspect<'p, 'a>> {
    let least = all.iter().copied().min_by_key(|it| it.file.copied_bytes)?;
    let mut others = all.iter().filter(|it| !std::ptr::eq(**it, least)).map(|it| it.file.copied_bytes);
    let other = others.next()?;
    let is_alone = other > least.file.copied_bytes && others.all(|bytes| bytes == other);
    is_alone.then_some(Suspect::Behind(least, all.len() - 1, other))
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

    /// Which ranks are suspected, in words.
    fn told(all: &[(State, File)]) -> Vec<String> {
        let all: Vec<Process> = all.iter().map(|(state, file)| Process::made(file, *state)).collect();
        let rank = |it: &Process| it.file.rank.clone().unwrap_or_default();
        let ranks = |those: &[&Process]| those.iter().map(|it| rank(it)).collect::<Vec<_>>().join(" ");
        let told = suspects(&all, true).into_iter().map(|it| match it {
            Suspect::Ended(those) => format!("ended {}", ranks(&those)),
            Suspect::Stopped(those) => format!("stopped {}", ranks(&those)),
            Suspect::Missing(those, lack) => format!("missing {those:?} {lack}"),
            Suspect::Inside(it, others) => format!("inside {} {others}", rank(it)),
            Suspect::Outside(it, others) => format!("outside {} {others}", rank(it)),
            Suspect::Elsewhere(it, others, line) => format!("elsewhere {} {others} {line}", rank(it)),
            Suspect::Behind(it, others, bytes) => format!("behind {} {others} {bytes}", rank(it)),
        });
        told.collect()
    }

    fn of(states: &[State]) -> Vec<(State, File)> {
        machine("node", 0, &states.iter().map(|&state| (state, 7)).collect::<Vec<_>>(), &[])
    }

    #[test]
    fn rank_that_differs_from_all_others_of_its_machine_is_suspected() {
        for (states, says) in [
            (&[Idle, Idle, InCall, Idle][..], &["inside 2 3"][..]),
            (&[InCall, Idle, InCall, InCall], &["outside 1 3"]),
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
            assert_eq!(told(&of(states)), says, "{states:?}");
        }
    }

    #[test]
    fn rank_whose_python_is_elsewhere_is_suspected() {
        let at = |lines: [&str; 4]| {
            let files = of(&[Idle; 4]);
            let mut all: Vec<Process> = files.iter().map(|(state, file)| Process::made(file, *state)).collect();
            for (it, file) in all.iter_mut().zip(lines) {
                it.python = Some(Now::At(Line { file: file.to_owned(), ..Line::default() }));
            }
            let suspects = suspects(&all, true);
            suspects.into_iter().map(|it| matches!(it, Suspect::Elsewhere(..))).collect::<Vec<_>>()
        };
        assert_eq!(at(["ranks.py", "ranks.py", "loader.py", "ranks.py"]), [true]);
        assert!(at(["ranks.py"; 4]).is_empty());
        assert!(at(["a.py", "ranks.py", "loader.py", "ranks.py"]).is_empty());
    }

    #[test]
    fn rank_that_has_submitted_less_than_others_that_are_alike_is_suspected() {
        for (bytes, says) in [
            (&[7, 7, 6, 7][..], &["behind 2 3 7"][..]),
            (&[7, 7, 8, 7], &[]),
            (&[7, 9, 6, 7], &[]),
            (&[7, 6, 6, 7], &[]),
            (&[6, 7], &[]),
        ] {
            let ranks: Vec<(State, u64)> = bytes.iter().map(|&bytes| (InCall, bytes)).collect();
            assert_eq!(told(&machine("node", 0, &ranks, &[])), says, "{bytes:?}");
        }
        let mut lossy = machine("node", 0, &[(InCall, 7), (InCall, 6), (InCall, 7)], &[]);
        lossy[1].1.dropped = 1;
        assert!(told(&lossy).is_empty());
    }

    #[test]
    fn rank_that_has_ended_is_stopped_or_never_came_is_suspected_first() {
        let end = |mut all: Vec<(State, File)>, rank: usize, code: Option<i32>| {
            all[rank].1.end = End { code, ..End::default() };
            all
        };
        for others in [[Idle, InCall, Idle], [Idle, Idle, Idle], [InCall, InCall, InCall], [Moves, Moves, Moves]] {
            let all = of(&[others[0], others[1], Ended, others[2]]);
            assert_eq!(told(&end(all, 2, None)), ["ended 2"], "{others:?}");
            let all = of(&[others[0], others[1], Stopped, others[2]]);
            assert_eq!(told(&all), ["stopped 2"], "{others:?}");
        }
        // One that is done is missed by those in GPU calls only.
        assert_eq!(told(&end(of(&[InCall, Idle, Ended]), 2, Some(0))), ["ended 2"]);
        assert!(told(&end(of(&[Idle, Idle, Ended]), 2, Some(0))).is_empty());
        assert_eq!(told(&end(of(&[Idle, Idle, Ended]), 2, Some(1))), ["ended 2"]);
        assert!(told(&of(&[Ended, Ended])).is_empty());
        let three = |state| [(state, 7); 3];
        let [here, size] = [("LOCAL_WORLD_SIZE", "4"), ("WORLD_SIZE", "4")];
        assert_eq!(told(&machine("node", 0, &three(Idle), &[here, size])), ["missing [3] 1"]);
        assert_eq!(told(&machine("node", 0, &three(InCall), &[size])), ["missing [3] 0"]);
        // It may be elsewhere, and the others do what they like.
        assert!(told(&machine("node", 0, &three(Idle), &[size])).is_empty());
        assert_eq!(
            told(&machine("node", 1, &three(InCall), &[("SLURM_NTASKS_PER_NODE", "4(x2)"), ("WORLD_SIZE", "8")])),
            ["missing [0, 4, 5, 6, 7] 1"]
        );
    }

    #[test]
    fn suspect_of_each_machine_is_named() {
        let size = [("LOCAL_WORLD_SIZE", "3"), ("WORLD_SIZE", "9")];
        let mut all = machine("a", 0, &[(Idle, 7), (InCall, 7), (Idle, 7)], &size);
        all.extend(machine("b", 3, &[(InCall, 7), (InCall, 7), (Idle, 7)], &size));
        assert_eq!(told(&all), ["inside 1 2", "outside 5 2", "missing [6, 7, 8] 0"]);
        // Each alone on its machine: nothing tells.
        let mut alone = machine("a", 0, &[(Idle, 7)], &[]);
        alone.extend(machine("b", 1, &[(InCall, 7)], &[]));
        alone.extend(machine("c", 2, &[(Idle, 7)], &[]));
        assert!(told(&alone).is_empty());
    }

    #[test]
    fn processes_beside_ranks_are_not_suspected() {
        let mut all = of(&[InCall, InCall, Moves]);
        all[2].1.rank = None;
        all[2].0 = Ended;
        assert!(told(&all).is_empty());
        // Without ranks, a process that was ended by a signal is.
        let mut none = of(&[Idle, Ended]);
        none.iter_mut().for_each(|(_, file)| file.rank = None);
        assert_eq!(told(&none), ["ended "]);
        none[1].1.end.code = Some(1);
        assert!(told(&none).is_empty());
    }
}
