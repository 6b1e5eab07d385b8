//! Pairs of GPUs whose peer access cannot be trusted: verification saw it lose data, or hang.

use std::collections::{BTreeMap, BTreeSet};

use p2pshim_trace::{Class, Path as Taken, Verified, Why};

use super::model::{Decision, Pair, Path, Report, STATIC_RUNTIME};
use super::sentence::{at_least, between, copies};
use super::shared;
use super::term::bytes;
use crate::judge::Words;

/// A pair in both directions, the smaller number first: it is verified in both.
pub(super) type Endpoints = (usize, usize);

pub(super) fn ends(src: usize, dst: usize) -> Endpoints {
    (src.min(dst), src.max(dst))
}

/// Whether a decision says that a pair cannot be trusted.
pub(super) fn is_broken(decision: &Decision) -> bool {
    decision.verified.is_some_and(Verified::is_broken)
}

/// The fate of a pair that cannot be trusted.
#[derive(Default)]
struct Broken {
    /// Bytes that went directly by processes that have not seen data arrive, and by those that have.
    at_risk: u64,
    passed: u64,
    /// Bytes that were staged for that reason, and those of them for which the program has not enabled access either.
    staged: u64,
    left: u64,
    is_in_use: bool,
    /// Whether the paths of all copies are known.
    is_known: bool,
}

impl Broken {
    /// The words about one that no copy is known to have suffered from, of those that fit the filter; none if copies have.
    fn unused(&self, is_filtered: bool) -> Option<&'static str> {
        match self {
            Self { at_risk: 0, staged: 0, passed: 1.., .. } if is_filtered => Some(
                " in one process and not in another; all copies that fit are from processes in which it did not \
                      fail",
            ),
            Self { at_risk: 0, staged: 0, .. } if is_filtered => Some("; no copy that fits is known to have used it"),
            Self { at_risk: 1.., .. } | Self { staged: 1.., .. } => None,
            Self { passed: 1.., .. } => Some(
                " in one process and not in another; only processes in which it did not \
                                              fail used it",
            ),
            Self { is_in_use: true, is_known: true, .. } => {
                Some("; the program has enabled it, but no copy of the program used it")
            }
            Self { is_in_use: true, .. } => Some("; the program has enabled it, but no copy is known to have used it"),
            Self { is_known: true, .. } => Some("; no copy of the program used it"),
            _ => Some("; no copy is known to have used it"),
        }
    }
}

/// Whether verification of a pair has failed.
pub(super) fn has_failed(report: &Report, pair: &Pair) -> bool {
    all(report).contains_key(&ends(pair.src, pair.dst))
}

/// All of them, whatever was copied.
fn all(report: &Report) -> BTreeMap<Endpoints, Broken> {
    let mut all: BTreeMap<Endpoints, Broken> = BTreeMap::new();
    let mut seen: BTreeMap<(usize, Endpoints), (bool, bool)> = BTreeMap::new();
    for decision in &report.decisions {
        let (Some(src), Some(dst)) = (decision.src, decision.dst) else { continue };
        let (right, wrong) = seen.entry((decision.file, ends(src, dst))).or_default();
        *right |= decision.verified == Some(Verified::Right);
        *wrong |= is_broken(decision);
        if is_broken(decision) {
            all.entry(ends(src, dst)).or_default().is_in_use |= decision.verified == Some(Verified::InUse);
        }
    }
    for pair in report.pairs.iter().filter(|pair| pair.is_blocked) {
        let broken = all.entry(ends(pair.src, pair.dst)).or_default();
        broken.staged = broken.staged.saturating_add(pair.blocked_bytes);
        let left = pair.paths.iter().filter(|path| path.taken.path == Some(Taken::Staged(Why::BrokenNotEnabled)));
        broken.left = left.map(|path| path.bytes).fold(broken.left, u64::saturating_add);
    }
    for share in report.shares.iter().filter(|share| share.path.taken.class() == Class::Direct) {
        let ends = ends(share.pair[0], share.pair[1]);
        let Some(broken) = all.get_mut(&ends) else { continue };
        let has_passed = seen.get(&(share.file, ends)) == Some(&(true, false));
        let sum = if has_passed { &mut broken.passed } else { &mut broken.at_risk };
        *sum = sum.saturating_add(share.path.bytes);
    }
    all.iter_mut().for_each(|(ends, broken)| broken.is_known = is_known(report, *ends));
    all
}

