//! Calls by which processes share memory, and that fail: the report says why, how often and where.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{Program, Scratch, json_report};

fn report(case: &Program) -> Value {
    let folder = Scratch::folder("unshared");
    let plain = case.plain();
    plain.assert_success();
    case.clone().env("P2PSHIM_TRACE", folder.to_string_lossy()).preloaded().assert_same_as(&plain, "with a trace");
    json_report(&folder)
}

/// By function, code and reason: how often.
fn rows(report: &Value) -> BTreeMap<(String, i64, String), u64> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut rows = BTreeMap::new();
    for row in report["unshared"].as_array().unwrap() {
        let key = (text(&row["function"]), row["code"].as_i64().unwrap(), text(&row["why"]));
        *rows.entry(key).or_default() += row["count"].as_u64().unwrap();
    }
    rows
}

#[test]
fn unshared_each_failed_call_has_its_reason_its_count_and_its_place() {
    let report = report(&Program::case("unshared"));
    let made = "memory that was made without handle types cannot be shared";
    let expected = [
        ("cuIpcGetMemHandle", 1, "memory of cuMemCreate has no IPC handle", 1),
        ("cuIpcGetMemHandle", 1, "memory of a pool has no IPC handle", 3),
        ("cuIpcOpenMemHandle", 1, "a flag does not exist", 1),
        ("cuIpcOpenMemHandle", 1, "the handle is not one that the process can open", 1),
        ("cuIpcOpenMemHandle", 201, "a handle was opened by the process that made it", 1),
        ("cuIpcOpenMemHandle", 205, "the memory, or the process that owns it, is gone", 1),
        ("cuMemCreate", 801, "there are no fabric handles here", 1),
        // By descriptor and by fabric handle.
        ("cuMemExportToShareableHandle", 1, made, 2),
        ("cuMemPoolExportPointer", 1, "memory of a pool without handle types cannot be shared", 1),
        ("cuMemPoolExportToShareableHandle", 1, made, 1),
        ("cuMemPoolSetAccess", 101, "the device of a pool cannot lose access to it", 1),
    ];
    let expected = expected.map(|(function, code, why, count)| ((function.to_owned(), code, why.to_owned()), count));
    assert_eq!(rows(&report), BTreeMap::from(expected), "{report:#}");
    for row in report["unshared"].as_array().unwrap() {
        let site = row["sites"][0]["site"].as_str().unwrap();
        assert!(site.contains("unshared.c:"), "{site}");
    }
}

#[test]
fn unshared_memory_without_a_path_is_told_and_what_succeeds_is_not() {
    for (transport, row) in [
        ("ipc", ("cuIpcOpenMemHandle", 217, "there is no usable path to the GPU of the memory")),
        ("pool", ("cuMemPoolSetAccess", 101, "there is no usable path to the GPU of the pool")),
    ] {
        let (function, code, why) = row;
        let row = (function.to_owned(), code, why.to_owned());
        let case = Program::case("between_processes-13").args(&[transport, "push", "both"]);
        let right = rows(&report(&case));
        assert_eq!(right.get(&row), None, "{transport}");
        let inside = "a handle was made of an address inside an allocation".to_owned();
        let inside = right.get(&("cuIpcGetMemHandle".to_owned(), 0, inside));
        assert_eq!(inside, Some(&1).filter(|_| transport == "ipc"), "{right:?}");
        assert_eq!(rows(&report(&case.env("P2PSIM_NO_P2P", "0-1"))).get(&row), Some(&1), "{transport}");
    }
}
