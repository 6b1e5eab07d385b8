//! Brings files of the library under the models: loom's atomics in place of std's, which are not made in constants, or those that a signal interrupts,
//! and few places in place of many.

use std::{env, fs, path::PathBuf};

const LOOM: [&str; 2] = ["use std::sync::atomic::", "use crate::ordered::"];
const SIGNAL: [&str; 2] = ["use std::sync::atomic::", "use crate::signal::"];
const NOT_CONST: [&str; 2] = ["const fn ", "fn "];
const MUTEX: [&str; 2] = ["use std::sync::Mutex;", "use loom::sync::Mutex;"];

/// For each file what is replaced, which has to be there.
const FILES: [(&str, &[[&str; 2]]); 21] = [
    (
        "src/os/table.rs",
        &[LOOM, NOT_CONST, ["[const { AtomicU64::new(0) }; PLACES]", "std::array::from_fn(|_| AtomicU64::new(0))"]],
    ),
    (
        "src/objects/generations.rs",
        &[
            LOOM,
            NOT_CONST,
            ["const OWNERS: usize = 128;", "const OWNERS: usize = 8;"],
            ["[const { AtomicU64::new(0) }; COUNT]", "std::array::from_fn(|_| AtomicU64::new(0))"],
        ],
    ),
    (
        "src/objects/index.rs",
        &[LOOM, NOT_CONST, ["const LOAD: u32 = 2;", "const LOAD: u32 = 1;"], ["const TRIES: usize = 64;", "const TRIES: usize = 2;"], ["const PAUSES: usize = 10_000;", "const PAUSES: usize = 8;"]],
    ),
    ("src/objects/map.rs", &[LOOM, NOT_CONST, MUTEX]),
    (
        "src/objects/memory.rs",
        &[
            LOOM,
            NOT_CONST,
            ["const SETS: usize = 2048;", "const SETS: usize = 2;"],
            [
                "[const { [const { Entry::empty() }; 2] }; SETS]",
                "std::array::from_fn(|_| std::array::from_fn(|_| Entry::empty()))",
            ],
        ],
    ),
    (
        "src/real/route.rs",
        &[LOOM, NOT_CONST, ["[const { Route::empty() }; COUNT]", "std::array::from_fn(|_| Route::empty())"]],
    ),
    ("src/policy/staging/rings.rs", &[LOOM, NOT_CONST, ["use parking_lot::", "use crate::locks::"]]),
    ("src/policy/staging/ring.rs", &[]),
    ("trace/src/writer/room.rs", &[LOOM, ["const STEP: u64 = 32;", "const STEP: u64 = 1;"]]),
    (
        "trace/src/writer/segment.rs",
        &[SIGNAL, ["unsafe { machine::add_unlocked(self.next.as_ptr(), step) }", "self.next.wrapping_add(step)"]],
    ),
    ("trace/src/layout.rs", &[]),
    ("src/call/frame.rs", &[SIGNAL]),
    // Two words make an entry there: more than elsewhere.
    ("src/machine/aarch64/mod.rs", &[]),
    (
        "src/policy/access/cells.rs",
        &[
            LOOM,
            NOT_CONST,
            [
                "[const { [const { Cell::new() }; COUNT] }; COUNT]",
                "std::array::from_fn(|_| std::array::from_fn(|_| Cell::new()))",
            ],
        ],
    ),
    (
        "src/policy/waits.rs",
        &[
            LOOM,
            NOT_CONST,
            MUTEX,
            ["mod entries;\n", "mod entries { library!(\"entries.rs\"); }\n"],
            ["mod stream;\n", "mod stream { library!(\"stream.rs\"); }\n"],
        ],
    ),
    ("src/policy/waits/entries.rs", &[LOOM, NOT_CONST, ["const BITS: u32 = u64::BITS;", "const BITS: u32 = 2;"]]),
    ("src/policy/waits/stream.rs", &[]),
    ("src/policy/ended.rs", &[]),
    (
        "src/objects/past.rs",
        &[
            LOOM,
            NOT_CONST,
            MUTEX,
            ["const FREES: usize = 256;", "const FREES: usize = 1;"],
            [
                "[const { [const { AtomicU64::new(0) }; 2] }; FREES]",
                "std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0)))",
            ],
        ],
    ),
    ("trace/src/writer/clock.rs", &[LOOM, ["(1..CALIBRATIONS)", "(1..3)"], ["slot + 1 == CALIBRATIONS", "slot + 1 == 3"]]),
    ("trace/src/writer/left.rs", &[]),
];

/// The models include a part of these files: it begins with the first text, and ends before the second one.
const PARTS: [(&str, &str, &str); 3] = [
    ("src/machine/aarch64/mod.rs", "/// An entry that a signal handler may read", "/// The address of the calling thread's block"),
    ("trace/src/writer/left.rs", "/// Space for headers and records", "impl Writer {"),
    // The system's clock is the model's.
    ("trace/src/writer/clock.rs", "use std::sync::atomic", "/// The processor's counter, if it can be relied on."),
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    // A file, a text in it and another in its place: a fault that the models have to find.
    println!("cargo::rerun-if-env-changed=P2PSHIM_MODELS_FAULT");
    let fault = env::var("P2PSHIM_MODELS_FAULT").unwrap_or_default();
    let fault: Vec<&str> = fault.split('\0').flat_map(|fault| fault.split('\x1f')).collect();
    for (name, changes) in FILES {
        let from = format!("../../{name}");
        println!("cargo::rerun-if-changed={from}");
        let text = fs::read_to_string(&from).unwrap();
        let text = PARTS.iter().filter(|(file, ..)| *file == name).fold(text, |text, (_, from, to)| {
            let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{name} has no {part:?}"));
            text[at(from)..at(to)].to_owned()
        });
        // Their own tests stay where they are.
        let text = text.split("#[cfg(test)]\n").next().unwrap().replace("//!", "//");
        let replace = |text: String, [old, new]: [&str; 2]| {
            assert!(text.contains(old), "{from} has no {old:?}");
            text.replace(old, new)
        };
        let text = match fault[..] {
            [file, old, new] if file == name => replace(text, [old, new]),
            _ => text,
        };
        let text = changes.iter().fold(text, |text, change| replace(text, *change));
        fs::write(out.join(if name.ends_with("/mod.rs") { "entry.rs" } else { name.rsplit_once('/').unwrap().1 }), text).unwrap();
    }
}
