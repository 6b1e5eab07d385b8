//! The JSON as plain data: docs/schema/doctor.schema.json is made of the comments here.
//!
//! `p2pshim fleet` reads what earlier commands of this version wrote: a new field is an option, or has a default.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The output of `p2pshim doctor --json`: one JSON object. Fields are never renamed within a version; new ones may
/// come.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(title = "p2pshim doctor --json"))]
pub(crate) struct Report {
    /// The version of this format. It changes only if fields change their meaning.
    #[cfg_attr(test, schemars(extend("const" = 1)))]
    pub(crate) version: u32,
    /// The host that was examined.
    pub(crate) host: String,
    /// When. Nanoseconds since 1970, UTC.
    pub(crate) time: u64,
    /// Versions of what was examined, and by what.
    pub(crate) versions: Versions,
    /// The exit status: 0 all pairs are verified or have no path, 1 a pair is unsafe, 3
    /// a pair could not be verified and none is unsafe.
    #[cfg_attr(test, schemars(extend("enum" = [0, 1, 3])))]
    pub(crate) status: u8,
    /// The verdict on the machine.
    #[cfg_attr(test, schemars(extend("enum" = ["safe", "unsafe", "not-tested", "no-peer-access"])))]
    pub(crate) verdict: String,
    /// The verdict in a sentence or two.
    pub(crate) summary: Option<String>,
    /// Likely causes, and what to do.
    pub(crate) advice: Vec<String>,
    /// The part of the advice that is about speeds below the expectation and about the NVLink fabric. It never
    /// changes the verdict.
    pub(crate) hints: Vec<String>,
    /// Why nothing was tested.
    pub(crate) error: Option<String>,
    /// Whether the GPUs were asked to be simulated (`--sim`): nothing here is a measurement then.
    pub(crate) simulated: bool,
    /// Whether only copies and memory shared by IPC were tested (`--quick`).
    pub(crate) quick: bool,
    /// CUDA, as the driver has it, as a number: 13000 is 13.0.
    pub(crate) cuda_version: Option<i32>,
    /// CUDA runtimes on the library path.
    pub(crate) runtimes: Vec<Runtime>,
    /// GPUs, as CUDA lists them.
    pub(crate) devices: Vec<Device>,
    /// Pairs that were to be tested.
    pub(crate) pairs: Vec<Pair>,
    /// The machine's account of itself.
    pub(crate) machine: Machine,
    /// NCCL's own diagnostics (`--nccl`); null if they were not asked for.
    pub(crate) nccl: Option<Nccl>,
    /// How fast copies through the host are, by whoever stages them; empty if that was not measured.
    pub(crate) staging: Vec<Staging>,
    /// The folder in which verdicts are kept until the next boot.
    pub(crate) kept_in: Option<String>,
}

/// NCCL's own diagnostics, which no verdict here rests on.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Nccl {
    /// The library; null if there is none.
    pub(crate) library: Option<String>,
    /// Its version, such as `2.32.3`.
    pub(crate) version: Option<String>,
    /// The lines of its report, without `NCCL DIAG`.
    pub(crate) report: Vec<String>,
    /// Why there is no report.
    pub(crate) error: Option<String>,
}

/// Copies through the host of some size, by whoever stages them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Staging {
    /// Whether one link was busy, or all at once, where each GPU sends to the next.
    #[cfg_attr(test, schemars(extend("enum" = ["one", "all"])))]
    pub(crate) links: String,
    /// The sizes in MiB, such as `16-64`.
    pub(crate) mib: String,
    /// GB/s a link that the driver makes.
    pub(crate) driver_gb_per_s: f64,
    /// GB/s a link that p2pshim makes.
    pub(crate) p2pshim_gb_per_s: f64,
}

/// Versions of what was examined, and by what.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Versions {
    /// This command.
    pub(crate) p2pshim: String,
    /// CUDA, as the driver has it, such as `13.0`.
    pub(crate) driver: Option<String>,
    /// NVIDIA's kernel module, such as `580.95.05`; null for simulated GPUs.
    pub(crate) kernel_module: Option<String>,
}

/// A runtime.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Runtime {
    /// Its version as a number: 12090 is 12.9.
    pub(crate) version: i32,
    /// The name of its library.
    pub(crate) library: String,
}

