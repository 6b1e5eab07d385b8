//! The report in a few sentences, the worst first.

use std::collections::BTreeSet;

use p2pshim_trace::{Class, Verified};

use super::bounces::{self, BY_HAND};
use super::broken;
use super::contexts;
use super::ends::{self, PROCESSES};
use super::failures;
use super::judged::Judged;
use super::model::{Error, Failure, Finding, Negative, Path, Report, Share};
use super::order;
use super::sentence::{BEGUN, DIRECT, Level, NAMED, NVLINK, RUNNING, Sentence, at_least, between, nvlink};
use super::shared;
use super::symbols::UNKNOWN;
use super::term::{bytes, count, counted, few};
use super::traffic;
use super::unshared;

/// The sentences, the worst first; but before all what the numbers lack, and whether they are of several runs.
pub(super) fn sentences(report: &Report) -> Vec<Sentence> {
    let (wrong, avoided) = broken::sentences(report).into_iter().partition(|it| it.word == broken::WRONG);
    let ends = [ends::ended(report), ends::never_returned(report), ends::ended_elsewhere(report), ends::unseen(report)];
    let others = [
        race(report),
        at_risk(report),
        shared::freed(report),
        negative_size(report),
        failed(report),
        contexts::sentence(report),
        failures::forgiven(report),
        graded(report, WRONG_CALLS),
        graded(report, ODD_CODES).filter(|_| report.errors.iter().any(|error| !failures::explains(error))),
        graded(report, BY_ACCIDENT),
        slower(report),
        shared::never_closed(report),
        shared::on_one_gpu(report),
        traffic::hop(report),
        traffic::sentence(report),
        traffic::between_processes(report),
        unshared::sentence(report),
        graded(report, SLOW),
        ends::running(report),
        ends::begun(report),
        unclear(report),
        unplaced(report),
        nvlink(report),
    ];
    let few = |those: &[Option<Sentence>]| those.iter().flatten().cloned().collect();
    let mut first: Vec<Sentence> = few(&[gaps(report), several(report)]);
    let mut others = [
        order::sentences(report),
        failures::sentences(report),
        wrong,
        few(&ends),
        avoided,
        few(&others),
        bounces::sentences(report),
    ]
    .concat();
    // Nothing is fine beside what is not, or before the end.
    let is_fine = first
        .iter()
        .chain(&others)
        .all(|it| matches!(it.level, Level::Good | Level::Note) && ![RUNNING, BEGUN].contains(&it.word));
    for sentence in others.iter_mut().filter(|sentence| sentence.level == Level::Good && !is_fine) {
        (sentence.level, sentence.word) = (Level::Note, DIRECT);
    }
    // Whatever kept a program from its work comes before the end that it led to. That there are no copies says the least, but NVLink's sentence
    // follows it.
    let has_failed = others.iter().any(|it| [ends::FAILED, ends::ENDED].contains(&it.word));
    let rank = |it: &Sentence| match it.word {
        _ if has_failed && is_cause(it) => 0,
        traffic::NO_COPIES | NVLINK => 2,
        _ => 1,
    };
    let level = |it: &Sentence| if rank(it) == 0 { (Level::Warn as u8).min(it.level as u8) } else { it.level as u8 };
    others.sort_by_key(|it| (level(it), rank(it)));
    first.append(&mut others);
    first
}

/// Whether a sentence is about calls that failed, such that a program that ended badly may have ended for that.
fn is_cause(it: &Sentence) -> bool {
    let is_failure = failures::WORDS.contains(&it.word) || it.word == unshared::NOT_SHARED;
    is_failure || it.word == NEGATIVE || (it.word == FAILED_CALLS && it.level != Level::Note)
}

/// The sentences that the text begins with: not what its lists say as well.
pub(super) fn first(report: &Report) -> Vec<Sentence> {
    let is_listed = |it: &Sentence| it.word == SLOW_CALLS || it.word == FAILED_CALLS && it.level == Level::Note;
    sentences(report).into_iter().filter(|sentence| !is_listed(sentence)).collect()
}

const NEGATIVE: &str = "Negative size";
const FAILED_CALLS: &str = "Failed calls";
const SLOW_CALLS: &str = "Slow calls";

/// The sentence about gaps in recording and reading.
fn gaps(report: &Report) -> Option<Sentence> {
    let gaps = Some(report.gaps.join("; ")).filter(|gaps| !gaps.is_empty())?;
    let text = match report.is_at_least() {
        true => format!("The report is incomplete: {gaps}. Counts and bytes are lower bounds."),
        false => format!("The report is not exact: {gaps}. Counts and bytes are complete."),
    };
    Some(Sentence::new(Level::Warn, "Incomplete", text).section(PROCESSES))
}

