//! The report in a few sentences, the worst first.

use std::collections::BTreeSet;

use serde::Serialize;

use super::model::{Call, Error, File, How, LostBy, NvLink, Pair, Path, Progress, Report, Run};
use super::paths::Class;
use super::term::{bytes, clean, count, counted, duration};

/// As decisions of traces have it.
pub(super) const IN_USE: &str = "in use";
/// How old a last copy is that is told of.
const LONG_NANOS: u64 = 1_000_000_000;
/// What a report without copies says besides.
const NOT_SEEN: &str = "What kernels load and store (NCCL, NVSHMEM) is not seen, nor are copies of managed memory.";
/// Pairs, processes and rules that a sentence names.
const NAMED: usize = 4;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// The program is wrong, hangs, or was ended.
    Bad,
    /// Something is to be done, or known.
    Warn,
    Good,
    Note,
}

/// Something that there is to say.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sentence {
    pub(super) level: Level,
    /// The same in one or two words.
    pub(super) word: &'static str,
    pub(super) text: String,
    /// What it rests on, or what to do about it.
    pub(super) more: Option<String>,
    /// The part of the page that says more.
    pub(super) section: Option<&'static str>,
}

impl Sentence {
    fn new(level: Level, word: &'static str, text: String) -> Self {
        Self { level, word, text, more: None, section: None }
    }

    fn more(self, more: impl Into<String>) -> Self {
        Self { more: Some(more.into()).filter(|more| !more.is_empty()), ..self }
    }

    fn section(self, section: &'static str) -> Self {
        Self { section: Some(section), ..self }
    }
}

/// What there is to say, the worst first; but before all what the numbers lack, and whether they are of several runs.
pub(super) fn sentences(report: &Report) -> Vec<Sentence> {
    let all = [
        gaps(report),
        several(report),
        in_use(report),
        ended(report),
        never_returned(report),
        ended_elsewhere(report),
        avoided(report),
        at_risk(report),
        failed(report),
        graded(report, "error"),
        slower(report),
        traffic(report),
        graded(report, "performance"),
        running(report),
        unclear(report),
        nvlink(report),
    ];
    let mut all: Vec<Sentence> = all.into_iter().flatten().collect();
    // Nothing is fine beside what is not, or before the end.
    let is_fine = all.iter().all(|it| matches!(it.level, Level::Good | Level::Note) && it.word != RUNNING);
    for sentence in all.iter_mut().filter(|sentence| sentence.level == Level::Good && !is_fine) {
        (sentence.level, sentence.word) = (Level::Note, DIRECT);
    }
    let (first, mut others): (Vec<Sentence>, Vec<Sentence>) =
        all.into_iter().partition(|sentence| [INCOMPLETE, SEVERAL].contains(&sentence.word));
    others.sort_by_key(|sentence| sentence.level as u8);
    first.into_iter().chain(others).collect()
}

/// Those that the text begins with: not what its lists say as well.
pub(super) fn first(report: &Report) -> Vec<Sentence> {
    let is_listed = |it: &Sentence| it.word == SLOW_CALLS || it.word == FAILED_CALLS && it.level == Level::Note;
    sentences(report).into_iter().filter(|sentence| !is_listed(sentence)).collect()
}

/// Where the page says how processes ended.
const PROCESSES: &str = "processes";
const INCOMPLETE: &str = "Incomplete";
const SEVERAL: &str = "Several runs";
const RUNNING: &str = "Still runs";
const DIRECT: &str = "Direct";
const FAILED_CALLS: &str = "Failed calls";
const SLOW_CALLS: &str = "Slow calls";

/// What could not be recorded or read.
fn gaps(report: &Report) -> Option<Sentence> {
    let gaps = Some(report.gaps.join("; ")).filter(|gaps| !gaps.is_empty())?;
    let text = match report.is_at_least() {
        true => format!("Not all is known: {gaps}. Each number is the least that it can be."),
        false => format!("Not all is known: {gaps}. Counts and bytes are whole."),
    };
    Some(Sentence::new(Level::Warn, INCOMPLETE, text).section(PROCESSES))
}

