//! Memory of one process that another one opens: by IPC handles, by descriptors, from pools; plain, and preloaded in both.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use p2pshim_trace::{NoteKind, PART, Path as Taken, REMOTE, Record, SUFFIX, Trace};

use crate::support::{Outcome, Program, Scratch, command, path};

/// Visible GPUs of both processes.
const VISIBILITIES: [&str; 2] = ["both", "each"];
const TRANSPORTS: [&str; 3] = ["ipc", "vmm", "pool"];
const DIRECTIONS: [&str; 2] = ["push", "pull"];
/// The GPUs of opener and owner.
const UUIDS: [&str; 2] = ["GPU-70327073-696d-2047-5055-202e2e2e2e00", "GPU-70327073-696d-2047-5055-202e2e2e2e01"];

fn program(runtime: &str, args: &[&str]) -> Program {
    Program::case(&format!("between_processes-{runtime}")).args(args)
}

/// A plain run, which a preloaded one equals.
fn same_preloaded(program: &Program) -> Outcome {
    let plain = program.plain();
    plain.assert_success();
    assert_eq!(plain.stderr, "", "{plain:#?}");
    program.preloaded().assert_same_as(&plain, "preloaded");
    plain
}

fn assert_says(outcome: &Outcome, lines: &[&str]) {
    for line in lines {
        assert!(outcome.stdout.lines().any(|said| said == *line), "no {line}: {}", outcome.stdout);
    }
}

/// The driver's answers to the opener about the memory: measured on H100s.
fn told(transport: &str, visibility: &str) -> &'static [&'static str] {
    match (transport, visibility) {
        ("ipc", "both") => &[
            "device 0, 0; context the current one; legacy IPC 0; pool none",
            "opened with device 1 current: device 1, 1; context the current one; legacy IPC 0; pool none",
            "opened again at the same address: 1",
            "the handle is the same again: 1",
            "and of an address inside: 1",
            "it has the process at 8: 1",
            "it has the size at 16: 2097152",
            "cudaIpcOpenMemHandle(&opened, ticket->handle, cudaIpcMemLazyEnablePeerAccess) = cudaErrorDeviceUninitialized",
        ],
        ("ipc", _) => &[
            "cudaIpcOpenMemHandle(&memory, ticket->handle, cudaIpcMemLazyEnablePeerAccess) = cudaSuccess",
            "device 0, 0; context the current one; legacy IPC 0; pool none",
        ],
        ("vmm", "both") => &[
            "it lies on device: 1",
            "device 1, 1; context none; legacy IPC 0; pool none",
            "cuIpcGetMemHandle(&handle, memory) = CUDA_ERROR_INVALID_VALUE",
        ],
        ("vmm", _) => &["it lies on device: -2", "device 0, 0; context none; legacy IPC 0; pool none"],
        (_, "both") => &[
            "device 1, 1; context none; legacy IPC 0; pool set",
            "cudaIpcGetMemHandle(&ticket->handle, memory) = cudaErrorInvalidValue",
            "cudaMallocFromPoolAsync(&own, COUNT, *pool, NULL) = cudaErrorInvalidValue",
        ],
        (_, _) => &["device 0, 0; context none; legacy IPC 0; pool set"],
    }
}

/// The lines that both processes print about a copy that arrives, or is lost.
fn found(direction: &str, arrives: bool) -> Vec<String> {
    let line = |what: &str, is_so: bool| format!("{what}: {}", u8::from(is_so));
    let is_pushed = direction == "push" && arrives;
    let mut lines = vec![
        line("the owner finds what was pushed", is_pushed),
        line("the owner finds its own", !is_pushed),
        "the owner ends with 0, the opener with 0".to_owned(),
    ];
    if direction == "pull" {
        lines.push(line("the opener has pulled the owner's", arrives));
    }
    lines
}

fn assert_found(outcome: &Outcome, direction: &str, arrives: bool) {
    let lines = found(direction, arrives);
    assert_says(outcome, &lines.iter().map(String::as_str).collect::<Vec<_>>());
}

fn every_way(runtime: &str) {
    for transport in TRANSPORTS {
        for visibility in VISIBILITIES {
            for direction in DIRECTIONS {
                let plain = same_preloaded(&program(runtime, &[transport, direction, visibility]));
                assert_says(&plain, told(transport, visibility));
                assert_found(&plain, direction, true);
            }
        }
    }
}

