//! What the program sees of peer access: what it asked for itself, and nothing of what is hidden.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::links::{DEVICES, Link};
use super::verifications::Purpose;
use super::{Hip, Library, Peers};
use crate::api::abi::Code;
use crate::model::{Hidden, Path};
use crate::policy::access::Verification;

/// What is done about a function that enables or disables access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The real function gets the call as it came.
    Forward,
    /// It gets it with an ordinal that is no device, so that it returns what it returns for a device that cannot be
    /// reached.
    Unreachable,
    /// In its place one that succeeds and does nothing: the access is there.
    Succeed,
}

/// Such a function, which is under way: it ends with [`Peers::asked`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) ask: Ask,
    /// Whose access it is, and to whose memory, if that is known.
    link: Option<[u8; 2]>,
}

impl Asked {
    /// Nothing is known of it, nor done about it.
    pub(crate) const FORWARD: Self = Self { ask: Ask::Forward, link: None };
}

/// What is known of one device's access to the memory of another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairState {
    /// That of copies between the two.
    pub(crate) path: Path,
    pub(crate) by_shim: bool,
    pub(crate) by_program: bool,
    pub(crate) verification: Option<Verification>,
}

impl Peers {
    /// What any copy of the runtime knows of one device's access to the memory of another.
    pub(crate) fn pair_state(&self, device: u8, peer: u8) -> Option<PairState> {
        let known = |library: &Library| {
            Some(PairState {
                path: self.path(library, [device, peer])?,
                by_shim: library.links.is_ours(device, peer),
                by_program: library.is_programs([device, peer]),
                verification: self.verification([device, peer]),
            })
        };
        self.libraries.iter().filter(|library| library.devices().is_some()).find_map(known)
    }

    /// Whether zeros take the place of what a successful query returned about a device's access to another.
    pub(crate) fn is_hidden(&self, device: i32, peer: i32, attribute: Option<i32>) -> bool {
        /// `hipDevP2PAttrPerformanceRank`, which compares links and says nothing of access.
        const PERFORMANCE_RANK: i32 = 0;
        let is_refused = || match [device, peer].map(u8::try_from) {
            [Ok(device), Ok(peer)] => self.is_refused([device, peer]),
            _ => false,
        };
        attribute != Some(PERFORMANCE_RANK) && (self.is_denied(device, peer) || is_refused())
    }

    /// Why a device's access to another is hidden, if it is.
    pub(crate) fn why_hidden(&self, device: i32, peer: i32) -> Option<Hidden> {
        if self.is_denied(device, peer) {
            let is_off = self.denied.iter().all(|denied| denied.load(Relaxed) == u64::MAX);
            return Some(if is_off { Hidden::Off } else { Hidden::Denied });
        }
        self.is_hidden(device, peer, None).then_some(Hidden::Broken)
    }

    /// Whether anything is hidden.
    fn hides(&self) -> bool {
        let is_any_denied = self.denied.iter().any(|peers| peers.load(Relaxed) != 0);
        is_any_denied || self.refuses.load(Relaxed) && self.verifications.is_any_broken()
    }

    /// Decides about a call that enables access from the current device; ends with [`Peers::asked`].
    pub(crate) fn enabling(&self, library: usize, hip: &impl Hip, peer: i32, flags: u32) -> Asked {
        self.asking(library, hip, peer, |own, link @ [device, peer]| {
            // Before it checks anything else HIP refuses flags.
            if flags == 0 && own.links.take(device, peer) {
                return Ask::Succeed;
            }
            if flags == 0 && !own.is_programs(link) {
                self.admit(library, hip, link, Purpose::Asked);
            }
            self.unless_refused(own, link)
        })
    }

    /// Decides about a call that disables access from the current device; ends with [`Peers::asked`].
    pub(crate) fn disabling(&self, library: usize, hip: &impl Hip, peer: i32) -> Asked {
        self.asking(library, hip, peer, |own, link @ [device, peer]| {
            // What the program never enabled is disabled first, so that HIP returns what it would without us.
            if let Some(changing) = own.links.begin_disabling(device, peer) {
                hip.disable(peer.into());
                changing.end(Link::Idle);
            }
            self.unless_refused(own, link)
        })
    }

    /// A pair whose path is broken looks like devices without a path, but for what the program has already.
    fn unless_refused(&self, own: &Library, link: [u8; 2]) -> Ask {
        if self.is_refused(link) && !own.is_programs(link) { Ask::Unreachable } else { Ask::Forward }
    }

    fn asking(
        &self,
        library: usize,
        hip: &impl Hip,
        peer: i32,
        decide: impl FnOnce(&Library, [u8; 2]) -> Ask,
    ) -> Asked {
        let Some(own) = self.libraries.get(library) else { return Asked::FORWARD };
        own.asking.fetch_add(1, SeqCst);
        if self.is_left.load(Relaxed) && !self.admits() && !self.hides() {
            return Asked::FORWARD;
        }
        let Some(device) = hip.current_device() else { return Asked::FORWARD };
        if self.is_denied(device, peer) {
            return Asked { ask: Ask::Unreachable, link: None };
        }
        match [device, peer].map(u8::try_from) {
            [Ok(device), Ok(peer)] => {
                let link = [device, peer];
                Asked { ask: decide(own, link), link: Some(link) }
            }
            _ => Asked::FORWARD,
        }
    }

    /// Such a call has returned. `enables` is whether there is access if it succeeds.
    pub(crate) fn asked(&self, library: usize, asked: Asked, enables: bool, ret: Code) {
        let Some(own) = self.libraries.get(library) else { return };
        if let Some(link) = asked.link
            && ret == Code::SUCCESS
        {
            own.set_programs(link, enables);
        }
        is_over(&own.asking);
    }

    /// A reset has returned.
    pub(crate) fn has_reset(&self, library: usize) {
        if let Some(own) = self.libraries.get(library) {
            is_over(&own.resets);
            is_over(&own.asking);
        }
    }

    /// Disables what was enabled from and to the current device, which is about to be reset: whether a reset does so itself is
    /// another matter in each release. Ends with [`Peers::has_reset`].
    pub(crate) fn resetting(&self, library: usize, hip: &impl Hip) {
        let Some(own) = self.libraries.get(library) else { return };
        own.asking.fetch_add(1, SeqCst);
        own.resets.fetch_add(1, SeqCst);
        let Some(current) = hip.current_device() else { return };
        let Ok(device) = u8::try_from(current) else { return };
        // What is under way with them ends first.
        let _acting = self.verifications.begin(true);
        self.verifications.reset_scratch(library, device);
        let is_empty = hip.last_error() == Some(Code::SUCCESS);
        for other in 0..DEVICES as u8 {
            for (from, to) in [(device, other), (other, device)] {
                let Some(link) = own.links.begin_disabling(from, to) else { continue };
                if hip.make_current(from.into()) == Code::SUCCESS {
                    hip.disable(to.into());
                }
                link.end(Link::Idle);
            }
            own.links.invalidate(device, other);
        }
        hip.make_current(current);
        // Somebody whom we do not see may have disabled it: then disabling it fails, and the program must not find that.
        if is_empty && hip.last_error() != Some(Code::SUCCESS) {
            hip.clear_last_error();
        }
    }
}

/// One call less is under way of those that are counted.
fn is_over(calls: &AtomicUsize) {
    let _ = calls.fetch_update(SeqCst, SeqCst, |calls| calls.checked_sub(1));
}
