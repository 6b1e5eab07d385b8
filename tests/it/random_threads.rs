//! Programs of threads, drawn at random, that rely on what calls wait for while other threads change all the time what p2pshim remembers:
//! plain and preloaded they print the same on simulated GPUs, and nothing is wrong.

use std::collections::BTreeMap;

use crate::support::soak::{compare_all, seeds, soak};
use crate::support::{Outcome, Program, Scratch, warnings};

/// Programs that are tried by `make test`, and by `make soak`.
const FEW: u32 = 6;
const MANY: u32 = 1000;
/// Programs at a time; they sleep more than they compute.
const AT_A_TIME: usize = 3;
/// One program in so many has a trace.
const TRACED: u32 = 3;
const FLAVOURS: [&str; 3] = ["12", "13", "static"];
/// Failures that are told.
const TOLD: usize = 10;
/// Findings that are right about a program that changes so much: direct copies are slow on a busy machine, and a pool is gone while it is looked at.
const EXPECTED: [&str; 2] = [" slower than ", " the driver returned CUDA_ERROR_INVALID_VALUE (1). "];

/// A program as a seed makes it.
fn program(seed: u32) -> Program {
    let flavour = FLAVOURS[(seed % 3) as usize];
    // Two devices, three, or four: then access to peers that no worker copies to changes, too.
    let devices = (2 + seed / 3 % 4).min(4);
    Program::case(&format!("random_threads-{flavour}"))
        .env("P2PSIM_DEVICES", devices.to_string())
        .arg(seed.to_string())
        .findings_apart()
}

/// The command that shows it again. Threads run in another order each time, so that it may take several.
fn command(seed: u32, library: bool) -> String {
    let preload = if library { "LD_PRELOAD=target/built/libp2pshim.so " } else { "" };
    let (flavour, devices) = (FLAVOURS[(seed % 3) as usize], (2 + seed / 3 % 4).min(4));
    let libraries = "LD_LIBRARY_PATH=target/sim/lib";
    format!("{libraries} P2PSIM_DEVICES={devices} {preload}target/c-tests/random_threads-{flavour} {seed}")
}

/// Lines that say what is wrong, or the last ones of a run.
fn story(outcome: &Outcome) -> String {
    let wrong: Vec<_> = outcome.stdout.lines().filter(|line| line.starts_with("WRONG")).take(3).collect();
    let last = || outcome.stdout.lines().rev().take(1).chain(outcome.stderr.lines().take(3)).collect();
    let told: Vec<_> = if wrong.is_empty() { last() } else { wrong };
    format!("{}\n    {}", outcome.status, told.join("\n    "))
}

/// Runs a program plain and preloaded; what it printed, or what is wrong.
fn compare(seed: u32) -> Result<String, String> {
    let plain = program(seed).plain();
    if plain.status != "exit status: 0" {
        return Err(format!("`{}` is wrong without p2pshim: {}", command(seed, false), story(&plain)));
    }
    let folder = Scratch::new("traces");
    let preloaded = match seed % TRACED {
        0 => program(seed).env("P2PSHIM_TRACE", folder.to_string_lossy()).preloaded(),
        _ => program(seed).preloaded(),
    };
    if (&plain.stdout, &plain.status) != (&preloaded.stdout, &preloaded.status) {
        return Err(format!("`{}`: {}", command(seed, true), story(&preloaded)));
    }
    let unexpected = warnings(&preloaded).into_iter().find(|line| !EXPECTED.iter().any(|text| line.contains(text)));
    match unexpected {
        Some(line) => Err(format!("`{}`: the shim says {line}", command(seed, true))),
        None => Ok(plain.stdout),
    }
}

/// How many rounds each call had that waits.
fn rounds(printed: &[String]) -> BTreeMap<&str, u32> {
    let mut sums = BTreeMap::new();
    for line in printed.iter().flat_map(|text| text.lines()) {
        if let Some((call, count)) = line.strip_suffix(" rounds").and_then(|line| line.split_once(": ")) {
            *sums.entry(call).or_default() += count.parse::<u32>().unwrap();
        }
    }
    sums
}

#[test]
fn random_threads_are_the_same_preloaded() {
    let count = soak().map_or(FEW, |_| MANY);
    let (first, _) = seeds(0, count);
    let (wrong, same) = compare_all(first..first + count, AT_A_TIME, compare);
    let told = wrong.iter().take(TOLD).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} of {count} programs:\n{told}", wrong.len());
    let rounds = rounds(&same);
    assert_eq!(rounds.len(), 11, "{rounds:?}");
}

/// A copy that is lost where only the shim makes it direct is found.
#[test]
fn random_threads_on_a_faulty_machine_are_wrong() {
    let faulty = program(0).env("P2PSIM_FAULT", "drop:0-1").env("P2PSHIM_VERIFY", "off").preloaded();
    assert!(faulty.stdout.contains("WRONG: seed 0, ") && faulty.status == "exit status: 1", "{}", story(&faulty));
}
