//! Reading what a call's arguments point to, to show it.

use std::ffi::{CStr, c_void};

use crate::api::Function;
use crate::api::abi::{Code, Value};
use crate::real::{driver, loader};
use crate::record::{Argument, CallSite, Contents};

/// Names the values of a call that has returned `ret`, and reads what they point to: outputs only
/// if it succeeded, nothing through NULL.
pub(crate) fn arguments(function: Function, values: &[Value], ret: Code) -> Vec<Argument> {
    let named = function.arguments().iter().zip(values);
    named.map(|(&name, &value)| Argument { name, value, contents: contents(value, ret) }).collect()
}

fn contents(value: Value, ret: Code) -> Option<Contents> {
    // SAFETY: the program passed these pointers to the real function, which has just followed them:
    // inputs to read them, outputs to write them since it reports success.
    unsafe {
        match value {
            Value::OutInt(output) if ret == Code::SUCCESS => output.as_ref().map(|&n| Contents::Int(n.into())),
            Value::Text(text) if !text.is_null() => {
                Some(Contents::Text(CStr::from_ptr(text).to_string_lossy().into_owned()))
            }
            Value::RuntimePeer3D(parms) => parms.as_ref().map(|&parms| Contents::RuntimePeer3D(parms)),
            Value::DriverPeer3D(parms) => parms.as_ref().map(|&parms| Contents::DriverPeer3D(parms)),
            _ => None,
        }
    }
}

/// One side of a copy, as far as the arguments tell.
#[derive(Clone, Copy, Default)]
struct End {
    address: Option<u64>,
    ordinal: Option<i32>,
}

impl End {
    /// The pointer decides: an ordinal that does not match it is accepted and has no effect.
    fn device(self) -> Option<i32> {
        self.address.and_then(driver::device_of).or(self.ordinal)
    }
}

/// The devices of a copy, source first; none for a call that copies nothing.
pub(crate) fn pair(arguments: &[Argument]) -> Option<(i32, i32)> {
    let (mut src, mut dst) = (End::default(), End::default());
    for argument in arguments {
        match (argument.name, argument.value, &argument.contents) {
            ("src" | "srcDevice", Value::Address(address), _) => src.address = Some(address as u64),
            ("dst" | "dstDevice", Value::Address(address), _) => dst.address = Some(address as u64),
            ("srcDevice", Value::Ordinal(ordinal), _) => src.ordinal = Some(ordinal),
            ("dstDevice", Value::Ordinal(ordinal), _) => dst.ordinal = Some(ordinal),
            (_, _, Some(Contents::RuntimePeer3D(p))) => {
                let end = |array, pointer, device| End {
                    address: (array == 0).then_some(pointer as u64),
                    ordinal: Some(device),
                };
                src = end(p.srcArray, p.srcPtr.ptr, p.srcDevice);
                dst = end(p.dstArray, p.dstPtr.ptr, p.dstDevice);
            }
            (_, _, Some(Contents::DriverPeer3D(p))) => {
                let end = |array, pointer| End { address: (array == 0).then_some(pointer), ordinal: None };
                src = end(p.srcArray, p.srcDevice);
                dst = end(p.dstArray, p.dstDevice);
            }
            _ => {}
        }
    }
    Some((src.device()?, dst.device()?))
}

/// Where a call came from, by its return address.
pub(crate) fn call_site(return_address: *const c_void) -> Option<CallSite> {
    // The call instruction lies before the address to return to, perhaps in another function.
    let (object, symbol) = loader::describe(return_address.wrapping_byte_sub(1))?;
    Some(CallSite {
        module: String::from_utf8_lossy(object.file_name()).into_owned(),
        offset: (return_address as usize).wrapping_sub(object.base),
        symbol: symbol.map(|symbol| symbol.to_string_lossy().into_owned()),
    })
}
