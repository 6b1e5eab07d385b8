//! Counts of all files, by names that mean the same in each of them.

mod gpus;
mod pairs;
mod shared;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use p2pshim_trace::{DeviceTime, NoteKind, State, Trace, Verified};

use super::broken::{ends, is_broken};
use super::buckets::{self, Buckets};
use super::histogram::Histogram;
use super::lost::lost;
use super::model::{
    ByHand, Call, Decision, Error, Failure, File, Finding, FirstContext, Function, Gpu, Moment, Negative, Numbering,
    Origin, Progress, Race, RaceSide, Report, Share, Site, VERSION,
};
use super::names::{self, Access, Failed, MOST_BYTES, Names, Unordered};
use super::paths::Taken;
use super::symbols::UNKNOWN;
use super::tally::{BouncePair, Busy, FunctionTally, Hanging, Made, PairTally, PathTally, Sums, Tally};
use super::term::counted;
use super::timeline::timeline;
use super::unshared;
use gpus::{Identity, is_remote};
use pairs::{judge, model_path, pairs};
use shared::{Shared, is_between};

/// Decisions and unfinished calls that are listed at most.
const LISTED: usize = 10_000;
/// From so many pairs on there are fewer buckets for each: the first is the number of pairs, the second that of buckets.
const MANY_PAIRS: (usize, usize) = (4096, 40);
/// From so many files on there are fewer buckets for each: the first is the number of files, the second that of buckets.
const MANY_FILES: (usize, usize) = (1024, 40);

/// The facts that were found in a file.
pub(super) struct Found<'a> {
    pub(super) trace: &'a Trace,
    pub(super) names: &'a Names,
    pub(super) tally: Tally,
    pub(super) unfinished: Vec<Hanging>,
    pub(super) last_copy: Option<Hanging>,
    pub(super) sites: HashMap<u16, Origin>,
}

#[derive(Debug, Default)]
struct PairTotal {
    calls: u64,
    errors: u64,
    paths: BTreeMap<Taken, PathTally>,
    host: Histogram,
    buckets: Buckets,
    busy: Busy,
    sites: HashMap<Origin, Made>,
}

#[derive(Debug, Default)]
struct ErrorTotal {
    name: Option<String>,
    count: u64,
    sites: HashMap<Origin, u64>,
}

#[derive(Debug, Default)]
struct FindingTotal {
    severity: String,
    count: u64,
    /// With the file that it is from.
    text: Option<(usize, String)>,
    negative: Option<Negative>,
    sites: HashMap<Origin, u64>,
    files: BTreeSet<usize>,
    times: Vec<Moment>,
}

/// Counts of all files.
#[derive(Debug, Default)]
pub(super) struct Totals {
    files: Vec<File>,
    gpus: Vec<(Identity, Gpu)>,
    gpu_numbers: HashMap<Identity, usize>,
    pairs: HashMap<[usize; 2], PairTotal>,
    /// The copies of a file, by the path of a pair that they took.
    shares: Vec<(usize, [usize; 2], Taken, u32, Sums)>,
    /// By file.
    times: Vec<(usize, Buckets)>,
    access: HashMap<[usize; 2], Access>,
    by_hand: Vec<ByHand>,
    functions: HashMap<(String, String), FunctionTally>,
    errors: BTreeMap<(String, String, i32), ErrorTotal>,
    findings: BTreeMap<String, FindingTotal>,
    decisions: Vec<Decision>,
    unfinished: Vec<Call>,
    shared: Shared,
    unshared: unshared::Totals,
    failures: Vec<Failure>,
    races: Vec<Race>,
}

impl Totals {
    /// Adds a file that cannot be read.
    pub(super) fn absorb_unreadable(&mut self, file: File) {
        self.files.push(file);
    }

