//! `p2pshim fleet`: the doctor's results of many machines; and each machine's as rows for a spreadsheet, and as metrics for Prometheus.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use p2pshim_host::text::Escaped;
use serde_json::{Value, json};

use super::json::VERSION;
use super::json::model::{Device, Pair, Report};
use super::lines::Test;
use crate::judge::{self, Level};
use crate::report::named;
use crate::report::term::few;
use crate::status;
use crate::table::Table;

/// A figure of a pair.
struct Figure {
    key: &'static str,
    of: fn(&Pair) -> Option<f64>,
    /// Its metric's label, if it has one: of copies in bytes a second, or of their latency in seconds.
    label: &'static str,
    /// The words for a machine whose figure is below the usual, if that is looked at.
    verb: &'static str,
}

const FIGURES: [Figure; 7] = [
    Figure { key: "gb_per_s", of: |pair| pair.gb_per_s, label: "direct", verb: "copies at" },
    Figure { key: "expected_gb_per_s", of: |pair| pair.expected_gb_per_s, label: "expected", verb: "" },
    Figure { key: "all_pairs_at_once_gb_per_s", of: |pair| pair.all_pairs_at_once_gb_per_s, label: "", verb: "" },
    Figure { key: "staged_gb_per_s", of: |pair| pair.staged_gb_per_s, label: "staged", verb: "is staged at" },
    Figure {
        key: "staged_by_p2pshim_gb_per_s",
        of: |pair| pair.staged_by_p2pshim_gb_per_s,
        label: "staged by p2pshim",
        verb: "",
    },
    Figure { key: "latency_us", of: |pair| pair.latency_us, label: "direct", verb: "" },
    Figure { key: "staged_latency_us", of: |pair| pair.staged_latency_us, label: "staged", verb: "" },
];

