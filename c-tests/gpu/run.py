"""The shim on real GPUs: unmodified programs run plain and preloaded, and their peer calls are in the trace.

Needs two GPUs, nvcc, and for the Python clients CuPy, cuda-python, JAX and PyTorch. A client that is not installed is
reported as skipped, by name. Prints a line a check and a summary; exits with 0 only if no check failed.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHIM = HERE / "libp2pshim.so"
BUILD = Path(tempfile.mkdtemp(prefix="p2pshim-gpu-"))
COPIES = ["cudaMemcpyPeer", "cudaMemcpyPeerAsync", "cudaMemcpy3DPeer", "cudaMemcpy3DPeerAsync"]
TIMEOUT_SECONDS = 100

results = []


def report(outcome, name, detail=""):
    results.append(outcome)
    print(f"{outcome:7} {name}{': ' + detail if detail else ''}", flush=True)


class Run:
    """A program's run: status, output, what others wrote to standard error, and the calls in the trace."""

    def __init__(self, command, preload=False, seconds=TIMEOUT_SECONDS, **variables):
        self.seconds = seconds
        log = BUILD / "trace"
        log.unlink(missing_ok=True)
        environment = dict(os.environ, **variables)
        if preload:
            environment.update(LD_PRELOAD=str(SHIM), P2PSHIM_LOG="trace", P2PSHIM_LOG_FILE=str(log))
        try:
            done = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True,
                                  timeout=seconds, cwd=BUILD)
            self.status, self.out, self.err = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            self.status, self.out, self.err = "timeout", str(late.stdout), str(late.stderr)
        self.trace = log.read_text() if log.exists() else ""
        # Depth 0 is one space after the thread's number; an indented line is a driver call inside a runtime call.
        self.calls = re.findall(r"^p2pshim \S+ \S+ ( *)(cu\w+)\(", self.trace, re.M)

    def outermost(self):
        return {name for indent, name in self.calls if not indent}

    def all(self):
        return {name for _, name in self.calls}


def same(name, command, seen=(), **variables):
    """Plain and preloaded must do the same, and `seen` must be in the trace."""
    plain = Run(command, **variables)
    if plain.status == "timeout":
        return report("skipped", name, f"without the shim it does not end within {plain.seconds} s")
    shim = Run(command, preload=True, **variables)
    problems = []
    if plain.status != 0:
        problems.append(f"plain run ends with {plain.status}: {plain.out[-200:]!r} {plain.err.strip()[-300:]}")
    if plain.status != shim.status:
        problems.append(f"status {plain.status} plain, {shim.status} preloaded: {shim.err.strip()[-300:]}")
    if plain.out != shim.out:
        problems.append(f"output differs: {plain.out[-200:]!r} plain, {shim.out[-200:]!r} preloaded")
    if plain.err != shim.err:
        problems.append(f"standard error differs: {shim.err[-300:]!r}")
    missing = set(seen) - shim.all()
    if missing:
        problems.append(f"not in the trace: {', '.join(sorted(missing))}")
    if problems:
        report("FAILED", name, "; ".join(problems))
    else:
        counts = {}
        for _, call in shim.calls:
            counts[call] = counts.get(call, 0) + 1
        shown = ", ".join(f"{call} x{count}" for call, count in sorted(counts.items()))
        report("ok", name, shown or plain.out.strip().splitlines()[-1][:120])


def wanted(name):
    """Arguments, if there are any, are parts of the names of the checks to make."""
    return len(sys.argv) == 1 or any(part in name for part in sys.argv[1:])


def build(source, name, runtime):
    program = BUILD / name
    command = ["nvcc", "-O1", "-g", f"-I{HERE}", "-Wno-deprecated-gpu-targets", "-cudart", runtime]
    command += ["-o", program, HERE / source]
    libraries = ["-lcuda"] if source.endswith("driver_api.c") else []
    subprocess.run([str(word) for word in command + libraries + ["-lpthread", "-ldl"]], check=True)
    return program