/// A GPU.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Device {
    /// CUDA's number of it, from 0.
    pub(crate) ordinal: usize,
    /// Its model.
    pub(crate) name: String,
    /// Its PCI bus id.
    pub(crate) bus_id: String,
    /// Its UUID.
    pub(crate) uuid: String,
    /// How much of its memory other devices can address at a time, in bytes.
    pub(crate) bar1_bytes: Option<u64>,
    /// Whether it is divided (MIG).
    pub(crate) mig: Option<bool>,
    /// NVLinks that are up.
    pub(crate) nvlinks_up: Option<u32>,
    /// Their version, such as `4.0`.
    pub(crate) nvlink_version: Option<String>,
    /// The rate of one of them each way, in MB/s, by NVML.
    pub(crate) nvlink_mb_per_s: Option<u32>,
    /// Links to the memory of a processor (NVLink C2C).
    pub(crate) c2c_links: Option<u32>,
    /// How the GPU is virtualized, by NVML.
    #[cfg_attr(test, schemars(extend("enum" = ["none", "passthrough", "vgpu", "vgpu-host", "vsga-host", null])))]
    pub(crate) virtualization: Option<String>,
    /// Its registration with the NVLink fabric, by NVML.
    pub(crate) fabric: Option<Fabric>,
}

/// A GPU's registration with the NVLink fabric.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Fabric {
    /// How far it is; `none` if the GPU has no fabric.
    #[cfg_attr(test, schemars(extend("enum" = ["none", "not-started", "in-progress", "completed", "unknown"])))]
    pub(crate) state: String,
    /// How it ended: a status of NVML; 0 is success.
    pub(crate) status: u32,
    /// The clique: NVLink joins the GPUs of one clique only.
    pub(crate) clique: u32,
    /// The fabric's UUID in hexadecimal digits, if it spans machines.
    pub(crate) cluster_uuid: Option<String>,
    /// NVML's mask of the fabric's health.
    pub(crate) health_mask: u32,
    /// Its trouble, in words.
    pub(crate) trouble: Option<String>,
}

/// NVML's statuses of a pair; null where it says nothing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Statuses {
    /// Reads.
    pub(crate) reads: Option<String>,
    /// Writes.
    pub(crate) writes: Option<String>,
    /// Atomic operations.
    pub(crate) atomics: Option<String>,
    /// By PCI.
    pub(crate) pci: Option<String>,
}

/// A pair: what came of the tests, and how fast it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Pair {
    /// The ordinal of the GPU that accesses.
    pub(crate) from: usize,
    /// The ordinal of the GPU whose memory is accessed.
    pub(crate) to: usize,
    /// How each part came out that was tested, by the words of docs/VERDICT.md. A part that it did not come to is not here. A pair is verified
    /// without the parts that its machine cannot make.
    pub(crate) parts: BTreeMap<String, Part>,
    /// Rate of direct copies of 64 MiB, in GB/s (10^9 bytes per second).
    pub(crate) gb_per_s: Option<f64>,
    /// The rate that the pair should have by its links, in GB/s; null if they cannot be seen.
    pub(crate) expected_gb_per_s: Option<f64>,
    /// The links.
    pub(crate) expected_by: Option<String>,
    /// Rate of direct copies while all verified pairs copy, in GB/s.
    pub(crate) all_pairs_at_once_gb_per_s: Option<f64>,
    /// Rate of copies through the host, in GB/s.
    pub(crate) staged_gb_per_s: Option<f64>,
    /// Rate of copies through the host, staged by p2pshim in place of the driver, in GB/s.
    pub(crate) staged_by_p2pshim_gb_per_s: Option<f64>,
    /// Time of a direct copy of 4 bytes, in microseconds.
    pub(crate) latency_us: Option<f64>,
    /// Time of a copy of 4 bytes through the host, in microseconds.
    pub(crate) staged_latency_us: Option<f64>,
    /// Whether the driver says that one can access the other.
    pub(crate) has_path: bool,
    /// The first gate that keeps the GPUs apart, as docs/dev/MACHINES.md names it; null if the pair has access, or nothing
    /// tells which it is.
    pub(crate) gate: Option<String>,
    /// The words about that gate, and the remedy.
    pub(crate) why_no_access: Option<String>,
    /// NVML's statuses of the pair, such as `OK` or `chipset not supported`.
    pub(crate) nvml: Statuses,
    /// Their joint: `NVLink`, `switch`, `host` or `CPUs`; null if it cannot be seen.
    pub(crate) link: Option<String>,
    /// The driver's attributes of the pair.
    pub(crate) attributes: Option<Attributes>,
    /// The verdict on the pair. `proven` means verified.
    #[cfg_attr(test, schemars(extend("enum" = ["verified", "no-path", "failed", "not-tested"])))]
    pub(crate) verdict: String,
    /// The failure, or why it was not tested.
    pub(crate) detail: Option<String>,
    /// A process that was killed but does not end: it is stuck in the driver.
    pub(crate) stuck_process: Option<u32>,
}

