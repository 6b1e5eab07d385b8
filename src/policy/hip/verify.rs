//! The path between two devices is verified before access is enabled, by the program or by us: with the copies of CUDA's
//! verification ([`verify`]), and memory of our own.
//!
//! HIP has no memory with rights of its own: it maps memory for a copy on first use, whatever is enabled. So nothing has to be
//! shared first, and nothing of the program's is affected.
//!
//! **What counts** is what counts for CUDA. Wrong bytes block the pair, unless copies through the host are wrong as well. A copy that does
//! not end in time says nothing if copies through the host, on streams of their own, are slow too; else the pair is refused, and judged again
//! later.
//!
//! **The last error** is left as it was, where nothing is pending; else nothing is asked. Before 7.0 the program's call overwrites
//! it in any case.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use p2pshim_host::machine;
use p2pshim_host::verdict::{Finding, Part};

use super::links::DEVICES;
use super::verifications::{Known, Purpose, Scratch};
use super::{Hip, Library, Peers};
use crate::api::abi::Code;
use crate::api::{Layer, codes};
use crate::os;
use crate::policy::access::verify::{self, Failure};
use crate::policy::access::{Verification, outcome};
use crate::policy::capture;
use crate::policy::full::Verdict;
use crate::record::log::{self, Verified};

/// Why a pair was not found to be right.
#[derive(Debug)]
enum Setback {
    /// It is not to be used; if a copy did not end, for now.
    Broken(Failure),
    /// It is not known: why.
    Undecided(String),
}

impl From<Failure> for Setback {
    /// What is wrong with copies that go through the host.
    fn from(failure: Failure) -> Self {
        Self::Undecided(match failure {
            Failure::Unknown(code) => {
                format!("HIP returned {} ({})", codes::name(Layer::Hip, code).unwrap_or("an unknown code"), code.0)
            }
            Failure::Hung { .. } => "the devices are busy".to_owned(),
            _ => "copies between a device and the host were wrong, too".to_owned(),
        })
    }
}

impl Peers {
    /// Whether pairs are verified.
    #[inline(always)]
    pub(super) fn admits(&self) -> bool {
        self.admits.load(Relaxed)
    }

    /// Memory has run out: nothing is verified any more.
    pub(crate) fn stop_verifying(&self) {
        self.is_stopped.store(true, Relaxed);
    }

    /// Whether the program does not get a device's access to the memory of another: the path is broken.
    #[inline(always)]
    pub(super) fn is_refused(&self, pair: [u8; 2]) -> bool {
        self.refuses.load(Relaxed) && self.verifications.has_failed(pair)
    }

    /// Whether a pair is undecided, and is verified again at a later copy.
    #[inline(always)]
    pub(super) fn is_put_off(&self, pair: [u8; 2]) -> bool {
        self.admits() && self.verifications.lasting(pair).is_none() && !self.verifications.is_due(pair)
    }

    /// What verification has shown about two devices.
    pub(super) fn verification(&self, pair: [u8; 2]) -> Option<Verification> {
        match self.verifications.known(pair)? {
            Known::Passed => Some(Verification::Passed),
            Known::Failed => Some(Verification::Failed),
            Known::Late => Some(Verification::Late),
            Known::Risky => None,
        }
    }

    /// Whether the verdict that is kept on two devices is yet to be read, for a program that asks whether there is a path.
    #[inline(always)]
    pub(crate) fn wants_verdict(&self, device: i32, peer: i32) -> bool {
        let [Ok(one), Ok(other)] = [device, peer].map(u8::try_from) else { return false };
        let pair = [one, other];
        let are_distinct = one != other && [one, other].into_iter().all(|device| usize::from(device) < DEVICES);
        let may_want = self.admits() && are_distinct && !self.is_denied(device, peer);
        may_want && !self.verifications.was_read(pair) && self.verifications.known(pair).is_none()
    }

    /// Reads it; nothing is verified.
    pub(crate) fn read_verdict(&self, library: usize, hip: &impl Hip, device: i32, peer: i32) {
        let Some(own) = self.libraries.get(library) else { return };
        let [Ok(one), Ok(other)] = [device, peer].map(u8::try_from) else { return };
        let pair = [one, other];
        if self.is_denied(device, peer) || !self.may_ask(hip) || !self.are_devices(own, hip, pair) {
            return;
        }
        let Some(_acting) = self.verifications.begin(true) else { return };
        self.aside(hip, || {
            let can = reaches(hip, pair);
            if can.contains(&true) {
                self.look_up(hip, pair, can, Purpose::Asked);
            } else {
                self.verifications.mark_read(pair);
            }
        });
    }

