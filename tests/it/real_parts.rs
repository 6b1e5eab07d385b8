//! NVIDIA's own runtimes (c-tests/nvidia.txt), with no driver, and above a driver that only resolves names.

use std::collections::BTreeSet;
use std::fs;

use crate::support::{Program, Scratch, path};

/// Four copies, each for the legacy and for the per-thread default stream; can access, enable, disable, attribute.
const PEER_REQUESTS: usize = 12;

const DRIVERLESS: &str = "cudaMemcpyPeer(b, 1, a, 0, 64) = 35";

/// `no_driver`, linked with NVIDIA's runtime and run with it.
fn shared(version: &str) -> Program {
    Program::new(path(&format!("target/c-tests/no_driver-{version}")))
        .libraries(&format!("target/nvidia/cu{version}/lib"))
}

fn fixed(version: &str) -> Program {
    Program::new(path(&format!("target/c-tests/no_driver-nvidia{version}")))
}

fn without_a_driver(program: &Program) -> crate::support::Trace {
    let (plain, trace) = program.assert_same_preloaded();
    plain.assert_success();
    assert!(plain.stdout.contains(DRIVERLESS), "is there a driver here? {}", plain.stdout);
    trace
}

/// Every peer function was called, and seen, and each answered 35 by the runtime before it reached a driver.
fn shared_without_a_driver(version: &str) {
    let trace = without_a_driver(&shared(version));
    let names: BTreeSet<&str> = trace.names_at(0).into_iter().collect();
    let expected = [
        "cudaDeviceCanAccessPeer",
        "cudaDeviceDisablePeerAccess",
        "cudaDeviceEnablePeerAccess",
        "cudaDeviceGetP2PAttribute",
        "cudaMemcpy3DPeer",
        "cudaMemcpy3DPeerAsync",
        "cudaMemcpyPeer",
        "cudaMemcpyPeerAsync",
    ];
    assert_eq!(names, BTreeSet::from(expected));
    assert_eq!(trace.calls.len(), 20, "{:#?}", trace.calls);
    for call in &trace.calls {
        assert!(call.text.contains(" = cudaErrorInsufficientDriver"), "{}", call.text);
    }
}

#[test]
fn runtime_11_8_shared_without_a_driver_same_answers() {
    shared_without_a_driver("11");
}

#[test]
fn runtime_12_9_shared_without_a_driver_same_answers() {
    shared_without_a_driver("12");
}

#[test]
fn runtime_13_0_shared_without_a_driver_same_answers() {
    shared_without_a_driver("13");
}

#[test]
fn runtime_12_9_static_without_a_driver_same_answers() {
    assert!(without_a_driver(&fixed("12")).calls.is_empty());
}

#[test]
fn runtime_13_0_static_without_a_driver_same_answers() {
    assert!(without_a_driver(&fixed("13")).calls.is_empty());
}

/// The requests of NVIDIA's runtime to the stand-in driver, plain and preloaded; answers the file with the plain requests.
fn requests(program: &Program) -> Scratch {
    let plain_log = Scratch::new("requests");
    let program = program.clone().libraries("target/c-tests/standin-driver");
    let plain = program.clone().env("STANDIN_CUDA_LOG", plain_log.to_str().unwrap()).plain();
    plain.assert_success();

    let preloaded_log = Scratch::new("requests");
    let preloaded = program.env("STANDIN_CUDA_LOG", preloaded_log.to_str().unwrap()).preloaded();
    preloaded.assert_same_as(&plain, "preloaded");
    let (of_plain, of_preloaded) = (lines(&plain_log), lines(&preloaded_log));
    let lost: Vec<&String> = of_plain.difference(&of_preloaded).collect();
    assert!(lost.is_empty(), "requests that did not reach the driver when preloaded: {lost:?}");
    plain_log
}

fn lines(file: &std::path::Path) -> BTreeSet<String> {
    fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect()
}

/// Asks for the same again and looks where each answer lies: peer functions in the shim, all others in the driver.
fn only_rows_of_the_table_are_hooked(program: &Program, abi: &str, min_requests: usize) {
    let file = requests(program);
    let audit = Program::new(path("target/c-tests/resolve_audit"))
        .libraries("target/c-tests/standin-driver")
        .arg(abi)
        .arg(file.to_str().unwrap());
    let (plain, preloaded) = (audit.plain(), audit.preloaded());
    plain.assert_success();
    preloaded.assert_success();
    preloaded.assert_silent();

    let exports = exports();
    let shim = crate::support::shim().file_name().unwrap().to_str().unwrap().to_owned();
    let mut hooked_peers = 0;
    assert!(plain.stdout.lines().count() >= min_requests, "only {} requests", plain.stdout.lines().count());
    assert_eq!(plain.stdout.lines().count(), preloaded.stdout.lines().count());
    for (before, after) in plain.stdout.lines().zip(preloaded.stdout.lines()) {
        let name = before.split([' ', ':']).next().unwrap();
        let is_itself = before.contains(" itself:") || name == "cuGetProcAddress";
        let is_ours = exports.contains(name) || exports.contains(&format!("{name}_v2"));
        assert!(before.ends_with(" libcuda.so.1"), "{before}");
        if is_ours || is_itself {
            assert_eq!(after, before.replace(" libcuda.so.1", &format!(" {shim}")), "not hooked");
            hooked_peers += usize::from(name.contains("Peer") || name.contains("P2P"));
        } else {
            assert_eq!(after, before, "hooked, or answered otherwise");
        }
    }
    assert!(hooked_peers >= PEER_REQUESTS, "only {hooked_peers} peer look-ups");
}

/// Names that the shim exports.
fn exports() -> BTreeSet<String> {
    let nm = Program::new("nm")
        .arg("-D")
        .arg("--defined-only")
        .arg("--format=just-symbols")
        .arg(crate::support::shim().to_str().unwrap());
    let outcome = nm.plain();
    outcome.assert_success();
    // As long as order is not checked, look-ups leave what only that needs to the driver; but failed memsets are noted.
    let table = fs::read_to_string(path("src/api/functions.txt")).unwrap();
    let order: BTreeSet<&str> = table
        .lines()
        .filter(|row| row.starts_with("order(") && !row.starts_with("order(sets_memory)"))
        .filter_map(|row| row.split_once(')')?.1.split_once('(')?.0.split_whitespace().last())
        .collect();
    let names = outcome.stdout.lines().map(|line| line.split('@').next().unwrap());
    names.filter(|name| !order.contains(name)).map(str::to_owned).collect()
}

#[test]
fn runtime_11_8_shared_only_rows_of_the_table_are_hooked() {
    only_rows_of_the_table_are_hooked(&shared("11"), "v1", 350);
}

#[test]
fn runtime_12_9_static_only_rows_of_the_table_are_hooked() {
    only_rows_of_the_table_are_hooked(&fixed("12"), "v2", 400);
}

#[test]
fn runtime_13_0_static_only_rows_of_the_table_are_hooked() {
    only_rows_of_the_table_are_hooked(&fixed("13"), "v2", 420);
}
