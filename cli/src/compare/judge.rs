//! Two sides, and what got better or worse: by more than a threshold, and by more than the runs of a side differ.

use std::collections::{BTreeMap, BTreeSet};

use p2pshim_host::config::PREFIX;

use super::facts::{Ended, Facts, Key, PairFacts, RankFacts};
use super::model::{
    Change, Comparison, CountRow, Figure, Judged, PairRow, PairSide, RankRow, RankSide, Side, Spread, VERSION, Verdict,
};
use super::words::{self, MainPath, listed, one};
use crate::judge::{Level, Row, evaluate};
use crate::report::without_arguments;

/// Seconds of calls that do not count.
const FEW_SECONDS: f64 = 1e-3;
/// Seconds of whole runs that do not count: a program starts sooner or later by itself.
const FEW_SECONDS_OF_A_RUN: f64 = 0.1;

/// The runs at a path.
pub(super) struct Runs {
    pub(super) path: String,
    pub(super) runs: Vec<Facts>,
}

/// Which values of a figure are better.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Best {
    Low,
    High,
}

/// How alike the copies of both sides are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// As many copies of as many bytes.
    Same,
    /// More or fewer copies, as large on average; or it is not known how many.
    AsLarge,
    Other,
}

impl Runs {
    fn spread(&self, what: impl Fn(&Facts) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(what).collect())
    }

    fn median(&self, what: impl Fn(&Facts) -> u64) -> f64 {
        self.spread(|run| Some(what(run) as f64)).map_or(0.0, |spread| spread.median)
    }

    fn pair(&self, key: &Key, what: impl Fn(&PairFacts) -> Option<f64>) -> Option<Spread> {
        self.spread(|run| what(run.pairs.get(key)?))
    }

    fn main_path(&self, key: &Key) -> Option<MainPath> {
        main_path(|what| self.pair(key, |pair| Some(what(pair) as f64)).map_or(0.0, |it| it.median))
    }

    fn pairs(&self) -> BTreeSet<&Key> {
        let used = |(key, pair): (_, &PairFacts)| (pair.copies > 0).then_some(key);
        self.runs.iter().flat_map(|run| run.pairs.iter().filter_map(used)).collect()
    }

    /// Whether calls are missing: then a copy costs more on average, since the first ones cost most.
    fn is_cut(&self) -> bool {
        self.runs.iter().any(|run| run.is_at_least || !run.is_whole)
    }

    fn is_part(&self) -> bool {
        self.runs.iter().any(Facts::is_part)
    }

    fn copies(&self) -> f64 {
        self.median(|run| run.sum(|pair| pair.copies))
    }

    fn bytes(&self) -> f64 {
        self.median(|run| run.sum(|pair| pair.bytes))
    }

    /// The worst end of its runs.
    fn end(&self) -> &Ended {
        let badness = |end: &&Ended| match end {
            Ended::Badly(_) => 3,
            Ended::Running => 2,
            Ended::Unknown => 1,
            Ended::Well => 0,
        };
        self.runs.iter().map(|run| &run.end).max_by_key(badness).unwrap_or(&Ended::Unknown)
    }

    fn ranks(&self) -> BTreeSet<&String> {
        self.runs.iter().flat_map(|run| run.ranks.keys()).collect()
    }

    fn command(&self) -> &[String] {
        self.runs.first().map_or(&[], |run| &run.command)
    }

    fn side(&self, with_arguments: bool) -> Side {
        let first = self.runs.first();
        let command = self.command();
        Side {
            path: self.path.clone(),
            command: if with_arguments { command.to_vec() } else { without_arguments(command) },
            runs: self.runs.len(),
            processes: self.runs.iter().map(|run| run.processes).sum(),
            ranks: self.ranks().len(),
            gpus: first.map(|run| run.gpus.clone()).unwrap_or_default(),
            end: words::end(self.end()),
            lower_bounds: self.runs.iter().any(|run| run.is_at_least),
        }
    }
}

