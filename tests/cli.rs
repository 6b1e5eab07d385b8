//! The p2pshim command, as a user calls it.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod support;

use std::process::{Command, Output};

fn p2pshim(arguments: &[&str]) -> Output {
    Command::new(support::command()).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn version_is_the_packages() {
    let output = p2pshim(&["--version"]);
    assert_eq!(text(&output.stdout), concat!("p2pshim ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn apis_lists_functions_of_both_layers() {
    let output = p2pshim(&["apis"]);
    assert!(output.status.success());
    let list = text(&output.stdout);
    for expected in ["cudaMemcpyPeerAsync ", "cuCtxEnablePeerAccess ", "cuGetProcAddress_v2 "] {
        assert!(list.lines().any(|line| line.starts_with(expected)), "{expected} in {list}");
    }
}

#[test]
fn options_lists_each_variable_with_its_default() {
    let list = text(&p2pshim(&["options"]).stdout);
    assert!(list.contains("P2PSHIM=on|off  [default: on]"), "{list}");
    assert!(list.contains("P2PSHIM_LOG_FILE=path  [default: unset]"), "{list}");
}

#[test]
fn library_absent_message_names_it() {
    let output = p2pshim(&["--library", "/nonexistent/libp2pshim.so", "apis"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("p2pshim: /nonexistent/libp2pshim.so: "), "{}", text(&output.stderr));
}

#[test]
fn library_another_message_says_so() {
    let output = p2pshim(&["--library", "/lib/x86_64-linux-gnu/libm.so.6", "apis"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("not the shim"), "{}", text(&output.stderr));
}

#[test]
fn unknown_command_is_a_usage_error() {
    assert_eq!(p2pshim(&["apos"]).status.code(), Some(2));
}

#[test]
fn explain_tells_one_finding_or_lists_all() {
    let list = text(&p2pshim(&["explain"]).stdout);
    assert!(list.lines().count() > 40 && list.lines().all(|line| line.starts_with("P2P-")), "{list}");
    for line in list.lines() {
        let id = line.split(' ').next().unwrap();
        let one = p2pshim(&["explain", id]);
        assert!(one.status.success());
        let one = text(&one.stdout);
        for part in [id, "\nFunctions:\n", "\nWhy it matters:\n", "\nWhat to do:\n", "\nDocumentation:\n"] {
            assert!(one.contains(part), "{id}: {part}\n{one}");
        }
    }
}

#[test]
fn explain_unknown_id_names_the_nearest() {
    let output = p2pshim(&["explain", "P2P-enable-twise"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("did you mean P2P-enable-twice?"), "{}", text(&output.stderr));
}
