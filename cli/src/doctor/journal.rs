//! The findings on each pair while it is tested, and who may still add to them.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::cuda::Address;
use super::lines::{Finding, Line, Measure, Path, Test, Verdict};
use crate::lock::lock;
use crate::processes::say;

/// How long two kernels may take that wait for each other, until they give up: simulated ones share the host's processors.
pub(super) const MEETING: Duration = Duration::from_secs(10);

/// The records of all pairs of this process, by their places in its request.
#[derive(Clone, Default)]
pub(super) struct Journal(Arc<Mutex<Vec<State>>>);

/// The record of one pair.
struct State {
    pair: [usize; 2],
    verdict: Verdict,
    findings: Vec<(Test, Finding)>,
    /// The test that fails if it never ends.
    test: Option<Test>,
    /// When it last made progress.
    moved: Instant,
    has_faulted: bool,
    /// Its devices are of no use any more.
    is_lost: bool,
    /// Nobody waits for it any more.
    is_over: bool,
    /// Whether another pair was tested at the same time.
    had_company: bool,
    /// Memory at which data was wrong.
    wrong_at: Option<Address>,
}

impl Journal {
    /// Begins anew.
    pub(super) fn open(&self, pairs: &[[usize; 2]]) {
        let state = |&pair: &[usize; 2]| State {
            pair,
            verdict: Verdict::Passed,
            findings: Vec::new(),
            test: None,
            moved: Instant::now(),
            has_faulted: false,
            is_lost: false,
            is_over: false,
            had_company: false,
            wrong_at: None,
        };
        *lock(&self.0) = pairs.iter().map(state).collect();
    }

    pub(super) fn entry(&self, place: usize) -> Entry {
        Entry { journal: self.clone(), place }
    }

    /// Whether a device of a pair is of no use any more.
    pub(super) fn is_lost(&self, pair: [usize; 2]) -> bool {
        let lost = |state: &State| state.is_lost && state.pair.iter().any(|device| pair.contains(device));
        lock(&self.0).iter().any(lost)
    }

    /// Whether any is.
    pub(super) fn has_lost(&self) -> bool {
        lock(&self.0).iter().any(|state| state.is_lost)
    }
}

/// Whether kernels wait for each other in a test.
pub(super) fn waits(test: Test) -> bool {
    matches!(test, Test::Flags | Test::Pull | Test::Ll | Test::Ll128 | Test::IpcKernels)
}

/// One pair in the journal.
#[derive(Clone)]
pub(super) struct Entry {
    journal: Journal,
    pub(super) place: usize,
}

impl Entry {
    /// Changes what is known, unless nobody waits for it.
    fn note<T>(&self, note: impl FnOnce(&mut State) -> T) -> Option<T> {
        let mut all = lock(&self.journal.0);
        let state = all.get_mut(self.place).filter(|state| !state.is_over)?;
        state.moved = Instant::now();
        Some(note(state))
    }

    fn read<T>(&self, read: impl FnOnce(&State) -> T) -> Option<T> {
        lock(&self.journal.0).get(self.place).map(read)
    }

    fn write(&self, line: Line) {
        say(&Line::Pair(self.place, Box::new(line)));
    }

    /// A test begins that may never end.
    pub(super) fn begin(&self, test: Test) {
        self.note(|state| state.test = Some(test));
        self.write(Line::Begun(test));
    }

    /// A part of a test is over.
    pub(super) fn moves(&self) {
        self.note(|_| ());
    }

    /// The next step may never end either, but says nothing of the pair.
    pub(super) fn rests(&self) {
        self.note(|state| state.test = None);
    }

    /// How a test came out; the last time counts.
    pub(super) fn found(&self, test: Test, finding: Finding) {
        let is_noted = self.note(|state| {
            state.test = None;
            state.findings.retain(|(known, _)| *known != test);
            state.findings.push((test, finding.clone()));
        });
        if is_noted.is_some() {
            self.write(Line::Found(test, finding));
        }
    }

    pub(super) fn finding(&self, test: Test) -> Option<Finding> {
        self.read(|state| state.findings.iter().find(|(known, _)| *known == test).map(|(_, finding)| finding.clone()))?
    }

    /// The tests that went wrong, if another pair was tested meanwhile.
    pub(super) fn wrong_ones(&self) -> Vec<(Test, String)> {
        let wrong = |(test, finding): &(Test, Finding)| match finding {
            Finding::Wrong(text) if *test != Test::AllMemory => Some((*test, text.clone())),
            _ => None,
        };
        let is_asked = |state: &State| state.had_company && !state.has_faulted;
        self.read(|state| state.findings.iter().filter(|_| is_asked(state)).filter_map(wrong).collect())
            .unwrap_or_default()
    }

