//! The copies of executable graphs between devices.
//!
//! A copy in a graph takes the path that there was when the graph was instantiated, for ever: enabling access afterwards, or updating the
//! graph, does not change it (measured on H200, docs/MEASUREMENTS.md). So the pairs of a graph's copies are verified and enabled before it
//! is instantiated, as soon as there is one copy; a pair that another thread is verifying is waited for. And what each executable graph
//! copies is kept until it is destroyed. One that copies nothing between devices then never will: CUDA refuses to change whose memory a
//! node copies.
//!
//! Changes to an executable graph name nodes of the graph that it was instantiated from, also after it was updated with
//! another; what was disabled stays so until it is enabled (measured on H200, docs/MEASUREMENTS.md).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use super::access::{Access, Between, Circumstances, ordered};
use super::driver::{Driver, NodeCopy};
use super::validate;
use super::waits::{Context, Stream, Waits};
use crate::api::Layer;
use crate::model::{Endpoints, Finding, Memcpy, Part, Path, Rule, Traffic};
use crate::objects::graphs::{Exec, Execs, GraphCopy, Held};
use crate::os::{self, alloc};

/// All executable graphs that copy between devices.
pub(crate) struct Graphs {
    execs: Execs,
    /// The graphs that are being instantiated, by the thread that does.
    prepared: Mutex<BTreeMap<usize, Instantiation>>,
}

/// A graph that a thread is instantiating, or updating an executable graph with.
#[derive(Default)]
struct Instantiation {
    copies: Vec<GraphCopy>,
    /// Its nodes that copy anything at all, in the driver's order.
    nodes: Vec<usize>,
    /// The nodes that it has for the moment, which record events.
    marks: Vec<Mark>,
    held: Held,
}

/// A node that records an event behind copies between the same endpoints.
struct Mark {
    node: usize,
    /// One of each node that it is behind.
    copies: Vec<usize>,
    event: (Context, usize),
    endpoints: Endpoints,
}

/// The path that a copy like it would take now, as far as is known.
fn path_now(copy: &GraphCopy, access: &Access, driver: &impl Driver) -> Option<Path> {
    let copy = Memcpy::linear(copy.src, copy.dst, copy.traffic.bytes);
    access.traffic_now(driver, &copy).map(|traffic| traffic.unstaged().path)
}

#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// All of it, to what a graph is now.
    Whole {
        graph: usize,
    },
    Node(NodeCopy),
    /// A node that makes several copies: all of them.
    Batch(Vec<NodeCopy>),
    /// A node that is a child graph.
    Child {
        node: usize,
        graph: usize,
    },
    Enabled {
        node: usize,
        is_enabled: bool,
    },
}

impl Graphs {
    pub(crate) const fn new() -> Self {
        Self { execs: Execs::new(), prepared: Mutex::new(BTreeMap::new()) }
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
        let prepared = driver.graph_copies(graph).and_then(|all| {
            let mut copies = alloc::collect(all.iter().filter_map(|copy| kept(access, driver, copy, enable)))?;
            let nodes = alloc::collect(all.iter().map(|copy| copy.node))?;
            Some(Instantiation { held: hold(access, driver, &mut copies), copies, nodes, marks: Vec::new() })
        });
        let before = {
            let mut others = os::lock(&self.prepared);
            match prepared.filter(|prepared| !prepared.copies.is_empty()) {
                Some(prepared) => others.insert(thread, prepared),
                None => others.remove(&thread),
            }
        };
        // The thread may have left an instantiation.
        before.into_iter().for_each(|left| access.release(&left.held));
    }

