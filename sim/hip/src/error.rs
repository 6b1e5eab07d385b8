//! How calls end: result codes, with HIP's names for them, and which become the last error. Those of the simulation pass through: the numbers are the same.

use std::ffi::CStr;

use p2psim_core::Error;

use crate::abi::Null;

/// `hipSuccess`.
pub(crate) const NO_ERROR: u32 = 0;
/// `hipErrorInvalidPitchValue`.
pub(crate) const INVALID_PITCH: Error = Error(12);
/// `hipErrorInvalidMemcpyDirection`.
pub(crate) const INVALID_DIRECTION: Error = Error(21);
/// `hipErrorContextAlreadyInUse`.
pub(crate) const CONTEXT_IN_USE: Error = Error(216);

/// A call's code, and whether it becomes the last error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// As almost all do.
    Recorded(u32),
    /// Some refusals of the real library go past the place where it is recorded.
    Silent(u32),
}

/// The result of a call.
pub(crate) type Result<T> = std::result::Result<T, Outcome>;

impl From<Error> for Outcome {
    fn from(error: Error) -> Outcome {
        Outcome::Recorded(error.0)
    }
}

impl From<Null> for Outcome {
    fn from(_: Null) -> Outcome {
        Error::INVALID_VALUE.into()
    }
}

/// An error that does not become the last one.
pub(crate) fn silent(error: Error) -> Outcome {
    Outcome::Silent(error.0)
}

/// The symbolic name of a code; what names none has that of the unknown error.
pub(crate) fn name(code: u32) -> &'static CStr {
    row(code).map_or(c"hipErrorUnknown", |row| row.1)
}

/// A description of a code.
pub(crate) fn text(code: u32) -> &'static CStr {
    row(code).map_or(c"unknown error", |row| row.2)
}

fn row(code: u32) -> Option<&'static (u32, &'static CStr, &'static CStr)> {
    TEXTS.iter().find(|row| row.0 == code)
}

const TEXTS: &[(u32, &CStr, &CStr)] = &[
    (0, c"hipSuccess", c"no error"),
    (1, c"hipErrorInvalidValue", c"invalid argument"),
    (2, c"hipErrorOutOfMemory", c"out of memory"),
    (3, c"hipErrorNotInitialized", c"initialization error"),
    (12, c"hipErrorInvalidPitchValue", c"invalid pitch argument"),
    (21, c"hipErrorInvalidMemcpyDirection", c"invalid copy direction for memcpy"),
    (100, c"hipErrorNoDevice", c"no ROCm-capable device is detected"),
    (101, c"hipErrorInvalidDevice", c"invalid device ordinal"),
    (201, c"hipErrorInvalidContext", c"invalid device context"),
    (216, c"hipErrorContextAlreadyInUse", c"the device is in use by another thread"),
    (217, c"hipErrorPeerAccessUnsupported", c"peer access is not supported between these two devices"),
    (304, c"hipErrorOperatingSystem", c"a call to the operating system failed"),
    (400, c"hipErrorInvalidHandle", c"invalid resource handle"),
    (401, c"hipErrorIllegalState", c"not possible in the present state"),
    (500, c"hipErrorNotFound", c"named symbol not found"),
    (600, c"hipErrorNotReady", c"device not ready"),
    (704, c"hipErrorPeerAccessAlreadyEnabled", c"peer access is already enabled"),
    (705, c"hipErrorPeerAccessNotEnabled", c"peer access has not been enabled"),
    (708, c"hipErrorSetOnActiveProcess", c"cannot set while device is active in this process"),
    (709, c"hipErrorContextIsDestroyed", c"context is destroyed"),
    (719, c"hipErrorLaunchFailure", c"unspecified launch failure"),
    (801, c"hipErrorNotSupported", c"operation not supported"),
    (900, c"hipErrorStreamCaptureUnsupported", c"operation not permitted when stream is capturing"),
    (901, c"hipErrorStreamCaptureInvalidated", c"the capture has been invalidated"),
    (902, c"hipErrorStreamCaptureMerge", c"two captures would become one"),
    (903, c"hipErrorStreamCaptureUnmatched", c"the capture began on another stream"),
    (904, c"hipErrorStreamCaptureUnjoined", c"the capture has work that was not joined"),
    (905, c"hipErrorStreamCaptureIsolation", c"a dependency would cross the border of the capture"),
    (906, c"hipErrorStreamCaptureImplicit", c"the legacy stream would depend on a capturing stream"),
    (907, c"hipErrorCapturedEvent", c"the event was last recorded in a capture"),
    (908, c"hipErrorStreamCaptureWrongThread", c"another thread began the capture"),
    (999, c"hipErrorUnknown", c"unknown error"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_known_and_unknown_code() {
        assert_eq!(name(704), c"hipErrorPeerAccessAlreadyEnabled");
        assert_eq!(name(12345), c"hipErrorUnknown");
        assert_eq!(text(12345), text(999));
    }
}
