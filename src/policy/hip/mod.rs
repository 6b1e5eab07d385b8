//! Peer access and copies of AMD's runtime.
//!
//! HIP has one layer: its hooks name a call and decide about it. A peer copy needs no enabling, since the runtime maps the
//! memory on first use; enabling is for kernels that follow pointers. So what is enabled here serves kernels, and copies take
//! the path that they take anyway. That path is verified before anybody enables access ([`verify`]).
//!
//! **The last error.** Before 7.0 each call overwrites it, from 7.0 on failures only. To be right for both, questions about
//! a copy are asked before it is made, while the slot is empty, and the slot is emptied again; a thread that has left an error
//! there is not asked for. Around functions about peer access, verifications aside, only calls are made that succeed if the
//! program's own may: those leave no trace that the program's own call does not cover. What a verification leaves is cleared.
//!
//! Source: the published code of HIP 5.7 to 7.2; no AMD GPU was run. Why it is so: docs/decisions/hip-*.md.

mod links;
#[cfg(test)]
mod tests;
mod verifications;
mod verify;
mod view;

pub(crate) use links::LIBRARIES;
pub(crate) use verifications::Scratch;
pub(crate) use view::{Ask, Asked};

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, AtomicUsize};

use p2pshim_host::machine::Machine;

use self::links::{DEVICES, Link, Links, at, bit};
use self::verifications::{Known as Seen, Purpose, Verifications};
use super::capture;
use super::driver::Copies;
use super::full::Verdict;
use super::memory::{Cache, Kind, Place};
use crate::api::abi::Code;
use crate::config::{self, Config, Denied};
use crate::model::{Memcpy, Path, Traffic, Why};
use crate::os;
use crate::record;

/// What decisions ask the real library, and have it do. No call waits for a device.
///
/// Devices are ordinals. All of it may change the calling thread's last error.
pub(crate) trait Hip: Copies<Scratch = Scratch> {
    /// The calling thread's last error; none if the library cannot tell.
    fn last_error(&self) -> Option<Code>;

    fn clear_last_error(&self);

    /// Whether a call that succeeds leaves the last error as it is: from 7.0 on.
    fn keeps_last_error(&self) -> bool;

    /// The calling thread's device; none on a machine without any.
    fn current_device(&self) -> Option<i32>;

    fn make_current(&self, device: i32) -> Code;

    fn device_count(&self) -> i32;

    /// Whether the hardware lets a device access the memory of another.
    fn can_access(&self, device: i32, peer: i32) -> bool;

    /// Runs `work` so that its calls disturb no capture, whichever thread's. False if that cannot be had.
    fn relaxed(&self, work: impl FnOnce()) -> bool;

    /// Lets the current device access the memory of another.
    fn enable(&self, peer: i32) -> Code;

    fn disable(&self, peer: i32) -> Code;

    /// What an address belongs to.
    fn memory(&self, address: u64) -> Queried;

    /// Whether the host can read at an address.
    fn is_readable(&self, address: u64) -> bool;

    /// Takes memory for verifications. Another device may be current then, as after each copy with it.
    fn scratch(&self, device: i32) -> Result<Scratch, Code>;

    /// The machine's properties of these devices, as its first GPUs; none if they are simulated, on a machine of which nothing is said. Takes a millisecond or more.
    fn machine(&self, devices: [i32; 2]) -> Option<Machine>;

    /// Whether the link between two devices does atomic operations itself.
    fn is_linked(&self, devices: [i32; 2]) -> bool;

    /// The verdict that is kept on a device's access to the memory of another.
    fn verdict(&self, device: i32, peer: i32) -> Option<Verdict>;

    /// Keeps one.
    fn keep_verdict(&self, device: i32, peer: i32, verdict: Verdict);
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

    /// Adds the remembered ends of a copy, where nothing was asked.
    pub(crate) fn with_remembered(self, ends: [Option<(Place, u64)>; 2]) -> Self {
        let remembered = |(known, end): (Known, Option<(Place, u64)>)| match (known, end) {
            (Known::NotAsked, Some((place, end))) => Known::Place(place, end),
            (known, _) => known,
        };
        let [src, dst] = self.ends;
        let [src_end, dst_end] = ends;
        Self { ends: [(src, src_end), (dst, dst_end)].map(remembered), ..self }
    }
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
    /// How many of them reset a device, and take memory along that is on it.
    resets: AtomicUsize,
    /// Of each device, a bit for each peer that the program has enabled access to.
    program: [AtomicU64; DEVICES],
}

