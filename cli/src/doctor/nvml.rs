//! NVIDIA's management library, where there is one: NVLink, MIG and BAR1 are known to it alone.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use libloading::Library;

use super::lines::Line;

type Handle = *mut c_void;

/// `nvmlBAR1Memory_t`, in bytes.
#[repr(C)]
#[derive(Default)]
struct Bar1 {
    total: u64,
    free: u64,
    used: u64,
}

/// The library, started.
pub(super) struct Nvml {
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
    pub(super) fn start() -> Option<Self> {
        // SAFETY: it is NVIDIA's, or what the library path puts in its place.
        let library = unsafe { Library::new("libnvidia-ml.so.1") }.ok()?;
        let nvml = Self { library };
        call!(nvml, nvmlInit_v2())?;
        Some(nvml)
    }

    /// What it knows of devices with these UUIDs, by their places.
    pub(super) fn lines(&self, uuids: &[String]) -> Vec<Line> {
        let handles: Vec<Option<Handle>> = uuids.iter().map(|uuid| self.device(uuid)).collect();
        let known = || handles.iter().enumerate().filter_map(|(ordinal, handle)| Some((ordinal, (*handle)?)));
        let mut lines = Vec::new();
        for (ordinal, device) in known() {
            lines.extend(self.bar1(device).map(|bytes| Line::Bar1(ordinal, bytes)));
            lines.extend(self.is_mig(device).map(|is_on| Line::Mig(ordinal, is_on)));
            lines.push(Line::Links(ordinal, self.links(device)));
        }
        for (from, device) in known() {
            let peers = known().filter(|&(to, peer)| to != from && self.has_nvlink(device, peer));
            lines.extend(peers.map(|(to, _)| Line::NvLink(from, to)));
        }
        lines
    }

    fn device(&self, uuid: &str) -> Option<Handle> {
        let uuid = CString::new(uuid).ok()?;
        let mut device = std::ptr::null_mut();
        call!(self, nvmlDeviceGetHandleByUUID(uuid.as_ptr() => *const c_char, &mut device => *mut Handle))?;
        Some(device)
    }

    fn bar1(&self, device: Handle) -> Option<u64> {
        let mut memory = Bar1::default();
        call!(self, nvmlDeviceGetBAR1MemoryInfo(device => Handle, &mut memory => *mut Bar1))?;
        Some(memory.total)
    }

    fn is_mig(&self, device: Handle) -> Option<bool> {
        let (mut current, mut pending) = (0, 0);
        call!(self, nvmlDeviceGetMigMode(device => Handle, &mut current => *mut c_uint, &mut pending => *mut c_uint))?;
        Some(current != 0)
    }

    /// How many links are up.
    fn links(&self, device: Handle) -> u32 {
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

    fn has_nvlink(&self, device: Handle, peer: Handle) -> bool {
        /// `NVML_P2P_CAPS_INDEX_NVLINK`.
        const NVLINK: c_int = 2;
        /// `NVML_P2P_STATUS_OK`.
        const OK: c_int = 0;
        let mut status = -1;
        let returned = call!(
            self,
            nvmlDeviceGetP2PStatus(device => Handle, peer => Handle, NVLINK => c_int, &mut status => *mut c_int)
        );
        returned.is_some() && status == OK
    }
}
