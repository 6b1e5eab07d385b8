//! NVIDIA's management library, where there is one: NVLink, MIG, BAR1, and who uses a GPU are known to it alone. It may
//! hang, so it is started in processes of our own only.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use libloading::Library;
use serde::{Deserialize, Serialize};

/// `NVML_VALUE_TYPE_UNSIGNED_LONG_LONG`.
const WIDE: c_int = 3;
/// `NVML_DEVICE_UUID_V2_BUFFER_SIZE`.
const UUID_ROOM: c_uint = 96;
/// `NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX` and `…_RX`.
const DATA: [c_uint; 2] = [138, 139];
/// `NVML_FI_DEV_NVLINK_GET_SPEED`, MB/s of the link that the scope names, and `NVML_FI_DEV_C2C_LINK_COUNT`.
const LINK_SPEED: c_uint = 164;
const C2C_COUNT: c_uint = 170;
/// `NVML_P2P_CAPS_INDEX_NVLINK`.
const NVLINK: c_int = 2;
/// `NVML_P2P_CAPS_INDEX_…`: READ, WRITE, ATOMICS, PCI.
const CAPABILITIES: [c_int; 4] = [0, 1, 3, 4];
/// `NVML_NVLINK_DEVICE_TYPE_GPU` and `…_SWITCH`.
const GPU: c_uint = 0;
const SWITCH: c_uint = 2;
/// `NVML_P2P_STATUS_…`.
pub(crate) const OK: c_int = 0;
pub(crate) const CHIPSET: c_int = 1;
pub(crate) const GPU_UNFIT: c_int = 2;
pub(crate) const TOPOLOGY: c_int = 3;
pub(crate) const REGISTRY: c_int = 4;

/// The words for them.
const STATUSES: [&str; 6] = [
    "OK",
    "chipset not supported",
    "GPU not supported",
    "topology not supported",
    "disabled by registry",
    "not supported",
];

/// The words for such a status.
pub(crate) fn status_word(status: c_int) -> &'static str {
    usize::try_from(status).ok().and_then(|status| STATUSES.get(status)).unwrap_or(&"unknown")
}

/// A device.
pub(crate) type Handle = *mut c_void;

/// `nvmlFieldValue_t`, whose value is an `unsigned long long`.
#[repr(C)]
struct Field {
    id: c_uint,
    scope: c_uint,
    time: i64,
    took: i64,
    kind: c_int,
    result: c_int,
    value: u64,
}

impl Field {
    /// A field of all links of a device.
    fn of_all_links(id: c_uint) -> Self {
        Self { id, scope: c_uint::MAX, time: 0, took: 0, kind: 0, result: -1, value: 0 }
    }

    /// A number that is no count of bytes.
    fn number(&self) -> Option<u32> {
        (self.result == 0).then_some(self.value as u32)
    }

    /// A count of KiB, in bytes.
    fn bytes(&self) -> Option<u64> {
        (self.result == 0 && self.kind == WIDE).then(|| self.value.saturating_mul(1024))
    }
}

