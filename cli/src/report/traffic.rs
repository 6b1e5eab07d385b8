//! The report's first words about copies: which paths they took, why, and what that cost.

use std::collections::BTreeSet;

use p2pshim_trace::{ACCESS_ENABLED, Class, Path as Taken, Why};

use super::bounces;
use super::broken;
use super::failures;
use super::judged::Judged;
use super::lost::NO_RATE;
use super::model::{Call, File, How, LostBy, Pair, Path, Report, Run, Share};
use super::sentence::{NOT_SEEN, are_made, at_least, between, copies, nvlink};
use super::shared;
use super::term::{bytes, count, counted, date, seconds};
use crate::judge::Words;

/// The remedy where copies are staged as the first of a pair again and again.
pub(crate) const COUNTED_ANEW: &str = "p2pshim counts first copies for each pair of contexts, and anew when a context ends or access is disabled; on a stack below 64 KiB it enables nothing. Keep contexts and access, or enable access in the program before its copies.";
const RETURNED: &str = "Copies are counted when their calls return; whether all were made is not known.";
/// Reasons for staging that a sentence names.
const NAMED: usize = 3;

/// A process that has copied as many bytes to the host as another has copied from there, if no copy between GPUs is known.
pub(super) fn hop(report: &Report) -> Option<Words> {
    const LEAST: u64 = 1 << 20;
    let is_whole = report.filter.is_none() && !report.is_at_least() && report.runs.len() < 2;
    if !is_whole || report.gpus.len() < 2 || !bounces::others(report).is_empty() {
        return None;
    }
    // Where each does both, or several did alike, equal sums say nothing.
    let gives = |file: &&File| file.to_host_bytes >= LEAST && file.to_host_bytes != file.from_host_bytes;
    let mut found = report.processes().filter(gives).flat_map(|from| {
        let takes = move |to: &&File| to.index != from.index && to.from_host_bytes == from.to_host_bytes;
        report.processes().filter(takes).map(move |to| (from, to))
    });
    let (Some((from, to)), None) = (found.next(), found.next()) else { return None };
    let (one, other) = (report.name(from), report.name(to));
    let text = format!(
        "{one} copied {} to the host, and {other} as many bytes from the host: together that may be a copy between GPUs through the host.",
        bytes(from.to_host_bytes)
    );
    let more = "cudaIpcOpenMemHandle lets a process copy from another's GPU memory directly; NCCL and UCX do so where `p2pshim doctor` finds a path.";
    Some(Words::from(text).more(more))
}

/// Whether there is a sign that copies that were counted may not have been made.
fn may_lack(report: &Report) -> bool {
    let is_cut = |file: &File| match file.end.how {
        How::Exited | How::CalledExit => false,
        How::Unknown | How::Signal | How::Running | How::Exec => true,
    };
    let mut unsure = report.processes().filter(|file| file.copied_bytes > 0 && !file.knows_last_copies);
    unsure.any(|file| is_cut(file) || has_died(report))
}

/// Whether earlier work of the program has failed: then all that was queued in its context has.
fn has_died(report: &Report) -> bool {
    failures::is_context_lost(report) || report.findings.iter().any(|it| it.rule == "P2P-graph-access-lost")
}

/// Bytes of some class between different GPUs that are known.
fn bytes_of(report: &Report, is_meant: impl Fn(Class) -> bool) -> u64 {
    let pairs = report.pairs.iter().filter(|pair| pair.src != pair.dst && !shared::is_unknown(report, pair));
    let paths = pairs.flat_map(|pair| &pair.paths).filter(|path| is_meant(path.taken.class()));
    paths.map(|path| path.bytes).fold(0, u64::saturating_add)
}

/// Copies whose path is not known.
pub(super) fn unclear_bytes(report: &Report) -> u64 {
    bytes_of(report, |class| matches!(class, Class::Unknown | Class::Captured))
}

