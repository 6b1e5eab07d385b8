//! Reads traces and makes a report of them, a part of a file at a time, by several threads.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use p2pshim_host::machine;
use p2pshim_trace::{Error, GUESSED_TIMES, Note, NoteKind, Trace};

use super::files::{self, Files};
use super::filter::Filter;
use super::lost::{NO_RATE, NO_RATE_THAT_FITS};
use super::model::{End, File, Mark, Origin, Report, STATIC_RUNTIME, Thread};
use super::names::Names;
use super::nvlink;
use super::processes;
use super::suppressions::Suppressions;
use super::symbols::Symbols;
use super::tally::{Hanging, Key, Lens, Open, Tally};
use super::totals::{Found, Totals};
use crate::lock::lock;
use crate::runs::Run;

/// Threads that read at most.
const THREADS: usize = 8;
/// Blocks of calls from which on a file is read by several threads: 8 MiB.
const LARGE: usize = 512;
/// Blocks of a thread that are counted together.
const UNIT: usize = 64;

/// The options of a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options<'a> {
    /// Whether places in the code get functions and lines.
    pub(crate) symbols: bool,
    /// Whether programs keep all arguments: they may be secrets.
    pub(crate) with_arguments: bool,
    /// The races that are left out, beside those that always are.
    pub(crate) suppress: Option<&'a Suppressions>,
    /// Which calls are wanted, if not all are, and the report of all.
    pub(crate) filter: Option<(&'a Filter, &'a Report)>,
}

/// Where a trace comes from.
pub(super) type Opener<'a> = &'a (dyn Fn(usize) -> Result<Trace, Error> + Sync);

/// Reads the files.
pub(crate) fn gather(files: &Files, runs: &[Run], options: &Options) -> Result<Report, files::Error> {
    gather_as(files, runs, options, None)
}

/// Reads the files of programs that may run, so many of each thread's last blocks at most. Calls without a record are in `unfinished`: those that
/// are under way, and of each thread the last that has returned.
pub(super) fn gather_live(
    files: &Files,
    runs: &[Run],
    blocks: usize,
    with_arguments: bool,
) -> Result<Report, files::Error> {
    gather_as(files, runs, &Options { symbols: true, with_arguments, suppress: None, filter: None }, Some(blocks))
}

fn gather_as(
    files: &Files,
    runs: &[Run],
    options: &Options,
    last_blocks: Option<usize>,
) -> Result<Report, files::Error> {
    let Files { traces: files, readings, .. } = files;
    let size = |path: &PathBuf| fs::metadata(path).map_or(0, |metadata| metadata.len());
    let sizes: Vec<u64> = files.iter().map(size).collect();
    files.iter().for_each(|file| log::debug!("reads {}", file.display()));
    let open = |index: usize| Trace::open(files.get(index).map_or(Path::new(""), PathBuf::as_path));
    let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let mut report = gather_blocks(&names, &sizes, &open, options, last_blocks);
    for (file, location) in report.files.iter_mut().zip(files) {
        file.location.clone_from(location);
    }
    if report.files.iter().all(|file| file.process.is_none()) {
        let why = |file: File| (file.path, file.problems.into_iter().next().unwrap_or_default());
        return Err(files::Error::Unreadable(report.files.into_iter().map(why).collect()));
    }
    if let Some((filter, _)) = options.filter {
        filter.keep_notes(&mut report);
        report.filter = Some(filter.to_string());
    }
    report.suppressed = options.suppress.unwrap_or(&Suppressions::default()).apply(&mut report.races);
    processes::complete(&mut report, runs);
    if options.filter.is_some() {
        report.lost.basis = report.lost.basis.replace(NO_RATE, NO_RATE_THAT_FITS);
    } else {
        // Counters count all copies.
        report.nvlink = nvlink::compare(&report, &crate::nvlink::load(readings));
    }
    if !options.with_arguments {
        processes::drop_arguments(&mut report);
    }
    Ok(report)
}

#[cfg(test)]
pub(super) fn gather_from(names: &[String], sizes: &[u64], open: Opener, options: &Options) -> Report {
    gather_blocks(names, sizes, open, options, None)
}

