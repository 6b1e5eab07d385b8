//! The line of Python that a thread of a process is at now, read from its memory. The trace says where the interpreter and the thread's state are.

use std::fs;
use std::io::ErrorKind::PermissionDenied;
use std::os::unix::fs::FileExt;

use p2pshim_host::python::{self, Memory, Python};

use super::model::Line;

/// Looks at most, until two one after the other find the same lines: a thread that runs changes its frames meanwhile.
const LOOKS: usize = 8;

/// Where a thread is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Now {
    At(Line),
    /// The kernel does not let this user read the process's memory.
    Denied,
}

struct OfProcess(fs::File);

impl Memory for OfProcess {
    fn read(&self, from: usize, to: &mut [u8]) -> bool {
        self.0.read_exact_at(to, from as u64).is_ok()
    }
}

/// The line that a thread is at, by the trace's note on it; none if that is no line of the program, or changes all the time.
pub(super) fn now(process: u32, note: &str) -> Option<Now> {
    let memory = match fs::File::open(format!("/proc/{process}/mem")) {
        Ok(file) => OfProcess(file),
        Err(error) => return (error.kind() == PermissionDenied).then_some(Now::Denied),
    };
    let (python, thread) = Python::of_note(note, &memory)?;
    let mut looks = (0..LOOKS).map(|_| python.lines(&thread, &memory));
    let mut before = looks.next()?;
    let steady = looks.find_map(|lines| {
        let is_it = lines == before;
        before = lines;
        is_it.then(|| before.clone())
    });
    line(steady?).map(Now::At)
}

/// Lines, innermost first, as one with those that it was called from.
fn line(lines: Vec<python::Line>) -> Option<Line> {
    let one = |python::Line { file, number, function }| Line { file, line: number, function, outer: Vec::new() };
    let mut all = lines.into_iter().map(one);
    let inner = all.next()?;
    Some(Line { outer: all.collect(), ..inner })
}
