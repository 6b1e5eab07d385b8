//! `p2pshim run`: a program under the shim, with its options as arguments.

mod deny;
mod options;
mod program;
mod races;
mod signals;
mod traces;

pub(crate) use signals::settle;

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::SystemTime;

use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches, value_parser};
use p2pshim_host::config::{Access, Broken, Config, Denied, Order, Verify};
use p2pshim_host::job;
use p2pshim_trace::{NoteKind, Trace};

use program::Hindrance;
use traces::Traces;

use crate::doctor::Check;
use crate::gate::{Gate, Judged};
use crate::nvlink::{self, Reading, Watch};
use crate::report::term::counted;
use crate::runs::{Run, signal_name};
use crate::shim;
use crate::status::{self, FAILED, NOT_FOUND, NOT_STARTED, Refusal};
use crate::{complain, doctor, numbers, report, say, sim};

/// The variable that tells NCCL to use no peer access.
const NCCL_P2P_DISABLE: &str = "NCCL_P2P_DISABLE";
const NCCL_PROTO: &str = "NCCL_PROTO";

/// The option of the shim that says where traces go.
const TRACE: &str = "P2PSHIM_TRACE";

/// The option of the shim that says which copies are timed.
const GPU_TIMING: &str = "P2PSHIM_GPU_TIMING";

/// The end of the names of traces.
const SUFFIX: &str = p2pshim_trace::SUFFIX;

/// The options that people need first, as the help lists them.
const FIRST: [&str; 6] = ["file", "quiet", TRACE, "fail_on", "P2PSHIM_ACCESS", "sim"];

/// The help's text after the options.
const EXAMPLES: &str = "\
Examples:
  p2pshim run ./app                        with a report at the end
  p2pshim run --trace traces ./app         the same, and the traces are kept; see p2pshim report
  p2pshim run -o page.html ./app           as a page for a browser
  p2pshim run -q ./app                     a report only if something is wrong
  p2pshim run --no-report ./app            like LD_PRELOAD=libp2pshim.so.0 ./app
  p2pshim run --log trace --log-file app.log ./app
                                           log each call to a file
  p2pshim run --access off ./app -n 4      hide peer access: does the bug go away?
  p2pshim run --fail-on staged,hazard ./app
                                           exit 120 if a copy is staged, or data may be wrong
  p2pshim run --sim 4 ./app                on four simulated GPUs
  p2pshim run mpirun -np 4 ./app           all processes that the program starts

Signals:
  p2pshim passes HUP, INT, QUIT, TERM, USR1, USR2, WINCH, TSTP and CONT on to the program.
  Signals of the terminal, such as Ctrl-C, reach the program directly, once. A signal to all
  processes of the group or job, as timeout(1) sends it, may reach the program twice.";

/// A variable that a program is to have for NCCL.
struct Switch {
    name: &'static str,
    value: &'static str,
    why: String,
    /// The user hides peer access, and so knows of it.
    is_chosen: bool,
}

/// A program, and what the shim is told.
pub(crate) struct RunArguments {
    /// The shim, if it is not the one beside this command.
    library: Option<PathBuf>,
    /// Variables of the shim.
    settings: Vec<(OsString, OsString)>,
    /// So many simulated GPUs.
    simulated: Option<u8>,
    reports: bool,
    /// Reports on standard error only if something is wrong.
    quiet: bool,
    /// Whether GPUs are checked before the program starts.
    checks: bool,
    output: report::Output,
    /// The conditions that the program has to meet.
    gate: Gate,
    /// The program and its arguments.
    command: Vec<OsString>,
}

impl RunArguments {
    /// The shim's options as the program will have them. The shim warns of what cannot be used of them.
    fn config(&self) -> Config {
        self.read_config().0
    }

    fn read_config(&self) -> (Config, Vec<String>) {
        let given = |name: &OsString| self.settings.iter().any(|(own, _)| own == name);
        let others = std::env::vars_os().filter(|(name, _)| !given(name));
        Config::read(others.chain(self.settings.iter().cloned()))
    }

