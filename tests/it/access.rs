//! Peer access that takes care of itself, on simulated GPUs: programs see what they see without it, copies become
//! direct where a path was verified, paths that fail are given up, and hidden peers are hidden.

use crate::support::sequences::{Sequences, Variables, difference};
use crate::support::soak::{few_seeds, flavours, seeds, soak};
use crate::support::{Outcome, Program, doctor, path, scratch, warnings};

#[test]
fn disabling_that_is_left_keeps_nobody_from_enabling() {
    for how in ["jump", "cancel"] {
        let program = Program::case("disable_left").args(&[how]).libraries("target/c-tests/blocking-driver");
        let preloaded = program.env("P2PSHIM_VERIFY", "off").preloaded();
        preloaded.assert_success();
        assert_eq!(preloaded.stdout, "0, then enabled\n", "{how}");
    }
}

// ---- sequences drawn at random ----

const ACCESS: Sequences = Sequences { case: "random_access" };

fn same_sequences(flavour: &str, first: u32, count: u32, env: Variables) {
    ACCESS.assert_same(flavour, first, count, env);
}

#[test]
fn listing_program_sees_no_peer_that_is_denied_by_uuid_or_address() {
    for (ordinals, names) in [
        ("2>1", "0000:03:00.0>GPU-70327073-696d-2047-5055-202e2e2e2e01"),
        ("0-1", "GPU-70327073-696d-2047-5055-202e2e2e2e00-02:00.0"),
    ] {
        let denied = |pairs: &str| lists_peers("12").env("P2PSHIM_DENY", pairs).findings_apart().preloaded();
        let (by_ordinal, by_name) = (denied(ordinals), denied(names));
        by_ordinal.assert_success();
        by_name.assert_same_as(&by_ordinal, names);
        assert!(by_name.stdout != denied("").stdout, "it denies nothing");
    }
    for pairs in ["0-7", "02:00.0>7"] {
        let missing = Program::case("guide_sample-12").env("P2PSHIM_DENY", pairs).findings_apart().preloaded();
        assert!(warnings(&missing)[0].contains("P2PSHIM_DENY names device 7, and this process has 2, from 0 on"));
    }
}

#[test]
fn random_sequences_are_the_same_preloaded() {
    same_sequences("12", 0, 4_000, &[]);
}

#[test]
fn random_sequences_with_each_runtime_are_the_same_preloaded() {
    for (number, flavour) in ["11", "13", "static"].into_iter().enumerate() {
        same_sequences(flavour, 20_000 + number as u32 * 1000, 500, &[]);
    }
}

#[test]
fn random_sequences_without_room_for_peers_are_the_same_preloaded() {
    same_sequences("12", 30_000, 500, &[("P2PSIM_MAX_PEERS", "0")]);
}

#[test]
fn random_sequences_with_pairs_without_a_path_are_the_same_preloaded() {
    for (number, pairs) in ["0-1", "0-1,2>3", "0-1,0-2,0-3,1-2,1-3,2-3"].into_iter().enumerate() {
        same_sequences("static", 40_000 + number as u32 * 1000, 500, &[("P2PSIM_NO_P2P", pairs)]);
    }
}

#[test]
fn random_sequences_with_each_option_are_the_same_preloaded() {
    let options = [("P2PSHIM_ACCESS", "app"), ("P2PSHIM_POOLS", "app"), ("P2PSHIM_VERIFY", "off")];
    for (number, option) in options.into_iter().enumerate() {
        same_sequences("12", 50_000 + number as u32 * 1000, 500, &[option]);
    }
}

/// A program that is denied peers is one on a machine without a path between them.
#[test]
fn random_sequences_with_denied_pairs_are_those_of_hardware_without_a_path() {
    let cases = [("0-1,2>3", [("P2PSHIM_DENY", "0-1,2>3")]), ("0-1,0-2,0-3,1-2,1-3,2-3", [("P2PSHIM_ACCESS", "off")])];
    for (without, denied) in cases {
        let (first, count) = few_seeds(60_000, 500);
        let plain = ACCESS.program("12", first, count, &[("P2PSIM_NO_P2P", without)]).arg("steps").plain();
        let preloaded = ACCESS.program("12", first, count, &denied).arg("steps").preloaded();
        plain.assert_success();
        let difference = difference(&plain.stdout, &preloaded.stdout);
        assert!(
            difference.is_none(),
            "{denied:?}: {} lines differ, the first:\n{}",
            difference.as_ref().unwrap().0,
            difference.as_ref().unwrap().1
        );
        preloaded.assert_same_as(&plain, "denied");
    }
}

