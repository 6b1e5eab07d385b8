//! Which processes belong together, how each ended, what each copied, and what the traces do not tell.

use std::collections::{BTreeMap, BTreeSet};

use p2pshim_host::{job, machine};

use super::lost;
use super::model::{End, Ends, File, How, Progress, Report, Run, Share, Span, Unseen};
use super::term::{count, counted};
use crate::runs;

/// Adds all of this to a report.
pub(super) fn complete(report: &mut Report, kept: &[runs::Run]) {
    for Share { file, path, .. } in &report.shares {
        let Some(file) = report.files.get_mut(*file) else { continue };
        file.copied_bytes = file.copied_bytes.saturating_add(path.bytes);
        if path.taken.class().is_staged() {
            file.staged_bytes = file.staged_bytes.saturating_add(path.bytes);
        }
    }
    report.files.iter_mut().for_each(|file| file.end = own_end(file));
    say_what_became_of(&mut report.files);
    for run in kept {
        if let Some(file) = program(&mut report.files, run) {
            file.end = end(run);
            file.is_program = true;
            if file.end.how != How::Unknown {
                (file.running, file.may_run, file.gone) = (false, false, Some(run.end));
            }
        }
        let of_run = report.files.iter_mut().filter(|file| is_of(file, run));
        of_run.for_each(|file| file.run_ended = Some(run.end));
        let is_of = |file: &&mut File| !file.is_program && named(file, &[job::RUN]).as_ref() == Some(&run.id);
        report.files.iter_mut().filter(is_of).for_each(|file| file.is_child = true);
    }
    report.runs = group(report.processes(), kept);
    if report.runs.len() > 1 {
        report.lost = lost::lost(&report.pairs, &report.shares, &report.runs);
    }
    lost::bound(report);
    report.gaps = gaps(&report.files);
    report.lower_bounds = report.is_at_least();
    report.times = times(report);
    report.unseen = unseen(&report.files, kept);
    say_unfinished(report);
    say_last_copies(report);
    say_differences(report);
}

/// How a process ended, by its own file.
fn own_end(file: &File) -> End {
    match file.exit {
        _ if file.running => End { how: How::Running, ..End::default() },
        Some(code) => End { how: How::CalledExit, code: Some(code.into()), signal: None },
        None => End::default(),
    }
}

/// Finds those that became another program: the process has a later file. If a file does not say when its process was started, the
/// number may be another's.
fn say_what_became_of(files: &mut [File]) {
    let number = |file: &File| Some((file.host.clone()?, file.boot_id.clone(), file.namespace.clone(), file.process?));
    let facts = |file: &File| (file.started, file.process_start.clone());
    let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for file in files.iter() {
        number(file).into_iter().for_each(|number| all.entry(number).or_default().push(facts(file)));
    }
    for file in files.iter_mut().filter(|file| file.exit.is_none()) {
        let (started, start) = facts(file);
        let same = number(file).and_then(|number| all.get(&number));
        let later: Vec<_> = same.into_iter().flatten().filter(|other| other.0 > started).collect();
        if later.is_empty() {
            continue;
        }
        // If two had one number, the earlier does not run any more.
        (file.running, file.may_run) = (false, false);
        let is_it = start.is_some() && later.iter().any(|(_, other)| *other == start);
        file.end = End { how: if is_it { How::Exec } else { How::Unknown }, ..End::default() };
    }
}

/// How many processes ended in which way, those that exited with 0 first. One that became another program continues as that.
pub(super) fn ends<'a>(all: impl Iterator<Item = (&'a End, u64)>) -> Vec<Ends> {
    let mut counts: BTreeMap<&End, u64> = BTreeMap::new();
    for (end, processes) in all.filter(|(end, _)| end.how != How::Exec) {
        *counts.entry(end).or_default() += processes;
    }
    counts.into_iter().map(|(end, processes)| Ends { end: end.clone(), processes }).collect()
}

/// How the program of a run ended.
fn end(run: &runs::Run) -> End {
    match (run.signal, run.code) {
        (Some(signal), _) => End { how: How::Signal, code: None, signal: Some(runs::signal_name(signal)) },
        (None, Some(code)) => End { how: How::Exited, code: Some(code), signal: None },
        (None, None) => End::default(),
    }
}

/// The file of the process that `p2pshim run` started; if it has become another program since, of that.
fn program<'a>(files: &'a mut [File], run: &runs::Run) -> Option<&'a mut File> {
    files.iter_mut().filter(|file| is_program(file, run)).max_by_key(|file| file.started)
}

/// Whether a file is of a run.
fn is_of(file: &File, run: &runs::Run) -> bool {
    named(file, &[job::RUN]).as_ref() == Some(&run.id) || is_program(file, run)
}