    /// Why the program is not started: a pair that is to be kept off would be used.
    fn refusal(&self) -> Option<String> {
        let (config, warnings) = self.read_config();
        warnings.into_iter().find(|warning| config.on && warning.starts_with(&format!("{}=", deny::DENY)))
    }

    /// Tells the shim which races are to end, if any are.
    ///
    /// # Errors
    /// It is not known which.
    fn write_races(&self) -> Result<(), String> {
        match self.config() {
            Config { on: true, order: Order::Enforce, races: Some(folder), .. } => {
                let pairs = races::write(Path::new(&folder), self.output.suppress())?;
                complain(format_args!(
                    "waits are added for {} of places that raced in {}",
                    counted(pairs as u64, "pair"),
                    folder.display()
                ));
                Ok(())
            }
            Config { on: true, order: Order::Enforce, races: None, .. } => {
                Err("--order=enforce needs --races RUN, the folder with the traces of a run with --order --trace RUN"
                    .to_owned())
            }
            Config { on: true, races: Some(_), .. } => Err("--races is for --order=enforce".to_owned()),
            _ => Ok(()),
        }
    }

    /// Variables for NCCL, and why it gets them: it asks NVML about peer access where each process sees one GPU.
    fn switches_of_nccl(&self, is_any_denied: bool) -> Vec<Switch> {
        let Config { on, access, verify, broken, .. } = self.config();
        let switch = |name, value, why, is_chosen| Switch { name, value, why, is_chosen };
        let disable = |why: String, is_chosen| {
            let why = format!("{why}; NCCL may use peer access without asking CUDA");
            switch(NCCL_P2P_DISABLE, "1", why, is_chosen)
        };
        let hides = |what: &str| vec![disable(format!("{what} hides peer access"), true)];
        match () {
            () if !on => Vec::new(),
            () if access == Access::Off => hides("P2PSHIM_ACCESS=off"),
            () if is_any_denied => hides("P2PSHIM_DENY"),
            () if verify == Verify::Off || access != Access::Auto && broken != Broken::Refuse => Vec::new(),
            () => {
                let said = doctor::for_nccl(self.simulated.is_some());
                let broken = said.broken.map(|why| disable(why, false));
                let torn = "flags in line with data arrive apart from it (p2pshim doctor --full)".to_owned();
                broken.into_iter().chain(said.proto.map(|value| switch(NCCL_PROTO, value, torn, false))).collect()
            }
        }
    }

    /// Sets variables for NCCL. A user's own value stays, and is warned about if it leaves on what is broken.
    fn switch_nccl(&self, command: &mut Command, is_any_denied: bool) {
        for Switch { name, value, why, is_chosen } in self.switches_of_nccl(is_any_denied) {
            match std::env::var_os(name) {
                None => {
                    command.env(name, value);
                    complain(format_args!("{name}={value} is set for the program, since {why}"));
                }
                Some(own) if !is_chosen && !does_as_much(&own.to_string_lossy(), value) => {
                    let own = own.display();
                    complain(format_args!(
                        "warning: {name}={own} stays as you have set it, and not {value}, although {why}"
                    ));
                }
                Some(_) => {}
            }
        }
    }

    /// Pairs that the shim is to hide, if it does anything.
    fn denied(&self) -> Vec<Denied> {
        let Config { on, denied, .. } = self.config();
        if on { denied } else { Vec::new() }
    }

    /// How much of the GPUs is to be checked before the program starts, if the shim goes by it.
    fn check(&self) -> Option<Check> {
        let Config { on, access, verify, broken, .. } = self.config();
        let is_any_verified = access == Access::Auto || access == Access::App && broken == Broken::Refuse;
        (self.checks && on && is_any_verified).then_some(())?;
        match verify {
            Verify::Quick => Some(Check::Quick),
            Verify::Full => Some(Check::Full),
            Verify::Off => None,
        }
    }

