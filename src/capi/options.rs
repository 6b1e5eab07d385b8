//! The options: environment variables, whose values a program can ask for and set.

use std::ffi::{OsStr, c_char};
use std::mem::size_of;
use std::os::unix::ffi::OsStrExt;

use super::status::p2pshim_status_t::{self, P2PSHIM_INVALID_ARGUMENT, P2PSHIM_OUT_OF_RANGE, P2PSHIM_UNKNOWN_NAME};
use super::{give, given, guarded, put, text};
use crate::call::control;
use crate::config::Variable;

const OPTION_SIZE_0_1: usize = 40;

/// An environment variable that the shim reads.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct p2pshim_option_t {
    /// Set by the caller: sizeof(p2pshim_option_t).
    pub size: usize,
    /// The variable's name, such as "P2PSHIM_LOG".
    pub name: *const c_char,
    /// The accepted values.
    pub values: *const c_char,
    /// The default value; empty for none.
    pub default_value: *const c_char,
    /// Its effect.
    pub help: *const c_char,
}

/// How many options the shim has.
///
/// Thread-safety: any thread, at any time, in signal handlers too.
///
/// @return The number of indexes that p2pshim_option_get() takes.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_option_count() -> usize {
    Variable::ALL.len()
}

/// Describes an option. p2pshim_option_value() returns its value, p2pshim_option_set() sets it.
///
/// Thread-safety: any thread, at any time.
///
/// @param index Which one: below p2pshim_option_count().
/// @param option Where to write; its size is set.
/// @return P2PSHIM_OK; P2PSHIM_OUT_OF_RANGE if there is no such option.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_option_get(index: usize, option: *mut p2pshim_option_t) -> p2pshim_status_t {
    guarded(|| {
        let Some(&variable) = Variable::ALL.get(index) else { return P2PSHIM_OUT_OF_RANGE };
        let described = p2pshim_option_t {
            size: size_of::<p2pshim_option_t>(),
            name: text(variable.c_name()),
            values: text(variable.c_values()),
            default_value: text(variable.c_default()),
            help: text(variable.c_help()),
        };
        // SAFETY: the caller's promise.
        unsafe { give(&described, option, OPTION_SIZE_0_1) }
    })
}

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
/// @param name The option's name, such as "P2PSHIM_VALIDATE".
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