/// Copies of which it is not known between which devices they are.
pub(super) fn of_unknown_devices(report: &Report) -> u64 {
    report.processes().map(|file| file.copies_of_unknown_devices).fold(0, u64::saturating_add)
}

/// The facts about copies on which several rows rest.
struct Copied<'a> {
    report: &'a Report,
    /// Pairs with copies by single calls.
    made: Vec<&'a Pair>,
    direct: u64,
    staged: Vec<Staged>,
}

impl<'a> Copied<'a> {
    fn of(report: &'a Report) -> Self {
        let direct = bytes_of(report, |class| class == Class::Direct);
        Self { report, made: bounces::others(report), direct, staged: staged(report) }
    }

    /// Whether at most the first copies of pairs were staged.
    fn are_first(&self) -> bool {
        self.staged.iter().all(|it| it.is_first)
    }

    fn advice(&self) -> Option<&'static str> {
        self.staged.iter().find_map(|it| it.advice)
    }

    /// Bytes that were copied neither directly nor staged, if that is all there is.
    fn others(&self) -> Option<u64> {
        let is_all = self.direct == 0 && self.staged.is_empty() && broken::staged_bytes(self.report) == 0;
        let own = bounces::bytes_of_others(&self.made).saturating_sub(shared::bytes_apart(self.report));
        Some(own).filter(|&own| is_all && own > 0)
    }

    /// Words with what they rest on, behind the advice.
    fn say(&self, text: String, advice: &str) -> Words {
        let words = Words::from(at_least(self.report, text)).more(advice);
        words.and(&unverified(self.report).unwrap_or_default()).and(returned(self.report))
    }
}

/// The words that copies that were counted may not have been made, if that is so.
fn returned(report: &Report) -> &'static str {
    if may_lack(report) { RETURNED } else { "" }
}

/// There were no copies, as far as that is known.
pub(super) fn nothing_copied(report: &Report) -> Option<Words> {
    // A sentence about NVLink is to follow at once, and says what is not seen.
    let has_failed = report.errors.iter().any(|error| error.function.contains("Memcpy"));
    let seen = match &report.filter {
        _ if has_failed => "is known to have succeeded",
        None if !report.is_at_least() && of_unknown_devices(report) == 0 => "was seen",
        _ => "is known",
    };
    let fits = if report.filter.is_some() { " that fits" } else { "" };
    let more = if seen == "was seen" && nvlink(report).is_none() { NOT_SEEN } else { "" };
    let other = if bounces::are_known(report) { "other " } else { "" };
    let words = Words::from(format!("No {other}copy between GPUs{fits} {seen}.")).more(more).and(returned(report));
    bounces::others(report).is_empty().then_some(words)
}

/// All copies were within GPUs, or it is only known that there are some.
pub(super) fn only_copied(report: &Report) -> Option<Words> {
    let copied = Copied::of(report);
    let own = copied.others()?;
    let known = || copied.made.iter().filter(|pair| !shared::is_unknown(report, pair));
    let gpus = match (known().count(), known().any(|pair| shared::may_be_shared(report, pair.src))) {
        (1, true) => "one GPU, of one process or between two",
        (1, false) => "one GPU",
        (_, true) => "GPUs, of one process or between two",
        (_, false) => "GPUs",
    };
    let what = match known().all(|pair| pair.src == pair.dst) {
        true => format!("were within {gpus}"),
        false => "are known, none of it known to be staged".to_owned(),
    };
    Some(copied.say(format!("{} of {} {what}.", bytes(own), copies(report)), ""))
}

