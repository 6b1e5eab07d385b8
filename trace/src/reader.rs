//! Reading files: what is valid is read, what is not is said. Nothing in a file can make this panic.

#![forbid(unsafe_code)]

use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::layout::{
    CALIBRATIONS, CHUNK_BYTES, CHUNK_HEADER_BYTES, Calibration, Capture, ChunkKind, Clock, DeviceTime, HAS_EXITED,
    HEADER_BYTES, MAGIC, NOTE_COMMIT, NOTE_HEADER_BYTES, NOTE_MOST, NoteKind, PART, RECORD_BYTES, State, VERSION,
    chunk, header, record, unpack,
};

/// Why a file cannot be read at all.
#[derive(Debug)]
pub enum Error {
    /// The system says so.
    Io(io::Error),
    /// It does not begin like a trace.
    NotATrace,
    /// It has no header yet, and nothing else: it is just being begun, or the process ended then.
    Empty,
    /// It ends within the header.
    CutOff,
    /// A version that this reader does not know: the file's, this reader's.
    Version((u16, u16), (u16, u16)),
    /// Sizes in the header that this version does not have.
    Damaged(&'static str),
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NotATrace => f.write_str("not a trace of p2pshim"),
            Self::Empty => f.write_str("just being begun, or its process ended then: no call is in it"),
            Self::CutOff => f.write_str("cut off within its header: nothing of it can be read"),
            Self::Version((major, minor), (own, _)) => write!(
                f,
                "written in version {major}.{minor} of the format, which this command (version {own}) cannot read; use the \
                 command of the release that wrote it"
            ),
            Self::Damaged(what) => write!(f, "its header is damaged: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Why a file has no header, by what it begins with, and whether more was there before.
fn without_header(head: &[u8], had_more: bool) -> Error {
    match head {
        // Space is taken before the first byte is written.
        head if head.iter().take(MAGIC.len()).all(|&byte| byte == 0) && had_more => Error::Damaged("it is lost"),
        head if head.iter().take(MAGIC.len()).all(|&byte| byte == 0) => Error::Empty,
        head if head.starts_with(&MAGIC) => Error::CutOff,
        _ => Error::NotATrace,
    }
}

/// Something other than a call that a file tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What it tells.
    pub kind: NoteKind,
    /// What it is about; see [`NoteKind`].
    pub number: u32,
    /// When it was written, in ticks.
    pub time: u64,
    /// Its strings.
    pub strings: Vec<String>,
}

impl Note {
    /// One of its strings; empty if there are not so many.
    pub fn string(&self, index: usize) -> &str {
        self.strings.get(index).map_or("", String::as_str)
    }

    /// The value of a string `key=value`.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.strings.iter().find_map(|string| string.strip_prefix(key)?.strip_prefix('='))
    }
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// How far it has come. Of one that has not returned, what is only known then is 0 or none.
    pub state: State,
    /// Ticks when it began.
    pub start: u64,
    /// Ticks when it returned.
    pub end: u64,
    /// Source address of a copy.
    pub src: u64,
    /// Destination address of a copy.
    pub dst: u64,
    /// Bytes of a copy.
    pub bytes: u64,
    /// Stream handle.
    pub stream: u64,
    /// The number of the place in the code that called; 0 if it is not known.
    pub site: u16,
    /// When the GPU began with the copy, in ticks, if `device_time` is [`DeviceTime::Known`].
    pub device_start: u64,
    /// How long the GPU took, in nanoseconds, if `device_time` is [`DeviceTime::Known`].
    pub device_nanos: u64,
    /// What it returned.
    pub result: i32,
    /// How many calls of the thread before this one the call is that made it, not counting those without a record of their
    /// own; 0 if the program did, or if that is not known.
    pub parent: u8,
    /// The function's number.
    pub function: u8,
    /// The device that the bytes come from.
    pub src_device: Option<u8>,
    /// The device that they go to.
    pub dst_device: Option<u8>,
    /// The number of the path that the copy took; 0 for none.
    pub path: u8,
    /// What it has to do with a capture.
    pub capture: Capture,
    /// Rules that it breaks: their numbers plus 1, then zeros.
    pub findings: [u8; 2],
    /// How many intercepted calls enclose it; 3 for 3 or more.
    pub depth: u8,
    /// What is known of the time that the GPU took.
    pub device_time: DeviceTime,
    /// Whether it has a record of its own. The one copy of the driver that a copy of the runtime makes may be in that one's
    /// record: then it copied the same, returned the same, and its times are those of the call around it.
    pub is_own: bool,
}

impl Record {
    /// None if no call has begun here, or something else was written.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; RECORD_BYTES] = bytes.try_into().ok()?;
        let word = u8_at(bytes, record::STATE);
        let state = State::numbered(word & 3)?;
        let device = |offset| u8_at(bytes, offset).checked_sub(1);
        let finding = |index| u8_at(bytes, record::FINDINGS + index);
        let start = u64_at(bytes, record::START);
        let after = |offset| start.saturating_add(unpack(u32_at(bytes, offset)));
        Some(Self {
            state,
            start,
            end: after(record::TOOK),
            src: u64_at(bytes, record::SRC),
            dst: u64_at(bytes, record::DST),
            bytes: u64_at(bytes, record::BYTES),
            stream: u64_at(bytes, record::STREAM),
            site: u16_at(bytes, record::SITE),
            device_start: after(record::DEVICE_AFTER),
            device_nanos: unpack(u32_at(bytes, record::DEVICE_NANOS)),
            result: u16_at(bytes, record::RESULT).cast_signed().into(),
            parent: u8_at(bytes, record::PARENT),
            function: u8_at(bytes, record::FUNCTION),
            src_device: device(record::SRC_DEVICE),
            dst_device: device(record::DST_DEVICE),
            path: u8_at(bytes, record::PATH),
            capture: Capture::numbered(word >> 2 & 3).unwrap_or(Capture::None),
            findings: [finding(0), finding(1)],
            depth: word >> 6,
            device_time: DeviceTime::numbered(word >> 4 & 3).unwrap_or(DeviceTime::None),
            is_own: true,
        })
    }

