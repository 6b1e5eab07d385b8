//! The machine's account of the paths between its devices, as far as it gives one without root: the IOMMU, PCI access
//! control (ACS), virtual machines, displays, and faults in the kernel's log.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::text::Escaped;

/// The name of a simulated GPU.
pub const SIMULATED_NAME: &str = "Simulated GPU";
/// The name of a simulated GPU of HIP.
pub const SIMULATED_AMD_NAME: &str = "Simulated AMD GPU";
/// The probable fault of a pair of simulated GPUs that loses data.
pub const SIMULATED_CAUSE: &str = "these GPUs are simulated, and P2PSIM_FAULT says what goes wrong";

/// The facts that were read; none of them is certain to be there.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Version of NVIDIA's kernel module.
    pub kernel_module: Option<String>,
    /// The kernel's parameters that are about the IOMMU or ACS.
    pub parameters: Vec<String>,
    /// The IOMMUs that the kernel uses.
    pub iommus: Vec<String>,
    /// The virtual machine's name, if this is one.
    pub hypervisor: Option<String>,
    /// The GPUs, in the order asked for.
    pub gpus: Vec<Gpu>,
    /// Lines of the kernel's log about accesses that the IOMMU stopped, about errors of GPUs and of their links, and about peer access
    /// that the driver could not set up, each once for each device; none where it may not be read.
    pub faults: Vec<Fault>,
    /// Words of the driver's registry that are about peer access, such as `ForceP2P=0`.
    pub registry: Vec<String>,
}

/// The source of a line in the kernel's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The IOMMU stopped an access.
    Iommu,
    /// NVIDIA's driver reports an error (Xid).
    Driver,
    /// A PCI port reports an error of a link (AER).
    Link,
    /// NVIDIA's driver could not set up peer access between two GPUs, which it does not name by address.
    Peers,
}

/// The IOMMU of aarch64, as the kernel's log names it.
const SMMU: &str = "arm-smmu-v3";

impl By {
    /// Its word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Iommu => "iommu",
            Self::Driver => "driver",
            Self::Link => "link",
            Self::Peers => "peers",
        }
    }

    /// The source of a line; none if the line is about something else.
    ///
    /// Source: the kernel's drivers/iommu (`DMAR: [DMA Read] Request device [01:00.0] fault addr …`, `nvidia 0000:01:00.0: AMD-Vi: Event
    /// logged [IO_PAGE_FAULT domain=… address=…]`, `arm-smmu-v3 arm-smmu-v3.1.auto: event: F_TRANSLATION client: 0009:01:00.0 sid: …`; older
    /// kernels say `event 0x10 received:`, and of no device) and drivers/pci/pcie/aer.c (`PCIe Bus Error: severity=…`), NVIDIA's kernel module
    /// (`NVRM: Xid (PCI:0000:01:00): 31, …`; kern_bus_gh100.c: `The peer DMA address 0x… is not aligned at 0x…`, `IOMMU mapping
    /// failed from GPU0 to GPU1`).
    pub fn of(line: &str) -> Option<Self> {
        let has = |word| line.contains(word);
        match () {
            () if has("DMAR:") && has("fault") || has("IO_PAGE_FAULT") || has(SMMU) && has("event: F_") => {
                Some(Self::Iommu)
            }
            () if has("NVRM: Xid") => Some(Self::Driver),
            () if has("NVRM: ") && (has("is not aligned at") || has("IOMMU mapping failed")) => Some(Self::Peers),
            () if has("PCIe Bus Error:") => Some(Self::Link),
            () => None,
        }
    }
}

/// A line of the kernel's log about a device.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault {
    /// Address on the PCI bus; empty if the line names none.
    pub bus_id: String,
    /// The last such line.
    pub line: String,
    /// How many such lines there are.
    pub count: usize,
    /// The reporter.
    pub by: By,
}

/// Where Linux distributions keep the kernel's parameters.
const BOOT: &str = "GRUB_CMDLINE_LINUX in /etc/default/grub, then update-grub";

