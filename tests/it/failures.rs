//! Calls without a record that fail: the report begins with them.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::{Program, command, scratch};

/// Runs a program whose driver fails in this way. Returns the sentences of its report, and the calls without a record that have failed.
fn reported(fault: &str) -> (Vec<String>, Value) {
    let folder = scratch("failures");
    fs::create_dir(&folder).unwrap();
    let program = Program::case("failing").env("P2PSIM_FAULT", fault);
    let plain = program.plain();
    plain.assert_success();
    let traced = program.env("P2PSHIM_TRACE", folder.to_string_lossy()).env("P2PSHIM_VALIDATE", "off");
    traced.preloaded().assert_same_as(&plain, "with a trace");
    let output = Command::new(command()).arg("report").arg(&folder).arg("--json").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    fs::remove_dir_all(folder).unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
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
