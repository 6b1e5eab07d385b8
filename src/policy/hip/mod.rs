//! Peer access and copies of AMD's runtime.
//!
//! HIP has one layer: its hooks name a call and decide about it. A peer copy needs no enabling, since the runtime maps the
//! memory on first use; enabling is for kernels that follow pointers. So what is enabled here serves kernels, and copies take
//! the path that they take anyway. That path is verified before anybody enables access ([`verify`]).
//!
//! **The last error.** Before 7.0 each call overwrites it, from 7.0 on failures only. To be right for both, questions about
//! a copy are asked before it is made, while the slot is empty, and the slot is emptied again; a thread that has left an error
//! there is not asked for. Around functions about peer access, verifications aside, only calls are made that succeed if the
//! program's own may: those leave no trace that the program's own call does not cover. An error that a verification leaves is cleared.
//!
//! Source: the published code of HIP 5.7 to 7.2; no AMD GPU was run. Why it is so: docs/dev/decisions/hip-*.md.

#[cfg(test)]
mod tests;
mod verify;
mod view;

pub(crate) use view::{AccessCall, PendingAccess};

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicI32, AtomicUsize};

use super::access::cells::Cells;
use super::access::registry::{AllocationOwner, Ours};
use super::access::verifier::{PeerVerifier, Purpose};
use super::access::{Verification, evident};
use super::driver::{Holder, Memory, VerifyBackend};
use crate::api::Layer;
use crate::api::abi::Code;
use crate::config::{self, Config};
use crate::model::{Memcpy, Path, Traffic, Why};
use crate::objects::captures;
use crate::objects::memory::{Cache, Kind, Place};
use crate::os;
use crate::record;

/// How many copies of the runtime are told apart in a process.
pub(crate) const LIBRARIES: usize = 4;
/// How many devices are told apart.
const DEVICES: usize = 64;

/// Both devices, if they may be told apart.
fn pair(device: i32, peer: i32) -> Option<[u8; 2]> {
    let told_apart = |device| u8::try_from(device).ok().filter(|&device| usize::from(device) < DEVICES);
    Some([told_apart(device)?, told_apart(peer)?])
}

/// Questions and orders of decisions to the real library. No call waits for a device.
///
/// Devices are ordinals. All of it may change the calling thread's last error. Another device may be current after each copy of a
/// verification.
pub(crate) trait Hip: VerifyBackend {
    /// The calling thread's last error; none if the library cannot tell.
    fn last_error(&self) -> Option<Code>;

    fn clear_last_error(&self);

    /// Whether a call that succeeds leaves the last error as it is: from 7.0 on.
    fn keeps_last_error(&self) -> bool;

    /// The calling thread's device; none on a machine without any.
    fn current_device(&self) -> Option<i32>;

    fn make_current(&self, device: i32) -> Code;

    /// Lets the current device access the memory of another.
    fn enable(&self, peer: i32) -> Code;

    fn disable(&self, peer: i32) -> Code;

    /// The memory at an address; none if HIP does not know it, an error if it cannot tell.
    fn memory(&self, address: u64) -> Result<Option<Memory>, Code>;
}

/// An endpoint of a copy, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// It was not asked for, or the library does not tell.
    NotAsked,
    /// Memory that HIP knows, and where its allocation ends.
    Place(Place, u64),
    /// Memory of the host that HIP does not know: it takes any such address for that.
    Unregistered,
    /// An address at which nothing can be read.
    Nothing,
}

/// Facts about a copy before it is made. Plain values, kept on the stack across the real call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    /// How many devices there are, if that is known.
    pub(crate) devices: Option<i32>,
    /// The calling thread's device.
    pub(crate) current: Option<i32>,
    /// Source, destination.
    pub(crate) endpoints: [Endpoint; 2],
}

impl Before {
    pub(crate) const NOTHING: Self = Self { devices: None, current: None, endpoints: [Endpoint::NotAsked; 2] };

