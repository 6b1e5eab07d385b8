//! Runs and their processes: what each has copied, and how it ended.

use std::cmp::Reverse;
use std::io::{self, Write};

use super::table::{Side, table};
use super::{SHOWN, Text};
use crate::report::model::{BetweenProcesses, Call, End, Ends, File, How, Run};
use crate::report::shared;
use crate::report::term::{bytes, clean, count, date};

impl Text<'_> {
    /// The runs, if there are several.
    pub(super) fn runs(&self, out: &mut dyn Write) -> io::Result<()> {
        let runs = &self.report.runs;
        if runs.len() < 2 {
            return Ok(());
        }
        self.title(out, &format!("{} runs: what follows is of all of them together", runs.len()))?;
        let names = ["started", "run", "program", "processes", "bytes", "staged", "ended"];
        let mut rows = vec![names.map(str::to_owned).to_vec()];
        for run in runs.iter().take(SHOWN) {
            rows.push(vec![
                run.started.map_or_else(|| "not known".to_owned(), date),
                clean(run.id.as_deref().unwrap_or("not known")),
                clean(&run.command.join(" ")),
                count(run.ends.iter().map(|ends| ends.processes).sum()),
                bytes(run.copied_bytes),
                share(run.staged_bytes, run.copied_bytes),
                self.end_of(run),
            ]);
        }
        use Side::{Left, Right};
        for line in table(&rows, &[Left, Left, Left, Right, Right, Right, Left], self.style.width, 2, &[1, 3]) {
            writeln!(out, "{line}")?;
        }
        self.more(out, runs.len(), "--json has all")
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
        // A column without any text is not shown.
        let has_host = files.iter().any(|file| file.to_host_bytes > 0 || file.from_host_bytes > 0);
        let host = |text: String| if has_host { text } else { String::new() };
        let names = ["process", "host", "copied", "staged", "to host", "from host", "last copy", "", "ended"];
        let mut rows = vec![names.map(str::to_owned).to_vec()];
        rows.iter_mut().flat_map(|row| row.iter_mut().skip(4).take(2)).for_each(|name| *name = host(name.clone()));
        for file in files.iter().take(SHOWN) {
            let at = |call: &Call| format!("{:.3} s", call.started.saturating_sub(self.report.start()) as f64 / 1e9);
            let way =
                |call: &Call| Some(format!("{} > {}", self.report.label(call.src?), self.report.label(call.dst?)));
            let last = file.last_copy.as_ref();
            rows.push(vec![
                clean(&file.name()),
                clean(file.host.as_deref().unwrap_or_default()),
                bytes(file.copied_bytes),
                share(file.staged_bytes, file.copied_bytes),
                host(bytes(file.to_host_bytes)),
                host(bytes(file.from_host_bytes)),
                last.map_or_else(|| "none".to_owned(), at),
                clean(&last.and_then(way).unwrap_or_default()),
                ended(&file.end),
            ]);
        }
        use Side::{Left, Right};
        let sides = [Left, Left, Right, Right, Right, Right, Right, Left, Left];
        let lines = table(&rows, &sides, self.style.width, 1, &[7, 5, 4]);
        let differ = std::iter::once(false).chain(files.iter().map(|file| !file.differs.is_empty()));
        for (line, differs) in lines.iter().zip(differ) {
            writeln!(out, "{}", if differs { self.style.yellow(line) } else { line.clone() })?;
        }
        self.more(out, files.len(), "--json has all")
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
        let names = ["process", "copies", "bytes", "from", "memory of", "to", "memory of", "opened by"];
        let mut rows = vec![names.map(str::to_owned).to_vec()];
        for row in all.iter().take(SHOWN) {
            let place = |gpu: usize| match report.gpus.get(gpu) {
                Some(gpu) if !gpu.is_another_process => clean(&gpu.label),
                _ => "not known".to_owned(),
            };
            rows.push(vec![
                clean(&shared::owner(report, Some(row.file))),
                count(row.calls),
                bytes(row.bytes),
                place(row.src),
                clean(&shared::owner(report, row.src_file)),
                place(row.dst),
                clean(&shared::owner(report, row.dst_file)),
                clean(&row.how.iter().cloned().collect::<Vec<_>>().join(", ")),
            ]);
        }
        use Side::{Left, Right};
        let sides = [Left, Right, Right, Left, Left, Left, Left, Left];
        for line in table(&rows, &sides, self.style.width, 0, &[7, 1]) {
            writeln!(out, "{line}")?;
        }
        self.more(out, all.len(), "--json has all")
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
