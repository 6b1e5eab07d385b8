//! The tests of all pairs at once: what is right for each pair alone may be wrong, or hang, when others copy too, or kernels store from
//! each GPU to each other one.

use std::thread;
use std::time::{Duration, Instant};

use super::cuda::{Address, Context, CudaError, Device, Driver, Event, Function, Result, Stream};
use super::kernel;
use super::lines::{Finding, Test, Verdict};
use super::pattern::difference;
use super::rig::Rig;

/// How much each pair copies in a round at most, and all pairs together.
const MOST_BYTES: usize = 16 << 20;
const ALL_BYTES: usize = 256 << 20;
/// In so many copies, which take turns with those of the other pairs.
const PIECES: usize = 4;
const ROUNDS: usize = 3;
/// How much the kernels of a pair store at most.
const STORED_BYTES: usize = 4 << 20;
/// Copies of each pair that are measured.
const MEASURED: usize = 8;
/// Between two looks at copies that are under way: a process that looks all the time takes the processor from others.
const MOMENT: Duration = Duration::from_millis(1);
/// It learns how the test continues. Pairs are told by their place in the list.
pub(super) trait Witness {
    /// How a pair came out.
    fn found(&self, pair: usize, test: Test, finding: &Finding);
    /// GB/s of a pair.
    fn measured(&self, pair: usize, speed: f64);
}

/// Copies from memory of a pair's first device to memory of the second, on a stream of the first.
struct Flow {
    devices: [Device; 2],
    contexts: [Context; 2],
    from: Address,
    to: Address,
    stream: Stream,
    /// How much it copies in a round.
    bytes: usize,
    /// Before and after the copies that are measured.
    events: [Event; 2],
    finding: Option<Finding>,
}

impl Flow {
    fn new(driver: &Driver, devices: [Device; 2], bytes: usize) -> Result<Self> {
        let [a, b] = devices.map(|device| driver.context(device));
        let contexts @ [a, b] = [a?, b?];
        let (to, from) = (driver.allocate(b, bytes)?, driver.allocate(a, bytes)?);
        let (stream, events) = (driver.stream(a)?, [driver.event()?, driver.event()?]);
        Ok(Self { devices, contexts, from, to, stream, bytes, events, finding: None })
    }

    /// Copies one piece of so many.
    fn copy(&self, driver: &Driver, piece: usize, pieces: usize) -> Result<()> {
        let [a, b] = self.contexts;
        let (bytes, offset) = (self.bytes / pieces, (piece * (self.bytes / pieces)) as u64);
        driver.enter(a)?;
        driver.copy((self.to + offset, b), (self.from + offset, a), bytes, self.stream)
    }

    fn is_done(&self, driver: &Driver) -> Result<bool> {
        driver.enter(self.contexts[0])?;
        driver.is_done(self.stream)
    }
}

/// Has all pairs copy at once, for so long, and says how each came out. The verdict is on those of which nothing was said.
pub(super) fn verify(rig: &Rig, pairs: &[[Device; 2]], time: Duration, witness: &impl Witness) -> Verdict {
    let driver = &rig.driver;
    // A whole number of pieces.
    let bytes = (ALL_BYTES / pairs.len().max(1)).clamp(1 << 20, MOST_BYTES) & !0xffff;
    let flows = enable(driver, pairs).and_then(|()| pairs.iter().map(|pair| Flow::new(driver, *pair, bytes)).collect());
    let mut flows: Vec<Flow> = match flows {
        Ok(flows) => flows,
        Err(error) => return Verdict::Unknown(error.to_string()),
    };
    let work = Work::Copies(bytes);
    for round in 0..ROUNDS {
        if let Err(why) = trial(rig, &mut flows, round, (&work, time)) {
            say(&flows, Test::AllPairs, witness);
            return Verdict::Unknown(why);
        }
    }
    let is_right = flows.iter().all(|flow| flow.finding.is_none());
    end(&mut flows, Test::AllPairs, witness);
    if is_right {
        if let Ok(speeds) = speeds(driver, &flows) {
            speeds.into_iter().enumerate().for_each(|(pair, speed)| witness.measured(pair, speed));
        }
        all_to_all(rig, &mut flows, time, witness);
    }
    Verdict::Passed
}

/// Has kernels store from each GPU to each other one.
fn all_to_all(rig: &Rig, flows: &mut [Flow], time: Duration, witness: &impl Witness) {
    let kernel = |flow: &Flow| rig.kernel_on((flow.devices[0], flow.contexts[0]), kernel::COPY);
    let kernels: Result<Vec<Function>> = flows.iter().map(kernel).collect();
    let bytes = flows.iter().map(|flow| flow.bytes.min(STORED_BYTES)).min().unwrap_or_default();
    let done = kernels.map_err(|error| error.to_string()).and_then(|kernels| {
        let work = Work::Kernels(kernels, bytes);
        trial(rig, flows, ROUNDS, (&work, time))
    });
    if let Err(why) = done {
        for flow in flows.iter_mut() {
            flow.finding.get_or_insert_with(|| Finding::Untested(why.clone()));
        }
    }
    end(flows, Test::AllToAll, witness);
}

