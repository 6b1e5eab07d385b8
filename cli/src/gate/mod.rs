//! `--fail-on`: a program that does not keep to a condition does not pass, whatever it says itself.
//!
//! `condition` has the conditions, `judge` looks for what breaks them in the reports of runs, and `junit` writes what came
//! of it.

mod condition;
mod judge;
mod junit;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;

use crate::judge::Level;
use crate::report::apart::Reports;
use crate::report::output;
use crate::{complain, numbers};
use condition::{Condition, ConditionParser, What};

/// The conditions that a run has to meet.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Gate {
    /// Fail if a copy is staged, a call fails, …
    ///
    /// CONDITION is staged[=BYTES] (more than BYTES, else any, were staged, not counting the first copies of a pair), bounce (the program
    /// copied from GPU to GPU by its own copies through the host), hazard (a finding is a hazard), error (a call failed, or a finding is an
    /// error), finding[=ID] (there is a finding that is not a note, or the one with this ID), unverified (copies were direct between GPUs that
    /// were not verified), slow=GB/s (copies of at least 1 MiB of a pair were slower), race or possible-race (with --order: work on streams has
    /// no order, or may have none). A condition that cannot be judged fails too. A line says why.
    #[arg(long, value_name = "CONDITION", value_delimiter = ',', value_parser = ConditionParser, hide_possible_values = true)]
    fail_on: Vec<Condition>,
    /// The exit status in place of 0, if a condition is true
    #[arg(long, value_name = "N", default_value = "120", value_parser = numbers::whole::<u8>(1..=255), requires = "fail_on", hide_short_help = true)]
    fail_code: u8,
    /// Write the conditions to FILE as JUnit's XML
    #[arg(long, value_name = "FILE", requires = "fail_on", value_hint = clap::ValueHint::FilePath, hide_short_help = true)]
    junit: Option<PathBuf>,
}

/// A condition, why it is not kept to, and how long that took to find out, or the program.
struct Case {
    name: String,
    failure: Option<String>,
    seconds: f64,
}

/// The program that is judged.
#[derive(Debug, Default)]
pub(crate) struct Judged<'a> {
    /// As it was named.
    pub(crate) program: &'a str,
    /// Why it failed by itself, if it did.
    pub(crate) failure: Option<String>,
    /// When it was started, in nanoseconds since 1970, and how long it took.
    pub(crate) start: u64,
    pub(crate) seconds: f64,
}

impl Gate {
    /// Whether there is anything to keep to.
    pub(crate) fn is_set(&self) -> bool {
        !self.fail_on.is_empty()
    }

    /// Whether copies have to be timed.
    pub(crate) fn wants_times(&self) -> bool {
        self.fail_on.iter().any(|condition| matches!(condition.is, What::Slow(_)))
    }

    /// # Errors
    /// The file cannot be written; the text names it.
    pub(crate) fn check(&self) -> Result<(), Box<dyn Error>> {
        Ok(self.junit.as_deref().map_or(Ok(()), output::check)?)
    }

    /// Judges runs: says which conditions they do not keep to, and writes the file. Returns the exit status if there are any,
    /// or `failed` if the file could not be written.
    pub(crate) fn judge(&self, reports: Reports, program: Option<&Judged>, failed: u8) -> Option<u8> {
        let (runs, why_none) = match reports {
            Ok(runs) => (runs, String::new()),
            Err(error) => (Vec::new(), format!(": {error}")),
        };
        let has_bounce = self.fail_on.iter().any(|condition| condition.is == What::Bounce);
        let mut notes = Vec::new();
        let case = |condition: &Condition| {
            let begun = Instant::now();
            let mut failure = None;
            match judge::judge(condition, has_bounce, &runs) {
                Some(said) if said.level == Level::Note => notes.push(format!("{condition} passes, but {}", said.text)),
                Some(said) => failure = Some(format!("{}{why_none}", said.text)),
                None => {}
            }
            Case { name: condition.to_string(), failure, seconds: begun.elapsed().as_secs_f64() }
        };
        let cases: Vec<Case> = self.fail_on.iter().map(case).collect();
        let ended_well = program.is_none_or(|program| program.failure.is_none());
        let is_broken = cases.iter().any(|case| case.failure.is_some());
        for Case { name, failure, .. } in &cases {
            // A program that has failed by itself need not have come to anything.
            let Some(why) = failure.as_ref().filter(|_| ended_well || !runs.is_empty()) else { continue };
            let exit = if ended_well { format!("exit {}: ", self.fail_code) } else { String::new() };
            complain(format_args!("{exit}--fail-on {name}: {}.", why.trim_end_matches('.')));
        }
        notes.iter().take(1).for_each(|note| complain(format_args!("--fail-on {note}")));
        let is_written = self.junit.as_deref().is_none_or(|file| write(file, program, &runs, cases));
        match (is_broken, is_written) {
            (true, _) => Some(self.fail_code),
            (false, false) => Some(failed),
            _ => None,
        }
    }
}

/// Writes the cases, and before them that of the program itself. Returns whether that could be done.
fn write(file: &Path, program: Option<&Judged>, runs: &[crate::report::model::Report], mut cases: Vec<Case>) -> bool {
    let of_runs = || {
        let (first, last) = (runs.first()?, runs.last()?);
        let seconds = last.end().saturating_sub(first.start()) as f64 / 1e9;
        let program = first.runs.first().and_then(|run| run.command.first()).map_or("program", String::as_str);
        Some(Judged { program, failure: None, start: first.start(), seconds })
    };
    let own;
    let judged = match program {
        Some(program) => {
            let name = "the program itself".to_owned();
            cases.insert(0, Case { name, failure: program.failure.clone(), seconds: program.seconds });
            program
        }
        None => {
            own = of_runs().unwrap_or_default();
            &own
        }
    };
    let name = judged.program.rsplit('/').next().unwrap_or_default();
    let xml = junit::xml(name, judged.start, judged.seconds, &cases);
    let written = output::write_to(file, |out| out.write_all(xml.as_bytes()));
    written.inspect_err(|error| complain(error)).is_ok()
}