#[test]
fn memory_is_shared_in_every_way_and_the_same_preloaded_runtime_11() {
    every_way("11");
}

#[test]
fn memory_is_shared_in_every_way_and_the_same_preloaded_runtime_12() {
    every_way("12");
}

#[test]
fn memory_is_shared_in_every_way_and_the_same_preloaded_runtime_13() {
    every_way("13");
}

#[test]
fn memory_is_shared_in_every_way_and_the_same_preloaded_static_runtime() {
    every_way("static");
}

/// A pool's memory comes by a descriptor, and is wrong where mapped memory is.
#[test]
fn faults_are_of_the_memory_that_came_so() {
    for (fault, lost) in [("ipc:0-1", &["ipc"][..]), ("vmm:0-1", &["vmm", "pool"])] {
        for transport in TRANSPORTS {
            for direction in DIRECTIONS {
                let case = program("13", &[transport, direction, "both"]).env("P2PSIM_FAULT", fault);
                assert_found(&case.plain(), direction, !lost.contains(&transport));
            }
            let case = program("13", &[transport, "push", "each"]).env("P2PSIM_FAULT", fault);
            assert_found(&case.plain(), "push", !lost.contains(&transport));
        }
    }
}

#[test]
fn memory_of_a_device_without_a_path_is_refused() {
    for (transport, said) in [
        (
            "ipc",
            "cudaIpcOpenMemHandle(&memory, ticket->handle, cudaIpcMemLazyEnablePeerAccess) = cudaErrorPeerAccessUnsupported",
        ),
        ("vmm", "cuMemSetAccess(address, COUNT, &access, 1) = CUDA_ERROR_INVALID_DEVICE"),
        ("pool", "cudaMemPoolSetAccess(*pool, &access, 1) = cudaErrorInvalidDevice"),
    ] {
        let case = program("13", &[transport, "push", "both"]).env("P2PSIM_NO_P2P", "0-1");
        assert_says(&same_preloaded(&case), &[said, "the owner ends with 0, the opener with 0"]);
    }
}

/// Documented as undefined: here who has the memory open keeps it, and its bytes.
#[test]
fn memory_outlives_its_owner_and_what_that_frees() {
    for transport in TRANSPORTS {
        for (end, status) in [("freed", 0), ("killed", 9)] {
            for direction in DIRECTIONS {
                let plain = same_preloaded(&program("13", &[transport, direction, "both", end]));
                let ends = format!("the owner ends with {status}, the opener with 0");
                assert_says(&plain, &[&ends]);
                if direction == "pull" {
                    assert_says(&plain, &["the opener has pulled the owner's: 1"]);
                }
            }
        }
    }
}

// ---- Traces ----

/// Bytes of the memory, all of which is copied once.
const BYTES: u64 = 2 << 20;

/// The trace of one process, as far as it is about memory that processes share.
struct Shared {
    /// GPUs by ordinal, by UUID.
    gpus: BTreeMap<u32, String>,
    /// Notes of exports and opens: number, strings.
    exported: Vec<(u32, Vec<String>)>,
    opened: Vec<(u32, Vec<String>)>,
    /// Those about GPUs that the process sees.
    visible: Vec<(u32, Vec<String>)>,
    /// Bytes that the program's own calls copied, by their devices, and the paths.
    copied: BTreeMap<[u8; 2], u64>,
    paths: BTreeSet<Option<Taken>>,
}

impl Shared {
    fn read(file: &Path) -> Self {
        let trace = Trace::open(file).unwrap();
        let notes = |kind| trace.notes().iter().filter(move |note| note.kind == kind);
        let of = |kind| notes(kind).map(|note| (note.number, note.strings.clone())).collect();
        let (mut copied, mut paths, mut buffer) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        for block in 0..trace.blocks() {
            let block = trace.block(block, &mut buffer).unwrap().unwrap();
            // A batch or a graph has its pairs in records of their own.
            let is_counted = |call: &Record| call.function == PART || call.depth == 0 && call.src_device.is_some();
            for call in block
                .calls()
                .filter(|call| !call.is_with_host())
                .filter(|call| is_counted(call) && call.result == 0 && call.bytes > 0)
            {
                *copied.entry([call.src_device.unwrap(), call.dst_device.unwrap()]).or_default() += call.bytes;
                paths.insert(Taken::numbered(call.path));
            }
        }
        let gpus = notes(NoteKind::Gpu).map(|note| (note.number, note.string(1).to_owned())).collect();
        let opened: Vec<(u32, Vec<String>)> = of(NoteKind::Opened);
        let (visible, opened) = opened.into_iter().partition(|(number, _)| *number < REMOTE.into());
        Self { gpus, exported: of(NoteKind::Exported), opened, visible, copied, paths }
    }

