//! Peer access and copies of AMD's runtime.
//!
//! HIP has one layer: its hooks name a call and decide about it. A peer copy needs no enabling, since the runtime maps the
//! memory on first use; enabling is for kernels that follow pointers. So what is enabled here serves kernels, and copies take
//! the path that they take anyway.
//!
//! **The last error.** Before 7.0 each call overwrites it, from 7.0 on failures only. To be right for both, questions about
//! a copy are asked before it is made, while the slot is empty, and the slot is emptied again; a thread that has left an error
//! there is not asked for. Around functions about peer access only calls are made that succeed if the program's own may:
//! those leave no trace that the program's own call does not cover.
//!
//! Source: the published code of HIP 5.7 to 7.2; no AMD GPU was run. Why it is so: docs/decisions/hip-*.md.

mod links;
#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, AtomicUsize};

use self::links::{DEVICES, Link, Links};
use super::capture;
use super::memory::{Cache, Kind, Place};
use crate::api::abi::Code;
use crate::config::{self, Config, Denied};
use crate::model::{Memcpy, Path, Traffic, Why};
use crate::record;

/// How many copies of the runtime are told apart in a process.
pub(crate) const LIBRARIES: usize = 4;

/// What decisions ask the real library, and have it do. Nothing here waits for a device.
///
/// Devices are ordinals. All of it may change the calling thread's last error.
pub(crate) trait Hip {
    /// The calling thread's last error; none if the library cannot tell.
    fn last_error(&self) -> Option<Code>;

    fn clear_last_error(&self);

    /// The calling thread's device; none on a machine without any.
    fn current_device(&self) -> Option<i32>;

    fn make_current(&self, device: i32) -> Code;

    fn device_count(&self) -> i32;

    /// Whether the hardware lets a device access the memory of another.
    fn can_access(&self, device: i32, peer: i32) -> bool;

    /// Lets the current device access the memory of another.
    fn enable(&self, peer: i32) -> Code;

    fn disable(&self, peer: i32) -> Code;

    /// What an address belongs to.
    fn memory(&self, address: u64) -> Queried;

    /// Whether the host can read at an address.
    fn is_readable(&self, address: u64) -> bool;
}

/// What the library says of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queried {
    Memory(Memory),
    /// That HIP does not know it.
    Unknown,
    /// Nothing: it lacks what is asked, or fails for another reason.
    Nothing,
}

/// Memory that HIP knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The allocation: its first address, and its bytes.
    pub(crate) range: (u64, u64),
    /// The device, if it is memory of one.
    pub(crate) device: i32,
    pub(crate) is_host: bool,
    /// Whether it moves by itself.
    pub(crate) is_managed: bool,
}

/// What is known of one side of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// It was not asked for, or the library does not tell.
    NotAsked,
    /// Memory that HIP knows, and where its allocation ends.
    Place(Place, u64),
    /// Memory of the host that HIP does not know: it takes any such address for that.
    Unregistered,
    /// An address at which nothing can be read.
    Nothing,
}

/// What is known about a copy before it is made. Plain values, kept on the stack across the real call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    /// How many devices there are, if that is known.
    pub(crate) devices: Option<i32>,
    /// The calling thread's device.
    pub(crate) current: Option<i32>,
    /// Source, destination.
    pub(crate) ends: [Known; 2],
}

impl Before {
    pub(crate) const NOTHING: Self = Self { devices: None, current: None, ends: [Known::NotAsked; 2] };
}

/// What is done about a function that enables or disables access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The real function gets the call as it came.
    Forward,
    /// It gets it with an ordinal that is no device, so that it returns what it returns for a device that cannot be
    /// reached.
    Unreachable,
    /// In its place one that succeeds and does nothing: the access is there.
    Succeed,
}

/// What is known of a pair of devices, from one to the other.
const UNKNOWN: u8 = 0;
/// They can reach each other, in one direction at least.
const REACHABLE: u8 = 1;
/// They cannot.
const APART: u8 = 2;

