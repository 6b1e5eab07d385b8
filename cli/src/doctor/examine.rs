//! What workers say, made into rows of the table.

use std::ffi::OsString;
use std::time::Duration;

use super::Inventory;
use super::lines::{Finding, Line, Path, Test, Verdict};
use super::report::Row;
use super::supervisor::{Job, Task};
use super::verify::Tests;
use crate::shim;

/// Has a pair verified, if the hardware has a path, and measured, if the tests do that.
pub(super) fn examine(
    inventory: &Inventory,
    pair: [usize; 2],
    timeout: Duration,
    environment: &[(OsString, OsString)],
    tests: Tests,
) -> Row {
    let mut row = Row::new(pair, Verdict::NoPath);
    let Some(uuids) = inventory.uuids(pair) else { return row };
    let outcome = Job { task: Task::Pair(uuids), timeout, environment, tests }.run();
    for line in outcome.lines {
        match line {
            Line::Found(test, finding) => row.set_finding(test, finding),
            Line::Measured(path, measure) => row.set_measure(path, measure),
            _ => {}
        }
    }
    // That a pair without a path could not be measured says nothing of peer access.
    if inventory.has_path(pair) {
        row.verdict = outcome.verdict;
    }
    row.left_behind = outcome.left_behind;
    if row.measure(Path::Staged).is_some() && row.left_behind.is_none() {
        row.by_shim = speed_of_shim(uuids, timeout, environment);
    }
    row
}

/// GB/s of copies of a pair that p2pshim stages, if the library is here.
fn speed_of_shim(uuids: [&str; 2], timeout: Duration, environment: &[(OsString, OsString)]) -> Option<f64> {
    let shim = shim::find(None).ok()?.into_os_string();
    let options = [("P2PSHIM_ACCESS", "off"), ("P2PSHIM_STAGING", "always"), ("P2PSHIM_LOG", "off")];
    let options = options.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let preload = [(OsString::from("LD_PRELOAD"), shim)];
    let environment = [environment, &preload, &options].concat();
    let outcome = Job { task: Task::Pair(uuids), timeout, environment: &environment, tests: Tests::Staged }.run();
    outcome.lines.iter().find_map(|line| match line {
        Line::Measured(Path::Staged, measure) => Some(measure.speed),
        _ => None,
    })
}

/// Has all pairs that are verified copy at once, if there are several, and adds what came out to their rows.
pub(super) fn examine_at_once(
    inventory: &Inventory,
    rows: &mut [Row],
    timeout: Duration,
    environment: &[(OsString, OsString)],
) {
    let mut verified: Vec<&mut Row> = rows.iter_mut().filter(|row| row.verdict == Verdict::Passed).collect();
    let pairs: Vec<[&str; 2]> = verified.iter().filter_map(|row| inventory.uuids(row.pair)).collect();
    if pairs.len() < 2 || pairs.len() != verified.len() {
        return;
    }
    let outcome = Job { task: Task::AllPairs(&pairs), timeout, environment, tests: Tests::Measured }.run();
    for line in outcome.lines {
        match line {
            Line::FoundAtOnce(place, finding) => {
                if let Some(row) = verified.get_mut(place) {
                    row.add(Test::AllPairs, finding);
                }
            }
            Line::MeasuredAtOnce(place, speed) => {
                if let Some(row) = verified.get_mut(place) {
                    row.at_once = Some(speed);
                }
            }
            _ => {}
        }
    }
    if let Some(row) = verified.first_mut() {
        row.left_behind = row.left_behind.or(outcome.left_behind);
    }
    for row in verified.iter_mut().filter(|row| row.finding(Test::AllPairs).is_none()) {
        not_said(row, &outcome.verdict);
    }
}

/// Adds what the end of the worker means for a pair of which it has said nothing.
fn not_said(row: &mut Row, verdict: &Verdict) {
    match verdict {
        // A call of the driver did not return: which pair is to blame is not known.
        Verdict::Failed(why) => {
            row.set_finding(Test::AllPairs, Finding::Hung("it is not known because of which pair".to_owned()));
            row.verdict = Verdict::Unknown(format!("{why}; it is not known because of which pair"));
        }
        Verdict::Unknown(why) => row.add(Test::AllPairs, Finding::Untested(why.clone())),
        Verdict::Passed | Verdict::NoPath => {
            row.add(Test::AllPairs, Finding::Untested("the test process said nothing of it".to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_said_is_no_failure_and_undecided_if_it_hangs() {
        let after = |verdict: Verdict| {
            let mut row = Row::new([0, 1], Verdict::Passed);
            not_said(&mut row, &verdict);
            (row.finding(Test::AllPairs).map(Finding::word), row.verdict.status())
        };
        assert_eq!(after(Verdict::Unknown("too many peers".to_owned())), (Some("untested"), 0));
        assert_eq!(after(Verdict::Passed), (Some("untested"), 0));
        assert_eq!(after(Verdict::Failed("all pairs at once: hung".to_owned())), (Some("hung"), 2));
    }
}
