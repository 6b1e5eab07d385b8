//! `p2pshim ps` and `p2pshim hang`: what programs that run are in, and which process the others may wait for.
//!
//! It is read from traces, which their processes write in place, and lines of Python from the memory of processes: nothing is asked of them. Nothing
//! is said that is not known: a process in no call may run kernels, or the host's own code.

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use p2pshim_host::machine;
use serde_json::{Value, json};

use super::files;
use super::live::{self, LONG, Meant, Process, State};
use super::model::{Call, Report, Run};
use super::output;
use super::sentence::what;
use super::suspect::{self, Facts, hangs, in_call, named, says, since};
use super::term::{Style, bytes, clean, duration, wrapped};
use crate::doctor;
use crate::status::{self, Refusal};
use crate::table::Table;

/// The version of the JSON.
const VERSION: u32 = 1;
/// Threads of a process that has ended of which each has a line, after the first.
const THREADS: usize = 16;
/// Blocks of a thread in which its last copy is looked for.
const LAST_BLOCKS: usize = 64;

/// The help's text after the options of `hang`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  p2pshim hang                 all programs of yours that run here under p2pshim run
  p2pshim hang 4711            programs below process 4711, such as p2pshim run or mpirun itself
  p2pshim hang traces          programs with traces in a folder, which machines may share; of
                               programs that have ended, the last call of each thread

p2pshim hang sees copies, waits for a stream, event, context or device, frees, and other \
intercepted calls. It does not see launches of kernels. Of the program's own code on the host it sees \
only the line of Python that a thread is at. It reads that line from the memory of the process, unless \
kernel.yama.ptrace_scope forbids it. Otherwise it shows the line that the \
process has recorded with the call, which may take some 0.3 s. A program needs a trace to be seen: \
`p2pshim run` makes one unless --no-report is given without --trace; if you preload the library by \
hand, set P2PSHIM_TRACE. p2pshim hang does not read traces of other users.";

/// Which programs are meant, and how they are shown.
#[derive(Args)]
pub(crate) struct LiveArguments {
    /// Folders of traces, or process ids [default: your programs here]
    #[arg(value_name = "DIR|PID")]
    named: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show all arguments of programs, not only the script's name
    #[arg(long)]
    with_arguments: bool,
}

/// Says what each process is in.
///
/// # Errors
/// Traces cannot be read, or there are none.
pub(crate) fn hang(arguments: &LiveArguments) -> Result<ExitCode, Box<dyn Error>> {
    let read = |blocks| {
        let (report, meant) = live::read(&arguments.named, blocks, arguments.with_arguments)?;
        Ok::<_, Box<dyn Error>>((report.unwrap_or_default(), meant))
    };
    let (mut report, mut meant) = read(LAST_BLOCKS)?;
    let are_whole = found(&report, &meant)?.iter().any(|(_, all)| suspect::needs_bytes(all));
    if are_whole {
        (report, meant) = read(usize::MAX)?;
    }
    let found = found(&report, &meant)?;
    let hangs = found.iter().any(|(_, all)| hangs(&Facts::of(&report, all, are_whole)));
    let written = output::write_to(Path::new(output::STDOUT), |out| {
        write(&report, &found, (&meant, arguments.json, are_whole), Style::of_stdout(), out)
    });
    Ok(status::end(if hangs { status::NEGATIVE } else { status::GOOD }, [written]))
}

/// Writes what is known of programs, as text or JSON.
pub(super) fn write(
    report: &Report,
    found: &Found,
    (meant, is_json, are_whole): (&Meant, bool, bool),
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    if is_json {
        return write_json(report, found, are_whole, out);
    }
    let line =
        |out: &mut dyn Write, text: &str, indent| writeln!(out, "{}", wrapped(&clean(text), style.width, indent));
    for (number, (run, all)) in found.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        line(out, &says(&Facts::of(report, all, are_whole)), "")?;
        writeln!(out, "{}", style.dim(&wrapped(&clean(&run.command.join(" ")), style.width, "  ")))?;
        for it in all {
            line(out, &format!("  {}", sentence(report, it)), "    ")?;
            for call in it.at_end.iter().skip(1).take(THREADS) {
                let at_end = at_end(report, it, call);
                line(out, &format!("    Thread {} was then in {at_end}.", call.thread), "      ")?;
            }
            let is_other = |call: &&&Call| it.call.is_some_and(|main| !std::ptr::eq(main, **call));
            for call in it.calls.iter().filter(is_other).take(THREADS) {
                let since = duration(machine::now().saturating_sub(call.started));
                let (what, place) = (in_call(report, call), call.from.at());
                line(out, &format!("    Thread {} has been in {what} for {since}{place}.", call.thread), "      ")?;
            }
        }
    }
    if !matches!(meant, Meant::Folders) {
        let more = "For processes of other machines, name the folder of traces that the machines share.";
        writeln!(out, "\n{}", style.dim(&wrapped(more, style.width, "")))?;
    }
    Ok(())
}