    /// Adds nodes to a graph that a thread is about to instantiate. They record events behind its copies that p2pshim has made direct: one node for
    /// each pair of endpoints, and behind all of a child graph that has copies. Adds none if an event behind each launch does as well, since the graph ends
    /// with copies of one pair only; and none if nodes cannot be taken out again: then launches are followed by an event too.
    pub(crate) fn mark(&self, (waits, driver): (&Waits, &impl Driver), graph: usize, thread: usize) {
        let mut copies: BTreeMap<Endpoints, BTreeMap<usize, usize>> = BTreeMap::new();
        match os::lock(&self.prepared).get(&thread) {
            Some(prepared) => prepared.copies.iter().filter(|copy| copy.traffic.keeps_waits()).for_each(|copy| {
                _ = copies.entry(copy.traffic.wait_contexts).or_default().insert(copy.within, copy.node)
            }),
            None => return,
        }
        let Some((nodes, edges)) = driver.graph_order(graph).filter(|_| driver.can_lose_nodes(graph)) else { return };
        let (nodes, followed) =
            (BTreeSet::from_iter(nodes), edges.iter().map(|[before, _]| *before).collect::<BTreeSet<_>>());
        let ends_with_one_pair = copies.len() == 1
            && nodes.difference(&followed).all(|last| copies.values().any(|of| of.contains_key(last)));
        if ends_with_one_pair || !copies.values().flat_map(BTreeMap::keys).all(|node| nodes.contains(node)) {
            return;
        }
        let mut marks = Vec::new();
        let is_whole = copies.into_iter().all(|(ends, copies)| {
            // Behind a copy that another of them follows, no event is needed.
            let is_within = |[before, after]: &&[usize; 2]| copies.contains_key(before) && copies.contains_key(after);
            let followed: BTreeSet<usize> = edges.iter().filter(is_within).map(|[before, _]| *before).collect();
            let (behind, copies): (Vec<_>, Vec<_>) =
                copies.into_iter().filter(|(node, _)| !followed.contains(node)).unzip();
            // The source's, if it has one: it lives as long as the copy makes sense.
            let context = ends.into_iter().find(|&end| end != 0);
            let Some(context) = context.and_then(|context| Some((context, driver.context_id(context)?))) else {
                return false;
            };
            let Some(event) = waits.event(driver, context) else { return false };
            let node = driver.add_record(graph, &behind, event);
            match node {
                Some(node) => marks.push(Mark { node, copies, event: (context, event), endpoints: ends }),
                None => waits.give_back((context, event)),
            }
            node.is_some()
        });
        if !is_whole {
            unmark((waits, driver), &marks);
        } else if let Some(prepared) = os::lock(&self.prepared).get_mut(&thread) {
            prepared.marks = marks;
        }
    }

    /// Adds the nodes that record events to a graph that an executable graph is about to be updated with: without them the two would have
    /// different nodes. One of another shape gets as many, so that it is refused for what it is refused for without them.
    pub(crate) fn mark_update(&self, driver: &impl Driver, exec: usize, graph: usize, thread: usize) {
        let parts =
            |exec: &Exec| (!exec.marked.is_empty()).then(|| (Arc::clone(&exec.marked), Arc::clone(&exec.nodes)));
        let Some((marked, nodes)) = self.execs.with(exec, parts) else { return };
        if !driver.can_lose_nodes(graph) {
            return;
        }
        let own = driver.graph_copies(graph).unwrap_or_default();
        let is_like = own.len() == nodes.len();
        let marks = marked.iter().filter_map(|(copies, event)| {
            let named = |copy| Some(own.get(nodes.iter().position(|node| node == copy)?)?.within);
            let behind: Vec<_> = copies.iter().filter(|_| is_like).filter_map(named).collect();
            let behind_nothing = || driver.add_record(graph, &[], *event);
            let node = driver.add_record(graph, &behind, *event).or_else(behind_nothing)?;
            Some(Mark { node, copies: Vec::new(), event: ((0, 0), *event), endpoints: [0; 2] })
        });
        let prepared = Instantiation { marks: marks.collect(), ..Instantiation::default() };
        os::lock(&self.prepared).insert(thread, prepared);
    }

    /// Takes them out again. Returns which they were.
    pub(crate) fn unmark_update(&self, driver: &impl Driver, thread: usize) -> Vec<usize> {
        let prepared = os::lock(&self.prepared).remove(&thread);
        let marks = prepared.unwrap_or_default().marks;
        marks.iter().for_each(|mark| driver.remove_node(mark.node));
        marks.into_iter().map(|mark| mark.node).collect()
    }

    /// It has instantiated it, as `exec`; or it could not.
    pub(crate) fn instantiated(
        &self,
        (access, waits, driver): (&Access, &Waits, &impl Driver),
        exec: Option<usize>,
        thread: usize,
    ) {
        let prepared = os::lock(&self.prepared).remove(&thread).unwrap_or_default();
        let Instantiation { copies, nodes, marks, held } = prepared;
        let Some(exec) = exec else {
            access.release(&held);
            return unmark((waits, driver), &marks);
        };
        marks.iter().for_each(|mark| driver.remove_node(mark.node));
        // An earlier graph may have had this handle.
        waits.on_stream_destroy(driver, Stream::Graph(exec));
        for Mark { event, endpoints, .. } in &marks {
            if !waits.add_graph(exec, *event, *endpoints) {
                // Then launches are followed by an event, and this one, which its nodes record, is nobody's.
                log::debug!("no memory to note that a graph records an event");
            }
        }
        let is_ours = !copies.is_empty();
        let marked = Arc::new(marks.into_iter().map(|mark| (mark.copies, mark.event.1)).collect());
        let known = || Exec { marked, held, ..Exec::new(copies, Arc::new(nodes), BTreeSet::new(), access.losses()) };
        self.set(access, exec, is_ours.then(known));
    }

