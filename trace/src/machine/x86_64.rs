//! x86-64.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, _MM_HINT_ET0, _mm_prefetch, _rdtsc};

/// The processor's time-stamp counter.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has it.
    unsafe { _rdtsc() }
}

/// Whether the counter runs at one speed, never stops, and the system relies on it too.
pub(crate) fn has_steady_ticks() -> bool {
    const INVARIANT: u32 = 1 << 8;
    let has_power_leaf = __cpuid(0x8000_0000).eax >= 0x8000_0007;
    let is_invariant = has_power_leaf && __cpuid(0x8000_0007).edx & INVARIANT != 0;
    let source = std::fs::read("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    is_invariant && source.is_ok_and(|source| source.trim_ascii() == b"tsc")
}

/// How many ticks the counter has in a second: nothing says that.
pub(crate) fn ticks_per_second() -> Option<u64> {
    None
}

/// Adds to a word of this thread in one instruction, which a signal handler comes before or after; other threads may come in between.
/// Returns the word as it was.
///
/// # Safety
/// The word may be written, and no other thread writes it.
#[inline(always)]
pub(crate) unsafe fn add_unlocked(word: *mut u64, mut add: u64) -> u64 {
    // SAFETY: changes the word only.
    unsafe {
        asm!("xadd qword ptr [{word}], {add}", word = in(reg) word, add = inout(reg) add, options(nostack));
    }
    add
}

/// Has the processor fetch the memory at an address, which it is going to write to.
#[inline(always)]
pub(crate) fn prefetch_to_write(address: *const i8) {
    // SAFETY: a hint, for any address.
    unsafe { _mm_prefetch::<_MM_HINT_ET0>(address) };
}
