//! Peer access that is hidden from the program: `P2PSHIM_ACCESS=off`, `P2PSHIM_DENY`.

use std::sync::atomic::Ordering::Relaxed;

use super::Access;
use super::registry::Owner;
use crate::api::Function;
use crate::api::abi::Code;
use crate::config;
use crate::policy::{Driver, Holder};

/// What is written over a successful answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// Nothing: the answer stays.
    Nothing,
    /// Zeros: no access, no such capability.
    Zeros,
}

/// Who a function grants access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// A pool's.
    Pool(usize),
    /// What is mapped at an address.
    Mapped(u64),
}

/// `CUDA_ERROR_INVALID_DEVICE`: what the driver answers where there is no path.
const INVALID_DEVICE: Code = Code(101);

impl Access {
    /// Whether anything is hidden.
    #[inline(always)]
    pub(crate) fn hides(&self) -> bool {
        self.hides.load(Relaxed)
    }

    pub(super) fn denies_all(&self) -> bool {
        self.lock().access == config::Access::Off
    }

    /// What becomes of the output of a query about a device's access to another.
    pub(crate) fn hidden(&self, function: Function, device: i32, peer: i32, attribute: Option<i32>) -> Hidden {
        /// `CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK`: 0 is the best, and no access.
        const PERFORMANCE_RANK: i32 = 1;
        let is_query = matches!(
            function,
            Function::cuDeviceCanAccessPeer
                | Function::cuDeviceGetP2PAttribute
                | Function::cuDeviceGetP2PAtomicCapabilities
        );
        let is_hidden = is_query && attribute != Some(PERFORMANCE_RANK) && self.lock().is_denied(device, peer);
        if is_hidden { Hidden::Zeros } else { Hidden::Nothing }
    }

    /// What is answered to a call that grants devices access to memory, if any of them may not have it.
    pub(crate) fn refused(&self, driver: &impl Driver, of: Named, devices: &[i32]) -> Option<Code> {
        let owners = match of {
            Named::Mapped(address) => {
                // Memory of the host can be mapped as well: nobody is denied that.
                let of_a_device = driver.memory(address).filter(|memory| memory.holder == Holder::Mapped);
                of_a_device.map(|memory| memory.device).into_iter().collect()
            }
            Named::Pool(pool) => self.owners_of_pool(driver, pool),
        };
        if devices.iter().any(|device| !(0..driver.device_count()).contains(device)) {
            return None;
        }
        // The one whose memory it is has access from the start.
        let registry = self.lock();
        let is_refused =
            |device: &i32| !owners.contains(device) && owners.iter().any(|&owner| registry.is_denied(*device, owner));
        devices.iter().any(is_refused).then_some(INVALID_DEVICE)
    }

    /// The device of a pool: known from a copy, or from the start, or the one that has access to it.
    fn owners_of_pool(&self, driver: &impl Driver, pool: usize) -> Vec<i32> {
        let known = self.lock().find(|owner| matches!(owner, Owner::Pool { handle, .. } if *handle == pool));
        if let Some((_, Owner::Pool { device, .. })) = known {
            return vec![device];
        }
        let devices = || 0..driver.device_count();
        match devices().find(|&device| driver.default_pool(device) == Some(pool)) {
            Some(device) => vec![device],
            None => devices().filter(|&device| driver.pool_access(pool, device)).collect(),
        }
    }
}
