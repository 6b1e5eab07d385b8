//! Programs that have nothing to do with GPUs and are preloaded all the same, as under `export LD_PRELOAD=…`.

use crate::support::Program;

/// Same output and status; not a line of the shim, nor a log file, even with everything asked for.
fn unharmed(program: &Program) {
    let plain = program.plain();
    let preloaded = program.preloaded();
    preloaded.assert_same_as(&plain, "preloaded");
    preloaded.assert_silent();
    let logging = program.traced_to_stderr();
    logging.assert_same_as(&plain, "preloaded and logging");
    logging.assert_silent();

    let file = crate::support::Scratch::new("log");
    let to_file =
        program.clone().env("P2PSHIM_LOG", "trace").env("P2PSHIM_LOG_FILE", file.to_str().unwrap()).preloaded();
    to_file.assert_same_as(&plain, "preloaded and logging to a file");
    assert!(!file.exists(), "a program without CUDA made {}", file.display());
}

#[test]
fn preload_true_unharmed() {
    unharmed(&Program::new("true"));
}

#[test]
fn preload_false_keeps_its_status() {
    let program = Program::new("false");
    assert_eq!(program.plain().status, "exit status: 1");
    unharmed(&program);
}

#[test]
fn preload_bash_with_children_and_pipes_unharmed() {
    let script =
        "echo one | tr o 0; (exit 3); echo $?; x=$(ls / | wc -l); test $x -gt 3 && echo many; echo err >&2; exit 42";
    let program = Program::new("bash").arg("-c").arg(script);
    assert_eq!(program.plain().status, "exit status: 42");
    unharmed(&program);
}

#[test]
fn preload_python_with_threads_and_extensions_unharmed() {
    let script = "import ctypes, json, subprocess, sys, threading
t = threading.Thread(target=lambda: print(json.dumps({'sum': sum(range(10))})))
t.start()
t.join()
print(ctypes.CDLL(None).abs(-3), subprocess.run(['true']).returncode)
sys.exit(5)";
    let program = Program::new("python3").arg("-c").arg(script);
    assert_eq!(program.plain().status, "exit status: 5");
    unharmed(&program);
}

#[test]
fn preload_program_killed_by_a_signal_keeps_its_status() {
    let program = Program::new("bash").arg("-c").arg("kill -TERM $$");
    assert!(program.plain().status.contains("signal: 15"), "{}", program.plain().status);
    unharmed(&program);
}

#[test]
fn preload_unknown_variable_in_a_program_without_cuda_is_not_mentioned() {
    let outcome = Program::new("true").env("P2PSHIM_LGO", "trace").env("P2PSHIM_ACCESS", "nonsense").preloaded();
    outcome.assert_success();
    outcome.assert_silent();
}
