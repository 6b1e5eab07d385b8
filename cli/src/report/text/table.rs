//! Tables of the report, and what their cells say of figures.

use std::io::{self, Write};

use super::Text;
use crate::report::figures;
use crate::report::model::Rate;
use crate::report::term::{count, duration};
use crate::table::Table;

impl Text<'_> {
    /// Writes a table, with rows that are marked, and says where all are if there are more.
    pub(super) fn table<T>(
        &self,
        out: &mut dyn Write,
        table: Table<T>,
        is_marked: impl Fn(&T) -> bool,
        (all, where_all_are): (usize, &str),
    ) -> io::Result<()> {
        let marks: Vec<bool> = std::iter::once(false).chain(table.items().iter().map(is_marked)).collect();
        for (line, is_marked) in table.lines(self.style.width).into_iter().zip(marks) {
            writeln!(out, "{}", if is_marked { self.style.yellow(&line) } else { line })?;
        }
        self.more(out, all, where_all_are)
    }
}

/// A number of faults.
pub(super) fn faults(number: u64) -> String {
    if number == 0 { "-".to_owned() } else { count(number) }
}

/// A time, if it is known.
pub(super) fn time(time: Option<u64>) -> String {
    time.map_or_else(|| "-".to_owned(), duration)
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