/// Files of many machines.
#[derive(Args)]
pub(crate) struct FleetArguments {
    /// Files of `doctor --json`, or folders with *.json
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Print a line for each pair of each machine
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// Reads the files, and writes how their machines compare. Returns the exit status.
pub(crate) fn run(FleetArguments { paths, json, csv }: &FleetArguments, out: &mut impl Write) -> ExitCode {
    let fleet = Fleet::read(paths);
    let written = match (json, csv) {
        (true, _) => fleet.json(out),
        (_, true) => self::csv(fleet.machines.iter().map(|machine| &machine.all), out),
        _ => fleet.write(out),
    };
    let written = written.and_then(|()| out.flush()).map_err(|error| named("standard output", error));
    status::end(fleet.status(), [written])
}

/// Writes a line for each pair of each machine, under a line of names. A cell that is not known is empty. A machine without pairs has a line
/// of its own.
pub(super) fn csv<'a>(machines: impl Iterator<Item = &'a Report>, out: &mut dyn Write) -> io::Result<()> {
    let rows = machines.flat_map(|machine| {
        let none = machine.pairs.is_empty().then_some(None);
        machine.pairs.iter().map(Some).chain(none).map(move |pair| (machine, pair))
    });
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    let said = |machine: &Report| text(machine.error.as_deref().or(machine.summary.as_deref()));
    let mut table = Table::of(rows)
        .text("host", |(machine, _)| machine.host.clone())
        .number("time", |(machine, _)| machine.time.to_string())
        .text("machine", |(machine, _)| machine.verdict.clone())
        .text("summary", |(machine, _)| said(machine));
    for (name, end) in [("from", (|pair| pair.from) as fn(&Pair) -> usize), ("to", |pair| pair.to)] {
        let device = |(machine, pair): &(&'a Report, Option<&Pair>)| machine.devices.get(end((*pair)?));
        table = table
            .number(name, |(_, pair)| pair.map_or_else(String::new, |pair| end(pair).to_string()))
            .text(&format!("{name}_name"), |it| text(device(it).map(|device| &*device.name)))
            .text(&format!("{name}_uuid"), |it| text(device(it).map(|device| &*device.uuid)));
    }
    table = table
        .text("link", |(_, pair)| text(pair.and_then(|pair| pair.link.as_deref())))
        .text("verdict", |(_, pair)| text(pair.map(|pair| &*pair.verdict)))
        .text("detail", |(_, pair)| text(pair.and_then(|pair| pair.detail.as_deref())));
    for test in Test::ALL {
        table =
            table.text(test.word(), |(_, pair)| text(pair.and_then(|it| Some(&*it.parts.get(test.word())?.result))));
    }
    for Figure { key, of, .. } in FIGURES {
        table = table.number(key, |(_, pair)| pair.and_then(of).map_or_else(String::new, |it| format!("{it:?}")));
    }
    table.csv(out)
}

/// Writes metrics in Prometheus' text format, for the textfile collector of its node exporter.
pub(super) fn prometheus(machine: &Report, out: &mut dyn Write) -> io::Result<()> {
    let mut metric = |name: &str, help: &str, values: &[(String, f64)]| {
        if values.is_empty() {
            return Ok(());
        }
        writeln!(out, "# HELP p2pshim_doctor_{name} {help}\n# TYPE p2pshim_doctor_{name} gauge")?;
        values.iter().try_for_each(|(labels, value)| writeln!(out, "p2pshim_doctor_{name}{labels} {value}"))
    };
    let labels = |pair: &Pair, name: &str, value: &str| {
        let [from, to] = [pair.from, pair.to].map(|end| machine.devices.get(end).map_or("", |device| &device.uuid));
        let (from, to) = (label(from), label(to));
        format!(
            "{{from=\"{}\",from_uuid=\"{from}\",to=\"{}\",to_uuid=\"{to}\",{name}=\"{}\"}}",
            pair.from,
            pair.to,
            label(value)
        )
    };
    let own = |value: f64| [(String::new(), value)];
    let seconds = (machine.time as f64 / 1e9).floor();
    metric("time_seconds", "When the GPUs were examined, in seconds since 1970.", &own(seconds))?;
    let help = "0 safe or without peer access, 1 unsafe, 3 not all tested.";
    metric("status", help, &own(machine.status.into()))?;
    let help = "How many hints there are on speeds and the NVLink fabric.";
    metric("hints", help, &own(machine.hints.len() as f64))?;
    let verdicts = machine.pairs.iter().map(|pair| (labels(pair, "verdict", &pair.verdict), 1.0));
    metric("pair_verdict", "The verdict on a pair, as a label.", &verdicts.collect::<Vec<_>>())?;
    let results = machine.pairs.iter().flat_map(|pair| pair.parts.iter().map(move |part| (pair, part)));
    let results = results.filter_map(|(pair, (word, part))| {
        let value = match &*part.result {
            "right" => 1.0,
            "wrong" | "hung" => 0.0,
            _ => return None,
        };
        Some((labels(pair, "test", word), value))
    });
    metric("pair_test", "Whether a test of a pair was right; none if it was not made.", &results.collect::<Vec<_>>())?;
    for (name, help, suffix, unit) in [
        ("pair_bytes_per_second", "How fast large copies are.", "gb_per_s", 1e9),
        ("pair_latency_seconds", "How long the GPU takes for a copy of 4 bytes.", "latency_us", 1e-6),
    ] {
        let is_meant = |figure: &&Figure| figure.key.ends_with(suffix) && !figure.label.is_empty();
        let values = machine.pairs.iter().flat_map(|pair| {
            let of_pair = |figure: &Figure| Some((labels(pair, "path", figure.label), (figure.of)(pair)? * unit));
            FIGURES.iter().filter(is_meant).filter_map(of_pair).collect::<Vec<_>>()
        });
        metric(name, help, &values.collect::<Vec<_>>())?;
    }
    Ok(())
}

/// The doctor's files of a fleet.
#[derive(Default)]
struct Fleet {
    machines: Vec<Machine>,
    /// Files that cannot be read, and why.
    unread: Vec<(String, String)>,
}

/// One machine: what its doctor found, and in what it stands out.
struct Machine {
    name: String,
    all: Report,
    /// The warning of an older result that the newest replaces.
    older: Option<String>,
    odd: Vec<String>,
}

/// The worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Unsafe,
    Nothing,
    InPart,
    Well,
}

impl Machine {
    fn rank(&self) -> Rank {
        match self.all.status {
            status::NEGATIVE => Rank::Unsafe,
            _ if self.all.error.is_some() => Rank::Nothing,
            status::GOOD => Rank::Well,
            _ => Rank::InPart,
        }
    }
}

