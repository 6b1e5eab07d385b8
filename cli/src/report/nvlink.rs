//! NVLink's traffic, and the part of it that copies explain.
//!
//! Counters count whatever moved, by whomever. Copies of the trace explain what went directly between two GPUs. The rest is
//! what p2pshim does not see, its own verification, or another process's.

use std::collections::{BTreeMap, BTreeSet};

use p2pshim_trace::Class;

use super::model::{File, NvLink, NvLinkGpu, Pair, Report};
use super::shared;
use super::term::bytes;
use crate::nvlink::Reading;

/// Less is no finding: counters have KiB, and what is not data is carried too.
const SMALL: u64 = 1 << 20;
/// The share of what was carried that is no finding either: a hundredth.
const SHARE: u64 = 100;
/// The verification of a pair moves so many bytes at most, both directions together (`policy/access/verify.rs` of the shim).
const VERIFICATION: u64 = 20 << 20;
/// Processes that are named.
const NAMED: usize = 4;

/// A GPU while its counters were read: one program's time, or several that overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Window {
    end: u64,
    sent: [u64; 2],
    received: [u64; 2],
}

/// The counters of a GPU, from all files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counted {
    /// In the report.
    gpu: Option<usize>,
    windows: Vec<Window>,
    ours: bool,
    others: BTreeSet<u32>,
    /// Bytes that copies explain: sent, received.
    copied: [u64; 2],
}

impl Counted {
    /// Adds what a file says; files come in the order of their start.
    fn add(&mut self, reading: &Reading, gpu: &crate::nvlink::Gpu) {
        self.ours |= gpu.ours;
        self.others.extend(&gpu.others);
        let widened = |[first, last]: [u64; 2], other: [u64; 2]| [first.min(other[0]), last.max(other[1])];
        match self.windows.last_mut().filter(|window| reading.start <= window.end) {
            Some(window) => {
                window.end = window.end.max(reading.end);
                window.sent = widened(window.sent, gpu.sent);
                window.received = widened(window.received, gpu.received);
            }
            None => self.windows.push(Window { end: reading.end, sent: gpu.sent, received: gpu.received }),
        }
    }

    /// Bytes sent and received; none if a counter began anew.
    fn carried(&self) -> Option<[u64; 2]> {
        self.windows.iter().try_fold([0u64; 2], |[sent, received], window| {
            let more = |[first, last]: [u64; 2]| last.checked_sub(first);
            Some([sent.saturating_add(more(window.sent)?), received.saturating_add(more(window.received)?)])
        })
    }
}

/// One direction, of all GPUs together.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Sum {
    /// Bytes that copies do not explain.
    rest: u64,
    carried: u64,
    /// Bytes that went directly by the traces, however many were carried.
    direct: u64,
}

impl Sum {
    fn add(&mut self, carried: u64, direct: u64) {
        self.rest = self.rest.saturating_add(carried.saturating_sub(direct));
        self.carried = self.carried.saturating_add(carried);
        self.direct = self.direct.saturating_add(direct);
    }
}

