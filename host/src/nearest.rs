//! The word that somebody meant who wrote something else.

/// The candidate with the fewest edits from `word`; none if even that is not like it.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // More than one letter in three, and it is a guess that only misleads.
    let most = (word.chars().count() / 3).max(1);
    let rated = candidates.map(|candidate| (distance(word, candidate), candidate));
    rated.filter(|&(edits, _)| edits <= most).min_by_key(|&(edits, _)| edits).map(|(_, candidate)| candidate)
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

    #[test]
    fn nearest_only_what_is_like_it() {
        let levels = || ["off", "error", "warn", "info", "debug", "trace"].into_iter();
        for (word, expected) in
            [("trce", Some("trace")), ("OF", Some("off")), ("foo", None), ("verbose", None), ("", None)]
        {
            assert_eq!(nearest(word, levels()), expected, "{word}");
        }
    }
}
