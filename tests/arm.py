#!/usr/bin/env python3
"""arm.py [--few] [WORD…]: runs the programs of tests/arm.txt whose lines have a word on this machine and, under QEMU's user mode, on aarch64, each
preloaded and plain. It prints a line for each, and exits with 1 if one differs in its output, in what the shim says or in how it ends, or if the two
libraries export other functions. `make test-arm` builds what is run. With --few, of `make test-arm-few`, these are the first lines, and this machine's
programs are those of `make c-tests`. `arm.py --programs [--few]` prints which programs and libraries there are. A line with P2PSHIM_TRACE has its
program make a trace, wherever that says, and the call sites in it have to be the same too.
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ARM = ROOT / "target/arm"
QEMU = [str(ARM / "lib/qemu-aarch64"), "-L", str(ARM)]
IS_FEW = "--few" in sys.argv
HERE = ROOT / ("target/c-tests" if IS_FEW else "target/arm/x86_64")
# The folder of programs and simulated GPUs for aarch64.
THERE = ARM / "few" if IS_FEW else ARM
BUILT = ROOT / "target/aarch64-unknown-linux-gnu" / ("debug" if IS_FEW else "tests")
SHIMS = {False: ROOT / "target/built/libp2pshim.so", True: BUILT / "libp2pshim.so"}
# For a call of the system that QEMU's user mode has not.
STAND_IN = "libreads_by_pipe.so"
# A program that has not ended by then hangs.
PATIENCE = 600


def lines(is_few=False):
    text = (ROOT / "tests/arm.txt").read_text()
    text = text.split("# The others:")[0] if is_few else text
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def parts(line):
    """Variables, the program and its arguments."""
    words = shlex.split(line)
    count = next(index for index, word in enumerate(words) if "=" not in word)
    return dict(word.split("=", 1) for word in words[:count]), words[count], words[count + 1:]


def run(line, is_arm, is_preloaded):
    """What a program writes, and how it ends."""
    variables, name, arguments = parts(line)
    base = THERE if is_arm else ROOT / "target"
    programs = THERE / "c-tests" if is_arm else HERE
    variables = {"LD_LIBRARY_PATH": f"{base}/sim/lib", **variables}
    if is_preloaded:
        variables["LD_PRELOAD"] = f"{THERE}/c-tests/{STAND_IN}:{SHIMS[True]}" if is_arm else str(SHIMS[False])
    trace = variables.get("P2PSHIM_TRACE") and tempfile.TemporaryDirectory()
    if trace:
        variables["P2PSHIM_TRACE"] = trace.name
    if is_arm:
        variables["LD_LIBRARY_PATH"] += f":{ARM}/lib"
    given = [word for pair in variables.items() for word in ("-E", "=".join(pair))] if is_arm else []
    command = [*(QEMU + given if is_arm else []), f"{programs}/{name}", *arguments]
    environment = {"PATH": os.environ["PATH"], "HOME": "/nowhere", **({} if is_arm else variables)}
    try:
        ended = subprocess.run(command, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return "", "", "hangs"
    found = call_sites(trace.name) if trace and is_preloaded else ""
    return ended.stdout.decode(errors="replace") + found, plain(ended.stderr.decode(errors="replace")), ended.returncode


def call_sites(trace):
    """The functions and lines from which a trace has copies, as this machine's command finds them by the stacks that were walked."""
    report = subprocess.run([ROOT / "target/built/p2pshim", "report", trace], check=True, capture_output=True, text=True).stdout
    found = sorted(set(re.findall(r"\w+ \(\w+\.c:\d+", report)))
    if not found:
        sys.exit(f"no call site is named:\n{report}")
    return "".join(f"{site})\n" for site in found)


def plain(text):
    """Without numbers of processes, addresses and times, which differ from run to run."""
    text = re.sub(r"0x[0-9a-f]+", "0x…", text)
    return re.sub(r"^p2pshim \d\d:\d\d:\d\d\.\d+ \d+/\d+", "p2pshim", text, flags=re.M)


def compare(line):
    """In which respects the two machines differ, how long it took, and what they do: preloaded and plain, each on this machine and on aarch64."""
    started = time.monotonic()
    preloaded, plain = ([run(line, is_arm, is_preloaded) for is_arm in (False, True)] for is_preloaded in (True, False))
    differs = [what for what, *both in zip(("output", "messages", "end"), *preloaded) if both[0] != both[1]]
    differs += [f"{what} without the shim" for what, *both in zip(("output", "messages", "end"), *plain) if both[0] != both[1]]
    return line, differs, time.monotonic() - started, [*preloaded, *plain]


def exports(library):
    """The functions of a library, each with its version, but for the C library's versions, which differ by machine."""
    listed = subprocess.run(["readelf", "--dyn-syms", "-W", library], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    return {re.sub("@GLIBC_.*", "@GLIBC", row[7]) for row in rows if len(row) == 8 and row[6].isdigit() and row[4] in ("GLOBAL", "WEAK")}


def have_the_same_exports():
    here, there = (exports(library) for library in SHIMS.values())
    print(f"{len(here & there)} exported functions are the same{''.join(f', {name} is not' for name in sorted(here ^ there))}")
    return here == there and here


def main(words):
    words = [word for word in words if word != "--few"]
    if words == ["--programs"]:
        return print(STAND_IN, *dict.fromkeys(parts(line)[1] for line in lines(IS_FEW)))
    shown = [line for line in lines(IS_FEW) if not words or any(word in line for word in words)]
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for line, differs, took, outcomes in pool.map(compare, shown):
            print(f"{'differs in ' + ', '.join(differs) if differs else 'same':30} {took:6.1f} s  {line}", flush=True)
            failed += bool(differs)
            if differs:
                for name, (out, err, end) in zip(("x86-64", "aarch64", "x86-64, plain", "aarch64, plain"), outcomes):
                    print(f"--- {name}: ends with {end}\n{out}--- its messages\n{err}", file=sys.stderr)
    is_same = have_the_same_exports()
    print(f"{len(shown) - failed} passed, {failed} failed")
    return failed > 0 or not shown or not is_same


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
