//! A decision about a call: how it is made, and what it copies between devices. A batch is as many decisions as it has copies, and one call.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Instant;

use p2pshim_trace::OpenRecord;

use super::thread::Before;
use crate::api::abi::Code;
use crate::api::{Effect, Function};
use crate::model::{Part, Path, Rule, Traffic};
use crate::policy::{HarmlessEnable, hip};
use crate::real::hip::Library;

/// A decision about a call. It has no destructor, since a thread may be cancelled inside the real function: [`Copied::give_back`] frees it.
pub(crate) struct Decision {
    pub(crate) how: How,
    pub(crate) copied: Copied,
    /// The facts about a call of HIP, if its library is known.
    pub(crate) hip: Option<HipFacts>,
}

/// How a call is made.
#[derive(Clone, Copy)]
pub(crate) enum How {
    /// By the real function, as was decided.
    Real,
    /// By the real function, since nothing was decided.
    Forward(Reason),
    /// Not at all: the program gets the documented error (`P2PSHIM_VALIDATE=strict`).
    Refused(Refusal),
    /// By a function of HIP that does nothing but return this code.
    Answered(Library, Code),
    /// By an equal copy that can be captured. The log says this of it.
    Captured(&'static str),
    /// By the shim, through the host ([`super::staging`]), if there is a ring for it.
    Staged,
    /// By `cuCtxEnablePeerAccess` such that it changes nothing.
    Harmless(HarmlessEnable),
}

/// An answer to a call whose arguments are wrong.
#[derive(Clone, Copy)]
pub(crate) struct Refusal {
    pub(crate) rule: Rule,
    pub(crate) code: Code,
}

/// Why nothing is decided about a call, and the real function gets it as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It neither copies nor is about access that the shim changes.
    NotOurs,
    /// The driver's call inside it decides.
    DriverDecides,
    /// Its arguments say that the host takes part, or that nothing is copied.
    OfTheHost,
    /// Its copies do not go from one device to another, as far as is known.
    NotBetweenDevices,
    /// Its arrays cannot be read.
    Unreadable,
    /// It is being captured; the launches of the graph copy.
    Captured,
    /// The process has more copies of HIP than are told apart.
    UnknownLibrary,
    /// Our own code runs on this thread, or has failed.
    OwnCode,
}

impl Reason {
    /// Whether a call is neither counted nor shown; only large copies with the host have a record then.
    #[inline(always)]
    pub(crate) fn is_passed_on(self, function: Function) -> bool {
        match self {
            Self::NotOurs | Self::DriverDecides => false,
            Self::OfTheHost | Self::NotBetweenDevices | Self::Unreadable | Self::Captured => true,
            // A call that names devices is seen all the same.
            Self::UnknownLibrary | Self::OwnCode => {
                function.is_regular() || matches!(function.effect(), Effect::Copies(_))
            }
        }
    }

    /// Its words in the log, if it is one that a user may look for.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::NotOurs | Self::DriverDecides | Self::OfTheHost | Self::NotBetweenDevices => None,
            Self::Unreadable => Some("its arrays cannot be read"),
            Self::Captured => Some("its stream is being captured"),
            Self::UnknownLibrary => Some("there are too many copies of HIP"),
            Self::OwnCode => Some("code of p2pshim is running on this thread"),
        }
    }
}

impl Decision {
    /// A call that is made in this way, and copies nothing of which the paths are known.
    #[inline(always)]
    pub(crate) const fn new(how: How) -> Self {
        Self { how, copied: Copied::NOTHING, hip: None }
    }

    /// A copy that is made in this way.
    #[inline(always)]
    pub(crate) fn copy(how: How, traffic: Option<Traffic>) -> Self {
        Self { copied: traffic.map_or(Copied::NOTHING, Copied::one), ..Self::new(how) }
    }

    #[inline(always)]
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        match self.how {
            How::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// The only traffic of the call, if it is one.
    #[inline(always)]
    pub(crate) fn traffic(&self) -> Option<Traffic> {
        match self.copied.parts() {
            [only] => Some(only.traffic),
            _ => None,
        }
    }

    /// Its words in the log.
    pub(crate) fn note(&self) -> Option<&'static str> {
        match self.how {
            How::Captured(note) => Some(note),
            How::Staged => Some("staged by p2pshim"),
            How::Refused(_) => Some("refused by P2PSHIM_VALIDATE=strict"),
            _ => None,
        }
    }
}

