//! Tests the texts about machines of several kinds, whose `proc` and `sys` are made here, and whose tests are given.
//!
//! docs/MACHINES.md has it. `P2PSHIM_UPDATE=1` writes it anew.

use std::fs;
use std::os::unix::fs::symlink;

use super::lines::Verdict;
use super::lines::{Measure, Test};
use super::*;
use crate::report::scene::Folder;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/MACHINES.md");
const HEAD: &str = "\
# `p2pshim doctor` on machines of several kinds

The causes that it tells apart, and its advice. The GPUs and what their tests found are made up, and so are the
files of each machine that it reads: below `/proc`, `/sys` and `/dev`. The tables of pairs are left out. A test compares all
of this with what the command prints.
";

/// ACS control registers: nothing redirected; requests and completions redirected, as firmware sets it for isolation.
const OPEN: Option<u16> = Some(0);
const REDIRECTS: Option<u16> = Some(0x1d);
/// Only root may read more than 64 bytes.
const UNREADABLE: Option<u16> = None;

const LINUX: &str = "Linux version 6.8.0-60-generic (buildd@lcy02) #63-Ubuntu SMP\n";

/// The files of a machine.
struct Tree(Folder);

/// Where a GPU is.
#[derive(Clone, Copy)]
struct Gpu<'a> {
    /// Bridges, the root port first, with their ACS control.
    below: &'a [(&'a str, Option<u16>)],
    /// The type of its IOMMU group.
    group: Option<&'a str>,
    node: i32,
    bar1: u64,
    has_display: bool,
}

const GPU: Gpu = Gpu { below: &[], group: None, node: -1, bar1: 64 << 30, has_display: false };

impl Tree {
    fn new() -> Self {
        let tree = Self(Folder::new("machine"));
        tree.write("proc/version", LINUX);
        tree.write("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 quiet\n");
        tree.write("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme de pse\n");
        tree.write("sys/module/nvidia/version", "580.95.05\n");
        tree
    }

    fn write(&self, file: &str, text: impl AsRef<[u8]>) -> &Self {
        let file = self.0.0.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
        self
    }

    /// The GPU with that number, which simulated drivers call `0000:01:00.0` and on.
    fn gpu(&self, number: u32, gpu: Gpu) -> &Self {
        let bus_id = format!("0000:{:02x}:00.0", number + 1);
        let mut place = "sys/devices/pci0000:00".to_owned();
        for (bridge, acs) in gpu.below {
            place += &format!("/{bridge}");
            self.write(&format!("{place}/config"), configuration(*acs));
        }
        place += &format!("/{bus_id}");
        for (file, text) in [
            ("vendor", "0x10de\n".to_owned()),
            ("class", "0x030200\n".to_owned()),
            ("numa_node", format!("{}\n", gpu.node)),
            ("current_link_speed", "32.0 GT/s PCIe\n".to_owned()),
            ("current_link_width", "16\n".to_owned()),
            ("resource", format!("0x0 0xffffff 0x40200\n0x1000000000 {:#x} 0x14220c\n", 0x10_0000_0000 + gpu.bar1 - 1)),
        ] {
            self.write(&format!("{place}/{file}"), text);
        }
        if gpu.has_display {
            self.write(&format!("{place}/drm/card{number}/card{number}-HDMI-A-1/status"), "connected\n");
        }
        if let Some(kind) = gpu.group {
            let group = format!("sys/kernel/iommu_groups/{}", 10 + number);
            self.write(&format!("{group}/type"), format!("{kind}\n"));
            symlink(self.0.0.join(group), self.0.0.join(&place).join("iommu_group")).unwrap();
        }
        let devices = self.0.0.join("sys/bus/pci/devices");
        fs::create_dir_all(&devices).unwrap();
        symlink(self.0.0.join(&place), devices.join(bus_id)).unwrap();
        self
    }

    fn gpus(&self, gpu: Gpu, ports: [&[(&str, Option<u16>)]; 2]) -> &Self {
        ports.into_iter().zip(0..).for_each(|(below, number)| {
            self.gpu(number, Gpu { below, ..gpu });
        });
        self
    }

    /// Lines of the kernel's log, as `/dev/kmsg` has them.
    fn log(&self, lines: &[&str]) -> &Self {
        let records = lines.iter().enumerate().map(|(number, line)| format!("4,{number},{},-;{line}\n", number * 1000));
        self.write("dev/kmsg", records.collect::<String>())
    }
}

/// A configuration space whose only extended capability is ACS with that control register.
fn configuration(control: Option<u16>) -> Vec<u8> {
    let Some(control) = control else { return vec![0; 64] };
    let mut bytes = vec![0; 4096];
    bytes[0x100..0x104].copy_from_slice(&0x0001_000d_u32.to_le_bytes());
    bytes[0x106..0x108].copy_from_slice(&control.to_le_bytes());
    bytes
}