impl Fault {
    /// An IOMMU's, as a cause, and the remedy.
    fn of_iommu(&self) -> String {
        let Self { bus_id, line, count, .. } = self;
        let times = if *count == 1 { String::new() } else { format!(" {count} times, the last time") };
        // Source: the kernel's kernel-parameters.txt. A Grace machine needs its SMMU.
        let boot = if line.contains(SMMU) {
            format!("iommu.passthrough=1 ({BOOT})")
        } else {
            format!("iommu=pt ({BOOT}), or switch it (VT-d, AMD-Vi) off in the firmware")
        };
        format!(
            "the IOMMU stopped accesses of {bus_id}. Boot with {boot}, and test again. The kernel's log says so{times}: `{line}`"
        )
    }
}

/// A GPU's place.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// Address on the PCI bus.
    pub bus_id: String,
    /// Number of its IOMMU group.
    pub group: Option<String>,
    /// The IOMMU's translation of its addresses.
    pub translation: Translation,
    /// The bridges above it, the root port first.
    pub bridges: Vec<Bridge>,
    /// Whether a display is attached to it.
    pub has_display: bool,
}

/// The IOMMU's translation of a device's addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Translation {
    /// sysfs does not show the device.
    #[default]
    Unseen,
    /// The device has no IOMMU group.
    None,
    /// They pass unchanged.
    Identity,
    /// They are translated; the kernel's name for the mode.
    Translated(String),
    /// There is a group, but the kernel does not say.
    Unknown,
}

/// A bridge, and what it does to requests from one device below it to another.
#[derive(Debug, PartialEq, Eq)]
pub struct Bridge {
    /// Address on the PCI bus.
    pub address: String,
    /// Its access control.
    pub acs: Acs,
}

/// Access control of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acs {
    /// Not to be read without root.
    Unreadable,
    /// The bridge has none.
    Absent,
    /// It lets requests pass.
    Off,
    /// It sends requests, or their answers, up to the root complex.
    Redirects,
}

/// By words that name a hypervisor, the change that its host has to make.
///
/// Source: QEMU's hw/vfio/pci-quirks.c (GPUDirect cliques), NVIDIA's GPU Operator documentation (prerequisites on vSphere).
const HOSTS: [(&str, &str); 10] = [
    ("QEMU", OF_QEMU),
    ("KVM", OF_QEMU),
    ("OpenStack", OF_QEMU),
    ("Cloud Hypervisor", "give each GPU x_nv_gpudirect_clique=0, and switch ACS off above them"),
    ("VMware", "set pciPassthru.allowP2P and pciPassthru.RelaxACSforP2P to TRUE"),
    ("Microsoft", OF_NVLINK),
    ("Xen", OF_NVLINK),
    ("Amazon", OF_NVLINK),
    ("Google", OF_NVLINK),
    ("", "allow peer-to-peer between devices (IOMMU, ACS)"),
];
const OF_QEMU: &str = "give each GPU x-nv-gpudirect-clique=0 (vfio-pci), and switch ACS off above them";
const OF_QEMU_WITH_PATH: &str = "switch ACS off above them, and have both below one PCI host bridge; or else to take x-nv-gpudirect-clique \
                                 away, which is probably set, as the driver offers a path: without it there is none";
const OF_NVLINK: &str = "provide GPUs that NVLink joins: by PCI none is known to work there";

/// An obstacle between two GPUs, and the words for it.
enum Obstacle {
    /// A virtual machine of that name.
    Hypervisor(String),
    Translation(String),
    Redirection(String),
}

/// Where what a machine says of itself is read: the folder of `P2PSIM_ROOT`, which simulates one, or `/`; nowhere if only the GPUs
/// are simulated.
pub fn root(are_simulated: bool, variable: Option<OsString>) -> Option<PathBuf> {
    let simulated = variable.filter(|root| !root.is_empty()).map(PathBuf::from);
    simulated.or_else(|| (!are_simulated).then(|| PathBuf::from("/")))
}

