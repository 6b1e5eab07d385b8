//! Peer access that takes care of itself.
//!
//! A copy asks three things, without a lock, as long as nothing has changed: whose memory is its source, whose its
//! destination ([`Cache`]), and what was decided about the two ([`Cells`]). If that is not decided yet, it is, under one lock
//! that is never held while the driver is called:
//!
//! 1. A pair that has copied too little stays as it is.
//! 2. The path between the two devices is verified with data, once in the process ([`verify`]), by memory that has nothing to
//!    do with the program's, so that no copy of the program ever takes a path that is not verified.
//! 3. The two contexts get access to each other, or the pool is granted to the other device.
//!
//! The program sees the peer access that it asked for itself ([`view`]).
//!
//! **Who.** Ordinals and contexts in the arguments do not say who copies: CUDA accepts wrong ones, and pointers decide. Contexts
//! are known by handle and `cuCtxGetId`, which a reset changes and the handle does not.
//!
//! **Threads.** One thread at a time verifies or enables; others forward meanwhile. An enabling of ours that is under way is noted
//! as intended, so that a program's own on another thread, which then gets 704, is not taken for a second one. Before p2pshim
//! enables a pair, it waits for the program's disabling calls that began without access of ours: such a call could take the new access
//! from under the first copies.
//!
//! **Captures.** While a thread captures nothing is verified. The pair waits until the graph is instantiated, which is when its copies
//! choose their path.
//!
//! **Pools** belong to a device, not to a context. The other device is granted access to the pool itself, after a verification with
//! a pool of our own. `cuMemPoolGetAccess` does not show what we granted. Mapped memory is reported and not touched.
//!
//! Why a pair is verified first, what stays enabled, and how many peers are ours: docs/dev/decisions/.

mod admit;
mod arrays;
pub(crate) mod back_off;
pub(crate) mod cells;
mod decide;
mod enable;
#[cfg(test)]
pub(crate) mod fake;
mod foreign;
mod hide;
pub(crate) mod outcome;
mod pair_state;
pub(crate) mod registry;
mod standing;
#[cfg(test)]
mod tests;
mod verification;
mod verified;
pub(crate) mod verifier;
pub(crate) mod verify;
mod view;

pub(crate) use crate::objects::shared::{Handle, How};
pub(crate) use decide::Circumstances;
pub(crate) use hide::Grants;
pub(crate) use pair_state::PairState;
pub(crate) use registry::{Verification, ordered};
pub(crate) use standing::Standing;
pub(crate) use view::HarmlessEnable;

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use p2pshim_trace::REMOTE_LAST;

use self::cells::Cells;
use self::registry::AllocationOwner;
use self::verifier::{PeerVerifier, RegistryGuard};
use super::driver::{Driver, Holder};
use super::taking::Taking;
use crate::api::Layer;
use crate::config::{Access as Policy, Config};
use crate::model::{Endpoints, Memcpy, Named, Path, Traffic, Why, is_array};
use crate::objects::captures;
use crate::objects::memory::{Cache, Kind, Place};
use crate::os;

/// All that is known of memory, contexts and peers. All is zero at the start, and takes no room in the library's file.
pub(crate) struct Access {
    cache: Cache,
    cells: Cells,
    verifier: PeerVerifier,
    /// Whether physical memory of other processes was imported.
    has_imported: AtomicBool,
    /// Whether memory of other processes was opened by handles.
    has_opened: AtomicBool,
    /// Devices on which the program was seen to get a context, a bit each.
    with_context: AtomicU64,
    /// The program's calls that disable a peer, or take a right to a pool away. Nothing is enabled meanwhile that they might disable.
    pub(crate) disablings: Taking,
    /// How often the program has taken away access that there was.
    losses: AtomicUsize,
    /// The peers of each device of which a query was answered as it came, and need not be looked at again: a bit each.
    shown: [AtomicU64; 64],
}

