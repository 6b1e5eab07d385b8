//! The JSON as plain data: docs/schema/doctor.schema.json is made of the comments here.

use serde::Serialize;

/// The output of `p2pshim doctor --json`: one JSON object. Fields are never renamed within a version; new ones may
/// come.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(title = "p2pshim doctor --json"))]
pub(super) struct Report<'a> {
    /// The version of this format. It changes only if fields change their meaning.
    #[cfg_attr(test, schemars(extend("const" = 1)))]
    pub(super) version: u32,
    /// The host that was examined.
    pub(super) host: String,
    /// When. Nanoseconds since 1970, UTC.
    pub(super) time: u64,
    /// Versions of what was examined, and by what.
    pub(super) versions: Versions<'a>,
    /// The exit status: 0 all pairs are verified or have no path, 1 a pair is unsafe, 3
    /// a pair could not be verified and none is unsafe.
    #[cfg_attr(test, schemars(extend("enum" = [0, 1, 3])))]
    pub(super) status: u8,
    /// The verdict on the machine.
    #[cfg_attr(test, schemars(extend("enum" = ["safe", "unsafe", "not-tested", "no-peer-access"])))]
    pub(super) verdict: &'static str,
    /// The verdict in a sentence or two.
    pub(super) summary: Option<String>,
    /// Likely causes, and what to do.
    pub(super) advice: Vec<String>,
    /// The part of the advice that is about speeds below the expectation and about the NVLink fabric. It never
    /// changes the verdict.
    pub(super) hints: Vec<String>,
    /// Why nothing was tested.
    pub(super) error: Option<&'a str>,
    /// Whether the GPUs were asked to be simulated (`--sim`): nothing here is a measurement then.
    pub(super) simulated: bool,
    /// Whether only copies and memory shared by IPC were tested (`--quick`).
    pub(super) quick: bool,
    /// CUDA, as the driver has it, as a number: 13000 is 13.0.
    pub(super) cuda_version: Option<i32>,
    /// CUDA runtimes on the library path.
    pub(super) runtimes: Vec<Runtime<'a>>,
    /// GPUs, as CUDA lists them.
    pub(super) devices: Vec<Device<'a>>,
    /// Pairs that were to be tested.
    pub(super) pairs: Vec<Pair<'a>>,
    /// The machine's account of itself.
    pub(super) machine: Machine<'a>,
    /// NCCL's own diagnostics (`--nccl`); null if they were not asked for.
    pub(super) nccl: Option<Nccl<'a>>,
    /// How fast copies through the host are, by whoever stages them; empty if that was not measured.
    pub(super) staging: Vec<Staging>,
    /// The folder in which verdicts are kept until the next boot.
    pub(super) kept_in: Option<String>,
}

/// NCCL's own diagnostics, which no verdict here rests on.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Nccl<'a> {
    /// The library; null if there is none.
    pub(super) library: Option<&'a str>,
    /// Its version, such as `2.32.3`.
    pub(super) version: Option<&'a str>,
    /// The lines of its report, without `NCCL DIAG`.
    pub(super) report: &'a [String],
    /// Why there is no report.
    pub(super) error: Option<&'a str>,
}

/// Copies through the host of some size, by whoever stages them.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Staging {
    /// Whether one link was busy, or all at once, where each GPU sends to the next.
    #[cfg_attr(test, schemars(extend("enum" = ["one", "all"])))]
    pub(super) links: &'static str,
    /// The sizes in MiB, such as `16-64`.
    pub(super) mib: &'static str,
    /// GB/s a link that the driver makes.
    pub(super) driver_gb_per_s: f64,
    /// GB/s a link that p2pshim makes.
    pub(super) p2pshim_gb_per_s: f64,
}

/// Versions of what was examined, and by what.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Versions<'a> {
    /// This command.
    pub(super) p2pshim: &'static str,
    /// CUDA, as the driver has it, such as `13.0`.
    pub(super) driver: Option<String>,
    /// NVIDIA's kernel module, such as `580.95.05`; null for simulated GPUs.
    pub(super) kernel_module: Option<&'a str>,
}

/// A runtime.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Runtime<'a> {
    /// Its version as a number: 12090 is 12.9.
    pub(super) version: i32,
    /// The name of its library.
    pub(super) library: &'a str,
}

