//! The shim's options as arguments: made from the shim's own table, so that a row there is an argument here.

use std::ffi::OsString;
use std::path::{self, PathBuf};

use clap::builder::{OsStringValueParser, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgMatches};
use p2pshim_host::config::{PREFIX, Variable};

/// The first values of an option that is on or off.
const SWITCH: &str = "off|on";

/// The title that the arguments stand under.
const TITLE: &str = "Options of the shim";

/// The words of `-h` for the options that it shows.
const SHORT: [(&str, &str); 3] = [
    ("P2PSHIM_ACCESS", "Let p2pshim, the app or nobody enable peer access"),
    ("P2PSHIM_LOG", "Log at this level: warn, or trace for each call"),
    ("P2PSHIM_TRACE", "Keep the trace in FOLDER, for p2pshim report"),
];

/// An argument for each option but the switch that turns the shim off.
pub(super) fn arguments() -> impl Iterator<Item = Arg> {
    variables().map(|variable| {
        let (name, [values, help, _]) = (variable.name(), variable.texts());
        let default = match variable.default() {
            "" => String::new(),
            default => format!("; default: {default}"),
        };
        // Values of more than a word do not fit where the value stands.
        let explained = if values.contains(' ') { format!(": {values}") } else { String::new() };
        let long_help = format!("{help} [{name}{explained}{default}]");
        let short = SHORT.iter().find(|(of, _)| *of == name).map(|(_, short)| *short);
        let argument = Arg::new(name).long(long_name(name)).help_heading(TITLE).allow_hyphen_values(false);
        let argument = argument.help(short.unwrap_or(help)).long_help(long_help);
        let argument = argument.hide_short_help(short.is_none());
        if are_words(values) {
            let parser = PossibleValuesParser::new(values.split('|')).map(OsString::from);
            let argument =
                argument.value_name(values).hide_possible_values(true).value_parser(ValueParser::new(parser));
            if !values.starts_with(SWITCH) {
                return argument;
            }
            // The word after a space is the program.
            return argument.num_args(0..=1).require_equals(true).default_missing_value("on");
        }
        let parser = OsStringValueParser::new().try_map(move |value| checked(variable, value));
        argument.value_name(value_name(values)).value_parser(ValueParser::new(parser))
    })
}

/// The settings that the arguments make: names and values of variables.
pub(super) fn settings(matches: &ArgMatches) -> Vec<(OsString, OsString)> {
    variables()
        .filter_map(|variable| {
            let value = matches.get_one::<OsString>(variable.name())?;
            Some((variable.name().into(), value.clone()))
        })
        .collect()
}

fn variables() -> impl Iterator<Item = Variable> {
    Variable::ALL.iter().copied().filter(|variable| variable.name() != PREFIX)
}

/// Whether the values are exactly these words, such as `on|off`.
fn are_words(values: &str) -> bool {
    values.contains('|') && values.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'|')
}

/// `P2PSHIM_LOG_FILE` is `--log-file`.
fn long_name(name: &str) -> String {
    name.trim_start_matches(PREFIX).trim_start_matches('_').to_ascii_lowercase().replace('_', "-")
}

/// The value's name: the first word of what it may be, such as `path`.
fn value_name(values: &str) -> String {
    let first = values.split(' ').next().unwrap_or_default();
    let is_word = first.bytes().all(|byte| byte.is_ascii_alphabetic());
    if is_word { first.to_ascii_uppercase() } else { "VALUE".to_owned() }
}

/// A value as the program is to get it.
///
/// # Errors
/// The fault of the value.
fn checked(variable: Variable, value: OsString) -> Result<OsString, String> {
    if value.is_empty() {
        // The shim takes it for not set.
        return Ok(value);
    }
    if variable.is_path() {
        // The program, or a child, may stand elsewhere when it opens it.
        return path::absolute(PathBuf::from(value)).map(PathBuf::into_os_string).map_err(|error| error.to_string());
    }
    match value.to_str() {
        Some(text) => {
            variable.check(text.as_ref()).map(|()| value.clone()).map_err(|warning| problem(&warning).to_owned())
        }
        None => Err("the value is not UTF-8".to_owned()),
    }
}

