//! The exported symbols: one trampoline for each function and route in.
//!
//! A trampoline says who called (the stack pointer) and by which route (its slot) in two registers that carry no
//! argument, leaves every argument where it is, and jumps to the function's hook. So hooks keep the real signatures,
//! whatever their number of arguments.
//!
//! Functions of the runtime and of HIP are exported under each symbol version that a program may be bound to, and as
//! default under P2PSHIM for references without a version: exported without any version, one symbol
//! would capture the calls of every runtime in the process. Functions of the driver and of NVML have no versions.
//!
//! The ABI passes a struct of two floating-point numbers in xmm0 and xmm1, behind integers and pointers of any number. Therefore no
//! row may have a floating-point parameter. The stack pointer gives the return address, from which the trace names the caller.
//!
//! In some arrangements a versioned symbol gets lost in a debug build and not in a release build, or the other way round:
//! `tests/it/exports.rs` compares both with the table. Why the first node of `exports.map` is a dummy stands there.

use std::arch::{global_asm, naked_asm};
use std::ffi::c_void;

use super::hooks;
use crate::api::Function;
use crate::api::table::{for_each_function, with_hip_versions, with_runtime_versions};

use crate::real::slot::{self, CLAIMABLE, Slot, UNVERSIONED, slots};

/// The room a trampoline takes.
const STRIDE: usize = 64;

/// The routes into one function.
#[derive(Clone, Copy)]
pub(crate) struct Entrance {
    /// Where each of them leads.
    pub(crate) slots: &'static [Slot],
    /// The first trampoline; the others follow, as far as `routes!` lays them out.
    trampolines: *const u8,
    /// The exported function without a version.
    export: *const u8,
}

impl Entrance {
    /// The code that enters by the slot at `position`.
    pub(crate) fn trampoline(self, position: usize) -> *mut c_void {
        let code = match position {
            UNVERSIONED => self.export,
            _ => self.trampolines.wrapping_add(position * STRIDE),
        };
        code.cast_mut().cast()
    }
}

/// A trampoline's instructions; `p2p_offset` is that of its slot.
///
/// They hand the hook its last parameter, an [`Arrival`](crate::call::Arrival), in the registers in which the ABI passes
/// it: the vector registers, since every other argument is an integer or a pointer. r10 is nobody's. So nothing is
/// stored that a signal handler with calls of its own could overwrite.
///
/// Tools that patch code (UCX, Dobby, Frida) replace the first 5 to 16 bytes of a function by a jump, and run what was
/// there elsewhere. So the first 20 bytes are instructions that each of them can move and that change nothing: rax
/// carries no argument.
macro_rules! trampoline {
    () => {
        ".rept 4
         mov eax, 0
         .endr
         lea r10, [rip + {slots} + p2p_offset]
         movq xmm0, r10
         movq xmm1, rsp
         jmp {hook}"
    };
}

/// The routes of one function, in the order of its slots: those that look-ups claim, then its exports.
macro_rules! routes {
    ($symbol:ident $($at:literal $name:literal)*) => {
        global_asm!(
            ".macro p2p_route",
            ".p2align 6, 0xcc",
            trampoline!(),
            ".set p2p_offset, p2p_offset + {slot_size}",
            ".endm",
            concat!(".section .text.p2p_", stringify!($symbol), ",\"ax\",@progbits"),
            ".p2align 6, 0xcc",
            concat!(".globl p2p_", stringify!($symbol)),
            concat!(".hidden p2p_", stringify!($symbol)),
            concat!(".type p2p_", stringify!($symbol), ", @function"),
            concat!("p2p_", stringify!($symbol), ":"),
            // A trampoline leaves the stack as it is, so one entry tells an unwinder about all of them.
            ".cfi_startproc",
            ".set p2p_offset, 0",
            ".rept {claimable}",
            "p2p_route",
            ".endr",
            concat!(".size p2p_", stringify!($symbol), ", . - p2p_", stringify!($symbol)),
            $(
                ".p2align 6, 0xcc",
                concat!(".globl p2p_", stringify!($symbol), "_", $name),
                concat!(".type p2p_", stringify!($symbol), "_", $name, ", @function"),
                concat!("p2p_", stringify!($symbol), "_", $name, ":"),
                "p2p_route",
                concat!(".size p2p_", stringify!($symbol), "_", $name, ", . - p2p_", stringify!($symbol), "_", $name),
                concat!(".symver p2p_", stringify!($symbol), "_", $name, ", ", stringify!($symbol), $at, $name),
            )*
            ".cfi_endproc",
            ".purgem p2p_route",
            ".text",
            claimable = const CLAIMABLE,
            slots = sym slots::$symbol,
            slot_size = const size_of::<Slot>(),
            hook = sym hooks::$symbol,
        );
    };
}

