//! Tests the pairs that are asked for: runs test processes, one after the other, and collects their findings.
//!
//! One process tests all pairs. A pair that hangs there takes its GPUs away from others; those are for the next process. A pair that hung
//! is tested once more, when nothing else is; only then it counts. Speeds are measured while nothing else copies, and again where
//! they decide something.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use p2pshim_host::stagers::{Rates, Stagers};

use super::advice::is_slower;
use super::lines::{Finding, Line, Measure, Path, Task, Test, Verdict};
use super::report::Row;
use super::session::{Session, Settings};
use crate::shim;

/// The first test of a pair that makes no progress is given up after this part of the time that the second has.
pub(super) const PATIENCE: u32 = 4;
/// So many pairs that hang are tested again each alone; of more those that have no GPU in common at the same time.
const ALONE: usize = 4;
/// Less than this part of the speed of its neighbours is measured again.
const DOUBTFUL: f64 = 0.1;

/// Tests pairs, in the process that has listed the GPUs and in others if need be.
pub(super) fn test(pairs: &[[usize; 2]], session: Session<'_>, settings: Settings<'_>) -> Vec<Row> {
    let mut examination = Examination::new(pairs, session, settings);
    examination.test_all();
    examination.end();
    examination.rows
}

/// Tests pairs, measures them, and has all that are right copy at once. Then somebody may look how their links run.
pub(super) fn examine(
    pairs: &[[usize; 2]],
    session: Session<'_>,
    settings: Settings<'_>,
    look: impl FnOnce(),
) -> Vec<Row> {
    let mut examination = Examination::new(pairs, session, settings);
    examination.test_all();
    examination.measure_all();
    examination.at_once();
    look();
    examination.end();
    examination.by_shim();
    examination.rows
}

struct Examination<'a> {
    settings: Settings<'a>,
    rows: Vec<Row>,
    session: Option<Session<'a>>,
}

impl<'a> Examination<'a> {
    fn new(pairs: &[[usize; 2]], session: Session<'a>, settings: Settings<'a>) -> Self {
        let rows = pairs.iter().map(|&pair| Row::new(pair, Verdict::NoPath)).collect();
        Self { settings, rows, session: Some(session) }
    }

    fn pairs(&self, places: &[usize]) -> Vec<[usize; 2]> {
        places.iter().filter_map(|&place| self.rows.get(place).map(|row| row.pair)).collect()
    }

    fn places(&self, wanted: impl Fn(&Row) -> bool) -> Vec<usize> {
        self.rows.iter().enumerate().filter(|(_, row)| wanted(row)).map(|(place, _)| place).collect()
    }

    fn end(&mut self) {
        if let Some(left_behind) = self.session.take().and_then(Session::end)
            && let Some(row) = self.rows.first_mut()
        {
            row.left_behind = row.left_behind.or(Some(left_behind));
        }
    }

