//! `--json`: all that was found, for programs. docs/schema/doctor.schema.json describes it. Keys are never renamed; new ones
//! may come.

pub(super) mod model;

use std::collections::BTreeMap;
use std::io::{self, Write};

use p2pshim_host::machine::{Acs, Bridge, Fault, Gpu, Translation};
use p2pshim_host::stagers::{Rates, Stagers};

use super::expected::{self, Paths};
use super::gates::{self, Closed};
use super::inventory::Device;
use super::lines::{Finding, Test, Verdict};
use super::place::{Joint, Link, Port};
use super::report::{Examined, Row};
use crate::nvml::status_word;
use crate::version;

/// The version of the JSON.
pub(super) const VERSION: u32 = 1;

/// Words for NVML's modes of virtualization.
const VIRTUALIZATION: [&str; 5] = ["none", "passthrough", "vgpu", "vgpu-host", "vsga-host"];

/// Writes it as one line.
pub(super) fn print(out: &mut dyn Write, examined: &Examined) -> io::Result<()> {
    crate::json::write_line(&report(examined), out)
}

/// All of it as plain data.
pub(super) fn report(examined: &Examined) -> model::Report {
    let Examined { inventory, machine, simulated, error, .. } = examined;
    let (kernel_module, paths, known) = (&machine.kernel_module, examined.paths(), examined.known());
    let gates = gates::closed(examined, &known);
    let runtimes = inventory
        .runtimes
        .iter()
        .map(|(version, library)| model::Runtime { version: *version, library: library.clone() });
    model::Report {
        version: VERSION,
        host: p2pshim_host::machine::host_name(),
        time: p2pshim_host::machine::now(),
        versions: model::Versions {
            p2pshim: env!("CARGO_PKG_VERSION").to_owned(),
            driver: inventory.driver.map(version),
            kernel_module: kernel_module.clone().filter(|_| simulated.is_none()),
        },
        status: examined.conclusion().status(),
        verdict: examined.conclusion().word().to_owned(),
        summary: error.is_none().then(|| examined.summary()),
        advice: examined.advice(),
        hints: paths.hints(),
        error: error.clone(),
        simulated: simulated.is_some(),
        quick: examined.is_quick,
        cuda_version: inventory.driver,
        runtimes: runtimes.collect(),
        devices: inventory.devices.iter().enumerate().map(|(ordinal, it)| device(examined, ordinal, it)).collect(),
        pairs: examined.rows.iter().map(|row| pair(examined, &paths, &gates, row)).collect(),
        machine: model::Machine {
            kernel_module: kernel_module.clone(),
            kernel_parameters: machine.parameters.clone(),
            iommus: machine.iommus.clone(),
            hypervisor: machine.hypervisor.clone(),
            container: examined.container.clone(),
            confidential_computing: inventory.is_confidential,
            fabric_services: examined.services.as_ref().map(|services| model::Services {
                fabric_manager: services.fabric_manager,
                imex: services.imex,
                imex_channels: services.channels.clone(),
            }),
            faults: machine.faults.iter().map(fault).collect(),
            gpus: machine.gpus.iter().enumerate().map(|(ordinal, it)| gpu(examined, ordinal, it)).collect(),
        },
        nccl: examined.nccl.as_ref().map(|found| model::Nccl {
            library: Some(found.library.clone()).filter(|library| !library.is_empty()),
            version: found.version.clone(),
            report: found.lines.clone(),
            error: found.error.clone(),
        }),
        staging: staging(&examined.rows),
        kept_in: examined.kept_in.as_ref().map(|folder| folder.to_string_lossy().into_owned()),
    }
}

fn staging(rows: &[Row]) -> Vec<model::Staging> {
    let measured = rows.iter().map(|row| &row.stagers).find(|stagers| !stagers.is_empty());
    let of = |stagers: &Stagers, are_all_busy: bool| {
        let of_class = |(mib, rates): (&'static str, Option<Rates>)| {
            let links = if are_all_busy { "all" } else { "one" }.to_owned();
            let [driver_gb_per_s, p2pshim_gb_per_s] = rates.map(|rates| [rates.driver, rates.shim].map(hundredths))?;
            Some(model::Staging { links, mib: mib.to_owned(), driver_gb_per_s, p2pshim_gb_per_s })
        };
        Stagers::words().into_iter().zip(stagers.rates(are_all_busy)).filter_map(of_class).collect::<Vec<_>>()
    };
    measured.into_iter().flat_map(|stagers| [false, true].into_iter().flat_map(|all| of(stagers, all))).collect()
}

