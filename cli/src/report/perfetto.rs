//! `--perfetto`: trace events for ui.perfetto.dev and chrome://tracing, written as they are read.
//!
//! A file is a process with its threads. A call is one event, or two if it was left: nobody knows when, and it is shown until the
//! end of what was inside it. The copies of a host's GPUs are a process too, with a track for each pair; where
//! copies of a pair overlap, it has further tracks, since the slices of a track must not. A flow leads from a call to its
//! copy. A counter for each pair has the GB/s of its copies. Decisions and findings are instants of their process.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Display, Formatter, Write as _};
use std::io::{self, Write};

use p2pshim_host::text::is_escaped;
use p2pshim_trace::{Path, State, given};

use super::calls::{Teller, Words, stream};
use super::filter::Selection;
use super::merge::{Call, Source, in_order};
use super::model::{File, Origin, Report};
use super::names::MOST_BYTES;
use super::rates::Rates;
use super::shared;
use super::tally::{Step, Walk};
use super::term;
use crate::json::Plain;

/// The first process id for copies of GPUs; below are those of files.
const GPUS: usize = 1_000_000;
/// How many tracks a pair has numbers for: Perfetto sorts tracks by their numbers, and shows them behind the names.
const TRACKS: u64 = 1000;

/// Writes all events.
pub(super) fn write(
    report: &Report,
    sources: &[Source],
    selections: &[Selection],
    symbols: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut pairs: Vec<[usize; 2]> = report.pairs.iter().map(|pair| [pair.src, pair.dst]).collect();
    pairs.sort_unstable();
    let mut events = Events {
        report,
        out,
        is_first: true,
        start: report.start(),
        hosts: report.hosts(),
        pairs,
        lanes: HashMap::new(),
        unsorted: 0,
        named: HashSet::new(),
        flows: 0,
        rates: Rates::new(&report.timeline),
    };
    events.out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    for file in &report.files {
        events.describe(file)?;
    }
    events.instants()?;
    let mut teller = Teller::new(symbols);
    let mut threads: HashMap<(usize, u32), Stack> = HashMap::new();
    let mut number = 0;
    in_order(sources, |call| {
        let stack = threads.entry((call.source.file, call.thread)).or_default();
        let words = teller.words(call);
        let from = teller.origin(call);
        number += 1;
        let wants = selections.get(call.source.file).map(|selection| (selection, call.source.trace.timeline()));
        let Step { is_wanted, is_timed, .. } = stack.walk.step((0, number), &call.record, call.thread, wants);
        let slice = events.call(call, &words, from.as_deref(), stack, is_wanted)?;
        // A copy by hand is no one copy of a GPU.
        let is_timed = is_timed && call.record.path != Path::ByHand.number();
        if let (true, Some((devices, _))) = (is_timed, stack.walk.copy(&call.record)) {
            events.copy(call, &words, devices, slice)?;
        }
        Ok(true)
    })?;
    let mut threads: Vec<_> = threads.into_iter().filter(|(_, stack)| !stack.left.is_empty()).collect();
    threads.sort_unstable_by_key(|(thread, _)| *thread);
    for (thread, mut stack) in threads {
        events.leave(thread, &mut stack, 0)?;
    }
    events.counters()?;
    events.out.write_all(b"\n]}\n")
}

/// The calls of a thread that enclose the next.
#[derive(Default)]
struct Stack {
    walk: Walk,
    /// When each returned, outermost first.
    ends: Vec<u64>,
    /// The calls of these that were left by an exception, a cancellation or a jump.
    left: Vec<Left>,
}

/// A call whose end is still to be written.
struct Left {
    depth: usize,
    name: String,
    layer: String,
    end: u64,
}

/// A call as it is shown.
struct Span {
    begins: u64,
    end: u64,
    was_left: bool,
}

struct Events<'a> {
    report: &'a Report,
    out: &'a mut dyn Write,
    is_first: bool,
    start: u64,
    hosts: Vec<&'a str>,
    /// Sorted.
    pairs: Vec<[usize; 2]>,
    /// By process and pair.
    lanes: HashMap<(usize, [usize; 2]), Vec<Lane>>,
    /// Tracks that no number of their pair was left for.
    unsorted: u64,
    /// Processes of copies that have a name.
    named: HashSet<usize>,
    flows: u64,
    rates: Rates<'a>,
}

