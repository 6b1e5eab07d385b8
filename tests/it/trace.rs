//! The trace file: it knows of every call that has returned, however the program ends, and the program never notices it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Outcome, Program, Scratch, command, path, say};
use p2pshim_trace::{Capture, DeviceTime, NoteKind, Record, State, Trace};

/// A folder for traces.
struct Folder(Scratch);

impl Folder {
    fn new() -> Folder {
        Folder(Scratch::new("traces"))
    }

    fn text(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }

    /// All traces in it.
    fn traces(&self) -> Vec<Trace> {
        let mut files: Vec<PathBuf> = match fs::read_dir(&*self.0) {
            Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
            Err(_) => Vec::new(),
        };
        files.sort();
        files
            .iter()
            .map(|file| Trace::open(file).unwrap_or_else(|error| panic!("{}: {error}", file.display())))
            .collect()
    }

    fn one_trace(&self) -> Trace {
        let mut traces = self.traces();
        assert_eq!(traces.len(), 1, "{traces:#?}");
        traces.remove(0)
    }
}

fn traced(program: &Program, folder: &Folder) -> Outcome {
    program.clone().env("P2PSHIM_TRACE", folder.text()).preloaded()
}

/// How often each thread was recorded to have called a function from outside, and that to have returned.
fn returned_by_thread(trace: &Trace, function: &str) -> BTreeMap<u32, u64> {
    let number = trace.notes_of(NoteKind::Function).find(|note| note.string(1) == function).unwrap().number;
    let mut buffer = Vec::new();
    let mut returned = BTreeMap::new();
    for block in 0..trace.blocks() {
        let block = trace.block(block, &mut buffer).unwrap().unwrap();
        let calls = block
            .calls()
            .filter(|call| !call.is_with_host())
            .filter(|call| u32::from(call.function) == number && call.depth == 0);
        *returned.entry(block.thread).or_default() += calls.filter(|call| call.state == State::Done).count() as u64;
    }
    returned
}

/// The program's notes: threads and how many of their copies had returned.
fn noted(file: &Path) -> Vec<(u32, u64)> {
    let bytes = fs::read(file).unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    (0..bytes.len() / 16).map(|thread| (word(16 * thread) as u32, word(16 * thread + 8))).collect()
}

fn knows_of_all_that_returned(how: &str, status: &str, runs: usize) {
    for _ in 0..runs {
        let (folder, file) = (Folder::new(), Scratch::new("returned"));
        let program = Program::case("ends_suddenly-12").arg(how).arg(file.to_string_lossy());
        let outcome = traced(&program, &folder);
        // A core may have been dumped.
        assert!(outcome.status.starts_with(status), "{outcome:#?}");
        let trace = folder.one_trace();
        assert_eq!((trace.problems(), trace.dropped()), (&[][..], 0));
        let returned = returned_by_thread(&trace, "cudaMemcpyPeerAsync");
        let noted = noted(&file);
        assert!(noted.len() == 8 && noted.iter().all(|&(_, copies)| copies > 0), "{noted:?}");
        for (thread, copies) in noted {
            let known = returned.get(&thread).copied().unwrap_or_default();
            // One may have returned that the program had not noted yet.
            assert!(
                (copies..=copies + 1).contains(&known),
                "thread {thread}: {known} in the trace, {copies} had returned"
            );
        }
    }
}

#[test]
fn kill_every_call_that_had_returned_is_there() {
    knows_of_all_that_returned("kill", "signal: 9 (SIGKILL)", 25);
}

#[test]
fn abort_every_call_that_had_returned_is_there() {
    knows_of_all_that_returned("abort", "signal: 6 (SIGABRT)", 25);
}

#[test]
fn segfault_every_call_that_had_returned_is_there() {
    knows_of_all_that_returned("segfault", "signal: 11 (SIGSEGV)", 25);
}

#[test]
fn exits_every_call_that_had_returned_is_there() {
    knows_of_all_that_returned("_exit", "exit status: 3", 25);
    knows_of_all_that_returned("exit", "exit status: 3", 25);
}

#[test]
fn file_is_for_the_user_only_and_says_what_it_is_of() {
    let folder = Folder::new();
    let outcome = traced(&Program::case("guide_sample-12").env("RANK", "3").env("SLURM_PROCID_X", "no"), &folder);
    outcome.assert_success();
    outcome.assert_silent();
    let trace = folder.one_trace();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.0), mode(trace.path())), (0o700, 0o600));
    let first = |kind| trace.notes_of(kind).next().unwrap();
    assert!(first(NoteKind::Program).string(0).ends_with("/target/c-tests/guide_sample-12"));
    let variables: Vec<&str> = trace.notes_of(NoteKind::Variable).map(|note| note.string(0)).collect();
    assert_eq!(variables, ["P2PSHIM_LOG", "P2PSHIM_TRACE", "RANK"]);
    let versions: Vec<(&str, &str)> =
        trace.notes_of(NoteKind::Version).map(|note| (note.string(0), note.string(1))).collect();
    assert_eq!(versions, [("p2pshim", env!("CARGO_PKG_VERSION")), ("runtime", "12"), ("driver", "13.0")]);
    assert_eq!(trace.notes_of(NoteKind::Gpu).count(), 2);
    assert_eq!(first(NoteKind::Peer).value("access"), Some("1"));
    let name = trace.path().file_name().unwrap().to_str().unwrap();
    assert!(name.contains(&format!("-{}-", trace.process())) && name.ends_with(".p2ptrace"), "{name}");
    assert!(trace.notes_of(NoteKind::Decision).any(|note| note.string(0).starts_with("verified")));
}

