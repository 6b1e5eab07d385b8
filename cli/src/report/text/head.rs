//! The report's subject: the program, hosts, GPUs, versions, times and calls.

use std::collections::BTreeSet;
use std::io::{self, Write};

use p2pshim_trace::Class;

use super::Text;
use crate::report::model::STATIC_RUNTIME;
use crate::report::model::{End, File, Gpu, How, Run, Span};
use crate::report::processes::{may_be_several, ranks};
use crate::report::term::{self, count, counted, date, few};

impl Text<'_> {
    pub(super) fn head(&self, out: &mut dyn Write) -> io::Result<()> {
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
            _ => format!("{} processes", count(all.len() as u64)),
        };
        let apart =
            if report.runs.iter().any(|run| may_be_several(report, run)) { ", not known to be of one run" } else { "" };
        self.line(
            out,
            &format!("ran on     {}: {processes}{ranks}{apart}", listed(&hosts, "unknown host")),
            "           ",
        )?;
        let gpus: Vec<String> = report.gpus.iter().filter(|gpu| !gpu.is_another_process).map(gpu_text).collect();
        self.line(out, &format!("GPUs       {}", listed(&gpus, "none seen")), "           ")?;
        // Records have ordinals, and names of GPUs belong to the vendor that was asked first.
        let is_of_both = |of: &File| {
            of.versions.contains_key("hip")
                && ["driver", "runtime", STATIC_RUNTIME].iter().any(|&of_cuda| of.versions.contains_key(of_cuda))
        };
        if read.iter().any(|file| is_of_both(file)) {
            let what = "CUDA and HIP in one process: each counts its own GPUs from 0, and this report does not distinguish them";
            self.line(out, &format!("           {what}"), "           ")?;
        }
        let versions = versions(&read);
        if !versions.is_empty() {
            self.line(out, &format!("versions   {}", versions.join(", ")), "           ")?;
        }
        self.time(out)?;
        self.calls(out, &read)
    }

    /// How many calls were seen, and how many were not written.
    fn calls(&self, out: &mut dyn Write, read: &[&File]) -> io::Result<()> {
        let sum = |what: fn(&File) -> u64| read.iter().map(|file| what(file)).fold(0, u64::saturating_add);
        let (calls, records, dropped) = (sum(|file| file.calls), sum(|file| file.records), sum(|file| file.dropped));
        let dropped = match dropped {
            0 if self.report.is_at_least() => " in what could be read".to_owned(),
            0 => ", none dropped".to_owned(),
            _ => self.style.yellow(&format!(
                ", in {}; {} more were not written",
                counted(records, "record"),
                count(dropped)
            )),
        };
        let mut paths = self.report.pairs.iter().flat_map(|pair| &pair.paths);
        let has_any = paths.any(|path| path.taken.class() == Class::ByHand && path.calls > 0);
        let by_hand = if has_any { " (two calls that copy by hand count as one)" } else { "" };
        writeln!(out, "calls      {}{dropped}{by_hand}", count(calls))
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
                // There is nothing to say of the time between runs.
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
fn listed(all: &[impl AsRef<str>], none: &str) -> String {
    if all.is_empty() { none.to_owned() } else { few(all, 8, ", ") }
}

/// The versions of all parts, as far as the files know.
fn versions(read: &[&File]) -> Vec<String> {
    ["p2pshim", "driver", "kernel module", "runtime", STATIC_RUNTIME, "hip"]
        .iter()
        .filter_map(|&what| {
            let mut all: Vec<&str> = read.iter().filter_map(|file| Some(file.versions.get(what)?.as_str())).collect();
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
        .collect()
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
}
