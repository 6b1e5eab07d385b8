//! Verifying the path of a pair, and enabling it.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use super::decide::{Plan, Purpose};
use super::registry::{MOST_PEERS, Ours, Owner, Verification};
use super::verify::{self, Failure};
use super::{Access, Kind, Path, Why};
use crate::api::abi::Code;
use crate::config::Probe;
use crate::policy::driver::{Driver, Scratch, ScratchKind};

/// How often a verification is put off because the devices are busy, at twice the copies each time, before it is made anyway: it
/// takes 0.1 s then, since rights of memory take long to set on busy devices.
const PATIENCE: u32 = 6;

impl Access {
    /// Verifies and enables the path of a plan; returns the path that its copies take from now on.
    pub(super) fn carry_out(&self, driver: &impl Driver, plan: &Plan) -> Path {
        let [src, dst] = plan.devices();
        // What of the two can access the other's memory.
        let can = match (driver.can_access(src, dst), driver.can_access(dst, src)) {
            (Ok(forth), Ok(back)) => [forth, back],
            (Err(code), _) | (_, Err(code)) => return self.unverified(plan, code),
        };
        if can == [false, false] {
            self.lock().set_verification(plan.kind, plan.src.device, plan.dst.device, Verification::NoPath);
            plan.say(format_args!("no hardware path; copies go through the host"));
            return Path::Staged(Why::NoPath);
        }
        if self.is_full(driver, plan, can) {
            return self.limited(plan);
        }
        let is_verified = {
            let registry = self.lock();
            registry.probe == Probe::Off
                || registry.verification(plan.kind, plan.src.device, plan.dst.device) == Some(Verification::Passed)
        };
        if is_verified {
            return self.enable(driver, plan, can);
        }
        if let Err(failure) = self.check_verdicts(driver, plan, can) {
            return self.failed(driver, plan, &failure);
        }
        match self.verify_path(driver, plan, can) {
            Ok(()) => self.enable(driver, plan, can),
            Err(path) => path,
        }
    }

    /// Verifies the path of a plan, keeps and logs what came of it.
    ///
    /// # Errors
    /// The path that its copies take from now on.
    pub(super) fn verify_path(&self, driver: &impl Driver, plan: &Plan, can: [bool; 2]) -> Result<(), Path> {
        if let Some(risk) = self.risk(driver, plan) {
            return Err(self.too_risky(plan, &risk));
        }
        match self.verify_apart(driver, plan, can) {
            Ok(()) => {
                self.passed(plan);
                Ok(())
            }
            Err(Setback::Failure(failure)) => Err(self.failed(driver, plan, &failure)),
            Err(Setback::NotApart) => Err(self.unverifiable(plan)),
            Err(Setback::Late { hung, is_first }) => Err(self.late(driver, plan, &hung, is_first)),
            Err(Setback::StillLate) => {
                plan.say(format_args!("a copy has still not ended; the pair is to be verified later"));
                Err(Path::Staged(self.put_off(plan, Why::Blocked)))
            }
            Err(Setback::Busy) => {
                plan.say(format_args!("the devices are busy; the pair is to be verified later"));
                Err(Path::Staged(self.put_off(plan, Why::Busy)))
            }
        }
    }

    /// Why a copy to verify the path may hang, where no verdict says that it does not. Copies of the program that go there already
    /// would hang as well.
    fn risk(&self, driver: &impl Driver, plan: &Plan) -> Option<String> {
        let has_passed = self.lock().has_passed_earlier(plan.src.device, plan.dst.device);
        if matches!(plan.purpose, Purpose::Check | Purpose::Again) || has_passed || driver.is_linked(plan.devices()) {
            return None;
        }
        driver.machine(plan.devices())?.risk([0, 1])
    }

