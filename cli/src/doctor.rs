//! `p2pshim doctor`: verifies peer access between devices with data, tells what may stand in its way, and what to do.
//!
//! This process never touches a GPU, for work on one may never end. It starts another (`session`, `worker`) that lists the devices
//! and tests all pairs (`sweep`, `verify`), reads what it says (`lines`), and starts one more for what others have kept from being
//! tested, or what hung (`examine`).

mod additions;
mod advice;
mod at_once;
mod between;
mod check;
mod consumers;
mod cuda;
#[cfg(test)]
mod described;
mod env;
mod examine;
mod expected;
mod fabric;
mod flags;
pub(crate) mod fleet;
mod gates;
mod inventory;
mod journal;
mod json;
mod kept;
mod kernel;
mod level;
mod lines;
#[cfg(test)]
mod machines;
mod memory;
mod narrow;
mod nccl;
mod partner;
mod pattern;
mod place;
mod progress;
mod published;
mod report;
mod rig;
mod runtimes;
mod session;
mod shapes;
mod stagers;
mod sweep;
mod trial;
mod verify;
pub(crate) mod worker;

pub(crate) use check::{Check, check, under_way as checks_under_way, uuids};
pub(crate) use kept::{for_nccl, right};

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use p2pshim_host::machine::{self, Machine};

use advice::Conclusion;
use consumers::Consumer;
use env::Environment;
use expected::Paths;
use inventory::{Device, Inventory, Pairs};
use level::Level;
use lines::{Finding, Known};
use place::{Joint, Place, Services};
use progress::Progress;
use report::{Examined, Row};
use session::{Session, Settings};

use crate::report::{STDOUT, check_output, is_stdout, named, write_for_others};
use crate::status::{self, Refusal};
use crate::{complain, numbers, sim};

/// Writes what was found in a form for programs.
type Form = fn(&mut dyn Write, &Examined) -> io::Result<()>;

/// How long a pair may take, in seconds, unless the user says otherwise.
const TIMEOUT_S: u64 = 20;

/// The help's text after the options.
pub(crate) const EXAMPLES: &str = "\
Examples:
  p2pshim doctor                  all pairs
  p2pshim doctor '0>1' 2-3        GPU 0 accessing the memory of GPU 1; 2 and 3 in both directions
  p2pshim doctor --quick          copies and memory shared by IPC; no kernels, no speeds
  p2pshim doctor --full           larger copies and all memory too; for GPUs that nobody else uses
  p2pshim doctor --json           for programs; also --csv, --prometheus
  p2pshim doctor --full --soak 30 half an hour more, for boards that fail when warm
  p2pshim doctor --try-override   can CUDA's check of IOMMU and ACS be switched off? idle machines only
  p2pshim doctor --issue          Markdown, to paste into a bug report
  p2pshim doctor --sim 4          on four simulated GPUs
  P2PSIM_FAULT='lost:0>1' p2pshim doctor --sim 2
                                  on two simulated GPUs; one loses what its kernels write";

