//! Memory of other processes: whose it is in records; and where its path is denied or broken, it is refused if it is known where it lies, and else
//! warned about.

use std::sync::atomic::Ordering::Relaxed;

use p2pshim_host::verdict::Part;
use p2pshim_trace::{NoteKind, REMOTE_LAST};

use super::Access;
use super::hide::granules;
use crate::api::abi::Code;
use crate::objects::shared::{Handle, How, SharedObject, hex};
use crate::policy::driver::{Driver, Holder, Memory};
use crate::record::exports;
use crate::record::log::{self, Once};
use crate::record::trace;

/// Why a device is not to use memory of another process.
enum Why {
    Denied,
    Lost(String),
}

impl Access {
    /// The code for opening memory of another process by an IPC handle, if that is on a GPU that the current device is not to reach. If
    /// nobody has told on which it is, there is none.
    pub(crate) fn refused_opening(&self, driver: &impl Driver, handle: &Handle) -> Option<Code> {
        let theirs = exports::find(handle)?;
        let device = driver.current_context().and_then(|context| driver.device_of_context(context))?;
        let (peer, why) = self.why_not_theirs(driver, device, &theirs, Part::Ipc)?;
        if !self.refuses(&why) {
            return None;
        }
        let lies_on = shown(peer, &theirs);
        let what = format!("memory of {lies_on}, which another process owns, is not opened on device {device}");
        let what = format!("{what} (CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)");
        say_refused([device, peer.unwrap_or(-1)], &what, &why);
        Some(Code::PEER_ACCESS_UNSUPPORTED)
    }

    /// The program has opened memory of another process. Says, once, if the current device's access to the device where it lies, or any where
    /// it may lie, is denied or broken.
    pub(crate) fn warn_of_foreign_memory(&self, driver: &impl Driver, handle: &Handle) {
        let device = driver.current_context().and_then(|context| driver.device_of_context(context));
        let Some(device) = device else { return };
        let what = format!("memory of another process was opened on device {device}");
        if let Some(theirs) = exports::find(handle) {
            if let Some((peer, why)) = self.why_not_theirs(driver, device, &theirs, Part::Ipc) {
                let lies_on = shown(peer, &theirs);
                warn_of_foreign([device, peer.unwrap_or(-1)], &format!("{what}. It lies on {lies_on}"), &why);
            }
            return;
        }
        self.look_up_denied(driver);
        let is_off = self.denies_all();
        let peers = (0..driver.device_count()).filter(|&peer| peer != device);
        for peer in peers.take(if is_off { 1 } else { usize::MAX }) {
            let lies_on = if is_off { "another device".to_owned() } else { format!("device {peer}") };
            if let Some(why) = self.why_not(driver, [device, peer], Part::Ipc) {
                warn_of_foreign([device, peer], &format!("{what}. If it lies on {lies_on}"), &why);
            }
        }
    }

    /// Why a device is not to use memory, shared in that way, of a GPU with these names; and its ordinal, if it is visible.
    fn why_not_theirs(
        &self,
        driver: &impl Driver,
        device: i32,
        theirs: &[String; 2],
        sharing: Part,
    ) -> Option<(Option<i32>, Why)> {
        self.look_up_denied(driver);
        let peer = ordinal_of(driver, theirs).map(i32::from);
        let why = match peer {
            Some(peer) => self.why_not(driver, [device, peer], sharing),
            None => self.why_not_by_name(driver, [&driver.names(device)?, theirs], sharing),
        };
        Some((peer, why?))
    }

    /// The code for giving devices rights to memory that was imported, and lies on these, if any is not to reach it.
    pub(super) fn refused_imported(&self, driver: &impl Driver, owners: &[i32], devices: &[i32]) -> Option<Code> {
        let pairs = owners.iter().flat_map(|&owner| devices.iter().map(move |&device| [device, owner]));
        let mut refused = None;
        for pair @ [device, owner] in pairs {
            let Some(why) = self.why_not(driver, pair, Part::Vmm) else { continue };
            let what = format!("memory of device {owner} that was imported is");
            if self.refuses(&why) {
                refused = Some(Code::INVALID_DEVICE);
                say_refused(pair, &format!("{what} not mapped for device {device} (CUDA_ERROR_INVALID_DEVICE)"), &why);
            } else {
                warn_of_foreign(pair, &format!("{what} mapped for device {device}"), &why);
            }
        }
        refused
    }

