//! Memory that processes share: what this one lets others open, and what it has opened of theirs.
//!
//! The driver tells neither whose memory is, nor always on which GPU it lies: for memory that is opened by an IPC handle it names the
//! opener's device, and for memory of a GPU that the process does not see, the current one. So records have a number for such memory
//! ([`REMOTE`]), and notes in the trace tell by which handle it was exported and opened: a report joins those of all processes.

use std::collections::BTreeMap;

use p2pshim_trace::{REMOTE, REMOTE_LAST};

pub(crate) use p2pshim_host::exports::Handle;

/// The ways that memory is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum How {
    Ipc,
    Vmm,
    Pool,
}

impl How {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ipc => "ipc",
            Self::Vmm => "vmm",
            Self::Pool => "pool",
        }
    }
}

/// All memory that a number stands for: of a handle, or of a GPU that is not visible, by its UUID.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SharedObject {
    Handle(Handle),
    Gpu(String),
}

#[derive(Default)]
pub(crate) struct Shared {
    /// Physical memory that was imported, by its handles. If its device is not visible, with the number that stands for that, or 0 as long as it
    /// has none.
    pub(crate) imported: BTreeMap<usize, Option<u8>>,
    /// The numbers of memory, which stay: records have them.
    pub(crate) numbers: BTreeMap<SharedObject, u8>,
    /// How many numbers were given out.
    given: u8,
    /// The numbers of what was opened by handles, by how and where its memory begins. Of what is closed some may be left, until other
    /// memory is opened there in that way.
    pub(crate) ranges: BTreeMap<(How, u64), u8>,
    /// Memory that was opened by handles on visible GPUs, by where it begins: records have the GPU's ordinal.
    pub(crate) visible: BTreeMap<u64, (How, Handle, u8)>,
    /// Memory that was exported by handles, and not freed, by where it begins.
    pub(crate) exported: BTreeMap<u64, (How, Handle, i32)>,
    /// Bytes of physical memory, by its handles, which may come again.
    pub(crate) physical: BTreeMap<usize, u64>,
}

impl Shared {
    /// A number that nothing has, or the one for the rest.
    pub(crate) fn next(&mut self) -> u8 {
        self.given = self.given.saturating_add(1).min(REMOTE_LAST - REMOTE + 1);
        REMOTE + self.given - 1
    }
}

pub(crate) fn hex(handle: &Handle) -> String {
    handle.iter().map(|byte| format!("{byte:02x}")).collect()
}
