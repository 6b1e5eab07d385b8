//! Calls without a record that fail: the report begins with them.

use std::process::Command;

use serde_json::Value;

use crate::support::{Program, Scratch, command, json_report, path};

/// Runs a program whose driver fails in this way. Returns the sentences of its report, and the calls without a record that have failed.
fn reported(fault: &str) -> (Vec<String>, Value) {
    let folder = Scratch::folder("failures");
    let program = Program::case("failing").env("P2PSIM_FAULT", fault);
    let plain = program.plain();
    plain.assert_success();
    let traced = program.env("P2PSHIM_TRACE", folder.to_string_lossy()).env("P2PSHIM_VALIDATE", "off");
    traced.preloaded().assert_same_as(&plain, "with a trace");
    let report = json_report(&folder);
    let text = |sentence: &Value| sentence["text"].as_str().unwrap().to_owned();
    (report["verdict"].as_array().unwrap().iter().map(text).collect(), report["failures"].clone())
}

#[test]
fn failure_that_loses_a_context_is_the_first_sentence() {
    for (fault, begins, says) in [
        (
            "code:cuStreamSynchronize:700@1",
            "A context was lost (GPU 0 was current): cudaStreamSynchronize returned 700 (cudaErrorIllegalAddress) at ",
            "work on the GPU used an address that it cannot reach",
        ),
        (
            "code:cuStreamSynchronize:719@1",
            "A context was lost (GPU 0 was current): cudaStreamSynchronize returned 719 (cudaErrorLaunchFailure) at ",
            "work on the GPU failed",
        ),
        (
            "code:cuMemcpyPeerAsync:710@1",
            "A context was lost: cudaMemcpyPeerAsync returned 710 (cudaErrorAssert) at ",
            "a kernel's assertion failed",
        ),
        (
            "code:cuCtxEnablePeerAccess:205@1",
            "cudaDeviceEnablePeerAccess returned 205 (cudaErrorMapBufferObjectFailed) at ",
            "the driver could not map the peer's memory",
        ),
    ] {
        let (sentences, failures) = reported(fault);
        assert!(sentences[0].starts_with(begins) && sentences[0].contains(says), "{fault}: {sentences:#?}");
        assert!(sentences[0].contains("failing.c:"), "{fault}: {sentences:#?}");
        assert!(!sentences.iter().any(|it| it.contains("call failed: ")), "said twice: {sentences:#?}");
        let is_wait = fault.starts_with("code:cuStream");
        assert_eq!(failures.as_array().unwrap().iter().any(|it| it["function"] == "cudaStreamSynchronize"), is_wait);
    }
}

#[test]
fn failure_of_a_capture_is_told_and_calls_that_go_on_failing_are_noted_now_and_then() {
    let (sentences, failures) = reported("code:cuCtxSynchronize:999@1");
    let capture = "cuStreamEndCapture returned 904 (CUDA_ERROR_STREAM_CAPTURE_UNJOINED) at ";
    assert!(sentences[0].starts_with(capture), "{sentences:#?}");
    let of = |name: &str| failures.as_array().unwrap().iter().filter(|it| it["function"] == name).count();
    // The first, 2nd, 4th, … 64th.
    assert_eq!((of("cuStreamEndCapture"), of("cudaDeviceSynchronize")), (1, 7), "{failures:#}");
    assert_eq!(failures[0]["code"], 904);
}

/// The report's first line of a program that `p2pshim run` runs, all of the report, and what the program printed.
fn first_line(options: &[&str], (case, args): (&str, &[&str]), env: &[(&str, &str)]) -> (String, String, String) {
    let mut run = Command::new(command());
    run.args(["run", "--sim", "2", "--log", "off"]).args(options).arg(path("target/c-tests").join(case)).args(args);
    let cache = Scratch::new("cache");
    run.envs(env.iter().copied()).env("XDG_CACHE_HOME", &cache);
    let output = run.output().unwrap();
    let [said, printed] = [output.stderr, output.stdout].map(|text| String::from_utf8(text).unwrap());
    let first = said.lines().find(|line| !line.starts_with("p2pshim: ")).unwrap_or_default().to_owned();
    (first, said, printed)
}

const FATAL: (&str, &[&str]) = ("treats_704_as_fatal-12", &["fatal"]);

