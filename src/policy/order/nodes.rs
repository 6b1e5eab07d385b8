//! Copies of one graph that none of its edges orders.
//!
//! Only copies: the driver's calls that change what a node sets or launches are not seen, so what such a node touches may not be what it was.

use std::collections::{BTreeMap, BTreeSet};

use super::operation::{Access, Level, Place, Queue, Race, Side};
use super::span::Overlap;
use super::state::may_race;
use crate::api::Function;

/// Accesses of a graph that are compared with each other.
const MOST: usize = 1024;

/// The races between nodes, which are given in the driver's order, with what they touch; none if there are too many to be compared.
pub(crate) fn races_within(nodes: &[usize], edges: &[[usize; 2]], accesses: &[(usize, Access)]) -> Option<Vec<Race>> {
    let mut races = Vec::new();
    let mut behind: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut after: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    if accesses.len() > MOST {
        return None;
    }
    edges.iter().for_each(|[from, to]| after.entry(*from).or_default().push(*to));
    for (node, _) in accesses {
        behind.entry(*node).or_insert_with(|| reached(&after, *node));
    }
    let comes_before = |one: usize, other: usize| behind.get(&one).is_some_and(|nodes| nodes.contains(&other));
    let side = |node: usize, access: &Access| {
        let number = nodes.iter().position(|known| *known == node).unwrap_or_default();
        let place = Place { site: 0, address: number };
        Side { kind: access.kind, function: Function::cuMemcpyAsync, place, queue: Some(Queue::Node { number }) }
    };
    for (index, (one, first)) in accesses.iter().enumerate() {
        for (other, second) in accesses.iter().skip(index + 1) {
            let meet = first.memory == second.memory && first.span.overlap(&second.span) == Overlap::Yes;
            let is_ordered = one == other || comes_before(*one, *other) || comes_before(*other, *one);
            if meet && !is_ordered && may_race(first.kind, second.kind) {
                let (bytes, device) = (first.span.common(&second.span), first.device);
                let [first, second] = [side(*one, first), side(*other, second)];
                races.push(Race { level: Level::Race, first, stamp: (0, 0), second, bytes, device });
            }
        }
    }
    Some(races)
}

/// The nodes that come after one.
fn reached(after: &BTreeMap<usize, Vec<usize>>, from: usize) -> BTreeSet<usize> {
    let (mut found, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(node) = left.pop() {
        let next = after.get(&node).into_iter().flatten().copied();
        left.extend(next.filter(|&next| found.insert(next)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Span};
    use super::*;

    #[test]
    fn nodes_race_unless_edges_lead_from_one_to_the_other() {
        let access = |kind, at: u64| Access { memory: 0..4096, span: Span::bytes(at, 100), kind, device: None };
        let accesses = [
            (11, access(Kind::Writes, 0)),
            (12, access(Kind::Reads, 50)),
            (13, access(Kind::Reads, 50)),
            (14, access(Kind::Writes, 200)),
        ];
        let found = |edges: &[[usize; 2]]| -> Vec<(usize, usize)> {
            let races = races_within(&[10, 11, 12, 13, 14], edges, &accesses).unwrap();
            races.iter().map(|race| (race.first.place.address, race.second.place.address)).collect()
        };
        assert_eq!(found(&[]), [(1, 2), (1, 3)]);
        assert_eq!(found(&[[11, 10], [10, 12]]), [(1, 3)]);
        assert_eq!(found(&[[12, 11], [11, 13]]), []);
        let many: Vec<_> = accesses.iter().cycle().take(MOST + 1).cloned().collect();
        assert!(races_within(&[10, 11, 12, 13, 14], &[], &many).is_none());
    }
}