/// Lists the processes.
///
/// # Errors
/// As [`hang`].
pub(crate) fn ps(arguments: &LiveArguments) -> Result<ExitCode, Box<dyn Error>> {
    let read = live::read(&arguments.named, usize::MAX, arguments.with_arguments);
    let (report, meant) = read.map_err(files::Error::refused)?;
    let report = report.unwrap_or_default();
    let found = found(&report, &meant).map_err(Refusal::NoneFound)?;
    let written = output::write_to(Path::new(output::STDOUT), |out| {
        if arguments.json {
            return write_json(&report, &found, true, out);
        }
        let processes = found.iter().flat_map(|(_, all)| all);
        let lines = table(&report, processes, arguments.with_arguments).lines(Style::of_stdout().width);
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    });
    Ok(status::end(status::GOOD, [written]))
}

/// The runs that are meant, each with its processes.
pub(super) type Found<'a> = Vec<(&'a Run, Vec<Process<'a>>)>;

/// # Errors
/// There are none; the text says what may be the matter.
pub(super) fn found<'a>(report: &'a Report, meant: &Meant) -> Result<Found<'a>, String> {
    let all = report.runs.iter().map(|run| (run, live::processes(report, run)));
    let (found, ended): (Found, Found) = all.partition(|(_, all)| meant.has(all));
    if !found.is_empty() {
        return Ok(found);
    }
    let is_asked = |process: u32| match meant {
        Meant::Here => true,
        Meant::Processes(all) => all.iter().any(|&of| live::is_below(process, of)),
        Meant::Folders => false,
    };
    let check = doctor::checks_under_way().into_iter().find(|(process, _)| is_asked(*process));
    Err(match (meant, check) {
        (_, Some((_, check))) => check,
        (Meant::Folders, _) if !ended.is_empty() => return Ok(ended),
        _ if !machine::sees_processes() => "processes cannot be seen: there is no /proc, or only that of another pid namespace. \
                                            Name the folder of the traces"
            .to_owned(),
        _ => "no program runs here that writes a trace as this user. `p2pshim run` makes a trace, unless --no-report is given without \
              --trace; a program that preloads the library by hand needs P2PSHIM_TRACE. A trace begins with the first GPU call"
            .to_owned(),
    })
}

// ---- A process ----

/// Everything that is known of a process, in a sentence.
fn sentence(report: &Report, it: &Process) -> String {
    let file = it.file;
    let pid = file.process.unwrap_or_default();
    let who = match (&file.rank, file.host.as_deref().unwrap_or("host not known")) {
        (Some(_), host) => format!("{} (pid {pid}, {host})", named(it)),
        (None, host) => format!("{} ({host})", named(it)),
    };
    let stopped = if it.state == State::Stopped { "is stopped, by a signal or a debugger, and " } else { "" };
    let state = match it.call {
        _ if it.state == State::Ended => {
            let call = it.at_end.first().map(|call| format!(", in {}", at_end(report, it, call)));
            format!("{}{}", it.end(), call.unwrap_or_default())
        }
        Some(call) => {
            let place = it.place().unwrap_or_default();
            format!("{stopped}has been in {} for {}, at {place}", in_call(report, call), since(it))
        }
        None => {
            let line = it.line().map(|line| format!("; its Python is at {line} now")).unwrap_or_default();
            format!("{stopped}has made no GPU call that p2pshim sees for {}{line}", since(it))
        }
    };
    let more = match it.calls.len() {
        threads @ 2.. if it.state != State::Ended => format!("; {threads} threads are in calls"),
        _ => String::new(),
    };
    let last_copy = file.last_copy.as_ref();
    let is_copy = |call: &Call| last_copy.is_some_and(|copy| std::ptr::eq(copy, call));
    let last = it.last.filter(|call| it.call.is_none() && !is_copy(call));
    let last = last.map(|call| format!("; the last was {}{}", call.function, call.from.at()));
    let copy = last_copy.map(|copy| {
        let (what, place) = (what(report, copy), copy.from.at());
        format!("; the last copy that it queued is {}{place}", what.strip_prefix(", ").unwrap_or(&copy.function))
    });
    let full = if file.dropped > 0 { "; its trace is full, and later copies are not known" } else { "" };
    let unseen =
        if file.may_run && it.state != State::Ended { "; whether it still runs cannot be seen from here" } else { "" };
    format!("{who} {state}{more}{}{}{full}{unseen}.", last.unwrap_or_default(), copy.unwrap_or_default())
}

