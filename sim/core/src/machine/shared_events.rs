//! Events that processes share: one of them records an event on its streams, others wait for it on theirs.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use super::sharing::{GONE, narrow, open_of};
use super::{Event, EventHandle, Machine, Recorded};
use crate::error::{Error, Result};
use crate::os::{self, PAGE};
use crate::work::Work;

/// The contents of a handle of an event, which the program carries to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventExport {
    /// The process that exports.
    pub process: u32,
    /// The descriptor there, of the file that the event is in.
    pub descriptor: u32,
    /// The number of that file.
    pub inode: u64,
}

/// The first word of a handle of an event of ours.
const EVENT_MARK: u64 = u64::from_le_bytes(*b"p2psimev");

impl From<EventExport> for [u64; 8] {
    fn from(EventExport { process, descriptor, inode }: EventExport) -> Self {
        [EVENT_MARK, process.into(), descriptor.into(), inode, 0, 0, 0, 0]
    }
}

impl TryFrom<[u64; 8]> for EventExport {
    type Error = Error;

    /// Measured on an H200 of zeroes.
    fn try_from([mark, process, descriptor, inode, ..]: [u64; 8]) -> Result<Self> {
        if mark != EVENT_MARK {
            return Err(GONE);
        }
        Ok(Self { process: narrow(process)?, descriptor: narrow(descriptor)?, inode })
    }
}

/// An event that other processes can open: a page of a file, with how often it was recorded, the last record that was reached, and the
/// process that made the last record.
pub(super) struct SharedEvent {
    file: File,
    page: u64,
}

/// Where these are in the page.
const RECORDS: u64 = 0;
const REACHED: u64 = 8;
const RECORDER: u64 = 16;
/// How often a wait looks.
const INTERVAL: Duration = Duration::from_millis(1);

impl SharedEvent {
    fn of(file: File) -> Result<Arc<SharedEvent>> {
        let page = os::map_file(&file, PAGE)?;
        Ok(Arc::new(SharedEvent { file, page }))
    }

    /// Counts a record. The work reaches it.
    pub(super) fn record(self: &Arc<Self>) -> Work {
        os::store(self.page + RECORDER, std::process::id().into());
        let record = os::add(self.page + RECORDS, 1) + 1;
        let event = Arc::clone(self);
        Work::Host(Arc::new(move || os::raise(event.page + REACHED, record)))
    }

    /// The last record, if it is still to be reached.
    pub(super) fn pending(&self) -> Option<u64> {
        Some(os::load(self.page + RECORDS)).filter(|record| !self.is_reached(*record))
    }

    fn is_reached(&self, record: u64) -> bool {
        os::load(self.page + REACHED) >= record
    }

    /// Waits for a record, as long as the process lives that made the last one.
    pub(super) fn wait(&self, record: u64) {
        while !self.is_reached(record) && self.has_recorder() {
            os::pause(INTERVAL);
        }
    }

    fn has_recorder(&self) -> bool {
        fs::read_link(format!("/proc/{}/exe", os::load(self.page + RECORDER))).is_ok()
    }
}

impl Drop for SharedEvent {
    fn drop(&mut self) {
        os::unmap(self.page, PAGE);
    }
}

impl Machine {
    /// Creates an event of the current context that other processes can open.
    pub fn create_shareable_event(&self) -> Result<EventHandle> {
        self.add_shared_event(os::memory_file(c"p2psim event", PAGE)?)
    }

    /// Lets other processes open an event that was created for that.
    pub fn export_event(&self, handle: EventHandle) -> Result<EventExport> {
        let state = self.lock();
        let file = &state.event(handle)?.shared.as_ref().ok_or(Error::INVALID_HANDLE)?.file;
        let inode = file.metadata().map_err(|_| Error::OPERATING_SYSTEM)?.ino();
        Ok(EventExport { process: std::process::id(), descriptor: file.as_raw_fd().cast_unsigned(), inode })
    }

    /// Opens an event of another process; it is one of the current context.
    pub fn import_event(&self, EventExport { process, descriptor, inode }: EventExport) -> Result<EventHandle> {
        if process == std::process::id() {
            return Err(Error::INVALID_CONTEXT);
        }
        self.add_shared_event(open_of(process, descriptor, inode).ok_or(GONE)?)
    }

    fn add_shared_event(&self, file: File) -> Result<EventHandle> {
        let mut state = self.lock();
        let context = state.current()?;
        let shared = Some(SharedEvent::of(file)?);
        Ok(state.add_event(Event { context, has_time: false, recorded: Recorded::Never, shared }))
    }
}
