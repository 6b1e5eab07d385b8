#!/usr/bin/env python3
"""Programs drawn from seeds that use all of the driver at once, plain and with the shim: what they print is the same, the bytes are right, nothing that
the process holds grows, and traces have each copy.

    gauntlet.py [--minutes N] [--rounds N] [--seed S] [--jobs N] [--brief] [--stop] [--kept]

A seed decides a round: the program, its threads and processes, options, a fault of the simulated machine, a neighbour and who is preloaded first.
Rounds go on from a seed, for minutes or so many. Of one that fails the commands and outputs are written to target/gauntlet/SEED.txt, it is tried
again to say how often it fails, and `make gauntlet SEED=S` repeats it; add it to tests/golden/gauntlet.txt, and tests try it from then on.

A round in three runs another of the programs that draw: of waits, graphs, access, arguments, blocked and staged copies, HIP, or those of one subject.
On real GPUs `run.sh gauntlet` takes $GAUNTLET_MINUTES.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRACE = "FOLDER"  # in place of a folder for traces
# Options, by name; words for the program.
WAYS = (
    ("defaults", {}, ""),
    ("trace", {"P2PSHIM_TRACE": TRACE, "P2PSHIM_SUMMARY": "on"}, ""),
    ("timing", {"P2PSHIM_TRACE": TRACE, "P2PSHIM_GPU_TIMING": "all", "P2PSHIM_STACKS": "all"}, ""),
    ("strict", {"P2PSHIM_TRACE": TRACE, "P2PSHIM_VALIDATE": "strict"}, "right"),
    ("sample", {"P2PSHIM_TRACE": TRACE, "P2PSHIM_READBACK": "sample"}, ""),
    ("all", {"P2PSHIM_READBACK": "all", "P2PSHIM_VALIDATE": "off"}, ""),
    ("staging", {"P2PSHIM_TRACE": TRACE, "P2PSHIM_ACCESS": "off", "P2PSHIM_STAGING": "always"}, ""),
    ("blocking", {"P2PSHIM_TRACE": TRACE, "P2PSHIM_DENY": "0-1", "P2PSHIM_STAGING": "blocking", "P2PSHIM_STAGING_LIMIT": "24M"}, ""),
    ("app", {"P2PSHIM_TRACE": TRACE, "P2PSHIM_ACCESS": "app", "P2PSHIM_POOLS": "app"}, ""),
    ("warn", {"P2PSHIM_TRACE": TRACE, "P2PSHIM_BROKEN": "warn", "P2PSHIM_CAPTURE": "forward"}, "graphless"),
    ("full", {"P2PSHIM_TRACE": TRACE, "P2PSHIM_VERIFY": "full", "P2PSHIM_LOG": "trace", "P2PSHIM_LOG_FILE": TRACE + "/log"}, ""),
)
# Of the simulated machine, each with words for the program: where p2pshim cannot know that data is lost, it is not compared, and where it cannot know
# the devices of a copy, neither is the trace.
FAULTS = (
    ("drop:0-1", ""), ("stall:0>1:300ms", ""), ("corrupt:1>2", ""), ("hang:0>1", "hangs"), ("first:0>1", ""), ("drop:0>1,corrupt:2>0", ""),
    ("slow:0-1", ""), ("aperture:0>1", ""), ("window:0>1", ""), ("lost:0-1,atomics:1-2,order:0-2", ""), ("both:0-1", "untold"),
    ("ipc:0-1", "processes=1"), ("vmm:0>1", ""), ("crowd:0-1", "untold"), ("stall:0-1:250ms@8", ""),
    ("code:cuCtxEnablePeerAccess:217@1", ""), ("code:cuMemHostAlloc:2@1", ""), ("code:cuMemPoolSetAccess:101@4", ""),
    ("code:cuEventRecordWithFlags:2@1", ""), ("code:cuPointerGetAttributes:999@9", "untraced"), ("code:cuThreadExchangeStreamCaptureMode:999@1", ""),
)
SLOW = ("stall", "slow")  # faults that prove nothing against a path
PLAIN_DEVICES = {"P2PSIM_DEVICES": "3"}
NEIGHBOURS = ("libwraps_driver.so", "libwraps_driver_symbolic.so")
MACHINES = ({}, {}, {}, {"P2PSIM_ONE_SPACE": "1"}, {"P2PSIM_NO_P2P": "0-1"}, {"P2PSIM_NO_P2P": "1>2", "P2PSIM_DRIVER": "13050"})
OF_FOUR = {"P2PSIM_DEVICES": "4", "P2PSHIM_CAPTURE": "forward"}
UCX = ROOT / "target/ucx"
# It patches the driver's functions, with a decoder of its own that knows few instructions.
PATCHED_BY_UCX = {"LD_LIBRARY_PATH": f"{ROOT}/target/sim/lib:{UCX}/libucx/lib:{UCX}/libucx_cu13.libs", "UCX_MODULE_DIR": UCX / "libucx/lib/ucx",
                  "UCX_MEM_CUDA_HOOK_MODE": "bistro", "UCX_LOG_LEVEL": "error", "UCX_TLS": "cuda_copy,cuda_ipc,tcp,self,sm"}
STAGED = {"P2PSHIM_ACCESS": "off", "P2PSHIM_STAGING": "always", "P2PSHIM_LOG": "error"}
ON_NULL_DRIVER = {"LD_LIBRARY_PATH": f"{ROOT}/target/c-tests/blocking-driver", "P2PSHIM_VERIFY": "off", "P2PSHIM_LOG": "error"}
# Other programs whose output is the same plain and preloaded: the name, arguments with SEED, variables; with a fault of the machine only preloaded.
OTHERS = (
    ("patched.py", "hookie over", {"PYTHONPATH": str(ROOT / "target/patchers")}),
    ("ucx_events", f"{UCX} after runtime", PATCHED_BY_UCX),
    ("guide_sample-static", "", {"NEIGHBOUR": NEIGHBOURS[0], "P2PSHIM_LOG": "error"}),
    ("stack_depth-12", "", {}),
    ("facts_taken_back", "restore", {}),
    ("random_waits-12", "SEED 60 3", PLAIN_DEVICES),
    ("blocked_stress-12", "SEED 32 100", {"P2PSIM_DEVICES": "4", "P2PSIM_FAULT": "drop:0-1", "P2PSHIM_BROKEN": "warn"}),
    ("blocked_stress-13", "SEED 32 100", {"P2PSIM_DEVICES": "4", "P2PSIM_FAULT": "drop:0-1", "P2PSHIM_DENY": "0-1"}),
    ("random_access-13", "SEED 60", OF_FOUR),
    ("copy_attributes", "4096 8388608", STAGED),
    ("staged_copies-12", "SEED 20", STAGED),
    ("random_graphs-12", "SEED 60", OF_FOUR),
    ("random_waits-static", "SEED 60 2", PLAIN_DEVICES),
    ("blocked_stress-static", "SEED 32 100", {"P2PSIM_DEVICES": "4", "P2PSIM_FAULT": "corrupt:0-1", "P2PSHIM_BROKEN": "warn"}),
    ("random_arguments-12", "SEED 20", OF_FOUR),
    ("late_copies", "copies", {"P2PSIM_FAULT": "stall:0>1:300ms"}),
    ("random_threads-12", "SEED", OF_FOUR),
    ("random_threads-13", "SEED 60 2", {"P2PSHIM_TRACE": TRACE, "P2PSHIM_GPU_TIMING": "all"}),
    ("random_threads-static", "SEED", {**PLAIN_DEVICES, "P2PSHIM_VERIFY": "off", "P2PSHIM_READBACK": "sample"}),
    ("hip_random_sequences-6", "SEED 40", {"P2PSIM_DEVICES": "4", "P2PSHIM_LOG": "off"}),
    ("kept_waits-12", "graphs 1030 spare", {}),
    ("kept_waits-13", "streams 1100 synchronize", {}),
    ("kept_waits-static", "tails 3 spare", {}),
    ("waits_left-12", "wait jump capture", {"P2PSHIM_VALIDATE": "off"}),
    ("waits_churn-12", "pools 200", {"P2PSIM_DEVICES": "4"}),
    ("waits_contexts", "", {}),
    ("waits_destroyed", "", ON_NULL_DRIVER),
    ("waits_stepped", "jump 61 1", ON_NULL_DRIVER),
)
MORE_STACK = 4096  # bytes that a call may take besides
PATIENCE = 300 * int(os.environ.get("P2PSHIM_PATIENCE", "1"))  # seconds after which a program hangs
ROUNDS = 9
# By how much more the figures of the last third of these may exceed those of the one before with the shim than without.
SLACK = {"heap": 96 << 10, "mapped": 128 << 20, "descriptors": 2, "threads": 4, "device": 16 << 20, "pinned": 64 << 20, "allocations": 12, "physicals": 2,
         "pools": 4, "contexts": 0, "streams": 12, "events": 112, "arrays": 0, "graphs": 0, "execs": 0, "modules": 0, "libraries": 0}


class Simulated:
    """Where the programs are: built, for simulated GPUs."""

    shim, command = ROOT / "target/built/libp2pshim.so", ROOT / "target/built/p2pshim"
    failures = ROOT / "target/gauntlet"
    variables = {"LD_LIBRARY_PATH": str(ROOT / "target/sim/lib"), "LD_BIND_NOW": "1"}
    flavours, is_real, shared, repetitions = ("12", "13", "static"), False, (), 3

    def __init__(self):
        if os.environ.get("P2PSHIM_LIB"):
            self.shim = ROOT / os.environ["P2PSHIM_LIB"]

    def program(self, name):
        return [sys.executable, ROOT / "c-tests/cases" / name] if name.endswith(".py") else [ROOT / "target/c-tests" / name]


class Outcome:
    """A program's end, and what it wrote."""

    def __init__(self, command, variables, preload, folder):
        self.command = [str(word) for word in command]
        self.variables = {name: str(value).replace(TRACE, str(folder)) for name, value in variables.items()}
        if preload:
            self.variables["LD_PRELOAD"] = ":".join(map(str, preload))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("P2PSHIM", "P2PSIM", "LD_"))}
        process = subprocess.Popen(self.command, env=kept | {"XDG_CACHE_HOME": str(folder / "none")} | self.variables, text=True, errors="replace",
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder, start_new_session=True)
        try:
            self.out, self.err = process.communicate(timeout=PATIENCE)
            self.status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.out, self.err = process.communicate()
            self.status = f"nothing for {PATIENCE} s"

    def told(self):
        words = [f"{name}={value}" for name, value in self.variables.items()] + self.command
        return f"{' '.join(words)}\nends with {self.status}\n{self.out}{self.err}"

    def seen(self):
        """Calls that a neighbour saw."""
        return re.findall(r"^wrapper: .*$", self.err, re.M)

    def figures(self):
        """Of each round, what the process held."""
        lines = re.findall(r"^round \d+: (.*)$", self.err, re.M)
        return [{name: int(value) for name, value in re.findall(r"(\w+) (\d+)", line)} for line in lines]


