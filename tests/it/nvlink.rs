//! NVLink's traffic by `p2pshim run` and `p2pshim report`, with the simulated NVML.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{Outcome, Program, Scratch, command, doctor, hang, path};

/// Copies so many times 64 MiB from GPU 0 to GPU 1, counts so many bytes more as a kernel's, and stays until it was seen.
const PROGRAM: &str = "\
import ctypes, os, struct, sys, time
copies, kernels, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
cuda = ctypes.CDLL('libcudart.so.12')
can, size = ctypes.c_int(), ctypes.c_size_t(64 << 20)
assert cuda.cudaDeviceCanAccessPeer(ctypes.byref(can), 0, 1) == 0 and can.value == 1
memory = [ctypes.c_void_p(), ctypes.c_void_p()]
for device in (0, 1) if copies else ():
    assert cuda.cudaSetDevice(device) == 0 and cuda.cudaMalloc(ctypes.byref(memory[device]), size) == 0
for _ in range(copies):
    assert cuda.cudaMemcpyPeer(memory[1], 1, memory[0], 0, size) == 0
assert cuda.cudaDeviceSynchronize() == 0
if os.environ['P2PSIM_NVLINK']:
    with open(os.environ['P2PSIM_NVLINK'] + '/traffic', 'r+b') as file:
        numbers = list(struct.unpack('<4Q', file.read(32).ljust(32, b'\\0')))
        numbers[0] += kernels
        numbers[3] += kernels
        file.seek(0)
        file.write(struct.pack('<4Q', *numbers))
time.sleep(seconds)
";

/// A folder that the simulated NVML reads, and one for traces.
struct Place {
    nvml: Scratch,
    traces: Scratch,
}

impl Place {
    fn new() -> Place {
        let place = Place { nvml: Scratch::new("nvml"), traces: Scratch::new("traces") };
        fs::create_dir_all(place.nvml.join("processes")).unwrap();
        place
    }

    /// `p2pshim run` with a trace.
    fn run(&self) -> Program {
        let program = Program::new(command()).arg("run").arg("--no-check").arg("--sim").arg("2").arg("--trace");
        program.arg(self.traces.to_str().unwrap()).env("P2PSIM_NVLINK", self.nvml.to_str().unwrap())
    }

    /// The program, which copies so many times and has kernels that move so many bytes.
    fn program(&self, copies: u32, kernels: u64) -> Program {
        self.run().args(&["python3", "-c", PROGRAM, &copies.to_string(), &kernels.to_string(), "0.4"])
    }

    /// Another process that uses the GPUs.
    fn other(&self, process: u32, text: &str) -> &Place {
        fs::write(self.nvml.join("processes").join(process.to_string()), text).unwrap();
        self
    }

    /// `p2pshim report` of the traces.
    fn report(&self, options: &[&str]) -> Outcome {
        Program::new(command()).arg("report").arg(self.traces.to_str().unwrap()).args(options).plain()
    }

    fn readings(&self) -> usize {
        let files = fs::read_dir(&self.traces).into_iter().flatten();
        files.filter(|file| file.as_ref().unwrap().path().to_string_lossy().ends_with(".nvlink.json")).count()
    }
}

/// The report's sentences before its head.
fn verdict(text: &str) -> Vec<&str> {
    text.lines().take_while(|line| !line.is_empty()).collect()
}

const GB: u64 = 1_000_000_000;
const UNSEEN: &str = "Something unseen moved the rest: kernels that access a peer's memory (NCCL, NVSHMEM, custom all-reduce), managed memory, or processes without p2pshim, for example.";

