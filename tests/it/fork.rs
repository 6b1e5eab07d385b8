//! Children of a process in which the shim is active: forked ones only forward, those that share memory change nothing for
//! the process.

use std::collections::BTreeMap;
use std::fs;

use crate::support::soak::flavours;
use crate::support::{Outcome, Program, Scratch, command, path};
use p2pshim_trace::{NoteKind, State, Trace};

/// How a child is made that shares the memory of its process.
const SHARING: [&str; 4] = ["vfork", "exec", "clone-vfork", "clone-vm"];
/// How one is made that gets a copy.
const FORKED: [&str; 2] = ["raw", "fork"];
const CHILDREN: usize = 3;

fn case(flavour: &str, how: &str) -> Program {
    Program::case(&format!("children_sharing-{flavour}")).arg(how).findings_apart()
}

/// The lines that the program prints: `told` is the answer of each child.
fn printed(can_access: [u8; 2], told: &str, activity: &str) -> String {
    let [before, after] = can_access;
    let enables = if after == 1 { "cudaDeviceEnablePeerAccess(1, 0) = cudaSuccess\n" } else { "" };
    let child = format!("child: {told}\n").repeat(CHILDREN);
    format!(
        "before: can access {before}, copies right, the shim is {activity}\n{child}{enables}\
         after: can access {after}, copies right, the shim is {activity}\n"
    )
}

/// The status of a child: what it was told, and whether the shim said that it was forked.
fn told(how: &str, hidden: bool) -> &'static str {
    match how {
        "exec" => "42",
        // The simulated driver refuses where a fork handler has run.
        "fork" => "71",
        "raw" => "11",
        _ if hidden => "0",
        _ => "10",
    }
}

#[test]
fn access_off_after_a_child_is_still_off_and_a_broken_path_is_not_used() {
    for flavour in flavours("access_off_after_a_child_is_still_off_and_a_broken_path_is_not_used") {
        for how in SHARING.into_iter().chain(FORKED) {
            let program = case(flavour, how).env("P2PSHIM_ACCESS", "off").env("P2PSIM_FAULT", "drop:0-1");
            let outcome = program.preloaded();
            outcome.assert_success();
            assert_eq!(outcome.stdout, printed([0, 0], told(how, true), "on"), "{how}, {flavour}");
            outcome.assert_silent();
        }
    }
}

#[test]
fn access_off_after_a_child_on_an_old_kernel_is_still_off() {
    for how in SHARING.into_iter().chain(FORKED) {
        let program = case("12", how).arg("old").env("P2PSHIM_ACCESS", "off").env("P2PSIM_FAULT", "drop:0-1");
        let outcome = program.preloaded();
        outcome.assert_success();
        // There a child that shares memory is told from its process by the process id alone, and forwards.
        let told = if SHARING.contains(&how) && how != "exec" { "11" } else { told(how, true) };
        assert_eq!(outcome.stdout, printed([0, 0], told, "on"), "{how}");
    }
}

#[test]
fn plain_run_of_each_child_ends_well() {
    for how in SHARING.into_iter().chain(FORKED) {
        let outcome = case("12", how).plain();
        outcome.assert_success();
        let told = match how {
            "exec" => "42",
            "fork" => "70",
            _ => "10",
        };
        assert_eq!(outcome.stdout, printed([1, 1], told, "plain"), "{how}");
    }
}

#[test]
fn log_after_a_child_shows_each_call_of_the_process() {
    for how in SHARING.into_iter().chain(FORKED) {
        for kernel in [None, Some("old")] {
            let program = kernel.into_iter().fold(case("12", how), Program::arg);
            let (outcome, log) = program.traced();
            outcome.assert_success();
            let process = log.calls.last().unwrap().thread.split('/').next().unwrap().to_owned();
            let count = |name: &str| {
                let calls = log.calls.iter().filter(|call| call.depth == 0 && call.name == name);
                let (own, others): (Vec<_>, Vec<_>) = calls.partition(|call| call.thread.starts_with(&process));
                (own.len(), others.len())
            };
            let of_children = if SHARING.contains(&how) && kernel.is_none() { 2 * CHILDREN } else { 0 };
            assert_eq!(count("cudaDeviceCanAccessPeer"), (2, of_children), "{how} {kernel:?}: {:#?}", log.calls);
            assert_eq!(count("cudaMemcpyPeerAsync"), (40, 0), "{how} {kernel:?}");
            assert_eq!(count("cudaMemcpyPeer"), (2, 0), "{how} {kernel:?}");
        }
    }
}

/// How often each function was called from outside, and returned; and how many calls have not.
fn recorded(program: &Program) -> (BTreeMap<String, usize>, usize) {
    let folder = Scratch::new("traces");
    let outcome = program.clone().env("P2PSHIM_TRACE", folder.to_string_lossy()).preloaded();
    outcome.assert_success();
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:#?}");
    let trace = Trace::open(&files[0]).unwrap();
    assert_eq!((trace.problems(), trace.dropped()), (&[][..], 0));
    let (mut returned, mut under_way) = (BTreeMap::new(), 0);
    let mut buffer = Vec::new();
    for block in 0..trace.blocks() {
        let block = trace.block(block, &mut buffer).unwrap().unwrap();
        for call in block.calls().filter(|call| !call.is_with_host()).filter(|call| call.depth == 0) {
            let name = |number: u8| trace.notes_of(NoteKind::Function).find(|note| note.number == u32::from(number));
            match call.state {
                State::Done => {
                    *returned.entry(name(call.function).unwrap().string(1).to_owned()).or_default() += 1;
                }
                _ => under_way += 1,
            }
        }
    }
    (returned, under_way)
}

