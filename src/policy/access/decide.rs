//! What is done about a pair whose way is not settled.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use super::proof::{self, Failure};
use super::registry::{Link, Ours, Owner, Proof, Registry};
use super::{Access, Kind, Path, Place, Traffic, Why, cause, evident, left_alone};
use crate::api::abi::Code;
use crate::api::{Layer, codes};
use crate::config::{self, Probe};
use crate::policy::{Driver, Ends, Scratch, ScratchKind, capture};
use crate::record::log;

/// A pair is worth the cost of enabling (milliseconds, once) from the copy on that exceeds either.
const COPIES: u32 = 16;
const BYTES: u64 = 1 << 20;
/// On machines with at most so many devices no context reaches the limit of 8 peers.
const FEW_DEVICES: i32 = 9;
/// How often a proof is put off because the devices are busy, at twice the copies each time, before it is made anyway: it
/// takes 0.1 s then, since rights of memory take long to set on busy devices.
const PATIENCE: u32 = 6;

/// The circumstances of a copy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Circumstances {
    /// The contexts that the program named: the source's, the destination's. Either may be 0, or wrong.
    pub(crate) contexts: [usize; 2],
    /// Whether this thread is capturing any stream.
    pub(crate) thread_captures: bool,
    /// Whether the thread has a context.
    pub(crate) has_context: bool,
}

/// What is to be done about a copy.
enum Step {
    /// The way is this until something changes.
    Settled(Path),
    /// The way is this for now.
    Now(Path),
    /// Something is to be done first.
    Act { checks_only: bool },
}

/// What is to be done for a pair, and by whom.
struct Plan {
    src: Place,
    dst: Place,
    /// `Plain`, or `Pool` if either side is of a pool.
    kind: Kind,
    /// The program has access already: all that is to be found out is whether data arrives.
    checks_only: bool,
    /// A context for each side: the memory's own, if it has one.
    contexts: [usize; 2],
    /// The pool of each side.
    pools: [Option<usize>; 2],
}

impl Plan {
    fn devices(&self) -> [i32; 2] {
        [i32::from(self.src.device), i32::from(self.dst.device)]
    }
}

impl Access {
    /// Finds the way of a copy, and opens a better one, if it is worth it.
    pub(crate) fn consider(&self, driver: &impl Driver, ends: &Ends, on: Circumstances) -> Option<Traffic> {
        // As it may be all the same, if it took this to find out where the copy begins and ends.
        if let Some(traffic) = self.settled(ends) {
            return Some(traffic);
        }
        let (src, dst) = (self.place(driver, ends.src)?, self.place(driver, ends.dst)?);
        let path = match evident(src, dst) {
            Some(path) => path,
            None => self.weigh(driver, (src, dst), ends.bytes, on)?,
        };
        Some(Traffic { src: src.device, dst: dst.device, path, bytes: ends.bytes })
    }

    fn weigh(&self, driver: &impl Driver, (src, dst): (Place, Place), bytes: u64, on: Circumstances) -> Option<Path> {
        let cell = self.cells.get(src.owner, dst.owner)?;
        let counted = cell.count(bytes);
        self.cells.touch(cell);
        let epoch = self.cells.epoch();
        let is_granted = self.is_granted(driver, src, dst) || self.is_granted(driver, dst, src);
        // Without a context no copy is made: there is nothing to open a path for.
        let on = Circumstances { has_context: driver.current_context().is_some(), ..on };
        let step = self.lock().next_step((src, dst), counted, is_granted, on);
        match step {
            Step::Settled(path) => {
                self.cells.settle(cell, path, epoch);
                Some(path)
            }
            Step::Now(path) => {
                if path == Path::Staged(Why::Capturing) {
                    self.waits.store(true, Relaxed);
                }
                Some(path)
            }
            Step::Act { checks_only } => Some(self.act(driver, (src, dst), checks_only, on)),
        }
    }

