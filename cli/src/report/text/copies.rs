//! Copies: between which GPUs, of which sizes, by NVLink's counters, and from which lines and call sites.

use std::collections::BTreeSet;
use std::io::{self, Write};

use p2pshim_trace::Class;

use super::table::{Side, hide_timed, rate, roughly, table, timed};
use super::{SHOWN, Text};
use crate::report::figures;
use crate::report::model::{ByHand, CopyCaller, CopyLine, CopySite, Durations, File, Pair, Path, Size, is_glue};
use crate::report::term::{bytes, clean, count, duration};

/// The column of the table of copies that says how many of them were timed.
const TIMED: usize = 6;
/// The column with the bytes over the time in which a pair was busy.
const BUSY: usize = 5;

impl Text<'_> {
    pub(super) fn pairs(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut pairs: Vec<&Pair> = self.report.pairs.iter().collect();
        if pairs.is_empty() {
            return Ok(());
        }
        pairs.sort_by_key(|pair| (!pair.is_blocked, std::cmp::Reverse(pair.bytes), pair.src, pair.dst));
        self.title(out, "Copies")?;
        let names =
            ["pair", "copies", "bytes", "path", "GB/s", "busy GB/s", "timed", "host p50", "p99", "max", "errors"];
        let mut rows = vec![names.map(str::to_owned).to_vec()];
        let mut marks = vec![false];
        for pair in pairs.iter().take(SHOWN) {
            let name = format!("{} > {}", self.report.label(pair.src), self.report.label(pair.dst));
            let time = |time: Option<u64>| time.map_or_else(|| "-".to_owned(), duration);
            let errors = if pair.errors == 0 { "-".to_owned() } else { count(pair.errors) };
            let busy = pair.gb_per_s_busy.map_or_else(|| "-".to_owned(), |rate| figures::rate(rate, None, false));
            let nothing = Path { calls: pair.calls, host_ns: pair.host_ns, ..Path::default() };
            let paths = if pair.paths.is_empty() { std::slice::from_ref(&nothing) } else { pair.paths.as_slice() };
            for (index, path) in paths.iter().enumerate() {
                let text = if pair.paths.is_empty() { "-".to_owned() } else { path.taken.title() };
                let first = |text: &str| if index == 0 { text.to_owned() } else { String::new() };
                let timed = timed(path.device_calls, path.calls);
                let Durations { p50, p99, max, .. } = path.host_ns;
                rows.push(vec![
                    first(&clean(&name)),
                    count(path.calls),
                    bytes(path.bytes),
                    text,
                    rate(path.rate, path.device_calls < path.calls),
                    first(&busy),
                    timed,
                    roughly(p50, max),
                    roughly(p99, max),
                    time(max),
                    first(&errors),
                ]);
                marks.push(pair.is_blocked || path.taken.class() == Class::Avoidable && pair.access == Some(true));
            }
        }
        hide_timed(&mut rows, TIMED);
        if pairs.iter().all(|pair| pair.gb_per_s_busy.is_none()) {
            rows.iter_mut().filter_map(|row| row.get_mut(BUSY)).for_each(String::clear);
        }
        use Side::{Left, Right};
        let lines = table(
            &rows,
            &[Left, Right, Right, Left, Right, Right, Right, Right, Right, Right, Right],
            self.style.width,
            3,
            &[8, 7, 9, TIMED, BUSY],
        );
        for (line, is_marked) in lines.iter().zip(marks) {
            writeln!(out, "{}", if is_marked { self.style.yellow(line) } else { line.clone() })?;
        }
        self.more(out, pairs.len(), "--csv has all")?;
        let is_untold = |path: &Path| path.device_calls > 0 && path.rate.gb_per_s.is_none();
        if pairs.iter().take(SHOWN).any(|pair| pair.paths.iter().any(is_untold)) {
            let is_all = |file: &File| file.variables.get("P2PSHIM_GPU_TIMING").is_some_and(|value| value == "all");
            let more = match self.report.processes().all(is_all) {
                true => "Copies that are synchronous or on the legacy default stream cannot be timed.",
                false => "`--gpu-timing all` times all but those that are synchronous or on the legacy default stream.",
            };
            let text = "  Where GB/s are missing, too few copies were timed, or they differ too much.";
            self.line(out, &format!("{text} {more}"), "  ")?;
        }
        Ok(())
    }

    /// The copies of pairs by their sizes, where these differ.
    pub(super) fn sizes(&self, out: &mut dyn Write) -> io::Result<()> {
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
                size.taken.title(),
                rate(size.rate, size.device_calls < size.calls),
            ]);
        }
        use Side::{Left, Right};
        for line in table(&rows, &[Left, Right, Right, Right, Left, Right], self.style.width, 4, &[]) {
            writeln!(out, "{line}")?;
        }
        self.more(out, sizes.len(), "--json has all")
    }

    /// Writes the counters of each GPU, and the parts that copies explain.
    pub(super) fn nvlink(&self, out: &mut dyn Write) -> io::Result<()> {
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
    pub(super) fn lines(&self, out: &mut dyn Write) -> io::Result<()> {
        self.origins(out, "Lines of Python that copy", |site| {
            let sums = |it: &CopyLine| format!(", {} in {}", bytes(it.bytes), duration(it.host_ns));
            site.lines.iter().map(|it| (it.line.to_string(), it.calls, sums(it))).collect()
        })
    }

    /// Which functions of the program copy by a runtime whose calls are not seen, likewise.
    pub(super) fn callers(&self, out: &mut dyn Write) -> io::Result<()> {
        self.origins(out, "Call sites that copy", |site| {
            let whole = |CopyCaller { caller, calls }: &CopyCaller| (caller.clone(), *calls, String::new());
            site.callers.iter().map(whole).collect()
        })
    }

    /// Where the copies to the host came from, of those that a pair made by hand from a place.
    fn first_halves(&self, pair: &Pair, site: &str) -> BTreeSet<String> {
        let is_meant = |it: &&ByHand| (it.src, it.dst, it.to.site.as_str()) == (pair.src, pair.dst, site);
        self.report.by_hand.iter().filter(is_meant).map(|it| it.from.in_short()).collect()
    }

    /// Writes further places that copies came from: `of` gives them for a place in the code, each with how often it was found, and what
    /// these copies add up to.
    fn origins(
        &self,
        out: &mut dyn Write,
        title: &str,
        of: impl Fn(&CopySite) -> Vec<(String, u64, String)>,
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
            let by = if is_glue(site) {
                "by ctypes, cffi or another user of libffi".to_owned()
            } else {
                format!("from {site}")
            };
            self.line(out, &format!("  {src} > {dst}: {calls} {by}"), "    ")?;
            for (origin, found, sums) in origins.iter().take(SHOWN) {
                let looked_at = format!("{} of {calls} looked at", count(*found));
                self.line(out, &format!("      {origin} ({looked_at}{sums})"), "        ")?;
            }
            for first in self.first_halves(pair, site).iter().take(SHOWN) {
                self.line(out, &format!("      before that, to the host: {first}"), "        ")?;
            }
            self.more(out, origins.len(), "--json has all")?;
        }
        let looked_at = |site: &CopySite| {
            of(site).iter().map(|(_, found, _)| found).fold(0, |sum: u64, it| sum.saturating_add(*it))
        };
        if sites.iter().take(SHOWN).any(|(_, site)| looked_at(site) < site.calls) {
            self.line(
                out,
                "  Others may be missing where not each copy was looked at: `--stacks all` looks at each.",
                "  ",
            )?;
        }
        self.more(out, sites.len(), "--json has all")
    }
}
