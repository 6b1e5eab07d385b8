//! Running a program plain and preloaded, and comparing.

#![allow(dead_code, reason = "tests/dist.rs uses a part")]

pub(crate) mod conformance;
pub(crate) mod findings;
pub(crate) mod legacy;
pub(crate) mod machine;
pub(crate) mod once;
pub(crate) mod outside;
pub(crate) mod sequences;
pub(crate) mod soak;

use std::fs::{self, File};
use std::io::Write;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use findings::Finding;
use p2pshim_trace::{NoteKind, Record, State};

use crate::scene::opposites::contradictions;

/// After that, a program hangs. On a machine that is very slow P2PSHIM_PATIENCE makes it so many times as long.
pub(crate) fn hang() -> Duration {
    let patience = std::env::var("P2PSHIM_PATIENCE").map_or(1, |value| value.parse().unwrap());
    Duration::from_secs(600) * patience
}

/// A file of the repository or of its target folder, which must exist.
pub(crate) fn path(relative: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(relative);
    let makes = if relative.contains("dist") { "make test-dist" } else { "make programs" };
    assert!(path.exists(), "{} is missing: run `{makes}`, which builds what the tests need", path.display());
    path
}

/// The shim's warnings, besides findings.
pub(crate) fn warnings(outcome: &Outcome) -> Vec<&String> {
    outcome.shim.iter().filter(|line| line.contains(" warn: ")).collect()
}

/// The library under test: `P2PSHIM_LIB`, or what the makefile has built.
pub(crate) fn shim() -> PathBuf {
    // Programs see the file that it is in their maps, past the link to what was built.
    path(&std::env::var("P2PSHIM_LIB").unwrap_or_else(|_| "target/built/libp2pshim.so".to_owned()))
        .canonicalize()
        .unwrap()
}

/// The library as a debug build.
pub(crate) fn debug_shim() -> PathBuf {
    path("target/debug/libp2pshim.so")
}

/// For the doctor, which touches gigabytes: in large pages, where there are some, that takes half the time.
pub(crate) const LARGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

/// The command that goes with the library.
pub(crate) fn command() -> PathBuf {
    path("target/built/p2pshim")
}

/// The JSON report of a folder of traces.
pub(crate) fn json_report(folder: &Path) -> serde_json::Value {
    let output = Command::new(command()).arg("report").arg(folder).arg("--json").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// `p2pshim doctor` on GPUs of which none hangs: whatever it waits for may take long on a machine that is busy.
pub(crate) fn doctor() -> Program {
    Program::new(command()).args(&["doctor", "--timeout", "600"])
}

/// The functions that include/p2pshim.h declares.
pub(crate) fn capi_functions() -> Vec<String> {
    let header = fs::read_to_string(path("include/p2pshim.h")).unwrap();
    let declared = header.lines().filter(|line| !line.starts_with([' ', '/', '#', 't', '}']));
    let name = |line: &str| Some(line.split_once('(')?.0.rsplit([' ', '*']).next()?.to_owned());
    declared.filter_map(name).filter(|name| name.starts_with("p2pshim_")).collect()
}

/// The verdicts that are kept for the shim in a folder of `XDG_CACHE_HOME`; the file for others lies beside them.
pub(crate) fn verdicts(cache: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(cache.join("p2pshim")).unwrap().map(|file| file.unwrap().path());
    files.filter(|file| file.extension() == Some("txt".as_ref())).collect()
}

/// The path of a browser, or why there is none.
pub(crate) fn browser() -> Result<String, String> {
    let output = Command::new(path("tests/get-chromium")).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()) } else { Err(said) }
}

/// A new path for a file or a folder, which the caller removes.
pub(crate) fn scratch(name: &str) -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{number}-{name}", std::process::id()))
}

/// A path for a file or a folder that is gone with this value, unless the test fails.
#[derive(Debug)]
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        Scratch(scratch(name))
    }

    /// A folder, which is there.
    pub(crate) fn folder(name: &str) -> Scratch {
        let folder = Scratch::new(name);
        fs::create_dir(&folder).unwrap();
        folder
    }
}

impl Deref for Scratch {
    type Target = PathBuf;

    fn deref(&self) -> &PathBuf {
        &self.0
    }
}

