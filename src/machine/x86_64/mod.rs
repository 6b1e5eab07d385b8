//! x86-64, with the System V ABI.

use std::arch::asm;
use std::ffi::{CStr, c_void};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// The C library's first version here.
pub(crate) const FIRST_GLIBC: &CStr = c"GLIBC_2.2.5";

/// The largest page that Linux has here, but for those that one asks for.
pub(crate) const PAGE: usize = 4096;

/// The alignment of a thread's block: the C library's for its own. It cannot load a library later that needs more.
pub(crate) const THREAD_ALIGN: usize = 64;

/// Pages that have nothing but this.
#[repr(C, align(4096))]
pub(crate) struct Pages<T>(pub(crate) T);

/// The room a trampoline takes.
pub(crate) const STRIDE: usize = 64;

/// A trampoline adds this to the arguments: two addresses, as the bits of two numbers. The ABI passes such a struct in
/// two vector registers, behind integers and pointers of any number.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Arrival {
    slot: f64,
    stack: f64,
}

impl Arrival {
    /// The address of the slot that the call came by.
    #[inline(always)]
    pub(crate) fn slot(self) -> usize {
        self.slot.to_bits() as usize
    }

    /// How the call was entered.
    #[inline(always)]
    pub(crate) fn entry(self) -> Entry {
        Entry { stack: self.stack.to_bits() as usize }
    }
}

/// How a call was entered: with which stack pointer, which points to the return address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    stack: usize,
}

impl Entry {
    #[cfg(test)]
    pub(crate) fn with(stack: usize) -> Self {
        Self { stack }
    }

    /// The stack pointer.
    #[inline(always)]
    pub(crate) fn stack(self) -> usize {
        self.stack
    }

    /// Where the frame of the called function ends, as tables for unwinding count it.
    pub(crate) fn end_of_frame(stack: usize) -> usize {
        stack.wrapping_add(size_of::<usize>())
    }

    /// Where the program goes on after the call.
    ///
    /// # Safety
    /// The hook has not returned.
    #[inline(always)]
    pub(crate) unsafe fn return_address(self) -> *const c_void {
        // SAFETY: it stays there until the hook returns.
        unsafe { *(self.stack as *const *const c_void) }
    }

    /// A parameter that the caller has passed on its stack, by its place among integers and pointers, from 0.
    ///
    /// # Safety
    /// The function has so many parameters, and the hook has not returned.
    #[inline(always)]
    pub(crate) unsafe fn parameter(self, place: usize) -> usize {
        const IN_REGISTERS: usize = 6;
        // SAFETY: the ABI has them above the return address.
        unsafe { *(self.stack as *const usize).add(1 + place - IN_REGISTERS) }
    }
}

/// An entry that a signal handler may read between any two instructions.
#[repr(transparent)]
pub(crate) struct AtomicEntry(AtomicUsize);

impl AtomicEntry {
    #[inline(always)]
    pub(crate) fn load(&self) -> Entry {
        Entry { stack: self.0.load(Relaxed) }
    }

    #[inline(always)]
    pub(crate) fn store(&self, entry: Entry) {
        self.0.store(entry.stack, Relaxed);
    }
}

/// The address of the calling thread's block, which `thread.s` lays out.
#[inline(always)]
pub(crate) fn thread_block() -> *const c_void {
    let block: *const c_void;
    // SAFETY: reads the thread's own base address and the constant offset of p2p_thread from it.
    unsafe {
        asm!(
            "mov {block}, qword ptr [rip + p2p_thread@GOTTPOFF]",
            "add {block}, qword ptr fs:[0]",
            block = out(reg) block,
            options(pure, readonly, nostack),
        );
    }
    block
}

/// The contents of the registers that a function keeps for its caller, and where it is: by their numbers in DWARF.
pub(crate) type Registers = [Option<usize>; 17];

/// A return address as it was before it was signed: here none is.
pub(crate) fn unsigned(address: usize) -> usize {
    address
}

/// The DWARF numbers of the stack pointer, and of the place to return to.
pub(crate) const STACK: u16 = 7;
pub(crate) const RETURN: u16 = 16;

/// The registers of the calling function, which must not return before they are used.
#[inline(always)]
pub(crate) fn registers() -> Registers {
    let mut kept = [0usize; 8];
    // SAFETY: writes to `kept` only.
    unsafe {
        asm!(
            "mov [{kept}], rbx",
            "mov [{kept} + 8], rbp",
            "mov [{kept} + 16], rsp",
            "mov [{kept} + 24], r12",
            "mov [{kept} + 32], r13",
            "mov [{kept} + 40], r14",
            "mov [{kept} + 48], r15",
            "lea {here}, [rip]",
            "mov [{kept} + 56], {here}",
            kept = in(reg) kept.as_mut_ptr(),
            here = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
    let mut registers = [None; 17];
    for (number, value) in [3, 6, 7, 12, 13, 14, 15, 16].into_iter().zip(kept) {
        if let Some(register) = registers.get_mut(number) {
            *register = Some(value);
        }
    }
    registers
}
