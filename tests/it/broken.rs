//! Paths that are broken, on simulated GPUs: what a program gets, whoever enables them, in each form of a copy.
//!
//! `golden/broken-paths.tsv` has it, for each fault and each who: plain, preloaded, by `p2pshim run`; the latter two on a
//! machine where a copy may hang (a virtual machine whose GPUs hang on PCI); and with P2PSHIM_BROKEN=warn, which gives the program the
//! access that it asks for. `P2PSHIM_UPDATE=1` writes it anew.
//!
//! `aperture` is right on the small memory of a quick verification, and so the shim may enable what loses data: p2pshim doctor finds it,
//! and `P2PSHIM_VERIFY` when it happens.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use crate::support::{LARGE_PAGES, Outcome, Program, command, path, scratch, virtual_machine, warnings};

const GOLDEN: &str = "tests/golden/broken-paths.tsv";
/// With the option that is set for it.
const FAULTS: [(&str, &str); 9] = [
    ("", ""),
    ("drop:0>1", ""),
    ("first:0>1", ""),
    ("corrupt:0-1", ""),
    ("hang:0>1", ""),
    ("slow:0>1", ""),
    ("lost:0>1", ""),
    ("aperture:0>1", UNSEEN),
    ("aperture:0>1", "P2PSHIM_PROBE=full"),
];
/// What no quick verification finds is at least said when it happens.
const UNSEEN: &str = "P2PSHIM_VERIFY=all";
const WHO: [&str; 5] = ["nobody", "program", "asks", "pool", "mapped"];

/// What the program got and saw, in few words, and how many warnings there were.
fn cell(outcome: &Outcome) -> String {
    outcome.assert_success();
    let mut access = Vec::new();
    let mut forms: Vec<(&str, &str)> = Vec::new();
    for line in outcome.stdout.lines() {
        match line.split_once(": ").unwrap() {
            ("access", got) => access.push(got.trim_start_matches("CUDA_").trim_start_matches("ERROR_")),
            form => forms.push(form),
        }
    }
    access.dedup();
    assert_eq!(forms.len(), 7, "{outcome:#?}");
    let is_all = |word: &str| forms.iter().all(|(_, data)| *data == word);
    let data = match ["right", "WRONG", "hangs"].into_iter().find(|word| is_all(word)) {
        Some(word) => word.to_owned(),
        None => forms
            .iter()
            .filter(|(_, data)| *data != "right")
            .map(|form| format!("{} {}", form.0, form.1))
            .collect::<Vec<_>>()
            .join(", "),
    };
    let warned = match warnings(outcome).len() {
        0 => String::new(),
        count => format!(", {count} warned"),
    };
    let mut found: Vec<&str> = outcome.findings.iter().map(|finding| finding.rule.as_str()).collect();
    found.retain(|rule| rule.starts_with("P2P-data-"));
    found.dedup();
    let found: String = found.iter().map(|rule| format!(", {rule}")).collect();
    let access = if access.is_empty() { String::new() } else { format!("{}: ", access.join(", ")) };
    format!("{access}{data}{warned}{found}")
}

#[test]
fn kept_verdict_once_contexts_are_there_enabling_opens_no_file() {
    let (machine, cache) = (scratch("machine"), scratch("cache"));
    virtual_machine(&machine);
    let here = |program: Program| {
        program.env("P2PSIM_ROOT", machine.to_string_lossy()).env("XDG_CACHE_HOME", cache.to_string_lossy())
    };
    let program = here(Program::case("kept_verdict"));
    let without = program.preloaded();
    assert!(without.status.starts_with("signal: 31"), "what is not known is looked for: {without:#?}");
    here(Program::new(command()).arg("doctor").libraries("target/sim/lib")).plain().assert_success();
    let outcome = program.preloaded();
    outcome.assert_same_as(&program.plain(), "preloaded");
    assert!(outcome.shim.is_empty(), "{outcome:#?}");
    fs::remove_dir_all(cache).unwrap();
    fs::remove_dir_all(machine).unwrap();
}

