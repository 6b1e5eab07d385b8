//! `p2pshim doctor` on simulated GPUs.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::time::{Duration, Instant};

use support::{Outcome, Program, command, scratch};

fn doctor(fault: &str) -> Program {
    Program::new(command())
        .arg("doctor")
        .libraries("target/sim/lib")
        .env("P2PSIM_FAULT", fault)
        .env("XDG_CACHE_HOME", CACHE)
}

/// Verdicts on simulated GPUs are not for the user's own cache.
const CACHE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/doctor-cache");

/// The columns of a pair's row: copy engine, kernel loads, kernel stores, verdict (which may be two words).
fn row(outcome: &Outcome, pair: &str) -> Vec<String> {
    let row = outcome.stdout.lines().find(|line| line.starts_with(&format!("{pair} ")) && line.split("  ").count() > 4);
    let row = row.unwrap_or_else(|| panic!("no {pair}: {}{:?}", outcome.stdout, outcome.shim));
    row.split("  ").map(str::trim).filter(|column| !column.is_empty()).skip(1).take(4).map(str::to_owned).collect()
}

/// The row of 0>1 with that fault; the other way must be proven, and the status must be as said.
fn faulty(fault: &str, status: i32) -> (Vec<String>, Outcome) {
    let outcome = doctor(fault).plain();
    assert_eq!(row(&outcome, "1>0"), ["right", "right", "right", "proven"], "{}", outcome.stdout);
    assert_eq!(outcome.status, format!("exit status: {status}"), "{}", outcome.stdout);
    (row(&outcome, "0>1"), outcome)
}

#[test]
fn right_every_pair_is_proven_and_has_a_speed() {
    let (columns, outcome) = faulty("", 0);
    assert_eq!(columns, ["right", "right", "right", "proven"]);
    let speeds = outcome.stdout.lines().filter(|line| line.contains("proven"));
    let speeds: Vec<f64> = speeds.map(|line| line.split_whitespace().last().unwrap().parse().unwrap()).collect();
    assert!(speeds.len() == 2 && speeds.iter().all(|&speed| speed > 0.0), "{}", outcome.stdout);
    assert!(!outcome.stdout.contains("Likely cause"), "{}", outcome.stdout);
    outcome.assert_silent();
}

