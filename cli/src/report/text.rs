//! The report for a person in a hurry: the verdict first, then what stands out, then the tables.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Write};

use super::ends;
use super::figures;
use super::gather::STATIC_RUNTIME;
use super::model::{
    Call, CopyCaller, CopyLine, CopySite, Decision, Durations, End, Ends, File, Gpu, How, Pair, Path, Progress, Report,
    Run, Site, Size, Span,
};
use super::paths::Class;
use super::processes::{may_be_several, ranks};
use super::term::{self, Style, bytes, clean, count, counted, duration};
use super::verdict::{self, Level, Sentence, path_text};

/// Rows of a list that are shown.
const SHOWN: usize = 20;
/// The column of the table of copies that says how many of them were timed.
const TIMED: usize = 5;
/// Places that are shown of each finding and error.
const SITES: usize = 4;

/// Writes the report.
pub(super) fn write(report: &Report, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let text = Text { report, style };
    if let Some(filter) = &report.filter {
        text.line(out, &format!("Only calls that fit {filter} are counted here."), "")?;
    }
    for sentence in verdict::first(report) {
        text.sentence(out, &sentence)?;
    }
    writeln!(out)?;
    text.head(out)?;
    text.runs(out)?;
    text.unfinished(out)?;
    text.last_copies(out)?;
    text.problems(out)?;
    text.pairs(out)?;
    text.sizes(out)?;
    text.processes(out)?;
    text.nvlink(out)?;
    text.lines(out)?;
    text.callers(out)?;
    text.findings(out)?;
    text.errors(out)?;
    text.decisions(out)?;
    text.marks(out)?;
    text.functions(out)
}