/// A track of copies that do not overlap.
struct Lane {
    track: u64,
    /// When the last of them ended.
    ended: u64,
}

impl Events<'_> {
    /// Writes an event.
    fn event(&mut self, name: &str, members: fmt::Arguments, args: &Members) -> io::Result<()> {
        let separator = if std::mem::take(&mut self.is_first) { "\n" } else { ",\n" };
        write!(self.out, "{separator}{{\"name\":{},{members}", Json(name))?;
        if !args.0.is_empty() {
            write!(self.out, ",\"args\":{{{}}}", args.0)?;
        }
        self.out.write_all(b"}")
    }

    fn name(&mut self, what: &str, process: usize, thread: u64, name: &str) -> io::Result<()> {
        let mut args = Members::default();
        args.add("name", Json(name));
        self.event(what, format_args!("\"ph\":\"M\",\"ts\":0,\"pid\":{process},\"tid\":{thread}"), &args)
    }

    fn sort(&mut self, what: &str, process: usize, thread: u64, index: usize) -> io::Result<()> {
        let mut args = Members::default();
        args.add("sort_index", index);
        self.event(what, format_args!("\"ph\":\"M\",\"ts\":0,\"pid\":{process},\"tid\":{thread}"), &args)
    }

    /// Names a process and its threads.
    fn describe(&mut self, file: &File) -> io::Result<()> {
        let Some(number) = file.process else { return Ok(()) };
        let rank = file.rank.as_ref().map(|rank| format!("rank {rank}: ")).unwrap_or_default();
        let program =
            file.program.first().map_or("unknown program", |path| path.rsplit('/').next().unwrap_or_default());
        let host = file.host.as_ref().map(|host| format!("{host}, ")).unwrap_or_default();
        let process = file.index + 1;
        self.name("process_name", process, 0, &format!("{rank}{program} ({host}pid {number})"))?;
        self.sort("process_sort_index", process, 0, process)?;
        for thread in &file.threads {
            self.name("thread_name", process, thread.id.into(), &thread.name)?;
        }
        for mark in &file.marks {
            let (at, thread) = (Micros(mark.time.saturating_sub(self.start)), mark.thread);
            let members = format_args!(
                "\"cat\":\"mark\",\"ph\":\"i\",\"s\":\"t\",\"ts\":{at},\"pid\":{process},\"tid\":{thread}"
            );
            self.event(&mark.text, members, &Members::default())?;
        }
        Ok(())
    }

    /// Decisions and findings, in the processes that they are of.
    fn instants(&mut self) -> io::Result<()> {
        let report = self.report;
        for decision in &report.decisions {
            let mut args = Members::default();
            let [src, dst] =
                [decision.src, decision.dst].map(|gpu| gpu.map_or("unknown device", |gpu| report.label(gpu)));
            args.add("from", Json(src));
            args.add("to", Json(dst));
            if let Some(verified) = decision.verified {
                args.add("verified", Json(verified.name()));
            }
            self.instant(
                "decision",
                &format!("{src} > {dst}: {}", decision.text),
                decision.file,
                decision.time,
                &args,
            )?;
        }
        for finding in &report.findings {
            let mut args = Members::default();
            args.add("severity", Json(&finding.severity));
            if let Some(text) = &finding.text {
                args.add("text", Json(text));
            }
            for moment in &finding.times {
                self.instant("finding", &finding.rule, moment.file, moment.time, &args)?;
            }
        }
        Ok(())
    }

    fn instant(&mut self, kind: &str, name: &str, file: usize, time: u64, args: &Members) -> io::Result<()> {
        let (at, process) = (Micros(time.saturating_sub(self.start)), file + 1);
        let members =
            format_args!("\"cat\":\"{kind}\",\"ph\":\"i\",\"s\":\"p\",\"ts\":{at},\"pid\":{process},\"tid\":0");
        self.event(name, members, args)
    }

    /// GB/s of each pair over time.
    fn counters(&mut self) -> io::Result<()> {
        let report = self.report;
        for ([src, dst], points) in self.rates.points() {
            let process = self.process_of(report.gpus.get(src).and_then(|gpu| gpu.host.as_deref()))?;
            let name = format!("{} > {}", report.label(src), report.label(dst));
            for (time, rate) in points {
                let mut args = Members::default();
                args.add("GB/s", format_args!("{rate:.6}"));
                let at = Micros(time.saturating_sub(self.start));
                self.event(&name, format_args!("\"ph\":\"C\",\"ts\":{at},\"pid\":{process},\"tid\":0"), &args)?;
            }
        }
        Ok(())
    }

    /// The process of copies between the GPUs of a host, which gets its name when it is first asked for.
    fn process_of(&mut self, host: Option<&str>) -> io::Result<usize> {
        let place = host.and_then(|host| self.hosts.iter().position(|&known| known == host));
        let process = GPUS + place.map_or(0, |place| place + 1);
        if self.named.insert(process) {
            let host = host.map(|host| format!(" ({host})")).unwrap_or_default();
            self.name("process_name", process, 0, &format!("GPU copies{host}"))?;
            self.sort("process_sort_index", process, 0, process)?;
        }
        Ok(process)
    }

    /// The time that a call is shown for, inside those that enclose it.
    fn span(&self, call: &Call, stack: &Stack) -> Span {
        let Call { source, thread, record, start, .. } = call;
        let file = self.report.files.get(source.file);
        let (mut end, mut was_left) = (call.end, false);
        if record.state == State::Begun {
            let last = file.and_then(|file| file.threads.iter().find(|it| it.id == *thread)).map(|it| it.last_start);
            // Until the process ended, unless the thread went on with something else. A call that begins when another ends is not
            // inside it for viewers, and a call may have begun at the end: so they last a nanosecond more.
            let hangs = last.is_some_and(|last| last <= record.start);
            end = file.and_then(|file| file.ended).filter(|_| hangs).map_or(*start, |ended| ended.saturating_add(1));
            was_left = !hangs;
        }
        // Long durations lose their end in files, and could end after the call that encloses them.
        let most = stack.ends.iter().copied().min().unwrap_or(u64::MAX);
        let begins = (*start).min(most);
        Span { begins, end: end.min(most).max(begins), was_left }
    }

    /// Writes the ends of a thread's calls that were left before one of this depth began.
    fn leave(&mut self, (file, thread): (usize, u32), stack: &mut Stack, depth: usize) -> io::Result<()> {
        stack.ends.truncate(depth);
        while let Some(left) = stack.left.pop_if(|left| left.depth >= depth) {
            let (layer, at, process) = (Json(&left.layer), Micros(left.end.saturating_sub(self.start)), file + 1);
            let members = format_args!("\"cat\":{layer},\"ph\":\"E\",\"ts\":{at},\"pid\":{process},\"tid\":{thread}");
            self.event(&left.name, members, &Members::default())?;
        }
        Ok(())
    }

    /// A call on its thread, if it is wanted. Returns where it begins.
    fn call(
        &mut self,
        call: &Call,
        words: &Words,
        from: Option<&Origin>,
        stack: &mut Stack,
        is_wanted: bool,
    ) -> io::Result<u64> {
        let Call { source, thread, record, .. } = call;
        let depth = usize::from(record.depth);
        self.leave((source.file, *thread), stack, depth)?;
        let Span { begins, end, was_left } = self.span(call, stack);
        // Viewers have no place for an end at the time of its beginning.
        let seen = end.max(begins.saturating_add(1));
        stack.left.iter_mut().for_each(|left| left.end = left.end.max(seen));
        // A call inside a call that was left keeps its times.
        stack.ends.push(if was_left { u64::MAX } else { end });
        if !is_wanted {
            return Ok(begins);
        }
        let args = self.told(call, words, from);
        // Copies with the host are no calls that the report counts, unless they hang.
        let is_with_host = record.is_with_host() && record.state == State::Done;
        let layer = Json(if is_with_host { "host" } else { &words.layer });
        let [at, took] = [begins.saturating_sub(self.start), end.saturating_sub(begins.max(self.start))].map(Micros);
        let process = source.file + 1;
        let place = format_args!("\"ts\":{at},\"pid\":{process},\"tid\":{thread}");
        if was_left {
            self.event(&words.function, format_args!("\"cat\":{layer},\"ph\":\"B\",{place}"), &args)?;
            let (name, layer) = (words.function.clone(), words.layer.clone());
            stack.left.push(Left { depth, name, layer, end: seen });
        } else {
            self.event(&words.function, format_args!("\"cat\":{layer},\"ph\":\"X\",\"dur\":{took},{place}"), &args)?;
        }
        Ok(begins)
    }

    /// The facts about a call besides its name and times.
    fn told(&self, call: &Call, words: &Words, from: Option<&Origin>) -> Members {
        let Call { source, record, .. } = call;
        let file = self.report.files.get(source.file);
        let mut args = Members::default();
        match (record.state, &words.result) {
            (State::Begun, _) => args.add("unfinished", true),
            (State::Done, Some(name)) => args.add("result", Json(name)),
            (State::Done, None) => args.add("result", given(record.result).0),
        }
        for (name, ordinal) in [("from", record.src_device), ("to", record.dst_device)] {
            let gpu = ordinal.and_then(|ordinal| file?.devices.get(&ordinal));
            if let Some(&gpu) = gpu {
                let owner = ordinal.and_then(|ordinal| file?.owners.get(&ordinal));
                let owner = owner.map(|owner| format!(", memory of {}", shared::owner(self.report, *owner)));
                args.add(name, Json(&format!("{}{}", self.report.label(gpu), owner.unwrap_or_default())));
            }
        }
        if record.is_part() {
            args.add("copies", record.copies());
            args.add("bytes", record.bytes);
        } else if words.function.contains("Memcpy") {
            match record.bytes {
                ..=MOST_BYTES => args.add("bytes", record.bytes),
                // A program may ask for anything; as a number it would scale charts.
                _ => args.add("bytes", format_args!("\"{:#x}\"", record.bytes)),
            }
            args.add("src", format_args!("\"{:#x}\"", record.src));
            args.add("dst", format_args!("\"{:#x}\"", record.dst));
            args.add("stream", Json(&stream(record.stream, &words.layer)));
        }
        if let Some(path) = &words.path {
            args.add("path", Json(path));
        }
        if let Some(Origin { site, caller, python }) = from {
            args.add("site", Json(site));
            if let Some(caller) = caller {
                args.add("caller", Json(caller));
            }
            if let Some(line) = python {
                args.add("python", Json(&line.in_full()));
            }
        }
        let rules: Vec<String> = record.rules().map(|rule| source.names.rule(rule).0).collect();
        if !rules.is_empty() {
            args.add("findings", Json(&rules.join(" ")));
        }
        args
    }

    /// A copy on a track of its pair, and the flow to it from the call that began at `slice`.
    fn copy(&mut self, call: &Call, words: &Words, [src, dst]: [u8; 2], slice: u64) -> io::Result<()> {
        let Some(file) = self.report.files.get(call.source.file) else { return Ok(()) };
        let (Some(&src), Some(&dst)) = (file.devices.get(&src), file.devices.get(&dst)) else { return Ok(()) };
        let process = self.process_of(file.host.as_deref())?;
        let start = call.source.trace.timeline().real(call.record.device_start).max(self.start);
        let end = start.saturating_add(call.record.device_nanos);
        let lanes = self.lanes.entry((process, [src, dst])).or_default();
        let free = lanes.iter_mut().find(|lane| lane.ended <= start);
        let is_new = free.is_none();
        let track = match free {
            Some(lane) => {
                lane.ended = end;
                lane.track
            }
            None => {
                let track = number(&self.pairs, [src, dst], lanes.len(), &mut self.unsorted);
                lanes.push(Lane { track, ended: end });
                track
            }
        };
        let lane = lanes.len();
        self.rates.add([src, dst], start, call.record.device_nanos, call.record.bytes);
        if is_new {
            let which = if lane > 1 { format!(" ({lane})") } else { String::new() };
            let name = format!("{} > {}{which}", self.report.label(src), self.report.label(dst));
            self.name("thread_name", process, track, &name)?;
            self.sort("thread_sort_index", process, track, src * self.report.gpus.len() + dst)?;
        }
        let path = words.path.as_deref().unwrap_or("copy");
        let name = format!("{} {path}", term::bytes(call.record.bytes));
        let mut args = Members::default();
        args.add("bytes", call.record.bytes);
        args.add("path", Json(path));
        if call.record.device_nanos > 0 {
            let rate = call.record.bytes as f64 / call.record.device_nanos as f64;
            args.add("gb_per_s", format_args!("{rate:.3}"));
        }
        args.add("stream", Json(&stream(call.record.stream, &words.layer)));
        args.add("process", call.source.trace.process());
        let [at, took] = [start - self.start, end - start].map(Micros);
        self.event(
            &name,
            format_args!("\"cat\":\"copy\",\"ph\":\"X\",\"ts\":{at},\"dur\":{took},\"pid\":{process},\"tid\":{track}"),
            &args,
        )?;
        self.flows += 1;
        let flow = self.flows;
        let from = Micros(slice.saturating_sub(self.start));
        let (caller, thread) = (call.source.file + 1, call.thread);
        let none = Members::default();
        self.event(
            "copy",
            format_args!("\"cat\":\"copy\",\"ph\":\"s\",\"id\":{flow},\"ts\":{from},\"pid\":{caller},\"tid\":{thread}"),
            &none,
        )?;
        self.event(
            "copy",
            format_args!(
                "\"cat\":\"copy\",\"ph\":\"f\",\"bp\":\"e\",\"id\":{flow},\"ts\":{at},\"pid\":{process},\"tid\":{track}"
            ),
            &none,
        )
    }
}

