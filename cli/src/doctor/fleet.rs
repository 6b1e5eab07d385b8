//! The doctor's results of many machines: rows for a spreadsheet, metrics for Prometheus, and the files of a fleet read together.
//! All of it is made of the JSON that `--json` prints.

#![expect(clippy::indexing_slicing, reason = "of JSON, what is not there is null")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use p2pshim_host::text::Escaped;
use serde_json::{Value, json};

use super::json::VERSION;
use crate::report::field;
use crate::status;

/// The tests of a pair, by their keys.
const TESTS: [&str; 14] = [
    "copy_engine",
    "kernel_loads",
    "kernel_stores",
    "kernel_atomics",
    "kernel_flags",
    "kernel_pull",
    "kernel_ll",
    "kernel_ll128",
    "between_processes_ipc",
    "between_processes_vmm",
    "between_processes_kernels",
    "all_memory",
    "all_pairs_at_once",
    "all_to_all",
];
/// The figures of a pair, by their keys.
const FIGURES: [&str; 7] = [
    "gb_per_s",
    "expected_gb_per_s",
    "all_pairs_at_once_gb_per_s",
    "staged_gb_per_s",
    "staged_by_p2pshim_gb_per_s",
    "latency_us",
    "staged_latency_us",
];

/// Writes a line for each pair of each machine, under a line of names. A cell that is not known is empty. A machine without pairs has a line
/// of its own.
pub(super) fn csv(machines: &[Value], out: &mut dyn Write) -> io::Result<()> {
    let ends = ["from", "from_name", "from_uuid", "to", "to_name", "to_uuid", "link", "verdict", "detail"];
    let names = ["host", "time", "machine", "summary"].into_iter().chain(ends).chain(TESTS).chain(FIGURES);
    writeln!(out, "{}", names.collect::<Vec<_>>().join(","))?;
    for machine in machines {
        let own = [&machine["host"], &machine["time"], &machine["verdict"], said(machine)].map(cell);
        let pairs = machine["pairs"].as_array().map(Vec::as_slice).unwrap_or_default();
        for pair in pairs {
            let [from, to] = ["from", "to"].map(|end| {
                let device = &machine["devices"][place(&pair[end])];
                [&pair[end], &device["name"], &device["uuid"]].map(cell)
            });
            let of_pair = ["link", "verdict", "detail"].map(|key| cell(&pair[key]));
            let tests = TESTS.map(|test| cell(&pair[test]["result"]));
            let figures = FIGURES.map(|figure| cell(&pair[figure]));
            let all = own.iter().chain(&from).chain(&to).chain(&of_pair).chain(&tests).chain(&figures);
            writeln!(out, "{}", all.map(String::as_str).collect::<Vec<_>>().join(","))?;
        }
        if pairs.is_empty() {
            writeln!(out, "{}{}", own.join(","), ",".repeat(ends.len() + TESTS.len() + FIGURES.len()))?;
        }
    }
    Ok(())
}

