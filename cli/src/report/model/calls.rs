//! Functions and their calls: how long these took, where they came from, what they returned and what is wrong with them.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

use p2pshim_host::codes;
use p2pshim_trace::Path;
use serde::Serialize;

use crate::report::paths;

/// How long calls took on the host, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Durations {
    /// Half of the calls took no longer, in nanoseconds; right to 3 %. null if none has returned.
    pub(crate) p50: Option<u64>,
    /// 99 of 100 calls took no longer, in nanoseconds; right to 3 %. null if none has returned.
    pub(crate) p99: Option<u64>,
    /// The longest, in nanoseconds. null if none has returned.
    pub(crate) max: Option<u64>,
    /// All of them together, in nanoseconds, in all threads.
    pub(crate) total: u64,
}

/// A function, called by the program or by another function.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Function {
    /// Where it is: `runtime`, `driver`, or those of HIP.
    pub(crate) layer: String,
    /// Its name.
    pub(crate) name: String,
    /// How often it was called.
    pub(crate) calls: u64,
    /// How often it returned something else than success.
    pub(crate) errors: u64,
    /// How long its calls took on the host.
    pub(crate) host_ns: Durations,
}

/// A line of a Python program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Line {
    /// The file, as the interpreter names it: mostly a path.
    pub(crate) file: String,
    /// The line, counted from 1.
    pub(crate) line: u32,
    /// The function.
    pub(crate) function: String,
    /// The lines in other files that it was called from, innermost first; two at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) outer: Vec<Line>,
}

impl Line {
    /// The lines with the whole paths.
    pub(crate) fn in_full(&self) -> String {
        let all = std::iter::once(self).chain(&self.outer);
        all.map(|Self { file, line, function, .. }| format!("{file}:{line} in {function}"))
            .collect::<Vec<_>>()
            .join(" < ")
    }

    /// `train.py:11`, and where that was called from.
    pub(crate) fn in_short(&self) -> String {
        let all = std::iter::once(self).chain(&self.outer);
        all.map(|it| format!("{}:{}", it.file_name(), it.line)).collect::<Vec<_>>().join(" < ")
    }

    fn file_name(&self) -> &str {
        self.file.rsplit('/').next().unwrap_or_default()
    }
}

impl Display for Line {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{} in {}", self.file_name(), self.line, self.function)?;
        self.outer.iter().try_for_each(|outer| write!(out, " < {outer}"))
    }
}

/// A place in the code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Origin {
    /// The place in the code that called: module, offset, and where known function and line.
    pub(crate) site: String,
    /// If that place is in the CUDA runtime: what called the runtime. Where that cannot be told, the chain `a
    /// < b < c`, of which one is it.
    pub(crate) caller: Option<String>,
    /// The line of the Python program, if it was looked for.
    pub(crate) python: Option<Line>,
}

impl Origin {
    /// The place as `train.py:11`, or as it is printed where no line of Python is known.
    pub(crate) fn in_short(&self) -> String {
        match &self.python {
            Some(line) => line.in_short(),
            None => self.to_string(),
        }
    }

    /// The function that called, if it is known.
    pub(crate) fn function(&self) -> Option<&str> {
        match &self.python {
            Some(line) => Some(&line.function),
            // Without symbols there is a line, or a word about the place.
            None => {
                let word = self.caller.as_ref().unwrap_or(&self.site).split_whitespace().nth(1)?;
                Some(word).filter(|word| !word.starts_with(['(', '<']) && !["in", "void"].contains(word))
            }
        }
    }

    /// As `, at train.py:11`; nothing if all that is known is that an interpreter has called.
    pub(crate) fn at(&self) -> String {
        let is_known = self.python.is_some() || self.caller.is_some() || !is_glue(&self.site);
        if is_known { format!(", at {}", self.in_short()) } else { String::new() }
    }
}

