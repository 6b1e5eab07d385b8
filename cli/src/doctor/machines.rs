//! Tests the texts about machines of several kinds, whose `proc` and `sys` are made here, and whose tests are given.
//!
//! docs/dev/MACHINES.md has it. `P2PSHIM_UPDATE=1` writes it anew.

use std::fs;
use std::os::unix::fs::symlink;

use super::lines::Verdict;
use super::lines::{Measure, Test};
use super::*;
use crate::nvml::{Fabric, Links};
use crate::report::scene::Folder;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/dev/MACHINES.md");
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
pub(super) struct Tree(pub(super) Folder);

/// Where a GPU is.
#[derive(Clone, Copy)]
pub(super) struct Gpu<'a> {
    /// Bridges, the root port first, with their ACS control.
    pub(super) below: &'a [(&'a str, Option<u16>)],
    /// The type of its IOMMU group.
    pub(super) group: Option<&'a str>,
    pub(super) node: i32,
    pub(super) bar1: u64,
    pub(super) has_display: bool,
    /// Its link: GT/s and lanes. It can do 32 GT/s on 16 lanes, as all bridges can.
    pub(super) link: (&'a str, u32),
    /// Errors of its link that were corrected, and fatal ones.
    pub(super) errors: [u32; 2],
}

pub(super) const GPU: Gpu =
    Gpu { below: &[], group: None, node: -1, bar1: 64 << 30, has_display: false, link: ("32.0", 16), errors: [0; 2] };

impl Tree {
    pub(super) fn new() -> Self {
        let tree = Self(Folder::new("machine"));
        tree.write("proc/version", LINUX);
        tree.write("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 quiet\n");
        tree.write("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme de pse\n");
        tree.write("sys/module/nvidia/version", "580.95.05\n");
        tree
    }

    pub(super) fn write(&self, file: &str, text: impl AsRef<[u8]>) -> &Self {
        let file = self.0.0.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
        self
    }