#[test]
fn trace_after_a_child_has_each_call_of_the_process_and_none_under_way() {
    for how in SHARING.into_iter().chain(FORKED) {
        for kernel in [None, Some("old")] {
            let program = kernel.into_iter().fold(case("12", how), Program::arg);
            let (returned, under_way) = recorded(&program);
            // A child that shares the memory of its process has its thread's records as well.
            let of_children = if SHARING.contains(&how) && kernel.is_none() { 2 * CHILDREN } else { 0 };
            assert_eq!(under_way, 0, "{how} {kernel:?}: {returned:?}");
            assert_eq!(returned["cudaDeviceCanAccessPeer"], 2 + of_children, "{how} {kernel:?}");
            assert_eq!((returned["cudaMemcpyPeerAsync"], returned["cudaMemcpyPeer"]), (40, 2), "{how} {kernel:?}");
        }
    }
}

#[test]
fn child_that_ends_inside_a_copy_leaves_the_copies_of_its_process_complete() {
    let program = Program::case("vforked_inside").libraries("target/c-tests/standin-runtime");
    let program = program.findings_apart();
    let outcome = program.preloaded();
    outcome.assert_success();
    assert_eq!(outcome.stdout, "child: 42\nchild: 42\n");
    let (returned, under_way) = recorded(&program);
    // Two copies have not returned: those of the children.
    assert_eq!((returned["cudaMemcpyPeer"], returned["cudaMemcpyPeerAsync"], under_way), (30, 2, 2));
}

#[test]
fn forked_while_another_thread_is_in_the_first_call_the_child_does_not_wait() {
    let program = Program::case("forked_during_start").findings_apart();
    let folder = Scratch::new("forked_during_start");
    let outcome = program.env("P2PSHIM_TRACE", folder.to_string_lossy()).preloaded();
    outcome.assert_success();
    assert_eq!(outcome.stdout, "child: its call has returned\nparent: can access 1\n");
}

/// Memory that verification and staging have page-locked by then is no child's, which would share it until either writes.
#[test]
fn child_that_is_forked_between_two_verifications_shares_nothing_that_is_page_locked() {
    let program = Program::case("forked_between").env("P2PSIM_DEVICES", "3").env("P2PSIM_NO_P2P", "1-2");
    let program = program.env("P2PSHIM_STAGING", "always").env("P2PSHIM_LOG", "trace").preloaded();
    program.assert_success();
    assert_eq!(program.stdout, "the child lacks all, 0 copies wrong\n", "{:#?}", program.shim);
    let said = |what: &str| program.lines.iter().any(|line| line.contains(what));
    assert!(said("staged by p2pshim") && said("direct"), "{}", program.lines.join("\n"));
}

/// Calls of a process before it forks; none of them initialises CUDA.
const BEFORE: [&str; 5] = ["lookup", "version", "grandchild", "thread", "raw"];

/// The program with a child that copies, under `p2pshim run`, which judges its copies.
fn judged(flavour: &str, how: &str, fault: Option<&str>) -> Outcome {
    let case = path(&format!("target/c-tests/fork_after_lookup-{flavour}")).to_string_lossy().into_owned();
    let options = ["run", "--quiet", "--no-check", "--sim", "2", "--fail-on", "staged,hazard,error,unverified"];
    let program = Program::new(command()).args(&options).args(&[&case, how]);
    match fault {
        Some(fault) => program.arg("enable").env("P2PSIM_FAULT", fault).plain(),
        None => program.plain(),
    }
}

#[test]
fn child_of_a_process_without_cuda_has_its_copies_made_direct_and_recorded() {
    for flavour in flavours("child_of_a_process_without_cuda_has_its_copies_made_direct_and_recorded") {
        for how in BEFORE {
            let outcome = judged(flavour, how, None);
            outcome.assert_success();
            assert_eq!(outcome.stdout, "the child's data is right\n", "{how}, {flavour}");
        }
    }
}

#[test]
fn child_of_a_process_without_cuda_gets_no_path_that_loses_data() {
    for how in BEFORE {
        let outcome = judged("12", how, Some("drop:0>1"));
        assert_eq!(outcome.status, "exit status: 120", "{how}: {}", outcome.stdout);
        let enabled = "cudaDeviceEnablePeerAccess(1, 0) = cudaErrorPeerAccessUnsupported";
        assert!(outcome.stdout.starts_with(enabled), "{how}: {}", outcome.stdout);
        assert!(!outcome.stdout.contains("wrong"), "{how}: {}", outcome.stdout);
    }
}

/// The shim has started in its parent, so it only forwards in the child, where CUDA works.
#[test]
fn child_of_which_nothing_is_known_does_not_pass() {
    let outcome = judged("12", "call", None);
    assert_eq!(outcome.stdout, "before cuInit: 3\nthe child's data is right\n");
    assert_eq!(outcome.status, "exit status: 120");
    assert!(outcome.shim.iter().any(|line| line.contains("not all is known")), "{:#?}", outcome.shim);
}
