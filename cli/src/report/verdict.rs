//! The report in a few sentences, the worst first.

use std::collections::BTreeSet;

use super::lost::could_be_direct;
use super::model::{NvLink, Pair, Path, Report, Unfinished};
use super::term::{bytes, clean, count, duration};

/// As decisions of traces have it.
const IN_USE: &str = "in use";
/// In the reason of copies that p2pshim kept off peer access that loses data, or hangs. Older traces have the second.
const BLOCKED: [&str; 2] = ["blocked", "vetoed"];

fn is_blocked(path: &Path) -> bool {
    path.why.as_ref().is_some_and(|why| BLOCKED.iter().any(|blocked| why.contains(blocked)))
}
/// A call that is under way for less than this need not hang.
const SOON_NANOS: u64 = 1_000_000_000;
/// What a report without copies says besides.
const NOT_SEEN: &str = "What kernels load and store (NCCL, NVSHMEM) is not seen, nor are copies of managed memory.";
/// Pairs that a sentence names.
const NAMED: usize = 4;

/// Something that there is to say.
pub(super) struct Sentence {
    pub(super) text: String,
    /// What it rests on, or what to do about it.
    pub(super) more: Option<String>,
    /// Whether the program is wrong, or hangs.
    pub(super) is_bad: bool,
}

impl Sentence {
    fn bad(text: String, more: &str) -> Self {
        Self { text, more: Some(more.to_owned()).filter(|more| !more.is_empty()), is_bad: true }
    }
}

/// All that there is to say.
pub(super) fn sentences(report: &Report) -> Vec<Sentence> {
    let mut all = Vec::new();
    all.extend(in_use(report));
    all.extend(never_returned(report));
    let blocked = blocked_bytes(report.pairs.iter());
    all.extend(avoided(report, blocked));
    all.extend(traffic(report, blocked));
    all.extend(nvlink(report));
    all
}

/// Whether nothing is wrong: with the program, with pairs of GPUs, or with the trace itself.
pub(super) fn is_fine(report: &Report) -> bool {
    let is_harmless = |severity: &str| ["performance", "note"].contains(&severity);
    sentences(report).iter().all(|sentence| !sentence.is_bad)
        && report.findings.iter().all(|finding| is_harmless(&finding.severity))
        && report.errors.is_empty()
        && report.decisions.iter().all(|decision| !decision.is_bad())
        && report.files.iter().all(|file| file.is_whole && file.problems.is_empty() && file.dropped == 0)
}

/// Whether a call hangs, or did when the process ended; not one that was left, or that has only just begun.
pub(super) fn hangs(call: &Unfinished) -> bool {
    !call.was_left && call.age_ns.is_none_or(|age| age >= SOON_NANOS)
}

/// A path, and why it was taken.
pub(super) fn path_text(path: &str, why: Option<&String>) -> String {
    why.map_or_else(|| path.to_owned(), |why| format!("{path}: {why}"))
}

/// What a call copies: `, GPU 0 > GPU 1, 1.0 MB, direct`.
pub(super) fn what(report: &Report, call: &Unfinished) -> String {
    let pair = match (call.src, call.dst) {
        (Some(src), Some(dst)) => format!(", {} > {}", report.label(src), report.label(dst)),
        _ => String::new(),
    };
    let size = call.bytes.map(|size| format!(", {}", bytes(size))).unwrap_or_default();
    let path = call.path.as_ref().map(|path| format!(", {}", path_text(path, call.why.as_ref()))).unwrap_or_default();
    format!("{pair}{size}{path}")
}

/// Pairs that lose data, or hang, and are used all the same.
fn in_use(report: &Report) -> Option<Sentence> {
    let decisions = report.decisions.iter().filter(|it| it.verified.as_deref() == Some(IN_USE));
    let pairs = named(report, decisions.filter_map(|it| Some((it.src?, it.dst?))))?;
    Some(Sentence::bad(
        format!(
            "Data may be WRONG: verification of {pairs} lost data or hung, and the program still uses peer access there."
        ),
        "Run it with P2PSHIM_ACCESS=off, or with P2PSHIM_DENY for the pair, to send its copies through the host. See Decisions for what happened.",
    ))
}

fn never_returned(report: &Report) -> Option<Sentence> {
    let mut calls = report.unfinished.iter().filter(|call| hangs(call));
    let first = calls.next()?;
    let what = format!("{}{}", first.function, what(report, first));
    let text = match (1 + calls.count(), first.age_ns) {
        (1, Some(age)) => format!("A call has not returned for {}: {what}.", duration(age)),
        (1, None) => format!("A call never returned: {what}."),
        (several, Some(age)) => {
            format!("{} calls have not returned, such as, for {}, {what}.", count(several as u64), duration(age))
        }
        (several, None) => format!("{} calls never returned, such as {what}.", count(several as u64)),
    };
    Some(Sentence::bad(text, ""))
}

/// What was kept off peer access that cannot be trusted.
fn avoided(report: &Report, blocked: u64) -> Option<Sentence> {
    let pairs = report.pairs.iter().filter(|&pair| blocked_bytes([pair].into_iter()) > 0);
    let names = named(report, pairs.map(|pair| (pair.src, pair.dst)))?;
    Some(Sentence {
        text: format!("{} went through the host, because peer access loses data or hangs: {names}.", bytes(blocked)),
        more: Some("See Decisions for what happened and the likely cause; `p2pshim doctor` shows more.".to_owned()),
        is_bad: false,
    })
}

