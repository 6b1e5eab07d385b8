//! The report in a few sentences, the worst first: the table of their rows, and the conditions of those about findings and errors.

use std::collections::BTreeSet;

use p2pshim_trace::{Class, Verified};

use super::bounces;
use super::broken;
use super::contexts;
use super::ends::{self, PROCESSES, Worst};
use super::failures;
use super::judged::Judged;
use super::model::{Error, Failure, Finding, Negative, Path, Report, Share};
use super::order;
use super::sentence::{NAMED, at_least, between, nvlink};
use super::shared;
use super::symbols::UNKNOWN;
use super::term::{bytes, count, counted, few};
use super::traffic;
use super::unshared;
use crate::judge::{Level, Row, Sentence, Words, evaluate};

/// Names of rows that others refer to.
const BY_SIGNAL: &str = "Ended by a signal";
const BY_EXIT: &str = "Ended with an exit status";
const KILLED: &str = "Others ended by a signal";
const GONE: &str = "Others ended otherwise";
const UNSEEN: &str = "Ended without calls";
const RUNNING: &str = "Still runs";
const BEGUN: &str = "Just begun";
const EXPECTED: &str = "Expected errors";
const SLOW_CALLS: &str = "Slow calls";
const BY_HAND: &str = "By hand";
const STAGED: &str = "Staged";
const BETWEEN: &str = "Only between processes";
/// Ends to which a failure before them may have led.
const ENDS: [&str; 5] = [BY_SIGNAL, BY_EXIT, KILLED, GONE, UNSEEN];

/// Groups of rows of which one is said: about calls in which processes ended, calls that failed, and paths of copies.
const IN_CALLS: &str = "in calls";
const FAILED: &str = "failed calls";
const COPIES: &str = "copies";

fn rows<'r>() -> Vec<Row<'r, Report>> {
    of_program().into_iter().chain(of_calls()).chain(of_copies()).collect()
}

/// The rows about the trace, the program and its processes, and pairs that lose data.
fn of_program<'r>() -> Vec<Row<'r, Report>> {
    use Level::{Bad, Note, Warn};
    let mut rows = vec![
        Row::new(Warn, "Incomplete", gaps).section(PROCESSES).head(),
        Row::new(Note, "Several runs", several).section(PROCESSES).head(),
        Row::new(Bad, "Race", |it| order::of_level(it, "race", NAMED)).section("races"),
        Row::new(Bad, "Freed too early", |it| order::of_level(it, "lifetime", NAMED)).section("races"),
        Row::new(Warn, "Possible race", |it| order::of_level(it, "possible race", 1)).section("races"),
        Row::new(Warn, "Wait added", |it| order::of_level(it, "enforced", NAMED)).section("races"),
        Row::new(Note, "Ordered by staging", |it| order::of_level(it, "ordered by staging", 1)).section("races"),
        Row::new(Note, "Suppressed", order::suppressed),
    ];
    rows.extend(failures::rows(&ENDS));
    rows.extend([
        Row::new(Bad, "Data wrong", broken::wrong_either_way).section("pairs"),
        Row::new(Bad, "Data wrong", broken::at_risk).section("decisions"),
        Row::new(Bad, "Ended", |it| ends::ended(it, Bad)).named(BY_SIGNAL).section(PROCESSES),
        Row::new(Warn, "Failed", |it| ends::ended(it, Warn)).named(BY_EXIT).section(PROCESSES),
        Row::new(Warn, "Not returned", ends::not_returned).one_of(IN_CALLS).section("unfinished"),
        Row::new(Bad, "Never returned", ends::never_returned).one_of(IN_CALLS).section("unfinished"),
        Row::new(Warn, "Cut off", ends::cut_off).one_of(IN_CALLS).section("unfinished"),
        Row::new(Note, "Cut off", ends::under_way).one_of(IN_CALLS).section("unfinished"),
        Row::new(Bad, "Ended", |it| ends::ended_elsewhere(it, &Worst::Killed)).named(KILLED).section(PROCESSES),
        Row::new(Warn, "Ended", |it| ends::ended_elsewhere(it, &Worst::Failed)).named(GONE).section(PROCESSES),
        Row::new(Warn, "No exit", |it| ends::ended_elsewhere(it, &Worst::Unseen)).section(PROCESSES),
        Row::new(Warn, "Failed", ends::unseen).named(UNSEEN).section(PROCESSES),
        Row::new(Bad, "Broken path", |it| broken::staged(it, false)).section("pairs"),
        Row::new(Bad, "Broken path", |it| broken::staged(it, true)).section("pairs"),
        Row::new(Bad, "Broken path", broken::unused).section("pairs"),
    ]);
    rows
}

