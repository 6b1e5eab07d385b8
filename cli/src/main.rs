//! The p2pshim command: runs programs under the shim, and tells what it intercepts, how it is configured, what its findings
//! mean, whether peer access can be trusted, and what traces tell.

mod compare;
mod doctor;
mod explain;
#[cfg(test)]
mod fuzz;
mod gate;
mod json;
mod judge;
mod kept;
mod lock;
mod machine;
mod numbers;
mod nvlink;
mod nvml;
mod pages;
mod processes;
mod report;
mod run;
mod runs;
#[cfg(test)]
mod schema;
mod shim;
mod sim;
mod status;
mod table;
mod tables;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{ArgAction, CommandFactory, Parser, Subcommand};
use log::LevelFilter;

use p2pshim_host::config::{COMMAND_LOG, Variable};
use p2pshim_host::text::{Escaped, is_escaped, shortened};

use compare::CompareArguments;
use doctor::DoctorArguments;
use doctor::fleet::{self, FleetArguments};
use doctor::worker::{self, WorkerArguments};
use pages::{CompletionsArguments, ManArguments};
use report::{LiveArguments, ReportArguments};
use run::RunArguments;
use tables::{Api, Tables};

/// The help's text after the list of commands.
const AFTER_HELP: &str = "\
Examples:
  p2pshim run ./app                    run a program under the shim, and report its copies
  p2pshim doctor                       test whether peer access works on this machine
  p2pshim explain 704                  explain a code, a finding, a path or a line of the log

`p2pshim help COMMAND` shows the options, examples and exit status of a command.";

/// Makes CUDA peer-to-peer copies fast, correct and observable
///
/// The program need not be rebuilt: a preloaded library, libp2pshim.so, does the work. This command runs programs under the library, tests
/// the paths between GPUs, and explains findings. It lists the functions that the library intercepts, and the environment variables that
/// the library reads.
#[derive(Parser)]
#[command(name = "p2pshim", version, arg_required_else_help = true, after_long_help = AFTER_HELP)]
struct Arguments {
    /// Log what this command does: -v, or -vv for more
    ///
    /// It goes to standard error, as P2PSHIM_COMMAND_LOG=info and =debug have it.
    #[arg(short, long, global = true, action = ArgAction::Count, hide_short_help = true)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program under the shim
    ///
    /// The program and its children get the shim through LD_PRELOAD and its options through the environment. Options that are
    /// not given keep their value from the environment. When the program has ended, p2pshim prints a report of its copies on
    /// standard error. If NVML tells NVLink's traffic, the report has that too.
    Run(RunArguments),
    /// Test whether peer access can be trusted on this machine
    ///
    /// If it cannot, the lines below the verdict say what to do. The doctor tests the pairs in a process of its own, and tests a pair that hangs
    /// once more in another. It copies known data
    /// with the copy engines, runs kernels that load from and store to the peer's memory, and reads the data back. It also measures direct
    /// copies and copies through the host. The shim takes no part in the test. The doctor saves its verdicts, and the shim reads them.
    #[command(after_long_help = format!("{}\n\n{}", doctor::EXAMPLES, status::help("doctor")))]
    Doctor(DoctorArguments),
    /// Compare many machines by the files of `doctor --json`
    ///
    /// Those that stand out come first. A machine stands out if it is unsafe or was not tested, if its GPUs differ from those of most machines,
    /// or if its driver, links or speeds (less than 80 % of the median) differ from those of most machines with the same GPUs.
    #[command(after_long_help = status::help("fleet"))]
    Fleet(FleetArguments),
    /// Report on trace files: what was copied, how, and at what cost
    ///
    /// The report has copies, their paths and costs, findings, errors, and calls that never returned. It can read the traces of all ranks and
    /// hosts of a job together. Without an option it is text on standard output.
    #[command(after_long_help = status::help("report"))]
    Report(Box<ReportArguments>),
    /// Compare two runs: what got better or worse
    ///
    /// It compares pairs, paths, bytes, rates, time of calls, findings, ranks and the whole time. The first line is the verdict, with what
    /// has changed most. A difference counts if it is above the threshold, and above 1 ms of calls or 0.1 s of the whole run. If a folder holds
    /// several runs, their medians are compared, and a difference within their spread does not count. Times are compared if both programs copied
    /// the same amount, times of a copy if the copies had the same size, and rates if all copies of the pair were timed (--gpu-timing all).
    #[command(after_long_help = format!("{}\n\n{}", compare::EXAMPLES, status::help("compare")))]
    Compare(CompareArguments),
    /// Show where hung processes are stuck, and for whom they wait
    ///
    /// It shows the call that each process is in. The first line of a run names the rank, or the process, that the others may wait for, if the traces
    /// tell. The program need not end or be stopped.
    #[command(after_long_help = format!("{}\n\n{}", report::EXAMPLES_OF_HANG, status::help("hang")))]
    Hang(LiveArguments),
    /// List the processes that run under the shim, and their calls
    ///
    /// Like `p2pshim hang`, it reads the traces of programs that `p2pshim run` has started.
    #[command(after_long_help = status::help("ps"))]
    Ps(LiveArguments),
    /// Explain a code, a finding, a path or a line of the log
    ///
    /// For a code: its names, the functions that returned it on real GPUs, and the findings that say why. For a finding: what is
    /// wrong, what the documentation says, what the hardware does.
    #[command(after_long_help = format!("{}\n\n{}", explain::EXAMPLES, status::help("explain")))]
    Explain {
        /// A code, its name, a finding, a path, or a line with one in it
        ///
        /// For example 704, CUDA_ERROR_INVALID_CONTEXT, P2P-enable-twice, staged, or a line of the log that has one of these in it. Without it,
        /// p2pshim lists all findings.
        #[arg(value_name = "WHAT", value_parser = explain::words_to_complete(), hide_possible_values = true)]
        what: Vec<String>,
    },
    /// List the environment variables that the shim reads
    #[command(after_long_help = status::help("options"))]
    Options,
    /// List the functions that the shim intercepts
    #[command(after_long_help = status::help("apis"))]
    Apis,
    /// Print a completion script for a shell
    #[command(after_long_help = format!("Examples:\n  p2pshim completions bash >/etc/bash_completion.d/p2pshim\n  \
        p2pshim completions zsh >~/.zfunc/_p2pshim\n  \
        p2pshim completions fish >~/.config/fish/completions/p2pshim.fish\n\n{}", status::help("completions")))]
    Completions(CompletionsArguments),
    /// Write the manual pages
    #[command(after_long_help = format!(
        "Examples:\n  p2pshim man | man -l -\n  p2pshim man /usr/local/share/man/man1\n\n{}", status::help("man")))]
    Man(ManArguments),
    /// The process that touches the GPUs, for `doctor` and `run`
    #[command(hide = true)]
    GpuWorker(WorkerArguments),
    /// The process that reads NVLink's counters, for `run`
    #[command(hide = true)]
    NvlinkWorker(nvlink::worker::WorkerArguments),
}