/// A GPU.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Device<'a> {
    /// CUDA's number of it, from 0.
    pub(super) ordinal: usize,
    /// Its model.
    pub(super) name: &'a str,
    /// Its PCI bus id.
    pub(super) bus_id: &'a str,
    /// Its UUID.
    pub(super) uuid: &'a str,
    /// How much of its memory other devices can address at a time, in bytes.
    pub(super) bar1_bytes: Option<u64>,
    /// Whether it is divided (MIG).
    pub(super) mig: Option<bool>,
    /// NVLinks that are up.
    pub(super) nvlinks_up: Option<u32>,
    /// Their version, such as `4.0`.
    pub(super) nvlink_version: Option<&'static str>,
    /// The rate of one of them each way, in MB/s, by NVML.
    pub(super) nvlink_mb_per_s: Option<u32>,
    /// Links to the memory of a processor (NVLink C2C).
    pub(super) c2c_links: Option<u32>,
    /// How the GPU is virtualized, by NVML.
    #[cfg_attr(test, schemars(extend("enum" = ["none", "passthrough", "vgpu", "vgpu-host", "vsga-host", null])))]
    pub(super) virtualization: Option<&'static str>,
    /// Its registration with the NVLink fabric, by NVML.
    pub(super) fabric: Option<Fabric>,
}

/// A GPU's registration with the NVLink fabric.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Fabric {
    /// How far it is; `none` if the GPU has no fabric.
    #[cfg_attr(test, schemars(extend("enum" = ["none", "not-started", "in-progress", "completed", "unknown"])))]
    pub(super) state: &'static str,
    /// How it ended: a status of NVML; 0 is success.
    pub(super) status: u32,
    /// The clique: NVLink joins the GPUs of one clique only.
    pub(super) clique: u32,
    /// The fabric's UUID in hexadecimal digits, if it spans machines.
    pub(super) cluster_uuid: Option<String>,
    /// NVML's mask of the fabric's health.
    pub(super) health_mask: u32,
    /// Its trouble, in words.
    pub(super) trouble: Option<String>,
}

/// NVML's statuses of a pair; null where it says nothing.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Statuses {
    /// Reads.
    pub(super) reads: Option<&'static str>,
    /// Writes.
    pub(super) writes: Option<&'static str>,
    /// Atomic operations.
    pub(super) atomics: Option<&'static str>,
    /// By PCI.
    pub(super) pci: Option<&'static str>,
}

/// The outcome of each test of a pair.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Tests<'a> {
    /// Copies by the copy engines of both GPUs; null if it did not come to that.
    pub(super) copy_engine: Option<Test<'a>>,
    /// Copies, loads and stores in memory of a pool, and in memory that the program mapped, to which access was granted;
    /// null if it did not come to that. A pair is verified without it where the driver has no such memory.
    pub(super) granted_memory: Option<Test<'a>>,
    /// Copies in a graph that is replayed 1,000 times (`--full`); null if it did not come to that. A pair is verified
    /// without it where the driver has no graphs.
    pub(super) graph_copies: Option<Test<'a>>,
    /// Loads of a kernel; null if it did not come to that.
    pub(super) kernel_loads: Option<Test<'a>>,
    /// Stores of a kernel; null if it did not come to that.
    pub(super) kernel_stores: Option<Test<'a>>,
    /// Atomic additions of a kernel; null if the link has no native atomics, or it did not come to that.
    pub(super) kernel_atomics: Option<Test<'a>>,
    /// A kernel stores data and then a flag to memory of the peer, where one that runs at the same time waits for
    /// it; null if it did not come to that. A pair is verified without it where one kernel waited for the other in
    /// vain, and nothing is lost.
    pub(super) kernel_flags: Option<Test<'a>>,
    /// A kernel reads a flag and then data from memory of the peer, where one that runs there stores them (`--full`);
    /// null if it did not come to that. A pair is verified without it, as without `kernel_flags`.
    pub(super) kernel_pull: Option<Test<'a>>,
    /// Kernels exchange lines that have a flag in each 8 bytes, as NCCL's protocol LL has it (`--full`); null if it
    /// did not come to that. A pair is verified without it, as without `kernel_flags`.
    pub(super) kernel_ll: Option<Test<'a>>,
    /// Kernels exchange lines of 128 bytes with one flag, as NCCL's protocol LL128 has it (`--full`); null if NVLink
    /// does not join the pair, where NCCL does not use it, or it did not come to that. A pair is verified without it,
    /// as without `kernel_flags`.
    pub(super) kernel_ll128: Option<Test<'a>>,
    /// Copies to and from memory that another process allocated, opened by an IPC handle; null if it did not come
    /// to that. A pair is verified without it where processes cannot share memory.
    pub(super) between_processes_ipc: Option<Test<'a>>,
    /// Copies to and from memory that another process allocated, mapped by a file descriptor (Virtual Memory
    /// Management); null if it did not come to that. A pair is verified without it where processes cannot share
    /// memory.
    pub(super) between_processes_vmm: Option<Test<'a>>,
    /// Kernels of two processes exchange flags and data in memory that one allocated and the other opened by an IPC
    /// handle, while copies use what is beside it (`--full`); null if it did not come to that. A pair is verified
    /// without it where processes cannot share memory.
    pub(super) between_processes_kernels: Option<Test<'a>>,
    /// Copies, loads and stores at the ends of each GiB while memory is filled (`--full`); null if it did not come
    /// to that. A pair is verified without it where another process uses the memory.
    pub(super) all_memory: Option<Test<'a>>,
    /// Copies of this pair while all verified pairs copy; null if it did not come to that, or there is no other
    /// such pair. A pair is verified without it where that cannot be tested.
    pub(super) all_pairs_at_once: Option<Test<'a>>,
    /// Stores of a kernel to this pair's second GPU while kernels of all verified pairs store; null as
    /// `all_pairs_at_once`.
    pub(super) all_to_all: Option<Test<'a>>,
    /// All-reduces of all verified pairs' GPUs, by kernels that load from each other GPU and around a ring (`--full`);
    /// null as `all_pairs_at_once`.
    pub(super) all_reduce: Option<Test<'a>>,
}

