//! Programs drawn at random that rely on what calls wait for while the driver stages copies: plain and preloaded they print the same on
//! simulated GPUs.

use std::collections::BTreeMap;

use crate::support::sequences::{Variables, difference};
use crate::support::soak::{compare_all, seeds};
use crate::support::{Outcome, Program, warnings};

/// Programs that are tried; `make test` tries a tenth.
const SEEDS: u32 = 400;
/// Seeds at a time; programs sleep more than they compute.
const AT_A_TIME: usize = 4;
const STEPS: &str = "60";
/// Failures that are told.
const TOLD: usize = 10;
/// Lines shown before the one that differs.
const BEFORE: usize = 4;

/// A way to run programs.
#[derive(Clone, Copy)]
struct Way<'a> {
    flavour: &'a str,
    /// A last argument, or none.
    word: Option<&'a str>,
    /// With the shim.
    env: Variables<'a>,
}

const USUAL: Way = Way { flavour: "12", word: None, env: &[] };
/// Relies on what is documented only.
const DOCUMENTED: Way = Way { word: Some("documented"), ..USUAL };

impl Way<'_> {
    /// The program's arguments: some seeds take two devices and some three.
    fn arguments(&self, seed: u32) -> Vec<String> {
        let devices = 2 + seed % 2;
        [seed.to_string(), STEPS.to_owned(), devices.to_string()]
            .into_iter()
            .chain(self.word.map(str::to_owned))
            .collect()
    }

    fn program(&self, seed: u32) -> Program {
        let program = Program::case(&format!("random_waits-{}", self.flavour)).env("P2PSIM_DEVICES", "3");
        self.arguments(seed).into_iter().fold(program, Program::arg).findings_apart()
    }

    fn preloaded(&self, seed: u32) -> Outcome {
        let program = self.program(seed);
        self.env.iter().fold(program, |program, (name, value)| program.env(name, *value)).preloaded()
    }

    /// The command that shows it again.
    fn command(&self, seed: u32) -> String {
        let variables: String = self.env.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        format!("{variables}random_waits-{} {}", self.flavour, self.arguments(seed).join(" "))
    }

    /// Runs a program plain, twice, and preloaded; what it printed, or what is wrong.
    fn compare(&self, seed: u32) -> Result<String, String> {
        let (plain, again) = (self.program(seed).plain(), self.program(seed).plain());
        let command = self.command(seed);
        if let Some(line) = plain.stdout.lines().find(|line| line.contains("WRONG")) {
            return Err(format!("`{command}`: the generator expects something else of a plain run: {line}"));
        }
        if plain.status != "exit status: 0" {
            return Err(format!("`{command}` fails plain: {}\n{}", plain.status, tail(&plain)));
        }
        if let Some(how) = differ(&plain, &again) {
            return Err(format!("`{command}`: the generator is not repeatable, two plain runs differ:\n{how}"));
        }
        let preloaded = self.preloaded(seed);
        if let Some(how) = differ(&plain, &preloaded) {
            return Err(format!("`{command}` differs:\n{how}"));
        }
        match unexpected(&preloaded) {
            Some(line) => Err(format!("`{command}`: the shim says {line}")),
            None => Ok(plain.stdout),
        }
    }

    fn assert_same(&self, first: u32, count: u32) -> Vec<String> {
        let (first, count) = seeds(first, count);
        let (wrong, same) = compare_all(first..first + count, AT_A_TIME, |seed| self.compare(seed));
        let told = wrong.iter().take(TOLD).cloned().collect::<Vec<_>>().join("\n");
        assert!(wrong.is_empty(), "{} of {count} programs:\n{told}", wrong.len());
        same
    }
}

/// The last that a run said.
fn tail(outcome: &Outcome) -> String {
    let lines: Vec<_> = outcome.stdout.lines().rev().take(2).chain(outcome.stderr.lines().take(3)).collect();
    lines.join("\n")
}