/// The comparison finds what it is there for: lost copies.
#[test]
fn random_sequences_on_a_faulty_machine_are_found_wrong() {
    let outcome = ACCESS.program("12", 0, 20, &[("P2PSIM_FAULT", "drop:0-1")]).plain();
    outcome.assert_success();
    assert!(outcome.stdout.contains("WRONG"), "{}", outcome.stdout);
}

// ---- a program that never enables peer access ----

fn never_enables(flavour: &str, args: &[&str]) -> Program {
    args.iter().fold(Program::case(&format!("never_enables-{flavour}")), |program, arg| program.arg(*arg))
}

/// How the copies of the last round went, by direction: made, direct, staged.
fn counts(outcome: &Outcome) -> [[u64; 3]; 2] {
    let count = |from: &str| {
        let line = outcome.stdout.lines().find(|line| line.starts_with(from)).unwrap_or_else(|| panic!("{outcome:#?}"));
        let numbers = line[from.len()..].split(' ').filter_map(|word| word.parse().ok()).collect::<Vec<u64>>();
        <[u64; 3]>::try_from(numbers).unwrap()
    };
    ["0>1: ", "1>0: "].map(count)
}

fn assert_all_direct(outcome: &Outcome) {
    for [made, direct, staged] in counts(outcome) {
        assert!(made > 20 && direct >= made && staged == 0, "{outcome:#?}");
    }
}

fn assert_all_staged(outcome: &Outcome) {
    for [made, direct, staged] in counts(outcome) {
        assert!(made > 20 && direct == 0 && staged == made, "{outcome:#?}");
    }
}

/// Asserts that there is one warning, of this pair.
fn assert_warned_once(outcome: &Outcome, pair: &str) {
    let warnings = warnings(outcome);
    assert!(warnings.len() == 1, "{:#?}", outcome.shim);
    assert!(warnings[0].contains(&format!(" warn: peer access {pair}: ")), "{:#?}", outcome.shim);
}

/// All of the output but the lines that say how copies went and how long calls took.
fn without_counts(outcome: &Outcome) -> String {
    let says = |line: &&str| !line.contains(" direct, ") && !line.starts_with("longest call: ");
    outcome.stdout.lines().filter(says).collect::<Vec<_>>().join("\n")
}

#[test]
fn never_enabling_program_copies_directly_preloaded() {
    for flavour in flavours("never_enabling_program_copies_directly_preloaded") {
        for memory in [&[][..], &["pool"]] {
            let program = never_enables(flavour, &[memory, &["counts"]].concat());
            let (plain, preloaded) = (program.plain(), program.preloaded());
            plain.assert_success();
            preloaded.assert_success();
            preloaded.assert_silent();
            assert_all_staged(&plain);
            assert_all_direct(&preloaded);
            assert_eq!(without_counts(&plain), without_counts(&preloaded));
        }
    }
}

#[test]
fn never_enabling_program_copies_directly_unverified_if_told_so() {
    let preloaded = never_enables("12", &["counts"]).env("P2PSHIM_VERIFY", "off").preloaded();
    preloaded.assert_success();
    assert_all_direct(&preloaded);
}

/// Each with what there is to see about it.
#[test]
fn copies_stay_as_they_are_where_nothing_is_to_be_done() {
    let cases: [(&[&str], Variables); 7] = [
        (&["counts"], &[("P2PSHIM_ACCESS", "app")]),
        (&["counts", "pool"], &[("P2PSHIM_ACCESS", "app")]),
        (&["counts", "pool"], &[("P2PSHIM_POOLS", "app")]),
        (&["counts", "mapped"], &[]),
        (&["counts", "enable"], &[("P2PSHIM_ACCESS", "app")]),
        (&["counts"], &[("P2PSIM_NO_P2P", "0-1")]),
        (&["counts"], &[("P2PSIM_MAX_PEERS", "0")]),
    ];
    for flavour in ["12", "static"] {
        for (args, env) in cases {
            let program = never_enables(flavour, args);
            let program = env.iter().fold(program, |program, (name, value)| program.env(name, *value));
            let (plain, preloaded) = (program.plain(), program.preloaded());
            plain.assert_success();
            preloaded.assert_same_as(&plain, &format!("preloaded {args:?} {env:?}"));
            assert!(preloaded.stdout.contains(" direct, "), "{}", preloaded.stdout);
        }
    }
}

