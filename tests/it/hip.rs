//! HIP under the shim: the same codes, last errors and bytes on simulated GPUs of three releases, AMD's own library on a
//! machine without AMD GPUs, peer access for kernels, what is hidden, what is said, and two vendors in one process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use crate::support::soak::{Draw, flavours, is_all, seeds};
use crate::support::{Outcome, Program, Scratch, Trace, command, path};

/// Names and values.
type Variables<'a> = &'a [(&'a str, &'a str)];

/// Majors of the simulated releases.
const RELEASES: [&str; 3] = ["5", "6", "7"];

/// Settings that change no answer.
const UNCHANGED: [Variables; 4] = [
    &[],
    &[("P2PSHIM_ACCESS", "app")],
    &[("P2PSHIM_VALIDATE", "off")],
    &[("P2PSHIM_ACCESS", "app"), ("P2PSHIM_VALIDATE", "off")],
];

/// A program whose findings this file's own tests look at.
fn case(name: &str, release: &str) -> Program {
    Program::case(&format!("{name}-{release}")).findings_apart()
}

fn with(program: Program, env: Variables) -> Program {
    env.iter().fold(program, |program, (name, value)| program.env(name, *value))
}

/// Runs plain and preloaded with each of these, and with a trace: the same output. Answers the plain run and the trace.
fn same(program: &Program, options: &[Variables]) -> (Outcome, Trace) {
    let (plain, trace) = program.assert_same_preloaded();
    for env in options {
        with(program.clone(), env).preloaded().assert_same_as(&plain, &format!("preloaded, {env:?}"));
    }
    (plain, trace)
}

/// Copies between two devices are seen, those inside one and with the host are not.
#[test]
fn regular_copies_between_devices_are_seen() {
    for release in RELEASES {
        let (plain, trace) = same(&case("hip_regular", release), &UNCHANGED);
        plain.assert_success();
        let (copies, batches) = trace.calls.split_at(REGULAR.len());
        let names: Vec<_> = copies.iter().map(|call| &*call.name).collect();
        assert_eq!(names, REGULAR, "{release}");
        for call in copies {
            assert!(call.text.contains(" 0>1 mapped on first use"), "{release}: {}", call.text);
        }
        let names: Vec<_> = batches.iter().map(|call| &*call.name).collect();
        let expected = if release == "7" { &BATCHES[..] } else { &[] };
        assert_eq!(names, expected.iter().flat_map(|name| [*name; 3]).collect::<Vec<_>>(), "{release}");
        for batch in batches {
            let parts =
                "0>1 mapped on first use (2 copies, 393216 bytes), 1>0 mapped on first use (1 copy, 262144 bytes)";
            assert!(batch.text.contains(parts), "{}", batch.text);
        }
    }
}

/// In the order of `hip_regular`.
const REGULAR: [&str; 15] = [
    "hipMemcpy",
    "hipMemcpyAsync",
    "hipMemcpyWithStream",
    "hipMemcpyDtoD",
    "hipMemcpyDtoDAsync",
    "hipMemcpy2D",
    "hipMemcpy2DAsync",
    "hipMemcpy3D",
    "hipMemcpy3DAsync",
    "hipMemcpy_spt",
    "hipMemcpyAsync_spt",
    "hipMemcpy2D_spt",
    "hipMemcpy2DAsync_spt",
    "hipMemcpy3D_spt",
    "hipMemcpy3DAsync_spt",
];
const BATCHES: [&str; 2] = ["hipMemcpyBatchAsync", "hipMemcpy3DBatchAsync"];