/// A pair: what came of the tests, and how fast it is.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Pair<'a> {
    /// The ordinal of the GPU that accesses.
    pub(super) from: usize,
    /// The ordinal of the GPU whose memory is accessed.
    pub(super) to: usize,
    #[serde(flatten)]
    pub(super) tests: Tests<'a>,
    /// Rate of direct copies of 64 MiB, in GB/s (10^9 bytes per second).
    pub(super) gb_per_s: Option<f64>,
    /// The rate that the pair should have by its links, in GB/s; null if they cannot be seen.
    pub(super) expected_gb_per_s: Option<f64>,
    /// The links.
    pub(super) expected_by: Option<String>,
    /// Rate of direct copies while all verified pairs copy, in GB/s.
    pub(super) all_pairs_at_once_gb_per_s: Option<f64>,
    /// Rate of copies through the host, in GB/s.
    pub(super) staged_gb_per_s: Option<f64>,
    /// Rate of copies through the host, staged by p2pshim in place of the driver, in GB/s.
    pub(super) staged_by_p2pshim_gb_per_s: Option<f64>,
    /// Time of a direct copy of 4 bytes, in microseconds.
    pub(super) latency_us: Option<f64>,
    /// Time of a copy of 4 bytes through the host, in microseconds.
    pub(super) staged_latency_us: Option<f64>,
    /// Whether the driver says that one can access the other.
    pub(super) has_path: bool,
    /// The first gate that keeps the GPUs apart, as docs/MACHINES.md names it; null if the pair has access, or nothing
    /// tells which it is.
    pub(super) gate: Option<&'static str>,
    /// The words about that gate, and the remedy.
    pub(super) why_no_access: Option<String>,
    /// NVML's statuses of the pair, such as `OK` or `chipset not supported`.
    pub(super) nvml: Statuses,
    /// Their joint: `NVLink`, `switch`, `host` or `CPUs`; null if it cannot be seen.
    pub(super) link: Option<&'static str>,
    /// The driver's attributes of the pair.
    pub(super) attributes: Option<Attributes>,
    /// The verdict on the pair. `proven` means verified.
    #[cfg_attr(test, schemars(extend("enum" = ["verified", "no-path", "failed", "not-tested"])))]
    pub(super) verdict: &'static str,
    /// The failure, or why it was not tested.
    pub(super) detail: Option<&'a str>,
    /// A process that was killed but does not end: it is stuck in the driver.
    pub(super) stuck_process: Option<u32>,
}

