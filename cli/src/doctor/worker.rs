//! The process that touches the GPUs, since work on them may never end: it lists them, verifies one pair, or takes part in that,
//! and writes [lines](super::lines). A thread of its own ends it when its time is over.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use super::cuda::{Device, Driver};
use super::lines::{Finding, Line, Measure, Path, Test, Verdict};
use super::verify::{self, Tests, Witness};
use super::{at_once, partner, runtimes};
use crate::nvml::{Handle, Nvml};

/// What to do: list the devices, or verify a pair.
#[derive(Args)]
pub(crate) struct WorkerArguments {
    /// After how many seconds to give up
    #[arg(long, value_name = "SECONDS", default_value_t = super::TIMEOUT_S)]
    timeout: u64,
    /// Measure the speed of copies too
    #[arg(long)]
    speed: bool,
    /// Measure, and fill memory before that
    #[arg(long)]
    all_memory: bool,
    /// Test small sizes only
    #[arg(long)]
    quick: bool,
    /// Test nothing, and measure copies through the host
    #[arg(long)]
    staged: bool,
    /// Take part in the verification by another process
    #[arg(long)]
    partner: bool,
    /// Have all pairs copy at once
    #[arg(long)]
    all_pairs: bool,
    /// UUIDs of the device that reaches and of the one that is reached, of one pair or of each; none: list all devices
    #[arg(value_name = "FROM TO")]
    pairs: Vec<String>,
}

impl WorkerArguments {
    fn tests(&self) -> Tests {
        let known = [
            (self.all_memory, Tests::AllMemory),
            (self.speed, Tests::Measured),
            (self.quick, Tests::Quick),
            (self.staged, Tests::Staged),
        ];
        known.into_iter().find(|(is_asked, _)| *is_asked).map_or(Tests::Full, |(_, tests)| tests)
    }
}

/// Does it.
pub(crate) fn run(arguments: &WorkerArguments) -> ExitCode {
    let (journal, time) = (Journal::default(), Duration::from_secs(arguments.timeout));
    start_watchdog(journal.clone(), time);
    let (pairs, rest) = arguments.pairs.as_chunks();
    let verdict = match pairs {
        _ if !rest.is_empty() => Verdict::Unknown("a device without another to make a pair".to_owned()),
        [pair] if arguments.partner => {
            if let Err(why) = serve(pair) {
                partner::refuse(&why);
            }
            leave(0)
        }
        pairs if arguments.all_pairs => all_pairs(&journal, pairs, time),
        [[from, to]] => verify(&journal, from, to, arguments.tests(), time),
        _ => list(&journal).map_or_else(Verdict::Unknown, |()| Verdict::Passed),
    };
    journal.end(&verdict)
}

/// # Errors
/// A sentence for the user.
fn list(journal: &Journal) -> Result<(), String> {
    let driver = Driver::start()?;
    let mut uuids = Vec::new();
    let mut told = || {
        journal.write(&Line::Driver(driver.version()?));
        let devices = driver.devices()?;
        for (ordinal, &device) in devices.iter().enumerate() {
            let (bus_id, uuid, name) = (driver.bus_id(device)?, driver.uuid(device)?, driver.name(device)?);
            uuids.push(uuid.clone());
            journal.write(&Line::Device { ordinal, bus_id, uuid, name });
        }
        for (from, &device) in devices.iter().enumerate() {
            for (to, &peer) in devices.iter().enumerate() {
                if from != to && driver.can_access(device, peer)? {
                    journal.write(&Line::Path(from, to));
                    if let Ok(attributes) = driver.attributes(device, peer) {
                        journal.write(&Line::Attributes(from, to, attributes));
                    }
                }
            }
        }
        super::cuda::Result::Ok(())
    };
    told().map_err(|error| error.to_string())?;
    runtimes::found().for_each(|(version, name)| journal.write(&Line::Runtime(version, name.to_owned())));
    if let Some(nvml) = Nvml::start() {
        known(&nvml, &uuids).iter().for_each(|line| journal.write(line));
    }
    Ok(())
}

/// What NVML knows of devices with these UUIDs, by their places.
fn known(nvml: &Nvml, uuids: &[String]) -> Vec<Line> {
    let handles: Vec<Option<Handle>> = uuids.iter().map(|uuid| nvml.device(uuid)).collect();
    let known = || handles.iter().enumerate().filter_map(|(ordinal, handle)| Some((ordinal, (*handle)?)));
    let mut lines: Vec<Line> = nvml.is_confidential().map(Line::Confidential).into_iter().collect();
    for (ordinal, device) in known() {
        lines.extend(nvml.bar1(device).map(|bytes| Line::Bar1(ordinal, bytes)));
        lines.extend(nvml.is_mig(device).map(|is_on| Line::Mig(ordinal, is_on)));
        lines.push(Line::Links(ordinal, nvml.links(device)));
    }
    for (from, device) in known() {
        let peers = known().filter(|&(to, peer)| to != from && nvml.has_nvlink(device, peer));
        lines.extend(peers.map(|(to, _)| Line::NvLink(from, to)));
    }
    lines
}

