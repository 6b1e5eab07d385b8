//! The tests of one pair: what is done to the GPUs.
//!
//! Device A is to reach the memory of device B. Data goes from A to B by the copy engines of either, and a kernel on A
//! loads from B's memory, stores to it, adds to it by atomic operations if the link has them, and exchanges flags with one on B.
//! Then the copies are made by another process, to or from memory that is ours. Each time the place that it goes to holds other
//! bytes before, and the device that owns it reads it back.

use super::additions;
use super::cuda::{Address, CudaError, Event, Function, Result};
use super::journal::Entry;
use super::kernel::{self, Kind};
use super::lines::{Finding, Measure, Path, Test};
use super::pattern::{Difference, difference};
use super::rig::{Rig, Side};

/// How much a copy moves whose time is measured.
const SMALL_BYTES: usize = 4;

/// Why nothing more is tested.
pub(super) const AFTER_FAULT: &str = "the previous test ended in a device fault";

/// The beginning of the reason why nothing is known of a path, if data is wrong on the way through the host too.
pub(super) const THROUGH_HOST: &str = "Data is wrong through the host as well";

/// The finding on the pair that an error of a test stands for; a fault is noted.
pub(super) fn of_error(error: &CudaError, entry: &Entry) -> Finding {
    if error.is_fault() {
        entry.faulted();
        Finding::Wrong(error.to_string())
    } else {
        Finding::Untested(error.to_string())
    }
}

/// The verification of one pair.
pub(super) struct Verification<'a> {
    pub(super) rig: &'a Rig,
    /// Ordinals.
    pub(super) pair: [usize; 2],
    pub(super) sides: [Side; 2],
    pub(super) entry: Entry,
}

impl<'a> Verification<'a> {
    /// Prepares the tests of a pair, whose devices are ready.
    ///
    /// # Errors
    /// Why one is not.
    pub(super) fn new(rig: &'a Rig, pair @ [from, to]: [usize; 2], entry: Entry) -> std::result::Result<Self, String> {
        Ok(Self { rig, pair, sides: [rig.side(from)?, rig.side(to)?], entry })
    }

    /// The part of the pattern for a trial: other pairs have others.
    pub(super) fn number(&self, trial: u64) -> u64 {
        let [from, to] = self.pair;
        trial + (from * 131 + to * 17) as u64
    }

    /// Enables the paths.
    pub(super) fn connect(&self) -> Result<()> {
        let (driver, [a, b]) = (&self.rig.driver, &self.sides);
        driver.enable(a.context, b.context)?;
        // Whoever trusts a pair has it enabled both ways where it can be, and then either side may carry a copy out.
        if driver.can_access(b.device, a.device)? {
            driver.enable(b.context, a.context)?;
        }
        Ok(())
    }

    /// Disables the paths, so that copies go through the host.
    pub(super) fn disconnect(&self) -> Result<()> {
        let (driver, [a, b]) = (&self.rig.driver, &self.sides);
        driver.synchronize(a.context)?;
        driver.synchronize(b.context)?;
        driver.disable(a.context, b.context)?;
        if driver.can_access(b.device, a.device)? {
            driver.disable(b.context, a.context)?;
        }
        Ok(())
    }

    /// Makes the tests within this process.
    pub(super) fn within_process(&self, entry: &Entry) {
        if let Err(error) = self.connect() {
            return entry.undecided(error.to_string());
        }
        for &test in self.rig.level.tests() {
            if self.is_for(test) {
                self.test(test, entry);
            }
        }
        self.leave(entry);
    }

    /// Makes some of them again.
    pub(super) fn again(&self, tests: impl Iterator<Item = Test>, entry: &Entry) {
        let mut tests = tests.peekable();
        if tests.peek().is_some() && self.connect().is_ok() {
            tests.for_each(|test| self.test(test, entry));
            self.leave(entry);
        }
    }