impl Access {
    pub(crate) const fn new() -> Self {
        Self {
            cache: Cache::new(),
            cells: Cells::new(),
            verifier: PeerVerifier::new(),
            has_imported: AtomicBool::new(false),
            has_opened: AtomicBool::new(false),
            with_context: AtomicU64::new(0),
            disablings: Taking::new(),
            losses: AtomicUsize::new(0),
            shown: [const { AtomicU64::new(0) }; 64],
        }
    }

    /// Takes over the options: what was decided is decided anew.
    pub(crate) fn configure(&self, config: &Config) {
        self.verifier.configure(config, Layer::Driver);
        self.forget_shown();
        self.cells.change_all();
    }

    /// Whether there is something to do about a context on a device: it is the program's first there, as far as is known.
    #[inline(always)]
    pub(crate) fn is_first_context(&self, device: i32) -> bool {
        (0..64).contains(&device) && self.with_context.load(Relaxed) >> device & 1 == 0
    }

    /// The program has its first context on a device: reads the verdicts on the device and those with a context. A program should not wait
    /// for the files, on H100 0.2 ms for the first pair, when it enables peer access; to get a context takes a thousand times as long.
    pub(crate) fn on_context_created(&self, driver: &impl Driver, device: i32) {
        if captures::may_be_under_way() {
            return;
        }
        let before = self.with_context.fetch_or(1 << device, Relaxed);
        let is_left = self.lock().access == Policy::App;
        for other in (0..64).filter(|&other| other != device && before >> other & 1 == 1) {
            for pair in [[device, other], [other, device]] {
                self.verifier.read_kept(driver, pair);
            }
            // Nothing else asks where that is left to the program.
            if is_left
                && driver.can_reach([device, other]) == Ok([false, false])
                && let (Ok(one), Ok(peer)) = (device.try_into(), other.try_into())
            {
                self.lock().set_verification(Kind::Plain, one, peer, Verification::NoPath);
            }
        }
    }

    /// Other devices may have taken the places of those that there were: their paths are verified anew. The rights to memory
    /// stay.
    pub(crate) fn on_process_restored(&self, driver: &impl Driver) {
        self.lock().on_process_restored();
        self.forget_shown();
        self.look_up_denied(driver);
        self.cache.forget_all();
        self.cells.change_all();
    }