#[test]
fn notes_are_in_the_trace_and_on_standard_error_from_info_on_only() {
    let program = Program::case("treats_704_as_fatal-12").findings_apart();
    for (level, is_said) in [("", false), ("warn", false), ("info", true)] {
        let folder = Folder::new();
        let outcome = traced(&program.clone().env("P2PSHIM_LOG", level), &folder);
        let lines = outcome.lines.iter().filter(|line| line.contains(" info: P2P-enable-twice (note): "));
        assert_eq!(lines.count(), usize::from(is_said), "{level}: {outcome:#?}");
        assert!(is_said || outcome.lines.iter().all(|line| !line.contains("P2P-")), "{level}: {outcome:#?}");
        assert!(folder.one_trace().notes_of(NoteKind::Finding).any(|note| note.string(0).contains("(note): ")));
    }
}

#[test]
fn findings_are_noted_in_full_and_at_each_call() {
    let folder = Folder::new();
    // Whatever the log leaves out.
    traced(&Program::case("treats_704_as_fatal-12").env("P2PSHIM_LOG", "off").findings_apart(), &folder);
    let trace = folder.one_trace();
    let finding = trace.notes_of(NoteKind::Finding).next().expect("a finding");
    let rule = trace.notes_of(NoteKind::Rule).find(|note| note.number == finding.number).unwrap();
    assert_eq!((rule.string(0), rule.string(1)), ("P2P-enable-twice", "note"));
    assert!(finding.string(0).contains("cudaErrorPeerAccessAlreadyEnabled"), "{}", finding.string(0));
    let mut buffer = Vec::new();
    let block = trace.block(0, &mut buffer).unwrap().unwrap();
    let broken: Vec<_> = block
        .calls()
        .filter(|call| !call.is_with_host())
        .filter(|call| call.rules().any(|rule| u32::from(rule) == finding.number))
        .collect();
    assert!(!broken.is_empty() && broken.iter().all(|call| call.depth == 0 && call.result == 704), "{broken:?}");
}

/// The answers of outermost calls, each with whether a rule has spoken of it.
fn answers_by_rule(trace: &Trace, rule: &str) -> Vec<(i32, bool)> {
    let number = trace.notes_of(NoteKind::Rule).find(|note| note.string(0) == rule).unwrap().number;
    let mut buffer = Vec::new();
    let mut answers = Vec::new();
    for block in 0..trace.blocks() {
        let block = trace.block(block, &mut buffer).unwrap().unwrap();
        let calls = block
            .calls()
            .filter(|call| !call.is_with_host())
            .filter(|call| call.depth == 0 && call.state == State::Done);
        answers.extend(calls.map(|call| (call.result, call.rules().any(|rule| u32::from(rule) == number))));
    }
    answers
}

/// Two threads make copies to a device that there is not, in turn with good ones.
#[test]
fn finding_that_is_said_before_a_call_is_noted_at_that_call() {
    for validate in ["warn", "strict"] {
        let folder = Folder::new();
        traced(&Program::case("multithreaded-12").env("P2PSHIM_VALIDATE", validate).findings_apart(), &folder);
        let answers = answers_by_rule(&folder.one_trace(), "P2P-copy-device-ordinal");
        assert_eq!(answers.iter().filter(|&&(answer, _)| answer == 101).count(), 80, "{validate}");
        let wrong: Vec<_> = answers.iter().filter(|&&(answer, is_spoken_of)| (answer == 101) != is_spoken_of).collect();
        assert!(wrong.is_empty(), "{validate}: answer, and whether the rule has spoken of it: {wrong:?}");
    }
}

#[test]
fn finding_for_which_a_call_of_hip_is_refused_is_noted_at_that_call() {
    let folder = Folder::new();
    let program = Program::case("hip_unknown_pointer-6").env("P2PSHIM_VALIDATE", "strict").findings_apart();
    traced(&program, &folder);
    assert_eq!(answers_by_rule(&folder.one_trace(), "P2P-copy-unknown-pointer"), [(1, true)]);
}