/// Summary, report and pairs: each copy once, whether it is made alone or in a batch.
#[test]
fn batches_count_what_goes_between_devices() {
    let outcome = case("hip_regular", "7").env("P2PSHIM_SUMMARY", "on").preloaded();
    let line = |name: &str| {
        let line = outcome.lines.iter().find(|line| line.trim_start().starts_with(name));
        line.unwrap_or_else(|| panic!("no {name}: {:#?}", outcome.lines)).split_whitespace().collect::<Vec<_>>()
    };
    // 15 copies of 1 MiB; 6 batches of 2 copies with 384 KiB there, and one with 256 KiB back.
    assert_eq!(line("0 > 1"), ["0", ">", "1", "27", "18.1", "MB", "0", "0", "B"]);
    assert_eq!(line("1 > 0"), ["1", ">", "0", "6", "1.6", "MB", "0", "0", "B"]);
    assert_eq!(line("hipMemcpyBatchAsync "), ["hipMemcpyBatchAsync", "3", "0"], "the one inside a device is passed on");
    let folder = Scratch::new("traces");
    case("hip_regular", "7").env("P2PSHIM_TRACE", folder.to_string_lossy()).preloaded().assert_success();
    let report = Command::new(command()).args(["report", "--csv"]).arg(&folder).output().unwrap();
    let csv = String::from_utf8(report.stdout).unwrap();
    let mut rows = csv.lines().map(|row| row.split(',').collect::<Vec<_>>());
    let header = rows.next().unwrap();
    let column = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let mut sums = BTreeMap::<_, u64>::new();
    for row in rows {
        *sums.entry((row[column("src")].to_owned(), row[column("dst")].to_owned())).or_default() +=
            row[column("bytes")].parse::<u64>().unwrap_or_default();
    }
    let sum = |src: &str, dst: &str| sums[&(src.to_owned(), dst.to_owned())];
    assert_eq!((sum("GPU 0", "GPU 1"), sum("GPU 1", "GPU 0")), (15 * (1 << 20) + 6 * 393_216, 6 * 262_144), "{csv}");
}

#[test]
fn batches_of_devices_without_a_path_are_staged() {
    let (_, trace) = same(&case("hip_regular", "7").env("P2PSIM_NO_P2P", "0-1"), &[]);
    let batches: Vec<_> = trace.calls.iter().filter(|call| BATCHES.contains(&&*call.name)).collect();
    assert_eq!(batches.len(), 6);
    for batch in batches {
        assert!(batch.text.contains("0>1 staged (no hardware path) (2 copies, 393216 bytes)"), "{}", batch.text);
    }
}

fn names(trace: &Trace) -> BTreeSet<&str> {
    trace.names_at(0).into_iter().collect()
}

// ---- programs ----

const LINEAR: [&str; 5] = [
    "hipDeviceCanAccessPeer",
    "hipDeviceDisablePeerAccess",
    "hipDeviceEnablePeerAccess",
    "hipMemcpyPeer",
    "hipMemcpyPeerAsync",
];

#[test]
fn guide_same_output_and_its_calls_in_the_trace() {
    for release in RELEASES {
        let (plain, trace) = same(&case("hip_guide", release), &UNCHANGED);
        plain.assert_success();
        assert_eq!(names(&trace), BTreeSet::from(LINEAR), "HIP {release}");
        let copies = trace.of("hipMemcpyPeerAsync");
        for part in ["dst=0x", "dstDeviceId=1", "srcDevice=0", "sizeBytes=1048576", "stream=0x", ") = hipSuccess"] {
            assert!(copies[0].text.contains(part), "no {part}: {}", copies[0].text);
        }
        assert!(copies[0].text.contains(" 0>1 mapped on first use at hip_guide-"), "{}", copies[0].text);
        assert!(copies[1].text.contains(" 1>0 mapped on first use at "), "{}", copies[1].text);
        let can = trace.of("hipDeviceCanAccessPeer")[0];
        assert!(can.text.contains("*canAccessPeer=1"), "{}", can.text);
    }
}

/// Found whether it is opened by the program out of sight, or asked for by name.
#[test]
fn looked_up_functions_are_seen() {
    for release in RELEASES {
        let (_, trace) = same(&case("hip_dlopened", release), &UNCHANGED);
        assert!(
            names(&trace).is_superset(&BTreeSet::from(["hipMemcpyPeer", "hipDeviceEnablePeerAccess"])),
            "{trace:?}"
        );
    }
    for release in ["6", "7"] {
        let (_, trace) = same(&case("hip_entry_point", release), &UNCHANGED);
        assert!(
            names(&trace).is_superset(&BTreeSet::from(["hipMemcpyPeer", "hipDeviceEnablePeerAccess"])),
            "{trace:?}"
        );
        if release == "7" {
            let names: Vec<&str> = trace.names_at(0);
            let last = &names[names.iter().rposition(|name| *name == "hipMemcpyPeer").unwrap() + 1..];
            // The program's own, and one by each of three look-ups; by two more, each in the form that was asked for.
            let copies: Vec<&str> = last.iter().copied().filter(|name| name.starts_with("hipMemcpy")).collect();
            let peer = "hipMemcpyPeerAsync";
            assert_eq!(copies, [peer, peer, peer, peer, "hipMemcpyAsync_spt", "hipMemcpyAsync"], "{trace:?}");
        }
        let debug = case("hip_entry_point", release).env("P2PSHIM_LOG", "debug").preloaded();
        assert!(
            debug.lines.iter().any(|line| line.contains("found hipMemcpyPeer: its calls are intercepted")),
            "{debug:?}"
        );
    }
}