/// How programs ended that `p2pshim run` ran, if not well: the worst of them.
fn ended(report: &Report) -> Option<Sentence> {
    let how = |run: &Run| match (&run.end.signal, run.end.code) {
        (Some(signal), _) => Some((Level::Bad, "Ended", format!("was ended by {signal}"))),
        (None, Some(code @ (i32::MIN..=-1 | 1..))) => {
            Some((Level::Warn, "Failed", format!("exited with status {code}")))
        }
        _ => None,
    };
    let has_program = |run: &Run| report.processes().any(|file| file.is_program && run.files.contains(&file.index));
    let is_alone = !has_several_programs(report);
    let runs = report.runs.iter().filter(|run| is_alone || !has_program(run));
    let mut ends: Vec<_> = runs.filter_map(|run| Some((how(run)?, run))).collect();
    ends.sort_by_key(|((level, ..), _)| *level as u8);
    let others = match ends.len().saturating_sub(1) {
        0 => String::new(),
        1 => "; another run did not end well either".to_owned(),
        more => format!("; {more} other runs did not end well either"),
    };
    let ((level, word, how), run) = ends.into_iter().next()?;
    let text = format!("{} {how}{others}.", program(run));
    Some(Sentence::new(level, word, text).more(waited(report)).section(PROCESSES))
}

/// How long before the end a process copied last that did not exit, if that is long: it may have waited for it.
fn waited(report: &Report) -> String {
    let gone = report.processes().filter(|file| matches!(file.end.how, How::Signal | How::Unknown));
    let last = gone.filter_map(|file| file.last_copy.as_ref()).filter(|call| call.age_ns >= Some(LONG_NANOS));
    last.max_by_key(|call| call.age_ns).map_or_else(String::new, |call| {
        let (age, what) = (duration(call.age_ns.unwrap_or_default()), what(report, call));
        format!("The last copy of a process that did not exit returned {age} before: {}{what}.", call.function)
    })
}

/// The program of a run, in short.
pub(super) fn program(run: &Run) -> &str {
    let name = run.command.first().and_then(|path| path.rsplit('/').next());
    name.filter(|name| !name.is_empty()).unwrap_or("The program")
}

/// How processes ended: of one run those that are not its program, of several programs all.
fn ended_elsewhere(report: &Report) -> Option<Sentence> {
    let several = has_several_programs(report);
    let known: Vec<&File> =
        report.processes().filter(|file| if file.is_program { several } else { file.knows_exit }).collect();
    let is_child = report.runs.iter().any(|run| run.end.how != How::Unknown);
    let those = |wanted: &dyn Fn(&File) -> bool, one: &dyn Fn(&File) -> String, more: &str| {
        let files: Vec<&File> = known.iter().copied().filter(|file| wanted(file)).collect();
        let how = match files[..] {
            [] => return None,
            [file] => one(file),
            _ => more.to_owned(),
        };
        let who = match files[..] {
            [file] if known.len() == 1 && is_child => format!("a child process ({})", file.name()),
            [_] if known.len() == 1 => "the process".to_owned(),
            _ => {
                let names: Vec<String> = files.iter().take(NAMED).map(|file| file.name()).collect();
                let more = if files.len() > NAMED { ", …" } else { "" };
                format!("{} of {} processes ({}{more})", files.len(), known.len(), names.join(", "))
            }
        };
        Some(format!("{who} {how}"))
    };
    let killed = those(
        &|file| file.end.how == How::Signal,
        &|file| format!("was ended by {}", file.end.signal.as_deref().unwrap_or("a signal")),
        "were ended by a signal",
    );
    let failed = those(
        &|file| file.end.code.is_some_and(|code| code != 0),
        &|file| format!("exited with status {}", file.end.code.unwrap_or_default()),
        "exited with a status other than 0",
    );
    let is_gone = |file: &File| file.end.how == How::Unknown && !file.may_run;
    let gone = "ended without `exit`: by a signal, by `_exit`, or by `exec`";
    let gone = those(&is_gone, &|_| gone.to_owned(), gone);
    let not_seen = those(
        &|file| file.end.how == How::Unknown && file.may_run,
        &|_| {
            "has not called `exit`: it still runs elsewhere, or ended by a signal, by `_exit`, or by `exec`".to_owned()
        },
        "have not called `exit`: they still run elsewhere, or ended by a signal, by `_exit`, or by `exec`",
    );
    let word = if killed.is_none() && failed.is_none() && gone.is_none() { "No exit" } else { "Ended" };
    let level = if killed.is_some() { Level::Bad } else { Level::Warn };
    let said: Vec<String> = [failed, killed, gone, not_seen].into_iter().flatten().collect();
    let text = Some(said.join(", and ")).filter(|text| !text.is_empty())?;
    let more = if several { waited(report) } else { String::new() };
    Some(Sentence::new(level, word, format!("{}.", capital(&text))).more(more).section(PROCESSES))
}

