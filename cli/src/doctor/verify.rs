//! The verification of one pair, in a process of its own: what is done to the GPUs.
//!
//! Device A is to reach the memory of device B. Data goes from A to B by the copy engines of either, and a kernel on A
//! loads from B's memory, stores to it, adds to it by atomic operations if the link has them, and exchanges flags with one on B.
//! Then the copies are made by another process, to or from memory that is ours. Each time the place that it goes to holds other
//! bytes before, and the device that owns it reads it back.

use std::ffi::{CStr, CString};
use std::time::{Duration, Instant};

use super::additions;
use super::between::Between;
use super::cuda::{Address, Context, CudaError, Device, Driver, Function, Result, Stream};
use super::kernel;
use super::lines::{Finding, Measure, Path, Test, Verdict};
use super::memory;
use super::pattern::{difference, pattern, stale};

/// What is copied, and how often: a path may lose its first copy only, small ones only, or what lies beyond a window.
const SIZES: [(usize, u64); 4] = [(4 << 10, 2), (1 << 20, 2), (16 << 20, 1), (64 << 20, 1)];
/// How many of these are for the quick tests.
const QUICK: usize = 2;
/// How much one copy of the speed measurement moves.
const SPEED_BYTES: usize = 64 << 20;
/// How much a copy moves whose time is measured.
const SMALL_BYTES: usize = 4;
/// After so long a measurement makes do with what it has.
const PATIENCE: Duration = Duration::from_millis(500);

/// Why nothing more is tested.
pub(super) const AFTER_FAULT: &str = "the previous test ended in a device fault";

/// What is done with a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tests {
    /// Data is verified up to 1 MiB.
    Quick,
    /// Up to 64 MiB.
    Full,
    /// Between processes too, and speeds are measured.
    Measured,
    /// All of it, after memory was filled.
    AllMemory,
    /// None: the speed of copies through the host is measured, by whoever makes them.
    Staged,
}

impl Tests {
    /// The argument for a worker.
    pub(super) fn argument(self) -> Option<&'static str> {
        match self {
            Self::Quick => Some("--quick"),
            Self::Full => None,
            Self::Measured => Some("--speed"),
            Self::AllMemory => Some("--all-memory"),
            Self::Staged => Some("--staged"),
        }
    }

    /// Whether another process takes part, and speeds are measured.
    fn are_measured(self) -> bool {
        matches!(self, Self::Measured | Self::AllMemory)
    }

    fn sizes(self) -> &'static [(usize, u64)] {
        let (quick, _) = SIZES.split_at(QUICK);
        if self == Self::Quick { quick } else { &SIZES }
    }

    /// Numbers and sizes of the trials, from 1.
    fn rounds(self) -> impl Iterator<Item = (u64, usize)> {
        (1..).zip(self.sizes().iter().flat_map(|&(size, tries)| (0..tries).map(move |_| size)))
    }
}

/// Who learns how the verification goes on.
pub(super) trait Witness {
    /// What is done next; it may never end.
    fn begin(&self, test: Test);
    /// Another process takes part.
    fn partner(&self, process: u32);
    /// How a test came out.
    fn found(&self, test: Test, finding: &Finding);
    /// What is done next may never end either, but says nothing of the pair: measuring, starting another process.
    fn measuring(&self, verdict: &Verdict);
    /// How fast a path is.
    fn measured(&self, path: Path, measure: Measure);
}

/// One of the two devices.
#[derive(Clone, Copy)]
pub(super) struct Side {
    pub(super) device: Device,
    pub(super) context: Context,
    pub(super) memory: Address,
    pub(super) stream: Stream,
}

impl Side {
    fn new(driver: &Driver, device: Device, tests: Tests) -> Result<Self> {
        let context = driver.context(device)?;
        let largest = tests.sizes().iter().map(|(size, _)| *size).max().unwrap_or_default();
        let memory = driver.allocate(context, largest)?;
        Ok(Self { device, context, memory, stream: driver.stream(context)? })
    }

