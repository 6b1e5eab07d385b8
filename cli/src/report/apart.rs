//! Reports of runs, each by itself: sums over several runs are true of none of them.

use std::error::Error;
use std::path::PathBuf;

use super::files::{self, Files};
use super::filter::Filter;
use super::gather::{self, Options};
use super::model::Report;
use super::suppressions::Suppressions;
use crate::runs::{self, Run};

/// The calls that are wanted, and the races that are not.
type Wanted<'a> = (&'a Filter, Option<&'a Suppressions>);

/// Reports of runs.
pub(crate) type Reports = Result<Vec<Report>, Box<dyn Error>>;

/// The reports of the runs at some paths, in the order in which they were started, of the calls that fit the filter.
///
/// The files are read once more if they are of several runs: only then it is known which belong together.
///
/// # Errors
/// There is no trace, or none that can be read.
pub(crate) fn by_run(paths: &[PathBuf], filter: &Filter, suppress: Option<&Suppressions>) -> Reports {
    let files = files::find(paths)?;
    let kept = runs::load(&files.runs);
    of(&files, &kept, (filter, suppress))
}

/// The reports of the traces of a run that has just ended; of several, if it is a job's.
///
/// # Errors
/// Likewise.
pub(crate) fn of_run(paths: &[PathBuf], run: &Run, suppress: Option<&Suppressions>) -> Reports {
    of(&files::find(paths)?, std::slice::from_ref(run), (&Filter::default(), suppress))
}

fn of(files: &Files, kept: &[Run], wanted: Wanted) -> Reports {
    let whole = gather_one(files, kept, wanted)?;
    if whole.runs.len() < 2 {
        return Ok(vec![whole]);
    }
    let of_run = |run: &super::model::Run| {
        let traces = run.files.iter().filter_map(|&file| Some(whole.files.get(file)?.location.clone())).collect();
        let mut report = gather_one(&Files { traces, ..Files::default() }, kept, wanted)?;
        // Those of the other runs.
        report.unseen.clear();
        Ok(report)
    };
    whole.runs.iter().map(of_run).collect()
}

fn gather_one(files: &Files, kept: &[Run], (filter, suppress): Wanted) -> Result<Report, Box<dyn Error>> {
    // A place may be suppressed by its line.
    let options = Options { symbols: suppress.is_some(), with_arguments: true, suppress, filter: None };
    let whole = gather::gather(files, kept, &options)?;
    if filter.is_empty() {
        return Ok(whole);
    }
    Ok(gather::gather(files, kept, &Options { filter: Some((filter, &whole)), ..options })?)
}