    /// The GPU with that number, which simulated drivers call `0000:01:00.0` and on.
    pub(super) fn gpu(&self, number: u32, gpu: Gpu) -> &Self {
        let bus_id = format!("0000:{:02x}:00.0", number + 1);
        let mut place = "sys/devices/pci0000:00".to_owned();
        for (bridge, acs) in gpu.below {
            place += &format!("/{bridge}");
            self.write(&format!("{place}/config"), configuration(*acs)).link(&place, ("32.0", 16));
        }
        place += &format!("/{bus_id}");
        for (file, text) in [
            ("vendor", "0x10de\n".to_owned()),
            ("class", "0x030200\n".to_owned()),
            ("numa_node", format!("{}\n", gpu.node)),
            ("aer_dev_correctable", format!("RxErr 0\nBadTLP {}\nTOTAL_ERR_COR {0}\n", gpu.errors[0])),
            ("aer_dev_fatal", format!("DLP {}\nTOTAL_ERR_FATAL {0}\n", gpu.errors[1])),
            ("resource", format!("0x0 0xffffff 0x40200\n0x1000000000 {:#x} 0x14220c\n", 0x10_0000_0000 + gpu.bar1 - 1)),
        ] {
            self.write(&format!("{place}/{file}"), text);
        }
        self.link(&place, gpu.link);
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

    fn link(&self, place: &str, (speed, lanes): (&str, u32)) -> &Self {
        self.write(&format!("{place}/current_link_speed"), format!("{speed} GT/s PCIe\n"));
        self.write(&format!("{place}/current_link_width"), format!("{lanes}\n"));
        self.write(&format!("{place}/max_link_speed"), "32.0 GT/s PCIe\n");
        self.write(&format!("{place}/max_link_width"), "16\n")
    }

    fn gpus(&self, gpu: Gpu, ports: [&[(&str, Option<u16>)]; 2]) -> &Self {
        ports.into_iter().zip(0..).for_each(|(below, number)| {
            self.gpu(number, Gpu { below, ..gpu });
        });
        self
    }

    /// Lines of the kernel's log, as `/dev/kmsg` has them.
    pub(super) fn log(&self, lines: &[&str]) -> &Self {
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
    /// Right, at so many GB/s.
    At(f64),
    /// Right, but so slow while all copy.
    Shares(f64),
    Wrong,
    Stalls,
    NoPath,
    /// CUDA does not start, and says this.
    NoStart(&'static str),
    /// Wrong in these tests only.
    Only(&'static [Test]),
}

/// The properties of the GPUs.
enum Gpus {
    Unnamed,
    Named(&'static str),
    /// By NVLink, with so many links up of the second.
    Joined(u32),
    /// Joined, and registered with the fabric so.
    Fabric([Fabric; 2]),
    Divided,
    Confidential,
    /// Virtual GPUs.
    Virtual,
    /// With NVLink to their processors.
    WithC2c,
    /// Joined, in a fabric of several machines.
    Cluster,
    Four,
}

use Found::{At, NoPath, NoStart, Only, Right, Shares, Stalls, Wrong};

const READY: Fabric = Fabric { state: 3, status: 0, clique: 0, cluster: None, health: 0x1aa };

/// A kind of machine.
struct Kind {
    title: &'static str,
    about: &'static str,
    make: fn(&Tree),
    /// The kind of their GPUs.
    gpus: Gpus,
    /// The findings of the tests of 0>1 and of 1>0.
    found: [Found; 2],
    /// The words that the advice must have. The first of a hint begins with `Hint`, and these are in the first three lines; without
    /// such there is no hint.
    said: &'static [&'static str],
}

pub(super) const PORTS: [&[(&str, Option<u16>)]; 2] = [&[("0000:00:01.1", OPEN)], &[("0000:00:03.1", OPEN)]];

const SWITCH: [&[(&str, Option<u16>)]; 2] = [
    &[("0000:00:01.1", OPEN), ("0000:10:00.0", OPEN), ("0000:11:00.0", OPEN)],
    &[("0000:00:01.1", OPEN), ("0000:10:00.0", OPEN), ("0000:11:01.0", OPEN)],
];

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
        gpus: Gpus::Joined(18),
        found: [At(396.0), At(396.0)],
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
        said: &["the IOMMU stopped accesses of 0000:01:00.0. Boot with iommu=pt", "The kernel's log says so: `DMAR: "],
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
        said: &["below WSL the driver is that of Windows", "boot Linux"],
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
        said: &["No peer access on 0>1 1>0: NVIDIA's own driver gives GeForce boards none by PCI"],
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
        title: "LL broken",
        about: "The two words of 4 bytes that a kernel stores at once arrive apart.",
        make: |tree| {
            tree.gpus(Gpu { node: 0, ..GPU }, PORTS);
        },
        gpus: Gpus::Unnamed,
        found: [Only(&[Test::Ll]), Right],
        said: &["UNSAFE for NCCL's protocol LL on 0>1", "NCCL_PROTO=^LL makes NCCL do without"],
    },
    Kind {
        title: "LL128 broken",
        about: "NVLink joins the GPUs, and lines of 128 bytes arrive in parts.",
        make: |tree| {
            tree.gpus(Gpu { node: 0, ..GPU }, PORTS);
        },
        gpus: Gpus::Joined(18),
        found: [Only(&[Test::Ll128]), Only(&[Test::Ll128])],
        said: &["UNSAFE for NCCL's protocol LL128 on 0>1 1>0", "NCCL_PROTO=^LL128 makes NCCL do without"],
    },
    Kind {
        title: "IPC broken",
        about: "Copies and kernels are right within a process, and wrong in memory of another one.",
        make: |tree| {
            tree.gpus(Gpu { node: 0, ..GPU }, PORTS);
        },
        gpus: Gpus::Unnamed,
        found: [Only(&[Test::Ipc, Test::IpcKernels]), Right],
        said: &[
            "UNSAFE. Memory that processes share loses data or hangs on 0>1",
            "NCCL_P2P_DISABLE=1",
            "--disable-custom-all-reduce",
        ],
    },
    Kind {
        title: "Custom all-reduces broken",
        about: "Copies of memory of another process are right; kernels of both that use it are not.",
        make: |tree| {
            tree.gpus(Gpu { node: 0, ..GPU }, PORTS);
        },
        gpus: Gpus::Unnamed,
        found: [Right, Only(&[Test::IpcKernels])],
        said: &["UNSAFE. Kernels of two processes lose data or hang", "on 1>0", "--disable-custom-all-reduce"],
    },
    Kind {
        title: "All-to-all broken",
        about: "Each pair alone is right.",
        make: |tree| {
            tree.gpus(Gpu { node: 0, ..GPU }, PORTS);
        },
        gpus: Gpus::Unnamed,
        found: [Only(&[Test::AllToAll]), Right],
        said: &["UNSAFE. While kernels store from each GPU to each other", "on 0>1", "NCCL_P2P_DISABLE=1"],
    },
    Kind {
        title: "MIG",
        about: "GPUs that are divided have no peer access.",
        make: |tree| {
            tree.gpus(GPU, PORTS);
        },
        gpus: Gpus::Divided,
        found: [NoPath, NoPath],
        said: &["MIG divides GPU 0 1", "nvidia-smi -mig 0"],
    },
    Kind {
        title: "Confidential computing",
        about: "NVML says that the mode is on.",
        make: |tree| {
            tree.gpus(GPU, PORTS);
        },
        gpus: Gpus::Confidential,
        found: [NoPath, NoPath],
        said: &["confidential computing is on", "nvidia-smi conf-compute -q"],
    },
    Kind {
        title: "A PCI switch",
        about: "Both GPUs below it; nothing redirects.",
        make: |tree| {
            tree.gpus(Gpu { node: 0, ..GPU }, SWITCH);
        },
        gpus: Gpus::Unnamed,
        found: [At(54.0), At(54.0)],
        said: &["peer access can be trusted"],
    },
    Kind {
        title: "Two root ports of one processor",
        about: "The expectation is lower than that of a switch. The GPUs have slowed their links down, as they do when idle.",
        make: |tree| {
            tree.gpus(Gpu { node: 0, link: ("2.5", 16), ..GPU }, PORTS);
        },
        gpus: Gpus::Unnamed,
        found: [At(39.0), At(39.0)],
        said: &["peer access can be trusted"],
    },
    Kind {
        title: "Virtual machine with NVSwitch",
        about: "KVM with GPUs of an HGX board. The bridges are QEMU's own, and say nothing.",
        make: |tree| {
            tree.write("proc/cpuinfo", "flags\t\t: fpu vme hypervisor\n");
            tree.write("sys/class/dmi/id/sys_vendor", "QEMU\n");
            tree.gpus(Gpu { link: ("2.5", 1), ..GPU }, [&[("0000:00:02.0", UNREADABLE)]; 2]);
        },
        gpus: Gpus::Fabric([READY; 2]),
        found: [At(396.0), At(396.0)],
        said: &["peer access can be trusted"],
    },
    Kind {
        title: "Container of Docker",
        about: "It shows neither the host's processes nor more of the bridges than 64 bytes.",
        make: |tree| {
            tree.write(".dockerenv", "");
            let ports: [&[_]; 2] = [&[("0000:00:01.1", UNREADABLE)], &[("0000:00:03.1", UNREADABLE)]];
            tree.gpus(Gpu { node: 0, ..GPU }, ports);
        },
        gpus: Gpus::Unnamed,
        found: [At(52.0), At(52.0)],
        said: &["peer access can be trusted"],
    },
    Kind {
        title: "C2C",
        about: "Two superchips: each GPU has NVLink to its processor (C2C), and PCI says nothing about their path.",
        make: |tree| {
            let below = |node| Gpu { below: PORTS[node as usize], node, link: ("32.0", 1), ..GPU };
            tree.gpu(0, below(0)).gpu(1, below(1));
        },
        gpus: Gpus::WithC2c,
        found: [At(30.0), At(30.0)],
        said: &["peer access can be trusted"],
    },
    Kind {
        title: "Grace, the SMMU stops accesses",
        about: "Two superchips. The kernel names the GPU in newer versions only; \
                lines about no device are left out.",
        make: |tree| {
            let below =
                |node| Gpu { below: PORTS[node as usize], node, group: Some("DMA-FQ"), link: ("32.0", 1), ..GPU };
            tree.write("sys/class/iommu/smmu3.0x0000000011000000/x", "").gpu(0, below(0)).gpu(1, below(1));
            tree.log(&[
                "arm-smmu-v3 arm-smmu-v3.27.auto: event 0x10 received:",
                "arm-smmu-v3 arm-smmu-v3.27.auto: event: F_TRANSLATION client: UNKNOWN client sid: 0x100 ssid: 0x0 iova: 0x1000 ipa: 0x0",
                "arm-smmu-v3 arm-smmu-v3.1.auto: event: F_TRANSLATION client: 0000:01:00.0 sid: 0x100 ssid: 0x0 iova: 0xffe00000 ipa: 0x0",
            ]);
        },
        gpus: Gpus::WithC2c,
        found: [Wrong, Right],
        said: &["the IOMMU stopped accesses of 0000:01:00.0. Boot with iommu.passthrough=1", "client: 0000:01:00.0"],
    },
    Kind {
        title: "A link with few lanes",
        about: "A riser makes contact on 4 of 16 lanes.",
        make: |tree| {
            tree.gpu(0, Gpu { below: SWITCH[0], node: 0, link: ("32.0", 4), ..GPU });
            tree.gpu(1, Gpu { below: SWITCH[1], node: 0, ..GPU });
        },
        gpus: Gpus::Unnamed,
        found: [At(13.1), At(13.2)],
        said: &["Hint: 0>1 1>0 copy at 13.1 GB/s", "0000:01:00.0 has 4 of 16 lanes", "reseat it"],
    },
    Kind {
        title: "A slow link",
        about: "The slot is set to PCIe 3 in the firmware.",
        make: |tree| {
            tree.gpu(0, Gpu { below: SWITCH[0], node: 0, ..GPU });
            tree.gpu(1, Gpu { below: SWITCH[1], node: 0, link: ("8.0", 16), ..GPU });
        },
        gpus: Gpus::Unnamed,
        found: [At(13.1), At(13.1)],
        said: &["Hint: 0>1 1>0 copy at 13.1 GB/s", "0000:02:00.0 runs at 8.0 GT/s x16", "in the firmware"],
    },
    Kind {
        title: "Errors of a link",
        about: "It sends again what arrives damaged.",
        make: |tree| {
            tree.gpu(0, Gpu { below: SWITCH[0], node: 0, errors: [51_234, 0], ..GPU });
            tree.gpu(1, Gpu { below: SWITCH[1], node: 0, ..GPU });
        },
        gpus: Gpus::Unnamed,
        found: [At(30.0), At(29.0)],
        said: &["Hint: 0>1 1>0 copy at 29.0 GB/s", "0000:01:00.0 counts PCIe errors", "reseat the card"],
    },
    Kind {
        title: "Errors of a link that were not corrected",
        about: "Data is lost on the way.",
        make: |tree| {
            tree.gpu(0, Gpu { below: SWITCH[0], node: 0, ..GPU });
            tree.gpu(1, Gpu { below: SWITCH[1], node: 0, errors: [311, 2], ..GPU });
        },
        gpus: Gpus::Unnamed,
        found: [Wrong, Right],
        said: &[
            "0000:02:00.0 counts PCIe errors since boot that were not corrected (0 not fatal, 2 fatal)",
            "Reseat the card",
        ],
    },
    Kind {
        title: "A switch that redirects",
        about: "ACS sends all copies up to the processor and back.",
        make: |tree| {
            let below = |port| [("0000:00:01.1", OPEN), ("0000:10:00.0", OPEN), (port, REDIRECTS)];
            tree.gpu(0, Gpu { below: &below("0000:11:00.0"), node: 0, ..GPU });
            tree.gpu(1, Gpu { below: &below("0000:11:01.0"), node: 0, ..GPU });
        },
        gpus: Gpus::Unnamed,
        found: [At(24.0), At(24.0)],
        said: &["Hint: 0>1 1>0 copy at 24.0 GB/s", "ACS of 0000:11:00.0 0000:11:01.0 redirects", "in the firmware"],
    },
    Kind {
        title: "Slow by the IOMMU",
        about: "Data arrives, and each access is translated.",
        make: |tree| {
            tree.write("sys/class/iommu/dmar0/x", "").gpus(Gpu { group: Some("DMA-FQ"), node: 0, ..GPU }, PORTS);
        },
        gpus: Gpus::Unnamed,
        found: [At(9.0), At(9.0)],
        said: &["Hint: 0>1 1>0 copy at 9.0 GB/s", "The IOMMU translates their addresses", "iommu=pt"],
    },
    Kind {
        title: "A shared uplink",
        about: "Two GPUs below each of two switches: each pair alone is fast.",
        make: |tree| {
            for (number, port) in (0..).zip(["0000:11:00.0", "0000:11:01.0", "0000:21:00.0", "0000:21:01.0"]) {
                let below = match number {
                    0 | 1 => [("0000:00:01.1", OPEN), ("0000:10:00.0", OPEN), (port, OPEN)],
                    _ => [("0000:00:03.1", OPEN), ("0000:20:00.0", OPEN), (port, OPEN)],
                };
                tree.gpu(number, Gpu { below: &below, node: 0, ..GPU });
            }
        },
        gpus: Gpus::Four,
        found: [Shares(7.5), Shares(7.0)],
        said: &[
            "Hint: 0>2 0>3 1>2 1>3 copy at 7.5 GB/s while all copy",
            "the link of 0000:10:00.0",
            "below one switch",
        ],
    },
    Kind {
        title: "Two NVLinks down",
        about: "An HGX board; one GPU has 16 links up.",
        make: |tree| {
            tree.gpus(Gpu { node: 0, ..GPU }, SWITCH);
        },
        gpus: Gpus::Joined(16),
        found: [At(350.0), At(350.0)],
        said: &["Hint: GPU 1 has 16 NVLinks up, GPU 0 has 18", "reset it"],
    },
    Kind {
        title: "Two cliques",
        about: "The fabric's partitions keep the GPUs apart.",
        make: |tree| {
            tree.gpus(Gpu { node: 0, ..GPU }, SWITCH);
        },
        gpus: Gpus::Fabric([Fabric { clique: 1, ..READY }, Fabric { clique: 2, ..READY }]),
        found: [NoPath, NoPath],
        said: &[
            "No peer access on 0>1 1>0: GPU 0 is in clique 1 of the NVLink fabric, GPU 1 in clique 2",
            "use one partition",
        ],
    },
    Kind {
        title: "The fabric is not ready",
        about: "Nobody has started the fabric manager, and CUDA does not start.",
        make: |tree| {
            tree.gpus(Gpu { node: 0, ..GPU }, SWITCH);
        },
        gpus: Gpus::Fabric([const { Fabric { state: 1, ..READY } }; 2]),
        found: [NoStart("cuInit answered 802"); 2],
        said: &["Hint: NVLink fabric of GPU 0 1: not started", "Start nvidia-fabricmanager"],
    },
    Kind {
        title: "An unhealthy fabric",
        about: "The fabric has lost a part of its links.",
        make: |tree| {
            tree.write("proc/4711/comm", "nv-fabricmanage\n").gpus(Gpu { node: 0, ..GPU }, SWITCH);
        },
        gpus: Gpus::Fabric([const { Fabric { health: 0x1a9, ..READY } }; 2]),
        found: [At(396.0), Wrong],
        said: &["fabric of GPU 0 1 is not well (degraded bandwidth)", "Restart nvidia-fabricmanager"],
    },
    Kind {
        title: "No IMEX",
        about: "A rack of machines that NVLink joins; nothing shares memory between them.",
        make: |tree| {
            tree.gpus(Gpu { node: 0, ..GPU }, SWITCH);
        },
        gpus: Gpus::Cluster,
        found: [At(396.0), At(396.0)],
        said: &["Hint: the NVLink fabric spans machines, and IMEX is not ready", "Start nvidia-imex"],
    },
    Kind {
        title: "Virtual GPUs",
        about: "Parts of GPUs by VMware.",
        make: |tree| {
            tree.write("proc/cpuinfo", "flags\t\t: fpu vme hypervisor\n");
            tree.write("sys/class/dmi/id/sys_vendor", "VMware, Inc.\n").gpus(GPU, PORTS);
        },
        gpus: Gpus::Virtual,
        found: [NoPath, NoPath],
        said: &["vGPUs reach each other by NVLink only", "whole memory"],
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
        let count = if matches!(self.gpus, Gpus::Four) { 4 } else { 2 };
        let known: Vec<Known> = (0..count).map(|ordinal| self.known(ordinal)).collect();
        let is_joined = known.iter().any(|known| known.links.as_ref().is_some_and(|links| links.up > 0));
        let is_joined = is_joined && !matches!(self.found, [NoPath, _]);
        Inventory {
            devices: (0..count).map(|ordinal| named(ordinal, name)).collect(),
            is_confidential: known[0].is_mig.map(|_| matches!(self.gpus, Gpus::Confidential)),
            known,
            nvlinks: if is_joined { vec![[0, 1], [1, 0]] } else { Vec::new() },
            ..Inventory::default()
        }
    }

    /// NVML's words on a GPU.
    fn known(&self, ordinal: usize) -> Known {
        let joined = |up| Links { up, version: Some(6), speed: Some(26_562), ..Links::default() };
        let nvml = Known {
            is_mig: Some(matches!(self.gpus, Gpus::Divided)),
            bar1: Some(256 << 30),
            links: Some(Links::default()),
            ..Known::default()
        };
        let of_fabric = |fabric: Fabric| Known { links: Some(joined(18)), fabric: Some(fabric), ..nvml.clone() };
        match &self.gpus {
            Gpus::Unnamed | Gpus::Named(_) | Gpus::Four => Known::default(),
            Gpus::Joined(up) => Known { links: Some(joined(if ordinal == 1 { *up } else { 18 })), ..nvml },
            Gpus::Fabric(fabrics) => of_fabric(fabrics[ordinal].clone()),
            Gpus::Cluster => of_fabric(Fabric { cluster: Some("3f1a".repeat(8)), ..READY }),
            Gpus::Divided | Gpus::Confidential => nvml,
            Gpus::Virtual => Known { virtualization: Some(2), ..nvml },
            Gpus::WithC2c => Known { c2c: Some(10), ..nvml },
        }
    }

    fn examined(&self, tree: &Tree) -> Examined {
        let mut examined = Examined::of_machine(self.inventory(), Some(2), Some(tree.0.0.clone()));
        let count = examined.inventory.devices.len();
        for pair in (0..count).flat_map(|from| (0..count).map(move |to| [from, to])).filter(|[from, to]| from != to) {
            let found = self.found[usize::from(pair[0] > pair[1])];
            let mut row = Row::new(pair, if matches!(found, NoPath) { Verdict::NoPath } else { Verdict::Passed });
            let mut set = |speed, latency| {
                row.set_measure(lines::Path::Direct, Measure { speed, latency });
                row.set_measure(lines::Path::Staged, Measure { speed: 10.0, latency: 5.0 });
            };
            match found {
                Right => set(52.0, 5.0),
                At(speed) => set(speed, 5.0),
                Stalls => set(1.0, 20_000.0),
                Shares(speed) => {
                    set(54.0, 5.0);
                    let is_across = (pair[0] < 2) != (pair[1] < 2);
                    row.at_once = Some(if is_across { speed } else { 17.0 });
                }
                Wrong => row.add(Test::Copies, Finding::Wrong("64 bytes never arrived".to_owned())),
                Only(tests) => {
                    tests.iter().for_each(|test| row.add(*test, Finding::Wrong("64 bytes never arrived".to_owned())));
                }
                NoPath => {}
                NoStart(why) => {
                    examined.error = Some(why.to_owned());
                    continue;
                }
            }
            examined.rows.push(row);
        }
        examined
    }
}

pub(super) fn printed(print: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
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
        if examined.error.is_some() {
            return report::print_untested(out, &examined);
        }
        report::print_conclusion(out, &examined, None)?;
        report::print_machine(out, &examined)
    });
    let has_failed = kind.found.iter().any(|found| matches!(found, Wrong | Only(_)));
    let status = if matches!(kind.found[0], NoStart(_)) { status::UNKNOWN } else { u8::from(has_failed) };
    assert_eq!(examined.conclusion().status(), status, "{}: {text}", kind.title);
    let joined = |lines: usize| {
        let lines = text.lines().filter(|line| !line.is_empty()).take(lines);
        lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
    };
    let has_hint = kind.said[0].starts_with("Hint: ");
    let is_narrow = kind.found.iter().any(|found| matches!(found, Only(_)));
    let joined = joined(if has_hint || is_narrow { 3 } else { usize::MAX });
    kind.said.iter().for_each(|said| assert!(joined.contains(said), "{}: no {said}: {text}", kind.title));
    let is_failed = status == 1;
    assert!(has_hint || is_failed || !text.contains("Hint: "), "{}: a hint without need: {text}", kind.title);
    format!("\n## {}\n\n{}\n\n```text\n{}\n```\n", kind.title, kind.about, text.trim())
}

#[test]
fn machines_of_each_kind_the_cause_is_named_and_what_to_do() {
    let text = HEAD.to_owned() + &KINDS.iter().map(section).collect::<String>() + &super::described::tables();
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
