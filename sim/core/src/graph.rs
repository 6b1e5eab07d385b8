//! Graphs: steps that were captured instead of run, and what comes after what.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::machine::{Launch, NodeHandle, Transfer};
use crate::work::Fill;

/// What one node does. A copy chooses its way at each launch.
#[derive(Clone)]
pub(crate) enum Step {
    /// Copies bytes.
    Copy(Transfer),
    /// Sets bytes.
    Fill(Fill),
    /// Runs a kernel.
    Kernel(Launch),
    /// Calls a function of the program.
    Host(Arc<dyn Fn() + Send + Sync>),
    /// Runs another graph.
    Graph(Arc<[Step]>),
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

    /// All steps in an order in which they may run.
    pub(crate) fn steps(&self) -> Arc<[Step]> {
        self.nodes.values().map(|node| node.step.clone()).collect()
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
