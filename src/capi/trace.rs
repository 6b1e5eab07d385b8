//! The trace: started, stopped and marked by the program.

use std::ffi::{CString, OsStr, c_char, c_int};
use std::mem::size_of;
use std::os::unix::ffi::OsStrExt;

use super::status::p2pshim_status_t::{self, P2PSHIM_INVALID_ARGUMENT, P2PSHIM_NOT_FOUND};
use super::{give, given, guarded, kept};
use crate::call::control;
use crate::record::trace;

const TRACE_SIZE_0_1: usize = 32;

/// The trace of this process.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct p2pshim_trace_t {
    /// Set by the caller: sizeof(p2pshim_trace_t).
    pub size: usize,
    /// The file.
    pub path: *const c_char,
    /// How many calls found no room in it and were only counted.
    pub dropped: u64,
    /// Whether calls are being recorded: 1, or 0 after p2pshim_trace_stop().
    pub recording: c_int,
}

/// Starts to record calls for `p2pshim report`, as P2PSHIM_TRACE does from the first call on.
///
/// A process has one trace file. The first call of this function creates it; after p2pshim_trace_stop() recording continues in
/// the same file. It reads the options if there was no intercepted call yet. Calls in progress on other threads are not
/// recorded.
///
/// Thread-safety: any thread, also in a callback; not in signal handlers.
///
/// @param folder Where to create the file; NULL for the folder of P2PSHIM_TRACE, or for the file that exists. The folder is
/// created if only its last component is missing.
/// @return P2PSHIM_OK, also if calls are recorded already; P2PSHIM_NOT_FOUND if `folder` is NULL and P2PSHIM_TRACE is not
/// set; P2PSHIM_TOO_LATE if there is a file in another folder; P2PSHIM_SYSTEM_ERROR if the file cannot be created;
/// P2PSHIM_INACTIVE; P2PSHIM_INTERNAL_ERROR.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_trace_start(folder: *const c_char) -> p2pshim_status_t {
    guarded(|| {
        // SAFETY: the caller's promise.
        let folder = unsafe { given(folder) }.map(|folder| OsStr::from_bytes(folder.to_bytes()));
        if folder.is_some_and(OsStr::is_empty) {
            return P2PSHIM_INVALID_ARGUMENT;
        }
        control::start_trace(folder).into()
    })
}

/// Stops recording until p2pshim_trace_start(). Calls in progress are still completed.
///
/// Thread-safety: any thread, also in a callback; not in signal handlers.
///
/// @return P2PSHIM_OK, also if it was stopped before; P2PSHIM_NOT_FOUND if there is no trace; P2PSHIM_INACTIVE;
/// P2PSHIM_INTERNAL_ERROR.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_trace_stop() -> p2pshim_status_t {
    guarded(|| control::stop_trace().into())
}

/// Writes a mark to the trace, such as "epoch 3 begins": a text with the time and the calling thread. It is also logged, at
/// level info.
///
/// Thread-safety: any thread, also in a callback; not in signal handlers.
///
/// @param text The text, in UTF-8. It is cut off after 4096 bytes.
/// @return P2PSHIM_OK; P2PSHIM_INVALID_ARGUMENT if `text` is not UTF-8; P2PSHIM_NOT_FOUND if calls are not being
/// recorded; P2PSHIM_INTERNAL_ERROR.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_trace_mark(text: *const c_char) -> p2pshim_status_t {
    guarded(|| {
        const MOST: usize = 4096;
        // SAFETY: the caller's promise.
        let Some(text) = unsafe { given(text) }.and_then(|text| text.to_str().ok()) else {
            return P2PSHIM_INVALID_ARGUMENT;
        };
        control::mark(text.get(..text.floor_char_boundary(MOST)).unwrap_or_default()).into()
    })
}

/// Describes the trace.
///
/// Thread-safety: any thread; not in signal handlers.
///
/// @param trace Where to write; its size is set.
/// @return P2PSHIM_OK; P2PSHIM_NOT_FOUND if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_trace_get(trace: *mut p2pshim_trace_t) -> p2pshim_status_t {
    guarded(|| {
        let Some(there) = trace::file() else { return P2PSHIM_NOT_FOUND };
        let described = p2pshim_trace_t {
            size: size_of::<p2pshim_trace_t>(),
            path: kept(CString::new(there.path().as_os_str().as_bytes()).unwrap_or_default()),
            dropped: there.dropped(),
            recording: control::is_recording().into(),
        };
        // SAFETY: the caller's promise.
        unsafe { give(&described, trace, TRACE_SIZE_0_1) }
    })
}