/// Only the first copies of pairs were made.
pub(super) fn only_first(report: &Report) -> Option<Words> {
    let copied = Copied::of(report);
    let text = listed(&copied.staged, &format!(" of {}", copies(report)))?;
    // One that was tested has got access, or will not.
    let can_be = |pair: &Pair| {
        pair.access != Some(false)
            && !pair.is_blocked
            && !report.is_tested(pair)
            && pair.paths.iter().any(|path| path.taken.class() == Class::StartUp)
    };
    let soon = match report.pairs.iter().any(can_be) {
        true => {
            "p2pshim enables a pair before its 17th copy, or the copy that takes it beyond 1 MiB, if test data \
             arrives."
        }
        false => "",
    };
    (copied.direct == 0 && copied.are_first()).then(|| copied.say(format!("{text}."), soon))
}

/// Copies were staged, beside direct ones or alone: with advice, or without.
pub(super) fn were_staged(report: &Report, is_advised: bool) -> Option<Words> {
    let copied = Copied::of(report);
    if copied.are_first() || copied.advice().is_some() != is_advised {
        return None;
    }
    let text = match copied.direct {
        0 => listed(&copied.staged, &format!(" of {}", copies(report)))?,
        direct => format!("{}; {}", were_direct(report, direct), listed(&copied.staged, "")?),
    };
    Some(copied.say(format!("{text}."), copied.advice().unwrap_or_default()))
}

/// Direct copies, beside which at most first copies were staged.
pub(super) fn only_direct(report: &Report) -> Option<Words> {
    let copied = Copied::of(report);
    let direct = Some(copied.direct).filter(|&direct| direct > 0 && copied.are_first())?;
    let first = copied.staged.iter().map(|it| it.bytes).fold(0, u64::saturating_add);
    let tail = listed(&copied.staged, "").or_else(|| nothing_staged(report));
    let tail = tail.map(|tail| format!("; {tail}")).unwrap_or_default();
    let text = after_first(report, direct, first);
    let text = text.unwrap_or_else(|| match may_lack(report) {
        true => {
            format!("{} of {} were queued to go directly{tail}.{}", bytes(direct), copies(report), of_kernels(report))
        }
        false => format!("{}{tail}.{}", were_direct(report, direct), of_kernels(report)),
    });
    Some(copied.say(text, ""))
}

/// These, if it is known of all copies that they were made, on paths that were verified.
pub(super) fn well_direct(report: &Report) -> Option<Words> {
    let first = staged(report).iter().map(|it| it.bytes).fold(0, u64::saturating_add);
    let is_most = first < bytes_of(report, |class| class == Class::Direct);
    let is_well = is_most && unclear_bytes(report) == 0 && unverified(report).is_none() && are_made(report);
    is_well.then(|| only_direct(report))?
}

/// Copies between processes: what they rest on stands with the first sentence about copies.
pub(super) fn between_processes(report: &Report, has_others: bool) -> Option<Words> {
    let words = shared::sentence(report)?;
    Some(if has_others { words } else { words.and(returned(report)) })
}

/// A sentence if the check before the start tested copies only, and the program enables access itself: its kernels may use that access.
fn of_kernels(report: &Report) -> &'static str {
    let is_quick =
        report.runs.iter().all(|run| run.is_checked) && !report.runs.iter().any(|run| run.is_checked_in_full);
    if is_quick && enables_itself(report) { " The check did not test loads and stores of kernels." } else { "" }
}

/// Whether the program asks for access itself.
fn enables_itself(report: &Report) -> bool {
    report.functions.iter().any(|it| it.name.contains("EnablePeerAccess") || it.name.contains("SetAccess"))
}

