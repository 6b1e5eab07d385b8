//! The programs of c-tests on simulated GPUs: the same output and status plain and preloaded, and their calls in the trace.

use crate::support::soak::flavours;
use crate::support::{Outcome, Program, Trace, below, path, shim};

const COPIES: [&str; 4] = ["cudaMemcpyPeer", "cudaMemcpyPeerAsync", "cudaMemcpy3DPeer", "cudaMemcpy3DPeerAsync"];
const GUIDE: [&str; 8] = [
    "cudaDeviceCanAccessPeer",
    "cudaDeviceEnablePeerAccess",
    "cudaDeviceCanAccessPeer",
    "cudaDeviceEnablePeerAccess",
    "cudaMemcpyPeer",
    "cudaMemcpyPeerAsync",
    "cudaMemcpy3DPeer",
    "cudaMemcpy3DPeerAsync",
];

/// Same output; and of the runtime's functions `apis`, the trace has each as the program's own call with the driver's inside
/// it, or, if the runtime is static and cannot be interposed, the driver's as the outermost.
fn same_output_and_seen(program: &Program, flavour: &str, apis: &[&str]) -> (Outcome, Trace) {
    let (plain, trace) = program.assert_same_preloaded();
    assert_eq!(trace.warnings, Vec::<String>::new());
    for api in apis {
        let driver = below(api);
        if flavour == "static" {
            assert!(trace.names_at(0).contains(&driver.as_str()), "no {driver}: {:#?}", trace.calls);
            assert!(trace.of(api).is_empty(), "{api} of a static runtime was seen");
        } else {
            assert!(trace.names_at(0).contains(api), "no {api}: {:#?}", trace.calls);
            assert!(trace.names_at(1).contains(&driver.as_str()), "no {driver} inside: {:#?}", trace.calls);
            assert!(!trace.names_at(0).contains(&driver.as_str()), "{driver} outside of the runtime's call");
        }
    }
    (plain, trace)
}

/// A program that is built with each runtime, and needs no more than that its output is the same and its calls are seen.
macro_rules! in_every_flavour {
    ($($case:ident: $apis:expr;)*) => { $(
        mod $case {
            use super::*;
            #[test]
            fn same_output_preloaded() {
                for flavour in flavours(stringify!($case)) {
                    let program = Program::case(&format!("{}-{flavour}", stringify!($case)));
                    let (plain, _) = same_output_and_seen(&program, flavour, &$apis);
                    plain.assert_success();
                    assert!(!plain.stdout.contains("WRONG"), "{}", plain.stdout);
                }
            }
        }
    )* };
}

in_every_flavour! {
    guide_sample: GUIDE;
    four_copies_sizes: COPIES;
    multithreaded: COPIES;
    null_arguments: ["cudaDeviceCanAccessPeer"];
    exit_paths: ["cudaDeviceCanAccessPeer"];
    fork_child: ["cudaMemcpyPeer", "cudaMemcpyPeerAsync"];
}

#[test]
fn guide_sample_trace_has_each_call_once_in_order() {
    let (_, trace) = Program::case("guide_sample-12").traced();
    assert_eq!(trace.names_at(0), GUIDE);
    let (_, trace) = Program::case("guide_sample-static").traced();
    assert_eq!(trace.names_at(0), GUIDE.map(below));
}

#[test]
fn guide_sample_trace_shows_arguments_results_and_devices() {
    let (_, trace) = Program::case("guide_sample-12").traced();
    let copy = &trace.of("cudaMemcpyPeer")[0].text;
    for part in
        ["dst=0x", "dstDevice=1", "src=0x", "srcDevice=0", "count=1048576", ") = cudaSuccess", "guide_sample-12"]
    {
        assert!(copy.contains(part), "no {part}: {copy}");
    }
    let can = &trace.of("cudaDeviceCanAccessPeer")[0].text;
    assert!(can.contains("*canAccessPeer=1"), "{can}");
    let driver = &trace.of("cuMemcpyPeer")[0].text;
    assert!(driver.contains(") = CUDA_SUCCESS"), "{driver}");
}