/// The rows about calls that are wrong, fail or are slow, and about memory of other processes.
fn of_calls<'r>() -> Vec<Row<'r, Report>> {
    use Level::{Bad, Note, Warn};
    vec![
        Row::new(Bad, "Possible race", race).section("findings"),
        Row::new(Bad, "Data at risk", at_risk).section("findings"),
        Row::new(Bad, "Data at risk", shared::freed).section("between-processes"),
        Row::new(Warn, "Negative size", negative_size).cause_of(&ENDS).section("findings"),
        Row::new(Bad, "Failed calls", |it| ended_for_benign(it, Bad)).one_of(FAILED).cause_of(&ENDS).section("errors"),
        Row::new(Warn, "Failed calls", |it| ended_for_benign(it, Warn))
            .one_of(FAILED)
            .cause_of(&ENDS)
            .section("errors"),
        Row::new(Note, "Failed calls", |it| failed(it, true)).named(EXPECTED).one_of(FAILED).section("errors"),
        Row::new(Warn, "Failed calls", |it| failed(it, false)).one_of(FAILED).cause_of(&ENDS).section("errors"),
        Row::new(Warn, "Device 0", contexts::stray_thread).section(PROCESSES),
        Row::new(Note, "Forgiven", failures::forgiven).section("errors"),
        Row::new(Warn, "Wrong calls", |it| graded(it, "Wrong calls", is_wrong)).section("findings"),
        Row::new(Warn, "Odd codes", odd_codes).section("findings"),
        Row::new(Warn, "By accident", |it| graded(it, "Calls succeed by accident", is_accident)).section("findings"),
        Row::new(Warn, "Slow path", slower).section("decisions"),
        Row::new(Note, "Kept open", shared::never_closed).section("between-processes"),
        Row::new(Note, "One GPU", shared::on_one_gpu).section(PROCESSES),
        Row::new(Note, "Through the host", traffic::hop).section(PROCESSES),
    ]
}

/// The rows about paths of copies, and what else is to be known.
fn of_copies<'r>() -> Vec<Row<'r, Report>> {
    use Level::{Good, Note, Warn};
    vec![
        Row::new(Note, "No copies", traffic::nothing_copied).one_of(COPIES).last(),
        Row::new(Note, "No copies", traffic::none_finished).one_of(COPIES).section("pairs").last(),
        Row::new(Warn, STAGED, traffic::could_have_been_direct).one_of(COPIES).section("pairs"),
        Row::new(Warn, STAGED, |it| traffic::were_staged(it, true)).one_of(COPIES).section("pairs"),
        Row::new(Note, STAGED, |it| traffic::were_staged(it, false)).one_of(COPIES).section("pairs"),
        Row::new(Note, "Copied", traffic::only_copied).one_of(COPIES).section("pairs"),
        Row::new(Note, "Few copies", traffic::only_first).one_of(COPIES).section("pairs"),
        // Nothing is fine beside what is not, or before the end.
        Row::new(Good, "Fine", traffic::well_direct)
            .one_of(COPIES)
            .unless(&[RUNNING, BEGUN])
            .unless_any(Warn)
            .section("pairs"),
        Row::new(Note, "Direct", traffic::only_direct).one_of(COPIES).section("pairs"),
        Row::new(Note, "Processes", |it| traffic::between_processes(it, false))
            .named(BETWEEN)
            .one_of(COPIES)
            .section("between-processes"),
        Row::new(Note, "Processes", |it| traffic::between_processes(it, true))
            .unless(&[BETWEEN])
            .section("between-processes"),
        Row::new(Warn, "No access", unshared::no_access).cause_of(&ENDS).section("unshared"),
        Row::new(Note, "Not shared", unshared::not_shared).cause_of(&ENDS).section("unshared"),
        Row::new(Warn, SLOW_CALLS, |it| graded(it, "Calls take longer than necessary", is_slow)).section("findings"),
        Row::new(Note, RUNNING, ends::running).section(PROCESSES),
        Row::new(Note, BEGUN, ends::begun).section(PROCESSES),
        Row::new(Note, "Not known", unclear).section("pairs"),
        Row::new(Note, "Not known", unplaced),
        Row::new(Note, "NVLink", nvlink).section("environment").last(),
        Row::new(Warn, BY_HAND, |it| bounces::went_by_hand(it, true)).section("pairs"),
        Row::new(Note, BY_HAND, |it| bounces::went_by_hand(it, false)).section("pairs"),
    ]
}