/// `nvmlProcessInfo_t`.
#[repr(C)]
#[derive(Clone, Default)]
struct Process {
    id: c_uint,
    memory: u64,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// `nvmlMemory_t` and `nvmlBAR1Memory_t`, in bytes.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// `nvmlConfComputeSystemState_t`.
#[repr(C)]
#[derive(Default)]
struct State {
    environment: c_uint,
    feature: c_uint,
    developer_tools: c_uint,
}

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Default)]
struct Pci {
    legacy: [u8; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    id: c_uint,
    subsystem: c_uint,
    address: [u8; 32],
}

impl Pci {
    /// The address, as CUDA and sysfs write it.
    fn address(&self) -> String {
        format!("{:04x}:{:02x}:{:02x}.0", self.domain, self.bus, self.device)
    }
}

/// `nvmlGpuFabricInfo_v3_t`; version 2 ends before the summary.
#[repr(C)]
#[derive(Default)]
struct FabricInfo {
    version: c_uint,
    cluster: [u8; 16],
    status: c_uint,
    clique: c_uint,
    state: u8,
    health: c_uint,
    summary: u8,
}

/// The versions that are asked for, the newest first: number and size.
const FABRIC_VERSIONS: [c_uint; 2] = [3 << 24 | size_of::<FabricInfo>() as c_uint, 2 << 24 | 36];

/// `NVML_GPU_FABRIC_STATE_…`.
const STATES: [&str; 4] = ["none", "not-started", "in-progress", "completed"];
const COMPLETED: u8 = 3;
/// Parts of `NVML_GPU_FABRIC_HEALTH_MASK_…` of two bits, 1 being true: from which bit on, and the trouble.
const HEALTH: [(u32, &str); 4] = [
    (0, "degraded bandwidth"),
    (2, "a route is being recovered"),
    (4, "an unhealthy route"),
    (6, "recovery from an access timeout"),
];
/// The wrong configuration, from bit 8 on; 0 and 1 are none.
const CONFIGURATION: [&str; 4] = ["wrong system GUID", "wrong chassis number", "no partition", "too few NVLinks"];

/// A device's registration with the fabric of NVLink switches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fabric {
    /// `NVML_GPU_FABRIC_STATE_…`: 0 there is none, 1 not started, 2 in progress, 3 completed.
    pub(crate) state: u8,
    /// How it ended: 0 is success.
    pub(crate) status: u32,
    pub(crate) clique: u32,
    /// UUID of a fabric of several machines, in hexadecimal digits.
    pub(crate) cluster: Option<String>,
    /// `NVML_GPU_FABRIC_HEALTH_MASK_…`.
    pub(crate) health: u32,
}

impl Fabric {
    /// The word for the state.
    pub(crate) fn word(&self) -> &'static str {
        STATES.get(usize::from(self.state)).copied().unwrap_or("unknown")
    }

    pub(crate) fn is_completed(&self) -> bool {
        self.state == COMPLETED
    }

    /// Its trouble, if it has one.
    pub(crate) fn trouble(&self) -> Option<String> {
        match *self {
            Self { state: 0, .. } => return None,
            Self { state, .. } if state != COMPLETED => return Some(self.word().replace('-', " ")),
            Self { status: 1.., .. } => return Some(format!("NVML status {}", self.status)),
            _ => {}
        }
        let is_so = |(shift, _): &(u32, &str)| self.health >> shift & 3 == 1;
        let mut found: Vec<&str> = HEALTH.into_iter().filter(is_so).map(|(_, what)| what).collect();
        let configuration = (self.health >> 8 & 15).checked_sub(2);
        found.extend(configuration.and_then(|which| CONFIGURATION.get(which as usize)));
        (!found.is_empty()).then(|| found.join(", "))
    }
}

/// A device's NVLinks that are up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Links {
    pub(crate) up: u32,
    /// `NVML_NVLINK_VERSION_…` of the first.
    pub(crate) version: Option<u32>,
    /// MB/s of the first, each way.
    pub(crate) speed: Option<u32>,
    /// The PCI address at the far end of each that NVML names, if switches are not known to be there.
    pub(crate) ends: Vec<String>,
    /// Whether a GPU is at the far end of the first, though its address may be unknown.
    pub(crate) are_direct: bool,
}

/// The library, started.
pub(crate) struct Nvml {
    library: Library,
}

/// Calls a function of the library by its name: none if it is missing or returns anything but success.
macro_rules! call {
    ($nvml:expr, $symbol:ident($($argument:expr => $type:ty),*)) => {{
        let name = concat!(stringify!($symbol), "\0");
        // SAFETY: the type is that of the library's documentation.
        let function = unsafe { $nvml.library.get::<unsafe extern "C" fn($($type),*) -> c_int>(name.as_bytes()) };
        // SAFETY: what is handed over are handles that the library gave out, pointers to locals, and numbers.
        function.ok().filter(|function| unsafe { function($($argument),*) } == 0).map(drop)
    }};
}