#[test]
fn code_of_a_call_that_had_nothing_to_do_comes_first_if_the_program_ends_for_it() {
    for program in [FATAL, ("treats_704_as_fatal-12", &[])] {
        let (first, said, _) = first_line(&["--no-check"], program, &[]);
        let begin = "treats_704_as_fatal-12 ended with exit 1 after cudaDeviceEnablePeerAccess returned 704 (cudaErrorPeerAccessAlreadyEnabled) at ";
        assert!(first.starts_with(begin) && first.contains("treats_704_as_fatal.c:"), "{said}");
        // Where the call itself is not taken for a failure, a later check finds its code.
        let is_found =
            first.contains(": access was enabled already, and cudaGetLastError found it at treats_704_as_fatal-12+");
        assert!(is_found != (program == FATAL) && !first.contains("in a capture"), "{said}");
        assert!(is_found || first.ends_with(": access was enabled already."), "{said}");
    }
    let (first, said, _) = first_line(&["--no-check"], ("failing", &["pending"]), &[]);
    assert!(first.contains("access was enabled already, and cudaGetLastError found it at failing+"), "{said}");
    assert!(first.ends_with(", in a capture.") && said.contains("call it right after the failed call."), "{said}");
    // A program that clears the code at once has not left it.
    let (first, said, _) = first_line(&["--no-check"], ("failing", &["cleared"]), &[]);
    assert!(first.ends_with(": access was enabled already.") && !said.contains("found it at"), "{said}");
    // A program that has other failures, or ends well, does not begin with it.
    let lost = [("P2PSIM_FAULT", "code:cuStreamSynchronize:700@1")];
    assert!(first_line(&["--no-check"], ("failing", &[]), &lost).0.starts_with("A context was lost"));
}

#[test]
fn forgiven_codes_are_success_and_told() {
    for program in [FATAL, ("treats_704_as_fatal-12", &[])] {
        let (first, said, printed) = first_line(&["--no-check", "--forgive", "704"], program, &[]);
        assert!(
            printed.contains("the second library: cudaSuccess") && printed.contains("the copy: cudaSuccess"),
            "{printed}"
        );
        assert!(!printed.contains("failed") && !first.contains("exit"), "{printed} {said}");
        let told = "The program got success in place of 704, as P2PSHIM_FORGIVE says: first for ";
        assert!(said.contains(told) && said.contains("These calls had nothing to do."), "{said}");
    }
    let (_, said, printed) = first_line(&["--no-check", "--forgive", "705"], FATAL, &[]);
    assert!(printed.contains("cudaErrorPeerAccessAlreadyEnabled") && !said.contains("got success"), "{printed} {said}");
    let refused = first_line(&["--forgive", "217"], FATAL, &[]);
    assert!(refused.1.contains("`217` cannot be forgiven") && refused.2.is_empty(), "{refused:?}");
}

#[test]
fn gpus_that_are_not_ready_are_the_first_line() {
    let fault = [("P2PSIM_FAULT", "code:cuInit:802@1")];
    let (first, said, _) = first_line(&["--no-check"], ("failing", &["asks"]), &fault);
    assert!(
        first.contains(" returned 802 (cudaErrorSystemNotReady) at ") && first.contains("fabric manager"),
        "{said}"
    );
    assert!(!said.contains("Wrong calls"), "{said}");
}

#[test]
fn memory_that_is_kept_open_and_ranks_on_one_gpu_are_told() {
    let rank = [("RANK", "0")];
    let (first, said, _) = first_line(&["--no-check"], ("failing", &["opens", "1", "keeps"]), &rank);
    let kept =
        "rank 1 opened memory of other processes and never closed it: 1 mapping, 1.0 MB, which its owner has freed.";
    assert!(first.starts_with(kept), "{said}");
    let (_, said, _) = first_line(&["--no-check"], ("failing", &["opens", "1", "closes"]), &rank);
    assert!(!said.contains("never closed") && !said.contains("both work on"), "{said}");
    let (first, said, _) = first_line(&["--no-check"], ("failing", &["opens", "0", "closes"]), &rank);
    assert!(
        first.starts_with("rank 1 and rank 0 may both work on GPU 0: memory of the latter was opened there"),
        "{said}"
    );
}

#[test]
fn thread_that_takes_device_0_and_calls_after_main_are_the_first_line() {
    let (first, said, _) = first_line(&["--no-check"], ("failing", &["stray"]), &[]);
    assert!(first.starts_with("Thread ") && first.contains(" made the first context on GPU 0 at "), "{said}");
    assert!(first.ends_with(", after the main thread had begun with GPU 1."), "{said}");
    let (_, said, _) = first_line(&["--no-check"], ("failing", &["threads"]), &[]);
    assert!(said.contains("GPU 0 > GPU 1") && !said.contains("made the first context"), "{said}");
    let (first, said, printed) = first_line(&["--no-check"], ("failing", &["late"]), &[]);
    let late = "cuCtxSynchronize returned 4 (CUDA_ERROR_DEINITIALIZED) at ";
    assert!(printed.contains("release 4\nwait 4") && first.starts_with(late), "{printed} {said}");
    // NVIDIA's runtime makes such calls at the end of each program.
    assert!(!said.contains("cuDevicePrimaryCtxRelease"), "{said}");
    assert!(
        first.ends_with(": the driver had been shut down, as it is once main has returned or exit was called."),
        "{said}"
    );
}

