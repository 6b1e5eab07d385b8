//! The shim beside libraries that hook the same functions: those that wrap `dlsym` and the driver, and those that patch code.
//! The program must do what it does beside them without the shim, and they must see every call that they see without it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Outcome, Program, Scratch, path, scratch, shim};

const WRAPPERS: [&str; 2] = ["libwraps_driver.so", "libwraps_driver_symbolic.so"];

fn library(name: &str) -> PathBuf {
    path(&format!("target/c-tests/{name}"))
}

/// Programs that reach the driver by each route: `dlsym`, `cuGetProcAddress`, linking.
fn programs() -> Vec<Program> {
    let looks_up = Program::case("looks_up_driver");
    vec![
        looks_up.clone(),
        looks_up.arg("all"),
        Program::case("guide_sample-12").findings_apart(),
        Program::case("guide_sample-static").findings_apart(),
        Program::case("never_enables-static").findings_apart(),
    ]
}

fn assert_same_and_quiet(with: &Outcome, without: &Outcome, how: &str) {
    with.assert_same_as(without, how);
    assert_eq!(with.shim, Vec::<String>::new(), "{how}");
}

/// Both orders of the shim and another library.
fn orders(other: &Path) -> [[PathBuf; 2]; 2] {
    [[shim(), other.to_owned()], [other.to_owned(), shim()]]
}

#[test]
fn wrapper_of_the_driver_preloaded_in_either_order_same_output_and_sees_the_same_calls() {
    for wrapper in WRAPPERS {
        for program in programs() {
            // The wrapper's line on standard error says what it saw.
            let alone = program.run(&[&library(wrapper)]);
            alone.assert_success();
            assert!(alone.stderr.contains("wrapper: "), "{alone:#?}");
            for order in orders(&library(wrapper)) {
                let [first, second] = order.each_ref().map(PathBuf::as_path);
                let how = format!("{}, {} before {}", alone.run, first.display(), second.display());
                assert_same_and_quiet(&program.run(&[first, second]), &alone, &how);
                let off = program.clone().env("P2PSHIM", "off").run(&[first, second]);
                assert_same_and_quiet(&off, &alone, &format!("{how}, off"));
                let (traced, trace) = program.traced_with(&[first, second]);
                assert_same_and_quiet(&traced, &alone, &format!("{how}, traced"));
                assert!(!trace.calls.is_empty(), "{how}: no call was seen");
            }
        }
    }
}

/// HAMi-core's `dlsym` looks for names of CUDA in the whole process first, where it meets the shim's.
#[test]
fn wrapper_with_a_table_of_its_own_alone_and_with_another_in_any_order_same_output() {
    let (table, wrapper) = (library("libshares_gpu.so"), library(WRAPPERS[0]));
    let opened = Program::case("dlopen_local").arg("libcudart.so.12").findings_apart();
    let programs = programs().into_iter().chain([opened]);
    for program in programs {
        for others in [vec![&table], vec![&wrapper, &table]] {
            let others: Vec<&Path> = others.into_iter().map(PathBuf::as_path).collect();
            let alone = program.run(&others);
            alone.assert_success();
            for place in 0..=others.len() {
                let (before, behind) = others.split_at(place);
                let shim = shim();
                let preload = [before, &[&*shim], behind].concat();
                let how = format!("{}, {preload:?}", alone.run);
                let (traced, trace) = program.traced_with(&preload);
                assert_same_and_quiet(&traced, &alone, &how);
                assert!(before.contains(&&*table) || !trace.calls.is_empty(), "{how}: no call was seen");
            }
        }
    }
}

#[test]
fn library_that_rewrites_tables_in_either_order_same_output_and_sees_the_same_calls() {
    let rewriter = library("librewrites_got.so");
    for case in ["guide_sample-12", "driver_api", "multithreaded-12"] {
        // Without LD_BIND_NOW an entry holds what binds it, which writes it again.
        for (variable, value) in [("LD_BIND_NOW", "1"), ("REWRITES", "next")] {
            let program = Program::case(case).findings_apart().env(variable, value);
            let alone = program.run(&[&rewriter]);
            alone.assert_success();
            assert!(alone.stderr.contains("rewrites: ") && !alone.stderr.contains("rewrites: 0 "), "{alone:#?}");
            for order in orders(&rewriter) {
                let [first, second] = order.each_ref().map(PathBuf::as_path);
                let how = format!("{case}, {variable}, {} before {}", first.display(), second.display());
                let (traced, trace) = program.traced_with(&[first, second]);
                assert_same_and_quiet(&traced, &alone, &how);
                assert!(!trace.calls.is_empty(), "{how}: no call was seen");
            }
        }
    }
}

