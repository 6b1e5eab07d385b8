//! Tests the gates on public descriptions of machines, and on made-up ones: tests/machines.

use super::lines::{Finding, Known, Test, Verdict};
use super::machines::{Gpu, PORTS, Tree, printed};
use super::report::{self, Row};
use super::{Device, Examined, Inventory, gates};
use crate::nvml::{Fabric, Links};

const DESCRIBED: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/machines/described.tsv"));
const MADE_UP: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/machines/made-up.tsv"));

/// A row of the table.
struct Described<'a> {
    source: &'a str,
    machine: &'a str,
    facts: Vec<(&'a str, &'a str)>,
    cuda: &'a str,
    gate: &'a str,
    todo: &'a str,
    /// Why another gate is named.
    mark: &'a str,
}

impl<'a> Described<'a> {
    fn all() -> Vec<Self> {
        let rows = |table: &'a str| table.lines().filter(|line| !line.starts_with('#')).skip(1).map(Self::parse);
        rows(DESCRIBED).chain(rows(MADE_UP)).collect()
    }

    fn parse(line: &'a str) -> Self {
        let columns: Vec<&str> = line.split('\t').collect();
        let [source, machine, facts, cuda, gate, todo, mark] = columns[..] else { panic!("{line}") };
        // A log has spaces, and comes last.
        let (facts, log) = facts.split_once("log=").map_or((facts, None), |(facts, log)| (facts, Some(log)));
        let facts = facts.split_whitespace().map(|fact| fact.split_once('=').unwrap_or((fact, "")));
        let facts = facts.chain(log.map(|log| ("log", log))).collect();
        Self { source, machine, facts, cuda, gate, todo, mark }
    }