    /// Each address at which memory of a visible GPU was opened by a handle is noted, and noted anew once it is closed.
    fn assert_visible(&self, (gpu, transport, handle): (u32, &str, &str), addresses: usize, what: &str) {
        let mut of: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (ordinal, strings) in &self.visible {
            assert_eq!((*ordinal, &*strings[0], &*strings[1]), (gpu, transport, handle), "{what}");
            of.entry(&strings[4]).or_default().push(strings[2].parse().unwrap());
        }
        assert!(of.keys().all(|at| at.starts_with("at=")), "{what}: {of:?}");
        assert_eq!(of.values().filter(|bytes| **bytes == [BYTES, 0]).count(), addresses, "{what}: {of:?}");
        assert_eq!(of.len(), addresses, "{what}: {of:?}");
    }
}

/// The traces of owner and opener.
fn shared(program: &Program) -> [Shared; 2] {
    let folder = Scratch::folder("shared");
    program.clone().env("P2PSHIM_TRACE", folder.to_string_lossy()).preloaded().assert_success();
    traces_in(&folder)
}

/// As [`shared`], of processes that `p2pshim run` has started.
fn shared_in_a_run(runtime: &str, args: &[&str]) -> [Shared; 2] {
    let folder = Scratch::new("run");
    let (traces, case) = (folder.to_string_lossy(), path(&format!("target/c-tests/between_processes-{runtime}")));
    let run = Program::new(command()).args(&["run", "--no-check", "--no-report", "--trace", &traces]);
    run.arg(case.to_string_lossy()).args(args).libraries("target/sim/lib").plain().assert_success();
    traces_in(&folder)
}

fn traces_in(folder: &Path) -> [Shared; 2] {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|file| file.to_string_lossy().ends_with(SUFFIX));
    let all: Vec<Shared> = files.map(|file| Shared::read(&file)).collect();
    let (owners, openers): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| !one.exported.is_empty());
    let one = |mut some: Vec<Shared>| {
        assert_eq!(some.len(), 1);
        some.remove(0)
    };
    [one(owners), one(openers)]
}

/// Each byte that the opener copies is in its trace, as copied between its GPU and that of the owner: by a number that the trace tells
/// the handle of, or by the ordinal, where the driver says on which GPU it lies.
#[test]
fn copies_are_recorded_with_the_owners_gpu() {
    for runtime in ["12", "13", "static"] {
        for (transport, visibility) in TRANSPORTS.iter().flat_map(|way| VISIBILITIES.map(|seen| (*way, seen))) {
            for direction in DIRECTIONS {
                let what = format!("{transport} {visibility} {direction} {runtime}");
                let [owner, opener] = shared(&program(runtime, &[transport, direction, visibility]));
                let [(ordinal, exported), freed @ ..] = &owner.exported[..] else {
                    panic!("{what}: {:?}", owner.exported)
                };
                let handle = exported[1].clone();
                let is_freed = [(*ordinal, vec![transport.to_owned(), handle, "0".to_owned()])];
                assert_eq!(freed, if transport == "vmm" { &[][..] } else { &is_freed }, "{what}");
                assert_eq!(owner.gpus[ordinal], UUIDS[1], "{what}");
                assert_eq!([&*exported[0], &*exported[2]], [transport, &BYTES.to_string()], "{what}");
                assert_eq!(exported[1].len(), if transport == "vmm" { 0 } else { 128 }, "{what}");
                let is_told = transport != "ipc" && visibility == "both";
                let there = if is_told { 1 } else { REMOTE };
                let opened = [transport, &exported[1], &exported[2], "0"].map(str::to_owned).to_vec();
                let opened = if is_told { vec![] } else { vec![(REMOTE.into(), opened)] };
                assert_eq!(opener.opened, opened, "{what}");
                let addresses = usize::from(is_told && transport == "pool");
                opener.assert_visible((1, transport, &exported[1]), addresses, &what);
                assert_eq!(opener.gpus[&0], UUIDS[0], "{what}");
                let pair = if direction == "push" { [0, there] } else { [there, 0] };
                assert_eq!(opener.copied, BTreeMap::from([(pair, BYTES)]), "{what}");
                assert_eq!(opener.paths, BTreeSet::from([Some(Taken::Direct)]), "{what}");
                assert!(owner.copied.is_empty() && owner.opened.is_empty(), "{what}");
            }
        }
    }
}