/// The program of driver look-ups, linked with these libraries in this order.
fn linked(libraries: &[&Path]) -> Program {
    let built = scratch("looks_up_driver");
    let mut gcc = Command::new("gcc");
    gcc.current_dir(env!("CARGO_MANIFEST_DIR")).args(["-D_GNU_SOURCE", "-Ic-tests"]);
    gcc.args(["-isystem", "target/nvidia/cu12/include", "c-tests/cases/looks_up_driver.c", "-Wl,--no-as-needed"])
        .args(libraries)
        .args(["-ldl", "-o"])
        .arg(&built);
    let done = gcc.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Program::new(built).libraries("target/sim/lib").libraries("target/c-tests").libraries("target/built")
}

#[test]
fn wrapper_of_the_driver_linked_in_either_order_same_output_and_sees_the_same_calls() {
    for wrapper in WRAPPERS {
        let alone = linked(&[&library(wrapper)]).plain();
        alone.assert_success();
        for order in orders(&library(wrapper)) {
            let [first, second] = order.each_ref().map(PathBuf::as_path);
            let how = format!("linked with {}, then {}", first.display(), second.display());
            assert_same_and_quiet(&linked(&[first, second]).plain(), &alone, &how);
        }
    }
}

/// Runs the program where /etc/ld.so.preload names these libraries: /etc is a folder of the test's own, seen by nobody else.
fn in_ld_so_preload(program: &Path, libraries: &[&Path]) -> Outcome {
    let etc = Scratch::folder("etc");
    fs::copy("/etc/ld.so.cache", etc.join("ld.so.cache")).unwrap();
    let script = format!(
        "mount --bind {0} /etc && mv /etc/preload /etc/ld.so.preload && exec {1}",
        etc.display(),
        program.display()
    );
    let names: Vec<_> = libraries.iter().map(|library| library.display().to_string()).collect();
    fs::write(etc.join("preload"), names.join("\n")).unwrap();
    Program::new("unshare").args(&["-rm", "sh", "-c", &script]).libraries("target/sim/lib").plain()
}

#[test]
fn wrapper_of_the_driver_in_ld_so_preload_in_either_order_same_output_and_sees_the_same_calls() {
    let program = library("looks_up_driver");
    let may_not = Program::new("unshare").args(&["-rm", "mount", "--bind", "/etc", "/etc"]).plain();
    if may_not.status != "exit status: 0" {
        return crate::support::say(&format!(
            "skipped: /etc/ld.so.preload: no namespace of its own: {}",
            may_not.stderr
        ));
    }
    for wrapper in WRAPPERS {
        let alone = in_ld_so_preload(&program, &[&library(wrapper)]);
        alone.assert_success();
        assert!(alone.stderr.contains("wrapper: 30 copies"), "{alone:#?}");
        for order in orders(&library(wrapper)) {
            let [first, second] = order.each_ref().map(PathBuf::as_path);
            let how = format!("{} before {} in /etc/ld.so.preload", first.display(), second.display());
            assert_same_and_quiet(&in_ld_so_preload(&program, &[first, second]), &alone, &how);
        }
    }
}

/// UCX in a program, with the log of its own that names what it could not patch.
fn ucx(mode: &str, order: &str) -> Program {
    let ucx = path("target/ucx");
    Program::case("ucx_events")
        .libraries("target/ucx/libucx/lib")
        .libraries("target/ucx/libucx_cu13.libs")
        .args(&[ucx.to_str().unwrap(), order])
        .args(if mode == "bistro" { &["runtime"] } else { &[] })
        .env("UCX_MODULE_DIR", ucx.join("libucx/lib/ucx").to_string_lossy())
        .env("UCX_MEM_CUDA_HOOK_MODE", mode)
        .env("UCX_LOG_LEVEL", "diag")
        .env("UCX_MEM_LOG_LEVEL", "diag")
        .env("UCX_TLS", "cuda_copy,cuda_ipc,tcp,self,sm")
        .findings_apart()
}