#[test]
fn copies_explain_all_and_later_reports_say_the_same() {
    let place = Place::new();
    let outcome = place.program(16, 0).plain();
    outcome.assert_success();
    let expected = [
        "p2pshim enabled a pair that the program never enables: 1.1 GB of submitted copies were direct that would have been staged; nothing was staged.",
        "NVLink carried 1.1 GB between these GPUs; copies explain nearly all of it.",
    ];
    assert_eq!(verdict(&outcome.stderr), expected, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("\nNVLink, by NVML's counters\n"), "{}", outcome.stderr);
    assert!(outcome.shim.is_empty(), "{:#?}", outcome.shim);
    assert_eq!(verdict(&place.report(&[]).stdout), expected);
    assert_eq!(place.readings(), 1);
    // A second run in the same folder reports itself alone, and the folder both.
    let second = place.program(16, 0).plain();
    assert_eq!(verdict(&second.stderr), expected, "{}", second.stderr);
    let both = place.report(&[]).stdout;
    assert_eq!(
        verdict(&both)[2],
        "NVLink carried 2.2 GB between these GPUs; copies explain nearly all of it.",
        "{both}"
    );
}

#[test]
fn copies_explain_a_part_and_the_rest_is_said_not_to_be_seen() {
    let place = Place::new();
    let outcome = place.program(16, 5 * GB).plain();
    outcome.assert_success();
    let said = verdict(&outcome.stderr);
    assert_eq!(said[1], "NVLink carried 6.1 GB between these GPUs; copies explain 1.1 GB of it.", "{said:?}");
    assert!(said[2].starts_with(UNSEEN) && said.len() == 3, "{said:?}");
    assert_eq!(verdict(&place.report(&[]).stdout), said);
    // If a trace is named alone, others may be missing.
    let trace = fs::read_dir(&place.traces).unwrap().map(|file| file.unwrap().path());
    let trace = trace.into_iter().find(|file| file.to_string_lossy().ends_with(".p2ptrace")).unwrap();
    let alone = Program::new(command()).arg("report").arg(trace.to_str().unwrap()).plain().stdout;
    assert!(!alone.contains("NVLink carried"), "{alone}");
}

#[test]
fn report_of_copies_and_kernels_is_in_json_and_page() {
    let place = Place::new();
    place.program(16, 5 * GB).plain().assert_success();
    let page = place.traces.join("page.html");
    let script = "import json,sys; r=json.load(sys.stdin)['nvlink']; g=r['gpus']; c=16<<26; v=20<<20
assert c + 5*10**9 <= r['carried_bytes'] <= c + 5*10**9 + v, r
assert r['copied_bytes'] >= c and r['carried_bytes'] - r['copied_bytes'] >= 5*10**9 - v, r
assert not r['is_explained'] and not r['is_at_least'] and r['shows_processes'] and r['other_processes'] == [], r
assert g[0]['copied_from_bytes'] == g[1]['copied_to_bytes'] == c and g[1]['copied_from_bytes'] == 0, r
assert g[0]['sent_bytes'] == g[1]['received_bytes'] > 10 * v > g[0]['received_bytes'], r";
    let json = place.report(&["--json", "--html", page.to_str().unwrap()]).stdout;
    let file = place.traces.join("report.json");
    fs::write(&file, &json).unwrap();
    let checked = Program::new("sh").args(&["-c", "python3 -c \"$1\" <\"$2\"", "sh", script, file.to_str().unwrap()]);
    checked.plain().assert_success();
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("NVLink carried 6.1 GB between these GPUs; copies explain 1.1 GB of it."));
}

#[test]
fn no_copy_but_traffic_is_said_after_the_first_line() {
    let place = Place::new();
    let outcome = place.program(0, 5 * GB).plain();
    outcome.assert_success();
    let said = verdict(&outcome.stderr);
    assert_eq!(said[..2], ["No copy between GPUs was seen.", "NVLink carried 5.0 GB between these GPUs."], "{said:?}");
    assert!(said[2].starts_with("Something unseen moved it: kernels"), "{said:?}");
    let idle = Place::new();
    let outcome = idle.program(0, 0).plain();
    let said = verdict(&outcome.stderr);
    assert_eq!(said[..2], ["No copy between GPUs was seen.", "NVLink carried nothing between these GPUs."], "{said:?}");
    assert!(said[2].starts_with("Loads and stores of kernels (NCCL, NVSHMEM) are not seen"), "{said:?}");
}

