//! NVIDIA's management library, where there is one: NVLink, MIG, BAR1, and who uses a GPU are known to it alone. It may
//! hang, so it is started in processes of our own only.

use std::ffi::{CStr, CString, c_int, c_uint};
use std::mem;

use nvml_wrapper_sys::bindings::field_id::{
    NVML_FI_DEV_C2C_LINK_COUNT, NVML_FI_DEV_NVLINK_GET_SPEED, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
};
use nvml_wrapper_sys::bindings::{self, NVML_DEVICE_UUID_V2_BUFFER_SIZE, NvmlLib, nvmlDevice_t, nvmlFieldValue_t};
use serde::{Deserialize, Serialize};

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
pub(crate) type Handle = nvmlDevice_t;

/// The versions of a fabric's facts that are asked for, the newest first: number and size.
const FABRIC_VERSIONS: [c_uint; 2] = [
    3 << 24 | size_of::<bindings::nvmlGpuFabricInfo_v3_t>() as c_uint,
    2 << 24 | size_of::<bindings::nvmlGpuFabricInfo_v2_t>() as c_uint,
];

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
    library: NvmlLib,
}

/// Calls a function of the library: none if it is missing or returns anything but success.
macro_rules! call {
    ($nvml:expr, $function:ident($($argument:expr),*)) => {
        // SAFETY: what is handed over are handles that the library gave out, pointers to locals, and numbers.
        $nvml.library.$function.as_ref().ok().filter(|function| unsafe { function($($argument),*) } == 0).map(drop)
    };
}

/// The answer of a function, which it writes through its last parameter.
macro_rules! ask {
    ($nvml:expr, $function:ident($($argument:expr),*)) => {{
        // SAFETY: answers are numbers, handles, and structs of numbers and arrays of them.
        let mut answer = unsafe { mem::zeroed() };
        call!($nvml, $function($($argument,)* &raw mut answer)).map(|()| answer)
    }};
}

/// A text that a function writes.
macro_rules! text {
    ($nvml:expr, $function:ident($device:expr)) => {{
        let mut text = [0u8; NVML_DEVICE_UUID_V2_BUFFER_SIZE as usize];
        call!($nvml, $function($device, text.as_mut_ptr().cast(), NVML_DEVICE_UUID_V2_BUFFER_SIZE))?;
        Some(CStr::from_bytes_until_nul(&text).ok()?.to_string_lossy().into_owned())
    }};
}

