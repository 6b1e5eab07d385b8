//! Brings files of the library under loom: its atomics in place of std's, which are not made in constants, and few places in place of many.

use std::{env, fs, path::PathBuf};

/// For each file what is replaced, which has to be there.
const FILES: [(&str, &str, &[[&str; 2]]); 2] = [
    (
        "table.rs",
        "../../src/os/table.rs",
        &[
            ["//!", "//"],
            ["use std::sync::atomic::", "use loom::sync::atomic::"],
            ["const fn new", "fn new"],
            ["[const { AtomicU64::new(0) }; PLACES]", "std::array::from_fn(|_| AtomicU64::new(0))"],
        ],
    ),
    (
        "memory.rs",
        "../../src/policy/memory.rs",
        &[
            ["//!", "//"],
            ["use std::sync::atomic::", "use loom::sync::atomic::"],
            ["const fn new", "fn new"],
            ["const fn empty", "fn empty"],
            ["const SETS: usize = 2048;", "const SETS: usize = 2;"],
            [
                "[const { [const { Entry::empty() }; 2] }; SETS]",
                "std::array::from_fn(|_| std::array::from_fn(|_| Entry::empty()))",
            ],
        ],
    ),
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    for (name, from, changes) in FILES {
        println!("cargo::rerun-if-changed={from}");
        let text = fs::read_to_string(from).unwrap();
        // Their own tests stay where they are.
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
        let changed = changes.iter().fold(text, |text, [old, new]| {
            assert!(text.contains(old), "{from} has no {old:?}");
            text.replace(old, new)
        });
        fs::write(out.join(name), changed).unwrap();
    }
}
