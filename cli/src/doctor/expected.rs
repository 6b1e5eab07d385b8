//! The speed that a pair should have by its links, and the likely cause where it has not: hints, never verdicts.
//!
//! The rate is what both ends of each PCI link can do (`max_link_speed`, `max_link_width`), for a GPU that has nothing to do slows
//! its link down. The cause is how the links run: the width at any time, the speed right after copies. docs/DOCTOR.md has figures.

use p2pshim_host::machine::{Fault, Translation};

use super::advice::is_stalled;
use super::fabric;
use super::lines::{Known, Path, Verdict};
use super::place::{Joint, Link, Port};
use super::report::{Examined, Row};
use crate::report::term::few;

/// The part of its links' rate that a copy reaches, between GPUs that NVLink or a PCI switch joins.
const OF_LINKS: f64 = 0.85;
/// Processors forward requests between root ports more slowly than switches, and more slowly still to another processor.
const OF_HOST: f64 = 0.7;
const OF_PROCESSORS: f64 = 0.55;
/// Less than this part of what is expected is worth a hint.
const LOW: f64 = 0.7;
/// Corrected errors that are worth a word.
const MANY_ERRORS: u64 = 100;

/// `NVML_NVLINK_VERSION_…` from 1 on: its name, and GB/s of a link each way.
pub(super) const NVLINKS: [(&str, f64); 7] =
    [("1.0", 20.0), ("2.0", 25.0), ("2.2", 25.0), ("3.0", 25.0), ("3.1", 14.06), ("4.0", 25.0), ("5.0", 50.0)];

/// The expectation of a pair.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Expected {
    /// GB/s.
    pub(super) speed: f64,
    /// The links.
    pub(super) by: String,
    /// Why it is less than that of the links, to go on with.
    pub(super) why: &'static str,
}

/// NVLink's version, by NVML's number.
pub(super) fn nvlink(version: u32) -> Option<(&'static str, f64)> {
    NVLINKS.get(version.checked_sub(1)? as usize).copied()
}

/// Pairs and their links.
pub(super) struct Paths<'a> {
    examined: &'a Examined,
    known: Vec<Known>,
}

impl<'a> Paths<'a> {
    pub(super) fn of(examined: &'a Examined) -> Self {
        Self { examined, known: examined.known() }
    }

    /// The expectation of a pair; none if it has no path, or its links cannot be seen.
    pub(super) fn expected(&self, row: &Row) -> Option<Expected> {
        if row.verdict == Verdict::NoPath {
            return None;
        }
        let pair = row.pair;
        let joint = self.examined.joint(pair);
        if joint == Joint::NvLink {
            return self.by_nvlink(pair);
        }
        let has_c2c = |ordinal: &usize| self.known.get(*ordinal).is_some_and(|known| known.c2c > Some(0));
        let (part, way, why) = match joint {
            Joint::Switch => (OF_LINKS, "through a switch", ""),
            Joint::Host => (OF_HOST, "through the processor", ", which forwards more slowly than a switch"),
            Joint::Processors => {
                (OF_PROCESSORS, "through two processors", ", and the link between them is slower still")
            }
            Joint::NvLink | Joint::Unseen => return None,
        };
        // A virtual machine shows bridges of its own. A GPU with C2C has more than PCI to its processor.
        if self.examined.machine.hypervisor.is_some() || pair.iter().any(has_c2c) {
            return None;
        }
        let links = self.links(pair);
        let slowest =
            links.iter().flatten().filter_map(|link| possible(link)).min_by(|a, b| a.rate().total_cmp(&b.rate()))?;
        Some(Expected { speed: slowest.rate() * part, by: format!("PCIe {slowest} {way}"), why })
    }

