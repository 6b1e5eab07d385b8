//! The program's view of peer access: it sees the access that it asked for itself.
//!
//! Only the real function knows all errors that it may return, so it is asked wherever its call does not change what we hold. Where the
//! program disables what must stay enabled, for graphs with direct copies, enabling is called instead: on an enabled pair that changes
//! nothing, and returns 704 where there is no other error.

use std::sync::atomic::Ordering::SeqCst;

use super::registry::{AllocationOwner, Link, Ours, Registry, Verification};
use super::{Access, Kind};
use crate::api::abi::Code;
use crate::config;
use crate::objects::captures;
use crate::policy::driver::Driver;
use crate::policy::ended::Ended;

/// The call in place of a function about peer access: `cuCtxEnablePeerAccess(peer, flags)`, such that it enables
/// nothing that was not enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HarmlessEnable {
    /// The context of the memory.
    pub(crate) peer: usize,
    pub(crate) flags: u32,
    /// The code that means that there is no other error.
    pub(crate) from: Code,
    /// The code that the program gets for it.
    pub(crate) to: Code,
}

impl Access {
    /// The call in place of `cuCtxEnablePeerAccess(peer, flags)`: for a pair that the program does not get, the same with
    /// a flag, which the driver checks before it enables anything. Only whether the peer still lives it checks later.
    pub(crate) fn enabling(&self, driver: &impl Driver, peer: usize, flags: u32) -> Option<HarmlessEnable> {
        if !self.may_hide() {
            return None;
        }
        let current = driver.current_context()?;
        driver.context_id(peer)?;
        self.look_up_denied(driver);
        let is_denied = self.denies_all() || self.is_kept_from(driver, current, peer, flags)?;
        let to = if flags == 0 { Code::PEER_ACCESS_UNSUPPORTED } else { Code::INVALID_VALUE };
        is_denied.then_some(HarmlessEnable { peer, flags: 1, from: Code::INVALID_VALUE, to })
    }

    /// Whether the program does not get access of a context to the memory of another: it is denied, or the path is broken and the
    /// program has not enabled it already.
    fn is_kept_from(&self, driver: &impl Driver, current: usize, peer: usize, flags: u32) -> Option<bool> {
        let (device, other) = (driver.device_of_context(current)?, driver.device_of_context(peer)?);
        let is_enabled = || {
            let numbers = self.numbers(driver, peer);
            numbers.is_some_and(|(from, to)| self.lock().link(from, to).is_some_and(|link| link.is_enabled()))
        };
        if self.lock().is_denied(device, other) {
            return Some(true);
        }
        if is_enabled() {
            return Some(false);
        }
        if flags == 0 {
            self.admit(driver, [device, other], [current, peer]);
        }
        Some(self.lock().is_refused(device, other))
    }

    /// The call in place of `cuCtxDisablePeerAccess(peer)`: for a pair that stays enabled, enabling it once more. If there
    /// is nothing, the function is called, and until [`Access::disabled`] that call is under way.
    pub(crate) fn disabling(&self, driver: &impl Driver, peer: usize) -> Option<HarmlessEnable> {
        // First, since who enables a link says so under the lock and then looks here.
        self.disablings.begins();
        let instead = self.instead_of_disabling(driver, peer);
        if instead.is_some() {
            self.disablings.mark_over();
        }
        instead
    }

    fn instead_of_disabling(&self, driver: &impl Driver, peer: usize) -> Option<HarmlessEnable> {
        let (from, to) = self.numbers(driver, peer)?;
        let is_scarce = self.is_scarce(driver, from);
        let mut registry = self.lock();
        let &Link { program, ours, .. } = registry.link(from, to)?;
        let wanted = program && registry.wants(from, to) && registry.may_have_more(from, is_scarce);
        let stays = ours != Ours::No || wanted;
        if ours == Ours::Intended {
            // It is enabled in any case after what is called now: this, or what we are about to call.
            registry.link_mut(from, to).ours = Ours::Held;
        }
        let to = after_disabling(program);
        stays.then_some(HarmlessEnable { peer, flags: 0, from: Code::PEER_ACCESS_ALREADY_ENABLED, to })
    }

