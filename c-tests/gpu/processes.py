"""One process a GPU: copies with memory that another process owns, and copies that a program takes through the host itself. Each program runs
plain and under `p2pshim run`; it must do the same, and the report must have its bytes."""

import json
import re
import subprocess
import sys
from statistics import median

import ucx
from harness import BUILD, HERE, SHIM, Failed, Run, build, judge, report, table

BYTES = 2 << 20  # of between_processes, by each way
MOST_EXPORT, MOST_OPEN = 50, 100  # microseconds more than plain
MOST_TIME = 1.03  # of a message of UCX, to plain
ROUNDS = 5


def uuids():
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    return re.findall(r"UUID: (GPU-[0-9a-f-]+)", listed)


def read(folder):
    """The report's JSON, its first lines, and bytes by pairs of GPUs: numbers as nvidia-smi has them, or labels."""
    numbers = {uuid: number for number, uuid in enumerate(uuids())}
    text = subprocess.run([HERE / "p2pshim", "report", folder], capture_output=True, text=True)
    done = subprocess.run([HERE / "p2pshim", "report", "--json", folder], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"p2pshim report ends with {done.returncode}: {done.stderr}")
    answer = json.loads(done.stdout)
    names = {gpu["index"]: numbers.get(gpu["uuid"], gpu["label"]) for gpu in answer["gpus"]}
    pairs = {}
    for pair in answer["pairs"]:
        key = f"{names[pair['src']]}>{names[pair['dst']]}"
        pairs[key] = pairs.get(key, 0) + pair["bytes"]
    return answer, [line for line in text.stdout.splitlines() if line.strip()][:4], pairs


def reported(name, command, **variables):
    """Runs it plain and under the command: what it printed, and what the report says."""
    folder = BUILD / f"processes-{name.replace(' ', '-')}"
    plain = Run(command, trace=False, **variables)
    run = Run([HERE / "p2pshim", "run", "--library", SHIM, "--trace", folder, "--no-report", "--no-check", "--", *command], trace=False, **variables)
    if plain.status != 0 or plain.status != run.status or plain.out != run.out:
        raise Failed(f"{name}: plain {plain.ended()}; under the command {run.ended()} {run.out[-300:]!r}")
    return plain, *read(folder)


def wrong(answer):
    return [f"{finding['rule']} of {finding['function']}" for finding in answer["findings"] if finding["severity"] in ("error", "hazard")]


def between_processes_reported():
    program = build("cases/between_processes.c", "static")
    for transport in ("ipc", "vmm", "pool"):
        for direction in ("push", "pull"):
            for visibility in ("both", "each"):
                case = f"{transport} {direction} {visibility}"
                _, _, lines, pairs = reported(f"between {case}", [program, *case.split()])
                key = "0>1" if direction == "push" else "1>0"
                judge(pairs.get(key, 0) == BYTES, f"between_processes_reported, {case}", f"{pairs}; {lines[0] if lines else ''!r}")


def denied_between_processes():
    """The pair is denied: memory of the other GPU is refused as where there is no path, and what a client does then."""
    program = build("cases/between_processes.c", "static")
    run = [HERE / "p2pshim", "run", "--library", SHIM, "--no-report", "--no-check", "--trace", BUILD / "denied", "--"]
    refused = {"ipc": "cudaErrorPeerAccessUnsupported", "vmm": "CUDA_ERROR_INVALID_DEVICE", "pool": "cudaErrorInvalidDevice"}
    for transport, code in refused.items():
        done = Run([*run, program, transport, "pull", "both"], trace=False, P2PSHIM_DENY="0-1")
        judge(f"= {code}\n" in done.out and "the owner ends with 0, the opener with 0" in done.out, f"denied_between_processes, {transport}",
              f"{done.out[-300:]!r} {done.err[-400:]!r}")
    done = Run([*run, sys.executable, HERE / "torch_queue.py"], trace=False, P2PSHIM_DENY="0-1")
    last = [line for line in done.err.splitlines() if line.strip()]
    judge(done.status != "timeout", "denied_between_processes, PyTorch", f"ends with {done.status}: {done.out[-200:]!r}; {last[-6:]}")


