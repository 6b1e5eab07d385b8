//! The state of two devices, for those who ask.

use super::registry::{Ours, Registry, Verification};
use super::{Access, Kind, Path, Place};

/// The state of one device's access to the memory of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PairState {
    /// Whether the program has enabled it, between any of their contexts.
    pub(crate) by_program: bool,
    pub(crate) by_shim: bool,
    pub(crate) is_denied: bool,
    pub(crate) verification: Option<Verification>,
    /// The outcome for memory of pools.
    pub(crate) pool_verification: Option<Verification>,
    /// The path of copies between memory of their contexts, as things stand.
    pub(crate) path: Path,
}

impl Access {
    /// Returns the state of the access of a device to the memory of another. Asks no driver.
    pub(crate) fn pair_state(&self, device: u8, peer: u8) -> PairState {
        self.lock().pair_state(device, peer)
    }
}

impl Registry {
    pub(crate) fn pair_state(&self, device: u8, peer: u8) -> PairState {
        PairState {
            by_program: self.is_any_enabled(device, peer, |program, _| program),
            by_shim: self.is_any_enabled(device, peer, |_, ours| ours == Ours::Held),
            is_denied: self.is_denied(device.into(), peer.into()),
            verification: self.verification(Kind::Plain, device, peer),
            pool_verification: self.verification(Kind::Pool, device, peer),
            path: self.path_between(device, peer),
        }
    }

    pub(crate) fn is_any_the_programs(&self, [one, other]: [u8; 2]) -> bool {
        let is_any = |device, peer| self.is_any_enabled(device, peer, |program, _| program);
        is_any(one, other) || is_any(other, one)
    }

    /// Whether something holds of any link from a context of one device to one of another.
    fn is_any_enabled(&self, device: u8, peer: u8, holds: impl Fn(bool, Ours) -> bool) -> bool {
        let is_on =
            |number, device: u8| self.owner(number).is_some_and(|owner| owner.context_on(device.into()).is_some());
        self.links().any(|link| is_on(link.from, device) && is_on(link.to, peer) && holds(link.program, link.ours))
    }

    /// As [`Registry::next_step`] decides, less what it does about it.
    fn path_between(&self, one: u8, other: u8) -> Path {
        if one == other {
            return Path::SameDevice;
        }
        let place = |device| Place::new(Kind::Plain, device, 0);
        let is_enabled = |program, ours| program || ours == Ours::Held;
        if self.is_any_enabled(one, other, is_enabled) || self.is_any_enabled(other, one, is_enabled) {
            return self.blocked(place(one), place(other)).map_or(Path::Direct, Path::Staged);
        }
        if let Some(why) = self.never(Kind::Plain, self.verification(Kind::Plain, one, other), place(one), place(other))
        {
            return Path::Staged(why);
        }
        Path::Staged(self.attempts(one, other).why())
    }
}