#[test]
fn enabling_program_sees_no_difference() {
    for flavour in flavours("enabling_program_sees_no_difference") {
        for args in [&["enable", "counts"][..], &["enable"]] {
            let program = never_enables(flavour, args);
            let (plain, preloaded) = (program.plain(), program.preloaded());
            plain.assert_success();
            preloaded.assert_same_as(&plain, "preloaded");
            preloaded.assert_silent();
        }
    }
}

/// No path, one way: the other way serves both.
#[test]
fn one_way_path_is_used() {
    let program = never_enables("12", &["counts"]).env("P2PSIM_NO_P2P", "0>1");
    let preloaded = program.preloaded();
    preloaded.assert_success();
    preloaded.assert_silent();
    assert_all_direct(&preloaded);
}

// ---- paths that fail ----

/// The right bytes, one warning, and the pair is left alone from then on.
fn given_up(flavour: &str, fault: &str, args: &[&str]) -> Outcome {
    let program = never_enables(flavour, &[&["counts"], args].concat());
    let plain = program.plain();
    plain.assert_success();
    let preloaded = program.env("P2PSIM_FAULT", fault).preloaded();
    preloaded.assert_success();
    assert_eq!(without_counts(&plain), without_counts(&preloaded), "{fault}");
    assert_warned_once(&preloaded, "0-1");
    assert_all_staged(&preloaded);
    preloaded
}

#[test]
fn faulty_path_is_given_up_and_reported_once() {
    for flavour in ["12", "static"] {
        for defect in ["drop", "corrupt", "first", "slow"] {
            for pair in ["0>1", "0-1", "1>0"] {
                given_up(flavour, &format!("{defect}:{pair}"), &[]);
            }
        }
    }
}

/// Kernels' accesses are lost, copies are not: only a verdict of the doctor tells.
#[test]
fn path_that_loses_accesses_of_kernels_is_blocked_by_the_verdict_of_the_doctor() {
    let cache = scratch("cache");
    let program =
        never_enables("12", &["counts"]).env("P2PSIM_FAULT", "lost:0>1").env("XDG_CACHE_HOME", cache.to_string_lossy());
    // As on real GPUs verdicts are not of one fault.
    let program = program.env("P2PSIM_ROOT", "/nonexistent");
    assert!(warnings(&program.preloaded()).is_empty(), "quick sees copies only");
    let doctor = |fault: &str| {
        let doctor = doctor().libraries("target/sim/lib").env("P2PSIM_FAULT", fault);
        doctor.env("XDG_CACHE_HOME", cache.to_string_lossy()).env("P2PSIM_ROOT", "/nonexistent").plain()
    };
    let full = program.env("P2PSHIM_VERIFY", "full");
    assert_eq!(doctor("lost:0>1").status, "exit status: 1");
    let outcome = full.preloaded();
    outcome.assert_success();
    assert_warned_once(&outcome, "0-1");
    let warning = warnings(&outcome)[0];
    assert!(warning.contains("an earlier check failed: memory with granted access: "), "{warning}");
    assert!(warning.contains("(`p2pshim doctor` tests again). "), "{warning}");
    assert_all_staged(&outcome);
    doctor("").assert_success();
    let outcome = full.preloaded();
    outcome.assert_success();
    outcome.assert_silent();
    let _ = std::fs::remove_dir_all(&cache);
}

#[test]
fn probe_full_without_a_verdict_verifies_quick_and_says_in_one_line_how_to_get_one() {
    let cache = scratch("cache");
    let full = |fault: &str| {
        let program = never_enables("12", &["counts"]).env("P2PSIM_FAULT", fault).env("P2PSHIM_VERIFY", "full");
        program.findings_apart().env("XDG_CACHE_HOME", cache.to_string_lossy()).preloaded()
    };
    let outcome = full("");
    outcome.assert_success();
    assert_eq!(outcome.shim.len(), 1, "{:#?}", outcome.shim);
    assert!(
        outcome.shim[0].contains("`p2pshim doctor` and `p2pshim run --verify full` write verdicts"),
        "{:#?}",
        outcome.shim
    );
    assert_all_direct(&outcome);
    assert!(!cache.exists(), "the program's process keeps none");
    let lost = full("drop:0>1").shim.join("\n");
    assert!(lost.contains("data does not arrive"), "what quick finds holds: {lost}");
}

