//! Every function, type and code of CUDA and HIP is accounted for. tests/api/check.py says how.

use std::process::Command;

use crate::support::once::alone;
use crate::support::path;

/// Runs tests/api/check.py; what it prints is what is wrong. One at a time: the first may fetch packages.
fn check(what: &str) {
    let _alone = alone("headers");
    path("target/nvidia/stamp");
    let output = Command::new("python3").arg(path("tests/api/check.py")).arg(what).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn functions_have_a_row_or_a_reason() {
    check("functions");
}

#[test]
fn arguments_of_rows_are_those_of_the_headers() {
    check("types");
}

#[test]
fn codes_have_names() {
    check("codes");
}
