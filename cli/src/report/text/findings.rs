//! The faults of calls: findings and errors, and where they came from.

use std::io::{self, Write};

use super::{SHOWN, Text};
use crate::report::model::Site;
use crate::report::term::{self, clean, counted};
use crate::report::{order, verdict};

/// Places that are shown of each finding and error.
const SITES: usize = 4;

impl Text<'_> {
    pub(super) fn findings(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.report.findings.is_empty() {
            return Ok(());
        }
        self.title(out, "Findings (p2pshim explain ID says more)")?;
        for finding in self.report.findings.iter().take(SHOWN) {
            let head = format!("{} {}", finding.severity, finding.rule);
            let head = match finding.severity.as_str() {
                "error" => self.style.red(&clean(&head)),
                "hazard" => self.style.yellow(&clean(&head)),
                _ => clean(&head),
            };
            let least = verdict::least(self.report, finding);
            writeln!(out, "  {head}, found in {least}{}", counted(finding.count, "call"))?;
            if let Some(text) = finding.text.as_ref().filter(|_| !finding.is_told) {
                self.line(out, &format!("      {text}"), "      ")?;
            }
            self.sites(out, &finding.sites)?;
        }
        self.more(out, self.report.findings.len(), "--json has all")
    }

    pub(super) fn races(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.report.races.is_empty() {
            return Ok(());
        }
        self.title(out, "Order (p2pshim explain P2P-race says how to read it)")?;
        for race in self.report.races.iter().take(SHOWN) {
            let (first, second) = (order::on_stream(&race.first), order::on_stream(&race.second));
            let (first, second) = (format!("{first} {}", race.first.verb), format!("{second} {}", race.second.verb));
            self.line(
                out,
                &format!("  {}: {first}, then {second}: {}", race.level, term::bytes(race.bytes)),
                "      ",
            )?;
            self.line(out, &format!("      {}", order::remedy(race)), "      ")?;
        }
        self.more(out, self.report.races.len(), "--json has all")
    }

    pub(super) fn errors(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.report.errors.is_empty() {
            return Ok(());
        }
        self.title(out, "Errors")?;
        for error in self.report.errors.iter().take(SHOWN) {
            let code = match &error.name {
                Some(name) => format!("{name} ({})", error.code),
                None => error.code.to_string(),
            };
            let calls = counted(error.count, "call");
            let text = format!("  {} = {code}, {}{calls}", error.function, self.report.least());
            self.line(out, &text, "      ")?;
            self.sites(out, &error.sites)?;
        }
        self.more(out, self.report.errors.len(), "--json has all")
    }

    pub(super) fn unshared(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.report.unshared.is_empty() {
            return Ok(());
        }
        self.title(out, "Sharing memory between processes")?;
        for row in self.report.unshared.iter().take(SHOWN) {
            let code = row.name.as_ref().map_or_else(|| row.code.to_string(), |name| format!("{name} ({})", row.code));
            let calls = counted(row.count, "call");
            let text = format!("  {}: {} = {code}, {}{calls}", row.why, row.function, self.report.least());
            self.line(out, &text, "      ")?;
            self.line(out, &format!("      {}", row.remedy), "      ")?;
            self.sites(out, &row.sites)?;
        }
        self.more(out, self.report.unshared.len(), "--json has all")
    }

    fn sites(&self, out: &mut dyn Write, sites: &[Site]) -> io::Result<()> {
        for Site { from, count } in sites.iter().take(SITES) {
            let times = if *count > 1 { format!(", {} times", term::count(*count)) } else { String::new() };
            self.line(out, &format!("      at {from}{times}"), "        ")?;
        }
        match sites.len().checked_sub(SITES) {
            Some(more @ 1..) => {
                writeln!(out, "      {}", self.style.dim(&format!("and at {}", counted(more as u64, "other place"))))
            }
            _ => Ok(()),
        }
    }
}