impl Nvml {
    /// Loads the library and starts it, if it is there.
    pub(crate) fn start() -> Option<Self> {
        // SAFETY: it is NVIDIA's, or what the library path puts in its place.
        let library = unsafe { Library::new("libnvidia-ml.so.1") }.ok()?;
        let nvml = Self { library };
        call!(nvml, nvmlInit_v2())?;
        Some(nvml)
    }

    /// All devices, whatever `CUDA_VISIBLE_DEVICES` says.
    pub(crate) fn devices(&self) -> Vec<Handle> {
        let mut count = 0;
        call!(self, nvmlDeviceGetCount_v2(&mut count => *mut c_uint));
        let device = |index: c_uint| {
            let mut device = std::ptr::null_mut();
            call!(self, nvmlDeviceGetHandleByIndex_v2(index => c_uint, &mut device => *mut Handle))?;
            Some(device)
        };
        (0..count).filter_map(device).collect()
    }

    pub(crate) fn uuid(&self, device: Handle) -> Option<String> {
        let mut text = [0u8; UUID_ROOM as usize];
        call!(self, nvmlDeviceGetUUID(device => Handle, text.as_mut_ptr().cast() => *mut c_char, UUID_ROOM => c_uint))?;
        Some(CStr::from_bytes_until_nul(&text).ok()?.to_str().ok()?.to_owned())
    }

    /// Bytes that a device has sent and received over all its NVLinks, without the protocol's; none where it has no counters.
    pub(crate) fn nvlink_traffic(&self, device: Handle) -> Option<[u64; 2]> {
        let mut fields = DATA.map(Field::of_all_links);
        call!(self, nvmlDeviceGetFieldValues(device => Handle, 2 => c_int, fields.as_mut_ptr() => *mut Field))?;
        let [sent, received] = fields.map(|field| field.bytes());
        Some([sent?, received?])
    }

    /// Numbers of the processes that use a device to compute; none if the library does not tell.
    pub(crate) fn processes(&self, device: Handle) -> Option<Vec<u32>> {
        const ROOM: c_uint = 1024;
        let mut processes = vec![Process::default(); ROOM as usize];
        let mut count = ROOM;
        call!(
            self,
            nvmlDeviceGetComputeRunningProcesses_v3(
                device => Handle,
                &mut count => *mut c_uint,
                processes.as_mut_ptr() => *mut Process
            )
        )?;
        processes.truncate(count as usize);
        Some(processes.iter().map(|process| process.id).collect())
    }

    pub(crate) fn device(&self, uuid: &str) -> Option<Handle> {
        let uuid = CString::new(uuid).ok()?;
        let mut device = std::ptr::null_mut();
        call!(self, nvmlDeviceGetHandleByUUID(uuid.as_ptr() => *const c_char, &mut device => *mut Handle))?;
        Some(device)
    }

    pub(crate) fn bar1(&self, device: Handle) -> Option<u64> {
        let mut memory = Memory::default();
        call!(self, nvmlDeviceGetBAR1MemoryInfo(device => Handle, &mut memory => *mut Memory))?;
        Some(memory.total)
    }

    /// Bytes of a device's memory, and those that are free.
    pub(crate) fn memory(&self, device: Handle) -> Option<[u64; 2]> {
        let mut memory = Memory::default();
        call!(self, nvmlDeviceGetMemoryInfo(device => Handle, &mut memory => *mut Memory))?;
        Some([memory.total, memory.free])
    }

    pub(crate) fn is_mig(&self, device: Handle) -> Option<bool> {
        let (mut current, mut pending) = (0, 0);
        call!(self, nvmlDeviceGetMigMode(device => Handle, &mut current => *mut c_uint, &mut pending => *mut c_uint))?;
        Some(current != 0)
    }

    /// Whether confidential computing is on.
    pub(crate) fn is_confidential(&self) -> Option<bool> {
        let mut state = State::default();
        call!(self, nvmlSystemGetConfComputeState(&mut state => *mut State))?;
        Some(state.feature != 0)
    }

