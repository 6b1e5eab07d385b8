//! Copies that p2pshim stages, on simulated GPUs without a path: same bytes and order as the driver's, and nobody waits.

use std::fs;
use std::path::PathBuf;

use crate::support::sequences::{Sequences, Variables};
use crate::support::soak::few_seeds;
use crate::support::{Outcome, Program, command, doctor, path, scratch};

const STAGED: Sequences = Sequences { case: "staged_copies" };
const NO_PATH: (&str, &str) = ("P2PSIM_NO_P2P", "0-1");
const ALWAYS: (&str, &str) = ("P2PSHIM_STAGING", "always");

fn program(what: &str, env: Variables) -> Program {
    let program = Program::case("staged_copies-12").env(NO_PATH.0, NO_PATH.1).arg(what);
    env.iter().fold(program, |program, (name, value)| program.env(name, *value))
}

/// How many calls the log says p2pshim has staged.
fn staged(outcome: &Outcome) -> usize {
    outcome.lines.iter().filter(|line| line.contains("staged by p2pshim")).count()
}

#[test]
fn random_sequences_that_are_staged_are_the_same() {
    STAGED.assert_same("12", 0, 200, &[NO_PATH, ALWAYS]);
}

#[test]
fn random_sequences_with_each_runtime_are_the_same() {
    for (number, flavour) in ["11", "13", "static"].into_iter().enumerate() {
        STAGED.assert_same(flavour, 10_000 + number as u32 * 1000, 40, &[NO_PATH, ALWAYS]);
    }
}

#[test]
fn random_sequences_of_pairs_that_are_hidden_or_denied_are_the_same() {
    for (number, option) in [("P2PSHIM_ACCESS", "off"), ("P2PSHIM_DENY", "0-1")].into_iter().enumerate() {
        STAGED.assert_same("12", 20_000 + number as u32 * 1000, 50, &[option, ALWAYS]);
    }
}

#[test]
fn random_sequences_in_turn_or_with_little_memory_are_the_same() {
    let blocking = ("P2PSHIM_STAGING", "blocking");
    STAGED.assert_same("12", 30_000, 40, &[NO_PATH, blocking]);
    for (number, limit) in ["20M", "41M", "0"].into_iter().enumerate() {
        STAGED.assert_same(
            "12",
            31_000 + number as u32 * 1000,
            40,
            &[NO_PATH, ALWAYS, ("P2PSHIM_STAGING_LIMIT", limit)],
        );
    }
}

/// A program that itself enables GPUs between which data is lost has results as on sound ones: whoever stages others.
#[test]
fn random_sequences_of_broken_pairs_that_the_program_enables_are_as_on_sound_ones() {
    for (number, fault) in ["drop:0>1", "corrupt:0-1"].into_iter().enumerate() {
        let (first, count) = few_seeds(50_000 + number as u32 * 1000, 40);
        let program = || STAGED.program("12", first, count, &[("P2PSHIM_BROKEN", "warn")]).arg("enables");
        let sound = program().plain();
        sound.assert_success();
        assert_eq!(sound.stdout.lines().count(), count as usize);
        assert_ne!(program().env("P2PSIM_FAULT", fault).plain().stdout, sound.stdout, "{fault} without p2pshim");
        // Verifying takes page-locked memory four times.
        let without_locked = format!("{fault},code:cuMemHostRegister_v2:2@5");
        for (fault, limit) in [(fault, "256M"), (fault, "0"), (&without_locked, "256M")] {
            let broken = program().env("P2PSIM_FAULT", fault).env("P2PSHIM_STAGING_LIMIT", limit).preloaded();
            assert_eq!(
                (&broken.stdout, &broken.status),
                (&sound.stdout, &sound.status),
                "{fault}, {limit}: {broken:#?}"
            );
            assert!(broken.findings.iter().all(|finding| !finding.rule.starts_with("P2P-data-")), "{broken:#?}");
        }
    }
}

