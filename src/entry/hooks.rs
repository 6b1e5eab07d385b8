//! The hooks: one function for each row of the table, with the real signature.
//!
//! A hook is entered from a trampoline only, which adds the last parameter: caller and route. It finds the real function, and
//! hands the call to the flow that goes with the row's effect; all that is decided and done stands there (`call/`).

use std::mem::transmute;

pub(crate) use super::lookup::{cuGetProcAddress, cuGetProcAddress_v2, hipGetProcAddress};
use crate::api::abi::{self, Argument, Code};
use crate::api::table::for_each_function;
use crate::api::{Copies, Function, State};
use crate::call::{Arrival, Caller, batch, hip, run, state, unavailable};

/// Makes a hook. `$caller`, `$found`, `$real` and `$values` name what the flow gets: who calls, the real function as an address
/// and as a function, and the arguments as plain values.
macro_rules! hook {
    ($symbol:ident($($argument:ident: $type:ident),*),
        |$caller:ident, $found:ident, $real:ident, $values:ident| $flow:expr) => {
        /// # Safety
        /// What the real function asks of its caller; entered from its trampolines only.
        #[allow(non_snake_case, reason = "the vendor's spelling")]
        pub(crate) unsafe extern "C-unwind" fn $symbol($($argument: abi::$type,)* arrival: Arrival) -> Code {
            // SAFETY: a trampoline of this function made the arrival.
            let $caller = unsafe { Caller::new(arrival) };
            let Some($found) = $caller.real(Function::$symbol) else { return unavailable(Function::$symbol, $caller) };
            // SAFETY: a function's slots hold nothing but what was looked up under its name.
            let $real: unsafe extern "C-unwind" fn($(abi::$type),*) -> Code = unsafe { transmute($found) };
            let $values = &[$($argument.value()),*];
            $flow
        }
    };
}

/// The hook of a row, by its effect.
macro_rules! define_hook {
    (state($state:ident) $layer:ident $symbol:ident($($argument:ident: $type:ident),*)) => {
        hook!($symbol($($argument: $type),*), |caller, found, real, values| {
            let _ = caller;
            // SAFETY: the arguments are the program's own, unchanged.
            state::changing(Function::$symbol, State::$state, found.as_ptr(), values, || unsafe { real($($argument),*) })
        });
    };
    (copies($kind:ident) $layer:ident $symbol:ident($($argument:ident: $type:ident),*)) => {
        hook!($symbol($($argument: $type),*), |caller, found, real, values| {
            // SAFETY: the arguments are the program's own, unchanged.
            batch::traced(Function::$symbol, Copies::$kind, caller, found.as_ptr(), values, || unsafe { real($($argument),*) })
        });
    };
    ($effect:ident $(($($detail:tt),*))? hip $symbol:ident($($argument:ident: $type:ident),*)) => {
        hook!($symbol($($argument: $type),*), |caller, found, real, values| {
            hip::traced(Function::$symbol, caller, found.as_ptr(), values, |failing| match failing {
                // SAFETY: the arguments are the program's own, unchanged.
                None => unsafe { real($($argument),*) },
                // SAFETY: arguments that the function refuses before it follows any.
                Some(how) => unsafe { real($($argument.failing(how)),*) },
            })
        });
    };
    ($effect:ident $(($($detail:tt),*))? $layer:ident $symbol:ident($($argument:ident: $type:ident),*)) => {
        hook!($symbol($($argument: $type),*), |caller, found, real, values| {
            run::traced(Function::$symbol, caller, values, |failing| match failing {
                // SAFETY: the arguments are the program's own, unchanged.
                None => unsafe { real($($argument),*) },
                // SAFETY: arguments that the function refuses before it follows any.
                Some(how) => unsafe { real($($argument.failing(how)),*) },
            })
        });
    };
}

macro_rules! define_hooks {
    ($(
        $effect:ident $(($($detail:tt),*))? $layer:ident $since:literal $symbol:ident($($argument:ident: $type:ident),*);
    )*) => {
        $( define_row!($effect $(($($detail),*))? $layer $symbol($($argument: $type),*)); )*
    };
}

/// Those of look-ups are written by hand in `lookup.rs`.
macro_rules! define_row {
    (lookup $($row:tt)*) => {};
    ($($row:tt)*) => {
        define_hook!($($row)*);
    };
}

for_each_function!(define_hooks);
