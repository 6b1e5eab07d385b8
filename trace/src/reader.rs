//! Reading files: what is valid is read, what is not is said. Nothing in a file can make this panic.

#![forbid(unsafe_code)]

mod note;
mod record;
mod timeline;

use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::layout::{
    CHUNK_BYTES, CHUNK_HEADER_BYTES, ChunkKind, Clock, HAS_EXITED, HEADER_BYTES, LARGEST_HEADER, MAGIC, NoteKind,
    RECORD_BYTES, VERSION, chunk, header,
};
pub use note::Note;
use note::read_notes;
pub use record::{Block, Calls, Record, Wait};
use timeline::timeline;
pub use timeline::{GUESSED_TIMES, Timeline};

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
            Self::Empty => f.write_str("no call yet: its process has just begun it, or ended while it did so"),
            Self::CutOff => f.write_str("cut off within its header: nothing of it can be read"),
            Self::Version((major, minor), (own, _)) => write!(
                f,
                "written in version {major}.{minor} of the format; this command reads version {own} only. Read it with the p2pshim \
                 command of the release that wrote it, or record it again"
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

/// How many records must have been in chunks that are not there: more than the blocks before one can hold, each of a thread, with how
/// many come before it and how many it can hold. Those that a signal handler has left can hold less than they might.
fn missing(mut firsts: Vec<(u32, u64, u64)>) -> u64 {
    firsts.sort_unstable();
    let of_threads = firsts.chunk_by(|(one, ..), (other, ..)| one == other);
    let of_thread = |blocks: &[(u32, u64, u64)]| {
        let lacks = blocks.iter().scan(0, |most, &(_, first, room)| {
            let lacks = first.saturating_sub(*most);
            *most += room;
            Some(lacks)
        });
        lacks.max().unwrap_or_default()
    };
    of_threads.map(of_thread).fold(0, u64::saturating_add)
}

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
    /// Until the end of the chunk: more than the block has, if another follows.
    bytes: usize,
    thread: u32,
    /// When a thread took it, in ticks.
    time: u64,
}

/// A trace file.
#[derive(Debug)]
pub struct Trace {
    source: Source,
    path: PathBuf,
    version: (u16, u16),
    process: u32,
    dropped: u64,
    unseen: u64,
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
        let had_more = [HEADER_BYTES, 4 * HEADER_BYTES, 16 * HEADER_BYTES].into_iter().any(|after| {
            let mut kind = [0; 4];
            source.read_exact_at(path, &mut kind, after as u64).is_ok() && kind != [0; 4]
        });
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
            (header::CHUNK_BYTES, CHUNK_BYTES, "bytes of a chunk"),
            (header::RECORD_BYTES, RECORD_BYTES, "bytes of a record"),
        ];
        for (offset, size, what) in sizes {
            if u32_at(&head, offset) as usize != size {
                return Err(Error::Damaged(what));
            }
        }
        let header_bytes = u32_at(&head, header::HEADER_BYTES) as usize;
        if !header_bytes.is_power_of_two() || !(HEADER_BYTES..=LARGEST_HEADER).contains(&header_bytes) {
            return Err(Error::Damaged("bytes of the header"));
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
            unseen: u64_at(&head, header::UNSEEN),
            limit: u64_at(&head, header::LIMIT),
            exit: u64_at(&head, header::EXIT),
            timeline,
            notes: Vec::new(),
            blocks: Vec::new(),
            problems,
        };
        trace.index(header_bytes as u64, u64_at(&head, header::CHUNKS), length)?;
        Ok(trace)
    }

    /// Finds out what each chunk holds.
    fn index(&mut self, header_bytes: u64, chunks: u64, length: u64) -> Result<(), Error> {
        let there = length.saturating_sub(header_bytes) / CHUNK_BYTES as u64;
        let most = self.limit.saturating_sub(header_bytes) / CHUNK_BYTES as u64;
        let handed_out = chunks.min(most.max(there));
        if handed_out > there {
            self.problems.push(format!(
                "{} of {handed_out} parts of the file are missing: it was cut off",
                handed_out.saturating_sub(there)
            ));
        }
        let mut unknown = 0u64;
        let mut empty = 0;
        let mut firsts: Vec<(u32, u64, u64)> = Vec::new();
        for number in 0..there {
            // Space that was taken from the disk and not used, or a hole of terabytes.
            if number >= chunks && empty > EMPTY {
                break;
            }
            let offset = header_bytes + number * CHUNK_BYTES as u64;
            let mut head = [0; CHUNK_HEADER_BYTES];
            match self.source.read_exact_at(&self.path, &mut head, offset) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                result => result?,
            }
            match (u32_at(&head, chunk::KIND), ChunkKind::numbered(u32_at(&head, chunk::KIND))) {
                (_, Some(ChunkKind::Calls)) => unknown += u64::from(!self.index_calls(offset, head, &mut firsts)),
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
        // A thread begins in what one before it has left, and there may be numbers of threads among these that were used before.
        self.blocks.sort_by_key(|place| place.time);
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

    /// Finds the blocks of a chunk of calls, which begins with this header; false if a later header makes no sense.
    fn index_calls(
        &mut self,
        start: u64,
        mut head: [u8; CHUNK_HEADER_BYTES],
        firsts: &mut Vec<(u32, u64, u64)>,
    ) -> bool {
        let mut at = 0;
        loop {
            let (thread, first) = (u32_at(&head, chunk::THREAD), u64_at(&head, chunk::FIRST));
            let next = usize::from(u16_at(&head, chunk::NEXT)) * RECORD_BYTES;
            let left = CHUNK_BYTES - at;
            let has_next = (1..left).contains(&next);
            let bytes = if has_next { next } else { left };
            firsts.push((thread, first, (bytes / RECORD_BYTES) as u64 - 1));
            self.blocks.push(Place {
                offset: start + at as u64,
                bytes: left,
                thread,
                time: u64_at(&head, chunk::TIME),
            });
            if !has_next {
                return next == 0;
            }
            at += next;
            let is_there = self.source.read_exact_at(&self.path, &mut head, start + at as u64).is_ok();
            if !is_there || ChunkKind::numbered(u32_at(&head, chunk::KIND)) != Some(ChunkKind::Calls) {
                return false;
            }
        }
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

    /// How many copies, and enablings of access, succeeded in forked children, and are in no file.
    pub fn unseen(&self) -> u64 {
        self.unseen
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

    /// The times of the file's ticks.
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

    /// The faults of the file, in sentences.
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
        buffer.resize(place.bytes, 0);
        self.source.read_exact_at(&self.path, buffer, place.offset)?;
        let bytes: &'a [u8] = buffer;
        Ok(Some(Block::of(place.thread, bytes)))
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