    /// Adds the remembered endpoints of a copy, where nothing was asked.
    pub(crate) fn with_remembered(self, ends: [Option<(Place, u64)>; 2]) -> Self {
        let remembered = |(known, end): (Endpoint, Option<(Place, u64)>)| match (known, end) {
            (Endpoint::NotAsked, Some((place, end))) => Endpoint::Place(place, end),
            (known, _) => known,
        };
        let [src, dst] = self.endpoints;
        let [src_end, dst_end] = ends;
        Self { endpoints: [(src, src_end), (dst, dst_end)].map(remembered), ..self }
    }
}

/// All that is known of one copy of the runtime.
struct Runtime {
    /// The paths of copies that are decided, by devices.
    cells: Cells<DEVICES>,
    /// How many devices there are, plus one; 0 until it is known.
    devices: AtomicI32,
}

impl Runtime {
    /// How many devices there are, if that is known. It does not change once HIP has looked.
    fn devices(&self) -> Option<i32> {
        self.devices.load(Relaxed).checked_sub(1).filter(|&devices| devices >= 0)
    }
}

/// All that is known of HIP in this process. In the verifier's registry a device is, for each copy of the runtime, a context by the
/// device's ordinal as handle and the library's number as id.
pub(crate) struct Peers {
    cache: Cache,
    libraries: [Runtime; LIBRARIES],
    verifier: PeerVerifier,
    /// How many calls of the program are under way that change access: nothing is enabled meanwhile.
    asking: AtomicUsize,
    /// How many of them reset a device, and take memory along that is on it.
    resets: AtomicUsize,
}

impl Peers {
    pub(crate) const fn new() -> Self {
        Self {
            cache: Cache::new(),
            libraries: [const { Runtime { cells: Cells::new(), devices: AtomicI32::new(0) } }; LIBRARIES],
            verifier: PeerVerifier::new(),
            asking: AtomicUsize::new(0),
            resets: AtomicUsize::new(0),
        }
    }

    /// Takes over the options: what was decided is decided anew.
    pub(crate) fn configure(&self, config: &Config) {
        self.verifier.configure(config, Layer::Hip);
        self.invalidate();
    }

    fn invalidate(&self) {
        self.libraries.iter().for_each(|library| library.cells.change_all());
    }

    /// The place of an address, and the end of its allocation, if that is known.
    pub(crate) fn known(&self, address: u64) -> Option<(Place, u64)> {
        self.cache.find_range(address).map(|(place, range)| (place, range.end))
    }

    /// Forgets which memory is whose: some has gone away.
    #[inline]
    pub(crate) fn forget_all_memory(&self) {
        self.cache.forget_all();
    }

    /// From where to where a copy goes, and on which path, if all about it is decided.
    pub(crate) fn decided(&self, library: usize, copy: &Memcpy) -> Option<Traffic> {
        let cells = &self.libraries.get(library)?.cells;
        self.traffic(copy, |[src, dst]| Some(cells.decided(src, dst)?.0))
    }

    /// The path of a copy from one device to another, as far as is known.
    fn path(&self, [src, dst]: [u8; 2]) -> Path {
        let registry = self.verifier.lock();
        match registry.verification(Kind::Plain, src, dst) {
            Some(Verification::NoPath) => Path::Staged(Why::NoPath),
            _ if registry.is_broken(src.into(), dst.into()) => Path::Broken,
            _ => Path::MappedOnUse,
        }
    }

    /// From where to where a copy goes, and on which path; `path` is that between two devices.
    fn traffic(&self, copy: &Memcpy, path: impl FnOnce([u8; 2]) -> Option<Path>) -> Option<Traffic> {
        let (src, dst) = (self.cache.find(copy.src)?, self.cache.find(copy.dst)?);
        let path = evident(src, dst).or_else(|| path([src.device, dst.device]))?;
        Some(Traffic::new([src.device, dst.device], path, copy.bytes))
    }

