//! Enabling the path of a pair that was verified.

use std::collections::BTreeSet;
use std::time::Duration;

use p2pshim_trace::ACCESS_ENABLED;

use super::registry::{AllocationOwner, MOST_PEERS, Ours, Registry, Verification, ordered};
use super::verifier::{Plan, Purpose};
use super::{Access, Kind, Path, Why};
use crate::api::abi::Code;
use crate::config::Verify;
use crate::os;
use crate::policy::driver::Driver;

impl Access {
    /// Verifies and enables the path of a plan; returns the path that its copies take from now on.
    pub(super) fn carry_out(&self, driver: &impl Driver, plan: &Plan) -> Path {
        let can = match driver.can_reach(plan.devices()) {
            Ok(can) => can,
            Err(code) => return self.verifier.unverified(plan, code),
        };
        if can == [false, false] {
            self.lock().set_verification(plan.kind, plan.src.device, plan.dst.device, Verification::NoPath);
            plan.say(format_args!("no hardware path; copies go through the host"));
            return Path::Staged(Why::NoPath);
        }
        if self.is_full(driver, plan, can) {
            return self.limited(plan);
        }
        if plan.purpose == Purpose::Enable && self.lock().is_held(plan.pair()) {
            return Path::Staged(self.verifier.put_off(plan, Why::Graph));
        }
        let is_verified = {
            let registry = self.lock();
            registry.verify == Verify::Off
                || registry.verification(plan.kind, plan.src.device, plan.dst.device) == Some(Verification::Passed)
        };
        if is_verified {
            return self.enable(driver, plan, can);
        }
        if let Err(failure) = self.verifier.check_verdicts(driver, plan, can) {
            return self.verifier.failed(driver, plan, &failure);
        }
        match self.verifier.verify_path(driver, plan, can) {
            Ok(()) => self.enable(driver, plan, can),
            Err(path) => path,
        }
    }

    /// Enables the path, unless the program has.
    fn enable(&self, driver: &impl Driver, plan: &Plan, can: [bool; 2]) -> Path {
        if plan.purpose != Purpose::Enable {
            return Path::Direct;
        }
        match plan.kind {
            Kind::Pool => self.enable_pool(driver, plan, can),
            _ => self.enable_contexts(driver, plan, can),
        }
    }

    /// Grants both pools, if there are two: a device writes to another faster than it reads from it.
    fn enable_pool(&self, driver: &impl Driver, plan: &Plan, [forth, back]: [bool; 2]) -> Path {
        let [src, dst] = plan.devices();
        let [src_pool, dst_pool] = plan.pools;
        let grants = [(dst_pool.filter(|_| forth), dst, src), (src_pool.filter(|_| back), src, dst)];
        let mut path = Path::Staged(Why::NoPath);
        for (pool, of, by) in grants.into_iter().filter_map(|(pool, of, by)| Some((pool?, of, by))) {
            if driver.pool_access(pool, by) {
                path = Path::Direct;
                continue;
            }
            match self.grant(driver, plan.pair(), pool, by) {
                Code::SUCCESS => {
                    plan.say(format_args!("device {by} was granted access to memory pool {pool:#x} of device {of}"));
                    path = Path::Direct;
                }
                // Another thread has destroyed it meanwhile.
                _ if self.lock().pools.is_gone(pool) => path = Path::Unknown,
                Code::NOT_READY if path != Path::Direct => {
                    path = Path::Staged(self.verifier.put_off(plan, self.busy_or_held(plan)));
                }
                code if path != Path::Direct => path = self.verifier.unverified(plan, code),
                _ => {}
            }
        }
        path
    }

    /// Lets a device access a pool. It is noted first, so that the program does not take away what is about to be given.
    fn grant(&self, driver: &impl Driver, pair: [u8; 2], pool: usize, by: i32) -> Code {
        {
            let mut registry = self.lock();
            if registry.is_held(pair) {
                return Code::NOT_READY;
            }
            registry.pools.grant(pool, by);
        }
        let code = if self.wait_for_disablings() { driver.grant(pool, by) } else { Code::NOT_READY };
        if code != Code::SUCCESS {
            self.lock().pools.withdraw_grant(pool, by);
        }
        code
    }

    fn enable_contexts(&self, driver: &impl Driver, plan: &Plan, [forth, back]: [bool; 2]) -> Path {
        let (src, dst) = (plan.src.owner, plan.dst.owner);
        let [(src_context, _), (dst_context, _)] = plan.contexts;
        let directions =
            [(forth, (src, src_context), (dst, dst_context)), (back, (dst, dst_context), (src, src_context))];
        let directions = || directions.into_iter().filter(|&(can, _, _)| can);
        let codes: Vec<Code> =
            directions().map(|(_, from, to)| self.enable_link(driver, plan.pair(), from, to)).collect();
        let enabled = codes.iter().filter(|&&code| code == Code::SUCCESS).count();
        let worst = codes.into_iter().find(|&code| code != Code::SUCCESS).unwrap_or(Code::SUCCESS);
        // One direction is enough for copies. The first keeps its place.
        match (enabled, worst) {
            (0, Code::TOO_MANY_PEERS) => self.limited(plan),
            (0, Code::NOT_READY) => Path::Staged(self.verifier.put_off(plan, self.busy_or_held(plan))),
            (0, code) => self.verifier.unverified(plan, code),
            (enabled, _) => {
                let directions = if enabled == 2 { "both directions" } else { "one direction" };
                plan.say(format_args!("{ACCESS_ENABLED} {directions}"));
                Path::Direct
            }
        }
    }