    /// Adds what was found in a file.
    pub(super) fn absorb(&mut self, mut file: File, found: Found) {
        let Found { trace, names, tally, unfinished, last_copy, sites } = found;
        for (&ordinal, device) in &names.devices {
            self.gpu(&mut file, names, ordinal, Some(device));
        }
        for (&[device, peer], access) in &names.access {
            if let (Some(&device), Some(&peer)) = (file.devices.get(&device), file.devices.get(&peer)) {
                self.access.entry([device, peer]).or_insert_with(|| access.clone());
            }
        }
        self.add_shared(&mut file, names);
        let real = Real::of(names, &tally.pairs);
        let (many, few) = MANY_FILES;
        let most = if self.times.len() < many { buckets::MOST } else { few };
        let mut times = Buckets::default();
        for (ordinals, pair) in tally.pairs {
            if !ordinals.iter().all(|&ordinal| real.has(ordinal)) {
                continue;
            }
            let gpus = ordinals.map(|ordinal| self.gpu(&mut file, names, ordinal, None));
            if gpus[0] != gpus[1] {
                file.copies += pair.calls;
                file.copies_ns = file.copies_ns.saturating_add(pair.host.durations().total);
            }
            match ordinals.into_iter().any(is_remote) {
                true => self.shared.keep(file.index, ordinals, gpus, &pair),
                false => times.merge(pair.buckets.clone(), most),
            }
            self.add_pair(file.index, gpus, pair, is_between(ordinals));
        }
        self.times.push((file.index, times));
        for (number, theirs) in tally.functions {
            let ours = self.functions.entry(names.function(number)).or_default();
            ours.calls += theirs.calls;
            ours.errors += theirs.errors;
            ours.host.merge(theirs.host);
        }
        let unknown = || Origin { site: UNKNOWN.to_owned(), ..Origin::default() };
        let site = |number: u16| sites.get(&number).cloned().unwrap_or_else(unknown);
        for (([src, dst], from), count) in
            tally.copies.into_iter().filter(|((pair, _), _)| pair.iter().all(|&it| real.has(it)))
        {
            let pair = [src, dst].map(|ordinal| self.gpu(&mut file, names, ordinal, None));
            *self.pairs.entry(pair).or_default().sites.entry(site(from)).or_default() += count;
        }
        self.add_by_hand(&mut file, names, tally.by_hand, site);
        self.unshared.add(file.index, names, site);
        self.add_failures(&mut file, names, site);
        self.add_races(&file, names, site);
        for ((function, code, from), count) in tally.errors {
            let (layer, function) = names.function(function);
            let name = names.code(&layer, code);
            let total = self.errors.entry((layer, function, code)).or_default();
            total.name = total.name.take().or(name);
            total.count += count;
            *total.sites.entry(site(from)).or_default() += count;
        }
        self.add_findings(file.index, trace, names, &tally.findings, site);
        for hanging in unfinished {
            if self.unfinished.len() < LISTED {
                let call = self.call(&mut file, trace, names, &real, &hanging, site(hanging.record.site));
                self.unfinished.push(call);
            }
        }
        file.last_copy = last_copy.map(|last| self.call(&mut file, trace, names, &real, &last, site(last.record.site)));
        self.add_decisions(&mut file, trace, names, &real);
        let seen = file.devices.iter().filter(|(ordinal, _)| !is_remote(**ordinal));
        file.gpus = seen.map(|(_, gpu)| *gpu).collect();
        self.files.push(file);
    }

    /// Adds the first contexts, threads of Python, and calls without a record that have failed, in the order of time.
    fn add_failures(&mut self, file: &mut File, names: &Names, site: impl Fn(u16) -> Origin) {
        file.first_contexts = first_contexts(names, &site);
        file.pythons.clone_from(&names.pythons);
        for failed in &names.failed {
            let Failed { time, code, ref function, ref name, .. } = *failed;
            let numbered = |ordinal: Option<u8>| ordinal.and_then(|ordinal| file.devices.get(&ordinal).copied());
            let [gpu, memory_gpu] = [failed.device, failed.of_memory].map(numbered);
            let (function, name, from) = (function.clone(), name.clone(), site(failed.site));
            let (file, is_capturing) = (file.index, failed.is_capturing);
            self.failures.push(Failure { file, time, function, code, name, gpu, memory_gpu, is_capturing, from });
        }
        self.failures.sort_by_key(|failure| failure.time);
    }

    /// Adds accesses that nothing orders.
    fn add_races(&mut self, file: &File, names: &Names, site: impl Fn(u16) -> Origin) {
        for Unordered { time, level, sides, bytes, device } in &names.unordered {
            let gpu = device.and_then(|ordinal| file.devices.get(&ordinal).copied());
            let [first, second] = sides.clone().map(|(place, [function, verb, stream])| RaceSide {
                function,
                verb,
                stream,
                from: site(place),
            });
            let (file, time, level, bytes) = (file.index, *time, level.clone(), *bytes);
            self.races.push(Race { file, time, level, first, second, bytes, gpu });
        }
    }