/// The pairs and tests that the user asks for.
#[derive(Args)]
pub(crate) struct DoctorArguments {
    /// Pairs of GPUs: 0>1 (0 accesses memory of 1) or 0-1 [default: all]
    ///
    /// 0>1 is GPU 0 accessing the memory of GPU 1; 0-1 is both directions.
    #[arg(value_name = "PAIR", value_delimiter = ',')]
    pairs: Vec<Pairs>,
    /// Give up on a pair after so long
    ///
    /// The time counts from the last progress of the pair. The doctor first gives up after a quarter of this time, and then tests the pair once more.
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT_S, value_parser = numbers::whole::<u64>(1..=3600))]
    timeout: u64,
    /// Test copies and memory shared by IPC only
    ///
    /// `p2pshim run` makes these tests once after each boot. The verdicts that it saves are about these tests only.
    #[arg(long)]
    quick: bool,
    /// Test all memory too, of GPUs that nobody else uses
    ///
    /// It fills the memory of the accessed GPU, and tests the first and the last MiB of each GiB. It does not fill a GPU with less than
    /// 90 % free memory.
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// At the end, copy on all pairs for so many minutes
    ///
    /// All pairs copy at once. It finds boards that are right when cold, and lose data when warm.
    #[arg(long, value_name = "MINUTES", value_parser = numbers::whole::<u64>(1..=10_080), conflicts_with = "quick")]
    soak: Option<u64>,
    /// Run NCCL's own diagnostics too
    ///
    /// The output shows them beside the tests. NCCL has them since 2.31. The doctor looks for NCCL on the library path and in the active Python
    /// environment; LIBRARY names another file.
    #[arg(long, value_name = "LIBRARY", num_args = 0..=1, require_equals = true, default_missing_value = nccl::NAME)]
    nccl: Option<PathBuf>,
    /// Print JSON instead of the tables
    ///
    /// One object, to standard output or to a file.
    #[arg(long, value_name = "OUT", num_args = 0..=1, require_equals = true, default_missing_value = STDOUT)]
    json: Option<PathBuf>,
    /// Print a line for each pair, for spreadsheets, to standard output or to a file
    #[arg(long, value_name = "OUT", num_args = 0..=1, require_equals = true, default_missing_value = STDOUT, hide_short_help = true)]
    csv: Option<PathBuf>,
    /// Print metrics for Prometheus' textfile collector, to standard output or to a file
    #[arg(long, value_name = "OUT.prom", num_args = 0..=1, require_equals = true, default_missing_value = STDOUT, hide_short_help = true)]
    prometheus: Option<PathBuf>,
    /// Print what has to be switched off, for a job script
    ///
    /// It prints variables that switch off the uses of peer access that failed. Comments give the argument of a program that has no such variable,
    /// and what may stay on. FORM is sh, json, dotenv or slurm. docs/VERDICT.md lists the programs.
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "sh", hide_possible_values = true)]
    env: Option<env::Form>,
    /// Programs for --env [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "env", hide_short_help = true)]
    env_for: Vec<Consumer>,
    /// Print the report as Markdown for a bug report
    ///
    /// It leaves out UUIDs of GPUs, and the names of host and user. Paste it from standard output.
    #[arg(long, conflicts_with = "env")]
    issue: bool,
    /// Test switching off CUDA's check of IOMMU and ACS
    ///
    /// It is for pairs that have peer access only with CUDA_DISABLE_IOMMU_ACS_P2P_CAPABILITY_CHECK=1. The doctor starts a process with that
    /// variable, which copies between memory with guards. Misrouted accesses can overwrite the host's memory or stop the machine: run it on an
    /// idle one.
    #[arg(long, conflicts_with_all = ["pairs", "quick", "full", "soak", "json", "csv", "prometheus", "env", "issue"])]
    try_override: bool,
    /// Confirm the warning of --try-override
    #[arg(long, requires = "try_override", hide_short_help = true)]
    yes: bool,
    /// Remove the verdicts that were saved, and test nothing
    #[arg(long, conflicts_with_all = ["pairs", "quick", "full", "soak", "json", "csv", "prometheus", "env", "issue", "try_override", "sim"])]
    forget: bool,
    /// Examine N simulated GPUs
    #[arg(long, value_name = "N", value_parser = numbers::whole::<u8>(0..=sim::MOST))]
    sim: Option<u8>,
}

impl DoctorArguments {
    fn level(&self) -> Level {
        match (self.quick, self.full) {
            (true, _) => Level::Quick,
            (_, true) => Level::Full,
            _ => Level::Usual,
        }
    }

    /// The files, or standard output, that forms for programs go to.
    fn forms(&self) -> impl Iterator<Item = (&Path, Form)> {
        let all: [(_, Form); 3] = [
            (&self.json, json::print),
            (&self.csv, |out, examined| fleet::csv([json::report(examined)].iter(), out)),
            (&self.prometheus, |out, examined| fleet::prometheus(&json::report(examined), out)),
        ];
        all.into_iter().filter_map(|(path, form)| Some((path.as_deref()?, form)))
    }

    /// # Errors
    /// A file cannot be written, or two forms would go to standard output.
    fn check_outputs(&self) -> Result<(), Box<dyn Error>> {
        let is_env = self.env.is_some() || self.issue;
        if self.forms().filter(|(path, _)| is_stdout(path)).count() + usize::from(is_env) > 1 {
            let said = "only one form can go to standard output; name a file for the others, such as --json=out.json";
            return Err(Refusal::Usage(said.to_owned()).into());
        }
        let written = self.forms().try_for_each(|(path, _)| check_output(path));
        Ok(written.map_err(|error| format!("nothing was tested: {error}"))?)
    }