    /// Sees whether copies through the host are right, where others are not.
    pub(super) fn through_host(&self, entry: &Entry) {
        entry.rests();
        if let Ok(Finding::Wrong(wrong)) = self.copies_there_too(entry.wrong_at()) {
            entry.set_not_of_path(format!(
                "{THROUGH_HOST}, {wrong}: a GPU, its memory or the driver is at fault, not the path"
            ));
        }
    }

    /// Ends what [`Verification::connect`] began. A device that has faulted is of no use any more.
    pub(super) fn leave(&self, entry: &Entry) {
        entry.rests();
        if self.disconnect().is_err() {
            entry.lost();
        }
    }

    fn test(&self, test: Test, entry: &Entry) {
        entry.begin(test);
        let finding = match test {
            // A code that a device returns after a fault says nothing of the next test.
            _ if entry.has_faulted() => Ok(Finding::Untested(AFTER_FAULT.to_owned())),
            Test::Copies => self.copies(),
            Test::Pools => self.granted(),
            Test::Graphs => self.graph(),
            Test::Atomics => self.additions(),
            Test::Flags | Test::Pull | Test::Ll | Test::Ll128 => self.flags(test),
            _ => self.kernel_copies(test),
        };
        entry.found(test, finding.unwrap_or_else(|error| of_error(&error, entry)));
    }

    /// The kernel that copies on A.
    pub(super) fn kernel(&self) -> Result<Function> {
        let [a, _] = &self.sides;
        self.rig.kernel(a, kernel::COPY)
    }

    /// Whether a test is for this pair: some are for links that have native atomics, which a driver that does not say so has not, and
    /// for GPUs that can run the kernels.
    fn is_for(&self, test: Test) -> bool {
        let (driver, [a, b]) = (&self.rig.driver, &self.sides);
        let can_run = |kind: Kind| self.capability().is_ok_and(|capability| kind.text(capability).is_some());
        let atomics = || driver.attributes(a.device, b.device).is_ok_and(|attributes| attributes.atomics);
        match test {
            Test::Atomics => atomics() && can_run(Kind::Add),
            // NCCL uses the protocol over NVLink only: elsewhere a line need not arrive whole.
            Test::Ll128 => self.rig.is_joined(self.pair).unwrap_or_else(atomics) && can_run(Kind::Ll128),
            _ => true,
        }
    }

    /// Has a kernel on A add to words of B.
    fn additions(&self) -> Result<Finding> {
        let (driver, [a, b]) = (&self.rig.driver, &self.sides);
        let kernel = self.rig.kernel(a, kernel::ADD)?;
        let [before, stale] = self.rig.patterns.part(self.number(700), additions::WORDS * 8);
        let (mut after, mut found) = (stale.to_vec(), vec![0; additions::ADDITIONS * 8]);
        driver.write(b.context, b.memory, before)?;
        driver.write(a.context, a.memory, &found)?;
        driver.synchronize(b.context)?;
        driver.synchronize(a.context)?;
        driver.launch(kernel, (b.memory, a.memory, additions::ADDITIONS as u64), a.stream)?;
        driver.wait(a.stream)?;
        driver.read(b.context, b.memory, &mut after)?;
        driver.read(a.context, a.memory, &mut found)?;
        let [before, after, found] = [before, &after, &found].map(additions::words);
        Ok(additions::wrong(&before, &after, &found).map_or(Finding::Right, Finding::Wrong))
    }

    /// Copies from A to B, on streams of both.
    fn copies(&self) -> Result<Finding> {
        let (driver, [a, b]) = (&self.rig.driver, &self.sides);
        for (round, size) in self.rig.level.rounds() {
            for (engine, name) in [(a, "the source"), (b, "the destination")] {
                let seed = if engine.device == a.device { round } else { round + 100 };
                let wrong = self.trial(b, a, seed, size, || {
                    driver.enter(engine.context)?;
                    driver.copy(b.place(), a.place(), size, engine.stream)?;
                    driver.wait(engine.stream)
                })?;
                if let Some(wrong) = wrong {
                    return Ok(Finding::Wrong(format!("{wrong} (copy {round}, on a stream of {name})")));
                }
            }
        }
        Ok(Finding::Right)
    }

