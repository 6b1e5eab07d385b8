//! What somebody meant who wrote something else.

/// The candidate that a word most likely stands for: what other programs take for off or on, or the nearest.
pub(super) fn meant<'a, I: Iterator<Item = &'a str>>(
    word: &str,
    candidates: impl Fn() -> I,
    default: &'a str,
) -> &'a str {
    const SYNONYMS: [(&str, [&str; 4]); 2] =
        [("off", ["0", "false", "no", "none"]), ("on", ["1", "true", "yes", "all"])];
    let is_one = |words: &[&str]| words.iter().any(|synonym| synonym.eq_ignore_ascii_case(word));
    let Some((stands_for, _)) = SYNONYMS.iter().find(|(_, words)| is_one(words)) else {
        return nearest(word, candidates());
    };
    candidates().find(|candidate| candidate == stands_for).unwrap_or(default)
}

/// The candidate with the fewest edits from `word`.
pub(super) fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> &'a str {
    candidates.min_by_key(|candidate| distance(word, candidate)).unwrap_or_default()
}

/// How many characters must be inserted, removed or replaced (Levenshtein), whatever their case.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (above, b) in row.iter().skip(1).zip(to.chars()) {
            let replaced = diagonal + usize::from(!a.eq_ignore_ascii_case(&b));
            diagonal = *above;
            left = replaced.min(*above + 1).min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        for (from, to, edits) in
            [("", "", 0), ("on", "on", 0), ("ON", "on", 0), ("of", "off", 1), ("kitten", "sitting", 3), ("", "abc", 3)]
        {
            assert_eq!(distance(from, to), edits, "{from} {to}");
        }
    }
}
