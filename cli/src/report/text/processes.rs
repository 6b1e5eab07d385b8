//! Runs and their processes: what each has copied, and how it ended.

use std::cmp::Reverse;
use std::io::{self, Write};

use super::{SHOWN, Text};
use crate::report::model::{BetweenProcesses, Call, End, Ends, File, How, Run};
use crate::report::shared;
use crate::report::term::{bytes, clean, count, date};
use crate::table::Table;

impl Text<'_> {
    /// The runs, if there are several.
    pub(super) fn runs(&self, out: &mut dyn Write) -> io::Result<()> {
        let runs = &self.report.runs;
        if runs.len() < 2 {
            return Ok(());
        }
        self.title(out, &format!("{} runs: what follows is of all of them together", runs.len()))?;
        let table = Table::of(runs.iter().take(SHOWN))
            .text("started", |it| it.started.map_or_else(|| "not known".to_owned(), date))
            .text("run", |it| clean(it.id.as_deref().unwrap_or("not known")))
            .text("program", |it| clean(&it.command.join(" ")))
            .number("processes", |it| count(it.ends.iter().map(|ends| ends.processes).sum()))
            .number("bytes", |it| bytes(it.copied_bytes))
            .number("staged", |it| share(it.staged_bytes, it.copied_bytes))
            .text("ended", |it| self.end_of(it))
            .flexible(2)
            .spare(&[1, 3]);
        self.table(out, table, |_| false, (runs.len(), "--json has all"))
    }

    /// How the program of a run ended; or its processes, if that is not known, or if they are not all of one program.
    fn end_of(&self, run: &Run) -> String {
        let files = run.files.iter().filter_map(|&file| self.report.files.get(file));
        let is_of_one = files.filter(|file| !file.is_child && file.end.how != How::Exec).count() < 2;
        match run.ends.as_slice() {
            _ if is_of_one && run.end.how != How::Unknown => ended(&run.end),
            [] => ended(&run.end),
            [all] => ended(&all.end),
            several => {
                let several =
                    several.iter().map(|Ends { end, processes }| format!("{} {}", count(*processes), ended(end)));
                several.collect::<Vec<_>>().join(", ")
            }
        }
    }

    /// The processes, if there are several: first those that stand out.
    pub(super) fn processes(&self, out: &mut dyn Write) -> io::Result<()> {
        let files: Vec<&File> = self.report.processes().collect();
        if files.len() < 2 {
            return Ok(());
        }
        let mut files = files;
        files.sort_by_key(|file| file.differs.is_empty());
        self.title(out, "Processes")?;
        let has_host = files.iter().any(|file| file.to_host_bytes > 0 || file.from_host_bytes > 0);
        let host = |size: u64| if has_host { bytes(size) } else { String::new() };
        let at = |call: &Call| format!("{:.3} s", call.started.saturating_sub(self.report.start()) as f64 / 1e9);
        let way = |call: &Call| Some(format!("{} > {}", self.report.label(call.src?), self.report.label(call.dst?)));
        let last = |file: &File| file.last_copy.as_ref().map_or_else(|| "none".to_owned(), at);
        let table = Table::of(files.iter().take(SHOWN).copied())
            .text("process", |it| clean(&it.name()))
            .text("host", |it| clean(it.host.as_deref().unwrap_or_default()))
            .number("copied", |it| bytes(it.copied_bytes))
            .number("staged", |it| share(it.staged_bytes, it.copied_bytes))
            .number("to host", |it| host(it.to_host_bytes))
            .number("from host", |it| host(it.from_host_bytes))
            .number("last copy", |it| last(it))
            .text("", |it| clean(&it.last_copy.as_ref().and_then(way).unwrap_or_default()))
            .text("ended", |it| ended(&it.end))
            .flexible(1)
            .spare(&[7, 5, 4]);
        self.table(out, table, |it| !it.differs.is_empty(), (files.len(), "--json has all"))
    }

    /// A table of copies between processes: opener, owner, and the memory of each.
    pub(super) fn between_processes(&self, out: &mut dyn Write) -> io::Result<()> {
        let report = self.report;
        let mut all: Vec<&BetweenProcesses> = report.between_processes.iter().collect();
        if all.is_empty() {
            return Ok(());
        }
        all.sort_by_key(|row| Reverse(row.bytes));
        self.title(out, "Copies between processes")?;
        let place = |gpu: usize| match report.gpus.get(gpu) {
            Some(gpu) if !gpu.is_another_process => clean(&gpu.label),
            _ => "not known".to_owned(),
        };
        let owner = |file: Option<usize>| clean(&shared::owner(report, file));
        let table = Table::of(all.iter().take(SHOWN).copied())
            .text("process", |it| owner(Some(it.file)))
            .number("copies", |it| count(it.calls))
            .number("bytes", |it| bytes(it.bytes))
            .text("from", |it| place(it.src))
            .text("memory of", |it| owner(it.src_file))
            .text("to", |it| place(it.dst))
            .text("memory of", |it| owner(it.dst_file))
            .text("opened by", |it| clean(&it.how.iter().cloned().collect::<Vec<_>>().join(", ")))
            .flexible(0)
            .spare(&[7, 1]);
        self.table(out, table, |_| false, (all.len(), "--json has all"))
    }
}

/// Which part of bytes was staged.
fn share(staged: u64, copied: u64) -> String {
    match staged as f64 / copied.max(1) as f64 * 100.0 {
        0.0 => "-".to_owned(),
        percent if percent < 1.0 => "<1 %".to_owned(),
        percent if percent > 99.0 && staged < copied => ">99 %".to_owned(),
        percent => format!("{percent:.0} %"),
    }
}

/// How a process ended.
fn ended(end: &End) -> String {
    match end {
        End { signal: Some(signal), .. } => signal.clone(),
        End { how: How::CalledExit, code: Some(code), .. } => format!("called exit {code}"),
        End { code: Some(code), .. } => format!("exit {code}"),
        End { how: How::Running, .. } => "runs".to_owned(),
        End { how: How::Exec, .. } => "exec".to_owned(),
        _ => "not known".to_owned(),
    }
}