fn device(examined: &Examined, ordinal: usize, device: &Device) -> model::Device {
    let known = examined.known().get(ordinal).cloned().unwrap_or_default();
    model::Device {
        ordinal,
        name: device.name.clone(),
        bus_id: device.bus_id.clone(),
        uuid: device.uuid.clone(),
        bar1_bytes: known.bar1,
        mig: known.is_mig,
        nvlinks_up: known.links.as_ref().map(|links| links.up),
        nvlink_version: known.links.as_ref().and_then(|links| Some(expected::nvlink(links.version?)?.0.to_owned())),
        nvlink_mb_per_s: known.links.as_ref().and_then(|links| links.speed),
        c2c_links: known.c2c,
        virtualization: known
            .virtualization
            .and_then(|mode| VIRTUALIZATION.get(mode as usize))
            .map(|word| (*word).to_owned()),
        fabric: known.fabric.as_ref().map(|fabric| model::Fabric {
            state: fabric.word().to_owned(),
            status: fabric.status,
            clique: fabric.clique,
            cluster_uuid: fabric.cluster.clone(),
            health_mask: fabric.health,
            trouble: fabric.trouble(),
        }),
    }
}

fn fault(Fault { bus_id, line, count, by }: &Fault) -> model::Fault {
    model::Fault { bus_id: bus_id.clone(), line: line.clone(), count: *count, by: by.word().to_owned() }
}

fn gpu(examined: &Examined, ordinal: usize, gpu: &Gpu) -> model::Gpu {
    let place = examined.places.get(ordinal);
    let bridge = |Bridge { address, acs }: &Bridge| {
        let acs = match acs {
            Acs::Unreadable => None,
            Acs::Absent => Some("none"),
            Acs::Off => Some("off"),
            Acs::Redirects => Some("redirects"),
        };
        let ports = place.iter().flat_map(|place| &place.ports);
        let port = ports.into_iter().find(|port| port.address == *address).cloned().unwrap_or_default();
        model::Bridge {
            address: address.clone(),
            acs: acs.map(str::to_owned),
            pci_link: port.link.map(|link| link.to_string()),
            pci_link_most: port.most.map(|most| most.to_string()),
            pci_errors: errors(&port),
        }
    };
    let translation = match &gpu.translation {
        Translation::Unseen | Translation::None | Translation::Unknown => None,
        Translation::Identity => Some("identity"),
        Translation::Translated(mode) => Some(mode.as_str()),
    };
    model::Gpu {
        bus_id: gpu.bus_id.clone(),
        iommu_group: gpu.group.clone(),
        iommu_type: translation.map(str::to_owned),
        bridges: gpu.bridges.iter().map(bridge).collect(),
        pci_link: place.and_then(|place| place.link()).map(|link| link.to_string()),
        pci_link_most: place.and_then(|place| place.most()).map(|most: Link| most.to_string()),
        pci_errors: place.and_then(|place| place.ports.last()).map(errors).unwrap_or_default(),
        numa_node: place.and_then(|place| place.node),
        display: gpu.has_display,
    }
}

fn errors(port: &Port) -> model::Errors {
    let [corrected, not_fatal, fatal] = port.errors;
    model::Errors { corrected, not_fatal, fatal }
}