#[test]
fn program_without_a_trace_is_reported_by_its_counters() {
    // Nothing is intercepted there.
    let script = format!("{PROGRAM}\n");
    let place = Place::new();
    let outcome = place.run().args(&["env", "-u", "LD_PRELOAD", "python3", "-c", &script, "0", "5000000000", "0.4"]);
    let outcome = outcome.plain();
    outcome.assert_success();
    assert!(outcome.shim[0].starts_with("p2pshim: no report: there is no trace."), "{:#?}", outcome.shim);
    assert_eq!(outcome.shim[1], "p2pshim: NVLink carried 5.0 GB between these GPUs.", "{:#?}", outcome.shim);
    assert!(outcome.shim[2].starts_with("p2pshim: Something unseen moved it"), "{:#?}", outcome.shim);
    let other = Place::new();
    // 4.3 GB by each counter.
    let counter = "\\0\\0\\0\\0\\01\\0\\0\\0";
    let write = format!("printf '{}' >\"$P2PSIM_NVLINK/traffic\"", counter.repeat(4));
    let outcome = other.run().args(&["sh", "-c", &write]).plain();
    assert_eq!(outcome.shim.len(), 1, "a program that uses no GPU has moved nothing: {:#?}", outcome.shim);
}

#[test]
fn other_processes_are_said_and_nothing_is_claimed() {
    // This one is no descendant of the command. The other is of another namespace.
    for (process, text) in [(std::process::id(), ""), (999_999_999, "elsewhere")] {
        let place = Place::new();
        let outcome = place.other(process, text).program(16, 5 * GB).plain();
        outcome.assert_success();
        let expected =
            format!("It is not known what moved the rest: another process used these GPUs meanwhile (pid {process}).");
        assert_eq!(verdict(&outcome.stderr)[2], expected, "{}", outcome.stderr);
        assert_eq!(verdict(&place.report(&[]).stdout)[2], expected);
    }
    let place = Place::new();
    let outcome = place.program(16, 5 * GB).env("P2PSIM_NVML", "blind").plain();
    let expected = "It is not known what moved the rest: NVML did not show which processes used these GPUs.";
    assert_eq!(verdict(&outcome.stderr)[2], expected, "{}", outcome.stderr);
}

#[test]
fn processes_of_other_runs_in_the_same_folder_are_no_others() {
    let place = Place::new();
    let (first, second) = (place.program(16, GB), place.program(16, GB));
    std::thread::scope(|scope| {
        scope.spawn(|| first.plain().assert_success());
        scope.spawn(|| second.plain().assert_success());
    });
    assert_eq!(place.readings(), 2);
    let said = place.report(&[]).stdout;
    let said = verdict(&said);
    assert!(
        said[2].starts_with("NVLink carried 4.") && said[2].ends_with("; copies explain 2.1 GB of it."),
        "{said:?}"
    );
    assert!(said[3].starts_with(UNSEEN), "{said:?}");
}

#[test]
fn program_that_was_killed_has_at_least_its_copies() {
    let place = Place::new();
    let killed = "\"$@\"; kill -KILL $$";
    let program = place.run().args(&["sh", "-c", killed, "sh", "python3", "-c", PROGRAM, "16", "5000000000", "0.4"]);
    let outcome = program.plain();
    assert_eq!(outcome.status, "signal: 9 (SIGKILL)");
    let said = verdict(&outcome.stderr);
    assert_eq!(said[0], "sh was ended by SIGKILL.");
    assert!(said[2].ends_with("copies explain at least 1.1 GB of it."), "{said:?}");
    assert!(said[3].ends_with("The trace may also lack copies."), "{said:?}");
    assert_eq!(verdict(&place.report(&[]).stdout), said);
}

#[test]
fn damaged_reading_is_left_out_and_said() {
    let place = Place::new();
    place.program(16, 0).plain().assert_success();
    let files = fs::read_dir(&place.traces).unwrap().map(|file| file.unwrap().path());
    let reading = files.into_iter().find(|file| file.to_string_lossy().ends_with(".nvlink.json")).unwrap();
    for (text, why) in [("{", "EOF while parsing"), ("{\"version\":7}", "version 7"), ("", "EOF")] {
        fs::write(&reading, text).unwrap();
        let outcome = place.report(&[]);
        outcome.assert_success();
        assert_eq!(verdict(&outcome.stdout).len(), 1, "{}", outcome.stdout);
        assert!(outcome.shim[0].contains(" is left out: ") && outcome.shim[0].contains(why), "{:#?}", outcome.shim);
    }
    // A folder of an older p2pshim has none.
    fs::remove_file(&reading).unwrap();
    let outcome = place.report(&["--json"]);
    assert!(outcome.shim.is_empty() && outcome.stdout.contains("\"nvlink\":null"), "{}", outcome.stdout);
}