    /// Finds out what there is to know about a copy that is about to be made, and enables its pair for kernels if it is the
    /// first of it. `copy` is none for what has no addresses.
    pub(crate) fn consider(&self, library: usize, hip: &impl Hip, copy: Option<&Memcpy>) -> (Option<Traffic>, Before) {
        let mut before = Before::NOTHING;
        let Some(own) = self.libraries.get(library) else { return (None, before) };
        before.devices = own.devices();
        // A question is a call like any other: a capture might not bear it, and it would overwrite what was left.
        if captures::may_be_under_way() || hip.last_error() != Some(Code::SUCCESS) {
            return (None, before);
        }
        (before.current, before.devices) = self.whereabouts(own, hip);
        if let Some(copy) = copy
            && before.current.is_some()
        {
            before.endpoints = [copy.src, copy.dst].map(|address| self.identify(hip, address));
            let device = |known| match known {
                Endpoint::Place(Place { kind: Kind::Plain, device, .. }, _) => Some(device),
                _ => None,
            };
            if let [Some(src), Some(dst)] = before.endpoints.map(device)
                && src != dst
            {
                self.decide(library, own, hip, [src, dst], before.current);
            }
        }
        if hip.last_error() != Some(Code::SUCCESS) {
            hip.clear_last_error();
        }
        // There may be more to be done about the pair at a later copy.
        (copy.and_then(|copy| self.traffic(copy, |pair| Some(self.path(pair)))), before)
    }

    /// The calling thread's device, and how many there are.
    fn whereabouts(&self, own: &Runtime, hip: &impl Hip) -> (Option<i32>, Option<i32>) {
        let current = hip.current_device();
        let devices = own.devices().unwrap_or_else(|| {
            let devices = if current.is_some() { hip.device_count() } else { 0 };
            own.devices.store(devices.saturating_add(1), Relaxed);
            devices
        });
        (current, Some(devices))
    }

    /// Facts before a call that copies nothing. Each question succeeds if the call may.
    pub(crate) fn look_around(&self, library: usize, hip: &impl Hip) -> Before {
        let Some(own) = self.libraries.get(library) else { return Before::NOTHING };
        let (current, devices) = self.whereabouts(own, hip);
        Before { current, devices, ..Before::NOTHING }
    }

    /// Those without asking: how many devices there are, if that is known.
    pub(crate) fn seen_around(&self, library: usize) -> Option<Before> {
        let devices = self.libraries.get(library)?.devices()?;
        Some(Before { devices: Some(devices), ..Before::NOTHING })
    }

    /// The place of an address. Asks the library, if it is not known.
    fn identify(&self, hip: &impl Hip, address: u64) -> Endpoint {
        if let Some((place, end)) = self.known(address) {
            return Endpoint::Place(place, end);
        }
        let now = self.cache.now();
        let memory = match if address == 0 { Ok(None) } else { hip.memory(address) } {
            Ok(Some(memory)) => memory,
            Ok(None) if hip.is_readable(address) => return Endpoint::Unregistered,
            Ok(None) => return Endpoint::Nothing,
            Err(_) => return Endpoint::NotAsked,
        };
        let device = u8::try_from(memory.device).ok().filter(|&device| usize::from(device) < DEVICES);
        let kind = match (memory.holder, device) {
            (Holder::Host, _) => Kind::Host,
            (Holder::Context(_), Some(_)) => Kind::Plain,
            _ => Kind::Foreign,
        };
        let device = if kind == Kind::Host { 0 } else { device.unwrap_or_default() };
        let place = Place::new(kind, device, 0);
        let end = memory.range.0.saturating_add(memory.range.1);
        // HIP may know registered memory by another address, or by none: then it does not tell where this one's ends.
        if !(memory.range.0..end).contains(&address) {
            return Endpoint::Place(place, u64::MAX);
        }
        self.cache.insert(address, memory.range, place, now);
        Endpoint::Place(place, end)
    }

