//! Rings, through which copies go: memory of the host, and streams and events around it.

use super::links::SLOTS;
use crate::api::abi::Code;
use crate::policy::driver::Driver;

/// Bytes of a ring for copies that have to be staged, small ones, or if there is no other: no limit holds for it.
pub(crate) const NEEDED: usize = 1 << 20;
/// Bytes of each chunk of a sample.
pub(super) const SAMPLED: usize = 4 << 10;
/// Bytes of a ring for samples of copies that are read back.
pub(super) const SAMPLES: usize = 2 * SLOTS * SAMPLED;

/// How many of a ring's last steps are told apart.
pub(super) const MARKS: usize = 8;

/// A context, and what tells it from later ones.
pub(crate) type Context = (usize, u64);

/// The contexts of the caller's stream, the source and the destination.
pub(crate) type Contexts = [Context; 3];

/// Takes the copies of one stream of the program. Its handles are the driver's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    pub(crate) contexts: Contexts,
    /// A stream on the source's side, and one on the destination's. They block no other.
    pub(crate) streams: [usize; 2],
    /// Recorded on the caller's stream.
    pub(crate) begins: usize,
    /// Recorded on the destination's stream after the last chunk.
    pub(crate) ends: usize,
    /// Recorded on the source's stream, when a slot is full.
    pub(crate) filled: [usize; SLOTS],
    /// Recorded on the destination's stream, when it is free again.
    pub(crate) drained: [usize; SLOTS],
    /// Recorded there too, in turn, each after a step.
    pub(crate) marks: [usize; MARKS],
    pub(crate) host: Host,
}

impl Ring {
    /// One that has no stream and no event yet.
    pub(super) const fn empty(contexts: Contexts, host: Host) -> Self {
        let (filled, drained, marks) = ([0; SLOTS], [0; SLOTS], [0; MARKS]);
        Self { contexts, streams: [0; 2], begins: 0, ends: 0, filled, drained, marks, host }
    }

    /// Its streams and events, those that it lacks too: what each is to be, and the handle or 0.
    pub(crate) fn parts(&mut self) -> impl Iterator<Item = (Part, &mut usize)> {
        let [caller, src, dst] = self.contexts;
        let [from, to] = &mut self.streams;
        let ends = [(Part::Stream(src), from), (Part::Stream(dst), to)].into_iter();
        let events = [(Part::Event(caller), &mut self.begins), (Part::Event(dst), &mut self.ends)];
        let filled = self.filled.iter_mut().map(move |event| (Part::Event(src), event));
        let on_dst = self.drained.iter_mut().chain(&mut self.marks).map(move |event| (Part::Event(dst), event));
        ends.chain(events).chain(filled).chain(on_dst)
    }

    /// Whether it can be used no more, or holds up what ends a context, if this holds of a context.
    pub(super) fn needs(&self, is_it: impl Fn(&Context) -> bool) -> bool {
        self.contexts.iter().any(&is_it) || is_it(&self.host.locked_in)
    }
}

/// A stream or an event, by its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Stream(Context),
    Event(Context),
}

impl Part {
    pub(crate) const fn context(self) -> Context {
        let (Self::Stream(context) | Self::Event(context)) = self;
        context
    }
}

/// Memory of the host, mostly page-locked. It is never freed: that may wait for devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    /// The context that it is page-locked in, for all.
    pub(crate) locked_in: Context,
}

impl Host {
    /// In no context.
    pub(crate) const UNLOCKED: Context = (0, 0);
}

/// The driver, which makes rings, and knows whether they are in use.
pub(crate) trait Stager: Driver {
    /// Takes so many bytes of the host's memory, which are not page-locked.
    fn host_memory(&self, bytes: usize) -> Result<Host, Code>;

    /// Makes what a ring lacks. Where its memory does not have to be page-locked, and cannot be, its copies wait for their data.
    fn complete(&self, ring: &mut Ring, has_to_lock: bool) -> Result<(), Code>;

    /// Whether all copies of a ring are done.
    fn is_over(&self, ring: &Ring) -> Result<bool, Code>;

    /// That; also if it cannot be told, since a ring of a context that is gone has nothing to do.
    fn is_ring_done(&self, ring: &Ring) -> bool {
        self.is_over(ring) != Ok(false)
    }

    /// Whether the steps up to one of a ring's marks are made; also if that cannot be told.
    fn is_past(&self, ring: &Ring, mark: usize) -> bool;

    /// The memory of a ring that somebody has, and whose copies are done.
    fn bytes_of(&self, ring: &Ring) -> &[u8];
}