#[test]
fn multithreaded_trace_has_each_threads_calls() {
    let (_, trace) = Program::case("multithreaded-12").traced();
    for api in COPIES {
        let threads: std::collections::BTreeSet<&str> = trace.of(api).iter().map(|call| call.thread.as_str()).collect();
        assert_eq!(threads.len(), 8, "{api}");
    }
    // 8 threads x 40 rounds, of which the bad copies of threads 3 and 7 come on top.
    assert_eq!(trace.names_at(0).len(), 8 * 40 + 2 * 40);
    assert_eq!(trace.of("cudaMemcpy3DPeerAsync").len(), 8 * 10);
}

#[test]
fn fork_child_trace_shows_the_parent_before_and_after() {
    let (_, trace) = Program::case("fork_child-12").traced();
    let last = trace.calls.last().unwrap();
    let of_parent = trace.of("cudaMemcpyPeer").iter().filter(|call| call.thread == last.thread).count();
    assert_eq!(of_parent, 2, "{:#?}", trace.calls);
}

#[test]
fn switched_off_nothing_is_seen() {
    for case in ["guide_sample-12", "guide_sample-static", "driver_api"] {
        let program = Program::case(case).env("P2PSHIM", "off");
        let plain = program.plain();
        plain.assert_success();
        let (off, trace) = program.traced();
        off.assert_same_as(&plain, "preloaded and switched off");
        assert!(trace.calls.is_empty(), "{case}: {:#?}", trace.calls);
        program.traced_to_stderr().assert_silent();
    }
}

/// The runtime has these two in a form for the per-thread default stream; below them are the driver's.
fn per_thread_stream(flavour: &str) {
    let program = Program::case(&format!("per_thread_stream-{flavour}"));
    let (plain, trace) = program.assert_same_preloaded();
    plain.assert_success();
    let (runtime, driver) =
        (["cudaMemcpy3DPeer_ptds", "cudaMemcpy3DPeerAsync_ptsz"], ["cuMemcpy3DPeer", "cuMemcpy3DPeerAsync"]);
    let depth = usize::from(flavour != "static");
    for name in driver {
        let seen = trace.names_at(depth).into_iter().any(|seen| seen.starts_with(name));
        assert!(seen, "no {name}: {:#?}", trace.calls);
    }
    for name in runtime {
        assert_eq!(trace.names_at(0).contains(&name), depth == 1, "{name}: {:#?}", trace.calls);
    }
}

#[test]
fn per_thread_stream_same_output_preloaded() {
    flavours("per_thread_stream").into_iter().for_each(per_thread_stream);
}

/// The program calls the driver's functions itself, so they are the outermost.
fn entry_point(flavour: &str) {
    let (plain, trace) = Program::case(&format!("entry_point-{flavour}")).assert_same_preloaded();
    plain.assert_success();
    let copies = trace.names_at(0).into_iter().filter(|name| name.starts_with("cuMemcpyPeer")).count();
    let called = plain.stdout.matches("called: 0, destination").count();
    assert!(called >= 4, "{}", plain.stdout);
    assert_eq!(copies, called, "{:#?}", trace.calls);
    assert!(trace.names_at(0).contains(&"cuDeviceCanAccessPeer"), "{:#?}", trace.calls);
}

#[test]
fn entry_point_same_output_preloaded() {
    flavours("entry_point").into_iter().for_each(entry_point);
}

/// The program asks by every route and sees peers by each, before its copies and after them.
#[test]
fn hidden_looks_by_every_route_same_output_preloaded() {
    for flavour in flavours("hidden_looks_by_every_route_same_output_preloaded") {
        let (plain, trace) = Program::case(&format!("hidden-{flavour}")).assert_same_preloaded();
        plain.assert_success();
        assert_eq!(plain.stdout.matches(" is reachable").count(), 4, "{}", plain.stdout);
        let routes = if flavour == "static" { 3 + 1 } else { 3 };
        let asked = trace.names_at(0).into_iter().filter(|name| *name == "cuCtxEnablePeerAccess").count();
        assert_eq!(asked, 4 * routes, "{:#?}", trace.calls);
    }
}

#[test]
fn hidden_without_a_hardware_path_sees_no_peer() {
    let outcome = Program::case("hidden-13").env("P2PSIM_NO_P2P", "0-1").plain();
    outcome.assert_success();
    assert_eq!(outcome.stdout.matches(" is hidden").count(), 4, "{}", outcome.stdout);
}

