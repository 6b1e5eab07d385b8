//! Memory that processes share: CUDA's IPC, which not every driver has, nor every machine.

use super::{Address, Context, Driver, Result};
use std::ffi::{c_int, c_uint};

use serde::{Deserialize, Serialize};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`: the device that opens it reaches the one that it is of.
const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;

/// A handle that another process opens memory by (`CUipcMemHandle`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<u8>", try_from = "Vec<u8>")]
#[repr(C)]
pub(in crate::doctor) struct Handle([u8; 64]);

impl From<Handle> for Vec<u8> {
    fn from(handle: Handle) -> Self {
        handle.0.to_vec()
    }
}

impl TryFrom<Vec<u8>> for Handle {
    type Error = String;

    fn try_from(bytes: Vec<u8>) -> std::result::Result<Self, String> {
        bytes.try_into().map(Self).map_err(|bytes| format!("a handle of {} bytes", bytes.len()))
    }
}

functions! {
    cuIpcGetMemHandle(*mut Handle, Address);
    cuIpcOpenMemHandle_v2(*mut Address, Handle, c_uint);
    cuIpcCloseMemHandle(Address);
}

impl Driver {
    /// The handle that another process opens an allocation by.
    pub(in crate::doctor) fn export(&self, context: Context, address: Address) -> Result<Handle> {
        self.enter(context)?;
        let mut handle = Handle([0; 64]);
        call_optional!(self, sharing.cuIpcGetMemHandle(&mut handle, address))?;
        Ok(handle)
    }

    /// Opens what another process has exported, for a context, which reaches it from then on.
    pub(in crate::doctor) fn import(&self, context: Context, handle: Handle) -> Result<Address> {
        self.enter(context)?;
        let mut address = 0;
        call_optional!(self, sharing.cuIpcOpenMemHandle_v2(&mut address, handle, LAZY_ENABLE_PEER_ACCESS))?;
        Ok(address)
    }

    /// Closes it.
    pub(in crate::doctor) fn close(&self, context: Context, address: Address) -> Result<()> {
        self.enter(context)?;
        call_optional!(self, sharing.cuIpcCloseMemHandle(address))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::plain;
    use super::*;

    use cudarc::driver::sys::CUipcMem_flags;

    #[test]
    fn signatures_and_numbers_are_those_of_the_vendor() {
        for (symbol, ours, theirs) in signatures() {
            let theirs = plain(theirs).replace("CUipcMemHandle_st", std::any::type_name::<Handle>());
            assert_eq!(ours, theirs, "{symbol}");
        }
        assert_eq!(size_of::<Handle>(), size_of::<cudarc::driver::sys::CUipcMemHandle>());
        assert_eq!(LAZY_ENABLE_PEER_ACCESS, CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as c_uint);
    }

    #[test]
    fn handle_is_what_was_written_and_nothing_else_is_one() {
        let mut handle = Handle([0xa5; 64]);
        handle.0[63] = 7;
        let text = serde_json::to_string(&handle).unwrap();
        assert_eq!(serde_json::from_str::<Handle>(&text).unwrap(), handle);
        assert!(serde_json::from_str::<Handle>("[165]").is_err());
    }
}