impl Fleet {
    /// Reads files, each with the JSON of a machine or of several, and all `*.json` of folders.
    fn read(paths: &[PathBuf]) -> Self {
        let mut fleet = Self::default();
        for path in paths {
            let within = path.is_dir().then(|| {
                let entries = fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
                let mut files: Vec<_> =
                    entries.filter(|file| file.extension().is_some_and(|it| it == "json")).collect();
                files.sort();
                files
            });
            if within.as_ref().is_some_and(Vec::is_empty) {
                fleet.unread.push((path.display().to_string(), "no *.json in this folder".to_owned()));
            }
            within.unwrap_or_else(|| vec![path.clone()]).iter().for_each(|file| fleet.add(file));
        }
        fleet.compare();
        fleet
    }

    fn add(&mut self, file: &Path) {
        let name = file.display().to_string();
        let text = match fs::read(file) {
            Ok(text) => text,
            Err(error) => return self.unread.push((name, error.to_string())),
        };
        let mut all = serde_json::Deserializer::from_slice(&text).into_iter::<Value>().peekable();
        if all.peek().is_none() {
            self.unread.push((name.clone(), "empty".to_owned()));
        }
        for one in all {
            match one.map_err(|error| error.to_string()).and_then(machine) {
                Ok(machine) => self.put(machine),
                Err(why) => return self.unread.push((name, why)),
            }
        }
    }

    /// The later of two results of a machine counts.
    fn put(&mut self, all: Report) {
        let mut machine = Machine { name: all.host.clone(), all, older: None, odd: Vec::new() };
        let uuids = |all: &Report| all.devices.iter().map(|device| device.uuid.clone()).collect::<Vec<_>>();
        // Containers and clones share names, but not GPUs.
        let is_it = |known: &Machine| known.name == machine.name && uuids(&known.all) == uuids(&machine.all);
        let Some(place) = self.machines.iter().position(is_it) else { return self.machines.push(machine) };
        let Some(known) = self.machines.get_mut(place) else { return };
        if known.all.time < machine.all.time {
            std::mem::swap(known, &mut machine);
        }
        let is_unsafe = machine.rank() == Rank::Unsafe || machine.older.is_some();
        known.older = is_unsafe.then(|| "an older result of this machine is UNSAFE".to_owned()).or(known.older.take());
    }

    /// The exit status: 0 nothing is unsafe and all was tested, 1 something is unsafe, 3 something was not tested, or not read.
    fn status(&self) -> u8 {
        match self.machines.iter().map(Machine::rank).min() {
            Some(Rank::Unsafe) => status::NEGATIVE,
            Some(Rank::Well) | None if self.unread.is_empty() => status::GOOD,
            _ => status::UNKNOWN,
        }
    }

