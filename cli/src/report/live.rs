//! Processes that may run: which traces are theirs, and what each of them is in.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use p2pshim_host::machine;
use p2pshim_trace::SUFFIX;
use serde::Serialize;

use super::files::{self, Files};
use super::gather;
use super::model::{Call, End, File, How, Line, Progress, Report, Run};
use super::python;
use crate::{complain, processes, runs};

/// A call that has not returned for so long is one that the process waits in; a process that was not heard of for so long makes none.
pub(super) const LONG: u64 = 1_000_000_000;

/// The state that a process is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// In a call, for [`LONG`] or more.
    InCall,
    /// It was heard of a short while ago.
    Moves,
    /// In no call.
    Idle,
    /// By a signal or a debugger.
    Stopped,
    Ended,
}

/// A process as it is now.
pub(super) struct Process<'a> {
    pub(super) file: &'a File,
    pub(super) state: State,
    /// The call that it is in: that of its first thread, or else the oldest.
    pub(super) call: Option<&'a Call>,
    /// The calls that its threads are in, with that one.
    pub(super) calls: Vec<&'a Call>,
    /// If it has ended, the calls in which its threads were then.
    pub(super) at_end: Vec<&'a Call>,
    /// The last call that has returned.
    pub(super) last: Option<&'a Call>,
    /// Where the Python is of the thread of that call or, in none, of the main thread, or else of the thread that called last.
    pub(super) python: Option<python::Now>,
    /// For how long it has been in its call or, in none, was not heard of, in nanoseconds.
    pub(super) since: Option<u64>,
}

impl<'a> Process<'a> {
    fn of(report: &'a Report, file: &'a File, now: u64) -> Self {
        let id = file.process.unwrap_or_default();
        let calls = || report.unfinished.iter().filter(|call| call.file == file.index);
        let is_there = |thread: u32| !file.running || Path::new(&format!("/proc/{id}/task/{thread}")).exists();
        let open: Vec<&Call> = calls()
            .filter(|call| matches!(call.progress, Progress::Hangs | Progress::UnderWay) && is_there(call.thread))
            .collect();
        let runs = file.running || file.may_run;
        let call = open.iter().copied().filter(|_| runs).min_by_key(|call| (call.thread != id, call.started));
        let returned = calls().chain(&file.last_copy).filter(|call| call.progress == Progress::Returned);
        let last = returned.max_by_key(|call| call.returned);
        let began = call.map(|call| call.started).or(file.ended);
        // A trace that has lost its clocks does not say.
        let began = began.filter(|&time| runs && time >= gather::EARLIEST);
        let since = began.map(|time| now.saturating_sub(time));
        let state = match call {
            _ if !runs => State::Ended,
            _ if file.running && is_stopped(id) => State::Stopped,
            Some(_) if since.is_none_or(|since| since >= LONG) => State::InCall,
            None if since >= Some(LONG) => State::Idle,
            _ => State::Moves,
        };
        let mut at_end: Vec<&Call> = calls().filter(|call| !runs && was_in(call)).collect();
        at_end.sort_by_key(|call| (call.thread != id, call.started));
        let threads = call.map(|call| call.thread).or(Some(id)).into_iter();
        let mut threads = threads.chain(last.filter(|_| call.is_none()).map(|last| last.thread));
        let note = threads.find_map(|thread| file.pythons.get(&thread).filter(|_| file.running && is_there(thread)));
        let python = note.and_then(|note| python::now(id, note));
        Self { file, state, call, calls: open, at_end, last, python, since }
    }

    /// One in this state, of which no more is known.
    #[cfg(test)]
    pub(super) fn made(file: &'a File, state: State) -> Self {
        let (call, last, python, since) = (None, None, None, None);
        Self { file, state, call, calls: Vec::new(), at_end: Vec::new(), last, python, since }
    }

    pub(super) fn line_of_python(&self) -> Option<&Line> {
        match &self.python {
            Some(python::Now::At(line)) => Some(line),
            _ => None,
        }
    }

    /// The line of Python that it is at now, and where that was called from, in words.
    pub(super) fn line(&self) -> Option<String> {
        self.line_of_python().map(Line::in_short)
    }

    /// The place of the call that it is in.
    pub(super) fn place(&self) -> Option<String> {
        Some(self.line().unwrap_or(self.call?.from.in_short()))
    }

    pub(super) fn end(&self) -> String {
        match &self.file.end {
            End { code: Some(code), .. } => format!("has ended with exit {code}"),
            End { signal: Some(signal), .. } => format!("was ended by {signal}"),
            _ => "has ended, by a signal or by `_exit`".to_owned(),
        }
    }
}

/// Whether a thread was in a call when its process ended.
fn was_in(call: &Call) -> bool {
    matches!(call.progress, Progress::Hangs | Progress::UnderWay | Progress::CutOff)
}

/// Whether all of a process is stopped; source: proc_pid_stat(5).
fn is_stopped(process: u32) -> bool {
    let state = processes::fields_of(process.cast_signed()).and_then(|mut fields| fields.next());
    state.is_some_and(|state| state == "T" || state == "t")
}

/// The processes of a run, by rank. One that became another program is there as that; of those of a rank that ended, while another has it,
/// nobody misses any.
pub(super) fn processes<'a>(report: &'a Report, run: &Run) -> Vec<Process<'a>> {
    let now = machine::now();
    let files = run.files.iter().filter_map(|&file| report.files.get(file));
    let of = |file: &File| file.process.is_some() && file.end.how != How::Exec;
    let mut all: Vec<Process> = files.filter(|file| of(file)).map(|file| Process::of(report, file, now)).collect();
    let runs: BTreeSet<Option<&String>> =
        all.iter().filter(|it| it.state != State::Ended).map(|it| it.file.rank.as_ref()).collect();
    all.retain(|it| it.state != State::Ended || it.file.rank.is_none() || !runs.contains(&it.file.rank.as_ref()));
    let number = |rank: &String| rank.parse::<u64>().unwrap_or(u64::MAX);
    all.sort_by_cached_key(|it| (it.file.rank.as_ref().map(number), it.file.rank.clone(), it.file.process));
    all
}

