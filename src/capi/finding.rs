//! Findings: how many there were, and the last one.

use std::ffi::{c_char, c_int};
use std::mem::size_of;

use super::status::p2pshim_status_t::{
    self, P2PSHIM_INACTIVE, P2PSHIM_INVALID_ARGUMENT, P2PSHIM_NOT_FOUND, P2PSHIM_OK, P2PSHIM_UNKNOWN_NAME,
};
use super::{give, given, guarded, put, tell, text};
use crate::call::mode::{self, Activity};
use crate::model::{Rule, counters};
use crate::record::finding;

const FINDING_SIZE_0_1: usize = 40;

/// Something that was found wrong with a call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct p2pshim_finding_t {
    /// Set by the caller: sizeof(p2pshim_finding_t).
    pub size: usize,
    /// The id of the rule, such as "P2P-enable-twice"; `p2pshim explain` explains it.
    pub rule: *const c_char,
    /// The function that was called.
    pub function: *const c_char,
    /// How many findings this process had by then; distinguishes two findings.
    pub number: u64,
    /// The code that the function returned; also 0 for a finding before the call.
    pub result: c_int,
    /// The thread that called, as the kernel numbers it.
    pub thread: c_int,
}

/// Returns the last finding of the process, on any thread.
///
/// Thread-safety: any thread, also in a callback; not in signal handlers.
///
/// @param finding Where to write; its size is set.
/// @param message Where to write the full text of the finding, as in the log, with a terminating NUL; may be NULL if `size` is 0.
/// @param size The size of that buffer in bytes.
/// @return P2PSHIM_OK; P2PSHIM_TOO_SMALL if the message was cut off, unless `size` is 0; P2PSHIM_NOT_FOUND if there was no finding
/// yet; P2PSHIM_INACTIVE in a forked child.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_finding_last(
    finding: *mut p2pshim_finding_t,
    message: *mut c_char,
    size: usize,
) -> p2pshim_status_t {
    guarded(|| {
        if finding.is_null() || (message.is_null() && size > 0) {
            return P2PSHIM_INVALID_ARGUMENT;
        }
        // Another thread may have held the lock when the process was forked.
        if mode::activity() == Activity::Child {
            return P2PSHIM_INACTIVE;
        }
        let Some(last) = finding::last() else { return P2PSHIM_NOT_FOUND };
        let described = p2pshim_finding_t {
            size: size_of::<p2pshim_finding_t>(),
            rule: text(last.finding.rule.text().id),
            function: last.function.c_name().as_ptr(),
            number: last.count,
            result: last.ret.map_or(0, |code| last.numbering.given(code).0),
            thread: last.thread,
        };
        // SAFETY: the caller's promise.
        match unsafe { give(&described, finding, FINDING_SIZE_0_1) } {
            // SAFETY: as above.
            P2PSHIM_OK if size > 0 => unsafe { put(last.text().as_bytes(), message, size, std::ptr::null_mut()) },
            status => status,
        }
    })
}

/// Returns how often calls broke a rule so far in this process.
///
/// Thread-safety: any thread, also in a callback; not in signal handlers.
///
/// @param rule The id of the rule, such as "P2P-enable-twice".
/// @param count Where to write the number of findings; may be NULL.
/// @return P2PSHIM_OK; P2PSHIM_UNKNOWN_NAME if there is no such rule.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_findings_get(rule: *const c_char, count: *mut u64) -> p2pshim_status_t {
    guarded(|| {
        // SAFETY: the caller's promise.
        let Some(id) = (unsafe { given(rule) }) else { return P2PSHIM_INVALID_ARGUMENT };
        let is_it = |rule: &&Rule| rule.id().as_bytes() == id.to_bytes();
        let Some(&rule) = Rule::ALL.iter().find(is_it) else { return P2PSHIM_UNKNOWN_NAME };
        // SAFETY: the caller's promise.
        unsafe { tell(counters::findings(rule), count) };
        P2PSHIM_OK
    })
}
