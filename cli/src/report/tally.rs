//! Counts of one file: what can be counted in any order, by several threads, and added up.

mod bounces;
mod busy;
mod pairs;
mod walk;

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::ops::AddAssign;

use p2pshim_trace::{Class, DeviceTime, Path, Record, State, Timeline, Trace, Wait};

use super::buckets;
use super::filter::Selection;
use super::histogram::Histogram;
use super::names::{AllVisible, Bounds, Names, Visible};
use super::paths::Taken;
pub(super) use bounces::BouncePair;
use bounces::HostCopies;
pub(super) use busy::Busy;
pub(super) use pairs::{ENOUGH, PairTally, PathTally, Sums};
pub(super) use walk::{Step, Walk};

/// Unfinished calls of a file that are remembered. Only a damaged file has more.
const UNFINISHED: usize = 4096;
/// Errors, findings and streams that are told apart. Only a damaged file has more errors and findings.
const PLACES: usize = 1 << 16;

/// Calls of a function.
#[derive(Debug, Default)]
pub(super) struct FunctionTally {
    pub(super) calls: u64,
    pub(super) errors: u64,
    pub(super) host: Histogram,
}

/// Where a record is in its file: number of the block, then of the record in it.
pub(super) type Key = (usize, usize);

/// A thread.
#[derive(Debug, Default)]
pub(super) struct ThreadTally {
    /// The latest block, and its name of the thread.
    pub(super) name: (usize, String),
    pub(super) calls: u64,
    /// The last call of the program, and when it began.
    pub(super) last: (Key, u64),
    /// Its last call that has copied something.
    pub(super) last_copy: Option<(Key, Record)>,
    /// Its last call without a record.
    wait: Option<Wait>,
}

impl ThreadTally {
    fn keep_wait(&mut self, other: Option<Wait>) {
        self.wait = self.wait.into_iter().chain(other).max_by_key(|wait| wait.when);
    }
}

/// A call that has not returned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) key: Key,
    pub(super) thread: u32,
    /// The program's call that it is, or belongs to.
    pub(super) root: Option<Key>,
    pub(super) record: Record,
}

/// A call of the program that has not returned, with what is known of it and of those inside it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hanging {
    pub(super) thread: u32,
    pub(super) record: Record,
    /// The innermost function that has not returned either.
    pub(super) inner: Option<u8>,
    pub(super) was_left: bool,
    /// Whether it has no record.
    pub(super) is_wait: bool,
}

/// Counts of a file, or of a part of it.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) calls: u64,
    /// Calls of the program, and those inside them.
    pub(super) records: u64,
    pub(super) functions: HashMap<u8, FunctionTally>,
    pub(super) pairs: HashMap<[u8; 2], PairTally>,
    /// Copies that have returned and of which the devices are not known.
    pub(super) of_unknown_devices: u64,
    /// Copies that have returned, by devices and site, in programs of which more than that is known.
    pub(super) copies: HashMap<([u8; 2], u16), Made>,
    host: HostCopies,
    /// Bytes copied to the host, and from there.
    pub(super) host_bytes: [u64; 2],
    /// Copies with the host that were not kept.
    pub(super) left_out: u64,
    /// Copies by hand, by devices and the site of the second half.
    pub(super) by_hand: HashMap<([u8; 2], u16), BouncePair>,
    /// By function, code and site.
    pub(super) errors: HashMap<(u8, i32, u16), u64>,
    /// By rule and site.
    pub(super) findings: HashMap<(u8, u16), u64>,
    pub(super) threads: HashMap<u32, ThreadTally>,
    pub(super) open: Vec<Open>,
    /// Unfinished calls that were not remembered.
    pub(super) forgotten: u64,
    /// Errors and findings that were not told apart, and not counted either.
    pub(super) uncounted: u64,
    /// The first and the last moment, in ticks.
    pub(super) span: Option<(u64, u64)>,
    /// Calls that are like none that can have been made: left out.
    pub(super) impossible: u64,
    /// Blocks that could not be read, and why the first could not.
    pub(super) unread: (u64, Option<String>),
    /// The last copy of each pair on each stream, as far as it is known.
    last_copies: HashMap<Queue, LastCopy>,
    /// Whether there were too many.
    has_more_queues: bool,
}