impl Machine {
    /// The UUIDs of all its GPUs of NVIDIA, as the kernel module tells them.
    pub fn uuids(root: &Path) -> Vec<String> {
        let gpus = fs::read_dir(root.join("proc/driver/nvidia/gpus")).into_iter().flatten().flatten();
        let uuid = |text: String| Some(text.lines().find_map(|line| line.strip_prefix("GPU UUID:"))?.trim().to_owned());
        gpus.filter_map(|gpu| uuid(fs::read_to_string(gpu.path().join("information")).ok()?)).collect()
    }

    /// Reads what is below `root`, which is `/` but in tests.
    pub fn read(root: &Path, bus_ids: &[String]) -> Self {
        let text = |path: &str| read_line(&root.join(path));
        let words = text("proc/cmdline").unwrap_or_default();
        let parameters = words.split_whitespace().filter(|word| is_about_iommu(word)).map(str::to_owned).collect();
        let mut iommus: Vec<String> = fs::read_dir(root.join("sys/class/iommu"))
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .collect();
        iommus.sort();
        Self {
            kernel_module: text("sys/module/nvidia/version"),
            parameters,
            iommus,
            hypervisor: hypervisor(root),
            gpus: bus_ids.iter().map(|bus_id| Gpu::read(root, bus_id)).collect(),
            faults: Vec::new(),
            registry: Vec::new(),
        }
    }

    /// Adds the faults in the kernel's log, which may be long, and the driver's registry.
    pub fn with_log(self, root: &Path) -> Self {
        if self.gpus.is_empty() {
            return self;
        }
        let addresses: Vec<&str> = self.gpus.iter().map(|gpu| gpu.bus_id.as_str()).collect();
        let log = kernel_log(root).unwrap_or_default();
        let lines: Vec<&str> = log.iter().map(|record| record.line.as_str()).collect();
        Self { faults: faults(&lines, &addresses), registry: registry(root), ..self }
    }

    /// The known obstacle between two GPUs.
    fn obstacle(&self, pair: [usize; 2]) -> Option<Obstacle> {
        let gpus = || pair.iter().filter_map(|&ordinal| self.gpus.get(ordinal));
        if let Some(name) = &self.hypervisor {
            return Some(Obstacle::Hypervisor(name.clone()));
        }
        let translated = gpus().find_map(|gpu| match &gpu.translation {
            Translation::Translated(mode) => {
                Some(Obstacle::Translation(format!("the IOMMU translates the addresses of {} ({mode})", gpu.bus_id)))
            }
            _ => None,
        });
        let redirecting = self.redirecting(pair);
        translated.or_else(|| {
            let acs = || format!("PCI access control (ACS) of {} redirects requests", redirecting.join(", "));
            (!redirecting.is_empty()).then(|| Obstacle::Redirection(acs()))
        })
    }

    /// The name of the virtual machine, and the change that its host has to make; none on WSL, whose host is Windows.
    pub fn host_remedy(&self) -> Option<(&str, &'static str)> {
        let name = self.hypervisor.as_deref().filter(|name| *name != "WSL")?;
        HOSTS.iter().find(|(word, _)| name.contains(word)).map(|(_, remedy)| (name, *remedy))
    }

