#!/usr/bin/env python3
"""Programs on simulated GPUs beside others who want to be in the process too, by their real packages: allocators, libraries that replace calls of the C
library, sanitizers, tools of the dynamic linker, libraries that wrap `dlsym` or rewrite tables; and programs of other languages.

    neighbours.py [--jobs N] [WORD…]

With p2pshim preloaded, before the neighbour and behind it, a program prints and returns what it does with the neighbour alone; the neighbour sees the
calls that it sees then; and the trace has each copy, or as many records as docs/LIMITS.md lets it have. Prints a line for each; words choose by
name. Exits with 1 if one fails. Names what cannot be had here: that is no pass.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from neighbours_list import ALL, BUILT, PLACE, PROGRAMS, SHARES, SHIM, WRAPS, NotHad, compiled

from gauntlet import Outcome, what_traces_lack

# Behind a library that keeps look-ups to itself: records of the runtime's calls without the driver's; none where all is looked up.
SEEN_BEHIND = {"guide_sample": 8, "guide_sample-static": 0}


def run(command, variables, preload, folder):
    preload = [PLACE.shim if one == SHIM else one for one in preload]
    options = {"P2PSHIM_TRACE": folder, "P2PSHIM_LOG": "error", "P2PSHIM_SUMMARY": "off"}
    return Outcome(command, PLACE.variables | options | variables, preload, folder)


def traced(folder):
    """How many records the traces have, and how many copies of how many bytes between each two devices."""
    def read(what):
        return json.loads(subprocess.run([PLACE.command, "report", "--json", what], capture_output=True).stdout or '{"files": []}')
    files = read(folder)["files"]
    return sum(file["records"] for file in files), {
        (one["src"], one["dst"]): [sum(path[key] for path in one["paths"]) for key in ("calls", "bytes")]
        for file in files for one in read(file["path"])["pairs"] if one["src"] != one["dst"]}


def compare(name, beside, program, command, folder):
    """Each way, and what is wrong."""
    def traces(number):
        (folder / str(number)).mkdir()
        return folder / str(number)

    def seen(outcome):
        return re.findall(r"^(?:wrapper|rewrites|audit|injection): .*$", outcome.err, re.M)

    alone = run([*beside.launcher, *command], beside.variables, beside.libraries, traces("alone"))
    if alone.status != 0 or not alone.out:
        raise NotHad(f"without p2pshim it ends with {alone.status}: {(alone.err.strip() or 'nothing').splitlines()[-1][:200]}")
    without = None
    for number, (way, launcher, preload) in enumerate(beside.ways):
        outcome = run([*launcher, *command], beside.variables, preload, traces(number))
        wrong = re.findall(r"^p2pshim .*(?:panicked|internal error).*$", outcome.err, re.M)
        if (outcome.status, outcome.out) != (alone.status, alone.out):
            wrong.append(f"it ends with {outcome.status}, and prints {'the same' if outcome.out == alone.out else 'something else'}")
        if program != "soak" and seen(outcome) != seen(alone):
            wrong.append(f"the neighbour sees {seen(outcome)}, without p2pshim {seen(alone)}")
        records, pairs = traced(folder / str(number))
        before = preload[:preload.index(SHIM) if SHIM in preload else 0]
        if SHARES in before:
            wrong += [f"the trace has {records} records"] if SEEN_BEHIND.get(program, records) != records else []
        elif re.search(r"^process \d+$", outcome.err, re.M) and not beside.is_loose and WRAPS not in before:
            wrong += what_traces_lack(PLACE, outcome, folder / str(number))
        elif program != "soak":
            if without is None:
                run(PROGRAMS.get(program, command), {}, [SHIM], traces("without"))
                without = traced(folder / "without")[1]
            wrong += [f"the trace has {pairs}, without the neighbour {without}"] if pairs != without or not pairs else []
        yield f"{name}, {program}: {way}", wrong and "; ".join(wrong) + f"\n{outcome.told()}\n--- alone\n{alone.told()}"


def check(name, beside, program, command):
    folder = Path(tempfile.mkdtemp(prefix="p2pshim-neighbours-"))
    try:
        return list(compare(name, beside, program, command, folder)), []
    except NotHad as why:
        return [], [(f"{name}, {program}", str(why))]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("words", nargs="*")
    asked = arguments.parse_args()
    BUILT.mkdir(parents=True, exist_ok=True)
    (BUILT / "proxychains.conf").write_text("strict_chain\n[ProxyList]\nsocks4 127.0.0.1 9\n")
    compiled("soak", BUILT / "soak")
    counts, missing, work = {False: 0, True: 0}, [], []
    for name, prepare in ALL.items():
        try:
            if not asked.words or any(word.lower() in name.lower() for word in asked.words):
                beside = prepare()
                work += [(name, beside, program, command) for program, command in beside.programs.items()]
        except NotHad as why:
            missing.append((name, str(why)))
    with ThreadPoolExecutor(asked.jobs) as pool:
        for results, not_had in pool.map(lambda one: check(*one), work):
            missing += not_had
            for what, wrong in results:
                counts[not wrong] += 1
                print(f"FAILED {what}: {wrong}" if wrong else f"right  {what}", flush=True)
    for name, why in missing:
        print(f"could not be had: {name}: {why}")
    print(f"{counts[True]} right, {counts[False]} failed, {len(missing)} could not be had")
    sys.exit(1 if counts[False] or not counts[True] else 0)


if __name__ == "__main__":
    main()
