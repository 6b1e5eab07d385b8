//! Copies of the program that are read back (`P2PSHIM_READBACK`): wrong data is found, right data never is, and the program notices
//! nothing.

use crate::support::sequences::{Sequences, Variables, difference};
use crate::support::soak::few_seeds;
use crate::support::{Outcome, Program};

const VALUES: [&str; 2] = ["sample", "all"];

/// Copies of a program in a process that does not verify its pairs.
fn copies(flavour: &str, args: &[&str], fault: &str, value: &str) -> Outcome {
    let program = Program::case(&format!("read_back-{flavour}")).findings_apart();
    let program = args.iter().fold(program, |program, arg| program.arg(*arg));
    let env = [
        ("P2PSIM_FAULT", fault),
        ("P2PSHIM_READBACK", value),
        ("P2PSHIM_VERIFY", "off"),
        ("P2PSHIM_LOG", "info"),
        ("P2PSHIM_VALIDATE", "off"),
    ];
    let outcome = env.iter().fold(program, |program, (name, value)| program.env(name, *value)).preloaded();
    outcome.assert_success();
    outcome
}

/// The findings that say something of data.
fn said(outcome: &Outcome) -> Vec<&str> {
    let of_data = outcome.findings.iter().filter(|finding| finding.rule.starts_with("P2P-data-"));
    of_data.map(|finding| finding.text.as_str()).collect()
}

#[test]
fn data_that_does_not_arrive_is_found_whoever_enables_and_waits() {
    for (flavour, fault) in [("12", "drop:0>1"), ("12", "corrupt:0-1"), ("static", "drop:0>1")] {
        for args in [["enable", "async"], ["enable", "sync"], ["leave", "async"]] {
            for value in VALUES {
                let [who, how] = args;
                let outcome = copies(flavour, &[who, how, "3000000", "12"], fault, value);
                let api = if flavour == "static" { "cu" } else { "cuda" };
                let function = if how == "sync" { "MemcpyPeer" } else { "MemcpyPeerAsync" };
                let said = said(&outcome);
                assert!(
                    said.len() == 1
                        && said[0]
                            .contains(&format!("P2P-data-wrong (hazard): {api}{function} at read_back-{flavour}+"))
                        && said[0].contains(": 3000000 bytes from device 0 to device 1, direct: of "),
                    "{fault} {args:?} {value}: {:#?}",
                    outcome.shim
                );
                assert_eq!(said[0].contains("all of these are zero"), fault == "drop:0>1", "{said:#?}");
                let how = if fault == "drop:0>1" { "data does not arrive: " } else { "data arrives wrong: " };
                let of_pair: Vec<_> = outcome.shim.iter().filter(|line| line.contains(how)).collect();
                assert_eq!(of_pair.len(), 1, "{:#?}", outcome.shim);
                // From then on no copy goes there.
                let staged = "copies are staged (broken though access is enabled)";
                assert!(outcome.shim.iter().any(|line| line.contains(staged)), "{:#?}", outcome.shim);
            }
        }
    }
}

/// Copies of rows, of slices, and of a batch; each says how many bytes it has.
const FORMS: [(&str, &str, u32); 3] = [
    ("2d", "cudaMemcpy2DAsync", 3_000_000),
    ("3d", "cudaMemcpy3DPeerAsync", 3_000_000),
    ("batch", "cudaMemcpyBatchAsync", 768_000),
];

#[test]
fn data_of_rows_slices_and_batches_that_does_not_arrive_is_found() {
    for (form, function, bytes) in FORMS {
        for (fault, value) in
            ["drop:0>1", "corrupt:0-1"].into_iter().flat_map(|fault| VALUES.map(|value| (fault, value)))
        {
            let outcome = copies("12", &["enable", form, "3072000", "12"], fault, value);
            let said = said(&outcome);
            let expected = [
                format!("P2P-data-wrong (hazard): {function} at read_back-12+"),
                format!(": {bytes} bytes from device 0 to device 1, direct: of "),
                "the first at offset 0 is ".to_owned(),
            ];
            assert!(
                said.len() == 1 && expected.iter().all(|part| said[0].contains(part)),
                "{fault} {form} {value}: {:#?}",
                outcome.shim
            );
            let staged = "copies are staged (broken though access is enabled)";
            assert!(outcome.shim.iter().any(|line| line.contains(staged)), "{:#?}", outcome.shim);
        }
    }
}

#[test]
fn data_of_rows_slices_and_batches_that_arrives_is_said_to() {
    for (flavour, (form, ..)) in
        ["12", "13", "static"].into_iter().flat_map(|flavour| FORMS.map(|form| (flavour, form)))
    {
        for (value, of) in VALUES.into_iter().zip(["parts of 8 ", ": 8 "]) {
            for who in ["enable", "leave"] {
                let outcome = copies(flavour, &[who, form, "3072000", "12"], "", value);
                assert_eq!(outcome.stdout, "0 of 12 copies wrong\n");
                assert_eq!(said(&outcome), [""; 0], "{who} {form}");
                let is_it = |line: &&String| line.contains(of) && line.contains("with their source: none differs");
                assert!(outcome.shim.iter().any(|line| is_it(&line)), "{who} {form} {value}: {:#?}", outcome.shim);
            }
        }
    }
}

/// Calls wait a second at most for a copy that is to be compared: on a machine that is too busy for that, another time.
fn copies_in_time(flavour: &str, args: &[&str], fault: &str, value: &str) -> Outcome {
    const TRIES: usize = 20;
    let is_late = |outcome: &Outcome| outcome.shim.iter().any(|line| line.contains("a copy had not ended a second"));
    let mut tries = std::iter::repeat_with(|| copies(flavour, args, fault, value)).take(TRIES);
    tries.find(|outcome| !is_late(outcome)).unwrap_or_else(|| panic!("{args:?} {value}: late each time"))
}

