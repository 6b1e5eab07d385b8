//! How much of its ring a copy uses. The rings of all busy links share the part of the processor's cache that devices write to; once they
//! do not fit, each link is slower than with the driver. So the more links are busy, the less of its ring each uses.

/// Bytes of a ring that stages.
pub(crate) const RING: usize = 20 << 20;
/// Chunks that are under way, at most.
pub(crate) const SLOTS: usize = 4;

/// The part of a ring that a copy uses: its largest chunk, and all its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(super) chunk: usize,
    pub(super) bytes: usize,
}

/// By the number of busy links; the last is for all greater ones. GB/s a link of 256 MiB on four H100 of one host (2026-11-26), where the
/// driver had 37.5 on one link, 22.8 to 37.4 on two, and 12.9 to 19.2 on four.
const SHARES: [Share; 3] = [
    Share { chunk: 10 << 20, bytes: RING }, // 51.7; 8 MiB x 2 had 50.8, 2 MiB x 3 had 44.4
    Share { chunk: 4 << 20, bytes: 12 << 20 }, // 48.2 (1 GiB: 49.8); 8 MiB x 2 had 45.9 (46.3) the same day
    Share { chunk: 2 << 20, bytes: 6 << 20 }, // 40.3; 8 MiB x 2 had 25.4, 10 MiB x 2 21.2
];

impl Share {
    /// The share that each link has while so many are busy.
    pub(super) fn of(busy: usize) -> Self {
        let [.., most] = SHARES;
        SHARES.get(busy.saturating_sub(1)).copied().unwrap_or(most)
    }

    /// All of a ring for copies that have to be staged.
    pub(super) const fn whole(bytes: usize) -> Self {
        Self { chunk: bytes / SLOTS, bytes }
    }
}

/// How many of the last copies say how many links are busy. Links that copy at about the same time begin one after the other, and each
/// but the last sees fewer than there are.
const LATELY: usize = 16;

/// How many links were busy when each of the last copies was made.
pub(super) struct Links {
    lately: [usize; LATELY],
    next: usize,
}

impl Links {
    pub(super) const fn new() -> Self {
        Self { lately: [0; LATELY], next: 0 }
    }

    /// Another copy is made while so many links are busy, its own among them. How many were at one of the last, at most.
    pub(super) fn busy(&mut self, now: usize) -> usize {
        if let Some(place) = self.lately.get_mut(self.next) {
            *place = now;
        }
        self.next = (self.next + 1) % LATELY;
        self.lately.iter().copied().max().unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busier_the_links_the_less_each_uses() {
        assert_eq!(
            [0, 1, 2, 3, 4, 16].map(|busy| SHARES.iter().position(|share| *share == Share::of(busy))),
            [0, 0, 1, 2, 2, 2].map(Some)
        );
        assert!(SHARES.iter().all(|share| share.chunk <= share.bytes && share.bytes <= RING));
    }

    #[test]
    fn links_that_begin_one_after_the_other_are_busy_together() {
        let mut links = Links::new();
        assert_eq!([1, 2, 3, 4].map(|busy| links.busy(busy)), [1, 2, 3, 4]);
        assert_eq!([1, 2, 3, 4].map(|busy| links.busy(busy)), [4; 4], "as in the round before");
        let alone = [1; LATELY].map(|busy| links.busy(busy));
        assert_eq!([alone[0], alone[LATELY - 1]], [4, 1]);
    }
}