/// A time since 1970, in UTC.
fn date(nanos: u64) -> String {
    let seconds = nanos / 1_000_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of the year 0: each 400 years have 146 097.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

/// Which side of a column has the text.
#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

/// Lines of a table, the first of which are its names. If it is too wide, columns of `spare` are left out, the first of them
/// first; then the cells of the column `flexible` lose their ends.
fn table(
    rows: &[Vec<String>],
    sides: &[Side],
    width: Option<usize>,
    flexible: usize,
    mut spare: &[usize],
) -> Vec<String> {
    let wide = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let mut widths: Vec<usize> = (0..sides.len()).map(wide).collect();
    let whole = |widths: &[usize]| widths.iter().filter(|&&width| width > 0).map(|width| width + 2).sum::<usize>();
    while let (Some(width), Some((&first, rest))) = (width, spare.split_first())
        && whole(&widths) > width
    {
        // A column without a width is not there.
        widths.get_mut(first).into_iter().for_each(|width| *width = 0);
        spare = rest;
    }
    let all = whole(&widths);
    if let (Some(width), Some(flexible)) = (width, widths.get_mut(flexible)) {
        *flexible = flexible.saturating_sub(all.saturating_sub(width)).max(8);
    }
    let line = |row: &Vec<String>| {
        let shown = row.iter().zip(sides.iter().zip(&widths)).filter(|(_, (_, width))| **width > 0);
        let cells = shown.map(|(cell, (side, &width))| {
            let cell = if cell.chars().count() > width {
                cell.chars().take(width.saturating_sub(1)).chain(['…']).collect()
            } else {
                cell.clone()
            };
            match side {
                Side::Left => format!("{cell:width$}"),
                Side::Right => format!("{cell:>width$}"),
            }
        });
        format!("  {}", cells.collect::<Vec<_>>().join("  ")).trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

struct Text<'a> {
    report: &'a Report,
    style: Style,
}

impl Text<'_> {
    fn title(&self, out: &mut dyn Write, title: &str) -> io::Result<()> {
        writeln!(out, "\n{}", self.style.bold(title))
    }

    fn sentence(&self, out: &mut dyn Write, Sentence { level, text, more, .. }: &Sentence) -> io::Result<()> {
        for line in term::wrapped(&clean(text), self.style.width, "").lines() {
            writeln!(out, "{}", if *level == Level::Bad { self.style.red(line) } else { self.style.bold(line) })?;
        }
        more.as_ref().map_or(Ok(()), |more| self.line(out, more, ""))
    }

    fn line(&self, out: &mut dyn Write, text: &str, indent: &str) -> io::Result<()> {
        writeln!(out, "{}", term::wrapped(&clean(text), self.style.width, indent))
    }

    fn more(&self, out: &mut dyn Write, all: usize, where_all_are: &str) -> io::Result<()> {
        match all.checked_sub(SHOWN) {
            Some(more @ 1..) => writeln!(out, "  {}", self.style.dim(&format!("and {more} more ({where_all_are})"))),
            _ => Ok(()),
        }
    }

    fn head(&self, out: &mut dyn Write) -> io::Result<()> {
        let report = self.report;
        let read: Vec<&File> = report.processes().collect();
        let mut programs: Vec<String> = read.iter().map(|file| command(file)).filter(|it| !it.is_empty()).collect();
        programs.sort_unstable();
        programs.dedup();
        let others = match programs.len() {
            0 | 1 => String::new(),
            several => format!(", and {}", counted(several as u64 - 1, "other command line")),
        };
        let program = programs.first().map_or("not known", String::as_str);
        self.line(out, &format!("program    {program}{others}"), "           ")?;
        let hosts = report.hosts();
        let ranks = match ranks(report) {
            0 => String::new(),
            ranks => format!(", {}", counted(ranks as u64, "rank")),
        };
        // One that became another program is the same process.
        let all: Vec<&&File> = read.iter().filter(|file| file.end.how != How::Exec).collect();
        let processes = match all[..] {
            [file] => format!("pid {}", file.process.unwrap_or_default()),
            _ => format!("{} {}", count(all.len() as u64), report.counted()),
        };
        let shared = match all.len() {
            _ if report.counted() == "processes" => "",
            2 => ", which may be of one process",
            _ => ", some of which may be of one process",
        };
        let apart =
            if report.runs.iter().any(|run| may_be_several(report, run)) { ", not known to be of one run" } else { "" };
        self.line(
            out,
            &format!("ran on     {}: {processes}{shared}{ranks}{apart}", few(&hosts, "unknown host")),
            "           ",
        )?;
        let gpus: Vec<String> = report.gpus.iter().map(gpu_text).collect();
        let gpus: Vec<&str> = gpus.iter().map(String::as_str).collect();
        self.line(out, &format!("GPUs       {}", few(&gpus, "none seen")), "           ")?;
        // Records have ordinals, and names of GPUs belong to the vendor that was asked first.
        let is_of_both = |of: &File| {
            of.versions.contains_key("hip")
                && ["driver", "runtime", STATIC_RUNTIME].iter().any(|&of_cuda| of.versions.contains_key(of_cuda))
        };
        if read.iter().any(|file| is_of_both(file)) {
            let what = "CUDA and HIP in one process: each counts its own GPUs from 0, and this report does not distinguish them";
            self.line(out, &format!("           {what}"), "           ")?;
        }
        let versions: Vec<String> = ["p2pshim", "driver", "runtime", STATIC_RUNTIME, "hip"]
            .iter()
            .filter_map(|&what| {
                let mut all: Vec<&str> =
                    read.iter().filter_map(|file| Some(file.versions.get(what)?.as_str())).collect();
                all.sort_unstable();
                all.dedup();
                let (all, is_static) = (all.join(" and "), what == STATIC_RUNTIME);
                let version = if is_static {
                    format!("runtime {all}, linked statically (by strings inside)")
                } else {
                    format!("{what} {all}")
                };
                (!all.is_empty()).then_some(version)
            })
            .collect();
        if !versions.is_empty() {
            self.line(out, &format!("versions   {}", versions.join(", ")), "           ")?;
        }
        self.time(out)?;
        let sum = |what: fn(&File) -> u64| read.iter().map(|file| what(file)).fold(0, u64::saturating_add);
        let (calls, records, dropped) = (sum(|file| file.calls), sum(|file| file.records), sum(|file| file.dropped));
        let dropped = match dropped {
            0 if report.is_at_least() => " in what could be read".to_owned(),
            0 => ", none dropped".to_owned(),
            _ => self.style.yellow(&format!(
                ", in {}; {} more were not written",
                counted(records, "record"),
                count(dropped)
            )),
        };
        writeln!(out, "calls      {}{dropped}", count(calls))
    }

    /// How long all of it took, as far as that is known.
    fn time(&self, out: &mut dyn Write) -> io::Result<()> {
        let report = self.report;
        match (report.start(), report.end()) {
            (0, _) => writeln!(out, "time       not known"),
            (start, end) => {
                let seconds = |start: u64, end: u64| term::seconds(end.saturating_sub(start) as f64 / 1e9);
                let under_way =
                    report.unfinished.iter().filter_map(|call| Some(call.started.saturating_add(call.age_ns?)));
                let last_call = under_way.fold(end, u64::max);
                // Calls may be missing, or have been under way for a time that is not known.
                let is_least = report.is_at_least() || report.unfinished.iter().any(|call| call.age_ns.is_none());
                let least = if is_least { "at least " } else { "" };
                let calls = seconds(start, last_call);
                // Of the time between runs there is nothing to say.
                if let [Span { from: first, .. }, .., Span { from: last, .. }] = report.times[..] {
                    let all = report.times.iter().map(|it| it.to.saturating_sub(it.from)).fold(0, u64::saturating_add);
                    let least = if report.unfinished.is_empty() { least } else { "at least " };
                    let (all, parts) = (seconds(0, all), count(report.times.len() as u64));
                    let (first, last) = (date(first), date(last));
                    let text =
                        format!("{least}{all} in {parts} parts, the first from {first} on, the last from {last} on");
                    return self.line(out, &format!("time       {text}"), "           ");
                }
                let run = match report.runs[..] {
                    [Run { started, ended, end: End { how: How::Exited | How::Signal, .. }, .. }] => started.zip(ended),
                    _ => None,
                };
                match run {
                    // Those calls may be of processes that do not fit.
                    Some((start, end)) if report.filter.is_some() => {
                        writeln!(out, "time       {} from {} on", seconds(start, end), date(start))
                    }
                    Some((start, end)) => {
                        let calls = match last_call.saturating_sub(end) {
                            0 => format!("with calls in {least}{calls}"),
                            later => format!("and calls until {least}{} after it", term::seconds(later as f64 / 1e9)),
                        };
                        writeln!(out, "time       {} from {} on, {calls}", seconds(start, end), date(start))
                    }
                    None => writeln!(out, "time       {least}{calls} from {} on", date(start)),
                }
            }
        }
    }

    /// The runs, if there are several.
    fn runs(&self, out: &mut dyn Write) -> io::Result<()> {
        let runs = &self.report.runs;
        if runs.len() < 2 {
            return Ok(());
        }
        self.title(out, &format!("{} runs: what follows is of all of them together", runs.len()))?;
        let names = ["started", "run", "program", self.report.counted(), "bytes", "staged", "ended"];
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
    fn processes(&self, out: &mut dyn Write) -> io::Result<()> {
        let files: Vec<&File> = self.report.processes().collect();
        if files.len() < 2 {
            return Ok(());
        }
        let mut files = files;
        files.sort_by_key(|file| file.differs.is_empty());
        self.title(out, "Processes")?;
        let names = ["process", "host", "copied", "staged", "last copy", "", "ended"];
        let mut rows = vec![names.map(str::to_owned).to_vec()];
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
                last.map_or_else(|| "none".to_owned(), at),
                clean(&last.and_then(way).unwrap_or_default()),
                ended(&file.end),
            ]);
        }
        use Side::{Left, Right};
        let lines = table(&rows, &[Left, Left, Right, Right, Right, Left, Left], self.style.width, 1, &[5]);
        let differ = std::iter::once(false).chain(files.iter().map(|file| !file.differs.is_empty()));
        for (line, differs) in lines.iter().zip(differ) {
            writeln!(out, "{}", if differs { self.style.yellow(line) } else { line.clone() })?;
        }
        self.more(out, files.len(), "--json has all")
    }

    fn pairs(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut pairs: Vec<&Pair> = self.report.pairs.iter().collect();
        if pairs.is_empty() {
            return Ok(());
        }
        pairs.sort_by_key(|pair| (!pair.is_blocked, std::cmp::Reverse(pair.bytes), pair.src, pair.dst));
        self.title(out, "Copies")?;
        let names = ["pair", "copies", "bytes", "path", "GB/s", "timed", "host p50", "p99", "max", "errors"];
        let mut rows = vec![names.map(str::to_owned).to_vec()];
        let mut marks = vec![false];
        for pair in pairs.iter().take(SHOWN) {
            let name = format!("{} > {}", self.report.label(pair.src), self.report.label(pair.dst));
            let time = |time: Option<u64>| time.map_or_else(|| "-".to_owned(), duration);
            let errors = if pair.errors == 0 { "-".to_owned() } else { count(pair.errors) };
            let nothing = Path { path: "-".to_owned(), calls: pair.calls, host_ns: pair.host_ns, ..Path::default() };
            let paths = if pair.paths.is_empty() { std::slice::from_ref(&nothing) } else { pair.paths.as_slice() };
            for (index, path) in paths.iter().enumerate() {
                let text = path_text(&path.path, path.why.as_ref());
                let first = |text: &str| if index == 0 { text.to_owned() } else { String::new() };
                let timed = timed(path.device_calls, path.calls);
                let Durations { p50, p99, max, .. } = path.host_ns;
                rows.push(vec![
                    first(&clean(&name)),
                    count(path.calls),
                    bytes(path.bytes),
                    clean(&text),
                    rate(path.gb_per_s, path.device_calls < path.calls),
                    timed,
                    roughly(p50, max),
                    roughly(p99, max),
                    time(max),
                    first(&errors),
                ]);
                marks.push(pair.is_blocked || path.class == Class::Avoidable && pair.access == Some(true));
            }
        }
        hide_timed(&mut rows, TIMED);
        use Side::{Left, Right};
        let lines = table(
            &rows,
            &[Left, Right, Right, Left, Right, Right, Right, Right, Right, Right],
            self.style.width,
            3,
            &[7, 6, 8, TIMED],
        );
        for (line, is_marked) in lines.iter().zip(marks) {
            writeln!(out, "{}", if is_marked { self.style.yellow(line) } else { line.clone() })?;
        }
        self.more(out, pairs.len(), "--csv has all")
    }

    /// The copies of pairs by their sizes, where these differ.
    fn sizes(&self, out: &mut dyn Write) -> io::Result<()> {
        let differ =
            |pair: &&Pair| pair.sizes.iter().any(|size| Some(size.from) != pair.sizes.first().map(|first| first.from));
        let pairs = self.report.pairs.iter().filter(differ);
        let mut sizes: Vec<(&Pair, &Size)> =
            pairs.flat_map(|pair| pair.sizes.iter().map(move |size| (pair, size))).collect();
        if sizes.is_empty() {
            return Ok(());
        }
        sizes.sort_by_key(|(pair, size)| {
            (!pair.is_blocked, std::cmp::Reverse(pair.bytes), pair.src, pair.dst, size.from)
        });
        self.title(out, "Sizes of copies")?;
        let names = ["pair", "a copy has", "copies", "bytes", "path", "GB/s"];
        let mut rows = vec![names.map(str::to_owned).to_vec()];
        let mut last = None;
        for (pair, size) in sizes.iter().take(SHOWN) {
            let name = format!("{} > {}", self.report.label(pair.src), self.report.label(pair.dst));
            let is_new = last.replace((pair.src, pair.dst)) != Some((pair.src, pair.dst));
            rows.push(vec![
                if is_new { clean(&name) } else { String::new() },
                format!("< {}", bytes(size.to)),
                count(size.calls),
                bytes(size.bytes),
                clean(&path_text(&size.path, size.why.as_ref())),
                rate(size.gb_per_s, size.device_calls < size.calls),
            ]);
        }
        use Side::{Left, Right};
        for line in table(&rows, &[Left, Right, Right, Right, Left, Right], self.style.width, 4, &[]) {
            writeln!(out, "{line}")?;
        }
        self.more(out, sizes.len(), "--json has all")
    }

    /// What the counters of each GPU say, and what copies explain.
    fn nvlink(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(nvlink) = self.report.nvlink.as_ref().filter(|nvlink| nvlink.carried_bytes > 0) else { return Ok(()) };
        self.title(out, "NVLink, by NVML's counters")?;
        let names = ["GPU", "sent", "of this by copies", "received", "of this by copies"];
        let mut rows = vec![names.map(str::to_owned).to_vec()];
        for row in nvlink.gpus.iter().take(SHOWN) {
            let (sent, received) = (row.sent_bytes, row.received_bytes);
            let explained = [row.copied_from_bytes.min(sent), row.copied_to_bytes.min(received)].map(bytes);
            let [from, to] = explained;
            rows.push(vec![clean(self.report.label(row.gpu)), bytes(sent), from, bytes(received), to]);
        }
        use Side::{Left, Right};
        for line in table(&rows, &[Left, Right, Right, Right, Right], self.style.width, 0, &[]) {
            writeln!(out, "{line}")?;
        }
        self.more(out, nvlink.gpus.len(), "--json has all")
    }

    /// Which lines of a Python program copy, as far as they were looked at.
    fn lines(&self, out: &mut dyn Write) -> io::Result<()> {
        self.origins(out, "Lines of Python that copy", |site| {
            site.lines.iter().map(|CopyLine { line, calls }| (line.to_string(), *calls)).collect()
        })
    }

    /// Which functions of the program copy by a runtime whose calls are not seen, likewise.
    fn callers(&self, out: &mut dyn Write) -> io::Result<()> {
        self.origins(out, "Call sites that copy", |site| {
            site.callers.iter().map(|CopyCaller { caller, calls }| (caller.clone(), *calls)).collect()
        })
    }

    /// What else is known of where copies came from: `of` gives it for a place in the code, each with how often it was found.
    fn origins(
        &self,
        out: &mut dyn Write,
        title: &str,
        of: impl Fn(&CopySite) -> Vec<(String, u64)>,
    ) -> io::Result<()> {
        let sites = self.report.pairs.iter().flat_map(|pair| pair.sites.iter().map(move |site| (pair, site)));
        let mut sites: Vec<(&Pair, &CopySite)> = sites.filter(|(_, site)| !of(site).is_empty()).collect();
        if sites.is_empty() {
            return Ok(());
        }
        sites.sort_by_key(|(_, site)| std::cmp::Reverse(site.calls));
        self.title(out, title)?;
        for (pair, copies @ CopySite { site, calls, .. }) in sites.iter().take(SHOWN) {
            let (calls, origins) = (count(*calls), of(copies));
            let (src, dst) = (self.report.label(pair.src), self.report.label(pair.dst));
            self.line(out, &format!("  {src} > {dst}: {calls} from {site}"), "    ")?;
            for (origin, found) in origins.iter().take(SHOWN) {
                self.line(out, &format!("      {origin} ({} of {calls} looked at)", count(*found)), "        ")?;
            }
            self.more(out, origins.len(), "--json has all")?;
        }
        self.more(out, sites.len(), "--json has all")
    }

    /// Which process it was.
    fn process(&self, file: usize) -> String {
        let Some(file) = self.report.files.get(file) else { return String::new() };
        let rank = file.rank.as_ref().map(|rank| format!("rank {rank}, ")).unwrap_or_default();
        let host = file.host.as_ref().map(|host| format!("{host}, ")).unwrap_or_default();
        format!("{rank}{host}pid {}", file.process.unwrap_or_default())
    }

    fn unfinished(&self, out: &mut dyn Write) -> io::Result<()> {
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

    /// What processes have copied last that still run, or were ended by a signal: it may be what they wait for.
    fn last_copies(&self, out: &mut dyn Write) -> io::Result<()> {
        let last = |file: &&File| file.last_copy.as_ref().is_some_and(|call| call.age_ns.is_some());
        let files: Vec<&File> = self.report.files.iter().filter(last).collect();
        if files.is_empty() {
            return Ok(());
        }
        self.title(out, "Last copies that returned")?;
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
        let what = verdict::what(self.report, call);
        let text = format!(
            "  {}, thread {}{name}{state}: {}{inner}{what}{when}, from {}",
            self.process(call.file),
            call.thread,
            call.function,
            call.from
        );
        self.line(out, &text, "    ")
    }

    fn problems(&self, out: &mut dyn Write) -> io::Result<()> {
        let files: Vec<&File> = self.report.files.iter().filter(|file| !file.problems.is_empty()).collect();
        if files.is_empty() {
            return Ok(());
        }
        self.title(out, "About the files")?;
        for file in files.iter().take(SHOWN) {
            for problem in &file.problems {
                self.line(out, &format!("  {}: {problem}", file.path), "    ")?;
            }
        }
        self.more(out, files.len(), "--json has all")
    }

    fn sites(&self, out: &mut dyn Write, sites: &[Site]) -> io::Result<()> {
        for Site { from, count } in sites.iter().take(SITES) {
            let times = if *count > 1 { format!(", {} times", term::count(*count)) } else { String::new() };
            self.line(out, &format!("      at {from}{times}"), "        ")?;
        }
        match sites.len().checked_sub(SITES) {
            Some(more @ 1..) => {
                writeln!(out, "      {}", self.style.dim(&format!("and at {}", counted(more as u64, "other place"))))
            }
            _ => Ok(()),
        }
    }

    fn findings(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.report.findings.is_empty() {
            return Ok(());
        }
        self.title(out, "Findings (p2pshim explain ID says more)")?;
        for finding in self.report.findings.iter().take(SHOWN) {
            let head = format!("{} {}", finding.severity, finding.rule);
            let head = match finding.severity.as_str() {
                "error" => self.style.red(&clean(&head)),
                "hazard" => self.style.yellow(&clean(&head)),
                _ => clean(&head),
            };
            let least = verdict::least(finding);
            writeln!(out, "  {head}, found in {least}{}", counted(finding.count, "call"))?;
            if let Some(text) = &finding.text {
                self.line(out, &format!("      {text}"), "      ")?;
            }
            self.sites(out, &finding.sites)?;
        }
        self.more(out, self.report.findings.len(), "--json has all")
    }

    fn errors(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.report.errors.is_empty() {
            return Ok(());
        }
        self.title(out, "Errors")?;
        for error in self.report.errors.iter().take(SHOWN) {
            let code = match &error.name {
                Some(name) => format!("{name} ({})", error.code),
                None => error.code.to_string(),
            };
            let text = format!("  {} = {code}, {}", error.function, counted(error.count, "call"));
            self.line(out, &text, "      ")?;
            self.sites(out, &error.sites)?;
        }
        self.more(out, self.report.errors.len(), "--json has all")
    }

    fn decisions(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.report.decisions.is_empty() {
            return Ok(());
        }
        self.title(out, "Decisions")?;
        // The same of several processes once; what went wrong first.
        let mut all: Vec<(&Decision, usize)> = Vec::new();
        let mut known = HashMap::new();
        for decision in &self.report.decisions {
            let index = *known.entry((decision.src, decision.dst, &decision.text)).or_insert(all.len());
            match all.get_mut(index) {
                Some((_, times)) => *times += 1,
                None => all.push((decision, 1)),
            }
        }
        all.sort_by_key(|(decision, _)| !decision.is_bad());
        for (decision, times) in all.iter().take(SHOWN) {
            let at = decision.time.saturating_sub(self.report.start()) as f64 / 1e9;
            let pair = match (decision.src, decision.dst) {
                (Some(src), Some(dst)) => format!("{} > {}", self.report.label(src), self.report.label(dst)),
                _ => "unknown pair".to_owned(),
            };
            let process = match self.report.files.len() {
                1 => String::new(),
                _ if *times > 1 => format!(" ({}, and {times} in all)", self.process(decision.file)),
                _ => format!(" ({})", self.process(decision.file)),
            };
            let text = format!("  {at:.3} s  {pair}{process}: {}", decision.text);
            let text = term::wrapped(&clean(&text), self.style.width, "      ");
            writeln!(out, "{}", if decision.is_bad() { self.style.yellow(&text) } else { text })?;
        }
        self.more(out, all.len(), "--json has all")
    }

    fn marks(&self, out: &mut dyn Write) -> io::Result<()> {
        let marks = || self.report.files.iter().flat_map(|file| file.marks.iter().map(move |mark| (file, mark)));
        let count = marks().count();
        if count == 0 {
            return Ok(());
        }
        self.title(out, "Marks")?;
        for (file, mark) in marks().take(SHOWN) {
            let at = mark.time.saturating_sub(self.report.start()) as f64 / 1e9;
            let process = self.process(file.index);
            self.line(out, &format!("  {at:.3} s  {process}, thread {}: {}", mark.thread, mark.text), "      ")?;
        }
        self.more(out, count, "--json has all")
    }

    fn functions(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.report.functions.is_empty() {
            return Ok(());
        }
        self.title(out, "Functions, by their time on the host")?;
        // Calls inside others are timed now and then: their sum is not that of all.
        const TIMED: usize = 5;
        let names = ["function", "layer", "calls", "errors", "total", "timed", "p50", "p99", "max"];
        let mut rows = vec![names.map(str::to_owned).to_vec()];
        for function in self.report.functions.iter().take(SHOWN) {
            let time = |time: Option<u64>| time.map_or_else(|| "-".to_owned(), duration);
            let Durations { p50, p99, max, total } = function.host_ns;
            let errors = if function.errors == 0 { "-".to_owned() } else { count(function.errors) };
            rows.push(vec![
                clean(&function.name),
                clean(&function.layer),
                count(function.calls),
                errors,
                if function.untimed_calls > 0 { "-".to_owned() } else { duration(total) },
                timed(function.timed_calls, function.timed_calls + function.untimed_calls),
                roughly(p50, max),
                roughly(p99, max),
                time(max),
            ]);
        }
        hide_timed(&mut rows, TIMED);
        use Side::{Left, Right};
        let sides = [Left, Left, Right, Right, Right, Right, Right, Right, Right];
        for line in table(&rows, &sides, self.style.width, 0, &[7, 6, 8, TIMED]) {
            writeln!(out, "{line}")?;
        }
        self.more(out, self.report.functions.len(), "--json has all")
    }
}