/// Whether several processes are each the program of a run: ranks, for one.
fn has_several_programs(report: &Report) -> bool {
    report.processes().filter(|file| file.is_program).count() > 1
}

/// Processes that have not ended yet.
fn running(report: &Report) -> Option<Sentence> {
    let text = match report.processes().filter(|file| file.end.how == How::Running).count() {
        0 => return None,
        1 => "A process still runs; these are its numbers so far.".to_owned(),
        several => format!("{several} processes still run; these are their numbers so far."),
    };
    Some(Sentence::new(Level::Note, RUNNING, text).section(PROCESSES))
}

/// Pairs whose direct copies are slower than copies through the host, and that have direct copies.
fn slower(report: &Report) -> Option<Sentence> {
    let is_used = |pair: &&Pair| {
        pair.verified.as_deref() == Some("slower") && pair.paths.iter().any(|path| path.class == Class::Direct)
    };
    let pairs = report.pairs.iter().filter(is_used).map(|pair| (pair.src, pair.dst));
    let text = format!(
        "Direct copies {} were slower than copies through the host when they were verified, and the program makes them.",
        named(report, pairs)?
    );
    let more = "Run it with P2PSHIM_ACCESS=off, or with P2PSHIM_DENY for the pair, and compare.";
    Some(Sentence::new(Level::Warn, "Slow path", text).more(more).section("decisions"))
}

/// As a sentence begins.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

/// Numbers of several runs are added up.
fn several(report: &Report) -> Option<Sentence> {
    let runs = Some(report.runs.len()).filter(|&runs| runs > 1)?;
    let text = format!("These are {} runs, added up.", count(runs as u64));
    Some(Sentence::new(Level::Note, SEVERAL, text).section(PROCESSES))
}

/// Whether nothing is wrong: with the program, with pairs of GPUs, or with the trace itself. What is only slow is not wrong.
pub(super) fn is_fine(report: &Report) -> bool {
    let is_harmless =
        |it: &Sentence| matches!(it.level, Level::Good | Level::Note) || ["Staged", SLOW_CALLS].contains(&it.word);
    sentences(report).iter().all(is_harmless)
        && report.errors.is_empty()
        && report.decisions.iter().all(|it| !it.is_bad())
}

/// A path, and why it was taken.
pub(super) fn path_text(path: &str, why: Option<&String>) -> String {
    why.map_or_else(|| path.to_owned(), |why| format!("{path}: {why}"))
}

/// What a call copies: `, GPU 0 > GPU 1, 1.0 MB, direct`.
pub(super) fn what(report: &Report, call: &Call) -> String {
    let pair = match (call.src, call.dst) {
        (Some(src), Some(dst)) => format!(", {} > {}", report.label(src), report.label(dst)),
        _ => String::new(),
    };
    let size = call.bytes.map(|size| format!(", {}", bytes(size))).unwrap_or_default();
    let path = call.path.as_ref().map(|path| format!(", {}", path_text(path, call.why.as_ref()))).unwrap_or_default();
    format!("{pair}{size}{path}")
}

