//! Allocation owners, access between them, and verdicts: all that is kept under the lock.

use std::collections::{BTreeMap, BTreeSet};

use super::back_off::BackOff;
use super::cells::Cells;
use crate::api::Layer;
use crate::config::{self, Broken, Config, Denied, GpuName, Verify};
use crate::model::{Hidden, Why};
use crate::objects::generations::OWNERS;
use crate::objects::memory::{Cache, Kind, Place};
use crate::objects::pools::Pools;
use crate::objects::shared::Shared;
use crate::policy::driver::{Scratch, ScratchKind};
use crate::policy::verdicts::Verdict;

/// The context, pool or device that an allocation belongs to. Its number is its position plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocationOwner {
    /// A context. The id tells it from a later one with the same handle.
    Context {
        handle: usize,
        id: u64,
        device: i32,
    },
    Pool {
        handle: usize,
        device: i32,
    },
    /// All that the program maps on a device.
    Mapped {
        device: i32,
    },
}

impl AllocationOwner {
    pub(super) fn device(self) -> i32 {
        match self {
            Self::Context { device, .. } | Self::Pool { device, .. } | Self::Mapped { device } => device,
        }
    }

    /// The context that it is, if it is one of this device.
    pub(super) fn context_on(self, on: i32) -> Option<(usize, u64)> {
        if let Self::Context { handle, id, device } = self { Some((handle, id)).filter(|_| device == on) } else { None }
    }

    pub(super) fn is_mapped(self) -> bool {
        matches!(self, Self::Mapped { .. })
    }

    pub(super) fn pool(self) -> Option<usize> {
        if let Self::Pool { handle, .. } = self { Some(handle) } else { None }
    }
}

/// How many peers a context can have, on machines without NVSwitch.
pub(super) const MOST_PEERS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ours {
    No,
    /// We are about to enable it: a return of 704 means us.
    Intended,
    Held,
}

/// Access of one context to the memory of another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) from: u8,
    pub(crate) to: u8,
    /// Whether the program believes to have enabled it.
    pub(crate) program: bool,
    pub(crate) ours: Ours,
}

impl Link {
    pub(super) fn is_enabled(self) -> bool {
        self.program || self.ours == Ours::Held
    }
}

/// The outcome of verifying the path between two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verification {
    /// Data arrives.
    Passed,
    /// The driver says that there is none.
    NoPath,
    /// Data is lost.
    Broken,
    /// A copy did not end in time, though one through the host did. That is no proof: the pair is refused for now, and judged again.
    Late,
    /// Data arrives, but later than through the host.
    Slower,
    /// With HIP: it is not verified in the program's process, where a copy may hang.
    Risky,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attempts {
    pub(super) back_off: BackOff,
    /// For the limit of peers, because the devices were busy, or for a graph.
    for_now: Option<Why>,
}

impl Attempts {
    pub(super) fn put_off(&mut self, why: Why) {
        self.back_off.mark();
        self.for_now = Some(why).filter(|why| matches!(why, Why::Limit | Why::Busy | Why::Graph));
    }

    /// Why copies are staged until the next.
    pub(super) fn why(self) -> Why {
        self.for_now.unwrap_or(if self.back_off.tries > 0 { Why::Unverified } else { Why::NotYetWorth })
    }
}

