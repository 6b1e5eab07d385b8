//! The timeline of a report: who copied most, and when.

use std::cmp::Reverse;

use super::buckets::{self, Aligned, Buckets};
use super::model::{Timeline, TimelineFile, TimelinePair};

/// Pairs that the timeline has at most, and files.
const LANES: usize = 512;

/// Bytes over time, direct and staged.
type Lane = [Vec<u64>; 2];

/// The timeline of all pairs, and of all files.
pub(super) fn timeline(pairs: Vec<([usize; 2], Buckets)>, files: Vec<(usize, Buckets)>) -> Timeline {
    let (of_pairs, pairs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let (of_files, files): (Vec<_>, Vec<_>) = files.into_iter().unzip();
    let Aligned { start, width, all } = buckets::align(pairs.into_iter().chain(files).collect());
    let mut lanes = all.into_iter();
    let pairs = busiest(of_pairs.into_iter().zip(lanes.by_ref()).collect());
    let files = busiest(of_files.into_iter().zip(lanes).collect());
    Timeline {
        start,
        bucket_ns: width,
        pairs: pairs
            .into_iter()
            .map(|([src, dst], [direct, staged])| TimelinePair { src, dst, direct, staged })
            .collect(),
        files: files.into_iter().map(|(file, [direct, staged])| TimelineFile { file, direct, staged }).collect(),
    }
}

/// The lanes that copied most, in their order.
fn busiest<Key: Ord + Copy>(mut lanes: Vec<(Key, Lane)>) -> Vec<(Key, Lane)> {
    let bytes = |(_, lane): &(Key, Lane)| lane.iter().flatten().fold(0, |sum: u64, &it| sum.saturating_add(it));
    lanes.retain(|lane| bytes(lane) > 0);
    lanes.sort_by_cached_key(|lane| (Reverse(bytes(lane)), lane.0));
    lanes.truncate(LANES);
    lanes.sort_by_key(|(key, _)| *key);
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busiest_of_many_pairs_are_those_that_copied_most() {
        let lane = |number: usize| (number, [vec![number as u64], vec![0, 0]]);
        let lanes: Vec<usize> =
            busiest((0..600).rev().map(lane).collect()).into_iter().map(|(number, _)| number).collect();
        assert_eq!(lanes, (88..600).collect::<Vec<_>>());
        assert!(busiest(vec![lane(0)]).is_empty(), "nothing was copied");
    }

    #[test]
    fn timeline_of_pairs_and_files_has_one_axis() {
        let at = |time: u64, bytes: u64| {
            let mut buckets = Buckets::default();
            buckets.add(time, [bytes, 0]);
            buckets
        };
        let timeline = timeline(vec![([0, 1], at(1 << 20, 5))], vec![(0, at(1 << 20, 5)), (1, at(1 << 24, 7))]);
        let [pair] = &timeline.pairs[..] else { panic!("{timeline:?}") };
        let [one, other] = &timeline.files[..] else { panic!("{timeline:?}") };
        assert_eq!(pair.direct, one.direct);
        assert_eq!((one.direct.first(), other.direct.last()), (Some(&5), Some(&7)));
        assert_eq!(other.direct.len() as u64, ((1 << 24) - (1 << 20)) / timeline.bucket_ns + 1);
    }
}