/// Pairs that lose data, or hang, and are used all the same: verification saw it, or copies have gone there.
fn in_use(report: &Report) -> Option<Sentence> {
    let decisions = report.decisions.iter().filter(|it| it.verified.as_deref() == Some(IN_USE));
    let seen = decisions.filter_map(|it| Some((it.src?, it.dst?)));
    let has_direct = |pair: &&Pair| pair.paths.iter().any(|path| path.class == Class::Direct && path.bytes > 0);
    // A pair is verified in both directions.
    let ends = |pair: &Pair| (pair.src.min(pair.dst), pair.src.max(pair.dst));
    let blocked: BTreeSet<(usize, usize)> = report.pairs.iter().filter(|pair| pair.is_blocked).map(ends).collect();
    let used = report.pairs.iter().filter(|pair| blocked.contains(&ends(pair))).filter(has_direct);
    let pairs = between(report, seen.chain(used.map(|pair| (pair.src, pair.dst))))?;
    let text = format!(
        "Data may be WRONG: peer access {pairs} lost data or hung in verification, and the program uses it all the same."
    );
    let more =
        "Run it with P2PSHIM_ACCESS=off, or with P2PSHIM_DENY for the pair, to send its copies through the host.";
    let more = if has_decision(report) { format!("{more} See Decisions for what happened.") } else { more.to_owned() };
    Some(Sentence::new(Level::Bad, "Data wrong", text).more(more).section("decisions"))
}

fn never_returned(report: &Report) -> Option<Sentence> {
    let mut calls = report.unfinished.iter().filter(|call| call.progress == Progress::Hangs);
    let first = calls.next()?;
    let what = format!("{}{}", first.function, what(report, first));
    let may_run = |call: &Call| report.files.get(call.file).is_some_and(|file| file.may_run);
    if report.unfinished.iter().filter(|call| call.progress == Progress::Hangs).all(may_run) {
        let text = match 1 + calls.count() {
            1 => format!("A call had not returned when the trace was read: {what}."),
            several => {
                format!("{} calls had not returned when the trace was read, such as {what}.", count(several as u64))
            }
        };
        return Some(Sentence::new(Level::Warn, "Not returned", text).section("unfinished"));
    }
    let text = match (1 + calls.count(), first.age_ns) {
        (1, Some(age)) => format!("A call has not returned for {}: {what}.", duration(age)),
        (1, None) => format!("A call never returned: {what}."),
        (several, Some(age)) => {
            format!("{} calls have not returned, such as, for {}, {what}.", count(several as u64), duration(age))
        }
        (several, None) => format!("{} calls never returned, such as {what}.", count(several as u64)),
    };
    Some(Sentence::new(Level::Bad, "Never returned", text).section("unfinished"))
}

/// What was kept off peer access that cannot be trusted.
fn avoided(report: &Report) -> Option<Sentence> {
    let pairs = report.pairs.iter().filter(|pair| blocked(pair) > 0);
    let names = between(report, pairs.map(|pair| (pair.src, pair.dst)))?;
    let bytes = bytes(blocked_bytes(report));
    let text = format!("{bytes} went through the host: peer access {names} lost data or hung in verification.");
    let text = at_least(report, text);
    let more = match has_decision(report) {
        true => "See Decisions for what happened; `p2pshim doctor` shows more.",
        false => "`p2pshim doctor` shows what happens there.",
    };
    Some(Sentence::new(Level::Bad, "Broken path", text).more(more).section("pairs"))
}

/// Whether a decision says what verification has seen of a pair that is not to be trusted.
fn has_decision(report: &Report) -> bool {
    report.decisions.iter().any(|it| matches!(it.verified.as_deref(), Some("avoided" | IN_USE)))
}

fn blocked_bytes(report: &Report) -> u64 {
    report.pairs.iter().map(blocked).fold(0, u64::saturating_add)
}

/// What went through the host of a pair that is not to be trusted: blocked, or not enabled in the first place.
fn blocked(pair: &Pair) -> u64 {
    let avoidable = pair.paths.iter().filter(|path| pair.is_blocked && path.class == Class::Avoidable);
    avoidable.map(|path| path.bytes).fold(pair.blocked_bytes, u64::saturating_add)
}

/// Findings by which data may be wrong.
fn at_risk(report: &Report) -> Option<Sentence> {
    let rules = rules(report, "hazard")?;
    let text = format!("Calls succeed, and the data may be wrong: {rules}.");
    Some(
        Sentence::new(Level::Bad, "Data at risk", text)
            .more("The findings name the place; `p2pshim explain` with a finding's name says what to do.")
            .section("findings"),
    )
}

