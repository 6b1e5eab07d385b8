//! Calls that have not returned, and the last copies that have.

use std::io::{self, Write};

use super::{SHOWN, Text};
use crate::report::ends;
use crate::report::model::{Call, End, File, How, Progress};
use crate::report::sentence;
use crate::report::term::duration;

impl Text<'_> {
    pub(super) fn unfinished(&self, out: &mut dyn Write) -> io::Result<()> {
        let runs = |call: &Call| self.report.files.get(call.file).is_some_and(|file| file.end.how == How::Running);
        let of = |is_meant: &dyn Fn(&Call) -> bool| {
            self.report.unfinished.iter().filter(|call| is_meant(call)).collect::<Vec<_>>()
        };
        let never = of(&|call| matches!(call.progress, Progress::Hangs | Progress::Left));
        let now = of(&|call| call.progress == Progress::UnderWay && runs(call));
        let cut = of(&|call| call.progress == Progress::CutOff || call.progress == Progress::UnderWay && !runs(call));
        if !never.is_empty() {
            let may_run = |call: &&Call| self.report.files.get(call.file).is_some_and(|file| file.may_run);
            let title =
                if never.iter().all(may_run) { "Calls that had not returned" } else { "Calls that never returned" };
            writeln!(out, "\n{}", self.style.red(title))?;
            self.list_unfinished(out, &never)?;
        }
        if !cut.is_empty() {
            self.title(out, "Calls in which a process ended, or became another program")?;
            self.list_unfinished(out, &cut)?;
        }
        if !now.is_empty() {
            self.title(out, "Calls under way")?;
            self.list_unfinished(out, &now)?;
        }
        Ok(())
    }

    fn list_unfinished(&self, out: &mut dyn Write, calls: &[&Call]) -> io::Result<()> {
        for call in calls.iter().take(SHOWN) {
            let file = self.report.files.get(call.file);
            let runs = file.is_some_and(|file| file.end.how == How::Running);
            let state = match call.progress {
                Progress::Left => " left this call by an exception, a cancellation or a jump".to_owned(),
                _ if runs => " is in this call, and the process still runs".to_owned(),
                _ if file.is_some_and(|file| file.may_run) => " was in this call when the trace was read".to_owned(),
                _ => {
                    let left = ends::left(self.report, &[call]).trim_end_matches(',');
                    format!(" was in this call when the process {left}")
                }
            };
            let since = call.started.saturating_sub(self.report.start()) as f64 / 1e9;
            let last = file.map(|file| file.lived_after(call.started)).unwrap_or_default();
            let gone = || file.filter(|file| !file.may_run)?.gone_after(call.started);
            let seen = match (call.progress, call.age_ns.or_else(gone)) {
                (Progress::Left, _) => String::new(),
                (_, Some(age)) if runs => format!(", {} ago", duration(age)),
                (_, Some(age)) => format!(", {} before its end", duration(age)),
                (_, None) if last == 0 => String::new(),
                (_, None) => format!(", {} before the last sign of life", duration(last)),
            };
            self.call(out, call, &state, &format!(", begun at {since:.3} s{seen}"))?;
        }
        self.more(out, calls.len(), "--json has all")
    }

    /// Writes the last copies of processes that still run, or were ended by a signal: it may be what they wait for.
    pub(super) fn last_copies(&self, out: &mut dyn Write) -> io::Result<()> {
        let last = |file: &&File| file.last_copy.as_ref().is_some_and(|call| call.age_ns.is_some());
        let files: Vec<&File> = self.report.files.iter().filter(last).collect();
        if files.is_empty() {
            return Ok(());
        }
        self.title(out, "Last copy calls that returned")?;
        for (file, call) in files.iter().filter_map(|file| Some((file, file.last_copy.as_ref()?))).take(SHOWN) {
            let until = match &file.end {
                End { how: How::Running, .. } => "ago, and it still runs".to_owned(),
                End { signal: Some(signal), .. } => format!("before {signal} ended it"),
                _ => "before the run ended; it did not call `exit`".to_owned(),
            };
            self.call(out, call, &format!(", {} {until}", duration(call.age_ns.unwrap_or_default())), "")?;
        }
        self.more(out, files.len(), "--json has all")
    }

    /// A call: who is in which state of it, what it is about, and when it was.
    fn call(&self, out: &mut dyn Write, call: &Call, state: &str, when: &str) -> io::Result<()> {
        let file = self.report.files.get(call.file);
        let thread = file.and_then(|file| file.threads.iter().find(|thread| thread.id == call.thread));
        let name = thread.filter(|it| !it.name.is_empty()).map(|it| format!(" ({})", it.name)).unwrap_or_default();
        let inner = call.inner.as_ref().map(|inner| format!(", inside it {inner}")).unwrap_or_default();
        let what = sentence::what(self.report, call);
        let text = format!(
            "  {}, thread {}{name}{state}: {}{inner}{what}{when}, from {}",
            self.process(call.file),
            call.thread,
            call.function,
            call.from
        );
        self.line(out, &text, "    ")
    }
}
