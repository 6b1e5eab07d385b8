//! The options: environment variables, whose values a program can ask for and set.

use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;

use super::status::p2pshim_status_t::{self, P2PSHIM_INVALID_ARGUMENT, P2PSHIM_UNKNOWN_NAME};
use super::{given, guarded, put};
use crate::call::control;
use crate::config::Variable;

/// # Safety
/// `name` is NULL or a C string.
unsafe fn named(name: *const c_char) -> Result<Variable, p2pshim_status_t> {
    // SAFETY: the caller's promise.
    let name = unsafe { given(name) }.ok_or(P2PSHIM_INVALID_ARGUMENT)?;
    name.to_str().ok().and_then(Variable::named).ok_or(P2PSHIM_UNKNOWN_NAME)
}

/// Sets an option.
///
/// Before the first intercepted call the value replaces that of the environment. After it some options can still be changed;
/// the new value applies to calls that begin after this function has returned. docs/OPTIONS.md says which options, and until
/// when. To start a trace, use p2pshim_trace_start().
///
/// Thread-safety: any thread, also in a callback; not in signal handlers. Of two threads that set the same option one is last.
///
/// @param name The option's name, such as "P2PSHIM_VALIDATE"; docs/OPTIONS.md has all.
/// @param value One of its values; NULL or "" for the default.
/// @return P2PSHIM_OK, also if it has that value already; P2PSHIM_UNKNOWN_NAME; P2PSHIM_INVALID_VALUE; P2PSHIM_TOO_LATE;
/// P2PSHIM_INACTIVE; P2PSHIM_INTERNAL_ERROR.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_option_set(name: *const c_char, value: *const c_char) -> p2pshim_status_t {
    guarded(|| {
        // SAFETY: the caller's promise.
        let (option, value) = unsafe { (named(name), given(value).unwrap_or_default()) };
        match option {
            Ok(option) => control::set_option(option, OsStr::from_bytes(value.to_bytes())).into(),
            Err(status) => status,
        }
    })
}

/// Returns the value of an option. Before the first intercepted call this is the value that will apply, according to the
/// environment as it is now. An option with an invalid value has its default.
///
/// Thread-safety: any thread, also in a callback; not in signal handlers, and not, before the first intercepted call, while
/// another thread changes the environment.
///
/// @param name The option's name, such as "P2PSHIM_VALIDATE".
/// @param value Where to write the text, with a terminating NUL; may be NULL if `size` is 0.
/// @param size The size of that buffer in bytes.
/// @param length Where to write how long the text is, without the NUL; may be NULL.
/// @return P2PSHIM_OK; P2PSHIM_TOO_SMALL if the text was cut off; P2PSHIM_UNKNOWN_NAME; P2PSHIM_INACTIVE in a forked child;
/// P2PSHIM_INTERNAL_ERROR.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_option_value(
    name: *const c_char,
    value: *mut c_char,
    size: usize,
    length: *mut usize,
) -> p2pshim_status_t {
    guarded(|| {
        // SAFETY: the caller's promise.
        match unsafe { named(name) }.map(control::option_value) {
            // SAFETY: the caller's promise.
            Ok(Ok(text)) => unsafe { put(text.as_bytes(), value, size, length) },
            Ok(Err(failure)) => Err(failure).into(),
            Err(status) => status,
        }
    })
}