#[test]
fn threads_same_answers_while_access_comes_and_goes() {
    for release in RELEASES {
        let wanted = "copies with other bytes: 0\nlast errors of somebody else: 0\nother codes: 0\n\
                      as often enabled as disabled: yes\nevery call answered: yes\n";
        for env in UNCHANGED {
            for _ in 0..3 {
                let outcome = with(case("hip_threads", release), env).preloaded();
                assert!(outcome.stdout.starts_with(wanted), "HIP {release}, {env:?}: {}", outcome.stdout);
                assert_eq!((outcome.status.as_str(), outcome.shim.as_slice()), ("exit status: 0", &[][..]));
            }
        }
    }
}

/// Each runtime gets its own calls, and each layer's names are in the trace.
#[test]
fn cuda_and_hip_in_one_process_each_gets_its_own() {
    for release in RELEASES {
        let (plain, trace) = same(&case("hip_and_cuda", release), &UNCHANGED);
        assert!(plain.stdout.contains("HIP: the same bytes\n") && plain.stdout.contains("CUDA: the same bytes\n"));
        let all = names(&trace);
        for name in ["hipDeviceEnablePeerAccess", "cudaDeviceDisablePeerAccess"] {
            assert!(all.contains(name), "no {name}: {all:?}");
        }
        let inner = trace.names_at(1);
        assert!(!inner.is_empty() && inner.iter().all(|name| name.starts_with("cu")), "{inner:?}");
    }
}

/// Built for NVIDIA, a HIP program calls CUDA: nothing is to be done for it.
#[test]
fn hip_built_for_nvidia_is_cuda() {
    for flavour in flavours("hip_built_for_nvidia_is_cuda") {
        let program = Program::case(&format!("hip_for_nvidia-{flavour}"));
        let (plain, trace) = program.assert_same_preloaded();
        plain.assert_success();
        assert!(plain.stdout.contains("\nby HIP's names\n"), "{}", plain.stdout);
        let copy = if flavour == "static" { "cuMemcpyPeer" } else { "cudaMemcpyPeer" };
        assert!(trace.names_at(0).contains(&copy), "{trace:?}");
        assert!(trace.calls.iter().all(|call| !call.name.starts_with("hip")), "{trace:?}");
    }
}

/// A program of one vendor never notices the other half.
#[test]
fn programs_of_one_vendor_load_no_library_of_the_other() {
    for (program, other) in [(Program::case("guide_sample-12"), "libamdhip64"), (case("hip_guide", "7"), "libcuda")] {
        let outcome = program.env("LD_DEBUG", "libs").preloaded();
        assert_eq!(outcome.status, "exit status: 0");
        assert!(outcome.stderr.contains("find library="), "LD_DEBUG says nothing: {}", outcome.stderr);
        assert!(!outcome.stderr.contains(other), "{other} was looked for");
    }
}

// ---- answers ----

/// Three devices, of which 1 and 2 have no path.
fn conformance(release: &str) -> Program {
    case("hip_conformance", release).env("P2PSIM_DEVICES", "3").env("P2PSIM_NO_P2P", "1-2")
}

/// Two of the releases, or all.
fn releases() -> Vec<&'static str> {
    let left_out = RELEASES[Draw::of("releases of HIP").below(RELEASES.len())];
    RELEASES.into_iter().filter(|release| is_all() || *release != left_out).collect()
}

/// Rows in which HIP takes what is documented to be an error.
const ACCEPTED: [&str; 2] = ["hipMemcpyPeer(pageable, 0, B, 1, 64)", "hipMemcpyPeerAsync(B, 1, pageable, 0, 64, S)"];