    /// The code that the program gets where `cuCtxEnablePeerAccess(peer, flags)` has returned `ret`.
    pub(crate) fn enabled(&self, driver: &impl Driver, peer: usize, flags: u32, ret: Code) -> Code {
        match ret {
            Code::SUCCESS => self.on_enabled(driver, peer),
            Code::PEER_ACCESS_ALREADY_ENABLED if flags == 0 && self.is_new_to_the_program(driver, peer) => {
                return Code::SUCCESS;
            }
            _ => {}
        }
        ret
    }

    /// Notes that the program has enabled what is enabled already; false if it had before.
    fn is_new_to_the_program(&self, driver: &impl Driver, peer: usize) -> bool {
        let Some((from, to)) = self.numbers(driver, peer) else { return false };
        let mut registry = self.lock();
        let is_only_ours = registry.link(from, to).is_some_and(|link| link.ours != Ours::No && !link.program);
        if is_only_ours {
            registry.link_mut(from, to).program = true;
            drop(registry);
            // From now on its copies are as the program has them: nobody waits for them in the driver's place.
            self.cells.change(to);
        }
        is_only_ours
    }

    /// The code that the program gets for disabling a peer. `instead` if that was called, and left the access as it is.
    pub(crate) fn disabled(
        &self,
        driver: &impl Driver,
        peer: usize,
        ret: Code,
        instead: Option<HarmlessEnable>,
    ) -> Code {
        let ret = self.after_disabling(driver, peer, ret, instead);
        if instead.is_none() {
            self.disablings.mark_over();
        }
        ret
    }

    fn after_disabling(&self, driver: &impl Driver, peer: usize, ret: Code, instead: Option<HarmlessEnable>) -> Code {
        let stays = instead.is_some();
        let expected = instead.map_or(Code::SUCCESS, |instead| instead.to);
        let numbers = if ret == expected { self.numbers(driver, peer) } else { None };
        let Some((from, to)) = numbers else { return ret };
        let mut registry = self.lock();
        let Some(&Link { program, ours, .. }) = registry.link(from, to) else { return ret };
        let link = registry.link_mut(from, to);
        link.program = false;
        link.ours = if stays { Ours::Held } else { Ours::No };
        drop(registry);
        self.cells.change(to);
        if !stays {
            self.losses.fetch_add(1, SeqCst);
        }
        // Whose was it that was disabled, or would have been?
        after_disabling(program || (!stays && ours == Ours::No))
    }

    fn on_enabled(&self, driver: &impl Driver, peer: usize) {
        let Some(current) = driver.current_context() else { return };
        let number = |context| {
            let device = driver.device_of_context(context)?;
            self.context_number(context, driver.context_id(context)?, device)
        };
        let (Some(from), Some(to)) = (number(current), number(peer)) else { return };
        let mut registry = self.lock();
        let link = registry.link_mut(from, to);
        link.program = true;
        // Whatever we held was not there any more.
        link.ours = Ours::No;
        drop(registry);
        self.cells.change(to);
    }

    /// Forgets contexts that have ended, and the pools of a device whose primary context has.
    pub(crate) fn on_contexts_ended(&self, ended: &Ended<'_, impl Driver>) {
        let known: Vec<(u8, AllocationOwner)> = self.lock().numbered().collect();
        for (number, owner) in known {
            let has_ended = match owner {
                AllocationOwner::Context { id: 0, device, .. } if Some(device) == ended.primary_of => true,
                AllocationOwner::Context { handle, id, .. } => ended.has((handle, id)),
                // The rest that a reset leaves of them is seen at their next copy.
                AllocationOwner::Pool { device, .. } => Some(device) == ended.primary_of,
                AllocationOwner::Mapped { .. } => false,
            };
            // Its memory of the host has no owner. Of mapped memory it is not known whether it went with a reset.
            if has_ended || owner.is_mapped() && Some(owner.device()) == ended.primary_of {
                [0, number].into_iter().for_each(|owner| self.cache.forget(owner));
            }
            if has_ended {
                let mut registry = self.lock();
                // Another thread may have found that it has ended as well, and its number has been given anew.
                if registry.owner(number) == Some(owner) {
                    registry.forget(self.caches(), number);
                }
            }
        }
        if let Some(device) = ended.primary_of {
            let mut registry = self.lock();
            registry.forget_pools(device);
            // Graphs go with the primary context of their copies. Of others it is not known which graphs went with them.
            registry.held.retain(|&(one, other), _| ![i32::from(one), i32::from(other)].contains(&device));
        }
    }