    fn by_nvlink(&self, pair: [usize; 2]) -> Option<Expected> {
        let [Some(one), Some(other)] = pair.map(|ordinal| self.known.get(ordinal)?.links.as_ref()) else { return None };
        let peer = &self.examined.inventory.devices.get(pair[1])?.bus_id;
        let direct = one.ends.iter().filter(|end| end.eq_ignore_ascii_case(peer)).count() as u32;
        let count = match direct {
            0 if one.are_direct => return None,
            0 => one.up.min(other.up),
            direct => direct,
        };
        let (version, by_version) = one.version.and_then(nvlink).unzip();
        let speed = one.speed.map(|speed| f64::from(speed) / 1000.0).or(by_version)?;
        let version = version.map_or(String::new(), |version| format!(" {version}"));
        Some(Expected {
            speed: f64::from(count) * speed * OF_LINKS,
            by: format!("{count} NVLinks{version} of {speed:.1} GB/s"),
            why: "",
        })
    }

    /// The PCI links between two GPUs on either side, each by its ends that are seen; none if PCI does not join them.
    fn links(&self, pair: [usize; 2]) -> [Vec<&'a [Port]>; 2] {
        let is_by_pci = !matches!(self.examined.joint(pair), Joint::NvLink | Joint::Unseen);
        let places = pair.map(|ordinal| self.examined.places.get(ordinal).filter(|_| is_by_pci));
        let [Some(one), Some(other)] = places else { return [const { Vec::new() }; 2] };
        let same = one.ports.iter().zip(&other.ports).take_while(|(one, other)| one.address == other.address).count();
        // The lower end of a link comes last.
        let below = |ports: &'a [Port]| ports.get(same..).unwrap_or_default().rchunks(2).collect();
        [below(&one.ports), below(&other.ports)]
    }

    /// Hints for the user, the most telling first.
    pub(super) fn hints(&self) -> Vec<String> {
        let mut hints = fabric::hints(&self.known, self.examined);
        hints.extend(self.of_links_down());
        let mut found: Vec<(String, String, Vec<&Row>)> = Vec::new();
        for row in &self.examined.rows {
            let Some((expected, measured)) = self.expected(row).zip(row.measure(Path::Direct)) else { continue };
            if measured.speed >= LOW * expected.speed || is_stalled(row) {
                continue;
            }
            let (cause, by) = (self.cause(row.pair), format!("{} gives {:.1}", expected.by, expected.speed));
            match found.iter_mut().find(|(known, of, _)| (known, of) == (&cause, &by)) {
                Some((.., rows)) => rows.push(row),
                None => found.push((cause, by, vec![row])),
            }
        }
        let slowest = |rows: &[&Row]| {
            let speeds = rows.iter().filter_map(|row| row.measure(Path::Direct)).map(|measure| measure.speed);
            speeds.fold(f64::INFINITY, f64::min)
        };
        let text = |(cause, by, rows): &(String, String, Vec<&Row>)| {
            format!("Hint: {} {:.1} GB/s, where {by}. {cause}", copy_at(rows), slowest(rows))
        };
        hints.extend(found.iter().map(text));
        hints.extend(self.of_shared());
        hints
    }

    /// Why a pair loses data or hangs, if its links or the fabric tell.
    pub(super) fn why_broken(&self, pair: [usize; 2]) -> Option<String> {
        fabric::cause(&self.known, &pair).or_else(|| {
            let links = self.links(pair).concat();
            let port = links.into_iter().flatten().find(|port| port.errors[1..] != [0; 2])?;
            let [_, not_fatal, fatal] = port.errors;
            let address = &port.address;
            Some(format!(
                "{address} counts PCIe errors since boot that were not corrected ({not_fatal} not fatal, {fatal} fatal). Reseat the \
                 card, check its riser, and test again"
            ))
        })
    }