/// PyTorch, llama.cpp and vLLM: as plain where all is well, and right where it is not, or refused by what they look at themselves.
#[test]
fn programs_that_ask_as_others_do_get_right_data_or_are_told() {
    let right = "24 of 24 copies right\n";
    for flavour in ["12", "13", "static"] {
        let program = |who: &str| Program::case(&format!("asks_like-{flavour}")).arg(who);
        for who in ["pytorch", "llama", "vllm"] {
            let plain = program(who).plain();
            plain.assert_success();
            assert!(plain.stdout.contains(if who == "vllm" { "its data is right\n" } else { right }), "{plain:#?}");
            let outcome = program(who).preloaded();
            outcome.assert_same_as(&plain, who);
            assert!(warnings(&outcome).is_empty(), "{outcome:#?}");
        }
        for who in ["pytorch", "llama"] {
            let broken = program(who).env("P2PSIM_FAULT", "drop:0-1");
            assert!(!broken.plain().stdout.contains(right), "{who} without p2pshim");
            for option in [("P2PSIM_FAULT", "drop:0-1"), ("P2PSHIM_DENY", "0-1"), ("P2PSHIM_ACCESS", "off")] {
                let outcome = program(who).env(option.0, option.1).preloaded();
                outcome.assert_success();
                assert!(outcome.stdout.starts_with("0 can access 1: 0\n"), "{who} {option:?}: {}", outcome.stdout);
                assert!(outcome.stdout.ends_with(right), "{who} {option:?}: {}", outcome.stdout);
            }
        }
        let lost = program("vllm").env("P2PSIM_FAULT", "ipc:0>1");
        let plain = lost.plain();
        assert!(plain.stdout.contains("its data is WRONG\n"), "{plain:#?}");
        lost.preloaded().assert_same_as(&plain, "vllm sees for itself");
        let denied = program("vllm").env("P2PSHIM_DENY", "0-1").preloaded();
        assert!(denied.stdout.ends_with("0 can access 1: 0\n"), "{denied:#?}");
    }
}

/// Else a copy between devices passes for one within a device, and is not staged.
#[test]
fn addresses_that_come_back_as_memory_of_another_device_are_seen() {
    for how in ["detach", "graphics", "module", "host"] {
        let program = Program::case("facts_taken_back").arg(how).env("P2PSIM_ONE_SPACE", "1");
        let program = program.env("P2PSIM_FAULT", "drop:0-1").env("P2PSHIM_BROKEN", "warn");
        assert_eq!(program.plain().stdout, "the copy is WRONG\n", "{how}");
        assert_eq!(program.preloaded().stdout, "the copy is right\n", "{how}");
    }
}

/// What was verified are the paths of the devices before.
#[test]
fn process_that_is_restored_on_other_devices_has_its_paths_verified_anew() {
    let program = Program::case("facts_taken_back").arg("restore");
    let right = "the copy is right\nthe copy is right\n";
    assert_eq!(program.plain().stdout, right);
    let outcome = program.preloaded();
    assert_eq!(outcome.stdout, right, "{outcome:#?}");
}

/// It is the program's, whatever is known of the path; and that is said.
#[test]
fn memory_of_another_process_is_not_refused_and_warned_about_where_the_path_is_blocked() {
    let cache = scratch("cache");
    let here = |program: Program, fault: &str| {
        program.env("P2PSIM_FAULT", fault).env("XDG_CACHE_HOME", cache.to_string_lossy())
    };
    let denied = "device 1, it is accessed though that is denied. ";
    let broken = "device 1, its data may be wrong: peer access there is broken. ";
    for (fault, option, said) in [
        ("", ("P2PSHIM_PROBE", "full"), None),
        ("", ("P2PSHIM_DENY", "0-1"), Some(denied)),
        ("", ("P2PSHIM_ACCESS", "off"), Some("another device, it is accessed though that is denied. ")),
        ("drop:0>1", ("P2PSHIM_PROBE", "full"), Some(broken)),
        ("ipc:0>1", ("P2PSHIM_PROBE", "full"), Some(broken)),
    ] {
        let doctor = here(Program::new(command()).arg("doctor").libraries("target/sim/lib"), fault).plain();
        assert_eq!(doctor.status, format!("exit status: {}", u8::from(!fault.is_empty())), "{doctor:#?}");
        for by in [&[][..], &["mapped"]] {
            let program = || Program::case("memory_of_another_process").args(by);
            let (plain, outcome) =
                (here(program(), fault).plain(), here(program(), fault).env(option.0, option.1).preloaded());
            outcome.assert_same_as(&plain, fault);
            let what = match by {
                [] => "memory of another process was opened on device 0. If it lies on ",
                _ => "memory of device 1 that was imported is mapped for device 0, ",
            };
            let is_it = |line: &&String| line.contains(what);
            let lines: Vec<&String> = outcome.shim.iter().filter(is_it).collect();
            assert_eq!(lines.len(), said.iter().len(), "{fault} {option:?} {by:?}: {:#?}", outcome.shim);
            let so = said.map(|said| if by.is_empty() { said } else { said.split_once(", ").unwrap().1 });
            assert!(lines.iter().all(|line| line.contains(so.unwrap())), "{lines:#?}");
        }
    }
    fs::remove_dir_all(cache).unwrap();
}