/// Whether a process is above another of them that runs, as one that has started the ranks of a job and waits for them.
pub(super) fn has_child(it: &Process, all: &[Process]) -> bool {
    let id = |it: &Process| it.file.process.unwrap_or_default();
    all.iter().any(|other| other.file.running && id(other) != id(it) && is_below(id(other), id(it)))
}

/// Which programs are meant.
pub(super) enum Meant {
    /// All of this user that run here.
    Here,
    /// Those of these processes, and of those below them.
    Processes(Vec<u32>),
    /// Those whose traces are in these places.
    Folders,
}

impl Meant {
    /// Whether a run is.
    pub(super) fn has(&self, all: &[Process]) -> bool {
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned());
        let is_one = |it: &Process| {
            let id = it.file.process.unwrap_or_default();
            match self {
                Self::Processes(of) => it.file.running && of.iter().any(|&other| is_below(id, other)),
                // One that cannot be seen has a pid namespace of its own here, or is of another machine or boot.
                Self::Here => it.file.running || (it.file.may_run && it.file.boot_id == boot_id),
                Self::Folders => it.state != State::Ended,
            }
        };
        all.iter().any(is_one)
    }
}

pub(super) fn is_below(process: u32, other: u32) -> bool {
    processes::descends(process.cast_signed(), other.cast_signed(), processes::parent)
}

/// Reads the traces of programs that may run, so many of each thread's last blocks at most, and the arguments of programs if they are
/// wanted. None if there is no trace.
///
/// # Errors
/// A place cannot be read, has no traces, or none that may be read.
pub(super) fn read(
    named: &[PathBuf],
    blocks: usize,
    with_arguments: bool,
) -> Result<(Option<Report>, Meant), files::Error> {
    let number = |path: &PathBuf| path.to_str()?.parse::<u32>().ok().filter(|_| !path.exists());
    let ids: Vec<u32> = named.iter().filter_map(number).collect();
    let (meant, places) = match (named.len(), ids.len()) {
        (0, _) => (Meant::Here, folders_of(|_| true)),
        (all, ids_only) if all == ids_only => {
            let folders = folders_of(|process| ids.iter().any(|&id| is_below(process, id)));
            (Meant::Processes(ids), folders)
        }
        _ => (Meant::Folders, named.to_vec()),
    };
    if places.is_empty() {
        return Ok((None, meant));
    }
    let is_named = matches!(meant, Meant::Folders);
    let mut files = if is_named { files::find(&places)? } else { find_what_is_left(places)? };
    leave_out_others(&mut files);
    if files.traces.is_empty() {
        return Ok((None, meant));
    }
    let kept = runs::load(&files.runs);
    match gather::gather_live(&files, &kept, blocks, with_arguments) {
        Err(_) if !is_named && !files.traces.iter().any(|path| path.exists()) => Ok((None, meant)),
        read => Ok((Some(read?), meant)),
    }
}

/// The files in the folders of programs that run, any of which may end and take its folder with it meanwhile.
///
/// # Errors
/// A folder that is there cannot be read.
fn find_what_is_left(mut folders: Vec<PathBuf>) -> Result<Files, files::Error> {
    loop {
        match files::find(&folders) {
            Err(files::Error::Path(gone, error)) if error.kind() == ErrorKind::NotFound => {
                folders.retain(|folder| *folder != gone);
            }
            Err(files::Error::NoTraces(_)) => return Ok(Files::default()),
            found => return found,
        }
    }
}

/// Leaves out files of other users: anything may stand there.
fn leave_out_others(files: &mut Files) {
    // The owner of our own entry is the user that we run as.
    let Ok(own) = fs::metadata("/proc/self") else { return };
    files.traces.retain(|path| {
        let is_ours = fs::symlink_metadata(path).is_ok_and(|it| it.is_file() && it.uid() == own.uid());
        if !is_ours {
            complain(format_args!("{} is left out: it belongs to another user", path.display()));
        }
        is_ours
    });
    files.runs.retain(|path| fs::symlink_metadata(path).is_ok_and(|it| it.uid() == own.uid()));
}

/// The folders of the traces that processes which are meant write.
fn folders_of(is_meant: impl Fn(u32) -> bool) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut folders = BTreeSet::new();
    for id in ids {
        // The maps of other users' processes cannot be read.
        let maps = fs::read(format!("/proc/{id}/maps")).unwrap_or_default();
        let maps = String::from_utf8_lossy(&maps);
        let traces = maps.lines().filter(|line| line.ends_with(SUFFIX)).filter_map(|line| line.get(line.find('/')?..));
        let found: BTreeSet<PathBuf> = traces.filter_map(|path| Some(Path::new(path).parent()?.to_owned())).collect();
        if !found.is_empty() && is_meant(id) {
            folders.extend(found.into_iter().filter(|folder| folder.is_dir()));
        }
    }
    folders.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_that_is_gone_does_not_hide_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join(format!("a{SUFFIX}"));
        fs::write(&trace, "").unwrap();
        let [gone, also] = ["gone", "also"].map(|name| folder.path().join(name));
        let left = find_what_is_left(vec![gone.clone(), folder.path().to_owned(), also]).unwrap();
        assert_eq!(left.traces, [trace]);
        assert!(find_what_is_left(vec![gone]).unwrap().traces.is_empty());
    }
}