/// Each row is answered the same, whatever is set that changes no answer; `strict` refuses what HIP takes, and nothing else; and `off`
/// hides peers as if the hardware had none.
#[test]
fn conformance_every_row_the_same_preloaded_or_as_is_set() {
    for release in releases() {
        let plain = conformance(release).plain();
        assert!(plain.stdout.lines().count() > 120, "{}", plain.stdout);
        let folder = Scratch::new("traces");
        let (traced, trace) = conformance(release).env("P2PSHIM_TRACE", folder.to_string_lossy()).traced();
        traced.assert_same_as(&plain, "preloaded with a trace");
        assert!(trace.calls.len() > 100);
        fs::remove_dir_all(folder).unwrap();
        let drawn = Draw::of(&format!("conformance of HIP {release}")).below(UNCHANGED.len());
        for (_, env) in UNCHANGED.iter().enumerate().filter(|(number, _)| is_all() || *number == drawn) {
            with(conformance(release), env).preloaded().assert_same_as(&plain, &format!("HIP {release}, {env:?}"));
        }
        assert_strict(release, &plain);
        assert_hidden(release);
    }
}

fn assert_strict(release: &str, plain: &Outcome) {
    let strict = conformance(release).env("P2PSHIM_VALIDATE", "strict").preloaded();
    assert_eq!(plain.stdout.lines().count(), strict.stdout.lines().count());
    let mut refused = Vec::new();
    for (plain, strict) in plain.stdout.lines().zip(strict.stdout.lines()) {
        if plain != strict {
            let row: Vec<&str> = strict.split('\t').collect();
            assert_eq!(&row[2..], ["1", "1", "-"], "HIP {release}: {strict}");
            refused.push(row[1]);
        }
    }
    assert_eq!(refused, ACCEPTED, "HIP {release}");
}

fn assert_hidden(release: &str) {
    let alone = conformance(release).env("P2PSIM_NO_P2P", "0-1,0-2,1-2").plain();
    let off = conformance(release).env("P2PSHIM_ACCESS", "off").preloaded();
    off.assert_same_as(&alone, &format!("HIP {release}, P2PSHIM_ACCESS=off"));
    let denied = conformance(release).env("P2PSHIM_DENY", "0-1,0-2").preloaded();
    denied.assert_same_as(&alone, &format!("HIP {release}, P2PSHIM_DENY"));
}

// ---- drawn at random ----

/// Sequences plain and preloaded: the same lines, and no complaint in them. The programs know what is right.
fn random(name: &str, release: &str, sequences: u32, options: &[Variables]) {
    let program = |env| with(case(name, release).env("P2PSIM_DEVICES", "4").env("P2PSHIM_LOG", "off"), env);
    const BLOCK: u32 = 500;
    let (seed, sequences) = seeds(1, sequences);
    for first in (seed..seed + sequences).step_by(BLOCK as usize) {
        let count = BLOCK.min(seed + sequences - first);
        let drawn = |env| program(env).arg(first.to_string()).arg(count.to_string());
        let plain = drawn(&[]).plain();
        plain.assert_success();
        assert_eq!(plain.stdout.lines().count(), count as usize);
        for env in options {
            let preloaded = drawn(env).preloaded();
            for (plain, preloaded) in plain.stdout.lines().zip(preloaded.stdout.lines()) {
                assert_eq!(plain, preloaded, "plain (left) and preloaded (right) {env:?}: {name}-{release}");
                assert!(!preloaded.contains("WRONG") && !preloaded.contains("LAST"), "{env:?}: {preloaded}");
            }
            preloaded.assert_same_as(&plain, &format!("{name}-{release}, {env:?}"));
        }
    }
}

macro_rules! in_every_release {
    ($($test:ident($release:ident): $do:expr;)*) => { $(
        mod $test {
            use super::*;
            #[test]
            fn of_5() { let $release = "5"; $do; }
            #[test]
            fn of_6() { let $release = "6"; $do; }
            #[test]
            fn of_7() { let $release = "7"; $do; }
        }
    )* };
}

in_every_release! {
    // A sequence of arguments drawn at random has a hundred calls.
    random_sequences_same_codes_errors_and_bytes(release): {
        random("hip_random_sequences", release, 3_400, &UNCHANGED[..1]);
        random("hip_random_sequences", release, 500, &UNCHANGED[1..]);
    };
    random_arguments_same_codes_errors_and_bytes(release): {
        random("hip_random_arguments", release, 100, &UNCHANGED[..1]);
        random("hip_random_arguments", release, 40, &UNCHANGED[1..]);
    };
}

