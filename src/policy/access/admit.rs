//! Peer access that the program itself asks for: it gets it if data arrives.
//!
//! A pair whose path is broken looks to the program like hardware without a path. So it is verified before the program's own
//! enabling, and nothing that was given is ever taken back; then what was found out holds for all who ask. A path that cannot be
//! decided, since the devices are busy, a stream is being captured, or there is no memory, is left to the program.

use std::time::Duration;

use super::back_off::BackOff;
use super::registry::ordered;
use super::verifier::{PATIENCE, Plan, Purpose};
use super::{Access, Kind, Place, Verification};
use crate::objects::captures;
use crate::os;
use crate::policy::driver::Driver;

impl Access {
    #[inline(always)]
    pub(super) fn admits(&self) -> bool {
        self.verifier.admits()
    }

    /// Whether anything is hidden from the program, or may be once it was verified.
    #[inline(always)]
    pub(crate) fn may_hide(&self) -> bool {
        self.blocks() || self.admits()
    }

    /// Verifies the path between two devices, if it is not known, for a program that is about to use it. `named` are contexts on
    /// them, or 0. Returns whether it was tried.
    pub(super) fn admit(&self, driver: &impl Driver, devices: [i32; 2], named: [usize; 2]) -> bool {
        let place = |device: i32| {
            let device = u8::try_from(device).ok().filter(|&device| device < 64)?;
            Some(Place::new(Kind::Plain, device, 0))
        };
        let [Some(src), Some(dst)] = devices.map(place) else { return false };
        let pair @ [one, other] = [src.device, dst.device];
        let is_known = || {
            let registry = self.lock();
            let is_known = registry.verification(Kind::Plain, one, other).is_some();
            is_known && !registry.is_late(one, other) || registry.has_passed_earlier(one, other)
        };
        if !self.admits() || src.device == dst.device || !os::has_room() || captures::may_be_under_way() || is_known() {
            return false;
        }
        let Some(_acting) = self.verifier.begin(pair, PATIENCE, Some(&self.cells)) else { return false };
        // Another thread may have done it.
        if is_known() {
            return false;
        }
        driver.relaxed(|| self.find_out(driver, [src, dst], named)).flatten().is_some()
    }

    /// Verifies the path for a program that only asks: not each time, if the pair cannot be decided.
    pub(super) fn admit_asking(&self, driver: &impl Driver, devices: [i32; 2]) {
        let [Ok(one), Ok(other)] = devices.map(u8::try_from) else { return };
        let pair = ordered(one, other);
        let is_wanted = || {
            let registry = self.lock();
            registry.refuses_what_is_broken() && registry.asked.get(&pair).is_none_or(BackOff::is_due)
        };
        if self.admits() && is_wanted() && self.admit(driver, devices, [0, 0]) {
            self.lock().asked.entry(pair).or_default().mark();
        }
    }

    /// Verifies a path anew, on which a copy of the program has not arrived as it was. Whether data arrives; none if that cannot be
    /// found out now. A context that has access already keeps it. One that failed is not tried again, no other at once.
    pub(crate) fn verify_again(&self, driver: &impl Driver, devices: [u8; 2]) -> Option<bool> {
        let [src, dst] = devices.map(|device| Place::new(Kind::Plain, device, 0));
        let has_failed = || self.lock().verification(Kind::Plain, src.device, dst.device) == Some(Verification::Broken);
        if has_failed() {
            return Some(false);
        }
        {
            let registry = self.lock();
            if let Some((back_off, passes)) = registry.verified_again.get(&devices)
                && !back_off.is_due()
            {
                return *passes;
            }
        }
        if captures::may_be_under_way() || !os::has_room() {
            return None;
        }
        let _acting = self.verifier.begin(devices, Duration::ZERO, Some(&self.cells))?;
        let passes = driver
            .relaxed(|| {
                let can = driver.can_reach(devices.map(i32::from)).ok().filter(|can| can.contains(&true))?;
                let contexts = [self.context_for(driver, src, 0)?, self.context_for(driver, dst, 0)?];
                let plan = Plan { src, dst, kind: Kind::Plain, purpose: Purpose::Again, contexts, pools: [None; 2] };
                let is_right = self.verifier.verify_path(driver, &plan, can).is_ok();
                (is_right || has_failed()).then_some(is_right)
            })
            .flatten();
        let mut registry = self.lock();
        let (back_off, known) = registry.verified_again.entry(devices).or_default();
        back_off.mark();
        *known = passes;
        passes
    }

    /// None if nothing can be tried: there is no path, or no context.
    fn find_out(&self, driver: &impl Driver, [src, dst]: [Place; 2], named: [usize; 2]) -> Option<()> {
        let devices = [src, dst].map(|place| i32::from(place.device));
        let can = driver.can_reach(devices).ok().filter(|can| can.contains(&true))?;
        let plan =
            Plan { src, dst, kind: Kind::Plain, purpose: Purpose::Admit, contexts: [(0, 0); 2], pools: [None; 2] };
        match self.verifier.check_verdicts(driver, &plan, can) {
            Ok(true) => {}
            Ok(false) => {
                let contexts = [self.context_for(driver, src, named[0])?, self.context_for(driver, dst, named[1])?];
                let _ = self.verifier.verify_path(driver, &Plan { contexts, ..plan }, can);
            }
            Err(failure) => {
                self.verifier.failed(driver, &plan, &failure);
            }
        }
        Some(())
    }
}