    /// Verifies the path by memory that has rights of its own: the program's copies take no path that is not verified.
    fn verify_apart(&self, driver: &impl Driver, plan: &Plan, can: [bool; 2]) -> Result<(), Setback> {
        let late = self.lock().late(plan.src.device, plan.dst.device);
        if late.is_some_and(|scratches| !scratches.iter().all(|late| verify::has_ended(driver, late))) {
            return Err(Setback::StillLate);
        }
        let kind = if plan.kind == Kind::Pool { ScratchKind::Pool } else { ScratchKind::Mapped };
        let (one, other) = self.scratches(driver, plan, ScratchKind::Page)?;
        let is_busy = verify::is_busy(driver, &one)? || verify::is_busy(driver, &other)?;
        if is_busy && self.lock().attempts(plan.src, plan.dst).shift < PATIENCE {
            return Err(Setback::Busy);
        }
        let (src, dst) = match self.scratches(driver, plan, kind) {
            Err(Failure::Unknown(code)) if is_missing(code) && kind == ScratchKind::Mapped => {
                return Err(Setback::NotApart);
            }
            result => result?,
        };
        let [forth, back] = can;
        let shares = [(&dst, src.device, forth), (&src, dst.device, back)];
        for (scratch, device, _) in shares.into_iter().filter(|&(_, _, is_possible)| is_possible) {
            if !self.lock().shared.contains(&(scratch.address, device)) {
                driver.share(scratch, device).map_err(Failure::from)?;
                self.lock().shared.push((scratch.address, device));
            }
        }
        // Speed is no matter to a copy that was wrong, and what has access is not to be staged for it.
        match self.verify(driver, &src, &dst, !is_busy && plan.purpose != Purpose::Again) {
            Err(hung @ Failure::Hung { src: from, .. }) => {
                match verify::is_held_up(driver, from, [&one, &other], [&src, &dst])? {
                    true => Err(Setback::Busy),
                    false => {
                        let is_first = self.lock().set_late(plan.src.device, plan.dst.device, [src, dst]);
                        Err(Setback::Late { hung, is_first })
                    }
                }
            }
            result => Ok(result?),
        }
    }

    fn verify(&self, driver: &impl Driver, src: &Scratch, dst: &Scratch, is_timed: bool) -> Result<(), Failure> {
        let result = verify::quick(driver, [src, dst], is_timed);
        if let Err(Failure::Hung { .. }) = result {
            let mut registry = self.lock();
            [src, dst].into_iter().for_each(|hung| registry.drop_scratch(hung));
        }
        result
    }

