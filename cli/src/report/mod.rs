//! `p2pshim report`: what trace files tell. All ranks of a job, from any number of hosts, are read together, by the clock on
//! the wall.
//!
//! `gather` reads files into a `model::Report`, a part at a time: `tally` counts the records of a file, `totals` adds up
//! files by names that mean the same in all of them. `verdict` has what is said first, with `broken`, `ends` and `traffic`, of `sentence`s.
//! `text`, `json`, `csv` and `html` write the report; `figures` has
//! those of the page in the words of the text. `apart` makes a report of each run. `hang` says what programs are in that run (`live`).
//! `calls` and `perfetto` read the files again, in the order of time (`merge`).

pub(crate) mod apart;
mod bounces;
pub(crate) mod broken;
mod buckets;
mod calls;
mod contexts;
mod csv;
mod ends;
pub(crate) mod failures;
mod figures;
pub(crate) mod files;
pub(crate) mod filter;
pub(crate) mod gather;
mod hang;
mod histogram;
mod html;
mod json;
mod judged;
mod live;
mod lost;
mod merge;
pub(crate) mod model;
mod names;
mod nvlink;
pub(crate) mod order;
pub(crate) mod output;
mod paths;
mod perfetto;
mod processes;
mod python;
mod rates;
mod runtime;
#[cfg(test)]
#[path = "../../tests/scene/mod.rs"]
pub(crate) mod scene;
mod sentence;
mod shared;
mod suppressions;
mod suspect;
mod symbols;
mod tally;
pub(crate) mod term;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod timeline;
mod totals;
pub(crate) mod traffic;
mod unshared;
mod verdict;

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use p2pshim_host::config::Config;
use p2pshim_trace::Trace;

use crate::gate::Gate;
use crate::judge::Level;
use crate::runs::{self, Run};
use crate::status::{self, Refusal};
use crate::{complain, numbers};
use filter::Filter;
use gather::Options;
pub(crate) use hang::{EXAMPLES as EXAMPLES_OF_HANG, LiveArguments, hang, ps};
use model::Report;
pub(crate) use output::{STDOUT, check as check_output, is_stdout, named, write_for_others};
pub(crate) use processes::without_arguments;
pub(crate) use suppressions::Suppressions;
use term::Style;
pub(crate) use term::wrapped;

/// A form of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[value(alias = "txt")]
    Text,
    /// All of it, for programs
    Json,
    /// The pairs of GPUs, for spreadsheets
    Csv,
    /// A page for a browser, which loads nothing
    #[value(alias = "htm")]
    Html,
    /// Calls and copies for ui.perfetto.dev and chrome://tracing
    Perfetto,
    /// A line for each call, like strace
    Calls,
}

/// Where the report goes, and in which forms.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Output {
    /// Write the report to FILE (- for standard output)
    ///
    /// Without --format the suffix of FILE names the form: txt, json, csv, html, perfetto or calls. Without a suffix it is text.
    #[arg(short = 'o', long = "output", value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// text, json, csv, html, perfetto, calls
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true)]
    format: Option<Format>,
    /// Write JSON to OUT (standard output if none), with or without other outputs
    #[arg(long, value_name = "OUT", num_args = 0..=1, require_equals = true, default_missing_value = STDOUT, hide_short_help = true)]
    json: Option<PathBuf>,
    /// Write CSV to OUT (standard output if none), with or without other outputs
    #[arg(long, value_name = "OUT", num_args = 0..=1, require_equals = true, default_missing_value = STDOUT, hide_short_help = true)]
    csv: Option<PathBuf>,
    /// Write a line for each call to OUT (standard output if none), with or without other outputs
    #[arg(long, value_name = "OUT", num_args = 0..=1, require_equals = true, default_missing_value = STDOUT, hide_short_help = true)]
    calls: Option<PathBuf>,
    /// Write Perfetto's form to OUT.json (- for standard output), with or without other outputs
    #[arg(long, value_name = "OUT.json", hide_short_help = true)]
    perfetto: Option<PathBuf>,
    /// Write a page to OUT.html (- for standard output), with or without other outputs
    #[arg(long, value_name = "OUT.html", hide_short_help = true)]
    html: Option<PathBuf>,
    /// Show all arguments of programs, not only the script's name
    #[arg(long, hide_short_help = true)]
    with_arguments: bool,
    /// Leave out the races that FILE gives reasons for
    ///
    /// A line of FILE has `place`, `library` or `kernel`, a pattern, and the reason; see docs/ORDER.md
    #[arg(long, value_name = "FILE", value_parser = Suppressions::read, value_hint = clap::ValueHint::FilePath, hide_short_help = true)]
    suppress: Option<Suppressions>,
}