/// Pairs to which p2pshim alone has given access, and the bytes that were direct for that.
fn enabled_for_it(report: &Report) -> (u64, u64) {
    // CUDA stages copies without access; memory of other processes is direct without p2pshim, and HIP has ways of its own.
    let is_cuda = report.functions.iter().all(|it| it.layer != "hip");
    if report.filter.is_some() || report.is_at_least() || may_lack(report) || enables_itself(report) || !is_cuda {
        return (0, 0);
    }
    let decisions = report.decisions.iter().filter(|it| it.text.starts_with(ACCESS_ENABLED));
    let enabled: BTreeSet<(usize, broken::Endpoints)> =
        decisions.filter_map(|it| Some((it.file, broken::ends(it.src?, it.dst?)))).collect();
    let is_meant = |it: &&Share| {
        let Path { taken, bytes, .. } = &it.path;
        let is_direct = taken.class() == Class::Direct && *bytes > 0 && !taken.between_processes;
        is_direct && enabled.contains(&(it.file, broken::ends(it.pair[0], it.pair[1])))
    };
    let shares = || report.shares.iter().filter(is_meant);
    let pairs: BTreeSet<_> = shares().map(|it| broken::ends(it.pair[0], it.pair[1])).collect();
    (pairs.len() as u64, shares().map(|it| it.path.bytes).fold(0, u64::saturating_add))
}

/// The words for direct copies, and for p2pshim's part in them.
fn were_direct(report: &Report, direct: u64) -> String {
    let copies = copies(report);
    let (pairs, given) = enabled_for_it(report);
    if pairs == 0 {
        return format!("{} of {copies} were direct", bytes(direct));
    }
    let pairs = if pairs == 1 { "a pair".to_owned() } else { counted(pairs, "pair") };
    let more = match direct.saturating_sub(given) {
        0 => String::new(),
        others => format!("; {} more were direct", bytes(others)),
    };
    format!(
        "p2pshim enabled {pairs} that the program never enables: {} of {copies} were direct that would have been staged{more}",
        bytes(given)
    )
}

/// The sentence about direct copies after the first ones, if each pair that staged some was direct later, and by nobody but p2pshim.
fn after_first(report: &Report, direct: u64, first_bytes: u64) -> Option<String> {
    let judged = Judged::of(report);
    let is_first = |share: &&Share| share.path.taken.class() == Class::StartUp && share.path.bytes > 0;
    let first = || report.shares.iter().filter(is_first);
    let is_direct_later =
        |share: &Share| judged.is_tested(share) && judged.is_direct_too(share) && !report.repeats_first(share.pair);
    let is_known = report.filter.is_none() && !report.is_at_least();
    if !is_known || first_bytes == 0 || enables_itself(report) || !first().all(is_direct_later) {
        return None;
    }
    let switched: BTreeSet<_> = first().map(|share| broken::ends(share.pair[0], share.pair[1])).collect();
    let (pairs, copies, staged) =
        (if switched.len() == 1 { "pair" } else { "pairs" }, copies(report), bytes(first_bytes));
    if enabled_for_it(report).0 > 0 {
        let given = were_direct(report, direct);
        return Some(format!("{given}. The first {staged} were staged, before p2pshim switched the {pairs} over."));
    }
    let (direct, went) = (bytes(direct), if may_lack(report) { "were queued to go" } else { "went" });
    Some(format!(
        "{direct} of {copies} {went} directly from GPU to GPU. The first {staged} went through the host, before p2pshim switched the {pairs} over."
    ))
}

/// Whether `p2pshim run` found a pair to be right before the start.
fn is_checked(report: &Report, pair: [usize; 2]) -> bool {
    let [Some(src), Some(dst)] = pair.map(|gpu| report.gpus.get(gpu)?.uuid.clone()) else { return false };
    let both = [[src.clone(), dst.clone()], [dst, src]];
    let is_of = |run: &Run| run.is_checked || both.iter().all(|pair| run.checked.contains(pair));
    !report.runs.is_empty() && report.runs.iter().all(is_of)
}

