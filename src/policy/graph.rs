//! What executable graphs copy between devices.
//!
//! A copy in a graph takes the path that there was when the graph was instantiated, for ever: enabling access afterwards, or updating the
//! graph, does not change it (measured on H200, docs/results/). So the pairs of a graph's copies are verified and enabled before it
//! is instantiated, as soon as there is one copy, and what each executable graph copies is kept until it is destroyed.
//!
//! Launches look it up under a lock that is held for a moment; a signal handler that launches a graph may have interrupted who holds
//! it, so it is taken recursively, and changed with signals held back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::{Mutex, RwLock};

use super::access::{Access, Between, Circumstances};
use super::driver::{Driver, NodeCopy};
use super::validate;
use crate::api::Layer;
use crate::model::{Finding, Memcpy, Part, Path, Rule, Traffic};

/// All executable graphs that copy between devices, by their handles.
pub(crate) struct Graphs {
    execs: RwLock<BTreeMap<usize, Exec>>,
    /// How many there are.
    count: AtomicUsize,
    /// What graphs copy that are being instantiated, by the thread that does.
    prepared: Mutex<BTreeMap<usize, Vec<Kept>>>,
}

/// An executable graph.
struct Exec {
    copies: Vec<Kept>,
    /// What they come to.
    parts: Arc<[Part]>,
    /// [`Access::losses`] when it was instantiated.
    losses: usize,
    /// Whether it is known whether there is anything to say of its paths.
    is_checked: bool,
}

/// A copy of an executable graph between devices.
#[derive(Clone, Copy)]
struct Kept {
    node: usize,
    child: usize,
    src: u64,
    dst: u64,
    traffic: Traffic,
}

impl Exec {
    fn new(copies: Vec<Kept>, losses: usize) -> Self {
        let parts = Part::sum(copies.iter().map(|copy| copy.traffic)).into();
        Self { copies, parts, losses, is_checked: false }
    }
}

impl Kept {
    /// The path that a copy like it would take now, as far as is known.
    fn now(&self, access: &Access, driver: &impl Driver) -> Option<Path> {
        let copy = Memcpy::linear(self.src, self.dst, self.traffic.bytes);
        access.traffic_now(driver, &copy).map(|traffic| traffic.path)
    }
}

/// What changes in an executable graph.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// All of it, to what a graph is now.
    Whole { graph: usize },
    /// A node that copies.
    Node(NodeCopy),
    /// A node that is a child graph.
    Child { node: usize, graph: usize },
}

impl Graphs {
    pub(crate) const fn new() -> Self {
        Self { execs: RwLock::new(BTreeMap::new()), count: AtomicUsize::new(0), prepared: Mutex::new(BTreeMap::new()) }
    }

    /// A thread is about to instantiate a graph: gives the pairs of its copies access. Nothing is done that the thread's own captures
    /// could not bear.
    pub(crate) fn prepare(
        &self,
        access: &Access,
        driver: &impl Driver,
        graph: usize,
        (thread, captures): (usize, bool),
    ) {
        let on = Circumstances { thread_captures: captures, keeps_path: true, ..Circumstances::default() };
        let enable = |copy: &Memcpy| access.decided(copy).or_else(|| access.consider(driver, copy, on));
        let copies = driver.graph_copies(graph);
        let copies: Vec<Kept> = copies.iter().filter_map(|copy| kept(access, driver, copy, enable)).collect();
        let mut prepared = self.prepared.lock();
        if copies.is_empty() {
            prepared.remove(&thread);
        } else {
            prepared.insert(thread, copies);
        }
    }

    /// It has instantiated it, as `exec`; or it could not.
    pub(crate) fn instantiated(&self, access: &Access, exec: Option<usize>, thread: usize) {
        let copies = self.prepared.lock().remove(&thread).unwrap_or_default();
        if let Some(exec) = exec {
            self.set(exec, Exec::new(copies, access.losses()));
        }
    }

    /// An executable graph has changed. Its copies keep the path of their pair.
    pub(crate) fn changed(&self, access: &Access, driver: &impl Driver, exec: usize, change: Change) {
        let known = self.execs.read_recursive().get(&exec).map(|exec| (exec.copies.clone(), exec.losses));
        let (known, losses) = known.unwrap_or_else(|| (Vec::new(), access.losses()));
        let (new, mut copies) = match change {
            Change::Whole { graph } => (driver.graph_copies(graph), Vec::new()),
            Change::Node(copy) => (vec![copy], without(&known, |known| known.node == copy.node)),
            Change::Child { node, graph } => {
                let new = driver.graph_copies(graph).into_iter().map(|copy| NodeCopy { child: node, ..copy });
                (new.collect(), without(&known, |known| known.child == node))
            }
        };
        let find = |copy: &Memcpy| {
            let now = access.traffic_now(driver, copy)?;
            let is_like = |of: &&Kept| (of.traffic.src, of.traffic.dst) == (now.src, now.dst);
            Some(known.iter().find(is_like).map_or(now, |known| Traffic { path: known.traffic.path, ..now }))
        };
        copies.extend(new.iter().filter_map(|copy| kept(access, driver, copy, find)));
        self.set(exec, Exec::new(copies, losses));
    }

