//! `p2pshim doctor` on simulated GPUs.

use std::fs;

use crate::support::{self, LARGE_PAGES, Outcome, Program, command, scratch};

fn doctor(fault: &str) -> Program {
    Program::new(command())
        .arg("doctor")
        .libraries("target/sim/lib")
        .env("P2PSIM_FAULT", fault)
        .env("XDG_CACHE_HOME", CACHE)
        .env(LARGE_PAGES.0, LARGE_PAGES.1)
}

/// Verdicts on simulated GPUs are not for the user's own cache.
const CACHE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/doctor-cache");

/// The columns of a pair's row: copy engine, kernel loads, kernel stores, verdict (which may be two words).
fn row(outcome: &Outcome, pair: &str) -> Vec<String> {
    let mut columns = columns(outcome, pair);
    columns.drain(3..7);
    columns
}

/// The columns of a pair that not every pair has: kernel atomics and flags, between processes by IPC handle and by file descriptor.
fn further(outcome: &Outcome, pair: &str) -> Vec<String> {
    columns(outcome, pair).drain(3..7).collect()
}

/// The columns up to the verdict.
fn columns(outcome: &Outcome, pair: &str) -> Vec<String> {
    let row = outcome.stdout.lines().find(|line| line.starts_with(&format!("{pair} ")) && line.split("  ").count() > 4);
    let row = row.unwrap_or_else(|| panic!("no {pair}: {}{:?}", outcome.stdout, outcome.shim));
    let columns = row.split("  ").map(str::trim).filter(|column| !column.is_empty()).skip(1).take(9);
    // Other tests check the column of memory with granted access.
    columns.enumerate().filter(|(place, _)| *place != 1).map(|(_, column)| column.to_owned()).collect()
}

/// The row of 0>1 with that fault; the other direction must be verified, and the status must be as said.
fn faulty(fault: &str, status: i32) -> (Vec<String>, Outcome) {
    let outcome = doctor(fault).plain();
    assert_eq!(
        columns(&outcome, "1>0"),
        ["right", "right", "right", "right", "right", "right", "right", "verified"],
        "{}",
        outcome.stdout
    );
    assert_eq!(outcome.status, format!("exit status: {status}"), "{}", outcome.stdout);
    (row(&outcome, "0>1"), outcome)
}

#[test]
fn right_every_pair_is_verified_and_has_a_speed() {
    let (columns, outcome) = faulty("", 0);
    assert_eq!(columns, ["right", "right", "right", "verified"]);
    assert_eq!(further(&outcome, "0>1"), ["right"; 4]);
    let speeds = outcome.stdout.lines().filter(|line| line.contains("verified"));
    let speeds: Vec<f64> = speeds.map(|line| line.split_whitespace().last().unwrap().parse().unwrap()).collect();
    assert!(speeds.len() == 2 && speeds.iter().all(|&speed| speed > 0.0), "{}", outcome.stdout);
    assert!(!outcome.stdout.contains("Likely cause"), "{}", outcome.stdout);
    let at_once = outcome.stdout.lines().find(|line| line.starts_with("all pairs at once  right; ")).unwrap();
    assert!(at_once.contains("GB/s in all, ") && at_once.contains("if each were as fast as alone"), "{at_once}");
    outcome.assert_silent();
}

#[test]
fn copies_that_lose_or_change_data_fail_and_kernels_do_not() {
    for (fault, said) in [
        ("drop:0>1", "4096 of 4096 bytes never arrived, the first at 0 (copy 1, on a stream of the source)"),
        ("first:0>1", "4096 of 4096 bytes never arrived"),
        ("corrupt:0>1", "1 of 4096 bytes arrived wrong, the first at 0"),
    ] {
        let (columns, outcome) = faulty(fault, 1);
        assert_eq!(columns, ["wrong", "right", "right", "FAILED"], "{fault}");
        assert!(outcome.stdout.contains(&format!("copies wrong: {said}")), "{}", outcome.stdout);
        assert!(outcome.stdout.contains("Likely cause for 0>1: "), "{}", outcome.stdout);
    }
}

#[test]
fn copies_that_are_wrong_beyond_a_window_fail() {
    let (columns, outcome) = faulty("aperture:0>1", 1);
    assert_eq!(columns, ["wrong", "right", "right", "FAILED"]);
    let said = "4194304 of 16777216 bytes never arrived, the first at 12582912 (copy 5, on a stream of the source)";
    assert!(outcome.stdout.contains(said), "{}", outcome.stdout);
    assert_eq!(row(&doctor("aperture:0>1").arg("--quick").plain(), "0>1"), ["wrong", "-", "-", "FAILED"]);
}

/// The level at which `p2pshim run` checks: copies and memory that processes share by IPC, at any number of GPUs the same processes.
#[test]
fn quick_tests_copies_and_ipc_and_what_is_wrong_there_fails() {
    const RIGHT: [&str; 8] = ["right", "-", "-", "-", "-", "right", "-", "verified"];
    for (fault, status, expected) in [
        ("", 0, RIGHT),
        ("drop:0>1", 1, ["wrong", "-", "-", "-", "-", "wrong", "-", "FAILED"]),
        ("ipc:0>1", 1, ["right", "-", "-", "-", "-", "wrong", "-", "FAILED"]),
        ("hang:0>1", 1, ["hung", "-", "-", "-", "-", "-", "-", "FAILED"]),
        // These are for other levels.
        ("lost:0>1", 0, RIGHT),
        ("order:0>1", 0, RIGHT),
        ("vmm:0>1", 0, RIGHT),
        ("slow:0>1", 0, RIGHT),
        ("window:0>1", 0, RIGHT),
        ("crowd:0>1", 0, RIGHT),
        ("code:cuIpcGetMemHandle:801@1", 0, ["right", "-", "-", "-", "-", "untested", "-", "verified"]),
    ] {
        let timeout = if fault.starts_with("hang") { "10" } else { "600" };
        let outcome = doctor(fault).args(&["--quick", "--timeout", timeout]).plain();
        assert_eq!(columns(&outcome, "0>1"), expected, "{fault}: {}", outcome.stdout);
        assert_eq!(outcome.status, format!("exit status: {status}"), "{fault}");
        if status == 0 {
            let said = "Verdict: no fault was found in copies; what kernels do, and copies of all pairs at once, were not tested.";
            let joined = joined(&outcome);
            assert!(joined.starts_with(said) && !joined.contains("P2PSHIM_VERIFY=full takes"), "{}", outcome.stdout);
            assert!(joined.contains(" p2pshim takes these verdicts from "), "{}", outcome.stdout);
        }
    }
}

#[test]
fn verdict_comes_first() {
    for fault in ["", "drop:0>1"] {
        let outcome = doctor(fault).plain();
        assert!(outcome.stdout.starts_with("Verdict: "), "{}", outcome.stdout);
    }
}

/// A process that tests loads this library; another one takes part with each that tests pairs.
const COUNTED: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void count(void) {
    FILE *file = fopen(getenv("P2PSIM_COUNTED"), "a");
    fputs("x", file);
    fclose(file);
}
int nvmlInit_v2(void) { return 1; }
"#;