    /// Finds out in what machines stand out among those with the same GPUs.
    fn compare(&mut self) {
        let total = self.machines.len();
        let newest = self.machines.iter().map(|machine| machine.all.time).max().unwrap_or_default();
        let mut kinds: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, machine) in self.machines.iter().enumerate() {
            kinds.entry(gpus(&machine.all)).or_default().push(index);
        }
        let most = kinds.iter().max_by_key(|(_, machines)| machines.len());
        let most = most.map(|(kind, machines)| (kind.clone(), machines.len())).unwrap_or_default();
        for (kind, indices) in &kinds {
            let alike = indices.iter().filter_map(|&index| self.machines.get(index)).map(|machine| &machine.all);
            let (usual, alike) = (Usual::of(alike), indices.len());
            for &index in indices {
                let Some(machine) = self.machines.get_mut(index) else { continue };
                let facts = Facts { machine, usual: &usual, kind, alike, most: &most, total, newest };
                let odd = judge::texts(judge::evaluate(&rows(), &facts));
                machine.odd = odd;
            }
        }
        self.machines.sort_by_cached_key(|machine| {
            let (rank, odd) = (machine.rank(), &machine.odd);
            (rank, odd.is_empty(), std::cmp::Reverse(odd.len()), machine.name.clone())
        });
    }

    /// Writes it for people, the machines that stand out first.
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let count = |rank| self.machines.iter().filter(|machine| machine.rank() == rank).count();
        let is_to_look_at = |machine: &&Machine| machine.rank() == Rank::Well && !machine.odd.is_empty();
        let to_look_at = self.machines.iter().filter(is_to_look_at).count();
        let parts = [
            (count(Rank::Unsafe), "UNSAFE"),
            (count(Rank::Nothing), "with nothing tested"),
            (count(Rank::InPart), "not tested in full"),
            (to_look_at, "to look at"),
            (count(Rank::Well) - to_look_at, "well"),
        ];
        let parts: Vec<String> =
            parts.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
        let machines = self.machines.len();
        let unread = match self.unread.len() {
            0 => String::new(),
            count => format!("; {count} file{} cannot be read", if count == 1 { "" } else { "s" }),
        };
        let list = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
        writeln!(out, "{machines} machine{}{list}{unread}.", if machines == 1 { "" } else { "s" })?;
        let odd = self.machines.iter().filter(|machine| !machine.odd.is_empty());
        // All pairs may be odd in one way: a few are named.
        let first =
            |odd: &[String]| format!("{}{}", few(odd, 4, "; "), if odd.len() > 4 { " (--json has all)" } else { "" });
        let odd = odd.map(|machine| (&machine.name, first(&machine.odd)));
        let unread = self.unread.iter().map(|(file, why)| (file, format!("cannot be read: {why}")));
        let all: Vec<_> = odd.chain(unread).collect();
        // A longer one moves only its own text.
        let width = all.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default().min(64);
        if !all.is_empty() {
            writeln!(out)?;
        }
        for (name, text) in all {
            writeln!(out, "{:width$}  {}", Escaped(name).to_string(), Escaped(text))?;
        }
        let mut kinds: BTreeMap<[String; 2], Vec<&Report>> = BTreeMap::new();
        for Machine { all, .. } in &self.machines {
            kinds.entry([gpus(all), driver(all).to_owned()]).or_default().push(all);
        }
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by_key(|(_, machines)| std::cmp::Reverse(machines.len()));
        writeln!(
            out,
            "\n{:>8}  {:40}  {:12}  {:>16}  {:>16}",
            "machines", "GPUs", "driver", "direct, GB/s", "staged, GB/s"
        )?;
        for ([gpus, driver], machines) in kinds {
            let figures: [fn(&Pair) -> Option<f64>; 2] = [|pair| pair.gb_per_s, |pair| pair.staged_gb_per_s];
            let [direct, staged] = figures.map(|figure| range(&machines, figure));
            writeln!(
                out,
                "{:>8}  {:40}  {:12}  {direct:>16}  {staged:>16}",
                machines.len(),
                Escaped(gpus).to_string(),
                Escaped(driver).to_string()
            )?;
        }
        Ok(())
    }

    /// Writes it for programs, in the order of [`Self::write`].
    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        let machine = |Machine { name, all, odd, .. }: &Machine| json!({"host": name, "status": all.status, "verdict": all.verdict, "time": all.time, "stands_out": odd});
        let unread = |(file, why): &(String, String)| json!({"file": file, "why": why});
        let all = json!({
            "version": VERSION,
            "status": self.status(),
            "machines": self.machines.iter().map(machine).collect::<Value>(),
            "unread": self.unread.iter().map(unread).collect::<Value>(),
        });
        crate::json::write_line(&all, out)
    }
}

/// A machine, if a value is one.
///
/// # Errors
/// The reason why it is none.
fn machine(all: Value) -> Result<Report, String> {
    if all.get("version").and_then(Value::as_u64).is_some_and(|version| version > VERSION.into()) {
        return Err("written by a later version of p2pshim".to_owned());
    }
    serde_json::from_value(all).map_err(|error| format!("not what `p2pshim doctor --json` writes: {error}"))
}

/// The usual facts of machines with the same GPUs.
struct Usual {
    facts: BTreeMap<String, String>,
    /// The median of each figure of each pair.
    figures: BTreeMap<(String, &'static str), f64>,
}

impl Usual {
    /// A figure below this part of the median is named.
    const SLOW: f64 = 0.8;
    /// A median of fewer says nothing.
    const FEWEST: usize = 3;

