//! The text log: lines to standard error or a file.
//!
//! Children stand above the call around them, since a line is written when its call has returned. How a line waits for a reader,
//! and why: docs/dev/decisions/log-writes.md.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};
use std::sync::{Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use env_filter::Filter;
use log::{Level, Log, Metadata, Record};
use p2pshim_host::text::Escaped;
pub(crate) use p2pshim_trace::Verified;

use super::{CallSite, Event, FindingLine, exports, trace};
use crate::api::abi::Code;
use crate::api::codes::Numbering;
use crate::api::{Function, codes};
use crate::config::Config;
use crate::model::rules::Severity;
use crate::model::{Path, process};
use crate::os::{self, Descriptor};

/// The target of lines that show a call, for filters such as `P2PSHIM_LOG=warn,p2pshim::call=trace`.
const CALLS: &str = "p2pshim::call";
/// The target of lines on what the shim did about a call.
const DECISIONS: &str = "p2pshim::policy";
/// The target of lines on which functions were handed out.
const LOOKUPS: &str = "p2pshim::lookup";

/// Opens the log, and adds to `warnings` what was wrong with it. Returns whether calls are to be shown.
pub(crate) fn open(config: &Config, warnings: &mut Vec<String>) -> bool {
    let output = match &config.log_file {
        None => Descriptor::stderr(),
        // For as long as the process lives.
        Some(path) => Descriptor::append(path).map(|file| Some(&*Box::leak(Box::new(file)))).unwrap_or_else(|error| {
            warnings.push(format!("P2PSHIM_LOG_FILE={}: {error}; logging to standard error", path.display()));
            Descriptor::stderr()
        }),
    };
    let Some(output) = output else { return false };
    let _ = OUTPUT.set((output, config.log_file.is_none()));
    if config.log_file.is_some() {
        os::at_exit(say_what_is_lost);
    }
    if log::set_logger(&Lines).is_err() {
        return false;
    }
    set_filter(&config.log);
    shows_calls()
}

/// Where lines go, and whether other processes may write there as well.
static OUTPUT: OnceLock<(&Descriptor, bool)> = OnceLock::new();

/// Says at the process's end how many lines are lost since that was last said: on standard error, if the log takes none.
extern "C" fn say_what_is_lost() {
    let Some((output, _)) = OUTPUT.get().filter(|(output, _)| output.lost() > 0 && process::is_seen()) else {
        return;
    };
    os::undisturbed(|| output.write_line(b""));
    let lost = output.lost();
    if let Some(stderr) = Descriptor::stderr().filter(|_| lost > 0) {
        let line = format!("p2pshim: {lost} lines are lost: they could not be written to P2PSHIM_LOG_FILE\n");
        os::undisturbed(|| stderr.write_line(line.as_bytes()));
    }
}

/// Says in the log and in the trace that memory has run out, and what follows.
pub(crate) fn out_of_memory() {
    const SAID: &str = "out of memory: malloc has failed in p2pshim, which goes on with a reserve of its own. From now on p2pshim \
        verifies no further pair, makes none direct, and stages, records, shows and checks no call. It goes on counting calls, and what it \
        has enabled or hidden stays so. \
        Give the process more memory, or start it with P2PSHIM=off";
    log::warn!("{SAID}");
    trace::message(SAID);
}

/// The filter; it lets nothing through until the log is open. The program may change it. The standard library's lock: see [`os::lock`].
static FILTER: RwLock<Option<Filter>> = RwLock::new(None);

/// Writes what is let through, each line by itself.
struct Lines;

impl Log for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_let_through(|filter| filter.enabled(metadata))
    }

    fn log(&self, record: &Record<'_>) {
        // Not under the lock: writing takes time.
        if is_let_through(|filter| filter.matches(record))
            && let Some((output, is_shared)) = OUTPUT.get()
            && !(*is_shared && record.level() == Level::Warn && !exports::is_news(&record.args().to_string()))
        {
            let mut line = Vec::new();
            if write_line(&mut line, record).is_ok() {
                output.write_line(&line);
            }
        }
    }

    fn flush(&self) {}
}

fn is_let_through(by: impl FnOnce(&Filter) -> bool) -> bool {
    FILTER.read().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(by)
}

