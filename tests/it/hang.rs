//! `p2pshim ps` and `p2pshim hang`: which process of a job is in what, and which one the others may wait for.
//!
//! A test waits until each process is seen in the state that it stays in, however long that takes, and then looks once.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Scratch, command, hang as patience, path, say};

/// A job of ranks under `p2pshim run`, each `hanging-12 WHAT`; all continue when it is dropped.
struct Job {
    folder: Scratch,
    traces: PathBuf,
    run: Child,
}

impl Job {
    fn new(what: &str, ranks: usize, size: usize) -> Self {
        Self::of(&[path("target/c-tests/hanging-12").to_str().unwrap()], what, ranks, size)
    }

    fn of(program: &[&str], what: &str, ranks: usize, size: usize) -> Self {
        let script =
            "program=$1 what=$2 folder=$3; shift 3; for rank; do RANK=$rank $program $what \"$folder\" & done; wait";
        Self::by(script, program, what, ranks, size)
    }

    fn by(script: &str, program: &[&str], what: &str, ranks: usize, size: usize) -> Self {
        let folder = Scratch::new("hang");
        let traces = folder.join("traces");
        let mut run = Command::new(command());
        run.args(["run", "--no-report", "--no-check", "--trace"]).arg(&traces).args(["sh", "-c", script, "sh"]);
        run.arg(program.join(" ")).arg(what).arg(&folder);
        run.args((0..ranks).map(|rank| rank.to_string())).env("WORLD_SIZE", size.to_string());
        run.env("LD_LIBRARY_PATH", path("target/sim/lib")).env("P2PSIM_DEVICES", "2").env_remove("P2PSHIM_TRACE");
        let run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { folder, traces, run }
    }

    /// The report on its processes, once their states are these.
    fn wait_for(&self, states: &[&str]) -> Value {
        let since = Instant::now();
        loop {
            let Output { stdout, .. } = p2pshim("ps", &[self.traces.to_str().unwrap(), "--json"]);
            let said: Value = serde_json::from_slice(&stdout).unwrap_or_default();
            let all = said["runs"][0]["processes"].as_array().cloned().unwrap_or_default();
            if all.iter().map(|it| it["state"].as_str().unwrap()).eq(states.iter().copied()) {
                return said["runs"][0].clone();
            }
            assert!(since.elapsed() < patience(), "{said:#}");
            sleep(Duration::from_millis(20));
        }
    }

    fn traces(&self) -> &str {
        self.traces.to_str().unwrap()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        fs::write(self.folder.join("go"), "").unwrap();
        self.run.wait().unwrap();
    }
}

fn p2pshim(what: &str, arguments: &[&str]) -> Output {
    Command::new(command()).arg(what).args(arguments).output().unwrap()
}

/// Lines, the errors and the exit status of `p2pshim hang`.
fn hang(arguments: &[&str]) -> (Vec<String>, String, Option<i32>) {
    let Output { stdout, stderr, status } = p2pshim("hang", arguments);
    let lines = String::from_utf8(stdout).unwrap().lines().map(str::to_owned).collect();
    (lines, String::from_utf8(stderr).unwrap(), status.code())
}

fn pid(run: &Value, number: usize) -> String {
    run["processes"][number]["pid"].as_u64().unwrap().to_string()
}

fn signal(name: &str, pid: &str) {
    assert!(Command::new("kill").args(["-s", name, pid]).status().unwrap().success());
}

const IN_CALL: &str = "in-call";