    fn of<'a>(machines: impl Iterator<Item = &'a Report>) -> Self {
        let mut facts: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        let mut figures: BTreeMap<(String, &'static str), Vec<f64>> = BTreeMap::new();
        for machine in machines {
            for (name, fact) in facts_of(machine) {
                *facts.entry(name).or_default().entry(fact).or_default() += 1;
            }
            for (pair, verb, figure) in figures_of(machine) {
                figures.entry((pair, verb)).or_default().push(figure);
            }
        }
        // Without a majority nothing is usual.
        let usual = facts.into_iter().filter_map(|(name, values)| {
            let all: usize = values.values().sum();
            let (fact, count) = values.into_iter().max_by_key(|(_, count)| *count)?;
            (count * 2 > all && all >= Self::FEWEST).then_some((name, fact))
        });
        let medians = figures.into_iter().filter_map(|(of, mut all)| {
            all.sort_by(f64::total_cmp);
            Some((of, *all.get(all.len() / 2).filter(|_| all.len() >= Self::FEWEST)?))
        });
        Self { facts: usual.collect(), figures: medians.collect() }
    }

    /// In what a machine differs.
    fn differences(&self, machine: &Report) -> Vec<String> {
        let facts = facts_of(machine).into_iter().filter_map(|(name, fact)| {
            let usual = self.facts.get(&name).filter(|usual| **usual != fact)?;
            Some(format!("{name} {fact}, {usual} is usual"))
        });
        let figures = figures_of(machine).filter_map(|(pair, verb, figure)| {
            let usual = *self.figures.get(&(pair.clone(), verb))?;
            (figure < usual * Self::SLOW).then(|| format!("{pair} {verb} {figure:.1} GB/s, {usual:.1} is usual"))
        });
        facts.chain(figures).collect()
    }
}

/// Facts about a machine that those with the same GPUs share.
fn facts_of(machine: &Report) -> Vec<(String, String)> {
    let mut facts = vec![("driver".to_owned(), driver(machine).to_owned())];
    let links = |it: &Device| Some((format!("NVLinks up at GPU {}:", it.ordinal), it.nvlinks_up?.to_string()));
    facts.extend(machine.devices.iter().filter_map(links));
    let fabric = |it: &Device| {
        let fabric = it.fabric.as_ref()?;
        let state = fabric.trouble.as_ref().unwrap_or(&fabric.state);
        Some((format!("NVLink fabric of GPU {}:", it.ordinal), state.clone()))
    };
    facts.extend(machine.devices.iter().filter_map(fabric));
    for (ordinal, gpu) in machine.machine.gpus.iter().enumerate() {
        // The speed depends on how much a GPU has to do; the lanes do not.
        if let (Some(link), Some(most)) = (&gpu.pci_link, &gpu.pci_link_most) {
            let lanes = link.rsplit(' ').next().unwrap_or_default();
            facts.push((format!("PCIe link of GPU {ordinal}:"), format!("{lanes} of {most}")));
        }
    }
    for pair in &machine.pairs {
        let link = pair.link.as_deref().unwrap_or(if pair.has_path { "some path" } else { "no path" });
        facts.push((format!("{} by", name(pair)), link.to_owned()));
    }
    facts
}

/// The figures that are compared, each with its pair and its words.
fn figures_of(machine: &Report) -> impl Iterator<Item = (String, &'static str, f64)> {
    let compared = |pair| FIGURES.iter().filter(|it| !it.verb.is_empty()).map(move |figure| (pair, figure));
    let all = machine.pairs.iter().flat_map(compared);
    all.filter_map(|(pair, figure)| Some((name(pair), figure.verb, (figure.of)(pair)?)))
}

/// The facts about a machine among the others.
struct Facts<'a> {
    machine: &'a Machine,
    usual: &'a Usual,
    /// Its GPUs, and how many machines have such.
    kind: &'a str,
    alike: usize,
    /// The GPUs that most of all machines have, and how many these are.
    most: &'a (String, usize),
    total: usize,
    newest: u64,
}

/// The rows about that in which a machine stands out.
fn rows<'a>() -> [judge::Row<'a, Facts<'a>>; 9] {
    use Level::{Bad, Warn};
    [
        judge::Row::new(Bad, "unsafe", |it: &Facts| it.pairs("failed", "UNSAFE: peer access loses data or hangs on")),
        judge::Row::new(Bad, "damaged", Facts::damaged),
        judge::Row::new(Bad, "nothing tested", Facts::nothing_tested),
        judge::Row::new(Bad, "not tested", |it: &Facts| it.pairs("not-tested", "not tested:")),
        judge::Row::new(Warn, "was unsafe", |it: &Facts| it.machine.older.clone()),
        judge::Row::new(Warn, "hints", |it: &Facts| it.machine.all.hints.clone()),
        judge::Row::new(Warn, "other GPUs", Facts::other_gpus),
        judge::Row::new(Warn, "unusual", |it: &Facts| it.usual.differences(&it.machine.all)),
        judge::Row::new(Warn, "old", Facts::age),
    ]
}

