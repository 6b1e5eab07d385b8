//! The results that a kernel's atomic additions to 1024 words should have: each is made once, and finds the result of another.

use std::collections::HashMap;

/// Words that are added to, in turn.
pub(super) const WORDS: usize = 1024;
/// Additions: of 1, 2 and so on. Many of the threads that make them add to a word at the same time.
pub(super) const ADDITIONS: usize = 1 << 16;

/// Words of 8 bytes.
pub(super) fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

/// The fault of the words that were there before, those after the additions, and what each addition has found.
pub(super) fn wrong(before: &[u64], after: &[u64], found: &[u64]) -> Option<String> {
    let mut expected = before.to_vec();
    let mut turns = (0..expected.len()).cycle();
    let mut amounts = Vec::with_capacity(found.len());
    for amount in (1..).take(found.len()) {
        let word = turns.next()?;
        amounts.push((word, amount));
        if let Some(sum) = expected.get_mut(word) {
            *sum = sum.wrapping_add(amount);
        }
    }
    let sums = || expected.iter().zip(after).zip(before).filter(|((expected, after), _)| expected != after);
    if sums().next().is_some() {
        let unchanged = sums().filter(|((_, after), before)| after == before).count();
        let wrong = sums().count();
        return Some(format!("{wrong} of {} sums are wrong; {unchanged} words never changed", before.len()));
    }
    // The values that additions to a word found, and those that they left, are the same but for the first and the last.
    let mut balance: HashMap<(usize, u64), i64> = HashMap::new();
    let mut count = |word, value, by| *balance.entry((word, value)).or_default() += by;
    for ((word, amount), found) in amounts.into_iter().zip(found) {
        count(word, *found, 1);
        count(word, found.wrapping_add(amount), -1);
    }
    for (word, (before, after)) in before.iter().zip(after).enumerate() {
        count(word, *before, -1);
        count(word, *after, 1);
    }
    let is_right = balance.values().all(|balance| *balance == 0);
    (!is_right).then(|| "the sums are right, but what additions returned is not".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two words, to which 1 and 3, and 2, are added; the later one first.
    const BEFORE: [u64; 2] = [100, u64::MAX];
    const AFTER: [u64; 2] = [104, 1];
    const FOUND: [u64; 3] = [103, u64::MAX, 100];

    #[test]
    fn wrong_none_if_each_was_made_once_in_any_order() {
        assert_eq!(wrong(&BEFORE, &AFTER, &FOUND), None);
        assert_eq!(wrong(&BEFORE, &AFTER, &[100, u64::MAX, 101]), None);
    }

    #[test]
    fn wrong_sums_and_returned_values_are_said() {
        assert_eq!(wrong(&BEFORE, &BEFORE, &FOUND).unwrap(), "2 of 2 sums are wrong; 2 words never changed");
        assert_eq!(wrong(&BEFORE, &[101, 1], &FOUND).unwrap(), "1 of 2 sums are wrong; 0 words never changed");
        let said = wrong(&BEFORE, &AFTER, &[100, u64::MAX, 100]).unwrap();
        assert_eq!(said, "the sums are right, but what additions returned is not");
        assert!(wrong(&BEFORE, &AFTER, &[u64::MAX; 3]).is_some());
    }

    #[test]
    fn words_are_little_endian() {
        assert_eq!(words(&[1, 0, 0, 0, 0, 0, 0, 1, 9]), [0x0100_0000_0000_0001]);
    }
}
