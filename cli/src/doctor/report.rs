//! What the user gets to see: a table, or JSON.

use std::fmt::Write as _;
use std::io::{self, Write};

use super::lines::{Finding, Test, Verdict};
use super::machine::{Acs, Gpu, Machine, Translation};

/// A device, as the driver lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) bus_id: String,
    pub(super) uuid: String,
    pub(super) name: String,
}

/// How a pair came out.
pub(super) struct Row {
    /// Ordinals: who reaches, who is reached.
    pub(super) pair: [usize; 2],
    /// By test, in the order of [`Test::ALL`]; none if it did not come to that.
    pub(super) findings: [Option<Finding>; 3],
    /// GB/s.
    pub(super) speed: Option<f64>,
    pub(super) verdict: Verdict,
    /// A process that could not be ended.
    pub(super) left_behind: Option<u32>,
}

impl Row {
    fn name(&self) -> String {
        let [from, to] = self.pair;
        format!("{from}>{to}")
    }
}

/// What the table and the JSON say of a verdict.
fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Passed => "proven",
        Verdict::NoPath => "no path",
        Verdict::Failed(_) => "FAILED",
        Verdict::Unknown(_) => "not tested",
    }
}

/// A CUDA version as people write it.
fn version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// What comes before the table.
pub(super) fn print_head(out: &mut impl Write, driver: i32, machine: &Machine, devices: &[Device]) -> io::Result<()> {
    let module = machine.kernel_module.as_deref().unwrap_or("of unknown version");
    writeln!(out, "NVIDIA driver {module}, CUDA {}", version(driver))?;
    let width = devices.iter().map(|device| device.name.len()).max().unwrap_or_default();
    for (ordinal, Device { bus_id, uuid, name }) in devices.iter().enumerate() {
        writeln!(out, "GPU {ordinal}  {name:width$}  {bus_id}  {uuid}")?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "{:7}  {:11}  {:12}  {:13}  {:10}  {:>6}",
        "pair", "copy engine", "kernel loads", "kernel stores", "verdict", "GB/s"
    )
}

/// A line of the table.
pub(super) fn print_row(out: &mut impl Write, row: &Row) -> io::Result<()> {
    let [copies, loads, stores] = row.findings.each_ref().map(|finding| finding.as_ref().map_or("-", Finding::word));
    let speed = row.speed.map_or("-".to_owned(), |speed| format!("{speed:.1}"));
    let verdict = word(&row.verdict);
    writeln!(out, "{:7}  {copies:11}  {loads:12}  {stores:13}  {verdict:10}  {speed:>6}", row.name())?;
    out.flush()
}

/// What there is to say about pairs that are not proven.
pub(super) fn print_details(out: &mut impl Write, rows: &[Row], machine: &Machine) -> io::Result<()> {
    for row in rows {
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
                details.push("Copies are right: only programs whose kernels touch peer memory go wrong".to_owned());
            }
        }
        if let Some(process) = row.left_behind {
            details.push(format!(
                "Process {process} does not end though it was killed: it is stuck in the driver. The GPUs may need a \
                 restart of the machine"
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
    let mut causes: Vec<(String, Vec<String>)> = Vec::new();
    for row in rows.iter().filter(|row| matches!(row.verdict, Verdict::Failed(_))) {
        let cause = machine.likely_cause(row.pair);
        match causes.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, pairs)) => pairs.push(row.name()),
            None => causes.push((cause, vec![row.name()])),
        }
    }
    for (cause, pairs) in causes {
        writeln!(out, "\nLikely cause for {}: {cause}.", pairs.join(" "))?;
        writeln!(
            out,
            "To do without it now: P2PSHIM_DENY='{}' keeps programs under the shim off it, and NCCL_P2P_DISABLE=1 NCCL.",
            pairs.join(",").replace('>', "-")
        )?;
    }
    Ok(())
}