    pub(crate) fn name(&self, device: Handle) -> Option<String> {
        let mut text = [0u8; UUID_ROOM as usize];
        call!(self, nvmlDeviceGetName(device => Handle, text.as_mut_ptr().cast() => *mut c_char, UUID_ROOM => c_uint))?;
        Some(CStr::from_bytes_until_nul(&text).ok()?.to_string_lossy().into_owned())
    }

    /// The address on the PCI bus, as CUDA and sysfs write it.
    pub(crate) fn bus_id(&self, device: Handle) -> Option<String> {
        let mut pci = Pci::default();
        call!(self, nvmlDeviceGetPciInfo_v3(device => Handle, &mut pci => *mut Pci))?;
        Some(pci.address())
    }

    /// `NVML_GPU_VIRTUALIZATION_MODE_…`: 0 none, 1 passed through, 2 a vGPU, 3 and 4 the host of such.
    pub(crate) fn virtualization(&self, device: Handle) -> Option<u32> {
        let mut mode = 0;
        call!(self, nvmlDeviceGetVirtualizationMode(device => Handle, &mut mode => *mut c_uint))?;
        Some(mode)
    }

    pub(crate) fn fabric(&self, device: Handle) -> Option<Fabric> {
        FABRIC_VERSIONS.into_iter().find_map(|version| {
            let mut info = FabricInfo { version, ..FabricInfo::default() };
            call!(self, nvmlDeviceGetGpuFabricInfoV(device => Handle, &mut info => *mut FabricInfo))?;
            let FabricInfo { cluster, status, clique, state, health, .. } = info;
            let cluster = (cluster != [0; 16]).then(|| cluster.iter().map(|byte| format!("{byte:02x}")).collect());
            Some(Fabric { state, status, clique, cluster, health })
        })
    }

    /// How many links to a processor's memory (C2C) there are.
    pub(crate) fn c2c(&self, device: Handle) -> Option<u32> {
        self.number(device, C2C_COUNT, 0)
    }

    fn number(&self, device: Handle, id: c_uint, scope: c_uint) -> Option<u32> {
        let mut field = Field { scope, ..Field::of_all_links(id) };
        call!(self, nvmlDeviceGetFieldValues(device => Handle, 1 => c_int, &mut field => *mut Field))?;
        field.number()
    }

    pub(crate) fn links(&self, device: Handle) -> Links {
        /// `NVML_NVLINK_MAX_LINKS`, and room for what comes.
        const MOST: c_uint = 36;
        let is_up = |link: &c_uint| {
            let mut state = 0;
            let returned =
                call!(self, nvmlDeviceGetNvLinkState(device => Handle, *link => c_uint, &mut state => *mut c_uint));
            returned.is_some() && state != 0
        };
        let up: Vec<c_uint> = (0..MOST).filter(is_up).collect();
        let version = up.first().and_then(|&link| {
            let mut version = 0;
            call!(self, nvmlDeviceGetNvLinkVersion(device => Handle, link => c_uint, &mut version => *mut c_uint))?;
            Some(version)
        });
        let kind = up.first().and_then(|&link| {
            let mut kind = 0;
            call!(self, nvmlDeviceGetNvLinkRemoteDeviceType(device => Handle, link => c_uint, &mut kind => *mut c_uint))?;
            Some(kind)
        });
        let end = |&link: &c_uint| {
            let mut pci = Pci::default();
            call!(self, nvmlDeviceGetNvLinkRemotePciInfo_v2(device => Handle, link => c_uint, &mut pci => *mut Pci))?;
            Some(pci.address())
        };
        // Which switch it is does not matter.
        let ends = if kind == Some(SWITCH) { Vec::new() } else { up.iter().filter_map(end).collect() };
        let speed = up.first().and_then(|&link| self.number(device, LINK_SPEED, link)).filter(|&speed| speed > 0);
        Links { up: up.len() as u32, version, speed, ends, are_direct: kind == Some(GPU) }
    }