/// Lets through what a filter says, from now on.
pub(crate) fn set_filter(filter: &str) {
    // It was checked when it was taken for one.
    let Ok(filter) = env_filter::Builder::new().try_parse(filter).map(|read| read.build()) else { return };
    log::set_max_level(filter.filter());
    *FILTER.write().unwrap_or_else(PoisonError::into_inner) = Some(filter);
}

pub(crate) fn shows_calls() -> bool {
    log::log_enabled!(target: CALLS, Level::Trace)
}

/// Says what could not be used of the options.
pub(crate) fn warnings(warnings: &[String]) {
    for warning in warnings {
        trace::message(warning);
        log::warn!("{warning}");
    }
}

/// Says why calls are not recorded any more.
pub(crate) fn untraced(why: &str) {
    log::warn!("{why}");
}

/// Says what was done instead of what the program asked for.
pub(crate) fn decided(function: Function, what: &str) {
    log::info!(target: DECISIONS, "{}: {what}", function.name());
}

/// Says what the program has said of itself, and notes it in the trace.
pub(crate) fn marked(text: &str) {
    trace::mark(text);
    log::info!("mark: {text}");
}

/// Says why nothing was decided about a call.
pub(crate) fn forwarded(function: Function, why: &str) {
    log::trace!(target: DECISIONS, "{}: forwarded: {why}", function.name());
}

/// Says what was decided about a pair of devices.
pub(crate) fn pair_info(one: u8, other: u8, what: fmt::Arguments<'_>) {
    pair(Level::Info, one, other, None, what);
}

/// Says what the user has to know of a pair.
pub(crate) fn pair_warn(one: u8, other: u8, what: fmt::Arguments<'_>) {
    pair(Level::Warn, one, other, None, what);
}

/// Says what came of verifying that data goes from one device to another, and back.
pub(crate) fn pair_verified(from: u8, to: u8, verified: Verified, what: fmt::Arguments<'_>) {
    let level = if verified == Verified::Right { Level::Info } else { Level::Warn };
    pair(level, from, to, Some(verified), what);
}

fn pair(level: Level, one: u8, other: u8, verified: Option<Verified>, what: fmt::Arguments<'_>) {
    if trace::is_open() {
        let (text, verified) = (what.to_string(), verified.map(|verified| format!("verified={}", verified.name())));
        trace::decision(one, other, &[Some(text), verified].iter().flatten().map(String::as_str).collect::<Vec<_>>());
    }
    log::log!(target: DECISIONS, level, "peer access {}-{}: {what}", one.min(other), one.max(other));
}

/// The target of lines on what a program gets wrong.
const FINDINGS: &str = "p2pshim::finding";

/// Says what is wrong with a call: the first time in a place of the program, a note at `info` and all else at `warn`; later only that it
/// was so often. The meaning of a rule, and the remedy, are said once.
pub(crate) fn finding(said: &FindingLine<'_>, times: u64, caller: impl FnOnce() -> Option<CallSite>) {
    let finding = said.finding;
    let (id, name) = (finding.rule.id(), said.function.name());
    if times == 1 {
        let is_brief = !Once::Finding(finding.rule as u16).mark_logged();
        let text = super::text::Found { said: *said, caller: caller(), is_brief };
        if trace::is_open() {
            let (text, size) =
                (text.to_string(), finding.size.map(|size| [format!("size={size}"), format!("function={name}")]));
            let strings = [&text].into_iter().chain(size.iter().flatten());
            trace::finding(finding.rule, &strings.map(String::as_str).collect::<Vec<_>>());
        }
        let is_note = finding.rule.text().severity == Severity::Note;
        log::log!(target: FINDINGS, if is_note { Level::Info } else { Level::Warn }, "{text}");
    } else if [100, 10_000, 1_000_000].contains(&times) {
        log::info!(target: FINDINGS, "{id}: {name}: {times} times so far from the same place");
    }
}

pub(crate) fn call(event: &Event<'_>) {
    log::trace!(target: CALLS, "{event}");
}

