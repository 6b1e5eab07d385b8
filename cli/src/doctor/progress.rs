//! How far it is, for somebody who sits before a terminal.

use std::io::{self, IsTerminal, Write};

/// Characters of the bar.
const WIDTH: usize = 24;

/// A line on standard error that is written anew; nothing if that is no terminal.
pub(super) struct Progress {
    total: usize,
    is_shown: bool,
}

impl Progress {
    pub(super) fn new(total: usize) -> Self {
        Self { total, is_shown: io::stderr().is_terminal() }
    }

    /// Shows that so many are done, and what is next.
    pub(super) fn show(&self, done: usize, next: &str) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K{} {next}", bar(done, self.total));
        }
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn bar(done: usize, total: usize) -> String {
    let full = (done * WIDTH).checked_div(total).unwrap_or(WIDTH);
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