    /// What is known of the path between two devices, which is verified if it has to be. None if that cannot be found out now.
    pub(super) fn admit(&self, library: usize, hip: &impl Hip, pair: [u8; 2], purpose: Purpose) -> Option<Known> {
        if let known @ Some(_) = self.verifications.lasting(pair) {
            return known;
        }
        let own = self.libraries.get(library)?;
        if !self.may_ask(hip) || self.is_stopped.load(Relaxed) || !os::has_room() || !self.are_devices(own, hip, pair) {
            return None;
        }
        // A copy does not wait for the verification of another pair, nor for a reset.
        if !self.verifications.is_due(pair) || purpose == Purpose::Ours && own.asking.load(SeqCst) != 0 {
            return None;
        }
        let _acting = self.verifications.begin(purpose == Purpose::Asked)?;
        // Another thread may have done it, or reset a device meanwhile, which takes the memory along that is used here.
        if let known @ Some(_) = self.verifications.lasting(pair) {
            return known;
        }
        if own.resets.load(SeqCst) != 0 {
            return None;
        }
        self.aside(hip, || {
            let can = reaches(hip, pair);
            // Who cannot have access need not be tested.
            let is_wanted = if purpose == Purpose::Asked { can[0] } else { can.contains(&true) };
            if is_wanted {
                self.find_out(library, hip, pair, can, purpose);
            }
        });
        self.verifications.lasting(pair)
    }

    /// Whether HIP may be asked for a verification: a capture might not bear it, nor a pending error that only the program clears.
    fn may_ask(&self, hip: &impl Hip) -> bool {
        let is_empty = || hip.last_error() == Some(Code::SUCCESS) || !hip.keeps_last_error();
        self.admits() && !capture::may_be_under_way() && is_empty()
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
        os::finally(restore, || hip.relaxed(work));
    }

    /// Finds out about a path, keeps and logs it.
    fn find_out(&self, library: usize, hip: &impl Hip, pair: [u8; 2], can: [bool; 2], purpose: Purpose) {
        if self.look_up(hip, pair, can, purpose) {
            return;
        }
        let is_first = self.verifications.mark_tried(pair);
        let devices = pair.map(i32::from);
        let risk = if hip.is_linked(devices) { None } else { hip.machine(devices).and_then(|it| it.risk([0, 1])) };
        if let Some(risk) = risk {
            return self.too_risky(pair, &risk, purpose);
        }
        match self.judge(library, hip, pair) {
            Ok(()) => {
                keep(hip, pair, can, Finding::Right);
                self.passed(pair);
            }
            Err(Setback::Broken(failure)) => {
                // What did not end may have been held up by what only this process does.
                if let Failure::Lost { .. } = failure {
                    keep(hip, pair, can, Finding::Wrong(outcome::story(&failure)));
                }
                self.failed(hip, pair, &failure, purpose);
            }
            Err(Setback::Undecided(why)) if is_first => {
                say(pair, format_args!("could not be verified (HIP): {why}. It is tried again later"));
            }
            Err(Setback::Undecided(_)) => {}
        }
    }

    /// Looks for the verdict that is kept on two devices, once. Whether there is one.
    fn look_up(&self, hip: &impl Hip, pair: [u8; 2], can: [bool; 2], purpose: Purpose) -> bool {
        if self.verifications.was_read(pair) {
            return false;
        }
        self.verifications.mark_read(pair);
        let verdicts = directions(pair, can).map(|[by, of]| hip.verdict(by, of).unwrap_or_default().within_process());
        let verdicts: Vec<Option<Result<(), String>>> = verdicts.collect();
        if let Some(what) = verdicts.iter().flatten().find_map(|verdict| verdict.clone().err()) {
            self.failed(hip, pair, &Failure::Kept(what), purpose);
            return true;
        }
        let has_passed = !verdicts.contains(&None);
        if has_passed {
            self.passed(pair);
        }
        has_passed
    }

    /// Memory of a device, which is taken once.
    fn scratch(&self, library: usize, hip: &impl Hip, device: u8) -> Result<Scratch, Failure> {
        if let Some(scratch) = self.verifications.scratch(library, device) {
            return Ok(scratch);
        }
        if !self.verifications.may_take(device) {
            return Err(Failure::Unknown(Code::OUT_OF_MEMORY));
        }
        let scratch = hip.scratch(device.into())?;
        self.verifications.add_scratch(library, scratch);
        Ok(scratch)
    }

    /// Copies between two devices, and through the host.
    fn judge<H: Hip>(&self, library: usize, hip: &H, pair: [u8; 2]) -> Result<(), Setback> {
        let busy = || Setback::Undecided("the devices are busy".to_owned());
        if !self.verifications.take_back(library, pair, |scratch| verify::has_ended(hip, scratch)) {
            return Err(busy());
        }
        let [a, b] = pair.map(|device| self.scratch(library, hip, device));
        let both @ [a, b] = [a?, b?];
        let controls = both.map(Scratch::through_host);
        for control in &controls {
            if verify::is_busy(hip, control)? {
                return Err(busy());
            }
        }
        match verify::arrives(hip, [&a, &b]) {
            Err(lost @ Failure::Lost { .. }) => {
                controls.iter().try_for_each(|control| verify::returns(hip, control))?;
                Err(Setback::Broken(lost))
            }
            Err(hung @ Failure::Hung { src, .. }) => {
                let is_held_up = verify::is_held_up(hip, src, controls.each_ref(), [&a, &b])?;
                self.verifications.put_aside(library, pair, both);
                Err(if is_held_up { busy() } else { Setback::Broken(hung) })
            }
            result => Ok(result?),
        }
    }