def conformance(program, name):
    """All rows, plain and preloaded; by default one row changes, since a peer copy can then be captured."""
    for how, preload, differ, variables in (
        ("plain", False, 0, {}),
        ("preloaded, P2PSHIM_CAPTURE=forward", True, 0, {"P2PSHIM_CAPTURE": "forward"}),
        ("preloaded", True, 1, {}),
    ):
        run = Run([program, HERE / "conformance.tsv"], preload=preload, **variables)
        last = (run.out.strip().splitlines() or [""])[-1]
        right = last == f"# 70 rows: {70 - differ} as expected, {differ} differ, 0 skipped"
        report("ok" if right else "FAILED", f"conformance, {name}, {how}", last)
        if not right:
            print(run.out + run.err)


def captured(program, name):
    """CUDA refuses peer copies on a capturing stream; with the shim they are captured and replay."""
    plain, shim = Run([program]), Run([program], preload=True)
    beside = Run([program, "elsewhere"], preload=True)
    right = plain.status == 1 and shim.status == 0 and beside.status == 0
    graphs, rewritten = shim.out.count("100 replays, 0 rows wrong"), shim.trace.count(" captured as ")
    report("ok" if right else "FAILED", f"captured_copies, {name}",
           f"ends with {plain.status} plain, {shim.status} preloaded ({rewritten} copies rewritten, {graphs} graphs "
           f"replayed 100 times with the right bytes), {beside.status} beside a global capture of another thread")
    if not right:
        print(plain.out + plain.err + shim.out + shim.err + beside.out + beside.err)


def pointers():
    run = Run([build("pointers.c", "pointers", "static")])
    report("ok" if run.status == 0 else "FAILED", "driver hands out what it exports", run.out.strip())


def installed(module):
    return subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode == 0


def client(name, module, script, seen=(), **variables):
    if not wanted(name):
        return
    if installed(module):
        same(name, [sys.executable, HERE / script], seen, **variables)
    else:
        report("skipped", name, f"the Python module {module} is not installed")


def main():
    query = ["nvidia-smi", "--query-gpu=index,name,driver_version", "--format=csv,noheader"]
    listed = subprocess.run(query, capture_output=True, text=True) if shutil.which("nvidia-smi") else None
    gpus = listed.stdout.strip().splitlines() if listed and listed.returncode == 0 else []
    print("GPUs: " + ("; ".join(gpus) or "none"))
    if len(gpus) < 2 or not shutil.which("nvcc"):
        sys.exit("run.sh: two GPUs and nvcc are needed; nothing was checked")
    subprocess.run("nvcc --version | tail -2 | head -1; ldd --version | head -1", shell=True)

    for runtime in ("static", "shared"):
        name = f"{runtime} runtime"
        copies = COPIES if runtime == "shared" else [copy.replace("cuda", "cu", 1) for copy in COPIES]
        if wanted("conformance"):
            conformance(build("conformance.c", f"conformance-{runtime}", runtime), name)
        if wanted("captured_copies"):
            captured(build("cases/captured_copies.c", f"captured_copies-{runtime}", runtime), name)
        for case in ("guide_sample", "four_copies_sizes", "multithreaded", "entry_point"):
            if wanted(case):
                program = build(f"cases/{case}.c", f"{case}-{runtime}", runtime)
                same(f"{case}, {name}", [program], () if case == "entry_point" else copies)
    if wanted("driver_api"):
        program = build("cases/driver_api.c", "driver_api", "shared")
        same("driver_api", [program, "no-null-pointers"], ["cuMemcpyPeer", "cuMemcpyPeer_ptds"])
    if wanted("pointers"):
        pointers()

    client("CuPy memcpyPeer", "cupy", "cupy_peer.py", ["cuMemcpyPeer"])
    client("cuda-python cudaMemcpyPeer", "cuda.bindings", "cuda_python_peer.py", ["cuMemcpyPeer"])
    client("JAX device_put", "jax", "jax_device_put.py", ["cuMemcpyPeerAsync"], XLA_PYTHON_CLIENT_PREALLOCATE="false")
    client("PyTorch .to('cuda:1')", "torch", "torch_to.py")
    client("NCCL all-reduce", "torch", "nccl_all_reduce.py")

    shutil.rmtree(BUILD, ignore_errors=True)
    counts = {outcome: results.count(outcome) for outcome in ("ok", "FAILED", "skipped")}
    print(f"{counts['ok']} passed, {counts['FAILED']} failed, {counts['skipped']} skipped")
    sys.exit(1 if counts["FAILED"] else 0)


main()
