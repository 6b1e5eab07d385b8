//! Tests that numba-cuda has of its own, unchanged, on simulated GPUs: a client that nobody here has written.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::support::soak::soak;
use crate::support::{Outcome, Program, Scratch, command, path, say};

/// Modules with memory, streams, events, contexts, several devices and IPC.
const MODULES: [&str; 13] = [
    "cudadrv.test_cuda_memory",
    "cudadrv.test_context_stack",
    "cudadrv.test_events",
    "cudadrv.test_streams",
    "cudadrv.test_host_alloc",
    "cudadrv.test_pinned",
    "cudadrv.test_emm_plugins",
    "cudadrv.test_select_device",
    "cudadrv.test_reset_device",
    "cudadrv.test_deallocations",
    "cudapy.test_multigpu",
    "cudapy.test_stream_api",
    "cudapy.test_ipc.TestIpcMemory.test_ipc_handle",
];
/// More of them, which take ten times as long.
const LONG: [&str; 3] = ["cudadrv.test_cuda_ndarray", "cudadrv.test_array_attr", "cudapy.test_ipc"];

/// The tests among them that launch a kernel, which needs libNVVM, or use managed memory, which simulated GPUs have not.
const OUT_OF_REACH: [&str; 10] = [
    "TestCudaMemory.test_managed_memory",
    "Test3rdPartyContext.test_cudajit_in_attached_primary_context",
    "TestDel.test_managed_memory",
    "TestMultiGPUContext.test_multigpu_context",
    "TestMultiGPUContext.test_with_context",
    "TestCoreContiguous.test_device_array_like_2d_f_transpose",
    "TestCoreContiguous.test_device_array_like_2d_transpose",
    "TestCudaNDArray.test_devicearray_transpose_T",
    "TestCudaNDArray.test_devicearray_transpose_ok",
    "TestRecarray.test_recarray",
];

/// How each test ended, by its class and name. Lines of parts of a test are left out.
fn ends(outcome: &Outcome) -> BTreeMap<String, String> {
    let end = |line: &str| {
        let (_, named) = line.split_once(" (numba.cuda.tests.")?;
        let (name, end) = named.split_once(") ... ")?;
        let (rest, test) = name.rsplit_once('.')?;
        Some((format!("{}.{test}", rest.rsplit_once('.')?.1), end.split(' ').next()?.to_owned()))
    };
    outcome.stderr.lines().filter(|line| !line.starts_with(' ')).filter_map(end).collect()
}

#[test]
fn tests_of_numba_end_as_on_gpus_plain_preloaded_and_run() {
    let fetched = Command::new(path("c-tests/fetch-wheels")).arg("numba").output().unwrap();
    if !fetched.status.success() {
        let version = Command::new("python3").arg("--version").output().unwrap();
        let version = String::from_utf8(version.stdout).unwrap();
        let minor: u32 = version.trim().split('.').nth(1).unwrap().parse().unwrap();
        assert!(!(10..=13).contains(&minor), "{}", String::from_utf8_lossy(&fetched.stderr));
        return say(&format!("skipped: c-tests/numba.txt has no packages for {}", version.trim()));
    }
    // One of the packages is found by a `.pth` file.
    let folder = Scratch::folder("numba");
    let packages = path("target/numba");
    fs::write(folder.join("sitecustomize.py"), format!("import site\nsite.addsitedir({packages:?})\n")).unwrap();
    let modules = MODULES.iter().chain(LONG.iter().filter(|_| soak().is_some()));
    let modules: Vec<String> = modules.map(|module| format!("numba.cuda.tests.{module}")).collect();
    let within = |program: Program| {
        let program = modules.iter().fold(program, |program, module| program.arg(module));
        program.env("PYTHONPATH", folder.to_string_lossy()).env("P2PSIM_DEVICES", "2").findings_apart()
    };
    const TESTS: [&str; 4] = ["python3", "-m", "unittest", "-v"];
    let python = within(Program::new("python3").args(&TESTS[1..])).libraries("target/sim/lib");
    let run = within(Program::new(command()).args(&["run", "--sim", "2", "--no-check", "--no-report"]).args(&TESTS));
    let plain = python.plain();
    let expected = ends(&plain);
    assert!(expected.len() > 60, "{}", plain.stderr);
    for (test, end) in &expected {
        let is_out_of_reach = OUT_OF_REACH.contains(&test.as_str());
        let right: &[&str] = if is_out_of_reach { &["ERROR"] } else { &["ok", "skipped"] };
        assert!(right.contains(&end.as_str()), "{test}: {end}\n{}", plain.stderr);
    }
    assert_eq!(ends(&python.preloaded()), expected);
    assert_eq!(ends(&run.plain()), expected);
}
