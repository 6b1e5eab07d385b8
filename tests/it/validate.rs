//! The findings in peer calls change none of them: calls with arguments drawn at random, plain and preloaded. Strict
//! answers are those that the documentation gives, and good calls are left alone.

use std::fs;

use crate::support::soak::{few_seeds, seeds, soak};
use crate::support::{Outcome, Program, Scratch, path};

/// Names and values.
type Variables<'a> = &'a [(&'a str, &'a str)];

/// Sequences that one process runs.
const BLOCK: u32 = 32;

fn sequences(flavour: &str, (first, count): (u32, u32), env: Variables) -> Program {
    let program = Program::case(&format!("random_arguments-{flavour}")).env("P2PSIM_DEVICES", "4");
    let program = program.arg(first.to_string()).arg(count.to_string());
    env.iter().fold(program, |program, (name, value)| program.env(name, *value))
}

/// The command that shows it again.
fn command(flavour: &str, seed: u32, env: Variables) -> String {
    let variables: String = env.iter().map(|(name, value)| format!("{name}={value} ")).collect();
    format!("P2PSIM_DEVICES=4 {variables}random_arguments-{flavour} {seed} 1 steps")
}

/// Asserts that there are findings and nothing else.
fn assert_says_findings_only(outcome: &Outcome, how: &str) {
    assert!(outcome.shim.is_empty() && outcome.stderr.is_empty(), "{how}: {:#?}\n{}", outcome.shim, outcome.stderr);
}

/// The seed of the first sequence whose line differs, or is missing, or says that something is wrong with it.
fn first_bad(first: u32, count: u32, expected: Option<&str>, got: &str) -> Option<u32> {
    let mut lines = got.lines();
    let mut expected = expected.map(str::lines);
    (first..first + count).find(|seed| {
        let line = lines.next();
        let is_own = line.is_some_and(|line| line.starts_with(&format!("sequence {seed}: ")));
        let says_bad = line.is_some_and(|line| line.contains("WRONG") || line.contains("LAST"));
        let differs = expected.as_mut().is_some_and(|expected| expected.next() != line);
        !is_own || says_bad || differs
    })
}

/// The first step of a sequence that differs, of the sequence alone.
fn story(flavour: &str, seed: u32, env: Variables) -> String {
    let program = sequences(flavour, (seed, 1), env).arg("steps");
    let (plain, preloaded) = (program.plain(), program.preloaded());
    let mut pairs = plain.stdout.lines().zip(preloaded.stdout.lines().map(without_rules));
    let differing = pairs.find(|(plain, preloaded)| plain != preloaded);
    let lines = differing.map(|(plain, preloaded)| format!("    plain:     {plain}\n    preloaded: {preloaded}\n"));
    let lines = lines.unwrap_or_else(|| format!("    ended alike: {}, {}\n", plain.status, preloaded.status));
    format!("sequence {seed} differs; `{}`, plain and preloaded:\n{lines}", command(flavour, seed, env))
}

/// The number of calls that were made.
fn calls_in(stdout: &str) -> u32 {
    let counts = stdout.lines().filter_map(|line| line.split_once(", ")?.1.split(' ').next()?.parse::<u32>().ok());
    counts.sum()
}

/// Runs sequences plain and preloaded with each of these. Answers how many calls there were.
fn same_answers(flavour: &str, first: u32, count: u32, options: &[Variables]) -> u32 {
    let mut calls = 0;
    for block in (first..first + count).step_by(BLOCK as usize) {
        let count = BLOCK.min(first + count - block);
        let plain = sequences(flavour, (block, count), &[]).plain();
        plain.assert_success();
        let bad = first_bad(block, count, None, &plain.stdout);
        assert_eq!(bad, None, "plain, random_arguments-{flavour} from {block}: {}", plain.stdout);
        calls += calls_in(&plain.stdout);
        for env in options {
            let preloaded = sequences(flavour, (block, count), env).preloaded();
            if let Some(seed) = first_bad(block, count, Some(&plain.stdout), &preloaded.stdout) {
                panic!(
                    "{} of the block from {block}: {}\n{}",
                    story(flavour, seed, env),
                    preloaded.status,
                    preloaded.stderr
                );
            }
            let how = format!("random_arguments-{flavour} {block} {count}, {env:?}");
            preloaded.assert_same_as(&plain, &how);
            assert_says_findings_only(&preloaded, &how);
            let speaks = !env.contains(&("P2PSHIM_VALIDATE", "off"));
            assert_eq!(!preloaded.findings.is_empty(), speaks, "{how}");
        }
    }
    calls
}

