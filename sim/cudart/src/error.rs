//! Result codes, with the runtime's names for them. The driver's codes pass through: since 10.1 the numbers are the same, and inside this
//! library always.

use std::ffi::CStr;

use crate::abi::Null;
use crate::flavour;

/// An error that a runtime call can end with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error(pub(crate) u32);

/// The result of a runtime call.
pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) const INVALID_VALUE: Error = Error(1);
    pub(crate) const INVALID_PITCH_VALUE: Error = Error(12);
    pub(crate) const INVALID_SYMBOL: Error = Error(13);
    pub(crate) const INVALID_DEVICE_POINTER: Error = Error(17);
    pub(crate) const INVALID_CHANNEL_DESCRIPTOR: Error = Error(20);
    pub(crate) const INVALID_MEMCPY_DIRECTION: Error = Error(21);
    pub(crate) const INSUFFICIENT_DRIVER: Error = Error(35);
    pub(crate) const CALL_REQUIRES_NEWER_DRIVER: Error = Error(36);
    pub(crate) const INCOMPATIBLE_DRIVER_CONTEXT: Error = Error(49);
    pub(crate) const INVALID_DEVICE: Error = Error(101);
    pub(crate) const INVALID_HANDLE: Error = Error(400);
    pub(crate) const SYMBOL_NOT_FOUND: Error = Error(500);
    pub(crate) const SET_ON_ACTIVE_PROCESS: Error = Error(708);

    /// The symbolic name of a code as programs get it, success included.
    pub(crate) fn name(given: u32) -> Option<&'static CStr> {
        of_given(given).map(|row| row.2)
    }

    /// A description of a code as programs get it, success included.
    pub(crate) fn text(given: u32) -> Option<&'static CStr> {
        of_given(given).map(|row| row.3)
    }
}

/// A code as programs get it: until 10.0 the runtime had numbers of its own, and called what it did not know unknown.
pub(crate) fn given(code: u32) -> u32 {
    /// `cudaErrorUnknown`, then.
    const UNKNOWN: u32 = 30;
    if flavour::has_the_drivers_codes() {
        return code;
    }
    TEXTS.iter().find(|row| row.0 == code && row.1 != NONE).map_or(UNKNOWN, |row| row.1)
}

fn of_given(given: u32) -> Option<&'static Text> {
    let is_new = flavour::has_the_drivers_codes();
    TEXTS.iter().find(|row| given == if is_new { row.0 } else { row.1 })
}

impl From<Null> for Error {
    fn from(_: Null) -> Error {
        Error::INVALID_VALUE
    }
}

/// In place of a number that a code did not have.
const NONE: u32 = u32::MAX;

/// Number since 10.1, number until 10.0, name, description.
type Text = (u32, u32, &'static CStr, &'static CStr);