    pub(crate) fn has_nvlink(&self, device: Handle, peer: Handle) -> bool {
        self.status(device, peer, NVLINK) == Some(OK)
    }

    /// `NVML_P2P_STATUS_…` of reads, writes, atomic operations, and of PCI.
    pub(crate) fn peer_statuses(&self, device: Handle, peer: Handle) -> [Option<c_int>; 4] {
        CAPABILITIES.map(|capability| self.status(device, peer, capability))
    }

    fn status(&self, device: Handle, peer: Handle, capability: c_int) -> Option<c_int> {
        let mut status = -1;
        call!(
            self,
            nvmlDeviceGetP2PStatus(device => Handle, peer => Handle, capability => c_int, &mut status => *mut c_int)
        )?;
        Some(status)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use nvml_wrapper_sys::bindings::{self as theirs, field_id};

    use super::*;

    /// Compares the layout of one of our structs with one of NVIDIA's.
    macro_rules! compare {
        ($ours:ident, $theirs:ident, $($field:ident $name:ident),*) => {
            assert_eq!(size_of::<$ours>(), size_of::<theirs::$theirs>(), stringify!($theirs));
            $(assert_eq!(offset_of!($ours, $field), offset_of!(theirs::$theirs, $name), stringify!($theirs.$name));)*
        };
    }

    #[test]
    fn trouble_is_said_of_what_is_wrong_only() {
        let well = Fabric { state: 3, health: 0x1aa, ..Fabric::default() };
        for (fabric, said) in [
            (well.clone(), None),
            (Fabric { health: 0, ..well.clone() }, None),
            (Fabric { state: 0, ..well.clone() }, None),
            (Fabric { state: 2, ..well.clone() }, Some("in progress")),
            (Fabric { status: 15, ..well.clone() }, Some("NVML status 15")),
            (Fabric { health: 0x1a9, ..well.clone() }, Some("degraded bandwidth")),
            (Fabric { health: 0x49a, ..well.clone() }, Some("an unhealthy route, no partition")),
        ] {
            assert_eq!(fabric.trouble().as_deref(), said, "{fabric:?}");
        }
    }

    #[test]
    fn layouts_and_numbers_are_those_of_the_vendor() {
        compare!(Field, nvmlFieldValue_t, id fieldId, scope scopeId, kind valueType, result nvmlReturn, value value);
        compare!(Process, nvmlProcessInfo_t, id pid, memory usedGpuMemory, gpu_instance gpuInstanceId);
        compare!(Memory, nvmlMemory_t, total total, free free, used used);
        compare!(Memory, nvmlBAR1Memory_t, total bar1Total, free bar1Free, used bar1Used);
        compare!(State, nvmlConfComputeSystemState_t, environment environment, feature ccFeature);
        compare!(Pci, nvmlPciInfo_t, domain domain, bus bus, device device, address busId);
        compare!(FabricInfo, nvmlGpuFabricInfo_v3_t, cluster clusterUuid, status status, clique cliqueId, state state, health healthMask, summary healthSummary);
        assert_eq!(FABRIC_VERSIONS[1] & 0xff_ffff, size_of::<theirs::nvmlGpuFabricInfo_v2_t>() as c_uint);
        let ends = [
            theirs::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU,
            theirs::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH,
        ];
        assert_eq!([GPU, SWITCH], ends);
        let of_links = [field_id::NVML_FI_DEV_NVLINK_GET_SPEED, field_id::NVML_FI_DEV_C2C_LINK_COUNT];
        assert_eq!([LINK_SPEED, C2C_COUNT], of_links);
        let of_fields =
            [field_id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, field_id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX];
        assert_eq!((DATA, UUID_ROOM), (of_fields, theirs::NVML_DEVICE_UUID_V2_BUFFER_SIZE));
        let numbers = [
            theirs::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
            theirs::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_NVLINK,
            theirs::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_OK,
        ];
        assert_eq!([WIDE, NVLINK, OK].map(c_int::cast_unsigned), numbers);
    }
}
