//! `--json`: the whole report, for programs.

use std::io::{self, Write};

use serde::Serialize;

use super::model::Report;
use super::verdict;
use crate::judge::Sentence;

/// The output of `p2pshim report --json`: one JSON object. Times are nanoseconds since 1970, UTC, unless a
/// name ends with `_ns` (nanoseconds) or says `seconds`. Fields are never renamed within a version; new ones
/// may come.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(title = "p2pshim report --json"))]
struct Json<'a> {
    #[serde(flatten)]
    report: &'a Report,
    /// The report in sentences: first about missing data, then the worst first.
    verdict: Vec<Sentence>,
}

/// The report as a value.
pub(crate) fn value(report: &Report) -> io::Result<serde_json::Value> {
    Ok(serde_json::to_value(Json { report, verdict: verdict::sentences(report) })?)
}

/// Writes the report as one line.
pub(crate) fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    crate::json::write_line(&Json { report, verdict: verdict::sentences(report) }, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_schema_is_that_of_the_model() {
        crate::schema::compare::<Json>("report");
    }
}