    /// An executable graph has changed. Its copies keep the path of their pair.
    /// None if it is not known, or there is no memory for what it copies now: then it stays known as it was.
    pub(crate) fn changed(&self, access: &Access, driver: &impl Driver, exec: usize, change: Change) -> Option<()> {
        let Exec { copies: known, nodes, marked, mut disabled, held, losses, .. } = self.execs.find(exec)?;
        let is_whole = matches!(change, Change::Whole { .. });
        let new = match change {
            Change::Whole { graph } => named(driver.graph_copies(graph)?, nodes.iter().copied()),
            Change::Node(copy) => vec![copy],
            Change::Batch(copies) => copies,
            Change::Child { node, graph } => {
                let old = driver.child_graph(node).and_then(|child| driver.graph_copies(child))?;
                named(driver.graph_copies(graph)?, old.iter().map(|copy| copy.node))
            }
            Change::Enabled { node, .. } if !nodes.contains(&node) => return None,
            Change::Enabled { node, is_enabled } => {
                if is_enabled {
                    disabled.remove(&node)
                } else {
                    disabled.insert(node)
                };
                Vec::new()
            }
        };
        let find = |copy: &Memcpy| {
            let now = access.traffic_now(driver, copy)?;
            let is_like = |of: &&GraphCopy| (of.traffic.src, of.traffic.dst) == (now.src, now.dst);
            let Some(&GraphCopy { traffic: known, .. }) = known.iter().find(is_like) else { return Some(now) };
            // It has the path of its pair, and endpoints of its own.
            let wait_contexts = if known.keeps_waits() { access.ends(driver, copy)? } else { known.wait_contexts };
            Some(Traffic { bytes: now.bytes, wait_contexts, ..known })
        };
        let changed: BTreeSet<usize> = new.iter().filter(|_| !is_whole).map(|copy| copy.node).collect();
        let stay = known.iter().filter(|copy| !is_whole && !changed.contains(&copy.node)).copied();
        let copies = alloc::collect(stay.chain(new.iter().filter_map(|copy| kept(access, driver, copy, find))))?;
        self.set(access, exec, Some(Exec { marked, held, ..Exec::new(copies, nodes, disabled, losses) }));
        Some(())
    }

    pub(crate) fn destroyed(&self, access: &Access, exec: usize) {
        self.set(access, exec, None);
    }

    #[inline(always)]
    pub(crate) fn are_there(&self) -> bool {
        self.execs.are_there()
    }

    /// The copies between devices of a launch of an executable graph, if it has any.
    #[inline(always)]
    pub(crate) fn launched(&self, exec: usize) -> Option<Arc<[Part]>> {
        self.execs.launched(exec)
    }

    /// The copies between devices that a launch makes: from, to, bytes.
    pub(crate) fn copied(&self, exec: usize) -> Vec<(u64, u64, u64)> {
        let copied = |known: &Exec| Some(known.made().map(|copy| (copy.src, copy.dst, copy.traffic.bytes)).collect());
        self.execs.with(exec, copied).unwrap_or_default()
    }

    /// Whether anything was disabled so far that a graph may rely on.
    #[inline(always)]
    pub(crate) fn may_have_lost(&self, access: &Access) -> bool {
        access.losses() != 0
    }

    /// The finding about launching an executable graph now, if the program has disabled access since it was instantiated.
    pub(crate) fn lost(&self, access: &Access, driver: &impl Driver, exec: usize, layer: Layer) -> Option<Finding> {
        let losses = access.losses();
        let known = self.execs.with(exec, |known| (known.losses != losses).then(|| known.clone()))?;
        let is_lost = |copy: &&GraphCopy| {
            let is_direct = |path| matches!(path, Path::Direct | Path::Broken);
            is_direct(copy.traffic.path) && path_now(copy, access, driver).is_some_and(|path| !is_direct(path))
        };
        let Some(copy) = known.made().find(is_lost) else {
            // The access that was taken away does not concern it.
            self.execs.change(exec, |known| known.losses = losses);
            return None;
        };
        let Traffic { src, dst, .. } = copy.traffic;
        let what =
            format!("the graph copies from device {src} to device {dst} directly; access has been disabled since");
        Some(Finding::new(Rule::GraphAccessLost, layer, what))
    }

