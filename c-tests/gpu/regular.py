"""Regular copies, which name no devices: how fast they are, and whether the report counts all of them."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from math import exp, log, sqrt
from statistics import mean, median, variance

from harness import BUILD, HERE, SHIM, Failed, Run, build, clean_environment, judge, table

ROUNDS = 3
STEPPERS = 10  # processes that make a step on one GPU, plain and preloaded
TURNS = 40  # of each
MOST_STEP = {"preloaded": 1.005, "recorded": 1.02}  # of its plain time
LEAST_DIRECT = 0.97  # bandwidth of a program that never enables, preloaded, to that of one that does
MOST_HOST = 0.3  # microseconds that its calls take the host longer than those of one that does, the median of all functions


def measured(run):
    """GB/s and host time in microseconds, by function."""
    if run.status != 0:
        raise Failed(run.ended())
    rows = [line.split("\t") for line in run.out.splitlines()]
    return {name: (float(bandwidth), float(host)) for name, bandwidth, host in rows}


def bandwidth():
    for runtime in ("shared", "static"):
        program = build("regular.c", runtime)
        ways = {
            "never, plain": ("never", {}),
            "enables, plain": ("enables", {}),
            "never, preloaded": ("never", {"preload": True}),
        }
        rounds = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, (mode, options) in ways.items():
                rounds[name].append(measured(Run([program, mode], trace=False, **options)))
        # The host's time of a call has two levels, from process to process: the lower one is compared.
        figures = {name: {function: [of(one[function][column] for one in answers) for column, of in enumerate((median, min))]
                          for function in answers[0]} for name, answers in rounds.items()}
        never, enables, shim = figures.values()
        print(f"        {runtime} runtime, 64 MiB: GB/s, the median of {ROUNDS} runs / host time of the call in us, the least")
        table([["function", *figures, "preloaded/enables"]] + [
            [function, *(f"{of[function][0]:.1f} / {of[function][1]:.1f}" for of in figures.values()),
             " / ".join(f"{mine / theirs:.3f}" for mine, theirs in zip(shim[function], enables[function]))]
            for function in never])
        slow = min(never, key=lambda function: shim[function][0] / enables[function][0])
        ratio = shim[slow][0] / enables[slow][0]
        judge(ratio >= LEAST_DIRECT, f"regular, {runtime} runtime",
              f"at least {ratio:.3f} of the bandwidth with access enabled ({slow}), limit {LEAST_DIRECT}")
        more = sorted(shim[function][1] - enables[function][1] for function in never)
        judge(median(more) <= MOST_HOST, f"regular, {runtime} runtime, host",
              f"a call takes the host {median(more):+.2f} us longer than with access enabled ({more[0]:+.2f} to {more[-1]:+.2f}), "
              f"limit {MOST_HOST}")


def graphs():
    """A graph keeps the path that its copies have when it is instantiated: captured ones, and those that are added to it."""
    for runtime in ("shared", "static"):
        program = build("regular.c", runtime)
        for how in ("captured", "made"):
            never, enables, shim = (measured(Run([program, mode, how], trace=False, preload=preload))["cudaGraphLaunch"]
                                    for mode, preload in (("never", False), ("enables", False), ("never", True)))
            judge(shim[0] >= LEAST_DIRECT * enables[0], f"regular, {how} graph, {runtime} runtime",
                  f"{never[0]:.1f} GB/s never enabled, {enables[0]:.1f} enabled, {shim[0]:.1f} never enabled and preloaded; "
                  f"host {never[1]:.1f}, {enables[1]:.1f}, {shim[1]:.1f} us")


def arrays():
    """Copies from and to CUDA arrays of two and three dimensions: seen, with the right bytes, and as fast as with access enabled. Those of one
    dimension are traced only."""
    program = build("cases/array_copies.c", "shared")
    for mode, expected in (("between", 6), ("elsewhere", 0), ("remade", 50)):
        plain, shim = (Run([program, mode], trace=preload, preload=preload) for preload in (False, True))
        seen = sum(" 0>1 direct" in line for line in shim.trace.splitlines())
        judge(plain.status == 0 and shim.status == 0 and seen == expected, f"arrays, {mode}",
              f"ends with {plain.status} plain, {shim.status} preloaded; {seen} copies direct, {expected} expected")

    def speeds(*modes, **options):
        run = Run([program, "timed", *modes], trace=False, **options)
        if run.status != 0:
            raise Failed(run.ended())
        forms = (line.split("\t") for line in run.out.splitlines())
        return [float(speed) for form, speed in forms if not re.match("cuMemcpy(DtoA|AtoD|AtoA)", form)]

    rounds = [(speeds(), speeds("enables"), speeds(preload=True)) for _ in range(ROUNDS)]
    never, enables, shim = ([median(values) for values in zip(*one)] for one in zip(*rounds))
    ratio = median(mine / theirs for mine, theirs in zip(shim, enables))
    judge(ratio >= LEAST_DIRECT, "arrays, bandwidth",
          f"2 MiB: {min(never):.1f} to {max(never):.1f} GB/s never enabled, {min(enables):.1f} to {max(enables):.1f} enabled, "
          f"{min(shim):.1f} to {max(shim):.1f} preloaded; the median ratio is {ratio:.3f}, limit {LEAST_DIRECT}")


def graph_copies():
    """What graphs and batches copy: the same bytes plain and preloaded, and each launch is counted."""
    for runtime in ("shared", "static"):
        program = build("cases/graph_copies.c", runtime)
        for how in ("captured", "made", "updated", "late", "batch"):
            plain, shim = (Run([program, how], trace=preload, preload=preload) for preload in (False, True))
            seen = sum(" (" in line and re.search(r" \d>\d ", line) and "Launch" in line or "BatchAsync" in line
                       for line in shim.trace.splitlines())
            judge(plain.status == 0 and shim.status == 0 and seen > 0, f"graph_copies, {how}, {runtime} runtime",
                  f"ends with {plain.status} plain, {shim.status} preloaded; {seen} calls seen {plain.err[-200:]}{shim.err[-200:]}")
        for access, expected in (("app", "launch 0, then 719"), ("auto", "launch 0, then 0")):
            reused, shim = (Run([program, how], preload=how == "lost", P2PSHIM_ACCESS=access) for how in ("reused", "lost"))
            rules = [rule for rule, *_ in shim.findings() if rule.startswith("P2P-graph")]
            # The driver reads memory then that it has given back, and crashes if anybody has taken it: the program, or the shim.
            ends = [(0, expected)] + ([(-signal.SIGSEGV, "")] if access == "app" else [])
            judge((shim.status, shim.out.strip()) in ends and rules == ["P2P-graph-access-lost"] * (access == "app"),
                  f"graph_copies, lost, {runtime} runtime, P2PSHIM_ACCESS={access}",
                  f"{shim.out.strip()}; found {rules}; ends with {shim.status}, and with {reused.status} plain where memory is reused")


def reported(script, *expected):
    """Runs a script plain and under `p2pshim run`: it must print the same, and the report must have the bytes that it says it
    moved: `expected` are pairs of devices, with the word before the number in its output."""
    folder = BUILD / f"reported-{script}"
    command = [sys.executable, HERE / script]
    plain = Run(command, trace=False)
    run = Run([HERE / "p2pshim", "run", "--library", HERE / "libp2pshim.so", "--trace", folder, "--no-report", "--", *command],
              trace=False)
    for one in (plain, run):
        if one.status != 0:
            raise Failed(one.ended())
    done = subprocess.run([HERE / "p2pshim", "report", "--json", folder], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"p2pshim report ends with {done.returncode}: {done.stderr}")
    answer = json.loads(done.stdout)
    found = {(pair["src"], pair["dst"]): pair for pair in answer["pairs"]}
    problems = [] if plain.out == run.out else [f"prints {run.out!r}, plain {plain.out!r}"]
    for src, dst, word in expected:
        moved = int(re.search(rf"\b{word} (\d+)", plain.out)[1])
        pair = found.get((src, dst), {"bytes": 0, "paths": [], "calls": 0})
        paths = {path["path"]: path["bytes"] for path in pair["paths"]}
        print(f"        {script}, {src}>{dst}: the program moved {moved} bytes, the report has {pair['bytes']} "
              f"in {pair['calls']} copies: {paths}")
        if pair["bytes"] != moved:
            problems.append(f"{src}>{dst}: {pair['bytes']} bytes in the report, {moved} by the program")
        if paths.get("direct", 0) < 0.9 * moved:
            problems.append(f"{src}>{dst}: {paths}")
    wrong = [f"{finding['rule']} of {finding['function']}" for finding in answer["findings"]
             if finding["severity"] in ("error", "hazard")]
    if wrong:
        problems.append(f"said to be wrong: {wrong}")
    judge(not problems, f"reported, {script}", "; ".join(problems) or "same output, all bytes in the report")


def torch_pipeline():
    reported("torch_pipeline.py", (0, 1, "forward"), (1, 0, "backward"))


def cuda_python_batch():
    reported("cuda_python_batch.py", (0, 1, "forward"), (1, 0, "backward"))


def cupy_copy():
    reported("cupy_copy.py", (0, 1, "forward"), (1, 0, "backward"))


def jax_copy():
    reported("jax_copy.py", (0, 1, "forward"), (1, 0, "backward"))


def torch_step():
    """What a training step on one GPU costs more: nothing of it is a copy between devices."""
    # A process is quick or slow for as long as it lives, by some percent: many of them take turns on one core.
    command = [sys.executable, str(HERE / "torch_step.py")]
    folder = tempfile.TemporaryDirectory()
    ways = {"plain": clean_environment(), "preloaded": clean_environment(LD_PRELOAD=str(SHIM)),
            # As `p2pshim run` starts a program.
            "recorded": clean_environment(LD_PRELOAD=str(SHIM), P2PSHIM_TRACE=folder.name)}
    core = max(os.sched_getaffinity(0))
    begun = [(way, subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
             for _ in range(STEPPERS) for way, environment in ways.items()]
    times = {way: [] for way in ways}
    try:
        if any(process.stdout.readline() != "ready\n" for _, process in begun):
            raise Failed("torch_step.py does not run")
        for _, process in begun:
            os.sched_setaffinity(process.pid, {core})
        taken = [[] for _ in begun]
        for turn in range(TURNS):
            order = list(enumerate(begun))
            random.Random(turn).shuffle(order)
            for number, (_, process) in order:
                print(file=process.stdin, flush=True)
                taken[number].append(float(process.stdout.readline()))
    finally:
        for _, process in begun:
            process.kill()
            process.wait()
    for (way, _), of in zip(begun, taken):
        times[way].append(log(median(of)))
    for way in ("preloaded", "recorded"):
        ratio = exp(mean(times[way]) - mean(times["plain"]))
        error = sqrt(sum(variance(times[of]) / STEPPERS for of in ("plain", way)))
        judge(ratio * exp(-2 * error) <= MOST_STEP[way], f"torch_step, {way}",
              f"a step of 1,000 small operations takes {ratio:.4f} of plain ({exp(mean(times['plain'])):.3f} ms), standard error {error:.4f}, "
              f"by {STEPPERS} processes each in {TURNS} turns; limit {MOST_STEP[way]}")

