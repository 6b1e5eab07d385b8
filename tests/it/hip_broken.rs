//! HIP where the path between two devices is broken, on simulated GPUs of three releases: a pair is verified before the program's own
//! enabling, and before ours.

use std::fs;
use std::thread;

use crate::support::{Outcome, Program, Scratch, command, path, virtual_machine};

const RELEASES: [&str; 3] = ["5", "6", "7"];
/// Each is found by a quick verification, whatever becomes of copies that HIP stages.
const FAULTS: [&str; 5] = ["drop:0-1", "drop:1>0", "corrupt:0>1", "hang:0-1", "both:0-1"];

fn program(release: &str, what: &str, fault: &str) -> Program {
    let program = Program::case(&format!("hip_broken-{release}")).arg(what).findings_apart();
    program.env("P2PSIM_DEVICES", "3").env("P2PSIM_FAULT", fault)
}

/// The lines that begin so, without that.
fn lines<'a>(outcome: &'a Outcome, start: &str) -> Vec<&'a str> {
    outcome.stdout.lines().filter_map(|line| line.strip_prefix(start)).collect()
}

/// The warnings about a pair.
fn said(outcome: &Outcome) -> Vec<&str> {
    outcome.lines.iter().map(String::as_str).filter(|line| line.contains(" warn: peer access ")).collect()
}

fn rules(outcome: &Outcome) -> Vec<&str> {
    outcome.findings.iter().map(|finding| finding.rule.as_str()).filter(|rule| rule.starts_with("P2P-data-")).collect()
}

/// As devices without a path do it.
fn assert_refused(outcome: &Outcome, what: &str) {
    outcome.assert_success();
    let device = |line: &&str| line.ends_with("device 0") || line.ends_with("device 1");
    for start in ["enable ", "disable "] {
        let got = lines(outcome, start);
        assert!(
            !got.is_empty() && got.iter().all(|line| line.contains(": 101, last 101, device ")),
            "{what}: {outcome:#?}"
        );
        assert!(got.iter().all(device));
    }
    let can: Vec<&str> = outcome.stdout.lines().filter(|line| line.contains(" can access ")).collect();
    assert!(can[can.len() - 2..].iter().all(|line| line.ends_with(": 0, attributes 0 0, rank 4")), "{what}: {can:?}");
    assert_eq!(lines(outcome, "kernels reach: "), ["0 0"], "{what}");
}

#[test]
fn healthy_pair_is_verified_and_nothing_shows() {
    for release in RELEASES {
        for what in ["enables", "copies", "pending", "resets"] {
            for option in [("P2PSHIM_ACCESS", "auto"), ("P2PSHIM_ACCESS", "app"), ("P2PSHIM_BROKEN", "warn")] {
                let program = program(release, what, "").env(option.0, option.1);
                let outcome = program.preloaded();
                outcome.assert_same_as(&program.plain(), &format!("HIP {release}, {what}, {option:?}"));
                assert!(said(&outcome).is_empty() && rules(&outcome).is_empty(), "{outcome:#?}");
            }
        }
        let outcome = program(release, "resets", "").env("P2PSHIM_LOG", "info").preloaded();
        for pair in ["0-1", "0-2"] {
            let line = format!("peer access {pair}: verified: data arrives in both directions (HIP)");
            assert_eq!(outcome.lines.iter().filter(|said| said.contains(&line)).count(), 1, "{:#?}", outcome.lines);
        }
    }
}

#[test]
fn broken_pair_is_refused_and_said_once() {
    for release in RELEASES {
        for fault in FAULTS {
            for access in ["auto", "app"] {
                let outcome = program(release, "enables", fault).env("P2PSHIM_ACCESS", access).preloaded();
                let what = format!("HIP {release}, {fault}, {access}");
                assert_refused(&outcome, &what);
                let [line] = said(&outcome)[..] else { panic!("{what}: {:#?}", outcome.lines) };
                // Bytes that are changed did arrive.
                let cause = match fault.split(':').next() {
                    Some("hang") => "did not complete within 200ms",
                    Some("corrupt") => "data arrives wrong: ",
                    _ => "data does not arrive: ",
                };
                for part in [cause, "is told that there is none", "does not stage them", "ikely cause: "] {
                    assert!(line.contains(part), "{what}: no {part}: {line}");
                }
                assert!(!line.contains("go through the host"), "{line}");
                // Its copies take that path whatever it is told.
                assert_eq!(rules(&outcome).first(), Some(&"P2P-data-blocked"), "{what}: {:#?}", outcome.findings);
            }
        }
    }
}

#[test]
fn broken_pair_is_not_enabled_by_us_and_refused_from_then_on() {
    for release in RELEASES {
        for fault in ["drop:0-1", "hang:0-1"] {
            let outcome = program(release, "copies", fault).preloaded();
            assert_refused(&outcome, fault);
            let [line] = said(&outcome)[..] else { panic!("{:#?}", outcome.lines) };
            assert!(line.contains("p2pshim enables no peer access between them"), "{line}");
            let [finding, ..] = &outcome.findings[..] else { panic!("{outcome:#?}") };
            assert_eq!(finding.rule, "P2P-data-blocked");
            assert!(finding.text.contains("p2pshim does not stage them"), "{}", finding.text);
        }
        let app = program(release, "copies", "drop:0-1").env("P2PSHIM_ACCESS", "app").preloaded();
        assert_refused(&app, "app: what the program asks for");
    }
}