    /// Does what was put off because a capture was under way.
    pub(crate) fn capture_has_ended(&self, driver: &impl Driver) {
        self.waits.store(false, Relaxed);
        let waiting = std::mem::take(&mut self.lock().waiting);
        for (src, dst) in waiting {
            let is_free = {
                let mut registry = self.lock();
                let is_free =
                    !registry.is_acting && registry.proof(kind_of(src, dst), src.device, dst.device).is_none();
                registry.is_acting |= is_free;
                is_free
            };
            if is_free {
                self.act(driver, (src, dst), false, Circumstances::default());
            }
        }
    }

    /// Whether a pool's memory may be accessed from the other side's device.
    fn is_granted(&self, driver: &impl Driver, of: Place, by: Place) -> bool {
        match self.lock().owner(of.owner) {
            Some(Owner::Pool { handle, .. }) => driver.pool_access(handle, i32::from(by.device)),
            _ => false,
        }
    }

    /// Carries a plan out. Nobody else is doing so: `is_acting` is ours.
    fn act(&self, driver: &impl Driver, (src, dst): (Place, Place), checks_only: bool, on: Circumstances) -> Path {
        let path = driver.relaxed(|| {
            let plan = self.plan(driver, (src, dst), checks_only, on)?;
            Some(self.carry_out(driver, &plan))
        });
        let path = path.flatten().unwrap_or_else(|| Path::Staged(self.put_off(src, dst, Why::Unproven)));
        self.cells.unsettle();
        self.lock().is_acting = false;
        if checks_only { Path::Direct } else { path }
    }

    fn plan(
        &self,
        driver: &impl Driver,
        (src, dst): (Place, Place),
        checks_only: bool,
        on: Circumstances,
    ) -> Option<Plan> {
        let [src_context, dst_context] = on.contexts;
        let context = |place: Place, named: usize| self.context_for(driver, place, named);
        let contexts = [context(src, src_context)?, context(dst, dst_context)?];
        let registry = self.lock();
        let pool = |place: Place| match registry.owner(place.owner) {
            Some(Owner::Pool { handle, .. }) => Some(handle),
            _ => None,
        };
        Some(Plan { src, dst, kind: kind_of(src, dst), checks_only, contexts, pools: [pool(src), pool(dst)] })
    }

    /// A context on a place's device: its own, else one that is known, else the one that the program named, or the current.
    fn context_for(&self, driver: &impl Driver, place: Place, named: usize) -> Option<usize> {
        let known: Vec<Owner> = {
            let registry = self.lock();
            let own = registry.owner(place.owner);
            own.into_iter().chain(registry.numbered().map(|(_, owner)| owner)).collect()
        };
        let device = i32::from(place.device);
        let is_here = |owner: &Owner| match *owner {
            Owner::Context { handle, id, device: of } if of == device && driver.context_id(handle) == Some(id) => {
                Some(handle)
            }
            _ => None,
        };
        if let Some(handle) = known.iter().find_map(is_here) {
            return Some(handle);
        }
        let others = [Some(named).filter(|&named| named != 0), driver.current_context()];
        others.into_iter().flatten().find(|&handle| {
            let id = driver.context_id(handle);
            let is_here = id.is_some() && driver.device_of_context(handle) == Some(device);
            // What is taken in it has to be forgotten with it.
            is_here && id.is_some_and(|id| self.lock().context(&self.cells, handle, id, device).is_some())
        })
    }