/// The sentence, without its end, about pairs of copies that a run has made without having verified the pair, as far as that is known; and
/// whether they were checked before.
fn unverified_of(report: &Report, is_meant: impl Fn(&Share) -> bool) -> Option<(String, bool)> {
    let judged = Judged::of(report);
    let is_meant = |share: &&Share| is_meant(share) && !judged.is_tested(share);
    let untested: BTreeSet<[usize; 2]> = report.shares.iter().filter(is_meant).map(|share| share.pair).collect();
    let pairs = report.pairs.iter().filter(|pair| untested.contains(&[pair.src, pair.dst]));
    let pairs = pairs.filter(|pair| !shared::is_unknown(report, pair)).map(|pair| (pair.src, pair.dst));
    let (checked, others): (Vec<_>, Vec<_>) = pairs.partition(|&(src, dst)| is_checked(report, [src, dst]));
    let are_checked = others.is_empty();
    let pairs = between(report, if are_checked { checked } else { others }.into_iter())?;
    let in_runs = judged.in_runs(report.shares.iter().filter(is_meant));
    if are_checked {
        let earlier = report.runs.iter().filter_map(|run| run.checked_at).min();
        let check = match earlier {
            Some(time) => format!("of {}", date(time)),
            None => "before the program started".to_owned(),
        };
        return Some((format!("Direct copies {pairs} were right in the check {check}"), true));
    }
    let was = match report.runs.len() {
        _ if report.is_at_least() => "is not known to have been verified".to_owned(),
        0 | 1 => "was not verified in this run".to_owned(),
        _ if in_runs.is_empty() => "was not verified in these runs".to_owned(),
        _ => format!("was not verified{in_runs}"),
    };
    Some((format!("Peer access {pairs} {was}"), false))
}

/// Which pairs copied directly without having been verified by their run.
fn unverified(report: &Report) -> Option<String> {
    let untested = unverified_of(report, |it| it.path.taken.class() == Class::Direct && it.path.bytes > 0);
    untested.map(|(untested, _)| format!("{untested}."))
}

/// The words for nothing staged, as far as that is known.
fn nothing_staged(report: &Report) -> Option<String> {
    let is_known = report.filter.is_none()
        && !report.is_at_least()
        && unclear_bytes(report) == 0
        && of_unknown_devices(report) == 0;
    if !is_known || broken::staged_bytes(report) > 0 {
        return None;
    }
    // Copies that HIP maps may be staged.
    let mapped = bytes_of(report, |class| class == Class::Mapped);
    if mapped > 0 {
        return Some(format!("{} more were mapped on first use, and nothing is known to be staged", bytes(mapped)));
    }
    // A copy that is under way, or was when its process ended, is told of elsewhere.
    let is_under_way = |call: &Call| call.path.is_some_and(|path| path.class().is_staged());
    if report.unfinished.iter().any(is_under_way) {
        return Some("no copy that returned was staged".to_owned());
    }
    Some("nothing was staged".to_owned())
}

/// No copy has moved anything.
pub(super) fn none_finished(report: &Report) -> Option<Words> {
    let has_succeeded = report.pairs.iter().flat_map(|pair| &pair.paths).any(|path| path.calls > 0);
    let sum = |what: fn(&Pair) -> u64| report.pairs.iter().map(what).sum::<u64>();
    let (copies, failed) = (sum(|pair| pair.calls), sum(|pair| pair.errors));
    let known = if report.is_at_least() { " that are known" } else { "" };
    let between = if report.pairs.iter().all(|pair| pair.src == pair.dst) { "" } else { " between GPUs" };
    let text = match failed {
        _ if has_succeeded && known.is_empty() => "Only copies of 0 bytes were made.".to_owned(),
        _ if has_succeeded => "Only copies of 0 bytes are known.".to_owned(),
        1 if copies == 1 && known.is_empty() => format!("The only copy{between} failed."),
        1 if copies == 1 => format!("The only copy{between} that is known failed."),
        failed if failed == copies => format!("All {} copies{between}{known} failed.", count(copies)),
        _ => format!("No copy{between} is known to have finished."),
    };
    let total = bounces::bytes_of_others(&bounces::others(report));
    (total == 0).then(|| Words::from(text).and(returned(report)))
}

