//! The check that `p2pshim run` makes before the program starts, on simulated GPUs.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::support::{Outcome, Program, Scratch, command, doctor, path, virtual_machine};

/// `p2pshim run` without a report, with verdicts in this folder.
fn run(cache: &Path, fault: &str, arguments: &[&str]) -> Program {
    let run = Program::new(command()).args(&["run", "--no-report"]).args(arguments);
    run.env("P2PSIM_FAULT", fault).env("XDG_CACHE_HOME", cache.to_string_lossy()).findings_apart()
}

/// Its lines about the check.
fn checks(outcome: &Outcome) -> Vec<&String> {
    outcome.shim.iter().filter(|line| line.starts_with("p2pshim: checked ")).collect()
}

/// The line of the check without its time, if it was made.
fn check(outcome: &Outcome) -> Option<String> {
    let lines = checks(outcome);
    assert!(lines.len() < 2, "{:#?}", outcome.shim);
    let line = lines.first()?.strip_prefix("p2pshim: checked ").unwrap();
    let what = line.strip_suffix(" (--no-check skips it)").unwrap_or_else(|| panic!("{lines:?}"));
    let (what, how_often) = what.rsplit_once(", ").unwrap();
    assert!(["once per boot", "again at the next start"].contains(&how_often), "{lines:?}");
    Some(what.rsplit_once("; ").unwrap().0.to_owned())
}

