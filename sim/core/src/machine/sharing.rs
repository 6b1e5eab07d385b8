//! Memory that processes share, as CUDA's IPC has it: one exports an allocation, another imports it for one of its contexts.

use std::collections::{BTreeSet, HashMap};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use super::{ContextId, Machine, State};
use crate::error::{Error, Result};
use crate::os;
use crate::space::{Allocation, Kind, Owner};

/// The answer to a context that opens memory of a device which its own has no path to: seen of a real driver, in public reports. The
/// documentation lists 205 and 711, and not this one.
const NO_PATH: Error = Error::PEER_ACCESS_UNSUPPORTED;
/// The answer to a handle whose memory, or process, is gone. Documented, not measured.
pub(super) const GONE: Error = Error::MAP_FAILED;
/// The beginning of the names of files that hold memory of a device; its number on the machine follows.
pub(super) const MEMORY: &str = "p2psim memory of device ";
/// The beginning of the names of files that hold pools.
pub(super) const POOL: &str = "p2psim pool of device ";

/// The contents of a handle, which the program carries to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Export {
    /// The process that exports.
    pub process: u32,
    /// Bytes of the allocation.
    pub size: u64,
    /// The descriptor there, of the file that holds the memory.
    pub descriptor: u32,
    /// The number of that file: descriptors and processes come again.
    pub inode: u64,
    /// The allocation's first address there.
    pub address: u64,
    /// Where it begins in the file.
    pub place: u64,
}

impl Export {
    /// Whether it is of addresses that another one is of too: one of the two allocations is gone.
    fn overlaps(&self, other: &Export) -> bool {
        let ends = |export: &Export| export.address.saturating_add(export.size);
        self.process == other.process && self.address < ends(other) && other.address < ends(self)
    }
}

/// The first word of a handle of ours.
const MARK: u64 = u64::from_le_bytes(*b"p2psim\0\0");

pub(super) fn narrow(number: u64) -> Result<u32> {
    u32::try_from(number).map_err(|_| Error::INVALID_VALUE)
}

impl From<Export> for [u64; 8] {
    /// Bytes 8 to 11 are the process, 16 to 23 the size, as was measured.
    fn from(Export { process, size, descriptor, inode, address, place }: Export) -> Self {
        [MARK, process.into(), size, descriptor.into(), inode, address, place, 0]
    }
}

impl TryFrom<[u64; 8]> for Export {
    type Error = Error;

    fn try_from([mark, process, size, descriptor, inode, address, place, _]: [u64; 8]) -> Result<Self> {
        if mark != MARK {
            return Err(Error::INVALID_VALUE);
        }
        Ok(Self { process: narrow(process)?, size, descriptor: narrow(descriptor)?, inode, address, place })
    }
}

/// A file that another process holds open; none if it is gone, or not to be seen from here.
pub(super) fn open_of(process: u32, descriptor: u32, inode: u64) -> Option<File> {
    let file = File::options().read(true).write(true).open(format!("/proc/{process}/fd/{descriptor}")).ok()?;
    file.metadata().is_ok_and(|data| data.ino() == inode).then_some(file)
}

/// Imported memory; by its first address.
pub(super) type Imports = HashMap<u64, Import>;

/// Memory that a context has imported.
pub(super) struct Import {
    export: Export,
    context: ContextId,
    /// The device whose memory it is.
    device: usize,
    references: u32,
    /// Open as long as this is: its owner sees that, and gives nothing back.
    _file: File,
}

/// Where the bytes are of what the program can share.
pub(super) enum Origin {
    /// At their address.
    Own,
    /// In a file of this process, which may be mapped to several addresses.
    Private(Arc<File>),
    /// In a file that other processes can map.
    Shareable(Arc<File>),
    /// In a file of another process, or of this one; whose memory it was before.
    Imported(Arc<File>),
}

impl Origin {
    pub(super) fn file(&self) -> Option<&Arc<File>> {
        match self {
            Self::Own | Self::Private(_) => None,
            Self::Shareable(file) | Self::Imported(file) => Some(file),
        }
    }

    /// The file that holds the bytes, if one does.
    pub(super) fn bytes(&self) -> Option<&Arc<File>> {
        if let Self::Private(file) = self { Some(file) } else { self.file() }
    }

    pub(super) fn is_imported(&self) -> bool {
        matches!(self, Self::Imported(_))
    }
}

impl Machine {
    /// Lets other processes import the allocation that an address lies in. It waits for nothing: measured on an H200.
    pub fn export(&self, address: u64) -> Result<Export> {
        let mut state = self.lock();
        state.current()?;
        let found =
            state.space.find(address).filter(|found| matches!(found.owner, Owner::Context(_) | Owner::Device)).cloned();
        let found = found.filter(|found| found.kind == Kind::Device).ok_or(Error::INVALID_VALUE)?;
        let (file, place) = state.space.share(&found, &self.file_name(MEMORY, found.device)?)?;
        let inode = file.metadata().map_err(|_| Error::OPERATING_SYSTEM)?.ino();
        let (process, descriptor) = (std::process::id(), file.as_raw_fd().cast_unsigned());
        Ok(Export { process, size: found.size, descriptor, inode, address: found.base, place })
    }

