//! Peer access that is hidden from the program: `P2PSHIM_ACCESS=off`, `P2PSHIM_DENY`, `P2PSHIM_BROKEN=refuse`.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::Access;
use super::registry::AllocationOwner;
use crate::api::abi::Code;
use crate::config;
use crate::objects::captures;
use crate::policy::driver::{Driver, Holder};
use crate::record::log;

/// The memory that a function sets rights of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grants {
    OfPool(usize),
    /// Memory that is mapped in a range of addresses.
    OfMapped {
        address: u64,
        bytes: u64,
    },
}

impl Grants {
    /// Its first byte, which mostly says whose all of it is.
    fn first(self) -> Self {
        match self {
            Self::OfMapped { address, bytes } => Self::OfMapped { address, bytes: bytes.min(1) },
            Self::OfPool(_) => self,
        }
    }
}

impl Access {
    #[inline(always)]
    pub(crate) fn blocks(&self) -> bool {
        self.verifier.blocks()
    }

    /// Looks up the devices that `P2PSHIM_DENY` names, once there are any.
    pub(super) fn look_up_denied(&self, driver: &impl Driver) {
        let is_wanted = {
            let registry = self.lock();
            !registry.denied.is_empty() && registry.gpus.is_empty()
        };
        let count = if is_wanted { driver.device_count() } else { 0 };
        if count == 0 {
            return;
        }
        let gpus: Vec<[String; 2]> = (0..count).map(|device| driver.names(device).unwrap_or_default()).collect();
        let missing = self.lock().look_up_denied(gpus).into_iter().map(|ordinal| {
            format!(
                "P2PSHIM_DENY names device {ordinal}, and this process has {count}, from 0 on: pairs with device {ordinal} are not denied"
            )
        });
        log::warnings(&missing.collect::<Vec<_>>());
    }

    pub(super) fn denies_all(&self) -> bool {
        self.lock().access == config::Access::Off
    }

    /// Whether zeros take the place of what a successful query returned about a device's access to another.
    pub(crate) fn is_hidden(&self, driver: &impl Driver, device: i32, peer: i32, attribute: Option<i32>) -> bool {
        /// `CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK`, which compares links and says nothing of access.
        const PERFORMANCE_RANK: i32 = 1;
        if attribute == Some(PERFORMANCE_RANK) {
            return false;
        }
        self.look_up_denied(driver);
        self.admit_asking(driver, [device, peer]);
        let registry = self.lock();
        let is_hidden = registry.is_hidden(device, peer);
        if !is_hidden && (!self.admits() || registry.is_verified(device, peer)) {
            self.shown_to(device).inspect(|peers| _ = peers.fetch_or(bit(peer), Relaxed));
        }
        is_hidden
    }

    /// Whether nothing can be hidden of a device's access to another: it is itself, or its path was verified, or is not to be,
    /// and no pair is blocked.
    #[inline(always)]
    pub(crate) fn is_shown(&self, device: i32, peer: i32) -> bool {
        let is_known = || self.shown_to(device).is_some_and(|peers| peers.load(Relaxed) & bit(peer) != 0);
        device == peer || !self.blocks() && is_known()
    }

    pub(super) fn forget_shown(&self) {
        self.shown.iter().for_each(|peers| peers.store(0, Relaxed));
    }

    #[inline(always)]
    fn shown_to(&self, device: i32) -> Option<&AtomicU64> {
        self.shown.get(usize::try_from(device).ok()?)
    }

    /// Whether the access of a device to another is hidden, by their UUIDs and PCI addresses: a process may not see both.
    pub(crate) fn is_hidden_by_name(&self, driver: &impl Driver, names: [&[String; 2]; 2]) -> bool {
        // NCCL asks about a device and itself as well.
        if names[0] == names[1] {
            return false;
        }
        if self.denies_all() {
            return true;
        }
        let gpus: Vec<[String; 2]> = (0..driver.device_count()).filter_map(|device| driver.names(device)).collect();
        let ordinal = |[uuid, _]: &[String; 2]| {
            let is_it = |[known, _]: &[String; 2]| known.eq_ignore_ascii_case(uuid);
            gpus.iter().position(is_it).and_then(|position| i32::try_from(position).ok())
        };
        let [device, peer] = names;
        match (ordinal(device), ordinal(peer)) {
            (Some(device), Some(peer)) => self.is_hidden(driver, device, peer, None),
            _ => {
                let (is_denied, refuses) = {
                    let registry = self.lock();
                    (registry.is_denied_by_name(names), registry.refuses_what_is_broken())
                };
                let verdict = || driver.verdict_between([&device[0], &peer[0]]);
                is_denied || self.admits() && refuses && verdict().is_some_and(|kept| kept.any_failure().is_some())
            }
        }
    }

