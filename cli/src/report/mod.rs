//! `p2pshim report`: what trace files tell. All ranks of a job, from any number of hosts, are read together, by the clock on
//! the wall.
//!
//! `gather` reads files into a `model::Report`, a part at a time: `tally` counts the records of a file, `totals` adds up
//! files by names that mean the same in all of them. `text`, `json` and `csv` write the report. `calls` and `perfetto` read
//! the files again, in the order of time (`merge`).

mod buckets;
mod calls;
mod csv;
mod files;
mod filter;
mod gather;
mod histogram;
mod html;
mod json;
mod lost;
mod merge;
mod model;
mod names;
mod nvlink;
mod output;
mod perfetto;
mod processes;
mod rates;
mod runtime;
#[cfg(test)]
#[path = "../../tests/scene/mod.rs"]
mod scene;
mod symbols;
mod tally;
mod term;
#[cfg(test)]
mod tests;
mod text;
mod timeline;
mod totals;
mod verdict;

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use p2pshim_trace::Trace;

use filter::Filter;
use gather::Options;
use model::Report;
use term::Style;

/// The exit status if a report was made, but not of all that the files should hold.
const IN_PART: u8 = 3;

/// What to report.
#[derive(Args)]
pub(crate) struct ReportArguments {
    /// Trace files, or folders of them (*.p2ptrace): all ranks of a job together
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Print the report as JSON, or write it to a file
    #[arg(long, value_name = "OUT", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// Print the pairs of GPUs as comma-separated values, or write them to a file
    #[arg(long, value_name = "OUT", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    csv: Option<PathBuf>,
    /// Print a line for each call, in order of time, or write them to a file
    #[arg(long, value_name = "OUT", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    calls: Option<PathBuf>,
    /// Write calls and copies for ui.perfetto.dev or chrome://tracing; - for standard output
    #[arg(long, value_name = "OUT.json")]
    perfetto: Option<PathBuf>,
    /// Write a page for a browser, in one file that loads nothing; - for standard output
    #[arg(long, value_name = "OUT.html")]
    html: Option<PathBuf>,
    /// Show modules and offsets only, without functions and lines
    #[arg(long)]
    no_symbols: bool,
    #[command(flatten)]
    filter: Filter,
}

impl ReportArguments {
    /// All outputs that are asked for.
    fn outputs(&self) -> [Option<&Path>; 5] {
        [&self.json, &self.csv, &self.calls, &self.perfetto, &self.html].map(|path| path.as_deref())
    }
}

/// Reads the files and writes what is asked for. Returns the exit status.
///
/// # Errors
/// There is nothing to report, or an output cannot be written.
pub(crate) fn run(arguments: &ReportArguments) -> Result<ExitCode, Box<dyn Error>> {
    let symbols = !arguments.no_symbols;
    if arguments.outputs().iter().flatten().filter(|path| output::is_stdout(path)).count() > 1 {
        return Err(
            "only one of --json, --csv, --calls, --perfetto and --html can go to standard output; name a file for the \
                    others, such as --json=out.json"
                .into(),
        );
    }
    let report = gather::gather(&arguments.paths, &Options { symbols })?;
    let is_text = arguments.outputs().iter().all(Option::is_none);
    if is_text {
        output::write_to(Path::new("-"), |out| text::write(&report, Style::of_stdout(), out))?;
    } else {
        complain(&report);
        write_files(arguments, &report, symbols)?;
    }
    Ok(if report.is_whole() { ExitCode::SUCCESS } else { ExitCode::from(IN_PART) })
}

/// Prints the report of these traces on standard error, for a run that has just ended.
///
/// # Errors
/// None of them can be read, or the report not be written.
pub(crate) fn print_to_stderr(traces: &[PathBuf]) -> Result<(), Box<dyn Error>> {
    let report = gather::gather(traces, &Options { symbols: true })?;
    let mut out = io::BufWriter::new(io::stderr().lock());
    text::write(&report, Style::of_stderr(), &mut out)?;
    Ok(io::Write::flush(&mut out)?)
}

/// Says on standard error what NVLink carried, where there is no trace.
pub(crate) fn print_nvlink_to_stderr(readings: &[PathBuf]) {
    for text in nvlink::of_no_trace(&nvlink::load(readings)) {
        eprintln!("p2pshim: {text}");
    }
}

fn write_files(arguments: &ReportArguments, report: &Report, symbols: bool) -> io::Result<()> {
    if let Some(path) = &arguments.json {
        output::write_to(path, |mut out| json::write(report, &mut out))?;
    }
    if let Some(path) = &arguments.csv {
        output::write_to(path, |mut out| csv::write(report, &mut out))?;
    }
    if let Some(path) = &arguments.html {
        let mut json = Vec::new();
        json::write(report, &mut json)?;
        output::write_to(path, |out| html::write(&String::from_utf8_lossy(&json), out))?;
    }
    if arguments.calls.is_none() && arguments.perfetto.is_none() {
        return Ok(());
    }
    let sources = merge::sources(report, |file| Trace::open(&file.location))?;
    if let Some(path) = &arguments.calls {
        output::write_to(path, |out| calls::write(report, &sources, &arguments.filter, symbols, out))?;
    }
    if let Some(path) = &arguments.perfetto {
        output::write_to(path, |out| perfetto::write(report, &sources, symbols, out))?;
    }
    Ok(())
}

/// Says on standard error what is wrong with the files, where the output is not for people.
fn complain(report: &Report) {
    const SAID: usize = 20;
    let problems = report.files.iter().flat_map(|file| file.problems.iter().map(move |problem| (file, problem)));
    for (file, problem) in problems.clone().take(SAID) {
        eprintln!("p2pshim: {}", term::clean(&format!("{}: {problem}", file.path)));
    }
    if let Some(more @ 1..) = problems.count().checked_sub(SAID) {
        eprintln!("p2pshim: and {more} more about the files; the report without options lists them");
    }
}