/// The copies that were staged for one reason.
struct Staged {
    bytes: u64,
    /// The reason, as the sentence goes on.
    why: String,
    is_first: bool,
    advice: Option<&'static str>,
}

/// Whether what a pair staged could have been direct.
fn could_be_direct(pair: &Pair, path: &Path) -> bool {
    path.taken.class() == Class::Avoidable && pair.access == Some(true) && !pair.is_blocked
}

/// The other staged copies, but those that have a sentence of their own: by reason, the most first.
fn staged(report: &Report) -> Vec<Staged> {
    let mut all: Vec<Staged> = Vec::new();
    let paths = report.pairs.iter().flat_map(|pair| pair.paths.iter().map(move |path| (pair, path)));
    for (pair, path) in paths {
        let is_meant =
            path.taken.class().is_staged() && path.taken.class() != Class::Blocked && !could_be_direct(pair, path);
        if !is_meant || path.bytes == 0 {
            continue;
        }
        let Some(Taken::Staged(reason)) = path.taken.path else { continue };
        let repeats_first = reason == Why::NotYetWorth && report.repeats_first([pair.src, pair.dst]);
        let is_first = reason == Why::NotYetWorth && !repeats_first;
        let why = match (path.taken.class(), pair.access) {
            (Class::StartUp, _) if is_first && pair.is_blocked => {
                " (the first copies of a pair, before it failed verification)".to_owned()
            }
            (Class::StartUp, Some(false)) if is_first => {
                " (the first copies of a pair, which has no direct path)".to_owned()
            }
            (Class::StartUp, _) if is_first => {
                " (the first copies of a pair, before p2pshim looks for a direct path)".to_owned()
            }
            (Class::StartUp, _) if repeats_first => " (the first copies of a pair, more than once)".to_owned(),
            (Class::StartUp, _) => " while a pair was being verified".to_owned(),
            (Class::Avoidable, None) => " where it is not known whether the GPUs can access each other".to_owned(),
            (Class::Avoidable, Some(false)) => " where the GPUs cannot access each other".to_owned(),
            _ if reason == Why::Denied => " because P2PSHIM_ACCESS=off or P2PSHIM_DENY says so".to_owned(),
            _ => format!(" ({})", Taken::Staged(reason).reason()),
        };
        match all.iter_mut().find(|it| it.why == why) {
            Some(known) => known.bytes = known.bytes.saturating_add(path.bytes),
            None => {
                let is_avoidable =
                    matches!(reason, Why::Limit | Why::Busy | Why::Capturing | Why::Unverified | Why::Graph);
                let advice = if repeats_first {
                    Some(COUNTED_ANEW)
                } else {
                    is_avoidable.then(|| Taken::Staged(reason).remedy())
                };
                all.push(Staged { bytes: path.bytes, why, is_first, advice });
            }
        }
    }
    all.sort_by_key(|it| std::cmp::Reverse(it.bytes));
    all
}

/// The staged copies as a part of a sentence, in which `of_copies` follows the first number; none if there is nothing.
fn listed(all: &[Staged], of_copies: &str) -> Option<String> {
    let (first, others) = all.split_first()?;
    let mut text = format!("{}{of_copies} were staged{}", bytes(first.bytes), first.why);
    for Staged { bytes: more, why, .. } in others.iter().take(NAMED - 1) {
        text += &format!("; {} more{why}", bytes(*more));
    }
    let rest = others.iter().skip(NAMED - 1).map(|it| it.bytes).fold(0, u64::saturating_add);
    if rest > 0 {
        text += &format!("; {} more for other reasons", bytes(rest));
    }
    Some(text)
}