#[test]
fn rank_that_stops_before_a_barrier_is_named_first() {
    let job = Job::new("5", 8, 8);
    let mut states = [IN_CALL; 8];
    states[5] = "idle";
    let run = job.wait_for(&states);
    // As a user asks, by the process of the command, and by the folder.
    for named in [job.run.id().to_string().as_str(), job.traces()] {
        let (lines, error, status) = hang(&[named]);
        assert_eq!((error.as_str(), status), ("", Some(1)), "{lines:#?}");
        assert!(lines[0].starts_with("Rank 5 has made no GPU call that p2pshim sees for "), "{lines:#?}");
        assert!(lines[1].ends_with(" …"), "arguments may be secret: {lines:#?}");
        assert!(
            lines[0]
                .contains("; 7 others are in GPU calls that do not return, and may wait for it. p2pshim cannot tell "),
            "{lines:#?}"
        );
        for rank in [0, 1, 2, 3, 4, 6, 7] {
            let line = &lines[2 + rank];
            assert!(line.starts_with(&format!("  Rank {rank} (pid {}, ", pid(&run, rank))), "{line}");
            assert!(line.contains(") has been in cudaStreamSynchronize for ") && line.contains("hanging.c:"), "{line}");
            assert!(line.contains("; the last copy that it queued is GPU 0 > GPU 1, 1.0 MB, "), "{line}");
        }
        assert!(lines[7].contains("; the last was cudaStreamSynchronize, at "), "{lines:#?}");
    }
    // Without arguments it is among all that run here.
    assert!(hang(&[]).0.iter().any(|line| line.contains(&format!("Rank 5 (pid {}, ", pid(&run, 5)))));
    let table = String::from_utf8(p2pshim("ps", &[job.traces()]).stdout).unwrap();
    assert_eq!(table.lines().filter(|line| line.contains("  cudaStreamSynchronize  ")).count(), 7, "{table}");
    assert!(table.lines().filter(|line| line.ends_with("  3.1 MB")).count() == 8, "{table}");
}

#[test]
fn rank_in_a_copy_is_what_ranks_in_a_barrier_of_the_host_wait_for() {
    let job = Job::new("barrier2", 4, 4);
    let run = job.wait_for(&["idle", "idle", IN_CALL, "idle"]);
    let (lines, error, status) = hang(&[job.traces()]);
    assert_eq!((error.as_str(), status), ("", Some(1)), "{lines:#?}");
    assert!(lines[0].starts_with("Rank 2 has been in cudaStreamSynchronize for ") && lines[0].contains("hanging.c:"));
    assert!(lines[0].contains("; its last copy (GPU 0 > GPU 1, 1.0 MB, "), "{lines:#?}");
    assert!(lines[0].ends_with(". 3 others are in no GPU call, and may wait for it."), "{lines:#?}");
    // One of those at the barrier dies: all of them wait for it.
    signal("KILL", &pid(&run, 1));
    job.wait_for(&["idle", "ended", IN_CALL, "idle"]);
    let first = hang(&[job.traces()]).0[0].clone();
    let others =
        "rank 2 is in a GPU call that does not return, and 2 ranks are in no GPU call. They may wait for that.";
    assert_eq!(first, format!("Rank 1 has ended, by a signal or by `_exit`; {others}"));
    drop(job);
    // And where no rank is in a GPU call at all.
    let job = Job::new("barrier-", 3, 3);
    let run = job.wait_for(&["idle"; 3]);
    assert_eq!(
        hang(&[job.traces()]).0[0],
        "No process is in a GPU call, so p2pshim cannot tell whether anything hangs."
    );
    signal("KILL", &pid(&run, 2));
    job.wait_for(&["idle", "idle", "ended"]);
    let (lines, _, status) = hang(&[job.traces()]);
    let first = "Rank 2 has ended, by a signal or by `_exit`; 2 ranks are in no GPU call. They may wait for that.";
    assert_eq!((lines[0].as_str(), status), (first, Some(1)));
}