#[test]
fn driver_api_same_output_preloaded() {
    let (plain, trace) = Program::case("driver_api").assert_same_preloaded();
    plain.assert_success();
    for name in ["cuMemcpyPeer", "cuMemcpyPeerAsync", "cuMemcpy3DPeer", "cuMemcpy3DPeerAsync"] {
        assert!(
            trace.names_at(0).iter().filter(|seen| seen.starts_with(name)).count() > 8,
            "{name}: {:#?}",
            trace.calls
        );
    }
    for name in [
        "cuMemcpyPeer_ptds",
        "cuMemcpyPeerAsync_ptsz",
        "cuMemcpy3DPeer_ptds",
        "cuMemcpy3DPeerAsync_ptsz",
        "cuDeviceCanAccessPeer",
        "cuCtxEnablePeerAccess",
        "cuCtxDisablePeerAccess",
        "cuDeviceGetP2PAttribute",
        "cuDeviceGetP2PAtomicCapabilities",
        "cuMemcpy3DWithAttributesAsync",
        "cuMemcpy3DWithAttributesAsync_ptsz",
    ] {
        assert!(trace.names_at(0).contains(&name), "no {name}: {:#?}", trace.calls);
    }
    for name in ["cuMemcpyWithAttributesAsync", "cuMemcpyWithAttributesAsync_ptsz"] {
        let results: Vec<_> = trace.of(name).iter().map(|call| call.text.contains(" = CUDA_SUCCESS ")).collect();
        assert_eq!(results, [true, false], "not the copy within a device: {:#?}", trace.calls);
    }
    let copies = |outcome: &str| outcome.matches("copy(b, context1, a, context0, COUNT) = CUDA_SUCCESS").count();
    let seen = trace.of("cuMemcpyPeer").len() + trace.of("cuMemcpyPeer_ptds").len();
    // Each set of calls has three of cuMemcpyPeer; one more has no current context.
    assert_eq!(seen, 3 * copies(&plain.stdout) + 1, "{:#?}", trace.calls);
}

#[test]
fn memory_of_another_process_is_shared_and_the_same_preloaded() {
    let program = Program::case("memory_of_another_process");
    let plain = program.plain();
    let sums: Vec<&str> = plain.stdout.lines().filter_map(|line| Some(line.split_once(": ")?.1)).collect();
    let [owned, _, opened, written, found, owned_later, read] = sums[..] else { panic!("{}", plain.stdout) };
    assert_eq!((opened, found, read), (owned, written, owned_later), "{}", plain.stdout);
    assert!(owned != written && written != read, "{}", plain.stdout);
    for said in [
        "opened again it is at the same address: 1\n",
        "cuIpcOpenMemHandle(&there, ticket->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) = CUDA_ERROR_INVALID_CONTEXT\n",
        "ends with 0\n",
    ] {
        assert!(plain.stdout.contains(said), "no {said}: {}", plain.stdout);
    }
    program.preloaded().assert_same_as(&plain, "preloaded");
    let lost = program.env("P2PSIM_FAULT", "ipc:0>1").plain();
    assert!(lost.stdout.contains(&format!("the first process finds: {owned}\n")), "{}", lost.stdout);
}

#[test]
fn memory_that_another_process_maps_is_shared_and_the_same_preloaded() {
    let program = Program::case("memory_of_another_process").arg("mapped");
    let plain = program.plain();
    let sums: Vec<&str> = plain.stdout.lines().filter_map(|line| Some(line.split_once(": ")?.1)).collect();
    let [owned, _, opened, written, found, owned_later, read] = sums[..] else { panic!("{}", plain.stdout) };
    assert_eq!((opened, found, read), (owned, written, owned_later), "{}", plain.stdout);
    assert!(owned != written && written != read && plain.stdout.ends_with("ends with 0\n"), "{}", plain.stdout);
    program.preloaded().assert_same_as(&plain, "preloaded");
    let lost = program.env("P2PSIM_FAULT", "vmm:0>1").plain();
    assert!(lost.stdout.contains(&format!("the first process finds: {owned}\n")), "{}", lost.stdout);
}

#[test]
fn moving_parameters_same_output_preloaded() {
    let (plain, trace) = Program::case("moving_parameters").assert_same_preloaded();
    plain.assert_success();
    let copies = trace.of("cuMemcpy3DPeer");
    assert_eq!(copies.len(), 3 + 40 * 6);
    let direct = copies.iter().filter(|call| call.text.contains(" 0>1 direct at ")).count();
    assert!(direct > 200, "wherever the parameters are: {copies:#?}");
}

