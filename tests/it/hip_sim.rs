//! The simulated HIP by itself: what its functions answer against tests/golden/hip-conformance.tsv, who may reach which
//! memory, sequences and arguments drawn at random, and what each release exports.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::thread;

use crate::support::soak::seeds;
use crate::support::{Outcome, Program, Scratch, path};

/// Majors of the releases, in the order of the table's columns.
const RELEASES: [&str; 3] = ["5", "6", "7"];

fn case(name: &str, release: &str) -> Program {
    Program::case(&format!("{name}-{release}"))
}

/// Runs plain; the program must end well.
fn plain(program: &Program) -> Outcome {
    let outcome = program.plain();
    outcome.assert_success();
    assert_eq!(outcome.stderr, "");
    outcome
}

// ---- answers ----

const TABLE: &str = "tests/golden/hip-conformance.tsv";

/// The program's lines for one release, as the table has them.
fn expected(column: usize) -> String {
    let table = fs::read_to_string(path(TABLE)).unwrap();
    let rows = table.lines().filter(|line| !line.starts_with('#')).skip(1);
    let rows = rows.map(|row| row.split('\t').collect::<Vec<_>>());
    let rows = rows.inspect(|row| assert_eq!(row.len(), 6, "{row:?}")).filter(|row| row[column] != "-");
    rows.map(|row| {
        // Code, last error, and what has changed, which has blanks of its own.
        let answer: Vec<_> = row[column].splitn(3, ' ').collect();
        format!("{}\t{}\t{}\n", row[0], row[1], answer.join("\t"))
    })
    .collect()
}

fn every_row_as_in_the_sources(release: &str) {
    let column = 2 + RELEASES.iter().position(|known| *known == release).unwrap();
    let program = case("hip_conformance", release).env("P2PSIM_DEVICES", "3").env("P2PSIM_NO_P2P", "1-2");
    let (answered, expected) = (plain(&program).stdout, expected(column));
    for (answered, expected) in answered.lines().zip(expected.lines()) {
        assert_eq!(answered, expected, "HIP {release}, answered (left) and expected (right)");
    }
    assert_eq!(answered.lines().count(), expected.lines().count());
}

#[test]
fn conformance_of_5_every_row_as_in_the_sources() {
    every_row_as_in_the_sources("5");
}

#[test]
fn conformance_of_6_every_row_as_in_the_sources() {
    every_row_as_in_the_sources("6");
}

#[test]
fn conformance_of_7_every_row_as_in_the_sources() {
    every_row_as_in_the_sources("7");
}

/// Measured with real libraries on a machine without a GPU: 5.2 answers 101, 6.4 and 7.2 answer 100, whatever they are asked.
#[test]
fn no_device_every_peer_call_answers_that() {
    for release in RELEASES {
        let code = if release == "5" { "101" } else { "100" };
        let stdout = plain(&case("hip_no_device", release).env("P2PSIM_DEVICES", "0")).stdout;
        let calls = stdout.lines().filter(|line| line.starts_with("hip") && !line.starts_with("hipGetDeviceCount"));
        let answers: Vec<_> = calls.map(|line| line.rsplit(' ').next().unwrap()).collect();
        assert!(answers.len() >= 14 && answers.iter().all(|answer| *answer == code), "{release}: {stdout}");
        let errors: Vec<_> = stdout.lines().filter(|line| line.starts_with("    peek")).collect();
        let always = format!("    peek {code}, get {code}, get again {code}");
        assert!(errors.iter().all(|line| *line == always), "{release}: {stdout}");
        assert!(stdout.contains("hipGetDeviceCount(&out) = 100\n") && stdout.contains("    count 0\n"), "{stdout}");
        assert!(stdout.ends_with("output 0\n") || stdout.ends_with("output -7\n"), "{stdout}");
    }
}

// ---- programs ----

#[test]
fn guide_copies_with_and_without_access() {
    for release in RELEASES {
        let stdout = plain(&case("hip_guide", release)).stdout;
        assert_eq!(stdout.matches(": the same bytes, ").count(), 3, "{stdout}");
        let calls = stdout.lines().filter(|line| line.starts_with("hip") && line.contains(" = "));
        assert!(calls.clone().count() == 9 && calls.into_iter().all(|line| line.ends_with("hipSuccess")), "{stdout}");
    }
}