#[test]
fn ranks_that_were_killed_stopped_or_never_came_are_named() {
    let job = Job::new("none", 3, 4);
    let run = job.wait_for(&[IN_CALL; 3]);
    let first = || hang(&[job.traces()]).0[0].clone();
    let all = "3 ranks are in GPU calls that do not return. They may wait for that.";
    assert_eq!(first(), format!("Rank 3 has made no GPU call here yet, or runs elsewhere; {all}"));
    assert_eq!(run["missing_ranks"], serde_json::json!([3]));
    signal("STOP", &pid(&run, 1));
    job.wait_for(&[IN_CALL, "stopped", IN_CALL]);
    let two = "2 ranks are in GPU calls that do not return. They may wait for that.";
    assert_eq!(first(), format!("Rank 1 is stopped; {two}"));
    signal("CONT", &pid(&run, 1));
    signal("KILL", &pid(&run, 2));
    job.wait_for(&[IN_CALL, IN_CALL, "ended"]);
    assert_eq!(first(), format!("Rank 2 has ended, by a signal or by `_exit`; {two}"));
    let ended = ") has ended, by a signal or by `_exit`, in cudaStreamSynchronize";
    let lines = hang(&[job.traces()]).0;
    assert!(lines[4].contains(ended) && lines[4].contains("; the last copy that it queued is "), "{lines:#?}");
    // None runs any more: what each was in is still known, and the report says it too.
    for rank in 0..2 {
        signal("KILL", &pid(&run, rank));
    }
    job.wait_for(&["ended"; 3]);
    let lines = hang(&[job.traces()]).0;
    assert_eq!(lines[0], "No process of this run runs any more; 3 of 3 ended in GPU calls.", "{lines:#?}");
    for line in &lines[2..5] {
        assert!(line.contains(ended) && line.contains("hanging.c:"), "{lines:#?}");
    }
    let report = String::from_utf8(p2pshim("report", &[job.traces()]).stdout).unwrap();
    let calls = report.lines().filter(|line| line.contains(" was in this call when the process ended, or became "));
    assert_eq!(calls.filter(|line| line.contains(": cudaStreamSynchronize, begun at ")).count(), 3, "{report}");
    assert!(report.contains("3 calls, ") || report.contains("in 3 calls"), "{report}");
}

#[test]
fn check_that_waits_for_a_pair_is_said() {
    let cache = Scratch::folder("cache");
    let mut run = Command::new(command());
    run.args(["run", "--sim", "2", "true"]).env("P2PSIM_FAULT", "hang:0>1").env("XDG_CACHE_HOME", &cache);
    let mut run = run.stderr(Stdio::null()).spawn().unwrap();
    let since = Instant::now();
    let said = loop {
        let mut hang = Command::new(command());
        let hang = hang.args(["hang", &run.id().to_string()]).env("XDG_CACHE_HOME", &cache).output().unwrap();
        let said = String::from_utf8(hang.stderr).unwrap();
        if said.contains(" testing 0>1 ") {
            break said;
        }
        assert!(since.elapsed() < patience() && run.try_wait().unwrap().is_none(), "{said}");
        sleep(Duration::from_millis(20));
    };
    run.kill().unwrap();
    run.wait().unwrap();
    let begin = format!("p2pshim: process {} checks the GPUs before its program starts", run.id());
    assert!(said.starts_with(&begin) && said.contains(" testing 0>1 (copies) for "), "{said}");
    assert!(said.contains("; a pair that makes no progress is given up after 5 s"), "{said}");
}

#[test]
fn process_that_waits_for_those_it_started_is_not_what_they_wait_for() {
    let program = path("target/c-tests/hanging-12");
    let job = Job::by("exec \"$1\" \"$2\" \"$3\"", &[program.to_str().unwrap()], "spawns", 0, 0);
    let since = Instant::now();
    let processes = loop {
        let said: Value = serde_json::from_slice(&p2pshim("ps", &[job.traces(), "--json"]).stdout).unwrap_or_default();
        let all = said["runs"][0]["processes"].as_array().cloned().unwrap_or_default();
        let states = |state: &str| all.iter().filter(|it| it["state"] == state).count();
        if (states("idle"), states(IN_CALL)) == (2, 1) {
            break all;
        }
        assert!(since.elapsed() < patience(), "{said:#}");
        sleep(Duration::from_millis(20));
    };
    let parents: Vec<u64> = processes.iter().map(|it| parent(it["pid"].as_u64().unwrap())).collect();
    let other = processes.iter().find(|it| it["state"] == "idle" && !parents.contains(&it["pid"].as_u64().unwrap()));
    let waits = processes.iter().find(|it| it["state"] == IN_CALL);
    let first = hang(&[job.traces()]).0[0].clone();
    // Which of two that differ waits for the other is not known.
    let [waits, other] = [waits, other].map(|it| it.unwrap()["pid"].as_u64().unwrap());
    let said = format!(
        "Process {waits} is in a GPU call that does not return, and process {other} is in no GPU call. Which of them waits for the other is not known."
    );
    assert_eq!(first, said);
}