/// Each process costs a start of CUDA and a context on each GPU.
#[test]
fn processes_are_as_few_for_many_gpus_as_for_two() {
    let folder = scratch("counted");
    fs::create_dir(&folder).unwrap();
    let source = folder.join("counted.c");
    fs::write(&source, COUNTED).unwrap();
    let library = folder.join("libnvidia-ml.so.1");
    let built = std::process::Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(built.unwrap().success());
    let path = format!("{}:{}", folder.display(), support::path("target/sim/lib").display());
    let counted = folder.join("count");
    for (fault, devices, level, processes) in [
        ("", "2", "--quick", 1),
        ("", "5", "--quick", 1),
        // The second measures what p2pshim stages.
        ("", "2", "--json", 2),
        ("", "3", "--json", 2),
        // A failure costs no further ones, but a hang does: one for the pairs that it has kept from being tested, and one for its own.
        ("drop:0>1", "3", "--quick", 1),
        ("hang:0>1", "3", "--quick", 3),
    ] {
        let _ = fs::remove_file(&counted);
        let doctor = doctor(fault).env("LD_LIBRARY_PATH", &path).env("P2PSIM_COUNTED", counted.to_string_lossy());
        doctor
            .env("P2PSIM_DEVICES", devices)
            .args(&[level, "--timeout", if fault.starts_with("hang") { "20" } else { "600" }])
            .plain();
        assert_eq!(fs::read(&counted).unwrap().len(), processes, "{fault} {devices} {level}");
    }
    fs::remove_dir_all(folder).unwrap();
}

/// Copies of the other pairs of four are under way long enough for those of 0>1 to meet them.
const MEET: &str = "stall:2-3:20ms@40";

#[test]
fn pair_that_hangs_once_is_tested_again_and_not_advised_against() {
    // In the process that tests all pairs 0>1 meets 2>3 or 3>2; alone it does not.
    let outcome = doctor(&format!("crowd-hang:0>1,{MEET}"))
        .env("P2PSIM_DEVICES", "4")
        .args(&["--quick", "--timeout", "20"])
        .plain();
    outcome.assert_success();
    let joined = joined(&outcome);
    assert_eq!(columns(&outcome, "0>1")[7], "verified", "{}", outcome.stdout);
    assert!(joined.contains("It hung once (it had not finished after 5 s)"), "{}", outcome.stdout);
    assert!(!joined.contains("P2PSHIM_DENY"), "{}", outcome.stdout);
}

#[test]
fn pair_that_is_wrong_beside_others_only_is_said_to_be() {
    let outcome =
        doctor(&format!("crowd:0>1,{MEET}")).env("P2PSIM_DEVICES", "4").args(&["--quick", "--timeout", "600"]).plain();
    assert_eq!(columns(&outcome, "0>1"), ["right", "-", "-", "-", "-", "right", "-", "FAILED"], "{}", outcome.stdout);
    let joined = joined(&outcome);
    for said in [
        "0>1 all pairs at once wrong: copies while other pairs were tested: ",
        "right alone Each pair alone is right",
        "P2PSHIM_DENY='0-1'",
    ] {
        assert!(joined.contains(said), "no {said}: {}", outcome.stdout);
    }
    assert_eq!(outcome.stdout.matches("FAILED").count(), 1, "{}", outcome.stdout);
}

#[test]
fn pairs_of_a_gpu_that_hangs_are_tested_by_another_process() {
    let outcome = doctor("hang:0>1,hang:2>3").env("P2PSIM_DEVICES", "4").args(&["--quick", "--timeout", "10"]).plain();
    assert_eq!(outcome.status, "exit status: 1");
    for pair in ["0>1", "2>3"] {
        assert_eq!(columns(&outcome, pair)[0], "hung", "{}", outcome.stdout);
    }
    let said = "\n0>1 2>3\n         copies hung: it had not finished after 10 s\n";
    assert!(outcome.stdout.contains(said), "once for both: {}", outcome.stdout);
    assert_eq!(outcome.stdout.matches("verified").count(), 10, "{}", outcome.stdout);
}

/// A GPU in exclusive mode lets one process have a context: the other process has none.
#[test]
fn gpu_that_another_process_has_is_said_to_be_and_pairs_without_it_are_tested() {
    let outcome = doctor("code:cuDevicePrimaryCtxRetain:46@1").arg("0>1").plain();
    assert_eq!(outcome.status, "exit status: 3");
    let said = "(46): the GPU is in exclusive mode and another process has it";
    assert!(joined(&outcome).contains(said), "{}", outcome.stdout);
}

#[test]
fn copies_that_are_wrong_through_the_host_too_leave_it_undecided() {
    let (columns, outcome) = faulty("both:0>1", 3);
    assert_eq!(columns, ["wrong", "right", "right", "undecided"]);
    let joined = outcome.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = "Data is wrong through the host as well, 4096 of 4096 bytes";
    assert!(joined.contains(said) && !joined.contains("could not be tested"), "{}", outcome.stdout);
    assert!(joined.starts_with("Verdict: DATA IS WRONG on 0>1, both directly and through the host"), "{joined}");
    assert!(!outcome.stdout.contains("Likely cause"), "{}", outcome.stdout);
}

#[test]
fn kernels_whose_accesses_are_lost_fail_and_copies_do_not() {
    let (columns, outcome) = faulty("lost:0>1", 1);
    assert_eq!(columns, ["right", "wrong", "wrong", "FAILED"]);
    for said in ["bytes arrived as 0xff (launch 1)", "kernel stores wrong: 4096 of 4096 bytes never arrived"] {
        assert!(outcome.stdout.contains(said), "no {said}: {}", outcome.stdout);
    }
    assert!(outcome.stdout.contains("Copies are right: only programs whose kernels"), "{}", outcome.stdout);
}

#[test]
fn kernels_whose_atomic_operations_alone_are_lost_fail() {
    let (columns, outcome) = faulty("atomics:0>1", 1);
    assert_eq!(columns, ["right", "right", "right", "FAILED"]);
    assert_eq!(further(&outcome, "0>1"), ["wrong", "right", "right", "right"]);
    for said in [
        "kernel atomics wrong: 1024 of 1024 sums are wrong; 1024 words never changed",
        "Copies are right: only programs whose kernels access peer memory are affected",
    ] {
        assert!(outcome.stdout.contains(said), "no {said}: {}", outcome.stdout);
    }
    let lost = doctor("lost:0>1").arg("0>1").plain();
    assert_eq!(further(&lost, "0>1"), ["wrong", "wrong", "right", "right"]);
}

#[test]
fn flags_that_arrive_before_their_data_fail() {
    let (columns, outcome) = faulty("order:0>1", 1);
    assert_eq!(columns, ["right", "right", "right", "FAILED"]);
    assert_eq!(further(&outcome, "0>1"), ["right", "wrong", "right", "right"]);
    for said in [
        "words arrived after their flag, the first in round ",
        "Copies are right: only programs whose kernels access peer memory are affected",
    ] {
        assert!(outcome.stdout.contains(said), "no {said}: {}", outcome.stdout);
    }
    let lost = doctor("lost:0>1").arg("0>1").plain();
    assert!(
        lost.stdout.contains("kernel flags wrong: a flag that a kernel stored never arrived (round 1)"),
        "{}",
        lost.stdout
    );
}

#[test]
fn pair_is_verified_without_flags_of_kernels_and_that_is_said() {
    let outcome = doctor("code:cuModuleGetFunction:500@4").arg("0>1").plain();
    assert_eq!(row(&outcome, "0>1"), ["right", "right", "right", "verified"], "{}", outcome.stdout);
    assert_eq!(further(&outcome, "0>1")[1], "untested");
    let joined = joined(&outcome);
    assert!(joined.contains("By flags between kernels, 0>1 could not be tested."), "{}", outcome.stdout);
    assert!(!joined.contains("Correct them"), "{}", outcome.stdout);
    outcome.assert_success();
}

