//! The report for a person in a hurry: the verdict first, then what stands out, then the tables.

mod copies;
mod findings;
mod functions;
mod head;
mod notes;
mod processes;
pub(crate) mod table;
mod unfinished;

use std::io::{self, Write};

use super::model::Report;
use super::sentence::{Level, Sentence};
use super::term::{self, Style, clean};
use super::verdict;

/// Rows of a list that are shown.
const SHOWN: usize = 20;

/// Writes the report.
pub(super) fn write(report: &Report, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let text = Text { report, style };
    if let Some(filter) = &report.filter {
        text.line(out, &format!("Only calls that fit {filter} are counted here."), "")?;
    }
    for sentence in verdict::first(report) {
        text.sentence(out, &sentence)?;
    }
    writeln!(out)?;
    text.head(out)?;
    text.runs(out)?;
    text.unfinished(out)?;
    text.last_copies(out)?;
    text.problems(out)?;
    text.pairs(out)?;
    text.sizes(out)?;
    text.processes(out)?;
    text.between_processes(out)?;
    text.unshared(out)?;
    text.nvlink(out)?;
    text.lines(out)?;
    text.callers(out)?;
    text.findings(out)?;
    text.errors(out)?;
    text.decisions(out)?;
    text.marks(out)?;
    text.functions(out)
}

/// A time since 1970, in UTC.
pub(crate) fn date(nanos: u64) -> String {
    let seconds = nanos / 1_000_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of the year 0: each 400 years have 146 097.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

struct Text<'a> {
    report: &'a Report,
    style: Style,
}

impl Text<'_> {
    fn title(&self, out: &mut dyn Write, title: &str) -> io::Result<()> {
        writeln!(out, "\n{}", self.style.bold(title))
    }

    fn sentence(&self, out: &mut dyn Write, Sentence { level, text, more, .. }: &Sentence) -> io::Result<()> {
        for line in term::wrapped(&clean(text), self.style.width, "").lines() {
            writeln!(out, "{}", if *level == Level::Bad { self.style.red(line) } else { self.style.bold(line) })?;
        }
        more.as_ref().map_or(Ok(()), |more| self.line(out, more, ""))
    }

    fn line(&self, out: &mut dyn Write, text: &str, indent: &str) -> io::Result<()> {
        writeln!(out, "{}", term::wrapped(&clean(text), self.style.width, indent))
    }

    fn more(&self, out: &mut dyn Write, all: usize, where_all_are: &str) -> io::Result<()> {
        match all.checked_sub(SHOWN) {
            Some(more @ 1..) => writeln!(out, "  {}", self.style.dim(&format!("and {more} more ({where_all_are})"))),
            _ => Ok(()),
        }
    }

    /// Which process it was.
    fn process(&self, file: usize) -> String {
        let Some(file) = self.report.files.get(file) else { return String::new() };
        let rank = file.rank.as_ref().map(|rank| format!("rank {rank}, ")).unwrap_or_default();
        let host = file.host.as_ref().map(|host| format!("{host}, ")).unwrap_or_default();
        format!("{rank}{host}pid {}", file.process.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_leap_years_and_centuries() {
        for (seconds, shown) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_799, "2000-02-29 23:59:59 UTC"),
            (1_709_164_800, "2024-02-29 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(date(seconds * 1_000_000_000), shown);
        }
        assert!(date(u64::MAX).starts_with("2554-07-21"));
    }
}
