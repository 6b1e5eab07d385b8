//! The test of all pairs at once: what is right for each pair alone may be wrong, or hang, when others copy too.

use std::thread;
use std::time::{Duration, Instant};

use super::cuda::{Address, Context, CudaError, Device, Driver, Result, Stream};
use super::lines::{Finding, Test, Verdict};
use super::pattern::{difference, pattern, stale};

/// How much each pair copies in a round.
const BYTES: usize = 16 << 20;
/// In so many copies, which take turns with those of the other pairs.
const PIECES: usize = 4;
const ROUNDS: usize = 3;
/// Copies of each pair that are measured.
const MEASURED: usize = 16;
/// What each pair sends in a round is this many bytes further on in the same pattern, and different at each place.
const STEP: usize = 4096;
/// How long before the end of its time this process says what has not ended: a round may take a second with many GPUs.
const MARGIN: Duration = Duration::from_secs(2);
/// Copies that have not ended by then do not end: a round takes some 10 ms.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// Who learns how it goes on. Pairs are told by their place in the list.
pub(super) trait Witness {
    /// Copies begin, which may never end.
    fn begin(&self, test: Test);
    /// How a pair came out.
    fn found(&self, pair: usize, finding: &Finding);
    /// What is done next may never end either, but says nothing of the pairs.
    fn measuring(&self, verdict: &Verdict);
    /// GB/s of a pair.
    fn measured(&self, pair: usize, speed: f64);
}

/// Copies from memory of a pair's first device to memory of the second, on a stream of the first.
struct Flow {
    contexts: [Context; 2],
    from: Address,
    to: Address,
    stream: Stream,
    finding: Option<Finding>,
}

impl Flow {
    fn new(driver: &Driver, devices: [Device; 2]) -> Result<Self> {
        let [a, b] = devices.map(|device| driver.context(device));
        let contexts @ [a, b] = [a?, b?];
        let (from, to) = (driver.allocate(a, BYTES)?, driver.allocate(b, BYTES)?);
        Ok(Self { contexts, from, to, stream: driver.stream(a)?, finding: None })
    }

    /// Copies one piece of so many.
    fn copy(&self, driver: &Driver, piece: usize, pieces: usize) -> Result<()> {
        let [a, b] = self.contexts;
        let (bytes, offset) = (BYTES / pieces, (piece * (BYTES / pieces)) as u64);
        driver.enter(a)?;
        driver.copy((self.to + offset, b), (self.from + offset, a), bytes, self.stream)
    }

    fn is_done(&self, driver: &Driver) -> Result<bool> {
        driver.enter(self.contexts[0])?;
        driver.is_done(self.stream)
    }
}

/// What is sent: a pattern, of which each pair sends a part of its own in each round.
struct Sent {
    pattern: Vec<u8>,
    stale: Vec<u8>,
}

impl Sent {
    fn new(parts: usize) -> Self {
        let pattern = pattern(600, BYTES + parts * STEP);
        Self { stale: stale(&pattern), pattern }
    }

    /// A part, and what its place holds before.
    fn part(&self, number: usize) -> [&[u8]; 2] {
        let range = number * STEP..number * STEP + BYTES;
        [&self.pattern, &self.stale].map(|bytes| bytes.get(range.clone()).unwrap_or_default())
    }
}

/// Has all pairs copy at once, for so long, and says how each came out. The verdict is on those of which nothing was said.
pub(super) fn verify(driver: &Driver, pairs: &[[Device; 2]], time: Duration, witness: &impl Witness) -> Verdict {
    let deadline = Instant::now() + time.saturating_sub(MARGIN);
    let flows = enable(driver, pairs).and_then(|()| pairs.iter().map(|pair| Flow::new(driver, *pair)).collect());
    let mut flows: Vec<Flow> = match flows {
        Ok(flows) => flows,
        Err(error) => return Verdict::Unknown(error.to_string()),
    };
    witness.begin(Test::AllPairs);
    let sent = Sent::new(ROUNDS * flows.len());
    for round in 0..ROUNDS {
        if let Err(why) = trial(driver, &mut flows, &sent, round, deadline) {
            say(&flows, witness);
            return Verdict::Unknown(why);
        }
    }
    let is_right = flows.iter().all(|flow| flow.finding.is_none());
    flows.iter_mut().for_each(|flow| {
        flow.finding.get_or_insert(Finding::Right);
    });
    say(&flows, witness);
    witness.measuring(&Verdict::Passed);
    if is_right && let Ok(speeds) = speeds(driver, &flows, deadline) {
        speeds.into_iter().enumerate().for_each(|(pair, speed)| witness.measured(pair, speed));
    }
    Verdict::Passed
}

