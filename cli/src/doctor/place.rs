//! Where the GPUs are, as sysfs and procfs tell it: their link, BAR1 and memory node, and whether this is a container.

use std::fmt::{self, Display, Formatter};
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
    /// The bridges above it, the root port first, and last itself.
    pub(super) ports: Vec<Port>,
    /// The memory node that it is near.
    pub(super) node: Option<u32>,
    /// Its number among the vendor's devices on PCI.
    pub(super) device: Option<u16>,
}

/// A PCI device: a bridge above a GPU, or the GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) address: String,
    /// Its link as it runs now. A bridge has the one below it, and a switch's upper port the one above.
    pub(super) link: Option<Link>,
    /// The fastest that it can do.
    pub(super) most: Option<Link>,
    /// Errors since it was found: corrected, not fatal, and fatal.
    pub(super) errors: [u64; 3],
}

/// The rate of a PCI link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Link {
    /// In tenths of GT/s.
    pub(super) speed: u32,
    pub(super) lanes: u32,
}

impl Link {
    /// GB/s each way, without what the encoding takes.
    pub(super) fn rate(self) -> f64 {
        let useful = match self.speed {
            ..80 => 0.8,
            80..640 => 128.0 / 130.0,
            _ => 242.0 / 256.0,
        };
        f64::from(self.speed) * f64::from(self.lanes) / 80.0 * useful
    }

    /// The most that both ends of a link can do.
    pub(super) fn and(self, other: Self) -> Self {
        Self { speed: self.speed.min(other.speed), lanes: self.lanes.min(other.lanes) }
    }
}

impl Display for Link {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} GT/s x{}", self.speed / 10, self.speed % 10, self.lanes)
    }
}

impl Port {
    fn read(folder: &Path) -> Self {
        let text = |name: &str| Some(fs::read_to_string(folder.join(name)).ok()?.trim().to_owned());
        let link = |which: &str| {
            let (speed, lanes) = (text(&format!("{which}_link_speed"))?, text(&format!("{which}_link_width"))?);
            // `32.0 GT/s PCIe`, or `Unknown`; a link that is down has no lanes.
            let speed = speed.split(' ').next()?.parse::<f64>().ok().filter(|speed| (1.0..1000.0).contains(speed))?;
            let lanes = lanes.parse().ok().filter(|&lanes| lanes > 0 && lanes < 64)?;
            Some(Link { speed: (speed * 10.0) as u32, lanes })
        };
        let errors = |kind: &str| {
            let counted = text(&format!("aer_dev_{kind}"))?;
            counted.lines().find_map(|line| line.strip_prefix("TOTAL_ERR_")?.split(' ').nth(1)?.parse().ok())
        };
        Self {
            address: folder.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            link: link("current"),
            most: link("max"),
            errors: ["correctable", "nonfatal", "fatal"].map(|kind| errors(kind).unwrap_or_default()),
        }
    }
}

impl Place {
    /// Reads what is below `root`, which is `/` but in tests.
    pub(super) fn read(root: &Path, gpu: &Gpu) -> Self {
        let Ok(folder) = fs::canonicalize(root.join("sys/bus/pci/devices").join(&gpu.bus_id)) else {
            return Self::default();
        };
        let is_bridge = |place: &&Path| {
            let name = place.file_name().unwrap_or_default();
            gpu.bridges.iter().any(|bridge| name == bridge.address.as_str())
        };
        let above = folder.ancestors().skip(1).filter(is_bridge);
        let mut ports: Vec<Port> = std::iter::once(&*folder).chain(above).map(Port::read).collect();
        ports.reverse();
        // Machines with one node say -1.
        let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let node = text("numa_node").and_then(|node| node.trim().parse().ok());
        let device = text("device").and_then(|text| u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok());
        Self { bar1: bar1(root, &gpu.bus_id), ports, node, device }
    }

    /// The GPU's own link.
    pub(super) fn link(&self) -> Option<Link> {
        self.ports.last()?.link
    }

    /// The most that the GPU's own link can do.
    pub(super) fn most(&self) -> Option<Link> {
        let ends = self.ports.iter().rev().take(2).filter_map(|port| port.most);
        ends.reduce(Link::and)
    }

