//! The clock of a file, and how it compares with those of the system.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;

use super::Writer;
use crate::layout::{CALIBRATIONS, Clock, header};
use crate::machine;

/// After so many ticks the clocks are compared for the second time, then after twice as many, and so on.
pub(super) const FIRST_CALIBRATION: u64 = 1 << 14;
const LAST_CALIBRATION: u64 = 1 << 30;

impl Writer {
    /// The file's clock.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        match self.clock {
            Clock::TimeStampCounter => machine::ticks(),
            Clock::Monotonic => nanos(libc::CLOCK_MONOTONIC),
        }
    }

    /// How many ticks the file's clock has in a second, if the machine says so.
    pub(super) fn clock_rate(&self) -> Option<u64> {
        machine::ticks_per_second().filter(|_| self.clock == Clock::TimeStampCounter)
    }

    /// How many of the file's ticks so many nanoseconds are, as far as is known by now.
    pub fn ticks(&self, nanos: u64) -> u64 {
        if let Some(rate) = self.clock_rate() {
            return (u128::from(nanos) * u128::from(rate) / 1_000_000_000) as u64;
        }
        let at = |slot: usize| {
            let at = header::CALIBRATIONS + slot * 24;
            let (ticks, monotonic) = (self.u64_at(at).load(Acquire), self.u64_at(at + 8).load(Relaxed));
            fence(Acquire);
            // Another thread may be writing it anew.
            if self.u64_at(at).load(Relaxed) == ticks { (ticks, monotonic) } else { (0, 0) }
        };
        let (first, last) = (at(0), (1..CALIBRATIONS).map(at).max().unwrap_or_default());
        let (ticks, elapsed) = (last.0.saturating_sub(first.0), last.1.saturating_sub(first.1));
        match (self.clock, elapsed) {
            (Clock::Monotonic, _) | (_, 0) => nanos,
            _ => (nanos as f64 * (ticks as f64 / elapsed as f64)) as u64,
        }
    }

    /// Whether it is time to compare the clocks.
    #[inline(always)]
    pub fn is_calibration_due(&self, now: u64) -> bool {
        now >= self.calibration_due.load(Relaxed)
    }

    /// Compares the clocks, if it is time to.
    pub fn calibrate_if_due(&self, now: u64) {
        if self.is_calibration_due(now) {
            self.calibrate(now);
        }
    }

    #[cold]
    pub(super) fn calibrate(&self, now: u64) {
        let Ok(mut calibration) = self.calibration.try_lock() else { return };
        let (slot, wait) = *calibration;
        // The quickest of a few, in case we are interrupted between the clocks.
        let measured = (0..4).map(|_| {
            let before = self.now();
            let (monotonic, real) = (nanos(libc::CLOCK_MONOTONIC), nanos(libc::CLOCK_REALTIME));
            let after = self.now();
            (after.wrapping_sub(before), before.midpoint(after), monotonic, real)
        });
        let Some((_, ticks, monotonic, real)) = measured.min_by_key(|&(took, ..)| took) else { return };
        let at = header::CALIBRATIONS + slot * 24;
        self.u64_at(at).store(0, Relaxed);
        // Whoever finds any of the new words finds 0, or the ticks behind them.
        fence(Release);
        self.u64_at(at + 8).store(monotonic, Relaxed);
        self.u64_at(at + 16).store(real, Relaxed);
        self.u64_at(at).store(ticks, Release);
        // The last two take turns.
        let following = if slot + 1 == CALIBRATIONS { slot - 1 } else { slot + 1 };
        *calibration = (following, (wait * 2).min(LAST_CALIBRATION));
        self.calibration_due.store(now.saturating_add(wait), Relaxed);
    }
}

/// The processor's counter, if it can be relied on.
pub(super) fn clock() -> Clock {
    if machine::has_steady_ticks() { Clock::TimeStampCounter } else { Clock::Monotonic }
}

fn nanos(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes the time there.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
