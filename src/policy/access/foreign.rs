//! Memory of other processes: the program's access to it is never refused, and warned about where it is denied or broken.

use std::sync::atomic::Ordering::Relaxed;

use p2pshim_host::verdict::Part;

use super::Access;
use super::hide::granules;
use crate::config;
use crate::policy::driver::Driver;
use crate::record::log::{self, Once};

impl Access {
    /// The program has opened memory of another process, which is never refused. Says, once, if the current device's access to another is
    /// denied or broken: the driver does not tell on which device such memory lies.
    pub(crate) fn warn_of_foreign_memory(&self, driver: &impl Driver) {
        let device = driver.current_context().and_then(|context| driver.device_of_context(context));
        let Some(device) = device else { return };
        self.look_up_denied(driver);
        let is_off = self.lock().access == config::Access::Off;
        let peers = (0..driver.device_count()).filter(|&peer| peer != device);
        for peer in peers.take(if is_off { 1 } else { usize::MAX }) {
            let lies_on = if is_off { "another device".to_owned() } else { format!("device {peer}") };
            let what = format!("memory of another process was opened on device {device}. If it lies on {lies_on}");
            self.warn_of_foreign(driver, [device, peer], Part::Ipc, &what);
        }
    }

    /// The program gives devices rights to memory that was imported, and lies on these.
    pub(super) fn warn_of_imported(&self, driver: &impl Driver, owners: &[i32], devices: &[i32]) {
        for owner in owners {
            for &device in devices {
                let what = format!("memory of device {owner} that was imported is mapped for device {device}");
                self.warn_of_foreign(driver, [device, *owner], Part::Vmm, &what);
            }
        }
    }

    /// Says, once, that such memory is not for this device, if that is so.
    fn warn_of_foreign(&self, driver: &impl Driver, [device, peer]: [i32; 2], way: Part, what: &str) {
        if device == peer || [device, peer].iter().any(|known| !(0..64).contains(known)) {
            return;
        }
        // Data may go either way, whoever has opened the memory.
        let kept = |by, of| if self.admits() { self.judge.kept(driver, by, of)?.between_processes(way) } else { None };
        let is_broken = self.lock().is_broken(device, peer);
        let has_failed = if is_broken { Some("peer access there is broken".to_owned()) } else { None };
        let has_failed = has_failed.or_else(|| kept(device, peer)).or_else(|| kept(peer, device));
        let is_denied = self.lock().is_denied(device, peer);
        if !(is_denied || has_failed.is_some()) || !Once::Foreign([device, peer]).is_first() {
            return;
        }
        let so = match has_failed.filter(|_| !is_denied) {
            Some(what) => format!("its data may be wrong: {what}"),
            None => "it is accessed though that is denied".to_owned(),
        };
        log::pair_warn(
            device as u8,
            peer as u8,
            format_args!(
                "{what}, {so}. p2pshim neither refuses memory of other processes nor stages its copies. NCCL_P2P_DISABLE=1 keeps NCCL \
                 from it"
            ),
        );
    }

    /// Whether physical memory of other processes was imported, and is mapped or may be.
    pub(crate) fn has_imported(&self) -> bool {
        self.has_imported.load(Relaxed)
    }

    /// Physical memory was imported, by that handle: of another process, or what this one has exported.
    pub(crate) fn memory_is_imported(&self, handle: usize) {
        self.lock().imported.insert(handle);
        self.has_imported.store(true, Relaxed);
    }

    /// A mapping is about to be unmapped: its handles may come again, for other memory. (So may the handle of what is
    /// imported and never mapped; then memory of the program itself is not refused, and warned about.)
    pub(crate) fn memory_is_unmapped(&self, driver: &impl Driver, address: u64, bytes: u64) {
        for handle in granules(address, bytes).filter_map(|at| driver.mapped_memory(at)) {
            let mut registry = self.lock();
            registry.imported.remove(&handle);
            self.has_imported.store(!registry.imported.is_empty(), Relaxed);
        }
    }

    /// Whether what is mapped there was imported.
    pub(super) fn is_imported(&self, driver: &impl Driver, at: u64) -> bool {
        self.has_imported() && driver.mapped_memory(at).is_some_and(|handle| self.lock().imported.contains(&handle))
    }
}
