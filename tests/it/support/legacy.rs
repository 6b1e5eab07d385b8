//! The conformance tables for the runtimes of CUDA 8.0 to 10.2: the rows whose functions exist there, with the codes of then.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::process::Command;

use super::path;

pub(crate) const VERSIONS: [&str; 5] = ["8.0", "9.0", "10.0", "10.1", "10.2"];

/// Numbers since 10.1 and until 10.0, of all that occur in the tables.
const NUMBERS: [(&str, &str); 20] = [
    ("0", "0"),
    ("1", "11"),
    ("3", "3"),
    ("12", "12"),
    ("17", "17"),
    ("20", "20"),
    ("21", "21"),
    ("49", "49"),
    ("101", "10"),
    ("217", "64"),
    ("400", "33"),
    ("700", "77"),
    ("704", "50"),
    ("705", "51"),
    ("719", "4"),
    ("801", "71"),
    ("900", "900"),
    ("901", "901"),
    ("906", "906"),
    // It had none, and was unknown.
    ("709", "30"),
];

/// Steps of the tables that are several calls, and the one of them that old runtimes may lack.
const STEPS: [(&str, &str); 2] = [("lose_context", "cudaLaunchHostFunc"), ("disable_under_way", "cudaLaunchHostFunc")];

/// A kind of copy that does not exist is another error before 11.0: tests/golden/legacy-one-h200-*.tsv have it.
const WRONG_KIND: [&str; 2] =
    ["cudaMemcpy2D(b,1024,a,1024,1024,16,(enum", "cudaMemcpy2DAsync(b,1024,a,1024,1024,16,(enum"];

/// A table for a version, and why rows are not in it: how many, by reason.
pub(crate) struct Rows {
    pub(crate) text: String,
    pub(crate) count: usize,
    pub(crate) skipped: BTreeMap<String, usize>,
}

/// The functions that a simulated runtime exports.
fn exports(version: &str) -> BTreeSet<String> {
    let library = path(&format!("target/sim/lib/libcudart.so.{version}"));
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let name = |line: &str| Some(line.split(' ').nth(2)?.split('@').next()?.to_owned());
    let names: BTreeSet<String> = text.lines().filter_map(name).collect();
    assert!(names.contains("cudaMemcpyPeer"), "{}: {text}", library.display());
    names
}

/// The functions that a row calls: words before a parenthesis.
fn called(row: &str) -> impl Iterator<Item = &str> {
    let before = row.split('(').map(|part| part.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap());
    before.filter(|word| word.starts_with("cuda") || STEPS.iter().any(|(step, _)| step == word))
}

/// Why a version does not have this row.
fn reason(row: &str, version: &str, exported: &BTreeSet<String>) -> Option<String> {
    let of_runtime = called(row).map(|name| STEPS.iter().find(|(step, _)| *step == name).map_or(name, |step| step.1));
    let mut lacking = of_runtime.filter(|name| !exported.contains(*name));
    if let Some(name) = lacking.next() {
        return Some(format!("no {name}"));
    }
    let has_a_mode = ["ModeRelaxed", "ModeThreadLocal"].iter().any(|mode| row.contains(mode));
    (version == "10.0" && has_a_mode).then(|| "captures have no modes".to_owned())
}

fn number(code: &str, version: &str) -> String {
    let is_number = code.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || !["8.0", "9.0", "10.0"].contains(&version) {
        return code.to_owned();
    }
    let row = NUMBERS.iter().find(|(new, _)| *new == code);
    row.unwrap_or_else(|| panic!("{code}: which number did it have until 10.0?")).1.to_owned()
}

/// A table of `tests/golden` for a version.
pub(crate) fn rows(table: &str, version: &str) -> Rows {
    let exported = exports(version);
    let golden = fs::read_to_string(path(&format!("tests/golden/{table}"))).unwrap();
    let mut lines = golden.lines().filter(|line| !line.starts_with('#'));
    let mut made = Rows { text: format!("{}\n", lines.next().unwrap()), count: 0, skipped: BTreeMap::new() };
    for line in lines {
        let [setup, call, documented, ret, last, v] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}: not six columns")
        };
        if let Some(reason) = reason(&format!("{setup};{call}"), version, &exported) {
            *made.skipped.entry(reason).or_default() += 1;
            continue;
        }
        let is_wrong_kind = WRONG_KIND.iter().any(|start| call.starts_with(start));
        let [ret, last] = [ret, last].map(|code| {
            let code = if is_wrong_kind { "1" } else { code };
            if call.starts_with("cuda") { number(code, version) } else { code.to_owned() }
        });
        writeln!(made.text, "{setup}\t{call}\t{documented}\t{ret}\t{last}\t{v}").unwrap();
        made.count += 1;
    }
    made
}