/// Faults apply to HIP's copies, whatever is enabled.
#[test]
fn faults_of_copies_apply_and_access_is_enabled_all_the_same() {
    for release in RELEASES {
        for (fault, word) in [
            ("", "right"),
            ("drop:0-1", "WRONG"),
            ("corrupt:0>1", "WRONG"),
            ("both:0-1", "WRONG"),
            ("hang:0-1", "hangs"),
        ] {
            let program =
                case("hip_broken", release).arg("enables").env("P2PSIM_DEVICES", "3").env("P2PSIM_FAULT", fault);
            let stdout = plain(&program).stdout;
            assert!(stdout.contains(&format!("copy 0 > 1: {word}\n")), "{release}, {fault}: {stdout}");
            assert!(stdout.contains("enable 0 > 1: 0, last 0, device 0\n"), "{release}, {fault}: {stdout}");
        }
    }
}

#[test]
fn threads_share_what_is_enabled_and_no_last_error() {
    for release in RELEASES {
        let stdout = plain(&case("hip_threads", release)).stdout;
        let wanted = "copies with other bytes: 0\nlast errors of somebody else: 0\nother codes: 0\n\
                      as often enabled as disabled: yes\nevery call answered: yes\n";
        assert!(stdout.starts_with(wanted), "{release}: {stdout}");
    }
}

#[test]
fn opened_library_is_found_by_name_and_version() {
    for release in RELEASES {
        let stdout = plain(&case("hip_dlopened", release)).stdout;
        let of_7 = if release == "7" { "there" } else { "not there" };
        let wanted = format!(
            "another look: the same\nhip_4.2: there\nhip_7.1: not there\nhipMemcpy3DPeer: {of_7}\n\
             hipMemcpyPeerNever: not there\nin the global scope: not there\n"
        );
        assert!(stdout.starts_with(&wanted), "{stdout}");
        assert!(stdout.contains("\nthe same bytes\n"), "{stdout}");
    }
}

#[test]
fn entry_points_are_what_is_exported() {
    for (release, of_7) in [("6", "hipErrorInvalidValue, not found, status 1"), ("7", "hipSuccess, found, status 0")] {
        let stdout = plain(&case("hip_entry_point", release)).stdout;
        let line = |name: &str| stdout.lines().find(|line| line.starts_with(&format!("{name}, "))).unwrap();
        assert!(line("hipMemcpyPeer").contains("hipSuccess, found, status 0"), "{stdout}");
        assert!(line("hipMemcpy3DPeer").contains(of_7), "{stdout}");
        assert!(line("cudaMemcpyPeer").contains("hipErrorInvalidValue, not found, status 1"), "{stdout}");
        assert!(
            stdout.contains("another look: the same\n") && stdout.contains("through itself: the same\n"),
            "{stdout}"
        );
        assert!(stdout.contains("\nthe same bytes\n"), "{stdout}");
    }
}

/// Two machines: nothing of one shows in the other, and faults of functions go to whoever has the function.
#[test]
fn cuda_beside_it_has_devices_and_errors_of_its_own() {
    for release in RELEASES {
        let program = case("hip_and_cuda", release);
        let stdout = plain(&program).stdout;
        assert!(stdout.contains("HIP: the same bytes\n") && stdout.contains("CUDA: the same bytes\n"), "{stdout}");
        assert!(stdout.contains("cudaPeekAtLastError() = cudaErrorPeerAccessNotEnabled\n"), "{stdout}");
        assert!(stdout.contains("hipPeekAtLastError() = hipErrorPeerAccessAlreadyEnabled\n"), "{stdout}");
        let faults = "code:hipMemcpyPeerAsync:719@1,code:cuMemcpyPeerAsync:700@1";
        let stdout = plain(&program.env("P2PSIM_FAULT", faults)).stdout;
        assert!(stdout.contains("hip_stream) = hipErrorLaunchFailure\n"), "{stdout}");
        assert!(stdout.contains("cuda_stream) = cudaErrorIllegalAddress\n"), "{stdout}");
    }
}