#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) access: config::Access,
    pub(super) verify: Verify,
    broken: Broken,
    pub(super) leaves_pools: bool,
    /// Whether the driver has no memory with rights of its own, so that pairs cannot be verified.
    pub(super) cannot_verify: bool,
    pub(super) denied: Vec<Denied>,
    /// The UUID and PCI address of each device, once a denied one was looked up among them.
    pub(super) gpus: Vec<[String; 2]>,
    owners: Vec<Option<AllocationOwner>>,
    links: BTreeMap<(u8, u8), Link>,
    /// By devices.
    pub(super) attempts: BTreeMap<(u8, u8), Attempts>,
    pub(super) verifications: BTreeMap<(Kind, u8, u8), Verification>,
    /// The memory of pairs of devices whose copies did not end in time; with HIP, of each copy of the runtime.
    pub(super) hung: BTreeMap<((u8, u8), u64), [Scratch; 2]>,
    pub(super) taken: BTreeMap<(usize, u64), u8>,
    /// Pairs of devices, and in how many executable graphs their copies are staged: see [`super::Access::hold`].
    pub(super) held: BTreeMap<(u8, u8), usize>,
    /// Pairs of devices between which so much was copied that it is worth enabling them.
    used: BTreeSet<(u8, u8)>,
    /// The verdicts that are kept on devices' access to others' memory, as far as they were read.
    pub(crate) kept: BTreeMap<[i32; 2], Option<Verdict>>,
    /// Pairs of devices of which these say that data arrives.
    pub(super) passed_earlier: BTreeSet<(u8, u8)>,
    scratch: Vec<Scratch>,
    /// Which device was let reach which scratch, by its address.
    pub(super) shared: Vec<(u64, i32)>,
    pub(super) pools: Pools,
    /// Which device the program was refused rights for, to memory of which.
    pub(super) refused_rights: BTreeSet<[i32; 2]>,
    pub(super) shared_memory: Shared,
    /// Pairs of devices that were verified for a program that asks, or with HIP, in vain.
    pub(crate) asked: BTreeMap<(u8, u8), BackOff>,
    /// Pairs of devices that were verified anew, and whether data arrived; none if that could not be found out.
    pub(super) verified_again: BTreeMap<[u8; 2], (BackOff, Option<bool>)>,
    /// Whether the process was restored from a checkpoint, so that access that we have enabled does not say that its path was verified.
    pub(super) is_restored: bool,
    /// Pairs whose paths threads are verifying or enabling; no two have a device in common.
    pub(super) acting: Vec<[u8; 2]>,
}

impl Registry {
    pub(super) fn configure(&mut self, config: &Config, layer: Layer) {
        self.access = config.access;
        self.verify = config.verify;
        self.broken = config.broken;
        self.leaves_pools = !config.grants_pools;
        let of_hip = |denied: &Denied| {
            let [device, peer] = denied.hip_ordinals()?.map(GpuName::Ordinal);
            Some(Denied { device, peer })
        };
        self.denied = match layer {
            Layer::Hip => config.denied.iter().filter_map(of_hip).collect(),
            _ => config.denied.clone(),
        };
        self.gpus.clear();
        self.kept.clear();
        self.passed_earlier.clear();
    }

    /// Takes over which devices there are. Returns which are denied by an ordinal that no device has; none if another thread was faster.
    pub(super) fn look_up_denied(&mut self, gpus: Vec<[String; 2]>) -> BTreeSet<i32> {
        if !self.gpus.is_empty() {
            return BTreeSet::new();
        }
        self.gpus = gpus;
        let names = self.denied.iter().flat_map(|Denied { device, peer }| [device, peer]);
        let ordinals = names.filter_map(|name| if let GpuName::Ordinal(own) = name { Some(*own) } else { None });
        ordinals.filter(|&own| usize::try_from(own).is_ok_and(|own| own >= self.gpus.len())).collect()
    }

    /// Whether a device's access to the memory of another is denied by an option, as far as it is known which devices that names.
    pub(crate) fn is_denied(&self, device: i32, peer: i32) -> bool {
        let is = |name: &GpuName, ordinal: i32| {
            let gpu = usize::try_from(ordinal).ok().and_then(|ordinal| self.gpus.get(ordinal));
            let [uuid, bus_id] = gpu.map_or([""; 2], |gpu| gpu.each_ref().map(String::as_str));
            name.is(ordinal, uuid, bus_id)
        };
        let is_named = |denied: &Denied| is(&denied.device, device) && is(&denied.peer, peer);
        device != peer && (self.access == config::Access::Off || self.denied.iter().any(is_named))
    }

    /// Whether access is denied, by UUIDs and PCI addresses: ordinals mean nothing for devices that the process does not see.
    pub(super) fn is_denied_by_name(&self, [[one, at], [other, other_at]]: [&[String; 2]; 2]) -> bool {
        const NONE: i32 = -1;
        let is_it = |denied: &Denied| denied.device.is(NONE, one, at) && denied.peer.is(NONE, other, other_at);
        self.denied.iter().any(is_it)
    }

    pub(super) fn refuses_what_is_broken(&self) -> bool {
        self.broken == Broken::Refuse
    }

    pub(crate) fn is_refused(&self, device: i32, peer: i32) -> bool {
        self.refuses_what_is_broken() && self.is_broken(device, peer)
    }

