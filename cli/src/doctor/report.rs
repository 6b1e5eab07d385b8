//! What the user gets to see: a table, or JSON.

use std::fmt::Write as _;
use std::io::{self, Write};

use std::path::PathBuf;

use p2pshim_host::machine::{Acs, Gpu, Machine, Translation};

use super::Inventory;
use super::lines::{Finding, Measure, Path, Test, Verdict};
use super::place::{Joint, Place};
use crate::explain::{WIDTH, wrapped};

/// A device, as the driver lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) bus_id: String,
    pub(super) uuid: String,
    pub(super) name: String,
}

/// All that was found.
pub(super) struct Examined {
    pub(super) inventory: Inventory,
    pub(super) machine: Machine,
    /// By GPU.
    pub(super) places: Vec<Place>,
    pub(super) container: Option<String>,
    /// So many GPUs are not real.
    pub(super) simulated: Option<u8>,
    pub(super) rows: Vec<Row>,
    /// Why nothing was tested.
    pub(super) error: Option<String>,
    /// Where verdicts are kept, if any is.
    pub(super) kept_in: Option<PathBuf>,
}

/// How a pair came out.
pub(super) struct Row {
    /// Ordinals: who reaches, who is reached.
    pub(super) pair: [usize; 2],
    /// By test, in the order of [`Test::ALL`]; none if it did not come to that.
    pub(super) findings: [Option<Finding>; 3],
    /// Of direct copies, and of those through the host.
    pub(super) measures: [Option<Measure>; 2],
    pub(super) verdict: Verdict,
    /// A process that could not be ended.
    pub(super) left_behind: Option<u32>,
}

impl Row {
    /// Of a pair of which nothing else is known.
    pub(super) fn new(pair: [usize; 2], verdict: Verdict) -> Self {
        Self { pair, findings: [None, None, None], measures: [None; 2], verdict, left_behind: None }
    }

    pub(super) fn name(&self) -> String {
        let [from, to] = self.pair;
        format!("{from}>{to}")
    }

    /// How fast a path is.
    pub(super) fn measure(&self, path: Path) -> Option<Measure> {
        let [direct, staged] = self.measures;
        match path {
            Path::Direct => direct,
            Path::Staged => staged,
        }
    }

    pub(super) fn set_measure(&mut self, path: Path, measure: Measure) {
        let [direct, staged] = &mut self.measures;
        *match path {
            Path::Direct => direct,
            Path::Staged => staged,
        } = Some(measure);
    }
}

/// What the table and the JSON say of a verdict.
fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "verified",
        Verdict::NoPath => "no path",
        Verdict::Failed(_) => "FAILED",
        Verdict::Unknown(_) => "not tested",
    }
}

/// A CUDA version as people write it.
fn version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// What comes before the table of pairs.
pub(super) fn print_head(out: &mut impl Write, examined: &Examined) -> io::Result<()> {
    let Examined { inventory, machine, simulated, .. } = examined;
    if let Some(count) = simulated {
        writeln!(out, "{count} simulated GPUs: nothing here is a measurement of real ones")?;
    } else {
        let module = machine.kernel_module.as_deref().unwrap_or("of unknown version");
        writeln!(out, "NVIDIA driver      {module}")?;
    }
    writeln!(out, "CUDA, by driver    {}", inventory.driver.map_or("unknown".to_owned(), version))?;
    let runtimes: Vec<String> =
        inventory.runtimes.iter().map(|(number, name)| format!("{} ({name})", version(*number))).collect();
    writeln!(
        out,
        "CUDA runtimes      {}",
        list(&runtimes, ", ", "none on the library path; programs may contain their own")
    )?;
    let width = inventory.devices.iter().map(|device| device.name.len()).max().unwrap_or_default();
    for (ordinal, Device { bus_id, uuid, name }) in inventory.devices.iter().enumerate() {
        writeln!(out, "GPU {ordinal:<15}{name:width$}  {bus_id}  {uuid}")?;
    }
    print_matrix(out, examined)?;
    writeln!(out)?;
    writeln!(out, "{:63}  {:>14}  {:>16}", "", "GB/s", "4 bytes, us")?;
    writeln!(
        out,
        "{:7}  {:11}  {:12}  {:13}  {:10}  {:>6}  {:>6}  {:>7}  {:>7}",
        "pair", "copy engine", "kernel loads", "kernel stores", "verdict", "direct", "staged", "direct", "staged"
    )
}

