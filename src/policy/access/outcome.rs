//! The outcome of a verification, kept and logged.

use std::sync::atomic::Ordering::Relaxed;

use p2pshim_host::machine;
use p2pshim_host::text::Elapsed;

use super::registry::{Verification, ordered};
use super::verifier::{PeerVerifier, Plan, Purpose};
use super::verify::{self, Failure};
use super::{Kind, Path, Why};
use crate::api::abi::Code;
use crate::api::{Layer, codes};
use crate::policy::driver::VerifyBackend;
use crate::record::log::{self, Once, Verified};

impl PeerVerifier {
    pub(super) fn of_hip(&self) -> &'static str {
        if self.is_hip() { " (HIP)" } else { "" }
    }

    /// Keeps and logs that a pair can be trusted.
    pub(crate) fn passed(&self, plan: &Plan) {
        let Plan { src, dst, kind, .. } = plan;
        {
            let mut registry = self.lock();
            registry.forgive(src.device, dst.device);
            registry.set_verification(*kind, src.device, dst.device, Verification::Passed);
            self.blocks.store(registry.is_any_blocked(), Relaxed);
        }
        let of = if *kind == Kind::Pool { "memory of pools: " } else { "" };
        let what = format_args!("{of}verified: data arrives in both directions{}", self.of_hip());
        plan.say_verified(Verified::Right, what);
    }

    /// Keeps and logs that a pair cannot be trusted, or that nothing is known of it.
    pub(crate) fn failed(&self, driver: &impl VerifyBackend, plan: &Plan, failure: &Failure) -> Path {
        let (verification, why) = match failure {
            Failure::Unknown(code) => return self.unverified(plan, *code),
            Failure::Slower { .. } => (Verification::Slower, Why::Slower),
            Failure::Hung { .. } => (Verification::Late, Why::Broken),
            Failure::Lost { .. } | Failure::Kept(_) => (Verification::Broken, Why::Broken),
        };
        let was_late = {
            let mut registry = self.lock();
            let was_late = registry.is_late(plan.src.device, plan.dst.device);
            registry.set_verification(plan.kind, plan.src.device, plan.dst.device, verification);
            self.blocks.store(registry.is_any_blocked(), Relaxed);
            was_late
        };
        // Other processes may keep the path busy, so it is judged again. The first time says enough.
        if verification == Verification::Late {
            self.put_off(plan, why);
            if was_late {
                return Path::Staged(why);
            }
        }
        let verified = match (verification, plan.purpose) {
            (Verification::Slower, _) => Verified::Slower,
            (_, Purpose::Check | Purpose::Again) => Verified::InUse,
            // HIP's copies take the path in any case.
            (_, Purpose::Enable) if self.is_hip() => Verified::InUse,
            _ if self.gives_what_is_broken(plan) => Verified::InUse,
            _ => Verified::Avoided,
        };
        let cause = || likely_cause(driver, plan.devices());
        let advice = match verification {
            Verification::Slower => String::new(),
            Verification::Late => format!(
                ". p2pshim verifies it again later, since the path may only be busy. If it is not, the likely cause: \
                 {}",
                cause()
            ),
            _ => format!(". Likely cause: {}", cause()),
        };
        let with = if self.is_hip() { "with HIP, " } else { "" };
        let remedy = if self.is_hip() { "" } else { remedy(plan, failure, self.lock().refuses_what_is_broken()) };
        let [from, to] = direction(failure).unwrap_or(plan.pair());
        log::pair_verified(
            from,
            to,
            verified,
            format_args!("{with}{}. {}{advice}{remedy}", story(failure), self.consequence(plan, Some(verification))),
        );
        Path::Staged(why)
    }

    /// Whether the program gets access that it asks for, though the path is broken.
    fn gives_what_is_broken(&self, plan: &Plan) -> bool {
        plan.purpose == Purpose::Admit && !self.lock().is_refused(plan.src.device.into(), plan.dst.device.into())
    }

    /// Keeps and logs that a driver's error has kept a pair from being verified.
    pub(super) fn unverified(&self, plan: &Plan, code: Code) -> Path {
        let name =
            codes::name(if self.is_hip() { Layer::Hip } else { Layer::Driver }, code).unwrap_or("an unknown code");
        let who = if self.is_hip() { "HIP" } else { "the driver" };
        let what = format!("could not be verified{}: {who} returned {name} ({})", self.of_hip(), code.0);
        let why = self.put_off(plan, Why::Unverified);
        if matches!(plan.purpose, Purpose::Admit | Purpose::Again) || self.is_hip() {
            plan.say(format_args!("{what}"));
            return Path::Staged(why);
        }
        if Once::Unverified(ordered(plan.src.device, plan.dst.device)).mark_logged() {
            plan.say_verified(
                Verified::Unknown,
                format_args!(
                    "{what}. {}. Verification is tried again when twice as much has been copied; P2PSHIM_VERIFY=off would use the \
                     pair without verification",
                    self.consequence(plan, None)
                ),
            );
        }
        Path::Staged(why)
    }

    /// Keeps, and logs once, that the driver lacks what it takes to verify pairs: nothing is enabled for any.
    pub(super) fn unverifiable(&self, plan: &Plan) -> Path {
        if matches!(plan.purpose, Purpose::Admit | Purpose::Again) {
            plan.say(format_args!("could not be verified: the driver has no memory with access rights of its own"));
            return Path::Staged(Why::Unverified);
        }
        let was_known = std::mem::replace(&mut self.lock().cannot_verify, true);
        if !was_known {
            plan.say_verified(Verified::Unknown,
                format_args!(
                    "could not be verified, nor can any other pair: the driver has no memory with access rights of its own \
                     (cuMemCreate, cuMemMap). The shim enables no peer access for this reason; \
                     P2PSHIM_VERIFY=off would trust all pairs untested"
                ),
            );
        }
        Path::Staged(Why::Unverified)
    }

    /// Says, once, that pairs are not verified in the program's process, where a copy may hang.
    pub(super) fn too_risky(&self, plan: &Plan, risk: &str) -> Path {
        let [before, remedy] = match self.is_hip() {
            true => [" (HIP)", ""],
            false => [
                " before it is used",
                ". `p2pshim doctor` or `p2pshim run` tests it in a process of its own; the verdict holds until the next boot",
            ],
        };
        let what = format!(
            "not verified{before}: {risk}, and a test copy that hangs would hang the program. {}{remedy}",
            self.consequence(plan, None)
        );
        if self.is_hip() {
            self.lock().set_verification(plan.kind, plan.src.device, plan.dst.device, Verification::Risky);
        }
        match Once::Risky.mark_logged() {
            true => plan.say_verified(Verified::Unknown, format_args!("{what}")),
            false => plan.say(format_args!("{what}")),
        }
        Path::Staged(self.put_off(plan, Why::Unverified))
    }

    /// Says, once, that there is no verdict where there should be one.
    pub(super) fn misses_verdict(&self) {
        if Once::NoVerdict.mark_logged() {
            log::warnings(&[
                "P2PSHIM_VERIFY=full: there is no verdict on these GPUs since the machine was booted, so pairs \
                             are verified as with quick. `p2pshim doctor` and `p2pshim run --verify full` write verdicts"
                    .to_owned(),
            ]);
        }
    }

    /// A pair is tried again when it has copied twice as much; for a program that asks, when it asks again; and where data was wrong,
    /// with what is wrong next.
    pub(super) fn put_off(&self, plan: &Plan, why: Why) -> Why {
        if !matches!(plan.purpose, Purpose::Admit | Purpose::Again) {
            self.lock().attempts_mut(plan.src, plan.dst).put_off(why);
        }
        why
    }

    /// The consequence for the program. HIP maps memory for copies whatever is enabled, and p2pshim does not stage them.
    fn consequence(&self, plan: &Plan, verification: Option<Verification>) -> String {
        let has_failed = matches!(verification, Some(Verification::Broken | Verification::Late));
        let refuses = self.lock().refuses_what_is_broken();
        let what = match (plan.purpose, self.is_hip()) {
            (Purpose::Enable, true) if has_failed => {
                let more = if refuses { ", and a program that asks for it is told that there is none" } else { "" };
                return format!(
                    "p2pshim enables no peer access between them{more}. The program's copies between them take this path all the same, and \
                     p2pshim does not stage them"
                );
            }
            (Purpose::Admit, true) if has_failed && refuses => {
                "The program asks for peer access between them and is told that there is none. Copies that it makes between them all \
                 the same take this path, and p2pshim does not stage them. With P2PSHIM_BROKEN=warn it would get access, and wrong \
                 data where its kernels use it"
            }
            (purpose, true) if has_failed => {
                let has = if purpose == Purpose::Admit {
                    "gets the peer access that it asks for"
                } else {
                    "keeps the peer access that it has"
                };
                return format!(
                    "The program {has}. Data that its copies and kernels move between them may be wrong, and p2pshim does not stage it"
                );
            }
            (Purpose::Admit, true) => {
                "The program gets the access that it asks for; with P2PSHIM_DENY for this pair it gets none"
            }
            (_, true) => "p2pshim enables no peer access between them; with P2PSHIM_VERIFY=off it would",
            (Purpose::Check | Purpose::Again, _) if has_failed => {
                "There is peer access between them, so p2pshim takes copies through the host from now on, but not copies of graphs and \
                 accesses of kernels"
            }
            (Purpose::Check, _) => {
                "The program has enabled peer access between them itself, so its copies still use it. To send them through the \
                 host, run it with P2PSHIM_ACCESS=off, or with P2PSHIM_DENY for this pair"
            }
            (Purpose::Admit, _) if has_failed && self.gives_what_is_broken(plan) => {
                "The program gets the peer access that it asks for, and p2pshim takes its copies through the host, but not copies of \
                 graphs and accesses of kernels"
            }
            (Purpose::Admit, _) if has_failed => {
                "The program asks for peer access between them and is told that there is none; its copies go through the host"
            }
            (Purpose::Admit, _) => {
                "The program gets the access that it asks for; with P2PSHIM_DENY for this pair its copies would go through the host"
            }
            (Purpose::Again, _) => {
                "Contexts that have peer access between them keep it, so copies still use it. To send them through the host, run the program \
                 with P2PSHIM_DENY for this pair"
            }
            (Purpose::Enable, _) => "Copies between them go through the host",
        };
        what.to_owned()
    }
}