    fn fact(&self, name: &str) -> Option<&'a str> {
        self.facts.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// A fact about a GPU; those that differ have a bar between them.
    fn of_gpu(&self, name: &str, ordinal: usize) -> Option<&'a str> {
        let value = self.fact(name)?;
        value.split('|').nth(ordinal).or_else(|| value.split('|').next())
    }

    fn bytes(&self, name: &str, ordinal: usize) -> Option<u64> {
        let text = self.of_gpu(name, ordinal)?;
        let (number, unit) = text.split_at(text.len() - 1);
        Some(number.parse::<u64>().unwrap() << if unit == "G" { 30 } else { 20 })
    }

    fn name(&self, ordinal: usize) -> String {
        let named = self.machine.split(", ").map(|name| name.split(" (").next().unwrap());
        let boards: Vec<&str> = named.filter(|name| name.contains("RTX ") || name.contains("GTX ")).collect();
        let board = boards.get(ordinal).or(boards.first()).map(|name| format!("NVIDIA {name}"));
        self.fact("name").map(|name| name.replace('+', " ")).or(board).unwrap_or("NVIDIA GPU".to_owned())
    }

    fn tree(&self) -> Tree {
        let tree = Tree::new();
        match self.fact("vm") {
            Some("WSL") => drop(tree.write("proc/version", "Linux version 5.15.1-microsoft-standard-WSL2\n")),
            Some(name) => drop(tree.write("sys/class/dmi/id/sys_vendor", name.replace('+', " "))),
            None => {}
        }
        if self.fact("vm").is_some() {
            tree.write("proc/cpuinfo", "flags\t\t: fpu hypervisor\n");
        }
        for (ordinal, ports) in PORTS.iter().enumerate() {
            let acs = self.fact("acs").map_or(0, |acs| u16::from_str_radix(acs, 16).unwrap());
            let below = [(ports[0].0, Some(acs))];
            let node = self.of_gpu("node", ordinal).map_or(-1, |node| node.parse().unwrap());
            let bar1 = self.bytes("bar1", ordinal).unwrap_or(64 << 30);
            let gpu = Gpu { below: &below, group: self.fact("iommu"), node, bar1, ..super::machines::GPU };
            // WSL shows none on the bus.
            if self.fact("vm") != Some("WSL") {
                tree.gpu(ordinal as u32, gpu);
            }
            if let Some(chip) = self.of_gpu("chip", ordinal) {
                tree.write(&format!("sys/bus/pci/devices/0000:{:02x}:00.0/device", ordinal + 1), format!("0x{chip}\n"));
            }
        }
        if let Some(log) = self.fact("log") {
            tree.log(&log.split(';').collect::<Vec<_>>());
        }
        if let Some(words) = self.fact("registry") {
            tree.write("proc/driver/nvidia/params", format!("RegistryDwords: \"{words}\"\n"));
        }
        if self.fact("container").is_some() {
            tree.write(".dockerenv", "");
        }
        let all = self.fact("all").map_or(0, |all| all.parse().unwrap());
        for number in 0..all {
            let file = format!("proc/driver/nvidia/gpus/0000:{number:02x}:00.0/information");
            tree.write(&file, format!("GPU UUID: \t GPU-{number}\n"));
        }
        tree
    }

    fn known(&self, ordinal: usize) -> Known {
        let fabric = self.fact("fabric").map(|state| Fabric { state: state.parse().unwrap(), ..Fabric::default() });
        let capability = self.of_gpu("cc", ordinal).and_then(|cc| cc.split_once('.'));
        Known {
            capability: capability.map(|(major, minor)| (major.parse().unwrap(), minor.parse().unwrap())),
            memory: self.bytes("memory", ordinal),
            bar1: self.bytes("bar1", ordinal),
            is_mig: self.fact("mig").map(|_| true),
            virtualization: self.fact("vgpu").map(|_| 2),
            links: fabric.as_ref().map(|_| Links { up: 18, ..Links::default() }),
            fabric,
            ..Known::default()
        }
    }

    fn examined(&self, tree: &Tree) -> Examined {
        let count = if self.cuda == "one" { 1 } else { 2 };
        let device = |ordinal: usize| Device {
            bus_id: format!("0000:{:02x}:00.0", ordinal + 1),
            uuid: format!("GPU-{ordinal}"),
            name: self.name(ordinal),
        };
        let status =
            self.fact("nvml").map(|word| ["OK", "CNS", "GNS", "TNS", "DR", "NS"].iter().position(|it| *it == word));
        let statuses = [status.map(|status| status.unwrap() as i32); 4];
        let inventory = Inventory {
            driver: self.fact("cuda").map_or(Some(12_080), |version| version.parse().ok()),
            devices: (0..count).map(device).collect(),
            known: (0..count).map(|ordinal| self.known(ordinal)).collect(),
            is_confidential: self.fact("confidential").map(|_| true),
            statuses: vec![([0, 1], statuses), ([1, 0], statuses)],
            ..Inventory::default()
        };
        let mut examined = Examined::of_machine(inventory, Some(count as u8), Some(tree.0.0.clone()));
        examined.visible = self.fact("visible").map(str::to_owned);
        for pair in [[0, 1], [1, 0]].into_iter().filter(|_| count == 2) {
            let refusal = "cuCtxEnablePeerAccess returned CUDA_ERROR_MAP_FAILED (205)".to_owned();
            let mut row = Row::new(pair, if self.cuda == "no" { Verdict::NoPath } else { Verdict::Passed });
            match self.cuda {
                "205" => row.verdict = Verdict::Unknown(refusal),
                "wrong" => row.add(Test::Copies, Finding::Wrong("4096 of 4096 bytes never arrived".to_owned())),
                "802" => {
                    examined.error = Some("cuInit answered 802".to_owned());
                    continue;
                }
                _ => {}
            }
            examined.rows.push(row);
        }
        examined
    }
}

/// The first three lines, and the gate that is named for a pair.
fn named(it: &Described<'_>, examined: &Examined) -> (String, Option<&'static str>) {
    let text = if examined.error.is_some() {
        printed(|out| report::print_untested(out, examined))
    } else {
        printed(|out| report::print_conclusion(out, examined, None))
    };
    assert!(
        it.gate != "none" || !text.contains("Hint: ") && !text.contains("No peer access"),
        "{}: {text}",
        it.machine
    );
    let first: Vec<&str> = text.lines().filter(|line| !line.is_empty()).take(3).collect();
    let known = examined.known();
    let closed = gates::closed(examined, &known);
    (first.join(" "), closed.first().map(|closed| closed.gate.map_or("unknown", |gate| gate.word)))
}