/// Compares what NVLink carried with the copies of a report; none if nothing is known of it.
pub(super) fn compare(report: &Report, readings: &[Reading]) -> Option<NvLink> {
    let mut counted = counted(report, readings);
    if counted.is_empty() {
        return None;
    }
    let traced: Vec<&File> = report.files.iter().filter(|file| was_read(file, readings)).collect();
    let is_clear = explain(report, &traced, &mut counted);
    let is_at_least = !is_clear
        || shared::unknown_bytes(report) > 0
        || readings.iter().any(|reading| reading.killed)
        || report.has_unfinished_copies()
        || report.files.iter().any(|file| file.dropped > 0 || !file.is_whole || file.running);
    let mut nvlink = NvLink { is_at_least, ..NvLink::default() };
    let (mut sent, mut received, mut others, mut busy) = (Sum::default(), Sum::default(), BTreeSet::new(), Vec::new());
    for it in &counted {
        let (carried, copied) = (it.carried()?, it.copied);
        let ([sent_bytes, received_bytes], [copied_from_bytes, copied_to_bytes]) = (carried, copied);
        sent.add(sent_bytes, copied_from_bytes);
        received.add(received_bytes, copied_to_bytes);
        nvlink.shows_processes |= it.ours;
        if carried != [0, 0] {
            others.extend(&it.others);
            busy.push(it.gpu);
        }
        let row = |gpu| NvLinkGpu { gpu, sent_bytes, received_bytes, copied_from_bytes, copied_to_bytes };
        nvlink.gpus.extend(it.gpu.map(row));
    }
    others.retain(|process| !traced.iter().any(|file| file.process == Some(*process)));
    nvlink.other_processes = others.into_iter().collect();
    nvlink.gpus.sort_by_key(|row| row.gpu);
    // Each byte is sent by one GPU and received by another: the direction that leaves more to explain is told.
    let sum = sent.max(received);
    let facts = Facts {
        sum,
        unplaced: shared::unknown_bytes(report),
        copies: report.pairs.iter().map(|pair| pair.calls).sum(),
        verifications: report.decisions.iter().filter(|it| it.verified.is_some()).count() as u64,
        in_container: readings.iter().any(|reading| reading.in_container),
        place: match busy.as_slice() {
            [Some(gpu)] => format!("from or to {}", report.label(*gpu)),
            _ => "between these GPUs".to_owned(),
        },
    };
    nvlink.carried_bytes = sum.carried;
    nvlink.copied_bytes = sum.carried.saturating_sub(sum.rest);
    nvlink.is_explained = sum.rest <= facts.tolerance().max(facts.verification());
    (nvlink.text, nvlink.more) = facts.words(&nvlink);
    Some(nvlink)
}

/// Adds to each GPU what copies between two of them explain, by processes that ran while counters were read. Says whether
/// the path of all of these copies is known.
fn explain(report: &Report, traced: &[&File], counted: &mut [Counted]) -> bool {
    let files: BTreeSet<usize> = traced.iter().map(|file| file.index).collect();
    let goes_elsewhere = |pair: &&Pair| pair.link.as_deref().is_some_and(|link| !link.ends_with("NVLink"));
    let elsewhere: BTreeSet<[usize; 2]> =
        report.pairs.iter().filter(goes_elsewhere).map(|pair| [pair.src, pair.dst]).collect();
    let mut is_clear = true;
    for share in report.shares.iter().filter(|share| files.contains(&share.file) && !elsewhere.contains(&share.pair)) {
        let is_counted = |gpu: usize| counted.iter().any(|it| it.gpu == Some(gpu));
        if !share.pair.into_iter().all(is_counted) {
            continue;
        }
        let direct = match share.path.taken.class() {
            Class::Direct => share.path.bytes,
            Class::Captured | Class::Unknown => {
                is_clear &= share.path.bytes == 0;
                continue;
            }
            _ => continue,
        };
        let [from, to] = share.pair;
        for it in counted.iter_mut() {
            let [sent, received] = &mut it.copied;
            for (gpu, copied) in [(from, sent), (to, received)] {
                *copied = copied.saturating_add(if it.gpu == Some(gpu) { direct } else { 0 });
            }
        }
    }
    is_clear
}

/// The sentences about a program that has left no trace.
pub(super) fn of_no_trace(readings: &[Reading]) -> Vec<String> {
    let nvlink = compare(&Report::default(), readings).filter(|it| it.carried_bytes > SMALL);
    nvlink.into_iter().flat_map(|it| [it.text, it.more]).filter(|text| !text.is_empty()).collect()
}

