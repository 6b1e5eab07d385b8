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

impl Error {
    /// The symbolic name of a code, success included.
    pub fn name(code: u32) -> Option<&'static CStr> {
        TEXTS.iter().find(|row| row.0 == code).map(|row| row.1)
    }

    /// A description of a code, success included.
    pub fn text(code: u32) -> Option<&'static CStr> {
        TEXTS.iter().find(|row| row.0 == code).map(|row| row.2)
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
        assert_eq!(Error::name(12345), None);
    }
}