/// In the place of a count: it is known that there are none.
const NO_DEVICES: i32 = -1;

/// What is known of one copy of the runtime.
struct Library {
    links: Links,
    pairs: [[AtomicU8; DEVICES]; DEVICES],
    /// 0 until it is known.
    devices: AtomicI32,
    /// How many calls of the program are under way that change access: nothing is enabled meanwhile.
    asking: AtomicUsize,
}

impl Library {
    const fn new() -> Self {
        Self {
            links: Links::new(),
            pairs: [const { [const { AtomicU8::new(UNKNOWN) }; DEVICES] }; DEVICES],
            devices: AtomicI32::new(0),
            asking: AtomicUsize::new(0),
        }
    }

    /// How many devices there are, if that is known. It does not change once HIP has looked.
    fn devices(&self) -> Option<i32> {
        match self.devices.load(Relaxed) {
            0 => None,
            NO_DEVICES => Some(0),
            devices => Some(devices),
        }
    }

    #[inline(always)]
    fn pair(&self, src: u8, dst: u8) -> Option<&AtomicU8> {
        self.pairs.get(usize::from(src))?.get(usize::from(dst))
    }

    /// The path of a copy between devices, if the pair is known.
    #[inline(always)]
    fn path(&self, src: u8, dst: u8) -> Option<Path> {
        if src == dst {
            return Some(Path::SameDevice);
        }
        match self.pair(src, dst)?.load(Relaxed) {
            REACHABLE => Some(Path::MappedOnUse),
            APART => Some(Path::Staged(Why::NoPath)),
            _ => None,
        }
    }
}

/// The bit of a device; none of one that is not told apart.
fn bit(device: i32) -> u64 {
    u32::try_from(device).ok().and_then(|device| 1u64.checked_shl(device)).unwrap_or_default()
}

/// All that is known of HIP in this process.
pub(crate) struct Peers {
    cache: Cache,
    libraries: [Library; LIBRARIES],
    /// Whether access is left to the program.
    is_left: AtomicBool,
    hides: AtomicBool,
    /// Of each device, a bit for each peer that is hidden from it. No lock: a signal handler may come between, and a child
    /// have no other thread to let go of it.
    denied: [AtomicU64; DEVICES],
}

impl Peers {
    pub(crate) const fn new() -> Self {
        Self {
            cache: Cache::new(),
            libraries: [const { Library::new() }; LIBRARIES],
            is_left: AtomicBool::new(false),
            hides: AtomicBool::new(false),
            denied: [const { AtomicU64::new(0) }; DEVICES],
        }
    }

    /// Takes over the options.
    pub(crate) fn configure(&self, config: &Config) {
        let is_off = config.access == config::Access::Off;
        self.is_left.store(config.access != config::Access::Auto, Relaxed);
        for (device, denied) in (0..).zip(&self.denied) {
            let pairs = config.denied.iter().filter_map(Denied::hip_ordinals);
            let bits = pairs.filter(|pair| pair[0] == device).fold(0, |bits, [_, peer]| bits | bit(peer));
            denied.store(if is_off { u64::MAX } else { bits }, Relaxed);
        }
        self.hides.store(is_off || !config.denied.is_empty(), Relaxed);
    }

    /// Takes over options that have changed: what was decided is decided anew.
    pub(crate) fn reconfigure(&self, config: &Config) {
        self.configure(config);
        self.libraries.iter().for_each(|library| library.links.invalidate_all());
    }

    /// What any copy of the runtime knows of two devices: the path of copies, and whether the one reaches the memory of the
    /// other because of us.
    pub(crate) fn pair_state(&self, device: u8, peer: u8) -> Option<(Path, bool)> {
        let known = |library: &Library| Some((library.path(device, peer)?, library.links.is_ours(device, peer)));
        self.libraries.iter().filter(|library| library.devices().is_some()).find_map(known)
    }

