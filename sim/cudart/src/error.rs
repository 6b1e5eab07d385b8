//! Result codes, with the runtime's names for them. The driver's codes pass through: the numbers are the same.

use std::ffi::CStr;

use crate::abi::Null;

/// What a runtime call can end with besides success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error(pub(crate) u32);

/// The result of a runtime call.
pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) const INVALID_VALUE: Error = Error(1);
    pub(crate) const INVALID_PITCH_VALUE: Error = Error(12);
    pub(crate) const INVALID_CHANNEL_DESCRIPTOR: Error = Error(20);
    pub(crate) const INVALID_MEMCPY_DIRECTION: Error = Error(21);
    pub(crate) const INSUFFICIENT_DRIVER: Error = Error(35);
    pub(crate) const CALL_REQUIRES_NEWER_DRIVER: Error = Error(36);
    pub(crate) const INCOMPATIBLE_DRIVER_CONTEXT: Error = Error(49);
    pub(crate) const INVALID_DEVICE: Error = Error(101);
    pub(crate) const SYMBOL_NOT_FOUND: Error = Error(500);

    /// The symbolic name of a code, success included.
    pub(crate) fn name(code: u32) -> Option<&'static CStr> {
        TEXTS.iter().find(|row| row.0 == code).map(|row| row.1)
    }

    /// A description of a code, success included.
    pub(crate) fn text(code: u32) -> Option<&'static CStr> {
        TEXTS.iter().find(|row| row.0 == code).map(|row| row.2)
    }
}

impl From<Null> for Error {
    fn from(_: Null) -> Error {
        Error::INVALID_VALUE
    }
}

const TEXTS: &[(u32, &CStr, &CStr)] = &[
    (0, c"cudaSuccess", c"no error"),
    (1, c"cudaErrorInvalidValue", c"invalid argument"),
    (2, c"cudaErrorMemoryAllocation", c"out of memory"),
    (3, c"cudaErrorInitializationError", c"initialization error"),
    (4, c"cudaErrorCudartUnloading", c"driver shutting down"),
    (12, c"cudaErrorInvalidPitchValue", c"invalid pitch argument"),
    (20, c"cudaErrorInvalidChannelDescriptor", c"invalid channel descriptor"),
    (21, c"cudaErrorInvalidMemcpyDirection", c"invalid copy direction for memcpy"),
    (35, c"cudaErrorInsufficientDriver", c"CUDA driver version is insufficient for CUDA runtime version"),
    (36, c"cudaErrorCallRequiresNewerDriver", c"the installed driver lacks this call"),
    (49, c"cudaErrorIncompatibleDriverContext", c"the current context is not a device's primary one"),
    (100, c"cudaErrorNoDevice", c"no CUDA-capable device is detected"),
    (101, c"cudaErrorInvalidDevice", c"invalid device ordinal"),
    (201, c"cudaErrorDeviceUninitialized", c"invalid device context"),
    (205, c"cudaErrorMapBufferObjectFailed", c"mapping of buffer object failed"),
    (217, c"cudaErrorPeerAccessUnsupported", c"peer access is not supported between these two devices"),
    (304, c"cudaErrorOperatingSystem", c"a call to the operating system failed"),
    (400, c"cudaErrorInvalidResourceHandle", c"invalid resource handle"),
    (401, c"cudaErrorIllegalState", c"resource not in a valid state"),
    (500, c"cudaErrorSymbolNotFound", c"named symbol not found"),
    (600, c"cudaErrorNotReady", c"device not ready"),
    (700, c"cudaErrorIllegalAddress", c"an illegal memory access was encountered"),
    (704, c"cudaErrorPeerAccessAlreadyEnabled", c"peer access is already enabled"),
    (705, c"cudaErrorPeerAccessNotEnabled", c"peer access has not been enabled"),
    (708, c"cudaErrorSetOnActiveProcess", c"cannot set while device is active in this process"),
    (709, c"cudaErrorContextIsDestroyed", c"context is destroyed"),
    (711, c"cudaErrorTooManyPeers", c"peer resources exhausted"),
    (712, c"cudaErrorHostMemoryAlreadyRegistered", c"part or all of the memory range is already registered"),
    (713, c"cudaErrorHostMemoryNotRegistered", c"pointer is not registered"),
    (719, c"cudaErrorLaunchFailure", c"unspecified launch failure"),
    (800, c"cudaErrorNotPermitted", c"operation not permitted"),
    (801, c"cudaErrorNotSupported", c"operation not supported"),
    (900, c"cudaErrorStreamCaptureUnsupported", c"operation not permitted when stream is capturing"),
    (901, c"cudaErrorStreamCaptureInvalidated", c"operation failed due to a previous error during capture"),
    (902, c"cudaErrorStreamCaptureMerge", c"operation would result in a merge of separate capture sequences"),
    (903, c"cudaErrorStreamCaptureUnmatched", c"capture was not ended in the same stream as it began"),
    (904, c"cudaErrorStreamCaptureUnjoined", c"capturing stream has unjoined work"),
    (905, c"cudaErrorStreamCaptureIsolation", c"dependency created on uncaptured work in another stream"),
    (906, c"cudaErrorStreamCaptureImplicit", c"operation would make the legacy stream depend on a capturing stream"),
    (907, c"cudaErrorCapturedEvent", c"operation not permitted on an event last recorded in a capturing stream"),
    (908, c"cudaErrorStreamCaptureWrongThread", c"attempt to end a capture from a thread that did not begin it"),
    (910, c"cudaErrorGraphExecUpdateFailure", c"the graph update was not performed"),
    (999, c"cudaErrorUnknown", c"unknown error"),
];