impl Described<'_> {
    /// Whether the first three lines have the gate and the remedy, and those lines.
    fn outcome(&self) -> (bool, String) {
        let tree = self.tree();
        let (first, named) = named(self, &self.examined(&tree));
        // These are no gates of pairs: no pair is there, or it has access.
        let is_named = match self.gate {
            "iommu" if self.cuda == "wrong" => first.contains("IOMMU"),
            "acs" => first.contains("(ACS) of "),
            "registry" if self.cuda == "wrong" => first.contains("the driver was changed"),
            "hidden" => named.is_none(),
            "none" => named.is_none() && first.contains("peer access can be trusted"),
            "fabric" if self.cuda == "802" => first.contains("NVLink fabric"),
            // Two gates are of this kind.
            "topology" => named == Some("topology") || named == Some("processors"),
            gate => named == Some(gate),
        };
        (is_named && first.contains(self.todo), format!("{named:?}: {first}"))
    }
}

/// The gates, and the machines, for the document.
pub(super) fn tables() -> String {
    let mut text =
        "\n## Gates\n\nWhere two GPUs have no peer access, the doctor names the first of these that is closed.\n\n\
                    | gate | source |\n| --- | --- |\n"
            .to_owned();
    for row in gates::TABLE.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = row.split('\t').collect();
        let source = match columns[3] {
            "CAPS" => "p2p_caps.c of NVIDIA's open-gpu-kernel-modules",
            "BUS" => "kern_bus_gh100.c there",
            source => source,
        };
        text += &format!("| `{}` | {source} |\n", columns[0]);
    }
    text += "\n## Machines that others describe\n\nThey were chosen before the gates were written. Wrong ones stay here.\n\n\
             | machine | gate | named |\n| --- | --- | --- |\n";
    for it in Described::all().iter().filter(|it| it.source.starts_with("https")) {
        let named = if it.mark.is_empty() { "yes".to_owned() } else { format!("no: {}", it.mark) };
        text += &format!("| [{}]({}) | `{}` | {named} |\n", it.machine, it.source, it.gate);
    }
    text
}

#[test]
fn machines_have_the_gate_and_the_remedy_in_the_first_three_lines_or_a_mark() {
    let all = Described::all();
    assert!(all.iter().filter(|it| it.source.starts_with("https")).count() >= 20);
    assert!(all.iter().filter(|it| it.gate == "none").count() >= 8);
    let outcomes = all.iter().map(|it| (it, it.outcome()));
    let wrong = outcomes.filter(|(it, (is_right, _))| *is_right != it.mark.is_empty());
    let wrong: Vec<String> = wrong.map(|(it, (_, said))| format!("{} {}: {said}", it.source, it.machine)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn gates_each_have_a_machine() {
    assert!(gates::GATES.len() > 12);
    for gate in gates::GATES.iter() {
        assert!(Described::all().iter().any(|it| it.gate == gate.word), "{}", gate.word);
    }
}

#[test]
fn conclusion_fits_the_first_screen_for_two_to_eight_gpus() {
    let all = Described::all();
    for it in all.iter().filter(|it| ["no", "205", "wrong"].contains(&it.cuda)) {
        let tree = it.tree();
        for count in 2..=8 {
            let mut examined = it.examined(&tree);
            let first = (examined.inventory.devices[0].clone(), examined.inventory.known[0].clone());
            while examined.inventory.devices.len() < count {
                examined.inventory.devices.push(first.0.clone());
                examined.inventory.known.push(first.1.clone());
            }
            let (one, other) = (examined.rows[0].verdict.clone(), examined.rows[0].findings.clone());
            let pairs =
                (0..count).flat_map(|from| (0..count).map(move |to| [from, to])).filter(|[from, to]| from != to);
            let row = |pair| Row { findings: other.clone(), ..Row::new(pair, one.clone()) };
            examined.rows = pairs.map(row).collect();
            let text = printed(|out| report::print_conclusion(out, &examined, Some(80)));
            let longest = text.lines().map(str::len).max();
            assert!(text.lines().count() <= 24 && longest <= Some(80), "{} {count}: {text}", it.machine);
        }
    }
}