    /// The call inside it that is in its record, and the record without what tells of that.
    fn split(self) -> (Self, Option<Self>) {
        let Some(function) = self.parent.checked_sub(1).filter(|_| self.depth == 0) else { return (self, None) };
        let outer = Self { parent: 0, ..self };
        let inner = Self {
            function,
            parent: 1,
            depth: 1,
            site: 0,
            findings: [0; 2],
            device_time: DeviceTime::None,
            is_own: false,
            ..self
        };
        (outer, Some(inner).filter(|_| self.state == State::Done))
    }

    /// Whether it is of a part of what a call copies: from one device to another, on one path.
    pub fn is_part(&self) -> bool {
        self.function == PART
    }

    /// How many copies it is of: as many as a writer counts at most, so that sums of a damaged file do not overflow.
    pub fn copies(&self) -> u64 {
        if self.is_part() { self.src.min(u32::MAX.into()) } else { 1 }
    }

    /// The numbers of the rules that it breaks.
    pub fn rules(&self) -> impl Iterator<Item = u8> {
        self.findings.into_iter().filter_map(|finding| finding.checked_sub(1))
    }
}

/// A chunk's calls, in the order in which they began.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// The thread's id.
    pub thread: u32,
    /// How many calls of the thread come before these.
    pub first: u64,
    name: &'a [u8],
    records: &'a [u8],
}

impl<'a> Block<'a> {
    /// The thread's name.
    pub fn name(&self) -> String {
        text(self.name.split(|&byte| byte == 0).next().unwrap_or_default())
    }

    /// The calls.
    pub fn calls(&self) -> Calls<'a> {
        Calls { records: self.records, inner: None }
    }
}

/// The calls of a [`Block`].
#[derive(Clone, Debug)]
pub struct Calls<'a> {
    records: &'a [u8],
    /// What is in the record of the last.
    inner: Option<Record>,
}

impl Iterator for Calls<'_> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        if let Some(inner) = self.inner.take() {
            return Some(inner);
        }
        loop {
            let (bytes, rest) = self.records.split_at_checked(RECORD_BYTES)?;
            self.records = rest;
            // What does not read as a call may have calls behind it: a thread that was killed between two of them.
            if let Some(record) = Record::decode(bytes) {
                let (record, inner) = record.split();
                self.inner = inner;
                return Some(record);
            }
        }
    }
}

/// Turns ticks into time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeline {
    origin: Calibration,
    nanos_per_tick: f64,
    /// How much later `CLOCK_REALTIME` was than `CLOCK_MONOTONIC`, at the end.
    real_ahead: i128,
}

impl Timeline {
    /// Nanoseconds on `CLOCK_MONOTONIC`.
    pub fn monotonic(&self, ticks: u64) -> u64 {
        let since = i128::from(ticks) - i128::from(self.origin.ticks);
        let nanos = (since as f64 * self.nanos_per_tick).round() as i128;
        clamp(i128::from(self.origin.monotonic).saturating_add(nanos))
    }