fn dlopen_local(runtime: &str) {
    let apis = [&COPIES[..2], &["cudaDeviceCanAccessPeer", "cudaDeviceGetP2PAttribute", "cudaDeviceEnablePeerAccess"]]
        .concat();
    let (plain, trace) = same_output_and_seen(&Program::case("dlopen_local").arg(runtime), "shared", &apis);
    plain.assert_success();
    // Once before and once after the runtime was loaded again.
    for name in COPIES {
        assert_eq!(trace.names_at(0).iter().filter(|seen| **seen == name).count(), 2, "{name}");
    }
}

#[test]
fn dlopen_local_11_same_output_preloaded() {
    dlopen_local("libcudart.so.11.0");
}

#[test]
fn dlopen_local_12_same_output_preloaded() {
    dlopen_local("libcudart.so.12");
}

#[test]
fn dlopen_local_13_same_output_preloaded() {
    dlopen_local("libcudart.so.13");
}

#[test]
fn python_ctypes_same_output_preloaded() {
    let script = path("c-tests/cases/python_ctypes.py");
    for runtime in ["libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13"] {
        let program = Program::new("python3").libraries("target/sim/lib").arg(script.to_str().unwrap()).arg(runtime);
        let (plain, trace) = same_output_and_seen(&program, "shared", &COPIES[..2]);
        plain.assert_success();
        assert_eq!(plain.stdout.matches("right").count(), 2, "{}", plain.stdout);
        assert_eq!(trace.of("cudaMemcpyPeer").len(), 2);
    }
}

#[test]
fn lookup_absent_stays_absent_preloaded() {
    let (plain, trace) = Program::case("lookup_absent").assert_same_preloaded();
    plain.assert_success();
    assert!(trace.calls.is_empty() && trace.warnings.is_empty(), "{trace:#?}");
}

#[test]
fn weak_reference_without_cuda_is_bound_and_answers_an_error() {
    let program = Program::case("weak_reference");
    assert_eq!(program.plain().stdout, "cudaMemcpyPeer: not there\n");
    let preloaded = program.preloaded();
    preloaded.assert_success();
    let code = preloaded.stdout.strip_prefix("cudaMemcpyPeer: there\ncalled: ").unwrap().trim();
    assert_ne!(code, "0");
    assert_eq!(preloaded.shim.len(), 1, "{:#?}", preloaded.shim);
}

#[test]
fn missing_function_answers_an_error_and_warns_once() {
    let program = Program::case("missing_function").libraries("target/c-tests/standin-runtime");
    let plain = program.plain();
    assert_eq!(plain.status, "exit status: 127");
    assert!(plain.stderr.contains("undefined symbol: cudaMemcpy3DPeerAsync"), "{}", plain.stderr);
    let preloaded = program.preloaded();
    preloaded.assert_success();
    assert!(preloaded.stdout.contains("a function that is not there: error"), "{}", preloaded.stdout);
    assert_eq!(preloaded.shim.len(), 1, "{:#?}", preloaded.shim);
    assert!(preloaded.shim[0].contains("cudaMemcpy3DPeerAsync"), "{:#?}", preloaded.shim);
}

#[test]
fn log_leaves_low_descriptors_to_the_program() {
    let (plain, trace) = Program::case("log_limits-12").arg("descriptors").assert_same_preloaded();
    plain.assert_success();
    assert!(plain.stdout.contains("the next descriptor is 0\n"), "{}", plain.stdout);
    assert_eq!(trace.of("cudaDeviceCanAccessPeer").len(), 200);
}

#[test]
fn log_beyond_the_size_limit_program_survives() {
    let program = Program::case("log_limits-12").arg("size");
    let plain = program.plain();
    plain.assert_success();
    let to_stderr = program.traced_to_stderr();
    assert_eq!((&to_stderr.stdout, &to_stderr.status), (&plain.stdout, &plain.status));
    assert!(to_stderr.shim.len() > 10, "the log did not reach the limit: {:#?}", to_stderr.shim);
    let file = crate::support::Scratch::new("limited");
    let to_file = |program: Program| {
        let traced = program.env("P2PSHIM_LOG", "trace").env("P2PSHIM_LOG_FILE", file.to_str().unwrap()).preloaded();
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        (traced, text)
    };
    let (_, whole) = to_file(Program::case("log_limits-12").arg("descriptors"));
    let (traced, text) = to_file(program);
    assert_eq!((&traced.stdout, &traced.status), (&plain.stdout, &plain.status));
    assert_eq!(text.len(), 8192);
    // The last that is there may be cut.
    let lost = whole.matches('\n').count() - text.matches('\n').count();
    let said = format!("p2pshim: {lost} lines are lost: they could not be written to P2PSHIM_LOG_FILE");
    assert_eq!(traced.shim, [said]);
}

