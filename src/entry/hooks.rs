//! The hooks: one function for each row of the table, with the real signature.
//!
//! A hook is entered from a trampoline only, which adds the last parameter: caller and route. It finds the real function, and
//! hands the call to the flow that goes with the row's effect; all that is decided and done stands there (`call/`).

use std::mem::transmute;

pub(crate) use super::lookup::{
    cuGetProcAddress, cuGetProcAddress_v2, hipGetDriverEntryPoint, hipGetDriverEntryPoint_spt, hipGetProcAddress,
    hipGetProcAddress_spt,
};
use crate::api::abi::{self, Argument, Code};
use crate::api::table::for_each_function;
use crate::api::{Function, Half, State};
use crate::call::{Arrival, Caller, batch, change, host, run, unavailable};

/// Makes a hook. `$caller`, `$found`, `$real` and `$values` name what the flow gets: who calls, the real function as an address
/// and as a function, and the arguments as plain values.
macro_rules! hook {
    ($symbol:ident($($argument:ident: $type:ident),*),
        |$caller:ident, $found:ident, $real:ident, $values:ident| $flow:expr) => {
        /// # Safety
        /// As the real function asks of its caller; entered from its trampolines only.
        #[allow(non_snake_case, reason = "the vendor's spelling")]
        pub(crate) unsafe extern "C-unwind" fn $symbol($($argument: abi::$type,)* arrival: Arrival) -> Code {
            // SAFETY: a trampoline of this function made the arrival.
            let $caller = unsafe { Caller::new(arrival) };
            let Some($found) = $caller.real(Function::$symbol) else { return unavailable(Function::$symbol, $caller) };
            // SAFETY: a function's slots hold nothing but what was looked up under its name.
            let $real: unsafe extern "C-unwind" fn($(abi::$type),*) -> Code = unsafe { transmute($found) };
            let $values = &mut [$($argument.value()),*];
            $flow
        }
    };
}

/// Makes the hook of a batch of the runtime, whose function has one parameter less from CUDA 13.0 on. So the hook does not declare
/// the last: from 13.0 on its place on the stack is the caller's own, which a compiler may write to where it is a parameter.
macro_rules! batch_hook {
    ($symbol:ident($($argument:ident: $type:ident),*) $last:ident: $last_type:ident) => {
        /// # Safety
        /// As the real function asks of its caller; entered from its trampolines only.
        #[allow(non_snake_case, reason = "the vendor's spelling")]
        pub(crate) unsafe extern "C-unwind" fn $symbol($($argument: abi::$type,)* arrival: Arrival) -> Code {
            type All = unsafe extern "C-unwind" fn($(abi::$type,)* abi::$last_type) -> Code;
            type Fewer = unsafe extern "C-unwind" fn($(abi::$type),*) -> Code;
            // SAFETY: a trampoline of this function made the arrival.
            let caller = unsafe { Caller::new(arrival) };
            let Some(found) = caller.real(Function::$symbol) else { return unavailable(Function::$symbol, caller) };
            let has_last = batch::has_fail_index(found.as_ptr());
            let others = [$($argument.value()),*];
            // SAFETY: the function has the parameter, so the caller has passed it.
            let $last = if has_last { unsafe { caller.parameter(others.len()) } } else { 0 };
            let $last = abi::$last_type($last as _);
            let values = &mut [$($argument.value(),)* $last.value()];
            let values = batch::declared(Function::$symbol, found.as_ptr(), values);
            run::traced(Function::$symbol, caller, found.as_ptr(), values, || {
                if has_last {
                    // SAFETY: a function's slots hold nothing but what was looked up under its name.
                    let real: All = unsafe { transmute(found) };
                    // SAFETY: the arguments are the program's own, unchanged.
                    return unsafe { real($($argument,)* $last) };
                }
                // SAFETY: as above; from 13.0 on it has one parameter less.
                let real: Fewer = unsafe { transmute(found) };
                // SAFETY: as above.
                unsafe { real($($argument),*) }
            })
        }
    };
    ($symbol:ident($($argument:ident: $type:ident),*) $next:ident: $next_type:ident, $($rest:tt)+) => {
        batch_hook!($symbol($($argument: $type,)* $next: $next_type) $($rest)+);
    };
}

/// The hook of a row, by its effect.
macro_rules! define_hook {
    (state($state:ident) $layer:ident $symbol:ident($($argument:ident: $type:ident),*)) => {
        hook!($symbol($($argument: $type),*), |caller, found, real, values| {
            let by = (caller, found.as_ptr().cast_const());
            // SAFETY: the arguments are the program's own, unchanged.
            change::changing(Function::$symbol, State::$state, by, values, || unsafe { real($($argument),*) })
        });
    };
    (host($half:ident) $layer:ident $symbol:ident($($argument:ident: $type:ident),*)) => {
        hook!($symbol($($argument: $type),*), |caller, found, real, values| {
            // SAFETY: the arguments are the program's own, unchanged.
            host::half(Function::$symbol, Half::$half, caller, values, || unsafe { real($($argument),*) })
        });
    };
    (copies(batch) runtime $symbol:ident($($parameters:tt)*)) => {
        batch_hook!($symbol() $($parameters)*);
    };
    (copies($kind:ident) $layer:ident $symbol:ident($($argument:ident: $type:ident),*)) => {
        hook!($symbol($($argument: $type),*), |caller, found, real, values| {
            let values = batch::declared(Function::$symbol, found.as_ptr(), values);
            // SAFETY: the arguments are the program's own, unchanged.
            run::traced(Function::$symbol, caller, found.as_ptr(), values, || unsafe { real($($argument),*) })
        });
    };
    ($effect:ident $(($($detail:tt),*))? $layer:ident $symbol:ident($($argument:ident: $type:ident),*)) => {
        hook!($symbol($($argument: $type),*), |caller, found, real, values| {
            // SAFETY: the arguments are the program's own, unchanged.
            run::traced(Function::$symbol, caller, found.as_ptr(), values, || unsafe { real($($argument),*) })
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