def growth(figures, name):
    """How much more the last third of the rounds has than the one before, at most and at least: the lesser, since in a round more may be under way
    or a device be reset. In the first third, things are made that stay."""
    third = len(figures) // 3
    before, last = ([one[name] for one in part] for part in (figures[-2 * third:-third], figures[-third:]))
    return min(most(last) - most(before) for most in (max, min))


def what_grows(place, plain, preloaded, is_told):
    before, after = plain.figures(), preloaded.figures()
    if len(before) < ROUNDS or len(after) < ROUNDS:
        return [f"{len(before)} and {len(after)} rounds tell what they hold"] if is_told else []
    if not place.is_real and (lacks := SLACK.keys() - after[0].keys()):
        return [f"nothing tells of {', '.join(sorted(lacks))}"]
    grown = {name: growth(after, name) - max(growth(before, name), 0) for name in SLACK if name in after[0] and name not in place.shared}
    return [f"{name} grows by {by} more than without the shim in {ROUNDS // 3} rounds" for name, by in grown.items() if by > SLACK[name]]


def report(place, what):
    done = subprocess.run([place.command, "report", "--json", what], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else f"report ends with {done.returncode}: {done.stderr.strip()[-300:]}"


def what_traces_lack(place, preloaded, folder):
    """Each copy between two devices is in the trace of its process, also of those that were killed."""
    of_all = report(place, folder)
    if isinstance(of_all, str):
        return [of_all]
    files = {file["process"]: file for file in of_all["files"]}
    # The trace does not have its words about options.
    problems = {process: [text for text in file["problems"] if not text.startswith("P2PSHIM_")] for process, file in files.items()}
    wrong = [f"trace of {process}: {problems[process]}, {file['dropped']} dropped" for process, file in files.items() if problems[process] or file["dropped"]]
    for process, made, more in re.findall(r"^child (\d+): (\d+) copies( or more)?$", preloaded.err, re.M):
        records = files.get(int(process), {}).get("records", 0)
        if records < int(made) or (not more and records != int(made)):
            wrong.append(f"child {process} made {made} copies{more}, its trace has {records}")
    own = re.search(r"^process (\d+)$", preloaded.err, re.M)
    if not own or int(own[1]) not in files:
        return [*wrong, "the process has no trace"]
    pairs = report(place, files[int(own[1])]["path"])["pairs"]
    seen = {(pair["src"], pair["dst"]): [sum(path[key] for path in pair["paths"] if path["path"] != "by hand") for key in ("calls", "bytes")]
            for pair in pairs if pair["src"] != pair["dst"]}
    made = {(int(src), int(dst)): [int(copies), int(size)] for src, dst, copies, size in re.findall(r"^(\d)>(\d): (\d+) copies, (\d+) bytes$", preloaded.out, re.M)}
    handlers = re.search(r"^handlers: (\d+) copies, (\d+) bytes$", preloaded.err, re.M)
    if handlers and int(handlers[1]):
        made[0, 1] = [one + int(more) for one, more in zip(made.get((0, 1), [0, 0]), handlers.groups())]
    seen = {pair: figures for pair, figures in seen.items() if any(figures)}
    return wrong + ([f"the trace has {seen}, the program made {made}"] if seen != made else [])


def what_is_said(fault, preloaded):
    """Lines that no run may have: the shim's own failures, a fault that the simulated GPUs do not know, and a path that is called broken because it is slow."""
    wrong = re.findall(r"^p2pshim .*(?:panicked|internal error).*$|^p2psim: .*; ignored$", preloaded.err, re.M)
    if not fault or fault.startswith(SLOW):
        wrong += re.findall(r"^p2pshim .*(?:P2P-data-blocked|loses data|data does not arrive).*$", preloaded.err, re.M)
    return wrong[:3]


def soak(place, seed, brief, folder):
    """A round of `soak`: its outcomes, and what is wrong."""
    draw = random.Random(seed)
    name, options, words = WAYS[seed % len(WAYS)]
    if draw.random() < 0.33:
        more_name, more, more_words = draw.choice(WAYS)
        name, options, words = f"{name} and {more_name}", more | options, f"{words} {more_words}"
    fault, more = FAULTS[seed // 2 % len(FAULTS)] if seed % 2 and not place.is_real else ("", "")
    threads, steps = ("4", "60") if brief else (draw.choice(["4", "8", "16", "32"]), draw.choice(["60", "120", "240"]))
    words = [*words.split(), *more.split(), *(["real", "right"] if place.is_real else [])]
    # Access that the program never asks for, p2pshim enables.
    words += ["unasked"] if draw.random() < 0.5 else []
    words += [] if brief else [f"rounds={ROUNDS}", *(["processes=4"] if "processes=1" not in words else [])]
    flavour = place.flavours[(seed + seed // 3) % len(place.flavours)]
    command = [*place.program(f"soak-{flavour}"), seed, threads, steps, *words]
    machine = {} if place.is_real else draw.choice(MACHINES)
    variables = place.variables | ({} if place.is_real else PLAIN_DEVICES) | machine
    neighbour = [] if place.is_real or seed % 5 else [ROOT / "target/c-tests" / NEIGHBOURS[seed // 5 % 2]]
    preload = [place.shim, *neighbour] if seed // 10 % 2 else [*neighbour, place.shim]
    # Behind a library that defines dlsym it does not see what others look up: docs/LIMITS.md.
    is_traced = "P2PSHIM_TRACE" in options and preload[0] == place.shim and "untraced" not in words
    traces = folder / "traces"
    traces.mkdir()
    # The program calls that itself, and prints its codes.
    alike = {"P2PSIM_FAULT": fault} if fault.startswith("code:cuCtxEnablePeerAccess:") else {}
    plain = Outcome(command, variables | alike, neighbour, folder)
    options = {key: value.replace(TRACE, str(traces if value == TRACE else folder)) for key, value in options.items()}
    preloaded = Outcome(command, variables | options | ({"P2PSIM_FAULT": fault} if fault else {}), preload, folder)
    wrong = [f"{who} ends with {one.status}" for who, one in (("plain", plain), ("preloaded", preloaded)) if one.status != 0]
    if plain.out != preloaded.out and not wrong:
        wrong.append("what is printed differs")
    if not wrong:
        wrong = what_is_said(fault, preloaded) + what_grows(place, plain, preloaded, not brief and "hangs" not in words)
        wrong += what_traces_lack(place, preloaded, traces) if is_traced else []
    what = f"soak-{flavour} {threads} {steps} {' '.join(words)}, {name}{', ' + fault if fault else ''}{', beside another' if neighbour else ''}"
    what += "".join(f", {key}={value}" for key, value in machine.items())
    return what, [plain, preloaded], wrong


def stacks(place, seed, folder):
    """How much stack calls take besides: some paths of stacks.tsv."""
    rows = [line.split("\t") for line in (ROOT / "c-tests/stacks.tsv").read_text().splitlines() if not line.startswith("#")][1:]
    parts = [stack(place, row, folder) for row in random.Random(seed).sample(rows, 6)]
    return ", ".join(what for what, _, _ in parts), [outcome for _, outcomes, wrong in parts if wrong for outcome in outcomes], sum((wrong for *_, wrong in parts), [])


def stack(place, row, folder):
    path, call, before, options, _ = row
    options = {key: value for key, value in (word.split("=", 1) for word in options.replace("FOLDER", str(folder / "traces")).split())}
    command = [*place.program("stack_depth-12"), call, 16777216]
    plain = [Outcome([*command, 16, ""], place.variables, [], folder) for _ in range(3)]
    preloaded = Outcome([*command, 16, before], place.variables | options, [place.shim], folder)
    took = [dict(re.findall(r"^(first|later) (\d+)$", one.out, re.M)) for one in [*plain, preloaded]]
    most = {which: max(int(one.get(which, 0)) for one in took[:-1]) for which in took[-1]}
    wrong = [f"{path}: {which} takes {int(depth) - most[which]} bytes more" for which, depth in took[-1].items() if int(depth) - most[which] > MORE_STACK]
    return f"stack_depth {path}", [plain[0], preloaded], wrong or ([f"preloaded ends with {preloaded.status}"] if preloaded.status else [])


def other(place, seed, folder):
    """A round of another program: its outcomes, before a neighbour and behind it, and what is wrong."""
    name, arguments, options = OTHERS[seed // 3 % len(OTHERS)]
    if name.startswith("stack_depth"):
        return stacks(place, seed, folder)
    command = [*place.program(name), *arguments.replace("SEED", str(seed)).split()]
    neighbour = [ROOT / "target/c-tests" / options["NEIGHBOUR"]] if "NEIGHBOUR" in options else []
    sound = {key: value for key, value in options.items() if key != "P2PSIM_FAULT"}
    plain = Outcome(command, place.variables | sound, neighbour, folder)
    orders = [[place.shim, *neighbour], [*neighbour, place.shim]] if neighbour else [[place.shim]]
    all_preloaded = [Outcome(command, place.variables | options, order, folder) for order in orders]
    wrong = [f"plain ends with {plain.status}"] if plain.status != 0 else []
    for preloaded in all_preloaded:
        if preloaded.status != 0:
            wrong.append(f"preloaded ends with {preloaded.status}")
        # How many copies are refused depends on what happens beside them.
        if plain.out != preloaded.out and not wrong and not name.startswith(("blocked_stress", "late_copies")):
            wrong.append("what is printed differs")
        if plain.seen() != preloaded.seen():
            wrong.append(f"the neighbour saw {plain.seen()} without the shim, and {preloaded.seen()} with it")
        if name.startswith("late_copies") and "last copy: direct" not in preloaded.out:
            wrong.append("a path that was late once is not used")
    return f"{name} {arguments.replace('SEED', str(seed))}", [plain, *all_preloaded], wrong


def round_of(place, seed, brief=False):
    """Makes a round: what it was, and what was wrong, with the outcomes, or nothing."""
    folder = Path(tempfile.mkdtemp(prefix="p2pshim-gauntlet-"))
    try:
        if seed % 3 == 2 and not place.is_real:
            what, outcomes, wrong = other(place, seed, folder)
        else:
            what, outcomes, wrong = soak(place, seed, brief, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return what, "\n".join(wrong), "\n".join(outcome.told() for outcome in outcomes)


def keep(place, seed, what, wrong, told, brief):
    """Writes down a failure, and how often its seed fails."""
    place.failures.mkdir(parents=True, exist_ok=True)
    again = sum(bool(round_of(place, seed, brief)[1]) for _ in range(place.repetitions))
    file = place.failures / f"{seed}.txt"
    file.write_text(f"{what}\n{wrong}\n{again} of {place.repetitions} repetitions fail\n\n{told}")
    print(f"FAILED seed {seed}: {what}\n    {wrong.splitlines()[0][:300]}\n    {again} of {place.repetitions} repetitions fail; `make gauntlet SEED={seed}{' BRIEF=1' if brief else ''}`; {file}", flush=True)


def run(place, first, minutes=0.0, rounds=0, jobs=1, brief=False, stop=False, seeds=()):
    """Rounds from a seed on, for minutes or so many, after given ones; how many were made, and how many failed."""
    begun, made, failed = time.monotonic(), 0, 0
    until = begun + minutes * 60

    def numbers():
        yield from seeds
        seed = first
        while (seed - first < rounds) if rounds else time.monotonic() < until:
            yield seed, brief
            seed += 1

    def one(seed, brief):
        since = time.monotonic()
        what, wrong, told = round_of(place, seed, brief)
        return seed, brief, f"{what}, {time.monotonic() - since:.1f} s", wrong, told

    with ThreadPoolExecutor(jobs) as pool:
        waiting, source = [], numbers()
        while True:
            while len(waiting) < jobs and (one_round := next(source, None)):
                waiting.append(pool.submit(one, *one_round))
            if not waiting:
                break
            seed, is_brief, what, wrong, told = waiting.pop(0).result()
            made += 1
            if wrong:
                failed += 1
                keep(place, seed, what, wrong, told, is_brief)
                if stop:
                    print(f"found by seed {seed} after {made} rounds, {time.monotonic() - begun:.0f} s", flush=True)
                    source = iter(())
            else:
                print(f"seed {seed}: {what}", flush=True)
    print(f"{made} rounds from seed {first}, {failed} failed, {time.monotonic() - begun:.0f} s", flush=True)
    return made, failed


def on_gpus():
    """Rounds on real GPUs, for $GAUNTLET_MINUTES (2) from $GAUNTLET_SEED (1) on; side by side they would take as long as one after the other."""
    import harness

    class Real:
        shim, command, failures = harness.SHIM, harness.HERE / "p2pshim", Path(os.environ.get("OUT") or harness.BUILD)
        # The memory that a device has given away is that of all processes.
        variables, flavours, is_real, shared, repetitions = {}, ("static", "shared"), True, ("device",), 1

        def program(self, name):
            case, flavour = name.rsplit("-", 1)
            return [harness.build(f"cases/{case}.c", flavour)]

    made, failed = run(Real(), int(os.environ.get("GAUNTLET_SEED", "1")), minutes=float(os.environ.get("GAUNTLET_MINUTES", "2")))
    harness.judge(made and not failed, "gauntlet", f"{made} rounds, {failed} failed")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--minutes", type=float, default=0)
    arguments.add_argument("--rounds", type=int, default=0)
    arguments.add_argument("--seed", type=int)
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--brief", action="store_true", help="fewer threads and steps")
    arguments.add_argument("--stop", action="store_true", help="at the first failure")
    arguments.add_argument("--kept", action="store_true", help="seeds of tests/golden/gauntlet.txt first")
    asked = arguments.parse_args()
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(1 << 24)
    kept = (ROOT / "tests/golden/gauntlet.txt").read_text().split("\n") if asked.kept else []
    kept = [(int(line.split()[0]), "brief" in line) for line in kept if line and not line.startswith("#")]
    rounds = asked.rounds or (0 if asked.minutes else 1)
    _, failed = run(Simulated(), seed, asked.minutes, rounds, asked.jobs, asked.brief, asked.stop, kept)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