    /// Writes those forms, each whatever became of the others. Those for standard output go to `out`.
    fn write_forms(&self, out: &mut impl Write, examined: &Examined) -> Vec<io::Result<()>> {
        let write = |(path, form): (&Path, Form)| {
            if is_stdout(path) {
                let written = form(out, examined);
                shown(out, written)
            } else {
                write_for_others(path, |out| form(out, examined))
            }
        };
        self.forms().map(write).collect()
    }

    /// Whether the tables are shown.
    fn shows(&self) -> bool {
        self.env.is_none() && !self.issue && self.forms().next().is_none()
    }
}

/// Flushes standard output, and names it if it could not be written.
fn shown(out: &mut impl Write, written: io::Result<()>) -> io::Result<()> {
    written.and_then(|()| out.flush()).map_err(|error| named("standard output", error))
}

/// Examines, and returns the exit status.
///
/// # Errors
/// There are no simulated GPUs, or nothing can be written there.
pub(crate) fn run(arguments: &DoctorArguments, out: &mut impl Write) -> Result<ExitCode, Box<dyn Error>> {
    if arguments.forget {
        return Ok(kept::forget(out)?);
    }
    let environment = arguments.sim.map(sim::environment).transpose();
    let environment = environment.map_err(|error| format!("nothing was tested: {error}"))?.unwrap_or_default();
    arguments.check_outputs()?;
    let (timeout, progress) = (Duration::from_secs(arguments.timeout), Progress::new());
    let level = arguments.level();
    let settings = Settings {
        environment: &environment,
        level,
        timeout,
        patience: examine::patience(timeout),
        progress: &progress,
        sees_all: false,
        soak: Duration::from_secs(arguments.soak.unwrap_or_default() * 60),
    };
    if arguments.try_override {
        return trial::run(Settings { level: Level::Usual, ..settings }, arguments.yes, out);
    }
    progress.show();
    let (session, inventory) = start(settings);
    progress.clear();
    let wanted = session.and_then(|session| Ok((inventory.wanted(&arguments.pairs)?, session)));
    let mut examined = Examined::of_this_machine(inventory, arguments.sim);
    (examined.is_quick, examined.is_full) = (arguments.quick, arguments.full);
    let (pairs, session) = match wanted {
        Ok(wanted) => wanted,
        Err(why) => return Ok(untested(examined, why, arguments, out)),
    };
    let rows = if level == Level::Quick {
        examine::test(&pairs, session, settings)
    } else {
        examine::examine(&pairs, session, settings, || examined.look_again())
    };
    examined.rows = rows;
    examined.nccl = arguments.nccl.as_ref().map(|library| nccl::run(library, &pairs, settings));
    progress.clear();
    let kept_in = kept::keep_all(&examined.inventory, &examined.rows, arguments.timeout, arguments.quick);
    let (kept_in, unkept) = kept_in.map_or_else(|error| (None, Some(error)), |kept_in| (kept_in, None));
    examined.kept_in = kept_in.filter(|_| arguments.sim.is_none());
    let mut written = arguments.write_forms(out, &examined);
    // Users who want none to be kept name that place.
    let is_wanted = std::env::var_os("XDG_CACHE_HOME").is_none_or(|folder| folder != "/dev/null");
    written.extend(unkept.filter(|_| is_wanted).map(Err));
    let answer = examined.conclusion().status();
    let printed = if arguments.issue {
        report::print_issue(out, examined)
    } else if let Some(form) = arguments.env {
        examined.environment(&arguments.env_for).write(out, form)
    } else if arguments.shows() {
        report::print(out, &examined)
    } else {
        return Ok(status::end(answer, written));
    };
    written.push(shown(out, printed));
    Ok(status::end(answer, written))
}

/// Starts a test process, and has it list the GPUs. If it cannot continue, the inventory is what it told before.
fn start(settings: Settings<'_>) -> (Result<Session<'_>, String>, Inventory) {
    let mut session = match Session::start(settings) {
        Ok(session) => session,
        Err(why) => return (Err(why), Inventory::default()),
    };
    match session.list() {
        Ok(inventory) => (Ok(session), inventory),
        Err(why) => {
            let told = std::mem::take(&mut session.told);
            session.end();
            (Err(why), told)
        }
    }
}

