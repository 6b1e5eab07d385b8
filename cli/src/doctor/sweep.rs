//! All pairs in one process: those that have no GPU in common at the same time, in as many rounds as that takes.
//!
//! A copy or kernel that hangs keeps its thread, and its GPUs are of no use any more; the others continue. Pairs that it did not come to are for
//! another process.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::between::Between;
use super::journal::Entry;
use super::level::Level;
use super::lines::{Finding, Path, Test, Verdict};
use super::memory;
use super::rig::Rig;
use super::verify::{AFTER_FAULT, Verification, of_error};

/// How often it is looked whether pairs make progress.
const LOOK: Duration = Duration::from_millis(20);

/// The work for a pair.
type Work = Arc<dyn Fn(&Verification<'_>, &Entry) + Send + Sync>;

/// Which pairs may be tested at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    Others,
    Nobody,
}

/// The places of pairs in rounds: within a round groups have no device in common; a group is one pair, both ways.
fn rounds(pairs: &[([usize; 2], usize)], company: Company) -> Vec<Vec<Vec<usize>>> {
    let most = pairs.iter().flat_map(|(pair, _)| pair).max().copied().unwrap_or_default();
    let (has_last, circle) = (most % 2 == 1, most + 1 - most % 2);
    let mut keyed: Vec<((usize, [usize; 2]), usize)> = Vec::new();
    for &([from, to], place) in pairs {
        let both = [from.min(to), from.max(to)];
        let [one, other] = both;
        // The circle method: of an even number of devices all but the last go around.
        let round = match company {
            Company::Nobody => 0,
            Company::Others if has_last && other == most => 2 * one % circle,
            Company::Others => (one + other) % circle,
        };
        keyed.push(((round, both), place));
    }
    keyed.sort_unstable();
    let mut rounds: Vec<Vec<Vec<usize>>> = Vec::new();
    let mut before: Option<(usize, [usize; 2])> = None;
    for (key @ (round, both), place) in keyed {
        let is_same_round = before.is_some_and(|(known, _)| known == round) && company == Company::Others;
        match rounds.last_mut() {
            Some(last) if is_same_round => match last.last_mut() {
                Some(group) if before.is_some_and(|(_, known)| known == both) => group.push(place),
                _ => last.push(vec![place]),
            },
            _ => rounds.push(vec![vec![place]]),
        }
        before = Some(key);
    }
    rounds
}

/// The request, and the means to carry it out.
pub(super) struct Sweep<'a> {
    pub(super) rig: &'a Arc<Rig>,
    pub(super) pairs: &'a [[usize; 2]],
}