    fn lock(&self) -> RegistryGuard<'_> {
        self.verifier.lock()
    }

    /// All that is remembered of owners without the lock.
    fn caches(&self) -> (&Cache, &Cells) {
        (&self.cache, &self.cells)
    }

    /// From where to where a copy goes, and on which path, if that is decided. Once any pair is blocked no copy's is: the driver is
    /// asked about each.
    #[inline(always)]
    pub(crate) fn decided(&self, copy: &Memcpy) -> Option<Traffic> {
        self.decided_between(copy).map(|(traffic, _)| traffic)
    }

    /// Likewise, and the places of its ends.
    #[inline(always)]
    pub(crate) fn decided_between(&self, copy: &Memcpy) -> Option<(Traffic, [Place; 2])> {
        if self.blocks() {
            return None;
        }
        let (src, dst) = (self.cache.find(copy.src)?, self.cache.find(copy.dst)?);
        let (path, keeps_waits) = match evident(src, dst) {
            Some(path) => (path, false),
            None => self.cells.decided(src.owner, dst.owner)?,
        };
        Some((traffic([src, dst], path, keeps_waits, copy), [src, dst]))
    }

    /// Contexts on the devices of a copy's source and destination, if each end is a device's and lies within one allocation. Where no context is
    /// on the device of one, that of the other which reaches it.
    pub(crate) fn contexts_of(&self, driver: &impl Driver, copy: &Memcpy) -> Option<[(usize, u64); 2]> {
        let context = |address: u64, bytes: u64, named: Named| {
            let (place, range) = self.place_and_range(driver, address)?;
            // A mapping may continue in the one behind it; of arrays the driver knows.
            let is_open = place.kind == Kind::Mapped || is_array(address);
            let is_whole = is_open || bytes <= range.end.saturating_sub(address);
            let is_of_a_device = matches!(place.kind, Kind::Plain | Kind::Pool | Kind::Mapped);
            // The driver refuses a handle that is no context.
            let is_named = matches!(named.context(), 0) || driver.context_id(named.context()).is_some();
            (is_whole && is_of_a_device && is_named).then(|| self.context_for(driver, place, named.context()))?
        };
        let [src, dst] = copy.reach().unwrap_or([copy.bytes; 2]);
        let contexts = [context(copy.src, src, copy.src_named), context(copy.dst, dst, copy.dst_named)];
        let places = [copy.src, copy.dst].map(|address| self.place(driver, address));
        let is_reached =
            |place: Place, by| place.kind == Kind::Remote || !self.blocks() && is_reached_by_mapping(place, by);
        match (contexts, places) {
            ([Some(src), Some(dst)], _) => Some([src, dst]),
            // Memory of another process, which is open on the device of the other end. It is read back there; nothing of it is staged.
            ([Some(one), None], [Some(by), Some(place)]) | ([None, Some(one)], [Some(place), Some(by)])
                if is_reached(place, by) =>
            {
                Some([one; 2])
            }
            _ => None,
        }
    }

    /// The owner of an address, and its allocation, if that is known.
    #[inline(always)]
    pub(crate) fn known(&self, address: u64) -> Option<(Place, Range<u64>)> {
        self.cache.find_range(address)
    }

    /// Whether a copy that names no devices goes from one to another; none if that is not known yet.
    #[inline(always)]
    pub(crate) fn between(&self, [src, dst]: [u64; 2]) -> Option<Between> {
        let ((src, _), (dst, _)) = (self.cache.find_any(src)?, self.cache.find_any(dst)?);
        Some(Between::of(src, dst))
    }

    /// Whether it does, and the driver is asked about ends that it did not know, or was not asked about.
    pub(crate) fn ask_between(&self, driver: &impl Driver, copy: &Memcpy) -> Between {
        let (ends, now) = ([copy.src, copy.dst], self.cache.now());
        let is_unknown = |address| self.cache.find_any(address).is_some_and(|(place, _)| place.kind == Kind::Unknown);
        let were_unknown = ends.map(is_unknown);
        let places = ends.map(|address| self.place(driver, address));
        // Memory of the host is a device's now, and perhaps memory around it.
        let is_stale = places.iter().zip(were_unknown).any(|(place, was_unknown)| was_unknown && place.is_some());
        if is_stale {
            self.cache.count_change();
        }
        for (address, place) in ends.into_iter().zip(places) {
            match place {
                // Nobody is asked of an array that was not made in sight.
                None if !is_array(address) => self.cache.insert_unknown(address, now),
                _ => {}
            }
        }
        let is_of_a_device = |(place, end): (Option<Place>, u64)| match place {
            Some(place) => !matches!(place.kind, Kind::Host | Kind::Foreign),
            None => is_array(end),
        };
        match places {
            [Some(src), Some(dst)] => Between::of(src, dst),
            _ if places.into_iter().zip(ends).all(is_of_a_device) => Between::Devices,
            _ => Between::Unknown,
        }
    }

    /// Finds out whose memory an address is, for later.
    pub(crate) fn learn(&self, driver: &impl Driver, address: u64) {
        self.place(driver, address);
    }

    /// The contexts of both endpoints of a copy, as [`Traffic::wait_contexts`] has them.
    pub(crate) fn ends(&self, driver: &impl Driver, copy: &Memcpy) -> Option<Endpoints> {
        Some(ends([self.place(driver, copy.src)?, self.place(driver, copy.dst)?], copy))
    }

    /// Any memory may have gone away, or mean other memory.
    pub(crate) fn forget_all_memory(&self) {
        self.cache.forget_all();
    }

    /// The program has unmapped or closed memory, or changed its rights. True, so that a caller sees that this ran.
    pub(crate) fn forget_mappings(&self) -> bool {
        // Before owners are looked for: another thread may be giving a first mapping its owner.
        self.cache.count_change();
        let mapped: Vec<u8> =
            self.lock().numbered().filter(|(_, owner)| owner.is_mapped()).map(|(number, _)| number).collect();
        // Memory that another process has exported has no owner here.
        mapped.into_iter().chain([0]).for_each(|number| self.cache.forget(number));
        true
    }

    /// A context is about to end, which may be the primary one of a device, and its memory with it. Not only when it has ended: by then the addresses
    /// may be those of another thread's memory on another device. True, so that a caller sees that this ran.
    pub(crate) fn on_context_ending(&self, context: Option<usize>, primary_of: Option<i32>) -> bool {
        self.cache.count_change();
        let is_going = |owner: &AllocationOwner| match *owner {
            AllocationOwner::Context { handle, device, .. } => Some(handle) == context || Some(device) == primary_of,
            AllocationOwner::Pool { device, .. } | AllocationOwner::Mapped { device } => Some(device) == primary_of,
        };
        let going: Vec<u8> =
            self.lock().numbered().filter(|(_, owner)| is_going(owner)).map(|(number, _)| number).collect();
        // Its memory of the host has no owner.
        going.into_iter().chain([0]).for_each(|number| self.cache.forget(number));
        true
    }

    /// Forgets whose the memory is that began there and was freed.
    #[inline]
    pub(crate) fn forget_memory(&self, start: u64) {
        if self.cache.may_know_freed(start) {
            os::undisturbed(|| self.cache.forget_at(start));
        }
    }

    /// A number that changes when the program takes away access that there was. Read before the driver is asked what depends on it: with Acquire
    /// the processor does not put the question first.
    #[inline]
    pub(crate) fn losses(&self) -> usize {
        self.losses.load(Acquire)
    }

    /// The number of a context that exists.
    fn context_number(&self, handle: usize, id: u64, device: i32) -> Option<u8> {
        self.lock().context(self.caches(), handle, id, device)
    }

    /// The owner of an address. Asks the driver, if it is not known.
    fn place(&self, driver: &impl Driver, address: u64) -> Option<Place> {
        self.place_and_range(driver, address).map(|(place, _)| place)
    }

    /// The owner of an address, and its allocation. Once any pair is blocked the driver is asked each time: memory that has gone
    /// away may still be remembered, while another thread has got its address.
    pub(crate) fn place_and_range(&self, driver: &impl Driver, address: u64) -> Option<(Place, Range<u64>)> {
        if let Some(known) = self.cache.find_range(address).filter(|_| !self.blocks()) {
            return Some(known);
        }
        let now = self.cache.now();
        if is_array(address) {
            let place = self.array_place(driver, address)?;
            self.cache.insert(address, (address, 1), place, now);
            return Some((place, address..address.saturating_add(1)));
        }
        let mut memory = driver.memory(address)?;
        let remote = self.remote(driver, address, &mut memory);
        let device = u8::try_from(memory.device).ok().filter(|&device| device < 64);
        // Whether a pair is blocked is known of its devices.
        let nobody = || self.blocks().then_some(0);
        let place = match memory.holder {
            _ if let Some(device) = remote => Place::new(Kind::Remote, device, 0),
            Holder::Host => Place::new(Kind::Host, 0, 0),
            Holder::Foreign | Holder::Opened => Place::new(Kind::Foreign, device?, 0),
            Holder::Context(context) => {
                let id = driver.context_id(context)?;
                let owner = self.context_number(context, id, memory.device).or_else(nobody)?;
                Place { of: context as u64, ..Place::new(Kind::Plain, device?, owner) }
            }
            Holder::Pool(pool) => {
                let mut registry = self.lock();
                let is_gone = registry.pools.is_gone(pool);
                let owner = if is_gone { None } else { registry.pool(pool, memory.device) };
                match owner.or_else(nobody) {
                    Some(owner) => Place::new(Kind::Pool, device?, owner),
                    None if is_gone => Place::new(Kind::Foreign, device?, 0),
                    None => return None,
                }
            }
            Holder::Mapped => {
                let owner = self.lock().number(AllocationOwner::Mapped { device: memory.device }).or_else(nobody)?;
                let devices = (0..driver.device_count().min(64)).filter(|&by| driver.mapped_access(address, by));
                let of = devices.fold(0, |reach, by| reach | 1 << by);
                Place { of, ..Place::new(Kind::Mapped, device?, owner) }
            }
        };
        if !place.is_nobodys() {
            self.cache.insert(address, memory.range, place, now);
        }
        let (start, bytes) = memory.range;
        Some((place, start..start.saturating_add(bytes)))
    }
}

