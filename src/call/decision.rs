//! A decision about a call, and the state that has to be put right once its real function has returned.

use std::mem::MaybeUninit;
use std::time::Instant;

use p2pshim_trace::Begun;

use super::arrival::Call;
use super::thread::{self, Before};
use crate::api::Layer;
use crate::api::abi::Code;
use crate::model::{Path, Rule, Traffic, counters};
use crate::os;
use crate::policy::{HarmlessEnable, capture};
use crate::real::driver::{self, ReadyCopy};

/// A decision about a call. It has nothing to drop.
#[derive(Clone, Copy)]
pub(crate) struct Decision<'a> {
    /// The documented error that the program gets in place of the call (`P2PSHIM_VALIDATE=strict`).
    pub(crate) refusal: Option<Refusal>,
    /// The call that takes the place of the real function.
    pub(crate) instead: Option<&'a Instead>,
    /// For a copy: from where to where, and on which path.
    pub(crate) traffic: Option<Traffic>,
}

impl Decision<'_> {
    /// The real function gets the call as it came.
    pub(crate) const FORWARD: Self = Self { refusal: None, instead: None, traffic: None };

    /// The program gets an error, and the real function no call.
    pub(crate) fn refused(refusal: Refusal) -> Self {
        Self { refusal: Some(refusal), ..Self::FORWARD }
    }

    /// The decision about a copy that was to be staged, if CUDA makes it instead.
    pub(crate) fn unstaged(&self) -> Self {
        Self { traffic: self.traffic.map(Traffic::unstaged), ..Self::FORWARD }
    }

    /// Its words in the log.
    pub(crate) fn note(&self) -> Option<&'static str> {
        match self.instead {
            _ if self.refusal.is_some() => Some("refused by P2PSHIM_VALIDATE=strict"),
            Some(&Instead::Captured(note)) => Some(note),
            Some(Instead::Staged) => Some("staged by p2pshim"),
            _ => None,
        }
    }
}

/// Room for what is called in place of a function, in the frame that calls it.
pub(crate) type Room = MaybeUninit<Instead>;

/// A call that takes the place of a function.
#[derive(Clone, Copy)]
pub(crate) enum Instead {
    /// An equal copy, which can be captured; what the log says of it.
    Captured(&'static str),
    /// The copy, staged by the shim ([`super::staging::make`]), if there is what that takes.
    Staged,
    /// `cuCtxEnablePeerAccess` such that it changes nothing.
    Harmless(HarmlessEnable),
}

/// An answer to a call whose arguments are wrong.
#[derive(Clone, Copy)]
pub(crate) struct Refusal {
    pub(crate) rule: Rule,
    pub(crate) code: Code,
}

impl Instead {
    /// Calls it.
    ///
    /// # Safety
    /// The caller meets the conditions of the function whose place this takes.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn call(&self, call: &Call<'_>) -> Code {
        match self {
            Self::Captured(_) => {
                let replacement = call.request.copy().and_then(|copy| capture::replacement(call.function(), copy));
                // SAFETY: the caller's.
                let make = |copy: ReadyCopy| unsafe { copy.make() };
                replacement.and_then(|of| driver::ready(&of)).map_or(Code::INVALID_VALUE, make)
            }
            Self::Staged => Code::INVALID_VALUE,
            &Self::Harmless(HarmlessEnable { peer, flags, from, to }) => {
                match driver::enable_peer_access(peer, flags) {
                    // Enabled after all, if it was not: that is what it takes the access to be.
                    ret if ret == from || ret == Code::SUCCESS => to,
                    ret => ret,
                }
            }
        }
    }
}

/// A call whose real function is running: what has to be put right when that has returned. It has nothing to drop.
#[derive(Clone, Copy)]
pub(crate) struct Running {
    /// How many calls enclose this one.
    pub(crate) depth: usize,
    /// The state that it has found in the thread's block.
    pub(crate) before: Before,
    /// The call's record, if it has one.
    pub(crate) record: Option<Begun>,
    /// Whether it is shown, in the log or to callbacks, and when the real function was called.
    pub(crate) shown_since: Option<Instant>,
}

impl Running {
    /// Whether no other call encloses it.
    #[inline(always)]
    pub(crate) fn is_outermost(&self) -> bool {
        self.depth == 0
    }

    /// Has the time that is shown begin now: what was done since is not the call's.
    pub(crate) fn restart_clock(&mut self) {
        self.shown_since = self.shown_since.map(|_| os::uncancelled(Instant::now));
    }
}

/// Counts a call, and of a copy that was made its bytes. A runtime's copy is counted as that of the driver inside it.
#[inline(always)]
pub(crate) fn count(call: &Call<'_>, decision: &Decision<'_>, ret: Code) {
    let shard = &thread::current().shard;
    counters::count_call(shard, call.function(), ret != Code::SUCCESS);
    if let Some(traffic) = &decision.traffic
        && ret == Code::SUCCESS
    {
        counters::count(shard, traffic);
    }
}

/// The path of a copy that succeeded. That of a runtime's copy is decided for the driver's inside it.
#[inline(always)]
pub(crate) fn path(call: &Call<'_>, decision: &Decision<'_>, begun: &Running, ret: Code) -> Option<Path> {
    let own = decision.traffic.filter(|_| ret == Code::SUCCESS).map(|traffic| traffic.path);
    match call.function().layer() {
        Layer::Runtime => thread::current().take_path(&begun.before).filter(|_| ret == Code::SUCCESS),
        Layer::Driver if !begun.is_outermost() && own.is_some() => {
            thread::current().set_path(own);
            own
        }
        Layer::Driver | Layer::Hip | Layer::Nvml => own,
    }
}