#[test]
fn faulty_path_between_pools_is_given_up_and_reported_once() {
    for defect in ["drop", "corrupt", "first", "slow"] {
        given_up("12", &format!("{defect}:0-1"), &["pool"]);
    }
}

#[test]
fn hanging_path_is_given_up() {
    for flavour in ["12", "static"] {
        for pair in ["0>1", "0-1"] {
            // Waiting for a whole device would last for ever, so the program ends without.
            given_up(flavour, &format!("hang:{pair}"), &["exit"]);
        }
    }
}

/// A time-out is no proof of a broken path: a copy is late where other processes keep the path busy, too.
#[test]
fn path_that_was_late_is_refused_for_now_and_used_later() {
    const FIRST: [(&str, &str); 3] =
        [("enables", "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"), ("asks", "0"), ("copies", "staged")];
    for (how, first) in FIRST {
        for fault in ["stall:0>1:300ms", "stall:0-1:300ms@3"] {
            let program = Program::case("late_copies").arg(how).env("P2PSIM_FAULT", fault);
            let outcome = program.findings_apart().preloaded();
            outcome.assert_success();
            let expected = format!("first: {first}\nthen: CUDA_SUCCESS\nlast copy: direct\n");
            assert_eq!(outcome.stdout, expected, "{how} {fault}: {:#?}", outcome.shim);
            let said = warnings(&outcome);
            assert!(said.iter().all(|line| line.contains(" peer access 0-1: a copy from device ")), "{said:#?}");
            assert!(said.iter().all(|line| line.contains(". p2pshim verifies it again later, ")), "{said:#?}");
            assert_eq!(said.len(), 1, "{how} {fault}: {said:#?}");
        }
    }
}

#[test]
fn faulty_path_of_another_pair_changes_nothing_here() {
    let program = never_enables("12", &["counts"]).env("P2PSIM_DEVICES", "4");
    let preloaded = program.env("P2PSIM_FAULT", "drop:2-3,drop:0-2").preloaded();
    preloaded.assert_success();
    preloaded.assert_silent();
    assert_all_direct(&preloaded);
}

/// With `P2PSHIM_BROKEN=warn`. Access that the program enabled stays enabled, but no copy goes there: its bytes are right.
#[test]
fn faulty_path_that_the_program_enabled_is_left_enabled_and_copies_are_staged_by_the_shim() {
    for flavour in ["12", "static"] {
        for fault in ["drop:0>1", "drop:0-1", "corrupt:0-1"] {
            let program = never_enables(flavour, &["enable", "counts"]).env("P2PSIM_FAULT", fault);
            let program = program.env("P2PSHIM_BROKEN", "warn");
            let (plain, preloaded) = (program.plain(), program.preloaded());
            assert!(plain.status == "exit status: 1" && plain.stdout.contains(" 28 direct, 0 staged"), "{plain:#?}");
            preloaded.assert_success();
            assert!(!preloaded.stdout.contains("= cudaErrorPeerAccessUnsupported"), "{preloaded:#?}");
            for wrong in ["thread 0: 0 bytes wrong\n", "thread 1: 0 bytes wrong\n"] {
                assert!(preloaded.stdout.contains(wrong), "{preloaded:#?}");
            }
            for counted in ["0>1: 28 copies, 0 direct, 0 staged\n", "1>0: 28 copies, 0 direct, 0 staged\n"] {
                assert!(preloaded.stdout.contains(counted), "neither by CUDA: {preloaded:#?}");
            }
            assert_warned_once(&preloaded, "0-1");
        }
    }
}

/// A program that enables a broken path itself is one on a machine without that path: its data is right.
#[test]
fn faulty_path_that_the_program_enables_is_refused_and_its_data_is_right() {
    for flavour in flavours("faulty_path_that_the_program_enables_is_refused_and_its_data_is_right") {
        for fault in ["drop:0>1", "drop:0-1", "first:1>0", "corrupt:0-1", "hang:0>1"] {
            for access in ["auto", "app"] {
                // Waiting for a whole device would last for ever where a path hangs, so the program ends without.
                let program = never_enables(flavour, &["enable", "counts", "exit"]);
                let plain = program.clone().env("P2PSIM_NO_P2P", "0-1").plain();
                plain.assert_success();
                let preloaded = program.env("P2PSIM_FAULT", fault).env("P2PSHIM_ACCESS", access).preloaded();
                preloaded.assert_same_as(&plain, fault);
                assert_warned_once(&preloaded, "0-1");
                assert!(warnings(&preloaded)[0].contains("is told that there is none"), "{:#?}", preloaded.shim);
                assert_all_staged(&preloaded);
            }
        }
    }
}