/// The end of a large copy is wrong, beyond what is read back first. No verification of p2pshim's own sees it.
#[test]
fn data_that_is_wrong_in_one_place_is_found_and_the_path_is_not_blamed() {
    for (value, offset) in [("sample", ""), ("all", "the first at offset 12582912 is 0x00, the source's 0x01")] {
        for flavour in ["11", "13", "static"] {
            let outcome = copies_in_time(flavour, &["enable", "async", "20000000", "9"], "aperture:0-1", value);
            let said = said(&outcome);
            assert!(
                said.len() == 1
                    && said[0].contains("P2P-data-changed (hazard): cu")
                    && said[0].contains(offset)
                    && said[0].contains("the path was verified anew, and data arrives"),
                "{value} {flavour}: {:#?}",
                outcome.shim
            );
        }
    }
}

#[test]
fn data_that_arrives_is_said_to_and_buffers_are_free_at_once() {
    for args in [["enable", "async"], ["enable", "sync"], ["leave", "async"], ["leave", "sync"]] {
        for (value, of) in VALUES.into_iter().zip(["parts of 8 ", ": 8 "]) {
            let outcome = copies_in_time("12", &[args[0], args[1], "20000000", "12"], "", value);
            assert_eq!(outcome.stdout, "0 of 12 copies wrong\n");
            assert_eq!(said(&outcome), [""; 0], "{args:?}");
            let is_it = |line: &&String| line.contains(of) && line.contains("with their source: none differs");
            assert!(outcome.shim.iter().any(|line| is_it(&line)), "{args:?} {value}: {:#?}", outcome.shim);
        }
    }
}

/// With `all` the call would wait for what waits for it.
#[test]
fn copies_that_wait_for_the_program_are_waited_for_once() {
    for (value, times) in VALUES.into_iter().zip([0, 1]) {
        let outcome = copies("12", &["enable", "held", "3000000", "12"], "", value);
        assert_eq!(outcome.stdout, "0 of 12 copies wrong\n");
        assert_eq!(said(&outcome), [""; 0], "{value}");
        let gave_up = outcome.shim.iter().filter(|line| line.contains("p2pshim lets no call wait for a comparison"));
        assert_eq!(gave_up.count(), times, "{value}: {:#?}", outcome.shim);
        let is_it = |line: &&String| line.contains("parts of 8 direct copies") && line.contains("none differs");
        assert!(outcome.shim.iter().any(|line| is_it(&line)), "{value}: {:#?}", outcome.shim);
    }
}

/// Uses of a buffer are ordered by events alone: what is read back too late, or lets the next use begin too early, shows.
fn assert_unnoticed(value: &str) {
    let cases: [(&str, u32, Variables); 4] = [
        ("staged_copies", 60, &[]),
        ("staged_copies", 40, &[("P2PSIM_NO_P2P", "0-1"), ("P2PSHIM_STAGING", "always")]),
        ("random_access", 1000, &[]),
        ("random_graphs", 1000, &[]),
    ];
    for (case, count, env) in cases {
        let (first, count) = few_seeds(80_000, count);
        let env: Vec<_> = env.iter().copied().chain([("P2PSHIM_READBACK", value)]).collect();
        let program = Sequences { case }.program("12", first, count, &env).findings_apart();
        let (plain, preloaded) = (program.plain(), program.preloaded());
        plain.assert_success();
        preloaded.assert_success();
        assert_eq!(difference(&plain.stdout, &preloaded.stdout), None, "{case} {value}");
        assert_eq!(plain.stdout.lines().count(), preloaded.stdout.lines().count(), "{case} {value}");
        assert_eq!(said(&preloaded), [""; 0], "{case} {value}");
    }
}

#[test]
fn random_sequences_sampled_are_the_same_and_nothing_is_found() {
    assert_unnoticed("sample");
}

#[test]
fn random_sequences_read_back_whole_are_the_same_and_nothing_is_found() {
    assert_unnoticed("all");
}

/// Nothing is read back unless that is wanted, and there is memory for it.
#[test]
fn nothing_is_read_back_without_the_option_or_memory() {
    for (value, limit) in [("off", "256M"), ("sample", "16K")] {
        let program = Program::case("read_back-12").arg("enable").arg("async").arg("3000000").arg("12");
        let program = program.env("P2PSIM_FAULT", "drop:0-1").env("P2PSHIM_VERIFY", "off").findings_apart();
        let program =
            program.env("P2PSHIM_READBACK", value).env("P2PSHIM_STAGING_LIMIT", limit).env("P2PSHIM_LOG", "info");
        let outcome = program.preloaded();
        assert_eq!(said(&outcome), [""; 0], "{value}");
        let is_told = outcome.shim.iter().any(|line| line.contains("(P2PSHIM_STAGING_LIMIT)"));
        assert_eq!(is_told, value != "off", "{:#?}", outcome.shim);
    }
}

/// The arguments of a batch are asked for as a whole, not each copy's by calls of the system.
#[test]
fn batch_is_read_by_few_calls_of_the_system() {
    let outcome = Program::case("batch_reads").env("P2PSHIM_READBACK", "sample").preloaded();
    outcome.assert_success();
    assert_eq!(outcome.stdout, "4096 copies: fewer than one call for eight\n".repeat(3));
}