/// Only what the driver would have staged, and only what is large.
#[test]
fn large_copies_are_staged_by_the_shim() {
    let sequences = |count: u32, env: Variables| {
        let program = STAGED.program("12", 40_000, count, env).env("P2PSHIM_LOG", "trace").arg("steps");
        let outcome = program.preloaded();
        outcome.assert_success();
        outcome
    };
    let outcome = sequences(20, &[NO_PATH, ALWAYS]);
    assert!(staged(&outcome) > 20, "{}", outcome.lines.join("\n"));
    for line in outcome.lines.iter().filter(|line| line.contains("staged by p2pshim")) {
        assert!(line.contains("staged (no hardware path)"), "{line}");
        let Some((_, bytes)) = ["count=", "ByteCount="].iter().find_map(|name| line.split_once(name)) else { continue };
        let bytes: String = bytes.chars().take_while(char::is_ascii_digit).collect();
        assert!(bytes.parse::<u64>().unwrap() >= 8 << 20, "{line}");
    }
    for form in ["cuMemcpyPeerAsync", "cuMemcpyAsync", "cuMemcpy2D", "cuMemcpy3DPeer", "cuMemcpyPeer(", "cuMemcpy("] {
        assert!(outcome.lines.iter().any(|line| line.contains("staged by p2pshim") && line.contains(form)), "{form}");
    }
    assert_eq!(
        staged(&sequences(4, &[NO_PATH, ("P2PSHIM_STAGING", "driver")])),
        0,
        "by the driver, if it is asked for"
    );
    assert_eq!(staged(&sequences(4, &[ALWAYS])), 0, "what can be direct is");
    assert_eq!(staged(&sequences(4, &[NO_PATH, ALWAYS, ("P2PSHIM_STAGING_LIMIT", "1M")])), 0, "without memory");
}

/// Has the GPUs checked, and the verdict say that copies of the simulated driver and of p2pshim have so many GB/s: a busy machine would decide
/// otherwise each time. The folder of the verdict.
fn measured([driver, shim]: [&str; 2]) -> PathBuf {
    let folder = scratch("measured");
    let doctor = doctor().args(&["--sim", "2"]).env(NO_PATH.0, NO_PATH.1);
    doctor.env("XDG_CACHE_HOME", folder.to_string_lossy()).plain().assert_success();
    let files = crate::support::verdicts(&folder);
    assert_eq!(files.len(), 2, "{files:?}");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            ["staging", class, links, "driver", _, "p2pshim", _] => {
                format!("staging {class} {links} driver {driver} p2pshim {shim}\n")
            }
            _ => format!("{line}\n"),
        });
        let lines: Vec<String> = lines.collect();
        assert_eq!(lines.iter().filter(|line| line.starts_with("staging ")).count(), 8, "{text}");
        fs::write(&file, lines.concat()).unwrap();
    }
    folder
}

#[test]
fn copies_are_staged_by_whoever_was_measured_to_be_faster() {
    let (ours, theirs) = (measured(["38", "51"]), measured(["38", "37"]));
    for (cache, by_shim, said) in [
        (ours.to_string_lossy(), 30, "p2pshim stages those of 8-16, 16-64, 64-256, 256- MiB on one busy link, 8-16"),
        (theirs.to_string_lossy(), 0, "the driver stages them, as p2pshim doctor has measured"),
        ("/dev/null".into(), 0, "the driver stages them, as p2pshim doctor has not measured which is faster"),
    ] {
        let env = [("P2PSHIM_LOG", "trace"), ("P2PSHIM_STAGING", "auto"), ("XDG_CACHE_HOME", &*cache)];
        let outcome = program("sizes", &env).preloaded();
        outcome.assert_success();
        assert_eq!(staged(&outcome), by_shim, "{said}");
        let lines = outcome.shim.iter().filter(|line| line.contains("large copies through the host: "));
        assert!(matches!(lines.collect::<Vec<_>>()[..], [line] if line.contains(said)), "{said}: {:#?}", outcome.shim);
    }
    [ours, theirs].iter().for_each(|folder| fs::remove_dir_all(folder).unwrap());
}

