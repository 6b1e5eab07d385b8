#!/usr/bin/env python3
"""miri.py [--seeds N] [--fault] [FILTER…]: runs unit tests under Miri, which emulates weak memory, and finds races and wrong uses of memory.

Only modules that need no assembler, no foreign function and no mapping can be run: MODULES. Each seed has threads take turns otherwise, and loads find
other values. --fault weakens an order: Miri has to find that. Exit status 1 if a test fails, or the fault is not found; 77 without a nightly toolchain
that has Miri.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STARTED = time.monotonic()
# Modules of p2pshim that have what threads share without a lock, as filters of names of tests.
MODULES = (
    "os::alloc::tests::alloc_many_threads", "objects::map", "os::table", "os::arena", "objects::past", "policy::access::cells", "real::route",
    "capi::tests::kept",
)
# The file, a text that is there once and another, and the test that has to fail.
FAULT = (
    "src/os/alloc.rs", "let _ = self.given.fetch_update(AcqRel, Relaxed", "let _ = self.given.fetch_update(Relaxed, Relaxed",
    "os::alloc::tests::alloc_many_threads",
)


def run(filters, seeds, tree=ROOT):
    """Runs Miri and prints its lines about tests as they come. Returns its output, and whether all is right."""
    # Arenas and kept texts stay as long as the process: Miri calls that a leak.
    flags = f"-Zmiri-disable-isolation -Zmiri-permissive-provenance -Zmiri-ignore-leaks -Zmiri-many-seeds=0..{seeds}"
    variables = {"CARGO_TARGET_DIR": str(ROOT / "target/miri"), "MIRIFLAGS": flags, "RUSTFLAGS": "-Adeprecated"}
    command = ["cargo", "+nightly", "miri", "test", "-p", "p2pshim", "--lib", "--", *filters]
    with subprocess.Popen(command, cwd=tree, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        said = []
        for line in process.stdout:
            said.append(line)
            if re.match(r"test \S+ \.\.\. ", line):
                print(f"{time.monotonic() - STARTED:5.0f} s  {line}", end="", flush=True)
    return "".join(said), process.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--fault", action="store_true")
    parser.add_argument("filters", nargs="*")
    given = parser.parse_args()
    if subprocess.run(["cargo", "+nightly", "miri", "--version"], capture_output=True).returncode != 0:
        print("No nightly toolchain with Miri: rustup toolchain install nightly -c miri -c rust-src")
        sys.exit(77)
    if given.fault:
        file, old, new, test = FAULT
        tree = ROOT / "target/miri-tree"
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(ROOT, tree, ignore=lambda folder, _: ("target", ".git") if Path(folder) == ROOT else ())
        text = (tree / file).read_text()
        assert text.count(old) == 1, f"{file} has no {old}"
        (tree / file).write_text(text.replace(old, new))
        said, holds = run([test], given.seeds, tree)
        is_found = not holds and "Data race" in said
        print("found" if is_found else f"NOT FOUND\n{said[-3000:]}")
        sys.exit(not is_found)
    modules = given.filters or MODULES
    said, holds = run(modules, given.seeds)
    passed = re.findall(r"^test (\S+) \.\.\. ok", said, re.MULTILINE)
    # A filter that no test has is no module that was run.
    absent = [module for module in modules if not any(module in name for name in passed)]
    if not holds:
        print(said[-6000:])
    print(f"{len(set(passed))} tests in {given.seeds} seeds, {time.monotonic() - STARTED:.0f} s{''.join(f'; none of {module}' for module in absent)}")
    sys.exit(not holds or len(absent) > 0)


main()