    /// The bridges above either of two GPUs that redirect requests.
    pub fn redirecting(&self, pair: [usize; 2]) -> Vec<&str> {
        let gpus = pair.iter().filter_map(|&ordinal| self.gpus.get(ordinal));
        let bridges = gpus.flat_map(|gpu| &gpu.bridges).filter(|bridge| bridge.acs == Acs::Redirects);
        let mut addresses: Vec<&str> = bridges.map(|bridge| bridge.address.as_str()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// Why a direct copy between two GPUs that NVLink does not join may hang; none if this machine shows no sign of it.
    pub fn risk(&self, pair: [usize; 2]) -> Option<String> {
        Some(match self.obstacle(pair)? {
            Obstacle::Hypervisor(name) => format!("this is a virtual machine ({name})"),
            Obstacle::Translation(what) | Obstacle::Redirection(what) => what,
        })
    }

    /// The probable obstacle between two GPUs that lose data, and its remedy.
    pub fn likely_cause(&self, pair: [usize; 2]) -> String {
        let gpus = || pair.iter().filter_map(|&ordinal| self.gpus.get(ordinal));
        let is_of_pair = |fault: &&Fault| gpus().any(|gpu| gpu.bus_id.eq_ignore_ascii_case(&fault.bus_id));
        if let Some(fault) = self.faults.iter().filter(|fault| fault.by == By::Iommu).find(is_of_pair) {
            return fault.of_iommu();
        }
        match self.obstacle(pair) {
            Some(Obstacle::Hypervisor(name)) => {
                let remedy = match self.host_remedy() {
                    // Without the option the driver offers no path, unless it was changed.
                    Some((_, OF_QEMU)) => OF_QEMU_WITH_PATH,
                    Some((_, remedy)) => remedy,
                    None => "enable it",
                };
                return format!(
                    "this is a virtual machine ({name}): the host's IOMMU or ACS may block peer-to-peer between the GPUs. Ask \
                     the host's administrator to {remedy}; nothing inside the virtual machine can change it"
                );
            }
            Some(Obstacle::Translation(what)) => {
                return format!(
                    "{what}. Boot with iommu=pt ({BOOT}), or switch it (VT-d, AMD-Vi) off in the firmware, and test again"
                );
            }
            Some(Obstacle::Redirection(what)) => {
                let bridges = self.redirecting(pair).into_iter();
                let commands: Vec<String> =
                    bridges.map(|address| format!("`setpci -s {address} ECAP_ACS+6.w=0`")).collect();
                return format!(
                    "{what} to the root complex. As root, until the next boot: {}; or switch ACS off in the firmware. Test again. That \
                     takes away the isolation of devices that are given to virtual machines",
                    commands.join(" and ")
                );
            }
            None => {}
        }
        if let Some(Fault { bus_id, line, .. }) = self.faults.iter().filter(|it| it.by == By::Link).find(is_of_pair) {
            return format!(
                "the link of {bus_id} reported an error: `{line}`. Reseat the card, check its riser, and test again"
            );
        }
        if let Some(Fault { bus_id, line, .. }) = self.faults.iter().find(is_of_pair) {
            return format!(
                "the driver reported an error of {bus_id}: `{line}`. NVIDIA's documentation of Xid errors says what that number \
                 means; other programs on this GPU may have caused it"
            );
        }
        if let Some(gpu) = gpus().find(|gpu| gpu.has_display) {
            return format!(
                "a display is attached to {}, and drivers are known that lose data between such GPUs. Attach it to another GPU, \
                 or to none, and test again",
                gpu.bus_id
            );
        }
        let unreadable = gpus().flat_map(|gpu| &gpu.bridges).any(|bridge| bridge.acs == Acs::Unreadable);
        let acs =
            if unreadable { " PCI access control services (ACS) could not be read: run the test as root." } else { "" };
        format!(
            "this machine shows neither a translating IOMMU nor a hypervisor, so the driver, the firmware or the hardware is \
             at fault.{acs} Try another driver version"
        )
    }
}

impl Gpu {
    fn read(root: &Path, bus_id: &str) -> Self {
        let place = root.join("sys/bus/pci/devices").join(bus_id);
        let group = fs::read_link(place.join("iommu_group")).ok();
        let translation = match (&group, read_line(&place.join("iommu_group/type")).as_deref()) {
            (None, _) if !place.exists() => Translation::Unseen,
            (None, _) => Translation::None,
            (Some(_), Some("identity")) => Translation::Identity,
            (Some(_), Some(mode)) => Translation::Translated(mode.to_owned()),
            (Some(_), None) => Translation::Unknown,
        };
        let number = group.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
        let has_display = has_display(&place);
        Self { bus_id: bus_id.to_owned(), group: number, translation, bridges: bridges(&place), has_display }
    }
}

/// Whether any connector of a GPU has a display.
fn has_display(gpu: &Path) -> bool {
    let below = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let connectors = below(gpu.join("drm")).flat_map(below);
    connectors.into_iter().any(|connector| read_line(&connector.join("status")).as_deref() == Some("connected"))
}

/// A record of the kernel's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number: later ones have higher ones.
    pub number: u64,
    /// Its text.
    pub line: String,
}

/// The kernel's log of a machine whose files are below `root`; none if it may not be read.
pub fn kernel_log(root: &Path) -> Option<Vec<Record>> {
    /// A record is never larger (`PRINTKRB_RECORD_MAX`), and is read in whole or not at all.
    const RECORD: usize = 8192;
    /// A log may grow faster than it is read: after so many records the rest is left out.
    const RECORDS: usize = 1 << 20;
    let opened = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(root.join("dev/kmsg"));
    let (mut log, mut text, mut buffer) = (opened.ok()?, Vec::new(), vec![0; RECORD]);
    for _ in 0..RECORDS {
        match log.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => text.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            // A record was overwritten before it was read.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            // There is no more now.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => break,
            // It may be opened, and not be read.
            Err(_) if text.is_empty() => return None,
            Err(_) => break,
        }
    }
    // A record is `6,1234,5678,-;text`; lines that begin with a space are its variables.
    let text = String::from_utf8_lossy(&text);
    let record = |record: &str| {
        let (head, line) = record.split_once(';').unwrap_or(("", record));
        let number = head.split(',').nth(1).and_then(|number| number.parse().ok()).unwrap_or_default();
        Record { number, line: line.to_owned() }
    };
    Some(text.lines().filter(|line| !line.starts_with(' ')).map(record).collect())
}

