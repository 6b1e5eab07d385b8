//! Copies that are like ones before, and what changes between them: codes, bytes, findings, counts and trace are right for each,
//! and no others while calls are shown.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use crate::support::soak::{flavours, soak, stride};
use crate::support::{Outcome, Program, Scratch};
use p2pshim_trace::{Capture, NoteKind, Path, Record, State, Trace};

/// The parts of a call in a trace that do not depend on when and where the program ran.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    depth: u8,
    function: String,
    result: i32,
    bytes: u64,
    devices: [Option<u8>; 2],
    path: String,
    capture: String,
    findings: Vec<String>,
    /// Where in its page the program continues after it; of the program's own calls.
    site: Option<u64>,
    /// Source and destination: where in their pages they are. The stream: the how manieth of the thread it is.
    handles: [u64; 3],
}

/// The threads' calls, in the order in which threads began.
type Recorded = Vec<Vec<Call>>;

fn read(trace: &Trace) -> Recorded {
    assert_eq!((trace.problems(), trace.dropped()), (&[][..], 0));
    let named = |kind, index| {
        let notes = trace.notes_of(kind).map(move |note| (note.number, note.string(index).to_owned()));
        notes.collect::<HashMap<u32, String>>()
    };
    let [functions, rules, sites] =
        [(NoteKind::Function, 1), (NoteKind::Rule, 0), (NoteKind::Site, 0)].map(|(kind, index)| named(kind, index));
    let mut threads: BTreeMap<u32, (u64, Vec<Call>)> = BTreeMap::new();
    let mut seen: HashMap<(u32, u64), u64> = HashMap::new();
    let mut known = HashMap::new();
    let mut around: HashMap<u32, Record> = HashMap::new();
    let mut buffer = Vec::new();
    for number in 0..trace.blocks() {
        let block = trace.block(number, &mut buffer).unwrap().unwrap();
        for call in block.calls().filter(|call| !call.is_with_host()).filter(|call| !call.is_part()) {
            assert_eq!(call.state, State::Done, "{call:?}");
            if call.depth == 0 {
                around.insert(block.thread, call);
                assert_eq!(call.parent, 0, "{call:?}");
            } else {
                let outer = around[&block.thread];
                // A call that took more than 2^31 ticks has lost so many of them.
                let end = outer.end + (1 << 20);
                assert!(outer.start <= call.start && call.end <= end, "{call:?} inside {outer:?}");
                assert_eq!((outer.function == call.function, call.parent), (false, 1), "{call:?} inside {outer:?}");
            }
            let count = known.entry(block.thread).or_insert(0);
            let stream = *seen.entry((block.thread, call.stream)).or_insert_with(|| {
                *count += 1;
                *count
            });
            let site = sites.get(&call.site.into()).filter(|_| call.depth == 0);
            let told = Call {
                depth: call.depth,
                function: functions[&call.function.into()].clone(),
                result: call.result,
                bytes: call.bytes,
                devices: [call.src_device, call.dst_device],
                path: Path::numbered(call.path).map(Path::title).unwrap_or_default(),
                capture: match call.capture {
                    Capture::None => String::new(),
                    other => format!("{other:?}"),
                },
                findings: call
                    .rules()
                    .map(|rule| rules[&rule.into()].clone())
                    .filter(|rule| rule != NOW_AND_THEN)
                    .collect(),
                site: site.map(|site| u64::from_str_radix(site, 16).unwrap() & 0xfff),
                // Which freed memory comes back is not the same from run to run.
                handles: [call.src & 0xfff, call.dst & 0xfff, stream],
            };
            let (_, calls) = threads.entry(block.thread).or_insert_with(|| (call.start, Vec::new()));
            calls.push(told);
        }
    }
    let mut threads: Vec<_> = threads.into_values().collect();
    threads.sort();
    threads.into_iter().map(|(_, calls)| calls).collect()
}

/// Preloaded, with a trace in a file.
fn record(program: &Program, is_shown: bool) -> (Outcome, Recorded) {
    let folder = Scratch::new("traces");
    let program = program.clone().env("P2PSHIM_TRACE", folder.to_string_lossy());
    let program = program.env("P2PSHIM_GPU_TIMING", "off").env("P2PSHIM_SUMMARY", "on");
    let outcome = if is_shown { program.traced().0 } else { program.preloaded() };
    // A child from before the first call has a file of its own.
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let recorded = files.iter().flat_map(|file| read(&Trace::open(file).unwrap())).collect();
    (outcome, recorded)
}

