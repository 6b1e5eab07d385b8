//! The words for copies between processes: who copied how much from or to whose memory.

use super::model::{BetweenProcesses, Does, File, Pair, Report};
use super::sentence::{at_least, copies};
use super::term::{bytes, count, counted};
use crate::judge::Words;

/// Rows that a sentence names.
const NAMED: usize = 3;

/// Whether it is not known on which GPU one end lies.
pub(super) fn is_unknown(report: &Report, pair: &Pair) -> bool {
    is_another(report, pair.src) || is_another(report, pair.dst)
}

fn is_another(report: &Report, gpu: usize) -> bool {
    report.gpus.get(gpu).is_some_and(|gpu| gpu.is_another_process)
}

/// Whether a process shares memory of this GPU, which another one uses too: where that knows the GPU, its records do not say whose memory it is.
pub(super) fn may_be_shared(report: &Report, gpu: usize) -> bool {
    let is_used = |by: usize| report.files.iter().any(|file| file.index != by && file.gpus.contains(&gpu));
    let is_told = report.between_processes.iter().any(|row| [row.src, row.dst].contains(&gpu));
    !is_told && report.exporters.iter().any(|&(file, exported)| exported == gpu && is_used(file))
}

/// Bytes between processes that are not known to be between two GPUs: within one, or of memory that lies it is not known where.
pub(super) fn bytes_apart(report: &Report) -> u64 {
    let pairs = report.pairs.iter().filter(|pair| pair.src == pair.dst || is_unknown(report, pair));
    let paths = pairs.flat_map(|pair| &pair.paths).filter(|path| path.taken.between_processes);
    paths.map(|path| path.bytes).fold(0, u64::saturating_add)
}

/// Bytes of which it is not known on which GPU the memory of another process lies.
pub(super) fn unknown_bytes(report: &Report) -> u64 {
    let rows = report.between_processes.iter().filter(|it| is_another(report, it.src) || is_another(report, it.dst));
    rows.map(|it| it.bytes).fold(0, u64::saturating_add)
}

/// The process whose memory it is.
pub(super) fn owner(report: &Report, file: Option<usize>) -> String {
    let owner: Option<&File> = file.and_then(|file| report.files.get(file));
    owner.map_or_else(|| "another process".to_owned(), |owner| report.name(owner))
}

/// Names the direction and the owner of the memory: `pushed 1.0 GB to memory of rank 0`.
fn did(report: &Report, row: &BetweenProcesses) -> String {
    let size = bytes(row.bytes);
    let [src, dst] = [row.src_file, row.dst_file].map(|file| owner(report, file));
    match row.does {
        Does::Push => format!("pushed {size} to memory of {dst}"),
        Does::Pull => format!("pulled {size} from memory of {src}"),
        Does::Both => format!("copied {size} from memory of {src} to that of {dst}"),
    }
}

/// The GPUs, after that.
fn place(report: &Report, row: &BetweenProcesses) -> String {
    match [row.src, row.dst].map(|gpu| is_another(report, gpu)) {
        [true, true] => String::new(),
        [true, false] => format!(", to {}", report.label(row.dst)),
        [false, true] => format!(", from {}", report.label(row.src)),
        _ if row.src == row.dst => format!(", both on {}", report.label(row.src)),
        _ => format!(", {} > {}", report.label(row.src), report.label(row.dst)),
    }
}