    /// Whether anything is hidden.
    #[inline(always)]
    pub(crate) fn hides(&self) -> bool {
        self.hides.load(Relaxed)
    }

    /// Whether a device's access to another is hidden.
    fn is_denied(&self, device: i32, peer: i32) -> bool {
        let denied = usize::try_from(device).ok().and_then(|device| self.denied.get(device));
        device != peer && denied.is_some_and(|denied| denied.load(Relaxed) & bit(peer) != 0)
    }

    /// Whether zeros take the place of what a successful query returned about a device's access to another.
    pub(crate) fn is_hidden(&self, device: i32, peer: i32, attribute: Option<i32>) -> bool {
        /// `hipDevP2PAttrPerformanceRank`, which compares links and says nothing of access.
        const PERFORMANCE_RANK: i32 = 0;
        self.hides() && attribute != Some(PERFORMANCE_RANK) && self.is_denied(device, peer)
    }

    /// Whose memory an address is, and where its allocation ends, if that is known.
    #[inline(always)]
    pub(crate) fn known(&self, address: u64) -> Option<(Place, u64)> {
        self.cache.find_range(address).map(|(place, range)| (place, range.end))
    }

    /// Forgets which memory is whose: some has gone away.
    #[inline]
    pub(crate) fn memory_has_changed(&self) {
        self.cache.forget();
    }

    /// From where to where a copy goes, and on which path, if all about it is decided.
    #[inline(always)]
    pub(crate) fn decided(&self, library: usize, copy: &Memcpy) -> Option<Traffic> {
        let library = self.libraries.get(library)?;
        let (src, dst) = (self.cache.find(copy.src)?, self.cache.find(copy.dst)?);
        let path = match (src.kind, dst.kind) {
            (Kind::Host, _) | (_, Kind::Host) => Path::Host,
            (Kind::Foreign, _) | (_, Kind::Foreign) => Path::Unknown,
            _ if src.device == dst.device || library.links.are_decided(src.device, dst.device) => {
                library.path(src.device, dst.device)?
            }
            _ => return None,
        };
        Some(Traffic { src: src.device, dst: dst.device, path, bytes: copy.bytes })
    }

    /// Finds out what there is to know about a copy that is about to be made, and enables its pair for kernels if it is the
    /// first of it. `copy` is none for what has no addresses.
    pub(crate) fn consider(&self, library: usize, hip: &impl Hip, copy: Option<&Memcpy>) -> (Option<Traffic>, Before) {
        let mut before = Before::NOTHING;
        let Some(own) = self.libraries.get(library) else { return (None, before) };
        before.devices = own.devices();
        // A question is a call like any other: a capture might not bear it, and it would overwrite what was left.
        if capture::may_be_under_way() || hip.last_error() != Some(Code::SUCCESS) {
            return (None, before);
        }
        (before.current, before.devices) = self.whereabouts(own, hip);
        if let Some(copy) = copy
            && before.current.is_some()
        {
            before.ends = [copy.src, copy.dst].map(|address| self.identify(hip, address));
            let device = |known| match known {
                Known::Place(Place { kind: Kind::Plain, device, .. }, _) => Some(device),
                _ => None,
            };
            if let [Some(src), Some(dst)] = before.ends.map(device)
                && src != dst
            {
                self.decide(own, hip, [src, dst], before.current);
            }
        }
        if hip.last_error() != Some(Code::SUCCESS) {
            hip.clear_last_error();
        }
        (copy.and_then(|copy| self.decided(library, copy)), before)
    }

    /// The calling thread's device, and how many there are.
    fn whereabouts(&self, own: &Library, hip: &impl Hip) -> (Option<i32>, Option<i32>) {
        let current = hip.current_device();
        let devices = own.devices().unwrap_or_else(|| {
            let devices = if current.is_some() { hip.device_count() } else { 0 };
            own.devices.store(if devices == 0 { NO_DEVICES } else { devices }, Relaxed);
            devices
        });
        (current, Some(devices))
    }

