//! Exit statuses: one table for all commands. Their help and docs/USAGE.md have it too.
//!
//! To add a command, add a row to [`TABLE`]; a command ends by [`end`], or by an error that [`of_error`] knows.

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::process::ExitCode;

use crate::complain;

/// The good answer.
pub(crate) const GOOD: u8 = 0;
/// The command's own negative answer. No failure of ours ends with it.
pub(crate) const NEGATIVE: u8 = 1;
pub(crate) const USAGE: u8 = 2;
/// There is no answer, or not all of it.
pub(crate) const UNKNOWN: u8 = 3;
/// `run`: this command itself failed; these are those of env(1).
pub(crate) const FAILED: u8 = 125;
/// `run`: the program is there and cannot be started.
pub(crate) const NOT_STARTED: u8 = 126;
/// `run`: there is no such program.
pub(crate) const NOT_FOUND: u8 = 127;

/// The meanings of statuses. docs/USAGE.md has both.
const TABLE: &str = "\
| command | 0 | 1 | 3, also if something cannot be read or written | 120 |
| --- | --- | --- | --- | --- |
| `doctor` | every pair is verified, or has no path | a pair is unsafe: it lost data, or hung | a pair could not be verified, or nothing tested | – |
| `fleet` | every machine was tested, and none is unsafe; some may stand out | a machine is unsafe | something was not tested | – |
| `report` | all was reported | there is no trace, or no call that fits the filters | a file was damaged, cut off, or of a later version, or not all calls were recorded | a condition of --fail-on is true, or cannot be judged |
| `compare` | the same, or better | worse, by more than --threshold | the two cannot be compared; or nothing is worse, but a run is not whole | – |
| `hang` | no process has been in a call for a second or more, and none ended in one | a process has been in a call for a second or more, or ended in one; or a rank ended badly, is stopped or is missing | there is no program | – |
| `ps` | processes are listed | there is no program | – | – |
| `explain` | it is explained | it is no code, finding or path | – | – |
| `options`, `apis`, `completions`, `man` | it is written | – | – | – |";
const OF_RUN: &str = "\
| `run` | |
| --- | --- |
| N | the program's own; if a signal ended the program, p2pshim ends by that signal |
| 120 | a condition of --fail-on is true, or cannot be judged, and the program ended with 0 |
| 2 | wrong usage |
| 125 | p2pshim failed before it started the program; or the program ended with 0, and p2pshim could not write a file that an option names |
| 126 | the program exists but cannot be started |
| 127 | no such program |";

/// The help's text on a command's statuses.
pub(crate) fn help(command: &str) -> String {
    let mut text = "Exit status:".to_owned();
    let mut line = |status: &str, meaning: &str| text += &format!("\n  {status:<3}  {meaning}");
    let row = |row: &'static str| row.trim_matches(['|', ' ']).split_once(" | ");
    let (name, failed) = (format!("`{command}`"), "something cannot be read or written");
    let Some((_, meanings)) = TABLE.lines().filter_map(row).find(|(commands, _)| commands.contains(&name)) else {
        OF_RUN.lines().skip(2).filter_map(row).for_each(|(status, meaning)| line(status, meaning));
        return text;
    };
    for (status, meaning) in ["0", "1", "3", "120"].into_iter().zip(meanings.split(" | ")) {
        match (status, meaning) {
            ("3", "–") => line("3", failed),
            ("3", _) => line("3", &format!("{meaning}; or {failed}")),
            (_, "–") => {}
            _ => line(status, meaning),
        }
        if status == "1" {
            line("2", "wrong usage");
        }
    }
    text
}

/// An error that is no failure of ours.
#[derive(Debug)]
pub(crate) enum Refusal {
    Usage(String),
    /// Nothing fits the request.
    NoneFound(String),
}

impl Refusal {
    pub(crate) fn none_found(error: impl Display) -> Self {
        Self::NoneFound(error.to_string())
    }
}

impl Error for Refusal {}

impl Display for Refusal {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let (Self::Usage(text) | Self::NoneFound(text)) = self;
        out.write_str(text)
    }
}

/// Ends with an answer, whatever became of the output. A reader that closed the pipe has what it wanted.
pub(crate) fn end(answer: u8, written: impl IntoIterator<Item = io::Result<()>>) -> ExitCode {
    let mut status = answer;
    for error in written.into_iter().filter_map(Result::err) {
        if error.kind() == io::ErrorKind::BrokenPipe {
            continue;
        }
        complain(error);
        status = if answer == GOOD { UNKNOWN } else { answer };
    }
    ExitCode::from(status)
}

/// Says why a command has no answer, and ends.
pub(crate) fn of_error(error: Box<dyn Error>) -> ExitCode {
    let error = match error.downcast::<io::Error>() {
        Ok(error) => return end(GOOD, [Err(*error)]),
        Err(error) => error,
    };
    complain(&error);
    ExitCode::from(match error.downcast_ref() {
        Some(Refusal::Usage(_)) => USAGE,
        Some(Refusal::NoneFound(_)) => NEGATIVE,
        None => UNKNOWN,
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Arguments;

    #[test]
    fn table_is_that_of_the_document_and_each_help_has_its_rows() {
        let document = include_str!("../../docs/USAGE.md");
        assert!(
            document.contains(&format!("{TABLE}\n\n{OF_RUN}\n")),
            "docs/USAGE.md has to have:\n{TABLE}\n\n{OF_RUN}"
        );
        let mut all = Arguments::command();
        all.build();
        for command in all.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help") {
            let below = command.get_subcommands().filter(|below| below.get_name() != "help");
            let below = below.map(|below| (format!("{} {}", command.get_name(), below.get_name()), below));
            for (name, command) in below.chain([(command.get_name().to_owned(), command)]) {
                let shown = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
                assert!(shown.contains(&help(&name)), "{name}: {shown}");
                assert!(name == "run" || help(&name) != help("run"), "{name} has no row");
            }
        }
    }

    #[test]
    fn end_a_lost_output_takes_no_answer_with_it() {
        let lost = |kind: io::ErrorKind| [Ok(()), Err(kind.into())];
        for (answer, kind, status) in [
            (GOOD, io::ErrorKind::StorageFull, UNKNOWN),
            (GOOD, io::ErrorKind::BrokenPipe, GOOD),
            (NEGATIVE, io::ErrorKind::StorageFull, NEGATIVE),
            (NEGATIVE, io::ErrorKind::BrokenPipe, NEGATIVE),
            (UNKNOWN, io::ErrorKind::BrokenPipe, UNKNOWN),
        ] {
            assert_eq!(end(answer, lost(kind)), ExitCode::from(status), "{answer} {kind}");
        }
        assert_eq!(end(GOOD, []), ExitCode::SUCCESS);
    }
}
