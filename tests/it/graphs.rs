//! Copies between devices that graphs and batches make: pairs are enabled before a graph is instantiated, launches are seen and counted
//! with what they copy, and so are batches.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::findings::Finding;
use crate::support::soak::{Draw, flavours, is_all, stride};
use crate::support::{Outcome, Program, Scratch, command};
use p2pshim_trace::{Path as Taken, Trace};

const MIB: u64 = 1 << 20;

fn verified(flavour: &str, what: &str) -> Program {
    Program::case(&format!("graph_copies-{flavour}")).arg(what)
}

/// Its pairs are enabled unverified: a verification measures, and on a busy machine a direct path may pass for slow.
fn program(flavour: &str, what: &str) -> Program {
    verified(flavour, what).env("P2PSHIM_VERIFY", "off")
}

/// The copies in a program's trace: by source, destination and path how many there were, and of how many bytes.
fn copied(program: Program) -> BTreeMap<(u8, u8, String), (u64, u64)> {
    let folder = Scratch::new("traces");
    program.findings_apart().env("P2PSHIM_TRACE", folder.to_string_lossy()).preloaded().assert_success();
    copied_in(&fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path())
}

/// The copies in a trace that is there.
fn copied_in(file: &Path) -> BTreeMap<(u8, u8, String), (u64, u64)> {
    let trace = Trace::open(file).unwrap();
    let (mut sums, mut buffer) = (BTreeMap::new(), Vec::new());
    for block in 0..trace.blocks() {
        for call in trace.block(block, &mut buffer).unwrap().unwrap().calls().filter(|call| !call.is_with_host()) {
            let path = Taken::numbered(call.path).filter(|&path| path != Taken::Captured);
            if let Some(path) = path.filter(|_| call.is_part() || call.depth == 0) {
                let pair = (call.src_device.unwrap(), call.dst_device.unwrap(), path.title());
                let (copies, bytes) = sums.entry(pair).or_insert((0, 0));
                *copies += call.copies();
                *bytes += call.bytes;
            }
        }
    }
    sums
}

fn sums(expected: &[(u8, u8, &str, u64, u64)]) -> BTreeMap<(u8, u8, String), (u64, u64)> {
    expected.iter().map(|&(src, dst, path, copies, bytes)| ((src, dst, path.to_owned()), (copies, bytes))).collect()
}

#[test]
fn graphs_make_the_same_copies_and_each_launch_is_counted_with_its_bytes() {
    for flavour in flavours("graphs_make_the_same_copies_and_each_launch_is_counted_with_its_bytes") {
        for (what, copies) in [("captured", 2), ("made", 1)] {
            let (plain, trace) = program(flavour, what).assert_same_preloaded();
            plain.assert_success();
            let name = if flavour == "static" { "cuGraphLaunch" } else { "cudaGraphLaunch" };
            let launches: Vec<&str> = trace
                .calls
                .iter()
                .filter(|call| call.depth == 0 && call.name == name)
                .map(|call| &*call.text)
                .collect();
            assert_eq!(launches.len(), 3, "{flavour} {what}");
            let word = if copies == 1 { "copy" } else { "copies" };
            let expected = format!(" 0>1 direct ({copies} {word}, 1048576 bytes), 1>0 direct (1 copy, 524288 bytes)");
            for launch in launches {
                assert!(launch.contains(&expected), "{flavour} {what}: {launch}");
            }
            let expected = [(0, 1, "direct", 3 * copies, 3 * MIB), (1, 0, "direct", 3, 3 * MIB / 2)];
            assert_eq!(copied(program(flavour, what)), sums(&expected), "{flavour} {what}");
        }
    }
}