impl Sweep<'_> {
    fn entries(&self) -> Vec<Entry> {
        (0..self.pairs.len()).map(|place| self.rig.journal.entry(place)).collect()
    }

    /// Tests all pairs, and says how each came out to which it came.
    pub(super) fn test(&self, time: Duration) {
        self.rig.journal.open(self.pairs);
        let with_path = self.with_path();
        let devices = self.devices();
        let is_quick = self.rig.level == Level::Quick;
        // It starts CUDA while the other tests are made. Its arguments have to be there before.
        let early = is_quick.then(|| Between::start(self.rig, &devices));
        self.rig.prepare(&devices, time);
        let between = early.unwrap_or_else(|| Between::start(self.rig, &devices));
        self.each(&with_path, Company::Others, Arc::new(|pair, entry| pair.within_process(entry)));
        self.between(&with_path, &between, time);
        if self.rig.level == Level::Full {
            let passed = self.of(&with_path, |verdict| *verdict == Verdict::Passed);
            self.each(&passed, Company::Others, Arc::new(move |pair, entry| all_memory(pair, entry, time / 2)));
        }
        let failed = self.of(&with_path, |verdict| matches!(verdict, Verdict::Failed(_)));
        let beside = Arc::clone(&between);
        self.each(&failed, Company::Nobody, Arc::new(move |pair, entry| alone(pair, entry, &beside)));
        self.each(&failed, Company::Nobody, Arc::new(|pair, entry| pair.through_host(entry)));
        between.end();
        // A pair that shares a device with a lost one may lack tests.
        let last = if self.rig.level == Level::Full { &[Test::AllMemory] } else { self.rig.level.between() };
        let is_whole = |entry: &Entry| {
            entry.verdict() != Verdict::Passed || last.iter().all(|test| entry.finding(*test).is_some())
        };
        self.entries().iter().filter(|entry| is_whole(entry)).for_each(Entry::close);
    }

    /// Measures pairs, one after the other: directly where that is wanted, and through the host.
    pub(super) fn measure(&self, time: Duration, is_direct: bool) {
        self.rig.journal.open(self.pairs);
        self.rig.prepare(&self.devices(), time);
        let all: Vec<usize> = (0..self.pairs.len()).collect();
        let work = move |pair: &Verification<'_>, entry: &Entry| {
            if is_direct && pair.connect().is_ok() {
                pair.measure(Path::Direct, entry);
                pair.leave(entry);
            }
            pair.measure(Path::Staged, entry);
        };
        self.each(&all, Company::Nobody, Arc::new(work));
    }

    /// The places of pairs that have a path; of the others it is noted that they have none.
    fn with_path(&self) -> Vec<usize> {
        let device = |ordinal: usize| self.rig.devices.get(ordinal).copied().unwrap_or_default();
        let mut places = Vec::new();
        for (entry, [from, to]) in self.entries().iter().zip(self.pairs) {
            match self.rig.driver.can_access(device(*from), device(*to)) {
                Ok(true) => places.push(entry.place),
                Ok(false) => entry.set_no_path(),
                Err(error) => entry.undecided(error.to_string()),
            }
        }
        places
    }

    /// Each device of the pairs, once.
    fn devices(&self) -> Vec<usize> {
        let mut devices: Vec<usize> = self.pairs.as_flattened().to_vec();
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    fn of(&self, places: &[usize], wanted: impl Fn(&Verdict) -> bool) -> Vec<usize> {
        places.iter().copied().filter(|&place| wanted(&self.rig.journal.entry(place).verdict())).collect()
    }

    /// Has the other process copy.
    fn between(&self, places: &[usize], between: &Arc<Between>, time: Duration) {
        let is_there = between.wait(time);
        let decided = |verdict: &Verdict| matches!(verdict, Verdict::Passed | Verdict::Failed(_));
        let places = self.of(places, decided);
        for entry in places.iter().map(|&place| self.rig.journal.entry(place)) {
            let why = if entry.has_faulted() { Some(AFTER_FAULT.to_owned()) } else { is_there.clone().err() };
            if let Some(why) = why {
                let tests = self.rig.level.between().iter();
                tests.for_each(|test| entry.found(*test, Finding::Untested(why.clone())));
            }
        }
        if is_there.is_ok() {
            let between = Arc::clone(between);
            self.each(&places, Company::Others, Arc::new(move |pair, entry| between.test(pair, entry)));
        }
    }

    /// Does a piece of work for each of these pairs whose devices can be used.
    fn each(&self, places: &[usize], company: Company, work: Work) {
        let pairs: Vec<([usize; 2], usize)> =
            places.iter().filter_map(|&place| Some((*self.pairs.get(place)?, place))).collect();
        for round in rounds(&pairs, company) {
            let (sender, ended) = mpsc::channel();
            let mut running: Vec<(usize, Vec<Entry>)> = Vec::new();
            let has_company = round.len() > 1;
            for (number, group) in round.into_iter().enumerate() {
                let entries: Vec<Entry> = group.iter().map(|&place| self.rig.journal.entry(place)).collect();
                let (rig, work, sender, run) =
                    (Arc::clone(self.rig), Arc::clone(&work), sender.clone(), entries.clone());
                let pairs: Vec<[usize; 2]> = group.iter().filter_map(|&place| self.pairs.get(place).copied()).collect();
                entries.iter().filter(|_| has_company).for_each(Entry::accompanied);
                running.push((number, entries));
                thread::spawn(move || {
                    for (entry, pair) in run.iter().zip(pairs).filter(|(_, pair)| !rig.journal.is_lost(*pair)) {
                        entry.rests();
                        match Verification::new(&rig, pair, entry.clone()) {
                            Ok(pair) => work(&pair, entry),
                            Err(why) => entry.undecided(why),
                        }
                        entry.rests();
                    }
                    let _ = sender.send(number);
                });
            }
            self.wait(&mut running, &ended);
        }
    }

    /// Waits for groups that run, but not for those that make no progress.
    fn wait(&self, running: &mut Vec<(usize, Vec<Entry>)>, ended: &mpsc::Receiver<usize>) {
        while !running.is_empty() {
            match ended.recv_timeout(LOOK) {
                Ok(number) => running.retain(|(known, _)| *known != number),
                Err(RecvTimeoutError::Timeout) => running.retain(|(_, group)| {
                    let latest = group.iter().min_by_key(|entry| entry.rested());
                    let late = latest.filter(|entry| entry.rested() > entry.patience(self.rig.patience));
                    late.into_iter().for_each(|entry| entry.give_up(entry.patience(self.rig.patience)));
                    late.is_none()
                }),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// Makes those tests again that went wrong beside others. A test that is right now was wrong because of those.
fn alone(pair: &Verification<'_>, entry: &Entry, between: &Between) {
    let wrong = entry.wrong_ones();
    pair.again(wrong.iter().map(|(test, _)| *test).filter(|test| !Test::BETWEEN_PROCESSES.contains(test)), entry);
    if wrong.iter().any(|(test, _)| Test::BETWEEN_PROCESSES.contains(test)) {
        between.test(pair, entry);
    }
    if let Some((test, wrong)) = wrong.iter().find(|(test, _)| entry.finding(*test) == Some(Finding::Right)) {
        let text = format!("{} while other pairs were tested: {wrong}; right alone", test.name());
        entry.found(Test::AllPairs, Finding::Wrong(text));
    }
}

/// Fills the memory of B, and tests what A does to it.
fn all_memory(pair: &Verification<'_>, entry: &Entry, time: Duration) {
    if let Err(error) = pair.connect() {
        return entry.found(Test::AllMemory, Finding::Untested(error.to_string()));
    }
    entry.begin(Test::AllMemory);
    // A slow test is no failure, so it ends long before its time is over.
    let found = memory::verify(pair, entry, Instant::now() + time);
    let outcome = found.unwrap_or_else(|error| of_error(&error, entry).into());
    entry.set_wrong_at(outcome.wrong_at);
    entry.found(Test::AllMemory, outcome.finding);
    pair.leave(entry);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(devices: usize) -> Vec<([usize; 2], usize)> {
        let pairs = (0..devices).flat_map(|from| (0..devices).map(move |to| [from, to]));
        pairs.filter(|[from, to]| from != to).zip(0..).collect()
    }

    #[test]
    fn rounds_have_each_pair_once_and_no_device_twice() {
        for devices in 2..=16 {
            let pairs = all(devices);
            let rounds = rounds(&pairs, Company::Others);
            let mut seen: Vec<usize> = Vec::new();
            for round in &rounds {
                let mut used = Vec::new();
                for group in round {
                    assert_eq!(group.len(), 2, "both ways");
                    let [from, to] = pairs[group[0]].0;
                    assert_eq!(pairs[group[1]].0, [to, from]);
                    used.extend([from, to]);
                    seen.extend(group);
                }
                let count = used.len();
                used.sort_unstable();
                used.dedup();
                assert_eq!(used.len(), count, "{devices} devices: {round:?}");
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..pairs.len()).collect::<Vec<_>>());
            assert_eq!(rounds.len(), devices - 1 + devices % 2, "as few as can be");
        }
    }

    #[test]
    fn rounds_alone_are_of_one_pair() {
        let rounds = rounds(&all(4), Company::Nobody);
        assert!(rounds.len() == 12 && rounds.iter().all(|round| matches!(&round[..], [group] if group.len() == 1)));
    }
}