/// Other findings: calls that are wrong, or slow.
fn graded(report: &Report, severity: &str) -> Option<Sentence> {
    let rules = rules(report, severity)?;
    let (word, what) = match severity {
        "error" => ("Wrong calls", "Calls fail, or would if the library checked"),
        _ => (SLOW_CALLS, "Calls take longer than necessary"),
    };
    let more = "The findings name the place and the remedy.";
    Some(Sentence::new(Level::Warn, word, format!("{what}: {rules}.")).more(more).section("findings"))
}

/// The rules of a severity that were broken, and in how many calls.
fn rules(report: &Report, severity: &str) -> Option<String> {
    let found: Vec<String> = report
        .findings
        .iter()
        .filter(|finding| finding.severity == severity)
        .map(|finding| format!("{} in {}", finding.rule, counted(finding.count, "call")))
        .collect();
    let shown = found.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match found.len() {
        0 => None,
        all if all > NAMED => Some(format!("{shown} and {} more", all - NAMED)),
        _ => Some(shown),
    }
}

/// Calls that failed.
fn failed(report: &Report) -> Option<Sentence> {
    // Enabled already, and not enabled: programs expect them.
    let is_expected = |error: &Error| matches!(error.numbering.usual(error.code), Some(704 | 705));
    let worst = report.errors.iter().min_by_key(|it| (is_expected(it), std::cmp::Reverse(it.count)))?;
    let name = worst.name.clone().unwrap_or_else(|| worst.code.to_string());
    let failed = report.errors.iter().map(|error| error.count).fold(0, u64::saturating_add);
    let text = match failed {
        1 => format!("A call failed: {} with {name}.", worst.function),
        _ => format!("Calls failed, such as {} of {} with {name}.", count(worst.count), worst.function),
    };
    let sentence = match is_expected(worst) {
        true => Sentence::new(Level::Note, FAILED_CALLS, text).more("Many programs expect this one."),
        false => Sentence::new(Level::Warn, FAILED_CALLS, text),
    };
    Some(sentence.section("errors"))
}

