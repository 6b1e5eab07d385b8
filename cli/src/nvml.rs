//! NVIDIA's management library, where there is one: NVLink, MIG, BAR1, and who uses a GPU are known to it alone. It may
//! hang, so it is started in processes of our own only.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use libloading::Library;

/// `NVML_VALUE_TYPE_UNSIGNED_LONG_LONG`.
const WIDE: c_int = 3;
/// `NVML_DEVICE_UUID_V2_BUFFER_SIZE`.
const UUID_ROOM: c_uint = 96;
/// `NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX` and `…_RX`.
const DATA: [c_uint; 2] = [138, 139];
/// `NVML_P2P_CAPS_INDEX_NVLINK`.
const NVLINK: c_int = 2;
/// `NVML_P2P_STATUS_OK`.
const OK: c_int = 0;

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

    /// Bytes of a device's memory that are free.
    pub(crate) fn free_memory(&self, device: Handle) -> Option<u64> {
        let mut memory = Memory::default();
        call!(self, nvmlDeviceGetMemoryInfo(device => Handle, &mut memory => *mut Memory))?;
        Some(memory.free)
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

    /// How many links are up.
    pub(crate) fn links(&self, device: Handle) -> u32 {
        /// `NVML_NVLINK_MAX_LINKS`, and room for what comes.
        const MOST: c_uint = 36;
        let is_up = |link: &c_uint| {
            let mut state = 0;
            let returned =
                call!(self, nvmlDeviceGetNvLinkState(device => Handle, *link => c_uint, &mut state => *mut c_uint));
            returned.is_some() && state != 0
        };
        (0..MOST).filter(is_up).count() as u32
    }

    pub(crate) fn has_nvlink(&self, device: Handle, peer: Handle) -> bool {
        let mut status = -1;
        let returned = call!(
            self,
            nvmlDeviceGetP2PStatus(device => Handle, peer => Handle, NVLINK => c_int, &mut status => *mut c_int)
        );
        returned.is_some() && status == OK
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
    fn layouts_and_numbers_are_those_of_the_vendor() {
        compare!(Field, nvmlFieldValue_t, id fieldId, scope scopeId, kind valueType, result nvmlReturn, value value);
        compare!(Process, nvmlProcessInfo_t, id pid, memory usedGpuMemory, gpu_instance gpuInstanceId);
        compare!(Memory, nvmlMemory_t, total total, free free, used used);
        compare!(Memory, nvmlBAR1Memory_t, total bar1Total, free bar1Free, used bar1Used);
        compare!(State, nvmlConfComputeSystemState_t, environment environment, feature ccFeature);
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
