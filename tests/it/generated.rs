//! The committed header, lists of functions, options and findings, and table of answers are what their sources generate. With
//! `P2PSHIM_UPDATE=1` (`make header`) they are written anew instead.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use p2pshim_host::config::{Changes, Variable};
use serde_json::Value;

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
    let builder = GROUPS.map(group).into_iter().fold(cbindgen::Builder::new(), cbindgen::Builder::with_src);
    builder.with_config(config).generate().unwrap().write(&mut header);
    check("include/p2pshim.h", &grouped(&String::from_utf8(header).unwrap()));
    assert_eq!(fs::read_dir(in_project("src/capi")).unwrap().count(), GROUPS.len(), "GROUPS has all files");
}

/// The groups of the header in their order, each a file of src/capi/: a type stands before its use.
const GROUPS: [&str; 8] = ["status", "process", "pair", "verdict", "options", "finding", "trace", "event"];

fn group(name: &str) -> PathBuf {
    in_project("src/capi").join(name).with_extension("rs")
}

/// Puts all declarations into groups, each below the first lines of its file.
fn grouped(header: &str) -> String {
    let begin = header.find("\n/**\n").unwrap() + 1;
    let end = header.rfind("\n#ifdef __cplusplus").unwrap();
    let items: Vec<&str> = header[begin..end].split("\n\n/**").collect();
    let mut result = header[..begin].trim_end().to_owned() + "\n\n";
    let mut count = 0;
    for name in GROUPS {
        let file = fs::read_to_string(group(name)).unwrap();
        let title: Vec<&str> = file.lines().map_while(|line| line.strip_prefix("//! ")).collect();
        result += &format!("/* ---- {} ---- */\n\n", title.join("\n * ").trim_end_matches('.'));
        for item in items.iter().filter(|item| file.contains(&defined(item))) {
            count += 1;
            result += &short(&format!("/**{}\n\n", item.trim_start_matches("/**").trim_end()));
        }
    }
    assert_eq!(count, items.len(), "each is in a group");
    result.trim_end().to_owned() + "\n" + &header[end..]
}

/// The words by which the source defines an item of the header.
fn defined(item: &str) -> String {
    let (_, declaration) = item.split_once("*/\n").unwrap();
    let last = |text: &str| text.trim_end_matches([';', '\n']).rsplit([' ', '*']).next().unwrap().to_owned();
    let words: Vec<&str> = declaration.split(' ').collect();
    match words[..2] {
        ["#define", name] => format!("const {name}:"),
        ["typedef", kind @ ("enum" | "struct")] => format!("{kind} {} ", last(declaration)),
        ["typedef", _] => format!("type {} ", declaration.split(['*', ')']).nth(1).unwrap()),
        _ => format!("fn {}(", last(declaration.split('(').next().unwrap())),
    }
}

/// Comments of one line take one line.
fn short(item: &str) -> String {
    let mut result = String::new();
    let mut rest = item;
    while let Some((before, comment)) = rest.split_once("/**\n") {
        let (text, after) = comment.split_once("*/").unwrap();
        let is_long = text.trim().contains('\n');
        result += before;
        result += &if is_long {
            format!("/**\n{text}*/")
        } else {
            format!("/** {} */", text.trim().trim_start_matches("* "))
        };
        rest = after;
    }
    result + rest
}

