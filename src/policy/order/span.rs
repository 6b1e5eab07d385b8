//! The bytes that an access touches.

/// Bytes from `start` to `end`; of each `pitch` bytes only the first `width`, if there are rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) rows: Option<Rows>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    pub(crate) pitch: u64,
    pub(crate) width: u64,
}

/// Whether two spans have bytes in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlap {
    No,
    Yes,
    /// They lie in the same range; rows of different pitch are not compared.
    Perhaps,
}

impl Span {
    pub(crate) fn bytes(start: u64, bytes: u64) -> Self {
        Self { start, end: start.saturating_add(bytes), rows: None }
    }

    /// Rows of `width` bytes, `pitch` bytes apart.
    pub(crate) fn rows(start: u64, reach: u64, pitch: u64, width: u64) -> Self {
        let rows = (width < pitch && reach > pitch).then_some(Rows { pitch, width });
        Self { rows, ..Self::bytes(start, reach) }
    }

    /// Whether it has all bytes of another.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.start <= other.start && other.end <= self.end && (self.rows.is_none() || self == other)
    }

    /// The range that both lie in.
    pub(crate) fn common(&self, other: &Self) -> (u64, u64) {
        (self.start.max(other.start), self.end.min(other.end))
    }

    pub(crate) fn overlap(&self, other: &Self) -> Overlap {
        let (start, end) = self.common(other);
        let meet = match (self.rows, other.rows) {
            _ if start >= end => false,
            (None, None) => true,
            (Some(rows), None) => rows.touches(self.start, start, end),
            (None, Some(rows)) => rows.touches(other.start, start, end),
            // The same columns meet again after one pitch.
            (Some(one), Some(two)) if one.pitch == two.pitch => {
                let end = end.min(start.saturating_add(2 * one.pitch));
                let first = (start - self.start) / one.pitch;
                let rows = (first..).map(|row| self.start + row * one.pitch).take_while(|&row| row < end);
                let parts = rows.map(|row| (row.max(start), (row + one.width).min(end)));
                parts.filter(|(from, to)| from < to).any(|(from, to)| two.touches(other.start, from, to))
            }
            (Some(_), Some(_)) => return Overlap::Perhaps,
        };
        if meet { Overlap::Yes } else { Overlap::No }
    }
}

impl Rows {
    /// Whether rows from `first` on have any byte from `start` to `end`.
    fn touches(self, first: u64, start: u64, end: u64) -> bool {
        let column = (start - first) % self.pitch;
        column < self.width || column + (end - start) > self.pitch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a span, one by one.
    fn all(span: &Span) -> Vec<u64> {
        let is_in = |byte: &u64| span.rows.is_none_or(|rows| (byte - span.start) % rows.pitch < rows.width);
        (span.start..span.end).filter(is_in).collect()
    }

    #[test]
    fn overlap_is_that_of_the_bytes() {
        let mut spans = Vec::new();
        for start in [0, 1, 3, 7, 16, 20, 33] {
            for bytes in [1, 4, 8, 40] {
                spans.push(Span::bytes(start, bytes));
            }
            for (pitch, width, height) in [(8, 3, 4), (8, 7, 2), (8, 1, 5), (16, 4, 2)] {
                spans.push(Span::rows(start, pitch * (height - 1) + width, pitch, width));
            }
        }
        let mut counts = [0; 3];
        for one in &spans {
            for two in &spans {
                let is_common = all(one).iter().any(|byte| all(two).contains(byte));
                let overlap = one.overlap(two);
                counts[overlap as usize] += 1;
                match overlap {
                    Overlap::Yes => assert!(is_common, "{one:?} {two:?}"),
                    Overlap::No => assert!(!is_common, "{one:?} {two:?}"),
                    Overlap::Perhaps => assert_ne!(one.rows.unwrap().pitch, two.rows.unwrap().pitch),
                }
                assert!(!one.covers(two) || all(two).iter().all(|byte| all(one).contains(byte)), "{one:?} {two:?}");
            }
        }
        assert!(counts.iter().all(|&count| count > 20), "{counts:?}");
    }
}
