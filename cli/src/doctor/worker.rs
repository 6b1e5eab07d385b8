//! The process that touches the GPUs, since work on them may never end: it lists them, then tests pairs as it is asked to, and writes
//! [lines](super::lines). Its first thread touches none, and gives up on those that do.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Args;
use p2pshim_host::stagers::Rates;

use super::cuda::{Device, Driver};
use super::level::Level;
use super::lines::{Finding, Known, Line, Task, Test, Verdict};
use super::rig::{Listed, Rig};
use super::sweep::Sweep;
use super::{at_once, nccl, partner, runtimes, stagers, trial};
use crate::nvml::{Handle, Nvml};
use crate::processes::{self, leave, say};

/// How to do it.
#[derive(Args)]
pub(crate) struct WorkerArguments {
    /// How many seconds the start of CUDA may take
    #[arg(long, value_name = "SECONDS", default_value_t = super::TIMEOUT_S)]
    timeout: u64,
    /// After how many milliseconds without progress a pair is given up
    #[arg(long, value_name = "MILLISECONDS", default_value_t = super::TIMEOUT_S * 1000)]
    patience: u64,
    /// How much is tested
    #[arg(long, value_enum, default_value = "usual")]
    level: Level,
    /// For how many seconds all pairs copy at once
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    soak: u64,
    /// Take part in the tests of another process, with the GPUs of these ordinals
    #[arg(long, value_name = "ORDINAL", num_args = 0..)]
    partner: Option<Vec<usize>>,
    /// Run the diagnostics of this NCCL
    #[arg(long, value_name = "LIBRARY")]
    nccl: Option<PathBuf>,
    /// On the GPUs of these ordinals
    #[arg(long, value_name = "ORDINAL", num_args = 0..)]
    gpus: Vec<usize>,
}

/// Tests the pairs that the supervisor asks for.
pub(crate) fn run(arguments: &WorkerArguments) -> ExitCode {
    if let Some(ordinals) = &arguments.partner {
        if let Err(why) = serve(ordinals) {
            partner::refuse(&why);
        }
        leave(0)
    }
    if let Some(library) = &arguments.nccl {
        nccl::serve(library, &arguments.gpus);
        leave(0)
    }
    let listed = Driver::start().and_then(|driver| list(&driver).map(|devices| (driver, devices)));
    let (driver, listed) = match listed {
        Ok(listed) => listed,
        Err(why) => {
            say(&Line::Verdict(Verdict::Unknown(why)));
            // NVML may know the reason.
            Nvml::start().iter().flat_map(listed_by_nvml).for_each(|line| say(&line));
            leave(2)
        }
    };
    say(&Line::Done(true));
    // Most of what follows is only needed by who asks for more.
    let asked = processes::asked();
    let Ok(first) = asked.recv() else { leave(0) };
    let rig = Arc::new(Rig::new(driver, listed, arguments.level, Duration::from_millis(arguments.patience)));
    let time = Duration::from_secs(arguments.timeout);
    for (task, pairs) in std::iter::once(first).chain(asked) {
        let pairs: Vec<[usize; 2]> = pairs;
        let sweep = Sweep { rig: &rig, pairs: &pairs };
        match task {
            Task::Test => sweep.test(time),
            Task::Measure => sweep.measure(time, true),
            Task::MeasureStaged => sweep.measure(time, false),
            Task::AtOnce => at_once(&rig, &pairs, Duration::from_secs(arguments.soak)),
            Task::Stagers => stagers(&rig, &pairs),
            Task::Guarded(bytes) => trial::guarded(&rig, &pairs, bytes, time),
        }
        say(&Line::Done(!rig.journal.has_lost()));
    }
    leave(0)
}

/// A check leaves GPUs alone of which less is free, in bytes: contexts take much of it.
const LEAST_FREE: u64 = 512 << 20;

