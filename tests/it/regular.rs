//! Copies by the functions that name no devices: those between two devices are seen, and made direct, like peer copies;
//! all others are passed on as if there were no shim.

use std::fs;

use crate::support::soak::{Draw, flavours, is_all};
use crate::support::{Program, Scratch, command};
use p2pshim_trace::{Path, State};

/// Bytes that each function copies.
const BYTES: u64 = 2 << 20;

/// The runtime's functions in the order in which the program calls them, and the driver's that each calls.
const FUNCTIONS: [(&str, &str); 12] = [
    ("cudaMemcpy", "cuMemcpyDtoD_v2"),
    ("cudaMemcpy_ptds", "cuMemcpyDtoD_v2_ptds"),
    ("cudaMemcpyAsync", "cuMemcpyAsync"),
    ("cudaMemcpyAsync_ptsz", "cuMemcpyAsync_ptsz"),
    ("cudaMemcpy2D", "cuMemcpy2DUnaligned_v2"),
    ("cudaMemcpy2D_ptds", "cuMemcpy2DUnaligned_v2_ptds"),
    ("cudaMemcpy2DAsync", "cuMemcpy2DAsync_v2"),
    ("cudaMemcpy2DAsync_ptsz", "cuMemcpy2DAsync_v2_ptsz"),
    ("cudaMemcpy3D", "cuMemcpy3D_v2"),
    ("cudaMemcpy3D_ptds", "cuMemcpy3D_v2_ptds"),
    ("cudaMemcpy3DAsync", "cuMemcpy3DAsync_v2"),
    ("cudaMemcpy3DAsync_ptsz", "cuMemcpy3DAsync_v2_ptsz"),
];

fn program(flavour: &str, what: &str) -> Program {
    Program::case(&format!("regular_copies-{flavour}")).arg(what)
}

#[test]
fn between_devices_each_function_is_seen_and_direct() {
    for flavour in flavours("between_devices_each_function_is_seen_and_direct") {
        let (plain, trace) = program(flavour, "between").assert_same_preloaded();
        plain.assert_success();
        let (runtime, driver): (Vec<_>, Vec<_>) = FUNCTIONS.into_iter().unzip();
        if flavour == "static" {
            assert_eq!(trace.names_at(0), driver);
        } else {
            assert_eq!((trace.names_at(0), trace.names_at(1)), (runtime, driver), "{flavour}");
        }
        for call in &trace.calls {
            assert!(call.text.contains(" 0>1 direct"), "{flavour}: {}", call.text);
        }
    }
}

#[test]
fn between_devices_records_have_devices_bytes_and_path() {
    for flavour in flavours("between_devices_records_have_devices_bytes_and_path") {
        let folder = Scratch::new("traces");
        let program = program(flavour, "between").findings_apart().env("P2PSHIM_TRACE", folder.to_string_lossy());
        program.preloaded().assert_success();
        let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
        let trace = p2pshim_trace::Trace::open(&file).unwrap();
        let (mut copies, mut buffer) = (0, Vec::new());
        for block in 0..trace.blocks() {
            let block = trace.block(block, &mut buffer).unwrap().unwrap();
            for call in block.calls().filter(|call| !call.is_with_host()).filter(|call| call.depth == 0) {
                assert_eq!(
                    (call.state, call.src_device, call.dst_device),
                    (State::Done, Some(0), Some(1)),
                    "{flavour}: {call:?}"
                );
                assert_eq!((call.bytes, Path::numbered(call.path)), (BYTES, Some(Path::Direct)), "{flavour}: {call:?}");
                copies += 1;
            }
        }
        assert_eq!(copies, FUNCTIONS.len(), "{flavour}");
    }
}

#[test]
fn elsewhere_nothing_is_shown_recorded_or_counted() {
    for flavour in flavours("elsewhere_nothing_is_shown_recorded_or_counted") {
        let (plain, trace) = program(flavour, "elsewhere").assert_same_preloaded();
        plain.assert_success();
        assert!(trace.calls.is_empty(), "{flavour}: {:#?}", trace.calls);
    }
}

