//! Decisions about pairs whose path is not decided.

use std::time::Duration;

use super::registry::{AllocationOwner, Registry, Verification};
use super::verifier::{Plan, Purpose};
use super::{Access, Kind, Place, evident, is_reached_by_mapping, left_alone, traffic};
use crate::config::{self, Verify};
use crate::model::{Memcpy, Named, Path, Traffic, Why};
use crate::objects::captures;
use crate::os;
use crate::policy::driver::Driver;
use crate::record::log::{self, Once};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Circumstances {
    /// The contexts that the program named: the source's, the destination's. Either may be 0, or wrong.
    pub(crate) contexts: [usize; 2],
    /// The context that makes the copy, if it is not the current one.
    pub(crate) made_by: usize,
    pub(crate) thread_captures: bool,
    pub(crate) has_context: bool,
    /// Whether it is known who may access whose memory: not of pools while any capture is under way.
    pub(crate) may_know: bool,
    /// Whether the copy is made again and again on the path that it has now: a graph's.
    pub(crate) keeps_path: bool,
    /// Whether the program asks for the pair to be verified and enabled, however little it has copied.
    pub(crate) is_asked_for: bool,
}

enum Step {
    /// The path is this until something changes.
    Decided(Path),
    /// The path of this copy is this; of the next it may be another.
    Now(Path),
    /// Something is to be done first. If another thread acts on one of the devices, the path of this copy is this.
    Act(Purpose, Path),
}

impl Access {
    /// Finds the path of a copy, and enables a better one, if it is worth it.
    pub(crate) fn consider(&self, driver: &impl Driver, copy: &Memcpy, on: Circumstances) -> Option<Traffic> {
        let (src, dst) = (self.place(driver, copy.src)?, self.place(driver, copy.dst)?);
        let (path, keeps_waits) = match evident(src, dst) {
            Some(path) => (self.unless_blocked(path, src, dst), false),
            // Nobody can be asked who has access.
            None if src.is_nobodys() || dst.is_nobodys() => {
                (self.lock().blocked(src, dst).map_or(Path::Unknown, Path::Staged), false)
            }
            None if is_regular(copy) && self.is_beyond_rights(driver, [src, dst], on) => {
                (Path::Staged(self.beyond_rights(src, dst)), false)
            }
            None => self.weigh(driver, (src, dst), copy.bytes, on)?,
        };
        Some(traffic([src, dst], path, keeps_waits, copy))
    }

    /// Verifies the path between two devices and enables it now. Returns the path of their copies, or none if either has no context.
    pub(crate) fn prepare(&self, driver: &impl Driver, devices: [u8; 2]) -> Option<Path> {
        let place = |device: u8| {
            let place = Place::new(Kind::Plain, device, 0);
            let (context, id) = self.context_for(driver, place, 0)?;
            Some(Place { owner: self.context_number(context, id, device.into())?, ..place })
        };
        let on = Circumstances { keeps_path: true, is_asked_for: true, ..Circumstances::default() };
        Some(self.weigh(driver, (place(devices[0])?, place(devices[1])?), 0, on)?.0)
    }

    /// Whether a copy is direct only because p2pshim has enabled access, or granted a right. Without that it would be staged, and the
    /// driver would wait for it where it does not wait for a direct copy.
    fn keeps_waits(&self, path: Path, src: Place, dst: Place) -> bool {
        path == Path::Direct && evident(src, dst).is_none() && self.lock().is_made_direct(src, dst)
    }

    /// Why a copy is staged that CUDA refuses for want of rights: p2pshim may have refused them, since the path is broken. If it has not,
    /// CUDA gets the copy, and refuses it: a staged one would succeed. A denied pair is as on hardware without a path.
    fn beyond_rights(&self, src: Place, dst: Place) -> Why {
        let pair = [i32::from(src.device), i32::from(dst.device)];
        let was_refused = {
            let rights = &self.lock().refused_rights;
            rights.contains(&pair) || rights.contains(&[pair[1], pair[0]])
        };
        let blocked = if was_refused { self.lock().blocked(src, dst) } else { None };
        blocked.filter(|&why| why == Why::BrokenInUse).unwrap_or(left_alone(src, dst))
    }

