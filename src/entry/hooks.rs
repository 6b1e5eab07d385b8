//! The hooks: one function for each row of the table, with the real signature.
//!
//! A hook is entered from a trampoline only, which adds the last parameter: caller and route. It finds the real function, and
//! hands the call to the flow that goes with the row's effect; all that is decided and done stands there (`call/`).

use std::ffi::c_void;
use std::mem::transmute;

pub(crate) use super::lookup::{cuGetProcAddress, cuGetProcAddress_v2, hipGetProcAddress};
use crate::api::abi::{self, Argument, Code};
use crate::api::table::for_each_function;
use crate::api::{Copies, Function, State};
use crate::call::{Arrival, Call, Caller, Room, batch, fast, hip, regular, run, state, unavailable};

/// Makes a hook. `$caller`, `$found`, `$real` and `$values` name what the flow gets: who calls, the real function as an address
/// and as a function, and the arguments as plain values.
macro_rules! hook {
    ($symbol:ident as $name:ident($($argument:ident: $type:ident),*),
        |$caller:ident, $found:ident, $real:ident, $values:ident| $flow:expr $(, $attribute:meta)?) => {
        /// # Safety
        /// What the real function asks of its caller; entered from its trampolines only.
        #[allow(non_snake_case, reason = "the vendor's spelling")]
        $(#[$attribute])?
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: abi::$type,)* arrival: Arrival) -> Code {
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
    // A copy that is like one of the last takes the fast path; else the call goes on below, with the arguments where they are.
    (copy(async, fast $($detail:tt)*) $layer:ident $symbol:ident($($argument:ident: $type:ident),*)) => {
        /// # Safety
        /// What the real function asks of its caller; entered from its trampolines only.
        #[allow(non_snake_case, reason = "the vendor's spelling")]
        pub(crate) unsafe extern "C-unwind" fn $symbol($($argument: abi::$type,)* arrival: Arrival) -> Code {
            type Real = unsafe extern "C-unwind" fn($(abi::$type),*) -> Code;
            define_hook!(copy(async) $layer $symbol as ordinary($($argument: $type),*), inline(never));
            // SAFETY: a trampoline of this function made the arrival.
            let (caller, mut room) = (unsafe { Caller::new(arrival) }, Room::new());
            let values = [$($argument.value()),*];
            let call = Call::new(Function::$symbol, caller, &values, &mut room);
            if let Some(real) = fast::inner(&call) {
                // SAFETY: slots hold what was looked up under the function's name; the arguments are the caller's own.
                return unsafe { transmute::<*mut c_void, Real>(real)($($argument),*) };
            }
            let Some(fast) = fast::begin(&call) else {
                if let Some(real) = regular::passes(&call) {
                    // SAFETY: as above.
                    return unsafe { transmute::<*mut c_void, Real>(real)($($argument),*) };
                }
                // SAFETY: the caller's.
                return unsafe { ordinary($($argument,)* arrival) };
            };
            // SAFETY: as above.
            let ret = unsafe { transmute::<*mut c_void, Real>(fast.real)($($argument),*) };
            if !fast::end(&call, &fast, ret) {
                // Parsed anew, so that on the fast path nothing of it has to be in memory.
                let values = [$($argument.value()),*];
                let call = Call::new(Function::$symbol, caller, &values, &mut room);
                fast::end_otherwise(&call, &fast, ret);
            }
            ret
        }
    };
    ($effect:ident $(($($detail:tt),*))? $layer:ident $symbol:ident($($argument:ident: $type:ident),*)) => {
        define_hook!($effect $(($($detail),*))? $layer $symbol as $symbol($($argument: $type),*));
    };
    (state($state:ident) $layer:ident $symbol:ident as $name:ident($($argument:ident: $type:ident),*)) => {
        hook!($symbol as $name($($argument: $type),*), |caller, found, real, values| {
            let _ = caller;
            // SAFETY: the arguments are the program's own, unchanged.
            state::changing(Function::$symbol, State::$state, found.as_ptr(), values, || unsafe { real($($argument),*) })
        });
    };
    (copies($kind:ident) $layer:ident $symbol:ident as $name:ident($($argument:ident: $type:ident),*)) => {
        hook!($symbol as $name($($argument: $type),*), |caller, found, real, values| {
            // SAFETY: the arguments are the program's own, unchanged.
            batch::traced(Function::$symbol, Copies::$kind, caller, found.as_ptr(), values, || unsafe { real($($argument),*) })
        });
    };
    ($effect:ident $(($($detail:tt),*))? hip $symbol:ident as $name:ident($($argument:ident: $type:ident),*)) => {
        hook!($symbol as $name($($argument: $type),*), |caller, found, real, values| {
            hip::traced(Function::$symbol, caller, found.as_ptr(), values, |failing| match failing {
                // SAFETY: the arguments are the program's own, unchanged.
                None => unsafe { real($($argument),*) },
                // SAFETY: arguments that the function refuses before it follows any.
                Some(how) => unsafe { real($($argument.failing(how)),*) },
            })
        });
    };
    ($effect:ident $(($($detail:tt),*))? $layer:ident $symbol:ident as $name:ident($($argument:ident: $type:ident),*)
        $(, $attribute:meta)?) => {
        hook!($symbol as $name($($argument: $type),*), |caller, found, real, values| {
            run::traced(Function::$symbol, caller, values, |failing| match failing {
                // SAFETY: the arguments are the program's own, unchanged.
                None => unsafe { real($($argument),*) },
                // SAFETY: arguments that the function refuses before it follows any.
                Some(how) => unsafe { real($($argument.failing(how)),*) },
            })
        } $(, $attribute)?);
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
