//! The facts about a run that are compared, from its report.

use std::collections::{BTreeMap, BTreeSet};

use p2pshim_host::config::PREFIX;
use p2pshim_trace::{Class, Path as Taken, Why};

use crate::report::model::{File, How, Pair, Report, Run};

/// A pair of GPUs by the labels of its ends.
pub(super) type Key = (String, String);

/// A run.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) command: Vec<String>,
    pub(super) end: Ended,
    /// How long the program took, in seconds, if `p2pshim run` has kept that.
    pub(super) run_seconds: Option<f64>,
    /// From the first sign of a process to the last.
    pub(super) calls_seconds: Option<f64>,
    /// Whether counts and sums are lower bounds.
    pub(super) is_at_least: bool,
    /// Whether all files could be read in whole.
    pub(super) is_whole: bool,
    pub(super) processes: usize,
    pub(super) gpus: Vec<String>,
    /// The identity of the GPUs, as far as it is known.
    pub(super) identities: BTreeSet<String>,
    pub(super) pairs: BTreeMap<Key, PairFacts>,
    pub(super) ranks: BTreeMap<String, RankFacts>,
    /// Calls by finding, with its severity.
    pub(super) findings: BTreeMap<String, (String, u64)>,
    /// Versions, options and machine, by name.
    pub(super) setting: BTreeMap<String, BTreeSet<String>>,
    /// Failed calls, by function and code.
    pub(super) errors: BTreeMap<String, u64>,
}

/// Copies of a pair.
#[derive(Clone, Debug, Default)]
pub(super) struct PairFacts {
    pub(super) copies: u64,
    pub(super) bytes: u64,
    pub(super) direct: u64,
    /// Without those before a pair is switched over.
    pub(super) staged: u64,
    pub(super) first: u64,
    pub(super) by_hand: u64,
    pub(super) host_seconds: f64,
    /// Speed of the copies with most of the bytes, if each of them was timed.
    pub(super) gb_per_s: Option<f64>,
    pub(super) is_broken: bool,
    /// The path of most of its bytes, and the reason for it.
    pub(super) path: String,
    /// Whether it is staged because that is faster.
    pub(super) is_slower_directly: bool,
}

/// A rank.
#[derive(Clone, Debug, Default)]
pub(super) struct RankFacts {
    pub(super) copies: u64,
    pub(super) bytes: u64,
    pub(super) staged: u64,
    pub(super) host_seconds: f64,
}

/// How a program ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Ended {
    Well,
    /// Not well: in words, after "it".
    Badly(String),
    Running,
    #[default]
    Unknown,
}

impl Facts {
    /// The facts of a report. Hosts are called by their order: a job gets other nodes each time.
    pub(super) fn of(report: &Report) -> Self {
        let hosts = report.hosts();
        let label = |gpu: usize| match hosts.as_slice() {
            [] | [_] => report.label(gpu).to_owned(),
            _ => by_order(report.label(gpu), &hosts),
        };
        let end = ended(report);
        let own = || report.gpus.iter().filter(|gpu| !gpu.is_another_process);
        let mut facts = Self {
            command: report.runs.first().map(|run| run.command.clone()).unwrap_or_default(),
            run_seconds: run_seconds(report),
            calls_seconds: seconds(report.start(), report.end()).filter(|_| report.start() > 0),
            is_at_least: report.is_at_least(),
            is_whole: report.is_whole(),
            processes: report.processes().filter(|file| file.end.how != How::Exec).count(),
            gpus: own().map(|gpu| label(gpu.index)).collect(),
            identities: own().filter_map(|gpu| gpu.uuid.clone()).collect(),
            end,
            ..Self::default()
        };
        for pair in report.pairs.iter().filter(|pair| pair.src != pair.dst) {
            facts.pairs.insert((label(pair.src), label(pair.dst)), PairFacts::of(pair));
        }
        for file in report.processes() {
            facts.add_rank(file);
            facts.add_setting(file);
        }
        let names = own().filter_map(|gpu| Some(("GPUs".to_owned(), gpu.name.clone()?)));
        let hosts = report.hosts().len();
        let machine =
            report.hosts().first().filter(|_| hosts == 1).map(|host| ("machine".to_owned(), (*host).to_owned()));
        names.chain(machine).for_each(|(name, value)| _ = facts.setting.entry(name).or_default().insert(value));
        for finding in &report.findings {
            facts.findings.insert(finding.rule.clone(), (finding.severity.clone(), finding.count));
        }
        for error in report.errors.iter().filter(|error| !error.is_expected()) {
            let name = error.name.clone().unwrap_or_else(|| error.code.to_string());
            *facts.errors.entry(format!("{} with {name}", error.function)).or_default() += error.count;
        }
        facts
    }

