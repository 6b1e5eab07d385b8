//! Which calls are wanted: the same in every format.
//!
//! The names in a filter are looked for in the report of all calls ([`Filter::check`]); then they are put into the numbers of each
//! file ([`Selection`]), and records are counted and listed by these.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use clap::Args;
use p2pshim_host::codes;
use p2pshim_trace::{Path, Record, State, Timeline, given};

use super::merge::Source;
use super::model::{File, Numbering, Report};
use super::names::Names;
use super::term::few;
use crate::numbers;

/// Names that an error lists.
const LISTED: usize = 12;

/// Which calls are wanted.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Filters, for every format")]
pub(crate) struct Filter {
    /// Only copies between these GPUs: 0>1 or, both ways, 0-1
    #[arg(long, value_name = "PAIR")]
    pair: Option<PairFilter>,
    /// Only functions with NAME in their name (* and ? work)
    #[arg(long, value_name = "NAME")]
    api: Option<String>,
    /// Only calls that begin at least so long after the start
    #[arg(long, value_name = "SECONDS", value_parser = numbers::seconds)]
    since: Option<f64>,
    /// Only calls that begin at most so long after the start
    #[arg(long, value_name = "SECONDS", value_parser = numbers::seconds)]
    until: Option<f64>,
    /// Only processes of this rank
    #[arg(long, value_name = "RANK")]
    rank: Option<String>,
    /// Only this result: ok, error, unfinished, 217, or a name
    #[arg(long, value_name = "RESULT")]
    result: Option<ResultFilter>,
    /// Only threads with this number or name
    #[arg(long, value_name = "THREAD")]
    thread: Option<String>,
    /// Only copies with PATH in their path: direct, staged
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
}

/// A pair of GPUs as the user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PairFilter {
    src: u32,
    dst: u32,
    both_ways: bool,
}

impl FromStr for PairFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ([src, dst], both_ways) = numbers::pair(text)?;
        Ok(Self { src, dst, both_ways })
    }
}

impl Display for PairFilter {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self { src, dst, both_ways } = self;
        if *both_ways { write!(out, "{src}-{dst}") } else { write!(out, "'{src}>{dst}'") }
    }
}

impl PairFilter {
    fn wants(self, src: u32, dst: u32) -> bool {
        (src, dst) == (self.src, self.dst) || self.both_ways && (dst, src) == (self.src, self.dst)
    }
}

/// A result as the user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ResultFilter {
    Unfinished,
    Ok,
    Error,
    Code(i32),
    /// In one layer.
    Name(String),
}

impl FromStr for ResultFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |(_, names): (i32, [Option<&str>; 3])| {
            names.into_iter().flatten().any(|name| name.eq_ignore_ascii_case(text))
        };
        match text {
            "unfinished" => Ok(Self::Unfinished),
            "ok" => Ok(Self::Ok),
            "error" => Ok(Self::Error),
            _ if codes::rows().any(is_name) => Ok(Self::Name(text.to_owned())),
            _ => text
                .parse()
                .map(Self::Code)
                .map_err(|_| "write ok, error, unfinished, a code such as 217, or the name of one".to_owned()),
        }
    }
}

impl Display for ResultFilter {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfinished => out.write_str("unfinished"),
            Self::Ok => out.write_str("ok"),
            Self::Error => out.write_str("error"),
            Self::Code(code) => write!(out, "{code}"),
            Self::Name(name) => out.write_str(name),
        }
    }
}

/// The arguments.
impl Display for Filter {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let Self { pair, api, since, until, rank, result, thread, path } = self;
        let quoted = |text: &Option<String>| text.as_ref().map(|text| format!("{text:?}"));
        let number = |seconds: &Option<f64>| seconds.map(|seconds| seconds.to_string());
        let all = [
            ("pair", pair.map(|pair| pair.to_string())),
            ("api", quoted(api)),
            ("since", number(since)),
            ("until", number(until)),
            ("rank", quoted(rank)),
            ("result", result.as_ref().map(ToString::to_string)),
            ("thread", quoted(thread)),
            ("path", quoted(path)),
        ];
        let given = all.into_iter().filter_map(|(name, value)| Some(format!("--{name} {}", value?)));
        out.write_str(&given.collect::<Vec<_>>().join(" "))
    }
}

impl Filter {
    /// Whether every call is wanted.
    pub(super) fn is_empty(&self) -> bool {
        self.to_string().is_empty()
    }