/// The advice about a path that loses data. A program may have asked whether there is a path before anything was known about it.
fn remedy(plan: &Plan, failure: &Failure, refuses: bool) -> &'static str {
    match (plan.purpose, failure) {
        (Purpose::Admit, Failure::Lost { .. }) if refuses => {
            ". Run `p2pshim doctor` once after each boot: p2pshim then knows this when a program first asks"
        }
        (_, Failure::Slower { .. }) => "",
        _ => ". `p2pshim doctor` shows more",
    }
}

/// From which device to which it went wrong, if that is known.
fn direction(failure: &Failure) -> Option<[u8; 2]> {
    match *failure {
        Failure::Lost { src, dst, .. } | Failure::Hung { src, dst } | Failure::Slower { src, dst, .. } => {
            Some([u8::try_from(src).ok()?, u8::try_from(dst).ok()?])
        }
        Failure::Kept(_) | Failure::Unknown(_) => None,
    }
}

pub(super) fn story(failure: &Failure) -> String {
    match failure {
        Failure::Lost { wrong, bytes, src, dst } => {
            // Of bytes that do not arrive one in 256 is right by chance: where more are right, some have arrived.
            let how = if wrong * 64 < bytes * 63 { "arrives wrong" } else { "does not arrive" };
            format!("data {how}: {wrong} of {bytes} bytes copied from device {src} to device {dst} were wrong")
        }
        Failure::Hung { src, dst } => format!(
            "a copy from device {src} to device {dst} did not complete within {:?}. The program may hang when it synchronizes \
             a whole device or exits; if it does, run it with P2PSHIM_DENY='{src}-{dst}'",
            verify::TIME_OUT
        ),
        Failure::Slower { direct, staged, src, dst } => format!(
            "direct copies from device {src} to device {dst} are slower than copies through the host ({}, {})",
            Elapsed(*direct),
            Elapsed(*staged)
        ),
        Failure::Kept(what) => what.clone(),
        Failure::Unknown(code) => format!("the driver returned {}", code.0),
    }
}

fn likely_cause(driver: &impl VerifyBackend, devices: [i32; 2]) -> String {
    let cause = driver.machine(devices).map(|machine| machine.likely_cause([0, 1]));
    cause.unwrap_or_else(|| machine::SIMULATED_CAUSE.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn story_durations_are_shown_as_in_the_log() {
        let [direct, staged] = [20_258_044, 43_772].map(Duration::from_nanos);
        let said = story(&Failure::Slower { direct, staged, src: 0, dst: 1 });
        assert!(said.ends_with("(20.3ms, 43.8us)"), "{said}");
    }
}
