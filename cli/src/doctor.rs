//! `p2pshim doctor`: proves peer access between devices with data, and tells what may stand in its way.
//!
//! This process never touches a GPU, for work on one may never end. It starts another for the list of devices and one
//! for each pair (`worker`), reads what they say (`lines`), and gives up on them when their time is over (`supervisor`).

mod cuda;
mod kernel;
mod lines;
#[path = "../../src/policy/access/machine.rs"]
mod machine;
mod pattern;
mod proof;
mod report;
mod supervisor;
pub(crate) mod worker;

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use lines::{Finding, Line, Test, Verdict};
use machine::Machine;
use report::{Device, Row};
use supervisor::Job;

/// How long a pair may take, in seconds, unless the user says otherwise.
const TIMEOUT_S: u64 = 20;

/// What to probe.
#[derive(Args)]
pub(crate) struct DoctorArguments {
    /// Pairs of GPUs: 0>1 (GPU 0 reaches the memory of GPU 1) or 0-1 (both ways) [default: all]
    #[arg(value_name = "PAIR", value_delimiter = ',')]
    pairs: Vec<Pairs>,
    /// After how many seconds to give up on a pair
    #[arg(long, value_name = "SECONDS", default_value_t = TIMEOUT_S, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// What the user wrote for one or two pairs of ordinals.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pairs(Vec<[usize; 2]>);

impl FromStr for Pairs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a pair of GPUs such as 0>1 or 0-1 (quote the >)");
        let both_ways = !text.contains('>');
        let (from, to) = text.split_once(if both_ways { '-' } else { '>' }).ok_or_else(wrong)?;
        let (from, to) = (from.trim().parse().map_err(|_| wrong())?, to.trim().parse().map_err(|_| wrong())?);
        if from == to {
            return Err(format!("{text:?}: a GPU needs no path to itself"));
        }
        Ok(Self(if both_ways { vec![[from, to], [to, from]] } else { vec![[from, to]] }))
    }
}

/// What the first worker tells.
#[derive(Debug, Default, PartialEq, Eq)]
struct Inventory {
    driver: i32,
    devices: Vec<Device>,
    /// Pairs with a path.
    paths: Vec<[usize; 2]>,
}

impl Inventory {
    fn new(lines: Vec<Line>) -> Self {
        let mut inventory = Self::default();
        for line in lines {
            match line {
                Line::Driver(version) => inventory.driver = version,
                Line::Device { bus_id, uuid, name, .. } => inventory.devices.push(Device { bus_id, uuid, name }),
                Line::Path(from, to) => inventory.paths.push([from, to]),
                Line::Begin(_) | Line::Found(..) | Line::Speed(_) | Line::Verdict(_) => {}
            }
        }
        inventory
    }

    /// The pairs that are asked for, each once; all if none is.
    ///
    /// # Errors
    /// A sentence for the user if one of them does not exist.
    fn wanted(&self, asked: &[Pairs]) -> Result<Vec<[usize; 2]>, String> {
        let count = self.devices.len();
        let mut pairs: Vec<[usize; 2]> = Vec::new();
        if asked.is_empty() {
            let all = (0..count).flat_map(|from| (0..count).map(move |to| [from, to]));
            pairs.extend(all.filter(|[from, to]| from != to));
        }
        for &pair in asked.iter().flat_map(|Pairs(pairs)| pairs) {
            if let Some(missing) = pair.iter().find(|&&ordinal| ordinal >= count) {
                return Err(format!("there is no GPU {missing}: CUDA shows {count}, counted from 0"));
            }
            if !pairs.contains(&pair) {
                pairs.push(pair);
            }
        }
        Ok(pairs)
    }

    fn uuids(&self, pair: [usize; 2]) -> Option<[&str; 2]> {
        let [from, to] = pair.map(|ordinal| self.devices.get(ordinal).map(|device| device.uuid.as_str()));
        Some([from?, to?])
    }
}