    pub(super) fn place(&self) -> (Address, Context) {
        (self.memory, self.context)
    }
}

/// Verifies that `from` reaches the memory of `to`, for so long.
pub(super) fn verify(
    driver: &Driver,
    [from, to]: [Device; 2],
    tests: Tests,
    time: Duration,
    witness: &impl Witness,
) -> Verdict {
    let begin = Instant::now();
    if tests == Tests::Staged {
        measure_without_path(driver, from, to, witness);
        return Verdict::NoPath;
    }
    let sides = match connect(driver, from, to, tests) {
        Ok(Some(sides)) => sides,
        Ok(None) => {
            if tests.are_measured() {
                measure_without_path(driver, from, to, witness);
            }
            return Verdict::NoPath;
        }
        Err(error) => return Verdict::Unknown(error.to_string()),
    };
    let verification = Verification { driver, sides, tests };
    // It starts CUDA while the other tests are made.
    let between = tests.are_measured().then(|| Between::start(&verification, time, witness));
    let (mut verdict, mut faulted) = verification.within_process(witness);
    if let Some(between) = between {
        witness.measuring(&verdict);
        for (test, finding) in between.test(&verification, &mut faulted, witness) {
            verdict = verdict.and(test, finding);
        }
    }
    let mut wrong_at = None;
    if tests == Tests::AllMemory && verdict == Verdict::Passed {
        witness.begin(Test::AllMemory);
        // What is slow is no failure, so it ends long before its time is over.
        let found = memory::verify(&verification, begin + time / 2);
        let outcome = found.unwrap_or_else(|error| of_error(&error, &mut faulted).into());
        witness.found(Test::AllMemory, &outcome.finding);
        verdict = verdict.and(Test::AllMemory, outcome.finding);
        wrong_at = outcome.wrong_at;
    }
    // What fails is tried through the host.
    let is_tried = matches!(verdict, Verdict::Failed(_)) && !faulted && verification.disconnect().is_ok();
    if is_tried && let Ok(Finding::Wrong(wrong)) = verification.copies_there_too(wrong_at) {
        return Verdict::Unknown(format!(
            "Data is wrong through the host as well, {wrong}: that is not the path's fault, but that of a GPU, of its memory or of the driver"
        ));
    }
    if tests.are_measured() && !faulted {
        witness.measuring(&verdict);
        if verdict == Verdict::Passed {
            verification.measure(Path::Direct, witness);
        }
        if is_tried || verification.disconnect().is_ok() {
            verification.measure(Path::Staged, witness);
        }
    }
    verdict
}

/// What an error of a test says of the pair, and whether a device has faulted.
pub(super) fn of_error(error: &CudaError, faulted: &mut bool) -> Finding {
    *faulted |= error.is_fault();
    if error.is_fault() { Finding::Wrong(error.to_string()) } else { Finding::Untested(error.to_string()) }
}

/// Measures copies between two devices of which neither reaches the other, or only the wrong one does.
fn measure_without_path(driver: &Driver, from: Device, to: Device, witness: &impl Witness) {
    witness.measuring(&Verdict::NoPath);
    let side = |device| Side::new(driver, device, Tests::Measured);
    if let (Ok(from), Ok(to)) = (side(from), side(to)) {
        Verification { driver, sides: [from, to], tests: Tests::Measured }.measure(Path::Staged, witness);
    }
}

/// Contexts, memory and access; none if the hardware has no path.
fn connect(driver: &Driver, from: Device, to: Device, tests: Tests) -> Result<Option<[Side; 2]>> {
    if !driver.can_access(from, to)? {
        return Ok(None);
    }
    let sides = [Side::new(driver, from, tests)?, Side::new(driver, to, tests)?];
    let [a, b] = &sides;
    driver.enable(a.context, b.context)?;
    // Whoever trusts a pair has it enabled both ways where it can be, and then either side may carry a copy out.
    if driver.can_access(to, from)? {
        driver.enable(b.context, a.context)?;
    }
    Ok(Some(sides))
}