/// Nothing is verified for a question: until it enables, the program sees what HIP says.
#[test]
fn question_before_anything_is_known_is_hips() {
    let outcome = program("7", "enables", "drop:0-1").preloaded();
    assert!(outcome.stdout.starts_with("0 can access 1: 1, attributes 1 1, rank 4\nenable 0 > 1: 101"), "{outcome:#?}");
}

#[test]
fn probe_off_verifies_nothing() {
    for release in RELEASES {
        for what in ["enables", "copies"] {
            let program = program(release, what, "drop:0-1").env("P2PSHIM_VERIFY", "off");
            let outcome = program.preloaded();
            outcome.assert_same_as(&program.plain(), "P2PSHIM_VERIFY=off");
            assert!(said(&outcome).is_empty() && rules(&outcome).is_empty(), "{outcome:#?}");
        }
    }
}

#[test]
fn broken_warn_forwards_and_warns() {
    for release in RELEASES {
        for (fault, word) in [("drop:0-1", "WRONG"), ("hang:0-1", "hangs")] {
            let program = program(release, "enables", fault).env("P2PSHIM_BROKEN", "warn");
            let outcome = program.preloaded();
            outcome.assert_same_as(&program.plain(), "P2PSHIM_BROKEN=warn");
            assert_eq!(lines(&outcome, "copy 0 > 1: "), [word]);
            let [line] = said(&outcome)[..] else { panic!("{:#?}", outcome.lines) };
            assert!(line.contains("The program gets the peer access that it asks for"), "{line}");
            assert_eq!(rules(&outcome).first(), Some(&"P2P-data-blocked"), "{:#?}", outcome.findings);
        }
    }
}

/// From 7.0 on an error stays until the program asks for it, and nothing is verified; before, its next call overwrites it.
#[test]
fn pending_error_keeps_a_pair_from_being_verified_only_where_it_would_be_lost() {
    for release in RELEASES {
        let program = program(release, "pending", "drop:0-1").env("P2PSHIM_ACCESS", "app");
        let (plain, outcome) = (program.plain(), program.preloaded());
        let first = |outcome: &Outcome| lines(outcome, "enable 0 > 1: ")[0].to_owned();
        let expected = if release == "7" { "0, last 101, device 0" } else { "101, last 101, device 0" };
        assert_eq!(first(&outcome), expected, "HIP {release}");
        assert_eq!(first(&plain), if release == "7" { expected } else { "0, last 0, device 0" });
        // Then it has been cleared.
        assert_eq!(lines(&outcome, "enable 1 > 0: ")[0], "101, last 101, device 1", "HIP {release}");
        // The program keeps the access that it has.
        let disabled = if release == "7" { "0, last 0, device 0" } else { "101, last 101, device 0" };
        assert_eq!(lines(&outcome, "disable 0 > 1: ")[0], disabled, "HIP {release}");
    }
}

/// A pair that cannot be decided is left to the program, and not enabled by us.
#[test]
fn undecided_pair_is_left_to_the_program() {
    let functions = ["hipMalloc", "hipHostMalloc", "hipStreamCreateWithFlags", "hipStreamQuery", "hipMemcpyAsync"];
    for release in RELEASES {
        for function in functions {
            let fault = format!("drop:0-1,code:{function}:302@1");
            // It enables access before it takes memory.
            let program = || program(release, "enables", &fault).env("P2PSHIM_LOG", "info");
            let (plain, outcome) = (program().plain(), program().preloaded());
            assert_eq!((&outcome.stdout, &outcome.status), (&plain.stdout, &plain.status), "HIP {release}, {function}");
            assert!(said(&outcome).is_empty(), "HIP {release}, {function}: {:#?}", outcome.lines);
            let is_it = |line: &&String| line.contains("could not be verified (HIP): HIP returned ");
            assert_eq!(outcome.lines.iter().filter(is_it).count(), 1, "{function}: {:#?}", outcome.lines);
        }
    }
}

/// A time-out is no proof of a broken path; wrong bytes are, at once.
#[test]
fn path_that_was_late_is_refused_for_now_and_used_later() {
    // Far more than a verification waits: a copy that has ended by then was held up by something else, and the devices pass for busy.
    for fault in ["stall:0>1:2000ms", "stall:0-1:2000ms@3"] {
        thread::scope(|scope| RELEASES.map(|release| scope.spawn(move || assert_late(release, fault))).map(join));
    }
    for release in RELEASES {
        let outcome = program(release, "enables", "first:0>1").preloaded();
        assert_eq!(lines(&outcome, "enable 0 > 1: ")[0], "101, last 101, device 0");
        assert!(said(&outcome).len() == 1 && said(&outcome)[0].contains(" bytes copied from "), "{outcome:#?}");
    }
}