// ---- peer access for kernels ----

/// The lines of `hip_for_kernels reset` that tell who reaches whose memory.
fn reach(release: &str, env: Variables) -> Vec<String> {
    let program = with(case("hip_for_kernels", release).arg("reset"), env);
    let (plain, preloaded) = (program.plain(), program.preloaded());
    plain.assert_success();
    let is_reach = |line: &&str| line.contains(" reaches ");
    let others =
        |outcome: &Outcome| outcome.stdout.lines().filter(|line| !is_reach(line)).collect::<Vec<_>>().join("\n");
    if !env.iter().any(|(name, value)| *name == "P2PSHIM_DENY" || *value == "off") {
        assert_eq!(others(&plain), others(&preloaded), "what the program sees, plain (left) and preloaded (right)");
    }
    preloaded.stdout.lines().filter(is_reach).map(str::to_owned).collect()
}

#[test]
fn auto_lets_kernels_reach_what_a_pair_copies() {
    const NO: &str = "1 reaches 0: 0, 0 reaches 1: 0";
    const YES: &str = "1 reaches 0: 1, 0 reaches 1: 1";
    for release in RELEASES {
        let expected = [
            format!("before: {NO}"),
            format!("behind a copy: {YES}"),
            format!("behind a reset: {NO}"),
            format!("behind another copy: {YES}"),
            format!("enabled: {YES}"),
        ];
        assert_eq!(reach(release, &[]), expected, "HIP {release}");
        let app = reach(release, &[("P2PSHIM_ACCESS", "app")]);
        let only_asked_for = expected.map(|line| match line.as_str() {
            "enabled: 1 reaches 0: 1, 0 reaches 1: 1" => "enabled: 1 reaches 0: 1, 0 reaches 1: 0".to_owned(),
            line => line.replace(YES, NO),
        });
        assert_eq!(app, only_asked_for, "HIP {release}");
        for env in [[("P2PSHIM_ACCESS", "off")], [("P2PSHIM_DENY", "0-1")]] {
            let hidden = reach(release, &env);
            assert!(hidden.iter().all(|line| line.ends_with(NO)), "HIP {release}, {env:?}: {hidden:?}");
        }
        let one_way = reach(release, &[("P2PSHIM_DENY", "0>1")]);
        assert_eq!(one_way[1], "behind a copy: 1 reaches 0: 1, 0 reaches 1: 0");
    }
}

#[test]
fn auto_says_what_it_enables() {
    let outcome = case("hip_for_kernels", "7").env("P2PSHIM_LOG", "info").preloaded();
    for line in [
        "kernels of device 0 can access memory of device 1 (HIP)",
        "kernels of device 1 can access memory of device 0 (HIP)",
    ] {
        assert_eq!(outcome.lines.iter().filter(|said| said.contains(line)).count(), 1, "{:#?}", outcome.lines);
    }
    case("hip_for_kernels", "7").preloaded().assert_silent();
}

/// As if it lacked them: nothing is said of memory that the library tells nothing about, and nothing is refused.
#[test]
fn library_that_lacks_what_is_asked_same_answers_and_no_finding() {
    for function in ["hipMemGetAddressRange", "hipPointerGetAttributes", "hipRuntimeGetVersion", "hipDeviceGetUuid"] {
        let fault = format!("code:{function}:302@1");
        for release in RELEASES {
            let program = case("hip_guide", release).env("P2PSIM_FAULT", &fault);
            let plain = program.plain();
            plain.assert_success();
            for validate in ["warn", "strict"] {
                let preloaded = program.clone().env("P2PSHIM_VALIDATE", validate).preloaded();
                preloaded.assert_same_as(&plain, &format!("HIP {release}, {validate}, without {function}"));
                assert!(preloaded.findings.is_empty(), "without {function}: {:#?}", preloaded.findings);
            }
        }
    }
    // The call fails that succeeds in place of enabling access that is enabled already.
    for release in RELEASES {
        reach(release, &[("P2PSIM_FAULT", "code:hipCtxEnablePeerAccess:302@1")]);
    }
}

// ---- counters, trace file and report ----