    /// A process with all GPUs: the one that there is, or another.
    fn session(&mut self, settings: Settings<'a>) -> Result<&mut Session<'a>, String> {
        if self.session.as_ref().is_none_or(|session| !session.is_whole) {
            self.end();
            let mut session = Session::start(settings)?;
            session.list()?;
            self.session = Some(session);
        }
        self.session.as_mut().ok_or_else(String::new)
    }

    /// Has something done with the pairs at these places; hands on what is said of each.
    fn ask(
        &mut self,
        settings: Settings<'a>,
        (task, what): (Task, &str),
        places: &[usize],
        mut take: impl FnMut(&mut Row, Line),
    ) -> Result<Option<Verdict>, String> {
        let pairs = self.pairs(places);
        let steps = match task {
            Task::Test => settings.level.count(),
            // Copies, and then kernels.
            Task::AtOnce => 2,
            _ => 1,
        };
        settings.progress.begin(pairs.len() * steps, what);
        let (mut said, mut soaks) = (Vec::new(), None);
        let session = self.session(settings)?;
        let of_all = session.ask(task, &pairs, |place, line| {
            let [from, to] = pairs.get(place).copied().unwrap_or_default();
            match &line {
                Line::Begun(test) => {
                    let what = format!("{from}>{to} ({})", test.name());
                    settings.progress.waits(place, Some(what), settings.patience);
                }
                Line::Found(..) | Line::Verdict(_) => settings.progress.waits(place, None, settings.patience),
                _ => {}
            }
            if matches!(line, Line::Measured(Path::Staged, _) | Line::Found(..)) {
                settings.progress.step();
            }
            if matches!(line, Line::Soaks) {
                let since: &Instant = soaks.get_or_insert_with(|| {
                    settings.progress.begin(settings.soak.as_secs() as usize, "soak of all pairs, in seconds");
                    Instant::now()
                });
                return settings.progress.reach(since.elapsed().as_secs() as usize);
            }
            said.push((place, line));
        });
        for (place, line) in said {
            if let Some(row) = places.get(place).and_then(|&place| self.rows.get_mut(place)) {
                take(row, line);
            }
        }
        Ok(of_all)
    }

    /// Tests those pairs, and returns those that it did not come to.
    fn test(&mut self, places: &[usize], settings: Settings<'a>) -> Vec<usize> {
        let mut decided = Vec::new();
        for &place in places {
            self.rows.get_mut(place).into_iter().for_each(Row::forget);
        }
        let asked = self.ask(settings, (Task::Test, "testing"), places, |row, line| match line {
            Line::Found(test, finding) => row.set_finding(test, finding),
            Line::Verdict(verdict) => {
                row.verdict = verdict;
                decided.push(row.pair);
            }
            _ => {}
        });
        let is_left = |row: &Row| !decided.contains(&row.pair);
        let left = places.iter().copied().filter(|&place| self.rows.get(place).is_some_and(is_left)).collect();
        if let Err(why) = asked {
            self.undecided(&left, &why);
        }
        left
    }

    fn undecided(&mut self, places: &Vec<usize>, why: &str) {
        for &place in places {
            self.rows.get_mut(place).into_iter().for_each(|row| row.verdict = Verdict::Unknown(why.to_owned()));
        }
    }

    fn test_all(&mut self) {
        let mut left = self.places(|_| true);
        while !left.is_empty() {
            self.undecided(&left, "the test process gave no verdict");
            let before = left.len();
            left = self.test(&left, self.settings);
            if left.len() == before {
                break;
            }
        }
        let patient = Settings { patience: self.settings.timeout, ..self.settings };
        let hung = self.places(Row::is_hung);
        let groups =
            if hung.len() > ALONE { apart(&hung, &self.rows) } else { hung.iter().map(|&place| vec![place]).collect() };
        for places in groups {
            let first = places.iter().filter_map(|&place| {
                let row = self.rows.get(place)?;
                Some((place, row.findings.iter().flatten().find_map(why_hung)?))
            });
            let first: Vec<(usize, String)> = first.collect();
            // It is another process each time: the one before has lost these GPUs.
            self.end();
            self.undecided(&places, "the test process gave no verdict");
            self.test(&places, patient);
            for (place, why) in first {
                if let Some(row) = self.rows.get_mut(place).filter(|row| row.verdict == Verdict::Passed) {
                    row.remark = Some(format!("It hung once ({why}), and not when it was tested again"));
                }
            }
        }
    }

    /// Measures the pairs that are right, and the way through the host of the others.
    fn measure_all(&mut self) {
        let right = self.places(|row| row.verdict == Verdict::Passed);
        let others = self.places(|row| row.verdict != Verdict::Passed && !row.is_hung());
        self.measure(Task::Measure, &right);
        self.measure(Task::MeasureStaged, &others);
        let again = self.places(|row| is_doubtful(row, &self.rows));
        self.measure(Task::Measure, &again);
    }

    /// Measures pairs; the best counts.
    fn measure(&mut self, task: Task, places: &[usize]) {
        if places.is_empty() {
            return;
        }
        // A path that could not be measured has no speed.
        let _ = self.ask(self.settings, (task, "measuring"), places, |row, line| {
            if let Line::Measured(path, Measure { speed, latency }) = line {
                let before = row.measure(path).unwrap_or(Measure { speed: 0.0, latency: f64::INFINITY });
                row.set_measure(path, Measure { speed: before.speed.max(speed), latency: before.latency.min(latency) });
            }
        });
    }

    /// Has all pairs that are verified copy at once, if there are several; once more if something hangs.
    fn at_once(&mut self) {
        let places = self.places(|row| row.verdict == Verdict::Passed);
        if places.is_empty() || places.len() < 2 && self.settings.soak.is_zero() {
            return;
        }
        let mut settings = self.settings;
        for is_last in [false, true] {
            let mut found = Vec::new();
            let asked = self.ask(settings, (Task::AtOnce, "all pairs at once"), &places, |row, line| match line {
                Line::Found(test, finding) => found.push((row.pair, test, finding)),
                Line::AtOnce(speed) => row.at_once = Some(speed),
                _ => {}
            });
            let verdict = asked.unwrap_or_else(|why| Some(Verdict::Unknown(why)));
            let hangs = matches!(verdict, Some(Verdict::Failed(_)) | None)
                || found.iter().any(|(.., finding)| matches!(finding, Finding::Hung(_)));
            if hangs {
                self.end();
            }
            if hangs && !is_last {
                settings.patience = settings.timeout;
                continue;
            }
            for row in self.rows.iter_mut().enumerate().filter(|(place, _)| places.contains(place)).map(|(_, row)| row)
            {
                let said: Vec<_> = found.iter().filter(|(pair, ..)| *pair == row.pair).collect();
                if said.is_empty() {
                    not_said(row, verdict.as_ref());
                }
                said.into_iter().for_each(|(_, test, finding)| row.add(*test, finding.clone()));
            }
            return;
        }
    }

    /// Measures copies that p2pshim stages, if the library is here.
    fn by_shim(&mut self) {
        let places = self.places(|row| row.measure(Path::Staged).is_some());
        let pairs = self.pairs(&places);
        if pairs.is_empty() {
            return;
        }
        let settings = self.settings;
        preloaded(settings, |session| {
            settings.progress.begin(pairs.len(), "measuring copies by p2pshim");
            session.ask(Task::MeasureStaged, &pairs, |place, line| {
                let row = places.get(place).and_then(|&place| self.rows.get_mut(place));
                if let (Some(row), Line::Measured(_, measure)) = (row, line) {
                    settings.progress.step();
                    row.by_shim = Some(measure.speed);
                }
            });
            let stagers = ask_stagers(session, settings, &pairs);
            for &place in &places {
                self.rows.get_mut(place).into_iter().for_each(|row| row.stagers = stagers);
            }
        });
    }
}

/// The faster stager of copies between the GPUs of these pairs, the driver or p2pshim, if the library is here.
pub(super) fn stagers(pairs: &[[usize; 2]], settings: Settings<'_>) -> Stagers {
    let mut found = Stagers::default();
    preloaded(settings, |session| found = ask_stagers(session, settings, pairs));
    found
}

fn ask_stagers(session: &mut Session<'_>, settings: Settings<'_>, pairs: &[[usize; 2]]) -> Stagers {
    let mut found = Stagers::default();
    settings.progress.begin(Stagers::CLASSES * 2, "measuring who stages copies faster");
    session.ask(Task::Stagers, pairs, |_, line| {
        if let Line::Stagers { class, are_all_busy, driver, shim } = line {
            settings.progress.step();
            found.set(class, are_all_busy, Rates { driver, shim });
        }
    });
    found
}

/// Has something measured in a process that the library is preloaded in, if it is here.
fn preloaded(settings: Settings<'_>, work: impl FnOnce(&mut Session<'_>)) {
    let Ok(shim) = shim::find(None) else { return };
    let options = [
        ("P2PSHIM_ACCESS", "off"),
        ("P2PSHIM_STAGING", "always"),
        ("P2PSHIM_LOG", "off"),
        // Nobody else copies, whoever starts the command.
        ("LOCAL_WORLD_SIZE", "1"),
    ];
    let options = options.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let preload = [(OsString::from("LD_PRELOAD"), shim.into_os_string())];
    let environment = [settings.environment, &preload, &options].concat();
    let Ok(mut session) = Session::start(Settings { environment: &environment, ..settings }) else { return };
    if session.list().is_ok() {
        work(&mut session);
    }
    session.end();
}