/// The sentence about them.
pub(super) fn sentence(report: &Report) -> Option<Words> {
    let mut rows: Vec<&BetweenProcesses> = report.between_processes.iter().filter(|row| row.bytes > 0).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    let sum = |is_meant: &dyn Fn(&BetweenProcesses) -> bool| {
        rows.iter().filter(|row| is_meant(row)).map(|row| row.bytes).fold(0, u64::saturating_add)
    };
    let (all, unknown) = (sum(&|_| true), unknown_bytes(report));
    let on_one = sum(&|row| row.src == row.dst && !is_another(report, row.src));
    rows.first()?;
    let gpus = match on_one {
        0 => String::new(),
        on_one if on_one == all => " on one GPU".to_owned(),
        some => format!(", {} of them on one GPU", bytes(some)),
    };
    let name = |row: &BetweenProcesses| report.files.get(row.file).map(|file| report.name(file)).unwrap_or_default();
    let mut told: Vec<String> = (rows.iter().take(NAMED))
        .map(|row| format!("{} {}{}", name(row), did(report, row), place(report, row)))
        .collect();
    if let Some(more @ 1..) = rows.len().checked_sub(NAMED) {
        told.push(format!("and {} more, {} together", count(more as u64), bytes(all - sum_of(&rows))));
    }
    let copies = copies(report);
    let text = format!("{} of {copies} were between processes{gpus}: {}.", bytes(all), told.join("; "));
    let more = match unknown {
        0 => String::new(),
        _ => {
            let which = if unknown == all { "It".to_owned() } else { format!("Of {} it", bytes(unknown)) };
            format!(
                "{which} is not known on which GPU the other memory lies: trace the processes that own it too, and name all traces together."
            )
        }
    };
    Some(Words::from(at_least(report, text)).more(more))
}

/// The sentence about memory that was used when its owner had freed it.
pub(super) fn freed(report: &Report) -> Option<Words> {
    let rows = || report.between_processes.iter().filter(|row| row.freed > 0);
    let named = rows().max_by_key(|row| row.freed)?;
    let other = if named.does == Does::Pull { named.src_file } else { named.dst_file };
    let by = owner(report, Some(named.file));
    let pieces = counted(rows().map(|row| row.freed).sum(), "piece");
    let text = format!(
        "Memory of another process was copied from or to after its owner had freed it ({pieces}): {by}, memory of {}.",
        owner(report, other)
    );
    let more = "The bytes may be other memory's by then. Have the owner keep the memory until the other process has closed it.";
    Some(Words::from(text).more(more))
}

/// The sentence about memory that is kept open although its owner has freed it.
pub(super) fn never_closed(report: &Report) -> Option<Words> {
    // A trace that is full may lack that it was closed, and who runs may still close it.
    let is_known = |file: &&File| file.dropped == 0 && file.is_whole && !file.running && !file.may_run;
    let files: Vec<&File> = report.processes().filter(is_known).filter(|file| file.never_closed.0 > 0).collect();
    let who = match files[..] {
        [] => return None,
        [file] => report.name(file),
        _ => format!("{} processes", count(files.len() as u64)),
    };
    let (pieces, size) = files.iter().fold((0, 0u64), |(pieces, size), file| {
        (pieces + file.never_closed.0, size.saturating_add(file.never_closed.1))
    });
    let text = format!(
        "{who} opened memory of other processes and never closed it: {}, {}, which its owner has freed. The GPU gets it back when no process has it open.",
        counted(pieces, "mapping"),
        bytes(size)
    );
    let more = "Call cudaIpcCloseMemHandle before the owner frees the memory.";
    Some(Words::from(text).more(more))
}

/// The sentence about a rank that may work on the GPU of another one: neither copies anything between GPUs.
pub(super) fn on_one_gpu(report: &Report) -> Option<Words> {
    let is_meant = |file: &File| file.rank.is_some() && file.copies == 0 && file.copies_of_unknown_devices == 0;
    let mut found = report.processes().filter(|file| is_meant(file)).filter_map(|file| {
        let (owner, ordinal) = file.may_share_gpu?;
        let owner = report.files.get(owner).filter(|owner| is_meant(owner) && owner.rank != file.rank)?;
        Some((file, owner, report.label(*file.devices.get(&ordinal)?)))
    });
    let (file, owner, gpu) = found.next()?;
    let more_ranks = found.count() as u64;
    let others =
        if more_ranks == 0 { String::new() } else { format!("; so did {}", counted(more_ranks, "other rank")) };
    let text = format!(
        "{} and {} may both work on {gpu}: memory of the latter was opened there with {gpu} as the current device, and neither copied anything between GPUs{others}.",
        report.name(file),
        report.name(owner)
    );
    let more = "Copies within a GPU are not counted. If each rank is to have a GPU of its own: cudaSetDevice with the local rank, before all else.";
    Some(Words::from(text).more(more))
}

/// Bytes of the rows that are named.
fn sum_of(rows: &[&BetweenProcesses]) -> u64 {
    rows.iter().take(NAMED).map(|row| row.bytes).fold(0, u64::saturating_add)
}
