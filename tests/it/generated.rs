//! The committed header, lists of functions, options and findings, and table of answers are what their sources generate. With
//! `P2PSHIM_UPDATE=1` (`make header`) they are written anew instead.

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
    let mut subjects: Vec<PathBuf> =
        fs::read_dir(in_project("src/capi")).unwrap().map(|entry| entry.unwrap().path()).collect();
    subjects.sort();
    let builder = cbindgen::Builder::new().with_config(config).with_src(in_project("src/capi.rs"));
    subjects.into_iter().fold(builder, cbindgen::Builder::with_src).generate().unwrap().write(&mut header);
    check("include/p2pshim.h", &String::from_utf8(header).unwrap());
}

/// Compiles a source, which must give no warning.
fn compile(source: &str, language: &str, standard: &str, more: &[&str]) {
    let file = crate::support::scratch("header");
    fs::write(&file, source).unwrap();
    let output = Command::new("gcc")
        .args(["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .args([&format!("-std={standard}"), "-x", language, "-I"])
        .arg(in_project("include"))
        .args(more)
        .arg(&file)
        .output()
        .unwrap();
    fs::remove_file(&file).unwrap();
    assert!(output.status.success(), "{standard} {more:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn header_compiles_alone_and_twice_as_c_and_cpp() {
    let source = "#include <p2pshim.h>\n#include <p2pshim.h>\n\
                  int main(void) { p2pshim_api_t api; api.size = sizeof api; return (int)p2pshim_api_get(0, &api); }\n";
    for standard in ["c99", "c11", "c17"] {
        compile(source, "c", standard, &[]);
    }
    for standard in ["c++11", "c++14", "c++17", "c++20"] {
        compile(source, "c++", standard, &[]);
        let wrapped = "#include <p2pshim.hpp>\n#include <p2pshim.hpp>\n\
                       int main() { p2pshim::trace_scope scope(\"x\"); return scope.status(); }\n";
        compile(wrapped, "c++", standard, &[]);
        compile(wrapped, "c++", standard, &["-fno-exceptions"]);
    }
}

/// The functions of the header: the comment of each, and its declaration.
fn declarations(header: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for part in header.split("\n/**\n").skip(1) {
        let Some((comment, rest)) = part.split_once("*/\n") else { continue };
        let declaration = rest.split(';').next().unwrap_or_default().to_owned();
        if declaration.contains("p2pshim_") && declaration.contains('(') && !declaration.starts_with("typedef") {
            found.push((comment.to_owned(), declaration));
        }
    }
    found
}

#[test]
fn functions_of_the_header_say_what_they_take_answer_and_from_which_threads() {
    let header = fs::read_to_string(in_project("include/p2pshim.h")).unwrap();
    let declarations = declarations(&header);
    assert_eq!(declarations.len(), crate::support::capi_functions().len());
    for (comment, declaration) in declarations {
        assert!(comment.contains("Thread-safety: any thread") && comment.contains("@return "), "{declaration}");
        assert!(!comment.contains("# Safety"), "{declaration}: the header's top says for all what they owe");
        let list = declaration.split_once('(').unwrap().1.trim_end_matches(')');
        let names =
            list.split(',').filter_map(|one| one.trim().rsplit([' ', '*']).next()).filter(|name| *name != "void");
        for name in names {
            assert!(comment.contains(&format!("@param {name} ")), "{name} of {declaration}");
        }
    }
}

/// The examples between lines of three backticks, with the language behind the first.
fn examples(markdown: &str) -> impl Iterator<Item = (&str, &str)> {
    markdown.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'))
}

#[test]
fn examples_of_the_c_interface_compile() {
    let text = fs::read_to_string(in_project("docs/C_API.md")).unwrap();
    let mut count = 0;
    for (language, source) in examples(&text) {
        match language {
            "c" => compile(source, "c", "c99", &[]),
            "cpp" => compile(source, "c++", "c++11", &[]),
            _ => continue,
        }
        count += 1;
    }
    assert!(count >= 6, "{count} examples were found");
}

#[test]
fn functions_of_the_c_interface_are_all_in_its_reference() {
    let text = fs::read_to_string(in_project("docs/C_API.md")).unwrap();
    let missing: Vec<String> =
        crate::support::capi_functions().into_iter().filter(|name| !text.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/C_API.md says nothing of {missing:?}");
}

#[test]
fn list_of_functions_is_what_the_table_generates() {
    let output = Command::new(crate::support::command()).args(["apis", "--markdown"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check("docs/INTERCEPTED.md", &String::from_utf8(output.stdout).unwrap());
}

#[test]
fn list_of_options_is_what_the_rows_generate() {
    let output = Command::new(crate::support::command()).args(["options", "--markdown"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check("docs/OPTIONS.md", &String::from_utf8(output.stdout).unwrap());
}

#[test]
fn list_of_findings_is_what_the_rules_generate() {
    let output = Command::new(crate::support::command()).args(["explain", "--markdown"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    check("docs/MESSAGES.md", &String::from_utf8(output.stdout).unwrap());
}

#[test]
fn documentation_against_hardware_is_what_the_golden_table_generates() {
    let table = fs::read_to_string(in_project("tests/golden/conformance.tsv")).unwrap();
    check("docs/CONFORMANCE.md", &crate::support::conformance::markdown(&table));
}
