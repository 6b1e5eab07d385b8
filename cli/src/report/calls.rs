//! `--calls`: a line for each call, in the manner of strace and of the text trace.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter, Write as _};
use std::io::{self, Write};
use std::rc::Rc;

use p2pshim_host::text::is_escaped;
use p2pshim_trace::{Capture, DeviceTime, Path, REMOTE, State, given};

use super::filter::Selection;
use super::merge::{Call, Source, in_order};
use super::model::{Origin, Report};
use super::symbols::Symbols;
use super::tally::Walk;
use super::term;

/// Writes the calls that are wanted, `most` of them at most.
pub(super) fn write(
    report: &Report,
    sources: &[Source],
    selections: &[Selection],
    most: u64,
    symbols: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut teller = Teller::new(symbols);
    let mut walks: HashMap<(usize, u32), Walk> = HashMap::new();
    let (mut left, mut number) = (most, 0);
    let start = report.start();
    let mut text = String::new();
    in_order(sources, |call| {
        let selection = selections.get(call.source.file);
        if left == 0 || selection.is_some_and(|selection| selection.is_over(call.start)) {
            return Ok(false);
        }
        let walk = walks.entry((call.source.file, call.thread)).or_default();
        let wants = selection.map(|selection| (selection, call.source.trace.timeline()));
        number += 1;
        if walk.step((0, number), &call.record, call.thread, wants).is_wanted {
            let words = teller.words(call);
            left -= 1;
            text.clear();
            line(&mut text, report, call, call.start.saturating_sub(start), &words, teller.origin(call).as_deref());
            if text.contains(is_escaped) {
                text = term::clean(&text);
            }
            text.push('\n');
            out.write_all(text.as_bytes())?;
        }
        Ok(true)
    })
}

/// The words that the numbers in a record stand for.
#[derive(Clone, Debug, Default)]
pub(super) struct Words {
    pub(super) layer: String,
    pub(super) function: String,
    pub(super) result: Option<String>,
    pub(super) path: Option<String>,
}

/// Keeps words and places that were looked up.
pub(super) struct Teller {
    symbols: Symbols,
    words: HashMap<(usize, u8, i32, u8), Rc<Words>>,
    sites: HashMap<(usize, u16), Rc<Origin>>,
}

/// Words and places that are kept. Only damaged files have more.
const KEPT: usize = 1 << 16;

impl Teller {
    pub(super) fn new(symbols: bool) -> Self {
        Self { symbols: Symbols::new(symbols), words: HashMap::new(), sites: HashMap::new() }
    }

    pub(super) fn words(&mut self, call: &Call) -> Rc<Words> {
        let Source { file, names, .. } = call.source;
        let record = &call.record;
        if self.words.len() >= KEPT {
            self.words.clear();
        }
        let key = (*file, record.function, record.result, record.path);
        let words = self.words.entry(key).or_insert_with(|| {
            let (layer, function) = names.function(record.function);
            let result = names.code(&layer, record.result);
            let path = Path::numbered(record.path).map(Path::title);
            Rc::new(Words { layer, function, result, path })
        });
        Rc::clone(words)
    }

    /// Where a call came from.
    pub(super) fn origin(&mut self, call: &Call) -> Option<Rc<Origin>> {
        let Source { file, names, .. } = call.source;
        let site = call.record.site;
        if site == 0 {
            return None;
        }
        if self.sites.len() >= KEPT {
            self.sites.clear();
        }
        let symbols = &mut self.symbols;
        Some(Rc::clone(self.sites.entry((*file, site)).or_insert_with(|| Rc::new(names.origin(site, symbols)))))
    }
}

fn line(line: &mut String, report: &Report, call: &Call, after: u64, words: &Words, from: Option<&Origin>) {
    // Writing to a string cannot fail.
    let _ = write_line(line, report, call, after, words, from);
}