#[test]
fn summary_counts_calls_copies_and_bytes() {
    let outcome = case("hip_guide", "6").env("P2PSHIM_SUMMARY", "on").preloaded();
    let line = |name: &str| {
        let line = outcome.lines.iter().find(|line| line.trim_start().starts_with(name));
        line.unwrap_or_else(|| panic!("no {name}: {:#?}", outcome.lines)).split_whitespace().collect::<Vec<_>>()
    };
    assert_eq!(line("hipMemcpyPeerAsync "), ["hipMemcpyPeerAsync", "2", "0"]);
    assert_eq!(line("hipMemcpyPeer "), ["hipMemcpyPeer", "1", "0"]);
    assert_eq!(line("0 > 1"), ["0", ">", "1", "2", "2.1", "MB", "0", "0", "B"]);
    assert_eq!(line("1 > 0"), ["1", ">", "0", "1", "1.0", "MB", "0", "0", "B"]);
}

#[test]
fn run_and_report_show_hip_by_its_names() {
    let output = Command::new(command())
        .args(["run", "--no-check", "--"])
        .arg(path("target/c-tests/hip_guide-7"))
        .env("LD_LIBRARY_PATH", path("target/sim/lib"))
        .output()
        .unwrap();
    let report = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{report}");
    for part in [
        "hip 7",
        "GPU 0 Simulated AMD GPU",
        "mapped on first use",
        "GPU 0 > GPU 1",
        "hipMemcpyPeerAsync",
        "none of it known to be staged",
    ] {
        assert!(report.contains(part), "no {part}:\n{report}");
    }
    let apis = Command::new(command()).arg("apis").output().unwrap();
    let apis = String::from_utf8(apis.stdout).unwrap();
    let row = apis.lines().find(|line| line.starts_with("hipMemcpy3DPeerAsync ")).unwrap();
    assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["hipMemcpy3DPeerAsync", "hip", "traced", "7.1"]);
}

/// Both count from 0: a report says so where it cannot tell them apart, and only there.
#[test]
fn run_report_of_both_vendors_says_that_ordinals_are_shared() {
    const SHARED: &str = "each counts its own GPUs from 0";
    for (program, is_of_both) in [("hip_and_cuda-7", true), ("hip_guide-7", false), ("guide_sample-12", false)] {
        let output = Command::new(command())
            .args(["run", "--no-check", "--"])
            .arg(path(&format!("target/c-tests/{program}")))
            .env("LD_LIBRARY_PATH", path("target/sim/lib"))
            .output()
            .unwrap();
        let report = String::from_utf8(output.stderr).unwrap();
        assert!(report.contains("\nGPUs "), "{report}");
        assert_eq!(report.contains(SHARED), is_of_both, "{program}: {report}");
    }
}

/// A pair without a path goes through the host, and the trace says so.
#[test]
fn copies_without_a_path_are_staged() {
    let (_, trace) = case("hip_for_kernels", "7").env("P2PSIM_NO_P2P", "0-1").traced();
    assert!(trace.of("hipMemcpyPeer")[0].text.contains(" 0>1 staged (no hardware path) at "), "{trace:?}");
}

// ---- findings ----

const FINDINGS: &str = "tests/golden/hip-findings.tsv";

/// The findings in rows of the conformance table that have any, each in a process of its own.
fn found_in_rows() -> BTreeMap<String, String> {
    let rows = conformance("7").plain().stdout;
    let mut found = BTreeMap::new();
    for (position, row) in rows.lines().enumerate() {
        let outcome = conformance("7").arg((position + 1).to_string()).with_notes().preloaded();
        assert_eq!(outcome.stdout.trim_end(), row);
        let rules: BTreeSet<_> = outcome.findings.iter().map(|one| format!("{} {}", one.function, one.rule)).collect();
        if !rules.is_empty() {
            let row: Vec<&str> = row.split('\t').collect();
            found.insert(format!("{}\t{}", row[0], row[1]), rules.into_iter().collect::<Vec<_>>().join("; "));
        }
    }
    found
}