/// How the tests of a pair come out.
#[derive(Clone, Copy)]
enum Found {
    Right,
    Wrong,
    Stalls,
    NoPath,
}

/// The properties of both GPUs.
#[derive(Clone, Copy)]
enum Gpus {
    Unnamed,
    Named(&'static str),
    Joined,
    Divided,
    Confidential,
}

use Found::{NoPath, Right, Stalls, Wrong};

/// A kind of machine.
struct Kind {
    title: &'static str,
    about: &'static str,
    make: fn(&Tree),
    /// The kind of their GPUs.
    gpus: Gpus,
    /// The findings of the tests of 0>1 and of 1>0.
    found: [Found; 2],
    /// The words that the advice must have.
    said: &'static [&'static str],
}

const PORTS: [&[(&str, Option<u16>)]; 2] = [&[("0000:00:01.1", OPEN)], &[("0000:00:03.1", OPEN)]];

const KINDS: &[Kind] = &[
    Kind {
        title: "Two sockets, nothing in the way",
        about: "Xeon; no IOMMU in use. The GPUs are near different memory nodes.",
        make: |tree| {
            tree.gpu(0, Gpu { below: PORTS[0], node: 0, ..GPU }).gpu(1, Gpu { below: PORTS[1], node: 1, ..GPU });
        },
        gpus: Gpus::Unnamed,
        found: [Right, Right],
        said: &["peer access can be trusted"],
    },
    Kind {
        title: "NVSwitch",
        about: "An HGX board: NVLink joins the GPUs, whatever PCI does.",
        make: |tree| {
            tree.write("proc/cmdline", "root=/dev/md0 intel_iommu=on iommu=pt\n").write("sys/class/iommu/dmar0/x", "");
            tree.gpus(Gpu { group: Some("identity"), node: 0, ..GPU }, [&[("0000:00:01.0", REDIRECTS)]; 2]);
        },
        gpus: Gpus::Joined,
        found: [Right, Right],
        said: &["peer access can be trusted"],
    },
    Kind {
        title: "EPYC, ACS redirects",
        about: "The firmware switches ACS on at the root ports; the IOMMU passes addresses.",
        make: |tree| {
            tree.write("proc/cmdline", "root=/dev/sda1 amd_iommu=on iommu=pt\n").write("sys/class/iommu/ivhd0/x", "");
            let ports: [&[_]; 2] = [&[("0000:00:01.1", REDIRECTS)], &[("0000:00:03.1", REDIRECTS)]];
            tree.gpus(Gpu { group: Some("identity"), node: 0, ..GPU }, ports);
        },
        gpus: Gpus::Unnamed,
        found: [Wrong, Wrong],
        said: &["setpci -s 0000:00:01.1 ECAP_ACS+6.w=0", "setpci -s 0000:00:03.1 ECAP_ACS+6.w=0", "isolation"],
    },
    Kind {
        title: "Threadripper, the IOMMU translates",
        about: "Linux's default with AMD-Vi on. The kernel's log has its faults.",
        make: |tree| {
            tree.write("sys/class/iommu/ivhd0/x", "").gpus(Gpu { group: Some("DMA-FQ"), ..GPU }, PORTS);
            let fault = "nvidia 0000:02:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0003 address=0x800007c0 flags=0x0020]";
            tree.log(&["pci 0000:03:00.0: enabled", fault, fault]);
        },
        gpus: Gpus::Unnamed,
        found: [Wrong, Wrong],
        said: &["the IOMMU stopped accesses of 0000:02:00.0", "2 times", "iommu=pt"],
    },
    Kind {
        title: "Xeon, the IOMMU translates",
        about: "VT-d on, and the kernel's log cannot be read.",
        make: |tree| {
            tree.write("proc/cmdline", "root=/dev/sda1 intel_iommu=on\n").write("sys/class/iommu/dmar0/x", "");
            tree.gpus(Gpu { group: Some("DMA"), node: 0, ..GPU }, PORTS);
        },
        gpus: Gpus::Unnamed,
        found: [Wrong, Right],
        said: &["the IOMMU translates the addresses of 0000:01:00.0 (DMA)", "GRUB_CMDLINE_LINUX"],
    },
    Kind {
        title: "Xeon, VT-d faults in the log",
        about: "Both GPUs below one PCI switch, which redirects nothing.",
        make: |tree| {
            tree.write("sys/class/iommu/dmar0/x", "");
            let below: &[_] = &[("0000:00:01.0", OPEN), ("0000:00:02.0", OPEN)];
            tree.gpus(Gpu { group: Some("DMA-FQ"), node: 0, ..GPU }, [below; 2]);
            tree.log(&["DMAR: [DMA Write NO_PASID] Request device [01:00.0] fault addr 0x38120000000 [fault reason 0x05] PTE Write access is not set"]);
        },
        gpus: Gpus::Unnamed,
        found: [Wrong, Right],
        said: &["the IOMMU stopped accesses of 0000:01:00.0: the kernel's log says so, `DMAR: "],
    },
    Kind {
        title: "Virtual machine",
        about: "KVM with GPUs handed through. The host's IOMMU cannot be seen.",
        make: |tree| {
            tree.write("proc/cpuinfo", "flags\t\t: fpu vme hypervisor\n");
            tree.write("sys/class/dmi/id/sys_vendor", "QEMU\n").gpus(GPU, [&[("0000:00:02.0", UNREADABLE)]; 2]);
        },
        gpus: Gpus::Unnamed,
        found: [Wrong, Wrong],
        said: &["virtual machine (QEMU)", "the host's administrator"],
    },
    Kind {
        title: "WSL",
        about: "Linux below Windows: the GPUs are not on any bus that it shows.",
        make: |tree| {
            tree.write("proc/version", "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@941d701f84f1)\n");
            tree.write("proc/cpuinfo", "flags\t\t: fpu vme hypervisor\n");
        },
        gpus: Gpus::Unnamed,
        found: [NoPath, NoPath],
        said: &["there is no peer access here"],
    },
    Kind {
        title: "Container without sysfs",
        about: "Docker, with /sys masked.",
        make: |tree| {
            tree.write(".dockerenv", "");
            fs::remove_dir_all(tree.0.0.join("sys")).unwrap();
        },
        gpus: Gpus::Unnamed,
        found: [Wrong, Right],
        said: &["neither a translating IOMMU nor a hypervisor", "Try another driver version"],
    },
    Kind {
        title: "Pod without root",
        about: "Kubernetes: only the first 64 bytes of the bridges' configuration can be read.",
        make: |tree| {
            tree.write("proc/1/cgroup", "0::/kubepods.slice/kubepods-pod1.slice\n");
            let ports: [&[_]; 2] = [&[("0000:00:01.1", UNREADABLE)], &[("0000:00:03.1", UNREADABLE)]];
            tree.gpus(Gpu { group: Some("identity"), node: 0, ..GPU }, ports);
        },
        gpus: Gpus::Unnamed,
        found: [Wrong, Right],
        said: &["could not be read: run the test as root"],
    },
    Kind {
        title: "GeForce cards",
        about: "The driver offers no peer access between them.",
        make: |tree| {
            tree.gpus(Gpu { bar1: 32 << 30, ..GPU }, PORTS);
        },
        gpus: Gpus::Named("NVIDIA GeForce RTX 4090"),
        found: [NoPath, NoPath],
        said: &["GeForce cards no peer access", "0>1 1>0 have no path"],
    },
    Kind {
        title: "A display at one of the GPUs",
        about: "GeForce cards under a driver that was changed to offer peer access.",
        make: |tree| {
            tree.gpu(0, Gpu { below: PORTS[0], has_display: true, ..GPU }).gpu(1, Gpu { below: PORTS[1], ..GPU });
        },
        gpus: Gpus::Named("NVIDIA GeForce RTX 5090"),
        found: [Wrong, Wrong],
        said: &["a display is attached to 0000:01:00.0"],
    },
    Kind {
        title: "A small BAR1",
        about: "No resizable BAR: peers see 256 MiB at a time.",
        make: |tree| {
            tree.gpus(Gpu { bar1: 256 << 20, node: 0, ..GPU }, [&[("0000:00:01.1", OPEN)]; 2]);
        },
        gpus: Gpus::Unnamed,
        found: [Right, Right],
        said: &["BAR1 of GPU 0 and 1 is 256 MiB or less"],
    },
    Kind {
        title: "An error of the driver in the log",
        about: "Xid 31: a GPU accessed memory that it had no mapping of.",
        make: |tree| {
            tree.gpus(GPU, PORTS);
            tree.log(&["NVRM: Xid (PCI:0000:01:00): 31, pid=4711, name=app, MMU Fault: ENGINE COPY0 faulted"]);
        },
        gpus: Gpus::Unnamed,
        found: [Wrong, Right],
        said: &["the driver reported an error of 0000:01:00.0", "Xid (PCI:0000:01:00): 31"],
    },
    Kind {
        title: "Direct copies that stall",
        about: "Data arrives, 20 ms later.",
        make: |tree| {
            tree.gpus(Gpu { node: 0, ..GPU }, PORTS);
        },
        gpus: Gpus::Unnamed,
        found: [Stalls, Right],
        said: &["Direct copies stall: 4 bytes took", "P2PSHIM_DENY='0-1'"],
    },
    Kind {
        title: "MIG",
        about: "GPUs that are divided have no peer access.",
        make: |tree| {
            tree.gpus(GPU, PORTS);
        },
        gpus: Gpus::Divided,
        found: [NoPath, NoPath],
        said: &["MIG divides GPU 0 and 1"],
    },
    Kind {
        title: "Confidential computing",
        about: "NVML says that the mode is on.",
        make: |tree| {
            tree.gpus(GPU, PORTS);
        },
        gpus: Gpus::Confidential,
        found: [NoPath, NoPath],
        said: &["Confidential computing is on", "nvidia-smi conf-compute -q"],
    },
];