/// Probes, and answers with the exit status: 0 all proven or without a path, 1 a pair failed, 2 something could not be
/// tested.
///
/// # Errors
/// The output could not be written.
pub(crate) fn run(arguments: &DoctorArguments, out: &mut impl Write) -> io::Result<ExitCode> {
    let timeout = Duration::from_secs(arguments.timeout);
    let outcome = Job { pair: None, timeout }.run();
    let inventory = Inventory::new(outcome.lines);
    let bus_ids: Vec<String> = inventory.devices.iter().map(|device| device.bus_id.clone()).collect();
    let machine = Machine::read(Path::new("/"), &bus_ids);
    let wanted = match outcome.verdict {
        Verdict::Passed => inventory.wanted(&arguments.pairs),
        Verdict::Failed(why) | Verdict::Unknown(why) => Err(why),
        Verdict::NoPath => Ok(Vec::new()),
    };
    let pairs = match wanted {
        Ok(pairs) => pairs,
        Err(why) => {
            if arguments.json {
                let end = (Verdict::Unknown(String::new()).status(), Some(why.as_str()));
                report::print_json(out, None, &machine, &inventory.devices, &[], end)?;
            } else {
                report::print_machine(out, &machine)?;
            }
            out.flush()?;
            eprintln!("p2pshim: nothing was tested: {why}");
            return Ok(ExitCode::from(Verdict::Unknown(why).status()));
        }
    };
    if !arguments.json {
        report::print_head(out, inventory.driver, &machine, &inventory.devices)?;
    }
    let mut rows = Vec::new();
    for pair in pairs {
        let row = probe(&inventory, pair, timeout);
        if !arguments.json {
            report::print_row(out, &row)?;
        }
        rows.push(row);
    }
    let status = status(rows.iter().map(|row| &row.verdict));
    if arguments.json {
        report::print_json(out, Some(inventory.driver), &machine, &inventory.devices, &rows, (status, None))?;
    } else {
        if rows.is_empty() {
            writeln!(out, "no pair: peer access needs two GPUs, and CUDA shows {}", inventory.devices.len())?;
        }
        report::print_details(out, &rows, &machine)?;
        report::print_machine(out, &machine)?;
    }
    out.flush()?;
    Ok(ExitCode::from(status))
}

/// Has a pair proven, if the hardware has a path.
fn probe(inventory: &Inventory, pair: [usize; 2], timeout: Duration) -> Row {
    let mut row = Row { pair, findings: [None, None, None], speed: None, verdict: Verdict::NoPath, left_behind: None };
    let Some(uuids) = inventory.uuids(pair).filter(|_| inventory.paths.contains(&pair)) else { return row };
    let outcome = Job { pair: Some(uuids), timeout }.run();
    for line in outcome.lines {
        match line {
            Line::Found(test, finding) => {
                let place = row.findings.iter_mut().zip(Test::ALL).find(|(_, known)| *known == test);
                if let Some((place, _)) = place {
                    *place = Some(finding);
                }
            }
            Line::Speed(speed) => row.speed = Some(speed),
            _ => {}
        }
    }
    (row.verdict, row.left_behind) = (outcome.verdict, outcome.left_behind);
    row
}

/// The exit status for all pairs: a failure outweighs what could not be tested.
fn status<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> u8 {
    let all: Vec<u8> = verdicts.map(Verdict::status).collect();
    [1, 2].into_iter().find(|status| all.contains(status)).unwrap_or_default()
}

/// What is said of a test that did not end.
fn hung(time: Duration) -> Finding {
    Finding::Hung(format!("it had not ended after {} s", time.as_secs()))
}

/// The verdict on a process that did not end, in that test or before any: only a test says something of the pair.
fn verdict_of_hanging(test: Option<Test>, time: Duration) -> Verdict {
    match test {
        Some(test) => Verdict::Passed.and(test, hung(time)),
        None => Verdict::Unknown(format!(
            "CUDA had not started after {} s; --timeout allows more, and nvidia-persistenced makes it faster",
            time.as_secs()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory(count: usize) -> Inventory {
        let device = |ordinal: usize| Line::Device {
            ordinal,
            bus_id: String::new(),
            uuid: format!("GPU-{ordinal}"),
            name: String::new(),
        };
        Inventory::new((0..count).map(device).chain([Line::Driver(13000), Line::Path(0, 1)]).collect())
    }

    #[test]
    fn pairs_one_way_and_both_ways() {
        assert_eq!("0>1".parse(), Ok(Pairs(vec![[0, 1]])));
        assert_eq!("3-2".parse(), Ok(Pairs(vec![[3, 2], [2, 3]])));
        for wrong in ["", "0", "0>", "-1", "0:1", "a>b", "1>1", "0>1>2"] {
            assert!(wrong.parse::<Pairs>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn wanted_all_or_those_asked_for_each_once() {
        assert_eq!(inventory(2).wanted(&[]), Ok(vec![[0, 1], [1, 0]]));
        assert_eq!(inventory(1).wanted(&[]), Ok(vec![]));
        let asked = ["2>0", "0-2"].map(|text| text.parse().unwrap());
        assert_eq!(inventory(3).wanted(&asked), Ok(vec![[2, 0], [0, 2]]));
        assert!(inventory(2).wanted(&asked).unwrap_err().contains("no GPU 2"));
    }

    #[test]
    fn status_failure_outweighs_what_could_not_be_tested() {
        let (failed, unknown) = (Verdict::Failed(String::new()), Verdict::Unknown(String::new()));
        assert_eq!(status([Verdict::Passed, Verdict::NoPath].iter()), 0);
        assert_eq!(status([Verdict::Passed, unknown.clone()].iter()), 2);
        assert_eq!(status([unknown, failed, Verdict::Passed].iter()), 1);
        assert_eq!(status([].iter()), 0);
    }

    #[test]
    fn verdict_of_hanging_before_any_test_says_nothing_of_the_pair() {
        let second = Duration::from_secs(1);
        assert_eq!(verdict_of_hanging(None, second).status(), 2);
        assert_eq!(verdict_of_hanging(Some(Test::Stores), second).status(), 1);
    }
}
