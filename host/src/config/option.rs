//! The option that a row of the table becomes.

use std::ffi::OsStr;

use super::Config;
use crate::nearest::nearest;
use crate::text::shortened;

/// One environment variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// The variable's name.
    pub(super) name: &'static str,
    /// Its value when it is not set.
    pub(super) default: &'static str,
    /// Whether it can change once the options were read.
    pub(super) changes: Changes,
    /// Whether the value is a path.
    pub(super) is_path: bool,
    /// Takes a value over.
    pub(super) take: fn(&mut Config, &OsStr) -> Result<(), Unusable>,
}

/// Whether an option can change once the options were read.
#[derive(Clone, Copy, Debug)]
pub enum Changes {
    /// It cannot.
    Never,
    /// At any time.
    Always,
    /// Until there is a trace.
    UntilTraced,
    /// Between the values of which this holds; the text says which those are, in Markdown.
    Between(fn(&Config) -> bool, &'static str),
}

/// Why a value cannot be used.
pub(super) enum Unusable {
    /// It is not UTF-8.
    NotText,
    /// A sentence, with what to write instead.
    Problem(String),
}

/// Makes the fields of `Config`, their defaults and the rows of `OPTIONS` of the table.
macro_rules! options {
    ($(
        $(#[doc = $doc:literal])+
        $field:ident: $type:ty {
            variable: $variable:ident,
            values: $kind:ident $values:tt,
            changes: $changes:expr,
            help: $help:literal,
            details: $details:literal,
        }
    )+) => {
        /// The options as they hold for this process.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Config {
            $($(#[doc = $doc])+ pub $field: $type,)+
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($field: values!(default $kind $values),)+ }
            }
        }

        /// All options.
        const OPTIONS: &[Variable] = &[$(Variable {
            name: stringify!($variable),
            default: values!(default_text $kind $values),
            changes: $changes,
            is_path: values!(is_path $kind),
            take: |config, given| {
                config.$field = values!(read $kind $values given)?;
                Ok(())
            },
        },)+];

        impl Variable {
            /// The accepted values or what kind of value it is; its effect, in a sentence or two; and more about it in
            /// Markdown, mostly nothing. The library never asks, and so has none of these texts.
            pub fn texts(self) -> [&'static str; 3] {
                match self.name {
                    $(stringify!($variable) => [values!(shown $kind $values), $help, $details],)+
                    _ => [""; 3],
                }
            }
        }
    };
}

/// Expands to a fact about an option's values, by their kind.
macro_rules! values {
    (shown words($first:literal = $_1:expr $(, $word:literal = $_2:expr)* $(,)?)) => {
        concat!($first $(, "|", $word)*)
    };
    (shown text($shown:literal, $_1:literal = $_2:expr, $_3:path $(,)?)) => { $shown };
    (shown path($shown:literal)) => { $shown };
    (default_text words($first:literal = $($_rest:tt)*)) => { $first };
    (default_text text($_1:literal, $default:literal = $($_rest:tt)*)) => { $default };
    (default_text path($_1:literal)) => { "" };
    (default words($_1:literal = $value:expr $(, $($_rest:tt)*)?)) => { $value };
    (default text($_1:literal, $_2:literal = $value:expr, $_3:path $(,)?)) => { $value };
    (default path($_1:literal)) => { None };
    (is_path path) => { true };
    (is_path $_other:ident) => { false };
    (read words($($word:literal = $value:expr),* $(,)?) $given:ident) => { option::word($given, &[$(($word, $value)),*]) };
    (read text($_1:literal, $_2:literal = $_3:expr, $parse:path $(,)?) $given:ident) => { option::text($given, $parse) };
    (read path($_1:literal) $given:ident) => { Ok::<_, option::Unusable>(Some($given.to_owned())) };
}

/// Reads one of some words.
pub(super) fn word<T: Copy>(given: &OsStr, words: &[(&'static str, T)]) -> Result<T, Unusable> {
    text(given, |text| {
        let known = || words.iter().map(|&(word, _)| word);
        let found = words.iter().find(|&&(word, _)| word == text).map(|&(_, value)| value);
        found.ok_or_else(|| match meant(text, words.first().map_or("", |&(word, _)| word), known) {
            Some(meant) => format!("no such value; did you mean {meant}?"),
            None => {
                let known: Vec<_> = known().collect();
                let (last, others) = known.split_last().unwrap_or((&"", &[]));
                format!("no such value; write {} or {last}.", others.join(", "))
            }
        })
    })
}

/// The word that another most likely stands for: what other programs take for off or on, or the nearest.
fn meant<'a, I: Iterator<Item = &'a str>>(word: &str, default: &'a str, known: impl Fn() -> I) -> Option<&'a str> {
    const SYNONYMS: [(&str, [&str; 4]); 2] =
        [("off", ["0", "false", "no", "none"]), ("on", ["1", "true", "yes", "all"])];
    let is_one = |words: &[&str]| words.iter().any(|synonym| synonym.eq_ignore_ascii_case(word));
    match SYNONYMS.iter().find(|(_, words)| is_one(words)) {
        Some((stands_for, _)) => known().find(|known| known == stands_for).or(Some(default)),
        None => nearest(word, known()),
    }
}

/// Reads a text.
pub(super) fn text<T>(given: &OsStr, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, Unusable> {
    parse(given.to_str().ok_or(Unusable::NotText)?).map_err(Unusable::Problem)
}

impl Variable {
    /// All options, in the order of the documents.
    pub const ALL: &[Self] = super::OPTIONS;

    /// Whether it can change once the options were read.
    pub fn changes(self) -> Changes {
        self.changes
    }

    /// Whether the value is a path.
    pub fn is_path(self) -> bool {
        self.is_path
    }

    /// The name.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// The option of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|option| option.name() == name)
    }

    /// The default; empty if there is none.
    pub fn default(self) -> &'static str {
        self.default
    }

    /// Takes a value over.
    ///
    /// # Errors
    /// A sentence that names the value and the nearest valid one; then nothing has changed.
    pub(super) fn take(self, config: &mut Config, given: &OsStr) -> Result<(), String> {
        let (name, default) = (self.name(), self.default);
        let shown = shortened(&given.to_string_lossy());
        (self.take)(config, given).map_err(|unusable| match unusable {
            Unusable::NotText => format!("{name}: the value is not UTF-8; the default holds: {default}"),
            Unusable::Problem(problem) => {
                let holds = if default.is_empty() { String::new() } else { format!(" The default holds: {default}") };
                format!("{name}={shown:?}: {}{holds}", shortened(&problem))
            }
        })
    }

    /// # Errors
    /// A sentence that names the value and the nearest valid one.
    pub fn check(self, given: &OsStr) -> Result<(), String> {
        self.take(&mut Config::default(), given)
    }
}