    /// Nanoseconds since 1970.
    pub fn real(&self, ticks: u64) -> u64 {
        clamp(i128::from(self.monotonic(ticks)).saturating_add(self.real_ahead))
    }

    /// How long so many ticks are, in nanoseconds.
    pub fn nanos(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.nanos_per_tick).round() as u64
    }

    /// How long so many nanoseconds are, in ticks.
    pub fn ticks(&self, nanos: u64) -> u64 {
        (nanos as f64 / self.nanos_per_tick).round() as u64
    }

    fn new(clock: Clock, calibrations: &[Calibration]) -> Option<Self> {
        let origin = *calibrations.first()?;
        let last = *calibrations.last()?;
        let ahead = i128::from(last.real) - i128::from(last.monotonic);
        let rate = (last.monotonic.saturating_sub(origin.monotonic)) as f64 / (last.ticks - origin.ticks) as f64;
        // Time-stamp counters have between 0.5 and 10 GHz.
        let nanos_per_tick = match clock {
            Clock::Monotonic => 1.0,
            Clock::TimeStampCounter if (0.1..2.0).contains(&rate) => rate,
            Clock::TimeStampCounter => return None,
        };
        Some(Self { origin, nanos_per_tick, real_ahead: ahead })
    }
}

fn clamp(nanos: i128) -> u64 {
    u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)
}

/// How many records must have been in chunks that are not there: more than the chunks before one can hold. Those that a signal
/// handler has left can hold less than they might.
fn missing(mut firsts: Vec<(u32, u64)>) -> u64 {
    firsts.sort_unstable();
    let of_threads = firsts.chunk_by(|(one, _), (other, _)| one == other);
    let of_thread = |chunks: &[(u32, u64)]| {
        let most = (0..).step_by(RECORDS);
        chunks.iter().zip(most).map(|((_, first), most)| first.saturating_sub(most)).max().unwrap_or_default()
    };
    of_threads.map(of_thread).fold(0, u64::saturating_add)
}

/// Records of a chunk.
const RECORDS: usize = (CHUNK_BYTES - CHUNK_HEADER_BYTES) / RECORD_BYTES;
/// After so many empty chunks behind those that are in use there are no others; there would be if the header were damaged.
const EMPTY: u64 = 1024;

/// Where the bytes of a trace are.
#[derive(Debug)]
enum Source {
    File(File),
    /// A file that is opened each time that something of it is read.
    Closed,
    Memory(Vec<u8>),
}

impl Source {
    fn length(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => Ok(file.metadata()?.len()),
            Self::Closed => Ok(0),
            Self::Memory(bytes) => Ok(bytes.len() as u64),
        }
    }

    fn read_exact_at(&self, path: &Path, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) => file.read_exact_at(buffer, offset),
            Self::Closed => File::open(path)?.read_exact_at(buffer, offset),
            Self::Memory(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let there = bytes.get(start..).and_then(|rest| rest.get(..buffer.len()));
                buffer.copy_from_slice(there.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }
}

/// Where calls are in the file.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u64,
    thread: u32,
}

/// A trace file.
#[derive(Debug)]
pub struct Trace {
    source: Source,
    path: PathBuf,
    version: (u16, u16),
    process: u32,
    dropped: u64,
    limit: u64,
    exit: u64,
    timeline: Timeline,
    notes: Vec<Note>,
    blocks: Vec<Place>,
    problems: Vec<String>,
}