    /// The path of a copy, which is not direct if the pair is blocked, whoever has enabled it.
    fn unless_blocked(&self, path: Path, src: Place, dst: Place) -> Path {
        // Memory of other processes is left to the program.
        let is_remote = src.kind == Kind::Remote || dst.kind == Kind::Remote;
        let is_direct = path == Path::Direct && self.blocks() && !is_remote;
        let blocked = if is_direct { self.lock().blocked(src, dst) } else { None };
        blocked.map_or(path, Path::Staged)
    }

    /// The path of a copy, and whether its waits are kept.
    fn weigh(
        &self,
        driver: &impl Driver,
        (src, dst): (Place, Place),
        bytes: u64,
        on: Circumstances,
    ) -> Option<(Path, bool)> {
        self.look_up_denied(driver);
        let cell = self.cells.get(src.owner, dst.owner)?;
        // No allocation is larger: the size was negative, and the copy fails.
        let counted = cell.count(if bytes >> 42 == 0 { bytes } else { 0 });
        let rests = self.cells.now(src.owner, dst.owner);
        // Asking about a pool would end a capture, whichever thread's.
        let may_ask = !captures::may_be_under_way();
        let is_granted = may_ask && (self.is_granted(driver, src, dst) || self.is_granted(driver, dst, src));
        // Without a context no copy is made: there is nothing to enable a path for. On a small stack another copy has to do it.
        let may_know = may_ask || kind_of(src, dst) != Kind::Pool;
        let has_context = (on.keeps_path || driver.current_context().is_some()) && os::has_room();
        let on = Circumstances { has_context, may_know, ..on };
        // The step, and whether the waits of this copy are kept, as of one moment.
        let next = || {
            let mut registry = self.lock();
            let step = registry.next_step((src, dst), counted, is_granted, on);
            let keeps_waits = match step {
                Step::Decided(path) => path == Path::Direct && registry.is_made_direct(src, dst),
                Step::Now(path) | Step::Act(_, path) => registry.may_be_made_direct(path, src, dst),
            };
            (step, keeps_waits)
        };
        let (step, keeps_waits) = next();
        match step {
            Step::Decided(path) => {
                self.cells.keep(cell, (path, keeps_waits), rests);
                self.tell_once(src, dst, path);
                Some((path, keeps_waits))
            }
            Step::Now(path) => {
                if path == Path::Staged(Why::Capturing) {
                    self.tell_once(src, dst, path);
                }
                Some((path, keeps_waits))
            }
            Step::Act(..) => {
                // A graph's copies have the path that they get now for good. Captures that are under way may wait for this thread.
                let waits = on.keeps_path && !on.is_asked_for && may_ask;
                let patience = Duration::from_millis(if waits { 100 } else { 0 });
                let acting = self.verifier.begin([src.device, dst.device], patience, Some(&self.cells));
                // Another thread may have acted before.
                match next() {
                    (Step::Act(purpose, _), _) if acting.is_some() => {
                        let path = self.act(driver, (src, dst), purpose, on);
                        Some((path, self.lock().may_be_made_direct(path, src, dst)))
                    }
                    (Step::Act(_, meanwhile), keeps_waits) => {
                        if waits {
                            let what = "copies of a graph stay staged: another thread is still verifying after";
                            log::pair_info(src.device, dst.device, format_args!("{what} {} ms", patience.as_millis()));
                        }
                        Some((meanwhile, keeps_waits))
                    }
                    (Step::Decided(path) | Step::Now(path), keeps_waits) => Some((path, keeps_waits)),
                }
            }
        }
    }