/// Under `p2pshim run` the opener finds the owner's export: it has the ordinal, or the UUID of a GPU that it does not see.
#[test]
fn owners_gpu_is_known_within_a_run() {
    for direction in DIRECTIONS {
        let pair = |there| if direction == "push" { [0, there] } else { [there, 0] };
        let [owner, opener] = shared_in_a_run("13", &["ipc", direction, "both"]);
        // On both GPUs.
        opener.assert_visible((1, "ipc", &owner.exported[0].1[1]), 2, direction);
        assert_eq!((opener.copied, opener.opened), (BTreeMap::from([(pair(1), BYTES)]), vec![]), "{direction}");
        for transport in ["ipc", "pool"] {
            let [owner, opener] = shared_in_a_run("13", &[transport, direction, "each"]);
            let gpu = format!("gpu={}", UUIDS[1]);
            let opened = [transport, &owner.exported[0].1[1], &BYTES.to_string(), "0", &gpu].map(str::to_owned);
            assert_eq!(opener.opened, [(REMOTE.into(), opened.to_vec())], "{transport} {direction}");
            assert_eq!(opener.copied, BTreeMap::from([(pair(REMOTE), BYTES)]), "{transport} {direction}");
        }
    }
}

/// Under `p2pshim run` memory of a pair that is denied, or where memory of other processes is known to be wrong, is not opened; with
/// `P2PSHIM_BROKEN=warn` it is, where nothing is denied.
#[test]
fn memory_behind_a_wrong_path_is_refused_within_a_run() {
    let refused = "cudaIpcOpenMemHandle(&memory, ticket->handle, cudaIpcMemLazyEnablePeerAccess) = cudaErrorPeerAccessUnsupported";
    let cache = Scratch::new("cache");
    let case = path("target/c-tests/between_processes-13").to_string_lossy().into_owned();
    for (fault, options, why) in [
        ("ipc:0-1", &["--verify", "quick"][..], Some("its data would be wrong: between processes, IPC: ")),
        ("ipc:0-1", &["--broken", "warn"], None),
        ("", &["--deny", "0-1"], Some("that is denied")),
        ("", &["--access", "off", "--broken", "warn"], Some("that is denied")),
    ] {
        for visibility in VISIBILITIES {
            let run = Program::new(command()).args(&["run", "--sim", "2", "--no-report"]).args(options);
            let run = run.arg(&case).args(&["ipc", "push", visibility]).env("XDG_CACHE_HOME", cache.to_string_lossy());
            let outcome = run.env("P2PSIM_FAULT", fault).plain();
            assert_says(&outcome, &["the owner ends with 0, the opener with 0"]);
            let lies_on = if visibility == "both" { "device 1" } else { &format!("GPU {}", UUIDS[1]) };
            let what = format!("memory of {lies_on}, which another process owns, is not opened on device 0 ");
            let lines: Vec<&String> = outcome.shim.iter().filter(|line| line.contains(&what)).collect();
            assert_eq!(lines.len(), why.iter().len(), "{fault} {options:?} {visibility}: {outcome:#?}");
            assert!(lines.iter().all(|line| line.contains(why.unwrap())), "{lines:#?}");
            if why.is_some() {
                assert_says(&outcome, &[refused]);
            } else {
                // Opened, and the bytes are lost.
                assert_found(&outcome, "push", false);
                let what = format!(
                    "memory of another process was opened on device 0. It lies on {lies_on}, its data may be wrong: "
                );
                assert_eq!(outcome.shim.iter().filter(|line| line.contains(&what)).count(), 1, "{outcome:#?}");
            }
        }
    }
    fs::remove_dir_all(cache).unwrap();
}