/// What the driver says of all pairs: the row's GPU reaches the column's.
fn print_matrix(out: &mut impl Write, examined: &Examined) -> io::Result<()> {
    let Examined { inventory, .. } = examined;
    let count = inventory.devices.len();
    if count < 2 {
        return Ok(());
    }
    let columns =
        |cell: &dyn Fn(usize) -> String| (0..count).map(|to| format!("  {:>6}", cell(to))).collect::<String>();
    writeln!(out, "\nPeer access     {}", columns(&|to| format!("GPU {to}")))?;
    let mut joints = Vec::new();
    for from in 0..count {
        let mut cells = String::new();
        for pair in (0..count).map(|to| [from, to]) {
            let word = if pair == [from; 2] {
                "-"
            } else if inventory.has_path(pair) {
                let joint = examined.joint(pair);
                if !joints.contains(&joint) {
                    joints.push(joint);
                }
                joint.word()
            } else {
                "no"
            };
            let _ = write!(cells, "  {word:>6}");
        }
        writeln!(out, "GPU {from:<12}{cells}")?;
    }
    let legend: Vec<String> = joints.iter().map(|joint| format!("{}: {}", joint.word(), joint.explained())).collect();
    if !legend.is_empty() {
        writeln!(out, "{}", legend.join("; "))?;
    }
    let (mut atomics, mut arrays) = (Vec::new(), Vec::new());
    for ([from, to], attributes) in &inventory.paths {
        let name = || format!("{from}>{to}");
        atomics.extend(attributes.filter(|attributes| attributes.atomics).map(|_| name()));
        arrays.extend(attributes.filter(|attributes| attributes.arrays).map(|_| name()));
    }
    for (title, pairs) in [("native atomics", atomics), ("access to arrays", arrays)] {
        let is_all = pairs.len() == inventory.paths.len() && !pairs.is_empty();
        let pairs = if is_all { "all that have a path".to_owned() } else { list(&pairs, " ", "none") };
        writeln!(out, "{title:17}  {pairs}")?;
    }
    Ok(())
}

fn list(items: &[String], between: &str, none: &str) -> String {
    if items.is_empty() { none.to_owned() } else { items.join(between) }
}

/// A line of the table.
pub(super) fn print_row(out: &mut impl Write, row: &Row) -> io::Result<()> {
    let [copies, loads, stores] = row.findings.each_ref().map(|finding| finding.as_ref().map_or("-", Finding::word));
    let number = |number: Option<f64>| number.map_or("-".to_owned(), |number| format!("{number:.1}"));
    let [direct, staged] = row.measures.map(|measure| number(measure.map(|measure| measure.speed)));
    let [direct_us, staged_us] = row.measures.map(|measure| number(measure.map(|measure| measure.latency)));
    writeln!(
        out,
        "{:7}  {copies:11}  {loads:12}  {stores:13}  {:10}  {direct:>6}  {staged:>6}  {direct_us:>7}  {staged_us:>7}",
        row.name(),
        word(&row.verdict)
    )?;
    out.flush()
}

