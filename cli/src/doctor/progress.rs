//! How far it is: on a terminal a line that is written anew, elsewhere one every few seconds.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Characters of the bar.
const WIDTH: usize = 24;
/// How often there is a line where lines stay.
const EVERY: Duration = Duration::from_secs(3);

/// The line on standard error.
pub(super) struct Progress {
    is_terminal: bool,
    /// When a line was written that stays, or it began.
    latest: Cell<Instant>,
    done: Cell<usize>,
    total: Cell<usize>,
    next: RefCell<String>,
    /// Tests that are under way, by the places of their pairs, and since when.
    tests: RefCell<BTreeMap<usize, (Instant, String)>>,
    /// How long a test may make no progress.
    patience: Cell<Duration>,
    /// Others read there what is tested.
    note: Option<File>,
}

/// A test that another process makes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) process: u32,
    pub(super) patience: Duration,
    pub(super) test: String,
}

impl Note {
    /// Reads what [`Progress::waits`] has written.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut fields = text.lines().next()?.splitn(3, ' ');
        let process = fields.next()?.parse().ok()?;
        let patience = Duration::from_millis(fields.next()?.parse().ok()?);
        Some(Self { process, patience, test: fields.next()?.to_owned() })
    }
}

impl Progress {
    /// The progress of a check, of which others may read.
    pub(super) fn noted(note: File) -> Self {
        Self { note: Some(note), ..Self::new() }
    }

    pub(super) fn new() -> Self {
        Self {
            tests: RefCell::default(),
            patience: Cell::default(),
            note: None,
            is_terminal: io::stderr().is_terminal(),
            latest: Cell::new(Instant::now()),
            done: Cell::new(0),
            total: Cell::new(1),
            next: RefCell::new("starting CUDA".to_owned()),
        }
    }

    /// Begins another piece of work, of so many steps.
    pub(super) fn begin(&self, total: usize, next: &str) {
        self.done.set(0);
        self.total.set(total);
        self.tests.borrow_mut().clear();
        next.clone_into(&mut self.next.borrow_mut());
        self.show();
    }

    /// The test of a pair is under way, or none is any more; it is given up if it makes no progress for so long.
    pub(super) fn waits(&self, place: usize, test: Option<String>, patience: Duration) {
        if let (Some(note), Some(test)) = (&self.note, &test) {
            let text = format!("{} {} {test}\n", std::process::id(), patience.as_millis());
            let _ = note.set_len(0).and_then(|()| note.write_all_at(text.as_bytes(), 0));
        }
        let mut tests = self.tests.borrow_mut();
        match test {
            Some(test) => drop(tests.insert(place, (Instant::now(), test))),
            None => drop(tests.remove(&place)),
        }
        self.patience.set(patience);
    }

    /// The test that has been under way longest, if that is long.
    fn waited_for(&self) -> String {
        const LONG: Duration = Duration::from_secs(1);
        let tests = self.tests.borrow();
        let oldest = tests.values().min().map(|(since, test)| (since.elapsed(), test));
        oldest.filter(|(age, _)| *age >= LONG).map_or_else(String::new, |(age, test)| {
            format!(" {test} for {} s, given up after {} s,", age.as_secs(), self.patience.get().as_secs())
        })
    }

    /// Counts a step.
    pub(super) fn step(&self) {
        self.done.set(self.done.get() + 1);
    }

    /// It is so far.
    pub(super) fn reach(&self, done: usize) {
        self.done.set(done);
    }

    /// Shows it, if it is time for that.
    pub(super) fn show(&self) {
        let (done, total, next) = (self.done.get(), self.total.get(), self.next.borrow());
        if self.is_terminal {
            let _ =
                write!(io::stderr(), "\r\x1b[K{} {next}{}", bar(done, total), self.waited_for().trim_end_matches(','));
        } else if self.latest.get().elapsed() >= EVERY {
            self.latest.set(Instant::now());
            let (who, comma) = (if self.note.is_some() { "p2pshim: check" } else { "doctor" }, self.waited_for());
            let comma = if comma.is_empty() { "," } else { &comma };
            let _ = writeln!(io::stderr(), "{who}: {next}{comma} {done} of {total}");
        }
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        if self.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn bar(done: usize, total: usize) -> String {
    let full = (done.min(total) * WIDTH).checked_div(total).unwrap_or(WIDTH);
    format!("[{:WIDTH$}] {done}/{total}", "#".repeat(full))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_a_pair_is_noted_for_others_and_shown_if_it_takes_long() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let progress = Progress::noted(file.reopen().unwrap());
        progress.waits(0, Some("0>1 (copies)".to_owned()), Duration::from_secs(5));
        let text = std::fs::read_to_string(file.path()).unwrap();
        let (process, patience, test) = (std::process::id(), Duration::from_secs(5), "0>1 (copies)".to_owned());
        assert_eq!(Note::read(&text), Some(Note { process, patience, test }));
        assert_eq!(["", "7", "x 5 y", "7 5000"].map(Note::read), [None, None, None, None]);
        progress.waits(0, None, Duration::from_secs(5));
        assert_eq!(progress.waited_for(), "");
        let earlier = Instant::now().checked_sub(Duration::from_secs(3)).unwrap();
        progress.tests.borrow_mut().insert(1, (earlier, "1>0 (copies)".to_owned()));
        assert!(progress.waited_for().starts_with(" 1>0 (copies) for "), "{}", progress.waited_for());
        assert!(progress.waited_for().ends_with(" s, given up after 5 s,"), "{}", progress.waited_for());
    }

    #[test]
    fn bar_is_as_full_as_it_is_done() {
        assert_eq!(bar(0, 2), "[                        ] 0/2");
        assert_eq!(bar(1, 2), "[############            ] 1/2");
        assert_eq!(bar(2, 2), "[########################] 2/2");
        assert!(bar(0, 0).ends_with("0/0"));
    }
}
