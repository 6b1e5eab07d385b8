//! The driver's answers about devices, for reports and verdicts.

use std::ffi::{CStr, c_char, c_int};

use super::functions::{
    asked, checked, device_get_name, device_get_p2p_attribute, device_get_pci_bus_id, device_get_uuid,
    device_get_uuid_1, driver_get_version, is_missing,
};
use crate::api::abi::Code;
use crate::policy::verdicts::Gpu;

/// The driver's version, as CUDA counts: 12.8 is 12080.
pub(crate) fn version() -> Result<i32, Code> {
    // SAFETY: the function writes the place.
    asked(|version| unsafe { driver_get_version(version) })
}

pub(super) fn gpu(device: i32) -> Option<Gpu> {
    let text = |ask| text(ask, device).ok();
    Some(Gpu { name: text(device_get_name)?, uuid: uuid(device).ok()?, bus_id: text(device_get_pci_bus_id)? })
}

/// The hardware's account of a device's access to the memory of another: whether there is any, how fast it is (0 is
/// best), and whether atomic operations work.
pub(crate) fn peer_attributes(device: i32, peer: i32) -> [Option<i32>; 3] {
    const ACCESS: c_int = 2;
    const PERFORMANCE_RANK: c_int = 1;
    const NATIVE_ATOMICS: c_int = 3;
    // SAFETY: the function writes the place.
    let ask = |attribute| asked(|value| unsafe { device_get_p2p_attribute(value, attribute, device, peer) }).ok();
    [ACCESS, PERFORMANCE_RANK, NATIVE_ATOMICS].map(ask)
}

fn text(ask: unsafe fn(*mut c_char, c_int, c_int) -> Code, device: i32) -> Result<String, Code> {
    let mut text = [0u8; 256];
    // SAFETY: the function writes a text with a NUL of at most that length.
    checked(unsafe { ask(text.as_mut_ptr().cast(), text.len() as c_int, device) })?;
    Ok(CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().into_owned())
}

/// A device's UUID. Of an instance of a partitioned GPU the second form of the function says the instance's own, the first that of the GPU.
fn uuid(device: i32) -> Result<String, Code> {
    let ask = |function: unsafe fn(*mut [u8; 16], c_int) -> Code| {
        // SAFETY: both functions write 16 bytes.
        asked(|uuid: &mut [u8; 16]| unsafe { function(uuid, device) })
    };
    let of_gpu = ask(device_get_uuid_1);
    match ask(device_get_uuid) {
        Err(code) if is_missing(code) => of_gpu.map(|uuid| uuid_text("GPU", uuid)),
        Ok(uuid) if of_gpu.is_ok_and(|of_gpu| of_gpu != uuid) => Ok(uuid_text("MIG", uuid)),
        result => result.map(|uuid| uuid_text("GPU", uuid)),
    }
}

/// A UUID as `nvidia-smi -L` writes it, and `CUDA_VISIBLE_DEVICES` takes it.
fn uuid_text(kind: &str, uuid: [u8; 16]) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from, to| hex.get(from..to).unwrap_or_default();
    format!("{kind}-{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_text_names_devices_as_the_command_does() {
        let uuid = *b"\x89\x32\xf9\x37\xd7\x2c\x41\x06\xc1\x2f\x20\xbd\x9f\xae\xd9\xf6";
        assert_eq!(uuid_text("GPU", uuid), "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6");
        assert_eq!(uuid_text("MIG", [1; 16]), "MIG-01010101-0101-0101-0101-010101010101");
    }
}
