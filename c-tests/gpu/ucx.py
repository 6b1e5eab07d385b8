"""UCX beside the shim: messages in GPU memory between two processes, each on its own GPU, take as long as without it, and UCX
can patch what it wants to."""

import re
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from time import monotonic, sleep

from harness import HERE, SHIM, clean_environment, judge, report, table

UCX = HERE / "ucx"
TRACES = tempfile.TemporaryDirectory()
# With a trace, as it is without options, but without looking at the GPUs before and at the trace afterwards.
RUN = [HERE / "p2pshim", "run", "--library", SHIM, "--no-report", "--no-check", "--trace", TRACES.name]
ROUNDS = 3
BYTES = 64 << 20
# Tests of ucx_perftest: bytes a message, and how many messages are timed.
TESTS = {"tag_bw": (BYTES, 200), "tag_lat": (8, 2000), "ucp_am_bw": (1 << 20, 500), "ucp_put_bw": (1 << 20, 500), "ucp_get": (1 << 20, 500),
         "stream_bw": (1 << 20, 500)}
TRANSPORTS = {"cuda_ipc": "cuda_ipc,cuda_copy,tcp,self,sm", "without cuda_ipc": "^cuda_ipc"}
# The time of a message, preloaded or under `p2pshim run`, to plain. Through the host it varies by 1.4 from run to run; UCX without its caches
# takes 4 times as long.
MOST = {"cuda_ipc": 1.05, "without cuda_ipc": 1.5}
SECONDS = 40  # a run, which takes 3
FAILURES = re.compile(r".*(?:failed to install|failed to patch|could not create|failed to set UCM).*")


def start(port, host, variables, test, before):
    size, times = TESTS[test]
    options = ["-p", str(port), "-t", test, "-m", "cuda", "-s", str(size), "-n", str(times), "-w", "20"]
    environment = clean_environment(
        # ucx_perftest takes the GPU of its own number: the one that listens the first, the other one the second.
        CUDA_VISIBLE_DEVICES="0,1", UCX_LOG_LEVEL="diag", UCX_MEM_LOG_LEVEL="diag", UCX_MODULE_DIR=str(UCX / "lib" / "ucx"),
        LD_LIBRARY_PATH=f"{UCX / 'lib'}:{UCX / 'libs'}", **variables)
    return subprocess.Popen([*before, UCX / "bin" / "ucx_perftest", *host, *options], env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def listens(port):
    """Whether somebody does; connecting would be taken for the other end."""
    sockets = (line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:])
    return any(socket[1].endswith(f":{port:04X}") and socket[3] == "0A" for socket in sockets)


def message(port, variables, test="tag_bw", before=()):
    """Microseconds a message between two processes, and what UCX said."""
    processes = [start(port, [], variables, test, before)]
    try:
        until = monotonic() + SECONDS
        while not listens(port) and processes[0].poll() is None and monotonic() < until:
            sleep(0.02)
        processes.append(start(port, ["127.0.0.1"], variables, test, before))
        said = "".join(process.communicate(timeout=SECONDS)[0] for process in reversed(processes))
    except subprocess.TimeoutExpired:
        return None, "it did not end"
    finally:
        for process in processes:
            process.kill()
    final = re.search(r"Final:\s+\d+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)", said)
    return final and float(final[3]), said


def ucx():
    if not UCX.exists():
        return report("skipped", "ucx", "it is not in the bundle")
    ways = {"plain": ({}, ()), "preloaded": ({"LD_PRELOAD": str(SHIM)}, ()), "run": ({}, RUN)}
    problems, port = [], 23450
    for name, transports in TRANSPORTS.items():
        rows = [("us a message, medians", "bytes", *ways, "preloaded/plain", "run/plain", "spread of plain")]
        for test, (size, _) in TESTS.items():
            times = {way: [] for way in ways}
            for _ in range(ROUNDS):
                for way, (variables, before) in ways.items():
                    port += 1
                    time, said = message(port, {"UCX_TLS": transports, **variables}, test, before)
                    if time is None:
                        return judge(False, "ucx", f"{test}, {name}, {way}: {said[-500:]!r}")
                    times[way].append(time)
                    problems += [f"{test}, {name}, {way}: {line.strip()}" for line in FAILURES.findall(said)]
            plain, *ours = (median(times[way]) for way in ways)
            ratios = [mine / plain for mine in ours]
            spread = max(times["plain"]) / min(times["plain"])
            rows.append((f"{test}, {name}", str(size), *(f"{time:.2f}" for time in (plain, *ours)), *(f"{ratio:.3f}" for ratio in ratios), f"{spread:.2f}"))
            problems += [f"{test}, {name}, {way}: {ratio:.3f} of plain, at most {MOST[name]}"
                         for way, ratio in zip(("preloaded", "run"), ratios) if ratio > MOST[name]]
        table(rows)
    judge(not problems, "ucx", "; ".join(problems) or "UCX patched what it wanted to")