/// Whether a file is of the process that `p2pshim run` started, as far as numbers of processes tell.
fn is_program(file: &File, run: &runs::Run) -> bool {
    let is_then = |started| (run.start..=run.end).contains(&started);
    file.process == Some(run.process) && file.host.as_ref() == Some(&run.host) && file.started.is_some_and(is_then)
}

/// Programs of which there is no trace, nor of any process that they started.
fn unseen(files: &[File], kept: &[runs::Run]) -> Vec<Unseen> {
    let has_trace = |run: &&runs::Run| files.iter().any(|file| is_of(file, run));
    let unseen = kept.iter().filter(|run| !has_trace(run)).map(|run| Unseen {
        id: run.id.clone(),
        command: run.command.clone(),
        started: run.start,
        ended: run.end,
        end: end(run),
    });
    unseen.collect()
}

/// The gaps in recording and reading, in a few sentences.
fn gaps(files: &[File]) -> Vec<String> {
    let of_all = |number: usize| match files.len() {
        1 => "the trace".to_owned(),
        all => format!("{} of {}", count(number as u64), counted(all as u64, "trace")),
    };
    let mut gaps = Vec::new();
    let unreadable = files.iter().filter(|file| file.process.is_none() && !file.is_begun).count();
    if unreadable > 0 {
        gaps.push(format!("{} could not be read", of_all(unreadable)));
    }
    let read = || files.iter().filter(|file| file.process.is_some() && !file.is_whole);
    let without_times = read().filter(|file| file.lacks_only_times).count();
    let damaged = read().count() - without_times;
    if damaged > 0 {
        gaps.push(format!("{} could be read in part only", of_all(damaged)));
    }
    if without_times > 0 {
        gaps.push(format!("times of {} are guesses", of_all(without_times)));
    }
    let dropped = files.iter().map(|file| file.dropped).fold(0, u64::saturating_add);
    if dropped > 0 {
        let written = files.iter().map(|file| file.records).fold(0, u64::saturating_add);
        gaps.push(format!(
            "{} of {} were not written",
            count(dropped),
            counted(dropped.saturating_add(written), "record")
        ));
    }
    let unseen = files.iter().map(|file| file.unseen).fold(0, u64::saturating_add);
    if unseen > 0 {
        gaps.push(format!(
            "{} of forked children bypassed p2pshim, which had started in their parent: fork before the first CUDA \
             call, or call exec in the child",
            counted(unseen, "call")
        ));
    }
    gaps
}

/// Variables that name a run, or a job: first those of one step of a job, then ours, then those of a whole job, which may run several.
const NAMES: [&[&str]; 8] = [
    &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    &["PMIX_NAMESPACE"],
    &["PALS_APID"],
    &["FLUX_JOB_ID"],
    &[job::RUN],
    &["SLURM_JOB_ID"],
    &["LSB_JOBID"],
    &["PBS_JOBID"],
];

fn named(file: &File, variables: &[&str]) -> Option<String> {
    let values = variables.iter().map(|name| file.variables.get(*name).cloned());
    values.collect::<Option<Vec<_>>>().map(|values| values.join("."))
}

/// Puts files together by run.
fn group<'a>(files: impl Iterator<Item = &'a File>, kept: &[runs::Run]) -> Vec<Run> {
    let mut groups: BTreeMap<Option<String>, Vec<&File>> = BTreeMap::new();
    for file in files {
        let name = NAMES.iter().find_map(|variables| named(file, variables));
        groups.entry(name).or_default().push(file);
    }
    let groups = groups.into_iter().flat_map(|(name, files)| split(name, files));
    let mut runs: Vec<Run> = groups.map(|(id, files)| run(id, &files, kept)).collect();
    runs.sort_by_key(|run| run.started);
    runs
}

/// A step of a job may be a shell, in which programs are run one after the other: then a rank is there more than once.
fn split(name: Option<String>, files: Vec<&File>) -> Vec<(Option<String>, Vec<&File>)> {
    let own = |file: &File| named(file, &[job::RUN]);
    let mut of_rank: BTreeMap<_, BTreeSet<Option<String>>> = BTreeMap::new();
    for file in &files {
        of_rank.entry((file.host.as_deref(), file.rank.as_deref())).or_default().insert(own(file));
    }
    if of_rank.values().all(|runs| runs.len() == 1) {
        return vec![(name, files)];
    }
    let mut groups: BTreeMap<Option<String>, Vec<&File>> = BTreeMap::new();
    for file in files {
        groups.entry(own(file)).or_default().push(file);
    }
    groups.into_iter().map(|(own, files)| (own.or_else(|| name.clone()), files)).collect()
}

