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
    pub(crate) const INVALID_DEVICE_POINTER: Error = Error(17);
    pub(crate) const INVALID_CHANNEL_DESCRIPTOR: Error = Error(20);
    pub(crate) const INVALID_MEMCPY_DIRECTION: Error = Error(21);
    pub(crate) const INSUFFICIENT_DRIVER: Error = Error(35);
    pub(crate) const CALL_REQUIRES_NEWER_DRIVER: Error = Error(36);
    pub(crate) const INCOMPATIBLE_DRIVER_CONTEXT: Error = Error(49);
    pub(crate) const INVALID_DEVICE: Error = Error(101);
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
];