    fn enable_link(
        &self,
        driver: &impl Driver,
        pair: [u8; 2],
        (from, from_context): (u8, usize),
        (to, to_context): (u8, usize),
    ) -> Code {
        let is_scarce = self.is_scarce(driver, from);
        {
            let mut registry = self.lock();
            if registry.link(from, to).is_some_and(|link| link.is_enabled()) {
                return Code::SUCCESS;
            }
            if registry.is_held(pair) {
                return Code::NOT_READY;
            }
            if !registry.may_have_more(from, is_scarce) {
                return Code::TOO_MANY_PEERS;
            }
            registry.link_mut(from, to).ours = Ours::Intended;
        }
        if !self.wait_for_disablings() {
            let mut registry = self.lock();
            let link = registry.link_mut(from, to);
            // Or the program has been here meanwhile, and left it enabled.
            if link.ours == Ours::Intended {
                link.ours = Ours::No;
                return Code::NOT_READY;
            }
        }
        let code = driver.enable(from_context, to_context);
        let mut registry = self.lock();
        let link = registry.link_mut(from, to);
        match (link.ours, code) {
            (Ours::Intended, Code::SUCCESS) => link.ours = Ours::Held,
            // Enabled where it was not seen, or by the program just now.
            (Ours::Intended, Code::PEER_ACCESS_ALREADY_ENABLED) => (link.ours, link.program) = (Ours::No, true),
            // The program has been here meanwhile, and left it enabled.
            (_, Code::SUCCESS | Code::PEER_ACCESS_ALREADY_ENABLED) => {}
            _ => link.ours = Ours::No,
        }
        if code == Code::PEER_ACCESS_ALREADY_ENABLED { Code::SUCCESS } else { code }
    }

    fn busy_or_held(&self, plan: &Plan) -> Why {
        if self.lock().is_held(plan.pair()) { Why::Graph } else { Why::Busy }
    }

    /// A graph is about to be instantiated in which copies between these devices are staged. If access were enabled later, in either
    /// direction, the driver would refuse to change them (measured on H200). So p2pshim does not enable it before [`Self::release`].
    pub(crate) fn hold(&self, pairs: &BTreeSet<(u8, u8)>) {
        const MOST: Duration = Duration::from_millis(100);
        {
            let held = &mut self.lock().held;
            pairs.iter().for_each(|&pair| *held.entry(pair).or_default() += 1);
        }
        // Another thread may be about to enable a pair, and has not seen this.
        let is_intended = || {
            let registry = self.lock();
            let device = |number| registry.owner(number).and_then(|owner| u8::try_from(owner.device()).ok());
            registry.links().filter(|link| link.ours == Ours::Intended).any(|link| {
                let devices = device(link.from).zip(device(link.to));
                devices.is_some_and(|(from, to)| pairs.contains(&ordered(from, to)))
            })
        };
        os::until(MOST, || !is_intended());
    }

    /// The graph is destroyed, or was not instantiated.
    pub(crate) fn release(&self, pairs: &BTreeSet<(u8, u8)>) {
        let held = &mut self.lock().held;
        for pair in pairs {
            if let Some(count) = held.get_mut(pair) {
                *count -= 1;
                if *count == 0 {
                    held.remove(pair);
                }
            }
        }
    }

    /// Waits for calls of the program that have not seen that a path is about to be enabled, and would disable it under the
    /// first copies. Returns whether they are over.
    fn wait_for_disablings(&self) -> bool {
        const MOST: Duration = Duration::from_millis(100);
        os::until(MOST, || self.disablings.is_none())
    }

    /// Whether neither context may have the other as one more peer.
    fn is_full(&self, driver: &impl Driver, plan: &Plan, [forth, back]: [bool; 2]) -> bool {
        let is_of_contexts = plan.kind == Kind::Plain && plan.purpose == Purpose::Enable;
        let may_have_more = |from: u8| {
            let is_scarce = self.is_scarce(driver, from);
            self.lock().may_have_more(from, is_scarce)
        };
        is_of_contexts && !(forth && may_have_more(plan.src.owner) || back && may_have_more(plan.dst.owner))
    }

    /// Whether the device of a context has more peers than a context can have.
    pub(super) fn is_scarce(&self, driver: &impl Driver, context: u8) -> bool {
        let devices = driver.device_count();
        let Some(AllocationOwner::Context { device, .. }) = self.lock().owner(context) else { return false };
        let is_peer = |&peer: &i32| peer != device && driver.can_access(device, peer) == Ok(true);
        devices > MOST_PEERS as i32 && (0..devices).filter(is_peer).count() > MOST_PEERS
    }

    fn limited(&self, plan: &Plan) -> Path {
        plan.say(format_args!(
            "the contexts have as many peers as they can have, or as p2pshim uses; copies go through the host"
        ));
        Path::Staged(self.verifier.put_off(plan, Why::Limit))
    }
}

impl Registry {
    fn is_held(&self, [one, other]: [u8; 2]) -> bool {
        self.held.contains_key(&ordered(one, other))
    }
}
