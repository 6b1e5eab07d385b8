//! Operations, their accesses, and races between these.

use std::ops::Range;

use super::clock::{Clock, Stamp};
use super::span::Span;
use crate::api::Function;

/// A stream, with what orders it beside its own operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Queue {
    /// A stream that the program created. 0 for a context that is not known.
    Created { handle: usize, context: usize, is_blocking: bool },
    /// The legacy default stream of a context.
    Legacy { context: usize },
    /// A thread's own default stream.
    PerThread { context: usize, thread: usize },
    /// A stream of another process, by a number of our own.
    Foreign { number: usize },
    /// A node of a graph, by its number there.
    Node { number: usize },
}

impl Queue {
    pub(crate) fn context(self) -> usize {
        match self {
            Self::Created { context, .. } | Self::Legacy { context } | Self::PerThread { context, .. } => context,
            Self::Foreign { .. } | Self::Node { .. } => usize::MAX,
        }
    }

    /// The handle, if it is a stream that the program created.
    pub(crate) fn handle(self) -> Option<usize> {
        match self {
            Self::Created { handle, .. } => Some(handle),
            Self::Legacy { .. } | Self::PerThread { .. } | Self::Foreign { .. } | Self::Node { .. } => None,
        }
    }

    pub(super) fn is_blocking(self) -> bool {
        matches!(self, Self::Created { is_blocking: true, .. } | Self::PerThread { .. })
    }
}

/// The place in the program of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The number of the place in the trace; 0 for none.
    pub(crate) site: u16,
    pub(crate) address: usize,
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Reads,
    Writes,
    /// A kernel got the address: it may read or write any byte of the allocation.
    Kernel,
    /// A kernel got the address as that of constants: it may read any byte.
    KernelReads,
    /// The memory is given back in the order of a stream.
    Frees,
}

impl Kind {
    pub(super) fn is_kernel(self) -> bool {
        matches!(self, Self::Kernel | Self::KernelReads)
    }
}

/// An access of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// The allocation that it lies in.
    pub(crate) memory: Range<u64>,
    pub(crate) span: Span,
    pub(crate) kind: Kind,
    /// The device that has the memory; none for memory of the host.
    pub(crate) device: Option<u8>,
}

/// The work that may be told of by memory, which is not seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publishes {
    Nothing,
    /// The work before it.
    Before,
    /// Its own accesses, too: something in it may come behind them.
    Itself,
}

/// An operation that is about to be queued.
pub(crate) struct Operation<'a> {
    pub(crate) queue: Queue,
    /// Contexts with default streams that it is ordered with as with its own.
    pub(crate) with: &'a [usize],
    pub(crate) accesses: &'a [Access],
    /// Contexts for which it is work: calls that wait for one of them wait for the operation.
    pub(crate) work_of: &'a [usize],
    pub(crate) publishes: Publishes,
    pub(crate) function: Function,
    pub(crate) place: Place,
}

/// How sure it is that an order is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Race,
    Possible,
    Lifetime,
    /// There is one, which only staging makes: of a copy that is staged, or that has its waits kept by p2pshim.
    Staged,
    /// There was none, until p2pshim added it.
    Enforced,
}

impl Level {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Race => "race",
            Self::Possible => "possible race",
            Self::Lifetime => "lifetime",
            Self::Staged => "ordered by staging",
            Self::Enforced => "enforced",
        }
    }
}

/// One of two accesses that nothing orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    pub(crate) kind: Kind,
    pub(crate) function: Function,
    pub(crate) place: Place,
    /// The stream; none for a call that frees memory at once.
    pub(crate) queue: Option<Queue>,
}

/// Two accesses that nothing orders, the one that was queued first before the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Race {
    pub(crate) level: Level,
    pub(crate) first: Side,
    /// The operation of the first access.
    pub(crate) stamp: Stamp,
    pub(crate) second: Side,
    /// The range in which both lie.
    pub(crate) bytes: (u64, u64),
    pub(crate) device: Option<u8>,
}

/// An operation that is being queued.
#[derive(Debug)]
pub(crate) struct Submitted {
    pub(crate) stamp: Stamp,
    /// All that its end comes after, itself included.
    pub(crate) clock: Clock,
    /// Accesses with which nothing orders it.
    pub(crate) races: Vec<Race>,
}
