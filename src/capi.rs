//! The C interface, and the only source of `include/p2pshim.h`.
//!
//! Every struct begins with its size, which the caller sets, and grows at the end: a caller built
//! against an older header gets the fields it knows. No function makes a GPU call.

#![allow(non_camel_case_types, reason = "C spelling")]

use std::ffi::{c_char, c_int};
use std::mem::size_of;

use crate::api::{Function, Layer, codes};
use crate::config::Variable;
use crate::policy::VALIDATE;
use crate::policy::validate::Rule;
use crate::record::counters;

/// Major version of this header; p2pshim_version() tells that of the library.
pub const P2PSHIM_VERSION_MAJOR: c_int = 0;
/// Minor version of this header.
pub const P2PSHIM_VERSION_MINOR: c_int = 1;
/// Patch version of this header.
pub const P2PSHIM_VERSION_PATCH: c_int = 0;

/// What a p2pshim_* function answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum p2pshim_status_t {
    /// Done.
    P2PSHIM_OK = 0,
    /// A pointer is NULL, or a struct's size is smaller than any version of it.
    P2PSHIM_INVALID_ARGUMENT = 1,
    /// The index is not below the count.
    P2PSHIM_OUT_OF_RANGE = 2,
}

use p2pshim_status_t::{P2PSHIM_INVALID_ARGUMENT, P2PSHIM_OK, P2PSHIM_OUT_OF_RANGE};

/// An intercepted function. The texts live as long as the library.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct p2pshim_api_t {
    /// Set by the caller: sizeof(p2pshim_api_t).
    pub size: usize,
    /// The exported name, such as "cudaMemcpyPeer".
    pub name: *const c_char,
    /// "runtime", "driver" or "hip".
    pub layer: *const c_char,
    /// "traced", "state" (seen, not shown) or "lookup" (hands out functions).
    pub kind: *const c_char,
    /// The names of its parameters, separated by ", ".
    pub parameters: *const c_char,
    /// The version of CUDA, or of HIP, that introduced it: 1000 times the major plus 10 times the minor.
    pub since: c_int,
}

/// An environment variable that the shim reads. The texts live as long as the library.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct p2pshim_option_t {
    /// Set by the caller: sizeof(p2pshim_option_t).
    pub size: usize,
    /// The variable's name, such as "P2PSHIM_LOG".
    pub name: *const c_char,
    /// The accepted values.
    pub values: *const c_char,
    /// What holds when it is not set; empty if nothing.
    pub default_value: *const c_char,
    /// What it does.
    pub help: *const c_char,
}

/// A rule about peer calls: what programs get wrong, and what errors mean. The texts live as long as the library.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct p2pshim_rule_t {
    /// Set by the caller: sizeof(p2pshim_rule_t).
    pub size: usize,
    /// The stable id, such as "P2P-enable-twice".
    pub id: *const c_char,
    /// "error" (the call fails, or would if the library looked), "hazard" (data may be wrong), "performance" or "note".
    pub severity: *const c_char,
    /// The functions that it is about.
    pub functions: *const c_char,
    /// What the documentation of CUDA says, and where.
    pub documentation: *const c_char,
    /// What real hardware does where it is not that; empty if nothing is known.
    pub hardware: *const c_char,
    /// Why it matters.
    pub why: *const c_char,
    /// What to do.
    pub remedy: *const c_char,
    /// The code that the documentation gives for the runtime's functions; 0 for none.
    pub runtime_code: c_int,
    /// The same for the driver's.
    pub driver_code: c_int,
    /// The names of these codes; empty for none.
    pub runtime_code_name: *const c_char,
    /// The same for the driver's.
    pub driver_code_name: *const c_char,
    /// How often the rule has spoken in this process so far.
    pub times: u64,
}