/// The ends of a copy that names no devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Between {
    /// Two devices, of which one may be another process's and not known; or a device and an array of which it is not known where it lies.
    Devices,
    /// One device, or the host and a device. So is managed memory taken, which moves by itself.
    Others,
    /// An end that the driver did not know: ordinary memory of the host, unless it has become a device's since.
    Unknown,
}

impl Between {
    #[inline(always)]
    fn of(src: Place, dst: Place) -> Self {
        match (src.kind, dst.kind) {
            (Kind::Host | Kind::Foreign, _) | (_, Kind::Host | Kind::Foreign) => Self::Others,
            (Kind::Unknown, _) | (_, Kind::Unknown) => Self::Unknown,
            _ if !is_one_device(src, dst) => Self::Devices,
            _ => Self::Others,
        }
    }
}

/// A copy from one place to another; `keeps_waits` if p2pshim alone has made its path direct, or may do so before the copy is made.
#[inline(always)]
fn traffic(places: [Place; 2], path: Path, keeps_waits: bool, copy: &Memcpy) -> Traffic {
    let wait_contexts = if keeps_waits { ends(places, copy) } else { [0; 2] };
    Traffic { wait_contexts, ..Traffic::new(places.map(|place| place.device), path, copy.bytes) }
}

/// The contexts that a staged copy is work of, besides its stream's: those that the memory belongs to. If it belongs to none, since it is of a pool or
/// mapped, the context that the call names for that end (measured on H200).
#[inline(always)]
fn ends([src, dst]: [Place; 2], copy: &Memcpy) -> Endpoints {
    let end = |place: Place, named: Named| if place.has_rights() { named.context() } else { place.of as usize };
    [end(src, copy.src_named), end(dst, copy.dst_named)]
}