/// By every function that tells of a path or grants rights, after a question and without one.
#[test]
fn faulty_path_looks_to_the_program_like_hardware_without_one() {
    for flavour in flavours("faulty_path_looks_to_the_program_like_hardware_without_one") {
        for fault in ["0-1", "0-1,0-2,1-2"] {
            let plain = lists_peers(flavour).env("P2PSIM_NO_P2P", fault).plain();
            plain.assert_success();
            let drops: Vec<String> = fault.split(',').map(|pair| format!("drop:{pair}")).collect();
            let preloaded = lists_peers(flavour).env("P2PSIM_FAULT", drops.join(",")).preloaded();
            if let Some((count, first)) = difference(&plain.stdout, &preloaded.stdout) {
                panic!("{flavour}, {fault}: {count} lines differ, the first:\n{first}");
            }
            preloaded.assert_same_as(&plain, fault);
            assert_eq!(warnings(&preloaded).len(), drops.len(), "{:#?}", preloaded.shim);
        }
    }
}

/// A call that a verification needs may fail for reasons that have nothing to do with the path: it is not trusted, and no more.
#[test]
fn verification_that_cannot_be_made_leaves_copies_staged() {
    // The program itself uses none of these, or as often as the number says.
    let failures = [
        "cuMemCreate:2@1",
        "cuMemMap:2@1",
        "cuMemSetAccess:2@1",
        "cuMemAddressReserve:2@1",
        "cuMemHostRegister_v2:2@1",
        "cuMemcpyHtoDAsync_v2:700@1",
        "cuMemcpyDtoHAsync_v2:700@1",
        "cuStreamQuery:700@1",
        "cuCtxPushCurrent_v2:201@1",
        "cuPointerGetAttributes:1@1",
    ];
    let plain = never_enables("12", &["counts"]).plain();
    for failure in failures {
        let program = never_enables("12", &["counts"]).env("P2PSIM_FAULT", format!("code:{failure}"));
        program.plain().assert_same_as(&plain, failure);
        let preloaded = program.preloaded();
        preloaded.assert_same_as(&plain, failure);
        assert!(warnings(&preloaded).len() <= 1, "{failure}: {:#?}", preloaded.shim);
    }
}

#[test]
fn driver_without_mapped_memory_nothing_is_enabled_and_that_is_said_once() {
    for code in ["801", "302"] {
        for case in [never_enables("12", &["counts"]), Program::case("all_pairs-12").env("P2PSIM_DEVICES", "4")] {
            let plain = case.plain();
            let preloaded = case.env("P2PSIM_FAULT", format!("code:cuMemCreate:{code}@1")).preloaded();
            preloaded.assert_same_as(&plain, code);
            let warnings = warnings(&preloaded);
            assert!(warnings.len() == 1, "{:#?}", preloaded.shim);
            assert!(warnings[0].contains("nor can any other pair"), "{:#?}", preloaded.shim);
        }
    }
}

#[test]
fn enabling_that_fails_leaves_copies_staged_and_the_last_error_alone() {
    let plain = never_enables("12", &["counts"]).plain();
    for code in ["2", "217", "700", "711", "999"] {
        let program = never_enables("12", &["counts"]);
        let preloaded = program.env("P2PSIM_FAULT", format!("code:cuCtxEnablePeerAccess:{code}@1")).preloaded();
        preloaded.assert_same_as(&plain, code);
        assert!(warnings(&preloaded).len() <= 1, "{code}: {:#?}", preloaded.shim);
    }
}

// ---- many devices ----

#[test]
fn more_devices_than_peers_all_pairs_work() {
    for (flavour, peers) in [("12", &["1", "3", "8"][..]), ("static", &["3"])] {
        for peers in peers {
            let program = Program::case(&format!("all_pairs-{flavour}")).env("P2PSIM_DEVICES", "10");
            let program = program.env("P2PSIM_MAX_PEERS", *peers);
            let (plain, preloaded) = (program.plain(), program.preloaded());
            plain.assert_success();
            assert!(plain.stdout.contains(" 711"), "{}", plain.stdout);
            assert_eq!(plain.stdout.matches("90 pairs, 0 wrong, last error cudaSuccess").count(), 3);
            preloaded.assert_same_as(&plain, &format!("preloaded, {peers} peers"));
        }
    }
}