/// Says why nothing was tested, and what is known of the machine.
fn untested(mut examined: Examined, why: String, arguments: &DoctorArguments, out: &mut impl Write) -> ExitCode {
    let said = format!("nothing was tested: {why}");
    examined.error = Some(why);
    let answer = examined.conclusion().status();
    let mut written = arguments.write_forms(out, &examined);
    if arguments.issue {
        let printed = report::print_issue(out, examined);
        written.push(shown(out, printed));
    } else if arguments.shows() {
        let printed = report::print_untested(out, &examined);
        written.push(shown(out, printed));
    }
    complain(said);
    status::end(answer, written)
}

impl Examined {
    /// Facts that are known before any pair is tested. Simulated GPUs have no place on the machine.
    fn of_this_machine(inventory: Inventory, simulated: Option<u8>) -> Self {
        let root = machine::root(simulated.is_some(), std::env::var_os("P2PSIM_ROOT"));
        Self::of_machine(inventory, simulated, root)
    }

    /// The machine is read below `root`, if there is one.
    fn of_machine(inventory: Inventory, simulated: Option<u8>, root: Option<PathBuf>) -> Self {
        let bus_ids: Vec<String> = inventory.devices.iter().map(|device| device.bus_id.clone()).collect();
        let (root, bus_ids) = root.map_or_else(|| (PathBuf::from("/"), Vec::new()), |root| (root, bus_ids));
        let machine = Machine::read(&root, &bus_ids).with_log(&root);
        let has_fabric = |known: &Known| known.fabric.as_ref().is_some_and(|fabric| fabric.state > 0);
        let services = inventory.known.iter().any(has_fabric).then(|| Services::read(&root));
        Self {
            places: machine.gpus.iter().map(|gpu| Place::read(&root, gpu)).collect(),
            machine,
            container: place::container(&root),
            services,
            all_gpus: Machine::uuids(&root).len(),
            visible: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
            root,
            inventory,
            simulated,
            rows: Vec::new(),
            nccl: None,
            error: None,
            kept_in: None,
            is_quick: false,
            is_full: false,
        }
    }

    /// The switches for the uses of peer access that a wrong part breaks.
    fn environment(&self, consumers: &[Consumer]) -> Environment {
        Environment::new(&self.rows, self.is_full, consumers, |ordinal| match self.inventory.devices.get(ordinal) {
            Some(device) if !device.uuid.is_empty() => device.uuid.clone(),
            _ => ordinal.to_string(),
        })
    }

    /// Reads how the links run while GPUs are at work.
    fn look_again(&mut self) {
        for (place, gpu) in self.places.iter_mut().zip(&self.machine.gpus) {
            *place = std::mem::take(place).and_later(&Place::read(&self.root, gpu));
        }
    }

    /// The joint of a pair.
    fn joint(&self, pair: [usize; 2]) -> Joint {
        if self.inventory.nvlinks.contains(&pair) {
            return Joint::NvLink;
        }
        let [one, other] = pair.map(|ordinal| self.machine.gpus.get(ordinal).zip(self.places.get(ordinal)));
        one.zip(other).map_or(Joint::Unseen, |(one, other)| Joint::of_pci([one, other]))
    }

    /// Facts about each GPU, by NVML or else by sysfs.
    fn known(&self) -> Vec<Known> {
        let places = self.places.iter().map(Some).chain(std::iter::repeat(None));
        let with_place = |((known, device), place): ((&Known, &Device), Option<&Place>)| Known {
            name: device.name.clone(),
            bar1: known.bar1.or(place.and_then(|place| place.bar1)),
            is_confidential: self.inventory.is_confidential,
            ..known.clone()
        };
        self.inventory.known.iter().zip(&self.inventory.devices).zip(places).map(with_place).collect()
    }