/// The middle of a warning of the shim: before it stands the variable, and after it what holds in a program that goes on.
fn problem(warning: &str) -> &str {
    let text = warning.split_once(": ").map_or(warning, |(_, text)| text);
    let end = [". ", "? "].iter().filter_map(|end| text.rfind(end)).max();
    end.and_then(|end| text.get(..=end)).unwrap_or(text).trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;

    #[test]
    fn long_name_is_the_variables_without_its_prefix() {
        for (variable, expected) in [("P2PSHIM_ACCESS", "access"), ("P2PSHIM_LOG_FILE", "log-file")] {
            assert_eq!(long_name(variable), expected);
        }
    }

    #[test]
    fn arguments_a_switch_without_a_value_is_on_and_the_program_stays_as_it_is() {
        let run = Command::new("run").args(arguments()).arg(Arg::new("app").num_args(0..).trailing_var_arg(true));
        for (given, value, program) in [
            ("run --summary ./app", Some("on"), "./app"),
            ("run --summary", Some("on"), ""),
            ("run --summary --log info ./app on", Some("on"), "./app on"),
            ("run --summary=off ./app", Some("off"), "./app"),
            ("run app --summary", None, "app --summary"),
        ] {
            let matches = run.clone().try_get_matches_from(given.split(' ')).unwrap();
            let found = matches.get_one::<OsString>("P2PSHIM_SUMMARY").and_then(|value| value.to_str());
            let words: Vec<&str> =
                matches.get_many::<String>("app").into_iter().flatten().map(String::as_str).collect();
            assert_eq!((found, words.join(" ").as_str()), (value, program), "{given}");
        }
    }

    #[test]
    fn arguments_every_option_has_one_and_the_switch_has_none() {
        let names: Vec<String> =
            arguments().map(|argument| argument.get_long().unwrap_or_default().to_owned()).collect();
        assert_eq!(names.len(), Variable::ALL.len() - 1);
        for name in ["access", "deny", "verify", "pools", "capture", "validate", "log", "log-file"] {
            assert!(names.iter().any(|found| found == name), "{name}: {names:?}");
        }
    }

    #[test]
    fn value_name_is_a_word_where_there_is_one() {
        for (values, expected) in [("path", "PATH"), ("pairs of devices", "PAIRS"), ("off|error, or", "VALUE")] {
            assert_eq!(value_name(values), expected);
        }
    }

    #[test]
    fn problem_leaves_out_the_variable_and_what_holds_then() {
        for (warning, expected) in [
            ("P2PSHIM_DENY=\"0\": `0` is no pair; write 0-1. Nothing is denied", "`0` is no pair; write 0-1"),
            ("P2PSHIM_LOG=\"x\": bad; did you mean trace? The default holds: warn", "bad; did you mean trace?"),
            ("all of it", "all of it"),
        ] {
            assert_eq!(problem(warning), expected);
        }
    }

    #[test]
    fn checked_pairs_and_filters_are_looked_at_and_paths_made_absolute() {
        let value = |name: &str, value: &str| checked(Variable::named(name).unwrap(), value.into());
        assert!(value("P2PSHIM_DENY", "0:1").unwrap_err().contains("`0:1` is no pair of devices"));
        assert_eq!(value("P2PSHIM_DENY", "0-1").unwrap(), "0-1");
        assert!(value("P2PSHIM_LOG", "trce").unwrap_err().contains("did you mean trace?"));
        assert!(PathBuf::from(value("P2PSHIM_LOG_FILE", "a.log").unwrap()).is_absolute());
        assert_eq!(value("P2PSHIM_LOG_FILE", "").unwrap(), "");
    }
}