    fn carry_out(&self, driver: &impl Driver, plan: &Plan) -> Path {
        let [src, dst] = plan.devices();
        // What of the two can access the other's memory.
        let can = match (driver.can_access(src, dst), driver.can_access(dst, src)) {
            (Ok(forth), Ok(back)) => [forth, back],
            (Err(code), _) | (_, Err(code)) => return self.unproven(plan, code),
        };
        if driver.device_count() > FEW_DEVICES && !driver.has_marks() {
            // What we take might have to be given back to the program, which could not be done safely.
            self.put_off(plan.src, plan.dst, Why::Limit);
            return Path::Staged(Why::Limit);
        }
        if can == [false, false] {
            self.lock().set_proof(plan.kind, plan.src.device, plan.dst.device, Proof::NoPath);
            log::pair_info(
                plan.src.device,
                plan.dst.device,
                format_args!("no hardware path; copies go through the host"),
            );
            return Path::Staged(Why::NoPath);
        }
        let is_proven = {
            let registry = self.lock();
            registry.probe == Probe::Off
                || registry.proof(plan.kind, plan.src.device, plan.dst.device) == Some(Proof::Passed)
        };
        if is_proven {
            return self.open(driver, plan, can);
        }
        match self.prove_apart(driver, plan, can) {
            Ok(()) => {
                self.passed(plan);
                self.open(driver, plan, can)
            }
            Err(Setback::Failure(failure)) => self.failed(plan, &failure),
            // Only what the program has opened, or we open for it, can be tested.
            Err(Setback::NotApart) => {
                let path = self.open(driver, plan, can);
                match self.prove_in_place(driver, plan) {
                    _ if path != Path::Direct => path,
                    Ok(()) => {
                        self.passed(plan);
                        path
                    }
                    Err(failure) => {
                        self.close(driver, plan);
                        self.failed(plan, &failure)
                    }
                }
            }
            Err(Setback::Busy) => Path::Staged(self.put_off(plan.src, plan.dst, Why::Busy)),
        }
    }

    /// Proves the path by memory that has rights of its own: the program's copies take no path that is not proven.
    fn prove_apart(&self, driver: &impl Driver, plan: &Plan, can: [bool; 2]) -> Result<(), Setback> {
        let kind = if plan.kind == Kind::Pool { ScratchKind::Pool } else { ScratchKind::Mapped };
        let (one, other) = self.scratches(driver, plan, ScratchKind::Page)?;
        let is_busy = proof::is_busy(driver, &one)? || proof::is_busy(driver, &other)?;
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
        // As it will be done with the program's memory.
        let is_shared = |side: Option<usize>| plan.kind != Kind::Pool || side.is_some();
        let [src_pool, dst_pool] = plan.pools;
        let shares =
            [(&dst, src.device, forth && is_shared(dst_pool)), (&src, dst.device, back && is_shared(src_pool))];
        for (scratch, device, _) in shares.into_iter().filter(|&(_, _, is_wanted)| is_wanted) {
            if !self.lock().shared.contains(&(scratch.address, device)) {
                driver.share(scratch, device).map_err(Failure::from)?;
                self.lock().shared.push((scratch.address, device));
            }
        }
        self.prove(driver, &src, &dst, !is_busy)?;
        Ok(self.prove_fully(driver, plan)?)
    }

    /// Proves the path by memory like the program's, once it is open.
    fn prove_in_place(&self, driver: &impl Driver, plan: &Plan) -> Result<(), Failure> {
        let (src, dst) = self.scratches(driver, plan, ScratchKind::Plain)?;
        self.prove(driver, &src, &dst, true)?;
        self.prove_fully(driver, plan)
    }

    fn prove_fully(&self, driver: &impl Driver, plan: &Plan) -> Result<(), Failure> {
        let is_wanted = self.lock().probe == Probe::Full;
        let [src, dst] = plan.devices();
        if is_wanted { proof::full(driver, src, dst) } else { Ok(()) }
    }

    fn prove(&self, driver: &impl Driver, src: &Scratch, dst: &Scratch, is_timed: bool) -> Result<(), Failure> {
        let result = proof::quick(driver, [src, dst], is_timed);
        if let Err(Failure::Hung { .. }) = result {
            let mut registry = self.lock();
            [src, dst].into_iter().for_each(|hung| registry.drop_scratch(hung));
        }
        result
    }

