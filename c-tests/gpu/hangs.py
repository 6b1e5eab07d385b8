"""`p2pshim ps` and `p2pshim hang` beside programs that hang on real GPUs until they are told to go on."""

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import BUILD, HERE, Failed, build, check, clean_environment, judge, report

SECONDS = 90  # until a program hangs, and until it has ended


def asked(command, *arguments):
    return subprocess.run([HERE / "p2pshim", command, *arguments], capture_output=True, text=True, env=clean_environment())


def states(traces):
    """The states of the processes that have a rank or, if none has, of all; each with the call that it is in."""
    said = asked("ps", traces, "--json")
    runs = json.loads(said.stdout)["runs"] if said.returncode == 0 else []
    every = [process for run in runs for process in run["processes"]]
    ranks = [process for process in every if process["rank"] is not None] or every
    return [(process["state"], (process["call"] or {}).get("function")) for process in ranks]


def hangs(name, command, expected, first, *parts, **variables):
    """A program comes to these states and stays there; then the first line has to begin so, and others to have these parts."""
    folder = Path(tempfile.mkdtemp(dir=BUILD))
    traces = folder / "traces"
    run = [HERE / "p2pshim", "run", "--no-check", "--no-report", "--trace", traces, *command(folder)]
    child = subprocess.Popen(run, env=clean_environment(**variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + SECONDS
        while [state for state, _ in states(traces)] != expected:
            if time.monotonic() > deadline or child.poll() is not None:
                raise Failed(f"it does not come to {expected}: {states(traces)}, status {child.poll()}")
            time.sleep(0.1)
        begun = time.monotonic()
        said = asked("hang", str(child.pid))
        took = time.monotonic() - begun
    finally:
        (folder / "go").touch()
        try:
            _, error = child.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            _, error = child.communicate()
    problems = [] if said.stdout.startswith(first) else [f"the first line does not begin with {first!r}"]
    problems += [f"there is no {part!r}" for part in parts if part not in said.stdout]
    problems += [f"ends with {child.returncode}: {error[-300:]}"] if child.returncode else []
    problems += [f"exit status {said.returncode}"] if said.returncode != 1 else []
    judge(not problems, name, "; ".join(problems) + f" {took:.2f} s: {said.stdout.strip()}")


def of_c(runtime, what, function):
    program = build("cases/hanging.c", runtime)
    hangs(f"hangs, {what}, {runtime} runtime", lambda folder: [program, what, folder], ["in-call"],
          "Process ", f") has been in {function}", "hanging.c:")


def of_ranks():
    program = build("cases/hanging.c", "shared")
    script = 'for rank in 0 1 2 3; do RANK=$rank "$0" 2 "$1" & done; wait'
    hangs("hangs, ranks", lambda folder: ["sh", "-c", script, program, folder], ["in-call", "in-call", "idle", "in-call"],
          "Rank 2 has made no GPU call that p2pshim sees for ", "; 3 others are in GPU calls", WORLD_SIZE="4")


def of_torch():
    if not importlib.util.find_spec("torch"):
        return report("skipped", "hangs, PyTorch", "the Python module torch is not installed")
    script = HERE / "torch_hang.py"
    waits, sleeps = ((script.read_text().split(f"  # {what}")[0].count("\n") + 1) for what in ("waits", "sleeps"))
    places = f", at torch_hang.py:{waits}; ", f", with its Python at torch_hang.py:{sleeps}."
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    hangs("hangs, PyTorch, torchrun", lambda folder: [sys.executable, *launcher, script, folder], ["in-call", "idle"],
          "Rank 0 is in a GPU call that does not return, and rank 1 is in no GPU call", "Rank 0 (pid ", *places)
    # The process that started the two is idle too, and not the one that is waited for.
    hangs("hangs, PyTorch, spawn", lambda folder: [sys.executable, script, folder], ["idle", "in-call", "idle"],
          "Process ", " is in a GPU call that does not return, and process ", *places)


def check_all():
    for what, runtime_function, driver_function in (
        ("none", "cudaStreamSynchronize", "cuStreamSynchronize"),
        ("event", "cudaEventSynchronize", "cuEventSynchronize"),
        ("context", "cudaDeviceSynchronize", "cuCtxSynchronize"),
        ("copy", "cudaMemcpy", "cuMemcpyDtoH"),
        ("free", "cuMemFree_v2", "cuMemFree_v2"),
    ):
        check(f"hangs_{what}", of_c, "shared", what, runtime_function)
        check(f"hangs_{what}", of_c, "static", what, driver_function)
    check("hangs_ranks", of_ranks)
    check("hangs_torch", of_torch)