impl Kind {
    fn inventory(&self) -> Inventory {
        let named = |ordinal: usize, name: &str| Device {
            bus_id: format!("0000:{:02x}:00.0", ordinal + 1),
            uuid: format!("GPU-7032-{ordinal}"),
            name: name.to_owned(),
        };
        let name = if let Gpus::Named(name) = self.gpus { name } else { "Simulated GPU" };
        let is_joined = matches!(self.gpus, Gpus::Joined);
        let has_nvml = matches!(self.gpus, Gpus::Joined | Gpus::Divided | Gpus::Confidential);
        let known = Known {
            is_mig: has_nvml.then_some(matches!(self.gpus, Gpus::Divided)),
            bar1: has_nvml.then_some(256 << 30),
            links: has_nvml.then_some(if is_joined { 18 } else { 0 }),
            ..Known::default()
        };
        Inventory {
            devices: [0, 1].map(|ordinal| named(ordinal, name)).into(),
            known: vec![known; 2],
            nvlinks: if is_joined { vec![[0, 1], [1, 0]] } else { Vec::new() },
            is_confidential: has_nvml.then_some(matches!(self.gpus, Gpus::Confidential)),
            ..Inventory::default()
        }
    }

    fn examined(&self, tree: &Tree) -> Examined {
        let mut examined = Examined::of_machine(self.inventory(), Some(2), Some(tree.0.0.clone()));
        for (found, pair) in self.found.into_iter().zip([[0, 1], [1, 0]]) {
            let mut row = Row::new(pair, if matches!(found, NoPath) { Verdict::NoPath } else { Verdict::Passed });
            match found {
                Right | Stalls => {
                    let (speed, latency) = if matches!(found, Stalls) { (1.0, 20_000.0) } else { (100.0, 5.0) };
                    row.set_measure(lines::Path::Direct, Measure { speed, latency });
                    row.set_measure(lines::Path::Staged, Measure { speed: 10.0, latency: 5.0 });
                }
                Wrong => row.add(Test::Copies, Finding::Wrong("64 bytes never arrived".to_owned())),
                NoPath => {}
            }
            examined.rows.push(row);
        }
        examined
    }
}