#[cfg(not(test))]
macro_rules! versioned_routes {
    ($symbol:ident $($version:literal)*) => {
        routes!($symbol "@@" "P2PSHIM" $("@" $version)*);
    };
}

/// A test program must not export what it is about to look up.
#[cfg(test)]
macro_rules! versioned_routes {
    ($symbol:ident $($version:literal)*) => {
        routes!($symbol);
    };
}

/// A function's trampolines and exported names.
macro_rules! exports {
    (runtime $symbol:ident) => {
        with_runtime_versions!(versioned_routes $symbol);
    };
    (hip $symbol:ident) => {
        with_hip_versions!(versioned_routes $symbol);
    };
    (nvml $symbol:ident) => {
        exports!(driver $symbol);
    };
    // Without a version there is nothing to assign: the name of a Rust function is exported as it is.
    (driver $symbol:ident) => {
        routes!($symbol);

        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        #[allow(non_snake_case, reason = "the vendor's spelling")]
        unsafe extern "C" fn $symbol() {
            naked_asm!(
                // A name that nobody else can define.
                concat!(".globl p2p_export_", stringify!($symbol)),
                concat!(".hidden p2p_export_", stringify!($symbol)),
                concat!("p2p_export_", stringify!($symbol), ":"),
                ".cfi_startproc",
                ".set p2p_offset, {offset}",
                trampoline!(),
                ".cfi_endproc",
                offset = const UNVERSIONED * size_of::<Slot>(),
                slots = sym slots::$symbol,
                hook = sym hooks::$symbol,
            )
        }
    };
}

/// Where the export without a version begins. By its hidden name: under the other, libraries in front of us may have a
/// function of theirs, and tools may have changed our table of addresses.
macro_rules! export {
    (driver $symbol:ident $trampolines:ident) => {{
        #[cfg(not(test))]
        let export = {
            unsafe extern "C" {
                #[link_name = concat!("p2p_export_", stringify!($symbol))]
                static EXPORT: u8;
            }
            &raw const EXPORT
        };
        // Nothing else keeps it in a program that exports nothing.
        #[cfg(test)]
        let export = $symbol as *const u8;
        export
    }};
    (nvml $symbol:ident $trampolines:ident) => {
        export!(driver $symbol $trampolines)
    };
    ($layer:ident $symbol:ident $trampolines:ident) => {
        $trampolines.wrapping_add(UNVERSIONED * STRIDE)
    };
}

macro_rules! define_entrances {
    ($(
        $effect:ident $(($($detail:tt),*))? $layer:ident $since:literal $symbol:ident($($argument:ident: $type:ident),*);
    )*) => {
        $( exports!($layer $symbol); )*

        /// The routes into a function.
        pub(crate) fn entrance(function: Function) -> Entrance {
            match function {
                $(Function::$symbol => {
                    unsafe extern "C" {
                        #[link_name = concat!("p2p_", stringify!($symbol))]
                        static TRAMPOLINES: u8;
                    }
                    let trampolines = &raw const TRAMPOLINES;
                    Entrance { slots: slot::of(function), trampolines, export: export!($layer $symbol trampolines) }
                }),*
            }
        }
    };
}

for_each_function!(define_entrances);