const TEXTS: &[Text] = &[
    (0, 0, c"cudaSuccess", c"no error"),
    (1, 11, c"cudaErrorInvalidValue", c"invalid argument"),
    (2, 2, c"cudaErrorMemoryAllocation", c"out of memory"),
    (3, 3, c"cudaErrorInitializationError", c"initialization error"),
    (4, 29, c"cudaErrorCudartUnloading", c"driver shutting down"),
    (12, 12, c"cudaErrorInvalidPitchValue", c"invalid pitch argument"),
    (17, 17, c"cudaErrorInvalidDevicePointer", c"invalid device pointer"),
    (20, 20, c"cudaErrorInvalidChannelDescriptor", c"invalid channel descriptor"),
    (21, 21, c"cudaErrorInvalidMemcpyDirection", c"invalid copy direction for memcpy"),
    (35, 35, c"cudaErrorInsufficientDriver", c"CUDA driver version is insufficient for CUDA runtime version"),
    (36, NONE, c"cudaErrorCallRequiresNewerDriver", c"the installed driver lacks this call"),
    (49, 49, c"cudaErrorIncompatibleDriverContext", c"the current context is not a device's primary one"),
    (100, 38, c"cudaErrorNoDevice", c"no CUDA-capable device is detected"),
    (101, 10, c"cudaErrorInvalidDevice", c"invalid device ordinal"),
    (201, NONE, c"cudaErrorDeviceUninitialized", c"invalid device context"),
    (205, 14, c"cudaErrorMapBufferObjectFailed", c"mapping of buffer object failed"),
    (208, NONE, c"cudaErrorAlreadyMapped", c"resource already mapped"),
    (217, 64, c"cudaErrorPeerAccessUnsupported", c"peer access is not supported between these two devices"),
    (304, 63, c"cudaErrorOperatingSystem", c"a call to the operating system failed"),
    (400, 33, c"cudaErrorInvalidResourceHandle", c"invalid resource handle"),
    (401, 84, c"cudaErrorIllegalState", c"resource not in a valid state"),
    (500, NONE, c"cudaErrorSymbolNotFound", c"named symbol not found"),
    (600, 34, c"cudaErrorNotReady", c"device not ready"),
    (700, 77, c"cudaErrorIllegalAddress", c"an illegal memory access was encountered"),
    (704, 50, c"cudaErrorPeerAccessAlreadyEnabled", c"peer access is already enabled"),
    (705, 51, c"cudaErrorPeerAccessNotEnabled", c"peer access has not been enabled"),
    (708, 36, c"cudaErrorSetOnActiveProcess", c"cannot set while device is active in this process"),
    (709, NONE, c"cudaErrorContextIsDestroyed", c"context is destroyed"),
    (711, 60, c"cudaErrorTooManyPeers", c"peer resources exhausted"),
    (712, 61, c"cudaErrorHostMemoryAlreadyRegistered", c"part or all of the memory range is already registered"),
    (713, 62, c"cudaErrorHostMemoryNotRegistered", c"pointer is not registered"),
    (719, 4, c"cudaErrorLaunchFailure", c"unspecified launch failure"),
    (800, 70, c"cudaErrorNotPermitted", c"operation not permitted"),
    (801, 71, c"cudaErrorNotSupported", c"operation not supported"),
    (900, 900, c"cudaErrorStreamCaptureUnsupported", c"operation not permitted when stream is capturing"),
    (901, 901, c"cudaErrorStreamCaptureInvalidated", c"operation failed due to a previous error during capture"),
    (902, 902, c"cudaErrorStreamCaptureMerge", c"operation would result in a merge of separate capture sequences"),
    (903, 903, c"cudaErrorStreamCaptureUnmatched", c"capture was not ended in the same stream as it began"),
    (904, 904, c"cudaErrorStreamCaptureUnjoined", c"capturing stream has unjoined work"),
    (905, 905, c"cudaErrorStreamCaptureIsolation", c"dependency created on uncaptured work in another stream"),
    (
        906,
        906,
        c"cudaErrorStreamCaptureImplicit",
        c"operation would make the legacy stream depend on a capturing stream",
    ),
    (907, 907, c"cudaErrorCapturedEvent", c"operation not permitted on an event last recorded in a capturing stream"),
    (908, NONE, c"cudaErrorStreamCaptureWrongThread", c"attempt to end a capture from a thread that did not begin it"),
    (910, NONE, c"cudaErrorGraphExecUpdateFailure", c"the graph update was not performed"),
    (999, 30, c"cudaErrorUnknown", c"unknown error"),
    // Never of the simulation itself; the numbers of old are not known.
    (5, NONE, c"cudaErrorProfilerDisabled", c"profiler disabled while using external profiling tool"),
    (6, NONE, c"cudaErrorProfilerNotInitialized", c"profiler not initialized: call cudaProfilerInitialize()"),
    (7, NONE, c"cudaErrorProfilerAlreadyStarted", c"profiler already started"),
    (8, NONE, c"cudaErrorProfilerAlreadyStopped", c"profiler already stopped"),
    (9, NONE, c"cudaErrorInvalidConfiguration", c"invalid configuration argument"),
    (13, NONE, c"cudaErrorInvalidSymbol", c"invalid device symbol"),
    (16, NONE, c"cudaErrorInvalidHostPointer", c"invalid host pointer"),
    (18, NONE, c"cudaErrorInvalidTexture", c"invalid texture reference"),
    (19, NONE, c"cudaErrorInvalidTextureBinding", c"texture is not bound to a pointer"),
    (22, NONE, c"cudaErrorAddressOfConstant", c"invalid address of constant"),
    (23, NONE, c"cudaErrorTextureFetchFailed", c"fetch from texture failed"),
    (24, NONE, c"cudaErrorTextureNotBound", c"cannot fetch from a texture that is not bound"),
    (25, NONE, c"cudaErrorSynchronizationError", c"incorrect use of __syncthreads()"),
    (26, NONE, c"cudaErrorInvalidFilterSetting", c"linear filtering not supported for non-float type"),
    (27, NONE, c"cudaErrorInvalidNormSetting", c"read as normalized float not supported for data type"),
    (28, NONE, c"cudaErrorMixedDeviceExecution", c"device emulation mode and device execution mode cannot be mixed"),
    (31, NONE, c"cudaErrorNotYetImplemented", c"feature not yet implemented"),
    (32, NONE, c"cudaErrorMemoryValueTooLarge", c"memory size or pointer value too large to fit in 32 bit"),
    (34, NONE, c"cudaErrorStubLibrary", c"CUDA driver is a stub library"),
    (37, NONE, c"cudaErrorInvalidSurface", c"invalid surface reference"),
    (43, NONE, c"cudaErrorDuplicateVariableName", c"duplicate global variable looked up by string name"),
    (44, NONE, c"cudaErrorDuplicateTextureName", c"duplicate texture looked up by string name"),
    (45, NONE, c"cudaErrorDuplicateSurfaceName", c"duplicate surface looked up by string name"),
    (46, NONE, c"cudaErrorDevicesUnavailable", c"CUDA-capable device(s) is/are busy or unavailable"),
    (52, NONE, c"cudaErrorMissingConfiguration", c"__global__ function call is not configured"),
    (53, NONE, c"cudaErrorPriorLaunchFailure", c"unspecified launch failure in prior launch"),
    (65, NONE, c"cudaErrorLaunchMaxDepthExceeded", c"launch would exceed maximum depth of nested launches"),
    (
        66,
        NONE,
        c"cudaErrorLaunchFileScopedTex",
        c"launch failed because kernel uses unsupported, file-scoped textures (texture objects are supported)",
    ),
    (
        67,
        NONE,
        c"cudaErrorLaunchFileScopedSurf",
        c"launch failed because kernel uses unsupported, file-scoped surfaces (surface objects are supported)",
    ),
    (
        68,
        NONE,
        c"cudaErrorSyncDepthExceeded",
        c"cudaDeviceSynchronize failed because caller's grid depth exceeds cudaLimitDevRuntimeSyncDepth",
    ),
    (
        69,
        NONE,
        c"cudaErrorLaunchPendingCountExceeded",
        c"launch failed because launch would exceed cudaLimitDevRuntimePendingLaunchCount",
    ),
    (98, NONE, c"cudaErrorInvalidDeviceFunction", c"invalid device function"),
    (102, NONE, c"cudaErrorDeviceNotLicensed", c"device doesn't have valid Grid license"),
    (103, NONE, c"cudaErrorSoftwareValidityNotEstablished", c"integrity checks failed"),
    (127, NONE, c"cudaErrorStartupFailure", c"startup failure in cuda runtime"),
    (200, NONE, c"cudaErrorInvalidKernelImage", c"device kernel image is invalid"),
    (206, NONE, c"cudaErrorUnmapBufferObjectFailed", c"unmapping of buffer object failed"),
    (207, NONE, c"cudaErrorArrayIsMapped", c"array is mapped"),
    (209, NONE, c"cudaErrorNoKernelImageForDevice", c"no kernel image is available for execution on the device"),
    (210, NONE, c"cudaErrorAlreadyAcquired", c"resource already acquired"),
    (211, NONE, c"cudaErrorNotMapped", c"resource not mapped"),
    (212, NONE, c"cudaErrorNotMappedAsArray", c"resource not mapped as array"),
    (213, NONE, c"cudaErrorNotMappedAsPointer", c"resource not mapped as pointer"),
    (214, NONE, c"cudaErrorECCUncorrectable", c"uncorrectable ECC error encountered"),
    (215, NONE, c"cudaErrorUnsupportedLimit", c"limit is not supported on this architecture"),
    (216, NONE, c"cudaErrorDeviceAlreadyInUse", c"exclusive-thread device already in use by a different thread"),
    (218, NONE, c"cudaErrorInvalidPtx", c"a PTX JIT compilation failed"),
    (219, NONE, c"cudaErrorInvalidGraphicsContext", c"invalid OpenGL or DirectX context"),
    (220, NONE, c"cudaErrorNvlinkUncorrectable", c"uncorrectable NVLink error detected during the execution"),
    (221, NONE, c"cudaErrorJitCompilerNotFound", c"PTX JIT compiler library not found"),
    (222, NONE, c"cudaErrorUnsupportedPtxVersion", c"the provided PTX was compiled with an unsupported toolchain."),
    (223, NONE, c"cudaErrorJitCompilationDisabled", c"PTX JIT compilation was disabled"),
    (224, NONE, c"cudaErrorUnsupportedExecAffinity", c"the provided execution affinity is not supported"),
    (
        225,
        NONE,
        c"cudaErrorUnsupportedDevSideSync",
        c"the provided PTX contains unsupported call to cudaDeviceSynchronize",
    ),
    (226, NONE, c"cudaErrorContained", c"Invalid access of peer GPU memory over nvlink or a hardware error"),
    (300, NONE, c"cudaErrorInvalidSource", c"device kernel image is invalid"),
    (301, NONE, c"cudaErrorFileNotFound", c"file not found"),
    (302, NONE, c"cudaErrorSharedObjectSymbolNotFound", c"shared object symbol not found"),
    (303, NONE, c"cudaErrorSharedObjectInitFailed", c"shared object initialization failed"),
    (402, NONE, c"cudaErrorLossyQuery", c"attempted introspection would be semantically lossy"),
    (701, NONE, c"cudaErrorLaunchOutOfResources", c"too many resources requested for launch"),
    (702, NONE, c"cudaErrorLaunchTimeout", c"the launch timed out and was terminated"),
    (703, NONE, c"cudaErrorLaunchIncompatibleTexturing", c"launch uses incompatible texturing mode"),
    (710, NONE, c"cudaErrorAssert", c"device-side assert triggered"),
    (714, NONE, c"cudaErrorHardwareStackError", c"hardware stack error"),
    (715, NONE, c"cudaErrorIllegalInstruction", c"an illegal instruction was encountered"),
    (716, NONE, c"cudaErrorMisalignedAddress", c"misaligned address"),
    (717, NONE, c"cudaErrorInvalidAddressSpace", c"operation not supported on global/shared address space"),
    (718, NONE, c"cudaErrorInvalidPc", c"invalid program counter"),
    (720, NONE, c"cudaErrorCooperativeLaunchTooLarge", c"too many blocks in cooperative launch"),
    (721, NONE, c"cudaErrorTensorMemoryLeak", c"tensor memory not completely freed"),
    (802, NONE, c"cudaErrorSystemNotReady", c"system not yet initialized"),
    (803, NONE, c"cudaErrorSystemDriverMismatch", c"system has unsupported display driver / cuda driver combination"),
    (804, NONE, c"cudaErrorCompatNotSupportedOnDevice", c"forward compatibility was attempted on non supported HW"),
    (
        805,
        NONE,
        c"cudaErrorMpsConnectionFailed",
        c"MPS client failed to connect to the MPS control daemon or the MPS server",
    ),
    (
        806,
        NONE,
        c"cudaErrorMpsRpcFailure",
        c"the remote procedural call between the MPS server and the MPS client failed",
    ),
    (807, NONE, c"cudaErrorMpsServerNotReady", c"MPS server is not ready to accept new MPS client requests"),
    (
        808,
        NONE,
        c"cudaErrorMpsMaxClientsReached",
        c"the hardware resources required to create MPS client have been exhausted",
    ),
    (
        809,
        NONE,
        c"cudaErrorMpsMaxConnectionsReached",
        c"the hardware resources required to support device connections have been exhausted",
    ),
    (810, NONE, c"cudaErrorMpsClientTerminated", c"the MPS client has been terminated by the server"),
    (
        811,
        NONE,
        c"cudaErrorCdpNotSupported",
        c"is using CUDA Dynamic Parallelism, but the current configuration, like MPS, does not support it",
    ),
    (
        812,
        NONE,
        c"cudaErrorCdpVersionMismatch",
        c"unsupported interaction between different versions of CUDA Dynamic Parallelism",
    ),
    (909, NONE, c"cudaErrorTimeout", c"wait operation timed out"),
    (911, NONE, c"cudaErrorExternalDevice", c"an async error has occured in external entity outside of CUDA"),
    (912, NONE, c"cudaErrorInvalidClusterSize", c"a kernel launch error has occurred due to cluster misconfiguration"),
    (
        913,
        NONE,
        c"cudaErrorFunctionNotLoaded",
        c"the function handle is not loaded when calling an API that requires a loaded function",
    ),
    (
        914,
        NONE,
        c"cudaErrorInvalidResourceType",
        c"one or more resources passed in are not valid resource types for the operation",
    ),
    (
        915,
        NONE,
        c"cudaErrorInvalidResourceConfiguration",
        c"one or more resources are insufficient or non-applicable for the operation",
    ),
];