    fn passed(&self, pair: [u8; 2]) {
        self.verifications.set(pair, Known::Passed);
        let [one, other] = pair;
        let what = format_args!("verified: data arrives in both directions (HIP)");
        log::pair_verified(one, other, Verified::Right, what);
    }

    fn failed(&self, hip: &impl Hip, pair: [u8; 2], failure: &Failure, purpose: Purpose) {
        let (known, cause_is) = match failure {
            Failure::Hung { .. } => {
                (Known::Late, "It is verified again later, since the path may only be busy. Else the likely cause")
            }
            _ => (Known::Failed, "Likely cause"),
        };
        if self.verifications.known(pair) == Some(known) {
            return;
        }
        self.verifications.set(pair, known);
        let refuses = self.refuses.load(Relaxed);
        let story = match failure {
            Failure::Kept(what) => {
                format!("an earlier verification failed: {what} (`p2pshim doctor --forget` has it verified again)")
            }
            failure => outcome::story(failure),
        };
        let cause = hip.machine(pair.map(i32::from)).map(|machine| machine.likely_cause([0, 1]));
        let cause = cause.unwrap_or_else(|| machine::SIMULATED_CAUSE.to_owned());
        let reverse = [pair[1], pair[0]];
        let has_access = self.libraries.iter().any(|own| own.is_programs(pair) || own.is_programs(reverse));
        let (verified, consequence) = consequence(purpose, refuses, has_access);
        let [from, to] = outcome::direction(failure).unwrap_or(pair);
        log::pair_verified(from, to, verified, format_args!("with HIP, {story}. {consequence}. {cause_is}: {cause}"));
    }

    /// Says, once, that pairs are not verified in the program's process, where a copy may hang.
    fn too_risky(&self, pair: [u8; 2], risk: &str, purpose: Purpose) {
        self.verifications.set(pair, Known::Risky);
        let consequence = match purpose {
            Purpose::Asked => {
                "The program gets the access that it asks for; with P2PSHIM_DENY for this pair it gets none"
            }
            Purpose::Ours => "p2pshim enables no peer access between them; with P2PSHIM_PROBE=off it would",
        };
        let what =
            format!("not verified (HIP): {risk}, and a test copy that hangs would hang the program. {consequence}");
        let [one, other] = pair;
        if self.verifications.is_risk_logged.swap(true, Relaxed) {
            say(pair, format_args!("{what}"));
        } else {
            log::pair_verified(one, other, Verified::Unknown, format_args!("{what}"));
        }
    }
}

/// What becomes of a pair that is broken, and what follows from it for the program, which may not get access where we refuse it.
fn consequence(purpose: Purpose, refuses: bool, has_access: bool) -> (Verified, &'static str) {
    match (purpose, refuses) {
        _ if has_access => (
            Verified::InUse,
            "The program keeps the peer access that it has. What its copies and kernels move between them may be wrong, and p2pshim \
             does not stage it",
        ),
        (Purpose::Asked, true) => (
            Verified::Avoided,
            "The program asks for peer access between them and is told that there is none. Copies that it makes between them all \
             the same take this path, and p2pshim does not stage them. With P2PSHIM_BROKEN=warn it would get access, and wrong \
             data where its kernels use it",
        ),
        (Purpose::Asked, false) => (
            Verified::InUse,
            "The program gets the peer access that it asks for. What its copies and kernels move between them may be wrong, and \
             p2pshim does not stage it",
        ),
        (Purpose::Ours, true) => (
            Verified::InUse,
            "p2pshim enables no peer access between them, and a program that asks for it is told that there is none. The program's \
             copies between them take this path all the same, and p2pshim does not stage them",
        ),
        (Purpose::Ours, false) => (
            Verified::InUse,
            "p2pshim enables no peer access between them. The program's copies between them take this path all the same, and \
             p2pshim does not stage them",
        ),
    }
}

/// Which of two devices can access the other's memory.
fn reaches(hip: &impl Hip, [one, other]: [u8; 2]) -> [bool; 2] {
    let (one, other) = (one.into(), other.into());
    [hip.can_access(one, other), hip.can_access(other, one)]
}

/// The directions that there are: the device that accesses, and the one whose memory it is.
fn directions([one, other]: [u8; 2], [forth, back]: [bool; 2]) -> impl Iterator<Item = [i32; 2]> {
    let (one, other) = (one.into(), other.into());
    [(forth, [one, other]), (back, [other, one])].into_iter().filter(|&(can, _)| can).map(|(_, pair)| pair)
}

/// Keeps how copies came out, for other processes too.
fn keep(hip: &impl Hip, pair: [u8; 2], can: [bool; 2], finding: Finding) {
    directions(pair, can).for_each(|[by, of]| hip.keep_verdict(by, of, Verdict::of(Part::Copies, finding.clone())));
}

fn say([one, other]: [u8; 2], what: std::fmt::Arguments<'_>) {
    log::pair_info(one, other, what);
}