/// A message that is logged once: about a function, by its number; about a pair of devices; or at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Once {
    Unavailable(u16),
    NoSlot(u16),
    Path([u8; 2], Path),
    Unverified((u8, u8)),
    Foreign([i32; 2]),
    StagedByUs([u8; 2]),
    FreedEarly,
    NoMemoryLeft,
    Finding(u16),
    NoVerdict,
    Risky,
    Export,
}

/// The mutex is the standard library's: see [`os::lock`].
static LOGGED: Mutex<BTreeSet<Once>> = Mutex::new(BTreeSet::new());

impl Once {
    /// Whether it was not logged yet, but is now.
    pub(crate) fn mark_logged(self) -> bool {
        os::lock(&LOGGED).insert(self)
    }

    /// Each is logged once more.
    pub(crate) fn forget_all() {
        os::lock(&LOGGED).clear();
    }
}

/// Says, once a function, that no loaded library has it.
pub(crate) fn unavailable(function: Function, ret: Code, numbering: Numbering) {
    if Once::Unavailable(function as u16).mark_logged() {
        log::warn!(
            "{name}: the program calls it, but no loaded {layer} library has it; returned {ret} ({code}). \
             Is the right version of the library on the library path?",
            name = function.name(),
            layer = function.layer().name(),
            ret = codes::name(function.layer(), ret).unwrap_or_default(),
            code = numbering.given(ret).0,
        );
    }
}

/// Says, once a function, that a look-up returned the real function for want of a slot.
pub(crate) fn no_slot(function: Function) {
    if Once::NoSlot(function as u16).mark_logged() {
        log::warn!(
            "{}: too many copies of the library are loaded; calls to this one are not intercepted",
            function.name()
        );
    }
}

/// Shows that look-ups return a hook of ours from now on.
pub(crate) fn looked_up(function: Function) {
    log::debug!(target: LOOKUPS, "a look-up found {}: its calls are intercepted", function.name());
}

fn write_line(out: &mut (impl Write + ?Sized), record: &Record<'_>) -> io::Result<()> {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    write!(out, "p2pshim {} {}/{} ", TimeOfDay(time), std::process::id(), os::thread_id())?;
    if record.level() < Level::Trace {
        let level = match record.level() {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug | Level::Trace => "debug",
        };
        write!(out, "{level}: ")?;
    }
    // Names of modules and options, and what a program says of itself, may have anything in them.
    writeln!(out, "{}", Escaped(record.args()))
}

/// Hours, minutes, seconds and microseconds of a time since 1970, in UTC.
struct TimeOfDay(Duration);

impl fmt::Display for TimeOfDay {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
        write!(out, "{hours:02}:{minutes:02}:{:02}.{:06}", seconds % 60, self.0.subsec_micros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_line_calls_have_no_level_and_warnings_do() {
        let line = |level| {
            let mut out = Vec::new();
            write_line(&mut out, &Record::builder().level(level).args(format_args!("text")).build()).unwrap();
            String::from_utf8(out).unwrap()
        };
        let ids = format!("{}/{}", std::process::id(), os::thread_id());
        assert!(line(Level::Trace).ends_with(&format!(" {ids} text\n")), "{}", line(Level::Trace));
        assert!(line(Level::Warn).ends_with(&format!(" {ids} warn: text\n")), "{}", line(Level::Warn));
        assert!(line(Level::Warn).starts_with("p2pshim "));
    }

    #[test]
    fn write_line_what_a_name_has_in_it_is_no_other_line_and_no_colour() {
        let mut out = Vec::new();
        let args = format_args!("{}", "at lib\x1b[31m.so\np2pshim 12:00:00.000000 1/1 warn: all is well");
        write_line(&mut out, &Record::builder().level(Level::Warn).args(args).build()).unwrap();
        let line = String::from_utf8(out).unwrap();
        assert!(line.ends_with("at lib\\x1b[31m.so\\np2pshim 12:00:00.000000 1/1 warn: all is well\n"), "{line}");
        assert_eq!(line.matches('\n').count(), 1);
    }

    #[test]
    fn time_of_day_wraps_at_midnight() {
        let time = Duration::new(86_400 + 3_723, 4_000);
        assert_eq!(TimeOfDay(time).to_string(), "01:02:03.000004");
    }
}