/// The findings, without addresses.
fn found(outcome: &Outcome) -> Vec<String> {
    let without_addresses = |text: &str| {
        let words = text.split("0x").enumerate().map(|(index, word)| match index {
            0 => word.to_owned(),
            _ => {
                let digits = word.find(|letter: char| !letter.is_ascii_hexdigit()).unwrap_or(word.len());
                // A shorter number is a place in the program.
                if digits < 6 { word.to_owned() } else { word[digits..].to_owned() }
            }
        });
        words.collect::<Vec<_>>().join("0x")
    };
    // Notes are in the log from the level info on only.
    let is_always_there = |text: &str| !text.contains(" (note): ");
    let findings =
        outcome.findings.iter().filter(|finding| finding.rule != NOW_AND_THEN && is_always_there(&finding.text));
    findings.map(|finding| without_addresses(&finding.text)).collect()
}

/// Said only of copies that are looked at in full. Which ones these are is for each way to choose.
const NOW_AND_THEN: &str = "P2P-staged-never-enabled";

/// The shim's counts, which stand on standard error.
fn counted(outcome: &Outcome) -> String {
    assert!(outcome.shim.iter().all(|line| line.contains("summary of process")), "{:#?}", outcome.shim);
    assert!(outcome.stderr.contains("function"), "{}", outcome.stderr);
    let lines = outcome.stderr.lines().filter(|line| !line.contains(NOW_AND_THEN));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The calls that are shown must be those that are recorded otherwise. Returns these.
fn same_while_shown(program: &Program) -> Recorded {
    let (unshown, recorded) = record(program, false);
    let (shown, recorded_while_shown) = record(program, true);
    let run = &unshown.run;
    assert_eq!((&unshown.stdout, &unshown.status), (&shown.stdout, &shown.status), "{run}");
    assert_eq!(counted(&unshown), counted(&shown), "{run}");
    assert_eq!(found(&unshown), found(&shown), "{run}");
    let is_refused = |rule: &String| rule == "P2P-copy-destroyed-stream";
    for call in recorded.iter().flatten().filter(|call| call.findings.iter().any(is_refused)) {
        assert_ne!(call.result, 0, "{run}: what was said before a call is said of another: {call:?}");
    }
    assert_eq!(recorded.len(), recorded_while_shown.len(), "{run}");
    for (calls, while_shown) in recorded.iter().zip(&recorded_while_shown) {
        for (number, (call, while_shown)) in calls.iter().zip(while_shown).enumerate() {
            assert_eq!(call, while_shown, "{run}: call {number}, and while calls are shown");
        }
        assert_eq!(calls.len(), while_shown.len(), "{run}");
    }
    recorded
}

type Variables<'a> = &'a [(&'a str, &'a str)];

fn scenario(name: &str, flavour: &str, env: Variables) -> Program {
    let program = Program::case(&format!("repeated_copies-{flavour}")).arg(name);
    env.iter().fold(program, |program, (name, value)| program.env(name, *value))
}

/// Same codes and bytes plain and preloaded, and the same records whether calls are shown or not.
fn same_in(name: &str, flavour: &str, env: Variables) {
    let program = scenario(name, flavour, env);
    let plain = program.plain();
    assert_right(&plain);
    let preloaded = program.preloaded();
    preloaded.assert_same_as(&plain, "preloaded");
    preloaded.assert_silent();
    let recorded = same_while_shown(&program.findings_apart());
    let is_made = |call: &&Call| call.function == "cudaMemcpyPeerAsync" && call.result == 0;
    let copies = recorded.iter().flatten().filter(is_made).count();
    // Calls of a static runtime are not seen.
    assert!((copies == 0) == (flavour == "static"), "{copies} copies");
}

/// The program must have found everything as it should be.
fn assert_right(outcome: &Outcome) {
    outcome.assert_success();
    assert!(outcome.stdout.ends_with("done\n") && !outcome.stdout.contains("WRONG"), "{}", outcome.stdout);
    let counts = outcome.stdout.lines().filter_map(|line| line.strip_suffix(" wrong"));
    let is_none = |count: &str| count == "0" || count.ends_with(" 0");
    assert!(counts.into_iter().all(is_none), "{}", outcome.stdout);
}

macro_rules! scenarios {
    ($($test:ident: $scenario:literal $env:expr;)*) => { $(
        #[test]
        fn $test() {
            same_in($scenario, "12", &$env);
        }
    )* };
}

scenarios! {
    memory_that_comes_and_goes_makes_no_difference: "memory" [];
    memory_that_is_gone_is_refused_and_said: "gone" [];
    streams_that_come_and_go_make_no_difference: "streams" [];
    streams_beside_the_default_one_make_no_difference: "beside" [];
    peers_that_the_program_changes_make_no_difference: "peers" [];
    mistakes_between_good_copies_are_answered_and_said: "mistakes" [];
    small_copies_are_said_once_they_are_many: "small" [];
    threads_in_turn_make_no_difference: "in_turn" [];
    contexts_that_end_make_no_difference: "contexts" [];
    children_get_what_they_get_plain: "children" [];
    pairs_without_a_path_are_staged: "memory" [("P2PSIM_NO_P2P", "0-1")];
    denied_pairs_are_staged: "memory" [("P2PSHIM_DENY", "0-1")];
    peers_that_nobody_looks_at_make_no_difference: "streams" [("P2PSHIM_VALIDATE", "off")];
    all_pairs_of_devices_at_the_limit_of_peers: "all_pairs" [("P2PSIM_DEVICES", "4"), ("P2PSIM_MAX_PEERS", "1")];
}

#[test]
fn every_flavour_makes_no_difference() {
    for flavour in flavours("every_flavour_makes_no_difference") {
        for name in ["memory", "streams", "mistakes"] {
            same_in(name, flavour, &[]);
        }
    }
}

/// No pair is verified here: that takes some of the calls until the first that fails.
#[test]
fn faults_are_answered_from_the_first_on() {
    for other in [("P2PSHIM_ACCESS", "app"), ("P2PSHIM_VERIFY", "off")] {
        let env = [("P2PSIM_FAULT", "code:cuMemcpyPeerAsync:711@100"), other];
        same_in("fault", "12", &env);
        // Those that fail have records as well.
        let (_, recorded) = record(&scenario("fault", "12", &env).findings_apart(), false);
        let is_failed = |call: &&Call| call.function == "cuMemcpyPeerAsync" && call.result == 711;
        assert_eq!(recorded.iter().flatten().filter(is_failed).count(), 51 + 3 * 150);
    }
}

/// More memory, streams and devices than are kept in mind at a time.
#[test]
fn more_than_there_is_room_for_makes_no_difference() {
    for env in [&[("P2PSIM_DEVICES", "4")][..], &[("P2PSIM_DEVICES", "4"), ("P2PSHIM_ACCESS", "app")]] {
        let program = scenario("room", "12", env).findings_apart();
        let plain = program.plain();
        assert_right(&plain);
        program.preloaded().assert_same_as(&plain, "preloaded");
        same_while_shown(&program);
    }
}

/// The way of each copy is the program's own business.
#[test]
fn ways_are_those_of_plain_where_nothing_is_enabled() {
    // The simulated GPUs count the copies of a verification too.
    let program = scenario("ways", "12", &[("P2PSHIM_ACCESS", "app"), ("P2PSHIM_VERIFY", "off")]);
    let plain = program.plain();
    assert_right(&plain);
    for ways in ["    0 direct, 400 staged\n", "    400 direct, 0 staged\n", "    400 direct, 400 staged\n"] {
        assert_eq!(plain.stdout.matches(ways).count(), 2, "{ways}{}", plain.stdout);
    }
    let preloaded = program.preloaded();
    preloaded.assert_same_as(&plain, "preloaded");
    same_while_shown(&program.findings_apart());
}

/// The parts that depend on which thread comes first are left out.
#[test]
fn threads_at_once_arrive_and_are_counted() {
    let program = scenario("threads", "12", &[]);
    let plain = program.plain();
    assert_right(&plain);
    let preloaded = program.preloaded();
    preloaded.assert_same_as(&plain, "preloaded");
    preloaded.assert_silent();
    let numbers = |is_shown| {
        let (outcome, recorded) = record(&program.clone().findings_apart(), is_shown);
        outcome.assert_success();
        let counted = counted(&outcome);
        let calls = counted.lines().skip_while(|line| !line.trim_start().starts_with("function"));
        let calls = calls.map(str::to_owned).collect::<Vec<_>>();
        let plain = |calls: &Vec<Call>| {
            calls.iter().map(|call| (call.depth, call.function.clone(), call.result)).collect::<Vec<_>>()
        };
        let mut threads: Vec<_> = recorded.iter().map(plain).collect();
        threads.sort();
        (calls, threads)
    };
    assert_eq!(numbers(false), numbers(true));
}

/// A copy on a stream that captures becomes one that can be captured, however many before were like it.
#[test]
fn captures_after_copies_like_these_are_replayed_right() {
    for flavour in flavours("captures_after_copies_like_these") {
        let program = scenario("captures", flavour, &[]).findings_apart();
        assert!(program.plain().stdout.contains("at first\n"));
        let preloaded = program.preloaded();
        assert_right_captures(&preloaded);
        let recorded = same_while_shown(&program);
        let rewritten = recorded.iter().flatten().filter(|call| call.capture == "Rewritten").count();
        assert_eq!(rewritten, 6 * 80);
    }
}

fn assert_right_captures(outcome: &Outcome) {
    assert_right(outcome);
    assert_eq!(outcome.stdout.matches("captured: 0 wrong\n").count(), 4, "{}", outcome.stdout);
    assert_eq!(outcome.stdout.matches("begun by another thread: 0 wrong\n").count(), 2, "{}", outcome.stdout);
    assert!(outcome.stdout.contains("beside a capture: 0 wrong\n"), "{}", outcome.stdout);
}

/// By longjmp, by the end of a cancelled thread, and for a signal handler.
#[test]
fn copies_that_are_left_or_interrupted_leave_nothing_behind() {
    let program = Program::case("copies_left").libraries("target/c-tests/standin-runtime");
    let program = program.env("P2PSHIM_VALIDATE", "off");
    let plain = program.plain();
    plain.assert_success();
    assert!(!plain.stdout.contains("NO") && plain.stdout.matches(": 0 refused\n").count() == 12, "{}", plain.stdout);
    program.preloaded().assert_same_as(&plain, "preloaded");
    let folder = Scratch::new("traces");
    let traced = program.env("P2PSHIM_TRACE", folder.to_string_lossy()).preloaded();
    traced.assert_same_as(&plain, "traced");
    let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1);
    let trace = Trace::open(&files[0]).unwrap();
    assert_eq!((trace.problems(), trace.dropped()), (&[][..], 0));
    let mut threads: HashMap<u32, Vec<Record>> = HashMap::new();
    let mut buffer = Vec::new();
    for number in 0..trace.blocks() {
        let block = trace.block(number, &mut buffer).unwrap().unwrap();
        threads.entry(block.thread).or_default().extend(block.calls().filter(|call| !call.is_with_host()));
    }
    let main = threads.remove(&trace.process()).unwrap();
    // 40 before each jump, and the copy that was left; 40 after it, and after each thread.
    let until_signals = 3 * 41 + 40 + 3 * 40 + 40;
    for (number, call) in main[..until_signals].iter().chain(&main[main.len() - 40..]).enumerate() {
        // A copy is noted before it is made.
        assert_eq!((call.depth, call.bytes, call.path), (0, 64, 0), "copy {number}");
        let is_left = number < 3 * 41 && number % 41 == 40;
        assert_eq!(call.state, if is_left { State::Begun } else { State::Done }, "copy {number}");
    }
    assert_eq!(threads.len(), 3);
    for calls in threads.values() {
        let done = calls.iter().filter(|call| call.state == State::Done).count();
        assert_eq!((done, calls.len()), (40, 41));
        assert!(calls.iter().all(|call| call.depth == 0), "{calls:?}");
    }
}