fn main() -> ExitCode {
    run::settle();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    start_log(arguments.verbose);
    run(&arguments).unwrap_or_else(status::of_error)
}

/// Starts the command's own log. P2PSHIM_LOG is the library's.
fn start_log(verbose: u8) {
    let mut log = env_logger::Builder::new();
    match verbose {
        0 => log.filter_level(LevelFilter::Warn).parse_env(COMMAND_LOG),
        1 => log.filter_level(LevelFilter::Info),
        _ => log.filter_level(LevelFilter::Debug),
    };
    log.format(|out, record| writeln!(out, "p2pshim: {}", Escaped(record.args()))).init();
}

/// Says what is wrong with the arguments, or shows the help.
fn refuse(error: &clap::Error) -> ExitCode {
    /// A longer word is not shown in full.
    const LONG: usize = 200;
    let is_plain = |word: OsString| word.len() <= LONG && !word.to_string_lossy().contains(is_escaped);
    if error.use_stderr() && !std::env::args_os().all(is_plain) {
        error.to_string().lines().for_each(|line| say(shortened(line)));
    } else {
        let shown = error.print().and_then(|()| io::stdout().flush());
        if !error.use_stderr() {
            return status::end(status::GOOD, [shown]);
        }
    }
    ExitCode::from(status::USAGE)
}

/// Says something on standard error.
fn complain(text: impl Display) {
    say(format_args!("p2pshim: {text}"));
}

/// Writes a line to standard error, if that can be written: the exit status is the program's in any case.
fn say(line: impl Display) {
    let _ = writeln!(io::stderr(), "{}", Escaped(line));
}

fn run(arguments: &Arguments) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut out = io::stdout().lock();
    match &arguments.command {
        Command::Run(to_run) => return Ok(run::run(to_run)),
        Command::Apis => print_apis(&mut out, &tables::read()?.apis)?,
        Command::Options => print_options(&mut out)?,
        Command::Explain { what } if what.is_empty() => explain::print_list(&mut out, &tables::read()?.rules)?,
        Command::Explain { what } => {
            let Tables { apis, rules } = tables::read()?;
            let functions: Vec<String> = apis.into_iter().map(|api| api.name).collect();
            explain::print(&mut out, &rules, &functions, &what.join(" "))?;
        }
        Command::Doctor(arguments) => return doctor::run(arguments, &mut out),
        Command::Fleet(arguments) => return Ok(fleet::run(arguments, &mut out)),
        Command::Completions(arguments) => pages::print_completions(&mut out, Arguments::command(), arguments)?,
        Command::Man(arguments) => pages::write_man(&mut out, Arguments::command(), arguments)?,
        Command::Report(arguments) => {
            // It writes by itself.
            drop(out);
            return report::run(arguments);
        }
        Command::Compare(arguments) => {
            // It writes by itself.
            drop(out);
            return compare::run(arguments);
        }
        Command::Hang(arguments) => {
            drop(out);
            return report::hang(arguments);
        }
        Command::Ps(arguments) => {
            drop(out);
            return report::ps(arguments);
        }
        Command::GpuWorker(arguments) => {
            // It writes from two threads.
            drop(out);
            return Ok(worker::run(arguments));
        }
        Command::NvlinkWorker(arguments) => {
            // It writes by itself.
            drop(out);
            return Ok(nvlink::worker::run(arguments));
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn print_apis(out: &mut impl Write, apis: &[Api]) -> io::Result<()> {
    let width = apis.iter().map(|api| api.name.len()).max().unwrap_or_default();
    for api in apis {
        writeln!(out, "{:width$}  {:7}  {:6}  {}", api.name, api.layer, api.kind, version(api.since))?;
    }
    Ok(())
}

fn print_options(out: &mut impl Write) -> io::Result<()> {
    for variable in Variable::ALL {
        let [values, help, _] = variable.texts();
        let default = if variable.default().is_empty() { "unset" } else { variable.default() };
        writeln!(out, "{}={values}  [default: {default}]", variable.name())?;
        writeln!(out, "    {help}")?;
    }
    Ok(())
}

/// A CUDA version as people write it.
fn version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}