impl<T: ?Sized> AsRef<T> for Scratch
where
    PathBuf: AsRef<T>,
{
    fn as_ref(&self) -> &T {
        self.0.as_ref()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = if self.0.is_dir() { fs::remove_dir_all(&self.0) } else { fs::remove_file(&self.0) };
        }
    }
}

/// A virtual machine with two GPUs of NVIDIA, as far as p2pshim reads about it.
pub(crate) fn virtual_machine(root: &Path) {
    let write = |file: &str, text: &str| {
        let file = root.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    write("proc/cpuinfo", "flags\t\t: fpu hypervisor sse\n");
    write("sys/class/dmi/id/sys_vendor", "QEMU\n");
    for bus_id in ["0000:01:00.0", "0000:02:00.0"] {
        write(&format!("sys/bus/pci/devices/{bus_id}/vendor"), "0x10de\n");
        write(&format!("sys/bus/pci/devices/{bus_id}/class"), "0x030200\n");
    }
}

/// Says that a test, or a part of it, is skipped: `skipped: ` and the reason. tests/run shows and counts these lines, and no others.
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
    let line = line.lines().next().unwrap_or_default();
    let file = std::env::var_os("SKIPPED_TESTS").filter(|_| line.starts_with("skipped: "));
    let file = file.map(|file| File::options().append(true).create(true).open(file).unwrap());
    file.into_iter().for_each(|mut file| file.write_all(format!("{line}\n").as_bytes()).unwrap());
}

/// A program with what it is run with.
#[derive(Clone)]
pub(crate) struct Program {
    path: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    libraries: Vec<PathBuf>,
    findings_are_apart: bool,
}

/// The outcome of a program. Some lines on standard error begin with `p2pshim`: `findings` holds those with a rule and
/// `shim` the rest; `stderr` holds all others.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The program with what tells its runs apart, as tests/golden/findings.tsv has it.
    pub(crate) run: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) shim: Vec<String>,
    pub(crate) findings: Vec<Finding>,
    findings_are_apart: bool,
    /// All lines on standard error, in their order.
    pub(crate) lines: Vec<String>,
    pub(crate) status: String,
}

impl Program {
    /// Any program, found on `PATH` if it has no slash.
    pub(crate) fn new(path: impl Into<PathBuf>) -> Program {
        Program {
            path: path.into(),
            args: Vec::new(),
            env: Vec::new(),
            libraries: Vec::new(),
            findings_are_apart: false,
        }
    }

    /// A program of target/c-tests, on simulated GPUs.
    pub(crate) fn case(name: &str) -> Program {
        Program::new(path(&format!("target/c-tests/{name}"))).libraries("target/sim/lib")
    }

    pub(crate) fn arg(mut self, arg: impl Into<String>) -> Program {
        self.args.push(arg.into());
        self
    }

