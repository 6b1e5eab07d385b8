//! The tests of all pairs at once: what is right for each pair alone may be wrong, or hang, when others copy too, or kernels store from
//! each GPU to each other one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::additions::words;
use super::cuda::{Address, Context, CudaError, Device, Driver, Event, Function, Result, Stream};
use super::kernel;
use super::level::Level;
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
    /// A soak makes progress.
    fn goes_on(&self);
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

/// Has all pairs copy at once, for so long, and says how each came out. The verdict is on those of which nothing was said. In a soak it goes
/// on for so long.
pub(super) fn verify(
    rig: &Rig,
    pairs: &[[Device; 2]],
    (time, soak): (Duration, Duration),
    witness: &impl Witness,
) -> Verdict {
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
    if rig.level == Level::Full
        && let Err(why) = beside_host(rig, &contexts_of(&flows), || trial(rig, &mut flows, ROUNDS, (&work, time)))
    {
        say(&flows, Test::AllPairs, witness);
        return Verdict::Unknown(why);
    }
    let is_right = flows.iter().all(|flow| flow.finding.is_none());
    end(&mut flows, Test::AllPairs, witness);
    if is_right {
        if let Ok(speeds) = speeds(driver, &flows) {
            speeds.into_iter().enumerate().for_each(|(pair, speed)| witness.measured(pair, speed));
        }
        all_to_all(rig, &mut flows, time, witness);
        if rig.level == Level::Full {
            all_reduce(rig, &mut flows, time, witness);
        }
        soaked(rig, &mut flows, (&work, time, soak), witness);
    }
    Verdict::Passed
}

/// The contexts of flows, each once.
fn contexts_of(flows: &[Flow]) -> Vec<Context> {
    let mut contexts: Vec<Context> = Vec::new();
    for context in flows.iter().flat_map(|flow| flow.contexts) {
        if !contexts.contains(&context) {
            contexts.push(context);
        }
    }
    contexts
}