/// The program's lines, without UCX's log, whose lines have times.
fn heard(outcome: &Outcome) -> Vec<&str> {
    outcome.stdout.lines().filter(|line| !line.starts_with('[')).collect()
}

#[test]
fn ucx_installs_its_hooks_and_hears_of_the_same_memory() {
    for mode in ["bistro", "reloc", "bistro,reloc"] {
        for order in ["before", "after"] {
            let how = format!("{mode}, UCX comes {order} CUDA");
            let plain = ucx(mode, order).plain();
            plain.assert_success();
            assert!(
                plain.stdout.contains("linked: heard of 1 allocations, this one 1, and 1 frees"),
                "{how}: {plain:#?}"
            );
            for off in [false, true] {
                let program = if off { ucx(mode, order).env("P2PSHIM", "off") } else { ucx(mode, order) };
                let with = program.preloaded();
                assert_eq!((heard(&with), &with.status), (heard(&plain), &plain.status), "{how}: {with:#?}");
                let failures = ["failed to install", "failed to patch", "could not create", "failed to set UCM"];
                for outcome in [&plain, &with] {
                    let said = |line: &&String| failures.iter().any(|failure| line.contains(failure));
                    let log = format!("{}\n{}", outcome.stdout, outcome.stderr);
                    let lines: Vec<_> = log.lines().map(str::to_owned).collect();
                    assert_eq!(lines.iter().filter(said).collect::<Vec<_>>(), Vec::<&String>::new(), "{how}");
                }
            }
        }
    }
}

#[test]
fn tools_that_patch_code_see_the_same_calls_over_under_and_before_the_shim() {
    let tools = path("target/patchers");
    for tool in ["frida", "hookie"] {
        for order in ["over", "under", "before"] {
            let program = Program::new("python3")
                .args(&[path("c-tests/cases/patched.py").to_str().unwrap(), tool, order])
                .env("PYTHONPATH", tools.to_string_lossy())
                .libraries("target/sim/lib");
            let plain = program.plain();
            if tool == "frida" && plain.status != "exit status: 0" && plain.stderr.contains("ermi") {
                crate::support::say(&format!("skipped: {tool} may not attach to a process here: {}", plain.stderr));
                continue;
            }
            plain.assert_success();
            let lines: Vec<_> = plain.stdout.lines().collect();
            assert_eq!(lines.len(), 4, "{tool}: {plain:#?}");
            assert!(lines.iter().all(|line| line.ends_with("seen 3 of 3, 3 of 3")), "{tool}: {plain:#?}");
            assert_same_and_quiet(&program.preloaded(), &plain, &format!("{tool}, {order}"));
        }
    }
}

#[test]
fn first_instructions_of_a_call_lead_back_to_its_caller() {
    let plain = Program::case("unwinds").plain();
    assert_eq!(plain.stdout, "instructions of the shim: none; no way back from 0\n", "{plain:#?}");
    let with = Program::case("unwinds").findings_apart().preloaded();
    assert_eq!(with.stdout, "instructions of the shim: some; no way back from 0\n", "{with:#?}");
}

#[test]
fn batch_of_eight_arguments_no_ninth_is_looked_for() {
    let program = Program::case("eight_arguments").findings_apart();
    let plain = program.plain();
    plain.assert_success();
    program.preloaded().assert_same_as(&plain, "preloaded");
    program.clone().env("P2PSHIM", "off").preloaded().assert_same_as(&plain, "off");
    let (traced, trace) = program.traced();
    traced.assert_same_as(&plain, "traced");
    assert!(trace.names_at(0).contains(&"cudaMemcpyBatchAsync"), "{trace:#?}");
}

/// glibc keeps 1,664 bytes of static thread storage for all libraries that are opened later.
#[test]
fn opened_library_leaves_static_thread_storage_for_others() {
    let other = library("libstatic_tls.so");
    for first in [None, Some(shim())] {
        let program = Program::case("thread_storage");
        let program = first.iter().fold(program, |program, shim| program.arg(shim.to_str().unwrap()));
        let outcome = program.arg(other.to_str().unwrap()).plain();
        assert_eq!(outcome.stdout, "all opened\n", "{outcome:#?}");
    }
}