    pub(crate) fn args(self, args: &[&str]) -> Program {
        args.iter().fold(self, |program, arg| program.arg(*arg))
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Program {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Has notes on standard error like other findings.
    pub(crate) fn with_notes(self) -> Program {
        self.env("P2PSHIM_LOG", "warn,p2pshim::finding=info")
    }

    /// Another test looks at its findings.
    pub(crate) fn findings_apart(mut self) -> Program {
        self.findings_are_apart = true;
        self
    }

    /// A folder where the program finds its libraries, before those that it was given already.
    pub(crate) fn libraries(mut self, relative: &str) -> Program {
        self.libraries.insert(0, path(relative));
        self
    }

    /// Runs it without the shim.
    pub(crate) fn plain(&self) -> Outcome {
        self.run(&[])
    }

    /// Runs it with the shim as a user has it who sets nothing else; but all findings are shown that are looked at here, notes too.
    pub(crate) fn preloaded(&self) -> Outcome {
        if self.findings_are_apart || self.env.iter().any(|(name, _)| name == "P2PSHIM_LOG") {
            return self.run(&[&shim()]);
        }
        let mut outcome = self.clone().with_notes().run(&[&shim()]);
        // The log says this from `info` on too.
        outcome.shim.retain(|line| !line.ends_with(" times so far from the same place"));
        outcome
    }

    /// Runs it with the shim and a trace on standard error.
    pub(crate) fn traced_to_stderr(&self) -> Outcome {
        self.clone().env("P2PSHIM_LOG", "trace").preloaded()
    }

    /// Runs it with the shim and a trace in a file.
    pub(crate) fn traced(&self) -> (Outcome, Trace) {
        self.traced_with(&[&shim()])
    }

    pub(crate) fn traced_with(&self, preload: &[&Path]) -> (Outcome, Trace) {
        let file = Scratch::new("trace");
        let traced = self.clone().env("P2PSHIM_LOG", "trace").env("P2PSHIM_LOG_FILE", file.to_string_lossy());
        let mut outcome = traced.run(preload);
        let text = fs::read_to_string(&file).unwrap_or_default();
        let trace = Trace::parse(&text);
        outcome.findings.extend(text.lines().filter_map(Finding::parse));
        (outcome, trace)
    }

    /// With these libraries preloaded, in this order, in an environment that is otherwise empty.
    pub(crate) fn run(&self, preload: &[&Path]) -> Outcome {
        let (stdout, stderr) = (Scratch::new("stdout"), Scratch::new("stderr"));
        let mut command = Command::new(&self.path);
        command.args(&self.args).env_clear().stdin(Stdio::null());
        command.stdout(File::create(&stdout).unwrap()).stderr(File::create(&stderr).unwrap());
        for name in ["PATH", "HOME"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        if !self.libraries.is_empty() {
            command.env("LD_LIBRARY_PATH", joined(self.libraries.iter().map(PathBuf::as_path)));
        }
        if !preload.is_empty() {
            command.env("LD_PRELOAD", joined(preload.iter().copied()));
        }
        // Verdicts of other tests are not this one's, nor are the user's.
        command.env("XDG_CACHE_HOME", "/dev/null").envs(self.env.iter().cloned());
        let status = self.wait(command);
        let mut outcome = Outcome::new(self.name(), &text_of(&stdout), &text_of(&stderr), status);
        outcome.findings_are_apart = self.findings_are_apart;
        // The dynamic linker does not fail when it cannot preload; it says so and goes on.
        assert!(!outcome.stderr.contains("cannot be preloaded"), "{}", outcome.stderr);
        if self.path == self::command() {
            let found = contradictions(&format!("{}\n{}", outcome.stdout, outcome.lines.join("\n")));
            assert!(found.is_empty(), "{}:\n{}", outcome.run, found.join("\n\n"));
        }
        outcome
    }

    /// Variables that matter, the file's name, arguments, and folders of libraries that are not the simulated ones.
    fn name(&self) -> String {
        /// Where something is written to.
        const PLACES: [&str; 6] =
            ["P2PSHIM_LOG", "P2PSHIM_LOG_FILE", "P2PSHIM_TRACE", "OTHERHOOK_LOG", "STANDIN_CUDA_LOG", "XDG_CACHE_HOME"];
        let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
        let matters = |(name, _): &&(String, String)| !PLACES.contains(&name.as_str());
        let variables = self.env.iter().filter(matters).map(|(name, value)| format!("{name}={value}"));
        let args = self.args.iter().map(|arg| if arg.starts_with('/') { last(arg) } else { arg.clone() });
        let libraries = self.libraries.iter().filter_map(|path| path.to_str()?.split_once("/target/"));
        let libraries = libraries.filter(|(_, path)| *path != "sim/lib").map(|(_, path)| format!("on {path}"));
        let file = [last(&self.path.to_string_lossy())];
        variables.chain(file).chain(args).chain(libraries).collect::<Vec<_>>().join(" ")
    }

    fn wait(&self, mut command: Command) -> String {
        let started = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", self.path.display()));
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status.to_string();
            }
            if started.elapsed() > hang() {
                child.kill().unwrap();
                child.wait().unwrap();
                return format!("no end after {:?}", hang());
            }
            sleep(Duration::from_millis(2));
        }
    }

    /// Runs plain and preloaded with a trace, and one time in three preloaded as users have it; all must do the same. Answers the plain
    /// run and the trace.
    pub(crate) fn assert_same_preloaded(&self) -> (Outcome, Trace) {
        const UNTRACED: usize = 3;
        let plain = self.plain();
        if soak::is_all() || soak::Draw::of(&self.name()).below(UNTRACED) == 0 {
            let preloaded = self.preloaded();
            preloaded.assert_same_as(&plain, "preloaded");
            preloaded.assert_silent();
        }
        let folder = Scratch::new("traces");
        let (traced, trace) = self.clone().env("P2PSHIM_TRACE", folder.to_string_lossy()).traced();
        traced.assert_same_as(&plain, "preloaded with a trace");
        traced.assert_silent();
        trace.assert_recorded_in(&folder);
        (plain, trace)
    }
}

impl Outcome {
    fn new(run: String, stdout: &str, stderr: &str, status: String) -> Outcome {
        // How far a check is, which one says that takes long: on a busy machine any may.
        let lines = stderr.lines().filter(|line| !line.starts_with("p2pshim: check: "));
        // The first sentence of a report may begin as lines of the library do.
        let is_sentence = |line: &str| line.starts_with("p2pshim enabled ");
        let (ours, others): (Vec<&str>, Vec<&str>) =
            lines.partition(|line| line.starts_with("p2pshim") && !is_sentence(line));
        let (findings, shim): (Vec<&str>, Vec<&str>) =
            ours.into_iter().partition(|line| Finding::parse(line).is_some());
        Outcome {
            run,
            stdout: stdout.to_owned(),
            stderr: others.join("\n"),
            shim: shim.into_iter().map(str::to_owned).collect(),
            findings: findings.into_iter().filter_map(Finding::parse).collect(),
            findings_are_apart: false,
            lines: stderr.lines().map(str::to_owned).collect(),
            status,
        }
    }