/// A context can have 8 peers. With 9 devices the program may enable all others, with more half of the places.
#[test]
fn limit_of_peers_program_enables_its_own_as_without_us() {
    for (devices, peers, all) in [("9", "8", 36), ("12", "4", 66)] {
        if soak().is_some() || devices == "9" {
            same_preloaded("limit_of_peers", &[peers], &[("P2PSIM_DEVICES", devices)]);
        }
        let outcome = Program::case("limit_of_peers").arg(peers).env("P2PSIM_DEVICES", devices).preloaded();
        assert!(!outcome.stdout.contains("711"), "{}", outcome.stdout);
        let direct = outcome.stderr.lines().find_map(|line| line.strip_suffix(" pairs direct")).unwrap();
        let direct: u32 = direct.parse().unwrap();
        assert!(if devices == "9" { direct == all } else { (30..all).contains(&direct) }, "{direct} of {all} pairs");
        outcome.assert_silent();
    }
}

/// Objects that were made for verifications in a context go with it.
#[test]
fn contexts_that_end_take_nothing_along_that_is_used_later() {
    let program = Program::case("pools_after_reset").env("P2PSIM_DEVICES", "3");
    let (plain, preloaded) = (program.plain(), program.preloaded());
    plain.assert_success();
    assert_eq!(plain.stdout.matches(": right").count(), 12, "{}", plain.stdout);
    preloaded.assert_same_as(&plain, "preloaded");
    preloaded.assert_silent();
}

// ---- peers that are hidden ----

fn lists_peers(flavour: &str) -> Program {
    Program::case(&format!("lists_peers-{flavour}")).env("P2PSIM_DEVICES", "3")
}

#[test]
fn listing_program_sees_all_peers_by_default() {
    for flavour in flavours("listing_program_sees_all_peers_by_default") {
        lists_peers(flavour).assert_same_preloaded().0.assert_success();
    }
}

/// Hidden peers look like hardware without a path, by every route.
#[test]
fn listing_program_sees_no_hidden_peer() {
    let cases = [
        ("0-1,0-2,1-2", ("P2PSHIM_ACCESS", "off")),
        ("0-1,0-2,1-2", ("P2PSHIM_DENY", "0-1,0-2,1-2")),
        ("0-1", ("P2PSHIM_DENY", "0-1")),
        ("2>1", ("P2PSHIM_DENY", "2>1")),
        ("0-2,1>0", ("P2PSHIM_DENY", "0-2,1>0")),
    ];
    for flavour in flavours("listing_program_sees_no_hidden_peer") {
        for (without, (option, value)) in cases {
            let plain = lists_peers(flavour).env("P2PSIM_NO_P2P", without).plain();
            plain.assert_success();
            assert!(plain.stdout.contains(" 0 wrong"), "{}", plain.stdout);
            let hidden = lists_peers(flavour).env(option, value).preloaded();
            if let Some((count, first)) = difference(&plain.stdout, &hidden.stdout) {
                panic!("{flavour}, {option}={value}: {count} lines differ, the first:\n{first}");
            }
            hidden.assert_same_as(&plain, &format!("{option}={value}"));
            hidden.assert_silent();
        }
    }
}

#[test]
fn hidden_peers_copies_are_staged_and_right() {
    for (option, value) in [("P2PSHIM_ACCESS", "off"), ("P2PSHIM_DENY", "0-1")] {
        for args in [&["counts"][..], &["counts", "pool"], &["counts", "enable"]] {
            let plain = never_enables("12", args).env("P2PSIM_NO_P2P", "0-1").plain();
            let hidden = never_enables("12", args).env(option, value).preloaded();
            plain.assert_success();
            hidden.assert_same_as(&plain, &format!("{option}={value} {args:?}"));
            assert_all_staged(&hidden);
        }
    }
}

#[test]
fn guide_sample_without_peers_still_copies() {
    for flavour in flavours("guide_sample_without_peers_still_copies") {
        let program = Program::case(&format!("guide_sample-{flavour}"));
        let plain = program.clone().env("P2PSIM_NO_P2P", "0-1").plain();
        program.env("P2PSHIM_ACCESS", "off").preloaded().assert_same_as(&plain, "without peers");
    }
}