/// Reads traces that have names, sizes in bytes, and a way to open them.
fn gather_blocks(
    names: &[String],
    sizes: &[u64],
    open: Opener,
    options: &Options,
    last_blocks: Option<usize>,
) -> Report {
    let gathering = Gathering {
        names,
        open,
        last_blocks,
        symbols: Mutex::new(Symbols::new(options.symbols)),
        filter: options.filter,
        totals: Mutex::new(Totals::default()),
    };
    let is_large = |index: &usize| {
        let chunks = sizes.get(*index).map_or(0, |size| size / p2pshim_trace::CHUNK_BYTES as u64);
        chunks > LARGE as u64
    };
    let (large, small): (Vec<usize>, Vec<usize>) = (0..names.len()).partition(is_large);
    parallel(small.len(), |number| {
        small.get(number).into_iter().for_each(|&index| gathering.read(index, false));
    });
    for index in large {
        gathering.read(index, true);
    }
    gathering.totals.into_inner().unwrap_or_else(PoisonError::into_inner).report()
}

struct Gathering<'a> {
    names: &'a [String],
    open: Opener<'a>,
    /// See [`gather_live`].
    last_blocks: Option<usize>,
    symbols: Mutex<Symbols>,
    filter: Option<(&'a Filter, &'a Report)>,
    totals: Mutex<Totals>,
}

impl Gathering<'_> {
    fn read(&self, index: usize, by_several: bool) {
        let path = self.names.get(index).cloned().unwrap_or_default();
        // The names of functions are noted last, and before any call.
        let is_begun = |trace: &Trace| {
            let has_calls = trace.blocks() > 0 || trace.dropped() > 0 || trace.notes_of(NoteKind::Function).count() > 0;
            !has_calls && trace.problems().is_empty()
        };
        let trace = match (self.open)(index) {
            Ok(trace) if is_begun(&trace) => Err(Error::Empty),
            opened => opened,
        };
        let trace = match trace {
            Ok(trace) => trace,
            Err(error) => {
                let (problems, is_begun) = (vec![error.to_string()], matches!(error, Error::Empty));
                let file = File { index, path, problems, is_begun, is_whole: is_begun, ..File::default() };
                lock(&self.totals).absorb_unreadable(file);
                return;
            }
        };
        let names = Names::of(&trace);
        let selection = self.filter.map(|(filter, whole)| filter.of_file(whole, index, &names));
        let lens = Lens::new(trace.timeline(), &names, selection);
        let mut tally = tally(&trace, &lens, by_several, self.last_blocks.unwrap_or(usize::MAX));
        tally.count_bounces(&lens, &names);
        let mut unfinished = unfinished(&tally);
        let last_copy = last_copy(&tally);
        for hanging in &unfinished {
            tally.count_pair(&lens, &hanging.record);
        }
        // A wait is of no pair, function or result, which filters ask for.
        if self.filter.is_none() {
            unfinished.extend(tally.waits(&lens, self.last_blocks.is_some()));
        }
        let sites = self.sites(&names, &tally, unfinished.iter().chain(&last_copy));
        let mut file = file(index, path, &trace, &names, &tally);
        let linked = names.static_runtimes(&mut lock(&self.symbols));
        file.versions.extend(linked.map(|linked| (STATIC_RUNTIME.to_owned(), linked)));
        lock(&self.totals).absorb(file, Found { trace: &trace, names: &names, tally, unfinished, last_copy, sites });
    }

    /// Describes the places that the report names.
    fn sites<'a>(
        &self,
        names: &Names,
        tally: &Tally,
        calls: impl Iterator<Item = &'a Hanging>,
    ) -> HashMap<u16, Origin> {
        let errors = tally.errors.keys().map(|&(_, _, site)| site);
        let findings = tally.findings.keys().map(|&(_, site)| site);
        let copies = tally.copies.keys().map(|&(_, site)| site);
        let ends = tally.by_hand.iter().flat_map(|(&(_, to), pair)| [pair.from, to]);
        let unshared = names.unshared.keys().map(|(site, ..)| *site);
        let failed = names.failed.iter().map(|call| call.site).chain(names.contexts.iter().map(|it| it.site));
        let unordered = names.unordered.iter().flat_map(|race| race.sides.each_ref().map(|side| side.0));
        let calls = calls.map(|call| call.record.site).chain(ends).chain(unshared).chain(failed).chain(unordered);
        let mut symbols = lock(&self.symbols);
        let mut sites = HashMap::new();
        for site in errors.chain(findings).chain(copies).chain(calls) {
            sites.entry(site).or_insert_with(|| names.origin(site, &mut symbols));
        }
        sites
    }
}