    pub(crate) fn assert_same_as(&self, plain: &Outcome, how: &str) {
        assert_eq!(plain.stdout, self.stdout, "standard output, plain (left) and {how} (right)");
        assert_eq!(plain.stderr, self.stderr, "standard error, plain (left) and {how} (right)");
        assert_eq!(plain.status, self.status, "status, plain (left) and {how} (right)");
    }

    /// The shim's lines but that direct copies are slower: on a busy machine simulated GPUs take the time that it gives them.
    pub(crate) fn said_on_any_machine(&self) -> Vec<&String> {
        let is_of_load = |line: &&String| line.contains(" are slower than copies through the host (");
        self.shim.iter().filter(|line| !is_of_load(line)).collect()
    }

    /// The shim must not have said anything but what is wrong with the program's calls, and that as expected.
    pub(crate) fn assert_silent(&self) {
        let said = self.said_on_any_machine();
        assert!(said.is_empty(), "lines of the shim on standard error: {said:#?}");
        self.assert_findings();
    }

    /// The shim's findings in the program's calls must be those of tests/golden/findings.tsv.
    pub(crate) fn assert_findings(&self) {
        if !self.findings_are_apart {
            findings::check(&self.run, &self.findings);
        }
    }

    /// The trace on standard error.
    pub(crate) fn trace(&self) -> Trace {
        let lines: Vec<_> = self.lines.iter().filter(|line| line.starts_with("p2pshim ")).map(String::as_str).collect();
        Trace::parse(&lines.join("\n"))
    }

    pub(crate) fn assert_success(&self) {
        assert_eq!(self.status, "exit status: 0", "stdout: {}\n{}", self.stdout, self.lines.join("\n"));
    }
}

/// The lines of `P2PSHIM_LOG=trace`.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) calls: Vec<Call>,
    pub(crate) warnings: Vec<String>,
}

/// A line that shows a call: `p2pshim TIME PID/TID   cuMemcpyPeer(dstDevice=…) = CUDA_SUCCESS <2us> …`.
#[derive(Debug)]
pub(crate) struct Call {
    /// How many calls it is inside of: two columns each.
    pub(crate) depth: usize,
    pub(crate) name: String,
    /// `PID/TID`.
    pub(crate) thread: String,
    /// All from the name on.
    pub(crate) text: String,
}

