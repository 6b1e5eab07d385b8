//! Trials of who stages copies faster, the driver or the shim: the first of each [class](CopyClass) are made by both in turn and timed, and the rest by
//! the faster of the two. The GPUs tell, since what is fast on one machine need not be on another.

use parking_lot::Mutex;

use crate::api::abi::CUDA_MEMCPY3D_PEER;
use crate::model::Traffic;

/// How many copies of each are timed. The quickest of them counts: others may have waited for what else the GPUs do.
const EACH: u8 = 3;

/// Copies of which it is found out together: of a pair, about as large, of rows about as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CopyClass {
    src: u8,
    dst: u8,
    size: u8,
    rows: u8,
}

impl CopyClass {
    pub(crate) fn of(traffic: &Traffic, copy: &CUDA_MEMCPY3D_PEER) -> Self {
        let size = match traffic.bytes >> 20 {
            0..16 => 0,
            16..64 => 1,
            64..256 => 2,
            _ => 3,
        };
        let is_one_row = copy.Height == 1 && copy.Depth == 1;
        let rows = match copy.WidthInBytes {
            _ if is_one_row => 0,
            0..256 => 1,
            256..4096 => 2,
            _ => 3,
        };
        Self { src: traffic.src, dst: traffic.dst, size, rows }
    }

    /// The name of the class, for people.
    pub(crate) fn name(self) -> String {
        let size = match self.size {
            0 => "8 to 16 MiB",
            1 => "16 to 64 MiB",
            2 => "64 to 256 MiB",
            _ => "256 MiB and more",
        };
        match self.rows {
            0 => size.to_owned(),
            1 => format!("{size} in rows of less than 256 bytes"),
            2 => format!("{size} in rows of 256 bytes to 4 KiB"),
            _ => format!("{size} in rows of 4 KiB and more"),
        }
    }
}

/// The stager of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Driver,
    Shim,
}

/// The trial of a class of copies.
struct Trial {
    class: CopyClass,
    /// How many were begun by the driver and by the shim, how many were timed, and the most bytes that either copied in a microsecond.
    begun: [u8; 2],
    timed: [u8; 2],
    best: [f64; 2],
}

impl Trial {
    /// The faster of the two, if that is known. If both are alike, the shim's call returns sooner.
    fn faster(&self) -> Option<By> {
        let [driver, shim] = self.best;
        (self.timed == [EACH; 2]).then_some(if shim >= driver { By::Shim } else { By::Driver })
    }
}

/// The outcome of a trial: the faster of the two, and how many GB/s the driver's copies and the shim's had at best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) faster: By,
    pub(crate) best: [f64; 2],
}

struct State {
    trials: Vec<Trial>,
    /// Pairs whose copies the driver stages, whoever is faster.
    left: Vec<[u8; 2]>,
}

/// The trials of a process.
pub(crate) struct Trials(Mutex<State>);