/// Writes metrics in Prometheus' text format, for the textfile collector of its node exporter.
pub(super) fn prometheus(machine: &Value, out: &mut dyn Write) -> io::Result<()> {
    let mut metric = |name: &str, help: &str, values: &[(String, f64)]| {
        if values.is_empty() {
            return Ok(());
        }
        writeln!(out, "# HELP p2pshim_doctor_{name} {help}\n# TYPE p2pshim_doctor_{name} gauge")?;
        values.iter().try_for_each(|(labels, value)| writeln!(out, "p2pshim_doctor_{name}{labels} {value}"))
    };
    let pairs = machine["pairs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let labels = |pair: &Value, own: &[(&str, &str)]| {
        let ends = ["from", "to"].map(|end| {
            let uuid = &machine["devices"][place(&pair[end])]["uuid"];
            format!("{end}=\"{}\",{end}_uuid=\"{}\"", place(&pair[end]), label(uuid.as_str().unwrap_or_default()))
        });
        let own = own.iter().map(|(name, value)| format!("{name}=\"{}\"", label(value)));
        format!("{{{}}}", ends.into_iter().chain(own).collect::<Vec<_>>().join(","))
    };
    let seconds = machine["time"].as_f64().unwrap_or_default() / 1e9;
    metric("time_seconds", "When the GPUs were examined, in seconds since 1970.", &[(String::new(), seconds.floor())])?;
    let status = machine["status"].as_f64().unwrap_or_default();
    metric("status", "0 safe or without peer access, 1 unsafe, 3 not all tested.", &[(String::new(), status)])?;
    let hints = machine["hints"].as_array().map_or(0, Vec::len);
    metric("hints", "How many hints there are on speeds and the NVLink fabric.", &[(String::new(), hints as f64)])?;
    let verdicts =
        pairs.iter().map(|pair| (labels(pair, &[("verdict", pair["verdict"].as_str().unwrap_or_default())]), 1.0));
    metric("pair_verdict", "The verdict on a pair, as a label.", &verdicts.collect::<Vec<_>>())?;
    let results = pairs.iter().flat_map(|pair| TESTS.map(|test| (pair, test, pair[test]["result"].as_str())));
    let results = results.filter_map(|(pair, test, result)| {
        let value = match result? {
            "right" => 1.0,
            "wrong" | "hung" => 0.0,
            _ => return None,
        };
        Some((labels(pair, &[("test", test)]), value))
    });
    metric("pair_test", "Whether a test of a pair was right; none if it was not made.", &results.collect::<Vec<_>>())?;
    for (name, help, unit, figures) in [
        (
            "pair_bytes_per_second",
            "How fast large copies are.",
            1e9,
            &[
                ("gb_per_s", "direct"),
                ("expected_gb_per_s", "expected"),
                ("staged_gb_per_s", "staged"),
                ("staged_by_p2pshim_gb_per_s", "staged by p2pshim"),
            ][..],
        ),
        (
            "pair_latency_seconds",
            "How long the GPU takes for a copy of 4 bytes.",
            1e-6,
            &[("latency_us", "direct"), ("staged_latency_us", "staged")],
        ),
    ] {
        let values = pairs.iter().flat_map(|pair| figures.iter().map(move |figure| (pair, figure)));
        let values = values
            .filter_map(|(pair, (key, path))| Some((labels(pair, &[("path", path)]), pair[key].as_f64()? * unit)));
        metric(name, help, &values.collect::<Vec<_>>())?;
    }
    Ok(())
}

/// The doctor's files of a fleet.
#[derive(Default)]
pub(super) struct Fleet {
    machines: Vec<Machine>,
    /// Files that cannot be read, and why.
    unread: Vec<(String, String)>,
}

/// One machine: its JSON, and in what it stands out.
struct Machine {
    name: String,
    all: Value,
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
        match self.all["status"].as_u64() {
            Some(1) => Rank::Unsafe,
            _ if !self.all["error"].is_null() => Rank::Nothing,
            Some(0) => Rank::Well,
            _ => Rank::InPart,
        }
    }
}

impl Fleet {
    /// Reads files, each with the JSON of a machine or of several, and all `*.json` of folders.
    pub(super) fn read(paths: &[PathBuf]) -> Self {
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
        let mut count = 0;
        for all in serde_json::Deserializer::from_slice(&text).into_iter::<Value>() {
            count += 1;
            let why = match all {
                Ok(all) if all["version"].as_u64().is_some_and(|version| version > VERSION.into()) => {
                    "written by a later version of p2pshim".to_owned()
                }
                Ok(all) if all["verdict"].is_string() && all["pairs"].is_array() && all["devices"].is_array() => {
                    self.put(all, &name);
                    continue;
                }
                Ok(_) => "not what `p2pshim doctor --json` writes".to_owned(),
                Err(error) => error.to_string(),
            };
            return self.unread.push((name, why));
        }
        if count == 0 {
            self.unread.push((name, "empty".to_owned()));
        }
    }

