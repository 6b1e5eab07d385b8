//! Graphs: steps that were captured instead of run, and what comes after what.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use crate::gate::Gate;
use crate::ids::{EventHandle, GraphHandle, NodeHandle};
use crate::kernel::Launch;
use crate::transfer::{Request, Transfer};
use crate::work::{Fill, Path};

/// The work of one node.
#[derive(Clone)]
pub(crate) enum Step {
    /// Copies bytes.
    Copy(Transfer),
    /// Copies bytes the way that there was when the graph was made ready, and relies on what made it.
    Fixed(Transfer, Path, Option<Arc<Gate>>),
    /// Makes each of these copies; one that has no bytes is none.
    Batch(Vec<BatchCopy>),
    /// Runs the nodes of a graph that the node has for itself.
    Child(GraphHandle),
    /// Sets bytes.
    Fill(Fill),
    /// Runs a kernel.
    Kernel(Launch),
    /// Calls a function of the program.
    Host(Arc<dyn Fn() + Send + Sync>),
    /// Records an event after the step that is so many steps before it once the graph is flat; after nothing if it is 0.
    Record(EventHandle, usize),
}

impl Step {
    /// Whether it is of the same kind.
    pub(crate) fn is_like(&self, other: &Step) -> bool {
        discriminant(self) == discriminant(other)
    }

    /// Its kind, as programs are told it.
    pub(crate) fn kind(&self) -> NodeKind {
        match self {
            Step::Copy(transfer) | Step::Fixed(transfer, ..) => NodeKind::Copy(transfer.request()),
            Step::Batch(copies) => NodeKind::Batch(copies.iter().map(|copy| copy.request).collect()),
            Step::Fill(_) => NodeKind::Fill,
            Step::Kernel(_) => NodeKind::Kernel,
            Step::Host(_) => NodeKind::Host,
            Step::Child(graph) => NodeKind::Child(*graph),
            Step::Record(..) => NodeKind::Record,
        }
    }
}

/// The kind of a node of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// It copies.
    Copy(Request),
    /// It makes several copies.
    Batch(Vec<Request>),
    /// It sets memory.
    Fill,
    /// It runs a kernel.
    Kernel,
    /// It calls a function of the program.
    Host,
    /// It runs a graph that it has for itself.
    Child(GraphHandle),
    /// It records an event.
    Record,
}

/// A copy of a batch.
#[derive(Clone)]
pub(crate) struct BatchCopy {
    /// The copy that the program asked for.
    pub(crate) request: Request,
    /// A [`Step::Copy`], or [`Step::Fixed`] once the graph is ready; none if it copies nothing.
    pub(crate) step: Option<Box<Step>>,
}

/// The shape of a graph: each node's kind, and the shape of the graph that a child has for itself.
#[derive(Default)]
pub(crate) struct Shape(Vec<(Discriminant<Step>, Shape)>);

/// Why a ready graph cannot become like another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlike {
    /// The other has more nodes, or fewer.
    Topology,
    /// A node there is of another kind.
    NodeKind,
    /// A copy there is none that the ready one can make.
    Copy,
}

impl Shape {
    /// Adds a node.
    pub(crate) fn push(&mut self, step: &Step, inner: Shape) {
        self.0.push((discriminant(step), inner));
    }

    /// Refuses another graph's shape if a graph of this one cannot become like it.
    pub(crate) fn refuse(&self, other: &Shape) -> Result<(), Unlike> {
        if self.0.len() != other.0.len() {
            return Err(Unlike::Topology);
        }
        let mut pairs = self.0.iter().zip(&other.0);
        pairs.try_for_each(
            |((kind, inner), (other_kind, other_inner))| {
                if kind == other_kind { inner.refuse(other_inner) } else { Err(Unlike::NodeKind) }
            },
        )
    }
}

struct Node {
    step: Step,
    after: Vec<NodeHandle>,
}

/// A graph of the program. A node comes only after nodes with smaller handles.
#[derive(Default)]
pub(crate) struct Graph {
    nodes: BTreeMap<NodeHandle, Node>,
}

impl Graph {
    /// Appends a node; its handle has to be greater than all others.
    pub(crate) fn add(&mut self, handle: NodeHandle, step: Step, after: Vec<NodeHandle>) {
        self.nodes.insert(handle, Node { step, after });
    }

    /// Whether all of these are nodes of the graph.
    pub(crate) fn has(&self, nodes: &[NodeHandle]) -> bool {
        nodes.iter().all(|node| self.nodes.contains_key(node))
    }