    /// A pool is about to go: once it is gone another may have its handle. Memory of it may still be there, and have its handle, of
    /// which nothing can be asked any more.
    pub(crate) fn on_pool_destroy(&self, pool: usize) {
        let mut registry = self.lock();
        let is_it = |owner: &AllocationOwner| matches!(owner, AllocationOwner::Pool { handle, .. } if *handle == pool);
        if let Some((number, _)) = registry.find(is_it) {
            registry.forget(self.caches(), number);
        }
        registry.pools.mark_going(pool);
    }

    /// Whether a pool that was to go is gone.
    pub(crate) fn on_pool_destroy_returned(&self, pool: usize, is_gone: bool) {
        if self.lock().pools.on_destroy_returned(pool, is_gone) {
            // Meanwhile its memory was taken for that of a pool that is gone, which has no owner.
            self.cache.forget(0);
        }
    }

    /// A pool is new, perhaps with the handle of one that is gone. `device` if it is one of a device's memory. Some drivers hand rights that
    /// an earlier pool had to a new one: those are ours still. To ask while a stream is captured would end the capture.
    pub(crate) fn on_pool_created(&self, driver: &impl Driver, pool: usize, device: Option<i32>) {
        let asked = device.filter(|_| !captures::may_be_under_way());
        let granted_to = asked.map(|_| self.lock().pools.granted_to.clone()).unwrap_or_default();
        let is_left = |by: &i32| Some(*by) != device && driver.pool_access(pool, *by);
        let left = granted_to.into_iter().filter(is_left).collect();
        let mut registry = self.lock();
        registry.pools.on_created(pool, device, left);
        device.and_then(|device| registry.pool(pool, device));
    }

    /// The program has set a pool's rights: for these devices, whether they have any now.
    pub(crate) fn on_pool_access_set(&self, pool: usize, devices: impl Iterator<Item = (i32, bool)>) {
        let mut registry = self.lock();
        devices.for_each(|(device, is_granted)| registry.pools.set_by_program(pool, device, is_granted));
        let number = registry.find(|owner| owner.pool() == Some(pool)).map(|(number, _)| number);
        drop(registry);
        number.into_iter().for_each(|number| self.cells.change(number));
    }

    /// Whether a right stays though the program takes it away: we have given it too, and copies that are under way may need
    /// it.
    pub(crate) fn keeps_right(&self, pool: usize, device: i32) -> bool {
        self.lock().pools.is_granted_by_us(pool, device)
    }

    /// Whether it was us alone who granted a device access to a pool.
    pub(crate) fn has_granted(&self, pool: usize, device: i32) -> bool {
        let registry = self.lock();
        registry.pools.is_granted_by_us(pool, device) && !registry.pools.is_granted_by_program(pool, device)
    }

    /// The numbers of the current context and a peer, if both are known.
    fn numbers(&self, driver: &impl Driver, peer: usize) -> Option<(u8, u8)> {
        Some((self.number(driver, driver.current_context()?)?, self.number(driver, peer)?))
    }

    fn number(&self, driver: &impl Driver, context: usize) -> Option<u8> {
        let current = (context, driver.context_id(context)?);
        let is_it = |owner: &AllocationOwner| matches!(owner, AllocationOwner::Context { handle, id, .. } if (*handle, *id) == current);
        self.lock().find(is_it).map(|(number, _)| number)
    }
}

/// The code for disabling a link, by whether it was the program's.
fn after_disabling(was_the_programs: bool) -> Code {
    if was_the_programs { Code::SUCCESS } else { Code::PEER_ACCESS_NOT_ENABLED }
}

impl Registry {
    /// Whether a link that the program has enabled is one that we would enable: its path is verified and in use.
    fn wants(&self, from: u8, to: u8) -> bool {
        let device = |number| match self.owner(number) {
            Some(AllocationOwner::Context { device, .. }) => u8::try_from(device).ok(),
            _ => None,
        };
        let (Some(one), Some(other)) = (device(from), device(to)) else { return false };
        self.access == config::Access::Auto
            && !self.is_either_denied(i32::from(one), i32::from(other))
            && self.is_used(one, other)
            && self.verification(Kind::Plain, one, other) == Some(Verification::Passed)
    }
}
