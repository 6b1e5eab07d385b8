//! Result codes, with the numbers of the driver API.

use std::ffi::CStr;

/// An error that a driver call can end with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(pub u32);

/// The result of anything that the simulation does for a caller.
pub type Result<T> = std::result::Result<T, Error>;

macro_rules! errors {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        impl Error {
            $(#[doc = $text] pub const $name: Error = Error($code);)*
        }

        /// Rows of code, symbolic name and description; success comes first.
        const TEXTS: &[(u32, &CStr, &CStr)] = &[
            (0, c"CUDA_SUCCESS", c"no error"),
            $(($code, c_str(concat!("CUDA_ERROR_", stringify!($name), "\0")), c_str(concat!($text, "\0"))),)*
        ];
    };
}

const fn c_str(text: &str) -> &CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => c"",
    }
}

errors! {
    INVALID_VALUE = 1, "invalid argument";
    OUT_OF_MEMORY = 2, "out of memory";
    NOT_INITIALIZED = 3, "initialization error";
    DEINITIALIZED = 4, "driver shutting down";
    NO_DEVICE = 100, "no simulated device";
    INVALID_DEVICE = 101, "invalid device ordinal";
    INVALID_IMAGE = 200, "not a module that the simulation can read";
    INVALID_CONTEXT = 201, "invalid device context";
    MAP_FAILED = 205, "mapping failed";
    ALREADY_MAPPED = 208, "resource already mapped";
    NO_BINARY_FOR_GPU = 209, "no kernel image is available for execution on the device";
    PEER_ACCESS_UNSUPPORTED = 217, "no peer access between these two devices";
    OPERATING_SYSTEM = 304, "a call to the operating system failed";
    INVALID_HANDLE = 400, "invalid resource handle";
    ILLEGAL_STATE = 401, "resource not in a valid state";
    NOT_FOUND = 500, "named symbol not found";
    NOT_READY = 600, "work not finished";
    ILLEGAL_ADDRESS = 700, "illegal memory access";
    PEER_ACCESS_ALREADY_ENABLED = 704, "peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, "peer access has not been enabled";
    PRIMARY_CONTEXT_ACTIVE = 708, "the primary context is already active";
    CONTEXT_IS_DESTROYED = 709, "the context has been destroyed";
    TOO_MANY_PEERS = 711, "too many peers for one context";
    HOST_MEMORY_ALREADY_REGISTERED = 712, "host memory already registered";
    HOST_MEMORY_NOT_REGISTERED = 713, "host memory not registered";
    LAUNCH_FAILED = 719, "unspecified launch failure";
    NOT_PERMITTED = 800, "not permitted in a host function";
    NOT_SUPPORTED = 801, "not supported by the simulation";
    STREAM_CAPTURE_UNSUPPORTED = 900, "not permitted while a stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, "the capture was invalidated";
    STREAM_CAPTURE_MERGE = 902, "two captures would become one";
    STREAM_CAPTURE_UNMATCHED = 903, "the capture did not begin on this stream";
    STREAM_CAPTURE_UNJOINED = 904, "the capture forked to a stream that never joined again";
    STREAM_CAPTURE_ISOLATION = 905, "a dependency would cross the border of the capture";
    STREAM_CAPTURE_IMPLICIT = 906, "the legacy stream would depend on a stream that is capturing";
    CAPTURED_EVENT = 907, "the event was last recorded in a capture";
    STREAM_CAPTURE_WRONG_THREAD = 908, "another thread began the capture";
    GRAPH_EXEC_UPDATE_FAILURE = 910, "the ready graph cannot become like the other";
    GRAPH_RECAPTURE_FAILURE = 918, "the graph cannot be captured again";
    UNKNOWN = 999, "unknown error";
}

