//! Verifying a path, with CUDA or HIP, in memory that is ours: the program's copies take no path that is not verified.
//!
//! Wrong bytes block a pair at once. A copy that does not end in time says nothing if copies through the host, on streams of their
//! own, are slow too; else the pair is refused for now, and judged again once its late copies have ended.

use p2pshim_host::verdict::{Finding, Part};

use super::outcome::story;
use super::registry::{Registry, ordered};
use super::verifier::{PeerVerifier, Plan, Purpose};
use super::verify::{self, Failure};
use super::{Kind, Path, Why};
use crate::api::abi::Code;
use crate::policy::driver::{Scratch, ScratchKind, VerifyBackend};
use crate::policy::verdicts::Verdict;

/// How often a verification is put off because the devices are busy, at twice the copies each time, before it is made anyway: it
/// takes 0.1 s then, since rights of memory take long to set on busy devices.
const MOST_PUT_OFF: u32 = 6;

enum Setback {
    Failure(Failure),
    /// The driver has no memory with rights of its own.
    NotApart,
    /// It is not known, for this reason.
    Undecided(&'static str),
}

impl From<Failure> for Setback {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl PeerVerifier {
    /// Verifies the path of a plan, keeps and logs what came of it.
    ///
    /// # Errors
    /// The path that its copies take from now on.
    pub(crate) fn verify_path(&self, driver: &impl VerifyBackend, plan: &Plan, can: [bool; 2]) -> Result<(), Path> {
        if let Some(risk) = self.risk(driver, plan) {
            return Err(self.too_risky(plan, &risk));
        }
        // Of CUDA's devices the doctor keeps more.
        let keep = |finding: Finding| {
            let verdict = || Verdict::of(Part::Copies, finding.clone());
            let directions = plan.directions(can).filter(|_| self.is_hip());
            directions.for_each(|[by, of]| driver.keep_verdict(by, of, verdict()));
        };
        match self.verify_apart(driver, plan, can) {
            Ok(()) => {
                keep(Finding::Right);
                self.passed(plan);
                Ok(())
            }
            Err(Setback::Failure(failure)) => {
                if let Failure::Lost { .. } = failure {
                    keep(Finding::Wrong(story(&failure)));
                }
                Err(self.failed(driver, plan, &failure))
            }
            Err(Setback::NotApart) => Err(self.unverifiable(plan)),
            Err(Setback::Undecided(what)) => {
                plan.say(format_args!("{what}; the pair is to be verified later{}", self.of_hip()));
                let is_late = self.lock().is_late(plan.src.device, plan.dst.device);
                Err(Path::Staged(self.put_off(plan, if is_late { Why::Broken } else { Why::Busy })))
            }
        }
    }

    /// Why a copy to verify the path may hang, where no verdict says that it does not. Copies of the program that go there already
    /// would hang as well.
    fn risk(&self, driver: &impl VerifyBackend, plan: &Plan) -> Option<String> {
        let is_in_use = matches!(plan.purpose, Purpose::Check | Purpose::Again) && !self.is_hip();
        let has_passed = self.lock().has_passed_earlier(plan.src.device, plan.dst.device);
        if is_in_use || has_passed || driver.is_linked(plan.devices()) {
            return None;
        }
        driver.machine(plan.devices())?.risk([0, 1])
    }