/// A part of the calls that are compared.
fn same_answers_by_default_and_off(flavour: &str, first: u32) {
    let options: [Variables; 4] = [
        &[],
        &[("P2PSHIM_ACCESS", "app")],
        &[("P2PSHIM_VALIDATE", "off")],
        &[("P2PSHIM_VALIDATE", "off"), ("P2PSHIM_ACCESS", "app")],
    ];
    let (first, count) = few_seeds(first, 10 * BLOCK);
    assert!(same_answers(flavour, first, count, &options) >= 6_000 * count / BLOCK);
}

#[test]
fn random_arguments_shared_11_are_answered_the_same_preloaded() {
    same_answers_by_default_and_off("11", 1000);
}

#[test]
fn random_arguments_shared_12_are_answered_the_same_preloaded() {
    same_answers_by_default_and_off("12", 2000);
}

#[test]
fn random_arguments_shared_13_are_answered_the_same_preloaded() {
    same_answers_by_default_and_off("13", 3000);
}

#[test]
fn random_arguments_static_are_answered_the_same_preloaded() {
    same_answers_by_default_and_off("static", 4000);
}

#[test]
fn random_arguments_with_hidden_peers_are_those_of_hardware_without_a_path() {
    const ALL: &str = "0-1,0-2,0-3,1-2,1-3,2-3";
    for validate in ["warn", "off"] {
        let plain = sequences("12", (5000, BLOCK), &[("P2PSIM_NO_P2P", ALL)]).plain();
        let hidden = sequences("12", (5000, BLOCK), &[("P2PSHIM_ACCESS", "off"), ("P2PSHIM_VALIDATE", validate)]);
        let hidden = hidden.preloaded();
        assert_eq!(first_bad(5000, BLOCK, Some(&plain.stdout), &hidden.stdout), None, "{validate}");
        hidden.assert_same_as(&plain, validate);
    }
}

// ---- strict answers ----

const STRICT: (&str, &str) = ("P2PSHIM_VALIDATE", "strict");

/// A line without the rules that spoke.
fn without_rules(line: &str) -> String {
    let mut parts = line.split(" [");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.filter_map(|part| part.split_once(']')).fold(first, |line, (_, rest)| line + rest)
}

/// A call of a sequence, as `steps` shows it.
struct Step<'a> {
    function: &'a str,
    code: i32,
    /// The value that it wrote.
    output: Option<&'a str>,
    /// Whether a rule that spoke gives a code: for the runtime's functions, for the driver's.
    refused: [bool; 2],
}

