//! The simulated GPUs by themselves, where programs rest on what CUDA does.

use crate::support::Program;

/// What the runtime's headers make of `kernel<<<…>>>`: a declared kernel does what was declared, any other has no image.
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

/// Each program is wrong, and a machine that is kinder than CUDA would not show it.
#[test]
fn programs_at_fault_show_it() {
    let program = |what: &str| Program::case("programs_at_fault").arg(what);
    let slow = |what: &str| program(what).env("P2PSIM_STAGING_SPEED", "20");
    let shown = [
        (program("host"), "ended by the signal"),
        (program("upload").env("P2PSIM_DELAYS", "1"), "old bytes"),
        (program("elapsed"), "cudaEventElapsedTime(&milliseconds, events[0], events[1]) = cudaErrorInvalidResourceHandle"),
        (program("batch"), "the batch copied what came later"),
        (slow("stall"), "cudaMalloc waits"),
    ];
    for (program, expected) in shown {
        let outcome = program.plain();
        outcome.assert_success();
        assert_eq!(outcome.stdout.trim_end(), expected);
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