    /// All nodes, each after those that it comes after.
    pub(crate) fn nodes(&self) -> Vec<NodeHandle> {
        self.nodes.keys().copied().collect()
    }

    /// All steps in an order in which they may run, with their nodes.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (NodeHandle, &Step)> {
        self.nodes.iter().map(|(&handle, node)| (handle, &node.step))
    }

    /// The nodes that a node comes after.
    pub(crate) fn after(&self, node: NodeHandle) -> &[NodeHandle] {
        self.nodes.get(&node).map_or(&[], |node| &node.after)
    }

    /// The nodes that come right after a node.
    pub(crate) fn dependents(&self, node: NodeHandle) -> Vec<NodeHandle> {
        self.nodes.iter().filter(|(_, other)| other.after.contains(&node)).map(|(handle, _)| *handle).collect()
    }

    /// All pairs of a node and one that comes right after it, in the order in which a program has made them.
    pub(crate) fn edges(&self) -> Vec<(NodeHandle, NodeHandle)> {
        let into =
            |(&node, of): (&NodeHandle, &Node)| of.after.iter().map(move |&before| (before, node)).collect::<Vec<_>>();
        self.nodes.iter().flat_map(into).collect()
    }

    /// Takes a node out, and with it whatever came after what.
    pub(crate) fn remove(&mut self, node: NodeHandle) -> bool {
        self.nodes.values_mut().for_each(|other| other.after.retain(|before| *before != node));
        self.nodes.remove(&node).is_some()
    }

    /// The work of a node.
    pub(crate) fn step(&self, node: NodeHandle) -> Option<&Step> {
        self.nodes.get(&node).map(|node| &node.step)
    }

    /// The work of a node, to be changed.
    pub(crate) fn step_mut(&mut self, node: NodeHandle) -> Option<&mut Step> {
        self.nodes.get_mut(&node).map(|node| &mut node.step)
    }

    /// A graph of like nodes with other handles.
    pub(crate) fn copied(&self, mut handle: impl FnMut() -> NodeHandle) -> Graph {
        let handles: BTreeMap<NodeHandle, NodeHandle> = self.nodes.keys().map(|&node| (node, handle())).collect();
        let after = |node: &Node| node.after.iter().filter_map(|node| handles.get(node).copied()).collect();
        let copy = |(node, of): (&NodeHandle, &Node)| {
            Some((*handles.get(node)?, Node { step: of.step.clone(), after: after(of) }))
        };
        Graph { nodes: self.nodes.iter().filter_map(copy).collect() }
    }

    /// Whether whoever comes after `last` also comes after all of `nodes`.
    pub(crate) fn joins(&self, last: &[NodeHandle], nodes: &[NodeHandle]) -> bool {
        let mut before = BTreeSet::new();
        let mut open = last.to_vec();
        while let Some(node) = open.pop() {
            if before.insert(node) {
                open.extend(self.nodes.get(&node).into_iter().flat_map(|node| &node.after));
            }
        }
        nodes.iter().all(|node| before.contains(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuse_names_the_first_difference_at_any_depth() {
        let host = || Step::Host(Arc::new(|| ()));
        let child = || Step::Child(GraphHandle(1));
        let shape = |steps: Vec<(Step, Shape)>| {
            let mut shape = Shape::default();
            steps.into_iter().for_each(|(step, inner)| shape.push(&step, inner));
            shape
        };
        let one = || shape(vec![(host(), Shape::default())]);
        let nested = |inner| shape(vec![(child(), inner)]);
        assert_eq!(nested(one()).refuse(&nested(one())), Ok(()));
        assert_eq!(one().refuse(&Shape::default()), Err(Unlike::Topology));
        assert_eq!(one().refuse(&nested(one())), Err(Unlike::NodeKind));
        assert_eq!(nested(one()).refuse(&nested(Shape::default())), Err(Unlike::Topology));
        assert_eq!(nested(one()).refuse(&nested(nested(one()))), Err(Unlike::NodeKind));
    }

    #[test]
    fn joins_looks_through_all_that_came_before() {
        let mut graph = Graph::default();
        let [a, b, c, d] = [1, 2, 3, 4].map(NodeHandle);
        let step = || Step::Host(Arc::new(|| ()));
        for (node, after) in [(a, vec![]), (b, vec![a]), (c, vec![a]), (d, vec![b])] {
            graph.add(node, step(), after);
        }
        assert!(graph.joins(&[d], &[a, b, d]));
        assert!(!graph.joins(&[d], &[c]));
        assert!(graph.joins(&[c, d], &[b, c]));
        assert!(graph.joins(&[], &[]));
    }
}
