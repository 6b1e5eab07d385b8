//! Rings that could not be made. The reason may be over by the next copy, and need not be another pair's; but each try may cost as much as
//! page-locking. So a pair's next copy tries again, then fewer and fewer.

/// At least one of so many copies tries again.
const RARELY: u32 = 64;

struct Failure {
    pair: [u8; 2],
    bytes: usize,
    /// Copies since then.
    copies: u32,
}

/// The failures of all pairs of devices and sizes.
pub(super) struct Failures(Vec<Failure>);

impl Failures {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Whether a copy of a pair is to try to make a ring of so many bytes.
    pub(super) fn may_try(&mut self, pair: [u8; 2], bytes: usize) -> bool {
        let Some(failure) = self.0.iter_mut().find(|failure| (failure.pair, failure.bytes) == (pair, bytes)) else {
            return true;
        };
        failure.copies = failure.copies.wrapping_add(1);
        failure.copies.is_power_of_two() || failure.copies.is_multiple_of(RARELY)
    }

    /// Notes that one could not be made; whether that is new.
    pub(super) fn add(&mut self, pair: [u8; 2], bytes: usize) -> bool {
        let is_new = self.0.iter().all(|failure| (failure.pair, failure.bytes) != (pair, bytes));
        if is_new {
            self.0.push(Failure { pair, bytes, copies: 0 });
        }
        is_new
    }

    /// Notes that one was made.
    pub(super) fn remove(&mut self, pair: [u8; 2], bytes: usize) {
        self.0.retain(|failure| (failure.pair, failure.bytes) != (pair, bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pair_that_failed_tries_again_and_others_at_once() {
        let mut failures = Failures::new();
        assert!(failures.add([0, 1], 20) && !failures.add([0, 1], 20));
        let tries: Vec<_> = (1..=200).filter(|_| failures.may_try([0, 1], 20)).collect();
        assert_eq!(tries, [1, 2, 4, 8, 16, 32, 64, 128, 192]);
        assert!((0..9).all(|_| failures.may_try([1, 0], 20) && failures.may_try([0, 1], 10)));
        failures.remove([0, 1], 20);
        assert!((0..9).all(|_| failures.may_try([0, 1], 20)));
    }
}