fn say(flows: &[Flow], witness: &impl Witness) {
    for (pair, flow) in flows.iter().enumerate() {
        flow.finding.iter().for_each(|finding| witness.found(pair, finding));
    }
}

/// Enables access for all pairs. Without NVSwitch a device may have eight peers at most.
fn enable(driver: &Driver, pairs: &[[Device; 2]]) -> Result<()> {
    pairs.iter().try_for_each(|&[from, to]| driver.enable(driver.context(from)?, driver.context(to)?))
}

/// One round, in which each flow sends a part of its own; notes what is wrong.
///
/// # Errors
/// Why the flows of which nothing is noted could not be tested.
fn trial(
    driver: &Driver,
    flows: &mut [Flow],
    sent: &Sent,
    round: usize,
    deadline: Instant,
) -> std::result::Result<(), String> {
    if Instant::now() >= deadline {
        return Err("there was too little time; raise --timeout".to_owned());
    }
    let count = flows.len();
    let part = |place: usize| sent.part(round * count + place);
    let begun = || {
        for (place, flow) in flows.iter().enumerate() {
            let ([a, b], [sent, stale]) = (flow.contexts, part(place));
            driver.write(a, flow.from, sent)?;
            driver.write(b, flow.to, stale)?;
        }
        for context in flows.iter().flat_map(|flow| flow.contexts) {
            driver.synchronize(context)?;
        }
        (0..PIECES).try_for_each(|piece| flows.iter().try_for_each(|flow| flow.copy(driver, piece, PIECES)))
    };
    begun().map_err(|error: CudaError| error.to_string())?;
    wait(driver, flows, deadline)?;
    let mut found = vec![0; BYTES];
    for (place, flow) in flows.iter_mut().enumerate().filter(|(_, flow)| flow.finding.is_none()) {
        let ([_, b], [sent, _]) = (flow.contexts, part(place));
        driver.read(b, flow.to, &mut found).map_err(|error| error.to_string())?;
        let wrong = difference(sent, &found).map(|difference| format!("{difference} (round {})", round + 1));
        flow.finding = wrong.map(Finding::Wrong);
    }
    Ok(())
}

/// Waits for all flows; notes those whose copies do not end, or whose device faults.
///
/// # Errors
/// There is one.
fn wait(driver: &Driver, flows: &mut [Flow], deadline: Instant) -> std::result::Result<(), String> {
    let begin = Instant::now();
    let mut waiting: Vec<&mut Flow> = flows.iter_mut().collect();
    let mut ended_badly = false;
    while !waiting.is_empty() {
        let is_late = Instant::now() >= deadline;
        waiting.retain_mut(|flow| {
            let finding = match flow.is_done(driver) {
                Ok(true) => return false,
                Ok(false) if !is_late || begin.elapsed() < LEAST_WAIT => return true,
                Ok(false) => Finding::Hung(format!("its copies had not ended after {} s", begin.elapsed().as_secs())),
                Err(error) if error.is_fault() => Finding::Wrong(error.to_string()),
                Err(error) => Finding::Untested(error.to_string()),
            };
            ended_badly = true;
            flow.finding = Some(finding);
            false
        });
        thread::yield_now();
    }
    if ended_badly { Err("another pair's copies did not end, or ended in a device fault".to_owned()) } else { Ok(()) }
}

/// GB/s of each flow while all copy; none if they take too long.
///
/// # Errors
/// It could not be found out.
fn speeds(driver: &Driver, flows: &[Flow], deadline: Instant) -> Result<Vec<f64>> {
    let begin = Instant::now();
    for _ in 0..MEASURED {
        flows.iter().try_for_each(|flow| flow.copy(driver, 0, 1))?;
    }
    let mut times: Vec<Option<Duration>> = vec![None; flows.len()];
    while times.iter().any(Option::is_none) && Instant::now() < deadline {
        for (flow, time) in flows.iter().zip(&mut times).filter(|(_, time)| time.is_none()) {
            *time = flow.is_done(driver)?.then(|| begin.elapsed());
        }
    }
    let speed = |time: Duration| (BYTES * MEASURED) as f64 / time.as_secs_f64() / 1e9;
    Ok(times.into_iter().map(|time| time.map(speed)).collect::<Option<_>>().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_differ_at_each_place() {
        let sent = Sent::new(3);
        let [first, second] = [sent.part(0), sent.part(2)];
        assert!(first[0].len() == BYTES && second[1].len() == BYTES);
        assert!(first[0].chunks(8).zip(second[0].chunks(8)).all(|(one, other)| one != other));
        assert!(second[0].iter().zip(second[1]).all(|(sent, stale)| sent != stale));
    }
}