    fn scratches(&self, driver: &impl Driver, plan: &Plan, kind: ScratchKind) -> Result<(Scratch, Scratch), Failure> {
        let [src, dst] = plan.devices();
        let [src_context, dst_context] = plan.contexts;
        let take = |context: usize, device: i32| {
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

    /// Opens the path, unless the program has.
    fn open(&self, driver: &impl Driver, plan: &Plan, can: [bool; 2]) -> Path {
        if plan.checks_only {
            return Path::Direct;
        }
        match plan.kind {
            Kind::Pool => self.open_pool(driver, plan, can),
            _ => self.open_contexts(driver, plan, can),
        }
    }

    /// Grants both pools, if there are two: a device writes to another faster than it reads from it.
    fn open_pool(&self, driver: &impl Driver, plan: &Plan, [forth, back]: [bool; 2]) -> Path {
        let [src, dst] = plan.devices();
        let [src_pool, dst_pool] = plan.pools;
        let grants = [(dst_pool.filter(|_| forth), dst, src), (src_pool.filter(|_| back), src, dst)];
        let mut path = Path::Staged(Why::NoPath);
        for (pool, of, by) in grants.into_iter().filter_map(|(pool, of, by)| Some((pool?, of, by))) {
            match driver.grant(pool, by) {
                Code::SUCCESS => {
                    self.lock().granted.push((pool, by));
                    log::pair_info(
                        plan.src.device,
                        plan.dst.device,
                        format_args!("device {by} was granted access to memory pool {pool:#x} of device {of}"),
                    );
                    path = Path::Direct;
                }
                code if path != Path::Direct => path = self.unproven(plan, code),
                _ => {}
            }
        }
        path
    }

    fn open_contexts(&self, driver: &impl Driver, plan: &Plan, [forth, back]: [bool; 2]) -> Path {
        let (src, dst) = (plan.src.owner, plan.dst.owner);
        let [src_context, dst_context] = plan.contexts;
        let ways = [(forth, (src, src_context), (dst, dst_context)), (back, (dst, dst_context), (src, src_context))];
        let ways = || ways.into_iter().filter(|&(can, _, _)| can);
        let codes: Vec<Code> = ways().map(|(_, from, to)| self.open_link(driver, from, to)).collect();
        let mut is_open = codes.contains(&Code::SUCCESS);
        let worst = codes.into_iter().find(|&code| code != Code::SUCCESS).unwrap_or(Code::SUCCESS);
        // One direction is enough for copies. If there is not even that, somebody else makes room, once.
        if !is_open && worst == TOO_MANY_PEERS {
            let room = ways().find(|&(_, (from, _), (to, _))| self.give_up_one(driver, from, to, SHORT));
            is_open = room.is_some_and(|(_, from, to)| self.open_link(driver, from, to) == Code::SUCCESS);
        }
        if is_open {
            let ways = if forth && back { "both directions" } else { "the one direction that is possible" };
            log::pair_info(plan.src.device, plan.dst.device, format_args!("peer access enabled in {ways}"));
            self.cells.tick();
            return Path::Direct;
        }
        if worst == TOO_MANY_PEERS {
            self.put_off(plan.src, plan.dst, Why::Limit);
            return Path::Staged(Why::Limit);
        }
        self.unproven(plan, worst)
    }

    fn open_link(
        &self,
        driver: &impl Driver,
        (from, from_context): (u8, usize),
        (to, to_context): (u8, usize),
    ) -> Code {
        {
            let mut registry = self.lock();
            match registry.link_mut(from, to) {
                Some(link) if link.is_open() => return Code::SUCCESS,
                Some(link) => link.ours = Ours::Intended,
                None => return TOO_MANY_PEERS,
            }
        }
        let code = driver.enable(from_context, to_context);
        if let Some(link) = self.lock().link_mut(from, to) {
            // Enabled by the program meanwhile, or where we did not see it.
            link.ours = if code == Code::SUCCESS { Ours::Held } else { Ours::No };
        }
        if code == PEER_ACCESS_ALREADY_ENABLED { Code::SUCCESS } else { code }
    }

    /// Gives up the link from a context that was not used for the longest time, of those that only we want. Answers
    /// whether it was.
    ///
    /// Copies that are under way, and graphs that were instantiated with direct copies, end with a fault of the whole context
    /// when their link is closed. So nothing is given up while there are graphs, or either context has anything to do.
    pub(super) fn give_up_one(&self, driver: &impl Driver, from: u8, keep: u8, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while self.graphs.load(Relaxed) != 0 || capture::may_be_under_way() {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(Duration::from_micros(50));
        }
        let victim = self.victim(&self.lock(), from, keep);
        let Some((victim, contexts, devices)) = victim else { return false };
        let [one, other] = devices;
        if !contexts.iter().all(|&context| becomes_idle(driver, context, patience)) {
            log::pair_info(one, other, format_args!("not given up for another peer: copies may be under way"));
            return false;
        }
        let [context, peer] = contexts;
        driver.disable(context, peer);
        let mut registry = self.lock();
        if let Some(link) = registry.link_mut(victim.from, victim.to) {
            link.ours = Ours::No;
        }
        // It has to earn its place anew.
        for (src, dst) in [(victim.from, victim.to), (victim.to, victim.from)] {
            self.cells.get(src, dst).into_iter().for_each(super::cells::Cell::forget);
        }
        let attempts = registry.attempts_of(victim.from, victim.to);
        attempts.shift = (attempts.shift + 2).min(MOST_SHIFT);
        attempts.is_limit = true;
        drop(registry);
        log::pair_info(
            one,
            other,
            format_args!("access of device {one} given up for another peer: a context can have no more of them"),
        );
        self.cells.unsettle();
        true
    }

    fn victim(&self, registry: &Registry, from: u8, keep: u8) -> Option<(Link, [usize; 2], [u8; 2])> {
        let last_used = |link: &Link| {
            let used = |src, dst| self.cells.get(src, dst).map_or(0, super::cells::Cell::last_used);
            used(link.from, link.to).max(used(link.to, link.from))
        };
        let given_up = |link: &&Link| link.from == from && link.to != keep && link.ours == Ours::Held && !link.program;
        let victim = *registry.links().filter(given_up).min_by_key(|link| last_used(link))?;
        let context = |number| match registry.owner(number) {
            Some(Owner::Context { handle, device, .. }) => Some((handle, u8::try_from(device).ok()?)),
            _ => None,
        };
        let ((one, src), (other, dst)) = (context(victim.from)?, context(victim.to)?);
        Some((victim, [one, other], [src, dst]))
    }

    /// Closes what `open` has opened, for a pair that turned out to be broken.
    fn close(&self, driver: &impl Driver, plan: &Plan) {
        let (src, dst) = (plan.src.owner, plan.dst.owner);
        let [src_context, dst_context] = plan.contexts;
        for ((from, context), (to, peer)) in
            [((src, src_context), (dst, dst_context)), ((dst, dst_context), (src, src_context))]
        {
            let is_ours = self.lock().link(from, to).is_some_and(|link| link.ours == Ours::Held && !link.program);
            if is_ours {
                driver.disable(context, peer);
                if let Some(link) = self.lock().link_mut(from, to) {
                    link.ours = Ours::No;
                }
            }
        }
    }

    fn passed(&self, plan: &Plan) {
        let Plan { src, dst, kind, .. } = plan;
        self.lock().set_proof(*kind, src.device, dst.device, Proof::Passed);
        let of = if *kind == Kind::Pool { "memory of pools: " } else { "" };
        log::pair_info(src.device, dst.device, format_args!("{of}verified: data arrives in both directions"));
    }

    fn failed(&self, plan: &Plan, failure: &Failure) -> Path {
        let (src, dst) = (plan.src.device, plan.dst.device);
        let proof = match failure {
            Failure::Unknown(code) => return self.unproven(plan, *code),
            Failure::Untested(why) => return self.untested(plan, format_args!("{why}")),
            Failure::Slower { .. } => Proof::Slower,
            Failure::Lost { .. } | Failure::Hung { .. } | Failure::Fully(_) => Proof::Failed,
        };
        self.lock().set_proof(plan.kind, src, dst, proof);
        let consequence = match (plan.checks_only, proof) {
            (true, _) => {
                "The program has enabled access between them itself, and keeps it. With P2PSHIM_ACCESS=off its copies go \
                 through the host"
            }
            (false, _) => "Copies between them go through the host",
        };
        match failure {
            Failure::Lost { wrong, bytes, src: from, dst: to } => log::pair_warning(
                src,
                dst,
                format_args!(
                    "data does not arrive: of {bytes} bytes copied from device {from} to device {to}, {wrong} were \
                     wrong. {consequence}. {}",
                    cause::likely()
                ),
            ),
            Failure::Hung { src: from, dst: to } => log::pair_warning(
                src,
                dst,
                format_args!(
                    "a copy from device {from} to device {to} did not end within {:?}. {consequence}. Waiting for a whole \
                     device may hang. {}",
                    proof::TIME_OUT,
                    cause::likely()
                ),
            ),
            Failure::Slower { direct, staged, src: from, dst: to } => log::pair_warning(
                src,
                dst,
                format_args!(
                    "copying from device {from} to device {to} directly is slower than through the host ({direct:?}, \
                     {staged:?}). {consequence}"
                ),
            ),
            Failure::Fully(what) => log::pair_warning(
                src,
                dst,
                format_args!("the full proof failed: {what}. {consequence}. {}", cause::likely()),
            ),
            Failure::Unknown(_) | Failure::Untested(_) => {}
        }
        Path::Staged(if proof == Proof::Slower { Why::Slower } else { Why::Vetoed })
    }

    /// Says nothing about the pair: it is tried again when it has copied twice as much.
    fn unproven(&self, plan: &Plan, code: Code) -> Path {
        let name = codes::name(Layer::Driver, code).unwrap_or("an unknown code");
        self.untested(plan, format_args!("the driver answered {name} ({})", code.0))
    }

    fn untested(&self, plan: &Plan, why: std::fmt::Arguments<'_>) -> Path {
        let put_off = self.put_off(plan.src, plan.dst, Why::Unproven);
        let is_first = {
            let mut registry = self.lock();
            let attempts = registry.attempts_mut(plan.src, plan.dst);
            !std::mem::replace(&mut attempts.is_told, true)
        };
        if is_first {
            log::unproven(plan.src.device, plan.dst.device, why);
        }
        Path::Staged(put_off)
    }

    fn put_off(&self, src: Place, dst: Place, why: Why) -> Why {
        let mut registry = self.lock();
        let attempts = registry.attempts_mut(src, dst);
        attempts.shift = (attempts.shift + 1).min(MOST_SHIFT);
        attempts.is_limit = why == Why::Limit;
        attempts.is_busy = why == Why::Busy;
        why
    }
}

/// How long a context is waited for that may be given up for a copy, which can do without.
const SHORT: Duration = Duration::from_millis(1);

/// Whether a context has nothing to do, at least once within `patience`.
fn becomes_idle(driver: &impl Driver, context: usize, patience: Duration) -> bool {
    let Some(mark) = driver.mark(context) else { return false };
    let started = Instant::now();
    let mut is_idle = driver.is_passed(&mark);
    while !is_idle && started.elapsed() < patience {
        thread::sleep(Duration::from_micros(50));
        is_idle = driver.is_passed(&mark);
    }
    driver.drop_mark(mark);
    is_idle
}

/// Thresholds stay within their types.
const MOST_SHIFT: u32 = 24;

/// `CUDA_ERROR_TOO_MANY_PEERS`.
pub(super) const TOO_MANY_PEERS: Code = Code(711);
/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
pub(super) const PEER_ACCESS_ALREADY_ENABLED: Code = Code(704);

/// Whether a driver says that it has no such thing: `CUDA_ERROR_NOT_SUPPORTED`, or no such function.
fn is_missing(code: Code) -> bool {
    /// `CUDA_ERROR_NOT_SUPPORTED`.
    const NOT_SUPPORTED: Code = Code(801);
    [NOT_SUPPORTED, Code::SHARED_OBJECT_SYMBOL_NOT_FOUND].contains(&code)
}

/// Why a path was not proven apart from the program's memory.
enum Setback {
    Failure(Failure),
    /// The driver has no memory with rights of its own.
    NotApart,
    /// Not now.
    Busy,
}

impl From<Failure> for Setback {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

fn kind_of(src: Place, dst: Place) -> Kind {
    if src.kind == Kind::Pool || dst.kind == Kind::Pool { Kind::Pool } else { Kind::Plain }
}

impl Registry {
    fn next_step(
        &mut self,
        (src, dst): (Place, Place),
        (copies, bytes): (u32, u64),
        is_granted: bool,
        on: Circumstances,
    ) -> Step {
        let kind = kind_of(src, dst);
        let proof = self.proof(kind, src.device, dst.device);
        let attempts = self.attempts(src, dst);
        let is_due = copies > COPIES << attempts.shift || bytes > BYTES << attempts.shift;
        let links = [self.reach(src, dst), self.reach(dst, src)];
        if is_granted || links.iter().any(Option::is_some) {
            let is_ours = links.iter().flatten().any(|link| link.ours == Ours::Held && !link.program);
            let is_left = self.access != config::Access::Auto || self.probe == Probe::Off;
            if is_ours || is_left || proof.is_some() {
                return Step::Settled(Path::Direct);
            }
            if !is_due || !on.has_context || self.is_acting || on.thread_captures {
                return Step::Now(Path::Direct);
            }
            self.is_acting = true;
            return Step::Act { checks_only: true };
        }
        if let Some(why) = self.never(kind, proof, src, dst) {
            return Step::Settled(Path::Staged(why));
        }
        if !is_due || !on.has_context {
            return Step::Now(Path::Staged(match attempts {
                attempts if attempts.is_limit => Why::Limit,
                attempts if attempts.is_busy => Why::Busy,
                attempts if attempts.shift > 0 => Why::Unproven,
                _ => Why::NotYetWorth,
            }));
        }
        if self.is_acting {
            return Step::Now(Path::Staged(Why::Verifying));
        }
        if on.thread_captures && proof != Some(Proof::Passed) {
            if !self.waiting.contains(&(src, dst)) {
                self.waiting.push((src, dst));
            }
            return Step::Now(Path::Staged(Why::Capturing));
        }
        self.is_acting = true;
        Step::Act { checks_only: false }
    }

    /// Why nothing will ever be done for a pair, if that is so.
    fn never(&self, kind: Kind, proof: Option<Proof>, src: Place, dst: Place) -> Option<Why> {
        if self.is_apart(i32::from(src.device), i32::from(dst.device)) {
            return Some(Why::Denied);
        }
        if self.access != config::Access::Auto {
            return Some(left_alone(src, dst));
        }
        match kind {
            Kind::Pool if !self.grants_pools => return Some(Why::Pool),
            Kind::Plain if src.kind == Kind::Mapped || dst.kind == Kind::Mapped => return Some(Why::Mapped),
            _ => {}
        }
        match proof {
            Some(Proof::NoPath) => Some(Why::NoPath),
            Some(Proof::Failed) => Some(Why::Vetoed),
            Some(Proof::Slower) => Some(Why::Slower),
            Some(Proof::Passed) | None => None,
        }
    }
}