fn printed(print: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    print(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The document's section about a machine.
fn section(kind: &Kind) -> String {
    let tree = Tree::new();
    (kind.make)(&tree);
    let examined = kind.examined(&tree);
    let text = printed(|out| {
        report::print_conclusion(out, &examined)?;
        report::print_machine(out, &examined)
    });
    let has_failed = kind.found.iter().any(|found| matches!(found, Wrong));
    assert_eq!(examined.status(), u8::from(has_failed), "{}: {text}", kind.title);
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    kind.said.iter().for_each(|said| assert!(joined.contains(said), "{}: no {said}: {text}", kind.title));
    format!("\n## {}\n\n{}\n\n```text\n{}\n```\n", kind.title, kind.about, text.trim())
}

#[test]
fn machines_of_each_kind_the_cause_is_named_and_what_to_do() {
    let text = HEAD.to_owned() + &KINDS.iter().map(section).collect::<String>();
    if std::env::var_os("P2PSHIM_UPDATE").is_some() {
        fs::write(DOCUMENT, &text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(DOCUMENT).unwrap(), "P2PSHIM_UPDATE=1 writes {DOCUMENT} anew");
}

#[test]
fn issue_is_markdown_with_the_machine_and_without_uuids() {
    let kind = KINDS.iter().find(|kind| kind.title.contains("ACS")).unwrap();
    let tree = Tree::new();
    (kind.make)(&tree);
    let text = printed(|out| report::print_issue(out, kind.examined(&tree)));
    assert!(text.starts_with("### `p2pshim doctor` ") && text.contains(": unsafe\n\nUNSAFE. "), "{text}");
    assert_eq!(text.matches("```").count(), 2, "{text}");
    for said in ["0>1      wrong", "setpci -s 0000:00:01.1", "What I ran"] {
        assert!(text.contains(said), "no {said}: {text}");
    }
    assert!(!text.contains("GPU-7032"), "a UUID: {text}");
}