// ---- captures ----

/// Its very first copies are captured.
#[test]
fn captured_copies_replay_with_and_without_faults() {
    for flavour in flavours("captured_copies_replay_with_and_without_faults") {
        let program = Program::case(&format!("captured_copies-{flavour}"));
        let right = program.preloaded();
        right.assert_success();
        assert_eq!(right.stdout.matches("100 replays, 0 rows wrong").count(), 6, "{}", right.stdout);
        for (name, value) in [
            ("P2PSIM_FAULT", "drop:0-1"),
            ("P2PSIM_FAULT", "corrupt:0-1"),
            ("P2PSIM_MAX_PEERS", "0"),
            ("P2PSIM_NO_P2P", "0-1"),
            ("P2PSHIM_ACCESS", "app"),
            ("P2PSHIM_ACCESS", "off"),
        ] {
            program.clone().env(name, value).preloaded().assert_same_as(&right, &format!("{name}={value}"));
        }
    }
}

#[test]
fn copies_beside_a_capture_leave_it_whole() {
    for flavour in flavours("copies_beside_a_capture_leave_it_whole") {
        let program = Program::case(&format!("copies_beside_capture-{flavour}"));
        let (plain, _) = program.assert_same_preloaded();
        plain.assert_success();
        assert!(plain.stdout.contains("alone: right") && !plain.stdout.contains("WRONG"), "{}", plain.stdout);
        let faulty = program.env("P2PSIM_FAULT", "drop:0-1").preloaded();
        faulty.assert_same_as(&plain, "preloaded, and the path is faulty");
        assert_warned_once(&faulty, "0-1");
    }
}

// ---- found by an adversary ----

/// Calls of other threads meanwhile, and what is left behind: plain and preloaded print the same.
fn same_preloaded(case: &str, args: &[&str], env: Variables) {
    let program = args.iter().fold(Program::case(case), |program, arg| program.arg(*arg));
    let program = env.iter().fold(program, |program, (name, value)| program.env(name, *value));
    let (plain, preloaded) = (program.plain(), program.preloaded());
    plain.assert_success();
    assert_eq!(plain.stdout, preloaded.stdout, "{case} {args:?} {env:?}, plain (left) and preloaded (right)");
    assert_eq!(plain.status, preloaded.status, "{case} {args:?} {env:?}");
}

#[test]
fn adversary_pools_beside_a_capture() {
    for env in [&[][..], &[("P2PSHIM_ACCESS", "app")], &[("P2PSHIM_POOLS", "app")]] {
        same_preloaded("pools_beside_capture", &[], env);
    }
}

#[test]
fn adversary_disabling_while_we_enable() {
    same_preloaded("disable_beside_copies", &["500"], &[]);
}

#[test]
fn adversary_two_threads_disable() {
    same_preloaded("two_disable", &[&seeds(0, 5000).1.to_string()], &[]);
}

#[test]
fn adversary_pool_granted_while_it_is_being_verified() {
    for delay in ["0", "500", "2000"] {
        same_preloaded("pool_granted_meanwhile", &[delay], &[("P2PSIM_DEVICES", "6")]);
    }
}

/// Copies that are under way need rights that the program takes away, and never gave.
#[test]
fn adversary_rights_to_a_pool_are_taken_away_beside_copies() {
    for how in ["one", "two", "reset"] {
        same_preloaded("pool_rights_taken", &[how], &[("P2PSIM_DEVICES", "3")]);
    }
}

#[test]
fn adversary_capture_that_its_thread_does_not_end() {
    for how in ["elsewhere", "destroyed", "reset", "context", "handle", "null"] {
        let outcome = Program::case("capture_left_behind").arg(how).preloaded();
        outcome.assert_success();
        assert!(!outcome.stdout.contains(" 0 direct"), "{how}: {}", outcome.stdout);
    }
}

#[test]
fn adversary_denied_pair_is_hardware_without_a_path_for_pools_and_mappings() {
    let program = Program::case("deny_pools").env("P2PSIM_DEVICES", "3");
    let plain = program.clone().env("P2PSIM_NO_P2P", "1-2").plain();
    plain.assert_success();
    program.env("P2PSHIM_DENY", "1-2").preloaded().assert_same_as(&plain, "denied");
}

