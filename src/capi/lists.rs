//! The intercepted functions and the rules, with what was counted of each.

use std::ffi::{c_char, c_int};
use std::mem::size_of;

use super::process::p2pshim_layer_t;
use super::status::p2pshim_status_t::{self, P2PSHIM_OUT_OF_RANGE};
use super::{give, guarded, text};
use crate::api::{Effect, Function, Layer, codes};
use crate::model::Rule;
use crate::model::counters;
use crate::model::rules::Severity;

/// The sizes of the structs in the first release that had them.
const API_SIZE_0_1: usize = 40;
const RULE_SIZE_0_1: usize = 96;

/// The treatment of an intercepted function. 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum p2pshim_kind_t {
    /// Its calls are counted, traced and shown.
    P2PSHIM_KIND_TRACED = 1,
    /// Its calls are watched, and not shown.
    P2PSHIM_KIND_STATE = 2,
    /// It looks functions up.
    P2PSHIM_KIND_LOOKUP = 3,
}

/// An intercepted function.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct p2pshim_api_t {
    /// Set by the caller: sizeof(p2pshim_api_t).
    pub size: usize,
    /// The exported name, such as "cudaMemcpyPeer".
    pub name: *const c_char,
    /// The kind of library that it belongs to.
    pub layer: p2pshim_layer_t,
    /// Its treatment.
    pub kind: p2pshim_kind_t,
    /// The names of its parameters, separated by ", ".
    pub parameters: *const c_char,
    /// The version of CUDA, or of HIP, that introduced it: 1000 times the major plus 10 times the minor.
    pub since: c_int,
    /// How often it was called so far in this process; counted of P2PSHIM_KIND_TRACED only.
    pub calls: u64,
    /// How many of these calls returned an error.
    pub failures: u64,
}

/// The severity of a rule's findings. 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum p2pshim_severity_t {
    /// The call fails, or would fail if CUDA checked its arguments.
    P2PSHIM_SEVERITY_ERROR = 1,
    /// Data may be wrong.
    P2PSHIM_SEVERITY_HAZARD = 2,
    /// It costs time.
    P2PSHIM_SEVERITY_PERFORMANCE = 3,
    /// It is worth knowing.
    P2PSHIM_SEVERITY_NOTE = 4,
}

/// A rule about peer calls: what programs get wrong, and what errors mean.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct p2pshim_rule_t {
    /// Set by the caller: sizeof(p2pshim_rule_t).
    pub size: usize,
    /// The stable id, such as "P2P-enable-twice".
    pub id: *const c_char,
    /// How bad its findings are.
    pub severity: p2pshim_severity_t,
    /// The functions that it is about.
    pub functions: *const c_char,
    /// The statement of CUDA's documentation, and where it stands.
    pub documentation: *const c_char,
    /// The behaviour of real hardware where it differs; empty if nothing is known.
    pub hardware: *const c_char,
    /// Why it matters.
    pub why: *const c_char,
    /// The remedy.
    pub remedy: *const c_char,
    /// The code that the documentation gives for the runtime's functions; 0 for none.
    pub runtime_code: c_int,
    /// The code that it gives for the driver's functions; 0 for none.
    pub driver_code: c_int,
    /// The name of the runtime's code; empty for none.
    pub runtime_code_name: *const c_char,
    /// The name of the driver's code; empty for none.
    pub driver_code_name: *const c_char,
    /// How many findings of this rule there were in this process so far.
    pub times: u64,
}

/// How many functions the shim intercepts.
///
/// Thread-safety: any thread, at any time, in signal handlers too.
///
/// @return The number of indexes that p2pshim_api_get() takes.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_api_count() -> usize {
    Function::ALL.len()
}