pub(super) struct Verification<'a> {
    pub(super) driver: &'a Driver,
    pub(super) sides: [Side; 2],
    tests: Tests,
}

impl Verification<'_> {
    /// Makes the tests within this process. Says whether a device has faulted.
    fn within_process(&self, witness: &impl Witness) -> (Verdict, bool) {
        let (kernel, adding) = (self.kernel(), self.adding_kernel());
        let (mut verdict, mut faulted) = (Verdict::Passed, false);
        let is_made = |test: &Test| match test {
            Test::Atomics => adding.is_some(),
            Test::Flags => self.tests != Tests::Quick,
            _ => true,
        };
        for test in Test::OF_PROCESS.into_iter().filter(is_made) {
            witness.begin(test);
            let finding = match (test, &kernel, &adding) {
                // What a device returns after a fault says nothing of the next test.
                _ if faulted => Ok(Finding::Untested(AFTER_FAULT.to_owned())),
                (Test::Copies, ..) => self.copies(),
                (Test::Atomics, _, Some(ptx)) => self.additions(ptx),
                (Test::Flags, ..) => self.flags(),
                (_, Ok(kernel), _) => self.kernel_copies(*kernel, test),
                (_, Err(error), _) => Err(error.clone()),
            };
            let finding = finding.unwrap_or_else(|error| of_error(&error, &mut faulted));
            witness.found(test, &finding);
            verdict = verdict.and(test, finding);
        }
        (verdict, faulted)
    }

    /// Loads the kernel that copies on A.
    pub(super) fn kernel(&self) -> Result<Function> {
        let [a, _] = &self.sides;
        let ptx = kernel::copy(self.driver.capability(a.device)?);
        self.driver.kernel(a.context, &ptx, kernel::COPY)
    }

    /// The kernel that adds, if the link has native atomics. A driver that does not say so has none.
    fn adding_kernel(&self) -> Option<CString> {
        let [a, b] = &self.sides;
        let attributes = self.driver.attributes(a.device, b.device).ok().filter(|attributes| attributes.atomics);
        attributes.and_then(|_| kernel::add(self.driver.capability(a.device).ok()?))
    }

    /// Has a kernel on A add to words of B.
    fn additions(&self, ptx: &CStr) -> Result<Finding> {
        let (driver, [a, b]) = (self.driver, &self.sides);
        let kernel = driver.kernel(a.context, ptx, kernel::ADD)?;
        let before = pattern(700, additions::WORDS * 8);
        let (mut after, mut found) = (stale(&before), vec![0; additions::ADDITIONS * 8]);
        driver.write(b.context, b.memory, &before)?;
        driver.write(a.context, a.memory, &found)?;
        driver.synchronize(b.context)?;
        driver.synchronize(a.context)?;
        driver.launch(kernel, (b.memory, a.memory, additions::ADDITIONS as u64), a.stream)?;
        driver.wait(a.stream)?;
        driver.read(b.context, b.memory, &mut after)?;
        driver.read(a.context, a.memory, &mut found)?;
        let [before, after, found] = [&before, &after, &found].map(|bytes| additions::words(bytes));
        Ok(additions::wrong(&before, &after, &found).map_or(Finding::Right, Finding::Wrong))
    }

    /// Copies from A to B, on streams of both.
    fn copies(&self) -> Result<Finding> {
        let [a, b] = &self.sides;
        for (round, size) in self.tests.rounds() {
            for (engine, name) in [(a, "the source"), (b, "the destination")] {
                let seed = if engine.device == a.device { round } else { round + 100 };
                let wrong = self.trial(b, a, seed, size, || {
                    self.driver.enter(engine.context)?;
                    self.driver.copy(b.place(), a.place(), size, engine.stream)?;
                    self.driver.wait(engine.stream)
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
        let [a, b] = self.sides;
        match (self.copies()?, memory) {
            (Finding::Right, Some(memory)) => {
                Verification { driver: self.driver, sides: [a, Side { memory, ..b }], tests: Tests::Quick }.copies()
            }
            (finding, _) => Ok(finding),
        }
    }

    /// Has a kernel on A load from B, or store to B.
    fn kernel_copies(&self, kernel: Function, test: Test) -> Result<Finding> {
        let [a, b] = &self.sides;
        let (to, from, seed) = if test == Test::Loads { (a, b, 200) } else { (b, a, 300) };
        for (round, size) in self.tests.rounds() {
            let words = size as u64 / 8;
            let wrong = self.trial(to, from, seed + round, size, || {
                self.driver.enter(a.context)?;
                self.driver.launch(kernel, (to.memory, from.memory, words), a.stream)?;
                self.driver.wait(a.stream)
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
        seed: u64,
        size: usize,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<Option<String>> {
        let driver = self.driver;
        let sent = pattern(seed, size);
        let mut found = stale(&sent);
        driver.write(from.context, from.memory, &sent)?;
        driver.write(to.context, to.memory, &found)?;
        // A write from pageable memory may return before it is done, and our streams wait for no other.
        driver.synchronize(from.context)?;
        driver.synchronize(to.context)?;
        work()?;
        driver.read(to.context, to.memory, &mut found)?;
        Ok(difference(&sent, &found).map(|difference| difference.to_string()))
    }

    /// Disables the paths, so that copies go through the host.
    fn disconnect(&self) -> Result<()> {
        let [a, b] = &self.sides;
        self.driver.synchronize(a.context)?;
        self.driver.synchronize(b.context)?;
        self.driver.disable(a.context, b.context)?;
        if self.driver.can_access(b.device, a.device)? {
            self.driver.disable(b.context, a.context)?;
        }
        Ok(())
    }

    /// Tells how fast copies from A to B are as things are; nothing if that cannot be found out.
    fn measure(&self, path: Path, witness: &impl Witness) {
        if let (Ok(speed), Ok(latency)) = (self.speed(), self.latency()) {
            witness.measured(path, Measure { speed, latency });
        }
    }

    /// GB/s of copies from A to B: the best of three rounds of four, by the host's clock.
    fn speed(&self) -> Result<f64> {
        const ROUNDS: usize = 3;
        const COPIES: usize = 4;
        let [a, b] = &self.sides;
        let from = self.driver.allocate(a.context, SPEED_BYTES)?;
        let to = self.driver.allocate(b.context, SPEED_BYTES)?;
        self.driver.enter(a.context)?;
        let copy = || self.driver.copy((to, b.context), (from, a.context), SPEED_BYTES, a.stream);
        copy()?;
        self.driver.wait(a.stream)?;
        let mut best: f64 = 0.0;
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            for _ in 0..COPIES {
                copy()?;
            }
            self.driver.wait(a.stream)?;
            best = best.max((SPEED_BYTES * COPIES) as f64 / start.elapsed().as_secs_f64() / 1e9);
            if begin.elapsed() > PATIENCE {
                break;
            }
        }
        self.driver.free(a.context, from)?;
        self.driver.free(b.context, to)?;
        Ok(best)
    }

    /// Microseconds from asking for a small copy from A to B until it is known to be complete: the median.
    fn latency(&self) -> Result<f64> {
        const COPIES: usize = 200;
        let [a, b] = &self.sides;
        self.driver.enter(a.context)?;
        let mut times = Vec::with_capacity(COPIES);
        let begin = Instant::now();
        while times.len() < COPIES && begin.elapsed() < PATIENCE {
            let start = Instant::now();
            self.driver.copy(b.place(), a.place(), SMALL_BYTES, a.stream)?;
            self.driver.wait(a.stream)?;
            times.push(start.elapsed());
        }
        times.sort_unstable();
        Ok(times.get(times.len() / 2).copied().unwrap_or_default().as_secs_f64() * 1e6)
    }
}
