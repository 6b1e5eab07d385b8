//! How far it is: on a terminal a line that is written anew, elsewhere one every few seconds.

use std::cell::{Cell, RefCell};
use std::io::{self, IsTerminal, Write};
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
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
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
        next.clone_into(&mut self.next.borrow_mut());
        self.show();
    }

    /// Counts a step.
    pub(super) fn step(&self) {
        self.done.set(self.done.get() + 1);
    }

    /// Shows it, if it is time for that.
    pub(super) fn show(&self) {
        let (done, total, next) = (self.done.get(), self.total.get(), self.next.borrow());
        if self.is_terminal {
            let _ = write!(io::stderr(), "\r\x1b[K{} {next}", bar(done, total));
        } else if self.latest.get().elapsed() >= EVERY {
            self.latest.set(Instant::now());
            let _ = writeln!(io::stderr(), "doctor: {next}, {done} of {total}");
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
    fn bar_is_as_full_as_it_is_done() {
        assert_eq!(bar(0, 2), "[                        ] 0/2");
        assert_eq!(bar(1, 2), "[############            ] 1/2");
        assert_eq!(bar(2, 2), "[########################] 2/2");
        assert!(bar(0, 0).ends_with("0/0"));
    }
}