    fn add_decisions(&mut self, file: &mut File, trace: &Trace, names: &Names, real: &Real) {
        let mut damaged = 0u64;
        for note in trace.notes_of(NoteKind::Decision) {
            if self.decisions.len() >= LISTED {
                file.problems.push("there are more decisions than are listed".to_owned());
                break;
            }
            let ends = [note.number >> 8, note.number & 255];
            let ends = ends.map(|ordinal| u8::try_from(ordinal).ok().filter(|&ordinal| real.has(ordinal)));
            let [Some(src), Some(dst)] = ends.map(|end| Some(self.gpu(file, names, end?, None))) else {
                damaged += 1;
                continue;
            };
            let (src, dst) = (Some(src), Some(dst));
            let time = trace.timeline().real(note.time);
            let text = note.string(0).to_owned();
            let verified = note.value("verified").and_then(Verified::named);
            self.decisions.push(Decision { file: file.index, time, src, dst, verified, text });
        }
        if damaged > 0 {
            let decisions = counted(damaged, "decision");
            file.problems
                .push(format!("{decisions} left out as damaged: about devices that the process does not have"));
        }
    }

    fn add_by_hand(
        &mut self,
        file: &mut File,
        names: &Names,
        pairs_by_hand: HashMap<([u8; 2], u16), BouncePair>,
        site: impl Fn(u16) -> Origin,
    ) {
        for ((ordinals, to), BouncePair { calls, bytes, sampled, from }) in pairs_by_hand {
            let [src, dst] = ordinals.map(|ordinal| self.gpu(file, names, ordinal, None));
            self.by_hand.push(ByHand { src, dst, calls, bytes, sampled, from: site(from), to: site(to) });
        }
    }

    fn add_pair(&mut self, file: usize, pair: [usize; 2], theirs: PairTally, between_processes: bool) {
        let is_new = !self.pairs.contains_key(&pair);
        let ours = self.pairs.entry(pair).or_default();
        ours.calls += theirs.calls;
        ours.errors += theirs.errors;
        for (number, path) in theirs.paths {
            let taken = Taken { between_processes, ..Taken::numbered(number) };
            if pair[0] != pair[1] {
                self.shares.extend(path.sizes().map(|(power, sums)| (file, pair, taken, power, sums)));
            }
            ours.paths.entry(taken).or_default().merge(path);
        }
        ours.host.merge(theirs.host);
        ours.busy.merge(theirs.busy);
        let (many, few) = MANY_PAIRS;
        let count = self.pairs.len();
        let most = if count > many { few } else { buckets::MOST };
        if let Some(ours) = self.pairs.get_mut(&pair) {
            ours.buckets.merge(theirs.buckets, most);
        }
        if is_new && count == many + 1 {
            self.pairs.values_mut().for_each(|pair| pair.buckets.limit(few));
        }
    }

    fn add_findings(
        &mut self,
        file: usize,
        trace: &Trace,
        names: &Names,
        counts: &HashMap<(u8, u16), u64>,
        site: impl Fn(u16) -> Origin,
    ) {
        // Some are noted before a call that then does not return, and stand in no record.
        let mut noted: BTreeMap<u8, (u64, String)> = BTreeMap::new();
        for note in trace.notes_of(NoteKind::Finding) {
            if let Ok(rule) = u8::try_from(note.number) {
                noted.entry(rule).or_insert_with(|| (0, note.string(0).to_owned())).0 += 1;
                let total = self.findings.entry(names.rule(rule).0).or_default();
                if total.times.len() < LISTED {
                    total.times.push(Moment { time: trace.timeline().real(note.time), file });
                }
                let size = note.value("size").and_then(|size| size.parse().ok());
                if let (None, Some(size), Some(function)) = (&total.negative, size, note.value("function")) {
                    total.negative = Some(Negative { function: function.to_owned(), size });
                }
            }
        }
        let mut counted: BTreeMap<u8, u64> = BTreeMap::new();
        for (&(rule, from), &count) in counts {
            *counted.entry(rule).or_default() += count;
            let total = self.findings.entry(names.rule(rule).0).or_default();
            *total.sites.entry(site(from)).or_default() += count;
        }
        let rules: BTreeSet<u8> = noted.keys().chain(counted.keys()).copied().collect();
        for rule in rules {
            let (id, severity) = names.rule(rule);
            let total = self.findings.entry(id).or_default();
            total.severity = severity;
            let noted = noted.remove(&rule);
            let times = noted.as_ref().map_or(0, |(times, _)| *times);
            total.count += counted.get(&rule).copied().unwrap_or_default().max(times);
            total.files.insert(file);
            if let (Some((_, text)), true) = (noted, total.text.as_ref().is_none_or(|(earlier, _)| file < *earlier)) {
                total.text = Some((file, text));
            }
        }
    }

