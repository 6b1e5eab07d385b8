//! `--json`: the whole report, for programs.

use std::io::{self, Write};

use serde::Serialize;

use super::model::Report;
use super::sentence::Sentence;
use super::verdict;

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
    serde_json::to_writer(&mut *out, &Json { report, verdict: verdict::sentences(report) })?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use schemars::Schema;
    use schemars::generate::SchemaSettings;
    use schemars::transform::RecursiveTransform;
    use serde_json::Value;

    use super::*;

    /// Descriptions are the comments of the fields. `P2PSHIM_UPDATE=1` writes it anew.
    #[test]
    fn json_schema_is_that_of_the_model() {
        const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/schema/report.schema.json");
        let plain = |schema: &mut Schema| {
            // Names of Rust's types.
            schema.remove("format");
            if let Some(Value::String(text)) = schema.get_mut("description") {
                *text = text.replace('\n', " ");
            }
        };
        let settings = SchemaSettings::draft07().for_serialize().with_transform(RecursiveTransform(plain));
        let schema =
            serde_json::to_string_pretty(&settings.into_generator().into_root_schema_for::<Json>()).unwrap() + "\n";
        if std::env::var_os("P2PSHIM_UPDATE").is_some() {
            fs::write(FILE, &schema).unwrap();
        }
        assert!(fs::read_to_string(FILE).unwrap() == schema, "{FILE} is out of date: P2PSHIM_UPDATE=1 writes it anew");
    }
}
