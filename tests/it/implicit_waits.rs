//! Calls that wait for queued copies though nobody has asked them to wait the same with p2pshim, which makes those copies direct.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::support::soak::{Draw, is_all};
use crate::support::{Outcome, Program, path};

/// Programs that run at once. Nearly all of their time they wait.
const AT_ONCE: usize = 8;
/// Milliseconds that a call is given to return without waiting; and those of another try, if it seemed to wait but is not to: it may
/// only have been late.
const PATIENCE: [&str; 2] = ["400", "5000"];

/// A cell of the table: the program's three arguments and what it prints of them.
struct Cell {
    arguments: [String; 3],
    result: String,
}

fn cells() -> Vec<Cell> {
    let table = std::fs::read_to_string(path("tests/golden/implicit_waits.tsv")).unwrap();
    let lines = table.lines().filter(|line| !line.starts_with('#')).skip(1);
    let mut cells = Vec::new();
    for line in lines {
        let [operation, results @ .., copies] = &line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert_eq!(results.len(), 3, "{line}");
        for copy in copies.split(' ') {
            for (current, result) in results.iter().enumerate().filter(|(_, result)| **result != "-") {
                let arguments = [copy.to_owned(), (*operation).to_owned(), current.to_string()];
                cells.push(Cell { arguments, result: (*result).to_owned() });
            }
        }
    }
    let named: BTreeSet<_> = cells.iter().map(|cell| &cell.arguments).collect();
    assert_eq!((cells.len(), named.len()), (770, 770), "cells, and different ones");
    // Half of one form of copy, and every sixth of the others, from one on that is drawn; those that are tried with each runtime. In
    // `make soak` all.
    let drawn = Draw::of("implicit waits").below(6);
    let is_chosen = |(number, cell): &(usize, Cell)| {
        let every = if cell.arguments[0] == "peer_async" { 2 } else { 6 };
        is_all() || (number + drawn).is_multiple_of(every) || is_of_each_runtime(cell)
    };
    cells.into_iter().enumerate().filter(is_chosen).map(|(_, cell)| cell).collect()
}

impl Cell {
    fn program(&self, flavour: &str, patience: &str) -> Program {
        let program = Program::case(&format!("implicit_waits-{flavour}")).env("P2PSIM_DEVICES", "3");
        let program = program.env("IMPLICIT_WAITS_PATIENCE", patience);
        self.arguments.iter().fold(program, |program, argument| program.arg(argument))
    }

    /// How what the program does differs from the table.
    fn difference(&self, flavour: &str, run: fn(&Program) -> Outcome) -> Option<String> {
        let line = |patience| {
            let outcome = run(&self.program(flavour, patience));
            format!("{}{}", outcome.stdout, if outcome.stdout.is_empty() { outcome.stderr } else { String::new() })
        };
        let wanted = format!("{}: {}", self.arguments.join(" "), self.result);
        let is_wanted = |line: &str| {
            let line = line.trim_end();
            line == wanted || (!wanted.contains(", end ") && line.starts_with(&format!("{wanted}, end ")))
        };
        let first = line(PATIENCE[0]);
        let seems_late = first.contains(": waits,") && self.result.starts_with("at once");
        let last = if seems_late { line(PATIENCE[1]) } else { first };
        (!is_wanted(&last)).then(|| format!("{wanted}; but it printed {}", last.trim_end()))
    }
}

/// Runs the program for each of these cells of the table.
fn assert_all(cells: &[Cell], flavour: &str, run: fn(&Program) -> Outcome) {
    let (next, differences) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    differences.lock().unwrap().extend(cell.difference(flavour, run));
                }
            });
        }
    });
    let differences = differences.into_inner().unwrap();
    assert!(differences.is_empty(), "{} of {}:\n{}", differences.len(), cells.len(), differences.join("\n"));
}

/// Operations that load a library's kernels, or unload it from another context: they wait plain, and p2pshim does not keep that
/// (docs/LIMITS.md).
const NOT_KEPT: [&str; 4] =
    ["get_function_of_kernel", "get_module_of_library", "first_launch_of_library", "unload_library_elsewhere"];

/// Whether a cell is tried with every runtime.
fn is_of_each_runtime(cell: &Cell) -> bool {
    let [copy, operation, current] = &cell.arguments;
    let is_chosen = ["synchronize", "free_far", "reset", "unload_library", "alloc"].contains(&operation.as_str());
    is_chosen && copy == "peer_async" && current == "1"
}

#[test]
fn simulated_gpus_wait_as_real_ones() {
    assert_all(&cells(), "12", Program::plain);
    let chosen: Vec<_> = cells().into_iter().filter(is_of_each_runtime).collect();
    assert_eq!(chosen.len(), 5);
    for flavour in ["13", "static"] {
        assert_all(&chosen, flavour, Program::plain);
    }
}

#[test]
fn calls_wait_the_same_with_the_shim() {
    let is_kept = |cell: &Cell| !NOT_KEPT.contains(&cell.arguments[1].as_str());
    assert_all(&cells().into_iter().filter(is_kept).collect::<Vec<_>>(), "12", Program::preloaded);
    let chosen: Vec<_> = cells().into_iter().filter(is_of_each_runtime).collect();
    for flavour in ["13", "static"] {
        assert_all(&chosen, flavour, Program::preloaded);
    }
}