    fn call(
        &mut self,
        file: &mut File,
        trace: &Trace,
        names: &Names,
        real: &Real,
        hanging: &Hanging,
        from: Origin,
    ) -> Call {
        let Hanging { thread, record, inner, was_left, is_wait } = *hanging;
        let (layer, function) = names.function(record.function);
        let mut gpu =
            |ordinal: Option<u8>| ordinal.filter(|&it| real.has(it)).map(|it| self.gpu(file, names, it, None));
        let (src, dst) = (gpu(record.src_device), gpu(record.dst_device));
        let started = trace.timeline().real(record.start);
        let returned = (record.state == State::Done).then(|| trace.timeline().real(record.end));
        let progress = match returned {
            Some(_) => Progress::Returned,
            None if was_left => Progress::Left,
            None => Progress::Hangs,
        };
        Call {
            file: file.index,
            thread,
            layer,
            function,
            started,
            progress,
            age_ns: None,
            src,
            dst,
            bytes: Some(record.bytes).filter(|bytes| (1..=MOST_BYTES).contains(bytes)),
            stream: record.stream,
            is_wait,
            is_made: record.device_time == DeviceTime::Known,
            path: p2pshim_trace::Path::numbered(record.path),
            from,
            inner: inner.map(|inner| names.function(inner).1),
            returned,
        }
    }

    /// Gives the GPUs of decisions and calls other numbers.
    fn renumber(&mut self, number: impl Fn(usize) -> usize) {
        let last = self.files.iter_mut().filter_map(|file| file.last_copy.as_mut());
        let of_calls = self.unfinished.iter_mut().chain(last).flat_map(|it| [&mut it.src, &mut it.dst]);
        let of_decisions = self.decisions.iter_mut().flat_map(|it| [&mut it.src, &mut it.dst]);
        let of_failures = self.failures.iter_mut().flat_map(|it| [&mut it.gpu, &mut it.memory_gpu]);
        let of_races = self.races.iter_mut().map(|it| &mut it.gpu);
        of_calls.chain(of_decisions).chain(of_failures).chain(of_races).for_each(|gpu| *gpu = gpu.map(&number));
    }

    /// The report. Rows that threads have found in any order come in one order.
    pub(super) fn report(mut self) -> Report {
        self.files.sort_by_key(|file| file.index);
        let (meant, mut between_processes) = self.resolve();
        let numbers = self.sort_gpus(&meant);
        let number = |gpu: usize| numbers.get(gpu).copied().unwrap_or(gpu);
        for file in &mut self.files {
            file.gpus.iter_mut().chain(file.devices.values_mut()).for_each(|gpu| *gpu = number(*gpu));
            file.gpus.sort_unstable();
            file.gpus.dedup();
        }
        self.renumber(number);
        let exporters = self.shared.exporters().map(|(file, gpu)| (file, number(gpu))).collect();
        between_processes.iter_mut().for_each(|it| (it.src, it.dst) = (number(it.src), number(it.dst)));
        between_processes.sort_by_key(|it| (it.file, it.src, it.dst, it.src_file, it.dst_file));
        self.by_hand.iter_mut().for_each(|it| (it.src, it.dst) = (number(it.src), number(it.dst)));
        sort_by_hand(&mut self.by_hand);
        self.decisions
            .sort_by(|one, other| (one.time, one.file, &one.text).cmp(&(other.time, other.file, &other.text)));
        self.unfinished.sort_by_key(|it| (it.progress == Progress::Left, it.file, it.started, it.thread));
        let shares = self.shares.iter().map(|(file, pair, taken, power, sums)| Share {
            file: *file,
            pair: pair.map(number),
            power: *power,
            path: model_path(*taken, *sums),
        });
        let shares: Vec<Share> = shares.collect();
        let (mut pairs, times) = pairs(self.pairs, &self.access, number);
        let of_pairs = self.decisions.iter().filter(|it| it.verified.is_some());
        let last: BTreeMap<(usize, usize), &Decision> =
            of_pairs.filter_map(|it| Some((ends(it.src?, it.dst?), it))).collect();
        let broken = self.decisions.iter().filter(|it| is_broken(it));
        let broken: BTreeSet<(usize, usize)> = broken.filter_map(|it| Some(ends(it.src?, it.dst?))).collect();
        for pair in &mut pairs {
            let ends = ends(pair.src, pair.dst);
            judge(pair, last.get(&ends).copied(), broken.contains(&ends));
        }
        let lost = lost(&pairs, &shares, &[]);
        Report {
            version: VERSION,
            filter: None,
            files: self.files,
            gpus: self.gpus.into_iter().map(|(_, gpu)| gpu).collect(),
            pairs,
            between_processes,
            exporters,
            by_hand: self.by_hand,
            unshared: self.unshared.into_rows(sites),
            failures: self.failures,
            races: self.races,
            suppressed: Vec::new(),
            functions: functions(self.functions),
            errors: errors(self.errors),
            findings: findings(self.findings),
            decisions: self.decisions,
            unfinished: self.unfinished,
            lost,
            nvlink: None,
            timeline: timeline(times, self.times),
            shares,
            gaps: Vec::new(),
            lower_bounds: false,
            runs: Vec::new(),
            times: Vec::new(),
            unseen: Vec::new(),
        }
    }
}