/// The GPUs that were read and that the traces name; those that the program was seen to use, if the traces name none.
fn counted(report: &Report, readings: &[Reading]) -> Vec<Counted> {
    let mut in_order: Vec<&Reading> = readings.iter().collect();
    in_order.sort_by_key(|reading| reading.start);
    let mut all: BTreeMap<(&str, &str), Counted> = BTreeMap::new();
    for reading in in_order {
        for gpu in &reading.gpus {
            all.entry((&reading.host, &gpu.uuid)).or_default().add(reading, gpu);
        }
    }
    for ((host, uuid), counted) in &mut all {
        let is_it = |gpu: &&super::model::Gpu| gpu.host.as_deref() == Some(host) && gpu.uuid.as_deref() == Some(uuid);
        counted.gpu = report.gpus.iter().find(is_it).map(|gpu| gpu.index);
    }
    let is_named = report.gpus.iter().any(|gpu| gpu.uuid.is_some());
    all.into_values().filter(|it| if is_named { it.gpu.is_some() } else { it.ours }).collect()
}

/// Whether a process ran while counters were read on its host.
fn was_read(file: &File, readings: &[Reading]) -> bool {
    let (Some(started), Some(ended)) = (file.started, file.ended) else { return false };
    readings
        .iter()
        .any(|reading| file.host.as_deref() == Some(&reading.host) && reading.start <= ended && started <= reading.end)
}

/// The facts that the words depend on.
struct Facts {
    sum: Sum,
    /// Bytes of copies with memory of other processes that lies it is not known where.
    unplaced: u64,
    copies: u64,
    verifications: u64,
    in_container: bool,
    place: String,
}

impl Facts {
    fn tolerance(&self) -> u64 {
        SMALL.max(self.sum.carried / SHARE)
    }

    fn verification(&self) -> u64 {
        self.verifications.saturating_mul(VERIFICATION)
    }

    /// A sentence, and what it means.
    fn words(&self, nvlink: &NvLink) -> (String, String) {
        let Sum { rest, carried, direct } = self.sum;
        let amount = if carried == 0 { "nothing".to_owned() } else { bytes(carried) };
        let head = format!("NVLink carried {amount} {}", self.place);
        if self.copies == 0 {
            let more = if carried > SMALL { self.rest(nvlink, "it") } else { String::new() };
            return (head + ".", more);
        }
        if carried <= SMALL && direct <= SMALL {
            return Default::default();
        }
        if carried.saturating_add(self.tolerance()) < direct {
            let more =
                "Other links may have carried the rest, and copies that were captured or cut off may not have run.";
            return (format!("{head}, less than the {} that copies moved directly.", bytes(direct)), more.to_owned());
        }
        if rest <= self.tolerance() {
            let is_bare = |row: &NvLinkGpu| {
                row.sent_bytes > 0 && row.copied_from_bytes == 0 || row.received_bytes > 0 && row.copied_to_bytes == 0
            };
            let all = if nvlink.gpus.iter().any(is_bare) { "nearly all" } else { "all" };
            return (format!("{head}; copies explain {all} of it."), String::new());
        }
        let text = match (nvlink.copied_bytes, nvlink.is_at_least) {
            (0, false) => format!("{head}; no copy explains it."),
            (0, true) => format!("{head}; no copy in the trace explains it."),
            (some, false) => format!("{head}; copies explain {} of it.", bytes(some)),
            (some, true) => format!("{head}; copies explain at least {} of it.", bytes(some)),
        };
        let what = if carried == rest { "it" } else { "the rest" };
        (text, self.rest(nvlink, what))
    }