/// Compares two sides.
pub(super) fn compare(before: &Runs, after: &Runs, threshold: f64, with_arguments: bool) -> Comparison {
    let judge = Judge { before, after, threshold, with_arguments };
    let work = judge.work();
    let (figures, findings, errors) = (judge.figures(work), judge.counts(findings_of), judge.counts(errors_of));
    let compared = Compared { judge, figures, findings, errors };
    let is = |level| LEVELS.iter().find(|(_, it)| *it == level).map_or(Judged::Different, |(is, _)| *is);
    let changes = evaluate(&rows(), &compared).into_iter().map(|it| Change { is: is(it.level), text: it.text });
    let changes: Vec<Change> = changes.collect();
    let Compared { judge, figures, findings, errors } = compared;
    let why_not = judge.why_not(work);
    let verdict = match changes.first().map(|change| change.is) {
        Some(Judged::Worse) => Verdict::Worse,
        Some(Judged::Better) => Verdict::Better,
        _ if why_not.is_some() => Verdict::NotComparable,
        _ => Verdict::Same,
    };
    let (is_other, notes) = judge.notes();
    let first = words::first(verdict, &changes, &figures, why_not.as_deref(), threshold, is_other);
    let text = format!("{}{first}", words::settings(&judge.settings()));
    Comparison {
        version: VERSION,
        verdict,
        text,
        notes,
        threshold_percent: threshold,
        before: before.side(with_arguments),
        after: after.side(with_arguments),
        changes,
        figures,
        pairs: judge.pairs(),
        ranks: judge.ranks(),
        findings,
        errors,
    }
}

/// How bad changes are.
const LEVELS: [(Judged, Level); 3] =
    [(Judged::Worse, Level::Bad), (Judged::Better, Level::Good), (Judged::Different, Level::Note)];
const NO_COMMON: &str = "no common pair";

/// The facts that rows judge: both sides, and what was made of them.
struct Compared<'a> {
    judge: Judge<'a>,
    figures: Vec<Figure>,
    findings: Vec<CountRow>,
    errors: Vec<CountRow>,
}

/// The rows about what is worse, what is better, and what is neither.
fn rows<'r>() -> Vec<Row<'r, Compared<'r>>> {
    let judged = LEVELS.iter().flat_map(|&(is, level)| {
        [
            Row::new(level, "end", move |it: &Compared| it.judge.end(is)),
            Row::new(level, "findings", move |it: &Compared| it.judge.came_and_went(&it.findings, is)),
            Row::new(level, "failed calls", move |it: &Compared| it.judge.came_and_went(&it.errors, is)),
            Row::new(level, "verification", move |it: &Compared| it.judge.broken(is)),
            Row::new(level, "whole run", move |it: &Compared| words::changes(&it.figures, false, is)),
            Row::new(level, "paths", move |it: &Compared| it.judge.paths(is)),
            Row::new(level, "rates of pairs", move |it: &Compared| words::changes(&it.figures, true, is)),
        ]
    });
    judged
        .chain([
            Row::new(Level::Note, NO_COMMON, |it: &Compared| it.judge.no_common_pair()),
            Row::new(Level::Note, "pairs gone", |it: &Compared| {
                it.judge.only("now", [it.judge.before, it.judge.after])
            })
            .unless(&[NO_COMMON]),
            Row::new(Level::Note, "new pairs", |it: &Compared| {
                it.judge.only("before", [it.judge.after, it.judge.before])
            })
            .unless(&[NO_COMMON]),
            Row::new(Level::Note, "number of ranks", |it: &Compared| it.judge.number_of_ranks()),
            Row::new(Level::Note, "a slower rank", |it: &Compared| it.judge.slower_rank()),
        ])
        .collect()
}

struct Judge<'a> {
    before: &'a Runs,
    after: &'a Runs,
    /// Percent.
    threshold: f64,
    /// Whether programs are shown with all their arguments: they may be secrets.
    with_arguments: bool,
}