impl Library {
    const fn new() -> Self {
        Self {
            links: Links::new(),
            pairs: [const { [const { AtomicU8::new(UNKNOWN) }; DEVICES] }; DEVICES],
            devices: AtomicI32::new(0),
            asking: AtomicUsize::new(0),
            resets: AtomicUsize::new(0),
            program: [const { AtomicU64::new(0) }; DEVICES],
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

    fn set_pair(&self, [one, other]: [u8; 2], known: u8) {
        for pair in [[one, other], [other, one]].into_iter().filter_map(|pair| at(&self.pairs, pair)) {
            pair.store(known, SeqCst);
        }
    }

    /// Whether the program has enabled a device's access to the memory of another.
    fn is_programs(&self, [device, peer]: [u8; 2]) -> bool {
        self.program.get(usize::from(device)).is_some_and(|peers| peers.load(Relaxed) & bit(peer.into()) != 0)
    }

    fn set_programs(&self, [device, peer]: [u8; 2], is_enabled: bool) {
        let Some(peers) = self.program.get(usize::from(device)) else { return };
        match is_enabled {
            true => peers.fetch_or(bit(peer.into()), Relaxed),
            false => peers.fetch_and(!bit(peer.into()), Relaxed),
        };
    }
}

/// All that is known of HIP in this process.
pub(crate) struct Peers {
    cache: Cache,
    libraries: [Library; LIBRARIES],
    /// Whether access is left to the program.
    is_left: AtomicBool,
    /// Whether pairs are verified, and whether that is over for want of memory.
    admits: AtomicBool,
    is_stopped: AtomicBool,
    /// Whether the program gets no access where the path is broken.
    refuses: AtomicBool,
    verifications: Verifications,
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
            admits: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
            verifications: Verifications::new(),
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
        self.admits.store(!is_off && config.probe != config::Probe::Off, Relaxed);
        self.refuses.store(config.broken == config::Broken::Refuse, Relaxed);
    }

    /// Takes over options that have changed: what was decided is decided anew.
    pub(crate) fn reconfigure(&self, config: &Config) {
        self.configure(config);
        self.libraries.iter().for_each(|library| library.links.invalidate_all());
    }

    /// Whether a device's access to another is hidden.
    fn is_denied(&self, device: i32, peer: i32) -> bool {
        let denied = usize::try_from(device).ok().and_then(|device| self.denied.get(device));
        device != peer && denied.is_some_and(|denied| denied.load(Relaxed) & bit(peer) != 0)
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
        let is_decided = |pair @ [src, dst]: [u8; 2]| library.links.are_decided(src, dst) || self.is_put_off(pair);
        self.traffic(copy, |pair| is_decided(pair).then(|| self.path(library, pair))?)
    }

    /// The path of a copy from one device to another, if the pair is known to a copy of the runtime.
    #[inline(always)]
    fn path(&self, library: &Library, [src, dst]: [u8; 2]) -> Option<Path> {
        if src == dst {
            return Some(Path::SameDevice);
        }
        match at(&library.pairs, [src, dst])?.load(SeqCst) {
            REACHABLE if self.verifications.has_failed([src, dst]) => Some(Path::Broken),
            REACHABLE => Some(Path::MappedOnUse),
            APART => Some(Path::Staged(Why::NoPath)),
            _ => None,
        }
    }

    /// The same, where `path` is that between two devices.
    #[inline(always)]
    fn traffic(&self, copy: &Memcpy, path: impl FnOnce([u8; 2]) -> Option<Path>) -> Option<Traffic> {
        let (src, dst) = (self.cache.find(copy.src)?, self.cache.find(copy.dst)?);
        let path = match (src.kind, dst.kind) {
            (Kind::Host, _) | (_, Kind::Host) => Path::Host,
            (Kind::Foreign, _) | (_, Kind::Foreign) => Path::Unknown,
            _ if src.device == dst.device => Path::SameDevice,
            _ => path([src.device, dst.device])?,
        };
        Some(Traffic::new([src.device, dst.device], path, copy.bytes))
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
                self.decide(library, own, hip, [src, dst], before.current);
            }
        }
        if hip.last_error() != Some(Code::SUCCESS) {
            hip.clear_last_error();
        }
        // There may be more to be done about the pair at a later copy.
        (copy.and_then(|copy| self.traffic(copy, |pair| self.path(own, pair))), before)
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

    /// Finds out whether two devices reach each other, and has them do so if data arrives and nobody objects.
    fn decide(&self, library: usize, own: &Library, hip: &impl Hip, [src, dst]: [u8; 2], current: Option<i32>) {
        if own.links.are_decided(src, dst) {
            return;
        }
        let directions = [[src, dst], [dst, src]];
        let reaches = directions.map(|[device, peer]| hip.can_access(device.into(), peer.into()));
        let is_reachable = reaches.contains(&true);
        let wanted = directions.into_iter().zip(reaches);
        let wanted = wanted.filter(|&([from, to], reaches)| reaches && !self.is_denied(from.into(), to.into()));
        let wanted: Vec<[u8; 2]> =
            if self.is_left.load(Relaxed) { Vec::new() } else { wanted.map(|it| it.0).collect() };
        let is_wanted = !wanted.is_empty();
        let known = if is_wanted { self.admit(library, hip, [src, dst], Purpose::Ours) } else { None };
        own.set_pair([src, dst], if is_reachable { REACHABLE } else { APART });
        if is_wanted && self.admits() && known != Some(Seen::Passed) {
            // What is not known yet is at a later copy, if anything is verified then.
            if known.is_some() || self.is_stopped.load(Relaxed) {
                own.links.mark_decided(src, dst);
            }
            return;
        }
        let restore = || {
            if is_wanted && let Some(current) = current {
                hip.make_current(current);
            }
        };
        let enable_all = || wanted.into_iter().map(|[from, to]| self.enable(own, hip, from, to)).collect();
        let enabled: Vec<bool> = os::finally(restore, enable_all);
        // Or the program changes access at this moment: at a later copy.
        if !enabled.contains(&false) {
            own.links.mark_decided(src, dst);
        }
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
}
