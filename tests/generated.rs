//! The committed header, lists of functions, options and findings, and table of answers are what their sources generate. With
//! `P2PSHIM_UPDATE=1` (`make header`) they are written anew instead.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "support/conformance.rs"]
mod conformance;
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn in_project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Compares the committed file with what it should hold, or writes it.
fn check(path: &str, generated: &str) {
    let committed = in_project(path);
    let is_update = std::env::var_os("P2PSHIM_UPDATE").is_some();
    // Another test may be compiling it.
    if is_update && fs::read_to_string(&committed).unwrap_or_default() != generated {
        fs::write(&committed, generated).unwrap();
    }
    let committed = fs::read_to_string(committed).unwrap_or_default();
    assert!(committed == generated, "{path} is out of date; run `make header` and commit it");
}

#[test]
fn header_is_what_the_c_interface_generates() {
    let config = cbindgen::Config::from_file(in_project("cbindgen.toml")).unwrap();
    let mut header = Vec::new();
    cbindgen::Builder::new()
        .with_config(config)
        .with_src(in_project("src/capi.rs"))
        .generate()
        .unwrap()
        .write(&mut header);
    check("include/p2pshim.h", &String::from_utf8(header).unwrap());
}

#[test]
fn header_compiles_alone_and_twice_as_c_and_cpp() {
    let source = "#include <p2pshim.h>\n#include <p2pshim.h>\nint main(void) { p2pshim_api_t api = {0}; return (int)api.size; }\n";
    for (language, standard) in
        [("c", "c99"), ("c", "c11"), ("c", "c17"), ("c++", "c++11"), ("c++", "c++17"), ("c++", "c++20")]
    {
        let file = std::env::temp_dir().join(format!("p2pshim-header-{}-{standard}", std::process::id()));
        fs::write(&file, source).unwrap();
        let output = Command::new("gcc")
            .args(["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wno-missing-field-initializers"])
            .args([&format!("-std={standard}"), "-x", language, "-I"])
            .arg(in_project("include"))
            .arg(&file)
            .output()
            .unwrap();
        fs::remove_file(&file).unwrap();
        assert!(output.status.success(), "{standard}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn list_of_functions_is_what_the_table_generates() {
    let output = Command::new(support::command()).args(["apis", "--markdown"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check("docs/INTERCEPTED.md", &String::from_utf8(output.stdout).unwrap());
}

#[test]
fn list_of_options_is_what_the_rows_generate() {
    let output = Command::new(support::command()).args(["options", "--markdown"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check("docs/OPTIONS.md", &String::from_utf8(output.stdout).unwrap());
}

#[test]
fn list_of_findings_is_what_the_rules_generate() {
    let output = Command::new(support::command()).args(["explain", "--markdown"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check("docs/MESSAGES.md", &String::from_utf8(output.stdout).unwrap());
}

#[test]
fn documentation_against_hardware_is_what_the_golden_table_generates() {
    let table = fs::read_to_string(in_project("tests/golden/conformance.tsv")).unwrap();
    check("docs/CONFORMANCE.md", &conformance::markdown(&table));
}