impl Display for Origin {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if let Some(line) = &self.python {
            if self.caller.is_none() && is_glue(&self.site) {
                return write!(out, "{line}");
            }
            write!(out, "{line}, ")?;
        }
        out.write_str(self.caller.as_ref().unwrap_or(&self.site))
    }
}

/// Whether a module, or a place in one, is of a library by which an interpreter calls any function: that tells nothing.
pub(crate) fn is_glue(name: &str) -> bool {
    ["libffi", "_ctypes", "_cffi_backend"].iter().any(|glue| name.starts_with(glue))
}

/// How often something was called from where.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Site {
    #[serde(flatten)]
    pub(crate) from: Origin,
    /// How often.
    pub(crate) count: u64,
}

/// An error that a function returned to the program.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Error {
    /// Where the function is: `runtime`, `driver`, or those of HIP.
    pub(crate) layer: String,
    /// The function.
    pub(crate) function: String,
    /// Its number.
    pub(crate) code: i32,
    /// Whose number that is.
    pub(crate) numbering: Numbering,
    /// Its name.
    pub(crate) name: Option<String>,
    /// How often.
    pub(crate) count: u64,
    /// From where, the most frequent first.
    pub(crate) sites: Vec<Site>,
}

impl Error {
    /// Whether it says that access is enabled already, or not enabled: many programs expect that.
    pub(crate) fn is_expected(&self) -> bool {
        matches!(self.numbering.usual(self.code), Some(704 | 705))
    }
}

/// Which numbers a code has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Unshared {
    /// The driver's function, which a runtime may have called.
    pub(crate) function: String,
    /// The number of its code.
    pub(crate) code: i32,
    /// The code's name.
    pub(crate) name: Option<String>,
    /// The reason.
    pub(crate) why: &'static str,
    /// The remedy.
    pub(crate) remedy: &'static str,
    /// How often; of a process the first 4,096 such failures are counted.
    pub(crate) count: u64,
    /// From where, the most frequent first.
    pub(crate) sites: Vec<Site>,
    /// Indices of the files of processes that made them.
    pub(crate) files: BTreeSet<usize>,
}

/// Two accesses to the same memory, of which one writes, and nothing orders them, or only that a copy is staged.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Race {
    /// The process: the `index` of its file in `files`.
    pub(crate) file: usize,
    /// When the second access was queued. Nanoseconds since 1970, UTC.
    pub(crate) time: u64,
    /// `race`, `possible race`, or `lifetime` if the second frees the memory. `ordered by staging` is none: the order would go with staging. `enforced` was one, until p2pshim added the wait.
    pub(crate) level: String,
    /// The access that was queued first.
    pub(crate) first: RaceSide,
    /// The access that was queued later.
    pub(crate) second: RaceSide,
    /// The bytes of the range in which both lie.
    pub(crate) bytes: u64,
    /// The GPU that has them: its `index` in `gpus`; null for memory of the host, or if it is not known.
    pub(crate) gpu: Option<usize>,
}

/// An access of a race.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RaceSide {
    /// The driver's function, which a runtime may have called.
    pub(crate) function: String,
    /// `reads`, `writes`, `may use` and `may read` of a kernel, or `frees`.
    pub(crate) verb: String,
    /// The stream; empty for a call that frees memory at once.
    pub(crate) stream: String,
    #[serde(flatten)]
    pub(crate) from: Origin,
}

/// Pairs of places without order that are left out for one reason.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Suppressed {
    /// The line that fits them: `place`, `library` or `kernel`, and a pattern.
    pub(crate) by: String,
    /// The reason.
    pub(crate) reason: String,
    /// How many pairs there are.
    pub(crate) pairs: u64,
}