    /// What is known before a call that copies nothing. What is asked succeeds if the call may.
    pub(crate) fn look_around(&self, library: usize, hip: &impl Hip) -> Before {
        let Some(own) = self.libraries.get(library) else { return Before::NOTHING };
        let (current, devices) = self.whereabouts(own, hip);
        Before { current, devices, ..Before::NOTHING }
    }

    /// The same without asking: how many devices there are, if that is known.
    #[inline(always)]
    pub(crate) fn seen_around(&self, library: usize) -> Option<Before> {
        let devices = self.libraries.get(library)?.devices()?;
        Some(Before { devices: Some(devices), ..Before::NOTHING })
    }

    /// What an address is. Asks the library, if it is not known.
    fn identify(&self, hip: &impl Hip, address: u64) -> Known {
        if let Some((place, end)) = self.known(address) {
            return Known::Place(place, end);
        }
        let epoch = self.cache.epoch();
        let memory = match if address == 0 { Queried::Unknown } else { hip.memory(address) } {
            Queried::Memory(memory) => memory,
            Queried::Unknown if hip.is_readable(address) => return Known::Unregistered,
            Queried::Unknown => return Known::Nothing,
            Queried::Nothing => return Known::NotAsked,
        };
        let device = u8::try_from(memory.device).ok().filter(|&device| usize::from(device) < DEVICES);
        let kind = match (memory.is_managed, memory.is_host, device) {
            (true, _, _) | (_, false, None) => Kind::Foreign,
            (_, true, _) => Kind::Host,
            (_, false, Some(_)) => Kind::Plain,
        };
        let device = if kind == Kind::Host { 0 } else { device.unwrap_or_default() };
        let place = Place { kind, device, owner: 0, reach: 0 };
        let end = memory.range.0.saturating_add(memory.range.1);
        // HIP may know registered memory by another address, or by none: then it does not tell where this one's ends.
        if !(memory.range.0..end).contains(&address) {
            return Known::Place(place, u64::MAX);
        }
        self.cache.insert(address, memory.range, place, epoch);
        Known::Place(place, end)
    }

    /// Finds out whether two devices reach each other, and has them do so if nobody objects.
    fn decide(&self, own: &Library, hip: &impl Hip, [src, dst]: [u8; 2], current: Option<i32>) {
        if own.links.are_decided(src, dst) {
            return;
        }
        let (one, other) = (i32::from(src), i32::from(dst));
        let reaches = [(one, other), (other, one)].map(|(device, peer)| hip.can_access(device, peer));
        let verdict = if reaches.contains(&true) { REACHABLE } else { APART };
        for (from, to) in [(src, dst), (dst, src)] {
            if let Some(pair) = own.pair(from, to) {
                pair.store(verdict, Relaxed);
            }
        }
        if !self.is_left.load(Relaxed) && verdict == REACHABLE {
            let wanted = [(src, dst), (dst, src)].into_iter().zip(reaches);
            let wanted = wanted.filter(|&((from, to), reaches)| reaches && !self.is_denied(from.into(), to.into()));
            let enabled: Vec<bool> = wanted.map(|((from, to), _)| self.enable(own, hip, from, to)).collect();
            if let Some(current) = current {
                hip.make_current(current);
            }
            if enabled.contains(&false) {
                // The program changes access at this moment: at a later copy.
                return;
            }
        }
        own.links.mark_decided(src, dst);
    }