/// What there is to say about pairs that are not verified.
pub(super) fn print_details(out: &mut impl Write, examined: &Examined) -> io::Result<()> {
    if examined.rows.is_empty() {
        let count = examined.inventory.devices.len();
        writeln!(out, "no pair: peer access needs two GPUs, and CUDA reports {count}")?;
    }
    for row in &examined.rows {
        let details = Test::ALL.iter().zip(&row.findings).filter_map(|(test, finding)| {
            let finding = finding.as_ref()?;
            Some(format!("{} {}: {}", test.name(), finding.word(), finding.detail()?))
        });
        let mut details: Vec<String> = details.collect();
        if let (Verdict::Unknown(why), true) = (&row.verdict, details.is_empty()) {
            details.push(why.clone());
        }
        if let Verdict::Failed(why) = &row.verdict {
            if details.is_empty() {
                details.push(why.clone());
            }
            if matches!(&row.findings, [Some(Finding::Right), ..]) {
                details
                    .push("Copies are right: only programs whose kernels access peer memory are affected".to_owned());
            }
        }
        if let Some(process) = row.left_behind {
            details.push(format!(
                "Process {process} was killed but does not end: it is stuck in the driver. The GPUs may need a reboot of the \
                 machine"
            ));
        }
        for (index, detail) in details.iter().enumerate() {
            if index == 0 {
                writeln!(out)?;
            }
            let name = if index == 0 { row.name() } else { String::new() };
            writeln!(out, "{name:7}  {detail}")?;
        }
    }
    Ok(())
}

/// What the machine says of itself.
pub(super) fn print_machine(out: &mut impl Write, examined: &Examined) -> io::Result<()> {
    let Examined { machine, places, container, .. } = examined;
    writeln!(out)?;
    writeln!(out, "kernel parameters  {}", list(&machine.parameters, " ", "none about IOMMU or ACS"))?;
    writeln!(out, "IOMMU              {}", list(&machine.iommus, " ", "none in use"))?;
    writeln!(out, "virtual machine    {}", machine.hypervisor.as_deref().unwrap_or("no"))?;
    writeln!(out, "container          {}", container.as_deref().unwrap_or("none that shows"))?;
    for (ordinal, gpu) in machine.gpus.iter().enumerate() {
        let mut parts = vec![place(gpu)];
        parts.extend(places.get(ordinal).and_then(|place| place.link.clone()).map(|link| format!("PCIe {link}")));
        parts.extend(places.get(ordinal).and_then(|place| place.node).map(|node| format!("near memory node {node}")));
        if let Some(known) = examined.known().get(ordinal) {
            parts.extend(known.bar1.map(|bytes| format!("BAR1 {} MiB", bytes >> 20)));
            parts.extend(known.is_mig.map(|is_on| format!("MIG {}", if is_on { "on" } else { "off" })));
            parts.extend(known.links.map(|count| format!("NVLinks up: {count}")));
        }
        writeln!(out, "GPU {ordinal:<15}{}", parts.join("; "))?;
    }
    Ok(())
}

/// What it means, and what to do.
pub(super) fn print_conclusion(out: &mut impl Write, examined: &Examined) -> io::Result<()> {
    let verdict = format!("Verdict: {}.", examined.conclusion().text(&examined.rows));
    for text in std::iter::once(verdict).chain(examined.advice()) {
        writeln!(out)?;
        for line in wrapped(&text, WIDTH - 4) {
            writeln!(out, "{line}")?;
        }
    }
    if let Some(folder) = &examined.kept_in {
        writeln!(out, "\nP2PSHIM_PROBE=full takes these verdicts from {} until the next boot.", folder.display())?;
    }
    Ok(())
}

/// A GPU's place, in words.
fn place(gpu: &Gpu) -> String {
    let group = gpu.group.as_deref().unwrap_or("?");
    let mut text = match &gpu.translation {
        Translation::Unseen => return "not visible in /sys".to_owned(),
        Translation::None => "no IOMMU group".to_owned(),
        Translation::Identity => format!("IOMMU group {group}, addresses unchanged"),
        Translation::Translated(mode) => format!("IOMMU group {group}, addresses translated ({mode})"),
        Translation::Unknown => format!("IOMMU group {group}"),
    };
    for bridge in &gpu.bridges {
        let acs = match bridge.acs {
            Acs::Unreadable => "not readable without root",
            Acs::Absent => "none",
            Acs::Off => "lets requests pass",
            Acs::Redirects => "redirects requests",
        };
        let _ = write!(text, "; below {}, ACS {acs}", bridge.address);
    }
    text
}