/// Describes an intercepted function, with the number of its calls so far.
///
/// Thread-safety: any thread, at any time.
///
/// @param index Which one: below p2pshim_api_count().
/// @param api Where to write; its size is set.
/// @return P2PSHIM_OK; P2PSHIM_OUT_OF_RANGE if there is no such function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_api_get(index: usize, api: *mut p2pshim_api_t) -> p2pshim_status_t {
    guarded(|| {
        let Some(&function) = Function::ALL.get(index) else { return P2PSHIM_OUT_OF_RANGE };
        let [calls, failures] = counters::calls(function);
        let described = p2pshim_api_t {
            size: size_of::<p2pshim_api_t>(),
            name: function.c_name().as_ptr(),
            layer: function.layer().into(),
            kind: match function.effect() {
                Effect::State(_) | Effect::Host(_) => p2pshim_kind_t::P2PSHIM_KIND_STATE,
                Effect::Lookup => p2pshim_kind_t::P2PSHIM_KIND_LOOKUP,
                Effect::Traced | Effect::Copy(_) | Effect::Copies(_) | Effect::Access(_) => {
                    p2pshim_kind_t::P2PSHIM_KIND_TRACED
                }
            },
            parameters: text(function.c_arguments()),
            since: function.since(),
            calls,
            failures,
        };
        // SAFETY: the caller's promise.
        unsafe { give(&described, api, API_SIZE_0_1) }
    })
}

/// How many rules there are.
///
/// Thread-safety: any thread, at any time, in signal handlers too.
///
/// @return The number of indexes that p2pshim_rule_get() takes.
#[unsafe(no_mangle)]
pub extern "C" fn p2pshim_rule_count() -> usize {
    Rule::ALL.len()
}

/// Describes a rule, with the number of its findings so far.
///
/// Thread-safety: any thread, at any time.
///
/// @param index Which one: below p2pshim_rule_count().
/// @param rule Where to write; its size is set.
/// @return P2PSHIM_OK; P2PSHIM_OUT_OF_RANGE if there is no such rule.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p2pshim_rule_get(index: usize, rule: *mut p2pshim_rule_t) -> p2pshim_status_t {
    guarded(|| {
        let Some(&found) = Rule::ALL.get(index) else { return P2PSHIM_OUT_OF_RANGE };
        let said = found.text();
        let name = |layer| text(found.code(layer).and_then(|code| codes::c_name(layer, code)).unwrap_or("\0"));
        let described = p2pshim_rule_t {
            size: size_of::<p2pshim_rule_t>(),
            id: text(said.id),
            severity: match said.severity {
                Severity::Error => p2pshim_severity_t::P2PSHIM_SEVERITY_ERROR,
                Severity::Hazard => p2pshim_severity_t::P2PSHIM_SEVERITY_HAZARD,
                Severity::Performance => p2pshim_severity_t::P2PSHIM_SEVERITY_PERFORMANCE,
                Severity::Note => p2pshim_severity_t::P2PSHIM_SEVERITY_NOTE,
            },
            functions: text(said.functions),
            documentation: text(said.documentation),
            hardware: text(said.hardware),
            why: text(said.why),
            remedy: text(said.remedy),
            runtime_code: said.code(Layer::Runtime).0,
            driver_code: said.code(Layer::Driver).0,
            runtime_code_name: name(Layer::Runtime),
            driver_code_name: name(Layer::Driver),
            times: counters::findings(found),
        };
        // SAFETY: the caller's promise.
        unsafe { give(&described, rule, RULE_SIZE_0_1) }
    })
}

#[cfg(test)]
mod tests {
    use super::super::status::p2pshim_status_t::{P2PSHIM_INVALID_ARGUMENT, P2PSHIM_OK};
    use super::*;
    use std::ffi::CStr;

    fn blank() -> p2pshim_api_t {
        let null = std::ptr::null();
        p2pshim_api_t {
            size: size_of::<p2pshim_api_t>(),
            name: null,
            layer: p2pshim_layer_t::P2PSHIM_LAYER_RUNTIME,
            kind: p2pshim_kind_t::P2PSHIM_KIND_TRACED,
            parameters: null,
            since: 0,
            calls: 0,
            failures: 0,
        }
    }

    #[test]
    fn api_get_every_index_is_described() {
        for index in 0..p2pshim_api_count() {
            let mut api = blank();
            // SAFETY: `api` has the size that it says.
            assert_eq!(unsafe { p2pshim_api_get(index, &mut api) }, P2PSHIM_OK);
            for text in [api.name, api.parameters] {
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