    /// Lets a device access another's memory. False if that has to wait.
    fn enable(&self, own: &Library, hip: &impl Hip, from: u8, to: u8) -> bool {
        let Some(link) = own.links.begin(from, to, Link::Enabling) else { return true };
        // Whoever asks now waits until the link is enabled; who asked before is let go first.
        if own.asking.load(SeqCst) != 0 {
            link.end(Link::Idle);
            return false;
        }
        let ret = match hip.make_current(from.into()) {
            Code::SUCCESS => hip.enable(to.into()),
            ret => ret,
        };
        // What the program has enabled itself stays its own.
        link.end(if ret == Code::SUCCESS { Link::Ours } else { Link::Idle });
        match ret {
            Code::SUCCESS => record::log::pair_info(
                from,
                to,
                format_args!("kernels of device {from} can access memory of device {to} (HIP)"),
            ),
            Code::PEER_ACCESS_ALREADY_ENABLED => {}
            ret => record::log::pair_info(
                from,
                to,
                format_args!(
                    "not enabled from device {from} for kernels: hipDeviceEnablePeerAccess returned {}",
                    ret.0
                ),
            ),
        }
        true
    }

    /// Decides about a call that enables access from the current device; ends with [`Peers::asked`].
    pub(crate) fn enabling(&self, library: usize, hip: &impl Hip, peer: i32, flags: u32) -> Ask {
        self.asking(library, hip, peer, |own, device, peer| {
            // Before it checks anything else HIP refuses flags.
            let is_ours = flags == 0 && own.links.take(device, peer);
            if is_ours { Ask::Succeed } else { Ask::Forward }
        })
    }

    /// Decides about a call that disables access from the current device; ends with [`Peers::asked`].
    pub(crate) fn disabling(&self, library: usize, hip: &impl Hip, peer: i32) -> Ask {
        self.asking(library, hip, peer, |own, device, peer| {
            // What the program never enabled is disabled first, so that HIP returns what it would without us.
            if let Some(link) = own.links.begin_disabling(device, peer) {
                hip.disable(peer.into());
                link.end(Link::Idle);
            }
            Ask::Forward
        })
    }

    fn asking(&self, library: usize, hip: &impl Hip, peer: i32, decide: impl FnOnce(&Library, u8, u8) -> Ask) -> Ask {
        let Some(own) = self.libraries.get(library) else { return Ask::Forward };
        own.asking.fetch_add(1, SeqCst);
        if !self.hides() && self.is_left.load(Relaxed) {
            return Ask::Forward;
        }
        let Some(device) = hip.current_device() else { return Ask::Forward };
        if self.hides() && self.is_denied(device, peer) {
            return Ask::Unreachable;
        }
        match (u8::try_from(device), u8::try_from(peer)) {
            (Ok(device), Ok(peer)) => decide(own, device, peer),
            _ => Ask::Forward,
        }
    }

    /// Such a call has returned.
    pub(crate) fn asked(&self, library: usize) {
        if let Some(own) = self.libraries.get(library) {
            let _ = own.asking.fetch_update(SeqCst, SeqCst, |asking| asking.checked_sub(1));
        }
    }

    /// Disables what was enabled from and to the current device, which is about to be reset: whether a reset does so itself is
    /// another matter in each release. Ends with [`Peers::asked`].
    pub(crate) fn resetting(&self, library: usize, hip: &impl Hip) {
        let Some(own) = self.libraries.get(library) else { return };
        own.asking.fetch_add(1, SeqCst);
        let Some(current) = hip.current_device() else { return };
        let Ok(device) = u8::try_from(current) else { return };
        let is_empty = hip.last_error() == Some(Code::SUCCESS);
        for other in 0..DEVICES as u8 {
            for (from, to) in [(device, other), (other, device)] {
                let Some(link) = own.links.begin_disabling(from, to) else { continue };
                if hip.make_current(from.into()) == Code::SUCCESS {
                    hip.disable(to.into());
                }
                link.end(Link::Idle);
            }
            own.links.invalidate(device, other);
        }
        hip.make_current(current);
        // Somebody whom we do not see may have disabled it: then disabling it fails, and the program must not find that.
        if is_empty && hip.last_error() != Some(Code::SUCCESS) {
            hip.clear_last_error();
        }
    }
}