/// Copies could have been direct.
pub(super) fn could_have_been_direct(report: &Report) -> Option<Words> {
    let Copied { direct, staged: others, .. } = Copied::of(report);
    let lost = Some(&report.lost).filter(|lost| lost.could_be_direct_bytes > 0)?;
    let pairs = || report.pairs.iter().filter(|pair| pair.paths.iter().any(|path| could_be_direct(pair, path)));
    let mut reasons: Vec<(Taken, u64)> = Vec::new();
    for pair in pairs() {
        for path in pair.paths.iter().filter(|path| could_be_direct(pair, path)) {
            let Some(taken) = path.taken.path else { continue };
            match reasons.iter_mut().find(|(known, _)| *known == taken) {
                Some((_, bytes)) => *bytes = bytes.saturating_add(path.bytes),
                None => reasons.push((taken, path.bytes)),
            }
        }
    }
    reasons.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    let because = reasons.iter().take(NAMED).map(|(taken, _)| taken.reason()).collect::<Vec<_>>().join(", ");
    let mut more = format!("Staged because: {because}.");
    let able: BTreeSet<[usize; 2]> = pairs().map(|pair| [pair.src, pair.dst]).collect();
    let is_avoidable = |it: &Share| it.path.taken.class() == Class::Avoidable && able.contains(&it.pair);
    let is_used = |it: &Share| it.path.taken.class() == Class::Direct && it.path.bytes > 0 || is_avoidable(it);
    let is_of_access = reasons.iter().all(|(taken, _)| *taken == Taken::Staged(Why::NotEnabled));
    if let Some((untested, is_checked)) = unverified_of(report, is_used) {
        let how = match is_of_access {
            true if is_checked => "; `--access auto` enables access",
            true => "; `--access auto` does that first",
            false => "",
        };
        more += &format!(" {untested}{how}.");
    }
    // Without what went well, a pair's first copies read as if nothing had been repaired.
    let of_copies = format!(" of {}", copies(report));
    let (beside, of_copies) = match direct {
        0 => (String::new(), of_copies.as_str()),
        direct => (format!("{}; ", were_direct(report, direct)), ""),
    };
    let took = longer(report);
    more += &match took {
        Some(_) => format!(" This rests on {}.", lost.basis),
        None if is_of_access && lost.basis == NO_RATE => {
            " To learn what this cost, run it with `--trace BEFORE`, and with `--trace AFTER` and without `--access app`; then `p2pshim compare BEFORE AFTER`."
                .to_owned()
        }
        None => format!(" How much longer that took is not known: {}.", lost.basis),
    };
    let took = took.unwrap_or_default();
    for Staged { bytes: staged, why, .. } in &others {
        more += &format!(" {} more were staged{why}.", bytes(*staged));
    }
    let staged = bytes(lost.could_be_direct_bytes);
    let in_runs = Judged::of(report).in_runs(report.shares.iter().filter(|it| is_avoidable(it)));
    let text = format!("{beside}{staged}{of_copies} were staged{in_runs} though CUDA offers a direct path{took}.");
    Some(Words::from(at_least(report, text)).more(more).and(returned(report)))
}

/// How much longer staging took, and in the process that it cost most.
fn longer(report: &Report) -> Option<String> {
    let lost = &report.lost;
    let all = lost.seconds?;
    let from = match (lost.measured_calls, lost.could_be_direct_calls) {
        (measured, calls) if measured < calls => {
            format!(", if all were like the {} of {} that were measured", count(measured), count(calls))
        }
        _ => String::new(),
    };
    if all < 1e-7 {
        return Some(format!("; direct copies took no less, where that is known{from}"));
    }
    let name = |worst: &LostBy| report.files.get(worst.file).filter(|_| report.files.len() > 1);
    let name = lost.processes.first().and_then(name).map(|file| report.name(file));
    let who = match (&lost.processes[..], name) {
        ([_], Some(name)) => format!(", in {name}"),
        ([worst, ..], Some(name)) => format!(" in all processes, and {} in {name}", seconds(worst.seconds)),
        _ => String::new(),
    };
    let least = if lost.is_at_least { "at least " } else { "" };
    Some(format!("; that took {least}about {} longer{who}{from}", seconds(all)))
}
