//! The program's view of peer access: it sees the access that it asked for itself, and none that is hidden.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::{Hip, Peers, pair};
use crate::api::abi::Code;
use crate::config;
use crate::model::Hidden;
use crate::objects::memory::Kind;
use crate::os;
use crate::policy::access::PairState;
use crate::policy::access::registry::{AllocationOwner, Ours, ordered};
use crate::policy::access::verifier::{PATIENCE, Purpose};

/// The call in place of a function that enables or disables access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessCall {
    Forward,
    /// It gets it with an ordinal that is no device, so that it returns what it returns for a device that cannot be
    /// reached.
    Unreachable,
    /// In its place one that succeeds and does nothing: the access is there.
    Succeed,
}

/// Such a function, which is under way: it ends with [`Peers::asked`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingAccess {
    pub(crate) ask: AccessCall,
    /// The device that accesses, and the one whose memory it is, if that is known.
    link: Option<[u8; 2]>,
}

impl PendingAccess {
    pub(crate) const FORWARD: Self = Self { ask: AccessCall::Forward, link: None };
}

impl Peers {
    /// The state of one device's access to the memory of another, if anything is known of it.
    pub(crate) fn pair_state(&self, device: u8, peer: u8) -> Option<PairState> {
        let is_decided = self.libraries.iter().any(|library| library.cells.decided(device, peer).is_some());
        let state = {
            let registry = self.verifier.lock();
            let is_known = is_decided
                || registry.verification(Kind::Plain, device, peer).is_some()
                || registry.asked.contains_key(&ordered(device, peer));
            is_known.then(|| registry.pair_state(device, peer))
        };
        Some(PairState { path: self.path([device, peer]), ..state? })
    }

    /// Whether zeros take the place of what a successful query returned about a device's access to another.
    pub(crate) fn is_hidden(&self, device: i32, peer: i32, attribute: Option<i32>) -> bool {
        /// `hipDevP2PAttrPerformanceRank`, which compares links and says nothing of access.
        const PERFORMANCE_RANK: i32 = 0;
        attribute != Some(PERFORMANCE_RANK) && self.why_hidden(device, peer).is_some()
    }

    pub(crate) fn why_hidden(&self, device: i32, peer: i32) -> Option<Hidden> {
        self.verifier.lock().why_hidden(device, peer)
    }

    /// Decides about a call that enables access from the current device; ends with [`Peers::asked`].
    pub(crate) fn enabling(&self, library: usize, hip: &impl Hip, peer: i32, flags: u32) -> PendingAccess {
        self.asking(hip, peer, |link| {
            // Before it checks anything else HIP refuses flags.
            if flags == 0 && self.take(library, link, Ours::No) {
                return AccessCall::Succeed;
            }
            if flags == 0 && !self.is_the_programs(library, link) {
                self.admit(library, hip, link, Purpose::Admit);
            }
            self.unless_refused(library, link)
        })
    }

    /// Decides about a call that disables access from the current device; ends with [`Peers::asked`].
    pub(crate) fn disabling(&self, library: usize, hip: &impl Hip, peer: i32) -> PendingAccess {
        self.asking(hip, peer, |link| {
            // Access that the program never enabled is disabled first, so that HIP returns what it would without us.
            self.disable(library, link, || _ = hip.disable(peer));
            self.unless_refused(library, link)
        })
    }

    /// A pair whose path is broken looks like devices without a path, but for what the program has already.
    fn unless_refused(&self, library: usize, link @ [from, to]: [u8; 2]) -> AccessCall {
        let is_refused = self.verifier.lock().is_refused(from.into(), to.into());
        if is_refused && !self.is_the_programs(library, link) { AccessCall::Unreachable } else { AccessCall::Forward }
    }

    fn is_the_programs(&self, library: usize, link: [u8; 2]) -> bool {
        let numbers = self.numbers(library, link);
        numbers.is_some_and(|(from, to)| self.verifier.lock().link(from, to).is_some_and(|link| link.program))
    }

