//! Memory that processes share: CUDA's IPC, which not every driver has, nor every machine.

use super::{Address, Context, Driver, Result};
use std::ffi::{c_int, c_uint};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`: the device that opens it reaches the one that it is of.
const LAZY_ENABLE_PEER_ACCESS: c_uint = 1;

/// A handle that another process opens memory by (`CUipcMemHandle`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(in crate::doctor) struct Handle([u8; 64]);

impl Handle {
    /// As two digits for each byte.
    pub(in crate::doctor) fn write(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads what [`Handle::write`] wrote.
    pub(in crate::doctor) fn parse(text: &str) -> Option<Self> {
        let digits = |index: usize| u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok();
        let mut bytes = [0; 64];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = digits(index)?;
        }
        (text.len() == 2 * bytes.len()).then_some(Self(bytes))
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
        assert_eq!(Handle::parse(&handle.write()), Some(handle));
        for wrong in [String::new(), "0".repeat(127), "0".repeat(129), "x".repeat(128)] {
            assert_eq!(Handle::parse(&wrong), None, "{wrong}");
        }
    }
}
