//! Calls on small stacks: of threads, which may have 16 KiB, and of signal handlers.

use crate::support::{Outcome, Program};

type Variables = &'static [(&'static str, &'static str)];

/// Bytes of a stack that a call may take besides what it takes without p2pshim.
const MOST_BESIDES: u64 = 4096;

/// What a program of calls on stacks of so many KiB says: `first`, `later`, and how a copy goes then.
fn depths(program: &Program, stack: &str, run: impl FnOnce(&Program) -> Outcome) -> (Vec<(String, u64)>, String) {
    // The dynamic linker takes much stack where it looks for a function at its first call.
    let outcome = run(&program.clone().arg(stack).env("LD_BIND_NOW", "1"));
    outcome.assert_success();
    let (depths, then): (Vec<&str>, Vec<&str>) = outcome.stdout.lines().partition(|line| !line.starts_with("then "));
    let depth = |line: &str| {
        let (name, depth) = line.split_once(' ').unwrap();
        (name.to_owned(), depth.parse().unwrap())
    };
    (depths.into_iter().map(depth).collect(), then.concat())
}

/// What is done once is left to a copy with more room: a verification, memory for staging, messages about them.
#[test]
fn copies_on_small_stacks_take_little_and_end_as_without() {
    const CASES: [(Variables, &str); 3] = [
        (&[], "then direct"),
        (&[("P2PSIM_NO_P2P", "0-1")], "then not direct"),
        (&[("P2PSIM_FAULT", "drop:0-1")], "then not direct"),
    ];
    for what in ["async", "batch", "graph"] {
        let program = Program::case("stack_depth").args(&[what, "16777216"]).findings_apart();
        let (plain, _) = depths(&program, "48", Program::plain);
        for (environment, then) in CASES {
            let program = environment.iter().fold(program.clone(), |program, (name, value)| program.env(name, *value));
            for stack in ["16", "48"] {
                let (own, went) = depths(&program, stack, Program::preloaded);
                let which = format!("{what}, {environment:?}, stack of {stack} KiB");
                // A graph keeps the path of its instantiation.
                assert!(what == "graph" || went == then, "{which}: {went}");
                for ((name, own), (_, plain)) in own.iter().zip(&plain) {
                    assert!(*own <= plain + MOST_BESIDES, "{which}: {name} {own}, {plain} without");
                }
            }
        }
    }
}