/// A call in which a process ended.
fn at_end(report: &Report, it: &Process, call: &Call) -> String {
    let most = call.age_ns.or_else(|| it.file.gone_after(call.started));
    let before = it.file.run_ended.and_then(|end| end.checked_sub(call.started));
    let age = match (call.age_ns, most, before) {
        (Some(age), ..) => format!(", after {}", duration(age)),
        (None, Some(most), _) => format!(", after up to {}", duration(most)),
        (None, None, Some(before)) => format!(", begun {} before the end of the run", duration(before)),
        (None, None, None) => String::new(),
    };
    let what = in_call(report, call);
    format!("{}{age}{}", what.trim_end_matches(','), call.from.at())
}

/// The table of processes.
fn table<'p, 'a: 'p>(
    report: &Report,
    all: impl Iterator<Item = &'p Process<'a>>,
    with_arguments: bool,
) -> Table<&'p Process<'a>> {
    let program = |it: &Process| {
        let name = it.file.program.first().map(|path| path.rsplit('/').next().unwrap_or_default().to_owned())?;
        // The executable comes before the words of the command.
        let words = it.file.program.get(2..).filter(|_| with_arguments).unwrap_or_default();
        Some([&[name], words].concat().join(" "))
    };
    let state = |it: &Process| match (it.state, it.call) {
        (State::Ended, _) => it.end().replace("has ", "").replace("was ", ""),
        (State::Stopped, _) => "stopped".to_owned(),
        (_, Some(call)) => call.function.clone(),
        (State::Moves, None) => "runs".to_owned(),
        _ => "in no call".to_owned(),
    };
    let copy = |it: &Process| Some(what(report, it.file.last_copy.as_ref()?).trim_start_matches(", ").to_owned());
    let none = || "-".to_owned();
    Table::of(all)
        .number("pid", |it| it.file.process.unwrap_or_default().to_string())
        .number("rank", |it| clean(it.file.rank.as_deref().unwrap_or("-")))
        .text("host", |it| clean(it.file.host.as_deref().unwrap_or("-")))
        .text("program", |it| clean(&program(it).unwrap_or_else(none)))
        .text("state", |it| state(it))
        .number("since", |it| it.since.map_or_else(none, duration))
        .text("last copy", |it| copy(it).unwrap_or_else(none))
        .number("bytes", |it| bytes(it.file.copied_bytes))
        .flexible(6)
        .spare(&[2, 3])
}

// ---- JSON ----

fn write_json(report: &Report, found: &Found, are_whole: bool, out: &mut dyn Write) -> io::Result<()> {
    let call = |call: &Call| {
        let gpu = |gpu: Option<usize>| gpu.map(|gpu| report.label(gpu));
        json!({
            "function": call.function, "thread": call.thread, "started": call.started, "returned": call.returned,
            "handle": format!("{:#x}", call.stream), "src": gpu(call.src), "dst": gpu(call.dst), "bytes": call.bytes,
            "path": call.path.map(|path| path.title().to_string()), "from": call.from,
        })
    };
    let process = |it: &Process| {
        let file = it.file;
        json!({
            "rank": file.rank, "pid": file.process, "host": file.host, "program": file.program.first(),
            "state": it.state, "seen": !file.may_run, "since_ns": it.since, "end": file.end,
            "at_end": it.at_end.iter().copied().map(call).collect::<Vec<Value>>(), "call": it.call.map(call), "threads_in_calls": it.calls.len(), "last_call": it.last.map(call),
            "last_copy": file.last_copy.as_ref().map(call), "python": it.line_of_python(), "dropped": file.dropped,
        })
    };
    let run = |(run, all): &(&Run, Vec<Process>)| {
        let facts = Facts::of(report, all, are_whole);
        json!({
            "id": run.id, "command": run.command, "says": says(&facts),
            "hangs": hangs(&facts),
            "missing_ranks": suspect::missing(all).0, "processes": all.iter().map(process).collect::<Vec<Value>>(),
        })
    };
    let all = json!({ "version": VERSION, "long_ns": LONG, "runs": found.iter().map(run).collect::<Vec<Value>>() });
    crate::json::write_pretty(&all, out)
}