fn run(id: Option<String>, files: &[&File], kept: &[runs::Run]) -> Run {
    // The run that ended worst stands for the runs of a job.
    let of_it = || kept.iter().filter(|run| files.iter().any(|file| is_of(file, run)));
    let is_of_host = |run: &runs::Run| files.iter().all(|file| file.host.as_ref() == Some(&run.host));
    let is_checked = of_it().next().is_some() && of_it().all(|run| run.is_checked && is_of_host(run));
    let checked = of_it().map(|run| if is_of_host(run) { run.checked.clone() } else { BTreeSet::new() });
    let checked = checked.reduce(|one, other| &one & &other).unwrap_or_default();
    let kept = of_it().max_by_key(|run| (run.signal.is_some(), run.code.is_some_and(|code| code != 0)));
    let first = files.iter().min_by_key(|file| file.started);
    let sum = |what: fn(&File) -> u64| files.iter().map(|file| what(file)).fold(0, u64::saturating_add);
    Run {
        id,
        command: match (kept, first) {
            (Some(run), _) => run.command.clone(),
            (None, Some(file)) => file.program.get(1..).unwrap_or_default().to_vec(),
            (None, None) => Vec::new(),
        },
        started: of_it().map(|run| run.start).min().or_else(|| files.iter().filter_map(|file| file.started).min()),
        ended: of_it().map(|run| run.end).max().or_else(|| files.iter().filter_map(|file| file.ended).max()),
        end: kept.map(end).unwrap_or_default(),
        is_checked,
        checked,
        is_checked_in_full: of_it().next().is_some() && of_it().all(|run| run.is_checked_in_full),
        checked_at: of_it().filter_map(|run| run.checked_at).min(),
        wrong_through_host: of_it().flat_map(|run| run.wrong_through_host.clone()).collect(),
        ends: ends(files.iter().map(|file| (&file.end, 1))),
        files: files.iter().map(|file| file.index).collect(),
        copied_bytes: sum(|file| file.copied_bytes),
        staged_bytes: sum(|file| file.staged_bytes),
    }
}

/// How many ranks there are: one that became another program, or has children, is one.
pub(super) fn ranks(report: &Report) -> usize {
    let of =
        |run: &Run| run.files.iter().filter_map(|&file| report.files.get(file)?.rank.as_ref()).collect::<BTreeSet<_>>();
    report.runs.iter().map(|run| of(run).len()).sum()
}

/// Whether processes of which nothing tells the run may be of several: they are not ranks, each of which is there once.
pub(super) fn may_be_several(report: &Report, run: &Run) -> bool {
    let files = run.files.iter().filter_map(|&file| report.files.get(file)).filter(|file| file.end.how != How::Exec);
    let ranks: Vec<Option<&String>> = files.map(|file| file.rank.as_ref()).collect();
    let different: BTreeSet<_> = ranks.iter().collect();
    run.id.is_none() && ranks.len() > 1 && (ranks.contains(&None) || different.len() < ranks.len())
}

/// When runs were, in order; or their processes, where it is not known which belong together.
fn times(report: &Report) -> Vec<Span> {
    let mut all: Vec<Span> = Vec::new();
    let mut add = |from: Option<u64>, to: Option<u64>| all.extend(from.zip(to).map(|(from, to)| Span { from, to }));
    for run in &report.runs {
        let files = run.files.iter().filter_map(|&file| report.files.get(file)).filter(|file| file.is_whole);
        if !may_be_several(report, run) {
            // Processes may outlive the program.
            add(run.started, files.filter_map(|file| file.ended).max().max(run.ended));
            continue;
        }
        files.for_each(|file| add(file.started, file.gone.max(file.ended)));
    }
    all.sort_unstable();
    all.dedup_by(|next, last| {
        let meets = next.from <= last.to;
        last.to = if meets { next.to.max(last.to) } else { last.to };
        meets
    });
    all
}

/// How long calls have been under way, or were when their process ended, as far as that is known. One that had only begun need not hang,
/// nor one in which a process was ended.
fn say_unfinished(report: &mut Report) {
    const SOON_NANOS: u64 = 1_000_000_000;
    for call in &mut report.unfinished {
        let Some(file) = report.files.get(call.file) else { continue };
        let until = match file.end.how {
            How::Running => Some(machine::now()),
            // It may have become another program any time before.
            How::Exited | How::Signal if file.exit.is_none() => None,
            _ => file.gone,
        };
        call.age_ns = until.map(|until| until.saturating_sub(call.started));
        let most = file.gone_after(call.started).filter(|_| file.end.how == How::Signal);
        call.progress = match (call.progress, call.age_ns.or(most)) {
            (Progress::Hangs, Some(..SOON_NANOS)) => Progress::UnderWay,
            // A program may well end while a thread of it waits.
            (Progress::Hangs, _) if call.is_wait && file.exit.is_some() && !file.running => Progress::UnderWay,
            (Progress::Hangs, None) if !file.may_run && file.lived_after(call.started) < SOON_NANOS => Progress::CutOff,
            (progress, _) => progress,
        };
    }
}