    /// Says, once for each pair of devices and reason, why its copies are staged.
    fn tell_once(&self, src: Place, dst: Place, path: Path) {
        // Copies of mapped memory fail that its own device cannot access.
        let is_out_of_reach = |place: Place| place.kind == Kind::Mapped && !is_reached_by_mapping(place, place);
        if let Path::Staged(_) = path
            && !(is_out_of_reach(src) || is_out_of_reach(dst))
            && Once::Path([src.device, dst.device], path).mark_logged()
        {
            let are = if path == Path::Staged(Why::Capturing) { "would be" } else { "are" };
            log::pair_info(src.device, dst.device, format_args!("copies {are} {path}"));
        }
    }

    /// From where to where a copy goes, and on which path now, as far as is known; nothing is done about it.
    pub(crate) fn traffic_now(&self, driver: &impl Driver, copy: &Memcpy) -> Option<Traffic> {
        if let traffic @ Some(_) = self.decided(copy) {
            return traffic;
        }
        let (src, dst) = (self.place(driver, copy.src)?, self.place(driver, copy.dst)?);
        let is_direct = || {
            let is_linked = {
                let registry = self.lock();
                registry.reach(src, dst).or_else(|| registry.reach(dst, src)).is_some()
            };
            let may_ask = kind_of(src, dst) == Kind::Pool && !captures::may_be_under_way();
            is_linked || may_ask && (self.is_granted(driver, src, dst) || self.is_granted(driver, dst, src))
        };
        let path = match evident(src, dst) {
            Some(path) => path,
            None if is_direct() => Path::Direct,
            None => Path::Staged(left_alone(src, dst)),
        };
        let path = self.unless_blocked(path, src, dst);
        Some(traffic([src, dst], path, self.keeps_waits(path, src, dst), copy))
    }

    /// Whether the driver refuses a copy for want of rights, made by the current context.
    pub(crate) fn is_refused_for_rights(&self, driver: &impl Driver, copy: &Memcpy) -> bool {
        let ends = [copy.src, copy.dst].map(|address| self.place(driver, address));
        let [Some(src), Some(dst)] = ends else { return false };
        is_regular(copy) && self.is_beyond_rights(driver, [src, dst], Circumstances::default())
    }

    /// Whether a regular copy is refused: memory with rights of its own takes part only if the device that makes the copy has some.
    /// (Peer copies ask for none. Measured on H100.) The nodes of a graph were accepted when they were made.
    fn is_beyond_rights(&self, driver: &impl Driver, ends: [Place; 2], on: Circumstances) -> bool {
        if on.keeps_path || !ends.iter().any(Place::has_rights) || captures::may_be_under_way() {
            return false;
        }
        let context = Some(on.made_by).filter(|&context| context != 0).or_else(|| driver.current_context());
        let device = context.and_then(|context| driver.device_of_context(context));
        let Some(device) = device.and_then(|device| u8::try_from(device).ok()) else { return false };
        let by = Place::new(Kind::Plain, device, 0);
        let is_reached = |place: Place| {
            place.device == device || is_reached_by_mapping(place, by) || self.is_granted(driver, place, by)
        };
        !ends.into_iter().filter(Place::has_rights).all(is_reached)
    }

    /// Whether a pool's memory may be accessed from the other side's device.
    fn is_granted(&self, driver: &impl Driver, of: Place, by: Place) -> bool {
        let pool = self.lock().owner(of.owner).and_then(AllocationOwner::pool);
        pool.is_some_and(|pool| driver.pool_access(pool, by.device.into()))
    }

    /// Makes a plan and carries it out, while nobody else does so for one of the devices.
    fn act(&self, driver: &impl Driver, (src, dst): (Place, Place), purpose: Purpose, on: Circumstances) -> Path {
        let path = driver.relaxed(|| {
            let plan = self.plan(driver, (src, dst), purpose, on)?;
            Some(self.carry_out(driver, &plan))
        });
        let path = path.flatten().unwrap_or_else(|| {
            self.lock().attempts_mut(src, dst).put_off(Why::Unverified);
            Path::Staged(Why::Unverified)
        });
        match purpose {
            Purpose::Check => self.lock().blocked(src, dst).map_or(Path::Direct, Path::Staged),
            _ => path,
        }
    }

