//! Executable graphs that copy between devices.
//!
//! Launches look one up under a lock that is held for a moment, by everybody with signals and cancellation held back: a handler that leaves by
//! `longjmp`, or a thread that ends, would leave it locked.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::{RwLock, RwLockReadGuard};

use crate::model::{Part, Traffic};
use crate::os;
use crate::os::table::spread;

/// The pairs of devices whose copies in a graph are staged: p2pshim enables none of them as long as there is the graph.
pub(crate) type Held = Arc<BTreeSet<(u8, u8)>>;

#[derive(Clone)]
pub(crate) struct Exec {
    pub(crate) copies: Arc<Vec<GraphCopy>>,
    /// The nodes that copy, as those of the graph that it was instantiated from.
    pub(crate) nodes: Arc<Vec<usize>>,
    /// Those of them that are disabled.
    pub(crate) disabled: BTreeSet<usize>,
    /// Copies behind which, or behind the child graphs of which, an event is recorded, and the event.
    pub(crate) marked: Arc<Vec<(Vec<usize>, usize)>>,
    pub(crate) held: Held,
    /// The parts that the others come to.
    pub(crate) parts: Arc<[Part]>,
    /// How often the program had taken access away when it was instantiated.
    pub(crate) losses: usize,
    /// Whether it is known whether there is anything to say of its paths.
    pub(crate) is_checked: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct GraphCopy {
    pub(crate) node: usize,
    /// As long as the graph is being instantiated: the node of the graph itself that the copy is in.
    pub(crate) within: usize,
    pub(crate) src: u64,
    pub(crate) dst: u64,
    pub(crate) traffic: Traffic,
}

impl Exec {
    pub(crate) fn new(
        copies: Vec<GraphCopy>,
        nodes: Arc<Vec<usize>>,
        disabled: BTreeSet<usize>,
        losses: usize,
    ) -> Self {
        let enabled = copies.iter().filter(|copy| !disabled.contains(&copy.node));
        let parts = Part::sum(enabled.map(|copy| copy.traffic)).into();
        let (copies, marked) = (Arc::new(copies), Arc::default());
        Self { copies, nodes, disabled, marked, held: Held::default(), parts, losses, is_checked: false }
    }

    /// The copies that a launch makes.
    pub(crate) fn made(&self) -> impl Iterator<Item = &GraphCopy> {
        self.copies.iter().filter(|copy| !self.disabled.contains(&copy.node))
    }
}

/// By their handles.
pub(crate) struct Execs {
    known: RwLock<Known>,
    count: AtomicUsize,
}

pub(crate) type Known = HashMap<usize, Exec, BuildHasherDefault<OfHandle>>;

/// A look-up among 10,000 handles costs as much as one among few.
#[derive(Default)]
pub(crate) struct OfHandle(u64);

impl Hasher for OfHandle {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, handle: usize) {
        self.0 = spread(self.0.rotate_left(8) ^ handle as u64, u64::BITS) as u64;
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

impl Execs {
    pub(crate) const fn new() -> Self {
        Self { known: RwLock::new(HashMap::with_hasher(BuildHasherDefault::new())), count: AtomicUsize::new(0) }
    }

    #[inline(always)]
    pub(crate) fn are_there(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    pub(crate) fn find(&self, exec: usize) -> Option<Exec> {
        self.read().get(&exec).cloned()
    }

    /// A part of one.
    pub(crate) fn with<T>(&self, exec: usize, part: impl FnOnce(&Exec) -> Option<T>) -> Option<T> {
        self.read().get(&exec).and_then(part)
    }

    /// The copies between devices of a launch, if it has any.
    #[inline(always)]
    pub(crate) fn launched(&self, exec: usize) -> Option<Arc<[Part]>> {
        if !self.are_there() {
            return None;
        }
        os::undisturbed(|| {
            let known = self.read();
            known.get(&exec).filter(|exec| !exec.parts.is_empty()).map(|exec| Arc::clone(&exec.parts))
        })
    }

    /// Changes what is known of one, unless anybody is reading: then it is the next launch's.
    pub(crate) fn change<T>(&self, exec: usize, change: impl FnOnce(&mut Exec) -> T) -> Option<T> {
        self.known.try_write()?.get_mut(&exec).map(change)
    }

    /// Sets what is known of one. Returns what was before.
    pub(crate) fn set(&self, exec: usize, to: Option<Exec>) -> Option<Exec> {
        let mut known = loop {
            match self.known.try_write() {
                Some(known) => break known,
                None => os::pause(),
            }
        };
        // Taken out, so that it is dropped outside the lock.
        let before = match to {
            Some(to) => known.insert(exec, to),
            None => known.remove(&exec),
        };
        self.count.store(known.len(), Relaxed);
        before
    }

    /// Waits, if need be, without the lock's own way, which allocates and registers a destructor: see [`os::lock`].
    #[inline(always)]
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Known> {
        match self.known.try_read_recursive() {
            Some(known) => known,
            None => self.read_later(),
        }
    }

    #[cold]
    #[inline(never)]
    fn read_later(&self) -> RwLockReadGuard<'_, Known> {
        loop {
            os::pause();
            if let Some(known) = self.known.try_read_recursive() {
                return known;
            }
        }
    }
}