    /// Copies from A to B, and to that memory of B.
    fn copies_there_too(&self, memory: Option<Address>) -> Result<Finding> {
        let (driver, [a, b]) = (&self.rig.driver, &self.sides);
        match (self.copies()?, memory) {
            (Finding::Right, Some(memory)) => {
                const SIZE: usize = 1 << 20;
                let there = &Side { memory, ..*b };
                let wrong = self.trial(there, a, 400, SIZE, || {
                    driver.enter(a.context)?;
                    driver.copy(there.place(), a.place(), SIZE, a.stream)?;
                    driver.wait(a.stream)
                })?;
                Ok(wrong.map_or(Finding::Right, |wrong| Finding::Wrong(wrong.to_string())))
            }
            (finding, _) => Ok(finding),
        }
    }

    /// Has a kernel on A load from B, or store to B.
    fn kernel_copies(&self, test: Test) -> Result<Finding> {
        let (driver, [a, b], kernel) = (&self.rig.driver, &self.sides, self.kernel()?);
        let (to, from, seed) = if test == Test::Loads { (a, b, 200) } else { (b, a, 300) };
        for (round, size) in self.rig.level.rounds() {
            let words = size as u64 / 8;
            let wrong = self.trial(to, from, seed + round, size, || {
                driver.enter(a.context)?;
                driver.launch(kernel, (to.memory, from.memory, words), a.stream)?;
                driver.wait(a.stream)
            })?;
            if let Some(wrong) = wrong {
                return Ok(Finding::Wrong(format!("{wrong} (launch {round})")));
            }
        }
        Ok(Finding::Right)
    }

    /// Has `work` move a pattern; returns how what arrived is wrong.
    pub(super) fn trial(
        &self,
        to: &Side,
        from: &Side,
        trial: u64,
        size: usize,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<Option<Difference>> {
        self.entry.moves();
        let driver = &self.rig.driver;
        let [sent, stale] = self.rig.patterns.part(self.number(trial), size);
        driver.write(from.context, from.memory, sent)?;
        driver.write(to.context, to.memory, stale)?;
        // A write from pageable memory may return before it is done, and our streams wait for no other.
        driver.synchronize(from.context)?;
        driver.synchronize(to.context)?;
        work()?;
        self.rig.patterns.found(size, |found| {
            driver.read(to.context, to.memory, found)?;
            Ok(difference(sent, found))
        })
    }

    /// Tells how fast copies from A to B are as things are; nothing if that cannot be found out.
    pub(super) fn measure(&self, path: Path, entry: &Entry) {
        if let Ok(measure) = self.times() {
            entry.measured(path, measure);
        }
    }

    /// Speed and latency, by events on the stream: a busy host makes no difference. The best of some rounds.
    fn times(&self) -> Result<Measure> {
        const ROUNDS: usize = 2;
        const COPIES: usize = 2;
        const SMALL_ROUNDS: usize = 20;
        let (driver, [a, b]) = (&self.rig.driver, &self.sides);
        driver.enter(a.context)?;
        let events = [driver.event()?, driver.event()?];
        let millis = |copies, bytes| {
            let [begin, end]: [Event; 2] = events;
            driver.record(begin, a.stream)?;
            (0..copies).try_for_each(|_| driver.copy(b.place(), a.place(), bytes, a.stream))?;
            driver.record(end, a.stream)?;
            driver.wait(a.stream)?;
            driver.elapsed(begin, end)
        };
        millis(1, SMALL_BYTES)?;
        let best = |rounds, copies, bytes| {
            (0..rounds).try_fold(f64::INFINITY, |best: f64, _| Ok(best.min(millis(copies, bytes)?)))
        };
        let bytes = self.rig.speed_bytes;
        let large = best(ROUNDS, COPIES, bytes)?;
        let small = best(SMALL_ROUNDS, 1, SMALL_BYTES)?;
        events.into_iter().try_for_each(|event| driver.destroy(event))?;
        Ok(Measure { speed: (bytes * COPIES) as f64 / large / 1e6, latency: small * 1e3 })
    }
}