/// Says how each flow came out, right if nothing is noted.
fn end(flows: &mut [Flow], test: Test, witness: &impl Witness) {
    for flow in flows.iter_mut() {
        flow.finding.get_or_insert(Finding::Right);
    }
    say(flows, test, witness);
    flows.iter_mut().for_each(|flow| flow.finding = None);
}

fn say(flows: &[Flow], test: Test, witness: &impl Witness) {
    for (pair, flow) in flows.iter().enumerate() {
        flow.finding.iter().for_each(|finding| witness.found(pair, test, finding));
    }
}

/// The work of all flows in a round, and how much each moves.
enum Work {
    /// Copies, in pieces that take turns.
    Copies(usize),
    /// A kernel of each flow stores it.
    Kernels(Vec<Function>, usize),
}

impl Work {
    fn bytes(&self) -> usize {
        match self {
            Self::Copies(bytes) | Self::Kernels(_, bytes) => *bytes,
        }
    }

    fn noun(&self) -> &'static str {
        match self {
            Self::Copies(_) => "copies",
            Self::Kernels(..) => "kernels",
        }
    }

    fn begin(&self, driver: &Driver, flows: &[Flow]) -> Result<()> {
        match self {
            Self::Copies(_) => {
                (0..PIECES).try_for_each(|piece| flows.iter().try_for_each(|flow| flow.copy(driver, piece, PIECES)))
            }
            Self::Kernels(kernels, bytes) => flows.iter().zip(kernels).try_for_each(|(flow, kernel)| {
                driver.enter(flow.contexts[0])?;
                driver.launch(*kernel, (flow.to, flow.from, *bytes as u64 / 8), flow.stream)
            }),
        }
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
    rig: &Rig,
    flows: &mut [Flow],
    round: usize,
    (work, time): (&Work, Duration),
) -> std::result::Result<(), String> {
    let (driver, count, bytes) = (&rig.driver, flows.len(), work.bytes());
    let part = |place: usize| rig.patterns.part((round * count + place) as u64, bytes);
    let begun = || {
        for (place, flow) in flows.iter().enumerate() {
            let ([a, b], [sent, stale]) = (flow.contexts, part(place));
            driver.write(a, flow.from, sent)?;
            driver.write(b, flow.to, stale)?;
        }
        for context in flows.iter().flat_map(|flow| flow.contexts) {
            driver.synchronize(context)?;
        }
        work.begin(driver, flows)
    };
    begun().map_err(|error: CudaError| error.to_string())?;
    wait(driver, flows, (work.noun(), time))?;
    for (place, flow) in flows.iter_mut().enumerate().filter(|(_, flow)| flow.finding.is_none()) {
        let ([_, b], [sent, _]) = (flow.contexts, part(place));
        let difference = rig.patterns.found(bytes, |found| {
            driver.read(b, flow.to, found)?;
            Ok(difference(sent, found))
        });
        let difference = difference.map_err(|error: CudaError| error.to_string())?;
        flow.finding = difference.map(|difference| Finding::Wrong(format!("{difference} (round {})", round + 1)));
    }
    Ok(())
}

/// Waits for all flows; notes those whose copies do not end, or whose device faults.
///
/// # Errors
/// There is one.
fn wait(driver: &Driver, flows: &mut [Flow], (noun, time): (&str, Duration)) -> std::result::Result<(), String> {
    let begin = Instant::now();
    let mut waiting: Vec<&mut Flow> = flows.iter_mut().collect();
    let mut ended_badly = false;
    while !waiting.is_empty() {
        let is_late = begin.elapsed() > time;
        waiting.retain_mut(|flow| {
            let finding = match flow.is_done(driver) {
                Ok(true) => return false,
                Ok(false) if !is_late => return true,
                Ok(false) => Finding::Hung(format!("its {noun} had not ended after {} s", time.as_secs_f64())),
                Err(error) if error.is_fault() => Finding::Wrong(error.to_string()),
                Err(error) => Finding::Untested(error.to_string()),
            };
            ended_badly = true;
            flow.finding = Some(finding);
            false
        });
        thread::sleep(MOMENT);
    }
    let why = || format!("another pair's {noun} did not end, or ended in a device fault");
    if ended_badly { Err(why()) } else { Ok(()) }
}

/// GB/s of each flow while all copy.
///
/// # Errors
/// It could not be found out.
fn speeds(driver: &Driver, flows: &[Flow]) -> Result<Vec<f64>> {
    let record = |end: usize| {
        flows.iter().try_for_each(|flow| {
            driver.enter(flow.contexts[0])?;
            flow.events.get(end).map_or(Ok(()), |event| driver.record(*event, flow.stream))
        })
    };
    record(0)?;
    for _ in 0..MEASURED {
        flows.iter().try_for_each(|flow| flow.copy(driver, 0, 1))?;
    }
    record(1)?;
    let speed = |flow: &Flow| {
        driver.enter(flow.contexts[0])?;
        driver.wait(flow.stream)?;
        let [begin, end] = flow.events;
        Ok((flow.bytes * MEASURED) as f64 / driver.elapsed(begin, end)? / 1e6)
    };
    flows.iter().map(speed).collect()
}