/// What the machine says of itself.
pub(super) fn print_machine(out: &mut impl Write, machine: &Machine) -> io::Result<()> {
    let list = |items: &[String], none: &str| if items.is_empty() { none.to_owned() } else { items.join(" ") };
    writeln!(out)?;
    writeln!(out, "kernel parameters  {}", list(&machine.parameters, "none about IOMMU or ACS"))?;
    writeln!(out, "IOMMU              {}", list(&machine.iommus, "none in use"))?;
    writeln!(out, "virtual machine    {}", machine.hypervisor.as_deref().unwrap_or("no"))?;
    for (ordinal, gpu) in machine.gpus.iter().enumerate() {
        writeln!(out, "GPU {ordinal:<15}{}", place(gpu))?;
    }
    Ok(())
}

/// A GPU's place, in words.
fn place(gpu: &Gpu) -> String {
    let group = gpu.group.as_deref().unwrap_or("?");
    let mut text = match &gpu.translation {
        Translation::Unseen => return "not to be seen in /sys".to_owned(),
        Translation::None => "no IOMMU group".to_owned(),
        Translation::Identity => format!("IOMMU group {group}, addresses unchanged"),
        Translation::Translated(way) => format!("IOMMU group {group}, addresses translated ({way})"),
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
pub(super) fn print_json(
    out: &mut impl Write,
    driver: Option<i32>,
    machine: &Machine,
    devices: &[Device],
    rows: &[Row],
    (status, error): (u8, Option<&str>),
) -> io::Result<()> {
    let device = |(ordinal, device): (usize, &Device)| {
        object(&[
            ("ordinal", ordinal.to_string()),
            ("name", string(&device.name)),
            ("bus_id", string(&device.bus_id)),
            ("uuid", string(&device.uuid)),
        ])
    };
    let gpu = |gpu: &Gpu| {
        let bridge = |bridge: &super::machine::Bridge| {
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
            Translation::Translated(way) => Some(way.as_str()),
        };
        object(&[
            ("bus_id", string(&gpu.bus_id)),
            ("iommu_group", optional(gpu.group.as_deref())),
            ("iommu_type", optional(translation)),
            ("bridges", array(gpu.bridges.iter().map(bridge))),
        ])
    };
    let strings = |items: &[String]| array(items.iter().map(|item| string(item)));
    let machine = object(&[
        ("kernel_module", optional(machine.kernel_module.as_deref())),
        ("kernel_parameters", strings(&machine.parameters)),
        ("iommus", strings(&machine.iommus)),
        ("hypervisor", optional(machine.hypervisor.as_deref())),
        ("gpus", array(machine.gpus.iter().map(gpu))),
    ]);
    let report = object(&[
        ("status", status.to_string()),
        ("error", optional(error)),
        ("cuda_version", driver.map_or("null".to_owned(), |driver| driver.to_string())),
        ("devices", array(devices.iter().enumerate().map(device))),
        ("pairs", array(rows.iter().map(json_row))),
        ("machine", machine),
    ]);
    writeln!(out, "{report}")
}

fn json_row(row: &Row) -> String {
    let [from, to] = row.pair;
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
        ("gb_per_s", row.speed.map_or("null".to_owned(), |speed| format!("{speed:.2}"))),
        ("verdict", string(verdict)),
        ("detail", optional(detail)),
        ("stuck_process", row.left_behind.map_or("null".to_owned(), |process| process.to_string())),
    ])
}

fn object(members: &[(&str, String)]) -> String {
    let members: Vec<String> = members.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

fn array(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
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
            pair: [0, 1],
            findings: [Some(Finding::Right), Some(Finding::Wrong("gone".to_owned())), None],
            speed: None,
            verdict: Verdict::Failed("kernel loads: gone".to_owned()),
            left_behind: None,
        };
        let mut out = Vec::new();
        print_json(&mut out, Some(13000), &Machine::default(), &[], &[row], (1, None)).unwrap();
        let expected = "{\"status\":1,\"error\":null,\"cuda_version\":13000,\"devices\":[],\"pairs\":[{\"from\":0,\"to\":1,\
            \"copy_engine\":{\"result\":\"right\",\"detail\":null},\"kernel_loads\":{\"result\":\"wrong\",\"detail\":\
            \"gone\"},\"kernel_stores\":null,\"gb_per_s\":null,\"verdict\":\"failed\",\"detail\":\"kernel loads: gone\",\
            \"stuck_process\":null}],\"machine\":{\"kernel_module\":null,\"kernel_parameters\":[],\"iommus\":[],\
            \"hypervisor\":null,\"gpus\":[]}}\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