impl Trials {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(State { trials: Vec::new(), left: Vec::new() }))
    }

    /// The stager of copies of a class, if that is known.
    pub(crate) fn known(&self, class: CopyClass) -> Option<By> {
        let State { trials, left } = &*self.0.lock();
        if left.contains(&[class.src, class.dst]) {
            return Some(By::Driver);
        }
        trials.iter().find(|trial| trial.class == class)?.faster()
    }

    /// The stager of the next copy of a class, and whether it is to be timed.
    pub(crate) fn next(&self, class: CopyClass) -> (By, bool) {
        if let Some(by) = self.known(class) {
            return (by, false);
        }
        let trials = &mut self.0.lock().trials;
        if !trials.iter().any(|trial| trial.class == class) {
            trials.push(Trial { class, begun: [0; 2], timed: [0; 2], best: [0.0; 2] });
        }
        let Some(trial) = trials.iter_mut().find(|trial| trial.class == class) else { return (By::Driver, false) };
        let [driver, shim] = &mut trial.begun;
        let (begun, by) = if driver <= shim { (driver, By::Driver) } else { (shim, By::Shim) };
        // As without the shim until it is known.
        if *begun >= EACH {
            return (By::Driver, false);
        }
        *begun += 1;
        (by, true)
    }

    /// A copy that was to be timed was, or could not be. What that decides, if it does.
    pub(crate) fn end(&self, class: CopyClass, by: By, bytes: u64, nanos: Option<u64>) -> Option<Outcome> {
        let trials = &mut self.0.lock().trials;
        let trial = trials.iter_mut().find(|trial| trial.class == class)?;
        let at = usize::from(by == By::Shim);
        let (begun, timed, best) = (trial.begun.get_mut(at)?, trial.timed.get_mut(at)?, trial.best.get_mut(at)?);
        let Some(nanos) = nanos else {
            *begun = begun.saturating_sub(1);
            return None;
        };
        *timed += 1;
        *best = best.max(bytes as f64 / nanos.max(1) as f64);
        trial.faster().map(|faster| Outcome { faster, best: trial.best })
    }

    /// Has the driver stage all copies of a pair: what the shim has staged did not arrive. Whether that is new.
    pub(super) fn leave_to_driver(&self, pair: [u8; 2]) -> bool {
        let left = &mut self.0.lock().left;
        let is_new = !left.contains(&pair);
        if is_new {
            left.push(pair);
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Path, Why};
    use crate::policy::staging::linear;

    fn class(bytes: u64) -> CopyClass {
        let traffic = Traffic::new([0, 1], Path::Staged(Why::NoPath), bytes);
        CopyClass::of(&traffic, &linear(0, 0, bytes as usize))
    }

    /// Copies made in turn, of which the driver's and the shim's take so long: who stages the next.
    fn after(nanos: [u64; 2]) -> (By, bool) {
        let (trials, class) = (Trials::new(), class(8 << 20));
        for turn in 0..6 {
            let (by, is_timed) = trials.next(class);
            assert_eq!((by, is_timed), ([By::Driver, By::Shim][turn % 2], true));
            let took = nanos[usize::from(by == By::Shim)];
            let outcome = trials.end(class, by, 8 << 20, Some(if turn < 2 { 10 * took } else { took }));
            assert_eq!(outcome.is_some(), turn == 5);
        }
        trials.next(class)
    }

    #[test]
    fn faster_of_the_two_stages_what_comes_after() {
        assert_eq!(after([200, 150]), (By::Shim, false));
        assert_eq!(after([150, 200]), (By::Driver, false));
        assert_eq!(after([150, 150]), (By::Shim, false));
    }

    #[test]
    fn driver_stages_until_it_is_known() {
        let (trials, class) = (Trials::new(), class(8 << 20));
        let made: Vec<_> = (0..8).map(|_| trials.next(class)).collect();
        assert_eq!(made.iter().filter(|(_, is_timed)| *is_timed).count(), 6);
        assert_eq!(made[6..], [(By::Driver, false); 2]);
        // One whose context has gone is made up for.
        assert_eq!(trials.end(class, By::Shim, 8 << 20, None), None);
        assert_eq!(trials.next(class), (By::Shim, true));
    }

    #[test]
    fn kinds_have_trials_of_their_own() {
        assert_eq!(class(8 << 20), class((16 << 20) - 1));
        assert_ne!(class(8 << 20), class(16 << 20));
        let traffic = Traffic::new([0, 1], Path::Staged(Why::NoPath), 8 << 20);
        let rows = CUDA_MEMCPY3D_PEER { WidthInBytes: 64, Height: 1 << 17, ..linear(0, 0, 0) };
        assert_ne!(CopyClass::of(&traffic, &rows), class(8 << 20));
        assert_ne!(CopyClass::of(&Traffic { src: 1, dst: 0, ..traffic }, &rows), CopyClass::of(&traffic, &rows));
    }

    #[test]
    fn pair_whose_data_did_not_arrive_is_left_to_the_driver() {
        let (trials, class) = (Trials::new(), class(8 << 20));
        trials.next(class);
        trials.leave_to_driver([1, 0]);
        assert_eq!(trials.next(class), (By::Shim, true));
        trials.leave_to_driver([0, 1]);
        assert_eq!(trials.next(class), (By::Driver, false));
    }
}
