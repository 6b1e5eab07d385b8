//! Paths that are broken, on simulated GPUs: what a program gets, whoever enables them, in each form of a copy.
//!
//! `golden/broken-paths.tsv` has it, for each fault and each who: plain, preloaded, by `p2pshim run` (some faults); the latter two on a
//! machine where a copy may hang (a virtual machine whose GPUs hang on PCI); and with P2PSHIM_BROKEN=warn, which gives the program the
//! access that it asks for. `P2PSHIM_UPDATE=1` writes it anew.
//!
//! `aperture` is right on the small memory of a quick verification, and so the shim may enable what loses data: p2pshim doctor finds it,
//! and `P2PSHIM_READBACK` when it happens.

use std::fs;

use crate::support::once::alone;
use crate::support::soak::{Draw, is_all, seeds};
use crate::support::{LARGE_PAGES, Outcome, Program, Scratch, command, doctor, path, virtual_machine, warnings};

const GOLDEN: &str = "tests/golden/broken-paths.tsv";
/// A fault that no quick verification finds is at least said when it happens.
const UNSEEN: &str = "P2PSHIM_READBACK=all";
const WHO: [&str; 5] = ["nobody", "program", "asks", "pool", "mapped"];

/// The program's answers and data, in few words, and how many warnings there were.
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
    let (machine, cache) = (Scratch::new("machine"), Scratch::new("cache"));
    virtual_machine(&machine);
    let here = |program: Program| {
        program.env("P2PSIM_ROOT", machine.to_string_lossy()).env("XDG_CACHE_HOME", cache.to_string_lossy())
    };
    let program = here(Program::case("kept_verdict"));
    let without = program.preloaded();
    assert!(without.status.starts_with("signal: 31"), "what is not known is looked for: {without:#?}");
    here(doctor().libraries("target/sim/lib")).plain().assert_success();
    let outcome = program.preloaded();
    outcome.assert_same_as(&program.plain(), "preloaded");
    assert!(outcome.shim.is_empty(), "{outcome:#?}");
    fs::remove_dir_all(cache).unwrap();
}