/// Pairs whose direct copies are slower than copies through the host, by a run that has direct copies there all the same.
fn slower(report: &Report) -> Option<Sentence> {
    let judged = Judged::of(report);
    let is_slower =
        |share: &&Share| share.path.taken.class() == Class::Direct && judged.verified(share) == Some(Verified::Slower);
    let used: BTreeSet<[usize; 2]> = report.shares.iter().filter(is_slower).map(|share| share.pair).collect();
    let pairs = || used.iter().map(|[src, dst]| (*src, *dst));
    let text = format!(
        "Direct copies {} were slower one way at least than copies through the host when they were verified{}, and the program makes direct copies there.",
        between(report, pairs())?,
        judged.in_runs(report.shares.iter().filter(is_slower)),
    );
    let pairs: Vec<_> = pairs().map(|(src, dst)| broken::ends(src, dst)).collect();
    let more = format!("Run it with P2PSHIM_ACCESS=off, or with {}, and compare.", broken::deny(report, &pairs));
    Some(Sentence::new(Level::Warn, "Slow path", text).more(more).section("decisions"))
}

/// Numbers of several runs are added up.
fn several(report: &Report) -> Option<Sentence> {
    let runs = Some(report.runs.len()).filter(|&runs| runs > 1)?;
    let text = format!("{} runs, added together{}.", count(runs as u64), ends::of_several(report));
    Some(Sentence::new(Level::Note, "Several runs", text).section(PROCESSES))
}

/// Whether nothing is wrong: with the program, with pairs of GPUs, or with the trace itself. A copy that is only slow is not wrong.
pub(super) fn is_fine(report: &Report) -> bool {
    let is_harmless = |it: &Sentence| {
        matches!(it.level, Level::Good | Level::Note) || ["Staged", SLOW_CALLS, BY_HAND].contains(&it.word)
    };
    sentences(report).iter().all(is_harmless)
        && report.errors.is_empty()
        && report.decisions.iter().all(|it| !it.is_bad())
}

/// Hazards by which no data is wrong: of another release of CUDA such a call may fail.
const ACCIDENTS: [&str; 3] = ["P2P-copy-zero-bytes", "P2P-copy-pinned-host", "P2P-copy-null-context"];

/// Findings that a copy and the work on its GPUs have no order.
fn is_race(finding: &Finding) -> bool {
    finding.severity == "hazard" && finding.rule.starts_with("P2P-order-")
}

/// Copies without order, each rule with its first place.
fn race(report: &Report) -> Option<Sentence> {
    let judged = Judged::of(report);
    let in_words = |it: &Finding| {
        let (copies, are, their) = match it.count {
            1 => ("1 copy".to_owned(), "is", "its"),
            all => (format!("{} copies", count(all)), "are", "their"),
        };
        let place = it.sites.first().map(|site| site.from.in_short()).filter(|place| place != UNKNOWN);
        let at = place.map(|place| format!(" at {place}")).unwrap_or_default();
        let more = match it.sites.len() {
            0 | 1 => String::new(),
            all => format!(" and {}", counted(all as u64 - 1, "other place")),
        };
        let runs = judged.over_runs(it.files.iter().copied());
        // Which device a stream is of is asked now and then.
        format!(
            "{}{copies}{at}{more}{runs} {are} not ordered with work on {their} GPUs ({})",
            least(report, it),
            it.rule
        )
    };
    let found: Vec<String> = report.findings.iter().filter(|it| is_race(it)).take(NAMED).map(in_words).collect();
    let text = Some(found.join("; ")).filter(|text| !text.is_empty())?;
    let more = "`p2pshim explain` with the name in brackets says what to do.";
    Some(Sentence::new(Level::Bad, "Possible race", format!("Possible race: {text}.")).more(more).section("findings"))
}

/// Other findings by which data may be wrong.
fn at_risk(report: &Report) -> Option<Sentence> {
    let is_meant = |it: &Finding| {
        it.severity == "hazard" && !is_race(it) && ![&ACCIDENTS[..], &order::RULES].concat().contains(&it.rule.as_str())
    };
    let rules = rules(report, is_meant)?;
    let text = format!("Data may be wrong although the calls succeed: {rules}.");
    Some(
        Sentence::new(Level::Bad, "Data at risk", text)
            .more("The findings name the place; `p2pshim explain` with a finding's name says what to do.")
            .section("findings"),
    )
}

/// Findings that have a sentence: the same in a word, what they have in common, and which they are.
type Grade = (&'static str, &'static str, fn(&Finding) -> bool);