    /// The likely cause why a pair is slow, and what to do.
    fn cause(&self, pair: [usize; 2]) -> String {
        if fabric::cause(&self.known, &pair).is_some() {
            return "The NVLink fabric is the likely cause, see above.".to_owned();
        }
        let links = self.links(pair).concat();
        for link in &links {
            let (Some(lower), Some(can)) = (link.last(), possible(link)) else { continue };
            let Some(now) = lower.link else { continue };
            let address = &lower.address;
            if now.lanes < can.lanes {
                return format!(
                    "{address} has {} of {} lanes: reseat it, check riser and firmware; or its slot has no more.",
                    now.lanes, can.lanes
                );
            }
            if now.speed < can.speed {
                return format!(
                    "{address} runs at {now}, and can do {can}: set that in the firmware, check the riser."
                );
            }
        }
        let errors = |port: &&Port| port.errors[1] + port.errors[2] > 0 || port.errors[0] >= MANY_ERRORS;
        if let Some(port) = links.into_iter().flatten().find(errors) {
            return format!("{} counts PCIe errors: reseat the card, check its riser.", port.address);
        }
        let machine = &self.examined.machine;
        let mut gpus = pair.iter().filter_map(|&ordinal| machine.gpus.get(ordinal));
        let is_of_pair = |fault: &&Fault| gpus.clone().any(|gpu| gpu.bus_id.eq_ignore_ascii_case(&fault.bus_id));
        if let Some(Fault { line, .. }) = machine.faults.iter().find(is_of_pair) {
            return format!("The kernel's log has `{line}`: look that up, and reset the GPU.");
        }
        if self.examined.joint(pair) == Joint::NvLink {
            return "Nothing here explains it: test while no other program uses the GPUs, then reset them.".to_owned();
        }
        let redirecting = machine.redirecting(pair).join(" ");
        if !redirecting.is_empty() {
            return format!(
                "ACS of {redirecting} redirects: switch it off in the firmware, or by `setpci -s ADDRESS ECAP_ACS+6.w=0`."
            );
        }
        if gpus.any(|gpu| matches!(gpu.translation, Translation::Translated(_))) {
            return "The IOMMU translates their addresses: boot the kernel with iommu=pt.".to_owned();
        }
        "Nothing here explains it: test while nothing else uses the GPUs.".to_owned()
    }

    /// A GPU behind NVLink switches that has fewer links up than another of its model.
    fn of_links_down(&self) -> Option<String> {
        let devices = &self.examined.inventory.devices;
        let links = |ordinal: usize| self.known.get(ordinal)?.links.as_ref();
        if self.known.iter().filter_map(|known| known.links.as_ref()).any(|links| links.are_direct) {
            return None;
        }
        let up = |ordinal: usize| links(ordinal).map_or(0, |links| links.up);
        let name = |ordinal: usize| devices.get(ordinal).map(|device| &device.name);
        let is_less = |[one, other]: &&[usize; 2]| up(*one) < up(*other) && name(*one) == name(*other);
        let [less, more] = *self.examined.inventory.nvlinks.iter().find(is_less)?;
        Some(format!(
            "Hint: GPU {less} has {} NVLinks up, GPU {more} has {}: reset it (nvidia-smi -r) or reboot; if they stay down, \
             have the board examined.",
            up(less),
            up(more)
        ))
    }

    /// Links above several GPUs that hold them back while all pairs copy.
    fn of_shared(&self) -> Vec<String> {
        let rows: Vec<(&Row, f64)> = self.examined.rows.iter().filter_map(|row| Some((row, row.at_once?))).collect();
        let used: Vec<Vec<(usize, &str)>> = rows.iter().map(|(row, _)| self.used(row.pair)).collect();
        let mut found: Vec<(&str, Vec<&Row>, f64)> = Vec::new();
        for ((row, speed), links) in rows.iter().zip(&used) {
            let flows = |link: &(usize, &str)| used.iter().filter(|links| links.contains(link)).count();
            let is_own =
                |(_, address): &(usize, &str)| self.examined.machine.gpus.iter().any(|it| it.bus_id == *address);
            let own = links.iter().filter(|link| is_own(link)).map(flows).max().unwrap_or(1);
            let is_low = self.expected(row).is_some_and(|expected| *speed < LOW * expected.speed / own as f64);
            let shared = links.iter().find(|link| is_low && !is_own(link) && flows(link) > own);
            let Some((_, address)) = shared else { continue };
            match found.iter_mut().find(|(known, ..)| known == address) {
                Some((_, rows, least)) => (rows.push(row), *least = least.min(*speed)).1,
                None => found.push((address, vec![row], *speed)),
            }
        }
        let text = |(address, rows, least): &(&str, Vec<&Row>, f64)| {
            format!(
                "Hint: {} {least:.1} GB/s while all copy, since they share the link of {address}. Let GPUs below one switch work \
                 together.",
                copy_at(rows)
            )
        };
        found.iter().map(text).collect()
    }

