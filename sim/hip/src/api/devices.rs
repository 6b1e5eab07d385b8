//! Devices and their attributes.

use std::ffi::c_char;

use p2psim_core::{DEVICE_MEMORY, Error};

use super::require;
use crate::abi::{In, Out};
use crate::entry::{all_gpus, api};
use crate::error::{Result, silent};

/// `hipUUID`.
type Uuid = [u8; 16];

/// Bytes of a PCI bus identifier with its terminator.
const PCI_ROOM: i32 = 13;

fn pci_text(device: usize) -> String {
    format!("{:04x}:{:02x}:{:02x}.0", 0, device + 0x40, 0)
}

fn uuid(device: usize) -> Uuid {
    let mut bytes = *b"p2psim-hip-.....";
    if let Some(last) = bytes.last_mut() {
        *last = device as u8;
    }
    bytes
}

/// Attributes that tests ask for, by the numbers of 5.x to 7.x.
fn attribute(number: u32, device: usize) -> Result<i32> {
    /// Within a range known to all releases, what is not listed is 0.
    const LAST: u32 = 92;
    Ok(match number {
        2 => 2,
        3 | 8 | 85 => 1,
        67 => device as i32 + 0x40,
        68 | 69 => 0,
        87 => 64,
        number if number < LAST => 0,
        _ => return Err(Error::INVALID_VALUE.into()),
    })
}

api! {
    fn hipInit [_gpus] (flags: u32) { require(flags == 0) }

    fn hipGetDeviceCount(count: Out<i32>) {
        let count = count.required()?;
        let devices = all_gpus()?.map_or(0, |gpus| gpus.devices());
        count.set(devices as i32);
        if devices == 0 { Err(Error::NO_DEVICE.into()) } else { Ok(()) }
    }

    fn hipSetDevice(device: i32) {
        let gpus = all_gpus()?.ok_or(Error::NO_DEVICE)?;
        gpus.set_current(gpus.device(device)?)
    }

    fn hipGetDevice [gpus] (device: Out<i32>) {
        device.required()?.set(gpus.current()? as i32);
        Ok(())
    }

    fn hipDeviceGet [gpus] (device: Out<i32>, ordinal: i32) {
        let device = device.required()?;
        gpus.device(ordinal)?;
        device.set(ordinal);
        Ok(())
    }

    /// Peer access that was enabled stays enabled, in all releases, although the documentation says otherwise.
    fn hipDeviceReset [gpus] () { Ok(gpus.reset_device(gpus.current()?)?) }

    fn hipDeviceSynchronize [gpus] () { gpus.synchronize_context().map_err(silent) }

    fn hipDeviceGetName [gpus] (name: Out<c_char>, length: i32, device: i32) {
        gpus.device(device)?;
        let name = name.required()?;
        require(length > 0)?;
        name.set_text("Simulated AMD GPU", length as usize);
        Ok(())
    }

    fn hipDeviceGetUuid [gpus] (bytes: Out<Uuid>, device: i32) {
        let device = gpus.device(device)?;
        bytes.required()?.set(uuid(gpus.number(device)));
        Ok(())
    }

    fn hipDeviceTotalMem [gpus] (bytes: Out<u64>, device: i32) {
        gpus.device(device)?;
        bytes.required()?.set(DEVICE_MEMORY);
        Ok(())
    }

    fn hipDeviceGetAttribute [gpus] (value: Out<i32>, number: u32, device: i32) {
        let value = value.required()?;
        let device = gpus.device(device)?;
        value.set(attribute(number, gpus.number(device))?);
        Ok(())
    }

    /// Too little room is said afterwards.
    fn hipDeviceGetPCIBusId [gpus] (text: Out<c_char>, length: i32, device: i32) {
        let device = gpus.device(device)?;
        let text = text.required()?;
        text.set_text(&pci_text(gpus.number(device)), usize::try_from(length).unwrap_or(0));
        require(length >= PCI_ROOM)
    }

    fn hipDeviceGetByPCIBusId [gpus] (device: Out<i32>, text: In<c_char>) {
        let device = device.required()?;
        let wanted = text.text()?.to_ascii_lowercase();
        let found = (0..gpus.devices()).find(|device| pci_text(gpus.number(*device)) == wanted);
        device.set(found.ok_or(Error::INVALID_VALUE)? as i32);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_known_unset_and_unknown() {
        assert_eq!([67, 87, 0].map(|number| attribute(number, 1)), [Ok(0x41), Ok(64), Ok(0)]);
        assert!(attribute(92, 0).is_err());
    }

    #[test]
    fn uuid_and_bus_id_differ_between_devices() {
        assert_ne!(uuid(0), uuid(1));
        assert_eq!(pci_text(1), "0000:41:00.0");
    }
}
