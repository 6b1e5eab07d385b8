//! The stager of each pair's copies with `P2PSHIM_STAGING=auto`: the one that the doctor has measured to be faster, else the driver.

use std::fmt::Write as _;

use p2pshim_host::stagers::Stagers;
use parking_lot::Mutex;

use crate::api::abi::CUDA_MEMCPY3D_PEER;
use crate::model::Traffic;
use crate::os;
use crate::policy::driver::Driver;
use crate::record::log;

/// Rows that are shorter were not measured.
const LEAST_ROW: usize = 4 << 10;

/// The measurements of each pair that has copied; none of one whose copies are the driver's.
pub(super) struct Measured(Mutex<Vec<([u8; 2], Stagers)>>);

impl Measured {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Whether a copy is to be staged here while so many links are busy.
    pub(super) fn are_ours(
        &self,
        driver: &impl Driver,
        (copy, traffic): (&CUDA_MEMCPY3D_PEER, &Traffic),
        busy: usize,
    ) -> bool {
        let is_measured = copy.Height == 1 && copy.Depth == 1 || copy.WidthInBytes >= LEAST_ROW;
        is_measured && self.of(driver, traffic).are_ours(traffic.bytes, busy > 1)
    }

    fn of(&self, driver: &impl Driver, traffic: &Traffic) -> Stagers {
        let pair @ [src, dst] = [traffic.src, traffic.dst];
        let known = self.0.lock().iter().find(|(known, _)| *known == pair).map(|(_, stagers)| *stagers);
        known.unwrap_or_else(|| {
            // Files and messages take stack.
            if !os::has_room() {
                return Stagers::default();
            }
            let verdict = driver.verdict(src.into(), dst.into());
            let stagers = verdict.map(|verdict| verdict.stagers).unwrap_or_default();
            if self.set(pair, stagers) {
                say(traffic, &stagers);
            }
            stagers
        })
    }

    /// Notes the measurement of a pair; whether that is new.
    fn set(&self, pair: [u8; 2], stagers: Stagers) -> bool {
        let mut all = self.0.lock();
        match all.iter_mut().find(|(known, _)| *known == pair) {
            Some((_, known)) => std::mem::replace(known, stagers) != stagers,
            None => {
                all.push((pair, stagers));
                true
            }
        }
    }

    /// Has the driver stage all copies of a pair: one that was staged here did not arrive. Whether that is new.
    pub(super) fn leave_to_driver(&self, pair: [u8; 2]) -> bool {
        self.set(pair, Stagers::default())
    }
}

/// Says who stages a pair's copies.
fn say(traffic: &Traffic, stagers: &Stagers) {
    let mut what = String::from("large copies through the host: ");
    let _ = match stagers.ours() {
        _ if stagers.is_empty() => {
            write!(what, "the driver stages them, as p2pshim doctor has not measured which is faster")
        }
        ours if ours.is_empty() => write!(what, "the driver stages them, as p2pshim doctor has measured"),
        ours => write!(what, "p2pshim stages those of {ours}, as p2pshim doctor has measured"),
    };
    log::pair_info(traffic.src, traffic.dst, format_args!("{what}"));
}

#[cfg(test)]
mod tests {
    use p2pshim_host::stagers::Rates;

    use super::*;
    use crate::model::{Path, Why};
    use crate::policy::access::fake::Fake;
    use crate::policy::staging::linear;

    #[test]
    fn copies_are_ours_where_that_was_measured_and_none_was_lost() {
        let (measured, driver) = (Measured::new(), Fake::new());
        let traffic = Traffic::new([0, 1], Path::Staged(Why::NoPath), 16 << 20);
        let row = linear(0, 0, 16 << 20);
        let is_ours = |copy: &CUDA_MEMCPY3D_PEER, busy| measured.are_ours(&driver, (copy, &traffic), busy);
        assert!(!is_ours(&row, 1), "without a verdict");
        let mut stagers = Stagers::default();
        stagers.set(1, false, Rates { driver: 38.0, shim: 50.0 });
        assert!(measured.set([0, 1], stagers) && !measured.set([0, 1], stagers));
        assert!(is_ours(&row, 1) && !is_ours(&row, 2), "that was not measured");
        let rows = |width| CUDA_MEMCPY3D_PEER { WidthInBytes: width, Height: (16 << 20) / width, ..row };
        assert!(is_ours(&rows(LEAST_ROW), 1) && !is_ours(&rows(LEAST_ROW / 2), 1));
        assert!(measured.leave_to_driver([0, 1]) && !measured.leave_to_driver([0, 1]));
        assert!(!is_ours(&row, 1));
    }
}
