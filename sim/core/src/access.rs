//! Who may reach memory that belongs to no context: rights by device, granted one by one.

use std::collections::BTreeMap;

/// What a device may do, as the API numbers it.
pub const NO_ACCESS: u32 = 0;
/// Reading and writing, as the API numbers it.
pub const READ_WRITE: u32 = 3;

/// Rights by device; none where nothing is granted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights(BTreeMap<usize, u32>);

impl Rights {
    /// Full rights for one device.
    pub(crate) fn of(device: usize) -> Rights {
        Rights(BTreeMap::from([(device, READ_WRITE)]))
    }

    /// Replaces a device's rights.
    pub(crate) fn set(&mut self, device: usize, flags: u32) {
        self.0.insert(device, flags);
    }

    /// A device's rights.
    pub(crate) fn get(&self, device: usize) -> u32 {
        self.0.get(&device).copied().unwrap_or(NO_ACCESS)
    }

    /// Whether any device has any.
    pub(crate) fn reach_any(&self) -> bool {
        self.0.values().any(|flags| *flags != NO_ACCESS)
    }
}