/// The sentences, the worst first; but before all what the numbers lack, and whether they are of several runs.
pub(super) fn sentences(report: &Report) -> Vec<Sentence> {
    evaluate(&rows(), report)
}

/// The sentences that the text begins with: not what its lists say as well.
pub(super) fn first(report: &Report) -> Vec<Sentence> {
    sentences(report).into_iter().filter(|it| ![SLOW_CALLS, EXPECTED].contains(&it.name)).collect()
}

/// The sentence about gaps in recording and reading.
fn gaps(report: &Report) -> Option<String> {
    let gaps = Some(report.gaps.join("; ")).filter(|gaps| !gaps.is_empty())?;
    Some(match report.is_at_least() {
        true => format!("The report is incomplete: {gaps}. Counts and bytes are lower bounds."),
        false => format!("The report is not exact: {gaps}. Counts and bytes are complete."),
    })
}

/// Pairs whose direct copies are slower than copies through the host, by a run that has direct copies there all the same.
fn slower(report: &Report) -> Option<Words> {
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
    Some(Words::from(text).more(more))
}

/// Numbers of several runs are added up.
fn several(report: &Report) -> Option<String> {
    let runs = Some(report.runs.len()).filter(|&runs| runs > 1)?;
    Some(format!("{} runs, added together{}.", count(runs as u64), ends::of_several(report)))
}