/// Does something while the host writes to each device.
fn beside_host<T>(rig: &Rig, contexts: &[Context], work: impl FnOnce() -> T) -> T {
    const WRITTEN: usize = 8 << 20;
    let is_over = AtomicBool::new(false);
    let write = |context: Context| {
        // To free it would wait for work that may hang.
        let Ok(memory) = rig.driver.allocate(context, WRITTEN) else { return };
        let [bytes, _] = rig.patterns.part(0, WRITTEN);
        while !is_over.load(Ordering::Relaxed) && rig.driver.write(context, memory, bytes).is_ok() {
            std::hint::spin_loop();
        }
    };
    thread::scope(|scope| {
        for &context in contexts {
            scope.spawn(move || write(context));
        }
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

/// Has them copy for so long: boards that are right when cold may fail when warm.
fn soaked(rig: &Rig, flows: &mut [Flow], (work, time, soak): (&Work, Duration, Duration), witness: &impl Witness) {
    let begin = Instant::now();
    for round in ROUNDS + 1.. {
        if begin.elapsed() >= soak {
            return;
        }
        witness.goes_on();
        let ended = trial(rig, flows, round, (work, time));
        if ended.is_err() || flows.iter().any(|flow| flow.finding.is_some()) {
            let after = format!(", after {} s", begin.elapsed().as_secs());
            for flow in flows.iter_mut() {
                if let Some(Finding::Wrong(text) | Finding::Hung(text)) = &mut flow.finding {
                    text.push_str(&after);
                }
            }
            return say(flows, Test::AllPairs, witness);
        }
    }
}

/// Has kernels store from each GPU to each other one.
fn all_to_all(rig: &Rig, flows: &mut [Flow], time: Duration, witness: &impl Witness) {
    let work = kernels(rig, flows, kernel::COPY).map(|kernels| Work::Kernels(kernels, stored(flows)));
    let done = work.and_then(|work| trial(rig, flows, ROUNDS, (&work, time)));
    end_with(done, flows, Test::AllToAll, witness);
}

/// Has kernels on each GPU add what they load from each other one, and then sums go around a ring.
fn all_reduce(rig: &Rig, flows: &mut [Flow], time: Duration, witness: &impl Witness) {
    let work = kernels(rig, flows, kernel::REDUCE).map(|kernels| Work::Reduces(kernels, stored(flows)));
    let done = work.and_then(|work| trial(rig, flows, ROUNDS, (&work, time)));
    let is_right = done.is_ok() && flows.iter().all(|flow| flow.finding.is_none());
    let done = if is_right { ring(rig, flows, time) } else { done };
    end_with(done, flows, Test::AllReduce, witness);
}

/// A GPU of a ring: the flow to the next, what adds there, and the data of the next there.
struct Member {
    place: usize,
    contexts: [Context; 2],
    from: Address,
    to: Address,
    stream: Stream,
    reduce: Function,
    own: Address,
}

/// Passes sums around a ring of all GPUs, if they have one: each adds its data to what arrives, and passes that on.
fn ring(rig: &Rig, flows: &mut [Flow], time: Duration) -> std::result::Result<(), String> {
    let (driver, bytes) = (&rig.driver, stored(flows));
    let mut devices: Vec<Device> = flows.iter().map(|flow| flow.devices[0]).collect();
    devices.sort_unstable();
    devices.dedup();
    let next = devices.iter().cycle().skip(1);
    let place = |(from, to): (&Device, &Device)| flows.iter().position(|flow| flow.devices == [*from, *to]);
    let Some(places) = devices.iter().zip(next).map(place).collect::<Option<Vec<usize>>>() else { return Ok(()) };
    let count = places.len();
    let data = |member: usize| rig.patterns.part((2000 + member % count) as u64, bytes)[0];
    let member = |(number, &place): (usize, &usize)| {
        let Some(&Flow { devices: [_, device], contexts, from, to, stream, .. }) = flows.get(place) else {
            return Ok(None);
        };
        let reduce = rig.kernel_on((device, contexts[1]), kernel::REDUCE)?;
        let own = driver.allocate(contexts[1], bytes)?;
        driver.write(contexts[0], from, data(number))?;
        driver.write(contexts[1], own, data(number + 1))?;
        driver.synchronize(contexts[1])?;
        Ok(Some(Member { place, contexts, from, to, stream, reduce, own }))
    };
    let said = |error: CudaError| error.to_string();
    let members = places.iter().enumerate().filter_map(|it| member(it).transpose());
    let members = members.collect::<Result<Vec<Member>>>().map_err(said)?;
    let mut sums: Vec<Vec<u64>> = (0..count).map(|member| words(data(member))).collect();
    for step in 1..count {
        let copy = |it: &Member| {
            driver.enter(it.contexts[0])?;
            driver.copy((it.to, it.contexts[1]), (it.from, it.contexts[0]), bytes, it.stream)
        };
        members.iter().try_for_each(copy).map_err(said)?;
        wait(driver, flows, ("copies", time))?;
        for (it, sum) in members.iter().zip(&sums) {
            let mut found = vec![0; bytes];
            driver.read(it.contexts[1], it.to, &mut found).map_err(said)?;
            let wrong = words(&found).iter().zip(sum).filter(|(found, sum)| found != sum).count();
            if let Some(flow) = flows.get_mut(it.place).filter(|_| wrong > 0) {
                let text = format!("{wrong} of {} words are wrong (step {step} around a ring)", sum.len());
                flow.finding = Some(Finding::Wrong(text));
                return Ok(());
            }
        }
        let pass = |(it, next): (&Member, &Member)| {
            driver.enter(next.contexts[0])?;
            driver.launch(it.reduce, (it.to, it.own, bytes as u64 / 8), next.stream)?;
            driver.copy((next.from, next.contexts[0]), (it.to, it.contexts[1]), bytes, next.stream)
        };
        members.iter().zip(members.iter().cycle().skip(1)).try_for_each(pass).map_err(said)?;
        wait(driver, flows, ("kernels", time))?;
        sums.rotate_right(1);
        sums.iter_mut().enumerate().for_each(|(member, sum)| *sum = added(sum, &words(data(member))));
    }
    Ok(())
}

fn added(one: &[u64], other: &[u64]) -> Vec<u64> {
    one.iter().zip(other).map(|(one, other)| one.wrapping_add(*other)).collect()
}

/// The kernel of each flow, on its first device.
fn kernels(rig: &Rig, flows: &[Flow], kernel: kernel::Kernel) -> std::result::Result<Vec<Function>, String> {
    let of = |flow: &Flow| rig.kernel_on((flow.devices[0], flow.contexts[0]), kernel);
    flows.iter().map(of).collect::<Result<Vec<_>>>().map_err(|error| error.to_string())
}

/// How much kernels store.
fn stored(flows: &[Flow]) -> usize {
    flows.iter().map(|flow| flow.bytes.min(STORED_BYTES)).min().unwrap_or_default()
}

/// Says how each flow came out, where those of which nothing is noted could not be tested if it ended badly.
fn end_with(done: std::result::Result<(), String>, flows: &mut [Flow], test: Test, witness: &impl Witness) {
    if let Err(why) = done {
        for flow in flows.iter_mut() {
            flow.finding.get_or_insert_with(|| Finding::Untested(why.clone()));
        }
    }
    end(flows, test, witness);
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
    /// A kernel of each flow loads it from the second device, and adds it to memory of the first.
    Reduces(Vec<Function>, usize),
}

impl Work {
    fn bytes(&self) -> usize {
        match self {
            Self::Copies(bytes) | Self::Kernels(_, bytes) | Self::Reduces(_, bytes) => *bytes,
        }
    }

    fn noun(&self) -> &'static str {
        match self {
            Self::Copies(_) => "copies",
            Self::Kernels(..) | Self::Reduces(..) => "kernels",
        }
    }

    fn begin(&self, driver: &Driver, flows: &[Flow]) -> Result<()> {
        match self {
            Self::Copies(_) => {
                (0..PIECES).try_for_each(|piece| flows.iter().try_for_each(|flow| flow.copy(driver, piece, PIECES)))
            }
            Self::Kernels(kernels, bytes) | Self::Reduces(kernels, bytes) => {
                let is_load = matches!(self, Self::Reduces(..));
                flows.iter().zip(kernels).try_for_each(|(flow, kernel)| {
                    let [to, from] = if is_load { [flow.from, flow.to] } else { [flow.to, flow.from] };
                    driver.enter(flow.contexts[0])?;
                    driver.launch(*kernel, (to, from, *bytes as u64 / 8), flow.stream)
                })
            }
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
        let ([a, b], [sent, stale]) = (flow.contexts, part(place));
        let sums = || added(&words(sent), &words(stale)).into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>();
        let summed = matches!(work, Work::Reduces(..)).then(sums);
        let (expected, context, at) = summed.as_ref().map_or((sent, b, flow.to), |sums| (sums, a, flow.from));
        let difference = rig.patterns.found(bytes, |found| {
            driver.read(context, at, found)?;
            Ok(difference(expected, found))
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