/// Copies that are made one after the other: of a pair, on a stream, and on a default stream, which may be the thread's own, by a thread.
type Queue = ([u8; 2], u64, u32);

/// When the last of such copies began, and the last that the GPU is known to have made, in ticks.
#[derive(Clone, Copy, Debug, Default)]
struct LastCopy {
    began: u64,
    made_began: u64,
}

impl LastCopy {
    fn merge(&mut self, other: Self) {
        self.began = self.began.max(other.began);
        self.made_began = self.made_began.max(other.made_began);
    }
}

/// A file's records are counted by these facts: the same for all of its parts.
pub(super) struct Lens {
    timeline: Timeline,
    /// By number of the function: is it a copy?
    copies: [bool; 256],
    /// By number of the path: the part of the timeline that its bytes belong to.
    kinds: [Option<Kind>; 256],
    /// By number of the function: does it make one copy at once? Of batches and graphs the parts have devices.
    single_copies: [bool; 256],
    has_origins: bool,
    bounds: Bounds,
    visible: AllVisible,
    /// Which records are wanted, if not all are.
    selection: Option<Selection>,
}

#[derive(Clone, Copy)]
enum Kind {
    Direct,
    Staged,
}

impl Lens {
    pub(super) fn new(timeline: Timeline, names: &Names, selection: Option<Selection>) -> Self {
        let numbers: [u8; 256] = std::array::from_fn(|number| number as u8);
        let kind = |class| match class {
            // The timeline shows what HIP maps as direct, since it knows no third.
            Class::Direct | Class::Mapped => Some(Kind::Direct),
            class => class.is_staged().then_some(Kind::Staged),
        };
        Self {
            timeline,
            copies: numbers.map(|number| names.function(number).1.contains("Memcpy")),
            kinds: numbers.map(|number| kind(Taken::numbered(number).class())),
            single_copies: numbers.map(|number| {
                let name = names.function(number).1;
                name.contains("Memcpy") && !name.contains("Batch") && !name.contains("Graph")
            }),
            has_origins: names.has_origins(),
            bounds: names.bounds(timeline),
            visible: names.visible.clone(),
            selection,
        }
    }

    /// Whether a call copies something.
    pub(super) fn is_copy(&self, record: &Record) -> bool {
        record.path != 0 || self.copies.get(usize::from(record.function)).copied().unwrap_or_default()
    }

    /// Whether a call makes one copy at once.
    fn is_single_copy(&self, record: &Record) -> bool {
        self.single_copies.get(usize::from(record.function)).copied().unwrap_or_default()
    }

    /// Whether it became part of a graph.
    fn is_captured(&self, record: &Record) -> bool {
        record.path == Path::Captured.number()
    }

    fn buckets(&self, path: u8, bytes: u64) -> Option<buckets::Bytes> {
        match self.kinds.get(usize::from(path)).copied().flatten()? {
            Kind::Direct => Some([bytes, 0]),
            Kind::Staged => Some([0, bytes]),
        }
    }
}

impl Tally {
    /// Counts some blocks of one thread, which follow each other. `before` is the block of the thread before them.
    pub(super) fn read(&mut self, trace: &Trace, lens: &Lens, blocks: &[usize], before: Option<usize>) {
        let mut buffer = Vec::new();
        let mut walk = Walk::default();
        let mut is_first = true;
        for &number in blocks {
            match self.read_block(trace, lens, number, before.filter(|_| is_first), &mut walk, &mut buffer) {
                Ok(()) => {}
                Err(error) => {
                    self.unread.0 += 1;
                    self.unread.1.get_or_insert_with(|| error.to_string());
                }
            }
            is_first = false;
        }
    }