/// How a test hung.
fn why_hung(finding: &Finding) -> Option<String> {
    if let Finding::Hung(why) = finding { Some(why.clone()) } else { None }
}

/// Pairs in groups of which none has a GPU in common.
fn apart(places: &[usize], rows: &[Row]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
    for &place in places {
        let Some(row) = rows.get(place) else { continue };
        match groups.iter_mut().find(|(_, used)| row.pair.iter().all(|device| !used.contains(device))) {
            Some((group, used)) => {
                group.push(place);
                used.extend(row.pair);
            }
            None => groups.push((vec![place], row.pair.to_vec())),
        }
    }
    groups.into_iter().map(|(group, _)| group).collect()
}

/// Whether a speed is so low that something may have disturbed it: below that through the host, or far below those of pairs that share a
/// GPU with it.
fn is_doubtful(row: &Row, rows: &[Row]) -> bool {
    let speed = |row: &Row| row.measure(Path::Direct).map(|measure| measure.speed);
    let Some(own) = speed(row) else { return false };
    let is_neighbour =
        |other: &&Row| other.pair != row.pair && other.pair.iter().any(|device| row.pair.contains(device));
    let mut others: Vec<f64> = rows.iter().filter(is_neighbour).filter_map(speed).collect();
    others.sort_unstable_by(f64::total_cmp);
    let median = others.get(others.len() / 2).copied().unwrap_or_default();
    is_slower(row) || own < DOUBTFUL * median
}