    /// Notes that it cannot be said how the pair is, unless a test has failed before: that counts.
    pub(super) fn undecided(&self, why: String) {
        if !matches!(self.verdict(), Verdict::Failed(_)) {
            self.note(|state| state.verdict = Verdict::Unknown(why));
        }
    }

    /// Notes that a failure says nothing of the path.
    pub(super) fn set_not_of_path(&self, why: String) {
        self.note(|state| state.verdict = Verdict::Unknown(why));
    }

    /// Notes that there is nothing to test.
    pub(super) fn set_no_path(&self) {
        self.note(|state| state.verdict = Verdict::NoPath);
    }

    pub(super) fn measured(&self, path: Path, measure: Measure) {
        if self.note(|_| ()).is_some() {
            self.write(Line::Measured(path, measure));
        }
    }

    /// Notes that a device has faulted: it is of no use any more.
    pub(super) fn faulted(&self) {
        self.note(|state| (state.has_faulted, state.is_lost) = (true, true));
    }

    pub(super) fn has_faulted(&self) -> bool {
        self.read(|state| state.has_faulted) == Some(true)
    }

    /// Notes that its devices are of no use any more.
    pub(super) fn lost(&self) {
        self.note(|state| state.is_lost = true);
    }

    pub(super) fn accompanied(&self) {
        self.note(|state| state.had_company = true);
    }

    pub(super) fn set_wrong_at(&self, address: Option<Address>) {
        self.note(|state| state.wrong_at = address);
    }

    pub(super) fn wrong_at(&self) -> Option<Address> {
        self.read(|state| state.wrong_at)?
    }

    /// How long ago it made progress.
    pub(super) fn rested(&self) -> Duration {
        self.read(|state| state.moved.elapsed()).unwrap_or_default()
    }

    /// How long it may make no progress: kernels that wait for each other give up by themselves, which says nothing of the path.
    pub(super) fn patience(&self, usual: Duration) -> Duration {
        if self.read(|state| state.test.is_some_and(waits)) == Some(true) { usual.max(MEETING) } else { usual }
    }

    /// Gives up on a pair that has made no progress for so long.
    pub(super) fn give_up(&self, patience: Duration) {
        if let Some(Some(test)) = self.read(|state| state.test) {
            self.found(test, super::hung(patience));
        }
        self.note(|state| (state.is_lost, state.is_over) = (true, true));
    }

    /// The verdict of all tests together.
    pub(super) fn verdict(&self) -> Verdict {
        let of = |state: &State| match &state.verdict {
            Verdict::Passed => Test::ALL.iter().fold(Verdict::Passed, |verdict, test| {
                match state.findings.iter().find(|(known, _)| known == test) {
                    Some((_, finding)) => verdict.and(*test, finding.clone()),
                    None => verdict,
                }
            }),
            known => known.clone(),
        };
        self.read(of).unwrap_or(Verdict::Passed)
    }

    /// Says what is known in the end.
    pub(super) fn close(&self) {
        self.write(Line::Verdict(self.verdict()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undecided_leaves_a_failure_unless_it_is_not_of_the_path() {
        let journal = Journal::default();
        journal.open(&[[0, 1], [1, 0]]);
        let [failed, other] = [0, 1].map(|place| journal.entry(place));
        failed.found(Test::Copies, Finding::Right);
        failed.found(Test::Loads, Finding::Wrong("lost".to_owned()));
        other.found(Test::Copies, Finding::Right);
        [&failed, &other].into_iter().for_each(|entry| entry.undecided("no memory".to_owned()));
        assert_eq!(failed.verdict(), Verdict::Failed("kernel loads: lost".to_owned()));
        assert_eq!(other.verdict(), Verdict::Unknown("no memory".to_owned()));
        failed.set_not_of_path("wrong through the host too".to_owned());
        assert_eq!(failed.verdict(), Verdict::Unknown("wrong through the host too".to_owned()));
    }

    #[test]
    fn patience_is_longer_only_while_kernels_wait_for_each_other() {
        let journal = Journal::default();
        journal.open(&[[0, 1]]);
        let entry = journal.entry(0);
        for (test, [short, long]) in [
            (None, [1, 60]),
            (Some(Test::Stores), [1, 60]),
            (Some(Test::Flags), [MEETING.as_secs(), 60]),
            (Some(Test::IpcKernels), [MEETING.as_secs(), 60]),
        ] {
            entry.note(|state| state.test = test);
            assert_eq!([1, 60].map(|usual| entry.patience(Duration::from_secs(usual)).as_secs()), [short, long]);
        }
    }
}
