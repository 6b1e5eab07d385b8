//! Bytes over time, in buckets that get wider as time passes.

use std::collections::BTreeMap;

/// Buckets that there are at most.
pub(super) const MOST: usize = 400;
/// The narrowest bucket has 2 to the power of so many nanoseconds.
const NARROWEST: u32 = 13;

/// Bytes that went directly, and bytes that were staged.
pub(super) type Bytes = [u64; 2];

/// Bytes by time. A bucket's number is its time since 1970 without the last `shift` bits, so that all are aligned.
#[derive(Clone, Debug)]
pub(super) struct Buckets {
    shift: u32,
    bytes: BTreeMap<u64, Bytes>,
    /// The latest bucket, which the next is likely to be.
    last: (u64, Bytes),
}

impl Default for Buckets {
    fn default() -> Self {
        Self { shift: NARROWEST, bytes: BTreeMap::new(), last: (0, [0; 2]) }
    }
}

impl Buckets {
    pub(super) fn add(&mut self, time: u64, [direct, staged]: Bytes) {
        let number = time >> self.shift;
        if number != self.last.0 {
            self.flush(MOST);
        }
        // The shift may have changed.
        self.last.0 = time >> self.shift;
        let [all_direct, all_staged] = &mut self.last.1;
        *all_direct = all_direct.saturating_add(direct);
        *all_staged = all_staged.saturating_add(staged);
    }

    fn flush(&mut self, most: usize) {
        let (number, bytes) = std::mem::take(&mut self.last);
        if bytes != [0; 2] {
            add(&mut self.bytes, number, bytes);
        }
        while self.bytes.len() > most {
            self.widen(self.shift + 1);
        }
    }

    fn widen(&mut self, shift: u32) {
        let more = shift.saturating_sub(self.shift).min(63);
        self.shift += more;
        for (number, bytes) in std::mem::take(&mut self.bytes) {
            add(&mut self.bytes, number >> more, bytes);
        }
    }

    /// Adds the other's, and keeps at most so many buckets.
    pub(super) fn merge(&mut self, mut other: Self, most: usize) {
        self.flush(most);
        other.flush(most);
        let shift = self.shift.max(other.shift);
        self.widen(shift);
        other.widen(shift);
        for (number, bytes) in other.bytes {
            add(&mut self.bytes, number, bytes);
        }
        self.flush(most);
    }

    /// Keeps at most so many buckets.
    pub(super) fn limit(&mut self, most: usize) {
        self.flush(most);
    }
}

fn add(all: &mut BTreeMap<u64, Bytes>, number: u64, [direct, staged]: Bytes) {
    let [all_direct, all_staged] = all.entry(number).or_default();
    *all_direct = all_direct.saturating_add(direct);
    *all_staged = all_staged.saturating_add(staged);
}

/// Buckets of one width for all.
pub(super) struct Aligned {
    pub(super) start: u64,
    pub(super) width: u64,
    /// For each of what was given, direct and staged bytes.
    pub(super) all: Vec<[Vec<u64>; 2]>,
}

/// Gives all the same buckets, at most [`MOST`].
pub(super) fn align(mut all: Vec<Buckets>) -> Aligned {
    for buckets in &mut all {
        buckets.flush(MOST);
    }
    let mut shift = all.iter().map(|buckets| buckets.shift).max().unwrap_or(NARROWEST);
    let time = |(&number, _): (&u64, &Bytes), buckets: &Buckets| number << buckets.shift;
    let firsts = all.iter().filter_map(|buckets| Some(time(buckets.bytes.first_key_value()?, buckets)));
    let lasts = all.iter().filter_map(|buckets| Some(time(buckets.bytes.last_key_value()?, buckets)));
    let (Some(first), Some(last)) = (firsts.min(), lasts.max()) else {
        let nothing = all.iter().map(|_| [Vec::new(), Vec::new()]).collect();
        return Aligned { start: 0, width: 1 << NARROWEST, all: nothing };
    };
    while (last >> shift) - (first >> shift) >= MOST as u64 {
        shift += 1;
    }
    let start = first >> shift;
    let count = ((last >> shift) - start) as usize + 1;
    let rows = all.into_iter().map(|mut buckets| {
        buckets.widen(shift);
        let row = |which: fn(&Bytes) -> u64| {
            let mut row = vec![0; count];
            for (number, bytes) in &buckets.bytes {
                if let Some(place) = row.get_mut((number - start) as usize) {
                    *place = which(bytes);
                }
            }
            row
        };
        [row(|[direct, _]| *direct), row(|[_, staged]| *staged)]
    });
    Aligned { start: start << shift, width: 1 << shift, all: rows.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn align_of_any_times_keeps_all_bytes_in_few_buckets() {
        let (mut one, mut other) = (Buckets::default(), Buckets::default());
        let origin = 1_800_000_000_000_000_000;
        for number in 0..10_000u64 {
            one.add(origin + number * 1_000_000, [1, 0]);
            other.add(origin + 3_000_000_000 + (number * 7919 % 1000) * 50_000, [0, 2]);
        }
        let aligned = align(vec![one.clone(), other.clone()]);
        let [[direct, none], [_, staged]] = &aligned.all[..] else { panic!() };
        assert!((100..=MOST).contains(&direct.len()) && direct.len() == staged.len(), "{}", direct.len());
        assert_eq!((direct.iter().sum::<u64>(), none.iter().sum::<u64>()), (10_000, 0));
        assert_eq!(staged.iter().sum::<u64>(), 20_000);
        assert!(aligned.start <= origin && origin < aligned.start + aligned.width);
        let bucket = ((origin + 3_000_000_000 - aligned.start) / aligned.width) as usize;
        assert!(staged[bucket] > 0 && staged[..bucket].iter().all(|&bytes| bytes == 0));

        one.merge(other, 40);
        assert!(one.bytes.len() <= 40);
        let both = one.bytes.values().fold([0, 0], |[a, b], [c, d]| [a + c, b + d]);
        assert_eq!(both, [10_000, 20_000]);
    }

    #[test]
    fn align_of_times_that_cannot_be_keeps_few_buckets() {
        let mut one = Buckets::default();
        for time in [0, u64::MAX, 1 << 63, 5] {
            one.add(time, [u64::MAX, 1]);
        }
        let aligned = align(vec![one]);
        assert!(aligned.all[0][1].len() <= MOST);
        assert_eq!(aligned.all[0][1].iter().sum::<u64>(), 4);
    }

    #[test]
    fn align_of_nothing_is_nothing() {
        assert!(align(vec![Buckets::default()]).all[0][0].is_empty());
    }
}