/// One of the threads verifies the pair; the others wait for it. Where this machine is busy, verifying may take longer than they wait: then
/// they say so, and for how long they have waited. Their graphs are staged, and while those are there the others' are too.
#[test]
fn graphs_of_threads_that_instantiate_at_the_same_moment_are_all_direct() {
    const ROUNDS: usize = 64;
    const RIGHT: usize = 4;
    const PATIENCE: u64 = 100;
    for threads in [2, 4] {
        let is_right = |_: &usize| {
            let program = Program::case("graphs_together").arg(threads.to_string()).findings_apart();
            let outcome = program.env("P2PSHIM_LOG", "info").preloaded();
            outcome.assert_success();
            let waited = |line: &String| {
                line.split_once("another thread is still verifying after ").map(|(_, ms)| ms.to_owned())
            };
            let waited: Vec<String> = outcome.shim.iter().filter_map(waited).collect();
            let enough = |ms: &String| ms.trim_end_matches(" ms").parse::<u64>().unwrap() >= PATIENCE;
            assert!(waited.iter().all(enough), "{:#?}", outcome.shim);
            // A verification that did not end is made again, later.
            let is_put_off = outcome.shim.iter().any(|line| line.contains("is to be verified later"));
            let is_quick = !is_put_off && waited.is_empty();
            let copies = 3 * threads;
            let ways: Vec<usize> = outcome.stdout.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            assert_eq!((ways.len(), ways.iter().sum::<usize>()), (2, copies), "{}", outcome.stdout);
            assert!(!is_quick || ways == [copies, 0], "{}: {:#?}", outcome.stdout, outcome.shim);
            is_quick
        };
        let right = (0..ROUNDS).filter(is_right).take(RIGHT).count();
        assert_eq!(right, RIGHT, "{threads} threads: of {ROUNDS} rounds");
    }
}

/// CUDA refuses to change a staged copy of a graph once access is enabled: p2pshim enables the pair when the graph is destroyed.
#[test]
fn graph_that_was_staged_is_changed_as_without_us() {
    for flavour in ["12", "13", "static"] {
        let program = Program::case(&format!("graph_updated_later-{flavour}")).findings_apart();
        let plain = program.plain();
        assert_eq!(plain.stdout.matches("= cudaSuccess").count(), 2, "{}", plain.stdout);
        assert!(plain.stdout.contains("the other half is right"), "{}", plain.stdout);
        program.preloaded().assert_same_as(&plain, "preloaded");
        let paths = copied(program);
        let is_there = |wanted: &str| paths.keys().any(|(_, _, path)| path.contains(wanted));
        assert!(is_there("a graph was instantiated before") && is_there("direct"), "{paths:?}");
    }
}

/// Wherever a handler leaves a launch or a copy by longjmp, or its thread is cancelled, no lock is left behind.
#[test]
fn graph_whose_launches_were_left_is_destroyed() {
    for (how, what) in [("jumps", "launch"), ("cancelled", "launch"), ("jumps", "copy"), ("cancelled", "copy")] {
        let [every, first] = stride(&format!("graph_left {how} {what}"), 13, 1);
        let program = Program::case("graph_left").args(&[how, what, &every, &first]);
        let (plain, outcome) = (program.plain(), program.preloaded());
        outcome.assert_success();
        assert_eq!(outcome.stdout, plain.stdout, "{how} {what}");
        assert_eq!((&*plain.stderr, &*outcome.stderr), ("few left", "many left"), "{how} {what}");
    }
}

#[test]
fn updated_graphs_are_counted_with_what_they_copy_then() {
    for flavour in flavours("updated_graphs_are_counted_with_what_they_copy_then") {
        let (plain, _) = program(flavour, "updated").assert_same_preloaded();
        plain.assert_success();
        let expected = [(0, 1, "direct", 3, MIB + MIB / 2 + MIB / 4), (1, 0, "direct", 3, MIB / 2 + MIB / 2 + MIB / 4)];
        assert_eq!(copied(program(flavour, "updated")), sums(&expected), "{flavour}");
    }
}

