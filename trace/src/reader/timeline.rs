//! The times of a file's ticks.

use super::u64_at;
use crate::layout::{CALIBRATIONS, Calibration, Clock, header};

/// Turns ticks into time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeline {
    origin: Calibration,
    nanos_per_tick: f64,
    /// How much later `CLOCK_REALTIME` was than `CLOCK_MONOTONIC`, at the end.
    real_ahead: i128,
}

impl Timeline {
    /// The ticks when the file was begun.
    pub fn origin(&self) -> u64 {
        self.origin.ticks
    }

    /// Nanoseconds on `CLOCK_MONOTONIC`.
    pub fn monotonic(&self, ticks: u64) -> u64 {
        let since = i128::from(ticks) - i128::from(self.origin.ticks);
        let nanos = (since as f64 * self.nanos_per_tick).round() as i128;
        clamp(i128::from(self.origin.monotonic).saturating_add(nanos))
    }

    /// Nanoseconds since 1970.
    pub fn real(&self, ticks: u64) -> u64 {
        clamp(i128::from(self.monotonic(ticks)).saturating_add(self.real_ahead))
    }

    /// How long so many ticks are, in nanoseconds.
    pub fn nanos(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.nanos_per_tick).round() as u64
    }

    /// How long so many nanoseconds are, in ticks.
    pub fn ticks(&self, nanos: u64) -> u64 {
        (nanos as f64 / self.nanos_per_tick).round() as u64
    }

    /// `per_second` is how many ticks the machine says that the clock has; 0 if it does not. Firmware says that, and may be wrong: over a while the
    /// comparisons of clocks say it better.
    fn new(clock: Clock, per_second: u64, calibrations: &[Calibration]) -> Option<Self> {
        let origin = *calibrations.first()?;
        let last = *calibrations.last()?;
        let ahead = i128::from(last.real) - i128::from(last.monotonic);
        /// In nanoseconds: a comparison is some microseconds wrong at most.
        const WHILE: u64 = 100_000_000;
        let is_precise = last.monotonic.saturating_sub(origin.monotonic) >= WHILE;
        let rate = (last.monotonic.saturating_sub(origin.monotonic)) as f64 / (last.ticks - origin.ticks) as f64;
        // Time-stamp counters have between 0.5 and 10 GHz; counters of which the machine knows it, 1 MHz at least.
        let nanos_per_tick = match clock {
            Clock::Monotonic => 1.0,
            Clock::TimeStampCounter if (1_000_000..10_000_000_000).contains(&per_second) => {
                if is_precise && (0.1..1000.0).contains(&rate) { rate } else { 1e9 / per_second as f64 }
            }
            Clock::TimeStampCounter if (0.1..2.0).contains(&rate) => rate,
            Clock::TimeStampCounter => return None,
        };
        Some(Self { origin, nanos_per_tick, real_ahead: ahead })
    }
}

fn clamp(nanos: i128) -> u64 {
    u64::try_from(nanos.max(0)).unwrap_or(u64::MAX)
}

/// The problem of a trace whose times are not known.
pub const GUESSED_TIMES: &str = "how fast its clock runs is not known; times are guesses";

/// The timeline that a header's calibrations make; if they make none, a guess, and a problem.
pub(super) fn timeline(clock: Clock, head: &[u8], problems: &mut Vec<String>) -> Timeline {
    let mut calibrations: Vec<Calibration> = (0..CALIBRATIONS)
        .map(|slot| header::CALIBRATIONS + slot * 24)
        .map(|at| Calibration { ticks: u64_at(head, at), monotonic: u64_at(head, at + 8), real: u64_at(head, at + 16) })
        .filter(|calibration| calibration.ticks != 0)
        .collect();
    calibrations.sort_by_key(|calibration| calibration.ticks);
    Timeline::new(clock, u64_at(head, header::TICKS_PER_SECOND), &calibrations).unwrap_or_else(|| {
        problems.push(GUESSED_TIMES.to_owned());
        let unknown = Calibration { ticks: 0, monotonic: 0, real: 0 };
        let origin = calibrations.first().copied().unwrap_or(unknown);
        let real_ahead = i128::from(origin.real) - i128::from(origin.monotonic);
        Timeline { origin, nanos_per_tick: 0.4, real_ahead }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_of_firmware_holds_until_the_clocks_were_compared_for_a_while() {
        // 62.5 MHz, of which firmware says that they are 50.
        let after = |nanos: u64| Calibration { ticks: 1 + nanos / 16, monotonic: nanos, real: nanos };
        for (elapsed, expected) in [(1_600_000, 20), (99_200_000, 20), (112_000_000, 16), (160_000_000_000, 16)] {
            let timeline = Timeline::new(Clock::TimeStampCounter, 50_000_000, &[after(0), after(elapsed)]).unwrap();
            assert_eq!(timeline.nanos(1_000_000), expected * 1_000_000, "{elapsed}");
        }
        // A rate that no counter has is of a damaged file.
        let damaged = [after(0), Calibration { ticks: 2, ..after(200_000_000) }];
        assert_eq!(Timeline::new(Clock::TimeStampCounter, 62_500_000, &damaged).unwrap().nanos(1), 16);
    }
}