/// Whether it is known of each copy whether it took the path between two GPUs.
fn is_known(report: &Report, both: Endpoints) -> bool {
    let is_unclear = |path: &Path| matches!(path.taken.class(), Class::Unknown | Class::Captured | Class::Mapped);
    let is_about = |pair: &&Pair| ends(pair.src, pair.dst) == both;
    let may_lack = report.is_at_least()
        || report.processes().any(|file| file.copies_of_unknown_devices > 0)
        || report.pairs.iter().any(|pair| shared::is_unknown(report, pair));
    !may_lack
        && !report.has_unfinished_copies()
        && !report.pairs.iter().filter(is_about).flat_map(|pair| &pair.paths).any(is_unclear)
}

/// Bytes that were staged because a pair cannot be trusted.
pub(super) fn staged_bytes(report: &Report) -> u64 {
    report.pairs.iter().map(|pair| pair.blocked_bytes).fold(0, u64::saturating_add)
}

/// The pairs that are meant, also in words; none if there are none.
fn those(
    report: &Report,
    all: &BTreeMap<Endpoints, Broken>,
    is_meant: impl Fn(&Broken) -> bool,
) -> Option<(Vec<Endpoints>, String)> {
    let pairs: Vec<Endpoints> = all.iter().filter(|(_, it)| is_meant(it)).map(|(ends, _)| *ends).collect();
    let names = between(report, pairs.iter().copied())?;
    Some((pairs, names))
}

fn sum(all: &BTreeMap<Endpoints, Broken>, what: impl Fn(&Broken) -> u64) -> String {
    bytes(all.values().map(what).fold(0, u64::saturating_add))
}

fn has_decision(report: &Report) -> bool {
    report.decisions.iter().any(is_broken)
}

/// The grounds of sentences about pairs from which copies are kept.
fn shown(report: &Report) -> &'static str {
    match has_decision(report) {
        true => "See Decisions for what happened; `p2pshim doctor` tests the direct path and the one through the host.",
        false => "`p2pshim doctor` tests the direct path and the one through the host.",
    }
}

/// The sentence about pairs of which no way is right.
pub(super) fn wrong_either_way(report: &Report) -> Option<Words> {
    let text = format!("Data may be WRONG: {}.", wrong_through_host(report)?);
    let more =
        "A GPU, its memory or the driver is at fault, and p2pshim has no other path. `p2pshim doctor` shows more.";
    Some(Words::from(text).more(more))
}

/// The sentence about direct copies between such GPUs.
pub(super) fn at_risk(report: &Report) -> Option<Words> {
    let all = all(report);
    let (pairs, names) = those(report, &all, |it| it.at_risk > 0)?;
    let text = format!(
        "Data may be WRONG: {}{} of {} were direct {names}, where peer access failed verification.",
        report.least(),
        sum(&all, |it| it.at_risk),
        copies(report),
    );
    let see = if has_decision(report) { "See Decisions for what happened." } else { "" };
    Some(Words::from(text).more(remedy(report, &pairs)).and(see))
}

/// The sentence about copies that were staged for that: by p2pshim, or because the program has left access disabled.
pub(super) fn staged(report: &Report, is_left: bool) -> Option<Words> {
    let all = all(report);
    let is_meant = |it: &Broken| it.staged > 0 && (it.left == it.staged) == is_left;
    let (_, names) = those(report, &all, is_meant)?;
    let staged = sum(&all, |it| if is_meant(it) { it.staged } else { 0 });
    let (why, intended) = match is_left {
        true => (
            format!("the program has not enabled peer access {names}, and an earlier check found it broken"),
            "Leave it disabled",
        ),
        false => (format!("peer access {names} failed verification"), "Copies are kept off that path"),
    };
    let text = at_least(report, format!("{staged} of {} were staged: {why}.", copies(report)));
    Some(Words::from(text).more(format!("{intended}. {}", shown(report))))
}

