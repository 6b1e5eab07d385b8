//! The simulated GPUs by themselves, where programs rest on what CUDA does.

use std::collections::VecDeque;
use std::fs;
use std::sync::Mutex;
use std::thread;

use crate::support::{Program, Scratch, path};

/// Probes at a time: they wait most of their time.
const AT_ONCE: usize = 8;
/// A busy machine may keep a call of no time waiting: a probe may answer otherwise so many times.
const TRIES: usize = 4;

/// The simulation's answer to a probe. NVML starts with this folder; late bytes come with delays.
fn answer(probe: &str) -> String {
    let folder = Scratch::folder("nvlink");
    let mut program = Program::case("probes").arg(probe).env("P2PSIM_NVLINK", folder.to_string_lossy());
    if probe.starts_with("upload.") {
        program = program.env("P2PSIM_DELAYS", "1");
    }
    let outcome = program.plain();
    outcome.assert_success();
    let line = outcome.stdout.lines().nth(1).unwrap().to_owned();
    line.split_once('\t').unwrap().1.to_owned()
}

/// The table of probes: what an H200 answered, or else what is documented. At most five rows differ from what was measured.
#[test]
fn probes_are_answered_as_by_an_h200() {
    let table = fs::read_to_string(path("tests/golden/probes.tsv")).unwrap();
    let rows = table.lines().filter(|line| !line.starts_with('#')).skip(1);
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split('\t').collect()).collect();
    assert!(rows.len() > 60 && rows.iter().all(|row| row.len() == 3), "{rows:#?}");
    assert!(rows.iter().filter(|row| row[1] != "unmeasured" && !row[2].is_empty()).count() <= 5);
    let (left, differ) = (Mutex::new(VecDeque::from(rows)), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(row) = { left.lock().unwrap().pop_front() } {
                    let expected = if row[2].is_empty() { row[1] } else { row[2] };
                    let mut answers: Vec<String> = Vec::new();
                    while answers.last().is_none_or(|last| last != expected) && answers.len() < TRIES {
                        answers.push(answer(row[0]));
                    }
                    if answers.last().is_none_or(|last| last != expected) {
                        differ.lock().unwrap().push((row[0], expected.to_owned(), answers));
                    }
                }
            });
        }
    });
    assert_eq!(differ.into_inner().unwrap(), []);
}

/// A program that nvcc would build launches kernels as `kernel<<<…>>>` does: a declared kernel does its declared work, any other one has no image.
#[test]
fn program_that_nvcc_built_runs_declared_kernels() {
    let expected = "cudaGetLastError() = cudaSuccess\nstored: 1\ncudaGetLastError() = cudaErrorInvalidValue\n\
                    cudaGetLastError() = cudaErrorNoKernelImageForDevice\ncudaDeviceSynchronize() = cudaSuccess\nvariable: 7\n\
                    cudaDeviceSynchronize() = cudaSuccess\ncudaDeviceSynchronize() = cudaErrorIllegalAddress\n";
    for flavour in ["11", "12", "13", "static"] {
        let program = Program::case(&format!("built_by_nvcc-{flavour}")).env("P2PSIM_KERNELS", "fill:w0=4096");
        let outcome = program.libraries("target/sim/lib").plain();
        outcome.assert_success();
        assert_eq!(outcome.stdout, expected, "{flavour}");
    }
}

/// Each program is wrong, and a machine that is kinder than CUDA would not show it. One of them needs the host to be fast enough: it gets
/// several tries.
#[test]
fn programs_at_fault_show_it() {
    let program = |what: &str| Program::case("programs_at_fault").arg(what);
    let slow = |what: &str| program(what).env("P2PSIM_STAGING_SPEED", "20");
    let shown = [
        (program("host"), "ended by the signal"),
        (program("upload").env("P2PSIM_DELAYS", "5:400000"), "old bytes"),
        (
            program("elapsed"),
            "cudaEventElapsedTime(&milliseconds, events[0], events[1]) = cudaErrorInvalidResourceHandle",
        ),
        (program("batch"), "the batch copied what came later"),
        (slow("stall"), "cudaMalloc waits"),
    ];
    for (program, expected) in shown {
        let output = || {
            let outcome = program.plain();
            outcome.assert_success();
            outcome.stdout.trim_end().to_owned()
        };
        let mut outputs = vec![output()];
        while outputs.last().is_some_and(|output| output != expected) && outputs.len() < TRIES {
            outputs.push(output());
        }
        assert_eq!(outputs.last().unwrap(), expected, "{outputs:#?}");
    }
}

/// Work that is not ordered comes in another order, and takes other times, for another seed, and the same for the same.
#[test]
fn delays_are_those_of_the_seed() {
    let times = |seed: &str| {
        let outcome = Program::case("delayed_copies").env("P2PSIM_DELAYS", seed).plain();
        outcome.assert_success();
        outcome.stdout
    };
    let one = times("1");
    assert_eq!(one, times("1"));
    assert_ne!(one, times("2"));
    assert_ne!(one, times("1:100"));
}

#[test]
fn hip_processes_share_memory_and_events() {
    let expected = [
        "hipSetDevice(1) = 0",
        "hipMalloc((void **)&mine, BYTES) = 0",
        "hipStreamCreate(&stream) = 0",
        "hipIpcOpenMemHandle((void **)&there, memory, 0) = 1",
        "hipIpcOpenMemHandle((void **)&there, memory, hipIpcMemLazyEnablePeerAccess) = 0",
        "hipIpcOpenEventHandle(&written, event) = 0",
        "hipStreamWaitEvent(stream, written, 0) = 0",
        "hipMemcpyAsync(mine, there, BYTES, hipMemcpyDeviceToDevice, stream) = 0",
        "hipStreamSynchronize(stream) = 0",
        "hipMemcpy(host, mine, BYTES, hipMemcpyDeviceToHost) = 0",
        "right",
        "hipIpcCloseMemHandle(there) = 0",
        "hipIpcCloseMemHandle(there) = 1",
    ];
    for release in ["5", "6", "7"] {
        let program = Program::case(&format!("hip_ipc-{release}"));
        let plain = program.plain();
        plain.assert_success();
        assert_eq!(plain.stdout.lines().collect::<Vec<_>>(), expected, "{release}");
        program.preloaded().assert_same_as(&plain, "preloaded");
    }
}
