//! Memory that processes share, as CUDA's IPC has it: one exports an allocation, another imports it for one of its contexts.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use super::{ContextId, Machine, State};
use crate::error::{Error, Result};
use crate::fence::wait_all;
use crate::space::{Kind, Owner};

/// The contents of a handle, which the program carries to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Export {
    /// The process that exports.
    pub process: u32,
    /// The descriptor there, of the file that holds the memory.
    pub descriptor: u32,
    /// The number of that file: descriptors and processes come again.
    pub inode: u64,
    /// Bytes of the allocation.
    pub size: u64,
    /// The number on the machine of the device whose memory it is.
    pub device: u32,
}

/// Imported memory; by its first address.
pub(super) type Imports = HashMap<u64, Import>;

/// Memory that was imported.
pub(super) struct Import {
    export: Export,
    context: ContextId,
    references: u32,
}

impl Machine {
    /// Lets other processes import the allocation that an address lies in.
    pub fn export(&self, address: u64) -> Result<Export> {
        loop {
            let mut state = self.lock();
            state.current()?;
            let found = state.space.find(address).filter(|found| matches!(found.owner, Owner::Context(_))).cloned();
            let found = found.filter(|found| found.kind == Kind::Device).ok_or(Error::INVALID_VALUE)?;
            let tails = state.all_tails();
            // Its pages are replaced the first time, and no work may be using them.
            if state.space.is_shared(&found) || tails.iter().all(|fence| fence.is_done()) {
                let file = state.space.share(&found)?;
                let inode = file.metadata().map_err(|_| Error::OPERATING_SYSTEM)?.ino();
                let (process, descriptor) = (std::process::id(), file.as_raw_fd().cast_unsigned());
                let device = self.config.number(found.device) as u32;
                return Ok(Export { process, descriptor, inode, size: found.size, device });
            }
            drop(state);
            wait_all(&tails);
        }
    }

    /// Maps what another process exports, for the current context, which reaches it from then on.
    pub fn import(&self, export: Export) -> Result<u64> {
        let mut state = self.lock();
        let context = state.current()?;
        let own = state.info(context)?.device;
        if export.process == std::process::id() {
            return Err(Error::INVALID_CONTEXT);
        }
        let device = self.device_of_another(export.device as usize)?;
        let known = state.imports.iter_mut().find(|(_, import)| import.export == export);
        if let Some((base, import)) = known {
            // A handle is for one context of a process.
            if import.context != context {
                return Err(Error::INVALID_CONTEXT);
            }
            import.references += 1;
            return Ok(*base);
        }
        if own != device && !self.has_path(own, device) {
            return Err(Error::PEER_ACCESS_UNSUPPORTED);
        }
        let file = open(export).ok_or(Error::MAP_FAILED)?;
        let base = state.space.import(&file, export.size, Owner::Import(context), device)?;
        state.imports.insert(base, Import { export, context, references: 1 });
        Ok(base)
    }

    /// Undoes one [`Machine::import`]; the last one for that memory waits for all work, and unmaps it.
    pub fn close_import(&self, base: u64) -> Result<()> {
        let mut state = self.lock();
        state.current()?;
        let import = state.imports.get_mut(&base).ok_or(Error::INVALID_VALUE)?;
        import.references -= 1;
        if import.references > 0 {
            return Ok(());
        }
        state.imports.remove(&base);
        let gone = state.space.take(base, Kind::Imported).ok_or(Error::INVALID_VALUE)?;
        let tails = state.all_tails();
        drop(state);
        self.give_back(&[gone], &tails);
        Ok(())
    }
}

impl State {
    /// Forgets the imports of a context.
    pub(super) fn forget_imports(&mut self, context: ContextId) {
        self.imports.retain(|_, import| import.context != context);
    }
}

/// The file that another process holds the memory in; none if it is gone, or not to be seen from here.
fn open(Export { process, descriptor, inode, .. }: Export) -> Option<File> {
    let path = format!("/proc/{process}/fd/{descriptor}");
    let file = File::options().read(true).write(true).open(path).ok()?;
    file.metadata().is_ok_and(|data| data.ino() == inode).then_some(file)
}
