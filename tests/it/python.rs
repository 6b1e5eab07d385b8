//! The lines of a Python program that copy: named in the trace, for the copies that are looked at, and for no others.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{Outcome, Program, Scratch, command, path};
use p2pshim_trace::{NoteKind, Record, Trace};

const SCRIPT: &str = "c-tests/cases/python_lines.py";

/// Copies by threads that nobody waits for, until the interpreter ends under them.
const DAEMONS: &str = "
import ctypes, sys, threading, time
cuda = ctypes.CDLL('libcudart.so.12')

def allocate(device):
    pointer = ctypes.c_void_p()
    cuda.cudaSetDevice(device)
    cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
    return pointer

to, of = allocate(1), allocate(0)

def copy():
    cuda.cudaSetDevice(0)
    while True:
        cuda.cudaMemcpyPeerAsync(to, 1, of, 0, ctypes.c_size_t(4096), None)

for _ in range(4):
    threading.Thread(target=copy, daemon=True).start()
time.sleep(float(sys.argv[1]))
";

fn python() -> Program {
    let python = std::env::var("P2PSHIM_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    Program::new(python).libraries("target/sim/lib").findings_apart()
}

/// The script, as it copies `count` times by a package, what finds the number of the line that a comment names, and the package's folder. `P2PSHIM_PYTHON`
/// names an interpreter other than `python3`.
fn program(count: usize) -> (Program, impl Fn(&str) -> u32, Scratch) {
    let folder = Scratch::new("package");
    let program = python().arg(path(SCRIPT).to_string_lossy()).arg("libcudart.so.12").arg(folder.to_string_lossy());
    let text = fs::read_to_string(path(SCRIPT)).unwrap();
    let line = move |name: &str| {
        let ends = |line: &str| line.ends_with(&format!("  # {name}"));
        text.lines().position(ends).unwrap_or_else(|| panic!("no line {name}")) as u32 + 1
    };
    (program.arg(count.to_string()), line, folder)
}

/// Runs it with a trace, and returns that.
fn traced(program: &Program) -> (Outcome, Trace, Scratch) {
    let folder = Scratch::new("traces");
    let outcome = program.clone().env("P2PSHIM_TRACE", folder.to_string_lossy()).preloaded();
    assert_eq!(outcome.status, "exit status: 0", "{outcome:#?}");
    let files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    (outcome, Trace::open(&files[0]).unwrap(), folder)
}

/// The program's copies of each size, in their order, with the line and the function of those that were looked at.
fn copies(trace: &Trace) -> BTreeMap<u64, Vec<Option<(u32, String)>>> {
    let lines: BTreeMap<u32, (u32, String)> = trace
        .notes_of(NoteKind::Site)
        .filter_map(|note| {
            assert!(note.value("python")?.ends_with("python_lines.py"), "{note:?}");
            let function = note.value("function").unwrap().to_owned();
            Some((note.number, (note.value("line").unwrap().parse().unwrap(), function)))
        })
        .collect();
    let mut copies: BTreeMap<u64, Vec<Option<(u32, String)>>> = BTreeMap::new();
    let mut records: Vec<Record> = Vec::new();
    let mut buffer = Vec::new();
    for block in 0..trace.blocks() {
        records.extend(
            trace
                .block(block, &mut buffer)
                .unwrap()
                .unwrap()
                .calls()
                .filter(|call| !call.is_with_host())
                .filter(|call| call.depth == 0),
        );
    }
    for record in records.iter().filter(|record| record.bytes > 0) {
        copies.entry(record.bytes).or_default().push(lines.get(&u32::from(record.site)).cloned());
    }
    copies
}

/// Which of some copies were looked at, counted from 1.
fn numbers<T>(copies: &[Option<T>]) -> Vec<usize> {
    copies.iter().enumerate().filter(|(_, line)| line.is_some()).map(|(index, _)| index + 1).collect()
}

#[test]
fn python_lines_of_other_files_that_called_a_helper_are_noted_and_told() {
    const HELPER: &str = "
import ctypes
cuda = ctypes.CDLL('libcudart.so.12')

def allocate(device):
    pointer = ctypes.c_void_p()
    cuda.cudaSetDevice(device)
    cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
    return pointer

def inner(to, of):
    cuda.cudaMemcpyPeerAsync(to, 1, of, 0, ctypes.c_size_t(4096), None)

def send(to, of):
    inner(to, of)
";
    const TRAIN: &str = "
import threading
import helper
to, of = helper.allocate(1), helper.allocate(0)

def step():
    helper.send(to, of)

thread = threading.Thread(target=step)
thread.start()
thread.join()
";
    let folder = Scratch::folder("helper");
    fs::write(folder.join("helper.py"), HELPER).unwrap();
    fs::write(folder.join("train.py"), TRAIN).unwrap();
    let (_, trace, traces) = traced(&python().arg(folder.join("train.py").to_string_lossy()));
    let notes: Vec<_> = trace.notes_of(NoteKind::Site).filter(|note| note.value("function") == Some("inner")).collect();
    let [note] = notes[..] else { panic!("{notes:?}") };
    let of =
        |nth: &str| ["python", "line", "function"].map(|key| note.value(&format!("{key}{nth}")).unwrap_or_default());
    let [file, line, function] = of("2");
    assert_eq!((file.ends_with("/train.py"), line, function), (true, "7", "step"), "{note:?}");
    assert_eq!(of("3"), [""; 3], "threading.py is the interpreter's: {note:?}");
    let report = Command::new(command()).arg("report").arg(&traces).output().unwrap();
    let report = String::from_utf8(report.stdout).unwrap();
    assert!(report.contains("helper.py:12 in inner < train.py:7 in step (1 of 1 looked at, 4.1 kB in "), "{report}");
}

#[test]
fn python_line_outside_packages_is_noted_for_the_first_copies_and_for_powers_of_two() {
    let (program, line, _folder) = program(1000);
    let (_, trace, _folder) = traced(&program);
    let copies = copies(&trace);
    let steps = &copies[&4096];
    assert_eq!((steps.len(), numbers(steps)), (1000, (1..=64).chain([128, 256, 512]).collect()));
    let step = |copy: &Option<(u32, String)>| *copy == Some((line("step"), "Trainer.step".to_owned()));
    assert!(steps.iter().flatten().all(|found| step(&Some(found.clone()))), "{steps:?}");
    let copy = Some((line("copy"), "Trainer.copy".to_owned()));
    assert_eq!(copies[&(1 << 16)], [copy.clone(), copy.clone(), copy.clone()], "another line of the same place");
    assert_eq!(copies[&(1 << 17)], [copy.clone(), copy.clone(), copy], "another size");
    assert!(copies[&64].iter().all(step), "of a thread: {:?}", copies[&64]);
}

/// The line of the package's caller, not that of the package; both halves of what a program copies by hand.
#[test]
fn python_lines_of_copies_by_hand_are_in_the_first_line_of_the_report() {
    let folder = Scratch::new("traces");
    let script = path("c-tests/cases/by_hand_lines.py");
    let program = python().arg(script.to_string_lossy()).arg("libcudart.so.12").arg("20");
    let outcome = program.env("P2PSHIM_TRACE", folder.to_string_lossy()).preloaded();
    assert_eq!((&*outcome.status, &*outcome.stdout), ("exit status: 0", "done\n"), "{outcome:#?}");
    let text = fs::read_to_string(script).unwrap();
    let line = |name: &str| text.lines().position(|line| line.ends_with(&format!("  # {name}"))).unwrap() + 1;
    let report = Program::new(command()).arg("report").arg(folder.to_string_lossy()).plain().stdout;
    let places = format!("(by_hand_lines.py:{}, by_hand_lines.py:{})", line("download"), line("upload"));
    let first = format!("21.0 MB went from GPU 0 to GPU 1 through host memory by the program's own copies {places}");
    assert!(report.starts_with(&first), "{first}: {report}");
}

#[test]
fn python_line_in_a_signal_handler_is_not_looked_for() {
    let (program, _, _folder) = program(1);
    let (_, trace, _folder) = traced(&program.env("P2PSHIM_STACKS", "all"));
    assert_eq!(copies(&trace)[&32], [None]);
}

#[test]
fn python_line_of_a_finding_is_in_its_text_and_its_record() {
    let (program, line, _folder) = program(20);
    let (outcome, trace, _folder) = traced(&program.env("P2PSHIM_ACCESS", "app"));
    let said: Vec<&String> = outcome.lines.iter().filter(|line| line.contains("(error)")).collect();
    let expected = format!(" at python_lines.py:{} in mistake, ", line("mistake"));
    assert!(said.iter().any(|line| line.contains(&expected)), "{expected}: {:#?}", outcome.lines);
    let noted: Vec<String> = trace.notes_of(NoteKind::Finding).map(|note| note.string(0).to_owned()).collect();
    assert!(noted.iter().any(|text| text.contains(&expected)), "{noted:#?}");
    assert_eq!(copies(&trace)[&128], [Some((line("mistake"), "mistake".to_owned()))]);
}

#[test]
fn python_all_lines_are_noted_on_request_and_none() {
    for (stacks, is_all) in [("all", true), ("off", false)] {
        let (program, line, _folder) = program(100);
        let (_, trace, _folder) = traced(&program.env("P2PSHIM_STACKS", stacks));
        let copies = copies(&trace);
        assert_eq!(copies[&4096].len(), 100);
        let steps = copies[&4096].iter().filter(|found| found.as_ref().is_some_and(|(at, _)| *at == line("step")));
        assert_eq!(steps.count(), if is_all { 100 } else { 0 });
        assert!(is_all || copies.values().flatten().all(Option::is_none));
    }
}

#[test]
fn python_programs_do_the_same_and_each_copy_is_recorded() {
    let (program, _, _folder) = program(3000);
    let (outcome, trace, _folder) = traced(&program);
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("done\n", ""));
    let mut buffer = Vec::new();
    let mut inner = 0;
    for block in 0..trace.blocks() {
        inner += trace
            .block(block, &mut buffer)
            .unwrap()
            .unwrap()
            .calls()
            .filter(|call| !call.is_with_host())
            .filter(|call| call.depth == 1)
            .count();
    }
    assert!(inner > 3000, "{inner} of the driver's copies have a record");
}

