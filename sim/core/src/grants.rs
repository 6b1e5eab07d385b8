//! Access to memory that belongs to its device, as HIP has it: nobody else's at first, then all peers' of that device at once.
//!
//! Enabling opens all memory of the peer, what it allocates later included, to every device with a path to it. A copy
//! between two devices opens the two allocations in the same way. Disabling takes back nothing that is open: it only ends
//! the opening of later allocations, if nobody else has enabled access to that device.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::access::{READ_WRITE, Rights};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::gate::Gate;

/// Rights of one allocation.
struct Grant {
    device: usize,
    rights: Rights,
}

/// The access that is enabled between devices, and the allocations that are open.
#[derive(Default)]
pub(crate) struct Grants {
    /// Ordered pairs with a path: the first can reach the second.
    paths: Vec<(usize, usize)>,
    /// Ordered pairs: the first has enabled access to the second.
    enabled: BTreeSet<(usize, usize)>,
    /// By the start of the allocation.
    grants: HashMap<u64, Grant>,
}

impl Grants {
    /// Nothing is enabled, nothing open.
    pub(crate) fn new(config: &Config) -> Grants {
        let devices = config.all_devices();
        let pairs = (0..devices).flat_map(|from| (0..devices).map(move |to| (from, to)));
        Grants { paths: pairs.filter(|(from, to)| config.has_path(*from, *to)).collect(), ..Grants::default() }
    }

    /// Notes a new allocation of a device.
    pub(crate) fn add(&mut self, base: u64, device: usize) {
        self.grants.insert(base, Grant { device, rights: Rights::of(device) });
        if self.enabled.iter().any(|(_, to)| *to == device) {
            self.open(base);
        }
    }

    /// Forgets an allocation.
    pub(crate) fn forget(&mut self, base: u64) {
        self.grants.remove(&base);
    }

    /// Rights on an allocation.
    pub(crate) fn rights(&self, base: u64) -> Option<&Rights> {
        self.grants.get(&base).map(|grant| &grant.rights)
    }

    /// The gate of copies that a device makes; None if it cannot reach the allocation.
    pub(crate) fn gate(&self, device: usize, base: u64) -> Option<Arc<Gate>> {
        self.rights(base)?.gate(device)
    }

    /// Lets all peers of its device reach an allocation.
    pub(crate) fn open(&mut self, base: u64) {
        let Some(Grant { device, rights }) = self.grants.get_mut(&base) else { return };
        for (from, _) in self.paths.iter().filter(|(_, to)| to == device) {
            rights.set(*from, READ_WRITE);
        }
    }

    /// Has `from` reach all memory of `to`; says if that was so already.
    pub(crate) fn enable(&mut self, from: usize, to: usize) -> Result<()> {
        let there: Vec<u64> =
            self.grants.iter().filter(|(_, grant)| grant.device == to).map(|(base, _)| *base).collect();
        there.into_iter().for_each(|base| self.open(base));
        if self.enabled.insert((from, to)) { Ok(()) } else { Err(Error::PEER_ACCESS_ALREADY_ENABLED) }
    }

    /// Undoes [`Grants::enable`] for memory that is not allocated yet.
    pub(crate) fn disable(&mut self, from: usize, to: usize) -> Result<()> {
        if self.enabled.remove(&(from, to)) { Ok(()) } else { Err(Error::PEER_ACCESS_NOT_ENABLED) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three_devices(no_path: &[(usize, usize)]) -> Grants {
        Grants::new(&Config { devices: 3, no_path: no_path.to_vec(), ..Config::default() })
    }

    fn reaches(grants: &Grants, base: u64) -> Vec<usize> {
        (0..3).filter(|device| grants.gate(*device, base).is_some()).collect()
    }

    #[test]
    fn enable_opens_memory_of_before_and_after_to_all_with_a_path() {
        let mut grants = three_devices(&[(2, 1)]);
        grants.add(100, 1);
        assert_eq!(reaches(&grants, 100), [1]);
        assert_eq!(grants.enable(0, 1), Ok(()));
        grants.add(200, 1);
        assert_eq!([100, 200].map(|base| reaches(&grants, base)), [[0, 1], [0, 1]]);
        assert_eq!(grants.enable(0, 1), Err(Error::PEER_ACCESS_ALREADY_ENABLED));
        grants.add(300, 0);
        assert_eq!(reaches(&grants, 300), [0]);
    }

    #[test]
    fn disable_takes_nothing_back_and_opens_nothing_more() {
        let mut grants = three_devices(&[]);
        grants.add(100, 1);
        grants.enable(0, 1).unwrap();
        assert_eq!(grants.disable(0, 1), Ok(()));
        assert_eq!(grants.disable(0, 1), Err(Error::PEER_ACCESS_NOT_ENABLED));
        grants.add(200, 1);
        assert_eq!(reaches(&grants, 100), [0, 1, 2]);
        assert_eq!(reaches(&grants, 200), [1]);
    }

    #[test]
    fn disable_leaves_what_another_device_has_enabled() {
        let mut grants = three_devices(&[]);
        grants.enable(0, 1).unwrap();
        grants.enable(2, 1).unwrap();
        grants.disable(0, 1).unwrap();
        grants.add(100, 1);
        assert_eq!(reaches(&grants, 100), [0, 1, 2]);
    }

    #[test]
    fn open_and_forget_are_about_one_allocation() {
        let mut grants = three_devices(&[]);
        grants.add(100, 1);
        grants.add(200, 1);
        grants.open(100);
        assert_eq!(reaches(&grants, 100), [0, 1, 2]);
        assert_eq!(reaches(&grants, 200), [1]);
        grants.forget(100);
        assert_eq!(reaches(&grants, 100), []);
    }
}