/// All of it, for programs. Keys are never renamed; new ones may come.
pub(super) fn print_json(out: &mut impl Write, examined: &Examined) -> io::Result<()> {
    let Examined { inventory, machine, places, container, simulated, rows, error, kept_in } = examined;
    let known = examined.known();
    let device = |(ordinal, device): (usize, &Device)| {
        let known = known.get(ordinal);
        object(&[
            ("ordinal", ordinal.to_string()),
            ("name", string(&device.name)),
            ("bus_id", string(&device.bus_id)),
            ("uuid", string(&device.uuid)),
            ("bar1_bytes", or_null(known.and_then(|known| known.bar1))),
            ("mig", or_null(known.and_then(|known| known.is_mig))),
            ("nvlinks_up", or_null(known.and_then(|known| known.links))),
        ])
    };
    let gpu = |(ordinal, gpu): (usize, &Gpu)| {
        let bridge = |bridge: &p2pshim_host::machine::Bridge| {
            let acs = match bridge.acs {
                Acs::Unreadable => "null".to_owned(),
                Acs::Absent => string("none"),
                Acs::Off => string("off"),
                Acs::Redirects => string("redirects"),
            };
            object(&[("address", string(&bridge.address)), ("acs", acs)])
        };
        let translation = match &gpu.translation {
            Translation::Unseen | Translation::None | Translation::Unknown => None,
            Translation::Identity => Some("identity"),
            Translation::Translated(mode) => Some(mode.as_str()),
        };
        let place = places.get(ordinal);
        object(&[
            ("bus_id", string(&gpu.bus_id)),
            ("iommu_group", optional(gpu.group.as_deref())),
            ("iommu_type", optional(translation)),
            ("bridges", array(gpu.bridges.iter().map(bridge))),
            ("pci_link", optional(place.and_then(|place| place.link.as_deref()))),
            ("numa_node", or_null(place.and_then(|place| place.node))),
        ])
    };
    let runtime =
        |(number, name): &(i32, String)| object(&[("version", number.to_string()), ("library", string(name))]);
    let strings = |items: &[String]| array(items.iter().map(|item| string(item)));
    let machine = object(&[
        ("kernel_module", optional(machine.kernel_module.as_deref())),
        ("kernel_parameters", strings(&machine.parameters)),
        ("iommus", strings(&machine.iommus)),
        ("hypervisor", optional(machine.hypervisor.as_deref())),
        ("container", optional(container.as_deref())),
        ("gpus", array(machine.gpus.iter().enumerate().map(gpu))),
    ]);
    let conclusion = examined.conclusion();
    let report = object(&[
        ("status", conclusion.status().to_string()),
        ("verdict", string(conclusion.word())),
        ("summary", if error.is_some() { "null".to_owned() } else { string(&conclusion.text(rows)) }),
        ("advice", strings(&examined.advice())),
        ("error", optional(error.as_deref())),
        ("simulated", simulated.is_some().to_string()),
        ("cuda_version", or_null(inventory.driver)),
        ("runtimes", array(inventory.runtimes.iter().map(runtime))),
        ("devices", array(inventory.devices.iter().enumerate().map(device))),
        ("pairs", array(rows.iter().map(|row| json_row(row, examined)))),
        ("machine", machine),
        ("kept_in", optional(kept_in.as_ref().map(|folder| folder.to_string_lossy()).as_deref())),
    ]);
    writeln!(out, "{report}")
}

