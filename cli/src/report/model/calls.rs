//! Functions and their calls: how long these took, where they came from, what they returned and what is wrong with them.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

use p2pshim_host::codes;
use p2pshim_trace::Path;
use serde::Serialize;

use crate::report::paths;

/// How long calls took on the host, in nanoseconds; none if none has returned. The first two are right to 3 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Durations {
    pub(crate) p50: Option<u64>,
    pub(crate) p99: Option<u64>,
    pub(crate) max: Option<u64>,
    pub(crate) total: u64,
}

/// A function, called by the program or by another function.
#[derive(Debug, Serialize)]
pub(crate) struct Function {
    pub(crate) layer: String,
    pub(crate) name: String,
    pub(crate) calls: u64,
    pub(crate) errors: u64,
    pub(crate) host_ns: Durations,
}

/// A line of a Python program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) struct Line {
    /// As the interpreter names it: mostly a path.
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) function: String,
}

impl Line {
    /// The line with the whole path.
    pub(crate) fn in_full(&self) -> String {
        let Self { file, line, function } = self;
        format!("{file}:{line} in {function}")
    }
}

impl Display for Line {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let file = self.file.rsplit('/').next().unwrap_or_default();
        write!(out, "{file}:{} in {}", self.line, self.function)
    }
}

/// Where a call came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub(crate) struct Origin {
    /// The place in the code.
    pub(crate) site: String,
    /// If that is in the CUDA runtime, the place that called it; or all, `a < b < c`, if it cannot be told which is.
    pub(crate) caller: Option<String>,
    /// The line of the Python program, if it was looked for.
    pub(crate) python: Option<Line>,
}

impl Origin {
    /// The place as `train.py:11`, or as it is printed where no line of Python is known.
    pub(crate) fn in_short(&self) -> String {
        match &self.python {
            Some(Line { file, line, .. }) => format!("{}:{line}", file.rsplit('/').next().unwrap_or_default()),
            None => self.to_string(),
        }
    }
}

impl Display for Origin {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if let Some(line) = &self.python {
            write!(out, "{line}, ")?;
        }
        out.write_str(self.caller.as_ref().unwrap_or(&self.site))
    }
}

/// How often something was called from where.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Site {
    #[serde(flatten)]
    pub(crate) from: Origin,
    pub(crate) count: u64,
}

/// An error that a function returned to the program.
#[derive(Debug, Serialize)]
pub(crate) struct Error {
    pub(crate) layer: String,
    pub(crate) function: String,
    pub(crate) code: i32,
    pub(crate) numbering: Numbering,
    pub(crate) name: Option<String>,
    pub(crate) count: u64,
    pub(crate) sites: Vec<Site>,
}

/// Which numbers a code has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Numbering {
    /// The numbers of its layer, which the runtime shares with the driver since CUDA 10.1.
    #[serde(rename = "usual")]
    Usual,
    /// The runtime's own until 10.0.
    #[serde(rename = "until-10.0")]
    Until10_0,
}

impl Numbering {
    /// The number that the program got, of a result in a trace.
    pub(crate) fn split(result: i32) -> (i32, Self) {
        let (code, is_old) = p2pshim_trace::given(result);
        (code, if is_old { Self::Until10_0 } else { Self::Usual })
    }

    /// The usual number of a code, if it has one.
    pub(crate) fn usual(self, code: i32) -> Option<i32> {
        match self {
            Self::Usual => Some(code),
            Self::Until10_0 => codes::since_10_1(code),
        }
    }
}

/// Calls by which processes share memory, and that have failed alike.
#[derive(Debug, Serialize)]
pub(crate) struct Unshared {
    /// The driver's function.
    pub(crate) function: String,
    pub(crate) code: i32,
    pub(crate) name: Option<String>,
    pub(crate) why: &'static str,
    pub(crate) remedy: &'static str,
    pub(crate) count: u64,
    pub(crate) sites: Vec<Site>,
    pub(crate) files: BTreeSet<usize>,
}

/// Something that is wrong with calls.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) rule: String,
    pub(crate) severity: String,
    pub(crate) count: u64,
    pub(crate) text: Option<String>,
    pub(crate) sites: Vec<Site>,
    pub(crate) files: Vec<usize>,
    /// When it was found, once for each place in each process.
    pub(crate) times: Vec<Moment>,
}

/// When something happened in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Moment {
    pub(crate) time: u64,
    pub(crate) file: usize,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Progress {
    Returned,
    /// It has only just begun, or had when its process ended.
    UnderWay,
    /// The thread has made other calls since: it left this one by an exception, a cancellation or a jump.
    Left,
    /// Its process ended in it, and nobody knows after how long.
    CutOff,
    /// It has been under way for a while, or was when its process ended; or for a time that is not known, and its process may still run.
    Hangs,
}

/// A call that has not returned, or the last that did.
#[derive(Debug, Serialize)]
pub(crate) struct Call {
    pub(crate) file: usize,
    pub(crate) thread: u32,
    pub(crate) layer: String,
    pub(crate) function: String,
    pub(crate) started: u64,
    pub(crate) progress: Progress,
    /// How long it has been under way, or was when its process ended, if that is known: it is not if the process may have become another
    /// program before. For a last copy: how long before now, or before the end of the run, it returned.
    pub(crate) age_ns: Option<u64>,
    pub(crate) src: Option<usize>,
    pub(crate) dst: Option<usize>,
    pub(crate) bytes: Option<u64>,
    /// The path that it was to take, and why, as far as that is known.
    #[serde(flatten, serialize_with = "paths::of_call")]
    pub(crate) path: Option<Path>,
    #[serde(flatten)]
    pub(crate) from: Origin,
    /// The innermost function that has not returned either.
    #[serde(skip)]
    pub(crate) inner: Option<String>,
    /// When it returned, if it has.
    #[serde(skip)]
    pub(crate) returned: Option<u64>,
}
