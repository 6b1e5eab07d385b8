//! `--calls`: a line for each call, in the manner of strace and of the text trace.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use p2pshim_trace::{Capture, DeviceTime, State};

use super::filter::{Filter, Named};
use super::merge::{Call, Source, in_order};
use super::model::Report;
use super::symbols::Symbols;
use super::term;

/// Writes the calls that are wanted.
pub(super) fn write(
    report: &Report,
    sources: &[Source],
    filter: &Filter,
    symbols: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut teller = Teller::new(symbols);
    let mut left = filter.limit.unwrap_or(u64::MAX);
    in_order(sources, |call| {
        if left == 0 || filter.is_over(report, call) {
            return Ok(false);
        }
        let words = teller.words(call);
        let path = words.path.as_deref();
        let named = Named { function: &words.function, result: words.result.as_deref(), path };
        if filter.wants(report, call, &named) {
            left -= 1;
            let line = line(report, call, &words, &teller.site(call));
            out.write_all(term::clean(&line).as_bytes())?;
            out.write_all(b"\n")?;
        }
        Ok(true)
    })
}

/// What the numbers in a record stand for.
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
    words: HashMap<(usize, u8, i32, u8), Words>,
    sites: HashMap<(usize, u16), String>,
}

/// Words and places that are kept. Only damaged files have more.
const KEPT: usize = 1 << 16;

impl Teller {
    pub(super) fn new(symbols: bool) -> Self {
        Self { symbols: Symbols::new(symbols), words: HashMap::new(), sites: HashMap::new() }
    }

    pub(super) fn words(&mut self, call: &Call) -> Words {
        let Source { file, names, .. } = call.source;
        let record = &call.record;
        if self.words.len() >= KEPT {
            self.words.clear();
        }
        let key = (*file, record.function, record.result, record.path);
        let words = self.words.entry(key).or_insert_with(|| {
            let (layer, function) = names.function(record.function);
            let result = names.code(&layer, record.result);
            let path = names.path(record.path).map(|(path, why)| match why {
                Some(why) => format!("{path}: {why}"),
                None => path.clone(),
            });
            Words { layer, function, result, path }
        });
        words.clone()
    }

    pub(super) fn site(&mut self, call: &Call) -> String {
        let Source { file, names, .. } = call.source;
        let site = call.record.site;
        if site == 0 {
            return String::new();
        }
        if self.sites.len() >= KEPT {
            self.sites.clear();
        }
        let symbols = &mut self.symbols;
        let describe = || symbols.describe(names.place(site).as_ref(), names.host.as_deref());
        self.sites.entry((*file, site)).or_insert_with(describe).clone()
    }
}

fn line(report: &Report, call: &Call, words: &Words, site: &str) -> String {
    let Call { source, thread, record, start, .. } = call;
    let mut line = format!("{:.9} ", start.saturating_sub(report.start()) as f64 / 1e9);
    if let Some(file) = report.files.get(source.file) {
        match (&file.host, &file.rank) {
            (Some(host), Some(rank)) => line.push_str(&format!("[{host}/{rank}] ")),
            (Some(host), None) => line.push_str(&format!("[{host}] ")),
            (None, Some(rank)) => line.push_str(&format!("[rank {rank}] ")),
            (None, None) => {}
        }
    }
    let _ = write!(
        line,
        "{}/{thread} {:indent$}{}(",
        source.trace.process(),
        "",
        words.function,
        indent = 2 * usize::from(record.depth)
    );
    arguments(&mut line, call, words);
    line.push(')');
    match record.state {
        State::Begun => line.push_str(" <unfinished ...>"),
        State::Done => {
            match &words.result {
                Some(name) => line.push_str(&format!(" = {name}")),
                None => line.push_str(&format!(" = {}", record.result)),
            }
            let nanos = source.trace.timeline().nanos(record.end.saturating_sub(record.start));
            let _ = write!(line, " <{}>", term::duration(nanos));
        }
    }
    if let (Some(src), Some(dst)) = (gpu(report, call, record.src_device), gpu(report, call, record.dst_device)) {
        let _ = write!(line, " {src}->{dst}");
    }
    if let Some(path) = &words.path {
        let _ = write!(line, " {path}");
    }
    match record.capture {
        Capture::None => {}
        Capture::Forwarded => line.push_str(" captured"),
        Capture::Rewritten => line.push_str(" captured as an ordinary copy"),
    }
    match record.device_time {
        DeviceTime::Known => {
            let _ = write!(line, " (device {}", term::duration(record.device_nanos));
            if record.device_nanos > 0 && record.bytes > 0 {
                let _ = write!(line, ", {:.1} GB/s", record.bytes as f64 / record.device_nanos as f64);
            }
            line.push(')');
        }
        DeviceTime::Pending => line.push_str(" (device: not done)"),
        DeviceTime::None | DeviceTime::Failed => {}
    }
    for rule in record.rules() {
        let _ = write!(line, " [{}]", source.names.rule(rule).0);
    }
    if !site.is_empty() {
        let _ = write!(line, " at {site}");
    }
    line
}

/// The number of a GPU in the report.
fn gpu(report: &Report, call: &Call, ordinal: Option<u8>) -> Option<u32> {
    let gpu = report.files.get(call.source.file)?.devices.get(&ordinal?)?;
    Some(report.gpus.get(*gpu)?.number)
}

/// What is known of the arguments. Devices are the ordinals of the process.
fn arguments(line: &mut String, call: &Call, words: &Words) {
    let record = &call.record;
    let address = |address: u64| if address == 0 { "NULL".to_owned() } else { format!("{address:#x}") };
    let device = |device: Option<u8>| device.map_or_else(|| "?".to_owned(), |device| device.to_string());
    if words.function.contains("Memcpy") {
        let (src, dst) = (address(record.src), address(record.dst));
        let (from, to) = (device(record.src_device), device(record.dst_device));
        let _ = write!(line, "dst={dst}, {to}, src={src}, {from}, {}", record.bytes);
        if words.function.contains("Async") || record.stream != 0 {
            let _ = write!(line, ", stream={}", stream(record.stream, &words.layer));
        }
    } else if record.src_device.is_some() || record.dst_device.is_some() {
        let _ = write!(line, "{}, {}", device(record.src_device), device(record.dst_device));
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
        _ => format!("{handle:#x}"),
    }
}