    fn read_block(
        &mut self,
        trace: &Trace,
        lens: &Lens,
        number: usize,
        before: Option<usize>,
        walk: &mut Walk,
        buffer: &mut Vec<u8>,
    ) -> io::Result<()> {
        let Some(block) = trace.block(number, buffer)? else { return Ok(()) };
        let wants = lens.selection.as_ref().map(|selection| (selection, lens.timeline));
        let is_inner = block.calls().next().is_some_and(|record| record.depth > 0);
        if let (Some(before), true) = (before, is_inner) {
            // The calls that enclose the first calls are in the block before.
            let mut buffer = Vec::new();
            if let Some(block) = trace.block(before, &mut buffer)? {
                for (index, record) in block.calls().enumerate().filter(|(_, record)| lens.bounds.has(record)) {
                    walk.step((before, index), &record, block.thread, wants);
                }
            }
        }
        let mut thread = self.threads.remove(&block.thread).unwrap_or_default();
        if thread.name.1.is_empty() || number >= thread.name.0 {
            thread.name = (number, block.name());
        }
        thread.keep_wait(block.wait);
        for (index, record) in block.calls().enumerate() {
            let key = (number, index);
            if !lens.bounds.has(&record) {
                self.impossible += 1;
                continue;
            }
            // It may be a half of a copy between devices, and is counted as that.
            if record.is_with_host() && record.state == State::Done {
                thread.last = thread.last.max((key, record.start));
                if record.result == 0 {
                    let [to, from] = &mut self.host_bytes;
                    let bytes = if record.src_device.is_some() { to } else { from };
                    *bytes = bytes.saturating_add(record.bytes);
                    self.host.add((Visible::place(&lens.visible, record), block.thread));
                }
                continue;
            }
            // The order of copies is known by pair of GPUs.
            let unplaced = record;
            let record = Visible::place(&lens.visible, record);
            let step = walk.step(key, &record, block.thread, wants);
            if record.depth == 0 {
                thread.last = thread.last.max((key, record.start));
            }
            thread.calls += u64::from(step.is_outermost);
            let copied = walk.copied(lens, key, &record, step);
            thread.last_copy =
                copied.filter(|(key, _)| thread.last_copy.is_none_or(|(last, _)| *key > last)).or(thread.last_copy);
            self.count(lens, walk, key, block.thread, &record, step);
            if step.is_timed {
                self.count_device(lens, walk, &record);
            }
            if step.is_wanted {
                self.keep_last_copy(lens, walk, block.thread, &unplaced);
            }
        }
        self.threads.insert(block.thread, thread);
        Ok(())
    }

    fn count(&mut self, lens: &Lens, walk: &Walk, key: Key, thread: u32, record: &Record, step: Step) {
        let is_done = record.state == State::Done;
        let is_error = is_done && record.result != 0;
        let nanos = lens.timeline.nanos(record.end.saturating_sub(record.start));
        let (first, last) = self.span.unwrap_or((record.start, record.end));
        self.span = Some((first.min(record.start), last.max(record.end)));
        if !step.is_wanted {
            return;
        }
        if record.is_part() {
            let site = walk.root.map_or(0, |(_, root)| root.site);
            self.count_copies(lens, record, site);
            return;
        }
        self.records += 1;
        let function = self.functions.entry(record.function).or_default();
        function.calls += 1;
        function.errors += u64::from(is_error);
        if is_done {
            function.host.add(nanos);
        } else {
            self.remember(Open { key, thread, root: walk.root.map(|(key, _)| key), record: *record });
        }
        if !step.is_outermost {
            return;
        }
        self.calls += 1;
        if is_error {
            let (function, result) = (record.function, record.result);
            let errors = &mut self.errors;
            self.uncounted += add(errors, (function, result, record.site), (function, result, 0), 1);
        }
        for rule in record.rules() {
            self.uncounted += add(&mut self.findings, (rule, record.site), (rule, 0), 1);
        }
        // A call inside one that has not returned knows better of which pair it is.
        if is_done {
            self.count_copies(lens, record, record.site);
        }
    }

