//! Memory and events that processes share. As in the sources of clr; no AMD GPU was measured.

use p2psim_core::Error;
use p2psim_core::machine::{EventExport, EventHandle, Export};

use super::require;
use crate::abi::Out;
use crate::entry::api;

/// `hipIpcMemHandle_t` and `hipIpcEventHandle_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct IpcHandle([u64; 8]);

/// `hipIpcMemLazyEnablePeerAccess`, the only flag there is.
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

api! {
    fn hipIpcGetMemHandle [gpus] (handle: Out<IpcHandle>, pointer: u64) {
        let handle = handle.required()?;
        handle.set(IpcHandle(gpus.export(pointer)?.into()));
        Ok(())
    }

    fn hipIpcOpenMemHandle [gpus] (pointer: Out<u64>, handle: IpcHandle, flags: u32) {
        let pointer = pointer.required()?;
        require(flags == LAZY_ENABLE_PEER_ACCESS)?;
        pointer.set(gpus.import(Export::try_from(handle.0)?)?);
        Ok(())
    }

    fn hipIpcCloseMemHandle [gpus] (pointer: u64) {
        require(pointer != 0)?;
        Ok(gpus.close_import(pointer)?)
    }

    fn hipIpcGetEventHandle [gpus] (handle: Out<IpcHandle>, event: u64) {
        let handle = handle.required()?;
        handle.set(IpcHandle(gpus.export_event(EventHandle(event)).map_err(|_| Error::INVALID_VALUE)?.into()));
        Ok(())
    }

    fn hipIpcOpenEventHandle [gpus] (event: Out<u64>, handle: IpcHandle) {
        let event = event.required()?;
        event.set(gpus.import_event(EventExport::try_from(handle.0)?)?.0);
        Ok(())
    }
}