    /// Maps what another process exports, for the current context, which reaches it from then on. It counts how often.
    pub fn import(&self, export: Export) -> Result<u64> {
        let mut state = self.lock();
        let context = state.current()?;
        let own = state.info(context)?.device;
        if export.process == std::process::id() {
            return Err(Error::INVALID_CONTEXT);
        }
        let is_known = |(_, import): &(&u64, &mut Import)| import.export == export && import.context == context;
        if let Some((base, import)) = state.imports.iter_mut().find(is_known) {
            import.references += 1;
            return Ok(*base);
        }
        let file = open_of(export.process, export.descriptor, export.inode).ok_or(GONE)?;
        // Of a device that the process does not see it is as good as of another.
        let device = self.device_of_file(&file, MEMORY)?;
        state.refuse_import(context, &export)?;
        if own != device {
            if !self.has_path(own, device) {
                return Err(NO_PATH);
            }
            let reached = state.reached_devices(context);
            if !reached.contains(&device) && reached.len() >= self.config.max_peers {
                return Err(Error::TOO_MANY_PEERS);
            }
        }
        let base = state.space.import((&file, export.place), export.size, Owner::Import(context), device)?;
        os::hold(&file);
        state.imports.insert(base, Import { export, context, device, references: 1, _file: file });
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

    /// Whether memory is shared with other processes by a descriptor, or can be.
    pub fn has_descriptor(&self, found: &Allocation) -> bool {
        let state = self.lock();
        match found.owner {
            Owner::Pool(pool) => state.pools.get(&pool).is_some_and(|pool| pool.origin.file().is_some()),
            Owner::Mapping => state.mappings.origin(found.base).is_some_and(|origin| origin.file().is_some()),
            Owner::Context(_) | Owner::Import(_) | Owner::Device => false,
        }
    }

    /// The name of a file that holds memory of a device.
    pub(super) fn file_name(&self, kind: &str, device: usize) -> Result<CString> {
        CString::new(format!("{kind}{}", self.config.number(device))).map_err(|_| Error::INVALID_DEVICE)
    }

    /// The device, which may be a hidden one, that a file of some process is of.
    pub(super) fn device_of_file(&self, file: &File, kind: &str) -> Result<usize> {
        let name = os::name_of(file).ok_or(Error::INVALID_VALUE)?;
        let number: usize =
            name.strip_prefix(kind).and_then(|number| number.parse().ok()).ok_or(Error::INVALID_VALUE)?;
        Some(self.config.device(number))
            .filter(|device| *device < self.config.all_devices())
            .ok_or(Error::INVALID_DEVICE)
    }
}

impl State {
    /// Forgets the imports of a context.
    pub(super) fn forget_imports(&mut self, context: ContextId) {
        self.imports.retain(|_, import| import.context != context);
    }

    /// A handle is for one context of each device, as documented. Where the context has older memory of the same addresses still open, the
    /// driver was seen to say that they are mapped, in public reports.
    fn refuse_import(&self, context: ContextId, export: &Export) -> Result<()> {
        let device = self.info(context)?.device;
        let is_of_device = |import: &&Import| self.info(import.context).is_ok_and(|info| info.device == device);
        let mut others = self.imports.values().filter(|import| import.context != context).filter(is_of_device);
        if others.any(|import| import.export == *export) {
            return Err(Error::INVALID_CONTEXT);
        }
        let mut own = self.imports.values().filter(|import| import.context == context);
        if own.any(|import| import.export.overlaps(export)) { Err(Error::ALREADY_MAPPED) } else { Ok(()) }
    }

    /// The other devices whose memory a context reaches: its peers', and what it has imported.
    fn reached_devices(&self, context: ContextId) -> BTreeSet<usize> {
        let peers = self.peers.of(context).filter_map(|peer| self.info(peer).ok()).map(|info| info.device);
        let imports = self.imports.values().filter(|import| import.context == context).map(|import| import.device);
        let own = self.info(context).map(|info| info.device).ok();
        peers.chain(imports).filter(|device| Some(*device) != own).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_says_what_was_exported_and_others_are_refused() {
        let export = Export { process: 7, size: 4096, descriptor: 3, inode: 1 << 40, address: 1 << 20, place: 512 };
        let words = <[u64; 8]>::from(export);
        assert_eq!(Export::try_from(words), Ok(export));
        assert_eq!((words[1] as u32, words[2]), (7, 4096));
        assert_eq!(Export::try_from([0; 8]), Err(Error::INVALID_VALUE));
    }
}