#[test]
fn copies_that_are_interrupted_are_counted_once() {
    counted_once(&Program::case("copies_interrupted"));
}

#[test]
fn copies_that_are_interrupted_by_a_handler_on_a_stack_of_its_own_are_counted_once() {
    for stack in ["below", "above"] {
        counted_once(&Program::case("copies_interrupted").arg(stack));
    }
}

/// The values of P2PSHIM_VALIDATE.
fn options() -> impl Iterator<Item = &'static str> {
    ["warn"].into_iter().chain(soak().map(|_| "off"))
}

/// Both layers' copies; the shim's own account is in the output, and the trace's here.
fn counted_once(program: &Program) {
    let program = program.clone().libraries("target/c-tests/null-driver").env("P2PSHIM_VERIFY", "off");
    let plain = program.plain();
    plain.assert_success();
    assert!(
        plain.stdout.matches("counted 0 more").count() == 2 && plain.stdout.contains("refused: 0"),
        "{}",
        plain.stdout
    );
    for validate in options() {
        let program = program.clone().env("P2PSHIM_VALIDATE", validate);
        program.preloaded().assert_same_as(&plain, "preloaded");
        let folder = Scratch::new("traces");
        let program = program.clone().env("P2PSHIM_TRACE", folder.to_string_lossy()).env("P2PSHIM_GPU_TIMING", "off");
        program.preloaded().assert_same_as(&plain, "traced");
        let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        let trace = Trace::open(&files[0]).unwrap();
        let mut calls: BTreeMap<u8, usize> = BTreeMap::new();
        let mut by_program = 0;
        let mut buffer = Vec::new();
        for number in 0..trace.blocks() {
            for call in trace.block(number, &mut buffer).unwrap().unwrap().calls().filter(|call| !call.is_with_host()) {
                assert_eq!((call.state, call.result, call.bytes), (State::Done, 0, 8192), "{call:?}");
                // The program's own, whatever it has interrupted, and so one copy in a report, with devices and path.
                assert_eq!((call.src_device, call.dst_device, call.path != 0), (Some(0), Some(1), true), "{call:?}");
                by_program += usize::from(call.depth == 0);
                *calls.entry(call.function).or_default() += 1;
            }
        }
        // Copies that are made while the shim itself is at work have no records.
        let [runtime, driver] = calls.into_values().collect::<Vec<_>>()[..] else { panic!() };
        assert_eq!(
            (driver, by_program),
            (runtime, runtime),
            "calls of the driver and of the program, of the runtime's"
        );
        assert!(runtime > 3000, "{runtime}");
    }
}