    /// The code for giving devices rights to an imported pool, if any is not to reach it; none if it is not known on which GPU that lies.
    pub(super) fn refused_pool(&self, driver: &impl Driver, pool: usize, devices: &[i32]) -> Option<Code> {
        let theirs = self.lock().pools.imported_from(pool).cloned()?;
        for &device in devices {
            let why = self.why_not_theirs(driver, device, &theirs, Part::Vmm);
            let Some((peer, why)) = why.filter(|(_, why)| self.refuses(why)) else { continue };
            let lies_on = shown(peer, &theirs);
            let what = format!(
                "a pool of {lies_on} that was imported is not granted to device {device} (CUDA_ERROR_INVALID_DEVICE)"
            );
            say_refused([device, peer.unwrap_or(-1)], &what, &why);
            return Some(Code::INVALID_DEVICE);
        }
        None
    }

    fn refuses(&self, why: &Why) -> bool {
        matches!(why, Why::Denied) || self.lock().refuses_what_is_broken()
    }

    /// Why a device is not to use memory of a peer that another process owns, and shares in that way.
    fn why_not(&self, driver: &impl Driver, [device, peer]: [i32; 2], sharing: Part) -> Option<Why> {
        if device == peer || [device, peer].iter().any(|known| !(0..64).contains(known)) {
            return None;
        }
        if self.lock().is_denied(device, peer) {
            return Some(Why::Denied);
        }
        // Data may go either way, whoever has opened the memory.
        let kept =
            |by, of| if self.admits() { self.verifier.kept(driver, by, of)?.between_processes(sharing) } else { None };
        let is_broken = self.lock().is_broken(device, peer);
        let has_failed = is_broken.then(|| "peer access there is broken".to_owned());
        has_failed.or_else(|| kept(device, peer)).or_else(|| kept(peer, device)).map(Why::Lost)
    }

    /// As [`why_not`](Self::why_not), where the peer is not visible.
    fn why_not_by_name(&self, driver: &impl Driver, [own, theirs]: [&[String; 2]; 2], sharing: Part) -> Option<Why> {
        if self.denies_all() || self.lock().is_denied_by_name([own, theirs]) {
            return Some(Why::Denied);
        }
        let kept =
            |by: &[String; 2], of: &[String; 2]| driver.verdict_between([&by[0], &of[0]])?.between_processes(sharing);
        let lost = || kept(own, theirs).or_else(|| kept(theirs, own)).map(Why::Lost);
        if self.admits() { lost() } else { None }
    }

    /// Whether physical memory of other processes was imported, and is mapped or may be.
    pub(crate) fn has_imported(&self) -> bool {
        self.has_imported.load(Relaxed)
    }

    /// Physical memory was imported, by that handle: of another process, or what this one has exported.
    pub(crate) fn note_imported(&self, driver: &impl Driver, handle: usize) {
        let is_seen = driver.location(handle).is_none_or(|device| device >= 0);
        self.lock().shared_memory.imported.insert(handle, (!is_seen).then_some(0));
        self.has_imported.store(true, Relaxed);
    }

    /// A handle stands for memory of the program itself from now on. That of what was imported and never mapped may come again.
    pub(crate) fn forget_imported(&self, handle: usize) {
        if self.has_imported() {
            let mut registry = self.lock();
            registry.shared_memory.imported.remove(&handle);
            self.has_imported.store(!registry.shared_memory.imported.is_empty(), Relaxed);
        }
    }

    /// A mapping is about to be unmapped: its handles may come again, for other memory.
    pub(crate) fn on_unmap(&self, driver: &impl Driver, address: u64, bytes: u64) {
        granules(address, bytes)
            .filter_map(|at| driver.mapped_memory(at))
            .for_each(|handle| self.forget_imported(handle));
    }