    /// An executable graph is gone, or about to go.
    pub(crate) fn destroyed(&self, exec: usize) {
        self.set(exec, Exec::new(Vec::new(), 0));
    }

    /// Whether there are any.
    #[inline(always)]
    pub(crate) fn are_there(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    /// What a launch of an executable graph copies between devices, if it copies anything.
    #[inline(always)]
    pub(crate) fn launched(&self, exec: usize) -> Option<Arc<[Part]>> {
        if !self.are_there() {
            return None;
        }
        self.execs.read_recursive().get(&exec).map(|exec| Arc::clone(&exec.parts))
    }

    /// Whether anything was disabled so far that a graph may rely on.
    #[inline(always)]
    pub(crate) fn may_have_lost(&self, access: &Access) -> bool {
        access.losses() != 0
    }

    /// What is wrong with launching an executable graph now, on account of what the program has disabled since it was instantiated.
    pub(crate) fn lost(&self, access: &Access, driver: &impl Driver, exec: usize, layer: Layer) -> Option<Finding> {
        let losses = access.losses();
        let copies = {
            let execs = self.execs.read_recursive();
            execs.get(&exec).filter(|known| known.losses != losses)?.copies.clone()
        };
        let is_lost = |copy: &&Kept| {
            copy.traffic.path == Path::Direct && copy.now(access, driver).is_some_and(|path| path != Path::Direct)
        };
        let Some(copy) = copies.iter().find(is_lost) else {
            // What was taken away does not concern it.
            if let Some(known) = self.execs.write().get_mut(&exec) {
                known.losses = losses;
            }
            return None;
        };
        let Traffic { src, dst, .. } = copy.traffic;
        let what =
            format!("the graph copies from device {src} to device {dst} directly; access has been disabled since");
        Some(Finding::new(Rule::GraphAccessLost, layer, what))
    }

    /// What there is to say, once, of an executable graph whose copies are staged though they need not be.
    pub(crate) fn staged(&self, access: &Access, driver: &impl Driver, exec: usize, layer: Layer) -> Option<Finding> {
        let copies = {
            let mut execs = self.execs.write();
            let known = execs.get_mut(&exec).filter(|known| !known.is_checked)?;
            known.is_checked = true;
            known.copies.clone()
        };
        let is_detour = |copy: &&Kept| {
            let path = copy.traffic.path;
            let is_late = || copy.now(access, driver) == Some(Path::Direct);
            validate::is_detour(Some(path)) || matches!(path, Path::Staged(_)) && is_late()
        };
        let Traffic { src, dst, path, .. } = copies.iter().find(is_detour)?.traffic;
        let all = Part::sum(copies.iter().map(|copy| copy.traffic).filter(|of| (of.src, of.dst) == (src, dst)));
        let (copies, bytes) = all.iter().fold((0, 0), |(copies, bytes), part| {
            (part.copies.saturating_add(copies), part.traffic.bytes.saturating_add(bytes))
        });
        let copies = if copies == 1 { "1 copy".to_owned() } else { format!("{copies} copies") };
        let what = format!("{copies} from device {src} to device {dst}, {bytes} bytes a launch, {}", path.name());
        Some(Finding::new(Rule::GraphStaged, layer, what))
    }

    fn set(&self, exec: usize, to: Exec) {
        let mut execs = self.execs.write();
        // Taken out first, so that it is dropped outside the lock.
        let _before = if to.copies.is_empty() { execs.remove(&exec) } else { execs.insert(exec, to) };
        self.count.store(execs.len(), Relaxed);
        drop(execs);
    }
}

fn without(copies: &[Kept], is_gone: impl Fn(&Kept) -> bool) -> Vec<Kept> {
    copies.iter().filter(|copy| !is_gone(copy)).copied().collect()
}

/// What is kept of a copy of a graph, if it goes between devices.
fn kept(
    access: &Access,
    driver: &impl Driver,
    &NodeCopy { node, child, ref parameters }: &NodeCopy,
    find: impl FnOnce(&Memcpy) -> Option<Traffic>,
) -> Option<Kept> {
    let copy = Memcpy::of_driver(parameters, None).regular();
    if !copy.has_ends() || access.ask_between(driver, &copy) != Between::Devices {
        return None;
    }
    Some(Kept { node, child, src: copy.src, dst: copy.dst, traffic: find(&copy)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::abi::{CUDA_MEMCPY3D_PEER, MEMORYTYPE_UNIFIED};
    use crate::model::Why;
    use crate::policy::access::fake::{Fake, memory_of};

    const THREAD: usize = 1;
    const GRAPH: usize = 0x10;
    const EXEC: usize = 0x20;

    fn copy(node: usize, [src, dst]: [usize; 2], bytes: usize) -> NodeCopy {
        let parameters = CUDA_MEMCPY3D_PEER {
            srcMemoryType: MEMORYTYPE_UNIFIED,
            dstMemoryType: MEMORYTYPE_UNIFIED,
            srcDevice: memory_of(src),
            dstDevice: memory_of(dst),
            WidthInBytes: bytes,
            Height: 1,
            Depth: 1,
            ..CUDA_MEMCPY3D_PEER::ZERO
        };
        NodeCopy { node, child: 0, parameters }
    }

    fn part([src, dst]: [u8; 2], path: Path, copies: u32, bytes: u64) -> Part {
        Part { traffic: Traffic { src, dst, path, bytes }, copies }
    }

    fn instantiate(graphs: &Graphs, access: &Access, fake: &Fake) {
        graphs.prepare(access, fake, GRAPH, (THREAD, false));
        graphs.instantiated(access, Some(EXEC), THREAD);
    }

    #[test]
    fn launched_each_pair_once_and_only_what_goes_between_devices() {
        static ACCESS: Access = Access::new();
        let (graphs, access, fake) = (Graphs::new(), &ACCESS, Fake::new());
        let copies =
            vec![copy(1, [0, 1], 4), copy(2, [0, 0], 8), copy(3, [1, 0], 16), copy(4, [0, 1], 32), copy(5, [0, 1], 0)];
        fake.graphs.borrow_mut().insert(GRAPH, copies);
        assert!(graphs.launched(EXEC).is_none());
        instantiate(&graphs, access, &fake);
        assert_eq!(fake.enables.get(), 2, "both ways, for a few bytes: the graph keeps its path");
        let parts = graphs.launched(EXEC).unwrap();
        assert_eq!(*parts, [part([0, 1], Path::Direct, 2, 36), part([1, 0], Path::Direct, 1, 16)]);
        assert!(graphs.launched(EXEC + 1).is_none());
        graphs.destroyed(EXEC);
        assert!(graphs.launched(EXEC).is_none() && !graphs.are_there());
        // A graph that could not be instantiated leaves nothing, and one that copies nothing takes the handle of another.
        graphs.prepare(access, &fake, GRAPH, (THREAD, false));
        graphs.instantiated(access, None, THREAD);
        instantiate(&graphs, access, &fake);
        fake.graphs.borrow_mut().insert(GRAPH, vec![copy(2, [0, 0], 8)]);
        instantiate(&graphs, access, &fake);
        assert!(!graphs.are_there());
    }

    #[test]
    fn changed_copies_keep_the_path_of_their_pair() {
        static ACCESS: Access = Access::new();
        let (graphs, access, fake) = (Graphs::new(), &ACCESS, Fake::new());
        fake.graphs.borrow_mut().insert(GRAPH, vec![copy(1, [0, 1], 4), copy(2, [0, 1], 8)]);
        // Nothing is verified while the thread captures.
        graphs.prepare(access, &fake, GRAPH, (THREAD, true));
        graphs.instantiated(access, Some(EXEC), THREAD);
        let staged = Path::Staged(Why::Capturing);
        assert_eq!(*graphs.launched(EXEC).unwrap(), [part([0, 1], staged, 2, 12)]);
        access.capture_has_ended(&fake);
        graphs.changed(access, &fake, EXEC, Change::Node(copy(2, [0, 1], 100)));
        assert_eq!(*graphs.launched(EXEC).unwrap(), [part([0, 1], staged, 2, 104)]);
        graphs.changed(access, &fake, EXEC, Change::Child { node: 9, graph: GRAPH });
        assert_eq!(*graphs.launched(EXEC).unwrap(), [part([0, 1], staged, 4, 116)]);
        let found = graphs.staged(access, &fake, EXEC, Layer::Driver).unwrap();
        assert!(
            found.rule == Rule::GraphStaged && found.what.starts_with("4 copies from device 0 to device 1"),
            "{found:?}"
        );
        assert_eq!(graphs.staged(access, &fake, EXEC, Layer::Driver), None, "once");
        graphs.changed(access, &fake, EXEC, Change::Whole { graph: GRAPH });
        assert_eq!(*graphs.launched(EXEC).unwrap(), [part([0, 1], staged, 2, 12)]);
        // Instantiated anew.
        instantiate(&graphs, access, &fake);
        assert_eq!(*graphs.launched(EXEC).unwrap(), [part([0, 1], Path::Direct, 2, 12)]);
        assert_eq!(graphs.staged(access, &fake, EXEC, Layer::Driver), None);
    }
}