/// How a part came out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Part {
    /// Its outcome.
    #[cfg_attr(test, schemars(extend("enum" = ["right", "wrong", "hung", "untested"])))]
    pub(crate) result: String,
    /// Words about the outcome.
    pub(crate) detail: Option<String>,
}

/// The driver's attributes of the pair.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Attributes {
    /// CUDA's performance rank of the path: lower is better.
    pub(crate) performance_rank: i32,
    /// Whether atomics work over the path.
    pub(crate) native_atomics: bool,
    /// Whether CUDA arrays can be accessed over it.
    pub(crate) array_access: bool,
}

/// The machine's account of itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Machine {
    /// The version of NVIDIA's kernel module, whether or not GPUs are simulated.
    pub(crate) kernel_module: Option<String>,
    /// The kernel's parameters about IOMMU and access control.
    pub(crate) kernel_parameters: Vec<String>,
    /// IOMMUs in use.
    pub(crate) iommus: Vec<String>,
    /// The hypervisor, if this is a virtual machine.
    pub(crate) hypervisor: Option<String>,
    /// The container that this runs in, if that shows.
    pub(crate) container: Option<String>,
    /// Whether confidential computing is on, by NVML; null where NVML does not say.
    pub(crate) confidential_computing: Option<bool>,
    /// Services of the NVLink fabric; null if there is none.
    pub(crate) fabric_services: Option<Services>,
    /// The kernel's log about these GPUs, if it may be read.
    pub(crate) faults: Vec<Fault>,
    /// Where the GPUs are, in the order of `devices`; empty for simulated ones without a simulated machine.
    pub(crate) gpus: Vec<Gpu>,
}

/// Services of the NVLink fabric, as far as they are seen from here.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Services {
    /// Whether nvidia-fabricmanager runs.
    pub(crate) fabric_manager: bool,
    /// Whether nvidia-imex runs.
    pub(crate) imex: bool,
    /// The channels of IMEX that are in `/dev`.
    pub(crate) imex_channels: Vec<String>,
}

/// PCIe errors of a device since it was found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Errors {
    /// Errors that the hardware corrected.
    pub(crate) corrected: u64,
    /// Errors that were not corrected and not fatal.
    pub(crate) not_fatal: u64,
    /// Fatal errors.
    pub(crate) fatal: u64,
}

/// Lines of one kind about one GPU.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Fault {
    /// Its PCI bus id.
    pub(crate) bus_id: String,
    /// The last of them.
    pub(crate) line: String,
    /// How many there are.
    pub(crate) count: usize,
    /// `iommu`: it stopped an access; `driver`: NVIDIA's driver reports an error (Xid); `link`: a PCI port reports an
    /// error of a link (AER); `peers`: the driver could not set up peer access, of whichever GPUs.
    #[cfg_attr(test, schemars(extend("enum" = ["iommu", "driver", "link", "peers"])))]
    pub(crate) by: String,
}

/// Where a GPU is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Gpu {
    /// Its PCI bus id.
    pub(crate) bus_id: String,
    /// Its IOMMU group.
    pub(crate) iommu_group: Option<String>,
    /// How the IOMMU treats its addresses: `identity`, or the mode of translation.
    pub(crate) iommu_type: Option<String>,
    /// PCI bridges above it.
    pub(crate) bridges: Vec<Bridge>,
    /// Its PCI link as it ran right after copies, or when it was looked at.
    pub(crate) pci_link: Option<String>,
    /// The most that both ends of that link can do.
    pub(crate) pci_link_most: Option<String>,
    /// Its PCIe errors.
    pub(crate) pci_errors: Errors,
    /// The memory node that it is near.
    pub(crate) numa_node: Option<u32>,
    /// Whether a display is attached to it.
    pub(crate) display: bool,
}

/// A bridge.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Bridge {
    /// Its PCI address.
    pub(crate) address: String,
    /// Access control: requests between devices pass (`off`), are redirected, or there is none; null if it cannot
    /// be read.
    #[cfg_attr(test, schemars(extend("enum" = ["none", "off", "redirects", null])))]
    pub(crate) acs: Option<String>,
    /// Its PCI link, likewise.
    pub(crate) pci_link: Option<String>,
    /// The most that it can do itself.
    pub(crate) pci_link_most: Option<String>,
    /// Its PCIe errors.
    pub(crate) pci_errors: Errors,
}
