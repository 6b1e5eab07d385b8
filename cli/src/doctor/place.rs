//! Where the GPUs are, as sysfs and procfs tell it: their link, BAR1 and memory node, and whether this is a container.

use std::fs;
use std::path::Path;

use p2pshim_host::machine::Gpu;
use p2pshim_host::text::Escaped;
use p2pshim_host::verdicts::bar1;

/// Where a GPU is; nothing of it is certain to be known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// Bytes of BAR1, the window that other devices reach its memory by.
    pub(super) bar1: Option<u64>,
    /// Its PCI link as it runs now, such as `32.0 GT/s x16`.
    pub(super) link: Option<String>,
    /// The memory node that it is near.
    pub(super) node: Option<u32>,
}

impl Place {
    /// Reads what is below `root`, which is `/` but in tests.
    pub(super) fn read(root: &Path, bus_id: &str) -> Self {
        let folder = root.join("sys/bus/pci/devices").join(bus_id);
        let text = |name: &str| Some(fs::read_to_string(folder.join(name)).ok()?.trim().to_owned());
        let speed = text("current_link_speed").map(|speed| speed.trim_end_matches(" PCIe").to_owned());
        let link = speed.zip(text("current_link_width")).map(|(speed, width)| format!("{speed} x{width}"));
        // Machines with one node say -1.
        let node = text("numa_node").and_then(|node| node.parse().ok());
        Self { bar1: bar1(root, bus_id), link, node }
    }
}

/// The joint of two GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joint {
    /// NVLink.
    NvLink,
    /// A PCI switch, or several below one root port.
    Switch,
    /// The PCI host of one processor.
    Host,
    /// The link between processors.
    Processors,
    /// It cannot be seen.
    Unseen,
}

impl Joint {
    /// The joint of two GPUs by PCI.
    pub(super) fn of_pci(gpus: [(&Gpu, &Place); 2]) -> Self {
        let [(one, one_place), (other, other_place)] = gpus;
        let ports = [one, other].map(|gpu| gpu.bridges.first().map(|bridge| bridge.address.as_str()));
        match (ports, one_place.node, other_place.node) {
            ([Some(one), Some(other)], ..) if one == other => Self::Switch,
            (_, Some(one), Some(other)) if one != other => Self::Processors,
            ([Some(_), Some(_)], ..) => Self::Host,
            _ => Self::Unseen,
        }
    }

    /// Its word in tables.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::NvLink => "NVLink",
            Self::Switch => "switch",
            Self::Host => "host",
            Self::Processors => "CPUs",
            Self::Unseen => "yes",
        }
    }

    /// The word's meaning.
    pub(super) fn explained(self) -> &'static str {
        match self {
            Self::NvLink => "NVLink joins them",
            Self::Switch => "a PCI switch joins them",
            Self::Host => "the PCI host of one CPU joins them",
            Self::Processors => "the link between CPUs joins them",
            Self::Unseen => "they have a path; what it is cannot be seen here",
        }
    }
}

/// The kind of container that this process is in, if it is in one that shows.
pub(super) fn container(root: &Path) -> Option<String> {
    for (file, name) in [(".dockerenv", "docker"), ("run/.containerenv", "podman")] {
        if root.join(file).exists() {
            return Some(name.to_owned());
        }
    }
    let told = fs::read_to_string(root.join("run/systemd/container")).ok();
    if let Some(name) = told.map(|text| Escaped(text.trim()).to_string()).filter(|name| !name.is_empty()) {
        return Some(name);
    }
    let groups = fs::read_to_string(root.join("proc/1/cgroup")).unwrap_or_default();
    let known = ["docker", "kubepods", "containerd", "lxc", "libpod"];
    known.into_iter().find(|name| groups.contains(name)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use p2pshim_host::machine::{Acs, Bridge};

    fn gpu(port: Option<&str>) -> Gpu {
        let bridges = port.map(|port| Bridge { address: port.to_owned(), acs: Acs::Off });
        Gpu { bridges: bridges.into_iter().collect(), ..Gpu::default() }
    }

    fn near(node: Option<u32>) -> Place {
        Place { node, ..Place::default() }
    }

    #[test]
    fn of_pci_by_port_and_node() {
        let (a, b, none) = (gpu(Some("0000:00:01.0")), gpu(Some("0000:80:01.0")), gpu(None));
        for (gpus, nodes, expected) in [
            ([&a, &a], [Some(0), Some(0)], Joint::Switch),
            ([&a, &b], [Some(0), Some(0)], Joint::Host),
            ([&a, &b], [Some(0), Some(1)], Joint::Processors),
            ([&a, &b], [None, None], Joint::Host),
            ([&none, &none], [None, None], Joint::Unseen),
        ] {
            let places = nodes.map(near);
            let [one, other] = gpus;
            let [one_place, other_place] = &places;
            assert_eq!(Joint::of_pci([(one, one_place), (other, other_place)]), expected, "{nodes:?}");
        }
    }

    #[test]
    fn read_and_container_what_is_not_there_is_not_known() {
        assert_eq!(Place::read(Path::new("/nonexistent"), "0000:01:00.0"), Place::default());
        assert_eq!(container(Path::new("/nonexistent")), None);
    }

    #[test]
    fn container_by_file_or_control_group() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        fs::create_dir_all(root.join("proc/1")).unwrap();
        fs::write(root.join("proc/1/cgroup"), "0::/kubepods.slice/x\n").unwrap();
        assert_eq!(container(root).unwrap(), "kubepods");
        fs::write(root.join(".dockerenv"), "").unwrap();
        assert_eq!(container(root).unwrap(), "docker");
    }
}