    /// Why the shim stages all copies between two devices that CUDA would make on the path, or refuse, whoever has enabled it.
    pub(super) fn blocked(&self, src: Place, dst: Place) -> Option<Why> {
        let [src, dst] = [src, dst].map(|place| i32::from(place.device));
        if self.is_either_denied(src, dst) {
            return Some(Why::DeniedInUse);
        }
        self.is_broken(src, dst).then_some(Why::BrokenInUse)
    }

    /// Whether the program is told that a device has no access to the memory of another.
    pub(super) fn is_hidden(&self, device: i32, peer: i32) -> bool {
        self.why_hidden(device, peer).is_some()
    }

    pub(crate) fn why_hidden(&self, device: i32, peer: i32) -> Option<Hidden> {
        match self.access {
            _ if device == peer => None,
            config::Access::Off => Some(Hidden::Off),
            _ if self.is_denied(device, peer) => Some(Hidden::Denied),
            _ if !self.is_refused(device, peer) => None,
            _ => Some(if self.is_late(device, peer) { Hidden::Late } else { Hidden::Broken }),
        }
    }

    /// Whether either device's access to the other is denied: then copies between them go through the host.
    pub(super) fn is_either_denied(&self, one: i32, other: i32) -> bool {
        self.is_denied(one, other) || self.is_denied(other, one)
    }

    /// The number of a context. An earlier one of the same handle is forgotten.
    pub(super) fn context(&mut self, caches: (&Cache, &Cells), handle: usize, id: u64, device: i32) -> Option<u8> {
        let known = self.find(|owner| matches!(owner, AllocationOwner::Context { handle: h, .. } if *h == handle));
        match known {
            Some((number, owner)) if owner == (AllocationOwner::Context { handle, id, device }) => Some(number),
            _ => {
                if let Some((number, _)) = known {
                    self.forget(caches, number);
                    // Its memory of the host.
                    caches.0.forget(0);
                }
                self.add(AllocationOwner::Context { handle, id, device })
            }
        }
    }

    /// The number of an allocation owner; none if there are more than are told apart.
    pub(crate) fn number(&mut self, owner: AllocationOwner) -> Option<u8> {
        self.find(|known| *known == owner).map(|(number, _)| number).or_else(|| self.add(owner))
    }

    /// The number of a pool that is there.
    pub(super) fn pool(&mut self, pool: usize, device: i32) -> Option<u8> {
        self.pools.set_device(pool, device);
        self.number(AllocationOwner::Pool { handle: pool, device })
    }

    pub(super) fn find(&self, wanted: impl Fn(&AllocationOwner) -> bool) -> Option<(u8, AllocationOwner)> {
        self.numbered().find(|(_, owner)| wanted(owner))
    }

    pub(super) fn numbered(&self) -> impl Iterator<Item = (u8, AllocationOwner)> {
        self.owners.iter().zip(1..).filter_map(|(owner, number)| Some((number, (*owner)?)))
    }

    fn add(&mut self, owner: AllocationOwner) -> Option<u8> {
        let free = self.owners.iter().position(Option::is_none).unwrap_or(self.owners.len());
        if free + 1 >= OWNERS {
            return None;
        }
        if free == self.owners.len() {
            self.owners.push(None);
        }
        *self.owners.get_mut(free)? = Some(owner);
        u8::try_from(free + 1).ok()
    }

    pub(crate) fn owner(&self, number: u8) -> Option<AllocationOwner> {
        *self.owners.get(usize::from(number).checked_sub(1)?)?
    }

    /// Forgets an owner that is gone, with all its links.
    pub(super) fn forget(&mut self, (cache, cells): (&Cache, &Cells), number: u8) {
        let Some(owner) = self.owner(number) else { return };
        if let AllocationOwner::Context { handle, .. } = owner {
            self.drop_scratches(|scratch| scratch.context == handle);
            // Not with a pool: a program may make and destroy one all the time.
            self.attempts.retain(|&(one, other), _| ![one, other].map(i32::from).contains(&owner.device()));
        }
        self.links.retain(|&(from, to), _| {
            if from == number {
                cells.change(to);
            }
            from != number && to != number
        });
        if let Some(slot) = self.owners.get_mut(usize::from(number) - 1) {
            *slot = None;
        }
        cache.forget(number);
        cells.forget(number);
    }

    pub(crate) fn link(&self, from: u8, to: u8) -> Option<&Link> {
        self.links.get(&(from, to))
    }