#[test]
fn findings_of_every_row_are_those_of_the_golden_table() {
    let found = found_in_rows();
    let table: String = found.iter().map(|(row, rules)| format!("{row}\t{rules}\n")).collect();
    let head = "# Findings of `P2PSHIM_VALIDATE=warn` in the rows of tests/golden/hip-conformance.tsv on the simulated HIP 7. A row that is not listed has no\n\
                # finding. Written anew by `P2PSHIM_UPDATE=1 make test`; read what has changed.\nbefore\tcall\tfindings\n";
    let table = format!("{head}{table}");
    if std::env::var_os("P2PSHIM_UPDATE").is_some() {
        fs::write(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(FINDINGS), &table).unwrap();
    }
    let golden = fs::read_to_string(path(FINDINGS)).unwrap();
    for (golden, found) in golden.lines().zip(table.lines()) {
        assert_eq!(golden, found, "expected (left) and found (right)");
    }
    assert_eq!(golden, table);
}

/// All rows in one process: queries are looked at as the first ones are, by what is known from then on.
#[test]
fn findings_of_later_queries_are_those_of_first_ones() {
    let golden = fs::read_to_string(path(FINDINGS)).unwrap();
    let of_queries = |word: &&str| word.starts_with("P2P-query-");
    let first: BTreeSet<&str> = golden.split(|c: char| c.is_whitespace() || c == ';').filter(of_queries).collect();
    assert!(first.len() > 3, "{first:?}");
    let outcome = conformance("7").preloaded();
    let later: BTreeSet<&str> = outcome.findings.iter().map(|one| one.rule.as_str()).filter(of_queries).collect();
    assert_eq!(first, later);
}

/// Each rule that HIP can break speaks of some row and is silent about others of the same function.
#[test]
fn findings_each_rule_of_hip_speaks_and_is_silent() {
    /// In tests of their own: they take more than one call, or end the process.
    const ELSEWHERE: [&str; 4] =
        ["P2P-slow-enable-churn", "P2P-copy-unknown-pointer", "P2P-enable-broken", "P2P-enable-denied"];
    let text = fs::read_to_string(path("docs/MESSAGES.md")).unwrap();
    let mut of_hip = BTreeSet::new();
    let mut id = String::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ").or(line.strip_prefix("### ")) {
            id = heading.split_whitespace().next().unwrap_or_default().to_owned();
        } else if !id.is_empty() && line.contains("hipMemcpy") || !id.is_empty() && line.contains("hipDevice") {
            of_hip.insert(id.clone());
        }
    }
    assert!(of_hip.len() > 15, "the rules were not read: {of_hip:?}");
    let golden = fs::read_to_string(path(FINDINGS)).unwrap();
    let spoken: BTreeSet<&str> =
        golden.split(|c: char| c.is_whitespace() || c == ';').filter(|word| word.starts_with("P2P-")).collect();
    let silent: Vec<_> =
        of_hip.iter().filter(|id| !spoken.contains(id.as_str()) && !ELSEWHERE.contains(&id.as_str())).collect();
    assert!(silent.is_empty(), "no row breaks {silent:?}");
    let rows = conformance("7").plain().stdout;
    let rows =
        rows.lines().map(|row| row.splitn(3, '\t').take(2).map(|column| format!("{column}\t")).collect::<String>());
    let right: Vec<String> = rows.filter(|row| !golden.contains(&format!("\n{row}"))).collect();
    for function in [
        "hipMemcpyPeer",
        "hipMemcpyPeerAsync",
        "hipMemcpy3DPeer",
        "hipDeviceEnablePeerAccess",
        "hipDeviceDisablePeerAccess",
    ] {
        let is_of_function = |row: &&String| row.contains(&format!("\t{function}("));
        assert!(right.iter().any(|row| is_of_function(&row)), "nothing that is right about {function}");
    }
}

#[test]
fn finding_churn_speaks_of_access_that_comes_and_goes() {
    let outcome = case("hip_threads", "7").preloaded();
    let rules: BTreeSet<&str> = outcome.findings.iter().map(|finding| finding.rule.as_str()).collect();
    assert!(rules.contains("P2P-slow-enable-churn"), "{rules:?}");
    assert!(!case("hip_guide", "7").preloaded().findings.iter().any(|finding| finding.rule == "P2P-slow-enable-churn"));
}