/// A rate; with a sign if not all that it is of was measured.
fn rate(gb_per_s: Option<f64>, is_of_samples: bool) -> String {
    gb_per_s.map_or_else(|| "-".to_owned(), |rate| figures::rate(rate, is_of_samples))
}

/// A time of a histogram, the longest of which is known.
fn roughly(time: Option<u64>, max: Option<u64>) -> String {
    figures::roughly(time, max).unwrap_or_else(|| "-".to_owned())
}

/// How many of some calls were timed.
fn timed(timed: u64, calls: u64) -> String {
    match timed {
        0 => "-".to_owned(),
        timed if timed >= calls => "all".to_owned(),
        timed => format!("{} of {}", count(timed), count(calls)),
    }
}

/// Where all or none of each row were timed there is nothing to say of it.
fn hide_timed(rows: &mut [Vec<String>], column: usize) {
    if !rows.iter().skip(1).any(|row| row.get(column).is_some_and(|timed| timed.contains(" of "))) {
        rows.iter_mut().filter_map(|row| row.get_mut(column)).for_each(String::clear);
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
        End { how: How::CalledExit, code: Some(code), .. } => format!("exit({code})"),
        End { code: Some(code), .. } => format!("exit {code}"),
        End { how: How::Running, .. } => "runs".to_owned(),
        End { how: How::Exec, .. } => "exec".to_owned(),
        _ => "not known".to_owned(),
    }
}

