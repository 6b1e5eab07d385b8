//! Copies: between which GPUs, of which sizes, by NVLink's counters, and from which lines and call sites.

use std::collections::BTreeSet;
use std::io::{self, Write};

use p2pshim_trace::Class;

use super::table::{faults, rate, roughly, time, timed};
use super::{SHOWN, Text};
use crate::report::csv::{Row, rows};
use crate::report::figures;
use crate::report::model::{ByHand, CopyCaller, CopyLine, CopySite, File, Pair, Path, Size, is_glue};
use crate::report::term::{bytes, clean, count, duration};
use crate::table::Table;

impl Text<'_> {
    pub(super) fn pairs(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut pairs: Vec<&Pair> = self.report.pairs.iter().collect();
        if pairs.is_empty() {
            return Ok(());
        }
        pairs.sort_by_key(|pair| (!pair.is_blocked, std::cmp::Reverse(pair.bytes), pair.src, pair.dst));
        self.title(out, "Copies")?;
        let is_sampled = |path: &Path| path.device_calls > 0 && path.device_calls < path.calls;
        // Where all or none of each row were timed there is nothing to say of it.
        let is_any_sampled = pairs.iter().take(SHOWN).any(|pair| pair.paths.iter().any(is_sampled));
        let has_busy = pairs.iter().any(|pair| pair.gb_per_s_busy.is_some());
        let none = || "-".to_owned();
        let table = Table::of(rows(pairs.iter().take(SHOWN).copied()))
            .text("pair", |it| it.once(|| self.ends(it.pair)))
            .number("copies", |it| count(it.calls()))
            .number("bytes", |it| bytes(it.path.map_or(0, |path| path.bytes)))
            .text("path", |it| it.path.map_or_else(none, |path| path.taken.title()))
            .number("GB/s", |it| it.path.map_or_else(none, |it| rate(it.rate, it.device_calls < it.calls)))
            .number("busy GB/s", |it| match it.pair.gb_per_s_busy {
                Some(rate) => it.once(|| figures::rate(rate, None, false)),
                None if has_busy => it.once(none),
                None => String::new(),
            })
            .number("timed", |it| match it.path {
                _ if !is_any_sampled => String::new(),
                path => path.map_or_else(none, |path| timed(path.device_calls, path.calls)),
            })
            .number("host p50", |it| roughly(it.host().p50, it.host().max))
            .number("p99", |it| roughly(it.host().p99, it.host().max))
            .number("max", |it| time(it.host().max))
            .number("errors", |it| it.once(|| faults(it.pair.errors)))
            .flexible(3)
            .spare(&[8, 7, 9, 6, 5]);
        let is_avoidable =
            |it: &Row| it.pair.access == Some(true) && it.path.is_some_and(|it| it.taken.class() == Class::Avoidable);
        self.table(out, table, |it| it.pair.is_blocked || is_avoidable(it), (pairs.len(), "--csv has all"))?;
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

    /// The two GPUs of a pair.
    fn ends(&self, pair: &Pair) -> String {
        clean(&format!("{} > {}", self.report.label(pair.src), self.report.label(pair.dst)))
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
        let place = |pair: &Pair| (pair.src, pair.dst);
        let firsts = sizes.iter().enumerate().filter(|(index, (pair, _))| {
            index.checked_sub(1).and_then(|last| sizes.get(last)).is_none_or(|(last, _)| place(last) != place(pair))
        });
        let firsts: BTreeSet<usize> = firsts.map(|(index, _)| index).collect();
        let table = Table::of(sizes.iter().take(SHOWN).enumerate())
            .text("pair", |(index, (pair, _))| if firsts.contains(index) { self.ends(pair) } else { String::new() })
            .number("a copy has", |(_, (_, size))| format!("< {}", bytes(size.to)))
            .number("copies", |(_, (_, size))| count(size.calls))
            .number("bytes", |(_, (_, size))| bytes(size.bytes))
            .text("path", |(_, (_, size))| size.taken.title())
            .number("GB/s", |(_, (_, size))| rate(size.rate, size.device_calls < size.calls))
            .flexible(4);
        self.table(out, table, |_| false, (sizes.len(), "--json has all"))
    }

    /// Writes the counters of each GPU, and the parts that copies explain.
    pub(super) fn nvlink(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(nvlink) = self.report.nvlink.as_ref().filter(|nvlink| nvlink.carried_bytes > 0) else { return Ok(()) };
        self.title(out, "NVLink, by NVML's counters")?;
        let table = Table::of(nvlink.gpus.iter().take(SHOWN))
            .text("GPU", |it| clean(self.report.label(it.gpu)))
            .number("sent", |it| bytes(it.sent_bytes))
            .number("of this by copies", |it| bytes(it.copied_from_bytes.min(it.sent_bytes)))
            .number("received", |it| bytes(it.received_bytes))
            .number("of this by copies", |it| bytes(it.copied_to_bytes.min(it.received_bytes)))
            .flexible(0);
        self.table(out, table, |_| false, (nvlink.gpus.len(), "--json has all"))
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