/// The path of a copy that needs no decision.
#[inline(always)]
pub(crate) fn evident(src: Place, dst: Place) -> Option<Path> {
    if src.kind == Kind::Host || dst.kind == Kind::Host {
        return Some(Path::Host);
    }
    if src.kind == Kind::Foreign || dst.kind == Kind::Foreign {
        return Some(Path::Unknown);
    }
    if is_one_device(src, dst) {
        return Some(Path::SameDevice);
    }
    // Opened memory is accessed over the link, or lies on the other's device.
    if src.kind == Kind::Remote || dst.kind == Kind::Remote {
        return Some(Path::Direct);
    }
    (is_reached_by_mapping(src, dst) || is_reached_by_mapping(dst, src)).then_some(Path::Direct)
}

/// Whether two places are known to be on one device.
#[inline(always)]
fn is_one_device(src: Place, dst: Place) -> bool {
    src.device == dst.device && src.device != REMOTE_LAST
}

/// Whether mapped memory may be accessed from the other's device.
#[inline(always)]
fn is_reached_by_mapping(place: Place, by: Place) -> bool {
    place.kind == Kind::Mapped && place.of >> (by.device & 63) & 1 != 0
}

/// Why a copy between these is staged if nobody has let the one device reach the memory of the other.
fn left_alone(src: Place, dst: Place) -> Why {
    match (src.kind, dst.kind) {
        (Kind::Mapped, _) | (_, Kind::Mapped) => Why::Mapped,
        (Kind::Pool, _) | (_, Kind::Pool) => Why::Pool,
        _ => Why::NotEnabled,
    }
}
