//! The first line of each C program says how it is built and run: `c-tests/make-rules`, on the programs themselves and on wrong ones.

use std::fs;
use std::process::{Command, Output};

use crate::support::{Scratch, path};

const RIGHT: &str = "/* build: runtime driver; run: right [ARGUMENT] on sim gpu */\n";

/// Exit status, rules and complaints for a folder of programs.
fn made(folder: &str) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } =
        Command::new(path("c-tests/make-rules")).arg(folder).current_dir(path("")).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// Rules and complaints for a right program, and another.
fn with(file: &str, text: &str) -> (Option<i32>, String, String) {
    let folder = Scratch::new("c-tests");
    for below in ["cases", "lib"] {
        fs::create_dir_all(folder.join(below)).unwrap();
    }
    fs::write(folder.join("cases/right.c"), RIGHT).unwrap();
    fs::write(folder.join(file), text).unwrap();
    made(&folder.to_string_lossy())
}

#[test]
fn every_program_says_how_it_is_built_and_run() {
    let (status, rules, complaints) = made("c-tests");
    assert_eq!((status, complaints.as_str()), (Some(0), ""));
    assert!(rules.contains("$(C_TESTS)/guide_sample-12: c-tests/cases/guide_sample.c"), "{rules}");
}

#[test]
fn words_of_a_line_make_its_programs() {
    let (status, rules, complaints) =
        with("lib/own.c", "/* build own-driver/libcuda.so.1: -ldl; run: by dlopen\n */\n");
    assert_eq!((status, complaints.as_str()), (Some(0), ""));
    let built: Vec<_> = rules.lines().filter_map(|line| line.strip_prefix("C_PROGRAMS += $(C_TESTS)/")).collect();
    assert_eq!(built, ["right-11", "right-12", "right-13", "right-static", "own-driver/libcuda.so.1"]);
    assert_eq!(rules.matches(" $(SIM_LIB)/libcuda.so.1 -l").count(), 4, "{rules}");
    assert!(rules.contains(" -ldl -Wl,-soname,libcuda.so.1 -o $@"), "{rules}");
}

/// A wrong line, or none, makes no rule at all; the complaint names the file and has a word of what is allowed.
#[test]
fn wrong_lines_are_refused_with_what_is_allowed() {
    let cases = [
        (
            "cases/case.c",
            "/* Copies. */\n",
            "\"/* build: WORD…; run: [VARIABLE=VALUE…] case [ARGUMENT…] on PLACE…\", of amd, gpu, ",
        ),
        ("cases/case.c", "#include <cuda.h>\n/* build: driver; run: case on sim */\n", "\"/* build: WORD…; run: "),
        ("cases/case.c", "/* build: driver */\n", "\"/* build: WORD…; run: "),
        ("cases/case.c", "/* build: driver; run: other on sim */\n", "\"/* build: WORD…; run: "),
        ("cases/case.c", "/* build: driver; run: case on sims */\n", "\"/* build: WORD…; run: "),
        ("cases/case.c", "/* build: drivers; run: case on sim */\n", "'drivers': there are runtime, "),
        ("cases/case.c", "/* build: absent.c; run: case on sim */\n", "'absent.c': there are runtime, "),
        ("cases/case.c", "/* build: 12; run: case on sim\n * build -own: 13 */\n", "-own cannot have 13 behind it"),
        (
            "cases/case.c",
            "/* build: 12; run: case on sim\n * build: runtime */\n",
            "case-12 is built by another line, too",
        ),
        (
            "lib/case.c",
            "/* build: plain; run: case on sim */\n",
            "\"/* build: WORD…; run: by HOW\", of linking, dlopen, ",
        ),
    ];
    for (file, text, complaint) in cases {
        let (status, rules, complaints) = with(file, text);
        assert_eq!((status, rules.as_str()), (Some(1), ""), "{text}{complaints}");
        let mut lines = complaints.lines();
        assert!(lines.any(|line| line.contains(file) && line.contains(complaint)), "{text}{complaints}");
        assert!(!complaints.contains("right.c"), "{complaints}");
    }
}

/// README.md explains each word, and no other.
#[test]
fn words_are_those_that_are_explained() {
    let words = |complaints: &str, from: &str, to: &str| -> Vec<String> {
        let rest = complaints.split(from).nth(1).unwrap_or_else(|| panic!("{complaints}"));
        rest.split(to).next().unwrap().trim().split(", ").map(str::to_owned).collect()
    };
    let (_, _, builds) = with("cases/case.c", "/* build: none_such; run: case on none_such */\n");
    let (_, _, ways) = with("lib/case.c", "/* build: plain; run: by none_such */\n");
    let readme = fs::read_to_string(path("c-tests/README.md")).unwrap();
    let table = |head: &str| -> Vec<String> {
        let rows = readme.split(head).nth(1).unwrap().lines().skip(2).take_while(|row| row.starts_with('|'));
        let cells = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
        let mut words: Vec<_> = cells.map(str::to_owned).collect();
        words.sort();
        words
    };
    for (mut allowed, head) in [
        (words(&builds, "there are ", ";"), "| build | meaning |"),
        (words(&builds, "on PLACE…\", of ", "\n"), "| on | place |"),
        (words(&ways, "by HOW\", of ", "\n"), "| by | how a library is loaded |"),
    ] {
        allowed.sort();
        assert_eq!(table(head), allowed, "README.md (left) and make-rules (right)");
    }
}
