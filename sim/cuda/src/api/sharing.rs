//! Memory that processes share.

use p2psim_core::machine::Export;
use p2psim_core::{Error, Result};

use super::require;
use super::structs::IpcMemHandle;
use crate::abi::Out;
use crate::entry::{api, machine};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the one flag that there is.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

fn open(pointer: Out<u64>, handle: IpcMemHandle, flags: u32) -> Result<()> {
    let machine = machine()?;
    let pointer = pointer.required()?;
    require(flags == LAZY_ENABLE_PEER_ACCESS)?;
    pointer.set(machine.import(Export::try_from(handle)?)?);
    Ok(())
}

/// The first word of a handle of ours.
const MARK: u64 = u64::from_le_bytes(*b"p2psim\0\0");

impl From<Export> for IpcMemHandle {
    /// Bytes 8 to 11 are the process, 16 to 23 the size, as was measured.
    fn from(Export { process, size, descriptor, inode, address }: Export) -> Self {
        let mut words = [0; 8];
        let known = [MARK, process.into(), size, descriptor.into(), inode, address];
        words.iter_mut().zip(known).for_each(|(word, known)| *word = known);
        Self(words)
    }
}

impl TryFrom<IpcMemHandle> for Export {
    type Error = Error;

    fn try_from(IpcMemHandle([mark, process, size, descriptor, inode, address, ..]): IpcMemHandle) -> Result<Self> {
        require(mark == MARK)?;
        let narrow = |number: u64| u32::try_from(number).map_err(|_| Error::INVALID_VALUE);
        Ok(Self { process: narrow(process)?, size, descriptor: narrow(descriptor)?, inode, address })
    }
}

api! {
    fn cuIpcGetMemHandle(handle: Out<IpcMemHandle>, pointer: u64) {
        let machine = machine()?;
        let handle = handle.required()?;
        handle.set(machine.export(pointer)?.into());
        Ok(())
    }

    fn cuIpcOpenMemHandle(pointer: Out<u64>, handle: IpcMemHandle, flags: u32) {
        open(pointer, handle, flags)
    }

    fn cuIpcOpenMemHandle_v2(pointer: Out<u64>, handle: IpcMemHandle, flags: u32) {
        open(pointer, handle, flags)
    }

    fn cuIpcCloseMemHandle(pointer: u64) {
        machine()?.close_import(pointer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_says_what_was_exported_and_others_are_refused() {
        let export = Export { process: 7, size: 4096, descriptor: 3, inode: 1 << 40, address: 1 << 20 };
        assert_eq!(Export::try_from(IpcMemHandle::from(export)), Ok(export));
        let IpcMemHandle(words) = IpcMemHandle::from(export);
        assert_eq!((words[1] as u32, words[2]), (7, 4096));
        assert_eq!(Export::try_from(IpcMemHandle([0; 8])), Err(Error::INVALID_VALUE));
    }
}
