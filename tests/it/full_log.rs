//! The log goes to a pipe, FIFO, socket or terminal that nobody reads: `c-tests/cases/full_log.c` on simulated GPUs.

use crate::support::{Program, Scratch};

/// The program's words, preloaded, with these variables.
fn run(kind: &str, what: &str, variables: &[(&str, &str)]) -> String {
    let mut program = Program::case("full_log-12").arg(kind).arg(what);
    for (name, value) in variables {
        program = program.env(name, *value);
    }
    let fifo = Scratch::new("fifo");
    if kind == "fifo" {
        program = program.env("P2PSHIM_LOG_FILE", fifo.to_string_lossy());
    }
    let outcome = program.preloaded();
    outcome.stdout
}

fn number(said: &str, of: &str) -> u64 {
    let line = said.lines().find_map(|line| line.strip_prefix(of)).unwrap_or_else(|| panic!("no {of:?}: {said}"));
    line.trim().parse().unwrap()
}

/// It went on, left the descriptor alone, and wrote again when somebody read. Answers how many lines it said are lost.
fn goes_on(said: &str) -> u64 {
    for line in ["soon: yes", "flags as before: yes", "lines when somebody reads: yes", "ended with 0"] {
        assert!(said.lines().any(|said| said == line), "not {line:?}: {said}");
    }
    number(said, "lost: ")
}

/// Milliseconds that a line waits, but for some.
const PATIENCE: u64 = 190;
const TRACE: (&str, &str) = ("P2PSHIM_LOG", "trace");

/// Tests at default settings, and with every call in the log.
macro_rules! nobody_reads {
    ($($kind:ident)*) => { $(
        mod $kind {
            use super::*;
            const KIND: &str = stringify!($kind);
            #[test]
            fn finding_nobody_reads_program_goes_on_and_tells_what_is_lost() {
                assert_eq!(goes_on(&run(KIND, "finds", &[])), 1);
            }
            #[test]
            fn trace_nobody_reads_no_thread_waits_for_each_line() {
                // Runtime and driver show a call each.
                let lost = goes_on(&run(KIND, "threads", &[TRACE]));
                assert!(lost >= 2 * 8 * 200, "{lost}");
            }
            #[test]
            fn trace_nobody_reads_signals_end_the_program() {
                for (what, signal) in [("term", "Terminated"), ("alarm", "Alarm clock")] {
                    let said = run(KIND, what, &[TRACE]);
                    assert!(said.starts_with(&format!("ended by {signal}\n")), "{said}");
                }
            }
            #[test]
            fn trace_reader_is_slow_each_line_is_there_or_counted() {
                let log = ("P2PSHIM_LOG", "off,p2pshim::call=trace");
                let said = run(KIND, "slow", &[log]);
                let (lines, lost) = (number(&said, "lines: "), number(&said, "lost: "));
                // A line that is lost in the middle is there too.
                let all = 2 * (4 * 250 + 1);
                assert!((all..=all + lost).contains(&(lines + lost)), "{said}");
                assert!(lines > 0, "{said}");
                // A line is lost that has waited so long: on a machine that is not busy none has.
                let took = number(&said, "took: ");
                assert!(took >= PATIENCE || lost == 0, "{said}");
            }
        }
    )* };
}

nobody_reads! { pipe socket terminal fifo }

#[test]
fn summary_nobody_reads_program_ends() {
    const SUMMARY: (&str, &str) = ("P2PSHIM_SUMMARY", "on");
    for kind in ["pipe", "socket", "terminal"] {
        let said = run(kind, "finds", &[SUMMARY]);
        goes_on(&said);
        assert!(said.ends_with("summary: yes\n"), "{kind}: {said}");
        let said = run(kind, "full", &[SUMMARY, ("P2PSHIM_LOG", "off")]);
        assert!(said.ends_with("ended with 0\nsummary: no\n"), "{kind}: {said}");
    }
}

/// No descriptor of the shim's keeps a pipe open that the program has closed.
#[test]
fn closed_by_the_program_reader_finds_the_end() {
    for kind in ["pipe", "socket"] {
        let said = run(kind, "closes", &[TRACE]);
        assert!(said.contains("the end is found: yes\nended with 0\n"), "{kind}: {said}");
    }
}
