//! How much of its ring a copy uses. The rings of all busy links share the part of the processor's cache that devices write to; once they
//! do not fit, each link is slower than with the driver. So the more links are busy, the less of its ring each uses.

/// Bytes of a ring that stages.
pub(crate) const RING: usize = 20 << 20;
/// Pieces that are under way, at most.
pub(crate) const SLOTS: usize = 4;

/// Of a ring: the largest piece, and the bytes that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) piece: usize,
    pub(super) bytes: usize,
}

/// By the number of busy links; the last is for all greater ones. GB/s a link of 256 MiB on four H100 of one host (2026-11-26), where the
/// driver had 37.5 on one link, 22.8 to 37.4 on two, and 12.9 to 19.2 on four.
const SHARES: [Share; 3] = [
    Share { piece: 10 << 20, bytes: RING }, // 51.7; 8 MiB x 2 had 50.8, 2 MiB x 3 had 44.4
    Share { piece: 8 << 20, bytes: 16 << 20 }, // 51.4; 10 MiB x 2 had 49.5
    Share { piece: 2 << 20, bytes: 6 << 20 }, // 40.3; 8 MiB x 2 had 25.4, 10 MiB x 2 21.2
];

/// Of a ring for copies that have to be staged: all of it.
pub(super) const fn whole(bytes: usize) -> Share {
    Share { piece: bytes / SLOTS, bytes }
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

    /// Another copy is made while so many links are busy, its own among them; `least` is how many are however few it sees. Its share of the
    /// ring.
    pub(super) fn share(&mut self, busy: usize, least: usize) -> Share {
        if let Some(place) = self.lately.get_mut(self.next) {
            *place = busy;
        }
        self.next = (self.next + 1) % LATELY;
        let links = self.lately.iter().copied().max().unwrap_or(1).max(least);
        let [.., most] = SHARES;
        SHARES.get(links.saturating_sub(1)).copied().unwrap_or(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busier_the_links_the_less_each_uses() {
        for (busy, least, share) in [(1, 0, 0), (1, 1, 0), (2, 1, 1), (1, 2, 1), (3, 0, 2), (1, 4, 2), (8, 1, 2)] {
            assert_eq!(Links::new().share(busy, least), SHARES[share], "{busy} {least}");
        }
        assert!(SHARES.iter().all(|share| share.piece <= share.bytes && share.bytes <= RING));
    }

    #[test]
    fn links_that_begin_one_after_the_other_are_busy_together() {
        let mut links = Links::new();
        let round: Vec<_> = (1..=4).map(|busy| links.share(busy, 1)).collect();
        assert_eq!(round[0], SHARES[0]);
        assert!((1..=4).all(|busy| links.share(busy, 1) == SHARES[2]), "as in the round before");
        let alone: Vec<_> = (0..LATELY).map(|_| links.share(1, 1)).collect();
        assert_eq!([alone[0], alone[LATELY - 1]], [SHARES[2], SHARES[0]]);
    }
}