/// The peer copies of this process from one device to another, as far as they succeeded. A copy counts when it is submitted.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct p2pshim_pair_t {
    /// Set by the caller: sizeof(p2pshim_pair_t).
    pub size: usize,
    /// Copies that went directly from device to device, or stayed in one.
    pub direct_copies: u64,
    /// Their bytes.
    pub direct_bytes: u64,
    /// Copies that went through the host.
    pub staged_copies: u64,
    /// Their bytes.
    pub staged_bytes: u64,
}

/// The version of the library, such as "0.1.0". The text lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// How many functions the shim intercepts.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_api_count() -> usize {
    Function::ALL.len()
}

/// Describes the intercepted function at an index below p2pshim_api_count().
///
/// Returns P2PSHIM_INVALID_ARGUMENT if `api` is NULL or its size too small, P2PSHIM_OUT_OF_RANGE if there
/// is no such function; then nothing is written.
///
/// # Safety
/// `api` is NULL or points to a struct of the size that its first field says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_api_get(index: usize, api: *mut p2pshim_api_t) -> p2pshim_status_t {
    let Some(&function) = Function::ALL.get(index) else { return P2PSHIM_OUT_OF_RANGE };
    let described = p2pshim_api_t {
        size: size_of::<p2pshim_api_t>(),
        name: function.c_name().as_ptr(),
        layer: text(function.layer().c_name()),
        kind: text(function.kind().c_name()),
        parameters: text(function.c_arguments()),
        since: function.since(),
    };
    // SAFETY: the caller's promise.
    unsafe { give(&described, api, API_SIZE_0_1) }
}

/// How many options the shim has.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_option_count() -> usize {
    Variable::ALL.len()
}

/// Describes the option at an index below p2pshim_option_count().
///
/// Returns P2PSHIM_INVALID_ARGUMENT if `option` is NULL or its size too small, P2PSHIM_OUT_OF_RANGE if
/// there is no such option; then nothing is written.
///
/// # Safety
/// `option` is NULL or points to a struct of the size that its first field says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_option_get(index: usize, option: *mut p2pshim_option_t) -> p2pshim_status_t {
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
}

/// How many rules there are.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_rule_count() -> usize {
    Rule::ALL.len()
}

/// Describes the rule at an index below p2pshim_rule_count(), and tells how often it has spoken.
///
/// Returns P2PSHIM_INVALID_ARGUMENT if `rule` is NULL or its size too small, P2PSHIM_OUT_OF_RANGE if there is no such
/// rule; then nothing is written. May be called from any thread.
///
/// # Safety
/// `rule` is NULL or points to a struct of the size that its first field says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_rule_get(index: usize, rule: *mut p2pshim_rule_t) -> p2pshim_status_t {
    let Some(&found) = Rule::ALL.get(index) else { return P2PSHIM_OUT_OF_RANGE };
    let said = found.text();
    let name = |layer| text(found.code(layer).and_then(|code| codes::c_name(layer, code)).unwrap_or("\0"));
    let described = p2pshim_rule_t {
        size: size_of::<p2pshim_rule_t>(),
        id: text(said.id),
        severity: text(said.severity.c_name()),
        functions: text(said.functions),
        documentation: text(said.documentation),
        hardware: text(said.hardware),
        why: text(said.why),
        remedy: text(said.remedy),
        runtime_code: said.code(Layer::Runtime).0,
        driver_code: said.code(Layer::Driver).0,
        runtime_code_name: name(Layer::Runtime),
        driver_code_name: name(Layer::Driver),
        times: VALIDATE.times(found),
    };
    // SAFETY: the caller's promise.
    unsafe { give(&described, rule, RULE_SIZE_0_1) }
}

