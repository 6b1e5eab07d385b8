//! Tables, which lose columns and ends of cells where there is no room for them; and what their cells say of figures.

use crate::report::figures;
use crate::report::model::Rate;
use crate::report::term::count;

/// Which side of a column has the text.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Letters of a cell that are shown at most.
const WIDEST: usize = 4096;

/// Lines of a table, the first of which are its names. If it is too wide, columns of `spare` are left out, the first of them
/// first; then the cells of the column `flexible` lose their ends.
pub(crate) fn table(
    rows: &[Vec<String>],
    sides: &[Side],
    width: Option<usize>,
    flexible: usize,
    mut spare: &[usize],
) -> Vec<String> {
    let wide = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    // A damaged trace may have any name, and `format!` panics at a width above 65,535.
    let mut widths: Vec<usize> = (0..sides.len()).map(|column| wide(column).min(WIDEST)).collect();
    let whole = |widths: &[usize]| widths.iter().filter(|&&width| width > 0).map(|width| width + 2).sum::<usize>();
    while let (Some(width), Some((&first, rest))) = (width, spare.split_first())
        && whole(&widths) > width
    {
        // A column without a width is not there.
        widths.get_mut(first).into_iter().for_each(|width| *width = 0);
        spare = rest;
    }
    let all = whole(&widths);
    if let (Some(width), Some(flexible)) = (width, widths.get_mut(flexible)) {
        *flexible = flexible.saturating_sub(all.saturating_sub(width)).max(8);
    }
    let line = |row: &Vec<String>| {
        let shown = row.iter().zip(sides.iter().zip(&widths)).filter(|(_, (_, width))| **width > 0);
        let cells = shown.map(|(cell, (side, &width))| {
            let cell = if cell.chars().count() > width {
                cell.chars().take(width.saturating_sub(1)).chain(['…']).collect()
            } else {
                cell.clone()
            };
            match side {
                Side::Left => format!("{cell:width$}"),
                Side::Right => format!("{cell:>width$}"),
            }
        });
        format!("  {}", cells.collect::<Vec<_>>().join("  ")).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// A rate; with a sign if not all that it is of was measured.
pub(super) fn rate(Rate { gb_per_s, gb_per_s_off }: Rate, is_of_samples: bool) -> String {
    gb_per_s.map_or_else(|| "-".to_owned(), |rate| figures::rate(rate, gb_per_s_off, is_of_samples))
}

/// A time of a histogram, the longest of which is known.
pub(super) fn roughly(time: Option<u64>, max: Option<u64>) -> String {
    figures::roughly(time, max).unwrap_or_else(|| "-".to_owned())
}

/// How many of some calls were timed.
pub(super) fn timed(timed: u64, calls: u64) -> String {
    match timed {
        0 => "-".to_owned(),
        timed if timed >= calls => "all".to_owned(),
        timed => format!("{} of {}", count(timed), count(calls)),
    }
}

/// Where all or none of each row were timed there is nothing to say of it.
pub(super) fn hide_timed(rows: &mut [Vec<String>], column: usize) {
    if !rows.iter().skip(1).any(|row| row.get(column).is_some_and(|timed| timed.contains(" of "))) {
        rows.iter_mut().filter_map(|row| row.get_mut(column)).for_each(String::clear);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_cell_of_any_length_is_shown_as_far_as_it_fits() {
        for letters in [10, 65_535, 65_536, 1_000_000] {
            let rows = [vec!["name".to_owned()], vec!["x".repeat(letters)]];
            for side in [Side::Left, Side::Right] {
                let lines = table(&rows, &[side], None, 0, &[]);
                assert_eq!(lines[1].trim().chars().count(), letters.min(WIDEST), "{letters}");
            }
        }
    }

    #[test]
    fn table_that_is_too_wide_loses_of_one_column() {
        let row = |text: &[&str]| text.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>();
        let rows = [row(&["a", "what is long, and can do without its end", "9"]), row(&["bb", "short", "10"])];
        let sides = [Side::Left, Side::Left, Side::Right];
        let lines = table(&rows, &sides, Some(30), 1, &[]);
        assert_eq!(lines, ["  a   what is long, and c…   9", "  bb  short                 10"]);
        assert!(table(&rows, &sides, None, 1, &[2])[0].ends_with("its end   9"));
    }

    #[test]
    fn table_that_is_too_wide_loses_what_is_spare_first() {
        let row = |text: &[&str]| text.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>();
        let rows = [row(&["pair", "path", "p50", "p99"]), row(&["0 > 1", "staged: never enabled", "1.0us", "2.0us"])];
        let sides = [Side::Left, Side::Left, Side::Right, Side::Right];
        let lines = |width: usize| table(&rows, &sides, Some(width), 1, &[3, 2]);
        assert_eq!(lines(44)[1], "  0 > 1  staged: never enabled  1.0us  2.0us");
        assert_eq!(lines(43), ["  pair   path                     p50", "  0 > 1  staged: never enabled  1.0us"]);
        assert_eq!(lines(30), ["  pair   path", "  0 > 1  staged: never enabled"]);
        assert_eq!(lines(29)[1], "  0 > 1  staged: never enabl…");
    }
}