/// There is no other device that it could lie on.
#[test]
fn memory_of_another_process_on_the_only_device_is_not_warned_about() {
    let program = Program::case("memory_of_another_process").arg("same").env("P2PSIM_DEVICES", "1");
    let outcome = program.env("P2PSHIM_ACCESS", "off").preloaded();
    outcome.assert_success();
    assert!(outcome.stdout.ends_with("the second process ends with 0\n"), "{outcome:#?}");
    assert!(!outcome.shim.iter().any(|line| line.contains("memory of another process")), "{:#?}", outcome.shim);
}

#[test]
fn paths_that_are_broken_each_who_and_form_data_is_right() {
    let machine = scratch("machine");
    virtual_machine(&machine);
    let root = machine.to_string_lossy();
    let case = path("target/c-tests/broken_paths").to_string_lossy().into_owned();
    let mut text =
        "fault\twho\tplain\tpreloaded\trun\tpreloaded, a copy may hang\trun, a copy may hang\tpreloaded, BROKEN=warn\n"
            .to_owned();
    for (fault, option) in FAULTS {
        let cache = scratch("cache");
        let set = |program: Program| {
            let (name, value) = option.split_once('=').unwrap_or(("P2PSHIM_PROBE", "quick"));
            let program = program.env("P2PSIM_FAULT", fault).env(name, value);
            let program = program.env("XDG_CACHE_HOME", cache.to_string_lossy()).env(LARGE_PAGES.0, LARGE_PAGES.1);
            program.findings_apart()
        };
        let rows: Vec<(&str, [String; 6])> = std::thread::scope(|scope| {
            let row = |who: &'static str| {
                let program = || set(Program::case("broken_paths").arg(who));
                let run = || {
                    set(Program::new(command())
                        .arg("run")
                        .arg("--no-report")
                        .arg(&case)
                        .arg(who)
                        .libraries("target/sim/lib"))
                };
                // First without a verdict.
                let risky =
                    cell(&program().env("P2PSIM_ROOT", &*root).env("XDG_CACHE_HOME", "/nonexistent").preloaded());
                // Which makes the verdicts that there are for others, if it makes any.
                let ran = cell(&run().plain());
                let cells = [
                    cell(&program().plain()),
                    cell(&program().preloaded()),
                    ran,
                    risky,
                    cell(&run().env("P2PSIM_ROOT", &*root).plain()),
                    cell(&program().env("P2PSHIM_BROKEN", "warn").preloaded()),
                ];
                (who, cells)
            };
            let threads = WHO.map(|who| scope.spawn(move || row(who)));
            threads.map(|thread| thread.join().unwrap()).into()
        });
        for (who, cells) in rows {
            let told = format!("{fault} {option} {who}: {cells:#?}");
            let [plain, preloaded, run, risky, risky_run, warned] = &cells;
            for ours in [preloaded, run, risky_run] {
                if option == UNSEEN && ours.contains("WRONG") {
                    assert!(ours.contains("P2P-data-changed"), "{told}");
                    continue;
                }
                // As on hardware without that path, where nobody can have rights to the other's memory.
                let is_refused = matches!(who, "pool" | "mapped") && ours.contains("INVALID_DEVICE: graph refused");
                let is_right = is_refused || ours.contains("right");
                assert!(is_right && !ours.contains("WRONG") && !ours.contains("hangs"), "{told}");
            }
            // Nothing is tested there before the program has what it asks for: its first copies are what they are without us.
            let is_wrong = |cell: &String| cell.contains("WRONG") || cell.contains("hangs");
            assert!(is_wrong(plain) || !is_wrong(risky), "{told}");
            // What the shim cannot stage is said.
            assert!(!is_wrong(warned) || warned.contains("P2P-data-"), "{told}");
            text += &format!("{}\t{who}\t{}\n", [fault, option].join(" ").trim(), cells.join("\t"));
        }
        let _ = fs::remove_dir_all(cache);
    }
    fs::remove_dir_all(machine).unwrap();
    if std::env::var_os("P2PSHIM_UPDATE").is_some() {
        fs::write(path(GOLDEN), &text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(path(GOLDEN)).unwrap());
}

