//! Devices and their attributes.

use std::ffi::c_char;

use p2psim_core::{DEVICE_MEMORY, Error, Result};

use super::require;
use crate::abi::{In, Out};
use crate::entry::{api, is_exclusive, is_mig, machine};
use crate::uuid::{Uuid, uuid};

/// PCI domain, bus and device of a device.
fn pci(device: usize) -> (i32, i32, i32) {
    (0, device as i32 + 1, 0)
}

fn pci_text(device: usize) -> String {
    let (domain, bus, slot) = pci(device);
    format!("{domain:04x}:{bus:02x}:{slot:02x}.0")
}

/// Attributes that are not 0, by their numbers in the driver API.
fn attribute(number: i32, device: usize) -> Result<i32> {
    let (domain, bus, slot) = pci(device);
    Ok(match number {
        // Threads of a block, dimensions of blocks and grids.
        1..=3 => 1024,
        4 => 64,
        5 => i32::MAX,
        6 | 7 => 65535,
        // Shared and constant memory, warp size, largest pitch, registers.
        8 => 48 << 10,
        9 => 64 << 10,
        10 => 32,
        11 => i32::MAX,
        12 | 82 => 65536,
        // The mode for computing: for any process, or for one.
        20 => {
            if is_exclusive(device) {
                3
            } else {
                0
            }
        }
        // Clock rates in kHz, multiprocessors.
        13 => 1_980_000,
        16 => 132,
        36 => 2_619_000,
        14 => 512,
        51 => 32,
        // Overlap, mapping of host memory, concurrent kernels, copy engines.
        15 | 19 | 31 => 1,
        40 => 3,
        33 => bus,
        34 => slot,
        50 => domain,
        // Memory bus in bits, L2 cache, threads of a multiprocessor.
        37 => 6016,
        38 => 60 << 20,
        39 => 2048,
        // Unified addressing.
        41 => 1,
        75 => 9,
        76 => 0,
        // Stream priorities, caches.
        78..=80 => 1,
        81 => 228 << 10,
        // Preemption, host pointers of registered memory, registration.
        90 | 91 | 99 => 1,
        106 => 32,
        // Mapping memory oneself, memory pools, sharing both by descriptors, and events.
        102 | 103 | 115 | 119 | 125 => 1,
        number if (1..=147).contains(&number) => 0,
        _ => return Err(Error::INVALID_VALUE),
    })
}

api! {
    fn cuDeviceGetCount(count: Out<i32>) {
        let machine = machine()?;
        count.required()?.set(machine.devices() as i32);
        Ok(())
    }

    fn cuDeviceGet(device: Out<i32>, ordinal: i32) {
        let machine = machine()?;
        let device = device.required()?;
        machine.device(ordinal)?;
        device.set(ordinal);
        Ok(())
    }

    fn cuDeviceGetName(name: Out<c_char>, length: i32, device: i32) {
        let machine = machine()?;
        let name = name.required()?;
        machine.device(device)?;
        require(length > 0)?;
        name.set_text(machine.name(), length as usize);
        Ok(())
    }

    fn cuDeviceGetUuid(bytes: Out<Uuid>, device: i32) {
        let machine = machine()?;
        bytes.required()?.set(uuid(machine.number(machine.device(device)?), *b"GPU"));
        Ok(())
    }

    fn cuDeviceGetUuid_v2(bytes: Out<Uuid>, device: i32) {
        let machine = machine()?;
        let kind = if is_mig() { *b"MIG" } else { *b"GPU" };
        bytes.required()?.set(uuid(machine.number(machine.device(device)?), kind));
        Ok(())
    }

    fn cuDeviceTotalMem_v2(bytes: Out<u64>, device: i32) {
        let machine = machine()?;
        let bytes = bytes.required()?;
        machine.device(device)?;
        bytes.set(DEVICE_MEMORY);
        Ok(())
    }

    fn cuDeviceGetAttribute(value: Out<i32>, number: i32, device: i32) {
        let machine = machine()?;
        let value = value.required()?;
        value.set(attribute(number, machine.number(machine.device(device)?))?);
        Ok(())
    }

    /// Deprecated.
    fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) {
        const MAJOR: i32 = 75;
        const MINOR: i32 = 76;
        let machine = machine()?;
        let (major, minor) = (major.required()?, minor.required()?);
        let number = machine.number(machine.device(device)?);
        major.set(attribute(MAJOR, number)?);
        minor.set(attribute(MINOR, number)?);
        Ok(())
    }

    fn cuDeviceGetPCIBusId(text: Out<c_char>, length: i32, device: i32) {
        let machine = machine()?;
        let text = text.required()?;
        let id = pci_text(machine.number(machine.device(device)?));
        require(length > 0)?;
        text.set_text(&id, length as usize);
        Ok(())
    }

    fn cuDeviceGetByPCIBusId(device: Out<i32>, text: In<c_char>) {
        let machine = machine()?;
        let device = device.required()?;
        let wanted = text.text()?.to_ascii_lowercase();
        let matches = |id: &String| *id == wanted || id.trim_end_matches(".0") == wanted || id.get(5..) == Some(&wanted);
        let found = (0..machine.devices()).find(|device| matches(&pci_text(machine.number(*device))));
        device.set(found.ok_or(Error::INVALID_DEVICE)? as i32);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attribute_known_unset_and_unknown() {
        assert_eq!(attribute(41, 0), Ok(1));
        assert_eq!(attribute(33, 3), Ok(4));
        assert_eq!(attribute(17, 0), Ok(0));
        assert_eq!(attribute(0, 0), Err(Error::INVALID_VALUE));
        assert_eq!(attribute(148, 0), Err(Error::INVALID_VALUE));
    }

    #[test]
    fn bus_ids_differ_between_devices() {
        assert_eq!([0, 1].map(pci_text), ["0000:01:00.0", "0000:02:00.0"]);
    }
}
