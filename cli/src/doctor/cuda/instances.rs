//! Instances of partitioned GPUs, which drivers before 11.4 do not tell apart.

use super::{Device, Driver, Result};
use std::ffi::c_int;

functions! {
    cuDeviceGetUuid_v2(*mut [u8; 16], Device);
}

impl Driver {
    /// The UUID of an instance, or of a GPU that is not partitioned. The first form of the function says that of the GPU for either.
    pub(super) fn instance(&self, device: Device) -> Result<[u8; 16]> {
        let mut bytes = [0; 16];
        call_optional!(self, instances.cuDeviceGetUuid_v2(&mut bytes, device))?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_the_vendor() {
        for (symbol, ours, theirs) in signatures() {
            assert_eq!(ours, super::super::tests::plain(theirs), "{symbol}");
        }
    }
}