    /// Takes over what was read at another time where that shows faster links: GPUs slow theirs down while they have nothing to do.
    pub(super) fn and_later(self, later: &Self) -> Self {
        let ports = later.ports.iter().enumerate().map(|(place, port)| {
            let before = self.ports.get(place).and_then(|before| before.link).unwrap_or_default();
            let link = port.link.map(|link| Link { speed: link.speed.max(before.speed), ..link });
            Port { link, ..port.clone() }
        });
        Self { ports: ports.collect(), ..later.clone() }
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

/// The services of the fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Services {
    /// Whether the process is seen here; a container or virtual machine does not show its host's.
    pub(super) fabric_manager: bool,
    pub(super) imex: bool,
    /// Channels of IMEX that may be used.
    pub(super) channels: Vec<String>,
}

impl Services {
    /// Reads what is below `root`.
    pub(super) fn read(root: &Path) -> Self {
        let names = |folder: &str| {
            let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let name = |process: &String| fs::read_to_string(root.join("proc").join(process).join("comm")).ok();
        let is_number = |name: &&String| name.bytes().all(|byte| byte.is_ascii_digit());
        let running: Vec<String> = names("proc").iter().filter(is_number).filter_map(name).collect();
        // The kernel keeps 15 characters.
        let runs = |name: &str| running.iter().any(|it| it.trim_end() == name);
        let mut channels = names("dev/nvidia-caps-imex-channels");
        channels.sort();
        Self { fabric_manager: runs("nv-fabricmanage"), imex: runs("nvidia-imex"), channels }
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
    use crate::fuzz::{NUMBERS, each, is_plain};
    use p2pshim_host::machine::{Acs, Bridge};

    fn gpu(port: Option<&str>) -> Gpu {
        let bridges = port.map(|port| Bridge { address: port.to_owned(), acs: Acs::Off });
        Gpu { bridges: bridges.into_iter().collect(), ..Gpu::default() }
    }

    fn near(node: Option<u32>) -> Place {
        Place { node, ..Place::default() }
    }

    #[test]
    fn damaged_accounts_of_a_machine_name_no_impossible_link_and_are_shown_as_text() {
        const GPU: &str = "sys/bus/pci/devices/0000:01:00.0";
        let files = [
            ("current_link_speed", "16.0 GT/s PCIe\n"),
            ("current_link_width", "16\n"),
            ("max_link_speed", "32.0 GT/s PCIe\n"),
            ("max_link_width", "16\n"),
            ("aer_dev_correctable", "RxErr 0\nBadTLP 3\nTOTAL_ERR_COR 3\n"),
            ("numa_node", "1\n"),
            ("resource", "0x0 0xffffff 0x40200\n0x1000000000 0x1fffffffff 0x14220c\n"),
        ];
        let files = files.map(|(name, text)| (format!("{GPU}/{name}"), text));
        let others = [
            ("proc/1/cgroup", "0::/kubepods.slice/x\n"),
            ("proc/77/comm", "nv-fabricmanage\n"),
            ("run/systemd/container", "lxc\n"),
        ];
        let others = others.map(|(name, text)| (name.to_owned(), text));
        let files: Vec<(String, &str)> = files.into_iter().chain(others).collect();
        let root = tempfile::tempdir().unwrap();
        let write = |(name, _): &(String, &str), bytes: &[u8]| {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        files.iter().for_each(|file| write(file, file.1.as_bytes()));
        let gpu = Gpu { bus_id: "0000:01:00.0".to_owned(), ..Gpu::default() };
        let whole = Place::read(root.path(), &gpu);
        assert_eq!((whole.node, whole.link().map(|link| link.lanes), whole.bar1), (Some(1), Some(16), Some(64 << 30)));
        let words: Vec<&str> = files.iter().flat_map(|file| file.1.split_whitespace()).chain(NUMBERS).collect();
        each(500, |_, random| {
            let file = &files[random.below(files.len())];
            write(file, &random.damaged(file.1.as_bytes(), &words));
            let place = Place::read(root.path(), &gpu).and_later(&whole);
            for link in [place.link(), place.most()].into_iter().flatten() {
                assert!((0.0..=100_000.0).contains(&link.rate()) && is_plain(&link.to_string()), "{link:?}");
            }
            assert!(container(root.path()).is_none_or(|name| is_plain(&name)), "{:?}", container(root.path()));
            let _ = Services::read(root.path());
            if random.below(4) == 0 {
                write(file, file.1.as_bytes());
            }
        });
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
        assert_eq!(Place::read(Path::new("/nonexistent"), &gpu(None)), Place::default());
        assert_eq!(container(Path::new("/nonexistent")), None);
    }

    #[test]
    fn rate_is_what_the_encoding_leaves() {
        for (speed, lanes, expected) in
            [(25, 16, 4.0), (80, 16, 15.75), (160, 16, 31.51), (320, 4, 15.75), (640, 16, 121.0)]
        {
            assert!((Link { speed, lanes }.rate() - expected).abs() < 0.01, "{speed} x{lanes}");
        }
    }

    #[test]
    fn read_of_a_port_leaves_out_what_the_kernel_does_not_know() {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("current_link_speed", "Unknown\n"),
            ("current_link_width", "63\n"),
            ("max_link_speed", "16.0 GT/s PCIe\n"),
            ("max_link_width", "8\n"),
            ("aer_dev_correctable", "RxErr 3\nTOTAL_ERR_COR 12\n"),
            ("aer_dev_fatal", "Undefined 0\nTOTAL_ERR_FATAL 1\n"),
        ] {
            fs::write(root.path().join(file), text).unwrap();
        }
        let port = Port::read(root.path());
        assert_eq!((port.link, port.most, port.errors), (None, Some(Link { speed: 160, lanes: 8 }), [12, 0, 1]));
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