#[test]
fn finding_that_becomes_true_in_a_loop_is_made_soon_and_then_at_each_call() {
    for flavour in ["12", "static"] {
        let folder = Folder::new();
        let program =
            Program::case(&format!("copies_on_wrong_stream-{flavour}")).arg("late").env("P2PSIM_DEVICES", "3");
        traced(&program.findings_apart(), &folder).assert_success();
        let trace = folder.one_trace();
        let mut buffer = Vec::new();
        let mut copies: Vec<Record> = Vec::new();
        for block in 0..trace.blocks() {
            let block = trace.block(block, &mut buffer).unwrap().unwrap();
            copies.extend(block.calls().filter(|call| !call.is_with_host()).filter(|call| call.depth == 0));
        }
        let found: Vec<usize> = (0..copies.len()).filter(|&copy| copies[copy].rules().next().is_some()).collect();
        assert_eq!(copies.len(), 200);
        // The first of copies that are alike are asked about, and those whose number is a power of two: 128 is one, not counting
        // those before the pair was verified.
        let first = found[0];
        assert!((100..=175).contains(&first), "{found:?}");
        assert_eq!(found, (first..200).collect::<Vec<_>>());
    }
}

#[test]
fn forked_children_leave_the_file_alone() {
    for case in ["fork_child-12", "raw_fork-12"] {
        let folder = Folder::new();
        let program = Program::case(case).findings_apart();
        let outcome = traced(&program, &folder);
        outcome.assert_same_as(&program.plain(), case);
        for trace in folder.traces() {
            assert_eq!(trace.problems(), &[] as &[String]);
        }
    }
}

#[test]
fn forked_child_that_exits_leaves_its_status_in_no_file_of_its_process() {
    let folder = Folder::new();
    traced(&Program::case("fork_child-12").arg("_exit").findings_apart(), &folder);
    let mut statuses: Vec<_> = folder.traces().iter().map(Trace::exit_status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [None, Some(7)], "of the process, and of the child that was forked before its first call");
}