#[test]
fn raw_fork_child_forwards_only() {
    let (plain, trace) = Program::case("raw_fork-12").assert_same_preloaded();
    plain.assert_success();
    assert!(plain.stdout.contains("the child ended with 7\n"), "{}", plain.stdout);
    let threads: std::collections::BTreeSet<&str> = trace.calls.iter().map(|call| call.thread.as_str()).collect();
    assert_eq!((threads.len(), trace.of("cudaDeviceCanAccessPeer").len()), (1, 2), "{:#?}", trace.calls);
}

#[test]
fn variable_named_so_is_left_alone() {
    let (plain, _) = Program::case("variable_named_so").assert_same_preloaded();
    plain.assert_success();
    assert_eq!(plain.stdout, "42 43\n1\n");
}

#[test]
fn signal_between_calls_are_not_mixed_up() {
    let program = Program::case("signal_between").libraries("target/c-tests/standin-runtime");
    let plain = program.plain();
    plain.assert_success();
    let preloaded = program.preloaded();
    preloaded.assert_same_as(&plain, "preloaded");
    assert!(preloaded.stdout.contains("went elsewhere: 0, it ran: yes\n"), "{}", preloaded.stdout);
    assert!(preloaded.stdout.contains("as many as were made: yes\n"), "{}", preloaded.stdout);
}

#[test]
fn signal_longjmp_calls_answer_as_before() {
    for flavour in ["12", "static"] {
        let program = Program::case(&format!("signal_longjmp-{flavour}"));
        let plain = program.plain();
        plain.assert_success();
        program.preloaded().assert_same_as(&plain, "preloaded");
        let (traced, trace) = program.traced();
        traced.assert_same_as(&plain, "preloaded with a trace");
        // The last two calls are shown, outermost: neither "busy" nor nesting is left over.
        let last = trace.names_at(0).last().map(|name| (*name).to_owned()).unwrap();
        assert!(last.ends_with("EnablePeerAccess"), "{last}");
    }
}

/// CUDA refuses peer copies on a capturing stream; the shim puts the equal copy in their place.
#[test]
fn captured_copies_fail_plain_and_replay_preloaded() {
    for flavour in flavours("captured_copies_fail_plain_and_replay_preloaded") {
        let program = Program::case(&format!("captured_copies-{flavour}"));
        let plain = program.plain();
        assert_eq!(plain.status, "exit status: 1");
        assert!(
            plain
                .stdout
                .contains("mode 0: cudaErrorStreamCaptureUnsupported, capture: cudaErrorStreamCaptureInvalidated")
        );
        let (preloaded, trace) = program.traced();
        preloaded.assert_success();
        assert_eq!(
            preloaded.stdout.matches(": cudaSuccess, capture: cudaSuccess\n").count(),
            6,
            "{}",
            preloaded.stdout
        );
        assert_eq!(preloaded.stdout.matches("    last error: cudaSuccess\n").count(), 6, "{}", preloaded.stdout);
        assert_eq!(preloaded.stdout.matches("    100 replays, 0 rows wrong\n").count(), 6, "{}", preloaded.stdout);
        // Three of each were captured; the one outside of a capture was not touched.
        let noted = |note: &str| trace.calls.iter().filter(|call| call.text.contains(note)).count();
        assert_eq!((noted(" captured as cuMemcpyAsync "), noted(" captured as cuMemcpy3DAsync_v2 ")), (3, 3));
        assert_eq!(trace.of("cuMemcpyPeerAsync").len(), 4);

        let switched_off = program.env("P2PSHIM_CAPTURE", "forward").preloaded();
        switched_off.assert_same_as(&plain, "preloaded with P2PSHIM_CAPTURE=forward");
    }
}

