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