#[test]
fn program_that_is_started_in_its_place_has_a_file_of_its_own() {
    let folder = Folder::new();
    let program = Program::case("exec_again-12");
    let outcome = traced(&program, &folder);
    outcome.assert_same_as(&program.plain(), "traced");
    let traces = folder.traces();
    let copies = |trace: &Trace| returned_by_thread(trace, "cudaMemcpyPeer").values().sum::<u64>();
    // Names sort by time.
    assert_eq!(traces.iter().map(copies).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(traces[0].process(), traces[1].process());
}

#[test]
fn folder_that_cannot_be_written_to_is_said_once_and_the_program_goes_on() {
    let file = Scratch::new("a-file");
    fs::write(&file, "").unwrap();
    for folder in ["/proc", "/nowhere/at/all", &file.to_string_lossy()] {
        let outcome = Program::case("guide_sample-12").env("P2PSHIM_TRACE", folder).preloaded();
        outcome.assert_success();
        let [line] = outcome.shim.as_slice() else { panic!("{:#?}", outcome.shim) };
        assert!(
            line.contains(&format!("P2PSHIM_TRACE={folder}: ")) && line.contains("calls are not recorded"),
            "{line}"
        );
    }
}

#[test]
fn limit_what_is_left_out_is_counted_and_said_once() {
    let folder = Folder::new();
    let program = Program::case("all_pairs-12").env("P2PSHIM_TRACE_LIMIT", "100K").env("P2PSIM_DEVICES", "4");
    let plain = program.plain();
    let outcome = traced(&program, &folder);
    assert_eq!((outcome.stdout, outcome.status), (plain.stdout, plain.status));
    let trace = folder.one_trace();
    assert!(fs::metadata(trace.path()).unwrap().len() <= 100 << 10);
    assert!(trace.dropped() > 0, "{trace:#?}");
    let lines: Vec<_> = outcome.shim.iter().filter(|line| line.contains("has reached its limit")).collect();
    assert_eq!(lines.len(), 1, "{:#?}", outcome.shim);
}

#[test]
fn limit_each_call_is_recorded_or_counted() {
    for (threads, copies) in [("1", 20_000), ("8", 3000)] {
        let folder = Folder::new();
        let program = Program::case("trace_at_limit").libraries("target/c-tests/standin-runtime");
        let program = program.arg(threads).arg(copies.to_string()).env("P2PSHIM_VALIDATE", "off");
        let outcome = traced(&program.env("P2PSHIM_TRACE_LIMIT", "256K"), &folder);
        assert_eq!(outcome.status, "exit status: 0", "{outcome:#?}");
        let trace = folder.one_trace();
        let recorded: u64 = returned_by_thread(&trace, "cudaMemcpyPeerAsync").values().sum();
        assert!(recorded > 2000 && trace.dropped() > 2000, "{recorded} and {}", trace.dropped());
        assert_eq!(recorded + trace.dropped(), threads.parse::<u64>().unwrap() * copies);
    }
}

/// Each thread that ends leaves its room to one that begins.
#[test]
fn threads_that_come_and_go_take_room_for_their_records_only() {
    const THREADS: u64 = 4000;
    let folder = Folder::new();
    let program = Program::case("trace_at_limit").libraries("target/c-tests/standin-runtime");
    let program = program.args(&["8", "2", &(THREADS / 8).to_string()]).env("P2PSHIM_VALIDATE", "off");
    let outcome = traced(&program, &folder);
    assert_eq!(outcome.status, "exit status: 0", "{outcome:#?}");
    let trace = folder.one_trace();
    let bytes = fs::metadata(trace.path()).unwrap().len();
    assert!(bytes < 2 << 20, "{bytes} bytes for {} of records", THREADS * 3 * 64);
    assert_eq!((trace.dropped(), trace.problems()), (0, &[][..]));
    let mut threads: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let mut buffer = Vec::new();
    for number in 0..trace.blocks() {
        let block = trace.block(number, &mut buffer).unwrap().unwrap();
        block
            .calls()
            .filter(|call| !call.is_with_host())
            .for_each(|call| threads.entry(call.bytes).or_default().push(block.thread));
    }
    assert!(threads.keys().copied().eq(1..=THREADS), "{} threads", threads.len());
    assert!(threads.values().all(|of| of.len() == 2 && of[0] == of[1]), "calls of one thread under another");
    let report = Program::new(command()).args(&["report", "--json"]).arg(folder.text()).plain();
    let counted = format!("\"calls\":{},\"records\":{0},\"dropped\":0", THREADS * 2);
    assert!(report.stdout.contains(&counted), "not {counted}");
}

#[test]
fn file_that_cannot_grow_is_said_once_and_the_program_goes_on() {
    // In both ways the program has room for 32 parts of the file, and needs more.
    let disk = Folder::new();
    fs::create_dir(&disk.0).unwrap();
    let mount = format!("mount -t tmpfs -o size=700k none {} && ", disk.text());
    let in_sh = |script: &str| Program::new("sh").arg("-c").arg(script);
    let in_namespace = |script: &str| Program::new("unshare").arg("-rm").arg("sh").arg("-c").arg(script);
    let may_mount = in_namespace(&format!("{mount} true")).plain();
    type Shell<'a> = &'a dyn Fn(&str) -> Program;
    let mut ways = vec![(Folder::new(), &in_sh as Shell<'_>, "ulimit -f 1200; ".to_owned(), "File too large")];
    if may_mount.status == "exit status: 0" {
        ways.push((disk, &in_namespace, mount, "No space left on device"));
    } else {
        say(&format!("skipped: a disk that is full, since file systems may not be mounted here: {}", may_mount.stderr));
    }
    for (folder, shell, before, why) in ways {
        let many = crate::support::path("target/c-tests/ends_suddenly-12");
        let (shim, file) = (crate::support::shim(), Scratch::new("returned"));
        let script =
            format!("{before} LD_PRELOAD={} exec {} exit {} 8000", shim.display(), many.display(), file.display());
        let program = shell(&script).libraries("target/sim/lib");
        let outcome = program.env("P2PSHIM_TRACE", folder.text()).env("P2PSHIM_TRACE_LIMIT", "1G").plain();
        assert_eq!(outcome.status, "exit status: 3", "{outcome:#?}");
        let lines: Vec<_> = outcome.shim.iter().filter(|line| line.contains("cannot grow")).collect();
        assert!(lines.len() == 1 && lines[0].contains(why), "{:#?}", outcome.shim);
    }
}

/// A program that ends inside a copy from device 0 to device 1 that is staged. Answers the calls that had not returned, and which
/// path they were to take. If nobody looks at a 3D copy of the runtime, only the driver's call inside is known.
fn ended_inside(program: &Program, how: &str, is_looked_at: bool) -> Vec<(String, Record, String)> {
    let bytes: u64 = if how == "repeated_copies" { 4 << 20 } else { 256 << 20 };
    let folder = Folder::new();
    let outcome = traced(&program.clone().arg(how).findings_apart(), &folder);
    assert_eq!(outcome.status, "exit status: 3", "{how}: {outcome:#?}");
    let trace = folder.one_trace();
    assert_eq!((trace.problems(), trace.dropped()), (&[][..], 0), "{how}");
    let hanging = calls(&trace).into_iter().filter(|(_, call)| call.state == State::Begun).map(|(function, call)| {
        if is_looked_at || function != "cudaMemcpy3DPeer" {
            assert_eq!((call.src_device, call.dst_device, call.bytes), (Some(0), Some(1), bytes), "{how}: {function}");
            assert!(call.src != 0 && call.dst != 0, "{how}: {function}");
        }
        (function, call, p2pshim_trace::Path::numbered(call.path).map(p2pshim_trace::Path::title).unwrap_or_default())
    });
    hanging.collect()
}

#[test]
fn copy_that_does_not_return_is_known_with_its_pair_bytes_and_path() {
    let staged = "staged: access not enabled";
    let runtime = [
        ("sync", "cudaMemcpyPeer", "cuMemcpyPeer"),
        ("async", "cudaMemcpyPeerAsync", "cuMemcpyPeerAsync"),
        ("box", "cudaMemcpy3DPeer", "cuMemcpy3DPeer"),
    ];
    let driver = [("driver", "cuMemcpyPeer"), ("driver-async", "cuMemcpyPeerAsync"), ("driver-box", "cuMemcpy3DPeer")];
    let named = |calls: &[(String, Record, String)]| -> Vec<(String, u8, String)> {
        calls.iter().map(|(function, call, way)| (function.clone(), call.depth, way.clone())).collect()
    };
    let is = |function: &str, depth: u8, way: &str| (function.to_owned(), depth, way.to_owned());
    for validate in ["warn", "off", "strict"] {
        let program = Program::case("ends_inside-12").env("P2PSHIM_ACCESS", "app").env("P2PSHIM_VALIDATE", validate);
        for (how, function, inner) in runtime {
            let calls = ended_inside(&program, how, validate != "off");
            assert_eq!(named(&calls), [is(function, 0, ""), is(inner, 1, staged)], "{how}, {validate}");
        }
        for (how, function) in driver {
            assert_eq!(named(&ended_inside(&program, how, true)), [is(function, 0, staged)], "{how}, {validate}");
        }
    }
    // While p2pshim makes what it stages with.
    let program = Program::case("ends_inside-12").env("P2PSIM_NO_P2P", "0-1").env("P2PSHIM_STAGING", "always");
    let staged = "staged: no hardware path";
    let calls = ended_inside(&program, "async", true);
    assert_eq!(named(&calls), [is("cudaMemcpyPeerAsync", 0, ""), is("cuMemcpyPeerAsync", 1, staged)]);
    assert_eq!(named(&ended_inside(&program, "driver-async", true)), [is("cuMemcpyPeerAsync", 0, staged)]);
    // The pair's path is known, and the copy is not timed.
    let program = Program::case("ends_inside-12").env("P2PSHIM_ACCESS", "app").env("P2PSHIM_GPU_TIMING", "off");
    let calls = ended_inside(&program, "repeated_copies", true);
    let staged = "staged: access not enabled";
    assert_eq!(named(&calls), [is("cudaMemcpyPeerAsync", 0, ""), is("cuMemcpyPeerAsync", 1, staged)]);
    let hip = Program::case("hip_ends_inside-7").env("P2PSIM_NO_P2P", "0-1");
    for (how, function) in [("sync", "hipMemcpyPeer"), ("async", "hipMemcpyPeerAsync"), ("box", "hipMemcpy3DPeer")] {
        let calls = ended_inside(&hip, how, true);
        assert_eq!(named(&calls), [is(function, 0, "staged: no hardware path")], "{how}");
    }
}

#[test]
fn process_that_becomes_another_program_is_one_process() {
    let folder = Folder::new();
    let then = crate::support::path("target/c-tests/guide_sample-12");
    let program = Program::case("ends_inside-12").env("P2PSHIM_ACCESS", "app").arg("sync").arg(then.to_string_lossy());
    traced(&program.findings_apart(), &folder).assert_success();
    let report = Program::new(crate::support::command()).arg("report").arg(folder.text()).plain().stdout;
    assert!(report.starts_with("A process became another program in a call: cudaMemcpyPeer, "), "{report}");
    assert!(report.lines().any(|line| line.starts_with("ran on ") && line.contains(": pid ")), "{report}");
}

#[test]
fn process_that_was_ended_in_a_short_copy_is_not_said_to_hang() {
    let folder = Folder::new();
    let program = Program::case("ends_inside-12").env("P2PSHIM_ACCESS", "app").arg("sync").findings_apart();
    assert_eq!(traced(&program, &folder).status, "exit status: 3");
    let report = Program::new(crate::support::command()).arg("report").arg(folder.text()).plain();
    let expected = "The process ended, or became another program, in a call: cudaMemcpyPeer, GPU 0 > GPU 1, 268.4 MB, staged: access not enabled.\nHow long it had taken is not known";
    assert!(report.stdout.starts_with(expected) && !report.stdout.contains("never returned"), "{}", report.stdout);
}

#[test]
fn child_that_returns_from_its_parents_copy_leaves_the_record_alone() {
    let folder = Folder::new();
    let program = Program::case("forked_inside").libraries("target/c-tests/standin-runtime");
    let program = program.env("P2PSHIM_ACCESS", "app").env("P2PSHIM_GPU_TIMING", "off").findings_apart();
    assert_eq!(traced(&program, &folder).status, "exit status: 3");
    let all = calls(&folder.one_trace());
    let (function, last) = all.iter().rfind(|(_, call)| call.depth == 0).unwrap();
    // The way of the copies before is known; of this one it would have been when it had returned.
    assert!(all.iter().any(|(_, call)| call.state == State::Done && call.path != 0), "{all:#?}");
    assert_eq!((function.as_str(), last.state, last.path), ("cudaMemcpyPeerAsync", State::Begun, 0), "{last:#?}");
}

#[test]
fn copy_that_fails_took_no_path() {
    let folder = Folder::new();
    let program = Program::case("guide_sample-12").env("P2PSIM_FAULT", "code:cuMemcpyPeer:711@1").findings_apart();
    assert_ne!(traced(&program, &folder).status, "exit status: 0");
    let all = calls(&folder.one_trace());
    let failed: Vec<_> = all.iter().filter(|(_, call)| call.result == 711).collect();
    let named: Vec<_> = failed.iter().map(|(function, call)| (function.as_str(), call.path, call.bytes)).collect();
    assert_eq!(named, [("cudaMemcpyPeer", 0, 1 << 20), ("cuMemcpyPeer", 0, 1 << 20)], "{all:#?}");
}

/// All calls that returned, with the names of their functions.
fn calls(trace: &Trace) -> Vec<(String, Record)> {
    let mut buffer = Vec::new();
    let mut calls = Vec::new();
    for block in 0..trace.blocks() {
        for call in trace
            .block(block, &mut buffer)
            .unwrap()
            .unwrap()
            .calls()
            .filter(|call| !call.is_with_host())
            .filter(|call| !call.is_part())
        {
            let function = trace.notes_of(NoteKind::Function).find(|note| note.number == u32::from(call.function));
            calls.push((function.unwrap().string(1).to_owned(), call));
        }
    }
    calls
}

/// Plain, preloaded and traced the same; the trace is whole.
fn same_with_a_trace(how: &str) -> Trace {
    let program = Program::case("thread_limits-12").arg(how);
    let (plain, folder) = (program.plain(), Folder::new());
    plain.assert_success();
    program.preloaded().assert_same_as(&plain, how);
    let outcome = traced(&program.env("P2PSHIM_SUMMARY", "off"), &folder);
    outcome.assert_same_as(&plain, how);
    outcome.assert_silent();
    let trace = folder.one_trace();
    assert_eq!((trace.problems(), trace.dropped()), (&[][..], 0));
    trace
}

#[test]
fn child_without_fork_handlers_leaves_the_records_alone() {
    let calls = calls(&same_with_a_trace("raw-child"));
    let of_program = calls.iter().filter(|(_, call)| call.depth == 0).count();
    assert_eq!(of_program, 3, "{calls:#?}");
}

#[test]
fn first_call_on_a_small_stack_is_survived() {
    same_with_a_trace("stack");
}

#[test]
fn main_thread_that_ends_before_others_process_ends_with_them() {
    same_with_a_trace("main-ends");
}

#[test]
fn folder_that_is_relative_is_found_again_from_elsewhere() {
    same_with_a_trace("elsewhere");
    let (shim, case, folder) =
        (crate::support::shim(), crate::support::path("target/c-tests/thread_limits-12"), Folder::new());
    fs::create_dir(&folder.0).unwrap();
    let script = format!("cd {}; LD_PRELOAD={} exec {} elsewhere", folder.text(), shim.display(), case.display());
    let program = Program::new("sh").arg("-c").arg(script).libraries("target/sim/lib");
    let outcome = program.env("P2PSHIM_TRACE", "there").plain();
    outcome.assert_success();
    assert!(outcome.lines.is_empty(), "{:#?}", outcome.lines);
    let there = Folder(Scratch(folder.0.join("there")));
    assert_eq!(there.one_trace().dropped(), 0);
}

#[test]
fn summary_that_nobody_reads_or_finds_no_room_ends_no_program() {
    let (shim, case) = (crate::support::shim(), crate::support::path("target/c-tests/guide_sample-12"));
    let in_bash = |script: &str| {
        let set = format!("LD_PRELOAD={} P2PSHIM_SUMMARY=on", shim.display());
        let script = script.replace("CASE", &format!("env {set} {} > /dev/null", case.display()));
        Program::new("bash").arg("-c").arg(script).libraries("target/sim/lib").plain()
    };
    let unread = in_bash("CASE 2> >(exec 0<&-; sleep 2); exit $?");
    assert_eq!(unread.status, "exit status: 0", "{unread:#?}");
    let full = Scratch::new("full");
    fs::write(&full, vec![0; 4096]).unwrap();
    let no_room = in_bash(&format!("ulimit -f 1; CASE 2>> {}; exit $?", full.display()));
    assert_eq!(no_room.status, "exit status: 0", "{no_room:#?}");
}

#[test]
fn summary_is_written_once_at_exit_and_only_when_wanted() {
    let lines = |outcome: &Outcome| {
        let all = outcome.lines.iter().skip_while(|line| !line.contains("summary of process"));
        all.cloned().collect::<Vec<_>>()
    };
    let program = Program::case("fork_child-12").findings_apart();
    assert!(lines(&program.preloaded()).is_empty());
    let table = lines(&program.clone().env("P2PSHIM_SUMMARY", "on").preloaded());
    // The program, and a child from before the first GPU call, which is a program of its own; not the later child.
    assert_eq!(table.iter().filter(|line| line.contains("summary of process")).count(), 2, "{table:#?}");
    let shown =
        |words: &[&str]| table.iter().any(|line| line.split_whitespace().collect::<Vec<_>>().starts_with(words));
    assert!(shown(&["function", "calls", "errors"]) && shown(&["pair", "copies"]), "{table:#?}");

    let program = Program::case("guide_sample-12").env("P2PSHIM_SUMMARY", "on");
    let table = lines(&program.preloaded());
    let row = |name: &str| {
        table
            .iter()
            .find(|line| line.trim_start().starts_with(name))
            .map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(row("cudaMemcpyPeerAsync").as_deref(), Some("1 0"), "{table:#?}");
    assert_eq!(row("cuMemcpyPeerAsync").as_deref(), Some("1 0"), "{table:#?}");
    assert_eq!(row("0 >").as_deref(), Some("> 1 4 4.2 MB 0 0 B"), "{table:#?}");

    let (file, ended) =
        (Scratch::new("returned"), Program::case("ends_suddenly-12").env("P2PSHIM_SUMMARY", "on").arg("_exit"));
    let outcome = ended.arg(file.to_string_lossy()).preloaded();
    assert!(lines(&outcome).is_empty(), "{outcome:#?}");
}

#[test]
fn gpu_timing_is_of_the_driver_s_copies_on_streams() {
    for (mode, program) in [("all", "multithreaded-12"), ("all", "captured_copies-12"), ("off", "multithreaded-12")] {
        let folder = Folder::new();
        let program = Program::case(program).findings_apart();
        let outcome = traced(&program.clone().env("P2PSHIM_GPU_TIMING", mode), &folder);
        let captures = program.plain().status != outcome.status;
        if !captures {
            outcome.assert_same_as(&program.plain(), mode);
        }
        let calls = calls(&folder.one_trace());
        let timed: Vec<_> = calls.iter().filter(|(_, call)| call.device_time != DeviceTime::None).collect();
        if mode == "off" {
            assert!(timed.is_empty(), "{timed:#?}");
            continue;
        }
        for (function, call) in &timed {
            assert!(function.starts_with("cuMemcpy") && function.contains("PeerAsync"), "{function}");
            assert_eq!((call.result, call.capture), (0, Capture::None), "{call:?}");
        }
        if captures {
            continue;
        }
        let known = timed.iter().filter(|(_, call)| call.device_time == DeviceTime::Known).count();
        let copies = calls
            .iter()
            .filter(|(name, call)| name.starts_with("cuMemcpy") && name.contains("PeerAsync") && call.result == 0);
        let copies = copies.count();
        assert!(known * 10 > copies * 8 && timed.len() <= copies, "{known} known, {} timed of {copies}", timed.len());
        for (_, call) in timed.iter().filter(|(_, call)| call.device_time == DeviceTime::Known) {
            assert!(call.device_start >= call.start && call.device_nanos > 0, "{call:?}");
        }
    }
}

#[test]
fn gpu_timing_samples_copies_and_measures_some() {
    let (folder, file) = (Folder::new(), Scratch::new("returned"));
    let outcome =
        traced(&Program::case("ends_suddenly-12").arg("exit").arg(file.to_string_lossy()).arg("8000"), &folder);
    assert_eq!(outcome.status, "exit status: 3");
    let trace = folder.one_trace();
    // By thread: copies that have succeeded, and how many of them are timed and measured.
    let mut threads = BTreeMap::<u32, [usize; 3]>::new();
    let mut buffer = Vec::new();
    for (block, thread) in trace.block_threads().enumerate() {
        let [copies, timed, known] = threads.entry(thread).or_default();
        for call in trace.block(block, &mut buffer).unwrap().unwrap().calls().filter(|call| !call.is_with_host()) {
            let function = trace.notes_of(NoteKind::Function).find(|note| note.number == u32::from(call.function));
            if function.unwrap().string(1) == "cuMemcpyPeerAsync" && call.state == State::Done && call.result == 0 {
                *copies += 1;
                *timed += usize::from(call.device_time != DeviceTime::None);
                *known += usize::from(call.device_time == DeviceTime::Known);
            }
        }
    }
    assert!(threads.values().any(|&[copies, _, known]| copies > 1000 && known > 0), "{threads:?}");
    let sum = |of: usize| threads.values().map(|counts| counts[of]).sum::<usize>();
    assert!(sum(0) - sum(1) > 10 * sum(2), "{threads:?}");
    // The first 64, one that is about to be at the end, and one in 4093 of the others.
    for &[copies, timed, known] in threads.values() {
        assert!(known <= timed && (copies.min(64).saturating_sub(1)..=64 + 8).contains(&timed), "{threads:?}");
    }
}

/// Functions and lines are shown of the build that ran, wherever its file has been since, and of no other.
#[test]
fn call_sites_have_functions_of_the_build_that_ran_only() {
    let (folder, place) = (Folder::new(), Scratch::new("builds"));
    fs::create_dir(&place).unwrap();
    let file = place.join("app");
    // By another process: a descriptor of ours that is open for writing might be another test's child's as well.
    let copy = |name: &str| {
        let source = path(&format!("target/c-tests/{name}"));
        assert!(Command::new("cp").arg("--remove-destination").arg(source).arg(&file).status().unwrap().success());
    };
    copy("guide_sample-13");
    traced(&Program::new(file.clone()).libraries("target/sim/lib"), &folder).assert_success();
    let sites = || {
        let report = Command::new(path("target/built/p2pshim")).args(["report", "--calls"]).arg(&folder.0).output();
        let text = String::from_utf8(report.unwrap().stdout).unwrap();
        text.lines().filter_map(|line| Some(line.split_once(" at app+")?.1.to_owned())).collect::<Vec<_>>()
    };
    // A copy of it, newer than the trace.
    copy("guide_sample-13");
    let named = sites();
    assert!(!named.is_empty() && named.iter().all(|site| site.contains("guide_sample.c:")), "{named:?}");
    copy("guide_sample-12");
    let bare = sites();
    assert!(bare.len() == named.len() && !bare.iter().any(|site| site.contains("guide_sample")), "{bare:?}");
}

/// To ask about an event ends every capture of another thread that minds such things.
#[test]
fn gpu_timing_beside_captures_of_another_thread_they_come_out_whole() {
    let folder = Folder::new();
    let program = Program::case("timing_beside_capture").findings_apart();
    program.plain().assert_success();
    let outcome = traced(&program.env("P2PSHIM_GPU_TIMING", "all"), &folder);
    assert_eq!(outcome.stdout, "0 of 300 captures failed\n", "{outcome:#?}");
    let measured = calls(&folder.one_trace()).into_iter().filter(|(_, call)| call.device_time == DeviceTime::Known);
    assert!(measured.count() > 0, "nothing was measured beside them");
}

/// Copies of a program on the driver that gives handles again, and ends the program at the first use of an event that is gone.
fn measures_with_no_event_that_is_gone(case: &str, variables: &[(&str, &str)]) {
    let folder = Folder::new();
    let program = Program::case(case).findings_apart().libraries("target/c-tests/reusing-driver");
    let program = program.env("P2PSHIM_ACCESS", "app").env("P2PSHIM_GPU_TIMING", "all");
    let program = variables.iter().fold(program, |program, (name, value)| program.env(name, *value));
    let outcome = traced(&program, &folder);
    assert_eq!(outcome.stdout, "0 copies refused\n", "{outcome:#?}");
    outcome.assert_success();
    let measured = calls(&folder.one_trace()).into_iter().filter(|(_, call)| call.device_time == DeviceTime::Known);
    assert!(measured.count() > 0, "nothing was measured");
}

/// In a race nobody wins each time.
#[test]
fn gpu_timing_beside_releases_of_another_context_uses_no_event_that_is_gone() {
    measures_with_no_event_that_is_gone("timing_beside_releases", &[]);
}

#[test]
fn gpu_timing_leaves_events_alone_whose_handles_are_the_program_s_by_now() {
    measures_with_no_event_that_is_gone("timing_events_reused", &[("NO_CONTEXT_IDS", "1")]);
    measures_with_no_event_that_is_gone("timing_events_reused", &[]);
}

/// Another thread's memory may have an address before the call has returned that ended a context.
#[test]
fn devices_of_copies_are_right_where_contexts_end_beside_them() {
    let folder = Folder::new();
    let program = Program::case("contexts_in_turn").findings_apart().env("P2PSHIM_ACCESS", "app");
    let outcome = traced(&program.env("P2PSIM_DEVICES", "3").env("P2PSIM_ONE_SPACE", "1"), &folder);
    outcome.assert_success();
    let mut copies = BTreeMap::<_, u64>::new();
    for (_, call) in calls(&folder.one_trace()).into_iter().filter(|(function, _)| function == "cuMemcpyPeer") {
        *copies.entry((call.src_device.unwrap(), call.dst_device.unwrap())).or_default() += 1;
    }
    let said: String = copies.iter().map(|((src, dst), copies)| format!("{src}>{dst}: {copies} copies\n")).collect();
    assert_eq!(said, outcome.stdout, "in the trace (left) and made (right)");
}