/// By a signal handler that calls the driver itself, which is to be taken for the runtime's copy only once.
#[test]
fn copies_that_are_interrupted_by_copies_of_the_driver_are_counted_once() {
    let program = Program::case("copies_interrupted").libraries("target/c-tests/null-driver").arg("driver");
    let [every, first] = stride("copies_interrupted", 13, 1);
    let program = program.args(&[&every, &first]).env("P2PSHIM_VERIFY", "off");
    let plain = program.plain();
    plain.assert_success();
    assert_eq!(plain.stdout.matches("counted 0 more").count(), 2, "{}", plain.stdout);
    for validate in options() {
        program.clone().env("P2PSHIM_VALIDATE", validate).preloaded().assert_same_as(&plain, "preloaded");
    }
}

/// By a signal handler, which makes copies, and leaves by longjmp or does not, at one instruction after the other of the copies
/// before and after which a thread's records continue in another chunk.
#[test]
fn copies_interrupted_where_a_chunk_ends_have_one_record_each_in_order() {
    std::thread::scope(|scope| {
        scope.spawn(|| recorded_once("async", ["1", "0"], (13, 1)));
        scope.spawn(|| recorded_once("sync", ["1", "0"], (29, 3)));
        if soak().is_some() {
            scope.spawn(|| recorded_once("async", ["1", "1"], (2, 2)));
            scope.spawn(|| recorded_once("async", ["300", "0"], (5, 5)));
        }
    });
}

