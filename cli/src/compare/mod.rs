//! `p2pshim compare`: two runs, or two folders of runs, and what got better or worse.
//!
//! `facts` has the figures of a run, by the report's own model; `judge` compares those of both sides, and makes a plain
//! `model::Comparison`, in the words of `words`. `text` and `page` write it.

mod facts;
mod judge;
mod model;
mod page;
mod text;
mod words;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::report::apart;
use crate::report::filter::Filter;
use crate::report::output;
use crate::report::term::Style;
use crate::report::{STDOUT, is_stdout};
use crate::status::{self, Refusal};
use crate::{json, numbers};
use facts::Facts;
use judge::Runs;
use model::{Comparison, Verdict};

/// The help's text after the options.
pub(crate) const EXAMPLES: &str = "\
Examples:
  p2pshim run --trace before ./app
  p2pshim run --trace after ./app
  p2pshim compare before after                      what got better or worse
  p2pshim compare before after -o page.html         the same as a page";

/// A form of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    #[value(alias = "txt")]
    Text,
    /// All of it, for programs
    Json,
    /// A page for a browser, which loads nothing
    #[value(alias = "htm")]
    Html,
}

/// The runs to compare, and the limits.
#[derive(Args)]
pub(crate) struct CompareArguments {
    /// A trace file, or a folder with the traces of one run or more
    before: PathBuf,
    /// A trace file, or a folder with the traces of one run or more
    after: PathBuf,
    /// Ignore differences up to so many percent
    #[arg(long, value_name = "PERCENT", default_value = "10", value_parser = numbers::percent)]
    threshold: f64,
    /// Write the comparison to FILE (- for standard output)
    #[arg(short = 'o', long = "output", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// text, json or html; else by suffix
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true)]
    format: Option<Format>,
    /// Write JSON to OUT (standard output if none), with or without other outputs
    #[arg(long, value_name = "OUT", num_args = 0..=1, require_equals = true, default_missing_value = STDOUT)]
    json: Option<PathBuf>,
    /// Write a page to OUT.html (- for standard output), with or without other outputs
    #[arg(long, value_name = "OUT.html")]
    html: Option<PathBuf>,
    /// Show all arguments of programs, not only the script's name
    #[arg(long)]
    with_arguments: bool,
}

impl CompareArguments {
    /// All forms that are asked for, and where each goes.
    ///
    /// # Errors
    /// Several would go to the same place, or the suffix of a file names no form.
    fn outputs(&self) -> Result<Vec<(Format, &Path)>, String> {
        let named = [(Format::Json, &self.json), (Format::Html, &self.html)];
        let all = output::places(&named, self.format, self.file.as_deref(), (Format::Text, true))?;
        Ok(all.into_iter().map(|(format, path)| (format, path.unwrap_or(Path::new(STDOUT)))).collect())
    }
}

/// Compares, and writes what is asked for. Returns the exit status.
///
/// # Errors
/// There is nothing to compare, or nothing can be written there.
pub(crate) fn run(arguments: &CompareArguments) -> Result<ExitCode, Box<dyn Error>> {
    let outputs = arguments.outputs().map_err(Refusal::Usage)?;
    outputs.iter().try_for_each(|(_, path)| output::check(path))?;
    let (before, after) = (load(&arguments.before)?, load(&arguments.after)?);
    let is_whole = before.runs.iter().chain(&after.runs).all(|run| run.is_whole && !run.is_at_least);
    let comparison = judge::compare(&before, &after, arguments.threshold, arguments.with_arguments);
    let written = outputs.into_iter().map(|(format, path)| {
        let style = if is_stdout(path) { Style::of_stdout() } else { Style::of_file() };
        output::write_to(path, |out| match format {
            Format::Text => text::write(&comparison, style, out),
            Format::Html => page::write(&comparison, out),
            Format::Json => json::write_line(&comparison, out),
        })
    });
    Ok(status::end(answer(&comparison, is_whole), written))
}

/// The comparison of two folders as text and JSON, if there are traces in both.
#[cfg(test)]
pub(crate) fn of_folders(folders: [&PathBuf; 2]) -> Option<(String, serde_json::Value)> {
    let [before, after] = folders.map(|folder| load(folder).ok());
    let comparison = judge::compare(&before?, &after?, 10.0, true);
    let mut out = Vec::new();
    text::write(&comparison, Style { colour: false, width: Some(80) }, &mut out).ok()?;
    Some((String::from_utf8(out).ok()?, serde_json::to_value(&comparison).ok()?))
}

fn answer(comparison: &Comparison, is_whole: bool) -> u8 {
    match comparison.verdict {
        Verdict::Worse => status::NEGATIVE,
        Verdict::Better | Verdict::Same if is_whole => status::GOOD,
        Verdict::Better | Verdict::Same | Verdict::NotComparable => status::UNKNOWN,
    }
}

fn load(path: &Path) -> Result<Runs, Box<dyn Error>> {
    let reports = apart::by_run(&[path.to_owned()], &Filter::default(), None);
    let reports = reports.map_err(|error| format!("{} cannot be compared: {error}", path.display()))?;
    Ok(Runs { path: path.display().to_string(), runs: reports.iter().map(Facts::of).collect() })
}
