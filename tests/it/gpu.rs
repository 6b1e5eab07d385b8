//! A Rust program that copies between GPUs through cudarc, under the shim: on simulated GPUs, and on this machine's if
//! there are two. cudarc finds the driver's functions by `dlsym` on a handle of its own.
//!
//! And why `p2pshim doctor` does not use cudarc: docs/dev/decisions/cudarc.md.

use std::fs;
use std::process::Command;
use std::ptr;
use std::sync::Arc;

use crate::support::{Outcome, Program, Scratch, doctor, path, say};
use cudarc::driver::sys::{self, CUDA_MEMCPY3D_PEER, CUmemorytype, CUresult};
use cudarc::driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut};

/// The variable that makes this binary the program: the name of a part of it.
const PART: &str = "GPU_TEST_PART";

/// A part of the program, in a process of its own.
fn program(part: &str) -> Program {
    let this = std::env::current_exe().unwrap();
    // Its name is another after each change, so that its findings cannot be kept.
    Program::new(this).arg("gpu::the_program_itself").arg("--exact").arg("--nocapture").env(PART, part).findings_apart()
}

fn simulated(part: &str) -> Program {
    program(part).libraries("target/sim/lib")
}

/// The program that the other tests run; nothing when cargo runs it.
#[test]
fn the_program_itself() {
    match std::env::var(PART).as_deref() {
        Err(_) => return,
        Ok("start") => println!("{} devices", CudaContext::device_count().unwrap()),
        Ok("copies") => copy_all_forms(),
        Ok("counts") => {
            copy_all_forms();
            print_counts();
        }
        Ok(part) => panic!("no part {part}"),
    }
    // Before the harness says how long it took, which differs.
    std::process::exit(0);
}

const SIZES: [usize; 3] = [64, 4 << 10, (4 << 20) + 64];
/// How often: the first copies are staged while the pair is verified.
const ROUNDS: u8 = 4;

fn copy_all_forms() {
    let streams = [0, 1].map(|ordinal| CudaContext::new(ordinal).unwrap().new_stream().unwrap());
    for round in 0..ROUNDS {
        for size in SIZES {
            for pair in [[0, 1], [1, 0]] {
                copy(&streams, pair, size, round);
            }
        }
    }
    // Both from one context to the other: the second is refused, and its code comes through.
    for _ in 0..2 {
        streams[0].context().bind_to_thread().unwrap();
        // SAFETY: the context is alive.
        println!("enable: {:?}", unsafe { sys::cuCtxEnablePeerAccess(streams[1].context().cu_ctx(), 0) });
    }
    copy(&streams, [0, 1], SIZES[2], ROUNDS);
}

/// Copies once in each form, and says whether all bytes arrived.
fn copy(streams: &[Arc<CudaStream>; 2], [from, to]: [usize; 2], size: usize, round: u8) {
    let sent: Vec<u8> = (0..size).map(|at| (at as u8).wrapping_mul(7).wrapping_add(round) | 1).collect();
    let source = streams[from].clone_htod(&sent).unwrap();
    streams[from].synchronize().unwrap();
    for form in ["stream", "synchronous", "3D"] {
        let mut destination = streams[to].alloc_zeros::<u8>(size).unwrap();
        streams[to].synchronize().unwrap();
        if form == "stream" {
            streams[to].memcpy_dtod(&source, &mut destination).unwrap();
        } else {
            let (at, _used) = source.device_ptr(&streams[from]);
            let (into, _written) = destination.device_ptr_mut(&streams[to]);
            assert_eq!(copy_raw(form, streams, (from, at), (to, into), size), CUresult::CUDA_SUCCESS);
        }
        let found = streams[to].clone_dtoh(&destination).unwrap();
        streams[to].synchronize().unwrap();
        println!("{from}>{to} {size} {form}: {}", if found == sent { "right" } else { "WRONG" });
    }
}