    /// Versions, and the options that decide what the library does.
    fn add_setting(&mut self, file: &File) {
        /// Options about what is written, and where.
        const OUTPUT: [&str; 6] = [
            "P2PSHIM_TRACE",
            "P2PSHIM_TRACE_LIMIT",
            "P2PSHIM_LOG",
            "P2PSHIM_LOG_FILE",
            "P2PSHIM_SUMMARY",
            "P2PSHIM_STACKS",
        ];
        let options =
            file.variables.iter().filter(|(name, _)| name.starts_with(PREFIX) && !OUTPUT.contains(&name.as_str()));
        for (name, value) in file.versions.iter().chain(options) {
            self.setting.entry(name.clone()).or_default().insert(value.clone());
        }
    }

    fn add_rank(&mut self, file: &File) {
        let Some(rank) = &file.rank else { return };
        let rank = self.ranks.entry(rank.clone()).or_default();
        rank.copies += file.copies;
        rank.bytes = rank.bytes.saturating_add(file.copied_bytes);
        rank.staged = rank.staged.saturating_add(file.staged_bytes);
        rank.host_seconds += file.copies_ns as f64 / 1e9;
    }

    /// All pairs together.
    pub(super) fn sum(&self, what: fn(&PairFacts) -> u64) -> u64 {
        self.pairs.values().map(what).fold(0, u64::saturating_add)
    }

    pub(super) fn host_seconds(&self) -> f64 {
        self.pairs.values().map(|pair| pair.host_seconds).sum()
    }

    /// Whether it may lack something that a whole run has.
    pub(super) fn is_part(&self) -> bool {
        self.is_at_least || !matches!(self.end, Ended::Well | Ended::Unknown)
    }
}

impl PairFacts {
    fn of(pair: &Pair) -> Self {
        let sum = |is_meant: &dyn Fn(Class) -> bool| {
            let paths = pair.paths.iter().filter(|path| is_meant(path.taken.class()));
            paths.map(|path| path.bytes).fold(0, u64::saturating_add)
        };
        let most = pair.paths.iter().max_by_key(|path| path.bytes);
        let timed = most.filter(|path| path.device_calls > 0 && path.device_calls >= path.calls);
        Self {
            copies: pair.calls,
            bytes: pair.bytes,
            direct: sum(&|class| matches!(class, Class::Direct | Class::Mapped)),
            staged: sum(&is_staged),
            first: sum(&|class| class == Class::StartUp),
            by_hand: sum(&|class| class == Class::ByHand),
            host_seconds: pair.host_ns.total as f64 / 1e9,
            gb_per_s: timed.and_then(|path| path.rate.gb_per_s),
            is_broken: pair.is_blocked,
            path: most.map(|path| path.taken.title()).unwrap_or_default(),
            is_slower_directly: most.is_some_and(|path| path.taken.path == Some(Taken::Staged(Why::Slower))),
        }
    }
}

/// Whether copies of a class went through the host, and not just at first.
fn is_staged(class: Class) -> bool {
    class.is_staged() && class != Class::StartUp
}

/// A label whose host is called by its place among the hosts.
fn by_order(label: &str, hosts: &[&str]) -> String {
    let of = hosts.iter().enumerate().find_map(|(at, host)| Some((at, label.strip_prefix(*host)?.strip_prefix(' ')?)));
    of.map_or_else(|| label.to_owned(), |(at, rest)| format!("host {} {rest}", at + 1))
}

fn seconds(from: u64, to: u64) -> Option<f64> {
    (to > from).then(|| (to - from) as f64 / 1e9)
}

fn run_seconds(report: &Report) -> Option<f64> {
    match report.runs.as_slice() {
        [Run { started: Some(from), ended: Some(to), end, .. }] if matches!(end.how, How::Exited | How::Signal) => {
            seconds(*from, *to)
        }
        _ => None,
    }
}

/// How the program ended; where nothing has kept that, how its processes did.
fn ended(report: &Report) -> Ended {
    let badly = |words: String| Ended::Badly(words);
    let by_signal = |signal: &Option<String>| format!("was ended by {}", signal.as_deref().unwrap_or("a signal"));
    for end in report.runs.iter().map(|run| &run.end) {
        match (end.how, end.code) {
            (How::Signal, _) => return badly(by_signal(&end.signal)),
            (How::Exited, Some(0)) => return Ended::Well,
            (How::Exited, Some(code)) => return badly(format!("ended with exit {code}")),
            _ => {}
        }
    }
    let files = || report.processes().filter(|file| file.end.how != How::Exec);
    if files().any(|file| file.end.how == How::Running) {
        return Ended::Running;
    }
    if let Some(code) = files().filter_map(|file| file.end.code).find(|code| *code != 0) {
        return badly(format!("had a process that called exit {code}"));
    }
    if files().count() > 0 && files().all(|file| file.end.code == Some(0)) { Ended::Well } else { Ended::Unknown }
}
