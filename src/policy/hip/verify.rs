//! The path between two devices is verified before access is enabled, by the program or by us, by the judge of CUDA's paths
//! ([`Judge`](crate::policy::access::judge)).
//!
//! **The last error** is left as it was, where nothing is pending; else nothing is asked. Before 7.0 the program's call overwrites
//! it in any case.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use super::links::{DEVICES, pair};
use super::{Hip, Library, Peers};
use crate::api::abi::Code;
use crate::os;
use crate::policy::access::Verification;
use crate::policy::access::judge::{PATIENCE, Plan, Purpose};
use crate::policy::capture;
use crate::policy::memory::{Kind, Place};

impl Peers {
    /// Memory has run out: nothing is verified any more.
    pub(crate) fn stop_verifying(&self) {
        self.is_stopped.store(true, Relaxed);
    }

    /// Whether the program does not get a device's access to the memory of another: the path is broken.
    #[inline(always)]
    pub(super) fn is_refused(&self, pair: [u8; 2]) -> bool {
        self.refuses.load(Relaxed) && self.broken.has(pair)
    }

    /// The outcome of verification of two devices.
    pub(super) fn verification(&self, [one, other]: [u8; 2]) -> Option<Verification> {
        self.judge.lock().verification(Kind::Plain, one, other)
    }

    /// The verdict that holds for good.
    fn lasting(&self, pair: [u8; 2]) -> Option<Verification> {
        self.verification(pair).filter(|&known| known != Verification::Late)
    }

    /// Whether the verdict that is kept on two devices is yet to be read, for a program that asks whether there is a path.
    #[inline(always)]
    pub(crate) fn wants_verdict(&self, device: i32, peer: i32) -> bool {
        let Some(pair @ [one, other]) = pair(device, peer) else { return false };
        let are_distinct = one != other && pair.into_iter().all(|device| usize::from(device) < DEVICES);
        self.judge.admits() && are_distinct && !self.is_denied(device, peer) && !self.is_read.has(pair)
    }

    /// Reads it; nothing is verified.
    pub(crate) fn read_verdict(&self, library: usize, hip: &impl Hip, device: i32, peer: i32) {
        let Some(own) = self.libraries.get(library) else { return };
        let Some(pair) = pair(device, peer) else { return };
        if self.is_denied(device, peer) || !self.may_ask(hip) || !self.are_devices(own, hip, pair) {
            return;
        }
        let Some(_acting) = self.judge.begin(pair, PATIENCE) else { return };
        self.aside(hip, || {
            let can = reaches(hip, pair);
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
        if !self.may_ask(hip) || self.is_stopped.load(Relaxed) || !os::has_room() || !self.are_devices(own, hip, pair) {
            return None;
        }
        // A copy does not wait for the verification of another pair, nor for a reset.
        let is_asked = purpose == Purpose::Admit;
        if !self.tried.is_due(pair) || !is_asked && own.asking.load(SeqCst) != 0 {
            return None;
        }
        let _acting = self.judge.begin(pair, if is_asked { PATIENCE } else { Duration::ZERO })?;
        // Another thread may have done it, or reset a device meanwhile, which takes the memory along that is used here.
        if let known @ Some(_) = self.lasting(pair) {
            return known;
        }
        if own.resets.load(SeqCst) != 0 {
            return None;
        }
        self.aside(hip, || {
            let can = reaches(hip, pair);
            // Who cannot have access need not be tested.
            let is_wanted = if is_asked { can[0] } else { can.contains(&true) };
            let plan = self.plan(library, pair, purpose);
            if is_wanted && !self.look_up(hip, &plan, can) {
                self.tried.mark(pair);
                let _ = self.judge.verify_path(hip, &plan, can);
            }
        });
        self.note(pair);
        self.lasting(pair)
    }

    /// Whether HIP may be asked for a verification: a capture might not bear it, nor a pending error that only the program clears.
    fn may_ask(&self, hip: &impl Hip) -> bool {
        let is_empty = || hip.last_error() == Some(Code::SUCCESS) || !hip.keeps_last_error();
        self.judge.admits() && !capture::may_be_under_way() && is_empty()
    }

    /// Whether these are two devices, as far as they are told apart.
    fn are_devices(&self, own: &Library, hip: &impl Hip, pair: [u8; 2]) -> bool {
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
        let pair = [plan.src.device, plan.dst.device];
        self.is_read.set_both(pair, true);
        if !can.contains(&true) || self.lasting(pair).is_some() {
            return true;
        }
        match self.judge.check_verdicts(hip, plan, can) {
            Ok(has_passed) => {
                if has_passed {
                    self.judge.passed(plan);
                }
                has_passed
            }
            Err(failure) => {
                self.judge.failed(hip, plan, &failure);
                true
            }
        }
    }

    /// Notes what is known now where no lock is needed to see it.
    fn note(&self, pair: [u8; 2]) {
        let known = self.verification(pair);
        self.broken.set_both(pair, matches!(known, Some(Verification::Failed | Verification::Late)));
        if known.is_some_and(|known| known != Verification::Late) {
            self.tried.forget(pair);
        }
    }

    fn plan(&self, library: usize, pair: [u8; 2], purpose: Purpose) -> Plan {
        let [one, other] = pair;
        let has_access = self.libraries.iter().any(|own| own.program.has(pair) || own.program.has([other, one]));
        let [src, dst] = pair.map(|device| Place { kind: Kind::Plain, device, owner: 0, reach: 0 });
        let contexts = pair.map(|device| (device.into(), library as u64));
        let purpose = if has_access { Purpose::Check } else { purpose };
        Plan { src, dst, kind: Kind::Plain, purpose, contexts, pools: [None; 2] }
    }
}

/// Which of two devices can access the other's memory.
fn reaches(hip: &impl Hip, [one, other]: [u8; 2]) -> [bool; 2] {
    [[one, other], [other, one]].map(|[device, peer]| hip.can_access(device.into(), peer.into()) == Ok(true))
}
