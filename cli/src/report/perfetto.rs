//! `--perfetto`: trace events for ui.perfetto.dev and chrome://tracing, written as they are read.
//!
//! A file is a process with its threads. The copies of a host's GPUs are a process too, with a track for each pair; where
//! copies of a pair overlap, it has further tracks, since the slices of a track must not. A flow leads from a call to its
//! copy.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use p2pshim_trace::State;
use serde_json::{Value, json};

use super::calls::{Teller, Words, stream};
use super::merge::{Call, Source, in_order};
use super::model::{File, Report};
use super::tally::Walk;
use super::term;

/// The first process id for copies of GPUs; below are those of files.
const GPUS: usize = 1_000_000;

/// Writes all events.
pub(super) fn write(report: &Report, sources: &[Source], symbols: bool, out: &mut dyn Write) -> io::Result<()> {
    let mut events = Events {
        report,
        out,
        is_first: true,
        start: report.start(),
        hosts: report.hosts(),
        lanes: HashMap::new(),
        tracks: 0,
        named: HashSet::new(),
        flows: 0,
    };
    events.out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    for file in &report.files {
        events.describe(file)?;
    }
    let mut teller = Teller::new(symbols);
    let mut threads: HashMap<(usize, u32), Stack> = HashMap::new();
    let mut number = 0;
    in_order(sources, |call| {
        let stack = threads.entry((call.source.file, call.thread)).or_default();
        let words = teller.words(call);
        let site = teller.site(call);
        number += 1;
        let is_timed = stack.walk.step((0, number), &call.record);
        let slice = events.call(call, &words, &site, stack)?;
        if let (true, Some((devices, _))) = (is_timed, stack.walk.copy(&call.record)) {
            events.copy(call, &words, devices, slice)?;
        }
        Ok(true)
    })?;
    events.out.write_all(b"\n]}\n")
}

/// The calls of a thread that enclose the next.
#[derive(Default)]
struct Stack {
    walk: Walk,
    /// When each returned, outermost first.
    ends: Vec<u64>,
}

struct Events<'a> {
    report: &'a Report,
    out: &'a mut dyn Write,
    is_first: bool,
    start: u64,
    hosts: Vec<&'a str>,
    /// By process and pair.
    lanes: HashMap<(usize, [usize; 2]), Vec<Lane>>,
    /// The last track of copies.
    tracks: u64,
    /// Processes of copies that have a name.
    named: HashSet<usize>,
    flows: u64,
}

/// A track of copies that do not overlap.
struct Lane {
    track: u64,
    /// When the last of them ended.
    ended: u64,
}

/// Nanoseconds in microseconds, exactly.
fn micros(nanos: u64) -> String {
    format!("{}.{:03}", nanos / 1000, nanos % 1000)
}