/// The sentences about those from which no copy is known to have suffered.
pub(super) fn unused(report: &Report) -> Vec<Words> {
    let (all, is_filtered) = (all(report), report.filter.is_some());
    let tails: BTreeSet<&str> = all.values().filter_map(|it| it.unused(is_filtered)).collect();
    let say = |tail| {
        let (_, names) = those(report, &all, |it| it.unused(is_filtered) == Some(tail))?;
        Some(Words::from(format!("Peer access {names} failed verification{tail}.")).more(shown(report)))
    };
    tails.into_iter().filter_map(say).collect()
}

/// Pairs with copies on which the check before the start found that data is wrong through the host too: no way is right.
pub(crate) fn wrong_through_host(report: &Report) -> Option<String> {
    let gpu = |uuid: &String| report.gpus.iter().position(|gpu| gpu.uuid.as_ref() == Some(uuid));
    let found = report.runs.iter().flat_map(|run| &run.wrong_through_host);
    let found: BTreeSet<Endpoints> = found.filter_map(|[src, dst]| Some(ends(gpu(src)?, gpu(dst)?))).collect();
    let copied = report.pairs.iter().filter(|pair| pair.src != pair.dst).map(|pair| ends(pair.src, pair.dst));
    let names = between(report, copied.collect::<BTreeSet<_>>().into_iter().filter(|ends| found.contains(ends)))?;
    Some(format!("in the check before the program started, copies {names} were wrong through the host as well"))
}

/// The remedy that keeps copies from such a path: with HIP no option does.
fn remedy(report: &Report, pairs: &[Endpoints]) -> String {
    let has =
        |names: &[&str]| report.processes().any(|file| names.iter().any(|&name| file.versions.contains_key(name)));
    let (has_hip, has_cuda) = (has(&["hip"]), has(&["driver", "runtime", STATIC_RUNTIME]));
    if has_hip && !has_cuda {
        return "No option changes the path of HIP's copies: let the program copy through memory of the host."
            .to_owned();
    }
    let stays = if has_hip { " Copies of HIP stay on this path." } else { "" };
    let deny = deny(report, pairs);
    if report.decisions.iter().any(|it| it.verified == Some(Verified::Disregarded)) {
        return format!(
            "P2PSHIM_VERIFY=off ignores that. To send its copies through the host, run it without that option, or \
             with {deny}.{stays}"
        );
    }
    format!("To send its copies through the host, run it with P2PSHIM_ACCESS=off, or with {deny}.{stays}")
}

/// The option that keeps pairs from peer access: it takes the numbers that the program has for its devices.
pub(super) fn deny(report: &Report, pairs: &[Endpoints]) -> String {
    let of = |src: usize, dst: usize, numbers: &dyn Fn(usize) -> Option<u32>| {
        let (src, dst) = (numbers(src)?, numbers(dst)?);
        Some(format!("{}-{}", src.min(dst), src.max(dst)))
    };
    let listed = |numbers: &dyn Fn(usize) -> Option<u32>| {
        let pairs: BTreeSet<String> = pairs.iter().filter_map(|&(src, dst)| of(src, dst, numbers)).collect();
        pairs.into_iter().collect::<Vec<_>>().join(",")
    };
    let own: BTreeSet<String> = report
        .processes()
        .map(|file| {
            listed(&|gpu| file.devices.iter().find(|(_, it)| **it == gpu).map(|(ordinal, _)| u32::from(*ordinal)))
        })
        .filter(|pairs| !pairs.is_empty())
        .collect();
    let shown = listed(&|gpu| report.gpus.get(gpu).map(|gpu| gpu.number));
    match own.into_iter().collect::<Vec<_>>().as_slice() {
        [own] if *own == shown => format!("P2PSHIM_DENY={own}"),
        [own] => format!("P2PSHIM_DENY={own} (the program's own numbers)"),
        _ => "P2PSHIM_DENY for the pair, in each process by its own numbers".to_owned(),
    }
}
