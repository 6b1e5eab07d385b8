//! The path between two devices is verified before access is enabled, by the program or by us, by the verifier of CUDA's paths
//! ([`PeerVerifier`](crate::policy::access::verifier)).
//!
//! **The last error** is left as it was, where nothing is pending; else nothing is asked. Before 7.0 the program's call overwrites
//! it in any case.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::{DEVICES, Hip, Peers, Runtime, pair};
use crate::api::abi::Code;
use crate::objects::captures;
use crate::objects::memory::{Kind, Place};
use crate::os;
use crate::policy::access::Verification;
use crate::policy::access::back_off::BackOff;
use crate::policy::access::registry::ordered;
use crate::policy::access::verifier::{PATIENCE, Plan, Purpose};

impl Peers {
    pub(super) fn verification(&self, [one, other]: [u8; 2]) -> Option<Verification> {
        self.verifier.lock().verification(Kind::Plain, one, other)
    }

    /// The verdict that holds for good.
    fn lasting(&self, pair: [u8; 2]) -> Option<Verification> {
        self.verification(pair).filter(|&known| known != Verification::Late)
    }

    /// Reads the verdict that is kept on two devices, once, for a program that asks whether there is a path; nothing is verified.
    pub(crate) fn read_verdict(&self, library: usize, hip: &impl Hip, device: i32, peer: i32) {
        let Some(own) = self.libraries.get(library) else { return };
        let Some(pair) = pair(device, peer) else { return };
        let is_known = {
            let registry = self.verifier.lock();
            registry.is_denied(device, peer) || registry.kept.contains_key(&[device, peer])
        };
        if is_known || self.lasting(pair).is_some() || !self.may_ask(hip) || !self.are_devices(own, hip, pair) {
            return;
        }
        let Some(_acting) = self.verifier.begin(pair, PATIENCE, None) else { return };
        self.aside(hip, || {
            let can = hip.can_reach(pair.map(i32::from)).unwrap_or_default();
            self.look_up(hip, &self.plan(library, pair, Purpose::Admit), can);
        });
        self.note(pair);
    }

    /// The verdict on the path between two devices, which is verified if it has to be. None if that cannot be found out now.
    pub(super) fn admit(
        &self,
        library: usize,
        hip: &impl Hip,
        pair: [u8; 2],
        purpose: Purpose,
    ) -> Option<Verification> {
        if let known @ Some(_) = self.lasting(pair) {
            return known;
        }
        let own = self.libraries.get(library)?;
        if !self.may_ask(hip) || !os::has_room() || !self.are_devices(own, hip, pair) {
            return None;
        }
        // A copy does not wait for the verification of another pair, nor for a reset.
        let is_asked = purpose == Purpose::Admit;
        let is_due = self.verifier.lock().asked.get(&ordered(pair[0], pair[1])).is_none_or(BackOff::is_due);
        if !is_due || !is_asked && self.asking.load(SeqCst) != 0 {
            return None;
        }
        let _acting = self.verifier.begin(pair, if is_asked { PATIENCE } else { Duration::ZERO }, None)?;
        // Another thread may have done it, or reset a device meanwhile, which takes the memory along that is used here.
        if let known @ Some(_) = self.lasting(pair) {
            return known;
        }
        if self.resets.load(SeqCst) != 0 {
            return None;
        }
        self.aside(hip, || {
            let can = hip.can_reach(pair.map(i32::from)).unwrap_or_default();
            // A device that cannot have access need not be tested.
            let is_wanted = if is_asked { can[0] } else { can.contains(&true) };
            let plan = self.plan(library, pair, purpose);
            if is_wanted && !self.look_up(hip, &plan, can) {
                self.verifier.lock().asked.entry(ordered(pair[0], pair[1])).or_default().mark();
                let _ = self.verifier.verify_path(hip, &plan, can);
            }
        });
        self.note(pair);
        self.lasting(pair)
    }

    /// Whether HIP may be asked for a verification: a capture might not bear it, nor a pending error that only the program clears.
    fn may_ask(&self, hip: &impl Hip) -> bool {
        let is_empty = || hip.last_error() == Some(Code::SUCCESS) || !hip.keeps_last_error();
        self.verifier.admits() && !captures::may_be_under_way() && is_empty()
    }

    /// Whether these are two devices, as far as they are told apart.
    fn are_devices(&self, own: &Runtime, hip: &impl Hip, pair: [u8; 2]) -> bool {
        let (_, devices) = self.whereabouts(own, hip);
        let is_one = |device: &u8| usize::from(*device) < DEVICES && Some(i32::from(*device)) < devices;
        pair[0] != pair[1] && pair.iter().all(is_one)
    }

    /// Runs `work` so that the program's device stays current and an empty last error empty, after a panic too.
    pub(super) fn aside(&self, hip: &impl Hip, work: impl FnOnce()) {
        let was_empty = hip.last_error() == Some(Code::SUCCESS);
        let Some(current) = hip.current_device() else { return };
        let restore = || {
            hip.make_current(current);
            if was_empty && hip.last_error() != Some(Code::SUCCESS) {
                hip.clear_last_error();
            }
        };
        os::finally(restore, || _ = hip.relaxed(work));
    }

    /// Looks for the verdict that is kept on two devices. Whether there is one.
    fn look_up(&self, hip: &impl Hip, plan: &Plan, can: [bool; 2]) -> bool {
        if !can.contains(&true) || self.lasting(plan.pair()).is_some() {
            return true;
        }
        match self.verifier.check_verdicts(hip, plan, can) {
            Ok(has_passed) => {
                if has_passed {
                    self.verifier.passed(plan);
                }
                has_passed
            }
            Err(failure) => {
                self.verifier.failed(hip, plan, &failure);
                true
            }
        }
    }

    /// Decides about the pair anew; once it is known there is nothing more to be tried.
    fn note(&self, pair: [u8; 2]) {
        if self.lasting(pair).is_some() {
            self.verifier.lock().asked.remove(&ordered(pair[0], pair[1]));
        }
        self.invalidate();
    }

    fn plan(&self, library: usize, pair: [u8; 2], purpose: Purpose) -> Plan {
        let [src, dst] = pair.map(|device| Place::new(Kind::Plain, device, 0));
        let contexts = pair.map(|device| (device.into(), library as u64));
        let has_access = self.verifier.lock().is_any_the_programs(pair);
        let purpose = if has_access { Purpose::Check } else { purpose };
        Plan { src, dst, kind: Kind::Plain, purpose, contexts, pools: [None; 2] }
    }
}