/// The process that has started this one; source: proc_pid_stat(5).
fn parent(process: u64) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn what_blocks_is_named() {
    for (what, function) in [
        ("event", "cudaEventSynchronize"),
        ("context", "cudaDeviceSynchronize, which waits for all work of its device,"),
        ("copy", "cudaMemcpy (1.0 MB, host)"),
        ("free", "cuMemFree_v2, which waits for all work of its device, of kernels and callbacks too,"),
    ] {
        let job = Job::new(what, 1, 1);
        job.wait_for(&[IN_CALL]);
        let (lines, error, status) = hang(&[job.traces()]);
        assert_eq!((error.as_str(), status), ("", Some(1)), "{lines:#?}");
        let first = &lines[0];
        assert!(first.starts_with("Rank 0 is in a GPU call that does not return, for "), "{lines:#?}");
        assert!(first.contains(&format!(": {function} at ")), "{lines:#?}");
        assert!(lines[2].contains(&format!(") has been in {function} for ")), "{what}: {lines:#?}");
    }
}

#[test]
fn free_that_hangs_behind_a_callback_says_that_the_copies_are_done() {
    let job = Job::new("beside", 1, 1);
    job.wait_for(&[IN_CALL]);
    let (lines, ..) = hang(&[job.traces()]);
    assert!(lines[0].contains(": cuMemFree_v2, which waits for all work of its device, "), "{lines:#?}");
    assert!(
        lines[0].contains("; its last copy (GPU 0 > GPU 1, 1.0 MB, ") && lines[0].contains(") is done"),
        "{lines:#?}"
    );
}

#[test]
fn nothing_that_runs_and_others_files_are_said() {
    let job = Job::new("5", 1, 1);
    let run = job.wait_for(&[IN_CALL]);
    let file = fs::read_dir(&job.traces).unwrap().next().unwrap().unwrap().path();
    let is_root = fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0);
    if is_root {
        chown(&file, Some(12345), None).unwrap();
        let (lines, error, status) = hang(&[job.traces()]);
        assert!(lines.is_empty() && error.contains("is left out: it belongs to another user"), "{lines:?} {error}");
        assert_eq!(status, Some(3));
        chown(&file, Some(0), None).unwrap();
    } else {
        say("skipped: only root can give a file to another user");
    }
    let link = job.traces.join("link.p2ptrace");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let (_, error, status) = hang(&[link.to_str().unwrap()]);
    assert_eq!(status, Some(3), "{error}");
    fs::remove_file(&link).unwrap();
    signal("KILL", &pid(&run, 0));
    let gone = Path::new("/proc").join(pid(&run, 0));
    while gone.exists() {
        sleep(Duration::from_millis(5));
    }
    let (lines, error, _) = hang(&[job.traces()]);
    assert_eq!(
        (lines[0].as_str(), error.as_str()),
        ("No process of this run runs any more; rank 0 ended in a GPU call.", "")
    );
    // A program without a trace is not among them.
    let mut bare = Command::new(command());
    bare.args(["run", "--no-report", "--no-check", "sleep", "600"]).stdout(Stdio::null());
    let mut bare = bare.spawn().unwrap();
    let (_, error, status) = hang(&[&bare.id().to_string()]);
    assert!(error.contains("no program runs here that writes a trace") && status == Some(3), "{error}");
    signal("TERM", &bare.id().to_string());
    bare.wait().unwrap();
}