impl Events<'_> {
    /// Writes an event: its own members come as they are, its name and arguments are made JSON.
    fn event(&mut self, members: &str, name: &str, args: &Value) -> io::Result<()> {
        let separator = if std::mem::take(&mut self.is_first) { "\n" } else { ",\n" };
        write!(self.out, "{separator}{{\"name\":{},{members}", Value::from(name))?;
        if !args.is_null() {
            write!(self.out, ",\"args\":{args}")?;
        }
        self.out.write_all(b"}")
    }

    fn name(&mut self, what: &str, process: usize, thread: u64, name: &str) -> io::Result<()> {
        self.event(&format!("\"ph\":\"M\",\"ts\":0,\"pid\":{process},\"tid\":{thread}"), what, &json!({ "name": name }))
    }

    fn sort(&mut self, what: &str, process: usize, thread: u64, index: usize) -> io::Result<()> {
        let members = format!("\"ph\":\"M\",\"ts\":0,\"pid\":{process},\"tid\":{thread}");
        self.event(&members, what, &json!({ "sort_index": index }))
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
        Ok(())
    }

    /// A call on its thread. The answer is where it begins.
    fn call(&mut self, call: &Call, words: &Words, site: &str, stack: &mut Stack) -> io::Result<u64> {
        let Call { source, thread, record, start, .. } = call;
        let file = self.report.files.get(source.file);
        let depth = usize::from(record.depth);
        stack.ends.truncate(depth);
        let mut end = call.end;
        if record.state == State::Begun {
            let last = file.and_then(|file| file.threads.iter().find(|it| it.id == *thread)).map(|it| it.last_start);
            // Until the process ended, unless the thread went on with something else.
            let hangs = last.is_some_and(|last| last <= record.start);
            end = file.and_then(|file| file.ended).filter(|_| hangs).unwrap_or(*start);
        }
        // Long durations lose their end in files, and could end after the call that encloses them.
        let most = stack.ends.iter().copied().min().unwrap_or(u64::MAX);
        let begins = (*start).min(most);
        let end = end.min(most).max(begins);
        stack.ends.push(end);
        let mut args = serde_json::Map::new();
        match record.state {
            State::Begun => args.insert("unfinished".to_owned(), true.into()),
            State::Done => {
                let result = words.result.clone().map_or_else(|| Value::from(record.result), Value::from);
                args.insert("result".to_owned(), result)
            }
        };
        for (name, ordinal) in [("from", record.src_device), ("to", record.dst_device)] {
            let gpu = ordinal.and_then(|ordinal| file?.devices.get(&ordinal));
            if let Some(&gpu) = gpu {
                args.insert(name.to_owned(), self.report.label(gpu).into());
            }
        }
        if words.function.contains("Memcpy") {
            args.insert("bytes".to_owned(), record.bytes.into());
            args.insert("src".to_owned(), format!("{:#x}", record.src).into());
            args.insert("dst".to_owned(), format!("{:#x}", record.dst).into());
            args.insert("stream".to_owned(), stream(record.stream, &words.layer).into());
        }
        if let Some(path) = &words.path {
            args.insert("path".to_owned(), path.clone().into());
        }
        if !site.is_empty() {
            args.insert("site".to_owned(), site.into());
        }
        let rules: Vec<String> = record.rules().map(|rule| source.names.rule(rule).0).collect();
        if !rules.is_empty() {
            args.insert("findings".to_owned(), rules.into());
        }
        let members = format!(
            "\"cat\":{},\"ph\":\"X\",\"ts\":{},\"dur\":{},\"pid\":{},\"tid\":{thread}",
            Value::from(words.layer.as_str()),
            micros(begins.saturating_sub(self.start)),
            micros(end.saturating_sub(begins.max(self.start))),
            source.file + 1,
        );
        self.event(&members, &words.function, &Value::Object(args))?;
        Ok(begins)
    }

    /// A copy on a track of its pair, and the flow to it from the call that began at `slice`.
    fn copy(&mut self, call: &Call, words: &Words, [src, dst]: [u8; 2], slice: u64) -> io::Result<()> {
        let Some(file) = self.report.files.get(call.source.file) else { return Ok(()) };
        let (Some(&src), Some(&dst)) = (file.devices.get(&src), file.devices.get(&dst)) else { return Ok(()) };
        let host = file.host.as_deref().and_then(|host| self.hosts.iter().position(|&known| known == host));
        let process = GPUS + host.map_or(0, |host| host + 1);
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
                self.tracks += 1;
                lanes.push(Lane { track: self.tracks, ended: end });
                self.tracks
            }
        };
        let further = lanes.len();
        if self.named.insert(process) {
            let host = file.host.as_deref().map(|host| format!(" ({host})")).unwrap_or_default();
            self.name("process_name", process, 0, &format!("GPU copies{host}"))?;
            self.sort("process_sort_index", process, 0, process)?;
        }
        if is_new {
            let number = if further > 1 { format!(" ({further})") } else { String::new() };
            let name = format!("{} > {}{number}", self.report.label(src), self.report.label(dst));
            self.name("thread_name", process, track, &name)?;
            self.sort("thread_sort_index", process, track, src * self.report.gpus.len() + dst)?;
        }
        let path = words.path.as_deref().unwrap_or("copy");
        let name = format!("{} {path}", term::bytes(call.record.bytes));
        let rate = (call.record.device_nanos > 0).then(|| call.record.bytes as f64 / call.record.device_nanos as f64);
        let args = json!({
            "bytes": call.record.bytes,
            "path": path,
            "gb_per_s": rate,
            "stream": stream(call.record.stream, &words.layer),
            "process": call.source.trace.process(),
        });
        let [at, took] = [start - self.start, end - start].map(micros);
        let members =
            format!("\"cat\":\"copy\",\"ph\":\"X\",\"ts\":{at},\"dur\":{took},\"pid\":{process},\"tid\":{track}");
        self.event(&members, &name, &args)?;
        self.flows += 1;
        let flow = self.flows;
        let from = micros(slice.saturating_sub(self.start));
        let (caller, thread) = (call.source.file + 1, call.thread);
        for (phase, at, process, track) in
            [("\"s\"", &from, caller, u64::from(thread)), ("\"f\",\"bp\":\"e\"", &at, process, track)]
        {
            let members =
                format!("\"cat\":\"copy\",\"ph\":{phase},\"id\":{flow},\"ts\":{at},\"pid\":{process},\"tid\":{track}");
            self.event(&members, "copy", &Value::Null)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn micros_loses_nothing() {
        assert_eq!([0, 1, 999, 1_000, 1_234_567].map(micros), ["0.000", "0.001", "0.999", "1.000", "1234.567"]);
    }
}