/// The words of the driver's registry that are about peer access.
///
/// Source: NVIDIA's kernel-open/nvidia/nv-procfs.c (`RegistryDwords: "NAME=VALUE;…"`) and nvrm_registry.h (the names).
fn registry(root: &Path) -> Vec<String> {
    let text = fs::read_to_string(root.join("proc/driver/nvidia/params")).unwrap_or_default();
    let of_all = text.lines().filter(|line| line.starts_with("RegistryDwords"));
    let words =
        of_all.filter_map(|line| line.split_once(": ")).flat_map(|(_, words)| words.trim_matches('"').split(';'));
    let words = words.map(|word| Escaped(word.trim()).to_string());
    words.filter(|word| ["P2P", "Peer", "StaticBar1"].iter().any(|part| word.contains(part))).collect()
}

/// The lines of a kernel's log that tell of stopped accesses, of errors of these devices, and of peer access that was not set up.
fn faults(log: &[&str], bus_ids: &[&str]) -> Vec<Fault> {
    let mut found: Vec<Fault> = Vec::new();
    for line in log {
        let Some(by) = By::of(line) else { continue };
        let lower = line.to_ascii_lowercase();
        let names = |bus_id: &&&str| {
            let whole = bus_id.to_ascii_lowercase();
            let slot = whole.rsplit_once('.').map_or(whole.as_str(), |(slot, _)| slot);
            let without_domain = whole.split_once(':').map_or(whole.as_str(), |(_, rest)| rest);
            [whole.clone(), format!("pci:{slot})"), format!("[{without_domain}]")]
                .iter()
                .any(|name| lower.contains(name))
        };
        let named = bus_ids.iter().find(names).copied();
        let Some(bus_id) = named.or_else(|| (by == By::Peers).then_some("")) else { continue };
        let line = Escaped(line.trim()).to_string();
        match found.iter_mut().find(|fault| fault.bus_id == bus_id && fault.by == by) {
            // The first tells why the others came.
            Some(known) if by == By::Peers => known.count += 1,
            Some(known) => (known.line, known.count) = (line, known.count + 1),
            None => found.push(Fault { bus_id: bus_id.to_owned(), line, count: 1, by }),
        }
    }
    found
}