impl Trace {
    /// Opens a file, and reads all of it but the calls. The process may still be running: what it has written by now is
    /// read.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::read(Source::File(File::open(path)?), path)
    }

    /// Like [`Trace::open`], of the bytes of a file. The path is only what it is called.
    pub fn from_bytes(bytes: Vec<u8>, path: &Path) -> Result<Self, Error> {
        Self::read(Source::Memory(bytes), path)
    }

    fn read(source: Source, path: &Path) -> Result<Self, Error> {
        let mut head = vec![0; HEADER_BYTES];
        // First, since a file gets a header before anything else.
        let mut kind = [0; 4];
        let had_more = source.read_exact_at(path, &mut kind, HEADER_BYTES as u64).is_ok() && kind != [0; 4];
        match source.read_exact_at(path, &mut head, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let mut head = vec![0; usize::try_from(source.length()?).unwrap_or_default().min(HEADER_BYTES)];
                source.read_exact_at(path, &mut head, 0)?;
                return Err(without_header(&head, had_more));
            }
            result => result?,
        }
        if !head.starts_with(&MAGIC) {
            return Err(without_header(&head, had_more));
        }
        // Only now: a file has grown before its header says so.
        let length = source.length()?;
        let version = (u16_at(&head, header::MAJOR), u16_at(&head, header::MINOR));
        if version.0 != VERSION.0 {
            return Err(Error::Version(version, VERSION));
        }
        let sizes = [
            (header::HEADER_BYTES, HEADER_BYTES, "bytes of the header"),
            (header::CHUNK_BYTES, CHUNK_BYTES, "bytes of a chunk"),
            (header::RECORD_BYTES, RECORD_BYTES, "bytes of a record"),
        ];
        for (offset, size, what) in sizes {
            if u32_at(&head, offset) as usize != size {
                return Err(Error::Damaged(what));
            }
        }
        let clock = Clock::numbered(u32_at(&head, header::CLOCK)).ok_or(Error::Damaged("its clock"))?;
        let mut problems = Vec::new();
        if version.1 > VERSION.1 {
            problems.push(format!(
                "written in version {}.{} of the format; what version {}.{} does not know is left out",
                version.0, version.1, VERSION.0, VERSION.1
            ));
        }
        let timeline = timeline(clock, &head, &mut problems);
        let mut trace = Self {
            source,
            path: path.to_owned(),
            version,
            process: u32_at(&head, header::PROCESS),
            dropped: u64_at(&head, header::DROPPED),
            limit: u64_at(&head, header::LIMIT),
            exit: u64_at(&head, header::EXIT),
            timeline,
            notes: Vec::new(),
            blocks: Vec::new(),
            problems,
        };
        trace.index(u64_at(&head, header::CHUNKS), length)?;
        Ok(trace)
    }

    /// Finds out what each chunk holds.
    fn index(&mut self, chunks: u64, length: u64) -> Result<(), Error> {
        let there = length.saturating_sub(HEADER_BYTES as u64) / CHUNK_BYTES as u64;
        let most = self.limit.saturating_sub(HEADER_BYTES as u64) / CHUNK_BYTES as u64;
        let handed_out = chunks.min(most.max(there));
        if handed_out > there {
            self.problems.push(format!(
                "{} of {handed_out} parts of the file are missing: it was cut off",
                handed_out.saturating_sub(there)
            ));
        }
        let mut unknown = 0u64;
        let mut empty = 0;
        // Threads of chunks, and how many records each had before.
        let mut firsts: Vec<(u32, u64)> = Vec::new();
        for number in 0..there {
            // What was taken from the disk and not used, or a hole of terabytes.
            if number >= chunks && empty > EMPTY {
                break;
            }
            let offset = HEADER_BYTES as u64 + number * CHUNK_BYTES as u64;
            let mut head = [0; CHUNK_HEADER_BYTES];
            match self.source.read_exact_at(&self.path, &mut head, offset) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                result => result?,
            }
            match (u32_at(&head, chunk::KIND), ChunkKind::numbered(u32_at(&head, chunk::KIND))) {
                (_, Some(ChunkKind::Calls)) => {
                    let (thread, first) = (u32_at(&head, chunk::THREAD), u64_at(&head, chunk::FIRST));
                    firsts.push((thread, first));
                    self.blocks.push(Place { offset, thread });
                }
                (_, Some(ChunkKind::Notes)) => {
                    let mut bytes = vec![0; CHUNK_BYTES];
                    match self.source.read_exact_at(&self.path, &mut bytes, offset) {
                        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                        result => result?,
                    }
                    read_notes(bytes.get(CHUNK_HEADER_BYTES..).unwrap_or_default(), &mut self.notes, &mut unknown);
                }
                // Taken from the disk, or just being handed out.
                (0, None) => empty += 1,
                (_, None) => unknown += 1,
            }
        }
        let missing = missing(firsts);
        if missing > 0 {
            self.problems
                .push(format!("{missing} records or more are missing from the middle: parts of the file were lost"));
        }
        if unknown > 0 {
            self.problems.push(format!("{unknown} parts or notes are damaged, or of a later version; left out"));
        }
        Ok(())
    }

    /// Closes the file until something of it is read, and again after that: there may be more files than a process can
    /// have open.
    pub fn close(&mut self) {
        if matches!(self.source, Source::File(_)) {
            self.source = Source::Closed;
        }
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The version of the format that it was written in.
    pub fn version(&self) -> (u16, u16) {
        self.version
    }

    /// The process's id.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// How many calls found no room in the file.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// How many bytes the file could have.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The status that the process gave to `exit`; none if it has not called that: it runs, was ended by a signal, called `_exit`, or
    /// became another program.
    pub fn exit_status(&self) -> Option<u8> {
        (self.exit & HAS_EXITED != 0).then_some(self.exit as u8)
    }

    /// What the file's ticks are in time.
    pub fn timeline(&self) -> Timeline {
        self.timeline
    }

    /// All notes, as they were written.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The notes of a kind.
    pub fn notes_of(&self, kind: NoteKind) -> impl Iterator<Item = &Note> {
        self.notes.iter().filter(move |note| note.kind == kind)
    }

    /// What is wrong with the file, in sentences.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// How many blocks of calls there are. A thread's come in its order.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The threads of the blocks, in order.
    pub fn block_threads(&self) -> impl Iterator<Item = u32> {
        self.blocks.iter().map(|place| place.thread)
    }

    /// Reads a block. Several threads may do so at once, each into a buffer of its own, which any block fits into.
    pub fn block<'a>(&self, number: usize, buffer: &'a mut Vec<u8>) -> io::Result<Option<Block<'a>>> {
        let Some(place) = self.blocks.get(number) else { return Ok(None) };
        buffer.resize(CHUNK_BYTES, 0);
        self.source.read_exact_at(&self.path, buffer, place.offset)?;
        let bytes: &'a [u8] = buffer;
        Ok(Some(Block {
            thread: place.thread,
            first: u64_at(bytes, chunk::FIRST),
            name: bytes.get(chunk::NAME..chunk::NAME + 16).unwrap_or_default(),
            records: bytes.get(CHUNK_HEADER_BYTES..).unwrap_or_default(),
        }))
    }
}

