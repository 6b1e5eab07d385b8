//! The files by which the processes of a `p2pshim run` tell each other of their accesses and events.
//!
//! In a folder of the run there is a file for each IPC handle. That of an event has the clock of its last record; that of memory the accesses of all processes for
//! which no host has waited, in bytes from where the allocation begins. A file is locked (`flock`, which ends with its process) while it is read and
//! written anew: never over a call of the driver.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use p2pshim_host::{job, machine};

use super::operation::{Kind, Place, Queue, Side};
use super::span::{Rows, Span};
use crate::api::Function;
use crate::os;
use crate::record::modules;

/// Times that a lock is tried, 20 us apart.
const TRIES: u32 = 1000;

/// The operation of a stream of any process, by the slot that the stream has there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) process: String,
    pub(super) slot: u32,
    /// Its numbers in that stream: in the order with staging, and in the order without it.
    pub(super) numbers: [u32; 2],
}

/// An access that is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) of: Work,
    /// Something unseen behind it may have told of it.
    pub(super) is_published: bool,
    /// From where the allocation begins.
    pub(super) span: Span,
    pub(super) kind: Kind,
    pub(super) function: Function,
    /// The place: a path, and where in the file.
    pub(super) place: String,
}

/// Where the processes of a run tell each other, and this process's name there.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    pub(super) process: String,
}

impl Files {
    /// None if the process is of no run, or a limit of files' sizes could end it.
    pub(super) fn of_run() -> Option<Self> {
        os::may_write_files().then_some(())?;
        let folder = PathBuf::from(os::variable(job::EXPORTS)?).join("order");
        // Another process may have made it.
        _ = DirBuilder::new().mode(0o700).create(&folder);
        let process = format!("{}-{}", machine::number_in_proc()?, machine::process_start("self")?);
        folder.is_dir().then_some(Self { folder, process })
    }

    pub(super) fn path(&self, handle: &[u8]) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        handle.hash(&mut hasher);
        self.folder.join(format!("{:016x}", hasher.finish()))
    }
}

/// Events and memory that this process shares with others.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) files: Option<Option<Files>>,
    pub(super) events: HashMap<usize, PathBuf>,
    /// By where an allocation begins.
    pub(super) memory: BTreeMap<u64, Part>,
    /// Streams of other processes, by the number in [`Queue::Foreign`]: the process, and its slot there.
    pub(super) streams: Vec<(String, u32)>,
    /// The places of their accesses.
    pub(super) places: Vec<String>,
    /// This process's own places.
    pub(super) own_places: BTreeMap<Place, String>,
}

#[derive(Debug)]
pub(super) struct Part {
    pub(super) end: u64,
    pub(super) file: PathBuf,
    /// It is memory of this process, which others have opened.
    pub(super) is_own: bool,
    /// There may be accesses of this process of which nothing unseen has told yet.
    pub(super) is_untold: bool,
}

impl Shared {
    pub(super) fn files(&mut self) -> Option<&Files> {
        self.files.get_or_insert_with(Files::of_run).as_ref()
    }

    /// The place of an access of this process, as others can find it.
    pub(super) fn place(&mut self, place: Place) -> String {
        let named = || modules::path_of(place.address).unwrap_or_default();
        self.own_places.entry(place).or_insert_with(named).clone()
    }

    /// The process of a stream of another, by its number, and the place of an access there.
    pub(super) fn named(&self, side: &Side) -> Option<(&str, &str)> {
        let Some(Queue::Foreign { number }) = side.queue else { return None };
        let (process, _) = self.streams.get(number)?;
        Some((process.split_once('-')?.0, self.places.get(side.place.address)?))
    }
}

/// Reads a file, and writes it anew if `change` says so. None if that cannot be done.
fn with<T: Row>(path: &PathBuf, change: impl FnOnce(&mut Vec<T>) -> bool) -> Option<()> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let mut file: File = options.open(path).ok()?;
    (0..TRIES)
        .any(|again| {
            if again > 0 {
                os::pause();
            }
            file.try_lock().is_ok()
        })
        .then_some(())?;
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let mut rows: Vec<T> = text.lines().filter_map(T::parse).collect();
    if change(&mut rows) {
        let text: String = rows.iter().map(|row| row.text() + "\n").collect();
        // First the text: an empty file would lose all rows if the disk is full.
        file.rewind().ok()?;
        file.write_all(text.as_bytes()).ok()?;
        file.set_len(text.len() as u64).ok()?;
    }
    // A child that another thread forks meanwhile has the file open too, and would keep the lock.
    file.unlock().ok()
}