    /// Lets another thread finish with a link, which may have much memory to map; not for ever, since it may have been ended. If the link
    /// is ours then, it is no more.
    pub(super) fn take(&self, library: usize, link: [u8; 2], now: Ours) -> bool {
        const MOST: Duration = Duration::from_secs(10);
        let Some((from, to)) = self.numbers(library, link) else { return false };
        let is_changing = || self.verifier.lock().link(from, to).is_some_and(|link| link.ours == Ours::Intended);
        os::until(MOST, || !is_changing());
        let mut registry = self.verifier.lock();
        let is_ours = registry.link(from, to).is_some_and(|link| link.ours == Ours::Held);
        if is_ours {
            registry.link_mut(from, to).ours = now;
        }
        is_ours
    }

    fn disable(&self, library: usize, link: [u8; 2], disable: impl FnOnce()) {
        if self.take(library, link, Ours::Intended)
            && let Some((from, to)) = self.numbers(library, link)
        {
            os::finally(|| self.verifier.lock().link_mut(from, to).ours = Ours::No, disable);
        }
    }

    fn asking(&self, hip: &impl Hip, peer: i32, decide: impl FnOnce([u8; 2]) -> AccessCall) -> PendingAccess {
        self.asking.fetch_add(1, SeqCst);
        let is_left = self.verifier.lock().access != config::Access::Auto;
        if is_left && !self.verifier.admits() && !self.verifier.blocks() {
            return PendingAccess::FORWARD;
        }
        let Some(device) = hip.current_device() else { return PendingAccess::FORWARD };
        let is_denied = self.verifier.lock().is_denied(device, peer);
        if is_denied {
            return PendingAccess { ask: AccessCall::Unreachable, link: None };
        }
        pair(device, peer).map_or(PendingAccess::FORWARD, |link| PendingAccess { ask: decide(link), link: Some(link) })
    }

    /// Such a call has returned. `enables` is whether there is access if it succeeds.
    pub(crate) fn asked(&self, library: usize, asked: PendingAccess, enables: bool, ret: Code) {
        let link = asked.link.filter(|_| ret == Code::SUCCESS);
        if let Some((from, to)) = link.and_then(|link| self.numbers(library, link)) {
            self.verifier.lock().link_mut(from, to).program = enables;
        }
        count_ended(&self.asking);
    }

    pub(crate) fn on_reset(&self) {
        count_ended(&self.resets);
        count_ended(&self.asking);
    }

    /// Disables what was enabled from and to the current device, which is about to be reset: whether a reset does so itself is
    /// another matter in each release. Ends with [`Peers::on_reset`].
    pub(crate) fn resetting(&self, library: usize, hip: &impl Hip) {
        let Some(own) = self.libraries.get(library) else { return };
        self.asking.fetch_add(1, SeqCst);
        self.resets.fetch_add(1, SeqCst);
        let Some(current) = hip.current_device() else { return };
        let Ok(device) = u8::try_from(current) else { return };
        // Calls of ours with them end first.
        let _acting = self.verifier.begin([device; 2], PATIENCE, None);
        self.verifier.lock().reset_scratch((device.into(), library as u64));
        let is_empty = hip.last_error() == Some(Code::SUCCESS);
        for link @ [from, to] in self.links_of(library, device) {
            self.disable(library, link, || {
                if hip.make_current(from.into()) == Code::SUCCESS {
                    hip.disable(to.into());
                }
            });
        }
        own.cells.change_all();
        hip.make_current(current);
        // Code that p2pshim does not see may have disabled it: then disabling it fails, and the program must not find that.
        if is_empty && hip.last_error() != Some(Code::SUCCESS) {
            hip.clear_last_error();
        }
    }

    fn links_of(&self, library: usize, device: u8) -> Vec<[u8; 2]> {
        let registry = self.verifier.lock();
        let device_of = |number| match registry.owner(number)? {
            AllocationOwner::Context { id, device, .. } if id == library as u64 => u8::try_from(device).ok(),
            _ => None,
        };
        let links = registry.links().filter_map(|link| Some([device_of(link.from)?, device_of(link.to)?]));
        links.filter(|link| link.contains(&device)).collect()
    }
}

fn count_ended(calls: &AtomicUsize) {
    let _ = calls.fetch_update(SeqCst, SeqCst, |calls| calls.checked_sub(1));
}
