//! The calls of all files in the order of time, without having all of them in memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::vec;

use p2pshim_trace::{Error, Record, Trace};

use super::model::{File, Report};
use super::names::{Bounds, Names};

/// Files that stay open. More may be more than a process can have.
const OPEN: usize = 200;
/// With so many threads, fewer of the calls of each are in memory.
const MANY_THREADS: usize = 1000;
/// How many, of few threads and of many.
const READ: (usize, usize) = (1024, 32);

/// A file that is read for a second time.
pub(super) struct Source {
    /// Its index in the report.
    pub(super) file: usize,
    pub(super) trace: Trace,
    pub(super) names: Names,
    bounds: Bounds,
}

/// Opens the files of a report that can be read.
pub(super) fn sources(report: &Report, open: impl Fn(&File) -> Result<Trace, Error>) -> io::Result<Vec<Source>> {
    let readable: Vec<&File> = report.files.iter().filter(|file| file.process.is_some()).collect();
    let many = readable.len() > OPEN;
    let source = |file: &&File| {
        let mut trace = open(file).map_err(|error| io::Error::other(format!("{}: {error}", file.path)))?;
        if many {
            trace.close();
        }
        let names = Names::of(&trace);
        let bounds = names.bounds(trace.timeline());
        Ok(Source { file: file.index, trace, names, bounds })
    };
    readable.iter().map(source).collect()
}

/// A call, in the order of time.
pub(super) struct Call<'a> {
    pub(super) source: &'a Source,
    pub(super) thread: u32,
    pub(super) record: Record,
    /// When it began, in nanoseconds since 1970.
    pub(super) start: u64,
    /// When it returned.
    pub(super) end: u64,
}

/// The calls of a thread.
struct Stream {
    source: usize,
    thread: u32,
    blocks: vec::IntoIter<usize>,
    /// The block that is being read, and how many of its calls have been.
    block: Option<(usize, usize)>,
    records: vec::IntoIter<Record>,
}

impl Stream {
    fn next(&mut self, source: &Source, read: usize, buffer: &mut Vec<u8>) -> Option<Record> {
        loop {
            if let Some(record) = self.records.next() {
                return Some(record);
            }
            let (number, done) = match self.block {
                Some(at) => at,
                None => (self.blocks.next()?, 0),
            };
            // A block that cannot be read is reported.
            let block = source.trace.block(number, buffer).ok().flatten();
            let mut records: Vec<Record> = block.iter().flat_map(|block| block.calls().skip(done).take(read)).collect();
            self.block = (records.len() == read).then_some((number, done + read));
            records.retain(|record| source.bounds.has(record));
            self.records = records.into_iter();
        }
    }
}

/// Shows all calls to `visit`, until it has seen enough and returns false.
pub(super) fn in_order(sources: &[Source], mut visit: impl FnMut(&Call) -> io::Result<bool>) -> io::Result<()> {
    let mut streams: Vec<Stream> = Vec::new();
    for (source, Source { trace, .. }) in sources.iter().enumerate() {
        let mut threads: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (number, thread) in trace.block_threads().enumerate() {
            threads.entry(thread).or_default().push(number);
        }
        streams.extend(threads.into_iter().map(|(thread, blocks)| Stream {
            source,
            thread,
            blocks: blocks.into_iter(),
            block: None,
            records: Vec::new().into_iter(),
        }));
    }
    let (few, many) = READ;
    let read = if streams.len() > MANY_THREADS { many } else { few };
    let mut buffer = Vec::new();
    let mut heap = BinaryHeap::new();
    let mut waiting: Vec<Option<Record>> = Vec::new();
    for (number, stream) in streams.iter_mut().enumerate() {
        let Some(source) = sources.get(stream.source) else { continue };
        let record = stream.next(source, read, &mut buffer);
        if let Some(record) = &record {
            heap.push(Reverse((source.trace.timeline().real(record.start), number)));
        }
        waiting.push(record);
    }
    while let Some(Reverse((start, number))) = heap.pop() {
        let Some(stream) = streams.get_mut(number) else { continue };
        let (Some(source), Some(place)) = (sources.get(stream.source), waiting.get_mut(number)) else { continue };
        let following = stream.next(source, read, &mut buffer);
        let timeline = source.trace.timeline();
        if let Some(record) = &following {
            heap.push(Reverse((timeline.real(record.start), number)));
        }
        let Some(record) = std::mem::replace(place, following) else { continue };
        let end = timeline.real(record.end).max(start);
        if !visit(&Call { source, thread: stream.thread, record, start, end })? {
            return Ok(());
        }
    }
    Ok(())
}