/// Takes part in another process's verification.
///
/// # Errors
/// Why it cannot, for the user.
fn serve([from, to]: &[String; 2]) -> Result<(), String> {
    let driver = Driver::start()?;
    let devices = [device(&driver, from)?, device(&driver, to)?];
    partner::serve(&driver, devices).map_err(|error| error.to_string())
}

fn all_pairs(journal: &Journal, pairs: &[[String; 2]], time: Duration) -> Verdict {
    let begin = Instant::now();
    let found = Driver::start().and_then(|driver| {
        let devices = |[from, to]: &[String; 2]| Ok([device(&driver, from)?, device(&driver, to)?]);
        let devices: Vec<[Device; 2]> = pairs.iter().map(devices).collect::<Result<_, String>>()?;
        Ok(at_once::verify(&driver, &devices, time.saturating_sub(begin.elapsed()), journal))
    });
    found.unwrap_or_else(Verdict::Unknown)
}

fn verify(journal: &Journal, from: &str, to: &str, tests: Tests, time: Duration) -> Verdict {
    let driver = match Driver::start() {
        Ok(driver) => driver,
        Err(why) => return Verdict::Unknown(why),
    };
    let found = |uuid| device(&driver, uuid);
    match (found(from), found(to)) {
        (Ok(one), Ok(other)) if one == other => Verdict::Unknown(format!("{from} and {to} are the same GPU")),
        (Ok(from), Ok(to)) => verify::verify(&driver, [from, to], tests, time, journal),
        (Err(why), _) | (_, Err(why)) => Verdict::Unknown(why),
    }
}

/// The device of that UUID.
fn device(driver: &Driver, wanted: &str) -> Result<Device, String> {
    for device in driver.devices().map_err(|error| error.to_string())? {
        if driver.uuid(device).map_err(|error| error.to_string())?.eq_ignore_ascii_case(wanted) {
            return Ok(device);
        }
    }
    Err(format!("the driver does not show GPU {wanted} to this process"))
}

/// Where the process is, and who may still write.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    stage: Stage,
    is_over: bool,
}

/// What never ending would mean.
#[derive(Clone, Default)]
enum Stage {
    /// CUDA does not start.
    #[default]
    Starting,
    /// The test fails.
    Testing(Test),
    /// Nothing besides what is known.
    Known(Verdict),
}

impl Journal {
    fn write(&self, line: &Line) {
        self.write_if_open(line, |_| ());
    }

    /// Writes a line, unless the verdict is out. Nobody may be reading any more.
    fn write_if_open(&self, line: &Line, note: impl FnOnce(&mut State)) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.is_over {
            note(&mut state);
            let mut out = io::stdout().lock();
            let _ = writeln!(out, "{}", line.write()).and_then(|()| out.flush());
        }
    }

    /// Writes the verdict and ends the process: the driver's own way out might wait for what hangs.
    fn end(&self, verdict: &Verdict) -> ! {
        self.write_if_open(&Line::Verdict(verdict.clone()), |state| state.is_over = true);
        leave(verdict.status())
    }
}

/// Ends the process at once.
pub(super) fn leave(status: u8) -> ! {
    // SAFETY: nothing of the process is needed any more.
    unsafe { libc::_exit(status.into()) }
}

impl Witness for Journal {
    fn begin(&self, test: Test) {
        self.write_if_open(&Line::Begin(test), |state| state.stage = Stage::Testing(test));
    }

    fn partner(&self, process: u32) {
        self.write(&Line::Partner(process));
    }

    fn found(&self, test: Test, finding: &Finding) {
        self.write(&Line::Found(test, finding.clone()));
    }

    fn measuring(&self, verdict: &Verdict) {
        self.write_if_open(&Line::Measuring(verdict.clone()), |state| state.stage = Stage::Known(verdict.clone()));
    }

    fn measured(&self, path: Path, measure: Measure) {
        self.write(&Line::Measured(path, measure));
    }
}

impl at_once::Witness for Journal {
    fn begin(&self, test: Test) {
        Witness::begin(self, test);
    }

    fn found(&self, pair: usize, finding: &Finding) {
        self.write(&Line::FoundAtOnce(pair, finding.clone()));
    }

    fn measuring(&self, verdict: &Verdict) {
        Witness::measuring(self, verdict);
    }

    fn measured(&self, pair: usize, speed: f64) {
        self.write(&Line::MeasuredAtOnce(pair, speed));
    }
}

/// Ends the process when its time is over, saying where it was.
fn start_watchdog(journal: Journal, time: Duration) {
    let watch = move || {
        thread::sleep(time);
        let stage = journal.0.lock().unwrap_or_else(PoisonError::into_inner).stage.clone();
        let test = match stage {
            Stage::Known(verdict) => journal.end(&verdict),
            Stage::Testing(test) => Some(test),
            Stage::Starting => None,
        };
        if let Some(test) = test {
            journal.write(&Line::Found(test, super::hung(time)));
        }
        journal.end(&super::verdict_of_hanging(test, time));
    };
    // Without it the supervisor's own limit is left.
    let _ = thread::Builder::new().name("watchdog".to_owned()).spawn(watch);
}