#[test]
fn ranks_that_start_at_once_check_once() {
    let cache = Scratch::new("cache");
    let ranks: Vec<Outcome> = thread::scope(|scope| {
        let rank = || scope.spawn(|| run(&cache, "", &["--sim", "2", "sh", "-c", "exit 7"]).plain());
        let ranks: Vec<_> = (0..8).map(|_| rank()).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    assert_eq!(ranks.iter().flat_map(checks).count(), 1, "{ranks:#?}");
    assert!(ranks.iter().all(|rank| rank.status == "exit status: 7"), "{ranks:#?}");
    fs::remove_dir_all(cache).unwrap();
}

#[test]
fn check_says_what_is_wrong_and_is_made_once() {
    let right_within =
        "2 GPUs: right within a process, but wrong between processes on 0>1 1>0; `p2pshim doctor` shows more";
    let loses = "2 GPUs: peer access loses data on 0>1, and p2pshim does not use it; `p2pshim doctor` shows more";
    for (fault, variable, expected) in [
        ("", ("CUDA_VISIBLE_DEVICES", ""), "2 GPUs: copies right"),
        ("drop:0>1", ("CUDA_VISIBLE_DEVICES", "1"), loses),
        ("aperture:0>1", ("P2PSIM_NO_P2P", "1>0"), loses),
        ("ipc:0-1", ("P2PSIM_DRIVER", "12000"), right_within),
        // Which copies of one pair, of a first part of memory, do not show.
        ("crowd:0>1", ("P2PSIM_DRIVER", "12000"), "2 GPUs: copies right"),
        ("window:0>1", ("P2PSIM_DRIVER", "12000"), "2 GPUs: copies right"),
        ("slow:0>1", ("P2PSIM_DRIVER", "12000"), "2 GPUs: copies right"),
        ("", ("P2PSIM_NO_P2P", "0-1"), "2 GPUs: no pair has a path"),
        // A test that cannot be made is no failure.
        ("code:cuIpcGetMemHandle:801@1", ("P2PSIM_DRIVER", "12000"), "2 GPUs: copies right"),
        ("code:cuIpcOpenMemHandle_v2:999@1", ("P2PSIM_DRIVER", "12000"), "2 GPUs: copies right"),
    ] {
        let cache = Scratch::new("cache");
        let program = run(&cache, fault, &["--sim", "2", "sh", "-c", "exit 3"]).env(variable.0, variable.1);
        let (first, second) = (program.plain(), program.plain());
        assert_eq!((check(&first).as_deref(), check(&second)), (Some(expected), None), "{fault} {variable:?}");
        assert!([&first, &second].iter().all(|it| it.status == "exit status: 3"), "{first:#?} {second:#?}");
        let is_kept_off = |it: &Outcome| it.shim.iter().any(|line| line.contains("NCCL_P2P_DISABLE=1 is set"));
        let is_wrong = expected.contains("doctor");
        assert_eq!((is_kept_off(&first), is_kept_off(&second)), (is_wrong, is_wrong), "{first:#?} {second:#?}");
        fs::remove_dir_all(cache).unwrap();
    }
}

#[test]
fn check_leaves_out_what_is_not_for_all() {
    for (name, value, expected) in [
        ("P2PSIM_EXCLUSIVE", "2", "2 of 3 GPUs: copies right; left out: GPU 2 (it is in exclusive mode)"),
        (
            "P2PSIM_EXCLUSIVE",
            "0,1",
            "none of 3 GPUs: left out: GPU 0 (it is in exclusive mode), GPU 1 (it is in exclusive mode)",
        ),
        (
            "P2PSIM_MIG",
            "1",
            "none of 3 GPUs: left out: GPU 0 (a part of a GPU, by MIG), GPU 1 (a part of a GPU, by MIG), GPU 2 (a part of a GPU, by MIG)",
        ),
    ] {
        let cache = Scratch::new("cache");
        let program = run(&cache, "", &["--sim", "3", "true"]).env(name, value);
        let (first, second) = (program.plain(), program.plain());
        assert_eq!((check(&first).as_deref(), check(&second)), (Some(expected), None), "{first:#?}");
        fs::remove_dir_all(cache).unwrap();
    }
}

/// A management library by which the second of the GPUs has 511 MiB of free memory.
const NVML: &str = r#"
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = (void *)(long)(1 + (uuid[strlen(uuid) - 1] - '0'));
    return strncmp(uuid, "GPU-", 4) != 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
    memory[0] = 80ULL << 30;
    memory[1] = device == (void *)2 ? 511ULL << 20 : 512ULL << 20;
    memory[2] = memory[0] - memory[1];
    return 0;
}
"#;

#[test]
fn check_leaves_out_what_has_little_free_memory() {
    let folder = Scratch::folder("nvml");
    let (source, library) = (folder.join("nvml.c"), folder.join("libnvidia-ml.so.1"));
    fs::write(&source, NVML).unwrap();
    assert!(Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status().unwrap().success());
    let libraries = format!("{}:{}", folder.display(), path("target/sim/lib").display());
    let run = run(&folder, "", &["true"]).env("LD_LIBRARY_PATH", libraries);
    let expected = "none of 2 GPUs: left out: GPU 1 (it has less than 512 MiB of free memory)";
    assert_eq!(check(&run.plain()).as_deref(), Some(expected));
}

/// The order of NVIDIA's simpleP2P: the question, enabling, copies. Under `p2pshim run` the first question says it.
#[test]
fn program_that_asks_first_is_told_the_truth_or_its_data_is_right() {
    for (fault, asked) in
        [("", 1), ("drop:0-1", 0), ("drop:0>1", 0), ("corrupt:1>0", 0), ("aperture:0>1", 0), ("ipc:0-1", 1)]
    {
        let cache = Scratch::new("cache");
        let case = path("target/c-tests/simple_p2p-12").to_string_lossy().into_owned();
        let outcome = run(&cache, fault, &["--sim", "2", &case]).plain();
        let expected = if asked == 1 { "can 1 1\nenabled\ndata is right\n" } else { "can 0 0\n" };
        assert_eq!(outcome.stdout, expected, "{fault}: {outcome:#?}");
        fs::remove_dir_all(cache).unwrap();
    }
}

/// Without a verdict it learns of it when it enables access: one cause, and one remedy.
#[test]
fn bare_preload_names_one_cause_and_one_remedy() {
    let outcome = Program::case("simple_p2p-12").env("P2PSIM_FAULT", "drop:0-1").findings_apart().preloaded();
    assert!(outcome.stdout.starts_with("can 1 1\ncudaDeviceEnablePeerAccess(1, 0) = cudaErrorPeerAccessUnsupported\n"));
    let [line] = &outcome.shim[..] else { panic!("{outcome:#?}") };
    assert!(line.contains("data does not arrive") && line.matches("Likely cause: ").count() == 1, "{line}");
    let remedy = "Run `p2pshim doctor` once after each boot: p2pshim then knows this when a program first asks";
    assert!(line.ends_with(remedy) && !line.contains("P2PSHIM_"), "{line}");
}

/// Copies are right within a process, and lost where the memory is another's: said before, and refused where it is opened.
#[test]
fn broken_ipc_is_refused_and_never_kept_as_passed() {
    for probe in ["quick", "full"] {
        let cache = Scratch::new("cache");
        let case = path("target/c-tests/memory_of_another_process").to_string_lossy().into_owned();
        let program = run(&cache, "ipc:0-1", &["--sim", "2", "--verify", probe, &case]);
        for _ in 0..2 {
            let outcome = program.plain();
            let lines = outcome.shim.join("\n");
            let refused = "memory of device 1, which another process owns, is not opened on device 0 \
                           (CUDA_ERROR_PEER_ACCESS_UNSUPPORTED), since its data would be wrong: between processes, IPC: ";
            assert!(lines.matches(refused).count() == 1 && lines.contains("NCCL_P2P_DISABLE=1 is set"), "{lines}");
            assert!(outcome.stdout.ends_with("the second process ends at once with 3\n"), "{outcome:#?}");
        }
        let kept =
            fs::read_dir(cache.join("p2pshim")).unwrap().map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
        let kept: Vec<String> = kept.filter(|text| text.contains("\nfrom ")).collect();
        assert!(kept.len() == 2 && kept.iter().all(|text| text.contains("\nipc wrong ")), "{kept:#?}");
    }
}

/// Root's check is everybody's: it lies below /run, here of a machine that is made up.
#[test]
fn check_of_root_is_that_of_all_users() {
    let (machine, homes) = (Scratch::new("machine"), ["root", "another"].map(Scratch::new));
    [machine.join("run"), homes[0].clone(), homes[1].clone()].iter().for_each(|it| fs::create_dir_all(it).unwrap());
    let program = run(Path::new(""), "ipc:0-1", &["--sim", "2", "sh", "-c", "echo $NCCL_P2P_DISABLE"]);
    let program = program.env("P2PSIM_ROOT", machine.to_string_lossy());
    let [first, second] = homes.each_ref().map(|home| program.clone().env("HOME", home.to_string_lossy()).plain());
    assert_eq!((first.stdout.as_str(), second.stdout.as_str()), ("1\n", "1\n"), "{second:#?}");
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    assert_eq!((checks(&first).len(), checks(&second).len()), (1, usize::from(!is_root)), "{second:#?}");
    assert_eq!(machine.join("run/p2pshim").exists(), is_root);
}

/// Whoever names a home that is not there wants none: some services run so.
#[test]
fn home_that_is_not_there_is_not_made() {
    let folder = Scratch::folder("home");
    let home = folder.join("none");
    let run = Program::new(command()).args(&["run", "--no-report", "--sim", "2", "true"]).findings_apart();
    let run = run.env("HOME", home.to_string_lossy()).env("XDG_CACHE_HOME", "");
    let outcome = run.plain();
    let why = format!("GPUs are not checked: {}/.cache/p2pshim cannot be made", home.display());
    assert!(outcome.shim.join("\n").contains(&why) && outcome.status == "exit status: 0", "{outcome:#?}");
    assert!(!home.exists());
    fs::create_dir(&home).unwrap();
    assert_eq!(checks(&run.plain()).len(), 1);
    assert!(home.join(".cache/p2pshim").is_dir());
}

/// A path that hangs is found in processes of their own, and no copy of the program meets it.
#[test]
fn path_that_hangs_never_meets_the_program() {
    let cache = Scratch::new("cache");
    let case = path("target/c-tests/simple_p2p-12").to_string_lossy().into_owned();
    let program = run(&cache, "hang:0>1", &["--sim", "2", &case]);
    let expected = "2 GPUs: peer access hangs on 0>1, and p2pshim does not use it; `p2pshim doctor` shows more";
    for expected in [Some(expected), None] {
        let outcome = program.plain();
        assert_eq!((check(&outcome).as_deref(), outcome.stdout.as_str()), (expected, "can 0 0\n"), "{outcome:#?}");
    }
    fs::remove_dir_all(cache).unwrap();
}

#[test]
fn without_a_place_for_verdicts_one_line_says_why_and_the_program_runs() {
    let others = Scratch::new("others");
    fs::create_dir_all(others.join("p2pshim")).unwrap();
    fs::set_permissions(others.join("p2pshim"), fs::Permissions::from_mode(0o777)).unwrap();
    let others_name = others.to_string_lossy().into_owned();
    let not_made = "/proc/p2pshim cannot be made: No such file or directory (os error 2)".to_owned();
    let not_ours = format!("others can write to {others_name}/p2pshim, or it is another user's");
    let unset = "neither XDG_CACHE_HOME nor HOME is set, so that verdicts cannot be saved".to_owned();
    for (variables, why) in [
        ([("XDG_CACHE_HOME", "/proc"), ("HOME", "/")], not_made),
        ([("XDG_CACHE_HOME", &others_name), ("HOME", "/")], not_ours),
        ([("XDG_CACHE_HOME", ""), ("HOME", "")], unset),
    ] {
        let program = Program::new(command()).args(&["run", "--no-report", "--sim", "2", "echo", "runs"]);
        let outcome = variables.iter().fold(program, |program, (name, value)| program.env(name, *value)).plain();
        outcome.assert_success();
        assert_eq!(outcome.stdout, "runs\n");
        assert_eq!(
            outcome.shim,
            [format!("p2pshim: GPUs are not checked: {why}; pairs are verified at their first use")]
        );
    }
}

#[test]
fn check_is_not_made_where_nothing_goes_by_it() {
    let cache = Scratch::new("cache");
    for arguments in [
        &["--no-check"][..],
        &["--access", "off"],
        &["--verify", "off"],
        &["--access", "app", "--broken", "warn"],
        &["--sim", "1"],
        &["--sim", "0"],
    ] {
        let outcome =
            run(&cache, "", &[&["--sim", "2"][..], arguments, &["true"]].concat()[..]).env("NCCL_P2P_DISABLE", "0");
        // The last of two numbers counts.
        let outcome = if arguments[0] == "--sim" { run(&cache, "", &[arguments, &["true"]].concat()) } else { outcome };
        let outcome = outcome.plain();
        assert!(outcome.shim.is_empty() && !cache.exists(), "{arguments:?}: {outcome:#?}");
    }
    let quiet = run(&cache, "", &["--quiet", "--sim", "2", "true"]).plain();
    assert!(quiet.shim.is_empty() && cache.exists(), "{quiet:#?}");
}

/// On a machine with a past: what is known is not looked at again, and what could not be found out is, at the next start.
#[test]
fn check_that_fails_is_made_again() {
    let (cache, machine) = (Scratch::new("cache"), Scratch::new("machine"));
    virtual_machine(&machine);
    for number in 1..=2 {
        let gpu = machine.join(format!("proc/driver/nvidia/gpus/{number}"));
        fs::create_dir_all(&gpu).unwrap();
        fs::write(gpu.join("information"), format!("GPU UUID: GPU-{number}\n")).unwrap();
    }
    let start = |fault: &str| {
        let program = run(&cache, fault, &["true"]).libraries("target/sim/lib");
        let outcome = program.env("P2PSIM_ROOT", machine.to_string_lossy()).plain();
        outcome.assert_success();
        outcome.shim.join("\n")
    };
    let broken = "code:cuInit:999@1";
    assert!(start(broken).contains("GPUs are not checked: cuInit returned"));
    assert!(start("code:cuMemAlloc_v2:2@1").contains("2 GPUs: undecided on 0>1 1>0: cuMemAlloc_v2 returned"));
    assert!(start("").contains("checked 2 GPUs: copies right; "));
    assert_eq!(start(broken), "", "the GPUs are not asked again");
    fs::remove_dir_all(cache).unwrap();
}

/// `p2pshim run --verify full`, as on real GPUs, with verdicts in this folder.
fn fully(cache: &Path, fault: &str) -> Outcome {
    let case = path("target/c-tests/never_enables-12").to_string_lossy().into_owned();
    let run = run(cache, fault, &["--verify", "full", &case]).libraries("target/sim/lib");
    run.env("P2PSIM_ROOT", "/nonexistent").env("NCCL_P2P_DISABLE", "1").plain()
}

#[test]
fn probe_full_makes_missing_verdicts_which_the_program_goes_by() {
    let cache = Scratch::new("cache");
    for (fault, expected, lines) in [
        (
            "lost:0>1",
            "2 GPUs: peer access loses data on 0>1, and p2pshim does not use it; `p2pshim doctor` shows more",
            1,
        ),
        ("", "2 GPUs: right", 0),
    ] {
        let outcome = fully(&cache, fault);
        outcome.assert_success();
        assert_eq!(
            (check(&outcome).as_deref(), outcome.shim.len()),
            (Some(expected), lines + 1),
            "{:#?}",
            outcome.shim
        );
        assert!(fault.is_empty() || outcome.shim[1].contains("an earlier check failed: memory with granted access: "));
        // A known pair is not verified again, whatever is wrong by now.
        let again = fully(&cache, "");
        assert_eq!(again.shim.len(), lines, "{:#?}", again.shim);
        fs::remove_dir_all(&cache).unwrap();
    }
    let untested = fully(&cache, "code:cuModuleLoadData:221@1");
    untested.assert_success();
    let said = untested.shim.join("\n");
    assert!(said.contains("undecided on 0>1 1>0: kernel loads: cuModuleLoadData returned"), "{said}");
    assert!(said.contains("there is no verdict on these GPUs"), "{said}");
    fs::remove_dir_all(cache).unwrap();
}

/// Each of these once stood beside its opposite. [`Program::run`] looks for such statements.
#[test]
fn check_and_report_of_one_run_do_not_contradict_each_other() {
    let said = |(fault_before, fault): (&str, &str), variable: (&str, &str), arguments: &[&str], program: &str| {
        let cache = Scratch::new("cache");
        let here = |program: Program| {
            program.env("P2PSIM_ROOT", "/nonexistent").env("XDG_CACHE_HOME", cache.to_string_lossy()).findings_apart()
        };
        if !fault_before.is_empty() {
            here(doctor().args(&["--sim", "2"])).env("P2PSIM_FAULT", fault_before).plain();
        }
        let program = path(&format!("target/c-tests/{program}")).to_string_lossy().into_owned();
        let run = here(Program::new(command()).arg("run").args(arguments).arg(program));
        let outcome = run.env("P2PSIM_FAULT", fault).env(variable.0, variable.1).plain();
        fs::remove_dir_all(cache).unwrap();
        outcome.lines.join("\n")
    };
    let none = ("CUDA_VISIBLE_DEVICES", "0,1,2");
    let earlier = said(("lost:0>1", ""), none, &["--sim", "2"], "never_enables-12");
    assert!(earlier.contains(": copies right, but an earlier check found that peer access from "), "{earlier}");
    assert!(earlier.contains(": an earlier check failed: "), "{earlier}");
    let other = said(("", "drop:1-2"), none, &["--sim", "3", "--access", "app"], "guide_sample-12");
    assert!(other.contains("checked 3 GPUs: peer access loses data on 1>2 2>1"), "{other}");
    assert!(other.contains("GPU 0 and GPU 1 were right in the check before the program started."), "{other}");
    let no_path = said(("", ""), ("P2PSIM_NO_P2P", "0-1"), &["--sim", "2"], "never_enables-12");
    assert!(no_path.contains("2 GPUs: no pair has a path"), "{no_path}");
}