impl Output {
    /// All forms that are asked for, and where each goes; none if that is where the command writes. The output of `run` is its program's, so
    /// that a form has to name it.
    ///
    /// # Errors
    /// Several would go to the same place, or the suffix of a file names no form.
    fn all(&self, is_of_run: bool) -> Result<Vec<(Format, Option<&Path>)>, String> {
        let named = [
            (Format::Json, &self.json),
            (Format::Csv, &self.csv),
            (Format::Calls, &self.calls),
            (Format::Perfetto, &self.perfetto),
            (Format::Html, &self.html),
        ];
        output::places(&named, self.format, self.file.as_deref(), (Format::Text, !is_of_run))
    }

    /// The first file that something is to be written to.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.all(true).ok()?.into_iter().filter_map(|(_, path)| path).find(|path| !output::is_stdout(path))
    }

    /// The races that are to be left out.
    pub(crate) fn suppress(&self) -> Option<&Suppressions> {
        self.suppress.as_ref()
    }

    /// # Errors
    /// A file cannot be written, or would take two forms; the text names it.
    pub(crate) fn check(&self) -> Result<(), Box<dyn Error>> {
        Ok(self
            .all(true)
            .map_err(Refusal::Usage)?
            .into_iter()
            .filter_map(|(_, path)| path)
            .try_for_each(output::check)?)
    }
}

/// The report that the user asks for.
#[derive(Args)]
pub(crate) struct ReportArguments {
    /// Trace files, or folders with them; all ranks are reported together
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    output: Output,
    /// Do not look up functions and source lines
    #[arg(long)]
    no_symbols: bool,
    /// List at most N calls
    #[arg(long, value_name = "N", value_parser = numbers::whole::<u64>(0..=u64::MAX), hide_short_help = true)]
    limit: Option<u64>,
    #[command(flatten)]
    gate: Gate,
    #[command(flatten)]
    filter: Filter,
}

/// Reads the files and writes what is asked for. Returns the exit status.
///
/// # Errors
/// There is nothing to report, or an output cannot be written.
pub(crate) fn run(arguments: &ReportArguments) -> Result<ExitCode, Box<dyn Error>> {
    let ReportArguments { paths, filter, no_symbols, limit, gate, .. } = arguments;
    gate.check()?;
    let outputs = arguments.output.all(false).map_err(Refusal::Usage)?;
    let (symbols, with_arguments) = (!no_symbols, arguments.output.with_arguments);
    let suppress = arguments.output.suppress();
    if limit.is_some() && !outputs.iter().any(|(format, _)| *format == Format::Calls) {
        return Err(Refusal::Usage("--limit is for --format calls".to_owned()).into());
    }
    filter.check_order().map_err(Refusal::Usage)?;
    let files = files::find(paths).map_err(files::Error::refused)?;
    let runs = runs::load(&files.runs);
    let whole = gather::gather(&files, &runs, &Options { symbols, with_arguments, suppress, filter: None })?;
    let filtered = match filter.is_empty() {
        true => None,
        false => {
            filter.check(&whole).map_err(Refusal::NoneFound)?;
            let options = Options { symbols, with_arguments, suppress, filter: Some((filter, &whole)) };
            let of_some = gather::gather(&files, &runs, &options)?;
            if of_some.functions.is_empty() && of_some.pairs.is_empty() {
                return Err(Refusal::NoneFound(filter.nothing(&whole)).into());
            }
            Some(of_some)
        }
    };
    let shown = filtered.as_ref().unwrap_or(&whole);
    let forms = Forms { whole: &whole, shown, filter, most: limit.unwrap_or(u64::MAX), symbols };
    if outputs.iter().all(|(format, _)| *format != Format::Text) {
        say_problems(&whole);
    }
    let written = outputs.into_iter().map(|(format, path)| {
        let path = path.unwrap_or(Path::new(STDOUT));
        output::write_to(path, |out| {
            let style = if output::is_stdout(path) { Style::of_stdout() } else { Style::of_file() };
            forms.write(format, style, out)
        })
    });
    let written: Vec<io::Result<()>> = written.collect();
    let judged = || gate.judge(apart::by_run(paths, filter, suppress), None, status::UNKNOWN);
    let broken = gate.is_set().then(judged).flatten();
    let answer =
        broken.unwrap_or(if whole.is_whole() && !whole.is_at_least() { status::GOOD } else { status::UNKNOWN });
    Ok(status::end(answer, written))
}