    /// Names the possible causes of traffic that copies do not explain.
    fn rest(&self, nvlink: &NvLink, what: &str) -> String {
        if self.sum.rest <= self.verification() {
            return format!("Verification of {}, by p2pshim itself, can explain {what}.", pairs(self.verifications));
        }
        let mut text = match (nvlink.other_processes.as_slice(), nvlink.shows_processes) {
            ([process], _) => {
                format!("It is not known what moved {what}: another process used these GPUs meanwhile (pid {process}).")
            }
            ([first, ..], _) => {
                let named: Vec<String> = nvlink.other_processes.iter().take(NAMED).map(u32::to_string).collect();
                let named = if named.len() < nvlink.other_processes.len() {
                    format!("such as pid {first}")
                } else {
                    format!("pids {}", named.join(", "))
                };
                format!("It is not known what moved {what}: other processes used these GPUs meanwhile ({named}).")
            }
            ([], false) => {
                format!("It is not known what moved {what}: NVML did not show which processes used these GPUs.")
            }
            ([], true) => format!(
                "Something unseen moved {what}: kernels that access a peer's memory (NCCL, NVSHMEM, custom all-reduce), \
                 managed memory, or processes without p2pshim, for example."
            ),
        };
        if nvlink.other_processes.is_empty() && nvlink.shows_processes && self.in_container {
            text.push_str(" Processes outside this container may not be visible.");
        }
        if self.unplaced > 0 {
            let all = bytes(self.unplaced);
            text += &format!(
                " {all} of copies with memory of other processes can be a part: it is not known on which GPU that lies."
            );
        } else if nvlink.is_at_least {
            text.push_str(" The trace may also lack copies.");
        }
        text
    }
}

