//! When a pair was busy: the time that any of its copies took on the GPU, each moment once.

/// The times of copies, apart from each other where they are settled.
#[derive(Clone, Debug, Default)]
pub(in crate::report) struct Busy {
    spans: Vec<[u64; 2]>,
    /// Whether there were more than are kept.
    has_more: bool,
}

impl Busy {
    /// Spans of a pair that are kept: a program that times more copies than that has none of this.
    const MOST: usize = 1 << 18;

    pub(super) fn add(&mut self, from: u64, nanos: u64) {
        let to = from.saturating_add(nanos);
        if to == from {
            return;
        }
        match self.spans.last_mut().filter(|[begin, end]| (*begin..=*end).contains(&from)) {
            Some([_, end]) => *end = to.max(*end),
            None => self.spans.push([from, to]),
        }
        if self.spans.len() >= 2 * Self::MOST {
            self.settle();
        }
    }

    pub(in crate::report) fn merge(&mut self, other: Self) {
        self.spans.extend(other.spans);
        self.has_more |= other.has_more;
        if self.spans.len() >= 2 * Self::MOST {
            self.settle();
        }
    }

    fn settle(&mut self) {
        self.spans.sort_unstable();
        self.spans.dedup_by(|[from, to], [_, end]| {
            let meets = from <= end;
            *end = if meets { *to.max(end) } else { *end };
            meets
        });
        self.has_more |= self.spans.len() > Self::MOST;
        self.spans.truncate(Self::MOST);
    }

    /// How long that was, in nanoseconds; none if there is too much to tell, or nothing.
    pub(in crate::report) fn nanos(mut self) -> Option<u64> {
        self.settle();
        let nanos = self.spans.iter().map(|[from, to]| to - from).fold(0, u64::saturating_add);
        Some(nanos).filter(|&nanos| nanos > 0 && !self.has_more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanos_counts_each_moment_once_whoever_adds_it() {
        let mut busy = Busy::default();
        assert_eq!(busy.clone().nanos(), None);
        for (from, nanos) in [(100, 50), (120, 10), (150, 10), (400, 5)] {
            busy.add(from, nanos);
        }
        let mut other = Busy::default();
        other.add(90, 20);
        other.add(402, 100);
        busy.merge(other);
        assert_eq!(busy.nanos(), Some(70 + 102));
        let mut many = Busy::default();
        (0..Busy::MOST as u64).for_each(|number| many.add(number * 10, 1));
        assert_eq!(many.clone().nanos(), Some(Busy::MOST as u64));
        many.add(u64::MAX, 5);
        assert_eq!(many.clone().nanos(), Some(Busy::MOST as u64), "of no length");
        (0..2 * Busy::MOST as u64).for_each(|number| many.add(number * 10 + 5, 1));
        assert_eq!(many.nanos(), None, "too many");
    }
}