def torch_queue():
    for name, variables in (("default", {}), ("expandable", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})):
        plain, answer, lines, pairs = reported(f"torch_queue {name}", [sys.executable, HERE / "torch_queue.py"], **variables)
        moved = int(re.search(r"pulled (\d+)", plain.out)[1])
        judge(pairs.get("1>0") == moved and not wrong(answer), f"torch_queue, {name}",
              f"the program pulled {moved} bytes; {pairs}; {wrong(answer)}; {lines}")


def torch_by_hand():
    plain, answer, lines, pairs = reported("torch_by_hand", [sys.executable, HERE / "torch_by_hand.py"])
    said = " ".join(lines)
    judge("torch_by_hand.py" in said and "through host memory" in said and not wrong(answer), "torch_by_hand", f"{plain.out.strip()}; {pairs}; {lines}")


def nccl_reported():
    for name, variables in (("P2P", {}), ("SHM", {"NCCL_P2P_DISABLE": "1"})):
        _, answer, lines, pairs = reported(f"nccl {name}", [sys.executable, HERE / "nccl_all_reduce.py"], **variables)
        judge(not wrong(answer), f"nccl_reported, {name}", f"{pairs}; {wrong(answer)}; {lines}")


def ucx_reported():
    """Messages of UCX: time to plain, and the way that the report says they took."""
    if not ucx.UCX.exists():
        return report("skipped", "ucx_reported", "it is not in the bundle")
    port = 24450
    for name, transports in ucx.TRANSPORTS.items():
        times = {"plain": [], "traced": []}
        folder = BUILD / f"ucx-{name.replace(' ', '-')}"
        folder.mkdir()
        for number in range(ROUNDS):
            for way, variables in (("plain", {}), ("traced", {"LD_PRELOAD": str(SHIM), "P2PSHIM_TRACE": str(folder)})):
                port += 1
                time, said = ucx.message(port, {"UCX_TLS": transports, **variables})
                if time is None:
                    return judge(False, "ucx_reported", f"{name}, {way}: {said[-500:]!r}")
                times[way].append(time)
        _, lines, pairs = read(folder)
        ratio = median(times["traced"]) / median(times["plain"])
        right = name != "cuda_ipc" or ratio <= MOST_TIME and {"0>1", "1>0"} & pairs.keys()
        judge(right, f"ucx_reported, {name}", f"traced {ratio:.3f} of plain; {pairs}; {lines}")


def open_cost():
    program = build("open_cost.c")
    ways = {"plain": {}, "preloaded": {"preload": True}}
    rounds = {way: [] for way in [*ways, "run"]}
    for number in range(ROUNDS):
        for way, options in ways.items():
            rounds[way].append(Run([program], trace=False, **options).numbers()[0])
        rounds["run"].append(Run([HERE / "p2pshim", "run", "--library", SHIM, "--trace", BUILD / f"open-{number}", "--no-report", "--no-check", "--", program],
                                 trace=False).numbers()[0])
    figures = {way: [median(column) for column in zip(*of)] for way, of in rounds.items()}
    table([["us, median", "export", "open", "close"]] + [[way, *(f"{figure:.1f}" for figure in of)] for way, of in figures.items()])
    more = [max(figures[way][column] for way in ("preloaded", "run")) - figures["plain"][column] for column in (0, 1)]
    judge(more[0] <= MOST_EXPORT and more[1] <= MOST_OPEN, "open_cost",
          f"an export takes {more[0]:.1f} us more, limit {MOST_EXPORT}; opening {more[1]:.1f}, limit {MOST_OPEN}")


CHECKS = (between_processes_reported, denied_between_processes, torch_queue, torch_by_hand, nccl_reported, ucx_reported, open_cost)