#[test]
fn unknown_function_to_fail_is_reported_once() {
    let program = case("hip_and_cuda", "6").env("P2PSIM_FAULT", "code:hipMemcpyNever:1@1,code:hipMemcpy3DPeer:1@1");
    let outcome = program.plain();
    outcome.assert_success();
    let told = "the simulated HIP has no function";
    assert_eq!(outcome.stderr.matches(told).count(), 2, "{}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), 2, "{}", outcome.stderr);
}

// ---- access ----

/// The lines of `hip_grants` about one stage.
fn stage<'a>(stdout: &'a str, name: &str) -> Vec<&'a str> {
    let lines = stdout.lines().skip_while(|line| *line != name).skip(1);
    lines.take_while(|line| line.starts_with("  ")).map(str::trim).collect()
}

#[test]
fn access_is_granted_by_allocation_to_all_peers_and_never_taken() {
    for release in RELEASES {
        let program = case("hip_grants", release).env("P2PSIM_DEVICES", "3").env("P2PSIM_NO_P2P", "1-2");
        let stdout = plain(&program).stdout;
        assert_eq!(stage(&stdout, "allocated"), ["of 0: 0", "of 1: 1", "host: 0 1 2", "freed:"]);
        assert_eq!(stage(&stdout, "copied within a device"), ["of 0: 0"]);
        assert_eq!(stage(&stdout, "copied from 0 to 1"), ["of 0: 0 1 2", "of 1: 0 1", "of 1, another: 1"]);
        assert_eq!(stage(&stdout, "copied from 1 to 2, without a path"), ["of 2: 0 2"]);
        let enabled = ["of 2, before: 2", "of 2, before: 0 2", "of 2, since: 0 2", "of 1: 1"];
        assert_eq!(stage(&stdout, "enabled from 0 to 2"), enabled);
        assert_eq!(stage(&stdout, "disabled"), ["of 2, before: 0 2", "of 2, since: 0 2", "of 2, now: 2"]);
        let copies = [
            "copies from 0 to 1: 1 direct, 0 staged",
            "copies from 1 to 2: 0 direct, 1 staged",
            "copies from 0 to 0: 0 direct, 0 staged",
        ];
        assert_eq!(stage(&stdout, "reset while enabled"), [&["of 1, gone:", "of 1, now: 0 1"], &copies[..]].concat());
    }
}

// ---- sequences and arguments drawn at random ----

/// A program with sequences from `first` on: none may go wrong. Returns how many did.
fn wrong_sequences(name: &str, release: &str, (first, count): (u32, u32), env: &[(&str, &str)]) -> usize {
    let program = case(name, release).env("P2PSIM_DEVICES", "4").arg(first.to_string()).arg(count.to_string());
    let stdout = plain(&env.iter().fold(program, |program, (name, value)| program.env(name, *value))).stdout;
    assert_eq!(stdout.lines().count(), count as usize);
    stdout.lines().filter(|line| line.ends_with("WRONG") || line.ends_with("LAST")).count()
}

fn as_expected_in_all_releases(name: &str, count: u32) {
    let no_path = [("P2PSIM_NO_P2P", "0-1,2>3")];
    thread::scope(|scope| {
        for (number, release) in (0..).zip(RELEASES) {
            scope.spawn(move || {
                let (first, count) = seeds(100_000 + number * 1000, count);
                assert_eq!(wrong_sequences(name, release, (first, count), &[]), 0, "HIP {release}, from {first}");
                let first = first + 50_000;
                assert_eq!(
                    wrong_sequences(name, release, (first, count.div_ceil(4)), &no_path),
                    0,
                    "HIP {release}, from {first}"
                );
            });
        }
    });
}

#[test]
fn random_sequences_answer_and_copy_what_is_right() {
    as_expected_in_all_releases("hip_random_sequences", 1000);
}

#[test]
fn random_arguments_answer_and_copy_what_is_right() {
    as_expected_in_all_releases("hip_random_arguments", 100);
}