    /// The later of two results of a machine counts.
    fn put(&mut self, all: Value, file: &str) {
        let name = all["host"].as_str().map_or_else(|| file.to_owned(), str::to_owned);
        let mut machine = Machine { name, all, older: None, odd: Vec::new() };
        // Containers and clones share names, but not GPUs.
        let is_it = |known: &Machine| known.name == machine.name && uuids(&known.all) == uuids(&machine.all);
        let Some(place) = self.machines.iter().position(is_it) else { return self.machines.push(machine) };
        let Some(known) = self.machines.get_mut(place) else { return };
        if known.all["time"].as_u64() < machine.all["time"].as_u64() {
            std::mem::swap(known, &mut machine);
        }
        let is_unsafe = machine.all["status"] == 1 || machine.older.is_some();
        known.older = is_unsafe.then(|| "an older result of this machine is UNSAFE".to_owned()).or(known.older.take());
    }

    /// All JSON.
    pub(super) fn all(&self) -> Vec<Value> {
        self.machines.iter().map(|machine| machine.all.clone()).collect()
    }

    /// The exit status: 0 nothing is unsafe and all was tested, 1 something is unsafe, 3 something was not tested, or not read.
    pub(super) fn status(&self) -> u8 {
        match self.machines.iter().map(Machine::rank).min() {
            Some(Rank::Unsafe) => status::NEGATIVE,
            Some(Rank::Well) | None if self.unread.is_empty() => status::GOOD,
            _ => status::UNKNOWN,
        }
    }

