//! Memory that processes share.

use p2psim_core::Result;
use p2psim_core::machine::{EventExport, EventHandle, Export};

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
    pointer.set(machine.import(Export::try_from(handle.0)?)?);
    Ok(())
}

api! {
    fn cuIpcGetMemHandle(handle: Out<IpcHandle>, pointer: u64) {
        let machine = machine()?;
        let handle = handle.required()?;
        handle.set(IpcHandle(machine.export(pointer)?.into()));
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
        handle.set(IpcHandle(machine.export_event(EventHandle(event))?.into()));
        Ok(())
    }

    fn cuIpcOpenEventHandle(event: Out<u64>, handle: IpcHandle) {
        let machine = machine()?;
        let event = event.required()?;
        event.set(machine.import_event(EventExport::try_from(handle.0)?)?.0);
        Ok(())
    }
}