    /// The links of a pair, each by its side and the address of its lower end: data goes up on one side, and down on the other.
    fn used(&self, pair: [usize; 2]) -> Vec<(usize, &str)> {
        let name = |link: &'a [Port]| link.last().map(|port| port.address.as_str());
        let sides = self.links(pair).into_iter().enumerate();
        sides.flat_map(|(side, links)| links.into_iter().filter_map(name).map(move |address| (side, address))).collect()
    }
}

/// The most that all ends of a link can do, as far as they are seen.
fn possible(link: &[Port]) -> Option<Link> {
    link.iter().filter_map(|port| port.most).reduce(Link::and)
}

/// The names of some pairs, and a verb.
fn copy_at(rows: &[&Row]) -> String {
    let names: Vec<String> = rows.iter().map(|row| row.name()).collect();
    format!("{} {}", few(&names, 4, " "), if rows.len() == 1 { "copies at" } else { "copy at" })
}

#[cfg(test)]
mod tests {
    use super::super::inventory::{Device, Inventory};
    use super::super::lines::Measure;
    use super::*;
    use crate::nvml::Links;

    /// Two GPUs that NVLink joins, one pair of which copies at a speed.
    fn joined(links: [Links; 2], speed: f64) -> Examined {
        let device = |ordinal: usize| Device {
            bus_id: format!("0000:0{ordinal}:00.0"),
            uuid: String::new(),
            name: "GPU".to_owned(),
        };
        let inventory = Inventory {
            devices: [0, 1].map(device).into(),
            known: links.map(|links| Known { links: Some(links), ..Known::default() }).into(),
            nvlinks: vec![[0, 1], [1, 0]],
            ..Inventory::default()
        };
        let mut examined = Examined::of_machine(inventory, Some(2), None);
        let mut row = Row::new([0, 1], Verdict::Passed);
        row.set_measure(Path::Direct, Measure { speed, latency: 2.0 });
        examined.rows.push(row);
        examined
    }

    #[test]
    fn expected_by_nvlink_counts_links_to_the_peer_or_all_behind_switches() {
        let links = |up, version, speed| Links { up, version: Some(version), speed, ..Links::default() };
        let to =
            |links: Links, end: &str, count| Links { ends: vec![end.to_owned(); count], are_direct: true, ..links };
        for (one, other, expected) in [
            (links(18, 6, Some(26_562)), 18, Some(406.4)),
            (links(18, 6, Some(26_562)), 16, Some(361.2)),
            (links(18, 7, None), 18, Some(765.0)),
            (links(4, 5, None), 4, Some(47.8)),
            (to(links(18, 6, None), "0000:01:00.0", 6), 18, Some(127.5)),
            (to(links(18, 6, None), "0000:7f:00.0", 6), 18, None),
            (links(18, 99, None), 18, None),
        ] {
            let examined = joined([one.clone(), links(other, 6, None)], 1.0);
            let found = examined.paths().expected(&examined.rows[0]).map(|it| (it.speed * 10.0).round() / 10.0);
            assert_eq!(found, expected, "{one:?}");
        }
    }

    #[test]
    fn hints_are_of_less_than_seventy_percent() {
        let links = || Links { up: 18, version: Some(6), speed: Some(26_562), ..Links::default() };
        for (speed, is_said) in [(390.0, false), (285.0, false), (284.0, true), (40.0, true)] {
            let hints = joined([links(), links()], speed).paths().hints();
            assert_eq!(hints.len(), usize::from(is_said), "{speed}: {hints:?}");
            let start = format!("Hint: 0>1 copies at {speed:.1} GB/s, where 18 NVLinks 4.0 of 26.6 GB/s gives 406.4. ");
            assert!(hints.iter().all(|hint| hint.starts_with(&start)), "{hints:?}");
        }
    }
}
