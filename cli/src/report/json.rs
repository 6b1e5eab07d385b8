//! `--json`: the whole report, for programs.

use std::io::{self, Write};

use serde::Serialize;

use super::model::Report;
use super::sentence::Sentence;
use super::verdict;

/// The report, and what it comes to.
#[derive(Serialize)]
struct Json<'a> {
    #[serde(flatten)]
    report: &'a Report,
    verdict: Vec<Sentence>,
}

/// The report as a value.
pub(crate) fn value(report: &Report) -> io::Result<serde_json::Value> {
    Ok(serde_json::to_value(Json { report, verdict: verdict::sentences(report) })?)
}

/// Writes the report as one line.
pub(crate) fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Json { report, verdict: verdict::sentences(report) })?;
    writeln!(out)
}