    /// Whether what is mapped there was imported.
    pub(super) fn is_imported(&self, driver: &impl Driver, at: u64) -> bool {
        self.has_imported()
            && driver.mapped_memory(at).is_some_and(|handle| self.lock().shared_memory.imported.contains_key(&handle))
    }
}

// ---- Whose it is ----

impl Access {
    /// Another process's memory, if a handle was needed for it, is open at an address.
    pub(crate) fn on_memory_opened(&self, driver: &impl Driver, how: How, address: u64, handle: &Handle) {
        let Some(Memory { range: (start, bytes), device, holder }) = driver.memory(address) else { return };
        let by = driver.current_context().and_then(|context| driver.device_of_context(context));
        // The current device may stand for one that is not visible; no other does.
        let is_told = how == How::Pool && by.is_some_and(|by| by != device);
        let names = if is_told { driver.names(device) } else { exports::find(handle) };
        if let (Holder::Pool(pool), Some(names)) = (holder, &names) {
            self.lock().pools.set_imported_from(pool, names);
        }
        let ordinal = names.as_ref().and_then(|names| ordinal_of(driver, names));
        let visible = ordinal.map(|ordinal| (how, *handle, ordinal));
        if let Some(it) = visible
            && self.lock().shared_memory.visible.insert(start, it) != visible
        {
            note_visible(start, &it, bytes, by);
        }
        self.has_opened.store(true, Relaxed);
        if is_told {
            return;
        }
        let of = names.map_or(SharedObject::Handle(*handle), |[uuid, _]| SharedObject::Gpu(uuid));
        let (number, is_new) = {
            let opened = &mut self.lock().shared_memory;
            let known = ordinal.or_else(|| opened.numbers.get(&of).copied());
            let number = known.unwrap_or_else(|| opened.next());
            opened.ranges.insert((how, start), number);
            if known.is_none() && number != REMOTE_LAST {
                opened.numbers.insert(of.clone(), number);
            }
            (number, known.is_none())
        };
        // Whoever it was asked of before: an imported pool, or nobody.
        self.cache.forget(0);
        self.forget_memory(start);
        if is_new {
            let gpu = if let SharedObject::Gpu(uuid) = of { Some(format!("gpu={uuid}")) } else { None };
            note_opened(number, (how, &hex(handle)), bytes, by, gpu);
        }
    }

    /// Whether memory was ever opened by handles, or exported by them.
    #[inline(always)]
    pub(crate) fn has_opened(&self) -> bool {
        self.has_opened.load(Relaxed)
    }

    /// Memory was freed or closed, which may have been exported, or opened: a handle may be so several times.
    pub(crate) fn on_shared_memory_freed(&self, driver: &impl Driver, start: u64) {
        let (visible, exported) = {
            let opened = &mut self.lock().shared_memory;
            opened.ranges.remove(&(How::Pool, start));
            (opened.visible.get(&start).copied(), opened.exported.remove(&start))
        };
        exported.iter().for_each(|export| note_exported(export, 0));
        if let Some(it) = visible.filter(|it| it.0 == How::Pool || driver.memory(start).is_none()) {
            self.lock().shared_memory.visible.remove(&start);
            note_visible(start, &it, 0, None);
        }
    }

