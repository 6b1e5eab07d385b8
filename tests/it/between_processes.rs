//! Memory of one process that another one opens: by IPC handles, by descriptors, from pools; plain, and preloaded in both.

use crate::support::{Outcome, Program};

/// Visible GPUs of both processes.
const VISIBILITIES: [&str; 2] = ["both", "each"];
const TRANSPORTS: [&str; 3] = ["ipc", "vmm", "pool"];
const DIRECTIONS: [&str; 2] = ["push", "pull"];

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
        ("ipc", _) => {
            &["cudaIpcOpenMemHandle(&memory, ticket->handle, cudaIpcMemLazyEnablePeerAccess) = cudaErrorInvalidDevice"]
        }
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
                if (transport, visibility) != ("ipc", "each") {
                    assert_found(&plain, direction, true);
                }
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
            if transport != "ipc" {
                let case = program("13", &[transport, "push", "each"]).env("P2PSIM_FAULT", fault);
                assert_found(&case.plain(), "push", !lost.contains(&transport));
            }
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