    fn plan(
        &self,
        driver: &impl Driver,
        (src, dst): (Place, Place),
        purpose: Purpose,
        on: Circumstances,
    ) -> Option<Plan> {
        let [src_context, dst_context] = on.contexts;
        let context = |place: Place, named: usize| self.context_for(driver, place, named);
        let contexts = [context(src, src_context)?, context(dst, dst_context)?];
        let registry = self.lock();
        let pool = |place: Place| registry.owner(place.owner)?.pool();
        Some(Plan { src, dst, kind: kind_of(src, dst), purpose, contexts, pools: [pool(src), pool(dst)] })
    }

    /// A context on a place's device: its own, else the one that the program named, or the current, or the primary one, else any that is known.
    pub(super) fn context_for(&self, driver: &impl Driver, place: Place, named: usize) -> Option<(usize, u64)> {
        let device = i32::from(place.device);
        let (own, known): (Option<AllocationOwner>, Vec<AllocationOwner>) = {
            let registry = self.lock();
            (registry.owner(place.owner), registry.numbered().map(|(_, owner)| owner).collect())
        };
        let is_here = |owner: &AllocationOwner| {
            owner.context_on(device).filter(|&(handle, id)| driver.context_id(handle) == Some(id))
        };
        let is_mine = |handle: &usize| {
            let id = driver.context_id(*handle)?;
            let is_here = driver.device_of_context(*handle) == Some(device);
            // Memory that is taken in it has to be forgotten with it.
            (is_here && self.context_number(*handle, id, device).is_some()).then_some((*handle, id))
        };
        let mine = [Some(named).filter(|&named| named != 0), driver.current_context()];
        let own = own.as_ref().and_then(is_here);
        let primary = || driver.primary_context(device).as_ref().and_then(is_mine);
        // Any other may be ended by a thread that has nothing to do with this copy.
        own.or_else(|| mine.iter().flatten().find_map(is_mine))
            .or_else(primary)
            .or_else(|| known.iter().find_map(is_here))
    }
}

fn is_regular(copy: &Memcpy) -> bool {
    copy.src_named == Named::Pointer
}

fn kind_of(src: Place, dst: Place) -> Kind {
    if src.kind == Kind::Pool || dst.kind == Kind::Pool { Kind::Pool } else { Kind::Plain }
}

