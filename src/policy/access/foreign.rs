//! Memory of other processes: the program's access to it is never refused, and warned about where it is denied or broken.

use std::sync::atomic::Ordering::Relaxed;

use super::Access;
use super::hide::Grants;
use crate::config;
use crate::policy::driver::Driver;
use crate::policy::full::Verdict;
use crate::record::log;

impl Access {
    /// The program has opened memory of another process, which is never refused. Says, once, if the current device's access to another is
    /// denied or broken: the driver does not tell on which device such memory lies.
    pub(crate) fn warn_of_foreign_memory(&self, driver: &impl Driver) {
        let device = driver.current_context().and_then(|context| driver.device_of_context(context));
        let Some(device) = device else { return };
        self.look_up_denied(driver);
        for peer in 0..driver.device_count() {
            if self.lock().access == config::Access::Off {
                return self.warn_of_foreign(driver, [device, i32::from(device == 0)], "another device");
            }
            self.warn_of_foreign(driver, [device, peer], &format!("device {peer}"));
        }
    }

    /// Says, once, that memory of another process that lies there is not for this device, if that is so.
    fn warn_of_foreign(&self, driver: &impl Driver, [device, peer]: [i32; 2], lies_on: &str) {
        if device == peer || [device, peer].iter().any(|known| !(0..64).contains(known)) {
            return;
        }
        let has_failed_earlier = || matches!(self.kept(driver, device, peer), Some(Verdict::Failed(_)));
        let has_failed = self.lock().is_broken(device, peer) || self.admits() && has_failed_earlier();
        let mut registry = self.lock();
        let is_denied = registry.is_denied(device, peer);
        if !(is_denied || has_failed) || !registry.said_of_foreign.insert([device, peer]) {
            return;
        }
        drop(registry);
        let what = match is_denied {
            true => "it is accessed though that is denied",
            false => "its data may be wrong: peer access there is broken",
        };
        log::pair_warn(
            device as u8,
            peer as u8,
            format_args!(
                "memory of another process was opened on device {device}. If it lies on {lies_on}, {what}. p2pshim neither refuses \
                 memory of other processes nor stages its copies. NCCL_P2P_DISABLE=1 keeps NCCL from it"
            ),
        );
    }

    /// The program gives devices rights to memory that was imported, and lies on these.
    pub(super) fn warn_of_imported(&self, driver: &impl Driver, owners: &[i32], devices: &[i32]) {
        for owner in owners {
            let lies_on = format!("device {owner}");
            devices.iter().for_each(|&device| self.warn_of_foreign(driver, [device, *owner], &lies_on));
        }
    }

    /// Whether physical memory of other processes was imported.
    pub(crate) fn has_imported(&self) -> bool {
        self.has_imported.load(Relaxed)
    }

    /// Physical memory of another process was imported, by that handle.
    pub(crate) fn memory_is_imported(&self, handle: usize) {
        self.lock().imported.insert(handle);
        self.has_imported.store(true, Relaxed);
    }

    /// What is mapped there is about to be unmapped: its handle may come again, for other memory.
    pub(crate) fn memory_is_unmapped(&self, driver: &impl Driver, address: u64) {
        if let Some(handle) = driver.mapped_memory(address) {
            self.lock().imported.remove(&handle);
        }
    }

    /// Whether what is mapped there came from another process.
    pub(super) fn is_imported(&self, driver: &impl Driver, of: Grants) -> bool {
        let Grants::OfMapped { address, .. } = of else { return false };
        self.has_imported()
            && driver.mapped_memory(address).is_some_and(|handle| self.lock().imported.contains(&handle))
    }
}