/// Compiles a source, which must give no warning.
fn compile(source: &str, language: &str, standard: &str, more: &[&str]) {
    let file = crate::support::Scratch::new("header");
    fs::write(&file, source).unwrap();
    let output = Command::new("gcc")
        .args(["-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .args([&format!("-std={standard}"), "-x", language, "-I"])
        .arg(in_project("include"))
        .args(more)
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{standard} {more:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn header_compiles_alone_and_twice_as_c_and_cpp() {
    let source = "#include <p2pshim.h>\n#include <p2pshim.h>\n\
                  static p2pshim_pair_t pair = P2PSHIM_INIT(p2pshim_pair_t);\n\
                  int main(void) { return p2pshim_pair_get(0, 1, &pair); }\n";
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
    let text = ["docs/C_API.md", "docs/VERDICT.md"].map(|page| fs::read_to_string(in_project(page)).unwrap()).concat();
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

/// The functions and the rules, as the first step of `make header` writes them.
fn tables() -> Value {
    serde_json::from_slice(&fs::read(in_project("packaging/python/p2pshim/tables.json")).unwrap()).unwrap()
}

fn string<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_else(|| panic!("{key} of {row}"))
}

#[test]
fn list_of_functions_is_what_the_table_generates() {
    let mut page = "# Intercepted functions\n\n\
         Generated from src/api/functions.txt by `make header`; do not edit.\n\n\
         *traced*: forwarded and shown. *state*: watched, never shown. *lookup*: returns functions.\n\n\
         | function | parameters | layer | kind | since |\n| --- | --- | --- | --- | --- |\n"
        .to_owned();
    for row in tables()["apis"].as_array().unwrap() {
        let [name, parameters, layer, kind] = ["name", "parameters", "layer", "kind"].map(|key| string(row, key));
        let since = row["since"].as_i64().unwrap();
        let since = format!("{}.{}", since / 1000, since % 1000 / 10);
        page += &format!("| `{name}` | `{parameters}` | {layer} | {kind} | {since} |\n");
    }
    check("docs/INTERCEPTED.md", &page);
}

/// Whether the values are exactly these words, such as `on|off`.
fn are_words(values: &str) -> bool {
    values.contains('|') && values.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'|')
}

#[test]
fn list_of_options_is_what_the_rows_generate() {
    let mut page = "# Options\n\n\
         Generated from host/src/config/mod.rs by `make header`; do not edit.\n\n\
         Options are environment variables. p2pshim reads them once, when the program first calls an intercepted \
         function. `p2pshim run` takes each of them but `P2PSHIM` as an argument. An unknown variable that begins with \
         `P2PSHIM`, or an invalid value, has no effect; a warning says so, and names a similar valid one (no warning with \
         `P2PSHIM=off`). An empty value means the default. `P2PSHIM_COMMAND_LOG` is of the command \
         alone: it logs what it does itself at `info`, as with `-v`, and more at `debug`, as with `-vv`. Simulated GPUs have their own variables: \
         [sim/README.md](../sim/README.md).\n"
        .to_owned();
    for &variable in Variable::ALL {
        let (name, [values, help, details]) = (variable.name(), variable.texts());
        let listed = match are_words(values) {
            true => format!("Values: `{}`", values.replace('|', "`, `")),
            false => format!("Value: {values}"),
        };
        let default = Some(variable.default()).filter(|default| !default.is_empty());
        let default = default.map_or_else(|| "unset".to_owned(), |default| format!("`{default}`"));
        page += &format!("\n## {name}\n\n{listed}; default: {default}.\n");
        if let Some(option) = name.strip_prefix("P2PSHIM_") {
            page += &format!("`p2pshim run --{}`.\n", option.to_ascii_lowercase().replace('_', "-"));
        }
        let interface = |when: &str| format!("The [C interface](C_API.md#options) can change it {when}.");
        page += &match variable.changes() {
            Changes::Never => "It can be set only before the first intercepted call.".to_owned(),
            Changes::Always => interface("at any time"),
            Changes::UntilTraced => interface("until there is a trace"),
            Changes::Between(_, values) => interface(values),
        };
        page += &format!("\n\n{help}.\n");
        if !details.is_empty() {
            page += &format!("\n{details}\n");
        }
    }
    check("docs/OPTIONS.md", &page);
}

#[test]
fn list_of_findings_is_what_the_rules_generate() {
    let tables = tables();
    let rules = tables["rules"].as_array().unwrap();
    let mut page = "# Findings\n\n\
         Generated from src/model/rules.txt by `make header`; do not edit.\n\n\
         Findings of `P2PSHIM_VALIDATE=warn` (the default) and `strict` about peer calls. `p2pshim explain ID` prints one of \
         them. *error*: the call fails, or would fail if CUDA checked its arguments. *hazard*: the call succeeds, but data may be wrong. \
         *performance*: the call takes longer than necessary. *note*: harmless by itself; logged from `P2PSHIM_LOG=info` on. \
         Ids are never renamed and never reused. The documentation is that of CUDA 13.0. *Hardware* tells what was \
         measured on real GPUs ([CONFORMANCE.md](dev/CONFORMANCE.md)).\n\n\
         | id | severity | functions |\n| --- | --- | --- |\n"
        .to_owned();
    for rule in rules {
        let [id, severity, functions] = ["id", "severity", "functions"].map(|key| string(rule, key));
        page += &format!("| [{id}](#{}) | {severity} | {functions} |\n", id.to_ascii_lowercase());
    }
    for rule in rules {
        page += &format!("\n## {}\n\n*{}*\n", string(rule, "id"), string(rule, "severity"));
        let code = |layer: &str| {
            let code = rule[format!("{layer}_code")].as_i64().filter(|&code| code != 0)?;
            Some(format!("{layer} {code} ({})", string(rule, &format!("{layer}_code_name"))))
        };
        let codes = ["runtime", "driver"].into_iter().filter_map(code).collect::<Vec<_>>().join(", ");
        for (title, text) in [
            ("Functions", string(rule, "functions")),
            ("Why it matters", string(rule, "why")),
            ("What to do", string(rule, "remedy")),
            ("Documentation", string(rule, "documentation")),
            ("Documented code", &codes),
            ("Hardware", string(rule, "hardware")),
        ] {
            if !text.is_empty() {
                page += &format!("\n**{title}.** {text}\n");
            }
        }
    }
    check("docs/MESSAGES.md", &page);
}

#[test]
fn documentation_against_hardware_is_what_the_golden_table_generates() {
    let table = fs::read_to_string(in_project("tests/golden/conformance.tsv")).unwrap();
    check("docs/dev/CONFORMANCE.md", &crate::support::conformance::markdown(&table));
}