/// The path of a call's copies, if they have one; or that any is on a path that is blocked.
#[inline(always)]
pub(crate) fn path_of(parts: &[Part]) -> Option<Path> {
    let is_broken = |part: &Part| part.traffic.path == Path::Broken;
    match parts {
        [only] => Some(only.traffic.path),
        parts => parts.iter().any(is_broken).then_some(Path::Broken),
    }
}

/// Facts about a call of HIP. They have nothing to drop.
#[derive(Clone, Copy)]
pub(crate) struct HipFacts {
    pub(crate) library: Library,
    pub(crate) before: hip::Before,
    /// Whether there is nothing to say of it if it succeeds.
    pub(crate) is_clean: bool,
    /// The facts about a call that changes access. Nothing else may change access meanwhile.
    pub(crate) asked: Option<hip::PendingAccess>,
}

impl HipFacts {
    #[inline(always)]
    pub(crate) fn new(library: Library, before: hip::Before, is_clean: bool) -> Option<Self> {
        Some(Self { library, before, is_clean, asked: None })
    }
}

/// A call whose real function is running: what has to be put right when that has returned. It has nothing to drop.
#[derive(Clone, Copy, Default)]
pub(crate) struct Running {
    /// How many calls enclose this one.
    pub(crate) depth: usize,
    /// The state that it has found in the thread's block.
    pub(crate) before: Before,
    pub(crate) record: Option<OpenRecord>,
    /// Whether it is shown, in the log or to callbacks, and when the real function was called.
    pub(crate) shown_since: Option<Instant>,
}

impl Running {
    /// Whether no other call encloses it.
    #[inline(always)]
    pub(crate) fn is_outermost(&self) -> bool {
        self.depth == 0
    }
}

/// It has to be asked where a copy goes.
pub(crate) struct NotKnown;

/// How many parts a frame has room for.
pub(super) const FEW: usize = 2;

/// The copies of a call between devices.
pub(crate) enum Copied {
    /// In the frame: so many parts.
    Few([Part; FEW], usize),
    /// The parts of a graph, or more parts than there is room for in the frame.
    Shared(ManuallyDrop<Arc<[Part]>>),
}

impl Copied {
    pub(crate) const NOTHING: Self = Self::Few([Part::NONE; FEW], 0);

    /// One copy.
    #[inline(always)]
    fn one(traffic: Traffic) -> Self {
        Self::Few([Part { traffic, copies: 1 }, Part::NONE], 1)
    }

    pub(crate) fn shared(parts: Arc<[Part]>) -> Self {
        Self::Shared(ManuallyDrop::new(parts))
    }

    /// Copies, each with its traffic if it goes between devices. None if one is not known, or there is no room in the frame.
    #[inline(always)]
    pub(crate) fn few(copies: impl Iterator<Item = Result<Option<Traffic>, NotKnown>>) -> Option<Self> {
        let (mut parts, mut count) = ([Part::NONE; FEW], 0);
        for traffic in copies {
            let Some(traffic) = traffic.ok()? else { continue };
            let is_new = !parts.iter_mut().take(count).any(|part| part.add(traffic));
            if is_new {
                *parts.get_mut(count)? = Part { traffic, copies: 1 };
                count += 1;
            }
        }
        Some(Self::Few(parts, count))
    }

    /// From where to where, and on which path; nothing is here twice.
    #[inline(always)]
    pub(crate) fn parts(&self) -> &[Part] {
        match self {
            Self::Few(parts, count) => parts.get(..*count).unwrap_or_default(),
            Self::Shared(parts) => parts,
        }
    }

    /// CUDA makes what had to be staged. Whether that was anything.
    pub(crate) fn unstage(&mut self) -> bool {
        let parts = match self {
            Self::Few(parts, count) => parts.get_mut(..*count),
            // Of a batch, which shares them with nobody: no graph is staged.
            Self::Shared(parts) => Arc::get_mut(parts),
        };
        let mut is_any = false;
        for part in parts.unwrap_or_default() {
            let unstaged = part.traffic.unstaged();
            is_any |= unstaged != part.traffic;
            part.traffic = unstaged;
        }
        is_any
    }

    /// Frees shared parts. If a thread is cancelled inside the real function, this does not run, and they leak.
    #[inline(always)]
    pub(crate) fn give_back(self) {
        if let Self::Shared(parts) = self {
            drop(ManuallyDrop::into_inner(parts));
        }
    }
}