/// The same of both directions: `between GPU 0 and GPU 1`.
fn between(report: &Report, pairs: impl Iterator<Item = (usize, usize)>) -> Option<String> {
    let pairs: BTreeSet<(usize, usize)> = pairs.map(|(one, other)| (one.min(other), one.max(other))).collect();
    let names =
        pairs.iter().take(NAMED).map(|&(one, other)| format!("{} and {}", report.label(one), report.label(other)));
    let names = names.collect::<Vec<_>>().join(", ");
    match pairs.len() {
        0 => None,
        all if all > NAMED => Some(format!("between {names}, and {} more pairs", all - NAMED)),
        _ => Some(format!("between {names}")),
    }
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

/// A sentence that begins with a number, and says if that is the least.
fn at_least(report: &Report, what: String) -> String {
    if report.is_at_least() { format!("At least {what}") } else { what }
}

/// Copies whose path is not known.
fn unclear_bytes(report: &Report) -> u64 {
    let pairs = report.pairs.iter().filter(|pair| pair.src != pair.dst);
    let is_unclear = |path: &&Path| matches!(path.class, Class::Unknown | Class::Captured);
    pairs.flat_map(|pair| &pair.paths).filter(is_unclear).map(|path| path.bytes).fold(0, u64::saturating_add)
}

fn unclear(report: &Report) -> Option<Sentence> {
    let unclear = Some(unclear_bytes(report)).filter(|&bytes| bytes > 0)?;
    let text = format!("The path of {} is not known.", bytes(unclear));
    let pairs = report.pairs.iter().filter(|pair| pair.src != pair.dst);
    let is_managed = |path: &Path| {
        path.class == Class::Unknown
            && (path.path.contains("managed") || path.why.as_deref().is_some_and(|why| why.contains("managed")))
    };
    let more = match pairs.flat_map(|pair| &pair.paths).any(is_managed) {
        true => "Managed memory and memory of other processes are not followed.",
        false => "",
    };
    Some(Sentence::new(Level::Note, "Not known", text).more(more).section("pairs"))
}

/// Which path what took, and what it rests on.
fn traffic(report: &Report) -> Option<Sentence> {
    let sentence = copied(report)?;
    let is_cut = |file: &File| file.knows_exit && matches!(file.end.how, How::Signal | How::Unknown);
    if report.pairs.iter().all(|pair| pair.bytes == 0) || !report.processes().any(is_cut) {
        return Some(sentence);
    }
    let queued = "Copies that were queued last may not have been made.";
    let more = sentence.more.as_ref().map_or_else(|| queued.to_owned(), |more| format!("{more} {queued}"));
    Some(sentence.more(more))
}

fn copied(report: &Report) -> Option<Sentence> {
    let say = |level: Level, word: &'static str, text: String| {
        Some(Sentence::new(level, word, at_least(report, text)).section("pairs"))
    };
    let lost = &report.lost;
    let copies: u64 = report.pairs.iter().map(|pair| pair.calls).sum();
    if copies == 0 {
        // What NVLink carried is to follow at once, and says what is not seen.
        let more = if nvlink(report).is_none() { NOT_SEEN } else { "" };
        let has_failed = report.errors.iter().any(|error| error.function.contains("Memcpy"));
        let seen = if has_failed { "is known to have succeeded" } else { "was seen" };
        return Some(Sentence::new(Level::Note, "No copies", format!("No copy between GPUs {seen}.")).more(more));
    }
    let paths = || report.pairs.iter().flat_map(|pair| &pair.paths);
    let direct = paths().filter(|path| path.class == Class::Direct).map(|path| path.bytes).fold(0, u64::saturating_add);
    // Without what went well, a pair's first copies read as if nothing had been repaired.
    let beside = |staged: u64| match direct {
        0 => bytes(staged),
        direct => format!("{} went directly; {}", bytes(direct), bytes(staged)),
    };
    let (could, start_up, blocked) = (lost.could_be_direct_bytes, lost.start_up_bytes, blocked_bytes(report));
    let rest = lost.staged_bytes.saturating_sub(could).saturating_sub(start_up).saturating_sub(blocked);
    let why = |of: Class| reasons(report, of).map(|reasons| format!(" ({reasons})")).unwrap_or_default();
    if could > 0 {
        let staged = beside(could);
        let reasons = reasons(report, Class::Avoidable).map(|it| format!("Staged because: {it}. ")).unwrap_or_default();
        let is_unverified = |pair: &Pair| {
            let has = |class| pair.paths.iter().any(|path| path.class == class);
            pair.verified.is_none() && has(Class::Avoidable) && !has(Class::Direct)
        };
        let reasons = match report.pairs.iter().any(is_unverified) {
            true => format!("{reasons}Whether data arrives was not tested; P2PSHIM_ACCESS=auto tests that first. "),
            false => reasons,
        };
        let rest = match rest {
            0 => String::new(),
            _ => format!(" {} more had no better path{}.", bytes(rest), why(Class::Staged)),
        };
        let rest = match start_up {
            0 => rest,
            _ => format!("{rest} {} more were the first copies of pairs.", bytes(start_up)),
        };
        let took = longer(report).map(|took| format!(", which took {took}")).unwrap_or_default();
        let basis = if took.is_empty() { "How much longer that took is not known" } else { "How much longer" };
        return say(Level::Warn, "Staged", format!("{staged} were staged but could be direct{took}."))
            .map(|sentence| sentence.more(format!("{reasons}{basis}: {}.{rest}", lost.basis)));
    }
    if rest > 0 {
        let why = match reasons(report, Class::Staged).as_deref() {
            Some("denied") => " because P2PSHIM_ACCESS=off or P2PSHIM_DENY says so".to_owned(),
            Some(reasons) => format!(" ({reasons})"),
            None => format!("; {}", lost.basis),
        };
        let first = match start_up {
            0 => String::new(),
            _ => format!("; {} more, as the first copies of a pair are", bytes(start_up)),
        };
        return say(Level::Note, "Staged", format!("{} were staged{why}{first}.", beside(rest)));
    }
    let total = report.pairs.iter().map(|pair| pair.bytes).fold(0, u64::saturating_add);
    match (direct, start_up) {
        (0, 0) if total == 0 => {
            let has_succeeded = paths().any(|path| path.calls > 0);
            let text = match report.pairs.iter().map(|pair| pair.errors).sum::<u64>() {
                _ if has_succeeded => "Only copies of 0 bytes were made.".to_owned(),
                1 if copies == 1 => "The only copy between GPUs failed.".to_owned(),
                failed if failed == copies => format!("All {} copies between GPUs failed.", count(copies)),
                _ => "No copy between GPUs is known to have finished.".to_owned(),
            };
            Some(Sentence::new(Level::Note, "No copies", text).section("pairs"))
        }
        (0, 0) if blocked > 0 => None,
        (0, 0) if report.pairs.iter().all(|pair| pair.src == pair.dst) => {
            say(Level::Note, "Copied", format!("{} were copied within one GPU.", bytes(total)))
        }
        (0, 0) => say(Level::Note, "Copied", format!("{} were copied, none of it known to be staged.", bytes(total))),
        (0, start_up) => {
            let can_be =
                |pair: &Pair| pair.access != Some(false) && pair.paths.iter().any(|path| path.class == Class::StartUp);
            let more = match blocked == 0 && report.pairs.iter().any(can_be) {
                true => {
                    "A pair gets access with the copy that makes it more than 1 MiB, or the 17th, if data is seen to arrive."
                }
                false => "",
            };
            say(
                Level::Note,
                "Few copies",
                format!("{} were staged, as the first copies of a pair are.", bytes(start_up)),
            )
            .map(|sentence| sentence.more(more))
        }
        (direct, start_up) => {
            let more = match start_up {
                0 if blocked > 0 || unclear_bytes(report) > 0 || report.is_at_least() => String::new(),
                0 => "; nothing was staged".to_owned(),
                start_up => format!("; {} were staged, as the first copies of a pair are", bytes(start_up)),
            };
            let (level, word) = if unclear_bytes(report) > 0 { (Level::Note, DIRECT) } else { (Level::Good, "Fine") };
            let text = format!("{} went directly from GPU to GPU{more}.", bytes(direct));
            say(level, word, text)
        }
    }
}

