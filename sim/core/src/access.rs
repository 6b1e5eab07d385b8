//! Access to memory that belongs to no context: rights by device, granted one by one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Error;
use crate::gate::Gate;

/// No access, as the API numbers it.
pub const NO_ACCESS: u32 = 0;
/// Reading alone, as the API numbers it.
pub(crate) const READ: u32 = 1;
/// Reading and writing, as the API numbers it.
pub const READ_WRITE: u32 = 3;

/// Rights by device; none where nothing is granted. Copies rely on them by a gate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rights(BTreeMap<usize, (u32, Arc<Gate>)>);

impl Rights {
    /// Full rights for one device.
    pub(crate) fn of(device: usize) -> Rights {
        Rights(BTreeMap::from([(device, (READ_WRITE, Gate::open()))]))
    }

    /// Replaces a device's rights. Taking them away ends direct copies that are queued, as was measured.
    pub(crate) fn set(&mut self, device: usize, flags: u32) {
        let (rights, gate) = self.0.entry(device).or_default();
        *rights = flags;
        if flags == NO_ACCESS {
            std::mem::take(gate).close(Error::LAUNCH_FAILED);
        }
    }

    /// A device's rights.
    pub(crate) fn get(&self, device: usize) -> u32 {
        self.0.get(&device).map_or(NO_ACCESS, |(rights, _)| *rights)
    }

    /// The gate of copies that a device makes by its rights; None if it has none.
    pub(crate) fn gate(&self, device: usize) -> Option<Arc<Gate>> {
        self.0.get(&device).filter(|(rights, _)| *rights != NO_ACCESS).map(|(_, gate)| Arc::clone(gate))
    }

    /// Whether any device has these rights, and perhaps more.
    pub(crate) fn allow_any(&self, flags: u32) -> bool {
        self.0.values().any(|(rights, _)| rights & flags == flags)
    }
}