    /// Finds out whether two devices reach each other, and has them do so if data arrives and nobody objects.
    fn decide(&self, library: usize, own: &Runtime, hip: &impl Hip, pair @ [src, dst]: [u8; 2], current: Option<i32>) {
        let cells = &own.cells;
        if cells.decided(src, dst).is_some() {
            return;
        }
        let directions = [[src, dst], [dst, src]];
        let reaches = hip.can_reach(pair.map(i32::from)).unwrap_or_default();
        let wanted: Vec<[u8; 2]> = {
            let mut registry = self.verifier.lock();
            if reaches == [false; 2] && registry.verification(Kind::Plain, src, dst).is_none() {
                registry.set_verification(Kind::Plain, src, dst, Verification::NoPath);
            }
            let is_wanted = |&([from, to], reaches): &([u8; 2], bool)| {
                reaches && registry.access == config::Access::Auto && !registry.is_denied(from.into(), to.into())
            };
            directions.into_iter().zip(reaches).filter(is_wanted).map(|(link, _)| link).collect()
        };
        let is_wanted = !wanted.is_empty();
        let known = if is_wanted { self.admit(library, hip, pair, Purpose::Enable) } else { None };
        let rests = directions.map(|[from, to]| cells.now(from, to));
        let keep = || {
            for (link @ [from, to], on) in directions.into_iter().zip(rests) {
                cells.get(from, to).into_iter().for_each(|cell| cells.keep(cell, (self.path(link), false), on));
            }
        };
        if is_wanted && self.verifier.admits() && known != Some(Verification::Passed) {
            // A later copy finds out the rest.
            if known.is_some() {
                keep();
            }
            return;
        }
        let restore = || {
            if is_wanted && let Some(current) = current {
                hip.make_current(current);
            }
        };
        let enable_all = || wanted.into_iter().map(|link| self.enable(library, hip, link)).collect();
        let enabled: Vec<bool> = os::finally(restore, enable_all);
        // Or the program changes access at this moment: at a later copy.
        if !enabled.contains(&false) {
            keep();
        }
    }

    /// The numbers of two devices of a copy of the runtime in the registry.
    fn numbers(&self, library: usize, devices: [u8; 2]) -> Option<(u8, u8)> {
        let mut registry = self.verifier.lock();
        let owner =
            |device: u8| AllocationOwner::Context { handle: device.into(), id: library as u64, device: device.into() };
        let [from, to] = devices.map(|device| registry.number(owner(device)));
        Some((from?, to?))
    }

    /// Lets a device access another's memory. False if that has to wait.
    fn enable(&self, library: usize, hip: &impl Hip, [from, to]: [u8; 2]) -> bool {
        let Some(link) = self.numbers(library, [from, to]) else { return true };
        {
            let mut registry = self.verifier.lock();
            let ours = &mut registry.link_mut(link.0, link.1).ours;
            // It is ours, or another thread changes it.
            if *ours != Ours::No {
                return true;
            }
            *ours = Ours::Intended;
        }
        let ret = std::cell::Cell::new(Code::NOT_READY);
        // Access that the program has enabled itself stays its own.
        let end = || {
            self.verifier.lock().link_mut(link.0, link.1).ours =
                if ret.get() == Code::SUCCESS { Ours::Held } else { Ours::No }
        };
        os::finally(end, || {
            // Whoever asks now waits until the link is enabled; who asked before is let go first.
            if self.asking.load(SeqCst) == 0 {
                ret.set(match hip.make_current(from.into()) {
                    Code::SUCCESS => hip.enable(to.into()),
                    ret => ret,
                });
            }
        });
        let what = match ret.get() {
            Code::NOT_READY => return false,
            Code::PEER_ACCESS_ALREADY_ENABLED => return true,
            Code::SUCCESS => format!("kernels of device {from} can access memory of device {to} (HIP)"),
            Code(ret) => {
                format!("not enabled from device {from} for kernels: hipDeviceEnablePeerAccess returned {ret}")
            }
        };
        record::log::pair_info(from, to, format_args!("{what}"));
        true
    }
}