/// The programs notice what is wrong: bytes, codes, last errors.
#[test]
fn random_sequences_with_faults_go_wrong() {
    for fault in ["corrupt:0-1", "drop:2>3", "code:hipMemcpyPeer:1@5", "code:hipDeviceCanAccessPeer:1@40"] {
        let env = [("P2PSIM_FAULT", fault)];
        assert!(wrong_sequences("hip_random_sequences", "6", (0, 60), &env) > 0, "{fault}");
        assert!(wrong_sequences("hip_random_arguments", "6", (0, 10), &env) > 0, "{fault}");
    }
}

/// From 7.0 on success leaves the last error alone; programs that were built for 6 notice.
#[test]
fn last_error_of_7_is_not_that_of_6() {
    let folder = Scratch::folder("other-release");
    symlink(path("target/sim/lib/libamdhip64.so.7"), folder.join("libamdhip64.so.6")).unwrap();
    let program = case("hip_random_sequences", "6").arg("0").arg("40").env("P2PSIM_DEVICES", "4");
    // The simulated library lacks no version node that the program asks for, so that the linker has nothing to say.
    let stdout = plain(&program.env("LD_PRELOAD", folder.join("libamdhip64.so.6").to_string_lossy())).stdout;
    assert!(stdout.lines().any(|line| line.ends_with(" LAST")), "{stdout}");
}

// ---- exports ----

/// Exported functions with their version nodes.
fn exports(release: &str) -> Vec<(String, String)> {
    let library = path(&format!("target/sim/lib/libamdhip64.so.{release}"));
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let functions = text.lines().filter_map(|line| line.split_once(" T "));
    functions.filter_map(|(_, symbol)| symbol.split_once("@@")).map(|(f, n)| (f.to_owned(), n.to_owned())).collect()
}

#[test]
fn exports_have_the_version_nodes_of_the_releases() {
    let peers =
        ["CanAccessPeer", "EnablePeerAccess", "DisablePeerAccess", "GetP2PAttribute"].map(|f| format!("hipDevice{f}"));
    let others = ["hipMemcpyPeer", "hipMemcpyPeerAsync", "hipCtxEnablePeerAccess", "hipCtxDisablePeerAccess"];
    for release in RELEASES {
        let exports = exports(release);
        let node = |function: &str| exports.iter().find(|(name, _)| name == function).map(|(_, node)| node.as_str());
        for function in peers.iter().map(String::as_str).chain(others) {
            assert_eq!(node(function), Some("hip_4.2"), "{function} of {release}");
        }
        let since = |first: &str, there| (release >= first).then_some(there);
        assert_eq!(node("hipExtGetLastError"), since("6", "hip_6.0"));
        assert_eq!(node("hipGetProcAddress"), since("6", "hip_6.1"));
        assert_eq!(node("hipMemcpy3DPeer"), since("7", "hip_7.1"));
        assert_eq!(node("hipMemcpy3DPeerAsync"), since("7", "hip_7.1"));
        for function in
            ["hipMemcpyBatchAsync", "hipMemcpy3DBatchAsync", "hipGetDriverEntryPoint", "hipGetDriverEntryPoint_spt"]
        {
            assert_eq!(node(function), since("7", "hip_7.1"), "{function} of {release}");
        }
        for function in ["hipMemcpy2D", "hipMemcpy2DAsync", "hipMemcpy3D", "hipMemcpy3DAsync"] {
            assert_eq!(node(function), Some("hip_4.2"), "{function} of {release}");
        }
        for function in ["hipMemcpy_spt", "hipMemcpyAsync_spt", "hipMemcpy2D_spt", "hipMemcpy3D_spt"] {
            assert_eq!(node(function), Some("hip_5.2"), "{function} of {release}");
        }
        for function in ["hipMemcpy2DAsync_spt", "hipMemcpy3DAsync_spt"] {
            assert_eq!(node(function), Some("hip_5.3"), "{function} of {release}");
        }
        assert_eq!(node("hipGraphLaunch"), Some("hip_4.3"));
        assert_eq!(node("hipLaunchHostFunc"), Some("hip_5.3"));
        let stray: Vec<_> = exports.iter().filter(|(_, node)| !node.starts_with("hip_") && node != "p2psim").collect();
        assert!(stray.is_empty(), "{stray:?}");
    }
}