/// After an update with another graph a node is changed by its name in the first; one that is disabled copies nothing.
#[test]
fn changed_nodes_are_found_by_the_graph_that_was_instantiated() {
    for flavour in flavours("changed_nodes_are_found_by_the_graph_that_was_instantiated") {
        let (plain, _) = program(flavour, "renamed").assert_same_preloaded();
        plain.assert_success();
        let expected = [(0, 1, "direct", 1, MIB / 2), (1, 0, "direct", 2, MIB / 4 + MIB)];
        assert_eq!(copied(program(flavour, "renamed")), sums(&expected), "{flavour}");
    }
}

#[test]
fn graphs_keep_the_path_of_their_instantiation_and_the_report_says_so() {
    for flavour in flavours("graphs_keep_the_path_of_their_instantiation_and_the_report_says_so") {
        let program = || program(flavour, "late").env("P2PSHIM_ACCESS", "app");
        let never = "staged: access not enabled";
        let expected = [
            (0, 1, never, 6, 3 * MIB),
            (1, 0, never, 3, 3 * MIB / 2),
            (0, 1, "direct", 6, 3 * MIB),
            (1, 0, "direct", 3, 3 * MIB / 2),
        ];
        assert_eq!(copied(program()), sums(&expected), "{flavour}");
        let outcome = program().findings_apart().preloaded();
        let found: Vec<_> = outcome.findings.iter().filter(|finding| finding.rule == "P2P-graph-staged").collect();
        let expected = "2 copies from device 0 to device 1, 1048576 bytes a launch, staged (access not enabled)";
        assert!(found.len() == 1 && found[0].text.contains(expected), "{flavour}: {found:?}");
    }
}

#[test]
fn graphs_that_lose_their_access_are_reported_before_the_context_is_lost() {
    for flavour in flavours("graphs_that_lose_their_access_are_reported_before_the_context_is_lost") {
        let program = || verified(flavour, "lost");
        let of_graphs = |findings: &[Finding]| -> Vec<String> {
            let of_graphs = findings.iter().filter(|finding| finding.rule.starts_with("P2P-graph"));
            of_graphs.map(|finding| format!("{} {}", finding.function, finding.rule)).collect()
        };
        let outcome = program().env("P2PSHIM_ACCESS", "app").findings_apart().preloaded();
        assert_eq!(outcome.stdout, "launch 0, then 719\n", "{flavour}: as without us");
        let name = if flavour == "static" { "cuGraphLaunch" } else { "cudaGraphLaunch" };
        assert_eq!(of_graphs(&outcome.findings), [format!("{name} P2P-graph-access-lost")], "{flavour}");
        // Access that was enabled stays enabled.
        let outcome = program().findings_apart().preloaded();
        assert_eq!(outcome.stdout, "launch 0, then 0\n", "{flavour}");
        assert_eq!(of_graphs(&outcome.findings), Vec::<String>::new(), "{flavour}");
    }
}