/// The forms that cudarc has no safe function for.
fn copy_raw(
    form: &str,
    streams: &[Arc<CudaStream>; 2],
    (from, at): (usize, u64),
    (to, into): (usize, u64),
    size: usize,
) -> CUresult {
    let context = |device: usize| streams[device].context().cu_ctx();
    streams[to].context().bind_to_thread().unwrap();
    if form == "synchronous" {
        // SAFETY: both allocations have that size, and outlive the copy.
        let code = unsafe { sys::cuMemcpyPeer(into, context(to), at, context(from), size) };
        // It may return before it is done, and streams of these kinds do not wait for it.
        streams.iter().for_each(|stream| stream.context().synchronize().unwrap());
        return code;
    }
    let (width, height, depth) = (16, size / 32, 2);
    let request = CUDA_MEMCPY3D_PEER {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcHost: ptr::null(),
        srcDevice: at,
        srcArray: ptr::null_mut(),
        srcContext: context(from),
        srcPitch: width,
        srcHeight: height,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstHost: ptr::null_mut(),
        dstDevice: into,
        dstArray: ptr::null_mut(),
        dstContext: context(to),
        dstPitch: width,
        dstHeight: height,
        WidthInBytes: width,
        Height: height,
        Depth: depth,
    };
    // SAFETY: both allocations have width * height * depth bytes, and outlive the copy.
    unsafe { sys::cuMemcpy3DPeerAsync(&request, streams[to].cu_stream()) }
}

/// How the copies of the simulated driver went.
fn print_counts() {
    type Counts = unsafe extern "C" fn(i32, i32, *mut u64, *mut u64) -> i32;
    // SAFETY: the type is that of sim/README.md.
    let counts = unsafe { sys::culib().get::<Counts>(b"p2psim_copies") }.unwrap();
    for [from, to] in [[0, 1], [1, 0]] {
        let (mut direct, mut staged) = (0, 0);
        // SAFETY: the pointers are to locals.
        unsafe { counts(from, to, &mut direct, &mut staged) };
        println!("{from}>{to}: {direct} direct, {staged} staged");
    }
}

/// The program plain and under the shim: the same, right both times, and seen.
fn assert_same_and_right(program: &Program) {
    let (plain, trace) = program.assert_same_preloaded();
    plain.assert_success();
    let copies = usize::from(ROUNDS) * SIZES.len() * 2 + 1;
    let right = plain.stdout.lines().filter(|line| line.ends_with(": right")).count();
    assert_eq!(right, copies * 3, "{}", plain.stdout);
    let enabled = "enable: CUDA_SUCCESS\nenable: CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED\n";
    assert!(plain.stdout.contains(enabled), "{}", plain.stdout);
    for (name, calls) in [
        ("cuMemcpyPeerAsync", copies),
        ("cuMemcpyPeer", copies),
        ("cuMemcpy3DPeerAsync", copies),
        ("cuCtxEnablePeerAccess", 2),
    ] {
        assert_eq!(trace.of(name).len(), calls, "{name}");
    }
    let (traced, _) = program.traced();
    let rules: Vec<_> = traced.findings.iter().map(|found| found.rule.as_str()).collect();
    assert_eq!(rules, ["P2P-enable-twice"]);
}

#[test]
fn copies_by_cudarc_on_simulated_gpus_are_right_and_seen() {
    assert_same_and_right(&simulated("copies"));
}

#[test]
fn copies_by_cudarc_on_real_gpus_are_right_and_seen() {
    let devices = program("start").plain();
    let count = devices.stdout.lines().find_map(|line| line.strip_suffix(" devices")?.parse().ok()).unwrap_or(0);
    if count < 2 {
        say(&format!("skipped: copies by cudarc on real GPUs: they need two, and this machine shows {count}"));
        return;
    }
    assert_same_and_right(&program("copies"));
}

#[test]
fn copies_by_cudarc_that_never_enables_go_directly_under_the_shim() {
    let counts = |outcome: Outcome| {
        outcome.assert_success();
        let lines = outcome.stdout.lines().filter(|line| line.ends_with(" staged"));
        lines.map(|line| line.split(' ').nth(1).unwrap().parse().unwrap()).collect::<Vec<u32>>()
    };
    // cudarc allocates from memory pools, which enabling peer access does not open.
    assert_eq!(counts(simulated("counts").plain()), [0, 0]);
    let direct = counts(simulated("counts").preloaded());
    assert!(direct.iter().all(|&copies| copies > 20), "{direct:?}");
}