fn write_line(
    line: &mut String,
    report: &Report,
    call: &Call,
    after: u64,
    words: &Words,
    from: Option<&Origin>,
) -> fmt::Result {
    let Call { source, thread, record, .. } = call;
    write!(line, "{}.{:09} ", after / 1_000_000_000, after % 1_000_000_000)?;
    if let Some(file) = report.files.get(source.file) {
        match (&file.host, &file.rank) {
            (Some(host), Some(rank)) => write!(line, "[{host}/{rank}] ")?,
            (Some(host), None) => write!(line, "[{host}] ")?,
            (None, Some(rank)) => write!(line, "[rank {rank}] ")?,
            (None, None) => {}
        }
    }
    let indent = 2 * usize::from(record.depth);
    write!(line, "{}/{thread} {:indent$}", source.trace.process(), "")?;
    if record.is_part() {
        let copies = if record.copies() == 1 { "copy" } else { "copies" };
        write!(line, "{} {copies}, {} bytes", record.copies(), record.bytes)?;
    } else {
        write!(line, "{}(", words.function)?;
        arguments(line, call, words)?;
        line.push(')');
    }
    outcome(line, call, words)?;
    let is_about_access = words.function.contains("PeerAccess");
    if let (true, Some(device)) = (is_about_access, record.src_device) {
        write!(line, " on device {device}")?;
    } else if let (Some(src), Some(dst)) = (gpu(report, call, record.src_device), gpu(report, call, record.dst_device))
    {
        write!(line, " {src}>{dst}")?;
    }
    if let Some(path) = &words.path {
        write!(line, " {path}")?;
    }
    match record.capture {
        Capture::None => {}
        Capture::Forwarded => line.push_str(" captured"),
        Capture::Rewritten => line.push_str(" captured as an ordinary copy"),
    }
    match record.device_time {
        DeviceTime::Known => {
            write!(line, " (device {}", term::duration(record.device_nanos))?;
            if record.device_nanos > 0 && record.bytes > 0 {
                write!(line, ", {:.1} GB/s", record.bytes as f64 / record.device_nanos as f64)?;
            }
            line.push(')');
        }
        DeviceTime::Pending => line.push_str(" (device: not done)"),
        DeviceTime::None | DeviceTime::Failed => {}
    }
    for rule in record.rules() {
        write!(line, " [{}]", source.names.rule(rule).0)?;
    }
    if let Some(from) = from {
        write!(line, " at {from}")?;
    }
    Ok(())
}

/// Writes the call's result, and how long it took.
fn outcome(line: &mut String, call: &Call, words: &Words) -> fmt::Result {
    let Call { source, record, .. } = call;
    match record.state {
        State::Done if record.is_part() => {}
        State::Begun => line.push_str(" <unfinished ...>"),
        State::Done => {
            match &words.result {
                Some(name) => write!(line, " = {name}")?,
                None => write!(line, " = {}", given(record.result).0)?,
            }
            if let (code, true) = given(record.result) {
                write!(line, " ({code})")?;
            }
            let nanos = source.trace.timeline().nanos(record.end.saturating_sub(record.start));
            write!(line, " <{}>", term::duration(nanos))?;
        }
    }
    Ok(())
}

/// The number of a GPU in the report, or words for memory of which the GPU is not known.
fn gpu(report: &Report, call: &Call, ordinal: Option<u8>) -> Option<String> {
    let gpu = report.gpus.get(*report.files.get(call.source.file)?.devices.get(&ordinal?)?)?;
    Some(if gpu.is_another_process { gpu.label.clone() } else { gpu.number.to_string() })
}

/// Writes the arguments that are known. Devices are the ordinals of the process.
fn arguments(line: &mut String, call: &Call, words: &Words) -> fmt::Result {
    let record = &call.record;
    let end = |device| Device(device, if record.is_with_host() { "host" } else { "?" });
    let (from, to) = (end(record.src_device), end(record.dst_device));
    if record.src_device.is_none() && record.dst == 0 && record.src == 0 && record.bytes > 0 {
        write!(line, "{} bytes between devices, stream={}", record.bytes, stream(record.stream, &words.layer))?;
    } else if words.function.contains("Memcpy") {
        write!(line, "dst={}, {to}, src={}, {from}, {}", Address(record.dst), Address(record.src), record.bytes)?;
        if words.function.contains("Async") || record.stream != 0 {
            write!(line, ", stream={}", stream(record.stream, &words.layer))?;
        }
    } else if words.function.contains("PeerAccess") {
        write!(line, "{to}")?;
    } else if record.src_device.is_some() || record.dst_device.is_some() {
        write!(line, "{from}, {to}")?;
    }
    Ok(())
}

struct Address(u64);

impl Display for Address {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { out.write_str("NULL") } else { write!(out, "{:#x}", self.0) }
    }
}

/// A device, and the word where there is none.
struct Device(Option<u8>, &'static str);

impl Display for Device {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(REMOTE..) => out.write_str("another process"),
            Some(ordinal) => write!(out, "{ordinal}"),
            None => out.write_str(self.1),
        }
    }
}

/// A stream, by its name if it has one.
pub(super) fn stream(handle: u64, layer: &str) -> String {
    match (handle, layer) {
        (0, _) => "NULL".to_owned(),
        (1, "runtime") => "cudaStreamLegacy".to_owned(),
        (2, "runtime") => "cudaStreamPerThread".to_owned(),
        (1, "driver") => "CU_STREAM_LEGACY".to_owned(),
        (2, "driver") => "CU_STREAM_PER_THREAD".to_owned(),
        (1, "hip") => "hipStreamLegacy".to_owned(),
        (2, "hip") => "hipStreamPerThread".to_owned(),
        _ => format!("{handle:#x}"),
    }
}