/// A call without a record, or a copy with the host, that has failed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Failure {
    /// The process: the `index` of its file in `files`.
    pub(crate) file: usize,
    /// When it was noted. Nanoseconds since 1970, UTC.
    pub(crate) time: u64,
    /// The function.
    pub(crate) function: String,
    /// The number of its code, a runtime's as since 10.1.
    pub(crate) code: i32,
    /// The code's name.
    pub(crate) name: Option<String>,
    /// The GPU whose context was current: its `index` in `gpus`; null if it is not known.
    pub(crate) gpu: Option<usize>,
    /// The GPU that has the memory which the call sets: its `index` in `gpus`; null if the call sets none, or it is not known.
    pub(crate) memory_gpu: Option<usize>,
    /// Whether the thread was capturing a stream when the call failed.
    pub(crate) is_capturing: bool,
    #[serde(flatten)]
    pub(crate) from: Origin,
}

/// The first context of a process on a GPU.
#[derive(Debug)]
pub(crate) struct FirstContext {
    /// The GPU's number in the process.
    pub(crate) ordinal: u8,
    /// The kernel's number of the thread that made it.
    pub(crate) thread: u32,
    /// When. Nanoseconds since 1970, UTC.
    pub(crate) time: u64,
    pub(crate) from: Origin,
}

/// Something that is wrong with calls.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Finding {
    /// Its id, which `p2pshim explain` takes.
    pub(crate) rule: String,
    /// How bad it is: `error`, `hazard`, `performance` or `note`.
    pub(crate) severity: String,
    /// Calls that it was found in; of severity `performance` the least number, since calls that are known to
    /// be alike are not all looked at.
    pub(crate) count: u64,
    /// The first finding, with values.
    pub(crate) text: Option<String>,
    /// Whether the log has told it in full, on the same standard error.
    #[serde(skip)]
    pub(crate) is_told: bool,
    /// The first copy whose size was negative as a signed number.
    pub(crate) negative: Option<Negative>,
    /// Where, the most frequent first.
    pub(crate) sites: Vec<Site>,
    /// Processes that it was found in: the `index` of their files.
    pub(crate) files: Vec<usize>,
    /// When it was found, once for each place in each process.
    pub(crate) times: Vec<Moment>,
}

/// A copy with a size that is negative as a signed number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Negative {
    /// The function.
    pub(crate) function: String,
    /// The size as a signed number, in bytes.
    pub(crate) size: i64,
}

/// When, and in which process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Moment {
    /// When. Nanoseconds since 1970, UTC.
    pub(crate) time: u64,
    /// The process: the `index` of its file in `files`.
    pub(crate) file: usize,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Progress {
    /// It has returned.
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

/// A call of a process.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Call {
    /// The process: the `index` of its file in `files`.
    pub(crate) file: usize,
    /// The kernel's number of the thread.
    pub(crate) thread: u32,
    /// Where the function is: `runtime`, `driver`, or those of HIP.
    pub(crate) layer: String,
    /// The function.
    pub(crate) function: String,
    /// When it began. Nanoseconds since 1970, UTC.
    pub(crate) started: u64,
    /// How far it has come.
    pub(crate) progress: Progress,
    /// Nanoseconds: of a call that has not returned, how long it has been under way, or was when its process
    /// ended, if that is known: it is not if the process may have become another program before; of a last
    /// copy, how long ago it returned, or how long before the end of the run.
    pub(crate) age_ns: Option<u64>,
    /// The GPU that is copied from: its `index` in `gpus`.
    pub(crate) src: Option<usize>,
    /// The GPU that is copied to: its `index` in `gpus`.
    pub(crate) dst: Option<usize>,
    /// Bytes that it copies; null if they are not known.
    pub(crate) bytes: Option<u64>,
    /// The stream; of a call without a record its first argument.
    #[serde(skip)]
    pub(crate) stream: u64,
    /// Whether it has no record: it copies nothing between GPUs.
    #[serde(skip)]
    pub(crate) is_wait: bool,
    /// Whether the GPU is known to have made it.
    #[serde(skip)]
    pub(crate) is_made: bool,
    /// The path that it was to take, and why, as far as that is known.
    #[serde(flatten, serialize_with = "paths::of_call")]
    #[cfg_attr(test, schemars(with = "paths::CallFields"))]
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