    /// Verifies the path by memory that has rights of its own: the program's copies take no path that is not verified. HIP has no
    /// such memory: it maps any for a copy on first use, whatever is enabled, so nothing of the program's is affected.
    fn verify_apart(&self, driver: &impl VerifyBackend, plan: &Plan, can: [bool; 2]) -> Result<(), Setback> {
        const BUSY: Setback = Setback::Undecided("the devices are busy");
        if !self.take_back(driver, plan) {
            return Err(Setback::Undecided("a copy has still not ended"));
        }
        let kind = if plan.kind == Kind::Pool { ScratchKind::Pool } else { ScratchKind::Mapped };
        let controls = match self.is_hip() {
            true => self.scratches(driver, plan, kind)?.map(Scratch::through_host),
            false => self.scratches(driver, plan, ScratchKind::Page)?,
        };
        let [one, other] = &controls;
        let is_busy = verify::is_busy(driver, one)? || verify::is_busy(driver, other)?;
        if is_busy
            && (self.is_hip() || self.lock().attempts(plan.src.device, plan.dst.device).back_off.tries < MOST_PUT_OFF)
        {
            return Err(BUSY);
        }
        let both @ [src, dst] = match self.scratches(driver, plan, kind) {
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
        // Speed is no matter to a copy that was wrong, and what has access is not to be staged for it. Nor to HIP's, which take the
        // path in any case.
        let is_timed = !is_busy && !self.is_hip() && plan.purpose != Purpose::Again;
        match verify::quick(driver, [&src, &dst], is_timed) {
            Err(lost @ Failure::Lost { .. }) if self.is_hip() => {
                match controls.iter().try_for_each(|control| verify::returns(driver, control)) {
                    Ok(()) => Err(lost.into()),
                    Err(Failure::Hung { .. }) => Err(BUSY),
                    Err(Failure::Unknown(code)) => Err(Failure::Unknown(code).into()),
                    Err(_) => Err(Setback::Undecided("copies between a device and the host were wrong, too")),
                }
            }
            Err(hung @ Failure::Hung { src: from, .. }) => {
                self.lock().put_aside(self.aside(plan), both);
                if verify::is_held_up(driver, from, [one, other], [&src, &dst])? {
                    return Err(BUSY);
                }
                Err(hung.into())
            }
            result => Ok(result?),
        }
    }

    /// Memory of both devices, which is taken once.
    fn scratches(&self, driver: &impl VerifyBackend, plan: &Plan, kind: ScratchKind) -> Result<[Scratch; 2], Failure> {
        let [src, dst] = plan.devices();
        let [src_context, dst_context] = plan.contexts;
        let take = |context: (usize, u64), device: i32| {
            let known = self.lock().scratch(kind, context);
            if let Some(scratch) = known {
                return Ok(scratch);
            }
            if self.is_hip() && !self.lock().count_taken(context) {
                return Err(Failure::Unknown(Code::OUT_OF_MEMORY));
            }
            let scratch = driver.scratch(kind, context, device)?;
            self.lock().add_scratch(scratch);
            Ok(scratch)
        };
        Ok([take(src_context, src)?, take(dst_context, dst)?])
    }

    /// The key of memory that is put aside: copies of HIP's runtime do not know each other's.
    fn aside(&self, plan: &Plan) -> ((u8, u8), u64) {
        let [(_, library), _] = plan.contexts;
        (ordered(plan.src.device, plan.dst.device), if self.is_hip() { library } else { 0 })
    }

    /// Takes what was put aside of a pair into use again. False if its copies have not ended.
    fn take_back(&self, driver: &impl VerifyBackend, plan: &Plan) -> bool {
        let hung = self.lock().hung.get(&self.aside(plan)).copied();
        let Some(scratches) = hung else { return true };
        let have_ended = scratches.iter().all(|scratch| verify::has_ended(driver, scratch));
        if have_ended {
            let mut registry = self.lock();
            registry.hung.remove(&self.aside(plan));
            scratches.into_iter().for_each(|scratch| registry.add_scratch(scratch));
        }
        have_ended
    }
}

fn is_missing(code: Code) -> bool {
    [Code::NOT_SUPPORTED, Code::SHARED_OBJECT_SYMBOL_NOT_FOUND].contains(&code)
}

impl Registry {
    /// Whether memory may be taken in a context, as is about to be done: what cannot be used any more is lost.
    pub(crate) fn count_taken(&mut self, context: (usize, u64)) -> bool {
        const MOST: u8 = 4;
        let taken = self.taken.entry(context).or_default();
        let may_take = *taken < MOST;
        *taken += u8::from(may_take);
        may_take
    }

    /// Memory of a pair is not used until the copies that are under way in it have ended.
    pub(crate) fn put_aside(&mut self, pair: ((u8, u8), u64), scratches: [Scratch; 2]) {
        self.drop_scratches(|scratch| scratches.contains(scratch));
        self.hung.insert(pair, scratches);
    }

    /// A reset takes what a device has, and gives its memory back.
    pub(crate) fn reset_scratch(&mut self, context: (usize, u64)) {
        self.taken.remove(&context);
        self.drop_scratches(|scratch| (scratch.context, scratch.context_id) == context);
    }
}