/// The clock of an event's last record.
pub(super) fn clock(path: &PathBuf) -> Vec<Work> {
    let mut found = Vec::new();
    with(path, |rows: &mut Vec<Work>| {
        found.append(rows);
        false
    });
    found
}

pub(super) fn set_clock(path: &PathBuf, to: Vec<Work>) -> Option<()> {
    with(path, |rows| {
        *rows = to;
        true
    })
}

/// The accesses to memory, after a change; those of processes that have ended are over.
pub(super) fn accesses(path: &PathBuf, change: impl FnOnce(&mut Vec<Told>) -> bool) -> Option<Vec<Told>> {
    let mut found = Vec::new();
    with(path, |rows: &mut Vec<Told>| {
        rows.retain(|row| is_alive(&row.of.process));
        let is_changed = change(rows);
        found.clone_from(rows);
        is_changed
    })?;
    Some(found)
}

pub(super) fn remove(path: &PathBuf) {
    _ = fs::remove_file(path);
}

fn is_alive(process: &str) -> bool {
    let parts = process.split_once('-');
    parts.is_some_and(|(number, start)| machine::process_start(number).is_some_and(|found| found == start))
}

/// A line of a file.
trait Row: Sized {
    fn text(&self) -> String;
    fn parse(line: &str) -> Option<Self>;
}

impl Row for Work {
    fn text(&self) -> String {
        let Self { process, slot, numbers: [all, unstaged] } = self;
        format!("{process} {slot} {all} {unstaged}")
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let process = words.next()?.to_owned();
        let mut number = || words.next()?.parse().ok();
        Some(Self { process, slot: number()?, numbers: [number()?, number()?] })
    }
}

const KINDS: [Kind; 5] = [Kind::Reads, Kind::Writes, Kind::Kernel, Kind::KernelReads, Kind::Frees];

impl Row for Told {
    fn text(&self) -> String {
        let Self { of, is_published, span, kind, function, place } = self;
        let Rows { pitch, width } = span.rows.unwrap_or(Rows { pitch: 0, width: 0 });
        let kind = KINDS.iter().position(|known| known == kind).unwrap_or_default();
        let (of, told, function) = (of.text(), u8::from(*is_published), function.name());
        format!("{of} {told} {} {} {pitch} {width} {kind} {function} {place}", span.start, span.end)
    }

    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.splitn(12, ' ').collect();
        let &[process, slot, all, unstaged, told, start, end, pitch, width, kind, function, place] = &words[..] else {
            return None;
        };
        let (pitch, width) = (pitch.parse().ok()?, width.parse().ok()?);
        let rows = (pitch != 0).then_some(Rows { pitch, width });
        let numbers = [all.parse().ok()?, unstaged.parse().ok()?];
        Some(Self {
            of: Work { process: process.to_owned(), slot: slot.parse().ok()?, numbers },
            is_published: told == "1",
            span: Span { start: start.parse().ok()?, end: end.parse().ok()?, rows },
            kind: *KINDS.get(kind.parse::<usize>().ok()?)?,
            function: Function::named(function.as_bytes())?,
            place: place.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back() {
        let of = Work { process: "12-34567".to_owned(), slot: 3, numbers: [7, 5] };
        assert_eq!(Work::parse(&of.text()), Some(of.clone()));
        for rows in [None, Some(Rows { pitch: 256, width: 128 })] {
            for kind in KINDS {
                let span = Span { start: 4096, end: 8192, rows };
                let (function, place) = (Function::cuMemcpyAsync, "/a folder/app+0x12".to_owned());
                let told = Told { of: of.clone(), is_published: rows.is_some(), span, kind, function, place };
                assert_eq!(Told::parse(&told.text()), Some(told));
            }
        }
        for line in ["", "a b c d", "1-2 3 4", "1-2 3 4 4 0 0 1 0 0 9 cuMemcpyAsync app"] {
            assert_eq!(Told::parse(line), None, "{line}");
        }
    }
}
