//! The exported symbols: one trampoline for each function and route in.
//!
//! A trampoline says who called (how the call was entered) and by which route (its slot) in registers that carry no
//! argument, leaves every argument where it is, and jumps to the function's hook. So hooks keep the real signatures,
//! whatever their number of arguments.
//!
//! Functions of the runtime and of HIP are exported under each symbol version that a program may be bound to, and as
//! default under P2PSHIM for references without a version: exported without any version, one symbol
//! would capture the calls of every runtime in the process. Functions of the driver and of NVML have no versions.
//!
//! The ABI passes a struct of two or three floating-point numbers in vector registers, behind integers and pointers of any number. Therefore no
//! row may have a floating-point parameter. The entry gives the return address, from which the trace names the caller.
//!
//! A trampoline names its hook, and the hooks of look-ups hand out trampolines: that circle is in the matter.
//!
//! The build writes them into `target/*/build/p2pshim-*/out/trampolines.rs`, with the instructions of `src/machine/`, and `exports.map` beside it.
//! In some arrangements a versioned symbol gets lost in a debug build and not in a release build, or the other way round:
//! `tests/it/exports.rs` compares both with the table.

use std::arch::{global_asm, naked_asm};
use std::ffi::c_void;

use crate::api::Function;
use crate::machine::STRIDE;
use crate::real::slot::{CLAIMABLE, Slot, UNVERSIONED, slots};

/// The routes into one function.
#[derive(Clone, Copy)]
pub(crate) struct Entrance {
    /// Where each of them leads.
    pub(crate) slots: &'static [Slot],
    /// The first trampoline; the others follow, in the order of the slots.
    trampolines: *const u8,
    /// The exported function without a version.
    export: *const u8,
}

impl Entrance {
    /// The export without a version is one of the trampolines, unless it stands apart: by its hidden name then, since under the other, libraries in
    /// front of us may have a function of theirs, and tools may have changed our table of addresses.
    fn new(slots: &'static [Slot], trampolines: *const u8, export: Option<*const u8>) -> Self {
        Self { slots, trampolines, export: export.unwrap_or_else(|| trampolines.wrapping_add(UNVERSIONED * STRIDE)) }
    }

    /// The code that enters by the slot at `position`.
    pub(crate) fn trampoline(self, position: usize) -> *mut c_void {
        let code = match position {
            UNVERSIONED => self.export,
            _ => self.trampolines.wrapping_add(position * STRIDE),
        };
        code.cast_mut().cast()
    }
}

include!(concat!(env!("OUT_DIR"), "/trampolines.rs"));
