//! `p2pshim doctor`: verifies peer access between devices with data, tells what may stand in its way, and what to do.
//!
//! This process never touches a GPU, for work on one may never end. It starts another for the list of devices and one
//! for each pair (`worker`), reads what they say (`lines`), and gives up on them when their time is over (`supervisor`).

mod additions;
mod advice;
mod at_once;
mod between;
mod cuda;
mod examine;
mod flags;
mod inventory;
mod json;
mod kept;
mod kernel;
mod lines;
#[cfg(test)]
mod machines;
mod memory;
mod partner;
mod pattern;
mod place;
mod progress;
mod report;
mod runtimes;
mod supervisor;
mod verify;
pub(crate) mod worker;

pub(crate) use kept::{Needed, broken_pair, make_missing, uuids};

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use p2pshim_host::machine::{self, Machine};

use advice::{Conclusion, Known};
use examine::{examine, examine_at_once};
use inventory::{Inventory, Pairs};
use lines::{Finding, Test, Verdict};
use place::{Joint, Place};
use progress::Progress;
use report::{Device, Examined, Row};
use supervisor::{Job, Task};
use verify::Tests;

use crate::{complain, numbers, sim};

/// How long a pair may take, in seconds, unless the user says otherwise.
const TIMEOUT_S: u64 = 20;

/// Exit status if nothing could be tested.
const FAILED: u8 = 2;

/// What follows the options in the help.
pub(crate) const AFTER_HELP: &str = "\
Examples:
  p2pshim doctor                  all pairs
  p2pshim doctor '0>1' 2-3        GPU 0 accessing the memory of GPU 1; 2 and 3 in both directions
  p2pshim doctor --quick          in 2 seconds: one process, no large copies, no speeds
  p2pshim doctor --full           all memory too, of GPUs that no other process uses
  p2pshim doctor --json           for programs
  p2pshim doctor --issue          Markdown, to paste into a bug report
  p2pshim doctor --sim 4          on four simulated GPUs
  P2PSIM_FAULT='lost:0>1' p2pshim doctor --sim 2
                                  on two, one of which loses what its kernels write

Exit status:
  0  every pair is verified, or has no path
  1  a pair is unsafe: it lost data, or hung
  2  nothing could be tested, or wrong usage
  3  a pair could not be verified, and none is unsafe";

/// What to examine.
#[derive(Args)]
pub(crate) struct DoctorArguments {
    /// Pairs of GPUs: 0>1 (0 accesses memory of 1) or 0-1 [default: all]
    ///
    /// 0>1 is GPU 0 accessing the memory of GPU 1; 0-1 is both directions.
    #[arg(value_name = "PAIR", value_delimiter = ',')]
    pairs: Vec<Pairs>,
    /// Give up on a pair after so long
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT_S, value_parser = numbers::whole::<u64>(1..=3600))]
    timeout: u64,
    /// Test up to 1 MiB only, and measure nothing
    ///
    /// Pairs that fail are kept for the shim; that a pair has passed is not, since larger copies may still be wrong.
    #[arg(long)]
    quick: bool,
    /// Test all memory too, of GPUs that nobody else uses
    ///
    /// It fills the memory of the accessed GPU, and tests the first and the last MiB of each GiB. A GPU of which less than 90 % is free
    /// is not filled.
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,
    /// Print only what a job script has to export
    ///
    /// Lines of shell that keep NCCL, and programs under p2pshim, off pairs that failed.
    #[arg(long, conflicts_with = "json")]
    env: bool,
    /// Print the report as Markdown for a bug report
    ///
    /// It has no UUIDs of GPUs and not the name of the host. Standard output has it; paste it.
    #[arg(long, conflicts_with_all = ["json", "env"])]
    issue: bool,
    /// Remove the verdicts that were saved, and test nothing
    #[arg(long, conflicts_with_all = ["pairs", "quick", "full", "json", "env", "issue", "sim"])]
    forget: bool,
    /// Examine N simulated GPUs
    #[arg(long, value_name = "N", value_parser = numbers::whole::<u8>(0..=sim::MOST))]
    sim: Option<u8>,
}

impl DoctorArguments {
    /// Whether the tables are shown.
    fn shows(&self) -> bool {
        !self.json && !self.env && !self.issue
    }
}