    /// The code for a call that grants devices access to memory, if any of them may not have it.
    pub(crate) fn refused(&self, driver: &impl Driver, of: Grants, devices: &[i32]) -> Option<Code> {
        if let Grants::OfPool(pool) = of
            && let refused @ Some(_) = self.refused_pool(driver, pool, devices)
        {
            return refused;
        }
        let count = driver.device_count();
        if count < 2 || devices.iter().any(|device| !(0..count).contains(device)) {
            return None;
        }
        self.look_up_denied(driver);
        if let Grants::OfMapped { address, bytes } = of
            && self.has_imported()
        {
            // All of it only where something may have to be said of it.
            let bytes = if self.blocks() { bytes } else { bytes.min(1) };
            let imported = owners_of_mapped(driver, address, bytes, |at| self.is_imported(driver, at));
            if let Some(refused) = self.refused_imported(driver, &imported, devices) {
                return Some(refused);
            }
        }
        if self.admits() {
            // The one whose memory it is has access from the start.
            for owner in self.owners(driver, of.first()) {
                for &device in devices.iter().filter(|&&device| device != owner) {
                    self.admit(driver, [device, owner], [0, 0]);
                }
            }
        }
        if !self.blocks() {
            return None;
        }
        let owners = self.owners(driver, of);
        let mut registry = self.lock();
        let pairs = devices.iter().flat_map(|&device| owners.iter().map(move |&owner| [device, owner]));
        let refused: Vec<[i32; 2]> = pairs.filter(|&[device, owner]| registry.is_hidden(device, owner)).collect();
        registry.refused_rights.extend(&refused);
        (!refused.is_empty()).then_some(Code::INVALID_DEVICE)
    }

    /// The devices whose memory it is.
    fn owners(&self, driver: &impl Driver, of: Grants) -> Vec<i32> {
        match of {
            // Imported memory is never refused.
            Grants::OfMapped { address, bytes } => {
                owners_of_mapped(driver, address, bytes, |at| !self.is_imported(driver, at))
            }
            Grants::OfPool(pool) => self.owners_of_pool(driver, pool),
        }
    }

    /// The device of a pool: known since it was made or copied, or its device's from the start. Of a pool from another
    /// process only those are known that have access to it: if nobody may have any, that will do.
    fn owners_of_pool(&self, driver: &impl Driver, pool: usize) -> Vec<i32> {
        let known = self.lock().find(|owner| matches!(owner, AllocationOwner::Pool { handle, .. } if *handle == pool));
        if let Some((_, AllocationOwner::Pool { device, .. })) = known {
            return vec![device];
        }
        let devices = || 0..driver.device_count();
        match devices().find(|&device| driver.default_pool(device) == Some(pool)) {
            Some(device) => vec![device],
            None if self.denies_all() && !captures::may_be_under_way() => {
                devices().filter(|&device| driver.pool_access(pool, device)).collect()
            }
            None => Vec::new(),
        }
    }
}

/// The bit of a peer; none for one that is no device.
#[inline(always)]
fn bit(peer: i32) -> u64 {
    1u64.checked_shl(peer.cast_unsigned()).unwrap_or(0)
}

pub(super) fn granules(address: u64, bytes: u64) -> impl Iterator<Item = u64> {
    /// A mapping has at least so many bytes, and begins at a multiple of them.
    const GRANULARITY: usize = 2 << 20;
    (address..address.saturating_add(bytes.max(1))).step_by(GRANULARITY)
}

/// The devices of what is mapped in a range, as far as it is wanted. Memory of the host can be mapped as well: nobody is denied that.
fn owners_of_mapped(driver: &impl Driver, address: u64, bytes: u64, is_wanted: impl Fn(u64) -> bool) -> Vec<i32> {
    let mut owners = Vec::new();
    for at in granules(address, bytes).filter(|&at| is_wanted(at)) {
        let memory = driver.memory(at).filter(|memory| memory.holder == Holder::Mapped);
        owners.extend(memory.map(|memory| memory.device).filter(|device| !owners.contains(device)));
    }
    owners
}