/// Tells what has been copied from a device to another, by ordinals.
///
/// Returns P2PSHIM_INVALID_ARGUMENT if `pair` is NULL or its size too small, P2PSHIM_OUT_OF_RANGE for ordinals that are
/// negative or above 31, which are not counted; then nothing is written. May be called from any thread.
///
/// # Safety
/// `pair` is NULL or points to a struct of the size that its first field says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_pair_get(
    src_device: c_int,
    dst_device: c_int,
    pair: *mut p2pshim_pair_t,
) -> p2pshim_status_t {
    let ordinals = usize::try_from(src_device).ok().zip(usize::try_from(dst_device).ok());
    let Some(sums) = ordinals.and_then(|(src, dst)| counters::sums(src, dst)) else { return P2PSHIM_OUT_OF_RANGE };
    let described = p2pshim_pair_t {
        size: size_of::<p2pshim_pair_t>(),
        direct_copies: sums.direct.copies,
        direct_bytes: sums.direct.bytes,
        staged_copies: sums.staged.copies,
        staged_bytes: sums.staged.bytes,
    };
    // SAFETY: the caller's promise.
    unsafe { give(&described, pair, PAIR_SIZE_0_1) }
}

/// A text of the tables as C sees it; they end in NUL.
fn text(text: &'static str) -> *const c_char {
    text.as_ptr().cast()
}

/// The sizes of the structs in the first release that had them.
const API_SIZE_0_1: usize = 48;
const OPTION_SIZE_0_1: usize = 40;
const PAIR_SIZE_0_1: usize = 40;
const RULE_SIZE_0_1: usize = 96;

/// Copies as much of `from` as the caller's struct has room for; its size field stays the caller's.
///
/// # Safety
/// `T` is `repr(C)` and begins with its size. `to` is NULL or points to that many bytes.
unsafe fn give<T>(from: &T, to: *mut T, oldest: usize) -> p2pshim_status_t {
    if to.is_null() {
        return P2PSHIM_INVALID_ARGUMENT;
    }
    // SAFETY: the caller's promise; every version of a struct begins with its size.
    let size = unsafe { *to.cast::<usize>() };
    if size < oldest {
        return P2PSHIM_INVALID_ARGUMENT;
    }
    let header = size_of::<usize>();
    let known = size.min(size_of::<T>());
    // SAFETY: both hold at least `known` bytes, and they cannot overlap: one is our local.
    unsafe {
        let from = std::ptr::from_ref(from).cast::<u8>().add(header);
        to.cast::<u8>().add(header).copy_from_nonoverlapping(from, known - header);
    }
    P2PSHIM_OK
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn blank() -> p2pshim_api_t {
        let null = std::ptr::null();
        p2pshim_api_t {
            size: size_of::<p2pshim_api_t>(),
            name: null,
            layer: null,
            kind: null,
            parameters: null,
            since: 0,
        }
    }

    #[test]
    fn version_header_and_library_agree() {
        // SAFETY: the function answers a C string.
        let version = unsafe { CStr::from_ptr(p2pshim_version()) }.to_str().unwrap();
        assert_eq!(version, format!("{P2PSHIM_VERSION_MAJOR}.{P2PSHIM_VERSION_MINOR}.{P2PSHIM_VERSION_PATCH}"));
    }

    #[test]
    fn api_get_every_index_is_described() {
        for index in 0..p2pshim_api_count() {
            let mut api = blank();
            // SAFETY: `api` has the size that it says.
            assert_eq!(unsafe { p2pshim_api_get(index, &mut api) }, P2PSHIM_OK);
            for text in [api.name, api.layer, api.kind, api.parameters] {
                // SAFETY: the texts are C strings.
                assert!(!unsafe { CStr::from_ptr(text) }.is_empty());
            }
        }
    }

    #[test]
    fn api_get_bad_arguments_nothing_is_written() {
        let mut api = blank();
        // SAFETY: NULL is allowed, and `api` has at least the size that it says.
        unsafe {
            assert_eq!(p2pshim_api_get(0, std::ptr::null_mut()), P2PSHIM_INVALID_ARGUMENT);
            assert_eq!(p2pshim_api_get(p2pshim_api_count(), &mut api), P2PSHIM_OUT_OF_RANGE);
            api.size = API_SIZE_0_1 - 1;
            assert_eq!(p2pshim_api_get(0, &mut api), P2PSHIM_INVALID_ARGUMENT);
        }
        assert!(api.name.is_null());
    }
}
