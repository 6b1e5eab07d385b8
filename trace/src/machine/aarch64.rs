//! aarch64.

use std::arch::asm;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The counter of the generic timer.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    let ticks;
    // SAFETY: Linux lets every program read it.
    unsafe { asm!("mrs {ticks}, cntvct_el0", ticks = out(reg) ticks, options(nomem, nostack, preserves_flags)) };
    ticks
}

/// Whether the counter runs at one speed and never stops: the architecture says so.
pub(crate) fn has_steady_ticks() -> bool {
    true
}

/// How many ticks the counter has in a second.
pub(crate) fn ticks_per_second() -> Option<u64> {
    let rate: u64;
    // SAFETY: as above; it is set when the machine starts.
    unsafe { asm!("mrs {rate}, cntfrq_el0", rate = out(reg) rate, options(nomem, nostack, preserves_flags)) };
    // Its upper half has nothing to do with it.
    Some(rate & u64::from(u32::MAX)).filter(|rate| *rate != 0)
}

/// Adds to a word of this thread so that a signal handler comes before or after; returns the word as it was.
///
/// # Safety
/// The word may be written, and no other thread writes it.
#[inline(always)]
pub(crate) unsafe fn add_unlocked(word: *mut u64, add: u64) -> u64 {
    // SAFETY: the word is there. No instruction does it that is not atomic.
    unsafe { AtomicU64::from_ptr(word).fetch_add(add, Relaxed) }
}

/// Has the processor fetch the memory at an address, which it is going to write to.
#[inline(always)]
pub(crate) fn prefetch_to_write(address: *const i8) {
    // SAFETY: a hint, for any address.
    unsafe { asm!("prfm pstl1keep, [{address}]", address = in(reg) address, options(nomem, nostack, preserves_flags)) };
}