impl Facts<'_> {
    /// The pairs of a verdict.
    fn pairs(&self, verdict: &str, words: &str) -> Option<String> {
        let pairs: Vec<&Pair> = self.machine.all.pairs.iter().filter(|pair| pair.verdict == verdict).collect();
        let names = pairs.iter().map(|pair| name(pair)).collect::<Vec<_>>().join(" ");
        let detail = pairs.iter().find_map(|pair| pair.detail.as_ref());
        let detail = detail.map(|detail| format!(" ({detail})")).unwrap_or_default();
        (!pairs.is_empty()).then(|| format!("{words} {names}{detail}"))
    }

    fn damaged(&self) -> Option<String> {
        let is_known = [status::GOOD, status::NEGATIVE, status::UNKNOWN].contains(&self.machine.all.status);
        (!is_known).then(|| "damaged: its status does not exist".to_owned())
    }

    fn nothing_tested(&self) -> Option<String> {
        self.machine.all.error.as_ref().map(|error| format!("nothing was tested: {error}"))
    }

    /// Other GPUs than most have, if few machines have such.
    fn other_gpus(&self) -> Option<String> {
        let Self { kind, alike, most: (most, count), total, .. } = self;
        (kind != most && alike * 10 <= *total).then(|| format!("{kind}, where {count} of {total} machines have {most}"))
    }

    /// How much older than the newest a result is, if that matters.
    fn age(&self) -> Option<String> {
        const DAY: u64 = 86_400_000_000_000;
        let days = self.newest.saturating_sub(self.machine.all.time) / DAY;
        (days >= 2).then(|| format!("examined {days} days before the newest"))
    }
}

fn name(pair: &Pair) -> String {
    format!("{}>{}", pair.from, pair.to)
}

/// The GPUs of a machine, as `8 x NVIDIA H100`.
fn gpus(machine: &Report) -> String {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    machine.devices.iter().for_each(|device| *names.entry(&device.name).or_default() += 1);
    let all: Vec<String> = names.into_iter().map(|(name, count)| format!("{count} x {name}")).collect();
    if all.is_empty() { "no GPU".to_owned() } else { all.join(", ") }
}

fn driver(machine: &Report) -> &str {
    let versions = &machine.versions;
    versions.kernel_module.as_ref().or(versions.driver.as_ref()).map_or("unknown", String::as_str)
}

/// The least and the most of a figure.
fn range(machines: &[&Report], figure: fn(&Pair) -> Option<f64>) -> String {
    let figures = machines.iter().flat_map(|machine| &machine.pairs).filter_map(figure);
    let ends = figures.fold(None, |ends: Option<(f64, f64)>, it| {
        Some(ends.map_or((it, it), |(least, most)| (least.min(it), most.max(it))))
    });
    ends.map_or("-".to_owned(), |(least, most)| format!("{least:.1} to {most:.1}"))
}