/// What is known of an address is gone whenever any thread frees memory: a copy that has to be staged is staged all the same.
#[test]
fn blocked_copies_beside_frees_are_right() {
    const COPIES: &str = "6000";
    for (who, broken) in [("asks", "warn"), ("late", "refuse")] {
        let program = || Program::case("blocked_beside_frees").args(&[who, COPIES]).env("P2PSIM_FAULT", "drop:0-1");
        let plain = program().plain();
        plain.assert_success();
        let outcome = program().env("P2PSHIM_BROKEN", broken).preloaded();
        outcome.assert_success();
        let [gets, others] = [&plain, &outcome].map(|outcome| outcome.stdout.matches("access: CUDA_SUCCESS").count());
        assert_eq!((gets, others), (2, 2), "without access there is nothing to be wrong: {outcome:#?}");
        assert!(!plain.stdout.ends_with("\n0 of 6000 copies are wrong\n"), "{plain:#?}");
        assert!(outcome.stdout.ends_with("\n0 of 6000 copies are wrong\n"), "{who}: {outcome:#?}");
    }
}

/// Faults, options and words for `blocked_stress`, each with its name in [`STRESSED`].
const STRESSES: [(&str, &str, &str, &str); 10] = [
    ("drop-warn", "drop:0-1", "P2PSHIM_BROKEN=warn", ""),
    ("drop", "drop:0-1", "P2PSHIM_BROKEN=refuse", ""),
    ("drop-late", "drop:0-1", "P2PSHIM_BROKEN=refuse", "late"),
    ("drop-warn-late", "drop:0>1", "P2PSHIM_BROKEN=warn", "late"),
    ("corrupt-warn", "corrupt:0-1", "P2PSHIM_BROKEN=warn", ""),
    ("corrupt-late", "corrupt:0-1", "P2PSHIM_BROKEN=refuse", "late"),
    ("hang-warn", "hang:0>1", "P2PSHIM_BROKEN=warn", "hangs"),
    ("hang", "hang:0>1", "P2PSHIM_BROKEN=refuse", "hangs"),
    ("denied", "drop:0-1", "P2PSHIM_DENY=0-1", ""),
    ("off", "drop:0-1", "P2PSHIM_ACCESS=off", ""),
];
/// Seeds that have failed, each after the name of what it has failed with: runs that take new seeds add theirs.
const STRESSED: &str = "tests/golden/blocked-stress.tsv";

/// Runs `blocked_stress` with a seed; what it prints, if a copy is wrong or it fails otherwise.
fn stress((name, fault, option, word): (&str, &str, &str, &str), flavour: &str, seed: u32) -> Option<String> {
    let (variable, value) = option.split_once('=').unwrap();
    let program = Program::case(&format!("blocked_stress-{flavour}")).args(&[&seed.to_string(), "32", "100", word]);
    let program = program.env("P2PSIM_DEVICES", "4").env("P2PSIM_FAULT", fault).env(variable, value);
    let outcome = program.preloaded();
    let counts: Vec<u32> =
        outcome.stdout.split_whitespace().rev().filter_map(|word| word.parse().ok()).take(3).collect();
    let is_right = outcome.status == "exit status: 0" && matches!(counts[..], [0, _, copies] if copies >= 500);
    (!is_right).then(|| format!("{name}\t{seed}\n{}{}", outcome.stdout, outcome.stderr))
}

/// Whatever other threads do. `BLOCKED_STRESS_MINUTES` takes new seeds as long as that, and keeps those that fail.
#[test]
fn blocked_copies_of_many_threads_beside_all_that_takes_memory_away_are_right() {
    const FIRST: u32 = 1;
    let kept = fs::read_to_string(path(STRESSED)).unwrap();
    let mut failed = Vec::new();
    for line in kept.lines() {
        let (name, seed) = line.split_once('\t').unwrap();
        let how = STRESSES.into_iter().find(|how| how.0 == name).unwrap();
        failed.extend(stress(how, "12", seed.parse().unwrap()));
    }
    for (how, flavour) in STRESSES.into_iter().zip(["12", "13", "static"].into_iter().cycle()) {
        failed.extend(stress(how, flavour, FIRST));
    }
    if let Ok(minutes) = std::env::var("BLOCKED_STRESS_MINUTES") {
        let (begun, most) = (Instant::now(), Duration::from_secs(60 * minutes.parse::<u64>().unwrap()));
        let mut seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u32;
        let (mut runs, mut wrong) = (0, Vec::new());
        while begun.elapsed() < most {
            for (how, flavour) in STRESSES.into_iter().zip(["12", "13", "static"].into_iter().cycle()) {
                wrong.extend(stress(how, flavour, seed));
                runs += 1;
            }
            seed = seed.wrapping_add(1);
        }
        crate::support::say(&format!("blocked_stress: {runs} runs with new seeds, {} failed", wrong.len()));
        let seeds: String =
            wrong.iter().filter_map(|text| text.lines().next()).map(|line| format!("{line}\n")).collect();
        fs::write(path(STRESSED), kept + &seeds).unwrap();
        failed.extend(wrong);
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