fn pair(examined: &Examined, paths: &Paths<'_>, gates: &[Closed<'_>], row: &Row) -> model::Pair {
    let closed = gates.iter().find(|closed| closed.rows.iter().any(|of| of.pair == row.pair));
    let gate = closed.and_then(|closed| closed.gate).map(|gate| gate.word.to_owned());
    let [reads, writes, atomics, pci] =
        examined.statuses(row.pair).map(|status| status.map(|status| status_word(status).to_owned()));
    let expected = paths.expected(row);
    let [from, to] = row.pair;
    let path = examined.inventory.paths.iter().find(|(pair, _)| *pair == row.pair);
    let attributes = path.and_then(|(_, attributes)| *attributes).map(|attributes| model::Attributes {
        performance_rank: attributes.rank,
        native_atomics: attributes.atomics,
        array_access: attributes.arrays,
    });
    let joint = path.map(|_| examined.joint(row.pair)).filter(|&joint| joint != Joint::Unseen);
    let [direct, staged] = row.measures;
    let (verdict, detail) = match &row.verdict {
        Verdict::Passed => ("verified", None),
        Verdict::NoPath => ("no-path", None),
        Verdict::Failed(why) => ("failed", Some(why.clone())),
        Verdict::Unknown(why) => ("not-tested", Some(why.clone())),
    };
    model::Pair {
        from,
        to,
        parts: parts(row),
        gb_per_s: direct.map(|measure| hundredths(measure.speed)),
        expected_gb_per_s: expected.as_ref().map(|expected| hundredths(expected.speed)),
        expected_by: expected.map(|expected| expected.by),
        all_pairs_at_once_gb_per_s: row.at_once.map(hundredths),
        staged_gb_per_s: staged.map(|measure| hundredths(measure.speed)),
        staged_by_p2pshim_gb_per_s: row.by_shim.map(hundredths),
        latency_us: direct.map(|measure| hundredths(measure.latency)),
        staged_latency_us: staged.map(|measure| hundredths(measure.latency)),
        has_path: path.is_some(),
        gate,
        why_no_access: closed.map(|closed| closed.text.clone()),
        nvml: model::Statuses { reads, writes, atomics, pci },
        link: joint.map(|joint| joint.word().to_owned()),
        attributes,
        verdict: verdict.to_owned(),
        detail,
        stuck_process: row.left_behind,
    }
}

fn parts(row: &Row) -> BTreeMap<String, model::Part> {
    let part = |(test, finding): (Test, &Option<Finding>)| {
        let finding = finding.as_ref()?;
        let (result, detail) = (finding.word().to_owned(), finding.detail().map(str::to_owned));
        Some((test.word().to_owned(), model::Part { result, detail }))
    };
    Test::ALL.into_iter().zip(&row.findings).filter_map(part).collect()
}

/// As exactly as it was measured.
fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::super::Inventory;
    use super::super::lines::Measure;
    use super::*;
    use p2pshim_host::machine::Machine;
    use serde_json::{Value, json};

    #[test]
    fn print_of_a_pair_that_failed_has_what_was_found() {
        let mut row = Row {
            measures: [None, Some(Measure { speed: 38.123, latency: 14.5 })],
            by_shim: Some(51.262),
            at_once: Some(1.5),
            ..Row::new([0, 1], Verdict::Failed("kernel loads: gone".to_owned()))
        };
        row.set_finding(Test::Copies, Finding::Right);
        row.set_finding(Test::Loads, Finding::Wrong("gone".to_owned()));
        row.set_finding(Test::Ipc, Finding::Untested("no handle".to_owned()));
        let examined = Examined {
            inventory: Inventory { driver: Some(13000), ..Inventory::default() },
            machine: Machine::default(),
            places: Vec::new(),
            container: None,
            services: None,
            all_gpus: 0,
            visible: None,
            root: std::path::PathBuf::new(),
            simulated: Some(2),
            rows: vec![row],
            nccl: None,
            error: None,
            kept_in: None,
            is_quick: false,
            is_full: false,
        };
        let mut out = Vec::new();
        print(&mut out, &examined).unwrap();
        let json: Value = serde_json::from_slice(&out).unwrap();
        let pair = json!({
            "from": 0, "to": 1,
            "parts": {
                "copies": {"result": "right", "detail": null}, "loads": {"result": "wrong", "detail": "gone"},
                "ipc": {"result": "untested", "detail": "no handle"},
            },
            "gb_per_s": null, "expected_gb_per_s": null, "expected_by": null, "all_pairs_at_once_gb_per_s": 1.5,
            "staged_gb_per_s": 38.12, "staged_by_p2pshim_gb_per_s": 51.26, "latency_us": null, "staged_latency_us": 14.5, "has_path": false, "link": null,
            "gate": null, "why_no_access": null, "nvml": {"reads": null, "writes": null, "atomics": null, "pci": null},
            "attributes": null, "verdict": "failed", "detail": "kernel loads: gone", "stuck_process": null,
        });
        assert_eq!((&json["pairs"][0], &json["status"], &json["verdict"]), (&pair, &json!(1), &json!("unsafe")));
        let versions = json!({"p2pshim": env!("CARGO_PKG_VERSION"), "driver": "13.0", "kernel_module": null});
        assert_eq!((&json["version"], &json["versions"]), (&json!(1), &versions));
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(json["host"], host.trim());
        assert!(json["time"].as_u64() > Some(1_700_000_000_000_000_000), "{}", json["time"]);
    }

    #[test]
    fn json_schema_is_that_of_the_model() {
        crate::schema::compare::<model::Report>("doctor");
    }
}