/// By longjmp, while the clocks of the trace are compared.
#[test]
fn copies_that_are_left_while_clocks_are_compared_do_not_stop_them() {
    let folder = Scratch::new("traces");
    let program = Program::case("copies_stepped").libraries("target/c-tests/standin-runtime").arg("clocks");
    let program = program.arg(&stride("clocks", 20, 20)[1]);
    let program = program.env("P2PSHIM_VALIDATE", "off").env("P2PSHIM_TRACE_LIMIT", "64M");
    let outcome = program.env("P2PSHIM_TRACE", folder.to_string_lossy()).preloaded();
    outcome.assert_success();
    assert_eq!(outcome.stdout, "many left, clocks stand still after 0\n");
    fs::remove_dir_all(folder).unwrap();
}

/// The stride, and that of `make soak`.
fn recorded_once(function: &str, [copies, jumps]: [&str; 2], (every, in_soak): (usize, usize)) {
    let [every, first] = stride("copies_stepped", every, in_soak);
    let arguments = [copies, jumps, &every, &first];
    let folder = Scratch::new(&format!("traces-{}", arguments.join("-")));
    let program = Program::case("copies_stepped").libraries("target/c-tests/standin-runtime").arg(function);
    let program = arguments.into_iter().fold(program, |program, argument| program.arg(argument));
    let program = program.env("P2PSHIM_VALIDATE", "off").env("P2PSHIM_TRACE_LIMIT", "64M");
    let outcome = program.env("P2PSHIM_TRACE", folder.to_string_lossy()).preloaded();
    outcome.assert_success();
    let lines: Vec<_> = outcome.stdout.lines().collect();
    let [_, copies, left] = lines[..] else { panic!("{}", outcome.stdout) };
    let copies: u64 = copies.strip_suffix(" copies").unwrap().parse().unwrap();
    let left: Vec<u64> = left.split_whitespace().skip(1).map(|number| number.parse().unwrap()).collect();
    let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let trace = Trace::open(&file).unwrap();
    assert_eq!((trace.problems(), trace.dropped()), (&[][..], 0));
    let (mut done, mut last) = (HashMap::new(), 0);
    let mut buffer = Vec::new();
    for number in 0..trace.blocks() {
        let block = trace.block(number, &mut buffer).unwrap().unwrap();
        let calls: Vec<Record> = block.calls().filter(|call| !call.is_with_host()).collect();
        calls
            .iter()
            .filter(|call| call.state == State::Done)
            .for_each(|call| *done.entry(call.bytes).or_insert(0) += 1);
        // A handler got between two, and has taken none, or it has taken the last and the other went on elsewhere.
        assert!([0, 254, 255].contains(&calls.len()) || number + 1 == trace.blocks(), "{} in {number}", calls.len());
        if let Some(latest) = calls.iter().map(|call| call.start).max() {
            assert!(last < latest, "the records of part {number} are older than those before it");
            last = latest;
        }
    }
    let wrong: Vec<_> = (1..=copies)
        .filter(|number| {
            let count = done.get(number).copied().unwrap_or(0);
            count > 1 || (count == 0 && left.binary_search(number).is_err())
        })
        .collect();
    assert!(wrong.is_empty(), "{function} {arguments:?}: of {copies} copies, not recorded once: {wrong:?}");
}

/// Programs that are there for something else.
#[test]
fn programs_of_all_kinds_are_recorded_the_same() {
    let four = [("P2PSIM_DEVICES", "4")];
    let programs: [(&str, &[&str], Variables); 12] = [
        ("guide_sample-12", &[], &[]),
        ("four_copies_sizes-13", &[], &[]),
        ("per_thread_stream-12", &[], &[]),
        ("entry_point-11", &[], &[]),
        ("null_arguments-12", &[], &[]),
        ("captured_copies-12", &[], &[]),
        ("all_pairs-12", &[], &four),
        ("treats_704_as_fatal-12", &[], &[]),
        ("copies_on_wrong_stream-12", &[], &four),
        ("copies_from_pool-12", &[], &[]),
        ("driver_api", &[], &[]),
        ("moving_parameters", &[], &[]),
    ];
    for (name, arguments, env) in programs {
        let program = arguments.iter().fold(Program::case(name), |program, argument| program.arg(*argument));
        let program = env.iter().fold(program, |program, (name, value)| program.env(name, *value));
        same_while_shown(&program.findings_apart());
    }
}
