//! Calls on small stacks: of threads, which may have 16 KiB, and of signal handlers.
//!
//! `cargo test --test it stack_depth -- --nocapture` prints how much each takes. `run.sh stack_depth` does so on real GPUs.

use std::collections::BTreeMap;
use std::fs;

use crate::support::soak::{Draw, soak};
use crate::support::{Outcome, Program, Scratch};

/// Bytes of a stack that a call may take besides what it takes without p2pshim, those of the simulated driver's calls that p2pshim makes among them.
const MOST_BESIDES: i64 = 5120;
/// Work that is done once is left to a copy with so many KiB: a verification, memory for staging, messages about them.
const ROOM: u64 = 64;

/// The output of a program of calls on stacks of so many KiB: how much the first take, and later ones; and how a copy goes then.
fn depths(
    program: &Program,
    [stack, before]: [&str; 2],
    run: impl FnOnce(&Program) -> Outcome,
) -> (BTreeMap<String, i64>, String) {
    // The dynamic linker takes much stack where it looks for a function at its first call.
    let outcome = run(&program.clone().args(&[stack, before]).env("LD_BIND_NOW", "1"));
    outcome.assert_success();
    let (depths, then): (Vec<&str>, Vec<&str>) = outcome.stdout.lines().partition(|line| !line.starts_with("then "));
    let depth = |line: &str| {
        let (name, depth) = line.split_once(' ').unwrap();
        (name.to_owned(), depth.parse().unwrap())
    };
    (depths.into_iter().map(depth).collect(), then.concat().trim_start_matches("then ").to_owned())
}

/// The figures without p2pshim, at most of some runs: they are not always as much. They are the same on each stack.
fn plainly(program: &Program) -> BTreeMap<String, i64> {
    const RUNS: usize = 3;
    let mut most = BTreeMap::new();
    for (which, depth) in (0..RUNS).flat_map(|_| depths(program, ["256", ""], Program::plain).0) {
        most.entry(which).and_modify(|most: &mut i64| *most = depth.max(*most)).or_insert(depth);
    }
    most
}

/// How many bytes are copied: p2pshim stages no fewer than 8 MiB, and fewer take less time.
fn bytes(options: &str) -> &'static str {
    let is_direct = ["DENY", "FAULT", "NO_P2P", "ACCESS"].iter().all(|word| !options.contains(word));
    if is_direct { "2097152" } else { "8388608" }
}

/// The stacks on which a path is measured, in KiB: one without room for work that is done once, nearly always the smallest, and one with room.
fn stacks(draw: &mut Draw) -> Vec<u64> {
    const OFTEN: usize = 4;
    if soak().is_some() {
        return vec![16, 48, 256];
    }
    vec![if draw.below(OFTEN) == 0 { 48 } else { 16 }, 256]
}

/// Each path takes little more of a stack than without p2pshim.
#[test]
fn stack_depth_of_threads() {
    let (mut plain, mut wrong, mut draw) = (BTreeMap::new(), Vec::new(), Draw::of("stacks"));
    for line in fs::read_to_string("c-tests/stacks.tsv").unwrap().lines().filter(|line| !line.starts_with('#')).skip(1)
    {
        let [path, call, before, options, then] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let program = Program::case("stack_depth-12").args(&[call, bytes(options)]).findings_apart();
        let plain = &*plain.entry(call).or_insert_with(|| plainly(&program));
        for stack in stacks(&mut draw) {
            let folder = Scratch::new("traces");
            let options = options.replace("FOLDER", &folder.to_string_lossy());
            let options = options.split_whitespace().map(|option| option.split_once('=').unwrap());
            let program = options.fold(program.clone(), |program, (name, value)| program.env(name, value));
            let (own, went) = depths(&program, [&*stack.to_string(), before], Program::preloaded);
            for (which, own) in &own {
                let besides = own - plain[which];
                let line =
                    format!("{path}, {call}, {which}, on {stack} KiB: {} plain, {own}, {besides:+}", plain[which]);
                println!("{line}");
                // On a large stack something is made for the first time.
                if besides > MOST_BESIDES && (stack < ROOM || which == "later") {
                    wrong.push(line);
                }
            }
            if !then.is_empty() && went != then {
                wrong.push(format!("{path}, {call}, on {stack} KiB: then {went}"));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}