const WRONG_CALLS: Grade = ("Wrong calls", "Wrong calls", |it| {
    it.severity == "error" && ![&CODES[..], &NOT_WRONG, &order::RULES].concat().contains(&it.rule.as_str())
});
/// Rules by which a call is right and the machine, p2pshim or earlier work has made it fail: other sentences say so.
const NOT_WRONG: [&str; 3] = ["P2P-enable-broken", "P2P-error-no-driver", "P2P-error-earlier-work"];
const ODD_CODES: Grade = ("Odd codes", "Calls failed with codes that their arguments do not explain", |it| {
    CODES.contains(&it.rule.as_str())
});
/// Rules about the code that a call returned, which need not be wrong.
const CODES: [&str; 2] = ["P2P-error-undocumented", "P2P-error-unexplained"];
const BY_ACCIDENT: Grade =
    ("By accident", "Calls succeed by accident", |it| it.severity == "hazard" && ACCIDENTS.contains(&it.rule.as_str()));
const SLOW: Grade = (SLOW_CALLS, "Calls take longer than necessary", |it| it.severity == "performance");

/// Other findings: calls that are wrong, or slow.
fn graded(report: &Report, (word, what, is_meant): Grade) -> Option<Sentence> {
    let rules = rules(report, is_meant)?;
    let more = "The findings name the place and the remedy.";
    Some(Sentence::new(Level::Warn, word, format!("{what}: {rules}.")).more(more).section("findings"))
}

/// The rules that were broken, and in how many calls.
fn rules(report: &Report, is_meant: impl Fn(&Finding) -> bool) -> Option<String> {
    let judged = Judged::of(report);
    let in_words = |finding: &Finding| {
        let runs = judged.over_runs(finding.files.iter().copied());
        format!("{} in {}{}{runs}", finding.rule, least(report, finding), counted(finding.count, "call"))
    };
    let found: Vec<String> = report.findings.iter().filter(|finding| is_meant(finding)).map(in_words).collect();
    (!found.is_empty()).then(|| few(&found, NAMED, ", "))
}

/// The words before the number of calls of a finding: those that are known to be alike are not all looked at, nor those that are lost.
pub(super) fn least(report: &Report, finding: &Finding) -> &'static str {
    /// Rules that ask the library or the driver, now and then.
    const ASKED: [&str; 2] = ["P2P-copy-null-context", "P2P-error-left-behind"];
    let is_sampled = finding.severity == "performance" || is_race(finding) || ASKED.contains(&finding.rule.as_str());
    if is_sampled || report.is_at_least() { "at least " } else { "" }
}

/// The meaning of an error that says of something that it is so already, or is not to be had: no failure in itself.
fn benign(error: &Error) -> Option<&'static str> {
    let is_question = error.function.contains("CanAccessPeer") || error.function.contains("P2PAttribute");
    match error.numbering.usual(error.code)? {
        704 => Some("access was enabled already"),
        705 => Some("access was not enabled"),
        UNSUPPORTED if is_question => Some("the pair has no path"),
        _ => None,
    }
}

/// How the program ended, if it did so badly and nothing is known to have failed but calls whose errors are benign: it may have ended for that.
fn ended_for_benign(report: &Report) -> Option<(Level, String)> {
    let [run] = &report.runs[..] else { return None };
    let are_others = report.filter.is_some()
        || !report.failures.iter().all(|it| failures::is_forgiven(it) || failures::is_left(it))
        || unshared::sentence(report).is_some();
    let end = match (&run.end.signal, run.end.code) {
        (Some(signal), _) if signal == "SIGABRT" => {
            (Level::Bad, format!("{} was ended by {signal}", ends::program(run)))
        }
        (None, Some(code @ (i32::MIN..=-1 | 1..))) => {
            (Level::Warn, format!("{} ended with exit {code}", ends::program(run)))
        }
        _ => return None,
    };
    (!are_others && report.errors.iter().all(|error| benign(error).is_some())).then_some(end)
}

/// `cudaErrorPeerAccessUnsupported`.
const UNSUPPORTED: i32 = 217;

/// A copy that failed for a size that is negative as a signed number.
fn negative_size(report: &Report) -> Option<Sentence> {
    let parts = |finding: &Finding| {
        let Negative { function, size } = finding.negative.as_ref()?;
        // If there are several places, the trace does not say which one it was.
        let at = if let [site] = &finding.sites[..] { format!(" at {}", site.from.in_short()) } else { String::new() };
        Some(format!("{function}{at} got {size} bytes as its size."))
    };
    let text = report.findings.iter().find_map(parts)?;
    let more = "A product of 32-bit numbers, such as elements * sizeof, overflows at 2^31: compute it in size_t. \
                p2pshim enables no access for such a copy.";
    Some(Sentence::new(Level::Warn, NEGATIVE, text).more(more).section("findings"))
}