/// Adds what the end of the test of all pairs at once means for a pair of which nothing was said.
fn not_said(row: &mut Row, verdict: Option<&Verdict>) {
    match verdict {
        // A call of the driver did not return: which pair is to blame is not known.
        Some(Verdict::Failed(why)) => {
            row.set_finding(Test::AllPairs, Finding::Hung("it is not known because of which pair".to_owned()));
            row.verdict = Verdict::Unknown(format!("{why}; it is not known because of which pair"));
        }
        Some(Verdict::Unknown(why)) => row.add(Test::AllPairs, Finding::Untested(why.clone())),
        Some(Verdict::Passed | Verdict::NoPath) | None => {
            row.add(Test::AllPairs, Finding::Untested("the test process did not report it".to_owned()));
        }
    }
}

/// How long a pair may make no progress the first time.
pub(super) fn patience(timeout: Duration) -> Duration {
    timeout / PATIENCE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_said_is_no_failure_and_undecided_if_it_hangs() {
        let after = |verdict: Verdict| {
            let mut row = Row::new([0, 1], Verdict::Passed);
            not_said(&mut row, Some(&verdict));
            (row.finding(Test::AllPairs).map(Finding::word), row.verdict == Verdict::Passed)
        };
        assert_eq!(after(Verdict::Unknown("too many peers".to_owned())), (Some("untested"), true));
        assert_eq!(after(Verdict::Passed), (Some("untested"), true));
        assert_eq!(after(Verdict::Failed("all pairs at once: hung".to_owned())), (Some("hung"), false));
    }

    #[test]
    fn apart_groups_have_no_gpu_twice() {
        let rows: Vec<Row> =
            [[0, 1], [1, 0], [2, 3], [1, 2]].into_iter().map(|pair| Row::new(pair, Verdict::Passed)).collect();
        assert_eq!(apart(&[0, 1, 2, 3], &rows), [vec![0, 2], vec![1], vec![3]]);
    }

    #[test]
    fn is_doubtful_far_below_neighbours_or_below_the_way_through_the_host() {
        let row = |pair, direct: f64, staged: f64| {
            let measure = |speed| Some(Measure { speed, latency: 2.0 });
            Row { measures: [measure(direct), measure(staged)], ..Row::new(pair, Verdict::Passed) }
        };
        let rows =
            [row([0, 1], 350.0, 40.0), row([1, 0], 34.0, 20.0), row([0, 2], 351.0, 40.0), row([3, 4], 2.0, 40.0)];
        assert_eq!(rows.each_ref().map(|row| is_doubtful(row, &rows)), [false, true, false, true]);
        assert!(!is_doubtful(&row([5, 6], 30.0, 40.0), &rows), "without neighbours");
    }
}