/// Where the driver is slow, the check finds that p2pshim is faster.
#[test]
fn check_before_a_program_measures_who_is_faster_where_there_is_no_path() {
    let folder = scratch("measured");
    let run = Program::new(command()).args(&["run", "--sim", "2", "--no-report", "--"]);
    let run = run.arg(path("target/c-tests/staged_copies-12").to_string_lossy()).arg("sizes");
    let run = run.env(NO_PATH.0, NO_PATH.1).env("P2PSIM_STAGING_SPEED", "50").env("P2PSHIM_LOG", "trace");
    let outcome = run.env("XDG_CACHE_HOME", folder.to_string_lossy()).plain();
    outcome.assert_success();
    assert_eq!(staged(&outcome), 30, "{:#?}", outcome.shim);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn random_sequences_that_are_staged_as_was_measured_are_the_same() {
    let folder = measured(["38", "51"]);
    let cache = ("XDG_CACHE_HOME", &*folder.to_string_lossy());
    let auto = ("P2PSHIM_STAGING", "auto");
    STAGED.assert_same("12", 60_000, 100, &[NO_PATH, cache, auto]);
    STAGED.assert_same("12", 61_000, 40, &[NO_PATH, cache, auto, ("P2PSHIM_READBACK", "sample")]);
    STAGED.assert_same("12", 62_000, 40, &[NO_PATH, cache, auto, ("P2PSHIM_STAGING_LIMIT", "1M")]);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn call_waits_for_its_copy_only_if_it_is_told_to() {
    for (value, what) in [("always", "the call returned at once"), ("blocking", "the call waited for the copy")] {
        let outcome = program("time", &[("P2PSHIM_STAGING", value)]).preloaded();
        outcome.assert_success();
        assert_eq!(outcome.stdout, format!("{what}\ndata is right\n"), "{value}");
    }
}

/// Small copies of the same memory on the same stream, which the driver stages, do not make large ones the driver's.
#[test]
fn large_copies_behind_small_ones_are_staged_by_the_shim() {
    let outcome = program("sizes", &[ALWAYS, ("P2PSHIM_LOG", "trace")]).preloaded();
    outcome.assert_success();
    assert_eq!(staged(&outcome), 30, "{}", outcome.lines.join("\n"));
}

/// A stream in which memory is freed waits for the copy, but not for others behind it; who unmaps it waits, too.
#[test]
fn memory_that_is_freed_or_unmapped_early_is_copied_before() {
    for (what, copies) in [("free", 10), ("behind", 20), ("unmap", 10)] {
        for option in [NO_PATH, ("P2PSHIM_ACCESS", "off")] {
            let program = Program::case("freed_early").arg(what).env(option.0, option.1);
            let outcome = program.env(ALWAYS.0, ALWAYS.1).env("P2PSHIM_LOG", "trace").preloaded();
            outcome.assert_success();
            assert_eq!(outcome.stdout, "0 of 10 copies wrong\n", "{what} {option:?}");
            assert_eq!(staged(&outcome), copies, "{what} {option:?}");
            let said = outcome.shim.iter().filter(|line| line.contains("another stream frees memory")).count();
            assert_eq!(said, usize::from(what != "unmap"), "{:#?}", outcome.shim);
        }
    }
}

#[test]
fn device_that_is_reset_takes_no_copy_along() {
    let outcome = program("ends", &[ALWAYS, ("P2PSHIM_LOG", "trace")]).preloaded();
    outcome.assert_success();
    assert_eq!(outcome.stdout, "all data is right\n");
    assert_eq!(staged(&outcome), 20, "memory of rings that are gone is used again: {}", outcome.lines.join("\n"));
}

/// Staged because the pair is broken, and the program has access all the same.
#[test]
fn many_copies_and_many_contexts_leave_nothing_behind() {
    let broken = [("P2PSIM_FAULT", "drop:0-1"), ("P2PSHIM_BROKEN", "warn"), ALWAYS];
    let program = Program::case("staged_copies-12").args(&["many", "100000", "1000"]).findings_apart();
    let outcome = broken.iter().fold(program, |program, (name, value)| program.env(name, *value)).preloaded();
    outcome.assert_success();
    for (what, line) in ["copies", "resets"].into_iter().zip(outcome.stdout.lines()) {
        let numbers: Vec<i64> = line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
        assert!(line.starts_with(what), "{line}");
        assert!(matches!(numbers[..], [0, resident, locked] if resident < 16 && locked < 16), "{line}");
    }
}

/// An error of the driver's that is over by the next copy costs that one copy its staging, and no other pair's.
#[test]
fn ring_that_could_not_be_made_once_is_made_for_the_next_copy() {
    let once = ("P2PSIM_FAULT", "code:cuEventCreate:2@1,code:cuEventCreate:0@2");
    let run = |program: Program| {
        let outcome = program.env(once.0, once.1).env(ALWAYS.0, ALWAYS.1).env("P2PSHIM_LOG", "trace").preloaded();
        outcome.assert_success();
        outcome
    };
    let outcome = run(Program::case("freed_early").arg("free").env(NO_PATH.0, NO_PATH.1));
    assert_eq!((&*outcome.stdout, staged(&outcome)), ("0 of 10 copies wrong\n", 9), "{:#?}", outcome.shim);
    let said = outcome.shim.iter().filter(|line| line.contains("no page-locked memory")).count();
    assert_eq!(said, 1, "{:#?}", outcome.shim);
}

/// A call that waits for room in a queue of the driver lets signals arrive, as the driver's own does, and may be left by a handler.
#[test]
fn call_that_waits_for_a_full_queue_lets_handlers_run() {
    for what in ["opens", "leaves"] {
        let program = Program::case("full_queue").arg(what).env(NO_PATH.0, NO_PATH.1).env(ALWAYS.0, ALWAYS.1);
        let outcome = program.env("P2PSIM_QUEUE", "1000").env("P2PSHIM_LOG", "trace").preloaded();
        outcome.assert_success();
        assert_eq!(outcome.stdout, "the handler ran, 0 bytes wrong\n", "{what}");
        assert!(staged(&outcome) > 60, "{what}: {}", staged(&outcome));
    }
}

/// Signals arrive where the program's own stream is full, whichever of what a copy gives it finds no room: the copy itself, events before and behind
/// it, or its waits.
#[test]
fn call_whose_own_stream_is_full_lets_handlers_run() {
    const QUEUE: usize = 1000;
    /// A copy gives its stream no more than so much.
    const MOST: usize = 5;
    for what in ["opens", "leaves"] {
        for left in 1..=MOST {
            let program = Program::case("full_queue").args(&[what, &(QUEUE - left).to_string()]).findings_apart();
            let program = program.env("P2PSIM_QUEUE", QUEUE.to_string());
            let traces = scratch("traces");
            let timed = program.clone().env("P2PSHIM_TRACE", traces.to_string_lossy()).env("P2PSHIM_GPU_TIMING", "all");
            let staged = program.clone().env(NO_PATH.0, NO_PATH.1);
            let (by_driver, always) = (staged.clone(), staged.env(ALWAYS.0, ALWAYS.1));
            for (how, program) in
                [("direct", program), ("timed", timed), ("by the driver", by_driver), ("staged", always)]
            {
                let outcome = program.preloaded();
                outcome.assert_success();
                assert_eq!(outcome.stdout, "the handler ran, 0 bytes wrong\n", "{how}, {what}, room for {left}");
            }
            fs::remove_dir_all(&traces).unwrap();
        }
    }
}

/// A synchronous peer copy is ordered with the current context, too, which may be of a third device.
#[test]
fn copy_of_others_is_ordered_with_the_current_device() {
    for (what, pairs) in [("", "0-1"), ("context", "0-1")] {
        let program = || Program::case("third_device").arg(what).env("P2PSIM_DEVICES", "3").env("P2PSIM_NO_P2P", pairs);
        let plain = program().plain();
        plain.assert_success();
        assert!(plain.stdout.lines().count() == 12 && !plain.stdout.contains("does not"), "{}", plain.stdout);
        let outcome = program().env(ALWAYS.0, ALWAYS.1).env("P2PSHIM_LOG", "trace").preloaded();
        outcome.assert_success();
        assert_eq!(outcome.stdout, plain.stdout, "{what}");
        assert_eq!(staged(&outcome), 12, "{what}");
    }
}

/// A source that the program may overwrite as soon as the call has returned is not read later, by whoever stages; and CUDA's refusals stay.
#[test]
fn attributes_of_a_copy_are_obeyed() {
    let program = || Program::case("copy_attributes").args(&["4096", "16777216"]).env(NO_PATH.0, NO_PATH.1);
    let plain = program().plain();
    plain.assert_success();
    let held = |what: &str| plain.stdout.matches(what).count();
    assert_eq!(
        (held("during_call: CUDA_SUCCESS, what the source held during the call"), held("INVALID_VALUE, nothing")),
        (4, 14)
    );
    let staged_here = program().env(ALWAYS.0, ALWAYS.1).env("P2PSHIM_LOG", "trace").preloaded();
    assert_eq!(staged_here.stdout, plain.stdout, "{staged_here:#?}");
    // The large ones that may be read later are staged, in four forms; a line says so of each.
    assert_eq!(staged(&staged_here), 4, "{:#?}", staged_here.lines);
    let read_back = program().env("P2PSHIM_READBACK", "all").preloaded();
    assert_eq!(read_back.stdout, plain.stdout, "{read_back:#?}");
    assert!(
        read_back.findings.iter().all(|finding| !finding.rule.starts_with("P2P-data-")),
        "{:#?}",
        read_back.findings
    );
}