/// Tells of the devices.
///
/// # Errors
/// A sentence for the user.
fn list(driver: &Driver) -> Result<Listed, String> {
    let (mut uuids, mut unfit) = (Vec::new(), Vec::new());
    let mut told = || {
        say(&Line::Driver(driver.version()?));
        let devices = driver.devices()?;
        for (ordinal, &device) in devices.iter().enumerate() {
            let (bus_id, uuid, name) = (driver.bus_id(device)?, driver.uuid(device)?, driver.name(device)?);
            if uuid.starts_with("MIG-") {
                unfit.push((ordinal, "a part of a GPU, by MIG"));
            } else if !driver.is_for_all(device)? {
                unfit.push((ordinal, "it is in exclusive mode"));
            }
            uuids.push(uuid.clone());
            say(&Line::Device { ordinal, bus_id, uuid, name });
        }
        for (from, &device) in devices.iter().enumerate() {
            for (to, &peer) in devices.iter().enumerate() {
                if from != to && driver.can_access(device, peer)? {
                    say(&Line::Path(from, to));
                    if let Ok(attributes) = driver.attributes(device, peer) {
                        say(&Line::Attributes(from, to, attributes));
                    }
                }
            }
        }
        super::cuda::Result::Ok(devices)
    };
    let devices = told().map_err(|error| error.to_string())?;
    runtimes::found().for_each(|(version, name)| say(&Line::Runtime(version, name.to_owned())));
    let (mut nvlinks, nvml) = (None, Nvml::start());
    let capabilities: Vec<_> = devices.iter().map(|&device| driver.capability(device).ok()).collect();
    let known = known(nvml.as_ref(), &uuids, &capabilities);
    known.iter().for_each(say);
    if let Some(nvml) = nvml {
        let joined = |line: &Line| if let Line::NvLink(from, to) = *line { Some([from, to]) } else { None };
        let is_complete = uuids.iter().all(|uuid| nvml.device(uuid).is_some());
        nvlinks = is_complete.then(|| known.iter().filter_map(joined).collect());
        let memory = |uuid: &str| nvml.memory(nvml.device(uuid)?);
        let has_little = |uuid: &String| memory(uuid).is_some_and(|[_, free]| free < LEAST_FREE);
        let full = uuids.iter().enumerate().filter(|(_, uuid)| has_little(uuid));
        unfit.extend(full.map(|(ordinal, _)| (ordinal, "it has less than 512 MiB of free memory")));
    }
    unfit.sort_unstable();
    unfit.dedup_by_key(|(ordinal, _)| *ordinal);
    unfit.into_iter().for_each(|(ordinal, why)| say(&Line::Unfit(ordinal, why.to_owned())));
    Ok(Listed { devices, nvlinks })
}

/// NVML's devices, and its facts about them.
fn listed_by_nvml(nvml: &Nvml) -> Vec<Line> {
    let devices = nvml.devices();
    let text = |text: Option<String>| text.unwrap_or_default();
    let device = |(ordinal, &device): (usize, &Handle)| Line::Device {
        ordinal,
        bus_id: text(nvml.bus_id(device)),
        uuid: text(nvml.uuid(device)),
        name: text(nvml.name(device)),
    };
    let uuids: Vec<String> = devices.iter().map(|&device| text(nvml.uuid(device))).collect();
    devices.iter().enumerate().map(device).chain(known(Some(nvml), &uuids, &[])).collect()
}