    /// Checks the GPUs, and says how that came out; returns the run with what is to be kept of that: whether all were found to be right, of kernels
    /// too, and the time if that was earlier.
    fn check_gpus(&self, simulation: &[(OsString, OsString)]) -> Run {
        let checked = self.check().map_or(Ok(None), |check| doctor::check(simulation, self.simulated, check));
        let checked = checked.unwrap_or_else(|why| {
            complain(format_args!("GPUs are not checked: {why}; pairs are verified at their first use"));
            None
        });
        let Some(checked) = checked else { return Run::default() };
        checked.line.filter(|_| !(self.quiet && checked.is_right)).into_iter().for_each(complain);
        let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).ok();
        let nanos = checked.earlier.and_then(since).and_then(|since| u64::try_from(since.as_nanos()).ok());
        let (is_checked, is_checked_in_full) = (checked.is_right, checked.is_right && checked.is_full);
        let right = doctor::right(self.simulated.is_some());
        let wrong_through_host = checked.wrong_through_host;
        Run { is_checked, checked: right, is_checked_in_full, checked_at: nanos, wrong_through_host, ..Run::default() }
    }
}

impl FromArgMatches for RunArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let command = matches.get_many::<OsString>("command").unwrap_or_default().cloned().collect();
        let (mut settings, gate) = (options::settings(matches), Gate::from_arg_matches(matches)?);
        let is_given = settings.iter().any(|(name, _)| name == GPU_TIMING) || std::env::var_os(GPU_TIMING).is_some();
        if gate.wants_times() && !is_given {
            settings.push((GPU_TIMING.into(), "all".into()));
        }
        Ok(Self {
            library: matches.get_one("library").cloned(),
            settings,
            simulated: matches.get_one("sim").copied(),
            reports: !matches.get_flag("no-report"),
            quiet: matches.get_flag("quiet"),
            checks: !matches.get_flag("no-check"),
            output: report::Output::from_arg_matches(matches)?,
            gate,
            command,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for RunArguments {
    fn augment_args(command: clap::Command) -> clap::Command {
        let library = Arg::new("library").long("library").value_name("PATH").value_parser(value_parser!(PathBuf));
        let library = library.value_hint(clap::ValueHint::FilePath);
        let library = library.help("The shim [default: the one beside this command]");
        let simulated = Arg::new("sim").long("sim").value_name("N").value_parser(numbers::whole::<u8>(0..=sim::MOST));
        let simulated = simulated.help("Run on N simulated GPUs").long_help(
            "Run on N simulated GPUs. NVIDIA's static runtime (nvcc's default) does not work there. Link the program with the \
             shared one (nvcc -cudart shared), which p2pshim replaces",
        );
        let quiet = Arg::new("quiet").short('q').long("quiet").action(ArgAction::SetTrue);
        let quiet = quiet.help("Report only if something is wrong").long_help(
            "Print a report on standard error only if something is wrong: an error, a finding that is an error or a hazard, a \
             call that never returned, a pair of GPUs that loses data or hangs, or a trace that is not whole. With --output \
             the report is written in any case",
        );
        let no_report = Arg::new("no-report").long("no-report").action(ArgAction::SetTrue);
        let no_report = no_report.help("Print no report at the end").long_help(
            "Print no report on standard error at the end. p2pshim then writes no trace either, unless --trace, \
             --fail-on or --junit needs one",
        );
        let no_check = Arg::new("no-check").long("no-check").action(ArgAction::SetTrue);
        let no_check = no_check.help("Do not check the GPUs before the program starts").long_help(
            "Do not check the GPUs before the program starts. Without this option the first run after each boot copies data \
             between all GPUs, within a process and between two, in processes of its own; the shim uses the verdicts",
        );
        let program = Arg::new("command").value_name("COMMAND").required(true).num_args(1..).trailing_var_arg(true);
        let program = program.value_parser(value_parser!(OsString)).value_hint(clap::ValueHint::CommandWithArguments);
        let program = program.help("The program and its arguments");
        let command = command.next_display_order(FIRST.len());
        let command = Gate::augment_args(report::Output::augment_args(command)).mut_args(|argument| {
            match argument.get_id().as_str() {
                "file" => argument.help("Write the report to FILE (- for standard output)"),
                // Without a value, the program would be taken for one.
                id @ ("json" | "csv" | "calls") => {
                    let form = if id == "calls" { "a line for each call".to_owned() } else { id.to_uppercase() };
                    let help = format!("Write {form} to OUT, with or without other outputs");
                    argument.num_args(1).require_equals(false).help(help)
                }
                _ => argument,
            }
        });
        let command = command
            .arg(quiet)
            .arg(no_report.conflicts_with_all(["file", "format", "json", "csv", "calls", "perfetto", "html"]))
            .arg(no_check)
            .arg(library)
            .arg(simulated);
        let command = command.args(options::arguments()).arg(program).mut_args(|argument| {
            let id = argument.get_id().as_str();
            match FIRST.iter().position(|first| *first == id) {
                Some(place) => argument.display_order(place).help_heading(None::<&str>),
                None if id == "library" => argument.display_order(998),
                None => argument,
            }
        });
        command
            .override_usage("p2pshim run [OPTIONS] [--] COMMAND [ARGUMENT]...")
            .after_long_help(format!("{EXAMPLES}\n\n{}", status::help("run")))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// Runs the program and ends as it ends.
pub(crate) fn run(arguments: &RunArguments) -> ExitCode {
    let Some((name, rest)) = arguments.command.split_first() else { return ExitCode::from(FAILED) };
    let Prepared { mut command, traces, simulation, run, hindrance } = match prepare(arguments, name, rest) {
        Ok(prepared) => prepared,
        Err(error) if error.is::<Refusal>() => return status::of_error(error),
        Err(error) => return fail(&*error, FAILED),
    };
    let is_on = arguments.config().on;
    let before = traces.folder().map(traces_in).unwrap_or_default();
    // Before signals are taken: whoever tires of waiting can end this process.
    let watch = traces.folder().filter(|_| is_on).and_then(|_| Watch::start(&simulation));
    let relay = match signals::Relay::open() {
        Ok(relay) => relay,
        Err(error) => {
            return fail(&format!("the program is not started, for signals could not be passed on: {error}"), FAILED);
        }
    };
    let mut child = match signals::spawn(&mut command) {
        Ok(child) => child,
        Err(error) => {
            drop(traces);
            let (why, status) = why_not_started(name, &error);
            return fail(&*why, status);
        }
    };
    drop(command);
    let mut run = Run { process: child.id(), ..run };
    let status = match relay.wait(&mut child) {
        Ok(status) => status,
        Err(error) => return fail(&error, FAILED),
    };
    run.ends(status);
    let (mut new, mut unwritten) = (Vec::new(), None);
    if let Some(folder) = traces.folder() {
        keep(&run, watch, folder);
        new = new_traces(folder, &before, &run);
        if arguments.reports
            && let Err(error) = report_at(arguments, &traces, &new, &run, hindrance.as_deref())
        {
            complain(format_args!("no report: {error}"));
            unwritten = Some(FAILED).filter(|_| arguments.output.file().is_some());
        }
    }
    let broken = if arguments.gate.is_set() { judge(arguments, traces.folder(), &new, &run) } else { None };
    drop(traces);
    broken.or(unwritten).filter(|_| status.success()).map_or_else(|| end_like(status), ExitCode::from)
}

/// Judges the traces of a run that has just ended by the conditions that it has to keep to.
fn judge(arguments: &RunArguments, folder: Option<&Path>, traces: &[PathBuf], run: &Run) -> Option<u8> {
    let failure = match (run.signal, run.code) {
        (Some(signal), _) => Some(format!("It was ended by {}", signal_name(signal))),
        (None, Some(0)) => None,
        (None, code) => Some(format!("It ended with exit {}", code.unwrap_or_default())),
    };
    let program = Judged {
        program: run.command.first().map_or("", String::as_str),
        failure,
        start: run.start,
        seconds: run.end.saturating_sub(run.start) as f64 / 1e9,
    };
    let reports = match traces.iter().any(|path| has_suffix(path, SUFFIX)) {
        true => report::apart::of_run(traces, run, arguments.output.suppress()),
        false => Err(why_no_trace(folder).into()),
    };
    arguments.gate.judge(reports, Some(&program), FAILED)
}

/// Why there may be no trace, where processes were to write one.
fn why_no_trace(folder: Option<&Path>) -> String {
    let Some(folder) = folder else { return "no folder could be made for the trace".to_owned() };
    match traces::try_to_write(folder) {
        Err(error) => format!("{} cannot be written to: {error}", folder.display()),
        Ok(()) => "no process called an intercepted function, or the preload was lost on the way (`env -i`, sudo, a static child)".to_owned(),
    }
}

fn fail(error: &(impl std::fmt::Display + ?Sized), status: u8) -> ExitCode {
    complain(error);
    ExitCode::from(status)
}

/// Keeps how a run ended, and NVLink's traffic, in the folder of its traces, if there is one.
fn keep(run: &Run, watch: Option<Watch>, folder: &Path) {
    let warn = |what: &str, kept: io::Result<()>| {
        if let Err(error) = kept {
            complain(format_args!("warning: {what} cannot be kept in {}: {error}", folder.display()));
        }
    };
    if folder.is_dir() {
        warn("how the program ended", run.keep(folder));
    }
    if let Some(reading) = watch.and_then(Watch::finish).filter(|_| folder.is_dir()) {
        let reading = Reading { killed: run.signal.is_some(), ..reading };
        warn("what NVLink carried", reading.keep(folder).map(drop));
    }
}

/// The traces of a run in a folder, and what lies beside them, that were not there before.
fn new_traces(folder: &Path, before: &BTreeSet<PathBuf>, run: &Run) -> Vec<PathBuf> {
    let id = std::env::var_os(job::RUN).unwrap_or_else(|| run.id.clone().into());
    traces_in(folder).difference(before).filter(|path| is_of(path, &id)).cloned().collect()
}

/// Writes the report of traces, and how to see more.
///
/// # Errors
/// They could not be read, or the report could not be written.
fn report_at(
    arguments: &RunArguments,
    kept: &Traces,
    new: &[PathBuf],
    run: &Run,
    hindrance: Option<&str>,
) -> Result<(), Box<dyn Error>> {
    let config = arguments.config();
    let (readings, traces): (Vec<PathBuf>, Vec<PathBuf>) =
        new.iter().cloned().partition(|path| has_suffix(path, nvlink::SUFFIX));
    if !traces.iter().any(|path| has_suffix(path, SUFFIX)) {
        if arguments.quiet && arguments.output.file().is_none() {
            return Ok(());
        }
        let why = match (config.on, hindrance) {
            (false, _) => "P2PSHIM=off, so nothing is intercepted",
            (true, Some(hindrance)) => &format!("{hindrance}, so p2pshim could not be preloaded"),
            (true, None) if let Some(Err(error)) = kept.folder().map(traces::try_to_write) => {
                &format!("the folder of the trace cannot be written to: {error}")
            }
            (true, None) => {
                "there is no trace. Perhaps no process has called an intercepted function; or the preload is lost on the way \
                 (`env -i`, sudo, a wrapper that sets LD_PRELOAD, a static child); or a child still runs. If calls could not be \
                 recorded, a warning above says why"
            }
        };
        complain(format_args!("no report: {why}"));
        if let Some(file) = arguments.output.file() {
            complain(format_args!("{} is left as it was", file.display()));
        }
        report::print_nvlink_to_stderr(&readings);
        return Ok(());
    }
    // The folder of a run around this one may go with that.
    let told = report::of_run(new, run, &arguments.output, arguments.quiet, &config)?;
    if let Some(is_well) = told.filter(|_| std::env::var_os(job::RUN).is_none()) {
        say("");
        if is_well && config.order == Order::Off {
            say(
                "If data is wrong all the same: `--order` looks for missing waits, `--readback all` compares copies with their sources, and `p2pshim doctor --full` tests the paths.",
            );
        }
        say(format_args!("More: {}", kept.more()));
    }
    Ok(())
}

/// Whether a file is of this run, and not of another that writes to the same folder; if it does not say, it is.
fn is_of(path: &Path, id: &OsStr) -> bool {
    if !has_suffix(path, SUFFIX) {
        return true;
    }
    let Ok(trace) = Trace::open(path) else { return true };
    let mut ids = trace.notes_of(NoteKind::Variable).filter(|note| note.string(0) == job::RUN);
    ids.next().is_none_or(|note| OsStr::new(note.string(1)) == id)
}

/// The traces in a folder, and what lies beside them.
fn traces_in(folder: &Path) -> BTreeSet<PathBuf> {
    let paths = fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| [SUFFIX, nvlink::SUFFIX].iter().any(|suffix| has_suffix(path, suffix))).collect()
}

fn has_suffix(path: &Path, suffix: &str) -> bool {
    path.as_os_str().as_bytes().ends_with(suffix.as_bytes())
}

/// The program as it is to be started, where its traces go, and what it finds of simulated GPUs in its environment.
struct Prepared {
    command: Command,
    traces: Traces,
    simulation: Vec<(OsString, OsString)>,
    run: Run,
    /// Why nothing can be preloaded into it, if that is known.
    hindrance: Option<String>,
}

/// Names denied pairs for the program by UUIDs. Returns whether any of them may be there.
fn name_denied(command: &mut Command, denied: &[Denied], simulation: &[(OsString, OsString)]) -> bool {
    if !deny::names_ordinals(denied) {
        return !denied.is_empty();
    }
    match doctor::uuids(simulation) {
        Ok(uuids) => {
            command.env(deny::DENY, deny::value(denied, &uuids));
            deny::is_any_there(denied, &uuids)
        }
        Err(why) => {
            complain(format_args!(
                "warning: {} keeps its ordinals, and each process counts them by its own GPUs: {why}",
                deny::DENY
            ));
            true
        }
    }
}

/// Prepares the program.
fn prepare(arguments: &RunArguments, name: &OsStr, rest: &[OsString]) -> Result<Prepared, Box<dyn Error>> {
    if let Some(why) = arguments.refusal() {
        return Err(format!("the program is not started: {why}").into());
    }
    arguments.write_races()?;
    let shim = shim::find(arguments.library.as_deref())?;
    shim::check(&shim)?;
    log::info!("the library: {}", shim.display());
    arguments.settings.iter().for_each(|(name, value)| log::info!("{}={}", name.display(), value.display()));
    let hindrance = program::find(name, std::env::var_os("PATH")).and_then(|path| program::hindrance(&path));
    let mut command = Command::new(name);
    command.args(rest);
    // musl's dynamic linker would end the program.
    if !matches!(hindrance, Some((_, Hindrance::Musl))) {
        command.env("LD_PRELOAD", preload(&shim, std::env::var_os("LD_PRELOAD"))?);
    }
    let simulation = arguments.simulated.map(sim::environment).transpose()?.unwrap_or_default();
    command.envs(simulation.iter().map(|(name, value)| (name, value)));
    let checked = arguments.check_gpus(&simulation);
    command.envs(arguments.settings.iter().map(|(name, value)| (name, value)));
    let is_any_denied = name_denied(&mut command, &arguments.denied(), &simulation);
    arguments.switch_nccl(&mut command, is_any_denied);
    let asked = arguments.settings.iter().find(|(name, _)| name == TRACE).map(|(_, value)| PathBuf::from(value));
    if let Some(folder) = &asked {
        // The shim would make the last part of the path only, and continue without.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| format!("cannot create the folder of the trace, {}: {error}", folder.display()))?;
        traces::try_to_write(folder)
            .map_err(|error| format!("cannot write traces to {}: {error}", folder.display()))?;
    }
    let named = asked.or_else(|| std::env::var_os(TRACE).filter(|folder| !folder.is_empty()).map(PathBuf::from));
    // The program may go elsewhere.
    let named = named.map(|folder| std::path::absolute(&folder).unwrap_or(folder));
    arguments.output.check()?;
    arguments.gate.check()?;
    let traces =
        Traces::new(named, arguments.reports || arguments.gate.is_set(), &temporary()).unwrap_or_else(|error| {
            complain(format_args!(
                "no report: no temporary folder can be made ({error}); TMPDIR may name another place"
            ));
            Traces::Nowhere(None)
        });
    if let Some(folder) = traces.folder() {
        log::info!("traces: {}", folder.display());
        command.env(TRACE, folder);
    }
    // Inside another run they are those of that.
    if let Some(folder) = traces.exports().filter(|_| std::env::var_os(job::EXPORTS).is_none()) {
        command.env(job::EXPORTS, folder);
    }
    if let Some((file, hindrance)) = &hindrance {
        complain(format_args!("warning: {} {}", file.display(), hindrance.text()));
    }
    let run = Run::new(arguments.command.iter().map(|word| word.to_string_lossy().into_owned()).collect());
    let run =
        Run { id: run.id, host: run.host, command: run.command, start: run.start, version: run.version, ..checked };
    // Inside another run its processes are of that.
    if std::env::var_os(job::RUN).is_none() {
        command.env(job::RUN, &run.id);
    }
    let hindrance = hindrance.map(|(file, hindrance)| format!("{} {}", file.display(), hindrance.kind()));
    Ok(Prepared { command, traces, simulation, run, hindrance })
}

/// Whether a user's own value of a variable of NCCL switches off as much as another: a number that is not 0, or a list of protocols without
/// those that are excluded after `^`.
fn does_as_much(own: &str, value: &str) -> bool {
    let listed = |list: &str| list.split(',').map(|word| word.trim().to_ascii_uppercase()).collect::<BTreeSet<_>>();
    let Some(excluded) = value.strip_prefix('^').map(listed) else {
        return own.trim().parse::<i64>().is_ok_and(|number| number != 0);
    };
    match own.trim().strip_prefix('^') {
        Some(also) => excluded.is_subset(&listed(also)),
        None => !own.trim().is_empty() && excluded.is_disjoint(&listed(own)),
    }
}

/// Where temporary folders are made, wherever the program goes.
fn temporary() -> PathBuf {
    let folder = Some(std::env::temp_dir()).filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| PathBuf::from("/tmp"));
    std::path::absolute(&folder).unwrap_or(folder)
}

/// The value of `LD_PRELOAD`: the shim, and then what was there.
///
/// # Errors
/// A sentence for the user.
fn preload(shim: &Path, before: Option<OsString>) -> Result<OsString, String> {
    let is_separator = |byte: &u8| b": \t\n".contains(byte);
    let own = shim.as_os_str();
    if own.as_bytes().iter().any(is_separator) {
        return Err(format!(
            "{} cannot be preloaded: in LD_PRELOAD a space or a colon ends a path. Make a symbolic link to it in a folder \
             without, and name that with --library",
            shim.display()
        ));
    }
    let mut value = own.to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        // Under another `p2pshim run`, say.
        if before.as_bytes().split(is_separator).any(|path| path == own.as_bytes()) {
            return Ok(before);
        }
        value.push(":");
        value.push(before);
    }
    Ok(value)
}

/// Why a program could not be started, and the exit status that tells it.
fn why_not_started(name: &OsStr, error: &io::Error) -> (Box<dyn Error>, u8) {
    let shown = name.display();
    let found = program::find(name, std::env::var_os("PATH"));
    let (why, status) = match (error.kind(), found) {
        (io::ErrorKind::NotFound, None) if name.as_bytes().contains(&b'/') => {
            (format!("{shown}: no such file"), NOT_FOUND)
        }
        (io::ErrorKind::NotFound, None) => {
            let here = if Path::new(name).exists() { format!("; did you mean ./{shown}?") } else { String::new() };
            (format!("{shown}: no such program on PATH{here}"), NOT_FOUND)
        }
        (io::ErrorKind::NotFound, Some(_)) => {
            (format!("{shown} exists, but its interpreter or dynamic linker does not"), NOT_STARTED)
        }
        (io::ErrorKind::PermissionDenied, Some(path)) if path.is_dir() => {
            (format!("{shown} is a folder, not a program"), NOT_STARTED)
        }
        (io::ErrorKind::PermissionDenied, _) => (
            format!("{shown} cannot be executed ({error}); if the file is yours, chmod +x makes it executable"),
            NOT_STARTED,
        ),
        _ if error.raw_os_error() == Some(libc::ENOEXEC) => {
            (format!("{shown} is neither a program for this machine nor a script that begins with #!"), NOT_STARTED)
        }
        _ => (format!("{shown} could not be started: {error}"), NOT_STARTED),
    };
    (why.into(), status)
}

/// Ends as the program did, as far as this process can.
fn end_like(status: ExitStatus) -> ExitCode {
    /// Shells add this to the number of a signal.
    const BY_SIGNAL: i32 = 128;
    if let Some(signal) = status.signal() {
        signals::end_by(signal);
        return ExitCode::from(u8::try_from(BY_SIGNAL + signal).unwrap_or(FAILED));
    }
    ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preload_comes_first_and_only_once() {
        let value = |before: Option<&str>| preload(Path::new("/l/libp2pshim.so"), before.map(OsString::from)).unwrap();
        assert_eq!(value(None), "/l/libp2pshim.so");
        assert_eq!(value(Some("")), "/l/libp2pshim.so");
        assert_eq!(value(Some("/a.so /b.so")), "/l/libp2pshim.so:/a.so /b.so");
        assert_eq!(value(Some("/a.so:/l/libp2pshim.so")), "/a.so:/l/libp2pshim.so");
    }

    #[test]
    fn why_no_trace_is_first_that_none_could_be_written() {
        assert!(why_no_trace(Some(Path::new("/proc"))).starts_with("/proc cannot be written to: "));
        assert!(why_no_trace(None).starts_with("no folder could be made"));
        let folder = tempfile::tempdir().unwrap();
        assert!(why_no_trace(Some(folder.path())).starts_with("no process called"));
    }

    #[test]
    fn does_as_much_only_what_switches_the_same_off() {
        for (own, value, does) in [
            ("1", "1", true),
            ("0", "1", false),
            ("", "1", false),
            ("Simple", "^LL", true),
            ("^ll128, LL", "^LL", true),
            ("^LL", "^LL,LL128", false),
            ("LL,Simple", "^LL", false),
            ("", "^LL", false),
        ] {
            assert_eq!(does_as_much(own, value), does, "{own:?} for {value}");
        }
    }

    #[test]
    fn preload_path_that_the_linker_would_cut_is_refused() {
        for path in ["/a b/libp2pshim.so", "/a:b/libp2pshim.so"] {
            let said = preload(Path::new(path), None).unwrap_err();
            assert!(said.contains(path) && said.contains("symbolic link"), "{said}");
        }
    }
}