/// The command line of a process.
fn command(file: &File) -> String {
    match file.program.as_slice() {
        [] => String::new(),
        [path] => path.clone(),
        [path, _, arguments @ ..] => [std::slice::from_ref(path), arguments].concat().join(" "),
    }
}

/// A GPU, where it is, and its number in the programs, if that is another than this report's.
fn gpu_text(gpu: &Gpu) -> String {
    let ordinals: BTreeSet<u8> = gpu.ordinals.values().copied().collect();
    let ordinal = ordinals.first().filter(|&&ordinal| ordinals.len() == 1 && u32::from(ordinal) != gpu.number);
    let known: Vec<String> = [
        gpu.pci.clone().filter(|pci| !pci.is_empty()),
        ordinal.map(|ordinal| format!("device {ordinal} of the program")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let known = if known.is_empty() { None } else { Some(format!("({})", known.join(", "))) };
    [Some(gpu.label.clone()), gpu.name.clone(), known].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The first of many, and how many more there are.
fn few(all: &[&str], none: &str) -> String {
    const FEW: usize = 8;
    let shown = all.iter().take(FEW).copied().collect::<Vec<_>>().join(", ");
    match all.len() {
        0 => none.to_owned(),
        number if number > FEW => format!("{shown} and {} more", number - FEW),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_text_has_the_number_in_the_program_if_it_is_another() {
        let gpu = |ordinals: &[u8]| Gpu {
            label: "GPU 1".to_owned(),
            number: 1,
            name: Some("H200".to_owned()),
            pci: Some("0000:02:00.0".to_owned()),
            ordinals: ordinals.iter().map(|&ordinal| (ordinal.to_string(), ordinal)).collect(),
            ..Gpu::default()
        };
        assert_eq!(gpu_text(&gpu(&[1])), "GPU 1 H200 (0000:02:00.0)");
        assert_eq!(gpu_text(&gpu(&[0])), "GPU 1 H200 (0000:02:00.0, device 0 of the program)");
        assert_eq!(gpu_text(&gpu(&[0, 1])), "GPU 1 H200 (0000:02:00.0)");
        assert_eq!(gpu_text(&Gpu { pci: None, name: None, ..gpu(&[]) }), "GPU 1");
    }

    #[test]
    fn date_leap_years_and_centuries() {
        for (seconds, shown) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_799, "2000-02-29 23:59:59 UTC"),
            (1_709_164_800, "2024-02-29 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(date(seconds * 1_000_000_000), shown);
        }
        assert!(date(u64::MAX).starts_with("2554-07-21"));
    }

    #[test]
    fn table_that_is_too_wide_loses_of_one_column() {
        let row = |text: &[&str]| text.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>();
        let rows = [row(&["a", "what is long, and can do without its end", "9"]), row(&["bb", "short", "10"])];
        let sides = [Side::Left, Side::Left, Side::Right];
        let lines = table(&rows, &sides, Some(30), 1, &[]);
        assert_eq!(lines, ["  a   what is long, and c…   9", "  bb  short                 10"]);
        assert!(table(&rows, &sides, None, 1, &[2])[0].ends_with("its end   9"));
    }

    #[test]
    fn table_that_is_too_wide_loses_what_is_spare_first() {
        let row = |text: &[&str]| text.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>();
        let rows = [row(&["pair", "path", "p50", "p99"]), row(&["0 > 1", "staged: never enabled", "1.0us", "2.0us"])];
        let sides = [Side::Left, Side::Left, Side::Right, Side::Right];
        let lines = |width: usize| table(&rows, &sides, Some(width), 1, &[3, 2]);
        assert_eq!(lines(44)[1], "  0 > 1  staged: never enabled  1.0us  2.0us");
        assert_eq!(lines(43), ["  pair   path                     p50", "  0 > 1  staged: never enabled  1.0us"]);
        assert_eq!(lines(30), ["  pair   path", "  0 > 1  staged: never enabled"]);
        assert_eq!(lines(29)[1], "  0 > 1  staged: never enabl…");
    }
}
