//! Documents: their commands do what they say, their links lead somewhere. tests/docs/check.py says how documents are written.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{path, say};

/// Runs tests/docs/check.py; what it says is the failure, or is given.
fn check(what: &[&str]) -> String {
    let output = Command::new("python3").arg(path("tests/docs/check.py")).args(what).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn commands_of_the_first_documents_do_what_is_shown() {
    for needed in ["target/c-tests/guide_sample-12", "target/sim/lib/libcuda.so.1", "target/built/p2pshim"] {
        path(needed);
    }
    check(&[
        "run",
        "README.md",
        "docs/USAGE.md",
        "docs/DOCTOR.md",
        "docs/LIMITS.md",
        "docs/ORDER.md",
        "docs/TROUBLESHOOTING.md",
    ]);
}

#[test]
#[ignore = "make soak"]
fn commands_of_all_documents_do_what_is_shown() {
    check(&["run"]);
}

#[test]
fn commands_of_documents_with_mpirun_do_what_is_shown() {
    let said = check(&["mpi"]);
    if said.starts_with("skipped: ") {
        say(&said);
    }
}

#[test]
fn commands_of_documents_that_need_more_than_this_machine_are_marked_and_named() {
    say(&format!("skipped: {}", check(&["marked"])));
}

#[test]
fn links_of_documents_lead_to_files_and_headings() {
    println!("{}", check(&["links"]));
}

#[test]
#[ignore = "make soak"]
fn quick_start_leads_to_copies_that_are_right_and_says_that_they_were_staged() {
    check(&["walk"]);
}

#[test]
fn check_of_documents_finds_what_is_wrong() {
    let output = Command::new("python3").arg(path("tests/docs/check.py")).arg("itself").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn header_has_a_comment_for_each_declaration() {
    let header = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("include/p2pshim.h")).unwrap();
    let bare = without_comment(&header);
    assert!(bare.is_empty(), "declarations of include/p2pshim.h without a comment right above: {bare:#?}");
    let without = header.replacen("/** Done. */\n", "", 1);
    assert_eq!(without_comment(&without), ["P2PSHIM_OK = 0,"], "the check sees one that is missing");
}

/// Declarations with no `/** … */` right above: macros, types, fields, constants, functions.
fn without_comment(header: &str) -> Vec<&str> {
    let mut bare = Vec::new();
    let (mut is_commented, mut in_comment, mut in_declaration) = (false, false, false);
    for line in header.lines().map(str::trim) {
        if in_comment || line.starts_with("/*") {
            in_comment = !line.ends_with("*/");
            is_commented = true;
            continue;
        }
        // The lines that hold the header together document nothing.
        let is_frame = line.is_empty() || line.starts_with('}') || line.starts_with("extern \"C\"");
        let is_directive = line.starts_with('#') && !(line.starts_with("#define ") && line.split(' ').count() > 2);
        if !in_declaration && !is_frame && !is_directive && !is_commented {
            bare.push(line);
        }
        // A function's parameters may take several lines.
        in_declaration = (in_declaration || line.contains('(')) && !line.ends_with(';') && !line.ends_with('{');
        is_commented = in_declaration && is_commented;
    }
    bare
}