impl Registry {
    fn next_step(
        &mut self,
        (src, dst): (Place, Place),
        counted: (u32, u64),
        is_granted: bool,
        on: Circumstances,
    ) -> Step {
        let kind = kind_of(src, dst);
        let verification = self.verification(kind, src.device, dst.device);
        let attempts = self.attempts(src.device, dst.device);
        let is_much = attempts.back_off.is_worth(counted);
        let is_due = is_much || on.is_asked_for || on.keeps_path && attempts.back_off.tries == 0;
        if is_due {
            self.mark_used(src.device, dst.device);
        }
        let links = [self.reach(src, dst), self.reach(dst, src)];
        // Of a pool it may not be known.
        let is_in_use = is_granted || links.iter().any(Option::is_some) || !on.may_know;
        let is_late =
            self.is_late(src.device, dst.device) && !self.is_either_denied(src.device.into(), dst.device.into());
        // Another thread may be about to get access, if the program is not kept from it. A graph's copies are not staged by us.
        let may_be_in_use = !on.keeps_path && !is_late && !self.refuses_what_is_broken();
        let blocked = self.blocked(src, dst).filter(|&why| is_in_use || may_be_in_use && why == Why::BrokenInUse);
        if let Some(why) = blocked {
            let path = Path::Staged(why);
            if is_late {
                let is_judged = is_due && on.may_know && on.has_context && !on.thread_captures;
                return if is_judged { Step::Act(Purpose::Check, path) } else { Step::Now(path) };
            }
            return if on.may_know { Step::Decided(path) } else { Step::Now(path) };
        }
        if is_granted || links.iter().any(Option::is_some) {
            let is_ours = links.iter().flatten().any(|link| self.is_verified_by_us(link, verification));
            let is_left =
                self.access != config::Access::Auto || self.verify == Verify::Off || self.is_unverifiable(kind);
            if is_ours || is_left || verification.is_some() && is_due {
                return Step::Decided(Path::Direct);
            }
            let is_judged = is_due && on.has_context && !on.thread_captures;
            return if is_judged { Step::Act(Purpose::Check, Path::Direct) } else { Step::Now(Path::Direct) };
        }
        if !on.may_know {
            return Step::Now(Path::Staged(Why::Capturing));
        }
        if let Some(why) = self.never(kind, verification, src, dst) {
            return Step::Decided(Path::Staged(why));
        }
        if !is_due || !on.has_context {
            let has_failed = is_late || self.verify != Verify::Off && self.has_failed_earlier(src, dst);
            return Step::Now(Path::Staged(if has_failed { Why::Broken } else { attempts.why() }));
        }
        if on.thread_captures && verification != Some(Verification::Passed) {
            return Step::Now(Path::Staged(Why::Capturing));
        }
        Step::Act(Purpose::Enable, Path::Staged(Why::Verifying))
    }

    /// Whether a copy on a path is direct only because of p2pshim, or another thread may make it so before the driver gets it.
    fn may_be_made_direct(&self, path: Path, src: Place, dst: Place) -> bool {
        let kind = kind_of(src, dst);
        match path {
            Path::Direct => self.is_made_direct(src, dst),
            Path::Staged(_) => self.never(kind, self.verification(kind, src.device, dst.device), src, dst).is_none(),
            _ => false,
        }
    }

    /// Whether nobody is acting on one of these devices, so that the caller now may; others have devices of their own.
    pub(super) fn begin_acting(&mut self, devices @ [one, other]: [u8; 2]) -> bool {
        let is_free = !self.acting.iter().flatten().any(|&device| device == one || device == other);
        if is_free {
            self.acting.push(devices);
        }
        is_free
    }

    /// Whether a path cannot be verified, whichever it is. Memory of pools has rights of its own in any case.
    fn is_unverifiable(&self, kind: Kind) -> bool {
        self.cannot_verify && kind == Kind::Plain
    }

    /// Why nothing will ever be done for a pair, if that is so.
    pub(super) fn never(&self, kind: Kind, verification: Option<Verification>, src: Place, dst: Place) -> Option<Why> {
        if self.is_either_denied(i32::from(src.device), i32::from(dst.device)) {
            return Some(Why::Denied);
        }
        if self.is_refused(src.device.into(), dst.device.into()) && !self.is_late(src.device, dst.device) {
            return Some(Why::Broken);
        }
        if self.access != config::Access::Auto {
            return Some(match self.verification(Kind::Plain, src.device, dst.device) {
                Some(Verification::NoPath) => Why::NoPath,
                _ if self.has_failed_earlier(src, dst) => Why::BrokenNotEnabled,
                _ => left_alone(src, dst),
            });
        }
        match kind {
            Kind::Pool if self.leaves_pools => return Some(Why::Pool),
            Kind::Plain if src.kind == Kind::Mapped || dst.kind == Kind::Mapped => return Some(Why::Mapped),
            _ if self.verify != Verify::Off && verification.is_none() && self.is_unverifiable(kind) => {
                return Some(Why::Unverified);
            }
            _ => {}
        }
        match verification {
            Some(Verification::NoPath) => Some(Why::NoPath),
            Some(Verification::Broken) => Some(Why::Broken),
            Some(Verification::Slower) => Some(Why::Slower),
            Some(Verification::Passed | Verification::Late | Verification::Risky) | None => None,
        }
    }
}
