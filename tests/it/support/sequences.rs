//! Sequences of calls that a program draws from a seed: plain and preloaded it must print the same.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread;

use super::soak::few_seeds;
use super::{Outcome, Program, warnings};

/// Names and values.
pub(crate) type Variables<'a> = &'a [(&'a str, &'a str)];

/// Sequences that one process runs: what the shim has learnt about a path lasts as long as the process.
pub(crate) const BLOCK: u32 = 250;
/// Processes at a time; they sleep more than they compute.
const AT_A_TIME: usize = 3;

/// A program that prints a line `sequence N: …` for each.
pub(crate) struct Sequences {
    pub(crate) case: &'static str,
}

/// The first lines that differ, with how many there are.
pub(crate) fn difference(plain: &str, preloaded: &str) -> Option<(usize, String)> {
    let differ = |(plain, preloaded): &(&str, &str)| plain != preloaded;
    let count = plain.lines().zip(preloaded.lines()).filter(differ).count();
    let first = plain.lines().zip(preloaded.lines()).find(differ);
    let first = first.map(|(plain, preloaded)| format!("    plain:     {plain}\n    preloaded: {preloaded}\n"));
    first.map(|first| (count, first))
}

/// The lines of sequences.
fn lines(outcome: &Outcome) -> impl Iterator<Item = &str> {
    outcome.stdout.lines().filter(|line| line.starts_with("sequence "))
}

impl Sequences {
    pub(crate) fn program(&self, flavour: &str, first: u32, count: u32, env: Variables) -> Program {
        let program = Program::case(&format!("{}-{flavour}", self.case)).env("P2PSIM_DEVICES", "4");
        // Batches that are refused while a stream is captured are to be refused preloaded too.
        let program = program.env("P2PSHIM_CAPTURE", "forward").arg(first.to_string()).arg(count.to_string());
        env.iter().fold(program, |program, (name, value)| program.env(name, *value))
    }

    /// The command that shows it again, and the first step that differs: of the sequence alone, or else of its whole process.
    fn story(&self, flavour: &str, block: u32, seed: u32, env: Variables) -> String {
        let variables: String = env.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        let mut story = String::new();
        for (first, count) in [(seed, 1), (block, seed - block + 1)] {
            let program = self.program(flavour, first, count, env).arg("steps");
            let (plain, preloaded) = (program.plain(), program.preloaded());
            let command = format!("{variables}{}-{flavour} {first} {count} steps", self.case);
            match difference(&plain.stdout, &preloaded.stdout) {
                Some((_, lines)) => return format!("{story}  `{command}`:\n{lines}"),
                None => story += &format!("  `{command}` ended well\n"),
            }
        }
        story
    }

    /// Runs sequences plain and preloaded, and tells of those that differ; else what the program printed.
    fn compare_block(&self, flavour: &str, first: u32, count: u32, env: Variables) -> Result<String, String> {
        let program = self.program(flavour, first, count, env);
        let (plain, preloaded) = (program.plain(), program.preloaded());
        plain.assert_success();
        assert_eq!(lines(&plain).count(), count as usize);
        assert!(!plain.stdout.contains("WRONG"), "plain, from {first}: {}", plain.stdout);
        let seeds = lines(&plain).zip(lines(&preloaded)).zip(first..);
        let differ: Vec<u32> =
            seeds.filter(|((plain, preloaded), _)| plain != preloaded).map(|(_, seed)| seed).collect();
        let is_whole = preloaded.stdout.lines().count() == plain.stdout.lines().count();
        let Some(seed) = differ.first() else {
            let told = preloaded.stderr.lines().take(5).collect::<Vec<_>>().join("\n");
            let ended = format!(
                "from {first}: preloaded {}, {} sequences\n{told}",
                preloaded.status,
                lines(&preloaded).count()
            );
            let is_same = is_whole && preloaded.status == plain.status;
            return if is_same { quiet(&preloaded, env, first).map(|()| plain.stdout) } else { Err(ended) };
        };
        Err(format!("sequences {differ:?} differ, {env:?}\n{}", self.story(flavour, first, *seed, env)))
    }

    /// The sequences from `first` on, a twentieth of `count`, or all in `make soak`; what their processes of at most [`BLOCK`] print.
    pub(crate) fn assert_same(&self, flavour: &str, first: u32, count: u32, env: Variables) -> Vec<String> {
        let (first, count) = few_seeds(first, count);
        let step = BLOCK as usize;
        let blocks: VecDeque<u32> = (first..first + count).step_by(step).collect();
        let (blocks, done) = (Mutex::new(blocks), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            for _ in 0..AT_A_TIME {
                scope.spawn(|| {
                    loop {
                        let Some(block) = blocks.lock().unwrap().pop_front() else { return };
                        let count = BLOCK.min(first + count - block);
                        let compared = self.compare_block(flavour, block, count, env);
                        done.lock().unwrap().push(compared);
                    }
                });
            }
        });
        let (same, differ): (Vec<_>, Vec<_>) = done.into_inner().unwrap().into_iter().partition(Result::is_ok);
        let failures: Vec<_> = differ.into_iter().filter_map(Result::err).collect();
        assert!(failures.is_empty(), "{} processes differ:\n{}", failures.len(), failures.join("\n"));
        same.into_iter().flatten().collect()
    }
}

/// Where nothing is wrong with the machine there is nothing to warn of, but that a busy one may take direct copies to be
/// slow.
fn quiet(preloaded: &Outcome, env: Variables, first: u32) -> Result<(), String> {
    let warnings = warnings(preloaded);
    // Or that another thread destroys a pool while it is looked at.
    let expected = [" slower than ", " the driver returned CUDA_ERROR_INVALID_VALUE (1). "];
    let is_unexpected = |line: &&&String| !expected.iter().any(|text| line.contains(text));
    let unexpected: Vec<_> = warnings.iter().filter(is_unexpected).collect();
    if unexpected.is_empty() { Ok(()) } else { Err(format!("from {first}, {env:?}: {unexpected:#?}")) }
}