/// Examines, and returns the exit status: 0 all verified or without a path, 1 a pair failed, 2 nothing could be tested, 3 some pair
/// could not be.
///
/// # Errors
/// The output could not be written.
pub(crate) fn run(arguments: &DoctorArguments, out: &mut impl Write) -> io::Result<ExitCode> {
    if arguments.forget {
        return kept::forget(out);
    }
    let environment = match arguments.sim.map(sim::environment).transpose() {
        Ok(environment) => environment.unwrap_or_default(),
        Err(error) => {
            complain(format_args!("nothing was tested: {error}"));
            return Ok(ExitCode::from(FAILED));
        }
    };
    let timeout = Duration::from_secs(arguments.timeout);
    let progress = Progress::new(1);
    progress.show(0, "starting CUDA");
    let outcome = Job { task: Task::List, timeout, environment: &environment, tests: Tests::Full }.run();
    progress.clear();
    let inventory = Inventory::new(outcome.lines);
    let wanted = match outcome.verdict {
        Verdict::Passed => inventory.wanted(&arguments.pairs),
        Verdict::Failed(why) | Verdict::Unknown(why) => Err(why),
        Verdict::NoPath => Ok(Vec::new()),
    };
    let mut examined = Examined::of_this_machine(inventory, arguments.sim);
    (examined.is_quick, examined.is_full) = (arguments.quick, arguments.full);
    let pairs = match wanted {
        Ok(pairs) => pairs,
        Err(why) => {
            let said = format!("nothing was tested: {why}");
            examined.error = Some(why);
            if arguments.json {
                json::print(out, &examined)?;
            } else if arguments.issue {
                report::print_issue(out, examined)?;
                complain(said);
                return Ok(ExitCode::from(FAILED));
            } else if arguments.shows() {
                report::print_machine(out, &examined)?;
            }
            out.flush()?;
            complain(said);
            return Ok(ExitCode::from(examined.status()));
        }
    };
    if arguments.shows() {
        report::print_head(out, &examined)?;
    }
    test(&mut examined, pairs, arguments, &environment, out)?;
    if arguments.json {
        json::print(out, &examined)?;
    } else if arguments.issue {
        let status = examined.status();
        report::print_issue(out, examined)?;
        return Ok(ExitCode::from(status));
    } else if arguments.env {
        let name = |ordinal: usize| match examined.inventory.devices.get(ordinal) {
            Some(device) if !device.uuid.is_empty() => device.uuid.clone(),
            _ => ordinal.to_string(),
        };
        advice::exports(&examined.rows, name).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    } else {
        report::print_at_once(out, &examined.rows)?;
        report::print_details(out, &examined)?;
        report::print_machine(out, &examined)?;
        report::print_conclusion(out, &examined)?;
    }
    out.flush()?;
    Ok(ExitCode::from(examined.status()))
}

/// Tests pairs, one after the other and then at once, keeps the verdicts, and shows the rows of the table.
///
/// # Errors
/// The output could not be written.
fn test(
    examined: &mut Examined,
    pairs: Vec<[usize; 2]>,
    arguments: &DoctorArguments,
    environment: &[(OsString, OsString)],
    out: &mut impl Write,
) -> io::Result<()> {
    let timeout = Duration::from_secs(arguments.timeout);
    let cache = kept::cache().filter(|_| arguments.sim.is_none());
    let keep = |inventory: &Inventory, row: &Row| {
        let cache = cache.as_ref()?;
        kept::keep(cache, inventory, row, arguments.timeout).then(|| cache.folder().to_owned())
    };
    let tests = match (arguments.quick, arguments.full) {
        (true, _) => Tests::Quick,
        (_, true) => Tests::AllMemory,
        _ => Tests::Measured,
    };
    let progress = Progress::new(pairs.len());
    for (done, pair) in pairs.into_iter().enumerate() {
        let [from, to] = pair;
        progress.show(done, &format!("{from}>{to}"));
        let row = examine(&examined.inventory, pair, timeout, environment, tests);
        progress.clear();
        // All pairs at once may still say otherwise of one that has passed.
        if row.verdict != Verdict::Passed {
            examined.kept_in = keep(&examined.inventory, &row).or(examined.kept_in.take());
        }
        if arguments.shows() {
            report::print_row(out, &row, examined.is_full)?;
        }
        examined.rows.push(row);
    }
    if arguments.quick {
        return Ok(());
    }
    progress.show(examined.rows.len(), "all pairs at once");
    examine_at_once(&examined.inventory, &mut examined.rows, timeout, environment);
    progress.clear();
    for row in &examined.rows {
        if row.verdict == Verdict::Passed || row.finding(Test::AllPairs).is_some() {
            examined.kept_in = keep(&examined.inventory, row).or(examined.kept_in.take());
        }
    }
    Ok(())
}

impl Examined {
    /// What is known before any pair is tested. Simulated GPUs have no place on the machine.
    fn of_this_machine(inventory: Inventory, simulated: Option<u8>) -> Self {
        let root = machine::root(simulated.is_some(), std::env::var_os("P2PSIM_ROOT"));
        Self::of_machine(inventory, simulated, root)
    }

