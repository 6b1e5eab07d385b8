//! Memory that a process maps itself, and that another maps by a file descriptor: CUDA's Virtual Memory Management, which not
//! every driver has, nor every machine.

use super::{Address, Device, Driver, Result};
use std::ffi::{c_int, c_ulonglong, c_void};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Physical memory (`CUmemGenericAllocationHandle`).
type Physical = c_ulonglong;

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
pub(super) const PINNED: c_int = 1;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const DESCRIPTOR: c_int = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const DEVICE: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: c_int = 3;

/// `CUmemLocation`.
#[repr(C)]
pub(super) struct Location {
    kind: c_int,
    id: c_int,
}

impl Location {
    pub(super) fn of(device: Device) -> Self {
        Self { kind: DEVICE, id: device }
    }
}

/// `CUmemAllocationProp`.
#[repr(C)]
struct Properties {
    kind: c_int,
    handle_types: c_int,
    location: Location,
    security: *mut c_void,
    flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[repr(C)]
pub(super) struct Access {
    location: Location,
    flags: c_int,
}

impl Access {
    /// A device may read and write.
    pub(super) fn of(device: Device) -> Self {
        Self { location: Location::of(device), flags: READ_WRITE }
    }
}

functions! {
    cuMemCreate(*mut Physical, usize, *const Properties, c_ulonglong);
    cuMemRelease(Physical);
    cuMemExportToShareableHandle(*mut c_void, Physical, c_int, c_ulonglong);
    cuMemImportFromShareableHandle(*mut Physical, *mut c_void, c_int);
    cuMemAddressReserve(*mut Address, usize, usize, Address, c_ulonglong);
    cuMemAddressFree(Address, usize);
    cuMemMap(Address, usize, usize, Physical, c_ulonglong);
    cuMemUnmap(Address, usize);
    cuMemSetAccess(Address, usize, *const Access, usize);
}

impl Driver {
    /// Memory of a device, mapped for it, and a descriptor by which another process maps it too.
    pub(in crate::doctor) fn map_shareable(&self, device: Device, bytes: usize) -> Result<(Address, OwnedFd)> {
        let physical = self.physical(device, bytes, DESCRIPTOR)?;
        let mut descriptor: RawFd = -1;
        call_optional!(
            self,
            mapping.cuMemExportToShareableHandle((&raw mut descriptor).cast(), physical, DESCRIPTOR, 0)
        )?;
        // SAFETY: the driver has just made it for us.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok((self.map(&[device], physical, bytes)?, descriptor))
    }

    /// Memory of a device, mapped for it and for another one.
    pub(in crate::doctor) fn map_granted(&self, devices: [Device; 2], bytes: usize) -> Result<Address> {
        let [owner, _] = devices;
        let physical = self.physical(owner, bytes, 0)?;
        self.map(&devices, physical, bytes)
    }

    fn physical(&self, device: Device, bytes: usize, handle_types: c_int) -> Result<Physical> {
        let (location, security) = (Location::of(device), std::ptr::null_mut());
        let properties = Properties { kind: PINNED, handle_types, location, security, flags: [0; 8] };
        let mut physical: Physical = 0;
        call_optional!(self, mapping.cuMemCreate(&mut physical, bytes, &properties, 0))?;
        Ok(physical)
    }

    /// Maps what another process shares, for a device, which reaches it from then on.
    pub(in crate::doctor) fn map_shared(&self, device: Device, descriptor: RawFd, bytes: usize) -> Result<Address> {
        let mut physical = 0;
        let passed = std::ptr::without_provenance_mut(descriptor as usize);
        call_optional!(self, mapping.cuMemImportFromShareableHandle(&mut physical, passed, DESCRIPTOR))?;
        self.map(&[device], physical, bytes)
    }

    /// Maps physical memory, which goes with the mapping, for some devices.
    fn map(&self, devices: &[Device], physical: Physical, bytes: usize) -> Result<Address> {
        let mut address = 0;
        call_optional!(self, mapping.cuMemAddressReserve(&mut address, bytes, 0, 0, 0))?;
        call_optional!(self, mapping.cuMemMap(address, bytes, 0, physical, 0))?;
        call_optional!(self, mapping.cuMemRelease(physical))?;
        let access: Vec<Access> = devices.iter().copied().map(Access::of).collect();
        call_optional!(self, mapping.cuMemSetAccess(address, bytes, access.as_ptr(), access.len()))?;
        Ok(address)
    }

    /// Unmaps what either of these has mapped.
    pub(in crate::doctor) fn unmap(&self, address: Address, bytes: usize) -> Result<()> {
        call_optional!(self, mapping.cuMemUnmap(address, bytes))?;
        call_optional!(self, mapping.cuMemAddressFree(address, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::plain;
    use super::*;

    use cudarc::driver::sys::*;

    #[test]
    fn signatures_and_structures_are_those_of_the_vendor() {
        let name = |ours| format!("*const {ours}");
        for (symbol, ours, theirs) in signatures() {
            let theirs = plain(theirs)
                .replace("CUmemAllocationHandleType_enum", "i32")
                .replace("*const CUmemAllocationProp_st", &name(std::any::type_name::<Properties>()))
                .replace("*const CUmemAccessDesc_st", &name(std::any::type_name::<Access>()));
            assert_eq!(ours, theirs, "{symbol}");
        }
        assert_eq!(size_of::<Properties>(), size_of::<CUmemAllocationProp>());
        assert_eq!(std::mem::offset_of!(Properties, location), std::mem::offset_of!(CUmemAllocationProp, location));
        assert_eq!(size_of::<Access>(), size_of::<CUmemAccessDesc>());
    }

    #[test]
    fn numbers_are_those_of_the_vendor() {
        assert_eq!(PINNED, CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED as c_int);
        assert_eq!(DESCRIPTOR, CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0 as c_int);
        assert_eq!(DEVICE, CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as c_int);
        assert_eq!(READ_WRITE, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE as c_int);
    }
}