#[test]
fn captured_copies_beside_a_global_capture_of_another_thread() {
    for flavour in ["12", "13", "static"] {
        let program = Program::case(&format!("captured_copies-{flavour}")).arg("elsewhere");
        let preloaded = program.preloaded();
        preloaded.assert_success();
        assert!(preloaded.stdout.contains("cudaSuccess, cudaSuccess, capture: cudaSuccess\n"), "{}", preloaded.stdout);
        assert!(preloaded.stdout.contains("the capture elsewhere is whole\n"), "{}", preloaded.stdout);
    }
}

#[test]
fn same_pointer_however_it_was_come_by() {
    let (plain, _) = Program::case("same_pointer").assert_same_preloaded();
    plain.assert_success();
    assert_eq!(plain.stdout.matches(": the same\n").count(), 4, "{}", plain.stdout);
}

#[test]
fn two_majors_each_reaches_its_own_runtime() {
    let (plain, trace) = Program::case("two_majors").assert_same_preloaded();
    plain.assert_success();
    assert!(plain.stdout.contains("majors: 12, 13, 11\n"), "{}", plain.stdout);
    assert!(plain.stdout.contains("    last error of 12: 0, of 13: 705, of 11: 101\n"), "{}", plain.stdout);
    // A good copy in each plugin, and a bad one in each runtime; one more at the end.
    assert_eq!(trace.of("cudaMemcpyPeer").len(), 6, "{:#?}", trace.calls);
}

#[test]
fn two_copies_each_reaches_its_own_runtime() {
    let (plain, trace) = Program::case("two_copies").assert_same_preloaded();
    plain.assert_success();
    for line in ["last error of one: 101, of the other: 0\n", "last error of one: 0, of the other: 101\n"] {
        assert_eq!(plain.stdout.matches(line).count(), 2, "{}", plain.stdout);
    }
    assert_eq!(trace.of("cudaMemcpyPeer").len(), 7, "{:#?}", trace.calls);
    assert!(trace.of("cudaMemcpyPeer")[1].text.contains("libplugin-12-copy.so+"), "{:#?}", trace.calls);
}

#[test]
fn global_then_local_each_reaches_its_own_runtime() {
    let (plain, trace) = Program::case("global_then_local").assert_same_preloaded();
    plain.assert_success();
    assert!(plain.stdout.contains("majors: 13, 12\n"), "{}", plain.stdout);
    assert!(plain.stdout.contains("last error of the global one: 101, of the plugin's: 0\n"), "{}", plain.stdout);
    assert!(plain.stdout.contains("last error of the global one: 0, of the plugin's: 705\n"), "{}", plain.stdout);
    assert_eq!(trace.of("cudaMemcpyPeer").len(), 2, "{:#?}", trace.calls);
}

#[test]
fn unversioned_reference_same_output_preloaded() {
    let program = Program::case("unversioned_reference");
    let (plain, _) = same_output_and_seen(&program, "shared", &COPIES[..1]);
    plain.assert_success();
}

#[test]
fn library_constructor_same_output_preloaded() {
    let (plain, trace) = Program::case("library_constructor").assert_same_preloaded();
    plain.assert_success();
    assert_eq!(plain.stdout.matches("of a library").count(), 2, "{}", plain.stdout);
    assert!(trace.names_at(0).len() >= 6, "{:#?}", trace.calls);
    // The library's constructor runs before ours, and its first line still goes to standard error.
    let to_stderr = Program::case("library_constructor").traced_to_stderr();
    assert!(to_stderr.shim.len() >= trace.calls.len(), "{:#?}", to_stderr.shim);
}

/// A line of the log waits for nobody who has the dynamic linker's lock.
#[test]
fn constructor_waits_for_a_thread_its_line_is_written() {
    let program = Program::case("constructor_waits").arg(path("target/c-tests/libwaits_at_load.so").to_string_lossy());
    let (plain, folder) = (program.plain(), crate::support::Scratch::new("traces"));
    plain.assert_success();
    let marked = program.env("P2PSHIM_LOG", "info").env("P2PSHIM_TRACE", folder.to_string_lossy()).preloaded();
    assert_eq!((&marked.stdout, &marked.status), (&plain.stdout, &plain.status), "{:#?}", marked.shim);
    assert!(marked.shim.iter().any(|line| line.contains("mark: in a thread")), "{:#?}", marked.shim);
}