    /// Finds out in what machines stand out among those with the same GPUs.
    fn compare(&mut self) {
        let total = self.machines.len();
        let newest = self.machines.iter().filter_map(|machine| machine.all["time"].as_u64()).max();
        let mut kinds: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, machine) in self.machines.iter().enumerate() {
            kinds.entry(gpus(&machine.all)).or_default().push(index);
        }
        let most = kinds
            .iter()
            .max_by_key(|(_, machines)| machines.len())
            .map(|(kind, machines)| (kind.clone(), machines.len()));
        for (kind, indices) in &kinds {
            let usual =
                Usual::of(indices.iter().filter_map(|&index| self.machines.get(index)).map(|machine| &machine.all));
            for &index in indices {
                let Some(machine) = self.machines.get_mut(index) else { continue };
                machine.odd = of_verdict(&machine.all);
                machine.odd.extend(machine.older.clone());
                machine.odd.extend(
                    machine.all["hints"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned),
                );
                if let Some((of_most, count)) = &most
                    && of_most != kind
                    && indices.len() * 10 <= total
                {
                    machine.odd.push(format!("{kind}, where {count} of {total} machines have {of_most}"));
                }
                machine.odd.extend(usual.differences(&machine.all));
                machine.odd.extend(newest.and_then(|newest| age(&machine.all, newest)));
            }
        }
        let rank = |machine: &Machine| (machine.rank(), machine.odd.is_empty());
        self.machines.sort_by(|one, other| {
            (rank(one), std::cmp::Reverse(one.odd.len()), &one.name).cmp(&(
                rank(other),
                std::cmp::Reverse(other.odd.len()),
                &other.name,
            ))
        });
    }

    /// Writes it for people, the machines that stand out first.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
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
        let odd = odd.map(|machine| (&machine.name, shown(&machine.odd)));
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
        let mut kinds: BTreeMap<[String; 2], Vec<&Value>> = BTreeMap::new();
        for Machine { all, .. } in &self.machines {
            kinds.entry([gpus(all), driver(all)]).or_default().push(all);
        }
        let mut kinds: Vec<_> = kinds.into_iter().collect();
        kinds.sort_by_key(|(_, machines)| std::cmp::Reverse(machines.len()));
        writeln!(
            out,
            "\n{:>8}  {:40}  {:12}  {:>16}  {:>16}",
            "machines", "GPUs", "driver", "direct, GB/s", "staged, GB/s"
        )?;
        for ([gpus, driver], machines) in kinds {
            let [direct, staged] = ["gb_per_s", "staged_gb_per_s"].map(|key| range(&machines, key));
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
    pub(super) fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        let machine = |Machine { name, all, odd, .. }: &Machine| json!({"host": name, "status": all["status"], "verdict": all["verdict"], "time": all["time"], "stands_out": odd});
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

/// The usual facts of machines with the same GPUs.
struct Usual {
    facts: BTreeMap<String, String>,
    /// The median of each figure of each pair.
    figures: BTreeMap<(String, &'static str), f64>,
}

impl Usual {
    /// Figures that are compared, and what they are of.
    const COMPARED: [(&'static str, &'static str); 2] =
        [("gb_per_s", "copies at"), ("staged_gb_per_s", "is staged at")];
    /// A figure below this part of the median is named.
    const SLOW: f64 = 0.8;
    /// A median of fewer says nothing.
    const FEWEST: usize = 3;

    fn of<'a>(machines: impl Iterator<Item = &'a Value> + Clone) -> Self {
        let mut facts: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        let mut figures: BTreeMap<(String, &'static str), Vec<f64>> = BTreeMap::new();
        for machine in machines {
            for (name, fact) in facts_of(machine) {
                *facts.entry(name).or_default().entry(fact).or_default() += 1;
            }
            for (pair, key, figure) in figures_of(machine) {
                figures.entry((pair, key)).or_default().push(figure);
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
    fn differences(&self, machine: &Value) -> Vec<String> {
        let facts = facts_of(machine).into_iter().filter_map(|(name, fact)| {
            let usual = self.facts.get(&name).filter(|usual| **usual != fact)?;
            Some(format!("{name} {fact}, {usual} is usual"))
        });
        let figures = figures_of(machine).filter_map(|(pair, key, figure)| {
            let usual = *self.figures.get(&(pair.clone(), key))?;
            let (_, verb) = Self::COMPARED.into_iter().find(|(known, _)| *known == key)?;
            (figure < usual * Self::SLOW).then(|| format!("{pair} {verb} {figure:.1} GB/s, {usual:.1} is usual"))
        });
        facts.chain(figures).collect()
    }
}

/// Facts about a machine that those with the same GPUs share.
fn facts_of(machine: &Value) -> Vec<(String, String)> {
    let mut facts = vec![("driver".to_owned(), driver(machine))];
    for device in machine["devices"].as_array().into_iter().flatten() {
        if let Some(links) = device["nvlinks_up"].as_u64() {
            facts.push((format!("NVLinks up at GPU {}:", place(&device["ordinal"])), links.to_string()));
        }
    }
    for device in machine["devices"].as_array().into_iter().flatten() {
        if let Some(state) = device["fabric"]["state"].as_str() {
            let trouble = device["fabric"]["trouble"].as_str().unwrap_or(state);
            facts.push((format!("NVLink fabric of GPU {}:", place(&device["ordinal"])), trouble.to_owned()));
        }
    }
    for (ordinal, gpu) in machine["machine"]["gpus"].as_array().into_iter().flatten().enumerate() {
        // The speed depends on how much a GPU has to do; the lanes do not.
        if let (Some(link), Some(most)) = (gpu["pci_link"].as_str(), gpu["pci_link_most"].as_str()) {
            let lanes = link.rsplit(' ').next().unwrap_or_default();
            facts.push((format!("PCIe link of GPU {ordinal}:"), format!("{lanes} of {most}")));
        }
    }
    for pair in machine["pairs"].as_array().into_iter().flatten() {
        let has_path = pair["has_path"].as_bool().unwrap_or_default();
        let link = pair["link"].as_str().unwrap_or(if has_path { "some path" } else { "no path" });
        facts.push((format!("{} by", name(pair)), link.to_owned()));
    }
    facts
}

fn figures_of(machine: &Value) -> impl Iterator<Item = (String, &'static str, f64)> {
    let pairs = machine["pairs"].as_array().into_iter().flatten();
    pairs.flat_map(|pair| {
        Usual::COMPARED.into_iter().filter_map(|(key, _)| Some((name(pair), key, pair[key].as_f64()?)))
    })
}

/// The first of what stands out: of pairs it may be the same for all.
fn shown(odd: &[String]) -> String {
    const SHOWN: usize = 4;
    let mut text = odd.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join("; ");
    if let Some(more @ 1..) = odd.len().checked_sub(SHOWN) {
        text += &format!("; and {more} more (--json has all)");
    }
    text
}

/// The verdict, if it is not a good one.
fn of_verdict(machine: &Value) -> Vec<String> {
    let pairs = |verdict: &str| {
        let of_verdict = machine["pairs"].as_array().into_iter().flatten().filter(|pair| pair["verdict"] == verdict);
        of_verdict.collect::<Vec<_>>()
    };
    let names = |pairs: &[&Value]| pairs.iter().map(|pair| name(pair)).collect::<Vec<_>>().join(" ");
    let detail = |pairs: &[&Value]| {
        let first = pairs.iter().find_map(|pair| pair["detail"].as_str());
        first.map_or(String::new(), |detail| format!(" ({detail})"))
    };
    let (failed, untested) = (pairs("failed"), pairs("not-tested"));
    let mut odd = Vec::new();
    if !failed.is_empty() {
        odd.push(format!("UNSAFE: peer access loses data or hangs on {}{}", names(&failed), detail(&failed)));
    }
    if !matches!(machine["status"].as_u64(), Some(0 | 1 | 3)) {
        odd.push("damaged: its status is none that there is".to_owned());
    }
    if let Some(error) = machine["error"].as_str() {
        odd.push(format!("nothing was tested: {error}"));
    }
    if !untested.is_empty() {
        odd.push(format!("not tested: {}{}", names(&untested), detail(&untested)));
    }
    odd
}

/// How much older than the newest a result is, if that matters.
fn age(machine: &Value, newest: u64) -> Option<String> {
    const DAY: u64 = 86_400_000_000_000;
    let days = newest.saturating_sub(machine["time"].as_u64()?) / DAY;
    (days >= 2).then(|| format!("examined {days} days before the newest"))
}

fn name(pair: &Value) -> String {
    format!("{}>{}", place(&pair["from"]), place(&pair["to"]))
}

/// The UUIDs of its GPUs.
fn uuids(machine: &Value) -> Vec<&str> {
    machine["devices"].as_array().into_iter().flatten().filter_map(|device| device["uuid"].as_str()).collect()
}

/// The GPUs of a machine, as `8 x NVIDIA H100`.
fn gpus(machine: &Value) -> String {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for device in machine["devices"].as_array().into_iter().flatten() {
        *names.entry(device["name"].as_str().unwrap_or("unknown")).or_default() += 1;
    }
    let all: Vec<String> = names.into_iter().map(|(name, count)| format!("{count} x {name}")).collect();
    if all.is_empty() { "no GPU".to_owned() } else { all.join(", ") }
}

fn driver(machine: &Value) -> String {
    let versions = &machine["versions"];
    versions["kernel_module"].as_str().or(versions["driver"].as_str()).unwrap_or("unknown").to_owned()
}

/// The least and the most of a figure.
fn range(machines: &[&Value], key: &str) -> String {
    let pairs = machines.iter().filter_map(|machine| machine["pairs"].as_array()).flatten();
    let figures = pairs.filter_map(|pair| pair[key].as_f64());
    let ends = figures.fold(None, |ends: Option<(f64, f64)>, it| {
        Some(ends.map_or((it, it), |(least, most)| (least.min(it), most.max(it))))
    });
    ends.map_or("-".to_owned(), |(least, most)| format!("{least:.1} to {most:.1}"))
}

/// Why nothing was tested, or what was found.
fn said(machine: &Value) -> &Value {
    if machine["error"].is_null() { &machine["summary"] } else { &machine["error"] }
}

fn place(number: &Value) -> usize {
    number.as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or_default()
}

/// A value as a cell of a table.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => field(text),
        other => other.to_string(),
    }
}

/// A label's value.
fn label(text: &str) -> String {
    Escaped(text).to_string().replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::{each, is_plain, put_odd};

    const DAY: u64 = 86_400_000_000_000;

    /// A machine with so many GPUs, on which copies have this speed.
    fn machine(host: &str, gpus: usize, speed: f64) -> Value {
        let device = |ordinal| json!({"ordinal": ordinal, "name": "GPU X", "uuid": format!("GPU-{host}-{ordinal}"), "nvlinks_up": 18});
        let pair = |from: usize, to: usize| {
            json!({
                "from": from, "to": to, "verdict": "verified", "detail": null, "has_path": true, "link": "NVLink",
                "copy_engine": {"result": "right", "detail": null}, "gb_per_s": speed, "staged_gb_per_s": 40.0, "latency_us": 2.5,
            })
        };
        json!({
            "version": 1, "host": host, "time": 10 * DAY, "status": 0, "verdict": "safe", "summary": "all, well", "error": null,
            "versions": {"kernel_module": "580.1", "driver": "13.0"}, "machine": {"gpus": []},
            "devices": (0..gpus).map(device).collect::<Value>(),
            "pairs": (0..gpus).flat_map(|from| (0..gpus).filter(move |to| *to != from).map(move |to| pair(from, to))).collect::<Value>(),
        })
    }

    fn fleet(machines: Vec<Value>) -> Fleet {
        let mut fleet = Fleet::default();
        machines.into_iter().for_each(|all| fleet.put(all, "file"));
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
        let mut all: Vec<Value> =
            (0..20).map(|number| machine(&format!("node{number:02}"), 2, 390.0 + f64::from(number))).collect();
        all[3]["pairs"][1]["gb_per_s"] = json!(201.0);
        all[5]["versions"]["kernel_module"] = json!("550.7");
        all[7]["devices"][1]["nvlinks_up"] = json!(16);
        all[7]["hints"] = json!(["Hint: GPU 1 has 16 NVLinks up, GPU 0 has 18"]);
        all[8]["time"] = json!(3 * DAY);
        (all[9]["status"], all[9]["verdict"]) = (json!(1), json!("unsafe"));
        (all[9]["pairs"][0]["verdict"], all[9]["pairs"][0]["detail"]) = (json!("failed"), json!("copy engine: lost"));
        (all[11]["status"], all[11]["error"], all[11]["pairs"]) = (json!(3), json!("cuInit answered 100"), json!([]));
        all.push(machine("odd", 1, 0.0));
        let fleet = fleet(all);
        let expected = [
            "21 machines: 1 UNSAFE, 1 with nothing tested, 5 to look at, 14 well.",
            "",
            "node09  UNSAFE: peer access loses data or hangs on 0>1 (copy engine: lost)",
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
        newer["time"] = json!(11 * DAY);
        let fleet = fleet(vec![machine("a", 2, 390.0), newer, machine("a", 2, 1.0)]);
        assert_eq!(fleet.all()[0]["pairs"][0]["gb_per_s"], 20.0, "the newest counts");
        let mut broken = machine("a", 2, 390.0);
        (broken["status"], broken["verdict"]) = (json!(1), json!("unsafe"));
        let mut newer = machine("a", 2, 390.0);
        newer["time"] = json!(11 * DAY);
        for order in [[broken.clone(), newer.clone()], [newer.clone(), broken.clone()]] {
            let text = text(&self::fleet(order.to_vec()));
            assert!(
                text.starts_with("1 machine: 1 to look at.\n\na  an older result of this machine is UNSAFE\n"),
                "{text}"
            );
        }
        broken["devices"][0]["uuid"] = json!("GPU-of-another");
        assert_eq!(self::fleet(vec![newer, broken]).status(), 1, "another machine of that name");
    }

    #[test]
    fn read_says_of_each_file_why_it_is_none() {
        let folder = std::env::temp_dir().join(format!("p2pshim-fleet-{}", std::process::id()));
        let nothing = folder.join("nothing");
        fs::create_dir_all(&nothing).unwrap();
        let [one, two] = ["a", "b"].map(|host| machine(host, 2, 390.0).to_string());
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
        assert_eq!(
            [later, other, within],
            [
                "written by a later version of p2pshim",
                "not what `p2pshim doctor --json` writes",
                "no *.json in this folder"
            ]
        );
        assert!(text(&fleet).starts_with("2 machines: 2 well; 6 files cannot be read.\n"), "{}", text(&fleet));
        assert_eq!(fleet.status(), 3);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn csv_has_a_line_for_each_pair_and_for_a_machine_without() {
        let mut out = Vec::new();
        csv(&[machine("a", 2, 390.5), machine("b", 1, 0.0)], &mut out).unwrap();
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
        let good: Vec<Value> = ["a", "b", "c"].map(|host| machine(host, 2, 390.0)).into();
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
            csv(&fleet.all(), &mut out).unwrap();
            fleet.all().iter().try_for_each(|machine| prometheus(machine, &mut out)).unwrap();
            assert!(is_plain(&String::from_utf8(out).unwrap()));
        });
    }
}