#[test]
fn batches_are_seen_with_both_signatures_and_only_what_goes_between_devices_counts() {
    for flavour in ["12", "13", "static"] {
        let (plain, trace) = program(flavour, "batch").assert_same_preloaded();
        plain.assert_success();
        let names = match flavour {
            "12" => ["cudaMemcpyBatchAsync", "cuMemcpyBatchAsync", "cudaMemcpy3DBatchAsync", "cuMemcpy3DBatchAsync"],
            "13" => {
                ["cudaMemcpyBatchAsync", "cuMemcpyBatchAsync_v2", "cudaMemcpy3DBatchAsync", "cuMemcpy3DBatchAsync_v2"]
            }
            _ => ["cuMemcpyBatchAsync_v2", "", "cuMemcpy3DBatchAsync_v2", ""],
        };
        let [batch, inner, batch_3d, inner_3d] = names;
        let expected = [batch, batch, batch_3d].repeat(3);
        assert_eq!(trace.names_at(0), expected, "{flavour}");
        if !inner.is_empty() {
            assert_eq!(trace.names_at(1), [inner, inner, inner_3d].repeat(3), "{flavour}");
        }
        for call in trace.calls.iter().filter(|call| call.depth == 0) {
            assert_eq!(call.text.contains("failIdx="), flavour == "12", "{}", call.text);
            // One stream, in the place where each version has it.
            assert!(call.text.contains("tream=0x5053"), "{}", call.text);
        }
        // As soon as the pair is worth it, which is said to be from the copy on that exceeds 1 MiB.
        let sums = copied(program(flavour, "batch"));
        let total = |src, dst| {
            let of = sums.iter().filter(|((from, to, _), _)| (*from, *to) == (src, dst));
            of.fold((0, 0), |(copies, bytes), (_, (more, also))| (copies + more, bytes + also))
        };
        assert_eq!((total(0, 1), total(1, 0)), ((9, 6 * MIB), (6, 6 * MIB)), "{flavour}: {sums:?}");
        assert!(sums[&(0, 1, "direct".to_owned())].1 >= 4 * MIB, "{flavour}: {sums:?}");
    }
}

/// The report adds up the parts, and names the calls.
#[test]
fn report_counts_the_copies_of_launches_and_batches() {
    for (what, calls, total) in [("captured", "cudaGraphLaunch", 3 * MIB), ("batch", "cudaMemcpyBatchAsync", 6 * MIB)] {
        let folder = Scratch::new("traces");
        let program = program("12", what).findings_apart().env("P2PSHIM_TRACE", folder.to_string_lossy());
        program.preloaded().assert_success();
        let report = |option: &str| {
            let output = Command::new(command()).args(["report", option]).arg(&folder).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        };
        let csv = report("--csv");
        let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let header = lines.next().unwrap();
        let column = |name: &str| header.iter().position(|column| *column == name).unwrap();
        let (src, dst, bytes) = (column("src"), column("dst"), column("bytes"));
        let sum: u64 = lines
            .filter(|line| (line[src], line[dst]) == ("GPU 0", "GPU 1"))
            .map(|line| line[bytes].parse::<u64>().unwrap())
            .sum();
        assert_eq!(sum, total, "{what}: {csv}");
        let lines = report("--calls");
        assert!(lines.contains(calls) && lines.contains(" 0>1 direct"), "{what}: {lines}");
    }
}

// ---- Rows of calls, each in a process of its own ----

const ROWS: &str = "tests/golden/conformance-graphs.tsv";

/// The answers that the shim changes on two H200 and here. It has enabled access before it instantiates, and that stays: a copy may be
/// launched by a device, is not lost when the program disables, and may then stay on the device that it reads from.
const ENABLED: [(&str, &str, &str); 6] = [
    ("make_graphs()", "cudaGraphInstantiateWithFlags(&ex,gr,4)", "0\t0\t-7"),
    (
        "cudaDeviceEnablePeerAccess(1,0);make_ready();cudaDeviceDisablePeerAccess(1);try cudaGraphLaunch(ex,s0)",
        "cudaStreamSynchronize(s0)",
        "0\t0\t-7",
    ),
    ("make_ready()", "cudaGraphExecUpdate(ex,gc,&ri)", "0\t0\t0"),
    ("make_ready()", "cuGraphExecUpdate_v2(ex,gc,&ui)", "0\t-\t0"),
    ("make_ready()", "cudaGraphExecMemcpyNodeSetParams1D(ex,nd,c,a,n,cudaMemcpyDefault)", "0\t0\t-7"),
    ("make_ready()", "cudaGraphExecChildGraphNodeSetParams(ep,np,gc)", "0\t0\t-7"),
];

