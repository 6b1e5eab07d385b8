//! `--csv`: the pairs, a line for each path that their copies took.

use std::io::{self, Write};

use super::model::{CopyCaller, CopyLine, CopySite, Durations, Gpu, Pair, Path, Rate, Report};
use super::paths::Taken;
use crate::table::Table;

/// A path of a pair's copies, or none if no path is known of them.
pub(super) struct Row<'a> {
    pub(super) pair: &'a Pair,
    pub(super) path: Option<&'a Path>,
    is_first: bool,
}

impl Row<'_> {
    pub(super) fn host(&self) -> Durations {
        self.path.map_or(self.pair.host_ns, |path| path.host_ns)
    }

    pub(super) fn calls(&self) -> u64 {
        self.path.map_or(self.pair.calls, |path| path.calls)
    }

    /// A text about the pair, in its first row alone.
    pub(super) fn once(&self, text: impl FnOnce() -> String) -> String {
        if self.is_first { text() } else { String::new() }
    }
}

/// A row for each path of these pairs.
pub(super) fn rows<'a>(pairs: impl IntoIterator<Item = &'a Pair>) -> impl Iterator<Item = Row<'a>> {
    pairs.into_iter().flat_map(|pair| {
        let none = pair.paths.is_empty().then_some(None);
        let paths = pair.paths.iter().map(Some).chain(none).enumerate();
        paths.map(move |(index, path)| Row { pair, path, is_first: index == 0 })
    })
}

/// Writes the table, with a line of names. A cell that is not known is empty. The counts of a pair stand in its first line alone, so that
/// each column can be added up.
pub(crate) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let gpu = |index: usize, what: fn(&Gpu) -> &Option<String>| {
        report.gpus.get(index).and_then(|gpu| what(gpu).clone()).unwrap_or_default()
    };
    let sum = |it: &Row, what: fn(&Path) -> u64| it.path.map_or(0, what).to_string();
    let words = |it: &Row, what: fn(Taken) -> Option<&'static str>| {
        it.path.and_then(|path| what(path.taken)).unwrap_or_default().to_owned()
    };
    let rate = |it: &Row, what: fn(&Rate) -> Option<f64>| {
        it.path.and_then(|path| what(&path.rate)).map_or_else(String::new, |rate| format!("{rate:.3}"))
    };
    let time = |time: Option<u64>| time.map_or_else(String::new, |time| time.to_string());
    Table::of(rows(&report.pairs))
        .text("src_host", |it| gpu(it.pair.src, |gpu| &gpu.host))
        .text("src", |it| report.label(it.pair.src).to_owned())
        .text("src_uuid", |it| gpu(it.pair.src, |gpu| &gpu.uuid))
        .text("dst_host", |it| gpu(it.pair.dst, |gpu| &gpu.host))
        .text("dst", |it| report.label(it.pair.dst).to_owned())
        .text("dst_uuid", |it| gpu(it.pair.dst, |gpu| &gpu.uuid))
        .number("pair_calls", |it| it.once(|| it.pair.calls.to_string()))
        .number("pair_errors", |it| it.once(|| it.pair.errors.to_string()))
        .text("path", |it| words(it, |taken| Some(taken.name())))
        .text("why", |it| words(it, Taken::why))
        .number("calls", |it| sum(it, |path| path.calls))
        .number("bytes", |it| sum(it, |path| path.bytes))
        .number("device_calls", |it| sum(it, |path| path.device_calls))
        .number("device_bytes", |it| sum(it, |path| path.device_bytes))
        .number("device_ns", |it| sum(it, |path| path.device_ns))
        .number("gb_per_s", |it| rate(it, |rate| rate.gb_per_s))
        .number("gb_per_s_off", |it| rate(it, |rate| rate.gb_per_s_off))
        .number("host_p50_ns", |it| time(it.host().p50))
        .number("host_p99_ns", |it| time(it.host().p99))
        .number("host_max_ns", |it| time(it.host().max))
        .number("host_total_ns", |it| it.host().total.to_string())
        .text("access", |it| it.pair.access.map_or_else(String::new, |access| u8::from(access).to_string()))
        .text("link", |it| it.pair.link.clone().unwrap_or_default())
        .text("python_lines", |it| lines(it.pair))
        .text("call_sites", |it| callers(it.pair))
        .number("between_processes", |it| sum(it, |path| path.taken.between_processes.into()))
        .csv(out)
}

/// The lines of Python that copy, each with how many of its calls were looked at, of all from that place in the code.
fn lines(pair: &Pair) -> String {
    let of_site = |site: &CopySite| {
        let line = |it: &CopyLine| {
            format!("{} ({} of {}: {} B in {} ns)", it.line.in_full(), it.calls, site.calls, it.bytes, it.host_ns)
        };
        site.lines.iter().map(line).collect::<Vec<_>>()
    };
    pair.sites.iter().flat_map(of_site).collect::<Vec<_>>().join("; ")
}

/// The callers of the CUDA runtime, each with its calls, of all from that place in the code.
fn callers(pair: &Pair) -> String {
    let of_site = |site: &CopySite| {
        let caller = |it: &CopyCaller| format!("{} ({} of {})", it.caller, it.calls, site.calls);
        site.callers.iter().map(caller).collect::<Vec<_>>()
    };
    pair.sites.iter().flat_map(of_site).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_each_line_has_the_columns_of_the_first() {
        let taken = Taken::of(Some(p2pshim_trace::Path::Staged(p2pshim_trace::Why::BrokenInUse)));
        let staged = || Path { taken, ..Path::default() };
        let pair = |paths| Pair { paths, calls: 7, errors: 3, ..Pair::default() };
        let report = Report { pairs: vec![pair(vec![staged(), staged()]), pair(Vec::new())], ..Report::default() };
        let mut out = Vec::new();
        write(&report, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let commas: Vec<usize> = text.lines().map(|line| line.matches(',').count()).collect();
        assert_eq!(commas, [25; 4], "{text}");
        let of_pair = |line: &str| line.split(',').skip(6).take(2).map(str::to_owned).collect::<Vec<_>>().join(",");
        assert_eq!(text.lines().skip(1).map(of_pair).collect::<Vec<_>>(), ["7,3", ",", "7,3"], "{text}");
        assert!(text.contains(",staged,broken though access is enabled,0,"), "{text}");
    }

    #[test]
    fn write_numbers_stay_numbers() {
        let pair = Pair { src: 0, dst: 0, calls: 5, ..Pair::default() };
        let mut out = Vec::new();
        write(&Report { pairs: vec![pair], ..Report::default() }, &mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains(",5,0,,,0,0,0,0,0,,"));
    }
}