fn join(thread: thread::ScopedJoinHandle<()>) {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn assert_late(release: &str, fault: &str) {
    // Where the machine has no time for copies through the host, the devices pass for busy, too.
    let run = || program(release, "late", fault).env("P2PSHIM_LOG", "info").preloaded();
    let is_busy = |outcome: &Outcome| outcome.lines.iter().any(|line| line.contains("the devices are busy"));
    let outcome = std::iter::repeat_with(run).take(50).find(|outcome| !is_busy(outcome));
    let outcome = outcome.unwrap_or_else(|| panic!("HIP {release}, {fault}: the devices were busy each time"));
    assert_eq!(outcome.stdout, "first: 101\nthen: 0\ncopy 0 > 1: right\n", "{outcome:#?}");
    let said = said(&outcome);
    assert!(said.len() == 1 && said[0].contains(". p2pshim verifies it again later, "), "{said:#?}");
}

/// As on real GPUs: what simulated ones did holds for their faults.
#[test]
fn verdict_is_kept_and_counts_in_the_next_process() {
    for (fault, is_right) in [("", true), ("drop:0-1", false)] {
        let cache = Scratch::new("cache");
        let here = |fault: &str| {
            let program = program("7", "enables", fault).env("XDG_CACHE_HOME", cache.to_string_lossy());
            program.env("P2PSIM_ROOT", "/nonexistent").env("P2PSHIM_LOG", "info")
        };
        here(fault).preloaded().assert_success();
        assert_eq!(fs::read_dir(cache.join("p2pshim")).unwrap().count(), 2, "one for each direction");
        // By the verdict, whatever there is now.
        let other = if is_right { "drop:0-1" } else { "" };
        let outcome = here(other).preloaded();
        if is_right {
            outcome.assert_same_as(&here(other).plain(), "a verdict that data arrives");
        } else {
            assert_refused(&outcome, "a verdict that it does not");
            assert!(outcome.stdout.starts_with("0 can access 1: 0, attributes 0 0, rank 4\n"), "{outcome:#?}");
            let [line] = said(&outcome)[..] else { panic!("{:#?}", outcome.lines) };
            assert!(line.contains("an earlier check failed: copies: data does not arrive: "), "{line}");
            let forget = Program::new(command()).arg("doctor").arg("--forget");
            forget.env("XDG_CACHE_HOME", cache.to_string_lossy()).plain().assert_success();
            here(other).preloaded().assert_same_as(&here(other).plain(), "forgotten");
        }
        fs::remove_dir_all(cache).unwrap();
    }
    let cache = Scratch::new("cache");
    for (fault, is_refused) in [("drop:0-1", true), ("", false), ("drop:0-1", true)] {
        let program = program("7", "enables", fault).env("XDG_CACHE_HOME", cache.to_string_lossy());
        let outcome = program.env("P2PSHIM_LOG", "info").preloaded();
        assert_eq!(said(&outcome).iter().any(|line| line.contains("data does not arrive")), is_refused, "{outcome:#?}");
    }
}

/// A copy that hangs would hang a program that makes none. A link that does atomic operations itself is no such risk, as the simulated
/// ones are: without that they are.
#[test]
fn where_a_copy_may_hang_the_program_gets_what_it_asks_for() {
    let machine = Scratch::new("machine");
    virtual_machine(&machine);
    for (fault, is_refused) in [("drop:0-1,code:hipDeviceGetP2PAttribute:1@1", false), ("drop:0-1", true)] {
        let program = Program::case("hip_guide-7").findings_apart().env("P2PSIM_ROOT", machine.to_string_lossy());
        let outcome = program.env("P2PSIM_FAULT", fault).env("XDG_CACHE_HOME", "/dev/null").preloaded();
        let [line] = said(&outcome)[..] else { panic!("{fault}: {:#?}", outcome.lines) };
        let expected = if is_refused {
            "this is a virtual machine (QEMU): the host's"
        } else {
            "not verified (HIP): this is a virtual"
        };
        assert!(line.contains(expected), "{fault}: {line}");
    }
}

/// No option of p2pshim would change the path of HIP's copies.
#[test]
fn run_report_names_what_was_copied_there_and_promises_no_staging() {
    let program = path("target/c-tests/hip_broken-7").to_string_lossy().into_owned();
    let run = Program::new(command())
        .arg("run")
        .arg("--no-check")
        .arg("--")
        .arg(program)
        .arg("copies")
        .libraries("target/sim/lib");
    let outcome = run.env("P2PSIM_DEVICES", "3").env("P2PSIM_FAULT", "drop:0-1").findings_apart().plain();
    let report = [outcome.stdout, outcome.stderr].concat();
    for part in [
        "Data may be WRONG: 196.6 kB",
        "No option changes the path of HIP's copies",
        "direct: broken or denied, and could not be staged",
    ] {
        assert!(report.contains(part), "no {part}: {report}");
    }
    assert!(!report.contains("send its copies through the host"), "{report}");
}