/// A call that would end the process is told before it is made; strict answers in its place.
#[test]
fn finding_unknown_pointer_speaks_before_the_call() {
    for release in RELEASES {
        let program = case("hip_unknown_pointer", release);
        let (plain, preloaded) = (program.plain(), program.preloaded());
        assert!(plain.status.contains("signal: 11"), "{plain:?}");
        preloaded.assert_same_as(&plain, "preloaded");
        let [finding] = preloaded.findings.as_slice() else { panic!("{:#?}", preloaded.findings) };
        assert_eq!(finding.rule, "P2P-copy-unknown-pointer");
        assert!(finding.text.contains("src=0x1000 is not memory that HIP knows"), "{}", finding.text);
        assert!(finding.text.contains("the library may crash now"), "{}", finding.text);
        let strict = program.env("P2PSHIM_VALIDATE", "strict").preloaded();
        assert!(
            strict.stdout.contains(") = hipErrorInvalidValue\nhipGetLastError() = hipErrorInvalidValue\n"),
            "{strict:?}"
        );
    }
}

#[test]
fn finding_speaks_hip() {
    let outcome = case("hip_for_kernels", "6").with_notes().preloaded();
    let twice = outcome.findings.iter().find(|finding| finding.rule == "P2P-enable-twice").unwrap();
    for part in
        ["hipDeviceEnablePeerAccess", "returned hipErrorPeerAccessAlreadyEnabled (704)", "with hipGetLastError()"]
    {
        assert!(twice.text.contains(part), "no {part}: {}", twice.text);
    }
    assert!(outcome.findings.iter().all(|finding| !finding.text.to_lowercase().contains("cuda")));
}

// ---- AMD's own library ----

/// HIP 5.2.3 as Debian packages it (c-tests/amd.txt).
const AMD: &str = "target/amd/lib";

/// Every call of AMD's library is answered as without us, and is in the trace.
fn real(program: &Program) -> Trace {
    let (plain, trace) = same(program, &UNCHANGED);
    plain.assert_success();
    assert!(
        plain.stdout.contains("hipErrorInvalidDevice") || plain.stdout.contains(" = 101\n"),
        "is there an AMD GPU here? {}",
        plain.stdout
    );
    for env in [[("P2PSHIM_ACCESS", "off")], [("P2PSHIM_VALIDATE", "strict")]] {
        with(program.clone(), &env).preloaded().assert_same_as(&plain, &format!("{env:?}"));
    }
    trace
}

const PEER_FUNCTIONS: [&str; 8] = [
    "hipCtxDisablePeerAccess",
    "hipCtxEnablePeerAccess",
    "hipDeviceCanAccessPeer",
    "hipDeviceDisablePeerAccess",
    "hipDeviceEnablePeerAccess",
    "hipDeviceGetP2PAttribute",
    "hipMemcpyPeer",
    "hipMemcpyPeerAsync",
];

#[test]
fn amd_5_2_3_linked_every_peer_call_the_same() {
    let trace = real(&case("hip_no_device", "5").libraries(AMD));
    assert!(names(&trace).is_superset(&BTreeSet::from(PEER_FUNCTIONS)), "{:?}", names(&trace));
    assert!(trace.calls.iter().all(|call| call.text.contains(") = hipErrorInvalidDevice")), "{trace:?}");
}

#[test]
fn amd_5_2_3_opened_every_peer_call_the_same() {
    let library = path(&format!("{AMD}/libamdhip64.so.5"));
    let trace = real(&case("hip_opened", "5").libraries(AMD).arg(library.to_string_lossy()));
    assert_eq!(names(&trace), BTreeSet::from(PEER_FUNCTIONS));
}

#[test]
fn amd_5_2_3_from_python_every_peer_call_the_same() {
    let program = Program::new("python3").libraries(AMD).findings_apart();
    let program = program.arg(path("c-tests/hip/hip_ctypes.py").to_string_lossy()).arg("libamdhip64.so.5");
    assert_eq!(names(&real(&program)), BTreeSet::from(PEER_FUNCTIONS));
}

/// The simulated release beside it is one that has devices.
#[test]
fn simulated_5_from_python_and_opened_is_seen() {
    for release in RELEASES {
        let program = Program::new("python3").libraries("target/sim/lib").findings_apart();
        let program =
            program.arg(path("c-tests/hip/hip_ctypes.py").to_string_lossy()).arg(format!("libamdhip64.so.{release}"));
        let (plain, trace) = same(&program, &UNCHANGED);
        assert!(plain.stdout.contains("hipDeviceEnablePeerAccess = hipSuccess, last 0 0\n"), "{}", plain.stdout);
        assert_eq!(names(&trace), BTreeSet::from(PEER_FUNCTIONS), "HIP {release}");
    }
}