/// A report that can be written in each form.
struct Forms<'a> {
    /// The report of all calls.
    whole: &'a Report,
    /// The report of the calls that are wanted.
    shown: &'a Report,
    filter: &'a Filter,
    /// How many calls are listed at most.
    most: u64,
    symbols: bool,
}

impl Forms<'_> {
    fn write(&self, format: Format, style: Style, mut out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Text => text::write(self.shown, style, out),
            Format::Json => json::write(self.shown, &mut out),
            Format::Csv => csv::write(self.shown, &mut out),
            Format::Html => {
                let mut json = json::value(self.shown)?;
                figures::add(&mut json);
                html::write(&json.to_string(), out)
            }
            Format::Perfetto | Format::Calls => self.list(format, out),
        }
    }

    /// Reads the files again and lists calls.
    fn list(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        let Self { whole, symbols, .. } = *self;
        let sources = merge::sources(whole, |file| Trace::open(&file.location))?;
        let selections = match self.filter.is_empty() {
            true => Vec::new(),
            false => self.filter.of_sources(whole, &sources),
        };
        match format {
            Format::Perfetto => perfetto::write(whole, &sources, &selections, symbols, out),
            _ => calls::write(whole, &sources, &selections, self.most, symbols, out),
        }
    }
}

/// Writes the report of the traces of a run that has just ended. A form without a place goes to standard error; and if the run is `quiet`, only if
/// something is wrong. Returns, if a text was written there, whether it has copies and none of its sentences is bad.
///
/// # Errors
/// No trace can be read, or the report cannot be written.
pub(crate) fn of_run(
    traces: &[PathBuf],
    run: &Run,
    output: &Output,
    quiet: bool,
    config: &Config,
) -> Result<Option<bool>, Box<dyn Error>> {
    let files = files::find(traces)?;
    let suppress = output.suppress();
    let options = Options { symbols: true, with_arguments: output.with_arguments, suppress, filter: None };
    let mut report = gather::gather(&files, std::slice::from_ref(run), &options)?;
    let mut outputs = output.all(true)?;
    if outputs.iter().all(|(format, _)| *format != Format::Text) {
        say_problems(&report);
    }
    // A file's report is whole.
    outputs.sort_by_key(|(_, path)| path.is_none());
    for (format, path) in outputs {
        let forms = |report: &Report, style: Style, out: &mut dyn Write| {
            let filter = &Filter::default();
            Forms { whole: report, shown: report, filter, most: u64::MAX, symbols: true }.write(format, style, out)
        };
        if let Some(path) = path {
            let style = if is_stdout(path) { Style::of_stdout() } else { Style::of_file() };
            output::write_to(path, |out| forms(&report, style, out))?;
            continue;
        }
        if quiet && verdict::is_fine(&report) {
            continue;
        }
        if format == Format::Text {
            // Findings that the log has told in full, on the same standard error, are not told again.
            for finding in report.findings.iter_mut().filter(|finding| config.logs_finding(finding.severity == "note"))
            {
                finding.is_told = true;
            }
        }
        let mut out = io::BufWriter::new(io::stderr().lock());
        forms(&report, Style::of_stderr(), &mut out)?;
        out.flush()?;
        let has_copies = report.pairs.iter().any(|pair| pair.src != pair.dst && pair.calls > 0);
        let is_well = has_copies && verdict::sentences(&report).iter().all(|it| it.level != Level::Bad);
        return Ok((format == Format::Text).then_some(is_well));
    }
    Ok(None)
}

/// Columns of standard output, if it has any.
pub(crate) fn width() -> Option<usize> {
    Style::of_stdout().width
}

/// Says on standard error what NVLink carried, where there is no trace.
pub(crate) fn print_nvlink_to_stderr(readings: &[PathBuf]) {
    for text in nvlink::of_no_trace(&crate::nvlink::load(readings)) {
        complain(text);
    }
}

/// Says on standard error what is wrong with the files, where the output is not for people.
fn say_problems(report: &Report) {
    const SAID: usize = 20;
    let problems = report.files.iter().flat_map(|file| file.problems.iter().map(move |problem| (file, problem)));
    for (file, problem) in problems.clone().take(SAID) {
        complain(format_args!("{}: {problem}", file.path));
    }
    if let Some(more @ 1..) = problems.count().checked_sub(SAID) {
        complain(format_args!("and {more} more about the files; the report as text lists them"));
    }
}