    /// The link, which is made if there is none.
    pub(crate) fn link_mut(&mut self, from: u8, to: u8) -> &mut Link {
        self.links.entry((from, to)).or_insert(Link { from, to, program: false, ours: Ours::No })
    }

    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        self.links.values()
    }

    fn count_ours(&self, from: u8) -> usize {
        self.links().filter(|link| link.from == from && link.ours != Ours::No).count()
    }

    /// Whether we may have one more link from a context. If its device has more peers than a context can have (`is_scarce`),
    /// half of the places are left to the program.
    pub(super) fn may_have_more(&self, from: u8, is_scarce: bool) -> bool {
        !is_scarce || self.count_ours(from) < MOST_PEERS / 2
    }

    /// The enabled link by which one side reaches the other's memory, if that belongs to a context.
    pub(super) fn reach(&self, by: Place, to: Place) -> Option<Link> {
        self.links.values().copied().find(|link| self.is_reach(link, by, to))
    }

    fn is_reach(&self, link: &Link, by: Place, to: Place) -> bool {
        let is_by = |number: u8| match by.kind {
            Kind::Plain => number == by.owner,
            // Memory of a pool, and what is mapped, belongs to a device, not to one of its contexts.
            _ => self.owner(number).is_some_and(|owner| owner.context_on(by.device.into()).is_some()),
        };
        to.kind == Kind::Plain && link.to == to.owner && link.is_enabled() && is_by(link.from)
    }

    /// Whether a pair that is direct is so by what p2pshim has enabled or granted, and by nothing that the program has.
    pub(super) fn is_made_direct(&self, src: Place, dst: Place) -> bool {
        let sides = [(src, dst), (dst, src)];
        let links = || {
            let reaching =
                |(by, to): (Place, Place)| self.links.values().filter(move |link| self.is_reach(link, by, to));
            sides.into_iter().flat_map(reaching)
        };
        let rights =
            || sides.into_iter().filter_map(|(by, to)| Some((self.owner(to.owner)?.pool()?, i32::from(by.device))));
        let is_the_programs =
            links().any(|link| link.program) || rights().any(|(pool, by)| self.pools.is_granted_by_program(pool, by));
        let is_ours = links().next().is_some() || rights().any(|(pool, by)| self.pools.is_granted_by_us(pool, by));
        is_ours && !is_the_programs
    }

    pub(super) fn attempts_mut(&mut self, src: Place, dst: Place) -> &mut Attempts {
        self.attempts.entry(ordered(src.device, dst.device)).or_default()
    }

    pub(super) fn attempts(&self, one: u8, other: u8) -> Attempts {
        self.attempts.get(&ordered(one, other)).copied().unwrap_or_default()
    }

    pub(super) fn has_passed_earlier(&self, one: u8, other: u8) -> bool {
        self.passed_earlier.contains(&ordered(one, other))
    }

    pub(super) fn mark_used(&mut self, one: u8, other: u8) {
        self.used.insert(ordered(one, other));
    }

    pub(super) fn is_used(&self, one: u8, other: u8) -> bool {
        self.used.contains(&ordered(one, other))
    }

    pub(crate) fn scratch(&self, kind: ScratchKind, (context, id): (usize, u64)) -> Option<Scratch> {
        let is_it = |scratch: &&Scratch| (scratch.kind, scratch.context, scratch.context_id) == (kind, context, id);
        self.scratch.iter().find(is_it).copied()
    }

    pub(super) fn add_scratch(&mut self, scratch: Scratch) {
        self.scratch.push(scratch);
    }

    /// A reset ends the pools of a device.
    pub(super) fn forget_pools(&mut self, device: i32) {
        self.pools.on_device_reset(device);
        self.drop_scratches(|scratch| scratch.kind == ScratchKind::Pool && scratch.device == device);
    }

    pub(super) fn drop_scratches(&mut self, is_dropped: impl Fn(&Scratch) -> bool) {
        let dropped: Vec<u64> = self.scratch.iter().filter(|scratch| is_dropped(scratch)).map(|s| s.address).collect();
        self.scratch.retain(|scratch| !is_dropped(scratch));
        self.shared.retain(|(address, _)| !dropped.contains(address));
        self.hung.retain(|_, scratches| !scratches.iter().any(&is_dropped));
    }
}

/// A pair of devices or owners, in whichever order.
pub(crate) fn ordered(one: u8, other: u8) -> (u8, u8) {
    (one.min(other), one.max(other))
}