/// Codes that the simulation never gives by itself: a test may ask for them (`code:`). Texts are those of the runtime.
const OTHERS: &[(u32, &CStr, &CStr)] = &[
    (5, c"CUDA_ERROR_PROFILER_DISABLED", c"profiler disabled while using external profiling tool"),
    (6, c"CUDA_ERROR_PROFILER_NOT_INITIALIZED", c"profiler not initialized: call cudaProfilerInitialize()"),
    (7, c"CUDA_ERROR_PROFILER_ALREADY_STARTED", c"profiler already started"),
    (8, c"CUDA_ERROR_PROFILER_ALREADY_STOPPED", c"profiler already stopped"),
    (34, c"CUDA_ERROR_STUB_LIBRARY", c"CUDA driver is a stub library"),
    (36, c"CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER", c"API call is not supported in the installed CUDA driver"),
    (46, c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"CUDA-capable device(s) is/are busy or unavailable"),
    (102, c"CUDA_ERROR_DEVICE_NOT_LICENSED", c"device doesn't have valid Grid license"),
    (202, c"CUDA_ERROR_CONTEXT_ALREADY_CURRENT", c"CUDA_ERROR_CONTEXT_ALREADY_CURRENT"),
    (206, c"CUDA_ERROR_UNMAP_FAILED", c"unmapping of buffer object failed"),
    (207, c"CUDA_ERROR_ARRAY_IS_MAPPED", c"array is mapped"),
    (210, c"CUDA_ERROR_ALREADY_ACQUIRED", c"resource already acquired"),
    (211, c"CUDA_ERROR_NOT_MAPPED", c"resource not mapped"),
    (212, c"CUDA_ERROR_NOT_MAPPED_AS_ARRAY", c"resource not mapped as array"),
    (213, c"CUDA_ERROR_NOT_MAPPED_AS_POINTER", c"resource not mapped as pointer"),
    (214, c"CUDA_ERROR_ECC_UNCORRECTABLE", c"uncorrectable ECC error encountered"),
    (215, c"CUDA_ERROR_UNSUPPORTED_LIMIT", c"limit is not supported on this architecture"),
    (216, c"CUDA_ERROR_CONTEXT_ALREADY_IN_USE", c"exclusive-thread device already in use by a different thread"),
    (218, c"CUDA_ERROR_INVALID_PTX", c"a PTX JIT compilation failed"),
    (219, c"CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", c"invalid OpenGL or DirectX context"),
    (220, c"CUDA_ERROR_NVLINK_UNCORRECTABLE", c"uncorrectable NVLink error detected during the execution"),
    (221, c"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", c"PTX JIT compiler library not found"),
    (222, c"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", c"the provided PTX was compiled with an unsupported toolchain."),
    (223, c"CUDA_ERROR_JIT_COMPILATION_DISABLED", c"PTX JIT compilation was disabled"),
    (224, c"CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", c"the provided execution affinity is not supported"),
    (
        225,
        c"CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC",
        c"the provided PTX contains unsupported call to cudaDeviceSynchronize",
    ),
    (226, c"CUDA_ERROR_CONTAINED", c"Invalid access of peer GPU memory over nvlink or a hardware error"),
    (300, c"CUDA_ERROR_INVALID_SOURCE", c"device kernel image is invalid"),
    (301, c"CUDA_ERROR_FILE_NOT_FOUND", c"file not found"),
    (302, c"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", c"shared object symbol not found"),
    (303, c"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", c"shared object initialization failed"),
    (402, c"CUDA_ERROR_LOSSY_QUERY", c"attempted introspection would be semantically lossy"),
    (701, c"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", c"too many resources requested for launch"),
    (702, c"CUDA_ERROR_LAUNCH_TIMEOUT", c"the launch timed out and was terminated"),
    (703, c"CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", c"launch uses incompatible texturing mode"),
    (710, c"CUDA_ERROR_ASSERT", c"device-side assert triggered"),
    (714, c"CUDA_ERROR_HARDWARE_STACK_ERROR", c"hardware stack error"),
    (715, c"CUDA_ERROR_ILLEGAL_INSTRUCTION", c"an illegal instruction was encountered"),
    (716, c"CUDA_ERROR_MISALIGNED_ADDRESS", c"misaligned address"),
    (717, c"CUDA_ERROR_INVALID_ADDRESS_SPACE", c"operation not supported on global/shared address space"),
    (718, c"CUDA_ERROR_INVALID_PC", c"invalid program counter"),
    (720, c"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", c"too many blocks in cooperative launch"),
    (721, c"CUDA_ERROR_TENSOR_MEMORY_LEAK", c"tensor memory not completely freed"),
    (802, c"CUDA_ERROR_SYSTEM_NOT_READY", c"system not yet initialized"),
    (803, c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", c"system has unsupported display driver / cuda driver combination"),
    (804, c"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", c"forward compatibility was attempted on non supported HW"),
    (
        805,
        c"CUDA_ERROR_MPS_CONNECTION_FAILED",
        c"MPS client failed to connect to the MPS control daemon or the MPS server",
    ),
    (
        806,
        c"CUDA_ERROR_MPS_RPC_FAILURE",
        c"the remote procedural call between the MPS server and the MPS client failed",
    ),
    (807, c"CUDA_ERROR_MPS_SERVER_NOT_READY", c"MPS server is not ready to accept new MPS client requests"),
    (
        808,
        c"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
        c"the hardware resources required to create MPS client have been exhausted",
    ),
    (
        809,
        c"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
        c"the hardware resources required to support device connections have been exhausted",
    ),
    (810, c"CUDA_ERROR_MPS_CLIENT_TERMINATED", c"the MPS client has been terminated by the server"),
    (
        811,
        c"CUDA_ERROR_CDP_NOT_SUPPORTED",
        c"is using CUDA Dynamic Parallelism, but the current configuration, like MPS, does not support it",
    ),
    (
        812,
        c"CUDA_ERROR_CDP_VERSION_MISMATCH",
        c"unsupported interaction between different versions of CUDA Dynamic Parallelism",
    ),
    (909, c"CUDA_ERROR_TIMEOUT", c"wait operation timed out"),
    (911, c"CUDA_ERROR_EXTERNAL_DEVICE", c"an async error has occured in external entity outside of CUDA"),
    (912, c"CUDA_ERROR_INVALID_CLUSTER_SIZE", c"a kernel launch error has occurred due to cluster misconfiguration"),
    (
        913,
        c"CUDA_ERROR_FUNCTION_NOT_LOADED",
        c"the function handle is not loaded when calling an API that requires a loaded function",
    ),
    (
        914,
        c"CUDA_ERROR_INVALID_RESOURCE_TYPE",
        c"one or more resources passed in are not valid resource types for the operation",
    ),
    (
        915,
        c"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
        c"one or more resources are insufficient or non-applicable for the operation",
    ),
    (916, c"CUDA_ERROR_KEY_ROTATION", c"CUDA_ERROR_KEY_ROTATION"),
];

fn row(code: u32) -> Option<&'static (u32, &'static CStr, &'static CStr)> {
    TEXTS.iter().chain(OTHERS).find(|row| row.0 == code)
}

impl Error {
    /// The symbolic name of a code, success included.
    pub fn name(code: u32) -> Option<&'static CStr> {
        row(code).map(|row| row.1)
    }

    /// A description of a code, success included.
    pub fn text(code: u32) -> Option<&'static CStr> {
        row(code).map(|row| row.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_known_and_unknown_code() {
        assert_eq!(Error::name(0), Some(c"CUDA_SUCCESS"));
        assert_eq!(Error::name(704), Some(c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"));
        assert_eq!(Error::text(1), Some(c"invalid argument"));
        assert_eq!(Error::name(802), Some(c"CUDA_ERROR_SYSTEM_NOT_READY"));
        assert_eq!(Error::name(12345), None);
    }
}