    fn advice(&self) -> Vec<String> {
        // Simulated GPUs have a machine only if that is simulated too.
        let has_machine = self.simulated.is_none() || !self.machine.gpus.is_empty();
        let machine = Some(&self.machine).filter(|_| has_machine);
        let (paths, known) = (self.paths(), self.known());
        let closed = gates::closed(self, &known);
        let told = closed.iter().map(|closed| closed.advice(self.inventory.devices.len())).chain(gates::hidden(self));
        let changed = |pair| machine.and_then(|_| gates::of_changed_driver(self, &known, pair));
        advice::advice(&advice::Facts {
            rows: &self.rows,
            machine,
            gpus: &known,
            joint: &|pair| self.joint(pair),
            cause: &|row| paths.why_broken(row.pair).or_else(|| changed(row.pair)),
            gates: told.collect(),
            hints: paths.hints(),
        })
    }

    /// NVML's statuses of a pair: reads, writes, atomic operations, PCI.
    fn statuses(&self, pair: [usize; 2]) -> [Option<i32>; 4] {
        let found = self.inventory.statuses.iter().find(|(known, _)| *known == pair);
        found.map_or([None; 4], |(_, statuses)| *statuses)
    }

    /// The pairs' links, and the speed that they should have.
    fn paths(&self) -> Paths<'_> {
        Paths::of(self)
    }

    fn conclusion(&self) -> Conclusion {
        if self.error.is_some() { Conclusion::Untested } else { Conclusion::of(&self.rows) }
    }

    /// The outcome, in a sentence or two.
    fn summary(&self) -> String {
        let text = self.conclusion().text(&self.rows, self.inventory.devices.len());
        match self.conclusion() {
            Conclusion::Safe if self.is_quick => {
                let what = text.trim_start_matches("peer access can be trusted");
                format!(
                    "no fault was found in copies; what kernels do, and copies of all pairs at once, were not tested{what}"
                )
            }
            _ => text,
        }
    }

    /// A sentence about the tests that were not asked for, where all others have passed.
    fn of_full(&self) -> Option<&'static str> {
        let is_part = self.conclusion() == Conclusion::Safe && !self.is_quick && !self.is_full;
        is_part.then_some(
            "Only --full tests copies in a graph, kernels that pull data, the protocols LL and LL128, kernels of two processes, and all memory.",
        )
    }
}

/// The text about a test that made no progress for so long.
fn hung(time: Duration) -> Finding {
    Finding::Hung(format!("it had not finished after {} s", time.as_secs_f64()))
}

/// Why nothing is known of a driver that does not start.
fn not_started(time: Duration) -> String {
    format!(
        "CUDA had not started after {} s; raise --timeout, or run nvidia-persistenced to start it faster",
        time.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use super::kept::keep;
    use super::lines::{Test, Verdict};
    use super::*;
    use p2pshim_host::verdicts::Cache;

    #[test]
    fn keep_only_what_is_a_verdict_on_the_pair() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::of(Some(folder.path().into()), None, own_user()).unwrap();
        let device =
            |ordinal: usize| Device { bus_id: String::new(), uuid: format!("GPU-{ordinal}"), name: String::new() };
        let inventory = Inventory { driver: Some(13000), devices: vec![device(0), device(1)], ..Inventory::default() };
        let row = |verdict: Verdict, finding: Option<Finding>| {
            let mut row = Row::new([0, 1], verdict);
            finding.into_iter().for_each(|finding| row.set_finding(Test::Copies, finding));
            row
        };
        let failed = || Verdict::Failed("gone".to_owned());
        let hung = || Some(Finding::Hung(String::new()));
        let right = || Some(Finding::Right);
        for (verdict, finding, timeout, expected) in [
            (Verdict::Passed, None, TIMEOUT_S, false),
            (Verdict::Passed, right(), TIMEOUT_S, true),
            (failed(), Some(Finding::Wrong("lost".to_owned())), 1, true),
            (failed(), hung(), 1, false),
            (failed(), hung(), TIMEOUT_S, true),
            (Verdict::Unknown(String::new()), hung(), TIMEOUT_S, false),
            (Verdict::Unknown(String::new()), right(), TIMEOUT_S, true),
            (Verdict::NoPath, None, TIMEOUT_S, false),
        ] {
            let said = format!("{verdict:?} {finding:?} {timeout}");
            assert_eq!(keep(&cache, &inventory, &row(verdict, finding), timeout, false).unwrap(), expected, "{said}");
        }
    }

    fn own_user() -> u32 {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata("/proc/self").unwrap().uid()
    }
}
