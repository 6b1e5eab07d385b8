//! `--json`: the whole report, for programs.

use std::io::{self, Write};

use super::model::Report;

/// Writes the report as one line.
pub(crate) fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, report)?;
    writeln!(out)
}