/// Ordinals that devices of a process have, and not only arguments.
struct Real {
    named: BTreeSet<u8>,
    /// Ordinals that a copy has succeeded with.
    used: BTreeSet<u8>,
}

impl Real {
    fn of(names: &Names, pairs: &HashMap<[u8; 2], PairTally>) -> Self {
        let has_succeeded = |(_, tally): &(&[u8; 2], &PairTally)| !tally.paths.is_empty();
        let used = pairs.iter().filter(has_succeeded).flat_map(|(pair, _)| *pair).collect();
        Self { named: names.devices.keys().copied().collect(), used }
    }

    /// If no device is named, any may be one.
    fn has(&self, ordinal: u8) -> bool {
        self.named.is_empty() || is_remote(ordinal) || self.named.contains(&ordinal) || self.used.contains(&ordinal)
    }
}

/// The first contexts of a process on GPUs, and where they were made.
fn first_contexts(names: &Names, site: impl Fn(u16) -> Origin) -> Vec<FirstContext> {
    let context = |&names::Context { ordinal, thread, site: place, time }: &names::Context| FirstContext {
        ordinal,
        thread,
        time,
        from: site(place),
    };
    names.contexts.iter().map(context).collect()
}

fn functions(totals: HashMap<(String, String), FunctionTally>) -> Vec<Function> {
    let functions = totals.into_iter().map(|((layer, name), tally)| Function {
        layer,
        name,
        calls: tally.calls,
        errors: tally.errors,
        host_ns: tally.host.durations(),
    });
    let mut functions: Vec<Function> = functions.collect();
    functions.sort_by(|one, other| {
        let key = |it: &Function| (std::cmp::Reverse(it.host_ns.total), std::cmp::Reverse(it.calls));
        key(one).cmp(&key(other)).then_with(|| (&one.layer, &one.name).cmp(&(&other.layer, &other.name)))
    });
    functions
}

fn sort_by_hand(all: &mut [ByHand]) {
    all.sort_by(|one, other| {
        let key = |it: &ByHand| (it.src, it.dst, std::cmp::Reverse(it.bytes));
        key(one).cmp(&key(other)).then_with(|| (&one.from, &one.to).cmp(&(&other.from, &other.to)))
    });
}

fn sites(counts: HashMap<Origin, u64>) -> Vec<Site> {
    let mut sites: Vec<Site> = counts.into_iter().map(|(from, count)| Site { from, count }).collect();
    sites.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.from.cmp(&other.from)));
    sites
}

fn errors(totals: BTreeMap<(String, String, i32), ErrorTotal>) -> Vec<Error> {
    let errors = totals.into_iter().map(|((layer, function, result), total)| {
        let (code, numbering) = Numbering::split(result);
        Error { layer, function, code, numbering, name: total.name, count: total.count, sites: sites(total.sites) }
    });
    let mut errors: Vec<Error> = errors.collect();
    errors.sort_by_key(|error| std::cmp::Reverse(error.count));
    errors
}

/// How bad a severity is: 0 is worst.
pub(super) fn badness(severity: &str) -> usize {
    ["error", "hazard", "performance", "note"].iter().position(|&known| known == severity).unwrap_or(4)
}

fn findings(totals: BTreeMap<String, FindingTotal>) -> Vec<Finding> {
    let findings = totals.into_iter().map(|(rule, mut total)| Finding {
        rule,
        times: {
            total.times.sort_unstable();
            total.times
        },
        severity: total.severity,
        count: total.count,
        text: total.text.map(|(_, text)| text),
        is_told: false,
        negative: total.negative,
        sites: sites(total.sites),
        files: total.files.into_iter().collect(),
    });
    let mut findings: Vec<Finding> = findings.collect();
    findings.sort_by_key(|finding| (badness(&finding.severity), std::cmp::Reverse(finding.count)));
    findings
}