/// Batches that are refused while their stream is captured: p2pshim captures their copies.
const CAPTURED: [(&str, &str); 7] = [
    ("cudaStreamBeginCapture(s0,cudaStreamCaptureModeGlobal)", "cudaMemcpyBatchAsync(bd,bs,z,2,at,i,1,s0)"),
    ("cudaStreamBeginCapture(s0,cudaStreamCaptureModeRelaxed)", "cudaMemcpyBatchAsync(bd,bs,z,2,at,i,1,s0)"),
    ("cudaStreamBeginCapture(s0,cudaStreamCaptureModeGlobal)", "cudaMemcpy3DBatchAsync(2,o,0,s0)"),
    ("cudaStreamBeginCapture(s0,cudaStreamCaptureModeGlobal)", "cuMemcpyBatchAsync(ud,us,z,2,ut,i,1,(size_t*)&w,s0)"),
    ("cudaStreamBeginCapture(s0,cudaStreamCaptureModeGlobal)", "cuMemcpyBatchAsync_v2(ud,us,z,2,ut,i,1,s0)"),
    ("cudaStreamBeginCapture(s0,cudaStreamCaptureModeGlobal)", "cuMemcpy3DBatchAsync(2,uo,(size_t*)&w,0,s0)"),
    ("cudaStreamBeginCapture(s0,cudaStreamCaptureModeGlobal)", "cuMemcpy3DBatchAsync_v2(2,uo,0,s0)"),
];

/// The rows that are not answered as on real GPUs, with their answers.
fn differing(outcome: &Outcome) -> Vec<(&str, &str, &str)> {
    let lines = outcome.stderr.lines().filter_map(|line| line.strip_prefix("row ")?.split_once(" differs: "));
    lines
        .map(|(_, line)| {
            let (row, answers) = line.split_once(": expected ").unwrap();
            let (setup, call) = row.split_once("; ").unwrap();
            (setup, call, answers.split_once(", got ").unwrap().1)
        })
        .collect()
}

#[test]
fn conformance_every_row_is_as_on_real_gpus_and_preloaded_only_enabled_access_shows() {
    let table = crate::support::path(ROWS);
    let tried =
        if is_all() { vec!["12", "13", "static"] } else { vec!["static", ["12", "13"][Draw::of(ROWS).below(2)]] };
    let drawn = Draw::of("graphs, otherwise").below(2 * tried.len());
    for (number, flavour) in tried.into_iter().enumerate() {
        let program = Program::case(&format!("conformance-{flavour}")).arg("--jobs").arg("4");
        let program = program.arg("--allow-crash-rows-error").arg(table.to_string_lossy()).findings_apart();
        let is_all_right = |outcome: &Outcome, how: &str| {
            let last = outcome.stdout.lines().last();
            assert_eq!(last, Some("# 257 rows: 257 as expected, 0 differ"), "{flavour}, {how}: {}", outcome.stderr);
        };
        if is_all() || drawn == 2 * number {
            is_all_right(&program.plain(), "plain");
        }
        if is_all() || drawn == 2 * number + 1 {
            let alone = program.clone().env("P2PSHIM_ACCESS", "app").env("P2PSHIM_CAPTURE", "forward");
            is_all_right(&alone.preloaded(), "access and captures left alone");
        }
        let preloaded = program.preloaded();
        let count = Some("# 257 rows: 244 as expected, 13 differ");
        assert_eq!(preloaded.stdout.lines().last(), count, "{flavour}: {}", preloaded.stderr);
        let is_captured = |&(setup, call, _): &(&str, &str, &str)| CAPTURED.contains(&(setup, call));
        let (captured, differ): (Vec<_>, Vec<_>) = differing(&preloaded).into_iter().partition(is_captured);
        assert_eq!(differ, ENABLED, "{flavour}");
        let captured: Vec<_> = captured
            .iter()
            .map(|(setup, call, answers)| {
                assert!(answers.starts_with("0\t"), "{call}: {answers}");
                (*setup, *call)
            })
            .collect();
        assert_eq!(captured, CAPTURED, "{flavour}");
    }
}