/// Calls that failed.
fn failed(report: &Report) -> Option<Sentence> {
    if let (Some((level, end)), Some((worst, why))) =
        (ended_for_benign(report), report.errors.first().and_then(|error| Some((error, benign(error)?))))
    {
        let name = worst.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        let at = worst.sites.first().map(|site| site.from.in_short()).filter(|place| place != UNKNOWN);
        let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
        let found = |it: &Failure| {
            let capture = if it.is_capturing { ", in a capture" } else { "" };
            format!("{} found it at {}{capture}", it.function, it.from.in_short())
        };
        let left = report.failures.iter().find(|it| failures::is_left(it)).map(found);
        let is_left = left.is_some();
        let why = left.map_or(why.to_owned(), |found| format!("{why}, and {found}"));
        let text = format!("{end} after {} returned {}{name}{at}: {why}.", worst.function, worst.code);
        let more = match is_left {
            true => {
                "Nothing else is known to have failed. The code stays pending until cudaGetLastError is called: call it right after the failed call."
            }
            false => "Nothing else is known to have failed. A program that takes this for a failure ends there.",
        };
        return Some(Sentence::new(level, FAILED_CALLS, text).more(more).section("errors"));
    }
    let errors = || report.errors.iter().filter(|error| !failures::explains(error));
    let worst = errors().min_by_key(|it| (it.is_expected(), std::cmp::Reverse(it.count)))?;
    let name = worst.name.clone().unwrap_or_else(|| worst.code.to_string());
    let failed = errors().map(|error| error.count).fold(0, u64::saturating_add);
    let text = match failed {
        1 if !report.is_at_least() => format!("A call failed: {} with {name}.", worst.function),
        1 => format!("1 call failed: {} with {name}.", worst.function),
        all if all == worst.count => format!("{} calls of {} failed with {name}.", count(all), worst.function),
        all => format!("{} calls failed, {} of them {} with {name}.", count(all), count(worst.count), worst.function),
    };
    let text = at_least(report, text);
    let sentence = match worst.numbering.usual(worst.code) {
        _ if worst.is_expected() => {
            Sentence::new(Level::Note, FAILED_CALLS, text).more("Many programs expect this one.")
        }
        Some(code) if let Some(finding) = finding_of(report, worst, code) => {
            Sentence::new(Level::Warn, FAILED_CALLS, text)
                .more(format!("{} names the cause: `p2pshim explain {}` says what to do.", finding.rule, finding.rule))
        }
        Some(UNSUPPORTED) => Sentence::new(Level::Warn, FAILED_CALLS, text)
            .more("p2pshim returns this itself where access is off, a pair is denied, or its data does not arrive."),
        _ => Sentence::new(Level::Warn, FAILED_CALLS, text),
    };
    Some(sentence.section("errors"))
}

/// The finding that says why a call failed.
fn finding_of<'a>(report: &'a Report, error: &Error, code: i32) -> Option<&'a Finding> {
    let [function, code] = [format!(": {} at ", error.function), format!("({code})")];
    let is_of_call = |text: &String| text.contains(&function) && text.contains(&code);
    report.findings.iter().find(|it| {
        it.severity != "note" && !CODES.contains(&it.rule.as_str()) && it.text.as_ref().is_some_and(is_of_call)
    })
}

fn unclear(report: &Report) -> Option<Sentence> {
    let unclear = Some(traffic::unclear_bytes(report)).filter(|&bytes| bytes > 0)?;
    let text = format!("The path of {}{} is not known.", report.least(), bytes(unclear));
    let pairs = report.pairs.iter().filter(|pair| pair.src != pair.dst);
    let is_managed = |path: &Path| path.taken.path == Some(p2pshim_trace::Path::Unknown);
    let more = match pairs.flat_map(|pair| &pair.paths).any(is_managed) {
        true => "p2pshim does not follow managed memory, nor with HIP memory of other processes.",
        false => "",
    };
    Some(Sentence::new(Level::Note, "Not known", text).more(more).section("pairs"))
}

/// Copies of arrays that were made where they were not seen.
fn unplaced(report: &Report) -> Option<Sentence> {
    let text = match traffic::of_unknown_devices(report) {
        0 => return None,
        1 if !report.is_at_least() => "Whether 1 copy was between GPUs is not known.".to_owned(),
        1 => "Whether at least 1 copy was between GPUs is not known.".to_owned(),
        copies => {
            let copies = format!("{}{} copies", report.least(), count(copies));
            format!("Whether {copies} were between GPUs is not known.")
        }
    };
    let more = "p2pshim does not know the devices of arrays whose creation it did not see.";
    Some(Sentence::new(Level::Note, "Not known", text).more(more))
}
