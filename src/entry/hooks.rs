//! The hooks: one function for each row of the table, with the real signature.
//!
//! A hook is entered from a trampoline only, which adds the last parameter: caller and route. Its own part stays in
//! `guard`; the real function is called in one place, outside every lock and
//! outside the panic fence. A cancelled thread unwinds through the hook, so nothing in its frame
//! may have a destructor while the real function runs.

use std::mem::transmute;

use super::guard::{self, Arrival};
pub(crate) use super::lookup::{cuGetProcAddress, cuGetProcAddress_v2};
use crate::api::Function;
use crate::api::abi::{self, Argument, Code};
use crate::api::table::for_each_function;
use crate::policy;

macro_rules! define_hooks {
    ($( $kind:ident $layer:ident $since:literal $symbol:ident($($argument:ident: $type:ident),*); )*) => {
        $( define_hook!($kind $symbol($($argument: $type),*)); )*
    };
}

macro_rules! define_hook {
    (traced $symbol:ident($($argument:ident: $type:ident),*)) => {
        /// # Safety
        /// What the real function asks of its caller; entered from its trampolines only.
        #[expect(non_snake_case, reason = "the vendor's spelling")]
        pub(crate) unsafe extern "C-unwind" fn $symbol($($argument: abi::$type,)* arrival: Arrival) -> Code {
            // SAFETY: a trampoline of this function made the arrival.
            let call = unsafe { guard::arrive(Function::$symbol, arrival) };
            let Some(real) = call.real() else { return call.unavailable() };
            // SAFETY: a function's slots hold nothing but what was looked up under its name.
            let real: unsafe extern "C-unwind" fn($(abi::$type),*) -> Code = unsafe { transmute(real) };
            let instead = match policy::concerns(Function::$symbol) {
                true => call.decide(&[$($argument.value()),*]),
                false => None,
            };
            let running = call.begin();
            let ret = match &instead {
                // SAFETY: the arguments are the program's own, unchanged.
                None => unsafe { real($($argument),*) },
                // SAFETY: made of the same arguments.
                Some(copy) => unsafe { copy.make() },
            };
            call.end(running);
            if running.is_shown() {
                call.show(running, &[$($argument.value()),*], ret, instead);
            }
            ret
        }
    };
    (state $symbol:ident($($argument:ident: $type:ident),*)) => {
        /// # Safety
        /// What the real function asks of its caller; entered from its trampolines only.
        #[expect(non_snake_case, reason = "the vendor's spelling")]
        pub(crate) unsafe extern "C-unwind" fn $symbol($($argument: abi::$type,)* arrival: Arrival) -> Code {
            // SAFETY: a trampoline of this function made the arrival.
            let call = unsafe { guard::arrive(Function::$symbol, arrival) };
            let Some(real) = call.real() else { return call.unavailable() };
            // SAFETY: a function's slots hold nothing but what was looked up under its name.
            let real: unsafe extern "C-unwind" fn($(abi::$type),*) -> Code = unsafe { transmute(real) };
            // SAFETY: the arguments are the program's own, unchanged.
            let ret = unsafe { real($($argument),*) };
            call.note(ret);
            ret
        }
    };
    // Written by hand in lookup.rs.
    (lookup $($row:tt)*) => {};
}

for_each_function!(define_hooks);