/// A test of a pair.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Test<'a> {
    /// Its outcome.
    #[cfg_attr(test, schemars(extend("enum" = ["right", "wrong", "hung", "untested"])))]
    pub(super) result: &'static str,
    /// Words about the outcome.
    pub(super) detail: Option<&'a str>,
}

/// The driver's attributes of the pair.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Attributes {
    /// CUDA's performance rank of the path: lower is better.
    pub(super) performance_rank: i32,
    /// Whether atomics work over the path.
    pub(super) native_atomics: bool,
    /// Whether CUDA arrays can be accessed over it.
    pub(super) array_access: bool,
}

/// The machine's account of itself.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Machine<'a> {
    /// The version of NVIDIA's kernel module, whether or not GPUs are simulated.
    pub(super) kernel_module: Option<&'a str>,
    /// The kernel's parameters about IOMMU and access control.
    pub(super) kernel_parameters: &'a [String],
    /// IOMMUs in use.
    pub(super) iommus: &'a [String],
    /// The hypervisor, if this is a virtual machine.
    pub(super) hypervisor: Option<&'a str>,
    /// The container that this runs in, if that shows.
    pub(super) container: Option<&'a str>,
    /// Whether confidential computing is on, by NVML; null where NVML does not say.
    pub(super) confidential_computing: Option<bool>,
    /// Services of the NVLink fabric; null if there is none.
    pub(super) fabric_services: Option<Services<'a>>,
    /// The kernel's log about these GPUs, if it may be read.
    pub(super) faults: Vec<Fault<'a>>,
    /// Where the GPUs are, in the order of `devices`; empty for simulated ones without a simulated machine.
    pub(super) gpus: Vec<Gpu<'a>>,
}

/// Services of the NVLink fabric, as far as they are seen from here.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Services<'a> {
    /// Whether nvidia-fabricmanager runs.
    pub(super) fabric_manager: bool,
    /// Whether nvidia-imex runs.
    pub(super) imex: bool,
    /// The channels of IMEX that are in `/dev`.
    pub(super) imex_channels: &'a [String],
}

/// PCIe errors of a device since it was found.
#[derive(Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Errors {
    /// Errors that the hardware corrected.
    pub(super) corrected: u64,
    /// Errors that were not corrected and not fatal.
    pub(super) not_fatal: u64,
    /// Fatal errors.
    pub(super) fatal: u64,
}

/// Lines of one kind about one GPU.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Fault<'a> {
    /// Its PCI bus id.
    pub(super) bus_id: &'a str,
    /// The last of them.
    pub(super) line: &'a str,
    /// How many there are.
    pub(super) count: usize,
    /// `iommu`: it stopped an access; `driver`: NVIDIA's driver reports an error (Xid); `link`: a PCI port reports an
    /// error of a link (AER); `peers`: the driver could not set up peer access, of whichever GPUs.
    #[cfg_attr(test, schemars(extend("enum" = ["iommu", "driver", "link", "peers"])))]
    pub(super) by: &'static str,
}

/// Where a GPU is.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Gpu<'a> {
    /// Its PCI bus id.
    pub(super) bus_id: &'a str,
    /// Its IOMMU group.
    pub(super) iommu_group: Option<&'a str>,
    /// How the IOMMU treats its addresses: `identity`, or the mode of translation.
    pub(super) iommu_type: Option<&'a str>,
    /// PCI bridges above it.
    pub(super) bridges: Vec<Bridge<'a>>,
    /// Its PCI link as it ran right after copies, or when it was looked at.
    pub(super) pci_link: Option<String>,
    /// The most that both ends of that link can do.
    pub(super) pci_link_most: Option<String>,
    /// Its PCIe errors.
    pub(super) pci_errors: Errors,
    /// The memory node that it is near.
    pub(super) numa_node: Option<u32>,
    /// Whether a display is attached to it.
    pub(super) display: bool,
}

/// A bridge.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Bridge<'a> {
    /// Its PCI address.
    pub(super) address: &'a str,
    /// Access control: requests between devices pass (`off`), are redirected, or there is none; null if it cannot
    /// be read.
    #[cfg_attr(test, schemars(extend("enum" = ["none", "off", "redirects", null])))]
    pub(super) acs: Option<&'static str>,
    /// Its PCI link, likewise.
    pub(super) pci_link: Option<String>,
    /// The most that it can do itself.
    pub(super) pci_link_most: Option<String>,
    /// Its PCIe errors.
    pub(super) pci_errors: Errors,
}
