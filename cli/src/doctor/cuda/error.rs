//! Errors that calls of the driver return.

use std::ffi::c_int;
use std::fmt::{self, Display, Formatter};

use super::OUT_OF_MEMORY;

/// An error that a call of the driver returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) struct CudaError {
    pub(super) function: &'static str,
    /// The number of the code.
    pub(in crate::doctor) code: c_int,
    pub(super) name: String,
}

impl CudaError {
    /// Whether the code means that work on a device went wrong, and not that a call could not be made.
    pub(in crate::doctor) fn is_fault(&self) -> bool {
        // ECC_UNCORRECTABLE, NVLINK_UNCORRECTABLE, ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, HARDWARE_STACK_ERROR,
        // ILLEGAL_INSTRUCTION, MISALIGNED_ADDRESS, INVALID_ADDRESS_SPACE, INVALID_PC, LAUNCH_FAILED, UNKNOWN.
        matches!(self.code, 214 | 220 | 700 | 702 | 714..=719 | 999)
    }

    /// The usual cause.
    fn hint(&self) -> &'static str {
        match self.code {
            OUT_OF_MEMORY => ": other processes use the GPU's memory",
            46 => ": the GPU is in exclusive mode and another process has it",
            100 => ": no GPU; in a container, was it started with access to them?",
            802 => ": machines with NVSwitch need a running nvidia-fabricmanager",
            803 | 804 => ": libcuda and the kernel module have different versions",
            218 | 221 | 222 => ": the driver cannot compile the kernel; is libnvidia-ptxjitcompiler.so.1 installed?",
            _ => "",
        }
    }
}

impl Display for CudaError {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{} returned {} ({}){}", self.function, self.name, self.code, self.hint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use cudarc::driver::sys::CUresult;

    #[test]
    fn codes_of_the_vendor_are_faults_of_a_device_or_have_a_hint() {
        use CUresult::*;
        let error = |code: CUresult| CudaError { function: "cuInit", code: code as c_int, name: String::new() };
        for fault in [
            CUDA_ERROR_ECC_UNCORRECTABLE,
            CUDA_ERROR_NVLINK_UNCORRECTABLE,
            CUDA_ERROR_ILLEGAL_ADDRESS,
            CUDA_ERROR_LAUNCH_TIMEOUT,
            CUDA_ERROR_HARDWARE_STACK_ERROR,
            CUDA_ERROR_ILLEGAL_INSTRUCTION,
            CUDA_ERROR_MISALIGNED_ADDRESS,
            CUDA_ERROR_INVALID_ADDRESS_SPACE,
            CUDA_ERROR_INVALID_PC,
            CUDA_ERROR_LAUNCH_FAILED,
            CUDA_ERROR_UNKNOWN,
        ] {
            assert!(error(fault).is_fault(), "{fault:?}");
        }
        for (code, hint) in [
            (CUDA_ERROR_OUT_OF_MEMORY, "use the GPU's memory"),
            (CUDA_ERROR_DEVICE_UNAVAILABLE, "exclusive mode"),
            (CUDA_ERROR_NO_DEVICE, "no GPU"),
            (CUDA_ERROR_SYSTEM_NOT_READY, "fabricmanager"),
            (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "different versions"),
            (CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, "different versions"),
            (CUDA_ERROR_INVALID_PTX, "cannot compile"),
            (CUDA_ERROR_JIT_COMPILER_NOT_FOUND, "cannot compile"),
            (CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "cannot compile"),
        ] {
            assert!(error(code).to_string().contains(hint) && !error(code).is_fault(), "{code:?}");
        }
        assert_eq!(error(CUDA_ERROR_INVALID_VALUE).hint(), "");
    }
}