/// Whether nothing is wrong: with the program, with pairs of GPUs, or with the trace itself. A copy that is only slow is not wrong.
pub(super) fn is_fine(report: &Report) -> bool {
    let is_harmless = |it: &Sentence| {
        matches!(it.level, Level::Good | Level::Note) || [STAGED, SLOW_CALLS, BY_HAND].contains(&it.word)
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
fn race(report: &Report) -> Option<Words> {
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
    Some(Words::from(format!("Possible race: {text}.")).more(more))
}

/// Other findings by which data may be wrong.
fn at_risk(report: &Report) -> Option<Words> {
    let is_meant = |it: &Finding| {
        it.severity == "hazard" && !is_race(it) && ![&ACCIDENTS[..], &order::RULES].concat().contains(&it.rule.as_str())
    };
    let rules = rules(report, is_meant)?;
    let more = "The findings name the place; `p2pshim explain` with a finding's name says what to do.";
    Some(Words::from(format!("Data may be wrong although the calls succeed: {rules}.")).more(more))
}

/// Rules by which a call is right and the machine, p2pshim or earlier work has made it fail: other sentences say so.
const NOT_WRONG: [&str; 3] = ["P2P-enable-broken", "P2P-error-no-driver", "P2P-error-earlier-work"];
/// Rules about the code that a call returned, which need not be wrong.
const CODES: [&str; 2] = ["P2P-error-undocumented", "P2P-error-unexplained"];

fn is_wrong(it: &Finding) -> bool {
    it.severity == "error" && ![&CODES[..], &NOT_WRONG, &order::RULES].concat().contains(&it.rule.as_str())
}

fn is_accident(it: &Finding) -> bool {
    it.severity == "hazard" && ACCIDENTS.contains(&it.rule.as_str())
}

fn is_slow(it: &Finding) -> bool {
    it.severity == "performance"
}

/// Other findings, after the words for what they have in common.
fn graded(report: &Report, what: &str, is_meant: impl Fn(&Finding) -> bool) -> Option<Words> {
    let rules = rules(report, is_meant)?;
    Some(Words::from(format!("{what}: {rules}.")).more("The findings name the place and the remedy."))
}

/// Findings about codes, unless other sentences explain all of them.
fn odd_codes(report: &Report) -> Option<Words> {
    let is_unexplained = report.errors.iter().any(|error| !failures::explains(error));
    let is_meant = |it: &Finding| CODES.contains(&it.rule.as_str());
    is_unexplained.then(|| graded(report, "Calls failed with codes that their arguments do not explain", is_meant))?
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

/// How the program ended, if it did so badly, at this level, and nothing is known to have failed but calls whose errors are benign: it may have ended
/// for that.
fn ended_for_benign(report: &Report, level: Level) -> Option<Words> {
    let [run] = &report.runs[..] else { return None };
    let are_others = report.filter.is_some()
        || failures::are_others(report)
        || unshared::has_failed(report)
        || report.errors.iter().any(|error| benign(error).is_none());
    let end = match (&run.end.signal, run.end.code) {
        (Some(signal), _) if signal == "SIGABRT" && level == Level::Bad => format!("was ended by {signal}"),
        (None, Some(code @ (i32::MIN..=-1 | 1..))) if level == Level::Warn => format!("ended with exit {code}"),
        _ => return None,
    };
    let worst = report.errors.first().filter(|_| !are_others)?;
    let why = benign(worst)?;
    let name = worst.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let at = worst.sites.first().map(|site| site.from.in_short()).filter(|place| place != UNKNOWN);
    let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
    let found = |it: &Failure| {
        let capture = if it.is_capturing { ", in a capture" } else { "" };
        format!(", and {} found it at {}{capture}", it.function, it.from.in_short())
    };
    // A check right behind the call, in its function, has cleared the code.
    let calls = || report.errors.iter().flat_map(|error| &error.sites);
    let is_far = |it: &&Failure| {
        let function = it.from.function();
        function.is_some() && calls().all(|site| site.from.function().is_some_and(|it| Some(it) != function))
    };
    let left = report.failures.iter().filter(|it| failures::is_left(it)).find(is_far).map(found);
    let (program, found) = (ends::program(run), left.as_deref().unwrap_or_default());
    let text = format!("{program} {end} after {} returned {}{name}{at}: {why}{found}.", worst.function, worst.code);
    let more = match left {
        Some(_) => {
            "Nothing else is known to have failed. The code stays pending until cudaGetLastError is called: call it right after the failed call."
        }
        None => "Nothing else is known to have failed. A program that takes this for a failure ends there.",
    };
    Some(Words::from(text).more(more))
}

/// `cudaErrorPeerAccessUnsupported`.
const UNSUPPORTED: i32 = 217;

/// A copy that failed for a size that is negative as a signed number.
fn negative_size(report: &Report) -> Option<Words> {
    let parts = |finding: &Finding| {
        let Negative { function, size } = finding.negative.as_ref()?;
        // If there are several places, the trace does not say which one it was.
        let at = if let [site] = &finding.sites[..] { format!(" at {}", site.from.in_short()) } else { String::new() };
        Some(format!("{function}{at} got {size} bytes as its size."))
    };
    let text = report.findings.iter().find_map(parts)?;
    let more = "A product of 32-bit numbers, such as elements * sizeof, overflows at 2^31: compute it in size_t. \
                p2pshim enables no access for such a copy.";
    Some(Words::from(text).more(more))
}

/// Calls that failed, if many programs expect the worst of them, or if not.
fn failed(report: &Report, is_expected: bool) -> Option<Words> {
    let errors = || report.errors.iter().filter(|error| !failures::explains(error));
    let worst = errors().min_by_key(|it| (it.is_expected(), std::cmp::Reverse(it.count)));
    let worst = worst.filter(|worst| worst.is_expected() == is_expected)?;
    let name = worst.name.clone().unwrap_or_else(|| worst.code.to_string());
    let failed = errors().map(|error| error.count).fold(0, u64::saturating_add);
    let text = match failed {
        1 if !report.is_at_least() => format!("A call failed: {} with {name}.", worst.function),
        1 => format!("1 call failed: {} with {name}.", worst.function),
        all if all == worst.count => format!("{} calls of {} failed with {name}.", count(all), worst.function),
        all => format!("{} calls failed, {} of them {} with {name}.", count(all), count(worst.count), worst.function),
    };
    let code = worst.numbering.usual(worst.code);
    let finding = code.and_then(|code| finding_of(report, worst, code)).map(|finding| &finding.rule);
    let more = match (code, finding) {
        _ if is_expected => "Many programs expect this one.".to_owned(),
        (_, Some(rule)) => format!("{rule} names the cause: `p2pshim explain {rule}` says what to do."),
        (Some(UNSUPPORTED), _) => {
            "p2pshim returns this itself where access is off, a pair is denied, or its data does not arrive.".to_owned()
        }
        _ => String::new(),
    };
    Some(Words::from(at_least(report, text)).more(more))
}

/// The finding that says why a call failed.
fn finding_of<'a>(report: &'a Report, error: &Error, code: i32) -> Option<&'a Finding> {
    let [function, code] = [format!(": {} at ", error.function), format!("({code})")];
    let is_of_call = |text: &String| text.contains(&function) && text.contains(&code);
    report.findings.iter().find(|it| {
        it.severity != "note" && !CODES.contains(&it.rule.as_str()) && it.text.as_ref().is_some_and(is_of_call)
    })
}

fn unclear(report: &Report) -> Option<Words> {
    let unclear = Some(traffic::unclear_bytes(report)).filter(|&bytes| bytes > 0)?;
    let text = format!("The path of {}{} is not known.", report.least(), bytes(unclear));
    let pairs = report.pairs.iter().filter(|pair| pair.src != pair.dst);
    let is_managed = |path: &Path| path.taken.path == Some(p2pshim_trace::Path::Unknown);
    let more = match pairs.flat_map(|pair| &pair.paths).any(is_managed) {
        true => "p2pshim does not follow managed memory, nor with HIP memory of other processes.",
        false => "",
    };
    Some(Words::from(text).more(more))
}

/// Copies of arrays that were made where they were not seen.
fn unplaced(report: &Report) -> Option<Words> {
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
    Some(Words::from(text).more(more))
}

#[cfg(test)]
mod tests {
    use std::path::Path as FilePath;

    use p2pshim_trace::{NoteKind, Path as Taken, Trace, Why};

    use super::*;
    use crate::report::gather::{Options, gather_from};
    use crate::report::model::{End, How, Run};
    use crate::report::scene::opposites::contradictions;
    use crate::report::scene::{self, Call, Folder, Scene};

    /// The facts about a program that makes a copy on such a path, and whose trace notes such a verdict on the pair and this access.
    fn facts(path: u8, verdict: Option<&str>, access: Option<&str>) -> Report {
        let folder = Folder::new("verdict");
        let mut scene = Scene::named(&folder.0, "a.p2ptrace", 7, "node");
        scene.gpus(&[("GPU-a", "0000:1a:00.0"), ("GPU-b", "0000:3b:00.0")]);
        scene.call(&Call::copy(0, (0, 1), 4096, path));
        if let Some(verdict) = verdict {
            scene.note(0, NoteKind::Decision, 1, &["it was tested", &format!("verified={verdict}")]);
        }
        let both = access.map(|access| [1, 256].map(|pair| (pair, access)));
        both.iter().flatten().for_each(|(pair, access)| scene.note(0, NoteKind::Peer, *pair, &[access]));
        let name = scene.finish().display().to_string();
        let open = |_| Trace::open(FilePath::new(&name));
        let options = Options { symbols: false, with_arguments: true, suppress: None, filter: None };
        gather_from(std::slice::from_ref(&name), &[0], &open, &options)
    }

    /// The facts about one that ended well, after copies that were made directly between GPUs that were verified.
    fn well() -> Report {
        let mut facts = facts(scene::DIRECT, Some("right"), None);
        for file in &mut facts.files {
            (file.knows_last_copies, file.end) = (true, End { how: How::Exited, code: Some(0), ..End::default() });
        }
        facts
    }

    fn said(report: &Report) -> String {
        let all = sentences(report).into_iter().map(|it| format!("{}\n{}\n", it.text, it.more.unwrap_or_default()));
        all.collect()
    }

    /// One report once said both sentences of each of these pairs.
    #[test]
    fn sentences_say_one_of_two_that_contradict_each_other() {
        let checked = || vec![Run { is_checked: true, ..Run::default() }];
        let [first, left] = [Why::NotYetWorth, Why::BrokenNotEnabled].map(|why| Taken::Staged(why).number());
        let by_hand = Taken::ByHand.number();
        for (name, facts, says, never) in [
            (
                "right in the check, and an earlier check failed",
                Report { runs: checked(), ..facts(left, Some("avoided"), None) },
                "an earlier check found it broken",
                "were right in the check",
            ),
            (
                "a path that loses data, and copies by hand",
                facts(by_hand, Some("avoided"), None),
                "Leave it so",
                "Copy directly from GPU to GPU",
            ),
            (
                "no pair has a path, and first copies",
                facts(first, None, Some("access=0")),
                "which has no direct path",
                "before p2pshim looks for",
            ),
            (
                "tested in this run, and direct",
                facts(scene::DIRECT, Some("right"), None),
                "were direct",
                "was not verified in this run",
            ),
        ] {
            let said = said(&facts);
            assert!(said.contains(says) && !said.contains(never), "{name}: {said}");
            assert!(contradictions(&said).is_empty(), "{name}: {said}");
        }
        // Without the fact that decides, the other one is said.
        assert!(
            said(&Report { runs: checked(), ..facts(scene::DIRECT, None, None) }).contains("were right in the check")
        );
        assert!(said(&facts(by_hand, None, None)).contains("Copy directly from GPU to GPU"));
        assert!(said(&facts(first, None, Some("access=1"))).contains("before p2pshim looks for"));
        assert!(said(&facts(scene::DIRECT, None, None)).contains("was not verified in this run"));
    }

    #[test]
    fn sentences_new_one_is_a_row() {
        let mut facts = well();
        let mut rows = rows();
        rows.push(
            Row::new(Level::Note, "Two GPUs", |it: &Report| {
                (it.gpus.len() == 2).then(|| "There are two GPUs.".to_owned())
            })
            .unless(&["Fine"])
            .cause_of(&ENDS),
        );
        let words = |facts: &Report| evaluate(&rows, facts).into_iter().map(|it| it.word).collect::<Vec<_>>();
        assert_eq!(words(&facts), ["Fine"], "it gives way");
        facts.runs = vec![Run { end: End { code: Some(1), ..End::default() }, ..Run::default() }];
        assert_eq!(
            words(&facts),
            ["Two GPUs", "Failed", "Direct"],
            "it comes before the end, beside which nothing is fine"
        );
        facts.gpus.pop();
        assert_eq!(words(&facts), ["Failed", "Direct"], "it does not hold");
    }

    #[test]
    fn sentences_call_nothing_fine_beside_what_is_not() {
        let mut facts = well();
        let words = |report: &Report| sentences(report).into_iter().map(|it| it.word).collect::<Vec<_>>();
        assert_eq!(words(&facts), ["Fine"]);
        facts.gaps = vec!["2 records were lost".to_owned()];
        assert_eq!(words(&facts), ["Incomplete", "Direct"]);
    }

    #[test]
    fn rows_that_others_name_are_there() {
        let rows = rows();
        for name in [&ENDS[..], &[EXPECTED, BETWEEN, RUNNING, BEGUN]].concat() {
            assert_eq!(rows.iter().filter(|row| row.name() == name).count(), 1, "{name}");
        }
    }
}