/// Memory of a pool tells on which GPU it lies, by the driver or by its owner; then rights to the pool are refused.
#[test]
fn pool_of_a_denied_pair_is_not_granted_within_a_run() {
    let case = path("target/c-tests/between_processes-13").to_string_lossy().into_owned();
    let refused = "cudaMemPoolSetAccess(*pool, &access, 1) = cudaErrorInvalidDevice";
    for visibility in VISIBILITIES {
        for (option, value) in [("--deny", "0-1"), ("--access", "off")] {
            let run = Program::new(command()).args(&["run", "--sim", "2", "--no-check", "--no-report", option, value]);
            let outcome = run.arg(&case).args(&["pool", "push", visibility]).plain();
            assert_says(&outcome, &[refused, "the owner ends with 0, the opener with 0"]);
            let lies_on = if visibility == "both" { "device 1" } else { &format!("GPU {}", UUIDS[1]) };
            let said = format!(
                "a pool of {lies_on} that was imported is not granted to device 0 (CUDA_ERROR_INVALID_DEVICE), since that is denied"
            );
            assert_eq!(
                outcome.shim.iter().filter(|line| line.contains(&said)).count(),
                1,
                "{visibility}: {outcome:#?}"
            );
        }
    }
}

/// With `P2PSHIM_READBACK` the opener compares what it copies, and finds a path that loses the data, but of pools of GPUs on which it has no context.
#[test]
fn copies_between_processes_are_compared_with_their_source() {
    /// Copies by a call of their own, and the first of a batch; the graph's are not read back.
    const COMPARED: usize = 6;
    let ways = TRANSPORTS.iter().flat_map(|way| VISIBILITIES.map(|seen| (*way, seen)));
    for (transport, visibility) in ways.filter(|way| *way != ("pool", "both")) {
        for direction in DIRECTIONS {
            let what = format!("{transport} {visibility} {direction}");
            let case = program("13", &[transport, direction, visibility]).env("P2PSHIM_READBACK", "all");
            let right = case.clone().findings_apart().preloaded();
            assert_found(&right, direction, true);
            assert!(!right.findings.iter().any(|it| it.rule.starts_with("P2P-data-")), "{what}: {right:#?}");
            let fault = if transport == "ipc" { "ipc:0-1" } else { "vmm:0-1" };
            let lost = case.env("P2PSIM_FAULT", fault).findings_apart().preloaded();
            assert_found(&lost, direction, false);
            let names = ["device 0", "memory of another process"];
            let there = if transport != "ipc" && visibility == "both" { "device 1" } else { names[1] };
            let [from, to] = if direction == "push" { [names[0], there] } else { [there, names[0]] };
            let said = format!(" from {from} to {to}, direct: ");
            let found = lost.findings.iter().filter(|it| it.rule.starts_with("P2P-data-") && it.text.contains(&said));
            assert_eq!(found.count(), COMPARED, "{what}: {lost:#?}");
        }
    }
}

/// Memory of the opener's own GPU is never refused, and a copy there is within one GPU.
#[test]
fn memory_of_the_same_gpu_is_opened_whatever_is_denied() {
    let case = path("target/c-tests/memory_of_another_process").to_string_lossy().into_owned();
    for options in [&[][..], &["--deny", "0-1"], &["--access", "off"]] {
        let folder = Scratch::new("same");
        let run = Program::new(command()).args(&["run", "--sim", "2", "--no-check", "--no-report", "--trace"]);
        let outcome = run.arg(folder.to_string_lossy()).args(options).args(&[&case, "same"]).plain();
        assert!(outcome.stdout.ends_with("the second process ends with 0\n"), "{outcome:#?}");
        assert!(!outcome.shim.iter().any(|line| line.contains("another process")), "{options:?}: {outcome:#?}");
        let [_, opener] = traces_in(&folder);
        assert_eq!(opener.copied, BTreeMap::from([([0, 0], 5000)]), "{options:?}");
        assert_eq!(opener.paths, BTreeSet::from([Some(Taken::SameDevice)]), "{options:?}");
    }
}
