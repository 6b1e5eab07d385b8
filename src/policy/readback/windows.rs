//! The parts of a copy that are read back. Its bytes are counted in the order in which they are copied: row by row, slice by slice.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::policy::staging::Piece;

/// The most bytes of a window of a sample.
pub(super) const BYTES: usize = 4096;

/// A part of a copy that is one copy: of a row, or of whole rows of a slice, or of whole slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

impl Window {
    pub(super) const NONE: Self = Self { offset: 0, bytes: 0 };

    /// The longest that begins there, of at most so many bytes, in a copy of so many bytes in a row, rows and slices.
    pub(super) fn from([width, height, depth]: [usize; 3], offset: usize, most: usize) -> Self {
        let (row, x) = (offset / width, offset % width);
        let (slice, y) = (row / height, row % height);
        let rows = most / width;
        let bytes = match () {
            () if slice >= depth => 0,
            () if x != 0 || rows == 0 => most.min(width - x),
            () if y != 0 || rows < height => width * rows.min(height - y),
            () => width * height * (rows / height).min(depth - slice),
        };
        Self { offset, bytes }
    }

    /// Where it is.
    pub(super) fn of(self, [width, height, _]: [usize; 3]) -> Piece {
        let (row, x) = (self.offset / width, self.offset % width);
        let rows = self.bytes / width;
        let extent = match () {
            () if x != 0 || rows == 0 => [self.bytes, 1, 1],
            () if rows <= height => [width, rows, 1],
            () => [width, height, rows / height],
        };
        Piece { at: [x, row % height, row / height], extent, slot: 0 }
    }
}

/// The first of all turns.
pub(super) fn first(extent: [usize; 3], most: usize) -> [Window; 3] {
    [Window::from(extent, 0, most), Window::NONE, Window::NONE]
}

/// The beginning, the end, and a part between them that is another each time.
pub(super) fn sample(extent: [usize; 3]) -> [Window; 3] {
    let [width, height, depth] = extent;
    let bytes = width * height * depth;
    if bytes <= 3 * BYTES && height * depth == 1 {
        return first(extent, 3 * BYTES);
    }
    if width >= BYTES {
        // In rows: between the other two, if there is only one.
        let (skipped, left) = if height * depth == 1 { (BYTES, width - 3 * BYTES) } else { (0, width - BYTES) };
        let between = below(height * depth) * width + skipped + below(left + 1);
        return [0, between, bytes - BYTES].map(|offset| Window { offset, bytes: BYTES });
    }
    let rows = (BYTES / width).min(height);
    let between = (below(depth) * height + below(height - rows + 1)) * width;
    [0, between, bytes - rows * width].map(|offset| Window { offset, bytes: rows * width })
}

/// Another number below this one each time (SplitMix64).
fn below(end: usize) -> usize {
    static STATE: AtomicU64 = AtomicU64::new(0);
    let state = STATE.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
    let word = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ word >> 31) as usize % end
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENTS: [[usize; 3]; 9] = [
        [1, 1, 1],
        [3 * BYTES, 1, 1],
        [4 * BYTES + 5, 1, 1],
        [BYTES, 3, 1],
        [2 * BYTES + 1, 2, 5],
        [7, 9, 3],
        [100, 1000, 2],
        [1000, 3, 900],
        [1, BYTES + 1, 1],
    ];

    /// The bytes of a window, in the order of the copy, as its place says.
    fn bytes_of(window: Window, extent: [usize; 3]) -> Vec<usize> {
        let Piece { at: [x, y, z], extent: [w, h, d], .. } = window.of(extent);
        let [width, height, depth] = extent;
        assert!(x + w <= width && y + h <= height && z + d <= depth, "{window:?} {extent:?}");
        let rows = (z..z + d).flat_map(|z| (y..y + h).map(move |y| (z * height + y) * width));
        rows.flat_map(|row| row + x..row + x + w).collect()
    }

    #[test]
    fn window_is_the_bytes_behind_its_offset() {
        for extent in EXTENTS {
            for window in sample(extent) {
                let expected: Vec<usize> = (window.offset..window.offset + window.bytes).collect();
                assert_eq!(bytes_of(window, extent), expected, "{extent:?}");
            }
        }
    }

    #[test]
    fn all_of_a_copy_is_read_in_turns() {
        for extent in EXTENTS {
            for most in [1, 64, 1000, 1 << 20] {
                let (mut read, mut offset) = (0, 0);
                while let window = Window::from(extent, offset, most)
                    && window.bytes > 0
                {
                    assert!(window.bytes <= most, "{extent:?} {most}");
                    assert!(
                        bytes_of(window, extent).into_iter().eq(offset..offset + window.bytes),
                        "{extent:?} {most}"
                    );
                    (read, offset) = (read + window.bytes, offset + window.bytes);
                }
                assert_eq!(read, extent.iter().product::<usize>(), "{extent:?} {most}");
            }
        }
    }

    #[test]
    fn sample_is_the_beginning_the_end_and_a_part_between() {
        for extent in EXTENTS {
            let size: usize = extent.iter().product();
            let mut offsets = Vec::new();
            for _ in 0..100 {
                let windows = sample(extent);
                let [begin, between, end] = windows;
                let last = if end == Window::NONE { begin } else { end };
                assert_eq!((begin.offset, last.offset + last.bytes), (0, size), "{extent:?}");
                assert!(windows.iter().map(|window| window.bytes).sum::<usize>() <= 3 * BYTES);
                offsets.push(between.offset);
            }
            offsets.sort_unstable();
            offsets.dedup();
            assert!(size <= 3 * BYTES || offsets.len() > 10 || extent[1] <= 3, "{extent:?} {offsets:?}");
        }
    }

    #[test]
    fn sample_of_one_row_has_no_byte_twice() {
        let size = 4 * BYTES + 5;
        let mut offsets = Vec::new();
        for _ in 0..100 {
            let [_, between, last] = sample([size, 1, 1]);
            assert!(between.offset >= BYTES && between.offset + between.bytes <= last.offset);
            offsets.push(between.offset);
        }
        offsets.dedup();
        assert!(offsets.len() > 90, "{offsets:?}");
    }
}
