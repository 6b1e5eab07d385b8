//! The program's view of peer access: it sees the access that it asked for itself, and none that is hidden.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::links::{DEVICES, pair};
use super::{Hip, Library, Peers};
use crate::api::abi::Code;
use crate::model::Hidden;
use crate::policy::access::PairState;
use crate::policy::access::judge::{PATIENCE, Purpose};

/// The call in place of a function that enables or disables access.
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
    /// The device that accesses, and the one whose memory it is, if that is known.
    link: Option<[u8; 2]>,
}

impl Asked {
    /// Nothing is known of it, nor done about it.
    pub(crate) const FORWARD: Self = Self { ask: Ask::Forward, link: None };
}

impl Peers {
    /// The state, by any copy of the runtime, of one device's access to the memory of another.
    pub(crate) fn pair_state(&self, device: u8, peer: u8) -> Option<PairState> {
        let known = |library: &Library| {
            Some(PairState {
                path: self.path(library, [device, peer])?,
                by_shim: library.links.is_ours([device, peer]),
                by_program: library.program.has([device, peer]),
                is_denied: self.is_denied(device.into(), peer.into()),
                verification: self.verification([device, peer]),
                pool_verification: None,
            })
        };
        self.libraries.iter().filter(|library| library.devices().is_some()).find_map(known)
    }

    /// Whether zeros take the place of what a successful query returned about a device's access to another.
    pub(crate) fn is_hidden(&self, device: i32, peer: i32, attribute: Option<i32>) -> bool {
        /// `hipDevP2PAttrPerformanceRank`, which compares links and says nothing of access.
        const PERFORMANCE_RANK: i32 = 0;
        let is_refused = || pair(device, peer).is_some_and(|pair| self.is_refused(pair));
        attribute != Some(PERFORMANCE_RANK) && (self.is_denied(device, peer) || is_refused())
    }

    /// Why a device's access to another is hidden, if it is.
    pub(crate) fn why_hidden(&self, device: i32, peer: i32) -> Option<Hidden> {
        if self.is_denied(device, peer) {
            return Some(if self.denied.are_all_set() { Hidden::Off } else { Hidden::Denied });
        }
        self.is_hidden(device, peer, None).then_some(Hidden::Broken)
    }

    /// Decides about a call that enables access from the current device; ends with [`Peers::asked`].
    pub(crate) fn enabling(&self, library: usize, hip: &impl Hip, peer: i32, flags: u32) -> Asked {
        self.asking(library, hip, peer, |own, link| {
            // Before it checks anything else HIP refuses flags.
            if flags == 0 && own.links.take(link) {
                return Ask::Succeed;
            }
            if flags == 0 && !own.program.has(link) {
                self.admit(library, hip, link, Purpose::Admit);
            }
            self.unless_refused(own, link)
        })
    }

    /// Decides about a call that disables access from the current device; ends with [`Peers::asked`].
    pub(crate) fn disabling(&self, library: usize, hip: &impl Hip, peer: i32) -> Asked {
        self.asking(library, hip, peer, |own, link| {
            // What the program never enabled is disabled first, so that HIP returns what it would without us.
            if let Some(_changing) = own.links.begin_disabling(link) {
                hip.disable(peer);
            }
            self.unless_refused(own, link)
        })
    }

    /// A pair whose path is broken looks like devices without a path, but for what the program has already.
    fn unless_refused(&self, own: &Library, link: [u8; 2]) -> Ask {
        if self.is_refused(link) && !own.program.has(link) { Ask::Unreachable } else { Ask::Forward }
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
        if self.is_left.load(Relaxed) && !self.judge.admits() && !self.judge.blocks() {
            return Asked::FORWARD;
        }
        let Some(device) = hip.current_device() else { return Asked::FORWARD };
        if self.is_denied(device, peer) {
            return Asked { ask: Ask::Unreachable, link: None };
        }
        pair(device, peer).map_or(Asked::FORWARD, |link| Asked { ask: decide(own, link), link: Some(link) })
    }

    /// Such a call has returned. `enables` is whether there is access if it succeeds.
    pub(crate) fn asked(&self, library: usize, asked: Asked, enables: bool, ret: Code) {
        let Some(own) = self.libraries.get(library) else { return };
        if let Some(link) = asked.link
            && ret == Code::SUCCESS
        {
            own.program.set(link, enables);
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
        let _acting = self.judge.begin([device; 2], PATIENCE);
        self.judge.lock().reset_scratch((device.into(), library as u64));
        let is_empty = hip.last_error() == Some(Code::SUCCESS);
        for other in 0..DEVICES as u8 {
            for (from, to) in [(device, other), (other, device)] {
                let Some(_changing) = own.links.begin_disabling([from, to]) else { continue };
                if hip.make_current(from.into()) == Code::SUCCESS {
                    hip.disable(to.into());
                }
            }
            own.decided.set_both([device, other], false);
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