/// An address that the driver did not know is asked about again: it may become a device's without a call that is seen.
#[test]
fn reused_address_is_asked_about_again() {
    for flavour in flavours("reused_address_is_asked_about_again") {
        let program = program(flavour, "reused").findings_apart();
        let (outcome, trace) = program.traced();
        outcome.assert_success();
        let seen = trace.names_at(0).len();
        assert!((1000..2000).contains(&seen), "{flavour}: {seen} of 2000 copies were seen");
    }
}

// ---- arrays ----

/// The driver's functions in the order in which the program calls them.
const OF_ARRAYS: [&str; 12] = [
    "cuMemcpyDtoA_v2",
    "cuMemcpyDtoA_v2_ptds",
    "cuMemcpyAtoD_v2",
    "cuMemcpyAtoD_v2_ptds",
    "cuMemcpyAtoA_v2",
    "cuMemcpyAtoA_v2_ptds",
    "cuMemcpy2D_v2",
    "cuMemcpy2DUnaligned_v2",
    "cuMemcpy2DAsync_v2",
    "cuMemcpy3D_v2",
    "cuMemcpy3DAsync_v2",
    "cuMemcpy3D_v2",
];

/// So many of them are of one dimension: they are traced, and no more.
const LINES: usize = 6;

#[test]
fn arrays_between_devices_are_direct_and_elsewhere_passed_on() {
    let (plain, trace) = Program::case("array_copies").arg("between").assert_same_preloaded();
    plain.assert_success();
    assert_eq!(trace.names_at(0), OF_ARRAYS);
    for (number, call) in trace.calls.iter().enumerate() {
        assert_eq!(call.text.contains(" 0>1 direct"), number >= LINES, "{}", call.text);
    }
    let (plain, trace) = Program::case("array_copies").arg("elsewhere").assert_same_preloaded();
    plain.assert_success();
    assert_eq!(trace.names_at(0), OF_ARRAYS[..LINES], "those of one dimension are shown wherever they go");
}

/// They count towards enabling, with their bytes.
#[test]
fn arrays_left_staged_are_counted_and_said() {
    let program = Program::case("array_copies").arg("between").findings_apart();
    let (outcome, trace) = program.env("P2PSHIM_ACCESS", "app").traced();
    outcome.assert_success();
    for call in &trace.calls[LINES..] {
        assert!(call.text.contains(" 0>1 staged (access not enabled)"), "{}", call.text);
    }
    let found = outcome.findings.iter().find(|found| found.rule == "P2P-staged-never-enabled").unwrap();
    assert_eq!(found.function, "cuMemcpy2D_v2");
}

/// An array takes the handle of one that was destroyed, on another device.
#[test]
fn arrays_made_anew_are_known_by_their_device() {
    let (plain, trace) = Program::case("array_copies").arg("remade").assert_same_preloaded();
    plain.assert_success();
    assert_eq!(trace.names_at(0).len(), 50, "every second one lies on device 1");
}

#[test]
fn arrays_made_unseen_are_shown_without_a_device() {
    let library = crate::support::path("target/c-tests/libenables_unseen.so");
    let program = Program::case("array_copies").arg("unseen").arg(library.to_string_lossy());
    let (plain, trace) = program.assert_same_preloaded();
    plain.assert_success();
    assert_eq!(trace.names_at(0), ["cuMemcpy2D_v2"; 2]);
    for call in &trace.calls {
        assert!(["0>", "1>", ">0", ">1"].iter().all(|pair| !call.text.contains(pair)), "{}", call.text);
    }
    let report = reported("array_copies", &["unseen", &library.to_string_lossy()]);
    assert!(report.contains("No copy between GPUs is known."), "{report}");
    assert!(report.contains("Whether 2 copies were between GPUs is not known."), "{report}");
}