    /// Counts what a call, or a part of one, has copied for its pair.
    fn count_copies(&mut self, lens: &Lens, record: &Record, site: u16) {
        let is_error = record.result != 0;
        // One that became part of a graph has copied nothing; the graph's launches do.
        if lens.is_captured(record) {
            return;
        }
        if let (true, Some(src), Some(dst)) = (lens.has_origins, record.src_device, record.dst_device)
            && lens.is_copy(record)
        {
            let pair = [src, dst];
            let nanos = lens.timeline.nanos(record.end.saturating_sub(record.start));
            let made = Made { calls: 1, bytes: if is_error { 0 } else { record.bytes }, host_ns: nanos };
            self.uncounted += add(&mut self.copies, (pair, site), (pair, 0), made).calls;
        }
        let Some(pair) = self.count_pair(lens, record) else {
            self.of_unknown_devices += u64::from(lens.is_single_copy(record) && !is_error);
            return;
        };
        let nanos = lens.timeline.nanos(record.end.saturating_sub(record.start));
        pair.errors += u64::from(is_error);
        pair.host.add(nanos);
        if !is_error {
            let path = pair.paths.entry(record.path).or_default();
            path.host.add(nanos);
            let sums = path.of_size(record.bytes / record.copies().max(1));
            sums.calls += record.copies();
            sums.bytes = sums.bytes.saturating_add(record.bytes);
            sums.pace.count(record.bytes);
            let start = lens.timeline.real(record.start);
            pair.last = pair.last.max(start);
            if let Some(bytes) = lens.buckets(record.path, record.bytes) {
                pair.buckets.add(start, bytes);
            }
        }
    }

    /// Counts the copies of a call of the program, or of a part of one, for their pair, if it copies something.
    pub(super) fn count_pair(&mut self, lens: &Lens, record: &Record) -> Option<&mut PairTally> {
        let pair = [record.src_device?, record.dst_device?];
        let pair = lens.is_copy(record).then(|| self.pairs.entry(pair).or_default())?;
        pair.calls += record.copies();
        Some(pair)
    }

    fn count_device(&mut self, lens: &Lens, walk: &Walk, record: &Record) {
        let Some((pair, path)) = walk.copy(record) else { return };
        let pair = self.pairs.entry(pair).or_default();
        pair.busy.add(lens.timeline.real(record.device_start), record.device_nanos);
        let sums = pair.paths.entry(path).or_default().of_size(record.bytes);
        sums.device_calls += 1;
        sums.device_bytes = sums.device_bytes.saturating_add(record.bytes);
        sums.device_ns = sums.device_ns.saturating_add(record.device_nanos);
        sums.pace.time(record.bytes, record.device_nanos);
    }

    /// Keeps whether the GPU is known to have made a copy: then its time is known.
    fn keep_last_copy(&mut self, lens: &Lens, walk: &Walk, thread: u32, record: &Record) {
        /// Default streams are 0, 1 and 2.
        const DEFAULT: u64 = 2;
        let has_failed = record.state == State::Done && record.result != 0;
        let Some((pair, _)) = walk.copy(record).filter(|_| lens.is_copy(record) && !has_failed) else { return };
        let made_began = if record.device_time == DeviceTime::Known { record.start } else { 0 };
        let queue = (pair, record.stream, if record.stream > DEFAULT { 0 } else { thread });
        self.keep_last_of(queue, LastCopy { began: record.start, made_began });
    }

    fn keep_last_of(&mut self, queue: Queue, copy: LastCopy) {
        if self.last_copies.len() < PLACES || self.last_copies.contains_key(&queue) {
            self.last_copies.entry(queue).or_default().merge(copy);
        } else {
            self.has_more_queues = true;
        }
    }

    /// Whether the GPU is known to have made the last copy of each pair on each stream.
    pub(super) fn knows_last_copies(&self) -> bool {
        !self.has_more_queues && self.last_copies.values().all(|copy| copy.made_began == copy.began)
    }

    /// The last call of each thread that has no record: only those that have not returned, or `all` of them. The process was there then.
    pub(super) fn waits(&mut self, lens: &Lens, all: bool) -> Vec<Hanging> {
        let is_open = |wait: &Wait, last: u64| wait.state == State::Begun && wait.when >= last;
        let is_meant =
            |(_, last, wait): &(u32, u64, Wait)| (all || is_open(wait, *last)) && lens.bounds.has(&wait.record());
        let waits = self.threads.iter().filter_map(|(&thread, it)| Some((thread, it.last.1, it.wait?)));
        let waits = waits.filter(is_meant);
        let hanging = |(thread, last, wait): (u32, u64, Wait)| Hanging {
            thread,
            record: wait.record(),
            inner: None,
            was_left: wait.when < last,
            is_wait: true,
        };
        let waits: Vec<Hanging> = waits.map(hanging).collect();
        for Hanging { record, .. } in &waits {
            let (first, last) = self.span.unwrap_or((record.start, record.end));
            self.span = Some((first.min(record.start), last.max(record.end)));
        }
        waits
    }