/// Says how long ago processes that run, or have not exited, copied last: it may be what they wait for.
fn say_last_copies(report: &mut Report) {
    let until = |file: &File| match file.end.how {
        How::Exited | How::CalledExit | How::Exec => None,
        How::Running => Some(machine::now()),
        How::Signal | How::Unknown => file.gone.or(file.run_ended),
    };
    let untils: Vec<_> = report.files.iter().map(until).collect();
    for (file, until) in report.files.iter_mut().zip(untils) {
        let Some(call) = &mut file.last_copy else { continue };
        // A child may outlive the run.
        call.age_ns = until.and_then(|until| until.checked_sub(call.returned.unwrap_or(call.started)));
    }
}

/// Says in what processes differ from most others of their run.
fn say_differences(report: &mut Report) {
    /// Fewer have no middle.
    const LEAST: usize = 3;
    /// Processes do not start at the same moment.
    const LEAST_NANOS: u64 = 1_000_000_000;
    for run in &report.runs {
        let of_run = || run.files.iter().filter_map(|&file| report.files.get(file));
        if of_run().count() < LEAST {
            continue;
        }
        let middle = |what: fn(&File) -> u64| {
            let mut all: Vec<u64> = of_run().map(what).collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied().unwrap_or_default()
        };
        let exited: fn(&File) -> u64 = |file| u64::from(file.end.code == Some(0));
        let copied: fn(&File) -> u64 = |file| file.copied_bytes;
        let staged: fn(&File) -> u64 =
            |file| (file.staged_bytes as f64 / file.copied_bytes.max(1) as f64 * 100.0) as u64;
        let last: fn(&File) -> u64 = |file| file.last_copy.as_ref().map_or(0, |call| call.started);
        let length = run.ended.unwrap_or_default().saturating_sub(run.started.unwrap_or_default());
        let traits = [
            ("ended", exited, 0),
            ("copied", copied, middle(copied) / 10),
            ("staged", staged, 5),
            ("last copy", last, (length / 10).max(LEAST_NANOS)),
        ]
        .map(|(name, what, most)| (name, what, middle(what), most));
        for &index in &run.files {
            let Some(file) = report.files.get_mut(index) else { continue };
            let apart = traits.iter().filter(|(_, what, middle, most)| what(file).abs_diff(*middle) > *most);
            file.differs = apart.map(|(name, ..)| *name).collect();
        }
    }
}

/// Leaves out arguments of programs but the script that an interpreter runs.
pub(super) fn drop_arguments(report: &mut Report) {
    for file in &mut report.files {
        // The executable comes first, before the words of the command.
        let words = file.program.split_off(file.program.len().min(1));
        file.program.extend(without_arguments(&words));
    }
    report.runs.iter_mut().for_each(|run| run.command = without_arguments(&run.command));
    report.unseen.iter_mut().for_each(|it| it.command = without_arguments(&it.command));
}

/// The program and its script, and a sign if more followed.
pub(crate) fn without_arguments(words: &[String]) -> Vec<String> {
    const INTERPRETERS: [&str; 9] = ["python", "perl", "ruby", "node", "julia", "bash", "sh", "java", "Rscript"];
    let is_interpreter = |word: &String| {
        let name = word.rsplit('/').next().unwrap_or_default();
        INTERPRETERS
            .iter()
            .any(|known| name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.') == *known)
    };
    let kept = match words {
        [program, module, _, ..] if is_interpreter(program) && module == "-m" => 3,
        [program, script, ..] if is_interpreter(program) && !script.starts_with('-') => 2,
        _ => 1,
    };
    let mut command: Vec<String> = words.iter().take(kept).cloned().collect();
    if words.len() > kept {
        command.push("…".to_owned());
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_arguments_the_script_stays_and_a_sign_for_the_rest() {
        for (command, shown) in [
            ("./app", "./app"),
            ("./app --token secret", "./app …"),
            ("python3.12 train.py --key secret", "python3.12 train.py …"),
            ("/usr/bin/python train.py", "/usr/bin/python train.py"),
            ("python -m torch.distributed.run secret", "python -m torch.distributed.run …"),
            ("python -c secret", "python …"),
            ("", ""),
        ] {
            let words: Vec<String> = command.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect();
            assert_eq!(without_arguments(&words).join(" "), shown);
        }
    }
}