/// Facts about devices with these UUIDs and compute capabilities, by their places.
fn known(nvml: Option<&Nvml>, uuids: &[String], capabilities: &[Option<(i32, i32)>]) -> Vec<Line> {
    let capability = |ordinal: usize| capabilities.get(ordinal).copied().flatten();
    let Some(nvml) = nvml else {
        let known = |ordinal| Known { capability: capability(ordinal), ..Known::default() };
        return (0..uuids.len()).map(|ordinal| Line::Known(ordinal, Box::new(known(ordinal)))).collect();
    };
    let handles: Vec<Option<Handle>> = uuids.iter().map(|uuid| nvml.device(uuid)).collect();
    let known = || handles.iter().enumerate().filter_map(|(ordinal, handle)| Some((ordinal, (*handle)?)));
    let mut lines: Vec<Line> = nvml.is_confidential().map(Line::Confidential).into_iter().collect();
    for (ordinal, device) in known() {
        let known = Known {
            capability: capability(ordinal),
            memory: nvml.memory(device).map(|[total, _]| total),
            bar1: nvml.bar1(device),
            is_mig: nvml.is_mig(device),
            links: Some(nvml.links(device)),
            fabric: nvml.fabric(device),
            virtualization: nvml.virtualization(device),
            c2c: nvml.c2c(device),
            ..Known::default()
        };
        lines.push(Line::Known(ordinal, Box::new(known)));
    }
    for (from, device) in known() {
        let peers = known().filter(|&(to, peer)| to != from && nvml.has_nvlink(device, peer));
        lines.extend(peers.map(|(to, _)| Line::NvLink(from, to)));
        let peers = known().filter(|&(to, _)| to != from);
        lines.extend(peers.map(|(to, peer)| Line::Statuses(from, to, nvml.peer_statuses(device, peer))));
    }
    lines
}

/// Takes part in another process's tests.
///
/// # Errors
/// Why it cannot, for the user.
fn serve(ordinals: &[usize]) -> Result<(), String> {
    let driver = Driver::start()?;
    let devices = driver.devices().map_err(|error| error.to_string())?;
    let wanted = ordinals.iter().filter_map(|&ordinal| Some((ordinal, *devices.get(ordinal)?)));
    let wanted: Vec<(usize, Device)> = wanted.collect();
    partner::serve(&Arc::new(driver), &wanted);
    Ok(())
}

/// Reports the results of pairs that all copy at once.
struct Reporter;

impl at_once::Witness for Reporter {
    fn found(&self, pair: usize, test: Test, finding: &Finding) {
        say(&Line::Pair(pair, Box::new(Line::Found(test, finding.clone()))));
    }

    fn measured(&self, pair: usize, speed: f64) {
        say(&Line::Pair(pair, Box::new(Line::AtOnce(speed))));
    }

    fn goes_on(&self) {
        say(&Line::Pair(0, Box::new(Line::Soaks)));
    }
}

/// Has pairs copy at once, and gives up when no call of the driver returns for long.
fn at_once(rig: &Arc<Rig>, pairs: &[[usize; 2]], soak: Duration) {
    /// The rounds, and what comes before and after them.
    const ROUNDS: u32 = 8;
    let (sender, ended) = mpsc::channel();
    let devices: Vec<[Device; 2]> =
        pairs.iter().map(|pair| pair.map(|ordinal| rig.devices.get(ordinal).copied().unwrap_or_default())).collect();
    let (used, patience) = (Arc::clone(rig), rig.patience);
    thread::spawn(move || {
        let _ = sender.send(at_once::verify(&used, &devices, (patience, soak), &Reporter));
    });
    let hangs = Verdict::Failed(format!("{}: a call of the driver did not return", Test::AllPairs.name()));
    say(&Line::Verdict(ended.recv_timeout(patience * ROUNDS + soak).unwrap_or(hangs)));
}

/// Measures who stages copies faster, and gives up when nothing comes for long.
fn stagers(rig: &Arc<Rig>, pairs: &[[usize; 2]]) {
    let mut ordinals = pairs.as_flattened().to_vec();
    ordinals.sort_unstable();
    ordinals.dedup();
    let devices: Vec<Device> = ordinals.iter().filter_map(|&ordinal| rig.devices.get(ordinal).copied()).collect();
    let (sender, measured) = mpsc::channel();
    let used = Arc::clone(rig);
    thread::spawn(move || {
        // The driver stages a pair that could not be measured.
        let _ = stagers::measure(&used.driver, &devices, |class, are_all_busy, Rates { driver, shim }| {
            let _ = sender.send(Line::Stagers { class, are_all_busy, driver, shim });
        });
    });
    while let Ok(of_size) = measured.recv_timeout(rig.patience) {
        say(&Line::Pair(0, Box::new(of_size)));
    }
}