    fn remember(&mut self, open: Open) {
        if self.open.len() < UNFINISHED {
            self.open.push(open);
        } else {
            self.forgotten += 1;
        }
    }

    /// Adds what was counted of another part of the file.
    pub(super) fn merge(&mut self, other: Self) {
        self.calls += other.calls;
        self.records += other.records;
        self.of_unknown_devices += other.of_unknown_devices;
        for (number, theirs) in other.functions {
            let ours = self.functions.entry(number).or_default();
            ours.calls += theirs.calls;
            ours.errors += theirs.errors;
            ours.host.merge(theirs.host);
        }
        for (pair, theirs) in other.pairs {
            self.pairs.entry(pair).or_default().merge(theirs);
        }
        for (copies, count) in other.copies {
            self.uncounted += add(&mut self.copies, copies, (copies.0, 0), count).calls;
        }
        self.host.merge(other.host);
        self.host_bytes.iter_mut().zip(other.host_bytes).for_each(|(ours, theirs)| *ours = ours.saturating_add(theirs));
        for (error, count) in other.errors {
            self.uncounted += add(&mut self.errors, error, (error.0, error.1, 0), count);
        }
        for (finding, count) in other.findings {
            self.uncounted += add(&mut self.findings, finding, (finding.0, 0), count);
        }
        self.uncounted += other.uncounted;
        for (id, theirs) in other.threads {
            let ours = self.threads.entry(id).or_default();
            ours.calls += theirs.calls;
            if ours.name.1.is_empty() || theirs.name.0 >= ours.name.0 {
                ours.name = theirs.name;
            }
            ours.last = ours.last.max(theirs.last);
            ours.keep_wait(theirs.wait);
            let key = |last: &Option<(Key, Record)>| last.map(|(key, _)| key);
            if key(&theirs.last_copy) > key(&ours.last_copy) {
                ours.last_copy = theirs.last_copy;
            }
        }
        other.open.into_iter().for_each(|open| self.remember(open));
        self.forgotten += other.forgotten;
        self.span = match (self.span, other.span) {
            (Some((first, last)), Some((other_first, other_last))) => {
                Some((first.min(other_first), last.max(other_last)))
            }
            (ours, theirs) => ours.or(theirs),
        };
        other.last_copies.into_iter().for_each(|(queue, theirs)| self.keep_last_of(queue, theirs));
        self.has_more_queues |= other.has_more_queues;
        self.impossible += other.impossible;
        self.unread.0 += other.unread.0;
        self.unread.1 = self.unread.1.take().or(other.unread.1);
    }
}

/// Copies from a place: how many, their bytes, and how long their calls took on the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Made {
    pub(super) calls: u64,
    pub(super) bytes: u64,
    pub(super) host_ns: u64,
}

impl AddAssign for Made {
    fn add_assign(&mut self, other: Self) {
        self.calls += other.calls;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.host_ns = self.host_ns.saturating_add(other.host_ns);
    }
}

/// Adds to a count; if there are too many already, to that of all other places. Returns what was not counted.
fn add<Key: Eq + Hash, Count: AddAssign + Default>(
    counts: &mut HashMap<Key, Count>,
    key: Key,
    anywhere: Key,
    count: Count,
) -> Count {
    let is_full = counts.len() >= PLACES;
    for key in [key, anywhere] {
        if let Some(known) = counts.get_mut(&key) {
            *known += count;
            return Count::default();
        }
        if !is_full {
            counts.insert(key, count);
            return Count::default();
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn add_to_what_is_full_counts_no_place_or_nothing() {
        let mut counts: HashMap<(u8, u32), u64> = HashMap::from([((1, 0), 5)]);
        for place in 1..PLACES as u32 {
            assert_eq!(add(&mut counts, (1, place), (1, 0), 1), 0);
        }
        assert_eq!(add(&mut counts, (1, 1), (1, 0), 2), 0, "known");
        assert_eq!(add(&mut counts, (1, u32::MAX), (1, 0), 3), 0, "without its place");
        assert_eq!(add(&mut counts, (2, 1), (2, 0), 4), 4, "not at all");
        assert_eq!((counts.len(), counts[&(1, 1)], counts[&(1, 0)]), (PLACES, 3, 8));
    }
}