/// The bridges above a device: those on its path that are PCI devices themselves.
fn bridges(device: &Path) -> Vec<Bridge> {
    let Ok(path) = fs::canonicalize(device) else { return Vec::new() };
    let mut above: Vec<PathBuf> =
        path.ancestors().skip(1).filter(|place| is_pci_address(place)).map(PathBuf::from).collect();
    above.reverse();
    let bridge = |place: PathBuf| {
        let acs = fs::read(place.join("config")).map_or(Acs::Unreadable, |config| access_control(&config));
        Bridge { address: name(&place), acs }
    };
    above.into_iter().map(bridge).collect()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether a path ends like `0000:17:00.0`.
fn is_pci_address(path: &Path) -> bool {
    let name = name(path);
    let mut parts = name.split([':', '.']);
    let mut is_hex = |lengths: &[usize]| {
        parts
            .next()
            .is_some_and(|part| lengths.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    is_hex(&[4, 5, 8]) && is_hex(&[2]) && is_hex(&[2]) && is_hex(&[1]) && parts.next().is_none()
}

/// Reads the ACS control register out of a configuration space. Without root only its first 64 bytes are there.
///
/// Source: PCI Express Base Specification, extended capabilities (header of 4 bytes from 0x100 on: identifier in bits 0
/// to 15, offset of the next one in bits 20 to 31) and ACS (identifier 0x0d, control register at 6).
fn access_control(config: &[u8]) -> Acs {
    const EXTENDED: usize = 0x100;
    const ACS: u16 = 0x0d;
    /// P2P request redirect, P2P completion redirect, upstream forwarding.
    const REDIRECTS: u16 = 1 << 2 | 1 << 3;
    let word = |at: usize| Some(u16::from_le_bytes([*config.get(at)?, *config.get(at + 1)?]));
    let mut at = EXTENDED;
    // More capabilities than fit can only be a loop.
    for _ in 0..1024 {
        let (Some(identifier), Some(next)) = (word(at), word(at + 2)) else { return Acs::Unreadable };
        if identifier == ACS {
            return match word(at + 6) {
                None => Acs::Unreadable,
                Some(control) if control & REDIRECTS != 0 => Acs::Redirects,
                Some(_) => Acs::Off,
            };
        }
        at = usize::from(next >> 4);
        if at < EXTENDED {
            break;
        }
    }
    Acs::Absent
}

/// The virtual machine's name; none if the processor says that it is not in one.
fn hypervisor(root: &Path) -> Option<String> {
    let processors = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let flags = processors.lines().find(|line| line.starts_with("flags"))?;
    if !flags.split_whitespace().any(|flag| flag == "hypervisor") {
        return None;
    }
    let names = ["sys/class/dmi/id/sys_vendor", "sys/class/dmi/id/product_name", "sys/hypervisor/type"];
    let names: Vec<String> = names.iter().filter_map(|path| read_line(&root.join(path))).collect();
    if read_line(&root.join("proc/version")).is_some_and(|version| version.to_ascii_lowercase().contains("microsoft")) {
        return Some("WSL".to_owned());
    }
    Some(if names.is_empty() { "of unknown make".to_owned() } else { names.join(", ") })
}

/// Whether a parameter of the kernel is about the IOMMU or ACS.
fn is_about_iommu(word: &str) -> bool {
    word.contains("iommu") || word.contains("acs")
}

/// The namespace of this process's number: `pid:[4026531836]`.
pub fn process_namespace() -> Option<String> {
    fs::read_link("/proc/self/ns/pid").ok()?.into_os_string().into_string().ok()
}

/// Whether processes can be seen, by their own numbers: the /proc of another pid namespace has others.
pub fn sees_processes() -> bool {
    number_in_proc() == Some(std::process::id())
}

/// The number by which /proc has this process.
pub fn number_in_proc() -> Option<u32> {
    fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()
}

/// The least memory that any of this process's control groups may have, of a machine whose files are below `root`.
pub fn memory_limit(root: &Path) -> Option<u64> {
    let limit = |line: &str| {
        let (controllers, path) = line.split_once(':')?.1.split_once(":/")?;
        let (hierarchy, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|it| it == "memory") => ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return None,
        };
        let read = |folder: &Path| read_line(&root.join(hierarchy).join(folder).join(file))?.parse::<u64>().ok();
        Path::new(path).ancestors().filter_map(read).min()
    };
    fs::read_to_string(root.join("proc/self/cgroup")).ok()?.lines().filter_map(limit).min()
}

/// When a process (by its number, or `self`) was started, in clock ticks after boot: it stays what it is if the process becomes another program.
pub fn process_start(process: &str) -> Option<String> {
    // The name of the program, in brackets, may contain anything.
    let stat = fs::read(format!("/proc/{process}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    stat.rsplit(')').next()?.split(' ').nth(20).map(str::to_owned)
}

/// This machine's name; `host` if that cannot be read.
pub fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Some(name.trim()).filter(|name| !name.is_empty()).unwrap_or("host").to_owned()
}

/// The time, in nanoseconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The first line of a file, if there is anything in it; nothing that a terminal obeys.
fn read_line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| Escaped(line.trim()).to_string()).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    #[test]
    fn memory_limit_is_the_least_of_groups_above_as_far_as_they_are_seen() {
        let tree = Tree::new();
        let limit = || memory_limit(tree.0.path());
        assert_eq!(limit(), None);
        tree.write("proc/self/cgroup", b"5:cpu,memory:/job/step\n1:name=systemd:/other\n0::/job\n");
        assert_eq!(limit(), None);
        tree.write("sys/fs/cgroup/memory/memory.limit_in_bytes", b"9223372036854771712\n");
        assert_eq!(limit(), Some(9_223_372_036_854_771_712));
        tree.write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", b"4096\n");
        tree.write("sys/fs/cgroup/memory/other/memory.limit_in_bytes", b"1\n");
        tree.write("sys/fs/cgroup/job/memory.max", b"max\n");
        assert_eq!(limit(), Some(4096));
        tree.write("sys/fs/cgroup/memory.max", b"2048\n");
        assert_eq!(limit(), Some(2048));
    }

    /// A tree like that of a machine with one GPU below a root port and a switch.
    struct Tree(TempDir);

    impl Tree {
        fn new() -> Tree {
            let tree = Tree(tempfile::tempdir().unwrap());
            tree.write("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/config", &[0; 64]);
            tree.write("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/config", &[0; 64]);
            tree.write("sys/devices/pci0000:00/0000:00:01.0/config", &configuration(0));
            fs::create_dir_all(tree.0.path().join("sys/bus/pci/devices")).unwrap();
            symlink(
                "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0",
                tree.0.path().join("sys/bus/pci/devices/0000:02:00.0"),
            )
            .unwrap();
            tree
        }

        fn write(&self, path: &str, bytes: &[u8]) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }

        fn group(&self, kind: &str) {
            self.write("sys/kernel/iommu_groups/17/type", kind.as_bytes());
            symlink(
                self.0.path().join("sys/kernel/iommu_groups/17"),
                self.0.path().join("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/iommu_group"),
            )
            .unwrap();
        }

        fn read(&self) -> Machine {
            Machine::read(self.0.path(), &["0000:02:00.0".to_owned()])
        }
    }

    /// A configuration space whose second extended capability is ACS with that control register.
    fn configuration(control: u16) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[0x100..0x104].copy_from_slice(&(0x1480_0001_u32).to_le_bytes());
        bytes[0x148..0x14c].copy_from_slice(&(0x0001_000d_u32).to_le_bytes());
        bytes[0x14e..0x150].copy_from_slice(&control.to_le_bytes());
        bytes
    }

    #[test]
    fn access_control_reads_the_register_where_it_is() {
        for (control, expected) in [(0, Acs::Off), (0x1, Acs::Off), (0x4, Acs::Redirects), (0x1d, Acs::Redirects)] {
            assert_eq!(access_control(&configuration(control)), expected, "{control:#x}");
        }
        assert_eq!(access_control(&[0; 64]), Acs::Unreadable);
        assert_eq!(access_control(&[0; 4096]), Acs::Absent);
        let mut loops = vec![0; 4096];
        loops[0x100..0x104].copy_from_slice(&(0x1000_0001_u32).to_le_bytes());
        assert_eq!(access_control(&loops), Acs::Absent);
    }

    #[test]
    fn read_finds_parameters_groups_and_bridges() {
        let tree = Tree::new();
        tree.write("proc/cmdline", b"quiet intel_iommu=on pcie_acs_override=downstream root=/dev/sda\n");
        tree.write("proc/cpuinfo", b"processor: 0\nflags\t\t: fpu vme sse\n");
        tree.write("sys/class/iommu/dmar0", b"");
        tree.write("sys/module/nvidia/version", b"580.159.04\n");
        tree.group("DMA-FQ\n");
        let machine = tree.read();
        let gpu = Gpu {
            bus_id: "0000:02:00.0".to_owned(),
            group: Some("17".to_owned()),
            translation: Translation::Translated("DMA-FQ".to_owned()),
            bridges: vec![
                Bridge { address: "0000:00:01.0".to_owned(), acs: Acs::Off },
                Bridge { address: "0000:01:00.0".to_owned(), acs: Acs::Unreadable },
            ],
            has_display: false,
        };
        let expected = Machine {
            kernel_module: Some("580.159.04".to_owned()),
            parameters: vec!["intel_iommu=on".to_owned(), "pcie_acs_override=downstream".to_owned()],
            iommus: vec!["dmar0".to_owned()],
            hypervisor: None,
            gpus: vec![gpu],
            faults: Vec::new(),
            registry: Vec::new(),
        };
        assert_eq!(machine, expected);
        assert!(machine.likely_cause([0, 0]).contains("iommu=pt"), "{}", machine.likely_cause([0, 0]));
    }

    #[test]
    fn likely_cause_virtual_machine_comes_first_and_acs_is_named() {
        let tree = Tree::new();
        tree.write("sys/devices/pci0000:00/0000:00:01.0/config", &configuration(0x1d));
        tree.group("identity\n");
        let machine = tree.read();
        assert_eq!(machine.gpus[0].translation, Translation::Identity);
        assert!(machine.likely_cause([0, 0]).contains("ACS) of 0000:00:01.0"), "{}", machine.likely_cause([0, 0]));
        tree.write("proc/cpuinfo", b"flags : fpu hypervisor sse\n");
        tree.write("sys/class/dmi/id/sys_vendor", b"QE\x1bMU\n");
        assert!(tree.read().likely_cause([0, 0]).contains("virtual machine (QE\\x1bMU)"));
    }

    #[test]
    fn root_is_the_simulated_one_or_that_of_real_gpus() {
        let root = |are_simulated, variable: &str| root(are_simulated, Some(OsString::from(variable)));
        assert_eq!((root(false, ""), root(true, "")), (Some(PathBuf::from("/")), None));
        assert_eq!((root(false, "/t"), root(true, "/t")), (Some("/t".into()), Some("/t".into())));
    }

    #[test]
    fn read_nothing_there_says_nothing() {
        let machine = Machine::read(Path::new("/nonexistent"), &["0000:01:00.0".to_owned()]);
        let gpus = vec![Gpu { bus_id: "0000:01:00.0".to_owned(), ..Gpu::default() }];
        assert_eq!(machine, Machine { gpus, ..Machine::default() });
        assert!(machine.likely_cause([0, 1]).contains("driver version"));
    }

    #[test]
    fn is_pci_address_of_devices_only() {
        for (path, expected) in [
            ("/sys/0000:17:00.0", true),
            ("/sys/10000:e0:06.0", true),
            ("/sys/pci0000:00", false),
            ("/sys/0000:17:00", false),
        ] {
            assert_eq!(is_pci_address(Path::new(path)), expected, "{path}");
        }
    }
}