#[test]
fn between_devices_access_is_left_to_the_program_if_it_is_told_to() {
    for (access, path) in [("app", "staged (access not enabled)"), ("off", "staged (denied)")] {
        let (outcome, trace) = program("12", "between").findings_apart().env("P2PSHIM_ACCESS", access).traced();
        outcome.assert_success();
        assert_eq!(trace.names_at(0).len(), FUNCTIONS.len());
        for call in &trace.calls {
            assert!(call.text.contains(&format!(" 0>1 {path}")), "{access}: {}", call.text);
        }
        let rules: Vec<_> =
            outcome.findings.iter().map(|found| (found.rule.as_str(), found.function.as_str())).collect();
        let expected = (access == "app").then_some(("P2P-staged-never-enabled", "cudaMemcpy"));
        assert_eq!(rules.first().copied(), expected, "{access}");
    }
}

/// The report of `p2pshim run` on a program.
fn reported(program: &str, arguments: &[&str]) -> String {
    let traces = Scratch::new("traces");
    let mut run = std::process::Command::new(command());
    run.args(["run", "--no-check", "--trace"]).arg(&traces).arg("--");
    run.arg(crate::support::path("target/c-tests").join(program)).args(arguments);
    let output = run.env("LD_LIBRARY_PATH", crate::support::path("target/sim/lib")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    fs::remove_dir_all(&traces).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn report_counts_them() {
    let text = reported("regular_copies-12", &["between"]);
    assert!(!text.contains("Nothing was copied"), "{text}");
    // Whether the GPU is known to have made the last one is a matter of time.
    let text = text.replace("submitted copies", "copies");
    let first = "p2pshim enabled a pair that the program never enables: 25.2 MB of copies were direct that would have been staged; nothing was staged.";
    assert!(text.starts_with(first), "{text}");
    assert!(text.contains("  GPU 0 > GPU 1      12  25.2 MB  direct "), "{text}");
}

/// Each function answers as on two H200 for good and bad arguments, tests/golden/conformance-regular.tsv, in captures and without a
/// context too; with access left alone here, and otherwise in tests/it/conformance.rs.
#[test]
fn conformance_every_row_as_on_real_gpus() {
    let table = crate::support::path("tests/golden/conformance-regular.tsv");
    let drawn = Draw::of("conformance of regular copies").below(2);
    for (number, flavour) in flavours("conformance of regular copies").into_iter().enumerate() {
        let program = Program::case(&format!("conformance-{flavour}")).arg("--jobs").arg("4");
        let program = program.arg("--allow-crash-rows-error").arg(table.to_string_lossy()).findings_apart();
        let all = Some("# 192 rows: 192 as expected, 0 differ");
        if is_all() || number == drawn {
            let (traced, trace) = program.clone().env("P2PSHIM_ACCESS", "app").traced();
            traced.assert_success();
            assert_eq!(traced.stdout.lines().last(), all, "{flavour}");
            assert!(trace.calls.len() > 50, "{flavour}: {} calls", trace.calls.len());
        }
        if is_all() {
            assert_eq!(program.plain().stdout.lines().last(), all, "{flavour}, plain");
        }
        if is_all() || number != drawn {
            assert_eq!(program.preloaded().stdout.lines().last(), all, "{flavour}, preloaded");
        }
    }
}

/// `strict` returns what the real function returns too, and calls no driver function with other arguments.
#[test]
fn strict_refuses_with_the_code_of_the_real_function() {
    for flavour in flavours("strict_refuses_with_the_code_of_the_real_function") {
        let program = program(flavour, "past").findings_apart();
        let plain = program.plain();
        plain.assert_success();
        assert_eq!(plain.stdout, "1 1 1 1 12 last 12\n".repeat(2), "{flavour}");
        program.preloaded().assert_same_as(&plain, "preloaded");
        let strict = program.env("P2PSHIM_VALIDATE", "strict");
        strict.preloaded().assert_same_as(&plain, "strict");
        // The first of cuMemcpy's copies; a call that arrived beside it would return 46.
        for (function, call) in [("cuMemcpy", 2), ("cuMemcpyDtoD_v2", 1), ("cuMemcpy2DUnaligned_v2", 1)] {
            let watched = strict.clone().env("P2PSIM_FAULT", format!("code:{function}:46@{call}"));
            watched.preloaded().assert_same_as(&plain, &format!("strict, and {function} fails if it is called"));
        }
    }
}