/// The first line that differs, with some before it, or how the second run ended.
fn differ(one: &Outcome, other: &Outcome) -> Option<String> {
    if let Some((_, lines)) = difference(&one.stdout, &other.stdout) {
        let same = one.stdout.lines().zip(other.stdout.lines()).take_while(|(one, other)| one == other);
        let same: Vec<_> = same.map(|(line, _)| format!("               {line}\n")).collect();
        return Some(same[same.len().saturating_sub(BEFORE)..].concat() + &lines);
    }
    let is_same = (&one.stdout, &one.status) == (&other.stdout, &other.status);
    (!is_same).then(|| format!("    {}, then {}\n{}", one.status, other.status, tail(other)))
}

/// A warning for which there is no reason, but that a busy machine may take direct copies to be slow.
fn unexpected(outcome: &Outcome) -> Option<String> {
    warnings(outcome).iter().find(|line| !line.contains(" slower than ")).map(|line| (*line).clone())
}

/// How often each kind of call was made, and how often only staging ordered the memory that it used.
fn counts(printed: &[String]) -> BTreeMap<&str, [u32; 2]> {
    let mut counts = BTreeMap::new();
    for line in printed.iter().flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix("done: ")) {
        let (rest, by_staging) = line.strip_suffix(" by staging").unwrap().split_once(", ").unwrap();
        let (kind, done) = rest.rsplit_once(' ').unwrap();
        let sums: &mut [u32; 2] = counts.entry(kind).or_default();
        sums[0] += done.parse::<u32>().unwrap();
        sums[1] += by_staging.parse::<u32>().unwrap();
    }
    counts
}

/// The kinds of calls that use memory; all others order nothing that only staging orders.
const USES: [&str; 19] = [
    "cudaMemcpyPeerAsync",
    "cudaMemcpyAsync",
    "cudaMemcpy2DAsync",
    "cudaMemcpy3DAsync",
    "cudaMemcpy3DPeerAsync",
    "cudaMemcpyPeer",
    "cudaMemcpy",
    "cudaMemcpy2D",
    "cudaMemcpy3D",
    "cudaMemcpy3DPeer",
    "cuMemcpyBatchAsync",
    "cudaGraphLaunch",
    "copy within a device",
    "cudaMemsetAsync",
    "read on a new stream",
    "read on a stream",
    "cudaFree",
    "cudaFree of a pool's memory",
    "cudaFreeAsync",
];

#[test]
fn random_waits_are_the_same_preloaded() {
    let printed = USUAL.assert_same(0, SEEDS);
    for (kind, [done, by_staging]) in counts(&printed) {
        assert!(done > 0, "no {kind}");
        assert_eq!(by_staging > 0, USES.contains(&kind), "{kind}: {by_staging} ordered by staging only");
    }
}

/// Where nothing is made direct, nothing changes.
#[test]
fn random_waits_with_access_of_the_program_are_the_same_preloaded() {
    Way { env: &[("P2PSHIM_ACCESS", "app")], ..USUAL }.assert_same(100_000, SEEDS / 3);
}

/// Programs that rely on what is documented only are right whatever copies are made direct.
#[test]
fn random_waits_that_are_documented_are_the_same_preloaded() {
    DOCUMENTED.assert_same(110_000, SEEDS / 3);
}

#[test]
fn random_waits_with_each_runtime_are_the_same_preloaded() {
    for (number, flavour) in ["11", "13", "static"].into_iter().enumerate() {
        Way { flavour, ..USUAL }.assert_same(120_000 + number as u32 * 1000, SEEDS / 10);
    }
}

/// The comparison finds copies that are lost where only the shim makes them direct.
#[test]
fn random_waits_on_a_faulty_machine_are_found_to_differ() {
    let env = [("P2PSIM_FAULT", "drop:0-1"), ("P2PSHIM_VERIFY", "off")];
    let faulty = Way { env: &env, ..DOCUMENTED };
    for seed in 130_000..130_003 {
        let (plain, preloaded) = (DOCUMENTED.program(seed).plain(), faulty.preloaded(seed));
        assert!(preloaded.stdout.contains("WRONG"), "{}", faulty.command(seed));
        assert!(differ(&plain, &preloaded).is_some(), "{}", faulty.command(seed));
    }
}