/// PyTorch, llama.cpp and vLLM: as plain where all is well, and right where it is not, or refused by what they look at themselves.
#[test]
fn programs_that_ask_as_others_do_get_right_data_or_are_told() {
    let right = "24 of 24 copies right\n";
    let shared = ["12", "13"][Draw::of("asks_like").below(2)];
    for flavour in if is_all() { vec!["12", "13", "static"] } else { vec![shared, "static"] } {
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
    for how in ["detach", "graphics", "module", "library", "host", "registered"] {
        let program = Program::case("facts_taken_back").arg(how).env("P2PSIM_ONE_SPACE", "1");
        let program = program.env("P2PSIM_FAULT", "drop:0-1").env("P2PSHIM_BROKEN", "warn");
        assert_eq!(program.plain().stdout, "the copy is WRONG\n", "{how}");
        assert_eq!(program.preloaded().stdout, "the copy is right\n", "{how}");
        // Where no path is broken, only what is remembered says whether a copy is one between devices.
        let program = Program::case("facts_taken_back").arg(how).env("P2PSIM_ONE_SPACE", "1");
        let log = program.env("P2PSHIM_LOG", "trace").preloaded().shim.join("\n");
        assert!(log.contains("cuMemcpy(") && log.contains(" 1>0 direct"), "{how}: {log}");
    }
}

/// The paths that were verified are those of the devices before.
#[test]
fn process_that_is_restored_on_other_devices_has_its_paths_verified_anew() {
    let program = Program::case("facts_taken_back").arg("restore");
    let right = "the copy is right\nthe copy is right\n";
    assert_eq!(program.plain().stdout, right);
    let outcome = program.preloaded();
    assert_eq!(outcome.stdout, right, "{outcome:#?}");
}

/// Without its owner, the GPU of memory from a handle is unknown: the program gets it, and a warning. The driver knows the GPU of mapped memory, which is
/// refused.
#[test]
fn memory_of_another_process_is_warned_about_or_refused_where_the_path_is_blocked() {
    let cache = Scratch::new("cache");
    let here = |program: Program, fault: &str| {
        program.env("P2PSIM_FAULT", fault).env("XDG_CACHE_HOME", cache.to_string_lossy())
    };
    let denied = "device 1, it is accessed though that is denied. ";
    let broken = "device 1, its data may be wrong: copies: 4096 of 4096 bytes never arrived";
    for (fault, option, said) in [
        ("", ("P2PSHIM_VERIFY", "full"), None),
        ("", ("P2PSHIM_DENY", "0-1"), Some(denied)),
        ("", ("P2PSHIM_ACCESS", "off"), Some("another device, it is accessed though that is denied. ")),
        ("drop:0>1", ("P2PSHIM_VERIFY", "full"), Some(broken)),
        (
            "ipc:0>1",
            ("P2PSHIM_VERIFY", "quick"),
            Some("device 1, its data may be wrong: between processes, IPC: 4096 of 4096 bytes never arrived"),
        ),
    ] {
        if option.0 == "P2PSHIM_VERIFY" {
            let doctor = here(doctor().libraries("target/sim/lib"), fault).plain();
            assert_eq!(doctor.status, format!("exit status: {}", u8::from(!fault.is_empty())), "{doctor:#?}");
        }
        for by in [&[][..], &["mapped"]] {
            let program = || Program::case("memory_of_another_process").args(by);
            let (plain, outcome) =
                (here(program(), fault).plain(), here(program(), fault).env(option.0, option.1).preloaded());
            // Memory that was mapped by a descriptor was not opened by a handle.
            let said = said.filter(|_| fault != "ipc:0>1" || by.is_empty());
            let what = match by {
                [] => "memory of another process was opened on device 0. If it lies on ",
                _ => {
                    "memory of device 1 that was imported is not mapped for device 0 (CUDA_ERROR_INVALID_DEVICE), since "
                }
            };
            if by.is_empty() || said.is_none() {
                outcome.assert_same_as(&plain, fault);
            } else {
                let ends = "= CUDA_ERROR_INVALID_DEVICE\nthe second process ends at once with 3\n";
                assert!(outcome.stdout.ends_with(ends) && outcome.status == plain.status, "{outcome:#?}");
            }
            let is_it = |line: &&String| line.contains(what);
            let lines: Vec<&String> = outcome.shim.iter().filter(is_it).collect();
            assert_eq!(lines.len(), said.iter().len(), "{fault} {option:?} {by:?}: {:#?}", outcome.shim);
            let so = match said {
                Some(said) if by.is_empty() => said,
                _ if fault.is_empty() => "that is denied",
                _ => "its data would be wrong: copies: 4096 of 4096 bytes never arrived",
            };
            assert!(lines.iter().all(|line| line.contains(so)), "{lines:#?}");
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

/// Compares the rows of a fault with the table, or writes them there.
fn check(fault: &str, rows: &str) {
    let is_written = std::env::var_os("P2PSHIM_UPDATE").is_some();
    let _alone = is_written.then(|| alone("broken"));
    let table = fs::read_to_string(path(GOLDEN)).unwrap();
    let is_own = |line: &&str| line.split('\t').next() == Some(fault);
    let known: String = table.split_inclusive('\n').filter(is_own).collect();
    if is_written {
        let place = table.find(&known).filter(|_| !known.is_empty()).unwrap_or(table.len());
        fs::write(path(GOLDEN), [&table[..place], rows, &table[place + known.len()..]].concat()).unwrap();
        return;
    }
    assert_eq!(rows, known, "found (left) and in {GOLDEN} (right)");
}

/// A fault with the option that is set for it. `p2pshim run`, which asks the doctor first, is tried if it is one `with_run`.
fn each_who_and_form_data_is_right(fault: &str, option: &str, with_run: bool) {
    let (machine, cache) = (Scratch::new("machine"), Scratch::new("cache"));
    virtual_machine(&machine);
    let root = machine.to_string_lossy();
    let case = path("target/c-tests/broken_paths").to_string_lossy().into_owned();
    let set = |program: Program| {
        let (name, value) = option.split_once('=').unwrap_or(("P2PSHIM_VERIFY", "quick"));
        let program = program.env("P2PSIM_FAULT", fault).env(name, value);
        let program = program.env("XDG_CACHE_HOME", cache.to_string_lossy()).env(LARGE_PAGES.0, LARGE_PAGES.1);
        program.findings_apart()
    };
    let row = |who: &'static str| {
        let program = || set(Program::case("broken_paths").arg(who));
        let run = |env: (&str, &str)| {
            let words = ["run", "--no-report", &case, who];
            let run = || set(Program::new(command()).args(&words).libraries("target/sim/lib").env(env.0, env.1));
            // Verdicts on GPUs as if they were real take the place of those for a fault.
            let kept_in = if env.0 == "P2PSIM_ROOT" { machine.join("cache") } else { cache.clone() };
            if with_run {
                cell(&run().env("XDG_CACHE_HOME", kept_in.to_string_lossy()).plain())
            } else {
                "-".to_owned()
            }
        };
        // First without a verdict.
        let risky = cell(&program().env("P2PSIM_ROOT", &*root).env("XDG_CACHE_HOME", "/nonexistent").preloaded());
        // Which makes the verdicts that there are for others, if it makes any.
        let ran = run(("TERM", "dumb"));
        let cells = [
            cell(&program().plain()),
            cell(&program().preloaded()),
            ran,
            risky,
            run(("P2PSIM_ROOT", &root)),
            cell(&program().env("P2PSHIM_BROKEN", "warn").preloaded()),
        ];
        (who, cells)
    };
    let rows: [(&str, [String; 6]); 5] = std::thread::scope(|scope| {
        let threads = WHO.map(|who| scope.spawn(move || row(who)));
        threads.map(|thread| thread.join().unwrap())
    });
    let name = [fault, option].join(" ").trim().to_owned();
    let mut text = String::new();
    for (who, cells) in rows {
        let told = format!("{name} {who}: {cells:#?}");
        let [plain, preloaded, run, risky, risky_run, warned] = &cells;
        for ours in [preloaded, run, risky_run].into_iter().filter(|ours| *ours != "-") {
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
        // A copy that the shim cannot stage is said.
        assert!(!is_wrong(warned) || warned.contains("P2P-data-"), "{told}");
        text += &format!("{name}\t{who}\t{}\n", cells.join("\t"));
    }
    check(&name, &text);
}

macro_rules! faults {
    ($($test:ident($fault:expr, $option:expr, $with_run:expr);)*) => { $(
        #[test]
        fn $test() {
            each_who_and_form_data_is_right($fault, $option, $with_run);
        }
    )* };
}

faults! {
    sound_paths_each_who_and_form_data_is_right("", "", false);
    paths_that_drop_each_who_and_form_data_is_right("drop:0>1", "", true);
    paths_that_drop_the_first_each_who_and_form_data_is_right("first:0>1", "", false);
    paths_that_corrupt_each_who_and_form_data_is_right("corrupt:0-1", "", false);
    paths_that_hang_each_who_and_form_data_is_right("hang:0>1", "", true);
    paths_that_are_slow_each_who_and_form_data_is_right("slow:0>1", "", false);
    paths_that_lose_accesses_each_who_and_form_data_is_right("lost:0>1", "", true);
    paths_with_an_aperture_each_who_and_form_data_is_right_or_it_is_said("aperture:0>1", UNSEEN, false);
    paths_with_an_aperture_known_to_the_doctor_each_who_and_form_data_is_right("aperture:0>1", "P2PSHIM_VERIFY=full", true);
}

/// The facts about an address are gone whenever any thread frees memory: a copy that has to be staged is staged all the same.
#[test]
fn blocked_copies_beside_frees_are_right() {
    let copies = seeds(0, 6000).1.to_string();
    let none = format!("\n0 of {copies} copies are wrong\n");
    for (who, broken) in [("asks", "warn"), ("late", "refuse")] {
        let program = || Program::case("blocked_beside_frees").args(&[who, &copies]).env("P2PSIM_FAULT", "drop:0-1");
        let plain = program().plain();
        plain.assert_success();
        let outcome = program().env("P2PSHIM_BROKEN", broken).preloaded();
        outcome.assert_success();
        let [gets, others] = [&plain, &outcome].map(|outcome| outcome.stdout.matches("access: CUDA_SUCCESS").count());
        assert_eq!((gets, others), (2, 2), "without access there is nothing to be wrong: {outcome:#?}");
        assert!(!plain.stdout.ends_with(&none), "{plain:#?}");
        assert!(outcome.stdout.ends_with(&none), "{who}: {outcome:#?}");
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
/// Seeds that have failed, each after the name of what it has failed with.
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

/// Whatever other threads do.
#[test]
fn blocked_copies_of_many_threads_beside_all_that_takes_memory_away_are_right() {
    let kept = fs::read_to_string(path(STRESSED)).unwrap();
    let kept = kept.lines().map(|line| {
        let (name, seed) = line.split_once('\t').unwrap();
        let how = STRESSES.into_iter().find(|how| how.0 == name).unwrap();
        (how, "12", seed.parse().unwrap())
    });
    let (first, count) = seeds(1, 10);
    let flavours = || ["12", "13", "static"].into_iter().cycle();
    let drawn = (first..first + count)
        .flat_map(|seed| STRESSES.into_iter().zip(flavours()).map(move |(how, flavour)| (how, flavour, seed)));
    // Every second of them, but in `make soak`.
    let every = if is_all() { 1 } else { 2 };
    let drawn = drawn.skip(Draw::of("blocked_stress").below(every)).step_by(every);
    let failed: Vec<_> = kept.chain(drawn).filter_map(|(how, flavour, seed)| stress(how, flavour, seed)).collect();
    assert!(failed.is_empty(), "add the first line of each to {STRESSED}:\n{}", failed.join("\n"));
}