/// A label's value.
fn label(text: &str) -> String {
    Escaped(text).to_string().replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::super::json::model::{Part, Versions};
    use super::*;
    use crate::fuzz::{each, is_plain, put_odd};

    const DAY: u64 = 86_400_000_000_000;

    /// A machine with so many GPUs, on which copies have this speed.
    fn machine(host: &str, gpus: usize, speed: f64) -> Report {
        let device = |ordinal| Device {
            ordinal,
            name: "GPU X".to_owned(),
            uuid: format!("GPU-{host}-{ordinal}"),
            nvlinks_up: Some(18),
            ..Device::default()
        };
        let pair = |from: usize, to: usize| Pair {
            from,
            to,
            verdict: "verified".to_owned(),
            has_path: true,
            link: Some("NVLink".to_owned()),
            parts: [("copies".to_owned(), Part { result: "right".to_owned(), detail: None })].into(),
            gb_per_s: Some(speed),
            staged_gb_per_s: Some(40.0),
            latency_us: Some(2.5),
            ..Pair::default()
        };
        let versions = Versions {
            kernel_module: Some("580.1".to_owned()),
            driver: Some("13.0".to_owned()),
            ..Versions::default()
        };
        Report {
            version: 1,
            host: host.to_owned(),
            time: 10 * DAY,
            verdict: "safe".to_owned(),
            summary: Some("all, well".to_owned()),
            versions,
            devices: (0..gpus).map(device).collect(),
            pairs: (0..gpus)
                .flat_map(|from| (0..gpus).filter(move |to| *to != from).map(move |to| pair(from, to)))
                .collect(),
            ..Report::default()
        }
    }

    fn fleet(machines: Vec<Report>) -> Fleet {
        let mut fleet = Fleet::default();
        machines.into_iter().for_each(|all| fleet.put(all));
        fleet.compare();
        fleet
    }

    fn text(fleet: &Fleet) -> String {
        let mut out = Vec::new();
        fleet.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn write_machines_that_stand_out_come_first_and_the_others_are_counted() {
        let mut all: Vec<Report> =
            (0..20).map(|number| machine(&format!("node{number:02}"), 2, 390.0 + f64::from(number))).collect();
        all[3].pairs[1].gb_per_s = Some(201.0);
        all[5].versions.kernel_module = Some("550.7".to_owned());
        all[7].devices[1].nvlinks_up = Some(16);
        all[7].hints = vec!["Hint: GPU 1 has 16 NVLinks up, GPU 0 has 18".to_owned()];
        all[8].time = 3 * DAY;
        (all[9].status, all[9].verdict) = (1, "unsafe".to_owned());
        let failed = &mut all[9].pairs[0];
        (failed.verdict, failed.detail) = ("failed".to_owned(), Some("copies: lost".to_owned()));
        (all[11].status, all[11].error, all[11].pairs) = (3, Some("cuInit answered 100".to_owned()), Vec::new());
        all.push(machine("odd", 1, 0.0));
        let fleet = fleet(all);
        let expected = [
            "21 machines: 1 UNSAFE, 1 with nothing tested, 5 to look at, 14 well.",
            "",
            "node09  UNSAFE: peer access loses data or hangs on 0>1 (copies: lost)",
            "node11  nothing was tested: cuInit answered 100",
            "node07  Hint: GPU 1 has 16 NVLinks up, GPU 0 has 18; NVLinks up at GPU 1: 16, 18 is usual",
            "node03  1>0 copies at 201.0 GB/s, 399.0 is usual",
            "node05  driver 550.7, 580.1 is usual",
            "node08  examined 7 days before the newest",
            "odd     1 x GPU X, where 20 of 21 machines have 2 x GPU X",
            "",
        ];
        let text = text(&fleet);
        assert_eq!(text.lines().take(expected.len()).collect::<Vec<_>>(), expected, "{text}");
        assert!(text.contains("\n      19  2 x GPU X ") && text.contains(" 201.0 to 409.0 "), "{text}");
        assert_eq!(fleet.status(), 1);
    }

    #[test]
    fn write_first_line_is_true_of_few_of_one_and_of_none() {
        for (machines, first, status) in [
            (vec![], "0 machines.", 0),
            (vec![machine("a", 2, 390.0)], "1 machine: 1 well.", 0),
            (vec![machine("a", 2, 390.0), machine("a", 2, 20.0)], "1 machine: 1 well.", 0),
            (vec![machine("a", 2, 390.0), machine("b", 4, 20.0)], "2 machines: 2 well.", 0),
        ] {
            let fleet = fleet(machines);
            assert_eq!((text(&fleet).lines().next(), fleet.status()), (Some(first), status));
            assert!(fleet.machines.iter().all(|machine| machine.odd.is_empty()), "of so few none stands out");
        }
        let mut newer = machine("a", 2, 20.0);
        newer.time = 11 * DAY;
        let fleet = fleet(vec![machine("a", 2, 390.0), newer, machine("a", 2, 1.0)]);
        assert_eq!(fleet.machines[0].all.pairs[0].gb_per_s, Some(20.0), "the newest counts");
        let mut broken = machine("a", 2, 390.0);
        (broken.status, broken.verdict) = (1, "unsafe".to_owned());
        let mut newer = machine("a", 2, 390.0);
        newer.time = 11 * DAY;
        for order in [[broken.clone(), newer.clone()], [newer.clone(), broken.clone()]] {
            let text = text(&self::fleet(order.to_vec()));
            assert!(
                text.starts_with("1 machine: 1 to look at.\n\na  an older result of this machine is UNSAFE\n"),
                "{text}"
            );
        }
        broken.devices[0].uuid = "GPU-of-another".to_owned();
        assert_eq!(self::fleet(vec![newer, broken]).status(), 1, "another machine of that name");
    }

    #[test]
    fn read_says_of_each_file_why_it_is_none() {
        let folder = std::env::temp_dir().join(format!("p2pshim-fleet-{}", std::process::id()));
        let nothing = folder.join("nothing");
        fs::create_dir_all(&nothing).unwrap();
        let [one, two] = ["a", "b"].map(|host| serde_json::to_string(&machine(host, 2, 390.0)).unwrap());
        for (name, text) in [
            ("both.json", format!("{one}\n{two}\n")),
            ("cut.json", one[..100].to_owned()),
            ("empty.json", String::new()),
            ("later.json", "{\"version\": 2}".to_owned()),
            ("other.json", "{\"version\": 1}".to_owned()),
            ("left.txt", "no matter".to_owned()),
        ] {
            fs::write(folder.join(name), text).unwrap();
        }
        let fleet = Fleet::read(&[folder.clone(), nothing, folder.join("gone.json")]);
        assert_eq!(fleet.machines.len(), 2);
        let why: Vec<&str> = fleet.unread.iter().map(|(_, why)| why.as_str()).collect();
        let [cut, "empty", later, other, within, gone] = why[..] else { panic!("{why:?}") };
        assert!(cut.starts_with("EOF while parsing") && gone.starts_with("No such file"), "{why:?}");
        assert_eq!([later, within], ["written by a later version of p2pshim", "no *.json in this folder"]);
        assert!(other.starts_with("not what `p2pshim doctor --json` writes: missing field"), "{other}");
        assert!(text(&fleet).starts_with("2 machines: 2 well; 6 files cannot be read.\n"), "{}", text(&fleet));
        assert_eq!(fleet.status(), 3);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn csv_has_a_line_for_each_pair_and_for_a_machine_without() {
        let mut out = Vec::new();
        csv([machine("a", 2, 390.5), machine("b", 1, 0.0)].iter(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(
            lines[1].starts_with(
                "a,864000000000000,safe,\"all, well\",0,GPU X,GPU-a-0,1,GPU X,GPU-a-1,NVLink,verified,,right,,"
            ),
            "{text}"
        );
        assert!(lines[1].ends_with(",390.5,,,40.0,,2.5,"), "{text}");
        assert!(lines[3].starts_with("b,864000000000000,safe,\"all, well\",,,"), "{text}");
        // The comma of the summary stands in quotes.
        let cells = |line: &str| line.matches(',').count() - line.matches("all, well").count();
        assert!(lines.iter().all(|line| cells(line) == cells(lines[0])), "{text}");
    }

    /// `make fuzz INPUTS=n` tries so many.
    #[test]
    fn damaged_documents_are_read_as_far_as_they_go_and_shown_as_text() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let good: Vec<Value> =
            ["a", "b", "c"].map(|host| serde_json::to_value(machine(host, 2, 390.0)).unwrap()).into();
        each(500, |_, random| {
            let mut all = good.clone();
            for _ in 0..=random.below(4) {
                put_odd(&mut all[random.below(3)], random);
            }
            let mut bytes: Vec<u8> = all.iter().flat_map(|all| serde_json::to_vec(all).unwrap()).collect();
            if random.below(3) == 0 {
                let at = random.below(bytes.len());
                bytes[at] = random.below(256) as u8;
            }
            fs::write(&file, bytes).unwrap();
            let fleet = Fleet::read(&[file.path().to_owned()]);
            let shown = text(&fleet);
            assert!(is_plain(&shown), "{shown:?}");
            let mut out = Vec::new();
            fleet.json(&mut out).unwrap();
            assert!(serde_json::from_slice::<Value>(&out).is_ok());
            let machines = || fleet.machines.iter().map(|machine| &machine.all);
            csv(machines(), &mut out).unwrap();
            machines().try_for_each(|machine| prometheus(machine, &mut out)).unwrap();
            assert!(is_plain(&String::from_utf8(out).unwrap()));
        });
    }
}
