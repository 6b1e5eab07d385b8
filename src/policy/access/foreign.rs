//! Memory of other processes: whose it is in records, and a warning where its path is denied or broken; the program's access to it is never refused.

use std::sync::atomic::Ordering::Relaxed;

use p2pshim_host::verdict::Part;
use p2pshim_trace::REMOTE_LAST;

use super::Access;
use super::hide::granules;
use super::opened::{Handle, How, Of, hex};
use crate::config;
use crate::policy::driver::{Driver, Holder, Memory};
use crate::policy::exports;
use crate::record::log::{self, Once};
use crate::record::trace;

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
    pub(crate) fn memory_is_imported(&self, driver: &impl Driver, handle: usize) {
        let is_seen = driver.location(handle).is_none_or(|device| device >= 0);
        self.lock().imported.insert(handle, (!is_seen).then_some(0));
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
        self.has_imported() && driver.mapped_memory(at).is_some_and(|handle| self.lock().imported.contains_key(&handle))
    }
}

// ---- Whose it is ----

impl Access {
    /// Another process's memory, if a handle was needed for it, is open at an address.
    pub(crate) fn memory_is_opened(&self, driver: &impl Driver, how: How, address: u64, handle: &Handle) {
        let Some(Memory { range: (start, bytes), device, .. }) = driver.memory(address) else { return };
        let by = driver.current_context().and_then(|context| driver.device_of_context(context));
        // The current device may stand for one that is not visible; no other does.
        if how == How::Pool && by.is_some_and(|by| by != device) {
            return;
        }
        let names = exports::find(handle);
        let ordinal = names.as_ref().and_then(|names| ordinal_of(driver, names));
        let of = names.map_or(Of::Handle(*handle), |[uuid, _]| Of::Gpu(uuid));
        let (number, is_new) = {
            let opened = &mut self.lock().opened;
            let known = ordinal.or_else(|| opened.numbers.get(&of).copied());
            let number = known.unwrap_or_else(|| opened.next());
            opened.ranges.insert(start, number);
            if known.is_none() {
                opened.numbers.insert(of.clone(), number);
            }
            (number, known.is_none())
        };
        self.has_opened.store(true, Relaxed);
        self.cache.forget();
        if is_new {
            let gpu = if let Of::Gpu(uuid) = of { Some(uuid) } else { None };
            note_opened(number, (how, &hex(handle)), bytes, by, gpu);
        }
    }

    /// Whether memory of other processes was ever opened by handles.
    #[inline(always)]
    pub(crate) fn has_opened(&self) -> bool {
        self.has_opened.load(Relaxed)
    }

    /// Memory was freed, which may have been opened from a pool.
    pub(crate) fn memory_is_freed(&self, start: u64) {
        self.lock().opened.ranges.remove(&start);
    }

    /// The number that stands for the device of memory, if it is another process's and the device is not known. What is mapped is cut to
    /// its mapping.
    pub(super) fn remote(&self, driver: &impl Driver, address: u64, memory: &mut Memory) -> Option<u8> {
        let at = |start: u64| self.lock().opened.ranges.get(&start).copied();
        match memory.holder {
            Holder::Opened => Some(at(memory.range.0).unwrap_or(REMOTE_LAST)),
            Holder::Pool(_) if self.has_opened() => at(memory.range.0),
            Holder::Mapped if self.has_imported() => {
                let physical = driver.mapped_memory(address)?;
                let known = (*self.lock().imported.get(&physical)?)?;
                memory.range = driver.mapping(address).unwrap_or(memory.range);
                if known != 0 {
                    return Some(known);
                }
                let number = {
                    let mut registry = self.lock();
                    let number = registry.opened.next();
                    registry.imported.insert(physical, Some(number));
                    number
                };
                let by = driver.current_context().and_then(|context| driver.device_of_context(context));
                note_opened(number, (How::Vmm, ""), memory.range.1, by, None);
                Some(number)
            }
            _ => None,
        }
    }

    /// Physical memory was made, that may be exported.
    pub(crate) fn physical_is_made(&self, physical: usize, bytes: u64) {
        self.lock().opened.physical.insert(physical, bytes);
    }

    /// The program has a descriptor of physical memory, for others.
    pub(crate) fn physical_is_exported(&self, driver: &impl Driver, physical: usize) {
        let bytes = self.lock().opened.physical.get(&physical).copied().unwrap_or(0);
        if let Some(device) = driver.location(physical) {
            note_exported(device, How::Vmm, "", bytes);
        }
    }

    /// The program has a handle of the memory at an address, for others.
    pub(crate) fn memory_is_exported(&self, driver: &impl Driver, how: How, address: u64, handle: &Handle) {
        if let Some(memory) = driver.memory(address)
            && self.lock().opened.exported.insert(*handle)
        {
            note_exported(memory.device, how, &hex(handle), memory.range.1);
            driver.names(memory.device).into_iter().for_each(|names| exports::publish(handle, names));
        }
    }
}

/// The device that has these names, if it is visible.
fn ordinal_of(driver: &impl Driver, names: &[String; 2]) -> Option<u8> {
    let is_it = |&device: &i32| driver.names(device).is_some_and(|[uuid, _]| uuid == names[0]);
    (0..driver.device_count()).find(is_it).and_then(|device| u8::try_from(device).ok())
}

fn note_exported(device: i32, how: How, handle: &str, bytes: u64) {
    if let Ok(device) = u8::try_from(device) {
        trace::exported(device, &[how.name(), handle, &bytes.to_string()]);
    }
}

fn note_opened(number: u8, (how, handle): (How, &str), bytes: u64, by: Option<i32>, gpu: Option<String>) {
    // That stands for many.
    if number != REMOTE_LAST {
        let known = gpu.map(|uuid| format!("gpu={uuid}"));
        let (bytes, by) = (bytes.to_string(), by.unwrap_or(-1).to_string());
        let strings = [how.name(), handle, &bytes, &by].into_iter().chain(known.as_deref());
        trace::opened(number, &strings.collect::<Vec<_>>());
    }
}