/// Where the system does not let us read our own memory by a call, nothing that is hidden is granted.
#[test]
fn adversary_hidden_pools_without_process_vm_readv() {
    let outcome = Program::case("without_vm_readv").env("P2PSHIM_ACCESS", "off").preloaded();
    outcome.assert_success();
    assert!(outcome.stdout.contains("CUDA_ERROR_INVALID_DEVICE"), "{}", outcome.stdout);
    let outcome = Program::case("without_vm_readv").preloaded();
    assert!(outcome.stdout.starts_with("flags 0"), "{}", outcome.stdout);
}

#[test]
fn adversary_no_memory_for_a_verification() {
    same_preloaded("malloc_fails", &[], &[]);
}

/// Copies of a broken pair go through the host even if there is no memory for that but the library's own.
#[test]
fn adversary_no_memory_for_copies_of_a_broken_pair() {
    let program = Program::case("malloc_fails").arg("enables");
    let sound = program.plain();
    sound.assert_success();
    for fault in ["drop:0>1", "drop:0>1,code:cuMemHostRegister_v2:2@5"] {
        let program = program.clone().env("P2PSIM_FAULT", fault).env("P2PSHIM_BROKEN", "warn");
        assert_ne!(program.plain().stdout, sound.stdout, "{fault} without p2pshim");
        let outcome = program.env("P2PSHIM_LOG", "info").preloaded();
        assert_eq!((&outcome.stdout, &outcome.status), (&sound.stdout, &sound.status), "{fault}: {outcome:#?}");
    }
}

/// Access that was enabled past the shim is noticed once, not with each copy.
#[test]
fn adversary_access_enabled_unseen_is_reported_once() {
    let program = Program::case("enabled_unseen").arg(path("target/c-tests/libenables_unseen.so").to_string_lossy());
    let outcome = program.env("P2PSHIM_LOG", "info").preloaded();
    outcome.assert_success();
    let told = outcome.shim.iter().filter(|line| line.contains("peer access enabled in")).count();
    assert!(told <= 1, "told {told} times");
}

/// A verification uses nothing that goes away with a context which the copy has nothing to do with.
#[test]
fn adversary_context_of_another_thread_ends_during_a_verification() {
    for delay in ["0", "300", "600", "2200", "2600", "5000"] {
        let outcome = Program::case("context_ends_during_proof").arg(delay).env("P2PSIM_DEVICES", "6").preloaded();
        outcome.assert_success();
    }
}

/// A program that makes and unmakes environments in other threads must not meet us there: after its first call nobody may look.
#[test]
fn environment_is_not_looked_at_again() {
    for fault in ["", "drop:0-2"] {
        let program = Program::case("environment_moves").env("P2PSIM_DEVICES", "3").env("P2PSIM_FAULT", fault);
        let outcome = program.env("P2PSHIM_VERIFY", "full").findings_apart().preloaded();
        outcome.assert_success();
        assert_eq!(outcome.stdout, "copied\n", "{fault}");
    }
}

/// Instances of partitioned GPUs have UUIDs of their own, and names of their own.
#[test]
fn instances_of_partitioned_gpus_are_denied_by_their_names() {
    let pair = ["0", "1"].map(|last| format!("MIG-70327073-696d-204d-4947-202e2e2e2e0{last}")).join("-");
    let program = Program::case("environment_moves").env("P2PSIM_DEVICES", "3").env("P2PSIM_MIG", "1");
    let outcome = program.env("P2PSHIM_DENY", &pair).env("P2PSHIM_LOG", "info").preloaded();
    outcome.assert_success();
    let said = |what: &str| outcome.shim.iter().any(|line| line.contains(what));
    assert!(said("0-1: copies are staged (denied)") && said("0-2: no hardware path"), "{:#?}", outcome.shim);
}

/// Where no memory can be shared by legacy IPC, the driver says of all that it cannot: none is another process's for that.
#[test]
fn pair_without_legacy_ipc_is_enabled() {
    let program = Program::case("environment_moves").env("P2PSIM_DEVICES", "3").env("P2PSIM_LEGACY_IPC", "0");
    let outcome = program.env("P2PSHIM_LOG", "info").preloaded();
    outcome.assert_success();
    for pair in ["0-1", "0-2"] {
        let enabled = format!("{pair}: peer access enabled in both directions");
        assert!(outcome.shim.iter().any(|line| line.contains(&enabled)), "{pair}: {:#?}", outcome.shim);
    }
}