    /// The number that stands for the device of memory, if it is another process's and the device is not known. Mapped memory is cut to
    /// its mapping.
    pub(super) fn remote(&self, driver: &impl Driver, address: u64, memory: &mut Memory) -> Option<u8> {
        let at = |how| self.lock().shared_memory.ranges.get(&(how, memory.range.0)).copied();
        match memory.holder {
            Holder::Opened => Some(at(How::Ipc).unwrap_or(REMOTE_LAST)),
            Holder::Pool(_) if self.has_opened() => at(How::Pool),
            Holder::Mapped if self.has_imported() => {
                let physical = driver.mapped_memory(address)?;
                let known = (*self.lock().shared_memory.imported.get(&physical)?)?;
                memory.range = driver.mapping(address).unwrap_or(memory.range);
                if known != 0 {
                    return Some(known);
                }
                let number = {
                    let mut registry = self.lock();
                    let number = registry.shared_memory.next();
                    registry.shared_memory.imported.insert(physical, Some(number));
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
    pub(crate) fn note_physical(&self, physical: usize, bytes: u64) {
        self.lock().shared_memory.physical.insert(physical, bytes);
    }

    /// The program has a descriptor of physical memory, for others.
    pub(crate) fn on_physical_exported(&self, driver: &impl Driver, physical: usize) {
        let bytes = self.lock().shared_memory.physical.get(&physical).copied().unwrap_or(0);
        if let Some(device) = driver.location(physical) {
            note_exported(&(How::Vmm, [0; 64], device), bytes);
        }
    }

    /// Whether the program has made a handle itself, as far as that is noted.
    pub(crate) fn has_exported(&self, handle: &Handle) -> bool {
        self.lock().shared_memory.exported.values().any(|(_, it, _)| it == handle)
    }

    /// The program has a handle of the memory at an address, for others.
    pub(crate) fn on_memory_exported(&self, driver: &impl Driver, how: How, address: u64, handle: &Handle) {
        if let Some(memory) = driver.memory(address)
            && let export = (how, *handle, memory.device)
            && self.lock().shared_memory.exported.insert(memory.range.0, export) != Some(export)
        {
            self.has_opened.store(true, Relaxed);
            note_exported(&export, memory.range.1);
            driver.names(memory.device).into_iter().for_each(|names| exports::publish(handle, names));
        }
    }
}

/// A GPU by its ordinal, or its UUID if it is not visible.
fn shown(ordinal: Option<i32>, [uuid, _]: &[String; 2]) -> String {
    ordinal.map_or_else(|| format!("GPU {uuid}"), |ordinal| format!("device {ordinal}"))
}

/// Says, once a pair, that a device has opened memory that it is not to use.
fn warn_of_foreign(pair: [i32; 2], what: &str, why: &Why) {
    let so = match why {
        Why::Denied => "it is accessed though that is denied",
        Why::Lost(what) => &format!("its data may be wrong: {what}"),
    };
    say_once(pair, &format!("{what}, {so}. p2pshim stages none of its copies. NCCL_P2P_DISABLE=1 keeps NCCL from it"));
}

/// Says, once a pair, that a device was refused it.
fn say_refused(pair: [i32; 2], what: &str, why: &Why) {
    let so = match why {
        Why::Denied => "that is denied",
        Why::Lost(what) => &format!("its data would be wrong: {what}"),
    };
    say_once(pair, &format!("{what}, since {so}"));
}

fn say_once(pair @ [device, peer]: [i32; 2], what: &str) {
    if !Once::Foreign(pair).mark_logged() {
        return;
    }
    match u8::try_from(device).ok().zip(u8::try_from(peer).ok()) {
        Some((device, peer)) => log::pair_warn(device, peer, format_args!("{what}")),
        None => log::warnings(&[what.to_owned()]),
    }
}

/// The device that has these names, if it is visible.
fn ordinal_of(driver: &impl Driver, names: &[String; 2]) -> Option<u8> {
    let is_it = |&device: &i32| driver.names(device).is_some_and(|[uuid, _]| uuid == names[0]);
    (0..driver.device_count()).find(is_it).and_then(|device| u8::try_from(device).ok())
}

fn note_exported((how, handle, device): &(How, Handle, i32), bytes: u64) {
    if let Ok(device) = u8::try_from(*device) {
        let handle = if *how == How::Vmm { String::new() } else { hex(handle) };
        trace::note(NoteKind::Exported, device.into(), &[how.name(), &handle, &bytes.to_string()]);
    }
}

fn note_visible(start: u64, (how, handle, ordinal): &(How, Handle, u8), bytes: u64, by: Option<i32>) {
    note_opened(*ordinal, (*how, &hex(handle)), bytes, by, Some(format!("at={start:x}")));
}

fn note_opened(number: u8, (how, handle): (How, &str), bytes: u64, by: Option<i32>, known: Option<String>) {
    // That stands for many.
    if number != REMOTE_LAST {
        let (bytes, by) = (bytes.to_string(), by.unwrap_or(-1).to_string());
        let strings = [how.name(), handle, &bytes, &by].into_iter().chain(known.as_deref());
        trace::note(NoteKind::Opened, number.into(), &strings.collect::<Vec<_>>());
    }
}