#[test]
fn python_that_ends_while_threads_copy_ends_as_without_the_shim() {
    for seconds in 0..10 {
        let program = python().arg("-c").arg(DAEMONS).arg(format!("0.0{seconds}"));
        let (outcome, _, _folder) = traced(&program.env("P2PSHIM_STACKS", "all").env("P2PSHIM_LOG", "error"));
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("", ""));
    }
}

#[test]
fn python_report_names_the_lines() {
    let (program, line, _folder) = program(1000);
    let (_, _, folder) = traced(&program);
    let report = Program::new(crate::support::command()).arg("report").arg(folder.to_string_lossy()).plain();
    let step = format!("      python_lines.py:{} in Trainer.step (70 of 1 010 looked at, ", line("step"));
    assert!(report.stdout.contains(&step), "{step}{}", report.stdout);
    let copy = format!("      python_lines.py:{} in Trainer.copy (3 of 1 010 looked at, ", line("copy"));
    assert!(report.stdout.contains(&copy), "{copy}{}", report.stdout);
    let outer = format!("python_lines.py:{} in Trainer.copy < <string>:1 in <module> < python_lines.py:", line("copy"));
    assert!(report.stdout.contains(&outer), "{outer}{}", report.stdout);
    assert!(
        report.stdout.contains(&format!("at python_lines.py:{} in mistake\n", line("mistake"))),
        "{}",
        report.stdout
    );
}

#[test]
fn programs_without_python_have_no_lines_and_remember_their_places() {
    let program = Program::case("multithreaded-12").findings_apart();
    let (_, trace, _folder) = traced(&program);
    assert!(trace.notes_of(NoteKind::Site).count() > 0);
    let mut strings = trace.notes_of(NoteKind::Site).flat_map(|note| note.strings.iter());
    assert!(!strings.any(|text| text.starts_with("python")));
}
