"""Pairs that are verified, or graphs that are instantiated, while others are at it too."""

import os
import re
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from harness import Failed, Run, build, clean_environment, judge

FILLERS = 4  # processes that keep the link full
VERIFIED = 100  # processes that have the pair verified meanwhile
AT_A_TIME = 4
MOST_SECONDS = 60  # of one of them
# `BUSY_LINK_SHIM=path`: another libp2pshim.so, such as an earlier one.
OTHER = {"LD_PRELOAD": os.environ["BUSY_LINK_SHIM"]} if os.environ.get("BUSY_LINK_SHIM") else {}
THREADS = (2, 4)
ROUNDS = 5
LEAST_TOGETHER = 0.7  # bandwidth of a graph, to that of one that was instantiated alone


def outcome(run):
    """How a verification ended: passed, undecided, refused for now, blocked."""
    if run.status != 0:
        raise Failed(run.ended())
    if "It is verified again later" in run.trace:
        return "refused for now"
    if " did not complete within " in run.trace or "data does not arrive" in run.trace or "then CUDA_SUCCESS" not in run.out:
        return "blocked"
    return "passed" if "verified: data arrives in both directions" in run.trace else "undecided"


def busy_link():
    program = build("busy_link.c")

    def verify(_):
        return outcome(Run([program, "verify"], preload=True, seconds=MOST_SECONDS, **OTHER))

    idle = verify(None)
    fillers = [subprocess.Popen([program, "fill"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                env=clean_environment()) for _ in range(FILLERS)]
    try:
        if any(filler.stdout.readline() != "full\n" for filler in fillers):
            raise Failed("the link could not be kept full")
        begun = monotonic()
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            counts = Counter(pool.map(verify, range(VERIFIED)))
        seconds = monotonic() - begun
        are_at_it = all(filler.poll() is None for filler in fillers)
    finally:
        ends = [filler.communicate()[0] for filler in fillers]
    full = sum(float(end.split()[-1]) for end in ends if end.split())
    said = ", ".join(f"{counts[word]} {word}" for word in ("passed", "undecided", "refused for now", "blocked"))
    judge(are_at_it and counts["blocked"] == 0, "busy_link",
          f"{said}; idle: {idle}; {FILLERS} processes moved {full:.0f} GB/s meanwhile; {seconds:.0f} s")


def graphs_together():
    program = build("cases/graphs_together.c")

    def speeds(threads):
        run = Run([program, threads], preload=True)
        if run.status != 0:
            raise Failed(run.ended())
        return [float(speed) for speed in re.findall(r"^([0-9.]+) GB/s$", run.err, re.M)]

    alone = max(speeds(1))
    for threads in THREADS:
        together = [speed for _ in range(ROUNDS) for speed in speeds(threads)]
        judge(len(together) == threads * ROUNDS and min(together) >= LEAST_TOGETHER * alone, f"graphs_together, {threads} threads",
              f"{min(together):.0f} to {max(together):.0f} GB/s a graph, {alone:.0f} alone")