    /// The finding, once, about an executable graph whose copies are staged though they need not be.
    pub(crate) fn staged(&self, access: &Access, driver: &impl Driver, exec: usize, layer: Layer) -> Option<Finding> {
        let check = |known: &mut Exec| (!std::mem::replace(&mut known.is_checked, true)).then(|| known.clone());
        let known = self.execs.change(exec, check)??;
        let is_detour = |copy: &&GraphCopy| {
            let path = copy.traffic.path;
            let is_late = || path_now(copy, access, driver) == Some(Path::Direct);
            validate::is_detour(Some(path)) || matches!(path, Path::Staged(_)) && is_late()
        };
        let Traffic { src, dst, path, .. } = known.made().find(is_detour)?.traffic;
        let all = Part::sum(known.made().map(|copy| copy.traffic).filter(|of| (of.src, of.dst) == (src, dst)));
        let (copies, bytes) = all.iter().fold((0, 0), |(copies, bytes), part| {
            (part.copies.saturating_add(copies), part.traffic.bytes.saturating_add(bytes))
        });
        let copies = if copies == 1 { "1 copy".to_owned() } else { format!("{copies} copies") };
        let what = format!("{copies} from device {src} to device {dst}, {bytes} bytes a launch, {path}");
        Some(Finding::new(Rule::GraphStaged, layer, what))
    }

    fn set(&self, access: &Access, exec: usize, to: Option<Exec>) {
        let held = to.as_ref().map(|to| Arc::clone(&to.held)).unwrap_or_default();
        let before = self.execs.set(exec, to);
        let is_other = |before: &Exec| !Arc::ptr_eq(&before.held, &held);
        before.filter(is_other).into_iter().for_each(|before| access.release(&before.held));
    }
}

/// Keeps the pairs of staged copies as they are, and looks again: another thread may have enabled one just before.
fn hold(access: &Access, driver: &impl Driver, copies: &mut [GraphCopy]) -> Held {
    let is_staged = |copy: &GraphCopy| matches!(copy.traffic.path, Path::Staged(_));
    let staged =
        || copies.iter().filter(|copy| is_staged(copy)).map(|copy| ordered(copy.traffic.src, copy.traffic.dst));
    let held: BTreeSet<(u8, u8)> = staged().collect();
    if !held.is_empty() {
        access.hold(&held);
        for copy in copies.iter_mut().filter(|copy| is_staged(copy)) {
            let now = access.traffic_now(driver, &Memcpy::linear(copy.src, copy.dst, copy.traffic.bytes));
            now.filter(|now| now.path == Path::Direct).into_iter().for_each(|now| copy.traffic = now);
        }
    }
    Arc::new(held)
}

/// Takes nodes out of a graph of which no executable graph was made, and gives back their events.
fn unmark((waits, driver): (&Waits, &impl Driver), marks: &[Mark]) {
    for mark in marks {
        driver.remove_node(mark.node);
        waits.give_back(mark.event);
    }
}

/// The copies of a graph with the names that those of another have which is of the same shape.
fn named(mut copies: Vec<NodeCopy>, nodes: impl ExactSizeIterator<Item = usize>) -> Vec<NodeCopy> {
    if copies.len() == nodes.len() {
        copies.iter_mut().zip(nodes).for_each(|(copy, node)| copy.node = node);
    }
    copies
}

/// A copy of a graph as it is kept, if it goes between devices.
fn kept(
    access: &Access,
    driver: &impl Driver,
    &NodeCopy { node, within, ref parameters }: &NodeCopy,
    find: impl FnOnce(&Memcpy) -> Option<Traffic>,
) -> Option<GraphCopy> {
    let copy = Memcpy::of_driver(parameters, None).regular();
    if !copy.has_ends() || access.ask_between(driver, &copy) != Between::Devices {
        return None;
    }
    // Whatever is blocked: CUDA makes it.
    Some(GraphCopy { node, within, src: copy.src, dst: copy.dst, traffic: find(&copy)?.unstaged() })
}

#[cfg(test)]
mod tests;
