//! Facts other than calls in files: their faults, decisions about pairs, and marks of the program.

use std::collections::HashMap;
use std::io::{self, Write};

use super::{SHOWN, Text};
use crate::report::model::{Decision, File};
use crate::report::term::{self, clean};

impl Text<'_> {
    pub(super) fn problems(&self, out: &mut dyn Write) -> io::Result<()> {
        let files: Vec<&File> = self.report.files.iter().filter(|file| !file.problems.is_empty()).collect();
        if files.is_empty() {
            return Ok(());
        }
        self.title(out, "About the files")?;
        for file in files.iter().take(SHOWN) {
            for problem in &file.problems {
                self.line(out, &format!("  {}: {problem}", file.path), "    ")?;
            }
        }
        self.more(out, files.len(), "--json has all")
    }

    pub(super) fn decisions(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.report.decisions.is_empty() {
            return Ok(());
        }
        self.title(out, "Decisions")?;
        // A decision of several processes is told once; those that went wrong come first.
        let mut all: Vec<(&Decision, usize)> = Vec::new();
        let mut known = HashMap::new();
        for decision in &self.report.decisions {
            let index = *known.entry((decision.src, decision.dst, &decision.text)).or_insert(all.len());
            match all.get_mut(index) {
                Some((_, times)) => *times += 1,
                None => all.push((decision, 1)),
            }
        }
        all.sort_by_key(|(decision, _)| !decision.is_bad());
        for (decision, times) in all.iter().take(SHOWN) {
            let at = decision.time.saturating_sub(self.report.start()) as f64 / 1e9;
            let pair = match (decision.src, decision.dst) {
                (Some(src), Some(dst)) => format!("{} > {}", self.report.label(src), self.report.label(dst)),
                _ => "unknown pair".to_owned(),
            };
            let process = match self.report.files.len() {
                1 => String::new(),
                _ if *times > 1 => format!(" ({}, and {times} in all)", self.process(decision.file)),
                _ => format!(" ({})", self.process(decision.file)),
            };
            let text = format!("  {at:.3} s  {pair}{process}: {}", decision.text);
            let text = term::wrapped(&clean(&text), self.style.width, "      ");
            writeln!(out, "{}", if decision.is_bad() { self.style.yellow(&text) } else { text })?;
        }
        self.more(out, all.len(), "--json has all")
    }

    pub(super) fn marks(&self, out: &mut dyn Write) -> io::Result<()> {
        let marks = || self.report.files.iter().flat_map(|file| file.marks.iter().map(move |mark| (file, mark)));
        let count = marks().count();
        if count == 0 {
            return Ok(());
        }
        self.title(out, "Marks")?;
        for (file, mark) in marks().take(SHOWN) {
            let at = mark.time.saturating_sub(self.report.start()) as f64 / 1e9;
            let process = self.process(file.index);
            self.line(out, &format!("  {at:.3} s  {process}, thread {}: {}", mark.thread, mark.text), "      ")?;
        }
        self.more(out, count, "--json has all")
    }
}
