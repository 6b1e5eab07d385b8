//! The few calls that the shim itself makes to NVIDIA's management library, of which nothing is loaded here.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute;

use super::loader::{self, Handle, Object};
use crate::os;

/// The library that a real function lies in.
pub(crate) struct Nvml(Handle);

impl Nvml {
    /// None if it is the main program.
    pub(crate) fn of(real: *const c_void) -> Option<Self> {
        let handle = os::undisturbed(|| Object::holding(real).and_then(|object| object.handle()));
        handle.map(Self)
    }

    fn function(&self, name: &'static CStr) -> Option<*mut c_void> {
        os::undisturbed(|| {
            let found = self.0.symbol(name);
            loader::forget_error();
            found
        })
    }

    /// A device's UUID and PCI address.
    pub(crate) fn names(&self, device: usize) -> Option<[String; 2]> {
        type GetUuid = unsafe extern "C" fn(usize, *mut c_char, c_uint) -> c_int;
        type GetPciInfo = unsafe extern "C" fn(usize, *mut PciInfo) -> c_int;
        let (mut uuid, mut pci) = ([0u8; UUID], PciInfo::default());
        // SAFETY: the type is that of the library's documentation.
        let get_uuid = unsafe { transmute::<*mut c_void, GetUuid>(self.function(c"nvmlDeviceGetUUID")?) };
        // SAFETY: the device is the program's argument of a call that succeeded; the function writes a text of at most that length.
        let has_uuid = unsafe { get_uuid(device, uuid.as_mut_ptr().cast(), UUID as c_uint) } == 0;
        // SAFETY: as above.
        let get_pci = unsafe { transmute::<*mut c_void, GetPciInfo>(self.function(c"nvmlDeviceGetPciInfo_v3")?) };
        // SAFETY: as above; the function writes the place.
        let has_pci = unsafe { get_pci(device, &mut pci) } == 0;
        let text = |bytes: &[u8]| Some(CStr::from_bytes_until_nul(bytes).ok()?.to_string_lossy().into_owned());
        // `00000000:01:00.0`, where the driver's has a domain of four digits.
        let bus_id = text(&pci.bus_id)?;
        let bus_id = bus_id.strip_prefix("0000").filter(|rest| rest.find(':') == Some(4)).unwrap_or(&bus_id);
        (has_uuid && has_pci).then_some([text(&uuid)?, bus_id.to_owned()])
    }
}

/// `NVML_DEVICE_UUID_V2_BUFFER_SIZE`.
const UUID: usize = 96;

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Default)]
struct PciInfo {
    legacy: [u8; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    id: c_uint,
    subsystem: c_uint,
    bus_id: [u8; 32],
}