/// The number of a pair's next track, when it has `lanes`: 1001 and so on for the first pair.
fn number(pairs: &[[usize; 2]], pair: [usize; 2], lanes: usize, unsorted: &mut u64) -> u64 {
    let lane = lanes as u64 + 1;
    match pairs.binary_search(&pair) {
        Ok(place) if lane < TRACKS => (place as u64 + 1) * TRACKS + lane,
        _ => {
            *unsorted += 1;
            (pairs.len() as u64 + 1) * TRACKS + *unsorted
        }
    }
}

/// Nanoseconds in microseconds, exactly.
#[derive(Clone, Copy)]
struct Micros(u64);

impl Display for Micros {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// A string as JSON has it.
struct Json<'a>(&'a str);

impl Display for Json<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if self.0.chars().any(|letter| is_escaped(letter) || letter == '"' || letter == '\\') {
            let mut text = Vec::new();
            serde_json::to_writer(Plain(&mut text), self.0).map_err(|_| fmt::Error)?;
            return out.write_str(str::from_utf8(&text).map_err(|_| fmt::Error)?);
        }
        out.write_str("\"")?;
        out.write_str(self.0)?;
        out.write_str("\"")
    }
}

/// Members of a JSON object, which are written one by one.
#[derive(Default)]
struct Members(String);

impl Members {
    fn add(&mut self, name: &str, value: impl Display) {
        let separator = if self.0.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{separator}\"{name}\":{value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_escapes_what_it_has_to() {
        assert_eq!(Json("é a").to_string(), "\"é a\"");
        assert_eq!(Json("a\"b\\c\n").to_string(), "\"a\\\"b\\\\c\\n\"");
    }

    #[test]
    fn number_beyond_those_of_a_pair_is_no_other_s() {
        let (pairs, mut unsorted) = ([[0, 1], [1, 0]], 0);
        let mut of = |pair, lanes| number(&pairs, pair, lanes, &mut unsorted);
        assert_eq!([of([0, 1], 0), of([0, 1], 998), of([1, 0], 0)], [1001, 1999, 2001]);
        assert_eq!([of([0, 1], 999), of([1, 0], 999), of([0, 1], 1000)], [3001, 3002, 3003]);
    }

    #[test]
    fn micros_loses_nothing() {
        let shown = [0, 1, 999, 1_000, 1_234_567].map(|nanos| Micros(nanos).to_string());
        assert_eq!(shown, ["0.000", "0.001", "0.999", "1.000", "1234.567"]);
    }
}
