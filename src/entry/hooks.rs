//! The hooks: one function for each row of the table, with the real signature.
//!
//! A hook is entered from a trampoline only, which adds the last parameter: caller and route. Its own part stays in
//! `guard`; the real function is called outside every lock and outside the
//! panic fence. A cancelled thread unwinds through the hook, so nothing in its frame
//! may have a destructor while the real function runs.

use std::mem::{MaybeUninit, transmute};

use super::check::Due;
use super::familiar;
use super::guard::{self, Arrival, Call, Decision, Showing};
use super::hip::{self, How};
pub(crate) use super::lookup::{cuGetProcAddress, cuGetProcAddress_v2, hipGetProcAddress};
use super::timing;
use crate::api::Function;
use crate::api::abi::{self, Argument, Code};
use crate::api::table::for_each_function;
use crate::policy::validate::Kind;
use crate::policy::{self, Concern, VALIDATE};

macro_rules! define_hooks {
    ($( $kind:ident $layer:ident $since:literal $symbol:ident($($argument:ident: $type:ident),*); )*) => {
        $( define_hook!($kind $layer $symbol($($argument: $type),*)); )*
    };
}

macro_rules! define_hook {
    (traced hip $symbol:ident($($argument:ident: $type:ident),*)) => {
        /// # Safety
        /// What the real function asks of its caller; entered from its trampolines only.
        #[expect(non_snake_case, reason = "the vendor's spelling")]
        pub(crate) unsafe extern "C-unwind" fn $symbol($($argument: abi::$type,)* arrival: Arrival) -> Code {
            // SAFETY: a trampoline of this function made the arrival.
            let (call, route) = unsafe { guard::arrive(Function::$symbol, arrival) };
            let Some(found) = call.real(route) else { return call.unavailable() };
            // SAFETY: a function's slots hold nothing but what was looked up under its name.
            let real: unsafe extern "C-unwind" fn($(abi::$type),*) -> Code = unsafe { transmute(found) };
            if guard::only_forwards() {
                // SAFETY: the arguments are the program's own, unchanged.
                return unsafe { real($($argument),*) };
            }
            let decided = call.decide(found, &[$($argument.value()),*]);
            let running = call.begin();
            if running.is_recorded() {
                call.note_subject(running, &[$($argument.value()),*], decided.decision());
            }
            let since = Call::since(running);
            let ret = match decided.how {
                // SAFETY: the arguments are the program's own, unchanged.
                How::AsItCame => unsafe { real($($argument),*) },
                // SAFETY: arguments that the function refuses before it follows any.
                How::Failing(how) => unsafe { real($($argument.failing(&how)),*) },
                How::Succeed(library) => hip::succeed(library),
            };
            call.end(running);
            call.conclude(running, since, &decided, &[$($argument.value()),*], ret);
            ret
        }
    };
    // Copies on a stream, which may be familiar.
    (traced runtime $symbol:ident(
        $dst:ident: Pointer, $dst_at:ident: Ordinal, $src:ident: Pointer, $src_at:ident: Ordinal, $count:ident: Size,
        $stream:ident: Stream
    )) => {
        define_hook!(short $symbol(
            $dst: Pointer, $dst_at: Ordinal, $src: Pointer, $src_at: Ordinal, $count: Size, $stream: Stream
        ));
    };
    (traced driver $symbol:ident(
        $dst:ident: DevicePointer, $dst_at:ident: Context, $src:ident: DevicePointer, $src_at:ident: Context,
        $count:ident: Size, $stream:ident: Stream
    )) => {
        define_hook!(short $symbol(
            $dst: DevicePointer, $dst_at: Context, $src: DevicePointer, $src_at: Context, $count: Size, $stream: Stream
        ));
    };
    (short $symbol:ident($($argument:ident: $type:ident),*)) => {
        // Where all is as it was the last time, nothing is called but the real function, so that little has to be saved.
        define_hook!(familiar $symbol as $symbol($($argument: $type),*), true, otherwise, {
            define_hook!(familiar $symbol as otherwise($($argument: $type),*), false, ordinary, {
                define_hook!(ordinary $symbol as ordinary($($argument: $type),*), inline(never));
            }, inline(never));
        });
    };
    (familiar $symbol:ident as $name:ident($($argument:ident: $type:ident),*), $at_once:literal, $otherwise:ident, {
        $($item:tt)*
    } $(, $attribute:meta)?) => {
        /// # Safety
        /// What the real function asks of its caller; entered from its trampolines only.
        #[allow(non_snake_case, reason = "the vendor's spelling")]
        $(#[$attribute])?
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: abi::$type,)* arrival: Arrival) -> Code {
            $($item)*
            const { assert!(familiar::may_be(Function::$symbol)) };
            // SAFETY: a trampoline of this function made the arrival.
            let (call, route) = unsafe { guard::arrive(Function::$symbol, arrival) };
            if let Some(real) = call.begin_inside::<$at_once>(route, &[$($argument.value()),*]) {
                // SAFETY: a function's slots hold nothing but what was looked up under its name.
                let real: unsafe extern "C-unwind" fn($(abi::$type),*) -> Code = unsafe { transmute(real) };
                // A jump, so that nothing has to be saved for it, nor fetched again after it.
                // SAFETY: the arguments are the caller's own, unchanged.
                return unsafe { real($($argument),*) };
            }
            // The driver's are mostly inside one of the runtime: for those not even room on the stack is made.
            if $at_once && call.is_of_driver() {
                // SAFETY: the caller's.
                return unsafe { $otherwise($($argument,)* arrival) };
            }
            let Some(number) = familiar::may_any_be() else {
                // SAFETY: the caller's.
                return unsafe { $otherwise($($argument,)* arrival) };
            };
            let begun = call.begin_familiar::<$at_once>(number, route, &[$($argument.value()),*]);
            let Some(familiar) = begun else {
                std::hint::cold_path();
                // SAFETY: the caller's.
                return unsafe { $otherwise($($argument,)* arrival) };
            };
            // SAFETY: as above.
            let real: unsafe extern "C-unwind" fn($(abi::$type),*) -> Code = unsafe { transmute(familiar.real) };
            // SAFETY: the arguments are the program's own, unchanged.
            let ret = unsafe { real($($argument),*) };
            if !call.end_familiar(familiar, &[$($argument.value()),*], ret) {
                call.end_unfamiliar(familiar.known, familiar.running, route, &[$($argument.value()),*], ret);
            }
            ret
        }
    };
    (traced $layer:ident $symbol:ident($($argument:ident: $type:ident),*)) => {
        define_hook!(ordinary $symbol as $symbol($($argument: $type),*));
    };
    (ordinary $symbol:ident as $name:ident($($argument:ident: $type:ident),*) $(, $attribute:meta)?) => {
        /// # Safety
        /// What the real function asks of its caller; entered from its trampolines only.
        #[expect(non_snake_case, reason = "the vendor's spelling")]
        $(#[$attribute])?
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: abi::$type,)* arrival: Arrival) -> Code {
            // SAFETY: a trampoline of this function made the arrival.
            let (call, route) = unsafe { guard::arrive(Function::$symbol, arrival) };
            let Some(real) = call.real(route) else { return call.unavailable() };
            // SAFETY: a function's slots hold nothing but what was looked up under its name.
            let real: unsafe extern "C-unwind" fn($(abi::$type),*) -> Code = unsafe { transmute(real) };
            if guard::only_forwards() {
                // SAFETY: the arguments are the program's own, unchanged.
                return unsafe { real($($argument),*) };
            }
            // Only what is not settled needs the arguments in memory, and room for what is decided about them.
            let considered;
            const IS_CHECKED: bool = !matches!(Kind::of(Function::$symbol), Kind::Other);
            let mut room = MaybeUninit::uninit();
            if IS_CHECKED
                && call.may_be_due()
                && let Some(due) = call.due(&[$($argument.value()),*], &mut room)
            {
                /// Off the way of calls that are made.
                #[cold]
                #[inline(never)]
                #[allow(non_snake_case, reason = "the vendor's spelling")]
                unsafe fn refuse(
                    real: unsafe extern "C-unwind" fn($(abi::$type),*) -> Code,
                    call: Call,
                    due: Due,
                    ($($argument,)*): ($(abi::$type,)*),
                ) -> Code {
                    let running = call.begin();
                    call.note_subject(running, &[$($argument.value()),*], Decision::REFUSED);
                    let since = Call::since(running);
                    let ret = match due {
                        Due::Answer(code) => code,
                        // SAFETY: arguments that the function refuses before it follows any.
                        Due::Failing(how) => unsafe { real($($argument.failing(&how)),*) },
                    };
                    call.end(running);
                    call.show_refused(running, since, &[$($argument.value()),*], ret);
                    ret
                }
                // SAFETY: the caller's.
                return unsafe { refuse(real, call, due, ($($argument,)*)) };
            }
            let decision = match policy::concern(Function::$symbol) {
                Concern::Copy => match call.settled(&[$($argument.value()),*]) {
                    Some(decision) => decision,
                    None => {
                        considered = call.consider(&[$($argument.value()),*]);
                        considered.decision()
                    }
                },
                Concern::Peers => {
                    considered = call.ask(&[$($argument.value()),*]);
                    considered.decision()
                }
                Concern::Nothing => Decision::FORWARD,
            };
            let running = call.begin();
            if running.is_recorded() {
                call.note_subject(running, &[$($argument.value()),*], decision);
            }
            const IS_TIMED: bool = timing::is_timed(Function::$symbol);
            let measured =
                if IS_TIMED && running.is_recorded() { call.begin_timing(&[$($argument.value()),*]) } else { None };
            let since = Call::since(running);
            let mut ret = match decision.instead {
                // SAFETY: the arguments are the program's own, unchanged.
                None => unsafe { real($($argument),*) },
                // SAFETY: made of the same arguments.
                Some(instead) => unsafe { instead.make() },
            };
            if policy::concern(Function::$symbol) == Concern::Peers {
                ret = call.revise(&[$($argument.value()),*], ret, decision);
            }
            call.end(running);
            if policy::concern(Function::$symbol) != Concern::Copy {
                call.count(ret);
            } else {
                call.count_copy(decision, ret);
            }
            let is_looked_at = IS_CHECKED && VALIDATE.is_on();
            let is_seen = running.is_shown() || running.is_recorded();
            let path = if is_looked_at || is_seen { call.path(running, decision, ret) } else { None };
            if running.is_recorded() {
                call.record(running, ret, decision, path);
            }
            if IS_TIMED && let Some(measured) = measured {
                call.end_timing(measured, running.begun(), ret == Code::SUCCESS);
            }
            let is_fine = if running.is_shown() {
                let showing = Showing { since, looked_at: is_looked_at.then_some(route) };
                call.show(running, showing, &[$($argument.value()),*], ret, decision, path);
                false
            } else if is_looked_at && running.is_outermost() {
                call.look_at(route, &[$($argument.value()),*], ret, path)
            } else {
                true
            };
            if familiar::may_be(Function::$symbol) && is_fine && ret == Code::SUCCESS && decision.instead.is_none() {
                call.keep_familiar(running, &[$($argument.value()),*]);
            }
            ret
        }
    };
    (state hip hipDeviceReset()) => {
        /// # Safety
        /// Entered from its trampolines only.
        #[expect(non_snake_case, reason = "the vendor's spelling")]
        pub(crate) unsafe extern "C-unwind" fn hipDeviceReset(arrival: Arrival) -> Code {
            // SAFETY: a trampoline of this function made the arrival.
            let (call, route) = unsafe { guard::arrive(Function::hipDeviceReset, arrival) };
            let Some(found) = call.real(route) else { return call.unavailable() };
            // SAFETY: a function's slots hold nothing but what was looked up under its name.
            let real: unsafe extern "C-unwind" fn() -> Code = unsafe { transmute(found) };
            if guard::only_forwards() {
                // SAFETY: no arguments.
                return unsafe { real() };
            }
            let library = call.note_resetting(found);
            // SAFETY: no arguments.
            let ret = unsafe { real() };
            call.note_reset(library);
            ret
        }
    };
    (state $layer:ident $symbol:ident($($argument:ident: $type:ident),*)) => {
        /// # Safety
        /// What the real function asks of its caller; entered from its trampolines only.
        #[expect(non_snake_case, reason = "the vendor's spelling")]
        pub(crate) unsafe extern "C-unwind" fn $symbol($($argument: abi::$type,)* arrival: Arrival) -> Code {
            // SAFETY: a trampoline of this function made the arrival.
            let (call, route) = unsafe { guard::arrive(Function::$symbol, arrival) };
            let Some(real) = call.real(route) else { return call.unavailable() };
            // SAFETY: a function's slots hold nothing but what was looked up under its name.
            let real: unsafe extern "C-unwind" fn($(abi::$type),*) -> Code = unsafe { transmute(real) };
            call.note_going(&[$($argument.value()),*]);
            let ret = match call.refused(&[$($argument.value()),*]) {
                // SAFETY: the arguments are the program's own, unchanged.
                None => unsafe { real($($argument),*) },
                Some(refused) => refused,
            };
            call.note(&[$($argument.value()),*], ret);
            ret
        }
    };
    // Written by hand in lookup.rs.
    (lookup $($row:tt)*) => {};
}

for_each_function!(define_hooks);