    /// # Errors
    /// No call of any report can fit it.
    pub(super) fn check_order(&self) -> Result<(), String> {
        let (since, until) = (self.since.unwrap_or_default(), self.until.unwrap_or(f64::MAX));
        if since > until {
            return Err(format!("--since {since} --until {until}: the end is before the start"));
        }
        Ok(())
    }

    /// Looks for what it names in the report of all calls.
    ///
    /// # Errors
    /// A sentence about what is not there, and what is.
    pub(super) fn check(&self, report: &Report) -> Result<(), String> {
        self.check_times(report)?;
        self.check_pair(report)?;
        let has = |wanted: &Option<String>, fits: fn(&str, &str) -> bool, names: &BTreeSet<String>| {
            wanted.as_ref().is_none_or(|wanted| names.iter().any(|name| fits(wanted, name)))
        };
        let functions = report.functions.iter().map(|function| function.name.clone()).collect();
        let ranks = report.files.iter().filter_map(|file| file.rank.clone()).collect();
        let threads = || report.files.iter().flat_map(|file| &file.threads);
        let threads = threads().flat_map(|it| [it.id.to_string(), it.name.clone()]).collect();
        let paths = report.pairs.iter().flat_map(|pair| &pair.paths);
        let paths = paths.map(|path| path.taken.title()).collect();
        let equal = |wanted: &str, name: &str| wanted == name;
        for (option, wanted, fits, names, none) in [
            ("api", &self.api, matches as fn(&str, &str) -> bool, &functions, "no function with that name was called"),
            ("rank", &self.rank, equal, &ranks, "no process has that rank"),
            ("thread", &self.thread, equal, &threads, "no thread has that number or name"),
            ("path", &self.path, contains, &paths, "no copy took such a path"),
        ] {
            if !has(wanted, fits, names) {
                let wanted = wanted.as_deref().unwrap_or_default();
                return Err(format!("--{option} {wanted:?}: {none}{}", listed(names)));
            }
        }
        Ok(())
    }

    fn check_times(&self, report: &Report) -> Result<(), String> {
        let since = self.since.unwrap_or_default();
        let lasts = report.end().saturating_sub(report.start()) as f64 / 1e9;
        if since > lasts {
            return Err(format!("--since {since}: the report ends {lasts:.3} s after its start"));
        }
        Ok(())
    }

    fn check_pair(&self, report: &Report) -> Result<(), String> {
        let Some(pair) = self.pair else { return Ok(()) };
        for number in [pair.src, pair.dst] {
            if report.gpus.iter().all(|gpu| gpu.number != number) {
                let gpus = report.gpus.iter().map(|gpu| gpu.label.clone()).collect();
                return Err(format!("--pair {pair}: there is no GPU {number}{}", listed(&gpus)));
            }
        }
        let number = |gpu: usize| report.gpus.get(gpu).map_or(u32::MAX, |gpu| gpu.number);
        if report.pairs.iter().any(|it| pair.wants(number(it.src), number(it.dst))) {
            return Ok(());
        }
        let named = |pair: &super::model::Pair| format!("{} > {}", report.label(pair.src), report.label(pair.dst));
        let pairs = report.pairs.iter().map(named).collect();
        Err(format!("--pair {pair}: nothing was copied between them{}", listed(&pairs)))
    }

    /// The words for a filter that no call fits in all.
    pub(super) fn nothing(&self, whole: &Report) -> String {
        let codes = whole.errors.iter().map(|error| match &error.name {
            Some(name) => format!("{} ({name})", error.code),
            None => error.code.to_string(),
        });
        let more = match self.result {
            Some(ResultFilter::Code(_) | ResultFilter::Name(_)) => match codes.collect::<BTreeSet<_>>() {
                codes if codes.is_empty() => "; no call of the program returned an error".to_owned(),
                codes => format!("; the program got{}", listed(&codes).trim_start_matches("; there is")),
            },
            _ => String::new(),
        };
        format!("no call fits {self}{more}")
    }