impl Trace {
    pub(crate) fn parse(text: &str) -> Trace {
        let mut trace = Trace { calls: Vec::new(), warnings: Vec::new() };
        for line in text.lines() {
            let fields: Vec<&str> = line.splitn(4, ' ').collect();
            let &["p2pshim", _time, thread, rest] = fields.as_slice() else { panic!("not a line of the log: {line}") };
            let shown = rest.trim_start();
            match shown.split_once('(') {
                Some((name, _))
                    if ["cu", "hip"].iter().any(|of| name.starts_with(of))
                        && name.chars().all(|c| c.is_alphanumeric() || c == '_') =>
                {
                    trace.calls.push(Call {
                        depth: (rest.len() - shown.len()) / 2,
                        name: name.to_owned(),
                        thread: thread.to_owned(),
                        text: shown.to_owned(),
                    });
                }
                _ if shown.starts_with("debug: ") || shown.starts_with("info: ") => {}
                _ if Finding::parse(line).is_some() => {}
                _ => trace.warnings.push(shown.to_owned()),
            }
        }
        trace
    }

    /// Each call that was shown must be recorded too, by the same thread, with the same depth and answer, and no other.
    pub(crate) fn assert_recorded_in(&self, folder: &Path) {
        let shown = |call: &Call| {
            let (process, thread) = call.thread.split_once('/').unwrap();
            let answer = call.text.rsplit_once(") = ").unwrap().1.split(' ').next().unwrap();
            (process.to_owned(), thread.to_owned(), call.depth.min(3), call.name.clone(), answer.to_owned())
        };
        let mut shown: Vec<_> = self.calls.iter().map(shown).collect();
        let files = fs::read_dir(folder).map(|entries| entries.map(|entry| entry.unwrap().path()).collect());
        let files: Vec<PathBuf> = files.unwrap_or_default();
        let mut recorded = Vec::new();
        for file in files {
            let trace = p2pshim_trace::Trace::open(&file).unwrap();
            assert_eq!((trace.problems(), trace.dropped()), (&[][..], 0));
            let function =
                |number: u8| trace.notes_of(NoteKind::Function).find(|note| note.number == u32::from(number)).unwrap();
            let answer = |layer: &str, code: i32| {
                let usual = match p2pshim_trace::given(code) {
                    (old, true) => p2pshim_host::codes::since_10_1(old).unwrap_or(code),
                    (code, false) => code,
                };
                let mut codes = trace.notes_of(NoteKind::Code).filter(|note| note.string(0) == layer);
                let named = codes.find(|note| note.number == usual.cast_unsigned());
                named.map_or_else(|| code.to_string(), |note| note.string(1).to_owned())
            };
            let mut buffer = Vec::new();
            for block in 0..trace.blocks() {
                let block = trace.block(block, &mut buffer).unwrap().unwrap();
                // Copies with the host are recorded and not shown.
                let is_call = |call: &Record| !call.is_part() && !call.is_with_host();
                for call in block.calls().filter(|call| call.state == State::Done && is_call(call)) {
                    let function = function(call.function);
                    let (process, thread) = (trace.process().to_string(), block.thread.to_string());
                    let answer = answer(function.string(0), call.result);
                    recorded.push((process, thread, call.depth.into(), function.string(1).to_owned(), answer));
                }
            }
        }
        shown.sort();
        recorded.sort();
        assert_eq!(shown, recorded, "calls shown (left) and recorded (right)");
    }

    /// Names of the calls at a depth, in the order of their ends.
    pub(crate) fn names_at(&self, depth: usize) -> Vec<&str> {
        self.calls.iter().filter(|call| call.depth == depth).map(|call| call.name.as_str()).collect()
    }

    /// The calls of a function.
    pub(crate) fn of(&self, name: &str) -> Vec<&Call> {
        self.calls.iter().filter(|call| call.name == name).collect()
    }
}

/// The driver's function below a function of the runtime.
pub(crate) fn below(runtime: &str) -> String {
    match runtime.strip_prefix("cuda").unwrap() {
        "DeviceEnablePeerAccess" => "cuCtxEnablePeerAccess".to_owned(),
        "DeviceDisablePeerAccess" => "cuCtxDisablePeerAccess".to_owned(),
        same => format!("cu{same}"),
    }
}

fn joined<'a>(paths: impl Iterator<Item = &'a Path>) -> std::ffi::OsString {
    std::env::join_paths(paths).unwrap()
}

fn text_of(file: &Path) -> String {
    String::from_utf8_lossy(&fs::read(file).unwrap()).into_owned()
}