/// Counts a file, of each thread so many blocks at most.
fn tally(trace: &Trace, lens: &Lens, by_several: bool, most: usize) -> Tally {
    let mut blocks: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (number, thread) in trace.block_threads().enumerate() {
        blocks.entry(thread).or_default().push(number);
    }
    let mut units: Vec<(&[usize], Option<usize>)> = Vec::new();
    for blocks in blocks.values() {
        let mut before = None;
        for unit in blocks.get(blocks.len().saturating_sub(most)..).unwrap_or_default().chunks(UNIT) {
            units.push((unit, before));
            before = unit.last().copied();
        }
    }
    let whole = Mutex::new(Tally::default());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut part = Tally::default();
        while let Some((unit, before)) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
            part.read(trace, lens, unit, *before);
        }
        lock(&whole).merge(part);
    };
    if by_several {
        thread::scope(|scope| {
            // If there can be no more threads, this one does it all.
            for _ in 1..threads().min(units.len()) {
                let _ = thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
    } else {
        work();
    }
    whole.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The program's last copy that has returned, by whichever thread.
fn last_copy(tally: &Tally) -> Option<Hanging> {
    let copies = tally.threads.iter().filter_map(|(&thread, it)| Some((thread, it.last_copy?.1)));
    let (thread, record) = copies.max_by_key(|(_, record)| record.end)?;
    Some(Hanging { thread, record, inner: None, was_left: false, is_wait: false })
}

/// Puts together the calls that hang inside each other.
fn unfinished(tally: &Tally) -> Vec<Hanging> {
    let mut open: Vec<&Open> = tally.open.iter().collect();
    open.sort_by_key(|open| open.key);
    let mut hanging: BTreeMap<Key, Hanging> = BTreeMap::new();
    for open in open {
        let Open { key, thread, root, record } = *open;
        if let Some(outer) = root.filter(|root| *root != key).and_then(|root| hanging.get_mut(&root)) {
            outer.inner = Some(record.function);
            let ours = &mut outer.record;
            // The driver knows whose memory it is.
            if record.src_device.is_some() && record.dst_device.is_some() && record.bytes > 0 {
                (ours.src_device, ours.dst_device) = (record.src_device, record.dst_device);
                (ours.bytes, ours.path) = (record.bytes, record.path);
            }
            continue;
        }
        let last = tally.threads.get(&thread).map_or(key, |thread| thread.last.0);
        hanging.insert(key, Hanging { thread, record, inner: None, was_left: key < last, is_wait: false });
    }
    hanging.into_values().collect()
}

/// Marks of a file that are listed at most.
const MARKS: usize = 10_000;

/// No trace is from before this: 2020-01-01, in nanoseconds since 1970.
pub(super) const EARLIEST: u64 = 1_577_836_800_000_000_000;

/// The report's facts about a file itself.
fn file(index: usize, path: String, trace: &Trace, names: &Names, tally: &Tally) -> File {
    let timeline = trace.timeline();
    let bounds = names.bounds(timeline);
    let notes = trace.notes().iter().map(|note| note.time).filter(|&time| bounds.is_near(time));
    let (first, last) = tally.span.unzip();
    // A file that has lost its clocks has no known date.
    let date = |ticks: u64| Some(timeline.real(ticks)).filter(|&time| time >= EARLIEST);
    let started = notes.clone().chain(first).min().and_then(date);
    let ended = notes.chain(last).max().and_then(date);
    let threads = tally.threads.iter().map(|(&id, thread)| Thread {
        id,
        name: thread.name.1.clone(),
        calls: thread.calls,
        last_start: thread.last.1,
    });
    let mut threads: Vec<Thread> = threads.collect();
    threads.sort_by_key(|thread| thread.id);
    let mut problems = damage(trace, tally);
    let is_whole = problems.is_empty();
    let lacks_only_times = !is_whole && problems.iter().all(|problem| problem == GUESSED_TIMES);
    problems.extend(unlisted(trace, tally));
    problems.extend(trace.notes_of(NoteKind::Message).map(|note| note.string(0).to_owned()));
    let mark =
        |note: &Note| Mark { time: timeline.real(note.time), thread: note.number, text: note.string(0).to_owned() };
    let still_runs = still_runs(trace, names, started);
    let marks: Vec<Mark> = trace.notes_of(NoteKind::Mark).take(MARKS).map(mark).collect();
    File {
        index,
        path,
        location: PathBuf::new(),
        host: names.host.clone(),
        boot_id: names.boot_id.clone(),
        process: Some(trace.process()),
        namespace: names.process_namespace.clone(),
        process_start: names.process_start.clone(),
        program: names.program.clone(),
        rank: names.rank(),
        started,
        ended,
        calls: tally.calls,
        records: tally.records,
        to_host_bytes: tally.host_bytes[0],
        from_host_bytes: tally.host_bytes[1],
        dropped: trace.dropped(),
        unseen: trace.unseen(),
        limit: trace.limit(),
        threads,
        marks,
        versions: names.versions.clone(),
        variables: names.variables.clone(),
        gpus: Vec::new(),
        problems,
        is_whole,
        is_begun: false,
        lacks_only_times,
        running: still_runs == Some(true),
        may_run: trace.exit_status().is_none() && still_runs.is_none(),
        end: End::default(),
        copies_of_unknown_devices: tally.of_unknown_devices,
        knows_last_copies: tally.knows_last_copies(),
        last_copy: None,
        differs: Vec::new(),
        exit: trace.exit_status(),
        is_program: false,
        is_child: false,
        gone: None,
        run_ended: None,
        ..File::default()
    }
}

/// The damage that keeps the file from being read in whole.
fn damage(trace: &Trace, tally: &Tally) -> Vec<String> {
    let mut problems = trace.problems().to_vec();
    if let (count @ 1.., why) = &tally.unread {
        let why = why.as_deref().unwrap_or("not known why");
        problems.push(format!("{count} of {} parts cannot be read: {why}", trace.blocks()));
    }
    if tally.impossible > 0 {
        problems.push(format!("{} records are damaged and left out: no call can have such values", tally.impossible));
    }
    problems
}

/// The sentences about calls, errors and marks of the file that are not listed.
fn unlisted(trace: &Trace, tally: &Tally) -> Vec<String> {
    let mut problems = Vec::new();
    if tally.forgotten > 0 {
        problems.push(format!("{} more calls have not returned; they are not listed", tally.forgotten));
    }
    if tally.uncounted > 0 {
        problems.push(format!("{} more errors or findings are not listed", tally.uncounted));
    }
    if tally.left_out > 0 {
        problems.push(format!("{} more copies with the host are not searched for copies by hand", tally.left_out));
    }
    if let Some(more @ 1..) = trace.notes_of(NoteKind::Mark).count().checked_sub(MARKS) {
        problems.push(format!("{more} more marks are not listed"));
    }
    problems
}

/// Whether the process is still there, and has not become another program; none if that cannot be seen from here.
fn still_runs(trace: &Trace, names: &Names, started: Option<u64>) -> Option<bool> {
    let (process, name) = (trace.process(), trace.path().file_name()?.to_string_lossy());
    if !names.is_of_here() {
        return None;
    }
    match mapped(process) {
        // By its name: this may be a copy of the file.
        Ok(maps) => Some(maps.lines().any(|line| line.trim_end_matches(" (deleted)").ends_with(&*name))),
        // Where processes of others are hidden, so is the first.
        Err(error) if error.kind() == ErrorKind::NotFound => Path::new("/proc/1").exists().then_some(false),
        Err(_) => is_later(process, started).then_some(false),
    }
}

/// The mappings of a process. A trace is as long as its program runs.
fn mapped(process: u32) -> io::Result<String> {
    for thread in fs::read_dir(format!("/proc/{process}/task"))?.flatten() {
        match fs::read(thread.path().join("maps")) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(error),
            // A main thread that has ended has nothing, and others have.
            maps if maps.as_ref().is_ok_and(|maps| !maps.is_empty()) => {
                return maps.map(|maps| String::from_utf8_lossy(&maps).into_owned());
            }
            _ => {}
        }
    }
    Ok(String::new())
}

/// Whether the process that now has a number was started after a trace of one that had it.
fn is_later(process: u32, started: Option<u64>) -> bool {
    /// Clocks are set; two processes get the same number less quickly.
    const SLACK: f64 = 60.0;
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    let uptime = read("/proc/uptime".to_owned());
    let stat = read(format!("/proc/{process}/stat"));
    let since_boot = uptime.split(' ').next().and_then(|seconds| seconds.parse::<f64>().ok());
    // In hundredths of a second; the name of the program, in brackets, may have spaces.
    let begun = stat.rsplit(')').next().and_then(|rest| rest.split(' ').nth(20)?.parse::<f64>().ok());
    let age = since_boot.zip(begun).map(|(since_boot, begun)| since_boot - begun / 100.0).filter(|&age| age >= 0.0);
    let known = started.map(|started| machine::now().saturating_sub(started) as f64 / 1e9);
    age.zip(known).is_some_and(|(age, known)| age + SLACK < known)
}

/// How many threads there may be.
fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(THREADS)
}

/// Does something for each number below `count`, by several threads.
fn parallel(count: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    let all = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            work(number);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads().min(count) {
            let _ = thread::Builder::new().spawn_scoped(scope, all);
        }
        all();
    });
}
