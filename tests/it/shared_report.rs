//! The report of processes that share memory: the pairs, bytes and owners are those of the program.

use serde_json::Value;

use crate::support::{Program, Scratch, command, json_report, path};

/// The GPUs of opener and owner.
const UUIDS: [&str; 2] = ["GPU-70327073-696d-2047-5055-202e2e2e2e00", "GPU-70327073-696d-2047-5055-202e2e2e2e01"];
/// Bytes of the memory, all of which is copied once.
const BYTES: u64 = 2 << 20;

/// Bytes of the batch, and of the graph's copy.
const PART: u64 = 300_000;

/// The pairs that have bytes, by the UUIDs of their GPUs.
fn pairs(report: &Value) -> Vec<(String, String, u64)> {
    let uuid = |gpu: &Value| report["gpus"][gpu.as_u64().unwrap() as usize]["uuid"].as_str().unwrap_or("-").to_owned();
    let all = report["pairs"].as_array().unwrap().iter();
    let all = all.map(|pair| (uuid(&pair["src"]), uuid(&pair["dst"]), pair["bytes"].as_u64().unwrap()));
    all.filter(|(.., bytes)| *bytes > 0).collect()
}

/// A bare preload in both, and both by `p2pshim run`.
fn reports(args: &[&str]) -> [(&'static str, Value); 2] {
    let [bare, run] = ["bare", "run"].map(Scratch::folder);
    let case = Program::case("between_processes-13").args(args);
    case.env("P2PSHIM_TRACE", bare.to_string_lossy()).preloaded().assert_success();
    let program = path("target/c-tests/between_processes-13");
    let started =
        Program::new(command()).args(&["run", "--no-check", "--no-report", "--trace", &run.to_string_lossy()]);
    started.arg(program.to_string_lossy()).args(args).libraries("target/sim/lib").plain().assert_success();
    [("bare", json_report(&bare)), ("run", json_report(&run))]
}

#[test]
fn report_has_the_pair_the_bytes_and_the_owner_of_memory_of_another_process() {
    let ways = ["ipc", "vmm", "pool"].into_iter().flat_map(|transport| ["both", "each"].map(|seen| (transport, seen)));
    for (transport, visibility) in ways {
        for direction in ["push", "pull"] {
            for (how, report) in reports(&[transport, direction, visibility]) {
                let what = format!("{transport} {visibility} {direction}, {how}: {report:#}");
                let [own, owners] = UUIDS.map(str::to_owned);
                let pair = if direction == "push" { (own, owners, BYTES) } else { (owners, own, BYTES) };
                assert_eq!(pairs(&report), [pair], "{what}");
                // Where driver or session names a GPU that the opener sees, records have that. Addresses tell whose memory it is: of handles, and not
                // of batches and graphs.
                let is_told = visibility == "both" && (transport != "ipc" || how == "run");
                if is_told && transport == "vmm" {
                    assert_eq!(report["between_processes"], Value::Array(Vec::new()), "{what}");
                    continue;
                }
                let bytes = if is_told { BYTES - 2 * PART } else { BYTES };
                let [row] = &report["between_processes"].as_array().unwrap()[..] else { panic!("{what}") };
                assert_eq!(
                    (&row["does"], &row["bytes"], &row["how"][0]),
                    (&direction.into(), &bytes.into(), &transport.into()),
                    "{what}"
                );
                let opener = row["file"].as_u64().unwrap();
                let owner = row[if direction == "push" { "dst_file" } else { "src_file" }].as_u64();
                assert!(owner.is_some_and(|owner| owner != opener), "{what}");
            }
        }
    }
}

/// Documented as undefined, and a sign that two processes have not agreed when memory is done with.
#[test]
fn report_says_that_memory_was_copied_from_or_to_after_its_owner_had_freed_it() {
    for (transport, visibility) in ["ipc", "pool"].into_iter().flat_map(|way| ["both", "each"].map(|seen| (way, seen)))
    {
        for end in ["waits", "freed"] {
            // Where a process by `p2pshim run` does not see the GPU, one number is of all memory there.
            for (how, report) in reports(&[transport, "push", visibility, end]) {
                let what = format!("{transport} {visibility} {end}, {how}: {report:#}");
                let is_known = end == "freed" && !(how == "run" && visibility == "each");
                let row = &report["between_processes"][0];
                assert_eq!(row["freed"], u64::from(is_known), "{what}");
                let is_it =
                    |it: &&Value| it["text"].as_str().unwrap().contains("after its owner had freed it (1 piece)");
                let said = report["verdict"].as_array().unwrap().iter().filter(is_it).count();
                assert_eq!(said, usize::from(is_known), "{what}");
            }
        }
    }
}