/// Two ranks of Python that wait so often that their own looks are used up; then one hangs in a call, and the other one sleeps.
#[test]
fn lines_of_python_are_read_from_ranks_in_calls_and_outside() {
    const SCRIPT: &str = "\
import ctypes, os, sys, threading, time
cuda = ctypes.CDLL('libcudart.so.12')
there = lambda: os.path.exists(sys.argv[2] + '/go')
wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: [time.sleep(.001) for _ in iter(there, True)])
for _ in range(3000):
    cuda.cudaStreamSynchronize(None)
def barrier():
    come = threading.Event()
    threading.Thread(target=lambda: ([time.sleep(.01) for _ in iter(there, True)], come.set())).start()
    come.wait()  # asleep
if os.environ['RANK'] == '1':
    barrier()
else:
    cuda.cudaLaunchHostFunc(None, wait, None)
    cuda.cudaStreamSynchronize(None)  # hangs
";
    let folder = Scratch::folder("script");
    let script = folder.join("train.py");
    fs::write(&script, SCRIPT).unwrap();
    let number = |what: &str| SCRIPT.lines().position(|line| line.ends_with(what)).unwrap() + 1;
    let python = std::env::var("P2PSHIM_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let job = Job::of(&[&python, script.to_str().unwrap()], "-", 3, 3);
    let run = job.wait_for(&[IN_CALL, "idle", IN_CALL]);
    let (lines, ..) = hang(&[job.traces()]);
    let asleep = format!("train.py:{} ", number("# asleep"));
    let json: Value = serde_json::from_slice(&p2pshim("hang", &[job.traces(), "--json"]).stdout).unwrap();
    if fs::File::open(format!("/proc/{}/mem", pid(&run, 1))).is_ok() {
        let of_json = &json["runs"][0]["processes"][1]["python"];
        assert_eq!((of_json["line"].as_u64(), of_json["function"].as_str()), (Some(10), Some("barrier")), "{json:#}");
        let hangs = format!(", at train.py:{}.", number("# hangs"));
        assert!(lines[0].starts_with("Rank 1 has made no GPU call"), "{lines:#?}");
        assert!(lines[0].ends_with(&format!(". Its Python is at {asleep}now.")), "{lines:#?}");
        assert!([2, 4].iter().all(|&line| lines[line].ends_with(&hangs)), "{lines:#?}");
        let is_idle = format!("; its Python is at {asleep}now; the last was cudaStreamSynchronize");
        assert!(lines[3].contains(&is_idle) && !lines[3].contains("ffi"), "{lines:#?}");
    } else {
        assert!(lines[0].contains("The kernel does not let this user read where its Python is"), "{lines:#?}");
    }
    drop(job);
}

#[test]
fn line_of_python_is_named() {
    const SCRIPT: &str = "\
import ctypes, os, sys, time
cuda = ctypes.CDLL('libcudart.so.12')
wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: [time.sleep(.001) for _ in iter(lambda: os.path.exists(sys.argv[2] + '/go'), True)])
def step():
    cuda.cudaStreamSynchronize(None)
for _ in range(3):
    step()
cuda.cudaLaunchHostFunc(None, wait, None)
cuda.cudaStreamSynchronize(None)
";
    let folder = Scratch::folder("script");
    let script = folder.join("train.py");
    fs::write(&script, SCRIPT).unwrap();
    let python = std::env::var("P2PSHIM_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let job = Job::of(&[&python, script.to_str().unwrap()], "-", 1, 1);
    job.wait_for(&[IN_CALL]);
    let (lines, ..) = hang(&[job.traces()]);
    assert!(
        lines[2].contains(") has been in cudaStreamSynchronize for ") && lines[2].contains(", at train.py:9."),
        "{lines:#?}"
    );
    drop(job);
}
