//! What the driver says of devices, for reports and verdicts.

use std::ffi::{CStr, c_int};

use super::functions::{
    checked, device_get_name, device_get_p2p_attribute, device_get_pci_bus_id, device_get_uuid, device_get_uuid_1,
    driver_get_version, is_missing,
};
use crate::api::abi::Code;
use crate::policy::full::DevicePair;

/// The driver's version, as CUDA counts: 12.8 is 12080.
pub(crate) fn version() -> Option<i32> {
    driver_version().ok()
}

fn driver_version() -> Result<i32, Code> {
    let mut version = 0;
    // SAFETY: the function writes one int.
    checked(unsafe { driver_get_version(&mut version) }, ()).map(|()| version)
}

/// What a report calls a device.
pub(crate) struct Gpu {
    /// The product's name.
    pub(crate) name: String,
    /// As `nvidia-smi -L` writes it.
    pub(crate) uuid: String,
    /// Where it is on the PCI bus.
    pub(crate) bus_id: String,
}

/// What a report calls a device. Nothing here needs a context, or disturbs a capture.
pub(crate) fn gpu(device: i32) -> Option<Gpu> {
    let mut name = [0u8; 256];
    // SAFETY: the function writes a text with a NUL of at most that length.
    checked(unsafe { device_get_name(name.as_mut_ptr().cast(), name.len() as c_int, device) }, ()).ok()?;
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned();
    let (uuid, bus_id) = identity(device).ok()?;
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from, to| hex.get(from..to).unwrap_or_default();
    let uuid = format!("GPU-{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32));
    Some(Gpu { name, uuid, bus_id })
}

/// What the hardware says of the access of a device to the memory of another: whether there is any, how fast it is (0 is
/// best), and whether atomic operations work.
pub(crate) fn peer_attributes(device: i32, peer: i32) -> [Option<i32>; 3] {
    const ACCESS: c_int = 2;
    const PERFORMANCE_RANK: c_int = 1;
    const NATIVE_ATOMICS: c_int = 3;
    [ACCESS, PERFORMANCE_RANK, NATIVE_ATOMICS].map(|attribute| {
        let mut value = 0;
        // SAFETY: the function writes one int.
        checked(unsafe { device_get_p2p_attribute(&mut value, attribute, device, peer) }, value).ok()?;
        Some(value)
    })
}

/// What another process has to be told to find the two devices.
pub(super) fn device_pair(src: i32, dst: i32) -> Result<DevicePair, Code> {
    let driver_version = driver_version()?;
    let ((src_uuid, src_bus_id), (dst_uuid, dst_bus_id)) = (identity(src)?, identity(dst)?);
    Ok(DevicePair { src_uuid, dst_uuid, src_bus_id, dst_bus_id, driver_version })
}

/// A device's UUID, and where it is on the PCI bus.
pub(super) fn identity(device: i32) -> Result<([u8; 16], String), Code> {
    let mut uuid = [0; 16];
    // The second form tells instances of a partitioned GPU apart.
    // SAFETY: both write 16 bytes.
    let code = match unsafe { device_get_uuid(&mut uuid, device) } {
        // SAFETY: as above.
        code if is_missing(code) => unsafe { device_get_uuid_1(&mut uuid, device) },
        code => code,
    };
    checked(code, ())?;
    let mut bus_id = [0u8; 32];
    // SAFETY: the function writes a text with a NUL of at most that length.
    checked(unsafe { device_get_pci_bus_id(bus_id.as_mut_ptr().cast(), bus_id.len() as c_int, device) }, ())?;
    let bus_id = CStr::from_bytes_until_nul(&bus_id).unwrap_or_default();
    Ok((uuid, bus_id.to_string_lossy().into_owned()))
}