#[test]
fn copies_by_cudarc_on_a_path_that_loses_data_stay_right() {
    let outcome = simulated("copies").env("P2PSIM_FAULT", "drop:0>1").preloaded();
    outcome.assert_success();
    assert!(outcome.stdout.contains(": right") && !outcome.stdout.contains("WRONG"), "{}", outcome.stdout);
}

/// A folder with `libcuda.so.1` and `libcuda.so` of that source; of nothing, files that are no libraries.
fn drivers(names: &[&str], source: &str) -> Scratch {
    let folder = Scratch::folder("driver");
    for name in names {
        fs::write(folder.join(name), "").unwrap();
        if !source.is_empty() {
            fs::write(folder.join("driver.c"), source).unwrap();
            let mut gcc = Command::new("gcc");
            gcc.args(["-shared", "-fPIC", "-o"]).arg(folder.join(name)).arg(folder.join("driver.c"));
            assert!(gcc.status().unwrap().success());
        }
    }
    folder
}

#[test]
fn driver_that_is_none_or_old_doctor_says_so_and_cudarc_panics() {
    for (source, doctor_says, cudarc_says) in [
        ("", "Is NVIDIA's driver installed?", "Unable to dynamically load"),
        (
            "int cuDriverGetVersion(int *version) { *version = 5050; return 0; }",
            "is too old; 9.2",
            "Missing symbol cuInit",
        ),
    ] {
        let folder = drivers(&["libcuda.so.1", "libcuda.so"], source);
        let on = |program: Program| program.env("LD_LIBRARY_PATH", folder.to_string_lossy()).plain();
        let doctor = on(doctor());
        assert_eq!(doctor.status, "exit status: 3");
        assert!(doctor.shim[0].contains(doctor_says), "{:?}", doctor.shim);
        let cudarc = on(program("start"));
        assert_eq!(cudarc.status, "exit status: 101", "{RECONSIDER}");
        assert!(cudarc.stderr.contains(cudarc_says), "{}", cudarc.stderr);
    }
}

#[test]
fn stub_of_the_toolkit_in_the_library_path_is_no_driver_for_the_doctor_and_one_for_cudarc() {
    // CUDA_ERROR_STUB_LIBRARY.
    let folder =
        drivers(&["libcuda.so"], "int cuInit(unsigned flags) { return 34; }\nint cuGetErrorString() { return 1; }");
    let path = format!("{}:{}", folder.display(), path("target/sim/lib").display());
    let doctor = doctor().env("XDG_CACHE_HOME", folder.to_string_lossy());
    doctor.env("LD_LIBRARY_PATH", &path).plain().assert_success();
    let cudarc = program("start").env("LD_LIBRARY_PATH", &path).plain();
    assert!(cudarc.stderr.contains("CUDA_ERROR_STUB_LIBRARY"), "{RECONSIDER} {}", cudarc.stderr);
}

#[test]
fn code_that_nobody_knows_doctor_says_its_number_and_cudarc_has_no_value_for_it() {
    for code in [1000, 4242] {
        let doctor = doctor().arg("0>1").libraries("target/sim/lib");
        let doctor = doctor.env("P2PSIM_FAULT", format!("code:cuInit:{code}@1")).plain();
        assert_eq!(doctor.status, "exit status: 3");
        let said = format!("nothing was tested: cuInit returned an error without a name ({code})");
        assert!(doctor.shim[0].contains(&said), "{:?}", doctor.shim);
    }
    // Some bits are left for `None`, so not every number is a value.
    assert_eq!(size_of::<Option<CUresult>>(), size_of::<CUresult>(), "{RECONSIDER}");
}

/// Said when a new cudarc does better.
const RECONSIDER: &str = "cudarc has changed: read docs/dev/decisions/cudarc.md again.";