impl<'a> Step<'a> {
    fn new(line: &'a str) -> Option<Step<'a>> {
        let (call, answer) = line.strip_prefix("  ")?.split_once(" = ")?;
        let rules = || line.split(" [").skip(1).filter_map(|part| part.split_once(']'));
        let gives_code = |layer: usize| {
            rules().any(|(rule, _)| {
                let words: Vec<_> = rule.split(' ').collect();
                matches!(words[1], "error" | "hazard" | "note") && words[2 + layer] != "0"
            })
        };
        Some(Step {
            function: call.rsplit(' ').next()?,
            code: answer.split(',').next()?.parse().ok()?,
            output: line.split_once(" -> ").map(|(_, value)| value.split(' ').next().unwrap()),
            refused: [gives_code(0), gives_code(1)],
        })
    }

    /// Whether strict answers may differ from plain ones. A static runtime's calls are seen in the driver only.
    fn may_be_refused(&self, flavour: &str) -> bool {
        let by_runtime = self.function.starts_with("cuda") && flavour != "static";
        self.refused[usize::from(!by_runtime)]
    }
}

/// Calls that no rule has a code for get what they get plain; those that fail plain fail; nothing that was refused has moved
/// anything, and the last error is what was answered.
fn strict_is_right(flavour: &str, first: u32) {
    let count = if soak().is_some() { BLOCK } else { BLOCK / 2 };
    let run = |env: Variables| sequences(flavour, (first, count), env).arg("steps");
    let (plain, warned, strict) = (run(&[]).plain(), run(&[]).preloaded(), run(&[STRICT]).preloaded());
    plain.assert_success();
    warned.assert_success();
    assert_says_findings_only(&strict, "strict");
    strict.assert_success();
    let lines = |outcome: &Outcome| outcome.stdout.lines().count();
    assert!(lines(&plain) == lines(&warned) && lines(&plain) == lines(&strict), "from {first}");
    let (mut good, mut refused, mut is_alone) = (0, 0, true);
    let mut bad = Vec::new();
    for ((plain, warned), strict) in plain.stdout.lines().zip(warned.stdout.lines()).zip(strict.stdout.lines()) {
        if strict.contains(" WRONG") || strict.contains(" LAST") {
            bad.push(format!("{strict}\n    plain: {plain}"));
        }
        // With threads, rules may have spoken of another's call.
        let Some(step) = Step::new(plain) else {
            is_alone = !plain.starts_with("sequence ") || next_is_alone(plain);
            continue;
        };
        if !is_alone {
            continue;
        }
        // A call of the runtime that fails has bound a context by then, to a thread that had none; one that is refused has not.
        if strict.contains("-no-context error") && !warned.contains("-no-context error") {
            continue;
        }
        let (said, now) = (Step::new(warned).unwrap(), Step::new(strict).unwrap());
        let is_good = step.code == 0 && !said.may_be_refused(flavour);
        let is_right =
            if is_good { (now.code, now.output) == (0, step.output) } else { step.code == 0 || now.code != 0 };
        good += u32::from(is_good);
        refused += u32::from(now.code != step.code);
        if !is_right {
            bad.push(format!("{strict}\n    plain: {plain}\n    rules: {warned}"));
        }
    }
    assert!(bad.is_empty(), "`{}`, and the next {count}:\n{}", command(flavour, first, &[STRICT]), bad.join("\n"));
    assert!(good > 250 && refused > 50, "{good} good calls, {refused} answered otherwise");
}

/// Whether the sequence after this line is one of a single thread.
fn next_is_alone(line: &str) -> bool {
    let seed: u32 = line["sequence ".len()..].split(':').next().unwrap().parse().unwrap();
    (seed + 1) % 8 != 7
}

#[test]
fn strict_random_arguments_good_calls_are_left_alone() {
    let flavours: &[_] = if soak().is_some() { &["12", "static", "11", "13"] } else { &["12", "static"] };
    for (number, flavour) in flavours.iter().enumerate() {
        strict_is_right(flavour, seeds(10_000 + number as u32 * 1000, BLOCK).0);
    }
}

/// Parameters where nothing is would end the program. (A static runtime reads them itself, unseen.)
#[test]
fn strict_random_arguments_with_wild_parameters_are_survived() {
    for (number, flavour) in ["11", "12", "13"].into_iter().enumerate() {
        for access in ["auto", "app"] {
            let (first, _) = seeds(20_000 + number as u32 * 1000, BLOCK);
            let env = [STRICT, ("P2PSHIM_ACCESS", access)];
            let outcome = sequences(flavour, (first, BLOCK), &env).arg("wild").preloaded();
            let bad = first_bad(first, BLOCK, None, &outcome.stdout);
            assert_eq!(bad, None, "`{} wild`: {outcome:#?}", command(flavour, bad.unwrap_or(first), &env));
            outcome.assert_success();
            assert_says_findings_only(&outcome, "strict");
        }
    }
}

#[test]
fn strict_first_call_is_refused_as_the_second() {
    let call = "cuMemcpyPeer(memory[1], NULL, memory[0], contexts[0], SIZE) = ";
    let answers = |answer: &str| format!("{call}{answer}\n{call}{answer}\n");
    let program = Program::case("first_call_wrong");
    assert_eq!(program.plain().stdout, answers("CUDA_SUCCESS"));
    let strict = program.clone().env(STRICT.0, STRICT.1).preloaded();
    strict.assert_success();
    assert_eq!(strict.stdout, answers("CUDA_ERROR_INVALID_CONTEXT"));
    for validate in ["warn", "off", "something else"] {
        assert_eq!(program.clone().env(STRICT.0, validate).preloaded().stdout, answers("CUDA_SUCCESS"), "{validate}");
    }
}

// ---- handles that are given again ----

/// In a race nobody wins each time: the driver below ends the program if it is ever asked about a stream that is gone.
#[test]
fn streams_whose_handles_are_given_again_are_not_taken_for_destroyed_ones() {
    for what in ["handles", "queries"] {
        for validate in ["warn", "strict"] {
            let program = Program::new(path("target/c-tests/streams_reused")).arg(what);
            let program = program.libraries("target/c-tests/reusing-driver").env("P2PSHIM_ACCESS", "app");
            let outcome = program.env(STRICT.0, validate).preloaded();
            assert_eq!(outcome.stdout, "0 copies refused\n", "{what}, {validate}: {outcome:#?}");
            outcome.assert_success();
        }
    }
}

// ---- strict answers, and the documentation ----

/// A row of a table of conformance.
#[derive(Debug)]
struct Row {
    setup: String,
    call: String,
    documented: Vec<String>,
    code: String,
    last: String,
}

impl Row {
    /// Captures are not arguments, no more than what has happened to a context; and what has not begun cannot be asked.
    fn is_about_arguments(&self) -> bool {
        let others =
            ["Capture", "lose_context", "uninitialised", "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxRelease(0)"];
        let is_peer_call = ["Peer", "P2P"].iter().any(|word| self.call.contains(word));
        is_peer_call && !others.iter().any(|word| self.setup.contains(word))
    }