#[test]
fn atomic_operations_are_not_tested_where_the_link_has_none_and_the_pair_is_verified() {
    let root = scratch("pci");
    fs::create_dir(&root).unwrap();
    let outcome = doctor("atomics:0>1").env("P2PSIM_ROOT", root.to_string_lossy()).plain();
    assert_eq!(
        columns(&outcome, "0>1"),
        ["right", "right", "right", "-", "right", "right", "right", "verified"],
        "{}",
        outcome.stdout
    );
    assert!(outcome.stdout.contains("\nnative atomics     none\n"), "{}", outcome.stdout);
    outcome.assert_success();
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn copies_that_are_wrong_between_processes_only_fail_and_are_said_to_be() {
    for (fault, means, found) in [
        ("ipc:0>1", "IPC", ["right", "right", "wrong", "right"]),
        ("vmm:0>1", "VMM", ["right", "right", "right", "wrong"]),
        ("vmm:0>1,ipc:0>1", "VMM", ["right", "right", "wrong", "wrong"]),
    ] {
        let (columns, outcome) = faulty(fault, 1);
        assert_eq!(columns, ["right", "right", "right", "FAILED"]);
        assert_eq!(further(&outcome, "0>1"), found);
        let joined = joined(&outcome);
        for said in [
            &format!(
                "between processes, {means} wrong: 4096 of 4096 bytes never arrived, the first at 0 (copy 1, to memory of another"
            ),
            "Within a process all is right: only programs are affected whose processes share GPU memory",
            "Verdict: UNSAFE. ",
            "Only tests between processes fail on 0>1: NCCL_P2P_DISABLE=1 keeps NCCL",
        ] {
            assert!(joined.contains(said), "no {said}: {}", outcome.stdout);
        }
        assert!(!joined.contains("P2PSHIM_DENY"), "{}", outcome.stdout);
    }
}

#[test]
fn pair_is_verified_without_memory_that_processes_share_and_that_is_said() {
    const IPC: [&str; 4] = ["right", "right", "untested", "right"];
    const VMM: [&str; 4] = ["right", "right", "right", "untested"];
    for (fault, columns, why) in [
        ("code:cuIpcGetMemHandle:801@1", IPC, "cuIpcGetMemHandle returned CUDA_ERROR_NOT_SUPPORTED (801)"),
        // Elsewhere these mean that a device has faulted.
        ("code:cuIpcGetMemHandle:999@1", IPC, "cuIpcGetMemHandle returned CUDA_ERROR_UNKNOWN (999)"),
        ("code:cuIpcOpenMemHandle_v2:999@2", IPC, "cuIpcOpenMemHandle_v2 returned CUDA_ERROR_UNKNOWN (999)"),
        ("code:cuIpcOpenMemHandle_v2:800@1", IPC, "cuIpcOpenMemHandle_v2 returned CUDA_ERROR_NOT_PERMITTED (800)"),
        ("code:cuMemCreate:801@1", VMM, "cuMemCreate returned CUDA_ERROR_NOT_SUPPORTED (801)"),
        (
            "code:cuMemExportToShareableHandle:999@1",
            VMM,
            "cuMemExportToShareableHandle returned CUDA_ERROR_UNKNOWN (999)",
        ),
        (
            "code:cuMemImportFromShareableHandle:999@2",
            VMM,
            "cuMemImportFromShareableHandle returned CUDA_ERROR_UNKNOWN (999)",
        ),
    ] {
        let outcome = doctor(fault).arg("0>1").plain();
        assert_eq!(row(&outcome, "0>1"), ["right", "right", "right", "verified"], "{}", outcome.stdout);
        assert_eq!(further(&outcome, "0>1"), columns);
        let joined = joined(&outcome);
        let (name, means) = if columns == IPC { ("IPC", "IPC handle") } else { ("VMM", "file descriptor") };
        for said in [
            format!("between processes, {name} untested: {why}"),
            format!("Between processes by {means}, 0>1 could not be tested."),
        ] {
            assert!(joined.contains(&said), "no {said}: {}", outcome.stdout);
        }
        assert!(!joined.contains("Correct them"), "{}", outcome.stdout);
        outcome.assert_success();
    }
}

#[test]
fn hanging_copy_between_processes_fails_at_the_time_out_and_leaves_no_process() {
    let outcome = doctor("ipc-hang:0>1").arg("--timeout").arg("11").plain();
    assert_eq!(row(&outcome, "0>1"), ["right", "right", "right", "FAILED"], "{}", outcome.stdout);
    assert_eq!(further(&outcome, "0>1"), ["right", "right", "hung", "-"]);
    assert_eq!(columns(&outcome, "1>0")[7], "verified");
    assert!(
        outcome.stdout.contains("between processes, IPC hung: it had not finished after 11 s"),
        "{}",
        outcome.stdout
    );
    assert!(!outcome.stdout.contains("does not end"), "{}", outcome.stdout);
    assert_eq!(outcome.status, "exit status: 1");
    // No other test has this time-out.
    let commands = fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
    let left = commands.filter(|command| String::from_utf8_lossy(command).contains("--timeout\x0011\x00")).count();
    assert_eq!(left, 0);
}

/// A run in which copies of both directions were under way at the same time: on a busy machine they may miss each other in all three
/// rounds of one run.
fn that_met(doctor: &Program) -> Outcome {
    let failed = (0..10).map(|_| doctor.plain()).find(|outcome| outcome.status == "exit status: 1");
    failed.expect("all pairs at once were right in ten runs")
}

#[test]
fn pairs_that_are_wrong_only_while_all_copy_fail_and_are_said_to_be() {
    let outcome = that_met(&doctor("crowd:0>1"));
    assert_eq!(columns(&outcome, "1>0").last().map(String::as_str), Some("verified"), "{}", outcome.stdout);
    assert_eq!(row(&outcome, "0>1"), ["right", "right", "right", "FAILED"]);
    let joined = joined(&outcome);
    for said in [
        "all pairs at once wrong on 0>1 0>1 all pairs at once wrong: ",
        "bytes never arrived",
        "(round ",
        "Each pair alone is right: only programs are affected that copy between several pairs at once",
        "Verdict: UNSAFE. Peer access loses data or hangs on 0>1,",
        "P2PSHIM_DENY='0-1'",
    ] {
        assert!(joined.contains(said), "no {said}: {}", outcome.stdout);
    }
    let alone = doctor("crowd:0>1").arg("0>1").plain();
    alone.assert_success();
    assert!(!alone.stdout.contains("all pairs at once"), "{}", alone.stdout);
    let folder = scratch("cache");
    let json = that_met(&doctor("crowd:0>1").arg("--json").env("XDG_CACHE_HOME", folder.to_string_lossy()));
    let kept = support::verdicts(&folder).into_iter().map(|file| fs::read(file).unwrap());
    let kept: Vec<bool> = kept.map(|text| String::from_utf8_lossy(&text).contains("\nall-pairs wrong ")).collect();
    assert_eq!((kept.len(), kept.iter().filter(|failed| **failed).count()), (2, 1));
    fs::remove_dir_all(folder).unwrap();
    let expression =
        "[(p['verdict'], p['parts']['all-pairs']['result'], p['all_pairs_at_once_gb_per_s']) for p in r['pairs']]";
    assert_eq!(self::json(&json, expression), "[('failed', 'wrong', None), ('verified', 'right', None)]\n");
}

#[test]
fn pairs_that_cannot_all_be_enabled_at_once_are_verified_and_that_is_said() {
    let outcome = doctor("").env("P2PSIM_DEVICES", "3").env("P2PSIM_MAX_PEERS", "1").plain();
    outcome.assert_success();
    let joined = joined(&outcome);
    let why = "all pairs at once untested: cuCtxEnablePeerAccess returned CUDA_ERROR_TOO_MANY_PEERS (711)";
    assert_eq!(joined.matches(why).count(), 1, "{}", outcome.stdout);
    let said = "While all pairs copy at once, all 6 pairs could not be tested.";
    assert!(joined.contains(said), "{}", outcome.stdout);
}

#[test]
fn pairs_that_hang_only_while_all_copy_fail_at_the_time_out() {
    let outcome = that_met(&doctor("crowd-hang:0>1").arg("--timeout").arg("12"));
    assert_eq!(outcome.status, "exit status: 1");
    let joined = joined(&outcome);
    for said in ["all pairs at once hung on 0>1", "0>1 all pairs at once hung: its copies had not ended after"] {
        assert!(joined.contains(said), "no {said}: {}", outcome.stdout);
    }
    assert!(joined.contains("While all pairs copy at once, 1>0 could not be tested"), "{}", outcome.stdout);
}

/// The tests of a pair with `--full` before all memory.
const FULL: usize = 13;

/// The columns of a pair with `--full` up to the verdict.
fn full(fault: &str) -> ([Vec<String>; 2], Outcome) {
    let outcome = doctor(fault).arg("--full").plain();
    let columns = ["0>1", "1>0"].map(|pair| {
        let row = outcome.stdout.lines().find(|line| line.starts_with(&format!("{pair}      ")));
        let row = row.unwrap_or_else(|| panic!("no {pair}: {}{:?}", outcome.stdout, outcome.shim));
        row.split_whitespace().skip(1).take(FULL + 2).map(str::to_owned).collect()
    });
    (columns, outcome)
}

#[test]
fn window_smaller_than_memory_fails_with_full_only() {
    let usual = doctor("window:0>1").plain();
    usual.assert_success();
    assert_eq!(columns(&usual, "0>1"), ["right", "right", "right", "right", "right", "right", "right", "verified"]);
    assert!(!usual.stdout.contains("  memory  "), "{}", usual.stdout);
    let ([lost, right], outcome) = full("window:0>1");
    assert_eq!(lost, [&["right"; FULL][..], &["wrong", "FAILED"]].concat(), "{}", outcome.stdout);
    assert_eq!(right, [&["right"; FULL][..], &["right", "verified"]].concat());
    assert_eq!(outcome.status, "exit status: 1");
    let joined = joined(&outcome);
    for said in [
        "all memory wrong: right in the first 2.0 GiB that were allocated, wrong after 2.9 GiB: 1048576 of 1048576 bytes never arrived",
        "The first part of memory is right: only programs are affected that use more of it",
        "Verdict: UNSAFE. Peer access loses data or hangs on 0>1,",
        "P2PSHIM_DENY='0-1'",
    ] {
        assert!(joined.contains(said), "no {said}: {}", outcome.stdout);
    }
}

#[test]
fn full_right_pairs_are_verified_and_measured() {
    let (pairs, outcome) = full("");
    let right = [&["right"; FULL][..], &["right", "verified"]].concat();
    assert_eq!(pairs, [right.as_slice(); 2], "{}", outcome.stdout);
    for shape in ["all-to-all         right", "all-reduce         right"] {
        assert!(outcome.stdout.contains(&format!("\n{shape}\n")), "{}", outcome.stdout);
    }
    outcome.assert_success();
    let speeds = "all(p['parts'][part]['result'] == 'right' and p[k] > 0 for part in ['all-memory', 'all-reduce'] for p in r['pairs'] for k in ['gb_per_s', 'staged_gb_per_s', 'all_pairs_at_once_gb_per_s'])";
    assert_eq!(json(&doctor("").arg("--full").arg("--json").plain(), speeds), "True\n");
    let both = doctor("").arg("--full").arg("--quick").plain();
    assert_eq!((both.status.as_str(), both.stdout.as_str()), ("exit status: 2", ""));
}

#[test]
fn full_pair_is_verified_where_memory_cannot_be_filled_and_that_is_said() {
    for (fault, why) in [
        ("code:cuMemGetInfo_v2:801@1", "cuMemGetInfo_v2 returned CUDA_ERROR_NOT_SUPPORTED (801)"),
        // The first chunk is the fifth allocation; more is refused, as where a window for peers is used up.
        (
            "code:cuMemAlloc_v2:2@6",
            "right in the first 1.0 GiB; the driver allocates no more, although 6.9 GiB are free",
        ),
    ] {
        let ([forth, back], outcome) = full(fault);
        let expected = [&["right"; FULL][..], &["untested", "verified"]].concat();
        assert!(forth == expected && back == expected, "{}", outcome.stdout);
        outcome.assert_success();
        let joined = joined(&outcome);
        let verdict = "In all of the memory, 0>1 1>0 could not be tested.";
        assert!(joined.contains(&format!("all memory untested: {why}")), "no {why}: {}", outcome.stdout);
        assert!(joined.contains(verdict) && !joined.contains("Correct them"), "{}", outcome.stdout);
    }
}

#[test]
fn full_failure_stays_kept_until_full_finds_the_pair_right() {
    let folder = scratch("cache");
    let failed = |fault: &str, full: bool| {
        let doctor = doctor(fault).env("XDG_CACHE_HOME", folder.to_string_lossy()).arg("0>1");
        let doctor = doctor.env("P2PSIM_ROOT", "/nonexistent");
        (if full { doctor.arg("--full") } else { doctor }).plain();
        let files: Vec<Vec<u8>> = support::verdicts(&folder).iter().map(|file| fs::read(file).unwrap()).collect();
        assert_eq!(files.len(), 1);
        String::from_utf8_lossy(&files[0]).contains("\nall-memory wrong ")
    };
    assert!(failed("window:0>1", true));
    assert!(failed("window:0>1", false), "the test without it says nothing of what it found");
    assert!(!failed("", true));
    assert!(!failed("window:0>1", false));
    fs::remove_dir_all(&folder).unwrap();
}

/// The results of the tests that `--full` makes besides, by pair.
const CONSUMERS: &str = "[[p['parts'][k]['result'] for k in ['flags', 'pull', 'll', 'll128', \
    'ipc', 'ipc-kernels']] for p in r['pairs']]";

#[test]
fn full_tests_shaped_like_nccl_and_custom_all_reduces_find_what_copies_do_not() {
    let (fault, folder) = ("ll:0>1,pull:0>1,ll128:1>0,ipc-kernels:1>0", scratch("cache"));
    let cache = ("XDG_CACHE_HOME", folder.to_string_lossy());
    let outcome = doctor(fault).args(&["--full", "--json"]).env(cache.0, &*cache.1).plain();
    let expected = "[['right', 'wrong', 'wrong', 'right', 'right', 'wrong'], \
                    ['right', 'right', 'right', 'wrong', 'right', 'wrong']]\n";
    assert_eq!(json(&outcome, CONSUMERS), expected);
    let detail = json(&outcome, "r['pairs'][0]['parts']['pull']['detail']");
    assert!(detail.contains(" words arrived after their flag, the first in round 2"), "{detail}");
    assert_eq!(outcome.status, "exit status: 1");
    // A pair that has failed is not filled.
    assert_eq!(json(&outcome, "[p['parts'].get('all-memory') for p in r['pairs']]"), "[None, None]\n");
    let run = Program::new(command()).args(&["run", "--sim", "2", "--no-check", "--no-report", "sh", "-c"]);
    let run = run.arg("echo $NCCL_PROTO $NCCL_P2P_DISABLE").env("P2PSIM_FAULT", fault).env(cache.0, &*cache.1);
    assert_eq!(run.plain().stdout, "^LL,LL128 1\n");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn full_kernels_of_two_processes_that_hang_fail_at_the_time_out() {
    let outcome = doctor("ipc-kernels-hang:0>1").args(&["--full", "--timeout", "10"]).arg("0>1").plain();
    let row = outcome.stdout.lines().find(|line| line.starts_with("0>1      right")).unwrap();
    assert_eq!(row.split_whitespace().skip(FULL).take(3).collect::<Vec<_>>(), ["hung", "-", "FAILED"], "{row}");
    for said in ["between processes, kernels hung: it had not finished after 10 s", "Verdict: UNSAFE. Kernels of two"] {
        assert!(outcome.stdout.contains(said), "no {said}: {}", outcome.stdout);
    }
    assert_eq!(outcome.status, "exit status: 1");
}

#[test]
fn kernels_of_all_gpus_that_lose_data_at_once_only_fail_and_are_said_to() {
    let outcome = that_met(&doctor("all-to-all:0>1"));
    assert_eq!(row(&outcome, "0>1"), ["right", "right", "right", "FAILED"], "{}", outcome.stdout);
    let joined = joined(&outcome);
    for said in [
        "Verdict: UNSAFE. While kernels store from each GPU to each other, data is lost or they hang on 0>1",
        "all-to-all wrong on 0>1 0>1 all-to-all by kernels wrong: 4194304 of 4194304 bytes never arrived",
        "Each pair alone is right",
    ] {
        assert!(joined.contains(said), "no {said}: {}", outcome.stdout);
    }
}

/// The results of tests in the shape of work, by pair.
const SHAPES: &str = "[[p['parts'].get(k, {}).get('result') for k in ['copies', 'pools', 'graphs', 'loads', \
    'stores', 'all-reduce']] for p in r['pairs']]";

#[test]
fn faults_of_one_shape_of_work_fail_there_alone() {
    // Kernels of one kind access memory with granted access, too; a pair that failed is not tested together with others.
    for (fault, is_full, wrong, untested, verdict) in [
        (
            "pool:0>1",
            false,
            &[1][..],
            &[2, 5][..],
            "UNSAFE. Memory of pools, and mapped memory, with granted access loses data on 0>1",
        ),
        ("graph:0>1", true, &[2], &[5], "UNSAFE. Copies that a graph makes lose data on 0>1"),
        ("loads:0>1", false, &[1, 3], &[2, 5], "UNSAFE. Peer access loses data or hangs on 0>1"),
        ("stores:0>1", true, &[1, 4], &[5], "UNSAFE. Peer access loses data or hangs on 0>1"),
    ] {
        let level: &[&str] = if is_full { &["--full"] } else { &[] };
        let outcome = doctor(fault).arg("--json").args(level).plain();
        let mut expected = ["'right'"; 6];
        wrong.iter().for_each(|&place| expected[place] = "'wrong'");
        untested.iter().for_each(|&place| expected[place] = "None");
        let found = json(&outcome, SHAPES);
        assert!(found.starts_with(&format!("[[{}], ", expected.join(", "))), "{fault}: {found}");
        let summary = json(&outcome, "r['summary']");
        assert!(summary.starts_with(verdict), "{fault}: {summary}");
    }
    let plain = doctor("pool:0>1,graph:1>0").arg("--json").plain();
    let found = json(&plain, SHAPES);
    assert_eq!(
        found,
        "[['right', 'wrong', None, 'right', 'right', None], ['right', 'right', None, 'right', 'right', None]]\n"
    );
}

#[test]
fn all_reduce_of_several_gpus_names_the_pair_that_loses() {
    let outcome = doctor("all-reduce:2>0").env("P2PSIM_DEVICES", "3").arg("--full").plain();
    let joined = joined(&outcome);
    assert!(joined.contains("all-reduce wrong on 2>0 "), "{}", outcome.stdout);
    assert!(joined.contains("2>0 all-reduce wrong: "), "{}", outcome.stdout);
    assert!(joined.contains("UNSAFE. Peer access loses data or hangs on 2>0, although"), "{}", outcome.stdout);
    let verdicts = [" verified ", " FAILED "].map(|word| joined.matches(word).count());
    assert_eq!((verdicts, outcome.status.as_str()), ([5, 1], "exit status: 1"), "{}", outcome.stdout);
}

#[test]
fn soak_finds_what_fails_after_many_copies_only() {
    let fault = "after:0>1:600";
    doctor(fault).plain().assert_success();
    let outcome = doctor(fault).args(&["--soak", "5"]).plain();
    let joined = joined(&outcome);
    assert_eq!(outcome.status, "exit status: 1", "{}", outcome.stdout);
    assert!(joined.contains("all pairs at once wrong on 0>1"), "{}", outcome.stdout);
    assert!(joined.contains(" never arrived, the first at ") && joined.contains(", after "), "{}", outcome.stdout);
}

/// The text as if no line had an end.
fn joined(outcome: &Outcome) -> String {
    outcome.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn hanging_copy_fails_at_the_time_out_and_other_pairs_are_tested() {
    let outcome = doctor("hang:0>1").arg("--timeout").arg("10").plain();
    assert_eq!(row(&outcome, "0>1"), ["hung", "-", "-", "FAILED"]);
    assert_eq!(row(&outcome, "1>0")[3], "verified");
    assert!(outcome.stdout.contains("copies hung: it had not finished after 10 s"), "{}", outcome.stdout);
    assert_eq!(outcome.status, "exit status: 1");
}

#[test]
fn device_fault_fails_and_later_tests_are_not_blamed() {
    let outcome = doctor("code:cuLaunchKernel:700@1").arg("0>1").plain();
    assert_eq!(row(&outcome, "0>1"), ["right", "wrong", "untested", "FAILED"]);
    assert!(outcome.stdout.contains("cuLaunchKernel returned CUDA_ERROR_ILLEGAL_ADDRESS (700)"), "{}", outcome.stdout);
    assert_eq!(outcome.status, "exit status: 1");
}

#[test]
fn what_cannot_be_tested_is_said_and_is_no_failure_of_the_pair() {
    let outcome = doctor("code:cuModuleLoadData:221@1").arg("0>1").plain();
    assert_eq!(row(&outcome, "0>1"), ["right", "untested", "untested", "undecided"]);
    assert!(outcome.stdout.contains("libnvidia-ptxjitcompiler"), "{}", outcome.stdout);
    assert_eq!(outcome.status, "exit status: 3");
    let outcome = doctor("code:cuCtxEnablePeerAccess:711@1").arg("0>1").plain();
    assert_eq!(row(&outcome, "0>1"), ["-", "-", "-", "undecided"]);
    assert!(outcome.stdout.contains("cuCtxEnablePeerAccess returned CUDA_ERROR_TOO_MANY_PEERS (711)"));
    assert_eq!(outcome.status, "exit status: 3");
}

#[test]
fn no_path_is_no_failure() {
    let outcome = doctor("").env("P2PSIM_NO_P2P", "0>1").plain();
    assert_eq!(row(&outcome, "0>1"), ["-", "-", "-", "no path"]);
    assert_eq!(row(&outcome, "1>0"), ["right", "right", "right", "verified"]);
    outcome.assert_success();
}

#[test]
fn named_pairs_alone_are_tested() {
    let outcome = doctor("").env("P2PSIM_DEVICES", "4").arg("2>0").arg("1-3").plain();
    outcome.assert_success();
    let tested: Vec<&str> =
        outcome.stdout.lines().filter(|line| line.contains("verified")).map(|line| &line[..3]).collect();
    assert_eq!(tested, ["2>0", "1>3", "3>1"]);
    let verdict = "Verdict: peer access can be trusted on 2>0 1>3 3>1. Data arrived in every test there. The other pairs were not tested.";
    let said = outcome.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains(verdict) && said.contains(" Only --full tests copies in a graph,"), "{}", outcome.stdout);
}

#[test]
fn pair_that_is_none_or_absent_is_refused() {
    let absent = doctor("").arg("0>2").plain();
    assert_eq!(absent.status, "exit status: 3");
    assert!(absent.shim[0].contains("there is no GPU 2: CUDA reports 2"), "{:?}", absent.shim);
    let none = doctor("").arg("0:1").plain();
    assert_eq!(none.status, "exit status: 2");
    assert!(none.stderr.contains("is not a pair of GPUs"), "{}", none.stderr);
}

#[test]
fn one_device_has_no_pair() {
    let outcome = doctor("").env("P2PSIM_DEVICES", "1").plain();
    outcome.assert_success();
    assert!(outcome.stdout.contains("no pair: peer access needs two GPUs, and CUDA reports 1"), "{}", outcome.stdout);
}

#[test]
fn driver_without_devices_is_said() {
    let outcome = doctor("").env("P2PSIM_DEVICES", "0").plain();
    assert_eq!(outcome.status, "exit status: 3");
    let said = "p2pshim: nothing was tested: cuInit returned CUDA_ERROR_NO_DEVICE (100): no GPU";
    assert!(outcome.shim[0].starts_with(said), "{:?}", outcome.shim);
    assert!(outcome.stdout.contains("kernel parameters"), "{}", outcome.stdout);
}

#[test]
fn driver_that_cannot_be_loaded_is_said() {
    // The library path comes first, whatever driver the machine has.
    let folder = scratch("driver");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("libcuda.so.1"), "").unwrap();
    let outcome = Program::new(command()).arg("doctor").env("LD_LIBRARY_PATH", folder.to_string_lossy()).plain();
    assert_eq!(outcome.status, "exit status: 3");
    assert!(outcome.shim[0].contains("libcuda.so.1") && outcome.shim[0].contains("Is NVIDIA's driver installed?"));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn json_is_what_python_reads() {
    let outcome = doctor("lost:0>1").arg("--json").plain();
    assert_eq!(outcome.status, "exit status: 1");
    let file = scratch("json");
    fs::write(&file, &outcome.stdout).unwrap();
    let script = "import json, sys\nreport = json.load(open(sys.argv[1]))\n\
        print([(p['from'], p['to'], p['verdict'], p['parts']['loads']['result']) for p in report['pairs']], \
        len(report['devices']), report['cuda_version'], report['status'], len(report['machine']['gpus']))";
    let python = Program::new("python3").arg("-c").arg(script).arg(file.to_string_lossy()).plain();
    assert_eq!(
        python.stdout, "[(0, 1, 'failed', 'wrong'), (1, 0, 'verified', 'right')] 2 13000 1 2\n",
        "{}",
        python.stderr
    );
    fs::remove_file(file).unwrap();
    let nothing = doctor("").env("P2PSIM_DEVICES", "0").arg("--json").plain();
    assert!(nothing.stdout.contains("\"error\":\"cuInit returned CUDA_ERROR_NO_DEVICE (100)"), "{}", nothing.stdout);
}

/// Python's value of an expression over the JSON, `r`.
fn json(outcome: &Outcome, expression: &str) -> String {
    let file = scratch("json");
    fs::write(&file, &outcome.stdout).unwrap();
    let script = format!("import json, sys\nr = json.load(open(sys.argv[1]))\nprint(({expression}))");
    let python = Program::new("python3").arg("-c").arg(script).arg(file.to_string_lossy()).plain();
    fs::remove_file(file).unwrap();
    assert_eq!(python.status, "exit status: 0", "{}{}", python.stderr, outcome.stdout);
    python.stdout
}

#[test]
fn json_has_every_field_that_the_tables_have() {
    let outcome = doctor("").arg("--json").plain();
    let pair = "all(r['pairs'][0][k] > 0 for k in ['gb_per_s', 'staged_gb_per_s', 'staged_by_p2pshim_gb_per_s', 'latency_us', 'staged_latency_us'])";
    assert_eq!(json(&outcome, pair), "True\n");
    assert_eq!(
        json(&outcome, "r['pairs'][0]['attributes']['native_atomics'], r['pairs'][0]['has_path']"),
        "(True, True)\n"
    );
    assert_eq!(json(&outcome, "r['verdict'], r['status'], r['error'], r['simulated']"), "('safe', 0, None, False)\n");
    assert_eq!(
        json(&outcome, "[x['version'] for x in r['runtimes']]"),
        "[13000, 12090, 11080, 10020, 10010, 10000, 9000, 8000]\n"
    );
    let keys = "sorted(r['devices'][0]), 'container' in r['machine'], r['machine']['gpus'][0]['numa_node']";
    let keys_of_device = "'bar1_bytes', 'bus_id', 'c2c_links', 'fabric', 'mig', 'name', 'nvlink_mb_per_s', 'nvlink_version', 'nvlinks_up'";
    let expected = format!("([{keys_of_device}, 'ordinal', 'uuid', 'virtualization'], True, None)\n");
    assert_eq!(json(&outcome, keys), expected);
    let failed = doctor("drop:0>1").arg("--json").arg("0>1").plain();
    assert_eq!(json(&failed, "r['verdict'], len(r['advice']), r['pairs'][0]['latency_us']"), "('unsafe', 2, None)\n");
}

#[test]
fn matrix_and_verdict_say_it_in_words() {
    let outcome = doctor("").env("P2PSIM_DEVICES", "3").env("P2PSIM_NO_P2P", "0>2").plain();
    outcome.assert_success();
    let line = |start: &str| {
        let found = outcome.stdout.lines().find(|line| line.starts_with(start));
        found.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("Peer access"), "Peer access GPU 0 GPU 1 GPU 2");
    assert!(outcome.stdout.contains("\nGPU 0                  -     yes      no\n"), "{}", outcome.stdout);
    assert_eq!(line("native atomics"), "native atomics all that have a path");
    let said = outcome.stdout.replace('\n', " ");
    assert!(said.contains("Verdict: peer access can be trusted where there is a path; 0>2 have none"), "{said}");
    let unsafe_one = doctor("drop:0>1").plain();
    assert!(unsafe_one.stdout.contains("Verdict: UNSAFE. "), "{}", unsafe_one.stdout);
    let none = doctor("").env("P2PSIM_NO_P2P", "0-1").plain();
    assert!(none.stdout.contains("Verdict: there is no peer access here:"), "{}", none.stdout);
    let unknown = doctor("code:cuModuleLoadData:221@1").arg("0>1").plain();
    assert!(unknown.stdout.contains("Verdict: not known: 0>1 could not be verified"), "{}", unknown.stdout);
}

#[test]
fn slow_pair_is_safe_and_advised_against() {
    let outcome = doctor("slow:0>1").plain();
    outcome.assert_success();
    assert_eq!(row(&outcome, "0>1")[3], "verified");
    let said = outcome.stdout.replace('\n', " ");
    assert!(
        said.contains("Direct copies are slower than those through the host for 0>1: P2PSHIM_DENY='0-1'"),
        "{said}"
    );
}

#[test]
fn staged_copies_are_measured_where_there_is_no_path() {
    let outcome = doctor("").env("P2PSIM_NO_P2P", "0-1").arg("--json").arg("0>1").plain();
    let expression = "r['pairs'][0]['gb_per_s'], r['pairs'][0]['staged_gb_per_s'] > 0, r['pairs'][0]['staged_by_p2pshim_gb_per_s'] > 0, r['verdict']";
    assert_eq!(json(&outcome, expression), "(None, True, True, 'no-peer-access')\n");
}

#[test]
fn simulated_gpus_by_option_are_said_to_be_and_leave_verdicts_on_their_faults() {
    let folder = scratch("cache");
    let outcome =
        Program::new(command()).arg("doctor").arg("--sim").arg("3").env("XDG_CACHE_HOME", folder.to_string_lossy());
    let outcome = outcome.plain();
    outcome.assert_success();
    assert!(outcome.stdout.contains("\n3 simulated GPUs: nothing here is a measurement"), "{}", outcome.stdout);
    assert_eq!(outcome.stdout.lines().filter(|line| line.contains("verified")).count(), 6);
    let verdicts = support::verdicts(&folder);
    assert_eq!(verdicts.len(), 6);
    assert!(verdicts.iter().all(|file| fs::read_to_string(file).unwrap().contains("\nsimulated ;\n")), "{verdicts:?}");
    fs::remove_dir_all(folder).unwrap();
    let faulty = Program::new(command()).arg("doctor").arg("--sim").arg("2").env("P2PSIM_FAULT", "hang:1>0");
    let faulty = faulty.arg("--timeout").arg("10").plain();
    assert_eq!(faulty.status, "exit status: 1");
    assert!(faulty.stdout.contains("these GPUs are simulated"), "{}", faulty.stdout);
}

#[test]
fn simulated_gpus_that_are_not_there_are_no_verdict() {
    let folder = scratch("alone");
    fs::create_dir(&folder).unwrap();
    fs::copy(command(), folder.join("p2pshim")).unwrap();
    let outcome = Program::new(folder.join("p2pshim")).arg("doctor").arg("--sim").arg("2").plain();
    assert_eq!(outcome.status, "exit status: 3");
    assert!(outcome.shim[0].contains("the simulated GPUs are not there"), "{:?}", outcome.shim);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn verdicts_are_those_that_the_shim_takes_over() {
    let folder = scratch("cache");
    let cache = folder.to_string_lossy().into_owned();
    // As on real GPUs, where nothing says what is wrong.
    let doctor = |fault: &str| doctor(fault).env("P2PSIM_ROOT", "/nonexistent").env("XDG_CACHE_HOME", &cache).plain();
    let outcome = doctor("lost:0>1");
    assert!(outcome.stdout.contains(&format!("P2PSHIM_VERIFY=full takes these verdicts from {cache}/p2pshim")));
    assert_eq!(support::verdicts(&folder).len(), 2);
    // The path is whole here: what the shim says it has from the doctor.
    let copies = Program::case("never_enables-12").env("P2PSHIM_VERIFY", "full").env("XDG_CACHE_HOME", &cache);
    let copies = copies.env("P2PSIM_ROOT", "/nonexistent");
    let said = copies.clone().findings_apart().preloaded().shim.join("\n");
    assert!(
        said.contains("an earlier check failed: memory with granted access: 1048576 of 1048576 bytes never arrived"),
        "{said}"
    );
    // And what it says of a whole one goes over it.
    doctor("").assert_success();
    assert!(copies.findings_apart().preloaded().shim.is_empty());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn env_is_a_script_that_keeps_programs_off_what_failed() {
    let printed = |fault: &str, more: &[&str]| doctor(fault).arg("--env").args(more).plain();
    let right = printed("", &[]);
    assert_eq!((right.status.as_str(), right.stdout.lines().count()), ("exit status: 0", 2), "{}", right.stdout);
    let run = |outcome: &Outcome| {
        assert_eq!(outcome.status, "exit status: 1");
        let script = "\necho ${P2PSHIM_DENY-none} $NCCL_P2P_DISABLE ${UCX_TLS-none} ${GGML_CUDA_P2P-unset}";
        let shell = Program::new("/bin/sh").arg("-c").arg(outcome.stdout.clone() + script);
        shell.env("GGML_CUDA_P2P", "1").plain().stdout
    };
    let uuids = ["00", "01"].map(|number| format!("GPU-70327073-696d-2047-5055-202e2e2e2e{number}"));
    // Kernels alone; and memory of another process alone.
    assert_eq!(run(&printed("lost:1>0", &[])), format!("{} 1 none unset\n", uuids.join("-")));
    let shared = printed("ipc:1>0", &["--quick"]);
    assert_eq!(run(&shared), "none 1 ^cuda_ipc 1\n");
    assert!(shared.stdout.contains("\n# Not tested, and nothing is switched off because of it: "), "{}", shared.stdout);
}

/// NCCL as far as its diagnostics go: of that version, on GPUs that are simulated.
const NCCL: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int ncclGetVersion(int *version) { *version = VERSION; return 0; }
int ncclCommInitAll(void **all, int count, const int *devices) {
    const char *asked = getenv("NCCL_RUN_DIAGNOSTICS");
    if (asked == NULL || *asked != '1') return 0;
    printf("host:7 NCCL DIAG === NCCL Diagnostics ===\nhost:7 NCCL INFO \033[31m\n");
    printf("host:7 NCCL DIAG [OK]   p2p: all %d directed GPU P2P edges verified\n", count * (count - 1));
    if (VERSION > 30000) pause();
    return devices[count - 1] != count - 1;
}
"#;

#[test]
fn nccl_diagnostics_are_shown_if_it_has_them_and_the_user_asks() {
    let folder = scratch("nccl");
    fs::create_dir(&folder).unwrap();
    let built = |version: &str| {
        let (source, library) = (folder.join("nccl.c"), folder.join(version));
        fs::write(&source, NCCL).unwrap();
        let define = format!("-DVERSION={version}");
        let mut gcc = std::process::Command::new("gcc");
        gcc.args(["-shared", "-fPIC", &define, "-o"]).arg(&library).arg(&source);
        assert!(gcc.status().unwrap().success());
        library.display().to_string()
    };
    let [new, old, hangs] = ["23203", "22809", "30001"].map(built);
    let asked = |library: &str| doctor("").args(&["--quick", &format!("--nccl={library}")]).plain();
    let shown = asked(&new);
    shown.assert_success();
    let said = "\nNCCL 2.32.3        [OK]   p2p: all 2 directed GPU P2P edges verified\n";
    assert!(shown.stdout.contains(said) && !shown.stdout.contains("NCCL INFO"), "{}", shown.stdout);
    let said = format!("\nNCCL 2.28.9        too old: NCCL has diagnostics since 2.31 ({old})\n");
    let refused = asked(&old).stdout;
    assert!(refused.contains(&said), "{refused}");
    let hung = doctor("").args(&["--quick", "--timeout", "1", &format!("--nccl={hangs}")]).plain().stdout;
    assert!(hung.contains("\nNCCL 3.0.1         it had not finished after 3 s ("), "{hung}");
    let packages = folder.join("lib/python3.12/site-packages/nvidia/nccl/lib");
    fs::create_dir_all(&packages).unwrap();
    fs::copy(new, packages.join("libnccl.so.2")).unwrap();
    let found = doctor("").args(&["--quick", "--nccl", "--json"]).env("VIRTUAL_ENV", folder.to_string_lossy()).plain();
    let expected = "('2.32.3', ['[OK]   p2p: all 2 directed GPU P2P edges verified'], None)\n";
    assert_eq!(json(&found, "(r['nccl']['version'], r['nccl']['report'], r['nccl']['error'])"), expected);
    fs::remove_dir_all(folder).unwrap();
}

/// A management library that knows the simulated GPUs: both have 18 NVLinks, a small BAR1, and the second is divided.
const NVML: &str = r#"
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = (void *)(long)(1 + (uuid[strlen(uuid) - 1] - '0'));
    return strncmp(uuid, "GPU-", 4) != 0;
}
int nvmlDeviceGetBAR1MemoryInfo(void *device, unsigned long long *memory) { memory[0] = 256ULL << 20; return 0; }
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later) { *now = device == (void *)2; *later = 0; return 0; }
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *state) { *state = 1; return link < 18 ? 0 : 2; }
int nvmlDeviceGetP2PStatus(void *one, void *other, int index, int *status) { *status = index == 2 && one < other ? 0 : 1; return 0; }
"#;

#[test]
fn management_library_tells_of_nvlink_mig_and_bar1() {
    let folder = scratch("nvml");
    fs::create_dir(&folder).unwrap();
    let source = folder.join("nvml.c");
    fs::write(&source, NVML).unwrap();
    let library = folder.join("libnvidia-ml.so.1");
    let built = std::process::Command::new("gcc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(built.unwrap().success());
    let path = format!("{}:{}", folder.display(), crate::support::path("target/sim/lib").display());
    let doctor = doctor("").env("LD_LIBRARY_PATH", path);
    let outcome = doctor.plain();
    outcome.assert_success();
    for said in [
        "\nGPU 0                  -  NVLink\nGPU 1                yes       -\n",
        "NVLink: NVLink joins them; yes: they have a path",
        "BAR1 256 MiB; MIG on; NVLinks up: 18",
        "BAR1 of GPU 0 and 1 is 256 MiB or less",
    ] {
        assert!(outcome.stdout.contains(said), "no {said}: {}", outcome.stdout);
    }
    let outcome = doctor.arg("--json").plain();
    let expression = "r['devices'][1]['mig'], r['devices'][0]['nvlinks_up'], [p['link'] for p in r['pairs']]";
    assert_eq!(json(&outcome, expression), "(True, 18, ['NVLink', None])\n");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn progress_is_one_line_on_terminals_and_a_line_now_and_then_elsewhere() {
    let script = "\
import os, pty, subprocess, sys
terminal, other = pty.openpty()
run = subprocess.Popen([sys.argv[1], 'doctor', '--sim', '2'], stdout=subprocess.PIPE, stderr=other)
os.close(other)
out = run.stdout.read()
seen = b''
try:
    while True:
        seen += os.read(terminal, 4096)
except OSError:
    pass
print(b'] 0/16 testing' in seen, b'] 0/2 measuring' in seen, seen.endswith(b'\\r\\x1b[K'), b'\\x1b' in out, run.wait())
";
    let python = Program::new("python3").arg("-c").arg(script).arg(command().to_string_lossy()).plain();
    assert_eq!(python.stdout, "True True True False 0\n", "{}", python.stderr);
    // A hang takes long enough for one.
    let piped = doctor("hang:0>1").args(&["0>1", "--timeout", "10"]).plain();
    let is_progress = |line: &str| line.starts_with("doctor: testing") && line.ends_with(", 0 of 8");
    assert!(piped.stderr.lines().any(is_progress), "{}", piped.stderr);
    assert!(!piped.stderr.contains('\x1b'), "{}", piped.stderr);
}

#[test]
fn preloaded_shim_plays_no_part() {
    let outcome = doctor("").arg("0>1").traced_to_stderr();
    outcome.assert_success();
    outcome.assert_silent();
    assert_eq!(row(&outcome, "0>1")[3], "verified");
}

#[test]
fn library_of_the_shim_is_not_needed() {
    let alone = scratch("alone");
    fs::copy(command(), &alone).unwrap();
    let outcome = Program::new(&alone).arg("doctor").arg("0>1").libraries("target/sim/lib").plain();
    outcome.assert_success();
    fs::remove_file(alone).unwrap();
}

/// Names of the first and the last of three simulated GPUs.
const UUIDS: [&str; 2] = ["GPU-70327073-696d-2047-5055-202e2e2e2e00", "GPU-70327073-696d-2047-5055-202e2e2e2e02"];

#[test]
fn devices_are_those_that_the_user_shows_in_the_order_shown() {
    let doctor = |list: &str| doctor("drop:2>0").env("P2PSIM_DEVICES", "3").env("CUDA_VISIBLE_DEVICES", list);
    for list in ["2,0", "2,0,-1,1", &format!("{},{}", UUIDS[1], UUIDS[0])] {
        let quick = doctor(list).arg("--quick").plain();
        assert_eq!(row(&quick, "0>1"), ["wrong", "-", "-", "FAILED"], "{list}");
        assert_eq!(row(&quick, "1>0"), ["right", "-", "-", "verified"], "{list}");
        assert!(!quick.stdout.contains("0>2") && !quick.stdout.contains("2>0"), "{}", quick.stdout);
        let buses = ["0 Simulated GPU  0000:03:00.0", "1 Simulated GPU  0000:01:00.0"];
        let squeezed = quick.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        for bus in buses.map(|bus| bus.replace("  ", " ")) {
            assert!(squeezed.contains(&bus), "no {bus}: {}", quick.stdout);
        }
    }
    for list in ["", "0,0", "GPU-70327073,1", "MIG-70327073-696d-2047-5055-202e2e2e2e00"] {
        let none = doctor(list).arg("--quick").plain();
        let said = format!("{}{}", none.stdout, none.shim.join("\n"));
        assert!(said.contains("cuInit returned CUDA_ERROR_NO_DEVICE"), "{list}: {said}");
    }
}

#[test]
fn forms_for_programs_go_to_files_and_many_machines_are_merged() {
    let folder = crate::support::scratch("fleet");
    std::fs::create_dir(&folder).unwrap();
    let at = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let forms = [
        format!("--json={}", at("a.json")),
        format!("--csv={}", at("a.csv")),
        format!("--prometheus={}", at("a.prom")),
    ];
    let umask = ["-c", "umask 027; exec \"$@\"", "sh", &crate::support::command().to_string_lossy()].map(str::to_owned);
    let doctor_by = umask.iter().fold(Program::new("sh"), |program, word| program.arg(word.as_str()));
    let quick = doctor_by.args(&["doctor", "--timeout", "600", "--quick"]).args(&forms.each_ref().map(String::as_str));
    let outcome = quick.libraries("target/sim/lib").env("P2PSIM_FAULT", "drop:0>1").plain();
    assert_eq!((outcome.status.as_str(), outcome.stdout.as_str()), ("exit status: 1", ""));
    for name in ["a.json", "a.csv", "a.prom"] {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(folder.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o640, "{name}: the umask says who reads it");
    }
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let csv = read("a.csv");
    assert!(csv.starts_with("host,time,machine,summary,from,") && csv.lines().count() == 3, "{csv}");
    assert!(csv.lines().any(|line| line.contains(",failed,") && line.contains(",wrong,")), "{csv}");
    let metrics = read("a.prom");
    for line in
        ["p2pshim_doctor_status 1", "p2pshim_doctor_hints 0", "p2pshim_doctor_pair_verdict{from=\"0\",from_uuid=\"GPU-"]
    {
        assert!(metrics.lines().any(|found| found.starts_with(line)), "{metrics}");
    }
    let is_sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        name.starts_with("p2pshim_doctor_") && value.parse::<f64>().is_ok()
    };
    assert!(metrics.lines().all(|line| line.starts_with("# ") || is_sample(line)), "{metrics}");
    let merged = Program::new(crate::support::command()).args(&["fleet", &folder.to_string_lossy()]).plain();
    assert_eq!(merged.status, "exit status: 1");
    assert!(merged.stdout.starts_with("1 machine: 1 UNSAFE.\n\n"), "{}", merged.stdout);
    let both = doctor("drop:0>1").args(&["--json", "--csv"]).plain();
    assert_eq!(both.status, "exit status: 2");
    std::fs::remove_dir_all(folder).unwrap();
}