#[test]
fn memory_that_a_gpu_may_not_set_and_a_negative_size_are_the_first_line() {
    for options in [&["--no-check"][..], &["--no-check", "--order"]] {
        let (first, said, printed) = first_line(options, ("failing", &["memset"]), &[]);
        let of =
            "a GPU sets memory of another one only with access to it (GPU 0 was current, and GPU 1 has the memory).";
        assert!(printed.contains("memset 1") && first.starts_with("cuMemsetD8 returned 1 ("), "{printed} {said}");
        assert!(first.ends_with(of), "{said}");
    }
    let (first, said, _) = first_line(&["--no-check"], ("failing", &["negative"]), &[]);
    assert!(first.starts_with("cudaMemcpyPeer at ") && first.contains("failing.c:"), "{said}");
    assert!(first.ends_with(" got -2147483648 bytes as its size."), "{said}");
    assert!(!said.contains("peer access enabled"), "{said}");
}

#[test]
fn ordinal_of_no_gpu_is_the_first_line() {
    let (first, said, _) = first_line(&["--no-check"], ("failing", &["ordinal"]), &[]);
    assert!(first.starts_with("cudaSetDevice returned 101 (cudaErrorInvalidDevice) at failing+"), "{said}");
    assert!(first.ends_with(": the process sees no GPU of that ordinal."), "{said}");
    // A program that finds out so how many GPUs there are is well.
    let (_, said, _) = first_line(&["--no-check", "-q"], ("failing", &["counts"]), &[]);
    assert!(said.is_empty(), "{said}");
}

#[test]
fn data_that_is_wrong_on_every_way_is_the_first_line_and_no_gate_passes() {
    let conditions = ["--fail-on", "unverified", "-q"];
    let copies = ("demo_copies-12", &["never"][..]);
    let (first, said, _) = first_line(&conditions, copies, &[("P2PSIM_FAULT", "both:0>1")]);
    let wrong =
        "in the check before the program started, copies between GPU 0 and GPU 1 were wrong through the host as well";
    assert_eq!(first, format!("Data may be WRONG: {wrong}."), "{said}");
    assert!(said.contains(&format!("unverified: {wrong}.")), "{said}");
    // Only the path loses data there: copies through the host are right.
    let (first, said, _) = first_line(&conditions, copies, &[("P2PSIM_FAULT", "drop:0>1")]);
    assert!(!first.contains("WRONG") && !said.contains("unverified: "), "{said}");
}

#[test]
fn finding_that_names_the_cause_is_told_also_where_the_log_has_told_it() {
    let cache = Scratch::new("cache");
    let mut run = Command::new(command());
    run.args(["run", "--sim", "2", "--no-check"]).arg(path("target/c-tests/failing")).arg("negative");
    let output = run.env("XDG_CACHE_HOME", &cache).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("\nP2P-copy-past-allocation names the cause: "), "{said}");
    // The log has told it in full.
    assert_eq!(said.matches("P2P-copy-past-allocation (error): ").count(), 1, "{said}");
}

#[test]
fn hop_between_ranks_and_what_each_copied_with_the_host_are_told() {
    let (first, said, _) = first_line(&["--no-check"], ("failing", &["hops"]), &[("RANK", "0")]);
    let hop = "rank 0 copied 1.0 MB to the host, and rank 1 as many bytes from the host: ";
    assert!(first.starts_with(hop), "{said}");
    let row = |rank: &str| said.lines().find(|line| line.starts_with(&format!("  {rank}  "))).unwrap_or_default();
    let words = |rank: &str| {
        row(rank).split("  ").map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(said.contains("  to host  from host  "), "{said}");
    assert_eq!(words("rank 0")[3..6], ["-", "1.0 MB", "0 B"], "{said}");
    assert_eq!(words("rank 1")[3..6], ["-", "0 B", "1.0 MB"], "{said}");
}

#[test]
fn check_of_copies_says_so_where_kernels_may_use_access() {
    let untested = "The check did not test loads and stores of kernels.";
    let (first, said, _) = first_line(&[], ("treats_704_as_fatal-12", &[]), &[]);
    assert!(first.contains(" returned 704 ") && said.contains(untested), "{said}");
    let (_, said, _) = first_line(&["--verify", "full"], ("treats_704_as_fatal-12", &[]), &[]);
    assert!(!said.contains(untested), "{said}");
    let (_, said, _) = first_line(&["--no-check"], ("treats_704_as_fatal-12", &[]), &[]);
    assert!(!said.contains(untested), "{said}");
}