/// A PCI address, as CUDA and sysfs write it.
fn address(pci: &bindings::nvmlPciInfo_t) -> String {
    format!("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device)
}

impl Nvml {
    /// Loads the library and starts it, if it is there.
    pub(crate) fn start() -> Option<Self> {
        // SAFETY: it is NVIDIA's, or what the library path puts in its place.
        let library = unsafe { NvmlLib::new("libnvidia-ml.so.1") }.ok()?;
        let nvml = Self { library };
        call!(nvml, nvmlInit_v2())?;
        Some(nvml)
    }

    /// All devices, whatever `CUDA_VISIBLE_DEVICES` says.
    pub(crate) fn devices(&self) -> Vec<Handle> {
        let count = ask!(self, nvmlDeviceGetCount_v2()).unwrap_or_default();
        (0..count).filter_map(|index| ask!(self, nvmlDeviceGetHandleByIndex_v2(index))).collect()
    }

    pub(crate) fn uuid(&self, device: Handle) -> Option<String> {
        text!(self, nvmlDeviceGetUUID(device))
    }

    /// Bytes that a device has sent and received over all its NVLinks, without the protocol's; none where it has no counters.
    pub(crate) fn nvlink_traffic(&self, device: Handle) -> Option<[u64; 2]> {
        let ids = [NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX];
        let [sent, received] = self.fields(device, ids, c_uint::MAX)?.map(|field| {
            let is_wide = field?.valueType == bindings::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
            // SAFETY: the type says which of the values it is. They are KiB.
            is_wide.then_some(unsafe { field?.value.ullVal }.saturating_mul(1024))
        });
        Some([sent?, received?])
    }

    /// Numbers of the processes that use a device to compute; none if the library does not tell.
    pub(crate) fn processes(&self, device: Handle) -> Option<Vec<u32>> {
        const ROOM: c_uint = 1024;
        // SAFETY: it is a struct of numbers.
        let mut processes = vec![unsafe { mem::zeroed::<bindings::nvmlProcessInfo_t>() }; ROOM as usize];
        let mut count = ROOM;
        call!(self, nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut count, processes.as_mut_ptr()))?;
        Some(processes.iter().take(count as usize).map(|process| process.pid).collect())
    }

    pub(crate) fn device(&self, uuid: &str) -> Option<Handle> {
        let uuid = CString::new(uuid).ok()?;
        ask!(self, nvmlDeviceGetHandleByUUID(uuid.as_ptr()))
    }

    pub(crate) fn bar1(&self, device: Handle) -> Option<u64> {
        ask!(self, nvmlDeviceGetBAR1MemoryInfo(device)).map(|memory| memory.bar1Total)
    }

    /// Bytes of a device's memory, and those that are free.
    pub(crate) fn memory(&self, device: Handle) -> Option<[u64; 2]> {
        ask!(self, nvmlDeviceGetMemoryInfo(device)).map(|memory| [memory.total, memory.free])
    }

    pub(crate) fn is_mig(&self, device: Handle) -> Option<bool> {
        let mut current = 0;
        let _pending = ask!(self, nvmlDeviceGetMigMode(device, &raw mut current))?;
        Some(current != 0)
    }

    /// Whether confidential computing is on.
    pub(crate) fn is_confidential(&self) -> Option<bool> {
        ask!(self, nvmlSystemGetConfComputeState()).map(|state| state.ccFeature != 0)
    }

    pub(crate) fn name(&self, device: Handle) -> Option<String> {
        text!(self, nvmlDeviceGetName(device))
    }

    /// The address on the PCI bus, as CUDA and sysfs write it.
    pub(crate) fn bus_id(&self, device: Handle) -> Option<String> {
        ask!(self, nvmlDeviceGetPciInfo_v3(device)).map(|pci| address(&pci))
    }

    /// `NVML_GPU_VIRTUALIZATION_MODE_…`: 0 none, 1 passed through, 2 a vGPU, 3 and 4 the host of such.
    pub(crate) fn virtualization(&self, device: Handle) -> Option<u32> {
        ask!(self, nvmlDeviceGetVirtualizationMode(device))
    }

    pub(crate) fn fabric(&self, device: Handle) -> Option<Fabric> {
        FABRIC_VERSIONS.into_iter().find_map(|version| {
            // SAFETY: it is a struct of numbers and an array of them.
            let mut info: bindings::nvmlGpuFabricInfoV_t = unsafe { mem::zeroed() };
            info.version = version;
            call!(self, nvmlDeviceGetGpuFabricInfoV(device, &raw mut info))?;
            let cluster = info.clusterUuid;
            let cluster = (cluster != [0; 16]).then(|| cluster.iter().map(|byte| format!("{byte:02x}")).collect());
            Some(Fabric {
                state: info.state,
                status: info.status,
                clique: info.cliqueId,
                cluster,
                health: info.healthMask,
            })
        })
    }

    /// How many links to a processor's memory (C2C) there are.
    pub(crate) fn c2c(&self, device: Handle) -> Option<u32> {
        self.number(device, NVML_FI_DEV_C2C_LINK_COUNT, 0)
    }

    fn number(&self, device: Handle, id: c_uint, scope: c_uint) -> Option<u32> {
        let [field] = self.fields(device, [id], scope)?;
        // SAFETY: numbers of every type begin at the same place, and these fit.
        field.map(|field| unsafe { field.value.uiVal })
    }

    /// Fields of a device that are known: of the link that the scope names, or of all.
    fn fields<const N: usize>(
        &self,
        device: Handle,
        ids: [c_uint; N],
        scope: c_uint,
    ) -> Option<[Option<nvmlFieldValue_t>; N]> {
        let mut fields = ids.map(|id| {
            // SAFETY: it is a struct of numbers.
            let field: nvmlFieldValue_t = unsafe { mem::zeroed() };
            nvmlFieldValue_t { fieldId: id, scopeId: scope, ..field }
        });
        call!(self, nvmlDeviceGetFieldValues(device, N as c_int, fields.as_mut_ptr()))?;
        Some(fields.map(|field| (field.nvmlReturn == 0).then_some(field)))
    }

    pub(crate) fn links(&self, device: Handle) -> Links {
        use bindings::{
            nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU as GPU,
            nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH as SWITCH,
        };
        /// `NVML_NVLINK_MAX_LINKS`, and room for what comes.
        const MOST: c_uint = 36;
        let is_up = |link: &c_uint| ask!(self, nvmlDeviceGetNvLinkState(device, *link)).is_some_and(|state| state != 0);
        let up: Vec<c_uint> = (0..MOST).filter(is_up).collect();
        let first = up.first().copied();
        let version = first.and_then(|link| ask!(self, nvmlDeviceGetNvLinkVersion(device, link)));
        let kind = first.and_then(|link| ask!(self, nvmlDeviceGetNvLinkRemoteDeviceType(device, link)));
        let end =
            |&link: &c_uint| ask!(self, nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link)).map(|pci| address(&pci));
        // Which switch it is does not matter.
        let ends = if kind == Some(SWITCH) { Vec::new() } else { up.iter().filter_map(end).collect() };
        let speed = first.and_then(|link| self.number(device, NVML_FI_DEV_NVLINK_GET_SPEED, link));
        let speed = speed.filter(|&speed| speed > 0);
        Links { up: up.len() as u32, version, speed, ends, are_direct: kind == Some(GPU) }
    }

    pub(crate) fn has_nvlink(&self, device: Handle, peer: Handle) -> bool {
        self.status(device, peer, bindings::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_NVLINK) == Some(OK)
    }

    /// `NVML_P2P_STATUS_…` of reads, writes, atomic operations, and of PCI.
    pub(crate) fn peer_statuses(&self, device: Handle, peer: Handle) -> [Option<c_int>; 4] {
        [
            bindings::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_READ,
            bindings::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_WRITE,
            bindings::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_ATOMICS,
            bindings::nvmlGpuP2PCapsIndex_enum_NVML_P2P_CAPS_INDEX_PCI,
        ]
        .map(|capability| self.status(device, peer, capability))
    }

    fn status(&self, device: Handle, peer: Handle, capability: c_uint) -> Option<c_int> {
        ask!(self, nvmlDeviceGetP2PStatus(device, peer, capability)).map(c_uint::cast_signed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn status_numbers_are_those_of_the_vendor() {
        let theirs = [
            bindings::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_OK,
            bindings::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED,
            bindings::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_GPU_NOT_SUPPORTED,
            bindings::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED,
            bindings::nvmlGpuP2PStatus_enum_NVML_P2P_STATUS_DISABLED_BY_REGKEY,
        ];
        assert_eq!([OK, CHIPSET, GPU_UNFIT, TOPOLOGY, REGISTRY].map(c_int::cast_unsigned), theirs);
        assert_eq!(u32::from(COMPLETED), bindings::NVML_GPU_FABRIC_STATE_COMPLETED);
    }
}
