//! Verdicts that are kept: those in files are read once in the process, where possible before they are needed; a process that was restored
//! from a checkpoint forgets all.
//!
//! Reading one takes a file, and some more for each device, on H100 0.2 ms for the first pair. A program should not wait for that when it
//! enables peer access, so it is done when it gets a context on one more device, which takes a thousand times as long.

use std::sync::atomic::Ordering::Relaxed;

use p2pshim_host::verdicts::FOUND_EARLIER;

use super::Access;
use super::judge::{Judge, Plan};
use super::registry::{Link, Ours, Registry, Verification, ordered};
use super::verify::Failure;
use crate::config::Probe;
use crate::policy::capture;
use crate::policy::driver::{Driver, Judged};
use crate::policy::full::Verdict;
use crate::record::log::Once;

impl Access {
    /// Whether there is something to do about a context on a device: it is the program's first there, as far as is known.
    #[inline(always)]
    pub(crate) fn is_first_context(&self, device: i32) -> bool {
        self.admits() && (0..64).contains(&device) && self.with_context.load(Relaxed) >> device & 1 == 0
    }

    /// The program has its first context on a device: reads what is kept about the device and those with a context.
    pub(crate) fn context_is_made(&self, driver: &impl Driver, device: i32) {
        if capture::may_be_under_way() {
            return;
        }
        let before = self.with_context.fetch_or(1 << device, Relaxed);
        for other in (0..64).filter(|&other| other != device && before >> other & 1 == 1) {
            self.judge.kept(driver, device, other);
            self.judge.kept(driver, other, device);
        }
    }

    /// Other devices may have taken the places of those that there were: their paths are verified anew. The rights to memory
    /// stay.
    pub(crate) fn process_is_restored(&self, driver: &impl Driver) {
        self.lock().process_is_restored();
        self.look_up_denied(driver);
        self.cache.forget();
        self.cells.invalidate();
    }
}

impl Judge {
    /// The verdict that is kept on a device's access to the memory of another.
    pub(super) fn kept(&self, driver: &impl Judged, by: i32, of: i32) -> Option<Verdict> {
        if let Some(kept) = self.lock().kept.get(&[by, of]) {
            return kept.clone();
        }
        let verdict = driver.verdict(by, of);
        self.lock().kept.insert([by, of], verdict.clone());
        verdict
    }

    /// Checks the verdicts that are kept. Whether they say that data arrives in each direction that there is; where one is missing, what
    /// is verified here has to do.
    ///
    /// # Errors
    /// One says that data does not arrive.
    pub(crate) fn check_verdicts(&self, driver: &impl Judged, plan: &Plan, can: [bool; 2]) -> Result<bool, Failure> {
        let verdicts = plan.directions(can).map(|[by, of]| self.kept(driver, by, of).unwrap_or_default());
        let verdicts: Vec<Verdict> = verdicts.collect();
        let is_full = self.lock().probe == Probe::Full && !self.is_hip();
        if is_full && !verdicts.iter().all(Verdict::has_kernels) {
            self.misses_verdict();
        }
        let mut has_passed = true;
        for within in verdicts.iter().map(Verdict::within_process) {
            has_passed &= within.is_some();
            within.unwrap_or(Ok(())).map_err(|what| match self.is_hip() {
                true => Failure::Kept(format!(
                    "an earlier verification failed: {what} (`p2pshim doctor --forget` has it verified again)"
                )),
                false => Failure::Kept(format!("the full verification failed: {what}{FOUND_EARLIER}")),
            })?;
        }
        if has_passed {
            self.lock().passed_earlier.insert(ordered(plan.src.device, plan.dst.device));
        }
        Ok(has_passed)
    }
}

impl Registry {
    pub(super) fn process_is_restored(&mut self) {
        self.is_restored = true;
        self.gpus.clear();
        self.verifications.clear();
        self.hung.clear();
        self.attempts.clear();
        self.kept.clear();
        self.passed_earlier.clear();
        self.asked.clear();
        self.verified_again.clear();
        Once::forget_all();
    }

    /// Whether a link was enabled by us for a path that was verified.
    pub(super) fn is_verified_by_us(&self, link: &Link, verification: Option<Verification>) -> bool {
        link.ours == Ours::Held && !link.program && (!self.is_restored || verification.is_some())
    }
}