impl Judge<'_> {
    /// Whether two numbers differ by no more than the threshold.
    fn are_alike(&self, before: f64, after: f64) -> bool {
        (after - before).abs() <= before.abs() * self.threshold / 100.0
    }

    fn work(&self) -> Work {
        let [copies, bytes] = [Runs::copies, Runs::bytes].map(|what| (what(self.before), what(self.after)));
        let alike = |(before, after): (f64, f64)| self.are_alike(before, after);
        let is_known = !self.before.is_part() && !self.after.is_part();
        if is_known && alike(copies) && alike(bytes) {
            return Work::Same;
        }
        let sizes = (bytes.0 / copies.0.max(1.0), bytes.1 / copies.1.max(1.0));
        if copies.0 > 0.0 && copies.1 > 0.0 && alike(sizes) { Work::AsLarge } else { Work::Other }
    }

    /// Why the sides cannot be compared, if they cannot.
    fn why_not(&self, work: Work) -> Option<String> {
        let copies = [self.before.copies(), self.after.copies()];
        match copies {
            [before, after] if before == 0.0 && after > 0.0 => Some(format!(
                "{} has no copies between GPUs that are known, and {} has",
                self.before.path, self.after.path
            )),
            [before, after] if before > 0.0 && after == 0.0 => Some(format!(
                "{} has no copies between GPUs that are known, and {} has",
                self.after.path, self.before.path
            )),
            _ if work == Work::Other => Some(format!(
                "the programs did different work: {}, now {}",
                words::work(self.before.copies(), self.before.bytes()),
                words::work(self.after.copies(), self.after.bytes())
            )),
            _ => None,
        }
    }

    fn figures(&self, work: Work) -> Vec<Figure> {
        let (before, after) = (self.before, self.after);
        let shown = |name, what: fn(&PairFacts) -> u64| {
            let sum = |runs: &Runs| runs.spread(|run| Some(run.sum(what) as f64));
            self.figure(name, sum(before), sum(after), None, 0.0)
        };
        let mut figures = vec![
            shown("copies", |pair| pair.copies),
            shown("bytes", |pair| pair.bytes),
            shown("staged-first-bytes", |pair| pair.first),
            shown("staged-bytes", |pair| pair.staged),
        ];
        let has_copies = before.copies() > 0.0 && after.copies() > 0.0;
        let calls = |runs: &Runs| runs.spread(|run| Some(run.host_seconds()));
        let low = |is: bool| is.then_some(Best::Low);
        figures.push(self.figure(
            "copy-call-seconds",
            calls(before),
            calls(after),
            low(work == Work::Same && has_copies),
            FEW_SECONDS,
        ));
        let each = |runs: &Runs| {
            runs.spread(|run| Some(run.host_seconds() / run.sum(|pair| pair.copies) as f64).filter(|it| it.is_finite()))
        };
        // As many copies as either made, at least, by that difference.
        let floor = FEW_SECONDS / before.copies().min(after.copies()).max(1.0);
        let are_alike = before.is_cut() == after.is_cut();
        let is_judged = work == Work::AsLarge && are_alike;
        figures.push(self.figure("seconds-per-copy", each(before), each(after), low(is_judged), floor));
        figures.extend(self.whole(work));
        for key in self.common() {
            let rate = |runs: &Runs| runs.pair(key, |pair| pair.gb_per_s);
            let best = (are_alike && before.main_path(key) == after.main_path(key)).then_some(Best::High);
            let figure = self.figure("gb-per-s", rate(before), rate(after), best, 0.0);
            if figure.before.is_some() || figure.after.is_some() {
                figures.push(Figure { of: Some(words::pair(key)), ..figure });
            }
        }
        figures
    }

    /// How long whole runs took, or else how long there were calls.
    fn whole(&self, work: Work) -> Option<Figure> {
        let (before, after) = (self.before, self.after);
        let all = |runs: &Runs, what: fn(&Facts) -> Option<f64>| {
            runs.spread(what).filter(|spread| spread.runs == runs.runs.len())
        };
        let ended = [before, after].iter().all(|side| matches!(side.end(), Ended::Well | Ended::Unknown));
        let best = (work == Work::Same && ended).then_some(Best::Low);
        for (name, what) in [
            ("seconds", (|run| run.run_seconds) as fn(&Facts) -> Option<f64>),
            ("seconds-with-calls", |run| run.calls_seconds),
        ] {
            if let (Some(before), Some(after)) = (all(before, what), all(after, what)) {
                return Some(self.figure(name, Some(before), Some(after), best, FEW_SECONDS_OF_A_RUN));
            }
        }
        None
    }

    fn figure(
        &self,
        name: &'static str,
        before: Option<Spread>,
        after: Option<Spread>,
        best: Option<Best>,
        floor: f64,
    ) -> Figure {
        let both = before.zip(after);
        let percent = |(before, after): (Spread, Spread)| (after.median - before.median) / before.median * 100.0;
        let is = match (both, best) {
            (Some((before, after)), Some(best)) => {
                let more = after.median - before.median;
                if more.abs() <= floor || self.are_alike(before.median, after.median) {
                    Judged::Same
                } else if before.meets(&after) {
                    Judged::WithinSpread
                } else if (more > 0.0) == (best == Best::Low) {
                    Judged::Worse
                } else {
                    Judged::Better
                }
            }
            _ => Judged::Shown,
        };
        let change_percent = both.map(percent).filter(|percent| percent.is_finite());
        Figure { name, of: None, before, after, change_percent, is }
    }

    fn common(&self) -> Vec<&Key> {
        let theirs = self.after.pairs();
        self.before.pairs().into_iter().filter(|key| theirs.contains(key)).collect()
    }

    /// How the program ended, if otherwise than before and that is so.
    fn end(&self, wanted: Judged) -> Option<String> {
        let (before, after) = (self.before.end(), self.after.end());
        let is = match (before, after) {
            (Ended::Badly(before), Ended::Badly(after)) if before == after => return None,
            (Ended::Badly(_), Ended::Badly(_)) => Judged::Different,
            (_, Ended::Badly(_)) => Judged::Worse,
            (Ended::Badly(_), Ended::Well) => Judged::Better,
            (Ended::Badly(_), _) => Judged::Different,
            _ => return None,
        };
        let [before, after] =
            [before, after].map(|end| words::end(end).unwrap_or_else(|| "is not known to have ended".into()));
        (is == wanted).then(|| format!("the program {before}, now it {after}"))
    }

    /// Counts by name: of several runs the most of one.
    fn counts(&self, of: impl Fn(&Facts) -> Vec<(String, Option<String>, u64)>) -> Vec<CountRow> {
        let mut rows: BTreeMap<String, CountRow> = BTreeMap::new();
        let mut add = |runs: &Runs, side: fn(&mut CountRow) -> &mut u64| {
            for (name, severity, count) in runs.runs.iter().flat_map(&of) {
                let new = CountRow { name: name.clone(), severity, before: 0, after: 0 };
                let most = side(rows.entry(name).or_insert(new));
                *most = count.max(*most);
            }
        };
        add(self.before, |row| &mut row.before);
        add(self.after, |row| &mut row.after);
        rows.into_values().collect()
    }

    /// Findings, or failed calls, that one side has only. A run that is not whole may just not have come to them.
    fn came_and_went(&self, rows: &[CountRow], wanted: Judged) -> Vec<String> {
        let is_empty = |runs: &Runs| runs.is_part() || runs.copies() == 0.0;
        let change = |row: &CountRow| {
            let is_grave = row.severity.as_deref().is_none_or(|severity| ["error", "hazard"].contains(&severity));
            let (is, other) = match (row.before, row.after) {
                (0, 1..) => (Judged::Worse, self.before),
                (1.., 0) => (Judged::Better, self.after),
                _ => return None,
            };
            let is = if is_grave && !is_empty(other) { is } else { Judged::Different };
            (is == wanted).then(|| words::count(row))
        };
        rows.iter().filter_map(change).collect()
    }

    /// Pairs that fail verification on one side only: now, which is worse, or before.
    fn broken(&self, wanted: Judged) -> Option<String> {
        let (was, what) = match wanted {
            Judged::Worse => (false, "fails verification now: peer access loses data there, or hangs"),
            // It may not have been verified: that data arrives now is not known from these runs.
            Judged::Different => (true, "failed verification before; p2pshim doctor shows whether data arrives now"),
            _ => return None,
        };
        let is_broken =
            |runs: &Runs, key: &Key| runs.runs.iter().any(|run| run.pairs.get(key).is_some_and(|it| it.is_broken));
        let is_meant = |key: &&Key| is_broken(self.before, key) == was && is_broken(self.after, key) != was;
        let keys: Vec<&Key> = self.common().into_iter().filter(is_meant).collect();
        (!keys.is_empty()).then(|| format!("{} {what}", listed(&keys)))
    }

    /// Pairs that are staged and were not, or the other way round. If no pair is in both, all of them are taken together.
    fn paths(&self, wanted: Judged) -> Vec<String> {
        let common = self.common();
        if common.is_empty() {
            let paths = [self.before, self.after].map(|runs| main_path(|what| runs.median(|run| run.sum(what))));
            let change = self.path(paths, self.before.pairs().into_iter().chain(self.after.pairs()).collect(), None);
            let said = change.filter(|(is, _)| *is == wanted).map(|(_, what)| format!("copies were {what}"));
            return said.into_iter().collect();
        }
        let mut alike: BTreeMap<String, Vec<&Key>> = BTreeMap::new();
        for key in common {
            let paths = [self.before, self.after].map(|runs| runs.main_path(key));
            let why = self.after.runs.iter().rev().find_map(|run| run.pairs.get(key)).map(|pair| pair.path.as_str());
            if let Some((_, what)) = self.path(paths, vec![key], why).filter(|(is, _)| *is == wanted) {
                alike.entry(what).or_default().push(key);
            }
        }
        alike.into_iter().map(|(what, keys)| words::were(&keys, &what)).collect()
    }

    /// How the main path of some pairs has changed, if it has.
    fn path(&self, paths: [Option<MainPath>; 2], of: Vec<&Key>, why: Option<&str>) -> Option<(Judged, String)> {
        let [Some(before), Some(after)] = paths else { return None };
        let far = f64::from(before.percent().abs_diff(after.percent())) > self.threshold.min(99.0);
        // More or fewer copies by hand beside others that are as before are no other path of these.
        let is_by_hand = [before, after].map(|path| path == MainPath::ByHand);
        let others = |runs: &Runs| {
            let of_pair = |key: &Key| runs.pair(key, |pair| Some((pair.direct + pair.staged) as f64));
            of.iter().filter_map(|key| of_pair(key)).map(|spread| spread.median).sum::<f64>()
        };
        if is_by_hand[0] != is_by_hand[1]
            && others(self.before) > 0.0
            && self.are_alike(others(self.before), others(self.after))
        {
            return None;
        }
        if before == after || !far && before != MainPath::ByHand && after != MainPath::ByHand {
            return None;
        }
        let mut pairs = self
            .before
            .runs
            .iter()
            .chain(&self.after.runs)
            .flat_map(|run| of.iter().filter_map(|&key| run.pairs.get(key)));
        let is = match (before.percent(), after.percent()) {
            _ if self.before.is_cut() != self.after.is_cut() => Judged::Different,
            _ if pairs.any(|pair| pair.is_broken || pair.is_slower_directly) => Judged::Different,
            (before, after) if before > after => Judged::Better,
            (before, after) if before < after => Judged::Worse,
            _ => Judged::Different,
        };
        Some((is, words::main_path(before, after, why.unwrap_or_default())))
    }

    /// Versions, options and machine where the sides differ: the name, before and now.
    fn settings(&self) -> Vec<(String, [String; 2])> {
        let of = |runs: &Runs, name: &String| {
            let values: BTreeSet<&String> =
                runs.runs.iter().filter_map(|run| run.setting.get(name)).flatten().collect();
            values.into_iter().cloned().collect::<Vec<_>>().join(", ")
        };
        let runs = || self.before.runs.iter().chain(&self.after.runs);
        let names: BTreeSet<&String> = runs().flat_map(|run| run.setting.keys()).collect();
        let both = names.into_iter().map(|name| (name.clone(), [self.before, self.after].map(|side| of(side, name))));
        // A version that one side does not know need not be another one.
        let is_known = |(name, values): &(String, [String; 2])| {
            name.starts_with(PREFIX) || values.iter().all(|value| !value.is_empty())
        };
        both.filter(|it| it.1[0] != it.1[1]).filter(is_known).collect()
    }

    /// Both sides have pairs, and none in common.
    fn no_common_pair(&self) -> Option<String> {
        let [before, after] = [self.before, self.after].map(Runs::pairs);
        let names = |keys: BTreeSet<&Key>| listed(&keys.into_iter().collect::<Vec<_>>());
        let is_so = !before.is_empty() && !after.is_empty() && self.common().is_empty();
        is_so.then(|| format!("the runs share no pair: {}, now {}", names(before), names(after)))
    }

    /// Pairs that one side has only, if the other has any.
    fn only(&self, when: &str, [ours, theirs]: [&Runs; 2]) -> Option<String> {
        let (ours, theirs) = (ours.pairs(), theirs.pairs());
        let only: Vec<&Key> = ours.difference(&theirs).copied().collect();
        let is_so = !only.is_empty() && !theirs.is_empty();
        is_so.then(|| format!("pairs without copies {when}: {}", listed(&only)))
    }

    fn number_of_ranks(&self) -> Option<String> {
        let [before, after] = [self.before, self.after].map(|side| side.ranks().len());
        (before != after).then(|| format!("{before} ranks, now {after}"))
    }

    /// The rank whose calls took longer by most, if all together did not.
    fn slower_rank(&self) -> Option<String> {
        let seconds = |runs: &Runs, rank: &String| runs.spread(|run| Some(run.ranks.get(rank)?.host_seconds));
        let alike = |rank: &&&String| {
            let copies = |runs: &Runs| runs.median(|run| run.ranks.get(**rank).map_or(0, |it| it.copies));
            self.are_alike(copies(self.before), copies(self.after))
        };
        let theirs = self.after.ranks();
        let ours = self.before.ranks();
        let figures = ours.iter().filter(|rank| theirs.contains(**rank)).filter(alike).map(|rank| {
            let figure = self.figure(
                "copy-call-seconds",
                seconds(self.before, rank),
                seconds(self.after, rank),
                Some(Best::Low),
                FEW_SECONDS,
            );
            (rank, figure)
        });
        let worse = figures.filter(|(_, figure)| figure.is == Judged::Worse);
        let (rank, figure) = worse.max_by(|(_, one), (_, other)| {
            one.change_percent.unwrap_or(0.0).total_cmp(&other.change_percent.unwrap_or(0.0))
        })?;
        Some(format!(
            "copy calls of rank {rank} took {}, now {}",
            one(&figure, figure.before?.median),
            one(&figure, figure.after?.median)
        ))
    }

    fn ranks(&self) -> Vec<RankRow> {
        let theirs = self.after.ranks();
        let side = |runs: &Runs, rank: &String| {
            let median = |what: &dyn Fn(&RankFacts) -> f64| {
                runs.spread(|run| run.ranks.get(rank).map(what)).map_or(0.0, |it| it.median)
            };
            RankSide {
                copies: median(&|it| it.copies as f64) as u64,
                bytes: median(&|it| it.bytes as f64) as u64,
                staged_bytes: median(&|it| it.staged as f64) as u64,
                host_seconds: median(&|it| it.host_seconds),
            }
        };
        let common = self.before.ranks().into_iter().filter(|rank| theirs.contains(*rank));
        let mut rows: Vec<RankRow> = common
            .map(|rank| RankRow { rank: rank.clone(), before: side(self.before, rank), after: side(self.after, rank) })
            .collect();
        rows.sort_by_key(|row| row.rank.parse::<u64>().unwrap_or(u64::MAX));
        rows
    }

    fn pairs(&self) -> Vec<PairRow> {
        let side = |runs: &Runs, key: &Key| {
            let number = |what: fn(&PairFacts) -> u64| {
                runs.pair(key, |pair| Some(what(pair) as f64)).map_or(0, |it| it.median as u64)
            };
            let last = runs.runs.iter().rev().find_map(|run| run.pairs.get(key))?;
            Some(PairSide {
                copies: number(|it| it.copies),
                bytes: number(|it| it.bytes),
                direct_bytes: number(|it| it.direct),
                staged_bytes: number(|it| it.staged),
                first_bytes: number(|it| it.first),
                by_hand_bytes: number(|it| it.by_hand),
                path: last.path.clone(),
                host_seconds: runs.pair(key, |pair| Some(pair.host_seconds))?.median,
                gb_per_s: runs.pair(key, |pair| pair.gb_per_s).map(|it| it.median),
            })
        };
        let keys: BTreeSet<&Key> = self.before.pairs().union(&self.after.pairs()).copied().collect();
        let row = |key: &Key| PairRow {
            src: key.0.clone(),
            dst: key.1.clone(),
            before: side(self.before, key),
            after: side(self.after, key),
        };
        let mut rows: Vec<PairRow> = keys.into_iter().map(row).collect();
        let bytes = |side: &Option<PairSide>| side.as_ref().map_or(0, |side| side.bytes);
        rows.sort_by_key(|row| std::cmp::Reverse(bytes(&row.before).max(bytes(&row.after))));
        rows
    }

    /// Whether the programs differ, and sentences about what the comparison rests on.
    fn notes(&self) -> (bool, Vec<String>) {
        let [before, after] = [self.before, self.after].map(|runs| runs.side(self.with_arguments));
        let mut notes = Vec::new();
        let name = |command: &[String]| {
            command.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default().to_owned()
        };
        let is_other =
            [&before, &after].iter().all(|it| !it.command.is_empty()) && name(&before.command) != name(&after.command);
        if before.command == after.command && self.before.command() != self.after.command() {
            notes.push("The arguments of the commands differ; --with-arguments shows them.".to_owned());
        } else if before.command != after.command {
            notes.push(format!("The commands differ: {}, now {}.", words::command(&before), words::command(&after)));
        }
        let identities = |runs: &Runs| runs.runs.iter().flat_map(|run| run.identities.clone()).collect::<BTreeSet<_>>();
        let gpus = [self.before, self.after].map(identities);
        if gpus.iter().all(|it| !it.is_empty()) && gpus[0] != gpus[1] {
            notes.push("The GPUs differ: pairs are compared by number.".to_owned());
        }
        for (side, runs) in [(&before, self.before), (&after, self.after)] {
            notes.extend(words::part(side, runs.end(), runs.runs.iter().all(|run| run.is_whole)));
        }
        if before.runs == 1 && after.runs == 1 {
            notes.push("One run each: it is not known how much runs differ by themselves. If a folder holds several runs, their spread counts.".to_owned());
        }
        (is_other, notes)
    }
}

/// The path of most bytes of which there are these sums, and the part of them that was staged. First copies do not count.
fn main_path(sum: impl Fn(fn(&PairFacts) -> u64) -> f64) -> Option<MainPath> {
    let [direct, staged, by_hand] = [sum(|it| it.direct), sum(|it| it.staged), sum(|it| it.by_hand)];
    if by_hand > direct + staged {
        return Some(MainPath::ByHand);
    }
    match staged / (direct + staged) {
        share if share.is_nan() => None,
        ..0.005 => Some(MainPath::Direct),
        0.995.. => Some(MainPath::Staged),
        share => Some(MainPath::Mixed((share * 100.0).round() as u8)),
    }
}

fn findings_of(run: &Facts) -> Vec<(String, Option<String>, u64)> {
    run.findings.iter().map(|(rule, (severity, count))| (rule.clone(), Some(severity.clone()), *count)).collect()
}

fn errors_of(run: &Facts) -> Vec<(String, Option<String>, u64)> {
    run.errors.iter().map(|(error, count)| (error.clone(), None, *count)).collect()
}