/// How much longer staging took, by the copies that were measured, and in the process that it cost most.
fn longer(report: &Report) -> Option<String> {
    let lost = &report.lost;
    let all = lost.seconds?;
    let name = |worst: &LostBy| report.files.get(worst.file).filter(|_| report.files.len() > 1).map(File::name);
    let who = match (&lost.processes[..], lost.processes.first().and_then(name)) {
        ([_], Some(name)) => format!(", in {name}"),
        ([worst, ..], Some(name)) => format!(" in all processes, and {} in {name}", seconds_of(worst.seconds)),
        _ => String::new(),
    };
    let estimate = match (lost.measured_calls, lost.could_be_direct_calls) {
        (measured @ 1.., calls) if measured < calls && lost.measured_bytes > 0 => {
            let all = all * (lost.could_be_direct_bytes as f64 / lost.measured_bytes as f64);
            format!(" by what was measured ({} if the rest took as long for each byte)", seconds_of(all))
        }
        _ => String::new(),
    };
    Some(format!("about {} longer{who}{estimate}", seconds_of(all)))
}

/// What NVLink carried, if that is known.
fn nvlink(report: &Report) -> Option<Sentence> {
    let NvLink { text, more, .. } = report.nvlink.as_ref().filter(|nvlink| !nvlink.text.is_empty())?;
    let has_copies = report.pairs.iter().any(|pair| pair.calls > 0);
    let more = if more.is_empty() && !has_copies { NOT_SEEN } else { more };
    Some(Sentence::new(Level::Note, "NVLink", text.clone()).more(more).section("environment"))
}

/// Why most of what was staged was: of what could be direct, or of what could not.
fn reasons(report: &Report, of: Class) -> Option<String> {
    let mut reasons: Vec<(&str, u64)> = Vec::new();
    let pairs = report.pairs.iter().filter(|pair| of != Class::Avoidable || pair.access == Some(true));
    for path in pairs.flat_map(|pair| &pair.paths).filter(|path| path.class == of) {
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
