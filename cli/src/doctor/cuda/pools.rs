//! Memory pools, which not every driver has.

use super::mapping::{Access, Location, PINNED};
use super::{Address, Device, Driver, Result, Stream};
use std::ffi::{c_int, c_void};

/// `CUmemPoolProps`.
#[repr(C)]
struct Properties {
    kind: c_int,
    handle_types: c_int,
    location: Location,
    security: *mut c_void,
    /// Sizes and uses, which are left to the driver.
    reserved: [u8; 64],
}

functions! {
    cuMemPoolCreate(*mut usize, *const Properties);
    cuMemPoolSetAccess(usize, *const Access, usize);
    cuMemPoolDestroy(usize);
    cuMemAllocFromPoolAsync(*mut Address, usize, usize, usize);
    cuMemFreeAsync(Address, usize);
}

impl Driver {
    /// Memory of a new pool of a device, which another device may access; and the pool.
    pub(in crate::doctor) fn pool(
        &self,
        device: Device,
        peer: Device,
        bytes: usize,
        stream: Stream,
    ) -> Result<[Address; 2]> {
        let (location, security) = (Location::of(device), std::ptr::null_mut());
        let properties = Properties { kind: PINNED, handle_types: 0, location, security, reserved: [0; 64] };
        let (mut pool, mut address) = (0, 0);
        call_optional!(self, pools.cuMemPoolCreate(&mut pool, &properties))?;
        call_optional!(self, pools.cuMemPoolSetAccess(pool, &Access::of(peer), 1))?;
        call_optional!(self, pools.cuMemAllocFromPoolAsync(&mut address, bytes, pool, stream.0))?;
        self.wait(stream)?;
        Ok([address, pool as Address])
    }

    /// Gives both back.
    pub(in crate::doctor) fn free_pool(&self, [address, pool]: [Address; 2], stream: Stream) -> Result<()> {
        call_optional!(self, pools.cuMemFreeAsync(address, stream.0))?;
        self.wait(stream)?;
        call_optional!(self, pools.cuMemPoolDestroy(pool as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::plain;
    use super::*;

    use cudarc::driver::sys::CUmemPoolProps;

    #[test]
    fn signatures_and_structures_are_those_of_the_vendor() {
        let name = |ours| format!("*const {ours}");
        for (symbol, ours, theirs) in signatures() {
            let theirs = plain(theirs)
                .replace("*const CUmemPoolProps_st", &name(std::any::type_name::<Properties>()))
                .replace("*const CUmemAccessDesc_st", &name(std::any::type_name::<Access>()));
            assert_eq!(ours, theirs, "{symbol}");
        }
        assert_eq!(size_of::<Properties>(), size_of::<CUmemPoolProps>());
    }
}
