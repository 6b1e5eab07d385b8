//! aarch64, with the procedure call standard of Arm (AAPCS64).

use std::arch::asm;
use std::ffi::{CStr, c_void};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// The C library's first version here.
pub(crate) const FIRST_GLIBC: &CStr = c"GLIBC_2.17";

/// The largest page that Linux has here, but for those that one asks for: kernels have 4, 16 or 64 KiB.
pub(crate) const PAGE: usize = 65536;

/// The alignment of a thread's block: the C library's for its own. It cannot load a library later that needs more.
pub(crate) const THREAD_ALIGN: usize = 16;

/// Pages that have nothing but this.
#[repr(C, align(65536))]
pub(crate) struct Pages<T>(pub(crate) T);

/// The room a trampoline takes.
pub(crate) const STRIDE: usize = 64;

/// A trampoline adds this to the arguments: three addresses, as the bits of three numbers. The ABI passes such a struct in
/// three vector registers, behind integers and pointers of any number.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Arrival {
    slot: f64,
    stack: f64,
    link: f64,
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
        Entry { stack: self.stack.to_bits() as usize, link: self.link.to_bits() as usize }
    }
}

/// How a call was entered: with which stack pointer and link register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    stack: usize,
    link: usize,
}

impl Entry {
    #[cfg(test)]
    pub(crate) fn with(stack: usize) -> Self {
        Self { stack, link: 0 }
    }

    /// The stack pointer.
    #[inline(always)]
    pub(crate) fn stack(self) -> usize {
        self.stack
    }

    /// Where the frame of the called function ends, as tables for unwinding count it.
    pub(crate) fn end_of_frame(stack: usize) -> usize {
        stack
    }

    /// Where the program goes on after the call.
    ///
    /// # Safety
    /// None here: on other machines the hook has not returned.
    #[inline(always)]
    pub(crate) unsafe fn return_address(self) -> *const c_void {
        self.link as *const c_void
    }

    /// A parameter that the caller has passed on its stack, by its place among integers and pointers, from 0.
    ///
    /// # Safety
    /// The function has so many parameters, and the hook has not returned.
    #[inline(always)]
    pub(crate) unsafe fn parameter(self, place: usize) -> usize {
        const IN_REGISTERS: usize = 8;
        // SAFETY: the ABI has them from the stack pointer on.
        unsafe { *(self.stack as *const usize).add(place - IN_REGISTERS) }
    }
}

/// An entry that a signal handler may read between any two instructions.
pub(crate) struct AtomicEntry(AtomicUsize, AtomicUsize);

impl AtomicEntry {
    #[inline(always)]
    pub(crate) fn load(&self) -> Entry {
        Entry { stack: self.0.load(Relaxed), link: self.1.load(Relaxed) }
    }

    #[inline(always)]
    pub(crate) fn store(&self, entry: Entry) {
        self.0.store(entry.stack, Relaxed);
        self.1.store(entry.link, Relaxed);
    }
}

/// The address of the calling thread's block, which `thread.s` lays out.
#[inline(always)]
pub(crate) fn thread_block() -> *const c_void {
    let block: *const c_void;
    // SAFETY: reads the thread's own base address and the constant offset of p2p_thread from it.
    unsafe {
        asm!(
            "adrp {offset}, :gottprel:p2p_thread",
            "ldr {offset}, [{offset}, :gottprel_lo12:p2p_thread]",
            "mrs {block}, tpidr_el0",
            "add {block}, {block}, {offset}",
            offset = out(reg) _,
            block = lateout(reg) block,
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    block
}

/// A return address as it was before it was signed: programs built with `-mbranch-protection` sign those that they store.
pub(crate) fn unsigned(address: usize) -> usize {
    let mut plain = address;
    // SAFETY: changes x30 only. Processors without signatures take the instruction (xpaclri) for none.
    unsafe {
        asm!("mov x30, {plain}", "hint 7", "mov {plain}, x30", plain = inout(reg) plain, out("x30") _, options(pure, nomem, nostack, preserves_flags));
    }
    plain
}

/// The contents of the registers that a function keeps for its caller, and where it is: by their numbers in DWARF.
pub(crate) type Registers = [Option<usize>; 32];

/// The DWARF numbers of the stack pointer, and of the place to return to.
pub(crate) const STACK: u16 = 31;
pub(crate) const RETURN: u16 = 30;

/// The registers of the calling function, which must not return before they are used.
#[inline(always)]
pub(crate) fn registers() -> Registers {
    const FIRST: usize = 19;
    let mut kept = [0usize; 13];
    // SAFETY: writes to `kept` only.
    unsafe {
        asm!(
            "stp x19, x20, [{kept}]",
            "stp x21, x22, [{kept}, 16]",
            "stp x23, x24, [{kept}, 32]",
            "stp x25, x26, [{kept}, 48]",
            "stp x27, x28, [{kept}, 64]",
            "adr {here}, .",
            "stp x29, {here}, [{kept}, 80]",
            "mov {here}, sp",
            "str {here}, [{kept}, 96]",
            kept = in(reg) kept.as_mut_ptr(),
            here = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
    let mut registers = [None; 32];
    for (register, value) in registers.iter_mut().skip(FIRST).zip(kept) {
        *register = Some(value);
    }
    registers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On processors without signatures the address is not changed at all.
    #[test]
    fn unsigned_of_a_signed_address_is_the_address() {
        let address = registers as *const () as usize;
        let mut signed = address;
        // SAFETY: changes the two registers only: pacia1716.
        unsafe { asm!("hint 8", inout("x17") signed, in("x16") 4096, options(nomem, nostack, preserves_flags)) };
        assert_eq!([signed, address].map(unsigned), [address; 2]);
    }
}
