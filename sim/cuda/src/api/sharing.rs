//! Memory that processes share.

use p2psim_core::machine::{EventExport, EventHandle, Export};
use p2psim_core::{Error, Result};

use super::require;
use super::structs::IpcHandle;
use crate::abi::Out;
use crate::entry::{api, machine};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the one flag that there is.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

fn open(pointer: Out<u64>, handle: IpcHandle, flags: u32) -> Result<()> {
    let machine = machine()?;
    let pointer = pointer.required()?;
    require(flags == LAZY_ENABLE_PEER_ACCESS)?;
    pointer.set(machine.import(Export::try_from(handle)?)?);
    Ok(())
}

/// The first word of a handle of ours.
const MARK: u64 = u64::from_le_bytes(*b"p2psim\0\0");
/// The first word of a handle of an event of ours.
const EVENT_MARK: u64 = u64::from_le_bytes(*b"p2psimev");

fn narrow(number: u64) -> Result<u32> {
    u32::try_from(number).map_err(|_| Error::INVALID_VALUE)
}

impl From<EventExport> for IpcHandle {
    fn from(EventExport { process, descriptor, inode }: EventExport) -> Self {
        Self([EVENT_MARK, process.into(), descriptor.into(), inode, 0, 0, 0, 0])
    }
}

impl TryFrom<IpcHandle> for EventExport {
    type Error = Error;

    fn try_from(IpcHandle([mark, process, descriptor, inode, ..]): IpcHandle) -> Result<Self> {
        // Measured on an H200 of zeroes.
        if mark != EVENT_MARK {
            return Err(Error::MAP_FAILED);
        }
        Ok(Self { process: narrow(process)?, descriptor: narrow(descriptor)?, inode })
    }
}

impl From<Export> for IpcHandle {
    /// Bytes 8 to 11 are the process, 16 to 23 the size, as was measured.
    fn from(Export { process, size, descriptor, inode, address }: Export) -> Self {
        let mut words = [0; 8];
        let known = [MARK, process.into(), size, descriptor.into(), inode, address];
        words.iter_mut().zip(known).for_each(|(word, known)| *word = known);
        Self(words)
    }
}

impl TryFrom<IpcHandle> for Export {
    type Error = Error;

    fn try_from(IpcHandle([mark, process, size, descriptor, inode, address, ..]): IpcHandle) -> Result<Self> {
        require(mark == MARK)?;
        Ok(Self { process: narrow(process)?, size, descriptor: narrow(descriptor)?, inode, address })
    }
}

api! {
    fn cuIpcGetMemHandle(handle: Out<IpcHandle>, pointer: u64) {
        let machine = machine()?;
        let handle = handle.required()?;
        handle.set(machine.export(pointer)?.into());
        Ok(())
    }

    fn cuIpcOpenMemHandle(pointer: Out<u64>, handle: IpcHandle, flags: u32) {
        open(pointer, handle, flags)
    }

    fn cuIpcOpenMemHandle_v2(pointer: Out<u64>, handle: IpcHandle, flags: u32) {
        open(pointer, handle, flags)
    }

    fn cuIpcCloseMemHandle(pointer: u64) {
        machine()?.close_import(pointer)
    }

    fn cuIpcGetEventHandle(handle: Out<IpcHandle>, event: u64) {
        let machine = machine()?;
        let handle = handle.required()?;
        handle.set(machine.export_event(EventHandle(event))?.into());
        Ok(())
    }

    fn cuIpcOpenEventHandle(event: Out<u64>, handle: IpcHandle) {
        let machine = machine()?;
        let event = event.required()?;
        event.set(machine.import_event(EventExport::try_from(handle)?)?.0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_says_what_was_exported_and_others_are_refused() {
        let export = Export { process: 7, size: 4096, descriptor: 3, inode: 1 << 40, address: 1 << 20 };
        assert_eq!(Export::try_from(IpcHandle::from(export)), Ok(export));
        let IpcHandle(words) = IpcHandle::from(export);
        assert_eq!((words[1] as u32, words[2]), (7, 4096));
        assert_eq!(Export::try_from(IpcHandle([0; 8])), Err(Error::INVALID_VALUE));
    }
}
