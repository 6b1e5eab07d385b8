//! Memory that the program maps itself, as far as it can lie on a device.

use std::ffi::c_int;
use std::os::fd::IntoRawFd;

use p2psim_core::Error;
use p2psim_core::machine::{MAPPING_GRANULE, PhysicalHandle};

use super::pools::{DESCRIPTOR, NONE, PINNED, as_invalid_value, check_access, descriptors_at, device_at};
use super::require;
use super::structs::{AccessDescriptor, AllocationProperties, Location};
use crate::abi::{In, Out};
use crate::entry::{api, machine};

/// In the place of a device that is hidden from the program, as was measured.
const HIDDEN: i32 = -2;

api! {
    /// The wish for a certain address is not heard, as the API allows.
    fn cuMemAddressReserve(pointer: Out<u64>, size: u64, alignment: u64, _wish: u64, flags: u64) {
        let machine = machine()?;
        let pointer = pointer.required()?;
        require(flags == 0 && (alignment == 0 || alignment.is_power_of_two()))?;
        if alignment > MAPPING_GRANULE {
            return Err(Error::NOT_SUPPORTED);
        }
        pointer.set(machine.reserve_addresses(size)?);
        Ok(())
    }

    fn cuMemAddressFree(pointer: u64, size: u64) {
        machine()?.free_addresses(pointer, size)
    }

    fn cuMemCreate(handle: Out<u64>, size: u64, properties: In<AllocationProperties>, flags: u64) {
        let machine = machine()?;
        let handle = handle.required()?;
        let AllocationProperties { kind, handle_types, location, .. } = properties.read()?;
        require(kind == PINNED && flags == 0)?;
        let device = device_at(machine, location)?;
        let created = match handle_types {
            NONE => machine.create_physical(device, size)?,
            DESCRIPTOR => machine.create_shareable_physical(device, size)?,
            _ => return Err(Error::NOT_SUPPORTED),
        };
        handle.set(created.0);
        Ok(())
    }

    fn cuMemExportToShareableHandle(shareable: Out<c_int>, handle: u64, handle_type: u32, flags: u64) {
        let machine = machine()?;
        let shareable = shareable.required()?;
        require(handle_type == DESCRIPTOR && flags == 0)?;
        shareable.set(machine.export_physical(PhysicalHandle(handle))?.into_raw_fd());
        Ok(())
    }

    /// The descriptor is passed as a pointer.
    fn cuMemImportFromShareableHandle(handle: Out<u64>, shareable: usize, handle_type: u32) {
        let machine = machine()?;
        let handle = handle.required()?;
        require(handle_type == DESCRIPTOR)?;
        let descriptor = c_int::try_from(shareable).map_err(|_| Error::INVALID_VALUE)?;
        handle.set(machine.import_physical(descriptor)?.0);
        Ok(())
    }

    fn cuMemRelease(handle: u64) {
        machine()?.release_physical(PhysicalHandle(handle))
    }

    fn cuMemRetainAllocationHandle(handle: Out<u64>, pointer: u64) {
        let machine = machine()?;
        let handle = handle.required()?;
        handle.set(machine.retain_physical(pointer)?.0);
        Ok(())
    }

    fn cuMemMap(pointer: u64, size: u64, offset: u64, handle: u64, flags: u64) {
        require(offset == 0 && flags == 0)?;
        machine()?.map(pointer, size, PhysicalHandle(handle))
    }

    fn cuMemUnmap(pointer: u64, size: u64) {
        machine()?.unmap(pointer, size)
    }

    fn cuMemSetAccess(pointer: u64, size: u64, descriptors: In<AccessDescriptor>, count: u64) {
        let machine = machine()?;
        require(count > 0)?;
        let wanted = descriptors_at(descriptors, count, |AccessDescriptor { location, flags }| {
            check_access(flags)?;
            device_at(machine, location).map_err(as_invalid_value)
        })?;
        machine.set_access(pointer, size, &wanted)
    }

    fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, pointer: u64) {
        let machine = machine()?;
        let flags = flags.required()?;
        let device = device_at(machine, location.read()?)?;
        flags.set(machine.access_at(pointer, device)?.into());
        Ok(())
    }

    fn cuMemGetAllocationGranularity(granule: Out<u64>, properties: In<AllocationProperties>, option: u32) {
        let machine = machine()?;
        let granule = granule.required()?;
        require(option <= 1)?;
        device_at(machine, properties.read()?.location)?;
        granule.set(MAPPING_GRANULE);
        Ok(())
    }

    fn cuMemGetAllocationPropertiesFromHandle(properties: Out<AllocationProperties>, handle: u64) {
        let machine = machine()?;
        let properties = properties.required()?;
        let (device, is_shareable) = machine.physical(PhysicalHandle(handle))?;
        let device = if device < machine.devices() { device as i32 } else { HIDDEN };
        properties.set(AllocationProperties::on_device(device, if is_shareable { DESCRIPTOR } else { NONE }));
        Ok(())
    }
}
