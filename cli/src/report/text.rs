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
use super::term::{self, Style, clean};
use super::verdict;
use crate::judge::{Level, Sentence};

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
    text.races(out)?;
    text.findings(out)?;
    text.errors(out)?;
    text.decisions(out)?;
    text.marks(out)?;
    text.functions(out)
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