    /// Leaves out decisions and marks of other pairs, processes and times, and findings of other calls.
    pub(super) fn keep_notes(&self, report: &mut Report) {
        let (start, gpus) = (report.start(), &report.gpus);
        let is_then = |time: u64| {
            let after = time.saturating_sub(start) as f64 / 1e9;
            self.since.is_none_or(|since| after >= since) && self.until.is_none_or(|until| after <= until)
        };
        let number = |gpu: Option<usize>| gpu.and_then(|gpu| gpus.get(gpu)).map_or(u32::MAX, |gpu| gpu.number);
        let files = &report.files;
        report.decisions.retain(|it| {
            is_then(it.time)
                && self.pair.is_none_or(|pair| pair.wants(number(it.src), number(it.dst)))
                && files.get(it.file).is_none_or(|file| self.wants_rank(file))
        });
        // Some are also noted for themselves, of whichever call.
        for finding in &mut report.findings {
            finding.count = finding.sites.iter().map(|site| site.count).sum();
        }
        report.findings.retain(|finding| finding.count > 0);
        // They are of any rank and time.
        report.unshared.clear();
        report.failures.clear();
        report.races.clear();
        report.suppressed.clear();
        for file in &mut report.files {
            file.first_contexts.clear();
            let is_wanted = self.wants_rank(file);
            file.marks.retain(|mark| is_wanted && is_then(mark.time));
        }
    }

    fn wants_rank(&self, file: &File) -> bool {
        self.rank.is_none() || self.rank == file.rank
    }

    /// The filter in the numbers of a file.
    pub(super) fn of_file(&self, report: &Report, file: usize, names: &Names) -> Selection {
        let numbers: [u8; 256] = std::array::from_fn(|number| number as u8);
        let Some(file) = report.files.get(file) else { return Selection::default() };
        let number = |ordinal: &u8| Some(report.gpus.get(*file.devices.get(ordinal)?)?.number);
        let pairs = |pair: PairFilter| {
            let all = || file.devices.keys();
            let pairs = all().flat_map(|src| all().map(move |dst| [*src, *dst]));
            pairs
                .filter(|[src, dst]| number(src).zip(number(dst)).is_some_and(|(src, dst)| pair.wants(src, dst)))
                .collect()
        };
        let nanos = |seconds: f64| report.start().saturating_add((seconds * 1e9) as u64);
        let is_thread = |wanted: &str| {
            let threads = file.threads.iter().filter(|it| it.name == wanted || it.id.to_string() == wanted);
            threads.map(|thread| thread.id).collect()
        };
        let outcome = self.result.clone().map(|result| match result {
            ResultFilter::Unfinished => Outcome::Unfinished,
            ResultFilter::Ok => Outcome::Ok,
            ResultFilter::Error => Outcome::Error,
            ResultFilter::Code(code) => Outcome::Code(code),
            ResultFilter::Name(name) => {
                Outcome::Named(Box::new(numbers.map(|number| code(&names.function(number).0, &name))))
            }
        });
        Selection {
            is_other: !self.wants_rank(file),
            pairs: self.pair.map(pairs),
            functions: self.api.as_ref().map(|api| numbers.map(|number| matches(api, &names.function(number).1))),
            paths: self
                .path
                .as_ref()
                .map(|wanted| numbers.map(|it| Path::numbered(it).is_some_and(|it| contains(wanted, &it.title())))),
            outcome,
            threads: self.thread.as_deref().map(is_thread),
            since: self.since.map(nanos),
            until: self.until.map(nanos),
        }
    }

    /// The filter in the numbers of each of these files; none if every call is wanted.
    pub(super) fn of_sources(&self, report: &Report, sources: &[Source]) -> Vec<Selection> {
        let mut all: Vec<Selection> = report.files.iter().map(|_| Selection::default()).collect();
        for source in sources {
            if let Some(place) = all.get_mut(source.file) {
                *place = self.of_file(report, source.file, &source.names);
            }
        }
        all
    }
}

/// The code of a name in a layer.
fn code(layer: &str, name: &str) -> Option<i32> {
    codes::rows().find_map(|(code, [runtime, driver, hip])| {
        let own = match layer {
            "runtime" => runtime,
            "driver" => driver,
            "hip" => hip,
            _ => None,
        };
        own.is_some_and(|own| own.eq_ignore_ascii_case(name)).then_some(code)
    })
}

/// `; there is a, b and 3 more`; nothing if there is none.
fn listed(names: &BTreeSet<String>) -> String {
    let shown: Vec<&String> = names.iter().filter(|name| !name.is_empty()).collect();
    if shown.is_empty() { String::new() } else { format!("; there is {}", few(&shown, LISTED, ", ")) }
}

/// The records of a file that are wanted.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// Whether it is of another rank.
    is_other: bool,
    pairs: Option<BTreeSet<[u8; 2]>>,
    /// By number, as the two that follow.
    functions: Option<[bool; 256]>,
    paths: Option<[bool; 256]>,
    outcome: Option<Outcome>,
    threads: Option<BTreeSet<u32>>,
    /// Nanoseconds since 1970, as the next.
    since: Option<u64>,
    until: Option<u64>,
}