    /// The machine is read below `root`, if there is one.
    fn of_machine(inventory: Inventory, simulated: Option<u8>, root: Option<PathBuf>) -> Self {
        let bus_ids: Vec<String> = inventory.devices.iter().map(|device| device.bus_id.clone()).collect();
        let (root, bus_ids) = root.map_or_else(|| (PathBuf::from("/"), Vec::new()), |root| (root, bus_ids));
        Self {
            machine: Machine::read(&root, &bus_ids).with_log(&root),
            places: bus_ids.iter().map(|bus_id| Place::read(&root, bus_id)).collect(),
            container: place::container(&root),
            inventory,
            simulated,
            rows: Vec::new(),
            error: None,
            kept_in: None,
            is_quick: false,
            is_full: false,
        }
    }

    /// What joins a pair.
    fn joint(&self, pair: [usize; 2]) -> Joint {
        if self.inventory.nvlinks.contains(&pair) {
            return Joint::NvLink;
        }
        let [one, other] = pair.map(|ordinal| self.machine.gpus.get(ordinal).zip(self.places.get(ordinal)));
        one.zip(other).map_or(Joint::Unseen, |(one, other)| Joint::of_pci([one, other]))
    }

    /// What is known of each GPU, by NVML or else by sysfs.
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
        let machine = Some(&self.machine).filter(|machine| self.simulated.is_none() || !machine.gpus.is_empty());
        advice::advice(&self.rows, machine, &self.known(), |pair| self.joint(pair))
    }

    fn conclusion(&self) -> Conclusion {
        if self.error.is_some() { Conclusion::Untested } else { Conclusion::of(&self.rows) }
    }

    /// What came out of it, in a sentence or two.
    fn summary(&self) -> String {
        let text = self.conclusion().text(&self.rows, self.inventory.devices.len());
        match self.conclusion() {
            Conclusion::Safe if self.is_quick => {
                let what = text.trim_start_matches("peer access can be trusted");
                format!(
                    "no fault was found up to 1 MiB; larger copies, copies between processes and of all pairs at once were not tested{what}"
                )
            }
            _ => text,
        }
    }

    fn status(&self) -> u8 {
        if self.error.is_some() { FAILED } else { self.conclusion().status() }
    }
}

/// What is said of a test that did not end.
fn hung(time: Duration) -> Finding {
    Finding::Hung(format!("it had not finished after {} s", time.as_secs()))
}

/// The verdict on a process that did not end, in that test or before any: only a test says something of the pair.
fn verdict_of_hanging(test: Option<Test>, time: Duration) -> Verdict {
    match test {
        Some(test) => Verdict::Passed.and(test, hung(time)),
        None => Verdict::Unknown(format!(
            "CUDA had not started after {} s; raise --timeout, or run nvidia-persistenced to start it faster",
            time.as_secs()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::kept::keep;
    use super::*;
    use p2pshim_host::verdicts::Cache;

    #[test]
    fn keep_only_what_is_a_verdict_on_the_pair() {
        let folder = std::env::temp_dir().join(format!("p2pshim-doctor-{}", std::process::id()));
        let cache = Cache::of(Some(folder.clone().into()), None, own_user()).unwrap();
        let device =
            |ordinal: usize| Device { bus_id: String::new(), uuid: format!("GPU-{ordinal}"), name: String::new() };
        let inventory = Inventory { driver: Some(13000), devices: vec![device(0), device(1)], ..Inventory::default() };
        let row = |verdict: Verdict, finding: Option<Finding>| Row {
            findings: [finding, None, None, None, None, None, None, None, None],
            ..Row::new([0, 1], verdict)
        };
        let failed = || Verdict::Failed("gone".to_owned());
        let hung = || Some(Finding::Hung(String::new()));
        for (verdict, finding, timeout, expected) in [
            (Verdict::Passed, None, TIMEOUT_S, true),
            (failed(), None, 1, true),
            (failed(), hung(), 1, false),
            (failed(), hung(), TIMEOUT_S, true),
            (Verdict::Unknown(String::new()), None, TIMEOUT_S, false),
            (Verdict::NoPath, None, TIMEOUT_S, false),
        ] {
            let said = format!("{verdict:?} {finding:?} {timeout}");
            assert_eq!(keep(&cache, &inventory, &row(verdict, finding), timeout), expected, "{said}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    fn own_user() -> u32 {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata("/proc/self").unwrap().uid()
    }

    #[test]
    fn verdict_of_hanging_before_any_test_says_nothing_of_the_pair() {
        let second = Duration::from_secs(1);
        assert_eq!(verdict_of_hanging(None, second).status(), 2);
        assert_eq!(verdict_of_hanging(Some(Test::Stores), second).status(), 1);
    }
}
