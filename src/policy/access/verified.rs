//! The verdicts on paths between devices, as the registry keeps them.

use super::registry::{Link, Ours, Registry, Verification, ordered};
use super::{Kind, Place};
use crate::config;
use crate::record::log::Once;

impl Registry {
    /// Whether the path between two devices is broken, or is taken for it until it is judged again.
    pub(crate) fn is_broken(&self, device: i32, peer: i32) -> bool {
        let is = |verification| self.is_verified_as(verification, device, peer);
        is(Verification::Broken) || is(Verification::Late)
    }

    /// Whether the path between two devices is to be judged again.
    pub(super) fn is_late(&self, device: impl Into<i32>, peer: impl Into<i32>) -> bool {
        let (device, peer) = (device.into(), peer.into());
        self.is_verified_as(Verification::Late, device, peer)
            && !self.is_verified_as(Verification::Broken, device, peer)
    }

    /// Whether this was found out about the path between two devices, by whichever kind of memory.
    fn is_verified_as(&self, verification: Verification, device: i32, peer: i32) -> bool {
        let (Ok(one), Ok(other)) = (u8::try_from(device), u8::try_from(peer)) else { return false };
        [Kind::Plain, Kind::Pool].into_iter().any(|kind| self.verification(kind, one, other) == Some(verification))
    }

    /// Whether a verdict that is kept, as far as they were read, says that data does not arrive.
    pub(super) fn has_failed_earlier(&self, src: Place, dst: Place) -> bool {
        let [src, dst] = [src, dst].map(|place| i32::from(place.device));
        let kept = [[src, dst], [dst, src]].map(|pair| self.kept.get(&pair)?.as_ref()?.within_process());
        kept.iter().flatten().any(Result::is_err)
    }

    /// Whether any pair is denied, or broken.
    pub(super) fn is_any_blocked(&self) -> bool {
        let is_broken = |known: &Verification| matches!(known, Verification::Broken | Verification::Late);
        self.access == config::Access::Off || !self.denied.is_empty() || self.verifications.values().any(is_broken)
    }

    pub(crate) fn verification(&self, kind: Kind, one: u8, other: u8) -> Option<Verification> {
        let (low, high) = ordered(one, other);
        self.verifications.get(&(kind, low, high)).copied()
    }

    /// Whether it is known that the path between two devices, if there is one, is right.
    pub(super) fn is_verified(&self, device: i32, peer: i32) -> bool {
        use Verification::{NoPath, Passed, Slower};
        let [Ok(device), Ok(peer)] = [device, peer].map(u8::try_from) else { return false };
        matches!(self.verification(Kind::Plain, device, peer), Some(Passed | NoPath | Slower))
    }

    pub(crate) fn set_verification(&mut self, kind: Kind, one: u8, other: u8, verification: Verification) {
        let (low, high) = ordered(one, other);
        self.verifications.insert((kind, low, high), verification);
    }

    /// Data arrives: that a copy was late, of whichever kind of memory, says nothing any more.
    pub(super) fn forgive(&mut self, one: u8, other: u8) {
        let pair = ordered(one, other);
        self.verifications.retain(|&(_, low, high), known| (low, high) != pair || *known != Verification::Late);
    }

    pub(super) fn on_process_restored(&mut self) {
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