fn pairs(count: u64) -> String {
    if count == 1 { "a pair".to_owned() } else { format!("{count} pairs") }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Decision, Gpu, Path, Share};
    use p2pshim_trace::Path as Taken;

    use super::*;
    use crate::nvlink;
    use crate::report::paths;

    const MB: u64 = 1_000_000;
    const GB: u64 = 1000 * MB;

    /// A process, number 7, that ran from 100 to 200 on two GPUs, 0 and 1, and copied so much from 0 to 1.
    fn report(direct: u64) -> Report {
        let gpu = |index: usize| Gpu {
            index,
            host: Some("a".into()),
            uuid: Some(format!("GPU-{index}")),
            label: format!("GPU {index}"),
            ..Gpu::default()
        };
        let file = File {
            host: Some("a".into()),
            process: Some(7),
            started: Some(100),
            ended: Some(200),
            is_whole: true,
            ..File::default()
        };
        let pair =
            Pair { src: 0, dst: 1, calls: u64::from(direct > 0), link: Some("NVLink".into()), ..Pair::default() };
        let shares = vec![share(Some(Taken::Direct), direct)];
        Report { files: vec![file], gpus: vec![gpu(0), gpu(1)], pairs: vec![pair], shares, ..Report::default() }
    }

    fn share(path: Option<Taken>, bytes: u64) -> Share {
        Share {
            file: 0,
            pair: [0, 1],
            power: 0,
            path: Path { taken: paths::Taken::of(path), bytes, ..Path::default() },
        }
    }

    /// Counters from 90 to 210, by which so much went from 0 to 1; the program was seen on both.
    fn reading(carried: u64) -> Reading {
        let gpu = |index: usize, sent: u64, received: u64| nvlink::Gpu {
            uuid: format!("GPU-{index}"),
            sent: [5, 5 + sent],
            received: [9, 9 + received],
            ours: true,
            others: Vec::new(),
        };
        let gpus = vec![gpu(0, carried, 0), gpu(1, 0, carried)];
        Reading { host: "a".into(), start: 90, end: 210, gpus, ..Reading::default() }
    }

    fn text(report: &Report, readings: &[Reading]) -> String {
        compare(report, readings).map_or("none".to_owned(), |it| it.text)
    }

    #[test]
    fn compare_a_hundredth_or_a_mebibyte_is_no_finding() {
        for (carried, direct, expected) in [
            (GB, GB, "NVLink carried 1.0 GB between these GPUs; copies explain all of it."),
            (GB, GB - 10 * MB, "NVLink carried 1.0 GB between these GPUs; copies explain all of it."),
            (GB, GB - 11 * MB, "NVLink carried 1.0 GB between these GPUs; copies explain 989.0 MB of it."),
            (3 * MB, 2 * MB, "NVLink carried 3.0 MB between these GPUs; copies explain all of it."),
            (4 * MB, 2 * MB, "NVLink carried 4.0 MB between these GPUs; copies explain 2.0 MB of it."),
            (4 * MB, 0, "NVLink carried 4.0 MB between these GPUs."),
            (0, 0, "NVLink carried nothing between these GPUs."),
            (0, 1, ""),
            (GB, GB + 5 * MB, "NVLink carried 1.0 GB between these GPUs; copies explain all of it."),
            (0, GB, "NVLink carried nothing between these GPUs, less than the 1.0 GB that copies moved directly."),
        ] {
            assert_eq!(text(&report(direct), &[reading(carried)]), expected, "{carried} {direct}");
        }
    }

    #[test]
    fn compare_a_direction_without_copies_is_not_explained_whole() {
        let mut back = reading(GB);
        back.gpus[1].sent[1] += MB / 2;
        let expected = "NVLink carried 1.0 GB between these GPUs; copies explain nearly all of it.";
        assert_eq!(text(&report(GB), &[back]), expected);
    }

    #[test]
    fn compare_each_direction_is_explained_by_itself() {
        let mut back = reading(GB);
        back.gpus[1].sent[1] += GB;
        back.gpus[0].received[1] += GB;
        let found = compare(&report(2 * GB), &[back]).unwrap();
        assert_eq!((found.carried_bytes, found.copied_bytes, found.is_explained), (2 * GB, GB, false), "{found:?}");
        let mut one_sided = reading(GB);
        one_sided.gpus[0].received[1] += 3 * GB;
        assert_eq!(
            compare(&report(GB), &[one_sided]).unwrap().carried_bytes,
            4 * GB,
            "what was received counts as well"
        );
    }

    #[test]
    fn compare_verification_can_explain_so_much() {
        let mut report = report(GB);
        let verified = || Decision {
            file: 0,
            time: 0,
            src: Some(0),
            dst: Some(1),
            verified: Some(p2pshim_trace::Verified::Right),
            text: String::new(),
        };
        report.decisions.push(verified());
        let found = compare(&report, &[reading(GB + 15 * MB)]).unwrap();
        assert!(found.is_explained && found.more.starts_with("Verification of a pair"), "{found:?}");
        assert_eq!(found.text, "NVLink carried 1.0 GB between these GPUs; copies explain 1.0 GB of it.");
        let found = compare(&report, &[reading(GB + 25 * MB)]).unwrap();
        assert!(!found.is_explained && found.more.starts_with("Something unseen moved the rest"), "{found:?}");
        report.decisions.push(verified());
        let found = compare(&report, &[reading(GB + 25 * MB)]).unwrap();
        assert!(found.is_explained && found.more.starts_with("Verification of 2 pairs"), "{found:?}");
    }

    #[test]
    fn compare_only_copies_over_nvlink_while_counters_were_read_explain() {
        let early = Reading { start: 0, end: 99, ..reading(GB) };
        assert!(text(&report(GB), &[early]).ends_with("; no copy explains it."));
        let elsewhere = Reading { host: "b".into(), ..reading(GB) };
        assert_eq!(text(&report(GB), &[elsewhere]), "none");
        let mut others = reading(GB);
        others.gpus.iter_mut().for_each(|gpu| gpu.uuid.push('x'));
        assert_eq!(text(&report(GB), &[others]), "none", "other GPUs");
        let mut by_pcie = report(GB);
        by_pcie.pairs[0].link = Some("PCIe".into());
        assert!(text(&by_pcie, &[reading(GB)]).ends_with("; no copy explains it."));
        assert_eq!(text(&report(GB), &[]), "none");
    }

    #[test]
    fn compare_readings_that_overlap_count_once_and_others_add_up() {
        let shifted = |start: u64, from: u64| {
            let mut reading = Reading { start, end: start + 100, ..reading(GB) };
            reading.gpus[0].sent = reading.gpus[0].sent.map(|it| it + from);
            reading.gpus[1].received = reading.gpus[1].received.map(|it| it + from);
            reading
        };
        let carried = |readings: &[Reading]| compare(&report(GB), readings).unwrap().carried_bytes;
        // The second begins when the first has seen half.
        assert_eq!(carried(&[shifted(150, GB / 2), shifted(90, 0)]), GB * 3 / 2);
        assert_eq!(carried(&[shifted(200, GB * 9), shifted(90, 0)]), 2 * GB);
        let mut anew = shifted(90, 0);
        anew.gpus[0].sent = [GB, 7];
        assert_eq!(text(&report(GB), &[anew]), "none", "a counter that began anew says nothing");
    }

    #[test]
    fn compare_other_processes_are_those_that_are_not_traced() {
        let seen = |others: &[u32]| {
            let mut reading = reading(5 * GB);
            reading.gpus[1].others = others.to_vec();
            compare(&report(GB), &[reading]).unwrap()
        };
        assert!(seen(&[7]).more.starts_with("Something unseen moved the rest: kernels"));
        assert!(seen(&[7, 8]).more.ends_with("another process used these GPUs meanwhile (pid 8)."));
        assert!(seen(&[9, 8]).more.ends_with("other processes used these GPUs meanwhile (pids 8, 9)."));
        assert!(seen(&[1, 2, 3, 4, 5]).more.ends_with("(such as pid 1)."));
        let mut idle = reading(5 * GB);
        idle.gpus.push(nvlink::Gpu { uuid: "GPU-2".into(), others: vec![8], ..nvlink::Gpu::default() });
        let mut three = report(GB);
        three.gpus.push(Gpu { index: 2, host: Some("a".into()), uuid: Some("GPU-2".into()), ..Gpu::default() });
        assert!(compare(&three, &[idle]).unwrap().other_processes.is_empty(), "on a GPU that moved nothing");
        let mut hidden = reading(5 * GB);
        hidden.gpus.iter_mut().for_each(|gpu| gpu.ours = false);
        assert!(compare(&report(GB), &[hidden]).unwrap().more.contains("NVML did not show which processes"));
        let contained = Reading { in_container: true, ..reading(5 * GB) };
        assert!(
            compare(&report(GB), &[contained]).unwrap().more.ends_with("outside this container may not be visible.")
        );
    }

    #[test]
    fn compare_trace_that_may_lack_copies_says_at_least() {
        let said = |report: &Report, reading: Reading| text(report, &[reading]);
        let mut dropped = report(GB);
        dropped.files[0].dropped = 1;
        let mut damaged = report(GB);
        damaged.files[0].is_whole = false;
        let mut unclear = report(GB);
        unclear.shares.push(share(None, 1));
        for report in [&dropped, &damaged, &unclear] {
            assert!(said(report, reading(5 * GB)).ends_with("copies explain at least 1.0 GB of it."));
        }
        let killed = Reading { killed: true, ..reading(5 * GB) };
        assert!(said(&report(GB), killed.clone()).ends_with("copies explain at least 1.0 GB of it."));
        let mut none = report(GB);
        none.shares.clear();
        assert!(said(&none, killed).ends_with("no copy in the trace explains it."));
        assert!(said(&report(GB), reading(5 * GB)).ends_with("copies explain 1.0 GB of it."));
    }

    #[test]
    fn compare_traces_that_name_no_gpu_go_by_those_that_were_used() {
        let mut reading = reading(GB);
        reading.gpus[1].ours = false;
        assert_eq!(of_no_trace(&[reading.clone()])[0], "NVLink carried 1.0 GB between these GPUs.");
        reading.gpus[0].ours = false;
        assert!(of_no_trace(&[reading]).is_empty(), "a program that uses no GPU");
        assert!(of_no_trace(&[super::tests::reading(MB)]).is_empty());
    }

    #[test]
    fn compare_one_gpu_is_named() {
        let mut alone = reading(GB);
        alone.gpus.pop();
        assert_eq!(text(&report(0), &[alone]), "NVLink carried 1.0 GB from or to GPU 0.");
    }
}