    fn is_documented_to_fail(&self) -> bool {
        self.documented.iter().any(|code| code != "0")
    }
}

/// The rows of a table.
fn table(text: &str) -> Vec<Row> {
    let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    let row = |line: &str| {
        let columns: Vec<_> = line.split('\t').collect();
        let [setup, call, documented, code, last, _] = columns[..] else { panic!("{line}: not six columns") };
        Row {
            setup: setup.to_owned(),
            call: call.to_owned(),
            documented: documented.split(',').filter(|code| !code.is_empty()).map(str::to_owned).collect(),
            code: code.to_owned(),
            last: last.to_owned(),
        }
    };
    lines.map(row).collect()
}

/// A table as it is answered here, preloaded.
fn answered(flavour: &str, name: &str, env: Variables) -> Vec<Row> {
    let program = Program::case(&format!("conformance-{flavour}")).arg("measure").arg("--jobs").arg("4").arg(name);
    table(&env.iter().fold(program, |program, (name, value)| program.env(name, *value)).preloaded().stdout)
}

/// Rows that real GPUs have answered, and rows that they have not yet; each with the least number of rows that are documented to fail.
const TABLES: [(&str, usize); 2] = [("tests/golden/conformance.tsv", 250), ("c-tests/conformance-unmeasured.tsv", 0)];

/// Rows that are answered otherwise than documented, with the reason.
const EXCEPTIONS: [(&str, &str); 1] = [
    // Nobody may ask the driver whose a stream was, and the library answers 709 by itself.
    ("make_context(&xd,1);stream_of(xd,&sx);cuCtxDestroy(xd)", "cuMemcpyPeerAsync(db,x1,da,x0,n,sx)"),
];

/// Each documented error is answered. A call that is documented to succeed is not refused, and one that the documentation does not speak
/// of is answered as by real GPUs; simulated ones answer like these: tests/it/conformance.rs.
#[test]
fn strict_every_documented_error_is_answered_and_nothing_else_otherwise() {
    for (name, least) in TABLES {
        let golden = table(&fs::read_to_string(path(name)).unwrap());
        let rows = answered("12", path(name).to_str().unwrap(), &[STRICT]);
        assert_eq!(golden.len(), rows.len(), "{name}");
        let pairs = golden.iter().zip(&rows).filter(|(row, _)| row.is_about_arguments());
        let (to_fail, others): (Vec<_>, Vec<_>) = pairs.partition(|(row, _)| row.is_documented_to_fail());
        assert!(to_fail.len() >= least, "{name}: {} rows", to_fail.len());
        let is_right = |row: &Row| row.documented.contains(&row.code) && (row.last == "-" || row.last == row.code);
        let is_exception = |row: &Row| EXCEPTIONS.contains(&(row.setup.as_str(), row.call.as_str()));
        let wrong: Vec<_> =
            to_fail.iter().map(|(_, row)| row).filter(|row| !is_right(row) && !is_exception(row)).collect();
        assert!(wrong.is_empty(), "{name}: {wrong:#?}");
        // A test of its own has the answers to calls that crash a real library; some rows no real GPU has answered.
        let is_answered = |row: &Row| row.code.parse::<i32>().is_ok();
        let (wrong, right): (Vec<_>, Vec<_>) = others
            .into_iter()
            .filter(|(golden, _)| is_answered(golden))
            .partition(|(golden, row)| golden.code != row.code);
        assert!(wrong.is_empty() && right.len() >= least / 3, "{name}: {} rows; {wrong:#?}", right.len());
    }
}

/// A call that crashes a real library never gets to the driver: there it would be answered 711 here.
#[test]
fn strict_calls_that_crash_a_library_are_refused() {
    let golden = fs::read_to_string(path("tests/golden/conformance.tsv")).unwrap();
    let crashes = |line: &&str| line.split('\t').nth(3) == Some("crash");
    let text: String = golden.lines().filter(crashes).map(|line| format!("{line}\n")).collect();
    assert!(text.lines().count() >= 29, "{text}");
    let table = Scratch::new("table.tsv");
    fs::write(&table, format!("setup\tcall\tdocumented\tret\tlast\tv\n{text}")).unwrap();
    let copies = ["Peer", "PeerAsync", "PeerAsync_ptsz", "3DPeer", "3DPeerAsync"];
    let reached: Vec<_> = copies.iter().map(|copy| format!("code:cuMemcpy{copy}:711")).collect();
    let reached = format!("{},code:cuArray3DGetDescriptor_v2:711", reached.join(","));
    for flavour in ["11", "12", "13"] {
        let env = [STRICT, ("P2PSIM_FAULT", reached.as_str())];
        let rows = answered(flavour, table.to_str().unwrap(), &env);
        assert_eq!(rows.len(), text.lines().count());
        let is_right = |row: &Row| match &row.documented[..] {
            [] => ["201", "400"].contains(&row.code.as_str()),
            documented => documented.contains(&row.code),
        };
        let wrong: Vec<_> = rows.iter().filter(|row| !is_right(row)).collect();
        assert!(wrong.is_empty(), "{flavour}: {wrong:#?}");
    }
}

/// Where the system does not let anybody ask whether parameters are there, nothing is said of them, and nothing is refused.
#[test]
fn without_vm_readv_right_3d_copies_are_right() {
    for mode in ["warn", "strict", "off"] {
        let program = Program::case("without_vm_readv").env("P2PSHIM_VALIDATE", mode);
        let outcome = program.preloaded();
        outcome.assert_success();
        assert_eq!(
            outcome.stdout.matches("cuMemcpy3DPeer(&q) = CUDA_SUCCESS").count(),
            3,
            "{mode}: {}",
            outcome.stdout
        );
        assert!(outcome.stdout.contains("cuMemcpy3DPeerAsync(&q,NULL) = CUDA_SUCCESS"), "{mode}: {}", outcome.stdout);
        outcome.assert_silent();
    }
}