    fn scratches(&self, driver: &impl Driver, plan: &Plan, kind: ScratchKind) -> Result<(Scratch, Scratch), Failure> {
        let [src, dst] = plan.devices();
        let [src_context, dst_context] = plan.contexts;
        let take = |context: (usize, u64), device: i32| {
            let known = self.lock().scratch(kind, context);
            if let Some(scratch) = known {
                return Ok(scratch);
            }
            let scratch = driver.scratch(kind, context, device)?;
            self.lock().add_scratch(scratch);
            Ok::<_, Failure>(scratch)
        };
        Ok((take(src_context, src)?, take(dst_context, dst)?))
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
            match self.grant(driver, pool, by) {
                Code::SUCCESS => {
                    plan.say(format_args!("device {by} was granted access to memory pool {pool:#x} of device {of}"));
                    path = Path::Direct;
                }
                // Another thread has destroyed it meanwhile.
                _ if self.lock().gone_pools.contains_key(&pool) => path = Path::Unknown,
                Code::NOT_READY if path != Path::Direct => {
                    path = Path::Staged(self.put_off(plan, Why::Busy));
                }
                code if path != Path::Direct => path = self.unverified(plan, code),
                _ => {}
            }
        }
        path
    }

    /// Lets a device access a pool. It is noted first, so that the program does not take away what is about to be given.
    fn grant(&self, driver: &impl Driver, pool: usize, by: i32) -> Code {
        self.lock().granted.push((pool, by));
        let code = if self.disablings_are_over() { driver.grant(pool, by) } else { Code::NOT_READY };
        if code != Code::SUCCESS {
            self.lock().granted.retain(|&grant| grant != (pool, by));
        }
        code
    }

    fn enable_contexts(&self, driver: &impl Driver, plan: &Plan, [forth, back]: [bool; 2]) -> Path {
        let (src, dst) = (plan.src.owner, plan.dst.owner);
        let [(src_context, _), (dst_context, _)] = plan.contexts;
        let directions =
            [(forth, (src, src_context), (dst, dst_context)), (back, (dst, dst_context), (src, src_context))];
        let directions = || directions.into_iter().filter(|&(can, _, _)| can);
        let codes: Vec<Code> = directions().map(|(_, from, to)| self.enable_link(driver, from, to)).collect();
        let enabled = codes.iter().filter(|&&code| code == Code::SUCCESS).count();
        let worst = codes.into_iter().find(|&code| code != Code::SUCCESS).unwrap_or(Code::SUCCESS);
        // One direction is enough for copies. Who was first keeps its place.
        match (enabled, worst) {
            (0, Code::TOO_MANY_PEERS) => self.limited(plan),
            (0, Code::NOT_READY) => Path::Staged(self.put_off(plan, Why::Busy)),
            (0, code) => self.unverified(plan, code),
            (enabled, _) => {
                let directions = if enabled == 2 { "both directions" } else { "one direction" };
                plan.say(format_args!("peer access enabled in {directions}"));
                Path::Direct
            }
        }
    }

    fn enable_link(
        &self,
        driver: &impl Driver,
        (from, from_context): (u8, usize),
        (to, to_context): (u8, usize),
    ) -> Code {
        let is_scarce = self.is_scarce(driver, from);
        {
            let mut registry = self.lock();
            if registry.link(from, to).is_some_and(|link| link.is_enabled()) {
                return Code::SUCCESS;
            }
            if !registry.may_have_more(from, is_scarce) {
                return Code::TOO_MANY_PEERS;
            }
            registry.link_mut(from, to).ours = Ours::Intended;
        }
        if !self.disablings_are_over() {
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

    /// Waits for calls of the program that have not seen that a path is about to be enabled, and would disable it under the
    /// first copies. Returns whether they are over.
    fn disablings_are_over(&self) -> bool {
        /// Far more than they take.
        const MOST: Duration = Duration::from_millis(100);
        let started = Instant::now();
        while self.disablings.load(SeqCst) != 0 {
            if started.elapsed() > MOST {
                return false;
            }
            thread::sleep(Duration::from_micros(50));
        }
        true
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
        let Some(Owner::Context { device, .. }) = self.lock().owner(context) else { return false };
        let is_peer = |&peer: &i32| peer != device && driver.can_access(device, peer) == Ok(true);
        devices > MOST_PEERS as i32 && (0..devices).filter(is_peer).count() > MOST_PEERS
    }

    fn limited(&self, plan: &Plan) -> Path {
        plan.say(format_args!(
            "the contexts have as many peers as they can have, or as p2pshim uses; copies go through the host"
        ));
        Path::Staged(self.put_off(plan, Why::Limit))
    }
}

/// Whether a driver says that it has no such thing, or no such function.
fn is_missing(code: Code) -> bool {
    [Code::NOT_SUPPORTED, Code::SHARED_OBJECT_SYMBOL_NOT_FOUND].contains(&code)
}

/// Why a path was not verified apart from the program's memory.
enum Setback {
    Failure(Failure),
    /// The driver has no memory with rights of its own.
    NotApart,
    /// A copy did not end in time, though one through the host did. Whether it is the first.
    Late {
        hung: Failure,
        is_first: bool,
    },
    /// Nor has it ended since.
    StillLate,
    /// Not now.
    Busy,
}

impl From<Failure> for Setback {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}