fn blocked_bytes<'a>(pairs: impl Iterator<Item = &'a Pair>) -> u64 {
    let paths = pairs.flat_map(|pair| &pair.paths).filter(|&path| is_blocked(path));
    paths.map(|path| path.bytes).fold(0, u64::saturating_add)
}

/// A few of the pairs, each once; none if there is none.
fn named(report: &Report, pairs: impl Iterator<Item = (usize, usize)>) -> Option<String> {
    let pairs: BTreeSet<(usize, usize)> = pairs.collect();
    let names = pairs.iter().take(NAMED).map(|&(src, dst)| format!("{} > {}", report.label(src), report.label(dst)));
    let names = names.collect::<Vec<_>>().join(", ");
    match pairs.len() {
        0 => None,
        all if all > NAMED => Some(format!("{names} and {} more", all - NAMED)),
        _ => Some(names),
    }
}

/// Which path what took, and what it rests on.
fn traffic(report: &Report, blocked: u64) -> Option<Sentence> {
    let say = |text: String, more: Option<String>| Some(Sentence { text, more, is_bad: false });
    let lost = &report.lost;
    let copies: u64 = report.pairs.iter().map(|pair| pair.calls).sum();
    if copies == 0 {
        // What NVLink carried is to follow at once, and says what is not seen.
        let more = nvlink(report).is_none().then(|| NOT_SEEN.to_owned());
        return say("No copy between GPUs was seen.".to_owned(), more);
    }
    let of = |path: &str| {
        let paths = report.pairs.iter().flat_map(|pair| &pair.paths).filter(|it| it.path == path);
        paths.map(|it| it.bytes).fold(0, u64::saturating_add)
    };
    // Without what went well, a pair's first copies read as if nothing had been repaired.
    let beside = |staged: u64| match of("direct") {
        0 => bytes(staged),
        direct => format!("{} went directly; {}", bytes(direct), bytes(staged)),
    };
    let could = lost.could_be_direct_bytes;
    let rest = lost.staged_bytes.saturating_sub(could).saturating_sub(blocked);
    let why = |which: Which| reasons(report, which).map(|reasons| format!(" ({reasons})")).unwrap_or_default();
    if could > 0 {
        let staged = beside(could);
        let reasons = reasons(report, Which::Avoidable).map(|it| format!("Staged because: {it}. ")).unwrap_or_default();
        let rest = match rest {
            0 => String::new(),
            _ => format!(" {} more had no better path{}.", bytes(rest), why(Which::Rest)),
        };
        return match lost.seconds {
            Some(seconds) => say(
                format!("{staged} were staged but could be direct, about {} lost.", seconds_of(seconds)),
                Some(format!("{reasons}Lost: {}.{rest}", lost.basis)),
            ),
            None => say(
                format!("{staged} were staged but could be direct."),
                Some(format!("{reasons}Time lost is not known: {}.{rest}", lost.basis)),
            ),
        };
    }
    if rest > 0 {
        return say(format!("{} were staged{}; {}.", beside(rest), why(Which::Rest), lost.basis), None);
    }
    if blocked > 0 {
        return Some(of("direct"))
            .filter(|&it| it > 0)
            .and_then(|it| say(format!("{} went directly.", bytes(it)), None));
    }
    let total = report.pairs.iter().map(|pair| pair.bytes).fold(0, u64::saturating_add);
    let verdict = match of("direct") {
        0 if total == 0 => "No copy between GPUs finished.".to_owned(),
        0 => format!("{} were copied, none of it known to be staged.", bytes(total)),
        direct => format!("{} went directly from GPU to GPU; nothing was staged.", bytes(direct)),
    };
    say(verdict, None)
}

/// What NVLink carried, if that is known.
fn nvlink(report: &Report) -> Option<Sentence> {
    let NvLink { text, more, .. } = report.nvlink.as_ref().filter(|nvlink| !nvlink.text.is_empty())?;
    let has_copies = report.pairs.iter().any(|pair| pair.calls > 0);
    let more = if more.is_empty() && !has_copies { NOT_SEEN } else { more };
    Some(Sentence { text: text.clone(), more: Some(more.to_owned()).filter(|more| !more.is_empty()), is_bad: false })
}

/// Which of what was staged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// What could be direct.
    Avoidable,
    /// What could not, where peer access can be trusted.
    Rest,
}

/// Why most of it was staged.
fn reasons(report: &Report, which: Which) -> Option<String> {
    let mut reasons: Vec<(&str, u64)> = Vec::new();
    let pairs = report.pairs.iter().filter(|pair| which == Which::Rest || pair.access == Some(true));
    let is_meant = |path: &&Path| match which {
        Which::Avoidable => could_be_direct(path),
        Which::Rest => path.path == "staged" && !could_be_direct(path),
    };
    let is_meant = |path: &&Path| is_meant(path) && !is_blocked(path);
    for path in pairs.flat_map(|pair| &pair.paths).filter(is_meant) {
        let Some(why) = path.why.as_deref() else { continue };
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, bytes)) => *bytes = bytes.saturating_add(path.bytes),
            None => reasons.push((why, path.bytes)),
        }
    }
    reasons.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    let shown: Vec<String> = reasons.iter().take(3).map(|(why, _)| clean(why)).collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

fn seconds_of(seconds: f64) -> String {
    if seconds < 0.1 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}