fn json_row(row: &Row, examined: &Examined) -> String {
    let [from, to] = row.pair;
    let path = examined.inventory.paths.iter().find(|(pair, _)| *pair == row.pair);
    let attributes = path.and_then(|(_, attributes)| *attributes).map(|attributes| {
        object(&[
            ("performance_rank", attributes.rank.to_string()),
            ("native_atomics", attributes.atomics.to_string()),
            ("array_access", attributes.arrays.to_string()),
        ])
    });
    let joint = path.map(|_| examined.joint(row.pair)).filter(|&joint| joint != Joint::Unseen);
    let number = |number: Option<f64>| or_null(number.map(|number| format!("{number:.2}")));
    let [direct, staged] = row.measures;
    let finding = |finding: &Option<Finding>| match finding {
        Some(finding) => object(&[("result", string(finding.word())), ("detail", optional(finding.detail()))]),
        None => "null".to_owned(),
    };
    let [copies, loads, stores] = row.findings.each_ref().map(finding);
    let (verdict, detail) = match &row.verdict {
        Verdict::Passed => ("proven", None),
        Verdict::NoPath => ("no-path", None),
        Verdict::Failed(why) => ("failed", Some(why.as_str())),
        Verdict::Unknown(why) => ("not-tested", Some(why.as_str())),
    };
    object(&[
        ("from", from.to_string()),
        ("to", to.to_string()),
        ("copy_engine", copies),
        ("kernel_loads", loads),
        ("kernel_stores", stores),
        ("gb_per_s", number(direct.map(|measure| measure.speed))),
        ("staged_gb_per_s", number(staged.map(|measure| measure.speed))),
        ("latency_us", number(direct.map(|measure| measure.latency))),
        ("staged_latency_us", number(staged.map(|measure| measure.latency))),
        ("has_path", path.is_some().to_string()),
        ("link", optional(joint.map(Joint::word))),
        ("attributes", or_null(attributes)),
        ("verdict", string(verdict)),
        ("detail", optional(detail)),
        ("stuck_process", or_null(row.left_behind)),
    ])
}

fn object(members: &[(&str, String)]) -> String {
    let members: Vec<String> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

fn array(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn or_null(value: Option<impl ToString>) -> String {
    value.map_or("null".to_owned(), |value| value.to_string())
}

fn optional(text: Option<&str>) -> String {
    text.map_or("null".to_owned(), string)
}

fn string(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control < ' ' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_escapes_what_json_does_not_take() {
        assert_eq!(string("a\"b\\c\nd"), "\"a\\\"b\\\\c\\u000ad\"");
    }

    #[test]
    fn print_json_is_one_object() {
        let row = Row {
            findings: [Some(Finding::Right), Some(Finding::Wrong("gone".to_owned())), None],
            measures: [None, Some(Measure { speed: 38.0, latency: 14.5 })],
            ..Row::new([0, 1], Verdict::Failed("kernel loads: gone".to_owned()))
        };
        let examined = Examined {
            inventory: Inventory { driver: Some(13000), ..Inventory::default() },
            machine: Machine::default(),
            places: Vec::new(),
            container: None,
            simulated: Some(2),
            rows: vec![row],
            error: None,
            kept_in: None,
        };
        let mut out = Vec::new();
        print_json(&mut out, &examined).unwrap();
        let json = String::from_utf8(out).unwrap();
        let pair = "\"pairs\":[{\"from\":0,\"to\":1,\"copy_engine\":{\"result\":\"right\",\"detail\":null},\
            \"kernel_loads\":{\"result\":\"wrong\",\"detail\":\"gone\"},\"kernel_stores\":null,\"gb_per_s\":null,\
            \"staged_gb_per_s\":38.00,\"latency_us\":null,\"staged_latency_us\":14.50,\"has_path\":false,\"link\":null,\
            \"attributes\":null,\"verdict\":\"failed\",\"detail\":\"kernel loads: gone\",\"stuck_process\":null}],";
        assert!(json.contains(pair), "{json}");
        assert!(json.starts_with("{\"status\":1,\"verdict\":\"unsafe\",") && json.ends_with("}\n"), "{json}");
    }
}
