//! A few rounds of `make gauntlet`, or ten minutes of them: c-tests/gpu/gauntlet.py says what they are. The driver at once, by programs drawn from
//! seeds, is as without p2pshim; all bytes are right, nothing grows, and a trace has each copy.

use crate::support::Program;
use crate::support::soak::soak;

/// As many as option sets, so that each has its round.
const ROUNDS: &str = "11";

#[test]
fn programs_drawn_from_seeds_are_as_without_p2pshim() {
    let rounds = Program::new("c-tests/gpu/gauntlet.py").args(&["--kept", "--jobs", "3"]);
    let outcome = match soak() {
        Some(seed) => rounds.args(&["--minutes", "10", "--seed", &seed.to_string()]),
        None => rounds.args(&["--brief", "--rounds", ROUNDS, "--seed", "1"]),
    };
    let outcome = outcome.plain();
    assert_eq!(outcome.status, "exit status: 0", "{}{}", outcome.stdout, outcome.stderr);
}

/// All of them with `make soak`, and otherwise those that take a few seconds.
#[test]
fn models_of_what_threads_share_hold() {
    let outcome = Program::new("tests/models.py").arg(if soak().is_some() { "none" } else { "few" }).plain();
    assert_eq!(outcome.status, "exit status: 0", "{}{}", outcome.stdout, outcome.stderr);
    assert!(outcome.stdout.contains(" models hold: "), "{}", outcome.stdout);
}

/// `make gauntlet-faults` and `make models` change these places.
#[test]
fn faults_that_the_gauntlet_and_the_models_are_to_find_have_their_places() {
    for faults in ["tests/gauntlet_faults.py", "tests/models.py"] {
        let checked = Program::new(faults).arg("--check").plain();
        assert_eq!(checked.status, "exit status: 0", "{faults}: {}", checked.stderr);
    }
}