#[test]
fn copies_that_lose_or_change_data_fail_and_kernels_do_not() {
    for (fault, said) in [
        ("drop:0>1", "4096 of 4096 bytes never arrived, the first at 0 (copy 1, on a stream of the source)"),
        ("first:0>1", "4096 of 4096 bytes never arrived"),
        ("corrupt:0>1", "1 of 4096 bytes arrived changed, the first at 0"),
    ] {
        let (columns, outcome) = faulty(fault, 1);
        assert_eq!(columns, ["wrong", "right", "right", "FAILED"], "{fault}");
        assert!(outcome.stdout.contains(&format!("copy engine wrong: {said}")), "{}", outcome.stdout);
        assert!(outcome.stdout.contains("Likely cause for 0>1: "), "{}", outcome.stdout);
    }
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
fn hanging_copy_fails_at_the_time_out_and_other_pairs_are_tested() {
    let start = Instant::now();
    let outcome = doctor("hang:0>1").arg("--timeout").arg("2").plain();
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(row(&outcome, "0>1"), ["hung", "-", "-", "FAILED"]);
    assert_eq!(row(&outcome, "1>0")[3], "proven");
    assert!(outcome.stdout.contains("copy engine hung: it had not ended after 2 s"), "{}", outcome.stdout);
    assert_eq!(outcome.status, "exit status: 1");
}

#[test]
fn device_fault_fails_and_later_tests_are_not_blamed() {
    let outcome = doctor("code:cuLaunchKernel:700@1").arg("0>1").plain();
    assert_eq!(row(&outcome, "0>1"), ["right", "wrong", "untested", "FAILED"]);
    assert!(outcome.stdout.contains("cuLaunchKernel answered CUDA_ERROR_ILLEGAL_ADDRESS (700)"), "{}", outcome.stdout);
    assert_eq!(outcome.status, "exit status: 1");
}

#[test]
fn what_cannot_be_tested_is_said_and_is_no_failure_of_the_pair() {
    let outcome = doctor("code:cuModuleLoadData:221@1").arg("0>1").plain();
    assert_eq!(row(&outcome, "0>1"), ["right", "untested", "untested", "not tested"]);
    assert!(outcome.stdout.contains("libnvidia-ptxjitcompiler"), "{}", outcome.stdout);
    assert_eq!(outcome.status, "exit status: 2");
    let outcome = doctor("code:cuCtxEnablePeerAccess:711@1").arg("0>1").plain();
    assert_eq!(row(&outcome, "0>1"), ["-", "-", "-", "not tested"]);
    assert!(outcome.stdout.contains("cuCtxEnablePeerAccess answered CUDA_ERROR_TOO_MANY_PEERS (711)"));
    assert_eq!(outcome.status, "exit status: 2");
}

#[test]
fn no_path_is_no_failure() {
    let outcome = doctor("").env("P2PSIM_NO_P2P", "0>1").plain();
    assert_eq!(row(&outcome, "0>1"), ["-", "-", "-", "no path"]);
    assert_eq!(row(&outcome, "1>0"), ["right", "right", "right", "proven"]);
    outcome.assert_success();
}

#[test]
fn named_pairs_alone_are_tested() {
    let outcome = doctor("").env("P2PSIM_DEVICES", "4").arg("2>0").arg("1-3").plain();
    outcome.assert_success();
    let tested: Vec<&str> =
        outcome.stdout.lines().filter(|line| line.contains("proven")).map(|line| &line[..3]).collect();
    assert_eq!(tested, ["2>0", "1>3", "3>1"]);
}

#[test]
fn pair_that_is_none_or_absent_is_refused() {
    let absent = doctor("").arg("0>2").plain();
    assert_eq!(absent.status, "exit status: 2");
    assert!(absent.shim[0].contains("there is no GPU 2: CUDA shows 2"), "{:?}", absent.shim);
    let none = doctor("").arg("0:1").plain();
    assert_eq!(none.status, "exit status: 2");
    assert!(none.stderr.contains("is not a pair of GPUs"), "{}", none.stderr);
}

#[test]
fn one_device_has_no_pair() {
    let outcome = doctor("").env("P2PSIM_DEVICES", "1").plain();
    outcome.assert_success();
    assert!(outcome.stdout.contains("no pair: peer access needs two GPUs, and CUDA shows 1"), "{}", outcome.stdout);
}

#[test]
fn driver_without_devices_is_said() {
    let outcome = doctor("").env("P2PSIM_DEVICES", "0").plain();
    assert_eq!(outcome.status, "exit status: 2");
    let said = "p2pshim: nothing was tested: cuInit answered CUDA_ERROR_NO_DEVICE (100): no GPU";
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
    assert_eq!(outcome.status, "exit status: 2");
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
        print([(p['from'], p['to'], p['verdict'], p['kernel_loads']['result']) for p in report['pairs']], \
        len(report['devices']), report['cuda_version'], report['status'], len(report['machine']['gpus']))";
    let python = Program::new("python3").arg("-c").arg(script).arg(file.to_string_lossy()).plain();
    assert_eq!(
        python.stdout, "[(0, 1, 'failed', 'wrong'), (1, 0, 'proven', 'right')] 2 13000 1 2\n",
        "{}",
        python.stderr
    );
    fs::remove_file(file).unwrap();
    let nothing = doctor("").env("P2PSIM_DEVICES", "0").arg("--json").plain();
    assert!(nothing.stdout.contains("\"error\":\"cuInit answered CUDA_ERROR_NO_DEVICE (100)"), "{}", nothing.stdout);
}

#[test]
fn preloaded_shim_plays_no_part() {
    let outcome = doctor("").arg("0>1").traced_to_stderr();
    outcome.assert_success();
    outcome.assert_silent();
    assert_eq!(row(&outcome, "0>1")[3], "proven");
}

#[test]
fn library_of_the_shim_is_not_needed() {
    let alone = scratch("alone");
    fs::copy(command(), &alone).unwrap();
    let outcome = Program::new(&alone).arg("doctor").arg("0>1").libraries("target/sim/lib").plain();
    outcome.assert_success();
    fs::remove_file(alone).unwrap();
}