/// Its own dlsym answers the runtime too, so the driver's calls go by unseen; the one bound by linking does not.
#[test]
fn wraps_dlsym_same_output_preloaded() {
    let (plain, trace) = Program::case("wraps_dlsym").assert_same_preloaded();
    plain.assert_success();
    assert_eq!(trace.names_at(0), ["cudaMemcpyPeer"]);
}

/// Another preload library that wraps dlsym and cudaMemcpyPeer, before ours or after it.
fn beside_another_hook(ours_first: bool) {
    let other = path("target/c-tests/libotherhook.so");
    let both = if ours_first { [shim(), other.clone()] } else { [other.clone(), shim()] };
    let both = [both[0].as_path(), both[1].as_path()];
    for case in ["guide_sample-11", "guide_sample-12", "guide_sample-static", "driver_api", "two_majors"] {
        let plain = Program::case(case).run(&[&other]);
        plain.assert_success();
        let (traced, trace) = Program::case(case).traced_with(&both);
        traced.assert_same_as(&plain, "preloaded beside another hook");
        // If the other's dlsym comes first it asks the C library, past ours; then only linked calls are seen.
        assert_eq!(trace.calls.is_empty(), !ours_first && case == "guide_sample-static", "{case}: {:#?}", trace.calls);
    }
}

#[test]
fn otherhook_after_ours_same_output() {
    beside_another_hook(true);
}

#[test]
fn otherhook_before_ours_same_output() {
    beside_another_hook(false);
}

#[test]
fn otherhook_in_either_order_still_sees_the_call() {
    let other = path("target/c-tests/libotherhook.so");
    for order in [[shim(), other.clone()], [other.clone(), shim()]] {
        let log = crate::support::Scratch::new("otherhook");
        let program = Program::case("guide_sample-12").env("OTHERHOOK_LOG", log.to_str().unwrap());
        program.run(&[&order[0], &order[1]]).assert_success();
        let seen = std::fs::read_to_string(&log).unwrap_or_default();
        assert!(seen.lines().any(|line| line == "cudaMemcpyPeer"), "{order:?}: it saw {seen:?}");
    }
}

/// Runs on the stand-in runtime, whose copies are left in ways other than by returning. No later call counts as nested.
fn left_without_return(case: &str) {
    let (plain, trace) = Program::case(case).libraries("target/c-tests/standin-runtime").assert_same_preloaded();
    plain.assert_success();
    let rounds = plain.stdout.matches("cudaMemcpyPeerAsync").count();
    assert_eq!(rounds, 3);
    let returned = trace.of("cudaMemcpyPeerAsync");
    assert_eq!(returned.len(), rounds, "{:#?}", trace.calls);
    for call in returned {
        assert!(call.text.contains(" = cudaErrorNotReady"), "{}", call.text);
    }
    assert!(trace.calls.iter().all(|call| call.depth == 0), "nested: {:#?}", trace.calls);
}

#[test]
fn cancelled_thread_unwinds_through() {
    left_without_return("cancelled_thread");
}

#[test]
fn thrown_through_unwinds_and_is_caught() {
    left_without_return("thrown_through");
}

#[test]
fn longjmp_out_leaves_nothing_behind() {
    left_without_return("longjmp_out");
}

/// The log goes to descriptor 2, which the program has given to a file of its own.
fn closed_stderr(when: &str) {
    for flavour in ["12", "static"] {
        let program = Program::case(&format!("closed_stderr-{flavour}")).arg(when);
        let (plain, logging) = (program.plain(), program.traced_to_stderr());
        plain.assert_success();
        logging.assert_same_as(&plain, "logging");
        // Up to when it was closed, it was logged to.
        assert_eq!(logging.shim.is_empty(), when == "early", "{:#?}", logging.shim);
    }
}

#[test]
fn closed_stderr_late_file_gets_no_log_line() {
    closed_stderr("late");
}

#[test]
fn closed_stderr_early_file_gets_no_log_line() {
    closed_stderr("early");
}

#[test]
fn sigpipe_stderr_program_survives_and_keeps_its_signals() {
    for flavour in flavours("sigpipe_stderr_program_survives_and_keeps_its_signals") {
        let program = Program::case(&format!("sigpipe_stderr-{flavour}"));
        let (plain, logging) = (program.plain(), program.traced_to_stderr());
        plain.assert_success();
        logging.assert_same_as(&plain, "logging");
    }
}