#[derive(Debug)]
enum Outcome {
    Unfinished,
    Ok,
    Error,
    /// As the program got it.
    Code(i32),
    /// In the usual numbers, by number of the function.
    Named(Box<[Option<i32>; 256]>),
}

impl Selection {
    /// Whether a record of a thread is wanted. `call` is the call that it is a part of, or itself.
    pub(super) fn wants(&self, timeline: Timeline, thread: u32, record: &Record, call: &Record) -> bool {
        let is_one = |all: &[bool; 256], number: u8| all.get(usize::from(number)).copied().unwrap_or_default();
        let is_begun = call.state == State::Begun;
        !self.is_other
            && self.functions.as_ref().is_none_or(|functions| is_one(functions, call.function))
            && self.paths.as_ref().is_none_or(|paths| is_one(paths, record.path))
            && self.threads.as_ref().is_none_or(|threads| threads.contains(&thread))
            && self.outcome.as_ref().is_none_or(|outcome| match outcome {
                Outcome::Unfinished => is_begun,
                Outcome::Ok => !is_begun && call.result == 0,
                Outcome::Error => !is_begun && call.result != 0,
                Outcome::Code(code) => !is_begun && given(call.result).0 == *code,
                Outcome::Named(codes) => {
                    let (code, numbering) = Numbering::split(call.result);
                    let named = codes.get(usize::from(call.function)).copied().flatten();
                    !is_begun && named.is_some() && named == numbering.usual(code)
                }
            })
            && self.pairs.as_ref().is_none_or(|pairs| {
                record.src_device.zip(record.dst_device).is_some_and(|(src, dst)| pairs.contains(&[src, dst]))
            })
            && self.since.is_none_or(|since| timeline.real(record.start) >= since)
            && self.until.is_none_or(|until| timeline.real(record.start) <= until)
    }

    /// Whether calls that begin later than then may be wanted.
    pub(super) fn is_over(&self, start: u64) -> bool {
        self.until.is_some_and(|until| start > until)
    }
}

fn contains(wanted: &str, name: &str) -> bool {
    name.contains(wanted)
}

/// Whether a name has a part, or fits a pattern. Case does not matter.
fn matches(wanted: &str, name: &str) -> bool {
    let (wanted, name) = (wanted.to_ascii_lowercase(), name.to_ascii_lowercase());
    if wanted.contains(['*', '?']) { fits(wanted.as_bytes(), name.as_bytes()) } else { name.contains(&wanted) }
}

fn fits(mut pattern: &[u8], mut name: &[u8]) -> bool {
    // Where to continue if what followed the last star does not fit.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        match (pattern.split_first(), name.split_first()) {
            (Some((b'*', rest)), _) => {
                star = Some((rest, name));
                pattern = rest;
            }
            (Some((&letter, pattern_rest)), Some((&other, name_rest))) if letter == b'?' || letter == other => {
                (pattern, name) = (pattern_rest, name_rest);
            }
            (None, None) => return true,
            _ => {
                let Some((after, from)) = star else { return false };
                let Some((_, from)) = from.split_first() else { return false };
                star = Some((after, from));
                (pattern, name) = (after, from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_a_part_or_a_pattern() {
        let name = "cudaMemcpyPeerAsync";
        for yes in
            ["peer", "cudaMemcpyPeer", "cuda*", "*Async", "cuda*Peer*", "cuda??mcpyPeerAsync", "*", "**", "cu*y*c"]
        {
            assert!(matches(yes, name), "{yes}");
        }
        for no in ["peers", "cuda*Peer", "?", "Peer*", "cuda*x*", "cudaMemcpyPeerAsync?"] {
            assert!(!matches(no, name), "{no}");
        }
    }

    #[test]
    fn pair_one_way_and_both_ways() {
        assert_eq!("0>1".parse(), Ok(PairFilter { src: 0, dst: 1, both_ways: false }));
        assert_eq!("0-1".parse(), Ok(PairFilter { src: 0, dst: 1, both_ways: true }));
        assert_eq!("2>2".parse(), Ok(PairFilter { src: 2, dst: 2, both_ways: false }));
        for wrong in ["", "0", "0>", "a-b", "-1", "0>1>2"] {
            assert!(wrong.parse::<PairFilter>().is_err(), "{wrong}");
        }
    }
}