#[test]
fn no_counters_nothing_is_said_or_kept() {
    for fault in ["none", "fail", "old"] {
        let place = Place::new();
        let program = place.program(1, 0).env("P2PSIM_NVML", fault);
        let program = if fault == "none" { program.env("P2PSIM_NVLINK", "") } else { program };
        let outcome = program.plain();
        outcome.assert_success();
        assert!(!outcome.stderr.contains("NVLink") && outcome.shim.is_empty(), "{fault}: {:#?}", outcome.lines);
        assert_eq!(place.readings(), 0, "{fault}");
    }
}

#[test]
fn library_that_hangs_is_said_and_the_program_runs_and_ends() {
    for (fault, when) in [("hang", "before"), ("hang:2", "after")] {
        let place = Place::new();
        let outcome = place.run().env("P2PSIM_NVML", fault).args(&["sh", "-c", "echo ran; exit 7"]).plain();
        assert_eq!((outcome.stdout.as_str(), outcome.status.as_str()), ("ran\n", "exit status: 7"), "{fault}");
        let expected = format!(
            "p2pshim: warning: NVML did not return {when} the program; the report does not say what NVLink carried"
        );
        assert_eq!(outcome.shim[0], expected, "{:#?}", outcome.shim);
        assert_eq!(place.readings(), 0);
        assert_gone(&place.nvml);
    }
}

#[test]
fn signals_to_the_group_do_not_end_the_reading_and_the_end_of_the_command_does() {
    let place = Place::new();
    let script = "\
import os, signal, subprocess, sys, time
run = subprocess.Popen(sys.argv[2:], start_new_session=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert run.stdout.readline() == 'ready\\n'
os.killpg(run.pid, getattr(signal, sys.argv[1]))
print(run.communicate()[1], run.returncode)
";
    let program =
        "import signal, time\nsignal.signal(signal.SIGINT, lambda *_: None)\nprint('ready', flush=True)\ntime.sleep(1)";
    for (signal, readings) in [("SIGINT", 1), ("SIGKILL", 1)] {
        let own = command().to_string_lossy().into_owned();
        let traces = place.traces.to_str().unwrap();
        let outcome = Program::new("python3").args(&[
            "-c",
            script,
            signal,
            &own,
            "run",
            "--no-check",
            "--sim",
            "2",
            "--trace",
            traces,
        ]);
        let outcome = outcome.args(&["python3", "-c", program]);
        outcome.env("P2PSIM_NVLINK", place.nvml.to_str().unwrap()).plain().assert_success();
        assert_eq!(place.readings(), readings, "{signal}");
        assert_gone(&place.nvml);
    }
}

/// The process that reads the counters must end.
fn assert_gone(nvml: &Path) {
    let deadline = Instant::now() + hang();
    let is_ours = |process: &Path| {
        let has = |file: &str, what: &str| {
            fs::read(process.join(file)).is_ok_and(|text| String::from_utf8_lossy(&text).contains(what))
        };
        has("cmdline", "nvlink-worker") && has("environ", &format!("P2PSIM_NVLINK={}\0", nvml.display()))
    };
    while fs::read_dir("/proc").unwrap().any(|entry| is_ours(&entry.unwrap().path())) {
        assert!(Instant::now() < deadline, "it still runs");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn doctor_asks_the_same_library() {
    let place = Place::new();
    let doctor = doctor().args(&["--sim", "2", "0>1"]);
    let outcome = doctor.env("P2PSIM_NVLINK", place.nvml.to_str().unwrap()).plain();
    outcome.assert_success();
    assert!(outcome.stdout.contains("NVLink: NVLink joins them"), "{}", outcome.stdout);
    let _ = path("target/sim/lib/libnvidia-ml.so.1");
}