/// The problem of a trace whose times are not known.
pub const GUESSED_TIMES: &str = "how fast its clock runs is not known; times are guesses";

fn timeline(clock: Clock, head: &[u8], problems: &mut Vec<String>) -> Timeline {
    let mut calibrations: Vec<Calibration> = (0..CALIBRATIONS)
        .map(|slot| header::CALIBRATIONS + slot * 24)
        .map(|at| Calibration { ticks: u64_at(head, at), monotonic: u64_at(head, at + 8), real: u64_at(head, at + 16) })
        .filter(|calibration| calibration.ticks != 0)
        .collect();
    calibrations.sort_by_key(|calibration| calibration.ticks);
    Timeline::new(clock, &calibrations).unwrap_or_else(|| {
        problems.push(GUESSED_TIMES.to_owned());
        let unknown = Calibration { ticks: 0, monotonic: 0, real: 0 };
        let origin = calibrations.first().copied().unwrap_or(unknown);
        let real_ahead = i128::from(origin.real) - i128::from(origin.monotonic);
        Timeline { origin, nanos_per_tick: 0.4, real_ahead }
    })
}

/// Reads the notes of a chunk up to the first that was not finished.
fn read_notes(mut bytes: &[u8], notes: &mut Vec<Note>, unknown: &mut u64) {
    while bytes.len() >= NOTE_HEADER_BYTES {
        let length = u32_at(bytes, 0);
        let commit = u32_at(bytes, 20);
        if length == 0 && commit == 0 {
            return;
        }
        let whole = NOTE_HEADER_BYTES + (length as usize).min(NOTE_MOST + 1).next_multiple_of(8);
        let text_of = bytes.get(NOTE_HEADER_BYTES..NOTE_HEADER_BYTES.saturating_add(length as usize));
        let (Some(strings), true) = (text_of, commit == length ^ NOTE_COMMIT) else {
            *unknown += 1;
            return;
        };
        match NoteKind::numbered(u16_at(bytes, 4)) {
            Some(kind) => notes.push(Note {
                kind,
                number: u32_at(bytes, 8),
                time: u64::from(u32_at(bytes, 12)) | u64::from(u32_at(bytes, 16)) << 32,
                strings: strings.split(|&byte| byte == 0).map(text).collect(),
            }),
            None => *unknown += 1,
        }
        bytes = bytes.get(whole..).unwrap_or_default();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes.get(offset..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, offset))
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, offset))
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, offset))
}

fn u8_at(bytes: &[u8], offset: usize) -> u8 {
    bytes.get(offset).copied().unwrap_or(0)
}
